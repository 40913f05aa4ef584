//! Modules to images: turned, with gaps, double pixels and packets that did not come; all as the CPU does it.

mod common;

use common::{Numbers, difference};
use konkordia_core::geometry::{DoublePixels, Gather, ImageGeometry, Orientation, Placement};
use konkordia_core::pixel::Pixel;
use konkordia_core::share::{share, share_start};
use konkordia_core::tile::TileFormat;
use konkordia_gpu::emulator::{Argument, Grid, Order, launch};
use konkordia_gpu::layout::{NO_FRAME, Places};
use konkordia_kernels::convert::{counts, jungfrau};
use konkordia_kernels::unpack::Bits;
use konkordia_kernels::{Constants, Isa, OutputPixel};

const NO_WORD: u16 = 0xFFFF;

/// Two tiles in any orientation, the second to the right of the first with a gap of 5 columns and 3 rows lower.
fn two_tiles(format: TileFormat, mode: DoublePixels, orientation: Orientation) -> ImageGeometry {
    let (_, columns) = orientation.turned(mode.tile_size(&format, 0));
    let second = Placement { row: 3, column: columns + 5, orientation: Orientation::FLIPPED };
    ImageGeometry::new(format, vec![Placement { row: 0, column: 0, orientation }, second], None, mode).expect("two tiles")
}

/// What of two frames arrived: about one packet of seven did not.
fn arrived(packets: u32, numbers: &mut Numbers) -> Vec<u8> {
    (0..2 * packets).map(|_| u8::from(numbers.below(7) != 0)).collect()
}

/// Visits the pixels of the image with tile and tile pixel if all packets came; `Err(true)` in gaps, `Err(false)` where
/// a packet is missing.
fn each_pixel(
    geometry: &ImageGeometry,
    gather: &Gather,
    arrived: &[u8],
    mut visit: impl FnMut(usize, Result<(usize, usize), bool>),
) {
    let packets = geometry.format().packets() as usize;
    for block in 0..gather.blocks() {
        for segment in gather.segments(block) {
            for (at, pixel) in segment.in_block().zip(segment.tile_pixels()) {
                let from = match segment.tile.map(usize::from) {
                    None => Err(true),
                    Some(tile) => {
                        let came = |packet: u16| arrived[tile * packets + usize::from(packet)] != 0;
                        if came(segment.packet_first) && came(segment.packet_last) { Ok((tile, pixel)) } else { Err(false) }
                    }
                };
                visit(block * gather.block_pixels() + at, from);
            }
        }
    }
}

fn share_all<P: Pixel>(gather: &Gather, image: u64, pixels: &mut [P]) {
    for block in 0..gather.blocks() {
        for s in gather.shares(block) {
            let pixel = &mut pixels[block * gather.block_pixels() + s.block_offset as usize];
            *pixel = share(*pixel, s.part, s.parts, share_start(s.group, image));
        }
    }
}

/// Launches `share_out` for images that follow one another.
fn share_out<P: OutputPixel>(places: &Places, images: &mut [P], first_image: u64, order: Order) {
    let (pixels, shares) = (places.source.len(), &places.shares);
    let grid = Grid { x: 2, y: (images.len() / pixels) as u32 };
    let arguments = [
        Argument::write(images),
        Argument::read(&shares.pixel),
        Argument::read(&shares.group),
        Argument::read(&shares.part),
        Argument::number(first_image),
        Argument::number(shares.pixel.len() as u32),
        Argument::number(pixels as u32),
    ];
    launch(&format!("share_out_{}", P::TYPE.name()), grid, order, &arguments).expect("no fault");
}

/// The words of two frames in the order of the image.
fn words_of(places: &Places, modules: &[u16], arrived: &[u8], order: Order) -> Vec<u16> {
    let pixels = places.source.len();
    let mut words = vec![7; 2 * pixels];
    let arguments = [
        Argument::read(modules),
        Argument::read(&places.source),
        Argument::read(&places.packet),
        Argument::read(arrived),
        Argument::write(&mut words),
        Argument::number(places.tile_pixels),
        Argument::number(places.packets),
        Argument::number(pixels as u32),
    ];
    launch("gather_words", Grid { x: 7, y: 2 }, order, &arguments).expect("no fault");
    words
}

/// The same of a frame of which all packets came, behind some other words; and the words of no frame.
fn taken_words(places: &Places, modules: &[u16], order: Order) -> Vec<u16> {
    const BEFORE: usize = 5;
    let pixels = places.source.len();
    let (mut words, received) = (vec![7; 2 * pixels], [&[7; BEFORE], modules].concat());
    let arguments = [
        Argument::read(&received),
        Argument::read(&[NO_FRAME, BEFORE as u64]),
        Argument::read(&places.source),
        Argument::write(&mut words),
        Argument::number(pixels as u32),
    ];
    launch("take_words", Grid { x: 7, y: 2 }, order, &arguments).expect("no fault");
    words
}

fn mark_absent<P: OutputPixel>(places: &Places, arrived: &[u8], images: &mut [P], order: Order) {
    let arguments = [
        Argument::read(&places.source),
        Argument::read(&places.packet),
        Argument::read(arrived),
        Argument::write(images),
        Argument::number(places.packets),
        Argument::number(places.source.len() as u32),
    ];
    launch(&format!("mark_absent_{}", P::TYPE.name()), Grid { x: 5, y: 2 }, order, &arguments).expect("no fault");
}

/// Words to images: gather, convert, absent pixels, shares; two frames of two tiles.
fn check_words<P: OutputPixel>(geometry: &ImageGeometry, order: Order, numbers: &mut Numbers) {
    let (places, gather) = (Places::new(geometry), geometry.gather(4096));
    let pixels = geometry.pixels();
    let modules: Vec<u16> = (0..2 * places.tile_pixels).map(|_| numbers.next() as u16).collect();
    let arrived = arrived(places.packets, numbers);
    let plane = |low: f32, numbers: &mut Numbers| -> Vec<f32> {
        (0..pixels).map(|_| if numbers.below(40) == 0 { f32::NAN } else { low + numbers.below(1000) as f32 }).collect()
    };
    let pedestal = [plane(2000.0, numbers), plane(13000.0, numbers), plane(12000.0, numbers)];
    let factor = [0.02, -0.7, -9.0].map(|factor| vec![factor; pixels]);
    let constants = Constants { pedestal: pedestal.each_ref().map(|p| &p[..]), factor: factor.each_ref().map(|f| &f[..]) };

    let words = words_of(&places, &modules, &arrived, order);
    let mut images = vec![P::default(); 2 * pixels];
    for (words, out) in words.chunks(pixels).zip(images.chunks_mut(pixels)) {
        jungfrau(Isa::Scalar, words, &constants, out);
    }
    mark_absent(&places, &arrived, &mut images, order);
    share_out(&places, &mut images, 77, order);

    for frame in 0..2 {
        let arrived = &arrived[frame * places.packets as usize..][..places.packets as usize];
        let tiles = &modules[frame * places.tile_pixels as usize..][..places.tile_pixels as usize];
        let each = geometry.format().pixels() as usize;
        let mut expected_words = vec![NO_WORD; pixels];
        each_pixel(geometry, &gather, arrived, |at, from| {
            expected_words[at] = from.map_or(NO_WORD, |(tile, pixel)| tiles[tile * each + pixel]);
        });
        let ours = &words[frame * pixels..][..pixels];
        assert_eq!(difference(ours, &expected_words), None, "words of frame {frame}");
        let mut expected = vec![P::default(); pixels];
        jungfrau(Isa::Scalar, &expected_words, &constants, &mut expected);
        each_pixel(geometry, &gather, arrived, |at, from| match from {
            Ok(_) => {}
            Err(true) => expected[at] = P::MASKED,
            Err(false) => expected[at] = P::MISSING,
        });
        share_all(&gather, 77 + frame as u64, &mut expected);
        let ours = &images[frame * pixels..][..pixels];
        assert_eq!(difference(ours, &expected), None, "{:?}, frame {frame}, {:?}", P::TYPE, geometry.double_pixels());
    }
    let taken = taken_words(&places, &modules, order);
    let all = words_of(&places, &modules, &vec![1; 2 * places.packets as usize], order);
    assert_eq!(difference(&taken[..pixels], &vec![NO_WORD; pixels]), None, "no frame");
    assert_eq!(difference(&taken[pixels..], &all[..pixels]), None, "words that are taken");
}

/// All modes of double pixels and all orientations, of tiles of both read-outs of a JUNGFRAU, whole and in part.
#[test]
fn words_of_jungfrau_become_the_images_of_the_cpu() {
    let mut numbers = Numbers(0x6A77_0000_1234_5679);
    let formats = [1, 2].map(|interfaces| TileFormat::jungfrau(interfaces).expect("a read-out"));
    let of_rows = |format: TileFormat, rows| format.with_rows(rows).expect("rows that can be read");
    let small = [of_rows(formats[0], 16), of_rows(formats[1], 32)];
    for (n, orientation) in Orientation::all().enumerate() {
        for (m, mode) in DoublePixels::ALL.into_iter().enumerate() {
            let geometry = two_tiles(small[(n + m) % 2], mode, orientation);
            let order = [Order::Parallel(2), Order::Down, Order::Mixed(3)][(n + m) % 3];
            match (n + m) % 5 {
                0 => check_words::<i16>(&geometry, order, &mut numbers),
                1 => check_words::<u16>(&geometry, order, &mut numbers),
                2 => check_words::<i32>(&geometry, order, &mut numbers),
                3 => check_words::<u32>(&geometry, order, &mut numbers),
                _ => check_words::<f32>(&geometry, order, &mut numbers),
            }
        }
    }
    check_words::<i32>(&two_tiles(formats[1], DoublePixels::Split, Orientation::UPRIGHT), Order::Parallel(2), &mut numbers);
}

/// Counts of EIGER to images: every depth, also pixels that lie in two packets.
fn check_counts<P: OutputPixel>(format: TileFormat, mode: DoublePixels, order: Order, numbers: &mut Numbers) {
    let geometry = two_tiles(format, mode, Orientation::all().nth(numbers.below(8) as usize).expect("eight"));
    let (places, gather) = (Places::new(&geometry), geometry.gather(4096));
    let (pixels, bits) = (geometry.pixels(), Bits::new(format.bits).expect("a depth"));
    let tile_bytes = bits.bytes(format.pixels() as usize);
    let mut modules: Vec<u8> = (0..2 * 2 * tile_bytes).map(|_| numbers.next() as u8).collect();
    // Counts at the ends of the types, and small ones.
    if format.bits == 32 {
        let counts = [0, 1, 65_531, 65_532, 32_766, 32_767, 2_147_483_392, 2_147_483_393, u32::MAX];
        for (n, four) in modules.as_chunks_mut::<4>().0.iter_mut().enumerate().filter(|(n, _)| n % 3 != 0) {
            *four = counts[n % counts.len()].to_le_bytes();
        }
    }
    let arrived = arrived(places.packets, numbers);
    let masks: Vec<u8> = (0..pixels).map(|_| u8::from(numbers.below(30) == 0)).collect();
    let mut images = vec![P::default(); 2 * pixels];
    let arguments = [
        Argument::read(&modules),
        Argument::read(&places.source),
        Argument::read(&places.packet),
        Argument::read(&arrived),
        Argument::read(&masks),
        Argument::write(&mut images),
        Argument::number(2 * tile_bytes as u64),
        Argument::number(format.bits),
        Argument::number(places.packets),
        Argument::number(pixels as u32),
    ];
    launch(&format!("gather_counts_{}", P::TYPE.name()), Grid { x: 6, y: 2 }, order, &arguments).expect("no fault");
    share_out(&places, &mut images, 5, order);
    for frame in 0..2 {
        let arrived = &arrived[frame * places.packets as usize..][..places.packets as usize];
        let mut expected = vec![P::default(); pixels];
        each_pixel(&geometry, &gather, arrived, |at, from| match from {
            Ok((tile, pixel)) => {
                let tile = &modules[(2 * frame + tile) * tile_bytes..][..tile_bytes];
                counts(bits, tile, pixel, Some(&masks[at..=at]), &mut expected[at..=at]);
            }
            Err(true) => expected[at] = P::MASKED,
            Err(false) => expected[at] = P::MISSING,
        });
        share_all(&gather, 5 + frame as u64, &mut expected);
        let ours = &images[frame * pixels..][..pixels];
        assert_eq!(difference(ours, &expected), None, "{:?}, {} bits, frame {frame}, {mode:?}", P::TYPE, format.bits);
    }
}

#[test]
fn counts_of_eiger_become_the_images_of_the_cpu() {
    let mut numbers = Numbers(0xE16E_0000_1234_5679);
    for bits in [4, 8, 12, 16, 32] {
        let format = TileFormat::eiger(bits).expect("a depth");
        let format = (8..=256).step_by(8).find_map(|rows| format.with_rows(rows)).expect("rows that fill packets");
        check_counts::<i16>(format, DoublePixels::Split, Order::Parallel(2), &mut numbers);
        check_counts::<u16>(format, DoublePixels::Keep, Order::Down, &mut numbers);
        check_counts::<i32>(format, DoublePixels::Gap, Order::Mixed(2), &mut numbers);
        check_counts::<u32>(format, DoublePixels::Split, Order::Parallel(2), &mut numbers);
        check_counts::<f32>(format, DoublePixels::Mask, Order::Down, &mut numbers);
    }
}

/// A pixel of 12 bits may lie in two packets: it is missing if either did not come.
#[test]
fn a_pixel_in_two_packets_needs_both() {
    let format = TileFormat::eiger(12).expect("12 bits");
    let geometry = ImageGeometry::stacked(format, 1).expect("one tile");
    let places = Places::new(&geometry);
    let split = places.packet.iter().position(|packet| packet >> 31 == 1).expect("packets of 4096 bytes cut pixels of 12 bits");
    let first = (places.packet[split] & 0x7FFF_FFFF) as usize;
    for missing in [first, first + 1] {
        let mut arrived = vec![1u8; 2 * places.packets as usize];
        arrived[missing] = 0;
        let mut images = vec![3i32; 2 * geometry.pixels()];
        mark_absent(&places, &arrived, &mut images, Order::Parallel(2));
        assert_eq!((images[split], images[geometry.pixels() + split]), (i32::MISSING, 3));
    }
}

/// Tiles whose pixels are sent in another order than row by row.
#[test]
fn interleaved_tiles_are_gathered_too() {
    let mut numbers = Numbers(0xECA1_0000_1234_5679);
    let geometry = two_tiles(TileFormat::excalibur(), DoublePixels::Keep, Orientation::all().nth(3).expect("eight"));
    check_words::<u16>(&geometry, Order::Mixed(6), &mut numbers);
}
