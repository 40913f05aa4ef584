//! A module that is set up by telegrams, as they come over the network: order, masters, numbers, and what it sends
//! then.

use konkordia_fabric::rashpa::control::ModuleControl;
use konkordia_fabric::rashpa::sender::{EventRing, Outgoing, ReceiveBuffer, Sent};
use konkordia_fabric::rashpa::slots::Generations;
use konkordia_fabric::rashpa::space::{Entry, LocalBuffer};
use konkordia_fabric::rashpa::telegram::*;
use konkordia_fabric::rashpa::terms::*;
use konkordia_fabric::rashpa::transfer::{Dtp, Layout, Policy};
use konkordia_wire::rashpa_event::{Kind, Record};
use konkordia_wire::rdma_udp::Packet;

fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

fn module() -> ModuleControl {
    let link = |id| Link { id: LinkId(id), is_up: true, mtu_bytes: 1500, ..Link::default() };
    let capabilities = ModuleCapabilities {
        module: ModuleId(5),
        width: 8,
        height: 4,
        pixel_bytes: 2,
        channels_max: 1,
        entries_max: 2,
        links: vec![link(0), link(1)],
        transforms: vec![],
    };
    ModuleControl::new(name("module-5"), capabilities)
}

fn map() -> Map {
    let local = |receiver, bytes| LocalBuffer {
        receiver: ReceiverId(receiver),
        buffer: BufferId(1),
        bytes,
        address: 0,
        key: 0,
        unit_bytes: 2,
    };
    let ring = |receiver| RingEntry(EventRing { receiver: ReceiverId(receiver), buffer: BufferId(2), records: 4, address: 0 });
    Map {
        bytes: 192,
        entries: vec![MapEntry(Entry { base: 0, local: local(0, 64) }), MapEntry(Entry { base: 64, local: local(1, 128) })],
        buffers: vec![ReceiveBufferEntry(ReceiveBuffer { id: ReceiveBufferId(9), base: 0, bytes: 192 })],
        rings: vec![ring(0), ring(1)],
    }
}

fn dtp(policy: Policy) -> Dtp {
    Dtp {
        id: DtpId(3),
        channel: 0,
        dataset: Dataset::Image,
        slices: Slices { first: 10, count: None, step: 1 },
        region: Region { x: 0, y: 0, width: 8, height: 4 },
        buffer: ReceiveBufferId(9),
        layout: Layout { slots: 3, slot_bytes: 64, block_offset: 0, row_pitch_bytes: 16 },
        policy,
        packet_bytes: 32,
    }
}

fn transfers(policy: Policy) -> Body {
    Body::DtpConfig(vec![TransferEntry(dtp(policy))])
}

/// Says it to the module in XML, and returns what it answers: "ack", or the code and reason.
fn tell(module: &mut ModuleControl, sender: &str, number: u32, body: Body) -> Result<Body, (Code, String)> {
    let telegram = Telegram { number, sender: name(sender), body };
    let read = Telegram::from_xml(telegram.to_xml().expect("written").as_bytes()).expect("read");
    let answer = module.handle(&read);
    let answer = Telegram::from_xml(answer.to_xml().expect("written").as_bytes()).expect("read");
    match answer.body {
        Body::Nack(nack) => {
            assert_eq!(nack.number, number);
            Err((nack.code, nack.reason.as_str().to_owned()))
        }
        body => Ok(body),
    }
}

/// The number of the run.
const RUN: u32 = 7;

fn configured(policy: Policy) -> ModuleControl {
    let mut module = module();
    for (number, body) in (1..).zip([Body::CommConfig(vec![]), Body::RasMap(map()), transfers(policy), Body::Start(RUN)]) {
        assert_eq!(tell(&mut module, "a", number, body), Ok(Body::Ack(number)));
    }
    module
}

#[test]
fn what_comes_too_early_names_the_missing_step() {
    let mut module = module();
    let mut reason = |number, body| tell(&mut module, "a", number, body).expect_err("refused").1;
    for body in [Body::RasMap(map()), transfers(Policy::Credit), Body::Start(RUN), Body::Stop, Body::Release] {
        let text = format!("{} comes after comm-config, which was not done; do that first", body.element());
        assert_eq!(reason(1, body), text);
    }
    assert!(reason(1, Body::Credit(Credits::default())).starts_with("credit comes after start"));
    tell(&mut module, "a", 1, Body::CommConfig(vec![])).expect("first");
    let mut reason = |number, body| tell(&mut module, "a", number, body).expect_err("refused").1;
    assert!(reason(2, Body::Start(RUN)).starts_with("start comes after ras-map"));
    assert!(reason(3, transfers(Policy::Credit)).starts_with("dtp-config comes after ras-map"));
    assert!(reason(4, Body::Stop).starts_with("stop comes after start"));
    assert_eq!(reason(5, Body::BufferDefine(vec![])), "buffer-define is not for a module");
    tell(&mut module, "a", 6, Body::RasMap(map())).expect("in order");
    let refused = tell(&mut module, "a", 7, Body::Start(RUN)).expect_err("refused");
    assert_eq!((refused.0, refused.1.starts_with("start comes after dtp-config")), (Code::Order, true));
    tell(&mut module, "a", 8, transfers(Policy::Credit)).expect("in order");
    tell(&mut module, "a", 9, Body::RasMap(map())).expect("a new map");
    assert!(tell(&mut module, "a", 10, Body::Start(RUN)).is_err(), "transfers belong to their map");
}

#[test]
fn a_receiver_gets_packets_by_links_of_its_kind_only() {
    let mut module = module();
    module.capabilities().links.push(Link { id: LinkId(2), kind: LinkKind::Shm, is_up: true, ..Link::default() });
    let peer = |id, link_kind| Peer { kind: PeerKind::Receiver, id, link_kind, ..Peer::default() };
    let peers = Body::CommConfig(vec![peer(0, LinkKind::RdmaUdp), peer(1, LinkKind::Shm)]);
    for (number, body) in (1..).zip([peers, Body::RasMap(map()), transfers(Policy::Credit), Body::Start(RUN)]) {
        assert_eq!(tell(&mut module, "a", number, body), Ok(Body::Ack(number)));
    }
    let sender = module.running().expect("started");
    assert_eq!(sender.buffers(ReceiverId(1)).collect::<Vec<_>>(), [(BufferId(1), 0, 2), (BufferId(2), 0, 64)]);
    let image: Vec<u8> = (0..64).collect();
    let mut packets = Vec::new();
    let mut send = |sender: &mut konkordia_fabric::rashpa::sender::Sender, slice| {
        let mut out = |packet: Outgoing<'_>| {
            let is_direct = packet.segment.is_empty();
            if !is_direct {
                let segment = Packet::new_checked(packet.segment, true).expect("a packet");
                assert_eq!((segment.header(), segment.payload()), (packet.header, packet.payload));
            }
            packets.push((packet.receiver.0, packet.link.0, is_direct, packet.payload.len()));
        };
        sender.slice(slice, &image, 0, &mut out).expect("a slice");
    };
    // Slot 0 is of receiver 0, slot 1 of receiver 1.
    send(sender, 10);
    send(sender, 11);
    sender.set_link(LinkId(2), false, 0, &mut |_| {});
    send(sender, 12);
    let udp = [(0, 0, false, 32), (0, 1, false, 32), (0, 0, false, 64)];
    let shared = [(1, 2, true, 32), (1, 2, true, 32), (1, 2, true, 64)];
    assert_eq!(packets, [udp, shared].concat());
    assert_eq!((sender.sent().blocks, sender.sent().unsent), (2, 1), "its only link is down");
}

#[test]
fn runs_and_receivers_that_leave_are_counted() {
    let mut module = configured(Policy::Credit);
    assert_eq!(module.runs(), 1);
    let credit = Body::Credit(Credits { run: RUN, buffer: ReceiveBufferId(9), grants: vec![Grant { slot: 0, fills: 2 }] });
    let older = Body::Credit(Credits { run: RUN - 1, buffer: ReceiveBufferId(9), grants: vec![Grant { slot: 0, fills: 2 }] });
    let refused = tell(&mut module, "receiver-0", 1, older).expect_err("it was on its way when this run began");
    assert_eq!(refused, (Code::Order, format!("a credit of run {}, and this is run {RUN}", RUN - 1)));
    assert!(module.running().expect("started").has_credit(10) && !module.running().expect("started").has_credit(13));
    tell(&mut module, "receiver-0", 1, credit.clone()).expect("a credit");
    assert!(module.running().expect("started").has_credit(13));
    assert!(module.creditor_left(&name("receiver-0")) && module.creditor_left(&name("receiver-0")));
    assert_eq!(module.departed(), [name("receiver-0")]);
    tell(&mut module, "receiver-0", 2, credit).expect("it is here again");
    assert!(module.departed().is_empty() && module.creditor_left(&name("receiver-0")));
    assert!(module.left(&name("a")), "the master");
    assert!(!module.creditor_left(&name("receiver-0")), "no run is disturbed");
    assert_eq!(module.runs(), 1, "nobody may have seen it");
}

#[test]
fn a_second_master_is_refused_until_the_first_releases_the_module() {
    let mut module = configured(Policy::Credit);
    let text = "module-5 is configured by a; it has to release the module first".to_owned();
    for body in [Body::CommConfig(vec![]), Body::RasMap(map()), Body::Start(RUN), Body::Stop, Body::Release] {
        assert_eq!(tell(&mut module, "b", 100, body), Err((Code::Master, text.clone())));
    }
    assert!(module.running().is_some(), "it still sends");
    let status = tell(&mut module, "b", 1, Body::StatusRequest).expect("anybody may ask");
    assert!(matches!(status, Body::Status(Status { state: State::Running, .. })));
    assert!(matches!(tell(&mut module, "b", 1, Body::CapabilitiesRequest), Ok(Body::ModuleCapabilities(_))));
    let refused = tell(&mut module, "a", 5, Body::Release).expect_err("it sends");
    assert_eq!(refused.1, "release is not possible while the module sends; stop it first");
    tell(&mut module, "a", 6, Body::Stop).expect("the master");
    tell(&mut module, "a", 7, Body::Release).expect("stopped");
    tell(&mut module, "b", 1, Body::CommConfig(vec![])).expect("it is free");
    assert!(matches!(tell(&mut module, "a", 8, Body::StatusRequest), Ok(Body::Status(Status { state: State::Claimed, .. }))));
}

#[test]
fn numbers_rise() {
    let mut module = module();
    tell(&mut module, "a", 7, Body::CommConfig(vec![])).expect("first");
    for number in [7, 6, 0] {
        let refused = tell(&mut module, "a", number, Body::RasMap(map())).expect_err("not after 7");
        assert_eq!(refused, (Code::Number, format!("telegram {number} comes after telegram 7; numbers have to rise")));
    }
    tell(&mut module, "a", 8, Body::RasMap(map())).expect("after 7");
}

#[test]
fn what_cannot_be_is_refused_with_the_reason() {
    let mut module = module();
    tell(&mut module, "a", 1, Body::CommConfig(vec![])).expect("first");
    let mut number = 1;
    let mut reason = |body| {
        number += 1;
        let (code, reason) = tell(&mut module, "a", number, body).err().unwrap_or((Code::Order, String::new()));
        assert!(reason.is_empty() || code == Code::Invalid, "{reason}");
        reason
    };
    assert!(reason(Body::RasMap(Map { bytes: 191, ..map() })).contains("the entries have 192 bytes, but the map says 191"));
    let mut long = map();
    long.entries.push(MapEntry::default());
    long.entries[2].0 =
        Entry { base: 192, local: LocalBuffer { buffer: BufferId(3), bytes: 1, unit_bytes: 1, ..long.entries[0].0.local } };
    assert!(reason(Body::RasMap(long)).contains("more than 2 entries"));
    assert_eq!(reason(Body::RasMap(Map { rings: vec![], ..map() })), "");
    assert!(reason(transfers(Policy::Credit)).contains("receiver 0 is in the map but has no ring"));
    assert_eq!(reason(Body::RasMap(map())), "");
    let with = |change: &dyn Fn(&mut Dtp)| {
        let mut dtp = dtp(Policy::Credit);
        change(&mut dtp);
        Body::DtpConfig(vec![TransferEntry(dtp)])
    };
    assert!(reason(with(&|dtp| dtp.channel = 1)).contains("1 channels"));
    assert!(reason(with(&|dtp| dtp.buffer = ReceiveBufferId(8))).contains("receive buffer 8, which the map does not have"));
    assert!(reason(with(&|dtp| dtp.packet_bytes = 31)).contains("multiples"));
    let many = reason(with(&|dtp| dtp.layout.slots = u32::MAX));
    assert!(many.contains("at most 1048576 slots together, not 4294967295"), "its memory is bounded: {many}");
    let twice = vec![TransferEntry(dtp(Policy::Credit)); 2];
    assert!(reason(Body::DtpConfig(twice)).contains("transfer 3 is defined twice"));
}

/// What a module sends, in order: receiver, buffer, offset in units, and the event if it is one.
fn sent(packet: &Outgoing<'_>) -> (u16, u16, u64, Option<(Kind, u32, u64)>) {
    let view = Packet::new_checked(packet.segment, true).expect("a packet");
    let event = (view.buffer() == 2).then(|| Record::from_bytes(view.payload()).expect("an event"));
    let event = event.map(|event| (event.kind, event.slot, event.generation));
    (packet.receiver.0, view.buffer(), view.offset_units(), event)
}

#[test]
fn credits_decide_what_is_sent() {
    let mut module = configured(Policy::Credit);
    let slice = |module: &mut ModuleControl, slice| {
        let mut packets = Vec::new();
        let sender = module.running().expect("started");
        sender.slice(slice, &[7; 64], 0, &mut |packet| packets.push(sent(&packet))).expect("in order");
        packets
    };
    assert_eq!(slice(&mut module, 9), [], "before the first slice of the transfer");
    assert_eq!(slice(&mut module, 10), [(0, 1, 0, None), (0, 1, 16, None), (0, 2, 0, Some((Kind::BlockDone, 0, 0)))]);
    assert_eq!(slice(&mut module, 11), [(1, 1, 0, None), (1, 1, 16, None), (1, 2, 0, Some((Kind::BlockDone, 1, 0)))]);
    assert_eq!(slice(&mut module, 12), [(1, 1, 32, None), (1, 1, 48, None), (1, 2, 1, Some((Kind::BlockDone, 2, 0)))]);
    assert_eq!(slice(&mut module, 13), [(0, 2, 1, Some((Kind::BlockSkipped, 0, 1)))], "slot 0 has no second credit");
    let credit =
        |slot, fills| Body::Credit(Credits { run: RUN, buffer: ReceiveBufferId(9), grants: vec![Grant { slot, fills }] });
    assert_eq!(tell(&mut module, "receiver-1", 1, credit(1, 2)), Ok(Body::Ack(1)));
    assert_eq!(slice(&mut module, 14).len(), 3);
    assert_eq!(tell(&mut module, "receiver-1", 2, credit(3, 2)).expect_err("3 slots").0, Code::Invalid);
    let sender = module.running().expect("started");
    assert!(sender.slice(14, &[7; 64], 0, &mut |_| {}).is_err(), "twice");
    assert!(sender.slice(15, &[7; 63], 0, &mut |_| {}).is_err(), "another size");
    let expected = Sent { blocks: 4, skipped: 1, unsent: 0, packets: 8, events: 5, unsent_events: 0 };
    assert_eq!(sender.sent(), expected);
}

#[test]
fn free_run_tells_before_and_behind_each_block() {
    let mut module = configured(Policy::FreeRun);
    let mut generations = Generations::new(3);
    let mut lease = None;
    for slice in 10..14 {
        let mut kinds = Vec::new();
        let sender = module.running().expect("started");
        let send = |packet: Outgoing<'_>| {
            let (_, _, _, event) = sent(&packet);
            kinds.push(event.map(|(kind, ..)| kind));
            if let Some((_, slot, counter)) = event {
                generations.note(slot, counter);
            } else if slice == 13 {
                assert!(lease.is_some_and(|lease| !generations.is_unchanged(lease)), "known before the first byte");
            }
        };
        sender.slice(slice, &[7; 64], 0, &mut { send }).expect("in order");
        assert_eq!(kinds, [Some(Kind::BlockBegin), None, None, Some(Kind::BlockDone)]);
        if slice == 10 {
            lease = generations.take(0);
            assert_eq!(lease.map(|lease| lease.generation()), Some(0));
        }
    }
    assert_eq!(generations.take(0).map(|lease| lease.generation()), Some(1));
}

#[test]
fn a_module_works_with_the_links_that_are_up() {
    let mut module = configured(Policy::FreeRun);
    let sender = module.running().expect("started");
    let mut links = Vec::new();
    let mut out = |packet: Outgoing<'_>| links.push((packet.link.0, sent(&packet).3.map(|event| event.0)));
    sender.slice(10, &[7; 64], 0, &mut out).expect("in order");
    sender.set_link(LinkId(0), false, 0, &mut out);
    sender.set_link(LinkId(0), false, 0, &mut out);
    sender.slice(11, &[7; 64], 0, &mut out).expect("in order");
    sender.set_link(LinkId(1), false, 0, &mut out);
    sender.slice(12, &[7; 64], 0, &mut out).expect("in order");
    sender.set_link(LinkId(0), true, 0, &mut out);
    let used: Vec<u8> = links.iter().map(|(link, _)| *link).collect();
    assert_eq!(used, [0, 1, 0, 1, 1, 1, 1, 1, 1, 1, 0, 0], "both in turn, then one, then none, then the other");
    let told: Vec<Kind> =
        links.iter().filter_map(|(_, kind)| *kind).filter(|kind| matches!(kind, Kind::LinkUp | Kind::LinkDown)).collect();
    assert_eq!(told, [Kind::LinkDown, Kind::LinkDown, Kind::LinkUp, Kind::LinkUp], "to both receivers, when a link is up");
    assert_eq!((sender.sent().unsent, sender.sent().unsent_events, sender.sent().blocks), (1, 2, 2));
}
