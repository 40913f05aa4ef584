//! Peculiarities of upstreams that a decoder has to know.

/// Peculiarities of the messages of an upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecoderOptions {
    /// STINS: the upstream brings one of so many pieces of every image, and its messages may describe the whole image;
    /// 0 or 1 = it brings whole images.
    pub pieces: u64,
    /// STINS: the pixels are a whole CBF file.
    pub pixels_are_cbf: bool,
    /// Columns that are missing between chips of 256 columns; they are inserted as *masked* pixels. 0 = images stay as
    /// they are.
    pub chip_gap_px: u32,
    /// DECTRIS streams: a series is described by what the receiver of MAX IV reports, under its names, and the turn
    /// that a header asks for is made.
    pub is_maxiv: bool,
}
