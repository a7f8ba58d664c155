//! From a shape to the constraint that walks it.
//!
//! One compiler serves all asks to one model. It holds what is costly to make: the token trie, and the label tries.

use super::rules::{Body, Outline};
use super::walker::{End, Free, Grammar, Literal, reason};
use super::{ConstrainError, Constraint, LabelTrie, Mask, Vocabulary, grammar, segments};
use crate::ask::{Labels, Shape};
use crate::tokenizer::Tokenizer;
use llguidance::api::{ParserLimits, TopLevelGrammar};
use llguidance::earley::SlicedBiasComputer;
use llguidance::toktrie::{InferenceCapabilities, TokEnv};
use llguidance::{Matcher, ParserFactory};
use std::collections::HashMap;
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
                return self.outlined(grammar::object(fields)?);
            }
            Shape::Written(segments) => {
                return self.outlined(segments::written(segments, self.vocabulary.endings())?);
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

    fn outlined(&self, outline: Outline) -> Result<Box<dyn Constraint>, ConstrainError> {
        Ok(match outline.body {
            Body::Literal(text) => Box::new(self.literal(&text, outline.end)?),
            Body::Lark(lark) => {
                Box::new(self.grammar(TopLevelGrammar::from_lark(lark), outline.end)?)
            }
        })
    }

    fn literal(&self, text: &str, end: End) -> Result<Literal, ConstrainError> {
        let tokens = self.vocabulary.spell(text.as_bytes());
        if self.vocabulary.spelled(&tokens) == text.as_bytes() {
            Ok(Literal { tokens, end })
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
