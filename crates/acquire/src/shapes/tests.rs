//! Shapes of a board: what is kept, what runs take, what pixels say.

use super::form::{DrawnRegion, DrawnShape};
use super::pixel::ImagePlace;
use super::*;
use konkordia_calibration::Loaded;
use konkordia_calibration::reasons::{MARKED, NXMX_GAP, NXMX_NOISY, NXMX_USER, STUCK};
use konkordia_config::recipe::RegionForm;
use konkordia_config::service;
use konkordia_core::array::{Array, Element, Packing, Shape};
use konkordia_core::geometry::{DoublePixels, ImageGeometry, Orientation, Placement};
use konkordia_core::series::{ChannelStart, SeriesStart};
use konkordia_core::tile::TileFormat;
use konkordia_kernels::constants::PixelConstants;
use std::path::Path;
use std::sync::Arc;

const STREAM: &str = "[detector]\ntype = \"stream\"\n[source]\nprotocol = \"stins\"\nupstreams = [\"tcp://127.0.0.1:1\"]\n";

fn circle(x_px: f64, y_px: f64, radius_px: f64) -> DrawnShape {
    DrawnShape::Circle { x_px, y_px, radius_px }
}

fn mask(shapes: &[DrawnShape]) -> DrawnShapes {
    DrawnShapes { mask: shapes.to_vec(), regions: Vec::new() }
}

fn board(folder: &Path, detector: &str) -> ShapeBoard {
    let text = STREAM.replace("type", &format!("{detector}\ntype"));
    let text = format!("{text}[output]\ndirectory = \"out\"\nprefix = \"a\"\n[service]\nname = \"eiger\"\n");
    let loaded = service::load_text(&text, &folder.join("run.toml")).unwrap_or_else(|failure| panic!("{failure:?}"));
    ShapeBoard::open(&loaded.detectors[0])
}

#[test]
fn shapes_survive_a_restart_and_files_are_replaced_as_a_whole() {
    let folder = tempfile::tempdir().unwrap();
    let first = board(folder.path(), "");
    first.draw(mask(&[circle(1.0, 2.0, 3.0)]), "alice", None).unwrap();
    let (state, _) = first.state(None, None);
    assert_eq!((state.kept_in, state.masked_pixels), (None, None), "the output folder is not there");
    std::fs::create_dir(folder.path().join("out")).unwrap();
    let path = folder.path().join("out/konkordia-shapes-eiger.json");
    first.draw(mask(&[circle(1.0, 2.0, 4.0)]), "alice", None).unwrap();
    let (state, tag) = first.state(Some([10, 20]), None);
    assert_eq!((state.kept_in.as_deref(), state.notes.len()), (Some(path.to_str().unwrap()), 0));
    let (again, same) = board(folder.path(), "").state(Some([10, 20]), None);
    assert_eq!((again.mask, again.changed_by.as_deref(), same), (state.mask, Some("alice"), tag));
    let names: Vec<_> = std::fs::read_dir(folder.path().join("out")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["konkordia-shapes-eiger.json"], "nothing is left beside it");
    // Elsewhere, where it must be possible.
    let elsewhere = board(folder.path(), "shapes_file = \"no/shapes.json\"");
    assert!(matches!(elsewhere.draw(mask(&[]), "bob", None), Err(NotDrawn::NotKept(failure)) if !failure.fix.is_empty()));
    assert!(elsewhere.drawing().changed_by.is_none(), "nothing has changed");
}

#[test]
fn a_broken_file_is_reported_and_replaced_by_the_next_change() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("out")).unwrap();
    let path = folder.path().join("out/konkordia-shapes-eiger.json");
    for text in ["", "{", "[]", "{\"konkordia_shapes\": 1}", "\u{0}"] {
        std::fs::write(&path, text).unwrap();
        let broken = board(folder.path(), "");
        let events = crate::events::EventLog::new();
        broken.report(&events);
        let reported = events.after(0);
        assert!(reported[0].event == "warning" && reported[0].message.contains("the next change"), "{reported:?}");
        broken.draw(mask(&[]), "alice", None).unwrap();
        assert_eq!(board(folder.path(), "").drawing().changed_by.as_deref(), Some("alice"));
    }
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    let events = crate::events::EventLog::new();
    board(folder.path(), "").report(&events);
    assert!(events.after(0)[0].message.contains("it is no file"));
}

#[test]
fn regions_are_those_of_recipes_half_a_pixel_away() {
    let region = |name: &str, shape| DrawnRegion { name: name.into(), shape };
    let regions = vec![
        region("r", DrawnShape::Rectangle { column: 1.0, row: 2.0, columns: 3.0, rows: 4.0 }),
        region(" c ", circle(5.5, 6.5, 2.0)),
        region("ring", DrawnShape::Ring { x_px: None, y_px: None, inner_radius_px: 1.0, radius_px: 2.0 }),
    ];
    let (_, keys) = DrawnShapes { mask: Vec::new(), regions }.parts().unwrap();
    assert_eq!(keys[0].form, RegionForm::Box([0.5, 1.5, 3.5, 5.5]));
    assert_eq!(keys[1].name, "c");
    let round = |center_px, radii_px| RegionForm::Round { center_px, radii_px, sector_deg: None };
    assert_eq!(keys[1].form, round((Some(5.0), Some(6.0)), (0.0, 2.0)));
    assert_eq!(keys[2].form, round((None, None), (1.0, 2.0)));
}

fn loaded(mask: Vec<u32>, reasons: Vec<u8>) -> Loaded {
    Loaded {
        constants: PixelConstants::None,
        mask,
        reasons,
        hash: String::new(),
        taken_s: None,
        report: String::new(),
        module_ids: Vec::new(),
        high_gain: None,
        levels: None,
    }
}

#[test]
fn a_run_keeps_the_mask_that_it_was_armed_with() {
    let drawn = |shapes| Drawing::new(mask(shapes), None, None).unwrap();
    let before = drawn(&[DrawnShape::Rectangle { column: 0.0, row: 0.0, columns: 2.0, rows: 1.0 }]);
    let after = drawn(&[DrawnShape::Rectangle { column: 1.0, row: 0.0, columns: 2.0, rows: 1.0 }]);
    let mut of_run = loaded(vec![0, NXMX_NOISY, NXMX_GAP, NXMX_USER, 0, 0], vec![0, STUCK as u8, 0, MARKED as u8, 0, 0]);
    let run = RunMask::of_run(&mut of_run, [2, 3], Some(&before), false);
    assert_eq!(of_run.mask, [NXMX_USER, NXMX_USER | NXMX_NOISY, NXMX_GAP, NXMX_USER, 0, 0], "the file and the analysis have it");
    assert!(run.note().is_some_and(|(name, text)| name == "drawn_shapes" && text.contains("\"columns\":2.0")));
    let place = ImagePlace::Whole(Some([2, 3]), None);
    let said = |column, row| {
        let facts = place.pixel("d", [column, row], place.size(), Some(&run), &after).unwrap();
        (facts.mask.unwrap(), facts.reasons.join("; "))
    };
    assert_eq!(said(0, 0), (258, "user, until the next run".into()));
    assert_eq!(said(1, 0), (272, "noisy; stuck; user".into()));
    assert_eq!(said(2, 0), (1, "gap; user, from the next run on".into()));
    assert_eq!(said(0, 1), (258, "marked by the source".into()));
    assert_eq!(said(1, 1), (0, String::new()));
    assert!(place.pixel("d", [3, 0], place.size(), None, &after).is_err());
}

#[test]
fn a_series_says_what_its_sender_masks() {
    let words: Vec<u8> = [0u32, 2, 0, 256, 1 << 9, 0].iter().flat_map(|word| word.to_le_bytes()).collect();
    let table = |pieces: Vec<&[u8]>| Array {
        shape: Shape::new(&[2, 3]).unwrap(),
        element: Element::Uint32,
        packing: Packing::None,
        pieces: pieces.into_iter().map(|piece| piece.to_vec().into()).collect(),
    };
    for pieces in [vec![&words[..]], vec![&words[..6], &words[6..7], &words[7..]], vec![&words[..5]]] {
        let is_whole = pieces.iter().map(|piece| piece.len()).sum::<usize>() == words.len();
        let channel = ChannelStart { pixel_mask: Some(table(pieces)), ..ChannelStart::default() };
        let start = SeriesStart { channels: vec![channel], ..SeriesStart::default() };
        let run = RunMask::of_series(&Arc::new(start));
        let bits: Vec<u32> = (0..6).map(|at| run.bits(at % 3, at / 3, [2, 3]).0).collect();
        assert_eq!(bits, if is_whole { [0, 2, 0, 256, 512, 0] } else { [0; 6] });
        assert_eq!(run.bits(1, 0, [3, 2]).0, 0, "of another size");
        let place = ImagePlace::Whole(None, None);
        let facts = place.pixel("d", [0, 1], Some([2, 3]), Some(&run), &Drawing::default()).unwrap();
        assert_eq!(facts.reasons, if is_whole { vec!["user, says the sender"] } else { vec![] });
    }
}

/// Against `arrange`, which the conversion uses: where each pixel of the image comes from.
#[test]
fn pixels_are_found_in_their_module_however_it_lies() {
    for (format, double) in [
        (TileFormat::jungfrau(2).unwrap(), DoublePixels::Split),
        (TileFormat::eiger(16).unwrap(), DoublePixels::Gap),
        (TileFormat::eiger(16).unwrap(), DoublePixels::Mask),
        (TileFormat::jungfrau(1).unwrap().with_rows(64).unwrap(), DoublePixels::Keep),
    ] {
        let tiles = format.tiles_per_module as usize;
        let all: Vec<Orientation> = Orientation::all().collect();
        // Far apart, each tile in another orientation.
        let placements: Vec<_> =
            (0..2 * tiles).map(|n| Placement { row: 1100 * n as u32, column: 3, orientation: all[(3 * n) % 8] }).collect();
        let geometry = ImageGeometry::new(format, placements, None, double).unwrap();
        let pixels = format.pixels();
        let planes: Vec<Vec<u32>> =
            (0..2 * tiles as u32).map(|tile| (0..pixels).map(|at| tile * pixels + at).collect()).collect();
        let origin = geometry.arrange(&planes.iter().map(Vec::as_slice).collect::<Vec<_>>(), u32::MAX);
        for at in (0..origin.len()).step_by(97) {
            let (row, column) = ((at / geometry.columns() as usize) as u32, (at % geometry.columns() as usize) as u32);
            let found = geometry.tile_at(row, column);
            let pixel =
                found.and_then(|place| place.pixel.map(|(row, column)| (place.tile as u32, row * format.columns + column)));
            let expected = (origin[at] != u32::MAX).then(|| (origin[at] / pixels, origin[at] % pixels));
            assert_eq!(pixel, expected, "row {row}, column {column}, {double:?}");
        }
    }
}

#[test]
fn chips_are_those_of_the_module() {
    let config = |text: &str| {
        let text = format!("{text}\n[output]\ndirectory = \"out\"\nprefix = \"a\"\n");
        ImagePlace::of(&service::load_text(&text, Path::new("/x/run.toml")).unwrap().detectors[0])
    };
    let eiger = config("[detector]\ntype = \"eiger\"\ngeometry = \"eiger-500k\"");
    let of = |column, row| {
        let facts = eiger.pixel("d", [column, row], eiger.size(), None, &Drawing::default()).unwrap();
        (facts.module, facts.module_column.zip(facts.module_row), facts.chip, facts.reasons.join(" "), facts.mask)
    };
    assert_eq!(of(0, 0), (Some(0), Some((0, 0)), Some(0), String::new(), None));
    assert_eq!(of(255, 255), (Some(0), Some((255, 255)), Some(0), String::new(), None));
    assert_eq!(of(256, 255), (Some(0), None, None, "gap".into(), None));
    assert_eq!(of(258, 255), (Some(0), Some((256, 255)), Some(1), String::new(), None));
    assert_eq!(of(1029, 513), (Some(0), Some((1023, 511)), Some(7), String::new(), None));
    let list = eiger.modules("d", eiger.size());
    assert_eq!((list.rows, list.columns, list.modules.len(), list.modules[0].tiles.len()), (Some(514), Some(1030), 1, 4));
    assert!(list.modules[0].name == "module 0" && list.modules[0].tiles[0].flip_rows && !list.modules[0].tiles[2].flip_rows);
    let jungfrau =
        config("[detector]\ntype = \"jungfrau\"\nmodules = 2\ngeometry = \"jungfrau-1m\"\n[processing]\ndtype = \"raw\"");
    let list = jungfrau.modules("d", jungfrau.size());
    assert_eq!((list.modules.len(), list.modules[1].row, list.modules[1].rows), (2, 551, 512));
    let between = jungfrau.pixel("d", [7, 530], jungfrau.size(), None, &Drawing::default()).unwrap();
    assert_eq!((between.module, between.reasons), (None, vec!["gap".to_string()]));
    let unknown = ImagePlace::Whole(None, None).modules("d", None);
    assert_eq!((unknown.rows, unknown.modules.len()), (None, 0));
}

#[test]
fn a_rectangle_of_the_configuration_has_its_reason() {
    let masked = |bin: &str| {
        let output = "[output]\ndirectory = \"out\"\nprefix = \"a\"\n";
        let text = format!("{STREAM}{output}[transform]\nmask_rectangle = [4, 6, 2, 3]\n{bin}\n");
        let place = ImagePlace::of(&service::load_text(&text, Path::new("/x/run.toml")).unwrap().detectors[0]);
        let pixel = |column, row| place.pixel("d", [column, row], Some([10, 12]), None, &Drawing::default()).unwrap();
        let all = (0..10).flat_map(|row| (0..12).map(move |column| [column, row]));
        all.filter(|[column, row]| pixel(*column, *row).reasons == ["mask_rectangle of the configuration"])
            .collect::<Vec<[u64; 2]>>()
    };
    assert_eq!(masked(""), [[6, 4], [7, 4], [8, 4], [6, 5], [7, 5], [8, 5]]);
    // Two rows are one, and four columns.
    assert_eq!(masked("bin = [2, 4]"), [[1, 2], [2, 2]]);
}
