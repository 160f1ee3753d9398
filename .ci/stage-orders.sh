#!/usr/bin/env bash
# A test of the models: each named memory order of src/sync.rs, weakened to Relaxed, must break one of them. A model that
# ran out of time has shown nothing.
set -uo pipefail
# shellcheck source=.ci/common.sh
. .ci/common.sh
orders=$(grep -oE 'cfg!\(weaken = "[a-z]+"\)' src/sync.rs | cut -d'"' -f2)
[ -n "$orders" ] || {
    echo 'src/sync.rs names no order that can be weakened'
    exit 1
}
code=0
for order in $orders; do
    export LATENT_LOOM_FIGURES=$target/loom-weak-$order.txt LATENT_LOOM_SECONDS=60
    rm -f "$LATENT_LOOM_FIGURES"
    RUSTFLAGS="--cfg loom --cfg weaken=\"$order\"" \
        CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_PROFILE_RELEASE_DEBUG=0 \
        cargo test --quiet --release --locked -p loom-tests --target-dir "$target/loom" --tests >"$target/loom-weak-$order.log" 2>&1
    broken=$(grep -v '^model harness_' "$LATENT_LOOM_FIGURES" 2>/dev/null | awk '$9 == "FAILED" { printf "%s%s", seen++ ? ", " : "", $2 }')
    if [ -n "$broken" ]; then
        echo "$order weakened: found by $broken"
    else
        echo "$order weakened: NOT found"
        tail -n 5 "$target/loom-weak-$order.log"
        code=1
    fi
done
exit "$code"
