//! How readers get the pixels of a chunk: by a function of their caller.

use super::spec::Compression;

/// Turns the bytes of one chunk (its compression, never `None`; `input`, of pixels `element_bytes` wide) into the
/// pixels of one image (`output`, rows x columns x element bytes, little endian). Callers pass it in, because this
/// crate holds no decoder. The error text is shown to users.
pub type Decode<'a> = dyn Fn(Compression, &[u8], usize, &mut [u8]) -> Result<(), String> + 'a;
