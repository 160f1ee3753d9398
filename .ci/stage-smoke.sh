#!/usr/bin/env bash
# The node as a newcomer meets it: start it, run the curl lines it prints, look at its rest, stop it.
set -uo pipefail
# shellcheck source=.ci/common.sh
. .ci/common.sh
need curl curl && need jq jq || exit 1
cargo build --release --locked -p latent-node || exit 1

dir=$(mktemp -d)
"$target/release/latent-node" >"$dir/out" 2>"$dir/err" &
node=$!
trap 'kill -KILL "$node" 2>/dev/null; rm -rf "$dir"' EXIT

fail() {
    printf 'smoke: %s\n' "$*"
    sed 's/^/  out: /' "$dir/out"
    sed 's/^/  err: /' "$dir/err" | tail -n 50
    exit 1
}

for _ in $(seq 100); do
    grep -q '^curl ' "$dir/out" && break
    kill -0 "$node" 2>/dev/null || fail 'the node ended before it printed a curl line'
    sleep 0.1
done
grep -q '^curl ' "$dir/out" || fail 'no curl line within 10 s'
sleep 0.3

while IFS= read -r line; do
    echo "\$ $line"
    timeout 20 bash -c "$line" >"$dir/answer" 2>"$dir/said" </dev/null || fail "ended with $?: $line"
    head -c 400 "$dir/answer"
    echo
done < <(grep '^curl ' "$dir/out")

base=$(grep -oE 'http://(127\.0\.0\.1|\[::1\]|localhost):[0-9]+' "$dir/out" | head -n 1)
curl -sS --fail --max-time 5 "$base/healthz" || fail 'healthz'
echo

# After the last answer everything is given back; what is idle, sealed or installed stays. A count that the node does not
# tell is no zero.
held='["broker.sessions", "io.owners", "io.running", "io.queued", "io.staged_bytes", "io.result_bytes", "io.buffers",
    "io.streams", "pools.active_connections", "pools.connecting_connections", "pools.pending_requests",
    "pools.running_requests", "pools.workers", "pools.cleanup_jobs", "pools.failed_cleanup"]'
for _ in $(seq 20); do
    curl -sS --fail --max-time 5 "$base/snapshot" >"$dir/snapshot" || fail 'snapshot'
    left=$(jq -r --argjson held "$held" '. as $all | $held[] | . as $name | ($all | getpath($name | split("."))) as $count
        | select($count != 0) | "\($name) is \($count)"' "$dir/snapshot") || fail 'the snapshot is no JSON'
    [ -z "$left" ] && break
    sleep 0.1
done
[ -z "$left" ] || fail "the snapshot is not zero: $left"

status=/proc/$node/status
resident=$(awk '/^VmRSS/ { print $2 }' "$status")
switches() { awk '/^voluntary/ { sum += $2 } END { print sum }' /proc/"$node"/task/*/status; }
sleep 2
before=$(switches)
sleep 10
woken=$(($(switches) - before))
echo "at rest: $resident KiB resident (below 32768), $woken voluntary context switches in 10 s (at most 2)"
figure 'resident at rest, KiB' "$resident"
figure 'context switches in 10 s at rest' "$woken"
[ "$resident" -lt 32768 ] || fail 'more than 32 MiB resident at rest'
[ "$woken" -le 2 ] || fail 'the idle node does something'

kill -TERM "$node"
for _ in $(seq 100); do
    kill -0 "$node" 2>/dev/null || break
    sleep 0.1
done
kill -0 "$node" 2>/dev/null && fail 'still there 10 s after SIGTERM'
wait "$node"
code=$?
tail -n 5 "$dir/out" "$dir/err"
[ "$code" -eq 0 ] || fail "ended with $code after SIGTERM"
echo 'smoke: passed'
