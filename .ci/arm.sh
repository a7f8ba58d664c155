#!/usr/bin/env bash
# Checks the NEON kernels on an x86 machine, by hand: that they compile without a warning, and, under qemu's emulation of all that a
# processor may have, that `neon`, `dotprod` and `i8mm` give the bits of the portable vectors. It proves bits, not speed.
#
# Needs: rustup target add aarch64-unknown-linux-gnu
#        apt-get install qemu-user gcc-aarch64-linux-gnu libc6-dev-arm64-cross
set -euo pipefail
cd "$(dirname "$0")/.."

target=aarch64-unknown-linux-gnu
export CARGO_TERM_COLOR=never CARGO_INCREMENTAL=0
export CC_aarch64_unknown_linux_gnu=aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64 -cpu max -L /usr/aarch64-linux-gnu"
# Without candle, so that only this crate and what it needs is built.
kernels=(--release -p assize-kernels --no-default-features --target "$target" --locked)

cargo clippy "${kernels[@]}" --all-targets -- -D warnings
cargo test "${kernels[@]}" --test parity --test attention
