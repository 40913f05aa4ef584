//! Files of one image: what fabio and cameras wrote is read, wrong files are refused with the right text, and no input
//! breaks the reader. The files of fabio (2026.6) are also seeds of the fuzz targets.

use konkordia_wire::stream::{Bounds, Element};
use konkordia_wire::{cbf, edf, tiff};
use proptest::prelude::*;

const CBF: &[u8] = include_bytes!("../../../fuzz/seeds/cbf/fabio_pilatus");
const EDF_UINT16: &[u8] = include_bytes!("../../../fuzz/seeds/edf/fabio_uint16");
const EDF_FLOAT32: &[u8] = include_bytes!("../../../fuzz/seeds/edf/fabio_float32");
const TIFF_UINT16: &[u8] = include_bytes!("../../../fuzz/seeds/tiff/fabio_uint16");
const TIFF_INT32: &[u8] = include_bytes!("../../../fuzz/seeds/tiff/fabio_int32");
const TIFF_FLOAT32: &[u8] = include_bytes!("../../../fuzz/seeds/tiff/fabio_float32");

/// The file with one text in place of another.
fn with(file: &[u8], from: &str, to: &str) -> Vec<u8> {
    let at = file.windows(from.len()).position(|part| part == from.as_bytes()).expect("the text is there");
    [&file[..at], to.as_bytes(), &file[at + from.len()..]].concat()
}

fn le<const N: usize, T>(data: &[u8], read: impl Fn([u8; N]) -> T) -> Vec<T> {
    data.as_chunks::<N>().0.iter().map(|bytes| read(*bytes)).collect()
}

#[test]
fn cbf_of_fabio_is_read() {
    let image = cbf::Image::parse(CBF, &Bounds::default()).unwrap();
    assert_eq!((image.shape.dimensions(), image.element), ([3, 4].as_slice(), Element::Int32));
    assert_eq!(image.packing, cbf::Packing::ByteOffset);
    // 1, then -2 as the difference -3, then 300 as 302 in two bytes after an escape.
    assert_eq!(image.data[..5], [1, 0xFD, 0x80, 0x2E, 0x01]);
    let items: Vec<_> = cbf::items(&image.contents).collect();
    assert_eq!(
        (items.len(), items[0], items[10]),
        (11, ("Detector", "PILATUS3 6M, S/N 60-0119"), ("Beam_xy", "(1261.61, 1306.96) pixels"))
    );
}

#[test]
fn tiff_of_fabio_is_read() {
    let read = |file| tiff::Image::parse(file, &Bounds::default()).unwrap();
    let image = read(TIFF_UINT16);
    assert_eq!((image.shape.dimensions(), image.element, image.is_big_endian), ([2, 3].as_slice(), Element::Uint16, false));
    assert_eq!(le(image.pieces[0], u16::from_le_bytes), [0, 1000, 2000, 3000, 4000, 5000]);
    // The place that the file gives for this text is 4 bytes too early, where there is a 0.
    assert_eq!(image.texts[1], ("software", "".into()));
    let image = read(TIFF_INT32);
    assert_eq!(
        (image.element, le(image.pieces[0], i32::from_le_bytes)),
        (Element::Int32, vec![0, -1000, -2000, -3000, -4000, -5000])
    );
    let image = read(TIFF_FLOAT32);
    assert_eq!((image.element, le(image.pieces[0], f32::from_le_bytes)), (Element::Float32, vec![0.0, 0.5, 1.0, 1.5, 2.0, 2.5]));
}

#[test]
fn edf_of_fabio_is_read() {
    let image = edf::Image::parse(EDF_UINT16, &Bounds::default()).unwrap();
    assert_eq!((image.shape.dimensions(), image.element, image.is_big_endian), ([2, 3].as_slice(), Element::Uint16, false));
    assert_eq!(le(image.data, u16::from_le_bytes), [0, 1000, 2000, 3000, 4000, 5000]);
    assert_eq!(edf::items(&image.header).find(|(key, _)| *key == "title"), Some(("title", "a test")));
    let image = edf::Image::parse(EDF_FLOAT32, &Bounds::default()).unwrap();
    assert_eq!((image.shape.dimensions(), image.element), ([3, 2].as_slice(), Element::Float32));
    assert_eq!(le(image.data, f32::from_le_bytes), [-0.0, -0.5, -1.0, -1.5, -2.0, -2.5]);
}

/// A big-endian TIFF file of 3 x 2 pixels of 16 bits with one strip per row: the first two rows lie together, the third
/// elsewhere.
fn big_endian_tiff() -> Vec<u8> {
    let mut file = b"MM\0*\0\0\0\x16".to_vec();
    file.extend([0, 5, 0, 6, 9, 9, 0, 1, 0, 2, 0, 3, 0, 4]);
    let entry = |tag: u16, kind: u16, count: u32, value: u32| {
        [&tag.to_be_bytes()[..], &kind.to_be_bytes(), &count.to_be_bytes(), &value.to_be_bytes()].concat()
    };
    let entries = [
        entry(256, 4, 1, 2),
        entry(257, 3, 1, 3 << 16),
        entry(258, 3, 1, 16 << 16),
        entry(270, 2, 3, u32::from_be_bytes(*b"hi\0\0")),
        entry(273, 4, 3, 22 + 2 + 7 * 12 + 4),
        entry(278, 3, 1, 1 << 16),
        entry(279, 1, 3, u32::from_be_bytes([4, 4, 4, 0])),
    ];
    file.extend((entries.len() as u16).to_be_bytes());
    entries.iter().for_each(|entry| file.extend(entry));
    file.extend([0; 4]);
    [14u32, 18, 8].iter().for_each(|place| file.extend(place.to_be_bytes()));
    file
}

#[test]
fn strips_that_follow_each_other_are_one_piece() {
    let file = big_endian_tiff();
    let image = tiff::Image::parse(&file, &Bounds::default()).unwrap();
    assert!(image.is_big_endian);
    assert_eq!((image.shape.dimensions(), image.element), ([3, 2].as_slice(), Element::Uint16));
    assert_eq!(image.pieces, [&[0, 1, 0, 2, 0, 3, 0, 4][..], &[0, 5, 0, 6]]);
    assert_eq!(image.texts, [("description", "hi".into())]);
}

#[test]
fn what_is_wrong_with_a_cbf_file_is_said() {
    let why = |file: &[u8]| cbf::Image::parse(file, &Bounds::default()).unwrap_err().why;
    let but = |from: &str, to: &str| why(&with(CBF, from, to));
    assert!(why(b"").contains("does not begin as a CBF"));
    assert!(why(b"###CBF: VERSION 1.5").contains("no pixels begin"));
    assert!(but("--CIF-BINARY-FORMAT-SECTION--", "--").contains("no binary section"));
    assert!(but("BYTE_OFFSET", "PACKED").contains("'x-cbf_packed'; x-CBF_BYTE_OFFSET and none"));
    assert!(but("x-CBF_BYTE_OFFSET", "x-CBF_NONE").contains("int32 of shape [3, 4] has 48 bytes, but"));
    assert!(but("signed 32-bit integer", "signed 16-bit integer").contains("but these are 'signed 16-bit integer'"));
    assert!(but("signed 32-bit integer", "complex").contains("'complex' is not supported"));
    assert!(but("LITTLE_ENDIAN", "BIG_ENDIAN").contains("big-endian"));
    assert!(but("Fastest-Dimension: 4", "Fastest-Dimension: x").contains("'x', not a whole number"));
    assert!(but("Fastest-Dimension: 4", "Fastest-Dimension: 0").contains("cannot have 3 x 0 pixels"));
    assert!(but("Fastest-Dimension: 4", "Fastest-Dimension: 5").contains("announces 12 pixels, but is 3 x 5"));
    assert!(but("Size-Padding", "Size-Third-Dimension: 2\r\nX-Padding").contains("more than one image"));
    assert!(why(&CBF[..CBF.len() - 40]).contains("bytes of pixels, but"));
    let huge =
        with(&with(CBF, "Fastest-Dimension: 4", "Fastest-Dimension: 400000000"), "of-Elements: 12", "of-Elements: 1200000000");
    assert!(why(&huge).contains("more than the 1073741824 bytes"));
    let many = with(&with(CBF, "Fastest-Dimension: 4", "Fastest-Dimension: 400"), "of-Elements: 12", "of-Elements: 1200");
    assert!(why(&many).contains("cannot be packed into"));
    let small = Bounds { text_bytes_max: 100, ..Bounds::default() };
    assert!(cbf::Image::parse(CBF, &small).unwrap_err().why.contains("within its first 100 bytes"));
}

#[test]
fn what_is_wrong_with_a_tiff_file_is_said() {
    let why = |file: &[u8]| tiff::Image::parse(file, &Bounds::default()).unwrap_err().why;
    let but = |at: usize, byte: u8| {
        let mut file = TIFF_UINT16.to_vec();
        file[at] = byte;
        why(&file)
    };
    // The entries begin at byte 10: columns, rows, bits, compression, ...; the value is in the last 4 of 12 bytes.
    let value = |entry: usize| 10 + 12 * entry + 8;
    assert!(why(b"II,\0").contains("does not begin as a TIFF"));
    assert!(why(b"II+\0").contains("ends in its header"));
    assert!(why(&TIFF_UINT16[..20]).contains("ends inside its directory, which begins at byte 8"));
    assert!(but(value(0), 4).contains("uint16 of shape [2, 4] has 16 bytes, but its strips have 12"));
    assert!(but(value(0) + 3, 0xFF).contains("more than the 1073741824 bytes"));
    assert!(but(value(1), 0).contains("cannot have 0 x 3 pixels"));
    assert!(but(value(2), 12).contains("uint16 of shape [2, 3] has 10 bytes, but its strips have 12"));
    assert!(but(value(2), 33).contains("pixels of 33 bits and sample format 1 are not supported"));
    assert!(but(value(3), 5).contains("packed (Lzw)"));
    assert!(but(value(3), 6).contains("compression 6"));
    assert!(but(value(6) + 2, 1).contains("reaches from byte"));
    assert!(but(10 + 12 * 6, 0).contains("where its strips are"));
    assert!(but(10, 0xFF).contains("how many columns"));
    assert!(but(10 + 12 * 12, 8).contains("more than one image"));
    let small = Bounds { text_bytes_max: 10, ..Bounds::default() };
    assert!(tiff::Image::parse(TIFF_UINT16, &small).unwrap_err().why.contains("its software has 14 bytes; a text may have 10"));
}

#[test]
fn what_is_wrong_with_an_edf_file_is_said() {
    let why = |file: &[u8]| edf::Image::parse(file, &Bounds::default()).unwrap_err().why;
    let but = |from: &str, to: &str| why(&with(EDF_UINT16, from, to));
    assert!(why(b"[]").contains("does not begin as an EDF"));
    assert!(why(&EDF_UINT16[..200]).contains("header does not end"));
    assert!(but("UnsignedShort", "Complex").contains("'Complex' is not supported"));
    assert!(but("DataType", "Data").contains("no 'DataType'"));
    assert!(but("LowByteFirst", "Mixed").contains("'ByteOrder' is 'Mixed'"));
    assert!(but("Dim_1 = 3", "Dim_1 = x").contains("'x', not a whole number"));
    assert!(but("Dim_1 = 3", "Dim_1 = 0").contains("cannot have 2 x 0"));
    assert!(but("Dim_1 = 3", "Dim_9 = 3").contains("no 'Dim_1'"));
    assert!(but("Dim_1 = 3", "Dim_1 = 4").contains("uint16 of shape [2, 4] has 16 bytes, but 12 follow"));
    assert!(but("Dim_1 = 3", "Dim_1 = 4000000000").contains("more than the 1073741824 bytes"));
    assert!(but("Dim_2 = 2", "Dim_2 = 2 ;\nDim_3 = 2").contains("more than one image"));
    assert!(but("Image = 0", "Compression = GzipCompression").contains("packed ('GzipCompression')"));
    assert!(why(&[EDF_UINT16, EDF_UINT16].concat()).contains("several images"));
    let filled = [EDF_UINT16, &[0; 500]].concat();
    assert_eq!(edf::Image::parse(&filled, &Bounds::default()), edf::Image::parse(EDF_UINT16, &Bounds::default()));
    let high = with(EDF_UINT16, "LowByteFirst", "HighByteFirst");
    assert!(edf::Image::parse(&high, &Bounds::default()).unwrap().is_big_endian);
}

/// Reads the bytes in all formats; what is accepted holds to its bounds.
fn read_all(bytes: &[u8]) {
    let bounds = Bounds { text_bytes_max: 4096, image_bytes_max: 4096, ..Bounds::default() };
    for page in tiff::pages(bytes, &bounds).unwrap_or_default() {
        assert!(page.pieces.iter().all(|piece| piece.at + piece.bytes <= bytes.len() as u64));
        assert!(page.shape.elements() * u64::from(page.element.bits()) / 8 <= 4096);
    }
    for frame in edf::frames(bytes, &bounds).unwrap_or_default() {
        assert!(frame.at + frame.bytes <= bytes.len() as u64 && frame.bytes <= 4096);
    }
    if let Ok(image) = cbf::Image::parse(bytes, &bounds) {
        assert!(image.data.len() <= bytes.len() && image.shape.elements() * u64::from(image.element.bits()) / 8 <= 4096);
        cbf::items(&image.contents).for_each(|(key, _)| assert!(!key.is_empty()));
    }
    if let Ok(image) = tiff::Image::parse(bytes, &bounds) {
        let came: usize = image.pieces.iter().map(|piece| piece.len()).sum();
        assert_eq!(came as u64, image.shape.elements() * u64::from(image.element.bits()) / 8);
        assert!(came <= 4096);
    }
    if let Ok(image) = edf::Image::parse(bytes, &bounds) {
        assert_eq!(image.data.len() as u64, image.shape.elements() * u64::from(image.element.bits()) / 8);
        assert!(image.data.len() <= 4096);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn nothing_in_a_file_breaks_the_readers(
        which in 0usize..7,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in any::<prop::sample::Index>(),
        bytes in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let big = big_endian_tiff();
        let mut file = [CBF, EDF_UINT16, EDF_FLOAT32, TIFF_UINT16, TIFF_INT32, TIFF_FLOAT32, &big][which].to_vec();
        for (at, byte) in &changes {
            let at = at.index(file.len());
            file[at] = *byte;
        }
        read_all(&file);
        read_all(&file[..cut.index(file.len())]);
        for magic in [cbf::MAGIC, tiff::MAGICS[0], tiff::MAGICS[1], b"{"] {
            read_all(&[magic, &bytes].concat());
        }
    }
}
