//! Calibration files: what is written is read back, and a file that was changed afterwards is refused.

use std::path::Path;

use konkordia_sinks::hdf5::ErrorKind;
use konkordia_sinks::hdf5::calibration::{CalibrationFile, GainStage, Keep, MODULE_PIXELS, StagePedestal, previous_path};
use konkordia_sinks::hdf5::calibration_planes::{read_floats, read_mask};
use konkordia_sinks::hdf5::calibration_reader::CalibrationReader;

fn stage(seed: u32, pixels: usize) -> StagePedestal {
    let value = |i: usize, k: u32| ((i as u32).wrapping_mul(2_654_435_761).wrapping_add(seed * 7 + k) >> 8) as f32 / 1024.0;
    StagePedestal {
        mean_adu: (0..pixels).map(|i| if i == 5 { f32::NAN } else { value(i, 0) }).collect(),
        rms_adu: (0..pixels).map(|i| value(i, 1)).collect(),
        count: (0..pixels).map(|i| 100 + i as u32 % 3).collect(),
        mask: (0..pixels).map(|i| u32::from(i % 1000 == seed as usize)).collect(),
        frames: 101,
        frames_refused: u64::from(seed),
        taken: "2026-11-21T05:18:21.123Z".into(),
        source: "live".into(),
        settings: "{\"noisy_k\":3.0}".into(),
    }
}

fn whole(modules: usize) -> CalibrationFile {
    let pixels = modules * MODULE_PIXELS;
    CalibrationFile {
        modules,
        created: "2026-11-21T05:18:22.000Z".into(),
        software: "konkordia 0.1.0".into(),
        detector_serial: "JF-7".into(),
        module_ids: (0..modules).map(|m| (m != 1).then_some(40 + m as u16)).collect(),
        pedestals: [(0, GainStage::G0), (3, GainStage::G0), (3, GainStage::G1), (3, GainStage::Hg0)]
            .into_iter()
            .enumerate()
            .map(|(n, key)| (key, stage(n as u32, pixels)))
            .collect(),
        gains: [Some(vec![41.0; pixels]), None, Some(vec![-0.11; pixels]), None],
        gain_source: "a.bin".into(),
        history: vec!["made".into(), "extended".into()],
        reasons: vec![(0, "dead".into()), (4, "no gain".into())],
    }
}

fn same(a: &CalibrationFile, b: &CalibrationFile) {
    // NaN is not equal to itself; the bytes are.
    assert_eq!(a.hash(), b.hash());
    let but_planes = |c: &CalibrationFile| {
        let mut c = c.clone();
        c.pedestals.values_mut().for_each(|p| p.mean_adu.clear());
        c
    };
    assert_eq!(but_planes(a), but_planes(b));
}

#[test]
fn what_is_written_is_read() {
    let folder = tempfile::tempdir().unwrap();
    for modules in [1, 3] {
        let path = folder.path().join("cal.h5");
        let file = whole(modules);
        let hash = file.write(&path, Keep::Nothing).unwrap();
        assert_eq!(hash, file.hash());
        let back = CalibrationFile::read(&path).unwrap();
        same(&file, &back);
        assert_eq!(back.cells(), [0, 3]);
    }
    // Nothing else is left in the folder.
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn the_file_before_is_kept_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cal.h5");
    let previous = folder.path().join("cal.previous.h5");
    assert_eq!(previous_path(&path), previous);
    assert_eq!(previous_path(Path::new("a/today")), Path::new("a/today.previous"));
    let mut file = whole(1);
    for serial in ["1", "2", "3", "4"] {
        file.detector_serial = serial.into();
        file.write(&path, if serial == "4" { Keep::Nothing } else { Keep::Previous }).unwrap();
    }
    let serial = |path: &Path| CalibrationFile::read(path).unwrap().detector_serial;
    assert_eq!((serial(&path), serial(&previous)), ("4".into(), "2".into()));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
}

#[test]
fn a_file_is_read_in_parts() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cal.h5");
    let file = whole(3);
    file.write(&path, Keep::Nothing).unwrap();
    let reader = CalibrationReader::open(&path).unwrap();
    assert_eq!(reader.check_hash().unwrap(), file.hash());
    assert_eq!(reader.facts().module_ids, file.module_ids);
    for module in 0..3 {
        let part = reader.pedestals((3, GainStage::G1), module).unwrap().unwrap();
        let expected = file.pedestals[&(3, GainStage::G1)].of_module(module);
        assert!(part.mean_adu.iter().zip(&expected.mean_adu).all(|(a, b)| a.to_bits() == b.to_bits()));
        assert_eq!((part.mask, part.rms_adu, part.frames, part.taken), (expected.mask, expected.rms_adu, 101, expected.taken));
        assert_eq!(reader.gain(GainStage::G2, module).unwrap().unwrap(), vec![-0.11; MODULE_PIXELS]);
    }
    assert!(reader.pedestals((0, GainStage::G1), 0).unwrap().is_none() && reader.gain(GainStage::G1, 0).unwrap().is_none());
    assert_eq!(reader.pedestals((3, GainStage::G0), 3).unwrap_err().kind, ErrorKind::Damaged);
    let mut bytes = std::fs::read(&path).unwrap();
    let at = bytes.len() / 2;
    bytes[at] ^= 8;
    std::fs::write(&path, bytes).unwrap();
    assert_eq!(CalibrationReader::open(&path).unwrap().check_hash().unwrap_err().kind, ErrorKind::Damaged);
}

#[test]
fn a_file_that_was_changed_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cal.h5");
    let file = whole(1);
    file.write(&path, Keep::Nothing).unwrap();
    let good = std::fs::read(&path).unwrap();
    // One byte of a plane: the last value of the last plane that was written.
    let needle: Vec<u8> = (-0.11f32).to_le_bytes().repeat(64);
    let at = good.windows(needle.len()).position(|w| w == needle).unwrap();
    let mut bad = good.clone();
    bad[at] ^= 1;
    std::fs::write(&path, &bad).unwrap();
    let error = CalibrationFile::read(&path).unwrap_err();
    assert!(
        error.kind == ErrorKind::Damaged && error.cause.contains("the file is damaged: its content has the hash sha256:"),
        "{error}"
    );
    for cut in [0, 100, 4096, good.len() / 2] {
        std::fs::write(&path, &good[..cut]).unwrap();
        let error = CalibrationFile::read(&path).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Damaged, "{error}");
    }
    let error = CalibrationFile::read(&folder.path().join("nowhere.h5")).unwrap_err();
    assert_eq!(error.kind, ErrorKind::NotFound);
}

#[test]
fn identity_is_hashed_and_wrong_sizes_are_not_written() {
    let file = whole(1);
    let change = |f: &dyn Fn(&mut CalibrationFile)| {
        let mut other = file.clone();
        f(&mut other);
        other.hash()
    };
    let hashes = [
        change(&|_| ()),
        change(&|f| f.detector_serial = "JF-8".into()),
        change(&|f| f.module_ids[0] = None),
        change(&|f| f.pedestals.get_mut(&(3, GainStage::G1)).unwrap().mask[9] = 1),
        change(&|f| f.pedestals.get_mut(&(0, GainStage::G0)).unwrap().taken.clear()),
        change(&|f| f.gains[0] = None),
    ];
    for (i, hash) in hashes.iter().enumerate() {
        assert!(!hashes[..i].contains(hash), "{i}");
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cal.h5");
    std::fs::write(&path, "older").unwrap();
    let mut wrong = file.clone();
    wrong.gains[0] = Some(vec![1.0; 7]);
    assert_eq!(wrong.write(&path, Keep::Nothing).unwrap_err().kind, ErrorKind::Invalid);
    assert_eq!(std::fs::read(&path).unwrap(), b"older");
}

#[test]
fn files_of_other_kinds_are_named_as_such() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("other.h5");
    {
        let file = hdf5::File::create(&path).unwrap();
        let data = file.new_dataset::<f64>().shape((3, 4, 5)).create("gains").unwrap();
        data.write_raw(&(0..60).map(f64::from).collect::<Vec<_>>()).unwrap();
        let mask: Vec<bool> = (0..20).map(|i| i == 7).collect();
        file.new_dataset::<bool>().shape((4, 5)).create("pixel_mask").unwrap().write_raw(&mask).unwrap();
        let mask: Vec<i64> = (0..20).map(|i| if i == 3 { 1 << 40 } else { i }).collect();
        file.new_dataset::<i64>().shape((4, 5)).create("wide").unwrap().write_raw(&mask).unwrap();
    }
    let error = CalibrationFile::read(&path).unwrap_err();
    assert!(error.kind == ErrorKind::Invalid && error.hint.contains("jungfrau_utils"), "{error}");
    let gains = read_floats(&path, "gains").unwrap();
    assert_eq!((gains.shape.as_slice(), gains.values[59]), (&[3, 4, 5][..], 59.0));
    let mask = read_mask(&path, "pixel_mask").unwrap().unwrap();
    assert_eq!((mask.shape.as_slice(), mask.values.iter().sum::<u32>(), mask.values[7]), (&[4, 5][..], 1, 1));
    assert_eq!(read_mask(&path, "wide").unwrap().unwrap().values[3], 1 << 31);
    assert!(read_mask(&path, "absent").unwrap().is_none());
    assert!(read_floats(&path, "absent").unwrap_err().cause.contains("no data set 'absent'"));
    std::fs::write(&path, "not HDF5").unwrap();
    assert_eq!(read_floats(Path::new(&path), "gains").unwrap_err().kind, ErrorKind::Invalid);
}
