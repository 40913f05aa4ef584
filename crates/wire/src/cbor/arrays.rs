//! Pixels as typed arrays (RFC 8746), with their dimensions and packing.
//!
//! Facts relied on: tags 64 to 87 say the type of the elements of a byte string; tag 40 is an array in row-major order,
//! of its dimensions and its typed array; DECTRIS puts tag 56500 over \[algorithm, element bytes, packed bytes\] where
//! the byte string would be.

use super::read::{array_length, text, unsigned, wrong};
use super::write::{Writer, Written};
use crate::stream::{Element, Packing, Pixels, Shape, quoted};
use minicbor::Decoder;
use minicbor::data::{Tag, Type};

pub(super) const TAG_ROW_MAJOR: u64 = 40;
const TAG_DECTRIS_PACKED: u64 = 56500;
/// Tags of the little-endian typed arrays.
pub(super) const TYPED: [(u64, Element); 10] = [
    (64, Element::Uint8),
    (69, Element::Uint16),
    (70, Element::Uint32),
    (71, Element::Uint64),
    (72, Element::Int8),
    (77, Element::Int16),
    (78, Element::Int32),
    (79, Element::Int64),
    (85, Element::Float32),
    (86, Element::Float64),
];
/// Names of packings in tag 56500.
const PACKINGS: [(&str, Packing); 3] =
    [("bslz4", Packing::BitshuffleLz4), ("lz4", Packing::Lz4), ("bszstd", Packing::BitshuffleZstd)];

/// An array with its dimensions, or a bare typed array, which has one dimension.
pub(crate) fn pixels<'a>(d: &mut Decoder<'a>, bytes_max: u64) -> Result<Pixels<'a>, String> {
    let mut tag = d.tag().map_err(wrong)?.as_u64();
    let mut shape = None;
    if tag == TAG_ROW_MAJOR {
        if array_length(d, 2)? != 2 {
            return Err("an array with dimensions must have two items".into());
        }
        let count = array_length(d, Shape::DIMENSIONS_MAX)?;
        let mut dimensions = [0; Shape::DIMENSIONS_MAX];
        for dimension in &mut dimensions[..count] {
            *dimension = unsigned(d)?;
        }
        let said = &dimensions[..count];
        shape = Some(Shape::new(said).ok_or_else(|| format!("an array cannot have shape {said:?}"))?);
        tag = d.tag().map_err(wrong)?.as_u64();
    }
    let element = TYPED.iter().find(|(of, _)| *of == tag).map(|(_, element)| *element);
    let element = element.ok_or_else(|| format!("tag {tag} is not a little-endian typed array"))?;
    let (packing, data) = packed(d, element)?;
    let shape = match shape {
        Some(shape) => shape,
        None if packing == Packing::None => {
            let count = data.len() as u64 / u64::from(element.bits() / 8);
            Shape::new(&[count]).ok_or("a typed array is empty")?
        }
        None => return Err("packed bytes without dimensions".into()),
    };
    Pixels::new_checked(shape, element, packing, data, bytes_max)
}

fn packed<'a>(d: &mut Decoder<'a>, element: Element) -> Result<(Packing, &'a [u8]), String> {
    if d.datatype().map_err(wrong)? != Type::Tag {
        return Ok((Packing::None, d.bytes().map_err(wrong)?));
    }
    let tag = d.tag().map_err(wrong)?.as_u64();
    if tag != TAG_DECTRIS_PACKED || array_length(d, 3)? != 3 {
        return Err(format!("tag {tag} is not a packed byte string"));
    }
    let name = text(d)?;
    let packing = PACKINGS.iter().find(|(of, _)| *of == name).map(|(_, packing)| *packing);
    let packing = packing.ok_or_else(|| format!("its packing is {}; bslz4, lz4 and bszstd are known", quoted(name)))?;
    let bytes = unsigned(d)?;
    if packing != Packing::Lz4 && bytes != u64::from(element.bits() / 8) {
        return Err(format!("it is packed as elements of {bytes} bytes, but its type is {}", element.name()));
    }
    Ok((packing, d.bytes().map_err(wrong)?))
}

/// Whether these pixels can be written.
pub(crate) fn check_writable(pixels: &Pixels) -> Result<(), String> {
    let name = pixels.packing() == Packing::None || PACKINGS.iter().any(|(_, packing)| *packing == pixels.packing());
    if name && TYPED.iter().any(|(_, element)| *element == pixels.element()) {
        return Ok(());
    }
    Err(format!("this format cannot carry {} with packing {:?}", pixels.element().name(), pixels.packing()))
}

/// Writes pixels that passed [`check_writable`]; without their dimensions if they are a `bare` list.
pub(crate) fn write_pixels(e: &mut Writer, pixels: &Pixels, bare: bool) -> Written {
    if !bare {
        let shape = pixels.shape();
        e.tag(Tag::new(TAG_ROW_MAJOR))?.array(2)?.array(shape.dimensions().len() as u64)?;
        for dimension in shape.dimensions() {
            e.u64(*dimension)?;
        }
    }
    if let Some((tag, _)) = TYPED.iter().find(|(_, element)| *element == pixels.element()) {
        e.tag(Tag::new(*tag))?;
    }
    if let Some((name, packing)) = PACKINGS.iter().find(|(_, packing)| *packing == pixels.packing()) {
        let element_bytes = if *packing == Packing::Lz4 { 0 } else { pixels.element().bits() / 8 };
        e.tag(Tag::new(TAG_DECTRIS_PACKED))?.array(3)?.str(name)?.u32(element_bytes)?;
    }
    e.bytes(pixels.data())?.ok()
}
