//! The decoder: a ragged batch of tokens goes in at the top, and the logits of the rows that ask come out at the bottom.
//!
//! Every step works row by row except attention, which works sequence by sequence, so that the bits of a row's logits
//! depend on its own sequence alone. The last layer computes keys and values for all rows, but the rest only for the
//! rows whose logits are wanted.

use super::ModelError;
use super::attention::{Asking, Attention};
use super::batch::{Batch, Forward, ForwardError, PageId};
use super::cache::{KvType, LayerCache};
use super::config::Config;
use super::linear::Linear;
use super::load;
use super::mlp::Mlp;
use super::moe::Moe;
use super::norm::Norm;
use super::placement::Placement;
use super::rope::Frequencies;
use crate::weights::Store;
use crate::weights::layouts::{Layouts, Part};
use assize_kernels::bridge::{self, Pass};
use assize_kernels::{Precision, Span};
use candle_core::{Device, Result, Tensor};

/// How a decoder is loaded.
pub struct LoadOptions<'a> {
    /// How activations meet quantized weights.
    pub precision: Precision,
    /// How keys and values are kept; [`KvType::of`] the precision unless there is a reason.
    pub cache: KvType,
    /// Pages of the KV cache, of 16 tokens; [`super::cache::page_bytes`] tells what one takes.
    pub pages: usize,
    /// Longest sequence, in tokens; where absent, the model's own. Where a model has two sets of rotation factors (Phi 3),
    /// this decides once, for all sequences, which serves: the short one up to the original context, which is also what
    /// serves where this is absent.
    pub context: Option<usize>,
    /// Told the bytes packed so far and the bytes in all.
    pub progress: Option<&'a dyn Fn(u64, u64)>,
}

/// What loading did about the weights.
pub struct Packing {
    /// All matrices of the model.
    pub parts: Vec<Part>,
    /// How many of them had to be packed.
    pub fresh: usize,
}

/// A model that is ready to run, with its cache.
pub struct Decoder {
    /// Where its tensors are.
    pub(super) device: Device,
    /// Whether its weights are packed, and its keys and values lie as the processor's kernels have them.
    pub(super) on_processor: bool,
    pub(super) config: Config,
    pub(super) context: usize,
    pub(super) pages: usize,
    pub(super) weight_bytes: usize,
    /// `[vocabulary, hidden]`; its bias is never there.
    pub(super) embedding: Linear,
    pub(super) layers: Vec<Layer>,
    pub(super) norm: Norm,
    /// `[vocabulary, hidden]`; the embedding's matrix where the two are tied.
    pub(super) head: Linear,
    pub(super) frequencies: Frequencies,
    pub(super) local_frequencies: Option<Frequencies>,
    pub(super) caches: Vec<LayerCache>,
    /// Memory of logits that were handed back.
    pub(super) spare: Vec<f32>,
}

/// One layer.
pub(super) struct Layer {
    pub(super) attention_norm: Norm,
    pub(super) attention: Attention,
    pub(super) attention_post_norm: Option<Norm>,
    pub(super) mlp_norm: Norm,
    pub(super) mlp: FeedForward,
    pub(super) mlp_post_norm: Option<Norm>,
    /// Whether the layer turns by the local frequencies.
    pub(super) local: bool,
}

/// What follows attention in a layer.
pub(super) enum FeedForward {
    One(Mlp),
    Several(Moe),
}

impl Decoder {
    /// Reads a decoder out of a model file and packs its weights.
    ///
    /// # Errors
    /// [`ModelError`] names the architecture, metadata key or tensor that is at fault, or the option that can't be had.
    pub fn load(
        store: &Store,
        options: &LoadOptions<'_>,
    ) -> std::result::Result<Decoder, ModelError> {
        Ok(load::decoder(store, &Placement::Processor, None, options)?.0)
    }

    /// Reads a decoder out of a model file to where `placement` says. On a device, keys and values are kept in bf16, whatever the options say.
    ///
    /// # Errors
    /// As [`Decoder::load`].
    pub fn load_onto(
        store: &Store,
        placement: &Placement,
        options: &LoadOptions<'_>,
    ) -> std::result::Result<Decoder, ModelError> {
        let cache = match placement {
            Placement::Processor => options.cache,
            Placement::Device { .. } => KvType::Bf16,
        };
        let options = LoadOptions { cache, ..*options };
        Ok(load::decoder(store, placement, None, &options)?.0)
    }

    /// As [`Decoder::load`], but takes from `layouts` what is packed there. The same bits come of both.
    ///
    /// # Errors
    /// As [`Decoder::load`].
    pub fn load_with(
        store: &Store,
        layouts: Option<&Layouts>,
        options: &LoadOptions<'_>,
    ) -> std::result::Result<(Decoder, Packing), ModelError> {
        load::decoder(store, &Placement::Processor, layouts, options)
    }

    /// What the model is made of.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// One line for people.
    pub fn describe(&self) -> String {
        self.config.describe()
    }

    /// Bytes that the weights hold, where they lie.
    pub fn weight_bytes(&self) -> usize {
        self.weight_bytes
    }

    /// Computes the `logits`, `[outputs, vocabulary]`, of a batch that was checked.
    fn run(&self, batch: &Batch, logits: &mut Vec<f32>) -> Result<()> {
        let positions = batch.positions();
        let device = &self.device;
        let spans: Vec<Span> = batch.spans.iter().map(kernel_span).collect();
        let pass = Pass::new(device, spans, batch.slots())?;
        let rotation = self.frequencies.rotation(&positions, device)?;
        let local = self
            .local_frequencies
            .as_ref()
            .map(|local| local.rotation(&positions, device))
            .transpose()?;

        let mut x = bridge::embed(&batch.tokens, &self.embedding.weight)?; // [T, hidden]
        if let Some(scale) = self.config.embedding_scale {
            x = (x * f64::from(scale))?;
        }
        for (index, (layer, cache)) in self.layers.iter().zip(&self.caches).enumerate() {
            let frequencies = match &self.local_frequencies {
                Some(local) if layer.local => local,
                _ => &self.frequencies,
            };
            let rotation = local.as_ref().filter(|_| layer.local).unwrap_or(&rotation);
            let last = index + 1 == self.layers.len();
            if last && batch.outputs.is_empty() {
                let norm = &layer.attention_norm;
                layer.attention.remember(&x, norm, rotation, &pass, cache)?;
                logits.clear();
                return Ok(());
            }
            let asking = match last && batch.outputs.len() < batch.tokens.len() {
                true => Some(asking(batch, &positions, frequencies, device)?),
                false => None,
            };

            // Where a post norm stands between, the residual is added after it; else together with the last product.
            let rest = match &asking {
                Some(asking) => x.index_select(&asking.indices, 0)?, // [outputs, hidden] from here on
                None => x.clone(),
            };
            let direct = layer.attention_post_norm.is_none().then_some(&rest);
            let attended = layer.attention.forward(
                &x,
                &layer.attention_norm,
                direct,
                rotation,
                &pass,
                asking.as_ref(),
                cache,
            )?;
            x = post(&layer.attention_post_norm, attended, &rest)?;

            let rest = x.clone();
            let direct = layer.mlp_post_norm.is_none().then_some(&rest);
            let added = match &layer.mlp {
                FeedForward::One(mlp) => mlp.forward(&x, Some(&layer.mlp_norm), direct)?,
                FeedForward::Several(moe) => {
                    let added = moe.forward(&layer.mlp_norm.forward(&x)?)?;
                    match direct {
                        Some(rest) => bridge::add(rest, &added)?,
                        None => added,
                    }
                }
            };
            x = post(&layer.mlp_post_norm, added, &rest)?;
        }
        let cap = self.config.logit_cap;
        self.head.forward_into(&x, &self.norm, cap, logits) // [outputs, vocabulary]
    }
}

impl Forward for Decoder {
    fn vocabulary(&self) -> usize {
        self.config.vocabulary
    }

    fn context(&self) -> usize {
        self.context
    }

    fn pages(&self) -> usize {
        self.pages
    }

    fn forward(&mut self, batch: &Batch) -> std::result::Result<Vec<f32>, ForwardError> {
        batch.check(self.config.vocabulary, self.context, self.pages)?;
        if batch.tokens.is_empty() {
            return Ok(Vec::new());
        }
        let mut logits = std::mem::take(&mut self.spare);
        // On a thread of the pool, so that none of the hundreds of products and sums of a pass has to wake one and be woken by it. A device is
        // spoken to from the thread that asks.
        let ran = match self.device.is_cpu() {
            true => rayon::scope(|_| self.run(batch, &mut logits)),
            false => self.run(batch, &mut logits),
        };
        match ran {
            Ok(()) => Ok(logits),
            Err(error) => Err(ForwardError(error.to_string())),
        }
    }

    fn recycle(&mut self, logits: Vec<f32>) {
        if logits.capacity() > self.spare.capacity() {
            self.spare = logits;
        }
    }

    fn copy_page(&mut self, from: PageId, to: PageId) -> std::result::Result<(), ForwardError> {
        for page in [from, to] {
            if page as usize >= self.pages {
                return Err(super::batch::BatchError::Page {
                    page,
                    pages: self.pages,
                }
                .into());
            }
        }
        let copied = self
            .caches
            .iter()
            .try_for_each(|cache| cache.copy_page(from, to));
        copied.map_err(|error| ForwardError(error.to_string()))
    }

    fn page_bytes(&self) -> Option<usize> {
        // Nothing says that another card, or another batch, would have computed the same bits.
        self.on_processor
            .then(|| self.caches.iter().map(LayerCache::page_bytes).sum())
    }

    fn read_page(&self, page: PageId, to: &mut Vec<u8>) -> std::result::Result<(), ForwardError> {
        let mut caches = self.caches.iter();
        let read = caches.try_for_each(|cache| cache.read_page(page, to));
        read.map_err(|error| ForwardError(error.to_string()))
    }

    fn write_page(
        &mut self,
        page: PageId,
        mut from: &[u8],
    ) -> std::result::Result<(), ForwardError> {
        for cache in &self.caches {
            let (own, rest) = from.split_at(cache.page_bytes().min(from.len()));
            let written = cache.write_page(page, own);
            written.map_err(|error| ForwardError(error.to_string()))?;
            from = rest;
        }
        match from.is_empty() {
            true => Ok(()),
            false => Err(ForwardError("more bytes than a page has".to_owned())),
        }
    }
}

/// `added`, through the norm where the family has one and then added to the `rest`; without a norm that has been done.
fn post(norm: &Option<Norm>, added: Tensor, rest: &Tensor) -> Result<Tensor> {
    match norm {
        Some(norm) => bridge::add(rest, &norm.forward(&added)?),
        None => Ok(added),
    }
}

/// The rows whose logits are wanted, as spans of their own: consecutive rows of one sequence stay together.
fn asking(
    batch: &Batch,
    positions: &[usize],
    frequencies: &Frequencies,
    device: &Device,
) -> Result<Asking> {
    let outputs = &batch.outputs;
    let mut spans = Vec::new();
    let mut rest = outputs.as_slice();
    for span in &batch.spans {
        let (mine, others) =
            rest.split_at(rest.partition_point(|row| *row < span.first + span.rows));
        for run in mine.chunk_by(|a, b| a + 1 == *b) {
            let Some(first) = run.first() else { continue };
            spans.push(Span {
                first: spans.iter().map(|span: &Span| span.rows).sum(),
                rows: run.len(),
                position: positions[*first],
                pages: span.pages.clone(),
            });
        }
        rest = others;
    }
    let asked: Vec<usize> = outputs.iter().map(|row| positions[*row]).collect();
    let indices: Vec<u32> = outputs.iter().map(|row| *row as u32).collect();
    Ok(Asking {
        indices: Tensor::from_vec(indices, outputs.len(), device)?,
        rotation: frequencies.rotation(&asked, device)?,
        pass: Pass::new(device, spans, Vec::new())?,
    })
}

/// The same span in the kernels' words.
fn kernel_span(span: &super::batch::Span) -> Span {
    Span {
        first: span.first,
        rows: span.rows,
        position: span.position,
        pages: span.pages.clone(),
    }
}
