//! Pixel planes: the one way from a committed image to its pixels. A [`PixelPlane`] is lent, by a [`PlaneBuffer`] to
//! one user after the other, or by [`SharedPlanes`] to many at the same time. Nobody can keep it longer than its lender
//! keeps the memory.

use crate::unpack::{plain_piece, unpack_pieces};
use konkordia_core::array::{Array, Element, Shape};
use konkordia_core::image::CommittedImage;
use konkordia_core::series::SeriesStart;
use konkordia_kernels::Isa;
use konkordia_kernels::transform::{UnpackScratch, packed};
use std::sync::{Arc, OnceLock};

/// The unpacked pixels of one channel of an image, lent.
#[derive(Clone, Copy)]
pub struct PixelPlane<'a> {
    /// The start of the run or series of the image.
    pub start: &'a SeriesStart,
    /// The image.
    pub image: &'a CommittedImage,
    /// Which of its channels.
    pub channel: usize,
    /// Dimensions, slowest first.
    pub shape: Shape,
    /// Type of a pixel, never a packed one: those are unpacked.
    pub element: Element,
    /// The pixels, little-endian, row by row. They are at any address.
    pub bytes: &'a [u8],
}

impl PixelPlane<'_> {
    /// Rows and columns: all dimensions but the last are rows.
    pub fn size(&self) -> (usize, usize) {
        let columns = self.shape.dimensions().last().copied().unwrap_or(1);
        ((self.shape.elements() / columns) as usize, columns as usize)
    }
}

/// Memory for one plane. It is used again for each image, and grows only when a larger one comes, to at most
/// `plane_bytes_max`. Unpacking pieces and packed pixels takes less memory in addition.
pub struct PlaneBuffer {
    plane_bytes_max: usize,
    isa: Isa,
    scratch: UnpackScratch,
    /// The pixels of the newest image, where they were not unpacked already.
    pixels: Vec<u8>,
    /// Packed pixels, which do not have whole bytes.
    narrow: Vec<u8>,
}

impl PlaneBuffer {
    /// A buffer without memory so far. Planes of more than `plane_bytes_max` bytes are refused.
    pub fn new(plane_bytes_max: usize) -> Self {
        let isa = Isa::detect();
        Self { plane_bytes_max, isa, scratch: UnpackScratch::new(isa), pixels: Vec::new(), narrow: Vec::new() }
    }

    /// Takes the memory for the images that a start announces, so that the first of them need not wait for it.
    pub fn reserve(&mut self, start: &SeriesStart) {
        let (Some([rows, columns]), Some(element)) = (start.image_size, start.element) else { return };
        let pixel_bytes = u64::from(element.unpacked().bits() / 8);
        let bytes = rows.checked_mul(columns).and_then(|pixels| pixels.checked_mul(pixel_bytes));
        if let Some(bytes) = bytes.and_then(|bytes| usize::try_from(bytes).ok()).filter(|bytes| *bytes <= self.plane_bytes_max) {
            // Without memory it is tried again, and reported, with the first image.
            let _ = room(&mut self.pixels, bytes);
        }
    }

    /// Gives the memory back, until the next plane.
    pub fn release(&mut self) {
        (self.pixels, self.narrow, self.scratch) = (Vec::new(), Vec::new(), UnpackScratch::new(self.isa));
    }

    /// The pixels of a channel of `image`, which belongs to `start`. If they came unpacked and in one piece, they are
    /// those of the image itself; else they are unpacked into this buffer.
    ///
    /// # Errors
    /// There is no such channel, its bytes are not what they claim to be, or there is no memory for the plane. In words
    /// for people.
    pub fn plane<'a>(
        &'a mut self,
        start: &'a SeriesStart,
        image: &'a CommittedImage,
        channel: usize,
    ) -> Result<PixelPlane<'a>, String> {
        let array = array_of(image, channel)?;
        let plain = self.fill(array)?;
        let (shape, element) = (array.shape, array.element.unpacked());
        let bytes = match plain {
            Some(plain) => plain,
            None => &self.pixels[..plane_bytes(array)?],
        };
        Ok(PixelPlane { start, image, channel, shape, element, bytes })
    }

    /// Unpacks `array` into `self.pixels`; returns its pixels if they are unpacked already.
    fn fill<'a>(&mut self, array: &'a Array) -> Result<Option<&'a [u8]>, String> {
        let Self { plane_bytes_max, isa, scratch, pixels, narrow } = self;
        let bytes = plane_bytes(array)?;
        if bytes > *plane_bytes_max {
            return Err(format!("it has {bytes} bytes of pixels; at most {plane_bytes_max} are unpacked"));
        }
        let plain = plain_piece(array)?;
        let Element::Packed(bits) = array.element else {
            if let Some(plain) = plain {
                return Ok(Some(&plain[..]));
            }
            unpack_pieces(array, room(pixels, bytes)?, scratch)?;
            return Ok(None);
        };
        let packed = match plain {
            Some(plain) => &plain[..],
            None => {
                let packed = room(narrow, array.unpacked_bytes() as usize)?;
                unpack_pieces(array, packed, scratch)?;
                &*packed
            }
        };
        packed::unpack(*isa, bits, packed, room(pixels, bytes)?);
        Ok(None)
    }
}

fn array_of(image: &CommittedImage, channel: usize) -> Result<&Array, String> {
    let channels = image.channels.len();
    let found = image.channels.get(channel).ok_or_else(|| format!("it has {channels} channels, none of number {channel}"));
    found.map(|channel| &channel.array)
}

/// Bytes of the plane of an array.
fn plane_bytes(array: &Array) -> Result<usize, String> {
    let pixel_bytes = u64::from(array.element.unpacked().bits() / 8);
    let bytes = array.shape.elements().checked_mul(pixel_bytes).and_then(|bytes| usize::try_from(bytes).ok());
    bytes.ok_or_else(|| format!("an array of shape {:?} is too large", array.shape.dimensions()))
}

/// The first `bytes` bytes of `memory`, which grows if it is too small.
fn room(memory: &mut Vec<u8>, bytes: usize) -> Result<&mut [u8], String> {
    if let Some(more) = bytes.checked_sub(memory.len()).filter(|more| *more > 0) {
        memory.try_reserve_exact(more).map_err(|_| format!("there is no memory for {bytes} bytes of pixels"))?;
        memory.resize(bytes, 0);
    }
    Ok(&mut memory[..bytes])
}

/// The pixels of a channel in memory of their own; `None` if they lie in the image.
type Own = Result<Option<Vec<u8>>, String>;

/// An image at which several look. Each of its channels is unpacked when somebody asks for its pixels, once: who asks
/// while another unpacks waits for it. The memory is one plane for each channel that was asked for, and goes with this.
pub struct SharedPlanes {
    start: Arc<SeriesStart>,
    image: Arc<CommittedImage>,
    channels: Box<[OnceLock<Own>]>,
}

impl SharedPlanes {
    /// The channels of `image`, which belongs to `start`. Nothing is unpacked yet.
    pub fn new(start: Arc<SeriesStart>, image: Arc<CommittedImage>) -> Self {
        let channels = image.channels.iter().map(|_| OnceLock::new()).collect();
        Self { start, image, channels }
    }

    /// The start of the run or series of the image.
    pub fn start(&self) -> &Arc<SeriesStart> {
        &self.start
    }

    /// The image.
    pub fn image(&self) -> &Arc<CommittedImage> {
        &self.image
    }

    /// Channels that were unpacked, or tried to.
    pub fn unpacked(&self) -> usize {
        self.channels.iter().filter(|channel| channel.get().is_some()).count()
    }

    /// The pixels of a channel. Takes as long as unpacking, unless somebody has asked before.
    ///
    /// # Errors
    /// As [`PlaneBuffer::plane`].
    pub fn plane(&self, channel: usize) -> Result<PixelPlane<'_>, String> {
        let array = array_of(&self.image, channel)?;
        let unpack = || -> Own {
            // What may be asked for is for the caller to say, before it asks.
            let mut buffer = PlaneBuffer::new(usize::MAX);
            let is_plain = buffer.fill(array)?.is_some();
            Ok((!is_plain).then_some(buffer.pixels))
        };
        let own = self.channels[channel].get_or_init(unpack).as_ref().map_err(String::clone)?;
        let bytes: &[u8] = match own {
            Some(own) => own,
            None => &plain_piece(array)?.ok_or("it is not unpacked")?[..],
        };
        let (shape, element) = (array.shape, array.element.unpacked());
        Ok(PixelPlane { start: &self.start, image: &self.image, channel, shape, element, bytes })
    }
}
