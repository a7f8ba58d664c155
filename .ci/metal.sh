#!/usr/bin/env bash
# What needs a Mac with Apple silicon: the build with Metal, parity with the processor, and speed. By hand; needs Rust and Xcode's tools.
#
#   .ci/metal.sh [MODEL]      a GGUF file or a name that `assize models` lists; by default the small one that the tests use
set -euo pipefail
cd "$(dirname "$0")/.."

if [ "$(uname -s)" != Darwin ]; then
    echo "metal: this needs a Mac" >&2
    exit 2
fi
model=${1:-smollm2-135m-instruct}
cargo build --release --locked --features metal
cargo test --release --locked -p assize-kernels --features metal
binary=target/release/assize
"$binary" devices
rows=$(mktemp)
trap 'rm -f "$rows"' EXIT
python3 tools/device_rows.py --rows 24 >"$rows"
"$binary" bench --parity --exact --device metal --plan quantized --model "$model" --workload "$rows"
"$binary" bench --speed --device metal --plan quantized --model "$model" --batch 1,8,16
