//! A tiny model of random weights with a tokenizer of bytes, made on the spot: it needs no file of anybody's, and what it
//! says means nothing.

use assize::synth::file;
use assize::synth::mix::Mix;
use assize::synth::plan::Plan;
use assize::synth::shape::preset;
use assize::weights::{Array, Kind, Metadata, Value};
use std::path::{Path, PathBuf};

/// The token after the 256 bytes that opens a turn; the next one ends it.
const OPENS: u64 = 256;

const TEMPLATE: &str = "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n\
    {% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/// Metadata of a byte-level tokenizer without merges, and of a chat template.
fn tokenizer() -> Metadata {
    let prints = |byte: &u8| matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..);
    let character = |byte: u8| {
        let code = match prints(&byte) {
            true => u32::from(byte),
            false => 256 + (0..byte).filter(|other| !prints(other)).count() as u32,
        };
        char::from_u32(code).unwrap().to_string()
    };
    let mut tokens: Vec<String> = (0..=255).map(character).collect();
    tokens.extend(["<|im_start|>".into(), "<|im_end|>".into()]);
    let mut types = vec![1i32; 256];
    types.extend([3, 3]);
    let mut metadata = Metadata::default();
    let mut put = |key: &str, value: Value| {
        metadata.insert(format!("tokenizer.{key}"), value);
    };
    put("ggml.model", Value::String("gpt2".into()));
    put("ggml.pre", Value::String("gpt-2".into()));
    put("ggml.tokens", Value::Array(Array::Strings(tokens)));
    put("ggml.merges", Value::Array(Array::Strings(Vec::new())));
    let bytes = types.iter().flat_map(|kind| kind.to_le_bytes()).collect();
    let kind = Kind::I32;
    let types = Value::Array(Array::Numbers { kind, bytes });
    put("ggml.token_type", types);
    put("ggml.eos_token_id", Value::Unsigned(OPENS + 1));
    put("chat_template", Value::String(TEMPLATE.into()));
    metadata
}

/// Writes the model into the folder.
pub fn write(folder: &Path) -> PathBuf {
    let path = folder.join("tiny.gguf");
    let shape = preset("tiny").unwrap();
    let plan = Plan::new(&shape, Mix::Q4KM, Some(&tokenizer()), None).unwrap();
    file::write(&path, &plan, 0, true, &mut |_| ()).unwrap();
    path
}
