//! The pipeline over a scripted answerer: order, failures beside items, and resuming from every possible moment.

use assize::ask::{
    Answer, Answerer, Ask, Failure, Part, Progress, Prompt, Readout, Ticket, TokenCounts,
};
use assize::journal::{
    Journal, ModelDescription, Row, RowOutcome, RubricDescription, RunDescription,
    SettingsDescription,
};
use assize::judge::{Format, Manner, Rubric, formats};
use assize::run::feed::Fed;
use assize::run::{Pipeline, PipelineError, Run};
use assize::trace::{FieldMap, open};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const RUBRIC: &str = r#"
id = "short"
version = "1"
criterion = "Shortness"
question = "Is the answer short?"
scale = "binary"
[[level]]
label = "pass"
description = "It is."
[[level]]
label = "fail"
description = "It is not."
"#;

/// Answers out of order, in a way that depends on the ask alone.
#[derive(Default)]
struct Scripted {
    waiting: Vec<(Ticket, Ask)>,
    steps: usize,
    /// After this many steps the flag is set.
    interrupt_after: Option<(usize, Arc<AtomicBool>)>,
    submitted: usize,
}

impl Answerer for Scripted {
    fn submit(&mut self, ticket: Ticket, ask: Ask) {
        self.submitted += 1;
        self.waiting.push((ticket, ask));
    }

    fn step(&mut self) -> Vec<(Ticket, Result<Answer, Failure>)> {
        self.steps += 1;
        if let Some((after, flag)) = &self.interrupt_after
            && self.steps >= *after
        {
            flag.store(true, Ordering::SeqCst);
        }
        if self.waiting.is_empty() {
            return Vec::new();
        }
        // The middle one first, so that nothing settles in the order of asking.
        let (ticket, ask) = self.waiting.remove(self.waiting.len() / 2);
        vec![(ticket, script(&ask))]
    }

    fn progress(&self) -> Progress {
        Progress {
            waiting: self.waiting.len(),
            ..Progress::default()
        }
    }
}

fn script(ask: &Ask) -> Result<Answer, Failure> {
    let Prompt::Chat(messages) = &ask.prompt else {
        panic!("the judge asks in turns")
    };
    let parts = &messages.last().unwrap().parts;
    let materials = parts
        .iter()
        .filter(|part| matches!(part, Part::Material(_)));
    let answer = materials.map(Part::text).next_back().unwrap();
    match answer {
        "overflow" => {
            return Err(Failure::ContextOverflow {
                prompt: 10,
                answer: 5,
                context: 12,
            });
        }
        "nan" => return Err(Failure::NonFiniteLogits),
        "length" => return Err(Failure::Length { max_tokens: 7 }),
        _ => (),
    }
    let short = answer.chars().count() < 10;
    let label = if short { "pass" } else { "fail" };
    let quote: Vec<String> = answer
        .split_whitespace()
        .take(1)
        .map(|word| format!("{word:?}"))
        .collect();
    let masses = if short {
        [0.9f64.ln(), 0.05f64.ln()]
    } else {
        [0.1f64.ln(), 0.3f64.ln()]
    };
    Ok(Answer {
        text: format!(
            "{{\"rationale\":\"r\",\"evidence\":[{}],\"verdict\":\"{label}\"}}",
            quote.join("")
        ),
        readout: Some(Readout {
            labels: vec!["pass".into(), "fail".into()],
            log_masses: masses.to_vec(),
        }),
        hidden: None,
        tokens: TokenCounts {
            prompt: answer.len(),
            cached: 0,
            forced: 3,
            generated: 4,
        },
        milliseconds: 1.0,
    })
}

const TRACES: &str = "{\"id\":\"a\",\"input\":\"q\",\"answer\":\"yes\"}\n\
    {\"id\":\"b\",\"input\":\"q\",\"answer\":\"overflow\"}\n\
    not json\n\
    {\"id\":\"c\",\"input\":\"q\",\"answer\":\"a very long answer\"}\n\
    {\"id\":\"d\",\"answer\":\"no input\"}\n\
    {\"id\":\"e\",\"input\":\"q\",\"answer\":\"\"}\n\
    {\"id\":\"f\",\"input\":\"q\",\"answer\":\"nan\"}\n\
    {\"id\":\"g\",\"input\":\"q\",\"answer\":\"length\"}\n\
    {\"id\":\"h\",\"input\":\"q\",\"answer\":\"日本 語\"}\n";

struct Case {
    folder: tempfile::TempDir,
    description: RunDescription,
    formats: Vec<Arc<dyn Format>>,
}

impl Case {
    fn new() -> Case {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("t.jsonl"), TRACES).unwrap();
        let rubric = Rubric::parse(RUBRIC).unwrap();
        let formats = formats::of(rubric.clone(), Manner::default());
        let description = RunDescription {
            assize: "test".into(),
            model: ModelDescription {
                name: "m".into(),
                files: vec![],
                sha256: vec![],
            },
            tokenizer_digest: String::new(),
            template_digest: String::new(),
            further: vec![],
            rubrics: vec![RubricDescription {
                id: rubric.id.clone(),
                version: rubric.version.clone(),
                digest: rubric.digest(),
                prompt_digest: formats[0].wording(),
            }],
            seed: 0,
            device: "cpu".into(),
            instruction_set: String::new(),
            threads: 1,
            settings: SettingsDescription {
                mode: "rationale".into(),
                ensemble: None,
                exact: false,
                kv_type: "f16".into(),
                context: None,
                traces: vec![],
                map: vec![],
                limit: None,
                max_batch: 1,
                prefill_chunk: 1,
                prefix_cache: true,
                cache_bytes: 0,
            },
        };
        Case {
            folder,
            description,
            formats,
        }
    }

    fn run(
        &self,
        out: &Path,
        answerer: &mut Scripted,
        window: usize,
        strict: bool,
    ) -> Result<(Run, u64), PipelineError> {
        let (mut journal, opened) = Journal::open(out, &self.description)?;
        let flag = answerer
            .interrupt_after
            .as_ref()
            .map(|(_, flag)| flag.clone())
            .unwrap_or_default();
        let traces = open(
            &[self.folder.path().join("t.jsonl")],
            None,
            FieldMap::default(),
        )
        .unwrap();
        let pipeline = Pipeline {
            answerers: vec![answerer],
            formats: self.formats.clone(),
            description: &self.description,
            journal: &mut journal,
            cache: None,
            window,
            strict,
            interrupt: &flag,
            grace: Duration::ZERO,
        };
        Ok((
            pipeline.run(traces.map(Fed::Item), &mut |_| ())?,
            opened.torn,
        ))
    }

    fn verdicts(&self, out: &Path) -> String {
        std::fs::read_to_string(out.join("verdicts.jsonl")).unwrap()
    }

    fn undisturbed(&self) -> String {
        let out = self.folder.path().join("undisturbed");
        self.run(&out, &mut Scripted::default(), 4, false).unwrap();
        self.verdicts(&out)
    }
}

#[test]
fn every_line_has_its_outcome_in_order() {
    let case = Case::new();
    let found: Vec<(String, String)> = case
        .undisturbed()
        .lines()
        .map(|line| {
            let row = Row::parse(line).unwrap();
            let outcome = match row.outcome {
                RowOutcome::Judged {
                    label, low_mass, ..
                } => format!("{label} low_mass={low_mass}"),
                RowOutcome::Failed { kind, reason } => format!("{}: {reason}", kind.name()),
            };
            (row.item, outcome)
        })
        .collect();
    let want = [
        ("a", "pass low_mass=false"),
        (
            "b",
            "context_overflow: the prompt has 10 tokens and its answer needs up to 5, but only 12 fit",
        ),
        (
            "line 3",
            "input: item 3 of t.jsonl: not valid JSON: expected ident at column 2; each line must be one whole JSON \
             object; is the file one big JSON array?",
        ),
        ("c", "fail low_mass=true"),
        (
            "d",
            "missing_field: the rubric needs \"input\", but item 5 of t.jsonl has none",
        ),
        ("e", "pass low_mass=false"),
        (
            "f",
            "non_finite_logits: the model produced a logit that is not finite",
        ),
        ("g", "length: the answer was not complete after 7 tokens"),
        ("h", "pass low_mass=false"),
    ];
    let want: Vec<(String, String)> = want
        .iter()
        .map(|(a, b)| (a.to_string(), b.to_string()))
        .collect();
    assert_eq!(found, want);
}

#[test]
fn the_window_changes_nothing() {
    let case = Case::new();
    let want = case.undisturbed();
    for window in [0, 1, 2, 100] {
        let out = case.folder.path().join(format!("window-{window}"));
        case.run(&out, &mut Scripted::default(), window, false)
            .unwrap();
        assert_eq!(case.verdicts(&out), want, "window {window}");
    }
}

#[test]
fn a_finished_run_is_not_judged_again() {
    let case = Case::new();
    let want = case.undisturbed();
    let mut answerer = Scripted::default();
    let out = case.folder.path().join("undisturbed");
    let (run, _) = case.run(&out, &mut answerer, 4, false).unwrap();
    // The bad line, the item that lacks a field and the one that did not fit are looked at again; only the last is asked.
    assert_eq!(
        (run.resumed, run.judged, run.failed, answerer.submitted),
        (6, 0, 3, 1)
    );
    assert_eq!(case.verdicts(&out), want);
}

#[test]
fn resumed_equals_undisturbed_from_every_moment() {
    let case = Case::new();
    let want = case.undisturbed();
    for steps in 1..=8 {
        let out = case.folder.path().join(format!("steps-{steps}"));
        let flag = Arc::new(AtomicBool::new(false));
        let mut answerer = Scripted {
            interrupt_after: Some((steps, flag)),
            ..Scripted::default()
        };
        let (run, _) = case.run(&out, &mut answerer, 3, false).unwrap();
        let left = case.verdicts(&out);
        assert_eq!(
            left.lines().count(),
            run.settled(),
            "what is settled is in the journal"
        );
        assert_eq!(run.interrupted, run.settled() < 9);

        // A process killed while it wrote its last line leaves any part of it.
        let last = left[..left.len() - 1].rfind('\n').map_or(0, |at| at + 1);
        for cut in (last..=left.len())
            .step_by(13)
            .chain([left.len() - 1, left.len()])
        {
            std::fs::write(out.join("verdicts.jsonl"), &left.as_bytes()[..cut]).unwrap();
            let mut answerer = Scripted::default();
            let (run, torn) = case.run(&out, &mut answerer, 4, false).unwrap();
            let whole = left.as_bytes()[..cut]
                .iter()
                .rposition(|byte| *byte == b'\n')
                .map_or(0, |at| at + 1);
            assert_eq!(torn, (cut - whole) as u64, "{steps} steps, cut at {cut}");
            let settled = |line: &&str| Row::parse(line).unwrap().settled();
            assert_eq!(run.resumed, left[..whole].lines().filter(settled).count());
            assert_eq!(case.verdicts(&out), want, "{steps} steps, cut at {cut}");
        }
    }
}

#[test]
fn strict_stops_at_the_first_bad_line() {
    let case = Case::new();
    let out = case.folder.path().join("strict");
    for _ in 0..2 {
        let error = case
            .run(&out, &mut Scripted::default(), 1, true)
            .unwrap_err();
        let PipelineError::Strict { message, hint } = error else {
            panic!("{error}")
        };
        assert!(
            message.starts_with("item 3 of t.jsonl: not valid JSON"),
            "{message}"
        );
        assert!(!hint.is_empty());
        assert_eq!(
            case.verdicts(&out).lines().count(),
            2,
            "what came before is judged"
        );
    }
}

#[test]
fn an_engine_that_loses_asks_is_told_apart_from_one_that_works() {
    struct Silent;
    impl Answerer for Silent {
        fn submit(&mut self, _: Ticket, _: Ask) {}
        fn step(&mut self) -> Vec<(Ticket, Result<Answer, Failure>)> {
            Vec::new()
        }
        fn progress(&self) -> Progress {
            Progress::default()
        }
    }
    let case = Case::new();
    let (mut journal, _) =
        Journal::open(&case.folder.path().join("lost"), &case.description).unwrap();
    let mut silent = Silent;
    let pipeline = Pipeline {
        answerers: vec![&mut silent],
        formats: case.formats.clone(),
        description: &case.description,
        journal: &mut journal,
        cache: None,
        window: 2,
        strict: false,
        interrupt: &AtomicBool::new(false),
        grace: Duration::ZERO,
    };
    let traces = open(
        &[case.folder.path().join("t.jsonl")],
        None,
        FieldMap::default(),
    )
    .unwrap();
    let error = pipeline
        .run(traces.map(Fed::Item), &mut |_| ())
        .unwrap_err();
    assert!(matches!(error, PipelineError::Lost(2)), "{error}");
}
