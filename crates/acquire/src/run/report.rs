//! The run report: the ledger, the rates, the files, and where data were lost.

use super::raw_copy::RawReport;
use super::setup::{self, SetupReport};
use crate::machine;
use crate::spool::SpoolReport;
use konkordia_config::{Config, plan};
use konkordia_core::analysis_counts::AnalysisCounts;
use konkordia_core::backend::Backend;
use konkordia_core::failure::Exit;
use konkordia_core::latency::{self, Stage, StageLatency};
use konkordia_core::ledger::{RunLedger, StreamLedger};
use konkordia_core::sender::{OtherSenders, Sender};
use konkordia_core::series::Ended;
use konkordia_core::setup::{Port, Seen, WRONG_SETUP, What, wrong_setup};
use konkordia_core::text;
use konkordia_doctor::lost::RECEIVE_MS;
use konkordia_engine::run::{GpuReport, RunOutcome};
use konkordia_sinks::hdf5::whole::Whole;
use konkordia_sinks::hdf5::{FileReport, LedgerRecord, StreamRecord};
use konkordia_sources::backend::Receiving;
use konkordia_sources::frame::Refused;
use serde_json::{Map, Value, json};
use std::net::SocketAddr;
use std::path::Path;

/// The report of a run, as text and as JSON.
pub struct Report {
    ledger: RunLedger,
    ended: &'static str,
    streams: Vec<String>,
    seconds: f64,
    images: u64,
    latency: Vec<StageLatency>,
    first_frame: Option<u64>,
    image_pixels: usize,
    raw_image_bytes: u64,
    unit: &'static str,
    file: Option<FileReport>,
    raw: Option<RawReport>,
    spool: Option<SpoolReport>,
    /// What the host counted during the run, see [`super::host`].
    host: Vec<(String, u64)>,
    setup: Vec<SetupReport>,
    /// For each stream: the sender whose packets were accepted, if it was a single one, and the senders whose packets
    /// were refused.
    senders: Vec<(Option<Sender>, OtherSenders)>,
    advice: Vec<String>,
    notes: Vec<String>,
    /// Through what the packets came; null if they did not come over a network.
    receiving: Value,
    /// What became of its images at their analysis.
    analysis: AnalysisCounts,
    gpu: Option<GpuReport>,
}

/// Name of a stream that arrives at a port.
pub fn stream_name(address: &SocketAddr) -> String {
    format!("udp://{address}")
}

/// The ledger as the file stores it.
pub fn ledger_record(config: &Config, names: &[String], outcome: &RunOutcome, now: String) -> LedgerRecord {
    let own = |rows: &[(&'static str, u64)]| rows.iter().map(|(n, v)| ((*n).to_string(), *v)).collect::<Vec<_>>();
    let ledger = &outcome.ledger;
    let mut totals = own(&ledger.total().rows());
    totals.extend(ledger.rows().iter().map(|(name, value)| (image_name(name), *value)));
    totals.push(("packets_expected".into(), ledger.frames.passed * ledger.packets_per_image));
    let streams = names.iter().zip(&ledger.streams).enumerate().map(|(n, (name, s))| {
        let mut counters = own(&s.rows());
        counters.extend(header_rows(outcome.seen.get(n)));
        StreamRecord { name: name.clone(), counters }
    });
    LedgerRecord {
        totals,
        streams: streams.collect(),
        balances: balances(),
        latency: Vec::new(),
        ended: ended(outcome.ended_name(), &setup::reports(config, names, &outcome.findings)),
        end_time: Some(now),
        images_expected: outcome.images,
    }
}

/// Adds the frames that were refused before they were datagrams.
pub fn add_refused(record: &mut LedgerRecord, receiving: &Receiving) {
    record.totals.extend(receiving.refused().iter().map(|(why, frames)| (format!("refused_{}", why.name()), *frames)));
}

/// Stands for a header field that was never received. It is larger than every value of such a field.
const NO_HEADER: u64 = 65_536;

/// Module and position of a stream, from its packet headers.
fn header_rows(seen: Option<&Seen>) -> [(String, u64); 3] {
    let port = seen.and_then(|seen| seen.port);
    let of = |name: &str, value: fn(Port) -> u16| (name.to_string(), port.map_or(NO_HEADER, |port| value(port).into()));
    [of("header_row", |p| p.row), of("header_column", |p| p.column), of("header_module_id", |p| p.module_id)]
}

/// Why a run ended, followed by what is wrong with its set-up.
pub fn ended(name: &str, setup: &[SetupReport]) -> String {
    let wrong: Vec<String> = setup.iter().filter(|finding| finding.is_wrong).map(|finding| finding.what.clone()).collect();
    if wrong.is_empty() { name.to_string() } else { format!("{name}{WRONG_SETUP}{}", wrong.join("; ")) }
}

/// The end of a conversion, with the wrong set-up of the converted run added.
pub fn ended_of_conversion(ended: String, wrong_before: Option<&str>) -> String {
    match (wrong_before, wrong_setup(&ended)) {
        (None, _) => ended,
        (Some(before), Some(wrong)) if before == wrong => ended,
        (Some(before), Some(_)) => format!("{ended}; {before}"),
        (Some(before), None) => format!("{ended}{WRONG_SETUP}{before}"),
    }
}

/// Adds `images_` to names such as "expected", which are ambiguous alone.
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
        "images_expected = images_complete + images_partial + images_lost + images_discarded + images_vetoed".into(),
        "images_expected = images_written + images_unwritten + images_lost + images_discarded + images_vetoed".into(),
        "frames = frames_kept + frames_dark + frames_skipped + frames_unfinished".into(),
        "placed = packets_placed".into(),
        "packets_expected = packets_placed + packets_missing".into(),
    ]
}

impl Report {
    /// The report of a run that has ended, and of its files.
    pub fn new(config: &Config, names: &[String], outcome: &RunOutcome, file: Option<FileReport>) -> Self {
        let geometry = &config.geometry;
        Self {
            ledger: outcome.ledger.clone(),
            ended: outcome.ended_name(),
            streams: names.to_vec(),
            seconds: outcome.receive_time.as_secs_f64(),
            images: outcome.images,
            latency: outcome.meter.read(),
            first_frame: outcome.first_frame,
            image_pixels: geometry.pixels(),
            raw_image_bytes: u64::from(geometry.format().tile_bytes()) * geometry.placements().len() as u64,
            unit: plan::unit(config),
            file,
            raw: None,
            spool: None,
            host: Vec::new(),
            setup: setup::reports(config, names, &outcome.findings),
            senders: (0..names.len()).map(|n| outcome.seen.get(n).map_or_else(Default::default, senders)).collect(),
            advice: advice(config, names, outcome),
            notes: Vec::new(),
            receiving: Value::Null,
            analysis: outcome.analysis.clone(),
            gpu: outcome.gpu.clone(),
        }
    }

    /// Replaces the advice, which is for a run over the network, by notes on the input of a conversion.
    pub fn with_notes(self, notes: Vec<String>) -> Self {
        Self { notes, advice: Vec::new(), ..self }
    }

    /// Adds advice if many datagrams arrived at closed ports of this machine during the run and no finding explains
    /// them. `before` is the kernel's count at the start of the run.
    pub fn with_stray(mut self, before: Option<u64>, outcome: &RunOutcome) -> Self {
        let stray = machine::datagrams_to_closed_ports().zip(before).map_or(0, |(now, before)| now.saturating_sub(before));
        // Datagrams for other programs arrive at closed ports too. The count is significant only if it is about as
        // large as the number of packets of one stream.
        let of_stream = outcome.ledger.total().placed / self.streams.len().max(1) as u64;
        let is_much = stray >= 3 && stray * 10 >= of_stream * 9;
        let is_explained = outcome.findings.iter().any(|finding| !matches!(finding.what, What::Silent));
        if is_much && !is_explained {
            let count = text::count(stray);
            self.advice.insert(
                0,
                format!("{count} datagrams came to ports of this machine on which nobody listens: compare [source] first_port, [detector] modules and interfaces with the detector"),
            );
        }
        self
    }

    /// Adds through what the packets came, what was dropped there and why, and which frames were refused.
    pub fn with_receiving(mut self, receiving: &Receiving) -> Self {
        let (dropped, losses) = (self.ledger.total().kernel_dropped, receiving.losses());
        // The first advice is on the buffer of a socket, if packets were dropped.
        let of_socket = usize::from(dropped > 0);
        match receiving.backend {
            Backend::Socket => {}
            Backend::Packet | Backend::Verbs if dropped == 0 => {}
            Backend::Packet => {
                self.advice[0] = format!(
                    "{} packets were dropped because a ring was full: write a larger receive_buffer_mib in [source] and see docs/troubleshooting.md",
                    text::count(dropped)
                );
            }
            Backend::Verbs => {
                self.advice[0] = format!(
                    "{} packets were dropped by the card because no memory was free for them: write a larger receive_buffer_mib in [source] and see docs/troubleshooting.md",
                    text::count(dropped)
                );
            }
            Backend::Xdp => drop(self.advice.splice(..of_socket, losses.advice())),
        }
        let refused = receiving.refused();
        let line = |(why, frames): &(Refused, u64)| format!("{} frames were refused: {}", text::count(*frames), why.advice());
        let lines: Vec<String> = refused.iter().map(line).collect();
        self.advice.splice(0..0, lines);
        let counts: Map<_, _> = refused.iter().map(|(why, frames)| (why.name().to_string(), json!(frames))).collect();
        let causes: Map<_, _> = losses.rows().into_iter().map(|(name, count)| (name.to_string(), json!(count))).collect();
        self.receiving =
            json!({ "backend": receiving.backend.name(), "why": receiving.why, "refused": counts, "dropped": causes });
        self
    }

    /// What is wrong with the set-up, the gravest first.
    pub fn setup(&self) -> &[SetupReport] {
        &self.setup
    }

    /// The most important line: a wrong set-up, otherwise where data were lost; `None` if all is well.
    pub fn headline(&self) -> Option<String> {
        let finding = self.setup.iter().find(|finding| finding.is_wrong).or(self.setup.first());
        let wrong = finding.map(|finding| format!("wrong set-up: {}", finding.what));
        wrong.or_else(|| self.advice.first().cloned()).or_else(|| self.cause_of_gaps().cloned())
    }

    /// The first note on the input of a conversion, which says what is missing there; `None` if no image lacks
    /// anything.
    fn cause_of_gaps(&self) -> Option<&String> {
        let images = &self.ledger.images;
        self.notes.first().filter(|_| images.partial + images.lost + images.discarded > 0)
    }

    /// Adds the report on the files of raw frames.
    pub fn with_raw(self, raw: Option<RawReport>) -> Self {
        Self { raw, ..self }
    }

    /// Adds what the run needed of its spool.
    pub fn with_spool(self, spool: Option<SpoolReport>) -> Self {
        Self { spool, ..self }
    }

    /// Adds what the host counted during the run.
    pub fn with_host(self, host: Vec<(String, u64)>) -> Self {
        Self { host, ..self }
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
        if self.seconds > 0.0 { self.ledger.frames.passed as f64 / self.seconds } else { 0.0 }
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

    /// The report as text.
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        for finding in &self.setup {
            out.push_str(&format!("wrong set-up: {}\n  fix: {}\n", finding.what, finding.fix));
        }
        if self.setup.is_empty() {
            out.extend(self.headline().map(|line| format!("{line}\n")));
        }
        if !out.is_empty() {
            out.push('\n');
        }
        out.push_str(&format!("{}\n\n{}\n", self.table(), self.images_line()));
        out.push_str(&self.balance());
        out.extend(self.analysis_line());
        out.extend(self.gpu.as_ref().map(gpu_line));
        if self.seconds > 0.0 {
            out.push_str(&format!(
                "\nrates     {:.1} Hz, {:.3} GB/s received over {:.2} s",
                self.rate_hz(),
                self.gigabytes_per_second(),
                self.seconds
            ));
        }
        out.extend(self.latency_line().map(|line| format!("\n{line}")));
        if let Some(file) = &self.file {
            let packed = self.bits_per_pixel().map_or(String::new(), |bits| {
                let ratio = self.raw_image_bytes as f64 * file.images_with_pixels as f64 / file.chunk_bytes.max(1) as f64;
                format!(
                    "; {} of pixels, {bits:.2} bits per pixel, {ratio:.2} times smaller than raw",
                    text::bytes(file.chunk_bytes)
                )
            });
            out.push_str(&format!("\nfile      {} and {} data file(s){packed}", file.master.display(), file.data_files.len()));
            out.extend(file.whole.as_ref().map(|whole| format!("\nwhole     {}", whole_text(whole))));
        }
        if let Some(raw) = &self.raw {
            let (frames, bytes) = (text::count(raw.frames), text::bytes(raw.bytes));
            out.push_str(&format!(
                "\nraw       {} and {} data file(s), {frames} frames, {bytes}",
                raw.master.display(),
                raw.files
            ));
        }
        out.extend(self.spool.as_ref().map(|spool| format!("\nspool     {}", spool.to_text())));
        out.extend(self.host_line());
        out.push_str(&format!("\nended     {}", self.ended));
        let shown_first = usize::from(self.setup.is_empty());
        for line in self.advice.iter().skip(shown_first) {
            out.push_str(&format!("\nadvice    {line}"));
        }
        for line in &self.notes {
            out.push_str(&format!("\nnote      {line}"));
        }
        out
    }

    /// What became of the images at their analysis.
    fn analysis_line(&self) -> Option<String> {
        let tally = self.analysis.read()?;
        let parts = tally.rows().map(|(name, count)| format!("{} {name}", text::count(count)));
        let warning = tally.warning().map_or(String::new(), |warning| format!("; {warning}"));
        Some(format!("\nanalysis  {}{warning}", parts.join(", ")))
    }

    /// What the host counted, if packets are missing, and who reads it.
    fn host_line(&self) -> Option<String> {
        let file = self.file.as_ref().filter(|_| self.ledger.frames.packets_missing > 0 && !self.host.is_empty())?;
        let name = |name: &str| name.trim_start_matches("host_").replace('_', " ");
        let rose = self
            .host
            .iter()
            .filter(|(name, n)| *n > 0 && name != RECEIVE_MS)
            .map(|(what, n)| format!("{} {}", text::count(*n), name(what)));
        let rose = rose.collect::<Vec<_>>().join(", ");
        let rose = if rose.is_empty() { "no counter rose" } else { rose.as_str() };
        Some(format!("\nhost      {rose}; where the packets went: konkordia doctor --run {}", file.master.display()))
    }

    /// How long images took, if that was measured.
    pub fn latency(&self, stage: Stage) -> Option<StageLatency> {
        self.latency.iter().find(|latency| latency.stage == stage).copied()
    }

    fn latency_line(&self) -> Option<String> {
        let [p50, p99, p999, _] = self.latency(Stage::Committed)?.quantiles_us().map(milliseconds);
        let durable = self.latency(Stage::Durable).map_or(String::new(), |latency| {
            let [_, p99, ..] = latency.quantiles_us().map(milliseconds);
            format!("; to the disk: p99 {p99}")
        });
        Some(format!("latency   first packet to committed: p50 {p50}, p99 {p99}, p99.9 {p999}{durable}"))
    }

    /// One row per stream and their sum.
    fn table(&self) -> String {
        let columns = ["received", "placed", "duplicate", "late", "no_slot", "foreign", "malformed", "kernel_dropped"];
        let numbers = |s: &StreamLedger| {
            [s.received, s.placed, s.duplicate, s.late, s.no_slot, s.foreign, s.malformed_total(), s.kernel_dropped]
                .map(text::count)
                .to_vec()
        };
        let row = |name: &str, cells: Vec<String>| std::iter::once(name.to_string()).chain(cells).collect::<Vec<_>>();
        let mut rows = vec![row("stream", columns.map(str::to_string).to_vec())];
        rows.extend(self.streams.iter().zip(&self.ledger.streams).map(|(name, s)| row(name, numbers(s))));
        if self.streams.len() > 1 {
            rows.push(row("all", numbers(&self.ledger.total())));
        }
        text::table(&rows)
    }

    fn images_line(&self) -> String {
        let ledger = &self.ledger;
        let is_plain = ledger.frames.passed == ledger.images.expected;
        let is_shown = |name: &str, n: u64| match name {
            "unwritten" | "not_taken" | "not_received" | "vetoed" => n > 0,
            "frames_absent" => n > 0 && !is_plain,
            name if name.starts_with("frames") => !is_plain,
            name => !name.starts_with("packets"),
        };
        let shown = ledger.rows().into_iter().filter(|(name, n)| is_shown(name, *n));
        let words = |name: &str| if name.starts_with("not_") { name.replace('_', " ") } else { name.to_string() };
        let parts: Vec<String> = shown.map(|(name, n)| format!("{} {}", text::count(n), words(name))).collect();
        format!("images    {}; {} packets missing", parts.join(", "), text::count(ledger.frames.packets_missing))
    }

    fn balance(&self) -> String {
        let wrong = self.ledger.imbalances();
        if wrong.is_empty() {
            return "ledger    balances".into();
        }
        let list: Vec<String> = wrong.iter().map(|w| format!("\n          {w}")).collect();
        format!("ledger    DOES NOT BALANCE: this is a bug in konkordia; please report it:{}", list.concat())
    }

    /// The report as JSON.
    pub fn to_json(&self, exit: Exit) -> Value {
        let rows = |rows: &[(&'static str, u64)]| rows.iter().map(|(n, v)| ((*n).to_string(), json!(v))).collect::<Map<_, _>>();
        let streams: Vec<Value> = self
            .streams
            .iter()
            .zip(&self.ledger.streams)
            .zip(&self.senders)
            .map(|((name, s), (own, other_senders))| {
                let mut row = rows(&s.rows());
                row.insert("name".into(), json!(name));
                row.insert("sender".into(), json!(own.map(|own| own.to_string())));
                let other_senders =
                    other_senders.list().map(|(sender, packets)| json!({ "sender": sender.to_string(), "packets": packets }));
                row.insert("strangers".into(), other_senders.collect());
                Value::Object(row)
            })
            .collect();
        json!({
            "event": "report", "exit_code": exit as u8, "ended": self.ended,
            "streams": streams, "total": rows(&self.ledger.total().rows()), "images": rows(&self.ledger.rows()),
            "packets_per_image": self.ledger.packets_per_image, "balances": self.ledger.imbalances().is_empty(),
            "imbalances": self.ledger.imbalances().iter().map(ToString::to_string).collect::<Vec<_>>(),
            "images_in_file": self.images, "first_frame": self.first_frame, "seconds": self.seconds, "rate_hz": self.rate_hz(),
            "latency": latency::by_name(&self.latency),
            "gigabytes_per_second": self.gigabytes_per_second(), "bits_per_pixel": self.bits_per_pixel(), "unit": self.unit,
            "master": self.file.as_ref().map(|f| &f.master), "data_files": self.file.as_ref().map(|f| &f.data_files),
            "whole": self.file.as_ref().and_then(|f| f.whole.as_ref()).map(whole_json),
            "raw_master": self.raw.as_ref().map(|r| &r.master), "raw_frames": self.raw.as_ref().map(|r| r.frames),
            "raw_bytes": self.raw.as_ref().map(|r| r.bytes),
            "chunk_bytes": self.file.as_ref().map(|f| f.chunk_bytes), "advice": self.advice, "notes": self.notes,
            "setup": self.setup.iter().map(SetupReport::to_json).collect::<Vec<_>>(), "headline": self.headline(),
            "host": self.host.iter().map(|(name, n)| (name.clone(), json!(n))).collect::<Map<_, _>>(),
            "analysis": self.analysis.read().map(|tally| rows(&tally.rows())), "analysis_warning": self.analysis.warning(),
            "gpu": self.gpu.as_ref().map(gpu_json),
            "receive": self.receiving, "spool": self.spool.as_ref().map(SpoolReport::to_json),
        })
    }
}

/// What a GPU did, and why it was given up.
fn gpu_line(gpu: &GpuReport) -> String {
    let [made, others] = [gpu.strips, gpu.strips_by_processor].map(text::count);
    let input = if gpu.reads_ring { "it read frames from the ring" } else { "frames were copied for it" };
    let remark = match (gpu.warning(), &gpu.failure) {
        (None, _) => input.to_string(),
        // A warning without a failure says that frames are copied, and why.
        (Some(warning), None) => warning,
        (Some(warning), Some(_)) => format!("{input}; {warning}"),
    };
    format!("\ngpu       {}: {made} strips of images, {others} of its strips by the processor; {remark}", gpu.name)
}

fn gpu_json(gpu: &GpuReport) -> Value {
    json!({
        "name": gpu.name, "strips": gpu.strips, "strips_by_processor": gpu.strips_by_processor, "warning": gpu.warning(),
        "reads_ring": gpu.reads_ring, "copies_because": gpu.copies_because,
    })
}

/// Milliseconds with three digits.
fn milliseconds(us: f64) -> String {
    let ms = us / 1e3;
    let digits = [100.0, 10.0, 1.0].iter().filter(|least| ms < **least).count();
    format!("{ms:.digits$} ms")
}

/// The sender whose packets a stream accepted, and those whose packets it refused.
fn senders(seen: &Seen) -> (Option<Sender>, OtherSenders) {
    (seen.sender, seen.other_senders)
}

/// Where data were lost, and what to do about it. Losses that the findings on the set-up explain are not repeated.
fn advice(config: &Config, names: &[String], outcome: &RunOutcome) -> Vec<String> {
    let total = outcome.ledger.total();
    let mut list = Vec::new();
    if total.kernel_dropped > 0 {
        list.push(format!(
            "{} packets were dropped because a socket's buffer was full: raise it (sudo sysctl -w net.core.rmem_max={}, [source] receive_buffer_mib) and see docs/troubleshooting.md",
            text::count(total.kernel_dropped),
            config.receive_buffer_bytes.max(1 << 28)
        ));
    }
    if total.no_slot > 0 {
        list.push(format!(
            "{} packets were dropped because the image buffer was full: the disk or the processors are too slow; `konkordia bench pipeline` shows which, a larger [run] buffer_mib bridges short pauses",
            text::count(total.no_slot)
        ));
    }
    if total.received == 0 {
        list.push("nothing arrived on any port: is the detector sending to this address, and is a firewall in the way? docs/troubleshooting.md, Nothing arrives".into());
        return list;
    }
    list.extend(setup::reports(config, names, &outcome.findings).iter().map(SetupReport::text));
    let odd = total.malformed_total();
    if odd > 0 && outcome.findings.is_empty() {
        let line = "datagrams are not packets of this detector: damaged, or from another sender (docs/troubleshooting.md)";
        list.push(format!("{} {line}", text::count(odd)));
    }
    let not_received = outcome.ledger.images.not_received;
    if not_received > 0 && total.placed > 0 {
        list.push(format!(
            "{} planned images were not received: is the detector set to as many images as [run] images, or was it stopped early?",
            text::count(not_received)
        ));
    }
    list.extend(lost_on_the_wire(outcome));
    list.extend(not_kept(outcome));
    list
}

/// Packets that were received but are in no image.
fn not_kept(outcome: &RunOutcome) -> Option<String> {
    let (total, packets) = (outcome.ledger.total(), outcome.ledger.packets_not_kept());
    (packets > 0).then(|| {
        format!(
            "{} packets were not stored: {} came twice, {} after their image was closed. Does a second detector send to this port, did the detector restart its frame numbers, or does the network repeat packets? (docs/ledger.md)",
            text::count(packets),
            text::count(total.duplicate),
            text::count(total.late)
        )
    })
}

/// Missing packets that nothing else explains. Silent streams explain missing packets, and so does a set-up with a
/// different number of packets.
fn lost_on_the_wire(outcome: &RunOutcome) -> Option<String> {
    let (ledger, total) = (&outcome.ledger, outcome.ledger.total());
    let is_other = outcome.findings.iter().any(|finding| finding.is_wrong && finding.what != What::Silent);
    if total.placed == 0 || is_other || outcome.ended == Ended::Stopped {
        return None;
    }
    let silent = ledger.streams.iter().filter(|stream| stream.received == 0).count() as u64;
    let of_silent = silent * ledger.packets_per_image / ledger.streams.len().max(1) as u64;
    let explained = of_silent * ledger.frames.passed;
    let counted = total.kernel_dropped + total.no_slot + total.late + total.malformed_total();
    let lost = ledger.frames.packets_missing.saturating_sub(explained + counted);
    (lost > 0).then(|| {
        format!(
            "{} missing packets never reached this machine's sockets: lost on the wire, in a switch or in the network card (docs/troubleshooting.md, Lost before the socket)",
            text::count(lost)
        )
    })
}

/// The master of a whole image, in words.
pub fn whole_text(whole: &Result<Whole, String>) -> String {
    match whole {
        Ok(whole) if whole.lacks().is_empty() => format!("{}, of all parts", whole.master.display()),
        Ok(whole) => format!("{}; {}", whole.master.display(), whole.lacks()),
        Err(why) => format!("its master was not made: {why}"),
    }
}

/// The same for programs.
pub fn whole_json(whole: &Result<Whole, String>) -> Value {
    match whole {
        Ok(whole) => json!({
            "master": whole.master, "images": whole.images, "parts_absent": whole.absent, "parts_open": whole.open,
            "notes": whole.notes,
        }),
        Err(why) => json!({ "failure": why }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn milliseconds_have_three_digits() {
        let shown = [80.0, 812.4, 2100.0, 40_960.0, 2_310_000.0].map(milliseconds);
        assert_eq!(shown, ["0.080 ms", "0.812 ms", "2.10 ms", "41.0 ms", "2310 ms"]);
    }

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
