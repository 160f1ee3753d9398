#!/usr/bin/env bash
# Two tenants against one slow origin: A with 100 connections, B with 10, on 4 running slots.
#
#   perf/fair-load.sh [SECONDS]        default 60
#
# Needs nginx, wrk and curl (Debian: apt-get install nginx-light wrk curl). Everything runs on loopback and ends with
# the script. Prints the shares of both tenants, the sockets counted at the origin, and the node's snapshot afterwards.
# Fails if the shares differ by more than 10 %, if there were more sockets than the limit, or if anything is left.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=perf/common.sh
. perf/common.sh

seconds=${1:-60}
slots=4
sockets=8
needs "nginx-light wrk curl" nginx wrk curl
origin_port=$(free_port)
node_port=$(free_port)

# limit_req spaces the requests of this location: 80 a second, the others wait. An origin with a fixed speed.
echo slow > "$work/slow.txt"
origin 256 << EOF
    access_log off;
    limit_req_zone \$server_port zone=slow:32k rate=80r/s;
    server {
        listen 127.0.0.1:$origin_port;
        keepalive_requests 1000000;
        location = /fast { return 200 "fast\n"; }
        location = /slow { limit_req zone=slow burst=1000; try_files /slow.txt =404; }
        root $work;
    }
EOF
serve << EOF
listen = "127.0.0.1:$node_port"
[ingress]
deadline = "60 s"
[limits]
pools.running = $slots
pools.running_per_tenant = $slots
pools.running_per_provider = $slots
pools.requests_per_tenant = 128
pools.requests_per_provider = 128
pools.connections_per_client = $sockets
pools.queue_age = "60 s"
io.queue_wait = "60 s"
[[tenants]]
name = "a"
token = "token-of-a"
[[tenants]]
name = "b"
token = "token-of-b"
[[providers]]
name = "slow"
[[providers.origins]]
url = "http://127.0.0.1:$origin_port"
allow_loopback = true
EOF

carries curl -sf -H 'Authorization: Bearer token-of-a' "http://127.0.0.1:$node_port/http/slow/fast"

# Established sockets at the origin's own end, from the kernel's table. The table is read piece by piece: while
# connections come and go, one reading sees a socket that closes and the one that opens in its place. So the sockets are
# taken by their addresses, and what counts is those that two readings in a row have in common.
established() {
    awk -v port="$(printf ':%04X' "$origin_port")" '$2 ~ port "$" && $4 == "01" { print $3 }' /proc/net/tcp | sort
}
origin_sockets() {
    established > "$work/first"
    established > "$work/second"
    comm -12 "$work/first" "$work/second" | wc -l
}

load() { # connections, tenant
    wrk -t1 -c"$1" -d"${seconds}s" --timeout 60s -H "Authorization: Bearer token-of-$2" \
        "http://127.0.0.1:$node_port/http/slow/slow" > "$work/wrk.$2"
}
echo "a with 100 connections, b with 10, $slots running slots, origin at 80 requests/s, $seconds s"
load 100 a & a=$!
load 10 b & b=$!
peak=0
while kill -0 "$a" 2> /dev/null || kill -0 "$b" 2> /dev/null; do
    now=$(origin_sockets)
    [ "$now" -gt "$peak" ] && peak=$now
    sleep 0.2
done
wait "$a" "$b"

good() { # requests that were answered with success
    awk '/requests in/ { all = $1 } /Non-2xx/ { bad = $NF } END { print all - bad }' "$work/wrk.$1"
}
grep -h -E 'requests in|Non-2xx|Socket errors|Latency ' "$work/wrk.a" | sed 's/^ */a: /'
grep -h -E 'requests in|Non-2xx|Socket errors|Latency ' "$work/wrk.b" | sed 's/^ */b: /'
a=$(good a)
b=$(good b)
ratio=$(awk -v a="$a" -v b="$b" 'BEGIN { printf "%.3f", (b > 0) ? a / b : 0 }')
echo "shares: a $a, b $b, a/b $ratio"
echo "sockets at the origin: at most $peak (limit $sockets, $slots running slots)"

# wrk closes its connections in the middle of requests; what they held is given back at once.
held=1
for _ in $(seq 50); do
    snapshot=$(curl -sS "http://127.0.0.1:$node_port/snapshot")
    held=$(echo "$snapshot" | grep -cE '"(sessions|owners|running|queued|staged_bytes|result_bytes|buffers|streams|pending_requests|running_requests|active_connections|connecting_connections)": [1-9]' || true)
    [ "$held" -eq 0 ] && break
    sleep 0.1
done
echo "snapshot afterwards:"
echo "$snapshot"
kill -TERM "$node_pid"
wait "$node_pid" && ended=0 || ended=$?
tail -n 1 "$work/node.out"

awk -v ratio="$ratio" 'BEGIN { exit !(ratio >= 0.9 && ratio <= 1.1) }' || { echo "FAILED: the shares are not 1:1 within 10 %"; exit 1; }
[ "$peak" -le "$sockets" ] || { echo "FAILED: more sockets than the limit"; exit 1; }
[ "$held" -eq 0 ] || { echo "FAILED: something is left"; exit 1; }
[ "$ended" -eq 0 ] || { echo "FAILED: the node ended with $ended"; exit 1; }
echo "fair, bounded, clean"
