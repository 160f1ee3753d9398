#!/usr/bin/env bash
# The allocation gate on the build that is shipped: after warm-up, the hot path takes and gives back nothing.
set -euo pipefail
# shellcheck source=.ci/common.sh
. .ci/common.sh
cargo test --release --locked -p latent-capabilities --test no_alloc --test test_support
