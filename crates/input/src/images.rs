//! The images of any file, one at a time: pixels, which values are measurements, mask and geometry.

use konkordia_analysis::geometry::Geometry;
use konkordia_core::array::Element;
use konkordia_core::experiment::{Axis, KEV_ANGSTROM, Metadata};
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::frame_header::ColumnType;
use konkordia_core::pixel::PixelType;
use konkordia_core::results::{self, PIXEL_RESULTS, ResultKind};
use konkordia_kernels::byte_offset;
use konkordia_kernels::codec::decode;
use konkordia_sinks::hdf5::others::{OthersFile, is_ours};
use konkordia_sinks::hdf5::{DetectorPlace, FileSpec, Reader, StoredResults, Summary};
use konkordia_wire::cbf;
use konkordia_wire::files::of_pilatus_lines;
use konkordia_wire::stream::Bounds;
use std::path::{Path, PathBuf};

/// Largest CBF file.
const CBF_BYTES_MAX: u64 = 1 << 31;

/// Files that were opened and belong together.
pub struct Images {
    /// What is known of all images.
    pub facts: Facts,
    source: Source,
}

/// How images belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frames {
    /// They follow each other while the sample turns.
    Rotation {
        /// Number of the first image in its scan.
        first: u64,
    },
    /// Each is one of its own, or it is not known that they are not.
    Stills,
}

impl Frames {
    fn of(metadata: &Metadata, first: u64) -> Self {
        let goniometer = &metadata.experiment.goniometer;
        let turns = |axis: &Axis| axis.increment_deg.is_some_and(|increment| increment != 0.0);
        let sample = [&goniometer.omega, &goniometer.kappa, &goniometer.chi, &goniometer.phi];
        if sample.into_iter().any(turns) { Self::Rotation { first } } else { Self::Stills }
    }

    /// The number at the end of the name of a CBF file, from 1, is that of the image in its scan.
    fn of_name(metadata: &Metadata, path: &Path) -> Self {
        let name = path.file_stem().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let digits = name.len() - name.trim_end_matches(|letter: char| letter.is_ascii_digit()).len();
        let number = name[name.len() - digits..].parse::<u64>().unwrap_or(1);
        Self::of(metadata, number.saturating_sub(1))
    }
}

/// What is known of all images.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Number of images.
    pub images: u64,
    /// Rows and columns.
    pub shape: [usize; 2],
    /// Channels of an image, of which one is analysed.
    pub channels: u64,
    /// Type of a pixel.
    pub pixel: PixelType,
    /// Lowest and highest value that is a measurement.
    pub valid: (f64, f64),
    /// Which pixels count.
    pub usable: Vec<bool>,
    /// Geometry, or why there is none.
    pub geometry: Result<Geometry, String>,
    /// Facts of the measurement, as far as the files say them.
    pub metadata: Metadata,
    /// How they belong together.
    pub frames: Frames,
    /// What a run or series has measured or been told of its images, and analysis does not make.
    pub known: Vec<ResultKind>,
    /// The kinds of the results of the pixels, if they are to be made: where the reception of packets has not.
    pub of_pixels: Option<&'static [ResultKind; PIXEL_RESULTS]>,
    /// Who wrote the files.
    pub writer: &'static str,
    /// What a person should know.
    pub notes: Vec<String>,
}

enum Source {
    Own(Box<Own>),
    Others(Box<OthersFile>),
    Cbf(Vec<PathBuf>),
}

/// A file of Konkordia.
struct Own {
    reader: Reader,
    known: Option<Known>,
    /// Which of its channels is analysed.
    channel: usize,
}

/// What is known of the images, some at a time.
struct Known {
    stored: StoredResults,
    first: u64,
    rows: Vec<Vec<u64>>,
}

/// Images of which it is read together.
const KNOWN_TOGETHER: u64 = 256;

impl Known {
    fn of(&mut self, image: u64) -> Result<&[u64], Failure> {
        if !(self.first..self.first + self.rows.len() as u64).contains(&image) {
            let first = image - image % KNOWN_TOGETHER;
            let count = KNOWN_TOGETHER.min((self.stored.images() as u64).saturating_sub(first));
            (self.first, self.rows) = (first, self.stored.rows(first as usize, count as usize)?);
        }
        let row = self.rows.get((image - self.first) as usize);
        row.map(Vec::as_slice).ok_or_else(|| wrong(format!("nothing is stored of image {image}"), "", "repair the file"))
    }
}

/// An image: its pixels, little-endian; `None` if it was never written.
pub type Pixels = Option<Vec<u8>>;

impl Images {
    /// Opens one HDF5 file, or any number of CBF files. Of images with several channels only the one of this name is
    /// read, or the first.
    ///
    /// # Errors
    /// A file cannot be read, files do not belong together, or there is no such channel.
    pub fn open(files: &[PathBuf], channel: Option<&str>) -> Result<Self, Failure> {
        let first = files.first().ok_or_else(|| wrong("no file was given", "", "name the files to analyse"))?;
        if is_cbf(first)? {
            no_channel(first, channel)?;
            return open_cbf(files);
        }
        if let Some(second) = files.get(1) {
            let why = format!("{} is HDF5, and there is also {}", first.display(), second.display());
            return Err(wrong("several files are possible only if all are CBF", why, "give one master or data file at a time"));
        }
        if is_ours(first) == Some(true) {
            return open_own(first, channel);
        }
        no_channel(first, channel)?;
        open_others(first)
    }

    /// One image.
    ///
    /// # Errors
    /// It cannot be read or decoded.
    pub fn read(&self, image: u64) -> Result<Pixels, Failure> {
        match &self.source {
            Source::Own(own) => {
                let mut pixels = own.reader.read_image(image, &decode)?;
                let bytes = self.facts.shape.iter().product::<usize>() * self.facts.pixel.bytes();
                pixels.drain(..own.channel * bytes);
                pixels.truncate(bytes);
                Ok(Some(pixels))
            }
            Source::Others(file) => Ok(file.image(image, &decode)?.1),
            Source::Cbf(files) => {
                let path = &files[image as usize];
                let bytes = cbf_bytes(path)?;
                let parsed = parse_cbf(path, &bytes)?;
                self.facts.check_shape(path, &parsed)?;
                unpack_cbf(path, &parsed).map(Some)
            }
        }
    }

    /// NXmx mask bits, row by row, if the files have a mask.
    pub fn mask(&self) -> Option<Vec<u32>> {
        let mask = match &self.source {
            Source::Own(own) => own.reader.pixel_mask(),
            Source::Others(file) => file.pixel_mask(),
            Source::Cbf(_) => None,
        };
        mask.filter(|mask| mask.len() == self.facts.usable.len())
    }

    /// The state of each image ([`konkordia_core::ledger::ImageStatus`]), if Konkordia wrote the files.
    pub fn states(&self) -> Option<Vec<u64>> {
        match &self.source {
            Source::Own(own) => own.reader.column("status"),
            Source::Others(_) | Source::Cbf(_) => None,
        }
    }

    /// The description of the run that wrote the files, if Konkordia did.
    pub fn run(&self) -> Option<&FileSpec> {
        match &self.source {
            Source::Own(own) => own.reader.summary().spec.as_ref(),
            Source::Others(_) | Source::Cbf(_) => None,
        }
    }

    /// Appends what is known of an image, [`Facts::known`].
    ///
    /// # Errors
    /// It cannot be read.
    pub fn add_known(&mut self, image: u64, bits: &mut Vec<u64>) -> Result<(), Failure> {
        if let Source::Own(own) = &mut self.source
            && let Some(known) = &mut own.known
        {
            bits.extend_from_slice(known.of(image)?);
        }
        Ok(())
    }
}

impl Facts {
    fn check_shape(&self, path: &Path, image: &cbf::Image<'_>) -> Result<(), Failure> {
        let (shape, pixel) = cbf_type(path, image)?;
        if (shape, pixel) == (self.shape, self.pixel) {
            return Ok(());
        }
        let why = format!("it is {shape:?} {pixel}, the first one is {:?} {}", self.shape, self.pixel);
        Err(wrong(format!("{} has another size or type", path.display()), why, "analyse files of one detector at a time"))
    }
}

fn wrong(what: impl Into<String>, why: impl Into<String>, fix: &str) -> Failure {
    Failure::new(Exit::Usage, what.into(), why.into(), fix)
}

fn no_channel(path: &Path, channel: Option<&str>) -> Result<(), Failure> {
    let Some(channel) = channel else { return Ok(()) };
    let what = format!("{} has no channel \"{channel}\"", path.display());
    Err(wrong(what, "only files of Konkordia have channels with names", "leave --channel out"))
}

/// Which of so many channels has this name, and a note if nobody has chosen one of several.
fn channel_of(path: &Path, summary: &Summary, channels: u64, wanted: Option<&str>) -> Result<(usize, Option<String>), Failure> {
    let known = summary.spec.as_ref().and_then(|spec| spec.series.as_ref()).map_or(&[][..], |series| &series.channels);
    let names: Vec<&str> = known.iter().map(|channel| &*channel.name).collect();
    let said = names.join(", ");
    match wanted {
        None if channels > 1 => {
            let note = format!("its images have {channels} channels ({said}); the first is analysed; --channel names another");
            Ok((0, Some(note)))
        }
        None => Ok((0, None)),
        Some(name) => {
            let found = names.iter().position(|known| *known == name).filter(|n| (*n as u64) < channels);
            let why = if said.is_empty() { "its channels have no names".to_owned() } else { format!("there are: {said}") };
            let what = format!("{} has no channel \"{name}\"", path.display());
            Ok((found.ok_or_else(|| wrong(what, why, "correct --channel, or leave it out"))?, None))
        }
    }
}

fn open_own(path: &Path, channel: Option<&str>) -> Result<Images, Failure> {
    let reader = Reader::open(path)?;
    let summary = reader.summary();
    let shape = [summary.rows as usize, summary.columns as usize];
    let pixels = shape[0] * shape[1];
    let mut notes = Vec::new();
    let (mut usable, mut geometry) = (vec![true; pixels], Err("the file has no description of its run".to_owned()));
    let (mut frames, mut metadata) = (Frames::Stills, Metadata::default());
    match reader.pixel_mask() {
        Some(mask) => usable.iter_mut().zip(mask).for_each(|(usable, bits)| *usable = bits == 0),
        None => notes.push("it has no mask".into()),
    }
    if let Some(spec) = &summary.spec {
        if spec.raw_words {
            let fix = "convert the run first: konkordia convert FILE -o OUT --calibration ...";
            return Err(wrong("raw words cannot be analysed", "they are not photons", fix));
        }
        geometry = Geometry::of_run(shape, &spec.metadata);
        frames = Frames::of(&spec.metadata, 0);
        metadata = spec.metadata.clone();
    }
    let channels = summary.image_shape.iter().rev().skip(2).product();
    let (channel, note) = channel_of(path, summary, channels, channel)?;
    notes.extend(note);
    if summary.images_file_missing > 0 {
        notes.push(format!("{} images lie in data files that cannot be read", summary.images_file_missing));
    }
    let mut stored = StoredResults::beside_analysis(path)?;
    let kinds = stored.as_ref().map_or_else(Vec::new, StoredResults::kinds);
    let of_pixels: Vec<_> = kinds.iter().filter(|kind| results::is_of_pixels(kind.name)).collect();
    // Those of UDP runs were made where packets arrive. In a series the analysis makes them, of the same types.
    let is_series = summary.spec.as_ref().is_some_and(|spec| spec.series.is_some());
    let are_floats = of_pixels.iter().any(|kind| kind.number == ColumnType::F64);
    let of_pixels = (is_series || of_pixels.len() != PIXEL_RESULTS)
        .then(|| results::pixel_results(if are_floats { PixelType::Float32 } else { summary.pixel }));
    if let (Some(stored), Some(_)) = (&mut stored, of_pixels) {
        stored.retain(|kind| !results::is_of_pixels(kind.name));
    }
    let facts = Facts {
        images: summary.images,
        shape,
        channels,
        pixel: summary.pixel,
        valid: summary.valid_range(),
        usable,
        geometry,
        metadata,
        frames,
        of_pixels,
        known: stored.as_ref().map_or_else(Vec::new, StoredResults::kinds),
        writer: "Konkordia",
        notes,
    };
    let known = stored.map(|stored| Known { stored, first: 0, rows: Vec::new() });
    Ok(Images { facts, source: Source::Own(Box::new(Own { reader, known, channel })) })
}

fn open_others(path: &Path) -> Result<Images, Failure> {
    let file = OthersFile::open(path)?;
    let Some(first) = file.stacks().iter().find(|stack| stack.first_image.is_some()) else {
        return Err(wrong(format!("{} holds no images", path.display()), "", "give a master or data file"));
    };
    let layout = &first.layout;
    let Some(pixel) = layout.dtype else {
        return Err(wrong(
            "the type of the pixels is not known",
            format!("{} bytes a pixel", layout.element_bytes),
            "repack the file",
        ));
    };
    let (shape, metadata) = ([layout.rows, layout.columns], file.metadata());
    let run = Metadata {
        energy_kev: metadata.energy_kev,
        detector_distance_m: metadata.detector_distance_m,
        beam_center_x_px: metadata.beam_center_px.map(|center| center.0),
        beam_center_y_px: metadata.beam_center_px.map(|center| center.1),
        pixel_size_m: metadata.pixel_size_m.map(|size| [size; 2]),
        ..Metadata::default()
    };
    let mut usable = vec![true; shape[0] * shape[1]];
    let mut notes: Vec<String> = Vec::new();
    match file.pixel_mask() {
        Some(mask) if mask.len() == usable.len() => {
            usable.iter_mut().zip(mask).for_each(|(usable, bits)| *usable = bits == 0);
        }
        Some(mask) => notes.push(format!("its mask has {} values for {} pixels and is not used", mask.len(), usable.len())),
        None => notes.push("it has no mask".into()),
    }
    let (geometry, note) = place_of_others(shape, &run, file.detector_place());
    notes.extend(note);
    let facts_of_run = geometry.as_ref().ok().and_then(|geometry| geometry.facts().ok()).unwrap_or_default().over(run);
    notes.extend(file.unreadable().map(|(path, why)| format!("{} cannot be read: {why}", path.display())));
    let facts = Facts {
        images: file.images(),
        shape,
        channels: 1,
        pixel,
        valid: metadata.valid_range(pixel),
        usable,
        geometry,
        metadata: facts_of_run,
        frames: Frames::Stills,
        known: Vec::new(),
        of_pixels: Some(results::pixel_results(pixel)),
        writer: "another program",
        notes,
    };
    Ok(Images { facts, source: Source::Others(Box::new(file)) })
}

/// Pixels by which two beam centres may differ.
const CENTER_DIFFERENCE_MAX_PX: f64 = 1.0;
/// Part by which two distances may differ.
const DISTANCE_DIFFERENCE_MAX: f64 = 0.01;

/// The geometry by the transformations of a file of another program, otherwise by its beam centre and distance, and
/// what a person should know of it.
fn place_of_others(
    shape: [usize; 2],
    run: &Metadata,
    place: Result<&DetectorPlace, &str>,
) -> (Result<Geometry, String>, Option<String>) {
    let flat = |why: &str| {
        let note = "the detector is taken as not tilted and the beam as meeting it straight; give --poni if it is not so";
        (Geometry::of_run(shape, run), Some(format!("{note} ({why})")))
    };
    let made = place.map_err(str::to_owned).and_then(|place| {
        let mm = |vector: [f64; 3]| vector.map(|component| 1000.0 * component);
        let wavelength = run.energy_kev.map(|energy| KEV_ANGSTROM / energy);
        let geometry = Geometry::new(shape, mm(place.origin_m), mm(place.fast_m), mm(place.slow_m), wavelength)?;
        Ok((geometry, place.moves))
    });
    let (geometry, moves) = match made {
        Ok(made) => made,
        Err(why) => return flat(&why),
    };
    let away = |a: [f64; 2], b: [f64; 2]| (a[0] - b[0]).hypot(a[1] - b[1]);
    let beam = geometry.beam_center_px();
    let straight = beam.zip(geometry.normal_point_px()).filter(|(beam, normal)| away(*beam, *normal) < 0.01);
    // Where the beam meets a detector straight, centre and distance say the same as the transformations.
    if beam.is_none() || straight.is_some() {
        let stated = run.beam_center_x_px.zip(run.beam_center_y_px).map(|(x, y)| [x, y]);
        let is_near = |stated: [f64; 2]| beam.is_some_and(|beam| away(beam, stated) <= CENTER_DIFFERENCE_MAX_PX);
        let distance_mm = geometry.normal_distance_mm();
        let is_as_far = |m: f64| (1000.0 * m - distance_mm).abs() <= DISTANCE_DIFFERENCE_MAX * distance_mm;
        if stated.is_some_and(|stated| !is_near(stated)) || run.detector_distance_m.is_some_and(|m| !is_as_far(m)) {
            return flat("beam centre and distance in the file contradict its transformations");
        }
    }
    let note = "the detector moves; its place is that of the first image";
    (Ok(geometry), moves.then(|| note.to_owned()))
}

pub(crate) fn is_cbf(path: &Path) -> Result<bool, Failure> {
    use std::io::Read;
    let mut head = [0; cbf::MAGIC.len()];
    let read = std::fs::File::open(path).and_then(|mut file| file.read(&mut head));
    let count = read.map_err(|error| Failure::io("cannot read", path, &error))?;
    Ok(&head[..count] == cbf::MAGIC)
}

fn cbf_bytes(path: &Path) -> Result<Vec<u8>, Failure> {
    let cannot = |error: std::io::Error| Failure::io("cannot read", path, &error);
    let bytes = std::fs::metadata(path).map_err(cannot)?.len();
    if bytes > CBF_BYTES_MAX {
        return Err(wrong(
            format!("{} is too large", path.display()),
            format!("{bytes} bytes"),
            "give a CBF file with one image",
        ));
    }
    std::fs::read(path).map_err(cannot)
}

fn parse_cbf<'a>(path: &Path, bytes: &'a [u8]) -> Result<cbf::Image<'a>, Failure> {
    cbf::Image::parse(bytes, &Bounds::default()).map_err(|refusal| {
        wrong(format!("{} is not a CBF file of one image", path.display()), refusal.to_string(), "give another file")
    })
}

fn cbf_type(path: &Path, image: &cbf::Image<'_>) -> Result<([usize; 2], PixelType), Failure> {
    let pixel = match image.element {
        Element::Uint8 => PixelType::Uint8,
        Element::Int8 => PixelType::Int8,
        Element::Uint16 => PixelType::Uint16,
        Element::Int16 => PixelType::Int16,
        Element::Uint32 => PixelType::Uint32,
        Element::Int32 => PixelType::Int32,
        Element::Float32 => PixelType::Float32,
        other => return Err(wrong(format!("{}: pixels of this type", path.display()), other.name(), "give another file")),
    };
    let dimensions = image.shape.dimensions();
    Ok(([dimensions[0] as usize, dimensions[1] as usize], pixel))
}

fn unpack_cbf(path: &Path, image: &cbf::Image<'_>) -> Result<Vec<u8>, Failure> {
    if image.packing == cbf::Packing::None {
        return Ok(image.data.to_vec());
    }
    let mut pixels = vec![0; image.shape.elements() as usize * image.element.bits() as usize / 8];
    byte_offset::decode(image.data, &mut pixels)
        .map_err(|why| wrong(format!("{} cannot be unpacked", path.display()), why.to_string(), "bring back a whole copy"))?;
    Ok(pixels)
}

fn open_cbf(files: &[PathBuf]) -> Result<Images, Failure> {
    let path = &files[0];
    let bytes = cbf_bytes(path)?;
    let image = parse_cbf(path, &bytes)?;
    let (shape, pixel) = cbf_type(path, &image)?;
    let metadata = of_pilatus_lines(&image.contents, None);
    let facts = Facts {
        images: files.len() as u64,
        shape,
        channels: 1,
        pixel,
        // Gaps are -1, and dead pixels -2.
        valid: (0.0, metadata.saturation_value.map_or(f64::INFINITY, |counts| counts as f64)),
        usable: vec![true; shape[0] * shape[1]],
        geometry: Geometry::of_run(shape, &metadata),
        frames: Frames::of_name(&metadata, path),
        metadata,
        known: Vec::new(),
        of_pixels: Some(results::pixel_results(pixel)),
        writer: "another program (CBF)",
        notes: vec!["geometry and limits are those of the first file".into()],
    };
    Ok(Images { facts, source: Source::Cbf(files.to_vec()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_cbf_file_is_read() {
        let text = "# Pixel_size 172e-6 m x 172e-6 m\n# Count_cutoff 115000 counts\n# Wavelength 0.96859 A\n\
                    # Detector_distance 0.351 m\n# Beam_xy (1261.61, 1306.96) pixels\n# Tau = 0 s\n";
        let metadata = of_pilatus_lines(text, None);
        assert!((metadata.energy_kev.unwrap() - 12.8005).abs() < 1e-3);
        assert_eq!((metadata.detector_distance_m, metadata.saturation_value), (Some(0.351), Some(115_000)));
        assert_eq!((metadata.beam_center_x_px, metadata.beam_center_y_px), (Some(1261.61), Some(1306.96)));
        assert_eq!(metadata.pixel_size_m, Some([172e-6; 2]));
        assert_eq!(of_pilatus_lines("", None), Metadata::default());
    }
}
