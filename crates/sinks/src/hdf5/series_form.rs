//! What all images of a series have in common, taken from the first one: shape, type, packing, chunks.

use std::sync::Arc;

use konkordia_core::array::{Element, Packing};
use konkordia_core::image::CommittedImage;
use konkordia_core::pixel::PixelType;

use super::series_info::{DIMENSIONS_MAX, PIECES_MAX, chunk_shape};
use super::spec::{Compression, PIXELS_MAX};

/// Shape, type and packing of the images of a series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Form {
    pub(crate) element: Element,
    pub(crate) packing: Packing,
    /// Of one channel.
    pub(crate) channel_shape: Vec<u64>,
    pub(crate) channels: usize,
    /// Names of the channels as the images give them; empty texts if they give none.
    pub(crate) names: Vec<Arc<str>>,
    /// Of one channel.
    pub(crate) pieces: usize,
}

impl Form {
    /// The form of an image, or why a file cannot hold it.
    pub(crate) fn of(image: &CommittedImage) -> Result<Self, String> {
        let Some(first) = image.channels.first() else { return Err("it has no pixels".into()) };
        let array = &first.array;
        if array.element.pixel().is_none() {
            return Err(format!("pixels of type {} cannot be stored as they are: unpack them first", array.element.name()));
        }
        if array.piece_shape().is_none() {
            return Err(format!("{} pieces do not divide an image of {:?}", array.pieces.len(), array.shape.dimensions()));
        }
        let form = Self {
            element: array.element,
            packing: array.packing,
            channel_shape: array.shape.dimensions().to_vec(),
            channels: image.channels.len(),
            names: image.channels.iter().map(|channel| Arc::clone(&channel.name)).collect(),
            pieces: array.pieces.len(),
        };
        let pieces = form.channels.saturating_mul(form.pieces);
        if pieces > PIECES_MAX as usize || array.shape.elements().saturating_mul(form.channels as u64) > PIXELS_MAX as u64 {
            return Err(format!(
                "{} channels of shape {:?} in {} pieces exceed the limits of a file ({PIECES_MAX} pieces, {PIXELS_MAX} pixels)",
                form.channels, form.channel_shape, form.pieces
            ));
        }
        if form.image_shape().len() > DIMENSIONS_MAX {
            return Err(format!("it has {} dimensions; a file takes at most {DIMENSIONS_MAX}", form.image_shape().len()));
        }
        for channel in &image.channels {
            let other = &channel.array;
            let same = (other.element, other.packing, &other.shape, other.pieces.len())
                == (array.element, array.packing, &array.shape, array.pieces.len());
            if !same {
                return Err(format!("its channels '{}' and '{}' differ in shape, type or packing", first.name, channel.name));
            }
        }
        Ok(form)
    }

    /// Why an image does not fit into the file of this form; `None` if it does.
    pub(crate) fn differs(&self, image: &CommittedImage) -> Option<String> {
        match Self::of(image) {
            Ok(form) if form == *self => None,
            Ok(form) => Some(format!("it has {}; the file, like the first image, has {}", form.words(), self.words())),
            Err(why) => Some(why),
        }
    }

    fn words(&self) -> String {
        let packing = self.packing;
        let names = self.names.iter().map(|name| &name[..]).collect::<Vec<_>>().join(" ");
        let (shape, element) = (&self.channel_shape, self.element.name());
        format!("{} channels [{names}] of {shape:?} {element} ({packing:?}, {} pieces)", self.channels, self.pieces)
    }

    /// Dimensions of an image in the file: several channels add one axis, in front.
    pub(crate) fn image_shape(&self) -> Vec<u64> {
        let channels = (self.channels > 1).then_some(self.channels as u64);
        channels.into_iter().chain(self.channel_shape.iter().copied()).collect()
    }

    /// Dimensions of a chunk, without that of the images.
    pub(crate) fn chunk_shape(&self) -> Vec<u64> {
        let image = self.image_shape();
        chunk_shape(&image, self.chunks() as u32).unwrap_or(image)
    }

    /// Chunks of an image.
    pub(crate) fn chunks(&self) -> usize {
        self.channels * self.pieces
    }

    pub(crate) fn pixel(&self) -> PixelType {
        self.element.pixel().expect("a form is made of elements that are pixels")
    }

    pub(crate) fn compression(&self) -> Compression {
        Compression::of(self.packing).expect("neither messages nor runs have SZ3")
    }

    /// Bytes of one unpacked chunk.
    pub(crate) fn chunk_bytes(&self) -> u64 {
        self.chunk_shape().iter().product::<u64>() * self.pixel().bytes() as u64
    }

    /// Rows and columns: the last two dimensions of an image in the file; an image of one dimension has one row.
    pub(crate) fn plane(&self) -> [u64; 2] {
        match self.image_shape()[..] {
            [.., rows, columns] => [rows, columns],
            [columns] => [1, columns],
            [] => [1, 1],
        }
    }
}

/// The chunks of images in the form that a file holds: unchanged, except that a bare LZ4 block gets the framing of
/// filter 32004.
#[derive(Debug, Default)]
pub(crate) struct Chunks {
    framed: Vec<Vec<u8>>,
}

impl Chunks {
    /// Passes the chunks of an image of this form to `take`, and returns its result.
    ///
    /// # Errors
    /// Says why a chunk cannot be framed.
    pub(crate) fn with<T>(&mut self, form: &Form, image: &CommittedImage, take: impl FnOnce(&[&[u8]]) -> T) -> Result<T, String> {
        let pieces = image.channels.iter().flat_map(|channel| &channel.array.pieces);
        if form.packing != Packing::Lz4Block {
            let chunks: Vec<&[u8]> = pieces.map(|piece| &piece[..]).collect();
            return Ok(take(&chunks));
        }
        self.framed.resize_with(form.chunks(), Vec::new);
        let whole = form.chunk_bytes();
        for (out, block) in self.framed.iter_mut().zip(pieces) {
            // To the filter, a length equal to that of the pixels means "not compressed".
            let bytes = u32::try_from(whole).ok().filter(|_| block.len() as u64 != whole && !block.is_empty());
            let Some(bytes) = bytes.filter(|_| u32::try_from(block.len()).is_ok()) else {
                return Err(format!(
                    "an LZ4 block of {} bytes for {whole} bytes cannot be stored in HDF5: decompress it first",
                    block.len()
                ));
            };
            out.clear();
            out.extend(whole.to_be_bytes());
            out.extend(bytes.to_be_bytes());
            out.extend((block.len() as u32).to_be_bytes());
            out.extend_from_slice(block);
        }
        let chunks: Vec<&[u8]> = self.framed.iter().map(Vec::as_slice).collect();
        Ok(take(&chunks))
    }
}
