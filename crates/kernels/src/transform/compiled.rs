//! A list of steps, checked once against the shape and type of the images, then run on each of them.

use super::bin::{self, Bin, Totals};
use super::packed;
use super::pixels::{self, Background, Mask, PixelTable, Table};
use super::place::{self, Window};
use super::sample::Overflow;
use super::unpack::{self, UnpackScratch};
use crate::isa::Isa;
use konkordia_core::array::{Array, Element, Packing, Shape};
use konkordia_core::geometry::Orientation;
use std::sync::Arc;

/// One transformation. Images of more than two dimensions are stacks of planes (channels, pieces), and each plane is
/// transformed by itself. An image of one dimension is a single row.
#[derive(Clone, Debug)]
pub enum Step {
    /// Unpack pixels that do not have whole bytes: `mono4p` to `uint8`, `mono10p`, `mono12p` and `mono14p` to `uint16`.
    Unpack,
    /// Flip and turn.
    Orient(Orientation),
    /// Cut out.
    Crop(Window),
    /// Make bins one pixel each. Rows and columns at the end that fill no bin are left out.
    Bin(Bin),
    /// Replace each value by its entry in a table.
    Lookup(Arc<Table>),
    /// Replace each value by its entry in the table of its pixel; gives `float32`.
    LookupPerPixel(Plane<PixelTable>),
    /// Subtract a background; gives `int32`.
    Subtract(Plane<Background>),
    /// Set pixels of no use to the value *masked*.
    Mask(Plane<Mask>),
    /// Set a part to -1, or to the value *masked* where the type has no sign.
    MaskRectangle(Window),
    /// Change the type.
    Convert {
        /// The new one.
        element: Element,
        /// What becomes of numbers above its range.
        overflow: Overflow,
    },
}

impl Step {
    /// Its name, for error texts.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Unpack => "unpack",
            Self::Orient(_) => "orient",
            Self::Crop(_) => "crop",
            Self::Bin(_) => "bin",
            Self::Lookup(_) => "lookup",
            Self::LookupPerPixel(_) => "lookup per pixel",
            Self::Subtract(_) => "subtract",
            Self::Mask(_) => "mask",
            Self::MaskRectangle(_) => "mask rectangle",
            Self::Convert { .. } => "convert",
        }
    }
}

/// One value for each pixel of a plane of this size.
#[derive(Clone, Debug)]
pub struct Plane<T> {
    /// Rows.
    pub rows: usize,
    /// Columns.
    pub columns: usize,
    /// The values, row by row.
    pub data: Arc<T>,
}

/// What is done to each image, in this order. Sums of consecutive images come after it ([`super::SumState`]).
#[derive(Clone, Debug, Default)]
pub struct Recipe {
    /// The steps; none = images stay as they are.
    pub steps: Vec<Step>,
}

/// A plane between two steps.
#[derive(Clone, Copy, Debug)]
struct Form {
    rows: usize,
    columns: usize,
    element: Element,
}

impl Form {
    fn bytes(&self) -> usize {
        (self.rows * self.columns * self.element.bits() as usize).div_ceil(8)
    }

    /// Bytes per pixel, for steps that come after [`Step::Unpack`].
    fn pixel_bytes(&self) -> usize {
        self.element.bits() as usize / 8
    }
}

/// What is done to a plane where it lies.
#[derive(Clone, Debug)]
enum InPlace {
    Mask(Arc<Mask>),
    Rectangle(Window),
}

/// A step that writes a new plane, and the masks that follow it, which change this plane where it lies.
#[derive(Debug)]
struct Stage {
    /// `None` copies.
    step: Option<Step>,
    from: Form,
    to: Form,
    masks: Vec<InPlace>,
}

/// A [`Recipe`] checked for images of one shape and type. From here on, only a bad image can cause an error.
#[derive(Debug)]
pub struct Compiled {
    input: (Shape, Element),
    output: (Shape, Element),
    stages: Vec<Stage>,
    planes: usize,
}

/// The buffers of one worker, kept between images; at most [`Compiled::scratch_bytes`].
pub struct Scratch {
    isa: Isa,
    unpack: UnpackScratch,
    unpacked: Vec<u8>,
    between: [Vec<u8>; 2],
    totals: Totals,
}

impl Scratch {
    /// Allocates nothing yet.
    pub fn new(isa: Isa) -> Self {
        Self {
            isa,
            unpack: UnpackScratch::new(isa),
            unpacked: Vec::new(),
            between: Default::default(),
            totals: Totals::default(),
        }
    }
}

/// The error text for an image that is too large.
fn too_large(shape: Shape) -> String {
    format!("images of shape {:?} are too large to be transformed", shape.dimensions())
}

impl Compiled {
    /// Checks every step against the output of the step before it.
    ///
    /// # Errors
    /// The first step that cannot be done, why, and what to do, as a text for users.
    pub fn new(recipe: &Recipe, shape: Shape, element: Element) -> Result<Self, String> {
        let dimensions = shape.dimensions();
        let (leading, plane) = dimensions.split_at(dimensions.len().saturating_sub(2));
        let sizes: Option<Vec<usize>> = dimensions.iter().map(|n| usize::try_from(*n).ok()).collect();
        let sizes = sizes.ok_or_else(|| too_large(shape))?;
        let (rows, columns) = (if plane.len() == 2 { sizes[leading.len()] } else { 1 }, sizes[sizes.len() - 1]);
        let planes: usize = sizes[..leading.len()].iter().product();
        let mut form = Form { rows, columns, element };
        let starts_on_bytes = rows.checked_mul(columns).is_some_and(|n| (n % 8 * element.bits() as usize).is_multiple_of(8));
        if planes > 1 && !starts_on_bytes && !recipe.steps.is_empty() {
            let name = element.name();
            return Err(format!("planes of {rows} x {columns} pixels of {name} do not start on byte boundaries"));
        }
        let mut stages: Vec<Stage> = Vec::new();
        for (index, step) in recipe.steps.iter().enumerate() {
            let to = after(step, form).map_err(|why| format!("step {} ({}): {why}", index + 1, step.name()))?;
            // Leaves room for the totals too, so that no later product overflows.
            let bytes = to.rows.checked_mul(to.columns).and_then(|n| n.checked_mul(planes)).and_then(|n| n.checked_mul(32));
            bytes.filter(|bytes| isize::try_from(*bytes).is_ok()).ok_or_else(|| too_large(shape))?;
            let in_place = match step {
                Step::Mask(mask) => Some(InPlace::Mask(Arc::clone(&mask.data))),
                Step::MaskRectangle(window) => Some(InPlace::Rectangle(*window)),
                _ => None,
            };
            match (in_place, stages.last_mut()) {
                (Some(mask), Some(before)) => before.masks.push(mask),
                (Some(mask), None) => stages.push(Stage { step: None, from: form, to, masks: vec![mask] }),
                _ => stages.push(Stage { step: Some(step.clone()), from: form, to, masks: Vec::new() }),
            }
            form = to;
        }
        let last_two = [form.rows as u64, form.columns as u64];
        let last = if plane.len() == 1 && form.rows == 1 { &last_two[1..] } else { &last_two[..] };
        let output = Shape::new(&[leading, last].concat()).ok_or_else(|| too_large(shape))?;
        let fits = (shape.elements() as u128 * 8).max(1) <= isize::MAX as u128;
        fits.then_some(Self { input: (shape, element), output: (output, form.element), stages, planes })
            .ok_or_else(|| too_large(shape))
    }

    /// Shape and type of the images that it takes.
    pub fn input(&self) -> (Shape, Element) {
        self.input
    }

    /// Shape and type of the images that it gives.
    pub fn output(&self) -> (Shape, Element) {
        self.output
    }

    /// True if images only have to be unpacked.
    pub fn is_empty(&self) -> bool {
        self.stages.is_empty()
    }

    /// Most bytes that a [`Scratch`] takes for it, without the state of a Zstd decoder.
    pub fn scratch_bytes(&self) -> u64 {
        let totals = Totals::bytes(self.widest_bin());
        2 * image_bytes(self.input) as u64 + 2 * self.between_bytes() as u64 + totals as u64
    }

    /// Allocates now the memory that ordinary images need, so that the first of them does not.
    pub fn prepare(&self, scratch: &mut Scratch) {
        for between in &mut scratch.between {
            grow(between, self.between_bytes());
        }
        grow(&mut scratch.unpacked, if self.is_empty() { 0 } else { image_bytes(self.input) });
        scratch.totals.begin(Element::Uint64, self.widest_bin());
    }

    fn between_bytes(&self) -> usize {
        let inner = self.stages.len().saturating_sub(1);
        self.stages[..inner].iter().map(|stage| stage.to.bytes()).max().unwrap_or(0)
    }

    fn widest_bin(&self) -> usize {
        let bins = self.stages.iter().filter(|stage| matches!(stage.step, Some(Step::Bin(_))));
        bins.map(|stage| stage.from.columns).max().unwrap_or(0)
    }

    /// Unpacks an image and does all steps. Afterwards `out` holds the pixels of the result and nothing else.
    ///
    /// # Errors
    /// If the image has another shape or type, or its bytes cannot be unpacked, as a text for users. `out` is then of
    /// no use.
    pub fn run(&self, array: &Array, scratch: &mut Scratch, out: &mut Vec<u8>) -> Result<(), String> {
        if (array.shape, array.element) != self.input {
            let name = |(shape, element): (Shape, Element)| format!("{:?} {}", shape.dimensions(), element.name());
            return Err(format!("an image of {} came after images of {}", name((array.shape, array.element)), name(self.input)));
        }
        if self.is_empty() {
            out.resize(image_bytes(self.input), 0);
            return unpack_pieces(array, out, &mut scratch.unpack);
        }
        if let (Packing::None, [piece]) = (array.packing, &array.pieces[..]) {
            return self.run_unpacked(piece, scratch, out);
        }
        let mut unpacked = std::mem::take(&mut scratch.unpacked);
        grow(&mut unpacked, image_bytes(self.input));
        let image = &mut unpacked[..image_bytes(self.input)];
        let done = unpack_pieces(array, image, &mut scratch.unpack).and_then(|()| self.run_unpacked(image, scratch, out));
        scratch.unpacked = unpacked;
        done
    }

    /// As [`Self::run`]; gives the result as an array that is not packed.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn array(&self, array: &Array, scratch: &mut Scratch) -> Result<Array, String> {
        let mut out = Vec::new();
        self.run(array, scratch, &mut out)?;
        let (shape, element) = self.output;
        Ok(Array { shape, element, packing: Packing::None, pieces: vec![out.into()] })
    }

    /// As [`Self::run`], for the bytes of pixels that are not packed.
    ///
    /// # Errors
    /// If these are not as many bytes as an image has.
    pub fn run_unpacked(&self, image: &[u8], scratch: &mut Scratch, out: &mut Vec<u8>) -> Result<(), String> {
        let bytes = image_bytes(self.input);
        if image.len() != bytes {
            return Err(format!("the image has {} bytes, {bytes} were expected", image.len()));
        }
        out.resize(image_bytes(self.output), 0);
        let Some((first, last)) = self.stages.first().zip(self.stages.last()) else {
            out.copy_from_slice(image);
            return Ok(());
        };
        for between in &mut scratch.between {
            grow(between, self.between_bytes());
        }
        let planes = image.chunks_exact(first.from.bytes()).zip(out.chunks_exact_mut(last.to.bytes()));
        debug_assert_eq!(planes.len(), self.planes);
        planes.for_each(|(plane, out)| self.run_plane(plane, scratch, out));
        Ok(())
    }

    fn run_plane(&self, plane: &[u8], scratch: &mut Scratch, out: &mut [u8]) {
        let Scratch { isa, between: [a, b], totals, .. } = scratch;
        let (mut before, mut after) = (a, b);
        let last = self.stages.len() - 1;
        for (index, stage) in self.stages.iter().enumerate() {
            let source = if index == 0 { plane } else { &before[..stage.from.bytes()] };
            let target = if index == last { &mut *out } else { &mut after[..stage.to.bytes()] };
            stage.run(*isa, source, totals, target);
            std::mem::swap(&mut before, &mut after);
        }
    }
}

impl Stage {
    fn run(&self, isa: Isa, image: &[u8], totals: &mut Totals, out: &mut [u8]) {
        let Form { rows, columns, element } = self.from;
        match &self.step {
            None => out.copy_from_slice(image),
            Some(Step::Unpack) => match element {
                Element::Packed(bits) => packed::unpack(isa, bits, image, out),
                other => unreachable!("{} is not packed", other.name()),
            },
            Some(Step::Orient(turn)) => place::orient(isa, self.from.pixel_bytes(), (rows, columns), image, *turn, out),
            Some(Step::Crop(window)) => place::crop(self.from.pixel_bytes(), columns, image, *window, out),
            Some(Step::Bin(how)) => bin::bin(isa, element, columns, image, how, totals, out),
            Some(Step::Lookup(table)) => pixels::lookup(table, image, out),
            Some(Step::LookupPerPixel(table)) => pixels::lookup_per_pixel(element, &table.data, image, out),
            Some(Step::Subtract(background)) => pixels::subtract(isa, element, image, &background.data, out),
            Some(Step::Convert { overflow, .. }) => pixels::convert(isa, element, image, self.to.element, *overflow, out),
            Some(Step::Mask(_) | Step::MaskRectangle(_)) => unreachable!("masks follow a stage"),
        }
        for mask in &self.masks {
            match mask {
                InPlace::Mask(mask) => pixels::mask(self.to.element, mask, out),
                InPlace::Rectangle(window) => pixels::mask_rectangle(self.to.element, self.to.columns, *window, out),
            }
        }
    }
}

/// The plane that a step makes of another, or why it cannot.
fn after(step: &Step, from: Form) -> Result<Form, String> {
    let Form { rows, columns, element } = from;
    if element.is_packed() && !matches!(step, Step::Unpack) {
        return Err(format!("the pixels are {}; put the step unpack before it", element.name()));
    }
    let same_size = |has_rows: usize, has_columns: usize, data: usize, what: &str| {
        if (has_rows, has_columns) != (rows, columns) {
            return Err(format!("{what} is for {has_rows} x {has_columns} pixels, the image has {rows} x {columns} there"));
        }
        if data != rows * columns {
            return Err(format!("{what} has {data} values for {rows} x {columns} pixels"));
        }
        Ok(from)
    };
    match step {
        Step::Unpack if !element.is_packed() => Err(format!("the pixels are {}, there is nothing to unpack", element.name())),
        Step::Unpack => Ok(Form { element: element.unpacked(), ..from }),
        Step::Orient(orientation) => {
            let (rows, columns) = place::turned(*orientation, (rows, columns));
            Ok(Form { rows, columns, element })
        }
        Step::Crop(window) if window.fits(rows, columns) => Ok(Form { rows: window.rows, columns: window.columns, element }),
        Step::MaskRectangle(window) if window.fits(rows, columns) => Ok(from),
        Step::Crop(w) | Step::MaskRectangle(w) => Err(format!(
            "{} rows from row {} and {} columns from column {} do not lie in an image of {rows} x {columns} pixels",
            w.rows, w.row, w.columns, w.column
        )),
        Step::Bin(how) => binned(how, from),
        Step::Lookup(table) if table.input() == element => Ok(Form { element: table.output(), ..from }),
        Step::Lookup(table) => Err(format!("the table is for pixels of {}, these are {}", table.input().name(), element.name())),
        Step::LookupPerPixel(_) if !PixelTable::takes(element) => {
            Err(format!("a table for each pixel is for integers, not for pixels of {}", element.name()))
        }
        Step::LookupPerPixel(plane) => {
            same_size(plane.rows, plane.columns, plane.data.pixels(), "the lookup table")?;
            Ok(Form { element: Element::Float32, ..from })
        }
        Step::Subtract(_) if !Background::takes(element) => {
            Err(format!("a background cannot be subtracted from pixels of {}", element.name()))
        }
        Step::Subtract(plane) => {
            same_size(plane.rows, plane.columns, plane.data.pixels(), "the background")?;
            Ok(Form { element: Element::Int32, ..from })
        }
        Step::Mask(plane) => same_size(plane.rows, plane.columns, plane.data.pixels(), "the mask"),
        Step::Convert { element, .. } if element.is_packed() => Err(format!("nothing can be converted to {}", element.name())),
        Step::Convert { element, .. } => Ok(Form { element: *element, ..from }),
    }
}

fn binned(how: &Bin, Form { rows, columns, element }: Form) -> Result<Form, String> {
    if let Some(element) = how.element.filter(|element| element.is_packed()) {
        return Err(format!("nothing can be converted to {}", element.name()));
    }
    if how.rows == 0 || how.columns == 0 || how.rows > rows || how.columns > columns {
        return Err(format!("bins of {} x {} do not fit an image of {rows} x {columns} pixels", how.rows, how.columns));
    }
    if how.rows.checked_mul(how.columns).is_none_or(|pixels| pixels > Bin::PIXELS_MAX) {
        return Err(format!("a bin holds at most {} pixels", Bin::PIXELS_MAX));
    }
    Ok(Form { rows: rows / how.rows, columns: columns / how.columns, element: how.element.unwrap_or(element) })
}

/// Bytes of a whole image; [`Compiled::new`] checked that they fit.
fn image_bytes((shape, element): (Shape, Element)) -> usize {
    (shape.elements() as usize * element.bits() as usize).div_ceil(8)
}

fn grow(buffer: &mut Vec<u8>, bytes: usize) {
    if buffer.len() < bytes {
        buffer.resize(bytes, 0);
    }
}

/// Unpacks each piece of an array to its place in the image.
fn unpack_pieces(array: &Array, image: &mut [u8], scratch: &mut UnpackScratch) -> Result<(), String> {
    let pieces = array.pieces.len();
    let shape = array.piece_shape().ok_or_else(|| {
        format!("an image of shape {:?} cannot come in {pieces} pieces of equal length", array.shape.dimensions())
    })?;
    let bits = shape.elements() as usize * array.element.bits() as usize;
    if pieces > 1 && !bits.is_multiple_of(8) {
        return Err(format!("pieces of {:?} {} do not start on byte boundaries", shape.dimensions(), array.element.name()));
    }
    for (index, (piece, out)) in array.pieces.iter().zip(image.chunks_mut(bits.div_ceil(8))).enumerate() {
        let unpacked = unpack::array(array.packing, array.element, piece, out, scratch);
        unpacked.map_err(|why| if pieces > 1 { format!("piece {} of {pieces}: {why}", index + 1) } else { why })?;
    }
    Ok(())
}
