//! The thread of a stream path that puts images in order: it takes messages, commands and finished images, gives them
//! to the [`Rules`], and carries out what these say.

use super::control::{Progress, SeriesControl};
use super::notice::{Command, Notice};
use super::pull::{Batch, Closed};
use super::rules::Rules;
use super::rules::io::{Action, Done, Ending, Job};
use super::spec::AnalysisFactory;
use super::sum::{Summer, start_of_sums};
use super::transform::Transform;
use crate::contain::Panic;
use crate::hand_over::HandOver;
use crossbeam_channel::{Receiver, Sender, never, select};
use konkordia_core::analysis_counts::AnalysisCounts;
use konkordia_core::image::CommittedImage;
use konkordia_core::latency::{Meter, Stage};
use konkordia_core::series::{Ended, SeriesEnd, SeriesLedger, SeriesStart};
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

/// The worker pool, as the sort thread sees it.
pub(crate) struct WorkerPool {
    pub jobs: Sender<Job>,
    pub done: Receiver<Done>,
}

/// See the top of this module.
pub(crate) struct Sorter {
    pub rules: Rules,
    pub control: Arc<SeriesControl>,
    pub hand_over: HandOver,
    pub worker_pool: Option<WorkerPool>,
    /// Adapts the start of a series to what the workers make of its images.
    pub transform: Option<Box<dyn Transform>>,
    /// Makes the analysis of the images of each series.
    pub analysis: Option<AnalysisFactory>,
    /// What becomes of the images of this series at their analysis.
    pub counts: AnalysisCounts,
    /// Makes sums of the images that are committed.
    pub summer: Option<Summer>,
    /// When the newest message taken so far was received.
    pub last_received_ns: u64,
    /// The series was announced, and its end was not.
    pub is_announced: bool,
    /// Images committed since the stream path was opened, and their bytes.
    pub committed: (u64, u64),
}

impl Sorter {
    /// Runs until it must shut down.
    pub fn run(&mut self, inbox: &Receiver<Batch>, commands: &Receiver<Command>) {
        let nothing = never();
        self.publish();
        loop {
            let timeout = self.timeout();
            let done = self.worker_pool.as_ref().map_or(&nothing, |pool| &pool.done).clone();
            let is_over = select! {
                recv(commands) -> command => match command {
                    Ok(command) => self.obey(command),
                    Err(_) => return,
                },
                recv(inbox) -> batch => match batch {
                    Ok(batch) => self.take_batch(batch, commands),
                    // All pull threads have ended: only commands are left.
                    Err(_) => match commands.recv() {
                        Ok(command) => self.obey(command),
                        Err(_) => return,
                    },
                },
                recv(done) -> done => {
                    if let Ok(done) = done {
                        self.rules.on_done(done);
                    }
                    false
                }
                default(timeout) => false,
            };
            if is_over {
                break;
            }
            self.note_leaving();
            let now_ns = self.control.now_ns();
            self.rules.tick(now_ns, if inbox.is_empty() { now_ns } else { self.last_received_ns });
            self.carry_out();
            self.publish();
        }
        self.settle();
        self.publish();
    }

    /// True if the thread must end.
    fn take_batch(&mut self, batch: Batch, commands: &Receiver<Command>) -> bool {
        let Batch { upstream, messages, closed } = batch;
        let now_ns = self.control.now_ns();
        for incoming in messages {
            self.last_received_ns = self.last_received_ns.max(incoming.received_ns);
            // A cancel comes first: messages that were sent before it must not be taken after it.
            while self.control.is_cancelling()
                && let Ok(command) = commands.try_recv()
            {
                if self.obey(command) {
                    return true;
                }
            }
            self.note_leaving();
            self.rules.on_message(incoming, now_ns);
            self.carry_out();
        }
        if let Some(closed) = closed {
            let failure = match closed {
                Closed::Finished => None,
                Closed::Failed(why) => {
                    let source = self.control.pulls[upstream].name.clone();
                    let failure = format!("{source}: {why}");
                    self.control.notify(Notice::SourceFailed { upstream, source, why });
                    Some(failure)
                }
            };
            self.rules.on_closed(upstream, failure);
        }
        false
    }

    fn note_leaving(&mut self) {
        if self.control.is_leaving() {
            self.rules.leave();
        }
    }

    /// Carries out a command; true if the thread must end.
    fn obey(&mut self, command: Command) -> bool {
        let (is_shutdown, cancel) = match command {
            Command::Shutdown => (true, None),
            Command::Cancel(number) => (false, Some(number)),
            _ => (false, None),
        };
        self.rules.on_command(command, self.control.now_ns());
        self.carry_out();
        if let Some(number) = cancel {
            self.control.cancelled(number);
        }
        is_shutdown
    }

    /// Carries out what the rules say, until they want the next event.
    fn carry_out(&mut self) {
        while let Some(Ok(done)) = self.worker_pool.as_ref().map(|pool| pool.done.try_recv()) {
            self.rules.on_done(done);
        }
        loop {
            self.rules.set_cancelling(self.control.is_cancelling());
            match self.rules.poll() {
                Some(action) => self.act(action),
                None if self.rules.waits_for_work() => {
                    self.settle();
                    let done = self.worker_pool.as_ref().and_then(|pool| pool.done.recv().ok());
                    self.rules.on_done(done.expect("workers end after this thread"));
                }
                None => return,
            }
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Start(start) => self.start(*start),
            Action::Work(mut job) => {
                job.image.assembled_ns = self.control.now_ns();
                if let Some(pool) = &self.worker_pool {
                    // There is room for as many jobs as the rules give out.
                    let _ = pool.jobs.send(job);
                }
            }
            Action::Commit(image) => self.commit(image),
            Action::Add(image, is_added) => {
                if is_added && !self.summer.as_mut().is_some_and(|summer| summer.add(&image)) {
                    self.rules.on_not_added();
                }
                // No sink was waited for.
                let now_ns = self.control.now_ns();
                self.rules.on_committed(now_ns, now_ns);
            }
            Action::CommitSum(mut image, has_blanks) => {
                if let Some(summer) = &mut self.summer {
                    summer.finish(&mut image, has_blanks);
                }
                self.commit(image);
            }
            Action::End(end, what) => self.end(&end, what),
            Action::Refuse(upstream, sequence) => self.control.pulls[upstream].budget.refuse(sequence),
            Action::Notify(notice) => self.control.notify(notice),
            Action::Publish => self.publish(),
        }
    }

    fn start(&mut self, mut start: SeriesStart) {
        // The start describes the images that leave, so it passes through the same steps in the same order.
        if let Some(transform) = &self.transform {
            transform.start(&mut start);
        }
        start_of_sums(&mut start, self.summer.as_ref().map_or(1, Summer::frames));
        start.meter = Meter::new(self.control.new_latencies());
        // Its images are those that leave.
        let analysis = self.analysis.as_ref().and_then(|make| make(&mut start));
        self.counts = start.analysis.clone();
        let start = Arc::new(start);
        self.hand_over.start(&start, analysis);
        self.control.notify(Notice::Started(start));
        self.is_announced = true;
    }

    fn commit(&mut self, image: CommittedImage) {
        let (image, control) = (Arc::new(image), &self.control);
        let before_ns = control.now_ns();
        if image.status.has_pixels() {
            let (latencies, times) = (control.latencies(), [image.assembled_ns, image.converted_ns, before_ns]);
            for (stage, at_ns) in [Stage::Assembled, Stage::Converted, Stage::Committed].into_iter().zip(times) {
                latencies.count(stage, image.received_ns, at_ns);
            }
        }
        self.committed = (self.committed.0 + 1, self.committed.1 + image.packed_bytes());
        self.hand_over.image(image);
        self.rules.on_committed(before_ns, control.now_ns());
    }

    fn end(&mut self, end: &Arc<SeriesEnd>, what: Ending) {
        if let Some(summer) = &mut self.summer {
            summer.reset();
        }
        let mut end = Arc::clone(end);
        if what == Ending::Series {
            // Only now it is known what the veto dropped.
            self.hand_over.finish();
            self.vetoed(&mut Arc::make_mut(&mut end).ledger);
            self.hand_over.output_queues().end(&end);
            self.is_announced = false;
        }
        self.seen().ledger.clone_from(&end.ledger);
        // All memory of the series is released before its end is reported.
        self.publish();
        self.control.notify(Notice::Ended(end));
    }

    /// Enters the images that the veto has dropped.
    fn vetoed(&self, ledger: &mut SeriesLedger) {
        ledger.images.veto(self.counts.read().map_or(0, |tally| tally.vetoed));
    }

    /// After a panic: a series that had begun ends with what is known of it.
    pub fn give_up(mut self, panic: &Panic) {
        if self.is_announced {
            self.hand_over.finish();
            let mut ledger = self.rules.ledger().clone();
            self.vetoed(&mut ledger);
            let end = Arc::new(SeriesEnd { ended: Ended::Failed, reason: panic.to_string(), ledger });
            self.hand_over.output_queues().end(&end);
            self.control.notify(Notice::Ended(end));
        }
        self.control.notify(Notice::Broken { why: panic.to_string() });
    }

    /// Returns all released memory to the in-flight budgets, and wakes readers.
    fn settle(&mut self) {
        for (upstream, bytes, messages) in self.rules.released() {
            self.control.pulls[upstream].budget.give(bytes, messages);
        }
        self.hand_over.output_queues().flush();
    }

    fn timeout(&self) -> Duration {
        match self.rules.deadline_ns() {
            None => Duration::from_secs(3600),
            // A little more, so that the time has passed when the thread wakes.
            Some(at_ns) => Duration::from_nanos(at_ns.saturating_sub(self.control.now_ns()).saturating_add(10_000)),
        }
    }

    fn seen(&self) -> MutexGuard<'_, Progress> {
        self.control.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn publish(&mut self) {
        self.settle();
        for (upstream, pull) in self.control.pulls.iter().enumerate() {
            pull.held.store(self.rules.held(upstream), Ordering::Relaxed);
        }
        let (rules, mut seen) = (&self.rules, self.seen());
        seen.state = rules.state();
        if rules.has_series() {
            seen.images_planned = rules.images_planned();
            seen.ledger.clone_from(rules.ledger());
            self.vetoed(&mut seen.ledger);
            seen.between = SeriesLedger::default();
        } else {
            seen.between.clone_from(rules.ledger());
        }
        (seen.series_started, seen.series_ended) = rules.series();
        (seen.images_committed, seen.committed_bytes) = self.committed;
        (seen.images_waiting, seen.images_working) = rules.waiting();
    }
}
