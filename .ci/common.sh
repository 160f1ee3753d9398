#!/usr/bin/env bash
# What the stages share. Sourced, with the root of the repository as working folder.
# shellcheck shell=bash

export CARGO_TERM_COLOR=never CARGO_INCREMENTAL=0
# Debug information of every dependency only costs time here; lines are enough to read a backtrace.
export CARGO_PROFILE_DEV_DEBUG=line-tables-only CARGO_PROFILE_TEST_DEBUG=line-tables-only
# The limits and flags of a caller's shell are none of ours.
unset RUSTFLAGS RUSTDOCFLAGS MIRIFLAGS LOOM_MAX_DURATION LOOM_MAX_PERMUTATIONS LOOM_MAX_PREEMPTIONS

target=${CARGO_TARGET_DIR:-$PWD/target}
# shellcheck disable=SC2034 # the sanitizers use it
host=x86_64-unknown-linux-gnu
tools=$target/ci-tools

# skip NAME WHY: says what is left out, and why.
skip() {
    printf 'skipped: %s: %s\n' "$1" "$2"
}

# figure NAME VALUE: a row of the table that .ci/run prints at its end. Tests that passed or failed are counted there.
figure() {
    printf 'figure: %s: %s\n' "$1" "$2"
}

# cfg_wrapper CFG: a RUSTC_WORKSPACE_WRAPPER that builds the packages of this workspace with `--cfg CFG`. What they depend on is
# built once for all of them, which RUSTFLAGS would not allow.
cfg_wrapper() {
    local wrapper=$target/ci-cfg/${1//[^a-z_]/-}
    if [ ! -x "$wrapper" ]; then
        mkdir -p "$target/ci-cfg"
        printf '#!/bin/sh\nexec "$@" --cfg '"'%s'"'\n' "$1" >"$wrapper"
        chmod +x "$wrapper"
    fi
    echo "$wrapper"
}

# need COMMAND PACKAGE: installs Debian's package if the command is not there.
need() {
    command -v "$1" >/dev/null && return
    if [ ! -e "$target/ci-apt-updated" ]; then
        apt-get update -qq && touch "$target/ci-apt-updated" || return
    fi
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$2" >/dev/null && command -v "$1" >/dev/null
}

# component NAME: a component of the nightly toolchain, installed if it is not there. Prints why not.
component() {
    local said
    if ! said=$(rustc +nightly --version 2>&1); then
        printf 'no nightly toolchain (%s)\n' "$(tail -n 1 <<<"$said")"
        return 1
    fi
    if ! said=$(rustup component add --toolchain nightly "$1" 2>&1); then
        printf 'the nightly component %s cannot be had (%s)\n' "$1" "$(tail -n 1 <<<"$said")"
        return 1
    fi
}

# cargo_tool NAME VERSION: a program from the registry, built once with a fast profile into the target folder.
cargo_tool() {
    export PATH="$tools/bin:$PATH"
    cargo install --list --root "$tools" 2>/dev/null | grep -q "^$1 v$2:" && return
    CARGO_TARGET_DIR="$target/ci-tools-build" CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 \
        CARGO_PROFILE_RELEASE_OPT_LEVEL=1 cargo install --quiet --locked --root "$tools" "$1" --version "$2"
}
