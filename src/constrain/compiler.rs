//! From a shape to the constraint that walks it.
//!
//! One compiler serves all asks to one model. It holds what is costly to make: the token trie, and the label tries.

use super::passage::{Marks, Passage, Plan, Texts};
use super::rules::Body;
use super::segments::Stretch;
use super::walker::{End, Free, Grammar, Literal, Stage, Written, reason};
use super::{ConstrainError, Constraint, LabelTrie, Mask, Vocabulary, grammar, segments};
use crate::ask::{Labels, Segment, Shape};
use crate::tokenizer::Tokenizer;
use llguidance::api::{ParserLimits, TopLevelGrammar};
use llguidance::earley::SlicedBiasComputer;
use llguidance::toktrie::{InferenceCapabilities, TokEnv};
use llguidance::{Matcher, ParserFactory};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Most label tries that are kept. A run has a handful of label sets; a caller with ever new ones pays for each.
const MOST_TRIES: usize = 256;

/// Makes constraints for one model.
pub struct Compiler {
    vocabulary: Arc<Vocabulary>,
    /// Made when the first grammar is: labels and literals need none.
    factory: OnceLock<Result<ParserFactory, String>>,
    free: Mask,
    stops: Arc<[u32]>,
    tries: Mutex<HashMap<(Labels, String, String), Arc<LabelTrie>>>,
    /// What every token adds to a text, looked at with the first one.
    texts: OnceLock<Arc<Texts>>,
    marks: Mutex<HashMap<(String, String), Arc<Marks>>>,
}

impl Compiler {
    /// Makes the compiler of a model with this tokenizer. What grammars need besides is made by [`Compiler::prepare`], or with the first one.
    ///
    /// # Errors
    /// [`ConstrainError::Compile`] where the vocabulary can't serve constraints.
    pub fn new(tokenizer: &Arc<Tokenizer>) -> Result<Self, ConstrainError> {
        Compiler::from_vocabulary(Vocabulary::from_tokenizer(tokenizer)?)
    }

    /// Makes the compiler of a model with this vocabulary.
    ///
    /// # Errors
    /// [`ConstrainError::Compile`] where the vocabulary can't serve constraints.
    pub fn from_vocabulary(vocabulary: Vocabulary) -> Result<Self, ConstrainError> {
        let vocabulary = Arc::new(vocabulary);
        super::vocabulary::Environment::check(&vocabulary)?;
        let free = vocabulary.free_mask();
        let stops = vocabulary.stops().into();
        Ok(Compiler {
            vocabulary,
            factory: OnceLock::new(),
            free,
            stops,
            tries: Mutex::default(),
            texts: OnceLock::new(),
            marks: Mutex::default(),
        })
    }

    /// Makes the tables that all grammars need, 0.3 s for 152,000 tokens, unless they are there.
    ///
    /// # Errors
    /// [`ConstrainError::Compile`] where the vocabulary can't serve grammars.
    pub fn prepare(&self) -> Result<(), ConstrainError> {
        self.factory().map(|_| ())
    }

    /// The constraint that walks one output of this shape. A shape without text is complete at once.
    ///
    /// # Errors
    /// [`ConstrainError::Compile`] where the shape is none that can be held to, and so before the first token.
    pub fn compile(&self, shape: &Shape) -> Result<Box<dyn Constraint>, ConstrainError> {
        Ok(match shape {
            Shape::Free => Box::new(Free {
                mask: self.free.clone(),
                stops: Arc::clone(&self.stops),
                stopped: false,
            }),
            Shape::Schema(text) => {
                let schema = grammar::schema(text)?;
                Box::new(self.grammar(TopLevelGrammar::from_json_schema(schema), End::Done)?)
            }
            Shape::Object(fields) => {
                let outline = grammar::object(fields)?;
                match outline.body {
                    Body::Literal(text) => Box::new(self.literal(&text, outline.end)?),
                    Body::Lark(lark) => {
                        Box::new(self.grammar(TopLevelGrammar::from_lark(lark), outline.end)?)
                    }
                }
            }
            Shape::Written(segments) => {
                return self.written(segments);
            }
            Shape::Labels(labels) => {
                super::labels::check(labels)?;
                Box::new(Literal {
                    tokens: Vec::new(),
                    end: End::Labels {
                        labels: labels.clone(),
                        opening: String::new(),
                        closing: String::new(),
                    },
                })
            }
            Shape::Hidden => Box::new(Literal {
                tokens: Vec::new(),
                end: End::Done,
            }),
        })
    }

    /// The token paths to `labels` between `opening` and `closing`, built once.
    ///
    /// # Errors
    /// [`ConstrainError::Compile`] as [`LabelTrie::build`].
    pub fn label_trie(
        &self,
        labels: &Labels,
        opening: &str,
        closing: &str,
    ) -> Result<Arc<LabelTrie>, ConstrainError> {
        let key = (labels.clone(), opening.to_owned(), closing.to_owned());
        let mut tries = self.tries.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(trie) = tries.get(&key) {
            return Ok(Arc::clone(trie));
        }
        let trie = LabelTrie::build(&self.vocabulary, labels, opening, closing)?;
        let trie = Arc::new(trie);
        if tries.len() >= MOST_TRIES {
            tries.clear();
        }
        tries.insert(key, Arc::clone(&trie));
        Ok(trie)
    }

    /// The vocabulary.
    pub fn vocabulary(&self) -> &Vocabulary {
        &self.vocabulary
    }

    fn written(&self, segments: &[Segment]) -> Result<Box<dyn Constraint>, ConstrainError> {
        let (stretches, end) = segments::written(segments)?;
        let mut stages = VecDeque::new();
        for stretch in stretches {
            stages.push_back(match stretch {
                Stretch::Literal(text) => Stage::Forced(self.spelled(&text)?),
                Stretch::Passage {
                    longest,
                    mark,
                    end,
                    rest,
                } => {
                    // What can't be spelled is refused now, not when there is no more room.
                    self.spelled(&format!("{end}{rest}"))?;
                    let texts = self
                        .texts
                        .get_or_init(|| Texts::of(&self.vocabulary).into());
                    Stage::Passage(Passage::new(Plan {
                        vocabulary: Arc::clone(&self.vocabulary),
                        texts: Arc::clone(texts),
                        marks: self.marks(&mark, &end),
                        longest,
                        end,
                        rest,
                    }))
                }
            });
        }
        Ok(Box::new(Written {
            vocabulary: Arc::clone(&self.vocabulary),
            stages,
            end,
        }))
    }

    /// The tokens that a text has to be watched for, found once a mark.
    fn marks(&self, mark: &str, end: &str) -> Arc<Marks> {
        let mut marks = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (mark.to_owned(), end.to_owned());
        if let Some(marks) = marks.get(&key) {
            return Arc::clone(marks);
        }
        // What ends an answer can't be kept out of the very literal that ends the text.
        let endings = self.vocabulary.endings().iter();
        let never: Vec<String> = endings
            .filter(|text| !end.contains(*text))
            .cloned()
            .collect();
        let made = Arc::new(Marks::of(&self.vocabulary, mark, &never));
        if marks.len() >= MOST_TRIES {
            marks.clear();
        }
        marks.insert(key, Arc::clone(&made));
        made
    }

    fn literal(&self, text: &str, end: End) -> Result<Literal, ConstrainError> {
        let tokens = self.spelled(text)?;
        Ok(Literal { tokens, end })
    }

    fn spelled(&self, text: &str) -> Result<Vec<u32>, ConstrainError> {
        let tokens = self.vocabulary.spell(text.as_bytes());
        if self.vocabulary.spelled(&tokens) == text.as_bytes() {
            Ok(tokens)
        } else {
            Err(ConstrainError::Compile(format!(
                "the vocabulary has no tokens for the text {text:?}"
            )))
        }
    }

    fn factory(&self) -> Result<&ParserFactory, ConstrainError> {
        let made = self.factory.get_or_init(|| factory(&self.vocabulary));
        made.as_ref()
            .map_err(|error| ConstrainError::Compile(error.clone()))
    }

    fn grammar(&self, grammar: TopLevelGrammar, end: End) -> Result<Grammar, ConstrainError> {
        let matcher = Matcher::new(self.factory()?.create_parser(grammar));
        match matcher.get_error() {
            Some(error) => Err(ConstrainError::Compile(reason(&error))),
            None => Ok(Grammar {
                matcher,
                size: self.vocabulary.size(),
                stops: Arc::clone(&self.stops),
                end,
            }),
        }
    }
}

/// The trie of all tokens, and what llguidance makes of it once a model.
fn factory(vocabulary: &Arc<Vocabulary>) -> Result<ParserFactory, String> {
    let environment: TokEnv = Arc::new(super::vocabulary::Environment::new(vocabulary));
    let abilities = InferenceCapabilities {
        ff_tokens: true,
        ..InferenceCapabilities::default()
    };
    let slices = SlicedBiasComputer::general_slices();
    let mut factory = ParserFactory::new(&environment, abilities, &slices)
        .map_err(|error| reason(&error.to_string()))?;
    factory.quiet();
    *factory.limits_mut() = limits();
    Ok(factory)
}

/// Bounds of llguidance. The defaults suit schemas; quotes of a long source need more of everything that grows with it.
fn limits() -> ParserLimits {
    ParserLimits {
        initial_lexer_fuel: 200_000_000,
        step_lexer_fuel: 20_000_000,
        max_lexer_states: 1_000_000,
        max_grammar_size: 2_000_000,
        verbose_errors: false,
        ..ParserLimits::default()
    }
}
