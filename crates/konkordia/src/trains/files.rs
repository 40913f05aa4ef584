//! Trains into files for EXtra-data.

use super::args::TrainsArgs;
use super::shared::SharedTrain;
use konkordia_core::failure::Failure;
use konkordia_core::tile::XfelDetector;
use konkordia_sinks::hdf5::extra_data::{ExtraDataFiles, ExtraDataModule, ExtraDataSpec, ExtraDataTrain};
use konkordia_wire::xfel_train::Train;
use std::path::Path;

/// Makes the files of a run in `directory`.
pub fn create(args: &TrainsArgs, directory: &Path, name: &str, detector: XfelDetector) -> Result<ExtraDataFiles, Failure> {
    let (rows, columns) = detector.image_size();
    let planes = if detector == XfelDetector::Agipd { 2 } else { 1 };
    let spec = ExtraDataSpec {
        directory: directory.to_owned(),
        run: args.run,
        detector: name.to_owned(),
        aggregator: detector.name().to_uppercase(),
        modules: args.modules as usize,
        image_shape: [planes, rows as usize / planes, columns as usize],
        detector_bytes: detector.specific_bytes() as usize,
        trains_per_file: args.trains_per_file,
    };
    ExtraDataFiles::create(spec).map_err(Failure::from)
}

/// Adds a train.
pub fn add(files: &mut ExtraDataFiles, shared: &SharedTrain) -> Result<(), Failure> {
    let train = &shared.train;
    let modules: Vec<_> = (0..train.modules.len()).map(|module| part(shared, module)).collect();
    let whole = ExtraDataTrain {
        train_id: train.train_id,
        time_ns: shared.time_ns,
        lost_before: train.lost_before,
        flags: &train.flags,
        modules: &modules,
        injected: &train.injected,
    };
    files.add(&whole).map_err(Failure::from)
}

fn part(shared: &SharedTrain, module: usize) -> Option<ExtraDataModule<'_>> {
    let found = shared.train.modules[module].as_ref()?;
    let train: Train<'_> = shared.train.module(module, &shared.spec)?;
    let (at, images, head) = (train.sections(), train.images(), train.header());
    let bytes = &found.bytes;
    let mut reserved = [0; 16];
    reserved.copy_from_slice(&bytes[48..64]);
    Some(ExtraDataModule {
        version: head.version(),
        data_id: head.data_id(),
        link_id: head.link_id(),
        reserved,
        images,
        cell_ids: &bytes[at.cell_ids..][..2 * images],
        pulse_ids: &bytes[at.pulse_ids..][..8 * images],
        states: &bytes[at.states..][..2 * images],
        lengths: &bytes[at.lengths..][..4 * images],
        pixels: train.all_images(),
        missing: &found.missing,
        detector: train.detector_specific(),
        checksum: train.checksum(),
        status: train.train_status(),
    })
}
