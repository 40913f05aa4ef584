//! The side that has images: it keeps each until it is finished, and decides who gets it.

use crate::account::Account;
use crate::message::{Message, VERSION};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Time between two messages that say that a partner is still there.
pub const HEARTBEAT_MS: u64 = 100;
/// After so long without a message a partner is dead: three heartbeats are missing.
pub const SILENCE_MS_MAX: u64 = 3 * HEARTBEAT_MS;
/// How long the first image of a broadcast waits until all members are there.
pub const GREETING_MS_MAX: u64 = 10_000;
/// Partners of a producer; more are refused.
pub const MEMBERS_MAX: usize = 1024;
/// Weight of the newest response time in the mean.
const NEWEST: f64 = 0.2;
/// Messages that wait to be sent; more are left out, and are said again with the next heartbeat.
const OUTBOX_MAX: usize = 1 << 14;

/// Who gets an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// One after the other.
    RoundRobin,
    /// The one with the smallest penalty: images in hand over those that it can take, and its mean response time.
    LeastWorkload,
    /// Images with the same key go to the same member, while it lives.
    ByKey,
    /// All members that are there get each image. It is finished when one has finished it and no other is still at it.
    Broadcast,
}

/// How well a member suits a key; the member with the greatest weight gets it, so that the death of one moves only its
/// own keys (FNV-1a, then a mixer).
fn weight(key: u64, name: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let hash = key.to_le_bytes().into_iter().chain(name.bytes()).fold(0xcbf2_9ce4_8422_2325, step);
    let mixed = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    mixed ^ (mixed >> 33)
}

/// What a producer keeps, and how long it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Images from the oldest that is not finished to the newest.
    pub ring: u64,
    /// Longest time of a member for an image; then others get it.
    pub response_ms_max: u64,
    /// An image that was refused so often is given up.
    pub refusals_max: u32,
    /// Members that the stage has. [`Policy::Broadcast`] waits for them, and for [`GREETING_MS_MAX`] at most. All wait
    /// for them at the end ([`Producer::is_left`]).
    pub members: u32,
}

/// An image to be sent to a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Send<P> {
    /// The name of the member.
    pub to: String,
    /// Its [`Message::Work`].
    pub message: Message,
    /// What follows it.
    pub payload: P,
}

/// What is known of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It gets images.
    Ready,
    /// It had an image for too long, and gets nothing until it finishes one.
    Hanging,
    /// It is silent, and gets nothing until it greets again.
    Dead,
    /// It has left.
    Left,
}

/// A member as the status shows it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MemberStatus {
    /// Its name.
    pub name: String,
    /// What is known of it.
    pub state: State,
    /// Images on which it works.
    pub in_hand: usize,
    /// Images that it can take at once.
    pub window: u32,
    /// Mean time from sending to the end of its work, in ms.
    pub response_ms: f64,
    /// Images that it has worked on.
    pub worked: u64,
}

struct Member {
    state: State,
    epoch: u64,
    window: u32,
    credits: u32,
    /// Images that it still works on though others have got them since; the end of each gives a credit.
    stale: u32,
    /// Sent, and not said to be passed: when it was sent.
    in_hand: BTreeMap<u64, u64>,
    heard_ms: u64,
    response_ms: f64,
    worked: u64,
    /// It was asked who it is, and has not answered.
    asked_ms: Option<u64>,
}

impl Member {
    fn penalty(&self, slowest_ms: f64) -> f64 {
        self.in_hand.len() as f64 / f64::from(self.window.max(1)) + self.response_ms / slowest_ms.max(1e-3)
    }

    fn is_free(&self) -> bool {
        self.state == State::Ready && self.credits > 0
    }
}

struct Entry<P> {
    payload: P,
    key: u64,
    attempts: u32,
    refusals: u32,
    /// Who has it and is not known to have finished it.
    holders: BTreeSet<String>,
    /// When it was sent, or when its holders were asked what became of it.
    asked_ms: u64,
    /// A member has finished it, and others are still at it.
    is_done: bool,
}

/// What a member had when it died, until others have worked on all of it.
struct Recovery {
    /// When the member was heard last.
    since_ms: u64,
    ids: BTreeSet<u64>,
}

/// Gives the images of one edge to the members of the stage behind it.
pub struct Producer<P> {
    stage: String,
    policy: Policy,
    limits: Limits,
    entries: BTreeMap<u64, Entry<P>>,
    /// Images that nobody has. The oldest go first, so that what is sent again overtakes the rest.
    waiting: BTreeSet<u64>,
    members: BTreeMap<String, Member>,
    last_served: String,
    floor: u64,
    has_ended: bool,
    account: Account,
    /// The reason of the newest image that was given up.
    reason: Option<(u64, String)>,
    outbox: VecDeque<(String, Message)>,
    looked_ms: u64,
    /// Of a broadcast: which members still have to be sent which images.
    spread: VecDeque<(u64, String)>,
    /// When the first image was handed over.
    first_ms: Option<u64>,
    recoveries: Vec<Recovery>,
    /// Images that are finished, and whether they were given up.
    finished: VecDeque<(u64, bool)>,
}

impl<P: Clone> Producer<P> {
    /// A producer for the members of this stage.
    pub fn new(stage: &str, policy: Policy, limits: Limits) -> Self {
        assert!(limits.ring > 0, "at least one image is kept");
        Self {
            stage: stage.to_owned(),
            policy,
            limits,
            entries: BTreeMap::new(),
            waiting: BTreeSet::new(),
            members: BTreeMap::new(),
            last_served: String::new(),
            floor: 0,
            has_ended: false,
            account: Account::default(),
            reason: None,
            outbox: VecDeque::new(),
            looked_ms: 0,
            spread: VecDeque::new(),
            first_ms: None,
            recoveries: Vec::new(),
            finished: VecDeque::new(),
        }
    }

    /// The stage behind the edge.
    pub fn stage(&self) -> &str {
        &self.stage
    }

    /// Who gets an image.
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// True if this image can be kept too.
    pub fn has_room(&self, id: u64) -> bool {
        self.entries.len() < self.limits.ring as usize
            && self.entries.first_key_value().is_none_or(|(oldest, _)| id < oldest.saturating_add(self.limits.ring))
    }

    /// Hands over an image. False, and nothing happens, if it is open already.
    ///
    /// # Panics
    /// There is no room for it, or the end was said.
    pub fn offer(&mut self, id: u64, key: u64, payload: P) -> bool {
        assert!(!self.has_ended && self.entries.len() < self.limits.ring as usize, "has_room was asked before");
        if self.entries.contains_key(&id) {
            return false;
        }
        self.account.produced += 1;
        self.waiting.insert(id);
        self.entries
            .insert(id, Entry { payload, key, attempts: 0, refusals: 0, holders: BTreeSet::new(), asked_ms: 0, is_done: false });
        true
    }

    /// No further images are handed over.
    pub fn end(&mut self) {
        self.has_ended = true;
    }

    /// All images with smaller numbers are finished in the whole graph.
    pub fn set_floor(&mut self, floor: u64) {
        self.floor = self.floor.max(floor);
    }

    /// The oldest image that is not finished.
    pub fn oldest(&self) -> Option<u64> {
        self.entries.first_key_value().map(|(id, _)| *id)
    }

    /// A member has sent this message. What is finished now, [`Producer::next_finished`] tells.
    pub fn arrived(&mut self, from: &str, message: Message, now_ms: u64) {
        if let Message::Hello { version, stage, member, epoch, credits, pending } = message {
            if let Err(why) = self.check_hello(from, version, &stage, &member) {
                self.say(from, Message::Refused { why });
                return;
            }
            self.hello(from, epoch, credits, pending, now_ms);
            return;
        }
        let Some(member) = self.members.get_mut(from) else {
            self.say(from, Message::Ask);
            return;
        };
        member.heard_ms = now_ms;
        match message {
            Message::Heartbeat { is_blocked, .. } => self.heartbeat(from, is_blocked, now_ms),
            Message::Passed { id } => self.passed(from, id, now_ms),
            Message::Done { id } => {
                self.passed(from, id, now_ms);
                self.done(from, id, now_ms);
            }
            Message::Nack { id, why } => {
                self.passed(from, id, now_ms);
                self.nack(from, id, why);
            }
            Message::Bye => {
                member.state = State::Left;
                self.take_back(from, now_ms);
            }
            _ => self.account.dropped += 1,
        }
    }

    /// An image that is finished in the whole graph behind this edge, and whether it was given up.
    pub fn next_finished(&mut self) -> Option<(u64, bool)> {
        self.finished.pop_front()
    }

    fn check_hello(&self, from: &str, version: u16, stage: &str, member: &str) -> Result<(), String> {
        if version != VERSION {
            return Err(format!(
                "this host speaks version {VERSION} of the messages of a graph, the stage at '{from}' version {version}; \
                 install the same version of Konkordia on all hosts"
            ));
        }
        if stage != self.stage || member != from {
            return Err(format!("the edge leads to stage '{}', and this is '{member}' of '{stage}'", self.stage));
        }
        if !self.members.contains_key(from) && self.members.len() >= MEMBERS_MAX {
            return Err(format!("the edge has {MEMBERS_MAX} members, and takes no more"));
        }
        Ok(())
    }

    fn hello(&mut self, from: &str, epoch: u64, credits: u32, pending: u32, now_ms: u64) {
        let known = self.members.get(from);
        if known.is_some_and(|member| member.epoch > epoch) {
            self.account.dropped += 1;
            return;
        }
        let is_new = known.is_none_or(|member| member.epoch < epoch);
        if is_new {
            self.take_back(from, now_ms);
        }
        let window = credits.saturating_add(pending);
        let member = self.members.entry(from.to_owned()).or_insert_with(|| Member {
            state: State::Dead,
            epoch,
            window,
            credits: 0,
            stale: 0,
            in_hand: BTreeMap::new(),
            heard_ms: now_ms,
            response_ms: 0.0,
            worked: 0,
            asked_ms: None,
        });
        let is_hanging = member.state == State::Hanging && !is_new && pending > 0;
        member.state = if is_hanging { State::Hanging } else { State::Ready };
        (member.epoch, member.window, member.heard_ms, member.asked_ms) = (epoch, window, now_ms, None);
        // What was sent and is not among its pending ones is still under way, or lost: then it comes back by its age.
        member.credits = credits.min(window.saturating_sub(member.in_hand.len() as u32));
        member.stale = pending.saturating_sub(member.in_hand.len() as u32);
    }

    fn heartbeat(&mut self, from: &str, is_blocked: bool, now_ms: u64) {
        let Some(member) = self.members.get_mut(from) else { return };
        if is_blocked {
            member.in_hand.values_mut().for_each(|sent_ms| *sent_ms = now_ms);
        }
        let is_away = member.state != State::Ready || (member.credits == 0 && member.in_hand.is_empty());
        if is_away && member.asked_ms.is_none_or(|asked| now_ms >= asked + SILENCE_MS_MAX) {
            member.asked_ms = Some(now_ms);
            self.say(from, Message::Ask);
        }
        self.say(from, Message::Heartbeat { is_blocked: false, floor: self.floor });
        if self.is_finished() {
            self.say(from, Message::End);
        }
    }

    fn passed(&mut self, from: &str, id: u64, now_ms: u64) {
        let Some(member) = self.members.get_mut(from) else { return };
        if member.state == State::Hanging {
            member.state = State::Ready;
        }
        let Some(sent_ms) = member.in_hand.remove(&id) else {
            if member.stale > 0 {
                member.stale -= 1;
                let room = member.window.saturating_sub((member.in_hand.len() as u32).saturating_add(member.stale));
                member.credits = member.credits.saturating_add(1).min(room);
            }
            return;
        };
        let took_ms = now_ms.saturating_sub(sent_ms) as f64;
        let is_first = member.worked == 0;
        member.response_ms = if is_first { took_ms } else { (1.0 - NEWEST) * member.response_ms + NEWEST * took_ms };
        member.worked += 1;
        member.credits = member.credits.saturating_add(1).min(member.window.saturating_sub(member.in_hand.len() as u32));
        self.recovered(id, now_ms);
    }

    /// An image of a member that died was worked on by another one.
    fn recovered(&mut self, id: u64, now_ms: u64) {
        let account = &mut self.account;
        self.recoveries.retain_mut(|recovery| {
            recovery.ids.remove(&id);
            if recovery.ids.is_empty() {
                let took_ms = now_ms.saturating_sub(recovery.since_ms);
                account.recoveries += 1;
                account.recovery_ms_sum += took_ms;
                account.recovery_ms_max = account.recovery_ms_max.max(took_ms);
            }
            !recovery.ids.is_empty()
        });
    }

    fn done(&mut self, from: &str, id: u64, now_ms: u64) {
        let Some(entry) = self.entries.get_mut(&id) else {
            self.account.late += 1;
            return;
        };
        entry.holders.remove(from);
        entry.is_done = true;
        let is_wanted = |(of, _): &(u64, String)| *of == id;
        if self.policy == Policy::Broadcast && (!entry.holders.is_empty() || self.spread.iter().any(is_wanted)) {
            return;
        }
        self.finish(id);
        self.recovered(id, now_ms);
    }

    /// An image that a member has finished, and that no other has.
    fn finish(&mut self, id: u64) {
        self.account.done += 1;
        self.forget(id);
        self.finished.push_back((id, false));
    }

    fn nack(&mut self, from: &str, id: u64, why: String) {
        let Some(entry) = self.entries.get_mut(&id) else {
            self.account.late += 1;
            return;
        };
        self.account.refused += 1;
        entry.refusals += 1;
        entry.holders.remove(from);
        if entry.refusals >= self.limits.refusals_max {
            self.account.given_up += 1;
            self.reason = Some((id, why));
            self.forget(id);
            self.finished.push_back((id, true));
        } else if self.policy == Policy::Broadcast {
            self.spread.push_back((id, from.to_owned()));
        } else if entry.holders.is_empty() {
            self.waiting.insert(id);
        }
    }

    fn forget(&mut self, id: u64) {
        self.entries.remove(&id);
        self.waiting.remove(&id);
        self.spread.retain(|(of, _)| *of != id);
    }

    /// The images of a member go to others. Of a broadcast, those that others have finished are finished without it.
    fn take_back(&mut self, from: &str, now_ms: u64) {
        let mut ids = BTreeSet::new();
        let mut since_ms = now_ms;
        if let Some(member) = self.members.get_mut(from) {
            ids = std::mem::take(&mut member.in_hand).into_keys().filter(|id| self.entries.contains_key(id)).collect();
            (member.credits, since_ms) = (0, member.heard_ms);
        }
        let mut wanted = BTreeSet::new();
        self.spread.retain(|(id, to)| to != from || !wanted.insert(*id));
        let mut finished = Vec::new();
        for (id, entry) in &mut self.entries {
            let had_it = entry.holders.remove(from) | wanted.contains(id);
            let is_free = entry.holders.is_empty() && !self.spread.iter().any(|(of, _)| of == id);
            if had_it && entry.is_done {
                self.account.missed += 1;
                if is_free {
                    finished.push(*id);
                }
            } else if had_it && is_free {
                self.waiting.insert(*id);
            }
        }
        finished.into_iter().for_each(|id| self.finish(id));
        ids.retain(|id| self.entries.contains_key(id));
        if !ids.is_empty() && self.policy != Policy::Broadcast {
            self.recoveries.push(Recovery { since_ms, ids });
        }
    }

    /// A connection has ended, and nobody knows whose: what is said to a member without one cannot be sent.
    pub fn probe(&mut self) {
        let is_there = |member: &Member| matches!(member.state, State::Ready | State::Hanging);
        let there: Vec<_> = self.members.iter().filter(|(_, member)| is_there(member)).map(|(name, _)| name.clone()).collect();
        let floor = self.floor;
        there.iter().for_each(|name| self.say(name, Message::Heartbeat { is_blocked: false, floor }));
    }

    /// A message to this member could not be sent: there is no connection.
    pub fn unreachable(&mut self, to: &str, now_ms: u64) {
        if self.members.get(to).is_some_and(|member| !matches!(member.state, State::Dead | State::Left)) {
            self.die(to, now_ms);
        }
    }

    fn die(&mut self, name: &str, now_ms: u64) {
        self.account.deaths += 1;
        self.take_back(name, now_ms);
        if let Some(member) = self.members.get_mut(name) {
            (member.state, member.asked_ms) = (State::Dead, None);
        }
    }

    /// Finds members that are silent or hang; their images go to others.
    pub fn tick(&mut self, now_ms: u64) {
        if now_ms >= self.looked_ms.saturating_add(HEARTBEAT_MS) {
            self.looked_ms = now_ms;
            self.ask_for_old(now_ms);
        }
        let (mut dead, mut hanging) = (Vec::new(), Vec::new());
        for (name, member) in &self.members {
            if matches!(member.state, State::Dead | State::Left) {
                continue;
            }
            let is_late = |sent_ms: &u64| now_ms > sent_ms.saturating_add(self.limits.response_ms_max);
            if now_ms > member.heard_ms.saturating_add(SILENCE_MS_MAX) {
                dead.push(name.clone());
            } else if member.in_hand.values().any(is_late) {
                hanging.push(name.clone());
            }
        }
        dead.iter().for_each(|name| self.die(name, now_ms));
        for name in hanging {
            self.account.hangs += 1;
            self.take_back(&name, now_ms);
            if let Some(member) = self.members.get_mut(&name) {
                (member.state, member.asked_ms) = (State::Hanging, None);
            }
        }
    }

    /// Asks what became of images that a member has for long: its answer may be lost.
    fn ask_for_old(&mut self, now_ms: u64) {
        let mut asked = Vec::new();
        for (id, entry) in &mut self.entries {
            if !entry.holders.is_empty() && now_ms > entry.asked_ms.saturating_add(self.limits.response_ms_max) {
                entry.asked_ms = now_ms;
                asked.extend(entry.holders.iter().map(|name| (name.clone(), *id)));
            }
        }
        asked.into_iter().for_each(|(name, id)| self.say(&name, Message::Query { id }));
    }

    /// The next image to send, if there is one and a member for it.
    pub fn next_work(&mut self, now_ms: u64) -> Option<Send<P>> {
        self.first_ms.get_or_insert(now_ms);
        let (id, to) = if self.policy == Policy::Broadcast { self.next_of_spread(now_ms)? } else { self.choose()? };
        let entry = self.entries.get_mut(&id)?;
        let member = self.members.get_mut(&to)?;
        entry.holders.insert(to.clone());
        entry.attempts += 1;
        entry.asked_ms = now_ms;
        self.account.sent_again += u64::from(entry.attempts > 1 && self.policy != Policy::Broadcast);
        member.credits -= 1;
        member.in_hand.insert(id, now_ms);
        self.waiting.remove(&id);
        self.last_served.clone_from(&to);
        let message = Message::Work { id, attempt: entry.attempts, floor: self.floor };
        Some(Send { to, message, payload: entry.payload.clone() })
    }

    /// Who still has to get an image of a broadcast. The next image goes to all that are there, when all can take one.
    fn next_of_spread(&mut self, now_ms: u64) -> Option<(u64, String)> {
        let is_free = |name: &String| self.members.get(name).is_some_and(Member::is_free);
        if let Some(at) = self.spread.iter().position(|(_, name)| is_free(name)) {
            return self.spread.remove(at);
        }
        let is_early = now_ms < self.first_ms?.saturating_add(GREETING_MS_MAX);
        let ready: Vec<_> = self.members.iter().filter(|(_, member)| member.state == State::Ready).collect();
        let are_all_free = !ready.is_empty() && ready.iter().all(|(_, member)| member.credits > 0);
        if !are_all_free || !self.spread.is_empty() || (self.members.len() < self.limits.members as usize && is_early) {
            return None;
        }
        let id = *self.waiting.first()?;
        self.spread.extend(ready.into_iter().map(|(name, _)| (id, name.clone())));
        self.spread.pop_front()
    }

    /// The oldest image that somebody can take, and who.
    fn choose(&self) -> Option<(u64, String)> {
        if !self.members.values().any(Member::is_free) {
            return None;
        }
        let first = *self.waiting.first()?;
        let name = match self.policy {
            Policy::RoundRobin => {
                let free = || self.members.iter().filter(|(_, member)| member.is_free()).map(|(name, _)| name);
                free().find(|name| **name > self.last_served).or_else(|| free().next())?
            }
            Policy::LeastWorkload => {
                let slowest_ms = self.members.values().map(|member| member.response_ms).fold(0.0, f64::max);
                let free = self.members.iter().filter(|(_, member)| member.is_free());
                let least = free.min_by(|(_, a), (_, b)| a.penalty(slowest_ms).total_cmp(&b.penalty(slowest_ms)));
                least.map(|(name, _)| name)?
            }
            Policy::Broadcast => return None,
            Policy::ByKey => return self.waiting.iter().find_map(|id| Some((*id, self.of_key(*id)?.clone()))),
        };
        Some((first, name.clone()))
    }

    /// The member for the key of an image, if it is free.
    fn of_key(&self, id: u64) -> Option<&String> {
        let key = self.entries.get(&id)?.key;
        let alive = self.members.iter().filter(|(_, member)| member.state == State::Ready);
        let (name, member) = alive.max_by_key(|(name, _)| weight(key, name))?;
        member.is_free().then_some(name)
    }

    fn say(&mut self, to: &str, message: Message) {
        if self.outbox.len() < OUTBOX_MAX {
            self.outbox.push_back((to.to_owned(), message));
        }
    }

    /// What else to send, and to whom.
    pub fn next_message(&mut self) -> Option<(String, Message)> {
        self.outbox.pop_front()
    }

    /// The end was said and all images are finished.
    pub fn is_finished(&self) -> bool {
        self.has_ended && self.entries.is_empty()
    }

    /// Finished, and every member knows it. One that has not greeted yet would wait for images: with none to give, or
    /// faster members, a producer can be finished before it is there.
    pub fn is_left(&self) -> bool {
        let are_all_left = || self.members.values().all(|member| member.state == State::Left);
        self.is_finished() && self.members.len() >= self.limits.members as usize && are_all_left()
    }

    /// What was counted.
    pub fn account(&self) -> Account {
        Account { open: self.entries.len() as u64, ..self.account.clone() }
    }

    /// The newest image that was given up, and why.
    pub fn reason(&self) -> Option<(u64, &str)> {
        self.reason.as_ref().map(|(id, why)| (*id, why.as_str()))
    }

    /// Images that nobody has.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// The members.
    pub fn members(&self) -> Vec<MemberStatus> {
        let status = |(name, member): (&String, &Member)| MemberStatus {
            name: name.clone(),
            state: member.state,
            in_hand: member.in_hand.len(),
            window: member.window,
            response_ms: member.response_ms,
            worked: member.worked,
        };
        self.members.iter().map(status).collect()
    }
}
