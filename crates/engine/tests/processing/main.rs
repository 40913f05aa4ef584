//! What a run does beside converting frames: it selects and adds them, follows the drift, shares double pixels, keeps
//! raw words, reads files. Simulated packets; every image is compared with the naive run of `sim`; the bytes are the
//! same for any number of workers and of slots for packed images.

mod drift;
mod ends;
mod files;
mod filling;
mod gpu;
mod harness;
#[path = "../../../gpu/tests/common/kernels.rs"]
mod kernels;
mod pixels;
mod planes;
mod selection;
mod sums;
mod whole_images;
