//! Images of frames that come one at a time, from somewhere else than a file: by the same settings as a conversion of
//! the files from which [`crate::raw_frames::RawFrames`] read their words.

use super::request::Request;
use super::settings;
use crate::frame_images::FrameImages;
use crate::run::arm;
use konkordia_calibration::{Calibration, Loaded};
use konkordia_config::{Config, overrides, plan};
use konkordia_core::failure::{Exit, Failure};
use konkordia_sinks::hdf5::{FileSpec, Metadata};

/// What makes images of frames whose words `words` describes ([`crate::raw_frames::RawFrames::words`]), and what a file
/// of these images says of them. Only calibration, energy, pixel type, geometry and configuration of `request` count.
/// `facts`: what is known of the measurement; `taken`: when the frames were taken.
///
/// # Errors
/// The frames are not those of a JUNGFRAU, the calibration does not fit them, or an image would depend on other frames.
pub fn of_frames(
    request: &Request,
    words: &str,
    facts: &Metadata,
    taken: Option<&String>,
) -> Result<(FrameImages, FileSpec), Failure> {
    let (config, calibration) = calibrated(request, words, taken)?;
    let (images, mut file) = FrameImages::with_file(&config, &calibration)?;
    // As in a conversion of files: what a person has written comes first.
    file.metadata = overrides::metadata_of_text(&config.text).over(facts.clone().over(file.metadata));
    Ok((images, file))
}

/// Configuration, constants and file of frames that something else converts, for example a card. As [`of_frames`].
///
/// # Errors
/// The frames are not those of a JUNGFRAU, or the calibration does not fit them.
pub fn constants_of(request: &Request, words: &str) -> Result<(Config, Loaded, FileSpec), Failure> {
    let (config, calibration) = calibrated(request, words, None)?;
    let loaded = FrameImages::loaded(&config, &calibration)?;
    let file = arm::file_spec(&config, &plan::plan(&config), &loaded);
    Ok((config, loaded, file))
}

/// Configuration and calibration of frames.
fn calibrated(request: &Request, words: &str, taken: Option<&String>) -> Result<(Config, Calibration), Failure> {
    let config = settings::of_frames(request, words, taken)?;
    let Some(files) = &config.calibration else {
        let why = "photons = (ADC - pedestal) / (gain * energy) needs pedestals and gains";
        let fix = "give a calibration, for example the file that `konkordia pedestal` made";
        return Err(Failure::new(Exit::Configuration, "photons without calibration", why, fix));
    };
    let calibration = konkordia_calibration::load(&config, files)?;
    Ok((config, calibration))
}
