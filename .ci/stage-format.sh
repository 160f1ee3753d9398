#!/usr/bin/env bash
set -euo pipefail
# shellcheck source=.ci/common.sh
. .ci/common.sh
cargo fmt --all --check
