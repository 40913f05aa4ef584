//! One message of each kind in each format, made by the builders. They are the seeds of the fuzz targets
//! (`fuzz/seeds/`), and other people's readers are tested with them.

use konkordia_core::array::PackedBits;
use konkordia_core::sls_header::SlsHeader;
use konkordia_wire::cbor::Item;
use konkordia_wire::stream::{Element, Packing, Pixels, Shape};
use konkordia_wire::{dectris_v1, dectris_v2, sls_json, stins};

/// Name and parts.
pub type Sample = (&'static str, Vec<Vec<u8>>);

/// Bitshuffle with LZ4 of 16 two-byte elements that are 0: header, length of the block, the block.
const PACKED: [u8; 27] = [0, 0, 0, 0, 0, 0, 0, 32, 0, 0, 0, 32, 0, 0, 0, 11, 0x1F, 0, 1, 0, 7, 0x50, 0, 0, 0, 0, 0];
const WORDS: [u8; 24] = [1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 5, 0, 0, 0, 6, 0, 0, 0];
const USER_TEXT: &[u8] = b"\x62{}";

fn pixels(dimensions: &[u64], element: Element, packing: Packing, data: &'static [u8]) -> Pixels<'static> {
    Pixels::new_checked(Shape::new(dimensions).unwrap(), element, packing, data, 1000).unwrap()
}

/// Stream V1.
pub fn dectris_v1() -> Vec<Sample> {
    use dectris_v1::{Detail, Header, Image, Message, Tables, Times};
    let config: serde_json::Map<_, _> =
        serde_json::from_str(r#"{"bit_depth_image":16,"nimages":2,"photon_energy":8000.0,"trigger_mode":"ints"}"#).unwrap();
    let table = |element| pixels(&[2, 3], element, Packing::None, &WORDS);
    let tables = Tables {
        flat_field: Some(table(Element::Float32)),
        pixel_mask: Some(table(Element::Uint32)),
        count_rate: Some(table(Element::Float32)),
        not_read: vec![],
    };
    let header = |detail, appendix| Message::Header(Header { series: 7, detail, appendix });
    let times = Times { real_ns: 994_339_020, start_ns: 4_843_213_806_960, stop_ns: 4_844_213_800_980 };
    let image = |pixels, appendix| Message::Image(Image { series: 7, frame: 1, pixels, times, appendix });
    let all = [
        ("header_none", header(Detail::None, None)),
        ("header_basic", header(Detail::Basic(config.clone()), Some(b"{}".as_slice()))),
        ("header_all", header(Detail::All(config, Box::new(tables)), Some(br#"{"filename":"a.h5","rotate":0}"#))),
        ("image_bslz4", image(pixels(&[2, 8], Element::Uint16, Packing::BitshuffleLz4, &PACKED), Some(b"appendix"))),
        ("image_lz4", image(pixels(&[2, 8], Element::Uint16, Packing::Lz4Block, &PACKED[16..]), None)),
        ("image_raw", image(pixels(&[2, 3], Element::Uint32, Packing::None, &WORDS), None)),
        ("end", Message::SeriesEnd { series: 7 }),
    ];
    all.into_iter().map(|(name, message)| (name, super::owned(&message.build().unwrap()))).collect()
}

/// Stream V2.
pub fn dectris_v2() -> Vec<Sample> {
    use dectris_v2::{Image, Message, Seconds, Series};
    let series = Series { id: 7, unique_id: "01HRCJF83SA63WH8M000000000" };
    let raw = pixels(&[2, 3], Element::Uint32, Packing::None, &WORDS);
    let packed = pixels(&[2, 8], Element::Uint16, Packing::BitshuffleLz4, &PACKED);
    let lz4 = pixels(&[2, 8], Element::Uint16, Packing::Lz4, &PACKED);
    let image = |channels| {
        Message::Image(Image {
            series,
            image_id: 1,
            real_time: Seconds::new(49_716_951, 50_000_000),
            series_date: Some("2024-03-07T14:43:31.193+01:00"),
            start_time: Seconds::new(0, 50_000_000),
            stop_time: Seconds::new(49_999_701, 50_000_000),
            user_data: Some(Item::new_checked(USER_TEXT).unwrap()),
            channels,
        })
    };
    let all = [
        ("start", Message::Start(Box::new(start(series)))),
        ("image_one", image(vec![("threshold_1", packed)])),
        ("image_three", image(vec![("threshold_1", packed), ("threshold_2", lz4), ("difference", raw)])),
        ("end", Message::End(series)),
    ];
    let build = |message: Message| {
        let mut bytes = Vec::new();
        message.build(&mut bytes).unwrap();
        vec![bytes]
    };
    all.into_iter().map(|(name, message)| (name, build(message))).collect()
}

fn start(series: dectris_v2::Series<'static>) -> dectris_v2::Start<'static> {
    let table = |element| pixels(&[2, 3], element, Packing::None, &WORDS);
    dectris_v2::Start {
        tables_not_read: vec![],
        series,
        arm_date: Some("2024-03-07T14:43:31.193+01:00"),
        beam_center_x: Some(1.5),
        beam_center_y: Some(0.1),
        channels: vec!["threshold_1", "threshold_2"],
        count_time_s: Some(0.9999999),
        countrate_correction_enabled: Some(true),
        countrate_correction_table: Some(pixels(&[6], Element::Uint32, Packing::None, &WORDS)),
        detector_description: Some("Dectris EIGER1 Si 1M"),
        detector_serial_number: Some("E-02-0153"),
        detector_translation_m: Some([0.0, -0.5, 1.25]),
        flat_field: vec![("threshold_1", table(Element::Float32))],
        flat_field_enabled: Some(true),
        frame_time_s: Some(1.0),
        goniometer: vec![dectris_v2::Axis { name: "omega", increment: 0.1, start: -90.0 }],
        image_element: Some(Element::Uint32),
        image_size_x: Some(3),
        image_size_y: Some(2),
        incident_energy_ev: Some(8000.0),
        incident_wavelength_angstrom: Some(1.5498024804150032),
        number_of_images: Some(2),
        pixel_mask: vec![("threshold_1", table(Element::Uint32)), ("threshold_2", table(Element::Uint32))],
        pixel_mask_enabled: Some(false),
        pixel_size_x_m: Some(75e-6),
        pixel_size_y_m: Some(75e-6),
        saturation_value: Some(u64::from(u32::MAX)),
        sensor_material: Some("Si"),
        sensor_thickness_m: Some(0.00045),
        threshold_energy_ev: vec![("threshold_1", 4000.0), ("threshold_2", 8000.0)],
        user_data: Some(Item::new_checked(USER_TEXT).unwrap()),
        virtual_pixel_interpolation_enabled: Some(true),
    }
}

/// STINS.
pub fn stins() -> Vec<Sample> {
    use stins::{Header, Image, Message};
    let map = |text: &str| serde_json::from_str::<serde_json::Map<_, _>>(text).unwrap();
    let header = |filename: Option<&'static str>, extra, metadata| {
        Message::Header(Header { msg_number: 3, filename: filename.map(Into::into), extra: map(extra), metadata })
    };
    let image = |shape: &[u64], pieces, discard| {
        let shape = Shape::new(shape).unwrap();
        Message::Image(Image { msg_number: 4, frame: 0, shape, pieces, discard, first_part: &[] })
    };
    let packed = pixels(&[1, 2, 8], Element::Uint16, Packing::BitshuffleLz4, &PACKED);
    let all = [
        ("header", header(Some("a.h5"), "{}", None)),
        ("header_metadata", header(None, r#"{"user":"x"}"#, Some(map(r#"{"exptime":0.1,"sample":{"name":"lysozyme"}}"#)))),
        ("image_raw", image(&[2, 3], vec![pixels(&[2, 3], Element::Float32, Packing::None, &WORDS)], true)),
        (
            "image_mono12p",
            image(&[2, 8], vec![pixels(&[2, 8], Element::Packed(PackedBits::Twelve), Packing::None, &WORDS)], false),
        ),
        ("image_line", image(&[12], vec![pixels(&[12], Element::Uint16, Packing::None, &WORDS)], false)),
        ("image_three", image(&[3, 2, 8], vec![packed; 3], false)),
        ("end", Message::SeriesEnd { msg_number: 9 }),
    ];
    all.into_iter().map(|(name, message)| (name, super::owned(&message.build().unwrap()))).collect()
}

/// The slsReceiver's JSON.
pub fn sls_json() -> Vec<Sample> {
    use sls_json::{Header, Image, Message};
    let frame = SlsHeader {
        frame_number: 1001,
        timestamp_100ns: 123_456,
        bunch_id: 77,
        exposure_length: 100,
        daq_info: 0x300,
        module_id: 5,
        row: 1,
        column: 2,
    };
    let header = Header {
        version: 5,
        bits: 16,
        columns: 8,
        rows: 2,
        ports: (1, 2),
        file_index: 3,
        frame_index: 1,
        progress_percent: 12.5,
        file_name: "/data/run".into(),
        complete: true,
        packets_caught: 128,
        frame,
        detector_specific_2: 0,
        detector_specific_4: 8192,
        detector_type: 3,
        header_version: 2,
        flip_rows: false,
        quad: false,
        added: [("user".to_owned(), "x".into())].into_iter().collect(),
        files_roi: None,
    };
    let packed = Header {
        bits: 12,
        flip_rows: true,
        complete: false,
        added: Default::default(),
        files_roi: Some([0, 3, 0, 1]),
        ..header.clone()
    };
    let all = [
        ("image", Message::Image(Image { header, data: &[7; 32] })),
        ("image_12_bits", Message::Image(Image { header: packed, data: &WORDS })),
        ("end", Message::End { version: 5 }),
    ];
    all.into_iter().map(|(name, message)| (name, super::owned(&message.build()))).collect()
}
