#!/usr/bin/env bash
# The allocation gate on the build that is shipped: after warm-up, the hot path takes and gives back nothing.
set -euo pipefail
# shellcheck source=.ci/common.sh
. .ci/common.sh
log=$target/alloc.log
cargo test --release --locked -p latent-capabilities --test no_alloc --test test_support -- --nocapture | tee "$log"
# A line for each scenario: `NAME: N taken, N given back`.
awk '/: [0-9]+ taken, [0-9]+ given back$/ { scenarios++; blocks += $(NF - 4) + $(NF - 2) }
     END { print scenarios + 0, blocks + 0; exit scenarios == 0 }' "$log" | {
    read -r scenarios blocks
    figure 'hot scenarios' "$scenarios"
    figure 'blocks taken or given back' "$blocks"
}
