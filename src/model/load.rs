//! Makes a decoder of the tensors in a model file. Here alone do the families' layouts of tensors differ: what is fused
//! in the file is taken apart, so that the decoder knows one layout.

use super::ModelError;
use super::attention::Attention;
use super::cache;
use super::config::{Config, Experts};
use super::decoder::{Decoder, FeedForward, Layer, LoadOptions, Packing};
use super::linear::Linear;
use super::mlp::Mlp;
use super::moe::Moe;
use super::names;
use super::norm::Norm;
use super::placement::Placement;
use super::rope::{Frequencies, long_factor};
use super::tensors::Tensors;
use crate::weights::Store;
use crate::weights::layouts::Layouts;
use assize_kernels::bridge::Weight;
use assize_kernels::{Precision, Quant};
use candle_core::Tensor;

/// See [`Decoder::load_with`] and [`Decoder::load_onto`].
pub(super) fn decoder(
    store: &Store,
    placement: &Placement,
    layouts: Option<&Layouts>,
    options: &LoadOptions<'_>,
) -> Result<(Decoder, Packing), ModelError> {
    let config = Config::from_metadata(store.metadata())?;
    let loader = Loader {
        config: &config,
        tensors: Tensors::new(store, placement, layouts, options.progress),
        precision: options.precision,
    };
    let context = options.context.unwrap_or_else(|| loader.usual_context());
    if context == 0 || context > config.context {
        let made = config.context;
        return Err(ModelError::Options(format!(
            "a context of {context} was asked, but the model was made for {made}"
        )));
    }

    let table = [config.vocabulary, config.hidden];
    let embedding = loader.tensors.matrix(names::EMBEDDING, table)?;
    let layers = (0..config.layers())
        .map(|layer| loader.layer(layer))
        .collect::<Result<Vec<_>, _>>()?;
    let norm = loader.norm(names::OUTPUT_NORM, config.hidden)?;
    let head = match loader.tensors.has(names::OUTPUT) {
        true => loader.tensors.matrix(names::OUTPUT, table)?,
        false => embedding.clone(),
    };
    let frequencies = loader.frequencies(context)?;
    let local_frequencies = config
        .local_rope
        .as_ref()
        .map(|rope| Frequencies::new(rope, None, None));
    let (embedding, mut head) = (loader.linear(embedding, None), loader.linear(head, None));
    // Where the head's own weights are that good, the activations that they meet are too: on SmolLM2, Gemma and Qwen files with such a head a
    // fifth of the divergence from the exact logits goes away. It costs nothing where memory is what a pass waits for.
    if let Weight::Packed(weight) = &head.weight
        && head.precision == Precision::Quantized
        && weight.quant() == Quant::Q8_0
    {
        head.precision = Precision::Refined;
    }
    let read = loader.tensors.finish()?;
    // Only now, when the tensors have borne out the sizes that the metadata claim.
    let device = placement.device();
    let caches = cache::allocate(&config, options.cache, options.pages, device)?;
    let decoder = Decoder {
        device: device.clone(),
        on_processor: matches!(placement, Placement::Processor),
        context,
        pages: options.pages,
        weight_bytes: read.bytes,
        embedding,
        layers,
        norm,
        head,
        frequencies,
        local_frequencies,
        caches,
        spare: Vec::new(),
        config,
    };
    let (parts, fresh) = (read.parts, read.fresh);
    Ok((decoder, Packing { parts, fresh }))
}

struct Loader<'a> {
    config: &'a Config,
    tensors: Tensors<'a>,
    precision: Precision,
}

impl Loader<'_> {
    fn layer(&self, layer: usize) -> Result<Layer, ModelError> {
        let config = self.config;
        let norm = |part| self.norm(&names::layer(layer, part), config.hidden);
        let post_norm = |part| config.post_norms.then(|| norm(part)).transpose();
        Ok(Layer {
            attention_norm: norm(names::ATTENTION_NORM)?,
            attention: self.attention(layer)?,
            attention_post_norm: post_norm(names::ATTENTION_POST_NORM)?,
            mlp_norm: norm(names::MLP_NORM)?,
            mlp: match &config.experts {
                None => FeedForward::One(self.mlp(layer)?),
                Some(experts) => FeedForward::Several(self.moe(layer, experts)?),
            },
            mlp_post_norm: post_norm(names::MLP_POST_NORM)?,
            local: config.local_rope.is_some() && config.windows[layer].is_some(),
        })
    }

    fn attention(&self, layer: usize) -> Result<Attention, ModelError> {
        let config = self.config;
        let (wide, narrow) = (
            config.heads * config.head_dim,
            config.kv_heads * config.head_dim,
        );
        let [query, key, value] = match config.fused {
            true => self.fused(
                layer,
                names::QUERY_KEY_VALUE,
                [wide, narrow, narrow],
                config.hidden,
            )?,
            false => [
                self.projection(layer, names::QUERY, wide, config.hidden, config.biases)?,
                self.projection(layer, names::KEY, narrow, config.hidden, config.biases)?,
                self.projection(layer, names::VALUE, narrow, config.hidden, config.biases)?,
            ],
        };
        let head_norm = |part| {
            let name = names::layer(layer, part);
            config
                .head_norms
                .then(|| self.norm(&name, config.head_dim))
                .transpose()
        };
        Ok(Attention {
            query,
            key,
            value,
            output: self.projection(layer, names::ATTENTION_OUTPUT, config.hidden, wide, false)?,
            query_norm: head_norm(names::QUERY_NORM)?,
            key_norm: head_norm(names::KEY_NORM)?,
            heads: config.heads,
            kv_heads: config.kv_heads,
            head_dim: config.head_dim,
            style: config.rope_style,
            scale: config.attention_scale,
            window: config.windows[layer],
            soft_cap: config.attention_cap,
        })
    }

    fn mlp(&self, layer: usize) -> Result<Mlp, ModelError> {
        let (hidden, inner) = (self.config.hidden, self.config.feed_forward);
        let [gate, up] = match self.config.fused {
            true => self.fused(layer, names::UP, [inner, inner], hidden)?,
            false => [
                self.projection(layer, names::GATE, inner, hidden, false)?,
                self.projection(layer, names::UP, inner, hidden, false)?,
            ],
        };
        let down = self.projection(layer, names::DOWN, hidden, inner, false)?;
        Ok(Mlp {
            gate,
            up,
            down,
            activation: self.config.activation,
        })
    }

    fn moe(&self, layer: usize, experts: &Experts) -> Result<Moe, ModelError> {
        let (hidden, inner) = (self.config.hidden, self.config.feed_forward);
        let matrix = |part, expert: usize, out: usize, input: usize| {
            let stacked = names::stacked(layer, part);
            let matrix = match self.tensors.has(&stacked) {
                true => self.tensors.rows(
                    &stacked,
                    &[experts.count, out, input],
                    expert * out..(expert + 1) * out,
                )?,
                false => self
                    .tensors
                    .matrix(&names::expert(layer, part, expert), [out, input])?,
            };
            Ok::<_, ModelError>(self.linear(matrix, None))
        };
        let expert = |expert| {
            Ok(Mlp {
                gate: matrix(names::GATE, expert, inner, hidden)?,
                up: matrix(names::UP, expert, inner, hidden)?,
                down: matrix(names::DOWN, expert, hidden, inner)?,
                activation: self.config.activation,
            })
        };
        let router = self
            .tensors
            .matrix(&names::layer(layer, names::ROUTER), [experts.count, hidden])?;
        Ok(Moe {
            router: self.linear(router, None),
            experts: (0..experts.count)
                .map(expert)
                .collect::<Result<Vec<_>, ModelError>>()?,
            used: experts.used,
        })
    }

    /// A matrix `[out, input]` with its bias `[out]`, which must be there where `biased`.
    fn projection(
        &self,
        layer: usize,
        part: &str,
        out: usize,
        input: usize,
        biased: bool,
    ) -> Result<Linear, ModelError> {
        let name = |kind| names::layer(layer, &format!("{part}.{kind}"));
        let matrix = self.tensors.matrix(&name("weight"), [out, input])?;
        let bias = match biased {
            true => Some(self.tensors.vector(&name("bias"), out)?),
            false => self.tensors.optional_vector(&name("bias"), out)?,
        };
        Ok(self.linear(matrix, bias))
    }

    /// The parts of a matrix that lie one below the other in one tensor, `[outs[i], input]` each.
    fn fused<const N: usize>(
        &self,
        layer: usize,
        part: &str,
        outs: [usize; N],
        input: usize,
    ) -> Result<[Linear; N], ModelError> {
        let name = |kind| names::layer(layer, &format!("{part}.{kind}"));
        let total = outs.iter().sum();
        let bias = self.tensors.optional_vector(&name("bias"), total)?;
        let mut parts = Vec::with_capacity(N);
        let mut first = 0;
        for out in outs {
            let matrix = self
                .tensors
                .rows(&name("weight"), &[total, input], first..first + out)?;
            let bias = bias
                .as_ref()
                .map(|bias| bias.narrow(0, first, out)?.contiguous())
                .transpose()?;
            parts.push(self.linear(matrix, bias));
            first += out;
        }
        parts.try_into().map_err(|_| ModelError::Missing {
            name: name("weight"),
        })
    }

    fn linear(&self, weight: Weight, bias: Option<Tensor>) -> Linear {
        Linear {
            weight,
            bias,
            precision: self.precision,
        }
    }

    fn norm(&self, name: &str, length: usize) -> Result<Norm, ModelError> {
        Ok(Norm {
            weight: self.tensors.vector(name, length)?,
            epsilon: self.config.norm_epsilon,
        })
    }

    /// Whether the file brings one set of rotation factors for short sequences and one for long ones.
    fn has_two_ropes(&self) -> bool {
        self.tensors.has(names::ROPE_FACTORS_LONG) || self.tensors.has(names::ROPE_FACTORS_SHORT)
    }

    /// The model's own context; where there are two sets of factors, the one up to which the short set serves, since that is
    /// what a model sees in training when a prompt is short.
    fn usual_context(&self) -> usize {
        match self.has_two_ropes() {
            true => self.config.context.min(self.config.rope.original_context),
            false => self.config.context,
        }
    }

    /// The frequencies of full attention, with the factors per dimension that the file brings.
    fn frequencies(&self, context: usize) -> Result<Frequencies, ModelError> {
        let rope = &self.config.rope;
        let factors = |name: &str| -> Result<Vec<f32>, ModelError> {
            let factors: Vec<f32> = self.tensors.vector(name, rope.dims / 2)?.to_vec1()?;
            match factors
                .iter()
                .all(|factor| factor.is_finite() && *factor > 0.0)
            {
                true => Ok(factors),
                false => Err(ModelError::Value {
                    key: name.to_owned(),
                    reason: "a factor is not positive".into(),
                }),
            }
        };
        if self.tensors.has(names::ROPE_FACTORS) {
            return Ok(Frequencies::new(
                rope,
                Some(&factors(names::ROPE_FACTORS)?),
                None,
            ));
        }
        if !self.has_two_ropes() {
            return Ok(Frequencies::new(rope, None, None));
        }
        let (long, short) = (
            factors(names::ROPE_FACTORS_LONG)?,
            factors(names::ROPE_FACTORS_SHORT)?,
        );
        let chosen = if context > rope.original_context {
            long
        } else {
            short
        };
        let factor = rope
            .attention_factor
            .unwrap_or_else(|| long_factor(rope, self.config.context));
        Ok(Frequencies::new(rope, Some(&chosen), Some(factor)))
    }
}
