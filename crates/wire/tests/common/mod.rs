//! What the tests of all message formats need: captures, pixels of any kind, and damage.
// Each test is a program of its own and uses what it needs of this.
#![allow(dead_code)]

pub mod samples;
#[path = "../../../../tests/skip.rs"]
mod skip;

use konkordia_wire::stream::{Element, Packing, Shape};
use konkordia_wire::zmsg;
use proptest::prelude::*;
use proptest::sample::{Index, select};

/// The messages of a capture of a real detector; where it is absent the test is skipped.
pub fn capture(name: &str) -> Option<Vec<Vec<Vec<u8>>>> {
    let file = std::fs::read(skip::data(&format!("eiger-streams/{name}"))?).unwrap();
    let (mut reader, mut message) = (zmsg::Reader::new(file.as_slice(), zmsg::Bounds::default()), zmsg::Message::default());
    let mut all = Vec::new();
    while reader.read(&mut message).unwrap() {
        all.push(message.parts().iter().map(|part| part.to_vec()).collect());
    }
    // What is written is what was there.
    let mut again = Vec::new();
    all.iter().for_each(|parts: &Vec<Vec<u8>>| zmsg::write(&mut again, parts).unwrap());
    assert!(again == file);
    Some(all)
}

pub fn refs(parts: &[Vec<u8>]) -> Vec<&[u8]> {
    parts.iter().map(Vec::as_slice).collect()
}

pub fn owned(parts: &[impl AsRef<[u8]>]) -> Vec<Vec<u8>> {
    parts.iter().map(|part| part.as_ref().to_vec()).collect()
}

/// A JSON object with one key set.
pub fn json_of(text: &[u8], key: &str, value: serde_json::Value) -> Vec<u8> {
    let mut object: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(text).unwrap();
    object.insert(key.into(), value);
    serde_json::to_vec(&object).unwrap()
}

/// Shape, type and packing of pixels.
#[derive(Clone, Debug)]
pub struct Choice {
    pub shape: Shape,
    pub element: Element,
    pub packing: Packing,
}

/// Bytes that are valid pixels of the choice, for all types but mono12p.
pub fn pixels() -> impl Strategy<Value = (Vec<u8>, Choice)> {
    let elements = select(&Element::ALL[..10]);
    let packings = select(vec![Packing::None, Packing::Lz4, Packing::BitshuffleLz4, Packing::BitshuffleZstd]);
    (prop::collection::vec(1u64..6, 2..4), elements, packings, prop::collection::vec(any::<u8>(), 0..64)).prop_map(
        |(dimensions, element, packing, rest)| {
            let shape = Shape::new(&dimensions).unwrap();
            let bytes = shape.elements() * u64::from(element.bits()) / 8;
            let data = match packing {
                Packing::None => vec![7; bytes as usize],
                _ => [&bytes.to_be_bytes()[..], &(128 * element.bits()).to_be_bytes(), &rest].concat(),
            };
            (data, Choice { shape, element, packing })
        },
    )
}

pub fn any_bytes() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..80)
}

/// What may happen to a message on its way.
#[derive(Clone, Debug)]
pub enum Damage {
    Cut(usize, Index),
    Longer(usize, Vec<u8>),
    Bits(usize, Vec<(Index, u8)>),
    PartsLost(usize),
    PartTwice(usize),
}

/// Any damage to one of the first `parts` parts.
pub fn damaged(parts: usize) -> impl Strategy<Value = Damage> {
    prop_oneof![
        (0..parts, any::<Index>()).prop_map(|(part, at)| Damage::Cut(part, at)),
        (0..parts, prop::collection::vec(any::<u8>(), 1..9)).prop_map(|(part, more)| Damage::Longer(part, more)),
        (0..parts, prop::collection::vec((any::<Index>(), 0u8..8), 1..4)).prop_map(|(part, bits)| Damage::Bits(part, bits)),
        (0..parts).prop_map(Damage::PartsLost),
        (0..parts).prop_map(Damage::PartTwice),
    ]
}

impl Damage {
    pub fn apply(&self, mut parts: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        let count = parts.len().max(1);
        match self {
            Self::Cut(part, at) => {
                if let Some(part) = parts.get_mut(part % count).filter(|part| !part.is_empty()) {
                    part.truncate(at.index(part.len()));
                }
            }
            Self::Longer(part, more) => parts.get_mut(part % count).into_iter().for_each(|part| part.extend(more)),
            Self::Bits(part, bits) => {
                for (at, bit) in bits {
                    if let Some(part) = parts.get_mut(part % count).filter(|part| !part.is_empty()) {
                        let at = at.index(part.len());
                        part[at] ^= 1 << bit;
                    }
                }
            }
            Self::PartsLost(part) => parts.truncate(part % count),
            Self::PartTwice(part) => {
                let again = parts.get(part % count).cloned();
                parts.extend(again);
            }
        }
        parts
    }
}
