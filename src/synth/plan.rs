//! The metadata and the tensors of a model that is to be written, in file order. The names are those that the decoder
//! asks for: it refuses a file that lacks one or brings another, so a loaded file proves them. Draws nothing.

use super::SynthError;
use super::mix::{Mix, Role};
use super::shape::{Family, Shape};
use crate::weights::writer::Entry;
use crate::weights::{Array, Kind, Metadata, Value};
use assize_kernels::Quant;

/// Up to how many tokens a Phi 3 is trained before its context is extended.
const ORIGINAL_CONTEXT: usize = 4096;

/// What a tensor is filled with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fill {
    /// Numbers around `mean`, normal with that deviation.
    Normal {
        /// The mean.
        mean: f32,
        /// The deviation.
        deviation: f32,
    },
    /// From 1 on, evenly up to the number: divisors of a rotation's frequencies.
    Ramp(f32),
}

/// A tensor and what goes into it.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// Name, type and shape.
    pub entry: Entry,
    /// What goes into it.
    pub fill: Fill,
}

/// A model that is to be written.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Its metadata.
    pub metadata: Metadata,
    /// Its tensors.
    pub parts: Vec<Part>,
}

impl Plan {
    /// Plans a model. `tokenizer` is the metadata of a file whose tokenizer and chat template are copied; without it, the
    /// model has no tokenizer, and only its speed can be measured. The vocabulary is the tokenizer's, padded by unused tokens
    /// up to `padded`, where that is given.
    ///
    /// # Errors
    /// [`SynthError::Shape`] names what no model can have.
    pub fn new(
        shape: &Shape,
        mix: Mix,
        tokenizer: Option<&Metadata>,
        padded: Option<usize>,
    ) -> Result<Plan, SynthError> {
        let mut metadata = Metadata::default();
        let own = tokenizer
            .map(|source| copy_tokenizer(source, padded, &mut metadata))
            .transpose()?;
        let vocabulary = own.or(padded).unwrap_or(shape.vocabulary);
        let shape = &Shape {
            vocabulary,
            tied: shape.tied || matches!(shape.family, Family::Gemma2 | Family::Gemma3),
            ..shape.clone()
        };
        shape.check()?;
        describe(shape, mix, &mut metadata);
        let mut list = List {
            shape,
            mix,
            parts: Vec::new(),
        };
        list.all()?;
        Ok(Plan {
            metadata,
            parts: list.parts,
        })
    }

    /// Bytes of all tensors.
    pub fn bytes(&self) -> u64 {
        let sizes = self.parts.iter().map(|part| part.entry.bytes());
        sizes.map(Option::unwrap_or_default).sum()
    }

    /// Weights in all tensors.
    pub fn parameters(&self) -> u64 {
        let sizes = |part: &Part| {
            part.entry
                .shape
                .iter()
                .map(|size| *size as u64)
                .product::<u64>()
        };
        self.parts.iter().map(sizes).sum()
    }
}

/// Copies all that concerns the tokenizer, and returns the size of its vocabulary.
fn copy_tokenizer(
    source: &Metadata,
    padded: Option<usize>,
    metadata: &mut Metadata,
) -> Result<usize, SynthError> {
    const TOKENS: &str = "tokenizer.ggml.tokens";
    let count = source.strings(TOKENS).map_or(0, <[String]>::len);
    if count == 0 {
        return Err(SynthError::shape(
            "the file that --tokenizer names has no tokenizer",
            "name a GGUF file with tokenizer.ggml.tokens, or leave --tokenizer out",
        ));
    }
    let total = padded.unwrap_or(count);
    if total < count {
        return Err(SynthError::shape(
            format!("--vocabulary {total} is less than the tokenizer's {count} tokens"),
            "leave --vocabulary out, or give --tokenizer a smaller one",
        ));
    }
    for (key, value) in source.iter() {
        if !key.starts_with("tokenizer.") {
            continue;
        }
        let mut value = value.clone();
        match (key, &mut value) {
            (TOKENS, Value::Array(Array::Strings(tokens))) => {
                tokens.extend((count..total).map(|id| format!("<unused-{id}>")));
            }
            (
                "tokenizer.ggml.scores",
                Value::Array(Array::Numbers {
                    kind: Kind::F32,
                    bytes,
                }),
            ) => {
                (count..total).for_each(|_| bytes.extend(0f32.to_le_bytes()));
            }
            // 5 is GGUF's type of an unused token.
            (
                "tokenizer.ggml.token_type",
                Value::Array(Array::Numbers {
                    kind: Kind::I32 | Kind::U32,
                    bytes,
                }),
            ) => {
                (count..total).for_each(|_| bytes.extend(5i32.to_le_bytes()));
            }
            _ => (),
        }
        metadata.insert(key, value);
    }
    Ok(total)
}

fn describe(shape: &Shape, mix: Mix, metadata: &mut Metadata) {
    let family = shape.family;
    let text = |value: &str| Value::String(value.into());
    let count = |value: usize| Value::Unsigned(value as u64);
    metadata.insert("general.architecture", text(family.name()));
    metadata.insert("general.name", text("random weights, for measuring speed"));
    metadata.insert("general.file_type", Value::Unsigned(mix.file_type()));
    metadata.insert("general.quantization_version", Value::Unsigned(2));
    let mut put = |key: &str, value: Value| {
        metadata.insert(format!("{}.{key}", family.name()), value);
    };
    put("block_count", count(shape.layers));
    put("context_length", count(shape.context));
    put("embedding_length", count(shape.hidden));
    put("feed_forward_length", count(shape.feed_forward));
    put("vocab_size", count(shape.vocabulary));
    put("attention.head_count", count(shape.heads));
    put("attention.head_count_kv", count(shape.kv_heads));
    put("attention.key_length", count(shape.head_dim()));
    put("attention.value_length", count(shape.head_dim()));
    put(
        "attention.layer_norm_rms_epsilon",
        Value::Float(shape.epsilon),
    );
    put("rope.dimension_count", count(shape.head_dim()));
    put("rope.freq_base", Value::Float(shape.rope_base));
    match family {
        Family::Phi3 => {
            let original = shape.context.min(ORIGINAL_CONTEXT);
            put("rope.scaling.original_context_length", count(original));
        }
        Family::Gemma2 => {
            put("attention.sliding_window", count(shape.context.min(4096)));
            put("attn_logit_softcapping", Value::Float(50.0));
            put("final_logit_softcapping", Value::Float(30.0));
        }
        Family::Gemma3 => put("attention.sliding_window", count(shape.context.min(512))),
        Family::Llama | Family::Qwen2 | Family::Qwen3 => (),
    }
}

struct List<'a> {
    shape: &'a Shape,
    mix: Mix,
    parts: Vec<Part>,
}

impl List<'_> {
    fn all(&mut self) -> Result<(), SynthError> {
        let shape = self.shape;
        let table = [shape.vocabulary, shape.hidden];
        let role = if shape.tied {
            Role::Head
        } else {
            Role::Embedding
        };
        self.matrix("token_embd.weight".into(), role, table)?;
        for layer in 0..shape.layers {
            self.layer(layer)?;
        }
        self.vector("output_norm.weight".into(), shape.hidden, NORM);
        if !shape.tied {
            self.matrix("output.weight".into(), Role::Head, table)?;
        }
        if shape.family == Family::Phi3 && shape.context > ORIGINAL_CONTEXT {
            let pairs = shape.head_dim() / 2;
            self.vector("rope_factors_short.weight".into(), pairs, Fill::Ramp(2.0));
            self.vector("rope_factors_long.weight".into(), pairs, Fill::Ramp(64.0));
        }
        Ok(())
    }

    fn layer(&mut self, layer: usize) -> Result<(), SynthError> {
        let shape = self.shape;
        let (hidden, inner) = (shape.hidden, shape.feed_forward);
        let head_dim = shape.head_dim();
        let (wide, narrow) = (shape.heads * head_dim, shape.kv_heads * head_dim);
        let name = |part: &str| format!("blk.{layer}.{part}");
        let (delicate, other) = (Role::Delicate(layer), Role::Other);
        self.vector(name("attn_norm.weight"), hidden, NORM);
        if shape.family == Family::Phi3 {
            let rows = wide + 2 * narrow;
            self.matrix(name("attn_qkv.weight"), Role::Fused, [rows, hidden])?;
        } else {
            self.matrix(name("attn_q.weight"), other, [wide, hidden])?;
            self.matrix(name("attn_k.weight"), other, [narrow, hidden])?;
            self.matrix(name("attn_v.weight"), delicate, [narrow, hidden])?;
        }
        if shape.family == Family::Qwen2 {
            for (part, rows) in [("attn_q", wide), ("attn_k", narrow), ("attn_v", narrow)] {
                self.vector(name(&format!("{part}.bias")), rows, BIAS);
            }
        }
        if matches!(shape.family, Family::Qwen3 | Family::Gemma3) {
            self.vector(name("attn_q_norm.weight"), head_dim, NORM);
            self.vector(name("attn_k_norm.weight"), head_dim, NORM);
        }
        self.matrix(name("attn_output.weight"), other, [hidden, wide])?;
        if matches!(shape.family, Family::Gemma2 | Family::Gemma3) {
            self.vector(name("post_attention_norm.weight"), hidden, NORM);
            self.vector(name("post_ffw_norm.weight"), hidden, NORM);
        }
        self.vector(name("ffn_norm.weight"), hidden, NORM);
        let up = if shape.family == Family::Phi3 {
            2 * inner
        } else {
            inner
        };
        if shape.family != Family::Phi3 {
            self.matrix(name("ffn_gate.weight"), other, [inner, hidden])?;
        }
        self.matrix(name("ffn_up.weight"), other, [up, hidden])?;
        self.matrix(name("ffn_down.weight"), delicate, [hidden, inner])
    }

    /// A matrix of deviation `1 / sqrt(inputs)`, which keeps the scale of what goes through it.
    fn matrix(&mut self, name: String, role: Role, shape: [usize; 2]) -> Result<(), SynthError> {
        let columns = shape[1];
        let quant = self.mix.choose(&name, role, columns, self.shape.layers)?;
        let entry = Entry {
            name,
            quant,
            shape: shape.into(),
        };
        if entry.bytes().is_none() {
            return Err(SynthError::shape(
                format!("{}: {shape:?} is too large to count", entry.name),
                "choose smaller sizes",
            ));
        }
        let fill = Fill::Normal {
            mean: 0.0,
            deviation: 1.0 / (columns as f32).sqrt(),
        };
        self.parts.push(Part { entry, fill });
        Ok(())
    }

    fn vector(&mut self, name: String, length: usize, fill: Fill) {
        let entry = Entry {
            name,
            quant: Quant::F32,
            shape: vec![length],
        };
        self.parts.push(Part { entry, fill });
    }
}

/// Weights of a norm.
const NORM: Fill = Fill::Normal {
    mean: 1.0,
    deviation: 0.05,
};

/// A bias.
const BIAS: Fill = Fill::Normal {
    mean: 0.0,
    deviation: 0.02,
};

#[cfg(test)]
mod tests {
    use super::super::shape::preset;
    use super::*;

    #[test]
    fn presets_have_the_sizes_of_their_models() {
        // What the published Q4_K_M files take, less their tokenizers, within a hundredth.
        let check = |name: &str, parameters: f64, bytes: f64| {
            let plan = Plan::new(&preset(name).unwrap(), Mix::Q4KM, None, None).unwrap();
            let near = |found: u64, expected: f64| (found as f64 / expected - 1.0).abs() < 0.01;
            assert!(
                near(plan.parameters(), parameters),
                "{name}: {}",
                plan.parameters()
            );
            assert!(near(plan.bytes(), bytes), "{name}: {}", plan.bytes());
        };
        check("llama2-13b", 13.016e9, 7.866e9);
        check("llama2-7b", 6.738e9, 4.081e9);
        check("mistral-7b", 7.242e9, 4.368e9);
        // The head is the embedding; published files bring it twice and take 0.13 GB more.
        check("qwen2.5-1.5b", 1.5437e9, 0.9801e9);
        check("phi3.5-mini", 3.821e9, 2.393e9);
    }

    #[test]
    fn the_tokenizer_decides_the_vocabulary() {
        let mut source = Metadata::default();
        let tokens = |count: usize| (0..count).map(|id| format!("t{id}")).collect::<Vec<_>>();
        let strings = |count| Value::Array(Array::Strings(tokens(count)));
        source.insert("tokenizer.ggml.tokens", strings(7));
        source.insert("tokenizer.ggml.bos_token_id", Value::Unsigned(1));
        source.insert("general.name", Value::String("other".into()));
        let tiny = preset("tiny").unwrap();
        let plan = |padded| Plan::new(&tiny, Mix::Plain(Quant::F16), Some(&source), padded);
        let found = plan(None).unwrap();
        assert_eq!(found.parts[0].entry.shape, [7, 256]);
        assert_eq!(
            found.metadata.integer("tokenizer.ggml.bos_token_id"),
            Some(1)
        );
        assert_ne!(found.metadata.string("general.name"), Some("other"));
        let found = plan(Some(9)).unwrap();
        assert_eq!(found.parts[0].entry.shape, [9, 256]);
        let names = found.metadata.strings("tokenizer.ggml.tokens").unwrap();
        assert_eq!(names[7..], ["<unused-7>", "<unused-8>"]);
        let error = plan(Some(6)).unwrap_err().to_string();
        assert!(error.contains("the tokenizer's 7 tokens"), "{error}");
        let none = Plan::new(&tiny, Mix::Q4KM, Some(&Metadata::default()), None);
        assert!(none.unwrap_err().to_string().contains("no tokenizer"));
    }
}
