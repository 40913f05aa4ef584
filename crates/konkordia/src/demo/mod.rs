//! `konkordia demo`: runs the service with a simulated detector, drives it over HTTP, and checks every pixel of the
//! file.

mod accounts;
mod detector;
mod proof;
mod rashpa;
mod scenario;

use crate::cli::DemoArgs;
use crate::console;
use crate::run::signals;
use crate::serve::client::Waited;
use crate::serve::client::args::TargetArgs;
use crate::serve::client::http::Client;
use crate::serve::command::Service;
use crate::simulate::detector::packetiser;
use crate::simulate::feed::Feed;
use crate::simulate::send::{Senders, Sent};
use crate::simulate::setup::{Beam, RunText, write_files};
use crossbeam_channel::unbounded;
use detector::{DrivenDetector, Simulator};
use konkordia_acquire::handle::{DetectorState, DetectorStatus, FileEntry};
use konkordia_config::service::{self, DetectorKindConfig, ServiceConfig};
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::text;
use konkordia_sim::jungfrau::{JungfrauImage, JungfrauModel, SyntheticJungfrau, raw_bytes};
use konkordia_sim::packet::{DetectorKind, Packetiser};
use konkordia_sinks::hdf5::master_file_name;
use konkordia_sources::udp::kernel_receive_buffer_bytes_max;
use proof::Proof;
use scenario::free_ports;
use serde::Deserialize;
use serde_json::json;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Number of different images; they repeat until the number asked for is reached.
const IMAGES: u64 = 16;
/// A larger receive buffer does not make the demonstration faster.
const BUFFER_PLENTY_BYTES: usize = 4 << 20;
/// Default port of the service. If it is taken, any free port is used.
const HTTP_PORT: u16 = 8090;
/// Start of the names of the files.
const PREFIX: &str = "demo";
/// Name of the detector in the service.
const NAME: &str = "jungfrau";
/// Time between two queries of the service.
const LOOK: Duration = Duration::from_millis(100);

/// What is simulated.
struct Scene {
    detector: SyntheticJungfrau,
    truth: Vec<JungfrauImage>,
    packetiser: Packetiser,
}

/// The running service and its simulated detector.
struct Stage {
    service: Service,
    simulator: Simulator,
    client: Client,
    url: String,
    packets_to: SocketAddr,
    receive_buffer_bytes: usize,
}

/// Result of the run.
struct Outcome {
    status: DetectorStatus,
    sent: Sent,
    file: FileEntry,
    proof: Proof,
    exit: Exit,
}

/// `GET files`
#[derive(Deserialize)]
struct Files {
    files: Vec<FileEntry>,
}

/// `konkordia demo`
pub fn command(args: &DemoArgs) -> Result<Exit, Failure> {
    if let Some(scenario) = args.scenario {
        return scenario::command(args, scenario);
    }
    let begun = Instant::now();
    let interrupted = signals::stop_flag()?;
    print(
        args,
        &format!("1  simulating {IMAGES} images of a JUNGFRAU module (512 x 1024 pixels, 12.4 keV, lysozyme-like crystal) ..."),
    );
    let scene = Scene::new(args)?;
    let config = configure(args, &scene.detector)?;
    let stage = Stage::open(args, &scene, &config)?;
    let shown = show(args, &scene, &stage, &interrupted, begun);
    if args.keeps_serving() && matches!(shown, Ok(Exit::Complete | Exit::Incomplete)) {
        keep(args, &stage, &interrupted);
    }
    stage.service.stop();
    shown
}

/// Prints text for the user: on stderr if the result on stdout is JSON.
fn print(args: &DemoArgs, text: &str) {
    if args.json { console::to_stderr(text) } else { console::to_stdout(text) }
}

impl Scene {
    fn new(args: &DemoArgs) -> Result<Self, Failure> {
        let mut model = JungfrauModel::for_modules(1);
        model.scene.seed = args.seed;
        let detector = SyntheticJungfrau::new(&model).map_err(|e| {
            Failure::new(Exit::Bug, "the demonstration's detector cannot be simulated", e.to_string(), "please report this")
        })?;
        let truth = (0..IMAGES.min(args.images)).map(|n| detector.image(n)).collect();
        Ok(Self { detector, truth, packetiser: packetiser(DetectorKind::Jungfrau { interfaces: 1 }, 1, 1, 1, 0.0)? })
    }

    fn feed(&self) -> Feed {
        let tile_bytes = self.packetiser.layout().tile_bytes;
        let cut = |n: u64| raw_bytes(&self.truth[n as usize].raw).chunks_exact(tile_bytes).map(<[u8]>::to_vec).collect();
        Feed::build(self.packetiser.clone(), self.truth.len() as u64, cut)
    }
}

fn config_path(folder: &Path) -> PathBuf {
    folder.join("demo.toml")
}

/// Writes calibration and configuration into the folder, so that the user finds all that a real run needs there. Then
/// loads the configuration.
fn configure(args: &DemoArgs, detector: &SyntheticJungfrau) -> Result<ServiceConfig, Failure> {
    let calibration = args.dir.join("calibration");
    write_files(&calibration, &detector.calibration_files(true))?;
    let text = RunText {
        modules: 1,
        interfaces: 1,
        beam: Beam::of(&detector.model().scene),
        address: SocketAddr::from((Ipv4Addr::LOCALHOST, free_ports(1)?)),
        calibration: Path::new("calibration"),
        directory: Path::new("."),
        prefix: PREFIX,
        run: format!("images = {}\nstall_timeout_s = 5\nbuffer_mib = 128\n", args.images),
        more: format!("[service]\nname = \"{NAME}\"\n"),
    }
    .text();
    let path = config_path(&args.dir);
    std::fs::write(&path, &text).map_err(|e| Failure::io("cannot write", &path, &e))?;
    let mut service = service::load(&path)?;
    let usual = SocketAddr::from((Ipv4Addr::LOCALHOST, HTTP_PORT));
    let is_free = || TcpListener::bind(usual).is_ok();
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    service.settings.http.listen = args.listen.unwrap_or_else(|| if is_free() { usual } else { any });
    Ok(service)
}

impl Stage {
    /// Starts the service and the simulator beside it.
    fn open(args: &DemoArgs, scene: &Scene, config: &ServiceConfig) -> Result<Self, Failure> {
        let Some(DetectorKindConfig::Udp(own)) = config.detectors.first().map(|detector| &detector.kind) else {
            return Err(Failure::new(Exit::Bug, "the demonstration has no detector", "", "please report this"));
        };
        let packets_to = SocketAddr::new(own.address, own.first_port);
        let receive_buffer_bytes = own.receive_buffer_bytes.min(kernel_receive_buffer_bytes_max().unwrap_or(usize::MAX));
        let senders = Senders::connect(&[packets_to], &[])?;
        let (starts, started) = unbounded();
        let handle = OnceLock::new();
        let service = Service::start(config, |detector| {
            let _ = handle.set(Arc::clone(&detector));
            Arc::new(DrivenDetector::new(detector, starts.clone()))
        })?;
        let url = service.url();
        print(
            args,
            &format!(
                "2  the service is there: look at it with a browser at {url}/; by hand this would be:\n       konkordia serve -c {}",
                config_path(&args.dir).display()
            ),
        );
        let target = TargetArgs { detector: None, url: url.clone(), token: None, ca: None, json: false };
        let detector = handle
            .into_inner()
            .ok_or_else(|| Failure::new(Exit::Bug, "the service has no detector", "", "please report this"))?;
        let simulator = Simulator::spawn(detector, started, scene.feed(), senders, receive_buffer_bytes)?;
        Ok(Self { service, simulator, client: Client::new(&target)?, url, packets_to, receive_buffer_bytes })
    }

    /// One run from arm to idle.
    fn run(&self, args: &DemoArgs, interrupted: &AtomicBool) -> Result<DetectorStatus, Failure> {
        let Self { url, client, .. } = self;
        let images = text::count(args.images);
        print(
            args,
            &format!(
                "3  arming it for {images} images, then starting it and the detector, which sends UDP packets over loopback:\n       \
             curl -H 'Content-Type: application/json' -d '{{\"images\": {}, \"prefix\": \"{PREFIX}\"}}' {url}/api/v1/arm\n       curl -X POST {url}/api/v1/start\n       \
             konkordia simulate jungfrau --to {} --images {0}      (as fast as the receiver takes them)\n       \
             curl '{url}/api/v1/wait?timeout_s=60'",
                args.images, self.packets_to,
            ),
        );
        client.post::<DetectorStatus>("arm", &json!({ "images": args.images, "prefix": PREFIX }))?;
        client.post::<DetectorStatus>("start", &json!({}))?;
        let mut progress = console::Progress::new(args.json);
        loop {
            let look = LOOK.as_secs_f64().to_string();
            let waited: Waited = client.get("wait", &[("timeout_s", &look)])?;
            if waited.done {
                progress.end();
                return Ok(waited.status);
            }
            if interrupted.load(Ordering::Relaxed) {
                client.post::<DetectorStatus>("cancel", &json!({}))?;
            }
            progress.update(|| format!("   {} of {images} images written", text::count(waited.status.images_written)));
        }
    }
}

/// Does the run, checks its file, and prints the result.
fn show(args: &DemoArgs, scene: &Scene, stage: &Stage, interrupted: &AtomicBool, begun: Instant) -> Result<Exit, Failure> {
    let status = stage.run(args, interrupted)?;
    let sent = stage.simulator.sent().unwrap_or_else(|| Ok(Sent::default()))?;
    if interrupted.load(Ordering::Relaxed) {
        console::to_stderr(&format!("interrupted: {}", status.message));
        return Ok(Exit::Interrupted);
    }
    if status.state == DetectorState::Error {
        return Err(Failure::new(Exit::Io, "the run has failed", status.message, status.hint.unwrap_or_default()));
    }
    let files: Files = stage.client.get("files", &[])?;
    let file = files.files.into_iter().next_back().ok_or_else(|| {
        Failure::new(Exit::Incomplete, "the run has no file", status.message.clone(), status.hint.clone().unwrap_or_default())
    })?;
    print(args, "4  reading the file back and comparing every pixel with a reference computed from the same packets ...");
    let master = args.dir.join(master_file_name(PREFIX));
    let proof = proof::compare(&master, &scene.detector, &scene.packetiser, &scene.truth, args.images)?;
    let exit = if proof.is_complete(args.images) { Exit::Complete } else { Exit::Incomplete };
    let outcome = Outcome { status, sent, file, proof, exit };
    if args.json {
        console::json(&outcome.to_json(args, stage, begun), args.keeps_serving());
    } else {
        summary(args, stage, &outcome);
        console::to_stdout(&format!("\ndone in {:.1} s", begun.elapsed().as_secs_f64()));
    }
    Ok(exit)
}

impl Outcome {
    fn rates(&self) -> (f64, f64) {
        let seconds = self.sent.seconds.max(1e-9);
        (self.sent.images as f64 / seconds, self.sent.bytes as f64 / seconds / 1e9)
    }

    fn to_json(&self, args: &DemoArgs, stage: &Stage, begun: Instant) -> serde_json::Value {
        let (hz, gigabytes) = self.rates();
        let ledger: serde_json::Map<_, _> = self.proof.summary.ledger.iter().map(|(name, n)| (name.clone(), json!(n))).collect();
        json!({
            "exit_code": self.exit as u8, "url": stage.url, "status": self.status, "file": self.file, "ledger": ledger,
            "valid": self.proof.is_valid, "images": args.images, "pixels_compared": self.proof.compared,
            "pixels_different": self.proof.different, "pixels_equal_to_true_photons": self.proof.equal_to_truth,
            "rates": { "images_per_second": hz, "gigabytes_per_second": gigabytes },
            "receive_buffer_bytes": stage.receive_buffer_bytes, "seconds": begun.elapsed().as_secs_f64(),
            "config": config_path(&args.dir),
        })
    }
}

fn summary(args: &DemoArgs, stage: &Stage, outcome: &Outcome) {
    let Outcome { proof, file, .. } = outcome;
    let n = |name: &str| text::count(proof.count(name));
    let malformed: u64 = proof.summary.ledger.iter().filter(|(name, _)| name.starts_with("malformed")).map(|(_, n)| n).sum();
    let (hz, gigabytes) = outcome.rates();
    let balance = if proof.is_valid { "balances" } else { "DOES NOT BALANCE, or the file is damaged: run konkordia check" };
    console::to_stdout(&format!(
        "\nservice   {}\n\
         packets   {} received = {} placed + {} duplicate + {} late + {} without a slot + {} foreign + {malformed} malformed\n\
         images    {} expected = {} complete + {} partial + {} lost + {} discarded\nledger    {balance}\n\
         rates     {hz:.1} Hz, {gigabytes:.2} GB/s; the sender paces itself by the receiver, so that the kernel's buffer is never full\n\
         file      {}, {} images, {:.2} bits per pixel",
        outcome.status.message,
        n("received"),
        n("placed"),
        n("duplicate"),
        n("late"),
        n("no_slot"),
        n("foreign"),
        n("images_expected"),
        n("images_complete"),
        n("images_partial"),
        n("images_lost"),
        n("images_discarded"),
        file.master,
        text::count(file.images),
        file.bytes as f64 * 8.0 / (proof.compared.max(1)) as f64,
    ));
    console::to_stdout(&format!(
        "proof     {} pixels read back, {} different; {:.2} % of them are exactly the true photons, the rest is the detector's noise",
        text::count(proof.compared),
        text::count(proof.different),
        proof.equal_to_truth * 100.0
    ));
    if stage.receive_buffer_bytes < BUFFER_PLENTY_BYTES {
        let ms = stage.receive_buffer_bytes as f64 / 1.15e9 * 1e3;
        console::to_stdout(&format!(
            "limit     a real module at 1.1 kHz fills this receive buffer in {ms:.1} ms; for real runs: sudo sysctl -w net.core.rmem_max=268435456"
        ));
    }
    let dir = args.dir.display();
    let keep = if args.keeps_serving() {
        ""
    } else {
        "konkordia demo --keep-serving     (to try commands, curl and a browser)\n          "
    };
    let verdict = if outcome.exit == Exit::Complete {
        "nothing lost, the ledger balances, every pixel is right"
    } else {
        "FAILED: see the lines above"
    };
    console::to_stdout(&format!(
        "result    {verdict}\n\nnext      konkordia inspect {dir}/demo_master.h5 --image 0\n          konkordia check {dir}/demo_master.h5\n          \
         {keep}konkordia serve -c {dir}/demo.toml     (the service alone)\n          konkordia config init"
    ));
}

/// Keeps the service running until Ctrl-C. The simulated detector sends a series for every start.
fn keep(args: &DemoArgs, stage: &Stage, interrupted: &AtomicBool) {
    let url = &stage.url;
    let at = if url.ends_with(&format!(":{HTTP_PORT}")) { String::new() } else { format!(" --url {url}") };
    print(
        args,
        &format!(
            "\n5  the service runs on until Ctrl-C; at each start, also of the page Acquire, the simulated detector sends a series, at {} Hz.\n   Look at it with a browser at {url}/, and try in another terminal:\n       \
         konkordia watch{at}\n       konkordia start --images 1000 --prefix mine --wait{at}\n       curl {url}/api/v1/status\n       \
         curl -H 'Content-Type: application/json' -d '{{\"images\": 500}}' '{url}/api/v1/start?wait_s=60'\n       curl {url}/api/v1/images/latest -o latest.png",
            args.rate
        ),
    );
    stage.simulator.set_rate_hz(args.rate);
    while !interrupted.load(Ordering::Relaxed) {
        std::thread::sleep(LOOK);
        match stage.simulator.sent_by_now() {
            Some(Ok(sent)) => print(args, &format!("   sent {} images in {:.1} s", text::count(sent.images), sent.seconds)),
            Some(Err(failure)) => console::to_stderr(&failure.to_string()),
            None => {}
        }
        let Some(seconds) = args.again_every else { continue };
        let Ok(status) = stage.client.get::<DetectorStatus>("status", &[]) else { continue };
        let is_idle = status.state == DetectorState::Idle && status.state_age_s >= seconds as f64;
        // Another client may start a run first: then that run goes on.
        if is_idle {
            let _ = stage.client.post::<DetectorStatus>("start", &json!({}));
        }
    }
    console::to_stderr("stopping: ending runs and closing their files (press Ctrl-C again to stop immediately)");
}
