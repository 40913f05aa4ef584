//! The frames of a bridge: one verdict for each packet, a mask of 512 bits for each frame and tile, what becomes of
//! frames with missing packets, and which frames are finished.
//!
//! A frame is finished when all its packets are there, or when it leaves the window: then some tile is `window_frames`
//! ahead. Frames are finished in order. They stay in their slots until they are released, and no packet is written to a
//! slot that is not free; PSI's bridge overwrites such slots. Which packets of a tile are placed, what is a duplicate
//! and what is late decides `konkordia_core::assembler`, as in a run over UDP; whether a stream has moved far ahead
//! decides `konkordia_core::far_ahead`.

use super::packet_filter::Metadata;
use super::table::{Address, AddressTable, Refusal};
use konkordia_core::IMAGES_MAX;
use konkordia_core::assembler::{AssemblerSpec, JUMP_IMAGES_LIMIT, PacketBitmap, TileAssembler, Verdict as TileVerdict};
use konkordia_core::far_ahead::{FarAhead, FarAheadPacket};
use konkordia_core::sender::Sender;
use konkordia_wire::sls_file::{MASK_BYTES, mask_bytes};
use std::collections::VecDeque;

/// What becomes of a frame of which packets are missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Missing {
    /// It is counted, and its slot is used again.
    Discard,
    /// It is kept as it is. Its mask says which packets came; the places of the others have what was there before.
    #[default]
    Keep,
    /// It is kept, and the places of missing packets get the value *missing* of the program's pixel type.
    Pad,
}

/// How a bridge works.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Frames with missing packets.
    pub missing: Missing,
    /// Kept frames after which there is an [`Interrupt`]; at least 1.
    pub interrupt_frames: u32,
    /// Number of the first frame; `None` = that of the first packet that has an address, whatever it is.
    pub first_frame: Option<u64>,
}

impl Default for Options {
    /// Partial frames are kept, every frame is told at once, and the first packet says where it begins.
    fn default() -> Self {
        Self { missing: Missing::Keep, interrupt_frames: 1, first_frame: None }
    }
}

/// What happened to a packet; each has its counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Verdict {
    /// Written to its place.
    Placed,
    /// It was placed before.
    Duplicate,
    /// Its frame is finished.
    Late,
    /// Its frame found no free slot when its first packet came.
    NoSlot,
    /// Of a frame before the first one, or further ahead than is ever believed.
    Foreign,
    /// Far ahead of every frame, while it is not certain that the stream has moved there. It is not kept.
    Ahead,
    /// No tile has its port or module.
    Unknown,
    /// It has another length than packets of its tile.
    Length,
    /// Its header does not have a value that is required.
    Required,
    /// Its tile has no packet of this number.
    PacketNumber,
}

impl Verdict {
    /// All, in the order of [`Account::packets`].
    pub const ALL: [Self; 10] = [
        Self::Placed,
        Self::Duplicate,
        Self::Late,
        Self::NoSlot,
        Self::Foreign,
        Self::Ahead,
        Self::Unknown,
        Self::Length,
        Self::Required,
        Self::PacketNumber,
    ];

    /// Name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Placed => "placed",
            Self::Duplicate => "duplicate",
            Self::Late => "late",
            Self::NoSlot => "no_slot",
            Self::Foreign => "foreign",
            Self::Ahead => "ahead",
            Self::Unknown => "unknown",
            Self::Length => "malformed_length",
            Self::Required => "malformed_required",
            Self::PacketNumber => "malformed_packet_number",
        }
    }
}

impl From<Refusal> for Verdict {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Unknown => Self::Unknown,
            Refusal::Length => Self::Length,
            Refusal::Required => Self::Required,
            Refusal::PacketNumber => Self::PacketNumber,
        }
    }
}

/// The account of a bridge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Packets by verdict, in the order of [`Verdict::ALL`]; they add up to all packets.
    pub packets: [u64; Verdict::ALL.len()],
    /// Frames that all packets of came.
    pub complete: u64,
    /// Frames that were kept with packets missing.
    pub partial: u64,
    /// Frames that were thrown away because packets were missing.
    pub discarded: u64,
    /// Frames that found no free slot.
    pub refused: u64,
    /// Frames between others of which no packet came.
    pub lost: u64,
}

impl Account {
    /// Packets with this verdict.
    pub fn of(&self, verdict: Verdict) -> u64 {
        self.packets[verdict as usize]
    }

    /// All packets.
    pub fn received(&self) -> u64 {
        self.packets.iter().sum()
    }

    /// All frames that are finished.
    pub fn frames(&self) -> u64 {
        self.complete + self.partial + self.discarded + self.refused + self.lost
    }
}

/// Kept frames wait to be taken: what the interrupt of the bridge says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupt {
    /// Frames that were finished since the last interrupt.
    pub frames: u32,
}

/// What came of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// What happened to it.
    pub verdict: Verdict,
    /// Frames wait to be taken.
    pub interrupt: Option<Interrupt>,
}

/// Whether a kept frame is whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameState {
    /// All packets came.
    Complete,
    /// So many packets are missing.
    Partial {
        /// At least 1.
        missing_packets: u32,
    },
}

/// A finished frame in its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed {
    /// Position of the frame from the first one on.
    pub image: u64,
    /// Number of the frame, continued where the key wraps.
    pub frame: u64,
    /// Its slot.
    pub slot: u32,
    /// Whether it is whole.
    pub state: FrameState,
}

/// The memory of the slots, long enough for a program.
#[derive(Debug)]
pub struct Store<'a> {
    bytes: &'a mut [u8],
}

impl<'a> Store<'a> {
    /// Takes `bytes` as the store of `table`.
    ///
    /// # Errors
    /// They are too few.
    pub fn new(table: &AddressTable, bytes: &'a mut [u8]) -> Result<Self, String> {
        let needed = table.store_bytes();
        if (bytes.len() as u64) < needed {
            return Err(format!(
                "the store has {} bytes, and the program {} writes to {needed}; give it {needed}",
                bytes.len(),
                table.name()
            ));
        }
        Ok(Self { bytes })
    }

    /// The bytes of a slot; none if it lies outside, which [`Self::new`] has excluded.
    #[inline]
    pub fn slot(&mut self, table: &AddressTable, slot: u32) -> &mut [u8] {
        let start = table.slot_start(slot) as usize;
        self.bytes.get_mut(start..start + table.slot_bytes() as usize).unwrap_or_default()
    }
}

/// The frame that a slot has.
#[derive(Clone, Copy, Debug, Default)]
struct Filling {
    /// Image + 1; 0 = none yet.
    tag: u64,
    arrived: u32,
    /// Image + 1 that was refused.
    refused: u64,
}

/// The rules of a bridge. It allocates when it is made and never after; memory: 64 bytes for each tile and slot, 80 for
/// each tile and frame of the window, and 48 for each of the packets that are held back as numbers.
#[derive(Debug)]
pub struct Bridge {
    table: AddressTable,
    options: Options,
    first: Option<u64>,
    assemblers: Vec<TileAssembler>,
    far: Vec<FarAhead>,
    slots: Vec<Filling>,
    /// By slot, then tile.
    masks: Vec<PacketBitmap>,
    /// First image that is not finished.
    low: u64,
    newest_end: u64,
    /// Kept frames that are not released, oldest first, of which the first `taken` were taken.
    held: VecDeque<Closed>,
    taken: usize,
    /// Kept frames since the last interrupt.
    pending: u32,
    account: Account,
}

impl Bridge {
    /// A bridge before its first packet.
    pub fn new(table: AddressTable, options: Options) -> Self {
        let window = u64::from(table.window_frames());
        let spec = |tile: usize| AssemblerSpec {
            packets: table.packets(tile),
            window_images: window,
            jump_images_max: u64::from(table.slots()),
            gap_images_max: JUMP_IMAGES_LIMIT,
            behind_images_max: window,
            deadline_ns: u64::MAX,
            images: IMAGES_MAX,
        };
        let tiles = table.tiles();
        let slots = table.slots() as usize;
        Self {
            assemblers: (0..tiles).map(|tile| TileAssembler::new(spec(tile))).collect(),
            far: (0..tiles).map(|tile| FarAhead::new(table.packets(tile).into(), window)).collect(),
            slots: vec![Filling::default(); slots],
            masks: vec![PacketBitmap::default(); slots * tiles],
            low: 0,
            newest_end: 0,
            held: VecDeque::with_capacity(slots),
            taken: 0,
            pending: 0,
            account: Account::default(),
            first: options.first_frame,
            options: Options { interrupt_frames: options.interrupt_frames.max(1), ..options },
            table,
        }
    }

    /// The program.
    pub fn table(&self) -> &AddressTable {
        &self.table
    }

    /// What has happened so far.
    pub fn account(&self) -> &Account {
        &self.account
    }

    /// Fills all slots with the value *masked* of the program's pixel type (0xFF without one): what gaps hold, which no
    /// packet writes.
    pub fn prepare(&self, store: &mut Store<'_>) {
        let value = self.table.pixel().map_or(vec![0xFF], |pixel| pixel.le_bytes(pixel.special().masked));
        for slot in 0..self.table.slots() {
            let bytes = store.slot(&self.table, slot);
            bytes.iter_mut().zip(value.iter().cycle()).for_each(|(to, from)| *to = *from);
        }
    }

    /// Takes a datagram that came to UDP port `port`.
    #[inline]
    pub fn on_packet(&mut self, port: u16, datagram: &[u8], store: &mut Store<'_>) -> Outcome {
        let verdict = match self.table.address(port, datagram) {
            Ok(address) => self.judge(&address, datagram, store),
            Err(refusal) => refusal.into(),
        };
        self.account.packets[verdict as usize] += 1;
        Outcome { verdict, interrupt: self.interrupt() }
    }

    /// Takes a datagram whose address a [`LookUp`](super::LookUp) in the kernel has found. Only the number of its frame
    /// is read here. `None` if the datagram does not suit the metadata, which is then not counted:
    /// [`Self::on_packet`] takes it.
    #[inline]
    pub fn on_metadata(&mut self, metadata: &Metadata, datagram: &[u8], store: &mut Store<'_>) -> Option<Outcome> {
        let address = metadata.address(&self.table, datagram)?;
        let verdict = self.judge(&address, datagram, store);
        self.account.packets[verdict as usize] += 1;
        Some(Outcome { verdict, interrupt: self.interrupt() })
    }

    fn judge(&mut self, address: &Address, datagram: &[u8], store: &mut Store<'_>) -> Verdict {
        let tile = usize::from(address.tile);
        let Some(image) = self.image_of(tile, address.frame).filter(|image| *image < IMAGES_MAX) else { return Verdict::Foreign };
        let assembler = &self.assemblers[tile];
        if assembler.is_beyond(image, self.newest_end) {
            return Verdict::Foreign;
        }
        if assembler.is_ahead(image, self.newest_end) && !self.has_moved(tile, image, store) {
            return Verdict::Ahead;
        }
        if image >= self.newest_end {
            self.newest_end = image + 1;
            // Frames that leave the window now may make room for this one.
            self.close_due(store);
        }
        let (slot, room_end) = (self.slot_of(image), self.oldest() + u64::from(self.table.slots()));
        let filling = &mut self.slots[slot as usize];
        let claim = |image: u64| {
            if filling.tag == image + 1 {
                return true;
            }
            // An image is refused whole: also where a slot became free before the first packet of another tile came.
            if filling.refused == image + 1 || image >= room_end {
                filling.refused = image + 1;
                return false;
            }
            (filling.tag, filling.arrived) = (image + 1, 0);
            true
        };
        match self.assemblers[tile].on_packet(Some(image), address.packet, self.newest_end, claim) {
            TileVerdict::Place { .. } => {
                self.table.copy(address, datagram, store.slot(&self.table, slot));
                self.slots[slot as usize].arrived += 1;
                self.stays(tile);
                self.close_due(store);
                Verdict::Placed
            }
            TileVerdict::Duplicate => Verdict::Duplicate,
            TileVerdict::Late => Verdict::Late,
            TileVerdict::NoSlot => Verdict::NoSlot,
            TileVerdict::Foreign => Verdict::Foreign,
            TileVerdict::Ahead => Verdict::Ahead,
        }
    }

    /// Position of a frame, from its number of so many bits; `None` if it lies before the first.
    fn image_of(&mut self, tile: usize, frame: u64) -> Option<u64> {
        let first = *self.first.get_or_insert(frame);
        let newest = self.newest_end.saturating_sub(1);
        let unused = 64 - self.table.frame_bits(tile);
        // The nearest frame to the newest that has these bits.
        let ahead = (frame.wrapping_sub(first.wrapping_add(newest)) << unused).cast_signed() >> unused;
        newest.checked_add_signed(ahead)
    }

    /// Number of an image, continued where the key wraps.
    fn frame_of(&self, image: u64) -> u64 {
        self.first.unwrap_or(0).wrapping_add(image)
    }

    fn slot_of(&self, image: u64) -> u32 {
        self.table.slot_of(self.frame_of(image))
    }

    /// The oldest image that keeps its slot.
    fn oldest(&self) -> u64 {
        self.held.front().map_or(self.low, |closed| closed.image)
    }

    /// Notes a packet far ahead; true if the stream has moved there.
    fn has_moved(&mut self, tile: usize, image: u64, store: &mut Store<'_>) -> bool {
        let far = &mut self.far[tile];
        if far.is_full() {
            far.drop_oldest();
        }
        // The caller's port has one sender as far as the bridge knows; time does not decide here.
        far.push(FarAheadPacket { image, sender: Sender::NONE }, 0);
        let Some(place) = far.place(0, false) else { return false };
        far.clear();
        for assembler in &mut self.assemblers {
            assembler.jump(place.first);
        }
        self.newest_end = self.newest_end.max(place.first);
        self.close_due(store);
        place.has(&FarAheadPacket { image, sender: Sender::NONE })
    }

    fn stays(&mut self, tile: usize) {
        let far = &mut self.far[tile];
        if !far.held().is_empty() && far.stays(Sender::NONE) {
            far.clear();
        }
    }

    /// Finishes, in order, the frames that are complete or have left the window.
    fn close_due(&mut self, store: &mut Store<'_>) {
        let before = self.low;
        let floor = self.newest_end.saturating_sub(self.table.window_frames().into());
        let slots = u64::from(self.table.slots());
        while self.low < self.newest_end {
            // Behind a jump there are no more frames than there are slots.
            if self.low == before + slots && self.low < floor {
                self.account.lost += floor - self.low;
                self.low = floor;
                continue;
            }
            if self.low >= floor && !self.is_complete(self.low) {
                break;
            }
            self.close(self.low, store);
            self.low += 1;
        }
        if self.low > before {
            for assembler in &mut self.assemblers {
                assembler.seal_before(self.low);
            }
        }
    }

    fn packets_of_frame(&self) -> u32 {
        self.table.coverage().packets as u32
    }

    fn is_complete(&self, image: u64) -> bool {
        let filling = &self.slots[self.slot_of(image) as usize];
        filling.tag == image + 1 && filling.arrived == self.packets_of_frame()
    }

    fn close(&mut self, image: u64, store: &mut Store<'_>) {
        let slot = self.slot_of(image);
        let filling = self.slots[slot as usize];
        if filling.tag != image + 1 {
            let count = if filling.refused == image + 1 { &mut self.account.refused } else { &mut self.account.lost };
            *count += 1;
            return;
        }
        let missing_packets = self.packets_of_frame() - filling.arrived;
        if missing_packets > 0 && self.options.missing == Missing::Discard {
            self.account.discarded += 1;
            return;
        }
        let tiles = self.table.tiles();
        for (tile, mask) in self.masks[slot as usize * tiles..][..tiles].iter_mut().enumerate() {
            *mask = self.assemblers[tile].bitmap(image).map_or(PacketBitmap::default(), |(mask, _)| *mask);
        }
        let state = if missing_packets == 0 {
            self.account.complete += 1;
            FrameState::Complete
        } else {
            self.account.partial += 1;
            if self.options.missing == Missing::Pad {
                self.pad(slot, store);
            }
            FrameState::Partial { missing_packets }
        };
        self.held.push_back(Closed { image, frame: self.frame_of(image), slot, state });
        self.pending += 1;
    }

    /// The places of missing packets get the value *missing*.
    fn pad(&self, slot: u32, store: &mut Store<'_>) {
        let mut value = [0xFF; 8];
        let mut bytes = 1;
        if let Some(pixel) = self.table.pixel() {
            bytes = pixel.bytes();
            missing_value(pixel, &mut value);
        }
        let tiles = self.table.tiles();
        for (tile, mask) in self.masks[slot as usize * tiles..][..tiles].iter().enumerate() {
            for packet in (0..self.table.packets(tile)).filter(|packet| !mask.has(*packet)) {
                self.table.fill(tile, packet, &value[..bytes], store.slot(&self.table, slot));
            }
        }
    }

    fn interrupt(&mut self) -> Option<Interrupt> {
        if self.pending < self.options.interrupt_frames {
            return None;
        }
        Some(Interrupt { frames: std::mem::take(&mut self.pending) })
    }

    /// Finishes all frames that have begun. There is an interrupt for those that none was given for.
    pub fn end(&mut self, store: &mut Store<'_>) -> Option<Interrupt> {
        for image in self.low..self.newest_end.min(self.low + u64::from(self.table.slots())) {
            self.close(image, store);
        }
        self.low = self.newest_end;
        for assembler in &mut self.assemblers {
            assembler.seal_before(self.low);
        }
        let frames = std::mem::take(&mut self.pending);
        (frames > 0).then_some(Interrupt { frames })
    }

    /// The next finished frame, in order. It keeps its slot until it is released.
    pub fn take(&mut self) -> Option<Closed> {
        let next = self.held.get(self.taken).copied()?;
        self.taken += 1;
        Some(next)
    }

    /// Gives back the slots of frames that were taken, up to and including `image`.
    pub fn release(&mut self, image: u64) {
        while self.taken > 0 && self.held.front().is_some_and(|closed| closed.image <= image) {
            self.held.pop_front();
            self.taken -= 1;
        }
    }

    /// Which packets of a tile of a finished frame came; nothing if there is no such tile. Right until it is released.
    pub fn mask(&self, closed: &Closed, tile: usize) -> PacketBitmap {
        let tiles = self.table.tiles();
        let at = closed.slot as usize * tiles + tile;
        self.masks.get(at).filter(|_| tile < tiles).copied().unwrap_or_default()
    }

    /// The same as the slsReceiver writes it: 64 bytes, bit p mod 8 of byte p div 8 for the packet that has number p in
    /// its header. (Numbers above 511 have no bit there; packets of such a tile are counted from 0.)
    pub fn mask_bytes(&self, closed: &Closed, tile: usize) -> [u8; MASK_BYTES] {
        let (mask, packets) = (self.mask(closed, tile), self.table.packets(tile));
        match self.table.first_packet(tile) {
            first if first + u64::from(packets) <= 8 * MASK_BYTES as u64 => {
                mask_bytes(&mask.renumbered(0, packets, first as u16))
            }
            _ => mask_bytes(&mask),
        }
    }
}

/// The value *missing* of a type, without memory of its own.
fn missing_value(pixel: konkordia_core::pixel::PixelType, to: &mut [u8; 8]) {
    use konkordia_core::pixel::Number;
    *to = match pixel.missing() {
        Number::Signed(value) => value.to_le_bytes(),
        Number::Unsigned(value) => value.to_le_bytes(),
        Number::Float(value) if pixel.bytes() == 8 => value.to_le_bytes(),
        Number::Float(value) => {
            let mut bytes = [0; 8];
            bytes[..4].copy_from_slice(&(value as f32).to_le_bytes());
            bytes
        }
    };
}

#[cfg(test)]
#[path = "frames_tests.rs"]
mod tests;
