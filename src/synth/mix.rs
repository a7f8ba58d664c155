//! Which tensor gets which type: one type for all matrices, or llama.cpp's mixes, whose rule is a fact that peers share, so
//! that a file of random weights is as large as the real one. Knows no bytes.

use super::SynthError;
use assize_kernels::Quant;

/// A choice of types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    /// One type for all matrices.
    Plain(Quant),
    /// Q4_K, with Q6_K for the head and for half of the values and the ways down.
    Q4KM,
    /// Q5_K, likewise.
    Q5KM,
}

/// What a matrix is for, as far as mixes care.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The embedding, where it is not the head too.
    Embedding,
    /// The output head.
    Head,
    /// Values, or a layer's way down: what rounding harms most. Holds the layer.
    Delicate(usize),
    /// Query, key and value in one tensor.
    Fused,
    /// Any other matrix.
    Other,
}

impl Mix {
    /// The mix or type of that name, in either case.
    ///
    /// # Errors
    /// [`SynthError::Unknown`].
    pub fn named(name: &str) -> Result<Mix, SynthError> {
        let same = |other: &str| other.eq_ignore_ascii_case(name);
        if same("Q4_K_M") {
            return Ok(Mix::Q4KM);
        }
        if same("Q5_K_M") {
            return Ok(Mix::Q5KM);
        }
        let plain = Quant::ALL
            .into_iter()
            .find(|quant| same(&format!("{quant:?}")));
        plain.map(Mix::Plain).ok_or_else(|| {
            let known: Vec<String> = Quant::ALL
                .iter()
                .map(|quant| format!("{quant:?}"))
                .collect();
            SynthError::Unknown {
                what: "quantization",
                name: name.into(),
                known: format!("Q4_K_M, Q5_K_M, {}", known.join(", ")),
            }
        })
    }

    /// The name.
    pub fn name(self) -> String {
        match self {
            Mix::Plain(quant) => format!("{quant:?}"),
            Mix::Q4KM => "Q4_K_M".into(),
            Mix::Q5KM => "Q5_K_M".into(),
        }
    }

    /// GGUF's number of the mix, for `general.file_type`.
    pub fn file_type(self) -> u64 {
        match self {
            Mix::Q4KM => 15,
            Mix::Q5KM => 17,
            Mix::Plain(quant) => match quant {
                Quant::F32 => 0,
                Quant::F16 => 1,
                Quant::Q4_0 => 2,
                Quant::Q4_1 => 3,
                Quant::Q8_0 => 7,
                Quant::Q5_0 => 8,
                Quant::Q5_1 => 9,
                Quant::Q2_K => 10,
                Quant::Q3_K => 12,
                Quant::Q4_K => 15,
                Quant::Q5_K => 17,
                Quant::Q6_K => 18,
                Quant::BF16 => 32,
            },
        }
    }

    /// The type of a matrix with rows of `columns`, in a model of `layers`. A plain type is taken at its word; a mix falls
    /// back to blocks of 32 where rows are no whole blocks of 256.
    ///
    /// # Errors
    /// [`SynthError::Shape`] where rows are no whole blocks of any type that would do.
    pub fn choose(
        self,
        name: &str,
        role: Role,
        columns: usize,
        layers: usize,
    ) -> Result<Quant, SynthError> {
        let (base, fused) = match self {
            Mix::Plain(quant) if columns.is_multiple_of(quant.block()) => return Ok(quant),
            Mix::Plain(quant) => {
                let block = quant.block();
                let mend = match block {
                    256 => {
                        "choose other sizes, or --quant Q4_K_M, which falls back to blocks of 32"
                    }
                    _ => "choose other sizes, or --quant F16",
                };
                return Err(SynthError::shape(
                    format!(
                        "{name}: rows of {columns} are no whole blocks of {block}, as {quant:?} has them"
                    ),
                    mend,
                ));
            }
            Mix::Q4KM => (Quant::Q4_K, Quant::Q5_K),
            Mix::Q5KM => (Quant::Q5_K, Quant::Q6_K),
        };
        let wanted = match role {
            Role::Head => Quant::Q6_K,
            Role::Delicate(layer) if more_bits(layer, layers) => Quant::Q6_K,
            Role::Fused => fused,
            Role::Embedding | Role::Delicate(_) | Role::Other => base,
        };
        if columns.is_multiple_of(wanted.block()) {
            return Ok(wanted);
        }
        let instead = match wanted {
            Quant::Q4_K => Quant::Q5_0,
            Quant::Q5_K => Quant::Q5_1,
            _ => Quant::Q8_0,
        };
        match columns.is_multiple_of(instead.block()) {
            true => Ok(instead),
            false => Err(SynthError::shape(
                format!("{name}: rows of {columns} are no whole blocks of 32"),
                "choose other sizes, or --quant F16",
            )),
        }
    }
}

/// Whether a layer's delicate matrices get more bits: the first and the last eighth, and every third between.
fn more_bits(layer: usize, layers: usize) -> bool {
    let eighth = layers / 8;
    layer < eighth || layer >= 7 * layers / 8 || (layer - eighth) % 3 == 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_delicate_ones_get_more_bits() {
        let count = |layers| {
            (0..layers)
                .filter(|layer| more_bits(*layer, layers))
                .count()
        };
        assert_eq!(
            (count(32), count(40), count(28), count(24)),
            (16, 20, 14, 12)
        );
        assert!(more_bits(0, 8) && !more_bits(1, 8) && more_bits(3, 8) && more_bits(7, 8));
    }

    #[test]
    fn types_of_matrices() {
        let check = |mix: &str, role, columns, expected| {
            let found = Mix::named(mix).unwrap().choose("m", role, columns, 32);
            assert_eq!(found.ok(), expected, "{mix} {role:?} {columns}");
        };
        check("Q4_K_M", Role::Other, 4096, Some(Quant::Q4_K));
        check("q4_k_m", Role::Head, 4096, Some(Quant::Q6_K));
        check("Q4_K_M", Role::Delicate(0), 4096, Some(Quant::Q6_K));
        check("Q4_K_M", Role::Delicate(4), 4096, Some(Quant::Q4_K));
        check("Q4_K_M", Role::Fused, 3072, Some(Quant::Q5_K));
        check("Q4_K_M", Role::Other, 896, Some(Quant::Q5_0));
        check("Q4_K_M", Role::Delicate(0), 896, Some(Quant::Q8_0));
        check("Q4_K_M", Role::Other, 100, None);
        check("Q5_K_M", Role::Other, 896, Some(Quant::Q5_1));
        check("Q4_K", Role::Head, 256, Some(Quant::Q4_K));
        check("Q4_K", Role::Head, 896, None);
        check("f16", Role::Head, 7, Some(Quant::F16));
        assert!(Mix::named("Q9").is_err());
    }
}
