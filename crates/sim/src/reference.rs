//! The naive pipeline: what a correct receiver must make of a list of datagrams, by the simplest code that can be read
//! at a glance.
//!
//! It keeps every placed packet in a map and has no window and no deadline, so no packet is ever late and no slot is
//! ever missing. It checks in this order: length, header version, detector type, packet number, frame outside the run
//! (foreign), duplicate, placed.

use crate::packet::{HEADER_BYTES, HEADER_VERSION, Packetiser, StreamLayout, field};
use konkordia_core::pixel::Pixel;
use std::collections::HashMap;

/// Where a tile lies in the output image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TilePlacement {
    /// Output row of the tile's uppermost row.
    pub row: usize,
    /// Output column of the tile's leftmost pixel.
    pub column: usize,
    /// True if the tile's data row 0 is the lowest of its rows in the output image.
    pub flip_rows: bool,
}

/// What the reference must know about a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunLayout {
    /// Shape of the streams.
    pub stream: StreamLayout,
    /// Detector type of the headers.
    pub detector_type: u8,
    /// Frame number of image 0.
    pub first_frame_number: u64,
    /// Images of the run.
    pub images: u64,
    /// One per stream.
    pub placements: Vec<TilePlacement>,
    /// Rows of the output image.
    pub rows: usize,
    /// Columns of the output image.
    pub columns: usize,
}

impl RunLayout {
    /// The run of a packetiser with all tiles one below the other.
    pub fn stacked(packetiser: &Packetiser, images: u64) -> Self {
        let stream = packetiser.layout();
        let placements =
            (0..stream.streams).map(|t| TilePlacement { row: t * stream.rows, column: 0, flip_rows: false }).collect();
        Self {
            stream,
            detector_type: packetiser.detector_type(),
            first_frame_number: packetiser.model().first_frame_number,
            images,
            placements,
            rows: stream.streams * stream.rows,
            columns: stream.columns,
        }
    }

    /// The same run with tiles elsewhere.
    ///
    /// # Panics
    /// When there is not one placement per stream, or a tile reaches beyond the image.
    pub fn placed(mut self, placements: Vec<TilePlacement>, rows: usize, columns: usize) -> Self {
        assert_eq!(placements.len(), self.stream.streams, "one placement per stream");
        let inside = |p: &TilePlacement| p.row + self.stream.rows <= rows && p.column + self.stream.columns <= columns;
        assert!(placements.iter().all(inside), "every tile lies inside the image");
        (self.placements, self.rows, self.columns) = (placements, rows, columns);
        self
    }
}

/// JUNGFRAU constants in stream order: each plane holds the tiles one after the other.
#[derive(Clone, Debug, PartialEq)]
pub struct JungfrauConstants {
    /// Pedestal of G0, G1 and G2 in ADU.
    pub pedestals: [Vec<f32>; 3],
    /// Photons per ADU of G0, G1 and G2; NaN in G0 marks a pixel as masked.
    pub factors: [Vec<f32>; 3],
    /// True if G0 is the high gain, in which the highest ADC value is saturated.
    pub high_gain: bool,
}

impl JungfrauConstants {
    /// From three pedestal planes in ADU and three gain planes in ADU/keV (each set one after the other), in `f32`:
    /// factor = 1 / (gain * energy). A pixel whose G0 pedestal is not above 0 and below 16383, or whose G0 gain is 0 or
    /// no number, is masked. Not of the high gain.
    ///
    /// # Panics
    /// When the planes differ in length or are not three.
    pub fn new(pedestals: &[f32], gains: &[f32], energy_kev: f32) -> Self {
        assert!(pedestals.len() == gains.len() && pedestals.len().is_multiple_of(3), "three planes of each");
        let pixels = pedestals.len() / 3;
        let plane = |values: &[f32], g: usize| values[g * pixels..(g + 1) * pixels].to_vec();
        let pedestals = [0, 1, 2].map(|g| plane(pedestals, g));
        let mut factors = [0, 1, 2].map(|g| plane(gains, g).iter().map(|gain| 1.0 / (gain * energy_kev)).collect::<Vec<f32>>());
        for (factor, &pedestal) in factors[0].iter_mut().zip(&pedestals[0]) {
            if !(factor.is_finite() && pedestal > 0.0 && pedestal < 16383.0) {
                *factor = f32::NAN;
            }
        }
        Self { pedestals, factors, high_gain: false }
    }
}

/// How pixels are converted.
#[derive(Clone, Copy, Debug)]
pub enum Conversion<'a> {
    /// JUNGFRAU words to photons.
    Photons(&'a JungfrauConstants),
    /// EIGER counts widened.
    Counts,
}

/// What happens to a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// First copy of a packet of the run.
    Placed,
    /// A further copy.
    Duplicate,
    /// Frame number outside the run.
    Foreign,
    /// Not the length of a packet.
    MalformedLength,
    /// Header version is not 2.
    MalformedVersion,
    /// Another detector type.
    MalformedDetectorType,
    /// Packet number beyond the tile.
    MalformedPacketNumber,
}

/// Sums of the verdicts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketLedger {
    /// All datagrams.
    pub received: u64,
    /// [`Verdict::Placed`].
    pub placed: u64,
    /// [`Verdict::Duplicate`].
    pub duplicate: u64,
    /// [`Verdict::Foreign`].
    pub foreign: u64,
    /// Length, version, detector type, packet number.
    pub malformed: [u64; 4],
}

/// State of one image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageStatus {
    /// No packet.
    Lost,
    /// Some packets.
    Partial,
    /// All packets.
    Complete,
}

/// Sums over the images of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImageLedger {
    /// All packets came.
    pub complete: u64,
    /// Some packets came.
    pub partial: u64,
    /// No packet came.
    pub lost: u64,
    /// Packets that should have come and did not.
    pub packets_missing: u64,
}

/// The pipeline. Feed it by [`Self::receive`], then ask.
pub struct Reference {
    layout: RunLayout,
    /// Payload by (image, stream, packet).
    packets: HashMap<(u64, usize, u32), Vec<u8>>,
    /// DAQ info of the first packet placed, by (image, stream).
    daq_info: HashMap<(u64, usize), u32>,
    ledgers: Vec<PacketLedger>,
}

impl Reference {
    /// Nothing received yet.
    pub fn new(layout: RunLayout) -> Self {
        let ledgers = vec![PacketLedger::default(); layout.stream.streams];
        Self { layout, packets: HashMap::new(), daq_info: HashMap::new(), ledgers }
    }

    /// The run.
    pub fn layout(&self) -> &RunLayout {
        &self.layout
    }

    /// Judges one datagram and keeps its payload if it is placed.
    pub fn receive(&mut self, stream: usize, bytes: &[u8]) -> Verdict {
        let verdict = self.judge(stream, bytes);
        let ledger = &mut self.ledgers[stream];
        ledger.received += 1;
        match verdict {
            Verdict::Placed => ledger.placed += 1,
            Verdict::Duplicate => ledger.duplicate += 1,
            Verdict::Foreign => ledger.foreign += 1,
            Verdict::MalformedLength => ledger.malformed[0] += 1,
            Verdict::MalformedVersion => ledger.malformed[1] += 1,
            Verdict::MalformedDetectorType => ledger.malformed[2] += 1,
            Verdict::MalformedPacketNumber => ledger.malformed[3] += 1,
        }
        verdict
    }

    fn judge(&mut self, stream: usize, bytes: &[u8]) -> Verdict {
        if bytes.len() != self.layout.stream.datagram_bytes() {
            return Verdict::MalformedLength;
        }
        if bytes[field::VERSION] != HEADER_VERSION {
            return Verdict::MalformedVersion;
        }
        if bytes[field::DET_TYPE] != self.layout.detector_type {
            return Verdict::MalformedDetectorType;
        }
        let packet = u32::from_le_bytes(bytes[field::PACKET_NUMBER].try_into().expect("4 bytes"));
        if packet >= self.layout.stream.packets_per_tile {
            return Verdict::MalformedPacketNumber;
        }
        let frame = u64::from_le_bytes(bytes[field::FRAME_NUMBER].try_into().expect("8 bytes"));
        if frame < self.layout.first_frame_number || frame - self.layout.first_frame_number >= self.layout.images {
            return Verdict::Foreign;
        }
        let key = (frame - self.layout.first_frame_number, stream, packet);
        if self.packets.contains_key(&key) {
            return Verdict::Duplicate;
        }
        self.packets.insert(key, bytes[HEADER_BYTES..].to_vec());
        let daq_info = u32::from_le_bytes(bytes[field::DET_SPEC_3].try_into().expect("4 bytes"));
        self.daq_info.entry((key.0, stream)).or_insert(daq_info);
        Verdict::Placed
    }

    /// Sums of one stream.
    pub fn stream_ledger(&self, stream: usize) -> PacketLedger {
        self.ledgers[stream]
    }

    /// Sums of all streams.
    pub fn packet_ledger(&self) -> PacketLedger {
        let mut total = PacketLedger::default();
        for ledger in &self.ledgers {
            total.received += ledger.received;
            total.placed += ledger.placed;
            total.duplicate += ledger.duplicate;
            total.foreign += ledger.foreign;
            for (sum, n) in total.malformed.iter_mut().zip(ledger.malformed) {
                *sum += n;
            }
        }
        total
    }

    /// Which packets of a tile arrived.
    pub fn arrived(&self, image: u64, stream: usize) -> Vec<bool> {
        (0..self.layout.stream.packets_per_tile).map(|packet| self.packets.contains_key(&(image, stream, packet))).collect()
    }

    /// DAQ info of an image: that of the first stream of which a packet came.
    pub fn daq_info(&self, image: u64) -> Option<u32> {
        (0..self.layout.stream.streams).find_map(|stream| self.daq_info.get(&(image, stream)).copied())
    }

    /// The words of all tiles of a 16-bit detector, one tile after the other; `None` where the packet did not come.
    pub fn words(&self, image: u64) -> Vec<Option<u16>> {
        let mut words = Vec::new();
        for stream in 0..self.layout.stream.streams {
            for packet in 0..self.layout.stream.packets_per_tile {
                match self.packets.get(&(image, stream, packet)) {
                    Some(payload) => words.extend(payload.chunks_exact(2).map(|b| Some(u16::from_le_bytes([b[0], b[1]])))),
                    None => words.resize(words.len() + self.layout.stream.payload_bytes / 2, None),
                }
            }
        }
        words
    }

    /// State of an image.
    pub fn status(&self, image: u64) -> ImageStatus {
        let arrived: Vec<bool> = (0..self.layout.stream.streams).flat_map(|stream| self.arrived(image, stream)).collect();
        if arrived.iter().all(|a| *a) {
            ImageStatus::Complete
        } else if arrived.iter().any(|a| *a) {
            ImageStatus::Partial
        } else {
            ImageStatus::Lost
        }
    }

    /// Sums over all images of the run.
    pub fn image_ledger(&self) -> ImageLedger {
        let mut ledger = ImageLedger::default();
        for image in 0..self.layout.images {
            match self.status(image) {
                ImageStatus::Complete => ledger.complete += 1,
                ImageStatus::Partial => ledger.partial += 1,
                ImageStatus::Lost => ledger.lost += 1,
            }
        }
        let expected = self.layout.images * self.layout.stream.streams as u64 * u64::from(self.layout.stream.packets_per_tile);
        ledger.packets_missing = expected - self.packets.len() as u64;
        ledger
    }

    /// The output image (rows x columns, row-major): gaps masked, pixels of missing packets missing (masked pixels too:
    /// their packet was not seen), the others converted. A 12-bit pixel that lies in two packets is missing when either
    /// is.
    pub fn image<P: Pixel>(&self, image: u64, conversion: Conversion<'_>) -> Vec<P> {
        self.compose(image, P::MASKED, P::MISSING, |pixel, word| match conversion {
            Conversion::Photons(constants) => convert_word(word as u16, pixel, constants),
            Conversion::Counts => P::from_count(word),
        })
    }

    /// The output image without conversion: words or counts as they came.
    pub fn raw_image(&self, image: u64, gap: u32, missing: u32) -> Vec<u32> {
        self.compose(image, gap, missing, |_, word| word)
    }

    fn compose<T: Copy>(&self, image: u64, gap: T, missing: T, convert: impl Fn(usize, u32) -> T) -> Vec<T> {
        let stream = self.layout.stream;
        let mut output = vec![gap; self.layout.rows * self.layout.columns];
        for (tile, placement) in self.layout.placements.iter().enumerate() {
            let bytes = self.tile_bytes(image, tile);
            for row in 0..stream.rows {
                for column in 0..stream.columns {
                    let pixel = row * stream.columns + column;
                    let output_row = placement.row + if placement.flip_rows { stream.rows - 1 - row } else { row };
                    output[output_row * self.layout.columns + placement.column + column] = match word(&bytes, stream.bits, pixel)
                    {
                        Some(word) => convert(tile * stream.rows * stream.columns + pixel, word),
                        None => missing,
                    };
                }
            }
        }
        output
    }

    /// The bytes of a tile, `None` where the packet did not come.
    fn tile_bytes(&self, image: u64, tile: usize) -> Vec<Option<u8>> {
        let mut bytes = Vec::new();
        for packet in 0..self.layout.stream.packets_per_tile {
            match self.packets.get(&(image, tile, packet)) {
                Some(payload) => bytes.extend(payload.iter().map(|byte| Some(*byte))),
                None => bytes.extend(vec![None; self.layout.stream.payload_bytes]),
            }
        }
        bytes
    }
}

/// One pixel of a tile; `None` if any of its bytes did not come.
fn word(bytes: &[Option<u8>], bits: usize, pixel: usize) -> Option<u32> {
    let byte = |index: usize| bytes[index].map(u32::from);
    match bits {
        4 if pixel.is_multiple_of(2) => Some(byte(pixel / 2)? >> 4),
        4 => Some(byte(pixel / 2)? & 15),
        8 => byte(pixel),
        12 if pixel.is_multiple_of(2) => Some(byte(pixel / 2 * 3)? | (byte(pixel / 2 * 3 + 1)? & 15) << 8),
        12 => Some(byte(pixel / 2 * 3 + 1)? >> 4 | byte(pixel / 2 * 3 + 2)? << 4),
        16 => Some(byte(2 * pixel)? | byte(2 * pixel + 1)? << 8),
        _ => Some(byte(4 * pixel)? | byte(4 * pixel + 1)? << 8 | byte(4 * pixel + 2)? << 16 | byte(4 * pixel + 3)? << 24),
    }
}

/// One JUNGFRAU word to photons. `pixel` indexes the constants.
pub fn convert_word<P: Pixel>(word: u16, pixel: usize, constants: &JungfrauConstants) -> P {
    if constants.factors[0][pixel].is_nan() {
        return P::MASKED;
    }
    match word {
        0xC000 => return P::SATURATED,
        0x3FFF if constants.high_gain => return P::SATURATED,
        0xFFFF | 0x4000 => return P::INVALID,
        _ => {}
    }
    let stage = match word >> 14 {
        0 => 0,
        1 => 1,
        3 => 2,
        _ => return P::INVALID,
    };
    let adc = f32::from(word & 0x3FFF);
    P::from_photons((adc - constants.pedestals[stage][pixel]) * constants.factors[stage][pixel])
}
