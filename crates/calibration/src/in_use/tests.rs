//! Reports and maps of small detectors with gaps.

use super::*;
use crate::reasons::{DEAD, NO_GAIN, NOISY};
use konkordia_sinks::hdf5::calibration::{Keep, MODULE_COLUMNS};

const TWO: &str = "[detector]\ntype = \"jungfrau\"\nmodules = 2\nenergy_kev = 12.4\n[[detector.tile]]\nrow = 0\ncolumn = 0\n[[detector.tile]]\nrow = 520\ncolumn = 3\nrotate_deg = 180\n[calibration]\nkind = \"konkordia\"\nfile = \"cal.h5\"\nmax_age_hours = 12\n[output]\ndirectory = \".\"\nprefix = \"a\"\n";

fn calibration(mean: f32) -> CalibrationFile {
    let pixels = 2 * MODULE_PIXELS;
    let stage = |mean: f32| StagePedestal {
        mean_adu: (0..pixels).map(|pixel| mean + (pixel % 1000) as f32).collect(),
        rms_adu: vec![20.0; pixels],
        count: vec![1000; pixels],
        mask: vec![0; pixels],
        frames: 1000,
        taken: konkordia_sinks::clock::now(),
        ..StagePedestal::default()
    };
    CalibrationFile {
        modules: 2,
        pedestals: [((3, GainStage::G0), stage(mean)), ((3, GainStage::G1), stage(14000.0))].into(),
        gains: [Some(vec![41.0; pixels]), Some(vec![-1.44; pixels]), None, None],
        ..CalibrationFile::default()
    }
}

fn in_use(folder: &Path, text: &str) -> InUse {
    InUse::new(&Config::parse(text, &folder.join("run.toml")).map_err(|d| d.to_string()).unwrap()).unwrap()
}

fn ask(quantity: Quantity, stage: usize) -> MapRequest {
    MapRequest { quantity, stage, cell: None, minus_previous: false }
}

#[test]
fn maps_lie_as_images_and_what_is_kept_is_of_these_files() {
    let folder = tempfile::tempdir().unwrap();
    let (path, in_use) = (folder.path().join("cal.h5"), in_use(folder.path(), TWO));
    assert!(matches!(in_use.report(), Err(NotShown::Missing(_))));
    let mut file = calibration(2800.0);
    file.pedestals.get_mut(&(3, GainStage::G0)).unwrap().mask[5] = DEAD | NOISY;
    file.write(&path, Keep::Previous).unwrap();
    let map = in_use.map(ask(Quantity::Pedestal, 0)).unwrap();
    assert_eq!((map.rows, map.columns, map.cell, map.stage), (1032, 1027, Some(3), GainStage::G0));
    let Values::Numbers(values) = &map.values else { panic!() };
    let mean = &file.pedestals[&(3, GainStage::G0)].mean_adu;
    assert!(values[5].is_nan() && values[1026].is_nan() && values[515 * 1027].is_nan());
    assert_eq!((values[6], values[1027]), (mean[6], mean[MODULE_COLUMNS]));
    // The second module is turned by 180 degrees.
    assert_eq!(values[520 * 1027 + 3], mean[2 * MODULE_PIXELS - 1]);
    assert_eq!(values[1031 * 1027 + 1026], mean[MODULE_PIXELS]);
    assert!(Arc::ptr_eq(&map, &in_use.map(ask(Quantity::Pedestal, 0)).unwrap()));
    let bits = in_use.map(ask(Quantity::Mask, 0)).unwrap();
    let Values::Bits(bits) = &bits.values else { panic!() };
    assert_eq!((bits[5], bits[6], bits[1026]), (DEAD | NOISY, 0, u32::MASKED));
    // A new file is read anew; the one before is the previous one.
    let mut next = calibration(2810.0);
    next.gains[0].as_mut().unwrap()[7] = 0.0;
    next.write(&path, Keep::Previous).unwrap();
    let moved = in_use.map(MapRequest { minus_previous: true, ..ask(Quantity::Pedestal, 0) }).unwrap();
    let Values::Numbers(values) = &moved.values else { panic!() };
    assert_eq!(values[6], 10.0);
    assert!(values[5].is_nan() && values[7].is_nan() && values[1026].is_nan());
    let changed = in_use.map(MapRequest { minus_previous: true, ..ask(Quantity::Mask, 0) }).unwrap();
    let Values::Bits(bits) = &changed.values else { panic!() };
    assert_eq!((bits[5], bits[6], bits[7]), (1, 0, 2));
    let report = in_use.report().unwrap();
    let first = report.rows.iter().find(|row| row.judged.stage == GainStage::G0).unwrap();
    assert_eq!((first.judged.masked.clone(), first.gain_adu_per_kev), (vec![("no gain", 1)], Some(41.0)));
    let change = first.change.as_ref().unwrap();
    assert_eq!((change.shift_adu, change.masked, change.reasons.clone()), (10.0, [1, 1], vec![("no gain", 1)]));
    assert_eq!((report.rows.len(), report.hash.clone()), (4, next.hash()));
    assert!(report.taken.is_some() && report.previous.as_ref().is_some_and(|previous| previous.failure.is_none()));
    // A run would refuse it, but there is something to look at.
    assert!(report.refusal.as_ref().unwrap().what.contains("has no gains of G2"));
    in_use.forget(Duration::from_secs(60));
    assert!(in_use.made().map.is_some() && in_use.made().report.is_some());
    in_use.forget(Duration::ZERO);
    assert!(in_use.made().map.is_none() && in_use.made().report.is_none());
}

#[test]
fn what_is_not_there_is_missing_and_what_is_damaged_is_broken() {
    let folder = tempfile::tempdir().unwrap();
    let (path, in_use) = (folder.path().join("cal.h5"), in_use(folder.path(), TWO));
    calibration(2800.0).write(&path, Keep::Previous).unwrap();
    for request in [
        ask(Quantity::Pedestal, 2),
        ask(Quantity::Gain, 2),
        MapRequest { cell: Some(1), ..ask(Quantity::Noise, 0) },
        MapRequest { minus_previous: true, ..ask(Quantity::Noise, 0) },
    ] {
        assert!(matches!(in_use.map(request), Err(NotShown::Missing(_))), "{request:?}");
    }
    let mut other = calibration(2800.0);
    other.pedestals.values_mut().for_each(|planes| *planes = planes.of_module(0));
    other.gains = [const { None }; 4];
    other.modules = 1;
    other.write(&path, Keep::Previous).unwrap();
    let Err(NotShown::Broken(failure)) = in_use.report() else { panic!() };
    assert!(failure.what.contains("is of another detector"), "{failure}");
    // The other one becomes the previous one, with which nothing can be compared.
    calibration(2800.0).write(&path, Keep::Previous).unwrap();
    let report = in_use.report().unwrap();
    assert!(report.previous.as_ref().unwrap().failure.is_some() && report.rows.iter().all(|row| row.change.is_none()));
    let mut bytes = std::fs::read(&path).unwrap();
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    assert!(matches!(in_use.map(ask(Quantity::Pedestal, 0)), Err(NotShown::Broken(_))));
}

#[test]
fn planes_of_other_programs_are_for_all_cells() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, values: [f32; 3]| {
        let planes = values.into_iter().flat_map(|value| value.to_le_bytes().repeat(MODULE_PIXELS));
        std::fs::write(folder.path().join(name), planes.collect::<Vec<u8>>()).unwrap();
    };
    write("p", [3000.0, 15000.0, 16383.0]);
    write("g", [41.0, -1.44, 0.0]);
    let text = "[detector]\ntype = \"jungfrau\"\nenergy_kev = 12.4\n[calibration]\nkind = \"files\"\npedestal = \"p\"\ngain = \"g\"\n[output]\ndirectory = \".\"\nprefix = \"a\"\n";
    let in_use = in_use(folder.path(), text);
    let report = in_use.report().unwrap();
    let masked: Vec<u64> = report.rows.iter().map(|row| row.judged.masked_pixels).collect();
    assert_eq!((masked, report.is_for_all_cells), (vec![0, 0, MODULE_PIXELS as u64], true));
    let Values::Bits(bits) = &in_use.map(MapRequest { cell: Some(9), ..ask(Quantity::Mask, 2) }).unwrap().values else {
        panic!()
    };
    assert_eq!(bits[0], DEAD | NO_GAIN);
    assert!(matches!(in_use.map(ask(Quantity::Noise, 1)), Err(NotShown::Missing(_))));
    assert!(matches!(in_use.map(ask(Quantity::Pedestal, 2)), Err(NotShown::Missing(_))));
}
