//! Stages that read files: images, and words of a detector.

use super::image::{About, Image, Words, packed_mask};
use super::work::{Report, Reports};
use konkordia_acquire::raw_frames::RawFrames;
use konkordia_core::failure::Failure;
use konkordia_core::frame_header::ColumnType;
use konkordia_core::ledger::ImageStatus;
use konkordia_core::results::ResultKind;
use konkordia_core::tile::DetectorKind;
use konkordia_graph::file::Stage;
use konkordia_input::images::Images;
use konkordia_input::{Options, is_raw};
use konkordia_sinks::hdf5::FileSpec;
use std::path::PathBuf;

/// Reads files; waits when the channel is full.
pub fn read(stage: &Stage, reports: &Reports) {
    let files: Vec<PathBuf> = stage.files.iter().map(PathBuf::from).collect();
    reports.end(if is_raw(&files) { frames(&files, reports) } else { images(&files, reports) });
}

/// The description of a run that travels with each image: what is needed to write it.
pub fn run_text(known: &FileSpec, shape: [usize; 2]) -> String {
    let [rows, columns] = shape.map(|edge| edge as u32);
    let FileSpec { metadata, unit, scale, underload, saturation, calibration_hash, conversion, .. } = known.clone();
    let kept = FileSpec { metadata, unit, scale, underload, saturation, calibration_hash, conversion, ..FileSpec::default() };
    FileSpec { rows, columns, ..kept }.to_text()
}

/// Kinds of results as they travel.
pub fn named(kinds: &[ResultKind]) -> Vec<(String, String, usize)> {
    kinds.iter().map(|kind| (kind.name.to_owned(), kind.number.name().to_owned(), kind.length)).collect()
}

/// The lowest and the highest value that is a measurement; infinite ones are not said.
pub fn valid((low, high): (f64, f64)) -> Option<(Option<f64>, Option<f64>)> {
    let finite = |value: f64| Some(value).filter(|value| value.is_finite());
    Some((finite(low), finite(high)))
}

fn images(files: &[PathBuf], reports: &Reports) -> Result<(), Failure> {
    let mut images = Images::open(files, None)?;
    let (shape, pixel) = (images.facts.shape, images.facts.pixel);
    let mask = images.mask().map_or(Ok(Vec::new()), |mask| packed_mask(&mask))?;
    let known = images.run().cloned().unwrap_or_default();
    let known = FileSpec { metadata: images.facts.metadata.clone(), ..known };
    let run = run_text(&known, shape);
    // Numbers of 8 bytes are all that results are.
    let kinds: Vec<ResultKind> = images.facts.known.iter().filter(|kind| kind.number.bytes() == 8).copied().collect();
    let results = if kinds.len() == images.facts.known.len() { named(&kinds) } else { Vec::new() };
    let mut about = About { run, valid: valid(images.facts.valid), results, ..About::default() };
    let states = images.states().unwrap_or_default();
    for number in 0..images.facts.images {
        let state = states.get(number as usize).copied();
        if state.is_some_and(|state| ![ImageStatus::Complete, ImageStatus::Partial].iter().any(|has| state == *has as u64)) {
            continue;
        }
        about.partial = state == Some(ImageStatus::Partial as u64);
        let Some(pixels) = images.read(number)? else { continue };
        let mut numbers = Vec::new();
        if !about.results.is_empty() {
            images.add_known(number, &mut numbers)?;
        }
        let image = Image { shape, pixel, pixels: &pixels, about: about.clone(), numbers, mask: &mask };
        if !reports.say(Report::Made(number, image.encode())) {
            return Ok(());
        }
    }
    Ok(())
}

/// Words of a detector. The position of an image is that of its frame among the frame numbers, as in a conversion.
fn frames(files: &[PathBuf], reports: &Reports) -> Result<(), Failure> {
    let mut frames = RawFrames::open(files, &Options::default())?;
    let (shape, pixel, info) = (frames.shape(), frames.pixel(), frames.info());
    let first = info.first_frame;
    let words = (info.format.kind == DetectorKind::Jungfrau).then(|| Words {
        configuration: frames.words().to_owned(),
        module_ids: info.module_ids.clone(),
        taken: info.taken().cloned(),
        daq_info: 0,
    });
    let run = run_text(&FileSpec { metadata: frames.facts().clone(), ..FileSpec::default() }, shape);
    let mut about = About { run, words, ..About::default() };
    let mut pixels = vec![0; shape[0] * shape[1] * pixel.bytes()];
    for nth in 0..frames.numbers().len() {
        let facts = frames.read(nth, &mut pixels)?;
        about.partial = facts.packets_missing() > 0;
        about.words.iter_mut().for_each(|words| words.daq_info = facts.header.daq_info);
        let image = Image { shape, pixel, pixels: &pixels, about: about.clone(), numbers: Vec::new(), mask: &[] };
        if !reports.say(Report::Made(facts.number - first, image.encode())) {
            return Ok(());
        }
    }
    Ok(())
}

/// The kind of a result of this name, type and count.
pub fn kind_of(name: &str, number: &str, length: usize) -> Option<ResultKind> {
    konkordia_core::results::known(name, ColumnType::from_name(number)?, length)
}
