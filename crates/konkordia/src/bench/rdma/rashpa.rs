//! RASHPA over memory that a module shares with a receiver, beside a copy of the same images by one thread. The first
//! round compares every byte, and its time does not count; in the others all images are counted. As in a run, the
//! receiver empties each slot before it allows the next image in it, on a core of its own.

use super::super::spread::Spread;
use crate::console;
use crate::rashpa::measure::{Setting, System};
use konkordia_core::failure::Failure;
use konkordia_core::text;
use serde_json::{Value, json};
use std::hint::black_box;
use std::time::Instant;

/// Different images, used in turn.
const IMAGES: usize = 8;
/// Slots: more than most caches hold.
const SLOTS: u32 = 64;
/// Bytes that a repeat transfers.
const REPEAT_BYTES: usize = 2 << 30;
/// A module of JUNGFRAU, and payloads of a packet.
const WIDTH: u32 = 1024;
const HEIGHT: u32 = 512;
const PACKETS: [u32; 2] = [8192, 65_504];

/// One size of packets.
pub struct Row {
    packet_bytes: u32,
    image_bytes: usize,
    gigabytes_per_s: Spread,
    memcpy_gigabytes_per_s: Spread,
    ratio: Spread,
    pub verified: bool,
}

/// Measures both in turns.
///
/// # Errors
/// There is no such memory.
pub fn measure(repeats: u32, is_quick: bool) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    for packet_bytes in PACKETS {
        let (width, height) = if is_quick { (WIDTH / 8, HEIGHT / 8) } else { (WIDTH, HEIGHT) };
        let setting = Setting { width, height, packet_bytes, slots: SLOTS };
        let image_bytes = setting.image_bytes();
        let images = setting.images(IMAGES);
        let mut system = System::new(setting)?;
        let mut slots = vec![0; image_bytes * SLOTS as usize];
        let slices = if is_quick { 200 } else { REPEAT_BYTES / image_bytes };
        let rate = |seconds: f64| (slices * image_bytes) as f64 / seconds / 1e9;
        let mut verified = system.transfer(&images, IMAGES as u64, true)?.is_right;
        copy(&images, &mut slots, slices);
        let (mut own, mut memcpy) = (Vec::new(), Vec::new());
        for _ in 0..repeats {
            let measured = system.transfer(&images, slices as u64, false)?;
            verified &= measured.is_right;
            if !measured.is_right {
                console::to_stderr(&format!("images of the bench did not come as they should: {:?}", measured.tally));
            }
            own.push(rate(measured.seconds));
            memcpy.push(rate(copy(&images, &mut slots, slices)));
        }
        rows.push(Row {
            packet_bytes,
            image_bytes,
            ratio: Spread::of(own.iter().zip(&memcpy).map(|(own, memcpy)| own / memcpy)),
            gigabytes_per_s: Spread::of(own),
            memcpy_gigabytes_per_s: Spread::of(memcpy),
            verified,
        });
    }
    Ok(rows)
}

/// Copies the images into the slots in turn; the seconds that it takes.
fn copy(images: &[Vec<u8>], slots: &mut [u8], count: usize) -> f64 {
    let bytes = images[0].len();
    let begin = Instant::now();
    for n in 0..count {
        let at = n % SLOTS as usize * bytes;
        black_box(&mut slots[at..at + bytes]).copy_from_slice(black_box(&images[n % images.len()]));
    }
    begin.elapsed().as_secs_f64()
}

impl Row {
    /// For programs.
    pub fn to_json(&self) -> Value {
        json!({
            "name": format!("RASHPA over shared memory, {} bytes", self.packet_bytes), "packet_bytes": self.packet_bytes,
            "image_bytes": self.image_bytes, "slots": SLOTS, "gigabytes_per_second": self.gigabytes_per_s.to_json(),
            "memcpy_gigabytes_per_second": self.memcpy_gigabytes_per_s.to_json(), "times_memcpy": self.ratio.to_json(),
            "verified": self.verified,
        })
    }
}

/// For people.
pub fn to_text(rows: &[Row]) -> String {
    let head = ["bytes of a packet", "RASHPA GB/s", "memcpy GB/s", "RASHPA / memcpy", ""].map(str::to_string).to_vec();
    let row = |row: &Row| {
        vec![
            row.packet_bytes.to_string(),
            row.gigabytes_per_s.to_short_text(2),
            row.memcpy_gigabytes_per_s.to_short_text(2),
            row.ratio.to_short_text(2),
            if row.verified { String::new() } else { "WRONG".to_string() },
        ]
    };
    let table: Vec<Vec<String>> = std::iter::once(head).chain(rows.iter().map(row)).collect();
    let image = text::bytes(rows.first().map_or(0, |row| row.image_bytes as u64));
    format!(
        "RASHPA over shared memory, images of {image} into {SLOTS} slots, beside a copy of the same images by one thread:\n{}",
        text::table(&table)
    )
}
