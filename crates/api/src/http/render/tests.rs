//! Each format, read back by another reader than the one that wrote it, for every type and packing.

use super::*;
use konkordia_core::array::{Element, PackedBits, Packing, Shape};
use konkordia_core::experiment::Metadata;
use konkordia_core::image::{Channel, ImageTimes};
use konkordia_core::ledger::ImageStatus;
use konkordia_core::plan::Compression;
use konkordia_core::series::SeriesStart;
use konkordia_kernels::bitshuffle::ElementSize;
use konkordia_kernels::isa::Isa;
use konkordia_kernels::{codec, lz4};
use konkordia_wire::dectris_v2::Message;
use konkordia_wire::stream::Bounds;
use std::io::Cursor;
use std::sync::Arc;

const PACKINGS: [Packing; 7] = [
    Packing::None,
    Packing::Lz4Block,
    Packing::Lz4,
    Packing::BitshuffleLz4,
    Packing::BitshuffleZstd,
    Packing::Zstd,
    Packing::Gzip,
];

/// Whole blocks of every packing.
const STRIP_BYTES: usize = 64 << 10;

fn plain(element: Element, shape: &[u64]) -> Vec<u8> {
    let bytes = shape.iter().product::<u64>() as usize * element.bits() as usize / 8;
    (0..bytes).map(|n| (n * n / 7 % 251) as u8).collect()
}

fn packed(packing: Packing, element: Element, data: &[u8]) -> Bytes {
    let size = ElementSize::new(element.bits() as usize / 8).unwrap();
    let by = |codec| Bytes::from(codec::compress(codec, Isa::detect(), size, data, STRIP_BYTES));
    match packing {
        Packing::None => Bytes::copy_from_slice(data),
        Packing::Lz4Block => {
            let mut out = vec![0; lz4::bound(data.len())];
            let length = lz4::compress_default(data, &mut out);
            Bytes::copy_from_slice(&out[..length])
        }
        Packing::Lz4 => by(Compression::LZ4),
        Packing::BitshuffleLz4 => by(Compression::BSLZ4),
        Packing::BitshuffleZstd => by(Compression::BSZSTD),
        Packing::Zstd => by(Compression::Zstd { level: 1 }),
        Packing::Gzip => by(Compression::Gzip { level: 1 }),
        Packing::Sz3 | Packing::Other => unreachable!("no image of a run or series is packed so"),
    }
}

fn array(packing: Packing, element: Element, shape: &[u64], pieces: usize) -> (Array, Vec<u8>) {
    let data = plain(element, shape);
    let pieces = data.chunks(data.len() / pieces).map(|piece| packed(packing, element, piece)).collect();
    (Array { shape: Shape::new(shape).unwrap(), element, packing, pieces }, data)
}

fn planes(arrays: Vec<(&str, Array)>) -> SharedPlanes {
    planes_of(SeriesStart::default(), arrays)
}

fn planes_of(start: SeriesStart, arrays: Vec<(&str, Array)>) -> SharedPlanes {
    let channels = arrays.into_iter().map(|(name, array)| Channel { name: name.into(), array }).collect();
    let times = Some(ImageTimes { start_ns: 1, stop_ns: 2_000_000_001, real_ns: 2_000_000_000 });
    let image = CommittedImage { status: ImageStatus::Complete, channels, times, ..CommittedImage::lost(42) };
    SharedPlanes::new(Arc::new(start), Arc::new(image))
}

fn of(format: Format, array: Array) -> Rendered {
    let selection = Selection { format, channel: None, size: 1024 };
    render(&planes(vec![("", array)]), &selection).unwrap_or_else(|problem| panic!("{problem:?}"))
}

/// Shape, type and bytes as numpy would see them.
fn read_npy(bytes: &[u8]) -> (String, String, Vec<u8>) {
    assert!(bytes.starts_with(b"\x93NUMPY\x01\x00"));
    let length = usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    assert_eq!((10 + length) % 64, 0);
    let header = std::str::from_utf8(&bytes[10..10 + length]).unwrap();
    assert!(header.ends_with("}\n") || header.ends_with(" \n"));
    let after = |key: &str| header.split(key).nth(1).unwrap();
    let kind = after("'descr': '").split('\'').next().unwrap();
    let shape = after("'shape': ").split(')').next().unwrap();
    assert!(header.contains("'fortran_order': False"));
    (kind.into(), format!("{shape})"), bytes[10 + length..].to_vec())
}

#[test]
fn npy_has_the_exact_numbers_of_every_type_and_packing() {
    for element in Element::ALL.into_iter().filter(|element| !element.is_packed()) {
        for packing in PACKINGS {
            for (shape, pieces) in [(&[4u64, 7][..], 1), (&[4, 7], 2), (&[1, 1], 1), (&[33], 1), (&[2, 3, 5], 2)] {
                let (array, data) = array(packing, element, shape, pieces);
                let (kind, stated, bytes) = read_npy(&of(Format::Npy, array).bytes);
                assert_eq!(bytes, data, "{element:?} {packing:?} {shape:?}");
                let letter = if element.name().starts_with('f') { 'f' } else { element.name().chars().next().unwrap() };
                assert!(kind.ends_with(&format!("{letter}{}", element.bits() / 8)), "{kind}");
                let dimensions: Vec<u64> =
                    stated.trim_matches(['(', ')']).split(',').filter_map(|n| n.trim().parse().ok()).collect();
                assert_eq!(dimensions, shape);
                assert!(shape.len() > 1 || stated.ends_with(",)"), "{stated}");
            }
        }
    }
}

#[test]
fn pixels_of_12_bits_are_unpacked() {
    let array = Array {
        shape: Shape::new(&[1, 3]).unwrap(),
        element: Element::Packed(PackedBits::Twelve),
        packing: Packing::None,
        pieces: vec![Bytes::from_static(&[0x23, 0x61, 0x45, 0xFF, 0x0F])],
    };
    let (kind, _, bytes) = read_npy(&of(Format::Npy, array).bytes);
    assert_eq!((kind.as_str(), bytes), ("<u2", [0x123u16, 0x456, 0xFFF].iter().flat_map(|n| n.to_le_bytes()).collect()));
}

#[test]
fn tiff_has_the_exact_numbers_and_the_very_type() {
    use ::tiff::decoder::{Decoder, DecodingResult as R};
    for element in Element::ALL.into_iter().filter(|element| !element.is_packed()) {
        let (array, data) = array(Packing::BitshuffleLz4, element, &[5, 8], 1);
        let file = of(Format::Tiff, array).bytes;
        let mut decoder = Decoder::new(Cursor::new(&file[..])).unwrap();
        assert_eq!(decoder.dimensions().unwrap(), (8, 5));
        let (kind, bytes) = match decoder.read_image().unwrap() {
            R::U8(v) => ("uint8", v),
            R::U16(v) => ("uint16", v.iter().flat_map(|n| n.to_le_bytes()).collect()),
            R::U32(v) => ("uint32", v.iter().flat_map(|n| n.to_le_bytes()).collect()),
            R::U64(v) => ("uint64", v.iter().flat_map(|n| n.to_le_bytes()).collect()),
            R::I8(v) => ("int8", v.iter().flat_map(|n| n.to_le_bytes()).collect()),
            R::I16(v) => ("int16", v.iter().flat_map(|n| n.to_le_bytes()).collect()),
            R::I32(v) => ("int32", v.iter().flat_map(|n| n.to_le_bytes()).collect()),
            R::I64(v) => ("int64", v.iter().flat_map(|n| n.to_le_bytes()).collect()),
            R::F32(v) => ("float32", v.iter().flat_map(|n| n.to_le_bytes()).collect()),
            R::F64(v) => ("float64", v.iter().flat_map(|n| n.to_le_bytes()).collect()),
            R::F16(_) => panic!("no such type went in"),
        };
        assert_eq!((kind, bytes), (element.name(), data));
    }
}

#[test]
fn cbor_is_a_message_of_stream_v2_with_the_pixels_as_they_are() {
    let (packed_array, _) = array(Packing::BitshuffleLz4, Element::Uint16, &[4, 6], 1);
    let (bare, data) = array(Packing::Lz4Block, Element::Uint32, &[2, 5], 1);
    let start = SeriesStart {
        series: 7,
        unique_id: "u7".into(),
        facts: Metadata { start_time: Some("2026-11-21T00:00:00Z".into()), ..Metadata::default() },
        ..SeriesStart::default()
    };
    let planes = planes_of(start, vec![("threshold_1", packed_array.clone()), ("", bare)]);
    let get = |channel: Option<&str>| {
        let selection = Selection { format: Format::Cbor, channel: channel.map(str::to_string), size: 0 };
        render(&planes, &selection).unwrap().bytes
    };
    let all = get(None);
    let Message::Image(message) = Message::parse(&[&all[..]], &Bounds::default()).unwrap() else { panic!("no image") };
    assert_eq!((message.series.id, message.series.unique_id, message.image_id), (7, "u7", 42));
    assert_eq!(message.series_date, Some("2026-11-21T00:00:00Z"));
    assert_eq!((message.real_time.unwrap().to_ns(), message.stop_time.unwrap().to_ns()), (2_000_000_000, 2_000_000_001));
    let [(first, one), (second, two)] = message.channels[..] else { panic!("{:?}", message.channels) };
    assert_eq!((first, one.packing(), one.data()), ("threshold_1", Packing::BitshuffleLz4, &packed_array.pieces[0][..]));
    assert_eq!((second, two.packing(), two.data()), ("channel_2", Packing::None, &data[..]), "a bare block has no name there");
    assert_eq!(planes.unpacked(), 1, "what stays packed is not unpacked");
    let one = get(Some("1"));
    let Message::Image(message) = Message::parse(&[&one[..]], &Bounds::default()).unwrap() else { panic!("no image") };
    assert_eq!(message.channels.len(), 1);
}

#[test]
fn raw_is_what_a_file_would_hold() {
    let (array, _) = array(Packing::BitshuffleLz4, Element::Uint16, &[4, 6], 2);
    let lengths = format!("{},{}", array.pieces[0].len(), array.pieces[1].len());
    let together = array.pieces.concat();
    let raw = of(Format::Raw, array);
    assert_eq!(raw.bytes, together);
    let headers: Vec<_> = raw.headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    assert_eq!(
        headers,
        [
            ("x-konkordia-shape", "4,6"),
            ("x-konkordia-dtype", "uint16"),
            ("x-konkordia-compression", "bslz4"),
            ("x-konkordia-piece-bytes", &lengths)
        ]
    );
}

/// Columns, rows and colours of a PNG.
fn read_png(bytes: &[u8]) -> (u32, u32, Vec<[u8; 3]>) {
    let mut decoder = ::png::Decoder::new(Cursor::new(bytes));
    decoder.set_transformations(::png::Transformations::EXPAND);
    let mut reader = decoder.read_info().unwrap();
    let mut rgb = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut rgb).unwrap();
    (info.width, info.height, rgb.as_chunks::<3>().0[..(info.width * info.height) as usize].to_vec())
}

#[test]
fn a_picture_keeps_single_bright_pixels_and_greys_those_without_a_number() {
    let (rows, columns) = (70u64, 130u64);
    let mut pixels = vec![0u16; (rows * columns) as usize];
    pixels[33 * 130 + 77] = 1000;
    for row in 0..4 {
        pixels[row * 130..row * 130 + 4].fill(65535);
    }
    let bytes: Vec<u8> = pixels.iter().flat_map(|n| n.to_le_bytes()).collect();
    let array = Array {
        shape: Shape::new(&[rows, columns]).unwrap(),
        element: Element::Uint16,
        packing: Packing::None,
        pieces: vec![bytes.into()],
    };
    let picture = |size| {
        let selection = Selection { format: Format::Png, channel: None, size };
        read_png(&render(&planes(vec![("", array.clone())]), &selection).unwrap().bytes)
    };
    let (dark, bright, grey) =
        (konkordia_picture::map_colour(0.0), konkordia_picture::map_colour(1.0), konkordia_picture::map_colour(f32::NAN));
    let (width, height, dots) = picture(33);
    assert_eq!((width, height), (33, 18), "squares of 4 x 4");
    let count = |colour| dots.iter().filter(|dot| **dot == colour).count();
    assert_eq!((dots[8 * 33 + 19], count(bright)), (bright, 1), "a pixel of one square is not averaged away");
    assert_eq!((dots[0], count(grey)), (grey, 1));
    assert_eq!(count(dark), 33 * 18 - 2);
    let (width, height, dots) = picture(1024);
    assert_eq!((width, height, dots[33 * 130 + 77]), (130, 70, bright));
}

#[test]
fn pictures_of_every_type_and_of_odd_numbers() {
    for element in Element::ALL.into_iter().filter(|element| !element.is_packed()) {
        let (array, _) = array(Packing::None, element, &[9, 5], 1);
        let (width, height, dots) = read_png(&of(Format::Png, array).bytes);
        assert_eq!((width, height), (5, 9), "{element:?}");
        assert!(dots.iter().collect::<std::collections::BTreeSet<_>>().len() > 2, "{element:?}");
    }
    let odd = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -5.0, 0.0, 1e30];
    let bytes: Vec<u8> = odd.iter().flat_map(|n| n.to_le_bytes()).collect();
    let array =
        Array { shape: Shape::new(&[6]).unwrap(), element: Element::Float32, packing: Packing::None, pieces: vec![bytes.into()] };
    let (_, _, dots) = read_png(&of(Format::Png, array).bytes);
    let grey = konkordia_picture::map_colour(f32::NAN);
    assert_eq!(dots.iter().map(|dot| *dot == grey).collect::<Vec<_>>(), [true, false, true, false, false, false]);
}

#[test]
fn bytes_that_are_no_such_image_are_refused() {
    let (good, _) = array(Packing::BitshuffleLz4, Element::Uint16, &[64, 64], 1);
    let change = |change: &dyn Fn(&mut Array)| {
        let mut array = good.clone();
        change(&mut array);
        let selection = Selection { format: Format::Npy, channel: None, size: 1024 };
        render(&planes(vec![("", array)]), &selection).err().expect("it is refused").body().code.clone()
    };
    let changes: [&dyn Fn(&mut Array); 7] = [
        &|a| a.pieces[0] = a.pieces[0].slice(..a.pieces[0].len() - 1),
        &|a| a.pieces[0] = Bytes::new(),
        &|a| a.pieces.clear(),
        &|a| a.shape = Shape::new(&[64, 65]).unwrap(),
        &|a| a.packing = Packing::None,
        &|a| a.packing = Packing::Lz4Block,
        &|a| a.element = Element::Packed(PackedBits::Twelve),
    ];
    for (index, wrong) in changes.into_iter().enumerate() {
        assert_eq!(change(wrong), "bad_image", "{index}");
    }
}
