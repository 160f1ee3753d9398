#!/usr/bin/env bash
# Rotates a provider under load: 64 connections on 4 running slots, so that somebody always waits.
#
#   perf/rotate-load.sh [ROTATIONS] [RATE]        default 50 rotations, 500 requests/s at the origin
#
# Needs nginx, wrk and curl (Debian: apt-get install nginx-light wrk curl). Everything runs on loopback and ends with
# the script. Each rotation writes a new credential first. The origin has a fixed speed, so that the queue stays full on a
# machine that is slow or busy, too. Prints the load's figures, how many requests waited whenever it looked, and how long
# the old epochs took to drain. Fails if a request failed, if nobody waited at a look, if an epoch did not drain, or if
# anything is left.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=perf/common.sh
. perf/common.sh

rotations=${1:-50}
rate=${2:-500}
# Looks at the queue between two rotations, and seconds before each.
looks=3
pause=0.03
needs "nginx-light wrk curl" nginx wrk curl
origin_port=$(free_port)
node_port=$(free_port)
admin_port=$(free_port)

echo fine > "$work/fine.txt"
origin 256 << EOF
    log_format key '\$http_x_api_key';
    access_log $work/keys key;
    limit_req_zone \$server_port zone=speed:32k rate=${rate}r/s;
    server {
        listen 127.0.0.1:$origin_port;
        keepalive_requests 1000000;
        root $work;
        location / { limit_req zone=speed burst=1000; try_files /fine.txt =404; }
    }
EOF
echo token-of-operators > "$work/operators"
echo key-1 > "$work/key"
serve << EOF
listen = "127.0.0.1:$node_port"
[admin]
listen = "127.0.0.1:$admin_port"
token_file = "operators"
[limits]
pools.running = 4
pools.running_per_tenant = 4
pools.running_per_provider = 4
pools.requests_per_tenant = 128
pools.requests_per_provider = 128
[[tenants]]
name = "a"
token = "token-of-a"
[[providers]]
name = "fast"
[[providers.origins]]
url = "http://127.0.0.1:$origin_port"
allow_loopback = true
[providers.credential]
header = "x-api-key"
file = "key"
EOF
carries curl -sf -H 'Authorization: Bearer token-of-a' "http://127.0.0.1:$node_port/http/fast/"

operate() { # method, path
    curl -sS -X "$1" -H 'Authorization: Bearer token-of-operators' "http://127.0.0.1:$admin_port$2"
}
# One figure of the snapshot: its group, its name.
figure() {
    operate GET /metrics | awk -v name="latent_$1" '$1 == name { print $2 }'
}

echo "64 connections, 4 running slots, origin at $rate requests/s, $rotations rotations"
# Told to stop when the rotations are over.
wrk -t1 -c64 -d600s --timeout 30s -H "Authorization: Bearer token-of-a" \
    "http://127.0.0.1:$node_port/http/fast/" > "$work/wrk" & load=$!
pids+=("$load")
sleep 1

fewest=999999
look() {
    local waiting
    waiting=$(figure pools_pending_requests)
    [ "$waiting" -ge "$fewest" ] || fewest=$waiting
}
refused=0
slowest=0
begun=$(date +%s%N)
for number in $(seq 2 $((rotations + 1))); do
    look
    echo "key-$number" > "$work/key"
    from=$(date +%s%N)
    answer=$(operate POST /admin/providers/fast/rotate)
    took=$((($(date +%s%N) - from) / 1000))
    [ "$took" -gt "$slowest" ] && slowest=$took
    case $answer in *"\"new_epoch\":$number"*) ;; *) refused=$((refused + 1)); echo "refused: $answer" ;; esac
    for _ in $(seq "$looks"); do
        sleep "$pause"
        look
    done
done
lasted=$((($(date +%s%N) - begun) / 1000000))
running=no
kill -0 "$load" 2> /dev/null && running=yes
from=$(date +%s%N)
drained=no
for _ in $(seq 100); do
    [ "$(figure draining_epochs)" = 0 ] && { drained=yes; break; }
    sleep 0.05
done
took=$((($(date +%s%N) - from) / 1000000))
sleep 0.5
kill -INT "$load"
wait "$load"

grep -E 'requests in|Non-2xx|Socket errors|Latency |Requests/sec' "$work/wrk" | sed 's/^ *//'
failed=$(awk '/Non-2xx/ { bad += $NF } /Socket errors/ { gsub(",", ""); bad += $4 + $6 + $8 + $10 } END { print bad + 0 }' "$work/wrk")
keys=$(sort -u "$work/keys" | wc -l)
echo "rotations: $rotations in $lasted ms, refused $refused, the slowest answered after $slowest us, at least $fewest waited at each of $((rotations * (looks + 1))) looks"
echo "failed requests: $failed; credentials that the origin saw: $keys"
echo "replaced epochs that are left: $(figure draining_epochs), requests $(figure draining_requests), connections $(figure draining_connections) (seen after $took ms, load running at the last rotation: $running)"
kill -TERM "$node_pid"
wait "$node_pid" && ended=0 || ended=$?
tail -n 1 "$work/node.out"

[ "$running" = yes ] || { echo "FAILED: the load had ended before the last rotation"; exit 1; }
[ "$failed" -eq 0 ] || { echo "FAILED: requests failed"; exit 1; }
[ "$refused" -eq 0 ] || { echo "FAILED: rotations were refused"; exit 1; }
[ "$fewest" -gt 0 ] || { echo "FAILED: the queue was empty at a look"; exit 1; }
[ "$drained" = yes ] || { echo "FAILED: an old epoch did not drain"; exit 1; }
[ "$keys" -eq $((rotations + 1)) ] || { echo "FAILED: not every epoch's credential was used"; exit 1; }
[ "$ended" -eq 0 ] || { echo "FAILED: the node ended with $ended"; exit 1; }
echo "no request failed, every old epoch drained"
