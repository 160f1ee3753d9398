#!/usr/bin/env bash
# Mutation testing of what .cargo/mutants.toml names: cargo-mutants lists the mutants, the program in mutants/ puts all of them
# into one copy of the source, and runs for each the tests that reach it, until one fails. First the tests of the library, then,
# on what these missed, the other tests, then the models. All of it takes an hour or two of two quiet cores.
#
#   LATENT_MUTANTS_SAMPLE=3/16   every 16th mutant, from the fourth: an unbiased part
#   LATENT_MUTANTS_ONLY=src/mem  those whose name has this in it
#   LATENT_MUTANTS_JOBS=1        how many at once; default 2
#   LATENT_MUTANTS_MODELS=       set and empty: without the models
#
# It fails when a mutant is missed that mutants/survivors.txt does not explain.
set -euo pipefail
# shellcheck source=.ci/common.sh
. .ci/common.sh
cargo_tool cargo-mutants 27.1.0
export RUSTFLAGS='--cap-lints=allow' CARGO_PROFILE_DEV_DEBUG=0 CARGO_PROFILE_TEST_DEBUG=0 CARGO_INCREMENTAL=1
out=$target/mutants
tree=$out/tree
rm -rf "$tree" "$out"/*.tsv
mkdir -p "$tree" "$out"

# A copy in which the floors are declared word for word: cargo-mutants sees no modules behind a macro.
git ls-files -z | xargs -0 cp --parents -t "$tree"
awk '/^floors! \{/ { inside = 1; next }
     inside && /^\}/ { inside = 0; next }
     inside { sub(/,/, ""); print "pub mod " $1 ";"; next }
     { print }' src/lib.rs >"$tree/src/lib.rs"
(cd "$tree" && cargo mutants --list --json --colors never) >"$out/list.json"

cargo build --quiet --release --locked --manifest-path mutants/Cargo.toml --target-dir "$out/tool"
run() { # RESULTS ARGUMENT...
    local results=$1
    shift
    nice -n 19 "$out/tool/release/latent-mutants" "$out/list.json" "$PWD" "$tree" "$results" \
        --jobs "${LATENT_MUTANTS_JOBS:-2}" "$@"
}
which=(--sample "${LATENT_MUTANTS_SAMPLE:-0/1}" --only "${LATENT_MUTANTS_ONLY:-src/}")
results=("$out/lib.tsv")
CARGO_TARGET_DIR=$out/debug run "$out/lib.tsv" "${which[@]}" -- -p latent-capabilities --lib
# The same build: what did not compile is known.
cp "$out/lib.left.json" "$out/tests.left.json"
CARGO_TARGET_DIR=$out/debug run "$out/tests.tsv" --resume yes --missed-of "$out/lib.tsv" -- \
    -p latent-capabilities --test simulation --test no_alloc --test justified --test quiet --test secrets
results+=("$out/tests.tsv")
if [ -n "${LATENT_MUTANTS_MODELS-yes}" ]; then
    RUSTFLAGS='--cfg loom --cap-lints=allow' CARGO_TARGET_DIR=$out/loom LATENT_LOOM_SECONDS=120 \
        LATENT_LOOM_FIGURES=$out/loom-figures.txt CARGO_INCREMENTAL=0 CARGO_PROFILE_RELEASE_LTO=off \
        CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_PROFILE_RELEASE_DEBUG=0 \
        run "$out/loom.tsv" --missed-of "$out/lib.tsv" --missed-of "$out/tests.tsv" -- -p loom-tests --release --tests
    results+=("$out/loom.tsv")
fi

"$out/tool/release/latent-mutants" table --survivors mutants/survivors.txt "${results[@]}"
