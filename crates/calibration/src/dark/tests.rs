//! Pedestals of simulated darks against the truth of the simulator, and what is refused.

use super::Taken;
use super::collect::Collector;
use super::judge::{Judged, judge};
use crate::reasons::{DEAD, NOISY, Thresholds};
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::image::TileRecord;
use konkordia_core::sls_header::SlsHeader;
use konkordia_sim::jungfrau::{BadKind, JungfrauModel, SyntheticJungfrau};
use konkordia_sinks::hdf5::calibration::{GainStage, MODULE_PIXELS};

/// One module, dark frames of some stages one after the other.
struct Run {
    detector: SyntheticJungfrau,
    stray: f64,
    collector: Collector,
}

impl Run {
    fn new(model: JungfrauModel, wanted: Option<GainStage>) -> Self {
        let detector = SyntheticJungfrau::new(&model).unwrap();
        Self { detector, stray: 0.0, collector: Collector::new(1, wanted, 0) }
    }

    fn add(&mut self, stage: GainStage, frames: u64) {
        let (number, info) = match stage {
            GainStage::G0 => (0, 0),
            GainStage::G1 => (1, 1 << 12),
            GainStage::G2 => (2, 1 << 2),
            GainStage::Hg0 => (3, 1),
        };
        let mut raw = vec![0; MODULE_PIXELS];
        for frame in 0..frames {
            self.detector.dark_into(frame, 0, number, &mut raw);
            self.detector.add_stray_photons(frame, 0, self.stray, &mut raw);
            let daq_info = 1 << 5 | info | u32::from(self.detector.storage_cell(frame)) << 8;
            let header = SlsHeader { daq_info, module_id: 9, ..SlsHeader::default() }.into();
            self.collector.add(&raw, &[TileRecord { header, packets: 128, ..TileRecord::default() }]);
        }
    }

    fn judge(self, force: bool) -> Result<Judged, Failure> {
        self.judge_with_notes(force).0
    }

    fn judge_with_notes(self, force: bool) -> (Result<Judged, Failure>, Vec<String>) {
        let mut taken = Taken {
            collector: self.collector,
            taken: String::new(),
            source: String::new(),
            serial: None,
            incomplete_frames: 0,
            notes: Vec::new(),
            exit: Exit::Complete,
        };
        (judge(&mut taken, &Thresholds::default(), force), taken.notes)
    }
}

/// Checks the fraction of good pixels whose mean is within 4 standard errors of the truth, and of those whose RMS is
/// within 4 of its own. Masks must be exact.
#[track_caller]
fn check(detector: &SyntheticJungfrau, (planes, rows): &Judged, slots: &[(u8, GainStage)]) {
    assert_eq!(planes.iter().map(|p| p.0).collect::<Vec<_>>(), slots);
    for ((cell, stage), p) in planes {
        let truth = detector.pedestal_plane(stage.index(), *cell);
        // Rounding to whole ADU adds a twelfth to the variance.
        let sigma = (f64::from(detector.noise_adu(stage.index())).powi(2) + 1.0 / 12.0).sqrt();
        let (mut good, mut close_mean, mut close_rms) = (0, 0, 0);
        for pixel in (0..MODULE_PIXELS).filter(|i| p.mask[*i] == 0) {
            let n = f64::from(p.count[pixel]);
            good += 1;
            close_mean += usize::from((f64::from(p.mean_adu[pixel]) - f64::from(truth[pixel])).abs() <= 4.0 * sigma / n.sqrt());
            close_rms += usize::from((f64::from(p.rms_adu[pixel]) - sigma).abs() <= 4.0 * sigma / (2.0 * n).sqrt());
        }
        let share = |n: usize| n as f64 / f64::from(good);
        println!("cell {cell} {}: mean {:.5}, RMS {:.5} of {good} pixels", stage.name(), share(close_mean), share(close_rms));
        assert!(share(close_mean) >= 0.999 && share(close_rms) >= 0.995);
        for pixel in 0..MODULE_PIXELS {
            let kind =
                detector.bad_pixels().binary_search_by_key(&pixel, |b| b.pixel).ok().map(|i| detector.bad_pixels()[i].kind);
            let expected = match kind.filter(|_| stage.of_words() == 0) {
                Some(BadKind::Dead) => DEAD,
                Some(BadKind::Noisy) => NOISY,
                None => 0,
            };
            assert_eq!(p.mask[pixel], expected, "pixel {pixel}");
        }
    }
    assert!(rows.iter().all(|r| r.module == 0 && r.remarks.is_empty()), "{}", super::judge::table(rows));
}

#[test]
fn every_stage_equals_the_truth() {
    let mut run = Run::new(JungfrauModel::for_modules(1), None);
    for stage in [GainStage::G1, GainStage::G2, GainStage::Hg0] {
        run.add(stage, 66);
    }
    assert_eq!(run.collector.module_ids, [Some(9)]);
    let detector = SyntheticJungfrau::new(run.detector.model()).unwrap();
    check(&detector, &run.judge(false).unwrap(), &[(3, GainStage::G1), (3, GainStage::G2), (3, GainStage::Hg0)]);
}

#[test]
fn every_storage_cell_equals_the_truth() {
    let mut run = Run::new(JungfrauModel { storage_cells: 2, ..JungfrauModel::for_modules(1) }, None);
    run.add(GainStage::G0, 140);
    let detector = SyntheticJungfrau::new(run.detector.model()).unwrap();
    check(&detector, &run.judge(false).unwrap(), &[(0, GainStage::G0), (1, GainStage::G0)]);
}

#[test]
fn odd_photons_do_not_move_pedestals_and_light_is_refused() {
    let mut run = Run::new(JungfrauModel::for_modules(1), Some(GainStage::G0));
    run.stray = 0.002;
    run.add(GainStage::G0, 100);
    let detector = SyntheticJungfrau::new(run.detector.model()).unwrap();
    check(&detector, &run.judge(false).unwrap(), &[(3, GainStage::G0)]);
    let lit = |force| {
        let mut run = Run::new(JungfrauModel::for_modules(1), None);
        run.stray = 0.05;
        run.add(GainStage::G0, 70);
        run.judge(force)
    };
    let failure = lit(false).err().unwrap();
    assert_eq!(failure.exit, Exit::Configuration);
    let text = failure.to_string();
    assert!(text.contains("of G0 in storage cell 3 are not dark") && text.contains("close the shutter"), "{text}");
    let (planes, rows) = lit(true).unwrap();
    assert!(planes[0].1.settings.contains("\"forced\":[\"module 0: "), "{}", planes[0].1.settings);
    assert!(rows[0].verdict().starts_with("check: "), "{}", rows[0].verdict());
}

#[test]
fn forced_runs_in_the_wrong_stage_and_short_runs_are_refused() {
    let mut run = Run::new(JungfrauModel::for_modules(1), Some(GainStage::G1));
    run.add(GainStage::G0, 12);
    run.add(GainStage::G1, 11);
    let text = run.judge(false).err().unwrap().to_string();
    assert!(text.contains("wrong gain stage") && text.contains("12 of 23 frames were refused: 12 in stage G0"), "{text}");
    let mut run = Run::new(JungfrauModel::for_modules(1), Some(GainStage::G1));
    run.add(GainStage::G0, 5);
    run.add(GainStage::G1, 9);
    let text = run.judge(false).err().unwrap().to_string();
    assert!(text.contains("too few dark frames of G1") && text.contains("9 frames"), "{text}");
    let mut run = Run::new(JungfrauModel::for_modules(1), Some(GainStage::G1));
    run.add(GainStage::G0, 5);
    run.add(GainStage::G1, 12);
    let (planes, rows) = run.judge(false).unwrap();
    assert_eq!((planes[0].1.frames, planes[0].1.frames_refused), (12, 5));
    assert!(rows[0].verdict().contains("few frames"), "{}", rows[0].verdict());
    let text = Run::new(JungfrauModel::for_modules(1), None).judge(false).err().unwrap();
    assert_eq!((text.exit, text.why.as_str()), (Exit::Timeout, "no frame arrived"));
}

#[test]
fn a_few_frames_of_another_stage_are_left_out() {
    let mut run = Run::new(JungfrauModel::for_modules(1), None);
    run.add(GainStage::G0, 9);
    run.add(GainStage::G1, 12);
    let (judged, notes) = run.judge_with_notes(false);
    assert_eq!(judged.unwrap().0.iter().map(|p| p.0).collect::<Vec<_>>(), [(3, GainStage::G1)]);
    assert!(notes.len() == 1 && notes[0].starts_with("G0 of storage cell 3 has only 9 frames"), "{notes:?}");
}

#[test]
fn a_drift_within_the_run_is_reported() {
    let model = JungfrauModel { drift_adu: 40.0, drift_images: 100.0, ..JungfrauModel::for_modules(1) };
    let mut run = Run::new(model, None);
    run.add(GainStage::G0, 120);
    let (_, rows) = run.judge(false).unwrap();
    let drift = rows[0].drift_adu.unwrap();
    assert!((8.0..16.0).contains(&drift) && rows[0].verdict().contains("is the detector warm?"), "{}", rows[0].verdict());
}
