//! `konkordia inspect --index`: where the bytes of each image of a finished file lie, for the service, which reads them
//! without libhdf5.

use konkordia_acquire::file_images::{
    CHUNKS_MAX, FileIdentity, FileIndex, PartIndex, RESULT_CHUNKS_MAX, ResultColumn, ResultIndex, TreeEntry,
};
use konkordia_analysis::geometry::Geometry;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::pixel::PixelType;
use konkordia_sinks::hdf5::others::{OthersFile, is_ours};
use konkordia_sinks::hdf5::stored::{self, StoredPart, Undivided};
use konkordia_sinks::hdf5::tree::{self, Node};
use konkordia_sinks::hdf5::{Compression, Error, FileSpec, Metadata, Reader, StoredColumn, StoredResults, Summary, journal_path};
use rustix::process::{Resource, Rlimit, setrlimit};
use std::path::Path;

/// Memory that this process may take: a file that claims to hold more than it does ends this process, and no other one.
const MEMORY_BYTES_MAX: u64 = 4 << 30;
/// Difference of two positions at which a detector is the same, millimetres.
const SAME_MM: f64 = 0.01;

/// Prints the index on one line.
pub fn command(file: &Path) -> Result<Exit, Failure> {
    let _ = setrlimit(Resource::As, Rlimit { current: Some(MEMORY_BYTES_MAX), maximum: Some(MEMORY_BYTES_MAX) });
    let master = file.canonicalize().map_err(|error| Failure::io("cannot read", file, &error))?;
    let identity = identity_of(&master)?;
    let mut index = if is_ours(&master) == Some(false) { of_others(&master, identity) } else { of_run(&master, identity) }?;
    let (nodes, is_cut) = tree::tree(&master)?;
    (index.tree, index.tree_is_cut) = (nodes.into_iter().map(entry).collect(), is_cut);
    // The file of a run that ends at this very moment would be a mixture of before and after.
    if identity_of(&master)? != identity {
        return Err(unfinished(&master, "it was changed while it was looked at"));
    }
    let text = serde_json::to_string(&index).map_err(|error| unreadable(&master, error.to_string()))?;
    crate::console::to_stdout(&text);
    Ok(Exit::Complete)
}

fn identity_of(path: &Path) -> Result<FileIdentity, Failure> {
    FileIdentity::at(path).ok_or_else(|| unreadable(path, "it is not there, or no file".into()))
}

fn unreadable(path: &Path, why: String) -> Failure {
    Failure::new(Exit::Incomplete, format!("{} cannot be read", path.display()), why, "run `konkordia check FILE`")
}

fn unfinished(path: &Path, why: &str) -> Failure {
    let fix = "wait for the end of the run; if its writer was killed, `konkordia repair FILE` makes it readable";
    Failure::new(Exit::State, format!("{} is not finished", path.display()), why, fix)
}

fn entry(node: Node) -> TreeEntry {
    let Node { path, kind, shape, dtype, value, units, target } = node;
    TreeEntry { path, kind: kind.into(), shape, dtype, value, units, target }
}

fn empty(master: &Path, identity: FileIdentity, spec: &FileSpec, pixel: PixelType, compression: Compression) -> FileIndex {
    FileIndex {
        master: master.to_owned(),
        identity,
        description: spec.to_text(),
        images: 0,
        shape: Vec::new(),
        channels: vec![String::new()],
        dtype: pixel.name().into(),
        packing: compression.packing().name().into(),
        pieces: 1,
        missing: pixel.missing_le_bytes(),
        states: Vec::new(),
        results: Err("konkordia did not write the file, and reads no spots from files of other programs".into()),
        parts: Vec::new(),
        problems: Vec::new(),
        tree: Vec::new(),
        tree_is_cut: false,
    }
}

fn of_run(master: &Path, identity: FileIdentity) -> Result<FileIndex, Failure> {
    let reader = Reader::open(master)?;
    let summary = reader.summary();
    if summary.state == "writing" {
        return Err(unfinished(master, "the run is still being written, or its writer was killed"));
    }
    if let Some(growing) = summary.data_files.iter().find(|file| journal_path(&file.path).exists()) {
        return Err(unfinished(master, &format!("{} is still being written, or its writer was killed", growing.path.display())));
    }
    let spec = summary.spec.clone().unwrap_or_default();
    let (channels, shape, pieces) = divided(summary, &spec);
    let mut index = empty(master, identity, &spec, summary.pixel, summary.compression);
    (index.channels, index.shape, index.pieces, index.images) = (channels, shape, pieces, summary.images);
    index.states = reader.column("status").unwrap_or_default().into_iter().map(|state| state as u8).collect();
    let missing = summary.data_files.iter().filter_map(|file| Some((file, file.problem.as_ref()?)));
    index.problems = missing.map(|(file, why)| format!("{}: {why}", file.path.display())).collect();
    index.parts = parts(stored::of_run(&reader, CHUNKS_MAX)?, summary.images)?;
    index.results = results(master);
    Ok(index)
}

/// Where the results of the images lie; that there are none is no reason to offer no images.
fn results(master: &Path) -> Result<ResultIndex, String> {
    let cannot = |error: Error| format!("the results in the file cannot be read: {}", error.cause);
    let found = StoredResults::of_run(master).map_err(cannot)?.ok_or("the file has no results of its images")?;
    let column = |StoredColumn { kind, rows_per_chunk, chunks }| ResultColumn {
        name: kind.name.into(),
        number: kind.number.name().into(),
        length: kind.length,
        images_per_chunk: rows_per_chunk,
        addresses: chunks.iter().map(|chunk| if chunk.bytes > 0 { chunk.address } else { 0 }).collect(),
    };
    let columns = found.places(RESULT_CHUNKS_MAX).map_err(cannot)?.into_iter().map(column).collect();
    Ok(ResultIndex { images: found.images() as u64, columns })
}

/// Names of the channels, the shape of each, and chunks of each. With several channels, the first axis of an image
/// counts them.
fn divided(summary: &Summary, spec: &FileSpec) -> (Vec<String>, Vec<u64>, usize) {
    let names: Vec<String> = spec.series.iter().flat_map(|series| &series.channels).map(|channel| channel.name.clone()).collect();
    let shape = summary.image_shape.clone();
    let many = names.len();
    if many > 1 && shape.len() > 1 && shape[0] == many as u64 && summary.pieces.is_multiple_of(many) {
        return (names, shape[1..].to_vec(), summary.pieces / many);
    }
    let one = if many == 1 { names } else { vec![String::new()] };
    (one, shape, summary.pieces)
}

/// With the files as they are now. Images beyond the `images` of the master are left out.
fn parts(stored: Vec<StoredPart>, images: u64) -> Result<Vec<PartIndex>, Failure> {
    let part = |part: StoredPart| {
        // Not through links: who reads compares with the file itself.
        let path = part.path.canonicalize().map_err(|error| Failure::io("cannot read", &part.path, &error))?;
        let each = (part.chunks.len() as u64).checked_div(part.images).unwrap_or(0) as usize;
        let kept = part.images.min(images.saturating_sub(part.first_image));
        let chunks = &part.chunks[..kept as usize * each];
        Ok(PartIndex {
            identity: identity_of(&path)?,
            path,
            first_image: part.first_image,
            images: kept,
            addresses: chunks.iter().map(|chunk| chunk.address).collect(),
            lengths: chunks.iter().map(|chunk| chunk.bytes).collect(),
            plain: (0..).zip(chunks).filter(|(_, chunk)| chunk.is_plain).map(|(n, _)| n).collect(),
        })
    };
    stored.into_iter().map(part).collect()
}

fn of_others(master: &Path, identity: FileIdentity) -> Result<FileIndex, Failure> {
    let others = match OthersFile::open(master) {
        Ok(others) => others,
        Err(error) => return stored::undivided(master)?.map_or_else(|| Err(error.into()), |found| of_undivided(found, identity)),
    };
    let Some(layout) = others.stacks().first().map(|placed| placed.layout.clone()) else {
        let why: Vec<String> = others.unreadable().map(|(path, why)| format!("{}: {why}", path.display())).collect();
        return Err(unreadable(master, format!("none of the files that it names can be read; {}", why.join(", "))));
    };
    let pixel = layout.dtype.ok_or_else(|| unreadable(master, "its pixels are of a type that is not known".into()))?;
    let size = [layout.rows, layout.columns];
    let spec =
        FileSpec { rows: size[0] as u32, columns: size[1] as u32, pixel, metadata: facts(&others, size), ..FileSpec::default() };
    let mut index = empty(master, identity, &spec, pixel, layout.compression);
    // Readers of such files show zeros where nothing was written.
    index.missing = vec![0; pixel.bytes()];
    index.shape = size.map(|length| length as u64).to_vec();
    let channels = layout.channels();
    index.images = others.images() / channels;
    let names = others.channel_names();
    if channels > 1 {
        index.channels = (0..channels as usize).map(|n| names.get(n).cloned().unwrap_or_else(|| n.to_string())).collect();
    }
    index.problems = others.unreadable().map(|(path, why)| format!("{}: {why}", path.display())).collect();
    index.parts = parts(stored::of_others(&others, CHUNKS_MAX)?, index.images)?;
    Ok(index)
}

fn of_undivided(found: Undivided, identity: FileIdentity) -> Result<FileIndex, Failure> {
    let Undivided { shape, pixel, part } = found;
    let spec = FileSpec { rows: shape[0] as u32, columns: shape[1] as u32, pixel, ..FileSpec::default() };
    let mut index = empty(&part.path, identity, &spec, pixel, Compression::None);
    (index.missing, index.shape, index.images) = (vec![0; pixel.bytes()], shape.to_vec(), part.images);
    index.parts = parts(vec![part], index.images)?;
    Ok(index)
}

/// The facts in the form that runs of this program have. They are without a distance where the file places the detector
/// in another way than such facts can say: no rings are better than wrong ones.
fn facts(others: &OthersFile, size: [usize; 2]) -> Metadata {
    let said = others.metadata();
    let mut facts = Metadata {
        energy_kev: said.energy_kev,
        detector_distance_m: said.detector_distance_m,
        beam_center_x_px: said.beam_center_px.map(|(x, _)| x),
        beam_center_y_px: said.beam_center_px.map(|(_, y)| y),
        pixel_size_m: said.pixel_size_m.map(|size| [size, size]),
        saturation_value: said.saturation_value.filter(|value| *value >= 0.0).map(|value| value as u64),
        underload_value: said.underload_value.map(|value| value as i64),
        ..Metadata::default()
    };
    let (Ok(place), Ok(simple)) = (others.detector_place(), Geometry::of_run(size, &facts)) else { return facts };
    let far = |vector: [f64; 3]| vector.map(|metres| metres * 1000.0);
    let corner = |origin: [f64; 3], fast: [f64; 3], slow: [f64; 3]| -> [f64; 3] {
        std::array::from_fn(|n| origin[n] + size[1] as f64 * fast[n] + size[0] as f64 * slow[n])
    };
    let (origin, fast, slow) = (far(place.origin_m), far(place.fast_m), far(place.slow_m));
    let pairs = [
        (origin, simple.origin_mm()),
        (corner(origin, fast, slow), corner(simple.origin_mm(), simple.fast_mm(), simple.slow_mm())),
    ];
    let is_same = pairs.iter().all(|(a, b)| a.iter().zip(b).all(|(a, b)| (a - b).abs() < SAME_MM));
    if place.moves || !is_same {
        facts.detector_distance_m = None;
    }
    facts
}
