//! Integrates one image of raw pixels by a `.poni` file and prints the profile: radius, azimuth, intensity, sigma,
//! normalisation. Then it prints how long that takes.
//!
//! `azimuthal IMAGE.raw TYPE ROWS COLUMNS FILE.poni [key=value ...]`; keys are `unit` (tth, q, d), `bins`, `split` (no,
//! bbox, full), `range_low`, `range_high`, `polarization`, `solid_angle`, `azimuth_bins`, `from`, `to`, `variance`,
//! `low` (lowest usable value).

use std::collections::HashMap;
use std::time::Instant;

use konkordia_analysis::Plane;
use konkordia_analysis::azimuthal::Integrator;
use konkordia_analysis::azimuthal::{Settings, Splitting};
use konkordia_analysis::geometry::Radial;
use konkordia_analysis::poni::Poni;
use konkordia_kernels::Isa;
use konkordia_kernels::azimuthal::Summed;

fn main() -> Result<(), String> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [image, kind, rows, columns, poni, options @ ..] = arguments.as_slice() else {
        return Err("azimuthal IMAGE.raw TYPE ROWS COLUMNS FILE.poni [key=value ...]".into());
    };
    let options: HashMap<&str, &str> = options.iter().filter_map(|option| option.split_once('=')).collect();
    let bytes = std::fs::read(image).map_err(|e| format!("{image}: {e}"))?;
    let shape = [rows, columns].map(|number| number.parse::<usize>().unwrap_or(0));
    macro_rules! run {
        ($t:ty) => {{
            let pixels: Vec<$t> =
                bytes.chunks_exact(size_of::<$t>()).map(|b| <$t>::from_le_bytes(b.try_into().unwrap())).collect();
            run(&pixels, shape, poni, &options)
        }};
    }
    match kind.as_str() {
        "int16" => run!(i16),
        "int32" => run!(i32),
        "uint16" => run!(u16),
        "uint32" => run!(u32),
        "float32" => run!(f32),
        _ => Err(format!("{kind} is not a type of pixels")),
    }
}

fn settings(options: &HashMap<&str, &str>) -> Settings {
    let number = |key: &str| options.get(key).and_then(|value| value.parse::<f64>().ok());
    let pair = |low: &str, high: &str| Some([number(low)?, number(high)?]);
    Settings {
        radial: match options.get("unit") {
            Some(&"q") => Radial::Q,
            Some(&"d") => Radial::D,
            _ => Radial::TwoTheta,
        },
        bins: number("bins").unwrap_or(1000.0) as usize,
        range: pair("range_low", "range_high"),
        splitting: match options.get("split") {
            Some(&"full") => Splitting::Full,
            Some(&"bbox") => Splitting::BoundingBox,
            _ => Splitting::None,
        },
        azimuth_deg: pair("from", "to"),
        azimuth_bins: number("azimuth_bins").unwrap_or(1.0) as usize,
        polarization: number("polarization"),
        solid_angle: number("solid_angle").unwrap_or(1.0) != 0.0,
        variance: number("variance").unwrap_or(0.0) != 0.0,
        empty: 0.0,
    }
}

fn run<P: Summed>(pixels: &[P], shape: [usize; 2], poni: &str, options: &HashMap<&str, &str>) -> Result<(), String> {
    let text = std::fs::read_to_string(poni).map_err(|e| format!("{poni}: {e}"))?;
    let geometry = text.parse::<Poni>()?.geometry(shape)?;
    let low = options.get("low").and_then(|low| low.parse().ok()).unwrap_or(f64::NEG_INFINITY);
    let usable: Vec<bool> = pixels.iter().map(|pixel| pixel.is_number() && pixel.to_f64() >= low).collect();
    let started = Instant::now();
    let mut integrator = Integrator::new(&geometry, settings(options), &usable)?;
    eprintln!("matrix made in {:.0} ms", started.elapsed().as_secs_f64() * 1e3);
    let mut profile = integrator.profile();
    let plane = Plane::own(pixels, shape[1]);
    for &isa in Isa::available() {
        let mut times: Vec<f64> = Vec::new();
        for _ in 0..21 {
            let started = Instant::now();
            integrator.integrate(isa, &plane, &mut profile)?;
            times.push(started.elapsed().as_secs_f64() * 1e9 / pixels.len() as f64);
        }
        times.sort_by(f64::total_cmp);
        eprintln!("{isa}: {:.2} ns per pixel (median), {:.2} at best", times[times.len() / 2], times[0]);
    }
    for bin in 0..profile.intensity.len() {
        let (row, column) = (bin / profile.radial.len(), bin % profile.radial.len());
        let sigma = profile.sigma.get(bin).copied().unwrap_or(0.0);
        let [radial, azimuth] = [profile.radial[column], profile.azimuth_deg[row]];
        println!("{radial:?} {azimuth:?} {:?} {sigma:?} {:?}", profile.intensity[bin], profile.normalization[bin]);
    }
    Ok(())
}
