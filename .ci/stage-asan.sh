#!/usr/bin/env bash
# The library's tests under the address sanitizer, whose leak check is on: use after free, out of bounds, leaks.
set -uo pipefail
# shellcheck source=.ci/common.sh
. .ci/common.sh
if ! said=$(rustc +nightly --version 2>&1); then
    skip asan "no nightly toolchain ($(tail -n 1 <<<"$said"))"
    exit 0
fi
ASAN_OPTIONS=detect_leaks=1 LSAN_OPTIONS=suppressions=$PWD/.ci/lsan.supp:print_suppressions=0 RUSTFLAGS='-Zsanitizer=address -Cunsafe-allow-abi-mismatch=sanitizer' \
    cargo +nightly test --locked -p latent-capabilities --lib --target "$host" --target-dir "$target/asan" 2>&1 | tee "$target/asan.log"
code=${PIPESTATUS[0]}
figure 'sanitizer reports' "$(grep -cE 'ERROR: (Address|Leak)Sanitizer' "$target/asan.log")"
exit "$code"
