use super::*;
use konkordia_core::ledger::{ImageStatus, MissingPolicy};

const PAYLOAD: usize = 64;

fn spec(slots: u64, tiles: usize, workers: usize) -> RingSpec {
    RingSpec {
        slots,
        packed_slots: slots,
        tiles,
        tile_bytes: 4 * PAYLOAD,
        sections: 1,
        payload_bytes: PAYLOAD,
        strip_bytes_max: vec![8 * 4 * tiles; 3],
        strip_numbers: 2,
        shares: vec![1; workers],
        frame_readers: 0,
        snapshot: None,
        reserved_pages: false,
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
            assert!(monitor.slots_used() <= 4);
        }
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    assert!(answers.iter().all(|a| *a == answers[0]), "all receivers agree on every image");
    assert!(answers[0].iter().any(|a| *a), "some images find a slot");
    assert_eq!(monitor.slots_used(), 0);
}

/// Frames that found no slot hold none, and a slot is used until everybody has passed its frame.
#[test]
fn slots_in_use_are_those_that_hold_a_frame() {
    let mut ring = Ring::new(RingSpec { frame_readers: 1, ..spec(2, 1, 1) }).unwrap();
    let (writer, monitor) = (&mut ring.receivers[0], &ring.monitor);
    let (committer, copier) = (&mut ring.committer, &mut ring.frame_readers[0]);
    let claim = |writer: &mut TileWriter, frame| {
        let has_slot = writer.claim(frame);
        if has_slot {
            writer.open(frame, FrameHeader::default());
        }
        has_slot
    };
    assert_eq!([0, 1, 2, 3, 4].map(|frame| claim(writer, frame)), [true, true, false, false, false]);
    assert_eq!(monitor.slots_used(), 2);
    writer.seal_below(5);
    ring.workers[0].finish(5, 0);
    committer.pass();
    assert_eq!(monitor.slots_used(), 2, "the raw frame has not been taken yet");
    copier.pass();
    assert_eq!(monitor.slots_used(), 1);
    for _ in 1..5 {
        copier.pass();
        committer.pass();
    }
    assert_eq!(monitor.slots_used(), 0);
    assert!(claim(writer, 5) && claim(writer, 6) && !claim(writer, 7));
    assert_eq!(monitor.slots_used(), 2);
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

/// All ways in which the payloads of a loan can lie in wrong places: another packet of the loan, one that is placed
/// already, another frame, or the same packet or none at all. The loan is of packets 1 to 3 of frame 1; each is a
/// payload of frame 0 to 2, packet 0 to 3, or not reported.
#[test]
fn filled_payloads_reach_their_places_whatever_was_guessed() {
    /// The sender's number of the `guess`th payload: frame, packet.
    fn belongs(guess: usize) -> Option<(u64, u16)> {
        (guess < 12).then_some((guess as u64 / 4, guess as u16 % 4))
    }
    let step = if cfg!(miri) { 53 } else { 1 };
    for guess in (0..13 * 13 * 13 * 4).step_by(step) {
        let guesses = [guess % 13, guess / 13 % 13, guess / 169 % 13].map(belongs);
        let mut order = vec![1, 2, 3];
        if guess / (13 * 13 * 13) % 2 == 1 {
            order.reverse();
        }
        let is_rescued = guess >= 13 * 13 * 13 * 2;
        let mut ring = Ring::new(RingSpec { tile_bytes: 4 * PAYLOAD - 16, ..spec(4, 1, 1) }).unwrap();
        let writer = &mut ring.receivers[0];
        let mut placed = std::collections::BTreeSet::from([(1, 0), (0, 2)]);
        let length = |packet| if packet == 3 { PAYLOAD - 16 } else { PAYLOAD };
        for frame in 0..3 {
            assert!(writer.claim(frame));
            writer.open(frame, FrameHeader::default());
        }
        placed.iter().for_each(|(frame, packet)| writer.place(*frame, *packet, &payload(*frame, 0, *packet)));
        let loan = writer.lend(1, 1..4);
        for (at, (frame, packet)) in guesses.iter().enumerate().filter_map(|(at, to)| to.map(|to| (at, to))) {
            let bytes = length(packet).min(length(at as u16 + 1));
            loan[at * PAYLOAD..][..bytes].copy_from_slice(&payload(frame, 0, packet)[..bytes]);
        }
        for at in order {
            let Some((frame, packet)) = guesses[usize::from(at) - 1] else { continue };
            // A whole payload does not fit into the place of the last packet.
            if length(packet) > length(at) {
                continue;
            }
            let filled = writer.filled(at, length(packet));
            // After the first one, a packet that is not of the loan takes the place of one that is.
            if is_rescued && filled.at != SPARE && placed.len() < 4 && placed.insert((1, 2)) {
                writer.rescue();
                writer.place(1, 2, &payload(1, 0, 2));
                if filled.at == 2 {
                    continue;
                }
            }
            assert_eq!(writer.payload(filled), &payload(frame, 0, packet)[..length(packet)], "{guesses:?}");
            if placed.insert((frame, packet)) {
                writer.settle(frame, packet, filled);
            }
        }
        writer.seal_below(3);
        for frame in 0..3 {
            let (record, bytes) = ring.workers[0].tile(frame, 0).unwrap();
            let arrived: Vec<u16> = (0..4).filter(|packet| record.bitmap.has(*packet)).collect();
            let expected: Vec<u16> = (0..4).filter(|packet| placed.contains(&(frame, *packet))).collect();
            assert_eq!((&arrived, usize::from(record.packets)), (&expected, expected.len()), "{guesses:?}");
            for packet in arrived {
                let place = &bytes[usize::from(packet) * PAYLOAD..][..length(packet)];
                assert_eq!(place, &payload(frame, 0, packet)[..length(packet)], "frame {frame}, packet {packet}: {guesses:?}");
            }
        }
    }
}

/// The slot of a loan was given to a newer frame before its payloads were reported: they are still found.
#[test]
fn a_loan_outlives_its_frame() {
    let mut ring = Ring::new(spec(2, 1, 1)).unwrap();
    let writer = &mut ring.receivers[0];
    assert!(writer.claim(0) && writer.claim(1));
    writer.open(0, FrameHeader::default());
    writer.place(0, 0, &payload(0, 0, 0));
    for (n, place) in writer.lend(1, 0..4).chunks_mut(PAYLOAD).enumerate() {
        // Every packet is the one after the next, of frame 3.
        place.copy_from_slice(&payload(3, 0, (n as u16 + 2) % 4));
    }
    writer.seal_below(3);
    let worker = &mut ring.workers[0];
    assert!(worker.has_room(1));
    worker.finish(2, 2);
    commit(&mut ring.committer);
    commit(&mut ring.committer);
    assert!(writer.claim(3));
    writer.open(3, FrameHeader::default());
    for packet in 0..4 {
        let filled = writer.filled(packet, PAYLOAD);
        writer.settle(3, (packet + 2) % 4, filled);
    }
    writer.seal_below(4);
    let (record, bytes) = ring.workers[0].tile(3, 0).unwrap();
    assert_eq!(record.packets, 4);
    assert!((0..4).all(|packet| bytes[usize::from(packet) * PAYLOAD..][..PAYLOAD] == payload(3, 0, packet)));
}

#[test]
fn loans_that_break_the_rules_are_caught() {
    let caught = |act: fn(&mut TileWriter)| {
        let mut ring = Ring::new(spec(2, 1, 2)).unwrap();
        let writer = &mut ring.receivers[0];
        writer.refresh_limit();
        writer.open(0, FrameHeader::default());
        writer.place(0, 0, &[0; PAYLOAD]);
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| act(writer))).is_err()
    };
    assert!(!caught(|w| assert_eq!(w.lend(0, 1..4).len(), 3 * PAYLOAD)));
    assert!(caught(|w| w.lend(0, 0..4).fill(0)), "packet 0 is placed");
    assert!(caught(|w| w.lend(0, 1..5).fill(0)), "a packet beyond the tile");
    assert!(caught(|w| w.lend(0, 1..1).fill(0)), "no packet");
    assert!(caught(|w| w.lend(2, 0..1).fill(0)), "beyond the limit");
    assert!(
        caught(|w| {
            w.seal_below(1);
            w.lend(0, 1..2).fill(0);
        }),
        "a sealed frame"
    );
    assert!(
        caught(|w| {
            w.lend(0, 1..3);
            w.filled(3, PAYLOAD);
        }),
        "not in the loan"
    );
    assert!(
        caught(|w| {
            w.lend(0, 1..3);
            w.filled(1, PAYLOAD);
            w.filled(1, PAYLOAD);
        }),
        "reported twice"
    );
    assert!(
        caught(|w| {
            w.lend(0, 1..3);
            let filled = w.filled(1, PAYLOAD);
            w.settle(0, 0, filled);
        }),
        "placed twice"
    );
    assert!(
        caught(|w| {
            w.lend(0, 1..3);
            let filled = w.filled(1, PAYLOAD);
            w.settle(1, 0, filled);
        }),
        "not opened"
    );
    assert!(
        caught(|w| {
            w.lend(0, 1..3);
            let filled = w.filled(1, 8);
            w.settle(0, 1, filled);
        }),
        "too short"
    );
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

/// Two sections of two packets each; the last packet of each has 24 bytes.
#[test]
fn packets_of_the_second_section_follow_the_first_section() {
    let Ring { mut receivers, .. } =
        Ring::new(RingSpec { tile_bytes: 2 * (PAYLOAD + 24), sections: 2, ..spec(4, 1, 1) }).unwrap();
    let writer = receivers.remove(0);
    let places: Vec<_> = (0..4).map(|packet| writer.shared.place_of(packet)).collect();
    assert_eq!(places, [0..64, 64..88, 88..152, 152..176]);
    let beyond = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| writer.shared.place_of(4)));
    assert!(beyond.is_err(), "there is no packet 4");
}

#[test]
#[should_panic(expected = "sections are equal parts")]
fn a_tile_is_whole_sections() {
    let _ = Ring::new(RingSpec { sections: 3, ..spec(4, 1, 1) });
}
