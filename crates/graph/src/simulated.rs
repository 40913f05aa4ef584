//! Whole graphs on a virtual clock: messages are lost, delayed, doubled and come in another order, and processes are
//! killed, paused, cut off and started again. Each image must be written once.

use crate::consumer::{Consumer, Verdict};
use crate::message::{Message, VERSION};
use crate::producer::{Limits, Policy, Producer};
use konkordia_sim::rng::Rng;
use std::collections::{BTreeMap, VecDeque};

const LIMITS: Limits = Limits { ring: 64, response_ms_max: 900, refusals_max: 3, members: WORKERS as u32 };
const WINDOW: u32 = 4;
const IMAGES: u64 = 400;
const WORKERS: usize = 3;

/// Chances of a fault, of 1000.
#[derive(Clone, Copy, Default)]
struct Faults {
    lost: u64,
    doubled: u64,
    delay_ms_max: u64,
    kills: u64,
    pauses: u64,
    partitions: u64,
}

/// A process between the source and the sink.
struct Worker {
    name: String,
    epoch: u64,
    input: Consumer,
    output: Producer<u64>,
    queue: VecDeque<u64>,
    busy_until_ms: u64,
    paused_until_ms: u64,
    cut_until_ms: u64,
    /// Its clock shows another time than the others.
    skew_ms: u64,
}

impl Worker {
    fn new(index: usize, epoch: u64) -> Self {
        let name = format!("convert-{index}");
        let input = Consumer::new("convert", &name, epoch, WINDOW, 1);
        let output = Producer::new("write", Policy::RoundRobin, LIMITS);
        let (queue, skew_ms) = (VecDeque::new(), 1_000_000 * index as u64);
        Self { name, epoch, input, output, queue, busy_until_ms: 0, paused_until_ms: 0, cut_until_ms: 0, skew_ms }
    }
}

/// A message under way: from whom, to whom (0: source, 1..: workers, the last: sink), of which start of the worker.
type Under = (usize, usize, u64, Message);

struct World {
    rng: Rng,
    faults: Faults,
    now_ms: u64,
    source: Producer<u64>,
    offered: u64,
    workers: Vec<Worker>,
    sink: Consumer,
    sink_queue: VecDeque<u64>,
    written: BTreeMap<u64, u64>,
    network: BTreeMap<u64, Vec<Under>>,
}

const SINK: usize = WORKERS + 1;

impl World {
    fn new(seed: u64, faults: Faults, policy: Policy) -> Self {
        Self {
            rng: Rng::new(seed),
            faults,
            now_ms: 1,
            source: Producer::new("convert", policy, LIMITS),
            offered: 0,
            workers: (0..WORKERS).map(|index| Worker::new(index, 1)).collect(),
            sink: Consumer::new("write", "write-0", 1, WINDOW, WORKERS),
            sink_queue: VecDeque::new(),
            written: BTreeMap::new(),
            network: BTreeMap::new(),
        }
    }

    fn happens(&mut self, of_1000: u64) -> bool {
        self.rng.next_u64() % 1000 < of_1000
    }

    fn send(&mut self, from: usize, to: usize, epoch: u64, message: Message) {
        let worker = &self.workers[if from == 0 || from == SINK { to } else { from } - 1];
        if worker.cut_until_ms > self.now_ms || self.happens(self.faults.lost) {
            return;
        }
        let copies = 1 + u64::from(self.happens(self.faults.doubled));
        for _ in 0..copies {
            let at_ms = self.now_ms + 1 + self.rng.next_u64() % (1 + self.faults.delay_ms_max);
            self.network.entry(at_ms).or_default().push((from, to, epoch, message.clone()));
        }
    }

    fn deliver(&mut self) {
        for (from, to, epoch, message) in self.network.remove(&self.now_ms).unwrap_or_default() {
            let of_worker = if from == 0 || from == SINK { to } else { from } - 1;
            let worker = &mut self.workers[of_worker];
            if worker.epoch != epoch {
                // A connection ends with the process.
                continue;
            }
            let now_ms = self.now_ms;
            if to == 0 {
                self.source.arrived(&worker.name, message, now_ms);
            } else if to == SINK {
                if let Verdict::Take(id) = self.sink.arrived(of_worker, message) {
                    self.sink_queue.push_back(id);
                }
            } else if worker.paused_until_ms > now_ms {
                self.network.entry(worker.paused_until_ms).or_default().push((from, to, epoch, message));
            } else if from == SINK {
                worker.output.arrived("write-0", message, now_ms + worker.skew_ms);
                while let Some((id, was_given_up)) = worker.output.next_finished() {
                    assert!(!was_given_up);
                    worker.input.done(id);
                }
            } else if let Verdict::Take(id) = worker.input.arrived(0, message) {
                worker.queue.push_back(id);
            }
        }
    }

    fn disturb(&mut self) {
        let index = (self.rng.next_u64() % WORKERS as u64) as usize;
        let (kill, pause, cut) = (self.faults.kills, self.faults.pauses, self.faults.partitions);
        if self.happens(kill) {
            let epoch = self.workers[index].epoch + 1;
            self.workers[index] = Worker::new(index, epoch);
        }
        let until_ms = self.now_ms + 1 + self.rng.next_u64() % 3000;
        if self.happens(pause) {
            self.workers[index].paused_until_ms = until_ms;
        }
        if self.happens(cut) {
            self.workers[index].cut_until_ms = until_ms;
        }
    }

    fn source(&mut self) {
        while self.offered < IMAGES && self.source.has_room(self.offered) {
            assert!(self.source.offer(self.offered, self.offered / 10, self.offered));
            self.offered += 1;
        }
        if self.offered == IMAGES {
            self.source.end();
        }
        self.source.set_floor(self.source.oldest().unwrap_or(self.offered));
        self.source.tick(self.now_ms);
        while let Some(work) = self.source.next_work(self.now_ms) {
            let at = self.workers.iter().position(|worker| worker.name == work.to).unwrap();
            self.send(0, at + 1, self.workers[at].epoch, work.message);
        }
        while let Some((to, message)) = self.source.next_message() {
            let at = self.workers.iter().position(|worker| worker.name == to).unwrap();
            self.send(0, at + 1, self.workers[at].epoch, message);
        }
    }

    fn worker(&mut self, at: usize) {
        let (now_ms, took_ms) = (self.now_ms, 1 + self.rng.next_u64() % 8);
        let worker = &mut self.workers[at];
        if worker.paused_until_ms > now_ms {
            return;
        }
        let local_ms = now_ms + worker.skew_ms;
        worker.input.tick(local_ms);
        worker.output.tick(local_ms);
        worker.output.set_floor(worker.input.floor());
        if worker.busy_until_ms <= now_ms
            && let Some(id) = worker.queue.front().copied()
        {
            let has_room = worker.output.has_room(id);
            worker.input.set_blocked(!has_room);
            if has_room {
                worker.queue.pop_front();
                worker.output.offer(id, id, id);
                worker.input.passed(id);
                worker.busy_until_ms = now_ms + took_ms;
            }
        }
        let epoch = worker.epoch;
        let mut out = Vec::new();
        while let Some((_, message)) = worker.input.next_message() {
            out.push((0, message));
        }
        while let Some(work) = worker.output.next_work(local_ms) {
            out.push((SINK, work.message));
        }
        while let Some((_, message)) = worker.output.next_message() {
            out.push((SINK, message));
        }
        out.into_iter().for_each(|(to, message)| self.send(at + 1, to, epoch, message));
    }

    fn sink(&mut self) {
        self.sink.tick(self.now_ms);
        if let Some(id) = self.sink_queue.pop_front() {
            *self.written.entry(id).or_default() += 1;
            self.sink.passed(id);
            self.sink.done(id);
        }
        while let Some((link, message)) = self.sink.next_message() {
            self.send(SINK, link + 1, self.workers[link].epoch, message);
        }
    }

    /// Runs to the end; `IMAGES` must be written, each once.
    fn run(mut self, what: &str) -> Self {
        while !self.source.is_finished() {
            assert!(self.now_ms < 600_000, "{what}: stuck with {:?}, {:?}", self.source.account(), self.source.members());
            self.disturb();
            self.deliver();
            self.source();
            (0..WORKERS).for_each(|at| self.worker(at));
            self.sink();
            assert_eq!(self.source.account().imbalance(), None);
            assert_eq!(self.sink.imbalance(), None);
            self.now_ms += 1;
        }
        let expected: BTreeMap<u64, u64> = (0..IMAGES).map(|id| (id, 1)).collect();
        assert_eq!(self.written, expected, "{what}");
        assert_eq!(self.source.account().done, IMAGES);
        self
    }
}

const POLICIES: [Policy; 4] = [Policy::RoundRobin, Policy::LeastWorkload, Policy::ByKey, Policy::Broadcast];

fn with_seeds(seeds: u64, faults: Faults) -> Vec<World> {
    let runs = (0..seeds).flat_map(|seed| POLICIES.map(|policy| (seed, policy)));
    runs.map(|(seed, policy)| World::new(seed, faults, policy).run(&format!("seed {seed}, {policy:?}"))).collect()
}

#[test]
fn without_faults_nothing_is_sent_twice() {
    for world in with_seeds(5, Faults { delay_ms_max: 3, ..Faults::default() }) {
        let account = world.source.account();
        assert_eq!((account.sent_again, account.deaths, account.hangs), (0, 0, 0));
        // Each worker of a broadcast hands on each image, and the sink takes it once.
        let expected = if world.source.policy() == Policy::Broadcast { (WORKERS as u64 - 1) * IMAGES } else { 0 };
        assert_eq!(world.sink.account().doubled, expected);
    }
}

#[test]
fn killed_processes_lose_and_double_nothing() {
    let worlds = with_seeds(30, Faults { delay_ms_max: 3, kills: 20, ..Faults::default() });
    assert!(worlds.iter().map(|world| world.source.account().sent_again).sum::<u64>() > 100);
}

#[test]
fn paused_processes_lose_and_double_nothing() {
    let worlds = with_seeds(30, Faults { delay_ms_max: 3, pauses: 5, ..Faults::default() });
    assert!(worlds.iter().map(|world| world.sink.account().doubled).sum::<u64>() > 10);
    assert!(worlds.iter().any(|world| world.source.account().deaths > 0));
}

#[test]
fn partitions_lose_and_double_nothing() {
    let worlds = with_seeds(30, Faults { delay_ms_max: 3, partitions: 5, ..Faults::default() });
    assert!(worlds.iter().any(|world| world.source.account().deaths > 0));
}

#[test]
fn lost_late_and_doubled_messages_lose_and_double_nothing() {
    let worlds = with_seeds(20, Faults { lost: 50, doubled: 50, delay_ms_max: 40, ..Faults::default() });
    assert!(worlds.iter().any(|world| world.source.account().hangs > 0));
}

#[test]
fn a_broadcast_reaches_all_that_are_there() {
    let world = World::new(3, Faults { delay_ms_max: 3, ..Faults::default() }, Policy::Broadcast).run("all are there");
    let (account, worked) = (world.source.account(), world.source.members().into_iter().map(|member| member.worked));
    assert_eq!((worked.collect::<Vec<_>>(), account.missed), (vec![IMAGES; WORKERS], 0));
    let faults = Faults { delay_ms_max: 3, partitions: 5, ..Faults::default() };
    let worlds: Vec<_> = (0..20).map(|seed| World::new(seed, faults, Policy::Broadcast).run(&format!("seed {seed}"))).collect();
    assert!(worlds.iter().any(|world| world.source.account().missed > 0), "what a partner missed is counted");
}

#[test]
fn the_time_until_others_have_the_images_of_a_partner_is_known() {
    let worlds = with_seeds(10, Faults { delay_ms_max: 3, partitions: 5, ..Faults::default() });
    let recovered = || worlds.iter().map(|world| world.source.account()).filter(|account| account.recoveries > 0);
    assert!(recovered().count() > 10);
    for account in recovered() {
        // It was silent for longer than SILENCE_MS_MAX before it was noticed, and a run of the simulation is bounded.
        assert!(account.recovery_ms_max >= crate::producer::SILENCE_MS_MAX, "{account:?}");
        assert!(account.recovery_ms_sum <= account.recoveries * account.recovery_ms_max, "{account:?}");
        assert!(account.recovery_ms_max < 60_000, "{account:?}");
    }
}

#[test]
fn all_faults_together() {
    let all = Faults { lost: 20, doubled: 20, delay_ms_max: 20, kills: 3, pauses: 2, partitions: 2 };
    with_seeds(30, all);
}

#[test]
fn what_a_partner_claims_has_no_bound_and_does_no_harm() {
    let mut producer = Producer::new("work", Policy::LeastWorkload, LIMITS);
    let (stage, member) = ("work".to_owned(), "work-0".to_owned());
    let hello = Message::Hello { version: VERSION, stage, member, epoch: 1, credits: u32::MAX, pending: u32::MAX };
    producer.arrived("work-0", hello, 1);
    for id in [0, 1] {
        producer.offer(id, 0, ());
        assert!(producer.next_work(2).is_some());
    }
    // The first is none that it has from here.
    [7, 0, 1].into_iter().for_each(|id| producer.arrived("work-0", Message::Done { id }, 3));
    assert_eq!([producer.next_finished(), producer.next_finished()], [Some((0, false)), Some((1, false))]);
    assert_eq!(producer.account().imbalance(), None);
}

#[test]
fn a_producer_without_images_waits_for_its_members_to_say_that_it_is_over() {
    let mut producer: Producer<()> = Producer::new("work", Policy::RoundRobin, Limits { members: 2, ..LIMITS });
    producer.end();
    assert!(producer.is_finished() && !producer.is_left(), "a member that comes now would wait for ever");
    for (now_ms, name) in [(10, "work-0"), (5000, "work-1")] {
        assert!(!producer.is_left(), "{name} does not know it");
        let hello =
            Message::Hello { version: VERSION, stage: "work".into(), member: name.into(), epoch: 1, credits: 4, pending: 0 };
        producer.arrived(name, hello, now_ms);
        producer.arrived(name, Message::Heartbeat { is_blocked: false, floor: 0 }, now_ms + 100);
        let said: Vec<_> = std::iter::from_fn(|| producer.next_message()).collect();
        assert!(said.contains(&(name.to_owned(), Message::End)), "{said:?}");
        producer.arrived(name, Message::Bye, now_ms + 101);
    }
    assert!(producer.is_left());
}
