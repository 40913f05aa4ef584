//! `konkordia bench idle`: the cost of an idle service. One process has many detectors, half of them for packets and
//! half for messages. Processor time and memory are those that the kernel counts.

use super::args::BenchIdleArgs;
use super::frames::in_folder;
use super::output::Output;
use konkordia_acquire::machine;
use konkordia_core::failure::{Exit, Failure, reason};
use konkordia_core::text;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// `konkordia bench idle`
pub fn command(args: &BenchIdleArgs) -> Result<Exit, Failure> {
    let output = Output::open(&args.output, "idle")?;
    in_folder(None, |folder| {
        let config = configure(folder, args.detectors)?;
        let service = Service::start(&config)?;
        // Waits until the start of the service is over.
        std::thread::sleep(Duration::from_secs(1));
        let (before, begin) = (service.processor_time()?, Instant::now());
        std::thread::sleep(Duration::from_secs_f64(args.seconds));
        let used = service.processor_time()? - before;
        let core = used.as_secs_f64() / begin.elapsed().as_secs_f64();
        let (resident, threads) = (service.number("VmRSS:")? * 1024, service.number("Threads:")?);
        let each = 1.0 / args.detectors as f64;
        let row = json!({
            "name": format!("{} idle detectors", args.detectors), "core_percent": core * 100.0, "core_percent_each": core * 100.0 * each,
            "resident_bytes": resident, "resident_bytes_each": resident as f64 * each, "threads": threads,
        });
        let text = format!(
            "{} idle detectors in one process, {:.0} s: {:.2} % of a core ({:.3} % each), {} resident ({} each), {threads} threads",
            args.detectors,
            begin.elapsed().as_secs_f64(),
            core * 100.0,
            core * 100.0 * each,
            text::bytes(resident),
            text::bytes((resident as f64 * each) as u64)
        );
        output.print(json!({ "machine": machine::facts(), "rows": [row] }), &text);
        Ok(Exit::Complete)
    })
}

/// Writes the configurations and returns that of the service.
fn configure(folder: &Path, detectors: usize) -> Result<PathBuf, Failure> {
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).map_err(|error| Failure::io("cannot write", &path, &error))?;
        Ok(path)
    };
    let mut all = String::from("[service]\nlisten = \"127.0.0.1:0\"\n");
    for n in 0..detectors {
        let output = format!("[output]\ndirectory = \".\"\nprefix = \"d{n}\"\n");
        let text = if n % 2 == 0 {
            let port = 20_000 + 4 * n;
            format!("[detector]\ntype = \"eiger\"\nbits = 8\n[source]\naddress = \"127.0.0.1\"\nfirst_port = {port}\n{output}")
        } else {
            // Nothing listens there, as before a detector is switched on.
            format!(
                "[detector]\ntype = \"stream\"\n[source]\nprotocol = \"stins\"\nupstreams = [\"tcp://127.0.0.1:{}\"]\n{output}",
                1 + n
            )
        };
        write(&format!("d{n}.toml"), &text)?;
        let _ = write!(all, "[detectors.d{n}]\nconfig = \"d{n}.toml\"\n");
    }
    write("service.toml", &all)
}

/// A service in a process of its own; killed when this value is dropped.
struct Service(Child);

impl Service {
    /// Starts it and waits until it is ready.
    fn start(config: &Path) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| {
            Failure::new(Exit::Io, "the service does not start", reason(&error), "look at the lines above")
        };
        let program = std::env::current_exe().map_err(failed)?;
        let mut command = Command::new(program);
        command.args(["serve", "--quiet", "--json", "-c"]).arg(config);
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().map_err(failed)?;
        let mut service = Self(child);
        let mut line = String::new();
        let stdout = service.0.stdout.take().map(BufReader::new);
        let ready = stdout.map(|mut out| out.read_line(&mut line)).transpose().map_err(failed)?;
        match (ready, serde_json::from_str::<Value>(&line)) {
            (Some(1..), Ok(_)) => Ok(service),
            _ => Err(Failure::new(Exit::Io, "the service does not start", format!("it says: {line}"), "look at the lines above")),
        }
    }

    fn file(&self, name: &str) -> Result<String, Failure> {
        let path = PathBuf::from(format!("/proc/{}/{name}", self.0.id()));
        std::fs::read_to_string(&path).map_err(|error| Failure::io("cannot read", &path, &error))
    }

    /// Processor time of all its threads, in user and in kernel mode.
    fn processor_time(&self) -> Result<Duration, Failure> {
        // The program name in brackets may contain anything. The first field after it is the third of the line.
        let stat = self.file("stat")?;
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
        let ticks: u64 = fields.get(11..13).unwrap_or(&[]).iter().filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
        // USER_HZ is 100 on every Linux that we run on.
        Ok(Duration::from_millis(ticks * 10))
    }

    /// A number from `/proc/PID/status`.
    fn number(&self, name: &str) -> Result<u64, Failure> {
        let status = self.file("status")?;
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        Ok(line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0))
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
