//! Chat templates for models that bring none, and the vocabularies that prove them.
//!
//! A vocabulary proves a template when the turn markers are control tokens of it. The `[INST]` formats of Llama 2 and
//! Mistral are ordinary text there, so they are never guessed, only given by name. This file knows no rendering.

use super::Tokenizer;

/// A template and what proves it.
struct Builtin {
    name: &'static str,
    source: &'static str,
    /// Control tokens that must all be there; empty where nothing proves the template.
    proof: &'static [&'static str],
}

const BUILTINS: [Builtin; 6] = [
    Builtin {
        name: "chatml",
        source: "\
{%- for message in messages -%}
{{ '<|im_start|>' ~ message.role ~ '\n' ~ message.content ~ '<|im_end|>\n' }}
{%- endfor -%}
{{ '<|im_start|>assistant\n' if add_generation_prompt }}",
        proof: &["<|im_start|>", "<|im_end|>"],
    },
    Builtin {
        name: "llama-3",
        source: "\
{{ bos_token }}
{%- for message in messages -%}
{{ '<|start_header_id|>' ~ message.role ~ '<|end_header_id|>\n\n' ~ message.content ~ '<|eot_id|>' }}
{%- endfor -%}
{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' if add_generation_prompt }}",
        proof: &["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
    },
    Builtin {
        name: "gemma",
        source: "\
{{ bos_token }}
{%- for message in messages -%}
{%- if message.role == 'system' %}{{ raise_exception('this format has no system turn') }}{% endif -%}
{%- set name = 'model' if message.role == 'assistant' else message.role -%}
{{ '<start_of_turn>' ~ name ~ '\n' ~ message.content ~ '<end_of_turn>\n' }}
{%- endfor -%}
{{ '<start_of_turn>model\n' if add_generation_prompt }}",
        proof: &["<start_of_turn>", "<end_of_turn>"],
    },
    Builtin {
        name: "phi-3",
        source: "\
{{ bos_token }}
{%- for message in messages -%}
{{ '<|' ~ message.role ~ '|>\n' ~ message.content ~ '<|end|>\n' }}
{%- endfor -%}
{{ '<|assistant|>\n' if add_generation_prompt }}",
        proof: &["<|user|>", "<|assistant|>", "<|end|>"],
    },
    Builtin {
        name: "llama-2",
        source: "\
{%- set ns = namespace(system='') -%}
{%- for message in messages -%}
{%- if message.role == 'system' -%}
{%- set ns.system = '<<SYS>>\n' ~ message.content ~ '\n<</SYS>>\n\n' -%}
{%- elif message.role == 'user' -%}
{{ bos_token ~ '[INST] ' ~ ns.system ~ message.content ~ ' [/INST]' }}
{%- set ns.system = '' -%}
{%- else -%}
{{ ' ' ~ message.content ~ ' ' ~ eos_token }}
{%- endif -%}
{%- endfor -%}",
        proof: &[],
    },
    Builtin {
        name: "mistral",
        source: "\
{{ bos_token }}
{%- for message in messages -%}
{%- if message.role == 'user' -%}
{{ '[INST] ' ~ message.content ~ ' [/INST]' }}
{%- elif message.role == 'assistant' -%}
{{ ' ' ~ message.content ~ eos_token }}
{%- else -%}
{{ raise_exception('this format has no system turn') }}
{%- endif -%}
{%- endfor -%}",
        proof: &[],
    },
];

/// The source of the template called `name`.
pub(super) fn named(name: &str) -> Option<&'static str> {
    BUILTINS
        .iter()
        .find(|builtin| builtin.name == name)
        .map(|builtin| builtin.source)
}

/// The source of the template that the vocabulary proves.
pub(super) fn proven(tokenizer: &Tokenizer) -> Option<&'static str> {
    let proves = |builtin: &&Builtin| {
        !builtin.proof.is_empty()
            && builtin
                .proof
                .iter()
                .all(|piece| tokenizer.control(piece).is_some())
    };
    BUILTINS.iter().find(proves).map(|builtin| builtin.source)
}
