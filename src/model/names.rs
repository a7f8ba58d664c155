//! Names of the tensors in a GGUF file. Knows no shape and no value.

/// Token embeddings, `[vocabulary, hidden]`.
pub(super) const EMBEDDING: &str = "token_embd.weight";
/// The last norm, `[hidden]`.
pub(super) const OUTPUT_NORM: &str = "output_norm.weight";
/// The output head, `[vocabulary, hidden]`; absent where it is the embedding.
pub(super) const OUTPUT: &str = "output.weight";
/// Divisors of the rotation's frequencies, `[rotated / 2]` (Llama 3).
pub(super) const ROPE_FACTORS: &str = "rope_freqs.weight";
/// The same within the original context (Phi 3).
pub(super) const ROPE_FACTORS_SHORT: &str = "rope_factors_short.weight";
/// The same beyond it.
pub(super) const ROPE_FACTORS_LONG: &str = "rope_factors_long.weight";

/// Norm before attention, `[hidden]`.
pub(super) const ATTENTION_NORM: &str = "attn_norm.weight";
/// Queries, `[heads · head_dim, hidden]`; `.bias` beside it.
pub(super) const QUERY: &str = "attn_q";
/// Keys, `[kv_heads · head_dim, hidden]`.
pub(super) const KEY: &str = "attn_k";
/// Values, `[kv_heads · head_dim, hidden]`.
pub(super) const VALUE: &str = "attn_v";
/// The three above, one below the other.
pub(super) const QUERY_KEY_VALUE: &str = "attn_qkv";
/// What joins the heads, `[hidden, heads · head_dim]`.
pub(super) const ATTENTION_OUTPUT: &str = "attn_output";
/// Norm of a query head, `[head_dim]`.
pub(super) const QUERY_NORM: &str = "attn_q_norm.weight";
/// Norm of a key head, `[head_dim]`.
pub(super) const KEY_NORM: &str = "attn_k_norm.weight";
/// Norm of what attention adds, `[hidden]`.
pub(super) const ATTENTION_POST_NORM: &str = "post_attention_norm.weight";
/// Norm before the MLP, `[hidden]`.
pub(super) const MLP_NORM: &str = "ffn_norm.weight";
/// Norm of what the MLP adds, `[hidden]`.
pub(super) const MLP_POST_NORM: &str = "post_ffw_norm.weight";
/// The gate, `[feed_forward, hidden]`.
pub(super) const GATE: &str = "ffn_gate";
/// The way up, `[feed_forward, hidden]`; in Phi 3 the gate lies above it in the same tensor.
pub(super) const UP: &str = "ffn_up";
/// The way down, `[hidden, feed_forward]`.
pub(super) const DOWN: &str = "ffn_down";
/// The router, `[experts, hidden]`.
pub(super) const ROUTER: &str = "ffn_gate_inp.weight";

/// The name of a layer's tensor.
pub(super) fn layer(layer: usize, part: &str) -> String {
    format!("blk.{layer}.{part}")
}

/// All experts of a layer in one tensor, `[experts, out, in]`.
pub(super) fn stacked(layer: usize, part: &str) -> String {
    format!("blk.{layer}.{part}_exps.weight")
}

/// One expert in a tensor of its own, `[out, in]`.
pub(super) fn expert(layer: usize, part: &str, expert: usize) -> String {
    format!("blk.{layer}.{part}.{expert}.weight")
}
