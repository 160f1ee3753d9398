#!/usr/bin/env bash
# Instructions per hot operation, against the figures in perf/figures.txt. The runner must have the library's exact version.
set -euo pipefail
# shellcheck source=.ci/common.sh
. .ci/common.sh
need valgrind valgrind
version=$(awk -F'"' '/^name = "iai-callgrind"$/ { found = 1 } found && /^version/ { print $2; exit }' Cargo.lock)
cargo_tool iai-callgrind-runner "$version"
bash perf/check.sh | tee "$target/perf.log"
figure 'operations counted' "$(grep -cE '[+-][0-9.]+%' "$target/perf.log")"
figure 'worst change' "$(grep -oE '[+-][0-9.]+%' "$target/perf.log" | sort -g | tail -n 1)"
