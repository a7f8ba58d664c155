//! `assize devices`: what can compute, and why something can't; and what `--device` and `--plan` come to.

use super::engine::{EngineArguments, PlanArgument};
use super::fault::Fault;
use super::style::{Console, bytes};
use crate::model::cache::KvType;
use crate::run::devices::{Choice, Place, found, open};
use crate::run::{JudgeSettings, Memory};
use anyhow::Result;
use serde_json::json;
use std::io::{Write as _, stdout};

/// Lists the devices: those that can be used, and what keeps the others from it.
///
/// # Errors
/// Standard output that refuses.
pub fn run(json: bool) -> Result<()> {
    let mut out = stdout().lock();
    for found in found() {
        if json {
            let object = json!({
                "device": found.name,
                "usable": found.fault.is_none(),
                "about": found.about,
                "memory_free": found.memory.map(|(free, _)| free),
                "memory_total": found.memory.map(|(_, total)| total),
                "reason": found.fault,
            });
            writeln!(out, "{object}")?;
            continue;
        }
        let mut parts = Vec::new();
        if !found.about.is_empty() {
            parts.push(found.about);
        }
        if let Some((free, total)) = found.memory {
            parts.push(match free == total {
                true => format!("{} free", bytes(free)),
                false => format!("{} of {} free", bytes(free), bytes(total)),
            });
        }
        parts.extend(found.fault.map(|reason| format!("not usable: {reason}")));
        writeln!(out, "{:<8}{}", found.name, parts.join(", "))?;
    }
    Ok(())
}

/// Opens what `--device` asks for.
///
/// # Errors
/// [`Fault`] where it can't be used, or where a plan is asked for and nothing lies on a device.
pub(super) fn place(args: &EngineArguments, console: &Console) -> Result<Place> {
    let opened = open(&args.device).map_err(|unusable| {
        Fault::usage(
            unusable.to_string(),
            "assize devices tells what can be used; --device cpu computes here",
        )
    })?;
    let (place, line) = opened;
    if let Some(line) = line {
        console.say(line);
    }
    if place.there.is_empty() && args.plan != PlanArgument::Auto && args.device != Choice::Auto {
        return Err(Fault::usage(
            "a plan is for weights on a device, and the CPU computes",
            "leave --plan out",
        )
        .into());
    }
    Ok(place)
}

/// The device, with the plan there, and how keys and values are kept, in the words of `run.json`.
pub(super) fn described(
    place: &Place,
    settings: &JudgeSettings,
    memory: &Memory,
) -> (String, String) {
    let kind = place
        .there
        .first()
        .and_then(|there| there.name.split(':').next());
    match (kind, memory.plan) {
        (Some(kind), Some(plan)) => (
            format!("{kind}, {}", plan.name()),
            KvType::Bf16.name().into(),
        ),
        _ => ("cpu".into(), settings.kv_type().name().into()),
    }
}

/// What computes: the card, or the instruction set.
pub(super) fn about(place: &Place) -> String {
    match place.there.as_slice() {
        [] => assize_kernels::isa().name().into(),
        there => {
            let each = there.iter().map(|there| there.about.as_str());
            each.collect::<Vec<_>>().join("; ")
        }
    }
}

/// What is said of the devices at the start; nothing where there are none.
pub(super) fn there(place: &Place, memory: &Memory) -> String {
    let (Some(plan), [_, ..]) = (memory.plan, place.there.as_slice()) else {
        return String::new();
    };
    let each = place
        .there
        .iter()
        .map(|there| format!("{} ({})", there.name, there.about));
    let each: Vec<String> = each.collect();
    format!("; on {}, plan {}", each.join(", "), plan.name())
}
