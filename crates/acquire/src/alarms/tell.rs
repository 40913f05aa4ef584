//! Tells a program and ZeroMQ subscribers of each change, one after the other, on a thread of its own.

use crate::events::EventLog;
use crate::handle::{AlarmStatus, Severity};
use crate::hooks::{self, About};
use crossbeam_channel::{Sender, bounded};
use konkordia_config::alarms::AlarmSettings;
use konkordia_core::failure::{Exit, Failure, reason};
use serde_json::json;
use std::thread::Builder;

/// Changes that may wait while the program runs. Further ones are in the events and the status all the same.
const WAITING_MAX: usize = 64;

/// The way to the thread.
pub struct Teller(Sender<(AlarmStatus, u64)>);

impl Teller {
    /// Opens the socket and starts the thread, if there is something to tell anybody.
    ///
    /// # Errors
    /// The address cannot be used, or there are no threads left.
    pub fn open(settings: &AlarmSettings, detector: &str, events: &EventLog) -> Result<Option<Self>, Failure> {
        if settings.program.is_empty() && settings.address.is_none() {
            return Ok(None);
        }
        let failed = |what: String, why: String| Failure::new(Exit::Io, what, why, "correct [alarms] in the configuration");
        let socket = settings.address.as_ref().map(|address| {
            let open = || {
                let socket = zmq::Context::new().socket(zmq::PUB)?;
                socket.set_linger(500)?;
                socket.bind(address)?;
                Ok(socket)
            };
            open().map_err(|error: zmq::Error| failed(format!("alarms cannot be published at {address}"), error.to_string()))
        });
        let socket = socket.transpose()?;
        let (sender, changes) = bounded::<(AlarmStatus, u64)>(WAITING_MAX);
        let (program, timeout, detector) = (settings.program.clone(), settings.timeout, detector.to_owned());
        let events = events.clone();
        let tell = move || {
            while let Ok((status, run)) = changes.recv() {
                if let Some(socket) = &socket {
                    let message = json!({ "detector": detector, "run": run, "alarm": status }).to_string();
                    // A publisher that has no subscribers drops it.
                    let _ = socket.send_multipart([b"alarm".as_slice(), message.as_bytes()], 0);
                }
                let about = About { detector: detector.clone(), run, images: None, file: None };
                let state = if status.raised { "raised" } else { "ended" };
                let message = status.message.as_deref().unwrap_or_default();
                let more = [
                    ("KONKORDIA_ALARM", status.name.as_str()),
                    ("KONKORDIA_ALARM_STATE", state),
                    ("KONKORDIA_ALARM_MESSAGE", message),
                ];
                if let Err(failure) = hooks::run_with("alarms.program", &program, timeout, &about, &more) {
                    let data = json!({ "why": failure.why, "fix": failure.fix });
                    events.remark(Some(&detector), Severity::Warning, failure.what, data);
                }
            }
        };
        let spawned = Builder::new().name("alarms".into()).spawn(tell);
        spawned.map_err(|error| failed("the thread of the alarms cannot be started".into(), reason(&error)))?;
        Ok(Some(Self(sender)))
    }

    /// Tells of a change, soon.
    pub fn tell(&self, status: &AlarmStatus, run: u64) {
        let _ = self.0.try_send((status.clone(), run));
    }
}
