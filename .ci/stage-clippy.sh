#!/usr/bin/env bash
# Lints of all targets; of the comparison, which is built only with its peers; of the models, which only exist under
# cfg(loom); and of the adapters without their features.
set -euo pipefail
# shellcheck source=.ci/common.sh
. .ci/common.sh
cargo clippy --quiet --workspace --all-targets --locked -- -D warnings
cargo clippy --quiet -p perf --features peers --locked -- -D warnings
cargo clippy --quiet -p latent-adapters --no-default-features --locked -- -D warnings
RUSTFLAGS='--cfg loom' cargo clippy --quiet -p loom-tests --all-targets --locked --target-dir "$target/loom" -- -D warnings
