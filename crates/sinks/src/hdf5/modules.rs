//! Writes `NXdetector_module`: which part of the image a module of the detector is, and where its first pixel lies.

use hdf5::{Group, Result};
use konkordia_core::geometry::{Orientation, Part, modules_of};

use super::nexus::{group, numbers, translation};
use super::spec::{FileSpec, TileInfo};

/// The modules of the detector in the image ([`modules_of`]). Without tiles, or if modules are not wanted, the whole
/// image is one module.
pub(crate) fn modules(spec: &FileSpec) -> Vec<Part> {
    let each = spec.tiles_per_module as usize;
    let part = |t: &TileInfo| Part { row: t.row, column: t.column, rows: t.rows, columns: t.columns };
    let tiles: Vec<Part> = spec.tiles.iter().filter(|_| each > 0).map(part).collect();
    let whole = || vec![Part { row: 0, column: 0, rows: spec.rows, columns: spec.columns }];
    modules_of(&tiles, each).unwrap_or_else(whole)
}

/// The directions from one row of the image to the next, and from one column to the next, in the McStas frame. In
/// upright images, columns run to the right when looking along the beam, and rows run down.
pub(crate) fn directions(spec: &FileSpec) -> [[f64; 3]; 2] {
    let turn = spec.series.as_ref().map_or(Orientation::UPRIGHT, |series| series.orientation);
    // 0 minus the number, to avoid a negative zero.
    turn.steps().map(|[rows, columns]| [0.0 - columns, 0.0 - rows, 0.0])
}

/// Writes the groups of all modules: `module`, or `module_000` and so on. `chain` is what the detector as a whole
/// depends on. `pixel_m` is the width and height of a pixel; without it the positions of pixels are not written.
pub(crate) fn write(detector: &Group, spec: &FileSpec, chain: &str, pixel_m: Option<[f64; 2]>) -> Result<()> {
    let m = &spec.metadata;
    let [slow, fast] = directions(spec);
    let parts = modules(spec);
    for (n, part) in parts.iter().enumerate() {
        let name = if parts.len() == 1 { "module".to_owned() } else { format!("module_{n:03}") };
        let module = group(detector, &name, "NXdetector_module")?;
        numbers(&module, "data_origin", &[part.row as i32, part.column as i32])?;
        numbers(&module, "data_size", &[part.rows as i32, part.columns as i32])?;
        numbers(&module, "data_stride", &[1i32, 1])?;
        let Some([width, height]) = pixel_m else { continue };
        // From the beam centre to the first pixel. Without a beam centre, positions are relative to the first pixel of
        // the image.
        let along = (f64::from(part.column) - m.beam_center_x_px.unwrap_or(0.0)) * width;
        let down = (f64::from(part.row) - m.beam_center_y_px.unwrap_or(0.0)) * height;
        // 0 plus the number, to avoid a negative zero.
        let offset = std::array::from_fn(|axis| 0.0 + along * fast[axis] + down * slow[axis]);
        translation(&module, "module_offset", 0.0, [1.0, 0.0, 0.0], offset, chain)?;
        let chain = format!("/entry/instrument/detector/{name}/module_offset");
        translation(&module, "fast_pixel_direction", width, fast, [0.0; 3], &chain)?;
        translation(&module, "slow_pixel_direction", height, slow, [0.0; 3], &chain)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(tiles: &[[u32; 4]], tiles_per_module: u32) -> FileSpec {
        let tile = |&[row, column, rows, columns]: &[u32; 4]| TileInfo {
            rows,
            columns,
            row,
            column,
            flip_rows: false,
            rotate_deg: 0,
            packets: 1,
        };
        FileSpec { rows: 30, columns: 40, tiles: tiles.iter().map(tile).collect(), tiles_per_module, ..FileSpec::default() }
    }

    fn parts(spec: &FileSpec) -> Vec<[u32; 4]> {
        modules(spec).iter().map(|part| [part.row, part.column, part.rows, part.columns]).collect()
    }

    #[test]
    fn two_ports_of_a_module_are_one_module() {
        let tiles = [[0, 0, 5, 40], [5, 0, 5, 40], [20, 0, 5, 40], [25, 0, 5, 40]];
        assert_eq!(parts(&spec(&tiles, 2)), [[0, 0, 10, 40], [20, 0, 10, 40]]);
        assert_eq!(parts(&spec(&tiles, 0)), [[0, 0, 30, 40]]);
        assert_eq!(parts(&spec(&[], 2)), [[0, 0, 30, 40]]);
        // Four ports with a gap between them, as in an EIGER.
        assert_eq!(parts(&spec(&[[1, 0, 4, 4], [1, 6, 4, 4], [7, 0, 4, 4], [7, 6, 4, 4]], 4)), [[1, 0, 10, 10]]);
    }

    #[test]
    fn tiles_that_lie_apart_are_modules_themselves() {
        let crossed = [[0, 0, 5, 5], [10, 10, 5, 5], [0, 10, 5, 5], [10, 0, 5, 5]];
        assert_eq!(parts(&spec(&crossed, 2)), crossed);
        assert_eq!(parts(&spec(&[[0, 0, 5, 5], [0, 0, 5, 5]], 1)), [[0, 0, 30, 40]]);
    }
}
