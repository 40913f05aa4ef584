//! Reads geometries of pyFAI: `.poni` files of the versions 1, 2 and 2.1.
//!
//! Such a file is a text of lines `key: value`; lines that begin with `#` are comments, and of a key that comes again
//! the last value counts, because pyFAI adds every calibration to the end. The geometry is that of J. Kieffer and D.
//! Karkoulis, J. Phys. Conf. Ser. 425 (2013) 202012: PONI is the point of the detector plane next to the sample.

use std::str::FromStr;

use serde_json::{Map, Value};

use crate::geometry::{Geometry, Vector};

/// Names of detectors begin with these; the sizes of their pixels, metres.
const PIXELS: [(&str, f64); 3] = [("pilatus", 172e-6), ("eiger", 75e-6), ("jungfrau", 75e-6)];

/// Detectors that are not flat, or whose pixels are not on a regular grid.
const IRREGULAR: [&str; 9] = ["aarhus", "cirpad", "cylindrical", "hexagonal", "imxpad", "nexus", "pixirad", "rapid", "xpad"];

/// How the rows and columns of the image lie on the detector plane of pyFAI, as version 2.1 numbers it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Orientation {
    /// 1: rows and columns are reversed.
    BothReversed = 1,
    /// 2: rows are reversed.
    RowsReversed = 2,
    /// 3: neither is reversed; versions 1 and 2 know only this one.
    #[default]
    Plain = 3,
    /// 4: columns are reversed.
    ColumnsReversed = 4,
}

/// What a `.poni` file says.
#[derive(Clone, Debug, PartialEq)]
pub struct Poni {
    /// Edge of a pixel along the slow axis (`pixel1`), metres.
    pub pixel1_m: f64,
    /// Edge of a pixel along the fast axis (`pixel2`), metres.
    pub pixel2_m: f64,
    /// Orientation of the image.
    pub orientation: Orientation,
    /// Rows and columns of the detector, if they are given.
    pub shape: Option<[usize; 2]>,
    /// From the sample to the plane of the detector, metres.
    pub distance_m: f64,
    /// The point of normal incidence along the slow axis, metres from the corner of the detector.
    pub poni1_m: f64,
    /// The point of normal incidence along the fast axis, metres from the corner of the detector.
    pub poni2_m: f64,
    /// The three rotations `rot1`, `rot2`, `rot3`, radians.
    pub rotations_rad: [f64; 3],
    /// Wavelength, metres.
    pub wavelength_m: Option<f64>,
}

/// The lines of a file: the last value of each key, with the number of its line from 1.
struct Lines<'a>(Vec<(usize, String, &'a str)>);

impl<'a> Lines<'a> {
    fn of(text: &'a str) -> Self {
        let lines = text.lines().enumerate().filter(|(_, line)| !line.starts_with('#'));
        let pairs = lines.filter_map(|(n, line)| line.split_once(':').map(|pair| (n + 1, pair)));
        Self(pairs.map(|(n, (key, value))| (n, key.trim().to_lowercase(), value.trim())).collect())
    }

    fn get(&self, key: &str) -> Option<(usize, &'a str)> {
        self.0.iter().rev().find(|(_, name, _)| name == key).map(|(n, _, value)| (*n, *value))
    }

    fn number(&self, key: &str) -> Result<Option<f64>, String> {
        let Some((line, value)) = self.get(key) else { return Ok(None) };
        if value.eq_ignore_ascii_case("none") {
            return Ok(None);
        }
        let number = value.parse::<f64>().ok().filter(|number| number.is_finite());
        number.map(Some).ok_or_else(|| at(line, &format!("'{key}' is '{}', which is not a number", short(value))))
    }

    fn required(&self, key: &str) -> Result<f64, String> {
        self.number(key)?.ok_or_else(|| format!(".poni file: there is no line '{key}: ...'; calibrate again with pyFAI"))
    }

    fn positive(&self, key: &str) -> Result<Option<f64>, String> {
        match self.number(key)? {
            Some(number) if number <= 0.0 => {
                let line = self.get(key).map_or(0, |(line, _)| line);
                Err(at(line, &format!("'{key}' is {number}; it must be above 0")))
            }
            number => Ok(number),
        }
    }
}

fn at(line: usize, what: &str) -> String {
    format!(".poni file, line {line}: {what}")
}

/// The beginning of a text, for messages.
fn short(text: &str) -> String {
    text.chars().take(60).collect()
}

impl FromStr for Poni {
    type Err = String;

    /// Reads the text of a `.poni` file. Errors name the line, what is wrong, and what to do.
    fn from_str(text: &str) -> Result<Self, String> {
        let lines = Lines::of(text);
        let version = lines.number("poni_version")?.unwrap_or(1.0);
        let config = detector_config(&lines)?;
        if ![1.0, 2.0, 2.1].contains(&version) {
            let line = lines.get("poni_version").map_or(0, |(line, _)| line);
            return Err(at(line, &format!("version {version} is not known; versions 1, 2 and 2.1 are read")));
        }
        if let Some((line, file)) = lines.get("splinefile").filter(|(_, file)| !file.eq_ignore_ascii_case("none")) {
            return Err(at(line, &format!("distortions ('{}') are not supported; only regular pixels are", short(file))));
        }
        let [pixel1_m, pixel2_m] = pixel_sizes(&lines, &config)?;
        let distance = lines.positive("distance")?.or(lines.positive("dist")?);
        let rotation = |key| lines.number(key).map(|angle| angle.unwrap_or(0.0));
        Ok(Self {
            pixel1_m,
            pixel2_m,
            orientation: orientation(&lines, &config)?,
            shape: shape(&config),
            distance_m: distance.map_or_else(|| lines.required("distance"), Ok)?,
            poni1_m: lines.required("poni1")?,
            poni2_m: lines.required("poni2")?,
            rotations_rad: [rotation("rot1")?, rotation("rot2")?, rotation("rot3")?],
            wavelength_m: lines.positive("wavelength")?,
        })
    }
}

/// The configuration of the detector; empty if there is none, as in version 1.
fn detector_config(lines: &Lines<'_>) -> Result<Map<String, Value>, String> {
    let Some((line, text)) = lines.get("detector_config") else { return Ok(Map::new()) };
    match serde_json::from_str(text) {
        Ok(Value::Object(config)) => Ok(config),
        Ok(_) => Err(at(line, "'detector_config' is not an object of JSON ({\"pixel1\": ...})")),
        Err(error) => Err(at(line, &format!("'detector_config' is not JSON: {error}"))),
    }
}

fn orientation(lines: &Lines<'_>, config: &Map<String, Value>) -> Result<Orientation, String> {
    let line = lines.get("detector_config").map_or(0, |(line, _)| line);
    match config.get("orientation") {
        None | Some(Value::Null) => Ok(Orientation::Plain),
        Some(value) => match value.as_u64() {
            Some(1) => Ok(Orientation::BothReversed),
            Some(2) => Ok(Orientation::RowsReversed),
            // 0 is not specified; pyFAI takes it for 3.
            Some(0 | 3) => Ok(Orientation::Plain),
            Some(4) => Ok(Orientation::ColumnsReversed),
            _ => Err(at(line, &format!("'orientation' is {value}; it must be 1, 2, 3 or 4"))),
        },
    }
}

fn shape(config: &Map<String, Value>) -> Option<[usize; 2]> {
    let [rows, columns] = config.get("max_shape")?.as_array()?.as_slice() else { return None };
    Some([usize::try_from(rows.as_u64()?).ok()?, usize::try_from(columns.as_u64()?).ok()?])
}

/// Edges of a pixel along the slow and the fast axis: as they are given, else those of the detector.
fn pixel_sizes(lines: &Lines<'_>, config: &Map<String, Value>) -> Result<[f64; 2], String> {
    let (line, name) = lines.get("detector").unwrap_or((0, "Detector"));
    let plain: String = name.to_lowercase().chars().filter(char::is_ascii_alphanumeric).collect();
    if let Some(kind) = IRREGULAR.iter().find(|kind| plain.starts_with(*kind)) {
        return Err(at(line, &format!("detector '{}': detectors of the kind {kind} are not supported", short(name))));
    }
    let of_detector = PIXELS.iter().find(|(kind, _)| plain.starts_with(kind)).map(|(_, size)| *size);
    let one = |in_config: &str, in_lines: &str| -> Result<f64, String> {
        if let Some(value) = config.get(in_config).filter(|value| !value.is_null()) {
            let line = lines.get("detector_config").map_or(0, |(line, _)| line);
            let size = value.as_f64().filter(|size| *size > 0.0 && size.is_finite());
            return size.ok_or_else(|| at(line, &format!("'{in_config}' is {value}; it must be metres above 0")));
        }
        let size = lines.positive(in_lines)?.or(of_detector);
        size.ok_or_else(|| {
            let what = format!("the size of the pixels of '{}' is not known", short(name));
            at(line, &format!("{what}; add pixel1 and pixel2 (metres) to Detector_config"))
        })
    };
    Ok([one("pixel1", "pixelsize1")?, one("pixel2", "pixelsize2")?])
}

impl Poni {
    /// The geometry for images of so many rows and columns.
    ///
    /// # Errors
    /// If the calibration was made for images of another shape, or as [`Geometry::new`].
    pub fn geometry(&self, [rows, columns]: [usize; 2]) -> Result<Geometry, String> {
        if let Some([of_rows, of_columns]) = self.shape.filter(|shape| *shape != [rows, columns]) {
            let calibrated = format!("the calibration was made for images of {of_rows} rows and {of_columns} columns");
            return Err(format!(".poni file: {calibrated}, these have {rows} and {columns}; calibrate again"));
        }
        let [(s1, c1), (s2, c2), (s3, c3)] = self.rotations_rad.map(f64::sin_cos);
        // Steps of one metre along the first and the second axis of pyFAI, and the way to the PONI, turned. pyFAI's
        // axes are y, -x and z of the laboratory.
        let slow = laboratory([c2 * c3, c2 * s3, s2]);
        let fast = laboratory([c3 * s1 * s2 - c1 * s3, c1 * c3 + s1 * s2 * s3, -c2 * s1]);
        let ahead = laboratory([-(c1 * c3 * s2 + s1 * s3), c3 * s1 - c1 * s2 * s3, c1 * c2]);
        let is_row_reversed = matches!(self.orientation, Orientation::BothReversed | Orientation::RowsReversed);
        let is_column_reversed = matches!(self.orientation, Orientation::BothReversed | Orientation::ColumnsReversed);
        let axis = |count: usize, pixel_m: f64, poni_m: f64, is_reversed: bool| {
            let end_m = if is_reversed { count as f64 * pixel_m } else { 0.0 };
            (end_m - poni_m, if is_reversed { -pixel_m } else { pixel_m })
        };
        let (first1_m, step1_m) = axis(rows, self.pixel1_m, self.poni1_m, is_row_reversed);
        let (first2_m, step2_m) = axis(columns, self.pixel2_m, self.poni2_m, is_column_reversed);
        let origin: Vector = std::array::from_fn(|n| first1_m * slow[n] + first2_m * fast[n] + self.distance_m * ahead[n]);
        let mm = |vector: Vector, scale: f64| vector.map(|component| component * scale * 1000.0);
        let wavelength = self.wavelength_m.map(|metres| metres * 1e10);
        Geometry::new([rows, columns], mm(origin, 1.0), mm(fast, step2_m), mm(slow, step1_m), wavelength)
    }
}

/// A vector along the axes 1, 2 and 3 of pyFAI in the laboratory.
fn laboratory([up, right, along]: Vector) -> Vector {
    [-right, up, along]
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "# Calibration done at Fri Feb 27\nPixelSize1: 0.000172\nPixelSize2: 0.000150\nDistance: 0.2\n\
        Poni1: 0.087\nPoni2: 0.08\nRot1: -0.018\nRot2: 0.004\nRot3: -2.7e-08\nSplineFile: None\nWavelength: 4.066e-11\n";

    const NEW: &str = "poni_version: 2.1\nDetector: Eiger4M\nDetector_config: {\"orientation\": 2}\nDistance: 0.1\n\
        Poni1: 0.05\nPoni2: 0.04\nRot1: 0\nRot2: 0\nRot3: 0\nWavelength: 1e-10\n";

    fn error(text: &str) -> String {
        text.parse::<Poni>().unwrap_err()
    }

    #[test]
    fn versions_1_and_2() {
        let old: Poni = OLD.parse().unwrap();
        assert_eq!((old.pixel1_m, old.pixel2_m, old.distance_m), (0.000172, 0.000150, 0.2));
        assert_eq!((old.poni1_m, old.poni2_m), (0.087, 0.08));
        assert_eq!((old.rotations_rad, old.wavelength_m), ([-0.018, 0.004, -2.7e-8], Some(4.066e-11)));
        let new: Poni = NEW.parse().unwrap();
        assert_eq!((new.pixel1_m, new.pixel2_m, new.orientation), (75e-6, 75e-6, Orientation::RowsReversed));
        let config = "{\"pixel1\": 5e-05, \"pixel2\": 6e-05, \"max_shape\": [10, 20], \"orientation\": 3}";
        let text = NEW.replace("Eiger4M", "Detector").replace("{\"orientation\": 2}", config);
        let plain: Poni = text.parse().unwrap();
        assert_eq!((plain.pixel1_m, plain.pixel2_m, plain.shape), (5e-5, 6e-5, Some([10, 20])));
        assert!(plain.geometry([10, 20]).is_ok());
        assert!(plain.geometry([20, 10]).unwrap_err().contains("10 rows and 20 columns"));
        // The last calibration counts.
        assert_eq!(format!("{OLD}{}", OLD.replace("0.2\n", "0.3\n")).parse::<Poni>().unwrap().distance_m, 0.3);
        assert_eq!(OLD.replace('\n', "\r\n").parse::<Poni>().unwrap(), old);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        assert!(error("").contains("size of the pixels"));
        assert!(error(&OLD.replace("Distance: 0.2\n", "")).contains("'distance: ...'"));
        assert!(error(&OLD.replace("0.087", "far")).contains("line 5: 'poni1' is 'far'"));
        assert!(error(&OLD.replace("0.087", "NaN")).contains("line 5"));
        assert!(error(&OLD.replace("Distance: 0.2", "Distance: -0.2")).contains("line 4"));
        assert!(error(&OLD.replace("SplineFile: None", "SplineFile: a.spline")).contains("line 10"));
        assert!(error(&NEW.replace("2.1", "3")).contains("line 1: version 3"));
        assert!(error(&NEW.replace("{\"orientation\": 2}", "{\"orientation\": 7}")).contains("line 3: 'orientation' is 7"));
        assert!(error(&NEW.replace("{\"orientation\": 2}", "{orientation")).contains("line 3"));
        assert!(error(&NEW.replace("{\"orientation\": 2}", "[1]")).contains("line 3"));
        assert!(error(&NEW.replace("{\"orientation\": 2}", "{\"pixel1\": -1}")).contains("'pixel1' is -1"));
        assert!(error(&NEW.replace("Eiger4M", "Frelon")).contains("line 2: the size of the pixels of 'Frelon'"));
        assert!(error(&NEW.replace("Eiger4M", "ImXPadS140")).contains("imxpad"));
    }

    #[test]
    fn rows_of_a_flat_detector_run_up_or_down() {
        let at = |orientation: &str, x: f64, y: f64| {
            let text = NEW.replace("\"orientation\": 2", &format!("\"orientation\": {orientation}"));
            let geometry = text.parse::<Poni>().unwrap().geometry([1000, 800]).unwrap();
            geometry.position_mm(x, y).map(|mm| (mm * 1e6).round() / 1e6)
        };
        // 0.075 mm a pixel; PONI at column 533.33 and row 666.67; the image is 60 mm wide and 75 mm high.
        assert_eq!(at("3", 0.0, 0.0), [40.0, -50.0, 100.0]);
        assert_eq!(at("3", 10.0, 20.0), [39.25, -48.5, 100.0]);
        assert_eq!(at("2", 10.0, 20.0), [39.25, 23.5, 100.0]);
        assert_eq!(at("1", 10.0, 20.0), [-19.25, 23.5, 100.0]);
        assert_eq!(at("4", 10.0, 20.0), [-19.25, -48.5, 100.0]);
    }
}
