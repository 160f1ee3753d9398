#!/usr/bin/env bash
# The library's tests under the thread sanitizer. The standard library is instrumented too: without that, every channel and
# every Arc is a false report. .ci/tsan.supp names what is one all the same.
set -uo pipefail
# shellcheck source=.ci/common.sh
. .ci/common.sh
if ! why=$(component rust-src); then
    skip tsan "$why"
    exit 0
fi
# A backtrace, printed by a test that is to panic, takes seconds here; and every step takes ten times as long.
export RUST_BACKTRACE=0 LATENT_SLOWNESS=10
TSAN_OPTIONS=suppressions=$PWD/.ci/tsan.supp RUSTFLAGS=-Zsanitizer=thread \
    cargo +nightly test --locked -Zbuild-std -p latent-capabilities --lib --target "$host" --target-dir "$target/tsan" 2>&1 | tee "$target/tsan.log"
code=${PIPESTATUS[0]}
figure 'sanitizer reports' "$(grep -c 'WARNING: ThreadSanitizer' "$target/tsan.log")"
exit "$code"
