//! Where the frames of a conversion come from.

use konkordia_core::plan::{FirstFrame, Plan};
use konkordia_core::ports::Source;
use konkordia_input::Input;
use konkordia_input::source::FileSource;

/// One source for each tile.
pub fn sources(input: &Input, plan: &Plan) -> Vec<Box<dyn Source>> {
    let format = *plan.geometry.format();
    let first = match plan.first_frame {
        FirstFrame::Number(n) => n,
        FirstFrame::Auto => 0,
    };
    let source =
        |tile| -> Box<dyn Source> { Box::new(FileSource::new(input.open_tile(tile), format.of_tile(tile)).start_at(first)) };
    (0..input.tiles()).map(source).collect()
}
