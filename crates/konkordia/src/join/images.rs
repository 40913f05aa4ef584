//! The messages of one detector: which series they belong to, and which trigger an image has.

use super::arrived::{Arrived, Image, Part, Received};
use bytes::Bytes;
use konkordia_core::ports::Message;
use konkordia_core::series::SeriesStart;
use konkordia_engine::contain::contain;
use konkordia_engine::series::protocols::decoder;
use konkordia_join::file::{StreamFrom, shifted};
use konkordia_wire::message::{Event, ImagePart, MessageDecoder, SeriesKey};
use konkordia_wire::stream::Bounds;
use serde_json::Value;

/// Reads the messages of one detector.
pub struct Images {
    source: usize,
    decoder: Box<dyn MessageDecoder>,
    /// JSON pointer to the trigger number; `None` = the number of the image.
    pointer: Option<String>,
    offset: i64,
    series: Series,
}

/// Series of a detector. A start may come again: a service sends it to everybody who connects anew. It begins another
/// series if it says another name, after an end, and if the numbers of its images are not above those before.
#[derive(Default)]
struct Series {
    /// Series that have begun.
    count: u64,
    is_open: bool,
    name: (SeriesKey, String, String),
    newest: Option<u64>,
    came_again: bool,
}

impl Series {
    /// True if this start begins a series.
    fn start(&mut self, key: SeriesKey, start: &SeriesStart) -> bool {
        let name = (key, start.unique_id.clone(), start.filename.clone().unwrap_or_default());
        self.came_again = self.is_open && self.name == name;
        if !self.came_again {
            self.name = name;
            self.begin();
        }
        !self.came_again
    }

    fn begin(&mut self) {
        (self.count, self.is_open, self.newest, self.came_again) = (self.count + 1, true, None, false);
    }

    /// Which series this image belongs to, and whether it is the first of one whose start was not seen.
    fn image(&mut self, number: u64) -> (u64, bool) {
        let is_anew = self.came_again && self.newest.is_some_and(|newest| number <= newest);
        let begins = !self.is_open || is_anew;
        if begins {
            self.begin();
        }
        self.came_again = false;
        self.newest = self.newest.max(Some(number));
        (self.count - 1, begins)
    }
}

impl Images {
    /// A reader for one detector; `source` is its place among all sources.
    pub fn new(source: usize, from: &StreamFrom) -> Option<Self> {
        let bytes_max = from.message_mib << 20;
        let bounds = Bounds { image_bytes_max: bytes_max, table_bytes_max: bytes_max, ..Bounds::default() };
        let pointer = (!from.counts_in_series()).then(|| from.key.clone());
        let decoder = decoder(from.protocol()?, bounds);
        Some(Self { source, decoder, pointer, offset: from.offset, series: Series::default() })
    }

    /// Reads a message; appends what it means.
    pub fn read(&mut self, message: Message, counts: &mut Received, out: &mut Vec<Arrived>) {
        let bytes = message.bytes();
        let decoder = &mut self.decoder;
        let read = contain(|| decoder.read(&message))
            .map_err(|panic| panic.to_string())
            .and_then(|read| read.map_err(|refusal| refusal.to_string()));
        match read {
            Ok(read) => match read.event {
                Event::Start(key, start) => {
                    counts.control += 1;
                    self.begin(key, &start, out);
                }
                Event::End(_) => {
                    counts.control += 1;
                    self.series.is_open = false;
                    out.push(Arrived::Ended(self.source));
                }
                Event::Other => counts.control += 1,
                Event::Part(image) => self.image(&image, message.parts, bytes, counts, out),
            },
            Err(why) => {
                counts.malformed += 1;
                counts.problem(|| why);
            }
        }
    }

    fn begin(&mut self, key: SeriesKey, start: &SeriesStart, out: &mut Vec<Arrived>) {
        if self.series.start(key, start) {
            out.push(Arrived::Begun(self.source, start.filename.clone().unwrap_or_default()));
        }
    }

    fn image(&mut self, image: &ImagePart, message: Vec<Bytes>, bytes: u64, counts: &mut Received, out: &mut Vec<Arrived>) {
        // Where there is no start, each image says what it would say.
        if let Some(start) = &image.start
            && (!self.series.is_open || self.series.name.0 != image.series)
        {
            self.begin(image.series, start, out);
        }
        let (series, begins) = self.series.image(image.number);
        if begins {
            out.push(Arrived::Begun(self.source, String::new()));
        }
        let said = self.pointer.as_ref().map_or(Some(image.number), |pointer| whole_number(&image.header_json, pointer));
        let Some(trigger) = said.and_then(|number| shifted(number, self.offset)) else {
            counts.unnumbered += 1;
            counts.problem(|| match (&self.pointer, said) {
                (_, Some(number)) => format!("number {number} with offset {} is below 0 or beyond 64 bits", self.offset),
                (pointer, None) => format!("image {} says no whole number at {}", image.number, pointer.as_deref().unwrap_or("")),
            });
            return;
        };
        counts.parts += 1;
        if self.pointer.is_none() && series > 0 {
            out.push(Arrived::OtherSeries(self.source));
            return;
        }
        let part = Part::Image(Image { number: image.number, series, message });
        out.push(Arrived::Part { source: self.source, trigger, part, bytes });
    }
}

/// The whole number at this place of a JSON object, also where it is written as text.
fn whole_number(json: &[u8], pointer: &str) -> Option<u64> {
    match serde_json::from_slice::<Value>(json).ok()?.pointer(pointer)? {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn images(key: &str, offset: i64) -> Images {
        let text = format!(
            "[[stream]]\nname = \"a\"\naddress = \"x\"\nprotocol = \"stins\"\nkey = \"{key}\"\noffset = {offset}\n[[scalar]]\nname = \"b\"\naddress = \"y\"\n"
        );
        let join = konkordia_join::file::JoinFile::parse("join.toml", &text).unwrap();
        Images::new(0, &join.streams[0]).unwrap()
    }

    fn message(text: &str) -> Message {
        let pixels = text.contains("\"image\"").then(|| Bytes::from_static(&[7]));
        Message { parts: std::iter::once(Bytes::copy_from_slice(text.as_bytes())).chain(pixels).collect() }
    }

    fn image(frame: u64, more: &str) -> Message {
        message(&format!(
            r#"{{"htype":"image","msg_number":0,"frame":{frame},"shape":[1,1],"type":"uint8","compression":"none"{more}}}"#
        ))
    }

    fn start(name: &str) -> Message {
        message(&format!(r#"{{"htype":"header","msg_number":0,"filename":"{name}"}}"#))
    }

    fn end() -> Message {
        message(r#"{"htype":"series_end","msg_number":0}"#)
    }

    /// What each message means, in short.
    fn meaning(images: &mut Images, messages: Vec<Message>) -> (Vec<String>, Received) {
        let (mut counts, mut out) = (Received::default(), Vec::new());
        let count = messages.len() as u64;
        messages.into_iter().for_each(|message| images.read(message, &mut counts, &mut out));
        assert_eq!(counts.accounted(), count);
        let short = |arrived: &Arrived| match arrived {
            Arrived::Part { trigger, part: Part::Image(image), .. } => format!("{trigger}:{}.{}", image.series, image.number),
            Arrived::Part { .. } => "numbers".into(),
            Arrived::OtherSeries(_) => "other".into(),
            Arrived::Begun(_, name) => format!("begun {name}"),
            Arrived::Ended(_) => "ended".into(),
        };
        (out.iter().map(short).collect(), counts)
    }

    #[test]
    fn a_further_series_is_another_one_and_a_start_that_comes_again_is_not() {
        let messages =
            vec![start("a"), image(0, ""), image(1, ""), start("a"), image(2, ""), start("a"), image(0, ""), end(), start("b")];
        let (found, counts) = meaning(&mut images("number", 0), messages);
        assert_eq!(found, ["begun a", "0:0.0", "1:0.1", "2:0.2", "begun ", "other", "ended", "begun b"]);
        assert_eq!((counts.parts, counts.control), (4, 5));
        // Numbers of triggers go on in a further series.
        let with = |pulse: u64| format!(r#","pulse":{pulse}"#);
        let messages = vec![image(0, &with(70)), end(), image(0, &with(71))];
        assert_eq!(meaning(&mut images("/pulse", 1), messages).0, ["begun ", "71:0.0", "ended", "begun ", "72:1.0"]);
    }

    #[test]
    fn what_has_no_number_is_counted_and_said() {
        let cases = [
            ("/pulse", 0, image(3, ""), "image 3 says no whole number at /pulse"),
            ("/pulse", 0, image(3, r#","pulse":-4"#), "image 3 says no whole number at /pulse"),
            ("/pulse", 0, image(3, r#","pulse":"NaN""#), "image 3 says no whole number at /pulse"),
            ("number", -4, image(3, ""), "number 3 with offset -4 is below 0"),
        ];
        for (key, offset, message, expected) in cases {
            let (found, counts) = meaning(&mut images(key, offset), vec![message]);
            assert_eq!((found, counts.unnumbered), (vec!["begun ".to_owned()], 1));
            assert!(counts.first_problem.unwrap().contains(expected));
        }
        let (found, counts) = meaning(&mut images("/p", 0), vec![image(3, r#","p":"12""#), message("rubbish")]);
        assert_eq!((found, counts.malformed), (vec!["begun ".to_owned(), "12:0.3".into()], 1));
    }
}
