"""Writes dequantize.txt: random blocks of every tensor type, and what the `gguf` package makes of them.

Run with the packages gguf 0.19.0 and numpy: python3 dequantize.py > dequantize.txt
"""

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType as Type
from gguf.quants import dequantize

# Where a block holds numbers in half precision; random bytes there could be infinities.
HALVES = {
    "F16": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0],
    "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
}
NAMES = ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"]

print("# Blocks of each tensor type and their weights, by gguf 0.19.0 (see dequantize.py).")
print("# A line: type, the block's bytes, the bits of its weights as big-endian words.")
random = np.random.default_rng(7)
for name in NAMES:
    size = GGML_QUANT_SIZES[Type[name]][1]
    for _ in range(1 if name.endswith("_K") else 2):
        block = random.integers(0, 256, size, dtype=np.uint8)
        for at in HALVES.get(name, []):
            block[at : at + 2] = np.array([random.normal() / 50], dtype=np.float16).view(np.uint8)
        if name in ("F32", "BF16"):
            block[-1] = 0x3E
        weights = dequantize(block, Type[name]).astype(np.float32).reshape(-1)
        print(name, block.tobytes().hex(), weights.astype(">f4").tobytes().hex())
