//! A model and a front end that are small, deterministic and unforgiving.
//!
//! The model keeps token ids where a real one keeps keys and values, and its logits hash the history that it finds through
//! the pages. The constraint's masks hash the tokens that it was told.

use assize::ask::{Failure, FieldValue, Labels, Part, Prompt, Shape};
use assize::constrain::{ConstrainError, Constraint, Mask, Next};
use assize::constrain::{NodeId, Step};
use assize::engine::frontend::Frontend;
use assize::engine::readout::LabelPaths;
use assize::model::batch::{Batch, Forward, ForwardError, PAGE, PageId};
use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex};

pub const STOP: u32 = 0;
/// A token that makes the model produce a NaN right after it.
pub const POISON: u32 = 1;
/// A token that makes the whole pass fail.
pub const BROKEN: u32 = 2;

pub fn vocabulary() -> &'static [Vec<u8>] {
    static WORDS: std::sync::OnceLock<Vec<Vec<u8>>> = std::sync::OnceLock::new();
    WORDS.get_or_init(|| {
        let mut words: Vec<Vec<u8>> = vec![Vec::new(), b"\x01".to_vec(), b"\x02".to_vec()];
        words.extend((0x20..0x7f).map(|byte| vec![byte]));
        // A second way to spell a digit, several lengths of the same words, and tokens that run into the closing text.
        for word in [
            "5", "10", "100", "00", "pa", "ss", "pass", "fa", "il", "fail", "1}", "10}", "5}", "}",
            "s\"}", "0}",
        ] {
            words.push(word.as_bytes().to_vec());
        }
        words.push(vec![0xc3]);
        words.push(vec![0xa9]);
        words
    })
}

pub fn token_of(character: char) -> u32 {
    match character {
        '\u{1}' => POISON,
        '\u{2}' => BROKEN,
        ' '..='~' => character as u32 - 0x20 + 3,
        _ => token_of('?'),
    }
}

pub fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value ^ (value >> 32)
}

pub fn hash(tokens: impl IntoIterator<Item = u32>) -> u64 {
    tokens.into_iter().fold(77, |hash, token| {
        mix(hash.rotate_left(5) ^ u64::from(token) ^ 0x55aa)
    })
}

/// The logits after a history. Stops and digits are likely enough for answers to end and labels to have mass.
pub fn logits(history: &[u32]) -> Vec<f32> {
    let hash = hash(history.iter().copied());
    let mut logits: Vec<f32> = (0..vocabulary().len() as u64)
        .map(|token| (mix(hash ^ mix(token + 1)) >> 40) as f32 / (1u64 << 24) as f32 * 8.0 - 4.0)
        .collect();
    logits[STOP as usize] += 3.0;
    if history.last() == Some(&POISON) {
        logits[9] = f32::NAN;
    }
    logits
}

#[derive(Default)]
pub struct Stats {
    pub passes: usize,
    pub rows: usize,
    pub widest: usize,
    pub copies: usize,
}

pub struct Fake {
    context: usize,
    slots: Vec<[u32; PAGE]>,
    pub stats: Arc<Mutex<Stats>>,
}

impl Fake {
    pub fn new(context: usize, pages: usize) -> Self {
        Fake {
            context,
            slots: vec![[u32::MAX; PAGE]; pages],
            stats: Arc::default(),
        }
    }
}

impl Forward for Fake {
    fn vocabulary(&self) -> usize {
        vocabulary().len()
    }
    fn context(&self) -> usize {
        self.context
    }
    fn pages(&self) -> usize {
        self.slots.len()
    }
    fn forward(&mut self, batch: &Batch) -> Result<Vec<f32>, ForwardError> {
        assert!(!batch.tokens.is_empty(), "an empty pass");
        assert!(batch.outputs.is_sorted_by(|a, b| a < b));
        let mut stats = self.stats.lock().unwrap();
        stats.passes += 1;
        stats.rows += batch.tokens.len();
        stats.widest = stats.widest.max(batch.tokens.len());
        let mut written = HashSet::new();
        let mut next = 0;
        for span in &batch.spans {
            assert_eq!(span.first, next);
            assert!(
                span.rows > 0 && (span.position + span.rows).div_ceil(PAGE) == span.pages.len()
            );
            assert!(span.position + span.rows <= self.context);
            next += span.rows;
            for row in 0..span.rows {
                let position = span.position + row;
                let place = (span.pages[position / PAGE], position % PAGE);
                assert!(written.insert(place), "two rows write the same place");
                self.slots[place.0 as usize][place.1] = batch.tokens[span.first + row];
            }
        }
        assert_eq!(next, batch.tokens.len());
        if batch.tokens.contains(&BROKEN) {
            return Err(ForwardError("the fake broke".to_owned()));
        }
        let mut all = Vec::new();
        for output in &batch.outputs {
            let span = batch
                .spans
                .iter()
                .find(|span| (span.first..span.first + span.rows).contains(output))
                .unwrap();
            let end = span.position + output - span.first;
            let history: Vec<u32> = (0..=end)
                .map(|position| self.slots[span.pages[position / PAGE] as usize][position % PAGE])
                .collect();
            all.extend(logits(&history));
        }
        Ok(all)
    }
    fn copy_page(&mut self, from: PageId, to: PageId) -> Result<(), ForwardError> {
        self.slots[to as usize] = self.slots[from as usize];
        self.stats.lock().unwrap().copies += 1;
        Ok(())
    }
}

pub struct FakeFrontend;

/// A script of what comes: masks hang on a hash of all tokens advanced so far, so a token that the constraint wasn't told
/// changes everything after it.
pub struct Script {
    steps: Vec<Scripted>,
    at: usize,
    seen: Vec<u32>,
}

#[derive(Clone)]
pub enum Scripted {
    Forced(Vec<u32>),
    /// So many tokens under a mask, or fewer when a quote character is chosen.
    Choose(usize),
    /// Any token, until a stop.
    Free,
    Labels(Labels, String),
    Refuse,
}

impl Constraint for Script {
    fn next(&mut self) -> Result<Next, ConstrainError> {
        let words = vocabulary().len().div_ceil(32);
        Ok(match self.steps.get(self.at) {
            None => Next::Done,
            Some(Scripted::Refuse) => return Err(ConstrainError::Decode("refused".to_owned())),
            Some(Scripted::Forced(tokens)) => Next::Forced(tokens.clone()),
            Some(Scripted::Labels(labels, closing)) => Next::Labels {
                labels: labels.clone(),
                opening: String::new(),
                closing: closing.clone(),
            },
            Some(Scripted::Free) => {
                let mut words = vec![u32::MAX; words];
                words[0] &= !(1 << POISON | 1 << BROKEN);
                Next::Choose(Mask { words })
            }
            Some(Scripted::Choose(_)) => {
                let mut bits = hash(self.seen.iter().copied());
                let mut mask = Mask {
                    words: vec![0; words],
                };
                for token in 3..98u32 {
                    bits = mix(bits + 1);
                    if bits & 3 != 0 {
                        mask.words[token as usize / 32] |= 1 << (token % 32);
                    }
                }
                Next::Choose(mask)
            }
        })
    }
    fn advance(&mut self, tokens: &[u32]) -> Result<(), ConstrainError> {
        self.seen.extend_from_slice(tokens);
        let quote = tokens == [token_of('"')];
        match self.steps.get_mut(self.at) {
            Some(Scripted::Forced(forced)) => {
                assert_eq!(forced, tokens);
                self.at += 1;
            }
            Some(Scripted::Choose(left)) => {
                assert_eq!(tokens.len(), 1);
                *left -= 1;
                if *left == 0 || quote {
                    self.at += 1;
                }
            }
            Some(Scripted::Free) => assert_ne!(tokens, [STOP]),
            _ => panic!("advanced at the end"),
        }
        Ok(())
    }
}

impl Frontend for FakeFrontend {
    fn encode(&self, prompt: &Prompt) -> Result<Vec<u32>, Failure> {
        let text = match prompt {
            Prompt::Raw(text) => text.clone(),
            Prompt::Chat(messages) => messages
                .iter()
                .flat_map(|message| message.parts.iter().map(Part::text))
                .collect(),
        };
        if text.contains('\0') {
            return Err(Failure::Input("a NUL".to_owned()));
        }
        Ok(text.chars().map(token_of).collect())
    }
    fn bytes(&self, token: u32) -> &[u8] {
        &vocabulary()[token as usize]
    }
    fn is_stop(&self, token: u32) -> bool {
        token == STOP
    }
    fn constrain(&self, shape: &Shape) -> Result<Box<dyn Constraint>, Failure> {
        let text = |text: &str| Scripted::Forced(text.chars().map(token_of).collect());
        let steps = match shape {
            Shape::Free => vec![Scripted::Free],
            // `f12 c3 x`: force twelve, choose three, refuse.
            Shape::Schema(script) => script
                .split_whitespace()
                .map(|word| match (&word[..1], word[1..].parse::<usize>()) {
                    ("f", Ok(count)) => {
                        Scripted::Forced((0..count as u32).map(|i| 3 + i * 7 % 90).collect())
                    }
                    ("c", Ok(count)) => Scripted::Choose(count),
                    ("x", _) => Scripted::Refuse,
                    _ => panic!("script {script}"),
                })
                .collect(),
            Shape::Object(fields) => {
                let mut steps = Vec::new();
                for (index, field) in fields.iter().enumerate() {
                    steps.push(text(&format!(
                        "{}\"{}\":",
                        if index == 0 { "{" } else { "," },
                        field.name
                    )));
                    match &field.value {
                        FieldValue::Text { max_chars } => {
                            steps.extend([text("\""), Scripted::Choose(*max_chars), text("\"")]);
                        }
                        FieldValue::Labels(labels) => {
                            if labels.quoted {
                                steps.push(text("\""));
                            }
                            let closing = if labels.quoted { "\"}" } else { "}" };
                            steps.push(Scripted::Labels(labels.clone(), closing.to_owned()));
                        }
                        FieldValue::Quotes { .. }
                        | FieldValue::Quote { .. }
                        | FieldValue::Choice(_)
                        | FieldValue::List { .. } => {
                            return Err(Failure::Grammar("no quotes here".to_owned()));
                        }
                    }
                }
                steps
            }
            Shape::Labels(labels) => vec![Scripted::Labels(labels.clone(), String::new())],
            Shape::Written(_) => return Err(Failure::Grammar("no segments here".to_owned())),
            Shape::Hidden => unreachable!("refused before"),
        };
        Ok(Box::new(Script {
            steps,
            at: 0,
            seen: Vec::new(),
        }))
    }
    fn label_paths(
        &self,
        labels: &Labels,
        _opening: &str,
        closing: &str,
    ) -> Result<Arc<dyn LabelPaths>, Failure> {
        Ok(Arc::new(FakePaths::build(labels, closing)))
    }
}

/// A node for every beginning of a label that a longer label goes on from.
pub struct FakePaths {
    names: Vec<String>,
    edges: Vec<Vec<(u32, Step)>>,
    label: Vec<Option<usize>>,
}

impl FakePaths {
    fn build(labels: &Labels, closing: &str) -> Self {
        let names = labels.names.clone();
        let mut ids = BTreeMap::from([(Vec::new(), 0)]);
        let mut waiting = vec![Vec::new()];
        let mut paths = FakePaths {
            names: names.clone(),
            edges: Vec::new(),
            label: Vec::new(),
        };
        while let Some(prefix) = waiting.get(paths.edges.len()).cloned() {
            let mut edges = Vec::new();
            for (token, word) in vocabulary()
                .iter()
                .enumerate()
                .filter(|(_, word)| !word.is_empty())
            {
                let spelled = [prefix.as_slice(), word].concat();
                if let Some(step) = step(&names, closing, &spelled, prefix.len()) {
                    let step = step.unwrap_or_else(|| {
                        Step::Continue(*ids.entry(spelled.clone()).or_insert_with(|| {
                            waiting.push(spelled.clone());
                            waiting.len() - 1
                        }))
                    });
                    edges.push((token as u32, step));
                }
            }
            paths.edges.push(edges);
            paths
                .label
                .push(names.iter().position(|name| name.as_bytes() == prefix));
        }
        paths
    }
}

/// Where a text leads that is longer than `before` bytes by one token: nowhere, on (`Some(None)`), or to a label.
pub fn step(
    names: &[String],
    closing: &str,
    spelled: &[u8],
    before: usize,
) -> Option<Option<Step>> {
    if names
        .iter()
        .any(|name| name.len() > spelled.len() && name.as_bytes().starts_with(spelled))
    {
        return Some(None);
    }
    let ends = |name: &String| {
        let full = [name.as_bytes(), closing.as_bytes()].concat();
        name.len() > before && spelled.starts_with(name.as_bytes()) && full.starts_with(spelled)
    };
    names
        .iter()
        .position(ends)
        .map(|label| Some(Step::Complete(label)))
}

impl LabelPaths for FakePaths {
    fn labels(&self) -> &[String] {
        &self.names
    }
    fn text(&self, label: usize) -> &str {
        &self.names[label]
    }
    fn root(&self) -> NodeId {
        0
    }
    fn edges(&self, node: NodeId) -> &[(u32, Step)] {
        &self.edges[node]
    }
    fn label_at(&self, node: NodeId) -> Option<usize> {
        self.label[node]
    }
}
