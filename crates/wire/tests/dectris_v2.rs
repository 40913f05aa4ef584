//! Stream V2: the real captures are read, wrong messages are refused with the right text, and no input breaks the
//! reader.

mod common;

use common::{Choice, any_bytes, capture, damaged, pixels, refs, samples};
use konkordia_wire::cbor::Item;
use konkordia_wire::dectris_v2::{Image, Message, Seconds, Series};
use konkordia_wire::stream::{Bounds, Element, Packing, Pixels, Shape};
use minicbor::Encoder;
use minicbor::data::Tag;
use proptest::prelude::*;

fn build(message: &Message) -> Vec<u8> {
    let mut bytes = vec![9; 3];
    message.build(&mut bytes).unwrap();
    bytes
}

fn parse(bytes: &[u8]) -> Result<Message<'_>, String> {
    Message::parse(&[bytes], &Bounds::default()).map_err(|refusal| refusal.to_string())
}

/// A key, and what writes its value.
type Entry<'a> = (&'a str, &'a dyn Fn(&mut Encoder<Vec<u8>>));

/// A message of these entries, written by hand.
fn map(entries: &[Entry]) -> Vec<u8> {
    let mut e = Encoder::new(Vec::new());
    e.map(entries.len() as u64).unwrap();
    for (key, value) in entries {
        e.str(key).unwrap();
        value(&mut e);
    }
    e.into_writer()
}

#[test]
fn reads_the_real_series_and_builds_the_same() {
    let Some(messages) = capture("eiger-1m-stream-v2.zmsg") else { return };
    assert_eq!(messages.len(), 12);
    let detector = Shape::new(&[1065, 1030]).unwrap();
    let series = Series { id: 16, unique_id: "01HRCJF83SA63WH8MZ2BZR44X0" };
    for (i, parts) in messages.iter().enumerate() {
        let message = Message::parse(&refs(parts), &Bounds::default()).unwrap();
        let again = build(&message);
        assert_eq!(parse(&again).unwrap(), message);
        assert_eq!((message.series().id, &message.series().unique_id[..16]), (series.id, &series.unique_id[..16]));
        match &message {
            Message::Start(start) => {
                assert_eq!((i, start.channels.as_slice()), (0, ["threshold_1"].as_slice()));
                assert_eq!(start.detector_description, Some("Dectris EIGER1 Si 1M"));
                assert_eq!((start.image_size_x, start.image_size_y, start.image_element), (Some(1030), Some(1065), None));
                let [(name, mask)] = start.pixel_mask.as_slice() else { panic!("one mask") };
                assert_eq!((*name, mask.shape(), mask.element()), ("threshold_1", detector, Element::Uint32));
                let [(_, flat)] = start.flat_field.as_slice() else { panic!("one flat field") };
                assert_eq!((flat.shape(), flat.element(), flat.packing()), (detector, Element::Float32, Packing::None));
                assert_eq!(start.countrate_correction_table.unwrap().shape().dimensions(), [65536]);
                assert!(start.user_data.unwrap().text().unwrap().starts_with('{'));
                assert!(start.incident_energy_ev.unwrap() > 1000.0 && start.pixel_size_x_m == Some(75e-6));
            }
            Message::Image(image) => {
                assert_eq!(image.image_id, i as u64 - 1);
                let [("threshold_1", pixels)] = image.channels.as_slice() else { panic!("one channel") };
                assert_eq!(
                    (pixels.shape(), pixels.element(), pixels.packing()),
                    (detector, Element::Uint32, Packing::BitshuffleLz4)
                );
                assert!(image.stop_time.unwrap().to_ns() > image.start_time.unwrap().to_ns());
                assert_eq!(again, parts[0], "to the byte");
            }
            Message::End(_) => assert_eq!((i, &again), (11, &parts[0])),
        }
    }
}

#[test]
fn reads_three_channels_and_both_packings() {
    let Some(messages) = capture("eiger2-500k-3channel-stream-v2.zmsg") else { return };
    let mut kinds = String::new();
    for parts in &messages {
        let message = Message::parse(&refs(parts), &Bounds::default()).unwrap();
        assert_eq!(build(&message), parts[0], "to the byte");
        let Message::Image(image) = message else {
            kinds += "end ";
            continue;
        };
        let names: Vec<_> = image.channels.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["threshold_1", "threshold_2", "difference"]);
        for (_, pixels) in &image.channels {
            assert_eq!((pixels.shape().dimensions(), pixels.element()), ([514, 1030].as_slice(), Element::Uint16));
        }
        kinds += &format!("{:?} ", image.channels[2].1.packing());
        // All channels count together against the bound.
        let tight = Bounds { image_bytes_max: 3 * 514 * 1030 * 2 - 1, ..Bounds::default() };
        assert!(Message::parse(&refs(parts), &tight).unwrap_err().why.contains("'data': 'difference': uint16 of shape"));
        let few = Bounds { channels_max: 2, ..Bounds::default() };
        assert!(Message::parse(&refs(parts), &few).unwrap_err().why.contains("more than 2 entries"));
    }
    assert_eq!(kinds, "BitshuffleLz4 BitshuffleLz4 BitshuffleLz4 end Lz4 ");
}

#[test]
fn a_start_comes_back_whole_and_may_lack_anything() {
    for (_, parts) in samples::dectris_v2() {
        let message = Message::parse(&refs(&parts), &Bounds::default()).unwrap();
        assert_eq!(build(&message), parts[0]);
    }
    let least = map(&[("series_id", &|e| e.u8(3).map(drop).unwrap()), ("type", &|e| e.str("start").map(drop).unwrap())]);
    let Ok(Message::Start(start)) = parse(&least) else { panic!("no start") };
    assert_eq!((start.series, start.beam_center_x, start.channels.len()), (Series { id: 3, unique_id: "" }, None, 0));
}

#[test]
fn what_is_not_known_is_skipped_and_null_is_absent() {
    let image = |extra: &dyn Fn(&mut Encoder<Vec<u8>>)| {
        map(&[
            ("later", extra),
            ("real_time", &|e| e.null().map(drop).unwrap()),
            ("type", &|e| e.str("image").map(drop).unwrap()),
            ("series_id", &|e| e.u8(3).map(drop).unwrap()),
            ("image_id", &|e| e.u8(4).map(drop).unwrap()),
            ("data", &|e| {
                let e = e.begin_map().unwrap().str("c").unwrap().tag(Tag::new(40)).unwrap().array(2).unwrap();
                e.array(2).unwrap().u8(1).unwrap().u8(2).unwrap().tag(Tag::new(64)).unwrap().bytes(b"ab").unwrap().end().unwrap();
            }),
        ])
    };
    let known = image(&|e| {
        e.begin_array().unwrap().map(1).unwrap().u8(1).unwrap().f64(0.5).unwrap().end().unwrap();
    });
    let Ok(Message::Image(read)) = parse(&known) else { panic!("{:?}", parse(&known)) };
    assert_eq!((read.image_id, read.real_time, read.channels[0].1.data()), (4, None, b"ab".as_slice()));
    let deep = image(&|e| {
        for _ in 0..40 {
            e.array(1).unwrap();
        }
        e.u8(0).unwrap();
    });
    assert!(parse(&deep).unwrap_err().contains("more than 32 deep"));
}

#[test]
fn what_is_wrong_is_said_with_its_key() {
    assert!(Message::parse(&[], &Bounds::default()).unwrap_err().to_string().contains("1 part, but 0 came"));
    assert!(Message::parse(&[b"", b""], &Bounds::default()).unwrap_err().why.contains("1 part, but 2 came"));
    assert!(parse(b"{}").unwrap_err().contains("not the CBOR that was expected"));
    let good = build(&Message::End(Series { id: 1, unique_id: "x" }));
    assert!(parse(&[good.as_slice(), &[0]].concat()).unwrap_err().contains("1 bytes follow the message"));
    let kind = map(&[("type", &|e| e.str("calibration").map(drop).unwrap())]);
    assert!(parse(&kind).unwrap_err().contains("its 'type' is 'calibration'"));
    assert!(parse(&map(&[])).unwrap_err().contains("no text 'type'"));
    let image = |array: &dyn Fn(&mut Encoder<Vec<u8>>)| {
        let message = map(&[
            ("type", &|e| e.str("image").map(drop).unwrap()),
            ("series_id", &|e| e.u8(3).map(drop).unwrap()),
            ("image_id", &|e| e.u8(4).map(drop).unwrap()),
            ("data", &|e| {
                e.map(1).unwrap().str("c").unwrap();
                array(e);
            }),
        ]);
        parse(&message).unwrap_err()
    };
    let array = |e: &mut Encoder<Vec<u8>>, rows: u64, tag: u64| {
        let e = e.tag(Tag::new(40)).unwrap().array(2).unwrap().array(2).unwrap().u64(rows).unwrap();
        e.u64(2).unwrap().tag(Tag::new(tag)).unwrap();
    };
    let plain = |rows, tag| {
        image(&|e| {
            array(e, rows, tag);
            e.bytes(b"abcd").unwrap();
        })
    };
    assert!(plain(1, 65).contains("'data': 'c': tag 65 is not a little-endian typed array"));
    assert!(plain(1, 64).contains("uint8 of shape [1, 2] has 2 bytes, but 4 came"));
    assert!(plain(u64::MAX, 64).contains("cannot have shape"));
    assert!(plain(1 << 40, 64).contains("more than the 1073741824 bytes"));
    assert!(plain(0, 64).contains("cannot have shape [0, 2]"));
    let packed = |name: &str, size: u32| {
        image(&|e| {
            array(e, 1, 69);
            e.tag(Tag::new(56500)).unwrap().array(3).unwrap().str(name).unwrap().u32(size).unwrap().bytes(&[0; 12]).unwrap();
        })
    };
    assert!(packed("gzip", 2).contains("its packing is 'gzip'"));
    assert!(packed("bslz4", 4).contains("elements of 4 bytes, but its type is uint16"));
    assert!(packed("bslz4", 2).contains("announce 0 bytes; 4 follow"));
    assert_eq!(Seconds::new(1, 0), None);
    assert_eq!(Seconds::new(u64::MAX, 1).unwrap().to_ns(), u64::MAX);
    assert_eq!(Seconds::new(1, 50_000_000).unwrap().to_ns(), 20);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn what_is_built_is_parsed(
        channels in prop::collection::vec(pixels(), 1..4),
        numbers in any::<[u64; 4]>(),
        name in "[a-zü ]{0,30}",
        parts in any::<[bool; 3]>(),
    ) {
        let names = ["threshold_1", "threshold_2", "ü"];
        let time = |numerator| Seconds::new(numerator, numbers[3].max(1));
        let pixels = |(data, choice): &'_ (Vec<u8>, Choice)| -> (Vec<u8>, Choice) { (data.clone(), choice.clone()) };
        let stock: Vec<_> = channels.iter().map(pixels).collect();
        let channels = stock.iter().zip(names).map(|((data, choice), name)| {
            (name, Pixels::new_checked(choice.shape, choice.element, choice.packing, data, 1 << 20).unwrap())
        });
        let message = Message::Image(Image {
            series: Series { id: numbers[0], unique_id: &name },
            image_id: numbers[1],
            real_time: time(numbers[2]).filter(|_| parts[0]),
            series_date: parts[1].then_some("2024-03-07T14:43:31.193+01:00"),
            start_time: time(numbers[1]),
            stop_time: None,
            user_data: parts[2].then(|| Item::new_checked(&[0x82, 0x01, 0x61, b'x']).unwrap()),
            channels: channels.collect(),
        });
        let bytes = build(&message);
        prop_assert_eq!(parse(&bytes).unwrap(), message);
    }

    #[test]
    fn damage_is_refused_or_stays_inside(damage in damaged(1), which in any::<prop::sample::Index>(), bytes in any_bytes()) {
        let samples = samples::dectris_v2();
        for good in [which.get(&samples).1.clone(), vec![bytes]] {
            let parts = damage.apply(good);
            if let Ok(Message::Image(image)) = Message::parse(&refs(&parts), &Bounds::default()) {
                for (name, pixels) in image.channels {
                    let whole = parts[0].as_ptr_range();
                    let inside = |bytes: &[u8]| bytes.is_empty() || whole.contains(&bytes.as_ptr()) && bytes.as_ptr_range().end <= whole.end;
                    prop_assert!(inside(name.as_bytes()) && inside(pixels.data()));
                }
            }
        }
    }
}

/// tickit-devices sends texts instead of arrays with `header_detail` "all". The series is received nevertheless.
#[test]
fn tables_that_are_no_arrays_are_read_over_and_named() {
    let mut bytes = Vec::new();
    let mut e = minicbor::Encoder::new(&mut bytes);
    e.map(7).unwrap();
    e.str("type").unwrap().str("start").unwrap();
    e.str("series_id").unwrap().u8(7).unwrap();
    e.str("series_unique_id").unwrap().str("x").unwrap();
    e.str("countrate_correction_lookup_table").unwrap().bytes(b"AAAA").unwrap();
    e.str("flatfield").unwrap().map(1).unwrap().str("threshold_1").unwrap().bytes(b"AAAA").unwrap();
    e.str("number_of_images").unwrap().u8(3).unwrap();
    e.str("pixel_mask").unwrap().map(1).unwrap().str("threshold_1").unwrap().str("AAAA").unwrap();
    let Message::Start(start) = Message::parse(&[&bytes], &Bounds::default()).unwrap() else { panic!("a start") };
    assert_eq!(start.tables_not_read, ["countrate_correction_lookup_table", "flatfield", "pixel_mask"]);
    assert!(start.flat_field.is_empty() && start.pixel_mask.is_empty() && start.countrate_correction_table.is_none());
    assert_eq!(start.number_of_images, Some(3));
}
