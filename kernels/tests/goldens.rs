//! The truth of the block layouts against another implementation's weights, bit by bit.

use assize_kernels::{Quant, scalar::quant::dequantize};

fn words(hex: &str) -> Vec<u8> {
    (0..hex.len() / 2)
        .map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).expect("hexadecimal"))
        .collect()
}

#[test]
fn blocks_are_dequantized_as_the_gguf_package_does() {
    let goldens = include_str!("goldens/dequantize.txt");
    let mut seen = Vec::new();
    for line in goldens.lines().filter(|line| !line.starts_with('#')) {
        let mut fields = line.split(' ');
        let mut field = || fields.next().expect("three fields");
        let name = field();
        let quant = Quant::ALL
            .into_iter()
            .find(|quant| format!("{quant:?}") == name)
            .expect("a type");
        let (bytes, expected) = (words(field()), words(field()));
        let expected: Vec<u32> = expected
            .as_chunks::<4>()
            .0
            .iter()
            .map(|word| u32::from_be_bytes(*word))
            .collect();
        assert_eq!(expected.len(), quant.block(), "{name}");
        let mut out = vec![f32::NAN; expected.len()];
        dequantize(quant, &bytes, &mut out).unwrap();
        let out: Vec<u32> = out.iter().map(|x| x.to_bits()).collect();
        assert_eq!(out, expected, "{name}");
        seen.push(quant);
    }
    assert!(
        Quant::ALL.iter().all(|quant| seen.contains(quant)),
        "{seen:?}"
    );
}

#[test]
fn other_lengths_are_refused() {
    for quant in Quant::ALL {
        let bytes = vec![0; quant.block_bytes()];
        let mut out = vec![0f32; quant.block()];
        assert!(dequantize(quant, &bytes, &mut out).is_ok());
        assert!(
            dequantize(quant, &bytes[1..], &mut out).is_err(),
            "{quant:?}"
        );
        out.push(0.0);
        assert!(dequantize(quant, &bytes, &mut out).is_err(), "{quant:?}");
    }
}
