//! The command line of `konkordia bench`.

use super::args::{
    ANALYSIS_HELP, BenchAnalysisArgs, BenchBlocksArgs, BenchBridgeArgs, BenchCbfArgs, BenchGpuArgs, BenchGraphArgs,
    BenchGrowthArgs, BenchIdleArgs, BenchKernelsArgs, BenchMemArgs, BenchNetArgs, BenchPipelineArgs, BenchRooflineArgs,
    BenchSoakArgs, BenchStreamArgs, BenchTrainsArgs, BenchUdpArgs,
};
use super::fabric_args::{BenchImportArgs, BenchRdmaArgs};
use super::hdf5::args::BenchHdf5Args;
use super::table3::args::BenchTable3Args;
use crate::help::TEMPLATE;
use clap::Subcommand;
use konkordia_core::failure::EXIT_CODES;

/// `konkordia bench`
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Conversion, bitshuffle, LZ4, and all in one pass, compared with plain baselines: GB/s of raw input per core
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia bench kernels
  konkordia bench kernels --seconds 0.1 --json
  konkordia bench kernels --raw raw_00.u16 raw_01.u16 --calibration calibration --energy-kev 12.4")]
    Kernels(BenchKernelsArgs),
    /// Spots, profile, regions and counts of one image on one thread: nanoseconds per pixel for each instruction set
    #[command(help_template = TEMPLATE, after_help = ANALYSIS_HELP, before_help = "Examples:
  konkordia bench analysis
  konkordia bench analysis --isa avx2 --work peakfinder8 dispersion --repeats 20
  konkordia bench analysis --image run01_master.h5 --json")]
    Analysis(BenchAnalysisArgs),
    /// Nanoseconds and cycles of one block of 8 KiB in the caches, for each step and instruction set
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia bench blocks
  konkordia bench blocks --isa avx2 --step lz4 --blocks 10000
  konkordia bench blocks --raw raw_00.u16 --calibration calibration --energy-kev 12.4")]
    Blocks(BenchBlocksArgs),
    /// Bits per pixel and speed of bslz4 and bszstd against the size of the blocks, with our encoders and those of the
    /// libraries
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia bench blocksize
  konkordia bench blocksize --seconds 0.1 --json
  konkordia bench blocksize --raw raw_00.u16 raw_01.u16 --calibration calibration --energy-kev 12.4")]
    Blocksize(BenchKernelsArgs),
    /// Highest rate without loss from simulator over loopback and conversion to file
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia bench pipeline --modules 1 --rate 1100 --seconds 60
  konkordia bench pipeline --receive-only --modules 1 --rate 1100 --repeats 9
  konkordia bench pipeline --dir /data --seconds 20 --json")]
    Pipeline(BenchPipelineArgs),
    /// A long run at a fraction of the highest rate without loss: loss, memory and latency over time, and a verdict
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia bench soak
  konkordia bench soak --minutes 5 --fraction 0.5 --png soak.png
  konkordia bench soak --minutes 1 --rate 500 --json")]
    Soak(BenchSoakArgs),
    /// Bits per pixel for roundings from 1/8 to 8 photons, compared with Table II of Leonarski et al. 2020
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia bench table2
  konkordia bench table2 --seconds 0.1 --json
  konkordia bench table2 --raw raw_00.u16 raw_01.u16 --calibration calibration --energy-kev 12.4")]
    Table2(BenchKernelsArgs),
    /// Quality of merged intensities against size for error bounds of sz3 from 0 to 8 photons, on a simulated crystal,
    /// beside Table III of Leonarski et al. 2020
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia bench table3
  konkordia bench table3 --images 400 --png table3.png
  konkordia bench table3 --images 20 --edge 512 --seed 7 --json")]
    Table3(BenchTable3Args),
    /// Processor time and memory of a service with many idle detectors
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia bench idle
  konkordia bench idle --detectors 10 --seconds 5
  konkordia bench idle --json")]
    Idle(BenchIdleArgs),
    /// Time of an image, of closing, and memory against the number of images of a run, from 10 to 10 000 000
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia bench growth
  konkordia bench growth --images 1000 100000 --size 20000
  konkordia bench growth --dir /data --json")]
    Growth(BenchGrowthArgs),
    /// Whole images over ZeroMQ, to a file or discarded: images per second by image size, upstreams and threads
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia bench stream
  konkordia bench stream --sizes 20000 --repeats 3 --matrix-sizes
  konkordia bench stream --png stream.png")]
    Stream(BenchStreamArgs),
    /// Writing rate and bits per pixel of each codec for images of 4M, compared with Table IV of Leonarski et al. 2020
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia bench table4
  konkordia bench table4 --seconds 0.1 --json
  konkordia bench table4 --raw raw_00.u16 raw_01.u16 --calibration calibration --seconds 2")]
    Table4(BenchKernelsArgs),
    /// HDF5 compared with plain write, as in figures 4 to 7 of Wintersberger 2011: by frame size and file system, on a
    /// RAM disk, compressed by noise and threads, one chunk by several threads, several runs at once
    #[command(alias = "disk", help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia bench hdf5
  konkordia bench hdf5 --dir /data /dev/shm /mnt/nfs --sync --mib 20000 --png hdf5.png
  konkordia bench hdf5 --sizes 512 --noise-bits 0 4 8 --threads 1 2 --repeats 3 --json")]
    Hdf5(BenchHdf5Args),
    /// CBF files into HDF5 as `konkordia import` does it, compared with plain reading: MB/s and images per second
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia bench cbf
  konkordia bench cbf --images 1000 --workers 8 --dir /data
  konkordia bench cbf --rows 2527 --columns 2463 --repeats 3 --json")]
    Cbf(BenchCbfArgs),
    /// Memory bandwidth by STREAM with 1 to all processors, and the copy rates of the caches
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia bench mem
  konkordia bench mem --threads 1 2 --mib 512 --repeats 20
  konkordia bench mem --json --compare mem.json")]
    Mem(BenchMemArgs),
    /// Latency and bandwidth by message size over TCP, datagrams and ZeroMQ, on loopback or between two machines
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia bench net --png net.png
  konkordia bench net --listen 0.0.0.0:5202
  konkordia bench net --to 192.0.2.7:5202 --transports tcp zmq-push --sizes 1024 1048576")]
    Net(BenchNetArgs),
    /// Writing into the memory of another host by RoCEv2 and RDMA over UDP, in software: cost, bandwidth and latency
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia bench rdma --png rdma.png
  konkordia bench rdma --parts rates --operations write rdma-udp --packets 598 --addresses 1
  konkordia bench rdma --parts sizes --import ib_write_bw.txt ib_write_lat.txt")]
    Rdma(BenchRdmaArgs),
    /// What perftest and the OSU micro-benchmarks have printed, beside ours by message size
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia bench import ib_write_bw.txt
  konkordia bench import osu_latency.txt osu_bw.txt --ours net.json
  konkordia bench import ib_write_lat.txt --json")]
    Import(BenchImportArgs),
    /// Lowest rate at which datagrams are lost, by packet size and number of buffers, compared with Ponsard et al. 2020
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia bench udp
  konkordia bench udp --listen 0.0.0.0:5201
  konkordia bench udp --to 192.0.2.7:5201 --sizes 8240 --packets 10000000")]
    Udp(BenchUdpArgs),
    /// Packets to their places by programs of the bridge, compared with a plain copy: GB/s, in software and in memory
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia bench bridge
  konkordia bench bridge --seconds 0.1 --repeats 5
  konkordia bench bridge --json --compare bridge.json")]
    Bridge(BenchBridgeArgs),
    /// How fast one core builds trains of LPD, DSSC and AGIPD from the packets of their modules
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia bench trains
  konkordia bench trains --images 100 --modules 2 --repeats 9
  konkordia bench trains --quick --json")]
    Trains(BenchTrainsArgs),
    /// Copies, launches and the whole pipeline on a GPU, in every way to launch, beside one core of the processor
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia bench gpu
  konkordia bench gpu --device 1 --seconds 10
  konkordia bench gpu --quick --json")]
    Gpu(BenchGpuArgs),
    /// Stages of a graph: an edge beside plain ZeroMQ, many processes, and such that are killed
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia bench graph
  konkordia bench graph --faults 100 --png processes.png
  konkordia bench graph --quick --json")]
    Graph(BenchGraphArgs),
    /// Variants of the conversion between the limits of memory and of arithmetic, as a table and a figure
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia bench roofline
  konkordia bench roofline --seconds 0.1
  konkordia bench roofline --png roofline.png --json")]
    Roofline(BenchRooflineArgs),
}
