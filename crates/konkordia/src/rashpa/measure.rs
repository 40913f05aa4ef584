//! What `konkordia bench rdma` measures of RASHPA: a module writes into memory that it shares with a receiver. These
//! are the parts of `rashpa module`, `rashpa receiver` and `rashpa manager`, each end in a thread of one process. The
//! images lie ready, because the simulated detector is slower than the link; and where a detector would skip an image,
//! the module waits for a credit.

use super::args::ReceiverArgs;
use super::memory::Memory;
use super::module::{name, shared_link};
use super::pixels;
use super::reception::{Run, Tally};
use super::telegrams::{lock, serve};
use super::wire::{Faults, Wire};
use konkordia_core::failure::{Exit, Failure};
use konkordia_fabric::rashpa::control::ModuleControl;
use konkordia_fabric::rashpa::description::Description;
use konkordia_fabric::rashpa::initialisation::Step;
use konkordia_fabric::rashpa::manager::{Manager, Member};
use konkordia_fabric::rashpa::receiver_control::ReceiverControl;
use konkordia_fabric::rashpa::telegram::{self, Body, ModuleCapabilities, ReceiverCapabilities};
use konkordia_fabric::rashpa::terms::{MemoryKind, ModuleId, ReceiverId};
use konkordia_sim::rng::Rng;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Bytes of a pixel.
const PIXEL_BYTES: u32 = 2;
const SEED: u64 = 1;
/// Nothing takes longer.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pause of a module without a credit.
const PAUSE: Duration = Duration::from_micros(20);

/// A system of one module and one receiver.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// Payload of a packet at most.
    pub packet_bytes: u32,
    /// Slots of the receiver.
    pub slots: u32,
}

/// What came of a run.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// From the first byte to the moment when the receiver has taken the last image.
    pub seconds: f64,
    /// Were all images whole, and, if they were compared, all bytes right?
    pub is_right: bool,
    /// What became of the images.
    pub tally: Tally,
}

impl Setting {
    /// Bytes of an image.
    pub const fn image_bytes(&self) -> usize {
        self.width as usize * self.height as usize * PIXEL_BYTES as usize
    }

    /// The images of the first slices.
    pub fn images(&self, count: usize) -> Vec<Vec<u8>> {
        let image = |slice| {
            let mut image = vec![0; self.image_bytes()];
            pixels::fill(&mut image, (SEED, 0, slice as u64), self.width, PIXEL_BYTES);
            image
        };
        (0..count).map(image).collect()
    }
}

/// A module and a receiver, and their manager.
pub struct System {
    setting: Setting,
    module: Arc<Mutex<ModuleControl>>,
    receiver: Mutex<ReceiverControl>,
    memory: Memory,
    telegrams: SocketAddr,
    runs: u32,
}

fn bug(what: impl Into<String>, why: impl std::fmt::Display) -> Failure {
    Failure::new(Exit::Bug, what, why.to_string(), "please report this")
}

impl System {
    /// Both members, before they are configured.
    pub fn new(setting: Setting) -> Result<Self, Failure> {
        // Slots, and a ring of events with its queue.
        let memory_bytes = setting.image_bytes() * setting.slots as usize + (4 << 20);
        let memory = Memory::new(memory_bytes)?;
        let links = vec![shared_link(0, "shm")?];
        let Setting { width, height, .. } = setting;
        let can = ModuleCapabilities {
            module: ModuleId(0),
            width,
            height,
            pixel_bytes: PIXEL_BYTES,
            channels_max: 1,
            entries_max: 16,
            links,
            transforms: Vec::new(),
        };
        let module = Arc::new(Mutex::new(ModuleControl::new(name("module-0")?, can)));
        // The receiver gives credits by telegrams.
        let telegrams = serve(SocketAddr::from(([127, 0, 0, 1], 0)), &name("module-0")?, &module)?;
        let can = ReceiverCapabilities {
            receiver: ReceiverId(0),
            links: vec![shared_link(0, &memory.shared().address())?],
            memory: vec![telegram::Memory { kind: MemoryKind::Ram, bytes: memory_bytes as u64 }],
        };
        let receiver = Mutex::new(ReceiverControl::new(name("receiver-0")?, can));
        Ok(Self { setting, module, receiver, memory, telegrams, runs: 0 })
    }

    fn manager(&mut self, slices: u64) -> Result<Manager, Failure> {
        let Setting { packet_bytes, slots, .. } = self.setting;
        let telegrams = self.telegrams;
        let text = format!(
            "modules = [{{ id = 0, telegrams = \"{telegrams}\", x = 0, y = 0 }}]\n\
             receivers = [{{ id = 0, telegrams = \"{telegrams}\", link = \"shm\" }}]\n\
             transfers = [{{ id = 0, receivers = [0], slices = {slices}, slots = {slots}, packet_bytes = {packet_bytes} }}]\n"
        );
        let description = Description::from_toml(&text).map_err(|why| bug("the description of the bench is wrong", why))?;
        // Numbers of telegrams rise from run to run.
        self.runs += 1;
        Ok(Manager::new(description, PATIENCE.as_nanos() as u64, self.runs << 16))
    }

    /// Steps up to and including `last`.
    fn steps(&self, manager: &mut Manager, last: Step) -> Result<(), Failure> {
        let wrong = |why| bug("the system of the bench cannot be set up", why);
        while let Some(step) = manager.next_step() {
            let mut queue = manager.begin(step, 0).map_err(wrong)?;
            while let Some((member, telegram)) = queue.pop() {
                let answer = match member {
                    Member::Module(_) => lock(&self.module).handle(&telegram),
                    Member::Receiver(_) => lock(&self.receiver).handle(&telegram),
                };
                queue.extend(manager.answer(member, &answer, 0).map_err(wrong)?);
            }
            if step == last {
                break;
            }
        }
        Ok(())
    }

    /// Transfers `slices` of these images in turn; every byte of them is compared if `compares` is set, which needs as
    /// many images as slices.
    pub fn transfer(&mut self, images: &[Vec<u8>], slices: u64, compares: bool) -> Result<Measured, Failure> {
        let args = ReceiverArgs {
            id: 0,
            listen: self.telegrams,
            link: Vec::new(),
            mtu: 9000,
            memory_mib: 1,
            check: compares.then_some(SEED),
            output: None,
            silence: PATIENCE.as_secs_f64(),
            receive_buffer_mib: 1,
            once: true,
            json: true,
        };
        let mut manager = self.manager(slices)?;
        self.steps(&mut manager, Step::Start)?;
        let member = name("receiver-0")?;
        let (receiver, module) = (&self.receiver, &self.module);
        let memory = &mut self.memory;
        let (begun, (ended, tally)) = std::thread::scope(|scope| {
            let taking = scope.spawn(|| take(&args, &member, receiver, memory, slices));
            let begun = send(module, images, slices)?;
            let taken = taking.join().map_err(|_| bug("the receiver of the bench has failed", "a panic"))??;
            Ok::<_, Failure>((begun, taken))
        })?;
        self.steps(&mut manager, Step::Stop)?;
        lock(&self.receiver).finish();
        let release = manager.telegram(Body::Release);
        lock(&self.module).handle(&release);
        lock(&self.receiver).handle(&release);
        let bytes = slices * self.setting.image_bytes() as u64;
        let is_right = tally.whole == slices && tally.wrong == 0 && (!compares || tally.equal == bytes);
        Ok(Measured { seconds: ended.saturating_duration_since(begun).as_secs_f64(), is_right, tally })
    }
}

/// The module; returns when it began.
fn send(control: &Mutex<ModuleControl>, images: &[Vec<u8>], slices: u64) -> Result<Instant, Failure> {
    let mut wire = {
        let mut control = lock(control);
        let peers = control.peers().to_vec();
        let faults = Faults { loss: 0.0, duplicate: 0.0, reorder: 0.0 };
        Wire::new(&[], (&peers, control.sender().as_deref()), (faults, Rng::keyed(SEED, &[])), None)
    };
    let end = Instant::now() + PATIENCE;
    let is_late = || if Instant::now() < end { Ok(()) } else { Err(bug("the receiver of the bench gives no credits", "60 s")) };
    while !wire.is_ready() {
        is_late()?;
        std::thread::sleep(PAUSE);
    }
    let begun = Instant::now();
    for slice in 0..slices {
        loop {
            let mut control = lock(control);
            let Some(sender) = control.running() else { return Err(bug("the module of the bench was stopped", "by nobody")) };
            if sender.has_credit(slice) {
                let image = &images[(slice % images.len() as u64) as usize];
                let sent = sender.slice(slice, image, 0, &mut |packet| wire.send(packet));
                sent.map_err(|why| bug("a slice cannot be sent", why))?;
                break;
            }
            drop(control);
            is_late()?;
            // Credits come by other threads, which need a processor too.
            std::thread::sleep(PAUSE);
        }
    }
    if let Some(sender) = lock(control).sender() {
        sender.end(0, &mut |packet| wire.send(packet));
    }
    Ok(begun)
}

/// The receiver; returns when the last image was taken.
fn take(
    args: &ReceiverArgs,
    member: &telegram::Name,
    control: &Mutex<ReceiverControl>,
    memory: &mut Memory,
    slices: u64,
) -> Result<(Instant, Tally), Failure> {
    let end = Instant::now() + PATIENCE;
    let Some(mut run) = Run::begin(args, member, control, memory)? else {
        return Err(bug("the receiver of the bench was not started", "it has no run"));
    };
    loop {
        run.take_shared(memory);
        run.serve(memory)?;
        let tally = run.tally();
        let now = Instant::now();
        if tally.taken() >= slices || now > end {
            run.close(memory);
            return Ok((now, tally));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_images_come_run_after_run() {
        let setting = Setting { width: 40, height: 30, packet_bytes: 1000, slots: 4 };
        let images = setting.images(20);
        let mut system = System::new(setting).unwrap();
        for compares in [true, false, true] {
            let measured = system.transfer(&images, 20, compares).unwrap();
            assert!(measured.is_right && measured.seconds > 0.0, "{measured:?}");
        }
        let wrong: Vec<_> = images.iter().rev().cloned().collect();
        assert!(!system.transfer(&wrong, 20, true).unwrap().is_right, "other pixels than the slices have");
    }
}
