"""The cases of `tiny_families.py`: transformers configs, the GGUF metadata that llama.cpp's converter writes for them, and what each one shows.

A case: `name`; `architecture` of the GGUF; `config`; `seed`; `vocabulary` (`gpt2` or `llama`, the kind of tokenizer); `keys`: metadata without the
architecture's prefix (the common ones are written for all); `types`: tensor type by part of the name (F32 elsewhere); `extra`: tensors
computed from the model; `lengths` of the golden's sequences; `shows`, a line for people; `without`: changes to the decoder each of which must break the parity.
"""

import math

import gguf
import torch
from transformers import (Gemma2Config, Gemma3TextConfig, LlamaConfig, MistralConfig, MixtralConfig, Phi3Config, Qwen2Config, Qwen3Config)

VOCABULARY = 96
COMMON = dict(vocab_size=VOCABULARY, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
              bos_token_id=1, eos_token_id=2, pad_token_id=0)
EXPERTS = COMMON | dict(hidden_size=32, intermediate_size=64, num_local_experts=4, num_experts_per_tok=2, max_position_embeddings=256,
                        rope_parameters={"rope_type": "default", "rope_theta": 1e6})
SMALL = COMMON | dict(hidden_size=32, intermediate_size=64, head_dim=16, query_pre_attn_scalar=16, sliding_window=8, max_position_embeddings=256)

LONG_ROPE = {
    "rope_type": "longrope", "rope_theta": 10000.0, "original_max_position_embeddings": 24,
    "short_factor": [1.0, 1.05, 1.1, 1.3, 1.4, 1.6, 1.9, 2.0],
    "long_factor": [1.1, 1.5, 2.5, 4.0, 6.0, 8.0, 9.5, 12.0],
}
ATTENTION_FACTOR = math.sqrt(1 + math.log(96 / 24) / math.log(24))


def add_vocabulary(writer, kind, size):
    """A made-up vocabulary: three control tokens, printable ASCII, and one merge."""
    writer.add_tokenizer_model(kind)
    characters = [chr(code) for code in range(0x21, 0x7F)]
    space = "Ġ" if kind == "gpt2" else "▁"
    tokens = (["<unk>", "<s>", "</s>", space, "t", "h", "th"] + [c for c in characters if c not in "th"])[:size]
    unknown, control, normal = gguf.TokenType.UNKNOWN, gguf.TokenType.CONTROL, gguf.TokenType.NORMAL
    writer.add_token_list(tokens)
    writer.add_token_types([control if kind == "gpt2" else unknown, control, control] + [normal] * (size - 3))
    if kind == "gpt2":
        writer.add_tokenizer_pre("qwen2")
        writer.add_token_merges(["t h"])
    else:
        writer.add_tokenizer_pre("default")
        writer.add_token_scores([0.0] * 3 + [-float(index) for index in range(size - 3)])
        writer.add_add_space_prefix(False)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(kind == "llama")


def inverse_of_llama3(model):
    """`rope_freqs`: by what each plain frequency is divided; taken from the model's own frequencies."""
    rotary = model.model.rotary_emb
    plain = model.config.rope_parameters["rope_theta"] ** -(torch.arange(0, 16, 2, dtype=torch.float64) / 16)
    return {"rope_freqs.weight": (plain / rotary.inv_freq.double()).tolist()}


def drop(*names):
    """A change that removes tensors from the decoder."""
    def change(decoder):
        for name in names:
            del decoder.tensors[name]
    return change


def replace(**values):
    """A change that sets fields of the decoder."""
    return lambda decoder: decoder.__dict__.update(values)


def key(name, value):
    """A change of a metadata value."""
    return lambda decoder: decoder.fields.__setitem__(f"{decoder.architecture}.{name}", value)


def drop_matching(part):
    """A change that removes all tensors whose name holds `part`."""
    return lambda decoder: [decoder.tensors.pop(name) for name in list(decoder.tensors) if part in name]


def never_local(decoder):
    """A change: every layer sees everything and takes the global rope."""
    decoder.is_local = lambda layer: False


def always_global_rope(decoder):
    """A change: windows stay, but every layer takes the global rope."""
    rotation, local = decoder.rotation, decoder.is_local

    def plain(length, layer):
        decoder.is_local = lambda layer: False
        result = rotation(length, layer)
        decoder.is_local = local
        return result
    decoder.rotation = plain


def shifted_window(decoder):
    """A change: the window one token longer."""
    decoder.window += 1


def other_pairs(decoder):
    """A change: the rotary pairs of the other convention."""
    decoder.halves = not decoder.halves


LLAMA_KEYS = {"vocab_size": VOCABULARY, "rope.dimension_count": 16}

CASES = [
    dict(name="llama", architecture="llama", seed=1, vocabulary="llama",
         config=LlamaConfig(**COMMON, max_position_embeddings=256, rope_parameters={"rope_type": "default", "rope_theta": 10000.0}),
         keys=LLAMA_KEYS | {"rope.freq_base": 10000.0}, shows="Q/K rows permuted, grouped heads, untied head", without={"pairs": other_pairs}),
    dict(name="llama-mixed", architecture="llama", seed=2, vocabulary="gpt2",
         config=LlamaConfig(**COMMON, max_position_embeddings=256, rope_parameters={"rope_type": "default", "rope_theta": 10000.0}),
         types={"attn_q": "Q4_0", "attn_k": "Q5_1", "attn_v": "Q5_0", "attn_output": "BF16", "ffn_gate": "Q4_1", "ffn_up": "Q8_0",
                "ffn_down": "F16", "token_embd": "Q8_0", "output.": "Q5_0"},
         keys=LLAMA_KEYS, shows="F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1 and Q8_0 tensors; rope.freq_base absent (10000)",
         without={"rope": key("rope.freq_base", 500.0)}),
    dict(name="llama3", architecture="llama", seed=3, vocabulary="gpt2",
         config=LlamaConfig(**COMMON, max_position_embeddings=256, tie_word_embeddings=True, rope_parameters={
             "rope_type": "llama3", "rope_theta": 5000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
             "original_max_position_embeddings": 32}),
         types={"attn": "F16", "ffn": "F16"}, extra=inverse_of_llama3, keys=LLAMA_KEYS | {"rope.freq_base": 5000.0},
         shows="rope_freqs, tied head, F16", without={"rope_freqs": drop("rope_freqs.weight")}),
    dict(name="mistral", architecture="llama", seed=4, vocabulary="llama",
         config=MistralConfig(**COMMON, head_dim=32, sliding_window=8, max_position_embeddings=256,
                              rope_parameters={"rope_type": "default", "rope_theta": 10000.0}),
         types={"attn": "F16", "ffn": "F16"},
         keys=LLAMA_KEYS | {"rope.dimension_count": 32, "rope.freq_base": 10000.0, "attention.key_length": 32, "attention.value_length": 32,
                            "attention.sliding_window": 8},
         shows="sliding window of 8 on every layer, heads wider than hidden / heads", without={"window": never_local, "shift": shifted_window}),
    dict(name="mixtral-stacked", architecture="llama", seed=5, vocabulary="llama", config=MixtralConfig(**EXPERTS),
         keys={"vocab_size": VOCABULARY, "rope.dimension_count": 8, "rope.freq_base": 1e6, "expert_count": 4, "expert_used_count": 2},
         shows="experts in stacked tensors", without={"experts": key("expert_used_count", 1)}),
    dict(name="mixtral-split", architecture="llama", seed=6, vocabulary="llama", config=MixtralConfig(**EXPERTS), split_experts=True,
         types={"ffn_": "Q8_0"},
         keys={"vocab_size": VOCABULARY, "rope.dimension_count": 8, "rope.freq_base": 1e6, "expert_count": 4, "expert_used_count": 2},
         shows="experts in a tensor each, Q8_0", without={"experts": key("expert_used_count", 1)}),
    dict(name="qwen2", architecture="qwen2", seed=7, vocabulary="gpt2",
         config=Qwen2Config(**COMMON, max_position_embeddings=256, rope_parameters={"rope_type": "default", "rope_theta": 1e6}),
         types={"ffn": "F16"}, keys={"rope.freq_base": 1e6}, shows="bias of Q, K and V", without={"bias": drop_matching(".bias"), "pairs": other_pairs}),
    dict(name="qwen3", architecture="qwen3", seed=8, vocabulary="gpt2",
         config=Qwen3Config(**COMMON, head_dim=32, max_position_embeddings=256, tie_word_embeddings=True,
                            rope_parameters={"rope_type": "default", "rope_theta": 1e6}),
         types={"ffn": "F16", "attn": "F16"}, keys={"rope.freq_base": 1e6, "attention.key_length": 32, "attention.value_length": 32},
         shows="norms of Q and K, heads wider than hidden / heads, tied head", without={"norms": drop_matching("attn_q_norm")}),
    dict(name="phi3-longrope", architecture="phi3", seed=9, vocabulary="llama", lengths=[24, 40],
         config=Phi3Config(**COMMON, max_position_embeddings=96, original_max_position_embeddings=24, rope_parameters=LONG_ROPE),
         extra=lambda model: {"rope_factors_long.weight": LONG_ROPE["long_factor"], "rope_factors_short.weight": LONG_ROPE["short_factor"]},
         keys={"rope.scaling.original_context_length": 24, "rope.dimension_count": 16, "rope.freq_base": 10000.0, "attention.sliding_window": 0,
               "rope.scaling.attn_factor": ATTENTION_FACTOR},
         shows="fused QKV and gate-up; longrope: the first sequence just fits the original context (short factors), the second does not (long factors for all its positions)",
         without={"short": key("rope.scaling.original_context_length", 23), "long": key("rope.scaling.original_context_length", 96),
                  "attention factor": key("rope.scaling.attn_factor", 1.0)}),
    dict(name="phi3-window", architecture="phi3", seed=10, vocabulary="llama",
         config=Phi3Config(**COMMON, max_position_embeddings=256, original_max_position_embeddings=256, sliding_window=8,
                           rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}),
         types={"attn": "F16", "ffn": "F16"},
         keys={"rope.scaling.original_context_length": 256, "rope.dimension_count": 8, "rope.freq_base": 10000.0, "attention.sliding_window": 8},
         shows="sliding window of 8, half of each head rotated", without={"window": never_local, "partial": replace(rotary=16)}),
    dict(name="gemma2", architecture="gemma2", seed=11, vocabulary="llama",
         config=Gemma2Config(**SMALL | dict(num_hidden_layers=4), attn_logit_softcapping=2.0, final_logit_softcapping=3.0,
                             rope_parameters={"rope_type": "default", "rope_theta": 10000.0}),
         keys={"attention.key_length": 16, "attention.value_length": 16, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0,
               "attention.sliding_window": 8},
         shows="soft caps, window of 8 on even layers, four norms a layer, scaled embeddings, rope.freq_base absent (10000)",
         without={"window": never_local, "shift": shifted_window, "attention cap": key("attn_logit_softcapping", None),
                  "final cap": key("final_logit_softcapping", None)}),
    dict(name="gemma3", architecture="gemma3", seed=12, vocabulary="llama", config=Gemma3TextConfig(**SMALL | dict(num_hidden_layers=7)),
         keys={"attention.key_length": 16, "attention.value_length": 16, "rope.freq_base": 1e6, "attention.sliding_window": 8},
         shows="window of 8 and rope base 10000 on all but each sixth layer, norms of Q and K",
         without={"window": never_local, "shift": shifted_window, "local rope": always_global_rope}),
    dict(name="gemma3-scaled", architecture="gemma3", seed=13, vocabulary="llama",
         config=Gemma3TextConfig(**SMALL | dict(num_hidden_layers=7), rope_parameters={
             "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
             "sliding_attention": {"rope_type": "default", "rope_theta": 5000.0}}),
         types={"attn": "F16", "ffn": "F16"},
         keys={"attention.key_length": 16, "attention.value_length": 16, "rope.freq_base": 1e6, "rope.freq_base_swa": 5000.0,
               "rope.scaling.type": "linear", "rope.scaling.factor": 8.0, "attention.sliding_window": 8},
         shows="linear rope scaling of 8 on global layers only, rope.freq_base_swa",
         without={"scaling": key("rope.scaling.factor", 1.0), "local base": key("rope.freq_base_swa", 10000.0)}),
]
