//! Kernels of assize.

/// How the weights of a tensor are stored: the tensor types of GGUF that assize reads.
#[allow(missing_docs, non_camel_case_types)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Quant {
    F32,
    F16,
    BF16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q2_K,
    Q3_K,
    Q4_K,
    Q5_K,
    Q6_K,
}

impl Quant {
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
}
