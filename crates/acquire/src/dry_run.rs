//! What is wrong with an arm, and what its run needs, without arming. The checks are those of the arm itself; nothing
//! is taken, created or written.

use crate::detector::file_names::main_file;
use crate::detector::{stream_parts, udp_parts};
use crate::handle::{ArmRequest, FileEntry, FileState};
use crate::paths::Place;
use crate::readiness::{self, Demand};
use crate::run::memory_limit;
use crate::run::raw_copy::RawSpec;
use crate::run_needs::{DryRun, RequestProblem, RunNeeds, SizeFrom};
use konkordia_config::service::{DetectorConfig, DetectorKindConfig};
use konkordia_config::stream::StreamConfig;
use konkordia_config::{Config, plan};
use konkordia_core::failure::Failure;
use konkordia_core::plan::Compression;
use konkordia_sinks::hdf5::{Writer, free_bytes};
use konkordia_sources::backend;
use std::path::{Path, PathBuf};

/// Metadata that are looked at one by one; more are looked at together.
const NAMES_MAX: usize = 64;

/// A detector as it is now.
pub struct Now<'a> {
    /// Its configuration.
    pub config: &'a DetectorConfig,
    /// No file lies outside of this folder.
    pub data_root: Option<&'a PathBuf>,
    /// The number of the run.
    pub next_run: u64,
    /// The master of the file that stays open behind its runs.
    pub open_file: Option<&'a str>,
    /// A run is armed or in progress, and holds memory.
    pub has_run: bool,
    /// Bytes of an image of the last run, as it is packed.
    pub packed_bytes: Option<f64>,
    /// Bytes of the newest image: packed and unpacked.
    pub newest_bytes: Option<(u64, u64)>,
}

/// Bytes of an image in the files of the last run that wrote some.
pub fn packed_bytes(files: &[FileEntry]) -> Option<f64> {
    let has_images = |file: &&FileEntry| file.state != FileState::Writing && file.images > 0 && file.bytes > 0;
    files.iter().rev().find(has_images).map(|file| file.bytes as f64 / file.images as f64)
}

/// What is wrong with a request, and what its run needs.
pub fn of(now: &Now<'_>, request: &ArmRequest) -> DryRun {
    let (problems, needs) = match &now.config.kind {
        DetectorKindConfig::Udp(own) => of_udp(now, own, request),
        DetectorKindConfig::Stream(own) => of_stream(now, own, request),
    };
    DryRun { ok: problems.is_empty(), problems, needs }
}

/// The parameters of a request, or what is wrong with it: its parts one by one, so that it is known which is wrong.
fn parameters<P>(request: &ArmRequest, of: impl Fn(&ArmRequest) -> Result<P, Failure>) -> Result<P, Vec<RequestProblem>> {
    let nothing = || ArmRequest { write: Some(false), ..ArmRequest::default() };
    let failed = of(request).map_err(|failure| RequestProblem::of("request", failure));
    let Err(of_all) = failed else { return failed.map_err(|problem| vec![problem]) };
    if let Err(failure) = of(&nothing()) {
        return Err(vec![RequestProblem::of("configuration", failure)]);
    }
    let mut parts = vec![
        ("images".to_string(), ArmRequest { images: request.images, ..nothing() }),
        ("prefix".to_string(), ArmRequest { prefix: request.prefix.clone(), write: request.write, ..ArmRequest::default() }),
    ];
    for (name, value) in request.metadata.iter().take(NAMES_MAX) {
        let shown: String = name.chars().take(80).collect();
        let metadata = [(name.clone(), value.clone())].into_iter().collect();
        parts.push((format!("metadata.{shown}"), ArmRequest { metadata, ..nothing() }));
    }
    let problem = |(field, part): (String, ArmRequest)| of(&part).err().map(|failure| RequestProblem::of(field, failure));
    let found: Vec<RequestProblem> = parts.into_iter().filter_map(problem).collect();
    Err(if found.is_empty() { vec![of_all] } else { found })
}

fn of_udp(now: &Now<'_>, own: &Config, request: &ArmRequest) -> (Vec<RequestProblem>, RunNeeds) {
    let place = Place::of(now.config, &own.directory, now.data_root).for_asking();
    let checked = parameters(request, |request| udp_parts::parameters(now.config, (&place, own), (now.next_run, None), request));
    let parameters = match checked {
        Ok(parameters) => parameters,
        Err(problems) => return (problems, RunNeeds::default()),
    };
    let (config, mut problems) = (&parameters.config, Vec::new());
    let plan = plan::plan(config);
    let demand = Demand::of(config, &plan);
    let ring_bytes = backend::memory_bytes(config.receive, config.address, plan.streams(), config.receive_buffer_bytes);
    // The memory of a run in progress is free before the next one is armed.
    if let (false, Err(failure)) = (now.has_run, memory_limit::check(&plan, ring_bytes)) {
        problems.push(RequestProblem::of("memory", failure));
    }
    let raw_bytes = config.keep_raw.then(|| RawSpec::of(config, &plan, String::new()).bytes_planned()).flatten();
    let mut needs = RunNeeds {
        images: demand.images,
        file: parameters.master(),
        memory_bytes: Some(memory_limit::needed(&plan, ring_bytes)),
        rate_hz: demand.rate_hz,
        image_size: Some([plan.geometry.rows(), plan.geometry.columns()]),
        dtype: Some(plan.pixel.to_string()),
        dataset: config.layout.stack().filter(|_| parameters.write).map(|name| format!("/entry/data/{name}")),
        ..RunNeeds::default()
    };
    let appended = now.open_file.filter(|_| request.append);
    needs.file = appended.map(str::to_string).or(needs.file);
    if parameters.write {
        if config.directory.exists() && appended.is_none() {
            let free = Writer::check_names(&config.directory, &config.prefix, config.overwrite);
            problems.extend(free.err().map(|error| RequestProblem::of("prefix", error.into())));
        }
        if let Some(archive_copy) = &config.archive_copy {
            let checked = konkordia_repack::archive_copy::check(archive_copy, config.overwrite);
            problems.extend(checked.err().map(|failure| RequestProblem::of("prefix", failure)));
        }
        problems.extend(room(&mut needs, now, &config.directory, &demand));
        needs.file_bytes = needs.file_bytes.map(|bytes| bytes.saturating_add(raw_bytes.unwrap_or(0)));
    }
    complete(&mut needs, parameters.write);
    (problems, needs)
}

fn of_stream(now: &Now<'_>, own: &StreamConfig, request: &ArmRequest) -> (Vec<RequestProblem>, RunNeeds) {
    let place = Place::of(now.config, &own.directory, now.data_root).for_asking();
    let parameters = match parameters(request, |request| stream_parts::parameters(now.config, own, &place, request)) {
        Ok(parameters) => parameters,
        Err(problems) => return (problems, RunNeeds::default()),
    };
    let frames = f64::from(own.transform.sum_frames.unwrap_or(1).max(1));
    let file = parameters.target.as_ref().map(|target| main_file(own, target));
    let rate_hz = parameters.metadata.frame_time_s.filter(|s| *s > 0.0).map(|s| 1.0 / (s * frames));
    let mut needs = RunNeeds {
        images: parameters.images,
        file: file.as_ref().map(|file| file.display().to_string()),
        memory_bytes: Some(own.budget_bytes),
        rate_hz,
        ..RunNeeds::default()
    };
    let mut problems = Vec::new();
    if parameters.write {
        let checked = file.as_deref().map_or(Ok(()), |file| stream_parts::check_file(own, file));
        problems.extend(checked.err().map(|failure| RequestProblem::of("prefix", failure)));
        // Whether the sender packs its images is not known before they come.
        let is_compressed = own.transform.compression.is_none_or(|compression| compression != Compression::None);
        let image_bytes = now.newest_bytes.map_or(1, |(_, unpacked)| unpacked);
        let demand = Demand { image_bytes, images: parameters.images, rate_hz, is_compressed };
        let directory = parameters.target.as_ref().map_or(&own.directory, |target| &target.directory);
        problems.extend(room(&mut needs, now, directory, &demand));
    }
    complete(&mut needs, parameters.write);
    (problems, needs)
}

/// Bytes of the files and the space for them; says if there cannot be enough.
fn room(needs: &mut RunNeeds, now: &Now<'_>, directory: &Path, demand: &Demand) -> Option<RequestProblem> {
    let is_size_known = demand.image_bytes > 1;
    let of_last_run = now.packed_bytes.filter(|bytes| !is_size_known || *bytes <= 1.1 * demand.image_bytes as f64);
    let uncompressed = is_size_known.then_some((demand.image_bytes as f64, SizeFrom::Uncompressed));
    if let Some((image_bytes, from)) = of_last_run.map(|bytes| (bytes, SizeFrom::LastRun)).or(uncompressed) {
        needs.file_bytes = demand.images.map(|images| (images as f64 * image_bytes) as u64);
        needs.file_bytes_from = needs.file_bytes.map(|_| from);
    }
    // A folder that the arm would create lies on the disk of the folder above it.
    let there = directory.ancestors().find(|folder| folder.exists()).unwrap_or(directory);
    needs.disk_free_bytes = free_bytes(there).ok();
    readiness::space(there, demand).err().map(|failure| RequestProblem::of("disk", failure))
}

/// What follows from the rest.
fn complete(needs: &mut RunNeeds, write: bool) {
    needs.duration_s = needs.images.zip(needs.rate_hz).map(|(images, hz)| images as f64 / hz);
    if !write {
        needs.file_bytes = Some(0);
    }
    needs.fits = match (needs.file_bytes, needs.disk_free_bytes) {
        (Some(0), _) => Some(true),
        (Some(bytes), Some(free)) => Some(bytes <= free),
        _ => None,
    };
}
