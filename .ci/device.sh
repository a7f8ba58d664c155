#!/usr/bin/env bash
# What needs a card: parity with the processor, and speed beside what the card can do at most. At most 8 minutes on a fresh machine with one H200;
# nothing is downloaded. Prints one table; exits with 3 where parity fails, and with 2 where there is no card that can be used.
#
#   .ci/device.sh [--binary FILE] [--model FILE] [--workload FILE] [--work DIR]
#
# --binary    assize with the feature `cuda`: by default the one that `.ci/cuda.sh` or a plain build left.
# --model     a small real model (GGUF): by default SmolLM2-135M from assize's cache.
# --workload  JSONL rows as `assize bench` takes them; by default rows that tools/device_rows.py makes up.
# --work      where the 13B model of random weights (8.7 GB) is put; kept there if it was named.
set -euo pipefail
cd "$(dirname "$0")/.."

binary= model= workload= work=
while [ $# -gt 0 ]; do
    case $1 in
    --binary | --model | --workload | --work) declare "${1#--}=${2:?$1 needs a value}" && shift 2 ;;
    *) echo "device: unknown argument $1" >&2 && exit 2 ;;
    esac
done
target=target-cuda/x86_64-unknown-linux-gnu/release/assize
if [ -z "$binary" ]; then
    for binary in "$target" target/release/assize; do
        [ -x "$binary" ] && break
    done
fi
[ -x "$binary" ] || { echo "device: no binary; build one with .ci/cuda.sh" >&2; exit 2; }
if [ -z "$model" ]; then
    model=$(find "${XDG_CACHE_HOME:-$HOME/.cache}/assize/models/smollm2-135m-instruct" -name '*.gguf' 2>/dev/null | head -n 1)
fi
[ -n "$model" ] && [ -f "$model" ] || { echo "device: no small model; name one with --model" >&2; exit 2; }
if [ -z "$work" ]; then
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
fi
mkdir -p "$work"
found=$work/found
rm -rf "$found"
mkdir -p "$found"

# cuBLAS and cuRAND often come with PyTorch, in folders that no loader looks into.
for library in $(python3 - <<'PYTHON' 2>/dev/null || true
import glob, site, sysconfig
for folder in {*site.getsitepackages(), sysconfig.get_paths()["purelib"]}:
    for path in glob.glob(folder + "/nvidia/*/lib"):
        print(path)
PYTHON
); do
    export LD_LIBRARY_PATH=$library${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
done

began=$SECONDS
step() { echo "== $((SECONDS - began)) s: $1" >&2; }

step "devices"
"$binary" devices | tee "$found/devices.txt"
if ! "$binary" devices --json | grep '"device":"cuda' | grep -q '"usable":true'; then
    echo "device: no card that can be used is there: $(grep '^cuda' "$found/devices.txt" | head -n 1)" >&2
    exit 2
fi

failed=0
small_rows=$work/rows-24.jsonl
python3 tools/device_rows.py ${workload:+"$workload"} --rows 24 >"$small_rows"
for plan in quantized dense half; do
    step "parity of the small model, plan $plan"
    "$binary" bench --parity --exact --device cuda --plan "$plan" --model "$model" --workload "$small_rows" --json \
        >"$found/parity-small-$plan.json" || { [ $? = 3 ] && failed=1 || exit 1; }
done

step "a 13B of random weights"
large=$work/llama2-13b.gguf
[ -f "$large" ] || "$binary" synth llama2-13b --tokenizer "$model" --out "$large" --quiet >/dev/null
for plan in quantized dense; do
    step "parity of the 13B, plan $plan"
    timeout 120 "$binary" bench --parity --device cuda --plan "$plan" --model "$large" --json \
        >"$found/parity-13B-$plan.json" || { [ $? = 3 ] && failed=1 || exit 1; }
done

for plan in quantized dense; do
    step "speed, plan $plan"
    timeout 90 "$binary" bench --speed --device cuda --plan "$plan" --model "$large" --prompt 2048 --batch 1,16,64,256 --repeat 2 --json \
        >"$found/speed-$plan.json" || echo "device: speed in plan $plan came to no end" >&2
done

many=$work/rows-2000.jsonl
python3 tools/device_rows.py ${workload:+"$workload"} --rows 2000 >"$many"
for mode in json score; do
    step "2,000 rows, $mode mode"
    timeout 90 "$binary" bench --workload "$many" --mode "$mode" --rounds 1 --device cuda --max-batch 256 --prefill-chunk 2048 --model "$large" --json \
        >"$found/rows-$mode.json" || echo "device: the rows in $mode mode came to no end, or some failed" >&2
done

step "a peer"
timeout 100 python3 tools/device_peer.py --seconds 60 >"$found/peer.json" || echo "device: no figures of the peer" >&2

step "done"
python3 tools/device_table.py "$found"
if [ "$failed" = 1 ]; then
    echo "device: parity FAILS" >&2
    exit 3
fi
