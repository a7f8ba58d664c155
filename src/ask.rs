//! The contract between the judge and the engine: what is asked, in which shape, and what comes back.
//!
//! The judge column builds an [`Ask`] and reads an [`Answer`]; the engine column does the reverse. Neither sees the
//! other. This file uses `std` alone and knows no rubric, no tokenizer and no tensor.

use std::fmt;

/// Who speaks a [`Message`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The system turn. Templates without one fold it into the first user turn.
    System,
    /// The user turn.
    User,
    /// The assistant turn, in few-shot examples.
    Assistant,
}

/// A piece of a message. The kind decides how its text may be tokenized, and can't be forged from inside the text.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// Text written by the owner of the run: rubric, rules, delimiters.
    Instruction(String),
    /// Judged text: data. Control-token text inside it is encoded as plain text.
    Material(String),
}

impl Part {
    /// The text, whichever kind it is.
    pub fn text(&self) -> &str {
        match self {
            Part::Instruction(text) | Part::Material(text) => text,
        }
    }
}

/// One turn of the prompt.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// What is said, in order.
    pub parts: Vec<Part>,
}

/// The prompt of an [`Ask`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Prompt {
    /// Turns, to be put through the model's chat template and followed by the opening of the assistant's turn.
    Chat(Vec<Message>),
    /// Text that already carries the control tokens of the model. Benchmarks only: judged text never comes this way.
    Raw(String),
}

/// One field of a [`Shape::Object`], or of the objects in a [`FieldValue::List`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Field {
    /// The JSON key.
    pub name: String,
    /// What the field may hold.
    pub value: FieldValue,
}

/// What a [`Field`] may hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FieldValue {
    /// A JSON string of at most `max_chars` Unicode characters.
    Text {
        /// Upper bound of the string's length in characters.
        max_chars: usize,
    },
    /// A JSON array of verbatim passages of `source`. Where `source` holds no word at all, the array is empty.
    Quotes {
        /// The only text that may be quoted.
        source: String,
        /// Most passages.
        max_items: usize,
        /// Longest passage, in characters.
        max_chars: usize,
    },
    /// A JSON string that is one verbatim passage of `source`. Where `source` holds no word at all, it is empty.
    Quote {
        /// The only text that may be quoted.
        source: String,
        /// Longest passage, in characters.
        max_chars: usize,
    },
    /// A JSON string that is one of these texts. The model chooses it token by token; nothing is read out.
    Choice(Vec<String>),
    /// A JSON array of objects. Labels and further lists can't stand in it.
    List {
        /// The fields of each object, in this order.
        fields: Vec<Field>,
        /// Fewest objects; 0 admits the empty array.
        min_items: usize,
        /// Most objects.
        max_items: usize,
    },
    /// Exactly one of the labels, read out as a distribution. Must be the last field.
    Labels(Labels),
}

/// A closed set of labels, in the order in which they are reported.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Labels {
    /// The labels' texts, distinct and not empty.
    pub names: Vec<String>,
    /// Whether the label stands in JSON quotes (`"pass"`) or bare (`4`).
    pub quoted: bool,
}

/// A stretch of a [`Shape::Written`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Segment {
    /// This text, whatever the model thinks.
    Literal(String),
    /// Text of the model's own, of at least one character, that a literal must follow.
    Text {
        /// Upper bound of its length in characters.
        max_chars: usize,
        /// What can't stand in it, and with whose first occurrence it is over: the literal that follows holds it, and
        /// what of that literal goes before it ends the text.
        until: String,
    },
    /// One of the labels, bare (`quoted` is ignored), read out as a distribution. At most a literal may follow. Where a
    /// literal before it ends with a blank, the model may have written the label with or without that blank, in
    /// whatever tokens: all of it counts, and the output has the blank.
    Labels(Labels),
}

/// The shape of the answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Shape {
    /// Free text up to the model's stop token.
    Free,
    /// Any JSON that the JSON schema (as JSON text) admits, with compact separators.
    Schema(String),
    /// A JSON object whose fields come in this order, with compact separators.
    Object(Vec<Field>),
    /// Text as an evaluator was trained to write it, such as feedback, a mark, and a score.
    Written(Vec<Segment>),
    /// No text at all: the distribution over the labels right after the prompt. `labels.quoted` is ignored.
    Labels(Labels),
    /// No text at all: the last hidden state of the prompt's last token. Reserved for learned heads.
    Hidden,
}

/// How tokens are chosen where the shape leaves a choice.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoding {
    /// 0 means the most probable token.
    pub temperature: f32,
    /// Nucleus mass, 1 means all.
    pub top_p: f32,
    /// Most tokens that may be generated, forced ones included.
    pub max_tokens: usize,
    /// Seed of this ask's own random stream: the same whatever else runs.
    pub seed: u64,
}

impl Default for Decoding {
    fn default() -> Self {
        Decoding {
            temperature: 0.0,
            top_p: 1.0,
            max_tokens: 512,
            seed: 0,
        }
    }
}

/// One question to the engine.
#[derive(Clone, Debug, PartialEq)]
pub struct Ask {
    /// The prompt.
    pub prompt: Prompt,
    /// The shape of the answer.
    pub shape: Shape,
    /// How tokens are chosen.
    pub decoding: Decoding,
}

/// What the model's own probabilities say about a closed set of labels at one position.
#[derive(Clone, Debug, PartialEq)]
pub struct Readout {
    /// The labels, in the order asked.
    pub labels: Vec<String>,
    /// Natural logarithm of each label's probability under the full softmax, before temperature and mask; −∞ where no
    /// token path spells the label.
    pub log_masses: Vec<f64>,
}

/// Where the tokens of an answer came from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenCounts {
    /// Tokens of the prompt.
    pub prompt: usize,
    /// Of those, found in the prefix cache.
    pub cached: usize,
    /// Tokens of the output that the shape left no choice about.
    pub forced: usize,
    /// Tokens of the output that the model chose.
    pub generated: usize,
}

/// What came back for one [`Ask`].
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The whole output, forced parts and the chosen label included.
    pub text: String,
    /// The distribution at the label position, for shapes that have one.
    pub readout: Option<Readout>,
    /// The last hidden state, for [`Shape::Hidden`].
    pub hidden: Option<Vec<f32>>,
    /// Where the tokens came from.
    pub tokens: TokenCounts,
    /// Wall time from admission to the end, in milliseconds.
    pub milliseconds: f64,
}

/// Why an [`Ask`] has no [`Answer`]. A failure stays with its ask and never stops another.
#[derive(Clone, Debug, PartialEq)]
pub enum Failure {
    /// The prompt could not be built: the template or the tokenizer refused it.
    Input(String),
    /// The prompt and the room for the answer don't fit. Nothing is ever truncated.
    ContextOverflow {
        /// Tokens of the prompt.
        prompt: usize,
        /// Tokens that the answer may need.
        answer: usize,
        /// Tokens that fit (the smaller of the model's context and the memory budget).
        context: usize,
    },
    /// The shape could not be compiled, or the decoder and the grammar disagreed.
    Grammar(String),
    /// A logit was NaN or infinite.
    NonFiniteLogits,
    /// `max_tokens` were used up before the shape was complete.
    Length {
        /// The bound that was hit.
        max_tokens: usize,
    },
    /// The run was interrupted before this ask was settled.
    Interrupted,
    /// A fault of the engine itself.
    Engine(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Input(reason) => write!(f, "the prompt could not be built: {reason}"),
            Failure::ContextOverflow {
                prompt,
                answer,
                context,
            } => write!(
                f,
                "the prompt has {prompt} tokens and its answer needs up to {answer}, but only {context} fit"
            ),
            Failure::Grammar(reason) => write!(f, "the answer's grammar failed: {reason}"),
            Failure::NonFiniteLogits => write!(f, "the model produced a logit that is not finite"),
            Failure::Length { max_tokens } => {
                write!(f, "the answer was not complete after {max_tokens} tokens")
            }
            Failure::Interrupted => write!(f, "interrupted before it was judged"),
            Failure::Engine(reason) => write!(f, "engine: {reason}"),
        }
    }
}

/// Names an ask between [`Answerer::submit`] and its answer.
pub type Ticket = u64;

/// Counters of an engine since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Asks waiting for admission.
    pub waiting: usize,
    /// Asks in flight.
    pub running: usize,
    /// Prompt tokens computed (cached ones not counted).
    pub prompt_tokens: u64,
    /// Prompt tokens found in the prefix cache.
    pub cached_tokens: u64,
    /// Output tokens that were forced.
    pub forced_tokens: u64,
    /// Output tokens that were chosen by the model.
    pub generated_tokens: u64,
}

/// Something that answers asks: the engine, or a script in tests.
pub trait Answerer {
    /// Queues an ask. Its result comes out of a later [`Answerer::step`] under the same ticket.
    fn submit(&mut self, ticket: Ticket, ask: Ask);
    /// Does one unit of work and returns what was settled by it, in order of settling. Returns nothing, at once, when
    /// there is nothing to do.
    fn step(&mut self) -> Vec<(Ticket, Result<Answer, Failure>)>;
    /// Counters since the start.
    fn progress(&self) -> Progress;
}
