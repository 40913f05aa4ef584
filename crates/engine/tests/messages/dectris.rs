use super::*;
use konkordia_core::image::ImageTimes;
use konkordia_wire::cbor::item_of;
use serde_json::{Value, json};

const V1: Protocol = Protocol::DectrisV1;
const V2: Protocol = Protocol::DectrisV2;
const TABLE: [u8; 24] = [1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 5, 0, 0, 0, 6, 0, 0, 0];

fn v1_header(detail: &str, rest: &[&[u8]]) -> Result<Read, String> {
    let first = format!(r#"{{"header_detail":"{detail}","htype":"dheader-1.0","series":14}}"#);
    let parts: Vec<&[u8]> = std::iter::once(first.as_bytes()).chain(rest.iter().copied()).collect();
    read(V1, &message(&parts))
}

const CONFIG: &[u8] = br#"{"nimages":100,"ntrigger":3,"photon_energy":8000.0,"wavelength":1.0,"detector_distance":0.0,"beam_center_x":0.0,
    "beam_center_y":1.5,"x_pixel_size":7.5e-5,"y_pixel_size":7.5e-5,"sensor_material":"Si","sensor_thickness":0.00045,"frame_time":0.1,
    "count_time":0.09,"bit_depth_image":32,"bit_depth_readout":16,"countrate_correction_count_cutoff":99,"description":"Dectris EIGER1 Si 1M",
    "detector_number":"E-02","data_collection_date":"2024-09-30T12:14:53.853+02:00","x_pixels_in_detector":3,"y_pixels_in_detector":2,
    "threshold_energy":4000.0,"trigger_mode":"ints"}"#;

#[test]
fn a_v1_header_of_each_detail() {
    let (key, none) = start(v1_header("none", &[]).unwrap());
    assert_eq!((key, none.series, none.images_planned, none.channels.len()), (SeriesKey(14), 14, None, 1));
    assert_eq!((none.filename, none.store, none.metadata.len()), (None, true, 0));

    let (_, basic) = start(v1_header("basic", &[CONFIG, br#"{"filename":"d/a","rotate":1}"#]).unwrap());
    assert_eq!((basic.filename.as_deref(), basic.images_planned), (Some("d/a"), Some(300)));
    assert_eq!((basic.image_size, basic.element), (Some([2, 3]), Some(Element::Uint32)));
    let facts = &basic.facts;
    assert_eq!((facts.energy_kev, facts.detector_distance_m, facts.beam_center_y_px), (Some(8.0), None, Some(1.5)));
    assert_eq!((facts.pixel_size_m, facts.sensor_thickness_m), (Some([75e-6, 75e-6]), Some(0.00045)));
    assert_eq!((facts.frame_time_s, facts.count_time_s, facts.bit_depth), (Some(0.1), Some(0.09), Some(16)));
    assert_eq!((facts.saturation_value, facts.detector_serial.as_deref()), (Some(99), Some("E-02")));
    assert_eq!(basic.channels[0].threshold_energy_ev, Some(4000.0));
    assert_eq!((&basic.metadata["trigger_mode"], &basic.metadata["header_appendix"]["rotate"]), (&json!("ints"), &json!(1)));
}

#[test]
fn a_v1_header_has_tables_for_its_one_channel() {
    let described = |kind: &str, element: &str| format!(r#"{{"htype":"d{kind}-1.0","shape":[3,2],"type":"{element}"}}"#);
    let (flat, mask, rate) =
        (described("flatfield", "float32"), described("pixelmask", "uint32"), described("countrate_table", "float32"));
    let parts = [CONFIG, flat.as_bytes(), &TABLE, mask.as_bytes(), &TABLE, rate.as_bytes(), &TABLE, b"no JSON"];
    let (_, all) = start(v1_header("all", &parts).unwrap());
    let channel = &all.channels[0];
    let tables = (channel.flat_field.as_ref().unwrap(), channel.pixel_mask.as_ref().unwrap());
    assert_eq!((tables.0.element, tables.1.element), (Element::Float32, Element::Uint32));
    assert_eq!((tables.0.shape.dimensions(), &tables.1.pieces[0][..]), ([2, 3].as_slice(), &TABLE[..]));
    assert_eq!((channel.name.as_str(), all.filename), ("", None));
    assert_eq!(all.metadata["header_appendix"], "no JSON");
    assert_eq!(all.metadata["countrate_correction_table"].as_array().unwrap().len(), 2);
    let wrong = described("pixelmask", "uint16");
    let mut parts = parts;
    (parts[3], parts[4]) = (wrong.as_bytes(), &TABLE[..12]);
    // A table that cannot be used is reported, and does not cost the series.
    let (_, rest) = start(v1_header("all", &parts).unwrap());
    assert!(rest.warnings[0].contains("a table of uint16 with shape [2, 3]"), "{:?}", rest.warnings);
    assert!(rest.channels[0].pixel_mask.is_none() && rest.channels[0].flat_field.is_some());
    let wrong = described("countrate_table", "uint32");
    parts[5] = wrong.as_bytes();
    let (_, rest) = start(v1_header("all", &parts).unwrap());
    let said = "'count rate' is not used, and the series goes on without it: a table of uint32";
    assert!(rest.warnings.len() == 2 && rest.warnings[1].contains(said), "{:?}", rest.warnings);
    assert!(!rest.metadata.contains_key("countrate_correction_table"));
    assert!(v1_header("all", &parts[..6]).unwrap_err().contains("has 8 to 9 parts, but 7 came"));
}

fn v1_image(encoding: &str, pixels: &[u8], appendix: Option<&[u8]>) -> Result<(ImagePart, Message), String> {
    let size = pixels.len();
    let described = format!(r#"{{"encoding":"{encoding}","htype":"dimage_d-1.0","shape":[8,2],"size":{size},"type":"uint16"}}"#);
    let times = br#"{"htype":"dconfig-1.0","real_time":3,"start_time":10,"stop_time":14}"#;
    let first = br#"{"frame":5,"hash":"","htype":"dimage-1.0","series":14}"#;
    let mut parts = vec![&first[..], described.as_bytes(), pixels, times];
    parts.extend(appendix);
    let message = message(&parts);
    read(V1, &message).map(|read| (part(read), message))
}

#[test]
fn a_v1_image_of_each_packing() {
    for (encoding, packing, pixels) in [
        ("<", Packing::None, &[1; 32][..]),
        ("lz4<", Packing::Lz4Block, &super::stins::PACKED[16..]),
        ("bs16-lz4<", Packing::BitshuffleLz4, &super::stins::PACKED[..]),
    ] {
        let (image, message) = v1_image(encoding, pixels, None).unwrap();
        assert_eq!((image.number, image.series, image.store, image.header_json.len()), (5, SeriesKey(14), true, 0));
        assert_eq!((array(&image).packing, array(&image).shape.dimensions()), (packing, [2, 8].as_slice()));
        assert_eq!(array(&image).pieces[0].as_ptr(), message.parts[2].as_ptr(), "not copied");
        assert_eq!(image.times, Some(ImageTimes { start_ns: 10, stop_ns: 14, real_ns: 3 }));
    }
    assert!(v1_image("gzip<", &[1; 32], None).unwrap_err().contains("'gzip<'"));
    assert!(v1_image(">", &[1; 32], None).unwrap_err().contains("big-endian"));
    assert!(v1_image("<", &[1; 31], None).unwrap_err().contains("has 32 bytes, but 31 came"));
    assert!(v1_image("bs32-lz4<", &[1; 31], None).unwrap_err().contains("type is uint16"));
    let appendix = |text: &[u8]| v1_image("<", &[1; 32], Some(text)).unwrap().0.header_json;
    assert_eq!(appendix(br#"{"a":1}"#), br#"{"a":1}"#.as_slice());
    assert_eq!(appendix(b"free"), br#"{"image_appendix":"free"}"#.as_slice());
    assert_eq!(appendix(b"[1]"), br#"{"image_appendix":[1]}"#.as_slice());
    let end = read(V1, &message(&[r#"{"htype":"dseries_end-1.0","series":14}"#])).unwrap();
    assert!(matches!(end.event, Event::End(SeriesKey(14))));
    assert!(refusal(V1, &[r#"{"htype":"dimage-1.0","series":14}"#]).contains("no number 'frame'"));
}

/// A CBOR message: JSON with further entries behind it.
fn cbor(value: &Value, more: &[(&str, &[u8])]) -> Vec<u8> {
    let mut bytes = item_of(value);
    assert!(bytes[0] & 0xE0 == 0xA0 && usize::from(bytes[0] & 31) + more.len() < 24, "a short map");
    bytes[0] += more.len() as u8;
    for (key, item) in more {
        bytes.extend(item_of(&json!(key)));
        bytes.extend(*item);
    }
    bytes
}

/// Tag 40 over rows, columns and this typed array.
fn typed(rows: u8, columns: u8, tag: u8, data: &[u8]) -> Vec<u8> {
    [&[0xD8, 40, 0x82, 0x82, rows, columns, 0xD8, tag, 0x58, data.len() as u8], data].concat()
}

#[test]
fn a_v2_start_says_everything_once() {
    let said = json!({
        "type": "start", "series_id": 16, "series_unique_id": "01HRC", "channels": ["threshold_2", "threshold_1"],
        "number_of_images": 10, "image_size_x": 3, "image_size_y": 2, "image_dtype": "uint32", "incident_energy": 8000.0,
        "detector_distance": 0.2, "threshold_energy": {"threshold_1": 4000.0, "threshold_2": 6000.0, "difference": 1.0},
        "user_data": r#"{"filename":"lyso/a","n":1}"#, "sample_name": "jungfraujoch knows", "beam_center_x": 0.0,
    });
    let mask = [&item_of(&json!({"threshold_1": 0}))[..13], &typed(2, 3, 70, &TABLE)].concat();
    let bytes = cbor(&said, &[("pixel_mask", &mask), ("countrate_correction_lookup_table", &[0xD8, 70, 0x44, 9, 0, 0, 0])]);
    let message = message(&[&bytes]);
    let (key, start) = start(read(V2, &message).unwrap());
    assert_eq!((key, start.series, start.unique_id.as_str()), (SeriesKey(16), 16, "01HRC"));
    assert_eq!((start.filename.as_deref(), start.images_planned, start.image_size), (Some("lyso/a"), Some(10), Some([2, 3])));
    assert_eq!(
        (start.element, start.facts.energy_kev, start.facts.detector_distance_m),
        (Some(Element::Uint32), Some(8.0), Some(0.2))
    );
    let names: Vec<&str> = start.channels.iter().map(|channel| channel.name.as_str()).collect();
    assert_eq!(names, ["threshold_2", "threshold_1"]);
    assert_eq!(start.channels[0].threshold_energy_ev, Some(6000.0));
    let mask = start.channels[1].pixel_mask.as_ref().unwrap();
    assert_eq!(&mask.pieces[0][..], TABLE);
    assert!(message.parts[0].as_ptr_range().contains(&mask.pieces[0].as_ptr()), "not copied");
    assert_eq!(start.metadata["user_data"], json!({"filename": "lyso/a", "n": 1}));
    assert_eq!(start.metadata["sample_name"], "jungfraujoch knows");
    assert_eq!(start.metadata["countrate_correction_lookup_table"], json!([9]));
    assert!(!start.metadata.contains_key("pixel_mask") && !start.metadata.contains_key("type"));
}

#[test]
fn user_data_may_be_a_map_or_a_text() {
    let user = |user: Value| {
        let said = json!({"type": "start", "series_id": 1, "user_data": user});
        let (_, start) = start(read(V2, &message(&[cbor(&said, &[])])).unwrap());
        (start.filename, start.metadata["user_data"].clone())
    };
    assert_eq!(user(json!({"filename": "a"})), (Some("a".into()), json!({"filename": "a"})));
    assert_eq!(user(json!("words")), (None, json!("words")));
    assert_eq!(user(json!([1])), (None, json!([1])));
}

#[test]
fn a_v2_image_keeps_its_channels_in_order_and_shares_its_bytes() {
    let said = json!({"type": "image", "series_id": 16, "image_id": 4, "series_date": "2024", "user_data": [1, "x"], "new_key": {"a": []},
        "real_time": [1, 2], "start_time": [3, 4]});
    let data = [
        &[0xA2][..],
        &item_of(&json!("b")),
        &typed(2, 3, 70, &TABLE),
        &item_of(&json!("default")),
        &typed(2, 3, 77, &TABLE[..12]),
    ]
    .concat();
    let message = message(&[cbor(&said, &[("data", &data)])]);
    let image = part(read(V2, &message).unwrap());
    let names: Vec<&str> = image.channels.iter().map(|channel| &*channel.name).collect();
    assert_eq!((names, image.number), (vec!["b", "default"], 4));
    for channel in &image.channels {
        assert!(message.parts[0].as_ptr_range().contains(&channel.array.pieces[0].as_ptr()), "not copied");
    }
    assert_eq!((image.channels[1].array.element, &image.channels[1].array.pieces[0][..]), (Element::Int16, &TABLE[..12]));
    let times = ImageTimes { start_ns: 750_000_000, stop_ns: 1_250_000_000, real_ns: 500_000_000 };
    assert_eq!(image.times, Some(times), "two times say the third");
    assert_eq!(image.header_json, br#"{"series_date":"2024","user_data":[1,"x"]}"#.as_slice());
}

#[test]
fn kinds_of_jungfraujoch_are_of_no_interest_and_others_are_refused() {
    for kind in ["calibration", "metadata"] {
        let said = json!({"type": kind, "images": []});
        assert!(matches!(read(V2, &message(&[cbor(&said, &[])])).unwrap().event, Event::Other));
    }
    let refused = |said: Value, more: &[(&str, &[u8])]| refusal(V2, &[cbor(&said, more)]);
    assert!(refused(json!({"type": "preview"}), &[]).contains("'preview'"));
    assert!(refused(json!({"type": "image", "series_id": 1, "image_id": 0}), &[]).contains("no pixels under 'data'"));
    assert!(refused(json!({"type": "image", "image_id": 0}), &[]).contains("no number 'series_id'"));
    let image = json!({"type": "image", "series_id": 1, "image_id": 0});
    let channel = |array: &[u8]| [&[0xA1][..], &item_of(&json!("a")), array].concat();
    assert!(refused(image.clone(), &[("data", &channel(&typed(2, 3, 70, &TABLE[..20])))]).contains("has 24 bytes, but 20 came"));
    assert!(refused(image.clone(), &[("data", &channel(&typed(2, 3, 99, &TABLE)))]).contains("tag 99 is no"));
    let huge = [0xD8, 40, 0x82, 0x82, 0x1A, 255, 255, 255, 255, 0x1A, 255, 255, 255, 255, 0xD8, 70, 0x40];
    assert!(refused(image, &[("data", &channel(&huge))]).contains("more than the 1073741824 bytes"));
    assert!(refusal(V2, &["a", "b"]).contains("a message has 1 part, but 2 came"));
    assert!(refusal(V2, &[&[0xFF][..]]).contains("CBOR"));
    let long = json!({"type": "start", "series_id": 1, "user_data": "x".repeat(2 << 20)});
    assert!(refused(long, &[]).contains("more text than is accepted"));
    let mask = [&[0xA1][..], &item_of(&json!("a")), &typed(2, 3, 69, &TABLE[..12])].concat();
    let wrong = cbor(&json!({"type": "start", "series_id": 1, "channels": ["a"]}), &[("pixel_mask", &mask)]);
    let (_, begun) = start(read(V2, &message(&[wrong])).unwrap());
    assert!(begun.channels[0].pixel_mask.is_none());
    assert!(
        begun.warnings[0].contains("pixel_mask of a") && begun.warnings[0].contains("a table of uint16"),
        "{:?}",
        begun.warnings
    );
}
