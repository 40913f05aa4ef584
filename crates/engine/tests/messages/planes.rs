//! From an image of messages to its pixels: every packing and type of pixel, in one piece and in several.

use super::*;
use konkordia_engine::plane::{PlaneBuffer, SharedPlanes};
use konkordia_kernels::Isa;
use konkordia_kernels::transform::{PackScratch, pack};
use std::sync::Arc;

const PACKINGS: [Packing; 5] = [Packing::None, Packing::Lz4Block, Packing::Lz4, Packing::BitshuffleLz4, Packing::BitshuffleZstd];

/// An array of `dimensions` in `pieces` pieces, and its bytes.
fn packed(packing: Packing, element: Element, dimensions: &[u64], pieces: usize) -> (Array, Vec<u8>) {
    let shape = Shape::new(dimensions).unwrap();
    let bytes: Vec<u8> = (0..shape.elements() * u64::from(element.bits()) / 8).map(|n| (n * n / 5 % 253) as u8).collect();
    let pieces = bytes.chunks(bytes.len() / pieces).map(|piece| {
        let mut out = Vec::new();
        pack(packing, Isa::detect(), element, piece, &mut out, &mut PackScratch::new()).unwrap();
        out.into()
    });
    (Array { shape, element, packing, pieces: pieces.collect() }, bytes)
}

/// The plane of an array by both ways, which give the same.
fn plane(buffer: &mut PlaneBuffer, array: &Array) -> (Vec<u64>, (usize, usize), Element, Vec<u8>) {
    let (start, image) = (SeriesStart::default(), image_of(3, vec![("low", array.clone()), ("high", array.clone())]));
    let planes = SharedPlanes::new(Arc::new(start.clone()), Arc::new(image.clone()));
    let (lent, shared) = (buffer.plane(&start, &image, 1).unwrap(), planes.plane(1).unwrap());
    assert_eq!((lent.image.number, lent.channel, shared.image.number, shared.channel), (3, 1, 3, 1));
    assert_eq!((lent.shape, lent.element, lent.bytes), (shared.shape, shared.element, shared.bytes));
    (lent.shape.dimensions().to_vec(), lent.size(), lent.element, lent.bytes.to_vec())
}

#[test]
fn planes_of_every_type_and_packing_are_the_pixels() {
    let mut buffer = PlaneBuffer::new(1 << 20);
    for element in Element::ALL.into_iter().filter(|element| !element.is_packed()) {
        for packing in PACKINGS {
            for (dimensions, pieces, size) in [
                (&[4u64, 70][..], 1, (4, 70)),
                (&[4, 70], 2, (4, 70)),
                (&[2, 3, 32], 2, (6, 32)),
                (&[33], 1, (1, 33)),
                (&[1, 1], 1, (1, 1)),
            ] {
                let (array, bytes) = packed(packing, element, dimensions, pieces);
                let found = plane(&mut buffer, &array);
                assert_eq!(found, (dimensions.to_vec(), size, element, bytes), "{element:?} {packing:?} {pieces}");
            }
        }
    }
}

#[test]
fn pixels_of_12_bits_are_lent_as_16() {
    let mut buffer = PlaneBuffer::new(8);
    let three = plain(&[1, 3], Element::Packed(PackedBits::Twelve), &[0x23, 0x61, 0x45, 0xFF, 0x0F]);
    let expected = [0x123u16, 0x456, 0xFFF].iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<_>>();
    assert_eq!(plane(&mut buffer, &three), (vec![1, 3], (1, 3), Element::Uint16, expected.clone()));
    // In two pieces of two pixels each.
    let pieces: [&[u8]; 2] = [&[0x23, 0x61, 0x45], &[0xFF, 0x0F, 0x10]];
    let pieces = pieces.map(Bytes::from_static).to_vec();
    let four = Array { pieces, ..plain(&[2, 2], Element::Packed(PackedBits::Twelve), &[]) };
    let expected = [&expected[..], &[0x00, 0x01]].concat();
    assert_eq!(plane(&mut buffer, &four), (vec![2, 2], (2, 2), Element::Uint16, expected));
}

#[test]
fn pixels_that_came_unpacked_are_not_copied_and_memory_is_used_again() {
    let start = SeriesStart { image_size: Some([4, 70]), element: Some(Element::Uint16), ..SeriesStart::default() };
    let mut buffer = PlaneBuffer::new(560);
    buffer.reserve(&start);
    let (bare, _) = packed(Packing::None, Element::Uint16, &[4, 70], 1);
    let image = image_of(0, vec![("", bare.clone())]);
    assert_eq!(buffer.plane(&start, &image, 0).unwrap().bytes.as_ptr(), bare.pieces[0].as_ptr());
    let planes = SharedPlanes::new(Arc::new(start.clone()), Arc::new(image));
    assert_eq!(planes.plane(0).unwrap().bytes.as_ptr(), bare.pieces[0].as_ptr());
    let mut places = Vec::new();
    for dimensions in [&[4u64, 70][..], &[2, 70], &[4, 70]] {
        let image = image_of(0, vec![("", packed(Packing::BitshuffleLz4, Element::Uint16, dimensions, 1).0)]);
        places.push(buffer.plane(&start, &image, 0).unwrap().bytes.as_ptr());
    }
    assert!(places.windows(2).all(|two| two[0] == two[1]), "every image is unpacked to the same place");
    let (large, _) = packed(Packing::BitshuffleLz4, Element::Uint16, &[5, 70], 1);
    let why = buffer.plane(&start, &image_of(0, vec![("", large)]), 0).err().expect("it is too large");
    assert!(why.contains("700 bytes of pixels; at most 560"), "{why}");
}

#[test]
fn bytes_that_are_no_such_image_are_refused_and_the_next_image_is_right() {
    let (good, bytes) = packed(Packing::BitshuffleLz4, Element::Uint16, &[64, 64], 1);
    let mut buffer = PlaneBuffer::new(1 << 20);
    let changes: [&dyn Fn(&mut Array); 8] = [
        &|a| a.pieces[0] = a.pieces[0].slice(..a.pieces[0].len() - 1),
        &|a| a.pieces[0] = Bytes::new(),
        &|a| a.pieces.clear(),
        &|a| a.pieces.push(a.pieces[0].clone()),
        &|a| a.shape = Shape::new(&[64, 65]).unwrap(),
        &|a| a.shape = Shape::new(&[1 << 40, 1 << 20]).unwrap(),
        &|a| a.packing = Packing::None,
        &|a| a.element = Element::Packed(PackedBits::Twelve),
    ];
    for (n, change) in changes.into_iter().enumerate() {
        let mut array = good.clone();
        change(&mut array);
        let image = image_of(0, vec![("", array)]);
        let start = SeriesStart::default();
        assert!(buffer.plane(&start, &image, 0).is_err(), "{n}");
        assert!(buffer.plane(&start, &image, 1).is_err_and(|why| why.contains("1 channels")), "{n}");
        let planes = SharedPlanes::new(Arc::new(start), Arc::new(image));
        assert!(planes.plane(0).is_err() && planes.plane(0).is_err() && planes.plane(1).is_err(), "{n}");
        assert_eq!(plane(&mut buffer, &good).3, bytes, "{n}");
    }
}

/// Eight ask at the same time: one unpacks, the others get the same memory.
#[test]
fn those_who_ask_together_share_one_plane() {
    let (array, bytes) = packed(Packing::BitshuffleLz4, Element::Uint32, &[512, 512], 1);
    let image = image_of(0, vec![("", array.clone()), ("", array)]);
    let planes = SharedPlanes::new(Arc::default(), Arc::new(image));
    let places: Vec<usize> = std::thread::scope(|scope| {
        let ask = || {
            let plane = planes.plane(0).unwrap();
            assert!(plane.bytes == bytes);
            plane.bytes.as_ptr() as usize
        };
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(places.windows(2).all(|two| two[0] == two[1]));
    assert_eq!(planes.unpacked(), 1, "nobody has asked for the other channel");
}
