//! SZ3 3.1 streams: whole images with an absolute error bound, in the form that HDF5 filter 32024 of hdf5plugin
//! decodes. Written after the sources of SZ3 3.1.7 (BSD), sharing no code with them; `docs/compression.md` says why.
//! SZ3 knows many forms of such a stream. This module writes one: two dimensions, the regression predictor with slopes
//! of 0, the linear quantiser, Huffman codes, Zstd. A pixel is `centre of its block + bin * step`, or stands as it is
//! in a list of exceptions. Everything that is not a valid number is an exception, so special values come back bit for
//! bit whatever the bound.
//!
//! | bytes, little-endian but where noted | content |
//! |---|---|
//! | 8, then a Zstd frame | length of the body, the body |
//! | body: 8 + 8 + 4 | rows, columns, edge of a block |
//! | body: 1 + 8 | 2, number of centres x 3 |
//! | body: quantiser, quantiser | of the centres, of the slopes: 1 (2), 8 (half a step, f64), 4 (radius), 8 (number of exceptions), the exceptions |
//! | body: Huffman | two slopes and the centre of each block, as differences from the block before |
//! | body: quantiser, Huffman | the pixels, block after block |
//! | the rest | settings (see `Settings` in the source); their length, 4 |
//!
//! Huffman: 4 (lowest symbol), 4 big-endian (nodes), 4 big-endian (room for symbols), 1 (0), left and right child of
//! each node (0 = none; of 1, 2 or 4 bytes by the number of nodes), its symbol less the lowest (4), whether it is a
//! leaf (1), 8 (bytes of the codes), the codes from the high bit down.
//!
//! If half a step is 0 in the settings, the body is the image itself: the lossless form.

mod decode;
mod encode;
mod format;
mod huffman;

pub use decode::decompress;
pub use encode::{Encoder, Loss, compare};
pub use format::PIXELS_MIN;
