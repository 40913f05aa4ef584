//! What all detector actors share: one command at a time, programs of the user with a time limit, arms that are given
//! up, and the end of the service. What is particular to a kind of detector is in its [`Driver`].

use super::base::Base;
use super::driven::{Armed, Told, remark_warnings};
use super::pending::{Pending, Verb, is_plain};
use super::status::{StatusMessage, age};
use super::{Request, STACK_BYTES, SendRequest, TICK};
use crate::alarms::{Alarms, News};
use crate::control_driver::{Action as Drive, Answer, Expected, Order};
use crate::fanout::held_back::{Change, HeldBack};
use crate::handle::{ArmRequest, Command, DetectorStatus, PedestalRequest, Refusal, RefusalCode, Reply, Severity};
use crate::hooks::{self, About};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, never};
use konkordia_core::failure::{Exit, Failure, reason};
use konkordia_core::series::Ended;
use konkordia_core::state::{Action, Event, Refused, State};
use konkordia_engine::contain::{Panic, contain};
use konkordia_engine::output_queue::ImageObserver;
use serde_json::json;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// A cancel is answered as soon as a new arm is possible, and at the latest after this time.
const CANCEL_PATIENCE: Duration = Duration::from_secs(5);
/// After this many panics the actor ends.
const PANICS_MAX: usize = 100;
/// Messages that may wait for an actor: at most 24 commands of HTTP, and the reports of a few threads. While an actor
/// waits for the threads of a series, these report at most on the 64 series in the queue of the file, three times each.
const INBOX_MAX: usize = 1024;
/// When the service stops, it waits this long for consumers that take nothing. Images that they have not taken by then
/// are counted as skipped.
const GRACE: Duration = Duration::from_secs(10);

/// Everything that can fail before the first data. It runs in a thread of its own.
pub type Preparation<R> = Box<dyn FnOnce() -> Result<R, Failure> + Send>;

/// An arm with checked parameters.
pub struct Prepare<R> {
    /// What programs of the user get to know about the run.
    pub about: About,
    /// What the driver gets to know about it.
    pub order: Order,
    /// The rest.
    pub work: Preparation<R>,
}

/// One kind of detector. Its methods run in the thread of the actor and must not take long.
pub trait Driver: Sized + Send + 'static {
    /// A run that is ready.
    type Ready: Send + 'static;
    /// What its threads report.
    type Report: Send + 'static;
    /// The run is launched before the driver arms the detector, which sends its first message then.
    const LISTENS_FIRST: bool = false;

    /// Returns the preparation of an arm with these parameters.
    ///
    /// # Errors
    /// The parameters cannot be used.
    fn prepare(&self, base: &Base, request: &ArmRequest) -> Result<Prepare<Self::Ready>, Failure>;
    /// Releases a run that is not wanted any more.
    fn discard(ready: Self::Ready);
    /// Makes the run wait for its data, and publishes that it is armed.
    ///
    /// # Errors
    /// The run cannot be started.
    fn launch(&mut self, base: &mut Base, ready: Self::Ready) -> Result<(), Failure>;
    /// The first message of the run must say this.
    fn expect(&mut self, _: Expected) {}
    /// What it says otherwise, in words; once.
    fn differences(&mut self) -> Option<Vec<String>> {
        None
    }
    /// Starts the time limit for the first data.
    fn begin_clock(&mut self);
    /// Ends the run; everything that has arrived is kept.
    fn stop(&mut self);
    /// Ends the run at once.
    fn cancel(&mut self);
    /// The service is stopping: no further run begins.
    fn leave(&mut self) {}
    /// Begins to take dark frames for a calibration file.
    ///
    /// # Errors
    /// The request cannot be carried out, or this kind of detector has no pedestals.
    fn pedestal(&mut self, _: &mut Base, _: &PedestalRequest) -> Result<(), Failure> {
        let why = "such detectors count photons themselves";
        Err(Failure::new(Exit::Configuration, "a stream detector has no pedestals", why, "name a JUNGFRAU"))
    }
    /// Handles a report.
    fn report(&mut self, base: &mut Base, report: Self::Report);
    /// Regular work: called after every message, and at least every [`TICK`] while [`Driver::is_busy`].
    fn tick(&mut self, base: &mut Base, now: Instant);
    /// True while a run is armed, in progress or being closed.
    fn is_busy(&self) -> bool;
    /// Closes the file that stays open behind its runs, if there is one and no run adds to it.
    fn close_file(&mut self, _: &mut Base) {}
    /// True while such a file is being closed.
    fn is_closing(&self) -> bool {
        false
    }
    /// What programs of the user get to know about the run.
    fn about(&self, base: &Base) -> About;
    /// The service ends: ends the threads that are left.
    fn end(&mut self) {}
}

/// What an actor receives.
pub enum Message<D: Driver> {
    /// A request from outside.
    Request(Request),
    /// The outcome of an arm.
    Prepared(u64, Told, Box<Result<(D::Ready, Answer), Failure>>),
    /// The driver has armed the detector, or not.
    DetectorArmed(u64, Box<Result<Answer, Failure>>),
    /// A program has ended.
    Hooked(u64, Result<(), Failure>),
    /// From a thread of the driver.
    Report(D::Report),
}

/// Owns everything of one detector.
struct Actor<D: Driver> {
    base: Base,
    driver: D,
    inbox: Receiver<Message<D>>,
    outbox: Sender<Message<D>>,
    pending: Option<Pending>,
    /// The ticket of an arm that was given up and still holds its resources.
    abandoned: Option<u64>,
    /// The detector as its driver has armed it for the run.
    armed: Option<Armed>,
    /// What the status says once the run that was broken off is closed, and whether that is an error.
    after_run: Option<(StatusMessage, bool)>,
    /// The senders of a cancel or close who wait for the answer, each with the run and the latest time of the answer.
    cancels: Vec<(Sender<Reply>, u64, Instant)>,
    tickets: u64,
    /// Since when the service is stopping.
    going_down: Option<Instant>,
    /// Who has asked that no further run begins.
    drained_by: Option<String>,
    held_back: HeldBack,
    alarms: Option<Alarms>,
}

/// Takes the reports of a driver's threads.
pub struct Outbox<D: Driver>(Sender<Message<D>>);

impl<D: Driver> Clone for Outbox<D> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<D: Driver> Outbox<D> {
    /// Reports something; false if the actor has ended.
    pub fn report(&self, report: D::Report) -> bool {
        self.0.send(Message::Report(report)).is_ok()
    }
}

/// Starts an actor. `make` makes its driver, and gets the outbox for reports to the actor.
///
/// # Errors
/// The driver cannot be made, or the machine has no threads left.
pub fn spawn<D: Driver>(
    base: Base,
    make: impl FnOnce(&Base, Outbox<D>) -> Result<D, Failure>,
) -> Result<(SendRequest, JoinHandle<()>), Failure> {
    let (outbox, inbox) = bounded(INBOX_MAX);
    let driver = make(&base, Outbox(outbox.clone()))?;
    let (name, requests) = (format!("det-{}", base.config.name), outbox.clone());
    let alarms = base
        .config
        .alarms
        .as_ref()
        .map(|settings| Alarms::new(settings, &base.config.name, &base.machine.events, base.machine.shared.alarms.clone()));
    let alarms = alarms.transpose()?;
    let hits = Arc::clone(&base.machine.shared.hits);
    let history = Arc::clone(&base.machine.shared.result_history);
    let observers = [hits as Arc<dyn ImageObserver>, history].into_iter().chain(alarms.iter().map(Alarms::observer));
    base.fanout.output_queues.observe(observers.collect());
    let cancels = Vec::new();
    let actor = Actor {
        base,
        driver,
        inbox,
        outbox,
        pending: None,
        abandoned: None,
        armed: None,
        after_run: None,
        cancels,
        tickets: 0,
        going_down: None,
        drained_by: None,
        held_back: HeldBack::default(),
        alarms,
    };
    let thread = Builder::new().name(name.clone()).stack_size(STACK_BYTES).spawn(move || actor.run());
    let thread = thread
        .map_err(|e| Failure::new(Exit::Io, format!("cannot start the thread {name}"), reason(&e), "end other programs"))?;
    Ok((Box::new(move |request| requests.send(Message::Request(request)).is_ok()), thread))
}

impl<D: Driver> Actor<D> {
    fn run(mut self) {
        // A panic costs the message that was being handled and the run, but not the actor.
        let mut panics = 0;
        while let Err(panic) = contain(|| self.work()) {
            panics += 1;
            self.recover(&panic);
            if panics == PANICS_MAX {
                break;
            }
        }
        // The driver waits for its threads. Those that wait for a place in the inbox are refused from now on.
        self.inbox = never();
        let _ = contain(|| self.driver.end());
        if let Some(driven) = &self.base.driven {
            driven.control.end();
        }
        self.base.fanout.close();
    }

    /// After a panic: ends the run, and puts the detector into the error state.
    fn recover(&mut self, panic: &Panic) {
        let failure = Failure::from(panic);
        let data = json!({ "why": failure.why, "fix": failure.fix });
        self.base.machine.remark(Severity::Error, failure.what.clone(), data);
        let _ = contain(|| self.driver.cancel());
        self.base.machine.apply(Event::Fault, Some(StatusMessage::failure(&failure)));
    }

    fn work(&mut self) {
        loop {
            // Nothing is in progress, so the thread sleeps until a message comes.
            let is_alarmed = self.alarms.as_ref().is_some_and(Alarms::is_alarmed);
            let is_busy = self.driver.is_busy() || self.pending.is_some() || self.armed.is_some();
            let is_quiet = !is_busy && self.cancels.is_empty() && !is_alarmed;
            let received = if is_quiet {
                self.inbox.recv().map_err(|_| RecvTimeoutError::Disconnected)
            } else {
                self.inbox.recv_timeout(TICK)
            };
            match received {
                Ok(message) => self.take(message),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            let now = Instant::now();
            self.expire(now);
            self.driver.tick(&mut self.base, now);
            self.keep_drained();
            self.look_at_header();
            self.stop_what_is_over();
            self.report_who_holds_back(now);
            self.report_alarms(now);
            self.answer_cancels(now);
            if self.going_down.is_some_and(|since| now.duration_since(since) > GRACE) {
                self.base.fanout.give_up();
            }
            if self.going_down.is_some() && !self.driver.is_busy() && self.pending.is_none() && self.abandoned.is_none() {
                break;
            }
        }
    }

    fn report_alarms(&mut self, now: Instant) {
        let (Some(alarms), Base { machine, runs, .. }) = (&mut self.alarms, &self.base) else { return };
        for News { severity, message, data } in alarms.look(now, || machine.shared.measure(*runs)) {
            machine.report("alarm", severity, message, data);
        }
    }

    fn report_who_holds_back(&mut self, now: Instant) {
        let base = &self.base;
        for Change { consumer, holds } in self.held_back.look(&base.fanout.output_queues, now) {
            let message = match holds {
                true => format!("run {} is held back: '{consumer}' takes images too slowly, the run waits for it", base.runs),
                false => format!("run {}: '{consumer}' takes images again; the run no longer waits for it", base.runs),
            };
            let severity = if holds { Severity::Warning } else { Severity::Info };
            let data = json!({ "run": base.runs, "consumer": consumer, "holds_back": holds });
            base.machine.report("consumer", severity, message.clone(), data);
            // An error of the run itself is more important.
            let is_said = base.machine.shared.status().severity != Severity::Error && self.driver.is_busy();
            if is_said {
                let hint = match consumer.as_str() {
                    super::FILE => "the disk does not keep up: look at its load and its free space",
                    _ => {
                        "look at that program; service = \"reliable-skip\" or \"latest\" in its [[stream]] lets the run go on without it"
                    }
                };
                base.machine.set_message(StatusMessage { message, severity, hint: holds.then(|| hint.into()) });
            }
        }
    }

    fn take(&mut self, message: Message<D>) {
        match message {
            Message::Request(Request::Command { command, by, reply }) => self.command(command, by, &reply),
            Message::Request(Request::Shutdown) => self.shut_down(),
            Message::Prepared(ticket, told, result) => self.prepared(ticket, told, *result),
            Message::DetectorArmed(ticket, result) => self.detector_armed(ticket, *result),
            Message::Hooked(ticket, result) => self.hooked(ticket, result),
            Message::Report(report) => self.driver.report(&mut self.base, report),
        }
    }

    fn status(&self) -> DetectorStatus {
        self.base.machine.shared.status()
    }

    fn command(&mut self, command: Command, by: String, reply: &Sender<Reply>) {
        let answer = match command {
            _ if self.going_down.is_some() => Some(Err(self.base.machine.refuse_busy("command", "the service is going down"))),
            Command::Cancel => self.cancel(reply).err().map(Err),
            Command::Stop => Some(self.stop()),
            Command::Close => self.close(reply).err().map(Err),
            Command::Drain => Some(Ok(self.drain(by))),
            Command::Pedestal(request) => Some(self.pedestal(&request, &by)),
            other => self.begin(other, by, reply).err().map(Err),
        };
        if let Some(answer) = answer {
            let _ = reply.send(answer);
        }
    }

    /// Begins a command that takes its time. The answer comes later, unless the command is refused.
    fn begin(&mut self, command: Command, by: String, reply: &Sender<Reply>) -> Result<(), Refusal> {
        let machine = &self.base.machine;
        let (mut verb, request) = match command {
            Command::Arm(request) => (Verb::Arm, request),
            Command::Start(request) => (Verb::Start, request),
            _ => (Verb::Trigger, Box::default()),
        };
        self.is_free_for(verb.name())?;
        if verb == Verb::Trigger && self.base.config.hooks.on_trigger.is_empty() && self.base.driven.is_none() {
            let what = format!("'{}' cannot be triggered from here", machine.shared.name);
            let fix = "set [control] on_trigger = [\"PROGRAM\", \"ARGUMENT\"], or trigger the detector itself";
            let why = "the configuration names no program that does it".into();
            return Err(machine.refuse(Refusal { code: RefusalCode::NoTrigger, what, why, fix: fix.into(), state: None }));
        }
        let event = match verb {
            Verb::Arm => Event::Arm,
            Verb::Trigger => Event::Trigger,
            Verb::Start | Verb::ArmAndStart => Event::Start,
        };
        machine.may(event).map_err(|refused| machine.refuse_state(verb.name(), refused))?;
        if verb == Verb::Start && matches!(machine.state(), State::Idle | State::Error) {
            verb = Verb::ArmAndStart;
        }
        if verb.arms() {
            self.has_ended_for(verb.name())?;
            return self.prepare((verb, by), &request, reply);
        }
        if verb == Verb::Start && !is_plain(&request) {
            let refused = Refused {
                why: "it is armed already, and a start cannot change what was armed",
                fix: "send start without a body, or cancel and start with it",
            };
            return Err(machine.refuse_state("start", refused));
        }
        self.hook(verb, by, reply)
    }

    /// Refuses a command while another one is being carried out.
    fn is_free_for(&self, verb: &str) -> Result<(), Refusal> {
        let Some(pending) = &self.pending else { return Ok(()) };
        let (other, ago) = (pending.verb.name(), age(pending.begun));
        let doing = format!("it is carrying out another command ({other} by {}, {ago} ago)", pending.by);
        Err(self.base.machine.refuse_busy(verb, &doing))
    }

    /// From now on no run begins. What is armed, being armed or in progress goes on.
    fn drain(&mut self, by: String) -> DetectorStatus {
        if self.drained_by.is_none() {
            let message = format!("{by} has asked for it: no further run begins until the service is started again");
            self.base.machine.remark(Severity::Info, message, json!({ "drained_by": by }));
            self.drained_by = Some(by);
        }
        self.status()
    }

    /// A sender begins no series either, except the one that is armed.
    fn keep_drained(&mut self) {
        let is_armed = self.pending.is_some() || self.base.machine.state() == State::Armed;
        if self.drained_by.is_some() && !is_armed {
            self.driver.leave();
        }
    }

    /// Refuses an arm until the run or arm before it has released everything, and for ever once it is drained.
    fn has_ended_for(&self, verb: &str) -> Result<(), Refusal> {
        if let Some(by) = &self.drained_by {
            let what = format!("cannot {verb} '{}'", self.base.machine.shared.name);
            let why = format!("the service is about to be replaced or stopped ({by}), so no further run begins");
            let fix = "try again when the service has been started again".into();
            return Err(self.base.machine.refuse(Refusal { code: RefusalCode::WrongState, what, why, fix, state: None }));
        }
        let doing = if self.driver.is_busy() {
            // After an error, while another source still delivers images.
            "the previous series has not ended"
        } else if self.abandoned.is_some() {
            "an earlier arm, which was given up, is still releasing its files and ports"
        } else if self.driver.is_closing() {
            "the file of the runs before is being closed"
        } else {
            return Ok(());
        };
        Err(self.base.machine.refuse_busy(verb, doing))
    }

    /// Begins to take dark frames.
    fn pedestal(&mut self, request: &PedestalRequest, by: &str) -> Reply {
        const VERB: &str = "take pedestals of";
        self.is_free_for(VERB)?;
        let machine = &self.base.machine;
        machine.may(Event::Arm).map_err(|refused| machine.refuse_state(VERB, refused))?;
        self.has_ended_for(VERB)?;
        self.base.machine.hold(by, "pedestal");
        if let Err(failure) = self.driver.pedestal(&mut self.base, request) {
            self.base.machine.release();
            return Err(self.base.machine.refuse(Refusal::of(RefusalCode::BadRequest, &failure)));
        }
        Ok(self.status())
    }

    /// Begins an arm.
    fn prepare(&mut self, (verb, by): (Verb, String), request: &ArmRequest, reply: &Sender<Reply>) -> Result<(), Refusal> {
        let machine = &self.base.machine;
        let refuse = |code, failure: &Failure| machine.refuse(Refusal::of(code, failure));
        let prepared = self.driver.prepare(&self.base, request);
        let Prepare { about, order, work } = prepared.map_err(|failure| refuse(RefusalCode::BadRequest, &failure))?;
        self.base.fanout.check_required().map_err(|failure| refuse(RefusalCode::ArmFailed, &failure))?;
        self.tickets += 1;
        let (ticket, outbox, hooks) = (self.tickets, self.outbox.clone(), self.base.config.hooks.clone());
        let driven = self.base.driven.clone().filter(|_| !D::LISTENS_FIRST);
        let told = Told { order, about };
        let prepare = move || {
            let drive = || {
                hooks::run("on_arm", &hooks.on_arm, hooks.timeout, &told.about)?;
                driven.as_ref().map_or(Ok(Answer::default()), |driven| driven.arm(&told))
            };
            let all = || {
                let ready = work()?;
                match drive() {
                    Ok(answer) => Ok((ready, answer)),
                    Err(failure) => {
                        D::discard(ready);
                        Err(failure)
                    }
                }
            };
            let result = contain(all).unwrap_or_else(|panic| Err((&panic).into()));
            let _ = outbox.send(Message::Prepared(ticket, told, Box::new(result)));
        };
        let spawned = Builder::new().name("arm".into()).spawn(prepare);
        spawned.map_err(|error| {
            let failure = Failure::new(Exit::Io, "cannot start a thread to arm", reason(&error), "end other programs");
            refuse(RefusalCode::ArmFailed, &failure)
        })?;
        machine.set_message(StatusMessage::info("getting ready"));
        let (begun, limit) = (Instant::now(), self.base.settings.arm_timeout);
        self.pending = Some(Pending { ticket, verb, by, reply: reply.clone(), begun, limit, is_launched: false });
        Ok(())
    }

    /// Handles the outcome of an arm.
    fn prepared(&mut self, ticket: u64, told: Told, result: Result<(D::Ready, Answer), Failure>) {
        let is_abandoned = self.abandoned.take_if(|abandoned| *abandoned == ticket).is_some();
        let pending = self.pending.take_if(|pending| pending.ticket == ticket && !is_abandoned);
        let Some(mut pending) = pending else { return self.give_up(&told, result) };
        let launched = match (result, self.base.machine.may(Event::Arm)) {
            // A sender has begun a series by itself meanwhile.
            (Ok(ready), Err(refused)) => {
                self.give_up(&told, Ok(ready));
                let _ = pending.reply.send(Err(self.base.machine.refuse_state(pending.verb.name(), refused)));
                return;
            }
            (result, _) => {
                self.base.machine.hold(&pending.by, pending.verb.name());
                result.and_then(|(ready, answer)| self.launch(told, ready, &answer))
            }
        };
        if let Err(failure) = launched {
            self.base.machine.release();
            self.base.machine.set_message(StatusMessage::failure(&failure));
            let _ = pending.reply.send(Err(self.base.machine.refuse(Refusal::of(RefusalCode::ArmFailed, &failure))));
            return;
        }
        let Some((driven, armed)) = self.base.driven.as_ref().zip(self.armed.as_ref()).filter(|_| D::LISTENS_FIRST) else {
            return self.has_armed(pending);
        };
        let outbox = self.outbox.clone();
        let then = move |result| drop(outbox.send(Message::DetectorArmed(ticket, Box::new(result))));
        driven.control.send(Drive::Arm, armed.told.order.clone(), armed.told.about.clone(), Box::new(then));
        pending.is_launched = true;
        self.pending = Some(pending);
    }

    /// Releases a run that is not wanted any more, with its detector.
    fn give_up(&self, told: &Told, result: Result<(D::Ready, Answer), Failure>) {
        let Ok((ready, _)) = result else { return };
        D::discard(ready);
        if let Some(driven) = self.base.driven.as_ref().filter(|_| !D::LISTENS_FIRST) {
            driven.stop(told, Ended::Cancelled.name());
        }
    }

    fn launch(&mut self, told: Told, ready: D::Ready, answer: &Answer) -> Result<(), Failure> {
        let launched = self.driver.launch(&mut self.base, ready);
        if let Some(driven) = &self.base.driven {
            remark_warnings(&driven.events, &told.about, answer);
            match &launched {
                Ok(()) => self.armed = Some(Armed { told, ending: None }),
                Err(_) if D::LISTENS_FIRST => {}
                Err(_) => driven.stop(&told, Ended::Failed.name()),
            }
        }
        launched
    }

    /// Handles the outcome of the driver's arm, for which the run was listening already.
    fn detector_armed(&mut self, ticket: u64, result: Result<Answer, Failure>) {
        if self.abandoned.take_if(|abandoned| *abandoned == ticket).is_some() {
            return;
        }
        let Some(pending) = self.pending.take_if(|pending| pending.ticket == ticket) else { return };
        match result {
            Ok(answer) => {
                if let (Some(driven), Some(armed)) = (&self.base.driven, &self.armed) {
                    remark_warnings(&driven.events, &armed.told.about, &answer);
                }
                if let Some(expected) = answer.expected {
                    self.driver.expect(expected);
                }
                self.has_armed(pending);
            }
            Err(failure) => {
                self.break_off(StatusMessage::failure(&failure), false);
                let _ = pending.reply.send(Err(self.base.machine.refuse(Refusal::of(RefusalCode::ArmFailed, &failure))));
            }
        }
    }

    /// Everything is armed: answers the command, or goes on with the start.
    fn has_armed(&mut self, pending: Pending) {
        if pending.verb == Verb::Arm {
            let _ = pending.reply.send(Ok(self.status()));
        } else if let Err(refusal) = self.hook(Verb::Start, pending.by, &pending.reply) {
            let _ = pending.reply.send(Err(refusal));
        }
    }

    /// Ends a run because of its detector; `message` stands in the status afterwards.
    fn break_off(&mut self, message: StatusMessage, is_error: bool) {
        self.end_detector(Ended::Failed);
        let action = self.base.machine.step(Event::Cancel, None).unwrap_or_default();
        self.carry_out(action);
        self.after_run = Some((message, is_error));
    }

    /// A command ends the run, so the detector need not go on until its files are closed.
    fn end_detector(&mut self, ending: Ended) {
        if let Some(armed) = &mut self.armed {
            armed.ending.get_or_insert(ending);
        }
    }

    /// Has the detector stopped when its run is over, in whatever way.
    fn stop_what_is_over(&mut self) {
        if let Some((message, is_error)) = self.after_run.take_if(|_| !self.driver.is_busy()) {
            match is_error {
                true => self.base.machine.apply(Event::Fault, Some(message)),
                false => self.base.machine.set_message(message),
            }
        }
        let (Some(armed), Some(driven)) = (&self.armed, &self.base.driven) else { return };
        let status = self.status();
        let is_its = status.run == armed.told.about.run;
        let is_over = !is_its || !status.state.has_run();
        let ended = match armed.ending {
            Some(ending) if is_over || status.state == State::Draining => ending.name().to_string(),
            None if is_over => status.ended.filter(|_| is_its).unwrap_or_else(|| Ended::Superseded.name().into()),
            _ => return,
        };
        driven.stop(&armed.told, &ended);
        self.armed = None;
    }

    /// Says what the sender announces otherwise than the driver has asked for, or ends the run because of it.
    fn look_at_header(&mut self) {
        let Some(differences) = self.driver.differences() else { return };
        let run = self.base.runs;
        let message =
            format!("run {run}: the detector announces something else than it was asked for: {}", differences.join("; "));
        self.base.machine.report("setup", Severity::Warning, message.clone(), json!({ "run": run, "differences": differences }));
        let hint =
            Some("find out who has set the detector since, or what it rounds; control.mismatch says what follows".to_string());
        if self.base.config.hooks.driver.as_ref().is_some_and(|driver| driver.refuses_mismatch) {
            self.break_off(StatusMessage { message, severity: Severity::Error, hint }, true);
        } else {
            self.base.machine.set_message(StatusMessage { message, severity: Severity::Warning, hint });
        }
    }

    /// Runs the program of a command, or goes on at once if none is configured.
    fn hook(&mut self, verb: Verb, by: String, reply: &Sender<Reply>) -> Result<(), Refusal> {
        let hooks = &self.base.config.hooks;
        let (name, program) = match verb {
            Verb::Trigger => ("on_trigger", hooks.on_trigger.clone()),
            _ => ("on_start", hooks.on_start.clone()),
        };
        self.tickets += 1;
        let (ticket, timeout, outbox) = (self.tickets, hooks.timeout, self.outbox.clone());
        // Program and driver are ended after their timeout; the driver may have something to do before.
        let (begun, limit) = (Instant::now(), 4 * timeout + TICK);
        self.pending = Some(Pending { ticket, verb, by, reply: reply.clone(), begun, limit, is_launched: false });
        let driven = self.base.driven.clone().zip(self.armed.as_ref().map(|armed| armed.told.clone()));
        if program.is_empty() && driven.is_none() {
            self.hooked(ticket, Ok(()));
            return Ok(());
        }
        let about = self.driver.about(&self.base);
        let action = if verb == Verb::Trigger { Drive::Trigger } else { Drive::Start };
        let drive = move || {
            hooks::run(name, &program, timeout, &about)?;
            let Some((driven, told)) = driven else { return Ok(()) };
            driven.call(action, &told).map(|answer| remark_warnings(&driven.events, &about, &answer))
        };
        let work = move || {
            let result = contain(drive).unwrap_or_else(|panic| Err((&panic).into()));
            let _ = outbox.send(Message::Hooked(ticket, result));
        };
        let spawned = Builder::new().name("hook".into()).stack_size(STACK_BYTES).spawn(work);
        spawned.map(|_| ()).map_err(|error| {
            self.pending = None;
            let failure = Failure::new(Exit::Io, "cannot start a thread", reason(&error), "end other programs");
            self.base.machine.refuse(Refusal::of(RefusalCode::Refused, &failure))
        })
    }

    fn hooked(&mut self, ticket: u64, result: Result<(), Failure>) {
        let Some(pending) = self.pending.take_if(|pending| pending.ticket == ticket) else { return };
        let event = if pending.verb == Verb::Trigger { Event::Trigger } else { Event::Start };
        let machine = &mut self.base.machine;
        let answer = match result {
            Err(failure) => Err(machine.refuse(Refusal::of(RefusalCode::Refused, &failure))),
            // Its last data have come before the program said that it has started.
            Ok(()) if event == Event::Start && !matches!(machine.state(), State::Armed | State::Receiving) => Ok(self.status()),
            // The run may have ended meanwhile.
            Ok(()) => match machine.step(event, None) {
                Err(refused) => Err(machine.refuse_state(pending.verb.name(), refused)),
                Ok(action) => {
                    if action == Some(Action::BeginClock) {
                        machine.hold(&pending.by, pending.verb.name());
                        machine.set_message(StatusMessage::info(format!("run {} waits for its first data", self.base.runs)));
                    }
                    self.carry_out(action);
                    Ok(self.status())
                }
            },
        };
        let _ = pending.reply.send(answer);
    }

    /// Carries out what follows from a command. What can fail was done before.
    fn carry_out(&mut self, action: Option<Action>) {
        match action {
            Some(Action::BeginClock) => self.driver.begin_clock(),
            Some(Action::Drain) => self.driver.stop(),
            Some(Action::Discard) => self.driver.cancel(),
            Some(Action::Release) if self.driver.is_busy() => self.driver.cancel(),
            Some(Action::Release) | None => {}
        }
    }

    fn stop(&mut self) -> Reply {
        let run = self.base.runs;
        let machine = &mut self.base.machine;
        if self.pending.as_ref().is_some_and(|pending| pending.verb.arms()) {
            return Err(machine.refuse_busy("stop", "it is being armed"));
        }
        let is_running = matches!(machine.state(), State::Armed | State::Receiving);
        let status_message = is_running.then(|| StatusMessage::info(format!("run {run} is being stopped")));
        let action = machine.step(Event::Stop, status_message).map_err(|refused| machine.refuse_state("stop", refused))?;
        self.end_detector(Ended::Stopped);
        self.carry_out(action);
        Ok(self.status())
    }

    /// Ends everything; the answer comes when that is done, see [`Self::answer_cancels`].
    fn cancel(&mut self, reply: &Sender<Reply>) -> Result<(), Refusal> {
        let run = self.base.runs;
        let machine = &mut self.base.machine;
        if let Some(pending) = self.pending.take() {
            let what = format!("the {} was cancelled", pending.verb.name());
            let (why, fix) = ("somebody sent cancel".into(), "send it again".into());
            if pending.verb.arms() {
                self.abandoned = Some(pending.ticket);
                machine.set_message(StatusMessage::info("an arm was cancelled"));
            }
            let _ = pending.reply.send(Err(machine.refuse(Refusal { code: RefusalCode::Refused, what, why, fix, state: None })));
        }
        let is_running = machine.state().has_run();
        let status_message = match machine.state() {
            State::Error => Some(StatusMessage::info("the error was cleared")),
            _ => is_running.then(|| StatusMessage::info(format!("run {run} is being cancelled"))),
        };
        let action = machine.step(Event::Cancel, status_message).map_err(|refused| machine.refuse_state("cancel", refused))?;
        self.end_detector(Ended::Cancelled);
        // A detector that goes on although nothing is armed, for example since the service was killed, is stopped too.
        let driven = self.base.driven.as_ref().filter(|_| !is_running && self.armed.is_none() && self.abandoned.is_none());
        if let Some(driven) = driven {
            let about = About { detector: self.base.config.name.clone(), run, ..About::default() };
            driven.stop(&Told { about, ..Told::default() }, Ended::Cancelled.name());
        }
        self.carry_out(action);
        self.driver.close_file(&mut self.base);
        self.cancels.push((reply.clone(), run, Instant::now() + CANCEL_PATIENCE));
        Ok(())
    }

    /// Closes the file that stays open behind its runs; the answer comes when that is done, as that of a cancel.
    fn close(&mut self, reply: &Sender<Reply>) -> Result<(), Refusal> {
        const VERB: &str = "close the file of";
        self.is_free_for(VERB)?;
        if self.base.machine.state().has_run() {
            let refused = Refused { why: "a run is in progress", fix: "wait for its end, or stop it, then close" };
            return Err(self.base.machine.refuse_state(VERB, refused));
        }
        self.driver.close_file(&mut self.base);
        self.cancels.push((reply.clone(), self.base.runs, Instant::now() + CANCEL_PATIENCE));
        Ok(())
    }

    /// Answers the cancels as soon as an arm is possible, or a later run has begun (some senders begin runs by
    /// themselves), or their time is over.
    fn answer_cancels(&mut self, now: Instant) {
        if self.cancels.is_empty() {
            return;
        }
        let is_free = !self.driver.is_busy() && self.abandoned.is_none() && !self.driver.is_closing();
        let (status, runs) = (self.status(), self.base.runs);
        for (reply, ..) in self.cancels.extract_if(.., |(_, run, latest)| is_free || runs > *run || now >= *latest) {
            let _ = reply.send(Ok(status.clone()));
        }
    }

    fn shut_down(&mut self) {
        self.going_down = Some(Instant::now());
        self.driver.leave();
        let machine = &mut self.base.machine;
        if let Some(pending) = self.pending.take() {
            if pending.verb.arms() {
                self.abandoned = Some(pending.ticket);
            }
            let _ = pending.reply.send(Err(machine.refuse_busy(pending.verb.name(), "the service is going down")));
        }
        if matches!(machine.state(), State::Armed | State::Receiving) {
            let status_message =
                StatusMessage::info(format!("run {} is being stopped: the service is going down", self.base.runs));
            let action = machine.step(Event::Stop, Some(status_message)).unwrap_or_default();
            self.end_detector(Ended::Stopped);
            self.carry_out(action);
        } else if self.driver.is_busy() && machine.state() != State::Draining {
            self.driver.stop();
        }
    }

    /// Fails a command that has taken too long.
    fn expire(&mut self, now: Instant) {
        let is_over = |pending: &mut Pending| now.duration_since(pending.begun) >= pending.limit;
        let Some(pending) = self.pending.take_if(is_over) else { return };
        let key = if pending.verb.arms() { "service.arm_timeout_s" } else { "control.timeout_s" };
        let what = format!("the {} took too long", pending.verb.name());
        let why = format!("it was not done within {:.1} s", pending.limit.as_secs_f64());
        let fix = format!("look in the log for what it waits for (a slow disk, a program), or raise {key}");
        let failure = Failure::new(Exit::Timeout, what, why, fix);
        if pending.verb.arms() {
            self.abandoned = Some(pending.ticket);
            self.base.machine.set_message(StatusMessage::failure(&failure));
            if pending.is_launched {
                self.break_off(StatusMessage::failure(&failure), false);
            }
        }
        let code = if pending.verb.arms() { RefusalCode::ArmFailed } else { RefusalCode::Refused };
        let _ = pending.reply.send(Err(self.base.machine.refuse(Refusal::of(code, &failure))));
    }
}

#[cfg(test)]
#[path = "actor_tests.rs"]
mod tests;
