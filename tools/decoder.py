"""A plain float decoder over GGUF files, in torch: the reference that assize's goldens are made with.

It reads the metadata and tensors of one GGUF file, dequantises every weight, and computes all logits of a sequence in one pass,
each head's full attention matrix in memory. It is written to be read, not to be fast, and shares nothing with the Rust code.
It knows llama (rope_freqs, experts in both layouts, sliding window), qwen2, qwen3, phi3, gemma2 and gemma3.
"""

import math

import numpy
import torch
from gguf import GGUFReader
from gguf.quants import dequantize

# Architectures whose rotary pairs are (i, i + half); in the others they are (2i, 2i + 1).
HALVES = {"qwen2", "qwen3", "phi3", "gemma2", "gemma3"}
GEMMA = {"gemma2", "gemma3"}


class Decoder:
    """One GGUF model, dequantised."""

    def __init__(self, path, dtype=torch.float32, cache_dtype=None):
        """`cache_dtype`: round keys (after rope) and values to this type, as a cache of that type would."""
        reader = GGUFReader(path)
        self.fields = {name: field.contents() for name, field in reader.fields.items()}
        self.architecture = self.fields["general.architecture"]
        self.halves = self.architecture in HALVES
        self.dtype, self.cache_dtype = dtype, cache_dtype
        self.tensors = {}
        for tensor in reader.tensors:
            values = dequantize(tensor.data, tensor.tensor_type)
            shape = [int(n) for n in reversed(tensor.shape)]
            self.tensors[tensor.name] = torch.from_numpy(numpy.array(values, dtype=numpy.float32)).reshape(shape).to(dtype)
        self.layers = self.key("block_count")
        self.hidden = self.key("embedding_length")
        self.heads = self.key("attention.head_count")
        self.kv_heads = self.key("attention.head_count_kv", self.heads)
        self.head_size = self.key("attention.key_length", self.hidden // self.heads)
        self.rotary = self.key("rope.dimension_count", self.head_size)
        self.epsilon = self.key("attention.layer_norm_rms_epsilon")
        self.window = self.key("attention.sliding_window", 0)
        self.vocabulary = self.tensors["token_embd.weight"].shape[0]

    def key(self, name, default=None):
        """Metadata value of this architecture."""
        return self.fields.get(f"{self.architecture}.{name}", default)

    def linear(self, x, name):
        """`x` `[T, in]` through the named matrix `[out, in]` and its bias, where it has one."""
        y = x @ self.tensors[name + ".weight"].T
        bias = self.tensors.get(name + ".bias")
        return y if bias is None else y + bias

    def norm(self, x, name):
        """Root mean square norm over the last axis. GGUF holds Gemma's weights with their 1 already added."""
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.epsilon) * self.tensors[name + ".weight"]

    def is_local(self, layer):
        """Whether the layer sees only the sliding window."""
        if not self.window:
            return False
        if self.architecture == "gemma2":
            return layer % 2 == 0
        if self.architecture == "gemma3":
            return (layer + 1) % 6 != 0
        return True

    def rotation(self, length, layer):
        """Cosines and sines `[T, rotary / 2]`, with the attention factor of longrope in them."""
        local = self.architecture == "gemma3" and self.is_local(layer)
        base = self.key("rope.freq_base_swa", 10000.0) if local else self.key("rope.freq_base", 10000.0)
        # Frequencies in float64: their float32 roundings differ between libraries, the model's meaning does not.
        frequencies = base ** -(torch.arange(0, self.rotary, 2, dtype=torch.float64) / self.rotary)
        magnitude = 1.0
        if "rope_freqs.weight" in self.tensors:
            frequencies = frequencies / self.tensors["rope_freqs.weight"].double()
        if "rope_factors_long.weight" in self.tensors:
            original = self.key("rope.scaling.original_context_length")
            which = "long" if length > original else "short"
            frequencies = frequencies / self.tensors[f"rope_factors_{which}.weight"].double()
            magnitude = self.key("rope.scaling.attn_factor", 1.0)
        if self.key("rope.scaling.type") == "linear" and not local:
            frequencies = frequencies / self.key("rope.scaling.factor")
        angles = torch.arange(length, dtype=torch.float64)[:, None] * frequencies
        return (angles.cos() * magnitude).to(self.dtype), (angles.sin() * magnitude).to(self.dtype)

    def rotate(self, x, rotation):
        """Rotary embedding of `x` `[T, heads, head_size]`; dimensions past `rotary` stay."""
        cosine, sine = (part[:, None, :] for part in rotation)
        head, rest = x[..., : self.rotary], x[..., self.rotary :]
        if self.halves:
            a, b = head.chunk(2, dim=-1)
            turned = torch.cat([a * cosine - b * sine, b * cosine + a * sine], dim=-1)
        else:
            a, b = head[..., 0::2], head[..., 1::2]
            turned = torch.stack([a * cosine - b * sine, b * cosine + a * sine], dim=-1).flatten(-2)
        return torch.cat([turned, rest], dim=-1)

    def attention(self, x, layer):
        """Attention block of one layer, `[T, hidden]` to `[T, hidden]`."""
        prefix, length = f"blk.{layer}.", x.shape[0]
        if prefix + "attn_qkv.weight" in self.tensors:
            parts = [self.heads * self.head_size, self.kv_heads * self.head_size, self.kv_heads * self.head_size]
            query, key, value = self.linear(x, prefix + "attn_qkv").split(parts, dim=-1)
        else:
            query, key, value = (self.linear(x, prefix + "attn_" + part) for part in "qkv")
        query = query.reshape(length, self.heads, self.head_size)
        key = key.reshape(length, self.kv_heads, self.head_size)
        value = value.reshape(length, self.kv_heads, self.head_size)
        if prefix + "attn_q_norm.weight" in self.tensors:
            query, key = self.norm(query, prefix + "attn_q_norm"), self.norm(key, prefix + "attn_k_norm")
        rotation = self.rotation(length, layer)
        query, key = self.rotate(query, rotation), self.rotate(key, rotation)
        if self.cache_dtype:
            key, value = key.to(self.cache_dtype).to(self.dtype), value.to(self.cache_dtype).to(self.dtype)
        group = self.heads // self.kv_heads
        query = query.transpose(0, 1)                                    # [heads, T, head_size]
        key = key.transpose(0, 1).repeat_interleave(group, 0)            # [heads, T, head_size]
        value = value.transpose(0, 1).repeat_interleave(group, 0)
        scores = query @ key.transpose(1, 2) / math.sqrt(self.head_size)  # [heads, T, T]
        cap = self.key("attn_logit_softcapping")
        if cap:
            scores = torch.tanh(scores / cap) * cap
        distance = torch.arange(length)[:, None] - torch.arange(length)[None, :]
        hidden = distance < 0
        if self.is_local(layer):
            hidden |= distance >= self.window
        weights = scores.masked_fill(hidden, -math.inf).softmax(-1)
        mixed = (weights @ value).transpose(0, 1).reshape(length, -1)
        return self.linear(mixed, prefix + "attn_output")

    def activate(self, x):
        """The gate's activation."""
        return torch.nn.functional.gelu(x, approximate="tanh") if self.architecture in GEMMA else torch.nn.functional.silu(x)

    def feed_forward(self, x, layer):
        """Feed-forward block of one layer, dense or of experts, `[T, hidden]` to `[T, hidden]`."""
        prefix = f"blk.{layer}."
        if prefix + "ffn_gate_inp.weight" in self.tensors:
            return self.experts(x, prefix)
        if prefix + "ffn_gate.weight" in self.tensors:
            gate, up = self.linear(x, prefix + "ffn_gate"), self.linear(x, prefix + "ffn_up")
        else:
            gate, up = self.linear(x, prefix + "ffn_up").chunk(2, dim=-1)
        return self.linear(self.activate(gate) * up, prefix + "ffn_down")

    def experts(self, x, prefix):
        """Mixture of experts: softmax over all, the best few, renormalised."""
        count, used = self.key("expert_count"), self.key("expert_used_count")
        best, chosen = self.linear(x, prefix + "ffn_gate_inp").softmax(-1).topk(used, dim=-1)
        best = best / best.sum(-1, keepdim=True)
        result = torch.zeros_like(x)
        for expert in range(count):
            matrices = []
            for part in ("gate", "up", "down"):
                stacked = self.tensors.get(f"{prefix}ffn_{part}_exps.weight")
                matrices.append(self.tensors[f"{prefix}ffn_{part}.{expert}.weight"] if stacked is None else stacked[expert])
            gate, up, down = matrices
            share = (best * (chosen == expert)).sum(-1, keepdim=True)    # [T, 1], 0 where not chosen
            result = result + share * ((self.activate(x @ gate.T) * (x @ up.T)) @ down.T)
        return result

    @torch.no_grad()
    def hidden_states(self, tokens):
        """Final normed hidden states `[T, hidden]` of a sequence that starts at position 0."""
        x = self.tensors["token_embd.weight"][torch.tensor(tokens)]
        gemma = self.architecture in GEMMA
        if gemma:
            x = x * math.sqrt(self.hidden)
        for layer in range(self.layers):
            prefix = f"blk.{layer}."
            y = self.attention(self.norm(x, prefix + "attn_norm"), layer)
            x = x + (self.norm(y, prefix + "post_attention_norm") if gemma else y)
            y = self.feed_forward(self.norm(x, prefix + "ffn_norm"), layer)
            x = x + (self.norm(y, prefix + "post_ffw_norm") if gemma else y)
        return self.norm(x, "output_norm")

    @torch.no_grad()
    def logits(self, tokens):
        """All logits `[T, vocabulary]` of a sequence that starts at position 0."""
        head = "output" if "output.weight" in self.tensors else "token_embd"
        y = self.linear(self.hidden_states(tokens), head)
        cap = self.key("final_logit_softcapping")
        return torch.tanh(y / cap) * cap if cap else y
