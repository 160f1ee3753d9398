#!/usr/bin/env bash
# The simulator on an optimised build with debug assertions, with which credits are recalled and lent as often as can be: the
# library against the plain model, a hundred million steps. Two of it run, with seeds of their own, which are others than the
# tests' and the same every time; the table of the gate has their sums.
#
#   LATENT_SIM_FROM=5000000 LATENT_SIM_STEPS=500000000 bash .ci/stage-simulate.sh   other seeds, more steps for each of the two
#
# What breaks a law is printed as one line, `SEED=… STEPS=…`, and as a script that was shrunk.
set -euo pipefail
# shellcheck source=.ci/common.sh
. .ci/common.sh
# Long runs, a few of them with leaks, and a C library that does not keep what a run gave back, so that it need not wipe it for
# the next one.
export STEPS=${STEPS:-4000} LEAKS=1 MALLOC_MMAP_THRESHOLD_=131072 LATENT_SIM_STEPS=${LATENT_SIM_STEPS:-50000000}
from=${LATENT_SIM_FROM:-1000000}
simulate=(env CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_PROFILE_RELEASE_DEBUG=0
    CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS=true
    cargo test --release --locked -p latent-capabilities --test simulation --target-dir "$target/ci-simulate")
"${simulate[@]}" --no-run
log=$target/ci-simulate/second.log
LATENT_SIM_FROM=$((from + 1000000)) "${simulate[@]}" -- --nocapture >"$log" 2>&1 &
second=$! code=0
LATENT_SIM_FROM=$from "${simulate[@]}" -- --nocapture >"$log.first" 2>&1 || code=1
wait "$second" || code=1
cat "$log" "$log.first" | grep -v '^figure: '
if [ "$code" -ne 0 ]; then
    # Last, so that it is seen; one of the two may have passed.
    grep -hE -A 200 '^(SEED=|bytes: |.*\.txt: step )' "$log" "$log.first" | head -n 250
    exit "$code"
fi
# Kinds are the same in both; all else is added up.
awk -F ': ' '/^figure: / { if (!($2 in sum)) order[++n] = $2
                            sum[$2] = $2 ~ /^kinds/ ? ($3 > sum[$2] ? $3 : sum[$2]) : sum[$2] + $3 }
             END { for (i = 1; i <= n; i++) printf "figure: %s: %.0f\n", order[i], sum[order[i]] }' "$log.first" "$log"
