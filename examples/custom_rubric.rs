//! Builds a rubric in code, shows the prompt that it makes, and rules on an answer that a script gives: no model needed.
//!
//! Run: `cargo run --example custom_rubric`

use assize::ask::{Answer, Prompt, Readout, TokenCounts};
use assize::judge::{Manner, Pointwise, Rubric};
use assize::trace::Item;

const RUBRIC: &str = r#"
id = "polite"
version = "1"
criterion = "Politeness"
question = "Is the ANSWER polite?"
scale = "integer"

[[level]]
label = 1
description = "rude"

[[level]]
label = 2
description = "neutral"

[[level]]
label = 3
description = "friendly"
"#;

fn main() -> anyhow::Result<()> {
    let format = Pointwise {
        rubric: Rubric::parse(RUBRIC)?,
        manner: Manner::default(),
    };
    let item = Item {
        input: Some("Where is my parcel?".into()),
        ..Item::answered("1", "Thank you for asking! It arrives today.")
    };
    let question = format.question(&item)?;
    let ask = question.ask(format.manner.seed)?;
    if let Prompt::Chat(messages) = &ask.prompt {
        for message in messages {
            let text: String = message.parts.iter().map(|part| part.text()).collect();
            println!("--- {:?}\n{text}", message.role);
        }
    }
    // What an engine would send back: 2 % of the probability lay on no label at all.
    let answer = Answer {
        text: r#"{"rationale":"It thanks and informs.","evidence":["Thank you for asking!"],"score":3}"#.into(),
        readout: Some(Readout {
            labels: format.rubric.labels(),
            log_masses: vec![0.02f64.ln(), 0.16f64.ln(), 0.8f64.ln()],
        }),
        hidden: None,
        tokens: TokenCounts::default(),
        milliseconds: 0.0,
    };
    let opinion = question
        .read(&answer)
        .map_err(|failure| anyhow::anyhow!("{failure}"))?;
    println!("--- opinion\n{opinion:#?}");
    Ok(())
}
