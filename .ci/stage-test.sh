#!/usr/bin/env bash
# The README's test command, word for word.
set -euo pipefail
# shellcheck source=.ci/common.sh
. .ci/common.sh
command='cargo test --workspace --locked'
grep -qE "^ *$command\$" README.md || {
    echo "README.md has no line \`$command\`"
    exit 1
}
$command
