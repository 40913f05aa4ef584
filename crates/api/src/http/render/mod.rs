//! Images as files of other formats.

mod cbor;
mod pixels;
#[cfg(test)]
mod tests;
mod tiff;

use super::problem::Problem;
use axum::body::Bytes;
use konkordia_acquire::handle::{PixelPlane, SharedPlanes};
use konkordia_core::array::{Array, Element, PackedBits};
use konkordia_core::image::CommittedImage;
use konkordia_picture::image;
use pixels::plane;
use serde::Deserialize;
use utoipa::ToSchema;

/// Format of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum Format {
    Npy,
    Tiff,
    Png,
    Cbor,
    Raw,
    Json,
}

/// What a client wants of an image.
pub struct Selection {
    /// The format.
    pub format: Format,
    /// Name or number of the channel.
    pub channel: Option<String>,
    /// Longest side of a picture.
    pub size: u32,
}

/// A file in memory.
pub struct Rendered {
    /// Its media type.
    pub media_type: &'static str,
    /// Suffix of its file name.
    pub ending: Option<&'static str>,
    /// Additional headers for the answer.
    pub headers: Vec<(&'static str, String)>,
    /// Its bytes.
    pub bytes: Bytes,
}

impl Rendered {
    /// A file of this media type.
    pub fn new(media_type: &'static str, bytes: impl Into<Bytes>) -> Self {
        Self { media_type, ending: None, headers: Vec::new(), bytes: bytes.into() }
    }

    fn ending(mut self, ending: &'static str) -> Self {
        self.ending = Some(ending);
        self
    }
}

/// Makes the file. Takes as long as unpacking, or as waiting for another answer that unpacks the same image: for
/// threads that may block.
///
/// # Errors
/// If there is no such channel, or its pixels cannot be unpacked.
pub fn render(planes: &SharedPlanes, selection: &Selection) -> Result<Rendered, Problem> {
    let image = planes.image();
    let index = channel(image, selection.channel.as_deref())?;
    if selection.format == Format::Cbor {
        let one = selection.channel.is_some().then_some(index);
        return Ok(Rendered::new("application/cbor", cbor::message(planes, one)?).ending("cbor"));
    }
    if selection.format == Format::Raw {
        return Ok(raw(&image.channels[index].array));
    }
    of_plane(&plane(planes, index)?, selection)
}

/// Makes a file of pixels: npy, TIFF, or for all other formats a PNG.
///
/// # Errors
/// They do not fit the format.
pub fn of_plane(pixels: &PixelPlane<'_>, selection: &Selection) -> Result<Rendered, Problem> {
    match selection.format {
        Format::Npy => Ok(Rendered::new("application/x-npy", npy(pixels)).ending("npy")),
        Format::Tiff => Ok(Rendered::new("image/tiff", tiff::file(pixels)?).ending("tiff")),
        Format::Png | Format::Raw | Format::Cbor | Format::Json => {
            let of = image::Pixels { element: pixels.element, columns: pixels.size().1, bytes: pixels.bytes };
            let picture = image::png(of, selection.size).map_err(Problem::bug)?;
            Ok(Rendered::new("image/png", picture).ending("png"))
        }
    }
}

/// The channel with this name or number.
///
/// # Errors
/// If there is none, or the image was lost and has no channels.
pub fn channel(image: &CommittedImage, wanted: Option<&str>) -> Result<usize, Problem> {
    if image.channels.is_empty() {
        return Err(Problem::new(
            "no_image",
            format!("image {} was lost: it has no pixels", image.number),
            "ask for another one",
        ));
    }
    let Some(wanted) = wanted else { return Ok(0) };
    let by_name = image.channels.iter().position(|channel| &*channel.name == wanted);
    let by_number = || wanted.parse().ok().filter(|index| *index < image.channels.len());
    by_name.or_else(by_number).ok_or_else(|| {
        let names: Vec<String> =
            image.channels.iter().enumerate().map(|(n, channel)| format!("{n} ({})", channel.name)).collect();
        Problem::new(
            "no_channel",
            format!("there is no channel {wanted:?}; there are: {}", names.join(", ")),
            "use a name or a number",
        )
    })
}

/// The bytes as a file would hold them.
fn raw(array: &Array) -> Rendered {
    let join = |numbers: &mut dyn Iterator<Item = u64>| numbers.map(|n| n.to_string()).collect::<Vec<_>>().join(",");
    let bytes = match &array.pieces[..] {
        [piece] => piece.clone(),
        pieces => pieces.concat().into(),
    };
    let mut rendered = Rendered::new("application/octet-stream", bytes).ending("raw");
    rendered.headers = vec![
        ("x-konkordia-shape", join(&mut array.shape.dimensions().iter().copied())),
        ("x-konkordia-dtype", array.element.name().into()),
        ("x-konkordia-compression", array.packing.name().into()),
    ];
    if array.pieces.len() != 1 {
        rendered.headers.push(("x-konkordia-piece-bytes", join(&mut array.pieces.iter().map(|piece| piece.len() as u64))));
    }
    rendered
}

fn npy(pixels: &PixelPlane<'_>) -> Vec<u8> {
    npy_file(pixels.element, pixels.shape.dimensions(), pixels.bytes)
}

/// A file as numpy.save writes it, version 1.0.
pub fn npy_file(element: Element, dimensions: &[u64], values: &[u8]) -> Vec<u8> {
    use konkordia_core::array::Element as E;
    let kind = match element {
        E::Uint8 | E::Packed(PackedBits::Four) => "|u1",
        E::Int8 => "|i1",
        E::Uint16 | E::Packed(_) => "<u2",
        E::Int16 => "<i2",
        E::Uint32 => "<u4",
        E::Int32 => "<i4",
        E::Uint64 => "<u8",
        E::Int64 => "<i8",
        E::Float32 => "<f4",
        E::Float64 => "<f8",
    };
    let shape = dimensions.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
    let comma = if dimensions.len() == 1 { "," } else { "" };
    let mut header = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': ({shape}{comma}), }}");
    // Magic, version and length are 10 bytes. The whole header is a multiple of 64 bytes, and ends with a line break.
    while (10 + header.len() + 1) % 64 != 0 {
        header.push(' ');
    }
    header.push('\n');
    let mut bytes = Vec::with_capacity(10 + header.len() + values.len());
    bytes.extend(b"\x93NUMPY\x01\x00");
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(values);
    bytes
}
