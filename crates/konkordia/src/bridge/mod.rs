//! `konkordia bridge`: programs that turn headers of packets into addresses (docs/bridge.md).

pub mod args;
pub mod programs;
mod receivers;
mod run;

use crate::console;
use args::{BridgeCommand, CheckArgs, MakeArgs, ShowArgs};
use konkordia_config::service::DetectorKindConfig;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::text;
use konkordia_fabric::bridge::{AddressTable, Program, Streams, instructions, of_geometry};
use programs::{table_of, text_of};
use serde_json::{Value, json};
use std::path::Path;

/// Where UDP begins in a frame of Ethernet and IPv4 without tags and options.
const UDP_OFFSET: i16 = 34;

/// `konkordia bridge`
pub fn command(command: &BridgeCommand) -> Result<Exit, Failure> {
    match command {
        BridgeCommand::Check(args) => check(args),
        BridgeCommand::Show(args) => show(args),
        BridgeCommand::Make(args) => make(args),
        BridgeCommand::Run(args) => run::command(args),
    }
}

fn check(args: &CheckArgs) -> Result<Exit, Failure> {
    let mut exit = Exit::Complete;
    let mut found = Vec::new();
    for name in &args.programs {
        match Program::compile_text(&text_of(name)?) {
            Ok(table) if args.json => found.push(json!({ "program": name, "valid": true, "summary": summary(&table) })),
            Ok(table) => console::to_stdout(&format!("{name} is valid\n{}", summary_text(&table))),
            Err(problems) => {
                exit = Exit::Configuration;
                let list = problems.0.iter().map(|p| json!({ "line": p.line, "place": p.place, "what": p.what, "fix": p.fix }));
                found.push(json!({ "program": name, "valid": false, "problems": list.collect::<Vec<_>>() }));
                if !args.json {
                    let lines = problems.0.iter().map(|problem| format!("  {problem}"));
                    console::to_stdout(&format!("{name} is not valid\n{}", lines.collect::<Vec<_>>().join("\n")));
                }
            }
        }
    }
    if args.json {
        console::json(&json!({ "programs": found }), false);
    }
    Ok(exit)
}

fn summary(table: &AddressTable) -> Value {
    let coverage = table.coverage();
    json!({
        "name": table.name(), "tiles": table.tiles(), "ports": table.ports().collect::<Vec<_>>(),
        "slots": table.slots(), "slot_bytes": table.slot_bytes(), "store_bytes": table.store_bytes(),
        "window_frames": table.window_frames(), "pixel": table.pixel().map(|pixel| pixel.name()),
        "packets": coverage.packets, "segments_max": coverage.segments_max, "written_bytes": coverage.written_bytes,
        "gap_bytes": coverage.gap_bytes, "unused_bytes": coverage.unused_bytes,
    })
}

fn summary_text(table: &AddressTable) -> String {
    let coverage = table.coverage();
    let unused = match coverage.unused_bytes {
        0 => "every byte of the payloads has a place".to_string(),
        bytes => format!("{} of the payloads go nowhere", text::bytes(bytes)),
    };
    format!(
        "  frame   {} packets of {} tiles; a packet has {}\n  \
           slot    {}: {} written, each exactly once; {} never written; {unused}\n  \
           store   {} slots, {}; {} frames may be incomplete at a time",
        text::count(coverage.packets),
        table.tiles(),
        if coverage.segments_max == 1 { "1 address".into() } else { format!("up to {} addresses", coverage.segments_max) },
        text::bytes(table.slot_bytes()),
        text::bytes(coverage.written_bytes),
        text::bytes(coverage.gap_bytes),
        table.slots(),
        text::bytes(table.store_bytes()),
        table.window_frames(),
    )
}

fn show(args: &ShowArgs) -> Result<Exit, Failure> {
    if args.toml {
        console::to_stdout(text_of(&args.program)?.trim_end());
        return Ok(Exit::Complete);
    }
    let table = table_of(&args.program)?;
    if let Some(tile) = args.tile.filter(|tile| *tile >= table.tiles()) {
        let why = format!("it has tiles 0 to {}", table.tiles() - 1);
        return Err(Failure::new(Exit::Usage, format!("{} has no tile {tile}", args.program), why, "give one of these numbers"));
    }
    if let Some(path) = &args.ebpf {
        write_instructions(&table, path)?;
    }
    let tiles = args.tile.map_or(0..table.tiles(), |tile| tile..tile + 1);
    if args.json {
        let mut report = summary(&table);
        report["table"] = tiles.flat_map(|tile| rows(&table, tile, args.all)).map(|row| row.to_json()).collect();
        console::json(&report, false);
        return Ok(Exit::Complete);
    }
    let head = ["tile", "match", "packet", "address", "segments (bytes of the datagram -> bytes of the slot)"];
    let mut lines = vec![head.map(str::to_string).to_vec()];
    lines.extend(tiles.flat_map(|tile| rows(&table, tile, args.all)).map(|row| row.to_text()));
    console::to_stdout(&format!("{}\n{}\n\n{}", table.name(), summary_text(&table), text::table(&lines)));
    Ok(Exit::Complete)
}

/// Instructions of 8 bytes, in the order of this machine.
fn write_instructions(table: &AddressTable, path: &Path) -> Result<(), Failure> {
    let made = instructions(table, UDP_OFFSET).map_err(|why| {
        Failure::new(Exit::Configuration, format!("{} cannot be a program of XDP", table.name()), why, "make a smaller program")
    })?;
    let one = |i: &konkordia_core::ebpf::Instruction| -> Vec<u8> {
        [&[i.code, i.registers][..], &i.offset.to_ne_bytes(), &i.immediate.to_ne_bytes()].concat()
    };
    let bytes: Vec<u8> = made.iter().flat_map(one).collect();
    std::fs::write(path, bytes).map_err(|error| Failure::io("cannot write", path, &error))?;
    console::to_stderr(&format!("{} instructions in {}", made.len(), path.display()));
    Ok(())
}

/// The addresses of a packet.
struct Row {
    tile: usize,
    matched: String,
    packet: u16,
    origin: Option<i64>,
    segments: Vec<(usize, usize, usize)>,
}

/// The packets of a tile that are shown.
fn rows(table: &AddressTable, tile: usize, all: bool) -> impl Iterator<Item = Row> {
    let last = table.packets(tile).saturating_sub(1);
    let (port, module) = table.tile_match(tile).unwrap_or_default();
    let words = [port.map(|port| format!("port {port}")), module.map(|module| format!("module {module}"))];
    let words: Vec<String> = words.into_iter().flatten().collect();
    let matched = if words.is_empty() { "any port".to_string() } else { words.join(", ") };
    (0..=last).filter(move |packet| all || *packet < 2 || *packet == last).map(move |packet| Row {
        tile,
        matched: matched.clone(),
        packet,
        origin: table.origin(tile, packet),
        segments: table.segments(tile, packet).collect(),
    })
}

impl Row {
    fn to_json(&self) -> Value {
        let segment = |s: &(usize, usize, usize)| json!({ "source": s.0, "destination": s.1, "bytes": s.2 });
        json!({
            "tile": self.tile, "packet": self.packet, "address": self.origin,
            "segments": self.segments.iter().map(segment).collect::<Vec<_>>(),
        })
    }

    fn to_text(&self) -> Vec<String> {
        let one = |s: &(usize, usize, usize)| format!("{}+{} -> {}", s.0, s.2, s.1);
        let shown: Vec<String> = self.segments.iter().take(2).map(one).collect();
        let more = match self.segments.len().saturating_sub(2) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let origin = self.origin.map_or(String::new(), |origin| origin.to_string());
        vec![self.tile.to_string(), self.matched.clone(), self.packet.to_string(), origin, shown.join(", ") + &more]
    }
}

fn make(args: &MakeArgs) -> Result<Exit, Failure> {
    let service = konkordia_config::service::load(&args.config)?;
    let refused = |why: String| {
        let what = format!("there is no program for {}", args.config.display());
        Failure::new(Exit::Configuration, what, why, "name the configuration of one JUNGFRAU or EIGER (docs/bridge.md)")
    };
    let [only] = &service.detectors[..] else {
        return Err(refused(format!("it has {} detectors", service.detectors.len())));
    };
    let DetectorKindConfig::Udp(config) = &only.kind else {
        return Err(refused("its detector sends messages, not packets".into()));
    };
    let streams = Streams { name: &config.prefix, first_port: config.first_port, slots: args.slots, window_frames: args.window };
    let program = of_geometry(&config.geometry, &streams).map_err(refused)?;
    program.compile().map_err(|problems| refused(problems.to_string()))?;
    let about = format!("Made of {} by konkordia bridge make; docs/bridge.md explains the keys.", args.config.display());
    console::to_stdout(program.to_toml(&about).trim_end());
    Ok(Exit::Complete)
}

#[cfg(test)]
mod tests {
    use super::*;
    use konkordia_fabric::bridge::ShippedProgram;

    #[test]
    fn rows_show_the_first_packets_and_the_last() {
        let table = table_of("eiger-16bit").unwrap();
        let shown: Vec<u16> = rows(&table, 1, false).map(|row| row.packet).collect();
        assert_eq!(shown, [0, 1, 63]);
        assert_eq!(rows(&table, 1, true).count(), 64);
        let row = rows(&table, 0, false).next().unwrap();
        assert_eq!(row.to_text()[1..4], ["port 50020", "0", "522240"]);
        assert_eq!(row.to_text()[4], "48+1024 -> 522240, 1072+1024 -> 520192 and 2 more");
        assert!(summary_text(&table).contains("each exactly once"));
    }

    #[test]
    fn a_wrong_program_says_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mine.toml");
        let shipped = ShippedProgram::find("jungfrau-1").unwrap();
        std::fs::write(&path, shipped.text.replace("slots = 64", "slots = 63")).unwrap();
        let why = table_of(path.to_str().unwrap()).unwrap_err().why;
        assert!(why.contains("line 4: slots") && why.contains("write slots = 64"), "{why}");
        let fix = table_of("nothing").unwrap_err().fix;
        assert!(fix.contains("jungfrau-1, jungfrau-2, eiger-4bit"), "{fix}");
    }
}
