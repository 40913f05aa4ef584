//! Kernels for GPUs as text for NVRTC ([`program`]), and an emulator that compiles the same text as C++ and runs it on
//! the host ([`emulator`]). The crate never looks for a GPU and loads no library; the program does not need it. Read
//! [`program::text`] first, then [`emulator::launch`].

pub mod device;
#[cfg(feature = "emulator")]
pub mod emulator;
pub mod pipeline;
pub mod program;
#[cfg(feature = "emulator")]
mod sys;
