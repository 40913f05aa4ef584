//! The command line.

use crate::bench::args::{BenchDiskArgs, BenchIdleArgs, BenchRooflineArgs, BenchStreamArgs};
use crate::calibration::verbs::args::CalibrationCommand;
use crate::failure::EXIT_CODES;
use crate::log::{LogFormat, LogLevel};
use crate::pedestal::args::PedestalArgs;
use crate::serve::client::args::{ArmArgs, TargetArgs, WaitArgs};
use crate::serve::security::verb::TokenCommand;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

/// Data acquisition for X-ray pixel detectors: packets in, photon images out, nothing unaccounted.
#[derive(Debug, Parser)]
#[command(
    name = "konkordia",
    version,
    before_help = EXAMPLES,
    after_help = EXIT_CODES,
    arg_required_else_help = true,
    help_template = "{about}\n\n{before-help}{usage-heading} {usage}\n\n{all-args}{after-help}\n"
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "Examples:
  konkordia demo
  konkordia inspect demo-out/demo_master.h5 --image 7 --png image.png
  konkordia config init run.toml";

const TEMPLATE: &str = "{about}\n\n{before-help}{usage-heading} {usage}\n\n{all-args}{after-help}\n";

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Runs the service with a simulated JUNGFRAU, drives it over HTTP, and checks every pixel of the file.
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia demo
  konkordia demo --keep-serving
  konkordia demo --images 2000 --dir /tmp/demo --json | jq .rates")]
    Demo(DemoArgs),
    /// Sends the packets of a detector: synthetic, or from frames on disk; with faults if asked for.
    #[command(subcommand, help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia simulate jungfrau --to 127.0.0.1:50010 --rate 1000 --images 10000
  konkordia simulate jungfrau --to 127.0.0.1:50010 --raw raw_00.u16 raw_01.u16 --loss 0.01 --seed 7
  konkordia simulate eiger --to 127.0.0.1:50020 --raw 50020.dat 50021.dat 50022.dat 50023.dat --rate 10")]
    Simulate(SimulateDetector),
    /// Sends whole images as messages over ZeroMQ, as a detector unit does: rate, size, compression and content as asked for.
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia stream --to tcp://127.0.0.1:9999 --size 20k --rate 1000 --images 10000
  konkordia stream --protocol stream2 --channels 3 --compression bslz4 --to tcp://*:31001
  konkordia stream --to tcp://*:5000 --upstreams 2 --shuffle 7 --filename test/run_{}.h5 --series 3")]
    Stream(crate::traffic::args::StreamArgs),
    /// Keeps messages from ZeroMQ in a file, byte by byte, with the times at which they came.
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia record tcp://detector:9999 -o run01.zmsg
  konkordia record tcp://detector:31001 -o one.zmsg --messages 12 --json
  konkordia record tcp://pc1:30001 tcp://pc1:30002 --kind sub --seconds 60 -o jungfrau.zmsg")]
    Record(crate::traffic::args::RecordArgs),
    /// Sends the messages of a capture again, at the pace at which they came, faster, or at once.
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia replay run01.zmsg --to tcp://*:9999
  konkordia replay run01.zmsg --to tcp://*:9999 --speed 10 --repeat 3
  konkordia replay run01.zmsg --to tcp://receiver:9999 --connect --as-fast-as-possible")]
    Replay(crate::traffic::args::ReplayArgs),
    /// One run: arms, takes images until the planned number, a stop or a silence, closes the file, prints the run report.
    #[command(help_template = TEMPLATE, before_help = "Examples:
  konkordia receive run.toml
  konkordia receive run.toml --images 500 --prefix run02 --json > report.ndjson
  konkordia receive run.toml --quiet || echo \"exit code $?\"", after_help = RECEIVE_HELP)]
    Receive(ReceiveArgs),
    /// Runs detectors until told to stop, driven over HTTP: arm, start, stop, again and again.
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia serve -c run.toml
  konkordia serve -c beamline.toml --listen 127.0.0.1:9000 --json
  konkordia serve -c detectors.yaml --detector eiger --data-root /data")]
    Serve(ServeArgs),
    /// Says how the detectors of a running service are.
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia status
  konkordia status --detector eiger --json
  konkordia status --url http://bl01:8090")]
    Status(TargetArgs),
    /// Shows what happens in a running service: events, rates, progress.
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia watch
  konkordia watch --detector eiger
  konkordia watch --json | jq .message")]
    Watch(TargetArgs),
    /// Makes a detector ready: answers when it is, or why not.
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia arm
  konkordia arm --images 1000 --prefix lyso/run03
  konkordia arm --prefix run04 --set energy_kev=12.4 --set sample_name=lysozyme --wait")]
    Arm(ArmArgs),
    /// Arms if need be, and begins the clock for the first data.
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia start
  konkordia start --images 1000 --prefix run05 --wait
  konkordia start --detector eiger --no-write")]
    Start(ArmArgs),
    /// Tells the detector to expose, if the configuration says how.
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia trigger
  konkordia trigger --detector eiger
  konkordia trigger --json")]
    Trigger(TargetArgs),
    /// Ends the run; everything that has come is kept.
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia stop
  konkordia stop --detector eiger
  konkordia stop && konkordia wait")]
    Stop(TargetArgs),
    /// Ends the run at once, in whatever state; what was written is closed.
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia cancel
  konkordia cancel --detector eiger
  konkordia cancel --json")]
    Cancel(TargetArgs),
    /// Waits until nothing is armed or running; the exit code says how the run was.
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia wait
  konkordia wait --timeout 60
  konkordia wait --detector eiger || echo \"exit code $?\"")]
    Wait(WaitArgs),
    /// Makes pedestals from dark frames, live or from files: mean, noise and a mask with reasons, into a calibration file.
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia pedestal run.toml --stage all -o cal.h5 --gain gains_m0.bin
  konkordia pedestal forced_g1_master_0.json --stage g1 --into cal.h5
  konkordia pedestal --gain gains.h5 --into cal.h5")]
    Pedestal(PedestalArgs),
    /// Shows, compares and draws calibration files, and makes them from planes of other programs.
    #[command(subcommand, help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia calibration show cal.h5
  konkordia calibration compare monday.h5 tuesday.h5
  konkordia calibration plot cal.h5 --dir pictures")]
    Calibration(CalibrationCommand),
    /// Says what is in a file: images, shape, type, compression, geometry, calibration, ledger, statistics of one image.
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia inspect run01_master.h5
  konkordia inspect run01_master.h5 --image 0
  konkordia inspect run01_master.h5 --json | jq .ledger")]
    Inspect(InspectArgs),
    /// Converts frames from files: raw runs of the slsReceiver or of SwissFEL, records with headers, plain words.
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia convert run_master_0.json -o out/run01 --calibration calibration.h5 --energy-kev 12.4
  konkordia convert run_master_0.json -o out/run01 --resume --calibration calibration.h5 --energy-kev 12.4
  konkordia convert raw_00.u16 raw_01.u16 -o out/words --dtype raw --verify")]
    Convert(crate::convert::args::ConvertArgs),
    /// Writes files again with other compression, pixels untouched: of this program, of DECTRIS detectors, other NXmx.
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia repack run01_master.h5 -o archive/ --compression bszstd --verify
  konkordia repack /dev/shm/run01_master.h5 -o /data/run01 --compression bslz4 --verify --delete-source
  konkordia repack run01_master.h5 -o travel/run01 --compression sz3 --error-bound 2")]
    Repack(crate::repack::args::RepackArgs),
    /// Is a file valid? Exit code 0 if so, also when it says that not every image is complete; 1 with the reasons if not.
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia check run01_master.h5
  konkordia check run01_master.h5 --json
  konkordia check run01_data_000001.h5")]
    Check(FileArgs),
    /// Makes a file that a killed run left behind readable again.
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia repair run01_master.h5
  konkordia repair run01_master.h5 && konkordia check run01_master.h5
  konkordia repair run01_data_000003.h5 --json")]
    Repair(FileArgs),
    /// Makes, lists and removes the tokens that programs and people show to the service.
    #[command(subcommand, help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia token create alice --role operate --file tokens
  konkordia token list --file tokens
  konkordia token remove alice --file tokens")]
    Token(TokenCommand),
    /// Writes, checks or describes the configuration.
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia config init run.toml
  konkordia config check run.toml
  konkordia config schema > konkordia.schema.json")]
    Config(ConfigArgs),
    /// Measures this machine.
    #[command(subcommand, help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia bench kernels
  konkordia bench pipeline --seconds 20 --dir /dev/shm
  konkordia bench pipeline --rate 1100 --seconds 60 --delete-finished --json")]
    Bench(BenchCommand),
    /// Prints the completion script of a shell.
    #[command(help_template = TEMPLATE, before_help = "Examples:
  konkordia completion bash > ~/.local/share/bash-completion/completions/konkordia
  konkordia completion zsh > ~/.zfunc/_konkordia
  konkordia completion fish > ~/.config/fish/completions/konkordia.fish")]
    Completion {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Prints the version and what the program was built for.
    Version {
        /// For programs.
        #[arg(long)]
        json: bool,
    },
}

const RECEIVE_HELP: &str = "Ctrl-C or SIGTERM ends the run and closes the file (exit code 130); a second one ends the program at once, and \
`konkordia repair` then completes the file.\nA run with a planned number of images that stalls before it ends with 7, a run that lost data with 1.\n\
Exit codes: 0 complete, 1 data incomplete, 2 usage, 3 configuration, 5 wrong state, 6 I/O, 7 timeout, 70 bug, 130 interrupted";

/// `konkordia demo`
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Images to send
    #[arg(long, default_value_t = 500, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub images: u64,
    /// Folder of the files; is made if it does not exist, and an older demonstration in it is replaced
    #[arg(long, default_value = "demo-out", value_name = "D")]
    pub dir: PathBuf,
    /// Everything random follows from it
    #[arg(long, default_value_t = 1, value_name = "S")]
    pub seed: u64,
    /// Address and port of the service; port 0 = any that is free [default: 127.0.0.1:8090, or any port if that is taken]
    #[arg(long, value_name = "ADDRESS:PORT", help_heading = "Service")]
    pub listen: Option<std::net::SocketAddr>,
    /// Leave the service running after the proof, until Ctrl-C; the simulated detector answers every start with a series
    #[arg(long, help_heading = "Service")]
    pub keep_serving: bool,
    /// With --keep-serving: begin a series by itself when nothing was going on for so long
    #[arg(long, value_name = "S", requires = "keep_serving", help_heading = "Service", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub again_every: Option<u64>,
    /// With --keep-serving: images per second of these series
    #[arg(long, value_name = "HZ", requires = "keep_serving", help_heading = "Service", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=2000))]
    pub rate: u32,
    /// For programs: the result as JSON on stdout
    #[arg(long)]
    pub json: bool,
}

/// `konkordia simulate`
#[derive(Debug, Subcommand)]
pub enum SimulateDetector {
    /// JUNGFRAU: 512 x 1024 pixels per module, 1 or 2 UDP interfaces
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia simulate jungfrau --to 127.0.0.1:50010 --rate 1000 --images 10000
  konkordia simulate jungfrau --to 127.0.0.1:50010 --rate 500 --images 1000 --dark --force-gain 1
  konkordia simulate jungfrau --to 127.0.0.1:50010 --write-calibration calibration --write-config run.toml")]
    Jungfrau(JungfrauArgs),
    /// EIGER: four ports of 256 x 512 pixels per module, 4 to 32 bit
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia simulate eiger --to 127.0.0.1:50020 --bits 16 --rate 500 --images 1000
  konkordia simulate eiger --to 127.0.0.1:50020 --raw 50020.dat 50021.dat 50022.dat 50023.dat --rate 10
  konkordia simulate eiger --to 127.0.0.1:50020 --bits 16 --ten-giga false --rows 128 --loss 0.01 --seed 7")]
    Eiger(EigerArgs),
}

/// What both detectors take.
#[derive(Debug, Args)]
pub struct SendArgs {
    /// Where to send: address and port of the first stream; the others follow on consecutive ports
    #[arg(long, value_name = "HOST:PORT", help_heading = "What to send")]
    pub to: String,
    /// Images to send [default: as many as --raw holds, otherwise 100]
    #[arg(long, value_name = "N", help_heading = "What to send", value_parser = clap::value_parser!(u64).range(1..))]
    pub images: Option<u64>,
    /// Images per second; 0 = as fast as possible
    #[arg(long, value_name = "HZ", default_value_t = 0.0, help_heading = "What to send")]
    pub rate: f64,
    /// Modules
    #[arg(long, value_name = "M", default_value_t = 1, help_heading = "What to send", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub modules: u32,
    /// Partial readout: rows of a JUNGFRAU module (a multiple of 8), or of each EIGER half module [default: all]
    #[arg(long, value_name = "ROWS", help_heading = "What to send")]
    pub rows: Option<u16>,
    /// Frame number of the first image [default: 1, or that of the dump]
    #[arg(long, value_name = "N", help_heading = "What to send")]
    pub first_frame: Option<u64>,
    /// Lose packets with this probability
    #[arg(long, value_name = "P", default_value_t = 0.0, help_heading = "Faults", value_parser = probability)]
    pub loss: f64,
    /// Send packets twice
    #[arg(long, value_name = "P", default_value_t = 0.0, help_heading = "Faults", value_parser = probability)]
    pub duplicate: f64,
    /// Delay packets by up to 16 others
    #[arg(long, value_name = "P", default_value_t = 0.0, help_heading = "Faults", value_parser = probability)]
    pub reorder: f64,
    /// Flip bits in the type and version of packet headers
    #[arg(long, value_name = "P", default_value_t = 0.0, help_heading = "Faults", value_parser = probability)]
    pub corrupt: f64,
    /// Cut packets short
    #[arg(long, value_name = "P", default_value_t = 0.0, help_heading = "Faults", value_parser = probability)]
    pub truncate: f64,
    /// Let bursts of lost packets begin, 20 packets long on average
    #[arg(long, value_name = "P", default_value_t = 0.0, help_heading = "Faults", value_parser = probability)]
    pub burst: f64,
    /// Mix in datagrams of other senders
    #[arg(long, value_name = "P", default_value_t = 0.0, help_heading = "Faults", value_parser = probability)]
    pub foreign: f64,
    /// From this image on count frames from the first again, as a restarted detector does
    #[arg(long, value_name = "IMAGE", help_heading = "Faults")]
    pub restart_at: Option<u64>,
    /// Streams that send nothing
    #[arg(long, value_name = "STREAM", help_heading = "Faults")]
    pub silent: Vec<usize>,
    /// Everything random follows from it
    #[arg(long, value_name = "S", default_value_t = 1, help_heading = "Faults")]
    pub seed: u64,
    /// For programs: what was sent as JSON on stdout
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// No progress
    #[arg(long, short, help_heading = "Output")]
    pub quiet: bool,
}

impl SendArgs {
    /// True if packets must go through the fault link.
    pub fn has_faults(&self) -> bool {
        let p = [self.loss, self.duplicate, self.reorder, self.corrupt, self.truncate, self.burst, self.foreign];
        p.iter().any(|p| *p > 0.0) || self.restart_at.is_some()
    }
}

fn probability(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(p) if (0.0..=1.0).contains(&p) => Ok(p),
        Ok(p) if p <= 100.0 && p > 1.0 => Err(format!("{p} looks like percent; write {}", p / 100.0)),
        _ => Err("a probability from 0 to 1 is expected".into()),
    }
}

/// `konkordia simulate jungfrau`
#[derive(Debug, Args)]
pub struct JungfrauArgs {
    /// What both detectors take.
    #[command(flatten)]
    pub send: SendArgs,
    /// Files of raw frames, uint16, modules x 512 x 1024 each; sent in a loop
    #[arg(long, value_name = "FILE", num_args = 1.., help_heading = "What to send")]
    pub raw: Vec<PathBuf>,
    /// UDP interfaces per module
    #[arg(long, value_name = "1|2", default_value_t = 1, help_heading = "What to send", value_parser = clap::value_parser!(u8).range(1..=2))]
    pub interfaces: u8,
    /// What the synthetic detector sees and does.
    #[command(flatten)]
    pub synthetic: SyntheticArgs,
    /// Write the calibration of the synthetic detector into this folder, and end without sending
    #[arg(long, value_name = "DIR", help_heading = "What to write")]
    pub write_calibration: Option<PathBuf>,
    /// Write also a configuration that receives this detector with that calibration
    #[arg(long, value_name = "FILE", help_heading = "What to write", requires = "write_calibration")]
    pub write_config: Option<PathBuf>,
}

/// How dark frames of the synthetic JUNGFRAU are taken, and how its pedestals move.
#[derive(Clone, Copy, Debug, Args)]
pub struct SyntheticArgs {
    /// Closed shutter: every frame is new, nothing is sent twice
    #[arg(long, help_heading = "Synthetic detector", conflicts_with = "raw")]
    pub dark: bool,
    /// Dark frames with the gain forced to this stage
    #[arg(long, value_name = "1|2", help_heading = "Synthetic detector", requires = "dark", value_parser = clap::value_parser!(u8).range(1..=2))]
    pub force_gain: Option<u8>,
    /// Dark frames of the high gain mode (HG0)
    #[arg(long, help_heading = "Synthetic detector", requires = "dark", conflicts_with = "force_gain")]
    pub high_gain: bool,
    /// Stray photons in dark frames, per pixel and frame
    #[arg(long, value_name = "MEAN", default_value_t = 0.0, help_heading = "Synthetic detector", requires = "dark", value_parser = probability)]
    pub stray: f64,
    /// Storage cells that take turns, each with pedestals of its own
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Synthetic detector", conflicts_with = "raw", value_parser = clap::value_parser!(u8).range(1..=16))]
    pub storage_cells: u8,
    /// Pedestals of G0 rise by so many ADU ...
    #[arg(long, value_name = "ADU", default_value_t = 0.0, help_heading = "Synthetic detector", conflicts_with = "raw")]
    pub drift_adu: f64,
    /// ... within this time (the time constant where the drift is exponential); needs --rate
    #[arg(long, value_name = "S", default_value_t = 3.0, help_heading = "Synthetic detector")]
    pub drift_s: f64,
    /// How they rise
    #[arg(long, value_enum, default_value_t = DriftChoice::Linear, help_heading = "Synthetic detector")]
    pub drift_shape: DriftChoice,
}

/// `--drift-shape`
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DriftChoice {
    /// Evenly, then no more
    Linear,
    /// Fast at first, towards a limit
    Exponential,
}

/// `konkordia simulate eiger`
#[derive(Debug, Args)]
pub struct EigerArgs {
    /// What both detectors take.
    #[command(flatten)]
    pub send: SendArgs,
    /// Dumps of packets, one file per port: 8 bytes of length, then the datagram; sent in a loop
    #[arg(long, value_name = "FILE", num_args = 1.., help_heading = "What to send")]
    pub raw: Vec<PathBuf>,
    /// Bits of a pixel of the synthetic detector: 4, 8, 12, 16 or 32
    #[arg(long, value_name = "BITS", default_value_t = 16, help_heading = "What to send")]
    pub bits: u8,
    /// Send as over 10 GbE, in packets of 4096 bytes; false = over 1 GbE, in packets of 1024 bytes
    #[arg(long, value_name = "true|false", default_value_t = true, action = clap::ArgAction::Set, help_heading = "What to send")]
    pub ten_giga: bool,
}

/// `konkordia receive`
#[derive(Debug, Args)]
pub struct ReceiveArgs {
    /// Configuration of the run
    pub config: PathBuf,
    /// Images of the run; 0 = until stopped [default: as configured]
    #[arg(long, value_name = "N")]
    pub images: Option<u64>,
    /// First part of the file names, may have folders below the output folder [default: as configured]
    #[arg(long, value_name = "NAME")]
    pub prefix: Option<String>,
    /// For programs: events as JSON, one a line, on stdout
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// No progress
    #[arg(long, short, help_heading = "Output")]
    pub quiet: bool,
}

/// `konkordia serve`
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Configuration: of one detector, of several, or the YAML of the MAX IV receiver
    #[arg(long, short, value_name = "FILE")]
    pub config: PathBuf,
    /// Address and port of the HTTP interface; port 0 = any that is free [default: service.listen]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<std::net::SocketAddr>,
    /// Detector of the YAML
    #[arg(long, value_name = "NAME", help_heading = "With the YAML of the MAX IV receiver")]
    pub detector: Option<String>,
    /// Folder outside of which nothing is written [default: the current one]
    #[arg(long, value_name = "DIR", help_heading = "With the YAML of the MAX IV receiver")]
    pub data_root: Option<PathBuf>,
    /// Address on which its HTTP interface and its stream listen
    #[arg(
        long = "address",
        value_name = "ADDRESS",
        default_value = "127.0.0.1",
        help_heading = "With the YAML of the MAX IV receiver"
    )]
    pub compat_address: String,
    /// Serve /last_frame, which is a Python pickle
    #[arg(long = "last-frame-pickle", help_heading = "With the YAML of the MAX IV receiver")]
    pub pickle: bool,
    /// For programs: `ready` with the address as JSON on stdout
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// What is logged on stderr: this and everything graver
    #[arg(long, value_enum, default_value_t = LogLevel::Info, env = "KONKORDIA_LOG_LEVEL", help_heading = "Output")]
    pub log_level: LogLevel,
    /// How a line of the log looks
    #[arg(long, value_enum, default_value_t = LogFormat::Text, env = "KONKORDIA_LOG_FORMAT", help_heading = "Output")]
    pub log_format: LogFormat,
    /// As --log-level error
    #[arg(long, short, help_heading = "Output", conflicts_with = "log_level")]
    pub quiet: bool,
}

/// `konkordia inspect`
#[derive(Debug, Args)]
pub struct InspectArgs {
    /// A master or data file
    pub file: PathBuf,
    /// Statistics of this image, counted from 0
    #[arg(long, value_name = "N")]
    pub image: Option<u64>,
    /// Draw an image (--image, or the first one) with a logarithmic scale; grey: no measurement
    #[arg(long, value_name = "FILE.png")]
    pub png: Option<PathBuf>,
    /// For programs
    #[arg(long)]
    pub json: bool,
}

/// `konkordia check` and `konkordia repair`
#[derive(Debug, Args)]
pub struct FileArgs {
    /// A master or data file
    pub file: PathBuf,
    /// For programs
    #[arg(long)]
    pub json: bool,
}

/// `konkordia config`
#[derive(Debug, Args)]
pub struct ConfigArgs {
    /// What to do with it.
    #[command(subcommand)]
    pub action: ConfigAction,
}

/// `konkordia config ...`
#[derive(Debug, Subcommand)]
pub enum ConfigAction {
    /// Writes a commented example, to stdout or into a new file
    Init {
        /// The new file
        file: Option<PathBuf>,
    },
    /// Checks a configuration and prints the plan that follows from it
    Check {
        /// The configuration
        file: PathBuf,
        /// For programs
        #[arg(long)]
        json: bool,
    },
    /// Prints the description of the HTTP interface (OpenAPI)
    Openapi,
    /// Prints the JSON Schema of the configuration, for editors
    Schema {
        /// The reference table of the documentation instead
        #[arg(long)]
        markdown: bool,
    },
}

/// `konkordia bench`
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Conversion, bitshuffle, LZ4 and the fused kernel, against plain baselines, in GB/s of raw input per core
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia bench kernels
  konkordia bench kernels --seconds 0.1 --json
  konkordia bench kernels --raw raw_00.u16 raw_01.u16 --calibration calibration --energy-kev 12.4")]
    Kernels(BenchKernelsArgs),
    /// Simulator, loopback, conversion, file: the highest rate without loss
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia bench pipeline
  konkordia bench pipeline --modules 1 --rate 1100 --seconds 60
  konkordia bench pipeline --dir /data --seconds 20 --json")]
    Pipeline(BenchPipelineArgs),
    /// Bits per pixel against rounding from 1/8 to 8 photons, beside Table II of Leonarski et al. 2020
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia bench table2
  konkordia bench table2 --seconds 0.1 --json
  konkordia bench table2 --raw raw_00.u16 raw_01.u16 --calibration calibration --energy-kev 12.4")]
    Table2(BenchKernelsArgs),
    /// What a service of many detectors costs while nothing happens
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia bench idle
  konkordia bench idle --detectors 10 --seconds 5
  konkordia bench idle --json")]
    Idle(BenchIdleArgs),
    /// Whole images over ZeroMQ into a file or into nothing: images per second against their size, upstreams and threads
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia bench stream
  konkordia bench stream --sizes 20000 --repeats 3 --matrix-sizes
  konkordia bench stream --png stream.png")]
    Stream(BenchStreamArgs),
    /// Writing rate and bits per pixel of each codec for images of 4M, beside Table IV of Leonarski et al. 2020
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia bench table4
  konkordia bench table4 --seconds 0.1 --json
  konkordia bench table4 --raw raw_00.u16 raw_01.u16 --calibration calibration --seconds 2")]
    Table4(BenchKernelsArgs),
    /// HDF5 beside plain write: frames of 1k, 2k and 4k square as they are, and compressed against their noise
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia bench disk
  konkordia bench disk --dir /data --sync --mib 4096
  konkordia bench disk --sizes 512 --noise-bits 0 4 8 --repeats 3 --json")]
    Disk(BenchDiskArgs),
    /// Variants of the conversion between the speed of memory and that of arithmetic, as a table and a figure
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia bench roofline
  konkordia bench roofline --seconds 0.1
  konkordia bench roofline --png roofline.png --json")]
    Roofline(BenchRooflineArgs),
}

/// `konkordia bench kernels`
#[derive(Debug, Args)]
pub struct BenchKernelsArgs {
    /// Raw frames, uint16, 512 x 1024 each [default: the synthetic detector]
    #[arg(long, value_name = "FILE", num_args = 1.., requires = "calibration")]
    pub raw: Vec<PathBuf>,
    /// Folder with pedestal_g0.f32, pedestal_g1.f32, pedestal_g2.f32 and gain_adu_per_kev.f32
    #[arg(long, value_name = "DIR")]
    pub calibration: Option<PathBuf>,
    /// Photon energy of these frames
    #[arg(long, value_name = "KEV", default_value_t = 12.4)]
    pub energy_kev: f32,
    /// Time of each measurement
    #[arg(long, value_name = "S", default_value_t = 0.5)]
    pub seconds: f64,
    /// For programs
    #[arg(long)]
    pub json: bool,
}

/// Where the pixels of the pipeline bench come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BenchCompression {
    /// Bitshuffle and LZ4
    Bslz4,
    /// Plain pixels
    None,
}

/// `konkordia bench pipeline`
#[derive(Debug, Args)]
pub struct BenchPipelineArgs {
    /// Modules to try, one search each
    #[arg(long, value_name = "M", num_args = 1.., default_values_t = [1, 2])]
    pub modules: Vec<u32>,
    /// Only this rate instead of a search
    #[arg(long, value_name = "HZ")]
    pub rate: Option<f64>,
    /// Time of each attempt
    #[arg(long, value_name = "S", default_value_t = 4.0)]
    pub seconds: f64,
    /// Folder of the files [default: /dev/shm where it is, otherwise the folder for temporary files]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Delete data files as soon as they are complete, so that long runs fit
    #[arg(long)]
    pub delete_finished: bool,
    /// Raw frames, uint16, 512 x 1024 each [default: the synthetic detector]
    #[arg(long, value_name = "FILE", num_args = 1.., requires = "calibration")]
    pub raw: Vec<PathBuf>,
    /// Folder with the calibration of these frames
    #[arg(long, value_name = "DIR")]
    pub calibration: Option<PathBuf>,
    /// Photon energy of these frames
    #[arg(long, value_name = "KEV", default_value_t = 12.4)]
    pub energy_kev: f64,
    /// Compression
    #[arg(long, value_enum, default_value_t = BenchCompression::Bslz4)]
    pub compression: BenchCompression,
    /// Worker threads [default: processors that the streams leave, at least 1]
    #[arg(long, value_name = "N")]
    pub workers: Option<usize>,
    /// Receive buffer to ask of the kernel, per stream
    #[arg(long, value_name = "MIB", default_value_t = 256)]
    pub receive_buffer_mib: usize,
    /// Memory of the ring of images
    #[arg(long, value_name = "MIB", default_value_t = 512)]
    pub buffer_mib: u64,
    /// For programs
    #[arg(long)]
    pub json: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
        assert!(probability("2").unwrap_err().contains("write 0.02"));
        assert!(probability("-1").is_err() && probability("x").is_err());
        assert_eq!(probability("0.25"), Ok(0.25));
    }

    #[test]
    fn every_verb_shows_three_examples_first() {
        let command = Cli::command();
        let verbs = command.get_subcommands().filter(|c| c.get_name() != "version");
        for verb in verbs.flat_map(|v| std::iter::once(v).chain(v.get_subcommands().filter(|_| v.get_name() != "config"))) {
            let before = verb.get_before_help().map(ToString::to_string).unwrap_or_default();
            let examples: Vec<&str> = before.lines().skip(1).map(str::trim).collect();
            assert_eq!(examples.len(), 3, "{}", verb.get_name());
            for example in examples.iter().filter(|e| !e.contains(['|', '>', '&'])) {
                let parsed = Cli::try_parse_from(example.split(' '));
                assert!(parsed.is_ok(), "{example}: {}", parsed.unwrap_err());
            }
        }
    }
}
