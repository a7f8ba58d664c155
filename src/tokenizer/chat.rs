//! Chat templates: messages to the token ids of a prompt.
//!
//! The template never sees what is said. It is rendered with a placeholder for each part of each message; the result is
//! cut at the placeholders; what the template wrote is encoded with its control tokens, and every part is encoded as
//! plain text. So no text, whatever it contains, can become a control token or change what the template does; and each
//! part's tokens begin at its own boundary, so that prompts which begin alike have tokens that begin alike. A template
//! that leaves out, doubles, changes or reorders a part is an error.

use super::jinja::Template;
use super::{Segment, Specials, Tokenizer, TokenizerError, builtin, hex};
use crate::ask::{Message, Part, Role};
use crate::weights::Metadata;
use minijinja::{Value, context};
use sha2::{Digest, Sha256};
use std::borrow::Cow;

/// Most parts in one prompt: as many as the digits of a placeholder can number.
const MOST_PARTS: usize = 1_000_000;
/// What goes between a system text and the user turn into which it is folded.
const FOLD: &str = "\n\n";

/// A chat template.
pub struct ChatTemplate {
    template: Template,
    source: String,
    digest: String,
}

/// A stretch of the prompt, with its text.
struct Piece<'a> {
    text: Cow<'a, str>,
    specials: Specials,
}

impl ChatTemplate {
    /// The template in GGUF metadata, if there is one: `tokenizer.chat_template`, else the named one called `default`.
    pub fn from_metadata(metadata: &Metadata) -> Result<Option<Self>, TokenizerError> {
        let keys = ["tokenizer.chat_template", "tokenizer.chat_template.default"];
        let source = keys.into_iter().find_map(|key| metadata.string(key));
        source
            .filter(|source| !source.trim().is_empty())
            .map(Self::from_source)
            .transpose()
    }

    /// A template given as Jinja source.
    pub fn from_source(source: &str) -> Result<Self, TokenizerError> {
        let template = Template::new(source)?;
        let digest = hex(Sha256::new_with_prefix(source));
        Ok(ChatTemplate {
            template,
            source: source.to_owned(),
            digest,
        })
    }

    /// The template of a well-known format: `chatml`, `llama-2`, `llama-3`, `gemma`, `phi-3` or `mistral`.
    pub fn named(name: &str) -> Option<Self> {
        builtin::named(name).and_then(|source| Self::from_source(source).ok())
    }

    /// The template that the model brings, else the one that its vocabulary proves.
    pub fn for_model(metadata: &Metadata, tokenizer: &Tokenizer) -> Result<Self, TokenizerError> {
        match Self::from_metadata(metadata)? {
            Some(template) => Ok(template),
            None => {
                Self::from_source(builtin::proven(tokenizer).ok_or(TokenizerError::NoTemplate)?)
            }
        }
    }

    /// Renders the messages, opens the assistant's turn, and encodes: BOS exactly once, material always plain. Where the
    /// template has no system turn, the system text goes before the next user turn's.
    pub fn encode(
        &self,
        messages: &[Message],
        tokenizer: &Tokenizer,
    ) -> Result<Vec<u32>, TokenizerError> {
        self.with_pieces(messages, tokenizer, |mut pieces| {
            move_blanks(&mut pieces);
            let segments = pieces.iter().map(|piece| Segment {
                text: &piece.text,
                specials: piece.specials,
            });
            tokenizer.with_bos(tokenizer.encode_segments(segments))
        })
    }

    /// The prompt as text, for people to read: it does not tell what is control token and what is data.
    pub fn render(
        &self,
        messages: &[Message],
        tokenizer: &Tokenizer,
    ) -> Result<String, TokenizerError> {
        self.with_pieces(messages, tokenizer, |pieces| {
            pieces.iter().map(|piece| piece.text.as_ref()).collect()
        })
    }

    /// The template's Jinja source.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// sha256 of the template's source, in hex.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// Hands on the prompt's pieces; where the template takes no system turn, those with the system text folded.
    fn with_pieces<T>(
        &self,
        messages: &[Message],
        tokenizer: &Tokenizer,
        take: impl FnOnce(Vec<Piece>) -> T,
    ) -> Result<T, TokenizerError> {
        match self.pieces(messages, tokenizer) {
            Ok(pieces) => Ok(take(pieces)),
            Err(error) if messages.iter().any(|message| message.role == Role::System) => {
                let folded = fold_system(messages);
                // The first error is about the messages as they were given.
                Ok(take(self.pieces(&folded, tokenizer).map_err(|_| error)?))
            }
            Err(error) => Err(error),
        }
    }

    /// Renders with placeholders and cuts the result at them.
    fn pieces<'a>(
        &self,
        messages: &'a [Message],
        tokenizer: &Tokenizer,
    ) -> Result<Vec<Piece<'a>>, TokenizerError> {
        let parts: Vec<&Part> = messages.iter().flat_map(|message| &message.parts).collect();
        if parts.len() > MOST_PARTS {
            return Err(TokenizerError::TemplateContent(format!(
                "{} parts are too many",
                parts.len()
            )));
        }
        let placeholders = Placeholders::absent_from(&parts, &self.source);
        let mut number = 0;
        let turns: Vec<Value> = messages
            .iter()
            .map(|message| {
                let numbers = number..number + message.parts.len();
                number = numbers.end;
                let content: String = numbers.map(|number| placeholders.text(number)).collect();
                context! { role => role_name(message.role), content => content }
            })
            .collect();
        let [bos_token, eos_token] = tokenizer.boundary_pieces();
        // A constrained answer follows at once, so models that could think aloud first are told not to.
        let rendered = self.template.render(context! {
            messages => turns,
            add_generation_prompt => true,
            enable_thinking => false,
            bos_token => bos_token,
            eos_token => eos_token,
        })?;
        let mut pieces = Vec::with_capacity(2 * parts.len() + 1);
        let mut rest = rendered.as_str();
        for (number, part) in parts.into_iter().enumerate() {
            let (before, after) = placeholders.cut(rest, number)?;
            pieces.push(Piece {
                text: Cow::Owned(before.to_owned()),
                specials: Specials::Parse,
            });
            pieces.push(Piece {
                text: Cow::Borrowed(part.text()),
                specials: Specials::Plain,
            });
            rest = after;
        }
        if placeholders.next(rest).is_some() {
            return Err(TokenizerError::TemplateContent(
                "a part is written twice".into(),
            ));
        }
        pieces.push(Piece {
            text: Cow::Owned(rest.to_owned()),
            specials: Specials::Parse,
        });
        Ok(pieces)
    }
}

fn role_name(role: Role) -> &'static str {
    match role {
        Role::System => "system",
        Role::User => "user",
        Role::Assistant => "assistant",
    }
}

/// Puts each system text before the next user turn's, with a blank line between; at the end it is a user turn itself.
fn fold_system(messages: &[Message]) -> Vec<Message> {
    let mut folded = Vec::with_capacity(messages.len());
    let mut held: Vec<Part> = Vec::new();
    for message in messages {
        if message.role == Role::System {
            if !held.is_empty() {
                held.push(Part::Instruction(FOLD.into()));
            }
            held.extend(message.parts.iter().cloned());
            continue;
        }
        let mut message = message.clone();
        if message.role == Role::User && !held.is_empty() {
            held.push(Part::Instruction(FOLD.into()));
            held.append(&mut message.parts);
            message.parts = std::mem::take(&mut held);
        }
        folded.push(message);
    }
    if !held.is_empty() {
        folded.push(Message {
            role: Role::User,
            parts: held,
        });
    }
    folded
}

/// Moves a blank that ends one piece to the text that goes on after it: words carry the blank before them in nearly every
/// vocabulary, and a lone blank before a word is something that models rarely saw.
fn move_blanks(pieces: &mut [Piece]) {
    for index in 1..pieces.len() {
        let (before, after) = pieces.split_at_mut(index);
        let (Some(before), Some(after)) = (before.last_mut(), after.first_mut()) else {
            continue;
        };
        let goes_on = after
            .text
            .chars()
            .next()
            .is_some_and(|first| !first.is_whitespace());
        if after.specials == Specials::Plain && goes_on && before.text.ends_with(' ') {
            before.text.to_mut().pop();
            after.text = Cow::Owned(format!(" {}", after.text));
        }
    }
}

/// Texts that stand for the parts while the template is rendered: letters and digits, so that no template changes them.
struct Placeholders {
    stem: String,
}

impl Placeholders {
    /// Placeholders that are in no part and not in the template.
    fn absent_from(parts: &[&Part], source: &str) -> Self {
        let stems = (0u64..).map(|attempt| format!("Placeholder{attempt:04}Part"));
        let absent = |stem: &String| {
            !source.contains(stem) && !parts.iter().any(|part| part.text().contains(stem))
        };
        // The texts are finite, so that some stem is absent from them; the default is never reached.
        Placeholders {
            stem: stems.into_iter().find(absent).unwrap_or_default(),
        }
    }

    fn text(&self, number: usize) -> String {
        format!("{}{number:06}End", self.stem)
    }

    /// The first placeholder in the text: its number and where it begins.
    fn next(&self, text: &str) -> Option<(Option<usize>, usize)> {
        let at = text.find(&self.stem)?;
        let digits = text[at + self.stem.len()..].get(..6);
        Some((digits.and_then(|digits| digits.parse().ok()), at))
    }

    /// What is before and after placeholder `number`, which must be the next one.
    fn cut<'a>(&self, text: &'a str, number: usize) -> Result<(&'a str, &'a str), TokenizerError> {
        let wrong = |reason: String| Err(TokenizerError::TemplateContent(reason));
        match self.next(text) {
            None => wrong(format!("part {} is left out", number + 1)),
            Some((Some(found), at)) if found == number => {
                match text[at..].strip_prefix(&self.text(number)) {
                    Some(after) => Ok((&text[..at], after)),
                    None => wrong(format!("part {} is changed", number + 1)),
                }
            }
            Some((Some(found), _)) => wrong(format!(
                "part {} stands where part {} belongs",
                found.saturating_add(1),
                number + 1
            )),
            Some((None, _)) => wrong(format!("part {} is changed", number + 1)),
        }
    }
}
