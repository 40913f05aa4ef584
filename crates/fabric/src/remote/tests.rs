//! Both sides against each other over a simulated link that breaks at every point, with a writer that is killed and
//! started again, a slow disk, and bounds on what is kept.

use super::record::{HEAD_BYTES, Head};
use super::*;
use bytes::Bytes;
use konkordia_core::array::{Array, Element, Packing, Shape};
use konkordia_core::assembler::PacketBitmap;
use konkordia_core::frame_header::FrameHeader;
use konkordia_core::image::{Channel, CommittedImage, Packets, TileRecord};
use konkordia_core::ledger::ImageStatus;
use konkordia_sim::rng::Rng;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

const SLOT_BYTES: u64 = 4096;
const START: &[u8] = b"the start of a run";
const END: &[u8] = b"its end";
const LIMITS: Limits = Limits { memory_bytes: 3 * SLOT_BYTES, slots: 8, text_bytes: 1 << 20 };
const KEY: u64 = 77;

/// An image whose pixels, packets and state follow from its number.
fn image(number: u64) -> Arc<CommittedImage> {
    let status = [ImageStatus::Complete, ImageStatus::Partial, ImageStatus::Lost][(number % 7 / 3) as usize];
    let pixels: Vec<u8> = (0..100 + number % 50).map(|byte| (byte * 31 + number) as u8).collect();
    let shape = Shape::new(&[2, 3]).unwrap();
    let array = Array { shape, element: Element::Uint16, packing: Packing::BitshuffleLz4, pieces: vec![pixels.into()] };
    let channels = vec![Channel { name: "".into(), array }];
    let tile = |n: u64| TileRecord {
        header: FrameHeader {
            frame_number: number + 9,
            timestamp_100ns: n,
            fields: [n, 2, 3, 4, 5, 6],
            ..FrameHeader::default()
        },
        bitmap: PacketBitmap(std::array::from_fn(|word| if word < 2 { number << word } else { 0 })),
        packets: (number % 128) as u16,
        received_ns: 0,
    };
    let tiles = vec![tile(1), tile(2)];
    let packets = Packets { first_frame: number, frames: 1, tiles, packets_per_tile: 128, ..Packets::default() };
    let has = status.has_pixels();
    let channels = if has { channels } else { Vec::new() };
    Arc::new(CommittedImage { status, channels, frame: number + 9, packets: Some(packets), ..CommittedImage::lost(number) })
}

/// What is under way to the writer.
enum Under {
    Message(Vec<u8>),
    Write(usize, Vec<u8>),
    Event(u32),
}

/// The files of the writer, which outlive it.
#[derive(Default)]
struct Disk {
    images: BTreeMap<u64, CommittedImage>,
    durable_end: u64,
    end: Option<Vec<u8>>,
}

struct World {
    sender: Sender,
    receiver: Receiver,
    disk: Disk,
    memory: Vec<u8>,
    to_writer: VecDeque<Under>,
    to_sender: VecDeque<Vec<u8>>,
    /// Slots whose images the file sink has not taken yet.
    waiting: VecDeque<(Held, CommittedImage)>,
    is_connected: bool,
    /// `Hello` was read from the present link.
    is_greeted: bool,
    /// Things that were done.
    steps: u64,
}

impl World {
    fn new(kept: Kept) -> Self {
        Self {
            sender: Sender::new([1; 16], START.into(), SLOT_BYTES, kept),
            receiver: Receiver::new(LIMITS),
            disk: Disk::default(),
            memory: vec![0; LIMITS.memory_bytes as usize],
            to_writer: VecDeque::new(),
            to_sender: VecDeque::new(),
            waiting: VecDeque::new(),
            is_connected: false,
            is_greeted: false,
            steps: 0,
        }
    }

    fn connect(&mut self) {
        self.sender.connected();
        (self.is_connected, self.is_greeted) = (true, false);
    }

    /// What was under way is gone. Images that the writer has taken stay in its memory.
    fn cut(&mut self) {
        self.to_writer.clear();
        self.to_sender.clear();
        self.sender.disconnected();
        self.receiver.disconnected();
        self.is_connected = false;
    }

    /// The writer is killed: what it had in memory is gone, and after a power cut also what was not on the disk.
    fn kill(&mut self, is_power_cut: bool) {
        self.cut();
        self.waiting.clear();
        if is_power_cut {
            self.disk.images.retain(|number, _| *number < self.disk.durable_end);
        }
        self.receiver = Receiver::new(LIMITS);
    }

    /// One step of the sender; false if there was nothing to do.
    fn step_sender(&mut self) -> bool {
        if let Some(message) = self.to_sender.pop_front() {
            self.sender.arrived(&message).unwrap();
            return true;
        }
        match self.sender.next_action() {
            None => return false,
            Some(Action::Send(message)) => {
                assert!(message.len() <= MESSAGE_BYTES_MAX);
                self.to_writer.push_back(Under::Message(message));
            }
            Some(Action::Write { key, slot_at, pixels_at, head, image, slot }) => {
                assert_eq!(key, KEY);
                let at = |offset: u64| (slot_at + offset) as usize;
                self.to_writer.push_back(Under::Write(at(pixels_at), record::pixels_of(&image).to_vec()));
                self.to_writer.push_back(Under::Write(at(0), head));
                self.to_writer.push_back(Under::Event(slot));
            }
        }
        true
    }

    /// One step of the writer.
    fn step_writer(&mut self) -> bool {
        if !self.is_connected {
            return false;
        }
        if let Some(message) = self.receiver.next_message() {
            self.to_sender.push_back(message);
            return true;
        }
        let todo = match self.to_writer.pop_front() {
            None => return false,
            Some(Under::Message(message)) if !self.is_greeted => {
                self.is_greeted = true;
                self.receiver.hello(&message).unwrap()
            }
            Some(Under::Message(message)) => self.receiver.arrived(&message).unwrap(),
            Some(Under::Write(at, bytes)) => {
                self.memory[at..at + bytes.len()].copy_from_slice(&bytes);
                None
            }
            Some(Under::Event(slot)) => {
                self.take(slot);
                None
            }
        };
        match todo {
            Some(ToDo::Open { start, .. }) => {
                assert_eq!(start, START);
                let taken_end = self.disk.images.keys().next_back().map_or(0, |last| last + 1);
                self.receiver.opened(KEY, taken_end, self.disk.durable_end, self.disk_account());
            }
            Some(ToDo::Attach { .. }) => self.receiver.attached(KEY),
            Some(ToDo::Close { end, .. }) => {
                while self.write() {}
                self.disk.end = Some(end);
                self.receiver.closed(self.disk_account(), "run_master.h5".into());
            }
            None => {}
        }
        true
    }

    fn take(&mut self, slot: u32) {
        let at = slot as usize * SLOT_BYTES as usize;
        let head: [u8; HEAD_BYTES] = self.memory[at..at + HEAD_BYTES].try_into().unwrap();
        let head = self.receiver.head(slot, &head).unwrap();
        let bytes = Bytes::copy_from_slice(&self.memory[at..at + head.end()]);
        match self.receiver.take(slot, &head, &bytes).unwrap() {
            Taken::Image(image, held) => self.waiting.push_back((held, *image)),
            Taken::Duplicate(number) => assert!(number < self.receiver.taken_end()),
        }
    }

    /// The file sink takes one image.
    fn write(&mut self) -> bool {
        let Some((held, image)) = self.waiting.pop_front() else { return false };
        assert!(self.disk.images.insert(image.number, image).is_none(), "every image comes once");
        self.receiver.free(held);
        true
    }

    fn sync(&mut self) {
        self.disk.durable_end = self.disk.images.keys().next_back().map_or(0, |last| last + 1);
        self.receiver.durable(self.disk.durable_end);
    }

    fn disk_account(&self) -> Account {
        let mut account = Account::default();
        for image in self.disk.images.values() {
            account.add(image.status.has_pixels(), record::pixels_of(image).len() as u64);
        }
        account
    }

    /// One step of anybody. Returns false when nobody has anything to do.
    fn step(&mut self) -> bool {
        self.steps += 1;
        self.step_sender() || self.step_writer() || self.write()
    }

    /// Hands over the images that fit, and the end behind them.
    fn feed(&mut self, next: &mut u64, images: u64) {
        while *next < images && self.sender.has_room() {
            self.sender.offer(&image(*next));
            *next += 1;
        }
        if *next == images {
            self.sender.end(END.into());
        }
    }

    /// Checks the accounts of both sides, and every image, when all is over.
    fn check(&self, images: u64) {
        let counts = self.sender.counts();
        assert_eq!(self.sender.imbalance(), None, "{counts:?}");
        assert_eq!(self.sender.closed().map(|(account, _)| account), Some(self.sender.account()));
        assert_eq!((counts.offered, counts.durable + counts.lost, self.sender.unconfirmed()), (images, images, 0));
        assert_eq!(counts.missing.iter().map(|range| range.end - range.start).sum::<u64>(), counts.lost);
        let is_missing = |number: &u64| counts.missing.iter().any(|range| range.contains(number));
        for number in 0..images {
            match self.disk.images.get(&number) {
                None => assert!(is_missing(&number), "image {number} is not counted as lost"),
                Some(found) => {
                    let sent = image(number);
                    assert!(!is_missing(&number), "image {number} is there and counted as lost");
                    assert_eq!((found.status, found.frame, &found.packets), (sent.status, sent.frame, &sent.packets));
                    assert_eq!(found.chunk(), sent.chunk());
                }
            }
        }
        assert_eq!(self.disk.end.as_deref(), Some(END));
    }
}

/// Runs until the writer has closed its files; `disturb` is called before each step, and may break things.
fn run(kept: Kept, images: u64, mut disturb: impl FnMut(&mut World)) -> World {
    let (mut world, mut next) = (World::new(kept), 0);
    while !world.sender.has_ended() {
        assert!(world.steps < 1_000_000, "both sides wait for each other");
        if !world.is_connected {
            world.connect();
        }
        world.feed(&mut next, images);
        disturb(&mut world);
        if !world.step() {
            world.sync();
        }
    }
    world
}

const MANY: Kept = Kept { images: 1000, bytes: 1 << 30 };

#[test]
fn an_undisturbed_run_is_whole_and_nothing_is_sent_twice() {
    let world = run(MANY, 40, |_| {});
    world.check(40);
    assert_eq!((world.sender.counts().again, world.sender.counts().links, world.receiver.duplicates()), (0, 1, 0));
    assert_eq!(world.receiver.account(), world.disk_account());
}

#[test]
fn the_link_may_break_or_the_writer_end_at_every_point() {
    let steps = run(MANY, 8, |_| {}).steps;
    assert!(steps > 60, "{steps}");
    for at in 1..steps {
        for what in 0..3 {
            let world = run(MANY, 8, |world| {
                if world.steps == at {
                    if what == 0 {
                        world.cut()
                    } else {
                        world.kill(what == 2)
                    }
                    // As the next pass does.
                    world.connect();
                }
            });
            world.check(8);
            assert_eq!(world.sender.counts().lost, 0, "at {at}, kind {what}: everything was kept");
        }
    }
}

#[test]
fn whatever_happens_each_image_is_in_the_file_once_or_counted_as_lost() {
    let (mut lost, mut duplicates) = (0, 0);
    for seed in 0..400 {
        let mut rng = Rng::keyed(16, &[seed]);
        let kept = Kept { images: 1 + rng.below(12) as usize, bytes: 1 << 30 };
        let (cuts, kills) = (rng.uniform() * 0.03, rng.uniform() * 0.01);
        let mut seen = 0;
        let world = run(kept, 60, |world| {
            // A writer that is killed while it closes its files leaves them to `konkordia repair`.
            if rng.chance(cuts) {
                world.cut();
            } else if rng.chance(kills) && world.disk.end.is_none() {
                seen += world.receiver.duplicates();
                world.kill(rng.chance(0.5));
            } else if rng.chance(0.02) {
                world.sync();
            }
            if !world.is_connected {
                world.connect();
            }
        });
        world.check(60);
        lost += world.sender.counts().lost;
        duplicates += seen + world.receiver.duplicates();
    }
    assert!(lost > 0 && duplicates > 0, "{lost} lost, {duplicates} duplicates: the test shows nothing");
}

#[test]
fn a_writer_that_takes_nothing_stops_the_sender_and_no_image_is_forgotten() {
    let mut world = World::new(Kept { images: 5, bytes: 1 << 30 });
    world.connect();
    let mut next = 0;
    for _ in 0..1000 {
        world.feed(&mut next, 100);
        // The file sink takes nothing.
        let _ = world.step_sender() || world.step_writer();
    }
    assert_eq!((next, world.waiting.len()), (5, 3), "five are kept, three fill the slots");
    while world.sender.counts().durable < 100 {
        world.feed(&mut next, 100);
        if !world.step() {
            world.sync();
        }
    }
    assert_eq!(world.sender.counts().lost, 0);
}

#[test]
fn an_image_longer_than_a_slot_is_counted_and_named() {
    let mut world = World::new(MANY);
    world.connect();
    let mut long = CommittedImage::clone(&image(1));
    long.channels[0].array.pieces = vec![vec![1; SLOT_BYTES as usize].into()];
    for one in [image(0), Arc::new(long), image(2)] {
        world.sender.offer(&one);
    }
    world.sender.end(END.into());
    while !world.sender.has_ended() {
        if !world.step() {
            world.sync();
        }
    }
    let counts = world.sender.counts();
    assert_eq!((counts.too_long, &counts.missing[..], counts.durable), (1, std::slice::from_ref(&(1..2)), 2));
    assert_eq!(world.sender.imbalance(), None);
}

#[test]
fn a_difference_between_both_accounts_is_found() {
    let mut world = run(MANY, 4, |_| {});
    let account = Account { images: world.sender.account().images - 1, ..world.sender.account() };
    let closed = Message::Closed { account, durable_end: 4, file: "f".into(), failure: String::new() };
    world.sender.arrived(&closed.encode()).unwrap();
    let said = world.sender.imbalance().unwrap();
    assert!(said.contains("the sender counts 4 images") && said.contains("the writer 3 images"), "{said}");
}

#[test]
fn a_disk_that_is_full_is_said_to_the_sender_which_still_sends_the_end() {
    let mut failed = false;
    let world = run(MANY, 20, |world| {
        if world.receiver.taken_end() == 6 && !failed {
            failed = true;
            world.receiver.failed("no space left on device");
        }
    });
    assert!(world.disk.end.is_some() && world.sender.failure() == Some("no space left on device"));
    assert!(world.sender.unconfirmed() > 0);
}

#[test]
fn other_versions_and_sizes_are_refused_with_the_reason() {
    let hello = |version: u16, slot_bytes: u64| {
        let hello = Message::Hello { version, session: [3; 16], start_bytes: 5, slot_bytes, has_begun: false };
        let mut receiver = Receiver::new(LIMITS);
        assert_eq!(receiver.hello(&hello.encode()), Ok(None));
        let Message::Refused { why } = Message::decode(&receiver.next_message().unwrap()).unwrap() else { return String::new() };
        assert!(receiver.is_refused());
        why
    };
    assert!(hello(VERSION + 1, 1).contains("version"));
    assert!(hello(VERSION, LIMITS.memory_bytes).contains("--memory"));
    assert!(hello(VERSION, 0).contains("--memory"));
    assert_eq!(hello(VERSION, 100), "");
}

#[test]
fn hostile_bytes_are_refused_and_break_nothing() {
    let valid = [
        Message::Hello { version: VERSION, session: [2; 16], start_bytes: 3, slot_bytes: 100, has_begun: false }.encode(),
        Message::Part { bytes: vec![1, 2, 3] }.encode(),
        Message::End { account: Account::default(), end_bytes: 0 }.encode(),
        Message::Ready { key: 1, slots: 2, slot_bytes: 3, taken_end: 4, durable_end: 5 }.encode(),
        Message::Closed { account: Account::default(), durable_end: 1, file: "a".into(), failure: "b".into() }.encode(),
    ];
    for message in &valid {
        assert_eq!(&Message::decode(message).unwrap().encode(), message);
        if message[0] != b'P' && message[0] != b'C' {
            assert!(Message::decode(&message[..message.len() - 1]).is_err());
        }
    }
    let mut rng = Rng::new(5);
    for _ in 0..20_000 {
        let mut message = valid[rng.below(valid.len() as u64) as usize].clone();
        for _ in 0..=rng.below(3) {
            let at = rng.below(message.len() as u64) as usize;
            message[at] = rng.next_u64() as u8;
        }
        message.truncate(1 + rng.below(message.len() as u64) as usize);
        let mut receiver = Receiver::new(LIMITS);
        let _ = receiver.hello(&message);
        let _ = receiver.hello(&valid[0]);
        let _ = receiver.arrived(&message);
        let mut sender = Sender::new([0; 16], START.into(), 100, MANY);
        sender.connected();
        let _ = sender.arrived(&Message::Begin { wants_start: false }.encode());
        let _ = sender.arrived(&message);
        assert_eq!(sender.imbalance().filter(|_| sender.closed().is_none()), None);
    }
}

#[test]
fn a_slot_with_any_changed_bit_is_refused() {
    let original = image(8);
    let (head, at) = record::encode(&original);
    let mut slot = head;
    slot.resize(at, 0);
    slot.extend(record::pixels_of(&original));
    let read = |slot: &[u8]| -> Result<CommittedImage, Violation> {
        let head = Head::new_checked(slot[..HEAD_BYTES].try_into().unwrap(), SLOT_BYTES as usize)?;
        head.image(&Bytes::copy_from_slice(slot.get(..head.end()).unwrap_or(slot)))
    };
    assert_eq!(read(&slot).unwrap().packets, original.packets);
    assert!(slot.len() <= record::bytes_before_pixels(2, 0) + record::pixels_of(&original).len());
    let padding = HEAD_BYTES + u32::from_le_bytes(slot[4..8].try_into().unwrap()) as usize..at;
    for byte in (0..slot.len()).filter(|byte| !padding.contains(byte)) {
        slot[byte] ^= 1 << (byte % 8);
        assert!(read(&slot).is_err(), "byte {byte}");
        slot[byte] ^= 1 << (byte % 8);
    }
}
