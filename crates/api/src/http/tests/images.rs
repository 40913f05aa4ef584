//! Images in all formats, over HTTP; what the formats hold is tested beside them.

use super::*;
use konkordia_core::array::{Array, Element, Packing, Shape};
use konkordia_core::image::{Channel, ImageTimes, Packets, TileRecord};
use konkordia_core::ledger::ImageStatus;
use konkordia_core::plan::Compression;

pub(super) fn image(number: u64, pixels: &[u16; 6]) -> CommittedImage {
    let bytes: Vec<u8> = pixels.iter().flat_map(|pixel| pixel.to_le_bytes()).collect();
    let channel = |name: &str| Channel {
        name: name.into(),
        array: Array {
            shape: Shape::new(&[2, 3]).unwrap(),
            element: Element::Uint16,
            packing: Packing::None,
            pieces: vec![Bytes::from(bytes.clone())],
        },
    };
    CommittedImage {
        status: ImageStatus::Complete,
        channels: vec![channel("low"), channel("high")],
        times: Some(ImageTimes { start_ns: 5, stop_ns: 1_000_000_005, real_ns: 1_000_000_000 }),
        header_json: Bytes::from_static(br#"{"shutter": true}"#),
        ..CommittedImage::lost(number)
    }
}

#[tokio::test]
async fn numbers_and_images_that_are_not_there() {
    let bench = Bench::new(&["eiger"]);
    let early = bench.get("/api/v1/images/latest").await.is_problem(404, "no_image");
    assert_eq!(early["detail"], "there is no image yet");
    bench.fakes[0].show(image(4, &[1; 6]));
    bench.fakes[0].show(CommittedImage::lost(5));
    assert_eq!(bench.get("/api/v1/images").await.json(), json!({"detector": "eiger", "run": 1, "images": [4, 5]}));
    let late = bench.get("/api/v1/images/3").await.is_problem(404, "no_image");
    assert_eq!(late["detail"], "image 3 is not there; the last images are 4 to 5");
    bench.get("/api/v1/images/5").await.is_problem(404, "no_image");
    bench.get("/api/v1/images/newest").await.is_problem(400, "bad_path");
    bench.get("/api/v1/images/-1").await.is_problem(400, "bad_path");
    bench.get("/api/v1/images/%FF").await.is_problem(400, "bad_path");
    bench.get("/api/v1/images/latest?format=jpeg").await.is_problem(400, "bad_query");
    bench.get("/api/v1/images/latest?max_size=8").await.is_problem(400, "bad_query");
    let channel = bench.get("/api/v1/images/latest?channel=2").await.is_problem(404, "no_channel");
    assert!(channel["detail"].as_str().unwrap().contains("0 (low), 1 (high)"));
}

#[tokio::test]
async fn an_image_comes_in_every_format_with_its_number_age_and_run() {
    let bench = Bench::new(&["eiger"]);
    let pixels = [0, 1, 2, 300, 65535, 5];
    bench.fakes[0].show(image(4, &pixels));
    let bytes: Vec<u8> = pixels.iter().flat_map(|pixel| pixel.to_le_bytes()).collect();
    let kinds = [
        ("png", "image/png", &b"\x89PNG\r\n\x1a\n"[..]),
        ("tiff", "image/tiff", b"II*\0"),
        ("npy", "application/x-npy", b"\x93NUMPY\x01\x00"),
        ("cbor", "application/cbor", b"\xd9\xd9\xf7"),
        ("raw", "application/octet-stream", &bytes[..]),
        ("json", "application/json", b"{\"detector\":\"eiger\""),
    ];
    for (format, kind, start) in kinds {
        let answer = bench.get(&format!("/api/v1/images/latest?format={format}")).await;
        assert_eq!((answer.status.as_u16(), answer.header("content-type")), (200, kind), "{}", answer.text());
        assert!(answer.bytes.starts_with(start), "{format}: {:?}", answer.bytes);
        assert_eq!(answer.header("content-length"), answer.bytes.len().to_string());
        let facts = ["x-konkordia-image", "x-konkordia-age-ms", "x-konkordia-run"].map(|name| answer.header(name).to_string());
        assert_eq!(facts, ["4", "1500", "1"], "{format}");
    }
    let raw = bench.get("/api/v1/images/4?format=raw&channel=high").await;
    let facts = ["x-konkordia-shape", "x-konkordia-dtype", "x-konkordia-compression"].map(|name| raw.header(name).to_string());
    assert_eq!(facts, ["2,3", "uint16", "none"]);
    assert_eq!(raw.bytes, bytes);
    let facts = bench.get("/api/v1/images/4?format=json").await.json();
    assert_eq!(
        (facts["status"].as_str(), facts["real_ns"].as_u64(), facts["header"]["shutter"].as_bool()),
        (Some("complete"), Some(1_000_000_000), Some(true))
    );
    assert_eq!(
        facts["channels"][1],
        json!({"name": "high", "shape": [2, 3], "dtype": "uint16", "compression": "none", "packed_bytes": 12})
    );
    assert_eq!(bench.get("/api/v1/images/latest").await.header("content-type"), "image/png", "a browser shows it");
}

#[tokio::test]
async fn an_image_that_would_take_too_much_memory_is_refused_before_it_is_taken() {
    let bench = Bench::with(
        &["eiger"],
        Settings { limits: Limits { image_memory_mib: 4, ..Limits::default() }, ..Settings::on(loopback()) },
    );
    let mut huge = image(1, &[0; 6]);
    huge.channels[0].array.shape = Shape::new(&[1 << 30, 1 << 30]).unwrap();
    huge.channels[0].array.packing = Packing::BitshuffleLz4;
    bench.fakes[0].show(huge);
    bench.get("/api/v1/images/1?format=npy").await.is_problem(422, "bad_image");
    assert_eq!(bench.get("/api/v1/images/1?format=json").await.status, 200);
    assert_eq!(bench.shared.image_mib.available_permits(), 4);
}

#[tokio::test]
async fn memory_of_answers_is_given_back() {
    let bench = Bench::new(&["eiger"]);
    bench.fakes[0].show(image(1, &[3; 6]));
    let before = bench.shared.image_mib.available_permits();
    for _ in 0..20 {
        assert_eq!(bench.get("/api/v1/images/1?format=npy").await.status, 200);
    }
    let mut broken = image(2, &[3; 6]);
    broken.channels[0].array.packing = Packing::BitshuffleLz4;
    bench.fakes[0].show(broken);
    bench.get("/api/v1/images/2?format=npy").await.is_problem(422, "bad_image");
    assert_eq!(bench.shared.image_mib.available_permits(), before);
    assert_eq!(bench.shared.decoders.available_permits(), super::super::state::DECODERS_MAX);
}

#[tokio::test]
async fn many_who_ask_for_an_image_cost_one_unpacking() {
    let bench = Bench::new(&["eiger"]);
    let mut packed = image(1, &[3; 6]);
    for channel in &mut packed.channels {
        let array = &mut channel.array;
        let size = konkordia_kernels::ElementSize::Two;
        let isa = konkordia_kernels::Isa::detect();
        let bytes = konkordia_kernels::codec::compress(Compression::Bslz4, isa, size, &array.pieces[0], 8192);
        (array.packing, array.pieces) = (Packing::BitshuffleLz4, vec![bytes.into()]);
    }
    bench.fakes[0].show(packed);
    let planes = Arc::clone(&bench.fakes[0].ring.images.lock().unwrap()[0]);
    assert_eq!(bench.get("/api/v1/images/1?format=raw").await.status, 200);
    assert_eq!(planes.unpacked(), 0, "who wants it packed gets it packed");
    let mut bodies = Vec::new();
    for number in ["latest", "1"] {
        for format in ["npy", "tiff", "png"] {
            let path = format!("/api/v1/images/{number}?format={format}");
            let (one, two) = tokio::join!(bench.get(&path), bench.get(&path));
            assert_eq!((one.status.as_u16(), &one.bytes), (200, &two.bytes), "{path}");
            bodies.push(one.bytes);
        }
    }
    assert_eq!(bodies[..3], bodies[3..]);
    assert!(bodies[0].ends_with(&[3u8, 0].repeat(6)));
    assert_eq!(planes.unpacked(), 1, "the second channel was not asked for");
    let bytes = planes.plane(0).unwrap().bytes.as_ptr();
    assert_eq!(planes.plane(0).unwrap().bytes.as_ptr(), bytes, "it is unpacked once");
}

#[tokio::test]
async fn every_tile_that_lacks_packets_has_its_bit() {
    let bench = Bench::new(&["eiger"]);
    let mut tiles = vec![TileRecord { packets: 64, ..TileRecord::default() }; 72];
    (tiles[0].packets, tiles[71].packets) = (0, 63);
    let packets = Packets { tiles, packets_per_tile: 64, ..Packets::default() };
    bench.fakes[0].show(CommittedImage { packets: Some(packets), ..image(1, &[3; 6]) });
    let text = bench.get("/api/v1/images/1?format=json").await.text();
    assert!(text.contains(&format!("\"missing_parts\":{},", 1u128 << 71 | 1)), "{text}");
}
