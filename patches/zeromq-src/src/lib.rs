//! Gives `zmq-sys` 0.12 the crate `zeromq-src` 0.3 in place of 0.2, which builds libzmq 4.3.4 of 2021. Version 0.3 has
//! libzmq 4.3.5 of 2023, with corrected defects and under the MPL-2.0 instead of the LGPL. The functions that `zmq-sys`
//! calls are the same, and this crate has no code of its own.

pub use newer::*;
