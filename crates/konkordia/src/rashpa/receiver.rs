//! `konkordia rashpa receiver`: a data receiver. One thread takes what comes by all links; telegrams are answered by
//! their own threads.

use super::args::ReceiverArgs;
use super::memory::Memory;
use super::module::{addresses, link, name, shared_link};
use super::reception::Run;
use super::telegrams::{lock, serve};
use crate::console;
use crate::run::signals;
use konkordia_core::failure::{Exit, Failure, reason};
use konkordia_core::ports::Source;
use konkordia_fabric::rashpa::receiver_control::ReceiverControl;
use konkordia_fabric::rashpa::telegram::{self, ReceiverCapabilities};
use konkordia_fabric::rashpa::terms::{MemoryKind, ReceiverId};
use konkordia_sources::udp::UdpReceiver;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Longest wait for a datagram, shared by the links.
const WAIT: Duration = Duration::from_millis(2);

fn open(args: &ReceiverArgs, memory: &Memory) -> Result<(Vec<UdpReceiver>, ReceiverCapabilities), Failure> {
    let (mut sources, mut links) = (Vec::new(), Vec::new());
    for (n, address) in addresses(&args.link)?.into_iter().enumerate() {
        let failed = |error: std::io::Error| {
            Failure::new(Exit::Io, format!("cannot receive at {address}"), reason(&error), "give an address of this machine")
        };
        let bound = UdpReceiver::bind(SocketAddr::new(address, 0), (args.receive_buffer_mib as usize) << 20);
        let source = bound.map_err(failed)?;
        links.push(link(n, source.local_addr().map_err(failed)?, args.mtu)?);
        sources.push(source);
    }
    links.push(shared_link(links.len(), &memory.shared().address())?);
    let memory = vec![telegram::Memory { kind: MemoryKind::Ram, bytes: u64::from(args.memory_mib) << 20 }];
    Ok((sources, ReceiverCapabilities { receiver: ReceiverId(args.id), links, memory }))
}

/// `konkordia rashpa receiver`
pub fn command(args: &ReceiverArgs) -> Result<Exit, Failure> {
    if let Some(folder) = &args.output {
        std::fs::create_dir_all(folder).map_err(|error| Failure::io("cannot make", folder, &error))?;
    }
    let mut memory = Memory::new((args.memory_mib as usize) << 20)?;
    let (mut sources, capabilities) = open(args, &memory)?;
    let member = name(&format!("receiver-{}", args.id))?;
    let control = Arc::new(Mutex::new(ReceiverControl::new(member.clone(), capabilities)));
    let interrupted = signals::stop_flag()?;
    let address = serve(args.listen, &member, &control)?;
    console::to_stderr(&format!("receiver {} takes telegrams at {address}; Ctrl-C ends it", args.id));
    let mut exit = Exit::Complete;
    let wait = WAIT / sources.len() as u32;
    while !interrupted.load(Ordering::Acquire) {
        let Some(mut run) = Run::begin(args, &member, &control, &mut memory)? else {
            if lock(&control).has_master() {
                // The run may begin at any moment, and its first packets are not to be lost.
                std::thread::sleep(WAIT);
            } else {
                // Packets outside of a run have no place; they are thrown away before the next one begins.
                for source in &mut sources {
                    receive(source, wait, &mut |_, _| {})?;
                }
            }
            continue;
        };
        let dropped_before: u64 = sources.iter_mut().map(|source| source.dropped()).sum();
        while !run.is_over(&control, interrupted.load(Ordering::Acquire)) {
            if run.is_shared() {
                run.take_shared(&memory);
            } else {
                for source in &mut sources {
                    let mut guard = None;
                    let mut take = |datagram: &[u8], from: SocketAddr| {
                        let control = guard.get_or_insert_with(|| lock(&control));
                        if let Some(reception) = control.running() {
                            run.state.take(reception, datagram, from, memory.own());
                        }
                    };
                    receive(source, wait, &mut take)?;
                }
            }
            run.serve(&mut memory)?;
        }
        run.close(&memory);
        run.drain(&mut memory)?;
        let dropped = sources.iter_mut().map(|source| source.dropped()).sum::<u64>() - dropped_before;
        exit = run.report(dropped, interrupted.load(Ordering::Acquire));
        lock(&control).finish();
        if args.once {
            wait_for_release(&control, &interrupted);
            break;
        }
    }
    Ok(exit)
}

/// The manager may still ask how the run was, and releases the receiver then.
fn wait_for_release(control: &Mutex<ReceiverControl>, interrupted: &std::sync::atomic::AtomicBool) {
    while lock(control).has_master() && !interrupted.load(Ordering::Acquire) {
        std::thread::sleep(WAIT);
    }
}

fn receive(source: &mut UdpReceiver, wait: Duration, take: &mut dyn FnMut(&[u8], SocketAddr)) -> Result<(), Failure> {
    let received = source.receive(wait, &mut |datagram, sender| take(datagram, sender.address()));
    received
        .map(|_| ())
        .map_err(|error| Failure::new(Exit::Io, "a link has failed", reason(&error), "look at the network interface"))
}
