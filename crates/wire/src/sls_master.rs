//! Master file of the slsReceiver, JSON: what the files of an acquisition hold. Source: slsDetectorPackage 9.2, binary
//! writer 7.2, and the names that readers of version 8.0 expect (docs/protocols.md 1.7). Both sets of names are
//! accepted, whatever the version says.
//!
//! Facts relied on: `Geometry`, `Pixels` and the image size count UDP ports, not modules, and are those of whole ports
//! even if part of the rows was read; `Number of rows` counts those of a JUNGFRAU module or of an EIGER half module;
//! without region of interest its borders are -1, also as unsigned numbers; newer keys that are not needed are ignored.
//!
//! The receiver writes the file when it is stopped. So `Timestamp` is the end of the acquisition, by the clock of the
//! receiver's machine and without time zone (`std::ctime`).
//!
//! Konkordia adds three keys to the master file of raw frames that a run keeps: `Konkordia Detector` holds the keys of
//! `[detector]` of its configuration, `Konkordia Facts` those of the other tables that describe the measurement, and
//! `Konkordia First Frame` is the number of the frame with which the first image begins. `Timestamp` is then the
//! beginning of the run, in ISO 8601.

use crate::sls_file::PORTS_MAX;
use konkordia_core::tile::{DetectorKind, TileFormat};
use serde_json::{Value, json};

/// Largest master file that is read; real ones have some kilobytes.
pub const MASTER_BYTES_MAX: u64 = 1 << 20;

/// Version that is written.
pub const WRITTEN_VERSION: f64 = 7.2;
/// What the master says of the records ([`crate::sls_file`]).
const HEADER_FORMAT: [(&str, &str); 14] = [
    ("Frame Number", "8 bytes"),
    ("SubFrame Number/ExpLength", "4 bytes"),
    ("Packet Number", "4 bytes"),
    ("Bunch ID", "8 bytes"),
    ("Timestamp", "8 bytes"),
    ("Module Id", "2 bytes"),
    ("Row", "2 bytes"),
    ("Column", "2 bytes"),
    ("Reserved", "2 bytes"),
    ("Debug", "4 bytes"),
    ("Round Robin Number", "2 bytes"),
    ("Detector Type", "1 byte"),
    ("Header Version", "1 byte"),
    ("Packets Caught Mask", "64 bytes"),
];

/// The checked contents of a master file: the images of its ports are tiles of a known detector.
#[derive(Clone, Debug, PartialEq)]
pub struct Master {
    /// Version of the writer.
    pub version: f64,
    /// Tile of one port, with the rows that were read.
    pub format: TileFormat,
    /// Ports in a row and in a column of the detector.
    pub ports: (u32, u32),
    /// JUNGFRAU: UDP interfaces of a module; EIGER: 2 for each half module.
    pub interfaces: u32,
    /// Frames in one file of a port; 0 = no limit.
    pub frames_per_file: u64,
    /// Frames in the files of each port, as the receiver counted them.
    pub frames_in_file: Option<u64>,
    /// Planned frames of the acquisition.
    pub frames_total: Option<u64>,
    /// When the file was written, as the receiver writes it; in files of this program, when the run began.
    pub timestamp: Option<String>,
    /// Exposure, period and others, as the receiver writes them.
    pub texts: Vec<(&'static str, String)>,
    /// Keys of the detector in the configuration, if this program wrote the files.
    pub detector: Option<Value>,
    /// Facts of the run by table and key of the configuration, if this program wrote the files.
    pub facts: Option<Value>,
    /// Number of the frame with which the first image of the run begins, if this program wrote the files and knew it.
    pub first_frame: Option<u64>,
}

const DETECTOR: &str = "Konkordia Detector";
const FACTS: &str = "Konkordia Facts";
const FIRST_FRAME: &str = "Konkordia First Frame";

impl Master {
    /// Reads and checks the text of a master file.
    ///
    /// # Errors
    /// What is wrong or unknown, as a text for the user.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        let root: Value = serde_json::from_slice(text).map_err(|e| format!("it is not JSON: {e}"))?;
        if !root.is_object() {
            return Err("it is JSON, but not an object".into());
        }
        let version = root.get("Version").and_then(Value::as_f64).ok_or("it has no number 'Version'")?;
        let kind = root.get("Detector Type").and_then(Value::as_str).ok_or("it has no text 'Detector Type'")?;
        let whole = |keys: &[&str]| keys.iter().find_map(|k| root.get(*k).and_then(Value::as_u64));
        let pair = |key: &str| {
            let of = |axis: &str| root.get(key)?.get(axis)?.as_u64();
            of("x").zip(of("y")).ok_or(format!("it has no '{key}' of whole numbers x and y"))
        };
        refuse_roi(&root)?;
        let (pixels, ports) = (pair("Pixels")?, pair("Geometry")?);
        let interfaces = whole(&["Number of UDP Interfaces"]);
        let (format, interfaces) = match kind {
            "Jungfrau" => jungfrau(pixels, interfaces)?,
            "Eiger" => eiger(pixels, whole(&["Dynamic Range"]), root.get("Ten Giga").and_then(Value::as_u64) != Some(0))?,
            other => return Err(format!("its detector is '{other}'; Jungfrau and Eiger are known")),
        };
        let format = read_rows(format, whole(&["Number of rows"]));
        let bytes =
            whole(&["Image Size in bytes", "Image Size"]).ok_or("it has neither 'Image Size in bytes' nor 'Image Size'")?;
        let whole_bytes = format.whole().tile_bytes();
        if bytes != u64::from(whole_bytes) {
            return Err(format!("an image of a port has {bytes} bytes; whole ports of this detector have {whole_bytes}"));
        }
        let count = ports.0.checked_mul(ports.1).filter(|n| (1..=u64::from(PORTS_MAX)).contains(n));
        let count = count.ok_or(format!("its geometry is {} x {} ports; 1 to {PORTS_MAX} are possible", ports.0, ports.1))?;
        if count % u64::from(interfaces) != 0 {
            return Err(format!("{count} ports do not make whole modules of {interfaces} ports"));
        }
        let text = |keys: &[&str]| keys.iter().find_map(|k| root.get(*k).and_then(Value::as_str)).map(str::to_owned);
        let named = [
            ("exposure", text(&["Exptime", "Exposure Time"])),
            ("period", text(&["Period", "Acquisition Period"])),
            ("timing mode", text(&["Timing Mode"])),
        ];
        Ok(Self {
            version,
            format,
            ports: (ports.0 as u32, ports.1 as u32),
            interfaces,
            frames_per_file: whole(&["Max Frames Per File"]).unwrap_or(0),
            frames_in_file: whole(&["Frames in File"]),
            frames_total: whole(&["Total Frames"]),
            timestamp: text(&["Timestamp"]),
            texts: named.into_iter().filter_map(|(name, value)| value.map(|v| (name, v))).collect(),
            detector: root.get(DETECTOR).filter(|v| v.is_object()).cloned(),
            facts: root.get(FACTS).filter(|v| v.is_object()).cloned(),
            first_frame: whole(&[FIRST_FRAME]),
        })
    }

    /// The master file in version 7.2, which all readers know, with the names and the order of the receiver: incomplete
    /// frames are kept and padded, there is no scan and no region of interest.
    pub fn to_text(&self) -> String {
        let text = |name: &str| self.texts.iter().find(|(n, _)| *n == name).map(|(_, value)| json!(value));
        let none = u32::MAX;
        let mut keys = vec![
            ("Version", json!(WRITTEN_VERSION)),
            ("Timestamp", json!(self.timestamp.as_deref().unwrap_or("unknown"))),
            ("Detector Type", json!(if self.format.kind == DetectorKind::Jungfrau { "Jungfrau" } else { "Eiger" })),
            ("Timing Mode", text("timing mode").unwrap_or(json!("auto"))),
            ("Geometry", json!({ "x": self.ports.0, "y": self.ports.1 })),
            ("Image Size in bytes", json!(self.format.whole().tile_bytes())),
            ("Pixels", json!({ "x": self.format.columns, "y": self.format.whole_rows() })),
            ("Max Frames Per File", json!(self.frames_per_file)),
            ("Frame Discard Policy", json!("nodiscard")),
            ("Frame Padding", json!(1)),
            ("Scan Parameters", json!("[disabled]")),
        ];
        keys.extend(self.frames_total.map(|n| ("Total Frames", json!(n))));
        keys.push(("Receiver Roi", json!({ "xmin": none, "xmax": none, "ymin": none, "ymax": none })));
        if self.format.kind == DetectorKind::Eiger {
            let ten_giga = i32::from(!self.format.is_one_gigabit());
            keys.extend([("Dynamic Range", json!(self.format.bits)), ("Ten Giga", json!(ten_giga))]);
        }
        keys.extend(text("exposure").map(|v| ("Exptime", v)));
        keys.extend(text("period").map(|v| ("Period", v)));
        match self.format.kind {
            DetectorKind::Eiger => keys.push(("Number of rows", json!(self.format.rows))),
            _ => {
                let rows = self.format.module_rows();
                keys.extend([("Number of UDP Interfaces", json!(self.interfaces)), ("Number of rows", json!(rows))]);
            }
        }
        keys.extend(self.detector.clone().map(|detector| (DETECTOR, detector)));
        keys.extend(self.facts.clone().map(|facts| (FACTS, facts)));
        keys.extend(self.first_frame.map(|n| (FIRST_FRAME, json!(n))));
        keys.extend(self.frames_in_file.map(|n| ("Frames in File", json!(n))));
        let header = HEADER_FORMAT.map(|(name, bytes)| (name.to_owned(), json!(bytes)));
        keys.push(("Frame Header Format", Value::Object(header.into_iter().collect())));
        let root = Value::Object(keys.into_iter().map(|(key, value)| (key.to_owned(), value)).collect());
        format!("{root:#}\n")
    }

    /// Number of files of one port, if the master file shows it.
    pub fn sub_files(&self) -> Option<u64> {
        let frames = self.frames_in_file?;
        Some(if self.frames_per_file == 0 { 1 } else { frames.div_ceil(self.frames_per_file).max(1) })
    }
}

/// The tile with the rows that were read; a number of rows that the detector cannot read is ignored.
pub fn read_rows(format: TileFormat, rows: Option<u64>) -> TileFormat {
    rows.and_then(|rows| format.with_rows(u32::try_from(rows).ok()?)).unwrap_or(format)
}

/// Tile, and tiles per module, of a JUNGFRAU whose ports have `pixels` (x, y) pixels.
///
/// # Errors
/// What does not fit, as a text for the user.
pub fn jungfrau(pixels: (u64, u64), interfaces: Option<u64>) -> Result<(TileFormat, u32), String> {
    let by_shape = match pixels {
        (1024, 512) => 1,
        (1024, 256) => 2,
        (x, y) => return Err(format!("a port has {x} x {y} pixels; those of a JUNGFRAU have 1024 x 512 or 1024 x 256")),
    };
    if let Some(said) = interfaces.filter(|n| *n != u64::from(by_shape)) {
        return Err(format!("it announces {said} UDP interfaces, but its ports have {} x {} pixels", pixels.0, pixels.1));
    }
    Ok((TileFormat::jungfrau(by_shape).ok_or("no such JUNGFRAU")?, by_shape))
}

/// Tile, and tiles per module, of an EIGER whose ports have `pixels` (x, y) pixels.
///
/// # Errors
/// What does not fit, as a text for the user.
pub fn eiger(pixels: (u64, u64), bits: Option<u64>, ten_giga: bool) -> Result<(TileFormat, u32), String> {
    if pixels != (512, 256) {
        return Err(format!("a port has {} x {} pixels; those of an EIGER have 512 x 256", pixels.0, pixels.1));
    }
    let bits = bits.ok_or("it has no number 'Dynamic Range'")?;
    let format = u32::try_from(bits).ok().and_then(if ten_giga { TileFormat::eiger } else { TileFormat::eiger_1gbe });
    Ok((format.ok_or(format!("an EIGER has no {bits}-bit mode"))?, 4))
}

/// Refuses a region of interest: images that are cut to it are not whole tiles.
fn refuse_roi(root: &Value) -> Result<(), String> {
    let one = root.get("Receiver Roi").into_iter();
    let many = root.get("Receiver Rois").and_then(Value::as_array).into_iter().flatten();
    let none = |v: &Value| v.as_i64().is_none_or(|n| n == -1 || n == i64::from(u32::MAX));
    for roi in one.chain(many) {
        let edge = |key: &str| roi.get(key).unwrap_or(&Value::Null);
        if ["xmin", "xmax", "ymin", "ymax"].iter().all(|k| none(edge(k))) {
            continue;
        }
        let size = |key: &str, axis: &str| root.get(key).and_then(|v| v.get(axis)).and_then(Value::as_i64).unwrap_or(0);
        let whole = |low: &str, high: &str, axis: &str| {
            let end = size("Pixels", axis).checked_mul(size("Geometry", axis));
            edge(low).as_i64() == Some(0) && edge(high).as_i64().and_then(|n| n.checked_add(1)) == end
        };
        if !(whole("xmin", "xmax", "x") && whole("ymin", "ymax", "y")) {
            return Err(format!("its images are cut to a region of interest ({roi}); only whole modules can be converted"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn old() -> Value {
        json!({
            "Version": 7.2, "Timestamp": "Tue Nov 17 10:00:00 2026", "Detector Type": "Jungfrau", "Timing Mode": "auto",
            "Geometry": { "x": 1, "y": 4 }, "Image Size in bytes": 524288, "Pixels": { "x": 1024, "y": 256 },
            "Max Frames Per File": 10, "Frame Discard Policy": "nodiscard", "Frame Padding": 1, "Scan Parameters": "[disabled]",
            "Total Frames": 25, "Receiver Roi": { "xmin": 4294967295u32, "xmax": 4294967295u32, "ymin": 4294967295u32, "ymax": 4294967295u32 },
            "Exptime": "10us", "Period": "1ms", "Number of UDP Interfaces": 2, "Number of rows": 512, "Frames in File": 25
        })
    }

    fn parse(value: &Value) -> Result<Master, String> {
        Master::parse(value.to_string().as_bytes())
    }

    #[test]
    fn both_versions_say_the_same() {
        let old_master = parse(&old()).unwrap();
        let mut new = old();
        let o = new.as_object_mut().unwrap();
        for key in ["Image Size in bytes", "Exptime", "Period", "Receiver Roi", "Scan Parameters"] {
            o.remove(key);
        }
        o.insert("Version".into(), json!(8.0));
        o.insert("Image Size".into(), json!(524288));
        o.insert("Exposure Time".into(), json!("10us"));
        o.insert("Acquisition Period".into(), json!("1ms"));
        o.insert("Receiver Rois".into(), json!([{ "xmin": 0, "xmax": 1023, "ymin": 0, "ymax": 1023 }]));
        o.insert("Scan Parameters".into(), json!({ "enable": 0 }));
        let new_master = parse(&new).unwrap();
        assert_eq!((old_master.version, new_master.version), (7.2, 8.0));
        assert_eq!(Master { version: 8.0, ..old_master.clone() }, new_master);
        assert_eq!((old_master.format.rows, old_master.ports, old_master.interfaces), (256, (1, 4), 2));
        assert_eq!((old_master.sub_files(), old_master.frames_in_file, old_master.texts.len()), (Some(3), Some(25), 3));
    }

    #[test]
    fn what_is_written_is_read() {
        let jungfrau = parse(&old()).unwrap();
        let eiger = Master {
            format: TileFormat::eiger(32).unwrap(),
            ports: (2, 2),
            interfaces: 4,
            frames_in_file: None,
            frames_total: None,
            texts: vec![("timing mode", "auto".into())],
            ..jungfrau.clone()
        };
        let slow = Master { format: TileFormat::eiger_1gbe(12).unwrap().with_rows(64).unwrap(), ..eiger.clone() };
        let detector = Some(json!({ "type": "jungfrau", "geometry": "jungfrau-1m" }));
        let facts = Some(json!({ "output": { "sample_name": "lyso" }, "goniometer": { "omega_start_deg": 10.0 } }));
        let first_frame = Some(5001);
        let part = Master { format: jungfrau.format.with_rows(64).unwrap(), detector, facts, first_frame, ..jungfrau.clone() };
        for master in [jungfrau.clone(), eiger, slow, part] {
            assert_eq!(Master::parse(master.to_text().as_bytes()).unwrap(), master);
        }
        let written: Value = serde_json::from_str(&jungfrau.to_text()).unwrap();
        let same = old();
        assert!(same.as_object().unwrap().iter().all(|(key, value)| written[key] == *value), "{written:#}");
        assert_eq!(written.as_object().unwrap().len(), same.as_object().unwrap().len() + 1, "and the format of the header");
    }

    #[test]
    fn what_is_not_known_is_named() {
        let with = |key: &str, value: Value| {
            let mut master = old();
            master[key] = value;
            parse(&master).unwrap_err()
        };
        assert!(with("Detector Type", json!("Moench")).contains("'Moench'"));
        assert!(with("Pixels", json!({ "x": 400, "y": 400 })).contains("400 x 400"));
        assert!(with("Image Size in bytes", json!(100)).contains("has 100 bytes"));
        assert!(with("Geometry", json!({ "x": 1, "y": 3 })).contains("3 ports"));
        assert!(with("Geometry", json!({ "x": u64::MAX, "y": u64::MAX })).contains("geometry"));
        assert!(with("Number of UDP Interfaces", json!(1)).contains("1 UDP interfaces"));
        assert!(with("Receiver Roi", json!({ "xmin": 0, "xmax": 99, "ymin": 0, "ymax": 99 })).contains("region of interest"));
        assert!(Master::parse(b"{").unwrap_err().contains("not JSON"));
        assert!(Master::parse(b"[]").unwrap_err().contains("not an object"));
        let eiger = json!({ "Version": 7.2, "Detector Type": "Eiger", "Geometry": { "x": 2, "y": 2 }, "Pixels": { "x": 512, "y": 256 },
            "Image Size in bytes": 262144, "Dynamic Range": 16, "Ten Giga": 1 });
        assert_eq!(parse(&eiger).unwrap().format, TileFormat::eiger(16).unwrap());
    }
}
