//! Telegrams: what is written is read back equal and fits the schema, and what is wrong is refused with what and where.
//!
//! `telegrams/good.json` holds telegrams as we write them, `telegrams/bad.json` texts that are none. Both are read by
//! `tests/readers/test_telegrams.py` too, which validates them with other people's software.
//! `KONKORDIA_WRITE_TELEGRAMS=1` writes the first file anew.

use konkordia_fabric::rashpa::sender::{EventRing, ReceiveBuffer};
use konkordia_fabric::rashpa::space::{Entry, LocalBuffer};
use konkordia_fabric::rashpa::telegram::*;
use konkordia_fabric::rashpa::terms::*;
use konkordia_fabric::rashpa::transfer::{Dtp, Layout, Policy};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use std::path::{Path, PathBuf};

fn name() -> impl Strategy<Value = Name> {
    "[A-Za-z0-9_.:/%\\[\\]-]{1,64}".prop_map(|text| Name::new(&text).expect("a name"))
}

fn sentence() -> impl Strategy<Value = Sentence> {
    prop_oneof!["[ -~]{1,80}", "[<>&\"' a-zàéß漢😀]{1,400}"].prop_map(|text| Sentence::new(&text).expect("a sentence"))
}

/// Numbers with their ends.
fn number<T: Arbitrary + TryFrom<u64> + 'static>() -> impl Strategy<Value = T> {
    let ends = select(vec![0, u64::from(u8::MAX), u64::from(u16::MAX), u64::from(u32::MAX), u64::MAX]);
    prop_oneof![3 => any::<T>(), 1 => ends.prop_filter_map("does not fit", |end| T::try_from(end).ok())]
}

fn link() -> impl Strategy<Value = Link> {
    (number(), select(LinkKind::ALL), name(), number(), any::<bool>()).prop_map(|(id, kind, address, mtu_bytes, is_up)| Link {
        id: LinkId(id),
        kind,
        address,
        mtu_bytes,
        is_up,
    })
}

fn peer() -> impl Strategy<Value = Peer> {
    let optional = (prop::option::of(number()), prop::option::of(number()), prop::option::of(number()), prop::option::of(name()));
    let peer = (select(PeerKind::ALL), number(), number(), select(LinkKind::ALL), name(), optional);
    peer.prop_map(|(kind, id, link, link_kind, address, (queue_pair, sequence, partition_key, telegrams))| Peer {
        kind,
        id,
        link: LinkId(link),
        link_kind,
        address,
        queue_pair,
        sequence,
        partition_key,
        telegrams,
    })
}

fn entry() -> impl Strategy<Value = MapEntry> {
    let numbers = (number(), number(), number(), number(), number(), number(), number());
    numbers.prop_map(|(base, receiver, buffer, bytes, address, key, unit_bytes)| {
        let (receiver, buffer) = (ReceiverId(receiver), BufferId(buffer));
        MapEntry(Entry { base, local: LocalBuffer { receiver, buffer, bytes, address, key, unit_bytes } })
    })
}

fn transfer() -> impl Strategy<Value = TransferEntry> {
    let what = (number(), number(), select(Dataset::ALL), number(), prop::option::of(number()), number());
    let region = (number(), number(), number(), number());
    let layout = (number(), number(), number(), number());
    let how = (number(), select(Policy::ALL), number());
    (what, region, layout, how).prop_map(|((id, channel, dataset, first, count, step), (x, y, width, height), layout, how)| {
        let (slots, slot_bytes, block_offset, row_pitch_bytes) = layout;
        TransferEntry(Dtp {
            id: DtpId(id),
            channel,
            dataset,
            slices: Slices { first, count, step },
            region: Region { x, y, width, height },
            buffer: ReceiveBufferId(how.0),
            layout: Layout { slots, slot_bytes, block_offset, row_pitch_bytes },
            policy: how.1,
            packet_bytes: how.2,
        })
    })
}

fn receive_config() -> impl Strategy<Value = Body> {
    let which = (number(), number(), number(), select(Policy::ALL));
    let numbers = (number(), number(), number(), number(), number(), number());
    let slices = (number(), prop::option::of(number()), number());
    let slots = (which, numbers, slices).prop_map(|(which, n, (first_slice, slices, step))| ReceivedSlots {
        transfer: DtpId(which.0),
        buffer: ReceiveBufferId(which.1),
        local: BufferId(which.2),
        slots: n.0,
        first_slot: n.1,
        slots_here: n.2,
        width: n.3,
        height: n.4,
        pixel_bytes: n.5,
        first_slice,
        slices,
        step,
        policy: which.3,
    });
    let part = (number(), number(), number(), number(), number(), number(), number());
    let part = part.prop_map(|(transfer, module, x, y, width, height, block_offset)| {
        let (transfer, module) = (DtpId(transfer), ModuleId(module));
        ReceivedPart { transfer, module, x, y, width, height, block_offset }
    });
    let ring = (number(), number(), number()).prop_map(|(module, buffer, records)| ModuleRing {
        module: ModuleId(module),
        buffer: BufferId(buffer),
        records,
    });
    (vec(slots, 0..4), vec(part, 0..5), vec(ring, 0..4))
        .prop_map(|(slots, parts, rings)| Body::ReceiveConfig(ReceiveConfig { slots, parts, rings }))
}

fn map() -> impl Strategy<Value = Body> {
    let buffer =
        (number(), number(), number()).prop_map(|(id, base, bytes)| ReceiveBuffer { id: ReceiveBufferId(id), base, bytes });
    let ring = (number(), number(), number(), number()).prop_map(|(receiver, buffer, records, address)| EventRing {
        receiver: ReceiverId(receiver),
        buffer: BufferId(buffer),
        records,
        address,
    });
    let lists = (vec(entry(), 0..5), vec(buffer.prop_map(ReceiveBufferEntry), 0..4), vec(ring.prop_map(RingEntry), 0..4));
    (number(), lists).prop_map(|(bytes, (entries, buffers, rings))| Body::RasMap(Map { bytes, entries, buffers, rings }))
}

fn capabilities() -> [BoxedStrategy<Body>; 2] {
    let numbers = (number(), number(), number(), number(), number(), number());
    let transforms = vec(select(Transform::ALL).prop_map(|kind| Capability { kind }), 0..4);
    let module = (numbers, vec(link(), 0..4), transforms).prop_map(|(n, links, transforms)| {
        let (module, width, height, pixel_bytes, channels_max, entries_max) = n;
        let module = ModuleId(module);
        Body::ModuleCapabilities(ModuleCapabilities {
            module,
            width,
            height,
            pixel_bytes,
            channels_max,
            entries_max,
            links,
            transforms,
        })
    });
    let memory = (select(MemoryKind::ALL), number()).prop_map(|(kind, bytes)| Memory { kind, bytes });
    let receiver = (number(), vec(link(), 0..4), vec(memory, 0..4)).prop_map(|(receiver, links, memory)| {
        Body::ReceiverCapabilities(ReceiverCapabilities { receiver: ReceiverId(receiver), links, memory })
    });
    [module.boxed(), receiver.boxed()]
}

fn buffers() -> [BoxedStrategy<Body>; 2] {
    let wish = (number(), number(), number(), select(MemoryKind::ALL), number()).prop_map(
        |(id, bytes, align_bytes, kind, unit_bytes)| BufferWish { id: BufferId(id), bytes, align_bytes, kind, unit_bytes },
    );
    let place = (number(), number(), number()).prop_map(|(id, address, key)| BufferPlace { id: BufferId(id), address, key });
    let defined = (number(), vec(place, 0..5))
        .prop_map(|(receiver, buffers)| Body::BufferDefined(BuffersDefined { receiver: ReceiverId(receiver), buffers }));
    [vec(wish, 0..5).prop_map(Body::BufferDefine).boxed(), defined.boxed()]
}

fn receiver_status() -> impl Strategy<Value = Body> {
    let counts = (number(), number(), number(), number(), number());
    (number(), select(State::ALL), counts).prop_map(|(receiver, state, (packets, lost, whole, partial, empty))| {
        Body::ReceiverStatus(ReceiverStatus { receiver: ReceiverId(receiver), state, packets, lost, whole, partial, empty })
    })
}

/// A strategy for each kind of body, in the order of the schema.
fn bodies() -> Vec<BoxedStrategy<Body>> {
    let status = (number(), select(State::ALL), number(), number(), number(), number());
    let status = status.prop_map(|(module, state, blocks, skipped, unsent, packets)| {
        Body::Status(Status { module: ModuleId(module), state, blocks, skipped, unsent, packets })
    });
    let grant = (number(), number()).prop_map(|(slot, fills)| Grant { slot, fills });
    let credit = (number(), number(), vec(grant, 0..5))
        .prop_map(|(run, buffer, grants)| Body::Credit(Credits { run, buffer: ReceiveBufferId(buffer), grants }));
    let nack =
        (number(), select(Code::ALL), sentence()).prop_map(|(number, code, reason)| Body::Nack(Nack { number, code, reason }));
    let [module, receiver] = capabilities();
    let [define, defined] = buffers();
    vec![
        Just(Body::CapabilitiesRequest).boxed(),
        module,
        receiver,
        vec(peer(), 0..5).prop_map(Body::CommConfig).boxed(),
        define,
        defined,
        map().boxed(),
        vec(transfer(), 0..4).prop_map(Body::DtpConfig).boxed(),
        receive_config().boxed(),
        number().prop_map(Body::Start).boxed(),
        Just(Body::Stop).boxed(),
        Just(Body::Release).boxed(),
        Just(Body::StatusRequest).boxed(),
        status.boxed(),
        receiver_status().boxed(),
        credit.boxed(),
        number().prop_map(Body::Ack).boxed(),
        nack.boxed(),
    ]
}

fn telegram(body: impl Strategy<Value = Body>) -> impl Strategy<Value = Telegram> {
    (number(), name(), body).prop_map(|(number, sender, body)| Telegram { number, sender, body })
}

proptest! {
    #[test]
    fn what_is_written_is_read(telegram in telegram(proptest::strategy::Union::new(bodies()))) {
        let xml = telegram.to_xml().expect("it is small");
        prop_assert_eq!(Telegram::from_xml(xml.as_bytes()), Ok(telegram.clone()), "{}", xml);
        let frame = telegram.to_frame().expect("it is small");
        prop_assert_eq!(length_of(frame[..4].try_into().expect("4 bytes")), Ok(xml.len()));
        prop_assert_eq!(&frame[4..], xml.as_bytes());
    }

    /// A telegram with one byte changed is refused or read as another one; nothing breaks.
    #[test]
    fn a_changed_byte_breaks_nothing(telegram in telegram(proptest::strategy::Union::new(bodies())), at: prop::sample::Index, to: u8) {
        let mut xml = telegram.to_xml().expect("it is small").into_bytes();
        let at = at.index(xml.len());
        xml[at] = to;
        if let Ok(other) = Telegram::from_xml(&xml) {
            let again = other.to_xml().expect("it is small");
            prop_assert_eq!(Telegram::from_xml(again.as_bytes()), Ok(other));
        }
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/telegrams")
}

#[test]
fn the_kept_telegrams_are_those_that_we_write() {
    let mut runner = TestRunner::deterministic();
    let mut draw = |body: BoxedStrategy<Body>| telegram(body).new_tree(&mut runner).expect("a telegram").current();
    let telegrams: Vec<Telegram> = (0..4).flat_map(|_| bodies()).map(&mut draw).collect();
    let written: Vec<String> = telegrams.iter().map(|telegram| telegram.to_xml().expect("it is small")).collect();
    let path = folder().join("good.json");
    if std::env::var_os("KONKORDIA_WRITE_TELEGRAMS").is_some() {
        let mut text = serde_json::to_string_pretty(&written).expect("texts");
        text.push('\n');
        std::fs::write(&path, text).expect("the folder is there");
    }
    let kept: Vec<String> = serde_json::from_slice(&std::fs::read(&path).expect("the file is there")).expect("a list of texts");
    assert_eq!(kept, written, "the format has changed: KONKORDIA_WRITE_TELEGRAMS=1 cargo test -p konkordia-fabric");
    let read: Vec<_> = kept.iter().map(|xml| Telegram::from_xml(xml.as_bytes()).expect("a telegram")).collect();
    assert_eq!(read, telegrams);
}

#[test]
fn the_kept_texts_that_are_no_telegrams_are_refused() {
    let bad: Vec<serde_json::Value> =
        serde_json::from_slice(&std::fs::read(folder().join("bad.json")).expect("the file is there")).expect("a list");
    assert!(bad.len() > 20);
    for case in &bad {
        let text = |key: &str| case[key].as_str().unwrap_or_else(|| panic!("{case} has a text {key}"));
        let why = Telegram::from_xml(text("xml").as_bytes()).map_err(|why| why.to_string());
        let says = text("says");
        assert!(why.as_ref().is_err_and(|why| why.contains(says)), "{why:?} does not say: {says}");
    }
}

/// What costs a careless parser its memory or its stack costs this one nothing.
#[test]
fn attacks_are_refused() {
    let says = |xml: &[u8], part: &str| {
        let why = Telegram::from_xml(xml).expect_err("no telegram").to_string();
        assert!(why.contains(part), "{why}");
        assert!(why.len() < 400, "an error is short: {why}");
    };
    let entities: String = (1..10).map(|n| format!("<!ENTITY e{n} \"{}\">", format!("&e{};", n - 1).repeat(10))).collect();
    let laughs = format!("<!DOCTYPE rashpa [<!ENTITY e0 \"ha\">{entities}]><rashpa>&e9;</rashpa>");
    says(laughs.as_bytes(), "document type");
    says(b"<!DOCTYPE rashpa SYSTEM \"file:///etc/passwd\"><rashpa/>", "document type");
    assert_eq!(length_of([0x40, 0, 0, 0]), Err(BadTelegram::Length(1 << 30)), "1 GB is refused before it comes");
    says(&vec![b' '; BYTES_MAX + 1], "1 to 1048576 bytes");
    says(b"", "1 to 1048576 bytes");
    assert!(length_of([0; 4]).is_err() && length_of([0, 0x10, 0, 1]).is_err() && length_of([0, 0x10, 0, 0]).is_ok());
    says("<a>".repeat(BYTES_MAX / 3).as_bytes(), "no XML");
    let (deep, close) = ("<a>".repeat(39_000), "</a>".repeat(39_000));
    let frame = |inner: &str| format!("<rashpa version=\"1\" number=\"1\" sender=\"a\">{inner}</rashpa>");
    says(frame(&format!("<start run=\"1\">{deep}{close}</start>")).as_bytes(), "<a> has no place in <start>");
    says(frame(&"<start/>".repeat(50_000)).as_bytes(), "no XML");
    let peer = "<slot id=\"1\" fills=\"1\"/>";
    says(
        frame(&format!("<credit run=\"1\" receive-buffer=\"1\">{}</credit>", peer.repeat(4097))).as_bytes(),
        "more than 4096 times",
    );
    let attributes: String = (0..20_000).map(|n| format!(" a{n}=\"\"")).collect();
    says(frame(&format!("<start run=\"1\"{attributes}/>")).as_bytes(), "attribute");
    says(frame(&format!("<{}/>", "x".repeat(100_000))).as_bytes(), "has no place");
    says(&[b'<', 0xFF, b'>'], "byte 1 is wrong");
}

#[test]
fn what_is_too_long_is_not_written() {
    let grants = |count: usize| Telegram {
        body: Body::Credit(Credits { grants: vec![Grant::default(); count], ..Default::default() }),
        ..Default::default()
    };
    assert!(grants(4096).to_xml().is_ok());
    assert!(matches!(grants(4097).to_xml(), Err(BadTelegram::TooMany { most: 4096, .. })));
    let mut transfer = TransferEntry::default();
    transfer.0.slices.first = u64::MAX;
    transfer.0.layout.slot_bytes = u64::MAX;
    transfer.0.layout.block_offset = u64::MAX;
    let xml = Telegram { body: Body::DtpConfig(vec![transfer; 4096]), ..Default::default() }.to_xml();
    assert!(matches!(xml, Err(BadTelegram::Length(_))));
}
