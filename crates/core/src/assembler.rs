//! Sorts the packets of one stream into tiles and decides what happens to each packet. It uses neither pixels nor
//! sockets nor a clock.
//!
//! Images are numbered from 0 inside the run. Tiles are sealed strictly in image order: `low` is the first image whose
//! tile is still open. A tile is sealed when it is complete, or when its own stream is `window_images` ahead. After the
//! stream's socket was seen empty, two more rules apply, because packets that wait in the socket are not missing. A
//! tile is then sealed at its deadline, which counts from the moment the image became known through any stream. It is
//! also sealed when the other streams are `behind_images_max` ahead, so that a stream that sends nothing does not fill
//! the ring and stop the others.

use crate::{IMAGES_MAX, MAX_PACKETS_PER_TILE};

/// Words of the arrival bitmap.
pub const BITMAP_WORDS: usize = MAX_PACKETS_PER_TILE / 64;

/// Which packets of a tile arrived: bit `p % 64` of word `p / 64`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketBitmap(pub [u64; BITMAP_WORDS]);

impl PacketBitmap {
    /// True if packet `packet` arrived.
    #[inline]
    pub fn has(&self, packet: u16) -> bool {
        self.0[packet as usize / 64] >> (packet % 64) & 1 == 1
    }

    /// Marks packet `packet`; returns false if it was marked before.
    #[inline]
    pub fn set(&mut self, packet: u16) -> bool {
        let (word, bit) = (&mut self.0[packet as usize / 64], 1u64 << (packet % 64));
        let new = *word & bit == 0;
        *word |= bit;
        new
    }

    /// Number of packets that arrived.
    pub fn count(&self) -> u32 {
        self.0.iter().map(|w| w.count_ones()).sum()
    }

    /// The `packets` packets from `from` on, numbered from `to` on; the others are left out.
    ///
    /// # Panics
    /// If a number is not below [`MAX_PACKETS_PER_TILE`].
    pub fn renumbered(&self, from: u16, packets: u16, to: u16) -> Self {
        let mut renumbered = Self::default();
        for packet in (0..packets).filter(|packet| self.has(from + packet)) {
            renumbered.set(to + packet);
        }
        renumbered
    }
}

/// What happens to a packet. These are outcomes, not errors; each has its counter in the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// First copy of a packet of an open tile: copy its payload to the tile. `opens` is true for the first packet of
    /// the tile.
    Place {
        /// Image inside the run.
        image: u64,
        /// True for the tile's first packet.
        opens: bool,
    },
    /// This packet was placed before.
    Duplicate,
    /// Its tile is already sealed.
    Late,
    /// The image was refused when its first packet came, because earlier frames still held all slots of the ring. An
    /// image is refused whole, so that a run that is too fast loses images and not a part of every image.
    NoSlot,
    /// Not of this run: frame number before the first or after the last image, or more than
    /// [`AssemblerSpec::gap_images_max`] ahead.
    Foreign,
    /// The packet is far ahead of every known image. The caller holds it back until it is certain
    /// ([`crate::far_ahead`]) whether the stream has moved there, and then calls [`TileAssembler::jump`] if it has. The
    /// packet gets its verdict afterwards.
    Ahead,
}

/// The bounds of an assembler, all from the plan.
#[derive(Clone, Copy, Debug)]
pub struct AssemblerSpec {
    /// Packets of a complete tile.
    pub packets: u16,
    /// Images that a stream may be ahead of its oldest open tile. At least 1, at most the slots of the ring.
    pub window_images: u64,
    /// A packet this many images ahead of every known image is a jump. At least 1.
    pub jump_images_max: u64,
    /// A packet further ahead of every known image than this is never believed ([`crate::plan::Plan::gap_images_max`]).
    pub gap_images_max: u64,
    /// Images that a stream whose socket is empty may be behind the newest image of any stream. At least 1, below the
    /// slots of the ring.
    pub behind_images_max: u64,
    /// Time after which an image that is known must be sealed.
    pub deadline_ns: u64,
    /// Images of the run; [`IMAGES_MAX`] or more is an open end.
    pub images: u64,
}

/// A frame number further ahead of the newest image than this is never believed: no network failure lasts that long,
/// and every image that is passed over must be committed.
pub const JUMP_IMAGES_LIMIT: u64 = 1 << 20;

#[derive(Clone, Copy, Debug, Default)]
struct OpenTile {
    /// Image number + 1; 0 = never used.
    tag: u64,
    arrived: u16,
    refused: bool,
    bitmap: PacketBitmap,
}

/// The assembler of one stream. Memory: `window_images + HISTORY` tiles of 80 bytes, allocated once.
#[derive(Debug)]
pub struct TileAssembler {
    spec: AssemblerSpec,
    low: u64,
    /// Own newest image + 1.
    own_end: u64,
    tiles: Vec<OpenTile>,
    /// (first image, time it became known) marks, oldest first; at most `KNOWN_MARKS`.
    known: std::collections::VecDeque<(u64, u64)>,
    /// The image to which the stream has jumped.
    jumped: u64,
}

/// Sealed tiles that are remembered, to tell duplicates from late packets.
const HISTORY: u64 = 8;
/// Most marks within a deadline. A mark notes when images became known. An image that becomes known soon after a mark
/// shares it, so its deadline is up to 1/32 shorter.
const MARKS_PER_DEADLINE: u64 = 32;
/// Room for the marks. A mark outlives its deadline only while the socket is not empty. If the room is full, the images
/// of the oldest mark get the time of the next one.
const KNOWN_MARKS: usize = MARKS_PER_DEADLINE as usize * 2;

impl TileAssembler {
    /// An assembler at image 0. Allocates here and never after.
    pub fn new(mut spec: AssemblerSpec) -> Self {
        assert!(spec.packets > 0 && usize::from(spec.packets) <= MAX_PACKETS_PER_TILE);
        assert!(spec.window_images > 0 && spec.window_images < 1 << 20 && spec.behind_images_max > 0);
        spec.images = spec.images.min(IMAGES_MAX);
        let tiles = vec![OpenTile::default(); (spec.window_images + HISTORY) as usize];
        let known = std::collections::VecDeque::with_capacity(KNOWN_MARKS);
        Self { spec, low: 0, own_end: 0, tiles, known, jumped: 0 }
    }

    /// First image whose tile is not sealed: no image below will get more packets.
    pub fn low(&self) -> u64 {
        self.low
    }

    /// One past the newest image of which this stream saw a packet.
    pub fn own_end(&self) -> u64 {
        self.own_end
    }

    /// Images that this assembler considers part of the run ([`IMAGES_MAX`] = open end).
    pub fn images(&self) -> u64 {
        self.spec.images
    }

    fn index(&self, image: u64) -> usize {
        (image % self.tiles.len() as u64) as usize
    }

    /// Decides about one packet. `image` is the frame number minus the first frame number of the run (`None` if below
    /// it), `packet` its index, already checked by the wire view; `newest_end` is one past the newest image known
    /// through any stream; `claim` asks the ring for the slot of an image, once per tile.
    pub fn on_packet(&mut self, image: Option<u64>, packet: u16, newest_end: u64, claim: impl FnOnce(u64) -> bool) -> Verdict {
        assert!(packet < self.spec.packets, "wire views only hand out packets of the tile");
        let Some(image) = image.filter(|i| *i < self.spec.images) else { return Verdict::Foreign };
        if image < self.low {
            return self.judge_sealed(image, packet);
        }
        if self.is_beyond(image, newest_end) {
            return Verdict::Foreign;
        }
        if self.is_ahead(image, newest_end) {
            return Verdict::Ahead;
        }
        if image >= self.own_end {
            self.own_end = image + 1;
            // Tiles that are more than a window behind are sealed.
            self.low = self.low.max(self.own_end.saturating_sub(self.spec.window_images));
        }
        let index = self.index(image);
        let tile = &mut self.tiles[index];
        let opens = tile.tag != image + 1;
        if opens {
            *tile = OpenTile { tag: image + 1, refused: !claim(image), ..OpenTile::default() };
        }
        if tile.refused {
            return Verdict::NoSlot;
        }
        if !tile.bitmap.set(packet) {
            return Verdict::Duplicate;
        }
        tile.arrived += 1;
        Verdict::Place { image, opens }
    }

    fn judge_sealed(&self, image: u64, packet: u16) -> Verdict {
        let tile = &self.tiles[self.index(image)];
        match tile.tag == image + 1 {
            true if tile.refused => Verdict::NoSlot,
            true if tile.bitmap.has(packet) => Verdict::Duplicate,
            _ => Verdict::Late,
        }
    }

    /// Number of images by which `image` is ahead of the newest known one.
    fn ahead(&self, image: u64, newest_end: u64) -> u64 {
        image.saturating_sub(newest_end.max(self.low).max(self.jumped))
    }

    /// True if a packet of this image is a jump, as in [`Verdict::Ahead`].
    pub fn is_ahead(&self, image: u64, newest_end: u64) -> bool {
        self.ahead(image, newest_end) >= self.spec.jump_images_max
    }

    /// True if this image is so far ahead that none of its packets is believed.
    pub fn is_beyond(&self, image: u64, newest_end: u64) -> bool {
        self.ahead(image, newest_end) > self.spec.gap_images_max
    }

    /// Moves the stream to `image`: from there on its packets are placed, and tiles more than a window behind are
    /// sealed. Returns the new `low`.
    pub fn jump(&mut self, image: u64) -> u64 {
        self.jumped = self.jumped.max(image);
        self.seal_before((image + 1).saturating_sub(self.spec.window_images))
    }

    /// Seals all tiles below `image` and returns the new `low`; for streams whose frames come in order.
    pub fn seal_before(&mut self, image: u64) -> u64 {
        self.low = self.low.max(image.min(self.spec.images));
        self.own_end = self.own_end.max(self.low);
        self.low
    }

    /// Seals the tiles that can be sealed and returns the new `low`. `drained` means that the stream's socket was seen
    /// empty after `now_ns` and `newest_end` (as above) were read, so that every packet of those images that was there
    /// by then has its verdict.
    pub fn tick(&mut self, now_ns: u64, newest_end: u64, drained: bool) -> u64 {
        let newest_end = newest_end.max(self.own_end).min(self.spec.images);
        self.note_known(now_ns, newest_end);
        self.seal_done(newest_end);
        if drained {
            self.seal_overdue(now_ns);
            self.low = self.low.max(newest_end.saturating_sub(self.spec.behind_images_max));
            self.seal_done(newest_end);
        }
        self.low
    }

    /// Ends the run: seals every image below `end`; packets of later images are foreign.
    pub fn finish(&mut self, end: u64) -> u64 {
        self.spec.images = self.spec.images.min(end.max(self.low));
        self.low = self.low.max(self.spec.images);
        self.low
    }

    /// Nothing more will be placed in this tile: it is complete or was refused.
    fn is_done(&self, image: u64) -> bool {
        let tile = &self.tiles[self.index(image)];
        tile.tag == image + 1 && (tile.refused || tile.arrived == self.spec.packets)
    }

    /// Remembers when images up to `newest_end` became known. A mark (end, time) covers the images below `end` and not
    /// below the mark before.
    fn note_known(&mut self, now_ns: u64, newest_end: u64) {
        let covered = self.known.back().map_or(0, |m| m.0);
        if newest_end <= covered.max(self.low) {
            return;
        }
        let grain_ns = self.spec.deadline_ns / MARKS_PER_DEADLINE;
        match self.known.back_mut().filter(|mark| now_ns.saturating_sub(mark.1) < grain_ns) {
            Some(mark) => mark.0 = newest_end,
            None => {
                if self.known.len() == KNOWN_MARKS {
                    self.known.pop_front();
                }
                self.known.push_back((newest_end, now_ns));
            }
        }
    }

    fn seal_overdue(&mut self, now_ns: u64) {
        while let Some(&(end, known_ns)) = self.known.front() {
            if now_ns.saturating_sub(known_ns) < self.spec.deadline_ns {
                break;
            }
            self.low = self.low.max(end);
            self.known.pop_front();
        }
    }

    fn seal_done(&mut self, newest_end: u64) {
        while self.low < newest_end && self.is_done(self.low) {
            self.low += 1;
        }
        while self.known.front().is_some_and(|mark| mark.0 <= self.low) {
            self.known.pop_front();
        }
    }

    /// The arrival bitmap of the tile of `image`, if it has one (also for some sealed images).
    pub fn bitmap(&self, image: u64) -> Option<(&PacketBitmap, u16)> {
        let tile = &self.tiles[self.index(image)];
        (tile.tag == image + 1).then_some((&tile.bitmap, tile.arrived))
    }
}

#[cfg(test)]
#[path = "assembler_tests.rs"]
mod tests;
