//! Stream V1: the real capture is read, wrong messages are refused with the right text, and no input breaks the reader.

mod common;

use common::{any_bytes, capture, damaged, json_of, owned, pixels, refs, samples};
use konkordia_wire::dectris_v1::{Detail, Header, Image, Message, Tables, Times};
use konkordia_wire::stream::{Bounds, Element, Packing, Pixels, Shape};
use proptest::prelude::*;
use serde_json::{Map, Value};

fn build(message: &Message) -> Vec<Vec<u8>> {
    owned(&message.build().unwrap())
}

fn image(bytes: &[u8], element: Element, packing: Packing) -> Image<'_> {
    let shape = Shape::new(&[3, 5]).unwrap();
    let pixels = Pixels::new_checked(shape, element, packing, bytes, 1000).unwrap();
    Image { series: 7, frame: 2, pixels, times: Times { real_ns: 1, start_ns: 2, stop_ns: 3 }, appendix: None }
}

fn refusal(parts: &[Vec<u8>]) -> String {
    Message::parse(&refs(parts), &Bounds::default()).unwrap_err().to_string()
}

#[test]
fn reads_the_real_capture_and_builds_the_same() {
    let Some(messages) = capture("eiger-1m-stream-v1.zmsg") else { return };
    assert_eq!(messages.len(), 10);
    let detector = Shape::new(&[1065, 1030]).unwrap();
    for (i, parts) in messages.iter().enumerate() {
        let message = Message::parse(&refs(parts), &Bounds::default()).unwrap();
        let again = build(&message);
        assert_eq!(Message::parse(&refs(&again), &Bounds::default()).unwrap(), message);
        match &message {
            Message::Header(header) => {
                assert_eq!((i, header.series, parts.len(), again.len()), (0, 14, 9, 9));
                let config = header.config().unwrap();
                assert_eq!((config["description"].as_str(), config.len()), (Some("Dectris EIGER1 Si 1M"), 48));
                assert_eq!(header.appendix, Some(br#"{"filename": "", "rotate": 0}"#.as_slice()));
                let tables = header.tables().unwrap();
                let (flat_field, mask) = (tables.flat_field.unwrap(), tables.pixel_mask.unwrap());
                assert_eq!((flat_field.shape(), flat_field.element()), (detector, Element::Float32));
                assert_eq!((mask.shape(), mask.element()), (detector, Element::Uint32));
                assert_eq!(tables.count_rate.unwrap().shape().dimensions(), [4000, 2]);
                assert!(tables.not_read.is_empty());
                let bad = mask.data().chunks(4).filter(|word| *word != [0; 4]).count();
                assert_eq!(Some(bad as u64), config["number_of_excluded_pixels"].as_u64());
                // The numbers of the configuration may be written in another way; everything else is the same to the
                // byte.
                let same = (0..9).filter(|part| again[*part] == parts[*part]).count();
                assert!(same >= 8, "{same} of 9 parts are the same");
            }
            Message::Image(image) => {
                assert_eq!((image.series, image.frame), (14, i as u64 - 1));
                assert_eq!((image.pixels.shape(), image.pixels.element()), (detector, Element::Uint32));
                assert_eq!((image.pixels.packing(), image.pixels.unpacked_bytes()), (Packing::BitshuffleLz4, 4_387_800));
                assert!(image.times.stop_ns - image.times.start_ns > 900_000_000);
                assert_eq!(&again, parts, "to the byte, the hash included");
            }
            Message::SeriesEnd { .. } => panic!("the capture has no end"),
        }
    }
}

#[test]
fn all_details_and_appendices_come_back() {
    let words = [0u8; 24];
    let table = Pixels::new_checked(Shape::new(&[2, 3]).unwrap(), Element::Float32, Packing::None, &words, 24).unwrap();
    let tables = Tables { flat_field: Some(table), pixel_mask: Some(table), count_rate: Some(table), not_read: vec![] };
    let config: Map<String, Value> = serde_json::from_str(r#"{"nimages":5,"trigger_mode":"ints \" \\ ü"}"#).unwrap();
    for detail in [Detail::None, Detail::Basic(config.clone()), Detail::All(config, Box::new(tables))] {
        for appendix in [None, Some(b"".as_slice()), Some(b"{\"filename\":\"a\"}")] {
            let message = Message::Header(Header { series: 3, detail: detail.clone(), appendix });
            let mut parts = build(&message);
            assert_eq!(Message::parse(&refs(&parts), &Bounds::default()).unwrap(), message);
            if let (Detail::All(..), Some(name)) = (&detail, parts.get(2)) {
                // As a simulator writes it.
                parts[2] = json_of(name, "htype", "flatfield-1.0".into());
                assert_eq!(Message::parse(&refs(&parts), &Bounds::default()).unwrap(), message);
                // A damaged table is lost, but the series is not.
                parts[2] = json_of(&parts[2], "htype", "dpixelmask-1.0".into());
                parts[7].truncate(5);
                let Message::Header(header) = Message::parse(&refs(&parts), &Bounds::default()).unwrap() else {
                    panic!("a header")
                };
                let tables = header.tables().unwrap();
                assert!(tables.flat_field.is_none() && tables.pixel_mask.is_some() && tables.count_rate.is_none());
                let names: Vec<&str> = tables.not_read.iter().map(|(kind, _)| *kind).collect();
                assert_eq!(names, ["dflatfield-1.0", "dcountrate_table-1.0"]);
                assert!(tables.not_read[0].1.contains("part 3 of the message: its 'htype' is 'dpixelmask-1.0'"));
            }
        }
    }
    let end = Message::SeriesEnd { series: 9 };
    assert_eq!(build(&end), [br#"{"htype":"dseries_end-1.0","series":9}"#]);
    assert_eq!(Message::parse(&refs(&build(&end)), &Bounds::default()).unwrap().series(), 9);
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let good = build(&Message::Image(image(&[1; 30], Element::Uint16, Packing::None)));
    let with = |part: usize, key: &str, value: Value| {
        let mut parts = good.clone();
        parts[part] = json_of(&parts[part], key, value);
        refusal(&parts)
    };
    assert!(refusal(&[]).contains("part 1 of the message: it is missing"));
    assert!(with(0, "htype", "dheader-2.0".into()).contains("part 1 of the message: its 'htype' is 'dheader-2.0'"));
    assert!(with(0, "frame", Value::Null).contains("no number 'frame'"));
    assert!(with(0, "series", "x".into()).contains("not the JSON that was expected"));
    assert!(with(1, "htype", "dimage-1.0".into()).contains("part 2 of the message: its 'htype'"));
    assert!(with(1, "encoding", "bs16-lz4>".into()).contains("big-endian"));
    assert!(with(1, "encoding", "bs32-lz4<".into()).contains("'bs32-lz4<', but its type is uint16"));
    assert!(with(1, "encoding", "zstd<".into()).contains("are known"));
    assert!(with(1, "type", "float16".into()).contains("'float16' is not a pixel type"));
    assert!(with(1, "type", "uint32".into()).contains("part 3 of the message: uint32 of shape [3, 5] has 60 bytes, but 30 came"));
    assert!(with(1, "shape", serde_json::json!([1u64 << 31, 1u64 << 31])).contains("more than the 1073741824 bytes"));
    assert!(with(1, "shape", serde_json::json!([u64::MAX, 2])).contains("cannot have shape"));
    assert!(with(1, "size", 31.into()).contains("'size' 31, but 30 bytes follow"));
    assert!(with(3, "stop_time", (-1).into()).contains("part 4 of the message"));
    assert!(refusal(&good[..3]).contains("part 4 of the message: an image has 4 to 5 parts, but 3 came"));
    let long = [good.clone(), good.clone()].concat();
    assert!(refusal(&long).contains("4 to 5 parts, but 8 came"));
    let header = Message::Header(Header { series: 1, detail: Detail::None, appendix: None });
    let mut parts = build(&header);
    parts[0] = json_of(&parts[0], "header_detail", "most".into());
    assert!(refusal(&parts).contains("'header_detail' is 'most'"));
    let tight = Bounds { text_bytes_max: 10, ..Bounds::default() };
    assert!(Message::parse(&refs(&good), &tight).unwrap_err().why.contains("a text may have 10"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn what_is_built_is_parsed((stock, choice) in pixels(), numbers in any::<[u64; 5]>(), appendix in any::<Option<Vec<u8>>>()) {
        let [series, frame, real_ns, start_ns, stop_ns] = numbers;
        let packing = if choice.packing == Packing::Lz4 { Packing::Lz4Block } else { choice.packing };
        let pixels = Pixels::new_checked(choice.shape, choice.element, packing, &stock, u64::MAX).unwrap();
        let times = Times { real_ns, start_ns, stop_ns };
        let message = Message::Image(Image { series, frame, pixels, times, appendix: appendix.as_deref() });
        if packing == Packing::BitshuffleZstd {
            prop_assert!(message.build().unwrap_err().why.contains("cannot carry"));
            return Ok(());
        }
        let parts = build(&message);
        prop_assert_eq!(Message::parse(&refs(&parts), &Bounds::default()).unwrap(), message);
    }

    #[test]
    fn damage_is_refused_or_stays_inside(damage in damaged(9), which in any::<prop::sample::Index>(), bytes in any_bytes()) {
        let samples = samples::dectris_v1();
        for good in [build(&Message::Image(image(&[1; 30], Element::Uint16, Packing::None))), which.get(&samples).1.clone(), vec![bytes]] {
            let parts = damage.apply(good);
            if let Ok(Message::Image(image)) = Message::parse(&refs(&parts), &Bounds::default()) {
                if image.pixels.packing() == Packing::None {
                    prop_assert_eq!(image.pixels.data().len() as u64, image.pixels.unpacked_bytes());
                }
                prop_assert!(parts.iter().any(|part| part.as_ptr_range().contains(&image.pixels.data().as_ptr())));
            }
        }
    }
}
