#!/usr/bin/env bash
# Every model of every file in loom-tests/tests, in a release build, with the table of its figures. The same table, as Markdown, is
# left in TARGET/loom-models.md.
set -uo pipefail
# shellcheck source=.ci/common.sh
. .ci/common.sh
export LATENT_LOOM_FIGURES=$target/loom-figures.txt
rm -f "$LATENT_LOOM_FIGURES"
# Whole-program optimisation buys nothing here: loom's own bookkeeping takes the time.
RUSTFLAGS='--cfg loom' CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_PROFILE_RELEASE_DEBUG=0 \
    cargo test --release --locked -p loom-tests --no-fail-fast --target-dir "$target/loom" --lib --tests
code=$?

# The harness' own searches, some of which must fail, are no models.
figures=$(grep -v '^model harness_' "$LATENT_LOOM_FIGURES" 2>/dev/null | sort)
echo
if [ -z "$figures" ]; then
    echo 'no model left a figure'
    exit 1
fi
# shellcheck disable=SC2016 # the backticks are Markdown
{
    printf '| model | searches | bound | executions | ms |\n| --- | --- | --- | --- | --- |\n'
    sed -nE 's/^model ([^ ]+) bound ([^ ]+) executions ([0-9]+) ms ([0-9]+) ended on (.*)$/| `\1` | `\5` | \2 | \3 | \4 |/p' \
        <<<"$figures" | sed -E 's/, /`, `/g; s/latent_capabilities:://g'
} >"$target/loom-models.md"
awk '{ on = $0; sub(/.* on /, "", on); gsub(/latent_capabilities::/, "", on)
       printf "%-58s bound %-9s %10d executions %8d ms  %-7s %s\n", $2, $4, $6, $8, $9, on
       models++; executions += $6; if ($9 != "ended") cut++ }
     END { printf "figure: searches: %d\nfigure: executions: %d\nfigure: searches that did not end: %d\n", models, executions, cut
           exit cut > 0 }' <<<"$figures" || code=1
twice=$(awk '{ print $2 }' <<<"$figures" | uniq -d)
if [ -n "$twice" ]; then
    echo "models of the same name: $twice"
    code=1
fi
exit "$code"
