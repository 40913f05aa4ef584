//! The slsReceiver's stream: what is sent comes back, both generations of names are read, wrong messages are refused
//! with the right text, and no input breaks the reader.

mod common;

use common::{any_bytes, damaged, json_of, owned, refs, samples};
use konkordia_core::sls_header::SlsHeader;
use konkordia_wire::sls_json::{Header, Image, Message};
use konkordia_wire::stream::Bounds;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

fn parse(parts: &[Vec<u8>]) -> Result<Message<'_>, String> {
    Message::parse(&refs(parts), &Bounds::default()).map_err(|refusal| refusal.to_string())
}

fn sample(name: &str) -> Vec<Vec<u8>> {
    samples::sls_json().into_iter().find(|(of, _)| *of == name).unwrap().1
}

#[test]
fn keys_stand_in_the_order_of_the_receiver() {
    let first = sample("image");
    assert!(first[0].ends_with(b"}\n"));
    let object: Map<String, Value> = serde_json::from_slice(&first[0]).unwrap();
    let keys: Vec<_> = object.keys().map(String::as_str).collect();
    let wanted = "jsonversion bitmode fileIndex detshape shape size acqIndex frameIndex progress fname data completeImage frameNumber \
                  expLength packetNumber detSpec1 timestamp modId row column detSpec2 detSpec3 detSpec4 detType version flipRows quad \
                  addJsonHeader rx_roi";
    assert_eq!(keys.join(" "), wanted);
    assert_eq!((&object["shape"], &object["size"], &object["acqIndex"]), (&json!([8, 2]), &json!(32), &json!(1001)));
    let end: Map<String, Value> = serde_json::from_slice(&sample("end")[0]).unwrap();
    assert_eq!(
        (&end["data"], &end["size"], &end["jsonversion"], end.get("addJsonHeader")),
        (&json!(0), &json!(0), &json!(5), None)
    );
}

#[test]
fn all_kinds_come_back() {
    for (name, parts) in samples::sls_json() {
        let message = parse(&parts).unwrap();
        assert_eq!(owned(&message.build()), parts, "{name}");
        assert_eq!(matches!(message, Message::End { version: 5 }), name == "end");
    }
}

#[test]
fn names_of_older_releases_mean_the_same() {
    let parts = sample("image");
    let mut object: Map<String, Value> = serde_json::from_slice(&parts[0]).unwrap();
    for (new, old) in [("detSpec1", "bunchId"), ("detSpec2", "reserved"), ("detSpec3", "debug"), ("detSpec4", "roundRNumber")] {
        let value = object.shift_remove(new).unwrap();
        object.insert(old.into(), value);
    }
    object.insert("jsonversion".into(), 4.into());
    object.shift_remove("rx_roi");
    let old = [serde_json::to_vec(&object).unwrap(), parts[1].clone()];
    let (Ok(Message::Image(old)), Ok(Message::Image(new))) = (parse(&old), parse(&parts)) else { panic!("no images") };
    assert_eq!((old.header.version, new.header.version, new.header.frame.bunch_id), (4, 5, 77));
    assert_eq!(Header { version: 5, ..old.header }, new.header);
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let with = |key: &str, value: Value| {
        let mut parts = sample("image");
        parts[0] = json_of(&parts[0], key, value);
        parse(&parts).unwrap_err()
    };
    assert!(with("jsonversion", 3.into()).contains("'jsonversion' is 3; 4 and 5 are known"));
    assert!(with("bitmode", 24.into()).contains("'bitmode' is 24"));
    assert!(with("bitmode", 32.into()).contains("'size' is 32, but 8 x 2 pixels of 32 bits have 64 bytes"));
    assert!(with("shape", json!([0, 2])).contains("0 x 2 pixels of 16 bits cannot be an image"));
    assert!(with("shape", json!([u64::MAX, 2])).contains("cannot be an image"));
    assert!(with("shape", json!([1u64 << 20, 1u64 << 20])).contains("more than the 1073741824 bytes"));
    assert!(with("size", 31.into()).contains("'size' is 31"));
    assert!(with("data", 0.into()).contains("the end of an acquisition has 1 parts, but 2 came"));
    assert!(with("row", 65536.into()).contains("not the JSON that was expected"));
    assert!(with("shape", json!([8])).contains("not the JSON that was expected"));
    let mut parts = sample("image");
    parts[1].pop();
    assert!(parse(&parts).unwrap_err().contains("part 2 of the message: 8 x 2 pixels of 16 bits have 32 bytes, but 31 came"));
    assert!(parse(&parts[..1]).unwrap_err().contains("an image has 2 parts, but 1 came"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn what_is_built_is_parsed(
        numbers in any::<[u64; 6]>(),
        small in any::<[u16; 6]>(),
        words in any::<[u32; 3]>(),
        flags in any::<[bool; 3]>(),
        name in any::<String>(),
        roi in any::<Option<[i64; 4]>>(),
        progress_percent in 0.0f64..=100.0,
        bits in prop::sample::select(vec![4u32, 8, 12, 16, 32]),
        (columns, rows) in (1u64..5, 1u64..5),
    ) {
        let data = vec![1; (columns * 2 * rows * u64::from(bits) / 8) as usize];
        let header = Header {
            version: 5,
            bits,
            columns: columns * 2,
            rows,
            ports: (numbers[0], 1),
            file_index: numbers[1],
            frame_index: numbers[2],
            progress_percent,
            file_name: name.clone().into(),
            complete: flags[0],
            packets_caught: words[0],
            frame: SlsHeader {
                frame_number: numbers[3],
                timestamp_100ns: numbers[4],
                bunch_id: numbers[5],
                exposure_length: words[1],
                daq_info: words[2],
                module_id: small[0],
                row: small[1],
                column: small[2],
            },
            detector_specific_2: small[3],
            detector_specific_4: small[4],
            detector_type: 3,
            header_version: 2,
            flip_rows: flags[1],
            quad: flags[2],
            added: [(name, Value::from("x"))].into_iter().collect(),
            files_roi: roi.filter(|roi| *roi != [-1; 4]),
        };
        let message = Message::Image(Image { header, data: &data });
        let parts = owned(&message.build());
        prop_assert_eq!(parse(&parts).unwrap(), message);
    }

    #[test]
    fn damage_is_refused_or_stays_inside(damage in damaged(2), which in any::<prop::sample::Index>(), bytes in any_bytes()) {
        let samples = samples::sls_json();
        for good in [which.get(&samples).1.clone(), vec![bytes]] {
            let parts = damage.apply(good);
            if let Ok(Message::Image(image)) = parse(&parts) {
                prop_assert_eq!(image.data, parts[1].as_slice());
            }
        }
    }
}
