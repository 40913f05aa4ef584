//! The rings of frames and images: the memory through which all pixels of a run pass, and the only concurrent `unsafe`
//! code of the project. It never looks at pixels or packets, allocates only when it is made, and has no lock: each role
//! owns a cursor and may touch only what the cursors give it. Read [`ring::Ring`] first.
//!
//! ```
//! use konkordia_core::frame_header::FrameHeader;
//! use konkordia_core::image::ImageHead;
//! use konkordia_memory::ring::{Ring, RingSpec};
//! use std::time::Duration;
//!
//! // Frames of one tile with two packets of 64 bytes; one worker, which makes one strip of them.
//! let ring = Ring::new(RingSpec {
//!     slots: 2,
//!     packed_slots: 1,
//!     tiles: 1,
//!     tile_bytes: 128,
//!     sections: 1,
//!     payload_bytes: 64,
//!     strip_bytes_max: vec![128],
//!     strip_numbers: 0,
//!     shares: vec![1],
//!     frame_readers: 0,
//!     snapshot: None,
//!     reserved_pages: false,
//! })?;
//! let Ring { mut receivers, mut workers, mut committer, mut image_reader, .. } = ring;
//! // Each role usually has a thread of its own. The receiver places the packets of frame 0 and seals it.
//! let receiver = &mut receivers[0];
//! assert!(receiver.claim(0));
//! receiver.open(0, FrameHeader::default());
//! receiver.place(0, 0, &[1; 64]);
//! receiver.place(0, 1, &[2; 64]);
//! receiver.seal_below(1);
//! // The worker packs a strip of it, the committer makes it an image, and the reader takes that.
//! let worker = &mut workers[0];
//! assert_eq!(worker.wait(1, Duration::ZERO), 1);
//! assert!(worker.has_room(0));
//! worker.pack(0, 0, |worker, strip| {
//!     let (_, tile) = worker.tile(0, 0).expect("packets of it were placed");
//!     strip[..128].copy_from_slice(tile);
//!     128
//! });
//! worker.finish(1, 1);
//! let record = *committer.record(0).expect("packets of it were placed");
//! committer.publish(ImageHead::default(), &[record]);
//! committer.pass();
//! assert_eq!(image_reader.take(|image| image.strip(0).to_vec()), [[1; 64], [2; 64]].concat());
//! # Ok::<(), std::io::Error>(())
//! ```

pub mod cursor;
mod images;
mod loan;
mod mapping;
pub mod pages;
mod raw_frames;
pub mod ring;
mod spec;
mod sync;

#[cfg(all(test, feature = "loom"))]
mod models;
