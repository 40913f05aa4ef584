//! Compares the headers of the packets with the calibration. Module ids: a detector whose modules were exchanged or reordered would otherwise be
//! converted with the constants of other modules. Storage cells: images of a cell without pedestals are masked as a whole, which must be said. High
//! gain: words of HG0 with the constants of G0, or the other way round, are wrong by a factor.

use crate::say;
use konkordia_core::ports::{CommittedImage, Sink, SinkError};

/// What a calibration expects of the headers.
pub struct Expected {
    /// By module; `None` where it is not known.
    pub ids: Vec<Option<u16>>,
    /// Bit n: storage cell n has pedestals.
    pub cells: u16,
    /// Whether the constants of the first stage are those of HG0; `None` without constants.
    pub high_gain: Option<bool>,
}

/// A sink before which the ids of each module's first packet are compared, once, and storage cell and high gain of each image.
struct Guard {
    inner: Box<dyn Sink>,
    ids: Vec<Option<u16>>,
    tiles_per_module: usize,
    /// Bit n: cell n has pedestals, or was told to have none.
    cells: u16,
    /// `None` as soon as a difference was told.
    high_gain: Option<bool>,
}

/// Puts the comparison before `sink`; nothing changes where nothing is expected.
pub fn wrap(sink: Box<dyn Sink>, expected: Expected, streams: usize) -> Box<dyn Sink> {
    let Expected { ids, cells, high_gain } = expected;
    let has_ids = ids.iter().any(Option::is_some) && streams.is_multiple_of(ids.len());
    if !has_ids && cells == u16::MAX && high_gain.is_none() {
        return sink;
    }
    let ids = if has_ids { ids } else { vec![None] };
    Box::new(Guard { inner: sink, tiles_per_module: streams.max(1) / ids.len(), ids, cells, high_gain })
}

impl Guard {
    /// What to say of the first image of the other gain mode. A header without any bit says nothing: files may have none.
    fn other_gain(&mut self, image: &CommittedImage<'_>) -> Option<String> {
        let info = image.tiles.iter().find(|t| t.packets > 0)?.header.daq_info;
        let expected = self.high_gain.filter(|high| info != 0 && *high != (info & 1 == 1))?;
        self.high_gain = None;
        let (found, used, fix) = if expected {
            ("G0", "HG0", "remove high_gain = true from [calibration]")
        } else {
            ("HG0", "G0", "set high_gain = true in [calibration]")
        };
        Some(format!(
            "warning: the header of image {} says that the detector is set to {found}, but the calibration in use is that of {used}: all pixels \
             without gain bits are wrong by the ratio of the gains; {fix}, or set the detector right",
            image.image
        ))
    }

    /// What to say of an image of a cell without pedestals, once for each cell.
    fn unknown_cell(&mut self, image: &CommittedImage<'_>) -> Option<String> {
        let header = image.tiles.iter().find(|t| t.packets > 0)?.header;
        let cell = header.daq_info >> 8 & 15;
        if self.cells >> cell & 1 == 1 {
            return None;
        }
        let known: Vec<String> = (0..16).filter(|c| self.cells >> c & 1 == 1).map(|c| c.to_string()).collect();
        self.cells |= 1 << cell;
        Some(format!(
            "note: image {} is of storage cell {cell}, for which the calibration has no pedestals (it has those of {}): all pixels of such \
             images are masked; take darks of this cell, or give a calibration that has it",
            image.image,
            known.join(", ")
        ))
    }
}

impl Sink for Guard {
    fn write(&mut self, image: &CommittedImage<'_>) -> Result<(), SinkError> {
        for (tile, record) in image.tiles.iter().enumerate().filter(|(_, t)| t.packets > 0) {
            let module = tile / self.tiles_per_module;
            // Each module is compared with its first packets; then the id is not asked again.
            match self.ids[module].take() {
                Some(id) if id != record.header.module_id => {
                    return Err(SinkError {
                        what: format!("the calibration is of other modules (seen in image {})", image.image),
                        why: format!(
                            "module {module} sends id {}, the calibration was taken from id {id}",
                            record.header.module_id
                        ),
                        fix: "give the calibration of this detector, or connect the modules in the order in which it was taken"
                            .into(),
                    });
                }
                _ => {}
            }
        }
        for note in [self.unknown_cell(image), self.other_gain(image)].into_iter().flatten() {
            say::to_stderr(&note);
        }
        self.inner.write(image)
    }

    fn tick(&mut self, now_ns: u64) -> Result<(), SinkError> {
        self.inner.tick(now_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use konkordia_core::ledger::ImageStatus;
    use konkordia_core::ports::{FrameHeader, ImageHead, TileRecord};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    struct Count(Arc<AtomicU64>);

    impl Sink for Count {
        fn write(&mut self, _: &CommittedImage<'_>) -> Result<(), SinkError> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
        fn tick(&mut self, _: u64) -> Result<(), SinkError> {
            Ok(())
        }
    }

    fn tile(id: u16, packets: u16) -> TileRecord {
        TileRecord { header: FrameHeader { module_id: id, ..FrameHeader::default() }, packets, ..TileRecord::default() }
    }

    fn write(sink: &mut dyn Sink, tiles: &[TileRecord]) -> Result<(), SinkError> {
        let status = ImageStatus::Partial;
        sink.write(&CommittedImage { image: 4, status, head: ImageHead::default(), tiles, strips: &[], pedestals: &[] })
    }

    #[test]
    fn other_modules_are_refused_when_their_first_packet_comes() {
        let written = Arc::new(AtomicU64::new(0));
        let expected = |ids: &[Option<u16>]| Expected { ids: ids.to_vec(), cells: u16::MAX, high_gain: None };
        let mut sink = wrap(Box::new(Count(Arc::clone(&written))), expected(&[Some(40), None, Some(42)]), 6);
        let good = [tile(40, 0), tile(40, 9), tile(7, 1), tile(7, 1), tile(0, 0), tile(0, 0)];
        write(&mut *sink, &good).unwrap();
        let mut bad = good;
        bad[5] = tile(41, 1);
        let error = write(&mut *sink, &bad).unwrap_err();
        assert!(error.why.contains("module 2 sends id 41, the calibration was taken from id 42"), "{error}");
        assert_eq!(written.load(Ordering::Relaxed), 1);
        // Nothing to compare with.
        for ids in [vec![], vec![None, None]] {
            write(&mut *wrap(Box::new(Count(Arc::clone(&written))), expected(&ids), 2), &bad[4..]).unwrap();
        }
        assert_eq!(written.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn a_storage_cell_without_pedestals_is_told_once() {
        let inner = Box::new(Count(Arc::default()));
        let mut guard = Guard { inner, ids: vec![None], tiles_per_module: 2, cells: 1 << 3 | 1 << 15, high_gain: None };
        let mut said = |cell: u32, packets: u16| {
            let header = FrameHeader { daq_info: cell << 8 | 1 << 31, ..FrameHeader::default() };
            let tiles = [TileRecord::default(), TileRecord { header, packets, ..TileRecord::default() }];
            let (status, head) = (ImageStatus::Partial, ImageHead::default());
            guard.unknown_cell(&CommittedImage { image: 7, status, head, tiles: &tiles, strips: &[], pedestals: &[] })
        };
        assert_eq!((said(3, 1), said(15, 1), said(0, 0)), (None, None, None));
        assert!(said(0, 1).is_some_and(|note| note.contains("image 7 is of storage cell 0") && note.contains("those of 3, 15)")));
        assert_eq!(said(0, 1), None);
    }

    #[test]
    fn words_of_the_other_gain_mode_are_told_once() {
        for (high_gain, info, part) in
            [(false, 0x301, "set to HG0"), (true, 0x300, "set to G0"), (true, 0x301, ""), (true, 0, "")]
        {
            let inner = Box::new(Count(Arc::default()));
            let mut guard = Guard { inner, ids: vec![None], tiles_per_module: 1, cells: u16::MAX, high_gain: Some(high_gain) };
            let header = FrameHeader { daq_info: info, ..FrameHeader::default() };
            let tiles = [TileRecord { header, packets: 1, ..TileRecord::default() }];
            let (status, head) = (ImageStatus::Partial, ImageHead::default());
            let image = CommittedImage { image: 7, status, head, tiles: &tiles, strips: &[], pedestals: &[] };
            let said = guard.other_gain(&image);
            assert_eq!(said.is_some(), !part.is_empty());
            assert!(said.is_none_or(|note| note.contains(part)) && guard.other_gain(&image).is_none());
        }
    }
}
