//! `assize inspect`: what lies in a model file. It reads the header alone and runs nothing.

use super::fetch::{Bar, size};
use super::models::table;
use crate::model::cache::KvType;
use crate::weights::fetch::{FetchOptions, Located, locate};
use crate::weights::{Array, FetchError, Metadata, Store, Value};
use assize_kernels::PAGE;
use assize_kernels::cache::Part;
use serde_json::{Map, json};
use std::collections::BTreeMap;
use std::io::{Write, stdout};

/// Arguments of `assize inspect`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  assize inspect qwen2.5-coder-1.5b-instruct
  assize inspect model.gguf --json | jq .metadata
  assize inspect model-00001-of-00003.gguf")]
pub struct Args {
    /// A name that `assize models` lists, or a path to a GGUF file.
    pub model: String,
}

/// Prints what the file says of itself: text, or with `json` one object, on stdout. Fetches nothing.
///
/// # Errors
/// [`FetchError`] where there is no such model here, [`crate::weights::WeightsError`] where its file is refused.
pub fn run(args: &Args, json: bool, quiet: bool) -> anyhow::Result<()> {
    let bar = Bar::new(quiet);
    let options = FetchOptions::from_environment(true, &bar)?;
    let located = locate(&args.model, &options).map_err(|error| match error {
        FetchError::Offline { name, .. } => FetchError::Absent { name },
        other => other,
    })?;
    let store = Store::open(located.path())?;
    let facts = Facts::of(&store);
    let mut out = stdout().lock();
    if json {
        writeln!(out, "{}", object(&located, &store, &facts))?;
    } else {
        text(&mut out, &located, &store, &facts)?;
    }
    Ok(())
}

/// What can be derived from a model file without knowing its architecture's code.
#[derive(Debug, PartialEq)]
struct Facts {
    architecture: String,
    /// Tokens.
    context: Option<u64>,
    /// Weights in all tensors.
    parameters: u64,
    /// Number and bytes of the tensors of each type, by name.
    types: BTreeMap<String, (usize, u64)>,
    /// Bytes that a token takes in a cache of f16, of q8v, and of q8.
    kv_per_token: Option<[u64; 3]>,
}

impl Facts {
    fn of(store: &Store) -> Facts {
        let metadata = store.metadata();
        let architecture = metadata
            .string("general.architecture")
            .unwrap_or("unknown")
            .to_owned();
        let mut types = BTreeMap::new();
        let mut parameters = 0;
        for (_, tensor) in store.tensors() {
            let (count, bytes) = types.entry(format!("{:?}", tensor.quant)).or_insert((0, 0));
            *count += 1;
            *bytes += tensor.bytes.len() as u64;
            parameters += tensor
                .shape
                .iter()
                .map(|&size| size as u64)
                .product::<u64>();
        }
        let context = metadata.integer(&format!("{architecture}.context_length"));
        let kv_per_token = kv_per_token(metadata, &architecture);
        Facts {
            architecture,
            context,
            parameters,
            types,
            kv_per_token,
        }
    }
}

/// Keys and values of all layers, in half precision, with values in 8 bits, and with both.
fn kv_per_token(metadata: &Metadata, architecture: &str) -> Option<[u64; 3]> {
    let key = |name: &str| format!("{architecture}.{name}");
    let integer = |name: &str| metadata.integer(&key(name));
    let layers = integer("block_count")?;
    let heads = integer("attention.head_count");
    // One number for all layers, or one a layer.
    let kv_heads = match metadata.integers(&key("attention.head_count_kv")) {
        Some(each) => each.iter().try_fold(0u64, |sum, &heads| {
            sum.checked_add(u64::try_from(heads).ok()?)
        })?,
        None => integer("attention.head_count_kv")
            .or(heads)?
            .checked_mul(layers)?,
    };
    let width = || integer("embedding_length")?.checked_div(heads?);
    let keys = integer("attention.key_length").or_else(width)?;
    let values = integer("attention.value_length").or_else(width)?;
    let bytes = |kind: KvType| {
        let head = |part: Part, dim: u64| {
            let page = kind.part(part).head_bytes(usize::try_from(dim).ok()?)?;
            Some((page / PAGE) as u64)
        };
        let (keys, values) = (head(Part::Keys, keys)?, head(Part::Values, values)?);
        kv_heads.checked_mul(keys.checked_add(values)?)
    };
    Some([
        bytes(KvType::F16)?,
        bytes(KvType::Q8Values)?,
        bytes(KvType::Q8)?,
    ])
}

fn text(
    out: &mut impl Write,
    located: &Located,
    store: &Store,
    facts: &Facts,
) -> std::io::Result<()> {
    let metadata = store.metadata();
    for file in store.files() {
        writeln!(out, "file          {}", file.display())?;
    }
    writeln!(out, "sha256        {}", located.sha256)?;
    if let Some(manifest) = located.manifest {
        writeln!(
            out,
            "known as      {} ({}, {})",
            manifest.name,
            manifest.kind.name(),
            manifest.licence
        )?;
    }
    writeln!(out, "architecture  {}", facts.architecture)?;
    writeln!(
        out,
        "parameters    {:.1} M in {} tensors",
        facts.parameters as f64 / 1e6,
        store.tensors().count()
    )?;
    if let Some(context) = facts.context {
        writeln!(out, "context       {context} tokens")?;
    }
    writeln!(out, "weights       {}, mapped", size(store.byte_len()))?;
    if let Some(kinds @ [bytes, ..]) = facts.kv_per_token {
        let [half, values, both] = kinds.map(size);
        write!(
            out,
            "KV cache      {half} a token at f16, {values} at q8v, {both} at q8"
        )?;
        if let Some(context) = facts.context {
            let all = bytes.saturating_mul(context);
            write!(
                out,
                "; {} at f16 for one sequence of the whole context",
                size(all)
            )?;
        }
        writeln!(out)?;
    }
    writeln!(out, "\nTensor types")?;
    let rows: Vec<[String; 3]> = facts
        .types
        .iter()
        .map(|(name, (count, bytes))| {
            [
                format!("  {name}"),
                format!("{count:>5} tensors"),
                size(*bytes),
            ]
        })
        .collect();
    table(out, rows.iter())?;
    writeln!(out, "\nMetadata")?;
    let rows: Vec<[String; 2]> = metadata
        .iter()
        .filter(|(key, _)| *key != "tokenizer.chat_template")
        .map(|(key, value)| [format!("  {}", printable(key)), short(value)])
        .collect();
    table(out, rows.iter())?;
    match metadata.string("tokenizer.chat_template") {
        Some(template) => writeln!(out, "\nChat template\n{}", indented(template)),
        None => writeln!(out, "\nChat template\n  none"),
    }
}

fn object(located: &Located, store: &Store, facts: &Facts) -> serde_json::Value {
    let types = facts
        .types
        .iter()
        .map(|(name, (count, bytes))| (name.clone(), json!({"tensors": count, "bytes": bytes})));
    let metadata = store
        .metadata()
        .iter()
        .map(|(key, value)| (key.to_owned(), plain(value)));
    json!({
        "files": store.files(),
        "bytes": store.byte_len(),
        "sha256": located.sha256,
        "name": located.manifest.map(|manifest| &manifest.name),
        "architecture": facts.architecture,
        "context": facts.context,
        "parameters": facts.parameters,
        "kv_bytes_per_token": facts.kv_per_token.map(|[half, ..]| half),
        "kv_bytes_per_token_q8v": facts.kv_per_token.map(|[_, values, _]| values),
        "kv_bytes_per_token_q8": facts.kv_per_token.map(|[.., both]| both),
        "tensor_types": types.collect::<Map<_, _>>(),
        "tensors": store.tensors().map(|(name, tensor)| {
            json!({"name": name, "type": format!("{:?}", tensor.quant), "shape": tensor.shape, "bytes": tensor.bytes.len()})
        }).collect::<Vec<_>>(),
        "chat_template": store.metadata().string("tokenizer.chat_template"),
        "metadata": metadata.collect::<Map<_, _>>(),
    })
}

/// A value as JSON; of a long array, its length and first elements.
fn plain(value: &Value) -> serde_json::Value {
    const MOST: usize = 16;
    let list = |elements: Vec<serde_json::Value>, length: usize| {
        if length <= MOST {
            json!(elements)
        } else {
            json!({"length": length, "first": elements})
        }
    };
    match value {
        Value::Unsigned(value) => json!(value),
        Value::Signed(value) => json!(value),
        Value::Float(value) => json!(value),
        Value::Boolean(value) => json!(value),
        Value::String(value) => json!(value),
        Value::Array(Array::Strings(strings)) => list(
            strings
                .iter()
                .take(MOST)
                .map(|string| json!(string))
                .collect(),
            strings.len(),
        ),
        Value::Array(Array::Nested(arrays)) => {
            let inner = arrays
                .iter()
                .take(MOST)
                .map(|array| plain(&Value::Array(array.clone())));
            list(inner.collect(), arrays.len())
        }
        Value::Array(numbers) => {
            let each = numbers
                .numbers()
                .into_iter()
                .flatten()
                .take(MOST)
                .map(|number| plain(&number));
            list(each.collect(), numbers.len())
        }
    }
}

/// A value in one line of a table.
fn short(value: &Value) -> String {
    match value {
        Value::String(text) if text.chars().count() > 72 => {
            format!(
                "{}… ({} bytes)",
                printable(&text.chars().take(60).collect::<String>()),
                text.len()
            )
        }
        Value::String(text) => printable(text),
        Value::Float(value) => format!("{value}"),
        Value::Array(array) if array.len() > 8 => {
            let first: Vec<String> = match array {
                Array::Strings(strings) => strings
                    .iter()
                    .take(4)
                    .map(|string| format!("{string:?}"))
                    .collect(),
                numbers => numbers
                    .numbers()
                    .into_iter()
                    .flatten()
                    .take(4)
                    .map(|number| short(&number))
                    .collect(),
            };
            format!("[{}, …] ({} elements)", first.join(", "), array.len())
        }
        other => plain(other).to_string(),
    }
}

/// Text from a file on a terminal: without control characters.
fn printable(text: &str) -> String {
    text.chars()
        .flat_map(|c| {
            if c.is_control() {
                c.escape_debug().collect::<Vec<_>>()
            } else {
                vec![c]
            }
        })
        .collect()
}

fn indented(text: &str) -> String {
    text.lines()
        .map(|line| format!("  {}", printable(line)))
        .collect::<Vec<_>>()
        .join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(pairs: &[(&str, u64)]) -> Metadata {
        let mut metadata = Metadata::default();
        for (key, value) in pairs {
            metadata.insert(format!("llama.{key}"), Value::Unsigned(*value));
        }
        metadata
    }

    #[test]
    fn kv_bytes_are_derived_from_what_is_there() {
        let base = [
            ("block_count", 4),
            ("attention.head_count", 8),
            ("embedding_length", 64),
        ];
        // In 8 bits a head is filled up to 16 dimensions, and has a scale of two bytes for every 32.
        assert_eq!(
            kv_per_token(&metadata(&base), "llama"),
            Some([4 * 8 * (16 + 16), 4 * 8 * (16 + 18), 4 * 8 * (18 + 18)])
        );
        let grouped = metadata(&[&base[..], &[("attention.head_count_kv", 2)]].concat());
        assert_eq!(
            kv_per_token(&grouped, "llama"),
            Some([4 * 2 * 32, 4 * 2 * 34, 4 * 2 * 36])
        );
        let wide = metadata(
            &[
                &base[..],
                &[("attention.key_length", 32), ("attention.value_length", 16)],
            ]
            .concat(),
        );
        assert_eq!(
            kv_per_token(&wide, "llama"),
            Some([4 * 8 * 96, 4 * 8 * (64 + 18), 4 * 8 * 52])
        );
        assert_eq!(kv_per_token(&metadata(&base[..1]), "llama"), None);
        assert_eq!(
            kv_per_token(
                &metadata(&[
                    ("block_count", 4),
                    ("attention.head_count", 0),
                    ("embedding_length", 64)
                ]),
                "llama"
            ),
            None
        );
        let mut huge = metadata(&base);
        huge.insert("llama.block_count", Value::Unsigned(u64::MAX));
        assert_eq!(kv_per_token(&huge, "llama"), None);
    }

    #[test]
    fn values_in_a_line() {
        let check = |value: Value, expect: &str| assert_eq!(short(&value), expect);
        check(Value::Unsigned(7), "7");
        check(Value::String("a\u{1b}[2Jb\n".into()), "a\\u{1b}[2Jb\\n");
        check(Value::Float(1e-6), "0.000001");
        let strings = (0..9).map(|number| number.to_string()).collect();
        check(
            Value::Array(Array::Strings(strings)),
            r#"["0", "1", "2", "3", …] (9 elements)"#,
        );
        check(Value::Array(Array::Strings(vec!["a".into()])), r#"["a"]"#);
    }
}
