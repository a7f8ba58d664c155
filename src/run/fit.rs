//! How a model is to lie on a device, from the device's memory and from what is asked of it. Knows no device.

use crate::model::batch::PAGE;
use crate::model::cache::{KvType, page_bytes};
use crate::model::config::Config;
use crate::model::placement::{Plan, pass_bytes};
use crate::weights::Store;

/// What the driver's context, cuBLAS's workspace and the gaps between tensors take.
const RESERVE: u64 = 1 << 30;

/// The least number of tokens that a cache must hold to be of use.
const USEFUL: usize = 2048;

/// Sequences in a batch up to which decoding waits for weights to be read, so that fewer bytes count for more than faster products.
const FEW: usize = 8;

/// What is asked of a device.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    /// Bytes that are free on it.
    pub free: u64,
    /// The plan, where one was asked for.
    pub plan: Option<Plan>,
    /// Most sequences in a batch.
    pub sequences: usize,
    /// Most rows in a pass.
    pub rows: usize,
    /// Memory for keys and values, where it was given.
    pub cache: Option<u64>,
    /// More pages than this are of no use.
    pub most_pages: usize,
}

/// What a device is to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fit {
    /// How the weights lie.
    pub plan: Plan,
    /// Their bytes.
    pub weights: u64,
    /// Bytes that a pass takes.
    pub pass: u64,
    /// Bytes of keys and values.
    pub cache: u64,
    /// Pages of them.
    pub pages: usize,
}

/// Why a model can't lie on a device: the arithmetic.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the model is larger than the device's free memory: weights {weights} ({plan}), a pass {pass}, driver and libraries {reserve}, keys and values of \
     {tokens} tokens {cache}, together {sum}; free are {free}",
    weights = gib(*weights),
    plan = plan.name(),
    pass = gib(*pass),
    reserve = gib(RESERVE),
    cache = gib(*cache),
    sum = gib(weights.saturating_add(*pass).saturating_add(*cache).saturating_add(RESERVE)),
    free = gib(*free)
)]
pub struct TooLarge {
    /// The plan.
    pub plan: Plan,
    /// Bytes of the weights.
    pub weights: u64,
    /// Bytes of a pass.
    pub pass: u64,
    /// Tokens that the cache would have to hold.
    pub tokens: usize,
    /// Bytes of their keys and values.
    pub cache: u64,
    /// Bytes that are free.
    pub free: u64,
}

fn gib(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / (1u64 << 30) as f64)
}

/// Decides how the model lies, and how many pages its cache has. Without a plan that was asked for, weights are dense where they fit beside a full
/// batch's keys and values and batches are large enough to wait for products.
///
/// # Errors
/// [`TooLarge`], for the plan that was asked for, or else for the smaller one.
pub fn fit(store: &Store, config: &Config, wish: &Wish) -> Result<Fit, TooLarge> {
    let full = wish
        .sequences
        .max(1)
        .saturating_mul(config.context.min(USEFUL));
    let plan = wish.plan.unwrap_or_else(|| {
        let dense = Sizes::of(Plan::Dense, store, config, wish);
        match wish.sequences > FEW && dense.left(full, wish).is_some() {
            true => Plan::Dense,
            false => Plan::Quantized,
        }
    });
    let sizes = Sizes::of(plan, store, config, wish);
    let least = config.context.min(USEFUL);
    let Some(left) = sizes.left(least, wish) else {
        return Err(TooLarge {
            plan,
            weights: sizes.weights,
            pass: sizes.pass,
            tokens: least,
            cache: sizes.cache(least),
            free: wish.free,
        });
    };
    // A tenth stays free: what other programs take in the meantime, and what allocation wastes.
    let budget = wish.cache.unwrap_or(left / 10 * 9).min(left);
    let pages = usize::try_from(budget / sizes.page).unwrap_or(usize::MAX);
    let pages = pages.min(wish.most_pages).max(1);
    Ok(Fit {
        plan,
        weights: sizes.weights,
        pass: sizes.pass,
        cache: pages as u64 * sizes.page,
        pages,
    })
}

struct Sizes {
    weights: u64,
    pass: u64,
    page: u64,
}

impl Sizes {
    fn of(plan: Plan, store: &Store, config: &Config, wish: &Wish) -> Sizes {
        // While weights are brought there, the largest of them lies there twice more, in single precision and as it was.
        let loading = plan.loading_bytes(store);
        Sizes {
            weights: plan.weight_bytes(store),
            pass: pass_bytes(config, wish.rows, wish.sequences).max(loading),
            page: page_bytes(config, KvType::Bf16).max(1) as u64,
        }
    }

    fn cache(&self, tokens: usize) -> u64 {
        (tokens.div_ceil(PAGE) as u64).saturating_mul(self.page)
    }

    /// What is left for keys and values, where it holds those of so many tokens.
    fn left(&self, tokens: usize, wish: &Wish) -> Option<u64> {
        let taken = self
            .weights
            .saturating_add(self.pass)
            .saturating_add(RESERVE);
        let left = wish.free.checked_sub(taken)?;
        (left >= self.cache(tokens)).then_some(left)
    }
}
