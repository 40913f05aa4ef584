//! `konkordia size`: what a detector needs of machines, from measured figures, and a model of the pipeline.

pub mod args;
mod model;
mod records;
mod report;
mod scale;
pub mod sizing;
mod stages;

use crate::{console, detectors};
use args::{SizeArgs, SizeCompression};
use konkordia_core::failure::{Exit, Failure};
use konkordia_sim::presets::{Class, DetectorPreset, PRESETS, Wire};
use records::Records;
use report::Answer;
use sizing::{Codec, Host, Request, Sizing};

/// `--detector` for a summary of all of them.
const ALL: &str = "all";

/// `konkordia size`
pub fn command(args: &SizeArgs) -> Result<Exit, Failure> {
    if args.list {
        if args.json {
            console::json(&report::list_json(), false);
        } else {
            console::to_stdout(&report::list(args.markdown));
        }
        return Ok(Exit::Complete);
    }
    if args.detector.as_deref() == Some(ALL) {
        return all(args);
    }
    let request = request(args, detector(args)?)?;
    args.assumptions.png.as_deref().map_or(Ok(()), konkordia_picture::png_path)?;
    let records = records(args)?;
    let sizing = sizing::size(&request, &records);
    if args.stages {
        return staged(args, &request, &sizing, &records);
    }
    let mut cases = Vec::new();
    if args.model {
        cases = scale::at_headrooms(&request, &sizing, &args.assumptions);
        let measured = records.pipeline();
        cases.extend(measured.and_then(|pipeline| scale::as_measured(&request, &sizing, &args.assumptions, &pipeline)));
    }
    let answer = Answer { request: &request, sizing: &sizing, cases: &cases, args: &args.assumptions };
    if args.json {
        console::json(&answer.to_json(), false);
    } else {
        console::to_stdout(&if args.markdown { answer.markdown() } else { answer.text() });
    }
    if let Some(path) = &args.assumptions.png {
        report::draw(&cases).write(path)?;
    }
    Ok(Exit::Complete)
}

fn records(args: &SizeArgs) -> Result<Records, Failure> {
    let mut records = Records::shipped();
    args.record.iter().try_for_each(|path| records.add(path))?;
    Ok(records)
}

/// Where the stages run.
fn staged(args: &SizeArgs, request: &Request, sizing: &Sizing, records: &Records) -> Result<Exit, Failure> {
    let refused = |why: String, fix: &str| Failure::new(Exit::Usage, "there is no plan of the stages", why, fix);
    if !matches!(request.detector.wire, Wire::Jungfrau { .. }) {
        let why = format!("{} sends messages, whose images pass as they come", request.detector.name);
        return Err(refused(why, "leave --stages out, or name a detector that sends UDP packets"));
    }
    if request.codec != Codec::Bslz4 {
        let why = format!("the stages are those of bslz4, and the file is {}", request.codec.name());
        return Err(refused(why, "leave --compression out, or give --compression bslz4"));
    }
    let platform = *stages::PLATFORMS.iter().find(|one| one.name == args.platform).expect("clap checks the name");
    let hardware = stages::Hardware { platform, fpga_gb_per_s: args.fpga_gb_per_s, fpga_ports: args.fpga_ports };
    let all = stages::placements(request, sizing, records, &hardware);
    let answer = Answer { request, sizing, cases: &[], args: &args.assumptions };
    if args.json {
        console::json(&answer.stages_json(&all, &platform), false);
    } else {
        console::to_stdout(&answer.stages(&all, &platform, args.markdown));
    }
    Ok(Exit::Complete)
}

/// A summary of all detectors.
fn all(args: &SizeArgs) -> Result<Exit, Failure> {
    if args.model || args.stages {
        let fix = "name one detector";
        let what =
            if args.model { "there is no model of all detectors" } else { "there is no plan of the stages of all detectors" };
        return Err(Failure::new(Exit::Usage, what, "each has its own pipeline", fix));
    }
    let records = records(args)?;
    let one = |preset: &DetectorPreset| -> Result<(Request, Sizing), Failure> {
        let request = request(args, *preset)?;
        let sizing = sizing::size(&request, &records);
        Ok((request, sizing))
    };
    let answers = PRESETS.iter().map(one).collect::<Result<Vec<_>, _>>()?;
    if args.json {
        let answer =
            |(request, sizing): &(Request, Sizing)| Answer { request, sizing, cases: &[], args: &args.assumptions }.to_json();
        console::json(&serde_json::json!({ "detectors": answers.iter().map(answer).collect::<Vec<_>>() }), false);
    } else {
        console::to_stdout(&report::summary(&answers, args.markdown));
    }
    Ok(Exit::Complete)
}

/// The detector with the name that is given, or with the numbers that are given.
fn detector(args: &SizeArgs) -> Result<DetectorPreset, Failure> {
    let (Some((rows, columns)), Some(bits), Some(frame_hz)) = (args.shape, args.bits, args.rate) else {
        return detectors::find(args.detector.as_deref().unwrap_or_default()).copied();
    };
    Ok(DetectorPreset {
        name: "unnamed",
        description: "a detector that sends messages, as given",
        class: Class::Counting,
        rows,
        columns,
        bits,
        frame_hz,
        wire: Wire::Messages { upstreams: args.upstreams },
        published_gb_per_s: None,
        source: "as given",
    })
}

fn request(args: &SizeArgs, detector: DetectorPreset) -> Result<Request, Failure> {
    let is_udp = matches!(detector.wire, Wire::Jungfrau { .. });
    if args.model && !is_udp {
        let why = format!("{} sends messages: where its receiver is slow, they wait in the sender (ZeroMQ)", detector.name);
        let fix = "leave --model out, or name a detector that sends UDP packets";
        return Err(Failure::new(Exit::Usage, "there is no model of this detector's way", why, fix));
    }
    let codec = match args.compression {
        Some(SizeCompression::None) => Codec::None,
        Some(SizeCompression::Bslz4) => Codec::Bslz4,
        Some(SizeCompression::Bszstd) => Codec::Bszstd,
        None if is_udp => Codec::Bslz4,
        None => Codec::None,
    };
    Ok(Request {
        detector,
        rate_hz: args.rate.unwrap_or(detector.frame_hz),
        codec,
        bits_per_pixel: args.bits_per_pixel,
        headroom: args.headroom,
        stall_s: args.stall,
        port_gbit: args.port_gbit,
        host: Host {
            cores: args.host_cores,
            ports: args.host_ports,
            memory_gib: args.host_memory_gib,
            memory_gb_per_s: args.host_memory_gb_per_s,
            disk_gb_per_s: args.host_disk_gb_per_s,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use crate::simulate::setup::{Beam, RunText};
    use clap::Parser;
    use konkordia_config::Config;
    use std::path::Path;

    fn request_of(more: &[&str]) -> Result<Request, Failure> {
        let args = parsed(more);
        request(&args, detector(&args)?)
    }

    fn parsed(more: &[&str]) -> SizeArgs {
        match Cli::try_parse_from(["konkordia", "size"].iter().chain(more)).unwrap().command {
            Command::Size(args) => args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn defaults_are_those_of_the_detector() {
        let of = |more: &[&str]| request_of(more).unwrap();
        let ten = of(&["--detector", "jungfrau-10M"]);
        assert_eq!((ten.rate_hz, ten.codec, ten.headroom, ten.stall_s), (2200.0, Codec::Bslz4, 1.5, 1.0));
        let eiger = of(&["--detector", "eiger2-4m", "--rate", "100"]);
        assert_eq!((eiger.rate_hz, eiger.codec), (100.0, Codec::None));
        let refused = request_of(&["--detector", "eiger2-4m", "--model"]).unwrap_err();
        assert!(refused.why.contains("messages"), "{refused}");
        assert!(request_of(&["--detector", "eiger3"]).unwrap_err().why.contains("eiger2-4m"));
        assert!(Cli::try_parse_from(["konkordia", "size"]).is_err());
        assert!(Cli::try_parse_from(["konkordia", "size", "--detector", "x", "--spread", "0.1"]).is_err());
        assert_eq!(parsed(&["--detector", "x", "--model"]).assumptions.at_headroom.len(), 7);
    }

    #[test]
    fn a_detector_without_a_name_is_given_by_its_numbers() {
        let given = ["--shape", "512x1028", "--bits", "32", "--rate", "2000", "--upstreams", "2"];
        let request = request_of(&given).unwrap();
        let detector = request.detector;
        assert_eq!((detector.rows, detector.columns, detector.bits, detector.streams()), (512, 1028, 32, 2));
        assert_eq!((request.rate_hz, request.codec), (2000.0, Codec::None));
        let sizing = sizing::size(&request, &Records::none());
        // 512 x 1028 pixels of 4 bytes, 2000 times a second.
        assert!((sizing.value("pixels").unwrap() - 4.210_688).abs() < 1e-9, "{:?}", sizing.lines);
        assert!(request_of(&[&given[..], &["--model"]].concat()).unwrap_err().why.contains("messages"));
        for wrong in [
            &["--shape", "512x1028", "--bits", "32"][..],
            &["--shape", "512x1028", "--rate", "10"],
            &["--shape", "512", "--bits", "32", "--rate", "10"],
            &["--shape", "512x0", "--bits", "32", "--rate", "10"],
            &["--shape", "512x1028", "--bits", "0", "--rate", "10"],
            &["--shape", "512x1028", "--bits", "32", "--rate", "10", "--detector", "pco-edge"],
            &["--detector", "pco-edge", "--bits", "8"],
        ] {
            assert!(Cli::try_parse_from(["konkordia", "size"].iter().chain(wrong)).is_err(), "{wrong:?}");
        }
    }

    /// The sum of `konkordia size` is that of the plan of a run with as many images, but for its small items.
    #[test]
    fn the_buffers_are_those_of_the_plan_of_a_run() {
        let run = |buffer_mib: u64| {
            let text = RunText {
                modules: 8,
                interfaces: 1,
                beam: Beam { energy_kev: 12.4, distance_mm: None, center_px: None },
                address: "127.0.0.1:50010".parse().unwrap(),
                calibration: Path::new("calibration"),
                directory: Path::new("."),
                prefix: "run",
                run: format!("buffer_mib = {buffer_mib}\n"),
                more: String::new(),
            };
            konkordia_config::plan::plan(&Config::parse(&text.text(), Path::new("run.toml")).unwrap())
        };
        let plan = run(4096);
        let request = Request { stall_s: plan.slots as f64 / 1100.0, ..request_of(&["--detector", "jungfrau-4m"]).unwrap() };
        let gib = sizing::size(&request, &Records::shipped()).value("buffers").unwrap();
        let bytes: u64 = plan.memory().iter().map(|item| item.bytes).sum();
        let ratio = gib * f64::from(1u32 << 30) / bytes as f64;
        assert!((0.95..1.02).contains(&ratio), "{ratio}: {:?}", plan.memory());
        assert_eq!(f64::from(u32::try_from(run(16).slots).unwrap()), sizing::SLOTS.0);
        assert_eq!(f64::from(u32::try_from(run(1 << 20).slots).unwrap()), sizing::SLOTS.1);
    }
}
