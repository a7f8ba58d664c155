//! Writes small GGUF files for tests: well-formed unless asked otherwise. It shares no code with the reader.
#![allow(dead_code, missing_docs)]

/// A file in the making: pairs and tensors are raw bytes, so that tests can write what no honest writer would.
#[derive(Clone)]
pub struct Writer {
    pub version: u32,
    pub alignment: usize,
    pub pairs: Vec<Vec<u8>>,
    pub tensors: Vec<(Vec<u8>, Vec<u8>)>,
    pub offset: usize,
}

pub fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
}

impl Default for Writer {
    fn default() -> Self {
        Writer {
            version: 3,
            alignment: 32,
            pairs: Vec::new(),
            tensors: Vec::new(),
            offset: 0,
        }
    }
}

impl Writer {
    /// A pair with GGUF's number of the type and the value's bytes.
    pub fn pair(mut self, key: &str, kind: u32, value: &[u8]) -> Self {
        self.pairs
            .push([&string(key), &kind.to_le_bytes()[..], value].concat());
        self
    }

    pub fn text(self, key: &str, value: &str) -> Self {
        self.pair(key, 8, &string(value))
    }

    pub fn u32(self, key: &str, value: u32) -> Self {
        self.pair(key, 4, &value.to_le_bytes())
    }

    pub fn u16(self, key: &str, value: u16) -> Self {
        self.pair(key, 2, &value.to_le_bytes())
    }

    /// An array with GGUF's number of the element type.
    pub fn array(self, key: &str, kind: u32, elements: &[Vec<u8>]) -> Self {
        let head = [
            &kind.to_le_bytes()[..],
            &(elements.len() as u64).to_le_bytes(),
        ]
        .concat();
        self.pair(key, 9, &[head, elements.concat()].concat())
    }

    /// A tensor at the next free offset. `dimensions` are in GGUF's order, innermost first.
    pub fn tensor(self, name: &str, dimensions: &[u64], kind: u32, data: &[u8]) -> Self {
        let offset = self.offset as u64;
        self.tensor_at(name, dimensions, kind, data, offset)
    }

    /// A tensor whose header names any offset; its data still goes to the next free one.
    pub fn tensor_at(
        mut self,
        name: &str,
        dimensions: &[u64],
        kind: u32,
        data: &[u8],
        offset: u64,
    ) -> Self {
        let mut header = string(name);
        header.extend((dimensions.len() as u32).to_le_bytes());
        header.extend(dimensions.iter().flat_map(|size| size.to_le_bytes()));
        header.extend(kind.to_le_bytes());
        header.extend(offset.to_le_bytes());
        let mut padded = data.to_vec();
        padded.resize(data.len().next_multiple_of(self.alignment), 0);
        self.offset += padded.len();
        self.tensors.push((header, padded));
        self
    }

    /// The file.
    pub fn bytes(&self) -> Vec<u8> {
        let mut file = b"GGUF".to_vec();
        file.extend(self.version.to_le_bytes());
        file.extend((self.tensors.len() as u64).to_le_bytes());
        file.extend((self.pairs.len() as u64).to_le_bytes());
        file.extend(self.pairs.concat());
        for (header, _) in &self.tensors {
            file.extend(header);
        }
        file.resize(file.len().next_multiple_of(self.alignment), 0);
        for (_, data) in &self.tensors {
            file.extend(data);
        }
        file
    }
}

/// A small file with a pair of every type, arrays, nested arrays, and tensors of several types.
pub fn sample() -> Writer {
    let numbers = (0..12u32)
        .map(|value| value.to_le_bytes().to_vec())
        .collect::<Vec<_>>();
    let words = ["<s>", "a", "Ġb", "日本"].map(string);
    let inner = [
        &4u32.to_le_bytes()[..],
        &1u64.to_le_bytes(),
        &9u32.to_le_bytes(),
    ]
    .concat();
    let ramp: Vec<u8> = (0..=255).collect();
    Writer::default()
        .text("general.architecture", "llama")
        .pair("width.u8", 0, &[200])
        .pair("width.i8", 1, &[0x80])
        .u16("width.u16", 60_000)
        .pair("width.i16", 3, &(-5i16).to_le_bytes())
        .u32("width.u32", 4_000_000_000)
        .pair("width.i32", 5, &77i32.to_le_bytes())
        .pair("width.u64", 10, &u64::MAX.to_le_bytes())
        .pair("width.i64", 11, &i64::MIN.to_le_bytes())
        .pair("width.f32", 6, &0.5f32.to_le_bytes())
        .pair("width.f64", 12, &(-0.25f64).to_le_bytes())
        .pair("width.bool", 7, &[1])
        .array("array.numbers", 4, &numbers)
        .array("array.words", 8, &words)
        .array("array.nested", 9, &[inner.clone(), inner])
        .array("array.empty", 8, &[])
        .tensor("token_embd.weight", &[32, 4], 2, &ramp[..72])
        .tensor("output_norm.weight", &[5], 0, &ramp[..20])
        .tensor("blk.0.ffn_up.weight", &[256, 1], 12, &ramp[..144])
        .tensor("scalar", &[], 0, &ramp[..4])
}
