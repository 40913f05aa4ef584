//! The headers of the objects in our files. neggia (XDS) reads past the end of a header of version 2 that ends in a gap
//! of less than a message, and crashes there; headers of version 1 have no gaps. tests/peers asks neggia itself.

mod common;

use std::path::Path;

use common::series::{Kind, file_sink, images, start, write};
use common::{Sample, Scratch, ledger, sample, write_images};
use konkordia_core::array::{Element, Packing};
use konkordia_core::pixel::PixelType;
use konkordia_core::ports::Sink;
use konkordia_core::series::SeriesStart;
use konkordia_sinks::hdf5::{Compression, Layout, Scale, Writer, repair};

/// Where each header of version 2 begins.
fn version_2(bytes: &[u8]) -> Vec<usize> {
    bytes.windows(5).enumerate().filter(|(_, five)| *five == b"OHDR\x02").map(|(at, _)| at).collect()
}

fn number(bytes: &[u8], at: usize, size: usize) -> usize {
    bytes[at..at + size].iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte))
}

/// Bytes after the last message of each block of a header of version 2.
fn gaps(bytes: &[u8], header: usize) -> Vec<usize> {
    let flags = bytes[header + 5];
    let at = header + 6 + if flags & 16 != 0 { 4 } else { 0 } + if flags & 32 != 0 { 16 } else { 0 };
    let width = 1 << (flags & 3);
    let head = if flags & 4 != 0 { 6 } else { 4 };
    let mut blocks = vec![(at + width, number(bytes, at, width))];
    let mut found = Vec::new();
    while let Some((mut at, size)) = blocks.pop() {
        let end = at + size;
        while at + head <= end {
            let (kind, length) = (bytes[at], number(bytes, at + 1, 2));
            at += head;
            if kind == 0x10 {
                let (block, size) = (number(bytes, at, 8), number(bytes, at + 8, 8));
                assert_eq!(&bytes[block..block + 4], b"OCHK");
                blocks.push((block + 4, size - 8));
            }
            at += length;
        }
        found.push(end - at);
    }
    found
}

/// Checks every file of a folder: the only header of version 2 is that of the root, and it has no gap. Returns the
/// number of files.
fn check(directory: &Path) -> usize {
    let mut files = 0;
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "h5") {
            continue;
        }
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!((&bytes[..8], bytes[8]), (&b"\x89HDF\r\n\x1a\n"[..], 2), "{}: superblock 2", path.display());
        let root = number(&bytes, 36, 8);
        assert_eq!(version_2(&bytes), [root], "{}: headers of version 2", path.display());
        assert!(gaps(&bytes, root).iter().all(|gap| *gap == 0), "{}: {:?}", path.display(), gaps(&bytes, root));
        files += 1;
    }
    files
}

fn run(sample: &Sample, finish: bool) {
    let mut writer = Writer::create(sample.spec.clone()).unwrap();
    write_images(&mut writer, sample).unwrap();
    if finish {
        writer.finish(&ledger(sample)).unwrap();
    } else {
        drop(writer);
        let master = sample.spec.directory.join(format!("{}_master.h5", sample.spec.prefix));
        repair(&master).unwrap();
    }
}

#[test]
fn runs_have_no_gaps_in_headers_whatever_they_are_called() {
    let scratch = Scratch::new("headers-runs");
    for pixel in PixelType::CONVERTED {
        run(&sample(&scratch.0, pixel.name(), pixel), true);
    }
    run(&sample(&scratch.0, "repaired", PixelType::Int16), false);
    // The lengths of the texts decide where a gap would be.
    for length in 0..24 {
        let mut sample = sample(&scratch.0, &format!("length{length}"), PixelType::Uint32);
        let text = "x".repeat(length);
        sample.spec.software += &text;
        sample.spec.unit += &text;
        sample.spec.metadata.sample_name = Some(text.clone());
        sample.spec.metadata.detector_serial = Some(text);
        sample.spec.compression = if length % 2 == 0 { Compression::BSLZ4 } else { Compression::None };
        sample.spec.layout = [Layout::Both, Layout::Links, Layout::Virtual][length % 3];
        sample.spec.scale = (length % 5 == 0).then_some(Scale { step: 0.125, offset: 4.0 });
        sample.spec.images_per_file = 1 + length as u32 % 4;
        run(&sample, true);
    }
    assert!(check(&scratch.0) > 100);
}

#[test]
fn series_have_no_gaps_in_headers_whatever_the_sender_says() {
    let scratch = Scratch::new("headers-series");
    for fields in 0..24usize {
        let kind =
            Kind { element: Element::Uint16, shape: vec![24, 33], channels: 1, pieces: 1, packing: Packing::BitshuffleLz4 };
        let said = (0..fields * fields).map(|n| (format!("key_{n}{}", "y".repeat(n % 7)), "z".repeat(n % 11).into()));
        let begin = SeriesStart { metadata: said.collect(), ..start() };
        let prefix = format!("series{fields}");
        if fields % 4 == 3 {
            let mut given_up = file_sink(&scratch.0, &prefix, 4);
            given_up.start(&begin.into()).unwrap();
            images(&kind).iter().for_each(|image| given_up.image(image).unwrap());
            drop(given_up);
            repair(&scratch.0.join(format!("{prefix}_master.h5"))).unwrap();
        } else {
            write(&mut file_sink(&scratch.0, &prefix, 4), begin, &images(&kind));
        }
    }
    assert_eq!(check(&scratch.0), 24 * 4);
}

#[test]
fn a_gap_is_found_where_there_is_one() {
    // A header of one block of 10 bytes: a message of 4 bytes with its head of 4, and 2 bytes after it.
    let mut bytes = b"OHDR\x02\x00\x0a".to_vec();
    bytes.extend([0, 4, 0, 0, 1, 2, 3, 4, 0, 0, 9, 9, 9, 9]);
    assert_eq!((version_2(&bytes), gaps(&bytes, 0)), (vec![0], vec![2]));
}
