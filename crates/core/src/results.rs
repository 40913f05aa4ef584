//! Results of an image: named numbers and small arrays that are computed where its pixels are in memory anyway. They
//! travel with the image into the file, to consumers, to HTTP and to metrics.
//!
//! A [`ResultKind`] says what one result is. The kinds of a run are fixed at arm, so every image has the same ones, and
//! their memory is known. To add a result, add its kind here and fill it where the pixels are; everybody behind takes
//! what is listed.

use crate::frame_header::ColumnType;
use crate::pixel::PixelType;
use serde_json::{Map, Value};
use std::sync::Arc;

/// What one result is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResultKind {
    /// Name of the column, of the key and of the metric: letters, digits and underscores.
    pub name: &'static str,
    /// Type of its numbers, one of those of 8 bytes.
    pub number: ColumnType,
    /// Numbers per image; 1 for a single one.
    pub length: usize,
    /// Unit of the numbers.
    pub unit: &'static str,
    /// What it means, in one line.
    pub meaning: &'static str,
    /// The result that says how many of the numbers are used in an image, if not all are.
    pub counted_by: Option<&'static str>,
}

impl ResultKind {
    /// True for one number per image, false for a list.
    pub fn is_single(&self) -> bool {
        self.length == 1 && self.counted_by.is_none()
    }
}

/// Numbers of an image with results of these kinds; the largest number if that is more.
pub fn numbers(kinds: &[ResultKind]) -> usize {
    kinds.iter().fold(0, |all, kind| all.saturating_add(kind.length))
}

/// Where the numbers of the result of this name begin among those of all `kinds`; `None` if it is not among them.
pub fn place(kinds: &[ResultKind], name: &str) -> Option<usize> {
    let before = kinds.iter().position(|kind| kind.name == name)?;
    Some(numbers(&kinds[..before]))
}

/// Most numbers that the results of one image may have together.
pub const RESULT_NUMBERS_MAX: usize = 16_384;

/// Most of these that analysis may add.
pub const ANALYSIS_NUMBERS_MAX: usize = RESULT_NUMBERS_MAX - PIXEL_RESULTS - metadata::ALL.len() - indexing::NUMBERS;

/// Numbers per image of [`pixel_results`].
pub const PIXEL_RESULTS: usize = 6;

/// One number of each image.
pub(crate) const fn of_image(name: &'static str, number: ColumnType, unit: &'static str, meaning: &'static str) -> ResultKind {
    ResultKind { name, number, length: 1, unit, meaning, counted_by: None }
}

const fn count(name: &'static str, meaning: &'static str) -> ResultKind {
    of_image(name, ColumnType::U64, "pixel", meaning)
}

const fn value(name: &'static str, number: ColumnType, meaning: &'static str) -> ResultKind {
    of_image(name, number, "pixel value", meaning)
}

const fn of_pixels(number: ColumnType) -> [ResultKind; PIXEL_RESULTS] {
    [
        count("valid_pixels", "pixels that hold a measurement"),
        count("missing_pixels", "pixels whose packet did not arrive"),
        count("saturated_pixels", "pixels above the range"),
        value("min_value", number, "lowest valid value; 0 if no pixel is valid"),
        value("max_value", number, "highest valid value; 0 if no pixel is valid"),
        value("sum_value", number, "sum of the valid values"),
    ]
}

static OF_INTEGERS: [ResultKind; PIXEL_RESULTS] = of_pixels(ColumnType::I64);
static OF_FLOATS: [ResultKind; PIXEL_RESULTS] = of_pixels(ColumnType::F64);

/// What is said of the pixels of every image that workers convert: in this order the number of valid, missing and
/// saturated pixels, and the lowest, the highest and the sum of the valid values.
pub fn pixel_results(pixel: PixelType) -> &'static [ResultKind; PIXEL_RESULTS] {
    if pixel.is_float() { &OF_FLOATS } else { &OF_INTEGERS }
}

/// Whether this is the name of a result of the pixels.
pub fn is_of_pixels(name: &str) -> bool {
    OF_INTEGERS.iter().any(|kind| kind.name == name)
}

/// Where the results of the pixels stand among others.
#[derive(Clone, Copy, Debug)]
pub struct PixelPlace {
    at: usize,
    value: ColumnType,
}

/// Some results of the pixels of an image.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OfPixels {
    /// Pixels that hold a measurement.
    pub valid: u64,
    /// Pixels whose packet did not arrive.
    pub missing: u64,
    /// Pixels above the range.
    pub saturated: u64,
    /// The highest valid value.
    pub highest: Option<f64>,
}

impl PixelPlace {
    /// In images with results of these kinds; `None` if those of the pixels are not among them.
    pub fn find(kinds: &[ResultKind]) -> Option<Self> {
        let before = kinds.iter().take_while(|kind| kind.name != OF_INTEGERS[0].name);
        let (count, at) = before.fold((0, 0), |(count, at), kind| (count + 1, at + kind.length));
        let own = kinds.get(count..count + PIXEL_RESULTS)?;
        own.iter().zip(&OF_INTEGERS).all(|(kind, same)| kind.name == same.name).then(|| Self { at, value: own[4].number })
    }

    /// The place of the first of them.
    pub fn begin(&self) -> usize {
        self.at
    }

    /// Of an image with these numbers.
    pub fn read(&self, bits: &[u64]) -> OfPixels {
        let [valid, missing, saturated, _, highest, _] = std::array::from_fn(|n| bits[self.at + n]);
        let highest = (valid > 0).then(|| self.value.number(highest).to_f64());
        OfPixels { valid, missing, saturated, highest }
    }
}

/// What is known of an image beside its pixels ([`crate::image_metadata`]).
pub mod metadata {
    use super::{ColumnType, ResultKind, of_image};

    /// Angle at the beginning of the exposure.
    pub const ANGLE: ResultKind =
        of_image("angle_deg", ColumnType::F64, "deg", "angle of the turning axis as the exposure begins");
    /// Column in the raster.
    pub const RASTER_COLUMN: ResultKind =
        of_image("raster_column", ColumnType::U64, "", "column of the image in the raster, from 0");
    /// Row in the raster.
    pub const RASTER_ROW: ResultKind = of_image("raster_row", ColumnType::U64, "", "row of the image in the raster, from 0");
    /// Position of the sample.
    pub const SAMPLE_X: ResultKind =
        of_image("sample_x_um", ColumnType::F64, "um", "position of the sample along x; NaN if it is unknown");
    /// Position of the sample.
    pub const SAMPLE_Y: ResultKind =
        of_image("sample_y_um", ColumnType::F64, "um", "position of the sample along y; NaN if it is unknown");
    /// Number of the pulse.
    pub const PULSE: ResultKind = of_image("pulse_id", ColumnType::U64, "", "number of the pulse or bunch; 0 if it is unknown");
    /// Energy of the photons.
    pub const ENERGY: ResultKind =
        of_image("energy_kev", ColumnType::F64, "keV", "photon energy of the image; NaN if it is unknown");

    /// All of them.
    pub const ALL: [ResultKind; 7] = [ANGLE, RASTER_COLUMN, RASTER_ROW, SAMPLE_X, SAMPLE_Y, PULSE, ENERGY];
}

/// What an indexing program says of an image.
pub mod indexing {
    use super::{ColumnType, ResultKind, of_image as kind};

    use ColumnType::{F64, U64};

    /// [`OUTCOME`] of an image that was answered.
    pub const ANSWERED: u64 = 1;
    /// [`OUTCOME`] of an image that got no answer, or one that cannot be.
    pub const UNANSWERED: u64 = 2;

    /// 1 if the image was indexed.
    pub const IS_INDEXED: ResultKind = kind("is_indexed", U64, "", "1 if the indexing program found a lattice");
    /// What became of the question.
    pub const OUTCOME: ResultKind = kind(
        "indexing_outcome",
        U64,
        "",
        "0: the indexing program was not asked (few spots); 1: it answered; 2: it gave no answer, or one that cannot be",
    );
    /// Edges of the cell.
    pub const CELL_LENGTHS: ResultKind = ResultKind {
        length: 3,
        ..kind("cell_length_angstrom", F64, "angstrom", "a, b and c of the unit cell; NaN if the image is not indexed")
    };
    /// Angles of the cell.
    pub const CELL_ANGLES: ResultKind = ResultKind {
        length: 3,
        ..kind("cell_angle_deg", F64, "deg", "alpha, beta and gamma of the unit cell; NaN if the image is not indexed")
    };
    /// Orientation of the crystal.
    pub const MATRIX: ResultKind = ResultKind {
        length: 9,
        ..kind("orientation_matrix", F64, "1/angstrom", "a*, b* and c* in the laboratory, one after the other; NaN if not known")
    };

    /// All of them.
    pub const ALL: [ResultKind; 5] = [IS_INDEXED, OUTCOME, CELL_LENGTHS, CELL_ANGLES, MATRIX];
    /// Their numbers together.
    pub const NUMBERS: usize = IS_INDEXED.length + OUTCOME.length + CELL_LENGTHS.length + CELL_ANGLES.length + MATRIX.length;
}

/// What analysis says of an image.
pub mod analysis {
    use super::{ColumnType, ResultKind, of_image as kind};

    const fn of_spots(name: &'static str, number: ColumnType, unit: &'static str, meaning: &'static str) -> ResultKind {
        ResultKind { counted_by: Some(STORED_SPOTS.name), ..kind(name, number, unit, meaning) }
    }

    use ColumnType::{F64, U64};

    /// 1 if the image was analysed.
    pub const IS_ANALYSED: ResultKind =
        kind("is_analysed", U64, "", "1 if the image was analysed; 0 if it was not: then all that analysis says is 0");
    /// Spots found.
    pub const SPOTS: ResultKind = kind("spots", U64, "", "Bragg spots that were found");
    /// Those on rings of ice.
    pub const SPOTS_ON_ICE: ResultKind = kind("spots_on_ice", U64, "", "stored spots that lie on rings of ice");
    /// How far they reach.
    pub const RESOLUTION: ResultKind =
        kind("resolution_angstrom", F64, "angstrom", "spacing that 95 % of the spots beside ice exceed; NaN for few spots");
    /// Hit or not.
    pub const IS_HIT: ResultKind = kind("is_hit", U64, "", "1 if the image is a hit by the rule of the recipe");
    /// Rejected by the rule of the veto or not.
    pub const IS_REJECTED: ResultKind =
        kind("is_rejected", U64, "", "1 if the rule of the veto rejects the image, whether it is dropped or not");
    /// Salt or not.
    pub const IS_SALT: ResultKind = kind("is_salt", U64, "", "1 if the image shows salt: few spots, all strong, none coarse");
    /// Ice or not.
    pub const IS_ICE: ResultKind =
        kind("is_ice", U64, "", "1 if the image shows ice: more spots on its rings than lie there by chance");
    /// Background beside the spots.
    pub const BACKGROUND: ResultKind =
        kind("background", F64, "pixel value", "mean of the valid pixels beside the spots; NaN without such a pixel");
    /// Spots in the lists; the name is that of CXI files.
    pub const STORED_SPOTS: ResultKind = kind("nPeaks", U64, "", "spots in the lists (CXI)");
    /// Column of each.
    pub const SPOT_X: ResultKind = of_spots(
        "peakXPosRaw",
        F64,
        "pixel",
        "position of each spot along the fast axis, 0 is the centre of the first pixel (CXI)",
    );
    /// Row of each.
    pub const SPOT_Y: ResultKind = of_spots(
        "peakYPosRaw",
        F64,
        "pixel",
        "position of each spot along the slow axis, 0 is the centre of the first pixel (CXI)",
    );
    /// Intensity of each.
    pub const SPOT_INTENSITY: ResultKind = of_spots("peakTotalIntensity", F64, "pixel value", "intensity of each spot (CXI)");
    /// The powder profile.
    pub const PROFILE: ResultKind =
        kind("profile_intensity", F64, "pixel value", "mean intensity of a pixel by bin of the profile");
    /// Its standard deviation.
    pub const PROFILE_SIGMA: ResultKind = kind("profile_sigma", F64, "pixel value", "standard deviation of profile_intensity");
    /// The cake.
    pub const CAKE: ResultKind =
        kind("cake_intensity", F64, "pixel value", "mean intensity of a pixel by bin of the cake, one azimuth after the other");
    /// Its standard deviation.
    pub const CAKE_SIGMA: ResultKind = kind("cake_sigma", F64, "pixel value", "standard deviation of cake_intensity");
    /// Shift of the beam, columns.
    pub const BEAM_SHIFT_X: ResultKind = kind(
        "beam_shift_x_px",
        F64,
        "pixel",
        "true beam centre minus that of the geometry, along the fast axis; NaN if not known",
    );
    /// Shift of the beam, rows.
    pub const BEAM_SHIFT_Y: ResultKind = kind(
        "beam_shift_y_px",
        F64,
        "pixel",
        "true beam centre minus that of the geometry, along the slow axis; NaN if not known",
    );
    /// Pixels of each region.
    pub const REGION_PIXELS: ResultKind = kind("region_pixels", U64, "pixel", "valid pixels of each region");
    /// Their sum.
    pub const REGION_SUM: ResultKind = kind("region_sum", F64, "pixel value", "sum of the valid pixels of each region");
    /// Their maximum.
    pub const REGION_MAX: ResultKind =
        kind("region_max", F64, "pixel value", "highest valid pixel of each region; NaN without a valid pixel");
    /// Centre of mass, column.
    pub const REGION_X: ResultKind =
        kind("region_x_px", F64, "pixel", "centre of mass of each region along the fast axis; NaN without counts");
    /// Centre of mass, row.
    pub const REGION_Y: ResultKind =
        kind("region_y_px", F64, "pixel", "centre of mass of each region along the slow axis; NaN without counts");
    /// Pixels above the level.
    pub const PIXELS_ABOVE: ResultKind = kind("pixels_above", U64, "pixel", "valid pixels above the level of the recipe");
    /// Those in the lists.
    pub const STORED_ABOVE: ResultKind = kind("pixels_above_stored", U64, "pixel", "pixels above the level in the lists");
    /// Where each is.
    pub const ABOVE_INDEX: ResultKind = ResultKind {
        counted_by: Some(STORED_ABOVE.name),
        ..kind("pixels_above_index", U64, "", "each pixel above the level: row * columns + column, ascending")
    };
    /// The value of each.
    pub const ABOVE_VALUE: ResultKind = ResultKind {
        counted_by: Some(STORED_ABOVE.name),
        ..kind("pixels_above_value", F64, "pixel value", "value of each pixel above the level")
    };

    /// What the model of the recipe says.
    pub const MODEL_SCORE: ResultKind =
        kind("model_score", F64, "", "what the model of the recipe says of the image; NaN if it gave no score");

    /// All of them.
    pub const ALL: [ResultKind; 29] = [
        IS_ANALYSED,
        SPOTS,
        SPOTS_ON_ICE,
        RESOLUTION,
        IS_SALT,
        IS_ICE,
        BACKGROUND,
        IS_HIT,
        IS_REJECTED,
        STORED_SPOTS,
        SPOT_X,
        SPOT_Y,
        SPOT_INTENSITY,
        PROFILE,
        PROFILE_SIGMA,
        CAKE,
        CAKE_SIGMA,
        BEAM_SHIFT_X,
        BEAM_SHIFT_Y,
        REGION_PIXELS,
        REGION_SUM,
        REGION_MAX,
        REGION_X,
        REGION_Y,
        PIXELS_ABOVE,
        STORED_ABOVE,
        ABOVE_INDEX,
        ABOVE_VALUE,
        MODEL_SCORE,
    ];
}

/// What a column of this name means; `None` if no result has this name.
pub fn meaning(name: &str) -> Option<&'static str> {
    OF_INTEGERS
        .iter()
        .chain(&metadata::ALL)
        .chain(&analysis::ALL)
        .chain(&indexing::ALL)
        .find(|kind| kind.name == name)
        .map(|kind| kind.meaning)
}

/// The kind of a column of this name and type with so many numbers per image; `None` if no result is like it.
pub fn known(name: &str, number: ColumnType, length: usize) -> Option<ResultKind> {
    let all = OF_INTEGERS.iter().chain(&OF_FLOATS).chain(&metadata::ALL).chain(&analysis::ALL).chain(&indexing::ALL);
    all.copied().find(|kind| kind.name == name && kind.number == number).map(|kind| ResultKind { length, ..kind })
}

/// The results of one image. Takes no memory in an image that never has any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageResults(Option<Box<Numbers>>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Numbers {
    kinds: Arc<[ResultKind]>,
    /// The bits of all numbers, kind after kind; zeros while there are none.
    bits: Box<[u64]>,
    is_there: bool,
}

impl ImageResults {
    /// Results of these kinds, none of them there yet.
    pub fn new(kinds: Arc<[ResultKind]>) -> Self {
        let numbers = numbers(&kinds);
        Self((numbers > 0).then(|| Box::new(Numbers { kinds, bits: vec![0; numbers].into(), is_there: false })))
    }

    /// The image has no results, for example because it has no pixels.
    pub fn clear(&mut self) {
        if let Some(numbers) = &mut self.0 {
            numbers.bits.fill(0);
            numbers.is_there = false;
        }
    }

    /// The bits of all numbers, kind after kind, to be written.
    pub fn fill(&mut self) -> &mut [u64] {
        let Some(numbers) = &mut self.0 else { return &mut [] };
        numbers.is_there = true;
        &mut numbers.bits
    }

    /// The bits of all numbers, kind after kind; zeros if there are no results.
    pub fn bits(&self) -> &[u64] {
        self.0.as_ref().map_or(&[], |numbers| &numbers.bits)
    }

    /// True if there are results.
    pub fn is_there(&self) -> bool {
        self.0.as_ref().is_some_and(|numbers| numbers.is_there)
    }

    /// Each kind with the bits of its numbers; nothing if there are no results.
    pub fn iter(&self) -> impl Iterator<Item = (&ResultKind, &[u64])> {
        let mut rest = self.bits();
        let kinds = self.0.iter().filter(|numbers| numbers.is_there).flat_map(|numbers| numbers.kinds.iter());
        kinds.map(move |kind| {
            let (own, after) = rest.split_at(kind.length);
            rest = after;
            (kind, own)
        })
    }

    /// Entries of a list that are used.
    fn used(&self, kind: &ResultKind) -> usize {
        let counts = kind.counted_by.map(|name| self.iter().find(|(other, _)| other.name == name).map_or(0, |(_, bits)| bits[0]));
        counts.map_or(kind.length, |count| usize::try_from(count).unwrap_or(usize::MAX))
    }

    /// The results as a JSON object: a number, or a list if a result is an array, without entries that are not used. A
    /// number that JSON cannot express (NaN, infinity) is null.
    pub fn to_json(&self) -> Map<String, Value> {
        let number = |kind: &ResultKind, bits: u64| Value::from(kind.number.number(bits));
        let value = |(kind, bits): (&ResultKind, &[u64])| match bits {
            [one] if kind.is_single() => number(kind, *one),
            all => all.iter().take(self.used(kind)).map(|bits| number(kind, *bits)).collect(),
        };
        self.iter().map(|result| (result.0.name.to_owned(), value(result))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const GLOW: ResultKind = ResultKind { length: 3, ..value("glow", ColumnType::F64, "") };
    const MANY: ResultKind = ResultKind { length: 4, counted_by: Some("missing_pixels"), ..value("many", ColumnType::U64, "") };

    #[test]
    fn results_are_there_only_after_they_were_filled_in() {
        let kinds: Vec<_> = pixel_results(PixelType::Int16).iter().copied().chain([GLOW, MANY]).collect();
        let mut results = ImageResults::new(kinds.into());
        assert_eq!((results.bits(), results.iter().count()), (&[0; 13][..], 0));
        let numbers = [7, 1, 2, (-3i64).cast_unsigned(), 9, 40].into_iter();
        let glow = [0.5, f64::NAN, -1.0].map(f64::to_bits);
        results.fill().iter_mut().zip(numbers.chain(glow).chain([5; 4])).for_each(|(bits, number)| *bits = number);
        let expected = json!({"valid_pixels": 7, "missing_pixels": 1, "saturated_pixels": 2, "min_value": -3,
            "max_value": 9, "sum_value": 40, "glow": [0.5, null, -1.0], "many": [5]});
        assert_eq!(Value::from(results.to_json()), expected);
        results.clear();
        assert_eq!((results.bits(), results.to_json().len()), (&[0; 13][..], 0));
    }

    #[test]
    fn results_of_pixels_are_found_behind_others() {
        let kinds: Vec<_> = [GLOW].into_iter().chain(pixel_results(PixelType::Int16).iter().copied()).collect();
        let place = PixelPlace::find(&kinds).unwrap();
        let bits = [1, 2, 3, 70, 20, 1, (-9i64).cast_unsigned(), (-4i64).cast_unsigned(), 5];
        assert_eq!(place.read(&bits), OfPixels { valid: 70, missing: 20, saturated: 1, highest: Some(-4.0) });
        let nothing = [0; 9];
        assert_eq!(place.read(&nothing).highest, None);
        assert!(PixelPlace::find(&kinds[..6]).is_none() && PixelPlace::find(&[GLOW]).is_none());
    }

    #[test]
    fn names_are_names_of_columns_and_differ() {
        for pixels in [pixel_results(PixelType::Uint32), pixel_results(PixelType::Float32)] {
            let kinds: Vec<_> = pixels.iter().chain(&metadata::ALL).chain(&analysis::ALL).collect();
            for (n, kind) in kinds.iter().enumerate() {
                assert!(kind.name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'), "{}", kind.name);
                assert!(kinds[..n].iter().all(|other| other.name != kind.name));
                assert_eq!(meaning(kind.name), Some(kind.meaning));
                assert_eq!((ColumnType::from_name(kind.number.name()), kind.number.bytes()), (Some(kind.number), 8));
            }
        }
    }
}
