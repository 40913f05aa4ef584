//! The command line.

use crate::bench::command::BenchCommand;
use crate::calibration_verbs::args::CalibrationCommand;
use crate::choice::DriftChoice;
use crate::files::args::{FileArgs, InspectArgs, RepairArgs};
use crate::help::TEMPLATE;
use crate::links_verb::LinksArgs;
use crate::log::{LogFormat, LogLevel};
use crate::pedestal::args::PedestalArgs;
use crate::pipelines::args::PipelinesCommand;
use crate::serve::client::args::{ArmArgs, DrainArgs, TargetArgs, WaitArgs};
use crate::simulate::fault_args::{FaultArgs, probability};
use crate::simulate::roce_args::RoceArgs;
use crate::simulate::sample::SampleArgs;
use crate::token_verb::TokenCommand;
use clap::{Args, Parser, Subcommand, ValueEnum};
use konkordia_core::failure::EXIT_CODES;
use std::io::IsTerminal;
use std::path::PathBuf;

/// Data acquisition for X-ray pixel detectors: packets or messages in, NeXus files and streams out, every loss counted.
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

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Runs the service with a simulated JUNGFRAU, drives it over HTTP, and checks every pixel of the file.
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia demo
  konkordia demo --again-every 10
  konkordia demo --images 2000 --dir /tmp/demo --json | jq .rates")]
    Demo(DemoArgs),
    /// Simulates a detector: sends its UDP packets, synthetic or from frames on disk, with faults on request.
    #[command(subcommand, help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia simulate jungfrau --to 127.0.0.1:50010 --rate 1000 --images 10000
  konkordia simulate jungfrau --to 127.0.0.1:50010 --raw raw_00.u16 raw_01.u16 --loss 0.01 --seed 7
  konkordia simulate eiger --to 127.0.0.1:50020 --raw 50020.dat 50021.dat 50022.dat 50023.dat --rate 10")]
    Simulate(SimulateDetector),
    /// Sends whole images as ZeroMQ messages, as a detector unit does, with the given rate, size, compression and
    /// content.
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia stream --to tcp://127.0.0.1:9999 --size 20k --rate 1000 --images 10000
  konkordia stream --protocol stream2 --channels 3 --compression bslz4 --to tcp://*:31001
  konkordia stream --to tcp://*:5000 --upstreams 2 --shuffle 7 --filename test/run_{}.h5 --series 3")]
    Stream(crate::stream_generator::args::StreamArgs),
    /// Records ZeroMQ messages in a file, byte by byte, with their arrival times.
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia record tcp://detector:9999 -o run01.zmsg
  konkordia record tcp://detector:31001 -o one.zmsg --messages 12 --json
  konkordia record tcp://pc1:30001 tcp://pc1:30002 --kind sub --seconds 60 -o jungfrau.zmsg")]
    Record(crate::stream_generator::args::RecordArgs),
    /// Sends recorded messages again: at the recorded pace, faster, or as fast as possible.
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia replay run01.zmsg --to tcp://*:9999
  konkordia replay run01.zmsg --to tcp://*:9999 --speed 10 --repeat 3
  konkordia replay run01.zmsg --to tcp://receiver:9999 --connect --as-fast-as-possible")]
    Replay(crate::stream_generator::args::ReplayArgs),
    /// Receives one run: until the planned number of images, a stop or a silence; then closes the file and prints a
    /// report.
    #[command(help_template = TEMPLATE, before_help = "Examples:
  konkordia receive run.toml
  konkordia receive run.toml --images 500 --prefix run02 --json > report.ndjson
  konkordia receive run.toml --quiet || echo \"exit code $?\"", after_help = RECEIVE_HELP)]
    Receive(ReceiveArgs),
    /// Runs the service: one or more detectors, driven over HTTP (arm, start, stop), until it is stopped.
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia serve -c run.toml
  konkordia serve -c beamline.toml --listen 127.0.0.1:9000 --json
  konkordia serve -c detectors.yaml --detector eiger --data-root /data")]
    Serve(ServeArgs),
    /// Shows the state of the detectors of a running service.
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
    /// Prepares a run; answers when everything is ready, or says why not.
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia arm
  konkordia arm --images 1000 --prefix lyso/run03
  konkordia arm --prefix run04 --set energy_kev=12.4 --set sample_name=lysozyme --wait")]
    Arm(ArmArgs),
    /// Starts a run (arms first if that was not done): from now on, data must arrive within start_timeout_s.
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia start
  konkordia start --images 1000 --prefix run05 --wait
  konkordia start --detector eiger --no-write")]
    Start(ArmArgs),
    /// Makes the detector expose, with the program that the configuration names (control.on_trigger).
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia trigger
  konkordia trigger --detector eiger
  konkordia trigger --json")]
    Trigger(TargetArgs),
    /// Ends the run; everything that has arrived is kept.
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia stop
  konkordia stop --detector eiger
  konkordia stop && konkordia wait")]
    Stop(TargetArgs),
    /// Closes the file that stays open behind its runs (`arm --append`).
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia close
  konkordia close --detector eiger
  konkordia arm --prefix scan7 --append --images 1 --wait && konkordia close")]
    Close(TargetArgs),
    /// Ends the run at once, in any state; the files written so far are closed.
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia cancel
  konkordia cancel --detector eiger
  konkordia cancel --json")]
    Cancel(TargetArgs),
    /// Waits until nothing is armed or running; the exit code says how the run ended.
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia wait
  konkordia wait --timeout 60
  konkordia wait --detector eiger || echo \"exit code $?\"")]
    Wait(WaitArgs),
    /// Lets no further run begin, and waits for the end of those in progress: before a service is replaced.
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia drain
  konkordia drain --timeout 3600
  konkordia drain --no-wait --json")]
    Drain(DrainArgs),
    /// Starts and stops the pipelines of a detector in a Kubernetes cluster: shows and changes how many run.
    #[command(subcommand, help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia pipelines list --pipelines azint,spots
  konkordia pipelines up azint --replicas 20
  konkordia pipelines down azint --when-idle")]
    Pipelines(PipelinesCommand),
    /// Makes a calibration file from dark frames, live or from files: pedestal and noise of each pixel, and a mask with
    /// reasons.
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia pedestal run.toml --stage all -o cal.h5 --gain gains_m0.bin
  konkordia pedestal forced_g1_master_0.json --stage g1 --into cal.h5
  konkordia pedestal --gain gains.h5 --into cal.h5")]
    Pedestal(PedestalArgs),
    /// Shows, compares and plots calibration files, or makes one from pedestals and gains of other programs.
    #[command(subcommand, help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia calibration show cal.h5
  konkordia calibration compare monday.h5 tuesday.h5
  konkordia calibration plot cal.h5 --dir pictures")]
    Calibration(CalibrationCommand),
    /// Shows what is in a file: images, shape, type, compression, geometry, calibration, ledger, statistics of one
    /// image.
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia inspect run01_master.h5
  konkordia inspect run01_master.h5 --geom run01.geom
  konkordia inspect run01_master.h5 --json | jq .ledger")]
    Inspect(InspectArgs),
    /// Converts raw frames from files: runs of the slsReceiver or of SwissFEL, records with headers, plain 16-bit
    /// words.
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia convert run_master_0.json -o out/run01 --calibration calibration.h5 --energy-kev 12.4
  konkordia convert run_master_0.json -o out/run01 --resume --calibration calibration.h5 --energy-kev 12.4
  konkordia convert raw_00.u16 raw_01.u16 -o out/words --dtype raw --verify")]
    Convert(crate::convert::args::ConvertArgs),
    /// Imports a series of CBF, TIFF, EDF, SPE or raw files, with the numbers of a table if there is one, into one
    /// NeXus file.
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia import thau_*.cbf -o out/thau --verify
  konkordia import tomo/ -o out/tomo --mapping tomo.toml --table scan.csv --compression bszstd
  konkordia import /ramdisk/p1 -o out/p1 --watch --images 3600")]
    Import(crate::exchange::args::ImportArgs),
    /// Exports images as CBF, TIFF or EDF files, for programs that do not read NeXus.
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia export run01_master.h5 -o cbf/run01 --format cbf --verify
  konkordia export run01_master.h5 -o run01 --format tiff --one-file --images 0:99
  konkordia export run01_master.h5 -o edf/run01 --format edf --resume")]
    Export(crate::exchange::args::ExportArgs),
    /// Looks for Bragg spots on the images of a file, and makes powder profiles and sums of regions
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia analyse run01_master.h5
  konkordia analyse run01_master.h5 --recipe recipe.toml --output results.h5
  konkordia analyse powder.cbf --poni powder.poni --json")]
    Analyse(crate::analyse::args::AnalyseArgs),
    /// Gives lines of numbers a score by a model, as a recipe asks it: `{"id": 1, "inputs": [12, 3.5]}` on standard
    /// input gives `{"id": 1, "score": 0.9}`.
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia model hits.onnx < requests.jsonl
  konkordia model hits.onnx --output score < requests.jsonl | jq .score
  echo '{\"id\": 1, \"inputs\": [12, 3.5]}' | konkordia model hits.onnx")]
    Model(crate::model::args::ModelArgs),
    /// Tries rules of a veto on the results in a file.
    #[command(subcommand, help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia veto replay run01_master.h5
  konkordia veto replay run01_master.h5 --rule 'spots<10'
  konkordia veto replay results.h5 --rule 'is_hit==0' --json")]
    Veto(crate::veto::args::VetoCommand),
    /// Compares the trigger numbers of the images of several detectors
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia coincide left_master.h5 right_master.h5
  konkordia coincide jungfrau_master.h5 eiger_master.h5 --by pulse_id
  konkordia coincide a_master.h5 b_master.h5 c_master.h5 --json")]
    Coincide(crate::coincide::args::CoincideArgs),
    /// Joins streams of several detectors and numbers of other devices by trigger number, while they come
    Join(crate::join::args::JoinArgs),
    /// Builds trains of AGIPD, DSSC or LPD from the packets of their modules: files for EXtra-data, karabo-bridge, UDP.
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia trains --listen 0.0.0.0:8000 --files /data/raw/r0001 --bridge tcp://*:45000
  konkordia trains --listen 0.0.0.0:8000 --model agipd --images-max 352 --bridge-push tcp://*:45001
  konkordia trains --listen 0.0.0.0:8000 --ttp 10.0.0.2:8000 --ttp 10.0.0.3:8000 --trains 600 --json")]
    Trains(crate::trains::args::TrainsArgs),
    /// Writes the files of runs that are received on another host, and compares what came with what was sent.
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia writer --listen 0.0.0.0:9400 --folder /data/raw
  konkordia writer --listen 10.0.0.2:9400 --folder /data/raw --link libfabric --provider tcp --json
  konkordia writer --listen 127.0.0.1:9400 --runs 1 --overwrite")]
    Writer(crate::writer::args::WriterArgs),
    /// Stages of work on images in processes of their own, on one or more hosts.
    #[command(subcommand, help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia graph run graph.toml
  konkordia graph run graph.toml --host node2
  konkordia graph status graph.toml --json")]
    Graph(crate::graph::args::GraphCommand),
    /// Recompresses files of Konkordia, DECTRIS detectors and other NXmx; pixels stay, except with sz3 and spots.
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia repack run01_master.h5 -o archive/ --compression bszstd --verify
  konkordia repack run01_master.h5 -o tape/ --layout split
  konkordia repack run01_master.h5 -o travel/run01 --compression spots --background-sigma 1 --verify")]
    Repack(crate::repack_args::RepackArgs),
    /// Makes a bag of a folder for ten years: packed again and compared, a sum for each file and each image, where
    /// everything comes from. Also checks and restores bags.
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia archive runs/ -o lyso-2026.bag --license CC-BY-4.0 --keep-until 2036-12-31
  konkordia archive --check lyso-2026.bag
  konkordia archive --restore lyso-2026.bag -o runs")]
    Archive(crate::archive_verb::args::ArchiveArgs),
    /// Checks a file. Exit code 0: it is valid, even if images in it are incomplete; 1: it is not, with the reasons.
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia check run01_master.h5
  konkordia check run01_data_000001.h5 --json
  konkordia check run01.meta.h5 --structure")]
    Check(FileArgs),
    /// Makes a file that a killed run left behind readable again, or moves what it left in a spool.
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia repair run01_master.h5 && konkordia check run01_master.h5
  konkordia repair run01_data_000003.h5 --json
  konkordia repair --spool /dev/shm/konkordia")]
    Repair(RepairArgs),
    /// Creates, lists and removes the access tokens of the service.
    #[command(subcommand, help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia token create alice --role operate --file tokens
  konkordia token list --file tokens
  konkordia token remove alice --file tokens")]
    Token(TokenCommand),
    /// Writes an example configuration, checks a configuration, or prints its schema.
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia config init run.toml
  konkordia config check run.toml
  konkordia config schema > konkordia.schema.json")]
    Config(ConfigArgs),
    /// Programs that turn headers of packets into addresses, as PSI's Ethernet to PCIe bridge does.
    #[command(subcommand, help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia bridge check mine.toml
  konkordia bridge show eiger-16bit
  konkordia bridge run jungfrau-1 --store /dev/shm/frames --frames 100")]
    Bridge(crate::bridge::args::BridgeCommand),
    /// Takes frames that a card (FPGA) writes into memory of this host, compresses them and writes a file.
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia card -o out/run01 --address 10.1.2.3 --calibration cal.h5 --energy-kev 12.4 --images 1000
  konkordia card -o out/run02 --address 10.1.2.3 --calibration cal/ --energy-kev 12.4 --program jungfrau-2 --pixel uint16
  konkordia card -o out/run03 --address fd00::2 --config run.toml --first-frame 4711 --silence 5 --json")]
    Card(crate::card::args::CardArgs),
    /// Modules that write into the memory of receivers, as in ESRF's RASHPA, and the manager that sets them up.
    #[command(subcommand, help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia rashpa receiver --id 0 --listen 127.0.0.1:7200 --check 1
  konkordia rashpa module --id 0 --listen 127.0.0.1:7100 --once
  konkordia rashpa manager system.toml --json")]
    Rashpa(crate::rashpa::args::RashpaCommand),
    /// Measures the speed of this machine.
    #[command(subcommand, help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia bench kernels
  konkordia bench pipeline --seconds 20 --dir /dev/shm
  konkordia bench pipeline --rate 1100 --seconds 60 --delete-finished --json")]
    Bench(BenchCommand),
    /// Looks whether this host is set up to receive without loss, or says where the packets of a run went.
    #[command(help_template = TEMPLATE, after_help = DOCTOR_HELP, before_help = "Examples:
  konkordia doctor --iface ens1f0 --dir /data
  konkordia doctor --config run.toml --fix-script > fix.sh
  konkordia doctor --run /data/run01_master.h5")]
    Doctor(crate::doctor::args::DoctorArgs),
    /// Shows which links to memory of other hosts there are: providers of libfabric, RDMA devices.
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia links
  konkordia links --json | jq '.libfabric[].provider'
  konkordia links | grep verbs")]
    Links(LinksArgs),
    /// Says what a detector needs of machines (cores, network, memory, disks, hosts), and models its pipeline.
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia size --detector jungfrau-10m --rate 2200
  konkordia size --detector jungfrau-4m --record pipeline.json --host-cores 32 --json
  konkordia size --detector jungfrau-10m --model --disk-stall-ms 500 --png model.png")]
    Size(crate::size::args::SizeArgs),
    /// Prints the script with which a shell completes commands.
    #[command(help_template = TEMPLATE, before_help = "Examples:
  konkordia completion bash > ~/.local/share/bash-completion/completions/konkordia
  konkordia completion zsh > ~/.zfunc/_konkordia
  konkordia completion fish > ~/.config/fish/completions/konkordia.fish")]
    Completion {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Prints the version; with --json also the platform.
    Version {
        /// For programs: the result as JSON on stdout
        #[arg(long)]
        json: bool,
    },
}

const RECEIVE_HELP: &str = "Ctrl-C or SIGTERM ends the run and closes the file (exit code 130); a second one ends the program at once, and \
`konkordia repair` then completes the file.\nA run with a planned number of images that stalls before it ends with 7, a run that lost data with 1.\n\
Exit codes: 0 complete, 1 data incomplete, 2 usage, 3 configuration, 5 wrong state, 6 I/O, 7 timeout, 70 bug, 130 interrupted";

const DOCTOR_HELP: &str = "It changes nothing and needs no rights. --fix-script prints what would mend the host: read it, then run it as root.\n\
Files read: /proc and /sys, the configuration (--config) or the master file of a run (--run). With a folder a file is written there and removed.\n\
Exit codes: 0 nothing fails (there may be hints), 1 at least one check fails or the run lost data, 2 usage, 3 configuration, 6 I/O, 70 bug";

/// What `konkordia demo` shows instead of a run of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ScenarioArg {
    /// Frames of a JUNGFRAU that are written by RoCEv2
    Roce,
    /// Packets of an EIGER, placed by a program of PSI's bridge
    Bridge,
    /// Trains of an LPD, built and written for EXtra-data
    Trains,
    /// Six modules that write into the memory of four receivers, as in ESRF's RASHPA, while a link is pulled
    Rashpa,
}

/// `konkordia demo`
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Images to send
    #[arg(long, default_value_t = 500, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub images: u64,
    /// Folder of the files; it is made if it does not exist, and the files of an older demonstration in it are replaced
    #[arg(long, default_value = "demo-out", value_name = "D")]
    pub dir: PathBuf,
    /// Seed of the random numbers
    #[arg(long, default_value_t = 1, value_name = "S")]
    pub seed: u64,
    /// Show another way of receiving: its commands, its account beside what the link did. All in software
    #[arg(long, value_enum, value_name = "NAME", conflicts_with_all = ["images", "listen", "keep_serving", "again_every", "rate"])]
    pub scenario: Option<ScenarioArg>,
    /// Address and port of the service; port 0 = any free port [default: 127.0.0.1:8090, or any free port if that is
    /// taken]
    #[arg(long, value_name = "ADDRESS:PORT", help_heading = "Service")]
    pub listen: Option<std::net::SocketAddr>,
    /// Keep the service running after the check, until Ctrl-C; the simulated detector answers every start with a series
    /// [default on a terminal]
    #[arg(long, help_heading = "Service")]
    pub keep_serving: bool,
    /// End after the check [default in scripts and with --json]
    #[arg(long, help_heading = "Service", conflicts_with_all = ["keep_serving", "again_every"])]
    pub once: bool,
    /// Keep the service running, and begin a series after so many seconds without one
    #[arg(long, value_name = "S", help_heading = "Service", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub again_every: Option<u64>,
    /// While it keeps serving: images per second of these series
    #[arg(long, value_name = "HZ", help_heading = "Service", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=2000))]
    pub rate: u32,
    /// For programs: the result as JSON on stdout
    #[arg(long)]
    pub json: bool,
}

impl DemoArgs {
    /// Whether the service runs on after the check. Somebody at a terminal wants to look at it; a script waits for the
    /// end.
    pub fn keeps_serving(&self) -> bool {
        let is_watched = || !self.json && std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
        self.keep_serving || self.again_every.is_some() || (!self.once && is_watched())
    }
}

/// `konkordia simulate`
#[derive(Debug, Subcommand)]
pub enum SimulateDetector {
    /// JUNGFRAU: 512 x 1024 pixels per module, 1 or 2 UDP interfaces
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia simulate jungfrau --to 127.0.0.1:50010 --rate 1000 --images 10000
  konkordia simulate jungfrau --to 127.0.0.1:50010 --preset jungfrau-4m --rate 100 --images 1000
  konkordia simulate jungfrau --to 127.0.0.1:50010 --write-calibration calibration --write-config run.toml")]
    Jungfrau(JungfrauArgs),
    /// EIGER: four ports of 256 x 512 pixels per module, 4 to 32 bit
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia simulate eiger --to 127.0.0.1:50020 --bits 16 --rate 500 --images 1000
  konkordia simulate eiger --to 127.0.0.1:50020 --raw 50020.dat 50021.dat 50022.dat 50023.dat --rate 10
  konkordia simulate eiger --to 127.0.0.1:50020 --bits 16 --ten-giga false --rows 128 --loss 0.01 --seed 7")]
    Eiger(EigerArgs),
    /// Modules of European XFEL: trains of random images, one UDP port per module
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia simulate xfel-train --to 127.0.0.1:50010
  konkordia simulate xfel-train --to 127.0.0.1:50010 --modules 2 --images-per-train 4 --trains 100
  konkordia simulate xfel-train --to 127.0.0.1:50010 --model agipd --trains 50 --loss 0.001 --seed 7")]
    XfelTrain(crate::simulate::xfel_args::XfelTrainArgs),
    /// FEMs of an EXCALIBUR: stripes of 256 x 2048 random counts of 12 bits, one UDP port per FEM
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia simulate excalibur --to 127.0.0.1:50010
  konkordia simulate excalibur --to 127.0.0.1:50010 --fems 6 --images 1000 --rate 50
  konkordia simulate excalibur --to 127.0.0.1:50010 --images 50 --loss 0.001 --seed 7")]
    Excalibur(ExcaliburArgs),
}

/// Options of JUNGFRAU and EIGER.
#[derive(Clone, Debug, Args)]
pub struct SendArgs {
    /// Where to send: address and port of the first stream; the others follow on consecutive ports
    #[arg(long, value_name = "HOST:PORT", help_heading = "What to send")]
    pub to: String,
    /// Images to send [default: as many as --raw holds, otherwise 100]
    #[arg(long, value_name = "N", help_heading = "What to send", value_parser = clap::value_parser!(u64).range(1..))]
    pub images: Option<u64>,
    /// Images per second; 0 = as fast as possible [default: that of a --preset, otherwise 0]
    #[arg(long, value_name = "HZ", help_heading = "What to send")]
    pub rate: Option<f64>,
    /// Number of modules
    #[arg(long, value_name = "M", default_value_t = 1, help_heading = "What to send", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub modules: u32,
    /// Partial readout: rows of a JUNGFRAU module (a multiple of 8), or of each EIGER half module [default: all]
    #[arg(long, value_name = "ROWS", help_heading = "What to send")]
    pub rows: Option<u16>,
    /// Frame number of the first image [default: 1, or that of the dump]
    #[arg(long, value_name = "N", help_heading = "What to send")]
    pub first_frame: Option<u64>,
    #[command(flatten)]
    pub roce: RoceArgs,
    #[command(flatten)]
    pub faults: FaultArgs,
    /// Probability that bits flip in the type and version fields of a packet header; with --roce, in payload and iCRC
    #[arg(long, value_name = "P", default_value_t = 0.0, help_heading = "Faults", value_parser = probability)]
    pub corrupt: f64,
    /// Probability that a packet is followed by a datagram that is not of this detector
    #[arg(long, value_name = "P", default_value_t = 0.0, help_heading = "Faults", value_parser = probability)]
    pub foreign: f64,
    /// From this image on, count frames from the first one again, as a restarted detector does
    #[arg(long, value_name = "IMAGE", help_heading = "Faults")]
    pub restart_at: Option<u64>,
    /// Stream that sends nothing, counted from 0; may be given several times
    #[arg(long, value_name = "STREAM", help_heading = "Faults")]
    pub silent: Vec<usize>,
    /// For programs: what was sent, as JSON on stdout
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// No progress line
    #[arg(long, short, help_heading = "Output")]
    pub quiet: bool,
}

impl SendArgs {
    /// Images per second; 0 = as fast as possible.
    pub fn rate_hz(&self) -> f64 {
        self.rate.unwrap_or(0.0)
    }

    /// True if packets must go through the fault link.
    pub fn has_faults(&self) -> bool {
        let FaultArgs { loss, duplicate, reorder, truncate, burst, .. } = self.faults;
        let p = [loss, duplicate, reorder, self.corrupt, truncate, burst, self.foreign];
        p.iter().any(|p| *p > 0.0) || self.restart_at.is_some()
    }
}

/// `konkordia simulate jungfrau`
#[derive(Clone, Debug, Args)]
pub struct JungfrauArgs {
    /// Options of both detectors.
    #[command(flatten)]
    pub send: SendArgs,
    /// Files of raw frames, uint16, modules x 512 x 1024 each; sent in a loop [default: synthetic frames]
    #[arg(long, value_name = "FILE", num_args = 1.., help_heading = "What to send")]
    pub raw: Vec<PathBuf>,
    /// UDP interfaces per module
    #[arg(long, value_name = "1|2", default_value_t = 1, help_heading = "What to send", value_parser = clap::value_parser!(u8).range(1..=2))]
    pub interfaces: u8,
    /// A detector by name: its modules, interfaces and rate; `konkordia size --list` shows the names
    #[arg(long, value_name = "NAME", help_heading = "What to send", conflicts_with_all = ["modules", "interfaces", "raw"])]
    pub preset: Option<String>,
    /// What the synthetic detector does.
    #[command(flatten)]
    pub synthetic: SyntheticArgs,
    /// What it sees.
    #[command(flatten)]
    pub sample: SampleArgs,
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
    /// Dark frames (closed shutter); every frame is new, none is sent twice
    #[arg(long, help_heading = "Synthetic detector", conflicts_with = "raw")]
    pub dark: bool,
    /// Dark frames with the gain forced to this stage
    #[arg(long, value_name = "1|2", help_heading = "Synthetic detector", requires = "dark", value_parser = clap::value_parser!(u8).range(1..=2))]
    pub force_gain: Option<u8>,
    /// Dark frames of the high gain mode (HG0)
    #[arg(long, help_heading = "Synthetic detector", requires = "dark", conflicts_with = "force_gain")]
    pub high_gain: bool,
    /// Stray photons in dark frames, mean number per pixel and frame
    #[arg(long, value_name = "MEAN", default_value_t = 0.0, help_heading = "Synthetic detector", requires = "dark", value_parser = probability)]
    pub stray: f64,
    /// Number of storage cells that are used in turn, each with its own pedestals
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Synthetic detector", conflicts_with = "raw", value_parser = clap::value_parser!(u8).range(1..=16))]
    pub storage_cells: u8,
    /// Pedestals of G0 rise by this many ADU ...
    #[arg(long, value_name = "ADU", default_value_t = 0.0, help_heading = "Synthetic detector", conflicts_with = "raw")]
    pub drift_adu: f64,
    /// ... within this time (with an exponential drift: the time constant); needs --rate
    #[arg(long, value_name = "S", default_value_t = 3.0, help_heading = "Synthetic detector")]
    pub drift_s: f64,
    /// How the pedestals rise
    #[arg(long, value_enum, default_value_t = DriftChoice::Linear, help_heading = "Synthetic detector")]
    pub drift_shape: DriftChoice,
}

/// `konkordia simulate eiger`
#[derive(Debug, Args)]
pub struct EigerArgs {
    /// Options of both detectors.
    #[command(flatten)]
    pub send: SendArgs,
    /// Packet dumps, one file per port: 8 bytes of length, then the datagram; sent in a loop [default: synthetic
    /// frames]
    #[arg(long, value_name = "FILE", num_args = 1.., help_heading = "What to send")]
    pub raw: Vec<PathBuf>,
    /// Bits of a pixel of the synthetic detector: 4, 8, 12, 16 or 32
    #[arg(long, value_name = "BITS", default_value_t = 16, help_heading = "What to send")]
    pub bits: u8,
    /// Send as over 10 GbE, in packets of 4096 bytes; false = over 1 GbE, in packets of 1024 bytes
    #[arg(long, value_name = "true|false", default_value_t = true, action = clap::ArgAction::Set, help_heading = "What to send")]
    pub ten_giga: bool,
    /// What the synthetic detector sees.
    #[command(flatten)]
    pub sample: SampleArgs,
}

/// `konkordia simulate excalibur`
#[derive(Debug, Args)]
pub struct ExcaliburArgs {
    /// Where to send: address and port of the first FEM; the others follow on consecutive ports
    #[arg(long, value_name = "HOST:PORT", help_heading = "What to send")]
    pub to: String,
    /// Images to send
    #[arg(long, value_name = "N", default_value_t = 100, help_heading = "What to send", value_parser = clap::value_parser!(u64).range(1..))]
    pub images: u64,
    /// Images per second; 0 = as fast as possible
    #[arg(long, value_name = "HZ", default_value_t = 10.0, help_heading = "What to send")]
    pub rate: f64,
    /// Number of FEMs
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "What to send", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub fems: u32,
    /// Frame number of the first image
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "What to send", value_parser = clap::value_parser!(u32).range(..=0x7FFF_FFFF))]
    pub first_frame: u32,
    #[command(flatten)]
    pub faults: FaultArgs,
    /// For programs: what was sent, as JSON on stdout
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// No progress line
    #[arg(long, short, help_heading = "Output")]
    pub quiet: bool,
}

/// `konkordia receive`
#[derive(Debug, Args)]
pub struct ReceiveArgs {
    /// Configuration of the run
    pub config: PathBuf,
    /// Images of the run; 0 = until stopped [default: as configured]
    #[arg(long, value_name = "N")]
    pub images: Option<u64>,
    /// First part of the file names; may have folders below the output folder [default: as configured]
    #[arg(long, value_name = "NAME")]
    pub prefix: Option<String>,
    /// For programs: events as JSON on stdout, one per line
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// No progress line
    #[arg(long, short, help_heading = "Output")]
    pub quiet: bool,
}

/// `konkordia serve`
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Configuration: of one detector, of several, or the YAML of the MAX IV receiver
    #[arg(long, short, value_name = "FILE")]
    pub config: PathBuf,
    /// Address and port of the HTTP interface; port 0 = any free port [default: service.listen]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<std::net::SocketAddr>,
    /// Name of the detector in the YAML
    #[arg(long, value_name = "NAME", help_heading = "With the YAML of the MAX IV receiver")]
    pub detector: Option<String>,
    /// Folder outside which no files are written [default: the current one]
    #[arg(long, value_name = "DIR", help_heading = "With the YAML of the MAX IV receiver")]
    pub data_root: Option<PathBuf>,
    /// Address on which the HTTP interface and the stream of MAX IV listen
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
    /// Level of the log on stderr: this level and everything more severe
    #[arg(long, value_enum, default_value_t = LogLevel::Info, env = "KONKORDIA_LOG_LEVEL", help_heading = "Output")]
    pub log_level: LogLevel,
    /// Format of a line of the log
    #[arg(long, value_enum, default_value_t = LogFormat::Text, env = "KONKORDIA_LOG_FORMAT", help_heading = "Output")]
    pub log_format: LogFormat,
    /// As --log-level error
    #[arg(long, short, help_heading = "Output", conflicts_with = "log_level")]
    pub quiet: bool,
}

/// `konkordia config`
#[derive(Debug, Args)]
pub struct ConfigArgs {
    /// What to do with the configuration.
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
        /// For a detector by name; `konkordia size --list` shows the names
        #[arg(long, value_name = "NAME")]
        detector: Option<String>,
    },
    /// Checks a configuration, and prints the plan of a run
    Check {
        /// The configuration
        file: PathBuf,
        /// For programs: the result as JSON on stdout
        #[arg(long)]
        json: bool,
    },
    /// Prints the description of the HTTP interface (OpenAPI)
    Openapi,
    /// Prints the JSON Schema of the configuration, for editors
    Schema {
        /// Print the reference table of the documentation instead
        #[arg(long)]
        markdown: bool,
    },
}

#[cfg(test)]
#[path = "cli_tests.rs"]
mod tests;
