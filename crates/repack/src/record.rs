//! The result of a repacking, and its record: as text, as JSON, and in the files.

use super::compare::Compared;
use super::recode::Recoded;
use super::settings::Settings;
use super::spot_totals::SpotTotals;
use konkordia_core::plan::Compression;
use konkordia_core::text;
use konkordia_sinks::hdf5::mirror::{RecordValue, StackLayout};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Result of a repacking.
pub struct Outcome {
    /// The file to open.
    pub master: PathBuf,
    /// Files written.
    pub files: Vec<PathBuf>,
    /// Files that an earlier attempt had finished.
    pub kept: Vec<PathBuf>,
    /// Sums over the files written.
    pub totals: Totals,
    /// What was compared with the originals in this call.
    pub compared: Compared,
    /// False after Ctrl-C.
    pub complete: bool,
}

/// Sums over images.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Totals {
    images: u64,
    images_copied: u64,
    images_lossless: u64,
    pixels: u64,
    bytes_of_pixels: u64,
    bytes_before: u64,
    bytes_after: u64,
    pixels_changed: u64,
    error_max: f64,
    sum_before: f64,
    sum_after: f64,
    /// With a coarser background.
    spots: Option<SpotTotals>,
}

/// The name of a file as it stands in the record.
pub fn name(path: &Path) -> String {
    let name: String = path.file_name().unwrap_or_default().to_string_lossy().chars().filter(char::is_ascii).collect();
    name.chars().take(255).collect()
}

/// The folder of a file as it stands in the record: the last 255 characters of its path.
pub fn folder(path: &Path) -> String {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let whole = parent.canonicalize().or_else(|_| std::path::absolute(parent)).unwrap_or_else(|_| parent.to_owned());
    let plain: Vec<char> = whole.to_string_lossy().chars().filter(|c| c.is_ascii_graphic() || *c == ' ').collect();
    plain[plain.len().saturating_sub(255)..].iter().collect()
}

impl Totals {
    /// Adds one image.
    pub fn image(&mut self, layout: &StackLayout, image: &Recoded, settings: &Settings) {
        self.images += 1;
        self.images_copied += u64::from(image.copied);
        self.pixels += (layout.rows * layout.columns) as u64;
        self.bytes_of_pixels += layout.image_bytes() as u64;
        self.bytes_before += image.bytes_before as u64;
        self.bytes_after += image.chunk.as_ref().map_or(0, Vec::len) as u64;
        if let Some(loss) = &image.loss {
            self.images_lossless += u64::from(loss.lossless);
            self.pixels_changed += loss.pixels_changed;
            self.error_max = self.error_max.max(loss.error_max);
            self.sum_before += loss.sum_before;
            self.sum_after += loss.sum_after;
        }
        if settings.spots.is_some() {
            let bytes = image.chunk.as_ref().map_or(0, Vec::len) as u64;
            self.spots.get_or_insert_default().image(image.spots.as_ref(), bytes);
        }
    }

    /// Adds the sums of another file.
    pub fn add(&mut self, other: &Self) {
        self.images += other.images;
        self.images_copied += other.images_copied;
        self.images_lossless += other.images_lossless;
        self.pixels += other.pixels;
        self.bytes_of_pixels += other.bytes_of_pixels;
        self.bytes_before += other.bytes_before;
        self.bytes_after += other.bytes_after;
        self.pixels_changed += other.pixels_changed;
        self.error_max = self.error_max.max(other.error_max);
        self.sum_before += other.sum_before;
        self.sum_after += other.sum_after;
        if let Some(spots) = &other.spots {
            self.spots.get_or_insert_default().add(spots);
        }
    }

    fn bits_per_pixel(&self, bytes: u64) -> f64 {
        8.0 * bytes as f64 / self.pixels.max(1) as f64
    }

    /// Relative change of the sum of all valid pixels.
    fn bias(&self) -> f64 {
        if self.sum_before == 0.0 { 0.0 } else { (self.sum_after - self.sum_before) / self.sum_before.abs() }
    }

    /// The record in the file. `identity` is that of `source`.
    pub fn record(&self, source: &Path, identity: &str, settings: &Settings) -> Vec<(&'static str, RecordValue)> {
        use RecordValue::{Count, Number, Text};
        let mut record = vec![
            ("software", Text(konkordia_core::SOFTWARE.into())),
            ("source", Text(name(source))),
            ("source_folder", Text(folder(source))),
            ("source_identity", Text(identity.into())),
            ("compression", Text(settings.words())),
            ("images", Count(self.images)),
            ("images_copied", Count(self.images_copied)),
            ("chunk_bytes_before", Count(self.bytes_before)),
            ("chunk_bytes", Count(self.bytes_after)),
            ("bits_per_pixel", Number(self.bits_per_pixel(self.bytes_after), "")),
        ];
        record.extend(settings.notes.iter().map(|(name, value)| (*name, Text(value.clone()))));
        if let Compression::Sz3 { bound } = settings.compression {
            record.extend([
                ("error_bound", Number(bound.value(), "")),
                ("error_max", Number(self.error_max, "")),
                ("pixels", Count(self.pixels)),
                ("pixels_changed", Count(self.pixels_changed)),
                ("sum_before", Number(self.sum_before, "")),
                ("sum_after", Number(self.sum_after, "")),
                ("sum_bias", Number(self.bias(), "")),
                ("images_lossless", Count(self.images_lossless)),
            ]);
        }
        if let Some(copy) = &settings.spots {
            record.extend(self.spots.clone().unwrap_or_default().record(copy));
        }
        record
    }

    /// For programs.
    pub fn to_json(&self, compression: Compression) -> serde_json::Value {
        let mut value = json!({
            "images": self.images, "images_copied": self.images_copied, "pixel_bytes": self.bytes_of_pixels,
            "chunk_bytes_before": self.bytes_before, "chunk_bytes": self.bytes_after,
            "bits_per_pixel_before": self.bits_per_pixel(self.bytes_before), "bits_per_pixel": self.bits_per_pixel(self.bytes_after),
        });
        if matches!(compression, Compression::Sz3 { .. }) {
            value["loss"] = json!({
                "error_max": self.error_max, "pixels": self.pixels, "pixels_changed": self.pixels_changed, "sum_before": self.sum_before,
                "sum_after": self.sum_after, "sum_bias": self.bias(), "images_lossless": self.images_lossless,
            });
        }
        if let Some(spots) = &self.spots {
            value["loss"] = spots.to_json();
        }
        value
    }

    /// What a lossy codec did, in a sentence.
    pub fn loss_text(&self) -> String {
        if let Some(spots) = &self.spots {
            return spots.to_text().replace('\n', "; ");
        }
        let changed = 100.0 * self.pixels_changed as f64 / self.pixels.max(1) as f64;
        let lossless = match self.images_lossless {
            0 => String::new(),
            n => format!("; {} images stored without loss, because the bound could not be kept", text::count(n)),
        };
        format!(
            "{:.2} bits per pixel, largest error {}, {changed:.1} % of pixels changed, relative change of sum {:+.1e}{lossless}",
            self.bits_per_pixel(self.bytes_after),
            self.error_max,
            self.bias()
        )
    }

    /// For people.
    pub fn to_text(&self, outcome: &Outcome, compression: Compression, seconds: f64, verify: bool) -> String {
        let mut lines = vec![format!(
            "{}: {} images in {seconds:.1} s, {:.0} MB/s of pixels; {} became {} ({:.2} to {:.2} bits per pixel)",
            outcome.master.display(),
            text::count(self.images),
            self.bytes_of_pixels as f64 / seconds.max(1e-9) / 1e6,
            text::bytes(self.bytes_before),
            text::bytes(self.bytes_after),
            self.bits_per_pixel(self.bytes_before),
            self.bits_per_pixel(self.bytes_after),
        )];
        if matches!(compression, Compression::Sz3 { .. }) {
            lines.push(self.loss_text());
        }
        lines.extend(self.spots.as_ref().map(SpotTotals::to_text));
        if self.images_copied > 0 && self.images_copied == self.images {
            lines.push("every chunk was copied unchanged: it already had this compression".into());
        }
        if !outcome.kept.is_empty() {
            lines.push(format!("{} files were finished by an earlier attempt", outcome.kept.len()));
        }
        let compared = &outcome.compared;
        if compared.images > 0 {
            let (images, files) = (text::count(compared.images), text::count(compared.files));
            lines.push(format!("verified: {images} images in {files} files read again and compared with the originals"));
        }
        if verify && compared.files_not_compared > 0 {
            let files = text::count(compared.files_not_compared);
            lines.push(format!("not compared: {files} files of an earlier attempt, whose originals no longer exist"));
        }
        lines.join("\n")
    }
}
