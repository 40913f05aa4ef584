use super::*;
use crate::output_queue::{OutputQueueSpec, OutputQueues};
use konkordia_core::ports::ServiceLevel;
use konkordia_core::series::{Ended, SeriesLedger, SeriesStart};
use std::sync::Mutex;

type Log = Arc<Mutex<Vec<String>>>;

struct Picky(Log);

impl Sink for Picky {
    fn start(&mut self, start: &Arc<SeriesStart>) -> Result<(), SinkError> {
        self.0.lock().unwrap().push(format!("start {}", start.series));
        if start.series == 2 { Err(error("no series 2")) } else { Ok(()) }
    }
    fn image(&mut self, image: &Arc<CommittedImage>) -> Result<(), SinkError> {
        self.0.lock().unwrap().push(format!("image {}", image.number));
        if image.number == 1 { Err(error("no image 1")) } else { Ok(()) }
    }
    fn end(&mut self, _: &Arc<SeriesEnd>) -> Result<(), SinkError> {
        self.0.lock().unwrap().push("end".into());
        Ok(())
    }
    fn tick(&mut self, _: u64) -> Result<(), SinkError> {
        Ok(())
    }
}

fn error(what: &str) -> SinkError {
    SinkError { what: what.into(), why: String::new(), fix: String::new() }
}

struct Notes(Log);

impl Reports for Notes {
    fn failed(&mut self, error: &SinkError, _: u64) {
        self.0.lock().unwrap().push(format!("failed: {}", error.what));
    }
    fn ended(&mut self, _: &Arc<SeriesEnd>, unwritten: u64) {
        self.0.lock().unwrap().push(format!("ended, {unwritten} unwritten"));
    }
}

#[test]
fn a_sink_that_fails_gets_the_end_of_its_series_and_the_next_one_whole() {
    let log: Log = Arc::default();
    let output_queues = OutputQueues::new(None);
    let service = ServiceLevel::Reliable;
    let reader =
        output_queues.add(OutputQueueSpec { name: "a".into(), service, queue_images: 8, queue_bytes: 1 << 20, borrows: false });
    let thread = spawn("a", reader, Picky(Arc::clone(&log)), Notes(Arc::clone(&log)), || 0).unwrap();
    let end = Arc::new(SeriesEnd { ended: Ended::Finished, reason: String::new(), ledger: SeriesLedger::default() });
    for series in [1, 2, 3] {
        output_queues.start(&Arc::new(SeriesStart { series, ..SeriesStart::default() }), &|| false);
        for number in [0, if series == 1 { 1 } else { 5 }, 2] {
            let image = CommittedImage { status: konkordia_core::ledger::ImageStatus::Complete, ..CommittedImage::lost(number) };
            output_queues.image(&Arc::new(image), &|| false);
        }
        output_queues.end(&end);
    }
    output_queues.remove("a");
    thread.join().unwrap();
    let expected = [
        "start 1",
        "image 0",
        "image 1",
        "failed: no image 1",
        "end",
        "ended, 2 unwritten",
        "start 2",
        "failed: no series 2",
        "ended, 3 unwritten",
        "start 3",
        "image 0",
        "image 5",
        "image 2",
        "end",
        "ended, 0 unwritten",
    ];
    assert_eq!(*log.lock().unwrap(), expected);
}
