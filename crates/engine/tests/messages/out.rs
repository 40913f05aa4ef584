//! Encoded messages are read again, by the readers of `wire` and by our decoders.

use super::*;
use konkordia_core::experiment::{Axis, Experiment, Goniometer, Metadata};
use konkordia_core::image::ImageTimes;
use konkordia_core::ports::Parts;
use konkordia_core::series::{ChannelStart, Ended, SeriesEnd, SeriesLedger};
use konkordia_kernels::Isa;
use konkordia_kernels::transform::{PackScratch, pack};
use serde_json::{Map, Value, json};

const PIXELS: [u8; 32] = [1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 0, 7, 0, 8, 0, 9, 0, 10, 0, 11, 0, 12, 0, 13, 0, 14, 0, 15, 0, 16, 0];

fn end() -> SeriesEnd {
    SeriesEnd { ended: Ended::Finished, reason: String::new(), ledger: SeriesLedger::default() }
}

fn packed(packing: Packing, dimensions: &[u64]) -> Array {
    let mut out = Vec::new();
    pack(packing, Isa::detect(), Element::Uint16, &PIXELS, &mut out, &mut PackScratch::new()).unwrap();
    Array { packing, pieces: vec![out.into()], ..plain(dimensions, Element::Uint16, &PIXELS) }
}

fn first(parts: &Parts) -> Map<String, Value> {
    serde_json::from_slice(&parts[0]).unwrap()
}

fn object(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

fn one(mut messages: Vec<Parts>) -> Parts {
    assert_eq!(messages.len(), 1);
    messages.remove(0)
}

fn read_back(protocol: Protocol, parts: Parts) -> ImagePart {
    part(read(protocol, &Message { parts }).unwrap())
}

fn sample_start() -> SeriesStart {
    SeriesStart {
        series: 5,
        filename: Some("a.h5".into()),
        images_planned: Some(4),
        facts: Metadata {
            energy_kev: Some(12.4),
            detector_distance_m: Some(0.25),
            beam_center_x_px: Some(1.5),
            pixel_size_m: Some([75e-6, 75e-6]),
            saturation_value: Some(99),
            start_time: Some("2026-01-01T00:00:00+01:00".into()),
            // Consumers of a UDP run get its angles, too.
            experiment: Experiment {
                goniometer: Goniometer { omega: Axis::turning(90.0, 0.1), ..Goniometer::default() },
                ..Experiment::default()
            },
            ..Metadata::default()
        },
        metadata: object(json!({"exptime": 0.5, "sample": {"name": "lysozyme"}})),
        header_extra: object(json!({"user": "x"})),
        store: true,
        ..SeriesStart::default()
    }
}

/// What the list of protocols says is what decoder and encoder do.
#[test]
fn protocols_carry_what_the_list_says() {
    for protocol in Protocol::OUTGOING {
        let carried = protocol.facts().outgoing.unwrap();
        for &element in carried.elements {
            let raw: Vec<u8> = (0..16 * element.bits() / 8).map(|n| n as u8).collect();
            for packing in [Packing::None, Packing::Lz4, Packing::BitshuffleLz4, Packing::BitshuffleZstd] {
                // Twelve bits are never packed further.
                if element.is_packed() && packing != Packing::None {
                    continue;
                }
                let case = format!("{protocol:?}, {element:?}, {packing:?}");
                let mut data = Vec::new();
                pack(packing, Isa::detect(), element, &raw, &mut data, &mut PackScratch::new()).unwrap();
                let sent = Array { element, packing, pieces: vec![data.into()], ..plain(&[2, 8], element, &PIXELS) };
                let mut out = encoder(protocol);
                out.start(&SeriesStart::default()).unwrap();
                let parts = out.image(&image_of(0, vec![("", sent)])).unwrap().pop().unwrap();
                let read = read(protocol, &Message { parts }).unwrap();
                assert_eq!(read.message_number.is_some(), protocol.has_message_numbers(), "{case}");
                let back = part(read);
                assert_eq!(back.start.is_some(), !protocol.has_start(), "{case}");
                let came = array(&back);
                let is_kept = carried.packings.contains(&packing);
                assert_eq!(came.packing, if is_kept { packing } else { Packing::None }, "{case}");
                assert_eq!((came.shape.dimensions(), came.element.bits()), (&[2u64, 8][..], element.bits()), "{case}");
                assert_eq!(protocols::array_unpacker().one_piece(came, &[]).unwrap().pieces[0], raw, "{case}");
                assert_eq!(out.end(&end()).unwrap().is_empty(), !protocol.has_end(), "{case}");
            }
        }
    }
}

#[test]
fn stins_numbers_its_messages_over_several_series() {
    let mut out = encoder(Protocol::Stins);
    let image = image_of(3, vec![("", plain(&[2, 8], Element::Uint16, &PIXELS))]);
    let mut numbers = Vec::new();
    for _ in 0..2 {
        for messages in [out.start(&sample_start()), out.image(&image), out.image(&CommittedImage::lost(4)), out.end(&end())] {
            numbers.extend(messages.unwrap().iter().map(|parts| first(parts)["msg_number"].as_u64().unwrap()));
        }
    }
    assert_eq!(numbers, [0, 1, 2, 3, 4, 5], "nothing is sent for a lost image");
}

#[test]
fn a_stins_header_holds_what_came() {
    let mut out = encoder(Protocol::Stins);
    let parts = one(out.start(&sample_start()).unwrap());
    let (_, back) = start(read(Protocol::Stins, &Message { parts }).unwrap());
    let sent = sample_start();
    assert_eq!((back.filename, back.metadata, back.header_extra), (sent.filename, sent.metadata, sent.header_extra));
    let bare = SeriesStart { store: false, ..SeriesStart::default() };
    let parts = one(out.start(&bare).unwrap());
    assert_eq!(first(&parts)["filename"], "", "models of this format want a text");
    assert!(!start(read(Protocol::Stins, &Message { parts }).unwrap()).1.store);
}

#[test]
fn a_stins_image_takes_its_keys_along_and_shares_its_pixels() {
    let mut out = encoder(Protocol::Stins);
    let image_extra = object(json!({"exposure_time": 0.5, "frame": 99}));
    out.start(&SeriesStart { image_extra, ..sample_start() }).unwrap();
    let mut image = image_of(3, vec![("", packed(Packing::BitshuffleLz4, &[2, 8]))]);
    image.header_json = r#"{"htype":"other","msg_number":77,"frame":77,"shape":[9],"chunks":[9],"rotation":1.5,"x":[1]}"#.into();
    image.store = false;
    image.status = ImageStatus::Partial;
    image.times = Some(ImageTimes { start_ns: 1, stop_ns: 2, real_ns: 3 });
    let parts = one(out.image(&image).unwrap());
    let wanted = json!({"htype": "image", "msg_number": 1, "frame": 3, "shape": [2, 8], "type": "uint16", "compression": "bslz4",
        "discard": true, "partial": true, "rotation": 1.5, "x": [1], "real_time": 3, "start_time": 1, "stop_time": 2, "exposure_time": 0.5});
    assert_eq!(first(&parts), object(wanted));
    assert_eq!(parts[1].as_ptr(), image.channels[0].array.pieces[0].as_ptr(), "not copied");
    let back = read_back(Protocol::Stins, parts);
    assert_eq!((back.store, &back.channels), (false, &image.channels));
    (image.store, image.header_json) = (true, r#"{"discard":false}"#.into());
    assert_eq!(first(&one(out.image(&image).unwrap()))["discard"], false, "as it was said");
    image.header_json = r#"{"exposure_time":7}"#.into();
    assert_eq!(first(&one(out.image(&image).unwrap()))["exposure_time"], 7, "its own counts");
}

#[test]
fn stins_unpacks_what_it_has_no_name_for() {
    let mut out = encoder(Protocol::Stins);
    for packing in [Packing::Lz4, Packing::Lz4Block, Packing::BitshuffleZstd] {
        let back = read_back(Protocol::Stins, one(out.image(&image_of(0, vec![("", packed(packing, &[2, 8]))])).unwrap()));
        assert_eq!((array(&back).packing, &array(&back).pieces[0][..]), (Packing::None, &PIXELS[..]), "{packing:?}");
    }
    let mut broken = packed(Packing::Lz4, &[2, 8]);
    broken.pieces[0] = broken.pieces[0].slice(..20);
    assert!(out.image(&image_of(0, vec![("", broken)])).is_err());
    let next = one(out.image(&image_of(0, vec![("", plain(&[2, 8], Element::Uint16, &PIXELS))])).unwrap());
    assert_eq!(first(&next)["msg_number"], 3, "a message that was not sent has no number");
}

#[test]
fn stins_stacks_channels_and_keeps_pieces() {
    let mut out = encoder(Protocol::Stins);
    let (lz4, raw) = (packed(Packing::BitshuffleLz4, &[2, 8]), plain(&[2, 8], Element::Uint16, &PIXELS));
    let parts = one(out.image(&image_of(0, vec![("a", lz4.clone()), ("b", lz4.clone())])).unwrap());
    assert_eq!((&first(&parts)["shape"], &first(&parts)["chunks"]), (&json!([2, 2, 8]), &json!([1, 2, 8])));
    let back = read_back(Protocol::Stins, parts);
    assert_eq!((array(&back).packing, array(&back).pieces.len()), (Packing::BitshuffleLz4, 2));
    // Channels with different packings are sent unpacked.
    let back = read_back(Protocol::Stins, one(out.image(&image_of(0, vec![("a", lz4), ("b", raw.clone())])).unwrap()));
    assert_eq!((array(&back).packing, &array(&back).pieces[0][..]), (Packing::None, &PIXELS[..]));
    let other = plain(&[2, 16], Element::Uint8, &PIXELS);
    assert!(out.image(&image_of(0, vec![("a", raw), ("b", other)])).unwrap_err().contains("differ in shape or type"));
    let pieces = Array {
        pieces: vec![Bytes::from_static(&PIXELS[..16]), Bytes::from_static(&PIXELS[16..])],
        ..plain(&[2, 8], Element::Uint16, &PIXELS)
    };
    let back = read_back(Protocol::Stins, one(out.image(&image_of(0, vec![("", pieces.clone())])).unwrap()));
    assert_eq!(*array(&back), pieces);
}

#[test]
fn a_v2_start_has_all_that_is_known() {
    let mask = plain(&[2, 8], Element::Uint32, Box::leak(vec![7; 64].into_boxed_slice()));
    let channel = ChannelStart { threshold_energy_ev: Some(6000.0), pixel_mask: Some(mask.clone()), ..ChannelStart::default() };
    let sent = SeriesStart {
        image_size: Some([2, 8]),
        element: Some(Element::Packed(PackedBits::Twelve)),
        channels: vec![channel],
        ..sample_start()
    };
    let mut out = encoder(Protocol::DectrisV2);
    let parts = one(out.start(&sent).unwrap());
    let (key, back) = start(read(Protocol::DectrisV2, &Message { parts }).unwrap());
    assert_eq!(
        (key, back.images_planned, back.image_size, back.element),
        (SeriesKey(5), Some(4), Some([2, 8]), Some(Element::Uint16))
    );
    assert_eq!((back.filename.as_deref(), &back.metadata["user_data"]["sample"]["name"]), (Some("a.h5"), &json!("lysozyme")));
    assert_eq!((back.channels[0].name.as_str(), back.channels[0].pixel_mask.as_ref()), ("threshold_1", Some(&mask)));
    assert_eq!(back.channels[0].threshold_energy_ev, Some(6000.0));
    assert_eq!(back.facts, sent.facts);
    assert!(!back.unique_id.is_empty());
    let id = |start: &SeriesStart| {
        let parts = one(encoder(Protocol::DectrisV2).start(start).unwrap());
        super::start(read(Protocol::DectrisV2, &Message { parts }).unwrap()).1.unique_id
    };
    assert_eq!(id(&sent), back.unique_id, "the same for every consumer");
    assert_ne!(id(&SeriesStart { series: 6, ..sent.clone() }), back.unique_id);
    assert_eq!(id(&SeriesStart { unique_id: "01H".into(), ..sent }), "01H");
    let parts = one(out.end(&end()).unwrap());
    assert!(matches!(read(Protocol::DectrisV2, &Message { parts }).unwrap().event, Event::End(SeriesKey(5))));
}

#[test]
fn a_v2_start_waits_for_what_the_first_image_tells() {
    let mut out = encoder(Protocol::DectrisV2);
    assert!(out.start(&sample_start()).unwrap().is_empty());
    assert!(out.image(&CommittedImage::lost(0)).unwrap().is_empty());
    let image = image_of(1, vec![("", packed(Packing::BitshuffleLz4, &[1, 2, 8]))]);
    let messages = out.image(&image).unwrap();
    let (_, header) = start(read(Protocol::DectrisV2, &Message { parts: messages[0].clone() }).unwrap());
    assert_eq!((header.element, header.image_size), (Some(Element::Uint16), Some([2, 8])));
    let back = read_back(Protocol::DectrisV2, messages[1].clone());
    assert_eq!((&*back.channels[0].name, back.number), (header.channels[0].name.as_str(), 1));
    assert_eq!((array(&back).shape.dimensions(), &array(&back).pieces), ([2, 8].as_slice(), &image.channels[0].array.pieces));
    assert_eq!(out.image(&image).unwrap().len(), 1);
    // A series without images has a start too.
    out.start(&sample_start()).unwrap();
    assert_eq!(out.end(&end()).unwrap().len(), 2);
    assert_eq!(out.end(&end()).unwrap().len(), 1);
}

#[test]
fn v2_images_have_a_name_for_every_packing_and_plane() {
    let mut out = encoder(Protocol::DectrisV2);
    let mut through =
        |array: Array| read_back(Protocol::DectrisV2, out.image(&image_of(0, vec![("", array)])).unwrap().remove(0));
    for packing in [Packing::None, Packing::Lz4, Packing::BitshuffleLz4] {
        assert_eq!(*array(&through(packed(packing, &[2, 8]))), packed(packing, &[2, 8]), "{packing:?}");
    }
    for packing in [Packing::Lz4Block, Packing::BitshuffleZstd] {
        let back = through(packed(packing, &[2, 8]));
        assert_eq!((array(&back).packing, &array(&back).pieces[0][..]), (Packing::None, &PIXELS[..]));
    }
    let planes = Array {
        shape: Shape::new(&[2, 1, 8]).unwrap(),
        pieces: vec![Bytes::from_static(&PIXELS[..16]), Bytes::from_static(&PIXELS[16..])],
        ..plain(&[2, 8], Element::Uint16, &PIXELS)
    };
    let back = through(planes);
    let names: Vec<&str> = back.channels.iter().map(|channel| &*channel.name).collect();
    assert_eq!(names, ["threshold_1", "threshold_2"]);
    assert_eq!(
        (back.channels[1].array.shape.dimensions(), &back.channels[1].array.pieces[0][..]),
        ([1, 8].as_slice(), &PIXELS[16..])
    );
    let back = through(plain(&[2], Element::Packed(PackedBits::Twelve), &[0x21, 0x43, 0x65]));
    assert_eq!((array(&back).element, &array(&back).pieces[0][..]), (Element::Uint16, &[0x21, 3, 0x54, 6][..]));
}

#[test]
fn v2_images_keep_times_and_what_the_user_said() {
    let mut out = encoder(Protocol::DectrisV2);
    let mut image = image_of(2, vec![("a", packed(Packing::Lz4, &[2, 8])), ("b", plain(&[2, 8], Element::Uint16, &PIXELS))]);
    image.times = Some(ImageTimes { start_ns: 10, stop_ns: 30, real_ns: 15 });
    image.header_json = r#"{"series_date":"2024","user_data":[1,{"x":null}]}"#.into();
    let back = read_back(Protocol::DectrisV2, one(out.image(&image).unwrap()));
    assert_eq!((back.times, &back.header_json, &back.channels), (image.times, &image.header_json, &image.channels));
    // Data from another protocol goes out as a whole.
    image.header_json = r#"{"rotation":1.5}"#.into();
    let back = read_back(Protocol::DectrisV2, one(out.image(&image).unwrap()));
    assert_eq!(back.header_json, r#"{"user_data":{"rotation":1.5}}"#);
}

#[test]
fn sls_images_are_ports_of_whole_numbers() {
    let mut out = encoder(Protocol::SlsJson);
    assert!(out.start(&sample_start()).unwrap().is_empty());
    for packing in [Packing::None, Packing::BitshuffleLz4, Packing::Lz4Block] {
        let parts = one(out.image(&image_of(1, vec![("", packed(packing, &[2, 8]))])).unwrap());
        let said = first(&parts);
        assert_eq!((&said["jsonversion"], &said["progress"], &said["fileIndex"]), (&json!(5), &json!(50.0), &json!(5)));
        let back = read_back(Protocol::SlsJson, parts);
        assert_eq!((back.number, back.is_partial), (1, false));
        assert_eq!(*array(&back), plain(&[2, 8], Element::Uint16, &PIXELS));
    }
    let ports =
        out.image(&image_of(1, vec![("a", packed(Packing::Lz4, &[2, 8])), ("b", packed(Packing::None, &[2, 8]))])).unwrap();
    let rows: Vec<(Value, Value)> =
        ports.iter().map(|parts| (first(parts)["row"].clone(), first(parts)["detshape"].clone())).collect();
    assert_eq!(rows, [(json!(0), json!([1, 2])), (json!(1), json!([1, 2]))]);
    let line =
        read_back(Protocol::SlsJson, one(out.image(&image_of(1, vec![("", plain(&[16], Element::Uint16, &PIXELS))])).unwrap()));
    assert_eq!(array(&line).shape.dimensions(), [1, 16]);
    let refused = out.image(&image_of(1, vec![("", plain(&[2, 4], Element::Float32, &PIXELS))]));
    assert!(refused.unwrap_err().contains("float32; the SLS stream has whole numbers"));
    assert!(out.image(&CommittedImage::lost(2)).unwrap().is_empty());
    let parts = one(out.end(&end()).unwrap());
    assert!(matches!(read(Protocol::SlsJson, &Message { parts }).unwrap().event, Event::End(_)));
}

#[test]
fn what_an_sls_receiver_said_is_said_again() {
    let mut out = encoder(Protocol::SlsJson);
    out.start(&SeriesStart::default()).unwrap();
    let mut image = image_of(6, vec![("", plain(&[2, 8], Element::Uint16, &PIXELS))]);
    image.status = ImageStatus::Partial;
    image.header_json =
        r#"{"frameNumber":1001,"expLength":100,"packetNumber":64,"detSpec1":9,"timestamp":2000,"modId":5,"row":1,"column":2,
        "detSpec2":3,"detSpec3":4,"detSpec4":8192,"detType":3,"version":2,"flipRows":1,"addJsonHeader":{"user":"x"}}"#
            .into();
    let said = first(&one(out.image(&image).unwrap()));
    let wanted = object(
        json!({"frameNumber": 1001, "acqIndex": 1001, "frameIndex": 6, "completeImage": 0, "packetNumber": 64, "detSpec1": 9,
        "timestamp": 2000, "modId": 5, "row": 1, "column": 2, "detSpec4": 8192, "detType": 3, "flipRows": 1, "addJsonHeader": {"user": "x"}}),
    );
    for (key, value) in wanted {
        assert_eq!(said[&key], value, "{key}");
    }
    image.header_json = Bytes::new();
    image.times = Some(ImageTimes { start_ns: 1000, stop_ns: 1200, real_ns: 200 });
    let said = first(&one(out.image(&image).unwrap()));
    assert_eq!((&said["frameNumber"], &said["timestamp"], &said["expLength"]), (&json!(6), &json!(10), &json!(2)));
}
