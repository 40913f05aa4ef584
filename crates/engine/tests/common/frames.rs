//! Packets of a format through the whole engine without sockets: sent over a faulty link, and everything that the
//! engine makes of them compared with what a correct receiver makes of the same datagrams.

use konkordia_core::affinity::Affinity;
use konkordia_core::geometry::ImageGeometry;
use konkordia_core::image::{CommittedImage, TileRecord};
use konkordia_core::ledger::{ImageStatus, MissingPolicy};
use konkordia_core::pixel::PixelType;
use konkordia_core::plan::{AnalysisPlan, Compression, FirstFrame, Plan, Processing, Recipe};
use konkordia_core::ports::{Sink, SinkError, Source};
use konkordia_core::sender::Senders;
use konkordia_core::setup::{Ports, SetupRules};
use konkordia_engine::run::{self, Consumers, PixelConstants, RunOutcome, RunParts, WorkerKind};
use konkordia_kernels::{ElementSize, Isa, codec};
use konkordia_sim::fault::{Datagram, FaultLink, FaultModel};
use konkordia_sources::memory::MemorySource;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

type Seen = (u64, ImageStatus, Vec<TileRecord>, Vec<u8>);

/// Keeps every image.
#[derive(Clone, Default)]
pub struct Collector(Arc<Mutex<Vec<Seen>>>);

impl Sink for Collector {
    fn image(&mut self, image: &Arc<CommittedImage>) -> Result<(), SinkError> {
        let packets = image.packets.as_ref().expect("a run has packets");
        self.0.lock().unwrap().push((image.number, image.status, packets.tiles.clone(), image.chunk().to_vec()));
        Ok(())
    }
}

/// What a correct receiver reads in a datagram: frame from 0, packet of the tile, and data; `None` if it is damaged.
pub type Packet = Option<(u64, usize, Vec<u8>)>;

/// What a correct receiver makes of the datagrams of one stream: the data of each packet, by frame and number.
#[derive(Default)]
pub struct Reference {
    pub frames: BTreeMap<u64, BTreeMap<usize, Vec<u8>>>,
    received: u64,
    malformed: u64,
}

impl Reference {
    fn take(&mut self, packet: Packet) {
        self.received += 1;
        match packet {
            Some((frame, number, data)) => drop(self.frames.entry(frame).or_default().entry(number).or_insert(data)),
            None => self.malformed += 1,
        }
    }

    /// The numbers of the packets of a frame that came.
    pub fn packets(&self, frame: u64) -> Vec<usize> {
        self.frames.get(&frame).into_iter().flat_map(|packets| packets.keys().copied()).collect()
    }
}

/// The plan of a run of words of 16 bits as they come.
pub fn plan(
    geometry: ImageGeometry,
    recipe: Recipe,
    compression: Compression,
    (first_frame, frames): (u32, u64),
    workers: usize,
) -> Plan {
    Plan {
        geometry,
        recipe,
        pixel: PixelType::Uint16,
        compression,
        processing: Processing::default(),
        frames: Some(frames),
        first_frame: FirstFrame::Number(first_frame.into()),
        missing: MissingPolicy::Keep,
        slots: 16,
        packed_slots: 16,
        lossless_source: false,
        analysis: AnalysisPlan::default(),
        fills_slots: false,
        window_images: 8,
        deadline_ns: 300_000_000,
        stall_timeout_ns: 1_500_000_000,
        start_timeout_ns: 5_000_000_000,
        workers,
        gpu: None,
        affinity: Affinity::default(),
        setup: SetupRules { is_strict: true, ports_per_module: 1, ports: Ports::Unknown, senders: Senders::Any },
    }
}

/// Sends the frames of all tiles over the link: the datagrams of each stream that arrive, and the reference for each.
pub fn send(
    (tiles, frames): (usize, u64),
    faults: &FaultModel,
    datagrams: impl Fn(usize, u64) -> Vec<Vec<u8>>,
    read: impl Fn(&[u8]) -> Packet,
) -> (Vec<Vec<Vec<u8>>>, Vec<Reference>) {
    let mut streams = vec![Vec::new(); tiles];
    let mut references: Vec<Reference> = (0..tiles).map(|_| Reference::default()).collect();
    let mut link = FaultLink::new(faults);
    let mut deliver = |d: Datagram<'_>| {
        references[d.stream].take(read(d.bytes));
        streams[d.stream].push(d.bytes.to_vec());
    };
    for frame in 0..frames {
        let of_frame: Vec<_> = (0..tiles).map(|tile| datagrams(tile, frame)).collect();
        for packet in 0..of_frame[0].len() {
            for (stream, datagrams) in of_frame.iter().enumerate() {
                link.push(Datagram { stream, bytes: &datagrams[packet], is_other_sender: false }, &mut deliver);
            }
        }
    }
    link.flush(&mut deliver);
    (streams, references)
}

pub fn run(plan: &Plan, constants: PixelConstants, streams: Vec<Vec<Vec<u8>>>, sink: Collector) -> RunOutcome {
    let sources = streams.into_iter().map(|datagrams| Box::new(MemorySource::new(datagrams, 50)) as Box<dyn Source>).collect();
    let parts = RunParts {
        plan: Arc::new(plan.clone()),
        sources,
        constants,
        sinks: vec![Box::new(sink)],
        consumers: Consumers::default(),
        frame_sinks: vec![],
        isa: Isa::detect(),
        workers: WorkerKind::default(),
    };
    run::arm(parts).unwrap().run()
}

/// Runs, and compares every count, state, bitmap, header and pixel. `header` compares the header of the record of a
/// frame and tile, of which the packets with these numbers came; `words` gives the pixels of a frame.
pub fn check(
    plan: &Plan,
    constants: PixelConstants,
    (streams, references): (Vec<Vec<Vec<u8>>>, Vec<Reference>),
    header: impl Fn(u64, usize, &TileRecord, &[usize]),
    words: impl Fn(&[Reference], u64) -> Vec<u16>,
) -> (RunOutcome, Vec<ImageStatus>) {
    let collector = Collector::default();
    let outcome = run(plan, constants, streams, collector.clone());
    assert_eq!(outcome.ledger.imbalances(), []);
    for (stream, got) in outcome.ledger.streams.iter().enumerate() {
        let expected = &references[stream];
        let placed: usize = expected.frames.values().map(BTreeMap::len).sum();
        assert_eq!((got.received, got.placed), (expected.received, placed as u64), "stream {stream}");
        assert_eq!(got.malformed.iter().sum::<u64>(), expected.malformed, "stream {stream}");
        assert_eq!((got.late, got.no_slot, got.foreign), (0, 0, 0), "stream {stream}");
    }
    let packets = plan.geometry.format().packets() as usize;
    let FirstFrame::Number(first_frame) = plan.first_frame else { panic!("the first frame is given") };
    let seen = std::mem::take(&mut *collector.0.lock().unwrap());
    assert_eq!(Some(seen.len() as u64), plan.frames);
    for (number, status, records, chunk) in &seen {
        let is_complete = references.iter().all(|reference| reference.packets(*number).len() == packets);
        let is_lost = references.iter().all(|reference| reference.packets(*number).is_empty());
        assert_eq!((*status == ImageStatus::Complete, *status == ImageStatus::Lost), (is_complete, is_lost), "frame {number}");
        for (tile, (record, reference)) in records.iter().zip(&references).enumerate() {
            let came: Vec<usize> = (0..packets).filter(|n| record.bitmap.has(*n as u16)).collect();
            assert_eq!(came, reference.packets(*number), "frame {number}, tile {tile}");
            assert_eq!(record.header.frame_number, if came.is_empty() { 0 } else { first_frame + number });
            header(*number, tile, record, &came);
        }
        if status.has_pixels() {
            let mut pixels = vec![0u16; plan.geometry.pixels()];
            let out = bytemuck::cast_slice_mut(&mut pixels);
            codec::decompress(plan.compression, Isa::Scalar, chunk, ElementSize::Two, out).expect("every chunk decodes");
            assert!(pixels == words(&references, *number), "pixels of frame {number}");
        }
    }
    (outcome, seen.iter().map(|seen| seen.1).collect())
}

/// Loses packets, alone and in bursts, repeats and delays them.
pub fn lossy(seed: u64) -> FaultModel {
    FaultModel {
        seed,
        loss: 0.03,
        burst: 0.004,
        burst_packets_mean: 8.0,
        duplicate: 0.02,
        reorder: 0.05,
        reorder_packets_max: 20,
        ..FaultModel::default()
    }
}
