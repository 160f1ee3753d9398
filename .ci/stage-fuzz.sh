#!/usr/bin/env bash
# Each fuzz target for 20 seconds from its seeds, with address sanitizer and coverage; before it, every seed on the stable
# toolchain. Where the nightly toolchain or a C++ compiler for the engine cannot be had, the seeds are all that is run.
#
#   LATENT_FUZZ_SECONDS=600 bash .ci/stage-fuzz.sh   longer
#
# What was found lies in TARGET/fuzz-found; a file there is a seed as soon as what it found is put right.
set -uo pipefail
# shellcheck source=.ci/common.sh
. .ci/common.sh
seconds=${LATENT_FUZZ_SECONDS:-20}
manifest=fuzz/Cargo.toml

RUSTFLAGS='--cfg fuzzing' cargo test --quiet --locked --manifest-path $manifest --target-dir "$target/fuzz" --test seeds || exit

if ! said=$(rustc +nightly --version 2>&1); then
    skip fuzz "no nightly toolchain ($(tail -n 1 <<<"$said")); the seeds passed on stable"
    exit 0
fi
need c++ g++ || {
    skip fuzz 'no C++ compiler for the engine; the seeds passed on stable'
    exit 0
}
# As cargo-fuzz does it.
coverage='-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares'
RUSTFLAGS="--cfg fuzzing -Zsanitizer=address -Cunsafe-allow-abi-mismatch=sanitizer $coverage" \
    cargo +nightly build --quiet --release --locked --manifest-path $manifest --features engine --bins \
    --target $host --target-dir "$target/fuzz" || exit

code=0 targets=0 found=0 sum=0 failed=()
mkdir -p "$target/fuzz-found"
printf '%-15s %12s %8s %8s  %s\n' target executions edges corpus result
for folder in fuzz/seeds/*/; do
    name=$(basename "$folder")
    corpus=$target/fuzz-corpus/$name log=$target/fuzz-corpus/$name.log result=passed
    mkdir -p "$corpus"
    "$target/fuzz/$host/release/$name" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
        -artifact_prefix="$target/fuzz-found/$name-" "$corpus" "$folder" >"$log" 2>&1 </dev/null || {
        code=1 result=FOUND found=$((found + 1))
    }
    targets=$((targets + 1))
    executions=$(sed -nE 's/^stat::number_of_executed_units: *([0-9]+)/\1/p' "$log")
    sum=$((sum + ${executions:-0}))
    last=$(grep -E 'cov: [0-9]+' "$log" | tail -n 1)
    printf '%-15s %12s %8s %8s  %s\n' "$name" "${executions:-?}" "$(sed -nE 's/.*cov: ([0-9]+).*/\1/p' <<<"$last")" \
        "$(sed -nE 's/.*corp: ([0-9]+).*/\1/p' <<<"$last")" "$result"
    [ "$result" = passed ] || failed+=("$name")
done
figure targets "$targets"
figure executions "$sum"
figure 'targets that found something' "$found"
# Last, so that it is seen: what it says, and its bytes, which are a seed as soon as it is put right.
for name in "${failed[@]}"; do
    printf '%s found:\n' "$name"
    grep -vE '^#[0-9]+|^INFO:|^stat::|^\s+#[0-9]+ 0x' "$target/fuzz-corpus/$name.log" | tail -n 40 | cut -c 1-4000
done
exit "$code"
