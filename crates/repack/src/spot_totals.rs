//! What copies with a coarser background have kept and lost, summed over images: as text, as JSON, and in the files.

use super::spots::{SpotCopy, SpotReport, Stored};
use konkordia_core::text;
use konkordia_kernels::rounding::Loss;
use konkordia_sinks::hdf5::mirror::RecordValue;
use serde_json::{Value, json};

/// Sums over images.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SpotTotals {
    images: u64,
    images_stored: [u64; 5],
    spots: u64,
    spots_unchanged: u64,
    loss: Loss,
    lossless_bytes: u64,
    bytes: u64,
    /// Of each image of a file: how it is stored, and its spots.
    of_images: [Vec<u64>; 2],
}

impl SpotTotals {
    /// Adds an image that was packed into so many bytes.
    pub fn image(&mut self, report: Option<&SpotReport>, bytes: u64) {
        let (stored, spots) = report.map_or((Stored::Absent, 0), |report| (report.stored, report.spots));
        self.images += 1;
        self.images_stored[stored as usize] += 1;
        self.of_images[0].push(stored as u64);
        self.of_images[1].push(spots);
        if let Some(report) = report {
            let own = Self { loss: report.loss, lossless_bytes: report.lossless_bytes, bytes, ..Self::default() };
            self.add(&Self { spots, spots_unchanged: report.spots_unchanged, ..own });
        }
    }

    /// Adds the sums of another file, but not what stands for each of its images.
    pub fn add(&mut self, other: &Self) {
        self.images += other.images;
        self.images_stored.iter_mut().zip(other.images_stored).for_each(|(own, other)| *own += other);
        self.spots += other.spots;
        self.spots_unchanged += other.spots_unchanged;
        self.lossless_bytes += other.lossless_bytes;
        self.bytes += other.bytes;
        let (own, other) = (&mut self.loss, &other.loss);
        own.pixels += other.pixels;
        own.pixels_exact += other.pixels_exact;
        own.pixels_changed += other.pixels_changed;
        own.error_max = own.error_max.max(other.error_max);
        own.error_sigma_max = own.error_sigma_max.max(other.error_sigma_max);
        own.sum_before += other.sum_before;
        own.error_sum += other.error_sum;
    }

    /// Images that were stored as they are, of all that have pixels.
    fn images_lossless(&self) -> u64 {
        self.images_stored[1..4].iter().sum()
    }

    /// Mean of the differences of all pixels, counts.
    fn error_per_pixel(&self) -> f64 {
        self.loss.error_sum as f64 / self.loss.pixels.max(1) as f64
    }

    /// What stands in the record of a file.
    pub fn record(&self, copy: &SpotCopy) -> Vec<(&'static str, RecordValue)> {
        use RecordValue::{Count, Counts, Number, Text};
        let stored = |how: Stored| Count(self.images_stored[how as usize]);
        vec![
            ("background_sigma", Number(copy.background_sigma, "")),
            ("margin_px", Count(copy.margin_px as u64)),
            ("finder", Text(copy.finder_json().to_string())),
            ("chunk_bytes_lossless", Count(self.lossless_bytes)),
            ("spots", Count(self.spots)),
            ("spots_unchanged", Count(self.spots_unchanged)),
            ("pixels", Count(self.loss.pixels)),
            ("pixels_exact", Count(self.loss.pixels_exact)),
            ("pixels_changed", Count(self.loss.pixels_changed)),
            ("error_max", Number(self.loss.error_max as f64, "")),
            ("error_sigma_max", Number(self.loss.error_sigma_max, "")),
            ("error_sum", Number(self.loss.error_sum as f64, "")),
            ("error_per_pixel", Number(self.error_per_pixel(), "")),
            ("sum_before", Number(self.loss.sum_before as f64, "")),
            ("images_lossless", Count(self.images_lossless())),
            ("images_too_many_spots", stored(Stored::TooManySpots)),
            ("images_spots_changed", stored(Stored::SpotsChanged)),
            ("images_not_smaller", stored(Stored::NotSmaller)),
            ("image_stored", Counts(self.of_images[0].clone())),
            ("image_spots", Counts(self.of_images[1].clone())),
        ]
    }

    /// For programs.
    pub fn to_json(&self) -> Value {
        let Loss { pixels, pixels_exact, pixels_changed, error_max, error_sigma_max, sum_before, error_sum } = self.loss;
        json!({
            "chunk_bytes_lossless": self.lossless_bytes, "spots": self.spots, "spots_unchanged": self.spots_unchanged,
            "pixels": pixels, "pixels_exact": pixels_exact, "pixels_changed": pixels_changed,
            "error_max": error_max, "error_sigma_max": error_sigma_max, "error_sum": error_sum,
            "error_per_pixel": self.error_per_pixel(), "sum_before": sum_before, "images_lossless": self.images_lossless(),
            "images_too_many_spots": self.images_stored[Stored::TooManySpots as usize],
            "images_spots_changed": self.images_stored[Stored::SpotsChanged as usize],
            "images_not_smaller": self.images_stored[Stored::NotSmaller as usize],
        })
    }

    /// For people.
    pub fn to_text(&self) -> String {
        let part = |of: u64, all: u64| 100.0 * of as f64 / all.max(1) as f64;
        let loss = &self.loss;
        let mut lines = vec![
            format!(
                "{} spots, {} found again as they were, and no others; {:.1} % of pixels had to stay, {:.1} % changed",
                text::count(self.spots),
                text::count(self.spots_unchanged),
                part(loss.pixels_exact, loss.pixels),
                part(loss.pixels_changed, loss.pixels)
            ),
            format!(
                "largest error {} counts and {:.2} sigma, mean error {:+.1e} counts; {} without loss, {:.0} % of that",
                loss.error_max,
                loss.error_sigma_max,
                self.error_per_pixel(),
                text::bytes(self.lossless_bytes),
                part(self.bytes, self.lossless_bytes)
            ),
        ];
        let why = [
            (Stored::TooManySpots, "have more spots than spots_max"),
            (Stored::SpotsChanged, "would have shown other spots than before"),
            (Stored::NotSmaller, "would not have become smaller"),
        ];
        for (stored, why) in why {
            let images = self.images_stored[stored as usize];
            if images > 0 {
                lines.push(format!("{} images stored without loss: they {why}", text::count(images)));
            }
        }
        lines.join("\n")
    }
}
