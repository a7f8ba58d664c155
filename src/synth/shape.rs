//! How large a model is and of which family: presets by name, and the checks that no file would pass otherwise.

use super::SynthError;

/// A family of decoders, named as GGUF's `general.architecture` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Llama 2 and 3, Mistral.
    Llama,
    /// Qwen 2 and 2.5: biases at query, key and value.
    Qwen2,
    /// Qwen 3: norms of query and key heads.
    Qwen3,
    /// Phi 3 and 3.5: fused tensors, two sets of rotation factors.
    Phi3,
    /// Gemma 2: norms behind attention and MLP, soft caps, every second layer with a window.
    Gemma2,
    /// Gemma 3: both kinds of norms, five of six layers with a window.
    Gemma3,
}

impl Family {
    /// All of them.
    pub const ALL: [Family; 6] = [
        Family::Llama,
        Family::Qwen2,
        Family::Qwen3,
        Family::Phi3,
        Family::Gemma2,
        Family::Gemma3,
    ];

    /// The name.
    pub fn name(self) -> &'static str {
        match self {
            Family::Llama => "llama",
            Family::Qwen2 => "qwen2",
            Family::Qwen3 => "qwen3",
            Family::Phi3 => "phi3",
            Family::Gemma2 => "gemma2",
            Family::Gemma3 => "gemma3",
        }
    }

    /// The family of that name.
    ///
    /// # Errors
    /// [`SynthError::Unknown`].
    pub fn named(name: &str) -> Result<Family, SynthError> {
        let found = Family::ALL.into_iter().find(|family| family.name() == name);
        found.ok_or_else(|| SynthError::Unknown {
            what: "family",
            name: name.into(),
            known: Family::ALL.map(Family::name).join(", "),
        })
    }
}

/// Sizes of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    /// Its family.
    pub family: Family,
    /// Layers.
    pub layers: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Width inside the MLP.
    pub feed_forward: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Width of a head; `hidden / heads` where absent.
    pub head_dim: Option<usize>,
    /// Longest sequence in tokens.
    pub context: usize,
    /// Token ids.
    pub vocabulary: usize,
    /// Whether the embedding is the output head too.
    pub tied: bool,
    /// Base of the rotation.
    pub rope_base: f64,
    /// Added to the mean square inside a norm.
    pub epsilon: f64,
}

/// Names of the presets, the largest first.
pub const PRESETS: [&str; 7] = [
    "llama2-13b",
    "llama2-7b",
    "mistral-7b",
    "phi3.5-mini",
    "qwen2.5-1.5b",
    "qwen2.5-0.5b",
    "tiny",
];

/// The sizes of a well-known model.
///
/// # Errors
/// [`SynthError::Unknown`].
pub fn preset(name: &str) -> Result<Shape, SynthError> {
    let sized = |family,
                 [
        layers,
        hidden,
        feed_forward,
        heads,
        kv_heads,
        context,
        vocabulary,
    ]: [usize; 7]| Shape {
        family,
        layers,
        hidden,
        feed_forward,
        heads,
        kv_heads,
        head_dim: None,
        context,
        vocabulary,
        tied: false,
        rope_base: 10_000.0,
        epsilon: 1e-5,
    };
    let qwen = |sizes| Shape {
        tied: true,
        rope_base: 1e6,
        epsilon: 1e-6,
        ..sized(Family::Qwen2, sizes)
    };
    Ok(match name {
        "llama2-13b" => sized(Family::Llama, [40, 5120, 13824, 40, 40, 4096, 32000]),
        "llama2-7b" => sized(Family::Llama, [32, 4096, 11008, 32, 32, 4096, 32000]),
        "mistral-7b" => Shape {
            rope_base: 1e6,
            ..sized(Family::Llama, [32, 4096, 14336, 32, 8, 32768, 32000])
        },
        "phi3.5-mini" => sized(Family::Phi3, [32, 3072, 8192, 32, 32, 131_072, 32064]),
        "qwen2.5-1.5b" => qwen([28, 1536, 8960, 12, 2, 32768, 151_936]),
        "qwen2.5-0.5b" => qwen([24, 896, 4864, 14, 2, 32768, 151_936]),
        "tiny" => Shape {
            tied: true,
            ..sized(Family::Llama, [2, 256, 512, 4, 2, 4096, 512])
        },
        _ => {
            return Err(SynthError::Unknown {
                what: "preset",
                name: name.into(),
                known: PRESETS.join(", "),
            });
        }
    })
}

impl Shape {
    /// Width of a head, where heads and sizes fit.
    pub fn head_dim(&self) -> usize {
        self.head_dim
            .unwrap_or(self.hidden / self.heads.max(1))
            .max(1)
    }

    /// Checks what the decoder would refuse when the file is loaded, so that no large file is written in vain.
    ///
    /// # Errors
    /// [`SynthError::Shape`] names the first size that does not fit.
    pub fn check(&self) -> Result<(), SynthError> {
        let bounded = |flag: &str, value: usize, most: usize| match (1..=most).contains(&value) {
            true => Ok(()),
            false => Err(SynthError::shape(
                format!("--{flag} {value}"),
                format!("use a number from 1 to {most}"),
            )),
        };
        bounded("layers", self.layers, 1 << 10)?;
        bounded("hidden", self.hidden, 1 << 17)?;
        bounded("feed-forward", self.feed_forward, 1 << 20)?;
        bounded("heads", self.heads, 1 << 12)?;
        bounded("kv-heads", self.kv_heads, 1 << 12)?;
        bounded("context", self.context, 1 << 24)?;
        bounded("vocabulary", self.vocabulary, 1 << 24)?;
        let (hidden, heads, kv_heads) = (self.hidden, self.heads, self.kv_heads);
        if self.head_dim.is_none() && !hidden.is_multiple_of(heads) {
            return Err(SynthError::shape(
                format!("{heads} heads don't divide a hidden width of {hidden}"),
                "change --heads or --hidden, or give --head-dim",
            ));
        }
        if !heads.is_multiple_of(kv_heads) {
            return Err(SynthError::shape(
                format!("{kv_heads} key and value heads don't divide {heads} heads"),
                "change --kv-heads or --heads",
            ));
        }
        let head_dim = self.head_dim();
        bounded("head-dim", head_dim, 1 << 12)?;
        if !head_dim.is_multiple_of(2) {
            return Err(SynthError::shape(
                format!("heads of {head_dim} are odd, and rotation takes pairs"),
                "change --heads, --hidden or --head-dim",
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_are_sound() {
        for name in PRESETS {
            preset(name).unwrap().check().unwrap();
        }
        let error = preset("llama9").unwrap_err().to_string();
        assert!(
            error.contains("`llama9`") && error.contains("tiny"),
            "{error}"
        );
        assert!(Family::named("mamba").is_err());
    }

    #[test]
    fn sizes_that_do_not_fit_are_named() {
        let check = |change: fn(&mut Shape), expected: &str| {
            let mut shape = preset("tiny").unwrap();
            change(&mut shape);
            let error = shape.check().unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        };
        check(
            |shape| shape.heads = 3,
            "3 heads don't divide a hidden width of 256",
        );
        check(
            |shape| shape.kv_heads = 3,
            "3 key and value heads don't divide 4",
        );
        check(|shape| shape.head_dim = Some(33), "odd");
        check(|shape| shape.layers = 0, "--layers 0");
        check(|shape| shape.context = usize::MAX, "--context");
    }
}
