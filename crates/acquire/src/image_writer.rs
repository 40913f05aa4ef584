//! Writes images of any program into files as those of a series: a master, data files with a journal each, and a
//! ledger.

use konkordia_core::array::{Array, Element, Packing, Shape};
use konkordia_core::experiment::Metadata;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::image::{Channel, CommittedImage};
use konkordia_core::ledger::ImageStatus;
use konkordia_core::pixel::PixelType;
use konkordia_core::plan::Compression;
use konkordia_core::ports::Sink;
use konkordia_core::results::{self, ImageResults, ResultKind};
use konkordia_core::series::{ChannelStart, Ended, SeriesEnd, SeriesLedger, SeriesStart, UpstreamLedger};
use konkordia_kernels::codec::compress;
use konkordia_kernels::{ElementSize, Isa};
use konkordia_sinks::clock;
use konkordia_sinks::hdf5::{FileSink, FileSpec, Overwrite, Scale, SeriesFileSpec, SharedState, master_path};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// Most positions that may be left out before an image: each becomes a row of the file.
const GAP_MAX: u64 = 1_000_000;

/// What is written, and where.
#[derive(Clone, Debug)]
pub struct ImageFiles {
    /// Folder and first part of the file names; `OUT_master.h5` is the same as `OUT`.
    pub output: PathBuf,
    /// Existing files of this name are replaced.
    pub overwrite: bool,
    /// Rows and columns.
    pub shape: [usize; 2],
    /// Type of the pixels.
    pub pixel: PixelType,
    /// Of the pixels.
    pub compression: Compression,
    /// Images per data file.
    pub images_per_file: u32,
    /// Images that are to come, if that is known. Fewer make the file incomplete.
    pub images: Option<u64>,
    /// NXmx mask bits, row by row; `None` = no bit is set.
    pub mask: Option<Vec<u32>>,
    /// Facts of the measurement.
    pub metadata: Metadata,
}

/// What the files of a run hold beside images and metadata.
#[derive(Clone, Debug, Default)]
pub struct Beside {
    /// Results of each image: they become columns.
    pub results: Arc<[ResultKind]>,
    /// What was done to the pixels: names and values.
    pub notes: Vec<(String, String)>,
    /// What the numbers mean, if they are not the values themselves.
    pub scale: Option<Scale>,
    /// Hash of the calibration that was used.
    pub calibration_hash: String,
}

/// An image whose pixels are packed as [`ImageFiles::compression`] says ([`pack`]).
#[derive(Clone, Debug)]
pub struct PackedImage<'a> {
    /// The chunk.
    pub chunk: Vec<u8>,
    /// [`ImageStatus::Partial`] if some of its pixels are missing.
    pub status: ImageStatus,
    /// The bits of the numbers of [`Beside::results`].
    pub results: &'a [u64],
}

/// Open files, to which images are added.
pub struct ImageWriter {
    sink: FileSink,
    shared: Arc<SharedState>,
    master: PathBuf,
    files: ImageFiles,
    results: Arc<[ResultKind]>,
    shape: Shape,
    ledger: SeriesLedger,
    /// Number of the next image.
    next: u64,
    began: Instant,
}

impl ImageWriter {
    /// Checks what can be known now: folder, names, older files. The files are made with the first image.
    ///
    /// # Errors
    /// The images cannot be written like this, or not there.
    pub fn open(files: ImageFiles) -> Result<Self, Failure> {
        Self::open_with(files, Beside::default())
    }

    /// As [`Self::open`], for files that hold more than images and metadata.
    ///
    /// # Errors
    /// As of [`Self::open`].
    pub fn open_with(files: ImageFiles, beside: Beside) -> Result<Self, Failure> {
        let (directory, prefix) = folder_and_prefix(&files.output)?;
        let [rows, columns] = files.shape.map(|edge| edge as u64);
        let master = master_path(&directory, &prefix);
        let file = FileSpec {
            directory,
            prefix,
            images_per_file: files.images_per_file,
            overwrite: if files.overwrite { Overwrite::Replace } else { Overwrite::Refuse },
            images_planned: files.images,
            scale: beside.scale,
            calibration_hash: beside.calibration_hash,
            ..FileSpec::default()
        };
        let spec = SeriesFileSpec { file, clock: Some(clock::now), ..SeriesFileSpec::default() };
        let shape = Shape::new(&[rows, columns]).ok_or_else(|| refused("an image of this shape cannot be written", &files))?;
        let mask = files.mask.as_ref().map(|mask| Array {
            shape,
            element: Element::Uint32,
            packing: Packing::None,
            pieces: vec![bytemuck::cast_slice(mask).to_vec().into()],
        });
        let mut facts = files.metadata.clone();
        facts.start_time.get_or_insert_with(clock::now);
        let start = SeriesStart {
            images_planned: files.images,
            image_size: Some([rows, columns]),
            element: Some(files.pixel.into()),
            channels: vec![ChannelStart { pixel_mask: mask, ..ChannelStart::default() }],
            facts,
            notes: beside.notes,
            results: beside.results.to_vec(),
            store: true,
            ..SeriesStart::default()
        };
        let mut sink = FileSink::of_series(Box::new(move |_| Ok(Some(spec.clone().into()))));
        let shared = sink.shared();
        sink.start(&Arc::new(start))?;
        let ledger = SeriesLedger {
            upstreams: vec![UpstreamLedger::default()],
            parts_per_image: 1,
            frames_per_image: 1,
            ..SeriesLedger::default()
        };
        let results = beside.results;
        Ok(Self { sink, shared, master, shape, files, results, ledger, next: 0, began: Instant::now() })
    }

    /// The master file.
    pub fn master(&self) -> &Path {
        &self.master
    }

    /// What is written.
    pub fn files(&self) -> &ImageFiles {
        &self.files
    }

    /// Number of the next image.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Adds an image; positions between the last one and `number` are lost. `pixels` are little-endian.
    ///
    /// # Errors
    /// The number is not above that of the image before, or the file cannot be written.
    pub fn append(&mut self, number: u64, pixels: &[u8]) -> Result<(), Failure> {
        let image_bytes = self.files.shape[0] * self.files.shape[1] * self.files.pixel.bytes();
        if pixels.len() != image_bytes {
            return Err(refused(&format!("an image has {} bytes, and not {image_bytes}", pixels.len()), &self.files));
        }
        let chunk = pack(self.files.compression, self.files.pixel, pixels)?;
        self.append_packed(number, PackedImage { chunk, status: ImageStatus::Complete, results: &[] })
    }

    /// Adds an image whose chunk and results are there already.
    ///
    /// # Errors
    /// As of [`Self::append`], or these are not the numbers of the results.
    pub fn append_packed(&mut self, number: u64, image: PackedImage<'_>) -> Result<(), Failure> {
        let mut results = ImageResults::new(Arc::clone(&self.results));
        if !image.results.is_empty() {
            let numbers = results::numbers(&self.results);
            if image.results.len() != numbers {
                return Err(refused(&format!("an image has {} results, and not {numbers}", image.results.len()), &self.files));
            }
            results.fill().copy_from_slice(image.results);
        }
        if number < self.next || number - self.next > GAP_MAX {
            let why = format!("the next image is number {}, and at most {GAP_MAX} may be left out", self.next);
            return Err(refused(&format!("image {number} cannot follow: {why}"), &self.files));
        }
        for lost in self.next..number {
            self.hand_over(CommittedImage {
                results: ImageResults::new(Arc::clone(&self.results)),
                ..CommittedImage::lost(lost)
            })?;
        }
        let packing = self.files.compression.packing();
        let pieces = vec![image.chunk.into()];
        let array = Array { shape: self.shape, element: self.files.pixel.into(), packing, pieces };
        let channels = vec![Channel { name: "".into(), array }];
        self.hand_over(CommittedImage { status: image.status, channels, results, ..CommittedImage::lost(number) })?;
        self.sink.tick(self.began.elapsed().as_nanos() as u64)?;
        Ok(())
    }

    fn hand_over(&mut self, image: CommittedImage) -> Result<(), Failure> {
        let (lost, refused_before) = (image.status == ImageStatus::Lost, self.shared.refused());
        self.sink.image(&Arc::new(image.clone()))?;
        self.ledger.enter(&image);
        self.next = image.number + 1;
        let upstream = &mut self.ledger.upstreams[0];
        upstream.received += u64::from(!lost);
        upstream.placed += u64::from(!lost);
        upstream.received_bytes += image.unpacked_bytes();
        if self.shared.refused() > refused_before {
            let why = self.shared.names().last_error.unwrap_or_default();
            return Err(refused(&why, &self.files));
        }
        Ok(())
    }

    /// Closes the files. `broken`: why they are not what they were to be.
    ///
    /// # Errors
    /// Something could not be written.
    pub fn close(mut self, broken: Option<String>) -> Result<(), Failure> {
        self.ledger.close(self.files.images, false);
        let (ended, reason) = broken.map_or((Ended::Finished, String::new()), |why| (Ended::Failed, why));
        Ok(self.sink.end(&Arc::new(SeriesEnd { ended, reason, ledger: self.ledger }))?)
    }
}

/// The chunk of an image.
///
/// # Errors
/// Pixels of this type cannot be compressed.
pub fn pack(compression: Compression, pixel: PixelType, pixels: &[u8]) -> Result<Vec<u8>, Failure> {
    let element = ElementSize::new(pixel.bytes()).ok_or_else(|| {
        Failure::new(Exit::Usage, format!("pixels of type {pixel} cannot be compressed"), "", "give another dtype")
    })?;
    let strip_bytes = pixels.len().next_multiple_of(compression.block_bytes()).max(compression.block_bytes());
    Ok(compress(compression, Isa::detect(), element, pixels, strip_bytes))
}

fn refused(why: &str, files: &ImageFiles) -> Failure {
    let [rows, columns] = files.shape;
    let fix = format!("these files take images of {rows} x {columns} {} pixels, in ascending order", files.pixel);
    Failure::new(Exit::Usage, format!("{} cannot be written", files.output.display()), why, fix)
}

/// Folder and prefix; `run_master.h5` and `run` are the same.
fn folder_and_prefix(output: &Path) -> Result<(PathBuf, String), Failure> {
    let name = output.file_name().and_then(|name| name.to_str()).filter(|_| !output.is_dir());
    let Some(name) = name else {
        let why = "the first part of the file names is missing, or is not UTF-8";
        let fix = format!("add a name: {}", output.join("run01").display());
        return Err(Failure::new(Exit::Configuration, format!("{} names no file", output.display()), why, fix));
    };
    let prefix = name.strip_suffix("_master.h5").unwrap_or(name).to_owned();
    let folder = output.parent().filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let directory = std::path::absolute(folder).map_err(|error| Failure::io("cannot find", folder, &error))?;
    Ok((directory, prefix))
}
