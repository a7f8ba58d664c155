//! The small vocabulary of the kernels: kinds of weights, precision, activation, rope pairing, and a span of rows.
//! Knows no arithmetic.

/// Tokens in a page of the KV cache. Also the number of lanes of a vector, so a page's scores fill one.
pub const PAGE: usize = 16;

/// How the weights of a tensor are stored: the tensor types of GGUF that assize reads.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Quant {
    /// IEEE single precision.
    F32,
    /// IEEE half precision.
    F16,
    /// The upper half of single precision.
    BF16,
    /// 4-bit codes around 8, one half-precision scale per 32.
    Q4_0,
    /// 4-bit codes, a half-precision scale and offset per 32.
    Q4_1,
    /// 5-bit codes around 16, one half-precision scale per 32.
    Q5_0,
    /// 5-bit codes, a half-precision scale and offset per 32.
    Q5_1,
    /// Signed 8-bit codes, one half-precision scale per 32.
    Q8_0,
    /// 2-bit codes, a 4-bit scale and minimum per 16, in blocks of 256.
    Q2_K,
    /// 3-bit codes around 4, a 6-bit scale per 16, in blocks of 256.
    Q3_K,
    /// 4-bit codes, a 6-bit scale and minimum per 32, in blocks of 256.
    Q4_K,
    /// 5-bit codes, a 6-bit scale and minimum per 32, in blocks of 256.
    Q5_K,
    /// 6-bit codes around 32, an 8-bit scale per 16, in blocks of 256.
    Q6_K,
}

impl Quant {
    /// All of them.
    pub const ALL: [Quant; 13] = [
        Quant::F32,
        Quant::F16,
        Quant::BF16,
        Quant::Q4_0,
        Quant::Q4_1,
        Quant::Q5_0,
        Quant::Q5_1,
        Quant::Q8_0,
        Quant::Q2_K,
        Quant::Q3_K,
        Quant::Q4_K,
        Quant::Q5_K,
        Quant::Q6_K,
    ];

    /// The type that GGUF numbers `id`, if assize reads it.
    pub fn from_ggml(id: u32) -> Option<Quant> {
        Some(match id {
            0 => Quant::F32,
            1 => Quant::F16,
            2 => Quant::Q4_0,
            3 => Quant::Q4_1,
            6 => Quant::Q5_0,
            7 => Quant::Q5_1,
            8 => Quant::Q8_0,
            10 => Quant::Q2_K,
            11 => Quant::Q3_K,
            12 => Quant::Q4_K,
            13 => Quant::Q5_K,
            14 => Quant::Q6_K,
            30 => Quant::BF16,
            _ => return None,
        })
    }

    /// Weights in a block.
    pub fn block(self) -> usize {
        match self {
            Quant::F32 | Quant::F16 | Quant::BF16 => 1,
            Quant::Q4_0 | Quant::Q4_1 | Quant::Q5_0 | Quant::Q5_1 | Quant::Q8_0 => 32,
            Quant::Q2_K | Quant::Q3_K | Quant::Q4_K | Quant::Q5_K | Quant::Q6_K => 256,
        }
    }

    /// Bytes of a block.
    pub fn block_bytes(self) -> usize {
        match self {
            Quant::F32 => 4,
            Quant::F16 | Quant::BF16 => 2,
            Quant::Q4_0 => 18,
            Quant::Q4_1 => 20,
            Quant::Q5_0 => 22,
            Quant::Q5_1 => 24,
            Quant::Q8_0 => 34,
            Quant::Q2_K => 84,
            Quant::Q3_K => 110,
            Quant::Q4_K => 144,
            Quant::Q5_K => 176,
            Quant::Q6_K => 210,
        }
    }

    /// Bytes of a row of `columns` weights; `None` where it is no whole number of blocks, or too long to count.
    pub fn row_bytes(self, columns: usize) -> Option<usize> {
        if !columns.is_multiple_of(self.block()) {
            return None;
        }
        (columns / self.block()).checked_mul(self.block_bytes())
    }
}

/// How a product with quantized weights is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Precision {
    /// Activations in 8 bits with a scale per 64, or per 32 where weights come in blocks of 32; integer products. Weights in floating point are
    /// always [`Precision::Exact`].
    Quantized,
    /// As [`Precision::Quantized`], and what the 8 bits leave over in another 8 bits: integer products too, twice as many.
    Refined,
    /// Activations and weights in single precision.
    Exact,
}

/// How keys, or values, lie in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CacheType {
    /// In single precision.
    F32,
    /// In half precision.
    F16,
    /// In 8 bits, with a scale in half precision for every 32 dimensions of each position and head.
    Q8,
    /// The upper halves of singles, on a device: `[PAGE, dim]` for keys and values alike.
    Bf16,
}

impl CacheType {
    /// Bytes that a head of `dim` dimensions takes in a page, of its keys or of its values; `None` where they are too many to count.
    pub fn head_bytes(self, dim: usize) -> Option<usize> {
        match self {
            CacheType::F32 => dim.checked_mul(4 * PAGE),
            CacheType::F16 | CacheType::Bf16 => dim.checked_mul(2 * PAGE),
            CacheType::Q8 => crate::codes::words(dim)?.checked_mul(4),
        }
    }
}

/// The function of a gated unit: `activation(gate) * up`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Activation {
    /// `x / (1 + exp(-x))`.
    Silu,
    /// `x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))`.
    GeluTanh,
}

/// Which two dimensions of a head a rotary embedding turns together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RopeStyle {
    /// Dimension `i` with `i + r / 2`.
    Neox,
    /// Dimension `2 i` with `2 i + 1`.
    Normal,
}

/// The rows of one sequence in a batch, and the pages that hold its context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// First row of the batch that is this sequence's.
    pub first: usize,
    /// Number of rows.
    pub rows: usize,
    /// Position of the first row in its sequence; the rows are consecutive.
    pub position: usize,
    /// The sequence's pages in order: position `p` lies in `pages[p / PAGE]` at `p % PAGE`. Covers every row.
    pub pages: Vec<u32>,
}
