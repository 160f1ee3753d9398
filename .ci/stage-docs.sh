#!/usr/bin/env bash
set -euo pipefail
# shellcheck source=.ci/common.sh
. .ci/common.sh
RUSTDOCFLAGS=-Dwarnings cargo doc --quiet --no-deps --workspace --locked
