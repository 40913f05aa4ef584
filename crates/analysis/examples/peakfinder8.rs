//! Finds the spots of a raw image of 32-bit integers (little-endian, no header) and prints them as CSV. Times go to
//! stderr.
//!
//! `peakfinder8 IMAGE ROWS COLUMNS BEAM_X_PX BEAM_Y_PX RADIUS_MAX_PX`: the beam counts from the first corner of the
//! first pixel, as in CrystFEL.

use konkordia_analysis::Plane;
use konkordia_analysis::peakfinder8::{Panel, Peakfinder8, Settings, crystfel_radius_px};
use konkordia_analysis::spot::SpotList;
use konkordia_kernels::Isa;
use konkordia_kernels::stats::Measured;
use std::time::Instant;

fn time<P: Measured>(finder: &mut Peakfinder8, plane: &Plane<'_, P>, spots: &mut SpotList) {
    let mut first: Option<SpotList> = None;
    for &isa in Isa::available() {
        let mut times_ns: Vec<u128> = (0..15)
            .map(|_| {
                let start = Instant::now();
                finder.find(isa, plane, spots);
                start.elapsed().as_nanos()
            })
            .collect();
        assert_eq!(first.get_or_insert_with(|| spots.clone()), spots, "every instruction set finds the same");
        times_ns.sort_unstable();
        let per_pixel = |ns: u128| ns as f64 / plane.pixels.len() as f64;
        let (median, best) = (per_pixel(times_ns[7]), per_pixel(times_ns[0]));
        eprintln!("{:?} {isa}: {median:.2} ns per pixel, best {best:.2}, {} spots", P::TYPE, spots.found);
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [image, rows, columns, x_px, y_px, radius_max_px] = &arguments[..] else {
        return Err("peakfinder8 IMAGE ROWS COLUMNS BEAM_X_PX BEAM_Y_PX RADIUS_MAX_PX".into());
    };
    let bytes = std::fs::read(image)?;
    let (words, _) = bytes.as_chunks::<4>();
    let pixels: Vec<i32> = words.iter().map(|word| i32::from_le_bytes(*word)).collect();
    let (rows, columns): (usize, usize) = (rows.parse()?, columns.parse()?);
    let (beam_x, beam_y): (f64, f64) = (x_px.parse()?, y_px.parse()?);
    let radius = |n: usize| {
        let (x, y) = ((n % columns) as f64 - beam_x, (n / columns) as f64 - beam_y);
        crystfel_radius_px(x, y)
    };
    let radius_px: Vec<f32> = (0..rows * columns).map(radius).collect();
    let settings = Settings {
        threshold: 10.0,
        snr_min: 5.0,
        local_background_radius_px: 4,
        radius_max_px: radius_max_px.parse()?,
        ..Settings::default()
    };
    let panels = [Panel::whole(rows, columns)];
    let usable = vec![true; pixels.len()];
    let mut finder = Peakfinder8::new(settings, &radius_px, &usable, rows, columns, &panels)?;
    let mut spots = SpotList::new(10_000);
    let plane = Plane::new(&pixels, columns, 0, i32::MAX);
    time(&mut finder, &plane, &mut spots);
    let narrow: Vec<u16> = pixels.iter().map(|&pixel| u16::try_from(pixel).unwrap_or(u16::MAX)).collect();
    let real: Vec<f32> = pixels.iter().map(|&pixel| pixel as f32).collect();
    let mut others = SpotList::new(10_000);
    time(&mut finder, &Plane::own(&narrow, columns), &mut others);
    time(&mut finder, &Plane::new(&real, columns, 0.0, f32::MAX), &mut others);
    println!("x_px,y_px,intensity,maximum,background,snr,pixels");
    for spot in &spots.spots {
        let (x, y) = (spot.x_px, spot.y_px);
        println!("{x:.3},{y:.3},{:.2},{},{:.3},{:.2},{}", spot.intensity, spot.maximum, spot.background, spot.snr, spot.pixels);
    }
    Ok(())
}
