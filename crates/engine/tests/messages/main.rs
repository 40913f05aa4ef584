//! Messages in and out: what the messages of each protocol mean, what is refused and with which text, that encoded
//! messages can be read again, and that messages of real detectors keep their pixels.

mod captures;
mod dectris;
mod files;
mod out;
mod planes;
mod sls;
mod stins;

use bytes::Bytes;
use konkordia_core::array::{Array, Element, PackedBits, Packing, Shape};
use konkordia_core::image::{Channel, CommittedImage};
use konkordia_core::ledger::ImageStatus;
use konkordia_core::ports::{Message, MessageEncoder};
use konkordia_core::series::SeriesStart;
use konkordia_engine::series::Protocol;
use konkordia_engine::series::protocols::{self, decoder, decoder_with, with_chip_gaps};
use konkordia_wire::message::{DecoderOptions, Event, ImagePart, MessageDecoder, Read, SeriesKey};
use konkordia_wire::stream::Bounds;
use proptest::prelude::*;

fn message(parts: &[impl AsRef<[u8]>]) -> Message {
    Message { parts: parts.iter().map(|part| Bytes::copy_from_slice(part.as_ref())).collect() }
}

fn reader(protocol: Protocol) -> Box<dyn MessageDecoder> {
    decoder(protocol, Bounds::default())
}

fn encoder(protocol: Protocol) -> Box<dyn MessageEncoder> {
    protocols::encoder(protocol).expect("consumers can have it")
}

fn read(protocol: Protocol, message: &Message) -> Result<Read, String> {
    reader(protocol).read(message).map_err(|refusal| refusal.to_string())
}

fn refusal(protocol: Protocol, parts: &[impl AsRef<[u8]>]) -> String {
    read(protocol, &message(parts)).map(|read| format!("{read:?}")).unwrap_err()
}

fn part(read: Read) -> ImagePart {
    match read.event {
        Event::Part(part) => *part,
        other => panic!("no image: {other:?}"),
    }
}

fn start(read: Read) -> (SeriesKey, SeriesStart) {
    match read.event {
        Event::Start(key, start) => (key, *start),
        other => panic!("no start: {other:?}"),
    }
}

/// The one array of an image.
fn array(part: &ImagePart) -> &Array {
    let [channel] = &part.channels[..] else { panic!("{} channels", part.channels.len()) };
    &channel.array
}

fn plain(dimensions: &[u64], element: Element, data: &'static [u8]) -> Array {
    let shape = Shape::new(dimensions).unwrap();
    Array { shape, element, packing: Packing::None, pieces: vec![Bytes::from_static(data)] }
}

/// An image in its final state, as the sort thread makes it of a part.
fn image(part: ImagePart) -> CommittedImage {
    CommittedImage {
        status: if part.is_partial { ImageStatus::Partial } else { ImageStatus::Complete },
        store: part.store,
        channels: part.channels,
        times: part.times,
        header_json: part.header_json,
        ..CommittedImage::lost(part.number)
    }
}

fn image_of(number: u64, arrays: Vec<(&str, Array)>) -> CommittedImage {
    let channels = arrays.into_iter().map(|(name, array)| Channel { name: name.into(), array });
    CommittedImage { status: ImageStatus::Complete, channels: channels.collect(), ..CommittedImage::lost(number) }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn nothing_that_comes_breaks_a_decoder(parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 0..6)) {
        for &protocol in Protocol::ALL {
            // No part at all is refused too.
            let _ = reader(protocol).read(&message(&parts));
        }
    }
}
