//! Trains as messages of karabo-bridge. A message is made once, with a copy of the pixels: clients that are slow hold
//! their messages, and not the buffers of the modules.

use super::shared::SharedTrain;
use bytes::Bytes;
use crossbeam_channel::{Receiver, RecvTimeoutError};
use konkordia_core::endpoint::PEERS_MAX;
use konkordia_core::failure::{Exit, Failure, reason};
use konkordia_core::tile::XfelDetector;
use konkordia_fabric::trains::flags;
use konkordia_sinks::zmq::{Context, Sent, ZmqOut, ZmqOutSpec, ZmqReply, ZmqRequest};
use konkordia_wire::karabo_bridge::{BridgeArray, BridgeSource, Value, write_source};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// Longest wait for requests, or for trains.
const WAIT: Duration = Duration::from_millis(5);
/// How long a message waits for a client of PULL that takes nothing.
const PATIENCE: Duration = Duration::from_millis(1);
/// Messages of a client of PULL that wait in libzmq; they may be of GB size.
const PUSH_QUEUE: i32 = 1;

/// What became of trains.
#[derive(Clone, Debug, Default)]
pub struct BridgeCounts {
    /// Messages that clients got.
    pub sent: u64,
    /// Trains that no client got, because none asked or had room.
    pub skipped: u64,
}

/// Answers clients of REQ.
pub struct Replies {
    socket: ZmqReply,
    name: String,
}

impl Replies {
    /// Listens at `address`.
    pub fn listen(context: &Context, address: &str, name: &str) -> Result<Self, Failure> {
        let socket = ZmqReply::listen(context, address, PEERS_MAX).map_err(|error| unopened(&error))?;
        Ok(Self { socket, name: name.to_owned() })
    }

    /// Where it listens.
    pub fn address(&self) -> &str {
        self.socket.name()
    }

    /// Runs until `trains` ends. Each client that asks gets the newest train that it did not have, or the next one.
    pub fn run(mut self, trains: &Receiver<Arc<SharedTrain>>) -> Result<BridgeCounts, Failure> {
        let mut counts = BridgeCounts::default();
        let mut waiting: Vec<Vec<u8>> = Vec::new();
        // The newest train that each client had, by its identity.
        let mut had: HashMap<Vec<u8>, u64> = HashMap::new();
        let mut newest: Option<(u64, Vec<Bytes>)> = None;
        loop {
            while let Some(ZmqRequest { client, .. }) = self.socket.request(Duration::ZERO).map_err(|error| broken(&error))? {
                let is_new = !waiting.contains(&client) && waiting.len() < PEERS_MAX;
                if is_new {
                    waiting.push(client);
                }
            }
            match trains.recv_timeout(WAIT) {
                Ok(train) => newest = Some((train.train.train_id, message(&train, &self.name))),
                Err(RecvTimeoutError::Timeout) => (),
                Err(RecvTimeoutError::Disconnected) => return Ok(counts),
            }
            let Some((train_id, parts)) = &newest else { continue };
            let mut still = Vec::new();
            for client in waiting.drain(..) {
                if had.get(&client) == Some(train_id) {
                    still.push(client);
                } else if self.socket.answer(&client, parts).map_err(|error| broken(&error))? {
                    counts.sent += 1;
                    if had.len() >= 4 * PEERS_MAX {
                        had.clear();
                    }
                    had.insert(client, *train_id);
                }
            }
            waiting = still;
        }
    }
}

/// Sends to clients of PULL.
pub struct Pushes {
    socket: ZmqOut,
    name: String,
}

impl Pushes {
    /// Listens at `address`.
    pub fn listen(context: &Context, address: &str, name: &str) -> Result<Self, Failure> {
        let spec = ZmqOutSpec { queue_messages: PUSH_QUEUE, ..ZmqOutSpec::push(address) };
        let socket = ZmqOut::open(context, &spec).map_err(|error| unopened(&error))?;
        Ok(Self { socket, name: name.to_owned() })
    }

    /// Where it listens.
    pub fn address(&self) -> &str {
        self.socket.name()
    }

    /// Runs until `trains` ends.
    pub fn run(mut self, trains: &Receiver<Arc<SharedTrain>>) -> Result<BridgeCounts, Failure> {
        let mut counts = BridgeCounts::default();
        for train in trains {
            if !self.socket.has_receiver() {
                counts.skipped += 1;
                continue;
            }
            let parts = message(&train, &self.name);
            drop(train);
            match self.socket.send(&parts, PATIENCE).map_err(|error| broken(&error))? {
                Sent::Sent => counts.sent += 1,
                Sent::Full | Sent::NoPeer => counts.skipped += 1,
            }
        }
        Ok(counts)
    }
}

/// The message of a train: a source for each module that is there, named as in files, and one of the builder. A module
/// that is missing has no source: `extra_data.stack_detector_data` leaves its place empty.
pub fn message(shared: &SharedTrain, name: &str) -> Vec<Bytes> {
    let train = &shared.train;
    let mut parts = Vec::new();
    for module in 0..train.modules.len() {
        if let Some(source) = module_source(shared, module, name) {
            write_source(source, train.train_id, shared.time_ns, &mut parts);
        }
    }
    let missing = (0..train.flags.len() as u64).filter(|module| train.flags[*module as usize] & flags::ABSENT != 0);
    let mut values = vec![
        ("modules.flags".to_owned(), Value::Integers(train.flags.iter().map(|flags| u64::from(*flags)).collect())),
        ("modules.missing".to_owned(), Value::Integers(missing.collect())),
        ("trains.lost_before".to_owned(), Value::Integer(train.lost_before)),
    ];
    values.extend(train.injected.iter().map(|(name, value)| (format!("injected.{name}"), Value::Number(*value))));
    let source = BridgeSource { name: format!("{name}/TRAINS/BUILDER:output"), values, arrays: Vec::new() };
    write_source(source, train.train_id, shared.time_ns, &mut parts);
    parts
}

fn module_source(shared: &SharedTrain, module: usize, name: &str) -> Option<BridgeSource> {
    let found = shared.train.modules[module].as_ref()?;
    let train = shared.train.module(module, &shared.spec)?;
    let (at, images, head) = (train.sections(), train.images(), train.header());
    let copied = |start: usize, bytes: usize| Bytes::copy_from_slice(&found.bytes[start..][..bytes]);
    let array = |path, dtype, shape, bytes| BridgeArray { path, dtype, shape, bytes };
    let (rows, columns) = shared.spec.detector.image_size();
    let mut shape = vec![images, rows as usize, columns as usize];
    if shared.spec.detector == XfelDetector::Agipd {
        shape = vec![images, 2, rows as usize / 2, columns as usize];
    }
    let ids = shared.train.train_id.to_le_bytes().repeat(images);
    let mut arrays = vec![
        array("image.data", "uint16", shape.clone(), Bytes::copy_from_slice(train.all_images())),
        array("image.cellId", "uint16", vec![images], copied(at.cell_ids, 2 * images)),
        array("image.pulseId", "uint64", vec![images], copied(at.pulse_ids, 8 * images)),
        array("image.status", "uint16", vec![images], copied(at.states, 2 * images)),
        array("image.length", "uint32", vec![images], copied(at.lengths, 4 * images)),
        array("image.trainId", "uint64", vec![images], ids.into()),
        array("detector.data", "uint8", vec![train.detector_specific().len()], Bytes::copy_from_slice(train.detector_specific())),
    ];
    if !found.missing.is_empty() {
        // One byte for each pixel, 1 = it did not arrive; only where some did not.
        let mut mask = vec![0; train.all_images().len() / 2];
        let image_pixels = shared.spec.image_bytes() / 2;
        found.missing.iter().for_each(|(image, marks)| mask[image * image_pixels..][..image_pixels].copy_from_slice(marks));
        arrays.push(array("image.mask", "uint8", shape, mask.into()));
    }
    let values = vec![
        ("header.trainId".to_owned(), Value::Integer(head.train_id())),
        ("header.dataId".to_owned(), Value::Integer(head.data_id())),
        ("header.linkId".to_owned(), Value::Integer(head.link_id())),
        ("header.pulseCount".to_owned(), Value::Integer(head.image_count())),
        ("trailer.status".to_owned(), Value::Integer(train.train_status())),
    ];
    Some(BridgeSource { name: format!("{name}/DET/{module}CH0:xtdf"), values, arrays })
}

pub fn unopened(error: &std::io::Error) -> Failure {
    Failure::new(Exit::Io, "cannot open the bridge", reason(error), "give another address")
}

pub fn broken(error: &std::io::Error) -> Failure {
    Failure::new(Exit::Io, "the bridge failed", reason(error), "start the command again")
}
