//! SLS detector packets: the 48-byte header, and which stream sends what (docs/protocols.md 1.1 to 1.6).
//!
//! All integers are little-endian. Nothing in a packet states bit depth or number of packets; [`StreamLayout`] does.

use std::ops::Range;
use thiserror::Error;

/// Bytes of the header.
pub const HEADER_BYTES: usize = 48;
/// Where each field stands; lengths as in docs/protocols.md 1.1.
pub mod field {
    use super::Range;
    /// Frame this packet belongs to, u64; counts from 1 after the start of a detector.
    pub const FRAME_NUMBER: Range<usize> = 0..8;
    /// JUNGFRAU: exposure in 100 ns; EIGER: number of the sub-frame, counted over all frames. u32.
    pub const EXP_LENGTH: Range<usize> = 8..12;
    /// Index of the packet within the tile, from 0. u32.
    pub const PACKET_NUMBER: Range<usize> = 12..16;
    /// JUNGFRAU: bunch id. u64.
    pub const DET_SPEC_1: Range<usize> = 16..24;
    /// Start of exposure since the start of the measurement, 100 ns. u64.
    pub const TIMESTAMP: Range<usize> = 24..32;
    /// Module (board) id. u16.
    pub const MOD_ID: Range<usize> = 32..34;
    /// Row of the port in the detector. u16.
    pub const ROW: Range<usize> = 34..36;
    /// Column of the port. u16.
    pub const COLUMN: Range<usize> = 36..38;
    /// Unused here. u16.
    pub const DET_SPEC_2: Range<usize> = 38..40;
    /// JUNGFRAU: DAQ info; EIGER: firmware constant. u32.
    pub const DET_SPEC_3: Range<usize> = 40..44;
    /// EIGER: marks one side of the hardware. u16.
    pub const DET_SPEC_4: Range<usize> = 44..46;
    /// Detector type, u8: 1 EIGER, 3 JUNGFRAU.
    pub const DET_TYPE: usize = 46;
    /// Version of the header, u8: 2.
    pub const VERSION: usize = 47;
}
/// Detector type of EIGER.
pub const TYPE_EIGER: u8 = 1;
/// Detector type of JUNGFRAU.
pub const TYPE_JUNGFRAU: u8 = 3;
/// Version of the header.
pub const HEADER_VERSION: u8 = 2;
/// DAQ info: chip 1.1 (bits 7-5 = 001), dynamic gain; the storage cell is added (bits 11-8).
const DAQ_INFO: u32 = 1 << 5;
/// Storage cell of a detector that uses one: the default of chip 1.1.
const STORAGE_CELL: u8 = 3;
/// Constant of the firmware of the captured EIGER.
const EIGER_FIRMWARE: u32 = 0x6AE1;
const EIGER_SIDE: u16 = 0x2000;
/// First board of the captured EIGER; the boards are numbered by two along a detector.
const EIGER_FIRST_BOARD: u16 = 101;

/// Which packets to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DetectorKind {
    /// JUNGFRAU with 1 or 2 UDP interfaces per module.
    Jungfrau {
        /// 1 or 2.
        interfaces: u8,
    },
    /// EIGER, four ports per module.
    Eiger {
        /// 4, 8, 12, 16 or 32.
        bits: u8,
    },
}

/// Everything a [`Packetiser`] needs.
#[derive(Clone, Debug, PartialEq)]
pub struct PacketModel {
    /// Detector and its mode.
    pub kind: DetectorKind,
    /// Modules.
    pub modules: usize,
    /// Modules stacked in one column of the grid (they are numbered down a column first).
    pub modules_down: usize,
    /// Frame number of image 0; detectors start at 1.
    pub first_frame_number: u64,
    /// Time from image to image, nanoseconds.
    pub period_ns: u64,
    /// Exposure, nanoseconds.
    pub exposure_ns: u64,
    /// Timestamp of image 0 in 100 ns.
    pub start_ticks: u64,
    /// EIGER in 32 bit: sub-frames summed into one image.
    pub subframes: u32,
    /// JUNGFRAU: storage cells that take turns, 1 to 16.
    pub storage_cells: u8,
    /// JUNGFRAU: bits that are set in DAQ info beside those of chip and cell (docs/protocols.md 1.4).
    pub daq_info: u32,
    /// Partial readout: rows of a JUNGFRAU module, or of each EIGER half module; `None` = all.
    pub rows_read: Option<u16>,
    /// EIGER: 10 GbE; otherwise 1 GbE, in packets a quarter as long.
    pub ten_giga: bool,
}

/// Storage cell of an image, counted from 0.
pub fn storage_cell(cells: u8, image: u64) -> u8 {
    if cells <= 1 { STORAGE_CELL } else { (image % u64::from(cells)) as u8 }
}

impl PacketModel {
    /// All modules in one column, first frame number 1, 1 kHz, exposure 840 microseconds.
    pub fn new(kind: DetectorKind, modules: usize) -> Self {
        Self {
            kind,
            modules,
            modules_down: modules,
            first_frame_number: 1,
            period_ns: 1_000_000,
            exposure_ns: 840_000,
            start_ticks: 0,
            subframes: 376,
            storage_cells: 1,
            daq_info: 0,
            rows_read: None,
            ten_giga: true,
        }
    }
}

/// Shape of the streams; one stream is one UDP port and carries one tile of each image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamLayout {
    /// Streams, that is tiles of an image.
    pub streams: usize,
    /// Rows of a tile that are read.
    pub rows: usize,
    /// Rows of a tile of which all are read.
    pub whole_rows: usize,
    /// Columns of a tile.
    pub columns: usize,
    /// Bits of a pixel on the wire.
    pub bits: usize,
    /// Packets of a tile.
    pub packets_per_tile: u32,
    /// Pixel bytes of a packet.
    pub payload_bytes: usize,
    /// Pixel bytes of a tile: `packets_per_tile * payload_bytes`.
    pub tile_bytes: usize,
}

impl StreamLayout {
    /// Bytes of a datagram.
    pub fn datagram_bytes(&self) -> usize {
        HEADER_BYTES + self.payload_bytes
    }

    /// Pixel bytes of a row of a tile.
    pub fn row_bytes(&self) -> usize {
        self.columns * self.bits / 8
    }

    /// Pixel bytes of a tile of which all rows are read.
    pub fn whole_tile_bytes(&self) -> usize {
        self.whole_rows * self.row_bytes()
    }
}

/// A packetiser that cannot be made.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("packets cannot be made: {0}")]
pub struct LayoutError(String);

/// What differs between the streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Port {
    mod_id: u16,
    row: u16,
    column: u16,
    det_spec_4: u16,
}

/// Turns tiles into datagrams.
#[derive(Clone, Debug)]
pub struct Packetiser {
    model: PacketModel,
    layout: StreamLayout,
    ports: Vec<Port>,
}

impl Packetiser {
    /// Lays out the streams. JUNGFRAU: stream = module * interfaces + interface.
    /// EIGER: stream = module * 4 + half * 2 + side, upper half first, left side first; this is the order of the ports
    /// of a real 9M.
    ///
    /// # Errors
    /// [`LayoutError`] when the mode does not exist or the grid is not full.
    pub fn new(model: &PacketModel) -> Result<Self, LayoutError> {
        let (modules, down) = (model.modules, model.modules_down);
        if modules == 0 || modules > 4096 || down == 0 || !modules.is_multiple_of(down) {
            return Err(LayoutError(format!(
                "{modules} modules in columns of {down} do not fill a grid; give 1 to 4096 modules and a divisor of that number"
            )));
        }
        let (streams_per_module, whole_rows, columns, bits, payload_bytes) = shape(model)?;
        let rows = rows_of_a_tile(model, whole_rows, columns * bits / 8, payload_bytes)?;
        let tile_bytes = rows * columns * bits / 8;
        let streams = modules * streams_per_module;
        let packets_per_tile = (tile_bytes / payload_bytes) as u32;
        let layout = StreamLayout { streams, rows, whole_rows, columns, bits, packets_per_tile, payload_bytes, tile_bytes };
        let ports = (0..streams).map(|stream| port(model.kind, stream, down)).collect();
        Ok(Self { model: model.clone(), layout, ports })
    }

    /// The model this was made from.
    pub fn model(&self) -> &PacketModel {
        &self.model
    }

    /// Shape of the streams.
    pub fn layout(&self) -> StreamLayout {
        self.layout
    }

    /// The rows of its tile that a stream sends. A JUNGFRAU reads around the middle of the module, an EIGER from there
    /// outwards.
    pub fn rows_read(&self, stream: usize) -> Range<usize> {
        let (rows, whole) = (self.layout.rows, self.layout.whole_rows);
        let first = match self.model.kind {
            DetectorKind::Jungfrau { interfaces: 1 } => (whole - rows) / 2,
            DetectorKind::Jungfrau { .. } if stream.is_multiple_of(2) => whole - rows,
            _ => 0,
        };
        first..first + rows
    }

    /// The part of the bytes of a whole tile that a stream sends.
    ///
    /// # Panics
    /// When `whole_tile` does not have the bytes of a whole tile.
    pub fn read_out<'a>(&self, stream: usize, whole_tile: &'a [u8]) -> &'a [u8] {
        assert_eq!(whole_tile.len(), self.layout.whole_tile_bytes(), "bytes of the whole tile");
        let (rows, row_bytes) = (self.rows_read(stream), self.layout.row_bytes());
        &whole_tile[rows.start * row_bytes..rows.end * row_bytes]
    }

    /// Number of the first packet of a stream. A JUNGFRAU also counts the packets of preceding rows that it does not
    /// read.
    pub fn first_packet(&self, stream: usize) -> u32 {
        (self.rows_read(stream).start * self.layout.row_bytes() / self.layout.payload_bytes) as u32
    }

    /// (row, column) that the headers of a stream carry.
    pub fn port_position(&self, stream: usize) -> (u16, u16) {
        (self.ports[stream].row, self.ports[stream].column)
    }

    /// Detector type that the headers carry.
    pub fn detector_type(&self) -> u8 {
        match self.model.kind {
            DetectorKind::Jungfrau { .. } => TYPE_JUNGFRAU,
            DetectorKind::Eiger { .. } => TYPE_EIGER,
        }
    }

    /// Frame number of an image (counted from 0).
    pub fn frame_number(&self, image: u64) -> u64 {
        self.model.first_frame_number + image
    }

    /// The header of packet `packet` of those that the stream sends, counted from 0.
    pub fn write_header(&self, stream: usize, frame_number: u64, packet: u32) -> [u8; HEADER_BYTES] {
        let port = self.ports[stream];
        let mut header = [0; HEADER_BYTES];
        header[field::PACKET_NUMBER].copy_from_slice(&(self.first_packet(stream) + packet).to_le_bytes());
        header[field::MOD_ID].copy_from_slice(&port.mod_id.to_le_bytes());
        header[field::ROW].copy_from_slice(&port.row.to_le_bytes());
        header[field::COLUMN].copy_from_slice(&port.column.to_le_bytes());
        header[field::DET_SPEC_4].copy_from_slice(&port.det_spec_4.to_le_bytes());
        header[field::DET_TYPE] = self.detector_type();
        header[field::VERSION] = HEADER_VERSION;
        self.patch_header(&mut header, frame_number);
        header
    }

    /// Rewrites what changes from image to image in a header (or a whole datagram) made by this packetiser: frame
    /// number, exposure or sub-frame number, bunch id, timestamp, storage cell. The rest stays, so prepared datagrams
    /// can be sent again as another image.
    ///
    /// # Panics
    /// When `header` is shorter than 48 bytes.
    #[inline]
    pub fn patch_header(&self, header: &mut [u8], frame_number: u64) {
        let image = frame_number.wrapping_sub(self.model.first_frame_number);
        let ticks = self.model.start_ticks.wrapping_add(image.wrapping_mul(self.model.period_ns) / 100);
        let header: &mut [u8; HEADER_BYTES] = header.first_chunk_mut().expect("a header has 48 bytes");
        let (exp_length, bunch, det_spec_3) = match self.model.kind {
            DetectorKind::Jungfrau { .. } => {
                let cell = u32::from(storage_cell(self.model.storage_cells, image));
                ((self.model.exposure_ns / 100) as u32, frame_number, DAQ_INFO | self.model.daq_info | cell << 8)
            }
            DetectorKind::Eiger { bits: 32 } => {
                ((image as u32).wrapping_add(1).wrapping_mul(self.model.subframes), 0, EIGER_FIRMWARE)
            }
            DetectorKind::Eiger { .. } => (0, 0, EIGER_FIRMWARE),
        };
        header[field::FRAME_NUMBER].copy_from_slice(&frame_number.to_le_bytes());
        header[field::EXP_LENGTH].copy_from_slice(&exp_length.to_le_bytes());
        header[field::DET_SPEC_1].copy_from_slice(&bunch.to_le_bytes());
        header[field::TIMESTAMP].copy_from_slice(&ticks.to_le_bytes());
        header[field::DET_SPEC_3].copy_from_slice(&det_spec_3.to_le_bytes());
    }

    /// Writes the datagram of packet `packet` of a tile into `out` and returns its length.
    ///
    /// # Panics
    /// When the tile has another size than the layout says, the packet does not exist, or `out` is too short.
    pub fn write_packet(&self, stream: usize, frame_number: u64, packet: u32, tile_bytes: &[u8], out: &mut [u8]) -> usize {
        assert_eq!(tile_bytes.len(), self.layout.tile_bytes, "bytes of the tile");
        let start = packet as usize * self.layout.payload_bytes;
        let length = self.layout.datagram_bytes();
        out[..HEADER_BYTES].copy_from_slice(&self.write_header(stream, frame_number, packet));
        out[HEADER_BYTES..length].copy_from_slice(&tile_bytes[start..start + self.layout.payload_bytes]);
        length
    }
}

/// Streams of a module, rows and columns of a tile, bits of a pixel, and pixel bytes of a packet.
fn shape(model: &PacketModel) -> Result<(usize, usize, usize, usize, usize), LayoutError> {
    Ok(match model.kind {
        DetectorKind::Jungfrau { interfaces: 1 } => (1, 512, 1024, 16, 8192),
        DetectorKind::Jungfrau { interfaces: 2 } => (2, 256, 1024, 16, 8192),
        DetectorKind::Jungfrau { interfaces } => {
            return Err(LayoutError(format!(
                "a JUNGFRAU module has 1 or 2 interfaces, not {interfaces}; set interfaces to 1 or 2"
            )));
        }
        DetectorKind::Eiger { bits: bits @ (4 | 8 | 12 | 16 | 32) } => {
            (4, 256, 512, usize::from(bits), if model.ten_giga { 4096 } else { 1024 })
        }
        DetectorKind::Eiger { bits } => {
            return Err(LayoutError(format!("EIGER has no {bits}-bit mode; set bits to 4, 8, 12, 16 or 32")));
        }
    })
}

/// Rows of a tile that are read.
fn rows_of_a_tile(model: &PacketModel, whole_rows: usize, row_bytes: usize, payload_bytes: usize) -> Result<usize, LayoutError> {
    let Some(wanted) = model.rows_read.map(usize::from) else { return Ok(whole_rows) };
    let (rows, possible) = match model.kind {
        DetectorKind::Jungfrau { interfaces } => (wanted / usize::from(interfaces), wanted.is_multiple_of(8)),
        DetectorKind::Eiger { .. } => (wanted, (wanted * row_bytes).is_multiple_of(payload_bytes)),
    };
    if possible && (1..=whole_rows).contains(&rows) {
        return Ok(rows);
    }
    Err(LayoutError(format!(
        "this detector cannot read {wanted} rows; give a multiple of 8 up to 512 (JUNGFRAU), or whole packets up to 256 rows (EIGER)"
    )))
}

/// Header constants of a stream.
fn port(kind: DetectorKind, stream: usize, modules_down: usize) -> Port {
    let grid = |module: usize| (module % modules_down, module / modules_down);
    match kind {
        DetectorKind::Jungfrau { interfaces } => {
            // With two interfaces `row` counts half modules: the second sends the lower memory rows under row + 1.
            let interfaces = usize::from(interfaces);
            let (module, interface) = (stream / interfaces, stream % interfaces);
            let (row, column) = grid(module);
            Port { mod_id: module as u16, row: (row * interfaces + interface) as u16, column: column as u16, det_spec_4: 0 }
        }
        DetectorKind::Eiger { .. } => {
            let (module, half, side) = (stream / 4, stream / 2 % 2, stream % 2);
            let (row, column) = grid(module);
            let board = EIGER_FIRST_BOARD + 2 * (2 * module + half) as u16;
            let det_spec_4 = if half == side { EIGER_SIDE } else { 0 };
            Port { mod_id: board, row: (2 * row + half) as u16, column: (2 * column + side) as u16, det_spec_4 }
        }
    }
}
