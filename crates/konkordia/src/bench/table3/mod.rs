//! `konkordia bench table3`: what the largest error of a pixel does to the quality of merged intensities and to the
//! size of the images, beside Table III of Leonarski et al. 2020 (SZ 2.1.7 with an absolute bound, lysozyme on a
//! JUNGFRAU 4M, processed by XDS and refined).
//!
//! The images here are simulated ([`crystal`]), so the intensities are known; they are packed by the code of `konkordia
//! repack` ([`coding`]) and integrated by a few lines of our own ([`integrate`]). So the columns can be compared in how
//! they change from bound to bound, and not in their values.

pub mod args;
mod coding;
mod crystal;
mod integrate;

use super::output::Output;
use args::BenchTable3Args;
use coding::{Coder, Coding, Loss};
use crystal::Crystal;
use integrate::{Merged, Quality, Record, SIGNIFICANT};
use konkordia_acquire::machine;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::text;
use konkordia_picture::{Axis, Picture, Series, chart};
use serde_json::{Value, json};

/// Bits of a stored pixel before compression.
const PIXEL_BITS: f64 = 16.0;

/// A line of the paper's Table III.
#[derive(Clone, Copy, Debug)]
struct PaperRow {
    bound: u32,
    /// Rmeas of the lowest and highest resolution, percent.
    rmeas_percent: [f64; 2],
    /// Its two numbers of reflections; the second are those accepted.
    reflections: [u32; 2],
    anomalous_sigma: f64,
    /// Rwork and Rfree, percent.
    r_percent: [f64; 2],
    bits_per_pixel: f64,
}

const fn paper(bound: u32, rmeas: [f64; 2], reflections: [u32; 2], sigma: f64, r: [f64; 2], bits: f64) -> PaperRow {
    PaperRow { bound, rmeas_percent: rmeas, reflections, anomalous_sigma: sigma, r_percent: r, bits_per_pixel: bits }
}

const PAPER: [PaperRow; 5] = [
    paper(0, [2.1, 18.9], [20_784, 17_040], 15.2, [11.6, 13.5], 2.3),
    paper(1, [2.5, 31.1], [21_047, 16_792], 13.1, [12.7, 14.2], 1.1),
    paper(2, [2.3, 22.4], [20_656, 12_275], 13.0, [13.8, 16.0], 0.43),
    paper(4, [2.3, 44.8], [21_438, 13_096], 9.7, [14.1, 16.0], 0.11),
    paper(8, [2.9, 54.0], [21_489, 13_360], 8.7, [14.5, 16.1], 0.042),
];

const NOT_COMPARABLE: &str = "Not comparable with the paper: a simulated crystal (each reflection whole on an image, \
    a scatter of the scale of 2 %, no other systematic error),\nour own integration and merging instead of XDS, another \
    encoder than SZ 2.1.7, no anomalous signal, no refinement. Comparable: how the columns change from bound to bound.\n\
    The paper's high Rmeas falls from bound 1 to 2 because weak reflections vanish: read R beside the completeness.";

/// A line of our table.
struct Row {
    coding: Coding,
    bits_per_pixel: f64,
    loss: Loss,
    pixels: u64,
    merged: Merged,
}

/// `konkordia bench table3`
pub fn command(args: &BenchTable3Args) -> Result<Exit, Failure> {
    args.png.as_deref().map_or(Ok(()), konkordia_picture::png_path)?;
    let output = Output::open(&args.output, "table3")?;
    let crystal = Crystal::new(args.images as usize, args.edge as usize, args.seed);
    let rows = measure(&crystal);
    let is_exact = |row: &Row| row.coding.bound() != Some(0) || row.loss.pixels_changed == 0;
    let verified = rows.iter().all(|row| !row.loss.is_wrong && is_exact(row));
    if let Some(png) = &args.png {
        draw(&rows).write(png)?;
    }
    let [low, high] = integrate::shells(&crystal.reflections);
    let records: usize = crystal.images.iter().map(Vec::len).sum();
    let report = json!({
        "machine": machine::facts(), "images": args.images, "edge_px": args.edge, "seed": args.seed,
        "reflections": crystal.reflections.len(), "records": records, "low_shell_to_angstrom": low,
        "high_shell_from_angstrom": high, "significant_sigma": SIGNIFICANT,
        "rows": rows.iter().map(Row::to_json).collect::<Vec<_>>(), "verified": verified,
    });
    let head = format!(
        "{} simulated images of {} x {} pixels, int16, seed {}: {} reflections, {records} records;\n\
         shells: low to {low:.2} A, high from {high:.2} A; complete: merged I/sigma of {SIGNIFICANT} or more;\n\
         CC: correlation with the true intensities; every pixel of every image was compared",
        args.images,
        args.edge,
        args.edge,
        args.seed,
        crystal.reflections.len(),
    );
    output.print(report, &format!("{head}\n\n{}\n\n{}\n\n{NOT_COMPARABLE}", ours(&rows), theirs()));
    Ok(if verified { Exit::Complete } else { Exit::Bug })
}

/// What became of one image: for each coding the bytes, the loss and the records of its spots.
type OfImage = Vec<(usize, Loss, Vec<Record>)>;

/// Sends all images through all codings, on all processors, and merges.
fn measure(crystal: &Crystal) -> Vec<Row> {
    let images = crystal.images.len();
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(images);
    let copy = coding::spot_copy(crystal.edge);
    let mut done: Vec<(usize, OfImage)> = std::thread::scope(|scope| {
        let work = |thread: usize| {
            let copy = &copy;
            move || {
                let mut coder = Coder::new(copy);
                (thread..images).step_by(threads).map(|image| (image, one(crystal, image, &mut coder))).collect::<Vec<_>>()
            }
        };
        let threads: Vec<_> = (0..threads).map(|thread| scope.spawn(work(thread))).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("a worker of the bench does not panic")).collect()
    });
    // Sums of floating-point numbers depend on their order, which must not depend on the number of threads.
    done.sort_by_key(|(image, _)| *image);
    let row = |(place, coding): (usize, &Coding)| {
        let (mut bytes, mut loss) = (0, Loss::default());
        let mut records = vec![Vec::new(); crystal.reflections.len()];
        for (image, of_image) in &done {
            bytes += of_image[place].0;
            loss.add(&of_image[place].1);
            for (spot, record) in crystal.images[*image].iter().zip(&of_image[place].2) {
                records[spot.reflection].push(*record);
            }
        }
        let pixels = (images * crystal.edge * crystal.edge) as u64;
        let bits_per_pixel = bytes as f64 * 8.0 / pixels as f64;
        Row { coding: *coding, bits_per_pixel, loss, pixels, merged: integrate::merge(&crystal.reflections, &records) }
    };
    coding::ALL.iter().enumerate().map(row).collect()
}

fn one(crystal: &Crystal, image: usize, coder: &mut Coder<'_>) -> OfImage {
    let pixels = crystal.image(image);
    let of = |coding: &Coding| {
        let coded = coder.through(*coding, &pixels);
        let spots = crystal.images[image].iter();
        (coded.bytes, coded.loss, spots.map(|spot| integrate::integrate(&coded.pixels, crystal.edge, spot)).collect())
    };
    coding::ALL.iter().map(of).collect()
}

impl Row {
    fn paper(&self) -> Option<&'static PaperRow> {
        let Coding::Sz3(bound) = self.coding else { return None };
        PAPER.iter().find(|row| row.bound == bound)
    }

    fn to_json(&self) -> Value {
        let paper = self.paper().map(|paper| {
            json!({
                "rmeas_low_percent": paper.rmeas_percent[0], "rmeas_high_percent": paper.rmeas_percent[1],
                "reflections": paper.reflections, "anomalous_sigma": paper.anomalous_sigma, "r_work_percent": paper.r_percent[0],
                "r_free_percent": paper.r_percent[1], "bits_per_pixel": paper.bits_per_pixel,
            })
        });
        json!({
            "coding": self.coding.name(), "error_bound": self.coding.bound(), "bits_per_pixel": self.bits_per_pixel,
            "compression_factor": PIXEL_BITS / self.bits_per_pixel, "error_max": self.loss.error_max,
            "pixels_changed_share": self.loss.pixels_changed as f64 / self.pixels as f64,
            "error_per_pixel": self.loss.error_sum as f64 / self.pixels as f64, "low": quality(&self.merged.low),
            "high": quality(&self.merged.high), "all": quality(&self.merged.all), "verified": !self.loss.is_wrong, "paper": paper,
        })
    }
}

fn quality(quality: &Quality) -> Value {
    json!({
        "reflections": quality.reflections, "significant": quality.significant, "complete_percent": quality.complete_percent(),
        "rmeas_percent": quality.rmeas_percent, "correlation": quality.correlation, "measured_of_true": quality.ratio,
    })
}

fn ours(rows: &[Row]) -> String {
    let head = [
        "ours",
        "bit/pixel",
        "factor",
        "Rmeas low, %",
        "high",
        "all",
        "complete low, %",
        "high",
        "all",
        "CC low",
        "high",
        "I/true low",
        "high",
        "output",
    ];
    let number = |value: Option<f64>, digits: usize| value.map_or("-".into(), |value| format!("{value:.digits$}"));
    let line = |row: &Row| {
        let Merged { low, high, all } = &row.merged;
        let output = match (row.loss.is_wrong, row.coding.bound()) {
            (true, _) => "WRONG",
            (false, Some(0)) => "equal",
            (false, Some(_)) => "within the bound",
            (false, None) => "spots equal",
        };
        let mut cells =
            vec![row.coding.name(), format!("{:.3}", row.bits_per_pixel), format!("{:.1}", PIXEL_BITS / row.bits_per_pixel)];
        cells.extend([low, high, all].map(|shell| number(shell.rmeas_percent, 1)));
        cells.extend([low, high, all].map(|shell| number(shell.complete_percent(), 1)));
        cells.extend([low, high].map(|shell| number(shell.correlation, 4)));
        cells.extend([low, high].map(|shell| number(shell.ratio, 3)));
        cells.push(output.into());
        cells
    };
    text::table(&std::iter::once(head.map(str::to_string).to_vec()).chain(rows.iter().map(line)).collect::<Vec<_>>())
}

fn theirs() -> String {
    let head = [
        "the paper, Table III",
        "bit/pixel",
        "Rmeas low, %",
        "high",
        "reflections/accepted",
        "anomalous sigma",
        "Rwork/Rfree, %",
    ];
    let line = |row: &PaperRow| {
        vec![
            format!("SZ, bound {}", row.bound),
            row.bits_per_pixel.to_string(),
            format!("{:.1}", row.rmeas_percent[0]),
            format!("{:.1}", row.rmeas_percent[1]),
            format!("{}/{}", row.reflections[0], row.reflections[1]),
            format!("{:.1}", row.anomalous_sigma),
            format!("{:.1}/{:.1}", row.r_percent[0], row.r_percent[1]),
        ]
    };
    text::table(&std::iter::once(head.map(str::to_string).to_vec()).chain(PAPER.iter().map(line)).collect::<Vec<_>>())
}

fn draw(rows: &[Row]) -> Picture {
    let ours = |is_in: fn(Coding) -> bool, of: fn(&Merged) -> &Quality| {
        let rows = rows.iter().filter(|row| is_in(row.coding));
        rows.filter_map(|row| Some((row.bits_per_pixel, of(&row.merged).rmeas_percent?))).collect()
    };
    let paper = |shell: usize| PAPER.iter().map(|row| (row.bits_per_pixel, row.rmeas_percent[shell])).collect();
    let is_sz3 = |coding: Coding| matches!(coding, Coding::Sz3(_));
    let is_other = |coding: Coding| !matches!(coding, Coding::Sz3(_));
    let series = [
        Series { name: "sz3, high resolution", points: ours(is_sz3, |merged| &merged.high), line: true },
        Series { name: "sz3, low resolution", points: ours(is_sz3, |merged| &merged.low), line: true },
        Series { name: "lossless and spots, high", points: ours(is_other, |merged| &merged.high), line: false },
        Series { name: "lossless and spots, low", points: ours(is_other, |merged| &merged.low), line: false },
        Series { name: "paper, high resolution", points: paper(1), line: true },
        Series { name: "paper, low resolution", points: paper(0), line: true },
    ];
    let (x, y) = (Axis { label: "bits per pixel", log: true }, Axis { label: "Rmeas, %", log: true });
    chart("Rmeas against size (simulated crystal; the paper: lysozyme)", &x, &y, &series)
}
