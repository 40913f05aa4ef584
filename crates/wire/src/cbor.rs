//! The parts of CBOR (RFC 8949) and its typed arrays (RFC 8746) that are needed to read messages in place. No announced
//! size is trusted beyond the bytes that came, nesting is limited, and unknown items are skipped.

use minicbor::Decoder;
use serde_json::Value;

mod arrays;
mod json;
mod read;
mod write;

pub use json::item_of;
pub use read::DEPTH_MAX;

pub(crate) use arrays::{check_writable, pixels, write_pixels};
pub(crate) use read::{array_length, date, entries, number, text, unsigned, wrong};
pub(crate) use write::{Writer, Written, write_date, write_number};

use read::skip;

/// Says at the beginning of a message that it is CBOR (tag 55799).
pub(crate) const SELF_DESCRIBED: [u8; 3] = [0xD9, 0xD9, 0xF7];

/// One whole CBOR item that is passed on and not looked into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item<'a>(&'a [u8]);

impl<'a> Item<'a> {
    /// Checks that `bytes` is one item and no more, not nested deeper than [`DEPTH_MAX`].
    ///
    /// # Errors
    /// What is wrong, as a text for the user.
    pub fn new_checked(bytes: &'a [u8]) -> Result<Self, String> {
        let mut d = Decoder::new(bytes);
        let item = item(&mut d)?;
        (item.0.len() == bytes.len()).then_some(item).ok_or_else(|| "bytes follow the CBOR item".to_owned())
    }

    /// The bytes.
    pub fn bytes(&self) -> &'a [u8] {
        self.0
    }

    /// The item as JSON, for texts and files. Numbers that JSON does not have are null, byte strings are hexadecimal
    /// digits, typed arrays are lists (of rows, if they have rows), keys that are numbers are written as texts, and
    /// tags are skipped. Entries of a map are left out if they are named in `without`, if their key is a list or a map,
    /// or if their value is a typed array or byte string that is packed or that exceeds `bytes_max` bytes together with
    /// those before it.
    ///
    /// # Errors
    /// What is wrong, as a text for the user; also if texts and numbers together have more than `bytes_max` bytes.
    pub fn json(&self, without: &[&str], bytes_max: usize) -> Result<Value, String> {
        json::of(self.0, without, bytes_max)
    }

    /// The text, if it is one.
    pub fn text(&self) -> Option<&'a str> {
        Decoder::new(self.0).str().ok()
    }

    /// The text in a byte string, if the item is a byte string with text: some clients pass on the texts of users as
    /// bytes.
    pub fn text_in_bytes(&self) -> Option<&'a str> {
        std::str::from_utf8(Decoder::new(self.0).bytes().ok()?).ok()
    }
}

/// The next item, whatever it is.
pub(crate) fn item<'a>(d: &mut Decoder<'a>) -> Result<Item<'a>, String> {
    let start = d.position();
    skip(d, DEPTH_MAX)?;
    let bytes = d.input().get(start..d.position()).ok_or("the message ends inside an item")?;
    Ok(Item(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use minicbor::Encoder;

    #[test]
    fn nesting_has_a_limit() {
        let nested = |depth: usize| [vec![0x81; depth], vec![0]].concat();
        assert!(Item::new_checked(&nested(DEPTH_MAX - 1)).is_ok());
        assert!(Item::new_checked(&nested(DEPTH_MAX)).unwrap_err().contains("more than 32 deep"));
        assert!(Item::new_checked(&vec![0x9F; 1 << 20]).unwrap_err().contains("more than 32 deep"));
        assert!(Item::new_checked(&vec![0xC1; 1 << 20]).unwrap_err().contains("more than 32 deep"));
    }

    #[test]
    fn items_are_whole_and_alone() {
        for good in [&[0x60][..], &[0x9F, 0x01, 0xFF], &[0xBF, 0x01, 0x02, 0xFF], &[0xA1, 0x01, 0x02], &[0x5F, 0x41, 0, 0xFF]] {
            assert_eq!(Item::new_checked(good).unwrap().bytes(), good);
        }
        for bad in [&[][..], &[0, 0], &[0xFF], &[0x9F, 0x01], &[0xA1, 0x01], &[0x42, 0], &[0x81, 0xFF]] {
            assert!(Item::new_checked(bad).is_err(), "{bad:x?}");
        }
        // A map with one entry, null: null.
        assert_eq!(Item::new_checked(&[0xA1, 0xF6, 0xF6]).unwrap().json(&[], 9).unwrap(), serde_json::json!({"null": null}));
        // Announces more than any memory has.
        for huge in [0x5B, 0x7B, 0x9B, 0xBB] {
            let bytes = [vec![huge], vec![0xFF; 8], vec![0; 9]].concat();
            assert!(Item::new_checked(&bytes).is_err());
        }
        assert_eq!(Item::new_checked(&[0x61, b'a']).unwrap().text(), Some("a"));
        assert_eq!(Item::new_checked(&[0x01]).unwrap().text(), None);
    }

    #[test]
    fn numbers_of_all_kinds_are_read() {
        let read = |bytes: &[u8]| number(&mut Decoder::new(bytes));
        assert_eq!(read(&[0xF9, 0x3C, 0x00]), Ok(1.0));
        assert_eq!(read(&[0xFA, 0x3F, 0xC0, 0, 0]), Ok(1.5));
        assert_eq!(read(&[0x20]), Ok(-1.0));
        assert!(read(&[0x61, b'1']).is_err());
        for value in [0.0, 0.1, -1.5, 7.5e-5, f64::MAX] {
            let mut bytes = Vec::new();
            write_number(&mut Encoder::new(&mut bytes), value).unwrap();
            assert_eq!(read(&bytes), Ok(value));
        }
    }
}
