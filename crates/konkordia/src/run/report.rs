//! The run report: the ledger, the rates, the files, and where data were lost.

use super::raw_copy::RawReport;
use super::setup::{self, Told};
use crate::config::{Config, plan};
use crate::failure::Exit;
use crate::machine;
use crate::say;
use konkordia_core::ledger::{RunLedger, StreamLedger};
use konkordia_core::sender::{Sender, Strangers};
use konkordia_core::setup::{Port, Seen, What};
use konkordia_engine::run::{Ended, RunOutcome};
use konkordia_sinks::hdf5::{FileReport, LedgerRecord, StreamRecord};
use serde_json::{Map, Value, json};
use std::net::SocketAddr;
use std::path::Path;

/// Everything that is said after a run.
pub struct Report {
    ledger: RunLedger,
    ended: &'static str,
    streams: Vec<String>,
    seconds: f64,
    images: u64,
    first_frame: Option<u64>,
    image_pixels: usize,
    raw_image_bytes: u64,
    unit: &'static str,
    file: Option<FileReport>,
    raw: Option<RawReport>,
    setup: Vec<Told>,
    /// Of each stream: whose packets were taken, where it is one sender's, and whose were not.
    senders: Vec<(Option<Sender>, Strangers)>,
    advice: Vec<String>,
    notes: Vec<String>,
}

/// Name of a stream that arrives at a port.
pub fn stream_name(address: &SocketAddr) -> String {
    format!("udp://{address}")
}

/// The account as the file holds it.
pub fn ledger_record(config: &Config, names: &[String], outcome: &RunOutcome, now: String) -> LedgerRecord {
    let own = |rows: &[(&'static str, u64)]| rows.iter().map(|(n, v)| ((*n).to_string(), *v)).collect::<Vec<_>>();
    let ledger = &outcome.ledger;
    let mut totals = own(&ledger.total().rows());
    totals.extend(ledger.images.rows().iter().map(|(name, value)| (image_name(name), *value)));
    totals.push(("packets_expected".into(), ledger.images.frames * ledger.packets_per_image));
    let streams = names.iter().zip(&ledger.streams).enumerate().map(|(n, (name, s))| {
        let mut counters = own(&s.rows());
        counters.extend(header_rows(outcome.seen.get(n)));
        StreamRecord { name: name.clone(), counters }
    });
    LedgerRecord {
        totals,
        streams: streams.collect(),
        balances: balances(),
        ended: ended(outcome.ended.name(), &setup::tell(config, names, &outcome.findings)),
        end_time: Some(now),
        images_expected: outcome.images,
    }
}

/// In place of what no header said: above every number that one can say.
const NO_HEADER: u64 = 65_536;

/// What the headers of a stream said of its module and place.
fn header_rows(seen: Option<&Seen>) -> [(String, u64); 3] {
    let port = seen.and_then(|seen| seen.port);
    let of = |name: &str, value: fn(Port) -> u16| (name.to_string(), port.map_or(NO_HEADER, |port| value(port).into()));
    [of("header_row", |p| p.row), of("header_column", |p| p.column), of("header_module_id", |p| p.module_id)]
}

const WRONG_SETUP: &str = ", with a wrong set-up: ";

/// Why a run ended, with what is wrong about its set-up.
pub fn ended(name: &str, told: &[Told]) -> String {
    let wrong: Vec<String> = told.iter().filter(|told| told.is_wrong).map(|told| told.what.clone()).collect();
    if wrong.is_empty() { name.to_string() } else { format!("{name}{WRONG_SETUP}{}", wrong.join("; ")) }
}

/// What was wrong about the set-up of a run of which the file says that it ended so.
pub fn wrong_setup(ended: &str) -> Option<&str> {
    ended.split_once(WRONG_SETUP).map(|(_, wrong)| wrong)
}

/// The same end, with what was wrong about the set-up of the run that is converted.
pub fn ended_of_conversion(ended: String, wrong_before: Option<&str>) -> String {
    match (wrong_before, wrong_setup(&ended)) {
        (None, _) => ended,
        (Some(before), Some(wrong)) if before == wrong => ended,
        (Some(before), Some(_)) => format!("{ended}; {before}"),
        (Some(before), None) => format!("{ended}{WRONG_SETUP}{before}"),
    }
}

/// "expected" alone would not say of what.
fn image_name(name: &str) -> String {
    if name.starts_with("packets") || name.starts_with("frames") { name.to_string() } else { format!("images_{name}") }
}

/// The equations of docs/ledger.md in the names of the totals.
fn balances() -> Vec<String> {
    let verdicts: Vec<&str> = StreamLedger::default()
        .rows()
        .iter()
        .map(|r| r.0)
        .filter(|n| !matches!(*n, "received" | "kernel_dropped" | "received_bytes"))
        .collect();
    vec![
        format!("received = {}", verdicts.join(" + ")),
        "images_expected = images_complete + images_partial + images_lost + images_discarded".into(),
        "images_expected = images_written + images_unwritten + images_lost + images_discarded".into(),
        "frames = frames_kept + frames_dark + frames_skipped + frames_unfinished".into(),
        "placed = packets_placed".into(),
        "packets_expected = packets_placed + packets_missing".into(),
    ]
}

impl Report {
    /// From what is left of a run and of its files.
    pub fn new(config: &Config, names: &[String], outcome: &RunOutcome, file: Option<FileReport>) -> Self {
        let geometry = &config.geometry;
        Self {
            ledger: outcome.ledger.clone(),
            ended: outcome.ended.name(),
            streams: names.to_vec(),
            seconds: outcome.receive_time.as_secs_f64(),
            images: outcome.images,
            first_frame: outcome.first_frame,
            image_pixels: geometry.pixels(),
            raw_image_bytes: u64::from(geometry.format().tile_bytes()) * geometry.placements().len() as u64,
            unit: plan::unit(config),
            file,
            raw: None,
            setup: setup::tell(config, names, &outcome.findings),
            senders: (0..names.len()).map(|n| outcome.seen.get(n).map_or_else(Default::default, senders)).collect(),
            advice: advice(config, names, outcome),
            notes: Vec::new(),
        }
    }

    /// With what there is to say of the input of a conversion, in place of the advice for a run over the network.
    pub fn with_notes(self, notes: Vec<String>) -> Self {
        Self { notes, advice: Vec::new(), ..self }
    }

    /// With what is known of datagrams that came to ports of this machine on which nobody listens, since there were `before` of them, while no
    /// stream was short of any.
    pub fn with_stray(mut self, before: Option<u64>, outcome: &RunOutcome) -> Self {
        let stray = machine::datagrams_to_closed_ports().zip(before).map_or(0, |(now, before)| now.saturating_sub(before));
        // Other programs have closed ports too: where data came, only as much as one more stream would bring says something.
        let of_stream = outcome.ledger.total().placed / self.streams.len().max(1) as u64;
        let is_much = stray >= 3 && stray * 10 >= of_stream * 9;
        let is_explained = outcome.findings.iter().any(|finding| !matches!(finding.what, What::Silent));
        if is_much && !is_explained {
            let count = say::count(stray);
            self.advice.insert(
                0,
                format!("{count} datagrams came to ports of this machine on which nobody listens: compare [source] first_port, [detector] modules and interfaces with the detector"),
            );
        }
        self
    }

    /// What is wrong with the set-up, the gravest first.
    pub fn setup(&self) -> &[Told] {
        &self.setup
    }

    /// What the reader should know first: a wrong set-up, then where data were lost; `None` if all is well.
    pub fn headline(&self) -> Option<String> {
        let told = self.setup.iter().find(|told| told.is_wrong).or(self.setup.first());
        let told = told.map(|told| format!("wrong set-up: {}", told.what));
        told.or_else(|| self.advice.first().cloned()).or_else(|| self.cause_of_gaps().cloned())
    }

    /// What the input of a conversion lacks comes first among its notes; where nothing is missing, they are no headline.
    fn cause_of_gaps(&self) -> Option<&String> {
        let images = &self.ledger.images;
        self.notes.first().filter(|_| images.partial + images.lost + images.discarded > 0)
    }

    /// The same with what was written of raw frames.
    pub fn with_raw(self, raw: Option<RawReport>) -> Self {
        Self { raw, ..self }
    }

    /// The master file, once it is closed.
    pub fn master(&self) -> Option<&Path> {
        self.file.as_ref().map(|file| file.master.as_path())
    }

    /// The files, once they are closed.
    pub fn file(&self) -> Option<&FileReport> {
        self.file.as_ref()
    }

    /// Where data were lost, and what to do about it.
    pub fn advice(&self) -> &[String] {
        &self.advice
    }

    /// Frames per second, from the first to the last packet.
    pub fn rate_hz(&self) -> f64 {
        if self.seconds > 0.0 { self.ledger.images.frames as f64 / self.seconds } else { 0.0 }
    }

    /// Gigabytes of datagrams per second.
    pub fn gigabytes_per_second(&self) -> f64 {
        if self.seconds > 0.0 { self.ledger.total().received_bytes as f64 / self.seconds / 1e9 } else { 0.0 }
    }

    /// Bits per pixel in the file, over the images that have pixels.
    pub fn bits_per_pixel(&self) -> Option<f64> {
        let file = self.file.as_ref().filter(|f| f.images_with_pixels > 0)?;
        Some(file.chunk_bytes as f64 * 8.0 / (file.images_with_pixels as f64 * self.image_pixels as f64))
    }

    /// The report for people.
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        for told in &self.setup {
            out.push_str(&format!("wrong set-up: {}\n  fix: {}\n", told.what, told.fix));
        }
        if self.setup.is_empty() {
            out.extend(self.headline().map(|line| format!("{line}\n")));
        }
        if !out.is_empty() {
            out.push('\n');
        }
        out.push_str(&format!("{}\n\n{}\n", self.table(), self.images_line()));
        out.push_str(&self.balance());
        if self.seconds > 0.0 {
            out.push_str(&format!(
                "\nrates     {:.1} Hz, {:.3} GB/s received over {:.2} s",
                self.rate_hz(),
                self.gigabytes_per_second(),
                self.seconds
            ));
        }
        if let Some(file) = &self.file {
            let packed = self.bits_per_pixel().map_or(String::new(), |bits| {
                let ratio = self.raw_image_bytes as f64 * file.images_with_pixels as f64 / file.chunk_bytes.max(1) as f64;
                format!(
                    "; {} of pixels, {bits:.2} bits per pixel, {ratio:.2} times smaller than raw",
                    say::bytes(file.chunk_bytes)
                )
            });
            out.push_str(&format!("\nfile      {} and {} data file(s){packed}", file.master.display(), file.data_files.len()));
        }
        if let Some(raw) = &self.raw {
            let (frames, bytes) = (say::count(raw.frames), say::bytes(raw.bytes));
            out.push_str(&format!(
                "\nraw       {} and {} data file(s), {frames} frames, {bytes}",
                raw.master.display(),
                raw.files
            ));
        }
        out.push_str(&format!("\nended     {}", self.ended));
        let told_first = usize::from(self.setup.is_empty());
        for line in self.advice.iter().skip(told_first) {
            out.push_str(&format!("\nadvice    {line}"));
        }
        for line in &self.notes {
            out.push_str(&format!("\nnote      {line}"));
        }
        out
    }

    /// One row per stream and their sum.
    fn table(&self) -> String {
        let columns = ["received", "placed", "duplicate", "late", "no_slot", "foreign", "malformed", "kernel_dropped"];
        let numbers = |s: &StreamLedger| {
            [s.received, s.placed, s.duplicate, s.late, s.no_slot, s.foreign, s.malformed_total(), s.kernel_dropped]
                .map(say::count)
                .to_vec()
        };
        let row = |name: &str, cells: Vec<String>| std::iter::once(name.to_string()).chain(cells).collect::<Vec<_>>();
        let mut rows = vec![row("stream", columns.map(str::to_string).to_vec())];
        rows.extend(self.streams.iter().zip(&self.ledger.streams).map(|(name, s)| row(name, numbers(s))));
        if self.streams.len() > 1 {
            rows.push(row("all", numbers(&self.ledger.total())));
        }
        say::table(&rows)
    }

    fn images_line(&self) -> String {
        let i = &self.ledger.images;
        let is_plain = i.frames == i.expected;
        let is_shown = |name: &str, n: u64| match name {
            "unwritten" | "not_taken" | "not_received" => n > 0,
            "frames_absent" => n > 0 && !is_plain,
            name if name.starts_with("frames") => !is_plain,
            name => !name.starts_with("packets"),
        };
        let shown = i.rows().into_iter().filter(|(name, n)| is_shown(name, *n));
        let words = |name: &str| if name.starts_with("not_") { name.replace('_', " ") } else { name.to_string() };
        let parts: Vec<String> = shown.map(|(name, n)| format!("{} {}", say::count(n), words(name))).collect();
        format!("images    {}; {} packets missing", parts.join(", "), say::count(i.packets_missing))
    }

    fn balance(&self) -> String {
        let wrong = self.ledger.imbalances();
        if wrong.is_empty() {
            return "ledger    balances".into();
        }
        let list: Vec<String> = wrong.iter().map(|w| format!("\n          {w}")).collect();
        format!("ledger    DOES NOT BALANCE, which is a mistake in konkordia; please report it:{}", list.concat())
    }

    /// The report for programs.
    pub fn to_json(&self, exit: Exit) -> Value {
        let rows = |rows: &[(&'static str, u64)]| rows.iter().map(|(n, v)| ((*n).to_string(), json!(v))).collect::<Map<_, _>>();
        let streams: Vec<Value> = self
            .streams
            .iter()
            .zip(&self.ledger.streams)
            .zip(&self.senders)
            .map(|((name, s), (own, strangers))| {
                let mut row = rows(&s.rows());
                row.insert("name".into(), json!(name));
                row.insert("sender".into(), json!(own.map(|own| own.to_string())));
                let strangers =
                    strangers.list().map(|(sender, packets)| json!({ "sender": sender.to_string(), "packets": packets }));
                row.insert("strangers".into(), strangers.collect());
                Value::Object(row)
            })
            .collect();
        json!({
            "event": "report", "exit_code": exit as u8, "ended": self.ended,
            "streams": streams, "total": rows(&self.ledger.total().rows()), "images": rows(&self.ledger.images.rows()),
            "packets_per_image": self.ledger.packets_per_image, "balances": self.ledger.imbalances().is_empty(),
            "imbalances": self.ledger.imbalances().iter().map(ToString::to_string).collect::<Vec<_>>(),
            "images_in_file": self.images, "first_frame": self.first_frame, "seconds": self.seconds, "rate_hz": self.rate_hz(),
            "gigabytes_per_second": self.gigabytes_per_second(), "bits_per_pixel": self.bits_per_pixel(), "unit": self.unit,
            "master": self.file.as_ref().map(|f| &f.master), "data_files": self.file.as_ref().map(|f| &f.data_files),
            "raw_master": self.raw.as_ref().map(|r| &r.master), "raw_frames": self.raw.as_ref().map(|r| r.frames),
            "raw_bytes": self.raw.as_ref().map(|r| r.bytes),
            "chunk_bytes": self.file.as_ref().map(|f| f.chunk_bytes), "advice": self.advice, "notes": self.notes,
            "setup": self.setup.iter().map(Told::to_json).collect::<Vec<_>>(), "headline": self.headline(),
        })
    }
}

/// Whose packets a stream took, and whose it did not.
fn senders(seen: &Seen) -> (Option<Sender>, Strangers) {
    (seen.sender, seen.strangers)
}

/// Where data were lost, and what to do about it. What the set-up explains is not said again.
fn advice(config: &Config, names: &[String], outcome: &RunOutcome) -> Vec<String> {
    let total = outcome.ledger.total();
    let mut list = Vec::new();
    if total.kernel_dropped > 0 {
        list.push(format!(
            "{} packets were dropped because a socket's buffer was full: raise it (sudo sysctl -w net.core.rmem_max={}, [source] receive_buffer_mib) and see docs/troubleshooting.md",
            say::count(total.kernel_dropped),
            config.receive_buffer_bytes.max(1 << 28)
        ));
    }
    if total.no_slot > 0 {
        list.push(format!(
            "{} packets found the ring full: the disk or the processors are too slow; `konkordia bench pipeline` tells which, a larger [run] buffer_mib bridges short pauses",
            say::count(total.no_slot)
        ));
    }
    if total.received == 0 {
        list.push("nothing arrived on any port: is the detector sending to this address, and is a firewall in the way? docs/troubleshooting.md, Nothing arrives".into());
        return list;
    }
    list.extend(setup::tell(config, names, &outcome.findings).iter().map(Told::text));
    let odd = total.malformed_total();
    if odd > 0 && outcome.findings.is_empty() {
        let line = "datagrams were no packets of this detector: damaged, or from somebody else (docs/troubleshooting.md)";
        list.push(format!("{} {line}", say::count(odd)));
    }
    let not_received = outcome.ledger.images.not_received;
    if not_received > 0 && total.placed > 0 {
        list.push(format!(
            "{} planned images were not received: does the detector take as many as [run] images says, and was it stopped before?",
            say::count(not_received)
        ));
    }
    list.extend(lost_on_the_wire(outcome));
    list.extend(not_kept(outcome));
    list
}

/// Packets that came and are in no image.
fn not_kept(outcome: &RunOutcome) -> Option<String> {
    let (total, packets) = (outcome.ledger.total(), outcome.ledger.packets_not_kept());
    (packets > 0).then(|| {
        format!(
            "{} packets are not kept: {} came twice, {} after their image was closed. Does a second detector send to this port, did the detector count its frames anew, or does the network repeat packets? (docs/ledger.md)",
            say::count(packets),
            say::count(total.duplicate),
            say::count(total.late)
        )
    })
}

/// Missing packets that nothing else explains: streams that are silent, and a set-up that has other packets, do.
fn lost_on_the_wire(outcome: &RunOutcome) -> Option<String> {
    let (ledger, total) = (&outcome.ledger, outcome.ledger.total());
    let is_other = outcome.findings.iter().any(|finding| finding.is_wrong && finding.what != What::Silent);
    if total.placed == 0 || is_other || matches!(outcome.ended, Ended::Stopped) {
        return None;
    }
    let silent = ledger.streams.iter().filter(|stream| stream.received == 0).count() as u64;
    let of_silent = silent * ledger.packets_per_image / ledger.streams.len().max(1) as u64;
    let explained = of_silent * ledger.images.frames;
    let counted = total.kernel_dropped + total.no_slot + total.late + total.malformed_total();
    let lost = ledger.images.packets_missing.saturating_sub(explained + counted);
    (lost > 0).then(|| {
        format!(
            "{} missing packets never reached this machine's sockets: lost on the wire, in a switch or in the network card (docs/troubleshooting.md, Lost before the socket)",
            say::count(lost)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conversion_ends_with_what_was_wrong_before() {
        let wrong = |what: &str| format!("finished{WRONG_SETUP}{what}");
        for (ended, before, wanted) in [
            ("finished".to_string(), None, "finished".to_string()),
            ("finished".into(), Some("a"), wrong("a")),
            (wrong("a"), Some("a"), wrong("a")),
            (wrong("b"), Some("a"), wrong("b; a")),
            (wrong("b"), None, wrong("b")),
        ] {
            assert_eq!(ended_of_conversion(ended, before), wanted);
        }
    }
}
