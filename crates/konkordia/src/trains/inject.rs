//! Numbers of others about trains: JSON messages `{"train_id": 7, "values": {"energy_kev": 9.3}}` over ZeroMQ.

use konkordia_core::failure::{Exit, Failure, reason};
use konkordia_fabric::trains::Injected;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Trains whose numbers wait.
const TRAINS_MAX: usize = 100;
/// Longest message.
const MESSAGE_BYTES_MAX: i64 = 1 << 16;
/// Messages that are read between two trains.
const MESSAGES_MAX: usize = 100;

#[derive(Deserialize)]
struct Message {
    train_id: u64,
    values: BTreeMap<String, f64>,
}

/// Takes the messages.
pub struct Inject {
    socket: zmq::Socket,
    injected: Injected,
    /// Messages that are none.
    pub malformed: u64,
}

impl Inject {
    /// Listens at `address`.
    pub fn listen(address: &str) -> Result<Self, Failure> {
        let open = || {
            let socket = zmq::Context::new().socket(zmq::PULL)?;
            socket.set_maxmsgsize(MESSAGE_BYTES_MAX)?;
            socket.set_linger(0)?;
            socket.bind(address).map(|()| socket)
        };
        let failed = |error: zmq::Error| {
            let why = reason(&std::io::Error::other(error.to_string()));
            Failure::new(Exit::Io, format!("cannot take numbers at {address}"), why, "give another address")
        };
        Ok(Self { socket: open().map_err(failed)?, injected: Injected::new(TRAINS_MAX), malformed: 0 })
    }

    /// Reads what has come.
    pub fn read(&mut self) {
        for _ in 0..MESSAGES_MAX {
            let Ok(message) = self.socket.recv_bytes(zmq::DONTWAIT) else { return };
            match serde_json::from_slice::<Message>(&message) {
                Ok(Message { train_id, values }) => {
                    values.iter().for_each(|(name, value)| self.injected.put(train_id, name, *value));
                }
                Err(_) => self.malformed += 1,
            }
        }
    }

    /// The numbers of a train.
    pub fn take(&mut self, train_id: u64) -> Vec<(String, f64)> {
        self.read();
        self.injected.take(train_id)
    }

    /// Numbers that went with no train.
    pub fn unused(&self) -> (u64, u64) {
        (self.injected.late, self.injected.refused)
    }
}
