//! STINS: what is sent comes back, wrong messages are refused with the right text, and no input breaks the reader.

mod common;

use common::{any_bytes, damaged, json_of, owned, pixels, refs, samples};
use konkordia_wire::stins::{Enclosed, Image, Message};
use konkordia_wire::stream::{Bounds, Element, Packing, Pixels, Shape};
use proptest::prelude::*;
use serde_json::{Value, json};

fn parse(parts: &[Vec<u8>]) -> Result<Message<'_>, String> {
    Message::parse(&refs(parts), &Bounds::default()).map_err(|refusal| refusal.to_string())
}

fn sample(name: &str) -> Vec<Vec<u8>> {
    samples::stins().into_iter().find(|(of, _)| *of == name).unwrap().1
}

#[test]
fn the_first_parts_are_what_receivers_know() {
    let first = |name: &str| String::from_utf8(sample(name)[0].clone()).unwrap();
    assert_eq!(first("header"), r#"{"htype":"header","msg_number":3,"filename":"a.h5"}"#);
    assert_eq!(first("header_metadata"), r#"{"htype":"header","msg_number":3,"filename":"","user":"x"}"#);
    assert_eq!(
        first("image_raw"),
        r#"{"htype":"image","msg_number":4,"frame":0,"shape":[2,3],"type":"float32","compression":"none","discard":true}"#
    );
    assert_eq!(
        first("image_three"),
        r#"{"htype":"image","msg_number":4,"frame":0,"shape":[3,2,8],"type":"uint16","compression":"bslz4","chunks":[1,2,8]}"#
    );
    assert_eq!(first("end"), r#"{"htype":"series_end","msg_number":9}"#);
}

#[test]
fn all_kinds_come_back_and_are_passed_on_as_they_came() {
    for (name, parts) in samples::stins() {
        let message = parse(&parts).unwrap();
        match (&message, name) {
            (Message::Header(header), "header") => assert_eq!(header.filename.as_deref(), Some("a.h5")),
            (Message::Header(header), _) => {
                assert_eq!((header.filename.as_deref(), &header.extra["user"]), (None, &json!("x")));
                assert_eq!(header.metadata.as_ref().unwrap()["sample"]["name"], "lysozyme");
            }
            (Message::Image(image), "image_three") => {
                assert_eq!((image.pieces.len(), image.pieces[2].shape().dimensions()), (3, [1, 2, 8].as_slice()));
            }
            (Message::Image(image), _) => assert_eq!((image.pieces.len(), image.discard), (1, name == "image_raw")),
            (Message::SeriesEnd { msg_number }, _) => assert_eq!(*msg_number, 9),
        }
        assert_eq!(owned(&message.build().unwrap()), parts);
    }
    let mut parts = sample("image_raw");
    parts[0] =
        br#" {"htype":"image", "exposure_time":0.5, "msg_number":1,"frame":2,"shape":[2,3],"type":"int32","compression":"none"}"#
            .into();
    let message = parse(&parts).unwrap();
    assert_eq!(owned(&message.build().unwrap()), parts, "keys, order and spaces included");
    let Message::Image(image) = message else { panic!("no image") };
    assert_eq!(image.extra()["exposure_time"], 0.5);
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let with = |name: &str, key: &str, value: Value| {
        let mut parts = sample(name);
        parts[0] = json_of(&parts[0], key, value);
        parse(&parts).unwrap_err()
    };
    assert!(with("header", "htype", "frame".into()).contains("'htype' is 'frame'; header, image and series_end are known"));
    assert!(with("header", "filename", 3.into()).contains("'filename' is not a text"));
    assert!(with("header", "msg_number", Value::Null).contains("not the JSON that was expected"));
    assert!(with("image_raw", "shape", Value::Null).contains("no 'shape'"));
    assert!(with("image_raw", "frame", Value::Null).contains("no 'frame'"));
    assert!(
        with("image_raw", "shape", json!([2, 4]))
            .contains("part 2 of the message: float32 of shape [2, 4] has 32 bytes, but 24 came")
    );
    assert!(with("image_raw", "shape", json!([1u64 << 40, 4])).contains("more than the 1073741824 bytes"));
    assert!(with("image_raw", "type", "object".into()).contains("'object' is not a pixel type"));
    assert!(with("image_raw", "compression", "zip".into()).contains("'zip'; none and bslz4 are known"));
    assert!(with("image_raw", "compression", "bslz4".into()).contains("the packed bytes announce"));
    assert!(
        with("image_three", "chunks", json!([2, 2, 8]))
            .contains("'chunks' are [2, 2, 8], but in 3 parts each has shape [1, 2, 8]")
    );
    assert!(with("image_three", "chunks", Value::Null).contains("has no 'chunks'"));
    assert!(with("image_three", "shape", json!([4, 2, 8])).contains("in 3 equal parts"));
    assert!(
        parse(&sample("image_raw")[..1]).unwrap_err().contains("part 2 of the message: an image has 2 to 17 parts, but 1 came")
    );
    let mut parts = sample("header_metadata");
    parts[1] = b"[]".into();
    assert!(parse(&parts).unwrap_err().contains("part 2 of the message: it is not the JSON"));
    let few = Bounds { channels_max: 2, ..Bounds::default() };
    assert!(Message::parse(&refs(&sample("image_three")), &few).unwrap_err().why.contains("2 to 3 parts, but 4 came"));
}

#[test]
fn pixels_without_the_header_of_the_packing_are_known_by_their_blocks() {
    // 4100 elements of 2 bytes: one block of 4096 elements, and 4 leftover elements that make no block. Of 4112
    // elements, the last 16 make one short block.
    let bare = |blocks: &[usize], leftover: usize| {
        let mut data: Vec<u8> = blocks.iter().flat_map(|n| [&(*n as u32).to_be_bytes()[..], &vec![9; *n]].concat()).collect();
        data.extend(vec![7; leftover]);
        data
    };
    let read = |shape: Value, data: Vec<u8>| {
        let mut parts = sample("image_raw");
        let first = json_of(&parts[0], "shape", shape);
        parts[0] = json_of(&json_of(&first, "type", "uint16".into()), "compression", "bslz4".into());
        parts[1] = data;
        let header = match parse(&parts)? {
            Message::Image(image) => image.pieces[0].lacking_header(),
            _ => panic!("no image"),
        };
        // What was read is written as it came.
        assert_eq!(owned(&parse(&parts).unwrap().build().unwrap()), parts);
        Ok::<_, String>(header)
    };
    assert_eq!(read(json!([2, 2050]), bare(&[40], 8)), Ok(Some([0, 0, 0, 0, 0, 0, 0x20, 0x08, 0, 0, 0x20, 0])));
    assert_eq!(read(json!([2, 2056]), bare(&[40, 12], 0)), Ok(Some([0, 0, 0, 0, 0, 0, 0x20, 0x20, 0, 0, 0x20, 0])));
    assert!(read(json!([3]), bare(&[], 6)).unwrap_err().contains("6 packed bytes are fewer"));
    let whole = [&8208u64.to_be_bytes()[..], &8192u32.to_be_bytes(), &bare(&[40], 16)].concat();
    assert_eq!(read(json!([2, 2052]), whole), Ok(None));
    for (blocks, leftover) in [(&[40][..], 7), (&[40], 9), (&[40, 1], 8), (&[0], 8), (&[9000], 8)] {
        assert!(read(json!([2, 2050]), bare(blocks, leftover)).unwrap_err().contains("the packed bytes announce"), "{blocks:?}");
    }
}

#[test]
fn an_image_of_ours_must_have_a_name_for_its_pieces() {
    let piece = Pixels::new_checked(Shape::new(&[1, 4]).unwrap(), Element::Uint8, Packing::None, b"abcd", 4).unwrap();
    let image = |shape: &[u64], pieces| {
        let shape = Shape::new(shape).unwrap();
        Message::Image(Image { msg_number: 0, frame: 0, shape, pieces, discard: false, first_part: &[] }).build().map(drop)
    };
    assert!(image(&[2, 4], vec![piece; 2]).is_ok());
    assert!(image(&[3, 4], vec![piece; 2]).unwrap_err().why.contains("equal parts"));
    assert!(image(&[2, 4], vec![]).unwrap_err().why.contains("no pixels"));
    let other = Pixels::new_checked(Shape::new(&[1, 4]).unwrap(), Element::Int8, Packing::None, b"abcd", 4).unwrap();
    assert!(image(&[2, 4], vec![piece, other]).unwrap_err().why.contains("differs from the first piece"));
    let lz4 = Pixels::new_checked(Shape::new(&[1, 4]).unwrap(), Element::Int8, Packing::Lz4Block, b"abcd", 4).unwrap();
    assert!(image(&[1, 4], vec![lz4]).unwrap_err().why.contains("cannot carry"));
    assert!(image(&[4], vec![piece]).unwrap_err().why.contains("do not make an image of shape [4]"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn what_is_built_is_parsed((stock, choice) in pixels(), numbers in any::<[u64; 2]>(), discard in any::<bool>(), count in 1usize..4) {
        let pixels = Pixels::new_checked(choice.shape, choice.element, choice.packing, &stock, u64::MAX).unwrap();
        let mut dimensions = choice.shape.dimensions().to_vec();
        dimensions[0] *= count as u64;
        let (shape, pieces) = (Shape::new(&dimensions).unwrap(), vec![pixels; count]);
        let image = Image { msg_number: numbers[0], frame: numbers[1], shape, pieces, discard, first_part: &[] };
        let Ok(parts) = Message::Image(image.clone()).build() else {
            prop_assert!(!matches!(choice.packing, Packing::None | Packing::BitshuffleLz4));
            return Ok(());
        };
        let parts = owned(&parts);
        let Ok(Message::Image(read)) = parse(&parts) else { panic!("{:?}", parse(&parts)) };
        prop_assert_eq!(Image { first_part: &[], ..read }, image);
    }

    #[test]
    fn damage_is_refused_or_stays_inside(damage in damaged(4), which in any::<prop::sample::Index>(), bytes in any_bytes()) {
        let samples = samples::stins();
        for good in [which.get(&samples).1.clone(), vec![bytes]] {
            let parts = damage.apply(good);
            if let Ok(Message::Image(image)) = parse(&parts) {
                prop_assert_eq!(image.pieces.len() + 1, parts.len());
                for (piece, part) in image.pieces.iter().zip(&parts[1..]) {
                    prop_assert_eq!(piece.data(), part.as_slice());
                }
            }
        }
    }
}

#[test]
fn one_piece_of_several_is_taken_only_where_it_is_expected() {
    let first = |shape: &str| {
        format!(
            r#"{{"htype":"image","msg_number":1,"frame":2,"shape":{shape},"type":"uint16","compression":"none","chunks":[1,2,3]}}"#
        )
    };
    let piece = |shape: &str, pieces: u64, bytes: usize| {
        let (first, pixels) = (first(shape), vec![7; bytes]);
        let read = Message::parse_piece(&[first.as_bytes(), &pixels], &Bounds::default(), pieces);
        read.map_err(|refusal| refusal.to_string()).map(|message| match message {
            Message::Image(image) => (image.shape.dimensions().to_vec(), image.pieces.len(), image.frame),
            other => panic!("{other:?}"),
        })
    };
    assert_eq!(piece("[4,2,3]", 4, 12), Ok((vec![1, 2, 3], 1, 2)));
    assert_eq!(piece("[1,2,3]", 4, 12), Ok((vec![1, 2, 3], 1, 2)));
    assert_eq!(piece("[2,3]", 4, 12), Ok((vec![2, 3], 1, 2)));
    // Without further dimensions, a first dimension equal to the number of pieces is a number of rows.
    assert_eq!(piece("[2,3]", 2, 12), Ok((vec![2, 3], 1, 2)));
    assert!(piece("[4,2,3]", 1, 12).unwrap_err().contains("48 bytes"));
    assert!(piece("[4,2,3]", 3, 12).unwrap_err().contains("48 bytes"));
    assert!(piece("[4,2,3]", 4, 48).unwrap_err().contains("12 bytes, but 48 came"));
}

#[test]
fn a_file_in_place_of_pixels_is_handed_over_as_it_is() {
    let first = br#"{"htype":"image","msg_number":5,"frame":2,"shape":[2,3],"type":"int32","compression":"none","discard":true}"#;
    let read = Enclosed::parse(&[first, b"###CBF"], &Bounds::default()).unwrap().unwrap();
    assert_eq!((read.msg_number, read.frame, read.discard, read.file), (5, 2, true, &b"###CBF"[..]));
    assert_eq!(read.shape.unwrap().dimensions(), [2, 3]);
    let end = br#"{"htype":"series_end","msg_number":5}"#;
    assert_eq!(Enclosed::parse(&[end], &Bounds::default()), Ok(None));
    for parts in [&[&first[..]][..], &[first, b"a", b"b"], &[br#"{"htype":"image","msg_number":5}"#, b"a"]] {
        assert!(Enclosed::parse(parts, &Bounds::default()).is_err());
    }
}
