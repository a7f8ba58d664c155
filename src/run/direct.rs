//! Judges items without a run folder: what comes in order goes out in order, and nothing is kept.
//!
//! For commands that look at verdicts and throw them away. A run that may be interrupted and resumed is the pipeline's.

use crate::ask::{Answerer, Ticket};
use crate::judge::{Evaluation, Format, Step, Unjudged, Verdict};
use crate::trace::Item;
use std::collections::HashMap;
use std::sync::Arc;

/// Evaluations that are open at a time, for each place of a batch.
const OPEN: usize = 64;

/// Judges all items under one format. `settled` is told how many are, and says whether to go on; those that are not judged then
/// are `None`.
pub fn judge(
    answerer: &mut dyn Answerer,
    format: &Arc<dyn Format>,
    items: &[Arc<Item>],
    settled: &mut dyn FnMut(usize) -> bool,
) -> Vec<Option<Result<Verdict, Unjudged>>> {
    let mut outcomes: Vec<Option<Result<Verdict, Unjudged>>> = items.iter().map(|_| None).collect();
    let mut open: HashMap<usize, Box<dyn Evaluation>> = HashMap::new();
    let mut asked: HashMap<Ticket, (usize, usize)> = HashMap::new();
    let mut tickets: Ticket = 0;
    let mut waiting = items.iter().enumerate();
    let mut done = 0;
    loop {
        let mut steps: Vec<(usize, Step)> = Vec::new();
        while open.len() + steps.len() < OPEN {
            let Some((index, item)) = waiting.next() else {
                break;
            };
            let (evaluation, step) = format.clone().begin(item.clone());
            open.insert(index, evaluation);
            steps.push((index, step));
        }
        if steps.is_empty() {
            if open.is_empty() || !settled(done) {
                return outcomes;
            }
            for (ticket, answer) in answerer.step() {
                let Some((index, slot)) = asked.remove(&ticket) else {
                    continue;
                };
                if let Some(evaluation) = open.get_mut(&index) {
                    steps.push((index, evaluation.answer(slot, answer)));
                }
            }
            let progress = answerer.progress();
            if steps.is_empty() && progress.waiting + progress.running == 0 {
                // The answerer owes answers and has nothing to do: what is open stays unjudged.
                return outcomes;
            }
        }
        for (index, step) in steps {
            match step {
                Step::Ask(posed) => {
                    for posed in posed {
                        tickets += 1;
                        asked.insert(tickets, (index, posed.slot));
                        answerer.submit(tickets, posed.ask);
                    }
                }
                Step::Settled(outcome) => {
                    open.remove(&index);
                    outcomes[index] = Some(*outcome);
                    done += 1;
                }
            }
        }
    }
}
