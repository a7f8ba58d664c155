//! Causal attention of a ragged batch over the pages of its sequences.

use super::cache::LayerCache;
use super::linear::{Linear, forward_many};
use super::norm::Norm;
use super::rope::Rotation;
use assize_kernels::RopeStyle;
use assize_kernels::bridge::{self, Pass, Scoring};
use candle_core::{Result, Tensor};

/// The attention of a layer.
pub(super) struct Attention {
    /// `[heads · head_dim, hidden]`
    pub(super) query: Linear,
    /// `[kv_heads · head_dim, hidden]`
    pub(super) key: Linear,
    /// `[kv_heads · head_dim, hidden]`
    pub(super) value: Linear,
    /// `[hidden, heads · head_dim]`
    pub(super) output: Linear,
    /// Over each head of the queries, before they are turned.
    pub(super) query_norm: Option<Norm>,
    /// Over each head of the keys, before they are turned.
    pub(super) key_norm: Option<Norm>,
    /// Query heads.
    pub(super) heads: usize,
    /// Key and value heads.
    pub(super) kv_heads: usize,
    /// Width of a head.
    pub(super) head_dim: usize,
    /// Pairing of the turned values.
    pub(super) style: RopeStyle,
    /// Factor of the scores.
    pub(super) scale: f32,
    /// Positions that a row sees, itself included; all before it where absent.
    pub(super) window: Option<usize>,
    /// Soft cap of the scores.
    pub(super) soft_cap: Option<f32>,
}

/// The rows of a pass that attend, where these are not all: their indices `[R]` in the batch, and their own rotation.
pub(super) struct Asking {
    /// `[R]`, ascending
    pub(super) indices: Tensor,
    /// Of the rows that attend.
    pub(super) rotation: Rotation,
    /// Of the rows that attend, counted among themselves.
    pub(super) pass: Pass,
}

impl Attention {
    /// Norms the rows, caches keys and values of all, then lets the rows attend: `[T, hidden]` → `[T, hidden]`, or `[R, hidden]`
    /// where only the rows of `asking` are needed further on; plus the `residual` of that shape, where there is one.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn forward(
        &self,
        x: &Tensor,
        norm: &Norm,
        residual: Option<&Tensor>,
        rotation: &Rotation,
        pass: &Pass,
        asking: Option<&Asking>,
        cache: &LayerCache,
    ) -> Result<Tensor> {
        let (queries, keys, values) = match asking {
            None => {
                let [queries, keys, values] =
                    forward_many(x, norm, [&self.query, &self.key, &self.value])?;
                (queries, keys, values)
            }
            Some(asking) => {
                let [keys, values] = forward_many(x, norm, [&self.key, &self.value])?;
                (
                    (self.query).forward(&x.index_select(&asking.indices, 0)?, Some(norm), None)?,
                    keys,
                    values,
                )
            }
        };
        let (query_rotation, attending) = match asking {
            None => (rotation, pass),
            Some(asking) => (&asking.rotation, &asking.pass),
        };
        self.keep(keys, values, rotation, pass, cache)?;

        let queries = self.turned(
            queries,
            self.heads,
            self.query_norm.as_ref(),
            query_rotation,
        )?; // [R, heads, head_dim]
        let scoring = Scoring {
            scale: self.scale,
            window: self.window,
            soft_cap: self.soft_cap,
        };
        let attended = bridge::attention(
            &queries,
            [&cache.keys, &cache.values],
            attending,
            scoring,
            self.output.weight.activations(),
        )?; // [R, heads · head_dim]
        self.output.forward(&attended, None, residual)
    }

    /// Caches keys and values of rows of which none is needed further on.
    pub(super) fn remember(
        &self,
        x: &Tensor,
        norm: &Norm,
        rotation: &Rotation,
        pass: &Pass,
        cache: &LayerCache,
    ) -> Result<()> {
        let [keys, values] = forward_many(x, norm, [&self.key, &self.value])?;
        self.keep(keys, values, rotation, pass, cache)
    }

    /// Turns new keys, and writes both to the cache.
    fn keep(
        &self,
        keys: Tensor,
        values: Tensor,
        rotation: &Rotation,
        pass: &Pass,
        cache: &LayerCache,
    ) -> Result<()> {
        let keys = self.turned(keys, self.kv_heads, self.key_norm.as_ref(), rotation)?; // [T, kv_heads, head_dim]
        let values = values.reshape(((), self.kv_heads, self.head_dim))?; // [T, kv_heads, head_dim]
        cache.write(&keys, &values, pass)
    }

    /// `[T, n · head_dim]` → `[T, n, head_dim]`, normed and turned.
    fn turned(
        &self,
        x: Tensor,
        heads: usize,
        norm: Option<&Norm>,
        rotation: &Rotation,
    ) -> Result<Tensor> {
        let x = x.reshape(((), heads, self.head_dim))?;
        let x = match norm {
            Some(norm) => norm.forward(&x)?,
            None => x,
        };
        bridge::rope(&x, &rotation.cos, &rotation.sin, self.style)
    }
}
