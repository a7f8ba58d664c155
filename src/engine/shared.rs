//! What all prompts of an engine begin with, as far as it can be kept from one run to the next.
//!
//! It begins as what the first prompt has in common with itself without any judged text, and shrinks to what each later one begins with, too. So it
//! is a prefix of tokens that were made from instructions alone, and it is given away only once two prompts have differed: nothing that belongs to
//! one item can be in it. Knows no page and no model.

use crate::ask::{Message, Part, Prompt};
use crate::engine::frontend::Frontend;

/// Tokens that all prompts share, and what the pages of the cache hold for them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Whole pages of tokens.
    pub tokens: Vec<u32>,
    /// The pages' bytes, one after the other, as [`crate::model::batch::Forward::read_page`] gives them.
    pub bytes: Vec<u8>,
}

/// The beginning that the prompts so far have in common.
#[derive(Debug, Default)]
pub struct Shared {
    first: Option<Vec<u32>>,
    tokens: Vec<u32>,
    differ: bool,
}

impl Shared {
    /// A prompt without its judged text, where this is what has to be known of it: of the first one. What was laid out by hand tells nothing of what
    /// is judged in it.
    pub fn bare(&self, prompt: &Prompt) -> Option<Prompt> {
        match (&self.first, prompt) {
            (None, Prompt::Chat(messages)) => Some(Prompt::Chat(
                messages.iter().map(without_material).collect(),
            )),
            _ => None,
        }
    }

    /// Takes note of a prompt's `tokens`. `bare` is what [`Shared::bare`] gave for it.
    pub fn meet(&mut self, tokens: &[u32], bare: Option<Prompt>, frontend: &dyn Frontend) {
        match &self.first {
            None => {
                self.first = Some(tokens.to_vec());
                let bare = bare.and_then(|bare| frontend.encode(&bare).ok());
                self.tokens = bare.unwrap_or_default();
            }
            Some(first) => self.differ |= first != tokens,
        }
        let common = self.tokens.iter().zip(tokens);
        let common = common.take_while(|(a, b)| a == b).count();
        self.tokens.truncate(common);
    }

    /// What they all begin with; nothing as long as no two of them differ.
    pub fn tokens(&self) -> &[u32] {
        match self.differ {
            true => &self.tokens,
            false => &[],
        }
    }
}

fn without_material(message: &Message) -> Message {
    let bare = |part: &Part| match part {
        Part::Instruction(text) => Part::Instruction(text.clone()),
        Part::Material(_) => Part::Material(String::new()),
    };
    Message {
        role: message.role,
        parts: message.parts.iter().map(bare).collect(),
    }
}
