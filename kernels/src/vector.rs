//! Sixteen lanes of numbers, and what one instruction set must do with them. Knows no operation of the decoder.
//!
//! An implementation is a value that exists only where the machine has its instructions, so that its methods are safe to call.
//! Every method is an exactly defined IEEE or integer operation a lane: two implementations give the same bits. [`Portable`] is the
//! definition, in plain Rust.

use half::f16;

/// Lanes of a vector.
pub const LANES: usize = 16;

/// A cache line of sixteen floats.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct Floats(pub [f32; LANES]);

/// A cache line of packed weights: sixteen words. What else lies in a word counts from its low end: four bytes, or two halves.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct Line(pub [u32; LANES]);

/// An instruction set's vectors of sixteen lanes.
pub trait Vector: Copy + Send + Sync + 'static {
    /// Sums of sixteen lanes that a product may keep in registers: 24, 6 or, where there are no such registers, 1.
    const SUMS: usize;

    /// Sixteen f32.
    type F: Copy;
    /// Sixteen i32, or sixteen times four bytes.
    type I: Copy;

    /// `x` in every lane.
    fn splat(self, x: f32) -> Self::F;
    /// Reads sixteen numbers.
    fn load(self, from: &[f32; LANES]) -> Self::F;
    /// Writes sixteen numbers.
    fn store(self, x: Self::F, to: &mut [f32; LANES]);
    /// Asks for the memory at `_from`, which will be read soon. Nothing else comes of it.
    #[inline(always)]
    fn fetch<T>(self, _from: &T) {}
    /// Reads sixteen numbers in half precision.
    fn load_half(self, from: &[f16; LANES]) -> Self::F;
    /// Reads sixteen numbers that are the upper halves of singles.
    fn load_upper(self, from: &[u16; LANES]) -> Self::F;
    /// Reads sixteen numbers in half precision, two to a word.
    fn load_halves(self, from: &[u32; LANES / 2]) -> Self::F;
    /// Reads sixteen signed bytes, four to a word, as numbers.
    fn load_signed(self, from: &[u32; LANES / 4]) -> Self::F;
    /// `a + b`.
    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a - b`.
    fn sub(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a * b`.
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a / b`.
    fn div(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a * b + c`, rounded once.
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// `a` where it is greater, else `b`: so `b` where either is NaN.
    fn max(self, a: Self::F, b: Self::F) -> Self::F;
    /// `yes` where `a <= b`, else (also where either is NaN) `no`.
    fn select_le(self, a: Self::F, b: Self::F, yes: Self::F, no: Self::F) -> Self::F;

    /// `x` in every lane.
    fn splat_int(self, x: i32) -> Self::I;
    /// Reads a line.
    fn load_line(self, from: &Line) -> Self::I;
    /// As [`Vector::fetch`], for a line that will be read a while later: nearer than memory is near enough, so that it displaces nothing that is in use.
    fn prefetch(self, line: &Line);
    /// Writes a line.
    fn store_line(self, x: Self::I, to: &mut Line);
    /// Every lane moved up by `n` bits, below 32; a constant `n` is best.
    fn shift_left(self, x: Self::I, n: u32) -> Self::I;
    /// Every lane moved down by `n` bits, below 32, zeros coming in; a constant `n` is best.
    fn shift_right(self, x: Self::I, n: u32) -> Self::I;
    /// Those bits of `a` that are in `b` too.
    fn and(self, a: Self::I, b: Self::I) -> Self::I;
    /// The bits of both.
    fn or(self, a: Self::I, b: Self::I) -> Self::I;
    /// `a + b`, byte by byte, without carrying.
    fn add_bytes(self, a: Self::I, b: Self::I) -> Self::I;
    /// `a - b`, byte by byte, without borrowing.
    fn sub_bytes(self, a: Self::I, b: Self::I) -> Self::I;
    /// Adds to each lane the four products of its unsigned bytes in `x` with its signed bytes in `w`. Exact: nothing saturates.
    fn dot(self, sum: Self::I, x: Self::I, w: Self::I) -> Self::I;
    /// As [`Vector::dot`], where every byte of `w` is known to lie from -64 to 63.
    fn dot_narrow(self, sum: Self::I, x: Self::I, w: Self::I) -> Self::I;
    /// To f32, rounded to nearest even.
    fn to_float(self, x: Self::I) -> Self::F;
    /// Numbers from 0 to 255, rounded to nearest even, as bytes, four to a word.
    fn to_bytes(self, x: Self::F) -> [u32; LANES / 4];
    /// `x * 2^n`, by adding the low bits of `n`'s representation to the exponent of `x`; the result must be a normal number.
    fn add_exponent(self, x: Self::F, n: Self::F) -> Self::F;

    /// `-x`.
    #[inline(always)]
    fn negate(self, x: Self::F) -> Self::F {
        self.mul(x, self.splat(-1.0))
    }

    /// The sum of all lanes: those eight apart first, then four, two and one.
    #[inline(always)]
    fn sum(self, x: Self::F) -> f32 {
        let mut lanes = [0f32; LANES];
        self.store(x, &mut lanes);
        for step in [8, 4, 2, 1] {
            for i in 0..step {
                lanes[i] += lanes[i + step];
            }
        }
        lanes[0]
    }

    /// The largest lane; one of them where there is NaN.
    #[inline(always)]
    fn top(self, x: Self::F) -> f32 {
        let mut lanes = [0f32; LANES];
        self.store(x, &mut lanes);
        for step in [8, 4, 2, 1] {
            for i in 0..step {
                lanes[i] = if lanes[i] > lanes[i + step] {
                    lanes[i]
                } else {
                    lanes[i + step]
                };
            }
        }
        lanes[0]
    }
}

/// The definition, in plain Rust. Right everywhere, and slow.
#[derive(Clone, Copy, Debug)]
pub struct Portable;

#[inline(always)]
fn zip(a: [f32; LANES], b: [f32; LANES], f: impl Fn(f32, f32) -> f32) -> [f32; LANES] {
    std::array::from_fn(|i| f(a[i], b[i]))
}

#[inline(always)]
fn zip_bytes(a: [i32; LANES], b: [i32; LANES], f: impl Fn(u8, u8) -> u8) -> [i32; LANES] {
    std::array::from_fn(|i| {
        let (a, b) = (a[i].to_le_bytes(), b[i].to_le_bytes());
        i32::from_le_bytes(std::array::from_fn(|j| f(a[j], b[j])))
    })
}

impl Vector for Portable {
    const SUMS: usize = 1;

    type F = [f32; LANES];
    type I = [i32; LANES];

    #[inline(always)]
    fn splat(self, x: f32) -> Self::F {
        [x; LANES]
    }

    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> Self::F {
        *from
    }

    #[inline(always)]
    fn store(self, x: Self::F, to: &mut [f32; LANES]) {
        *to = x;
    }

    #[inline(always)]
    fn load_half(self, from: &[f16; LANES]) -> Self::F {
        from.map(f16::to_f32)
    }

    #[inline(always)]
    fn load_upper(self, from: &[u16; LANES]) -> Self::F {
        from.map(|bits| f32::from_bits(u32::from(bits) << 16))
    }

    #[inline(always)]
    fn load_halves(self, from: &[u32; LANES / 2]) -> Self::F {
        std::array::from_fn(|i| f16::from_bits((from[i / 2] >> (16 * (i % 2))) as u16).to_f32())
    }

    #[inline(always)]
    fn load_signed(self, from: &[u32; LANES / 4]) -> Self::F {
        std::array::from_fn(|i| f32::from((from[i / 4] >> (8 * (i % 4))) as i8))
    }

    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |a, b| a + b)
    }

    #[inline(always)]
    fn sub(self, a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |a, b| a - b)
    }

    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |a, b| a * b)
    }

    #[inline(always)]
    fn div(self, a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |a, b| a / b)
    }

    #[inline(always)]
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        std::array::from_fn(|i| a[i].mul_add(b[i], c[i]))
    }

    #[inline(always)]
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |a, b| if a > b { a } else { b })
    }

    #[inline(always)]
    fn select_le(self, a: Self::F, b: Self::F, yes: Self::F, no: Self::F) -> Self::F {
        std::array::from_fn(|i| if a[i] <= b[i] { yes[i] } else { no[i] })
    }

    #[inline(always)]
    fn splat_int(self, x: i32) -> Self::I {
        [x; LANES]
    }

    #[inline(always)]
    fn load_line(self, from: &Line) -> Self::I {
        from.0.map(u32::cast_signed)
    }

    #[inline(always)]
    fn prefetch(self, _: &Line) {}

    #[inline(always)]
    fn store_line(self, x: Self::I, to: &mut Line) {
        to.0 = x.map(i32::cast_unsigned);
    }

    #[inline(always)]
    fn shift_left(self, x: Self::I, n: u32) -> Self::I {
        x.map(|x| x << n)
    }

    #[inline(always)]
    fn shift_right(self, x: Self::I, n: u32) -> Self::I {
        x.map(|x| (x.cast_unsigned() >> n).cast_signed())
    }

    #[inline(always)]
    fn and(self, a: Self::I, b: Self::I) -> Self::I {
        std::array::from_fn(|i| a[i] & b[i])
    }

    #[inline(always)]
    fn or(self, a: Self::I, b: Self::I) -> Self::I {
        std::array::from_fn(|i| a[i] | b[i])
    }

    #[inline(always)]
    fn add_bytes(self, a: Self::I, b: Self::I) -> Self::I {
        zip_bytes(a, b, u8::wrapping_add)
    }

    #[inline(always)]
    fn sub_bytes(self, a: Self::I, b: Self::I) -> Self::I {
        zip_bytes(a, b, u8::wrapping_sub)
    }

    #[inline(always)]
    fn dot(self, sum: Self::I, x: Self::I, w: Self::I) -> Self::I {
        std::array::from_fn(|i| {
            let (x, w) = (x[i].to_le_bytes(), w[i].to_le_bytes());
            let products = x
                .iter()
                .zip(w)
                .map(|(x, w)| i32::from(*x) * i32::from(w as i8));
            sum[i].wrapping_add(products.sum())
        })
    }

    #[inline(always)]
    fn dot_narrow(self, sum: Self::I, x: Self::I, w: Self::I) -> Self::I {
        self.dot(sum, x, w)
    }

    #[inline(always)]
    fn to_float(self, x: Self::I) -> Self::F {
        x.map(|x| x as f32)
    }

    #[inline(always)]
    fn to_bytes(self, x: Self::F) -> [u32; LANES / 4] {
        let byte = |x: f32| x.round_ties_even() as u8;
        std::array::from_fn(|i| {
            u32::from_le_bytes([
                byte(x[4 * i]),
                byte(x[4 * i + 1]),
                byte(x[4 * i + 2]),
                byte(x[4 * i + 3]),
            ])
        })
    }

    #[inline(always)]
    fn add_exponent(self, x: Self::F, n: Self::F) -> Self::F {
        std::array::from_fn(|i| f32::from_bits(x[i].to_bits().wrapping_add(n[i].to_bits() << 23)))
    }
}
