//! The header of the packets, files and messages of SLS detectors (docs/protocols.md 1.1), and its place in the
//! [`FrameHeader`]. It stands here and not beside the decoders, because files from before there were other packet
//! formats have these columns, and because the calibration of a JUNGFRAU reads its DAQ info.

use crate::frame_header::{ColumnType, ColumnValue, FIELDS_MAX, FrameColumn, FrameHeader};
use crate::setup::Port;

const BUNCH_ID: usize = 0;
const EXPOSURE: usize = 1;
/// The field that holds the DAQ info.
pub const DAQ_INFO: usize = 2;

/// What an SLS header says of its frame. Units as on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlsHeader {
    /// Frame number of the detector.
    pub frame_number: u64,
    /// Start of exposure, in 100 ns since the start of the measurement.
    pub timestamp_100ns: u64,
    /// JUNGFRAU: bunch id; else 0.
    pub bunch_id: u64,
    /// Exposure in 100 ns; EIGER: cumulative sub-frame number.
    pub exposure_length: u32,
    /// JUNGFRAU: DAQ info bits; EIGER: firmware constant.
    pub daq_info: u32,
    /// Module id.
    pub module_id: u16,
    /// Row of the port in the detector.
    pub row: u16,
    /// Column of the port in the detector.
    pub column: u16,
}

impl From<SlsHeader> for FrameHeader {
    fn from(h: SlsHeader) -> Self {
        let mut fields = [0; FIELDS_MAX];
        fields[BUNCH_ID] = h.bunch_id;
        fields[EXPOSURE] = h.exposure_length.into();
        fields[DAQ_INFO] = h.daq_info.into();
        let port = Port { row: h.row, column: h.column, module_id: h.module_id };
        Self { frame_number: h.frame_number, timestamp_100ns: h.timestamp_100ns, port, fields }
    }
}

impl From<FrameHeader> for SlsHeader {
    /// The fields of a header that came from an SLS detector.
    fn from(h: FrameHeader) -> Self {
        Self {
            frame_number: h.frame_number,
            timestamp_100ns: h.timestamp_100ns,
            bunch_id: h.fields[BUNCH_ID],
            exposure_length: h.fields[EXPOSURE] as u32,
            daq_info: h.fields[DAQ_INFO] as u32,
            module_id: h.port.module_id,
            row: h.port.row,
            column: h.port.column,
        }
    }
}

/// The per-frame columns of SLS detectors, in the order of the file.
pub static COLUMNS: [FrameColumn; 4] = [
    FrameColumn::of_image("timestamp", ColumnType::U64, ColumnValue::Timestamp, "detector clock, units of 100 ns"),
    FrameColumn::of_image("bunch_id", ColumnType::U64, ColumnValue::Field(BUNCH_ID), "bunch or pulse number"),
    FrameColumn::of_image(
        "exposure",
        ColumnType::U32,
        ColumnValue::Field(EXPOSURE),
        "exposure reported by the detector, units of 100 ns",
    ),
    FrameColumn::of_image("detector_info", ColumnType::U32, ColumnValue::Field(DAQ_INFO), "debug or DAQ word of the detector"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_on_the_way_and_back() {
        let header = SlsHeader {
            frame_number: 1 << 40,
            timestamp_100ns: 2,
            bunch_id: u64::MAX,
            exposure_length: u32::MAX,
            daq_info: 1 << 31,
            module_id: 6,
            row: 7,
            column: 8,
        };
        let neutral = FrameHeader::from(header);
        assert_eq!(SlsHeader::from(neutral), header);
        let values = COLUMNS.each_ref().map(|column| neutral.value(column.value));
        assert_eq!(values, [2, u64::MAX, u32::MAX.into(), 1 << 31]);
    }
}
