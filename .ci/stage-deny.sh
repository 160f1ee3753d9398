#!/usr/bin/env bash
set -euo pipefail
# shellcheck source=.ci/common.sh
. .ci/common.sh
cargo_tool cargo-deny 0.20.2
cargo deny --locked check licenses bans sources
