//! The options of the engine, which every command that runs a model shares.

use super::layouts::LayoutCache;
use crate::model::cache::KvType;
use crate::model::placement::Plan;
use crate::run::JudgeSettings;
use crate::run::devices::Choice;

/// Options of the engine. No verdict depends on them but for --exact, --kv-type, and --context with a model that has two sets
/// of rotation factors (Phi 3).
#[derive(Clone, Debug, clap::Args)]
pub struct EngineArguments {
    /// Most items in a batch.
    #[arg(long, default_value_t = 16, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub max_batch: u32,
    /// Most prompt tokens of one item in a step.
    #[arg(long, default_value_t = 512, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub prefill_chunk: u32,
    /// Compute every prompt from its first token.
    #[arg(long)]
    pub no_prefix_cache: bool,
    /// Keep activations in 32 bits: slower, and exact.
    #[arg(long)]
    pub exact: bool,
    /// How keys and values are kept; by default f16, and in 32 bits with --exact.
    #[arg(long, value_enum, value_name = "TYPE", conflicts_with = "exact")]
    pub kv_type: Option<KvTypeArgument>,
    /// Memory for the KV cache in MiB; by default half of what is free beside the weights.
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..))]
    pub cache_memory: Option<u64>,
    /// Longest prompt and answer in tokens; by default the model's context (for Phi 3, 4096).
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(1..))]
    pub context: Option<u32>,
    /// What computes: auto, cpu, cuda, cuda:N, cuda:N,M (a replica on each card) or metal. With auto, the best that is really there.
    #[arg(long, default_value = "auto", value_name = "DEVICE")]
    pub device: Choice,
    /// How weights lie on a device; by default dense where they fit and batches are large.
    #[arg(long, value_enum, default_value_t = PlanArgument::Auto, value_name = "PLAN")]
    pub plan: PlanArgument,
    /// Whether packed weights are kept on disk, so that the next start is faster; by default ASSIZE_LAYOUT_CACHE, else auto.
    #[arg(long, value_enum, value_name = "WHEN")]
    pub layout_cache: Option<LayoutCache>,
    /// Tell at the end where the time went.
    #[arg(long)]
    pub profile: bool,
}

impl EngineArguments {
    /// The settings that were given, for answers that will be held to `grammars` or not.
    pub fn settings(&self, grammars: bool) -> JudgeSettings {
        JudgeSettings {
            exact: self.exact,
            kv_type: self.kv_type.map(|kind| match kind {
                KvTypeArgument::F16 => KvType::F16,
                KvTypeArgument::Q8v => KvType::Q8Values,
                KvTypeArgument::Q8 => KvType::Q8,
            }),
            max_batch: self.max_batch as usize,
            prefill_chunk: self.prefill_chunk as usize,
            prefix_cache: !self.no_prefix_cache,
            cache_bytes: self
                .cache_memory
                .map(|mebibytes| mebibytes.saturating_mul(1 << 20)),
            plan: match self.plan {
                PlanArgument::Auto => None,
                PlanArgument::Quantized => Some(Plan::Quantized),
                PlanArgument::Dense => Some(Plan::Dense),
                PlanArgument::Half => Some(Plan::Half),
            },
            context: self.context.map(|tokens| tokens as usize),
            grammars,
        }
    }
}

/// `--plan`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum PlanArgument {
    /// By memory and batch size.
    Auto,
    /// As in the file: the least memory, and the fastest for few sequences.
    Quantized,
    /// In bf16: the fastest for many rows.
    Dense,
    /// In f16: as fast, and eight times finer, for models whose activations stay within 65,504; a verdict beyond that fails.
    Half,
}

/// `--kv-type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum KvTypeArgument {
    /// In half precision.
    F16,
    /// Values in 8 bits, keys in half precision: 1.3 times as many tokens in the same memory, and hardly a loss.
    Q8v,
    /// Both in 8 bits: 1.9 times as many tokens. Qwen 2.5 has keys that lose by it: divergence 1.4e-3 nats for 3.1e-4 (1.5B).
    Q8,
}
