//! Compares packet headers with the calibration. Module ids: if modules were exchanged or reordered, pixels would be
//! converted with the constants of other modules. Storage cells: images of a cell without pedestals are masked as a
//! whole, which must be reported. High gain: words of HG0 converted with the constants of G0, or the other way round,
//! are wrong by a factor.

use konkordia_core::image::CommittedImage;
use konkordia_core::ports::{Sink, SinkError};
use konkordia_core::series::{SeriesEnd, SeriesStart};
use konkordia_core::sls_header::SlsHeader;
use std::sync::Arc;

/// The packet headers that a calibration expects.
pub struct Expected {
    /// Module ids by module; `None` where the id is not known.
    pub ids: Vec<Option<u16>>,
    /// Bit n: storage cell n has pedestals.
    pub cells: u16,
    /// Whether the constants of the first stage are those of HG0; `None` without constants.
    pub high_gain: Option<bool>,
}

/// Checks headers before it passes images to a sink: the id in the first packets of each module, and storage cell and
/// high gain of each image. Other modules and the other gain mode end the run.
struct Guard {
    inner: Box<dyn Sink>,
    ids: Vec<Option<u16>>,
    tiles_per_module: usize,
    /// Bit n: cell n has pedestals, or it was reported that it has none.
    cells: u16,
    high_gain: Option<bool>,
    note: Note,
}

/// Gets remarks for people.
pub type Note = Box<dyn FnMut(&str) + Send>;

/// Puts the checks before `sink`. Returns `sink` itself if there is nothing to check.
pub fn wrap(sink: Box<dyn Sink>, expected: Expected, streams: usize, note: Note) -> Box<dyn Sink> {
    let Expected { ids, cells, high_gain } = expected;
    let has_ids = ids.iter().any(Option::is_some) && streams.is_multiple_of(ids.len());
    if !has_ids && cells == u16::MAX && high_gain.is_none() {
        return sink;
    }
    let ids = if has_ids { ids } else { vec![None] };
    Box::new(Guard { inner: sink, tiles_per_module: streams.max(1) / ids.len(), ids, cells, high_gain, note })
}

fn other_id(module: usize, expected: u16, found: u16, seen: &str) -> SinkError {
    SinkError {
        what: format!("the calibration was taken with other modules (found in {seen})"),
        why: format!("module {module} sends id {found}, the calibration was taken from id {expected}"),
        fix: "give the calibration of this detector, or connect the modules in the order in which it was taken".into(),
    }
}

/// The first difference between the module ids that a calibration expects and those of the tiles of an input. An id of
/// 0 in the input means that it is not known.
pub fn other_module(expected: &[Option<u16>], found: &[u16]) -> Option<SinkError> {
    if expected.is_empty() || !found.len().is_multiple_of(expected.len()) {
        return None;
    }
    let tiles_per_module = (found.len() / expected.len()).max(1);
    found.iter().enumerate().filter(|(_, id)| **id != 0).find_map(|(tile, found)| {
        let module = tile / tiles_per_module;
        expected[module].filter(|id| id != found).map(|id| other_id(module, id, *found, "the input"))
    })
}

/// The error if the DAQ info `info`, found in `seen`, belongs to the other gain mode than the constants. A header with
/// no bit set gives no information, because files may have no headers.
pub fn other_gain(high_gain: bool, info: u32, seen: &str) -> Option<SinkError> {
    if info == 0 || high_gain == (info & 1 == 1) {
        return None;
    }
    let (found, used, fix) = if high_gain {
        ("G0", "HG0", "remove high_gain = true from [calibration], or set the detector to high gain")
    } else {
        ("HG0", "G0", "set high_gain = true in [calibration], or take the detector out of high gain")
    };
    Some(SinkError {
        what: format!("the calibration is that of {used}, but the detector is set to {found} (found in {seen})"),
        why: format!(
            "its header says {found} (DAQ info 0x{info:08X}): all pixels without gain bits would be wrong by the ratio of the gains"
        ),
        fix: fix.into(),
    })
}

impl Guard {
    fn check_gain(&self, image: &CommittedImage) -> Option<SinkError> {
        let info = SlsHeader::from(image.packets.as_ref()?.header()?).daq_info;
        other_gain(self.high_gain?, info, &format!("image {}", image.number))
    }

    /// The note about an image of a cell without pedestals, once for each cell.
    fn unknown_cell(&mut self, image: &CommittedImage) -> Option<String> {
        let header = SlsHeader::from(image.packets.as_ref()?.header()?);
        let cell = header.daq_info >> 8 & 15;
        if self.cells >> cell & 1 == 1 {
            return None;
        }
        let known: Vec<String> = (0..16).filter(|c| self.cells >> c & 1 == 1).map(|c| c.to_string()).collect();
        self.cells |= 1 << cell;
        Some(format!(
            "image {} is of storage cell {cell}, for which the calibration has no pedestals (it has those of {}): all pixels of such \
             images are masked; take darks of this cell, or give a calibration that has it",
            image.number,
            known.join(", ")
        ))
    }
}

impl Sink for Guard {
    fn start(&mut self, start: &Arc<SeriesStart>) -> Result<(), SinkError> {
        self.inner.start(start)
    }

    fn image(&mut self, image: &Arc<CommittedImage>) -> Result<(), SinkError> {
        let tiles = image.packets.iter().flat_map(|packets| &packets.tiles);
        for (tile, record) in tiles.enumerate().filter(|(_, t)| t.packets > 0) {
            let module = tile / self.tiles_per_module;
            // Each module is compared once, with its first packets.
            match self.ids[module].take() {
                Some(id) if id != record.header.port.module_id => {
                    return Err(other_id(module, id, record.header.port.module_id, &format!("image {}", image.number)));
                }
                _ => {}
            }
        }
        if let Some(error) = self.check_gain(image) {
            return Err(error);
        }
        if let Some(note) = self.unknown_cell(image) {
            (self.note)(&note);
        }
        self.inner.image(image)
    }

    fn end(&mut self, end: &Arc<SeriesEnd>) -> Result<(), SinkError> {
        self.inner.end(end)
    }

    fn tick(&mut self, now_ns: u64) -> Result<(), SinkError> {
        self.inner.tick(now_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use konkordia_core::image::{Packets, TileRecord};
    use konkordia_core::ledger::ImageStatus;
    use std::sync::atomic::{AtomicU64, Ordering};

    struct Count(Arc<AtomicU64>);

    impl Sink for Count {
        fn image(&mut self, _: &Arc<CommittedImage>) -> Result<(), SinkError> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
    }

    fn tile(id: u16, packets: u16) -> TileRecord {
        TileRecord { header: SlsHeader { module_id: id, ..SlsHeader::default() }.into(), packets, ..TileRecord::default() }
    }

    fn image(number: u64, tiles: &[TileRecord]) -> CommittedImage {
        let packets = Some(Packets { tiles: tiles.to_vec(), ..Packets::default() });
        CommittedImage { status: ImageStatus::Partial, packets, ..CommittedImage::lost(number) }
    }

    fn write(sink: &mut dyn Sink, tiles: &[TileRecord]) -> Result<(), SinkError> {
        sink.image(&Arc::new(image(4, tiles)))
    }

    #[test]
    fn other_modules_are_refused_when_their_first_packet_comes() {
        let written = Arc::new(AtomicU64::new(0));
        let expected = |ids: &[Option<u16>]| Expected { ids: ids.to_vec(), cells: u16::MAX, high_gain: None };
        let mut sink = wrap(Box::new(Count(Arc::clone(&written))), expected(&[Some(40), None, Some(42)]), 6, Box::new(|_| ()));
        let good = [tile(40, 0), tile(40, 9), tile(7, 1), tile(7, 1), tile(0, 0), tile(0, 0)];
        write(&mut *sink, &good).unwrap();
        let mut bad = good;
        bad[5] = tile(41, 1);
        let error = write(&mut *sink, &bad).unwrap_err();
        assert!(error.why.contains("module 2 sends id 41, the calibration was taken from id 42"), "{error}");
        assert_eq!(written.load(Ordering::Relaxed), 1);
        // Nothing to compare with.
        for ids in [vec![], vec![None, None]] {
            write(&mut *wrap(Box::new(Count(Arc::clone(&written))), expected(&ids), 2, Box::new(|_| ())), &bad[4..]).unwrap();
        }
        assert_eq!(written.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn a_storage_cell_without_pedestals_is_reported_once() {
        let inner = Box::new(Count(Arc::default()));
        let mut guard = Guard {
            inner,
            ids: vec![None],
            tiles_per_module: 2,
            cells: 1 << 3 | 1 << 15,
            high_gain: None,
            note: Box::new(|_| ()),
        };
        let mut note_of = |cell: u32, packets: u16| {
            let header = SlsHeader { daq_info: cell << 8 | 1 << 31, ..SlsHeader::default() }.into();
            let tiles = [TileRecord::default(), TileRecord { header, packets, ..TileRecord::default() }];
            guard.unknown_cell(&image(7, &tiles))
        };
        assert_eq!((note_of(3, 1), note_of(15, 1), note_of(0, 0)), (None, None, None));
        assert!(
            note_of(0, 1).is_some_and(|note| note.contains("image 7 is of storage cell 0") && note.contains("those of 3, 15)"))
        );
        assert_eq!(note_of(0, 1), None);
    }

    #[test]
    fn the_other_gain_mode_ends_the_run() {
        for (high_gain, info, part) in
            [(false, 0x301, "is set to HG0"), (true, 0x300, "is set to G0"), (true, 0x301, ""), (true, 0, ""), (false, 0x300, "")]
        {
            let written = Arc::new(AtomicU64::new(0));
            let expected = Expected { ids: Vec::new(), cells: u16::MAX, high_gain: Some(high_gain) };
            let mut sink = wrap(Box::new(Count(Arc::clone(&written))), expected, 2, Box::new(|_| ()));
            let header = SlsHeader { daq_info: info, ..SlsHeader::default() }.into();
            // A tile without packets gives no information.
            let tiles = [tile(0, 0), TileRecord { header, packets: 1, ..TileRecord::default() }];
            match write(&mut *sink, &tiles) {
                Err(error) => assert!(!part.is_empty() && error.what.contains(part) && error.what.contains("image 4"), "{error}"),
                Ok(()) => assert!(part.is_empty(), "{high_gain} {info:x}"),
            }
            assert_eq!(written.load(Ordering::Relaxed), u64::from(part.is_empty()));
        }
    }

    #[test]
    fn ids_of_an_input_are_compared_by_module() {
        let expected = [Some(40), None, Some(42)];
        assert!(other_module(&expected, &[40, 40, 7, 7, 0, 42]).is_none());
        let error = other_module(&expected, &[40, 40, 7, 7, 0, 41]).unwrap();
        assert!(error.why.contains("module 2 sends id 41") && error.what.contains("the input"), "{error}");
        assert!(other_module(&[], &[1, 2]).is_none() && other_module(&[Some(1)], &[0, 0]).is_none());
    }
}
