//! Trains on over UDP, in the form in which the modules send them: module m of a train goes to port m of the output. A
//! module that is missing is sent as a train without images, so that no receiver waits for it.

use super::args::TrainsArgs;
use super::shared::SharedTrain;
use crate::simulate::send::failed;
use crossbeam_channel::Receiver;
use konkordia_core::failure::{Exit, Failure, reason};
use konkordia_fabric::trains::{BUILDER_BYTES_MAX, CREDIT_BYTES, Credit, Distributor, TrainSpec};
use konkordia_sources::udp::UdpSender;
use konkordia_wire::xfel_train::{
    PACKET_TRAILER_BYTES, PAYLOAD_BYTES, TrainNumbers, packets_of, write_end, write_header, write_packet,
};
use serde_json::json;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

/// Open requests that an output may have.
const CREDITS_MAX: u32 = 64;
/// Packets of one system call.
const BURST: usize = 7;

/// What became of trains.
#[derive(Clone, Debug, Default)]
pub struct TtpCounts {
    /// Trains by output.
    pub sent: Vec<u64>,
    /// Trains that no output had asked for.
    pub skipped: u64,
}

/// The outputs.
pub struct Ttp {
    outputs: Vec<Vec<UdpSender>>,
    distributor: Distributor,
    requests: Option<UdpSocket>,
    spec: TrainSpec,
}

impl Ttp {
    /// Opens a socket for each module of each output.
    pub fn open(args: &TrainsArgs, spec: TrainSpec) -> Result<Self, Failure> {
        let connect = |to: SocketAddr| {
            UdpSender::connect(to).map_err(|error| {
                Failure::new(Exit::Io, format!("cannot send to {to}"), reason(&error), "check address and route")
            })
        };
        let output = |first: &SocketAddr| {
            let address = |module: u32| -> Result<SocketAddr, Failure> {
                let port = u16::try_from(u32::from(first.port()) + module).map_err(|_| {
                    let why = format!("{} modules from port {} reach beyond port 65535", args.modules, first.port());
                    Failure::new(Exit::Usage, "there are not enough ports", why, "give a lower port")
                })?;
                Ok(SocketAddr::new(first.ip(), port))
            };
            (0..args.modules).map(|module| connect(address(module)?)).collect::<Result<Vec<_>, Failure>>()
        };
        let outputs: Vec<_> = args.ttp.iter().map(output).collect::<Result<_, Failure>>()?;
        let requests = args.credits.map(listen).transpose()?;
        let distributor = Distributor::new(args.ttp_policy.into(), outputs.len(), CREDITS_MAX);
        Ok(Self { outputs, distributor, requests, spec })
    }

    /// Runs until `trains` ends.
    pub fn run(mut self, trains: &Receiver<Arc<SharedTrain>>) -> Result<TtpCounts, Failure> {
        let mut counts = TtpCounts { sent: vec![0; self.outputs.len()], skipped: 0 };
        let (mut bytes, mut packet, mut burst) = (Vec::new(), Vec::new(), Vec::new());
        for shared in trains {
            self.take_requests();
            let Some(output) = self.distributor.choose(shared.train.train_id) else {
                counts.skipped += 1;
                continue;
            };
            for module in 0..shared.train.modules.len() {
                encode(&shared, module, output, &self.spec, &mut bytes);
                let last = packets_of(bytes.len()) - 1;
                for number in 0..=last {
                    // Each train of a module counts in its own packets; the frame number follows the train id.
                    write_packet(&bytes, shared.train.train_id as u32, number, &mut packet);
                    burst.extend_from_slice(&packet);
                    if (number + 1) % BURST == 0 || number == last {
                        let segment_bytes = PAYLOAD_BYTES + PACKET_TRAILER_BYTES;
                        self.outputs[output][module].send_segments(&burst, segment_bytes).map_err(|error| failed(&error))?;
                        burst.clear();
                    }
                }
            }
            counts.sent[output] += 1;
        }
        Ok(counts)
    }

    fn take_requests(&mut self) {
        let Some(socket) = &self.requests else { return };
        let mut datagram = [0; CREDIT_BYTES + 1];
        while let Ok(bytes) = socket.recv(&mut datagram) {
            if let Some(credit) = Credit::read(&datagram[..bytes]) {
                self.distributor.credit(credit);
            }
        }
    }
}

fn listen(address: SocketAddr) -> Result<UdpSocket, Failure> {
    let open = || {
        let socket = UdpSocket::bind(address)?;
        socket.set_nonblocking(true).map(|()| socket)
    };
    open().map_err(|error| Failure::new(Exit::Io, format!("cannot listen at {address}"), reason(&error), "give another address"))
}

/// Replaces `out` by the train of a module, with what the builder says in its section.
fn encode(shared: &SharedTrain, module: usize, output: usize, spec: &TrainSpec, out: &mut Vec<u8>) {
    let train = &shared.train;
    let injected: serde_json::Map<_, _> = train.injected.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
    let said = json!({
        "flags": train.flags[module], "lost_before": train.lost_before, "images": train.images, "injected": injected,
    });
    let mut section = said.to_string().into_bytes();
    section.resize(section.len().next_multiple_of(32).min(BUILDER_BYTES_MAX), b' ');
    // The high half of the link is that of the train builder (docs/protocols.md 7.2).
    let link = |detector: u64| (output as u64) << 32 | detector & 0xFFFF_FFFF;
    out.clear();
    match (train.module(module, spec), &train.modules[module]) {
        (Some(whole), Some(found)) => {
            let at = whole.sections();
            out.extend_from_slice(&found.bytes[..at.builder_specific]);
            out.extend_from_slice(&section);
            out.extend_from_slice(&found.bytes[at.trailer..at.end]);
            let head = whole.header();
            let numbers = TrainNumbers {
                version: head.version(),
                train_id: train.train_id,
                data_id: head.data_id(),
                link_id: link(head.link_id()),
            };
            write_header(out, &numbers, &spec.shape(whole.images(), section.len()));
        }
        _ => {
            let shape = spec.shape(0, section.len());
            let Some(at) = shape.sections() else { return };
            out.resize(at.end, 0);
            out[at.builder_specific..at.trailer].copy_from_slice(&section);
            let numbers = TrainNumbers { version: (2, 1), train_id: train.train_id, data_id: 0, link_id: link(module as u64) };
            write_header(out, &numbers, &shape);
            write_end(out);
        }
    }
}
