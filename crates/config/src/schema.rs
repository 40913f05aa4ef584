//! Every key of the configuration, listed once. The reader, the error messages, `config schema` and
//! docs/configuration.md are made from this list.

pub use super::schema_key::{Key, Kind};
use super::schema_key::{key, quantity};
pub use super::schema_service::NAMED;
use super::{schema_analysis, schema_experiment, schema_gpu, schema_images, schema_service, schema_source};
use konkordia_core::plan::Compression;

/// The tables in the order of the documentation. Those of [`ARRAYS`] may stand several times, those of [`NAMED`] hold
/// one table per name.
pub const TABLES: &[(&str, &str)] = &[
    ("detector", "the detector, and the layout of its tiles in the image"),
    ("detector.tile", "explicit place of one stream's tile, once per stream in stream order: `[[detector.tile]]`"),
    ("source", "where the packets or messages arrive"),
    (
        "source.module",
        "place of one upstream's part in the image, with `join = \"modules\"`, once per upstream in their order: `[[source.module]]`",
    ),
    ("transform", "how the images of a stream are changed; without it they are passed on unchanged"),
    ("calibration", "pedestals and gains, which turn JUNGFRAU words into photons"),
    ("processing", "how pixels are computed, and what is done with incomplete images"),
    ("frames", "which frames of the detector become images; without it all do"),
    ("tracking", "pedestals of a JUNGFRAU that follow the drift during the run"),
    ("output", "the files"),
    ("goniometer", "angles of the sample and of the detector's arm, for the file; without them a run is a series of stills"),
    ("experiment", "properties of the sample and of the beam, for the file"),
    (
        "part",
        "this host receives and writes a part of the image; the master of the whole image is made of the files of all parts (docs/parts.md)",
    ),
    ("travel", "a small lossy archive copy of the run, made after the run"),
    ("run", "when a run begins and ends, and how much memory it takes"),
    ("image_metadata", "what is known of each image beside its pixels: in files, streams, rules and metrics"),
    ("analysis", "images are analysed while they are measured"),
    ("indexing", "the spots of images are handed to a program that indexes them, while they are measured"),
    ("stream", "`konkordia serve`: a consumer that gets the images as messages, once per consumer: `[[stream]]`"),
    (
        "writer",
        "`konkordia serve` and `konkordia receive`: a `konkordia writer` on another host that writes the files of the runs, once per writer: `[[writer]]`",
    ),
    ("alarms", "`konkordia serve`: what is watched while a run goes on; an alarm is off without its key"),
    ("control", "`konkordia serve`: what drives the detector itself: a driver, or programs for single commands"),
    (
        "control.settings",
        "settings of the driver in its own words, which nobody else reads; those of `slsdet` and `simplon` are in docs/control.md",
    ),
    ("service", "`konkordia serve`: the service"),
    (
        "detectors",
        "`konkordia serve` with several detectors: `[detectors.NAME]`, once per detector; each detector has a configuration file of its own",
    ),
    (
        "adapters",
        "`konkordia serve`: what gives other systems access in their own form: `[adapters.NAME]`, once per adapter. `simplon` and `jfjoch` are servers that are part of the program; every other name is that of a program, which is started and ended with the service",
    ),
    ("spots", "recipe of `konkordia analyse`: Bragg spots"),
    ("hits", "recipe of `konkordia analyse`: which images are hits"),
    ("model", "recipe: a model of the user that gives each image a score"),
    ("veto", "recipe: which images are dropped while they are measured"),
    ("azimuthal", "recipe of `konkordia analyse`: the powder profile"),
    ("region", "recipe of `konkordia analyse`: a region of the image, once per region: `[[region]]`"),
    ("above", "recipe of `konkordia analyse`: pixels above a level"),
];

/// Tables that may stand several times: name, table in which they stand (empty = none), and key.
pub const ARRAYS: &[(&str, &str, &str)] = &[
    ("detector.tile", "detector", "tile"),
    ("source.module", "source", "module"),
    ("stream", "", "stream"),
    ("writer", "", "writer"),
    ("region", "", "region"),
];

/// Allowed names for `geometry`.
pub const GEOMETRIES: &[&str] = &[
    "stacked",
    "jungfrau-500k",
    "jungfrau-1m",
    "jungfrau-4m",
    "jungfrau-9m",
    "jungfrau-10m",
    "jungfrau-16m",
    "eiger-500k",
    "eiger-9m",
];
/// Allowed names for `dtype`.
pub const DTYPES: &[&str] = &["int16", "int32", "uint16", "uint32", "float32", "raw"];

const LENGTH_TO_UM: &[(&str, f64)] = &[("millimetres", 1e3), ("metres", 1e6)];
const TIME_TO_US: &[(&str, f64)] = &[("seconds", 1e6), ("milliseconds", 1e3)];

/// Keys of a run; [`all`] also has those of the measurement, of streams and of the service.
const KEYS: &[Key] = &[
    key(
        "detector",
        "type",
        Kind::Choice(&["jungfrau", "eiger", "xfel-train", "excalibur", "stream"]),
        "required",
        "detector family; \"xfel-train\" = a detector of European XFEL that sends trains; \"excalibur\" = Medipix3 chips read by FEMs; \"stream\" = anything that sends whole images as messages or files, with `konkordia serve`",
    ),
    key("detector", "modules", Kind::Integer(1, 256), "1", "modules of 512 x 1024 pixels; excalibur: FEMs"),
    key(
        "detector",
        "interfaces",
        Kind::Integer(1, 2),
        "1",
        "JUNGFRAU: UDP interfaces per module, each with a port of its own. An EIGER module always has 4 ports",
    ),
    key(
        "detector",
        "bits",
        Kind::Integer(4, 32),
        "16",
        "EIGER: bits of a pixel on the wire: 4, 8, 12, 16 or 32. JUNGFRAU always has 16. EXCALIBUR: bits of a counter, only 12, the default",
    ),
    key(
        "detector",
        "rows",
        Kind::Integer(1, 512),
        "all",
        "partial readout, as `rows` of the detector: rows of a JUNGFRAU module (a multiple of 8), or of each EIGER half module, around the middle; see Partial readout below",
    ),
    key(
        "detector",
        "ten_giga",
        Kind::Flag,
        "true",
        "EIGER: false = it sends over 1 GbE, in packets of 1024 bytes instead of 4096",
    ),
    key("detector", "model", Kind::Choice(&["lpd", "dssc", "agipd"]), "required for trains", "xfel-train: which detector it is"),
    key(
        "detector",
        "images_per_train",
        Kind::Integer(1, 1024),
        "required for trains",
        "xfel-train: images that the detector keeps of each train; at most 31 of LPD or DSSC, 15 of AGIPD",
    ),
    key(
        "detector",
        "geometry",
        Kind::Choice(GEOMETRIES),
        "stacked",
        "how tiles make an image; see Geometry below. Not together with `[[detector.tile]]`",
    ),
    key(
        "detector",
        "double_pixels",
        Kind::Choice(&["keep", "gap", "split", "mask"]),
        "keep; EIGER in a preset: gap",
        "pixels at chip borders, which are twice as wide or high. keep: one image pixel each; gap: one image pixel each, beside a gap of two pixels; split: divided among the image pixels that they cover; mask: masked",
    ),
    key(
        "detector",
        "image_rows",
        Kind::Integer(1, 1 << 20),
        "end of the lowest tile",
        "rows of the image, with `[[detector.tile]]`",
    ),
    key(
        "detector",
        "image_columns",
        Kind::Integer(1, 1 << 20),
        "end of the rightmost tile",
        "columns of the image, with `[[detector.tile]]`",
    ),
    key(
        "detector",
        "strict",
        Kind::Flag,
        "true",
        "true: packets of another readout than this one are not placed, and modules at other places than expected make the run incomplete; false: both are only reported (docs/troubleshooting.md, Wrong set-up)",
    ),
    quantity(
        "detector",
        "energy_kev",
        (0.5, 300.0),
        &[("eV", 1e-3), ("MeV", 1e3)],
        "required for photons",
        "photon energy in keV",
    ),
    quantity(
        "detector",
        "detector_distance_mm",
        (5.0, 100_000.0),
        &[("metres", 1e3)],
        "not stored",
        "sample to detector in millimetres",
    ),
    key(
        "detector",
        "beam_center_x_px",
        Kind::Number(-1e6, 1e6),
        "not stored",
        "column where the direct beam meets the image, in pixels",
    ),
    key(
        "detector",
        "beam_center_y_px",
        Kind::Number(-1e6, 1e6),
        "not stored",
        "row where the direct beam meets the image, in pixels",
    ),
    quantity("detector", "pixel_size_um", (5.0, 1000.0), LENGTH_TO_UM, "75", "edge of a pixel in micrometres"),
    key("detector", "sensor_material", Kind::Text, "Si", "sensor, for example \"Si\", \"CdTe\" or \"GaAs\""),
    quantity("detector", "sensor_thickness_um", (10.0, 10_000.0), LENGTH_TO_UM, "320", "thickness of the sensor in micrometres"),
    quantity("detector", "frame_time_us", (10.0, 1e10), TIME_TO_US, "not stored", "time from image to image in microseconds"),
    quantity("detector", "count_time_us", (0.1, 1e10), TIME_TO_US, "not stored", "exposure of one image in microseconds"),
    key("detector", "description", Kind::Text, "type and pixels", "name of the detector, for the file"),
    key("detector", "serial_number", Kind::Text, "not stored", "serial number of the detector, for the file"),
    quantity(
        "detector",
        "threshold_energy_kev",
        (0.5, 300.0),
        &[("eV", 1e-3), ("MeV", 1e3)],
        "not stored",
        "energy above which photons count, in keV",
    ),
    key("detector", "gain_setting", Kind::Text, "not stored", "gain of the detector, for example \"auto\" or \"high\""),
    key("detector", "flatfield_applied", Kind::Flag, "false for packets, else not stored", "counts were divided by a flat field"),
    key("detector", "countrate_correction_applied", Kind::Flag, "not stored", "counts were corrected for the count rate"),
    key(
        "detector",
        "tilt_fast_deg",
        Kind::Number(-180.0, 180.0),
        "0",
        "turn of the detector about the direction of its rows (x in the image), through the beam centre, right-handed",
    ),
    key(
        "detector",
        "tilt_slow_deg",
        Kind::Number(-180.0, 180.0),
        "0",
        "turn of the detector about the direction of its columns (y in the image, downwards), through the beam centre, right-handed",
    ),
    key(
        "detector",
        "shapes_file",
        Kind::Path,
        "konkordia-shapes-NAME.json in the output folder",
        "`konkordia serve`: where the mask and the regions that people draw are kept, so that they survive a restart (docs/api.md, Shapes)",
    ),
    key(
        "detector.tile",
        "row",
        Kind::Integer(0, 1 << 20),
        "required",
        "image row of the tile's uppermost pixels, as it lies in the image",
    ),
    key(
        "detector.tile",
        "column",
        Kind::Integer(0, 1 << 20),
        "required",
        "image column of its leftmost pixels, as it lies in the image",
    ),
    key(
        "detector.tile",
        "flip_rows",
        Kind::Flag,
        "false",
        "true if the first row on the wire is the lowest (before it is turned)",
    ),
    key(
        "detector.tile",
        "flip_columns",
        Kind::Flag,
        "false",
        "true if the first pixel of a row is at the right (before it is turned)",
    ),
    key(
        "detector.tile",
        "rotate_deg",
        Kind::Integer(0, 270),
        "0",
        "turn in degrees, clockwise as seen in the image, after the flips: 0, 90, 180 or 270",
    ),
    key(
        "detector.tile",
        "header_row",
        Kind::Integer(0, 65535),
        "not checked",
        "row that the packets of this stream have in their headers",
    ),
    key(
        "detector.tile",
        "header_column",
        Kind::Integer(0, 65535),
        "not checked",
        "column that the packets of this stream have in their headers",
    ),
    key(
        "detector.tile",
        "module_id",
        Kind::Integer(0, 65535),
        "not checked",
        "module id that the packets of this stream have in their headers",
    ),
    key(
        "calibration",
        "kind",
        Kind::Choice(&["none", "files", "konkordia", "jungfrau_utils"]),
        "none",
        "\"konkordia\" needs `file`, as `konkordia pedestal` writes it; the other two need `pedestal` and `gain`",
    ),
    key("calibration", "file", Kind::Path, "required for konkordia", "calibration file of `konkordia pedestal`"),
    key(
        "calibration",
        "pedestal",
        Kind::Paths,
        "required for files and jungfrau_utils",
        "pedestals in ADU: float32 planes G0, G1, G2 (and HG0) of all modules, or the HDF5 file of jungfrau_utils; see Calibration files below",
    ),
    key(
        "calibration",
        "gain",
        Kind::Paths,
        "those of `file`; otherwise required",
        "gains in ADU/keV, positive in G0 and negative in G1 and G2: float32 planes, PSI `.bin` files of float64 planes, one per module, or HDF5 files with `/gains`",
    ),
    key(
        "calibration",
        "pedestal_rms",
        Kind::Paths,
        "not known; a `file` has it",
        "noise of G0 (HG0) in ADU, one float32 plane per module; needed for tracking, common mode and negative_offset = \"auto\"",
    ),
    key(
        "calibration",
        "high_gain",
        Kind::Flag,
        "false",
        "the detector is set to high gain: pedestals and gains of HG0 replace those of G0",
    ),
    key(
        "calibration",
        "max_age_hours",
        Kind::Number(0.01, 100_000.0),
        "no limit",
        "refuse a run whose G0 (HG0) pedestals in `file` are older",
    ),
    key(
        "processing",
        "dtype",
        Kind::Choice(DTYPES),
        "int16, with summation int32; EIGER: uint16, with summation or at 32 bit uint32",
        "type of the pixels in the file; \"raw\" = the words of a JUNGFRAU unchanged",
    ),
    key(
        "processing",
        "unit",
        Kind::Choice(&["photons", "kev"]),
        "photons",
        "unit of the pixels; ignored for \"raw\", and for EIGER, which counts photons itself",
    ),
    key(
        "processing",
        "rounding_photons",
        Kind::Number(0.125, 8.0),
        "1",
        "photons that one unit of an integer pixel stands for: 0.125, 0.25, 0.5, 1, 2, 4 or 8; stored as data_scale_factor",
    ),
    key(
        "processing",
        "rounding_kev",
        Kind::Number(1e-3, 1e3),
        "0.1",
        "the same for unit = \"kev\": keV that one unit of an integer pixel stands for",
    ),
    key(
        "processing",
        "negative",
        Kind::Choice(&["keep", "clamp", "offset"]),
        "keep",
        "counts below zero, which noise makes. keep: stored as they are (unsigned types: 0); clamp: set to 0; offset: an offset is added to all pixels",
    ),
    key(
        "processing",
        "negative_offset",
        Kind::IntegerOr(1, 1_000_000, &["auto"]),
        "auto",
        "for negative = \"offset\", in units of the pixels; auto = 6 x the median noise, rounded up",
    ),
    key(
        "processing",
        "summation",
        Kind::Integer(1, 1000),
        "1",
        "frames that are added, each rounded, to make one image; a pixel that is missing in one of them is missing in the sum",
    ),
    key(
        "processing",
        "common_mode",
        Kind::Choice(&["none", "row", "column"]),
        "none",
        "subtract the mean shift of the dark pixels in each row or column of a chip, frame by frame; for spectroscopy. Costs time",
    ),
    key(
        "processing",
        "arithmetic",
        Kind::Choice(&["float", "fixed"]),
        "float",
        "single precision, or integers as FPGA logic does it (docs/formats/fixed-point.md)",
    ),
    key(
        "processing",
        "missing",
        Kind::Choice(&["keep", "discard", "complete-only"]),
        "keep",
        "images with missing packets. keep: written, with the missing value where packets are missing; discard: not written, their position stays empty; complete-only: as discard, and the record of the packets that arrived is cleared, too",
    ),
    key(
        "processing",
        "workers",
        Kind::IntegerOr(1, 256, &["auto", "gpu", "gpu+cpu"]),
        "auto",
        "threads that convert and compress; auto = number of processors minus number of streams, at least 2 where there are 2 processors; gpu: a GPU of NVIDIA does it, with the same bytes (docs/gpu-worker.md); gpu+cpu: both do, each a part of every image",
    ),
    key(
        "processing",
        "window_images",
        Kind::Integer(1, 2048),
        "16",
        "images that a stream may be ahead of its oldest incomplete one; at most half of the ring",
    ),
    key(
        "processing",
        "deadline_ms",
        Kind::Integer(1, 60_000),
        "500",
        "an image is closed this long after its first packet, even if packets are missing",
    ),
    key(
        "frames",
        "warmup_frames",
        Kind::Integer(0, 1_000_000_000),
        "0",
        "frames at the beginning of the run that are not kept: the detector settles, the shutter is closed",
    ),
    key(
        "frames",
        "warmup",
        Kind::Choice(&["dark", "skip"]),
        "dark",
        "whether warm-up frames count as dark, so that they may move tracked pedestals",
    ),
    key("frames", "dark_every", Kind::Integer(2, 1_000_000), "no darks", "the last of every so many frames is dark and not kept"),
    key(
        "frames",
        "dark_flag_bit",
        Kind::Integer(0, 31),
        "no darks",
        "frames with this bit of the DAQ info are dark and not kept",
    ),
    key("frames", "dark_flag_set", Kind::Flag, "true", "false = frames without the bit are dark"),
    key("frames", "keep_every", Kind::Integer(1, 1_000_000), "1", "keep the first of every so many frames that are not dark"),
    key(
        "frames",
        "keep_rate_hz",
        Kind::Number(1e-3, 1e6),
        "all",
        "the same as a rate: at most so many frames per second are kept; needs detector.frame_time_us",
    ),
    key(
        "frames",
        "keep_flag_bit",
        Kind::Integer(0, 31),
        "all",
        "keep only frames with this bit of the DAQ info; 31 = external input (trigger). A lost frame is treated as the frame before it",
    ),
    key("frames", "keep_flag_set", Kind::Flag, "true", "false = keep the frames without the bit"),
    key(
        "tracking",
        "frames",
        Kind::Choice(&["none", "all", "darks"]),
        "none",
        "which frames move the G0 pedestals: none, all (words within the gate), or dark frames only. Needs the noise (RMS) of the calibration",
    ),
    key(
        "tracking",
        "window_frames",
        Kind::Integer(1, 1_000_000),
        "128",
        "window of the running mean, in frames that move the pedestals",
    ),
    key(
        "tracking",
        "gate_rms",
        Kind::Number(0.5, 100.0),
        "4",
        "a word moves its pedestal if it is within so many times the noise of its pixel; common mode uses the same gate",
    ),
    key(
        "tracking",
        "snapshot_images",
        Kind::Integer(0, 1_000_000_000),
        "1000",
        "write the pedestals after every so many images into PREFIX_pedestals.h5; 0 = never",
    ),
    key("output", "directory", Kind::Path, "required", "an existing folder"),
    key(
        "output",
        "keep_raw",
        Kind::Flag,
        "false",
        "also write the words as they came, in files of the slsReceiver (PREFIX_raw_master_0.json); for words instead of images: dtype = \"raw\"",
    ),
    key(
        "output",
        "prefix",
        Kind::Text,
        "required",
        "first part of the names: PREFIX_master.h5, PREFIX_data_000001.h5 and so on; `serve` numbers runs that are armed without a name: PREFIX_000001_master.h5",
    ),
    key("output", "images_per_file", Kind::Integer(1, 1_000_000), "1000", "images in one data file"),
    key(
        "output",
        "compression",
        Kind::Codec,
        "bslz4",
        "all lossless: bitshuffle with LZ4 or Zstd (HDF5 filter 32008), LZ4 (32004), Zstd (32015), gzip (1), or nothing; XDS reads bslz4 and lz4 only",
    ),
    key(
        "output",
        "compression_level",
        Kind::Integer(1, 22),
        "1",
        "more = smaller and slower; 1 to 22 for bszstd and zstd, 1 to 9 for gzip, none for the others",
    ),
    key(
        "output",
        "sync_interval_s",
        Kind::Number(0.0, 3600.0),
        "2",
        "how often the data of open files are flushed to the disk, in the background: about what a power cut can lose; a closed file is flushed at once; 0 = only closed files are flushed",
    ),
    key(
        "output",
        "spool_directory",
        Kind::Path,
        "no spool",
        "write files here first, in memory (/dev/shm/konkordia) or on a fast disk; finished files move to `directory` while the run goes on, the master last; needs spool_gib",
    ),
    key(
        "output",
        "spool_gib",
        Kind::Number(0.001, 1e6),
        "no spool",
        "most that lies in the spool, in GiB; when it is full, images wait as for a slow disk. At least two data files of uncompressed images",
    ),
    key(
        "output",
        "spool_codec",
        Kind::Codec,
        "as compression",
        "compression of the files in the spool, for example none; each data file is repacked to `compression` and compared before it moves",
    ),
    key("output", "overwrite", Kind::Choice(&["refuse", "replace"]), "refuse", "what to do when files of this prefix exist"),
    key(
        "output",
        "layout",
        Kind::Choice(&["both", "virtual", "links"]),
        "both",
        "how the master names the images: links for XDS and ALBULA, a virtual data set, or both",
    ),
    key(
        "output",
        "modules",
        Kind::Choice(&["each", "one"]),
        "each",
        "an `NXdetector_module` for each module of the detector, or one for the whole image: then DIALS shows one panel, and reads large detectors faster",
    ),
    key(
        "output",
        "xds",
        Kind::Flag,
        "a note at arm where XDS would misread the files",
        "true = refuse what the plug-ins of XDS (neggia, durin) would misread: for packets only dtype = \"uint32\" in bslz4 or lz4 is right; false = the files are not for XDS",
    ),
    key("output", "sample_name", Kind::Text, "not stored", "sample, for the file"),
    key("output", "beamline", Kind::Text, "not stored", "beamline, for the file"),
    key("output", "source_name", Kind::Text, "not stored", "facility, for the file"),
    key(
        "part",
        "number",
        Kind::Integer(1, 256),
        "required with [part]",
        "number of this part; the names of its files end with `_partN`",
    ),
    key("part", "of", Kind::Integer(2, 256), "required with [part]", "number of parts"),
    key("part", "row", Kind::Integer(0, 1 << 20), "0", "row of the whole image in which this part begins"),
    key("part", "column", Kind::Integer(0, 1 << 20), "0", "column of the whole image in which this part begins"),
    key("part", "image_rows", Kind::Integer(1, 1 << 20), "required with [part]", "rows of the whole image"),
    key("part", "image_columns", Kind::Integer(1, 1 << 20), "required with [part]", "columns of the whole image"),
    key("travel", "enabled", Kind::Flag, "false", "make the copy; special values stay exact"),
    key(
        "travel",
        "compression",
        Kind::Choice(&["sz3", "spots"]),
        "sz3",
        "sz3 (HDF5 filter 32024): an error bound for all pixels; spots: Bragg spots stay exact, the background is rounded and packed with bszstd",
    ),
    key(
        "travel",
        "error_bound",
        Kind::Number(1e-6, 1e6),
        "2",
        "sz3: largest error of a pixel, in units of the image; 1 or more for whole numbers",
    ),
    key(
        "travel",
        "background_sigma",
        Kind::Number(1e-6, 2.0),
        "1",
        "spots: how many of its Poisson errors a pixel of the background may move",
    ),
    key("travel", "directory", Kind::Path, "output.directory", "an existing folder"),
    key(
        "travel",
        "prefix",
        Kind::Text,
        "output.prefix followed by _travel",
        "first part of the names of the copy; `serve`: always the name of the run followed by _travel",
    ),
    key("run", "images", Kind::Integer(1, 1 << 40), "until stopped", "images to take"),
    key(
        "run",
        "first_frame",
        Kind::IntegerOr(0, (1 << 48) - 1, &["auto"]),
        "auto",
        "frame number of image 0; packets of earlier frames count as foreign. auto = the first frame of which several packets arrive, because detectors go on counting from run to run",
    ),
    key(
        "run",
        "start_timeout_s",
        Kind::Number(0.0, 1e6),
        "60",
        "the run ends with exit code 7 if nothing arrives for so many seconds after `armed`; 0 = wait for ever",
    ),
    key(
        "run",
        "stall_timeout_s",
        Kind::Number(0.1, 1e6),
        "5",
        "the run ends if nothing arrives for so many seconds after the first packet",
    ),
    key(
        "run",
        "pin_streams",
        Kind::Processors,
        "[]",
        "processors of the threads that receive, in turn; auto = those near the network card, in common; empty = the scheduler decides (docs/placement.md)",
    ),
    key("run", "pin_workers", Kind::Processors, "[]", "the same for the workers"),
    key(
        "run",
        "nice",
        Kind::Integer(-20, 19),
        "as the program",
        "priority of the threads that receive and work: -20 gets most time; less than 0 needs a right",
    ),
    key(
        "run",
        "realtime_priority",
        Kind::Integer(1, 99),
        "none",
        "real-time priority of these threads instead, before all other programs; needs a right, and more processors than threads",
    ),
    key(
        "run",
        "huge_pages",
        Kind::Choice(&["auto", "reserved"]),
        "auto",
        "memory of the raw tiles; auto = huge pages as far as the kernel makes them; reserved = those of `vm.nr_hugepages`, if there are enough",
    ),
    key(
        "run",
        "buffer_mib",
        Kind::Integer(16, 1 << 20),
        "512",
        "memory of the ring of images in MiB; bridges pauses of the disk",
    ),
];

/// All keys, those of each table in the order of the documentation.
pub fn all() -> impl Iterator<Item = &'static Key> {
    KEYS.iter()
        .chain(schema_source::KEYS)
        .chain(schema_images::KEYS)
        .chain(schema_gpu::KEYS)
        .chain(schema_experiment::KEYS)
        .chain(schema_service::KEYS)
        .chain(schema_analysis::KEYS)
}

/// Keys of one table.
pub fn keys_of(table: &str) -> impl Iterator<Item = &'static Key> + '_ {
    all().filter(move |k| k.table == table)
}

/// The key of this name.
pub fn find(table: &str, name: &str) -> Option<&'static Key> {
    keys_of(table).find(|k| k.name == name)
}

/// A JSON Schema of the configuration, for editors that check TOML while it is typed.
pub fn json_schema() -> serde_json::Value {
    use serde_json::{Map, Value, json};
    let value = |k: &Key| {
        let mut v = match k.kind {
            Kind::Choice(words) => json!({ "enum": words }),
            Kind::Codec => json!({ "type": "string", "pattern": format!("^({})(,.*)?$", Compression::NAMES.join("|")) }),
            Kind::CodecOr(names, word) => {
                json!({ "type": "string", "pattern": format!("^({word}|({})(,.*)?)$", names.join("|")) })
            }
            Kind::Text | Kind::Path => json!({ "type": "string" }),
            Kind::Paths | Kind::Texts => {
                json!({ "oneOf": [{ "type": "string" }, { "type": "array", "items": { "type": "string" } }] })
            }
            Kind::Integer(low, high) => json!({ "type": "integer", "minimum": low, "maximum": high }),
            Kind::Number(low, high) => json!({ "type": "number", "minimum": low, "maximum": high }),
            Kind::IntegerOr(low, high, words) => {
                json!({ "oneOf": [{ "type": "integer", "minimum": low, "maximum": high }, { "enum": words }] })
            }
            Kind::Integers(low, high) => {
                json!({ "type": "array", "items": { "type": "integer", "minimum": low, "maximum": high } })
            }
            Kind::Processors => json!({
                "oneOf": [{ "type": "string" }, { "type": "array", "items": { "type": "integer", "minimum": 0 } }]
            }),
            Kind::Numbers(count, low, high) => json!({
                "type": "array", "items": { "type": "number", "minimum": low, "maximum": high }, "minItems": count, "maxItems": count
            }),
            Kind::Flag => json!({ "type": "boolean" }),
        };
        v["description"] = json!(format!("{}. Default: {}.", k.doc, k.default));
        v
    };
    let table = |name: &str| {
        let properties: Map<String, Value> = keys_of(name).map(|k| (k.name.to_string(), value(k))).collect();
        let required: Vec<_> = keys_of(name).filter(|k| k.default == "required").map(|k| k.name).collect();
        json!({ "type": "object", "additionalProperties": false, "properties": properties, "required": required })
    };
    let mut tables = Map::new();
    for (name, doc) in TABLES.iter().filter(|t| !t.0.contains('.')) {
        let mut t = table(name);
        t["description"] = json!(doc);
        tables.insert((*name).to_string(), t);
    }
    for (array, home, key) in ARRAYS {
        let list = json!({ "type": "array", "items": table(array) });
        match *home {
            "" => tables.insert((*key).to_string(), list),
            home => tables[home]["properties"].as_object_mut().and_then(|keys| keys.insert((*key).to_string(), list)),
        };
    }
    for (named, _) in NAMED {
        tables.insert((*named).into(), json!({ "type": "object", "additionalProperties": table(named) }));
    }
    tables["control"]["properties"]["settings"] = json!({ "type": "object" });
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Konkordia configuration",
        "type": "object",
        "additionalProperties": false,
        "properties": tables,
        "anyOf": [{ "required": ["detector", "output"] }, { "required": ["detectors"] }],
    })
}

/// The reference table of docs/configuration.md.
pub fn markdown() -> String {
    let mut out = String::new();
    for (table, doc) in TABLES {
        let brackets = match *table {
            table if NAMED.iter().any(|named| named.0 == table) => format!("[{table}.NAME]"),
            table if ARRAYS.iter().any(|array| array.0 == table) => format!("[[{table}]]"),
            table => format!("[{table}]"),
        };
        out.push_str(&format!("### `{brackets}`\n\n{}.\n", capital(doc)));
        if keys_of(table).next().is_some() {
            out.push_str("\n| key | value | default | meaning |\n|---|---|---|---|\n");
        }
        for k in keys_of(table) {
            out.push_str(&format!("| `{}` | {} | {} | {} |\n", k.name, k.kind.words(), k.default, k.doc));
        }
        out.push('\n');
    }
    out
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|c| c.to_uppercase().collect::<String>() + chars.as_str()).unwrap_or_default()
}

#[cfg(test)]
#[path = "schema_tests.rs"]
mod tests;
