#!/usr/bin/env bash
# A test of the models: each named memory order of src/sync.rs, weakened, must break the model that is named beside it there,
# and the model must pass without. A model that ran out of time has shown nothing.
set -uo pipefail
# shellcheck source=.ci/common.sh
. .ci/common.sh

# Lines `weaken NAME to ORDER: FILE::MODEL fails` beside the orders, without their backticks.
# shellcheck disable=SC2016 # the backticks are in the text
beside=$(sed -nE 's/^ *\/\/\/ \* weaken `([a-z_]+)` to `([A-Za-z]+)`.*: `([a-z_]+)::([a-z_]+)` fails$/\1 \2 \3 \4/p' src/sync.rs)
can_be=$(grep -oE 'weaken = "[a-z_]+"\)' src/sync.rs | cut -d'"' -f2 | sort -u)
if [ -z "$can_be" ] || [ "$can_be" != "$(cut -d' ' -f1 <<<"$beside" | sort)" ]; then
    echo 'orders that can be weakened, and orders with a model beside them, differ:'
    diff <(echo "$can_be") <(cut -d' ' -f1 <<<"$beside" | sort)
    exit 1
fi

mkdir -p "$target/orders"
# WRAPPER FILE MODEL FIGURES LOG
search() {
    rm -f "$4"
    RUSTFLAGS='--cfg loom' RUSTC_WORKSPACE_WRAPPER=$1 LATENT_LOOM_SECONDS=120 LATENT_LOOM_FIGURES=$4 \
        CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_PROFILE_RELEASE_DEBUG=0 \
        cargo test --quiet --release --locked -p loom-tests --target-dir "$target/loom" --test "$2" -- --exact "$3" \
        >"$5" 2>&1 </dev/null
    cat "$4" 2>/dev/null
}
code=0 weakened=0 found=0
printf '%-12s %-9s %-34s %-12s %-12s %s\n' order to model without with result
while read -r order to file model; do
    log=$target/orders/$order
    without=$(search '' "$file" "$model" "$log-without.txt" "$log-without.log")
    with=$(search "$(cfg_wrapper "weaken=\"$order\"")" "$file" "$model" "$log.txt" "$log.log")
    verdict=found
    [ "$(awk '{ print $9 }' <<<"$with")" = FAILED ] || verdict='NOT FOUND'
    [ "$(awk '{ print $9 }' <<<"$without")" = ended ] || verdict='FAILS WITHOUT IT'
    weakened=$((weakened + 1))
    if [ "$verdict" = found ]; then found=$((found + 1)); else code=1; fi
    # How many executions it took.
    printf '%-12s %-9s %-34s %-12s %-12s %s\n' "$order" "$to" "$file::$model" \
        "$(awk '{ print $6 }' <<<"$without")" "$(awk '{ print $6 }' <<<"$with")" "$verdict"
    [ "$verdict" = found ] || tail -n 5 "$log.log"
done <<<"$beside"
figure 'orders weakened' "$weakened"
figure 'of these found' "$found"
exit "$code"
