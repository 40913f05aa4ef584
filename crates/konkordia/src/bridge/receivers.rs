//! What `konkordia bridge run` receives with: ordinary sockets, or AF_XDP with the program in the kernel.

use super::args::{ReceiveArg, RunArgs};
use konkordia_core::failure::{Exit, Failure, reason};
use konkordia_core::ports::Source;
use konkordia_core::text;
use konkordia_fabric::bridge::{AddressTable, LookUp, METADATA_BYTES, Metadata};
use konkordia_sources::backend::no_sockets;
use konkordia_sources::frame::Refused;
use konkordia_sources::udp::UdpReceiver;
use konkordia_sources::xdp::{self, XdpReceiver};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::Duration;

/// The receivers of all ports of a program.
pub enum Receivers {
    /// Of ordinary sockets.
    Sockets(Vec<(u16, UdpReceiver)>),
    /// Of AF_XDP, whose datagrams have the metadata of the program in front.
    Xdp(Vec<(u16, XdpReceiver)>),
}

// Both name the same 16 bytes.
const _: () = assert!(METADATA_BYTES == xdp::METADATA_BYTES);

/// Takes port, metadata and datagram.
type Take<'a> = &'a mut dyn FnMut(u16, Option<Metadata>, &[u8]);

impl Receivers {
    pub fn open(args: &RunArgs, table: &AddressTable) -> Result<Self, Failure> {
        let bytes = args.receive_buffer_mib << 20;
        let addresses: Vec<SocketAddr> = table.ports().map(|port| SocketAddr::new(args.address, port)).collect();
        match args.receive {
            ReceiveArg::Socket => {
                addresses.iter().map(|address| socket(*address, bytes)).collect::<Result<_, _>>().map(Self::Sockets)
            }
            ReceiveArg::Xdp => {
                let look_up = LookUp::new(table).map_err(|why| {
                    let what = format!("{} cannot be a program of XDP", table.name());
                    Failure::new(Exit::Configuration, what, why, "make a smaller program, or receive with --receive socket")
                })?;
                let options = xdp::Options { buffer_bytes: bytes, ..xdp::Options::default() };
                let opened = xdp::open_with_metadata(&addresses, &|a| look_up.put(a), &options)
                    .map_err(|why| in_words_of_this_command(no_sockets(&addresses, why)))?;
                Ok(Self::Xdp(table.ports().zip(opened).collect()))
            }
        }
    }

    pub fn count(&self) -> usize {
        match self {
            Self::Sockets(all) => all.len(),
            Self::Xdp(all) => all.len(),
        }
    }

    /// What a person should know of how they were opened.
    pub fn notes(&self) -> &[String] {
        match self {
            Self::Xdp(all) => all.first().map_or(&[], |(_, receiver)| &receiver.report().notes),
            Self::Sockets(_) => &[],
        }
    }

    /// Takes what has come for receiver `index`; returns how many datagrams.
    pub fn receive(&mut self, index: usize, wait: Duration, take: Take<'_>) -> Result<usize, Failure> {
        let (port, received) = match self {
            Self::Sockets(all) => {
                let (port, receiver) = &mut all[index];
                (*port, receiver.receive(wait, &mut |datagram, _| take(*port, None, datagram)))
            }
            Self::Xdp(all) => {
                let (port, receiver) = &mut all[index];
                let mut take = |bytes: Option<&[u8; METADATA_BYTES]>, datagram: &[u8], _| {
                    take(*port, bytes.map(Metadata::read), datagram);
                };
                (*port, receiver.receive_with_metadata(wait, &mut take))
            }
        };
        received.map_err(|error| {
            Failure::new(Exit::Io, format!("port {port} failed"), reason(&error), "look at the network interface")
        })
    }

    /// What is known of the packets beside the account of the bridge.
    pub fn account(&mut self, addressed_by_kernel: u64) -> Received {
        let mut received = Received { dropped: 0, refused: Vec::new(), addressed_by_kernel };
        match self {
            Self::Sockets(all) => received.dropped = all.iter_mut().map(|(_, receiver)| receiver.dropped()).sum(),
            Self::Xdp(all) => {
                received.dropped = all.iter_mut().map(|(_, receiver)| receiver.dropped()).sum();
                let of = |why| all.iter().map(|(_, receiver)| receiver.refusals().of(why)).sum();
                received.refused = Refused::ALL.into_iter().map(|why| (why, of(why))).filter(|(_, count)| *count > 0).collect();
            }
        }
        received
    }
}

/// Advice names keys of a configuration, which this command does not have.
fn in_words_of_this_command(mut failure: Failure) -> Failure {
    let words = [
        ("write receive = \"socket\" in [source]", "receive with --receive socket"),
        ("set [source] address to", "set --address to"),
        ("change [source] first_port", "change the ports of the program"),
    ];
    for (key, option) in words {
        failure.fix = failure.fix.replace(key, option);
    }
    failure
}

fn socket(address: SocketAddr, bytes: usize) -> Result<(u16, UdpReceiver), Failure> {
    let source = UdpReceiver::bind(address, bytes).map_err(|error| {
        let fix = "give an address of this machine, or end the program that has the port";
        Failure::new(Exit::Io, format!("cannot receive at {address}"), reason(&error), fix)
    })?;
    Ok((address.port(), source))
}

/// Packets as the receivers count them.
pub struct Received {
    /// Lost before this program saw them.
    pub dropped: u64,
    /// Frames that were no sound datagrams, by reason.
    pub refused: Vec<(Refused, u64)>,
    /// Packets whose address the kernel has looked up.
    pub addressed_by_kernel: u64,
}

impl Received {
    pub fn refused_json(&self) -> Value {
        self.refused.iter().map(|(why, count)| (why.name().to_owned(), json!(count))).collect::<serde_json::Map<_, _>>().into()
    }

    /// Behind the packets, where there is something to say.
    pub fn text(&self) -> String {
        let refused = self.refused.iter().map(|(why, count)| format!("; {} refused: {}", text::count(*count), why.advice()));
        let kernel = (self.addressed_by_kernel > 0)
            .then(|| format!("; the kernel found {} addresses", text::count(self.addressed_by_kernel)));
        refused.chain(kernel).collect()
    }
}
