//! The cost of the stream path alone: a source hands out the same bytes again and again. The result is printed, not
//! judged.

use super::harness::*;
use bytes::Bytes;
use konkordia_core::ports::ServiceLevel;
use konkordia_core::ports::{Message, MessageSource};
use konkordia_engine::output_queue::{OutputQueueSpec, OutputQueues};
use konkordia_engine::series::{self, Notice, Protocol, SeriesSpec, Upstream};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

struct Endless {
    pixels: Bytes,
    form: Form,
    next: u64,
    images: u64,
}

impl MessageSource for Endless {
    fn receive(&mut self, _timeout: Duration, messages_max: usize, into: &mut Vec<Message>) -> io::Result<()> {
        for _ in 0..messages_max {
            let tiny = match self.next {
                0 => TinyMessage::Start(self.images),
                n if n <= self.images => TinyMessage::Image(n - 1),
                n if n == self.images + 1 => TinyMessage::End,
                _ => return Ok(()),
            };
            // The header is the sender's; the pixels are shared.
            let mut message = message(Form { rows: 0, ..self.form }, 0, 1, 0, tiny);
            if let (TinyMessage::Image(_), Some(pixels)) = (tiny, message.parts.get_mut(1)) {
                *pixels = self.pixels.clone();
            }
            let head: Vec<u8> = message.parts[0].iter().copied().collect();
            message.parts[0] = Bytes::from([&head[..32], &self.form.rows.to_le_bytes()[..], &head[40..]].concat());
            into.push(message);
            self.next += 1;
        }
        Ok(())
    }

    fn is_finished(&self) -> bool {
        self.next > self.images + 1
    }

    fn name(&self) -> String {
        "memory".into()
    }
}

#[test]
fn every_message_of_an_endless_stream_arrives() {
    let form = Form { rows: 100, columns: 100, has_numbers: false };
    let images = 100_000;
    let source = Endless { pixels: Bytes::from(vec![1; 20_000]), form, next: 0, images };
    let output_queues = Arc::new(OutputQueues::new(None));
    let service = ServiceLevel::Reliable;
    let mut reader = output_queues.add(OutputQueueSpec {
        name: "count".into(),
        service,
        queue_images: 256,
        queue_bytes: 64 << 20,
        borrows: false,
    });
    let before = Instant::now();
    let upstream = Upstream { source: Box::new(source), decoder: Box::new(TinyDecoder) };
    let series = series::open(SeriesSpec::new(Protocol::DectrisV2), vec![upstream], output_queues).unwrap();
    let (mut items, mut seen) = (Vec::new(), 0);
    while seen < images + 2 {
        assert!(reader.take(PATIENCE, &mut items) && !items.is_empty());
        seen += items.drain(..).count() as u64;
    }
    let seconds = before.elapsed().as_secs_f64();
    let progress = series.control().progress();
    println!("{:.0} messages/s of 20 kB, latency {:?}", images as f64 / seconds, progress.latency);
    let ends = series.notices().iter().find_map(|notice| if let Notice::Ended(end) = notice { Some(end) } else { None });
    assert!(ends.unwrap().ledger.images.is_complete());
    eventually("the budget is free", || series.control().progress().in_flight_bytes() == 0);
}
