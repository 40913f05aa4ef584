//! Unpacks the pixels of arrays.

use bytes::Bytes;
use konkordia_core::array::{Array, Packing};
use konkordia_kernels::transform::{UnpackScratch, unpack};

/// The bytes of the pixels; shared where they are not packed.
///
/// # Errors
/// They are not what they claim to be.
pub(crate) fn unpacked(array: &Array, scratch: &mut UnpackScratch) -> Result<Bytes, String> {
    if let Some(piece) = plain_piece(array)? {
        return Ok(piece.clone());
    }
    let mut out = vec![0; usize::try_from(array.unpacked_bytes()).map_err(|_| "the array is too large")?];
    unpack_pieces(array, &mut out, scratch)?;
    Ok(Bytes::from(out))
}

/// The pixels if they came unpacked and in one piece; `None` if they have to be unpacked or joined.
///
/// # Errors
/// They are more or fewer bytes than the shape has.
pub(crate) fn plain_piece(array: &Array) -> Result<Option<&Bytes>, String> {
    let (Packing::None, [piece]) = (array.packing, &array.pieces[..]) else { return Ok(None) };
    let (came, bytes) = (piece.len() as u64, array.unpacked_bytes());
    if came == bytes { Ok(Some(piece)) } else { Err(format!("{came} bytes came for an array of {bytes}")) }
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
