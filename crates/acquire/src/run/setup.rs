//! Describes a wrong set-up: what was received, which key of the configuration disagrees, and what to write there.

use konkordia_config::Config;
use konkordia_core::plan::FirstFrame;
use konkordia_core::sender::Sender;
use konkordia_core::setup::{Finding, Means, Port, Ports, What};
use konkordia_core::text;
use konkordia_core::tile::DetectorKind;
use serde_json::{Value, json};
use std::mem::{Discriminant, discriminant};

/// One finding, ready to print.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetupReport {
    /// The key of the configuration that disagrees, or "" if there is none.
    pub key: &'static str,
    /// What was received and what is configured, in one sentence.
    pub what: String,
    /// What to do.
    pub fix: String,
    /// True if the run cannot count as complete.
    pub is_wrong: bool,
}

impl SetupReport {
    /// What and fix.
    pub fn text(&self) -> String {
        format!("{}; {}", self.what, self.fix)
    }

    /// For programs.
    pub fn to_json(&self) -> Value {
        json!({ "key": self.key, "what": self.what, "fix": self.fix, "wrong": self.is_wrong })
    }
}

/// Name of a detector type by its number in the SLS software.
fn type_name(number: u8) -> String {
    const NAMES: [&str; 9] =
        ["GENERIC", "EIGER", "GOTTHARD", "JUNGFRAU", "CHIPTESTBOARD", "MOENCH", "MYTHEN3", "GOTTHARD2", "XILINX_CHIPTESTBOARD"];
    NAMES.get(usize::from(number)).map_or(format!("type {number}"), |name| (*name).to_string())
}

fn port_name(port: Port) -> String {
    format!("row {}, column {} of module {}", port.row, port.column, port.module_id)
}

/// Reports the findings of a run, each kind once: as soon as it is certain, and at the latest when the run has ended.
#[derive(Default)]
pub struct SetupReporter {
    reported: Vec<Discriminant<What>>,
}

impl SetupReporter {
    /// Those of `findings` whose kind has not been reported yet.
    pub fn news(&mut self, config: &Config, names: &[String], findings: &[Finding]) -> Vec<SetupReport> {
        let is_new = |finding: &&Finding| !self.reported.contains(&discriminant(&finding.what));
        let news = findings.iter().filter(is_new).map(|finding| report_of(config, names, finding)).collect();
        self.reported.extend(findings.iter().map(|finding| discriminant(&finding.what)));
        news
    }
}

/// The findings as text; `names` are the names of the streams.
pub fn reports(config: &Config, names: &[String], findings: &[Finding]) -> Vec<SetupReport> {
    findings.iter().map(|finding| report_of(config, names, finding)).collect()
}

fn report_of(config: &Config, names: &[String], finding: &Finding) -> SetupReport {
    let on = match (finding.streams, names.len()) {
        (_, 1) => String::new(),
        (n, all) if n == all => " on all streams".to_string(),
        (1, _) => format!(" on {}", names[finding.stream]),
        (n, _) => format!(" on {n} streams, the first of them {}", names[finding.stream]),
    };
    let (key, what, fix) = match finding.what {
        What::Type(_) | What::Version(_) | What::Size { .. } | What::Noise { .. } => datagrams(config, finding.what, &on),
        What::Packets { seen, expected, means } => packets(config, (seen, expected), means, &on),
        What::OtherSenders { own, other, packets, is_contested } => other_senders((own, other), packets, is_contested, &on),
        What::TwoPorts { .. } | What::Place { .. } | What::Order { .. } | What::Twice { .. } => {
            places(config, names, finding.what, &on)
        }
        What::Silent => silent(config, finding, &on),
        What::EveryNth(_) | What::FirstFrame { .. } | What::Restart { .. } => frames(config, finding.what, &on),
    };
    SetupReport { key, what, fix, is_wrong: finding.is_wrong }
}

/// Key, what, fix.
type Words = (&'static str, String, String);

fn datagrams(config: &Config, what: What, on: &str) -> Words {
    let format = config.geometry.format();
    let kind = format.kind.name();
    match what {
        What::Type(seen) => {
            let name = type_name(seen);
            let fix = match name.to_lowercase() {
                name if name == "eiger" || name == "jungfrau" => {
                    format!("write type = \"{name}\" in [detector], or correct the ports")
                }
                _ => "give its packets another destination; jungfrau and eiger can be received".to_string(),
            };
            (
                "detector.type",
                format!("the packets{on} are those of an SLS detector of type {name}, and [detector] type is \"{kind}\""),
                fix,
            )
        }
        What::Version(version) => (
            "",
            format!("the packets{on} have headers of version {version}, and only version 2 is understood"),
            "bring the firmware of the detector to slsDetectorPackage 4.0 or later".into(),
        ),
        What::Size { bytes, expected } => {
            let what = format!("the datagrams{on} have {bytes} bytes, and packets of this detector have {expected}");
            match (format.kind, bytes) {
                (DetectorKind::Eiger, 1072) => (
                    "detector.ten_giga",
                    format!("{what}: they come over 1 GbE"),
                    "write ten_giga = false in [detector], or set the detector to 10 GbE (tengiga 1)".into(),
                ),
                (DetectorKind::Eiger, 4144) => (
                    "detector.ten_giga",
                    format!("{what}: they come over 10 GbE"),
                    "write ten_giga = true in [detector], or set the detector to 1 GbE (tengiga 0)".into(),
                ),
                _ => (
                    "",
                    format!("{what}: they are cut or joined on their way"),
                    "send with jumbo frames all the way (MTU 9000 in detector, switch and network card)".into(),
                ),
            }
        }
        What::Noise { odd, of } => (
            "",
            format!("{} of {} datagrams{on} are not packets of this detector", text::count(odd), text::count(of)),
            "find out who else sends to this port (`tcpdump -n udp`), or give the detector other ports ([source] first_port)"
                .into(),
        ),
        _ => unreachable!("the caller chose"),
    }
}

fn packets(config: &Config, (seen, expected): (u32, u32), means: Means, on: &str) -> Words {
    let format = config.geometry.format();
    let count = format!("the detector sends {seen} packets per frame and port{on}");
    match means {
        Means::Bits(bits) => (
            "detector.bits",
            format!("{count}, which is bits = {bits}; [detector] bits is {}", format.bits),
            format!("write bits = {bits} in [detector], or set the detector to {} bits", format.bits),
        ),
        Means::BitsOrRows { bits, rows } => (
            "detector.bits",
            format!(
                "{count}, which is bits = {bits}, or rows = {rows}; [detector] bits is {}, and rows {}",
                format.bits, format.rows
            ),
            format!(
                "check the settings of the detector, because the packets do not say which of the two it is: write bits = {bits} \
                 in [detector] if it is set to {bits} bits, or rows = {rows} if it reads out {rows} rows of each half module"
            ),
        ),
        Means::Interfaces(2) => (
            "detector.interfaces",
            format!("{count}, which is half a module: interfaces = 2; [detector] interfaces is 1"),
            "write interfaces = 2 in [detector]".into(),
        ),
        Means::Interfaces(n) => (
            "detector.interfaces",
            format!("{count}, which is a whole module: interfaces = {n}; [detector] interfaces is 2"),
            format!("write interfaces = {n} in [detector]"),
        ),
        Means::Rows(rows) => {
            let configured = if format.kind == DetectorKind::Eiger { format.rows } else { format.module_rows() };
            (
                "detector.rows",
                format!("{count}, which is a readout of {rows} rows; the configuration has {configured}"),
                format!("write rows = {rows} in [detector], or set the detector to read {configured} rows"),
            )
        }
        Means::Images(images) => (
            "detector.images_per_train",
            format!("{count}, which is a train of images_per_train = {images}; [detector] images_per_train is {}", format.images),
            format!("write images_per_train = {images} in [detector], or set the detector to {} images", format.images),
        ),
        Means::Unknown => (
            "",
            format!("{count}; this configuration has {expected}"),
            "compare the keys of [detector] (type, bits, interfaces, rows, images_per_train) with the detector".into(),
        ),
    }
}

fn places(config: &Config, names: &[String], what: What, on: &str) -> Words {
    let allow = if config.setup.is_strict { ", or allow it with strict = false in [detector]" } else { "" };
    let fix = format!("exchange the destination ports of the modules, or the order of the tiles{allow}");
    let key = if matches!(config.setup.ports, Ports::Given(_)) { "detector.tile" } else { "source.first_port" };
    match what {
        What::TwoPorts { own, other } => (
            "source.first_port",
            format!(
                "two modules send to one port{on}, or a module changed its position (restarted?): {} and {}",
                port_name(own),
                port_name(other)
            ),
            "give each port of the detector a destination port of its own; if a module was restarted, configure the detector again".into(),
        ),
        What::Twice { port, other } => (
            "source.first_port",
            format!("the same module sends{on} and on {}: {}", names[other], port_name(port)),
            format!("give each module its own place (hostname order) and port{allow}"),
        ),
        What::Order { seen, before } => (
            key,
            format!("modules are in another order than the ports{on}: {} comes after {}", port_name(seen), port_name(before)),
            fix,
        ),
        What::Place { seen, expected } => {
            let parts = ["row", "column", "module"].iter().zip(expected);
            let wanted: Vec<String> = parts.filter_map(|(name, value)| Some(format!("{name} {}", value?))).collect();
            (key, format!("another module than expected sends{on}: {} instead of {}", port_name(seen), wanted.join(", ")), fix)
        }
        _ => unreachable!("the caller chose"),
    }
}

fn other_senders((own, other): (Option<Sender>, Sender), packets: u64, is_contested: bool, on: &str) -> Words {
    let packets = text::count(packets);
    let own = own.map_or("of [source] senders".to_string(), |own| format!("of {own}"));
    let what = match is_contested {
        false => format!(
            "{other} sends to the same port as the detector{on}: {packets} packets were refused, only those {own} are accepted"
        ),
        true => format!(
            "two detectors send to one port{on}: packets of {other} were accepted while the first was silent, and images may \
             hold those of both; now that the first sends again, only those {own} are accepted ({packets} packets of the other \
             were refused)"
        ),
    };
    (
        "source.senders",
        what,
        "stop the other sender, or give it other ports; if both are right (a bridge with several sockets), list their addresses in [source] \
         senders, or write senders = \"any\""
            .into(),
    )
}

fn silent(config: &Config, finding: &Finding, on: &str) -> Words {
    let whole = if finding.streams == 1 { "this stream" } else { "these streams" };
    (
        "detector.modules",
        format!("no packets arrive{on}, although other streams receive frames"),
        format!(
            "is the module of {whole} switched on and sending to this port? The configuration has {} module(s)",
            config.modules
        ),
    )
}

fn frames(config: &Config, what: What, on: &str) -> Words {
    match what {
        What::EveryNth(n) => (
            "",
            format!("only one frame number in {n} comes{on}: the detector sends its frames to {n} destinations in turn"),
            "set one destination (numdestinations), or receive the others with further receivers".into(),
        ),
        What::FirstFrame { low, high } => {
            let first = match config.first_frame {
                FirstFrame::Number(first) => first.to_string(),
                FirstFrame::Auto => "auto".into(),
            };
            let range = if low == high { format!("frame {low}") } else { format!("frames {low} to {high}") };
            (
                "run.first_frame",
                format!("only {range} came{on}, which are not of this run; [run] first_frame is {first}"),
                "write first_frame = \"auto\", or reset the frame counter of the detector (nextframenumber)".into(),
            )
        }
        What::Restart { from, to } => (
            "run.first_frame",
            format!("the frame numbers began again{on}: frame {to} came after frame {from}"),
            "end the run before the detector is started again; later frames are not stored".into(),
        ),
        _ => unreachable!("the caller chose"),
    }
}
