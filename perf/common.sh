#!/usr/bin/env bash
# What the load scripts share. Sourced, with the root of the repository as working folder.
# shellcheck shell=bash

node=${NODE:-${CARGO_TARGET_DIR:-target}/release/latent-node}
export PATH=$PATH:/usr/sbin

# needs PACKAGES COMMAND...: ends the script if a program is not there.
needs() {
    local packages=$1 tool
    shift
    for tool in "$@"; do
        command -v "$tool" > /dev/null || { echo "$tool is missing: apt-get install $packages" >&2; exit 2; }
    done
    [ -x "$node" ] || cargo build --release --locked -p latent-node
}

# A folder of the script's own and the processes that it starts; both end with the script.
work=$(mktemp -d)
chmod 755 "$work"
pids=()
cleanup() {
    for pid in "${pids[@]}"; do kill "$pid" 2> /dev/null || true; done
    wait 2> /dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT

free_port() {
    local port
    while :; do
        port=$((20000 + RANDOM % 20000))
        (exec 3<> "/dev/tcp/127.0.0.1/$port") 2> /dev/null || { echo "$port"; return; }
    done
}

# origin CONNECTIONS: starts nginx in `work`; what is read from standard input stands in its http section.
origin() {
    cat > "$work/nginx.conf" << EOF
daemon off;
worker_processes 1;
pid $work/nginx.pid;
error_log $work/nginx.log;
events { worker_connections $1; }
http {
    client_body_temp_path $work/body;
    proxy_temp_path $work/proxy;
    fastcgi_temp_path $work/fastcgi;
    uwsgi_temp_path $work/uwsgi;
    scgi_temp_path $work/scgi;
$(cat)
}
EOF
    nginx -p "$work" -c "$work/nginx.conf" 2> "$work/nginx.err" &
    pids+=($!)
}

# serve: starts the node with the configuration that is read from standard input.
serve() {
    cat > "$work/node.toml"
    "$node" serve --config "$work/node.toml" > "$work/node.out" 2> "$work/node.log" &
    node_pid=$!
    pids+=("$node_pid")
}

# carries COMMAND...: waits until the command succeeds, 10 s at most.
carries() {
    for _ in $(seq 100); do
        "$@" > /dev/null && return
        sleep 0.1
    done
    echo "the node does not carry:" >&2
    cat "$work/node.log" "$work/nginx.err" >&2
    exit 1
}
