"""Float32 reference distributions of a real GGUF model: makes `tests/golden/logits/<model>.txt` (format: `tests/golden/README.md`).

    python3 tools/reference_logits.py --model FILE.gguf --out tests/golden/logits/NAME.txt [--tokens FILE] [--full FILE.f32]
    python3 tools/reference_logits.py --model FILE.gguf --out … --encode           # token ids anew, from tools/texts.py
    python3 tools/reference_logits.py --model FILE.gguf --out … --cross-check      # compare with transformers instead of writing

Needs torch, gguf and numpy; transformers for --encode and --cross-check. The 1.5B model takes about 8 GB of memory.
"""

import argparse
import datetime
import hashlib
import os
import pathlib
import re

import gguf
import numpy
import torch

import texts
from decoder import Decoder

TOP, TAIL = 32, 16


def read_tokens(path):
    """`(name, ids)` of each sequence of a golden."""
    names, result = [], []
    for line in open(path, encoding="utf-8"):
        word, _, rest = line.rstrip("\n").partition(" ")
        if word == "sequence":
            names.append(rest.split(" ")[1])
        elif word == "tokens":
            result.append((names[-1], [int(token) for token in rest.split(" ")]))
    return result


def encode(path, architecture):
    """Encodes the texts with the tokenizer that transformers makes of the GGUF file."""
    from transformers import AutoTokenizer

    folder, file = os.path.split(os.path.abspath(path))
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=file)
    gemma = architecture.startswith("gemma")
    marks = ("<start_of_turn>{role}\n", "<end_of_turn>") if gemma else ("<|im_start|>{role}\n", "<|im_end|>")
    bos = [tokenizer.bos_token_id] if gemma else []
    parts = [(name, bos + tokenizer.encode(text, add_special_tokens=False)) for name, text in texts.sequences(*marks)]
    if not gemma:
        return [(name, ids[:320]) for name, ids in parts]
    # The window of 512 matters only past 512 tokens: one long sequence of both halves, and a short one.
    (first, a), (second, b) = parts
    return [(first + "-" + second, (a + b[1:])[:640]), (second, b[:96])]


def tail(rows, top):
    """Log mass `[T, TAIL]` of the tokens outside `top` `[T, TOP]`, by id modulo TAIL, of log-probabilities `[T, V]`."""
    rest = rows.scatter(-1, top, -torch.inf)
    missing = -rest.shape[-1] % TAIL
    return torch.nn.functional.pad(rest, (0, missing), value=-torch.inf).unflatten(-1, (-1, TAIL)).logsumexp(1)


def bucketed(reference, other):
    """Bucketed and true KL of each position, `[T]` f64 both, from log-probabilities `[T, V]`."""
    true = (reference.exp() * (reference - other)).sum(-1)
    top = reference.topk(TOP, dim=-1).indices
    p, q = reference.gather(-1, top), other.gather(-1, top)
    bound = (p.exp() * (p - q)).sum(-1)
    p, q = tail(reference, top), tail(other, top)
    part = p.exp() * (p - q)
    return bound + torch.where(p.isinf(), torch.zeros_like(part), part).sum(-1), true


def compare(reference, other):
    """Summary of another run's logits against the reference's."""
    bounds, trues, same = [], [], []
    for first in range(0, reference.shape[0], 32):
        p, q = (x[first : first + 32].double().log_softmax(-1) for x in (reference, other))
        bound, true = bucketed(p, q)
        bounds.append(bound)
        trues.append(true)
        same.append(p.argmax(-1) == q.argmax(-1))
    bound, true, same = torch.cat(bounds).mean(), torch.cat(trues).mean(), torch.cat(same).double().mean()
    difference = (reference - other).abs().max()
    return f"bucketed {bound:.3e} true {true:.3e} same-top {100 * same:.2f}% max-logit-difference {difference:.3e}"


def position_lines(logits):
    """The `p` records of one sequence's logits `[T, V]`."""
    for position, row in enumerate(logits):
        row = row.double()
        total = row.logsumexp(-1)
        row = row - total
        values, ids = row.topk(TOP)
        rest = tail(row[None], ids[None])[0]
        top = " ".join(f"{token}:{value:.6f}" for token, value in zip(ids.tolist(), values.tolist()))
        yield f"p {position} {total:.6f} {top} | " + " ".join(f"{value:.6f}" for value in rest.tolist())


def cross_check(path, sequences, logits):
    """Compares with transformers' own loading of the file, in float32 with eager attention."""
    from transformers import AutoModelForCausalLM

    folder, file = os.path.split(os.path.abspath(path))
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        other = torch.cat([model(torch.tensor([ids])).logits[0] for _, ids in sequences])
    print("transformers:", compare(logits, other))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--tokens", type=pathlib.Path, help="golden whose token ids to use (default: --out)")
    parser.add_argument("--encode", action="store_true", help="encode tools/texts.py instead")
    parser.add_argument("--full", help="also write every logit, raw f32")
    parser.add_argument("--cross-check", action="store_true", help="compare with transformers, write nothing")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)

    model = Decoder(options.model)
    sequences = encode(options.model, model.architecture) if options.encode else read_tokens(options.tokens or options.out)
    logits = torch.cat([model.logits(ids) for _, ids in sequences])
    if options.full and not options.cross_check:
        logits.numpy().astype("<f4").tofile(options.full)
    if options.cross_check:
        del model
        return cross_check(options.model, sequences, logits)

    model.cache_dtype = torch.float16
    half_cache = compare(logits, torch.cat([model.logits(ids) for _, ids in sequences]))
    model.cache_dtype = None
    generator = torch.Generator().manual_seed(1)
    for name, tensor in model.tensors.items():
        if tensor.dim() > 1:
            tensor *= 1 + 0.01 * torch.randn(tensor.shape, generator=generator)
    noise = compare(logits, torch.cat([model.logits(ids) for _, ids in sequences]))

    with open(options.model, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    lines = [
        f"# model: {model.fields.get('general.name', '')} ({pathlib.Path(options.model).name})",
        f"# sha256: {digest}",
        f"# architecture: {model.architecture}",
        f"# vocabulary: {model.vocabulary}",
        f"# top: {TOP}",
        f"# tail: {TAIL}",
        f"# origin: tools/reference_logits.py, float32, torch {torch.__version__}, numpy {numpy.__version__}, {datetime.date.today()}",
        f"# bound: K/V rounded to f16: {half_cache}",
        f"# bound: weights with 1 % noise: {noise}",
    ]
    first = 0
    for index, (name, ids) in enumerate(sequences):
        lines += [f"sequence {index} {name} {len(ids)}", "tokens " + " ".join(map(str, ids))]
        lines += position_lines(logits[first : first + len(ids)])
        first += len(ids)
    options.out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(options.out, options.out.stat().st_size, "bytes;", re.sub("# ", "", "; ".join(lines[7:9])))


if __name__ == "__main__":
    main()
