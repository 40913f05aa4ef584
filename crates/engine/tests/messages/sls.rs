use super::*;
use konkordia_core::image::ImageTimes;
use serde_json::{Map, Value, json};
use std::sync::Arc;

const P: Protocol = Protocol::SlsJson;

fn first(change: Value) -> Vec<u8> {
    let text = r#"{"jsonversion":5,"bitmode":16,"fileIndex":3,"detshape":[1,2],"shape":[8,2],"size":32,"acqIndex":1001,"frameIndex":6,"progress":1.5,
        "fname":"/data/run","data":1,"completeImage":1,"frameNumber":1001,"expLength":100,"packetNumber":128,"detSpec1":0,"timestamp":2000,
        "modId":5,"row":1,"column":0,"detSpec2":0,"detSpec3":0,"detSpec4":0,"detType":3,"version":2,"flipRows":1,"quad":0,
        "addJsonHeader":{"user":"x"},"rx_roi":[-1,-1,-1,-1]}"#;
    let mut keys: Map<String, Value> = serde_json::from_str(text).unwrap();
    keys.extend(change.as_object().unwrap().clone());
    format!("{}\n", Value::Object(keys)).into_bytes()
}

fn image(change: Value, pixels: &[u8]) -> Result<Read, String> {
    read(P, &message(&[&first(change)[..], pixels]))
}

#[test]
fn an_image_of_each_depth_is_whole_numbers() {
    let of = |bits: u32, data: &[u8]| {
        let columns = data.len() as u64 * 8 / u64::from(bits) / 2;
        let change = json!({"bitmode": bits, "shape": [columns, 2], "size": data.len()});
        let part = part(image(change, data).unwrap());
        (array(&part).element, array(&part).shape.dimensions().to_vec(), array(&part).pieces[0].to_vec())
    };
    assert_eq!(of(16, &[1, 2, 3, 4]), (Element::Uint16, vec![2, 1], vec![1, 2, 3, 4]));
    assert_eq!(of(8, &[1, 2, 3, 4]), (Element::Uint8, vec![2, 2], vec![1, 2, 3, 4]));
    assert_eq!(of(32, &[1, 2, 3, 4, 5, 6, 7, 8]), (Element::Uint32, vec![2, 1], vec![1, 2, 3, 4, 5, 6, 7, 8]));
    assert_eq!(of(4, &[0x12, 0x3F]), (Element::Uint8, vec![2, 2], vec![1, 2, 3, 15]), "high half first");
    assert_eq!(of(12, &[0x21, 0x43, 0x65]), (Element::Uint16, vec![2, 1], vec![0x21, 0x03, 0x54, 0x06]), "low bits first");
}

#[test]
fn images_name_their_series() {
    let mut reader = reader(P);
    let mut next = |change, pixels: &[u8]| part(reader.read(&message(&[&first(change)[..], pixels])).unwrap());
    let one = next(json!({}), &[7; 32]);
    assert_eq!((one.number, one.series, one.is_partial, one.store), (6, SeriesKey(4), false, true));
    assert_eq!(one.times, Some(ImageTimes { start_ns: 200_000, stop_ns: 210_000, real_ns: 10_000 }));
    assert!(one.header_json.ends_with(b"}\n"));
    let start = one.start.unwrap();
    assert_eq!((start.series, start.filename.as_deref(), start.element), (3, Some("run_3"), Some(Element::Uint16)));
    assert_eq!((start.image_size, start.store, start.channels.len()), (None, true, 0), "one port of two");
    assert_eq!((&start.metadata["flipRows"], &start.metadata["addJsonHeader"]["user"]), (&json!(true), &json!("x")));

    let two = next(json!({"frameIndex": 7, "completeImage": 0}), &[7; 32]);
    assert!(two.is_partial && Arc::ptr_eq(&start, two.start.as_ref().unwrap()), "made once");
    let other = next(json!({"fileIndex": 4, "detshape": [1, 1], "jsonversion": 4, "fname": ""}), &[7; 32]);
    let start = other.start.unwrap();
    assert_eq!((other.series, start.series, start.image_size, start.filename.as_deref()), (SeriesKey(5), 4, Some([2, 8]), None));
    let end = reader.read(&message(&[r#"{"jsonversion":5,"bitmode":0,"data":0}"#])).unwrap();
    assert!(matches!(end.event, Event::End(SeriesKey(5))));
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let why = |change, pixels: &[u8]| image(change, pixels).unwrap_err();
    assert!(why(json!({"jsonversion": 3}), &[7; 32]).contains("'jsonversion' is 3; 4 and 5 are known"));
    assert!(why(json!({"bitmode": 24}), &[7; 32]).contains("'bitmode' is 24"));
    assert!(why(json!({"size": 30}), &[7; 32]).contains("'size' is 30, but"));
    assert!(why(json!({}), &[7; 31]).contains("part 2 of the message: 8 x 2 pixels of 16 bits have 32 bytes, but 31 came"));
    assert!(why(json!({"shape": [0, 2]}), &[]).contains("cannot be an image of whole bytes"));
    assert!(why(json!({"shape": [1u64 << 33, 1u64 << 33]}), &[7; 32]).contains("cannot be an image of whole bytes"));
    assert!(why(json!({"shape": [1u64 << 20, 1u64 << 20]}), &[7; 32]).contains("more than the 1073741824 bytes"));
    assert!(refusal(P, &[first(json!({}))]).contains("an image has 2 parts, but 1 came"));
    assert!(refusal(P, &["{}"]).contains("missing field `jsonversion`"));
    // Packed it is inside the bounds, unpacked it is not.
    let bounds = Bounds { image_bytes_max: 3, ..Bounds::default() };
    let change = json!({"bitmode": 12, "shape": [2, 1], "size": 3});
    let why = decoder(P, bounds).read(&message(&[&first(change)[..], &[1, 2, 3]])).unwrap_err();
    assert_eq!(why.to_string(), "part 2 of the message: unpacked it has 4 bytes; 3 are accepted");
}
