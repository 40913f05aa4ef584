//! What the two sides of a link tell each other beside the writes, over a connection of [`crate::tcp`]: who they are,
//! which regions they have, the messages of [`crate::Link::send`], and how many of those were taken. Numbers are little
//! endian:
//!
//! | kind (byte 0) | then |
//! |---|---|
//! | 1 hello | u8 version 1; u16 and the name of the kind of link; u16 and the address for writes to this side |
//! | 2 region | u64 each: key for users, key of the library, first address, length in bytes |
//! | 3 message | u64: writes with events that were made before; then the message |
//! | 4 taken | u64 each: messages, and events, that were taken since the beginning |
//! | 5 leaving | nothing: this side writes and takes no more |

use crate::device::Place;

const VERSION: u8 = 1;

/// Bytes before a message of users.
pub(crate) const HEAD_BYTES: usize = 9;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    Hello { kind: String, address: Vec<u8> },
    Region { key: u64, place: Place, length_bytes: u64 },
    Message { events_before: u64, message: Vec<u8> },
    Taken { messages: u64, events: u64 },
    Leaving,
}

impl Control {
    pub(crate) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Hello { kind, address } => {
                let mut bytes = vec![1, VERSION];
                for part in [kind.as_bytes(), address] {
                    bytes.extend(u16::try_from(part.len()).expect("names and addresses are short").to_le_bytes());
                    bytes.extend(part);
                }
                bytes
            }
            Self::Region { key, place, length_bytes } => numbers(2, &[*key, place.key, place.base, *length_bytes]),
            Self::Message { events_before, message } => {
                let mut bytes = numbers(3, &[*events_before]);
                bytes.extend(message);
                bytes
            }
            Self::Taken { messages, events } => numbers(4, &[*messages, *events]),
            Self::Leaving => numbers(5, &[]),
        }
    }

    /// What came, or why it is nothing that is known.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let (kind, rest) = bytes.split_first().ok_or("an empty message between links")?;
        let wrong = || format!("a message between links of kind {kind} has {} bytes", bytes.len());
        let number = |n: usize| Some(u64::from_le_bytes(rest.get(8 * n..8 * n + 8)?.try_into().ok()?));
        let whole = |count: usize| (rest.len() == 8 * count).then_some(()).ok_or_else(wrong);
        Ok(match kind {
            1 => match rest.split_first() {
                Some((&VERSION, rest)) => hello(rest).ok_or_else(wrong)?,
                Some((version, _)) => {
                    return Err(format!("it has version {version} of these links, here is {VERSION}; use the same release"));
                }
                None => return Err(wrong()),
            },
            2 => {
                whole(4)?;
                let [key, theirs, base, length_bytes] = [0, 1, 2, 3].map(|n| number(n).expect("there are four"));
                Self::Region { key, place: Place { key: theirs, base }, length_bytes }
            }
            3 => Self::Message { events_before: number(0).ok_or_else(wrong)?, message: rest[8..].to_vec() },
            4 => {
                whole(2)?;
                let [messages, events] = [0, 1].map(|n| number(n).expect("there are two"));
                Self::Taken { messages, events }
            }
            5 => {
                whole(0)?;
                Self::Leaving
            }
            _ => return Err(format!("a message between links of unknown kind {kind}")),
        })
    }
}

/// What to do when the other side uses another kind of link, or perhaps does.
pub(crate) fn same(own: &str) -> String {
    format!("this side uses '{own}': give both sides the same kind of link")
}

/// The same, when both are known.
pub(crate) fn differ(theirs: &str, own: &str) -> String {
    format!("it uses '{theirs}' and this side '{own}'; give both sides the same kind of link")
}

fn numbers(kind: u8, numbers: &[u64]) -> Vec<u8> {
    std::iter::once(kind).chain(numbers.iter().flat_map(|number| number.to_le_bytes())).collect()
}

fn hello(rest: &[u8]) -> Option<Control> {
    fn part(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
        let length = u16::from_le_bytes(bytes.get(..2)?.try_into().ok()?);
        bytes[2..].split_at_checked(length.into())
    }
    let (kind, rest) = part(rest)?;
    let (address, rest) = part(rest)?;
    let kind = String::from_utf8(kind.to_vec()).ok()?;
    rest.is_empty().then(|| Control::Hello { kind, address: address.to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_comes_back_and_what_is_cut_or_longer_is_refused() {
        let all = [
            Control::Hello { kind: "libfabric tcp".into(), address: vec![2, 0, 255] },
            Control::Region { key: 1, place: Place { key: u64::MAX, base: 3 }, length_bytes: 4 },
            Control::Message { events_before: 7, message: b"message".to_vec() },
            Control::Taken { messages: 1, events: 2 },
            Control::Leaving,
        ];
        for control in &all {
            let bytes = control.encode();
            assert_eq!(Control::decode(&bytes).as_ref(), Ok(control));
            let is_message = matches!(control, Control::Message { .. });
            let shortest = if is_message { HEAD_BYTES } else { bytes.len() };
            for length in 0..shortest {
                assert!(Control::decode(&bytes[..length]).is_err(), "{control:?} {length}");
            }
            let longer = [&bytes[..], &[0]].concat();
            assert_eq!(Control::decode(&longer).is_ok(), is_message);
        }
        assert!(Control::decode(&[1, 0, 0, 0, 0, 0, 0]).unwrap_err().contains("version 0"));
        assert!(Control::decode(&[9]).unwrap_err().contains("unknown kind 9"));
        assert_eq!(all[2].encode().len(), HEAD_BYTES + 7);
        assert_eq!(all[2].encode()[..HEAD_BYTES], [3, 7, 0, 0, 0, 0, 0, 0, 0]);
    }
}
