//! The system manager: it asks all members what they can do, and sets them up by telegrams in the order of
//! [`Initialisation`]. It has no connections and no clock: telegrams to send come back as values, and answers and times
//! come as arguments.
//!
//! [`Manager::next_step`] says what comes next, [`Manager::begin`] begins a step, [`Manager::answer`] takes an answer,
//! and [`Manager::silent`] says who has not answered in time. A step that failed may be begun again.

use super::description::Description;
use super::initialisation::{Initialisation, OutOfOrder, Step};
use super::plan::{BadPlan, Facts, Plan, Space};
use super::telegram::{Body, BufferPlace, Code, Telegram, TransferEntry};
use super::terms::{ModuleId, ReceiverId};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;

/// A member of a system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Member {
    /// A module.
    Module(ModuleId),
    /// A receiver.
    Receiver(ReceiverId),
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Module(id) => id.fmt(f),
            Self::Receiver(id) => id.fmt(f),
        }
    }
}

/// Members, for people.
fn names(members: &[Member]) -> String {
    let names: Vec<String> = members.iter().map(Member::to_string).collect();
    names.join(", ")
}

/// Why a step was not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManagerError {
    /// It is not its turn.
    #[error(transparent)]
    OutOfOrder(#[from] OutOfOrder),
    /// Another step waits for answers.
    #[error("{begun} waits for answers; wait for them, or for the time limit, before {step}")]
    Busy {
        /// The step that waits.
        begun: Step,
        /// What was tried.
        step: Step,
    },
    /// The description does not fit to what the members can do.
    #[error("{step} is not possible: {why}")]
    Plan {
        /// Which step.
        step: Step,
        /// Why.
        why: BadPlan,
    },
    /// A member has refused its telegram.
    #[error("{member} refuses {element}: {reason}")]
    Refused {
        /// Who.
        member: Member,
        /// What.
        element: &'static str,
        /// The kind of reason.
        code: Code,
        /// The reason.
        reason: String,
    },
    /// A member answers something else, or something that was not asked.
    #[error("{member} answers with {said}, but {expected}; is it what the description says?")]
    Unexpected {
        /// Who.
        member: Member,
        /// What came.
        said: String,
        /// What was expected.
        expected: String,
    },
    /// Members have not answered in time.
    #[error("{step}: no answer from {}; look whether they run and can be reached", names(members))]
    Silent {
        /// Which step.
        step: Step,
        /// Who.
        members: Vec<Member>,
    },
}

/// Telegrams to send, each to one member.
pub type Outgoing = Vec<(Member, Telegram)>;

/// A telegram that waits for its answer.
#[derive(Debug)]
struct Waiting {
    member: Member,
    number: u32,
    element: &'static str,
}

/// The step that is being done.
#[derive(Debug)]
struct Current {
    step: Step,
    /// Telegrams that are sent when all before them are answered.
    waves: VecDeque<Vec<(Member, Body)>>,
    waiting: Vec<Waiting>,
    begun_ns: u64,
}

/// The system manager.
#[derive(Debug)]
pub struct Manager {
    description: Description,
    timeout_ns: u64,
    order: Initialisation,
    facts: Facts,
    made: BTreeMap<ReceiverId, Vec<BufferPlace>>,
    plan: Option<Plan>,
    space: Option<Space>,
    transfers: Vec<Vec<TransferEntry>>,
    current: Option<Current>,
    last_number: u32,
    /// The number of the newest run.
    run: u32,
}

impl Manager {
    /// A manager before its first step. Members answer within `timeout_ns`. Its telegrams have numbers above
    /// `last_number`: members refuse a manager of the same name that begins anew with lower ones.
    pub fn new(description: Description, timeout_ns: u64, last_number: u32) -> Self {
        let receivers: Vec<ReceiverId> = description.receivers.iter().map(|receiver| receiver.id).collect();
        let modules: Vec<ModuleId> = description.modules.iter().map(|module| module.id).collect();
        Self {
            order: Initialisation::new(&receivers, &modules),
            description,
            timeout_ns,
            facts: Facts::default(),
            made: BTreeMap::new(),
            plan: None,
            space: None,
            transfers: Vec::new(),
            current: None,
            last_number,
            run: 0,
        }
    }

    /// The system as it is described.
    pub const fn description(&self) -> &Description {
        &self.description
    }

    /// All members: the receivers, then the modules.
    pub fn members(&self) -> Vec<Member> {
        self.receivers().chain(self.modules()).collect()
    }

    fn modules(&self) -> impl Iterator<Item = Member> + use<'_> {
        self.description.modules.iter().map(|module| Member::Module(module.id))
    }

    fn receivers(&self) -> impl Iterator<Item = Member> + use<'_> {
        self.description.receivers.iter().map(|receiver| Member::Receiver(receiver.id))
    }

    /// The next step that is not done; `None` behind the last one.
    pub fn next_step(&self) -> Option<Step> {
        let first = self.receivers().chain(self.modules()).map(|member| match member {
            Member::Module(id) => Step::Module(id),
            Member::Receiver(id) => Step::Receiver(id),
        });
        let is_known = |step: &Step| match step {
            Step::Module(id) => self.facts.modules.contains_key(id),
            Step::Receiver(id) => self.facts.receivers.contains_key(id),
            _ => false,
        };
        let Some(last) = self.order.last() else {
            return first.into_iter().find(|step| !is_known(step)).or(Some(Step::Links));
        };
        Step::after(last)
    }

    /// The step that waits for answers.
    pub fn waits_for(&self) -> Option<Step> {
        self.current.as_ref().map(|current| current.step)
    }

    /// Members whose answer is still to come.
    pub fn waiting(&self) -> impl Iterator<Item = Member> + use<'_> {
        self.current.iter().flat_map(|current| current.waiting.iter().map(|waiting| waiting.member))
    }

    /// True between start and stop.
    pub fn is_running(&self) -> bool {
        self.order.is_running()
    }

    /// A telegram that belongs to no step: a request of the status, or a release. Its answer does not go to
    /// [`Self::answer`].
    pub fn telegram(&mut self, body: Body) -> Telegram {
        self.last_number = self.last_number.wrapping_add(1);
        Telegram { number: self.last_number, sender: self.description.name.clone(), body }
    }

    /// Begins a step, and returns the telegrams to send. A step without telegrams is done at once.
    ///
    /// # Errors
    /// [`ManagerError`]: nothing is to be sent, and the step is not done.
    pub fn begin(&mut self, step: Step, now_ns: u64) -> Result<Outgoing, ManagerError> {
        if let Some(current) = &self.current {
            return Err(ManagerError::Busy { begun: current.step, step });
        }
        self.order.check(step)?;
        let waves = self.prepare(step).map_err(|why| ManagerError::Plan { step, why })?;
        self.current = Some(Current { step, waves: waves.into(), waiting: Vec::new(), begun_ns: now_ns });
        self.advance(now_ns)
    }

    /// The telegrams of a step, in waves: each wave is sent when the one before is answered.
    fn prepare(&mut self, step: Step) -> Result<Vec<Vec<(Member, Body)>>, BadPlan> {
        let all = |body: &Body, members: &mut dyn Iterator<Item = Member>| members.map(|to| (to, body.clone())).collect();
        Ok(match step {
            Step::Receiver(id) => vec![vec![(Member::Receiver(id), Body::CapabilitiesRequest)]],
            Step::Module(id) => vec![vec![(Member::Module(id), Body::CapabilitiesRequest)]],
            Step::Links => {
                self.facts.check_links(&self.description)?;
                Vec::new()
            }
            Step::Communication => {
                let peers = Body::CommConfig(self.facts.peers(&self.description));
                vec![all(&peers, &mut self.receivers()), all(&peers, &mut self.modules())]
            }
            Step::Buffers => {
                let plan = Plan::new(&self.description, &self.facts)?;
                let wish = |receiver: &super::description::ReceiverEntry| {
                    (Member::Receiver(receiver.id), Body::BufferDefine(plan.wishes(receiver.id)))
                };
                let wishes = self.description.receivers.iter().map(wish).collect();
                (self.plan, self.made) = (Some(plan), BTreeMap::new());
                vec![wishes]
            }
            Step::Map => {
                self.space = Some(self.plan()?.space(&self.made)?);
                Vec::new()
            }
            Step::UploadMap => vec![self.maps()?],
            Step::Transfers => {
                let modules = 0..self.description.modules.len();
                let transfers = modules.map(|module| self.plan()?.transfers(module, self.space()?));
                self.transfers = transfers.collect::<Result<_, _>>()?;
                Vec::new()
            }
            Step::UploadTransfers => self.uploads()?,
            Step::Arm => {
                // No earlier run has it, because the numbers of telegrams rise.
                self.run = self.last_number.wrapping_add(1);
                vec![all(&Body::Start(self.run), &mut self.receivers())]
            }
            Step::Start => vec![all(&Body::Start(self.run), &mut self.modules())],
            Step::Stop => vec![all(&Body::Stop, &mut self.modules()), all(&Body::Stop, &mut self.receivers())],
        })
    }

    fn plan(&self) -> Result<&Plan, BadPlan> {
        self.plan.as_ref().ok_or_else(|| BadPlan("the buffers (R1) were not planned".to_owned()))
    }

    fn space(&self) -> Result<&Space, BadPlan> {
        self.space.as_ref().ok_or_else(|| BadPlan("the map (R2) was not generated".to_owned()))
    }

    fn maps(&self) -> Result<Vec<(Member, Body)>, BadPlan> {
        let (plan, space) = (self.plan()?, self.space()?);
        let receivers: Vec<ReceiverId> = self.description.receivers.iter().map(|receiver| receiver.id).collect();
        let map = |(n, member)| (member, Body::RasMap(plan.map(n, space, &receivers)));
        Ok(self.modules().enumerate().map(map).collect())
    }

    fn uploads(&self) -> Result<Vec<Vec<(Member, Body)>>, BadPlan> {
        let plan = self.plan()?;
        let receivers = self.description.receivers.iter();
        let receptions = receivers.map(|r| (Member::Receiver(r.id), Body::ReceiveConfig(plan.reception(r.id))));
        let transfers = self.modules().zip(&self.transfers).map(|(to, transfers)| (to, Body::DtpConfig(transfers.clone())));
        Ok(vec![receptions.collect(), transfers.collect()])
    }

    /// Sends the next wave if nobody is waited for; behind the last one the step is done.
    fn advance(&mut self, now_ns: u64) -> Result<Outgoing, ManagerError> {
        let Some(current) = self.current.as_mut().filter(|current| current.waiting.is_empty()) else { return Ok(Vec::new()) };
        let Some(wave) = current.waves.pop_front() else {
            let step = current.step;
            self.current = None;
            self.order.done(step)?;
            return Ok(Vec::new());
        };
        current.begun_ns = now_ns;
        let outgoing: Outgoing = wave.into_iter().map(|(member, body)| (member, self.telegram(body))).collect();
        let waiting = |(member, telegram): &(Member, Telegram)| Waiting {
            member: *member,
            number: telegram.number,
            element: telegram.body.element(),
        };
        if let Some(current) = &mut self.current {
            current.waiting = outgoing.iter().map(waiting).collect();
        }
        Ok(outgoing)
    }

    /// Takes what a member answers, and returns the telegrams to send next.
    ///
    /// # Errors
    /// [`ManagerError`]: the step is given up.
    pub fn answer(&mut self, member: Member, telegram: &Telegram, now_ns: u64) -> Result<Outgoing, ManagerError> {
        let done = self.take(member, telegram);
        if let Err(why) = done {
            self.current = None;
            return Err(why);
        }
        self.advance(now_ns)
    }

    fn take(&mut self, member: Member, telegram: &Telegram) -> Result<(), ManagerError> {
        let said = telegram.body.element();
        let unexpected = |said: String, expected: String| ManagerError::Unexpected { member, said, expected };
        let nothing = || unexpected(said.to_owned(), "nothing was asked".to_owned());
        let current = self.current.as_mut().ok_or_else(nothing)?;
        let at = current.waiting.iter().position(|waiting| waiting.member == member).ok_or_else(nothing)?;
        let Waiting { number, element, .. } = current.waiting.remove(at);
        match (element, &telegram.body) {
            (_, Body::Nack(nack)) => {
                let reason = nack.reason.as_str().to_owned();
                return Err(ManagerError::Refused { member, element, code: nack.code, reason });
            }
            ("capabilities-request", Body::ModuleCapabilities(can)) if member == Member::Module(can.module) => {
                self.facts.modules.insert(can.module, can.clone());
            }
            ("capabilities-request", Body::ReceiverCapabilities(can)) if member == Member::Receiver(can.receiver) => {
                self.facts.receivers.insert(can.receiver, can.clone());
                // Modules are initialised behind all receivers, so all of them once more.
                self.facts.modules.clear();
            }
            ("capabilities-request", Body::ModuleCapabilities(can)) => {
                return Err(unexpected(format!("the capabilities of {}", can.module), format!("{member} was asked")));
            }
            ("capabilities-request", Body::ReceiverCapabilities(can)) => {
                return Err(unexpected(format!("the capabilities of {}", can.receiver), format!("{member} was asked")));
            }
            ("buffer-define", Body::BufferDefined(made)) if member == Member::Receiver(made.receiver) => {
                self.made.insert(made.receiver, made.buffers.clone());
            }
            ("capabilities-request" | "buffer-define", _) => {
                return Err(unexpected(said.to_owned(), format!("{element} was asked")));
            }
            (_, Body::Ack(done)) if *done == number => {}
            (_, Body::Ack(done)) => {
                return Err(unexpected(format!("ack of telegram {done}"), format!("telegram {number} was sent")));
            }
            _ => return Err(unexpected(said.to_owned(), format!("{element} has an ack as its answer"))),
        }
        Ok(())
    }

    /// Has somebody not answered in time? The step is given up then.
    ///
    /// # Errors
    /// [`ManagerError::Silent`].
    pub fn silent(&mut self, now_ns: u64) -> Result<(), ManagerError> {
        let is_over = |current: &&Current| now_ns.saturating_sub(current.begun_ns) >= self.timeout_ns;
        let Some(current) = self.current.as_ref().filter(is_over).filter(|current| !current.waiting.is_empty()) else {
            return Ok(());
        };
        let members = current.waiting.iter().map(|waiting| waiting.member).collect();
        let step = current.step;
        self.current = None;
        Err(ManagerError::Silent { step, members })
    }

    /// A member has left while modules send: it is taken out of the steps that follow, so that the others can be
    /// stopped.
    pub fn without(&mut self, member: Member) {
        match member {
            Member::Module(id) => self.description.modules.retain(|module| module.id != id),
            Member::Receiver(id) => self.description.receivers.retain(|receiver| receiver.id != id),
        }
        if let Some(current) = &mut self.current {
            current.waiting.retain(|waiting| waiting.member != member);
            current.waves.iter_mut().for_each(|wave| wave.retain(|(to, _)| *to != member));
        }
    }
}
