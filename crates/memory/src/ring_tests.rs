use super::*;
use konkordia_core::ledger::MissingPolicy;

const PAYLOAD: usize = 64;

fn spec(slots: u64, tiles: usize, workers: usize, sinks: usize) -> RingSpec {
    RingSpec {
        slots,
        tiles,
        tile_bytes: 4 * PAYLOAD,
        payload_bytes: PAYLOAD,
        strip_bytes_max: vec![8 * 4 * tiles; 3],
        workers,
        sinks,
    }
}

impl TileWriter {
    fn refresh_limit(&mut self) -> u64 {
        self.limit = self.shared.limit();
        self.limit
    }
}

/// A payload that says which packet it is.
fn payload(image: u64, tile: usize, packet: u16) -> [u8; PAYLOAD] {
    let mut p = [0; PAYLOAD];
    p[..8].copy_from_slice(&(image << 16 | (tile as u64) << 8 | u64::from(packet)).to_le_bytes());
    p
}

/// Which packets the test places: about one in seven is missing, and every 11th image is wholly lost.
fn arrives(image: u64, tile: usize, packet: u16) -> bool {
    !image.is_multiple_of(11) && !(image * 5 + tile as u64 * 3 + u64::from(packet)).is_multiple_of(7)
}

fn send(mut writer: TileWriter, tile: usize, images: u64) {
    for image in 0..images {
        while writer.refresh_limit() <= image {
            std::thread::yield_now();
        }
        assert!(writer.claim(image));
        let mut opened = false;
        for packet in (0..4).filter(|p| arrives(image, tile, *p)) {
            if !opened {
                writer.open(image, FrameHeader { frame_number: image + 1, ..Default::default() });
                opened = true;
            }
            writer.place(image, packet, &payload(image, tile, packet));
        }
        writer.seal_below(image + 1);
    }
}

fn work(mut worker: Worker, images: u64) {
    let tiles = worker.shared.spec.tiles;
    while worker.next() < images {
        let ready = worker.wait(5, Duration::from_millis(1));
        for image in worker.next()..worker.next() + ready {
            if !worker.is_present(image) {
                continue;
            }
            for strip in worker.strips() {
                worker.pack(image, strip, |w, out| {
                    let mut at = 0;
                    for tile in 0..tiles {
                        let Some((record, bytes)) = w.tile(image, tile) else { continue };
                        for packet in (0..4).filter(|p| record.bitmap.has(*p)) {
                            out[at..at + 8].copy_from_slice(&bytes[usize::from(packet) * PAYLOAD..][..8]);
                            at += 8;
                        }
                    }
                    at
                });
            }
        }
        worker.finish(ready);
    }
}

fn take(mut sink: SinkReader, images: u64, pause: bool) {
    let tiles = sink.shared.spec.tiles;
    while sink.next() < images {
        if !sink.wait(Duration::from_millis(1)) {
            continue;
        }
        if pause && sink.next().is_multiple_of(97) {
            std::thread::sleep(Duration::from_micros(300));
        }
        sink.take(|image, status, records, strips| {
            let expected: Vec<u8> = (0..tiles)
                .flat_map(|t| (0..4).filter(move |p| arrives(image, t, *p)).flat_map(move |p| payload(image, t, p)[..8].to_vec()))
                .collect();
            let placed: u32 = records.iter().map(|r| u32::from(r.packets)).sum();
            assert_eq!(placed as usize * 8, expected.len());
            assert_eq!(status, ImageStatus::of(placed, 4 * tiles as u32, MissingPolicy::Keep));
            let mut seen = 0;
            for strip in strips {
                assert_eq!(strip, expected, "image {image}");
                seen += 1;
            }
            assert_eq!(seen, if placed == 0 { 0 } else { 3 });
        });
    }
}

/// All roles in threads of their own, few slots, slow sinks: no image ever shows a byte of another.
#[test]
fn every_sink_sees_every_image_exactly_as_it_was_placed() {
    for (slots, tiles, workers, sinks) in [(2, 1, 1, 1), (3, 2, 1, 2), (8, 3, 2, 1), (16, 2, 3, 2)] {
        let images = 3000;
        let ring = Ring::new(spec(slots, tiles, workers, sinks)).unwrap();
        let monitor = ring.monitor.clone();
        std::thread::scope(|scope| {
            for (tile, writer) in ring.receivers.into_iter().enumerate() {
                scope.spawn(move || send(writer, tile, images));
            }
            for worker in ring.workers {
                scope.spawn(move || work(worker, images));
            }
            let mut committer = ring.committer;
            scope.spawn(move || {
                while committer.next() < images {
                    if committer.wait(Duration::from_millis(1)) {
                        committer
                            .commit(|placed| ImageStatus::of(placed.map(u32::from).sum(), 4 * tiles as u32, MissingPolicy::Keep));
                    }
                }
            });
            for (i, sink) in ring.sinks.into_iter().enumerate() {
                scope.spawn(move || take(sink, images, i == 0));
            }
        });
        assert_eq!((monitor.received(), monitor.committed(), monitor.written()), (images, images, images));
    }
}

/// Receivers that race for slots of a slow sink: all of them get the same answer for every image.
#[test]
fn a_claim_is_decided_once_for_all_receivers() {
    let (images, tiles) = (5000, 3);
    let mut ring = Ring::new(spec(4, tiles, 1, 1)).unwrap();
    let monitor = &ring.monitor;
    let (worker, committer, sink) = (&mut ring.workers[0], &mut ring.committer, &mut ring.sinks[0]);
    let receive = |mut writer: TileWriter| {
        let answer = |image| {
            // Nobody runs ahead by two rings, where the answer for an old image is no.
            while image >= monitor.received() + 6 {
                std::thread::yield_now();
            }
            let has_slot = writer.claim(image);
            if has_slot {
                writer.open(image, FrameHeader::default());
            }
            writer.seal_below(image + 1);
            has_slot
        };
        (0..images).map(answer).collect::<Vec<bool>>()
    };
    let answers: Vec<Vec<bool>> = std::thread::scope(|scope| {
        let threads: Vec<_> = std::mem::take(&mut ring.receivers).into_iter().map(|w| scope.spawn(move || receive(w))).collect();
        while sink.next() < images {
            let ready = worker.wait(3, Duration::from_micros(50));
            worker.finish(ready);
            while committer.wait(Duration::ZERO) {
                committer.commit(|placed| ImageStatus::of(placed.map(u32::from).sum(), 4 * tiles as u32, MissingPolicy::Keep));
            }
            while sink.wait(Duration::ZERO) {
                sink.take(|_, _, _, _| ());
            }
        }
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    assert!(answers.iter().all(|a| *a == answers[0]), "all receivers agree on every image");
    assert!(answers[0].iter().any(|a| *a), "some images find a slot");
}

#[test]
fn images_without_slot_pass_without_touching_older_ones() {
    let mut ring = Ring::new(spec(2, 1, 1, 1)).unwrap();
    let (writer, worker) = (&mut ring.receivers[0], &mut ring.workers[0]);
    assert_eq!(writer.refresh_limit(), 2);
    for image in 0..2 {
        writer.open(image, FrameHeader { frame_number: image + 10, ..Default::default() });
        writer.place(image, 0, &payload(image, 0, 0));
    }
    // Images 2 and 3 find no slot; all four are sealed.
    writer.seal_below(4);
    assert_eq!(worker.wait(9, Duration::ZERO), 4);
    assert!(worker.is_present(0) && worker.is_present(1) && !worker.is_present(2) && !worker.is_present(3));
    worker.pack(0, 0, |_, out| {
        out[0] = 42;
        1
    });
    worker.finish(4);
    for _ in 0..4 {
        ring.committer.commit(|placed| ImageStatus::of(placed.map(u32::from).sum(), 4, MissingPolicy::Keep));
    }
    let mut states = Vec::new();
    for _ in 0..4 {
        ring.sinks[0].take(|image, status, records, _| states.push((image, status, records[0].header.frame_number)));
    }
    use ImageStatus::{Lost, Partial};
    assert_eq!(states, [(0, Partial, 10), (1, Partial, 11), (2, Lost, 0), (3, Lost, 0)]);
    assert_eq!(ring.receivers[0].refresh_limit(), 6);
}

#[test]
fn rules_that_are_broken_on_purpose_are_caught() {
    let caught = |act: fn(&mut Ring)| {
        let mut ring = Ring::new(spec(2, 1, 2, 1)).unwrap();
        ring.receivers[0].refresh_limit();
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| act(&mut ring))).is_err()
    };
    assert!(caught(|r| r.receivers[0].open(2, FrameHeader::default())), "beyond the limit");
    assert!(caught(|r| r.receivers[0].place(0, 0, &[0; PAYLOAD])), "not opened");
    assert!(caught(|r| {
        r.receivers[0].open(0, FrameHeader::default());
        r.receivers[0].place(0, 4, &[0; PAYLOAD]);
    }));
    assert!(caught(|r| {
        r.receivers[0].seal_below(1);
        r.receivers[0].open(0, FrameHeader::default());
    }));
    assert!(caught(|r| r.workers[0].finish(1)), "nothing received");
    assert!(
        caught(|r| {
            r.receivers[0].open(0, FrameHeader::default());
            r.receivers[0].seal_below(1);
            r.workers[0].tile(0, 1);
        }),
        "a tile that there is not is a tile of the next slot"
    );
    assert!(caught(|r| {
        r.receivers[0].open(0, FrameHeader::default());
        r.receivers[0].seal_below(1);
        r.workers[0].pack(0, 1, |_, _| 0);
    }));
    assert!(caught(|r| {
        r.committer.commit(|_| ImageStatus::Lost);
    }));
}

/// Two streams that are far apart, as when one thread gets no processor: what the first decided long ago still holds for the second.
#[test]
fn a_claim_is_remembered_long_after_the_ring_has_refused_newer_images() {
    let mut ring = Ring::new(spec(4, 2, 1, 1)).unwrap();
    let (fast, slow) = ring.receivers.split_at_mut(1);
    let answers: Vec<bool> = (0..1000).map(|image| fast[0].claim(image)).collect();
    assert_eq!(answers.iter().filter(|a| **a).count(), 4);
    assert_eq!((0..1000).map(|image| slow[0].claim(image)).collect::<Vec<_>>(), answers);
}

#[test]
fn sizes_and_counts_that_overflow_are_refused() {
    let huge = |change: fn(&mut RingSpec)| {
        let mut spec = spec(4, 4, 1, 1);
        change(&mut spec);
        Ring::new(spec).is_err()
    };
    assert!(huge(|s| s.tile_bytes = 1 << 62), "tiles x bytes wraps to 0");
    assert!(huge(|s| s.tile_bytes = usize::MAX & !63), "rounding up wraps");
    assert!(huge(|s| s.strip_bytes_max = vec![usize::MAX, usize::MAX]));
    assert!(huge(|s| s.strip_bytes_max = vec![1 << 33]), "the length of a strip has 32 bits");
    assert!(huge(|s| s.slots = 1 << 62));
    let caught = |act: fn(&mut Ring)| {
        let mut ring = Ring::new(spec(2, 1, 1, 1)).unwrap();
        ring.receivers[0].seal_below(5);
        ring.workers[0].finish(3);
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| act(&mut ring))).is_err()
    };
    assert!(caught(|r| r.workers[0].finish(u64::MAX)), "a cursor must not move down");
    assert!(caught(|r| {
        r.receivers[0].claim(u64::MAX);
    }));
}
