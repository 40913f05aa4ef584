//! The shapes of one detector, for everybody who asks: servers change them, runs take them when they are armed.

use super::drawing::Drawing;
use super::file;
use super::form::{DrawnRegion, DrawnShape, DrawnShapes};
use super::pixel::{ImagePlace, ModuleList, PixelFacts};
use super::run_mask::RunMask;
use crate::events::{EventLog, Severity};
use arc_swap::{ArcSwap, ArcSwapOption};
use konkordia_calibration::reasons::NXMX_USER;
use konkordia_config::recipe::Recipe;
use konkordia_config::service::DetectorConfig;
use konkordia_core::failure::Failure;
use konkordia_core::xds::readable_bits;
use konkordia_sinks::clock;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use utoipa::ToSchema;

/// What is drawn now.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ShapesState {
    /// Name of the detector.
    pub detector: String,
    /// Pixels in one of these are masked.
    pub mask: Vec<DrawnShape>,
    /// Regions whose pixels are summed.
    pub regions: Vec<DrawnRegion>,
    /// Pixels of the image that the mask has; absent while the size of the images is not known.
    pub masked_pixels: Option<u64>,
    /// The file in which they are kept; absent if they are lost when the service ends.
    pub kept_in: Option<String>,
    /// When a change applies: `from the next run on`.
    pub applies: String,
    /// True if the newest run has these shapes.
    pub in_force: bool,
    /// Who changed them last; absent if nobody has.
    pub changed_by: Option<String>,
    /// When; ISO 8601.
    pub changed_at: Option<String>,
    /// What people should know.
    pub notes: Vec<String>,
}

/// Why shapes are not taken.
#[derive(Clone, Debug)]
pub enum NotDrawn {
    /// Somebody has changed them since.
    Stale {
        /// Who.
        by: String,
        /// When.
        at: String,
    },
    /// They make no sense; in words.
    Wrong(String),
    /// They cannot be kept.
    NotKept(Failure),
}

/// The shapes of a detector, where they are kept, and what its newest run has of them.
pub struct ShapeBoard {
    name: String,
    /// Where they are kept, if anywhere.
    path: Option<PathBuf>,
    /// The configuration names the file, so it must be possible to write it.
    is_named: bool,
    recipe: Option<PathBuf>,
    place: ImagePlace,
    drawing: ArcSwap<Drawing>,
    /// The newest run.
    run: ArcSwapOption<RunMask>,
    /// Held while they are changed.
    changing: Mutex<()>,
    /// Why the file could not be read.
    problem: Option<Failure>,
}

impl ShapeBoard {
    /// Reads the shapes that were kept. If that is not possible there are none, see [`Self::report`].
    pub fn open(config: &DetectorConfig) -> Self {
        let path = config.shapes_path();
        let (drawing, problem) = match file::read(&path) {
            Ok(Some(drawing)) => (drawing, None),
            Ok(None) => (Drawing::default(), None),
            Err(failure) => (Drawing::default(), Some(failure)),
        };
        let mut board = Self {
            path: Some(path),
            is_named: config.shapes_file.is_some(),
            recipe: config.recipe().map(Into::into),
            problem,
            ..Self::of(&config.name, ImagePlace::of(config))
        };
        board.drawing = ArcSwap::from_pointee(drawing.kept(board.can_keep()));
        board
    }

    /// For a detector with images of so many rows and columns and without a configuration: nothing is kept.
    pub fn in_memory(name: &str, size: [usize; 2]) -> Self {
        Self::of(name, ImagePlace::Whole(Some(size), None))
    }

    fn of(name: &str, place: ImagePlace) -> Self {
        Self {
            name: name.into(),
            path: None,
            is_named: false,
            recipe: None,
            place,
            drawing: ArcSwap::default(),
            run: ArcSwapOption::empty(),
            changing: Mutex::default(),
            problem: None,
        }
    }

    /// Whether shapes can be kept: a file that the configuration names must be possible to write.
    fn can_keep(&self) -> bool {
        self.is_named || self.path.as_ref().and_then(|path| path.parent()).is_some_and(Path::is_dir)
    }

    /// Reports that the shapes that were kept could not be read.
    pub fn report(&self, events: &EventLog) {
        if let Some(Failure { what, why, fix, .. }) = &self.problem {
            let data = json!({ "file": self.path, "why": why, "fix": fix });
            events.add(Some(&self.name), "warning", Severity::Warning, format!("{what}: {why}; {fix}"), data);
        }
    }

    /// What is drawn now.
    pub fn drawing(&self) -> Arc<Drawing> {
        self.drawing.load_full()
    }

    /// A run is armed, or a series has begun.
    pub fn begin(&self, run: RunMask) {
        self.run.store(Some(Arc::new(run)));
    }

    /// True if the images of the detector are analysed.
    pub fn is_analysed(&self) -> bool {
        self.recipe.is_some()
    }

    /// Puts shapes in the place of those that were there, for the runs to come, and keeps them. `tags`: only if theirs
    /// is one of these (`Drawing::tag`). Waits for the disk.
    ///
    /// # Errors
    /// They are not taken, and nothing has changed.
    pub fn draw(&self, shapes: DrawnShapes, by: &str, tags: Option<&[String]>) -> Result<(), NotDrawn> {
        let drawing = Drawing::new(shapes, Some(by.into()), Some(clock::now())).map_err(NotDrawn::Wrong)?;
        self.fits_the_recipe(&drawing).map_err(NotDrawn::Wrong)?;
        let _alone = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.drawing();
        if tags.is_some_and(|tags| !tags.contains(&before.tag())) {
            let said = |text: &Option<String>, otherwise: &str| text.clone().unwrap_or_else(|| otherwise.into());
            let (by, at) = (said(&before.changed_by, "somebody"), said(&before.changed_at, "before the service began"));
            return Err(NotDrawn::Stale { by, at });
        }
        let drawing = drawing.kept(self.can_keep());
        if let Some(path) = self.path.as_ref().filter(|_| drawing.is_kept) {
            file::write(path, &drawing).map_err(NotDrawn::NotKept)?;
        }
        self.drawing.store(Arc::new(drawing));
        Ok(())
    }

    /// Whether the recipe has room for the regions. A recipe that cannot be read is a matter of the arm.
    fn fits_the_recipe(&self, drawing: &Drawing) -> Result<(), String> {
        let recipe = self.recipe.as_ref().and_then(|path| Recipe::load(path).ok());
        recipe.map_or(Ok(()), |mut recipe| recipe.draw(&drawing.regions))
    }

    /// Rows and columns of the images; `newest` are those of the newest one.
    fn size(&self, newest: Option<[usize; 2]>) -> Option<[usize; 2]> {
        let of_run = || self.run.load().as_ref().and_then(|run| run.size());
        self.place.size().or(newest).or_else(of_run)
    }

    /// What is drawn now, with its tag. `newest` are rows and columns of the newest image; `run` is one that is armed
    /// or in progress. May take long.
    pub fn state(&self, newest: Option<[usize; 2]>, run: Option<u64>) -> (ShapesState, String) {
        let (drawing, size) = (self.drawing(), self.size(newest));
        let masked = size.map(|size| drawing.masked_pixels(size));
        let masked = masked.or(drawing.mask.is_none().then_some(0));
        let is_analysed = self.is_analysed();
        let newest_run = self.run.load();
        let in_force = newest_run.as_ref().is_some_and(|run| run.note() == drawing.note(is_analysed).as_ref());
        let mut notes = Vec::new();
        if !drawing.regions.is_empty() && !is_analysed {
            notes.push("no analysis is configured ([analysis] recipe), so the regions do nothing".into());
        }
        if let (Some(run), false) = (run, in_force) {
            notes.push(format!("run {run} goes on with the shapes that it was armed with"));
        }
        if !drawing.is_kept {
            let folder = "because the output folder is not there; make it, or set [detector] shapes_file";
            notes.push(format!("the shapes are lost when the service ends, {folder}"));
        }
        if masked.is_none() {
            notes.push("the size of the images is not known yet, nor how many pixels are masked".into());
        }
        if size.is_some_and(|[rows, columns]| masked == Some((rows * columns) as u64)) {
            notes.push("every pixel is masked".into());
        }
        let state = ShapesState {
            detector: self.name.clone(),
            mask: drawing.shapes.mask.clone(),
            regions: drawing.shapes.regions.clone(),
            masked_pixels: masked,
            kept_in: self.path.as_ref().filter(|_| drawing.is_kept).map(|path| path.display().to_string()),
            applies: "from the next run on".into(),
            in_force,
            changed_by: drawing.changed_by.clone(),
            changed_at: drawing.changed_at.clone(),
            notes,
        };
        (state, drawing.tag())
    }

    /// The modules of the detector in the image.
    pub fn modules(&self, newest: Option<[usize; 2]>) -> ModuleList {
        self.place.modules(&self.name, self.size(newest))
    }

    /// The bits of NXmx of every pixel in the newest run, row by row, with what people had masked; `None` before the
    /// first run. May take long.
    pub fn mask(&self, newest: Option<[usize; 2]>) -> Option<Vec<u32>> {
        let (run, size) = (self.run.load_full()?, self.size(newest)?);
        let [rows, columns] = size.map(|edge| edge as u64);
        let bits = |row: u64, column: u64| {
            let user = if run.is_user(column, row) { NXMX_USER } else { 0 };
            readable_bits(run.bits(column, row, size).0 | user)
        };
        Some(
            (0..rows)
                .flat_map(|row| (0..columns).map(move |column| (row, column)))
                .map(|(row, column)| bits(row, column))
                .collect(),
        )
    }

    /// Where a pixel of the image is on the detector, and why it is masked. Cheap.
    ///
    /// # Errors
    /// The image has no such pixel, in words.
    pub fn pixel(&self, column: u64, row: u64, newest: Option<[usize; 2]>) -> Result<PixelFacts, String> {
        let (run, drawing) = (self.run.load(), self.drawing());
        self.place.pixel(&self.name, [column, row], self.size(newest), run.as_deref(), &drawing)
    }
}
