//! `konkordia rashpa manager`: the system manager over TCP.

use super::args::ManagerArgs;
use super::status;
use super::telegrams::{Broken, answer, connect, write};
use crate::console;
use crate::run::signals;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::text;
use konkordia_fabric::rashpa::description::Description;
use konkordia_fabric::rashpa::initialisation::Step;
use konkordia_fabric::rashpa::manager::{Manager, ManagerError, Member, Outgoing};
use konkordia_fabric::rashpa::telegram::{Body, Code, State, Telegram};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Pause between two tries to reach a member, and between two looks at the system.
const PAUSE: Duration = Duration::from_millis(100);

/// `konkordia rashpa manager`
pub fn command(args: &ManagerArgs) -> Result<Exit, Failure> {
    let text = std::fs::read_to_string(&args.system).map_err(|error| Failure::io("cannot read", &args.system, &error))?;
    let description = Description::from_toml(&text).map_err(|why| {
        let what = format!("{} is no description of a system", args.system.display());
        Failure::new(Exit::Configuration, what, why.to_string(), "docs/rashpa.md has an example")
    })?;
    let is_endless = description.transfers.iter().any(|transfer| transfer.slices.count.is_none());
    let interrupted = signals::stop_flag()?;
    let patience = Duration::from_secs(args.timeout);
    // Members refuse numbers that do not rise, also those of a manager that was started anew.
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as u32);
    let manager = Manager::new(description, patience.as_nanos() as u64, seconds);
    let mut system = System { manager, streams: BTreeMap::new(), patience, begun: Instant::now(), left: Vec::new(), interrupted };
    let done = system.run(args, is_endless);
    if done.is_err() {
        system.leave();
    }
    let account = done?;
    system.leave();
    Ok(system.report(args, &account, is_endless))
}

/// The state of all members at the end.
struct Account {
    members: Vec<(Member, Body)>,
    is_finished: bool,
}

struct System {
    manager: Manager,
    streams: BTreeMap<Member, TcpStream>,
    patience: Duration,
    begun: Instant,
    left: Vec<Member>,
    interrupted: Arc<AtomicBool>,
}

fn failure(why: &ManagerError) -> Failure {
    let (exit, fix) = match why {
        ManagerError::OutOfOrder(_) | ManagerError::Busy { .. } => (Exit::State, "report this"),
        ManagerError::Plan { .. } => (Exit::Configuration, "change the description of the system"),
        ManagerError::Refused { code: Code::Master, .. } => (Exit::State, "end the other manager, or wait for it"),
        ManagerError::Refused { .. } => (Exit::State, "do what the member says"),
        ManagerError::Unexpected { .. } => (Exit::Configuration, "check the addresses in the description of the system"),
        ManagerError::Silent { .. } => (Exit::Timeout, "raise --timeout if they are only slow"),
    };
    Failure::new(exit, "the system cannot be set up", why.to_string(), fix)
}

impl System {
    fn now_ns(&self) -> u64 {
        self.begun.elapsed().as_nanos() as u64
    }

    fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Acquire)
    }

    fn run(&mut self, args: &ManagerArgs, is_endless: bool) -> Result<Account, Failure> {
        self.connect()?;
        while let Some(step) = self.manager.next_step().filter(|step| *step != Step::Stop) {
            if self.is_interrupted() {
                return Err(Failure::new(Exit::Interrupted, "interrupted", "the system was not started", "start it again"));
            }
            self.step(step)?;
            console::to_stderr(&format!("{step}: done"));
        }
        let end = args.seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
        let is_finished = self.watch(end);
        if self.streams.is_empty() {
            return Err(Failure::new(Exit::Unreachable, "all members have left", "their connections ended", "look at them"));
        }
        self.step(Step::Stop)?;
        console::to_stderr(&format!("{}: done", Step::Stop));
        let members = self.wait_for_receivers();
        Ok(Account { members, is_finished: is_finished || is_endless })
    }

    /// Connects to all members; those that are just being started are waited for.
    fn connect(&mut self) -> Result<(), Failure> {
        let end = Instant::now() + self.patience;
        let description = self.manager.description();
        let modules = description.modules.iter().map(|module| (Member::Module(module.id), module.telegrams.clone()));
        let receivers = description.receivers.iter().map(|receiver| (Member::Receiver(receiver.id), receiver.telegrams.clone()));
        let members: Vec<_> = receivers.chain(modules).collect();
        for (member, address) in members {
            loop {
                match connect(address.as_str(), self.patience) {
                    Ok(stream) => {
                        self.streams.insert(member, stream);
                        break;
                    }
                    Err(_) if Instant::now() < end && !self.is_interrupted() => std::thread::sleep(PAUSE),
                    Err(why) => {
                        let what = format!("{member} cannot be reached at {}", address.as_str());
                        return Err(Failure::new(Exit::Unreachable, what, why.to_string(), "start it, or correct its address"));
                    }
                }
            }
        }
        Ok(())
    }

    /// Does a step: sends its telegrams, and takes the answers.
    fn step(&mut self, step: Step) -> Result<(), Failure> {
        let mut queue: Outgoing = self.manager.begin(step, self.now_ns()).map_err(|why| failure(&why))?;
        while !queue.is_empty() {
            let until = Instant::now() + self.patience;
            for (member, telegram) in &queue {
                if let Some(Err(why)) = self.streams.get(member).map(|stream| write(stream, telegram)) {
                    return Err(gone(step, *member, &why));
                }
            }
            let (mut next, mut is_silent) = (Outgoing::new(), false);
            for (member, _) in std::mem::take(&mut queue) {
                let Some(stream) = self.streams.get(&member) else { continue };
                let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
                match answer(stream, left) {
                    Ok(telegram) => {
                        next.extend(self.manager.answer(member, &telegram, self.now_ns()).map_err(|why| failure(&why))?);
                    }
                    // All who are silent are named together, below.
                    Err(Broken::Silent) => is_silent = true,
                    Err(why) => return Err(gone(step, member, &why)),
                }
            }
            if is_silent {
                let over = self.now_ns().saturating_add(self.patience.as_nanos() as u64);
                self.manager.silent(over).map_err(|why| failure(&why))?;
            }
            queue = next;
        }
        Ok(())
    }

    /// Asks a member how it is; whoever does not answer has left.
    fn ask(&mut self, member: Member) -> Option<Body> {
        let telegram = self.manager.telegram(Body::StatusRequest);
        let stream = self.streams.get(&member)?;
        let answered = write(stream, &telegram).and_then(|()| answer(stream, self.patience));
        match answered {
            Ok(Telegram { body, .. }) => Some(body),
            Err(why) => {
                console::note(&format!("{member} has left: {why}; the others go on"));
                self.streams.remove(&member);
                self.manager.without(member);
                self.left.push(member);
                None
            }
        }
    }

    /// Waits until all modules have sent all slices, until `end`, or for Ctrl-C; true if all is sent.
    fn watch(&mut self, end: Option<Instant>) -> bool {
        loop {
            let mut are_finished = true;
            for member in self.manager.members() {
                let body = self.ask(member);
                if let (Member::Module(_), Some(Body::Status(status))) = (member, body) {
                    are_finished &= status.state == State::Finished;
                }
            }
            let is_over = end.is_some_and(|end| Instant::now() >= end);
            let has_modules = self.streams.keys().any(|member| matches!(member, Member::Module(_)));
            if are_finished || is_over || !has_modules || self.is_interrupted() {
                return are_finished && has_modules;
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Waits until the receivers have taken what was on its way; the last state of all members.
    fn wait_for_receivers(&mut self) -> Vec<(Member, Body)> {
        let end = Instant::now() + self.patience.max(Duration::from_secs(10));
        loop {
            let members = self.manager.members();
            let states: Vec<(Member, Body)> =
                members.into_iter().filter_map(|member| Some((member, self.ask(member)?))).collect();
            let is_running = |body: &Body| matches!(body, Body::ReceiverStatus(status) if status.state == State::Running);
            if Instant::now() >= end || !states.iter().any(|(_, body)| is_running(body)) {
                return states;
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Releases all members: what runs is stopped. Errors change nothing here, since whoever loses the connection to
    /// its manager is free too.
    fn leave(&mut self) {
        if self.manager.is_running() {
            for body in [Body::Stop, Body::Release] {
                self.tell_all(&body);
            }
        } else {
            self.tell_all(&Body::Release);
        }
    }

    fn tell_all(&mut self, body: &Body) {
        for member in self.streams.keys().copied().collect::<Vec<_>>() {
            let telegram = self.manager.telegram(body.clone());
            if let Some(stream) = self.streams.get(&member) {
                let _ = write(stream, &telegram).and_then(|()| answer(stream, self.patience).map(|_| ()));
            }
        }
    }

    fn report(&self, args: &ManagerArgs, account: &Account, is_endless: bool) -> Exit {
        let (mut modules, mut receivers) = (Vec::new(), Vec::new());
        let mut is_whole = self.left.is_empty() && account.is_finished;
        let mut lines = Vec::new();
        for (member, body) in &account.members {
            let status = status::to_json(body);
            let n = |name: &str| status[name].as_u64().unwrap_or(0);
            lines.push(status::to_line(body));
            match member {
                Member::Module(_) => {
                    is_whole &= n("skipped") + n("unsent") == 0;
                    modules.push(status.clone());
                }
                Member::Receiver(_) => {
                    is_whole &= n("lost") + n("partial") + n("empty") == 0;
                    receivers.push(status.clone());
                }
            }
        }
        let left: Vec<String> = self.left.iter().map(Member::to_string).collect();
        let sum = |of: &[Value], name: &str| of.iter().filter_map(|status| status[name].as_u64()).sum::<u64>();
        if args.json {
            let report = json!({
                "event": "rashpa-manager", "finished": account.is_finished, "complete": is_whole, "modules": modules,
                "receivers": receivers, "left": left, "seconds": self.begun.elapsed().as_secs_f64(),
            });
            console::json(&report, false);
        } else {
            lines.extend(left.iter().map(|member| format!("{member} has left")));
            let slices = text::count(sum(&receivers, "whole"));
            lines.push(format!("result: {slices} slices whole, {} packets lost", text::count(sum(&receivers, "lost"))));
            console::to_stdout(&lines.join("\n"));
        }
        match (self.is_interrupted() && !account.is_finished && !is_endless, is_whole) {
            (true, _) => Exit::Interrupted,
            (false, true) => Exit::Complete,
            (false, false) => Exit::Incomplete,
        }
    }
}

fn gone(step: Step, member: Member, why: &Broken) -> Failure {
    let what = format!("{step}: {member} has left");
    Failure::new(Exit::Unreachable, what, why.to_string(), "look whether it runs, and start the manager again")
}
