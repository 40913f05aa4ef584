//! What the decoders and encoders of several protocols share.

pub mod byte_order;
pub mod facts;
pub mod maxiv;
pub mod names;
pub mod tables;
