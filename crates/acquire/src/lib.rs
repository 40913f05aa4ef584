//! Everything that takes frames: runs of a detector over UDP, conversions of frames in files, the detectors of a
//! service with their commands and events, dark frames, and the consumers that get images. It never serves HTTP and
//! never prints; whoever uses it does. Read [`handle::Fleet`] first, then [`run::arm::prepare`] and
//! [`convert::Conversion`].
//!
//! One run, from arm to its report:
//!
//! ```no_run
//! use konkordia_acquire::run::arm::{Ports, prepare};
//!
//! let config = konkordia_config::load("run.toml".as_ref())?;
//! let run = prepare(&config, Ports::Configured, |note| eprintln!("{note}"))?;
//! println!("waiting for packets at {:?}", run.opened.addresses);
//! let outcome = run.armed.run();
//! let report = run.opened.close(&config, &outcome)?;
//! println!("{}", report.to_text());
//! # Ok::<(), konkordia_core::failure::Failure>(())
//! ```
//!
//! Frames in files pass through the same engine, into the same kind of files:
//!
//! ```
//! use konkordia_acquire::convert::{Conversion, Request};
//! use konkordia_input::Format;
//! use konkordia_kernels::codec::decode;
//! use konkordia_sim::jungfrau::{JungfrauModel, SyntheticJungfrau, raw_bytes};
//! use konkordia_sinks::hdf5::Reader;
//!
//! // Raw frames of a simulated module, as plain words.
//! let folder = tempfile::tempdir()?;
//! let detector = SyntheticJungfrau::new(&JungfrauModel::for_modules(1))?;
//! let frames: Vec<Vec<u8>> = (0..3).map(|n| raw_bytes(&detector.image(n).raw)).collect();
//! let file = folder.path().join("frames.u16");
//! std::fs::write(&file, frames.concat())?;
//!
//! let request = Request {
//!     input: vec![file],
//!     format: Some(Format::U16),
//!     output: folder.path().join("run"),
//!     dtype: Some("raw".into()),
//!     ..Request::default()
//! };
//! let master = request.master();
//! let conversion = Conversion::open(request)?;
//! let done = conversion.arm(conversion.plan()?, Box::new(|note| eprintln!("{note}")))?.run()?;
//! println!("{}", done.report.to_text());
//!
//! let image = Reader::open(&master)?.read_image(2, &decode)?;
//! assert_eq!(image, frames[2]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Detectors that take commands, as `konkordia serve` has them, and all that a control server needs of them. HTTP and
//! the interface of the MAX IV receiver use nothing else. `examples/control_server.rs` is a third one, whole, with a
//! simulated detector:
//!
//! ```no_run
//! use konkordia_acquire::handle::{ArmRequest, Command, News};
//! use konkordia_acquire::service::Detectors;
//! use std::time::{Duration, Instant};
//!
//! let service = konkordia_config::service::load("run.toml".as_ref())?;
//! let detectors = Detectors::start(&service, |detector| detector)?;
//! let fleet = detectors.fleet();
//! let detector = fleet.find(None)?;
//! let mut events = fleet.events.subscribe();
//!
//! let request = ArmRequest { images: Some(1000), prefix: Some("lyso/run03".into()), ..ArmRequest::default() };
//! let armed = detector.command(Command::Arm(Box::new(request)), "alice")?;
//! let (status, has_ended) = fleet.wait_for(&*detector, Duration::from_secs(60), |status| status.has_ended(armed.run));
//! println!("{}: {} of 1000 images written, ended: {has_ended}", status.message, status.images_written);
//!
//! while let Some(news) = events.read() {
//!     match news {
//!         News::Event(event) => println!("{} {}", event.time, event.message),
//!         News::Missed(count) => println!("{count:?} events are no longer known"),
//!     }
//! }
//! if let Some(found) = detector.images().get(None, Instant::now()) {
//!     let plane = found.planes.plane(0).expect("its pixels can be unpacked");
//!     println!("image {}: {:?} {}", plane.image.number, plane.shape.dimensions(), plane.element.name());
//! }
//! # Ok::<(), konkordia_core::failure::Failure>(())
//! ```
#![forbid(unsafe_code)]

pub mod alarms;
pub mod analysis;
mod bins;
mod calibration_report;
pub mod control_driver;
mod control_order;
pub mod convert;
pub mod dark;
mod detector;
mod dry_run;
mod events;
pub mod fanout;
pub mod file_images;
pub mod frame_images;
pub mod handle;
mod hit_rate;
mod hooks;
mod image_ring;
pub mod image_writer;
pub mod machine;
pub mod paths;
mod public_state;
pub mod raw_frames;
mod readiness;
pub mod remote;
mod result_history;
pub mod run;
mod run_needs;
pub mod service;
mod shapes;
pub mod spool;
mod statistics;
pub mod stopper;
mod tables;
mod threads;
mod transform;
