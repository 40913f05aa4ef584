//! Series: images of every type and shape, in pieces and channels, written, read back, killed, repaired; the layout of
//! MAX IV.

mod common;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use common::series::{Kind, STORED, file_sink, images, pixels, start, write};
use common::{Scratch, decode};
use konkordia_core::array::{Array, Element, PackedBits, Packing, Shape};
use konkordia_core::experiment::Metadata;
use konkordia_core::geometry::{Orientation, Quarter};
use konkordia_core::image::{Channel, CommittedImage};
use konkordia_core::ledger::ImageStatus;
use konkordia_core::ports::Sink;
use konkordia_core::series::{ChannelStart, Ended, SeriesEnd, SeriesLedger, SeriesStart};
use konkordia_sinks::hdf5::{AppendSpec, FileSink, FileSpec, Reader, SeriesFileSpec, Severity, check, inspect, repair};
use serde_json::json;

fn errors(path: &Path) -> Vec<String> {
    check(path, &decode).iter().filter(|f| f.severity == Severity::Error).map(ToString::to_string).collect()
}

fn assert_images(path: &Path, kind: &Kind) {
    let reader = Reader::open(path).unwrap();
    let missing = kind.element.pixel().unwrap().missing_le_bytes();
    for number in 0..10 {
        let got = reader.read_image(number, &decode).unwrap();
        let expected = match number {
            3 | 5 => missing.repeat(kind.raw(0).len() / missing.len()),
            _ => kind.raw(number),
        };
        assert_eq!(got, expected, "image {number}");
    }
    assert_eq!(reader.column("status").unwrap(), [1, 1, 1, 0, 1, 3, 1, 1, 1, 1]);
    assert_eq!(reader.column("timestamp_ns").unwrap()[9], 9000);
    assert_eq!(reader.column("exposure_ns").unwrap()[..5], [900, 900, 900, 0, 900]);
    assert_eq!(reader.column("frame_number").unwrap(), [0, 1, 2, 0, 4, 5, 6, 7, 8, 9]);
}

fn kinds() -> Vec<Kind> {
    let shapes: [(&[u64], u64, &[usize]); 6] = [
        (&[300], 1, &[1]),
        (&[24, 33], 1, &[1, 2, 24]),
        (&[3, 8, 17], 1, &[1, 3]),
        (&[2, 2, 3, 4, 8], 1, &[2]),
        (&[12, 16], 3, &[1, 4]),
        (&[7], 2, &[1]),
    ];
    let mut kinds = Vec::new();
    for element in STORED {
        for (shape, channels, pieces) in shapes {
            // Every type in the usual shape, every shape in two types.
            if shape.len() != 2 && ![Element::Uint16, Element::Int64].contains(&element) {
                continue;
            }
            for &pieces in pieces {
                for packing in [Packing::None, Packing::BitshuffleLz4] {
                    kinds.push(Kind { element, shape: shape.to_vec(), channels, pieces, packing });
                }
            }
        }
    }
    kinds
}

#[test]
fn every_type_shape_and_number_of_pieces_reads_back() {
    let scratch = Scratch::new("series");
    for kind in kinds() {
        let mut sink = file_sink(&scratch.0, "s", 4);
        write(&mut sink, start(), &images(&kind));
        let path = scratch.0.join("s_master.h5");
        let what = format!("{:?} {:?} x {} in {}", kind.element, kind.shape, kind.channels, kind.pieces);
        assert_images(&path, &kind);
        assert_eq!(errors(&path), Vec::<String>::new(), "{what}");
        let summary = inspect(&path).unwrap();
        assert_eq!(summary.images_by_status, [1, 8, 0, 1, 0], "{what}");
        assert_eq!(summary.pieces, kind.pieces * kind.channels as usize, "{what}");
        assert_eq!(summary.ended.as_deref(), Some("finished"));
        assert!(summary.ledger.contains(&("not_stored".into(), 1)) && summary.ledger.contains(&("refused_by_file".into(), 0)));
        assert!(!repair(&path).unwrap().master_written, "{what}");
        let shared = sink.shared();
        assert_eq!((shared.images(), shared.refused(), shared.series()), (8, 0, 1));
        assert_eq!(shared.names().main, Some(path));
        assert_eq!(shared.names().current, Some(scratch.0.join("s_data_000003.h5")));
    }
}

#[test]
fn what_is_missing_or_marked_is_outside_of_the_limits_that_the_file_states() {
    let scratch = Scratch::new("series-limits");
    // Type, the lowest and the highest measurement by the sender, and the two limits in the file.
    type Row = (Element, Option<i64>, Option<u64>, Option<f64>, Option<f64>);
    let rows: [Row; 10] = [
        (Element::Uint16, None, None, Some(0.0), Some(65531.0)),
        (Element::Uint16, None, Some(60000), Some(0.0), Some(60000.0)),
        (Element::Uint16, None, Some(1 << 20), Some(0.0), Some(65531.0)),
        (Element::Uint16, None, Some(0), Some(0.0), Some(65531.0)),
        (Element::Uint32, None, None, Some(0.0), Some(2147483392.0)),
        (Element::Int32, Some(0), Some(115_897), Some(0.0), Some(115_897.0)),
        (Element::Int16, None, None, Some(-32765.0), Some(32766.0)),
        (Element::Uint8, None, None, Some(0.0), Some(251.0)),
        (Element::Int64, None, None, Some(i64::MIN as f64 + 4096.0), Some(i64::MAX as f64)),
        (Element::Float32, None, None, None, None),
    ];
    for (element, underload_value, saturation_value, low, high) in rows {
        let kind = Kind { element, shape: vec![24, 33], channels: 1, pieces: 1, packing: Packing::None };
        let facts = Metadata { underload_value, saturation_value, ..Metadata::default() };
        let mut sink = file_sink(&scratch.0, "l", 4);
        write(&mut sink, SeriesStart { facts, ..start() }, &images(&kind));
        let file = hdf5::File::open(scratch.0.join("l_master.h5")).unwrap();
        let limit = |name: &str| {
            let field = file.dataset(&format!("/entry/instrument/detector/{name}")).ok()?;
            Some(field.read_scalar::<f64>().unwrap())
        };
        assert_eq!((limit("underload_value"), limit("saturation_value")), (low, high), "{element:?}");
        let missing = element.pixel().unwrap().special().missing;
        let is_outside = low.is_none_or(|low| missing < low) || high.is_none_or(|high| missing > high);
        assert!(is_outside || !missing.is_finite(), "{element:?}: {missing} from {low:?} to {high:?}");
    }
}

#[test]
fn turned_images_lie_where_they_lay_before() {
    let scratch = Scratch::new("series-turned");
    let kind = Kind { element: Element::Uint16, shape: vec![24, 33], channels: 1, pieces: 1, packing: Packing::None };
    // In the McStas frame upright rows run to -x and columns to -y; a turn by 90 degrees clockwise makes rows of the
    // columns, which then run upwards.
    let rows = [
        ("0 upright", Orientation::UPRIGHT, [-1.0, 0.0], [0.0, -1.0], [2.0, 8.0]),
        ("1 flipped", Orientation::FLIPPED, [-1.0, 0.0], [0.0, 1.0], [2.0, -8.0]),
        ("2 turned", Orientation { flip_rows: false, rotate: Quarter::Deg90 }, [0.0, 1.0], [-1.0, 0.0], [8.0, -2.0]),
    ];
    for (name, orientation, fast, slow, offset) in rows {
        let mut sink = file_sink(&scratch.0, "t", 4);
        let (x, y, size) = (Some(1.0), Some(2.0), Some([2.0, 4.0]));
        let mut facts = Metadata { beam_center_x_px: x, beam_center_y_px: y, pixel_size_m: size, ..Metadata::default() };
        facts.experiment.tilt_fast_deg = Some(1.0);
        let notes = vec![("transform_sender_said".to_owned(), "this".to_owned())];
        write(&mut sink, SeriesStart { facts, orientation, notes, ..start() }, &images(&kind));
        let file = || hdf5::File::open(scratch.0.join("t_master.h5")).unwrap();
        let look = |file: &hdf5::File| {
            let vector = |field: &str, attribute: &str| {
                let field = file.dataset(&format!("/entry/instrument/detector/{field}")).unwrap();
                let [x, y, z] = field.attr(attribute).unwrap().read_raw::<f64>().unwrap()[..] else { panic!("3 numbers") };
                assert_eq!(z, 0.0);
                [x, y]
            };
            assert_eq!(vector("module/fast_pixel_direction", "vector"), fast, "{name}");
            assert_eq!(vector("module/slow_pixel_direction", "vector"), slow, "{name}");
            assert_eq!(vector("module/module_offset", "offset"), offset, "{name}");
            assert_eq!(vector("transformations/tilt_fast", "vector"), fast, "{name}");
            assert!(file.dataset("/entry/konkordia/conversion/transform_sender_said").is_ok(), "the sender is quoted");
        };
        look(&file());
        std::fs::remove_file(scratch.0.join("t_master.h5")).unwrap();
        repair(&scratch.0.join("t_master.h5")).unwrap();
        look(&file());
    }
}

#[test]
fn a_killed_series_is_repaired_with_all_its_pieces_channels_and_fields() {
    let scratch = Scratch::new("series-killed");
    for (channels, packing) in [(1, Packing::None), (3, Packing::BitshuffleLz4), (3, Packing::None)] {
        let kind = Kind { element: Element::Uint16, shape: vec![64, 96], channels, pieces: 2, packing };
        let mut sink = file_sink(&scratch.0, "k", 4);
        let mask = Array {
            shape: Shape::new(&[64, 96]).unwrap(),
            element: Element::Uint32,
            packing: Packing::None,
            pieces: vec![Bytes::from((0..64 * 96u32).flat_map(|i| (i % 7).to_le_bytes()).collect::<Vec<u8>>())],
        };
        let channel = |n: u64| ChannelStart {
            name: format!("threshold_{n}"),
            threshold_energy_ev: Some(4000.0 * n as f64),
            pixel_mask: Some(mask.clone()),
            flat_field: None,
        };
        let fields = json!({ "exptime": 0.5, "nested": { "deep": [1, 2, 3] } });
        let start = SeriesStart {
            channels: (1..=channels).map(channel).collect(),
            metadata: fields.as_object().unwrap().clone(),
            ..start()
        };
        sink.start(&Arc::new(start)).unwrap();
        images(&kind).iter().for_each(|image| sink.image(image).unwrap());
        // Nothing is flushed or closed, as after a kill.
        drop(sink);
        let path = scratch.0.join("k_master.h5");
        std::fs::remove_file(&path).unwrap();
        let report = repair(&path).unwrap();
        assert_eq!((report.images, report.rebuilt.len()), (10, 1), "{report:?}");
        assert_eq!(report.notes, Vec::<String>::new());
        assert_images(&path, &kind);
        assert_eq!(errors(&path), Vec::<String>::new());
        let file = hdf5::File::open(&path).unwrap();
        let detector = file.group("/entry/instrument/detector").unwrap();
        assert_eq!(detector.dataset("nested/deep").unwrap().read_raw::<i64>().unwrap(), [1, 2, 3]);
        let one = detector.group("threshold_1_channel").unwrap();
        drop(file);
        assert_eq!(one.dataset("threshold_energy").unwrap().read_scalar::<f64>().unwrap(), 4000.0);
        assert_eq!(one.dataset("pixel_mask").unwrap().read_raw::<u32>().unwrap()[6], 6);
        drop((one, detector));
        assert!(!repair(&path).unwrap().master_written);
    }
}

#[test]
fn an_image_of_another_kind_is_a_lost_position_and_the_series_goes_on() {
    let scratch = Scratch::new("series-other");
    let kind = Kind { element: Element::Uint16, shape: vec![24, 32], channels: 1, pieces: 1, packing: Packing::None };
    let other = [
        Kind { element: Element::Uint32, shape: vec![24, 32], channels: 1, pieces: 1, packing: Packing::None },
        Kind { element: Element::Uint16, shape: vec![24, 31], channels: 1, pieces: 1, packing: Packing::None },
        Kind { element: Element::Uint16, shape: vec![24, 32], channels: 2, pieces: 1, packing: Packing::None },
        Kind { element: Element::Uint16, shape: vec![24, 32], channels: 1, pieces: 2, packing: Packing::None },
        Kind { element: Element::Uint16, shape: vec![24, 32], channels: 1, pieces: 1, packing: Packing::BitshuffleLz4 },
    ];
    let mut all = vec![kind.image(0)];
    all.extend(other.iter().zip(1..).map(|(other, number)| other.image(number)));
    let mut short = (*kind.image(6)).clone();
    short.channels[0].array.pieces[0].truncate(100);
    let mut wrong = (*kind.image(7)).clone();
    wrong.channels[0].array.element = Element::Packed(PackedBits::Twelve);
    all.extend([Arc::new(short), Arc::new(wrong), kind.image(8)]);
    let mut sink = file_sink(&scratch.0, "o", 4);
    write(&mut sink, start(), &all);
    let reader = Reader::open(&scratch.0.join("o_master.h5")).unwrap();
    assert_eq!(reader.column("status").unwrap(), [1, 0, 0, 0, 0, 0, 0, 0, 1]);
    assert_eq!(reader.read_image(8, &decode).unwrap(), kind.raw(8));
    assert_eq!(sink.shared().refused(), 7);
    assert!(sink.shared().names().last_error.unwrap().contains("image 7"));
    assert!(reader.summary().ledger.contains(&("refused_by_file".into(), 7)));
}

#[test]
fn a_series_without_images_leaves_a_master_that_says_so() {
    let scratch = Scratch::new("series-none");
    for (n, size) in [None, Some([16, 20]), Some([u64::MAX, 3])].into_iter().enumerate() {
        let mut sink = file_sink(&scratch.0, &format!("n{n}"), 4);
        let end = SeriesEnd { ended: Ended::NoData, reason: "nothing came for 5 s".into(), ledger: SeriesLedger::default() };
        sink.start(&Arc::new(SeriesStart { image_size: size, ..start() })).unwrap();
        sink.end(&Arc::new(end)).unwrap();
        let path = scratch.0.join(format!("n{n}_master.h5"));
        let summary = inspect(&path).unwrap();
        assert_eq!((summary.images, summary.ended.as_deref()), (0, Some("no data: nothing came for 5 s")));
        assert_eq!(errors(&path), Vec::<String>::new());
    }
    // Only lost and unwanted ones: positions without pixels.
    let kind = Kind { element: Element::Uint16, shape: vec![8, 8], channels: 1, pieces: 1, packing: Packing::None };
    let unwanted = CommittedImage { store: false, ..(*kind.image(1)).clone() };
    write(&mut file_sink(&scratch.0, "u", 4), start(), &[Arc::new(CommittedImage::lost(0)), Arc::new(unwanted)]);
    assert_eq!(inspect(&scratch.0.join("u_master.h5")).unwrap().images_by_status, [1, 0, 0, 1, 0]);
}

#[test]
fn no_file_where_none_is_wanted() {
    let scratch = Scratch::new("series-unwanted");
    let kind = Kind { element: Element::Uint8, shape: vec![8, 8], channels: 1, pieces: 1, packing: Packing::None };
    let mut sink = file_sink(&scratch.0, "w", 4);
    write(&mut sink, SeriesStart { filename: Some(String::new()), ..start() }, &images(&kind));
    write(&mut sink, SeriesStart { store: false, ..start() }, &images(&kind));
    assert_eq!(std::fs::read_dir(&scratch.0).unwrap().count(), 0);
    assert_eq!((sink.shared().series(), sink.shared().names().main), (0, None));
}

#[test]
fn what_stands_in_the_way_is_reported_at_the_start() {
    let scratch = Scratch::new("series-way");
    let kind = Kind { element: Element::Uint8, shape: vec![8, 8], channels: 1, pieces: 1, packing: Packing::None };
    write(&mut file_sink(&scratch.0, "w", 4), start(), &images(&kind));
    let at = |directory: PathBuf, prefix: &'static str| {
        let file = FileSpec { directory, prefix: prefix.into(), ..FileSpec::default() };
        let spec = SeriesFileSpec { file, ..SeriesFileSpec::default() };
        FileSink::of_series(Box::new(move |_| Ok(Some(spec.clone().into())))).start(&Arc::new(start())).unwrap_err()
    };
    let error = at(scratch.0.clone(), "w");
    assert!(error.why.contains("exists") && error.what.contains("w_data_000001.h5"), "{error}");
    assert!(at(scratch.0.join("nowhere"), "w").fix.contains("create the directory"));
    assert!(at(scratch.0.clone(), "../w").why.contains("plain file name"));
}

#[test]
fn fields_of_the_header_become_fields_of_the_detector() {
    let scratch = Scratch::new("series-fields");
    let kind = Kind { element: Element::Uint8, shape: vec![8, 8], channels: 1, pieces: 1, packing: Packing::None };
    let deep = (0..40).fold(json!(1), |value, _| json!({ "d": value }));
    let fields = json!({
        "exptime": 0.25, "n": 18_446_744_073_709_551_615u64, "on": true, "off": null, "name": "zyla", "list": [1, 2], "floats": [0.5, 1],
        "names": ["a", "b"], "table": [[1, 2, 3], [4, 5, 6]], "mixed": [1, "a"], "empty": [], "nest": { "down": { "here": -1 } },
        "count_time": 9.0, "../evil": 1, "": 2, "pixel_mask": "mine", "deep": deep
    });
    let facts = Metadata {
        energy_kev: Some(10.0),
        count_time_s: Some(0.5),
        pixel_size_m: Some([25e-6, 50e-6]),
        saturation_value: Some(199),
        ..Metadata::default()
    };
    let start = SeriesStart { metadata: fields.as_object().unwrap().clone(), facts, ..start() };
    write(&mut file_sink(&scratch.0, "f", 4), start, &images(&kind));
    let file = hdf5::File::open(scratch.0.join("f_master.h5")).unwrap();
    let detector = file.group("/entry/instrument/detector").unwrap();
    let number = |name: &str| detector.dataset(name).unwrap().read_scalar::<f64>().unwrap();
    assert_eq!((number("exptime"), number("nest/down/here"), number("count_time")), (0.25, -1.0, 0.5));
    assert_eq!((number("header/count_time"), number("___evil"), number("_")), (9.0, 1.0, 2.0));
    assert_eq!((number("x_pixel_size"), number("y_pixel_size"), number("saturation_value")), (25e-6, 50e-6, 199.0));
    assert_eq!(number("module/slow_pixel_direction"), 50e-6);
    assert_eq!(detector.dataset("n").unwrap().read_scalar::<u64>().unwrap(), u64::MAX);
    assert_eq!(detector.dataset("list").unwrap().read_raw::<i64>().unwrap(), [1, 2]);
    assert_eq!(detector.dataset("floats").unwrap().read_raw::<f64>().unwrap(), [0.5, 1.0]);
    assert_eq!(detector.dataset("table").unwrap().shape(), [2, 3]);
    assert!(detector.dataset("on").unwrap().read_scalar::<bool>().unwrap() && !detector.link_exists("off"));
    assert!(detector.link_exists("header/pixel_mask") && detector.dataset("pixel_mask").unwrap().shape() == [8, 8]);
    drop((detector, file));
    assert_eq!(errors(&scratch.0.join("f_master.h5")), Vec::<String>::new());
}

/// A large mask of which nothing is written reads as zeros, also after a repair.
#[test]
fn a_mask_without_a_bit_reads_as_zeros() {
    let scratch = Scratch::new("series-mask");
    let kind = Kind { element: Element::Uint8, shape: vec![600, 500], channels: 1, pieces: 1, packing: Packing::None };
    let zeros = |path: &Path, name: &str| {
        let mask = hdf5::File::open(path).unwrap().dataset(name).unwrap().read_raw::<u32>().unwrap();
        assert!(mask.len() == 300_000 && mask.iter().all(|bits| *bits == 0), "{name}");
    };
    let path = scratch.0.join("m_master.h5");
    write(&mut file_sink(&scratch.0, "m", 4), start(), &[kind.image(0)]);
    zeros(&path, "/entry/instrument/detector/pixel_mask");
    zeros(&scratch.0.join("m_data_000001.h5"), "/entry/konkordia/pixel_mask");
    std::fs::remove_file(&path).unwrap();
    assert_eq!(repair(&path).unwrap().notes, Vec::<String>::new());
    zeros(&path, "/entry/instrument/detector/pixel_mask");
    assert_eq!(errors(&path), Vec::<String>::new());
}

#[test]
fn a_bare_lz4_block_is_framed_for_the_filter() {
    let scratch = Scratch::new("series-lz4");
    let raw = pixels(Element::Uint16, &[4, 5], 0, 0);
    // One sequence of literals.
    let block = [&[0xF0, raw.len() as u8 - 15][..], &raw].concat();
    let mut image = CommittedImage { status: ImageStatus::Complete, ..CommittedImage::lost(0) };
    let array = Array {
        shape: Shape::new(&[4, 5]).unwrap(),
        element: Element::Uint16,
        packing: Packing::Lz4Block,
        pieces: vec![Bytes::from(block.clone())],
    };
    image.channels.push(Channel { name: "".into(), array });
    let mut same = image.clone();
    same.number = 1;
    same.channels[0].array.pieces[0] = Bytes::from(vec![0; raw.len()]);
    let mut sink = file_sink(&scratch.0, "l", 4);
    write(&mut sink, start(), &[Arc::new(image), Arc::new(same)]);
    let mut chunk = Vec::new();
    assert!(Reader::open(&scratch.0.join("l_master.h5")).unwrap().read_chunk(0, &mut chunk).unwrap());
    let head = [&40u64.to_be_bytes()[..], &40u32.to_be_bytes(), &42u32.to_be_bytes()].concat();
    assert_eq!(chunk, [&head[..], &block].concat());
    assert_eq!(sink.shared().refused(), 1, "a block as long as its pixels would be taken for pixels");
}

fn append_sink(path: &Path, dataset: &str) -> FileSink {
    let spec = AppendSpec { path: path.to_owned(), dataset: dataset.into(), to_disk: konkordia_sinks::durable::ToDisk::Never };
    FileSink::of_series(Box::new(move |_| Ok(Some(spec.clone().into()))))
}

#[test]
fn images_are_appended_as_the_receiver_of_max_iv_does() {
    let scratch = Scratch::new("append");
    for kind in kinds() {
        let path = scratch.0.join("a.h5");
        let _ = std::fs::remove_file(&path);
        // A field of the sender with a name that the receiver uses itself is left out.
        let fields = json!({ "top level": { "nest": 42 }, "exptime": 0.5, "data": 1, "sequence_number": "x" });
        let start = SeriesStart { metadata: fields.as_object().unwrap().clone(), ..start() };
        let mut sink = append_sink(&path, "/entry/instrument/zyla/data");
        write(&mut sink, start.clone(), &images(&kind));
        // A second series goes into the same data set.
        write(&mut sink, start, &images(&kind));
        assert_eq!((sink.shared().images(), sink.shared().refused()), (8, 0));
        let file = hdf5::File::open(&path).unwrap();
        let group = file.group("/entry/instrument/zyla").unwrap();
        let class: hdf5::types::FixedAscii<32> = group.attr("NX_class").unwrap().read_scalar().unwrap();
        assert_eq!(class.as_str(), "NXdetector");
        assert_eq!(group.dataset("top level/nest").unwrap().read_scalar::<i64>().unwrap(), 42);
        let one = [0, 1, 2, 4, 6, 7, 8, 9];
        assert_eq!(group.dataset("sequence_number").unwrap().read_raw::<u32>().unwrap(), [one, one].concat());
        let data = group.dataset("data").unwrap();
        let channels = (kind.channels > 1).then_some(kind.channels);
        let shape: Vec<usize> = [16].into_iter().chain(channels).chain(kind.shape.iter().copied()).map(|n| n as usize).collect();
        assert_eq!(data.shape(), shape);
        assert_eq!(
            data.chunk().unwrap().iter().product::<usize>() * kind.pieces * kind.channels as usize * 16,
            shape.iter().product::<usize>()
        );
        if kind.packing == Packing::None && kind.element == Element::Uint16 {
            let expected: Vec<u8> = [one, one].concat().iter().flat_map(|number| kind.raw(u64::from(*number))).collect();
            let got: Vec<u8> = data.read_raw::<u16>().unwrap().iter().flat_map(|v| v.to_le_bytes()).collect();
            assert_eq!(got, expected);
        }
    }
}

#[test]
fn what_cannot_be_appended_to_is_refused_in_words() {
    let scratch = Scratch::new("append-refused");
    let kind = Kind { element: Element::Uint16, shape: vec![24, 32], channels: 1, pieces: 1, packing: Packing::None };
    let other = Kind { element: Element::Uint16, shape: vec![24, 31], channels: 1, pieces: 1, packing: Packing::None };
    let path = scratch.0.join("a.h5");
    write(&mut append_sink(&path, "/entry/d/data"), start(), &images(&kind));
    let mut sink = append_sink(&path, "/entry/d/data");
    write(&mut sink, start(), &images(&other));
    assert_eq!((sink.shared().images(), sink.shared().refused()), (0, 8));
    let why = sink.shared().names().last_error.unwrap();
    assert!(why.contains("[8, 24, 32]") && why.contains("the image has [24, 31]"), "{why}");
    assert_eq!(hdf5::File::open(&path).unwrap().dataset("/entry/d/data").unwrap().shape(), [8, 24, 32]);
    let text = scratch.0.join("text.h5");
    std::fs::write(&text, "not HDF5").unwrap();
    let error = append_sink(&text, "/entry/d/data").start(&Arc::new(start())).unwrap_err();
    assert!(error.fix.contains("not an HDF5 file"), "{error}");
    assert_eq!(std::fs::read(&text).unwrap(), b"not HDF5");
    let new = scratch.0.join("new.h5");
    assert!(append_sink(&new, "data").start(&Arc::new(start())).unwrap_err().why.contains("within a group"));
    assert!(!new.exists());
}

/// What a kill leaves: the file as copied between two flushes.
#[test]
fn a_killed_append_holds_what_was_flushed() {
    let scratch = Scratch::new("append-killed");
    let kind = Kind { element: Element::Uint16, shape: vec![24, 32], channels: 1, pieces: 1, packing: Packing::BitshuffleLz4 };
    let (path, copy) = (scratch.0.join("a.h5"), scratch.0.join("copy.h5"));
    let mut sink = append_sink(&path, "/entry/d/data");
    sink.start(&Arc::new(start())).unwrap();
    for number in 0..3000 {
        sink.image(&kind.image(number)).unwrap();
        sink.tick(number * 1_000_000).unwrap();
    }
    std::fs::copy(&path, &copy).unwrap();
    let flushed = sink.shared().images();
    assert!((2500..3000).contains(&flushed), "{flushed}");
    let file = hdf5::File::open(&copy).unwrap();
    assert_eq!(file.dataset("/entry/d/data").unwrap().shape(), [flushed as usize, 24, 32]);
    assert_eq!(file.dataset("/entry/d/sequence_number").unwrap().read_raw::<u32>().unwrap().len() as u64, flushed);
}
