//! Packetiser, link and reference together: a perfect link gives the truth back, a bad one exactly what its log says.

#[path = "../../../tests/skip.rs"]
mod skip;

use konkordia_core::pixel::Pixel;
use konkordia_sim::eiger::{EigerModel, SyntheticEiger};
use konkordia_sim::fault::{Datagram, FaultLink, FaultModel, PacketId};
use konkordia_sim::jungfrau::{JungfrauModel, SyntheticJungfrau, raw_bytes};
use konkordia_sim::packet::{DetectorKind, HEADER_BYTES, PacketModel, Packetiser};
use konkordia_sim::reference::{
    Conversion, ImageStatus, JungfrauConstants, Reference, RunLayout, TilePlacement, Verdict, convert_word,
};
use konkordia_sim::rng::Rng;
use konkordia_sim::scene::SceneModel;
use proptest::prelude::*;
use std::path::Path;

/// Sends images (each a list of tiles) packet by packet, streams interleaved, through a link; returns what came out.
fn send(packetiser: &Packetiser, images: &[Vec<Vec<u8>>], link: &mut FaultLink) -> Vec<(usize, Vec<u8>)> {
    let layout = packetiser.layout();
    let mut delivered = Vec::new();
    let mut out = vec![0; layout.datagram_bytes()];
    let mut sink = |d: Datagram<'_>| delivered.push((d.stream, d.bytes.to_vec()));
    for (image, tiles) in images.iter().enumerate() {
        for packet in 0..layout.packets_per_tile {
            for (stream, tile) in tiles.iter().enumerate() {
                let length = packetiser.write_packet(stream, packetiser.frame_number(image as u64), packet, tile, &mut out);
                link.push(Datagram { stream, bytes: &out[..length], is_other_sender: false }, &mut sink);
            }
        }
    }
    link.flush(&mut sink);
    delivered
}

/// Tiles of random bytes: the link and the ledger do not care for physics.
fn random_images(packetiser: &Packetiser, images: usize) -> Vec<Vec<Vec<u8>>> {
    let layout = packetiser.layout();
    let mut rng = Rng::new(99);
    let mut tile = || (0..layout.tile_bytes / 8).flat_map(|_| rng.next_u64().to_le_bytes()).collect::<Vec<u8>>();
    (0..images).map(|_| (0..layout.streams).map(|_| tile()).collect()).collect()
}

fn packetiser(kind: DetectorKind, modules: usize) -> Packetiser {
    Packetiser::new(&PacketModel::new(kind, modules)).expect("valid")
}

fn all_faults(seed: u64) -> FaultModel {
    FaultModel {
        seed,
        loss: 0.02,
        burst: 0.002,
        burst_packets_mean: 10.0,
        duplicate: 0.05,
        reorder: 0.1,
        reorder_packets_max: 20,
        corrupt_payload: 0.02,
        truncate: 0.02,
        foreign: 0.05,
        log_packets: true,
        ..FaultModel::default()
    }
}

#[test]
fn a_perfect_link_gives_the_photons_back() {
    let mut model = JungfrauModel::for_modules(2);
    model.dead_ppm = 100.0;
    let detector = SyntheticJungfrau::new(&model).expect("valid");
    let image = detector.image(0);
    for interfaces in [1, 2] {
        let packetiser = packetiser(DetectorKind::Jungfrau { interfaces }, 2);
        let tiles: Vec<Vec<u8>> = raw_bytes(&image.raw).chunks(packetiser.layout().tile_bytes).map(<[u8]>::to_vec).collect();
        let mut link = FaultLink::new(&FaultModel::default());
        let mut reference = Reference::new(RunLayout::stacked(&packetiser, 1));
        for (stream, bytes) in send(&packetiser, &[tiles], &mut link) {
            assert_eq!(reference.receive(stream, &bytes), Verdict::Placed);
        }
        assert_eq!(reference.status(0), ImageStatus::Complete);
        assert_eq!(reference.image_ledger().complete, 1);
        assert_eq!(reference.raw_image(0, 1, 2), image.raw.iter().map(|w| u32::from(*w)).collect::<Vec<_>>());
        let mut pedestals = detector.pedestals().to_vec();
        detector.bad_pixels().iter().for_each(|b| pedestals[b.pixel] = 16383.0);
        let constants = JungfrauConstants::new(&pedestals, detector.gains(), 12.4);
        let photons: Vec<i32> = reference.image(0, Conversion::Photons(&constants));
        let mut wrong = 0;
        for (pixel, (&measured, &truth)) in photons.iter().zip(&image.photons).enumerate() {
            if detector.bad_pixels().iter().any(|b| b.pixel == pixel) {
                assert_eq!(measured, i32::MASKED);
            } else if image.raw[pixel] >> 14 == 0 {
                wrong += u32::from(measured != truth as i32);
            } else {
                assert!(measured == i32::SATURATED || measured.abs_diff(truth as i32) < 20);
            }
        }
        // Half a photon is nearly nine sigma of the noise, so G0 gives the number of photons itself.
        assert_eq!(wrong, 0);
    }
}

#[test]
fn eiger_tiles_are_placed_and_flipped_into_the_module() {
    for bits in [4u8, 8, 12, 16, 32] {
        let mut scene = SceneModel::for_modules(1);
        scene.background = 3.0;
        let detector = SyntheticEiger::new(&EigerModel { scene, bits }).expect("valid");
        let image = detector.image(0);
        let packetiser = packetiser(DetectorKind::Eiger { bits }, 1);
        let tiles: Vec<Vec<u8>> = image.ports.iter().map(|port| detector.port_bytes(port)).collect();
        let at = |row, column, flip_rows| TilePlacement { row, column, flip_rows };
        // A gap of two pixels between the ports, and one row of gap at the lower edge.
        let placements = vec![at(0, 0, true), at(0, 514, true), at(258, 0, false), at(258, 514, false)];
        let mut reference = Reference::new(RunLayout::stacked(&packetiser, 1).placed(placements, 515, 1026));
        let mut link = FaultLink::new(&FaultModel::default());
        for (stream, bytes) in send(&packetiser, &[tiles], &mut link) {
            reference.receive(stream, &bytes);
        }
        let output: Vec<u32> = reference.image(0, Conversion::Counts);
        for row in 0..515 {
            for column in 0..1026 {
                let gap = row == 514 || (256..258).contains(&row) || (512..514).contains(&column);
                let (r, c) = (row - if row > 257 { 2 } else { 0 }, column - if column > 513 { 2 } else { 0 });
                let expected = if gap { u32::MASKED } else { image.photons[r * 1024 + c].min(detector.count_max()) };
                assert_eq!(output[row * 1026 + column], expected, "{bits} bits, ({row}, {column})");
            }
        }
    }
}

#[test]
fn a_twelve_bit_pixel_on_a_packet_border_needs_both_packets() {
    let packetiser = packetiser(DetectorKind::Eiger { bits: 12 }, 1);
    let images = random_images(&packetiser, 1);
    let mut reference = Reference::new(RunLayout::stacked(&packetiser, 1));
    for (stream, bytes) in send(&packetiser, &images, &mut FaultLink::new(&FaultModel::default())) {
        if !(stream == 0 && bytes[12] == 1) {
            reference.receive(stream, &bytes);
        }
    }
    let output: Vec<i32> = reference.image(0, Conversion::Counts);
    // Packet 1 holds bytes 4096..8192: pixel 2730 begins in packet 0, pixel 5461 begins in packet 1.
    let missing: Vec<usize> = (0..output.len()).filter(|p| output[*p] == i32::MISSING).collect();
    assert_eq!(missing, (2730..=5461).collect::<Vec<_>>());
    assert_eq!(reference.status(0), ImageStatus::Partial);
    assert_eq!(reference.arrived(0, 0).iter().filter(|a| !**a).count(), 1);
}

#[test]
fn special_words_in_their_order() {
    let mut pedestals = vec![3000.0f32, 3000.0, 15000.0, 15000.0, 15000.0, 15000.0];
    let gains = [40.0f32, 40.0, -1.5, -1.5, -0.1, -0.1];
    pedestals[1] = 16383.0;
    let constants = JungfrauConstants::new(&pedestals, &gains, 10.0);
    let convert = |word| [convert_word::<i32>(word, 0, &constants), convert_word::<i32>(word, 1, &constants)];
    for (word, expected) in [
        (0xFFFF, i32::INVALID),
        (0xC000, i32::SATURATED),
        (0x4000, i32::INVALID),
        (0x8000, i32::INVALID),
        (0xBFFF, i32::INVALID),
        (3400, 1),
        (3000, 0),
        (0, -8),
        (0x4000 | 14985, 1),
        (0xC000 | 14900, 100),
    ] {
        assert_eq!(convert(word), [expected, i32::MASKED], "word {word:#x}");
    }
}

/// The expected ledger and images, from the log of the link alone.
fn check_against_log(kind: DetectorKind, modules: usize, image_count: usize, model: &FaultModel) {
    let packetiser = packetiser(kind, modules);
    let images = random_images(&packetiser, image_count);
    let mut link = FaultLink::new(model);
    let delivered = send(&packetiser, &images, &mut link);
    let mut reference = Reference::new(RunLayout::stacked(&packetiser, image_count as u64));
    for (stream, bytes) in &delivered {
        reference.receive(*stream, bytes);
    }
    let (log, counts, ledger) = (link.log(), link.log().counts, reference.packet_ledger());
    assert_eq!(counts.delivered, delivered.len() as u64);
    assert_eq!(counts.delivered, counts.sent - counts.lost + counts.duplicated + counts.foreign_total());
    assert_eq!(ledger.received, counts.delivered);
    assert_eq!(ledger.placed, log.placeable());
    assert_eq!(ledger.duplicate, log.surplus());
    let [wrong_type, wrong_version, wrong_length, noise, empty] = counts.foreign;
    assert_eq!(ledger.malformed, [wrong_length + noise + empty + counts.truncated, wrong_version, wrong_type, 0]);
    assert_eq!(ledger.foreign, 0);
    assert_eq!(ledger.received, ledger.placed + ledger.duplicate + ledger.foreign + ledger.malformed.iter().sum::<u64>());
    assert_eq!(log.packets.len() as u64, counts.sent);
    assert_eq!(log.packets.values().filter(|f| f.copies() == 0).count() as u64, counts.lost);
    check_pixels(&packetiser, &images, &link, &reference);
}

/// Raw pixels: sent bytes where a pristine copy alone came, missing where none did.
fn check_pixels(packetiser: &Packetiser, images: &[Vec<Vec<u8>>], link: &FaultLink, reference: &Reference) {
    let layout = packetiser.layout();
    let payload_pixels = layout.payload_bytes / 2;
    let mut totals = [0u64; 3];
    for (image, tiles) in images.iter().enumerate() {
        let output = reference.raw_image(image as u64, 70_000, 80_000);
        let mut here = 0;
        for (stream, tile) in tiles.iter().enumerate() {
            for packet in 0..layout.packets_per_tile {
                let fate = link.log().packets[&PacketId { image: image as u64, stream, packet }];
                let start = stream * layout.tile_bytes / 2 + packet as usize * payload_pixels;
                let got = &output[start..start + payload_pixels];
                let bytes = &tile[packet as usize * layout.payload_bytes..][..layout.payload_bytes];
                let sent = || bytes.chunks(2).map(|b| u32::from(u16::from_le_bytes([b[0], b[1]])));
                here += u32::from(fate.placeable() > 0);
                if fate.placeable() == 0 {
                    assert!(got.iter().all(|p| *p == 80_000));
                } else if fate.payload_corrupted == 0 {
                    assert!(got.iter().copied().eq(sent()), "packet {packet} of stream {stream}");
                } else if fate.pristine == 0 {
                    let flipped: u32 = got.iter().zip(sent()).map(|(a, b)| (a ^ b).count_ones()).sum();
                    assert!((1..=8).contains(&flipped), "{flipped} bits");
                }
            }
        }
        let expected = layout.streams as u32 * layout.packets_per_tile;
        let status = if here == expected { 2 } else { usize::from(here > 0) };
        totals[status] += 1;
        assert_eq!(reference.status(image as u64) as usize, status);
    }
    let ledger = reference.image_ledger();
    assert_eq!([ledger.lost, ledger.partial, ledger.complete], totals);
    let placed = reference.packet_ledger().placed;
    assert_eq!(ledger.packets_missing + placed, link.log().counts.sent);
}

#[test]
fn the_log_of_a_bad_link_predicts_ledger_and_pixels() {
    check_against_log(DetectorKind::Jungfrau { interfaces: 1 }, 2, 4, &all_faults(1));
    check_against_log(DetectorKind::Jungfrau { interfaces: 2 }, 1, 4, &all_faults(2));
    check_against_log(DetectorKind::Eiger { bits: 16 }, 1, 4, &all_faults(3));
    let nothing = FaultModel { loss: 1.0, log_packets: true, ..FaultModel::default() };
    check_against_log(DetectorKind::Eiger { bits: 16 }, 1, 2, &nothing);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn any_link_is_predicted_by_its_log(
        seed: u64, loss in 0.0..0.3, burst in 0.0..0.02, mean in 1.0..40.0f64, duplicate in 0.0..0.4, reorder in 0.0..0.6,
        distance in 1usize..70, corrupt_payload in 0.0..0.2, truncate in 0.0..0.2, foreign in 0.0..0.3,
    ) {
        let model = FaultModel { seed, loss, burst, burst_packets_mean: mean, duplicate, reorder, reorder_packets_max: distance,
            corrupt_payload, truncate, foreign, log_packets: true, ..FaultModel::default() };
        check_against_log(DetectorKind::Eiger { bits: 16 }, 1, 2, &model);
    }
}

#[test]
fn rates_of_faults_are_those_of_the_model() {
    let packetiser = packetiser(DetectorKind::Eiger { bits: 8 }, 4);
    let images = random_images(&packetiser, 40);
    let mut link = FaultLink::new(&FaultModel { corrupt_header: 0.01, ..all_faults(5) });
    let delivered = send(&packetiser, &images, &mut link).len() as u64;
    let c = link.log().counts;
    assert_eq!(delivered, c.delivered);
    let near = |got: u64, n: u64, p: f64| (got as f64 - n as f64 * p).abs() < 6.0 * (n as f64 * p).sqrt();
    let copies = c.sent - c.lost + c.duplicated;
    assert!(near(c.lost - c.lost_in_bursts, c.sent, 0.02 * (1.0 - 0.02)), "{c:?}");
    // Bursts of ten, one in 500: 2 % as well; they cluster, so their spread is wider.
    assert!((200..700).contains(&c.lost_in_bursts), "{c:?}");
    assert!(near(c.duplicated, c.sent - c.lost, 0.05) && near(c.reordered, copies, 0.1), "{c:?}");
    assert!(near(c.header_corrupted, copies, 0.01) && near(c.payload_corrupted, copies, 0.02 * 0.99), "{c:?}");
    assert!(near(c.truncated, copies, 0.02 * 0.97) && near(c.foreign_total(), c.sent, 0.05), "{c:?}");
    assert!(c.foreign.iter().all(|n| *n > 100), "{c:?}");
}

#[test]
fn reordering_stays_within_its_distance_and_a_seed_repeats_itself() {
    let packetiser = packetiser(DetectorKind::Jungfrau { interfaces: 1 }, 1);
    let images = random_images(&packetiser, 6);
    let model = FaultModel { reorder: 0.3, reorder_packets_max: 8, ..FaultModel::default() };
    let delivered = send(&packetiser, &images, &mut FaultLink::new(&model));
    let order: Vec<i64> = delivered.iter().map(|(_, b)| i64::from(b[0] - 1) * 128 + i64::from(b[12])).collect();
    let mut sorted = order.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, (0..768).collect::<Vec<_>>());
    assert_ne!(order, sorted);
    // A held packet lets at most 8 later ones pass.
    let overtaken = |i: usize| order[..i].iter().filter(|o| **o > order[i]).count();
    assert!((0..order.len()).all(|i| overtaken(i) <= 8));
    assert!((0..order.len()).any(|i| overtaken(i) >= 6));
    assert_eq!(delivered, send(&packetiser, &images, &mut FaultLink::new(&model)));
    let other = FaultModel { seed: 2, ..model };
    assert_ne!(delivered, send(&packetiser, &images, &mut FaultLink::new(&other)));
}

#[test]
fn damaged_headers_are_judged_by_what_they_say() {
    let packetiser = packetiser(DetectorKind::Jungfrau { interfaces: 1 }, 1);
    let images = random_images(&packetiser, 3);
    // Only the packet number: beyond the tile, or the place of another packet.
    let model = FaultModel { corrupt_header: 0.1, header_bytes: 12..16, log_packets: true, ..FaultModel::default() };
    let mut link = FaultLink::new(&model);
    let mut reference = Reference::new(RunLayout::stacked(&packetiser, 3));
    for (stream, bytes) in send(&packetiser, &images, &mut link) {
        assert_eq!(bytes.len(), 8240);
        reference.receive(stream, &bytes);
    }
    let (counts, ledger) = (link.log().counts, reference.packet_ledger());
    assert!(counts.header_corrupted > 10);
    let broken = ledger.malformed[3];
    assert!(broken > 0 && broken <= counts.header_corrupted);
    assert_eq!(ledger.placed + ledger.duplicate + broken, 384);
    // Only the frame number: most land outside the run.
    let model = FaultModel { header_bytes: 0..8, ..model };
    let mut link = FaultLink::new(&model);
    let mut reference = Reference::new(RunLayout::stacked(&packetiser, 3));
    send(&packetiser, &images, &mut link).iter().for_each(|(stream, bytes)| _ = reference.receive(*stream, bytes));
    let ledger = reference.packet_ledger();
    assert!(ledger.foreign > 10 && ledger.foreign <= link.log().counts.header_corrupted);
    assert_eq!(ledger.placed + ledger.duplicate + ledger.foreign, 384);
}

#[test]
fn flipped_bits_never_undo_each_other() {
    let packetiser = packetiser(DetectorKind::Jungfrau { interfaces: 1 }, 1);
    let images = random_images(&packetiser, 8);
    // Up to 8 flips among the 8 bits of the detector type: every damaged copy must show.
    let mut link = FaultLink::new(&FaultModel { corrupt_header: 0.5, header_bytes: 46..47, ..FaultModel::default() });
    let mut reference = Reference::new(RunLayout::stacked(&packetiser, 8));
    send(&packetiser, &images, &mut link).iter().for_each(|(stream, bytes)| _ = reference.receive(*stream, bytes));
    let damaged = link.log().counts.header_corrupted;
    assert!(damaged > 400, "{damaged}");
    assert_eq!(reference.packet_ledger().malformed, [0, 0, damaged, 0]);
}

#[test]
fn the_link_never_holds_more_than_its_bound() {
    let packetiser = packetiser(DetectorKind::Jungfrau { interfaces: 1 }, 1);
    let tile = vec![0; packetiser.layout().tile_bytes];
    let mut link = FaultLink::new(&FaultModel { duplicate: 1.0, reorder: 1.0, reorder_packets_max: 5, ..FaultModel::default() });
    let mut out = vec![0; 8240];
    let mut held_max = 0;
    for packet in 0..128 {
        packetiser.write_packet(0, 1, packet, &tile, &mut out);
        link.push(Datagram { stream: 0, bytes: &out, is_other_sender: false }, &mut |_| {});
        let counts = link.log().counts;
        held_max = held_max.max(counts.sent + counts.duplicated - counts.delivered);
    }
    assert_eq!(held_max, 5);
    link.flush(&mut |_| {});
    assert_eq!(link.log().counts.delivered, 256);
}

#[test]
fn a_restarted_counter_sends_old_numbers_again() {
    let packetiser = packetiser(DetectorKind::Jungfrau { interfaces: 2 }, 1);
    let images = random_images(&packetiser, 5);
    let mut link = FaultLink::new(&FaultModel { restart_at_image: Some(3), log_packets: true, ..FaultModel::default() });
    let mut reference = Reference::new(RunLayout::stacked(&packetiser, 5));
    let delivered = send(&packetiser, &images, &mut link);
    let frames: Vec<u8> = delivered.chunks(128).map(|image| image[0].1[0]).collect();
    assert_eq!(frames, [1, 2, 3, 1, 2]);
    delivered.iter().for_each(|(stream, bytes)| _ = reference.receive(*stream, bytes));
    assert_eq!(link.log().counts.renumbered, 256);
    assert_eq!((link.log().placeable(), reference.packet_ledger().placed, reference.packet_ledger().duplicate), (384, 384, 256));
    let ledger = reference.image_ledger();
    assert_eq!((ledger.complete, ledger.lost, ledger.packets_missing), (3, 2, 256));
    assert_eq!(delivered[0].1[HEADER_BYTES..], images[0][0][..8192]);
}

/// Little-endian `f32` values of a file of the real module.
fn plane(folder: &Path, name: &str) -> Vec<f32> {
    let bytes = std::fs::read(folder.join(name)).unwrap();
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

#[test]
fn the_conversion_equals_that_of_psi_on_a_real_module() {
    let Some(folder) = skip::data("jungfrau-lyso") else { return };
    let gains = plane(&folder, "gain_adu_per_kev.f32");
    let pedestals: Vec<f32> = (0..3).flat_map(|g| plane(&folder, &format!("pedestal_g{g}.f32"))).collect();
    let constants = JungfrauConstants::new(&pedestals, &gains, 12.4);
    let masked = constants.factors[0].iter().filter(|f| f.is_nan()).count();
    assert!((1..200).contains(&masked), "{masked} masked pixels");
    let mut compared = [0; 3];
    for frame in 0..3 {
        let words = plane(&folder, &format!("raw_{frame:02}.u16"));
        let words = words.iter().flat_map(|w| [w.to_bits() as u16, (w.to_bits() >> 16) as u16]);
        let photons = plane(&folder, &format!("photons_{frame:02}.f32"));
        for (pixel, (word, theirs)) in words.zip(photons).enumerate() {
            let ours: f32 = convert_word(word, pixel, &constants);
            let stage = [0, 1, 3, 2][usize::from(word >> 14)];
            if constants.factors[0][pixel].is_nan() {
                assert!(ours.is_nan());
            } else if word == 0xC000 {
                assert_eq!((ours, theirs), (f32::INFINITY, 32678.0));
            } else {
                assert!((ours - theirs).abs() < [1e-5, 1e-3, 1e-3][stage], "frame {frame}, pixel {pixel}: {ours} for {theirs}");
                compared[stage] += 1;
            }
        }
    }
    assert!(compared[0] > 1_500_000 && compared[1] > 1000 && compared[2] > 50, "{compared:?}");
}
