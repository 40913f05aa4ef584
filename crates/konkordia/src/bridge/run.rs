//! `konkordia bridge run`: packets of UDP ports into the slots of a file, by a program. This is the bridge of PSI in
//! software: one thread receives, copies each packet to its places, and writes finished frames to the file.

use super::args::{MissingArg, RunArgs};
use super::programs::table_of;
use super::receivers::{Received, Receivers};
use crate::console;
use crate::run::signals;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::text;
use konkordia_fabric::bridge::{Account, AddressTable, Bridge, FrameState, Missing, Options, Store, Verdict};
use konkordia_memory::pages::Pages;
use serde_json::{Value, json};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Longest wait for a datagram, shared by the ports.
const WAIT: Duration = Duration::from_millis(2);
/// Bytes of the mask of a tile.
const MASK_BYTES: u64 = 64;

/// The files of a store.
struct Files {
    store: File,
    store_path: PathBuf,
    masks: File,
    masks_path: PathBuf,
}

impl Files {
    fn create(path: &Path, store_bytes: u64) -> Result<Self, Failure> {
        let mut masks_path = path.as_os_str().to_owned();
        masks_path.push(".masks");
        let masks_path = PathBuf::from(masks_path);
        let open = |path: &Path| {
            let options = File::options().read(true).write(true).create(true).truncate(true).open(path);
            options.map_err(|error| Failure::io("cannot create", path, &error))
        };
        let (store, masks) = (open(path)?, open(&masks_path)?);
        store.set_len(store_bytes).map_err(|error| Failure::io("cannot make room in", path, &error))?;
        Ok(Self { store, store_path: path.to_owned(), masks, masks_path })
    }

    /// Writes all frames that are finished, and frees their slots.
    fn write_finished(&self, bridge: &mut Bridge, store: &mut Store<'_>) -> Result<(), Failure> {
        while let Some(closed) = bridge.take() {
            let at = bridge.table().slot_start(closed.slot);
            let pixels = store.slot(bridge.table(), closed.slot);
            self.store.write_all_at(pixels, at).map_err(|error| Failure::io("cannot write", &self.store_path, &error))?;
            let tiles = bridge.table().tiles();
            let masks: Vec<u8> = (0..tiles).flat_map(|tile| bridge.mask_bytes(&closed, tile)).collect();
            let at = u64::from(closed.slot) * tiles as u64 * MASK_BYTES;
            self.masks.write_all_at(&masks, at).map_err(|error| Failure::io("cannot write", &self.masks_path, &error))?;
            if let FrameState::Partial { missing_packets } = closed.state {
                console::note(&format!("frame {}: {missing_packets} packets are missing", closed.frame));
            }
            bridge.release(closed.image);
        }
        Ok(())
    }
}

/// `konkordia bridge run`
pub fn command(args: &RunArgs) -> Result<Exit, Failure> {
    let table = table_of(&args.program)?;
    let interrupted = signals::stop_flag()?;
    let mut receivers = Receivers::open(args, &table)?;
    if receivers.count() == 0 {
        let why = "its tiles have no ports";
        return Err(Failure::new(Exit::Usage, format!("{} names no port", args.program), why, "give its tiles ports"));
    }
    let files = Files::create(&args.store, table.store_bytes())?;
    let mut bytes = Pages::new(table.store_bytes() as usize).map_err(|error| no_memory(&table, &error))?;
    let too_short = |why: String| Failure::new(Exit::Bug, "the store is too short", why, "report this");
    let mut store = Store::new(&table, &mut bytes).map_err(too_short)?;
    let missing = match args.missing {
        MissingArg::Discard => Missing::Discard,
        MissingArg::Keep => Missing::Keep,
        MissingArg::Pad => Missing::Pad,
    };
    let options = Options { missing, interrupt_frames: args.interrupt, first_frame: args.first_frame };
    let mut bridge = Bridge::new(table, options);
    bridge.prepare(&mut store);
    for note in receivers.notes() {
        console::note(note);
    }
    console::to_stderr(&format!("{} ports of {}; Ctrl-C ends it", receivers.count(), args.address));
    let (mut has_interrupt, mut addressed_by_kernel) = (false, 0);
    let mut last_packet: Option<Instant> = None;
    let wait = WAIT / receivers.count() as u32;
    loop {
        for index in 0..receivers.count() {
            let received = receivers.receive(index, wait, &mut |port, metadata, datagram| {
                let outcome = metadata.and_then(|metadata| bridge.on_metadata(&metadata, datagram, &mut store));
                has_interrupt |= match outcome {
                    Some(outcome) => outcome.interrupt.is_some(),
                    None => bridge.on_packet(port, datagram, &mut store).interrupt.is_some(),
                };
                addressed_by_kernel += u64::from(outcome.is_some());
            })?;
            if received > 0 {
                last_packet = Some(Instant::now());
            }
            if std::mem::take(&mut has_interrupt) {
                files.write_finished(&mut bridge, &mut store)?;
            }
        }
        let is_enough = args.frames.is_some_and(|frames| bridge.account().frames() >= frames);
        let is_silent = last_packet.is_some_and(|last| last.elapsed().as_secs_f64() >= args.silence);
        if is_enough || is_silent || interrupted.load(Ordering::Acquire) {
            break;
        }
    }
    bridge.end(&mut store);
    files.write_finished(&mut bridge, &mut store)?;
    Ok(report(args, bridge.account(), &receivers.account(addressed_by_kernel)))
}

/// Prints the account; complete only if nothing is missing.
fn report(args: &RunArgs, account: &Account, received: &Received) -> Exit {
    let packets: serde_json::Map<String, Value> =
        Verdict::ALL.into_iter().map(|verdict| (verdict.name().to_string(), account.of(verdict).into())).collect();
    let dropped = received.dropped;
    let is_whole = account.complete == account.frames() && dropped == 0;
    if args.json {
        let frames = json!({
            "complete": account.complete, "partial": account.partial, "discarded": account.discarded,
            "refused": account.refused, "lost": account.lost,
        });
        let report = json!({
            "event": "bridge", "store": args.store, "frames": frames, "packets": packets,
            "packets_received": account.received(), "kernel_dropped": dropped,
            "addressed_by_kernel": received.addressed_by_kernel, "refused": received.refused_json(),
        });
        console::json(&report, false);
    } else {
        let named = Verdict::ALL.into_iter().filter(|verdict| account.of(*verdict) > 0);
        let packets: Vec<String> = named.map(|v| format!("{} {}", text::count(account.of(v)), v.name())).collect();
        console::to_stdout(&format!(
            "frames   {}: {} complete, {} partial, {} discarded, {} refused, {} lost\npackets  {}: {}; the kernel dropped {}{}\nstore    {} and its .masks",
            text::count(account.frames()),
            text::count(account.complete),
            text::count(account.partial),
            text::count(account.discarded),
            text::count(account.refused),
            text::count(account.lost),
            text::count(account.received()),
            packets.join(", "),
            text::count(dropped),
            received.text(),
            args.store.display(),
        ));
    }
    if is_whole { Exit::Complete } else { Exit::Incomplete }
}

fn no_memory(table: &AddressTable, error: &std::io::Error) -> Failure {
    let what = format!("no memory for {} slots of {} bytes", table.slots(), table.slot_bytes());
    Failure::new(Exit::Io, what, konkordia_core::failure::reason(error), "write fewer slots in the program")
}
