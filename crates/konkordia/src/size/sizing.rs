//! What a detector needs of machines: cores, network ports, memory, disks, hosts. Each line has its formula, and the
//! measured figure on which it rests. Where there is no figure, the line says so and has no number.

use super::records::{Figure, Pipeline, Records};
use konkordia_sim::presets::{DetectorPreset, Wire};

/// Bytes of a JUNGFRAU datagram: header and pixels.
pub const DATAGRAM: (f64, f64) = (8240.0, 8192.0);
/// Bytes on the wire beside a datagram: UDP, IP, Ethernet with checksum, preamble and gap.
pub const WIRE_BYTES: f64 = 8.0 + 20.0 + 18.0 + 20.0;
/// Bytes on the wire for those of a full TCP segment at an MTU of 9000.
const SEGMENT: (f64, f64) = (9038.0, 8948.0);
/// Bytes of the G0 constants of a pixel, and frames for which they are fetched once (ARCHITECTURE.md, The sketch).
const CONSTANTS: (f64, f64) = (8.0, 8.0);
/// Fewest and most images of a ring (`konkordia config check` shows the ring of a configuration).
pub const SLOTS: (f64, f64) = (16.0, 4096.0);
/// Bytes of all constants of a pixel and its place in the mask.
const TABLE_BYTES: f64 = 28.0;

/// How the file is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// As the pixels are or come.
    None,
    /// Bitshuffle and LZ4.
    Bslz4,
    /// Bitshuffle and Zstd.
    Bszstd,
}

impl Codec {
    /// Name as in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Bslz4 => "bslz4",
            Self::Bszstd => "bszstd",
        }
    }
}

/// A host as it is to be bought, or is there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Host {
    /// Processor cores.
    pub cores: f64,
    /// Network ports.
    pub ports: f64,
    /// Memory.
    pub memory_gib: f64,
    /// What its memory moves, reading and writing together, if that is known.
    pub memory_gb_per_s: Option<f64>,
    /// What its disk takes, if that is known.
    pub disk_gb_per_s: Option<f64>,
}

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// The detector.
    pub detector: DetectorPreset,
    /// Images per second.
    pub rate_hz: f64,
    /// How the file is compressed.
    pub codec: Codec,
    /// Bits of a pixel in the file, if they are known.
    pub bits_per_pixel: Option<f64>,
    /// How many times its load each resource must carry.
    pub headroom: f64,
    /// How long a step may stand still without loss.
    pub stall_s: f64,
    /// Speed of a network port.
    pub port_gbit: f64,
    /// One of the hosts.
    pub host: Host,
}

/// A line of the answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Name for programs.
    pub name: &'static str,
    /// What it is.
    pub what: &'static str,
    /// How much; `None` where no figure is known.
    pub value: Option<f64>,
    /// Unit of the number.
    pub unit: &'static str,
    /// More may be needed: a part has no figure.
    pub is_at_least: bool,
    /// How the number follows from others.
    pub formula: String,
    /// The measurement or publication behind it, or what to measure.
    pub rests_on: String,
}

/// The answer.
#[derive(Clone, Debug)]
pub struct Sizing {
    /// In the order of the data.
    pub lines: Vec<Line>,
    /// Bits of a pixel in the file.
    pub bits_per_pixel: f64,
}

impl Sizing {
    /// The number of a line.
    pub fn value(&self, name: &str) -> Option<f64> {
        self.lines.iter().find(|line| line.name == name).and_then(|line| line.value)
    }
}

/// Four digits, or all before the point if there are more; without zeros at the end.
pub fn short(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value}");
    }
    let digits = (3 - value.abs().log10().floor() as i32).clamp(0, 9) as usize;
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_string() } else { text }
}

/// What the detector needs.
pub fn size(request: &Request, records: &Records) -> Sizing {
    let (bits_per_pixel, bits_from) = bits(request, records);
    let mut sum = Sum { request, records, pipeline: records.pipeline(), bits_per_pixel, lines: Vec::new() };
    sum.detector();
    sum.network();
    sum.receive();
    sum.work();
    sum.file(&bits_from);
    sum.cores();
    sum.memory();
    sum.disk();
    sum.hosts();
    Sizing { lines: sum.lines, bits_per_pixel }
}

/// Bits of a pixel in the file and who says so.
fn bits(request: &Request, records: &Records) -> (f64, String) {
    let is_converted = matches!(request.detector.wire, Wire::Jungfrau { .. });
    let measured = |row: &str| {
        let figure = records.kernel(row, "bits_per_pixel")?;
        Some((figure.value, format!("{} (10 frames of lysozyme; your images will differ)", figure.source)))
    };
    let found = match (request.bits_per_pixel, request.codec, is_converted) {
        (Some(bits), _, _) => Some((bits, "as given".to_string())),
        (None, Codec::Bslz4, true) => measured("the same; strip by strip"),
        (None, Codec::Bszstd, true) => measured("bszstd of pixels"),
        (None, ..) => None,
    };
    let without = if request.codec == Codec::None {
        "without compression"
    } else {
        "no figure for such images: as without compression; give --bits-per-pixel"
    };
    found.unwrap_or((f64::from(request.detector.bits), without.into()))
}

struct Sum<'a> {
    request: &'a Request,
    records: &'a Records,
    pipeline: Option<Pipeline>,
    bits_per_pixel: f64,
    lines: Vec<Line>,
}

impl Sum<'_> {
    fn add(
        &mut self,
        name: &'static str,
        what: &'static str,
        number: (f64, &'static str),
        formula: String,
        rests_on: &str,
    ) -> &mut Line {
        let (value, unit) = number;
        let place = self.lines.len();
        self.lines.push(Line { name, what, value: Some(value), unit, is_at_least: false, formula, rests_on: rests_on.into() });
        &mut self.lines[place]
    }

    fn add_unknown(&mut self, name: &'static str, what: &'static str, unit: &'static str, measure: &str) {
        let rests_on = format!("no figure: {measure}");
        self.lines.push(Line { name, what, value: None, unit, is_at_least: false, formula: String::new(), rests_on });
    }

    fn value(&self, name: &str) -> Option<f64> {
        self.lines.iter().find(|line| line.name == name).and_then(|line| line.value)
    }

    /// Cores for a load, from what one core does.
    fn add_cores(&mut self, name: &'static str, what: &'static str, load_gb_per_s: f64, figure: Option<Figure>, measure: &str) {
        let Some(Figure { value, source }) = figure else { return self.add_unknown(name, what, "cores", measure) };
        let headroom = self.request.headroom;
        let formula = format!("{} GB/s x {} / {} GB/s per core", short(load_gb_per_s), short(headroom), short(value));
        self.add(name, what, (load_gb_per_s * headroom / value, "cores"), formula, &source);
    }

    /// A figure from the processor time of a role: GB/s of `load_gb_per_s` for each core that it kept busy.
    fn of_role(&self, load_gb_per_s: impl Fn(&Pipeline) -> Option<f64>, cores: impl Fn(&Pipeline) -> f64) -> Option<Figure> {
        let pipeline = self.pipeline.as_ref()?;
        let value = load_gb_per_s(pipeline)? / cores(pipeline);
        value.is_finite().then(|| Figure { value, source: format!("{}, processor time", pipeline.source) })
    }

    /// What to do where a role has no figure.
    fn measure_threads(&self) -> String {
        let none = self.records.newest_run().map_or(String::new(), |source| format!("; {source} has none"));
        format!("`konkordia bench pipeline --json` writes the processor time of this step, give it with --record{none}")
    }

    fn raw_gb_per_s(&self) -> f64 {
        self.request.detector.image_bytes() as f64 * self.request.rate_hz / 1e9
    }

    fn file_gb_per_s(&self) -> f64 {
        self.request.detector.pixels() as f64 * self.bits_per_pixel / 8.0 * self.request.rate_hz / 1e9
    }

    /// Images that the ring holds for the stall that is asked for.
    fn slots(&self) -> f64 {
        let wanted = (self.request.rate_hz * self.request.stall_s).ceil().max(SLOTS.0);
        if self.is_udp() { wanted.min(SLOTS.1) } else { wanted }
    }

    fn is_udp(&self) -> bool {
        matches!(self.request.detector.wire, Wire::Jungfrau { .. })
    }

    fn detector(&mut self) {
        let (detector, rate) = (self.request.detector, self.request.rate_hz);
        let formula = format!("{} x {} pixels x {} bit / 8 x {} Hz", detector.rows, detector.columns, detector.bits, short(rate));
        let published = detector
            .published_gb_per_s
            .map_or(String::new(), |gb| format!("; published: {} GB/s at {} Hz", short(gb), short(detector.frame_hz)));
        self.add(
            "pixels",
            "pixels from the detector",
            (self.raw_gb_per_s(), "GB/s"),
            formula,
            &format!("{}{published}", detector.source),
        );
        let streams = f64::from(detector.streams());
        let formula = match detector.wire {
            Wire::Jungfrau { modules, interfaces } => format!("{modules} modules x {interfaces} UDP port(s)"),
            Wire::Messages { upstreams } => format!("{upstreams} sender(s) of messages"),
        };
        self.add("streams", "streams, each with a thread that receives", (streams, ""), formula, detector.source);
    }

    fn network(&mut self) {
        let raw = self.raw_gb_per_s();
        let (wire, formula, rests_on) = if self.is_udp() {
            let ratio = (DATAGRAM.0 + WIRE_BYTES) / DATAGRAM.1;
            let formula = format!("{} GB/s x 8 x {} / {}", short(raw), DATAGRAM.0 + WIRE_BYTES, DATAGRAM.1);
            (raw * 8.0 * ratio, formula, "bytes of a packet with UDP, IP and Ethernet / its pixels (docs/protocols.md 1)")
        } else {
            let formula = format!("{} GB/s x 8 x {} / {}", short(raw), SEGMENT.0, SEGMENT.1);
            (raw * 8.0 * SEGMENT.0 / SEGMENT.1, formula, "TCP at an MTU of 9000; less if the detector compresses")
        };
        self.add("network", "on the network", (wire, "Gb/s"), formula, rests_on);
        let (headroom, port) = (self.request.headroom, self.request.port_gbit);
        let formula = format!("{} Gb/s x {} / {} Gb/s, rounded up", short(wire), short(headroom), short(port));
        self.add("ports", "network ports", ((wire * headroom / port).ceil(), ""), formula, "speed of a port as given");
    }

    fn receive(&mut self) {
        let raw = self.raw_gb_per_s();
        if self.is_udp() {
            let figure = self.of_role(|p| Some(p.datagram_gb_per_s), |p| p.receive.cores);
            // Over loopback the sender does the kernel's part.
            let figure = figure.map(|f| Figure { source: format!("{}, without the kernel's interrupts", f.source), ..f });
            let measure = self.measure_threads();
            return self.add_cores("cores_receive", "receive", raw * DATAGRAM.0 / DATAGRAM.1, figure, &measure);
        }
        let image = self.request.detector.image_bytes() as f64;
        let row = "rows.{} bytes; 1 x 1.";
        let nearest = self.records.nearest(&format!("{row}image_bytes"), &format!("{row}gigabytes_per_second"), image);
        if let Some((bytes, Figure { value, source })) = nearest {
            let headroom = self.request.headroom;
            let formula = format!("{} GB/s x {} / {} GB/s, rounded up", short(raw), short(headroom), short(value));
            let rests_on = format!("{source}, images of {} MB, the sender on the same cores", short(bytes / 1e6));
            let connections = (raw * headroom / value).ceil().max(f64::from(self.request.detector.streams()));
            self.add("connections", "connections (upstreams) at least", (connections, ""), formula, &rests_on);
        }
        self.add_unknown("cores_receive", "receive", "cores", "no bench measures the processor time of receiving messages alone");
    }

    fn work(&mut self) {
        let raw = self.raw_gb_per_s();
        if !self.is_udp() {
            if self.request.codec == Codec::None {
                let formula = "images pass as they come".to_string();
                self.add("cores_work", "work", (0.0, "cores"), formula, "docs/streams.md");
            } else {
                self.add_unknown("cores_work", "compress", "cores", "no bench packs the images of messages");
            }
            return;
        }
        let kernel = |row: &str| self.records.kernel(row, "gigabytes_raw_per_second");
        let from_run = self.of_role(
            // Runs of `bench pipeline` compress with bslz4 unless they were told not to.
            |p| p.bits_per_pixel.filter(|bits| *bits < 15.9).map(|_| p.modules * 1.048_576e-3 * p.rate_hz),
            |p| p.work.cores,
        );
        let figure = match self.request.codec {
            Codec::Bslz4 => from_run.or_else(|| kernel("the same; strip by strip")),
            Codec::None => kernel("convert"),
            Codec::Bszstd => kernel("convert").zip(kernel("bszstd of pixels")).map(|(convert, pack)| Figure {
                value: 1.0 / (1.0 / convert.value + 1.0 / pack.value),
                source: format!(
                    "convert and pack one after the other: {} and {} GB/s, {}",
                    short(convert.value),
                    short(pack.value),
                    pack.source
                ),
            }),
        };
        self.add_cores("cores_work", "work (convert, compress)", raw, figure, "`konkordia bench kernels --json`");
    }

    fn file(&mut self, bits_from: &str) {
        let file = self.file_gb_per_s();
        let detector = self.request.detector;
        let formula =
            format!("{} pixels x {} bit / 8 x {} Hz", detector.pixels(), short(self.bits_per_pixel), short(self.request.rate_hz));
        self.add("file", "into the file", (file, "GB/s"), formula, bits_from);
        let file_of = |p: &Pipeline| Some(p.modules * 524_288.0 * p.bits_per_pixel? / 8.0 * p.rate_hz / 1e9);
        if self.is_udp() {
            let joined = self.of_role(file_of, |p| p.join.cores);
            let measure = self.measure_threads();
            self.add_cores("cores_join", "join strips, one thread of a run", file, joined, &measure);
        }
        let image = detector.pixels() as f64 * self.bits_per_pixel / 8.0;
        // An image of the bench has two bytes per pixel.
        let nearest = self.records.nearest("plain.{}.edge_pixels", "plain.{}.hdf5_gb_per_s", (image / 2.0).sqrt());
        let into_memory = nearest.map(|(edge, figure)| Figure {
            source: format!("{}, frames of {edge} x {edge} into memory (tmpfs)", figure.source),
            ..figure
        });
        let written = self.of_role(file_of, |p| p.file.cores).filter(|_| self.is_udp()).or(into_memory);
        self.add_cores("cores_file", "write the file, one thread of a run", file, written, "`konkordia bench hdf5 --json`");
        let one_thread = ["cores_join", "cores_file"].iter().filter_map(|name| self.value(name)).fold(0.0, f64::max);
        let formula = format!("the busier of these threads, {}, rounded up", short(one_thread));
        let (what, rests_on) = if self.is_udp() {
            ("runs that share the modules", "each run has one thread for either step, and its own files")
        } else {
            ("receivers that share the images", "each has one thread for its file; a PUSH sender divides its images among them")
        };
        self.add("runs", what, (one_thread.ceil().max(1.0), ""), formula, rests_on);
        let measure = "no bench measures the processor time of sending images on";
        self.add_unknown("cores_streams", "send on, for each consumer", "cores", measure);
    }

    fn cores(&mut self) {
        let mut names = vec!["cores_receive", "cores_work", "cores_join", "cores_file"];
        names.retain(|name| self.lines.iter().any(|line| line.name == *name));
        let known: Vec<f64> = names.iter().filter_map(|name| self.value(name)).collect();
        let rest = self.pipeline.as_ref().map_or(0.0, |p| p.rest_cores);
        let is_at_least = known.len() < names.len();
        let terms: Vec<String> = names.iter().map(|name| self.value(name).map_or("?".into(), short)).collect();
        let value = known.iter().sum::<f64>() + rest;
        let others = if rest > 0.0 { format!(" + {} for the rest", short(rest)) } else { String::new() };
        let formula = format!("{}{others}", terms.join(" + "));
        let rests_on = if is_at_least { "without the steps that have no figure" } else { "the lines above" };
        self.add("cores", "cores together", (value, "cores"), formula, rests_on).is_at_least = is_at_least;
    }

    fn memory(&mut self) {
        let (request, detector) = (self.request, self.request.detector);
        let pixel_rate = detector.pixels() as f64 * request.rate_hz;
        let (raw, packed) = (f64::from(detector.bits) / 8.0, self.bits_per_pixel / 8.0);
        let (bytes, formula) = if self.is_udp() {
            // Card; kernel to program; program to slot; worker; constants; strips, join and file.
            let bytes = raw + 2.0 * raw + 2.0 * raw + raw + CONSTANTS.0 / CONSTANTS.1 + 6.0 * packed;
            (bytes, format!("(6 x {} + {} / {} + 6 x {}) bytes", short(raw), CONSTANTS.0, CONSTANTS.1, short(packed)))
        } else {
            (3.0 * raw + 3.0 * packed, format!("(3 x {} + 3 x {}) bytes", short(raw), short(packed)))
        };
        let formula = format!("{formula} x {} pixels/s x {}", short(pixel_rate), short(request.headroom));
        let copies = "bytes that each step reads and writes, if no cache helps but that for constants (docs/sizing.md)";
        let one_core = self.records.figure("roofs.memory.gigabytes_per_second");
        let measured = one_core.map_or("no figure of what memory moves".into(), |f| {
            format!("one core copies {} GB/s: {}", short(f.value), f.source)
        });
        let rests_on = format!("{copies}; {measured}");
        self.add(
            "memory_traffic",
            "memory traffic at most",
            (bytes * pixel_rate * request.headroom / 1e9, "GB/s"),
            formula,
            &rests_on,
        );

        let (wanted, slots) = ((request.rate_hz * request.stall_s).ceil(), self.slots());
        let (slot_bytes, tables, formula) = if self.is_udp() {
            let pixels = detector.pixels() as f64;
            // 16-bit pixels, and what LZ4 adds to blocks that it cannot shrink.
            let packed_max = pixels * 2.0 * (1.0 + 1.0 / 255.0 + 20.0 / 8192.0);
            (pixels * raw + packed_max, pixels * TABLE_BYTES, "(raw frame + packed image at worst) + constants and mask")
        } else {
            (detector.image_bytes() as f64, 0.0, "image as it comes")
        };
        let cut =
            if self.is_udp() && wanted > SLOTS.1 { format!("; a run has at most {} images", SLOTS.1) } else { String::new() };
        let formula = format!("{slots} images x {formula}{cut}");
        let rests_on = format!(
            "{} s at {} Hz; the plan of a run (`konkordia config check`) adds up all of it",
            short(slots / request.rate_hz),
            short(request.rate_hz)
        );
        let gib = (slots * slot_bytes + tables) / f64::from(1u32 << 30);
        self.add("buffers", "memory of the buffers", (gib, "GiB"), formula, &rests_on);
    }

    fn disk(&mut self) {
        let file = self.file_gb_per_s();
        let headroom = self.request.headroom;
        let formula = format!("{} GB/s x {}", short(file), short(headroom));
        let rests_on = "what the disk must take all the time: `konkordia bench hdf5 --dir DIR --sync` measures yours";
        self.add("disk", "disk rate", (file * headroom, "GB/s"), formula, rests_on);
        let formula = format!("{} GB/s x 3600 s / 1000", short(file));
        self.add("per_hour", "disk space for an hour", (file * 3.6, "TB"), formula, "all images kept");
        let slots = self.slots();
        if let Some(disk) = self.request.host.disk_gb_per_s.filter(|disk| *disk < file) {
            let seconds = 2.0 * slots / (self.request.rate_hz * (1.0 - disk / file));
            let rate = short(self.request.rate_hz);
            let formula = format!("2 x {} images / ({rate} Hz x (1 - {} / {}))", short(slots), short(disk), short(file));
            let rests_on = "ring and pool, on one host of the given disk; then images are refused";
            self.add("buffered", "the disk is too slow: the buffers last", (seconds, "s"), formula, rests_on);
        }
    }

    fn hosts(&mut self) {
        let host = self.request.host;
        let is_at_least = self.lines.iter().any(|line| line.name == "cores" && line.is_at_least);
        let of = |name: &str| self.value(name);
        let needs = [
            ("cores", of("cores"), Some(host.cores)),
            ("ports", of("ports"), Some(host.ports)),
            ("memory", of("buffers"), Some(host.memory_gib)),
            ("memory traffic", of("memory_traffic"), host.memory_gb_per_s),
            ("disk", of("disk"), host.disk_gb_per_s),
        ];
        let mut parts: Vec<(&str, f64)> =
            needs.iter().filter_map(|(name, need, has)| Some((*name, need.as_ref()? / has.as_ref()?))).collect();
        parts.sort_by(|a, b| b.1.total_cmp(&a.1));
        let Some((limit, most)) = parts.first().copied() else { return };
        let terms: Vec<String> = parts.iter().map(|(name, part)| format!("{name} {}", short(*part))).collect();
        let formula = format!("the largest of {}, rounded up", terms.join(", "));
        let given =
            |value: Option<f64>, unit: &str, of: &str| value.map_or(String::new(), |v| format!(", {} {unit} {of}", short(v)));
        let rests_on = format!(
            "limited by {limit}; a host of {} cores, {} ports, {} GiB{}{}, as given",
            short(host.cores),
            short(host.ports),
            short(host.memory_gib),
            given(host.memory_gb_per_s, "GB/s", "of memory traffic"),
            given(host.disk_gb_per_s, "GB/s", "of disk")
        );
        self.add("hosts", "hosts", (most.ceil().max(1.0), ""), formula, &rests_on).is_at_least = is_at_least;
    }
}

#[cfg(test)]
#[path = "sizing_tests.rs"]
mod tests;
