//! Writes a telegram.

use super::body::Telegram;
use super::elements::{Element, LIST_MAX, Pass};
use super::error::{BYTES_MAX, BadTelegram, VERSION};
use super::text::Text;

struct Writer {
    xml: String,
    depth: usize,
    /// True while the tag of the element is open.
    is_open: bool,
}

impl Writer {
    fn begin(&mut self, name: &str) {
        if self.is_open {
            self.xml.push_str(">\n");
        }
        self.xml.extend(std::iter::repeat_n("  ", self.depth));
        self.xml.push('<');
        self.xml.push_str(name);
        (self.depth, self.is_open) = (self.depth + 1, true);
    }

    fn end(&mut self, name: &str) {
        self.depth -= 1;
        if self.is_open {
            self.xml.push_str("/>\n");
        } else {
            self.xml.extend(std::iter::repeat_n("  ", self.depth));
            self.xml.push_str("</");
            self.xml.push_str(name);
            self.xml.push_str(">\n");
        }
        self.is_open = false;
    }
}

impl Pass for Writer {
    fn value<T: Text>(&mut self, name: &'static str, value: &mut T) -> Result<(), BadTelegram> {
        let Some(text) = value.text() else { return Ok(()) };
        self.xml.push(' ');
        self.xml.push_str(name);
        self.xml.push_str("=\"");
        for c in text.chars() {
            match c {
                '&' => self.xml.push_str("&amp;"),
                '<' => self.xml.push_str("&lt;"),
                '"' => self.xml.push_str("&quot;"),
                c => self.xml.push(c),
            }
        }
        self.xml.push('"');
        Ok(())
    }

    fn list<T: Element>(&mut self, list: &mut Vec<T>) -> Result<(), BadTelegram> {
        if list.len() > LIST_MAX {
            return Err(BadTelegram::TooMany { line: 1, element: T::NAME, most: LIST_MAX });
        }
        for element in list {
            self.begin(T::NAME);
            element.pass(self)?;
            self.end(T::NAME);
        }
        Ok(())
    }
}

/// Writes it.
pub fn telegram(telegram: &Telegram) -> Result<String, BadTelegram> {
    let xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let mut writer = Writer { xml, depth: 0, is_open: false };
    let mut telegram = telegram.clone();
    writer.begin("rashpa");
    telegram.pass(&mut { VERSION }, &mut writer)?;
    writer.begin(telegram.body.element());
    telegram.body.pass(&mut writer)?;
    writer.end(telegram.body.element());
    writer.end("rashpa");
    if writer.xml.len() > BYTES_MAX { Err(BadTelegram::Length(writer.xml.len() as u64)) } else { Ok(writer.xml) }
}
