//! Messages of `konkordia join`: JSON in the first part, and behind it the messages of the sources, part by part as
//! they came. This file writes them; `konkordia.join` in Python reads them. The layout is in docs/join.md.

use bytes::Bytes;
use serde_json::{Map, Value, json};

/// An image of a joined message.
#[derive(Clone, Debug)]
pub struct JoinedImage<'a> {
    /// Name of its source.
    pub source: &'a str,
    /// Protocol of its message.
    pub protocol: &'static str,
    /// Number of the image in its series.
    pub number: u64,
    /// Which series of its source it belongs to, from 0.
    pub series: u64,
    /// Its message.
    pub parts: &'a [Bytes],
}

/// A joined message.
#[derive(Clone, Debug)]
pub struct JoinedHead<'a> {
    /// Which joined number of the run it is, from 0: the row of the table.
    pub row: u64,
    /// Number of the trigger.
    pub trigger: u64,
    /// No required source is absent.
    pub is_complete: bool,
    /// Names of the sources that are absent.
    pub absent: Vec<&'a str>,
    /// The numbers of each device.
    pub scalars: Vec<(&'a str, &'a [(String, f64)])>,
}

/// The message: the head and all parts of the images.
pub fn write(head: &JoinedHead<'_>, images: &[JoinedImage<'_>]) -> Vec<Bytes> {
    let mut first_part = 1;
    let mut about = Map::new();
    let mut parts = vec![Bytes::new()];
    for image in images {
        let count = image.parts.len();
        let one = json!({
            "protocol": image.protocol, "first_part": first_part, "parts": count, "number": image.number, "series": image.series,
        });
        about.insert(image.source.to_owned(), one);
        parts.extend(image.parts.iter().cloned());
        first_part += count;
    }
    let scalars: Map<String, Value> =
        head.scalars.iter().map(|(source, values)| ((*source).to_owned(), object(values))).collect();
    let text = json!({
        "htype": "joined", "row": head.row, "trigger": head.trigger, "complete": head.is_complete, "absent": head.absent,
        "images": about, "scalars": scalars,
    });
    parts[0] = text.to_string().into();
    parts
}

/// The last message of a run, with its account.
pub fn end(account: &Value) -> Vec<Bytes> {
    vec![json!({ "htype": "joined_end", "account": account }).to_string().into()]
}

fn object(values: &[(String, f64)]) -> Value {
    values.iter().map(|(name, value)| (name.clone(), json!(value))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_each_image_stand_where_the_head_says() {
        let (left, right) = ([Bytes::from("l0"), Bytes::from("l1")], [Bytes::from("r0")]);
        let image = |source, parts| JoinedImage { source, protocol: "stins", number: 4, series: 1, parts };
        let values = [("angle_deg".to_owned(), 1.5)];
        let head = JoinedHead {
            row: 2,
            trigger: u64::MAX,
            is_complete: false,
            absent: vec!["energy"],
            scalars: vec![("encoder", &values[..])],
        };
        let parts = write(&head, &[image("left", &left[..]), image("right", &right[..])]);
        assert_eq!(parts[1..], [Bytes::from("l0"), Bytes::from("l1"), Bytes::from("r0")]);
        assert_eq!(parts[1].as_ptr(), left[0].as_ptr(), "nothing is copied");
        let text: Value = serde_json::from_slice(&parts[0]).unwrap();
        let expected = json!({
            "htype": "joined", "row": 2, "trigger": u64::MAX, "complete": false, "absent": ["energy"],
            "images": {
                "left": { "protocol": "stins", "first_part": 1, "parts": 2, "number": 4, "series": 1 },
                "right": { "protocol": "stins", "first_part": 3, "parts": 1, "number": 4, "series": 1 },
            },
            "scalars": { "encoder": { "angle_deg": 1.5 } },
        });
        assert_eq!(text, expected);
        assert_eq!(end(&json!({ "a": 1 })), [Bytes::from(r#"{"htype":"joined_end","account":{"a":1}}"#)]);
    }
}
