//! How messages get from process to process. By ZeroMQ: ROUTER where an edge begins, DEALER where it ends. By MPI: see
//! [`super::ranks`]. Neither waits for a partner.

use super::ranks::{Lane, Post};
use konkordia_core::endpoint::PeerEvent;
use konkordia_core::failure::{Exit, Failure};
use konkordia_graph::file::{Edge, Graph, Transport};
use konkordia_graph::message::{Message, add_to_row, decode_row};
use konkordia_graph::producer::MEMBERS_MAX;
use konkordia_zeromq::{MonitoredSocket, Place, send_shared};
use std::cell::RefCell;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use zmq::{Context, DONTWAIT, SNDMORE};

/// Smaller images are copied, which takes less time than to share them.
const COPIED_BYTES_MAX: usize = 4096;
/// Messages that wait for a producer that cannot be reached.
const WAITING_MAX: i32 = 4096;

/// Where the processes of a graph find each other.
#[derive(Clone)]
pub struct Network<'a> {
    /// The graph.
    pub graph: &'a Graph,
    /// Sockets of one host are files in it.
    pub folder: &'a Path,
    /// Sockets of threads of one process are in the same context.
    pub context: &'a Context,
    /// The other ranks, if `mpirun` has started this one.
    pub post: Option<Rc<RefCell<Post>>>,
}

/// The beginning of an edge.
pub enum Listener {
    /// A ROUTER.
    ZeroMq(MonitoredSocket),
    /// Ranks.
    Mpi(Lane),
}

/// The end of an edge at one of the processes where it begins.
pub enum Connection {
    /// A DEALER, and what is to be said.
    ZeroMq(MonitoredSocket, Vec<u8>),
    /// A rank, and what is to be said.
    Mpi(Lane, usize, Vec<u8>),
}

fn unopened(address: &str, error: &io::Error) -> Failure {
    let fix = "give the edge another port or the host another address in the graph file, or end the program that has it";
    Failure::new(Exit::Io, format!("the graph cannot use {address}"), error.to_string(), fix)
}

impl Network<'_> {
    fn lane(&self, edge: &Edge) -> Result<Lane, Failure> {
        let number = self.graph.edges.iter().position(|other| std::ptr::eq(other, edge)).unwrap_or(0);
        let post = self.post.clone().ok_or_else(|| {
            let fix = "start it by mpirun: `mpirun --with-ft ulfm -n PROCESSES konkordia graph run GRAPH`";
            Failure::new(Exit::Usage, "an edge of the graph is MPI", "mpirun has not started this process", fix)
        })?;
        Ok(Lane::new(post, number))
    }

    /// The beginning of an edge at its process with this number.
    ///
    /// # Errors
    /// It cannot listen there.
    pub fn listen(&self, edge: &Edge, index: u32) -> Result<Listener, Failure> {
        if edge.transport == Transport::Mpi {
            return self.lane(edge).map(Listener::Mpi);
        }
        let anywhere = edge.transport == Transport::Tcp && edge.port == 0;
        let address = match anywhere {
            true => "tcp://*:*".to_owned(),
            false => self.graph.address(edge, index, &self.folder.display().to_string()),
        };
        let address = address.as_str();
        let place = Place { address, bind: true, peers_max: MEMBERS_MAX };
        let configure = |socket: &mut zmq::Socket| {
            // A message to a partner without a connection fails at once.
            socket.set_router_mandatory(true)?;
            // A process that was started again has the name of the one that died.
            socket.set_router_handover(true)?;
            // Credits and heartbeats bound what waits for a partner.
            socket.set_sndhwm(0)?;
            socket.set_linger(0)?;
            Ok(())
        };
        let opened = MonitoredSocket::open(self.context, zmq::ROUTER, place, configure);
        opened.map(Listener::ZeroMq).map_err(|error| unopened(address, &error))
    }

    /// The end of an edge, at its process `member`, to the process with this number.
    ///
    /// # Errors
    /// The address is not valid.
    pub fn connect(&self, edge: &Edge, index: u32, member: &str) -> Result<Connection, Failure> {
        if edge.transport == Transport::Mpi {
            let from = format!("{}-{index}", edge.from);
            let rank = self.graph.members().position(|(_, name)| name == from).unwrap_or(usize::MAX);
            return self.lane(edge).map(|lane| Connection::Mpi(lane, rank, Vec::new()));
        }
        self.connect_to(&self.graph.address(edge, index, &self.folder.display().to_string()), member)
    }

    /// The same by an address that was found in a directory.
    ///
    /// # Errors
    /// The address is not valid.
    pub fn connect_to(&self, address: &str, member: &str) -> Result<Connection, Failure> {
        let place = Place { address, bind: false, peers_max: 1 };
        let configure = |socket: &mut zmq::Socket| {
            socket.set_identity(member.as_bytes())?;
            socket.set_sndhwm(WAITING_MAX)?;
            // What is said while there is no connection is not kept.
            socket.set_immediate(true)?;
            socket.set_linger(500)?;
            Ok(())
        };
        let opened = MonitoredSocket::open(self.context, zmq::DEALER, place, configure);
        opened.map(|socket| Connection::ZeroMq(socket, Vec::new())).map_err(|error| unopened(address, &error))
    }
}

impl Listener {
    /// The socket, if there is one.
    pub fn socket(&self) -> Option<&zmq::Socket> {
        match self {
            Self::ZeroMq(socket) => Some(&socket.socket),
            Self::Mpi(_) => None,
        }
    }

    /// Its port, if it has one.
    pub fn port(&self) -> Option<u16> {
        match self {
            Self::ZeroMq(socket) => socket.name().rsplit(':').next()?.parse().ok(),
            Self::Mpi(_) => None,
        }
    }

    /// Notes which partners have come and gone. Returns those that are known to have died, and whether there is one of
    /// which the name is not known.
    pub fn look(&mut self) -> (Vec<String>, bool) {
        match self {
            Self::ZeroMq(socket) => {
                let mut has_lost = false;
                socket.note_peers(|event| has_lost |= matches!(event, PeerEvent::Closed(_)));
                (Vec::new(), has_lost)
            }
            Self::Mpi(lane) => (lane.dead(), false),
        }
    }

    /// Sends to a member. False if it has no connection.
    pub fn send(&mut self, to: &str, message: &Message, image: Option<&Arc<Vec<u8>>>) -> bool {
        let socket = match self {
            Self::ZeroMq(socket) => &mut socket.socket,
            Self::Mpi(lane) => return lane.send_down(to, &message.encode(), image.map_or(&[], |image| &image[..])),
        };
        let more = if image.is_some() { SNDMORE } else { 0 };
        let head = socket.send(to.as_bytes(), SNDMORE | DONTWAIT).and_then(|()| socket.send(message.encode(), more | DONTWAIT));
        let image = |socket: &mut zmq::Socket| match image {
            None => Ok(()),
            Some(image) if image.len() < COPIED_BYTES_MAX => socket.send(&image[..], DONTWAIT),
            Some(image) => send_shared(socket, Arc::clone(image), 0),
        };
        head.and_then(|()| image(socket)).is_ok()
    }

    /// Messages of a member, if there are any. `None` in it: what came is no message.
    pub fn take(&self) -> Option<Option<(String, Vec<Message>)>> {
        match self {
            Self::ZeroMq(socket) => {
                let parts = take(&socket.socket, 2)?;
                let [from, head] = &parts[..] else { return Some(None) };
                Some(from.as_str().and_then(|from| Some((from.to_owned(), decode_row(head).ok()?))))
            }
            Self::Mpi(lane) => {
                let (from, row) = lane.take_up()?;
                Some(decode_row(&row).ok().map(|messages| (from, messages)))
            }
        }
    }
}

impl Connection {
    /// The socket, if there is one.
    pub fn socket(&self) -> Option<&zmq::Socket> {
        match self {
            Self::ZeroMq(socket, _) => Some(&socket.socket),
            Self::Mpi(..) => None,
        }
    }

    /// Notes whether the partner has come or gone.
    pub fn look(&mut self) {
        if let Self::ZeroMq(socket, _) = self {
            socket.note_peers(|_| ());
        }
    }

    /// Says this to the producer, later: see [`Connection::flush`].
    pub fn say(&mut self, message: &Message) {
        let row = match self {
            Self::ZeroMq(_, row) | Self::Mpi(_, _, row) => row,
        };
        if !add_to_row(row, message) {
            self.flush();
            self.say(message);
        }
    }

    /// Sends what was said. Without a connection it is lost; the producer asks again.
    pub fn flush(&mut self) {
        match self {
            Self::ZeroMq(_, row) | Self::Mpi(_, _, row) if row.is_empty() => (),
            Self::ZeroMq(socket, row) => _ = socket.socket.send(std::mem::take(row), DONTWAIT),
            Self::Mpi(lane, rank, row) => lane.send_up(*rank, &std::mem::take(row)),
        }
    }

    /// A message with what follows it, if there is one. `None` in it: what came is no message.
    pub fn take(&self) -> Option<Option<(Message, Option<zmq::Message>)>> {
        match self {
            Self::ZeroMq(socket, _) => {
                let mut parts = take(&socket.socket, 2)?;
                let image = if parts.len() == 2 { parts.pop() } else { None };
                let message = parts.first().and_then(|head| Message::decode(head).ok());
                Some(message.map(|message| (message, image)))
            }
            Self::Mpi(lane, rank, _) => {
                let (head, image) = lane.take_down(*rank)?;
                let image = (!image.is_empty()).then(|| zmq::Message::from(image));
                Some(Message::decode(&head).ok().map(|message| (message, image)))
            }
        }
    }
}

/// Takes a message with its further parts, if one is there: at most `parts_max` of them, and no more is kept.
pub fn take(socket: &zmq::Socket, parts_max: usize) -> Option<Vec<zmq::Message>> {
    let mut parts = vec![socket.recv_msg(DONTWAIT).ok()?];
    while parts.last().is_some_and(zmq::Message::get_more) {
        let part = socket.recv_msg(DONTWAIT).ok()?;
        if parts.len() < parts_max {
            parts.push(part);
        } else if !part.get_more() {
            return Some(Vec::new());
        }
    }
    Some(parts)
}
