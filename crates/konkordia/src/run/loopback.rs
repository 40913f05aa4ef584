//! A simulated detector and a run in one program, connected by real sockets over loopback.

use super::arm::Prepared;
use crate::failure::Failure;
use crate::simulate::feed::Feed;
use crate::simulate::send::{Pace, Senders, Sent, send};
use konkordia_engine::control::Control;
use konkordia_engine::run::RunOutcome;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Without progress for so long the sender goes on: what it waits for was lost.
const PATIENCE: Duration = Duration::from_secs(1);
/// Pause between two looks at the receiver.
const LOOK_AGAIN: Duration = Duration::from_micros(20);

/// When the sender waits for the receiver.
#[derive(Clone, Copy, Debug)]
pub enum Gate {
    /// Never: a detector does not either.
    Open,
    /// While more than so many bytes are on their way, or half of the ring is in use.
    Window(u64),
}

/// Sends `images` images of `feed` into the prepared run. `watch` is called about every 0.2 s.
pub fn transfer(
    prepared: Prepared,
    feed: &mut Feed,
    pace: &Pace,
    images: u64,
    gate: Gate,
    watch: &mut (dyn FnMut(&Control) + Send),
) -> Result<(RunOutcome, Sent), Failure> {
    let mut senders = Senders::connect(&prepared.addresses, &[])?;
    let control = prepared.armed.control();
    let slots = prepared.plan.slots;
    let datagram_bytes = feed.datagram_bytes as u64;
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (control, done) = (&*control, &done);
        scope.spawn(move || {
            while !done.load(Ordering::Acquire) {
                std::thread::sleep(Duration::from_millis(200));
                if !done.load(Ordering::Acquire) {
                    watch(control);
                }
            }
        });
        let sender = std::thread::Builder::new().name("simulate".into()).spawn_scoped(scope, move || {
            let mut open = |sent: &Sent| match gate {
                Gate::Open => !done.load(Ordering::Relaxed),
                Gate::Window(bytes) => wait_for_room(control, sent, bytes / datagram_bytes, slots, done),
            };
            let sent = send(feed, &mut senders, pace, images, &mut open);
            if sent.is_err() {
                control.stop();
            }
            sent
        });
        let sender = sender.map_err(|e| Failure::io("cannot start a thread for", std::path::Path::new("the simulator"), &e))?;
        let outcome = prepared.armed.run();
        done.store(true, Ordering::Release);
        match sender.join() {
            Ok(sent) => Ok((outcome, sent?)),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Waits until there is room for more packets; false when the run has ended.
fn wait_for_room(control: &Control, sent: &Sent, packets_max: u64, slots: u64, done: &AtomicBool) -> bool {
    let start = Instant::now();
    while !done.load(Ordering::Relaxed) {
        let p = control.progress();
        let on_their_way = sent.packets.saturating_sub(p.packets_received + p.kernel_dropped);
        if (on_their_way <= packets_max && p.slots_used < slots / 2) || start.elapsed() > PATIENCE {
            return true;
        }
        std::thread::sleep(LOOK_AGAIN);
    }
    false
}
