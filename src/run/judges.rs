//! From a model file to an engine that answers.
//!
//! Opens the file once: tokenizer and template first, so that what can be refused is refused before weights are read.

use super::settings::{cache_share, free_memory};
use crate::constrain::ConstrainError;
use crate::engine::frontend::ModelFrontend;
use crate::engine::{Engine, EngineSettings};
use crate::model::batch::PAGE;
use crate::model::cache::{KvType, page_bytes};
use crate::model::config::Config;
use crate::model::decoder::{Decoder, LoadOptions};
use crate::tokenizer::{ChatTemplate, Tokenizer, TokenizerError};
use crate::weights::layouts::{LayoutError, Layouts, Place, Unwritten};
use crate::weights::{Store, TensorView};
use anyhow::{Context as _, Result, bail};
use assize_kernels::{Matrix, Precision};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// How an engine is set up. Only `exact` and `kv_type` change verdicts, and `context` those of a model with two sets of rotation factors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JudgeSettings {
    /// Whether activations and cache stay in 32 bits.
    pub exact: bool,
    /// How keys and values are kept; in half precision, or in single on the exact path, where absent.
    pub kv_type: Option<KvType>,
    /// Most sequences in a batch.
    pub max_batch: usize,
    /// Most prompt tokens of one sequence in a step.
    pub prefill_chunk: usize,
    /// Whether prefixes are shared.
    pub prefix_cache: bool,
    /// Memory for the KV cache in bytes; a share of what is free where absent.
    pub cache_bytes: Option<u64>,
    /// Longest sequence in tokens; see [`LoadOptions`].
    pub context: Option<usize>,
    /// Whether answers will be held to grammars: their tables are made beside the loading then, else when the first grammar comes.
    pub grammars: bool,
}

impl Default for JudgeSettings {
    fn default() -> Self {
        JudgeSettings {
            exact: false,
            kv_type: None,
            max_batch: 16,
            prefill_chunk: 512,
            prefix_cache: true,
            cache_bytes: None,
            context: None,
            grammars: true,
        }
    }
}

impl JudgeSettings {
    pub(super) fn precision(&self) -> Precision {
        match self.exact {
            true => Precision::Exact,
            false => Precision::Quantized,
        }
    }

    /// How keys and values are kept.
    pub fn kv_type(&self) -> KvType {
        self.kv_type.unwrap_or_else(|| KvType::of(self.precision()))
    }
}

/// What the KV cache was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Free before the model was read, in bytes, where that is known.
    pub free: Option<u64>,
    /// The cache's bytes.
    pub cache: u64,
    /// The cache's pages, of [`PAGE`] tokens.
    pub pages: usize,
}

impl Memory {
    /// The tokens that fit.
    pub fn tokens(&self) -> usize {
        self.pages.saturating_mul(PAGE)
    }
}

/// A model file whose tokenizer and template are read.
pub struct ModelFile {
    store: Store,
    config: Config,
    tokenizer: Arc<Tokenizer>,
    template: Option<ChatTemplate>,
    /// Where packed weights are kept, if they are.
    place: Option<Place>,
}

/// An engine and what it holds.
pub struct Loaded {
    /// Answers asks.
    pub engine: Engine,
    /// Bytes of the weights in memory.
    pub weight_bytes: usize,
    /// Whether no weight had to be packed.
    pub mapped: bool,
    /// What was packed, if it is to be kept.
    pub unwritten: Option<Unwritten>,
}

impl ModelFile {
    /// Opens the file, or the files of a split model. Where the file has no chat template, the well-known one called
    /// `template` serves, and where none is named, the one that the vocabulary proves, if it proves any.
    ///
    /// # Errors
    /// The typed error of weights, model or tokenizer.
    pub fn open(path: &Path, template: Option<&str>) -> Result<ModelFile> {
        let store = timed("opening the file", || Store::open(path))?;
        let config = Config::from_metadata(store.metadata())?;
        let tokenizer = timed("the tokenizer", || {
            Tokenizer::from_metadata(store.metadata())
        })?;
        let tokenizer = Arc::new(tokenizer);
        let own = ChatTemplate::from_metadata(store.metadata())?;
        let template = match own.or_else(|| template.and_then(ChatTemplate::named)) {
            Some(template) => Some(template),
            None => match ChatTemplate::for_model(store.metadata(), &tokenizer) {
                Ok(template) => Some(template),
                Err(TokenizerError::NoTemplate) => None,
                Err(error) => return Err(error.into()),
            },
        };
        Ok(ModelFile {
            store,
            config,
            tokenizer,
            template,
            place: None,
        })
    }

    /// Has packed weights mapped from `place` where they are there, and handed back by [`ModelFile::load`] to be written there where they are not.
    pub fn keep_packed(mut self, place: Option<Place>) -> ModelFile {
        self.place = place;
        self
    }

    /// sha256 of the tokenizer in hex.
    pub fn tokenizer_digest(&self) -> &str {
        self.tokenizer.digest()
    }

    /// sha256 of the chat template in hex; `None` where the file has no template.
    pub fn template_digest(&self) -> Option<&str> {
        self.template.as_ref().map(ChatTemplate::digest)
    }

    /// Bytes that the weights will take in memory.
    fn packed_bytes(&self) -> u64 {
        let of = |view: TensorView<'_>| match view.shape {
            [rows @ .., columns] if !rows.is_empty() => {
                Matrix::packed_bytes(view.quant, rows.iter().product(), *columns)
            }
            _ => 2 * view.bytes.len() as u64,
        };
        self.store.tensors().map(|(_, view)| of(view)).sum()
    }

    /// Decides how much memory the KV cache takes, before any weight is read.
    ///
    /// # Errors
    /// The memory is too small for a single page, or the exact path is asked to round keys and values.
    pub fn plan(&self, settings: &JudgeSettings) -> Result<Memory> {
        if settings.exact && settings.kv_type() != KvType::F32 {
            let name = settings.kv_type().name();
            bail!(
                "exact verdicts can't come of keys and values in {name}\nhint: leave out one of the two settings"
            );
        }
        let page = page_bytes(&self.config, settings.kv_type()).max(1) as u64;
        let free = free_memory();
        let weights = self.packed_bytes();
        // Where the system does not tell what is free, a gibibyte is a guess that hurts nobody.
        let default = || free.map_or(1 << 30, |free| cache_share(free.saturating_sub(weights)));
        let budget = settings.cache_bytes.unwrap_or_else(default);
        // More than twice what a full batch of the longest sequences holds would never be used well.
        let longest = self.config.context.div_ceil(PAGE);
        let most = longest
            .saturating_mul(settings.max_batch.max(1))
            .saturating_mul(2);
        let pages = usize::try_from(budget / page)
            .unwrap_or(usize::MAX)
            .min(most);
        if pages == 0 {
            bail!(
                "{budget} bytes are too few for a KV cache: one page of {PAGE} tokens takes {page} bytes\nhint: give \
                 more with --cache-memory, or use a smaller model"
            );
        }
        let cache = pages as u64 * page;
        Ok(Memory { free, cache, pages })
    }

    /// The model's file, or the first of several.
    pub fn path(&self) -> &Path {
        self.store
            .files()
            .first()
            .map_or(Path::new(""), PathBuf::as_path)
    }

    /// Bytes of the model's files.
    pub fn byte_len(&self) -> u64 {
        self.store.byte_len()
    }

    /// Reads the weights and sets up the engine. `progress` is told the bytes read and the bytes in all.
    ///
    /// # Errors
    /// The typed error of model or constraint.
    pub fn load(
        self,
        settings: &JudgeSettings,
        memory: &Memory,
        progress: Option<&dyn Fn(u64, u64)>,
    ) -> Result<Loaded> {
        let options = LoadOptions {
            precision: settings.precision(),
            cache: settings.kv_type(),
            pages: memory.pages,
            context: settings.context,
            progress,
        };
        // The vocabulary's tables are made while the weights are packed.
        let (decoder, frontend) = std::thread::scope(|scope| {
            let frontend = || {
                let frontend = timed("the vocabulary", || {
                    ModelFrontend::new(self.tokenizer, self.template)
                })?;
                if settings.grammars {
                    timed("grammar tables", || frontend.prepare())?;
                }
                Ok::<_, ConstrainError>(frontend)
            };
            let frontend = scope.spawn(frontend);
            let layouts = timed("mapping packed weights", || {
                self.place.as_ref().and_then(layouts)
            });
            let decoder = timed("the decoder", || {
                Decoder::load_with(&self.store, layouts.as_ref(), &options)
            });
            (decoder, frontend.join())
        });
        let (decoder, packing) = decoder?;
        let mapped = packing.fresh == 0;
        let unwritten = self.place.filter(|_| !mapped).map(|place| Unwritten {
            place,
            parts: packing.parts,
        });
        let frontend = match frontend {
            Ok(frontend) => frontend.context("constraints")?,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        let weight_bytes = decoder.weight_bytes();
        let engine_settings = EngineSettings {
            max_batch: settings.max_batch,
            max_batch_tokens: EngineSettings::default()
                .max_batch_tokens
                .max(settings.max_batch),
            prefill_chunk: settings.prefill_chunk,
            prefix_cache: settings.prefix_cache,
        };
        Ok(Loaded {
            engine: Engine::new(Box::new(decoder), Box::new(frontend), engine_settings),
            weight_bytes,
            mapped,
            unwritten,
        })
    }
}

/// Tells those who ask for it (`-vv`) how long a part of the start takes.
fn timed<T>(what: &str, part: impl FnOnce() -> T) -> T {
    let began = Instant::now();
    let made = part();
    let milliseconds = began.elapsed().as_millis() as u64;
    tracing::debug!(milliseconds, "start: {what}");
    made
}

/// The packed weights that are there; without them they are packed, and why is worth no more than a line for who asks.
fn layouts(place: &Place) -> Option<Layouts> {
    match Layouts::open(place) {
        Ok(layouts) => Some(layouts),
        Err(reason @ LayoutError::Absent { .. }) => {
            tracing::debug!("no packed weights: {reason}");
            None
        }
        Err(reason @ LayoutError::Damaged { .. }) => {
            tracing::warn!("packed weights are damaged, and are packed anew: {reason}");
            None
        }
        Err(reason) => {
            tracing::info!("packed weights are not used: {reason}");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::weights::manifest;

    #[test]
    fn templates_that_manifests_name_exist() {
        let named: Vec<&str> = manifest::all()
            .iter()
            .filter_map(|manifest| manifest.template.as_deref())
            .collect();
        assert!(!named.is_empty());
        for name in named {
            assert!(ChatTemplate::named(name).is_some(), "{name}");
        }
    }
}
