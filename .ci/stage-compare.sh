#!/usr/bin/env bash
# The comparison with its peers, in short. What it finds is only a hint on a machine that others use too, so the stage fails
# only if the comparison does not come to its end. Built without link-time optimisation: minutes less, figures a little worse.
set -euo pipefail
# shellcheck source=.ci/common.sh
. .ci/common.sh
export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_PROFILE_RELEASE_DEBUG=0
cargo build --quiet --release --locked -p perf --features peers --target-dir "$target/compare"
timeout 120 "$target/compare/release/perf" compare --quick --json "$target/compare.json" --svg "$target/compare-plots"
