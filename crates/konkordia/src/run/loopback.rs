//! A simulated detector and a run in one program, connected by real sockets over loopback.

use super::arm::Prepared;
use crate::simulate::feed::Feed;
use crate::simulate::send::{Pace, Senders, Sent, send};
use konkordia_core::failure::Failure;
use konkordia_engine::control::Control;
use konkordia_engine::run::RunOutcome;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Sends images of `feed` into the prepared run: at each of these rates, in Hz, so many images. What was sent is
/// returned for each rate. `watch` is called about every 0.2 s.
pub fn transfer(
    prepared: Prepared,
    feed: &mut Feed,
    rates: &[(f64, u64)],
    watch: &mut (dyn FnMut(&Control) + Send),
) -> Result<(RunOutcome, Vec<Sent>), Failure> {
    let mut senders = Senders::connect(&prepared.opened.addresses, &[])?;
    let control = prepared.armed.control();
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
            let mut open = |_: &Sent| !done.load(Ordering::Relaxed);
            let mut first = 0;
            let of_rate = |&(rate_hz, images)| {
                let range = first..first + images;
                first = range.end;
                send(feed, &mut senders, &Pace::at(rate_hz), range, &mut open)
            };
            let sent: Result<Vec<Sent>, Failure> = rates.iter().map(of_rate).collect();
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
