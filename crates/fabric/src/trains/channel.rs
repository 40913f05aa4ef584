//! One channel: the packets of one module become trains of that module.
//!
//! Each datagram gets one verdict, and each verdict has one counter. A train is handed on when it is complete, when it
//! was silent for the time-out, or when as many later trains have begun as may be open. What did not arrive is zero in
//! its bytes, and [`ModuleTrain::arrived`] says which packets did; nothing of an earlier train is left in a buffer.

use super::spec::{BUILDER_BYTES_MAX, TrainSpec};
use konkordia_wire::xfel_train::{PAYLOAD_BYTES, TrainHeader, TrainNumbers, TrainPacket, TrainShape, packets_of};
use std::collections::VecDeque;

/// Frame numbers that are remembered after their train was handed on, so that what comes later is late and begins no
/// train of its own.
const REMEMBERED: usize = 64;
/// Trains whose ids disagree with those before by the same distance, before the new distance is believed.
const AGREEING: u32 = 3;

/// What became of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Its data are in a train.
    Placed,
    /// Its data were there already.
    Duplicate,
    /// Its train was handed on before.
    Late,
    /// No buffer was free when its train began: consumers are too slow.
    NoRoom,
    /// It is no packet of a train, or not one of the length that its train has.
    Malformed,
    /// Packet 0 without the number that marks a train, and all further packets of that train.
    WrongMagic,
    /// Packet 0 with a header that this detector does not send, and all further packets of that train.
    OtherDetector,
}

impl Verdict {
    /// All of them, in the order of the counters.
    pub const ALL: [Self; 7] =
        [Self::Placed, Self::Duplicate, Self::Late, Self::NoRoom, Self::Malformed, Self::WrongMagic, Self::OtherDetector];

    /// Short name for reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Placed => "placed",
            Self::Duplicate => "duplicate",
            Self::Late => "late",
            Self::NoRoom => "no_room",
            Self::Malformed => "malformed",
            Self::WrongMagic => "wrong_magic",
            Self::OtherDetector => "other_detector",
        }
    }
}

/// The account of a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChannelCounts {
    /// Datagrams by verdict, in the order of [`Verdict::ALL`]; their sum is the datagrams taken.
    pub verdicts: [u64; Verdict::ALL.len()],
    /// Trains handed on with all packets.
    pub complete: u64,
    /// Trains handed on with packets missing.
    pub partial: u64,
    /// Trains that were thrown away because their header was refused.
    pub refused: u64,
    /// Trains thrown away because nobody could say their id: packet 0 is missing and none came before.
    pub unidentified: u64,
}

impl ChannelCounts {
    /// Datagrams with this verdict.
    pub fn of(&self, verdict: Verdict) -> u64 {
        self.verdicts[verdict as usize]
    }
}

/// A train of one module. Its buffer goes back to its channel with [`Channel::give_back`].
#[derive(Clone, Debug)]
pub struct ModuleTrain {
    /// Number that its packets have.
    pub frame_number: u32,
    /// Id of the train.
    pub train_id: u64,
    /// Packet 0 is missing: the id follows from the frame number and the trains before.
    pub is_id_inferred: bool,
    /// The numbers of its header, if packet 0 arrived.
    pub numbers: Option<TrainNumbers>,
    /// Where everything lies, if packet 0 arrived, or the last one tells the length.
    pub shape: Option<TrainShape>,
    /// The bytes; those behind the train mean nothing.
    pub bytes: Vec<u8>,
    /// One bit for each packet, the lowest bit first.
    pub arrived: Vec<u64>,
    /// Number of packets that arrived.
    pub packets_arrived: usize,
    /// True once the pixels are in the order of the image.
    pub is_ordered: bool,
    /// Of each image with missing pixels: its number, and one byte per pixel in the order of `bytes`, 1 = missing.
    pub missing: Vec<(usize, Vec<u8>)>,
}

impl ModuleTrain {
    /// True if the packet arrived.
    pub fn has_packet(&self, packet: usize) -> bool {
        self.arrived.get(packet / 64).is_some_and(|word| word >> (packet % 64) & 1 == 1)
    }

    /// True if each packet arrived that has some of these bytes.
    pub fn has_bytes(&self, bytes: std::ops::Range<usize>) -> bool {
        bytes.is_empty() || (bytes.start / PAYLOAD_BYTES..=(bytes.end - 1) / PAYLOAD_BYTES).all(|packet| self.has_packet(packet))
    }

    /// Bytes of the train, if known.
    pub fn length_bytes(&self) -> Option<usize> {
        Some(self.shape?.sections()?.end)
    }

    /// True if no packet is missing.
    pub fn is_complete(&self) -> bool {
        self.length_bytes().is_some_and(|bytes| self.packets_arrived == packets_of(bytes))
    }
}

/// A train that is being collected.
#[derive(Debug)]
struct Open {
    train: ModuleTrain,
    /// Bytes, if the header or the last packet says them.
    end_bytes: Option<usize>,
    last_packet_us: u64,
}

/// The trains of one module.
#[derive(Debug)]
pub struct Channel {
    spec: TrainSpec,
    open_max: usize,
    timeout_us: u64,
    open: VecDeque<Open>,
    /// Frame numbers of trains that are over, with the verdict of what still comes.
    over: VecDeque<(u32, Verdict)>,
    free: Vec<(Vec<u8>, Vec<u64>)>,
    ready: VecDeque<ModuleTrain>,
    /// Train id less frame number, and how many ids in turn have disagreed with it, by which distance.
    distance: Option<u64>,
    other_distance: (u64, u32),
    last_packet_us: u64,
    counts: ChannelCounts,
}

impl Channel {
    /// A channel that keeps at most `open_max` trains open, gives a silent one up after `timeout_us`, and has `buffers`
    /// buffers of the longest train for those open, those ready and those that are not given back.
    ///
    /// # Panics
    /// If no train may be open, or there are fewer buffers than that.
    pub fn new(spec: TrainSpec, open_max: usize, timeout_us: u64, buffers: usize) -> Self {
        assert!(open_max > 0 && buffers >= open_max, "buffers for all open trains");
        let buffer = || (vec![0; spec.bytes_max()], vec![0; spec.packets_max().div_ceil(64)]);
        Self {
            spec,
            open_max,
            timeout_us,
            open: VecDeque::with_capacity(open_max),
            over: VecDeque::with_capacity(REMEMBERED),
            free: (0..buffers).map(|_| buffer()).collect(),
            ready: VecDeque::with_capacity(buffers),
            distance: None,
            other_distance: (0, 0),
            last_packet_us: 0,
            counts: ChannelCounts::default(),
        }
    }

    /// What the trains of this channel may be.
    pub fn spec(&self) -> &TrainSpec {
        &self.spec
    }

    /// The account so far.
    pub fn counts(&self) -> &ChannelCounts {
        &self.counts
    }

    /// Takes a datagram that came at `now_us`.
    pub fn take(&mut self, datagram: &[u8], now_us: u64) -> Verdict {
        let verdict = self.verdict(datagram, now_us);
        self.counts.verdicts[verdict as usize] += 1;
        verdict
    }

    fn verdict(&mut self, datagram: &[u8], now_us: u64) -> Verdict {
        let Ok(packet) = TrainPacket::new_checked(datagram) else { return Verdict::Malformed };
        if packet.number() >= self.spec.packets_max() {
            return Verdict::Malformed;
        }
        let frame = packet.frame_number();
        if let Some(&(_, verdict)) = self.over.iter().find(|(over, _)| *over == frame) {
            return verdict;
        }
        let at = match self.open.iter().position(|open| open.train.frame_number == frame) {
            Some(at) => at,
            None => match self.begin(frame, now_us) {
                Ok(at) => at,
                Err(verdict) => return verdict,
            },
        };
        let verdict = self.place(at, &packet);
        if matches!(verdict, Verdict::WrongMagic | Verdict::OtherDetector) {
            self.refuse(at, verdict);
            return verdict;
        }
        let open = &mut self.open[at];
        if verdict == Verdict::Placed {
            open.last_packet_us = now_us;
            self.last_packet_us = now_us;
        }
        let is_complete = open.end_bytes.is_some_and(|bytes| open.train.packets_arrived == packets_of(bytes));
        if is_complete {
            self.close(at);
        }
        verdict
    }

    /// Opens a train; the place of the oldest one is taken if all are in use.
    fn begin(&mut self, frame_number: u32, now_us: u64) -> Result<usize, Verdict> {
        // A detector that was silent for long may begin to count anew.
        if now_us.saturating_sub(self.last_packet_us) > 4 * self.timeout_us && self.open.is_empty() {
            self.over.clear();
        }
        if self.is_before_those_over(frame_number) {
            return Err(Verdict::Late);
        }
        if self.open.len() == self.open_max {
            self.close(0);
        }
        let Some((bytes, mut arrived)) = self.free.pop() else {
            // Either a whole train is taken or nothing of it.
            self.remember(frame_number, Verdict::NoRoom);
            return Err(Verdict::NoRoom);
        };
        arrived.fill(0);
        let train = ModuleTrain {
            frame_number,
            train_id: 0,
            is_id_inferred: true,
            numbers: None,
            shape: None,
            bytes,
            arrived,
            packets_arrived: 0,
            is_ordered: false,
            missing: Vec::new(),
        };
        self.open.push_back(Open { train, end_bytes: None, last_packet_us: now_us });
        Ok(self.open.len() - 1)
    }

    /// True for a frame number before all that are remembered, of which nothing is known any more.
    fn is_before_those_over(&self, frame: u32) -> bool {
        let is_before = |other: u32| (other.wrapping_sub(frame) as i32) > 0;
        self.over.len() == REMEMBERED && self.over.iter().all(|(over, _)| is_before(*over))
    }

    fn remember(&mut self, frame: u32, verdict: Verdict) {
        if self.over.len() == REMEMBERED {
            self.over.pop_front();
        }
        self.over.push_back((frame, verdict));
    }

    /// Copies the data of a packet to their place, if they fit to what is known of the train.
    fn place(&mut self, at: usize, packet: &TrainPacket<'_>) -> Verdict {
        let Open { train, end_bytes, .. } = &mut self.open[at];
        let (number, data) = (packet.number(), packet.data());
        if train.has_packet(number) {
            return Verdict::Duplicate;
        }
        let (start, end) = (number * PAYLOAD_BYTES, number * PAYLOAD_BYTES + data.len());
        let mut head = None;
        if number == 0 {
            let Ok(found) = TrainHeader::new_checked(data) else { return Verdict::WrongMagic };
            let Some((shape, bytes)) = announced(&self.spec, &found) else { return Verdict::OtherDetector };
            if end_bytes.is_some_and(|end| end != bytes) {
                return Verdict::OtherDetector;
            }
            head = Some((found, shape, bytes));
        }
        let end_known = head.map_or(*end_bytes, |(.., bytes)| Some(bytes));
        let is_right = match end_known {
            Some(bytes) => end <= bytes && packet.is_last() == (end == bytes),
            None => end <= train.bytes.len() && !(packet.is_last() && highest(&train.arrived) > Some(number)),
        };
        if !is_right {
            // A header that denies its own packet is none of this detector.
            return if number == 0 { Verdict::OtherDetector } else { Verdict::Malformed };
        }
        if let Some((found, shape, bytes)) = head {
            if highest(&train.arrived).is_some_and(|last| last >= packets_of(bytes)) {
                return Verdict::OtherDetector;
            }
            (train.shape, *end_bytes) = (Some(shape), Some(bytes));
            let numbers = TrainNumbers {
                version: found.version(),
                train_id: found.train_id(),
                data_id: found.data_id(),
                link_id: found.link_id(),
            };
            train.numbers = Some(numbers);
            train.is_id_inferred = false;
        } else if packet.is_last() {
            *end_bytes = Some(end);
        }
        train.bytes[start..end].copy_from_slice(data);
        train.arrived[number / 64] |= 1 << (number % 64);
        train.packets_arrived += 1;
        Verdict::Placed
    }

    /// Gives up a train whose header is not one of this detector.
    fn refuse(&mut self, at: usize, verdict: Verdict) {
        let Some(open) = self.open.remove(at) else { return };
        self.remember(open.train.frame_number, verdict);
        self.counts.refused += 1;
        self.free.push((open.train.bytes, open.train.arrived));
    }

    /// Hands a train on, or gives it up if nobody can say which one it is.
    fn close(&mut self, at: usize) {
        let Some(Open { mut train, end_bytes, .. }) = self.open.remove(at) else { return };
        self.remember(train.frame_number, Verdict::Late);
        if train.shape.is_none() {
            train.shape = end_bytes.and_then(|bytes| self.spec.shape_of_bytes(bytes));
        }
        match (train.numbers, self.distance) {
            (Some(numbers), _) => train.train_id = self.believed(numbers.train_id, train.frame_number),
            (None, Some(distance)) => train.train_id = distance.wrapping_add(u64::from(train.frame_number)),
            (None, None) => {
                self.counts.unidentified += 1;
                self.free.push((train.bytes, train.arrived));
                return;
            }
        }
        train.is_id_inferred = train.numbers.is_none_or(|numbers| numbers.train_id != train.train_id);
        clear_missing(&mut train);
        *if train.is_complete() { &mut self.counts.complete } else { &mut self.counts.partial } += 1;
        self.ready.push_back(train);
    }

    /// The id of a train: that of its header, unless it alone disagrees with the trains before.
    fn believed(&mut self, id: u64, frame: u32) -> u64 {
        let distance = id.wrapping_sub(u64::from(frame));
        let known = *self.distance.get_or_insert(distance);
        if distance == known {
            self.other_distance.1 = 0;
            return id;
        }
        let agreeing = if self.other_distance.0 == distance { self.other_distance.1 + 1 } else { 1 };
        self.other_distance = (distance, agreeing);
        if agreeing < AGREEING {
            return known.wrapping_add(u64::from(frame));
        }
        (self.distance, self.other_distance.1) = (Some(distance), 0);
        id
    }

    /// Gives up trains that were silent for the time-out at `now_us`.
    pub fn tick(&mut self, now_us: u64) {
        while let Some(at) = self.open.iter().position(|open| now_us.saturating_sub(open.last_packet_us) >= self.timeout_us) {
            self.close(at);
        }
    }

    /// Hands all trains on, because nothing will come any more.
    pub fn finish(&mut self) {
        while !self.open.is_empty() {
            self.close(0);
        }
    }

    /// The next train that was handed on.
    pub fn pop(&mut self) -> Option<ModuleTrain> {
        self.ready.pop_front()
    }

    /// Takes back the buffer of a train.
    ///
    /// # Panics
    /// If it is not one of this channel.
    pub fn give_back(&mut self, bytes: Vec<u8>, arrived: Vec<u64>) {
        assert!(bytes.len() == self.spec.bytes_max(), "a buffer of this channel");
        self.free.push((bytes, arrived));
    }

    /// Trains that are being collected.
    pub fn open(&self) -> usize {
        self.open.len()
    }
}

/// Shape and bytes of the train that a header announces; `None` if this detector sends no such train.
fn announced(spec: &TrainSpec, head: &TrainHeader<'_>) -> Option<(TrainShape, usize)> {
    let shape = TrainShape::announced(head, spec.image_bytes())?;
    let is_own = shape.images <= spec.images_max
        && shape.detector_specific_bytes == spec.detector.specific_bytes() as usize
        && shape.builder_specific_bytes <= BUILDER_BYTES_MAX;
    let bytes = shape.sections()?.end;
    (is_own && bytes <= spec.bytes_max()).then_some((shape, bytes))
}

/// The highest packet that arrived.
fn highest(arrived: &[u64]) -> Option<usize> {
    let word = arrived.iter().rposition(|word| *word != 0)?;
    Some(64 * word + 63 - arrived[word].leading_zeros() as usize)
}

/// Makes the bytes of missing packets zero: they are those of an earlier train. Where nobody knows the end, all up to
/// the end of the buffer.
fn clear_missing(train: &mut ModuleTrain) {
    let end = train.length_bytes().unwrap_or(train.bytes.len()).min(train.bytes.len());
    for packet in 0..packets_of(end) {
        if !train.has_packet(packet) {
            train.bytes[packet * PAYLOAD_BYTES..end.min((packet + 1) * PAYLOAD_BYTES)].fill(0);
        }
    }
}
