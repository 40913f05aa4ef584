//! The decoder and the encoder of each protocol of messages, one line for each. `konkordia_core::protocol` has their
//! names and what they can carry.

use crate::message::{DecoderSetup, MessageDecoder};
use crate::{dectris_v1, dectris_v2, files, sls_json, stins};
use konkordia_core::ports::{MessageEncoder, PixelUnpacker};
use konkordia_core::protocol::Protocol;

macro_rules! protocols {
    (@encoder $unpacker:ident) => { None };
    (@encoder $unpacker:ident $encoder:ty) => { Some(Box::new(<$encoder>::new($unpacker))) };
    ($($protocol:ident: $decoder:ty $(, $encoder:ty)?;)+) => {
        /// A decoder of messages of `protocol` for one upstream. It remembers nothing of a series, except in protocols
        /// that do not say where one begins.
        pub fn decoder(protocol: Protocol, setup: DecoderSetup) -> Box<dyn MessageDecoder> {
            match protocol {
                $(Protocol::$protocol => Box::new(<$decoder>::new(setup)),)+
            }
        }

        /// An encoder of this protocol for one consumer; `None` if it is none of [`Protocol::OUTGOING`].
        pub fn encoder(protocol: Protocol, unpacker: Box<dyn PixelUnpacker>) -> Option<Box<dyn MessageEncoder>> {
            match protocol {
                $(Protocol::$protocol => protocols!(@encoder unpacker $($encoder)?),)+
            }
        }
    };
}

protocols! {
    Stins: stins::Decoder, stins::Encoder;
    DectrisV1: dectris_v1::Decoder;
    DectrisV2: dectris_v2::decode::Decoder, dectris_v2::encode::Encoder;
    SlsJson: sls_json::Decoder, sls_json::Encoder;
    Files: files::Decoder;
}
