//! Work on GPUs: kernels as text for NVRTC ([`program`]), devices ([`device`]), batches of frames in stages
//! ([`pipeline`]), and an emulator that compiles the same text as C++ and runs it on the host (`emulator`, a feature
//! for tests). The crate links no library of a GPU and builds without one; what is missing is said when a device is
//! opened. Read [`pipeline::Pipeline`] first, then [`device::Device`].

pub mod device;
#[cfg(feature = "emulator")]
pub mod emulator;
pub mod layout;
pub mod measure;
pub mod pipeline;
pub mod pipelines;
pub mod program;
#[cfg(feature = "emulator")]
mod sys;
