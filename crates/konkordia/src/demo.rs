//! `konkordia demo`: the whole way on any machine, with proof.

use crate::cli::DemoArgs;
use crate::config::Config;
use crate::failure::{Exit, Failure};
use crate::files::decode;
use crate::run;
use crate::run::arm::{self, Ports};
use crate::run::loopback::{self, Gate};
use crate::run::report::Report;
use crate::say;
use crate::simulate::feed::Feed;
use crate::simulate::packetiser;
use crate::simulate::send::{Pace, Sent};
use crate::simulate::setup::{Beam, RunText, write_files};
use konkordia_sim::jungfrau::{JungfrauImage, JungfrauModel, SyntheticJungfrau, raw_bytes};
use konkordia_sim::packet::{DetectorKind, Packetiser};
use konkordia_sim::reference::{Conversion, JungfrauConstants, Reference, RunLayout};
use konkordia_sinks::hdf5::Reader;
use serde_json::json;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Instant;

/// Different images; they repeat until the number asked for is reached.
const IMAGES: u64 = 16;
/// Share of the receive buffer that packets on their way may take; the kernel also counts its own overhead.
const BUFFER_SHARE: usize = 3;
/// A larger receive buffer does not make the demonstration faster.
const BUFFER_PLENTY_BYTES: usize = 4 << 20;

/// `konkordia demo`
pub fn command(args: &DemoArgs) -> Result<Exit, Failure> {
    let start = Instant::now();
    let tell = |text: &str| if args.json { say::to_stderr(text) } else { say::to_stdout(text) };
    tell(&format!("1  simulating {IMAGES} images of a JUNGFRAU module (512 x 1024 pixels, 12.4 keV, lysozyme-like crystal) ..."));
    let detector = detector(args.seed)?;
    let truth: Vec<JungfrauImage> = (0..IMAGES.min(args.images)).map(|n| detector.image(n)).collect();
    let packetiser = packetiser(DetectorKind::Jungfrau { interfaces: 1 }, 1, 1, 1, 0.0)?;
    let tile_bytes = packetiser.layout().tile_bytes;
    let cut = |n: u64| raw_bytes(&truth[n as usize].raw).chunks_exact(tile_bytes).map(<[u8]>::to_vec).collect();
    let mut feed = Feed::build(packetiser.clone(), truth.len() as u64, cut);
    let config = config(args, &detector)?;
    let prepared = arm::prepare(&config, Ports::Free)?;
    let buffer = prepared.receive_buffer_bytes;
    tell(&format!(
        "2  sending {} images as UDP packets over loopback, receive buffer {} ...",
        say::count(args.images),
        say::bytes(buffer as u64)
    ));
    let window = (buffer / BUFFER_SHARE).max(feed.datagram_bytes);
    let pace = Pace { rate_hz: 0.0, burst_max: (window / 2 / feed.datagram_bytes).max(1) };
    let (writer, addresses) = (prepared.writer.clone(), prepared.addresses.clone());
    let mut progress = say::Progress::new(args.json);
    let mut watch = |control: &konkordia_engine::control::Control| {
        progress.update(|| format!("   {} of {} images written", control.progress().images_written, args.images));
    };
    let (outcome, sent) = loopback::transfer(prepared, &mut feed, &pace, args.images, Gate::Window(window as u64), &mut watch)?;
    progress.end();
    let report = run::close(&config, &addresses, &outcome, &writer, None)?;
    let whole = outcome.ledger.is_complete() && outcome.ledger.imbalances().is_empty();
    tell("3  reading the file back and comparing every pixel with what a naive pipeline makes of the same packets ...");
    let proof = compare(&config, &detector, &packetiser, &truth, args.images)?;
    let exit = if whole && proof.different == 0 { Exit::Complete } else { Exit::Incomplete };
    if args.json {
        let result = json!({
            "exit_code": exit as u8, "report": report.to_json(exit), "images": args.images, "pixels_compared": proof.compared,
            "pixels_different": proof.different, "pixels_equal_to_true_photons": proof.equal_to_truth,
            "rates": { "images_per_second": report.rate_hz(), "gigabytes_per_second": report.gigabytes_per_second() },
            "receive_buffer_bytes": buffer, "seconds": start.elapsed().as_secs_f64(), "config": config_path(&args.dir),
        });
        say::json(&result, false);
    } else {
        summary(args, &report, &proof, &sent, buffer, exit);
        say::to_stdout(&format!("\ndone in {:.1} s", start.elapsed().as_secs_f64()));
    }
    Ok(exit)
}

fn detector(seed: u64) -> Result<SyntheticJungfrau, Failure> {
    let mut model = JungfrauModel::for_modules(1);
    model.scene.seed = seed;
    SyntheticJungfrau::new(&model).map_err(|e| {
        Failure::new(Exit::Bug, "the demonstration's detector cannot be simulated", e.to_string(), "please report this")
    })
}

fn config_path(folder: &Path) -> std::path::PathBuf {
    folder.join("demo.toml")
}

/// Writes calibration and configuration into the folder, so that the user finds there all that a real run needs, and reads them.
fn config(args: &DemoArgs, detector: &SyntheticJungfrau) -> Result<Config, Failure> {
    let calibration = args.dir.join("calibration");
    write_files(&calibration, &detector.calibration_files(true))?;
    let text = RunText {
        modules: 1,
        interfaces: 1,
        beam: Beam::of(&detector.model().scene),
        address: SocketAddr::from((Ipv4Addr::LOCALHOST, 50010)),
        calibration: Path::new("calibration"),
        directory: Path::new("."),
        prefix: "demo",
        run: format!("images = {}\nstall_timeout_s = 5\nbuffer_mib = 128\n", args.images),
        more: String::new(),
    }
    .text();
    let path = config_path(&args.dir);
    std::fs::write(&path, &text).map_err(|e| Failure::io("cannot write", &path, &e))?;
    crate::config::load(&path)
}

/// What the comparison found.
struct Proof {
    compared: u64,
    different: u64,
    /// Pixels of the different images whose photons are those that the simulator let fall onto them.
    equal_to_truth: f64,
}

/// Every pixel of every image in the file against the reference pipeline.
fn compare(
    config: &Config,
    detector: &SyntheticJungfrau,
    packetiser: &Packetiser,
    truth: &[JungfrauImage],
    images: u64,
) -> Result<Proof, Failure> {
    let layout = packetiser.layout();
    let mut reference = Reference::new(RunLayout::stacked(packetiser, truth.len() as u64));
    let mut datagram = vec![0; layout.datagram_bytes()];
    for (n, image) in truth.iter().enumerate() {
        let bytes = raw_bytes(&image.raw);
        for packet in 0..layout.packets_per_tile {
            packetiser.write_packet(0, n as u64 + 1, packet, &bytes, &mut datagram);
            reference.receive(0, &datagram);
        }
    }
    // As in the files: bad pixels carry the pedestal that masks them.
    let mut pedestals = detector.pedestals().to_vec();
    detector.bad_pixels().iter().for_each(|bad| pedestals[bad.pixel] = 16383.0);
    let constants = JungfrauConstants::new(&pedestals, detector.gains(), detector.model().scene.energy_kev as f32);
    let expected: Vec<Vec<i16>> = (0..truth.len() as u64).map(|n| reference.image(n, Conversion::Photons(&constants))).collect();
    let (mut equal, mut valid) = (0u64, 0u64);
    for (image, photons) in expected.iter().zip(truth) {
        let pairs = image.iter().zip(&photons.photons).filter(|(got, _)| **got > i16::MIN + 2 && **got < i16::MAX);
        for (got, true_photons) in pairs {
            valid += 1;
            equal += u64::from(i64::from(*got) == i64::from(*true_photons));
        }
    }
    let master = config.directory.join(format!("{}_master.h5", config.prefix));
    let reader = Reader::open(&master)?;
    let mut proof = Proof { compared: 0, different: 0, equal_to_truth: equal as f64 / valid.max(1) as f64 };
    for n in 0..images {
        let wanted = &expected[(n % truth.len() as u64) as usize];
        let got = reader.read_image(n, &decode)?;
        proof.compared += wanted.len() as u64;
        let same = |(a, b): (&[u8], &i16)| a == b.to_le_bytes();
        proof.different += got.chunks_exact(2).zip(wanted).filter(|pair| !same(*pair)).count() as u64;
    }
    Ok(proof)
}

fn summary(args: &DemoArgs, report: &Report, proof: &Proof, sent: &Sent, buffer: usize, exit: Exit) {
    say::to_stdout(&format!("\n{}\n", report.to_text()));
    say::to_stdout(&format!(
        "sender    {:.1} Hz, {:.2} GB/s; it paces itself by the receiver, so that the kernel's buffer is never full",
        sent.images as f64 / sent.seconds.max(1e-9),
        sent.bytes as f64 / sent.seconds.max(1e-9) / 1e9
    ));
    say::to_stdout(&format!(
        "proof     {} pixels read back, {} different; {:.2} % of them are exactly the true photons, the rest is the detector's noise",
        say::count(proof.compared),
        say::count(proof.different),
        proof.equal_to_truth * 100.0
    ));
    if buffer < BUFFER_PLENTY_BYTES {
        let ms = buffer as f64 / 1.15e9 * 1e3;
        say::to_stdout(&format!(
            "limit     a real module at 1.1 kHz fills this receive buffer in {ms:.1} ms; for real runs: sudo sysctl -w net.core.rmem_max=268435456"
        ));
    }
    let dir = args.dir.display();
    let verdict =
        if exit == Exit::Complete { "nothing lost, the ledger balances, every pixel is right" } else { "NOT as it should be" };
    say::to_stdout(&format!(
        "result    {verdict}\n\nnext      konkordia inspect {dir}/demo_master.h5 --image 0\n          konkordia check {dir}/demo_master.h5\n          \
         konkordia receive {dir}/demo.toml     (and in another terminal: konkordia simulate jungfrau --to 127.0.0.1:50010 --rate 100 --images {})\n          \
         konkordia config init",
        args.images
    ));
}
