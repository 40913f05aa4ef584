//! Where pixels and modules lie, and why pixels are masked.

use super::drawing::Drawing;
use super::run_mask::RunMask;
use konkordia_calibration::reasons::{NXMX_GAP, NXMX_USER, REASONS};
use konkordia_config::service::{DetectorConfig, DetectorKindConfig};
use konkordia_config::transform::TransformOptions;
use konkordia_core::geometry::{DoublePixels, ImageGeometry, Part, TilePlace, modules_of};
use konkordia_core::tile::{DetectorKind, TileFormat};
use konkordia_core::xds::readable_bits;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Rows and columns of a chip, of all detectors whose chips are known.
const CHIP: u32 = 256;

/// Bits of the NXmx pixel mask that have a meaning, but for that of people.
const WORDS: [(u32, &str); 7] = [
    (0, "gap"),
    (1, "dead"),
    (2, "under-responding"),
    (3, "over-responding"),
    (4, "noisy"),
    (6, "part of a cluster"),
    (31, "virtual pixel"),
];

/// The modules of a detector in the image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ModuleList {
    /// Name of the detector.
    pub detector: String,
    /// Rows of the image; absent if they are not known yet.
    pub rows: Option<u64>,
    /// Columns of the image.
    pub columns: Option<u64>,
    /// The modules. What lies between them is a gap. A detector that sends whole images counts as one module.
    pub modules: Vec<ModulePlace>,
}

/// One module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ModulePlace {
    /// From 0.
    pub index: u64,
    /// For people.
    pub name: String,
    /// First column in the image.
    pub column: u64,
    /// First row.
    pub row: u64,
    /// Columns that it takes, with the gaps between its chips.
    pub columns: u64,
    /// Rows that it takes.
    pub rows: u64,
    /// Its tiles, each of which one UDP port sends; none where whole images are sent.
    pub tiles: Vec<TileOfModule>,
}

/// A tile in the image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TileOfModule {
    /// First column in the image.
    pub column: u64,
    /// First row.
    pub row: u64,
    /// Columns that it takes.
    pub columns: u64,
    /// Rows that it takes.
    pub rows: u64,
    /// Its first row is the lowest, before it is turned.
    pub flip_rows: bool,
    /// Turn, clockwise: 0, 90, 180 or 270.
    pub rotate_deg: u32,
}

/// What is known of a pixel of the image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PixelFacts {
    /// Name of the detector.
    pub detector: String,
    /// Column in the image.
    pub column: u64,
    /// Row in the image.
    pub row: u64,
    /// Index of its module; absent between modules, and where whole images are sent.
    pub module: Option<u64>,
    /// Column in the module as it is read, before it is turned; absent in gaps between its chips.
    pub module_column: Option<u64>,
    /// Row in the module.
    pub module_row: Option<u64>,
    /// Its chip, counted row by row in the module from 0; absent if the chips are not known.
    pub chip: Option<u64>,
    /// Its bits in the pixel mask of the newest run, as the file has them (docs/formats.md); absent before the first.
    pub mask: Option<u32>,
    /// Why it is masked, in words; empty if it is not. A mask that is drawn but not in force says so.
    pub reasons: Vec<String>,
    /// What the drawn mask has to do with it; absent: nothing.
    pub user_mask: Option<UserMaskState>,
}

/// Since when, or until when, people have masked a pixel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum UserMaskState {
    /// In the newest run, and in the next.
    InForce,
    /// It is drawn, but the newest run does not have it.
    FromNextRun,
    /// It is not drawn any more, but the newest run has it.
    UntilNextRun,
}

impl UserMaskState {
    fn of(run: Option<&RunMask>, drawing: &Drawing, [column, row]: [u64; 2]) -> Option<Self> {
        let is_drawn = drawing.mask.as_ref().is_some_and(|mask| mask.has(column, row));
        match (run.is_some_and(|run| run.is_user(column, row)), is_drawn) {
            (true, true) => Some(Self::InForce),
            (false, true) => Some(Self::FromNextRun),
            (true, false) => Some(Self::UntilNextRun),
            (false, false) => None,
        }
    }

    const fn words(self) -> &'static str {
        match self {
            Self::InForce => "user",
            Self::FromNextRun => "user, from the next run on",
            Self::UntilNextRun => "user, until the next run",
        }
    }
}

/// The image of a detector, as far as its configuration says how it is made.
pub(super) enum ImagePlace {
    /// Of tiles, which are those of these modules.
    Tiles(Box<ImageGeometry>, Vec<ModulePlace>),
    /// Whole images, whose rows and columns may be known, and a part of them that the configuration masks.
    Whole(Option<[usize; 2]>, Option<MaskedRectangle>),
}

/// `[transform] mask_rectangle` in images that are binned afterwards.
pub(super) struct MaskedRectangle {
    /// First row, first column, rows, columns.
    rectangle: [u64; 4],
    /// Rows and columns that are binned into one: a square with one masked pixel is masked.
    bin: [u64; 2],
}

impl MaskedRectangle {
    fn of(options: &TransformOptions) -> Option<Self> {
        let bin = options.bin.unwrap_or([1, 1]).map(u64::from);
        options.mask_rectangle.map(|rectangle| Self { rectangle: rectangle.map(u64::from), bin })
    }

    fn has(&self, [column, row]: [u64; 2]) -> bool {
        let [first_row, first_column, rows, columns] = self.rectangle;
        let meets = |at: u64, bin: u64, first: u64, many: u64| at * bin < first + many && (at + 1) * bin > first;
        meets(row, self.bin[0], first_row, rows) && meets(column, self.bin[1], first_column, columns)
    }
}

impl ImagePlace {
    pub(super) fn of(config: &DetectorConfig) -> Self {
        match &config.kind {
            DetectorKindConfig::Udp(config) => Self::Tiles(Box::new(config.geometry.clone()), modules(&config.geometry)),
            DetectorKindConfig::Stream(config) => {
                let size = config.modules.as_ref().map(|modules| [modules.rows as usize, modules.columns as usize]);
                Self::Whole(size, MaskedRectangle::of(&config.transform))
            }
        }
    }

    pub(super) fn size(&self) -> Option<[usize; 2]> {
        match self {
            Self::Tiles(geometry, _) => Some([geometry.rows() as usize, geometry.columns() as usize]),
            Self::Whole(size, _) => *size,
        }
    }

    pub(super) fn modules(&self, detector: &str, size: Option<[usize; 2]>) -> ModuleList {
        let size = size.map(|size| size.map(|edge| edge as u64));
        let modules = match self {
            Self::Tiles(_, modules) => modules.clone(),
            Self::Whole(..) => size.map_or_else(Vec::new, |[rows, columns]| {
                vec![ModulePlace { name: "image".into(), rows, columns, ..ModulePlace::default() }]
            }),
        };
        ModuleList { detector: detector.into(), rows: size.map(|size| size[0]), columns: size.map(|size| size[1]), modules }
    }

    pub(super) fn pixel(
        &self,
        detector: &str,
        at: [u64; 2],
        size: Option<[usize; 2]>,
        run: Option<&RunMask>,
        drawing: &Drawing,
    ) -> Result<PixelFacts, String> {
        let [column, row] = at;
        if let Some([rows, columns]) = size
            && (row >= rows as u64 || column >= columns as u64)
        {
            return Err(format!("column {column}, row {row} is outside of the image of {columns} columns and {rows} rows"));
        }
        let mut facts = PixelFacts { detector: detector.into(), column, row, ..PixelFacts::default() };
        // Where there is no run yet, the geometry says which pixels are none.
        let (mut is_gap, mut is_masked_double) = (false, false);
        if let Self::Tiles(geometry, modules) = self {
            let place = geometry.tile_at(row as u32, column as u32);
            let is_between = place.is_some_and(|place| place.pixel.is_none());
            is_masked_double = is_between && geometry.double_pixels() == DoublePixels::Mask;
            is_gap = place.is_none() || (is_between && !is_masked_double);
            if let Some(place) = place {
                let each = geometry.placements().len() / modules.len().max(1);
                facts.module = (!modules.is_empty()).then_some((place.tile / each) as u64);
                locate(geometry.format(), place, &mut facts);
            }
        }
        let known = size.zip(run).map(|(size, run)| run.bits(column, row, size));
        let (bits, of_calibration) = known.unwrap_or((if is_gap { NXMX_GAP } else { 0 }, 0));
        facts.user_mask = UserMaskState::of(run, drawing, at);
        facts.reasons = reasons(bits, of_calibration, is_masked_double, facts.user_mask);
        if matches!(self, Self::Whole(_, Some(masked)) if masked.has(at)) {
            facts.reasons.push("mask_rectangle of the configuration".into());
        }
        let is_user = matches!(facts.user_mask, Some(UserMaskState::InForce | UserMaskState::UntilNextRun));
        facts.mask = known.map(|(bits, _)| readable_bits(bits | if is_user { NXMX_USER } else { 0 }));
        Ok(facts)
    }
}

/// The words for bits of NXmx (without those of drawn masks) and for those of the calibration.
fn reasons(bits: u32, of_calibration: u8, is_masked_double: bool, user: Option<UserMaskState>) -> Vec<String> {
    let of_calibration = || REASONS.iter().filter(|(bit, ..)| u32::from(of_calibration) & bit != 0);
    let mut words: Vec<String> = Vec::new();
    for bit in (0..u32::BITS).filter(|bit| bits >> bit & 1 == 1 && 1 << bit != NXMX_USER) {
        let word = WORDS.iter().find(|(known, _)| *known == bit);
        words.push(word.map_or_else(|| format!("bit {bit}"), |(_, word)| (*word).into()));
    }
    words.extend(of_calibration().map(|(_, name, _)| (*name).to_owned()).filter(|name| name != "dead" && name != "noisy"));
    if is_masked_double {
        words.push("double pixel".into());
    }
    let is_explained = is_masked_double || of_calibration().any(|(_, _, nxmx)| *nxmx == NXMX_USER);
    if bits & NXMX_USER != 0 && !is_explained {
        words.push("user, says the sender".into());
    }
    words.extend(user.map(|user| user.words().to_owned()));
    words
}

fn modules(geometry: &ImageGeometry) -> Vec<ModulePlace> {
    let part = |tile: usize| {
        let (place, (rows, columns)) = (geometry.placements()[tile], geometry.box_size(tile));
        Part { row: place.row, column: place.column, rows, columns }
    };
    let tiles: Vec<Part> = (0..geometry.placements().len()).map(part).collect();
    let Some(parts) = modules_of(&tiles, geometry.format().tiles_per_module as usize) else { return Vec::new() };
    // Where tiles are placed one by one, each counts as a module.
    let each = tiles.len() / parts.len().max(1);
    let word = if parts.len() == tiles.len() && geometry.format().tiles_per_module > 1 { "tile" } else { "module" };
    let of_tile = |tile: usize| {
        let (part, orientation) = (tiles[tile], geometry.placements()[tile].orientation);
        TileOfModule {
            column: part.column.into(),
            row: part.row.into(),
            columns: part.columns.into(),
            rows: part.rows.into(),
            flip_rows: orientation.flip_rows,
            rotate_deg: orientation.rotate.deg(),
        }
    };
    let module = |(n, part): (usize, &Part)| ModulePlace {
        index: n as u64,
        name: format!("{word} {n}"),
        column: part.column.into(),
        row: part.row.into(),
        columns: part.columns.into(),
        rows: part.rows.into(),
        tiles: (n * each..(n + 1) * each).map(of_tile).collect(),
    };
    parts.iter().enumerate().map(module).collect()
}

/// Says where in its module a pixel is. With two JUNGFRAU interfaces, even tiles have the upper rows; of an EIGER
/// module, even ports have the left half, and the first data row of all ports lies at the middle of the module.
fn locate(format: &TileFormat, TilePlace { tile, pixel }: TilePlace, facts: &mut PixelFacts) {
    let Some((row, column)) = pixel else { return };
    let of_module = tile as u32 % format.tiles_per_module;
    let (row, column) = match format.kind {
        DetectorKind::Jungfrau => (of_module * format.whole_rows() + format.first_row(tile) + row, column),
        DetectorKind::Eiger => {
            let row = if of_module < 2 { format.whole_rows() - 1 - row } else { format.whole_rows() + row };
            (row, of_module % 2 * format.columns + column)
        }
        _ => (row, column),
    };
    let chips_in_a_row = match format.kind {
        DetectorKind::Jungfrau => Some(format.columns / CHIP),
        DetectorKind::Eiger => Some(2 * format.columns / CHIP),
        DetectorKind::Excalibur => Some(format.columns / CHIP),
        _ => None,
    };
    (facts.module_row, facts.module_column) = (Some(row.into()), Some(column.into()));
    facts.chip = chips_in_a_row.map(|chips| u64::from(row / CHIP * chips + column / CHIP));
}
