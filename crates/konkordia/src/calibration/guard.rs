//! Compares the module ids of the packets with those of the calibration: a detector whose modules were exchanged or reordered would otherwise
//! be converted with the constants of other modules.

use konkordia_core::ports::{CommittedImage, Sink, SinkError};

/// A sink before which the ids of each module's first packet are compared, once.
struct Guard {
    inner: Box<dyn Sink>,
    ids: Vec<Option<u16>>,
    tiles_per_module: usize,
}

/// Puts the comparison before `sink`; nothing changes where the calibration knows no ids (`ids` by module).
pub fn wrap(sink: Box<dyn Sink>, ids: &[Option<u16>], streams: usize) -> Box<dyn Sink> {
    if ids.iter().all(Option::is_none) || !streams.is_multiple_of(ids.len()) {
        return sink;
    }
    Box::new(Guard { inner: sink, ids: ids.to_vec(), tiles_per_module: streams / ids.len() })
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
        let mut sink = wrap(Box::new(Count(Arc::clone(&written))), &[Some(40), None, Some(42)], 6);
        let good = [tile(40, 0), tile(40, 9), tile(7, 1), tile(7, 1), tile(0, 0), tile(0, 0)];
        write(&mut *sink, &good).unwrap();
        let mut bad = good;
        bad[5] = tile(41, 1);
        let error = write(&mut *sink, &bad).unwrap_err();
        assert!(error.why.contains("module 2 sends id 41, the calibration was taken from id 42"), "{error}");
        assert_eq!(written.load(Ordering::Relaxed), 1);
        // Nothing to compare with.
        for ids in [vec![], vec![None, None]] {
            write(&mut *wrap(Box::new(Count(Arc::clone(&written))), &ids, 2), &bad[4..]).unwrap();
        }
        assert_eq!(written.load(Ordering::Relaxed), 3);
    }
}
