#!/usr/bin/env bash
# Builds assize with its CUDA feature on a machine that has neither a GPU nor a toolkit: `.ci/cuda.sh` builds the command, `.ci/cuda.sh
# cargo ARGUMENTS...` runs another cargo command under the same settings, and `.ci/cuda.sh toolkit` only sets the compiler up.
#
# The compiler and its headers come from ordinary Python packages of pinned versions, each wheel checked by its sha256, and are kept in
# ${XDG_CACHE_HOME:-$HOME/.cache}/assize/cuda-13.0. The binary opens the driver, cuBLAS and cuRAND when it is run and is linked with none of
# them, so that it runs where there are none, too. Exit code 75 means that the toolkit could not be fetched; any other failure is one of the code.
#
# CUDA_COMPUTE_CAP chooses the card that candle's own kernels are compiled for (80, 86, 89 or 90; 90 where it is not set).
# Where a toolkit is installed, plain `cargo build --release --features cuda` serves.
set -euo pipefail
cd "$(dirname "$0")/.."

root=${XDG_CACHE_HOME:-$HOME/.cache}/assize/cuda-13.0
target=x86_64-unknown-linux-gnu
export CUDA_COMPUTE_CAP=${CUDA_COMPUTE_CAP:-90}

# nvcc of 13.0, since a driver of the 580 series compiles no newer PTX.
requirements='
nvidia-cuda-nvcc==13.0.88 --hash=sha256:56fe502eb77625a12f25172caa3cdddb4e4c8ba2c8c17dba44b164761b380f03
nvidia-nvvm==13.0.88 --hash=sha256:c5f41ffeb6466944a026dfa5317d7d85355c119bbec279205d22f1869d1054e0
nvidia-cuda-crt==13.0.88 --hash=sha256:2c8043c7c9e02492716426e9919fc78d2c5b3b2a7a768a88e952676b08aa55a4
nvidia-cuda-runtime==13.0.96 --hash=sha256:7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548
nvidia-cuda-cccl==13.0.85 --hash=sha256:e0da7ad981f3a8aff08241b5bfc1af868742a63e2762f53a5171c492ef242649
'

# What the toolkit is made of and how: a change of either makes it anew.
stamp() { { echo "$requirements"; declare -f set_up; } | sha256sum | cut -c 1-64; }

set_up() {
    local work=$1 try wheel
    printf '%s\n' "$requirements" >"$work/requirements"
    for try in 1 2 3; do
        python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --require-hashes \
            -r "$work/requirements" --dest "$work/wheels" && break
        echo "cuda: try $try of fetching the toolkit failed" >&2
        [ "$try" = 3 ] && return 75
        sleep $((try * 10))
    done
    for wheel in "$work"/wheels/*.whl; do
        python3 -m zipfile -e "$wheel" "$work/unpacked"
    done
    mv "$work/unpacked/nvidia/cu13" "$work/toolkit"
    chmod +x "$work"/toolkit/bin/* "$work"/toolkit/nvvm/bin/*
    ln -s lib "$work/toolkit/lib64"
    # Some build scripts ask the linker for these libraries. Nothing is taken from them, so that empty archives do.
    mkdir -p "$work/toolkit/lib/stubs"
    local library
    for library in cuda nvrtc curand cublas cublasLt; do
        ar rcs "$work/toolkit/lib/stubs/lib$library.a"
    done
    cp "$work/toolkit/lib/libcudart_static.a" "$work/toolkit/lib/stubs/libcudart.a"
    stamp >"$work/toolkit/stamp"
}

if [ "$(cat "$root/stamp" 2>/dev/null)" != "$(stamp)" ]; then
    mkdir -p "$(dirname "$root")"
    work=$(mktemp -d "$root.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    set_up "$work" || exit $?
    rm -rf "$root"
    mv -T "$work/toolkit" "$root"
    rm -rf "$work"
    trap - EXIT
fi
[ "${1:-}" = toolkit ] && exit 0

export CUDA_HOME=$root CUDA_PATH=$root PATH=$root/bin:$PATH CUDARC_CUDA_VERSION=13000
export CUDAFORGE_THREADS=${CUDAFORGE_THREADS:-$(nproc)} CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target-cuda}
# An explicit target keeps the flag out of build scripts, which are not meant to see it. By the environment, since clippy hears of nothing else.
unset RUSTFLAGS CARGO_ENCODED_RUSTFLAGS CARGO_BUILD_RUSTFLAGS
export CARGO_BUILD_TARGET=$target
export CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUSTFLAGS='--cfg feature="dynamic-loading"'

if [ "${1:-}" = cargo ]; then
    shift
    exec cargo "$@"
fi

cargo build --release --locked --features cuda
binary=$CARGO_TARGET_DIR/$target/release/assize
if readelf -d "$binary" | grep NEEDED | grep -iE 'cuda|nvidia|cublas|curand|nvrtc'; then
    echo "cuda: $binary is linked with a library of NVIDIA's and would not start without it" >&2
    exit 1
fi
echo "cuda: $binary (candle's kernels for sm_$CUDA_COMPUTE_CAP)"
