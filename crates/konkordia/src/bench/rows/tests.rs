//! Every row of the benches does what it says.

use super::{codecs, roofline, run, steps};
use konkordia_kernels::convert::Constants;
use konkordia_kernels::isa::Isa;
use std::time::Duration;

#[test]
fn the_benchmark_verifies_every_row() {
    let frames: Vec<Vec<u16>> = (0..2).map(|f| (0..10_001).map(|i| ((i * 7919 + f * 31) % 1500) as u16).collect()).collect();
    let planes: Vec<Vec<f32>> = [700.0, 0.0, 0.0, 0.01, 1.0, 1.0].map(|value| vec![value; 10_001]).into();
    let constants = Constants { pedestal: [&planes[0], &planes[1], &planes[2]], factor: [&planes[3], &planes[4], &planes[5]] };
    let rows = run(&frames, &constants, Duration::ZERO).unwrap();
    assert!(rows.len() >= 4 + 7 * Isa::available().len());
    for row in &rows {
        assert!(row.verified && row.gb_per_s_raw > 0.0 && row.ratio_to_baseline > 0.0, "{row:?}");
    }
    let more = [steps::run(&frames, &constants, Duration::ZERO), codecs::run(&frames, &constants, Duration::ZERO)];
    for row in more.into_iter().flat_map(Result::unwrap) {
        assert!(row.verified && row.gb_per_s_raw > 0.0 && row.ratio_to_baseline > 0.0, "{row:?}");
    }
    let points = roofline::points(&frames, &constants, Duration::ZERO).unwrap();
    assert_eq!(points.len(), 8 * Isa::available().len() - 2);
    assert!(points.iter().all(|p| p.verified && p.gb_per_s() > p.gflop_per_s()), "{points:?}");
    assert!(Isa::available().iter().all(|isa| roofline::peak_gflop_per_s(*isa, Duration::ZERO).lowest > 0.0));
    assert!(run(&[], &constants, Duration::ZERO).is_err());
    assert!(run(&[vec![0; 4], vec![0; 5]], &constants, Duration::ZERO).unwrap_err().contains("frame 1"));
    assert!(run(&[vec![0; 4]], &constants, Duration::ZERO).is_err());
}
