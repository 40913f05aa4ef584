//! `konkordia rashpa`: modules that write their images into the memory of receivers, and the manager that sets them up
//! (docs/rashpa.md). Telegrams go over TCP, and data by RDMA over UDP in datagrams of ordinary sockets, or into memory
//! that modules and receivers of one host share.

pub mod args;
mod credits;
mod direct;
mod manager;
pub mod measure;
mod memory;
mod module;
mod pixels;
mod queues;
mod receiver;
mod reception;
mod status;
mod telegrams;
mod wire;

use args::RashpaCommand;
use konkordia_core::failure::{Exit, Failure};

/// `konkordia rashpa`
pub fn command(command: &RashpaCommand) -> Result<Exit, Failure> {
    match command {
        RashpaCommand::Manager(args) => manager::command(args),
        RashpaCommand::Module(args) => module::command(args),
        RashpaCommand::Receiver(args) => receiver::command(args),
        RashpaCommand::Status(args) => status::command(args),
    }
}
