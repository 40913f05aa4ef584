//! Why a device cannot be used, or can no longer be used.

use std::fmt;

/// What kind of failure it is; the caller decides by it what to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The library of the driver cannot be opened.
    NoDriver,
    /// The driver is older than the functions that are needed.
    DriverTooOld,
    /// There is a driver, and no device for it.
    NoDevice,
    /// Others have the device, or it is in a mode that excludes us.
    Busy,
    /// Memory of the device, or pinned memory of the host.
    OutOfMemory,
    /// The library that compiles kernels is missing or too old, or the text was refused.
    NoCompiler,
    /// The device has no such function (stream memory operations, cooperative launches).
    Unsupported,
    /// What was asked for is wrong: a mistake of the caller.
    Request,
    /// An operation failed while the run was going on.
    Operation,
    /// The device found wrong bits in its memory: nothing that it did not yet finish can be trusted.
    Uncorrectable,
    /// Nothing moved for longer than the watchdog waits.
    Hang,
}

/// A failure of a device in the four parts that a person needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceError {
    /// Its kind.
    pub cause: Cause,
    /// What was being done.
    pub what: String,
    /// On which device or in which library.
    pub place: String,
    /// Why it failed.
    pub why: String,
    /// What to do.
    pub advice: &'static str,
}

impl DeviceError {
    /// An error with the advice that belongs to its cause.
    pub fn new(cause: Cause, what: impl Into<String>, place: impl Into<String>, why: impl Into<String>) -> Self {
        Self { cause, what: what.into(), place: place.into(), why: why.into(), advice: advice(cause) }
    }
}

fn advice(cause: Cause) -> &'static str {
    match cause {
        Cause::NoDriver => "install the driver of NVIDIA (package nvidia-driver), or leave the work to the processor",
        Cause::DriverTooOld => "update the driver of NVIDIA to 550 or newer",
        Cause::NoDevice => "look at nvidia-smi and at CUDA_VISIBLE_DEVICES; a container needs --gpus",
        Cause::Busy => "end the other program (nvidia-smi shows it), or set the compute mode to default",
        Cause::OutOfMemory => "fewer frames in a batch, or end other programs on the device",
        Cause::NoCompiler => "install NVRTC 12.4 or newer (package cuda-nvrtc-12-4) and put it on LD_LIBRARY_PATH",
        Cause::Unsupported => "choose plain launches",
        Cause::Request => "report this: the program asked for something that it must not ask for",
        Cause::Operation => "look at the messages of the kernel (dmesg, lines with NVRM: Xid); the device may need a reset",
        Cause::Uncorrectable => "look at nvidia-smi -q -d ECC, and reset or replace the device",
        Cause::Hang => "look at nvidia-smi and dmesg (lines with NVRM: Xid); the device may need a reset",
    }
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}; {}", self.what, self.place, self.why, self.advice)
    }
}

impl std::error::Error for DeviceError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_what_where_why_and_what_to_do() {
        let error = DeviceError::new(Cause::OutOfMemory, "allocating 4 GiB", "GPU 0", "2 GiB are free");
        let text = "allocating 4 GiB (GPU 0): 2 GiB are free; fewer frames in a batch, or end other programs on the device";
        assert_eq!(error.to_string(), text);
    }
}
