use super::*;
use serde_json::json;

const P: Protocol = Protocol::Stins;
/// Bitshuffle with LZ4 of 16 two-byte elements that are 0: header, length of the block, the block.
pub const PACKED: [u8; 27] = [0, 0, 0, 0, 0, 0, 0, 32, 0, 0, 0x20, 0, 0, 0, 0, 11, 0x1F, 0, 1, 0, 7, 0x50, 0, 0, 0, 0, 0];

fn header(first: &str, metadata: Option<&str>) -> Read {
    let parts: Vec<&str> = std::iter::once(first).chain(metadata).collect();
    read(P, &message(&parts)).unwrap()
}

#[test]
fn a_header_says_where_what_and_how_long() {
    let read = header(
        r#"{"htype":"header","msg_number":7,"filename":"a.h5","user":"x"}"#,
        Some(r#"{"exptime":0.5,"save_raw":false,"sample":{"name":"lysozyme"}}"#),
    );
    assert_eq!(read.message_number, Some(7));
    let (key, start) = start(read);
    assert_eq!((key, start.filename.as_deref(), start.store), (SeriesKey(0), Some("a.h5"), false));
    assert_eq!(start.header_extra, *json!({"user": "x"}).as_object().unwrap());
    assert_eq!(start.metadata["sample"]["name"], "lysozyme");
    assert_eq!((start.facts.count_time_s, start.images_planned, start.channels.len()), (Some(0.5), None, 0));
}

#[test]
fn no_file_and_no_metadata_are_fine() {
    for first in [r#"{"htype":"header","msg_number":0}"#, r#"{"htype":"header","msg_number":0,"filename":""}"#] {
        let (_, start) = start(header(first, None));
        assert_eq!((start.filename, start.store, start.metadata.len()), (None, true, 0));
    }
    let save = |value: &str| {
        let first = format!(r#"{{"htype":"header","msg_number":0,"save_raw":{value}}}"#);
        start(header(&first, None)).1.store
    };
    assert!(!save("false") && !save("0") && save("true") && save("1") && save("null") && save("\"no\""));
}

#[test]
fn an_image_shares_the_bytes_of_its_message() {
    let first =
        br#"{"htype":"image","msg_number":9,"frame":3,"shape":[2,3],"type":"float32","compression":"none","discard":true,"x":1}"#;
    let message = message(&[&first[..], &[7; 24]]);
    let read = read(P, &message).unwrap();
    assert_eq!(read.message_number, Some(9));
    let part = part(read);
    assert_eq!((part.number, part.store, part.is_partial, part.series), (3, false, false, SeriesKey(0)));
    assert_eq!(part.header_json, first.as_slice());
    let array = array(&part);
    assert_eq!((array.element, array.packing, array.shape.dimensions()), (Element::Float32, Packing::None, [2, 3].as_slice()));
    assert_eq!(array.pieces[0].as_ptr(), message.parts[1].as_ptr(), "not copied");
}

#[test]
fn pieces_and_twelve_bits_come_as_they_are() {
    let first =
        r#"{"htype":"image","msg_number":1,"frame":0,"shape":[3,2,8],"type":"uint16","compression":"bslz4","chunks":[1,2,8]}"#;
    let image = part(read(P, &message(&[first.as_bytes(), &PACKED, &PACKED, &PACKED])).unwrap());
    assert_eq!((array(&image).pieces.len(), array(&image).packing), (3, Packing::BitshuffleLz4));
    assert_eq!(array(&image).piece_shape().unwrap().dimensions(), [1, 2, 8]);
    let first = r#"{"htype":"image","msg_number":1,"frame":0,"shape":[3],"type":"mono12p","compression":"none"}"#;
    let image = part(read(P, &message(&[first.as_bytes(), &[1; 5]])).unwrap());
    assert_eq!((array(&image).element, array(&image).unpacked_bytes()), (Element::Packed(PackedBits::Twelve), 5));
}

#[test]
fn a_header_that_the_packing_lacks_is_put_in_front() {
    let first = r#"{"htype":"image","msg_number":1,"frame":0,"shape":[2,8],"type":"uint16","compression":"bslz4"}"#;
    let message = message(&[first.as_bytes(), &PACKED[12..]]);
    let image = part(read(P, &message).unwrap());
    assert_eq!(array(&image).pieces[0], PACKED.as_slice());
}

#[test]
fn the_end_has_its_number_and_order_is_not_judged_here() {
    let mut reader = reader(P);
    let end = reader.read(&message(&[r#"{"htype":"series_end","msg_number":12}"#])).unwrap();
    assert_eq!(end.message_number, Some(12));
    assert!(matches!(end.event, Event::End(SeriesKey(0))));
    let first = r#"{"htype":"image","msg_number":2,"frame":0,"shape":[1],"type":"uint8","compression":"none"}"#;
    assert!(reader.read(&message(&[first.as_bytes(), &[1]])).is_ok(), "an image before any header");
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let image = |change: &str, pixels: &[u8]| {
        let first = r#"{"htype":"image","msg_number":1,"frame":0,"shape":[2,3],"type":"uint16","compression":"none"}"#;
        let mut first: serde_json::Map<String, serde_json::Value> = serde_json::from_str(first).unwrap();
        let change: serde_json::Map<String, serde_json::Value> = serde_json::from_str(change).unwrap();
        first.extend(change);
        refusal(P, &[serde_json::to_vec(&first).unwrap().as_slice(), pixels])
    };
    assert_eq!(image("{}", &[0; 11]), "part 2 of the message: uint16 of shape [2, 3] has 12 bytes, but 11 came");
    assert!(image(r#"{"shape":[2,4]}"#, &[0; 12]).contains("has 16 bytes, but 12 came"));
    assert!(image(r#"{"shape":[1099511627776,1099511627776]}"#, &[0; 12]).contains("cannot have shape"));
    assert!(image(r#"{"shape":[1099511627776,1048576]}"#, &[0; 12]).contains("more than the 1073741824 bytes"));
    assert!(image(r#"{"type":"complex64"}"#, &[0; 12]).contains("'complex64' is not a pixel type"));
    assert!(image(r#"{"compression":"blosc"}"#, &[0; 12]).contains("'blosc'; none and bslz4 are known"));
    assert!(image(r#"{"frame":null}"#, &[0; 12]).contains("no 'frame'"));
    assert!(image(r#"{"compression":"bslz4"}"#, &[1; 30]).contains("announce"));
    assert!(refusal(P, &["{}"]).contains("missing field"));
    assert!(refusal(P, &["no JSON"]).contains("part 1 of the message: it is not the JSON"));
    assert!(refusal(P, &[] as &[&str]).contains("it is missing; only 0 parts came"));
    assert!(refusal(P, &[r#"{"htype":"header","msg_number":0}"#, "[]"]).contains("part 2"));
    assert!(refusal(P, &[r#"{"htype":"series_end","msg_number":0}"#, "{}"]).contains("1 parts, but 2 came"));
}

#[test]
fn one_piece_of_an_image_is_taken_where_it_is_expected() {
    let first =
        r#"{"htype":"image","msg_number":1,"frame":0,"shape":[4,2,8],"type":"uint16","compression":"bslz4","chunks":[1,2,8]}"#;
    let message = message(&[first.as_bytes(), &PACKED]);
    let options = DecoderOptions { pieces: 4, ..DecoderOptions::default() };
    let image = part(decoder_with(P, Bounds::default(), options).read(&message).unwrap());
    assert_eq!((array(&image).shape.dimensions(), array(&image).pieces.len()), (&[1u64, 2, 8][..], 1));
    assert_eq!(array(&image).pieces[0].as_ptr(), message.parts[1].as_ptr(), "not copied");
    assert!(refusal(P, &[first.as_bytes(), &PACKED]).contains("bytes"));
}

#[test]
fn pixels_that_are_a_cbf_file_are_unpacked() {
    const CBF: &[u8] = include_bytes!("../../../../fuzz/seeds/cbf/fabio_pilatus");
    let options = DecoderOptions { pixels_are_cbf: true, ..DecoderOptions::default() };
    let mut reader = decoder_with(P, Bounds::default(), options);
    let first = |shape: &str| {
        format!(r#"{{"htype":"image","msg_number":8,"frame":5,{shape}"type":"int32","compression":"none","exposure_time":0.1}}"#)
    };
    for shape in ["\"shape\":[3,4],", ""] {
        let read = reader.read(&message(&[first(shape).as_bytes(), CBF])).unwrap();
        assert_eq!(read.message_number, Some(8));
        let image = part(read);
        assert_eq!((array(&image).element, array(&image).shape.dimensions(), image.number), (Element::Int32, &[3u64, 4][..], 5));
        assert_eq!(array(&image).pieces[0][4..8], (-2i32).to_le_bytes());
    }
    let why = reader.read(&message(&[first("\"shape\":[4,3],").as_bytes(), CBF])).unwrap_err();
    assert_eq!(why.to_string(), "part 2 of the message: the message says [4, 3], but the CBF file is an image of [3, 4]");
    let why = reader.read(&message(&[first("").as_bytes(), b"no CBF"])).unwrap_err();
    assert!(why.to_string().contains("does not begin as a CBF file does"), "{why}");
    let header = message(&[r#"{"htype":"header","msg_number":7,"filename":"a.h5"}"#]);
    assert!(matches!(reader.read(&header).unwrap().event, Event::Start(..)));
}

#[test]
fn the_gap_between_chips_is_put_in() {
    let pixels: Vec<u8> = (0..2 * 512u16).flat_map(u16::to_le_bytes).collect();
    let first = r#"{"htype":"image","msg_number":1,"frame":0,"shape":[2,512],"type":"uint16","compression":"none"}"#;
    let with_gaps = |bounds| with_chip_gaps(decoder(P, bounds), 2, bounds);
    let mut reader = with_gaps(Bounds::default());
    let image = part(reader.read(&message(&[first.as_bytes(), &pixels])).unwrap());
    assert_eq!(array(&image).shape.dimensions(), [2, 514]);
    let is: Vec<u16> = array(&image).pieces[0].as_chunks().0.iter().map(|bytes| u16::from_le_bytes(*bytes)).collect();
    let row = |from: u16| (from..from + 256).chain([0xFFFE; 2]).chain(from + 256..from + 512);
    assert_eq!(is, row(0).chain(row(512)).collect::<Vec<_>>());
    let narrow = r#"{"htype":"image","msg_number":1,"frame":0,"shape":[1,300],"type":"uint8","compression":"none"}"#;
    let why = reader.read(&message(&[narrow.as_bytes(), &[0; 300]])).unwrap_err().to_string();
    assert!(why.contains("not made of chips of 256 columns"), "{why}");
    let small = Bounds { image_bytes_max: 2050, ..Bounds::default() };
    let why = with_gaps(small).read(&message(&[first.as_bytes(), &pixels])).unwrap_err().to_string();
    assert!(why.contains("too large"), "{why}");
}
