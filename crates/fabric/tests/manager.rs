//! The system manager with modules and receivers, by telegrams in XML, without sockets: the whole order, what is
//! refused, who is silent, and that what was generated carries images to their places.

use konkordia_fabric::rashpa::control::ModuleControl;
use konkordia_fabric::rashpa::description::Description;
use konkordia_fabric::rashpa::initialisation::Step;
use konkordia_fabric::rashpa::manager::{Manager, ManagerError, Member, Outgoing};
use konkordia_fabric::rashpa::receiver::Verdict;
use konkordia_fabric::rashpa::receiver_control::ReceiverControl;
use konkordia_fabric::rashpa::telegram::*;
use konkordia_fabric::rashpa::terms::*;

/// Two modules side by side; the image to receivers 0 and 1 by turns, a region over both modules to receiver 7.
const TEXT: &str = r#"
modules = [{ id = 4, telegrams = "m4", x = 0, y = 0 }, { id = 5, telegrams = "m5", x = 8, y = 0 }]
receivers = [{ id = 0, telegrams = "r0" }, { id = 1, telegrams = "r1" }, { id = 7, telegrams = "r7" }]
[[transfers]]
id = 0
receivers = [0, 1]
slots = 2
slices = 12
packet_bytes = 32
[[transfers]]
id = 1
receivers = [7]
dataset = "region"
region = { x = 6, y = 1, width = 5, height = 2 }
slots = 3
slices = 12
packet_bytes = 32
"#;

const TIMEOUT_NS: u64 = 1000;

fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

fn link(address: &str) -> Vec<Link> {
    vec![Link { address: name(address), mtu_bytes: 1500, is_up: true, ..Link::default() }]
}

struct System {
    manager: Manager,
    modules: Vec<ModuleControl>,
    receivers: Vec<ReceiverControl>,
    memory: Vec<Vec<u8>>,
}

const RECEIVERS: [u16; 3] = [0, 1, 7];
const MEMORY_BYTES: usize = 1 << 16;

fn system(text: &str) -> System {
    let module = |id: u16| {
        let capabilities = ModuleCapabilities {
            module: ModuleId(id),
            width: 8,
            height: 4,
            pixel_bytes: 2,
            channels_max: 1,
            entries_max: 8,
            links: link("10.0.0.1:1"),
            transforms: vec![],
        };
        ModuleControl::new(name(&format!("module-{id}")), capabilities)
    };
    let receiver = |id: u16| {
        let memory = vec![Memory { kind: MemoryKind::Ram, bytes: MEMORY_BYTES as u64 }];
        let capabilities = ReceiverCapabilities { receiver: ReceiverId(id), links: link("10.0.0.2:2"), memory };
        ReceiverControl::new(name(&format!("receiver-{id}")), capabilities)
    };
    System {
        manager: Manager::new(Description::from_toml(text).expect("a description"), TIMEOUT_NS, 100),
        modules: vec![module(4), module(5)],
        receivers: RECEIVERS.map(receiver).into(),
        memory: vec![vec![0; MEMORY_BYTES]; 3],
    }
}

fn through_xml(telegram: &Telegram) -> Telegram {
    Telegram::from_xml(telegram.to_xml().expect("written").as_bytes()).expect("read")
}

impl System {
    fn tell(&mut self, member: Member, telegram: &Telegram) -> Telegram {
        let telegram = through_xml(telegram);
        let answer = match member {
            Member::Module(id) => self.modules[usize::from(id.0) - 4].handle(&telegram),
            Member::Receiver(id) => self.receivers[place(id)].handle(&telegram),
        };
        through_xml(&answer)
    }

    /// Does a step with all answers; the telegrams that were sent, by their elements.
    fn step(&mut self, step: Step) -> Result<Vec<(Member, &'static str)>, ManagerError> {
        let mut sent = Vec::new();
        let mut queue: Outgoing = self.manager.begin(step, 0)?;
        while !queue.is_empty() {
            for (member, telegram) in std::mem::take(&mut queue) {
                sent.push((member, telegram.body.element()));
                let answer = self.tell(member, &telegram);
                queue.extend(self.manager.answer(member, &answer, 0)?);
            }
        }
        assert_eq!(self.manager.waits_for(), None, "it is done");
        Ok(sent)
    }

    fn until(&mut self, last: Step) {
        while let Some(step) = self.manager.next_step() {
            self.step(step).expect("in order");
            if step == last {
                return;
            }
        }
        panic!("{last} does not come");
    }
}

fn place(receiver: ReceiverId) -> usize {
    RECEIVERS.iter().position(|id| *id == receiver.0).expect("one of them")
}

#[test]
fn all_steps_in_their_order() {
    let mut system = system(TEXT);
    let mut steps = Vec::new();
    while let Some(step) = system.manager.next_step() {
        let sent = system.step(step).expect("in order");
        steps.push((
            step.to_string().split(' ').next().expect("a word").to_owned(),
            sent.len(),
            sent.first().map(|first| first.1),
        ));
        assert_eq!(system.manager.is_running(), step == Step::Start);
    }
    let expected = [
        ("B", 1, Some("capabilities-request")),
        ("B", 1, Some("capabilities-request")),
        ("B", 1, Some("capabilities-request")),
        ("M", 1, Some("capabilities-request")),
        ("M", 1, Some("capabilities-request")),
        ("S1", 0, None),
        ("S2", 5, Some("comm-config")),
        ("R1", 3, Some("buffer-define")),
        ("R2", 0, None),
        ("R3", 2, Some("ras-map")),
        ("D1", 0, None),
        ("D2", 5, Some("receive-config")),
        ("arm", 3, Some("start")),
        ("start", 2, Some("start")),
        ("stop", 5, Some("stop")),
    ];
    assert_eq!(steps, expected.map(|(step, count, first)| (step.to_owned(), count, first)));
    assert!(system.receivers.iter().all(ReceiverControl::is_stopping), "what is on its way is still taken");
}

#[test]
fn steps_out_of_order_are_refused_and_nothing_is_sent() {
    let mut system = system(TEXT);
    let refused = |system: &mut System, step| system.manager.begin(step, 0).expect_err("out of order").to_string();
    assert!(refused(&mut system, Step::Start).contains("comes after B (initialise receiver 0)"));
    system.until(Step::Buffers);
    assert!(refused(&mut system, Step::UploadMap).contains("comes after R2 (generate the map"));
    assert!(refused(&mut system, Step::Module(ModuleId(6))).contains("has no such member"));
    system.until(Step::Start);
    assert!(refused(&mut system, Step::Transfers).contains("not possible while the modules send"));
    // A step that waits lets no other one begin.
    let sent = system.manager.begin(Step::Stop, 0).expect("it runs");
    assert_eq!(sent.len(), 2, "modules first");
    assert!(refused(&mut system, Step::Stop).contains("stop waits for answers"));
}

#[test]
fn a_silent_module_is_named_and_the_step_may_be_done_again() {
    let mut system = system(TEXT);
    system.until(Step::Map);
    let sent = system.manager.begin(Step::UploadMap, 5).expect("in order");
    let answer = system.tell(sent[0].0, &sent[0].1);
    assert_eq!(system.manager.answer(sent[0].0, &answer, 6), Ok(vec![]));
    assert_eq!(system.manager.silent(5 + TIMEOUT_NS - 1), Ok(()), "there is still time");
    let silent = system.manager.silent(5 + TIMEOUT_NS).expect_err("module 5 has said nothing");
    assert_eq!(
        silent.to_string(),
        "R3 (upload the map to the modules): no answer from module 5; look whether they run and can be reached"
    );
    let late = system.tell(sent[1].0, &sent[1].1);
    assert!(matches!(system.manager.answer(sent[1].0, &late, 9), Err(ManagerError::Unexpected { .. })), "too late");
    assert_eq!(system.manager.next_step(), Some(Step::UploadMap));
    system.until(Step::Start);
}

#[test]
fn two_managers_cannot_configure_one_module() {
    let mut system = system(TEXT);
    system.until(Step::Start);
    let other = TEXT.replace("\nmodules", "\nname = \"other\"\nmodules");
    let first = std::mem::replace(
        &mut system.manager,
        Manager::new(Description::from_toml(&other).expect("a description"), TIMEOUT_NS, 500),
    );
    let receivers = RECEIVERS.map(|id| Step::Receiver(ReceiverId(id)));
    for step in receivers.into_iter().chain([Step::Module(ModuleId(4)), Step::Module(ModuleId(5)), Step::Links]) {
        system.step(step).expect("anybody may ask");
    }
    let refused = system.step(Step::Communication).expect_err("they have a master");
    let ManagerError::Refused { member, element, code, ref reason } = refused else { panic!("{refused}") };
    assert_eq!((member, element, code), (Member::Receiver(ReceiverId(0)), "comm-config", Code::Master));
    assert_eq!(reason, "receiver-0 is configured by manager; it has to release the receiver first");
    assert!(system.modules[0].running().is_some(), "the first one's run goes on");
    // When the connection of the first one ends, the module stops, and the other one gets it.
    assert!(!system.modules[0].left(&name("other")) && system.modules[0].left(&name("manager")));
    assert!(system.modules[0].running().is_none());
    let telegram = system.manager.telegram(Body::CommConfig(vec![]));
    assert_eq!(system.tell(Member::Module(ModuleId(4)), &telegram).body, Body::Ack(telegram.number));
    system.manager = first;
    let refused = system.step(Step::Stop).expect_err("module 4 has another master now");
    assert!(refused.to_string().starts_with("module 4 refuses stop: module-4 is configured by other"), "{refused}");
}

#[test]
fn answers_that_do_not_fit_are_refused() {
    let mut system = system(TEXT);
    let receiver = Member::Receiver(ReceiverId(0));
    let sent = system.manager.begin(Step::Receiver(ReceiverId(0)), 0).expect("the first step");
    let other = system.tell(Member::Receiver(ReceiverId(1)), &sent[0].1);
    let why = system.manager.answer(receiver, &other, 0).expect_err("of another one").to_string();
    assert!(why.contains("receiver 0 answers with the capabilities of receiver 1, but receiver 0 was asked"), "{why}");
    let sent = system.manager.begin(Step::Receiver(ReceiverId(0)), 0).expect("once more");
    let wrong = Telegram { body: Body::Ack(sent[0].1.number), ..Telegram::default() };
    let why = system.manager.answer(receiver, &wrong, 0).expect_err("no capabilities").to_string();
    assert!(why.contains("answers with ack, but capabilities-request was asked"), "{why}");
    system.until(Step::Links);
    let sent = system.manager.begin(Step::Communication, 0).expect("in order");
    let wrong = Telegram { body: Body::Ack(sent[0].1.number + 1), ..Telegram::default() };
    let why = system.manager.answer(sent[0].0, &wrong, 0).expect_err("another number").to_string();
    assert!(why.contains(&format!("but telegram {} was sent", sent[0].1.number)), "{why}");
    assert!(system.manager.answer(receiver, &wrong, 0).expect_err("nothing").to_string().contains("nothing was asked"));
}

#[test]
fn what_does_not_fit_together_is_said_before_anything_is_sent() {
    let says = |from: &str, to: &str, last: Step, part: &str| {
        let mut system = system(&TEXT.replace(from, to));
        let why = loop {
            let step = system.manager.next_step().expect("it does not come to an end");
            match system.step(step) {
                Ok(_) => assert_ne!(step, last, "{part}"),
                Err(why) => break why.to_string(),
            }
        };
        assert!(why.contains(part), "{why}");
    };
    says("x = 8", "x = 7", Step::Buffers, "module 4 and module 5 have pixels at the same place");
    says(
        "width = 5",
        "width = 50",
        Step::Buffers,
        "transfer 1: its region has no pixels, or is not inside of the image of 16 x 4",
    );
    says("packet_bytes = 32", "packet_bytes = 2000", Step::Buffers, "packet_bytes may be 1456 at most");
    says("packet_bytes = 32", "packet_bytes = 31", Step::Transfers, "have to be multiples");
    says(
        "slots = 2",
        "slots = 600",
        Step::Buffers,
        "receiver 0 refuses buffer-define: local buffer 1 of 76800 bytes does not fit",
    );
    says("slots = 3", "slots = 3\npolicy = \"free-run\"", Step::UploadTransfers, "credits only, not in free run");
}

#[test]
fn links_that_are_down_are_named() {
    let mut system = system(TEXT);
    system.modules[1].capabilities().links[0].is_up = false;
    while let Some(step) = system.manager.next_step().filter(|step| *step != Step::Links) {
        system.step(step).expect("in order");
    }
    let why = system.step(Step::Links).expect_err("no link").to_string();
    assert!(why.starts_with("S1 (initialise switches and links) is not possible: module 5 has no link"), "{why}");
}

#[test]
fn a_receiver_by_shared_memory_gets_queues_and_only_its_own_address_is_told() {
    let text = TEXT.replace("telegrams = \"r7\"", "telegrams = \"r7\", link = \"shm\"");
    let mut system = system(&text);
    let shared =
        |address: &str| Link { id: LinkId(1), kind: LinkKind::Shm, address: name(address), mtu_bytes: 1 << 17, is_up: true };
    let links = |address: &str| vec![link("10.0.0.2:2").remove(0), shared(address)];
    while let Some(step) = system.manager.next_step().filter(|step| *step != Step::Links) {
        system.step(step).expect("in order");
    }
    let why = system.step(Step::Links).expect_err("no link").to_string();
    assert!(why.contains("module 4 has no link of shared memory that is up"), "{why}");

    let mut system = self::system(&text);
    let memory = vec![Memory { kind: MemoryKind::Ram, bytes: 8 << 20 }];
    let capabilities = ReceiverCapabilities { receiver: ReceiverId(7), links: links("1/2/3"), memory };
    system.receivers[2] = ReceiverControl::new(name("receiver-7"), capabilities);
    for module in &mut system.modules {
        module.capabilities().links.push(shared("shm"));
    }
    system.until(Step::Start);
    let kinds: Vec<LinkKind> = system.receivers.iter().map(ReceiverControl::link_kind).collect();
    assert_eq!(kinds, [LinkKind::RdmaUdp, LinkKind::RdmaUdp, LinkKind::Shm]);
    let told: Vec<&str> =
        system.modules[0].peers().iter().filter(|peer| peer.id == 7).map(|peer| peer.address.as_str()).collect();
    assert_eq!(told, ["1/2/3"]);
    let reception = system.receivers[2].running().expect("armed");
    let queues: Vec<(u64, u32)> = reception.queues.iter().copied().map(|queue| queue.expect("a queue")).collect();
    let rings = system.modules.iter_mut().map(|module| {
        let sender = module.running().expect("started");
        let ring = *sender.rings().find(|ring| ring.receiver == ReceiverId(7)).expect("a ring");
        (ring.address + 64 * u64::from(ring.records), ring.records)
    });
    assert_eq!(queues, rings.collect::<Vec<_>>(), "both sides agree");
    assert!(queues[0].1 >= 1 << 14 && queues[0].0 + 128 + 32 * u64::from(queues[0].1) <= queues[1].0);
    let udp = system.receivers[0].running().expect("armed");
    assert!(udp.queues.iter().all(Option::is_none));
}

/// Pixel (x, y) of the whole image of a slice; no byte is 0.
fn pixel(slice: u64, x: u32, y: u32) -> [u8; 2] {
    [(slice * 16 + u64::from(x)) as u8 | 0x80, (y + 1) as u8]
}

fn image(slice: u64, region: &Region) -> Vec<u8> {
    let rows = region.y..region.y + region.height;
    rows.flat_map(|y| (region.x..region.x + region.width).flat_map(move |x| pixel(slice, x, y))).collect()
}

#[test]
fn what_was_generated_carries_images_to_their_places() {
    let mut system = system(TEXT);
    system.until(Step::Start);
    let System { modules, receivers, memory, .. } = &mut system;
    let mut seen = [0_u64; 3];
    for slice in 0..12 {
        for (n, module) in modules.iter_mut().enumerate() {
            let pixels = image(slice, &Region { x: 8 * n as u32, y: 0, width: 8, height: 4 });
            let sender = module.running().expect("started");
            let mut send = |packet: konkordia_fabric::rashpa::sender::Outgoing<'_>| {
                let at = place(packet.receiver);
                let reception = receivers[at].running().expect("armed");
                let verdict = reception.data.receive(n, packet.segment, &mut memory[at], &mut |_, _| panic!("lost"));
                assert!(matches!(verdict, Verdict::Placed | Verdict::Event(_)), "{verdict:?}");
            };
            sender.slice(slice, &pixels, 0, &mut send).expect("in order");
        }
        for (at, receiver) in receivers.iter_mut().enumerate() {
            let reception = receiver.running().expect("armed");
            let (begin, bytes) = (reception.begins[0] as usize, reception.slot_bytes(0) as usize);
            let (buffer, first) = (reception.config.slots[0].buffer, reception.config.slots[0].first_slot);
            let assembly = reception.data.assembly(0).expect("one");
            while let Some(taken) = assembly.take() {
                let region = if at == 2 {
                    Region { x: 6, y: 1, width: 5, height: 2 }
                } else {
                    Region { x: 0, y: 0, width: 16, height: 4 }
                };
                let slot = (taken.slot - first) as usize;
                let pixels = &memory[at][begin + slot * bytes..][..bytes];
                assert_eq!((pixels, taken.slice, taken.missing_bytes), (&image(slice, &region)[..], slice, 0));
                assembly.release(taken.slot).expect("taken");
                seen[at] += 1;
            }
            let credits: Vec<_> = std::iter::from_fn(|| assembly.next_credit()).collect();
            for module in modules.iter_mut() {
                let sender = module.running().expect("started");
                credits.iter().for_each(|credit| assert!(sender.credit(buffer, credit.slot, credit.fills)));
            }
        }
    }
    assert_eq!(seen, [6, 6, 12], "the image by turns, 2 slots each; the region always");
    assert!(modules.iter_mut().all(|module| module.sender().expect("it is there").is_finished()));
    let status = system.manager.telegram(Body::StatusRequest);
    let answer = system.tell(Member::Module(ModuleId(4)), &status);
    assert!(matches!(answer.body, Body::Status(Status { state: State::Finished, blocks: 24, .. })), "{answer:?}");
    let answer = system.tell(Member::Receiver(ReceiverId(7)), &status);
    assert!(matches!(answer.body, Body::ReceiverStatus(ReceiverStatus { state: State::Running, whole: 12, lost: 0, .. })));
}

#[test]
fn a_receiver_refuses_what_is_out_of_order_or_cannot_be() {
    let mut system = system(TEXT);
    let member = Member::Receiver(ReceiverId(7));
    let mut number = 0;
    let mut reason = |system: &mut System, body: Body| {
        number += 1;
        let answer = system.tell(member, &Telegram { number, sender: name("a"), body });
        if let Body::Nack(nack) = answer.body { nack.reason.as_str().to_owned() } else { answer.body.element().to_owned() }
    };
    assert_eq!(reason(&mut system, Body::Start(1)), "start comes after comm-config, which was not done; do that first");
    assert_eq!(reason(&mut system, Body::CommConfig(vec![])), "ack");
    let config = |parts| ReceiveConfig {
        slots: vec![ReceivedSlots {
            local: BufferId(1),
            slots: 2,
            slots_here: 2,
            width: 4,
            height: 2,
            pixel_bytes: 2,
            step: 1,
            ..ReceivedSlots::default()
        }],
        parts,
        rings: vec![ModuleRing { module: ModuleId(4), buffer: BufferId(2), records: 4 }],
    };
    let part = ReceivedPart { module: ModuleId(4), width: 4, height: 2, ..ReceivedPart::default() };
    assert!(reason(&mut system, Body::ReceiveConfig(config(vec![]))).starts_with("receive-config comes after buffer-define"));
    let wish = |id, bytes| BufferWish { id: BufferId(id), bytes, align_bytes: 64, kind: MemoryKind::Ram, unit_bytes: 2 };
    assert!(reason(&mut system, Body::BufferDefine(vec![wish(1, 32), wish(1, 32)])).contains("is defined twice"));
    assert!(reason(&mut system, Body::BufferDefine(vec![wish(1, u64::MAX)])).contains("does not fit"));
    let gpu = BufferWish { kind: MemoryKind::Gpu, ..wish(1, 32) };
    assert!(reason(&mut system, Body::BufferDefine(vec![gpu])).contains("ordinary memory only"));
    assert_eq!(reason(&mut system, Body::BufferDefine(vec![wish(1, 32), wish(2, 256)])), "buffer-defined");
    assert!(reason(&mut system, Body::Start(1)).starts_with("start comes after receive-config"));
    let says = |system: &mut System, reason: &mut dyn FnMut(&mut System, Body) -> String, config: ReceiveConfig, part: &str| {
        let why = reason(system, Body::ReceiveConfig(config));
        assert!(why.contains(part), "{why}");
    };
    let far = ReceivedPart { block_offset: 2, ..part.clone() };
    says(&mut system, &mut reason, config(vec![far]), "does not fit into a slot");
    says(&mut system, &mut reason, config(vec![part.clone(), part.clone()]), "comes twice");
    let unknown = ReceivedPart { module: ModuleId(5), ..part.clone() };
    says(&mut system, &mut reason, config(vec![unknown]), "module 5 brings a part of transfer 0, but has no ring");
    let foreign = ReceivedPart { transfer: DtpId(9), ..part.clone() };
    says(&mut system, &mut reason, config(vec![foreign]), "transfer 9, which has no slots here");
    let mut many = config(vec![part.clone()]);
    many.slots[0].slots_here = u32::MAX;
    says(&mut system, &mut reason, many, "are more than 4194304");
    let mut large = config(vec![part.clone()]);
    large.slots[0].height = u32::MAX;
    says(&mut system, &mut reason, large, "do not fit into local buffer 1");
    says(&mut system, &mut reason, config(vec![part]), "ack");
    assert_eq!(reason(&mut system, Body::Start(1)), "ack");
    assert!(reason(&mut system, Body::Release).contains("not possible while the receiver takes packets"));
    assert_eq!(reason(&mut system, Body::Stop), "ack");
    assert!(reason(&mut system, Body::Stop).starts_with("stop comes after start"));
    assert!(system.receivers[2].is_stopping());
    system.receivers[2].finish();
    assert_eq!(reason(&mut system, Body::Release), "ack");
}
