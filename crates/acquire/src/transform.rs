//! Carries out `[transform]`: compiles the configured steps for the images that arrive.

use crate::tables::{self, Numbers};
use konkordia_config::transform::TransformOptions;
use konkordia_core::array::{Array, Element, Shape};
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::geometry::Orientation;
use konkordia_core::image::{Channel, CommittedImage};
use konkordia_core::series::SeriesStart;
use konkordia_engine::series::{Transform, TransformFactory, start_of_changed};
use konkordia_kernels::isa::Isa;
use konkordia_kernels::transform::{
    Background, Bin, Compiled, Entries, Mask, Overflow, PixelTable, Plane, Recipe, Reduce, Scratch, Step, Table, Window,
};
use std::path::Path;
use std::sync::Arc;

/// Name of the lookup table in a NumPy archive, as the MAX IV receiver has it.
const TABLE: &str = "tot_to_energy_tensor";
/// Largest file of a table or plane, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// The options, with the files that they name.
struct Materials {
    options: TransformOptions,
    lookup: Option<Lookup>,
    background: Option<Arc<Background>>,
    mask: Option<Vec<bool>>,
}

/// A table of new values.
enum Lookup {
    /// The same for all pixels.
    All(Entries),
    /// One table for each pixel, for images of so many rows and columns.
    Each(usize, usize, Arc<PixelTable>),
}

/// Reads the files that the options name. Returns a factory for the transformation of each worker; `None` if there is
/// nothing to do.
///
/// # Errors
/// A file cannot be read or used, for example because of its length.
pub fn factory(options: &TransformOptions) -> Result<Option<TransformFactory>, Failure> {
    if !options.changes_pixels() {
        return Ok(None);
    }
    let lookup = options.lookup.as_ref().map(|(path, element)| lookup(path, *element)).transpose()?;
    let background = options.background.as_ref().map(|path| floats(path)).transpose()?;
    let background = background.map(|plane| Arc::new(Background::Float32(plane)));
    let mask = options.mask.as_ref().map(|path| read(path)).transpose()?;
    let mask = mask.map(|bytes| bytes.iter().map(|byte| *byte != 0).collect());
    let materials = Arc::new(Materials { options: options.clone(), lookup, background, mask });
    Ok(Some(Box::new(move || Box::new(Worker::new(Arc::clone(&materials))))))
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let length = std::fs::metadata(path).map_err(|error| Failure::io("cannot read", path, &error))?.len();
    if length == 0 || length > FILE_BYTES_MAX {
        let what = format!("{} cannot be used by [transform]", path.display());
        let why = format!("it has {length} bytes; 1 to {FILE_BYTES_MAX} are possible");
        return Err(Failure::new(Exit::Configuration, what, why, "give another file"));
    }
    std::fs::read(path).map_err(|error| Failure::io("cannot read", path, &error))
}

fn words<const N: usize, T>(path: &Path, convert: fn([u8; N]) -> T) -> Result<Vec<T>, Failure> {
    let bytes = read(path)?;
    let (whole, rest) = bytes.as_chunks::<N>();
    if !rest.is_empty() {
        let what = format!("{} cannot be used by [transform]", path.display());
        let why = format!("it has {} bytes, which is not a multiple of {N}", bytes.len());
        return Err(Failure::new(Exit::Configuration, what, why, "give a file of plain little-endian numbers"));
    }
    Ok(whole.iter().map(|chunk| convert(*chunk)).collect())
}

fn floats(path: &Path) -> Result<Vec<f32>, Failure> {
    words(path, f32::from_le_bytes)
}

fn lookup(path: &Path, element: Element) -> Result<Lookup, Failure> {
    let bytes = read(path)?;
    if !tables::is_numpy(&bytes) {
        return entries(path, element).map(Lookup::All);
    }
    let wrong = |why: String| {
        let fix = "give a table [values] or [rows, columns, values] as numpy.savez(file, tot_to_energy_tensor=table) writes it";
        Failure::new(Exit::Configuration, format!("{} cannot be used by [transform]", path.display()), why, fix)
    };
    let Numbers { shape, values } = tables::read(&bytes, TABLE).map_err(wrong)?;
    match shape[..] {
        [_] => Ok(Lookup::All(Entries::Float32(values))),
        [rows, columns, count] => {
            let table = PixelTable::new(rows * columns, count, values).map_err(wrong)?;
            Ok(Lookup::Each(rows, columns, Arc::new(table)))
        }
        _ => Err(wrong(format!("its table has {} dimensions; 1 or 3 are possible", shape.len()))),
    }
}

fn entries(path: &Path, element: Element) -> Result<Entries, Failure> {
    Ok(if element == Element::Uint16 {
        Entries::Uint16(words(path, u16::from_le_bytes)?)
    } else {
        Entries::Float32(floats(path)?)
    })
}

impl Materials {
    /// The steps for images of this shape and type.
    fn recipe(&self, shape: Shape, element: Element, turn: Orientation) -> Result<Recipe, String> {
        let dimensions = shape.dimensions();
        let last: Vec<usize> = dimensions[dimensions.len().saturating_sub(2)..].iter().map(|n| *n as usize).collect();
        let (rows, columns) = match last[..] {
            [rows, columns] => (rows, columns),
            [columns] => (1, columns),
            _ => (1, 1),
        };
        if let Some(background) = &self.background {
            expect_pixels("background", background.pixels(), rows * columns)?;
        }
        if let Some(mask) = &self.mask {
            expect_pixels("mask", mask.len(), rows * columns)?;
        }
        self.steps((rows, columns), element, turn)
    }

    /// As [`Self::recipe`], without a check that the files fit images of this size.
    fn steps(&self, (rows, columns): (usize, usize), element: Element, turn: Orientation) -> Result<Recipe, String> {
        let (options, mut steps) = (&self.options, Vec::new());
        // The same camera also sends 8 and 16 bit pixels, which need no unpacking.
        let is_packed = options.unpack.map(Element::Packed) == Some(element);
        if is_packed {
            steps.push(Step::Unpack);
        }
        let element = if is_packed { element.unpacked() } else { element };
        match &self.lookup {
            None => {}
            Some(Lookup::All(entries)) => steps.push(Step::Lookup(Arc::new(Table::new(element, entries.clone())?))),
            Some(Lookup::Each(rows, columns, data)) => {
                steps.push(Step::LookupPerPixel(Plane { rows: *rows, columns: *columns, data: Arc::clone(data) }));
            }
        }
        if let Some(data) = &self.background {
            steps.push(Step::Subtract(Plane { rows, columns, data: Arc::clone(data) }));
        }
        if let Some(mask) = &self.mask {
            steps.push(Step::Mask(Plane { rows, columns, data: Arc::new(Mask::new(mask.iter().copied())) }));
        }
        if let Some([row, column, rows, columns]) = options.crop.map(|crop| crop.map(|n| n as usize)) {
            steps.push(Step::Crop(Window { row, column, rows, columns }));
        }
        if let Some(orientation) = options.orientation {
            steps.push(Step::Orient(orientation));
        }
        if options.turn_as_asked && turn != Orientation::UPRIGHT {
            steps.push(Step::Orient(turn));
        }
        if let Some([row, column, rows, columns]) = options.mask_rectangle.map(|window| window.map(|n| n as usize)) {
            steps.push(Step::MaskRectangle(Window { row, column, rows, columns }));
        }
        if let Some([rows, columns]) = options.bin.map(|bin| bin.map(|n| n as usize)) {
            let reduce = if options.bin_mean { Reduce::Mean } else { Reduce::Sum };
            steps.push(Step::Bin(Bin { rows, columns, reduce, element: None, overflow: Overflow::Saturated }));
        }
        Ok(Recipe { steps })
    }
}

fn expect_pixels(what: &str, has: usize, wants: usize) -> Result<(), String> {
    if has == wants { Ok(()) } else { Err(format!("transform.{what} has {has} pixels, the images have {wants}")) }
}

/// The compiled steps for images of one shape, type and turn; `None` = there is nothing to do.
struct Known {
    form: (Shape, Element, Orientation),
    compiled: Option<Compiled>,
}

/// The transformation of one worker.
struct Worker {
    materials: Arc<Materials>,
    /// One entry for each shape, type and turn seen so far; a series has few.
    compiled: Vec<Known>,
    scratch: Scratch,
}

impl Worker {
    /// Most entries kept; when one more is needed, all are dropped.
    const FORMS_MAX: usize = 8;

    fn new(materials: Arc<Materials>) -> Self {
        Self { materials, compiled: Vec::new(), scratch: Scratch::new(Isa::detect()) }
    }

    fn array(&mut self, array: &Array, turn: Orientation) -> Result<Array, String> {
        let form = (array.shape, array.element, turn);
        let at = match self.compiled.iter().position(|known| known.form == form) {
            Some(at) => at,
            None => {
                let recipe = self.materials.recipe(array.shape, array.element, turn)?;
                let is_idle = recipe.steps.is_empty();
                let compiled = if is_idle { None } else { Some(Compiled::new(&recipe, array.shape, array.element)?) };
                if self.compiled.len() == Self::FORMS_MAX {
                    self.compiled.clear();
                }
                self.compiled.push(Known { form, compiled });
                self.compiled.len() - 1
            }
        };
        match &self.compiled[at].compiled {
            Some(compiled) => compiled.array(array, &mut self.scratch),
            None => Ok(array.clone()),
        }
    }
}

impl Transform for Worker {
    fn run(&mut self, mut image: CommittedImage, turn: Orientation) -> Result<CommittedImage, String> {
        let mut channels = Vec::with_capacity(image.channels.len());
        for channel in &image.channels {
            channels.push(Channel { name: Arc::clone(&channel.name), array: self.array(&channel.array, turn)? });
        }
        image.channels = channels;
        Ok(image)
    }

    fn start(&self, start: &mut SeriesStart) {
        let [rows, columns] = start.image_size.unwrap_or([1, 1]).map(|n| n as usize);
        // If the lookup table cannot take the announced type, every image fails too, so there is nothing to describe.
        if let Ok(recipe) = self.materials.steps((rows, columns), start.element.unwrap_or(Element::Uint16), start.turn) {
            start_of_changed(start, &recipe);
        }
        if self.materials.options.upright {
            start.orientation = Orientation::UPRIGHT;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use konkordia_core::array::Packing;
    use konkordia_core::experiment::Metadata;
    use konkordia_core::geometry::Quarter;

    fn image(pixels: &[u16], rows: u64, columns: u64) -> CommittedImage {
        let bytes: Vec<u8> = pixels.iter().flat_map(|p| p.to_le_bytes()).collect();
        let array = Array {
            shape: Shape::new(&[rows, columns]).unwrap(),
            element: Element::Uint16,
            packing: Packing::None,
            pieces: vec![bytes.into()],
        };
        CommittedImage { channels: vec![Channel { name: "".into(), array }], ..CommittedImage::lost(0) }
    }

    #[test]
    fn the_steps_of_the_configuration_are_done_in_their_order() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, bytes: Vec<u8>| {
            std::fs::write(folder.path().join(name), bytes).unwrap();
            folder.path().join(name)
        };
        let options = TransformOptions {
            background: Some(file("b", (0..6).flat_map(|n| (n as f32).to_le_bytes()).collect())),
            crop: Some([0, 0, 2, 2]),
            orientation: Some(Orientation::new(false, false, Quarter::from_deg(90).unwrap())),
            ..TransformOptions::default()
        };
        let mut worker = factory(&options).unwrap().unwrap()();
        let changed = worker.run(image(&[10, 20, 30, 40, 50, 60], 2, 3), Orientation::UPRIGHT).unwrap();
        let array = &changed.channels[0].array;
        assert_eq!((array.element, array.shape.dimensions()), (Element::Int32, &[2u64, 2][..]));
        let pixels: Vec<i32> = array.pieces[0].as_chunks::<4>().0.iter().map(|c| i32::from_le_bytes(*c)).collect();
        // Less background: 10 19 28 / 37 46 55; cut: 10 19 / 37 46; clockwise: 37 10 / 46 19.
        assert_eq!(pixels, [37, 10, 46, 19]);
        let said = worker.run(image(&[1; 4], 2, 2), Orientation::UPRIGHT).unwrap_err();
        assert!(said.contains("background has 6 pixels, the images have 4"), "{said}");
    }

    #[test]
    fn the_start_tells_of_the_images_that_leave() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("b"), 1f32.to_le_bytes().repeat(12)).unwrap();
        let options = TransformOptions {
            background: Some(folder.path().join("b")),
            crop: Some([1, 1, 2, 3]),
            orientation: Some(Orientation::FLIPPED),
            bin: Some([2, 1]),
            ..TransformOptions::default()
        };
        let facts = Metadata { beam_center_y_px: Some(1.5), underload_value: Some(0), ..Metadata::default() };
        let came = SeriesStart { facts, image_size: Some([3, 4]), element: Some(Element::Uint16), ..SeriesStart::default() };
        let mut said = came.clone();
        factory(&options).unwrap().unwrap()().start(&mut said);
        assert_eq!((said.image_size, said.element), (Some([1, 3]), Some(Element::Int32)));
        // Cut: 0.5 of 2 rows; flipped: 1.5; two rows are one.
        assert_eq!((said.facts.beam_center_y_px, said.facts.underload_value), (Some(0.75), None));
        assert_eq!(said.orientation, Orientation::FLIPPED);
        let options = TransformOptions { upright: true, ..options };
        let mut said = SeriesStart { image_size: None, ..came };
        factory(&options).unwrap().unwrap()().start(&mut said);
        assert_eq!((said.facts.beam_center_y_px, said.orientation), (Some(0.75), Orientation::UPRIGHT));
    }

    #[test]
    fn files_that_are_none_are_refused() {
        assert!(factory(&TransformOptions::default()).unwrap().is_none());
        let missing = TransformOptions { mask: Some("/no/such".into()), ..TransformOptions::default() };
        assert!(factory(&missing).is_err());
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("odd"), [1, 2, 3]).unwrap();
        let odd = TransformOptions { background: Some(folder.path().join("odd")), ..TransformOptions::default() };
        assert!(factory(&odd).is_err_and(|e| e.why.contains("not a multiple of 4")));
    }
}
