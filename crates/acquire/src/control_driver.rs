//! The driver of a detector (`[control] driver`): a program that is called for each action, one call after the other.
//! docs/control.md describes what it gets and answers.

use crate::hooks::{self, About, Call};
use crossbeam_channel::{Sender, bounded, unbounded};
use konkordia_config::control::{DriverSettings, HookSettings};
use konkordia_core::failure::{Exit, Failure, reason};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// Version of the protocol between the service and drivers.
const PROTOCOL: u64 = 1;

/// What a driver is called for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Configure the detector, and prepare everything that can fail.
    Arm,
    /// Begin to measure, or to wait for triggers.
    Start,
    /// Expose once.
    Trigger,
    /// End the measurement, and leave nothing forced.
    Stop,
    /// Prepare for the dark frames of one gain stage.
    Pedestal,
    /// Say how the detector is.
    Status,
}

impl Action {
    /// The argument of the program.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Arm => "arm",
            Self::Start => "start",
            Self::Trigger => "trigger",
            Self::Stop => "stop",
            Self::Pedestal => "pedestal",
            Self::Status => "status",
        }
    }
}

/// What a driver answers. All of it may be absent.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Answer {
    /// What it has set, for people.
    pub set: Map<String, Value>,
    /// What the sender must announce.
    pub expected: Option<Expected>,
    /// What people should know.
    pub warnings: Vec<String>,
    /// How the detector is, in words.
    pub status: Option<String>,
    /// What to do, if it failed.
    hint: Option<String>,
}

/// What the first message of a series must say, as far as the driver has set it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Expected {
    /// Number of the series.
    pub series: Option<u64>,
    /// Images of the series.
    pub images: Option<u64>,
    /// Exposure of one image.
    pub count_time_s: Option<f64>,
    /// Time from image to image.
    pub frame_time_s: Option<f64>,
    /// Photon energy.
    pub energy_kev: Option<f64>,
    /// Rows of the image.
    pub rows: Option<u64>,
    /// Columns of the image.
    pub columns: Option<u64>,
}

/// What a driver gets to know about a run, beside the settings.
pub type Order = Map<String, Value>;

/// Gets the outcome of a call.
pub type Then = Box<dyn FnOnce(Result<Answer, Failure>) + Send>;

struct Job {
    action: Action,
    order: Order,
    about: About,
    then: Then,
}

/// Calls the driver of one detector. A call begins when the one before has ended, so the stop of a run never overtakes
/// the arm of the next one.
pub struct ControlDriver {
    jobs: Mutex<Option<Sender<Job>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl ControlDriver {
    /// The driver of the detector `name`, if it has one.
    ///
    /// # Errors
    /// The machine has no threads left.
    pub fn open(name: &str, hooks: &HookSettings) -> Result<Option<Arc<Self>>, Failure> {
        let Some(settings) = hooks.driver.clone() else { return Ok(None) };
        let (jobs, to_do) = unbounded::<Job>();
        let timeout = hooks.timeout;
        let work = move || {
            while let Ok(Job { action, order, about, then }) = to_do.recv() {
                then(call(&settings, timeout, action, order, &about));
            }
        };
        let spawned = Builder::new().name(format!("ctl-{name}")).stack_size(256 << 10).spawn(work);
        let thread = spawned
            .map_err(|e| Failure::new(Exit::Io, "cannot start a thread for the driver", reason(&e), "end other programs"))?;
        Ok(Some(Arc::new(Self { jobs: Mutex::new(Some(jobs)), thread: Mutex::new(Some(thread)) })))
    }

    /// Calls the driver after the calls before; `then` gets the outcome, in the thread of the driver.
    pub fn send(&self, action: Action, order: Order, about: About, then: Then) {
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        let unsent = match &*jobs {
            Some(sender) => sender.send(Job { action, order, about, then }).err().map(|unsent| unsent.0.then),
            None => Some(then),
        };
        drop(jobs);
        if let Some(then) = unsent {
            let why = "the service is going down";
            then(Err(Failure::new(
                Exit::State,
                format!("the detector was not called for {}", action.name()),
                why,
                "start the service again",
            )));
        }
    }

    /// Calls the driver and waits for its answer.
    ///
    /// # Errors
    /// It failed, with what it said as the reason; it took too long, or its answer cannot be read.
    pub fn call(&self, action: Action, order: Order, about: About) -> Result<Answer, Failure> {
        let (sender, receiver) = bounded(1);
        self.send(action, order, about, Box::new(move |result| drop(sender.send(result))));
        receiver.recv().unwrap_or_else(|_| Err(Failure::new(Exit::Bug, "the driver gave no answer", "", "please report this")))
    }

    /// Waits for the calls that are left, and takes no more.
    pub fn end(&self) {
        drop(self.jobs.lock().unwrap_or_else(PoisonError::into_inner).take());
        if let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = thread.join();
        }
    }
}

fn call(driver: &DriverSettings, timeout: Duration, action: Action, order: Order, about: &About) -> Result<Answer, Failure> {
    let mut program = driver.program.clone();
    program.push(action.name().into());
    let mut request = order;
    request.insert("protocol".into(), PROTOCOL.into());
    request.insert("action".into(), action.name().into());
    request.insert("detector".into(), about.detector.clone().into());
    request.insert("run".into(), about.run.into());
    request.insert("file".into(), about.file.clone().into());
    request.insert("settings".into(), driver.settings.clone().into());
    let input = Some(Value::from(request).to_string().into_bytes());
    let what = format!("the driver {} could not {}", driver.name, in_words(action));
    let ended = hooks::execute(&Call { what: &what, program: &program, timeout, about, more: &[], input })?;
    let answer = ended.answer.trim();
    let read = if answer.is_empty() { Ok(Answer::default()) } else { serde_json::from_str::<Answer>(answer) };
    match (ended.why(), read) {
        (None, Ok(answer)) => Ok(answer),
        (None, Err(error)) => {
            let why = format!("its answer on stdout cannot be read: {error}");
            Err(Failure::new(Exit::State, what, why, "correct the driver: docs/control.md has the form of an answer"))
        }
        (Some(why), read) => {
            // What a driver says itself is the reason; its exit code adds nothing.
            let why = if ended.said().is_empty() { why } else { ended.said().to_string() };
            let hint = read.ok().and_then(|answer| answer.hint);
            Err(Failure::new(
                Exit::State,
                what,
                why,
                hint.unwrap_or_else(|| "run it by hand to see why (docs/control.md)".into()),
            ))
        }
    }
}

const fn in_words(action: Action) -> &'static str {
    match action {
        Action::Arm => "arm the detector",
        Action::Start => "start the detector",
        Action::Trigger => "trigger the detector",
        Action::Stop => "stop the detector",
        Action::Pedestal => "prepare the detector for dark frames",
        Action::Status => "get the status of the detector",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn driver(script: &str, timeout_ms: u64) -> Arc<ControlDriver> {
        let program = ["sh", "-c", script, "driver"].map(str::to_string).into();
        let settings = Map::from_iter([("url".to_string(), Value::from("http://x"))]);
        let driver = DriverSettings { name: "own".into(), program, settings, refuses_mismatch: false };
        let hooks = HookSettings { timeout: Duration::from_millis(timeout_ms), driver: Some(driver), ..HookSettings::default() };
        ControlDriver::open("eiger", &hooks).unwrap().unwrap()
    }

    fn about() -> About {
        About { detector: "eiger".into(), run: 7, images: Some(3), file: None }
    }

    #[test]
    fn the_order_goes_in_and_the_answer_comes_out() {
        let order = Order::from_iter([("images".to_string(), Value::from(3))]);
        let echo = driver(
            r#"read -r request; echo "{\"set\": {\"got\": $request, \"argument\": \"$1\"}, \"expected\": {\"images\": 3}}""#,
            9000,
        );
        let answer = echo.call(Action::Arm, order, about()).unwrap();
        let got = &answer.set["got"];
        assert_eq!((&got["images"], &got["run"], &got["settings"]["url"]), (&3.into(), &7.into(), &"http://x".into()));
        assert_eq!((&got["action"], &answer.set["argument"]), (&"arm".into(), &"arm".into()));
        assert_eq!(answer.expected, Some(Expected { images: Some(3), ..Expected::default() }));
        assert_eq!(driver("true", 9000).call(Action::Stop, Order::new(), about()), Ok(Answer::default()));
    }

    #[test]
    fn failures_have_the_words_of_the_driver() {
        let failed = |script: &str, timeout_ms| driver(script, timeout_ms).call(Action::Arm, Order::new(), about()).unwrap_err();
        let refused = failed(r#"echo "high voltage is off" >&2; echo '{"hint": "switch it on"}'; exit 1"#, 9000);
        assert_eq!((refused.why.as_str(), refused.fix.as_str()), ("high voltage is off", "switch it on"));
        assert!(refused.what.contains("own could not arm"), "{refused}");
        assert!(failed("exit 3", 9000).why.contains("exit status: 3"));
        assert!(failed("sleep 60", 200).why.contains("had not ended after 0.2 s"));
        assert!(failed("echo hello", 9000).why.contains("cannot be read"));
        assert!(failed(r#"echo '{"expectd": {}}'"#, 9000).why.contains("expectd"));
    }

    #[test]
    fn calls_keep_their_order_and_the_last_ones_are_made_at_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let slow = driver(&format!("sleep 0.2; echo $1 >> {}", log.display()), 9000);
        for action in [Action::Arm, Action::Start, Action::Stop] {
            slow.send(action, Order::new(), about(), Box::new(|result| assert!(result.is_ok())));
        }
        slow.end();
        assert_eq!(std::fs::read_to_string(&log).unwrap(), "arm\nstart\nstop\n");
        assert!(slow.call(Action::Arm, Order::new(), about()).unwrap_err().why.contains("going down"));
    }
}
