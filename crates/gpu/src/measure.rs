//! How long copies, launches and batches take on a device. What comes back is given to the caller, who compares it.

use crate::device::{Device, Event, Lent, PinnedSpan, Result, Span, Step, Stream};
use crate::pipeline::{Batch, Pipeline};
use std::time::Duration;

/// Which way a copy goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From pinned memory to the device.
    In,
    /// Back.
    Out,
}

/// Copies of one size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Transfer {
    /// Bytes of a copy.
    pub bytes: usize,
    /// Its way.
    pub way: Way,
    /// Time of one copy, where `copies` of them are enqueued behind each other: the median of all rounds.
    pub each: Duration,
}

/// Batches that were done.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timed {
    /// How many.
    pub batches: u64,
    /// From the first that was submitted to the last that was done.
    pub elapsed: Duration,
}

/// Times copies of each size in both directions. The bytes that come back are compared with those that went in.
///
/// # Errors
/// If the device fails, or has not so much memory. False if other bytes came back.
pub fn transfers(device: &mut dyn Device, sizes: &[usize], copies: u32, rounds: usize) -> Result<(Vec<Transfer>, bool)> {
    let most = sizes.iter().copied().max().unwrap_or(1);
    let (there, from, to) = (device.allocate(most)?, device.allocate_pinned(most)?, device.allocate_pinned(most)?);
    let (stream, event) = (device.stream()?, device.event()?);
    device.pinned_mut(from).iter_mut().enumerate().for_each(|(n, byte)| *byte = (n * 31 % 251) as u8);
    let (mut found, mut is_equal) = (Vec::new(), true);
    for &bytes in sizes {
        let (on_device, host) = (Span { memory: there, offset: 0, bytes }, |memory| PinnedSpan { memory, offset: 0, bytes });
        device.lend(from, Lent::Read);
        device.lend(to, Lent::Write);
        for (way, step) in [
            (Way::In, Step::CopyIn { from: host(from), to: on_device }),
            (Way::Out, Step::CopyOut { from: on_device, to: host(to) }),
        ] {
            let round = |_| timed(device, stream, event, step, copies);
            let mut times = (0..rounds.max(1)).map(round).collect::<Result<Vec<_>>>()?;
            times.sort_unstable();
            found.push(Transfer { bytes, way, each: times[times.len() / 2] / copies.max(1) });
        }
        device.take_back(from);
        device.take_back(to);
        is_equal &= device.pinned(from)[..bytes] == device.pinned(to)[..bytes];
        device.pinned_mut(to).fill(0);
    }
    Ok((found, is_equal))
}

fn timed(device: &mut dyn Device, stream: Stream, event: Event, step: Step, copies: u32) -> Result<Duration> {
    let began = device.elapsed();
    (0..copies.max(1)).try_for_each(|_| device.enqueue(stream, step))?;
    device.enqueue(stream, Step::Record(event))?;
    while !device.is_reached(event)? {
        device.pause();
    }
    Ok(device.elapsed().saturating_sub(began))
}

/// From the submission of a batch to its end, for `count` batches of which one at a time is on its way; sorted.
///
/// # Errors
/// If the device fails.
pub fn latencies<D: Device>(
    pipeline: &mut Pipeline<D>,
    count: u64,
    fill: &mut dyn FnMut(u64, &mut [u8]),
    done: &mut dyn FnMut(&Batch<'_>),
) -> Result<Vec<Duration>> {
    let frames = pipeline.spec().frames;
    let mut times = Vec::with_capacity(count as usize);
    for number in 0..count {
        let began = pipeline.device().elapsed();
        pipeline.submit(number, frames, |words| fill(number, words));
        while pipeline.in_flight() > 0 {
            if !pipeline.poll(&mut *done)? {
                pipeline.pause();
            }
        }
        times.push(pipeline.device().elapsed().saturating_sub(began));
    }
    times.sort_unstable();
    Ok(times)
}

/// As many batches as go through in `span`, with all credits in use, and at least `least`.
///
/// # Errors
/// If the device fails.
pub fn throughput<D: Device>(
    pipeline: &mut Pipeline<D>,
    span: Duration,
    least: u64,
    fill: &mut dyn FnMut(u64, &mut [u8]),
    done: &mut dyn FnMut(&Batch<'_>),
) -> Result<Timed> {
    let (frames, began) = (pipeline.spec().frames, pipeline.device().elapsed());
    let elapsed = |pipeline: &Pipeline<D>| pipeline.device().elapsed().saturating_sub(began);
    let mut batches = 0;
    loop {
        let is_over = batches >= least && elapsed(pipeline) >= span;
        if is_over && pipeline.in_flight() == 0 {
            return Ok(Timed { batches, elapsed: elapsed(pipeline) });
        }
        if !is_over {
            batches += u64::from(pipeline.submit(batches, frames, |words| fill(batches, words)));
        }
        if !pipeline.poll(&mut *done)? {
            pipeline.pause();
        }
    }
}
