//! Reads the metadata keys of an architecture, one noun each, and checks their ranges. Knows which keys the families
//! have, and no tensor.

use super::ModelError;
use super::config::{Experts, Rope, Scaling};
use crate::weights::Metadata;

/// Reads `<architecture>.<key>` and checks ranges.
pub(super) struct Keys<'a> {
    pub(super) metadata: &'a Metadata,
    pub(super) architecture: &'a str,
}

impl Keys<'_> {
    pub(super) fn name(&self, key: &str) -> String {
        format!("{}.{key}", self.architecture)
    }

    pub(super) fn wrong(&self, key: &str, reason: String) -> ModelError {
        ModelError::Value {
            key: self.name(key),
            reason,
        }
    }

    /// Whether the key is there, as a number or a list of numbers.
    pub(super) fn present(&self, key: &str) -> bool {
        let name = self.name(key);
        self.metadata.integer(&name).is_some() || self.metadata.integers(&name).is_some()
    }

    pub(super) fn bounded(&self, key: &str, value: u64, most: usize) -> Result<usize, ModelError> {
        match usize::try_from(value) {
            Ok(size) if (1..=most).contains(&size) => Ok(size),
            _ => Err(self.wrong(key, format!("{value} is not in 1..={most}"))),
        }
    }

    pub(super) fn optional_size(
        &self,
        key: &str,
        most: usize,
    ) -> Result<Option<usize>, ModelError> {
        self.metadata
            .integer(&self.name(key))
            .map(|value| self.bounded(key, value, most))
            .transpose()
    }

    pub(super) fn size(&self, key: &str, most: usize) -> Result<usize, ModelError> {
        self.optional_size(key, most)?
            .ok_or_else(|| ModelError::Key {
                key: self.name(key),
            })
    }

    /// A size that some files state once a layer. All must agree: the cache and the decoder know one size.
    pub(super) fn size_of_layers(&self, key: &str, most: usize) -> Result<usize, ModelError> {
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
    pub(super) fn optional_tokens(&self, key: &str) -> Result<Option<usize>, ModelError> {
        match self.metadata.integer(&self.name(key)) {
            None | Some(0) => Ok(None),
            Some(value) => self.bounded(key, value, 1 << 32).map(Some),
        }
    }

    /// A finite float above `least` and at most `most`.
    pub(super) fn optional_float(
        &self,
        key: &str,
        least: f64,
        most: f64,
    ) -> Result<Option<f64>, ModelError> {
        match self.metadata.float(&self.name(key)) {
            None => Ok(None),
            Some(value) if value > least && value <= most => Ok(Some(value)),
            Some(value) => Err(self.wrong(
                key,
                format!("{value} is not above {least} and at most {most}"),
            )),
        }
    }

    pub(super) fn float(&self, key: &str, least: f64, most: f64) -> Result<f64, ModelError> {
        self.optional_float(key, least, most)?
            .ok_or_else(|| ModelError::Key {
                key: self.name(key),
            })
    }

    /// The tokenizer's list counts where there is one: the tensors must have as many rows, and the list names them.
    pub(super) fn vocabulary(&self) -> Result<usize, ModelError> {
        match self.metadata.strings("tokenizer.ggml.tokens") {
            Some(tokens) if !tokens.is_empty() && tokens.len() <= 1 << 24 => Ok(tokens.len()),
            Some(tokens) => Err(ModelError::Value {
                key: "tokenizer.ggml.tokens".into(),
                reason: format!("has {} tokens", tokens.len()),
            }),
            None => self.size("vocab_size", 1 << 24),
        }
    }

    pub(super) fn feed_forward(&self) -> Result<usize, ModelError> {
        let most = 1 << 20;
        match self.optional_size("expert_feed_forward_length", most)? {
            Some(size) => Ok(size),
            None => self.size_of_layers("feed_forward_length", most),
        }
    }

    pub(super) fn experts(&self) -> Result<Option<Experts>, ModelError> {
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

    pub(super) fn rope(&self, head_dim: usize, context: usize) -> Result<Rope, ModelError> {
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
            Some("yarn") => self.yarn(needed()?)?,
            Some(other) => {
                let other: String = other.chars().take(64).collect();
                return Err(self.wrong(key, format!("rope scaling {other:?} is not supported")));
            }
        };
        Ok(Rope {
            dims,
            base: self
                .optional_float("rope.freq_base", 1.0, 1e12)?
                .unwrap_or(10_000.0),
            scaling,
            original_context: self
                .optional_size("rope.scaling.original_context_length", 1 << 24)?
                .unwrap_or(context),
            attention_factor: self.optional_float("rope.scaling.attn_factor", 0.0, 1e3)?,
        })
    }

    /// The ramp of YaRN. Its further knobs, which hardly any file turns, are refused where one does.
    fn yarn(&self, factor: f64) -> Result<Scaling, ModelError> {
        for (key, usual) in [
            ("yarn_ext_factor", 1.0),
            ("yarn_attn_factor", 1.0),
            ("yarn_log_multiplier", 0.0),
        ] {
            let key = format!("rope.scaling.{key}");
            if let Some(value) = self.metadata.float(&self.name(&key))
                && value != usual
            {
                return Err(self.wrong(&key, format!("{value} is not supported, only {usual}")));
            }
        }
        Ok(Scaling::Yarn {
            factor,
            fast: self
                .optional_float("rope.scaling.yarn_beta_fast", 0.0, 1e6)?
                .unwrap_or(32.0),
            slow: self
                .optional_float("rope.scaling.yarn_beta_slow", 0.0, 1e6)?
                .unwrap_or(1.0),
        })
    }

    /// Gemma 3 turns its sliding layers by another base, and never stretches them.
    pub(super) fn local_rope(&self, rope: &Rope) -> Result<Option<Rope>, ModelError> {
        if self.architecture != "gemma3" {
            return Ok(None);
        }
        let base = self
            .optional_float("rope.freq_base_swa", 1.0, 1e12)?
            .unwrap_or(10_000.0);
        Ok(Some(Rope {
            base,
            scaling: Scaling::None,
            attention_factor: None,
            ..rope.clone()
        }))
    }

    /// The window of each layer. Gemma 2 has full attention in every second layer and Gemma 3 in every sixth.
    pub(super) fn windows(&self, layers: usize) -> Result<Vec<Option<usize>>, ModelError> {
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
        let full = |layer: usize| period.is_some_and(|period| (layer + 1).is_multiple_of(period));
        Ok((0..layers)
            .map(|layer| window.filter(|_| !full(layer)))
            .collect())
    }

    /// The inverse root of the head's width, except in the two 27B Gemmas, which took the query width per head as it
    /// would be without a key length of its own. Files don't state this; the number of layers tells those two.
    pub(super) fn attention_scale(
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
    pub(super) fn cap(&self, key: &str, gemma2: f64) -> Result<Option<f32>, ModelError> {
        let stated = self.optional_float(key, 0.0, 1e6)?;
        Ok(stated
            .or((self.architecture == "gemma2").then_some(gemma2))
            .map(|cap| cap as f32))
    }
}

#[cfg(test)]
mod tests {
    use crate::model::config::Config;
    use crate::model::config::tests::{metadata, numbers};
    use crate::weights::Value;

    #[test]
    fn what_no_model_can_have_is_refused_by_name() {
        let check = |architecture: &str, key: &str, value: Value, expected: &str| {
            let mut metadata = metadata(architecture);
            metadata.insert(key, value);
            let error = Config::from_metadata(&metadata).unwrap_err().to_string();
            assert!(error.contains(expected), "{key}: {error}");
        };
        let number = Value::Unsigned;
        check(
            "llama",
            "general.architecture",
            Value::String("mamba".into()),
            "\"mamba\" is not supported",
        );
        check(
            "llama",
            "general.architecture",
            number(3),
            "general.architecture",
        );
        check("llama", "llama.block_count", number(0), "llama.block_count");
        check(
            "llama",
            "llama.block_count",
            number(u64::MAX),
            "llama.block_count",
        );
        check(
            "llama",
            "llama.embedding_length",
            Value::String("64".into()),
            "llama.embedding_length",
        );
        check(
            "llama",
            "llama.embedding_length",
            number(66),
            "doesn't divide",
        );
        check(
            "llama",
            "llama.attention.head_count_kv",
            number(3),
            "llama.attention.head_count_kv",
        );
        check(
            "llama",
            "llama.attention.head_count_kv",
            numbers(&[2, 2, 1, 1, 1, 1]),
            "layer to layer",
        );
        check("llama", "llama.attention.key_length", number(15), "odd");
        check(
            "llama",
            "llama.attention.value_length",
            number(8),
            "llama.attention.value_length",
        );
        check(
            "llama",
            "llama.rope.dimension_count",
            number(18),
            "llama.rope.dimension_count",
        );
        check(
            "llama",
            "llama.rope.freq_base",
            Value::Float(f64::NAN),
            "llama.rope.freq_base",
        );
        check(
            "llama",
            "llama.rope.scaling.type",
            Value::String("su".into()),
            "\"su\" is not supported",
        );
        check(
            "llama",
            "llama.rope.scaling.type",
            Value::String("yarn".into()),
            "llama.rope.scaling.factor",
        );
        check(
            "llama",
            "llama.attention.layer_norm_rms_epsilon",
            Value::Float(-1.0),
            "rms_epsilon",
        );
        check(
            "llama",
            "llama.expert_count",
            number(8),
            "llama.expert_used_count",
        );
        check(
            "qwen3",
            "qwen3.expert_count",
            number(8),
            "qwen3.expert_count",
        );
        check(
            "gemma3",
            "gemma3.attention.sliding_window_pattern",
            numbers(&[1]),
            "1 entries for 6 layers",
        );
    }
}
