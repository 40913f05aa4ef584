//! The body of `/last_frame`: a pickled list of the image's header and its parts, as the viewers of MAX IV load it.

use bytes::Bytes;
use konkordia_acquire::handle::{PixelPlane, SharedPlanes};
use konkordia_core::array::{Array, Element, Packing};
use konkordia_core::image::CommittedImage;
use konkordia_core::series::SeriesStart;
use serde_pickle::{HashableValue, SerOptions, Value};
use std::collections::BTreeMap;

/// Pickles an image. Plain uint16 images are made smaller by `factor`, each pixel the mean of factor x factor pixels,
/// as the MAX IV receiver does it.
///
/// # Errors
/// In words: the image has no pixels or cannot be written as a pickle.
pub fn last_frame(planes: &SharedPlanes, factor: usize) -> Result<Vec<u8>, String> {
    let (start, image) = (&**planes.start(), &**planes.image());
    let array = &image.channels.first().ok_or("the image has no pixels")?.array;
    let array = &if is_nameable(array.packing) { array.clone() } else { plain_array(planes)? };
    let mut header = known_keys(start, image, array);
    let mut parts: Vec<Vec<u8>> = match image.channels.len() {
        1 => array.pieces.iter().map(|piece| piece.to_vec()).collect(),
        _ => image.channels.iter().flat_map(|channel| &channel.array.pieces).map(|piece| piece.to_vec()).collect(),
    };
    let is_plain = array.packing == Packing::None && array.element == Element::Uint16;
    if let (true, true, [part], [rows, columns]) = (factor > 1, is_plain, &parts[..], array.shape.dimensions()) {
        let (rows, columns) = (*rows as usize, *columns as usize);
        let (small, shape) = downsample(part, rows, columns, factor);
        insert(&mut header, "shape", integers(&shape.map(|n| n as u64)));
        parts = vec![small];
    }
    let list = std::iter::once(Value::Dict(header)).chain(parts.into_iter().map(Value::Bytes)).collect();
    serde_pickle::value_to_vec(&Value::List(list), SerOptions::new()).map_err(|why| format!("the pickle cannot be made: {why}"))
}

/// True if viewers know the packing. Whole Zstd and zlib streams come only from runs over UDP, as one array.
const fn is_nameable(packing: Packing) -> bool {
    !matches!(packing, Packing::Zstd | Packing::Gzip | Packing::Sz3 | Packing::Other)
}

/// The first channel with its pixels in one piece that is not packed.
///
/// # Errors
/// Its pixels cannot be unpacked.
fn plain_array(planes: &SharedPlanes) -> Result<Array, String> {
    let PixelPlane { shape, element, bytes, .. } = planes.plane(0)?;
    Ok(Array { shape, element, packing: Packing::None, pieces: vec![Bytes::copy_from_slice(bytes)] })
}

/// What the MAX IV receiver returns before the first image: a header without keys and no bytes.
///
/// # Errors
/// None in practice.
pub fn before_the_first() -> Result<Vec<u8>, String> {
    let nothing = Value::List(vec![Value::Dict(BTreeMap::new()), Value::Bytes(Vec::new())]);
    serde_pickle::value_to_vec(&nothing, SerOptions::new()).map_err(|why| format!("the pickle cannot be made: {why}"))
}

fn insert(header: &mut BTreeMap<HashableValue, Value>, key: &str, value: Value) {
    header.insert(HashableValue::String(key.into()), value);
}

fn integers(numbers: &[u64]) -> Value {
    Value::List(numbers.iter().map(|n| Value::I64(*n as i64)).collect())
}

/// The keys of an image in STINS, and the other keys that the sender gave.
fn known_keys(start: &SeriesStart, image: &CommittedImage, array: &Array) -> BTreeMap<HashableValue, Value> {
    let mut header = BTreeMap::new();
    if let Ok(serde_json::Value::Object(said)) = serde_json::from_slice(&image.header_json) {
        for (key, value) in &said {
            insert(&mut header, key, plain(value));
        }
    }
    for (key, value) in &start.image_extra {
        insert(&mut header, key, plain(value));
    }
    // The viewers know both forms of LZ4 under one name.
    let known = if array.packing == Packing::Lz4Block { Packing::Lz4 } else { array.packing };
    let compression = known.name();
    let channels = image.channels.len() as u64;
    let own = array.shape.dimensions();
    let shape = if channels > 1 { [&[channels], own].concat() } else { own.to_vec() };
    insert(&mut header, "htype", Value::String("image".into()));
    insert(&mut header, "frame", Value::I64(image.frame as i64));
    insert(&mut header, "shape", integers(&shape));
    let piece = array.piece_shape();
    if let Some(piece) = piece.filter(|_| channels > 1 || array.pieces.len() > 1) {
        let of_stack = [&[1], piece.dimensions()].concat();
        insert(&mut header, "chunks", integers(if channels > 1 { &of_stack } else { piece.dimensions() }));
    }
    insert(&mut header, "type", Value::String(array.element.name().into()));
    insert(&mut header, "compression", Value::String(compression.into()));
    header
}

fn plain(value: &serde_json::Value) -> Value {
    match value {
        serde_json::Value::Null => Value::None,
        serde_json::Value::Bool(flag) => Value::Bool(*flag),
        serde_json::Value::Number(n) => n.as_i64().map_or_else(|| Value::F64(n.as_f64().unwrap_or(f64::NAN)), Value::I64),
        serde_json::Value::String(text) => Value::String(text.clone()),
        serde_json::Value::Array(list) => Value::List(list.iter().map(plain).collect()),
        serde_json::Value::Object(map) => {
            Value::Dict(map.iter().map(|(key, value)| (HashableValue::String(key.clone()), plain(value))).collect())
        }
    }
}

/// Means of factor x factor pixels of a uint16 image, truncated to whole numbers. Pixels in the last row and column of
/// the result may stand for fewer.
fn downsample(pixels: &[u8], rows: usize, columns: usize, factor: usize) -> (Vec<u8>, [usize; 2]) {
    let at = |row: usize, column: usize| {
        let place = 2 * (row * columns + column);
        u64::from(u16::from_le_bytes([pixels[place], pixels[place + 1]]))
    };
    let mut small = Vec::new();
    for top in (0..rows).step_by(factor) {
        for left in (0..columns).step_by(factor) {
            let (bottom, right) = ((top + factor).min(rows), (left + factor).min(columns));
            let sum: u64 =
                (top..bottom).flat_map(|row| (left..right).map(move |column| (row, column))).map(|(r, c)| at(r, c)).sum();
            let mean = sum / ((bottom - top) * (right - left)) as u64;
            small.extend_from_slice(&(mean as u16).to_le_bytes());
        }
    }
    (small, [rows.div_ceil(factor), columns.div_ceil(factor)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use konkordia_core::array::Shape;
    use konkordia_core::image::Channel;
    use konkordia_core::ledger::ImageStatus;
    use konkordia_core::plan::Compression;
    use konkordia_kernels::{ElementSize, Isa, codec};
    use serde_pickle::DeOptions;
    use std::sync::Arc;

    fn image() -> CommittedImage {
        let pixels: Vec<u8> = (0u16..15).flat_map(|n| (n * 10).to_le_bytes()).collect();
        let shape = Shape::new(&[3, 5]).unwrap();
        let array = Array { shape, element: Element::Uint16, packing: Packing::None, pieces: vec![Bytes::from(pixels)] };
        let header_json = Bytes::from_static(br#"{"htype":"x","exposure_time":0.5,"nested":{"a":[1,null]}}"#);
        let channels = vec![Channel { name: "".into(), array }];
        CommittedImage { status: ImageStatus::Complete, channels, header_json, ..CommittedImage::lost(7) }
    }

    fn looked_at(image: CommittedImage) -> SharedPlanes {
        SharedPlanes::new(Arc::new(SeriesStart::default()), Arc::new(image))
    }

    fn read(body: &[u8]) -> (BTreeMap<HashableValue, Value>, Vec<u8>) {
        let Value::List(list) = serde_pickle::value_from_slice(body, DeOptions::new()).unwrap() else { panic!("no list") };
        let [Value::Dict(header), Value::Bytes(pixels)] = &list[..] else { panic!("not two parts") };
        (header.clone(), pixels.clone())
    }

    #[test]
    fn a_frame_is_its_header_and_its_bytes() {
        let (header, pixels) = read(&last_frame(&looked_at(image()), 1).unwrap());
        let get = |key: &str| header[&HashableValue::String(key.into())].clone();
        assert_eq!(get("htype"), Value::String("image".into()));
        assert_eq!(get("frame"), Value::I64(7));
        assert_eq!(get("exposure_time"), Value::F64(0.5));
        assert_eq!(get("shape"), Value::List(vec![Value::I64(3), Value::I64(5)]));
        assert_eq!(pixels.len(), 30);
        assert!(last_frame(&looked_at(CommittedImage::lost(0)), 1).is_err());
    }

    #[test]
    fn what_viewers_cannot_unpack_is_unpacked_for_them() {
        let plain = image();
        let mut zstd = plain.clone();
        let array = &mut zstd.channels[0].array;
        let packed = codec::compress(Compression::Zstd { level: 1 }, Isa::detect(), ElementSize::Two, &array.pieces[0], 64 << 10);
        (array.packing, array.pieces) = (Packing::Zstd, vec![packed.into()]);
        let of = |image: &CommittedImage| read(&last_frame(&looked_at(image.clone()), 1).unwrap());
        assert_eq!(of(&zstd), of(&plain));
    }

    #[test]
    fn of_several_thresholds_each_part_is_described() {
        let mut two = image();
        two.channels.push(two.channels[0].clone());
        let body = last_frame(&looked_at(two), 1).unwrap();
        let Value::List(list) = serde_pickle::value_from_slice(&body, DeOptions::new()).unwrap() else { panic!("no list") };
        let [Value::Dict(header), Value::Bytes(_), Value::Bytes(_)] = &list[..] else { panic!("not three parts") };
        let get = |key: &str| header[&HashableValue::String(key.into())].clone();
        assert_eq!(get("shape"), Value::List([2, 3, 5].map(Value::I64).into()));
        assert_eq!(get("chunks"), Value::List([1, 3, 5].map(Value::I64).into()));
    }

    #[test]
    fn smaller_frames_are_means_with_the_rest_at_the_edges() {
        let (header, pixels) = read(&last_frame(&looked_at(image()), 2).unwrap());
        assert_eq!(header[&HashableValue::String("shape".into())], Value::List(vec![Value::I64(2), Value::I64(3)]));
        let values: Vec<u16> = pixels.chunks(2).map(|c| u16::from_le_bytes([c[0], c[1]])).collect();
        // Rows of 0 10 20 30 40 | 50 .. 90 | 100 .. 140.
        assert_eq!(values, [30, 50, 65, 105, 125, 140]);
    }
}
