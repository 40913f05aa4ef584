//! The decoders and encoders of `konkordia_wire::protocols` with the kernels that unpack pixels for them.

use super::chip_gaps::ChipGaps;
use konkordia_core::ports::{MessageEncoder, PixelUnpacker};
use konkordia_core::protocol::Protocol;
use konkordia_kernels::transform::Unpacker;
use konkordia_wire::message::{DecoderOptions, DecoderSetup, MessageDecoder};
use konkordia_wire::protocols;
use konkordia_wire::stream::Bounds;
use konkordia_wire::unpacker::ArrayUnpacker;

fn kernels() -> Box<dyn PixelUnpacker> {
    Box::new(Unpacker::new())
}

/// A decoder of messages of `protocol` for one upstream without peculiarities.
pub fn decoder(protocol: Protocol, bounds: Bounds) -> Box<dyn MessageDecoder> {
    decoder_with(protocol, bounds, DecoderOptions::default())
}

/// As [`decoder`], with `options`.
pub fn decoder_with(protocol: Protocol, bounds: Bounds, options: DecoderOptions) -> Box<dyn MessageDecoder> {
    protocols::decoder(protocol, DecoderSetup { bounds, options, unpacker: kernels() })
}

/// `decoder`, and `gap_px` columns of *masked* pixels between the chips of 256 columns of its images, which lack them.
/// With 0 the images stay as they are.
pub fn with_chip_gaps(decoder: Box<dyn MessageDecoder>, gap_px: u32, bounds: Bounds) -> Box<dyn MessageDecoder> {
    if gap_px == 0 { decoder } else { Box::new(ChipGaps::new(decoder, gap_px, bounds)) }
}

/// An encoder of this protocol for one consumer; `None` if it is none of [`Protocol::OUTGOING`].
pub fn encoder(protocol: Protocol) -> Option<Box<dyn MessageEncoder>> {
    protocols::encoder(protocol, kernels())
}

/// Unpacks arrays with the kernels.
pub fn array_unpacker() -> ArrayUnpacker {
    ArrayUnpacker::new(kernels())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use konkordia_core::array::{Array, Element, PackedBits, Packing, Shape};

    fn array(dimensions: &[u64], element: Element, pieces: &[&'static [u8]]) -> Array {
        let pieces = pieces.iter().map(|piece| Bytes::from_static(piece)).collect();
        Array { shape: Shape::new(dimensions).unwrap(), element, packing: Packing::None, pieces }
    }

    #[test]
    fn what_consumers_can_have_has_an_encoder() {
        for &protocol in Protocol::ALL {
            assert_eq!(encoder(protocol).is_some(), Protocol::OUTGOING.contains(&protocol), "{protocol:?}");
        }
    }

    #[test]
    fn pieces_are_joined_and_single_ones_shared() {
        let two = array(&[2, 2], Element::Uint8, &[&[1, 2], &[3, 4]]);
        let mut unpacker = array_unpacker();
        assert_eq!(unpacker.one_piece(&two, &[Packing::None]).unwrap().pieces, [Bytes::from_static(&[1, 2, 3, 4])]);
        let one = array(&[2, 2], Element::Uint8, &[&[1, 2, 3, 4]]);
        assert_eq!(unpacker.one_piece(&one, &[]).unwrap().pieces[0].as_ptr(), one.pieces[0].as_ptr());
        let odd = Array { packing: Packing::Lz4, ..array(&[3, 2], Element::Uint8, &[&[1], &[2]]) };
        assert!(unpacker.pieces(&odd).unwrap_err().contains("cannot have 2 pieces"));
        let broken = Array { packing: Packing::Lz4, ..array(&[2, 2], Element::Uint8, &[&[1]]) };
        assert!(unpacker.pieces(&broken).is_err());
    }

    #[test]
    fn twelve_bits_become_sixteen() {
        let packed = array(&[3], Element::Packed(PackedBits::Twelve), &[&[0x21, 0x43, 0x65, 0x87, 0x09]]);
        let wide = array_unpacker().whole_bytes(&packed).unwrap();
        assert_eq!((wide.element, &wide.pieces[0][..]), (Element::Uint16, &[0x21, 0x03, 0x54, 0x06, 0x87, 0x09][..]));
        let short = array(&[4], Element::Packed(PackedBits::Twelve), &[&[0x21, 0x43, 0x65, 0x87, 0x09]]);
        assert!(array_unpacker().whole_bytes(&short).is_err());
    }
}
