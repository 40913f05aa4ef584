//! Shapes of tiles: what one UDP stream sends per image, and how it is divided into packets. Source: slsDetectorPackage
//! 9.2 packet tables.

use crate::MAX_PACKETS_PER_TILE;

/// The detector families whose packets can be received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DetectorKind {
    /// PSI JUNGFRAU: integrating, three gain stages, 16-bit words.
    Jungfrau,
    /// PSI EIGER: photon counting, 4 to 32 bit.
    Eiger,
    /// A detector of European XFEL (AGIPD, DSSC, LPD), which sends the images of a train together: 16-bit words.
    XfelTrain,
    /// EXCALIBUR of Diamond and STFC: Medipix3 chips, photon counting; 12 bit counters, sent as 16-bit words.
    Excalibur,
}

impl DetectorKind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Jungfrau, Self::Eiger, Self::XfelTrain, Self::Excalibur];

    /// Name as the configuration spells it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Jungfrau => "jungfrau",
            Self::Eiger => "eiger",
            Self::XfelTrain => "xfel-train",
            Self::Excalibur => "excalibur",
        }
    }

    /// True if its packets are those of the SLS detectors of PSI.
    pub const fn is_sls(self) -> bool {
        matches!(self, Self::Jungfrau | Self::Eiger)
    }

    /// True if the words that it sends are counts of photons.
    pub const fn counts_photons(self) -> bool {
        matches!(self, Self::Eiger | Self::Excalibur)
    }
}

/// The detectors of European XFEL whose trains can be received (docs/protocols.md 7.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XfelDetector {
    /// LPD: images of 256 x 256.
    Lpd,
    /// DSSC: images of 128 x 512.
    Dssc,
    /// AGIPD: images of two planes, 512 x 128 each: the analog words, then those of the gain.
    Agipd,
}

impl XfelDetector {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Lpd, Self::Dssc, Self::Agipd];

    /// Name as the configuration spells it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lpd => "lpd",
            Self::Dssc => "dssc",
            Self::Agipd => "agipd",
        }
    }

    /// Rows and columns of an image; of AGIPD both planes, one below the other.
    pub const fn image_size(self) -> (u32, u32) {
        match self {
            Self::Lpd => (256, 256),
            Self::Dssc => (128, 512),
            Self::Agipd => (2 * 512, 128),
        }
    }

    /// Bytes of the section that belongs to the type of detector.
    pub const fn specific_bytes(self) -> u32 {
        match self {
            Self::Lpd | Self::Dssc => 416,
            Self::Agipd => 5408,
        }
    }

    /// Most images of a train that fit into the packets of a tile.
    pub fn images_max(self) -> u32 {
        (1..).take_while(|images| TileFormat::xfel_train(self, *images).is_some()).last().unwrap_or(0)
    }
}

/// Shape of one tile (one UDP stream's share of an image) and of the packets that carry it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TileFormat {
    /// Detector family.
    pub kind: DetectorKind,
    /// Rows of the tile that are read out.
    pub rows: u32,
    /// Columns of the tile.
    pub columns: u32,
    /// Bits of one pixel on the wire.
    pub bits: u32,
    /// Payload bytes of each packet but the last of its section, which may have fewer.
    pub payload_bytes: u32,
    /// Bytes of a datagram beside its payload.
    pub overhead_bytes: u32,
    /// Bytes of the tile before its first pixel; even.
    pub leading_bytes: u32,
    /// Bytes of the tile behind its last pixel.
    pub trailing_bytes: u32,
    /// Tiles of a module: the UDP interfaces of a JUNGFRAU module, or the 4 ports of an EIGER module.
    pub tiles_per_module: u32,
    /// Number that the first packet of the tile has on the wire; above 0 only in partial readout.
    pub first_packet: u32,
    /// Images that lie one below the other in the tile: those of a train; else 1.
    pub images: u32,
    /// Equal parts of the tile, each divided into packets on its own: the subframes of an EXCALIBUR; else 1.
    pub sections: u32,
    /// Where the sender writes its frames, if it does so by RDMA; else it sends the packets of its family.
    pub remote: Option<RemotePages>,
}

/// The memory that a sender by RDMA is told to write into: pages, one for each frame, which it takes in turn. Each
/// stream has a queue pair of its own (docs/protocols.md 10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemotePages {
    /// Number of the queue pair of the first stream; those of the others follow.
    pub queue_pair: u32,
    /// The key of the memory.
    pub key: u32,
    /// Address of page 0.
    pub address: u64,
    /// Number of pages.
    pub pages: u16,
    /// Packets come with their IP and UDP header, over which their checksum goes (iCRC), and it is compared. A UDP
    /// socket does not show these headers.
    pub has_outer_headers: bool,
}

impl RemotePages {
    /// Most pages: the immediate data of a frame's last packet have 12 bits for the page.
    pub const PAGES_MAX: u16 = 4096;
    /// Queue pairs have numbers of 24 bits.
    pub const QUEUE_PAIR_MAX: u32 = (1 << 24) - 1;
    /// What the size of a page is a multiple of.
    const ALIGNMENT_BYTES: u32 = 4096;
    /// Bytes behind the pixels of a frame: what the sender says of it.
    const END_BYTES: u32 = 128;
}

/// Headers and checksum of a WRITE of RoCEv2 with immediate data (docs/protocols.md 10.1).
const ROCE_OVERHEAD_BYTES: u32 = 12 + 16 + 4 + 4;
/// The headers of IPv6 and UDP; those of IPv4 are shorter.
const OUTER_HEADERS_BYTES: u32 = 40 + 8;

/// The header of an SLS packet (docs/protocols.md 1.1).
const SLS_OVERHEAD_BYTES: u32 = 48;

/// Header, data of a packet, and bytes behind them, of a train (docs/protocols.md 7).
const TRAIN_HEADER_BYTES: u32 = 64;
const TRAIN_PAYLOAD_BYTES: u32 = 8184;
const TRAIN_PACKET_END_BYTES: u32 = 8;
const TRAIN_TRAILER_BYTES: u32 = 32;

/// Bytes of the lists of a train: 2, 8, 2 and 4 bytes for each image, each list padded to 32.
const fn train_lists(images: u32) -> u32 {
    2 * (2 * images).next_multiple_of(32) + (8 * images).next_multiple_of(32) + (4 * images).next_multiple_of(32)
}

/// Header and data of a packet of an EXCALIBUR (docs/protocols.md 9.1).
const EXCALIBUR_OVERHEAD_BYTES: u32 = 8;
const EXCALIBUR_PAYLOAD_BYTES: u32 = 8000;
/// Rows and columns of a Medipix3 chip.
const MEDIPIX_CHIP: u32 = 256;
/// Chips that one subframe of an EXCALIBUR has, side by side.
const SUBFRAME_CHIPS: u32 = 4;
/// Pixels of a row of a chip that an EXCALIBUR sends together; then come as many of the next chip.
const CHIP_GROUP: u32 = 4;

/// Rows of a module of an SLS detector.
pub const MODULE_ROWS: u32 = 512;

impl TileFormat {
    /// A JUNGFRAU module on 1 UDP interface (one tile of 512 x 1024) or 2 (two tiles of 256 x 1024). `None` for another
    /// number.
    pub const fn jungfrau(interfaces: u32) -> Option<Self> {
        if interfaces != 1 && interfaces != 2 {
            return None;
        }
        Some(Self {
            kind: DetectorKind::Jungfrau,
            rows: MODULE_ROWS / interfaces,
            columns: 1024,
            bits: 16,
            payload_bytes: 8192,
            overhead_bytes: SLS_OVERHEAD_BYTES,
            leading_bytes: 0,
            trailing_bytes: 0,
            tiles_per_module: interfaces,
            first_packet: 0,
            images: 1,
            sections: 1,
            remote: None,
        })
    }

    /// One EIGER port (256 x 512) over 10 GbE at 4, 8, 12, 16 or 32 bit. `None` for another depth.
    pub const fn eiger(bits: u32) -> Option<Self> {
        Self::eiger_with(bits, 4096)
    }

    /// One EIGER port (256 x 512) over 1 GbE, whose packets are a quarter as long. `None` for another depth.
    pub const fn eiger_1gbe(bits: u32) -> Option<Self> {
        Self::eiger_with(bits, 1024)
    }

    const fn eiger_with(bits: u32, payload_bytes: u32) -> Option<Self> {
        match bits {
            4 | 8 | 12 | 16 | 32 => Some(Self {
                kind: DetectorKind::Eiger,
                rows: 256,
                columns: 512,
                bits,
                payload_bytes,
                overhead_bytes: SLS_OVERHEAD_BYTES,
                leading_bytes: 0,
                trailing_bytes: 0,
                tiles_per_module: 4,
                first_packet: 0,
                images: 1,
                sections: 1,
                remote: None,
            }),
            _ => None,
        }
    }

    /// A module of European XFEL that sends `images` images per train; the images lie one below the other. `None` for
    /// no image, and for more than fit into [`MAX_PACKETS_PER_TILE`] packets.
    pub const fn xfel_train(detector: XfelDetector, images: u32) -> Option<Self> {
        let (rows, columns) = detector.image_size();
        let one = Self {
            kind: DetectorKind::XfelTrain,
            rows,
            columns,
            bits: 16,
            payload_bytes: TRAIN_PAYLOAD_BYTES,
            overhead_bytes: TRAIN_PACKET_END_BYTES,
            leading_bytes: TRAIN_HEADER_BYTES,
            trailing_bytes: train_lists(1) + detector.specific_bytes() + TRAIN_TRAILER_BYTES,
            tiles_per_module: 1,
            first_packet: 0,
            images: 1,
            sections: 1,
            remote: None,
        };
        one.with_images(images)
    }

    /// The stripe of 8 chips that one FEM of an EXCALIBUR reads, with counters of 12 bits. The 8 bytes behind the
    /// pixels of a subframe are not among the bytes of the tile (docs/protocols.md 9.1).
    pub const fn excalibur() -> Self {
        Self {
            kind: DetectorKind::Excalibur,
            rows: MEDIPIX_CHIP,
            columns: 2 * SUBFRAME_CHIPS * MEDIPIX_CHIP,
            bits: 16,
            payload_bytes: EXCALIBUR_PAYLOAD_BYTES,
            overhead_bytes: EXCALIBUR_OVERHEAD_BYTES,
            leading_bytes: 0,
            trailing_bytes: 0,
            tiles_per_module: 1,
            first_packet: 0,
            images: 1,
            sections: 2,
            remote: None,
        }
    }

    /// True if pixels are sent in another order than row by row ([`Self::wire_pixel`]).
    pub const fn is_interleaved(&self) -> bool {
        matches!(self.kind, DetectorKind::Excalibur)
    }

    /// The place of a pixel among those that are sent, by its place in the tile counted row by row. They differ for
    /// EXCALIBUR: the right half of the stripe is sent first, and in each half the chips from right to left take turns
    /// with 4 pixels of a row each (docs/protocols.md 9.2).
    ///
    /// # Panics
    /// If the tile has no such pixel.
    pub const fn wire_pixel(&self, pixel: u32) -> u32 {
        assert!(pixel < self.pixels());
        if !self.is_interleaved() {
            return pixel;
        }
        let (row, column) = (pixel / self.columns, pixel % self.columns);
        let half = SUBFRAME_CHIPS * MEDIPIX_CHIP;
        let subframe = 1 - column / half;
        let chip = SUBFRAME_CHIPS - 1 - column % half / MEDIPIX_CHIP;
        let (group, in_group) = (column % MEDIPIX_CHIP / CHIP_GROUP, column % CHIP_GROUP);
        (subframe * self.rows + row) * half + (group * SUBFRAME_CHIPS + chip) * CHIP_GROUP + in_group
    }

    /// The same detector with another number of images per train, as in [`Self::xfel_train`]; `None` also for detectors
    /// that send no trains.
    pub const fn with_images(self, images: u32) -> Option<Self> {
        // More images have more packets, and the sums below would overflow for very many.
        if !matches!(self.kind, DetectorKind::XfelTrain) || images == 0 || images > 1024 {
            return None;
        }
        let trailing_bytes = self.trailing_bytes - train_lists(self.images) + train_lists(images);
        let other = Self { rows: self.rows / self.images * images, trailing_bytes, images, ..self };
        if other.tile_bytes().div_ceil(other.payload_bytes) as usize > MAX_PACKETS_PER_TILE { None } else { Some(other) }
    }

    /// The same detector with partial readout. JUNGFRAU: `rows` of the module, a multiple of 8 up to 512, half of them
    /// above and half below the middle; packets keep their numbers (docs/protocols.md 1.3). EIGER: `rows` of each half
    /// module, from the middle of the module outwards; they must fill whole packets, which are numbered from 0. `None`
    /// for a number of rows that the detector cannot read.
    pub const fn with_rows(self, rows: u32) -> Option<Self> {
        match self.kind {
            DetectorKind::Jungfrau => {
                if rows == 0 || !rows.is_multiple_of(8) || rows > MODULE_ROWS {
                    return None;
                }
                let tile_rows = rows / self.tiles_per_module;
                // One interface omits equally many rows above and below; of two interfaces, the first omits those
                // above.
                let above = (MODULE_ROWS - rows) / 2;
                Some(Self { rows: tile_rows, first_packet: above / self.rows_per_packet(), ..self })
            }
            DetectorKind::Eiger => {
                let read = Self { rows, ..self };
                let is_whole = rows > 0 && rows <= 256 && read.tile_bytes().is_multiple_of(self.payload_bytes);
                if is_whole { Some(read) } else { None }
            }
            DetectorKind::XfelTrain | DetectorKind::Excalibur => None,
        }
    }

    /// The same tile, written by RDMA in packets of `payload_bytes`, with what the sender says of the frame behind its
    /// pixels. `None` if only part of the rows is read, the pixels do not fill whole packets, or these are too many
    /// ([`MAX_PACKETS_PER_TILE`]); and for detectors that send more than pixels.
    pub const fn by_rdma(self, payload_bytes: u32, remote: RemotePages) -> Option<Self> {
        let is_possible = matches!(self.kind, DetectorKind::Jungfrau | DetectorKind::Eiger) && !self.is_partial();
        if !is_possible || payload_bytes < RemotePages::END_BYTES || !self.tile_bytes().is_multiple_of(payload_bytes) {
            return None;
        }
        let overhead_bytes = ROCE_OVERHEAD_BYTES + if remote.has_outer_headers { OUTER_HEADERS_BYTES } else { 0 };
        let trailing_bytes = RemotePages::END_BYTES;
        let other = Self { payload_bytes, overhead_bytes, trailing_bytes, remote: Some(remote), ..self };
        if other.tile_bytes().div_ceil(payload_bytes) as usize > MAX_PACKETS_PER_TILE { None } else { Some(other) }
    }

    /// Bytes from one page to the next, if the tile is written by RDMA.
    pub const fn page_bytes(&self) -> u64 {
        self.tile_bytes().next_multiple_of(RemotePages::ALIGNMENT_BYTES) as u64
    }

    /// JUNGFRAU: 4 rows in each packet.
    const fn rows_per_packet(&self) -> u32 {
        self.payload_bytes * 8 / self.bits / self.columns
    }

    /// Rows of the tile when all are read.
    pub const fn whole_rows(&self) -> u32 {
        match self.kind {
            DetectorKind::Jungfrau => MODULE_ROWS / self.tiles_per_module,
            DetectorKind::Eiger => 256,
            DetectorKind::XfelTrain | DetectorKind::Excalibur => self.rows,
        }
    }

    /// The tile with all its rows, as the slsReceiver stores it and as a calibration covers it.
    pub const fn whole(self) -> Self {
        Self { rows: self.whole_rows(), first_packet: 0, ..self }
    }

    /// True for an EIGER on 1 GbE.
    pub const fn is_one_gigabit(&self) -> bool {
        self.payload_bytes == 1024
    }

    /// True if only part of the rows is read.
    pub const fn is_partial(&self) -> bool {
        self.rows < self.whole_rows()
    }

    /// Rows of a module that are read.
    pub const fn module_rows(&self) -> u32 {
        match self.kind {
            DetectorKind::Jungfrau => self.rows * self.tiles_per_module,
            DetectorKind::Eiger => 2 * self.rows,
            DetectorKind::XfelTrain | DetectorKind::Excalibur => self.rows,
        }
    }

    /// The format of tile `tile` of the detector. In partial readout the second of two JUNGFRAU interfaces sends its
    /// first packets, while the first sends its last.
    pub const fn of_tile(self, tile: usize) -> Self {
        let is_second = self.tiles_per_module == 2 && tile % 2 == 1;
        let remote = match self.remote {
            Some(pages) => Some(RemotePages { queue_pair: pages.queue_pair + tile as u32, ..pages }),
            None => None,
        };
        Self { first_packet: if is_second { 0 } else { self.first_packet }, remote, ..self }
    }

    /// The first row of tile `tile` that is read.
    pub const fn first_row(&self, tile: usize) -> u32 {
        match self.kind {
            DetectorKind::Jungfrau => self.of_tile(tile).first_packet * self.rows_per_packet(),
            DetectorKind::Eiger | DetectorKind::XfelTrain | DetectorKind::Excalibur => 0,
        }
    }

    /// The pixels of tile `tile` that are read, as a range of the pixels of the whole tile.
    pub const fn pixels_read(&self, tile: usize) -> std::ops::Range<usize> {
        let first = self.first_row(tile) as usize * self.columns as usize;
        first..first + self.pixels() as usize
    }

    /// Pixels of the tile.
    pub const fn pixels(&self) -> u32 {
        self.rows * self.columns
    }

    /// Bytes of the tile as it comes from the wire.
    pub const fn tile_bytes(&self) -> u32 {
        self.leading_bytes + self.pixels() / 8 * self.bits + self.trailing_bytes
    }

    /// Bytes of each section of the tile.
    pub const fn section_bytes(&self) -> u32 {
        assert!(self.tile_bytes().is_multiple_of(self.sections));
        self.tile_bytes() / self.sections
    }

    /// Packets of each section of the tile.
    pub const fn section_packets(&self) -> u32 {
        self.section_bytes().div_ceil(self.payload_bytes)
    }

    /// Packets of the tile, at most [`MAX_PACKETS_PER_TILE`].
    pub const fn packets(&self) -> u32 {
        let packets = self.sections * self.section_packets();
        assert!(packets as usize <= MAX_PACKETS_PER_TILE);
        packets
    }

    /// The bytes of the tile that packet `packet` of the tile brings.
    ///
    /// # Panics
    /// If the tile has no such packet.
    pub const fn bytes_of(&self, packet: u32) -> std::ops::Range<u32> {
        assert!(packet < self.packets());
        let (section, number) = (packet / self.section_packets(), packet % self.section_packets());
        let first = number * self.payload_bytes;
        let rest = self.section_bytes() - first;
        let start = section * self.section_bytes() + first;
        start..start + if rest < self.payload_bytes { rest } else { self.payload_bytes }
    }

    /// Payload bytes of packet `packet` of the tile.
    ///
    /// # Panics
    /// If the tile has no such packet.
    pub const fn payload_bytes_of(&self, packet: u32) -> u32 {
        let bytes = self.bytes_of(packet);
        bytes.end - bytes.start
    }

    /// Bytes of the longest datagram of the tile.
    pub const fn datagram_bytes(&self) -> u32 {
        self.overhead_bytes + self.payload_bytes
    }

    /// First and last packet that hold bits of pixel `pixel`, counted as they are sent (they differ only where 12-bit
    /// pixels cross a packet border).
    pub const fn packets_of_pixel(&self, pixel: u32) -> (u16, u16) {
        let first_bit = self.leading_bytes as u64 * 8 + pixel as u64 * self.bits as u64;
        (self.packet_of_bit(first_bit), self.packet_of_bit(first_bit + self.bits as u64 - 1))
    }

    const fn packet_of_bit(&self, bit: u64) -> u16 {
        let (section_bits, packet_bits) = (self.section_bytes() as u64 * 8, self.payload_bytes as u64 * 8);
        (bit / section_bits * self.section_packets() as u64 + bit % section_bits / packet_bits) as u16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packet_counts_are_those_of_the_sls_table() {
        let eiger = |bits| TileFormat::eiger(bits).unwrap().packets();
        assert_eq!([eiger(4), eiger(8), eiger(12), eiger(16), eiger(32)], [16, 32, 48, 64, 128]);
        assert_eq!(TileFormat::jungfrau(1).unwrap().packets(), 128);
        assert_eq!(TileFormat::jungfrau(2).unwrap().packets(), 64);
        assert!(TileFormat::jungfrau(3).is_none() && TileFormat::eiger(24).is_none());
    }

    #[test]
    fn one_gigabit_packets_are_a_quarter_as_long() {
        let eiger = |bits| TileFormat::eiger_1gbe(bits).unwrap();
        assert_eq!([4, 8, 12, 16, 32].map(|bits| eiger(bits).packets()), [64, 128, 192, 256, 512]);
        // 32 bit: two packets make a row, the first 256 columns first.
        assert_eq!([0, 255, 256, 511, 512].map(|p| eiger(32).packets_of_pixel(p).0), [0, 0, 1, 1, 2]);
        assert!(TileFormat::eiger_1gbe(24).is_none());
    }

    /// n = rows / 4 packets, those from 64 - n / 2 to 64 + n / 2 - 1 of the module, whatever the number of interfaces.
    #[test]
    fn partial_readout_is_around_the_middle_of_the_module() {
        for rows in (8..=512).step_by(8) {
            let n = rows / 4;
            let one = TileFormat::jungfrau(1).unwrap().with_rows(rows).unwrap();
            assert_eq!((one.rows, one.packets(), one.first_packet), (rows, n, 64 - n / 2));
            assert_eq!((one.first_row(0), one.first_row(3), one.module_rows()), (256 - rows / 2, 256 - rows / 2, rows));
            let two = TileFormat::jungfrau(2).unwrap().with_rows(rows).unwrap();
            assert_eq!((two.rows, two.packets(), two.module_rows()), (rows / 2, n / 2, rows));
            assert_eq!((two.of_tile(2).first_packet, two.of_tile(3).first_packet), (64 - n / 2, 0));
            assert_eq!((two.first_row(2), two.first_row(3)), (256 - rows / 2, 0));
            assert_eq!((two.pixels_read(0).end, two.pixels_read(1).start), (256 * 1024, 0));
            assert_eq!((one.is_partial(), two.is_partial()), (rows < 512, rows < 512));
            assert_eq!((one.whole(), two.whole()), (TileFormat::jungfrau(1).unwrap(), TileFormat::jungfrau(2).unwrap()));
        }
        let refused = |rows| TileFormat::jungfrau(1).unwrap().with_rows(rows).is_none();
        assert!([0, 4, 12, 100, 520].map(refused).iter().all(|r| *r));
    }

    #[test]
    fn partial_readout_of_an_eiger_has_whole_packets() {
        for bits in [4, 8, 12, 16, 32] {
            for whole in [TileFormat::eiger(bits).unwrap(), TileFormat::eiger_1gbe(bits).unwrap()] {
                for rows in 1..=256 {
                    let packets = whole.packets() * rows;
                    match whole.with_rows(rows) {
                        Some(part) => assert_eq!((part.packets() * 256, part.first_row(1), part.first_packet), (packets, 0, 0)),
                        None => assert!(packets % 256 != 0, "{bits} bit, {rows} rows"),
                    }
                }
                assert!(whole.with_rows(0).is_none() && whole.with_rows(257).is_none());
            }
        }
    }

    /// The lengths of docs/protocols.md 7.2, as far as they fit into 512 packets, and the pixels at packet borders.
    #[test]
    fn trains_have_a_header_before_their_pixels_and_a_shorter_last_packet() {
        let lpd = TileFormat::xfel_train(XfelDetector::Lpd, 20).unwrap();
        assert_eq!((lpd.tile_bytes(), lpd.packets(), lpd.payload_bytes_of(320)), (2_622_336, 321, 3456));
        assert_eq!((lpd.payload_bytes_of(0), lpd.payload_bytes_of(319), lpd.datagram_bytes()), (8184, 8184, 8192));
        assert_eq!((lpd.rows, lpd.columns, lpd.is_partial(), lpd.module_rows()), (5120, 256, false, 5120));
        // The first packet holds the header of 64 bytes and 4060 pixels.
        assert_eq!([0, 4059, 4060, 8151, 8152].map(|p| lpd.packets_of_pixel(p)), [(0, 0), (0, 0), (1, 1), (1, 1), (2, 2)]);
        assert_eq!(XfelDetector::ALL.map(XfelDetector::images_max), [31, 31, 15]);
        assert!(
            TileFormat::xfel_train(XfelDetector::Lpd, 0).is_none() && TileFormat::xfel_train(XfelDetector::Lpd, 32).is_none()
        );
        assert!(lpd.with_rows(256).is_none() && TileFormat::eiger(16).unwrap().with_images(2).is_none());
        assert_eq!(lpd.with_images(7), TileFormat::xfel_train(XfelDetector::Lpd, 7));
    }

    /// A subframe is 65 packets of 8000 bytes and one of 4296, of which 8 are no pixels (docs/protocols.md 9.1).
    #[test]
    fn each_section_of_a_tile_ends_with_a_shorter_packet() {
        let stripe = TileFormat::excalibur();
        assert_eq!((stripe.tile_bytes(), stripe.section_bytes(), stripe.packets()), (1 << 20, 1 << 19, 132));
        assert_eq!([0, 64, 65, 66, 130, 131].map(|p| stripe.payload_bytes_of(p)), [8000, 8000, 4288, 8000, 8000, 4288]);
        assert_eq!((stripe.bytes_of(65), stripe.bytes_of(66)), (520_000..524_288, 524_288..532_288));
        let mut next = 0;
        for packet in 0..stripe.packets() {
            let bytes = stripe.bytes_of(packet);
            assert_eq!(bytes.start, next);
            for pixel in [bytes.start / 2, bytes.end / 2 - 1] {
                assert_eq!(stripe.packets_of_pixel(pixel), (packet as u16, packet as u16));
            }
            next = bytes.end;
        }
        assert_eq!(next, stripe.tile_bytes());
        assert!(stripe.with_rows(128).is_none() && stripe.with_images(2).is_none() && !stripe.is_partial());
    }

    /// The corners of the first and of the last chip that are sent, and that no two pixels are sent as one.
    #[test]
    fn chips_take_turns_with_four_pixels() {
        let stripe = TileFormat::excalibur();
        let at = |row: u32, column: u32| stripe.wire_pixel(row * 2048 + column);
        assert_eq!([at(0, 1792), at(0, 1795), at(0, 1536), at(0, 1024), at(0, 1796)], [0, 3, 4, 12, 16]);
        assert_eq!([at(1, 1792), at(255, 1279), at(0, 768), at(255, 255)], [1024, 262_143, 262_144, 524_287]);
        let mut seen = vec![false; stripe.pixels() as usize];
        (0..stripe.pixels()).for_each(|pixel| seen[stripe.wire_pixel(pixel) as usize] = true);
        assert!(seen.iter().all(|seen| *seen));
        assert_eq!(TileFormat::eiger(16).unwrap().wire_pixel(777), 777);
    }

    #[test]
    fn twelve_bit_pixels_cross_packets() {
        let format = TileFormat::eiger(12).unwrap();
        assert_eq!(format.packets_of_pixel(2729), (0, 0));
        assert_eq!(format.packets_of_pixel(2730), (0, 1));
        assert_eq!(format.packets_of_pixel(2731), (1, 1));
        assert_eq!(format.packets_of_pixel(format.pixels() - 1), (47, 47));
    }
}
