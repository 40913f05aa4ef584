//! Credits of a receiver to its modules, by telegrams over TCP, from one thread for each module: a module that does not
//! answer holds up neither the data nor the other modules. What waits is bounded by the number of slots, because the
//! newest credit of a slot says all.

use super::telegrams::{answer, connect, lock, write};
use crate::console;
use konkordia_fabric::rashpa::telegram::{Body, Code, Credits, Grant, Name, Telegram};
use konkordia_fabric::rashpa::terms::{ModuleId, ReceiveBufferId};
use std::collections::BTreeMap;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// A module answers within this time, or the connection is made anew.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pause behind a connection that failed.
const PAUSE: Duration = Duration::from_millis(300);
/// Slots of one telegram.
const GRANTS_MAX: usize = 1000;

type Waiting = BTreeMap<(u16, u32), u64>;

struct Shared {
    waiting: Mutex<Waiting>,
    more: Condvar,
    is_over: AtomicBool,
    told: AtomicU64,
}

/// The credits of one module.
pub struct CreditLine {
    shared: Arc<Shared>,
}

impl CreditLine {
    /// For a run, to a module that takes telegrams at `address`; `from` is the name of the receiver.
    pub fn open(run: u32, module: ModuleId, address: String, from: Name) -> std::io::Result<Self> {
        let shared = Shared {
            waiting: Mutex::new(Waiting::new()),
            more: Condvar::new(),
            is_over: AtomicBool::new(false),
            told: AtomicU64::new(0),
        };
        let shared = Arc::new(shared);
        let of_thread = Arc::clone(&shared);
        let work =
            move || Teller { run, module, address, from, shared: &of_thread, stream: None, number: 0, has_failed: false }.tell();
        std::thread::Builder::new().name("credits".into()).spawn(work)?;
        Ok(Self { shared })
    }

    /// Adds a credit.
    pub fn grant(&self, buffer: ReceiveBufferId, slot: u32, fills: u64) {
        lock(&self.shared.waiting).insert((buffer.0, slot), fills);
        self.shared.more.notify_one();
    }

    /// Credits that the module has confirmed.
    pub fn told(&self) -> u64 {
        self.shared.told.load(Ordering::Acquire)
    }
}

impl Drop for CreditLine {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Release);
        self.shared.more.notify_one();
    }
}

struct Teller<'a> {
    run: u32,
    module: ModuleId,
    address: String,
    from: Name,
    shared: &'a Shared,
    stream: Option<TcpStream>,
    number: u32,
    has_failed: bool,
}

impl Teller<'_> {
    fn tell(&mut self) {
        while let Some((buffer, grants)) = self.next() {
            let count = grants.len() as u64;
            match self.send(buffer, grants.clone()) {
                Ok(()) => {
                    self.shared.told.fetch_add(count, Ordering::AcqRel);
                }
                Err(why) => {
                    self.stream = None;
                    if !std::mem::replace(&mut self.has_failed, true) {
                        console::note(&format!("credits do not reach {}: {why}", self.module));
                    }
                    let mut waiting = lock(&self.shared.waiting);
                    for grant in grants {
                        let newest = waiting.entry((buffer.0, grant.slot)).or_default();
                        *newest = (*newest).max(grant.fills);
                    }
                    drop(waiting);
                    std::thread::sleep(PAUSE);
                }
            }
        }
    }

    /// Waits for credits of one receive buffer; `None` when the run is over.
    fn next(&self) -> Option<(ReceiveBufferId, Vec<Grant>)> {
        let mut waiting = lock(&self.shared.waiting);
        loop {
            if self.shared.is_over.load(Ordering::Acquire) {
                return None;
            }
            if let Some((buffer, _)) = waiting.keys().next().copied() {
                let keys: Vec<(u16, u32)> =
                    waiting.range((buffer, 0)..=(buffer, u32::MAX)).map(|(key, _)| *key).take(GRANTS_MAX).collect();
                let grants = keys.iter().filter_map(|key| Some(Grant { slot: key.1, fills: waiting.remove(key)? })).collect();
                return Some((ReceiveBufferId(buffer), grants));
            }
            waiting = self.shared.more.wait_timeout(waiting, PAUSE).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn send(&mut self, buffer: ReceiveBufferId, grants: Vec<Grant>) -> Result<(), String> {
        let stream = match self.stream.take() {
            Some(stream) => stream,
            None => connect(&self.address, PATIENCE).map_err(|why| why.to_string())?,
        };
        self.number = self.number.wrapping_add(1);
        let body = Body::Credit(Credits { run: self.run, buffer, grants });
        let telegram = Telegram { number: self.number, sender: self.from.clone(), body };
        write(&stream, &telegram).map_err(|why| why.to_string())?;
        let answer = answer(&stream, PATIENCE).map_err(|why| why.to_string())?;
        self.stream = Some(stream);
        match answer.body {
            Body::Ack(_) => Ok(()),
            // The module has stopped, or is in its next run: nobody needs these credits any more.
            Body::Nack(nack) if nack.code == Code::Order => Ok(()),
            Body::Nack(nack) => Err(nack.reason.as_str().to_owned()),
            other => Err(format!("it answers with {}", other.element())),
        }
    }
}
