//! Arguments of `konkordia bench`.

use clap::{Args, ValueEnum};
use konkordia_kernels::Isa;
use std::net::SocketAddr;
use std::path::PathBuf;

/// What all benches do with their results.
#[derive(Clone, Debug, Args)]
pub struct OutputArgs {
    /// For programs: the result as JSON on stdout
    #[arg(long)]
    pub json: bool,
    /// Show the figures beside those of a recorded run: what this bench printed with --json, or a table of
    /// benches/record/ (FILE.csv; FILE.csv:NAME if the run was recorded under another name)
    #[arg(long, value_name = "RECORD")]
    pub compare: Option<PathBuf>,
}

/// The frames of the benches of kernels.
#[derive(Debug, Args)]
pub struct BenchFramesArgs {
    /// Files of raw frames, uint16, 512 x 1024 each [default: the synthetic detector]
    #[arg(long, value_name = "FILE", num_args = 1.., requires = "calibration")]
    pub raw: Vec<PathBuf>,
    /// Folder with pedestal_g0.f32, pedestal_g1.f32, pedestal_g2.f32 and gain_adu_per_kev.f32
    #[arg(long, value_name = "DIR")]
    pub calibration: Option<PathBuf>,
    /// Photon energy of these frames
    #[arg(long, value_name = "KEV", default_value_t = 12.4)]
    pub energy_kev: f32,
}

/// `konkordia bench kernels`
#[derive(Debug, Args)]
pub struct BenchKernelsArgs {
    /// Frames.
    #[command(flatten)]
    pub frames: BenchFramesArgs,
    /// Duration of each measurement
    #[arg(long, value_name = "S", default_value_t = 0.5)]
    pub seconds: f64,
    /// JSON and comparison.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Steps of `bench blocks`, in the order of the workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BlockStep {
    /// Words to pixels
    Convert,
    /// Statistics of the pixels
    Stats,
    /// Bits transposed
    Bitshuffle,
    /// Transposed bits compressed
    Lz4,
    /// All four, one after the other, as a worker does them
    Fused,
}

impl BlockStep {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Convert, Self::Stats, Self::Bitshuffle, Self::Lz4, Self::Fused];

    /// Name on the command line and in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Convert => "convert",
            Self::Stats => "stats",
            Self::Bitshuffle => "bitshuffle",
            Self::Lz4 => "lz4",
            Self::Fused => "fused",
        }
    }
}

/// `konkordia bench blocks`
#[derive(Debug, Args)]
pub struct BenchBlocksArgs {
    /// Frames, of which the first is used.
    #[command(flatten)]
    pub frames: BenchFramesArgs,
    /// Instruction sets: scalar, avx2, avx512 [default: all of this machine]
    #[arg(long, value_name = "NAME", num_args = 1..)]
    pub isa: Vec<Isa>,
    /// Steps
    #[arg(long, value_enum, num_args = 1.., default_values_t = BlockStep::ALL)]
    pub step: Vec<BlockStep>,
    /// Blocks of each repeat
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..=1 << 30))]
    pub blocks: u32,
    /// Repeats of each measurement; median, lowest and highest are reported
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub repeats: u32,
    /// JSON and comparison.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Work of `bench analysis`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AnalysisWork {
    /// Spots by peakfinder8
    Peakfinder8,
    /// Spots by the threshold of DIALS
    Dispersion,
    /// The powder profile; each pixel belongs to one bin
    Azimuthal,
    /// The same with variances
    AzimuthalVariance,
    /// The powder profile; each pixel goes to all bins that it covers
    AzimuthalSplit,
    /// The same with variances
    AzimuthalSplitVariance,
    /// Number of pixels above a level
    Above,
    /// Sparse image of the pixels above a level
    Sparse,
    /// Number of pixels above a level, of a small image in the second cache
    AboveInCache,
    /// Sparse image of a small image in the second cache
    SparseInCache,
    /// Sum, highest pixel and centre of mass of two regions
    Regions,
    /// Spots by peakfinder8, the powder profile, the regions, and the number of pixels above a level
    Everything,
}

impl AnalysisWork {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::Peakfinder8,
        Self::Dispersion,
        Self::Azimuthal,
        Self::AzimuthalVariance,
        Self::AzimuthalSplit,
        Self::AzimuthalSplitVariance,
        Self::Above,
        Self::Sparse,
        Self::AboveInCache,
        Self::SparseInCache,
        Self::Regions,
        Self::Everything,
    ];

    /// Name on the command line and in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Peakfinder8 => "peakfinder8",
            Self::Dispersion => "dispersion",
            Self::Azimuthal => "azimuthal",
            Self::AzimuthalVariance => "azimuthal-variance",
            Self::AzimuthalSplit => "azimuthal-split",
            Self::AzimuthalSplitVariance => "azimuthal-split-variance",
            Self::Above => "above",
            Self::Sparse => "sparse",
            Self::AboveInCache => "above-in-cache",
            Self::SparseInCache => "sparse-in-cache",
            Self::Regions => "regions",
            Self::Everything => "everything",
        }
    }

    /// True if a small image is done again and again.
    pub const fn is_in_cache(self) -> bool {
        matches!(self, Self::AboveInCache | Self::SparseInCache)
    }
}

/// Printed at the end of the help of `bench analysis`.
pub const ANALYSIS_HELP: &str = "The same work in other programs, one thread, on another machine of this class with two cores, and with other work on it:\n\
peakfinder8 of CrystFEL 0.12: 13.5 to 14.7 ns per pixel; dispersion of DIALS: 10.0 to 10.5;\n\
profile by pyFAI, bbox csc: 10.1; by azint: 3.1 to 4.0, with split pixels 5.5 to 6.6\n\
Exit codes: 0 complete, 2 usage, 3 configuration, 6 I/O, 70 a result is wrong";

/// `konkordia bench analysis`
#[derive(Debug, Args)]
pub struct BenchAnalysisArgs {
    /// HDF5 or CBF file whose first image and geometry are used [default: a synthetic image of 2164 x 2068]
    #[arg(long, value_name = "FILE")]
    pub image: Option<PathBuf>,
    /// Instruction sets: scalar, avx2, avx512 [default: all of this machine]
    #[arg(long, value_name = "NAME", num_args = 1..)]
    pub isa: Vec<Isa>,
    /// Work
    #[arg(long, value_enum, num_args = 1.., default_values_t = AnalysisWork::ALL)]
    pub work: Vec<AnalysisWork>,
    /// Repeats of each measurement; median, lowest and highest are reported
    #[arg(long, value_name = "N", default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub repeats: u32,
    /// A small image and one repeat: shows that everything works, and measures nothing
    #[arg(long)]
    pub quick: bool,
    /// JSON and comparison.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Compression of the file in `bench pipeline`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BenchCompression {
    /// Bitshuffle and LZ4
    Bslz4,
    /// Uncompressed pixels
    None,
}

/// The run of `bench pipeline` and `bench soak`.
#[derive(Debug, Args)]
pub struct BenchRunArgs {
    /// Folder for the files [default: /dev/shm if it exists, otherwise the folder for temporary files]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Files of raw frames, uint16, 512 x 1024 each [default: the synthetic detector]
    #[arg(long, value_name = "FILE", num_args = 1.., requires = "calibration")]
    pub raw: Vec<PathBuf>,
    /// Folder with the calibration of these frames
    #[arg(long, value_name = "DIR")]
    pub calibration: Option<PathBuf>,
    /// Photon energy of these frames
    #[arg(long, value_name = "KEV", default_value_t = 12.4)]
    pub energy_kev: f64,
    /// Compression of the file
    #[arg(long, value_enum, default_value_t = BenchCompression::Bslz4)]
    pub compression: BenchCompression,
    /// Worker threads [default: as many as the streams leave processors, at least 1]
    #[arg(long, value_name = "N")]
    pub workers: Option<usize>,
    /// Receive buffer to ask of the kernel, per stream
    #[arg(long, value_name = "MIB", default_value_t = 256)]
    pub receive_buffer_mib: usize,
    /// Memory of the ring of images
    #[arg(long, value_name = "MIB", default_value_t = 512)]
    pub buffer_mib: u64,
    /// Analyse the images by this recipe while they come, with the geometry of the synthetic detector; a rate
    /// only counts as reached if all images are analysed too
    #[arg(long, value_name = "RECIPE.toml")]
    pub analysis: Option<PathBuf>,
    /// Threads of the analysis [default: half of the processors, at least 2]
    #[arg(long, value_name = "N", requires = "analysis")]
    pub analysis_workers: Option<usize>,
}

/// `konkordia bench pipeline`
#[derive(Debug, Args)]
pub struct BenchPipelineArgs {
    /// Numbers of modules to measure, with one search for each
    #[arg(long, value_name = "M", num_args = 1.., default_values_t = [1, 2])]
    pub modules: Vec<u32>,
    /// Measure only this rate, without a search
    #[arg(long, value_name = "HZ")]
    pub rate: Option<f64>,
    /// Duration of each attempt
    #[arg(long, value_name = "S", default_value_t = 4.0)]
    pub seconds: f64,
    /// Delete data files as soon as they are complete, so that long runs fit on the disk
    #[arg(long)]
    pub delete_finished: bool,
    /// Measure the receiving alone: frames are received, assembled, counted and discarded, only the last 10 become
    /// images; beside it, in turns, a plain loop of the same system calls that counts datagrams. The figures are the
    /// processor time of the receiving threads, and the highest rates without loss if no --rate is given
    #[arg(long, conflicts_with_all = ["delete_finished", "compression", "analysis"])]
    pub receive_only: bool,
    /// Repeats of --receive-only; median, lowest and highest are reported
    #[arg(long, value_name = "N", default_value_t = 5, requires = "receive_only")]
    pub repeats: usize,
    /// What is run.
    #[command(flatten)]
    pub run: BenchRunArgs,
    /// JSON and comparison.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `konkordia bench soak`
#[derive(Debug, Args)]
pub struct BenchSoakArgs {
    /// Modules of the detector
    #[arg(long, value_name = "M", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=32))]
    pub modules: u32,
    /// Duration of the run
    #[arg(long, value_name = "MIN", default_value_t = 30.0, value_parser = minutes)]
    pub minutes: f64,
    /// Rate of the run, of the highest rate without loss; above 1 it overloads
    #[arg(long, value_name = "F", default_value_t = 0.8, value_parser = fraction)]
    pub fraction: f64,
    /// Run at this rate, without a search
    #[arg(long, value_name = "HZ", value_parser = rate)]
    pub rate: Option<f64>,
    /// Let the load fall to this rate for another 10 s: how long are data still lost after an overload?
    #[arg(long, value_name = "HZ", value_parser = rate)]
    pub then: Option<f64>,
    /// Duration of each attempt of the search
    #[arg(long, value_name = "S", default_value_t = 4.0)]
    pub seconds: f64,
    /// A few seconds at a low rate: shows that everything works, and measures nothing
    #[arg(long)]
    pub quick: bool,
    /// Draw memory and latency against time into this file
    #[arg(long, value_name = "FILE.png")]
    pub png: Option<PathBuf>,
    /// What is run.
    #[command(flatten)]
    pub run: BenchRunArgs,
    /// JSON and comparison.
    #[command(flatten)]
    pub output: OutputArgs,
}

fn minutes(text: &str) -> Result<f64, String> {
    real(text, 0.01, 10080.0)
}

fn fraction(text: &str) -> Result<f64, String> {
    real(text, 0.01, 2.0)
}

fn rate(text: &str) -> Result<f64, String> {
    real(text, 1.0, 1e6)
}

fn real(text: &str, low: f64, high: f64) -> Result<f64, String> {
    let value = text.parse::<f64>().map_err(|_| "not a number")?;
    if (low..=high).contains(&value) { Ok(value) } else { Err(format!("{low} to {high}")) }
}

/// `konkordia bench mem`
#[derive(Debug, Args)]
pub struct BenchMemArgs {
    /// Numbers of threads [default: 1, 2, 4 ... and all processors]
    #[arg(long, value_name = "N", num_args = 1.., value_parser = thread_count)]
    pub threads: Vec<usize>,
    /// Size of each of the three arrays [default: four times all caches of the last level]
    #[arg(long, value_name = "MIB", value_parser = array_mib)]
    pub mib: Option<usize>,
    /// Repeats of each measurement; median, lowest and highest are reported
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub repeats: usize,
    /// Little data, few repeats: shows that everything works, and measures nothing
    #[arg(long)]
    pub quick: bool,
    /// Draw bandwidth against threads into this file
    #[arg(long, value_name = "FILE.png")]
    pub png: Option<PathBuf>,
    /// JSON and comparison.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `konkordia bench bridge`
#[derive(Debug, Args)]
pub struct BenchBridgeArgs {
    /// Duration of each measurement
    #[arg(long, value_name = "S", default_value_t = 0.3)]
    pub seconds: f64,
    /// Repeats of each measurement; median, lowest and highest are reported
    #[arg(long, value_name = "N", default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub repeats: u32,
    /// Two short repeats: shows that everything works, and measures nothing
    #[arg(long)]
    pub quick: bool,
    /// JSON and comparison.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `konkordia bench trains`
#[derive(Debug, Args)]
pub struct BenchTrainsArgs {
    /// Images of a train
    #[arg(long, value_name = "N", default_value_t = 352, value_parser = train_images)]
    pub images: usize,
    /// Modules of the detector; memory is needed for a train of each
    #[arg(long, value_name = "M", default_value_t = 4, value_parser = train_modules)]
    pub modules: usize,
    /// Repeats of each measurement; median, lowest and highest are reported
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub repeats: usize,
    /// Short trains, few repeats: shows that everything works, and measures nothing
    #[arg(long)]
    pub quick: bool,
    /// JSON and comparison.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `konkordia bench gpu`
#[derive(Debug, Args)]
pub struct BenchGpuArgs {
    /// Number of the GPU, as nvidia-smi counts them
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub device: u32,
    /// Seconds of each row of the pipeline
    #[arg(long, value_name = "S", default_value_t = 2.0)]
    pub seconds: f64,
    /// Frames of a batch
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub frames: u32,
    /// Short rows, small images: shows that everything works, and measures nothing
    #[arg(long)]
    pub quick: bool,
    /// JSON and comparison.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `konkordia bench graph`
#[derive(Debug, Args)]
pub struct BenchGraphArgs {
    /// Repeats of each edge; median, lowest and highest are reported
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub repeats: usize,
    /// How often a process is killed, and how often one is stopped
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub faults: u64,
    /// Few images and faults: shows that everything works, and measures nothing
    #[arg(long)]
    pub quick: bool,
    /// Draw images per second against processes into this file
    #[arg(long, value_name = "FILE.png")]
    pub png: Option<PathBuf>,
    /// The other end of plain ZeroMQ; the bench starts itself with it
    #[arg(long, value_name = "ADDRESS:PORT", hide = true)]
    pub listen: Option<SocketAddr>,
    /// JSON and comparison.
    #[command(flatten)]
    pub output: OutputArgs,
}

fn train_images(text: &str) -> Result<usize, String> {
    number(text, 1, 1024)
}

fn train_modules(text: &str) -> Result<usize, String> {
    number(text, 1, 16)
}

/// `konkordia bench roofline`
#[derive(Debug, Args)]
pub struct BenchRooflineArgs {
    /// Frames and time.
    #[command(flatten)]
    pub frames: BenchKernelsArgs,
    /// Draw the figure into this file
    #[arg(long, value_name = "FILE.png")]
    pub png: Option<PathBuf>,
}

/// `konkordia bench cbf`
#[derive(Debug, Args)]
pub struct BenchCbfArgs {
    /// Folder for the files [default: /dev/shm if it exists, otherwise the folder for temporary files]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Number of files
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = at_least_one)]
    pub images: usize,
    /// Rows of an image
    #[arg(long, value_name = "PIXELS", default_value_t = 1679, value_parser = edge)]
    pub rows: usize,
    /// Columns of an image
    #[arg(long, value_name = "PIXELS", default_value_t = 1475, value_parser = edge)]
    pub columns: usize,
    /// Numbers of threads that read and compress
    #[arg(long, value_name = "N", num_args = 1.., default_values_t = [1, 2, 8], value_parser = clap::value_parser!(u16).range(1..=256))]
    pub workers: Vec<u16>,
    /// Repeats of each measurement; the median is reported
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = at_least_one)]
    pub repeats: usize,
    /// JSON and comparison.
    #[command(flatten)]
    pub output: OutputArgs,
}

fn at_least_one(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|number| *number > 0).ok_or_else(|| "a number from 1 on is expected".to_owned())
}

/// `konkordia bench stream`
#[derive(Debug, Args)]
pub struct BenchStreamArgs {
    /// Folder for the files [default: /dev/shm if it exists, otherwise the folder for temporary files]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Sizes of an image, in bytes
    #[arg(long, value_name = "BYTES", num_args = 1.., default_values_t = [20_000, 200_000, 2_000_000, 20_000_000], value_parser = clap::value_parser!(u64).range(2..=1 << 29))]
    pub sizes: Vec<u64>,
    /// Numbers of upstreams (connections), each with a thread of its own
    #[arg(long, value_name = "N", num_args = 1.., default_values_t = [1, 2, 4], value_parser = upstreams)]
    pub workers: Vec<usize>,
    /// Numbers of I/O threads of ZeroMQ
    #[arg(long, value_name = "N", num_args = 1.., default_values_t = [1, 2], value_parser = upstreams)]
    pub io_threads: Vec<usize>,
    /// Image sizes, in bytes, for which upstreams and I/O threads are varied, without a file
    #[arg(long, value_name = "BYTES", num_args = 0.., default_values_t = [200_000, 20_000_000], value_parser = clap::value_parser!(u64).range(2..=1 << 29))]
    pub matrix_sizes: Vec<u64>,
    /// Measure each size also with a consumer that looks at all pixels of as many images as it has time for
    #[arg(long)]
    pub whole_images: bool,
    /// Amount of data of each measurement, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 1500)]
    pub mib: u64,
    /// Largest number of images of each measurement
    #[arg(long, value_name = "N", default_value_t = 30_000)]
    pub images_max: u64,
    /// Repeats of each measurement; mean and standard error are reported
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub repeats: usize,
    /// Draw images per second against image size into this file
    #[arg(long, value_name = "FILE.png")]
    pub png: Option<PathBuf>,
    /// JSON and comparison.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `konkordia bench idle`
#[derive(Debug, Args)]
pub struct BenchIdleArgs {
    /// Number of detectors in one process
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub detectors: usize,
    /// Time of the measurement, in seconds
    #[arg(long, value_name = "S", default_value_t = 20.0)]
    pub seconds: f64,
    /// JSON and comparison.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `konkordia bench growth`
#[derive(Debug, Args)]
pub struct BenchGrowthArgs {
    /// Numbers of images of the runs, in turn; ten million of the default size take 5 GB, and about three minutes
    #[arg(long, value_name = "N", num_args = 1.., value_parser = clap::value_parser!(u64).range(1..=1 << 28),
        default_values_t = [10, 100, 1000, 10_000, 100_000, 1_000_000, 10_000_000])]
    pub images: Vec<u64>,
    /// Size of an image, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 512, value_parser = clap::value_parser!(u64).range(1..=1 << 26))]
    pub size: u64,
    /// Folder for the files [default: /dev/shm if it exists, otherwise the folder for temporary files]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// JSON and comparison.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Receivers of `bench udp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum UdpBackend {
    /// A socket of the runs: recvmmsg and GRO, with a large receive buffer
    Socket,
    /// An AF_PACKET ring of the runs, on any interface but the loopback
    Packet,
    /// AF_XDP as in the runs, on any interface but the loopback
    Xdp,
    /// One call of recv for each packet, with the receive buffer that every socket has
    Recv,
}

/// How a receiver of `bench udp` waits for packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum UdpWait {
    /// It sleeps until a packet comes
    Blocking,
    /// It asks again and again, and uses a whole core
    Polling,
}

/// Fewest bytes of a packet of `bench udp`: its numbers and a check.
pub const PACKET_BYTES_MIN: usize = 32;
/// Most bytes of a packet, and of a burst: those of a datagram over IPv4.
pub const PACKET_BYTES_MAX: usize = 65507;

/// `konkordia bench udp`
#[derive(Debug, Args)]
pub struct BenchUdpArgs {
    /// Sizes of a packet, in bytes of payload
    #[arg(long, value_name = "BYTES", num_args = 1.., default_values_t = [2048, 4096, 8240], value_parser = packet_bytes)]
    pub sizes: Vec<usize>,
    /// Numbers of buffers to which the packets go in turn
    #[arg(long, value_name = "N", num_args = 1.., default_values_t = [1, 100_000], value_parser = buffers)]
    pub buffers: Vec<usize>,
    /// Receivers
    #[arg(long, value_enum, num_args = 1.., default_values_t = [UdpBackend::Socket])]
    pub backend: Vec<UdpBackend>,
    /// How they wait
    #[arg(long, value_enum, num_args = 1.., default_values_t = [UdpWait::Blocking, UdpWait::Polling])]
    pub wait: Vec<UdpWait>,
    /// Packets of each attempt, but no more than take 10 s; the paper has 10000000
    #[arg(long, value_name = "N", default_value_t = 200_000, value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    pub packets: u64,
    /// Receive buffer to ask of the kernel
    #[arg(long, value_name = "MIB", default_value_t = 256, value_parser = receive_buffer_mib)]
    pub receive_buffer_mib: usize,
    /// Searches for each row; median, lowest and highest are reported
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub repeats: usize,
    /// Few packets, few repeats: shows that everything works, and measures nothing
    #[arg(long)]
    pub quick: bool,
    /// Draw rates against packet size into this file, beside those of the paper
    #[arg(long, value_name = "FILE.png")]
    pub png: Option<PathBuf>,
    /// Where the receiving end listens [default: this process, over loopback]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub to: Option<SocketAddr>,
    /// Be the receiving end, for one sending end after the other; packets go to any free port
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with = "to")]
    pub listen: Option<SocketAddr>,
    /// JSON and comparison.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Transports of `bench net`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum NetTransport {
    /// A TCP connection
    Tcp,
    /// Datagrams, up to 65507 bytes
    Udp,
    /// ZeroMQ, REQ and REP: every message has an answer before the next one
    ZmqReq,
    /// ZeroMQ, PUSH and PULL
    ZmqPush,
    /// ZeroMQ, PUB and SUB
    ZmqPub,
    /// A link that writes into memory, over TCP: each message a write with an event
    LinkTcp,
    /// The same by memory that both ends share, on one host
    LinkShm,
    /// The same by libfabric, provider tcp
    LinkLibfabricTcp,
    /// The same by libfabric, provider shm, on one host
    LinkLibfabricShm,
    /// The same by the first RDMA card (never run on one)
    LinkVerbs,
}

impl NetTransport {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Tcp,
        Self::Udp,
        Self::ZmqReq,
        Self::ZmqPush,
        Self::ZmqPub,
        Self::LinkTcp,
        Self::LinkShm,
        Self::LinkLibfabricTcp,
        Self::LinkLibfabricShm,
        Self::LinkVerbs,
    ];

    /// Name on the command line and in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::ZmqReq => "zmq-req",
            Self::ZmqPush => "zmq-push",
            Self::ZmqPub => "zmq-pub",
            Self::LinkTcp => "link-tcp",
            Self::LinkShm => "link-shm",
            Self::LinkLibfabricTcp => "link-libfabric-tcp",
            Self::LinkLibfabricShm => "link-libfabric-shm",
            Self::LinkVerbs => "link-verbs",
        }
    }
}

/// `konkordia bench net`
#[derive(Debug, Args)]
pub struct BenchNetArgs {
    /// Transports [default: all that this host has; those of one host only if the other end is here]
    #[arg(long, value_enum, num_args = 1..)]
    pub transports: Vec<NetTransport>,
    /// Sizes of a message, in bytes [default: 1, 2, 4 ... 4194304]
    #[arg(long, value_name = "BYTES", num_args = 1.., value_parser = message_bytes)]
    pub sizes: Vec<usize>,
    /// Messages that are sent before one answer is waited for, when bandwidth is measured
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = window)]
    pub window: usize,
    /// Numbers of connections at once, when the message rate is measured
    #[arg(long, value_name = "N", num_args = 0.., default_values_t = [1, 2, 4], value_parser = pairs)]
    pub pairs: Vec<usize>,
    /// Repeats of each measurement; median, and median of the distances from it, are reported
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub repeats: usize,
    /// Few messages, few repeats: shows that everything works, and measures nothing
    #[arg(long)]
    pub quick: bool,
    /// Draw latency and bandwidth against message size into this file
    #[arg(long, value_name = "FILE.png")]
    pub png: Option<PathBuf>,
    /// Text that osu_latency, osu_bw, osu_bibw, osu_mbw_mr or a program of perftest has printed, beside ours
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub import: Vec<PathBuf>,
    /// Where the other end listens [default: this process, over loopback]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub to: Option<SocketAddr>,
    /// Be the other end, for one after the other; messages go to any free port
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with = "to")]
    pub listen: Option<SocketAddr>,
    /// JSON and comparison.
    #[command(flatten)]
    pub output: OutputArgs,
}

fn message_bytes(text: &str) -> Result<usize, String> {
    number(text, 1, 1 << 28)
}

fn pairs(text: &str) -> Result<usize, String> {
    number(text, 1, 64)
}

fn window(text: &str) -> Result<usize, String> {
    number(text, 1, 512)
}

fn packet_bytes(text: &str) -> Result<usize, String> {
    number(text, PACKET_BYTES_MIN, PACKET_BYTES_MAX)
}

fn buffers(text: &str) -> Result<usize, String> {
    number(text, 1, 10_000_000)
}

fn receive_buffer_mib(text: &str) -> Result<usize, String> {
    number(text, 1, 1024)
}

fn number(text: &str, low: usize, high: usize) -> Result<usize, String> {
    let n = text.parse::<usize>().map_err(|_| "not a number")?;
    if (low..=high).contains(&n) { Ok(n) } else { Err(format!("{low} to {high}")) }
}

fn upstreams(text: &str) -> Result<usize, String> {
    number(text, 1, 64)
}

fn array_mib(text: &str) -> Result<usize, String> {
    number(text, 1, 1 << 24)
}

/// A number of threads.
pub fn thread_count(text: &str) -> Result<usize, String> {
    number(text, 1, 1024)
}

/// Edge length of a frame, in pixels.
pub fn edge(text: &str) -> Result<usize, String> {
    number(text, 8, 16384)
}
