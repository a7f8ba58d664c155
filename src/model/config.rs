//! What a decoder is made of, as values: sizes, and which of the families' variations it has.
//!
//! Read from GGUF metadata, which are untrusted: every number is checked for range here, so that the rest of the model
//! may divide and multiply. Knows no tensor.

use super::ModelError;
use crate::weights::Metadata;
use assize_kernels::{Activation, RopeStyle};

/// The architectures that the decoder has values for.
pub const SUPPORTED: &str = "llama, qwen2, qwen3, phi3, gemma2, gemma3";

/// A decoder.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// What `general.architecture` says.
    pub architecture: String,
    /// Number of token ids.
    pub vocabulary: usize,
    /// Longest sequence that the model was made for, in tokens.
    pub context: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Width inside the MLP, of one expert where there are several.
    pub feed_forward: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; divides `heads`.
    pub kv_heads: usize,
    /// Width of a head, even.
    pub head_dim: usize,
    /// One entry a layer: the sliding window in tokens, the row itself included, or `None` for full attention.
    pub windows: Vec<Option<usize>>,
    /// Rotation of the layers with full attention, and of the others where `local_rope` is `None`.
    pub rope: Rope,
    /// Rotation of the layers with a sliding window (Gemma 3).
    pub local_rope: Option<Rope>,
    /// Pairing of the rotated values.
    pub rope_style: RopeStyle,
    /// Factor of the attention scores.
    pub attention_scale: f32,
    /// Soft cap of the attention scores (Gemma 2).
    pub attention_cap: Option<f32>,
    /// Soft cap of the logits (Gemma 2).
    pub logit_cap: Option<f32>,
    /// Factor of the embeddings (Gemma).
    pub embedding_scale: Option<f32>,
    /// Added to the mean square inside a norm.
    pub norm_epsilon: f32,
    /// Whether queries and keys are normed head by head before rotation (Qwen 3, Gemma 3).
    pub head_norms: bool,
    /// Whether the outputs of attention and MLP are normed before they are added (Gemma).
    pub post_norms: bool,
    /// Whether query, key and value projections must have biases (Qwen 2). Others have them where the file does.
    pub biases: bool,
    /// Whether Q, K, V lie in one tensor, and gate and up in another (Phi 3).
    pub fused: bool,
    /// The MLP's activation.
    pub activation: Activation,
    /// Mixture of experts.
    pub experts: Option<Experts>,
}

/// A rotation of queries and keys by position.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// Values of a head that are rotated; even, at most the head's width.
    pub dims: usize,
    /// The base whose powers are the wavelengths.
    pub base: f64,
    /// How the wavelengths are stretched.
    pub scaling: Scaling,
    /// The context of the first training, before it was extended, in tokens.
    pub original_context: usize,
    /// Factor of cosine and sine that the file states, if it does.
    pub attention_factor: Option<f64>,
}

/// How the wavelengths of a [`Rope`] are stretched. Factors per dimension (Llama 3, Phi 3) are tensors, not metadata.
#[derive(Clone, Debug, PartialEq)]
pub enum Scaling {
    /// Not at all.
    None,
    /// All alike.
    Linear {
        /// By how much.
        factor: f64,
    },
    /// The long ones by `factor`, the short ones not at all, and a ramp between.
    Yarn {
        /// By how much.
        factor: f64,
        /// Dimensions that turn more often than this in the original context stay as they are.
        fast: f64,
        /// Dimensions that turn less often than this are stretched in full.
        slow: f64,
    },
}

/// A mixture of experts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Experts {
    /// Experts in a layer.
    pub count: usize,
    /// Experts that serve a row.
    pub used: usize,
}

/// The variations of a family that its metadata do not state.
struct Family {
    style: RopeStyle,
    activation: Activation,
    biases: bool,
    head_norms: bool,
    fused: bool,
    gemma: bool,
}

impl Family {
    fn of(architecture: &str) -> Option<Family> {
        let plain = Family {
            style: RopeStyle::Neox,
            activation: Activation::Silu,
            biases: false,
            head_norms: false,
            fused: false,
            gemma: false,
        };
        Some(match architecture {
            // Llama files have their query and key rows permuted for neighbouring pairs; all others rotate halves.
            "llama" => Family {
                style: RopeStyle::Normal,
                ..plain
            },
            "qwen2" => Family {
                biases: true,
                ..plain
            },
            "qwen3" => Family {
                head_norms: true,
                ..plain
            },
            "phi3" => Family {
                fused: true,
                ..plain
            },
            "gemma2" => Family {
                gemma: true,
                activation: Activation::GeluTanh,
                ..plain
            },
            "gemma3" => Family {
                gemma: true,
                activation: Activation::GeluTanh,
                head_norms: true,
                ..plain
            },
            _ => return None,
        })
    }
}

impl Config {
    /// Reads and checks the metadata of a model file.
    ///
    /// # Errors
    /// [`ModelError::Architecture`] names a family that is not supported; [`ModelError::Key`] and [`ModelError::Value`]
    /// name the key at fault.
    pub fn from_metadata(metadata: &Metadata) -> Result<Config, ModelError> {
        let architecture =
            metadata
                .string("general.architecture")
                .ok_or_else(|| ModelError::Key {
                    key: "general.architecture".into(),
                })?;
        let family = Family::of(architecture).ok_or_else(|| ModelError::Architecture {
            name: architecture.chars().take(64).collect(),
            supported: SUPPORTED.into(),
        })?;
        let keys = Keys {
            metadata,
            architecture,
        };

        let layers = keys.size("block_count", 1 << 10)?;
        let hidden = keys.size("embedding_length", 1 << 17)?;
        let heads = keys.size_of_layers("attention.head_count", 1 << 12)?;
        let kv_heads = match keys.present("attention.head_count_kv") {
            true => keys.size_of_layers("attention.head_count_kv", 1 << 12)?,
            false => heads,
        };
        if heads % kv_heads != 0 {
            return Err(keys.wrong(
                "attention.head_count_kv",
                format!("{kv_heads} doesn't divide {heads} heads"),
            ));
        }
        let head_dim = match keys.optional_size("attention.key_length", 1 << 12)? {
            Some(dim) => dim,
            None if hidden % heads == 0 => hidden / heads,
            None => {
                return Err(keys.wrong(
                    "attention.head_count",
                    format!("{heads} doesn't divide {hidden}"),
                ));
            }
        };
        if head_dim % 2 != 0 {
            return Err(keys.wrong("attention.key_length", format!("{head_dim} is odd")));
        }
        if let Some(value) = keys.optional_size("attention.value_length", 1 << 12)?
            && value != head_dim
        {
            return Err(keys.wrong(
                "attention.value_length",
                format!("{value} differs from the keys' {head_dim}"),
            ));
        }
        let context = keys.size("context_length", 1 << 24)?;
        let rope = keys.rope(head_dim, context)?;
        let windows = keys.windows(layers)?;

        Ok(Config {
            architecture: architecture.to_owned(),
            vocabulary: keys.vocabulary()?,
            context,
            hidden,
            feed_forward: keys.feed_forward()?,
            heads,
            kv_heads,
            head_dim,
            local_rope: keys.local_rope(&rope)?,
            windows,
            rope,
            rope_style: family.style,
            attention_scale: keys.attention_scale(layers, hidden, heads, head_dim)?,
            attention_cap: keys.cap("attn_logit_softcapping", 50.0)?,
            logit_cap: keys.cap("final_logit_softcapping", 30.0)?,
            embedding_scale: family.gemma.then(|| (hidden as f64).sqrt() as f32),
            norm_epsilon: keys.float("attention.layer_norm_rms_epsilon", 0.0, 1.0)? as f32,
            head_norms: family.head_norms,
            post_norms: family.gemma,
            biases: family.biases,
            fused: family.fused,
            activation: family.activation,
            experts: keys.experts()?,
        })
    }

    /// Number of layers.
    pub fn layers(&self) -> usize {
        self.windows.len()
    }

    /// One line for people: family and sizes.
    pub fn describe(&self) -> String {
        let experts = match &self.experts {
            Some(experts) => format!(", {} of {} experts", experts.used, experts.count),
            None => String::new(),
        };
        format!(
            "{}, {} layers of {}, {} heads ({} for keys and values) of {}, MLP of {}{experts}, vocabulary {}, context {}",
            self.architecture,
            self.layers(),
            self.hidden,
            self.heads,
            self.kv_heads,
            self.head_dim,
            self.feed_forward,
            self.vocabulary,
            self.context,
        )
    }
}

/// Reads `<architecture>.<key>` and checks ranges.
struct Keys<'a> {
    metadata: &'a Metadata,
    architecture: &'a str,
}

impl Keys<'_> {
    fn name(&self, key: &str) -> String {
        format!("{}.{key}", self.architecture)
    }

    fn wrong(&self, key: &str, reason: String) -> ModelError {
        ModelError::Value {
            key: self.name(key),
            reason,
        }
    }

    /// Whether the key is there, as a number or a list of numbers.
    fn present(&self, key: &str) -> bool {
        let name = self.name(key);
        self.metadata.integer(&name).is_some() || self.metadata.integers(&name).is_some()
    }

    fn bounded(&self, key: &str, value: u64, most: usize) -> Result<usize, ModelError> {
        match usize::try_from(value) {
            Ok(size) if (1..=most).contains(&size) => Ok(size),
            _ => Err(self.wrong(key, format!("{value} is not in 1..={most}"))),
        }
    }

    fn optional_size(&self, key: &str, most: usize) -> Result<Option<usize>, ModelError> {
        self.metadata
            .integer(&self.name(key))
            .map(|value| self.bounded(key, value, most))
            .transpose()
    }

    fn size(&self, key: &str, most: usize) -> Result<usize, ModelError> {
        self.optional_size(key, most)?
            .ok_or_else(|| ModelError::Key {
                key: self.name(key),
            })
    }

    /// A size that some files state once a layer. All must agree: the cache and the decoder know one size.
    fn size_of_layers(&self, key: &str, most: usize) -> Result<usize, ModelError> {
        let Some(values) = self.metadata.integers(&self.name(key)) else {
            return self.size(key, most);
        };
        match values.split_first() {
            Some((first, rest)) if rest.iter().all(|value| value == first) => {
                self.bounded(key, u64::try_from(*first).unwrap_or(0), most)
            }
            Some(_) => Err(self.wrong(
                key,
                "differs from layer to layer, which is not supported".into(),
            )),
            None => Err(self.wrong(key, "is empty".into())),
        }
    }

    /// A number of tokens that means "none" when zero.
    fn optional_tokens(&self, key: &str) -> Result<Option<usize>, ModelError> {
        match self.metadata.integer(&self.name(key)) {
            None | Some(0) => Ok(None),
            Some(value) => self.bounded(key, value, 1 << 32).map(Some),
        }
    }

    /// A finite float above `least` and at most `most`.
    fn optional_float(&self, key: &str, least: f64, most: f64) -> Result<Option<f64>, ModelError> {
        match self.metadata.float(&self.name(key)) {
            None => Ok(None),
            Some(value) if value > least && value <= most => Ok(Some(value)),
            Some(value) => Err(self.wrong(
                key,
                format!("{value} is not above {least} and at most {most}"),
            )),
        }
    }

    fn float(&self, key: &str, least: f64, most: f64) -> Result<f64, ModelError> {
        self.optional_float(key, least, most)?
            .ok_or_else(|| ModelError::Key {
                key: self.name(key),
            })
    }

    /// The tokenizer's list counts where there is one: the tensors must have as many rows, and the list names them.
    fn vocabulary(&self) -> Result<usize, ModelError> {
        match self.metadata.strings("tokenizer.ggml.tokens") {
            Some(tokens) if !tokens.is_empty() && tokens.len() <= 1 << 24 => Ok(tokens.len()),
            Some(tokens) => Err(ModelError::Value {
                key: "tokenizer.ggml.tokens".into(),
                reason: format!("has {} tokens", tokens.len()),
            }),
            None => self.size("vocab_size", 1 << 24),
        }
    }

    fn feed_forward(&self) -> Result<usize, ModelError> {
        let most = 1 << 20;
        match self.optional_size("expert_feed_forward_length", most)? {
            Some(size) => Ok(size),
            None => self.size_of_layers("feed_forward_length", most),
        }
    }

    fn experts(&self) -> Result<Option<Experts>, ModelError> {
        let count = match self.metadata.integer(&self.name("expert_count")) {
            None | Some(0) => return Ok(None),
            Some(count) => self.bounded("expert_count", count, 1 << 10)?,
        };
        if self.architecture != "llama" {
            return Err(self.wrong(
                "expert_count",
                "experts are supported in llama (Mixtral) files alone".into(),
            ));
        }
        Ok(Some(Experts {
            count,
            used: self.size("expert_used_count", count)?,
        }))
    }

    fn rope(&self, head_dim: usize, context: usize) -> Result<Rope, ModelError> {
        let dims = self
            .optional_size("rope.dimension_count", head_dim)?
            .unwrap_or(head_dim);
        if dims % 2 != 0 {
            return Err(self.wrong("rope.dimension_count", format!("{dims} is odd")));
        }
        let factor = self.optional_float("rope.scaling.factor", 0.0, 1e6)?;
        let factor = factor.or(self.optional_float("rope.scale_linear", 0.0, 1e6)?);
        let key = "rope.scaling.type";
        let needed = || {
            factor.ok_or_else(|| ModelError::Key {
                key: self.name("rope.scaling.factor"),
            })
        };
        let scaling = match self.metadata.string(&self.name(key)) {
            // A file that states a factor and no type means the linear one.
            None => factor.map_or(Scaling::None, |factor| Scaling::Linear { factor }),
            // The factors themselves are tensors, and are read with them.
            Some("none" | "longrope") => Scaling::None,
            Some("linear") => Scaling::Linear { factor: needed()? },
            Some("yarn") => Scaling::Yarn {
                factor: needed()?,
                fast: self
                    .optional_float("rope.scaling.yarn_beta_fast", 0.0, 1e6)?
                    .unwrap_or(32.0),
                slow: self
                    .optional_float("rope.scaling.yarn_beta_slow", 0.0, 1e6)?
                    .unwrap_or(1.0),
            },
            Some(other) => {
                let other: String = other.chars().take(64).collect();
                return Err(self.wrong(key, format!("rope scaling {other:?} is not supported")));
            }
        };
        Ok(Rope {
            dims,
            base: self
                .optional_float("rope.freq_base", 0.0, 1e12)?
                .unwrap_or(10_000.0),
            scaling,
            original_context: self
                .optional_size("rope.scaling.original_context_length", 1 << 24)?
                .unwrap_or(context),
            attention_factor: self.optional_float("rope.scaling.attn_factor", 0.0, 1e3)?,
        })
    }

    /// Gemma 3 turns its sliding layers by another base, and never stretches them.
    fn local_rope(&self, rope: &Rope) -> Result<Option<Rope>, ModelError> {
        if self.architecture != "gemma3" {
            return Ok(None);
        }
        let base = self
            .optional_float("rope.freq_base_swa", 0.0, 1e12)?
            .unwrap_or(10_000.0);
        Ok(Some(Rope {
            base,
            scaling: Scaling::None,
            attention_factor: None,
            ..rope.clone()
        }))
    }

    /// The window of each layer. Gemma 2 has full attention in every second layer and Gemma 3 in every sixth.
    fn windows(&self, layers: usize) -> Result<Vec<Option<usize>>, ModelError> {
        let key = "attention.sliding_window";
        let pattern_key = "attention.sliding_window_pattern";
        let (window, period) = match self.architecture {
            // The first Gemma 2 files don't state the window; all models of that family have this one.
            "gemma2" => (Some(self.optional_tokens(key)?.unwrap_or(4096)), Some(2)),
            "gemma3" => (Some(self.size(key, 1 << 32)?), Some(6)),
            _ => (self.optional_tokens(key)?, None),
        };
        if let Some(sliding) = self.metadata.integers(&self.name(pattern_key)) {
            if sliding.len() != layers {
                return Err(self.wrong(
                    pattern_key,
                    format!("has {} entries for {layers} layers", sliding.len()),
                ));
            }
            return Ok(sliding
                .iter()
                .map(|slides| window.filter(|_| *slides != 0))
                .collect());
        }
        let period = self.optional_size(pattern_key, 1 << 10)?.or(period);
        let full = |layer: usize| period.is_some_and(|period| (layer + 1) % period == 0);
        Ok((0..layers)
            .map(|layer| window.filter(|_| !full(layer)))
            .collect())
    }

    /// The inverse root of the head's width, except in the two 27B Gemmas, which took the query width per head as it
    /// would be without a key length of its own. Files don't state this; the number of layers tells those two.
    fn attention_scale(
        &self,
        layers: usize,
        hidden: usize,
        heads: usize,
        head_dim: usize,
    ) -> Result<f32, ModelError> {
        if let Some(scale) = self.optional_float("attention.scale", 0.0, 1e3)? {
            return Ok(scale as f32);
        }
        let width = match (self.architecture, layers) {
            ("gemma2", 46) | ("gemma3", 62) => hidden as f64 / heads as f64,
            _ => head_dim as f64,
        };
        Ok((1.0 / width.sqrt()) as f32)
    }

    /// A soft cap: of Gemma 2 always, of others where the file states one.
    fn cap(&self, key: &str, gemma2: f64) -> Result<Option<f32>, ModelError> {
        let stated = self.optional_float(key, 0.0, 1e6)?;
        Ok(stated
            .or((self.architecture == "gemma2").then_some(gemma2))
            .map(|cap| cap as f32))
    }
}
