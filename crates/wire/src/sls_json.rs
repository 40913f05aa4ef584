//! The stream of the slsReceiver: over ZeroMQ PUB, one socket per UDP port, JSON and the pixels of one frame of that
//! port. Source: slsDetectorPackage 9.2, `ZmqSocket` (docs/protocols.md 2); versions 4 and 5 of the JSON.
//!
//! Facts relied on: an image is two parts; the end of an acquisition is the JSON alone with `data` 0 and the rest 0 or
//! empty. `shape` is \[columns, rows\] of the port, `size` the bytes of part 2, which are packed for 4 and 12 bits.
//! `packetNumber` is the number of packets caught; pixels of other packets are 0xFF bytes. `acqIndex` is the frame
//! number, `frameIndex` counts from 0 in the acquisition. `flipRows` says that the reader must still reverse the rows.
//! Releases before 7.0 call detSpec1 to 4 bunchId, reserved, debug and roundRNumber. `addJsonHeader` and `rx_roi` may
//! be absent; the image is whole even if a region of interest is set. Unknown keys are skipped.

use crate::stream::{Bounds, Refusal, json, part_count};
use konkordia_core::sls_header::SlsHeader;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::borrow::Cow;

/// Versions of the JSON that are understood.
pub const VERSIONS: std::ops::RangeInclusive<u32> = 4..=5;

/// One checked message.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "nearly all messages are images, and a box would be an allocation for each")]
pub enum Message<'a> {
    /// The frame of one port.
    Image(Image<'a>),
    /// The acquisition has ended on this port.
    End {
        /// Version of the JSON.
        version: u32,
    },
}

/// The frame of one port: as many bytes as rows, columns and bits ask for.
#[derive(Clone, Debug, PartialEq)]
pub struct Image<'a> {
    /// What the receiver says of it.
    pub header: Header<'a>,
    /// The pixels, row by row, little-endian; 4 and 12 bits packed as the detector sends them.
    pub data: &'a [u8],
}

/// What the receiver says of a frame.
#[derive(Clone, Debug, PartialEq)]
pub struct Header<'a> {
    /// Version of the JSON, 4 or 5.
    pub version: u32,
    /// Bits of one pixel: 4, 8, 12, 16 or 32.
    pub bits: u32,
    /// Columns of the port, above 0.
    pub columns: u64,
    /// Rows of the port, above 0.
    pub rows: u64,
    /// Ports of the detector in x and y.
    pub ports: (u64, u64),
    /// Number of the acquisition in file names.
    pub file_index: u64,
    /// Number of the frame in the acquisition, from 0.
    pub frame_index: u64,
    /// How far the acquisition is, in percent.
    pub progress_percent: f64,
    /// Path and stem of the receiver's own files. Not trusted: check it before it is used as a path.
    pub file_name: Cow<'a, str>,
    /// Whether all packets came.
    pub complete: bool,
    /// Packets that came.
    pub packets_caught: u32,
    /// The fields of the first packet.
    pub frame: SlsHeader,
    /// GOTTHARD2: bunch; else 0.
    pub detector_specific_2: u16,
    /// EIGER: round robin; else 0.
    pub detector_specific_4: u16,
    /// Kind of the detector, see [`crate::sls_udp::detector_type`].
    pub detector_type: u8,
    /// Version of the packets' header.
    pub header_version: u8,
    /// The reader must reverse the rows.
    pub flip_rows: bool,
    /// The detector is a quad.
    pub quad: bool,
    /// What the user added.
    pub added: Map<String, Value>,
    /// Region of interest that the receiver's files are cut to: first and last column, first and last row; `None` for
    /// the whole.
    pub files_roi: Option<[i64; 4]>,
}

/// The keys, in the order in which the receiver writes them.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Keys<'a> {
    jsonversion: u32,
    bitmode: u32,
    #[serde(default)]
    file_index: u64,
    #[serde(default)]
    detshape: [u64; 2],
    #[serde(default)]
    shape: [u64; 2],
    #[serde(default)]
    size: u64,
    #[serde(default)]
    frame_index: u64,
    #[serde(default)]
    progress: f64,
    #[serde(borrow, default)]
    fname: Cow<'a, str>,
    data: u8,
    #[serde(default)]
    complete_image: u8,
    #[serde(default)]
    frame_number: u64,
    #[serde(default)]
    exp_length: u32,
    #[serde(default)]
    packet_number: u32,
    #[serde(default, alias = "bunchId")]
    det_spec1: u64,
    #[serde(default)]
    timestamp: u64,
    #[serde(default)]
    mod_id: u16,
    #[serde(default)]
    row: u16,
    #[serde(default)]
    column: u16,
    #[serde(default, alias = "reserved")]
    det_spec2: u16,
    #[serde(default, alias = "debug")]
    det_spec3: u32,
    #[serde(default, alias = "roundRNumber")]
    det_spec4: u16,
    #[serde(default)]
    det_type: u8,
    #[serde(default)]
    version: u8,
    #[serde(default)]
    flip_rows: u8,
    #[serde(default)]
    quad: u8,
    #[serde(default)]
    add_json_header: Map<String, Value>,
    #[serde(rename = "rx_roi")]
    rx_roi: Option<[i64; 4]>,
}

impl<'a> Message<'a> {
    /// Checks the parts of one message.
    ///
    /// # Errors
    /// The part that is wrong, and what is wrong with it: version, keys, number of parts, sizes that disagree or are
    /// beyond `bounds`.
    pub fn parse(parts: &[&'a [u8]], bounds: &Bounds) -> Result<Self, Refusal> {
        let keys: Keys = json(parts, 0, bounds)?;
        let wrong = |why: String| Refusal::new(0, why);
        if !VERSIONS.contains(&keys.jsonversion) {
            let (first, last) = (VERSIONS.start(), VERSIONS.end());
            return Err(wrong(format!("its 'jsonversion' is {}; {first} and {last} are known", keys.jsonversion)));
        }
        if keys.data == 0 {
            part_count(parts, 1, 1, "the end of an acquisition")?;
            return Ok(Self::End { version: keys.jsonversion });
        }
        part_count(parts, 2, 2, "an image")?;
        if ![4, 8, 12, 16, 32].contains(&keys.bitmode) {
            return Err(wrong(format!("its 'bitmode' is {}; 4, 8, 12, 16 and 32 are known", keys.bitmode)));
        }
        let [columns, rows] = keys.shape;
        let bits = columns.checked_mul(rows).and_then(|pixels| pixels.checked_mul(u64::from(keys.bitmode)));
        let bytes = bits.filter(|bits| *bits > 0 && bits % 8 == 0).map(|bits| bits / 8);
        let is = || format!("{columns} x {rows} pixels of {} bits", keys.bitmode);
        let bytes = bytes.ok_or_else(|| wrong(format!("{} cannot be an image of whole bytes", is())))?;
        if bytes > bounds.image_bytes_max {
            return Err(wrong(format!("{} are more than the {} bytes that are accepted", is(), bounds.image_bytes_max)));
        }
        if keys.size != bytes {
            return Err(wrong(format!("its 'size' is {}, but {} have {bytes} bytes", keys.size, is())));
        }
        let data = parts[1];
        if data.len() as u64 != bytes {
            return Err(Refusal::new(1, format!("{} have {bytes} bytes, but {} came", is(), data.len())));
        }
        Ok(Self::Image(Image { header: keys.into_header(), data }))
    }

    /// The parts of this message, with the names and the order of release 9.
    pub fn build(&self) -> Vec<Cow<'a, [u8]>> {
        match self {
            Self::End { version } => vec![Cow::Owned(end_header(*version).text(0))],
            Self::Image(image) => vec![Cow::Owned(image.header.text(image.data.len())), Cow::Borrowed(image.data)],
        }
    }
}

impl<'a> Keys<'a> {
    fn into_header(self) -> Header<'a> {
        Header {
            version: self.jsonversion,
            bits: self.bitmode,
            columns: self.shape[0],
            rows: self.shape[1],
            ports: (self.detshape[0], self.detshape[1]),
            file_index: self.file_index,
            frame_index: self.frame_index,
            progress_percent: self.progress,
            file_name: self.fname,
            complete: self.complete_image != 0,
            packets_caught: self.packet_number,
            frame: SlsHeader {
                frame_number: self.frame_number,
                timestamp_100ns: self.timestamp,
                bunch_id: self.det_spec1,
                exposure_length: self.exp_length,
                daq_info: self.det_spec3,
                module_id: self.mod_id,
                row: self.row,
                column: self.column,
            },
            detector_specific_2: self.det_spec2,
            detector_specific_4: self.det_spec4,
            detector_type: self.det_type,
            header_version: self.version,
            flip_rows: self.flip_rows != 0,
            quad: self.quad != 0,
            added: self.add_json_header,
            files_roi: self.rx_roi.filter(|roi| *roi != [-1; 4]),
        }
    }
}

/// What the receiver sends with the end: nothing but the version.
fn end_header(version: u32) -> Header<'static> {
    Header {
        version,
        bits: 0,
        columns: 0,
        rows: 0,
        ports: (0, 0),
        file_index: 0,
        frame_index: 0,
        progress_percent: 0.0,
        file_name: Cow::Borrowed(""),
        complete: false,
        packets_caught: 0,
        frame: SlsHeader::default(),
        detector_specific_2: 0,
        detector_specific_4: 0,
        detector_type: 0,
        header_version: 0,
        flip_rows: false,
        quad: false,
        added: Map::new(),
        files_roi: None,
    }
}

impl Header<'_> {
    /// The JSON of an image of `bytes` bytes; 0 for the end.
    fn text(&self, bytes: usize) -> Vec<u8> {
        let (frame, flag) = (&self.frame, u8::from);
        let [x_first, x_last, y_first, y_last] = self.files_roi.unwrap_or([-1; 4]);
        let added = if self.added.is_empty() { String::new() } else { format!(r#""addJsonHeader":{},"#, json_text(&self.added)) };
        let about_image = format!(
            r#""jsonversion":{},"bitmode":{},"fileIndex":{},"detshape":[{},{}],"shape":[{},{}],"size":{bytes},"acqIndex":{},"frameIndex":{},"progress":{},"fname":{},"data":{},"completeImage":{}"#,
            self.version,
            self.bits,
            self.file_index,
            self.ports.0,
            self.ports.1,
            self.columns,
            self.rows,
            frame.frame_number,
            self.frame_index,
            json_text(&self.progress_percent),
            json_text(&self.file_name),
            flag(bytes > 0),
            flag(self.complete),
        );
        let about_frame = format!(
            r#""frameNumber":{},"expLength":{},"packetNumber":{},"detSpec1":{},"timestamp":{},"modId":{},"row":{},"column":{},"detSpec2":{},"detSpec3":{},"detSpec4":{},"detType":{},"version":{}"#,
            frame.frame_number,
            frame.exposure_length,
            self.packets_caught,
            frame.bunch_id,
            frame.timestamp_100ns,
            frame.module_id,
            frame.row,
            frame.column,
            self.detector_specific_2,
            frame.daq_info,
            self.detector_specific_4,
            self.detector_type,
            self.header_version,
        );
        let (flip, quad) = (flag(self.flip_rows), flag(self.quad));
        let end = format!(r#""flipRows":{flip},"quad":{quad},{added}"rx_roi":[{x_first},{x_last},{y_first},{y_last}]"#);
        format!("{{{about_image},{about_frame},{end}}}\n").into_bytes()
    }
}

fn json_text(value: &impl serde::Serialize) -> String {
    // Texts, numbers and maps of JSON values can be written as JSON. NaN and infinity become null, which readers
    // refuse.
    serde_json::to_string(value).unwrap_or_default()
}
