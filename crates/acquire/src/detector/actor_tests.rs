//! Panics in a driver, which cost the command or the run; and arms that come too late.

use super::*;
use crate::detector::status::{Machine, Shared};
use crate::events::EventLog;
use crate::fanout::Fanout;
use crate::handle::DetectorState;
use crossbeam_channel::bounded;
use konkordia_config::service;
use konkordia_config::settings::ServiceSettings;
use std::sync::atomic::{AtomicU64, Ordering};

const CONFIG: &str = "[detector]\ntype = \"eiger\"\n[output]\ndirectory = \"out\"\nprefix = \"a\"\n";

/// Panics where the number of images asks for it.
struct Breaks {
    outbox: Outbox<Self>,
    images: Option<u64>,
    is_running: bool,
}

const IN_PREPARE: u64 = 1;
const IN_PREPARATION: u64 = 2;
const IN_LAUNCH: u64 = 3;
const IN_TICK: u64 = 4;
/// The sender begins a series while this is prepared.
const SERIES_BEGINS: u64 = 5;

/// Prepared runs that were not wanted.
static DISCARDED: AtomicU64 = AtomicU64::new(0);

impl Driver for Breaks {
    type Ready = u64;
    type Report = ();

    fn prepare(&self, base: &Base, request: &ArmRequest) -> Result<Prepare<u64>, Failure> {
        let images = request.images.unwrap_or_default();
        assert!(images != IN_PREPARE, "the test says so");
        let outbox = self.outbox.clone();
        let work = move || {
            assert!(images != IN_PREPARATION, "the test says so");
            assert!(images != SERIES_BEGINS || outbox.report(()), "the actor is there");
            Ok(images)
        };
        Ok(Prepare { about: self.about(base), order: Order::new(), work: Box::new(work) })
    }

    fn discard(_: u64) {
        DISCARDED.fetch_add(1, Ordering::Relaxed);
    }

    fn launch(&mut self, base: &mut Base, ready: u64) -> Result<(), Failure> {
        assert!(ready != IN_LAUNCH, "the test says so");
        (self.images, self.is_running) = (Some(ready), true);
        base.runs += 1;
        base.machine.apply(Event::Arm, None);
        Ok(())
    }

    fn begin_clock(&mut self) {}

    fn stop(&mut self) {}

    fn cancel(&mut self) {
        self.is_running = false;
    }

    fn report(&mut self, base: &mut Base, (): ()) {
        self.is_running = true;
        base.machine.apply(Event::SeriesStart, None);
    }

    fn tick(&mut self, base: &mut Base, _: Instant) {
        assert!(!self.is_running || self.images != Some(IN_TICK), "the test says so");
        if !self.is_running && base.machine.state() == State::Draining {
            base.machine.apply(Event::Closed, None);
        }
    }

    fn is_busy(&self) -> bool {
        self.is_running
    }

    fn about(&self, base: &Base) -> About {
        About { detector: base.config.name.clone(), run: base.runs, images: None, file: None }
    }
}

struct Bench {
    shared: Arc<Shared>,
    events: EventLog,
    send: SendRequest,
    thread: JoinHandle<()>,
}

impl Bench {
    fn new() -> Self {
        let loaded = service::load_text(CONFIG, std::path::Path::new("run.toml")).unwrap();
        let config = Arc::new(loaded.detectors[0].clone());
        let settings = Arc::new(ServiceSettings { arm_timeout: Duration::from_secs(60), ..ServiceSettings::default() });
        let events = EventLog::new();
        let fanout = Arc::new(Fanout::open(&config, &settings, &events).unwrap());
        let shared = Arc::new(Shared::new(&config, "udp", Arc::clone(&fanout)));
        let machine = Machine::new(Arc::clone(&shared), events.clone());
        let base = Base { machine, config, settings, fanout, driven: None, runs: 0 };
        let (send, thread) = spawn(base, |_, outbox| Ok(Breaks { outbox, images: None, is_running: false })).unwrap();
        Self { shared, events, send, thread }
    }

    /// `None` = the answer was lost with the panic.
    fn arm(&self, images: u64) -> Option<Reply> {
        let (sender, receiver) = bounded(1);
        let request = Box::new(ArmRequest { images: Some(images), ..ArmRequest::default() });
        assert!((self.send)(Request::Command { command: Command::Arm(request), by: "alice".into(), reply: sender }));
        receiver.recv_timeout(Duration::from_secs(60)).ok()
    }

    fn until(&self, state: DetectorState) -> DetectorStatus {
        let (end, mut changes) = (Instant::now() + Duration::from_secs(60), self.events.subscribe());
        loop {
            let status = self.shared.status();
            if status.state == state {
                return status;
            }
            assert!(changes.wait(Some(end)), "{status:?}");
        }
    }

    fn cancel(&self) {
        let (sender, receiver) = bounded(1);
        assert!((self.send)(Request::Command { command: Command::Cancel, by: "bob".into(), reply: sender }));
        assert!(receiver.recv_timeout(Duration::from_secs(60)).unwrap().is_ok());
        assert_eq!(self.until(DetectorState::Idle).operator, None, "nobody holds what is idle");
    }

    fn shut_down(self) {
        assert!((self.send)(Request::Shutdown));
        self.thread.join().unwrap();
    }
}

#[test]
fn a_panic_costs_the_command_or_the_run_and_the_next_arm_is_taken() {
    let bench = Bench::new();
    // A panic during the preparation: the arm is refused, with the cause.
    let refusal = bench.arm(IN_PREPARATION).expect("it is answered").unwrap_err();
    assert!(refusal.code == RefusalCode::ArmFailed && refusal.why.contains("the test says so"), "{refusal:?}");
    for images in [IN_PREPARE, IN_LAUNCH, IN_TICK] {
        let _ = bench.arm(images);
        let status = bench.until(DetectorState::Error);
        assert!(status.message.contains("a bug in konkordia") && status.hint.is_some(), "{status:?}");
        let status = bench.arm(100).expect("it is answered").expect("it is taken");
        assert_eq!(status.state, DetectorState::Armed);
        assert_eq!(status.operator.map(|operator| (operator.name, operator.action)), Some(("alice".into(), "arm".into())));
        let refusal = bench.arm(100).expect("it is answered").unwrap_err();
        assert!(refusal.why.starts_with("the detector is already armed; armed by alice 0 s ago, at 2"), "{refusal:?}");
        bench.cancel();
    }
    bench.shut_down();
}

/// The actor learns of the series before it learns that everything is ready. The arm is not valid for that series, and
/// with its end the parameters of the arm would be forgotten.
#[test]
fn an_arm_is_refused_if_a_series_has_begun_while_it_was_prepared() {
    let bench = Bench::new();
    let refusal = bench.arm(SERIES_BEGINS).expect("it is answered").unwrap_err();
    assert_eq!((refusal.code, refusal.state), (RefusalCode::WrongState, Some(DetectorState::Receiving)), "{refusal:?}");
    assert_eq!(DISCARDED.load(Ordering::Relaxed), 1);
    bench.cancel();
    assert_eq!(bench.arm(100).expect("it is answered").expect("it is taken").state, DetectorState::Armed);
    bench.cancel();
    bench.shut_down();
}
