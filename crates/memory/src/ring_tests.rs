use super::*;
use konkordia_core::ledger::{ImageStatus, MissingPolicy};

const PAYLOAD: usize = 64;

fn spec(slots: u64, tiles: usize, workers: usize) -> RingSpec {
    RingSpec {
        slots,
        packed_slots: slots,
        tiles,
        tile_bytes: 4 * PAYLOAD,
        payload_bytes: PAYLOAD,
        strip_bytes_max: vec![8 * 4 * tiles; 3],
        strip_numbers: 2,
        workers,
        frame_readers: 0,
        snapshot: None,
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

/// Commits a frame as an image of its own.
fn commit(committer: &mut Committer) -> ImageStatus {
    let tiles = committer.shared.spec.tiles;
    let records: Vec<TileRecord> = (0..tiles).map(|t| committer.record(t).copied().unwrap_or_default()).collect();
    let placed = records.iter().map(|r| u32::from(r.packets)).sum();
    let status = ImageStatus::of(placed, 4 * tiles as u32, MissingPolicy::Keep);
    let first_frame = committer.next();
    committer.publish(ImageHead { status, first_frame, frames: 1, frames_complete: 0 }, &records);
    committer.pass();
    status
}

/// Images are sums of `sum` frames: each strip lists the packets of all of them.
fn work(mut worker: Worker, images: u64, sum: u64) {
    let tiles = worker.shared.spec.tiles;
    let mut lists = vec![Vec::new(); worker.shared.spec.strip_bytes_max.len()];
    while worker.next() < images * sum {
        let mut ready = worker.wait(5, Duration::from_millis(1));
        while ready > 0 && (worker.next() + ready) / sum > 0 && !worker.has_room((worker.next() + ready) / sum - 1) {
            ready -= 1;
        }
        for frame in worker.next()..worker.next() + ready {
            for strip in worker.strips() {
                for tile in 0..tiles {
                    let Some((record, bytes)) = worker.tile(frame, tile) else { continue };
                    for packet in (0..4).filter(|p| record.bitmap.has(*p)) {
                        lists[strip].extend_from_slice(&bytes[usize::from(packet) * PAYLOAD..][..8]);
                    }
                }
                if (frame + 1).is_multiple_of(sum) {
                    let image = frame / sum;
                    worker.pack(image, strip, |_, out| {
                        out[..lists[strip].len()].copy_from_slice(&lists[strip]);
                        lists[strip].len()
                    });
                    worker.set_numbers(image, strip, &[image << 8 | strip as u64, lists[strip].len() as u64]);
                    if let Some(snapshot) = worker.snapshot(image, strip) {
                        snapshot.fill(image as f32 + strip as f32 / 8.0);
                    }
                    lists[strip].clear();
                }
            }
        }
        worker.finish(ready, (worker.next() + ready) / sum);
    }
}

fn take(mut reader: ImageReader, images: u64, sum: u64) {
    let tiles = reader.shared.spec.tiles;
    while reader.next() < images {
        if !reader.wait(Duration::from_millis(1)) {
            continue;
        }
        if reader.next().is_multiple_of(97) {
            std::thread::sleep(Duration::from_micros(300));
        }
        reader.take(|view| {
            let image = view.image;
            let of_frame = |frame: u64| {
                (0..tiles).flat_map(move |t| {
                    (0..4).filter(move |p| arrives(frame, t, *p)).flat_map(move |p| payload(frame, t, p)[..8].to_vec())
                })
            };
            let expected: Vec<u8> = (image * sum..(image + 1) * sum).flat_map(of_frame).collect();
            assert_eq!((view.head.first_frame, u64::from(view.head.frames)), (image * sum, sum));
            let last: usize = view.records.iter().map(|r| usize::from(r.packets)).sum();
            assert_eq!(last * 8, of_frame(image * sum + sum - 1).count());
            for strip in 0..view.strips() {
                assert_eq!(view.strip(strip), expected, "image {image}");
                assert_eq!(view.numbers(strip).collect::<Vec<_>>(), [image << 8 | strip as u64, expected.len() as u64]);
                let snapshot = image.is_multiple_of(3).then(|| vec![image as f32 + strip as f32 / 8.0; 5 + strip]);
                assert_eq!(view.snapshot(strip), snapshot.as_deref());
            }
        });
    }
}

/// Reads raw frames in parallel to the workers.
fn copy(mut reader: FrameReader, frames: u64) {
    let tiles = reader.shared.spec.tiles;
    while reader.next() < frames {
        if !reader.wait(Duration::from_millis(1)) {
            continue;
        }
        let frame = reader.next();
        for tile in 0..tiles {
            let packets: Vec<u16> = (0..4).filter(|p| arrives(frame, tile, *p)).collect();
            let found = reader.tile(tile);
            assert_eq!(found.is_some(), !packets.is_empty());
            for packet in packets {
                let bytes = &found.unwrap().1[usize::from(packet) * PAYLOAD..][..PAYLOAD];
                assert_eq!(bytes, payload(frame, tile, packet));
            }
        }
        reader.pass();
    }
}

/// All roles in threads of their own, few slots, a slow reader: no image ever shows a byte of another.
#[test]
fn every_role_sees_exactly_what_was_placed() {
    for (slots, packed_slots, tiles, workers, sum) in [(2, 2, 1, 1, 1), (3, 1, 2, 1, 1), (8, 3, 3, 2, 4), (16, 9, 2, 3, 7)] {
        // Miri is some thousand times slower, but tries other orders of the threads in each run.
        let images = if cfg!(miri) { 40 } else { 2000 } / sum;
        let snapshot = SnapshotSpec { every_images: 3, slots: packed_slots / 3 + 2, strip_pixels: vec![5, 6, 7] };
        let spec = RingSpec {
            packed_slots,
            frame_readers: 1,
            snapshot: Some(snapshot),
            strip_bytes_max: vec![8 * 4 * tiles * sum as usize; 3],
            ..spec(slots, tiles, workers)
        };
        let ring = Ring::new(spec).unwrap();
        let monitor = ring.monitor.clone();
        std::thread::scope(|scope| {
            for (tile, writer) in ring.receivers.into_iter().enumerate() {
                scope.spawn(move || send(writer, tile, images * sum));
            }
            for worker in ring.workers {
                scope.spawn(move || work(worker, images, sum));
            }
            for reader in ring.frame_readers {
                scope.spawn(move || copy(reader, images * sum));
            }
            let mut committer = ring.committer;
            scope.spawn(move || {
                while committer.next() < images * sum {
                    if !committer.wait(Duration::from_millis(1)) {
                        continue;
                    }
                    if (committer.next() + 1).is_multiple_of(sum) {
                        let records: Vec<_> = (0..tiles).map(|t| committer.record(t).copied().unwrap_or_default()).collect();
                        let first_frame = committer.next() + 1 - sum;
                        let head =
                            ImageHead { status: ImageStatus::Partial, first_frame, frames: sum as u32, frames_complete: 0 };
                        committer.publish(head, &records);
                    }
                    committer.pass();
                }
            });
            let reader = ring.image_reader;
            scope.spawn(move || take(reader, images, sum));
        });
        assert_eq!((monitor.received(), monitor.committed()), (images * sum, images * sum));
        assert_eq!((monitor.published(), monitor.taken()), (images, images));
    }
}

/// Receivers that race for slots of a slow reader: all of them get the same answer for every image.
#[test]
fn a_claim_is_decided_once_for_all_receivers() {
    let (images, tiles) = (if cfg!(miri) { 60 } else { 5000 }, 3);
    let mut ring = Ring::new(spec(4, tiles, 1)).unwrap();
    let monitor = &ring.monitor;
    let (worker, committer, reader) = (&mut ring.workers[0], &mut ring.committer, &mut ring.image_reader);
    let receive = |mut writer: TileWriter| {
        let answer = |image| {
            // No receiver runs two rings ahead, where it would get no slot for an old image.
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
        while reader.next() < images {
            let ready = worker.wait(3, Duration::from_micros(50));
            worker.finish(ready, worker.next() + ready);
            while committer.wait(Duration::ZERO) {
                commit(committer);
            }
            while reader.wait(Duration::ZERO) {
                reader.take(|_| ());
            }
        }
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    assert!(answers.iter().all(|a| *a == answers[0]), "all receivers agree on every image");
    assert!(answers[0].iter().any(|a| *a), "some images find a slot");
}

#[test]
fn images_without_slot_pass_without_touching_older_ones() {
    let mut ring = Ring::new(spec(2, 1, 1)).unwrap();
    let (writer, worker) = (&mut ring.receivers[0], &mut ring.workers[0]);
    assert_eq!(writer.refresh_limit(), 2);
    for image in 0..2 {
        writer.open(image, FrameHeader { frame_number: image + 10, ..Default::default() });
        writer.place(image, 0, &payload(image, 0, 0));
    }
    // Images 2 and 3 find no slot; all four are sealed.
    writer.seal_below(4);
    assert_eq!(worker.wait(9, Duration::ZERO), 4);
    assert!([0, 1, 2, 3].map(|frame| worker.tile(frame, 0).is_some()) == [true, true, false, false]);
    assert!(worker.has_room(1) && !worker.has_room(2));
    worker.pack(0, 0, |_, out| {
        out[0] = 42;
        1
    });
    worker.finish(2, 2);
    let mut states = Vec::new();
    let mut pass = |committer: &mut Committer, reader: &mut ImageReader| {
        for _ in 0..2 {
            commit(committer);
            reader.take(|view| {
                states.push((view.image, view.head.status, view.records[0].header.frame_number, view.strip(0).len()))
            });
        }
    };
    pass(&mut ring.committer, &mut ring.image_reader);
    assert!(worker.has_room(3));
    worker.finish(2, 4);
    pass(&mut ring.committer, &mut ring.image_reader);
    use ImageStatus::{Lost, Partial};
    assert_eq!(states, [(0, Partial, 10, 1), (1, Partial, 11, 0), (2, Lost, 0, 1), (3, Lost, 0, 0)]);
    assert_eq!(ring.receivers[0].refresh_limit(), 6);
}

#[test]
fn rules_that_are_broken_on_purpose_are_caught() {
    let caught = |act: fn(&mut Ring)| {
        let mut ring = Ring::new(spec(2, 1, 2)).unwrap();
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
    assert!(caught(|r| r.workers[0].finish(1, 0)), "nothing received");
    assert!(caught(|r| r.workers[0].finish(0, 3)), "no room for a third image");
    assert!(caught(|r| r.workers[0].pack(0, 0, |_, _| 0)), "nobody looked whether there is room");
    assert!(caught(|r| r.committer.publish(ImageHead::default(), &[TileRecord::default()])), "the workers are not there yet");
    assert!(caught(|r| r.image_reader.take(|_| ())), "nothing is committed");
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
        r.workers[0].has_room(0);
        r.workers[0].pack(0, 1, |_, _| 0);
    }));
    assert!(
        caught(|r| {
            r.workers[0].has_room(0);
            r.workers[0].finish(0, 1);
            r.workers[0].pack(0, 0, |_, _| 0);
        }),
        "a finished image"
    );
    assert!(caught(|r| r.committer.pass()));
}

/// Two streams that are far apart, as when one thread gets no processor: what the first decided long ago still holds
/// for the second.
#[test]
fn a_claim_is_remembered_long_after_the_ring_has_refused_newer_images() {
    let mut ring = Ring::new(spec(4, 2, 1)).unwrap();
    let (fast, slow) = ring.receivers.split_at_mut(1);
    let answers: Vec<bool> = (0..1000).map(|image| fast[0].claim(image)).collect();
    assert_eq!(answers.iter().filter(|a| **a).count(), 4);
    assert_eq!((0..1000).map(|image| slow[0].claim(image)).collect::<Vec<_>>(), answers);
}

#[test]
fn sizes_and_counts_that_overflow_are_refused() {
    let huge = |change: fn(&mut RingSpec)| {
        let mut spec = spec(4, 4, 1);
        change(&mut spec);
        Ring::new(spec).is_err()
    };
    assert!(huge(|s| s.tile_bytes = 1 << 62), "tiles x bytes wraps to 0");
    assert!(huge(|s| s.tile_bytes = usize::MAX & !63), "rounding up wraps");
    assert!(huge(|s| s.strip_bytes_max = vec![usize::MAX, usize::MAX]));
    assert!(huge(|s| s.strip_bytes_max = vec![1 << 33]), "the length of a strip has 32 bits");
    assert!(huge(|s| s.slots = 1 << 62));
    let caught = |act: fn(&mut Ring)| {
        let mut ring = Ring::new(spec(2, 1, 1)).unwrap();
        ring.receivers[0].seal_below(5);
        ring.workers[0].finish(3, 0);
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| act(&mut ring))).is_err()
    };
    assert!(caught(|r| r.workers[0].finish(u64::MAX, 0)), "a cursor must not move down");
    assert!(caught(|r| {
        r.receivers[0].claim(u64::MAX);
    }));
}
