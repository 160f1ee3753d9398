#!/usr/bin/env bash
# The node, nginx and HAProxy as reverse proxies before the same origin: one worker each, keep-alive on both sides, small
# and 100 kB bodies.
#
#   perf/end-to-end.sh [ROUNDS] [SECONDS]        default 5 rounds of 3 s: two and a half minutes
#
# Needs nginx, HAProxy and wrk (Debian: apt-get install nginx-light haproxy wrk) and installs them where it may, without
# starting their services; what cannot be had is left out with a line `skipped: NAME: WHY`. Everything runs on loopback and
# ends with the script. In each round every proxy has its turn, in another order than in the round before; a figure is
# the middle one of all rounds, a ratio the middle one of the ratios within the rounds. Where there are two cores or more, the
# proxy has the first one, wrk and the origin have the second. PINNED=0 leaves that to the system.
# Prints tables in Markdown. Fails if a request failed.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=perf/common.sh
. perf/common.sh

rounds=${1:-5}
seconds=${2:-3}
connections=32
if [ "$rounds" -lt 1 ] || [ "$seconds" -lt 1 ] || [ $((rounds * (8 * seconds + 5) + 20)) -gt 240 ]; then
    echo "so many rounds take more than four minutes, or none are none" >&2
    exit 2
fi

# has COMMAND PACKAGE: installs the package if the command is not there. Debian starts what it installs; a policy forbids it
# meanwhile.
has() {
    local policy=/usr/sbin/policy-rc.d made=0 said
    command -v "$1" > /dev/null && return
    if [ "$(id -u)" -ne 0 ] || ! command -v apt-get > /dev/null; then
        why="$1 is missing: apt-get install $2"
        return 1
    fi
    if [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' > "$policy" && chmod 755 "$policy" && made=1
    fi
    said=$({ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$2"; } 2>&1) || true
    [ "$made" -eq 0 ] || rm -f "$policy"
    command -v "$1" > /dev/null && return
    why="$2 cannot be installed ($(tail -n 1 <<< "$said"))"
    return 1
}
# Without an origin or a load there is nothing to measure.
has nginx nginx-light || { echo "skipped: end-to-end: $why"; exit 0; }
has wrk wrk || { echo "skipped: end-to-end: $why"; exit 0; }
needs "nginx-light wrk" nginx wrk awk
subjects=(node nginx)
if has haproxy haproxy; then subjects+=(haproxy); else echo "skipped: haproxy: $why"; fi

on_first=() on_second=()
if [ "${PINNED:-1}" -ne 0 ] && [ "$(nproc)" -ge 2 ] && command -v taskset > /dev/null; then
    on_first=(taskset -c 0) on_second=(taskset -c 1)
fi
# pin [COMMAND...] PID: moves a process that was started already, with its threads, to where the command would start one.
pin() {
    local where=("${@:1:$#-1}") pid=${!#}
    [ "${#where[@]}" -eq 0 ] || taskset -a -p -c "${where[2]}" "$pid" > /dev/null
}

declare -A port worker
for name in origin "${subjects[@]}"; do port[$name]=$(free_port); done

# The paths are the node's own, so that nobody has to rewrite them; the node takes its prefix off.
mkdir "$work/www"
head -c 100 /dev/zero | tr '\0' s > "$work/www/small"
head -c 100000 /dev/zero | tr '\0' l > "$work/www/large"
origin 1024 << EOF
    access_log off;
    open_file_cache max=16;
    sendfile on;
    tcp_nopush on;
    server {
        listen 127.0.0.1:${port[origin]};
        keepalive_requests 100000000;
        location = /small { return 200 "$(cat "$work/www/small")"; }
        location = /http/origin/small { return 200 "$(cat "$work/www/small")"; }
        location = /http/origin/large { alias $work/www/large; }
        root $work/www;
    }
EOF
origin_pid=${pids[-1]}

serve << EOF
listen = "127.0.0.1:${port[node]}"
workers = 1
[limits]
pools.running = 64
pools.running_per_tenant = 64
pools.running_per_provider = 64
pools.requests_per_tenant = 128
pools.requests_per_provider = 128
pools.connections_per_client = 64
[[tenants]]
name = "a"
token = "token-of-a"
[[providers]]
name = "origin"
[[providers.origins]]
url = "http://127.0.0.1:${port[origin]}"
allow_loopback = true
EOF

mkdir "$work/proxying"
cat > "$work/proxying/nginx.conf" << EOF
daemon off;
worker_processes 1;
pid $work/proxying/nginx.pid;
error_log $work/proxying/nginx.log;
events { worker_connections 1024; }
http {
    access_log off;
    client_body_temp_path $work/proxying/body;
    proxy_temp_path $work/proxying/proxy;
    fastcgi_temp_path $work/proxying/fastcgi;
    uwsgi_temp_path $work/proxying/uwsgi;
    scgi_temp_path $work/proxying/scgi;
    upstream origin {
        server 127.0.0.1:${port[origin]};
        keepalive 64;
        keepalive_requests 100000000;
    }
    server {
        listen 127.0.0.1:${port[nginx]};
        keepalive_requests 100000000;
        location / {
            proxy_pass http://origin;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
        }
    }
}
EOF
nginx -p "$work/proxying" -c "$work/proxying/nginx.conf" 2> "$work/proxying/nginx.err" &
pids+=($!)
proxying_pid=$!

if [ "${#subjects[@]}" -gt 2 ]; then
    cat > "$work/haproxy.cfg" << EOF
global
    nbthread 1
    maxconn 1024
defaults
    mode http
    timeout connect 5s
    timeout client 30s
    timeout server 30s
    option http-keep-alive
    http-reuse always
frontend in
    bind 127.0.0.1:${port[haproxy]}
    default_backend origin
backend origin
    server origin 127.0.0.1:${port[origin]} pool-max-conn 64
EOF
    haproxy -db -f "$work/haproxy.cfg" > "$work/haproxy.log" 2>&1 &
    pids+=($!)
    worker[haproxy]=$!
fi

cat > "$work/report.lua" << 'EOF'
done = function(summary, latency, requests)
    local errors = summary.errors
    local failed = errors.connect + errors.read + errors.write + errors.status + errors.timeout
    io.write(string.format("\nFIGURES %d %d %d %d %d\n", summary.requests, summary.duration,
        latency:percentile(50), latency:percentile(99), failed))
end
EOF

url() { # SUBJECT BODY
    echo "http://127.0.0.1:${port[$1]}/http/origin/$2"
}
load() { # SUBJECT BODY SECONDS
    "${on_second[@]}" wrk -t1 -c"$connections" -d"$3s" -s "$work/report.lua" -H 'Authorization: Bearer token-of-a' "$(url "$1" "$2")" |
        awk '$1 == "FIGURES" { $1 = ""; print }'
}
# Answers begin within 10 s, and none of them is a failure.
for name in origin "${subjects[@]}"; do
    for _ in $(seq 100); do
        first=$(load "$name" small 1 2> /dev/null) && [ -n "$first" ] && [ "${first##* }" -eq 0 ] && break
        first=
        sleep 0.1
    done
    [ -n "$first" ] || { echo "$name does not carry:" >&2; cat "$work"/*.log "$work"/*.err "$work"/proxying/*.log >&2; exit 1; }
done

child() { # the one worker of an nginx
    awk '{ print $1 }' "/proc/$1/task/$1/children"
}
worker[node]=$node_pid
worker[nginx]=$(child "$proxying_pid")
for name in "${subjects[@]}"; do pin "${on_first[@]}" "${worker[$name]}"; done
pin "${on_second[@]}" "$(child "$origin_pid")"
for name in "${subjects[@]}"; do load "$name" large 1 > /dev/null; done

ticks() { # user and system time of a process, in ticks
    sed 's/^.*) //' "/proc/$1/stat" | awk '{ print $12, $13 }'
}
resident() { # KiB
    awk '/^VmRSS/ { print $2 }' "/proc/$1/status"
}
measure() { # ROUND SUBJECT BODY: a line of figures
    local before after=0 figures held=0 pid=${worker[$2]:-}
    before=$([ -z "$pid" ] || ticks "$pid")
    figures=$(load "$2" "$3" "$seconds")
    if [ -n "$pid" ]; then
        after=$(ticks "$pid")
        held=$(resident "$pid")
    fi
    echo "$1 $3 $2 $figures ${before:-0 0} ${after:-0 0} $held" >> "$work/figures"
}
load_before=$(cut -d' ' -f1 /proc/loadavg)
for round in $(seq "$rounds"); do
    for body in small large; do
        for place in $(seq 0 $((${#subjects[@]} - 1))); do
            measure "$round" "${subjects[$(((place + round) % ${#subjects[@]}))]}" "$body"
        done
        measure "$round" origin "$body"
    done
    [ ! -t 2 ] || echo "round $round of $rounds" >&2
done

echo "commit $(git rev-parse --short HEAD 2> /dev/null || echo unknown), $(nproc) cores, load average $load_before before and $(cut -d' ' -f1 /proc/loadavg) after;"
echo "$(nginx -v 2>&1 | sed 's/^.*: //'), $(haproxy -v 2> /dev/null | awk 'NR == 1 { print $1, $3 }' || echo no HAProxy);"
echo "wrk with one thread and $connections connections, $rounds rounds of $seconds s$([ "${#on_first[@]}" -eq 0 ] || echo '; the proxy on a core of its own')"
awk -v ticks="$(getconf CLK_TCK)" -v subjects="${subjects[*]}" '
    function middle(values, count,    i, j, held) {
        for (i = 2; i <= count; i++) {
            held = values[i]
            for (j = i - 1; j > 0 && values[j] > held; j--) values[j + 1] = values[j]
            values[j + 1] = held
        }
        return count % 2 ? values[(count + 1) / 2] : (values[count / 2] + values[count / 2 + 1]) / 2
    }
    function figure(body, subject, name,    list, round) {
        for (round = 1; round <= rounds; round++) list[round] = found[body, subject, name, round]
        return middle(list, rounds)
    }
    function ratio(body, subject, name,    list, round) {
        for (round = 1; round <= rounds; round++) list[round] = found[body, subject, name, round] / found[body, "nginx", name, round]
        return middle(list, rounds)
    }
    {
        rounds = $1
        found[$2, $3, "rate", $1] = $4 / $5 * 1e6
        found[$2, $3, "p50", $1] = $6
        found[$2, $3, "p99", $1] = $7
        failed += $8
        found[$2, $3, "cpu", $1] = ($11 + $12 - $9 - $10) / ticks / $4 * 1e6
        found[$2, $3, "system", $1] = ($12 - $10) / ticks / $4 * 1e6
        found[$2, $3, "resident", $1] = $13
    }
    END {
        count = split(subjects, names, " ")
        split("small large", bodies, " ")
        for (b = 1; b <= 2; b++) {
            body = bodies[b]
            printf "\n%s\n\n", body == "small" ? "Bodies of 100 bytes:" : "Bodies of 100,000 bytes:"
            print "| | requests/s | x nginx | p50 | x nginx | p99 | x nginx | CPU per request | of it system | x nginx | resident | x nginx |"
            print "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
            for (n = 1; n <= count; n++) {
                s = names[n]
                printf "| %s | %d | %.2f | %.2f ms | %.2f | %.2f ms | %.2f | %.1f us | %.1f us | %.2f | %.1f MiB | %.2f |\n", s,
                    figure(body, s, "rate"), ratio(body, s, "rate"), figure(body, s, "p50") / 1000, ratio(body, s, "p50"),
                    figure(body, s, "p99") / 1000, ratio(body, s, "p99"), figure(body, s, "cpu"), figure(body, s, "system"),
                    ratio(body, s, "cpu"), figure(body, s, "resident") / 1024, ratio(body, s, "resident")
            }
            s = "origin"
            printf "| without a proxy | %d | %.2f | %.2f ms | %.2f | %.2f ms | %.2f | | | | | |\n", figure(body, s, "rate"),
                ratio(body, s, "rate"), figure(body, s, "p50") / 1000, ratio(body, s, "p50"), figure(body, s, "p99") / 1000,
                ratio(body, s, "p99")
        }
        if (failed > 0) { printf "\nFAILED: %d requests\n", failed; exit 1 }
    }
' "$work/figures"
