//! Several streams on one UDP port: the kernel chooses the socket of a datagram by a number that stands in it. Senders
//! by RoCEv2 all write to the same port, and the number of the queue pair says which stream it is.
//!
//! Each stream has a socket in a group (`SO_REUSEPORT`) with a filter program that names the socket
//! (`SO_ATTACH_REUSEPORT_CBPF`). A datagram of another number goes to any of the sockets; its decoder refuses it. With
//! rings the filters of the rings compare the number, and a datagram of another number goes to the first stream.

use crate::sys::options;
use crate::udp::UdpReceiver;
use socket2::{Domain, Socket, Type};
use std::io;
use std::net::{SocketAddr, UdpSocket};

/// The number of 24 bits, big-endian, that says which stream a datagram is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedPort {
    /// Where its last three bytes end in the datagram; at least 4.
    pub end_byte: u32,
    /// The number of stream 0; those of the others follow.
    pub first: u32,
}

/// One of the streams that share a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SharingStream {
    /// What tells them apart.
    pub shared: SharedPort,
    /// Which it is.
    pub stream: u32,
    /// How many there are.
    pub streams: u32,
}

/// The bits of the number in the four bytes that end with it.
pub(crate) const NUMBER_MASK: u32 = 0xFF_FFFF;

impl SharedPort {
    /// Loads the number and returns the index of the socket in the group, in the order in which they were bound.
    fn program(self) -> [libc::sock_filter; 4] {
        use libc::{BPF_A, BPF_ABS, BPF_ALU, BPF_AND, BPF_K, BPF_LD, BPF_RET, BPF_SUB, BPF_W};
        let step = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
        [
            step(BPF_LD | BPF_W | BPF_ABS, self.end_byte - 4),
            step(BPF_ALU | BPF_AND | BPF_K, NUMBER_MASK),
            step(BPF_ALU | BPF_SUB | BPF_K, self.first),
            step(BPF_RET | BPF_A, 0),
        ]
    }

    /// One socket for each stream, all at `address`. The kernel joins no datagrams for them: it would join those of
    /// several streams, if they come from one port of the sender.
    ///
    /// # Errors
    /// As [`UdpReceiver::bind`]; also if a program that shares its ports has this one.
    pub(crate) fn bind(self, address: SocketAddr, streams: usize, receive_buffer_bytes: usize) -> io::Result<Vec<UdpReceiver>> {
        // A group takes in every socket of this user: whether somebody has the port, only a socket of its own shows.
        let address = UdpSocket::bind(address)?.local_addr()?;
        let sockets = (0..streams).map(|_| open(address)).collect::<io::Result<Vec<_>>>()?;
        if let Some(first) = sockets.first() {
            options::attach_steering(first, &self.program())?;
        }
        sockets.into_iter().map(|socket| UdpReceiver::over(socket, receive_buffer_bytes)).collect()
    }
}

/// A socket that lets others have its port.
fn open(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, None)?;
    socket.set_reuse_port(true)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::udp::UdpSender;
    use konkordia_core::ports::Source;
    use std::time::Duration;

    fn datagram(number: u32, content: u8) -> Vec<u8> {
        let mut bytes = vec![0xEE; 5];
        bytes.extend(&number.to_be_bytes()[1..]);
        bytes.push(content);
        bytes
    }

    /// From one port of the sender and from several; numbers of nobody and datagrams without one reach some socket.
    #[test]
    fn each_stream_gets_the_datagrams_of_its_number() {
        let port = SharedPort { end_byte: 8, first: 0xFF_FFFD };
        let mut receivers = port.bind("127.0.0.1:0".parse().unwrap(), 3, 1 << 20).unwrap();
        let address = receivers[0].local_addr().unwrap();
        assert!(receivers.iter().all(|receiver| receiver.local_addr().unwrap() == address));
        for mut sender in (0..20).map(|_| UdpSender::connect(address).unwrap()) {
            for stream in 0..3 {
                sender.send(&datagram(port.first + stream, stream as u8)).unwrap();
            }
        }
        let mut strangers = UdpSender::connect(address).unwrap();
        strangers.send(&datagram(7, 99)).unwrap();
        strangers.send(&[99]).unwrap();
        let mut of_strangers = 0;
        for (stream, receiver) in receivers.iter_mut().enumerate() {
            let mut own = 0;
            while own < 20 {
                let take = &mut |datagram: &[u8], _| match datagram.last() {
                    Some(99) => of_strangers += 1,
                    content => {
                        assert_eq!(content, Some(&(stream as u8)));
                        own += 1;
                    }
                };
                receiver.receive(Duration::from_secs(5), take).unwrap();
            }
            receiver.receive(Duration::ZERO, &mut |_, _| of_strangers += 1).unwrap();
        }
        assert_eq!(of_strangers, 2);
    }

    #[test]
    fn a_port_that_somebody_has_is_refused() {
        let port = SharedPort { end_byte: 8, first: 1 };
        let receivers = port.bind("127.0.0.1:0".parse().unwrap(), 2, 1 << 20).unwrap();
        let address = receivers[0].local_addr().unwrap();
        let refused = port.bind(address, 2, 1 << 20).map(|_| ()).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
    }
}
