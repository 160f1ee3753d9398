#!/usr/bin/env bash
# The unit tests of the floors under Miri: both aliasing models, and several seeds of its scheduler and its weak memory.
set -uo pipefail
# shellcheck source=.ci/common.sh
. .ci/common.sh
for part in miri rust-src; do
    if ! why=$(component "$part"); then
        skip miri "$why"
        exit 0
    fi
done
# A backtrace, printed by a test that is to panic, takes minutes here.
export RUST_BACKTRACE=0
seeds=${LATENT_MIRI_SEEDS:-4}
run() { # FLAGS FILTER...
    local flags=$1
    shift
    MIRIFLAGS="-Zmiri-disable-isolation $flags" cargo +nightly miri test --locked -p latent-capabilities --lib \
        --target-dir "$target/miri" -- "$@" --skip every_reachable_word --skip every_step_of
}
skip 'miri every_reachable_word, every_step_of' 'they enumerate numbers, touch no memory, and take Miri hours'
code=0
run "-Zmiri-many-seeds=0..$seeds" mem:: || code=1
run -Zmiri-tree-borrows mem:: || code=1
figure 'seeds, stacked borrows' "$seeds"
figure 'seeds, tree borrows' 1
exit "$code"
