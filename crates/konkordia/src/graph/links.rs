//! The sockets of a process of a graph: ROUTER where an edge begins, DEALER where it ends. Neither waits for a partner.

use konkordia_core::failure::{Exit, Failure};
use konkordia_graph::message::Message;
use konkordia_graph::producer::MEMBERS_MAX;
use konkordia_zeromq::{MonitoredSocket, Place};
use std::io;
use zmq::{Context, DONTWAIT, SNDMORE};

/// Messages that wait for a producer that cannot be reached.
const WAITING_MAX: i32 = 4096;

fn unopened(address: &str, error: &io::Error) -> Failure {
    let fix = "give the edge another port or the host another address in the graph file, or end the program that has it";
    Failure::new(Exit::Io, format!("the graph cannot use {address}"), error.to_string(), fix)
}

/// The socket at the beginning of an edge.
///
/// # Errors
/// It cannot listen there.
pub fn listen(context: &Context, address: &str) -> Result<MonitoredSocket, Failure> {
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
    MonitoredSocket::open(context, zmq::ROUTER, place, configure).map_err(|error| unopened(address, &error))
}

/// The socket at the end of an edge, with the name of the process.
///
/// # Errors
/// The address is not valid.
pub fn connect(context: &Context, address: &str, member: &str) -> Result<MonitoredSocket, Failure> {
    let place = Place { address, bind: false, peers_max: 1 };
    let configure = |socket: &mut zmq::Socket| {
        socket.set_identity(member.as_bytes())?;
        socket.set_sndhwm(WAITING_MAX)?;
        // What is said while there is no connection is not kept.
        socket.set_immediate(true)?;
        socket.set_linger(500)?;
        Ok(())
    };
    MonitoredSocket::open(context, zmq::DEALER, place, configure).map_err(|error| unopened(address, &error))
}

/// Sends to a member. False if it has no connection.
pub fn send(router: &MonitoredSocket, to: &str, message: &Message, image: Option<&[u8]>) -> bool {
    let socket = &router.socket;
    let more = if image.is_some() { SNDMORE } else { 0 };
    let head = socket.send(to.as_bytes(), SNDMORE | DONTWAIT).and_then(|()| socket.send(message.encode(), more | DONTWAIT));
    head.and_then(|()| image.map_or(Ok(()), |image| socket.send(image, DONTWAIT))).is_ok()
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
