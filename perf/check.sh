#!/usr/bin/env bash
# Counts the instructions of every hot operation and compares them with perf/figures.txt.
#
#   bash perf/check.sh            fails when one needs more than its figure and 1 % (copies: 2 %), or has no figure
#   bash perf/check.sh --accept   writes the figures anew; the commit says why they changed
#
# Instructions are the one count that is the same on each run and under load. Copies get more leave: the C library picks
# its memcpy by the processor, and the bench only rules out the largest differences.
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-$PWD/target}
figures=perf/figures.txt counted=$target/perf-figures.txt

cargo bench --quiet --locked -p perf --bench hot -- --output-format=json |
    jq -r '"\(.function_name).\(.id) \(.profiles[0].summaries.total.summary.Callgrind.Ir.metrics | (.Left // .Both[0]).Int)"' |
    sort >"$counted"
[ -s "$counted" ] || {
    echo 'nothing was counted'
    exit 1
}
if [ "${1:-}" = --accept ]; then
    cp "$counted" "$figures"
fi
[ -s "$figures" ] || {
    echo "$figures is missing or empty: bash perf/check.sh --accept"
    exit 1
}

join -a 1 -a 2 -e - -o 0,1.2,2.2 "$figures" "$counted" | awk '
    BEGIN { printf "%-48s %10s %10s %8s\n", "operation", "figure", "counted", "change" }
    {
        leave = $1 ~ /copy/ ? 2 : 1
        if ($2 == "-") { word = "has no figure"; bad++ }
        else if ($3 == "-") { word = "was not counted"; bad++ }
        else {
            change = 100 * ($3 - $2) / $2
            word = sprintf("%+7.2f%%", change)
            if (change > leave) { word = word "  more than its figure and " leave " %"; bad++ }
            else if (change < -leave) word = word "  less: accept the new figure"
        }
        printf "%-48s %10s %10s %8s\n", $1, $2, $3, word
    }
    END { printf "%d operations, %d of them not as they should be\n", NR, bad; exit bad > 0 }'
