//! The spots of a real frame are those of DIALS.

#[path = "../../../tests/skip.rs"]
mod skip;

use konkordia_analysis::Plane;
use konkordia_analysis::dispersion::{Dispersion, Settings};
use konkordia_analysis::spot::SpotList;
use konkordia_kernels::{Isa, byte_offset};
use std::path::Path;
use std::process::Command;

const ROWS: usize = 2527;
const COLUMNS: usize = 2463;
/// Highest count of the detector, from the header of the frame.
const CUTOFF: i32 = 115_897;

/// The pixels of a packed miniCBF; `None` if there is no program that unpacks it.
fn frame(path: &Path) -> Option<Vec<i32>> {
    let Ok(unpacked) = Command::new("bzip2").arg("-dc").arg(path).output() else {
        skip::skipped("no program bzip2");
        return None;
    };
    let bytes = unpacked.stdout;
    let mark = [0x0c, 0x1a, 0x04, 0xd5];
    let start = bytes.windows(4).position(|window| window == mark).expect("the data of a CBF") + mark.len();
    let mut pixels = vec![0; ROWS * COLUMNS * 4];
    byte_offset::decode(&bytes[start..], &mut pixels).expect("packed pixels");
    Some(pixels.as_chunks::<4>().0.iter().map(|bytes| i32::from_le_bytes(*bytes)).collect())
}

#[test]
fn spots_of_a_thaumatin_frame_are_those_of_dials() {
    let Some(frame_path) = skip::data("thaumatin/thau_3_2_0008.cbf.bz2") else { return };
    let Some(spots_path) = skip::data("thaumatin/dials_spots_0008.csv") else { return };
    let Some(pixels) = frame(&frame_path) else { return };
    let text = std::fs::read_to_string(spots_path).unwrap();
    let number = |field: &str| field.parse::<f64>().unwrap();
    // DIALS: the centre of a pixel is n + 0.5.
    let expected: Vec<[f64; 3]> = text
        .lines()
        .skip(1)
        .map(|line| line.split(',').map(number).collect::<Vec<_>>())
        .map(|fields| [fields[0] - 0.5, fields[1] - 0.5, fields[2]])
        .collect();
    let mut finder = Dispersion::new(Settings::default(), &vec![true; ROWS * COLUMNS], ROWS, COLUMNS).unwrap();
    let mut list = SpotList::new(10_000);
    let mut first: Option<SpotList> = None;
    for &isa in Isa::available() {
        finder.find(isa, &Plane::new(&pixels, COLUMNS, 0, CUTOFF), &mut list);
        assert_eq!(first.get_or_insert_with(|| list.clone()), &list, "{isa}");
    }
    let float: Vec<f32> = pixels.iter().map(|pixel| if *pixel < 0 { f32::NAN } else { *pixel as f32 }).collect();
    finder.find(Isa::detect(), &Plane::new(&float, COLUMNS, 0.0, CUTOFF as f32), &mut list);
    assert_eq!(first.as_ref(), Some(&list), "float32");
    let is_same = |expected: &[f64; 3]| {
        list.spots.iter().any(|spot| {
            let away = [(spot.x_px, expected[0]), (spot.y_px, expected[1])].map(|(a, b)| (a - b).abs());
            away.iter().all(|away| *away < 0.001) && spot.intensity == expected[2]
        })
    };
    let same = expected.iter().filter(|expected| is_same(expected)).count();
    println!("{same} of {} spots, {} found", expected.len(), list.found);
    assert_eq!((same, list.found), (expected.len(), expected.len() as u64));
}
