//! `--preset` and `--detector`: the detectors that have a name, as options of the simulator and the stream generator.

use crate::cli::JungfrauArgs;
use crate::stream_generator::args::StreamArgs;
use konkordia_core::array::{Element, PackedBits, Shape};
use konkordia_core::failure::{Exit, Failure};
use konkordia_sim::presets::{DetectorPreset, PRESETS, Wire, preset};

/// The detector of this name.
///
/// # Errors
/// There is none; the failure lists the names.
pub fn find(name: &str) -> Result<&'static DetectorPreset, Failure> {
    preset(name).ok_or_else(|| {
        let names: Vec<&str> = PRESETS.iter().map(|preset| preset.name).collect();
        let why = format!("the detectors with a name are {}", names.join(", "));
        Failure::new(Exit::Usage, format!("there is no detector '{name}'"), why, "`konkordia size --list` describes them")
    })
}

/// The options of `konkordia simulate jungfrau` with those of `--preset`.
///
/// # Errors
/// There is no such detector, or it does not send packets of a JUNGFRAU.
pub fn simulated(args: &JungfrauArgs) -> Result<JungfrauArgs, Failure> {
    let mut args = args.clone();
    let Some(name) = &args.preset else { return Ok(args) };
    let preset = find(name)?;
    let Wire::Jungfrau { modules, interfaces } = preset.wire else {
        let why = "this detector sends whole images as messages, no packets of a JUNGFRAU";
        let fix = format!("konkordia stream --preset {} --to URL", preset.name);
        return Err(cannot_send(preset, why, fix));
    };
    (args.send.modules, args.interfaces) = (modules, interfaces);
    args.send.rate.get_or_insert(preset.frame_hz);
    Ok(args)
}

/// The options of `konkordia stream` with those of `--preset`. With several upstreams, the shape is that of the piece
/// that each of them sends.
///
/// # Errors
/// There is no such detector, or it does not send messages, or its pixels have no type in a message.
pub fn streamed(args: &StreamArgs) -> Result<StreamArgs, Failure> {
    let mut args = args.clone();
    let Some(name) = &args.preset else { return Ok(args) };
    let preset = find(name)?;
    let Wire::Messages { upstreams } = preset.wire else {
        let why = "this detector sends UDP packets, no messages";
        let fix = format!("konkordia simulate jungfrau --preset {} --to HOST:PORT", preset.name);
        return Err(cannot_send(preset, why, fix));
    };
    let rows = preset.rows / u64::from(upstreams);
    let (Some(element), Some(shape)) = (element(preset.bits), Shape::new(&[rows, preset.columns])) else {
        let why = format!("its pixels have {} bits, for which messages have no type", preset.bits);
        let pieces = if upstreams > 1 { format!(" --upstreams {upstreams} --per-module") } else { String::new() };
        let fix = format!(
            "send wider pixels at its rate: --shape {rows}x{} --dtype uint32{pieces} --rate {}",
            preset.columns, preset.frame_hz
        );
        return Err(cannot_send(preset, why, fix));
    };
    (args.shape, args.dtype) = (Some(shape), element);
    (args.upstreams, args.per_module) = (u64::from(upstreams), upstreams > 1);
    args.rate.get_or_insert(preset.frame_hz);
    Ok(args)
}

/// Do messages have a type for its pixels?
pub fn is_streamed(preset: &DetectorPreset) -> bool {
    element(preset.bits).is_some()
}

/// The type of counts with this many bits in a message.
pub fn element(bits: u32) -> Option<Element> {
    [Element::Packed(PackedBits::Twelve), Element::Packed(PackedBits::Fourteen)]
        .into_iter()
        .chain([Element::Uint8, Element::Uint16, Element::Uint32])
        .find(|element| element.bits() == bits)
}

fn cannot_send(preset: &DetectorPreset, why: impl Into<String>, fix: impl Into<String>) -> Failure {
    Failure::new(Exit::Usage, format!("{} cannot be sent in this way", preset.name), why, fix)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command, SimulateDetector};
    use clap::Parser;

    fn simulate(more: &[&str]) -> Result<JungfrauArgs, Failure> {
        let words = ["konkordia", "simulate", "jungfrau", "--to", "127.0.0.1:1"].iter().chain(more);
        match Cli::try_parse_from(words).unwrap().command {
            Command::Simulate(SimulateDetector::Jungfrau(args)) => simulated(&args),
            other => panic!("{other:?}"),
        }
    }

    fn stream(more: &[&str]) -> Result<StreamArgs, Failure> {
        match Cli::try_parse_from(["konkordia", "stream", "--to", "tcp://*:1"].iter().chain(more)).unwrap().command {
            Command::Stream(args) => streamed(&args),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_preset_sets_what_is_sent_and_a_rate_that_is_given_stays() {
        let args = simulate(&["--preset", "JUNGFRAU-10M"]).unwrap();
        assert_eq!((args.send.modules, args.interfaces, args.send.rate_hz()), (20, 2, 2200.0));
        let args = simulate(&["--preset", "jungfrau-10m", "--rate", "5"]).unwrap();
        assert_eq!((args.send.modules, args.send.rate_hz()), (20, 5.0));
        let args = simulate(&[]).unwrap();
        assert_eq!((args.send.modules, args.interfaces, args.send.rate_hz()), (1, 1, 0.0));
        let args = stream(&["--preset", "orca-lightning-12m"]).unwrap();
        assert_eq!((args.shape.unwrap().dimensions(), args.dtype), (&[2592, 4608][..], Element::Packed(PackedBits::Twelve)));
        assert_eq!((args.upstreams, args.per_module, args.rate_hz()), (1, false, 120.0));
        let args = stream(&["--preset", "pi-mte3", "--rate", "0"]).unwrap();
        assert_eq!((args.dtype, args.rate_hz()), (Element::Uint32, 0.0));
    }

    #[test]
    fn what_cannot_be_sent_says_why_and_what_to_do() {
        let said = |failure: Failure| (failure.why, failure.fix);
        let (why, fix) = said(simulate(&["--preset", "eiger2-4m"]).unwrap_err());
        assert!(why.contains("messages") && fix.contains("konkordia stream --preset eiger2-4m"), "{why} {fix}");
        let (why, fix) = said(stream(&["--preset", "jungfrau-4m"]).unwrap_err());
        assert!(why.contains("UDP") && fix.contains("konkordia simulate jungfrau --preset jungfrau-4m"), "{why} {fix}");
        let (why, fix) = said(stream(&["--preset", "lambda-3m"]).unwrap_err());
        assert!(why.contains("24 bits") && fix.contains("--shape 516x1556 --dtype uint32 --upstreams 4 --per-module"), "{fix}");
        assert!(said(stream(&["--preset", "nothing"]).unwrap_err()).0.contains("pilatus3-2m"));
    }

    #[test]
    fn every_preset_is_sent_by_one_of_the_two_or_says_why_not() {
        let (mut sent, mut refused) = (0, Vec::new());
        for preset in &PRESETS {
            match (simulate(&["--preset", preset.name]), stream(&["--preset", preset.name])) {
                (Ok(_), Err(_)) | (Err(_), Ok(_)) => sent += 1,
                (Err(_), Err(_)) => refused.push(preset.name),
                (Ok(_), Ok(_)) => panic!("{} is sent by both", preset.name),
            }
        }
        assert_eq!((sent, refused), (PRESETS.len() - 1, vec!["lambda-3m"]));
    }
}
