#!/usr/bin/env python3
"""The peer of `.ci/device.sh`: a 13B Llama-2 of random weights in transformers, bf16, SDPA and a static cache, in batches as large as fit.

  device_peer.py --prompt 1000 --new 110 --batch 16,64,128 --seconds 60

Prints one JSON object a batch size: verdicts a second, a verdict being a prompt and so many new tokens. No prefix is shared and no grammar is kept:
both cost the peer nothing here. Exits with 75 where torch, transformers or a card is not there.
"""
import argparse
import json
import sys
import time


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompt", type=int, default=1000)
    parser.add_argument("--new", type=int, default=110)
    parser.add_argument("--batch", default="16,64,128")
    parser.add_argument("--seconds", type=float, default=60)
    options = parser.parse_args()
    try:
        import torch
        import transformers
    except ImportError as error:
        print(f"device_peer: {error}", file=sys.stderr)
        return 75
    if not torch.cuda.is_available():
        print("device_peer: torch sees no card", file=sys.stderr)
        return 75
    config = transformers.LlamaConfig(
        vocab_size=32000, hidden_size=5120, intermediate_size=13824, num_hidden_layers=40, num_attention_heads=40,
        num_key_value_heads=40, max_position_embeddings=4096, attn_implementation="sdpa", torch_dtype="bfloat16",
    )
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = transformers.LlamaForCausalLM(config).eval()
    began = time.monotonic()
    for batch in (int(size) for size in options.batch.split(",")):
        if time.monotonic() - began > options.seconds:
            print(f"device_peer: no time left for batches of {batch}", file=sys.stderr)
            break
        prompt = torch.randint(5, 31000, (batch, options.prompt), device="cuda")
        arguments = dict(
            attention_mask=torch.ones_like(prompt), max_new_tokens=options.new, min_new_tokens=options.new, do_sample=False,
            cache_implementation="static", pad_token_id=0,
        )
        try:
            with torch.inference_mode():
                model.generate(prompt[:, :64], **{**arguments, "attention_mask": arguments["attention_mask"][:, :64], "max_new_tokens": 4, "min_new_tokens": 4})
                torch.cuda.synchronize()
                start = time.monotonic()
                model.generate(prompt, **arguments)
                torch.cuda.synchronize()
                seconds = time.monotonic() - start
        except torch.cuda.OutOfMemoryError:
            print(f"device_peer: batches of {batch} do not fit", file=sys.stderr)
            break
        print(json.dumps({"peer": f"transformers {transformers.__version__}", "batch": batch, "seconds": seconds, "verdicts_per_second": batch / seconds}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
