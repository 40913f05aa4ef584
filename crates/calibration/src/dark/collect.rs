//! Sorts dark frames by storage cell and gain stage, and adds each to the sums of its cell and stage. Refuses frames
//! without a clear cell or stage.

use super::light::Samples;
use konkordia_core::image::TileRecord;
use konkordia_core::sls_header::SlsHeader;
use konkordia_kernels::pedestal::{PedestalAccumulator, PedestalPlanes};
use konkordia_sinks::hdf5::calibration::{GainStage, MODULE_PIXELS};
use std::collections::BTreeMap;

/// Bits of the DAQ info (docs/protocols.md 1.4).
const HIGH_GAIN: u32 = 1;
const FORCED_G1: u32 = 1 << 1 | 1 << 12;
const FORCED_G2: u32 = 1 << 2 | 1 << 13;

/// Why a frame was not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// Its words or its header belong to this stage, not to the one asked for.
    OtherStage(GainStage),
    /// No stage has more than half of its words.
    NoStage,
    /// Its header names another stage than its words.
    Contradiction,
    /// Its modules name different storage cells.
    MixedCells,
    /// None of its packets arrived.
    Empty,
}

impl Refusal {
    /// In words, for people.
    pub fn words(self) -> String {
        match self {
            Self::OtherStage(stage) => format!("in stage {}", stage.name().to_uppercase()),
            Self::NoStage => "with words of several stages".into(),
            Self::Contradiction => "whose header names another stage than their words".into(),
            Self::MixedCells => "whose modules name different storage cells".into(),
            Self::Empty => "of which no packet arrived".into(),
        }
    }
}

/// Sums of one storage cell and stage.
pub struct Slot {
    accumulator: PedestalAccumulator,
    /// A few pixels of every frame.
    pub samples: Samples,
}

impl Slot {
    /// Frames that were added.
    pub fn frames(&self) -> u64 {
        self.accumulator.frames()
    }

    /// Mean, noise and counts, and the samples.
    pub fn finish(self) -> (PedestalPlanes, Samples) {
        (self.accumulator.finish(), self.samples)
    }
}

/// All sums of a dark run.
pub struct Collector {
    pixels: usize,
    wanted: Option<GainStage>,
    skip: u64,
    /// By storage cell and stage.
    pub slots: BTreeMap<(u8, GainStage), Slot>,
    /// Frames that were not used.
    pub refused: BTreeMap<Refusal, u64>,
    /// From the headers, by module; `None` where there was no header.
    pub module_ids: Vec<Option<u16>>,
}

/// Words of a frame by kind.
#[derive(Default)]
struct Census {
    stages: [u64; 3],
    missing: u64,
}

fn census(raw: &[u16]) -> Census {
    let mut census = Census::default();
    // Counts of 32 bits for each piece, so that the compiler can vectorise the loop.
    for part in raw.chunks(1 << 16) {
        let (mut g0, mut g1, mut codes_11, mut missing) = (0u32, 0u32, 0u32, 0u32);
        for word in part {
            g0 += u32::from(word >> 14 == 0);
            g1 += u32::from(word >> 14 == 1);
            codes_11 += u32::from(word >> 14 == 3);
            missing += u32::from(*word == 0xFFFF);
        }
        for (sum, n) in census.stages.iter_mut().zip([g0, g1, codes_11 - missing]) {
            *sum += u64::from(n);
        }
        census.missing += u64::from(missing);
    }
    census
}

impl Collector {
    /// For frames of `modules` modules. The first `skip` frames are not used. With `wanted`, only frames of that stage
    /// are used.
    pub fn new(modules: usize, wanted: Option<GainStage>, skip: u64) -> Self {
        Self {
            pixels: modules * MODULE_PIXELS,
            wanted,
            skip,
            slots: BTreeMap::new(),
            refused: BTreeMap::new(),
            module_ids: vec![None; modules],
        }
    }

    /// Frames that were used.
    pub fn frames(&self) -> u64 {
        self.slots.values().map(|s| s.accumulator.frames()).sum()
    }

    /// Adds a frame: the words of all modules, 0xFFFF where no packet arrived, and one record per tile.
    ///
    /// # Panics
    /// When the frame has another size than the detector.
    pub fn add(&mut self, raw: &[u16], tiles: &[TileRecord]) {
        assert_eq!(raw.len(), self.pixels, "a frame of all modules");
        self.learn_ids(tiles);
        if self.skip > 0 {
            self.skip -= 1;
            return;
        }
        match self.place(raw, tiles) {
            Err(refusal) => *self.refused.entry(refusal).or_default() += 1,
            Ok((cell, stage)) => {
                let pixels = self.pixels;
                let slot = self.slots.entry((cell, stage)).or_insert_with(|| Slot {
                    accumulator: PedestalAccumulator::new(pixels, stage.of_words() as u8),
                    samples: Samples::new(pixels / MODULE_PIXELS, stage),
                });
                slot.accumulator.add(raw);
                slot.samples.add(raw);
            }
        }
    }

    fn learn_ids(&mut self, tiles: &[TileRecord]) {
        let per_module = (tiles.len() / self.module_ids.len()).max(1);
        for (tile, record) in tiles.iter().enumerate().filter(|(_, t)| t.packets > 0) {
            self.module_ids[tile / per_module].get_or_insert(record.header.port.module_id);
        }
    }

    /// Storage cell and stage of a frame.
    fn place(&self, raw: &[u16], tiles: &[TileRecord]) -> Result<(u8, GainStage), Refusal> {
        let mut infos = tiles.iter().filter(|t| t.packets > 0).map(|t| SlsHeader::from(t.header).daq_info);
        let info = infos.next().ok_or(Refusal::Empty)?;
        let cell = |info: u32| (info >> 8 & 15) as u8;
        if infos.any(|other| cell(other) != cell(info)) {
            return Err(Refusal::MixedCells);
        }
        Ok((cell(info), self.stage(info, &census(raw))?))
    }

    /// The stage of a frame, from its header and its words. A header with no bit set gives no information, because
    /// files may have no headers.
    fn stage(&self, info: u32, census: &Census) -> Result<GainStage, Refusal> {
        let forced = match (info & FORCED_G1 != 0, info & FORCED_G2 != 0) {
            (true, false) => Some(GainStage::G1),
            (false, true) => Some(GainStage::G2),
            _ => None,
        };
        let all: u64 = self.pixels as u64 - census.missing;
        let most = (0..3).find(|s| 2 * census.stages[*s] > all).ok_or(Refusal::NoStage)?;
        let high = if info == 0 { self.wanted == Some(GainStage::Hg0) } else { info & HIGH_GAIN != 0 };
        let found = [if high { GainStage::Hg0 } else { GainStage::G0 }, GainStage::G1, GainStage::G2][most];
        match (self.wanted, forced) {
            (Some(wanted), _) if wanted != found => Err(Refusal::OtherStage(found)),
            (_, Some(forced)) if forced != found => Err(Refusal::Contradiction),
            _ => Ok(found),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tile(daq_info: u32, module_id: u16) -> TileRecord {
        TileRecord {
            header: SlsHeader { daq_info, module_id, ..SlsHeader::default() }.into(),
            packets: 128,
            ..TileRecord::default()
        }
    }

    #[track_caller]
    fn placed(wanted: Option<GainStage>, word: u16, daq_info: u32) -> Result<(u8, GainStage), Refusal> {
        Collector::new(1, wanted, 0).place(&vec![word; MODULE_PIXELS], &[tile(daq_info, 1)])
    }

    #[test]
    fn frames_go_where_header_and_words_say() {
        use GainStage::{G0, G1, G2, Hg0};
        assert_eq!(placed(None, 3000, 0x320), Ok((3, G0)));
        assert_eq!(placed(None, 3000, 0xF21), Ok((15, Hg0)));
        assert_eq!(placed(None, 0x4000 | 900, 0x320 | 2), Ok((3, G1)));
        assert_eq!(placed(None, 0xC000 | 900, 0x320 | 1 << 13), Ok((3, G2)));
        assert_eq!(placed(None, 0x4000 | 900, 0), Ok((0, G1)));
        assert_eq!(placed(Some(Hg0), 3000, 0), Ok((0, Hg0)), "files without headers");
        assert_eq!(placed(Some(G1), 3000, 2), Err(Refusal::OtherStage(G0)));
        assert_eq!(placed(Some(G0), 3000, 0x21), Err(Refusal::OtherStage(Hg0)));
        assert_eq!(placed(Some(Hg0), 3000, 0x20), Err(Refusal::OtherStage(G0)));
        assert_eq!(placed(Some(G2), 0x4000 | 9, 0), Err(Refusal::OtherStage(G1)));
        assert_eq!(placed(None, 3000, 4), Err(Refusal::Contradiction));
        assert_eq!(placed(None, 0x8000, 0), Err(Refusal::NoStage));
    }

    #[test]
    fn frames_are_counted_and_refused_ones_too() {
        let mut collector = Collector::new(2, Some(GainStage::G0), 1);
        let dark = vec![3000; 2 * MODULE_PIXELS];
        let missing = [vec![3000; MODULE_PIXELS], vec![0xFFFF; MODULE_PIXELS]].concat();
        let nothing = TileRecord::default();
        for (raw, tiles) in [
            (&dark, [tile(0x320, 7), nothing]),
            (&dark, [tile(0x320, 7), tile(0x320, 8)]),
            (&missing, [tile(0x320, 7), nothing]),
            (&dark, [tile(0x320, 7), tile(0x420, 8)]),
            (&dark, [nothing, nothing]),
            (&dark, [tile(0x321, 7), tile(0x321, 8)]),
            (&dark, [tile(0x020, 7), tile(0x020, 8)]),
        ] {
            collector.add(raw, &tiles);
        }
        assert_eq!(collector.module_ids, [Some(7), Some(8)]);
        assert_eq!(collector.frames(), 3);
        assert_eq!(collector.slots.keys().copied().collect::<Vec<_>>(), [(0, GainStage::G0), (3, GainStage::G0)]);
        let expected = [(Refusal::OtherStage(GainStage::Hg0), 1), (Refusal::MixedCells, 1), (Refusal::Empty, 1)];
        assert_eq!(collector.refused, BTreeMap::from(expected));
        let (planes, _) = collector.slots.remove(&(3, GainStage::G0)).unwrap().finish();
        assert_eq!(
            (planes.count[0], planes.count[MODULE_PIXELS], planes.missing[MODULE_PIXELS], planes.mean_adu[0]),
            (2, 1, 1, 3000.0)
        );
    }
}
