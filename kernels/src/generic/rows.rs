//! Norm, rope, gated units and soft cap over slices. The arguments' lengths fit; that is checked by what calls them.

use super::number::{activate, load, soft_cap, store};
use crate::activations::{Group, quantize};
use crate::dispatch::Operation;
use crate::pack::GROUP;
use crate::vector::{LANES, Vector};
use crate::{Activation, RopeStyle};

/// Root-mean-square norm of rows of `weight.len()`.
pub struct RmsNorm<'a> {
    /// The rows.
    pub x: &'a [f32],
    /// What each element is multiplied with.
    pub weight: &'a [f32],
    /// Added to the mean square.
    pub eps: f32,
    /// As `x`.
    pub out: &'a mut [f32],
}

impl Operation for RmsNorm<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self, v: V) {
        let columns = self.weight.len();
        for (x, out) in self
            .x
            .chunks_exact(columns)
            .zip(self.out.chunks_exact_mut(columns))
        {
            // Four sums side by side, each of every fourth vector, keep both the waiting and the rounding short.
            let mut sums = [v.splat(0.0); 4];
            for (i, part) in x.chunks(LANES).enumerate() {
                let part = load(v, part);
                sums[i % 4] = v.fma(part, part, sums[i % 4]);
            }
            let total = v.sum(v.add(v.add(sums[0], sums[1]), v.add(sums[2], sums[3])));
            let scale = v.splat(1.0 / (total / columns as f32 + self.eps).sqrt());
            let parts = x.chunks(LANES).zip(self.weight.chunks(LANES));
            for ((x, weight), out) in parts.zip(out.chunks_mut(LANES)) {
                store(v, v.mul(v.mul(load(v, x), scale), load(v, weight)), out);
            }
        }
    }
}

/// Rotary embedding of heads of `dim`, all of one row, in place.
pub struct Rope<'a> {
    /// The heads.
    pub heads: &'a mut [f32],
    /// Dimensions of a head.
    pub dim: usize,
    /// Cosines of the row's angles.
    pub cos: &'a [f32],
    /// Sines of the row's angles.
    pub sin: &'a [f32],
    /// Which dimensions go together.
    pub style: RopeStyle,
}

impl Operation for Rope<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self, v: V) {
        let pairs = self.cos.len();
        for head in self.heads.chunks_exact_mut(self.dim) {
            match self.style {
                RopeStyle::Neox => {
                    let (low, high) = head[..2 * pairs].split_at_mut(pairs);
                    let angles = self.cos.chunks(LANES).zip(self.sin.chunks(LANES));
                    for ((low, high), (cos, sin)) in low
                        .chunks_mut(LANES)
                        .zip(high.chunks_mut(LANES))
                        .zip(angles)
                    {
                        let (a, b) = (load(v, low), load(v, high));
                        let (cos, sin) = (load(v, cos), load(v, sin));
                        store(v, v.fma(a, cos, v.negate(v.mul(b, sin))), low);
                        store(v, v.fma(b, cos, v.mul(a, sin)), high);
                    }
                }
                RopeStyle::Normal => {
                    let (head, _) = head[..2 * pairs].as_chunks_mut::<2>();
                    for ((pair, cos), sin) in head.iter_mut().zip(self.cos).zip(self.sin) {
                        let [a, b] = *pair;
                        *pair = [a.mul_add(*cos, -(b * sin)), b.mul_add(*cos, a * sin)];
                    }
                }
            }
        }
    }
}

/// `activation(gate) * up`.
pub struct Gated<'a> {
    /// What the function is of.
    pub gate: &'a [f32],
    /// What it is multiplied with.
    pub up: &'a [f32],
    /// The function.
    pub activation: Activation,
    /// As `gate`.
    pub out: &'a mut [f32],
}

impl Operation for Gated<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self, v: V) {
        let parts = self.gate.chunks(LANES).zip(self.up.chunks(LANES));
        for ((gate, up), out) in parts.zip(self.out.chunks_mut(LANES)) {
            store(
                v,
                v.mul(activate(v, load(v, gate), self.activation), load(v, up)),
                out,
            );
        }
    }
}

/// `a + b`.
pub struct Add<'a> {
    /// One.
    pub a: &'a [f32],
    /// The other.
    pub b: &'a [f32],
    /// As both.
    pub out: &'a mut [f32],
}

impl Operation for Add<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self, v: V) {
        let parts = self.a.chunks(LANES).zip(self.b.chunks(LANES));
        for ((a, b), out) in parts.zip(self.out.chunks_mut(LANES)) {
            store(v, v.add(load(v, a), load(v, b)), out);
        }
    }
}

/// `activation(gate) * up` of a group of 64, quantized.
pub struct GateGroup<'a> {
    /// The two halves of what the function is of.
    pub gates: [&'a [f32; 2 * LANES]; 2],
    /// The two halves of what it is multiplied with.
    pub ups: [&'a [f32; 2 * LANES]; 2],
    /// How many of the 64 there are: 32 or 64.
    pub count: usize,
    /// The function.
    pub activation: Activation,
    /// Whether every 32 get their own scale.
    pub fine: bool,
}

impl Operation for GateGroup<'_> {
    type Output = Group;

    #[inline(always)]
    fn run<V: Vector>(self, v: V) -> Group {
        let mut values = [0f32; GROUP];
        let (parts, _) = values.as_chunks_mut::<LANES>();
        for (i, to) in parts.iter_mut().enumerate() {
            // Where the second half is not there, the first one again, so that the extremes stay.
            let half = if self.count == GROUP { i / 2 } else { 0 };
            let gate = v.load(&self.gates[half].as_chunks::<LANES>().0[i % 2]);
            let up = v.load(&self.ups[half].as_chunks::<LANES>().0[i % 2]);
            v.store(v.mul(activate(v, gate, self.activation), up), to);
        }
        quantize(v, &values, self.count, self.fine)
    }
}

/// `cap * tanh(x / cap)`.
pub struct SoftCap<'a> {
    /// What is bent.
    pub x: &'a [f32],
    /// What it stays within.
    pub cap: f32,
    /// As `x`.
    pub out: &'a mut [f32],
}

impl Operation for SoftCap<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self, v: V) {
        for (x, out) in self.x.chunks(LANES).zip(self.out.chunks_mut(LANES)) {
            store(v, soft_cap(v, load(v, x), v.splat(self.cap)), out);
        }
    }
}
