//! The length before the payload of each block, big-endian.

/// Bytes before the payload of each block.
pub const LENGTH_BYTES: usize = 4;

/// Writes a block by `write`, which returns its bytes, with its length before it.
pub(crate) fn with_length(out: &mut [u8], write: impl FnOnce(&mut [u8]) -> usize) -> usize {
    let (length, payload) = out.split_at_mut(LENGTH_BYTES);
    let written = write(payload);
    length.copy_from_slice(&(written as u32).to_be_bytes());
    LENGTH_BYTES + written
}
