//! One image in a slot: a head, what is known of the image, and its pixels as they are packed.
//!
//! | bytes | field | |
//! |---|---|---|
//! | 0 | magic | `KIMG` |
//! | 4 | record bytes | u32, little endian, as all numbers: what is known of the image, from byte 32 on |
//! | 8 | pixel bytes | u64: the pixels, from the next multiple of 64 behind the record on |
//! | 16 | number | u64: position of the image in the run |
//! | 24 | checksum | CRC-32 (as zlib's) over number, record and pixels |
//! | 28 | zero | four bytes |
//!
//! The record has what a file of a run says of an image: its state, what the packets of each tile said, results. Times
//! by the clock of the sender's host and snapshots of pedestals are left out.

use super::violation::Violation;
use bytes::Bytes;
use konkordia_core::array::{Array, Element, Packing, Shape};
use konkordia_core::assembler::{BITMAP_WORDS, PacketBitmap};
use konkordia_core::frame_header::{ColumnType, FIELDS_MAX, FrameHeader};
use konkordia_core::image::{Channel, CommittedImage, Packets, TileRecord};
use konkordia_core::ledger::ImageStatus;
use konkordia_core::results::{ImageResults, RESULT_NUMBERS_MAX, ResultKind};

/// Bytes of the head.
pub const HEAD_BYTES: usize = 32;
/// Where pixels begin is a multiple of this.
const ALIGN: usize = 64;
const MAGIC: &[u8; 4] = b"KIMG";
/// Tiles that an image may have.
const TILES_MAX: usize = 4096;
const STATES: [ImageStatus; 5] =
    [ImageStatus::Lost, ImageStatus::Complete, ImageStatus::Partial, ImageStatus::Discarded, ImageStatus::Vetoed];

/// Bytes of a slot before the pixels, at most, for images of `tiles` tiles with `results` numbers.
pub fn bytes_before_pixels(tiles: usize, results: usize) -> usize {
    let tile = 8 * (3 + FIELDS_MAX) + 2 + 8 * BITMAP_WORDS;
    (HEAD_BYTES + 64 + 8 * (Shape::DIMENSIONS_MAX + 1) + tiles * tile + 8 * results).next_multiple_of(ALIGN)
}

/// The head and the record of an image, and where in the slot its pixels belong.
pub fn encode(image: &CommittedImage) -> (Vec<u8>, usize) {
    let mut record = Record(vec![0; HEAD_BYTES]);
    record.image(image);
    let mut out = record.0;
    let (pixels, at) = (pixels_of(image), out.len().next_multiple_of(ALIGN));
    let record_bytes = u32::try_from(out.len() - HEAD_BYTES).expect("a record has less than 4 GiB");
    let sum = checksum(image.number, &out[HEAD_BYTES..], pixels);
    out[..4].copy_from_slice(MAGIC);
    out[4..8].copy_from_slice(&record_bytes.to_le_bytes());
    out[8..16].copy_from_slice(&(pixels.len() as u64).to_le_bytes());
    out[16..24].copy_from_slice(&image.number.to_le_bytes());
    out[24..28].copy_from_slice(&sum.to_le_bytes());
    (out, at)
}

/// The pixels that go over the link: none of an image that the file shows as missing.
pub fn pixels_of(image: &CommittedImage) -> &[u8] {
    if image.status.has_pixels() { image.chunk() } else { &[] }
}

fn checksum(number: u64, record: &[u8], pixels: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&number.to_le_bytes());
    hasher.update(record);
    hasher.update(pixels);
    hasher.finalize()
}

/// What the head of a slot says of its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    record_bytes: usize,
    pixel_bytes: usize,
    /// Position of the image in the run.
    pub number: u64,
    sum: u32,
}

impl Head {
    /// Reads the head of a slot of `slot_bytes`.
    ///
    /// # Errors
    /// It is no head, or what it describes is longer than the slot.
    pub fn new_checked(bytes: &[u8; HEAD_BYTES], slot_bytes: usize) -> Result<Self, Violation> {
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|k| bytes[at + k]));
        let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|k| bytes[at + k]));
        if &bytes[..4] != MAGIC || word(28) != 0 {
            return Err(Violation("a slot without the head of an image".into()));
        }
        let (record_bytes, pixel_bytes) = (word(4) as usize, usize::try_from(number(8)).unwrap_or(usize::MAX));
        let head = Self { record_bytes, pixel_bytes, number: number(16), sum: word(24) };
        let end = head.pixels_at().checked_add(pixel_bytes).filter(|end| *end <= slot_bytes);
        end.map(|_| head).ok_or_else(|| Violation(format!("an image that is longer than its slot of {slot_bytes} bytes")))
    }

    fn pixels_at(&self) -> usize {
        (HEAD_BYTES + self.record_bytes).next_multiple_of(ALIGN)
    }

    /// Bytes of the slot that the image takes.
    pub fn end(&self) -> usize {
        self.pixels_at() + self.pixel_bytes
    }

    /// The image in these bytes of the slot, [`Self::end`] of them. Its pixels share the memory of `slot`.
    ///
    /// # Errors
    /// The bytes are not those that were sent, or no image.
    pub fn image(&self, slot: &Bytes) -> Result<CommittedImage, Violation> {
        let record = slot.get(HEAD_BYTES..HEAD_BYTES + self.record_bytes);
        let (Some(record), true) = (record, slot.len() == self.end()) else { return Err(wrong("its length")) };
        let pixels = slot.slice(self.pixels_at()..);
        if checksum(self.number, record, &pixels) != self.sum {
            return Err(wrong(&format!("image {} does not have its checksum", self.number)));
        }
        let mut fields = Fields(record);
        let image = fields.image(self.number, pixels)?;
        if fields.0.is_empty() { Ok(image) } else { Err(wrong("bytes behind it")) }
    }
}

fn wrong(what: &str) -> Violation {
    Violation(format!("an image in a slot is not right: {what}"))
}

/// A record that is being written.
struct Record(Vec<u8>);

impl Record {
    fn byte(&mut self, value: u8) {
        self.0.push(value);
    }

    fn number(&mut self, value: u64) {
        self.0.extend(value.to_le_bytes());
    }

    fn image(&mut self, image: &CommittedImage) {
        let array = image.channels.first().map(|channel| &channel.array).filter(|_| image.status.has_pixels());
        let is_there = [image.store, image.packets.is_some(), array.is_some(), image.results.is_there()];
        self.byte(image.status as u8);
        self.byte(is_there.iter().enumerate().map(|(bit, is)| u8::from(*is) << bit).sum());
        self.number(image.frame);
        self.number(image.missing_parts);
        if let Some(array) = array {
            self.byte(index(&Element::ALL, &array.element));
            self.byte(index(Packing::ALL, &array.packing));
            self.byte(array.shape.dimensions().len() as u8);
            array.shape.dimensions().iter().for_each(|size| self.number(*size));
        }
        if let Some(packets) = &image.packets {
            self.packets(packets);
        }
        let bits = image.results.bits();
        self.number(bits.len() as u64);
        bits.iter().for_each(|bits| self.number(*bits));
    }

    fn packets(&mut self, packets: &Packets) {
        self.number(packets.first_frame);
        self.number(u64::from(packets.frames) << 32 | u64::from(packets.frames_complete));
        self.0.extend(packets.packets_per_tile.to_le_bytes());
        self.byte(packets.detector_type);
        self.byte(packets.header_version);
        self.number(packets.tiles.len() as u64);
        let words = words(packets.packets_per_tile);
        for tile in &packets.tiles {
            self.number(tile.header.frame_number);
            self.number(tile.header.timestamp_100ns);
            tile.header.fields.iter().for_each(|field| self.number(*field));
            self.0.extend(tile.packets.to_le_bytes());
            tile.bitmap.0[..words].iter().for_each(|word| self.number(*word));
        }
    }
}

/// Words of the bitmap of a tile of so many packets.
fn words(packets_per_tile: u16) -> usize {
    usize::from(packets_per_tile).div_ceil(64).min(BITMAP_WORDS)
}

fn index<T: PartialEq>(all: &[T], one: &T) -> u8 {
    all.iter().position(|other| other == one).expect("the list has all of them") as u8
}

/// What is left of a record.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], Violation> {
        let (own, rest) = self.0.split_first_chunk::<N>().ok_or_else(|| wrong("it is too short"))?;
        self.0 = rest;
        Ok(*own)
    }

    fn byte(&mut self) -> Result<u8, Violation> {
        self.bytes::<1>().map(|[byte]| byte)
    }

    fn number(&mut self) -> Result<u64, Violation> {
        self.bytes().map(u64::from_le_bytes)
    }

    fn count(&mut self, most: usize, what: &str) -> Result<usize, Violation> {
        usize::try_from(self.number()?).ok().filter(|count| *count <= most).ok_or_else(|| wrong(what))
    }

    fn one_of<T: Copy>(&mut self, all: &[T], what: &str) -> Result<T, Violation> {
        all.get(usize::from(self.byte()?)).copied().ok_or_else(|| wrong(what))
    }

    fn image(&mut self, number: u64, pixels: Bytes) -> Result<CommittedImage, Violation> {
        let status = self.one_of(&STATES, "its state")?;
        let flags = self.byte()?;
        let has = |bit: u8| flags >> bit & 1 == 1;
        let mut image = CommittedImage { status, store: has(0), frame: self.number()?, ..CommittedImage::lost(number) };
        image.missing_parts = self.number()?;
        if has(2) {
            let (element, packing) = (self.one_of(&Element::ALL, "its type")?, self.one_of(Packing::ALL, "its packing")?);
            let dimensions = (0..self.byte()?).map(|_| self.number()).collect::<Result<Vec<_>, _>>()?;
            let shape = Some(&dimensions).filter(|sizes| sizes.len() <= Shape::DIMENSIONS_MAX);
            let shape = shape.and_then(|sizes| Shape::new(sizes)).ok_or_else(|| wrong("its shape"))?;
            image.channels = vec![Channel { name: "".into(), array: Array { shape, element, packing, pieces: vec![pixels] } }];
        } else if !pixels.is_empty() {
            return Err(wrong("pixels without a shape"));
        }
        if has(1) {
            image.packets = Some(self.packets()?);
        }
        image.results = self.results(has(3))?;
        Ok(image)
    }

    fn packets(&mut self) -> Result<Packets, Violation> {
        let (first_frame, frames) = (self.number()?, self.number()?);
        let packets_per_tile = u16::from_le_bytes(self.bytes()?);
        let (detector_type, header_version) = (self.byte()?, self.byte()?);
        let tiles = self.count(TILES_MAX, "its number of tiles")?;
        let tiles = (0..tiles).map(|_| self.tile(words(packets_per_tile))).collect::<Result<_, _>>()?;
        Ok(Packets {
            first_frame,
            frames: (frames >> 32) as u32,
            frames_complete: frames as u32,
            tiles,
            packets_per_tile,
            pedestals: None,
            detector_type,
            header_version,
        })
    }

    fn tile(&mut self, words: usize) -> Result<TileRecord, Violation> {
        let mut header = FrameHeader { frame_number: self.number()?, timestamp_100ns: self.number()?, ..FrameHeader::default() };
        for field in &mut header.fields {
            *field = self.number()?;
        }
        let packets = u16::from_le_bytes(self.bytes()?);
        let mut bitmap = PacketBitmap::default();
        for word in &mut bitmap.0[..words] {
            *word = self.number()?;
        }
        Ok(TileRecord { header, bitmap, packets, received_ns: 0 })
    }

    /// The numbers; what each means is in the start of the run.
    fn results(&mut self, is_there: bool) -> Result<ImageResults, Violation> {
        let length = self.count(RESULT_NUMBERS_MAX, "its number of results")?;
        let kind = ResultKind { name: "", number: ColumnType::U64, length, unit: "", meaning: "", counted_by: None };
        let mut results = ImageResults::new([kind].into());
        let mut bits = Vec::with_capacity(length);
        for _ in 0..length {
            bits.push(self.number()?);
        }
        if is_there {
            results.fill().copy_from_slice(&bits);
        }
        Ok(results)
    }
}
