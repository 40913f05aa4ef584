//! Seeded series with everything that can go wrong: upstreams of different speed, loss, duplicates, damaged messages,
//! parts that come too late, senders that were started again, slow workers and sinks. No clock runs: a seed replays it.

use super::world::{Input, MS, Seen, World, end, image, modules, start};
use crate::series::notice::{ArmOrder, Command};
use crate::series::spec::{Join, SeriesSpec};
use konkordia_core::ledger::MissingPolicy;
use konkordia_core::protocol::Protocol;
use konkordia_core::series::{Accept, Ended};
use konkordia_sim::rng::Rng;
use konkordia_wire::message::{Event, Read};
use std::collections::{BTreeMap, BTreeSet};

const WAIT_NS: u64 = 300 * MS;
const PERIOD_NS: u64 = 8 * MS;

/// How the detector sends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// Messages without numbers over one upstream or several.
    Plain,
    /// Numbered messages.
    Numbered,
    /// A part of each image over each upstream.
    Modular,
}

/// A part of an image that came: the time, the image, the part; and whether it can be used.
#[derive(Clone, Copy, Debug)]
struct Came {
    at_ns: u64,
    image: u64,
    part: u64,
    is_good: bool,
    number: Option<u64>,
}

/// One series, as it was sent.
struct Sent {
    images: u64,
    planned: Option<u64>,
    has_end: bool,
    /// All its images that came, in the order of time.
    came: Vec<Came>,
    /// Numbers of the other messages that came, with their times.
    others: Vec<(u64, u64)>,
}

struct Scenario {
    kind: Kind,
    upstreams: usize,
    missing: MissingPolicy,
    window_images: u64,
    /// Slow workers and sinks, and therefore nothing that comes late.
    is_tight: bool,
    rng: Rng,
    /// Latency of each upstream, and the time of its last message.
    latency_ns: Vec<u64>,
    last_ns: Vec<u64>,
    /// Times are all different.
    used: BTreeSet<u64>,
}

impl Scenario {
    fn new(seed: u64, kind: Kind) -> Self {
        let mut rng = Rng::new(seed);
        let upstreams = if kind == Kind::Modular { 2 + rng.below(2) } else { 1 + rng.below(3) } as usize;
        let is_single = upstreams == 1;
        Self {
            kind,
            upstreams,
            missing: if rng.chance(0.7) { MissingPolicy::Keep } else { MissingPolicy::Discard },
            window_images: if is_single && rng.chance(0.5) { 4 + rng.below(8) } else { 256 },
            is_tight: rng.chance(0.3),
            latency_ns: (0..upstreams).map(|_| rng.below(20 * MS)).collect(),
            last_ns: vec![0; upstreams],
            used: BTreeSet::new(),
            rng,
        }
    }

    fn spec(&self) -> SeriesSpec {
        SeriesSpec {
            join: if self.kind == Kind::Modular { modules(self.upstreams) } else { Join::Balanced },
            window_images: self.window_images,
            wait_ns: WAIT_NS,
            drain_ns: 200 * MS,
            stall_timeout_ns: 1000 * MS,
            missing: self.missing,
            ..SeriesSpec::new(if self.kind == Kind::Numbered { Protocol::Stins } else { Protocol::DectrisV2 })
        }
    }

    fn unique(&mut self, mut at_ns: u64) -> u64 {
        while !self.used.insert(at_ns) {
            at_ns += 1;
        }
        at_ns
    }

    /// When a message comes that was sent at `sent_ns`: those of one upstream keep their order.
    fn arrival(&mut self, upstream: usize, sent_ns: u64) -> u64 {
        let at_ns = sent_ns + self.latency_ns[upstream] + self.rng.below(5 * MS);
        let at_ns = self.unique(at_ns.max(self.last_ns[upstream] + 1));
        self.last_ns[upstream] = at_ns;
        at_ns
    }

    /// Sends series `key` from `sent_ns` on. Returns it, and when its last message was sent.
    fn series(&mut self, world: &mut World, key: u64, from_ns: u64) -> (Sent, u64) {
        let images = 10 + self.rng.below(90);
        let planned = self.rng.chance(0.5).then_some(images);
        let has_end = self.rng.chance(0.8);
        let base = key * 1000;
        let is_numbered = self.kind == Kind::Numbered;
        let number = |n: u64| is_numbered.then_some(base + n);
        let mut sent = Sent { images, planned, has_end, came: Vec::new(), others: Vec::new() };
        let all = if self.kind == Kind::Modular { self.upstreams } else { 1 };
        for n in 0..all {
            let upstream = if all > 1 { n } else { self.upstream() };
            let at_ns = self.arrival(upstream, from_ns);
            sent.others.push((at_ns, base));
            world.message(at_ns, upstream, start(key, number(0), planned));
        }
        for n in 0..images {
            let sent_ns = from_ns + (n + 1) * PERIOD_NS;
            for part in 0..all {
                self.part(world, &mut sent, (key, n, part as u64), (sent_ns, from_ns + images * PERIOD_NS));
            }
        }
        let end_ns = from_ns + (images + 1) * PERIOD_NS;
        for n in (0..all).filter(|_| has_end) {
            let upstream = if all > 1 { n } else { self.upstream() };
            let at_ns = self.arrival(upstream, end_ns);
            sent.others.push((at_ns, base + images + 1));
            world.message(at_ns, upstream, end(key, number(images + 1)));
        }
        sent.came.sort_by_key(|came| came.at_ns);
        (sent, end_ns)
    }

    fn upstream(&mut self) -> usize {
        self.rng.below(self.upstreams as u64) as usize
    }

    /// Sends a part: once, twice, late, damaged, or not at all.
    fn part(&mut self, world: &mut World, sent: &mut Sent, (key, n, part): (u64, u64, u64), (sent_ns, last_ns): (u64, u64)) {
        let number = (self.kind == Kind::Numbered).then_some(key * 1000 + n + 1);
        let mut send = |this: &mut Self, is_good: bool, delay_ns: Option<u64>| {
            let upstream = if this.kind == Kind::Modular { part as usize } else { this.upstream() };
            let at_ns = match delay_ns {
                None => this.arrival(upstream, sent_ns),
                // It must come before the end of its series.
                Some(delay_ns) if this.is_tight || sent_ns + delay_ns >= last_ns => return,
                Some(delay_ns) => this.unique(sent_ns + delay_ns),
            };
            sent.came.push(Came { at_ns, image: n, part, is_good, number });
            world.message(at_ns, upstream, image(key, number, n, !is_good));
        };
        let late_ns = 150 * MS + self.rng.below(300 * MS);
        match self.rng.below(24) {
            // The first images say what the others have to be like.
            _ if n < 3 => send(self, true, None),
            0 | 1 => {}
            2 => send(self, true, Some(late_ns)),
            3 | 4 => {
                send(self, true, None);
                send(self, true, None);
            }
            5 => {
                send(self, true, None);
                send(self, true, Some(late_ns));
            }
            6 => send(self, false, None),
            // A message of the same number is the same message.
            7 if number.is_none() => {
                send(self, false, None);
                send(self, true, Some(late_ns / 8));
            }
            8 => {
                let upstream = self.upstream();
                let at_ns = self.arrival(upstream, sent_ns);
                world.message(at_ns, upstream, Err("it is junk".into()));
            }
            _ => send(self, true, None),
        }
    }
}

/// When each message is taken that waits for those before it, by the definition: all of them have come, but for those
/// up to one behind which a message has waited too long.
fn in_order(sent: &Sent) -> Vec<(u64, Came)> {
    let mut first: BTreeMap<u64, u64> = BTreeMap::new();
    let images = sent.came.iter().map(|came| (came.at_ns, came.number.unwrap()));
    for (at_ns, number) in images.chain(sent.others.iter().copied()) {
        let known = first.entry(number).or_insert(at_ns);
        *known = at_ns.min(*known);
    }
    let start = *first.keys().next().unwrap();
    let given_up = |number: u64| match number < start {
        true => 0,
        false => first.range(number..).map(|(_, at_ns)| at_ns + WAIT_NS).min().unwrap_or(u64::MAX),
    };
    let all_came = |from: u64, to: u64| (from..=to).map(|n| first.get(&n).copied().unwrap_or(u64::MAX)).max().unwrap_or(0);
    let taken = |number: u64| (start - 1..=number).map(|n| given_up(n).max(all_came(n + 1, number))).min().unwrap();
    let mut taken: Vec<_> = sent.came.iter().map(|came| (came.at_ns.max(taken(came.number.unwrap())), *came)).collect();
    taken.sort_by_key(|(at_ns, came)| (*at_ns, came.number));
    taken
}

/// The states of a series by the definition: a position leaves when all of it is there, when it or one behind it has
/// waited too long, or when the window has passed it; what comes afterwards is not in it.
fn reference(scenario: &Scenario, sent: &Sent, seen: &Seen) -> String {
    let parts = if scenario.kind == Kind::Modular { scenario.upstreams as u64 } else { 1 };
    let is_sequenced = scenario.kind == Kind::Numbered && scenario.upstreams > 1;
    let (end_ns, _) = seen.end.as_ref().unwrap();
    let taken = if is_sequenced { in_order(sent) } else { sent.came.iter().map(|came| (came.at_ns, *came)).collect() };
    // Good parts, damaged parts, and when the first of them came.
    let mut here: BTreeMap<u64, (BTreeSet<u64>, BTreeSet<u64>, u64)> = BTreeMap::new();
    let mut left = 0;
    for (at_ns, came) in taken {
        // What came before its series began has waited for that.
        let at_ns = at_ns.max(seen.begin_ns);
        if at_ns > *end_ns {
            continue;
        }
        loop {
            // All that has waited for the beginning is taken before anything leaves.
            let is_over = |first_ns: u64| first_ns + WAIT_NS < at_ns && at_ns > seen.begin_ns;
            let is_due = here.range(left..).any(|(_, (.., first_ns))| is_over(*first_ns));
            let is_whole = here.get(&left).is_some_and(|(good, bad, _)| good.union(bad).count() as u64 == parts);
            if !is_due && !is_whole {
                break;
            }
            left += 1;
        }
        left = left.max((came.image + 1).saturating_sub(scenario.window_images));
        if came.image >= left {
            let (good, bad, _) = here.entry(came.image).or_insert((BTreeSet::new(), BTreeSet::new(), came.at_ns));
            if came.is_good {
                good.insert(came.part)
            } else {
                bad.insert(came.part)
            };
        }
    }
    let has_numbers = scenario.kind == Kind::Numbered && sent.has_end;
    let positions = if has_numbers { sent.images } else { here.keys().next_back().map_or(0, |last| last + 1) };
    let letter = |position: u64| {
        let unreadable = seen.unreadable.get(&position).copied().unwrap_or(0);
        let good = here.get(&position).map_or(0, |(good, ..)| good.iter().filter(|part| unreadable >> **part & 1 == 0).count());
        match good as u64 {
            n if n == parts => 'c',
            0 => '-',
            _ if scenario.missing == MissingPolicy::Keep => 'p',
            _ => 'd',
        }
    };
    (0..positions).map(letter).collect()
}

/// Runs a seed; returns everything that the rules asked for.
fn run(seed: u64, kind: Kind) -> Vec<String> {
    let mut scenario = Scenario::new(seed, kind);
    let is_tight = scenario.is_tight;
    let workers = (kind == Kind::Modular || scenario.rng.chance(0.3)).then_some(if is_tight { 2 } else { 1000 });
    let mut world = World::new(&scenario.spec(), scenario.upstreams, workers, seed);
    if is_tight {
        (world.work_ns, world.sink_ns) = (10 * MS, 8 * MS);
    }
    // Where partial images are thrown away, no worker looks at them.
    world.unreadable = if scenario.missing == MissingPolicy::Keep { 10 } else { 0 };
    let (mut at_ns, mut sent) = (MS, Vec::new());
    for key in 1..5 {
        let (series, end_ns) = scenario.series(&mut world, key, at_ns);
        // The next series follows at once, or after a pause. With several upstreams, messages wait for a header for a
        // bounded time only, and the series before may take longer.
        let is_patient = scenario.upstreams == 1 || (kind != Kind::Plain && !is_tight);
        let follows = scenario.rng.chance(0.5) && is_patient;
        at_ns = end_ns + if follows { 4 * MS } else { 3000 * MS };
        sent.push(series);
    }
    world.run(u64::MAX);
    world.assert_at_rest();
    assert_eq!(world.seen.len(), sent.len(), "seed {seed} {kind:?}");
    for (n, (sent, seen)) in sent.iter().zip(&world.seen).enumerate() {
        let (states, (_, end)) = (seen.states(), seen.end.as_ref().unwrap());
        assert_eq!(seen.start.series, n as u64 + 1);
        assert_eq!(states, reference(&scenario, sent, seen), "seed {seed} {kind:?} series {n}");
        let count = |letter: char| states.matches(letter).count() as u64;
        let ledger = &end.ledger;
        assert_eq!((ledger.images.expected, ledger.images.complete), (states.len() as u64, count('c')));
        assert_eq!((ledger.images.partial, ledger.images.lost, ledger.images.discarded), (count('p'), count('-'), count('d')));
        let missed = ledger.images.not_taken + ledger.images.not_received;
        assert_eq!(
            missed,
            sent.planned.map_or(0, |planned| planned.saturating_sub(ledger.images.expected)),
            "seed {seed} {kind:?}"
        );
        if sent.has_end && scenario.upstreams == 1 {
            assert_eq!(end.ended, Ended::Finished, "seed {seed} {kind:?} series {n}");
        }
    }
    world.trace
}

fn replays(kind: Kind) {
    for seed in 0..150 {
        let (once, twice) = (run(seed, kind), run(seed, kind));
        let differs = once.iter().zip(&twice).find(|(one, other)| one != other);
        assert_eq!((differs, once.len()), (None, twice.len()), "seed {seed} {kind:?}");
    }
}

#[test]
fn images_have_the_states_of_the_reference_and_a_seed_replays_them() {
    replays(Kind::Plain);
}

#[test]
fn numbered_images_have_the_states_of_the_reference_and_a_seed_replays_them() {
    replays(Kind::Numbered);
}

#[test]
fn images_of_modules_have_the_states_of_the_reference_and_a_seed_replays_them() {
    replays(Kind::Modular);
}

/// Any messages at any time, with commands between them: no order is assumed, so there is no reference; but everything
/// balances, and nothing is left.
fn chaos(seed: u64) -> Vec<String> {
    let mut rng = Rng::new(seed);
    let protocol = Protocol::ALL[rng.below(Protocol::ALL.len() as u64) as usize];
    let upstreams = 1 + rng.below(3) as usize;
    let join = match rng.below(4) {
        0 => modules(upstreams),
        1 => Join::Pieces,
        _ => Join::Balanced,
    };
    let spec = SeriesSpec {
        sum_frames: 1 + rng.below(3) as u32,
        window_images: 1 + rng.below(20),
        wait_ns: 30 * MS,
        drain_ns: 20 * MS,
        stall_timeout_ns: 100 * MS,
        start_timeout_ns: 50 * MS,
        accept: if rng.chance(0.3) { Accept::WhenArmed } else { Accept::Always },
        images: rng.chance(0.2).then(|| rng.below(30)),
        missing: if rng.chance(0.5) { MissingPolicy::Keep } else { MissingPolicy::CompleteOnly },
        join: join.clone(),
        ..SeriesSpec::new(protocol)
    };
    let workers = (join.is_modular() || spec.sum_frames > 1).then(|| 1 + rng.below(5) as usize);
    let mut world = World::new(&spec, upstreams, workers, seed);
    (world.work_ns, world.sink_ns, world.unreadable) = (rng.below(20 * MS), rng.below(7 * MS), 5);
    let mut at_ns = 0;
    let mut number = 0;
    for _ in 0..400 {
        at_ns += rng.below(3 * MS);
        number += rng.below(3);
        let (upstream, series) = (rng.below(upstreams as u64) as usize, 1 + at_ns / (200 * MS) + rng.below(8) / 7);
        let message = (protocol == Protocol::Stins).then_some(number + rng.below(5));
        let frame = match rng.below(30) {
            0 => rng.next_u64() >> 40,
            _ => number % 100 + rng.below(6),
        };
        let read: Result<Read, String> = match rng.below(40) {
            0 => start(series, message, rng.chance(0.5).then(|| rng.below(60))),
            1 => end(series, message),
            2 => Err("it is junk".into()),
            3 => Ok(Read { message_number: message, event: Event::Other }),
            n => image(series, message, frame, n == 4),
        };
        world.message(at_ns, upstream, read);
        let command = match rng.below(60) {
            0 => Command::Cancel(0),
            1 => Command::Stop,
            2 => Command::StartClock,
            3 | 4 => Command::Arm(ArmOrder { images: rng.chance(0.5).then(|| rng.below(20)), ..ArmOrder::default() }),
            _ => continue,
        };
        world.at(at_ns, Input::Command(command));
    }
    let failed = rng.chance(0.3).then(|| "the cable was cut".to_owned());
    (0..upstreams).for_each(|upstream| world.at(at_ns + upstream as u64, Input::Closed(upstream, failed.clone())));
    world.run(u64::MAX);
    world.assert_at_rest();
    for seen in &world.seen {
        let (_, end) = seen.end.as_ref().unwrap();
        let images = seen.images.len() as u64;
        assert!(
            images == end.ledger.images.expected || (end.ended == Ended::Cancelled && images < end.ledger.images.expected),
            "seed {seed}"
        );
    }
    world.trace
}

#[test]
fn whatever_comes_balances_and_leaves_nothing_behind() {
    for seed in 0..600 {
        assert!(chaos(seed) == chaos(seed), "seed {seed}");
    }
}
