#!/usr/bin/env bash
# The hot path under RealtimeSanitizer: what it calls takes no memory, no lock, and asks the system for nothing, down to its
# doors (.ci/rtsan.supp). That the sanitizer sees what is planted is a test among them. Where it cannot be had, the allocation
# gate (stage alloc) is what is left.
set -uo pipefail
# shellcheck source=.ci/common.sh
. .ci/common.sh
if ! said=$(rustc +nightly --version 2>&1); then
    skip realtime "no nightly toolchain ($(tail -n 1 <<<"$said")); the allocation gate is what is left"
    exit 0
fi
if ! compgen -G "$(rustc +nightly --print sysroot)/lib/rustlib/$host/lib/*rtsan*" >/dev/null; then
    skip realtime "the nightly toolchain has no run time of the sanitizer; the allocation gate is what is left"
    exit 0
fi
log=$target/realtime.log
RTSAN_OPTIONS=suppressions=$PWD/.ci/rtsan.supp RUSTFLAGS='--cfg latent_realtime -Zsanitizer=realtime' \
    cargo +nightly test --locked -p latent-capabilities --test realtime --target "$host" --target-dir "$target/realtime" \
    -- --nocapture --test-threads=1 2>&1 | tee "$log"
code=${PIPESTATUS[0]}
planted=$(grep -cE 'planted .*: (blocking|unsafe) function' "$log")
if [ "$planted" -eq 0 ]; then
    echo 'the sanitizer was not seen to report anything'
    code=1
fi
figure 'hot scenarios' "$(sed -nE 's/^([0-9]+) scenarios$/\1/p' "$log")"
figure 'planted and reported' "$planted"
figure 'sanitizer reports' "$(grep -c 'ERROR: RealtimeSanitizer' "$log")"
exit "$code"
