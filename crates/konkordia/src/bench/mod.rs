//! `konkordia bench`: what this machine can do.

mod analysis;
pub mod args;
mod blocks;
mod blocksize;
mod caches;
mod cbf;
pub mod command;
mod crossover;
pub mod fabric_args;
mod frames;
mod gpu;
mod graph;
mod growth;
mod hdf5;
mod idle;
mod import;
mod kernels;
mod links;
mod mem;
mod module_files;
mod net;
mod output;
mod packer;
mod peer;
mod pipeline;
mod placement;
mod rdma;
mod receive_only;
mod roofline;
mod rows;
mod soak;
mod split;
mod spread;
mod stream;
mod table3;
mod tables;
mod threads;
mod trains;
mod udp;

use command::BenchCommand;
use konkordia_core::failure::{Exit, Failure};

/// `konkordia bench ...`
pub fn command(which: &BenchCommand) -> Result<Exit, Failure> {
    match which {
        BenchCommand::Analysis(args) => analysis::command(args),
        BenchCommand::Kernels(args) => kernels::command(args),
        BenchCommand::Pipeline(args) if args.receive_only => receive_only::command(args),
        BenchCommand::Pipeline(args) => pipeline::command(args),
        BenchCommand::Table2(args) => tables::rounding(args),
        BenchCommand::Table3(args) => table3::command(args),
        BenchCommand::Table4(args) => tables::writing(args),
        BenchCommand::Cbf(args) => cbf::command(args),
        BenchCommand::Hdf5(args) => hdf5::command(args),
        BenchCommand::Idle(args) => idle::command(args),
        BenchCommand::Gpu(args) => gpu::command(args),
        BenchCommand::Graph(args) => graph::command(args),
        BenchCommand::Growth(args) => growth::command(args),
        BenchCommand::Stream(args) => stream::command(args),
        BenchCommand::Soak(args) => soak::command(args),
        BenchCommand::Net(args) => net::command(args),
        BenchCommand::Rdma(args) => rdma::command(args),
        BenchCommand::Import(args) => import::command(args),
        BenchCommand::Udp(args) => udp::command(args),
        BenchCommand::Mem(args) => mem::command(args),
        BenchCommand::Trains(args) => trains::command(args),
        BenchCommand::Blocks(args) => blocks::command(args),
        BenchCommand::Blocksize(args) => blocksize::command(args),
        BenchCommand::Bridge(args) => placement::command(args),
        BenchCommand::Roofline(args) => roofline::command(args),
    }
}
