//! The work on one chunk: decode it, encode it in another way, measure the loss.

use super::settings::Settings;
use super::spots::{Keeper, SpotReport, Stored};
use konkordia_core::plan::Compression;
use konkordia_kernels::codec::{self, Framing, Packer};
use konkordia_kernels::sz3::{self, Loss};
use konkordia_kernels::{ElementSize, Isa};
use konkordia_sinks::hdf5::mirror::StackLayout;

/// Codecs that take any number of bytes get pieces of this size.
const STRIP_BYTES: usize = 1 << 20;

/// One chunk as stored.
pub struct Chunk {
    /// Which stack.
    pub stack: usize,
    /// Which image of the stack.
    pub image: u64,
    /// `None` if there is no chunk, otherwise whether it is compressed.
    pub stored: Option<bool>,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// A chunk after the work.
pub struct Recoded {
    /// Which stack.
    pub stack: usize,
    /// Which image of the stack.
    pub image: u64,
    /// Bytes of the chunk before.
    pub bytes_before: usize,
    /// The new chunk; `None` if there was none before and [`fills`] adds none.
    pub chunk: Option<Vec<u8>>,
    /// True if no stored pixels were encoded anew: the chunk already had the right form, or there was none.
    pub copied: bool,
    /// What a lossy codec changed.
    pub loss: Option<Loss>,
    /// What was changed beside the spots.
    pub spots: Option<SpotReport>,
}

/// The compressors of one worker.
pub struct Recoder<'a> {
    target: Compression,
    keeper: Option<Keeper<'a>>,
    isa: Isa,
    packer: Option<Packer>,
    /// For images of this layout.
    sz3: Option<(StackLayout, sz3::Encoder)>,
    negative_is_exact: bool,
    pixels: Vec<u8>,
}

/// The element size for a codec. Codecs without bitshuffle do not depend on it and take pixels of any size.
pub fn element(compression: Compression, element_bytes: usize) -> Result<ElementSize, String> {
    let shuffles = matches!(compression, Compression::Bslz4 { .. } | Compression::Bszstd { .. } | Compression::Sz3 { .. });
    let any = (!shuffles).then_some(ElementSize::One);
    let why = || format!("{} cannot compress pixels of {element_bytes} bytes", compression.name());
    ElementSize::new(element_bytes).or(any).ok_or_else(why)
}

/// Decodes a chunk into `out`.
pub fn decode(layout: &StackLayout, isa: Isa, stored: bool, chunk: &[u8], out: &mut [u8]) -> Result<(), String> {
    let compression = if stored { layout.compression } else { Compression::None };
    let element = element(compression, layout.element_bytes)?;
    codec::decompress(compression, isa, chunk, element, out).map_err(|error| error.to_string())
}

impl<'a> Recoder<'a> {
    /// With `negative_is_exact` lossy codecs keep pixels below 0 exactly.
    pub fn new(settings: &'a Settings, negative_is_exact: bool) -> Self {
        let target = settings.compression;
        let keeper = settings.spots.as_ref().map(|spots| Keeper::new(spots, Isa::detect()));
        let lossy = matches!(target, Compression::Sz3 { .. });
        let packer = (!lossy).then(|| Packer::new(target, Isa::detect(), piece_bytes(target)));
        Self { target, keeper, isa: Isa::detect(), packer, sz3: None, negative_is_exact, pixels: Vec::new() }
    }

    /// Encodes the chunk with the new compression.
    ///
    /// # Errors
    /// When it cannot be decoded, or the codec does not take its pixels.
    pub fn recode(&mut self, layout: &StackLayout, chunk: Chunk) -> Result<Recoded, String> {
        let Chunk { stack, image, stored, bytes } = chunk;
        let bytes_before = bytes.len();
        let done = |chunk, copied, loss| Recoded { stack, image, bytes_before, chunk, copied, loss, spots: None };
        let Some(stored) = stored else {
            let Some(fill) = layout.fill.as_deref().filter(|_| fills(self.target)) else { return Ok(done(None, true, None)) };
            self.pixels = fill.repeat(layout.image_bytes() / fill.len());
            return Ok(done(Some(self.pack(layout)?), true, None));
        };
        let is_kept = self.keeper.is_none() && stored && layout.compression == self.target;
        if is_kept && has_form(self.target, layout.image_bytes(), &bytes) {
            return Ok(done(Some(bytes), true, None));
        }
        self.pixels.resize(layout.image_bytes(), 0);
        decode(layout, self.isa, stored, &bytes, &mut self.pixels)
            .map_err(|why| format!("image {image} of {}: {why}", layout.name))?;
        let Compression::Sz3 { bound } = self.target else {
            let (chunk, spots) = self.coarsened(layout)?;
            return Ok(Recoded { spots, ..done(Some(chunk), false, None) });
        };
        if self.sz3.as_ref().is_none_or(|(of, _)| of != layout) {
            let pixel = layout.pixel.ok_or("sz3 cannot compress pixels of this type")?;
            let encoder = sz3::Encoder::new(pixel, layout.rows, layout.columns, bound, self.negative_is_exact);
            self.sz3 = Some((layout.clone(), encoder));
        }
        let mut out = Vec::new();
        let loss = self.sz3.as_mut().map(|(_, encoder)| encoder.encode(&self.pixels, &mut out));
        Ok(done(Some(out), false, loss))
    }

    /// Packs the image, with a coarser background if that is asked for and makes it smaller.
    fn coarsened(&mut self, layout: &StackLayout) -> Result<(Vec<u8>, Option<SpotReport>), String> {
        let lossless = self.pack(layout)?;
        let Some(keeper) = &mut self.keeper else { return Ok((lossless, None)) };
        let (coarse, mut report) = keeper.coarsen(&self.pixels);
        report.lossless_bytes = lossless.len() as u64;
        let Some(coarse) = coarse else { return Ok((lossless, Some(report))) };
        self.pixels = coarse;
        let chunk = self.pack(layout)?;
        if chunk.len() < lossless.len() {
            return Ok((chunk, Some(report)));
        }
        Ok((lossless, Some(report.without_loss(Stored::NotSmaller))))
    }

    fn pack(&mut self, layout: &StackLayout) -> Result<Vec<u8>, String> {
        let element = element(self.target, layout.element_bytes)?;
        let packer = self.packer.as_mut().expect("codecs without loss have one");
        let piece = piece_bytes(self.target);
        let mut strips = Vec::with_capacity(self.pixels.len().div_ceil(piece));
        let mut packed = vec![0; codec::piece_bound(self.target, piece)];
        for strip in self.pixels.chunks(piece) {
            let written = packer.pack_bytes(element, strip, &mut packed);
            strips.push(packed[..written].to_vec());
        }
        let strips: Vec<&[u8]> = strips.iter().map(Vec::as_slice).collect();
        let mut parts = vec![&[][..]; strips.len() + 2];
        let mut framing = Framing::new(self.target, self.pixels.len());
        let many = framing.join(&strips, &mut parts);
        Ok(parts[..many].concat())
    }
}

fn piece_bytes(compression: Compression) -> usize {
    if compression.is_by_strip() { STRIP_BYTES } else { compression.block_bytes() }
}

/// Whether an image without a chunk gets one of fill values: neggia makes XDS stop at an image without a chunk.
pub fn fills(compression: Compression) -> bool {
    matches!(compression, Compression::None | Compression::Lz4 { .. } | Compression::Bslz4 { .. } | Compression::Bszstd { .. })
}

/// Whether a chunk of this codec has the block size that this program uses.
fn has_form(compression: Compression, image_bytes: usize, chunk: &[u8]) -> bool {
    let block = match compression {
        Compression::Lz4 { .. } => compression.block_bytes().min(image_bytes),
        Compression::Bslz4 { .. } | Compression::Bszstd { .. } => compression.block_bytes(),
        _ => return true,
    };
    chunk.get(8..12) == Some(&(block as u32).to_be_bytes()[..])
}
