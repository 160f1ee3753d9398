#!/usr/bin/env bash
# What an idle node costs: memory, threads, and how often it wakes up in ten seconds.
#
#   perf/at-rest.sh
set -euo pipefail
cd "$(dirname "$0")/.."

node=${NODE:-${CARGO_TARGET_DIR:-target}/release/latent-node}
[ -x "$node" ] || cargo build --release --locked -p latent-node
"$node" --listen 127.0.0.1:0 > /dev/null 2>&1 &
pid=$!
trap 'kill "$pid" 2> /dev/null || true' EXIT

wakes() { cat /proc/"$pid"/task/*/status | awk '/^voluntary_ctxt_switches/ { sum += $2 } END { print sum }'; }
sleep 2
before=$(wakes)
sleep 10
after=$(wakes)
echo "resident: $(awk '/^VmRSS/ { printf "%.1f MiB", $2 / 1024 }' "/proc/$pid/status")"
echo "threads: $(awk '/^Threads/ { print $2 }' "/proc/$pid/status")"
echo "voluntary context switches in 10 s at rest: $((after - before))"
