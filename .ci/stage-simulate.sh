#!/usr/bin/env bash
# The simulator for 100 seconds on an optimised build: the library against the plain model, every step compared. The seeds
# are others than the tests' own, and the same every time; the table of the gate has its figures.
#
#   LATENT_SIM_FROM=5000000 LATENT_SIM_SECONDS=3600 bash .ci/stage-simulate.sh   other seeds, longer
#
# What breaks a law is printed as one line, `SEED=… STEPS=…`, and as a script that was shrunk.
set -euo pipefail
# shellcheck source=.ci/common.sh
. .ci/common.sh
# Long runs, and a C library that does not keep what a run gave back, so that it need not wipe it for the next one.
export STEPS=${STEPS:-4000} MALLOC_MMAP_THRESHOLD_=131072
LATENT_SIM_SECONDS=${LATENT_SIM_SECONDS:-100} LATENT_SIM_FROM=${LATENT_SIM_FROM:-1000000} \
    CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_PROFILE_RELEASE_DEBUG=0 \
    cargo test --release --locked -p latent-capabilities --test simulation --target-dir "$target/ci-simulate" -- --nocapture
