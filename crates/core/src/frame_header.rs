//! What the header of a packet says of its frame.

/// The header fields of a tile, from the first packet placed. Units as on the wire (docs/protocols.md 1.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameHeader {
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
