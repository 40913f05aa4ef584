//! Draws the assembled photons of one simulated image as a PGM file and prints timings:
//! `draw OUT.pgm [MODULES] [IMAGE] [ICE]`.

use konkordia_sim::jungfrau::{JungfrauModel, SyntheticJungfrau};
use konkordia_sim::scene::{MODULE_COLUMNS, MODULE_PIXELS};
use std::io::Write;
use std::time::Instant;

fn main() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let path = arguments.get(1).map_or("jungfrau.pgm", String::as_str);
    let number = |i: usize, default: f64| arguments.get(i).and_then(|a| a.parse().ok()).unwrap_or(default);
    let mut model = JungfrauModel::for_modules(number(2, 8.0) as usize);
    model.scene.ice = number(4, 0.0);
    let start = Instant::now();
    let detector = SyntheticJungfrau::new(&model).map_err(std::io::Error::other)?;
    println!("setup {:?}", start.elapsed());
    let start = Instant::now();
    let spots = detector.spots(number(3, 0.0) as u64);
    println!("{} spots in {:?}", spots.len(), start.elapsed());
    let start = Instant::now();
    let image = detector.image(number(3, 0.0) as u64);
    println!("image {:?}, {:?} per module", start.elapsed(), start.elapsed() / model.scene.modules as u32);
    let stages = [0u16, 1, 2, 3].map(|g| image.raw.iter().filter(|w| **w >> 14 == g).count());
    let mean = image.photons.iter().map(|n| f64::from(*n)).sum::<f64>() / image.photons.len() as f64;
    println!(
        "words by gain bits {stages:?}, saturated {}, mean {mean:.2} photons",
        image.raw.iter().filter(|w| **w == 0xC000).count()
    );
    let (width, height) = detector.scene().assembled();
    let mut canvas = vec![255u8; width * height];
    for (pixel, &photons) in image.photons.iter().enumerate() {
        let (x0, y0) = detector.scene().module_origin(pixel / MODULE_PIXELS);
        let (row, column) = (pixel % MODULE_PIXELS / MODULE_COLUMNS, pixel % MODULE_COLUMNS);
        let (x, y) = (x0 + column + 2 * (column / 256), y0 + row + 2 * (row / 256));
        canvas[y * width + x] = 255 - (f64::from(photons + 1).ln() * 50.0).min(255.0) as u8;
    }
    let mut file = std::fs::File::create(path)?;
    writeln!(file, "P5 {width} {height} 255")?;
    file.write_all(&canvas)
}
