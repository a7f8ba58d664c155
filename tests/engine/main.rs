//! The engine against a fake model whose logits hash the whole history found through the pages.
//!
//! A wrong page table, a stale page or a missed copy changes the logits. Every answer is compared with a plain simulation
//! that has no pages, no batch and no scheduler.

mod fake;
mod harness;
mod simulation;

use assize::ask::{Ask, Decoding, Failure, Field, FieldValue, Message, Part, Prompt, Role, Shape};
use assize::engine::frontend::Frontend;
use assize::model::batch::PAGE;
use fake::{FakeFrontend, mix};
use harness::{alone, ask, bits, check_against_simulation, labels, object, run, scales, settings};
use proptest::prelude::*;
use std::collections::HashMap;

#[test]
fn readout_equals_brute_force() {
    for (number, labels) in scales().into_iter().enumerate() {
        for prompt in 0..12 {
            for shape in [
                Shape::Labels(labels.clone()),
                object(prompt % 5 + 1, labels.clone()),
            ] {
                let ask = ask(
                    &format!("{} scale {number} prompt {prompt}", "x".repeat(prompt * 3)),
                    shape,
                );
                let answer = alone(&ask);
                assert!(answer.is_ok());
                check_against_simulation(&ask, &answer);
            }
        }
    }
}

fn shapes() -> impl Strategy<Value = Shape> {
    let scale = prop::sample::select(scales());
    prop_oneof![
        1 => Just(Shape::Free),
        2 => prop::sample::select(vec!["f3 c2 f20 c1", "c5", "f40 c1 f1", "", "f7", "c1 f17 c9 f2"])
            .prop_map(|script| Shape::Schema(script.to_owned())),
        3 => scale.clone().prop_map(Shape::Labels),
        5 => (1usize..12, scale).prop_map(|(chars, labels)| object(chars, labels)),
    ]
}

fn asks() -> impl Strategy<Value = Ask> {
    // Prompts share long beginnings of several lengths, so that pages are shared, missed by one token, and split.
    let start = prop::sample::select(vec![0usize, 1, 15, 16, 17, 32, 40, 64]);
    let decoding = (
        prop::sample::select(vec![0.0f32, 0.0, 0.7, 1.3]),
        prop::sample::select(vec![1.0f32, 0.9, 0.4]),
    );
    (
        start,
        "[a-c]{1,24}",
        shapes(),
        decoding,
        0u64..3,
        1usize..60,
    )
        .prop_map(
            |(start, rest, shape, (temperature, top_p), seed, max_tokens)| {
                let rubric = "You judge. The answer is good when it is grounded in the given text.";
                Ask {
                    prompt: Prompt::Raw(format!("{}{rest}", &rubric[..start])),
                    shape,
                    decoding: Decoding {
                        temperature,
                        top_p,
                        seed,
                        max_tokens,
                    },
                }
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Alone or together, in any order, with any budget, chunk and cache: the same bits, and what the simulation says.
    #[test]
    fn no_setting_changes_an_answer(
        asks in prop::collection::vec(asks(), 1..12),
        max_batch in 1usize..=8,
        max_batch_tokens in prop::sample::select(vec![1usize, 2, 5, 16, 48, 512]),
        chunk in prop::sample::select(vec![1usize, 7, 16, 256]),
        cache in any::<bool>(),
        spare in prop::sample::select(vec![0usize, 1, 2, 5, 40]),
        shuffle in any::<u64>(),
    ) {
        let needed = |ask: &Ask| FakeFrontend.encode(&ask.prompt).unwrap().len() + ask.decoding.max_tokens + 4;
        let pages = asks.iter().map(needed).max().unwrap().div_ceil(PAGE) + 1 + spare;
        let mut order: Vec<usize> = (0..asks.len()).collect();
        order.sort_by_key(|index| mix(shuffle ^ *index as u64));
        let outcome = run(&asks, &order, 4096, pages, settings(max_batch, max_batch_tokens, chunk, cache));
        for (ask, answer) in asks.iter().zip(&outcome.answers) {
            check_against_simulation(ask, answer);
            prop_assert_eq!(bits(answer), bits(&alone(ask)));
        }
        if !cache {
            prop_assert_eq!(outcome.progress.cached_tokens, 0);
        }
    }
}

#[test]
fn pages_run_out_and_every_ask_still_ends() {
    let asks: Vec<Ask> = (0..8)
        .map(|index| {
            ask(
                &format!("{index} is a prompt of its own"),
                object(20 + index, scales()[1].clone()),
            )
        })
        .collect();
    let order: Vec<usize> = (0..asks.len()).collect();
    let needed: usize = run(&asks, &order, 4096, 200, settings(8, 512, 64, false))
        .stats
        .lock()
        .unwrap()
        .rows;
    for cache in [false, true] {
        for pages in [7, 8, 9, 12, 16, 20] {
            let outcome = run(&asks, &order, 4096, pages, settings(8, 512, 64, cache));
            for (ask, answer) in asks.iter().zip(&outcome.answers) {
                assert!(answer.is_ok(), "{answer:?}");
                assert_eq!(bits(answer), bits(&alone(ask)));
            }
            if pages == 12 && !cache {
                let rows = outcome.stats.lock().unwrap().rows;
                assert!(
                    rows > needed,
                    "nothing was preempted: {rows} rows against {needed}"
                );
            }
        }
    }
}

#[test]
fn a_shared_rubric_is_computed_once() {
    let rubric =
        "The answer must follow from the context alone, and every claim in it must be there. "
            .repeat(4);
    let asks: Vec<Ask> = (0..8)
        .map(|index| {
            ask(
                &format!("{rubric}{index}"),
                Shape::Labels(scales()[0].clone()),
            )
        })
        .collect();
    let order: Vec<usize> = (0..asks.len()).collect();
    let shared = rubric.len() / PAGE * PAGE;
    for chunk in [7, 16, 256] {
        let outcome = run(&asks, &order, 4096, 100, settings(8, 512, chunk, true));
        let own = rubric.len() + 1 - shared;
        assert_eq!(
            outcome.progress.prompt_tokens as usize,
            shared + 8 * own,
            "chunk {chunk}"
        );
        assert_eq!(outcome.progress.cached_tokens as usize, 7 * shared);
        assert_eq!(outcome.stats.lock().unwrap().rows, shared + 8 * own);
        let cached: Vec<usize> = outcome
            .answers
            .iter()
            .map(|answer| answer.as_ref().unwrap().tokens.cached)
            .collect();
        assert_eq!(
            cached,
            [0, shared, shared, shared, shared, shared, shared, shared]
        );
    }
    let cold = run(&asks, &order, 4096, 400, settings(8, 512, 256, false));
    assert_eq!(cold.progress.prompt_tokens as usize, 8 * (rubric.len() + 1));
}

#[test]
fn the_same_prompt_twice_is_shared_up_to_its_last_row() {
    for length in [1, 15, 16, 17, 32, 33, 48] {
        let asks = [0, 1, 2].map(|_| ask(&"w".repeat(length), object(3, scales()[1].clone())));
        let outcome = run(&asks, &[0, 1, 2], 4096, 40, settings(8, 512, 256, true));
        for answer in &outcome.answers {
            check_against_simulation(&asks[0], answer);
            assert_eq!(bits(answer), bits(&alone(&asks[0])), "{length}");
        }
        let cached = outcome.answers[2].as_ref().unwrap().tokens.cached;
        assert_eq!(cached, (length - 1) / PAGE * PAGE);
    }
}

#[test]
fn asks_of_one_length_settle_in_order_of_submission() {
    // Too few pages for all: some are preempted, several in one pass, or wait, and keep their places.
    let asks: Vec<Ask> = (0..6)
        .map(|index| ask(&format!("{index}"), Shape::Schema("c50".to_owned())))
        .collect();
    for pages in [4, 6, 9, 12, 14] {
        let settings = settings(6, 512, 64, false);
        let outcome = run(&asks, &[3, 1, 0, 5, 4, 2], 4096, pages, settings);
        assert_eq!(outcome.settled, [3, 1, 0, 5, 4, 2], "{pages} pages");
    }
}

#[test]
fn running_sequences_share_each_pass() {
    let asks: Vec<Ask> = (0..8)
        .map(|index| ask(&format!("{index}"), Shape::Schema("c20".to_owned())))
        .collect();
    let order: Vec<usize> = (0..asks.len()).collect();
    let together = run(&asks, &order, 4096, 100, settings(8, 512, 256, true));
    assert_eq!(together.stats.lock().unwrap().passes, 20);
    // A run of forced tokens is one pass, not one pass a token; its last row chooses the next token.
    let forced = [ask("prompt", Shape::Schema("c1 f30 c1 f9".to_owned()))];
    let outcome = run(&forced, &[0], 4096, 100, settings(8, 512, 256, true));
    assert_eq!(outcome.stats.lock().unwrap().passes, 2);
    let tokens = outcome.answers[0].as_ref().unwrap().tokens;
    assert_eq!((tokens.prompt, tokens.forced, tokens.generated), (6, 39, 2));
    assert_eq!(
        (
            outcome.progress.forced_tokens,
            outcome.progress.generated_tokens
        ),
        (39, 2)
    );
    // The token budget holds.
    for budget in [3, 9, 33] {
        let outcome = run(&asks, &order, 4096, 100, settings(8, budget, 256, true));
        assert!(outcome.stats.lock().unwrap().widest <= budget);
    }
}

#[test]
fn branches_copy_the_last_page_and_leave_the_sequence_alone() {
    let scale = scales()[1].clone();
    for length in [15, 16, 17, 31, 32] {
        let ask = ask(&"y".repeat(length), Shape::Labels(scale.clone()));
        let outcome = run(
            std::slice::from_ref(&ask),
            &[0],
            4096,
            8,
            settings(4, 64, 64, true),
        );
        check_against_simulation(&ask, &outcome.answers[0]);
        let copies = outcome.stats.lock().unwrap().copies;
        assert_eq!(copies > 0, length % PAGE != 0, "{length}: {copies}");
    }
}

#[test]
fn a_failure_stays_with_its_ask() {
    let scale = || scales()[0].clone();
    let decoding = |temperature, top_p| Decoding {
        temperature,
        top_p,
        max_tokens: 9,
        ..Decoding::default()
    };
    let with = |decoding| Ask {
        decoding,
        ..ask("sane", Shape::Free)
    };
    let quotes = FieldValue::Quotes {
        source: String::new(),
        max_items: 1,
        max_chars: 1,
    };
    let table = vec![
        (
            ask("a\u{1}", Shape::Labels(scale())),
            Failure::NonFiniteLogits,
        ),
        (
            ask("a\u{1}", Shape::Schema("c3".to_owned())),
            Failure::NonFiniteLogits,
        ),
        (
            ask("", Shape::Labels(scale())),
            Failure::Input("the prompt is empty".to_owned()),
        ),
        (
            ask("a\0", Shape::Labels(scale())),
            Failure::Input("a NUL".to_owned()),
        ),
        (
            ask("a", Shape::Hidden),
            Failure::Engine("hidden states are not in this version".to_owned()),
        ),
        (
            ask("a", Shape::Schema("c2 x".to_owned())),
            Failure::Grammar("refused".to_owned()),
        ),
        (
            ask("a", Shape::Schema("x".to_owned())),
            Failure::Grammar("refused".to_owned()),
        ),
        (
            ask("a", Shape::Schema("f0 c1".to_owned())),
            Failure::Grammar("the grammar forced nothing".to_owned()),
        ),
        (
            ask(
                "a",
                Shape::Object(vec![Field {
                    name: "q".to_owned(),
                    value: quotes,
                }]),
            ),
            Failure::Grammar("no quotes here".to_owned()),
        ),
        (
            ask("a", Shape::Schema("c61".to_owned())),
            Failure::Length { max_tokens: 60 },
        ),
        (
            ask("a", Shape::Schema("f61".to_owned())),
            Failure::Length { max_tokens: 60 },
        ),
        (
            ask("a", object(60, labels(&["\u{3}"], true))),
            Failure::Length { max_tokens: 60 },
        ),
        (
            ask(&"z".repeat(200), Shape::Labels(scale())),
            Failure::ContextOverflow {
                prompt: 200,
                answer: 1,
                context: 176,
            },
        ),
        (
            ask(&"z".repeat(140), Shape::Free),
            Failure::ContextOverflow {
                prompt: 140,
                answer: 60,
                context: 192,
            },
        ),
        (
            with(decoding(f32::NAN, 1.0)),
            Failure::Input("the temperature is NaN".to_owned()),
        ),
        (
            with(decoding(-1.0, 1.0)),
            Failure::Input("the temperature is -1".to_owned()),
        ),
        (
            with(decoding(1.0, 0.0)),
            Failure::Input("top_p is 0, not above 0 and up to 1".to_owned()),
        ),
    ];
    let good = ask("a good one", object(9, scale()));
    let mut asks = Vec::new();
    for (bad, _) in &table {
        asks.extend([bad.clone(), good.clone()]);
    }
    let order: Vec<usize> = (0..asks.len()).collect();
    let outcome = run(&asks, &order, 1000, 12, settings(4, 64, 16, true));
    for (index, answer) in outcome.answers.iter().enumerate() {
        match table.get(index / 2) {
            Some((ask, failure)) if index % 2 == 0 => {
                assert_eq!(answer.as_ref().err(), Some(failure), "{ask:?}");
            }
            _ => assert_eq!(bits(answer), bits(&alone(&good))),
        }
    }
    // The model's own bound counts as much as the memory's.
    let outcome = run(
        &[ask("0123456789", Shape::Free)],
        &[0],
        50,
        12,
        settings(4, 64, 16, true),
    );
    let overflow = Failure::ContextOverflow {
        prompt: 10,
        answer: 60,
        context: 50,
    };
    assert_eq!(outcome.answers[0], Err(overflow));
}

#[test]
fn a_broken_pass_fails_the_asks_in_it_and_no_others() {
    let mut asks: Vec<Ask> = (0..6)
        .map(|index| ask(&format!("ask {index}"), object(9, scales()[0].clone())))
        .collect();
    asks[2] = ask("ask \u{2}", Shape::Free);
    let order: Vec<usize> = (0..asks.len()).collect();
    let outcome = run(&asks, &order, 4096, 64, settings(1, 64, 16, true));
    for (index, answer) in outcome.answers.iter().enumerate() {
        match index {
            2 => assert_eq!(*answer, Err(Failure::Engine("the fake broke".to_owned()))),
            _ => assert_eq!(bits(answer), bits(&alone(&asks[index]))),
        }
    }
    let outcome = run(&asks, &order, 4096, 64, settings(3, 64, 16, true));
    let failed: Vec<usize> = (0..6)
        .filter(|index| outcome.answers[*index].is_err())
        .collect();
    assert!(failed.contains(&2) && failed.len() <= 3, "{failed:?}");
}

#[test]
fn chat_prompts_go_through_the_front_end() {
    let parts = vec![
        Part::Instruction("judge ".to_owned()),
        Part::Material("this".to_owned()),
    ];
    let prompt = Prompt::Chat(vec![Message {
        role: Role::User,
        parts,
    }]);
    let chat = Ask {
        prompt,
        ..ask("", Shape::Labels(scales()[2].clone()))
    };
    assert_eq!(
        bits(&alone(&chat)),
        bits(&alone(&ask(
            "judge this",
            Shape::Labels(scales()[2].clone())
        )))
    );
    let by_seed: HashMap<String, u64> = (0..20)
        .map(|seed| {
            let decoding = Decoding {
                temperature: 1.0,
                seed,
                max_tokens: 30,
                ..Decoding::default()
            };
            let ask = Ask {
                decoding,
                ..ask("draw", Shape::Schema("c9".to_owned()))
            };
            (alone(&ask).unwrap().text, seed)
        })
        .collect();
    assert!(by_seed.len() > 10, "the seed decides the draw");
}
