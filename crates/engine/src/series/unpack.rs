//! Unpacks the pixels of arrays.

use bytes::Bytes;
use konkordia_core::array::{Array, Packing};
use konkordia_kernels::transform::{UnpackScratch, unpack};

/// The bytes of the pixels; shared where they are not packed.
///
/// # Errors
/// They are not what they claim to be.
pub(crate) fn unpacked(array: &Array, scratch: &mut UnpackScratch) -> Result<Bytes, String> {
    let bytes = array.unpacked_bytes();
    if let (Packing::None, [piece]) = (array.packing, &array.pieces[..]) {
        let is_whole = piece.len() as u64 == bytes;
        return is_whole.then(|| piece.clone()).ok_or_else(|| format!("{} bytes came for an array of {bytes}", piece.len()));
    }
    let mut out = vec![0; usize::try_from(bytes).map_err(|_| "the array is too large")?];
    unpack_pieces(array, &mut out, scratch)?;
    Ok(Bytes::from(out))
}

/// Unpacks all pieces into `out`.
///
/// # Errors
/// They are not what they claim to be.
pub(crate) fn unpack_pieces(array: &Array, out: &mut [u8], scratch: &mut UnpackScratch) -> Result<(), String> {
    let pieces = array.pieces.len();
    if array.piece_shape().is_none() || out.len() as u64 != array.unpacked_bytes() || !out.len().is_multiple_of(pieces) {
        return Err(format!("{pieces} pieces do not make an array of shape {:?}", array.shape.dimensions()));
    }
    let piece_bytes = out.len() / pieces;
    for (piece, out) in array.pieces.iter().zip(out.chunks_mut(piece_bytes.max(1))) {
        unpack::array(array.packing, array.element, piece, out, scratch)?;
    }
    Ok(())
}
