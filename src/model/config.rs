//! What a decoder is made of, as values: sizes, and which of the families' variations it has.
//!
//! Read from GGUF metadata, which are untrusted: every number is checked for range, so that the rest of the model may
//! divide and multiply. Knows no tensor.

use super::ModelError;
use super::keys::Keys;
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

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::weights::{Array, Kind, Value};

    /// Metadata of a small model of the architecture.
    pub(in super::super) fn metadata(architecture: &str) -> Metadata {
        let mut metadata = Metadata::default();
        metadata.insert("general.architecture", Value::String(architecture.into()));
        let numbers = [
            ("block_count", 6),
            ("embedding_length", 64),
            ("attention.head_count", 4),
            ("attention.head_count_kv", 2),
            ("context_length", 512),
            ("feed_forward_length", 96),
            ("vocab_size", 100),
            ("attention.sliding_window", 8),
        ];
        for (key, value) in numbers {
            metadata.insert(format!("{architecture}.{key}"), Value::Unsigned(value));
        }
        let epsilon = format!("{architecture}.attention.layer_norm_rms_epsilon");
        metadata.insert(epsilon, Value::Float(1e-5));
        metadata
    }

    pub(in super::super) fn numbers(values: &[u32]) -> Value {
        let bytes = values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        Value::Array(Array::Numbers {
            kind: Kind::U32,
            bytes,
        })
    }

    #[test]
    fn families_differ_in_values() {
        let check = |architecture: &str, expected: fn(&Config) -> bool| {
            let config = Config::from_metadata(&metadata(architecture)).unwrap();
            assert!(expected(&config), "{config:?}");
        };
        check("llama", |c| {
            c.rope_style == RopeStyle::Normal && c.windows == [Some(8); 6] && c.head_dim == 16
        });
        check("qwen2", |c| {
            c.rope_style == RopeStyle::Neox && c.biases && !c.head_norms && c.context == 512
        });
        check("qwen3", |c| {
            c.head_norms && !c.biases && c.attention_scale == 0.25 && c.kv_heads == 2
        });
        check("phi3", |c| {
            c.fused && c.embedding_scale.is_none() && c.attention_cap.is_none()
        });
        check("gemma2", |c| {
            let windows = [Some(8), None, Some(8), None, Some(8), None];
            let caps = (c.attention_cap, c.logit_cap) == (Some(50.0), Some(30.0));
            c.windows == windows && caps && c.post_norms && c.embedding_scale == Some(8.0)
        });
        check("gemma3", |c| {
            let windows = [Some(8), Some(8), Some(8), Some(8), Some(8), None];
            let local = c
                .local_rope
                .as_ref()
                .is_some_and(|rope| rope.base == 10_000.0);
            c.windows == windows && local && c.head_norms && c.attention_cap.is_none()
        });
    }

    #[test]
    fn keys_change_values() {
        let check = |architecture: &str, key: &str, value: Value, expected: fn(&Config) -> bool| {
            let mut metadata = metadata(architecture);
            metadata.insert(format!("{architecture}.{key}"), value);
            let config = Config::from_metadata(&metadata).unwrap();
            assert!(expected(&config), "{key}: {config:?}");
        };
        let number = Value::Unsigned;
        check("llama", "attention.key_length", number(32), |c| {
            c.head_dim == 32 && c.rope.dims == 32
        });
        check("llama", "attention.head_count", numbers(&[2; 6]), |c| {
            c.heads == 2
        });
        check("llama", "attention.sliding_window", number(0), |c| {
            c.windows == [None; 6]
        });
        check(
            "gemma3",
            "attention.sliding_window_pattern",
            number(3),
            |c| c.windows == [Some(8), Some(8), None, Some(8), Some(8), None],
        );
        check(
            "gemma3",
            "attention.sliding_window_pattern",
            numbers(&[1, 0, 1, 0, 0, 0]),
            |c| c.windows == [Some(8), None, Some(8), None, None, None],
        );
        check("gemma2", "block_count", number(46), |c| {
            c.attention_scale == 0.25
        });
        check("phi3", "rope.dimension_count", number(8), |c| {
            c.rope.dims == 8 && c.head_dim == 16
        });
        check("qwen2", "rope.scaling.factor", Value::Float(4.0), |c| {
            c.rope.scaling == Scaling::Linear { factor: 4.0 }
        });
        check("gemma3", "rope.scaling.factor", Value::Float(8.0), |c| {
            c.local_rope
                .as_ref()
                .is_some_and(|rope| rope.scaling == Scaling::None)
        });
    }
}
