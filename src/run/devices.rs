//! What computes: which devices there are, which was asked for, and why one can't be used. Knows no model.

use assize_kernels::probe::{self, Absent, Card};
use candle_core::Device;
use std::str::FromStr;

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The best that is really there.
    Auto,
    /// The processor.
    Cpu,
    /// NVIDIA cards, by number: a replica of the model on each.
    Cuda(Vec<usize>),
    /// An Apple GPU.
    Metal,
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Choice, String> {
        match text {
            "auto" => return Ok(Choice::Auto),
            "cpu" => return Ok(Choice::Cpu),
            "cuda" => return Ok(Choice::Cuda(vec![0])),
            "metal" => return Ok(Choice::Metal),
            _ => {}
        }
        let numbers = text
            .strip_prefix("cuda:")
            .ok_or("use auto, cpu, cuda, cuda:0, cuda:0,1 or metal")?;
        let mut cards = Vec::new();
        for number in numbers.split(',') {
            let card: u8 =
                (number.parse()).map_err(|_| format!("{number:?} is no number of a card"))?;
            if cards.contains(&usize::from(card)) {
                return Err(format!("card {card} is named twice"));
            }
            cards.push(usize::from(card));
        }
        Ok(Choice::Cuda(cards))
    }
}

/// A device that was found, whether or not it can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// As `--device` takes it.
    pub name: String,
    /// What it is.
    pub about: String,
    /// Bytes of memory that are free and that there are, where that is known.
    pub memory: Option<(u64, u64)>,
    /// Why it can't be used; nothing where it can.
    pub fault: Option<String>,
}

/// A device that is open.
#[derive(Clone, Debug)]
pub struct There {
    /// As `--device` takes it.
    pub name: String,
    /// What it is.
    pub about: String,
    /// candle's device.
    pub device: Device,
    /// Bytes of memory that were free when it was opened.
    pub free: u64,
}

/// Where a run computes: on the processor, or on each of some devices.
#[derive(Clone, Debug, Default)]
pub struct Place {
    /// The devices; none where the processor computes.
    pub there: Vec<There>,
}

/// Why what was asked for can't be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{device} can't be used: {reason}")]
pub struct Unusable {
    /// As it was asked for.
    pub device: String,
    /// What is missing, with the mend.
    pub reason: String,
}

/// All devices of the kinds that this build knows, and what this build does not have.
pub fn found() -> Vec<Found> {
    let mut all = vec![Found {
        name: "cpu".into(),
        about: assize_kernels::isa().name().into(),
        memory: super::settings::free_memory().map(|free| (free, free)),
        fault: None,
    }];
    match probe::cards() {
        Ok(cards) if cards.is_empty() => all.push(missing("cuda", "the driver tells of no card")),
        Ok(cards) => all.extend(cards.iter().map(|card| Found {
            name: name(card),
            about: about(card),
            memory: Some((card.free, card.total)),
            fault: probe::usable(card).err().map(|reason| reason.to_string()),
        })),
        Err(reason) => all.push(missing("cuda", &reason.to_string())),
    }
    match metal_here() {
        Ok(()) => all.push(Found {
            name: "metal".into(),
            about: "Apple GPU".into(),
            memory: super::settings::free_memory().map(|free| (free, free)),
            fault: None,
        }),
        Err(reason) => all.push(missing("metal", reason)),
    }
    all
}

fn missing(name: &str, reason: &str) -> Found {
    Found {
        name: name.into(),
        about: String::new(),
        memory: None,
        fault: Some(reason.into()),
    }
}

fn name(card: &Card) -> String {
    format!("cuda:{}", card.ordinal)
}

fn about(card: &Card) -> String {
    let (major, minor) = (card.capability / 10, card.capability % 10);
    format!("{}, compute capability {major}.{minor}", card.name)
}

fn metal_here() -> Result<(), &'static str> {
    match cfg!(feature = "metal") {
        true => Ok(()),
        false => {
            Err("this build has no kernels for Apple GPUs; on macOS, build with --features metal")
        }
    }
}

/// Opens what was asked for. With [`Choice::Auto`] that is the processor where nothing better can be used, and a line that says why, if this build
/// could have used something.
///
/// # Errors
/// [`Unusable`] names what is missing.
pub fn open(choice: &Choice) -> Result<(Place, Option<String>), Unusable> {
    match choice {
        Choice::Cpu => Ok((Place::default(), None)),
        Choice::Cuda(ordinals) => {
            let cards = probe::cards().map_err(|reason| unusable("cuda", reason))?;
            let there = ordinals.iter().map(|ordinal| {
                let card = cards.iter().find(|card| card.ordinal == *ordinal);
                let card = card.ok_or_else(|| Unusable {
                    device: format!("cuda:{ordinal}"),
                    reason: format!("there are {} cards, counted from 0", cards.len()),
                })?;
                open_card(card)
            });
            let there = there.collect::<Result<_, _>>()?;
            Ok((Place { there }, None))
        }
        Choice::Metal => Ok((open_metal()?, None)),
        Choice::Auto => Ok(best()),
    }
}

/// The card with the most free memory of those that can be used, or the Apple GPU, or the processor.
fn best() -> (Place, Option<String>) {
    let opened = if cfg!(feature = "cuda") {
        best_card().map(|there| Place { there: vec![there] })
    } else if cfg!(feature = "metal") {
        open_metal()
    } else {
        return (Place::default(), None);
    };
    match opened {
        Ok(place) => (place, None),
        Err(reason) => (
            Place::default(),
            Some(format!("computing on the CPU: {reason}")),
        ),
    }
}

fn best_card() -> Result<There, Unusable> {
    let mut cards = probe::cards().map_err(|reason| unusable("cuda", reason))?;
    cards.sort_by_key(|card| std::cmp::Reverse(card.free));
    let fit = cards.iter().find(|card| probe::usable(card).is_ok());
    match fit.or(cards.first()) {
        Some(card) => open_card(card),
        None => Err(Unusable {
            device: "cuda".into(),
            reason: "the driver tells of no card".into(),
        }),
    }
}

fn open_card(card: &Card) -> Result<There, Unusable> {
    probe::usable(card).map_err(|reason| unusable(&name(card), reason))?;
    let device = assize_kernels::bridge::open_card(card.ordinal).map_err(|error| Unusable {
        device: name(card),
        reason: error.to_string(),
    })?;
    Ok(There {
        name: name(card),
        about: about(card),
        device,
        free: card.free,
    })
}

fn open_metal() -> Result<Place, Unusable> {
    let refused = |reason: String| Unusable {
        device: "metal".into(),
        reason,
    };
    metal_here().map_err(|reason| refused(reason.into()))?;
    let device = Device::new_metal(0).map_err(|error| refused(error.to_string()))?;
    // An Apple GPU has the processor's memory. Where the system does not tell what is free, a model of 7B in four bits still fits.
    let free = super::settings::free_memory().unwrap_or(8 << 30);
    let there = There {
        name: "metal".into(),
        about: "Apple GPU".into(),
        device,
        free,
    };
    Ok(Place { there: vec![there] })
}

fn unusable(device: &str, reason: Absent) -> Unusable {
    Unusable {
        device: device.into(),
        reason: reason.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_read() {
        let check =
            |text: &str, want: Option<Choice>| assert_eq!(text.parse().ok(), want, "{text}");
        check("auto", Some(Choice::Auto));
        check("cpu", Some(Choice::Cpu));
        check("metal", Some(Choice::Metal));
        check("cuda", Some(Choice::Cuda(vec![0])));
        check("cuda:3", Some(Choice::Cuda(vec![3])));
        check("cuda:1,0", Some(Choice::Cuda(vec![1, 0])));
        for text in [
            "",
            "gpu",
            "cuda:",
            "cuda:x",
            "cuda:-1",
            "cuda:0,,1",
            "cuda:0,0",
            "cuda:999",
            "metal:1",
        ] {
            check(text, None);
        }
    }

    #[test]
    fn what_is_not_here_is_told_and_refused() {
        let all = found();
        assert_eq!((all[0].name.as_str(), &all[0].fault), ("cpu", &None));
        assert!(all.iter().any(|found| found.name.starts_with("cuda")));
        if !cfg!(any(feature = "cuda", feature = "metal")) {
            for choice in [Choice::Cuda(vec![0]), Choice::Metal] {
                let error = open(&choice).unwrap_err().to_string();
                assert!(error.contains("--features"), "{error}");
            }
            let (place, line) = open(&Choice::Auto).unwrap();
            assert!(place.there.is_empty() && line.is_none());
        }
    }
}
