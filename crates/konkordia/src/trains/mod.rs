//! `konkordia trains`: a train builder for AGIPD, DSSC and LPD of European XFEL. One thread receives each module, this
//! thread puts trains together by the rules of `konkordia_fabric::trains`, and each output has a thread and a queue of
//! its own. Files hold the buffers of the modules until they are written; when none is free, whole trains of a module
//! are refused and counted. The other outputs miss trains instead.

pub mod args;
mod bridge;
mod files;
mod inject;
mod outputs;
mod process;
mod receive;
mod report;
mod shared;
mod threads;
mod ttp;

use crate::console;
use crate::run::signals;
use args::{OrderChoice, TrainsArgs};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};
use inject::Inject;
use konkordia_core::failure::{Exit, Failure, reason};
use konkordia_core::tile::XfelDetector;
use konkordia_fabric::trains::{Builder, BuilderCounts, BuilderSpec, Channel, ModuleTrain, TrainSpec};
use konkordia_sources::udp::UdpReceiver;
use outputs::Outputs;
use process::{Process, Way};
use receive::{Receive, Received};
use report::Outcome;
use shared::{Buffer, SharedTrain, give_back};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use threads::{bug, thread};

/// Longest wait for a train of a module.
const WAIT: Duration = Duration::from_millis(5);
/// Trains of a channel that are collected at the same time: two overlap when a train is late.
const OPEN_PER_MODULE: usize = 2;
/// Trains of modules between the channels and the builder.
const QUEUE_PER_MODULE: usize = 4;

/// `konkordia trains`
pub fn command(args: &TrainsArgs) -> Result<Exit, Failure> {
    let stop = signals::stop_flag()?;
    let outcome = run(args, &stop, &mut |lines| lines.iter().for_each(|line| console::to_stderr(line)))?;
    Ok(report::print(args, &outcome))
}

/// The detector that the command line names.
pub fn detector_of(model: &str) -> XfelDetector {
    XfelDetector::ALL.into_iter().find(|known| known.name() == model).unwrap_or(XfelDetector::Lpd)
}

/// Runs until the end that the arguments say, or the stop flag. `announce` gets what to say once all sockets are open.
pub fn run(args: &TrainsArgs, stop: &Arc<AtomicBool>, announce: &mut dyn FnMut(&[String])) -> Result<Outcome, Failure> {
    let spec = TrainSpec { detector: detector_of(&args.model), images_max: args.images_max as usize };
    let begun = Instant::now();
    let halt = Arc::new(AtomicBool::new(false));
    let newest_us = Arc::new(AtomicU64::new(0));
    let sockets = sockets(args)?;
    let outputs = Outputs::open(args, spec)?;
    let listen = |address: &String| {
        let name = args.detector_name(spec.detector);
        Process::listen(address, name, args.process_open as usize, 1000 * u64::from(args.process_timeout_ms))
    };
    let process = args.process.as_ref().map(listen).transpose()?;
    let mut inject = args.inject.as_deref().map(Inject::listen).transpose()?;
    let (out, trains) = bounded(QUEUE_PER_MODULE * args.modules as usize);
    let mut modules = Modules { returns: Vec::new(), threads: Vec::new() };
    for (module, socket) in sockets.into_iter().enumerate() {
        let (give, returns) = unbounded();
        // Half of the time that the train waits, so that what came of a module is there in time.
        let timeout_us = 1000 * u64::from(args.timeout_ms) / 2;
        let receive = Receive {
            module,
            socket,
            channel: Channel::new(spec, OPEN_PER_MODULE, timeout_us, args.buffers as usize),
            is_ordered: args.order == OrderChoice::Image,
            out: out.clone(),
            returns,
            stop: Arc::clone(&halt),
            begun,
            newest_us: Arc::clone(&newest_us),
        };
        modules.returns.push(give);
        modules.threads.push(thread(&format!("rx-{module}"), move || receive.run())?);
    }
    drop(out);
    let mut lines = vec![format!("receiving {} modules from {} on", args.modules, args.listen)];
    lines.extend(outputs.addresses());
    lines.extend(process.iter().map(|process| format!("programs (REQ) at {}", process.address())));
    let way = Way::open(outputs, process)?;
    announce(&lines);
    let build = Build { args, spec, stop, halt: &halt, newest_us: &newest_us, begun };
    let built = build.run(&trains, &modules.returns, &way, inject.as_mut());
    halt.store(true, Ordering::Release);
    drop(modules.returns);
    let received = modules.threads.into_iter().map(|thread| thread.join().map_err(|_| bug())).collect::<Result<Vec<_>, _>>()?;
    let (outputs, processed) = way.finish()?;
    let written = outputs.finish()?;
    let processed = processed.transpose()?;
    let injected = inject.map_or((0, 0, 0), |inject| (inject.malformed, inject.unused().0, inject.unused().1));
    Ok(Outcome { received, built, written, processed, injected, seconds: begun.elapsed().as_secs_f64() })
}

/// The threads of the modules, and how buffers go back to them.
struct Modules {
    returns: Vec<Sender<Buffer>>,
    threads: Vec<JoinHandle<Received>>,
}

fn sockets(args: &TrainsArgs) -> Result<Vec<UdpReceiver>, Failure> {
    let open = |module: u32| {
        let port = u16::try_from(u32::from(args.listen.port()) + module).map_err(|_| {
            let why = format!("{} modules from port {} reach beyond port 65535", args.modules, args.listen.port());
            Failure::new(Exit::Usage, "there are not enough ports", why, "give a lower port")
        })?;
        let address = SocketAddr::new(args.listen.ip(), port);
        UdpReceiver::bind(address, (args.receive_buffer_mib as usize) << 20).map_err(|error| {
            let fix = "another program may have the port (`ss -ulpn` shows which), or the address is not of this machine";
            Failure::new(Exit::Io, format!("cannot receive at {address}"), reason(&error), fix)
        })
    };
    (0..args.modules).map(open).collect()
}

/// The thread that puts trains together.
struct Build<'a> {
    args: &'a TrainsArgs,
    spec: TrainSpec,
    stop: &'a AtomicBool,
    halt: &'a AtomicBool,
    newest_us: &'a AtomicU64,
    begun: Instant,
}

impl Build<'_> {
    fn run(
        &self,
        trains: &Receiver<(usize, ModuleTrain)>,
        returns: &[Sender<Buffer>],
        way: &Way,
        mut inject: Option<&mut Inject>,
    ) -> BuilderCounts {
        let mut builder = Builder::new(BuilderSpec {
            train: self.spec,
            modules: self.args.modules as usize,
            open_max: self.args.open_max as usize,
            timeout_us: 1000 * u64::from(self.args.timeout_ms),
            is_ordered: self.args.order == OrderChoice::Image,
        });
        loop {
            let came = trains.recv_timeout(WAIT);
            let now_us = self.begun.elapsed().as_micros() as u64;
            let is_end = matches!(came, Err(RecvTimeoutError::Disconnected));
            match came {
                Ok((module, train)) => {
                    if let Some(refused) = builder.offer(module, train, now_us) {
                        give_back(&returns[module], refused);
                    }
                }
                Err(RecvTimeoutError::Timeout) => builder.tick(now_us),
                Err(RecvTimeoutError::Disconnected) => builder.finish(),
            }
            while let Some(mut train) = builder.pop() {
                if let Some(inject) = &mut inject {
                    train.injected = inject.take(train.train_id);
                }
                way.send(SharedTrain::new(train, self.spec, returns.to_vec()));
            }
            if is_end {
                return *builder.counts();
            }
            if self.is_over(&builder, now_us) {
                self.halt.store(true, Ordering::Release);
            }
        }
    }

    /// True if the run ends: enough trains, silence, the stop flag, or an output that failed.
    fn is_over(&self, builder: &Builder, now_us: u64) -> bool {
        let counts = builder.counts();
        let trains = counts.complete + counts.incomplete + counts.lost;
        let newest_us = self.newest_us.load(Ordering::Acquire);
        let silence_s = now_us.saturating_sub(newest_us) as f64 / 1e6;
        let is_stalled = newest_us > 0 && self.args.stall_s.is_some_and(|stall_s| silence_s > stall_s);
        self.args.trains.is_some_and(|most| trains >= most) || is_stalled || self.stop.load(Ordering::Acquire)
    }
}
