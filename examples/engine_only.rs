//! The engine without any judge: one question, answered under a JSON shape, with the distribution over its labels.
//!
//! Run: `cargo run --release --example engine_only -- smollm2-135m-instruct "Is the sky green?"`

use assize::ask::{
    Answerer as _, Ask, Decoding, Field, FieldValue, Labels, Message, Part, Prompt, Role, Shape,
};
use assize::run::{JudgeSettings, ModelFile};
use assize::weights::fetch::{FetchOptions, locate};
use assize::weights::progress::Silent;

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let model = arguments.next().unwrap_or("smollm2-135m-instruct".into());
    let question = arguments.next().unwrap_or("Is the sky green?".into());

    let located = locate(&model, &FetchOptions::from_environment(false, &Silent)?)?;
    let settings = JudgeSettings::default();
    let model = ModelFile::open(located.path(), located.template())?;
    let memory = model.plan(&settings)?;
    let mut engine = model.load(&settings, &memory, None)?.engine;

    let labels = Labels {
        names: vec!["yes".into(), "no".into()],
        quoted: true,
    };
    let fields = vec![
        Field {
            name: "reason".into(),
            value: FieldValue::Text { max_chars: 120 },
        },
        Field {
            name: "answer".into(),
            value: FieldValue::Labels(labels),
        },
    ];
    // The question is somebody's text, so it is material: control tokens in it stay plain text.
    let parts = vec![
        Part::Instruction("Answer with a reason, then yes or no: ".into()),
        Part::Material(question),
    ];
    let message = Message {
        role: Role::User,
        parts,
    };
    let ask = Ask {
        prompt: Prompt::Chat(vec![message]),
        shape: Shape::Object(fields),
        decoding: Decoding::default(),
    };
    engine.submit(1, ask);
    let result = loop {
        // One ask is in flight, so the first thing that settles is it.
        if let Some((_, result)) = engine.step().pop() {
            break result;
        }
    };
    let answer = result.map_err(|failure| anyhow::anyhow!("{failure}"))?;
    println!("{}", answer.text);
    if let Some(readout) = &answer.readout {
        for (label, mass) in readout.labels.iter().zip(&readout.log_masses) {
            println!("{label}: {:.6}", mass.exp());
        }
    }
    Ok(())
}
