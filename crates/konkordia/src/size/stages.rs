//! `konkordia size --stages`: which stage of the data's way runs on an FPGA, a GPU or the processor, from the
//! bandwidths of links and memory.

use super::records::{Figure, Records};
use super::sizing::{DATAGRAM, Line, Request, Sizing, WIRE_BYTES, short};

/// Where a stage runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Processor.
    Cpu,
    /// Graphics processor.
    Gpu,
    /// Logic behind the network port.
    Fpga,
}

impl Place {
    /// As in the tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "CPU",
            Self::Gpu => "GPU",
            Self::Fpga => "FPGA",
        }
    }
}

/// The stages in the order of the data. The file is always written by the processor.
pub const STAGES: [&str; 4] = ["receive", "convert", "bitshuffle", "LZ4"];
const RECEIVE: usize = 0;
const CONVERT: usize = 1;
const SHUFFLE: usize = 2;
const PACK: usize = 3;

/// Links of a machine, in GB/s for each direction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Platform {
    /// Name on the command line.
    pub name: &'static str,
    /// From an FPGA board into the memory of the host.
    pub fpga_link_gb_per_s: f64,
    /// Between the memory of the host and a GPU.
    pub gpu_link_gb_per_s: f64,
    /// What the memory of a GPU moves, reading and writing together.
    pub gpu_memory_gb_per_s: f64,
    /// Who says so.
    pub source: &'static str,
}

/// The machines with a name.
pub const PLATFORMS: [Platform; 3] = [
    Platform {
        name: "power9",
        fpga_link_gb_per_s: 25.0,
        gpu_link_gb_per_s: 75.0,
        gpu_memory_gb_per_s: 900.0,
        source: "Leonarski et al. 2020: OpenCAPI 25, NVLink 75, HBM2 of a GPU up to 900 GB/s",
    },
    Platform {
        name: "pcie4",
        fpga_link_gb_per_s: 32.0,
        gpu_link_gb_per_s: 32.0,
        gpu_memory_gb_per_s: 900.0,
        source: "Leonarski et al. 2020: PCIe 4.0 x16 32, HBM2 of a GPU up to 900 GB/s",
    },
    Platform {
        name: "pcie5",
        fpga_link_gb_per_s: 63.0,
        gpu_link_gb_per_s: 63.0,
        gpu_memory_gb_per_s: 4800.0,
        source: "PCIe 5.0 x16: 32 GT/s x 16 / 8 x 128/130 = 63; memory of an H200 by its maker: 4800 GB/s",
    },
];

/// What the boards and the machine do.
#[derive(Clone, Copy, Debug)]
pub struct Hardware {
    /// Links.
    pub platform: Platform,
    /// Words that the logic of a board takes.
    pub fpga_gb_per_s: f64,
    /// Network ports of a board.
    pub fpga_ports: f64,
}

/// One way to place the stages.
#[derive(Clone, Debug)]
pub struct Placement {
    /// Where each of [`STAGES`] runs.
    pub places: [Place; STAGES.len()],
    /// What it needs; those without a value have no figure.
    pub lines: Vec<Line>,
}

impl Placement {
    /// The number of a line.
    pub fn value(&self, name: &str) -> Option<f64> {
        self.lines.iter().find(|line| line.name == name).and_then(|line| line.value)
    }

    /// Lines without a figure.
    pub fn missing(&self) -> impl Iterator<Item = &Line> {
        self.lines.iter().filter(|line| line.value.is_none())
    }

    /// What makes one better than another: fewer hosts, then fewer boards and GPUs, then fewer cores. `None` if a
    /// figure is missing.
    fn cost(&self) -> Option<[f64; 3]> {
        let devices = self.value("boards")? + self.value("gpus")?;
        Some([self.value("hosts")?, devices, self.value("cores")?])
    }
}

/// All ways, the best first; those that lack a figure come last.
pub fn placements(request: &Request, sizing: &Sizing, records: &Records, hardware: &Hardware) -> Vec<Placement> {
    let plan = Plan { request, sizing, records, hardware };
    let mut all: Vec<Placement> = possible().map(|places| plan.placement(places)).collect();
    let cost = |placement: &Placement| placement.cost().unwrap_or([f64::INFINITY; 3]);
    // Their order is kept where they cost the same: less is moved away from the processor.
    all.sort_by(|a, b| cost(a).partial_cmp(&cost(b)).unwrap_or(std::cmp::Ordering::Equal));
    all
}

/// Logic stands behind the network port, so its stages are the first ones and compressing is none of them. Data go to a
/// GPU once, so its stages follow each other.
fn possible() -> impl Iterator<Item = [Place; STAGES.len()]> {
    (0..=PACK).flat_map(|logic| {
        let from = logic.max(CONVERT);
        let none = std::iter::once(from..from);
        let gpu = none.chain((from..=PACK).flat_map(|begin| (begin + 1..=PACK + 1).map(move |end| begin..end)));
        gpu.map(move |gpu| {
            std::array::from_fn(|stage| match stage {
                _ if stage < logic => Place::Fpga,
                _ if gpu.contains(&stage) => Place::Gpu,
                _ => Place::Cpu,
            })
        })
    })
}

struct Plan<'a> {
    request: &'a Request,
    sizing: &'a Sizing,
    records: &'a Records,
    hardware: &'a Hardware,
}

type Number = Result<(f64, String, String), String>;

impl Plan<'_> {
    fn placement(&self, places: [Place; STAGES.len()]) -> Placement {
        let mut placement = Placement { places, lines: Vec::new() };
        let mut add = |name, what, unit, number: Number| {
            let (value, formula, rests_on) = match number {
                Ok((value, formula, rests_on)) => (Some(value), formula, rests_on),
                Err(why) => (None, String::new(), format!("no figure: {why}")),
            };
            placement.lines.push(Line { name, what, value, unit, is_at_least: false, formula, rests_on });
        };
        add("boards", "FPGA boards", "", self.boards(&places));
        add("gpus", "GPUs", "", self.gpus(&places));
        let cores = self.cores(&places);
        add("cores", "cores", "cores", cores.clone());
        let memory = self.memory_traffic(&places);
        add("memory_traffic", "memory traffic of the hosts at most", "GB/s", Ok(memory.clone()));
        add("hosts", "hosts", "", cores.map(|cores| self.hosts(&places, cores.0, memory.0)));
        placement
    }

    fn headroom(&self) -> f64 {
        self.request.headroom
    }

    fn pixels_per_s(&self) -> f64 {
        self.request.detector.pixels() as f64 * self.request.rate_hz
    }

    /// Words, and also pixels of 16 bits, shuffled or not.
    fn raw_gb_per_s(&self) -> f64 {
        self.pixels_per_s() * 2.0 / 1e9
    }

    fn packed_gb_per_s(&self) -> f64 {
        self.pixels_per_s() * self.sizing.bits_per_pixel / 8.0 / 1e9
    }

    fn boards(&self, places: &[Place; STAGES.len()]) -> Number {
        if places[RECEIVE] != Place::Fpga {
            return Ok((0.0, "none".into(), "the processor receives".into()));
        }
        let Hardware { platform, fpga_gb_per_s, fpga_ports } = *self.hardware;
        let network = fpga_ports * self.request.port_gbit / 8.0 * DATAGRAM.1 / (DATAGRAM.0 + WIRE_BYTES);
        let most = network.min(fpga_gb_per_s).min(platform.fpga_link_gb_per_s);
        let raw = self.raw_gb_per_s();
        let formula = format!(
            "{} GB/s x {} / the least of {} (logic), {} ({} port(s)), {} (link) GB/s, rounded up",
            short(raw),
            short(self.headroom()),
            short(fpga_gb_per_s),
            short(network),
            short(fpga_ports),
            short(platform.fpga_link_gb_per_s)
        );
        let logic = "logic: 64 bytes per clock at 250 MHz, counted in simulation, not measured on a board (docs/fpga.md)";
        Ok(((raw * self.headroom() / most).ceil(), formula, format!("{logic}; {}", platform.source)))
    }

    fn gpus(&self, places: &[Place; STAGES.len()]) -> Number {
        let has = |stage: usize| places[stage] == Place::Gpu;
        if !places.contains(&Place::Gpu) {
            return Ok((0.0, "none".into(), "no stage runs there".into()));
        }
        if has(PACK) {
            return Err("LZ4 on a GPU was not measured (docs/gpu.md)".into());
        }
        let platform = self.hardware.platform;
        // Word, constants and pixel; pixel and its bits.
        let bytes = if has(CONVERT) { 12.0 } else { 0.0 } + if has(SHUFFLE) { 4.0 } else { 0.0 };
        let (link, memory) = (self.raw_gb_per_s(), bytes * self.pixels_per_s() / 1e9);
        let load = (link / platform.gpu_link_gb_per_s).max(memory / platform.gpu_memory_gb_per_s);
        let formula = format!(
            "{} x the larger of {} / {} GB/s (link, each way) and {} bytes x {} pixels/s / {} GB/s (its memory), rounded up",
            short(self.headroom()),
            short(link),
            short(platform.gpu_link_gb_per_s),
            short(bytes),
            short(self.pixels_per_s()),
            short(platform.gpu_memory_gb_per_s)
        );
        let rests_on = format!("a bound by links and memory, no kernel was measured (docs/gpu.md); {}", platform.source);
        Ok(((load * self.headroom()).ceil(), formula, rests_on))
    }

    /// Cores of stages of the processor that follow each other, which then are one pass.
    fn work(&self, stages: &[usize]) -> Number {
        let rate = |row: &str| {
            let figure = self.records.kernel(row, "gigabytes_raw_per_second");
            figure.ok_or_else(|| format!("`{row}` of `konkordia bench kernels --json`, give it with --record"))
        };
        let pack = || -> Result<Figure, String> {
            // LZ4 alone is not in the records: the whole pass less the pass without it.
            let (all, without) = (rate("fused convert + bitshuffle + lz4")?, rate("fused convert + bitshuffle")?);
            let value = 1.0 / (1.0 / all.value - 1.0 / without.value);
            if !(value.is_finite() && value > 0.0) {
                return Err("the record has a pass with LZ4 that is no slower than the pass without it".into());
            }
            Ok(Figure { value, source: format!("{}, pass with LZ4 less pass without it", all.source) })
        };
        let figure = match *stages {
            [] => return Ok((0.0, String::new(), String::new())),
            [CONVERT, SHUFFLE, PACK] => {
                let line = self.sizing.lines.iter().find(|line| line.name == "cores_work");
                let found = line.and_then(|line| Some((line.value?, line.formula.clone(), line.rests_on.clone())));
                return found.ok_or_else(|| "`konkordia bench kernels --json`, give it with --record".into());
            }
            [CONVERT, SHUFFLE] => rate("fused convert + bitshuffle")?,
            [CONVERT] => rate("convert")?,
            [SHUFFLE] => rate("bitshuffle")?,
            [SHUFFLE, PACK] => {
                let (shuffle, pack) = (rate("bitshuffle")?, pack()?);
                Figure { value: 1.0 / (1.0 / shuffle.value + 1.0 / pack.value), source: pack.source }
            }
            _ => pack()?,
        };
        let raw = self.raw_gb_per_s();
        let formula = format!("{} GB/s x {} / {} GB/s per core", short(raw), short(self.headroom()), short(figure.value));
        Ok((raw * self.headroom() / figure.value, formula, figure.source))
    }

    fn cores(&self, places: &[Place; STAGES.len()]) -> Number {
        let mut groups: Vec<Vec<usize>> = vec![Vec::new()];
        for (stage, place) in places.iter().enumerate().skip(CONVERT) {
            match place {
                Place::Cpu => groups.last_mut().expect("there is one").push(stage),
                _ => groups.push(Vec::new()),
            }
        }
        groups.retain(|group| !group.is_empty());
        let mut terms: Vec<Number> = groups.iter().map(|group| self.work(group)).collect();
        let mut lines = vec!["cores_join", "cores_file"];
        if places[RECEIVE] == Place::Cpu {
            lines.insert(0, "cores_receive");
        }
        for name in lines {
            let line = self.sizing.lines.iter().find(|line| line.name == name);
            let figure = line.and_then(|line| Some((line.value?, line.formula.clone(), line.rests_on.clone())));
            terms.push(figure.ok_or_else(|| line.map_or(String::new(), |line| line.rests_on.replace("no figure: ", ""))));
        }
        let (mut value, mut formulas, mut sources) = (0.0, Vec::new(), Vec::new());
        for term in terms {
            let (cores, formula, source) = term?;
            value += cores;
            formulas.push(format!("({formula})"));
            if !sources.contains(&source) {
                sources.push(source);
            }
        }
        Ok((value, formulas.join(" + "), sources.join("; ")))
    }

    fn memory_traffic(&self, places: &[Place; STAGES.len()]) -> (f64, String, String) {
        // As the line of the whole machine: card, kernel to program, program to slot, then the reader of the slot;
        // strips, join and file. Logic writes its result once.
        let receive = if places[RECEIVE] == Place::Cpu { 5.0 } else { 1.0 };
        let mut passes = receive;
        let mut previous = None;
        for &place in &places[CONVERT..] {
            if place != Place::Fpga && previous != Some(place) {
                // Reads what the stage before has left; that one has written it, if it was not logic.
                passes += if previous.is_some_and(|before| before != Place::Fpga) { 2.0 } else { 1.0 };
            }
            previous = Some(place);
        }
        let constants = if places[CONVERT] == Place::Cpu { 1.0 } else { 0.0 };
        let (raw, packed) = (self.raw_gb_per_s(), self.packed_gb_per_s());
        let value = (passes * raw + constants * raw / 2.0 + 6.0 * packed) * self.headroom();
        let constants = if constants > 0.0 { " + 0.5" } else { "" };
        let formula = format!(
            "(({}{constants}) x {} + 6 x {} GB/s) x {}",
            short(passes),
            short(raw),
            short(packed),
            short(self.headroom())
        );
        (value, formula, "each step reads and writes its bytes once, if no cache helps but that for constants".into())
    }

    fn hosts(&self, places: &[Place; STAGES.len()], cores: f64, memory: f64) -> (f64, String, String) {
        let host = self.request.host;
        let mut parts = vec![("cores", cores / host.cores)];
        parts.extend(host.memory_gb_per_s.map(|most| ("memory", memory / most)));
        if places[RECEIVE] == Place::Cpu {
            parts.extend(self.sizing.value("ports").map(|ports| ("ports", ports / host.ports)));
        }
        let most = parts.iter().map(|part| part.1).fold(0.0, f64::max);
        let terms: Vec<String> = parts.iter().map(|(name, part)| format!("{name} {}", short(*part))).collect();
        let without = if host.memory_gb_per_s.is_none() { "; memory is not considered (--host-memory-gb-per-s)" } else { "" };
        let formula = format!("the largest of {}, rounded up", terms.join(", "));
        let rests_on = format!(
            "a host of {} cores and {} ports, as given{without}; slots for boards are not considered",
            short(host.cores),
            short(host.ports)
        );
        (most.ceil().max(1.0), formula, rests_on)
    }
}

#[cfg(test)]
#[path = "stages_tests.rs"]
mod tests;
