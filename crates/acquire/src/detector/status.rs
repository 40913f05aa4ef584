//! The public view of a detector: a snapshot that its actor publishes, with the counters of the run in progress.

use crate::alarms::AlarmBoard;
use crate::alarms::watch::Measured;
use crate::events::EventLog;
use crate::fanout::Fanout;
use crate::handle::{
    DetectorStatistics, DetectorStatus, FileEntry, ModulePackets, OpenFileStatus, Operator, PublicState, Refusal, RefusalCode,
    Severity,
};
use crate::hit_rate::HitTally;
use crate::result_history::ResultHistory;
use crate::shapes::ShapeBoard;
use crate::spool::{News, Spool};
use crate::statistics::{Rates, Totals};
use konkordia_config::service::DetectorConfig;
use konkordia_core::analysis_counts::AnalysisCounts;
use konkordia_core::failure::Failure;
use konkordia_core::latency::{self, Meter};
use konkordia_core::ledger::ImageLedger;
use konkordia_core::series::Ended;
use konkordia_core::state::{Action, Event, Refused, State, next};
use konkordia_core::text;
use konkordia_sinks::clock;
use konkordia_sinks::durable::Durable;
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

/// Entries in the list of files.
const FILES_MAX: usize = 1000;

/// The counters of a run, while it is in progress or at its end.
#[derive(Clone, Debug, Default)]
pub struct Look {
    /// Images that the run is to have.
    pub expected: Option<u64>,
    /// Images in their final state.
    pub committed: u64,
    /// Images that the file has.
    pub written: u64,
    /// Images that arrived, were to be written, and are not in the file.
    pub unwritten: u64,
    /// Images before this position are on the disk.
    pub durable: Option<u64>,
    /// Raw frames before this one are on the disk.
    pub raw_durable: Option<u64>,
    /// Says the same of images whose files go through a spool, also after the end of the run.
    pub moves: Option<Durable>,
    /// Images lost, whole.
    pub lost: u64,
    /// Images with missing parts.
    pub partial: u64,
    /// Planned images that were no longer waited for.
    pub not_taken: u64,
    /// Planned images that did not arrive although they were waited for.
    pub not_received: u64,
    /// The ledger.
    pub ledger: BTreeMap<String, u64>,
    /// How full queues are.
    pub queues: BTreeMap<String, f64>,
    /// Counts how long its images take, also after its end: consumers may still get them.
    pub meter: Meter,
    /// The counters from which rates are computed.
    pub counters: Vec<(&'static str, u64)>,
    /// What the run adds to the totals.
    pub totals: Vec<(String, u64)>,
}

/// Rows of a ledger as additions to the totals of a detector; `what` is counted: packets or messages.
pub fn totals_of(what: &str, rows: &[(&'static str, u64)]) -> impl Iterator<Item = (String, u64)> {
    let name = move |name: &str| if name == "received_bytes" { "bytes_received".into() } else { format!("{what}_{name}") };
    rows.iter().map(move |(n, v)| (name(n), *v))
}

/// The states of images as rows of the ledger and as additions to the totals of a detector.
pub fn image_totals(images: &ImageLedger) -> impl Iterator<Item = (String, u64)> {
    images.states().into_iter().map(|(name, value)| (format!("images_{name}"), value))
}

/// How many images are not complete or did not come, for the message at the end: `, 3 lost, 1 not received`.
pub fn not_complete(images: &ImageLedger) -> String {
    let states = images.states().into_iter().filter(|(name, _)| *name != "complete");
    let others = states.chain([("not received", images.not_received), ("not taken", images.not_taken)]);
    others.filter(|(_, n)| *n > 0).map(|(name, n)| format!(", {} {name}", text::count(n))).collect()
}

impl Look {
    /// The states of the images, and nothing else.
    pub fn of(images: &ImageLedger) -> Self {
        Self {
            expected: Some(images.expected),
            committed: images.committed(),
            lost: images.lost,
            partial: images.partial,
            not_taken: images.not_taken,
            not_received: images.not_received,
            ..Self::default()
        }
    }

    /// Sets the counts of a series' file, once they are known.
    pub fn file_has(&mut self, written: u64, unwritten: u64, durable: Option<u64>) {
        (self.written, self.unwritten, self.durable) = (written, unwritten, durable);
        self.ledger.extend([("images_written".into(), written), ("images_unwritten".into(), unwritten)]);
    }

    /// With what became of its images at their analysis.
    pub fn with_analysis(mut self, counts: &AnalysisCounts) -> Self {
        for (name, count) in counts.read().iter().flat_map(|tally| tally.rows()) {
            let entry = format!("analysis_images_{name}");
            self.ledger.insert(entry.clone(), count);
            self.totals.push((entry, count));
            if let Some(rate) = [("analysed", "analysed_hz"), ("hits", "hits_hz")].iter().find(|(of, _)| *of == name) {
                self.counters.push((rate.1, count));
            }
        }
        self
    }

    /// Images in their final state over images expected; never above 1.
    pub fn progress(&self) -> Option<f64> {
        self.expected.filter(|expected| *expected > 0).map(|expected| (self.committed as f64 / expected as f64).min(1.0))
    }
}

/// A run in progress whose counters can be read.
pub trait Live: Send + Sync {
    /// The counters now.
    fn look(&self) -> Look;
    /// Packets by module, if they are counted by module.
    fn modules(&self) -> Vec<ModulePackets> {
        Vec::new()
    }
}

/// The counters behind statistics. They share one lock, so that totals never decrease when a run ends.
#[derive(Default)]
struct Account {
    live: Option<Arc<dyn Live>>,
    /// The counters of the last run.
    last: Look,
    last_modules: Vec<ModulePackets>,
    totals: Totals,
    rates: Rates,
}

/// What the actor has published.
struct Published {
    status: DetectorStatus,
    /// When its state changed.
    since: Instant,
    /// When its operator took the detector.
    held_since: Instant,
}

/// Names and counts of what has arrived while there is no run, to be added to the totals.
type CountBetween = Box<dyn Fn() -> Vec<(String, u64)> + Send + Sync>;

/// What the actor shares with other threads.
pub struct Shared {
    /// Its name.
    pub name: String,
    /// The configuration in force.
    pub configuration: Value,
    /// Preview buffer and consumers.
    pub fanout: Arc<Fanout>,
    published: Mutex<Published>,
    account: Mutex<Account>,
    files: Mutex<VecDeque<FileEntry>>,
    spool: OnceLock<Arc<Spool>>,
    /// Closed files of which some are still in the spool. They are listed as being written.
    spooled: Mutex<Vec<FileEntry>>,
    /// Its hits.
    pub hits: Arc<HitTally>,
    /// The results of its images.
    pub result_history: Arc<ResultHistory>,
    /// Its alarms.
    pub alarms: AlarmBoard,
    /// What people have drawn.
    pub shapes: Arc<ShapeBoard>,
    /// Set for detectors that also receive while there is no run.
    between: OnceLock<CountBetween>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// For an idle detector.
    pub fn new(config: &DetectorConfig, kind: &str, fanout: Arc<Fanout>) -> Self {
        let status = DetectorStatus {
            detector: config.name.clone(),
            kind: kind.into(),
            state: State::Idle,
            message: "nothing has been armed since the service began".into(),
            severity: Severity::Info,
            hint: None,
            run: 0,
            progress: None,
            images_expected: None,
            images_committed: 0,
            images_written: 0,
            images_unwritten: 0,
            images_durable: None,
            raw_frames_durable: None,
            spool: None,
            images_lost: 0,
            images_partial: 0,
            images_not_taken: 0,
            images_not_received: 0,
            file: None,
            ended: None,
            open_file: None,
            state_age_s: 0.0,
            listens: Vec::new(),
            alarms: Vec::new(),
            operator: None,
            dark_frames: None,
        };
        let now = Instant::now();
        Self {
            name: config.name.clone(),
            configuration: config.to_json(),
            fanout,
            published: Mutex::new(Published { status, since: now, held_since: now }),
            account: Mutex::default(),
            files: Mutex::default(),
            spool: OnceLock::new(),
            spooled: Mutex::default(),
            hits: Arc::default(),
            result_history: Arc::default(),
            alarms: AlarmBoard::default(),
            shapes: Arc::new(ShapeBoard::open(config)),
            between: OnceLock::new(),
        }
    }

    /// The newest snapshot with the current counters.
    pub fn status(&self) -> DetectorStatus {
        // Locked while the counters are read, so that the snapshot and the counters belong to the same run.
        let published = lock(&self.published);
        self.completed(&published)
    }

    fn completed(&self, published: &Published) -> DetectorStatus {
        let (look, mut status) = (self.look(), published.status.clone());
        status.state_age_s = published.since.elapsed().as_secs_f64();
        if let Some(operator) = &mut status.operator {
            operator.age_s = published.held_since.elapsed().as_secs_f64();
        }
        status.progress = look.progress();
        status.images_expected = look.expected;
        status.images_committed = look.committed;
        status.images_written = look.written;
        status.images_unwritten = look.unwritten;
        let durable = look.moves.as_ref().map(Durable::end).or(look.durable);
        (status.images_durable, status.raw_frames_durable) = (durable, look.raw_durable);
        status.spool = self.spool().map(|spool| spool.status());
        status.images_lost = look.lost;
        status.images_partial = look.partial;
        status.images_not_taken = look.not_taken;
        status.images_not_received = look.not_received;
        status.alarms = self.alarms.list();
        status
    }

    /// What alarms need of the counters, beside the results of images.
    pub fn measure(&self, run: u64) -> Measured {
        let account = lock(&self.account);
        let look = account.live.as_ref().map(|live| live.look());
        let (images, bad_images) = look.map_or((0, 0), |look| (look.committed, look.lost + look.partial));
        Measured { is_running: account.live.is_some() && images > 0, run, images, bad_images, ..Measured::default() }
    }

    fn look(&self) -> Look {
        let account = lock(&self.account);
        account.live.as_ref().map_or_else(|| account.last.clone(), |live| live.look())
    }

    /// The current rates and counters.
    pub fn statistics(&self) -> DetectorStatistics {
        let account = lock(&self.account);
        let look = account.live.as_ref().map_or_else(|| account.last.clone(), |live| live.look());
        let mut totals = account.totals.values().clone();
        let beside =
            if account.live.is_some() { look.totals } else { self.between.get().map_or_else(Vec::new, |between| between()) };
        for (name, value) in beside {
            *totals.entry(name).or_default() += value;
        }
        let rates = account.rates.per_second(Instant::now());
        drop(account);
        let mut queues = look.queues;
        let consumers = self.fanout.statistics(&mut queues);
        DetectorStatistics {
            detector: self.name.clone(),
            ledger: look.ledger,
            rates,
            queues,
            latency: latency::by_name(&look.meter.read()),
            consumers,
            totals,
        }
    }

    /// Packets by module in this run, or in the last one.
    pub fn modules(&self) -> Vec<ModulePackets> {
        let account = lock(&self.account);
        account.live.as_ref().map_or_else(|| account.last_modules.clone(), |live| live.modules())
    }

    /// Sets, once, what is counted while there is no run.
    pub fn count_between(&self, between: impl Fn() -> Vec<(String, u64)> + Send + Sync + 'static) {
        let _ = self.between.set(Box::new(between));
    }

    /// A run begins.
    pub fn begin(&self, live: Arc<dyn Live>) {
        let mut account = lock(&self.account);
        account.live = Some(live);
        account.rates = Rates::default();
    }

    /// A run is armed and nothing has arrived yet: the counters of the last run are no longer shown.
    pub fn expect(&self, images: Option<u64>) {
        let mut account = lock(&self.account);
        if account.live.is_none() {
            account.last = Look { expected: images, ..Look::default() };
            account.last_modules.clear();
        }
    }

    /// A run has ended; `last` has its final counters.
    pub fn end(&self, last: Look) {
        let mut account = lock(&self.account);
        account.last_modules = account.live.take().map_or_else(Vec::new, |live| live.modules());
        for (name, value) in &last.totals {
            account.totals.add(name, *value);
        }
        account.last = last;
    }

    /// Corrects the counters of the last run, when its file is closed.
    pub fn amend(&self, amend: impl FnOnce(&mut Look)) {
        let mut account = lock(&self.account);
        if account.live.is_none() {
            amend(&mut account.last);
        }
    }

    /// Adds one to a total, for something outside of any run.
    pub fn count(&self, name: &str) {
        self.add(name, 1);
    }

    /// Adds to a total what is known only after the run.
    pub fn add(&self, name: &str, count: u64) {
        lock(&self.account).totals.add(name, count);
    }

    /// Takes a sample for the rates.
    pub fn sample(&self) {
        let mut account = lock(&self.account);
        if let Some(live) = account.live.clone() {
            let counters = live.look().counters;
            account.rates.sample(Instant::now(), counters);
        }
    }

    /// Its files.
    pub fn files(&self) -> Vec<FileEntry> {
        lock(&self.files).iter().cloned().collect()
    }

    /// Enters a file, or replaces the entry of the same run and file.
    pub fn enter_file(&self, entry: FileEntry) {
        let mut files = lock(&self.files);
        match files.iter_mut().rev().find(|old| (old.run, &old.master) == (entry.run, &entry.master)) {
            Some(old) => *old = entry,
            None => {
                if files.len() == FILES_MAX {
                    files.pop_front();
                }
                files.push_back(entry);
            }
        }
    }

    /// Opens the spool of a detector that has one. What happens there becomes events.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn open_spool(shared: &Arc<Self>, config: &DetectorConfig, events: &EventLog) -> Result<(), Failure> {
        let Some(settings) = config.spool() else { return Ok(()) };
        let (weak, events) = (Arc::downgrade(shared), events.clone());
        let tell = move |news: &News| {
            let Some(shared) = weak.upgrade() else { return };
            let name = Some(shared.name.as_str());
            if let News::Moved(master) = news {
                for entry in shared.take_spooled(&master.display().to_string()) {
                    events.add(name, "file", Severity::Info, format!("{} is closed", entry.master), json!(entry));
                    shared.enter_file(entry);
                }
            }
            if let Some(text) = news.to_text() {
                let severity = if matches!(news, News::Failing(_)) { Severity::Error } else { Severity::Warning };
                events.add(name, "spool", severity, text, json!({ "spool": shared.spool().map(|spool| spool.status()) }));
            }
        };
        let spool = Spool::open(settings, Box::new(tell))?;
        let _ = shared.spool.set(spool);
        Ok(())
    }

    /// Its spool, if it has one.
    pub fn spool(&self) -> Option<&Arc<Spool>> {
        self.spool.get()
    }

    fn take_spooled(&self, master: &str) -> Vec<FileEntry> {
        lock(&self.spooled).extract_if(.., |entry| entry.master == master).collect()
    }

    /// Enters closed files. False while some of them are in the spool: then they are entered when all have moved.
    pub(super) fn enter_closed(&self, entry: &FileEntry) -> bool {
        let mut spooled = lock(&self.spooled);
        if self.spool().is_some_and(|spool| spool.has(Path::new(&entry.master))) {
            spooled.push(entry.clone());
            return false;
        }
        drop(spooled);
        self.enter_file(entry.clone());
        true
    }

    /// Forgets the file of a run that left none.
    pub fn forget_file(&self, run: u64) {
        lock(&self.files).retain(|entry| entry.run != run);
    }
}

/// The message published with a change of state.
#[derive(Clone, Debug)]
pub struct StatusMessage {
    /// In words.
    pub message: String,
    /// How bad it is.
    pub severity: Severity,
    /// What to do.
    pub hint: Option<String>,
}

impl StatusMessage {
    /// A message without a problem.
    pub fn info(message: impl Into<String>) -> Self {
        Self { message: message.into(), severity: Severity::Info, hint: None }
    }

    /// A problem: what happened, why, and what to do.
    pub fn failure(failure: &konkordia_core::failure::Failure) -> Self {
        Self {
            message: failure.detail(),
            severity: Severity::Error,
            hint: Some(failure.fix.clone()).filter(|fix| !fix.is_empty()),
        }
    }

    /// Adds a warning.
    pub fn warn(&mut self, warning: &str) {
        self.message = format!("{}; {warning}", self.message);
        if matches!(self.severity, Severity::Info | Severity::Success) {
            self.severity = Severity::Warning;
        }
    }

    fn put_into(self, status: &mut DetectorStatus) {
        (status.message, status.severity, status.hint) = (self.message, self.severity, self.hint);
    }
}

/// The state machine of a detector, with the published status and the events. Owned by the actor.
pub struct Machine {
    /// What the outside sees, with the state.
    pub shared: Arc<Shared>,
    /// Where events are reported.
    pub events: EventLog,
    /// Who armed or started the run, or is about to.
    operator: Option<(Operator, Instant)>,
}

impl Machine {
    /// In the state of `shared`.
    pub fn new(shared: Arc<Shared>, events: EventLog) -> Self {
        Self { shared, events, operator: None }
    }

    /// The current state.
    pub fn state(&self) -> State {
        lock(&self.shared.published).status.state
    }

    /// Whether an event is allowed in the current state.
    pub fn may(&self, event: Event) -> Result<(), Refused> {
        next(self.state(), event).map(|_| ())
    }

    /// Applies a command: changes the state, publishes and reports it. The caller carries out the action.
    ///
    /// # Errors
    /// The state does not accept it; nothing has changed.
    pub fn step(&mut self, command: Event, status_message: Option<StatusMessage>) -> Result<Option<Action>, Refused> {
        self.step_with(command, status_message, |_| {})
    }

    /// Applies what has happened, as [`Self::step`]. What the state does not accept belongs to a run that is over, and
    /// changes nothing.
    pub fn apply(&mut self, event: Event, status_message: Option<StatusMessage>) {
        self.apply_with(event, status_message, |_| {});
    }

    /// As [`Self::apply`]. What `change` does becomes visible together with the new state.
    pub fn apply_with(&mut self, event: Event, status_message: Option<StatusMessage>, change: impl FnOnce(&mut DetectorStatus)) {
        let action = self.step_with(event, status_message, change).unwrap_or_default();
        debug_assert_eq!(action, None, "only commands have actions");
    }

    fn step_with(
        &mut self,
        event: Event,
        status_message: Option<StatusMessage>,
        change: impl FnOnce(&mut DetectorStatus),
    ) -> Result<Option<Action>, Refused> {
        let (transition, changed, text) = {
            let mut published = lock(&self.shared.published);
            let Published { status, since, .. } = &mut *published;
            let transition = next(status.state, event)?;
            let changed = transition.to != status.state;
            change(status);
            if let Some(status_message) = status_message {
                status_message.put_into(status);
            }
            if changed {
                (status.state, *since) = (transition.to, Instant::now());
            }
            let text = (status.message.clone(), status.severity);
            if !transition.to.has_run() {
                self.operator = None;
            }
            self.show_operator(&mut published);
            (transition, changed, text)
        };
        if changed {
            let PublicState { state, draining } = transition.to.into();
            let data = json!({ "state": state, "draining": draining, "detail": transition.to.name() });
            self.events.add(Some(&self.shared.name), "state", text.1, text.0, data);
        } else {
            self.events.wake();
        }
        Ok(transition.action)
    }

    /// Publishes a message without a change of state.
    pub fn set_message(&self, status_message: StatusMessage) {
        self.publish(|status| status_message.put_into(status));
    }

    /// Changes published fields other than the state.
    pub fn publish(&self, change: impl FnOnce(&mut DetectorStatus)) {
        change(&mut lock(&self.shared.published).status);
        self.events.wake();
    }

    /// Reports an event.
    pub fn report(&self, event: &str, severity: Severity, message: impl Into<String>, data: Value) {
        self.events.add(Some(&self.shared.name), event, severity, message.into(), data);
    }

    /// Reports something that is nothing but a message.
    pub fn remark(&self, severity: Severity, message: impl Into<String>, data: Value) {
        self.events.remark(Some(&self.shared.name), severity, message.into(), data);
    }

    /// From now on `by` holds the detector; it is shown while there is a run. Who does the same again holds it since
    /// before.
    pub fn hold(&mut self, by: &str, action: &str) {
        let is_same = |(held, _): &(Operator, Instant)| (held.name.as_str(), held.action.as_str()) == (by, action);
        if !self.operator.as_ref().is_some_and(is_same) {
            let operator = Operator { name: by.into(), since: clock::now(), age_s: 0.0, action: action.into() };
            self.operator = Some((operator, Instant::now()));
        }
        let mut published = lock(&self.shared.published);
        if published.status.state.has_run() {
            self.show_operator(&mut published);
        }
    }

    fn show_operator(&self, published: &mut Published) {
        let Published { status, since, held_since } = published;
        status.operator = self.operator.as_ref().map(|(operator, _)| operator.clone());
        *held_since = self.operator.as_ref().map_or(*since, |(_, taken)| *taken);
    }

    /// Nobody holds the detector: the run that was to begin did not, or its sender has begun it.
    pub fn release(&mut self) {
        self.operator = None;
    }

    /// Reports the end of a run with its closed files, which are entered in the list.
    pub fn report_end(
        &self,
        run: u64,
        ended: &str,
        file: Option<FileEntry>,
        ledger: &BTreeMap<String, u64>,
        status_message: &StatusMessage,
    ) {
        if let Some(entry) = file.filter(|entry| self.shared.enter_closed(entry)) {
            self.report("file", Severity::Info, format!("{} is closed", entry.master), json!(entry));
        }
        let data = json!({ "run": run, "ended": ended, "ledger": ledger });
        self.report("run_ended", status_message.severity, status_message.message.clone(), data);
    }

    /// The files of the newest run are closed. A cancel also clears its failure; the message and the events keep it.
    /// `open_file` stays open behind the run.
    pub fn close(&mut self, ended: &str, has_failed: bool, status_message: StatusMessage, open_file: Option<OpenFileStatus>) {
        self.publish(|status| status.ended = Some(ended.into()));
        let is_fault = has_failed && ended != Ended::Cancelled.name();
        // Who adds the images of a run in progress to those of the file must not count them twice.
        let event = if is_fault { Event::Fault } else { Event::Closed };
        self.apply_with(event, Some(status_message), |status| status.open_file = open_file);
    }

    /// Refuses a command, and reports that.
    pub fn refuse(&self, mut refusal: Refusal) -> Refusal {
        refusal.state = Some(self.state());
        self.shared.count("commands_refused");
        let data = json!({ "code": refusal.code.name(), "why": refusal.why, "fix": refusal.fix });
        self.report("refused", Severity::Warning, refusal.what.clone(), data);
        refusal
    }

    /// Refuses a command that is not allowed in this state.
    pub fn refuse_state(&self, verb: &str, refused: Refused) -> Refusal {
        let what = format!("cannot {verb} '{}' while it is {}", self.shared.name, self.state().name());
        let held = self.operator.as_ref().map_or(String::new(), |(operator, taken)| {
            let Operator { name, since, action, .. } = operator;
            format!("; {} by {name} {} ago, at {since}", done(action), age(*taken))
        });
        let (why, fix) = (format!("{}{held}", refused.why), refused.fix.into());
        self.refuse(Refusal { code: RefusalCode::WrongState, what, why, fix, state: None })
    }

    /// Refuses a command because another one is being carried out.
    pub fn refuse_busy(&self, verb: &str, doing: &str) -> Refusal {
        let what = format!("cannot {verb} '{}'", self.shared.name);
        let fix = "wait until that is done, or cancel it".into();
        self.refuse(Refusal { code: RefusalCode::Busy, what, why: doing.into(), fix, state: None })
    }
}

/// What somebody has done, for a sentence that goes on with `by`.
fn done(action: &str) -> &'static str {
    match action {
        "arm" => "armed",
        "start" => "started",
        _ => "its pedestals are taken",
    }
}

/// Time since `when`, for people.
pub fn age(when: Instant) -> String {
    match when.elapsed().as_secs() {
        s @ 0..120 => format!("{s} s"),
        s @ 120..7200 => format!("{} min", s / 60),
        s => format!("{} h", s / 3600),
    }
}
