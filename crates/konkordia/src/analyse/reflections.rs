//! Spots as a reflection table of DIALS (`.refl`): msgpack, column by column, as its class `reflection_table` reads it
//! (dials/array_family/flex.py and boost_python/reflection_table_suite.h of DIALS 3.12: name, version 1, identifiers,
//! number of rows, and for each column its type and its little-endian bytes).
//!
//! While the sample turns, a reflection is seen on several images. Spots of consecutive images that overlap are one
//! row then, as they are for `dials.find_spots`: without that, DIALS takes the distance between them for one of the
//! lattice.

use konkordia_analysis::spot::{Rectangle, Spot};
use konkordia_core::failure::{Exit, Failure};
use konkordia_input::images::Frames;
use std::fs::Permissions;
use std::io::{BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::{Builder, NamedTempFile};

/// Rows that a table may have; they are kept in memory, 140 bytes each.
const ROWS_MAX: usize = 10_000_000;
/// The flag of DIALS for a spot that was found, and not predicted.
const STRONG: u64 = 1 << 5;
/// Variance of a place that is only known to lie within a pixel or an image.
const PIXEL_VARIANCE: f64 = 1.0 / 12.0;

/// A table while it grows.
pub struct Reflections {
    path: PathBuf,
    /// Under another name until it is whole.
    file: NamedTempFile,
    frames: Frames,
    rows: usize,
    /// Reflections that the next image may show too.
    open: Vec<Reflection>,
    columns: [Column; 10],
}

/// What one or more images show of a reflection.
struct Reflection {
    experiment: i32,
    /// The first and the last frame.
    frames: [u64; 2],
    /// Around all its pixels, and around those of the last frame.
    box_px: Rectangle,
    last_px: Rectangle,
    /// Columns, rows and frames, each times the intensity; and the sum of the intensities.
    sums: [f64; 3],
    weight: f64,
    intensity: f64,
    /// With those of the background: the variance of the intensity.
    counts: f64,
    pixels: u32,
}

impl Reflection {
    fn new(experiment: i32, frame: u64) -> Self {
        let nothing = Rectangle { first_px: [u32::MAX; 2], last_px: [0; 2] };
        let (sums, weight) = ([0.0; 3], 0.0);
        let (box_px, last_px, frames) = (nothing, nothing, [frame; 2]);
        Self { experiment, frames, box_px, last_px, sums, weight, intensity: 0.0, counts: 0.0, pixels: 0 }
    }

    /// Whether a spot of this frame belongs to it.
    fn goes_on(&self, frame: u64, spot: &Spot) -> bool {
        let overlaps = |n: usize| {
            self.last_px.first_px[n] <= spot.rectangle.last_px[n] && spot.rectangle.first_px[n] <= self.last_px.last_px[n]
        };
        self.frames[1] + 1 == frame && overlaps(0) && overlaps(1)
    }

    fn add(&mut self, frame: u64, spot: &Spot) {
        let weight = spot.intensity.max(f64::MIN_POSITIVE);
        for (sum, at) in self.sums.iter_mut().zip([spot.x_px, spot.y_px, frame as f64]) {
            *sum += weight * at;
        }
        self.weight += weight;
        (self.frames[1], self.last_px) = (frame, spot.rectangle);
        self.box_px = self.box_px.around(spot.rectangle);
        self.intensity += spot.intensity;
        self.counts += spot.intensity + spot.background * f64::from(spot.pixels);
        self.pixels += spot.pixels;
    }
}

struct Column {
    name: &'static str,
    /// As DIALS calls it.
    number: &'static str,
    bytes: Vec<u8>,
}

impl Reflections {
    /// An empty table, to be written to `path`.
    ///
    /// # Errors
    /// There is such a file already, or it cannot be created.
    pub fn new(path: &Path, frames: Frames) -> Result<Self, Failure> {
        if path.exists() {
            let fix = "choose another name, or remove the old file";
            return Err(Failure::new(Exit::Usage, format!("cannot create {}", path.display()), "the file exists", fix));
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        // As any other new file: what the user's mask leaves.
        let file = Builder::new().permissions(Permissions::from_mode(0o666)).tempfile_in(folder);
        let file = file.map_err(|error| Failure::io("cannot create", path, &error))?;
        let column = |name, number| Column { name, number, bytes: Vec::new() };
        let columns = [
            column("bbox", "int6"),
            column("flags", "std::size_t"),
            column("id", "int"),
            column("imageset_id", "int"),
            column("intensity.sum.value", "double"),
            column("intensity.sum.variance", "double"),
            column("n_signal", "int"),
            column("panel", "std::size_t"),
            column("xyzobs.px.value", "vec3<double>"),
            column("xyzobs.px.variance", "vec3<double>"),
        ];
        Ok(Self { path: path.to_owned(), file, frames, rows: 0, open: Vec::new(), columns })
    }

    /// Appends the spots of an image. Images come in their order.
    ///
    /// # Errors
    /// There are too many.
    pub fn image(&mut self, image: u64, spots: &[Spot]) -> Result<(), Failure> {
        let (frame, experiment) = match self.frames {
            Frames::Rotation { first } => (first + image, 0),
            // Each is an experiment of its own.
            Frames::Stills => (image, image as i32),
        };
        let mut before = std::mem::take(&mut self.open);
        for spot in spots {
            let seen = before.iter().position(|open| self.frames != Frames::Stills && open.goes_on(frame, spot));
            let mut reflection = seen.map_or_else(|| Reflection::new(experiment, frame), |at| before.swap_remove(at));
            reflection.add(frame, spot);
            self.open.push(reflection);
        }
        before.iter().try_for_each(|closed| self.row(closed))
    }

    fn row(&mut self, reflection: &Reflection) -> Result<(), Failure> {
        self.rows += 1;
        if self.rows > ROWS_MAX {
            let what = format!("{} cannot be written", self.path.display());
            let fix = "write a table for each part of the images (--images), or look for fewer spots";
            return Err(Failure::new(Exit::Usage, what, format!("there are more than {ROWS_MAX} spots"), fix));
        }
        let Reflection { experiment, frames: [z0, z1], box_px, .. } = *reflection;
        let ([x0, y0], [x1, y1]) = (box_px.first_px, box_px.last_px);
        let [bbox, flags, id, imageset, sum, variance, signal, panel, place, spread] = &mut self.columns;
        for edge in [x0, x1 + 1, y0, y1 + 1, z0 as u32, z1 as u32 + 1] {
            bbox.put(edge.to_le_bytes());
        }
        flags.put(STRONG.to_le_bytes());
        id.put(experiment.to_le_bytes());
        imageset.put(experiment.to_le_bytes());
        sum.put(reflection.intensity.to_le_bytes());
        variance.put(reflection.counts.max(1.0).to_le_bytes());
        signal.put(reflection.pixels.to_le_bytes());
        panel.put(0u64.to_le_bytes());
        for sum in reflection.sums {
            // Places of DIALS begin at the corner of the first pixel.
            place.put((sum / reflection.weight + 0.5).to_le_bytes());
            spread.put(PIXEL_VARIANCE.to_le_bytes());
        }
        Ok(())
    }

    /// Writes the file; under its own name only when it is whole.
    ///
    /// # Errors
    /// The disk does not take it, or there is such a file meanwhile.
    pub fn finish(mut self) -> Result<(), Failure> {
        std::mem::take(&mut self.open).iter().try_for_each(|closed| self.row(closed))?;
        let failed = |error: &std::io::Error| Failure::io("cannot write", &self.path, error);
        self.write(&mut BufWriter::new(self.file.as_file())).map_err(|error| failed(&error))?;
        self.file.as_file().sync_all().map_err(|error| failed(&error))?;
        self.file.persist_noclobber(&self.path).map_err(|error| failed(&error.error))?;
        Ok(())
    }

    fn write(&self, out: &mut impl Write) -> std::io::Result<()> {
        use rmp::encode;
        encode::write_array_len(out, 3)?;
        encode::write_str(out, "dials::af::reflection_table")?;
        encode::write_uint(out, 1)?;
        encode::write_map_len(out, 3)?;
        encode::write_str(out, "identifiers")?;
        encode::write_map_len(out, 0)?;
        encode::write_str(out, "nrows")?;
        encode::write_uint(out, self.rows as u64)?;
        encode::write_str(out, "data")?;
        encode::write_map_len(out, self.columns.len() as u32)?;
        for Column { name, number, bytes } in &self.columns {
            encode::write_str(out, name)?;
            encode::write_array_len(out, 2)?;
            encode::write_str(out, number)?;
            encode::write_array_len(out, 2)?;
            encode::write_uint(out, self.rows as u64)?;
            encode::write_bin(out, bytes)?;
        }
        out.flush()
    }
}

impl Column {
    fn put<const BYTES: usize>(&mut self, number: [u8; BYTES]) {
        self.bytes.extend_from_slice(&number);
    }
}
