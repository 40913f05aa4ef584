//! Tables of a detector in the headers of DECTRIS streams.

use crate::message::shared;
use crate::stream::{Packing, Pixels};
use bytes::Bytes;
use konkordia_core::array::{Array, Element};

/// The warning about a table that cannot be used: the series goes on without it.
pub fn table_warning(kind: &str, why: &str) -> String {
    format!("the header's table '{kind}' is not used, and the series goes on without it: {why}")
}

/// A table of a detector, or why it cannot be used: its type, shape or packing is wrong.
pub fn table(part: &Bytes, pixels: &Pixels, wanted: Element) -> Result<Array, String> {
    let (is, dimensions) = (pixels.element(), pixels.shape());
    if is != wanted || dimensions.dimensions().len() != 2 || pixels.packing() == Packing::Lz4Block {
        let (is, shape) = (is.name(), dimensions.dimensions());
        return Err(format!(
            "a table of {is} with shape {shape:?} was received where a two-dimensional table of {} is expected",
            wanted.name()
        ));
    }
    Ok(shared(part, pixels))
}
