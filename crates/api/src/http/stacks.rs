//! Sums and maxima of an image and those before it, for frames and for files.

use super::problem::Problem;
use super::render::{self, Rendered, Selection};
use konkordia_acquire::handle::{ImageRing, PixelPlane, SharedPlanes};
use konkordia_core::array::Shape;
use konkordia_core::image::CommittedImage;
use konkordia_picture::frame::Region;
use konkordia_picture::image::Pixels;
use konkordia_picture::stack::{Stack, StackBy};
use serde::Deserialize;
use std::time::Instant;
use utoipa::ToSchema;

/// Most images of a stack.
const IMAGES_MAX: usize = 100;
/// All of an image.
const ALL: Region = Region { column: 0, row: 0, columns: usize::MAX, rows: usize::MAX };

/// How images are put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum StackName {
    Sum,
    Maximum,
}

impl StackName {
    /// As clients write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Maximum => "maximum",
        }
    }
}

/// The sum or the maximum of an image and those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StackRequest {
    /// How they are put together.
    pub by: StackName,
    /// How many, at most.
    pub images: usize,
}

impl StackRequest {
    /// What is wrong with it, in words.
    pub fn mistake(&self) -> Option<String> {
        let Self { images, .. } = self;
        (!(2..=IMAGES_MAX).contains(images)).then(|| format!("{images} images are not between 2 and {IMAGES_MAX}"))
    }
}

/// Images that were put together.
pub struct Stacked {
    /// What they are together.
    pub stack: Stack,
    /// How.
    pub by: StackName,
    /// Number of the first of them.
    pub first: u64,
}

/// Bytes of memory for a stack of images like this one.
pub fn bytes(image: &CommittedImage) -> u64 {
    Stack::bytes(image.channels.iter().map(|channel| channel.array.shape.elements()).max().unwrap_or(0))
}

/// Puts an image and those before it together, as far as they are there and fit it: a part of them, for a frame of so
/// many values. Unpacks them: not for async threads.
pub fn stacked(request: StackRequest, plane: &PixelPlane<'_>, ring: &dyn ImageRing, part: (Region, usize)) -> Stacked {
    let (by, number) = (request.by, plane.image.number);
    let (rows, columns) = plane.size();
    let how = match by {
        StackName::Sum => StackBy::Sum,
        StackName::Maximum => StackBy::Maximum,
    };
    let mut stack = Stack::new(how, [rows, columns], part.0, part.1);
    stack.add(Pixels { element: plane.element, columns, bytes: plane.bytes });
    let mut first = number;
    let (numbers, _) = ring.numbers();
    // Without the image itself in the list, its run is not the newest one any more.
    let before = numbers.iter().rev().skip_while(|other| **other != number).skip(1).take(request.images - 1);
    for other in before {
        let found = ring.get(Some(*other), Instant::now());
        let Some(plane) = found.as_ref().and_then(|found| found.planes.plane(plane.channel).ok()) else { continue };
        if !stack.add(Pixels { element: plane.element, columns: plane.size().1, bytes: plane.bytes }) {
            break;
        }
        first = *other;
    }
    Stacked { stack, by, first }
}

/// The file of all pixels of a stack, or of a picture of it.
///
/// # Errors
/// There is no such channel, its pixels cannot be unpacked, or it does not fit the format.
pub fn render(
    request: StackRequest,
    planes: &SharedPlanes,
    ring: &dyn ImageRing,
    selection: &Selection,
) -> Result<(Rendered, Stacked), Problem> {
    let channel = render::channel(planes.image(), selection.channel.as_deref())?;
    let last = planes.plane(channel).map_err(Problem::bad_pixels)?;
    let found = stacked(request, &last, ring, (ALL, usize::MAX));
    let (rows, columns) = last.size();
    let shape = Shape::new(&[rows as u64, columns as u64]).ok_or_else(|| Problem::bug("a stack of images has no shape"))?;
    let Pixels { element, bytes, .. } = found.stack.pixels();
    let rendered = render::of_plane(&PixelPlane { shape, element, bytes, ..last }, selection)?;
    Ok((rendered, found))
}
