"""Tiny random models, one or more for each family: makes `tests/golden/families` (format: `tests/golden/README.md`).

    python3 tools/tiny_families.py --out tests/golden/families [--only NAME] [--check-only]

Each case is a transformers model with seeded random weights. They are written to a GGUF file with the names (the `gguf` package's own map),
metadata keys and transformations of llama.cpp's converter, and the model's logits in float32 with eager attention are written beside it.
Every file is then read back by `decoder.py`, which knows only GGUF, and its logits must agree; `--check-only` does just that with the files that are there.
Needs torch, transformers, gguf and numpy.
"""

import argparse
import math
import pathlib

import gguf
import numpy
import torch
import transformers

import families
from decoder import Decoder

TOLERANCE = 2e-4


def randomise(model, seed):
    """Weights of a sane scale: unit-variance activations, sharp enough attention for positions to matter, norms that are not all ones."""
    generator = torch.Generator().manual_seed(seed)
    gemma = "gemma" in model.config.model_type
    tied = model.config.tie_word_embeddings
    for name, tensor in model.named_parameters():
        noise = torch.randn(tensor.shape, generator=generator)
        if "norm" in name:
            tensor.data = 0.25 * noise + (0 if gemma else 1)
        elif name.endswith("bias"):
            tensor.data = 0.3 * noise
        elif "embed_tokens" in name:
            tensor.data = noise * (1.5 / math.sqrt(tensor.shape[-1]) if gemma else 0.3 if tied else 1.0)
        else:
            gain = 1.6 if any(part in name for part in ("q_proj", "k_proj", "qkv_proj", "lm_head")) else 1.0
            tensor.data = gain * noise / math.sqrt(tensor.shape[-1])


def quant_of(name, types):
    """Tensor type of a GGUF matrix: the first pattern of `types` in its name, else F32."""
    return next((kind for part, kind in types.items() if part in name), "F32")


def permute(weight, heads):
    """Rows of each head from halves (i, i + half) to pairs (2i, 2i + 1), as the llama architecture's rotation expects."""
    return weight.reshape(heads, 2, weight.shape[0] // heads // 2, -1).transpose(1, 2).reshape(weight.shape)


def rounded(tensor, kind):
    """The values that a tensor of this type would hold."""
    if kind == "F32":
        return tensor
    kind = gguf.GGMLQuantizationType[kind]
    values = gguf.quants.dequantize(gguf.quants.quantize(tensor.numpy(), kind), kind)
    return torch.from_numpy(numpy.array(values, dtype=numpy.float32)).reshape(tensor.shape)


def gguf_tensors(model, case):
    """`(name, tensor, type)` of every tensor of the file; rounds the model's own weights to their types on the way."""
    config, architecture = model.config, case["architecture"]
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[architecture.upper()], config.num_hidden_layers)
    result = []

    def put(name, tensor):
        kind = quant_of(name, case.get("types", {})) if tensor.dim() > 1 else "F32"
        if "ffn_gate_inp" in name:
            kind = "F32"
        tensor.data = rounded(tensor.data, kind)
        result.append((name, tensor.data, kind))
        return result[-1]

    for name, tensor in model.named_parameters():
        if ".experts." in name:
            layer = name.split(".")[2]
            parts = zip(("gate", "up"), tensor.data.chunk(2, dim=1)) if "gate_up" in name else [("down", tensor.data)]
            pieces = []
            for part, stacked in parts:
                if case.get("split_experts"):
                    experts = [put(f"blk.{layer}.ffn_{part}.{i}.weight", expert.contiguous())[1] for i, expert in enumerate(stacked)]
                    pieces.append(torch.stack(experts))
                else:
                    pieces.append(put(f"blk.{layer}.ffn_{part}_exps.weight", stacked.contiguous())[1])
            tensor.data = torch.cat(pieces, dim=1)
            continue
        target = names.get_name(name.replace("mlp.gate.", "block_sparse_moe.gate."), try_suffixes=(".weight", ".bias"))
        if target is None:
            raise SystemExit(f"no GGUF name for {name}")
        put(target, tensor)
        last = result[-1]
        if architecture == "llama" and ("attn_q." in target or "attn_k." in target):
            heads = config.num_attention_heads if "attn_q." in target else config.num_key_value_heads
            result[-1] = (target, permute(last[1], heads), last[2])
        if "gemma" in architecture and "norm" in target:
            result[-1] = (target, last[1] + 1, "F32")
    for name, values in case.get("extra", lambda model: {})(model).items():
        result.append((name, torch.tensor(values, dtype=torch.float32), "F32"))
    return result


def write_gguf(path, model, case):
    """Writes the file."""
    config, architecture = model.config, case["architecture"]
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_type("model")
    writer.add_name(f"assize tiny {case['name']}")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    for key, value in case["keys"].items():
        key = f"{architecture}.{key}"
        if isinstance(value, str):
            writer.add_string(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        else:
            writer.add_uint32(key, value)
    families.add_vocabulary(writer, case["vocabulary"], config.vocab_size)
    for name, tensor, kind in gguf_tensors(model, case):
        array = numpy.ascontiguousarray(tensor.numpy())
        kind = gguf.GGMLQuantizationType[kind]
        writer.add_tensor(name, gguf.quants.quantize(array, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_golden(path, model, case):
    """Writes the logits of the case's sequences."""
    generator = torch.Generator().manual_seed(case["seed"] + 1000)
    lines = [
        f"# architecture: {case['architecture']}",
        f"# vocabulary: {model.config.vocab_size}",
        f"# tolerance: {TOLERANCE}",
        f"# shows: {case['shows']}",
        f"# origin: tools/tiny_families.py, {type(model).__name__} of transformers {transformers.__version__}, float32, eager, "
        f"torch {torch.__version__}, seed {case['seed']}",
    ]
    for index, length in enumerate(case.get("lengths", [40])):
        ids = [1] + torch.randint(3, model.config.vocab_size, (length - 1,), generator=generator).tolist()
        with torch.no_grad():
            logits = model(torch.tensor([ids]), use_cache=False).logits[0]
        lines += [f"sequence {index} {length}-tokens {length}", "tokens " + " ".join(map(str, ids))]
        lines += [f"l {position} " + " ".join(f"{value:.9g}" for value in row) for position, row in enumerate(logits.tolist())]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def read_golden(path):
    """`(ids, logits)` of each sequence."""
    result = []
    for line in path.read_text(encoding="utf-8").splitlines():
        word, *rest = line.split(" ")
        if word == "tokens":
            result.append(([int(token) for token in rest], []))
        elif word == "l":
            result[-1][1].append([float(value) for value in rest[1:]])
    return [(ids, torch.tensor(rows)) for ids, rows in result]


def check(folder, case):
    """Reads the files back: the decoder must agree, and must not once a feature that the case shows is switched off."""
    def difference(change=None):
        decoder = Decoder(folder / f"{case['name']}.gguf", dtype=torch.float64)
        if change:
            change(decoder)
        return max((decoder.logits(ids) - logits).abs().max().item() for ids, logits in golden)

    golden = read_golden(folder / f"{case['name']}.txt")
    spread = golden[-1][1].std().item()
    agreed = difference()
    without = {name: difference(change) for name, change in case["without"].items()}
    size = (folder / f"{case['name']}.gguf").stat().st_size
    print(f"{case['name']:18} {size:7} bytes  spread {spread:.2f}  difference {agreed:.1e}  without:", *(f"{k} {v:.2g}" for k, v in without.items()))
    if agreed > TOLERANCE / 2 or any(value < 50 * TOLERANCE for value in without.values()):
        raise SystemExit(f"{case['name']}: the GGUF file and the golden disagree, or the golden does not show what it should")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--only")
    parser.add_argument("--check-only", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for case in families.CASES:
        if options.only and case["name"] != options.only:
            continue
        if not options.check_only:
            case["config"]._attn_implementation = "eager"
            model = transformers.AutoModelForCausalLM.from_config(case["config"], attn_implementation="eager", dtype=torch.float32).eval()
            randomise(model, case["seed"])
            write_gguf(options.out / f"{case['name']}.gguf", model, case)   # first: it rounds the weights
            write_golden(options.out / f"{case['name']}.txt", model, case)
        check(options.out, case)


if __name__ == "__main__":
    main()
