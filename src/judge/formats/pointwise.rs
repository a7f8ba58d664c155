//! Pointwise judging: one answer, one scale, one ask.
//!
//! `pose` turns an item into an ask, and `rule` turns the answer to it into a verdict; the JSON keys that one asks for and
//! the other reads stand here together.

use crate::ask::{Answer, Ask, Decoding, Failure, Field, FieldValue, Labels, Prompt, Shape};
use crate::judge::digest::Digest;
use crate::judge::prompt::{self, Sections};
use crate::judge::rubric::{Rubric, Scale};
use crate::judge::verdict::{Quote, Verdict};
use crate::score::{Distribution, ScoreError, expected};
use crate::trace::Item;
use serde_json::Value;

/// What the judge writes before the label.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// A rationale and quotes; the label is conditional on them.
    #[default]
    Rationale,
    /// Nothing: the label is read out right after the prompt, and no token is decoded.
    ScoreOnly,
}

impl Mode {
    /// Its name on the command line and in `run.json`.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Rationale => "rationale",
            Mode::ScoreOnly => "score-only",
        }
    }
}

/// Pointwise judging under one rubric.
#[derive(Clone, Debug)]
pub struct Pointwise {
    /// The rubric.
    pub rubric: Rubric,
    /// What is written before the label.
    pub mode: Mode,
    /// Seed of the run; every item draws its own stream from it.
    pub seed: u64,
}

impl Pointwise {
    /// Turns an item into an ask.
    ///
    /// # Errors
    /// [`Failure::Input`] where the rubric shows a field that the item does not have.
    pub fn pose(&self, item: &Item) -> Result<Ask, Failure> {
        let sections = Sections::of_item(&self.rubric, item).map_err(|field| {
            Failure::Input(format!(
                "the rubric shows \"{field}\", but item {} of {} has none",
                item.line, item.file
            ))
        })?;
        let reasons = self.mode == Mode::Rationale;
        let decoding = &self.rubric.decoding;
        let labels = Labels {
            names: self.rubric.labels(),
            quoted: self.rubric.quoted(),
        };
        let mut fields = Vec::new();
        if reasons {
            let text = FieldValue::Text {
                max_chars: decoding.rationale_chars,
            };
            fields.push(Field {
                name: "rationale".into(),
                value: text,
            });
            let quotes = FieldValue::Quotes {
                source: item.answer.clone(),
                max_items: decoding.quotes,
                max_chars: decoding.quote_chars,
            };
            fields.push(Field {
                name: "evidence".into(),
                value: quotes,
            });
        }
        fields.push(Field {
            name: self.rubric.label_field().into(),
            value: FieldValue::Labels(labels),
        });
        Ok(Ask {
            prompt: Prompt::Chat(prompt::messages(&self.rubric, reasons, &sections)),
            shape: Shape::Object(fields),
            decoding: Decoding {
                temperature: decoding.temperature,
                top_p: decoding.top_p,
                // Without a rationale only what stands before the label is written.
                max_tokens: match self.mode {
                    Mode::Rationale => decoding.max_tokens,
                    Mode::ScoreOnly => decoding.max_tokens.min(64),
                },
                seed: self.item_seed(item),
            },
        })
    }

    /// Turns the answer to [`Pointwise::pose`] into a verdict.
    ///
    /// # Errors
    /// [`Failure::NonFiniteLogits`] for masses that are not numbers, and [`Failure::Grammar`] for any answer that is not
    /// what was asked for: it is never guessed what was meant.
    pub fn rule(&self, item: &Item, answer: &Answer) -> Result<Verdict, Failure> {
        let refuse = |reason: &str| Failure::Grammar(reason.to_string());
        let object = match serde_json::from_str(&answer.text) {
            Ok(Value::Object(object)) => object,
            _ => return Err(refuse("the judge's output is not one JSON object")),
        };
        let readout = answer
            .readout
            .as_ref()
            .ok_or_else(|| refuse("the answer has no readout of its label"))?;
        if readout.labels != self.rubric.labels() {
            return Err(refuse("the readout is of other labels than the rubric's"));
        }
        let distribution = Distribution::new(&readout.labels, &readout.log_masses).map_err(
            |error| match error {
                ScoreError::NotFinite(_) => Failure::NonFiniteLogits,
                other => Failure::Grammar(other.to_string()),
            },
        )?;
        let written = match object.get(self.rubric.label_field()) {
            Some(Value::String(label)) if self.rubric.scale == Scale::Binary => label.clone(),
            Some(Value::Number(label)) if self.rubric.scale == Scale::Integer => label.to_string(),
            _ => return Err(refuse("the judge's output has no label")),
        };
        let top = distribution.probabilities[distribution.top()];
        // Where two labels tie to the last bit, the written one counts; it may never be another than a top one.
        if distribution.probability(&written) != Some(top) {
            return Err(refuse("the written label is not the most probable one"));
        }
        let (rationale, evidence) = match self.mode {
            Mode::ScoreOnly => (None, Vec::new()),
            Mode::Rationale => {
                let Some(Value::String(rationale)) = object.get("rationale") else {
                    return Err(refuse("the judge's output has no rationale"));
                };
                (
                    Some(rationale.clone()),
                    quotes(&item.answer, object.get("evidence"))?,
                )
            }
        };
        Ok(Verdict {
            label: written,
            expected: expected(&distribution, &self.rubric.values()),
            mass: distribution.mass,
            low_mass: distribution.mass < self.rubric.mass_threshold,
            entropy: distribution.entropy(),
            margin: distribution.margin(),
            distribution: distribution
                .labels
                .into_iter()
                .zip(distribution.probabilities)
                .collect(),
            rationale,
            evidence,
            raw: answer.text.clone(),
            tokens: answer.tokens,
            milliseconds: answer.milliseconds,
        })
    }

    /// Each item's own stream: the same whatever else is judged, and in whatever order.
    fn item_seed(&self, item: &Item) -> u64 {
        let digest = Digest::new("assize seed")
            .field(self.seed.to_le_bytes())
            .field(&item.name)
            .field(&item.answer);
        let bytes = digest.bytes();
        bytes[..8]
            .iter()
            .fold(0, |seed, byte| seed << 8 | u64::from(*byte))
    }
}

fn quotes(answer: &str, evidence: Option<&Value>) -> Result<Vec<Quote>, Failure> {
    let refuse = |reason: &str| Failure::Grammar(reason.to_string());
    let Some(Value::Array(evidence)) = evidence else {
        return Err(refuse("the judge's output has no evidence"));
    };
    let mut quotes: Vec<Quote> = Vec::new();
    for value in evidence {
        let Value::String(text) = value else {
            return Err(refuse("a piece of evidence is not a string"));
        };
        // A passage quoted twice means its next occurrence.
        let from = quotes
            .iter()
            .filter(|quote| quote.quote == *text)
            .map(|quote| quote.end)
            .max()
            .unwrap_or(0);
        let quote = Quote::find(answer, text, from).filter(|quote| !quote.quote.is_empty());
        quotes.push(quote.ok_or_else(|| refuse("a quote is not in the answer"))?);
    }
    Ok(quotes)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::ask::{Readout, TokenCounts};

    pub(crate) fn rubric(extra: &str) -> Rubric {
        Rubric::parse(&format!(
            "id = \"r\"\nversion = 1\ncriterion = \"c\"\nquestion = \"q\"\nscale = \"binary\"\n{extra}\n\
             [[level]]\nlabel = \"pass\"\ndescription = \"good\"\n[[level]]\nlabel = \"fail\"\ndescription = \"bad\"\n"
        ))
        .unwrap()
    }

    pub(crate) fn item(answer: &str) -> Item {
        Item {
            name: "1".into(),
            file: "a.jsonl".into(),
            line: 1,
            input: Some("what?".into()),
            context: None,
            answer: answer.into(),
            reference: None,
            label: None,
            metadata: None,
        }
    }

    fn answer(text: &str, masses: [f64; 2]) -> Answer {
        Answer {
            text: text.into(),
            readout: Some(Readout {
                labels: vec!["pass".into(), "fail".into()],
                log_masses: masses.to_vec(),
            }),
            hidden: None,
            tokens: TokenCounts::default(),
            milliseconds: 1.0,
        }
    }

    const MASSES: [f64; 2] = [-0.2231435513142097, -std::f64::consts::LN_10]; // ln 0.8, ln 0.1

    fn check(text: &str, masses: [f64; 2], want: Result<&str, Failure>) {
        let format = Pointwise {
            rubric: rubric(""),
            mode: Mode::Rationale,
            seed: 0,
        };
        let found = format.rule(&item("one two"), &answer(text, masses));
        assert_eq!(
            found.map(|verdict| verdict.label),
            want.map(String::from),
            "{text}"
        );
    }

    #[test]
    fn a_verdict_is_read() {
        let format = Pointwise {
            rubric: rubric("mass_threshold = 0.95"),
            mode: Mode::Rationale,
            seed: 0,
        };
        let text = r#"{"rationale":"r","evidence":["two"],"verdict":"pass"}"#;
        let verdict = format
            .rule(&item("one two"), &answer(text, MASSES))
            .unwrap();
        assert_eq!((verdict.label.as_str(), verdict.low_mass), ("pass", true));
        assert!((verdict.expected - 8.0 / 9.0).abs() < 1e-12 && (verdict.mass - 0.9).abs() < 1e-12);
        assert_eq!(
            verdict.evidence,
            [Quote {
                quote: "two".into(),
                start: 4,
                end: 7
            }]
        );
    }

    #[test]
    fn nothing_is_guessed() {
        let grammar = |reason: &str| Err(Failure::Grammar(reason.into()));
        let none = f64::NEG_INFINITY;
        check(
            r#"{"rationale":"r","evidence":[],"verdict":"pass"}"#,
            MASSES,
            Ok("pass"),
        );
        check(
            r#"{"rationale":"r","evidence":[],"verdict":"fail"}"#,
            [-1.0, -1.0],
            Ok("fail"),
        );
        check(
            "pass",
            MASSES,
            grammar("the judge's output is not one JSON object"),
        );
        check(
            r#"{"rationale":"r","evidence":[]}"#,
            MASSES,
            grammar("the judge's output has no label"),
        );
        check(
            r#"{"rationale":"r","evidence":["six"],"verdict":"pass"}"#,
            MASSES,
            grammar("a quote is not in the answer"),
        );
        check(
            r#"{"rationale":"r","evidence":[""],"verdict":"pass"}"#,
            MASSES,
            grammar("a quote is not in the answer"),
        );
        check(
            r#"{"rationale":"r","evidence":[],"verdict":"fail"}"#,
            MASSES,
            grammar("the written label is not the most probable one"),
        );
        check(
            r#"{"rationale":"r","evidence":[],"verdict":"pass"}"#,
            [f64::NAN, 0.0],
            Err(Failure::NonFiniteLogits),
        );
        check(
            r#"{"rationale":"r","evidence":[],"verdict":"pass"}"#,
            [none, none],
            grammar("no label has any probability"),
        );
    }

    #[test]
    fn score_only_asks_for_the_label_alone() {
        let format = Pointwise {
            rubric: rubric(""),
            mode: Mode::ScoreOnly,
            seed: 0,
        };
        let Shape::Object(fields) = format.pose(&item("x")).unwrap().shape else {
            panic!("an object")
        };
        assert_eq!(
            fields
                .iter()
                .map(|field| field.name.as_str())
                .collect::<Vec<_>>(),
            ["verdict"]
        );
        let verdict = format
            .rule(&item("x"), &answer(r#"{"verdict":"pass"}"#, MASSES))
            .unwrap();
        assert_eq!((verdict.rationale, verdict.evidence.len()), (None, 0));
    }

    #[test]
    fn seeds_are_an_items_own() {
        let seed = |seed, answer| {
            let format = Pointwise {
                rubric: rubric(""),
                mode: Mode::Rationale,
                seed,
            };
            format.pose(&item(answer)).unwrap().decoding.seed
        };
        assert_eq!(seed(1, "x"), seed(1, "x"));
        assert_ne!(seed(1, "x"), seed(2, "x"));
        assert_ne!(seed(1, "x"), seed(1, "y"));
    }
}
