//! The stage that takes the packets of a detector, by the engine of `konkordia receive`. While the graph is full its
//! ring fills, and what does not fit is counted as in each run.

use super::image::{About, Image, packed_mask};
use super::read::{named, run_text, valid};
use super::work::{Report, Reports};
use konkordia_acquire::run::arm::{Ports, prepare_to};
use konkordia_acquire::run::exit_of;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::image::CommittedImage;
use konkordia_core::ledger::ImageStatus;
use konkordia_core::pixel::PixelType;
use konkordia_core::plan::Compression;
use konkordia_core::ports::{Sink, SinkError};
use konkordia_core::results::ResultKind;
use konkordia_graph::file::Stage;
use konkordia_sinks::hdf5::FileSpec;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// Takes the images of one run.
pub fn receive(stage: &Stage, reports: Reports) {
    let reports = Arc::new(Mutex::new(reports));
    let outcome = run(stage, &reports);
    reports.lock().unwrap_or_else(PoisonError::into_inner).end(outcome);
}

fn run(stage: &Stage, reports: &Arc<Mutex<Reports>>) -> Result<(), Failure> {
    let path = Path::new(stage.config.as_deref().unwrap_or_default());
    let mut config = konkordia_config::load(path)?;
    // The stages behind need the pixels.
    config.compression = Compression::None;
    let sink = |file: &FileSpec| -> Box<dyn Sink> { Box::new(ToGraph::new(file, Arc::clone(reports))) };
    let run = prepare_to(&config, Ports::Configured, crate::console::note, &sink)?;
    run.notes.iter().for_each(|note| crate::console::note(note));
    crate::console::to_stderr(&format!("stage '{}' waits for packets at {}", stage.name, config.listens_at()));
    let outcome = run.armed.run();
    let report = run.opened.close(&config, &outcome)?;
    let (exit, failure) = exit_of(&outcome, config.images.is_some(), false);
    crate::console::to_stderr(&report.to_text());
    if let Some(failure) = failure {
        return Err(failure);
    }
    if exit != Exit::Complete {
        let why = format!("stage '{}': the run is not complete; its report stands above", stage.name);
        reports.lock().unwrap_or_else(PoisonError::into_inner).say(Report::Short(why));
    }
    Ok(())
}

/// Gives the images of a run to the graph.
struct ToGraph {
    reports: Arc<Mutex<Reports>>,
    shape: [usize; 2],
    pixel: PixelType,
    about: About,
    mask: Result<Vec<u8>, Failure>,
}

impl ToGraph {
    fn new(file: &FileSpec, reports: Arc<Mutex<Reports>>) -> Self {
        let (shape, pixel) = ([file.rows as usize, file.columns as usize], file.pixel);
        let range = pixel.valid_range(file.underload, file.saturation);
        let about = About { run: run_text(file, shape), valid: valid(range), ..About::default() };
        Self { reports, shape, pixel, about, mask: packed_mask(&file.pixel_mask) }
    }
}

impl Sink for ToGraph {
    fn image(&mut self, image: &Arc<CommittedImage>) -> Result<(), SinkError> {
        let error =
            |what: &str, why: String| SinkError { what: what.into(), why, fix: "look at the processes of the graph".into() };
        let mask = self.mask.as_ref().map_err(|failure| error("the mask cannot be packed", failure.what.clone()))?;
        if !image.status.has_pixels() {
            return Ok(());
        }
        let kinds: Vec<ResultKind> = image.results.iter().map(|(kind, _)| *kind).collect();
        let (results, numbers) = (named(&kinds), image.results.iter().flat_map(|(_, bits)| bits.iter().copied()).collect());
        let about = About { partial: image.status == ImageStatus::Partial, results, ..self.about.clone() };
        let bytes = Image { shape: self.shape, pixel: self.pixel, pixels: image.chunk(), about, numbers, mask }.encode();
        let reports = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
        if reports.say(Report::Made(image.number, bytes)) {
            return Ok(());
        }
        Err(error("nobody takes the images of the run any more", "the process of its stage ends".into()))
    }
}
