//! The protocol of karabo-bridge, version 2.2: the data of a train as the parts of one ZeroMQ message. This file writes
//! them; nothing here receives. Sources and layout: docs/protocols.md 7.4.
//!
//! Facts relied on (karabo-bridge 0.7.0, `serializer.py`): for each source come a header (`source`, `content` =
//! "msgpack", `metadata`) and a map of its plain values; behind them, for each of its arrays, a header (`source`,
//! `content` = "array", `path`, `dtype` as numpy writes it, `shape`) and the bytes of the array in C order. Headers and
//! maps are msgpack. A client of REQ asks with the message `next`.

use bytes::Bytes;

/// What a client of REQ sends.
pub const REQUEST: &[u8] = b"next";

/// Attoseconds of a nanosecond: `timestamp.frac` counts attoseconds.
const ATTOSECONDS_DIGITS: &str = "000000000";

/// A plain value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A whole number.
    Integer(u64),
    /// A number.
    Number(f64),
    /// Text.
    Text(String),
    /// A list of whole numbers.
    Integers(Vec<u64>),
}

/// An array of numbers.
#[derive(Clone, Debug)]
pub struct BridgeArray {
    /// Its key, for example `image.data`.
    pub path: &'static str,
    /// Type as numpy spells it, for example `uint16`.
    pub dtype: &'static str,
    /// Lengths of the axes, the slowest first.
    pub shape: Vec<usize>,
    /// The numbers, little-endian, in C order.
    pub bytes: Bytes,
}

/// What one source has of a train.
#[derive(Clone, Debug, Default)]
pub struct BridgeSource {
    /// Name, for example `FXE_DET_LPD1M-1/DET/0CH0:xtdf`.
    pub name: String,
    /// Plain values by key.
    pub values: Vec<(String, Value)>,
    /// Arrays by key.
    pub arrays: Vec<BridgeArray>,
}

/// Appends the parts of one source to a message. `time_ns` counts from 1970.
pub fn write_source(source: BridgeSource, train_id: u64, time_ns: u64, parts: &mut Vec<Bytes>) {
    let BridgeSource { name, values, arrays } = source;
    let (seconds, nanoseconds) = (time_ns / 1_000_000_000, time_ns % 1_000_000_000);
    let mut head = Vec::with_capacity(160 + 2 * name.len());
    map(&mut head, 3);
    text(&mut head, "source");
    text(&mut head, &name);
    text(&mut head, "content");
    text(&mut head, "msgpack");
    text(&mut head, "metadata");
    map(&mut head, 5);
    text(&mut head, "source");
    text(&mut head, &name);
    text(&mut head, "timestamp");
    number(&mut head, time_ns as f64 / 1e9);
    text(&mut head, "timestamp.sec");
    text(&mut head, &seconds.to_string());
    text(&mut head, "timestamp.frac");
    text(&mut head, &format!("{nanoseconds:09}{ATTOSECONDS_DIGITS}"));
    text(&mut head, "timestamp.tid");
    integer(&mut head, train_id);
    parts.push(head.into());
    let mut plain = Vec::new();
    map(&mut plain, values.len());
    for (key, value) in &values {
        text(&mut plain, key);
        write_value(&mut plain, value);
    }
    parts.push(plain.into());
    for array in arrays {
        let mut head = Vec::with_capacity(96 + name.len());
        map(&mut head, 5);
        text(&mut head, "source");
        text(&mut head, &name);
        text(&mut head, "content");
        text(&mut head, "array");
        text(&mut head, "path");
        text(&mut head, array.path);
        text(&mut head, "dtype");
        text(&mut head, array.dtype);
        text(&mut head, "shape");
        list(&mut head, array.shape.len());
        array.shape.iter().for_each(|length| integer(&mut head, *length as u64));
        parts.push(head.into());
        parts.push(array.bytes);
    }
}

fn write_value(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Integer(value) => integer(out, *value),
        Value::Number(value) => number(out, *value),
        Value::Text(value) => text(out, value),
        Value::Integers(values) => {
            list(out, values.len());
            values.iter().for_each(|value| integer(out, *value));
        }
    }
}

// msgpack, as far as it is needed here (its specification: formats fixmap, map 32, fixarray, array 32, str 32, uint 64,
// float 64, positive fixint).

fn map(out: &mut Vec<u8>, entries: usize) {
    container(out, entries, 0x80, 0xDF);
}

fn list(out: &mut Vec<u8>, elements: usize) {
    container(out, elements, 0x90, 0xDD);
}

fn container(out: &mut Vec<u8>, count: usize, short: u8, long: u8) {
    if count < 16 {
        out.push(short | count as u8);
    } else {
        out.push(long);
        out.extend((count as u32).to_be_bytes());
    }
}

fn text(out: &mut Vec<u8>, text: &str) {
    out.push(0xDB);
    out.extend((text.len() as u32).to_be_bytes());
    out.extend(text.as_bytes());
}

fn integer(out: &mut Vec<u8>, value: u64) {
    if value < 128 {
        out.push(value as u8);
    } else {
        out.push(0xCF);
        out.extend(value.to_be_bytes());
    }
}

fn number(out: &mut Vec<u8>, value: f64) {
    out.push(0xCB);
    out.extend(value.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes are written out by hand from the specification of msgpack. Python's client reads the same messages in
    /// tests/peers/test_trains.py.
    #[test]
    fn a_source_is_a_header_its_values_and_its_arrays() {
        let array = BridgeArray { path: "d", dtype: "uint16", shape: vec![1, 300], bytes: Bytes::from_static(&[1, 2]) };
        let values = vec![("n".to_owned(), Value::Integers(vec![7])), ("x".to_owned(), Value::Number(1.0))];
        let mut parts = Vec::new();
        write_source(BridgeSource { name: "S".into(), values, arrays: vec![array] }, 5, 1_500_000_000, &mut parts);
        assert_eq!(parts.len(), 4);
        let word = |text: &str| [&[0xDB, 0, 0, 0, text.len() as u8][..], text.as_bytes()].concat();
        let mut head = vec![0x83];
        for part in ["source", "S", "content", "msgpack", "metadata"] {
            head.extend(word(part));
        }
        head.push(0x85);
        head.extend([word("source"), word("S"), word("timestamp"), vec![0xCB, 0x3F, 0xF8, 0, 0, 0, 0, 0, 0]].concat());
        head.extend([word("timestamp.sec"), word("1"), word("timestamp.frac"), word("500000000000000000")].concat());
        head.extend([word("timestamp.tid"), vec![5]].concat());
        assert_eq!(parts[0], head);
        let plain = [vec![0x82], word("n"), vec![0x91, 7], word("x"), vec![0xCB, 0x3F, 0xF0, 0, 0, 0, 0, 0, 0]].concat();
        assert_eq!(parts[1], plain);
        let mut head = vec![0x85];
        for part in ["source", "S", "content", "array", "path", "d", "dtype", "uint16", "shape"] {
            head.extend(word(part));
        }
        head.extend([0x92, 1, 0xCF, 0, 0, 0, 0, 0, 0, 1, 44]);
        assert_eq!((&parts[2][..], &parts[3][..]), (&head[..], &[1, 2][..]));
    }
}
