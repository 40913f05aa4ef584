use super::*;
use std::sync::Arc;

const P: Protocol = Protocol::Files;
const CBF: &[u8] = include_bytes!("../../../../fuzz/seeds/cbf/fabio_pilatus");
const EDF: &[u8] = include_bytes!("../../../../fuzz/seeds/edf/fabio_uint16");
const TIFF: &[u8] = include_bytes!("../../../../fuzz/seeds/tiff/fabio_int32");

fn file(name: &str, content: &[u8]) -> ImagePart {
    part(read(P, &message(&[name.as_bytes(), content])).unwrap())
}

fn int32(data: &[u8]) -> Vec<i32> {
    data.as_chunks().0.iter().map(|bytes| i32::from_le_bytes(*bytes)).collect()
}

#[test]
fn a_cbf_file_is_unpacked_and_its_header_read() {
    let image = file("/ramdisk/thau_3_2_00012.cbf", CBF);
    let array = array(&image);
    assert_eq!((array.element, array.packing, array.shape.dimensions()), (Element::Int32, Packing::None, [3, 4].as_slice()));
    // The pixels that were given to fabio.
    let pixels = [1, -2, 300, 40000, 5, -70000, 7, 2147483647, 0, -2147480000, 127, -128];
    assert_eq!(int32(&array.pieces[0]), pixels);
    let start = image.start.unwrap();
    assert_eq!((start.filename.as_deref(), start.image_size, image.number), (Some("thau_3_2"), Some([3, 4]), 0));
    let facts = &start.facts;
    assert_eq!((facts.detector_description.as_deref(), facts.detector_serial.as_deref()), (Some("PILATUS3 6M"), Some("60-0119")));
    assert_eq!((facts.pixel_size_m, facts.sensor_material.as_deref()), (Some([172e-6, 172e-6]), Some("Si")));
    assert_eq!((facts.sensor_thickness_m, facts.count_time_s, facts.frame_time_s), (Some(0.00045), Some(0.019), Some(0.02)));
    assert_eq!((facts.saturation_value, facts.detector_distance_m), (Some(115_897), Some(0.351)));
    assert_eq!((facts.beam_center_x_px, facts.beam_center_y_px), (Some(1261.61), Some(1306.96)));
    assert!((facts.energy_kev.unwrap() - 12.80048).abs() < 1e-4, "0.96859 Angstrom");
    assert_eq!((start.channels[0].threshold_energy_ev, &start.metadata["first_number"]), (Some(6400.0), &12.into()));
    let said: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(&image.header_json).unwrap();
    assert_eq!((&said["Wavelength"], &said["file"]), (&"0.96859 A".into(), &"/ramdisk/thau_3_2_00012.cbf".into()));
}

#[test]
fn pixels_of_a_pilatus_below_zero_are_its_mask() {
    let start = file("/ramdisk/thau_3_2_00012.cbf", CBF).start.unwrap();
    assert_eq!(start.facts.underload_value, Some(0));
    let mask = start.channels[0].pixel_mask.as_ref().unwrap();
    assert_eq!((mask.element, mask.packing, mask.shape.dimensions()), (Element::Uint32, Packing::None, [3, 4].as_slice()));
    // 1, -2, 300, 40000 / 5, -70000, 7, 2147483647 / 0, -2147480000, 127, -128: -2 and whatever else is below -3 is
    // dead.
    assert_eq!(int32(&mask.pieces[0]), [0, 2, 0, 0, 0, 2, 0, 0, 0, 2, 0, 2]);
    // Bytes of the pixels -1 and -3, which the file packs as differences of one byte each.
    let at = CBF.windows(4).position(|four| four == [0x0C, 0x1A, 0x04, 0xD5]).unwrap() + 4;
    let mut marked = CBF.to_vec();
    // The first pixel from 1 to -1, the second from there to -3, the rest as far away as before.
    marked[at] = -1i8 as u8;
    marked[at + 1] = -2i8 as u8;
    let start = file("/ramdisk/thau_3_2_00013.cbf", &marked).start.unwrap();
    let mask = int32(&start.channels[0].pixel_mask.as_ref().unwrap().pieces[0]);
    assert_eq!(mask[..2], [1, 16], "a gap and a noisy pixel");
    // Files without the lines of a Pilatus may have measurements below zero.
    for (name, content) in [("a_1.tif", TIFF), ("b_1.edf", EDF)] {
        let start = file(name, content).start.unwrap();
        assert_eq!((start.facts.underload_value, &start.channels[0].pixel_mask), (None, &None), "{name}");
    }
}

#[test]
fn tiff_and_edf_files_share_their_bytes() {
    for (name, content, element) in [("a_1.tif", TIFF, Element::Int32), ("b_1.edf", EDF, Element::Uint16)] {
        let message = message(&[name.as_bytes(), content]);
        let image = part(read(P, &message).unwrap());
        assert_eq!((array(&image).element, array(&image).shape.dimensions()), (element, [2, 3].as_slice()));
        assert!(message.parts[1].as_ptr_range().contains(&array(&image).pieces[0].as_ptr()), "not copied");
    }
    let edf = file("b_1.edf", EDF).start.unwrap();
    let facts = &edf.facts;
    assert!((facts.energy_kev.unwrap() - 12.398419843320026).abs() < 1e-9, "1e-10 m");
    assert_eq!(
        (facts.detector_distance_m, facts.beam_center_x_px, facts.pixel_size_m),
        (Some(0.2), Some(1.5), Some([172e-6, 172e-6]))
    );
    assert_eq!(edf.metadata["title"], "a test");
    assert_eq!(int32(&array(&file("a", TIFF)).pieces[0]), [0, -1000, -2000, -3000, -4000, -5000]);
}

#[test]
fn names_make_series_and_numbers() {
    let mut reader = reader(P);
    let mut next = |name: &str| reader.read(&message(&[name.as_bytes(), TIFF])).map(part).map_err(|refusal| refusal.to_string());
    let first = next("lyso_0007.tif").unwrap();
    let second = next("lyso_0009.tif").unwrap();
    assert_eq!((first.number, second.number, first.series == second.series), (0, 2, true));
    assert!(Arc::ptr_eq(first.start.as_ref().unwrap(), second.start.as_ref().unwrap()));
    assert!(next("lyso_0006.tif").unwrap_err().contains("number 6 comes before 7"));
    let other = next("thau_0001.tif").unwrap();
    assert_eq!((other.number, other.start.unwrap().filename.as_deref()), (0, Some("thau")));
    assert_ne!(other.series, first.series);
    let again = next("thau_0001.tif").unwrap();
    assert_ne!(again.series, other.series, "the first number again begins another series");
    assert_eq!(next("thau_0002.tif").unwrap().series, again.series);
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let why = |content: &[u8]| refusal(P, &[&b"a_1.cbf"[..], content]);
    assert!(why(b"").contains("part 2 of the message: it is not a CBF, TIFF or EDF file"));
    assert!(why(b"###CBF").contains("part 2 of the message: no pixels begin"));
    assert!(why(&EDF[..100]).contains("header does not end"));
    assert!(why(&TIFF[..100]).contains("directory"));
    assert!(refusal(P, &["a_1.cbf"]).contains("a name and a content, but 1 parts came"));
    assert!(refusal(P, &[&[0xFF, 0xFE][..], TIFF]).contains("part 1 of the message: invalid file name"));
    assert!(refusal(P, &["a".repeat(1025).as_bytes(), TIFF]).contains("invalid file name"));
    assert!(refusal(P, &[&b"a_99999999999999999999999.tif"[..], TIFF]).contains("too large"));
    // Pixels that end too early, or go on.
    let size = CBF.windows(15).position(|part| part == b"X-Binary-Size: ").unwrap() + 15;
    let mut shorter = CBF.to_vec();
    shorter[size + 1] -= 1;
    assert!(why(&shorter).contains("pixel"), "{}", why(&shorter));
    let mut longer = CBF.to_vec();
    longer[size + 1] += 1;
    assert!(why(&longer).contains("bytes follow the last pixel"), "{}", why(&longer));
}
