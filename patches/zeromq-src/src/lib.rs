//! The bindings `zmq-sys` 0.12 build libzmq with `zeromq-src` 0.2, whose library is of 2021. What they call is the same in 0.3, which carries
//! libzmq 4.3.5 (2023: mended defects, and the MPL-2.0 in place of the LGPL). No code of its own.

pub use newer::*;
