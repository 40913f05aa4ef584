//! Adapts the start of a series, which describes the sender's images, to the images that a recipe makes of them: beam
//! centre, size of pixels and images, masks, and which numbers are measurements.

use konkordia_core::array::{Array, Shape};
use konkordia_core::geometry::Orientation;
use konkordia_core::series::SeriesStart;
use konkordia_kernels::Isa;
use konkordia_kernels::transform::{Compiled, Recipe, Reduce, Scratch, Step};
use serde_json::{Map, Value, json};

/// Keys of these facts in the metadata of Stream V1 and V2: along a row, along a column.
const BEAM: [[&str; 2]; 1] = [["beam_center_x", "beam_center_y"]];
const PIXEL_SIZE: [[&str; 2]; 2] = [["x_pixel_size", "y_pixel_size"], ["pixel_size_x", "pixel_size_y"]];
const IMAGE_SIZE: [[&str; 2]; 2] = [["x_pixels_in_detector", "y_pixels_in_detector"], ["image_size_x", "image_size_y"]];

/// Geometry of an image, as (down, along): rows and columns, beam centre, pixel size; NaN for what is not known.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Raster {
    size: (f64, f64),
    /// The first pixel spans 0 to 1 both ways.
    beam: (f64, f64),
    pixel_m: (f64, f64),
    turn: Orientation,
}

impl Raster {
    fn of(start: &SeriesStart) -> Self {
        let (facts, known) = (&start.facts, |number: Option<f64>| number.unwrap_or(f64::NAN));
        let size = start.image_size.map(|[rows, columns]| (rows as f64, columns as f64));
        let size = size.or_else(|| {
            let number = |name: &str| start.metadata.get(name)?.as_f64();
            IMAGE_SIZE.iter().find_map(|[columns, rows]| number(rows).zip(number(columns)))
        });
        Self {
            size: size.unwrap_or((f64::NAN, f64::NAN)),
            beam: (known(facts.beam_center_y_px), known(facts.beam_center_x_px)),
            pixel_m: facts.pixel_size_m.map_or((f64::NAN, f64::NAN), |[width, height]| (height, width)),
            turn: start.orientation,
        }
    }

    fn after(self, step: &Step) -> Self {
        let (size, beam, pixel_m) = (self.size, self.beam, self.pixel_m);
        match step {
            Step::Crop(window) => {
                let size = (window.rows as f64, window.columns as f64);
                Self { size, beam: (beam.0 - window.row as f64, beam.1 - window.column as f64), ..self }
            }
            Step::Orient(turn) => {
                let swapped = |(down, along)| if turn.is_sideways() { (along, down) } else { (down, along) };
                let (size_after, pixel_m) = (swapped(size), swapped(pixel_m));
                Self { size: size_after, beam: turn.moved(size, beam), pixel_m, turn: self.turn.then(*turn) }
            }
            Step::Bin(bin) => {
                let (rows, columns) = (bin.rows as f64, bin.columns as f64);
                // Rows and columns that fill no bin are left out at the end, so that nothing moves.
                Self {
                    size: ((size.0 / rows).floor(), (size.1 / columns).floor()),
                    beam: (beam.0 / rows, beam.1 / columns),
                    pixel_m: (pixel_m.0 * rows, pixel_m.1 * columns),
                    ..self
                }
            }
            _ => self,
        }
    }

    /// What is known, as a text.
    fn describe(&self) -> String {
        let pair = |(down, along): (f64, f64), what: &str| match (down.is_nan(), along.is_nan()) {
            (true, true) => None,
            _ => Some(format!("{what} {along} (x), {down} (y)")),
        };
        let all = [pair(self.beam, "beam centre"), pair(self.pixel_m, "pixel size in m"), pair(self.size, "image size")];
        all.into_iter().flatten().collect::<Vec<_>>().join("; ")
    }
}

/// Adapts `start` to the images that `recipe` makes. A fact that cannot be converted is left out, so that nothing false
/// is passed on. The notes of the start say what the sender said, and what was left out.
pub fn start_of_changed(start: &mut SeriesStart, recipe: &Recipe) {
    numbers(start, &recipe.steps);
    element(start, recipe);
    let places: Vec<Step> = recipe.steps.iter().filter(|step| moves(step)).cloned().collect();
    if !places.is_empty() {
        tables(start, &Recipe { steps: places.clone() });
        place(start, &places);
    }
}

/// True if the step moves pixels.
fn moves(step: &Step) -> bool {
    matches!(step, Step::Crop(_) | Step::Orient(_) | Step::Bin(_))
}

/// Adapts the limits of what is a measurement. Where numbers change, some below the sender's lowest may be
/// measurements.
fn numbers(start: &mut SeriesStart, steps: &[Step]) {
    let facts = &mut start.facts;
    for step in steps {
        match step {
            Step::Lookup(_) | Step::LookupPerPixel(_) => (facts.underload_value, facts.saturation_value) = (None, None),
            Step::Subtract(_) => facts.underload_value = None,
            Step::Bin(bin) => {
                let pixels = if bin.reduce == Reduce::Sum { (bin.rows * bin.columns) as u64 } else { 1 };
                facts.underload_value = None;
                facts.saturation_value = facts.saturation_value.map(|value| value.saturating_mul(pixels));
            }
            _ => {}
        }
    }
}

/// Adapts beam centre, sizes and orientation, in the facts and in the metadata that consumers get.
fn place(start: &mut SeriesStart, places: &[Step]) {
    let came = Raster::of(start);
    let raster = places.iter().fold(came, Raster::after);
    let known = |number: f64| Some(number).filter(|number| number.is_finite());
    let facts = &mut start.facts;
    (facts.beam_center_y_px, facts.beam_center_x_px) = (known(raster.beam.0), known(raster.beam.1));
    facts.pixel_size_m = known(raster.pixel_m.1).zip(known(raster.pixel_m.0)).map(|(width, height)| [width, height]);
    start.image_size = start.image_size.map(|_| [raster.size.0 as u64, raster.size.1 as u64]);
    start.orientation = raster.turn;
    update(&mut start.metadata, &BEAM, raster.beam, Value::from);
    update(&mut start.metadata, &PIXEL_SIZE, raster.pixel_m, Value::from);
    update(&mut start.metadata, &IMAGE_SIZE, raster.size, |pixels| json!(pixels as u64));
    let said = came.describe();
    if !said.is_empty() {
        start.notes.push(("transform_sender_said".into(), said));
    }
    // A turn may swap the two numbers, and a flip needs the size too.
    let count = |(down, along): (f64, f64)| usize::from(down.is_finite()) + usize::from(along.is_finite());
    if count(raster.beam) < count(came.beam) {
        let why = "left out: the images are turned, and the sender does not announce their size";
        start.notes.push(("transform_beam_center".into(), why.into()));
    }
}

/// Updates a fact in metadata that have it under one of these names, or removes it if it is not known any more.
fn update(metadata: &mut Map<String, Value>, names: &[[&str; 2]], (down, along): (f64, f64), value: fn(f64) -> Value) {
    for (name, number) in names.iter().flat_map(|[x, y]| [(*x, along), (*y, down)]) {
        match metadata.get_mut(name) {
            Some(said) if number.is_finite() => *said = value(number),
            Some(_) => drop(metadata.shift_remove(name)),
            None => {}
        }
    }
}

/// Adapts masks and flat fields of the channels. Binned ones are not defined and are left out.
fn tables(start: &mut SeriesStart, places: &Recipe) {
    let is_binned = places.steps.iter().any(|step| matches!(step, Step::Bin(_)));
    let size = start.image_size;
    let mut scratch = Scratch::new(Isa::detect());
    for (n, channel) in start.channels.iter_mut().enumerate() {
        for (what, place) in [("pixel_mask", &mut channel.pixel_mask), ("flatfield", &mut channel.flat_field)] {
            let Some(table) = place.take() else { continue };
            let moved = match size {
                _ if is_binned => Err("the images are binned".into()),
                Some(size) if !is_of(size, &table) => {
                    Err(format!("its shape {:?} differs from that of the images, {size:?}", table.shape.dimensions()))
                }
                _ => Compiled::new(places, table.shape, table.element).and_then(|compiled| compiled.array(&table, &mut scratch)),
            };
            match moved {
                Ok(table) => *place = Some(table),
                Err(why) => start.notes.push((format!("transform_{what}_{n}"), format!("left out: {why}"))),
            }
        }
    }
}

fn is_of(size: [u64; 2], table: &Array) -> bool {
    let dimensions = table.shape.dimensions();
    dimensions == size || (size[0] == 1 && dimensions == [size[1]])
}

/// Sets the pixel type of the images as they leave; `None` if the recipe does not fit the announced images: then the
/// first image shows it.
fn element(start: &mut SeriesStart, recipe: &Recipe) {
    let shape = start.image_size.and_then(|size| Shape::new(&size));
    let compiled = shape.zip(start.element).and_then(|(shape, element)| Compiled::new(recipe, shape, element).ok());
    start.element = compiled.map(|compiled| compiled.output().1);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::transform::by_recipe;
    use konkordia_core::array::{Element, Packing};
    use konkordia_core::experiment::Metadata;
    use konkordia_core::image::{Channel, CommittedImage};
    use konkordia_core::series::ChannelStart;
    use konkordia_kernels::transform::{Bin, Overflow, Window};

    const ROWS: usize = 11;
    const COLUMNS: usize = 8;

    /// An image of zeros with one pixel of 7.
    fn marked(row: usize, column: usize) -> Array {
        let mut pixels = [0u32; ROWS * COLUMNS];
        pixels[row * COLUMNS + column] = 7;
        let bytes: Vec<u8> = pixels.iter().flat_map(|pixel| pixel.to_le_bytes()).collect();
        let shape = Shape::new(&[ROWS as u64, COLUMNS as u64]).unwrap();
        Array { shape, element: Element::Uint32, packing: Packing::None, pieces: vec![bytes.into()] }
    }

    /// Row and column of the pixel of 7.
    fn marker(array: &Array) -> (f64, f64) {
        let columns = array.shape.dimensions()[1] as usize;
        let at = array.pieces[0].as_chunks::<4>().0.iter().position(|pixel| u32::from_le_bytes(*pixel) == 7).unwrap();
        ((at / columns) as f64, (at % columns) as f64)
    }

    fn start(beam: (f64, f64)) -> SeriesStart {
        let facts = Metadata {
            beam_center_y_px: Some(beam.0),
            beam_center_x_px: Some(beam.1),
            pixel_size_m: Some([2.0, 3.0]),
            saturation_value: Some(1000),
            underload_value: Some(0),
            ..Metadata::default()
        };
        let metadata = json!({ "beam_center_x": beam.1, "y_pixel_size": 3.0, "image_size_x": COLUMNS, "name": "n" });
        SeriesStart {
            image_size: Some([ROWS as u64, COLUMNS as u64]),
            element: Some(Element::Uint32),
            channels: vec![ChannelStart { pixel_mask: Some(marked(6, 5)), ..ChannelStart::default() }],
            facts,
            metadata: metadata.as_object().unwrap().clone(),
            ..SeriesStart::default()
        }
    }

    fn bin(rows: usize, columns: usize) -> Step {
        Step::Bin(Bin { rows, columns, reduce: Reduce::Sum, element: None, overflow: Overflow::Saturated })
    }

    /// What the recipe makes of an image with the marker at `at`, and of its start.
    fn changed(steps: &[Step], at: (usize, usize), mut said: SeriesStart) -> (Array, SeriesStart) {
        let mut transform = by_recipe(Recipe { steps: steps.to_vec() })();
        let channels = vec![Channel { name: "".into(), array: marked(at.0, at.1) }];
        let image = transform.run(CommittedImage { channels, ..CommittedImage::lost(0) }, Orientation::UPRIGHT).unwrap();
        transform.start(&mut said);
        (image.channels.into_iter().next().unwrap().array, said)
    }

    /// Cuts, turns and bins in both orders.
    fn recipes() -> Vec<Vec<Step>> {
        let window = Window { row: 2, column: 1, rows: 7, columns: 6 };
        let cut = Step::Crop(window);
        let mut all = vec![vec![cut.clone()], vec![bin(2, 3)]];
        for turn in Orientation::all().map(Step::Orient) {
            all.push(vec![turn.clone()]);
            all.push(vec![cut.clone(), turn.clone()]);
            all.push(vec![turn.clone(), Step::Crop(Window { row: 1, column: 1, rows: 6, columns: 6 })]);
            all.push(vec![cut.clone(), turn.clone(), bin(2, 3)]);
            all.push(vec![bin(2, 1), turn.clone(), Step::Orient(Orientation { flip_rows: true, ..Orientation::UPRIGHT })]);
        }
        all
    }

    #[test]
    fn the_marker_is_where_the_facts_say() {
        // Beam and marker at the same place: the middle of the pixel, after binning that of the pixel inside its bin.
        for steps in recipes() {
            let (image, said) = changed(&steps, (6, 5), start((6.5, 5.5)));
            assert_eq!(said.image_size, Some([image.shape.dimensions()[0], image.shape.dimensions()[1]]), "{steps:?}");
            let beam = (said.facts.beam_center_y_px.unwrap(), said.facts.beam_center_x_px.unwrap());
            assert_eq!((beam.0.floor(), beam.1.floor()), marker(&image), "{steps:?}");
            let is_binned = steps.iter().any(|step| matches!(step, Step::Bin(_)));
            if !is_binned {
                assert_eq!((beam.0.fract(), beam.1.fract()), (0.5, 0.5));
            }
            match &said.channels[0].pixel_mask {
                Some(mask) => assert_eq!((mask.shape, marker(mask)), (image.shape, marker(&image)), "the mask moves too"),
                None => assert!(is_binned && said.notes.iter().any(|(name, _)| name == "transform_pixel_mask_0")),
            }
            assert_eq!(said.metadata["beam_center_x"].as_f64(), said.facts.beam_center_x_px);
            assert_eq!(said.metadata["y_pixel_size"].as_f64(), said.facts.pixel_size_m.map(|[_, height]| height));
            assert_eq!(
                (&said.metadata["image_size_x"], &said.metadata["name"]),
                (&json!(image.shape.dimensions()[1]), &json!("n"))
            );
        }
    }

    #[test]
    fn the_marker_lies_where_it_lay_in_the_laboratory() {
        // From the beam to the middle of the marker, down and to the right, in the unit of the pixel size.
        for steps in recipes().into_iter().filter(|steps| !steps.iter().any(|step| matches!(step, Step::Bin(_)))) {
            let (image, said) = changed(&steps, (6, 5), start((3.25, -4.5)));
            let (row, column) = marker(&image);
            let [width, height] = said.facts.pixel_size_m.unwrap();
            let down = (row + 0.5 - said.facts.beam_center_y_px.unwrap()) * height;
            let along = (column + 0.5 - said.facts.beam_center_x_px.unwrap()) * width;
            let [slow, fast] = said.orientation.steps();
            let place: [f64; 2] = std::array::from_fn(|axis| down * slow[axis] + along * fast[axis]);
            assert_eq!(place, [(6.5 - 3.25) * 3.0, (5.5 + 4.5) * 2.0], "{steps:?}");
        }
    }

    #[test]
    fn what_cannot_be_moved_is_not_passed_on() {
        let flip = [Step::Orient(Orientation::FLIPPED)];
        let mut said = SeriesStart { image_size: None, ..start((3.0, 4.0)) };
        said.metadata.insert("beam_center_y".into(), json!(3.0));
        let (_, said) = changed(&flip, (0, 0), said);
        assert_eq!((said.facts.beam_center_y_px, said.facts.beam_center_x_px), (None, Some(4.0)));
        assert_eq!((said.image_size, said.metadata.get("beam_center_y")), (None, None));
        assert!(said.notes.iter().any(|(name, _)| name == "transform_beam_center"));
        // A part that is cut out has a known size.
        let cut = Step::Crop(Window { row: 1, column: 0, rows: 5, columns: 8 });
        let (_, said) = changed(&[cut, flip[0].clone()], (2, 0), SeriesStart { image_size: None, ..start((3.0, 4.0)) });
        assert_eq!(said.facts.beam_center_y_px, Some(3.0));
        // A mask of another size is not of these images.
        let (_, said) = changed(&flip, (0, 0), SeriesStart { image_size: Some([ROWS as u64, 99]), ..start((3.0, 4.0)) });
        assert!(said.channels[0].pixel_mask.is_none() && said.notes.iter().any(|(name, _)| name == "transform_pixel_mask_0"));
    }

    #[test]
    fn limits_are_those_of_the_numbers_that_leave() {
        let limits = |steps: &[Step]| {
            let (_, said) = changed(steps, (0, 0), start((0.0, 0.0)));
            (said.facts.underload_value, said.facts.saturation_value, said.element)
        };
        assert_eq!(limits(&[Step::Orient(Orientation::FLIPPED)]), (Some(0), Some(1000), Some(Element::Uint32)));
        assert_eq!(limits(&[bin(2, 3)]), (None, Some(6000), Some(Element::Uint32)));
        let convert = Step::Convert { element: Element::Int16, overflow: Overflow::Saturated };
        assert_eq!(limits(&[convert]), (Some(0), Some(1000), Some(Element::Int16)));
        let (_, said) = changed(&[], (0, 0), start((1.0, 2.0)));
        assert_eq!(said, start((1.0, 2.0)));
    }
}
