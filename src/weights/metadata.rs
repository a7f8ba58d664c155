//! The key-value metadata of a GGUF file, whichever widths its writer chose. It knows no key's meaning.

use std::collections::BTreeMap;

/// Types of numbers in GGUF metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Kind {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    U64,
    I64,
    F32,
    F64,
    Bool,
}

impl Kind {
    /// Bytes of one number.
    pub fn bytes(self) -> usize {
        match self {
            Kind::U8 | Kind::I8 | Kind::Bool => 1,
            Kind::U16 | Kind::I16 => 2,
            Kind::U32 | Kind::I32 | Kind::F32 => 4,
            Kind::U64 | Kind::I64 | Kind::F64 => 8,
        }
    }

    /// The name that GGUF's tools print.
    pub fn name(self) -> &'static str {
        match self {
            Kind::U8 => "u8",
            Kind::I8 => "i8",
            Kind::U16 => "u16",
            Kind::I16 => "i16",
            Kind::U32 => "u32",
            Kind::I32 => "i32",
            Kind::U64 => "u64",
            Kind::I64 => "i64",
            Kind::F32 => "f32",
            Kind::F64 => "f64",
            Kind::Bool => "bool",
        }
    }

    /// Reads one number from exactly [`Kind::bytes`] little-endian bytes.
    pub(crate) fn read(self, bytes: &[u8]) -> Value {
        let mut wide = [0; 8];
        wide[..self.bytes()].copy_from_slice(&bytes[..self.bytes()]);
        let raw = u64::from_le_bytes(wide);
        match self {
            Kind::U8 | Kind::U16 | Kind::U32 | Kind::U64 => Value::Unsigned(raw),
            Kind::I8 => Value::Signed(i64::from(raw as i8)),
            Kind::I16 => Value::Signed(i64::from(raw as i16)),
            Kind::I32 => Value::Signed(i64::from(raw as i32)),
            Kind::I64 => Value::Signed(raw as i64),
            Kind::F32 => Value::Float(f64::from(f32::from_bits(raw as u32))),
            Kind::F64 => Value::Float(f64::from_bits(raw)),
            Kind::Bool => Value::Boolean(raw != 0),
        }
    }
}

/// A metadata value. Widths are widened, for no reader should care about them.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// An unsigned integer of any width.
    Unsigned(u64),
    /// A signed integer of any width.
    Signed(i64),
    /// A float of either width.
    Float(f64),
    /// A boolean.
    Boolean(bool),
    /// A string.
    String(String),
    /// An array.
    Array(Array),
}

/// An array in the metadata.
#[derive(Clone, Debug, PartialEq)]
pub enum Array {
    /// Numbers or booleans, as they lie in the file, so that a byte array takes no more memory than there.
    Numbers {
        /// Type of each.
        kind: Kind,
        /// Little-endian, one after the other.
        bytes: Vec<u8>,
    },
    /// Strings.
    Strings(Vec<String>),
    /// Arrays.
    Nested(Vec<Array>),
}

impl Array {
    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            Array::Numbers { kind, bytes } => bytes.len() / kind.bytes(),
            Array::Strings(strings) => strings.len(),
            Array::Nested(arrays) => arrays.len(),
        }
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The numbers, widened; `None` for strings and nested arrays.
    pub fn numbers(&self) -> Option<impl Iterator<Item = Value> + '_> {
        match self {
            Array::Numbers { kind, bytes } => {
                Some(bytes.chunks_exact(kind.bytes()).map(|raw| kind.read(raw)))
            }
            _ => None,
        }
    }
}

impl Value {
    fn integer(&self) -> Option<i128> {
        match *self {
            Value::Unsigned(value) => Some(value.into()),
            Value::Signed(value) => Some(value.into()),
            _ => None,
        }
    }

    fn float(&self) -> Option<f64> {
        match *self {
            Value::Float(value) => Some(value),
            Value::Unsigned(value) => Some(value as f64),
            Value::Signed(value) => Some(value as f64),
            _ => None,
        }
    }
}

/// Key-value metadata of a GGUF file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metadata {
    values: BTreeMap<String, Value>,
}

impl Metadata {
    /// The value of any integer width that fits, or `None` where the key is absent or of another type.
    pub fn integer(&self, key: &str) -> Option<u64> {
        u64::try_from(self.get(key)?.integer()?).ok()
    }

    /// A float of either width, or an integer.
    pub fn float(&self, key: &str) -> Option<f64> {
        self.get(key)?.float()
    }

    /// A boolean.
    pub fn boolean(&self, key: &str) -> Option<bool> {
        match self.get(key)? {
            Value::Boolean(value) => Some(*value),
            _ => None,
        }
    }

    /// A string.
    pub fn string(&self, key: &str) -> Option<&str> {
        match self.get(key)? {
            Value::String(value) => Some(value),
            _ => None,
        }
    }

    /// An array of strings.
    pub fn strings(&self, key: &str) -> Option<&[String]> {
        match self.get(key)? {
            Value::Array(Array::Strings(strings)) => Some(strings),
            _ => None,
        }
    }

    /// An array of floats of either width, or of integers.
    pub fn floats(&self, key: &str) -> Option<Vec<f64>> {
        match self.get(key)? {
            Value::Array(array) => array.numbers()?.map(|number| number.float()).collect(),
            _ => None,
        }
    }

    /// An array of integers of any width (signed ones included), or of booleans as 0 and 1.
    pub fn integers(&self, key: &str) -> Option<Vec<i64>> {
        let widen = |number: Value| match number {
            Value::Boolean(value) => Some(i64::from(value)),
            other => i64::try_from(other.integer()?).ok(),
        };
        match self.get(key)? {
            Value::Array(array) => array.numbers()?.map(widen).collect(),
            _ => None,
        }
    }

    /// The value of a key, of whatever type.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.values.get(key)
    }

    /// All keys and values, in the order of the keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.values.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Sets a key and returns the value that it had before.
    pub fn insert(&mut self, key: impl Into<String>, value: Value) -> Option<Value> {
        self.values.insert(key.into(), value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(value: Value) -> Metadata {
        let mut metadata = Metadata::default();
        metadata.insert("key", value);
        metadata
    }

    #[test]
    fn every_integer_width_is_an_integer() {
        let check = |kind: Kind, bytes: &[u8], integer: Option<u64>, signed: i64| {
            let one = metadata(kind.read(bytes));
            assert_eq!(one.integer("key"), integer, "{kind:?}");
            let array = metadata(Value::Array(Array::Numbers {
                kind,
                bytes: bytes.to_vec(),
            }));
            assert_eq!(array.integers("key"), Some(vec![signed]), "{kind:?}");
            assert_eq!(array.integer("key"), None);
        };
        check(Kind::U8, &[0xff], Some(255), 255);
        check(Kind::I8, &[0xff], None, -1);
        check(Kind::I8, &[7], Some(7), 7);
        check(Kind::U16, &[0, 0xff], Some(0xff00), 0xff00);
        check(Kind::I16, &[0, 0xff], None, -256);
        check(Kind::U32, &[0xff; 4], Some(0xffff_ffff), 0xffff_ffff);
        check(Kind::I32, &[0xfe, 0xff, 0xff, 0xff], None, -2);
        check(
            Kind::U64,
            &i64::MAX.to_le_bytes(),
            Some(i64::MAX as u64),
            i64::MAX,
        );
        check(Kind::I64, &5i64.to_le_bytes(), Some(5), 5);
        assert_eq!(
            metadata(Kind::U64.read(&[0xff; 8])).integer("key"),
            Some(u64::MAX)
        );
    }

    #[test]
    fn another_type_is_absent_not_converted() {
        let text = metadata(Value::String("7".into()));
        assert_eq!(
            (text.integer("key"), text.float("key"), text.boolean("key")),
            (None, None, None)
        );
        let number = metadata(Value::Unsigned(1));
        assert_eq!(
            (
                number.boolean("key"),
                number.string("key"),
                number.float("key")
            ),
            (None, None, Some(1.0))
        );
        let flags = metadata(Value::Array(Array::Numbers {
            kind: Kind::Bool,
            bytes: vec![0, 1],
        }));
        assert_eq!(
            (flags.integers("key"), flags.floats("key")),
            (Some(vec![0, 1]), None)
        );
        assert_eq!(number.integer("other"), None);
    }

    #[test]
    fn floats_of_either_width() {
        assert_eq!(
            metadata(Kind::F32.read(&1.5f32.to_le_bytes())).float("key"),
            Some(1.5)
        );
        assert_eq!(
            metadata(Kind::F64.read(&(-2.5f64).to_le_bytes())).float("key"),
            Some(-2.5)
        );
        let bytes = [0.5f32, 2.0]
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        let array = metadata(Value::Array(Array::Numbers {
            kind: Kind::F32,
            bytes,
        }));
        assert_eq!(
            (array.floats("key"), array.integers("key")),
            (Some(vec![0.5, 2.0]), None)
        );
    }
}
