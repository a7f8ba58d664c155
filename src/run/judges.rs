//! From a model file to an engine that answers.
//!
//! Opens the file once: tokenizer and template first, so that what can be refused is refused before weights are read.

use super::devices::Place;
use super::fit::{Fit, Wish, fit};
use super::settings::{cache_share, free_memory};
use crate::constrain::ConstrainError;
use crate::engine::frontend::ModelFrontend;
use crate::engine::{Engine, EngineSettings};
use crate::model::ModelError;
use crate::model::batch::PAGE;
use crate::model::cache::{KvType, page_bytes};
use crate::model::config::Config;
use crate::model::decoder::{Decoder, LoadOptions, Packing};
use crate::model::placement::{Placement, Plan};
use crate::tokenizer::{ChatTemplate, Tokenizer, TokenizerError};
use crate::weights::layouts::{self, LayoutError, Layouts, Unwritten};
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
    /// How weights lie on a device; decided from memory and batch size where absent.
    pub plan: Option<Plan>,
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
            plan: None,
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
    /// How the weights lie, where they lie on a device.
    pub plan: Option<Plan>,
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
    kept: Option<layouts::Place>,
    /// Where it is to compute.
    place: Place,
}

/// An engine and what it holds.
pub struct Loaded {
    /// Answers asks.
    pub engine: Engine,
    /// The engines of all other devices.
    pub others: Vec<Engine>,
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
            kept: None,
            place: Place::default(),
        })
    }

    /// Has packed weights mapped from `place` where they are there, and handed back by [`ModelFile::load`] to be written there where they are not.
    pub fn keep_packed(mut self, place: Option<layouts::Place>) -> ModelFile {
        self.kept = place;
        self
    }

    /// Has it compute there: on the processor, or on each of some devices.
    pub fn compute_on(mut self, place: Place) -> ModelFile {
        self.place = place;
        self
    }

    /// Where it is to compute.
    pub fn place(&self) -> &Place {
        &self.place
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
        // More than twice what a full batch of the longest sequences holds would never be used well.
        let longest = self.config.context.div_ceil(PAGE);
        let most = longest
            .saturating_mul(settings.max_batch.max(1))
            .saturating_mul(2);
        if let Some(free) = self.place.there.iter().map(|there| there.free).min() {
            return self.fit(settings, free, most);
        }
        let page = page_bytes(&self.config, settings.kv_type()).max(1) as u64;
        let free = free_memory();
        let weights = self.packed_bytes();
        // Where the system does not tell what is free, a gibibyte is a guess that hurts nobody.
        let default = || free.map_or(1 << 30, |free| cache_share(free.saturating_sub(weights)));
        let budget = settings.cache_bytes.unwrap_or_else(default);
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
        Ok(Memory {
            free,
            cache,
            pages,
            plan: None,
        })
    }

    /// The same for a device with so much free memory.
    fn fit(&self, settings: &JudgeSettings, free: u64, most_pages: usize) -> Result<Memory> {
        if settings.exact || settings.kv_type.is_some() {
            bail!(
                "a device computes with weights and cache of its own types\nhint: leave out --exact and --kv-type, or give --device cpu"
            );
        }
        let wish = Wish {
            free,
            plan: settings.plan,
            sequences: settings.max_batch,
            rows: rows_there(settings),
            cache: settings.cache_bytes,
            most_pages,
        };
        let Fit {
            plan, cache, pages, ..
        } = fit(&self.store, &self.config, &wish)?;
        Ok(Memory {
            free: Some(free),
            cache,
            pages,
            plan: Some(plan),
        })
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

    /// Reads the weights and sets up the engine, and one more for each further device. `progress` is told the bytes read and the bytes in all.
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
        let ModelFile {
            store,
            tokenizer,
            template,
            kept,
            place,
            ..
        } = self;
        // The vocabulary's tables are made while the weights are packed.
        let (decoders, frontend) = std::thread::scope(|scope| {
            let frontend = || {
                let frontend = timed("the vocabulary", || ModelFrontend::new(tokenizer, template))?;
                if settings.grammars {
                    timed("grammar tables", || frontend.prepare())?;
                }
                Ok::<_, ConstrainError>(frontend)
            };
            let frontend = scope.spawn(frontend);
            let decoders = match (place.there.as_slice(), memory.plan) {
                ([_, ..], Some(plan)) => timed("the decoders", || {
                    load_there(&store, &place, plan, &options)
                }),
                _ => {
                    let layouts =
                        timed("mapping packed weights", || kept.as_ref().and_then(layouts));
                    timed("the decoder", || {
                        let loaded = Decoder::load_with(&store, layouts.as_ref(), &options);
                        loaded.map(|(decoder, packing)| (vec![decoder], Some(packing)))
                    })
                }
            };
            (decoders, frontend.join())
        });
        let (decoders, packing) = decoders?;
        let mapped = packing.as_ref().is_some_and(|packing| packing.fresh == 0);
        let unwritten = match (kept, packing) {
            (Some(place), Some(packing)) if !mapped => Some(Unwritten {
                place,
                parts: packing.parts,
            }),
            _ => None,
        };
        let frontend = match frontend {
            Ok(frontend) => frontend.context("constraints")?,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        let frontend = Arc::new(frontend);
        let weight_bytes = decoders.iter().map(Decoder::weight_bytes).sum();
        let engine_settings = EngineSettings {
            max_batch: settings.max_batch,
            max_batch_tokens: match memory.plan {
                Some(_) => rows_there(settings),
                None => EngineSettings::default()
                    .max_batch_tokens
                    .max(settings.max_batch),
            },
            prefill_chunk: settings.prefill_chunk,
            prefix_cache: settings.prefix_cache,
        };
        let mut engines = decoders.into_iter().map(|decoder| {
            let frontend = Box::new(frontend.clone());
            Engine::new(Box::new(decoder), frontend, engine_settings)
        });
        let Some(engine) = engines.next() else {
            bail!("no decoder was loaded");
        };
        Ok(Loaded {
            engine,
            others: engines.collect(),
            weight_bytes,
            mapped,
            unwritten,
        })
    }
}

/// A decoder on each device.
fn load_there(
    store: &Store,
    place: &Place,
    plan: Plan,
    options: &LoadOptions<'_>,
) -> Result<(Vec<Decoder>, Option<Packing>), ModelError> {
    let decoders = place.there.iter().map(|there| {
        let placement = Placement::Device {
            device: there.device.clone(),
            plan,
        };
        Decoder::load_onto(store, &placement, options)
    });
    Ok((decoders.collect::<Result<_, _>>()?, None))
}

/// Rows of a pass on a device, which is slow where it has few.
pub(super) fn rows_there(settings: &JudgeSettings) -> usize {
    settings.max_batch.max(2048)
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
fn layouts(place: &layouts::Place) -> Option<Layouts> {
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
