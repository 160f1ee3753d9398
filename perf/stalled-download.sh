#!/usr/bin/env bash
# One client downloads 1 GiB and stalls in the middle: what the node holds stays within the transfer's window, its memory
# stays flat, and the origin stops sending.
#
#   perf/stalled-download.sh [STALL_SECONDS]        default 8
#
# Needs nginx, curl and python3 (Debian: apt-get install nginx-light curl python3). Everything runs on loopback and ends
# with the script. Fails if more than the window is held, if memory grows by more than 8 MiB during the stall, if the
# origin goes on sending, if a byte is missing, or if anything is left afterwards.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=perf/common.sh
. perf/common.sh

stall=${1:-8}
needs "nginx-light curl python3" nginx curl python3
origin_port=$(free_port)
node_port=$(free_port)

# Sparse: a gibibyte of zeros that needs no disk.
truncate -s 1G "$work/big"
origin 64 << EOF
    access_log off;
    sendfile off;
    server { listen 127.0.0.1:$origin_port; root $work; }
EOF
serve << EOF
listen = "127.0.0.1:$node_port"
[ingress]
deadline = "4 min"
[limits]
broker.stream_output_bytes = "1 GiB"
io.stream_bytes = "1 GiB"
[[tenants]]
name = "alice"
token = "stalled-download-of-one-gibibyte"
[[providers]]
name = "big"
[[providers.origins]]
url = "http://127.0.0.1:$origin_port"
allow_loopback = true
[providers.body]
response_bytes = "1 GiB"
EOF
carries curl -sf -o /dev/null "http://127.0.0.1:$node_port/healthz"

NODE_PID=$node_pid NODE_PORT=$node_port STALL=$stall NGINX_PID_FILE=$work/nginx.pid python3 - << 'EOF'
import json, os, socket, subprocess, time, urllib.request

port, stall = int(os.environ["NODE_PORT"]), float(os.environ["STALL"])
node = os.environ["NODE_PID"]
master = open(os.environ["NGINX_PID_FILE"]).read().strip()
worker = subprocess.check_output(["ps", "-o", "pid=", "--ppid", master]).split()[0].decode()

def resident():
    for line in open(f"/proc/{node}/status"):
        if line.startswith("VmRSS:"):
            return int(line.split()[1])

def sent():
    for line in open(f"/proc/{worker}/io"):
        if line.startswith("wchar:"):
            return int(line.split()[1])

def snapshot():
    return json.load(urllib.request.urlopen(f"http://127.0.0.1:{port}/snapshot"))

def held():
    io = snapshot()["io"]
    return io["staged_bytes"], io["result_bytes"]

client = socket.create_connection(("127.0.0.1", port))
client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
client.sendall(b"GET /http/big/big HTTP/1.1\r\nHost: node\r\nConnection: close\r\n"
               b"Authorization: Bearer stalled-download-of-one-gibibyte\r\n\r\n")
data = b""
while b"\r\n\r\n" not in data:
    data += client.recv(65536)
head, data = data.split(b"\r\n\r\n", 1)
assert head.startswith(b"HTTP/1.1 200"), head
got = len(data)
while got < 64 << 20:
    got += len(client.recv(65536))

time.sleep(1)
first_sent, first_resident, most = sent(), resident(), (0, 0)
print(f"stalls after {got >> 20} MiB; resident {first_resident} KiB")
end = time.time() + stall
while time.time() < end:
    now = held()
    most = max(most[0], now[0]), max(most[1], now[1])
    time.sleep(0.25)
grown, more = resident() - first_resident, sent() - first_sent
print(f"during {stall:.0f} s: held at most {most[0]} staged + {most[1]} result bytes; "
      f"resident {grown:+} KiB; the origin sent {more} bytes")
assert 0 < sum(most) <= 1 << 20, "more is held than a window"
assert grown < 8 * 1024, "memory is not flat"
assert more == 0, "the origin goes on sending"

start = time.time()
while chunk := client.recv(1 << 20):
    got += len(chunk)
print(f"all {got >> 20} MiB arrived; the rest at {((1 << 30) - (64 << 20)) / 1e6 / (time.time() - start):.0f} MB/s; "
      f"resident {resident()} KiB")
assert got == 1 << 30, f"{got} bytes"
for _ in range(100):
    io = snapshot()["io"]
    if io["owners"] == 0:
        break
    time.sleep(0.05)
left = {name: value for name, value in io.items() if value and name != "closed"}
assert not left, left
print("afterwards nothing is held")
EOF
