use super::*;
use konkordia_core::sls_header::SlsHeader;
use konkordia_input::{Input, Options};

fn spec(directory: &Path, interfaces: u32, tiles: usize) -> RawSpec {
    RawSpec {
        directory: directory.into(),
        prefix: "run_7".into(),
        overwrite: Overwrite::Refuse,
        sync_interval: None,
        format: TileFormat::jungfrau(interfaces).unwrap(),
        tiles,
        frames_per_file: 3,
        frames_planned: None,
        start_time: "2026-11-21T12:00:00Z".into(),
        exposure_period_s: (Some(840e-6), Some(0.001)),
        detector: None,
        facts: None,
        first_frame: None,
        frames_before_first_image: Some(2),
    }
}

/// A record of frame `number` without the packets `lost`, and its bytes. The bytes depend on tile, frame and packet;
/// those of lost packets are stale.
fn tile(format: &TileFormat, tile: usize, number: u64, lost: &[u16]) -> (TileRecord, Vec<u8>) {
    let header = SlsHeader {
        frame_number: number,
        timestamp_100ns: 77 * number,
        bunch_id: 5,
        exposure_length: 8400,
        daq_info: 1,
        module_id: tile as u16,
        row: tile as u16,
        column: 0,
    };
    let mut record = TileRecord { header: header.into(), ..TileRecord::default() };
    let mut bytes = Vec::new();
    for packet in 0..format.packets() as u16 {
        let value = if lost.contains(&packet) { 0x5A } else { (number * 7 + u64::from(packet) * 3 + tile as u64) as u8 & 0x3F };
        bytes.extend(std::iter::repeat_n(value, format.payload_bytes as usize));
        if !lost.contains(&packet) {
            record.bitmap.set(packet);
        }
    }
    record.packets = record.bitmap.count() as u16;
    (record, bytes)
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        std::fs::read_dir(directory).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn what_is_kept_is_read_back() {
    for (interfaces, tiles) in [(1, 1), (2, 4)] {
        let folder = tempfile::tempdir().unwrap();
        let spec = spec(folder.path(), interfaces, tiles);
        let format = spec.format;
        let last = format.packets() as u16 - 1;
        let lost = |n: u64, t: usize| match (n, t) {
            (2, _) => vec![0, 5, 6, last],
            (4, 0) => (1..=last).collect(),
            _ => vec![],
        };
        let mut copy = RawCopy::create(spec).unwrap();
        // Frame 3 is missing in all tiles, frame 5 in the last one.
        let numbers = [0u64, 1, 2, 4, 5, 6, 7];
        let is_absent = |n: u64, t: usize| n == 5 && tiles > 1 && t == tiles - 1;
        for &n in &numbers {
            for t in (0..tiles).filter(|t| !is_absent(n, *t)) {
                let (record, bytes) = tile(&format, t, 100 + n, &lost(n, t));
                copy.write(n, t, &record, &bytes).unwrap();
            }
        }
        let report = copy.finish().unwrap().unwrap();
        assert!(copy.finish().is_none());
        let records = (7 * tiles - usize::from(tiles > 1)) as u64;
        assert_eq!((report.frames, report.files), (7, 3 * tiles as u64 - u64::from(tiles > 1)));
        assert_eq!(report.bytes, records * (112 + u64::from(format.tile_bytes())));
        let text = std::fs::read(&report.master).unwrap();
        assert_eq!(Master::parse(&text).unwrap().first_frame, Some(102), "two warm-up frames stand before it");
        let input = Input::open(&[report.master], &Options::default()).unwrap();
        let info = input.info();
        assert_eq!((info.interfaces, input.tiles(), info.frames_found, info.frames_expected), (interfaces, tiles, 7, Some(7)));
        assert_eq!((info.first_frame, info.last_frame, info.module_ids.len()), (100, 107, tiles));
        for t in 0..tiles {
            let mut reader = input.open_tile(t);
            let there: Vec<u64> = numbers.into_iter().filter(|n| !is_absent(*n, t)).collect();
            assert_eq!(reader.len(), there.len());
            let mut got = vec![0; format.tile_bytes() as usize];
            for (nth, n) in there.into_iter().enumerate() {
                let (record, mut bytes) = tile(&format, t, 100 + n, &lost(n, t));
                for packet in lost(n, t) {
                    bytes[usize::from(packet) * 8192..][..8192].fill(0xFF);
                }
                let frame = reader.read(nth, &mut got).unwrap();
                assert_eq!((frame.header, frame.bitmap), (record.header.into(), record.bitmap));
                assert!(got == bytes, "frame {n} of tile {t}");
            }
        }
    }
}

#[test]
fn older_files_are_in_the_way_or_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let spec = spec(folder.path(), 1, 2);
    let (record, bytes) = tile(&spec.format, 1, 1, &[]);
    let mut copy = RawCopy::create(spec.clone()).unwrap();
    for frame in 0..4 {
        copy.write(frame, 1, &record, &bytes).unwrap();
    }
    copy.finish().unwrap().unwrap();
    std::fs::write(folder.path().join("run_7_raw_d0_f0_1.raw"), "another acquisition").unwrap();
    let all = [
        "run_7_raw_d0_f0_0.raw",
        "run_7_raw_d0_f0_1.raw",
        "run_7_raw_d1_f0_0.raw",
        "run_7_raw_d1_f1_0.raw",
        "run_7_raw_master_0.json",
    ];
    assert_eq!(names(folder.path()), all);
    let refused = RawCopy::create(spec.clone()).err().unwrap();
    assert_eq!((refused.exit, refused.why.as_str()), (Exit::Io, "the file exists"));
    assert_eq!(names(folder.path()), all);
    let copy = RawCopy::create(RawSpec { overwrite: Overwrite::Replace, ..spec.clone() }).unwrap();
    assert_eq!(names(folder.path()).len(), 4, "the second file of port 1 is gone");
    // A run that could not be armed leaves nothing.
    drop(copy);
    assert_eq!(names(folder.path()), ["run_7_raw_d0_f0_1.raw"]);
    let missing = RawSpec { directory: folder.path().join("none"), ..spec };
    assert!(RawCopy::create(missing).err().unwrap().to_string().contains("No such file"));
}

/// Records before an error are whole and can be read.
#[test]
fn a_failed_write_leaves_whole_records() {
    let folder = tempfile::tempdir().unwrap();
    let spec = spec(folder.path(), 1, 1);
    let (record, bytes) = tile(&spec.format, 0, 9, &[3]);
    let mut copy = RawCopy::create(spec.clone()).unwrap();
    copy.write(0, 0, &record, &bytes).unwrap();
    // Every further write finds the disk full.
    let path = spec.data_path(0, 0);
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    copy.files.lock().unwrap().as_mut().unwrap().ports[0].file = Arc::new(full);
    let error = copy.write(1, 0, &record, &bytes).unwrap_err();
    assert!(error.what.contains("run_7_raw_d0_f0_0.raw") && error.why.contains("No space left"), "{error}");
    assert!(error.fix.contains("free some space"), "{error}");
    let report = copy.finish().unwrap().unwrap();
    assert_eq!((report.frames, report.bytes), (1, 112 + (1 << 20)));
    assert_eq!(std::fs::metadata(path).unwrap().len(), report.bytes);
    let input = Input::open(&[report.master], &Options::default()).unwrap();
    assert_eq!((input.info().frames_found, input.info().incomplete), (1, false));
}

#[test]
fn durations_are_written_as_the_receiver_does() {
    for (seconds, text) in [(840e-6, "840us"), (0.001, "1ms"), (2.0, "2s"), (1.5, "1500ms"), (0.0, "0ns"), (1e-8, "10ns")] {
        assert_eq!(with_unit(seconds), text);
    }
}
