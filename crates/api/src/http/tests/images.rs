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
        let bytes = konkordia_kernels::codec::compress(Compression::BSLZ4, isa, size, &array.pieces[0], 8192);
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

#[tokio::test]
async fn sums_and_maxima_come_as_files_of_all_pixels() {
    let bench = Bench::new(&["eiger"]);
    for number in 3..6 {
        bench.fakes[0].show(image(number, &[number as u16, 0, 10, 65534, 65535, 65532]));
    }
    let word = |number: i64| number.to_le_bytes();
    // Masked, missing and saturated pixels have the special values of the type.
    let of_sum = [12, 0, 30, i64::MIN, i64::MIN + 2, i64::MAX].map(word).concat();
    let sum = bench.get("/api/v1/images/latest?stack=sum&images=10&format=npy").await;
    assert!(sum.bytes.ends_with(&of_sum) && sum.bytes.windows(3).any(|bytes| bytes == b"<i8"), "{}", sum.text());
    let facts = ["x-konkordia-image", "x-konkordia-stack-images", "x-konkordia-stack-first", "content-disposition"];
    let facts = facts.map(|name| sum.header(name).to_string());
    assert_eq!(facts, ["5", "3", "3", "inline; filename=\"sum_of_images_3-5.npy\""]);
    let of_maximum = [5, 0, 10, i64::MIN, i64::MIN + 2, i64::MAX].map(word).concat();
    let maximum = bench.get("/api/v1/images/5?stack=maximum&images=2&channel=high&format=npy").await;
    assert!(maximum.bytes.ends_with(&of_maximum) && maximum.header("x-konkordia-stack-first") == "4");
    for (format, start) in [("tiff", &b"II*\0"[..]), ("png", b"\x89PNG")] {
        assert!(bench.get(&format!("/api/v1/images/5?stack=sum&images=2&format={format}")).await.bytes.starts_with(start));
    }
    for wrong in ["stack=sum", "images=5", "stack=sum&images=1", "stack=sum&images=101", "stack=mean&images=5"] {
        bench.get(&format!("/api/v1/images/5?{wrong}")).await.is_problem(400, "bad_query");
    }
    for format in ["json", "raw", "cbor"] {
        let refused = bench.get(&format!("/api/v1/images/5?stack=sum&images=2&format={format}")).await;
        assert!(refused.is_problem(400, "bad_query")["detail"].as_str().is_some_and(|detail| detail.contains("npy")));
    }
    let why = bench.get("/api/v1/images/5?format=json").await.json()["no_spots"].clone();
    assert!(why.as_str().is_some_and(|why| why.contains("not analysed")), "{why}");
}

#[tokio::test]
async fn who_has_seen_an_image_gets_one_that_he_has_not() {
    let bench = Bench::new(&["eiger"]);
    bench.fakes[0].set(DetectorState::Receiving);
    let number = async |query: &str| {
        let answer = bench.get(&format!("/api/v1/images/{query}&format=npy&facts=true")).await;
        (answer.status.as_u16(), answer.header("x-konkordia-image").to_string())
    };
    assert_eq!(number("latest?after=3").await, (204, String::new()), "there is none, and nobody waits");
    for image_number in [3, 4, 5] {
        bench.fakes[0].show(image(image_number, &[1; 6]));
    }
    assert_eq!(number("latest?after=3").await, (200, "5".into()));
    assert_eq!(number("next?after=3").await, (200, "4".into()));
    assert_eq!(number("next?after=3&run=1").await, (200, "4".into()));
    assert_eq!(number("next?run=1").await, (200, "3".into()));
    assert_eq!(number("next?after=9&run=7").await, (200, "3".into()), "any image of another run is new");
    assert_eq!(number("latest?after=5&run=1&wait_s=0.05").await.0, 204);
    let fake = Arc::clone(&bench.fakes[0]);
    let shows = async move {
        tokio::time::sleep(Duration::from_millis(50)).await;
        fake.show(image(6, &[1; 6]));
    };
    let (found, ()) = tokio::join!(number("next?after=5&run=1&wait_s=30"), shows);
    assert_eq!(found, (200, "6".into()));
    let fake = Arc::clone(&bench.fakes[0]);
    let ends = async move {
        tokio::time::sleep(Duration::from_millis(50)).await;
        fake.set(DetectorState::Idle);
    };
    let began = Instant::now();
    let (found, ()) = tokio::join!(number("latest?after=6&run=1&wait_s=30"), ends);
    assert_eq!(found.0, 204);
    assert!(began.elapsed() < Duration::from_secs(10), "the end of the run ends the wait");
    for bad in [
        "7?after=3",
        "next?format=npy",
        "latest?wait_s=1",
        "latest?after=1&wait_s=601",
        "latest?after=-1",
        "latest?after=1&file=a.h5",
    ] {
        bench.get(&format!("/api/v1/images/{bad}")).await.is_problem(400, "bad_query");
    }
}

#[tokio::test]
async fn facts_come_with_the_pixels_in_ascii_and_without_what_may_be_long() {
    let bench = Bench::new(&["\u{3bb}-\u{1f52c}"]);
    bench.fakes[0].show(image(4, &[1; 6]));
    let answer = bench.get("/api/v1/images/latest?format=npy&facts=true").await;
    let facts: Value = serde_json::from_str(answer.header("x-konkordia-facts")).unwrap();
    let mut whole = bench.get("/api/v1/images/latest?format=json").await.json();
    whole["header"] = Value::Null;
    assert_eq!(facts, whole);
    assert_eq!(facts["detector"], "\u{3bb}-\u{1f52c}");
    assert_eq!(bench.get("/api/v1/images/latest?format=npy").await.header("x-konkordia-facts"), "");
}
