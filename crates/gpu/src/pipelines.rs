//! Pipelines for the workers of a run, whatever the device: one device, a pipeline for each worker.

use crate::device::cuda::{self, Cuda};
use crate::device::{Device, DeviceError, Result};
use crate::pipeline::{Batch, Calibration, Pipeline, Received, Spec, Tables};
use konkordia_memory::ring::RawFrames;
use std::fmt::Debug;

/// What a pipeline is to do, with its constants.
pub struct Part {
    /// See [`Spec`].
    pub spec: Spec,
    /// How words become pixels.
    pub calibration: Calibration<'static>,
    /// 1 for pixels that may count.
    pub usable: Vec<u8>,
    /// See [`Received`].
    pub received: Option<(RawFrames, Vec<u32>)>,
}

/// A [`Pipeline`] of any device; its methods are those of the pipeline.
pub trait AnyPipeline: Send {
    /// Name of the device.
    fn device_name(&self) -> &str;

    /// Moves it to the thread that calls.
    ///
    /// # Errors
    /// If the device has failed.
    fn attach(&mut self) -> Result<()>;

    /// [`Pipeline::takes_words`].
    fn takes_words(&self) -> bool;

    /// [`Pipeline::not_taken`].
    fn not_taken(&self) -> Option<&DeviceError>;

    /// [`Pipeline::submit`].
    fn submit(&mut self, number: u64, frames: u32, fill: &mut dyn FnMut(&mut [u8])) -> bool;

    /// [`Pipeline::poll`].
    ///
    /// # Errors
    /// If the device has failed.
    fn poll(&mut self, done: &mut dyn FnMut(&Batch<'_>)) -> Result<bool>;

    /// [`Pipeline::in_flight`].
    fn in_flight(&self) -> u64;

    /// [`Pipeline::pause`].
    fn pause(&mut self);
}

impl<D: Device + Send> AnyPipeline for Pipeline<D> {
    fn device_name(&self) -> &str {
        self.device().name()
    }

    fn attach(&mut self) -> Result<()> {
        self.attach()
    }

    fn takes_words(&self) -> bool {
        self.takes_words()
    }

    fn not_taken(&self) -> Option<&DeviceError> {
        self.not_taken()
    }

    fn submit(&mut self, number: u64, frames: u32, fill: &mut dyn FnMut(&mut [u8])) -> bool {
        self.submit(number, frames, fill)
    }

    fn poll(&mut self, done: &mut dyn FnMut(&Batch<'_>)) -> Result<bool> {
        self.poll(done)
    }

    fn in_flight(&self) -> u64 {
        self.in_flight()
    }

    fn pause(&mut self) {
        self.pause();
    }
}

/// What arms pipelines on a device.
pub trait ArmPipelines: Debug + Send + Sync {
    /// One pipeline for each part, all on one device.
    ///
    /// # Errors
    /// If there is no device, or it has not what is needed.
    fn arm(&self, parts: &[Part]) -> Result<Vec<Box<dyn AnyPipeline>>>;
}

/// A GPU of NVIDIA by its number, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gpu(pub u32);

impl ArmPipelines for Gpu {
    fn arm(&self, parts: &[Part]) -> Result<Vec<Box<dyn AnyPipeline>>> {
        let first = Cuda::open(self.0)?;
        let others = (1..parts.len()).map(|_| first.beside()).collect::<Result<Vec<_>>>()?;
        let mut armed: Vec<Box<dyn AnyPipeline>> = Vec::with_capacity(parts.len());
        for (part, device) in parts.iter().zip(std::iter::once(first).chain(others)) {
            armed.push(Box::new(part.arm(device)?));
        }
        cuda::detach();
        Ok(armed)
    }
}

impl Part {
    /// Arms a pipeline on a device.
    ///
    /// # Errors
    /// As [`Pipeline::arm`].
    pub fn arm<D: Device>(&self, device: D) -> Result<Pipeline<D>> {
        let received = self.received.as_ref().map(|(frames, source)| Received { frames, source });
        let tables = Tables { calibration: &self.calibration, usable: &self.usable, received };
        Pipeline::arm(device, self.spec.clone(), &tables)
    }
}
