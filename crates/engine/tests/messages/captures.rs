//! Messages of real detectors, if the captures are there (`../shared/data`): their meaning, and that their pixels leave
//! as they came.

#[path = "../../../../tests/skip.rs"]
mod skip;

use super::*;
use konkordia_wire::{dectris_v2, stins, zmsg};

/// The messages of a capture; where it is absent the test is skipped.
fn capture(name: &str) -> Option<Vec<Message>> {
    let file = std::fs::read(skip::data(&format!("eiger-streams/{name}"))?).unwrap();
    let (mut reader, mut parts) = (zmsg::Reader::new(file.as_slice(), zmsg::Bounds::default()), zmsg::Message::default());
    let mut all = Vec::new();
    while reader.read(&mut parts).unwrap() {
        all.push(message(&parts.parts()));
    }
    Some(all)
}

/// Encodes the image and reads the last message of it again with the decoder of `protocol`.
fn again(encoder: &mut dyn MessageEncoder, protocol: Protocol, image: &CommittedImage) -> ImagePart {
    let parts = encoder.image(image).unwrap().pop().unwrap();
    part(read(protocol, &Message { parts }).unwrap())
}

#[test]
fn an_eiger_1m_of_stream_v1() {
    let Some(messages) = capture("eiger-1m-stream-v1.zmsg") else { return };
    let mut reader = reader(Protocol::DectrisV1);
    let (key, header) = start(reader.read(&messages[0]).unwrap());
    assert_eq!((key, header.images_planned, header.image_size), (SeriesKey(14), Some(100_000), Some([1065, 1030])));
    assert_eq!((header.filename.as_deref(), header.facts.energy_kev, header.facts.bit_depth), (None, Some(8.0), Some(16)));
    let mask = header.channels[0].pixel_mask.as_ref().unwrap();
    assert_eq!((mask.shape.dimensions(), mask.packed_bytes()), ([1065, 1030].as_slice(), 1065 * 1030 * 4));
    let mut outgoing = encoder(Protocol::DectrisV2);
    let first = outgoing.start(&header).unwrap();
    let (_, resent) = start(read(Protocol::DectrisV2, &Message { parts: first[0].clone() }).unwrap());
    assert_eq!(resent.channels[0].pixel_mask.as_ref().unwrap().pieces, mask.pieces);
    assert_eq!((&resent.facts.detector_serial, resent.element), (&header.facts.detector_serial, Some(Element::Uint32)));
    assert_eq!(messages.len(), 10);
    for (n, message) in messages[1..].iter().enumerate() {
        let came = part(reader.read(message).unwrap());
        assert_eq!(
            (came.number, array(&came).packing, array(&came).element),
            (n as u64, Packing::BitshuffleLz4, Element::Uint32)
        );
        let sent = again(&mut *outgoing, Protocol::DectrisV2, &image(came.clone()));
        assert_eq!((sent.number, sent.times), (came.number, came.times));
        assert_eq!((array(&sent), &*sent.channels[0].name), (array(&came), "threshold_1"));
    }
}

#[test]
fn an_eiger_1m_of_stream_v2() {
    let Some(messages) = capture("eiger-1m-stream-v2.zmsg") else { return };
    let mut reader = reader(Protocol::DectrisV2);
    let (_, header) = start(reader.read(&messages[0]).unwrap());
    assert_eq!((header.images_planned, header.element, header.unique_id.len()), (Some(10), None, 26));
    assert_eq!((header.metadata["user_data"]["sample_name"].as_str(), header.filename.as_deref()), (Some("lyso"), None));
    assert!(!header.metadata.contains_key("flatfield"));
    assert_eq!(header.metadata["countrate_correction_lookup_table"].as_array().unwrap().len(), 65536);
    let mut outgoing = encoder(Protocol::DectrisV2);
    assert!(outgoing.start(&header).unwrap().is_empty(), "no type is announced, so it comes with the first image");
    for (n, message) in messages[1..11].iter().enumerate() {
        let came = part(reader.read(message).unwrap());
        let mut sent = outgoing.image(&image(came.clone())).unwrap();
        assert_eq!(sent.len(), if n == 0 { 2 } else { 1 });
        let last = part(read(Protocol::DectrisV2, &Message { parts: sent.pop().unwrap() }).unwrap());
        assert_eq!((last.number, &last.channels, last.times), (n as u64, &came.channels, came.times));
        if let Some(first) = sent.pop() {
            let (key, resent) = start(read(Protocol::DectrisV2, &Message { parts: first }).unwrap());
            let wanted = SeriesStart { element: Some(Element::Uint32), ..header.clone() };
            assert_eq!((key, resent.metadata["user_data"].clone()), (SeriesKey(16), header.metadata["user_data"].clone()));
            let without = |start: SeriesStart| SeriesStart { metadata: Default::default(), ..start };
            assert_eq!(without(resent), without(wanted), "facts, tables and thresholds");
        }
    }
    assert!(matches!(reader.read(&messages[11]).unwrap().event, Event::End(SeriesKey(16))));
}

#[test]
fn three_channels_stay_three() {
    let Some(messages) = capture("eiger2-500k-3channel-stream-v2.zmsg") else { return };
    let mut reader = reader(Protocol::DectrisV2);
    let (mut v2, mut stins, mut sls) = (encoder(Protocol::DectrisV2), encoder(Protocol::Stins), encoder(Protocol::SlsJson));
    let mut images = 0;
    for message in &messages {
        let Event::Part(came) = reader.read(message).unwrap().event else { continue };
        images += 1;
        let names: Vec<&str> = came.channels.iter().map(|channel| &*channel.name).collect();
        assert_eq!(names, ["threshold_1", "threshold_2", "difference"]);
        let image = image(*came);
        let sent = again(&mut *v2, Protocol::DectrisV2, &image);
        assert_eq!(sent.channels, image.channels);
        let sent = again(&mut *stins, Protocol::Stins, &image);
        let stack = array(&sent);
        assert_eq!((stack.pieces.len(), stack.shape.dimensions()), (3, [3, 514, 1030].as_slice()));
        let packing = image.channels[0].array.packing;
        assert_eq!(stack.packing == Packing::BitshuffleLz4, packing == Packing::BitshuffleLz4, "lz4 has no name there");
        let ports = sls.image(&image).unwrap();
        assert_eq!(ports.len(), 3);
        for (n, parts) in ports.into_iter().enumerate() {
            let port = part(read(Protocol::SlsJson, &Message { parts }).unwrap());
            assert_eq!((port.number, array(&port).packing), (image.number, Packing::None));
            if packing == Packing::Lz4 {
                assert_eq!(array(&port).pieces[0], stack.pieces[n], "unpacked on two ways");
            }
        }
    }
    assert_eq!(images, 4);
}

#[test]
fn what_is_sent_is_shared_and_not_copied() {
    let Some(messages) = capture("eiger-1m-stream-v1.zmsg") else { return };
    let image = image(part(read(Protocol::DectrisV1, &messages[1]).unwrap()));
    let parts = encoder(Protocol::Stins).image(&image).unwrap().remove(0);
    assert_eq!(parts[1].as_ptr(), messages[1].parts[2].as_ptr());
    let slices: Vec<&[u8]> = parts.iter().map(|part| &part[..]).collect();
    assert!(matches!(stins::Message::parse(&slices, &Bounds::default()), Ok(stins::Message::Image(_))));
    let parts = encoder(Protocol::DectrisV2).image(&image).unwrap().pop().unwrap();
    let read = dectris_v2::Message::parse(&[&parts[0]], &Bounds::default());
    assert!(matches!(read, Ok(dectris_v2::Message::Image(_))));
}

/// Shape, sum, and sum of (pixel times its position modulo 1000003) of an image of int32.
fn sums(image: &ImagePart) -> (Vec<u64>, i64, i64) {
    let array = array(image);
    let pixels = || array.pieces[0].as_chunks().0.iter().map(|bytes| i64::from(i32::from_le_bytes(*bytes)));
    // As numpy does it: the remainder is never below 0.
    let weighted = pixels().zip(0i64..).map(|(pixel, at)| (pixel * at).rem_euclid(1_000_003)).sum();
    (array.shape.dimensions().to_vec(), pixels().sum(), weighted)
}

#[test]
fn files_of_pilatus_have_the_pixels_that_fabio_reads() {
    let Some(tiff) = skip::data("ceo2/CeO2_Pilatus1M.tif") else { return };
    let Some(packed) = skip::data("thaumatin/thau_3_2_0001.cbf.bz2") else { return };
    let tiff = std::fs::read(tiff).unwrap();
    let Ok(cbf) = std::process::Command::new("bzip2").arg("-dc").arg(packed).output() else {
        return skip::skipped("the program bzip2 is not there");
    };
    assert!(cbf.status.success(), "{cbf:?}");
    let image = part(read(Protocol::Files, &message(&[b"CeO2_Pilatus1M.tif", &tiff[..]])).unwrap());
    assert_eq!(sums(&image), (vec![1043, 981], 126_770_499, 509_591_326_720));
    let start = image.start.unwrap();
    assert_eq!((start.facts.detector_distance_m, start.facts.beam_center_y_px), (Some(0.21143), Some(515.77)));
    assert_eq!((start.facts.saturation_value, start.channels[0].threshold_energy_ev), (Some(1_097_223), Some(15000.0)));
    let image = part(read(Protocol::Files, &message(&[b"thau_3_2_0001.cbf", &cbf.stdout[..]])).unwrap());
    assert_eq!(sums(&image), (vec![2527, 2463], 20_608_414, 2_874_349_505_715));
    let start = image.start.unwrap();
    assert_eq!((start.facts.detector_distance_m, start.facts.beam_center_x_px), (Some(0.351), Some(1261.61)));
    assert_eq!((start.filename.as_deref(), &start.metadata["date"]), (Some("thau_3_2"), &"2019-09-11T13:20:28.989".into()));
}
