//! Trains of all modules, by train id and in its order.
//!
//! A train is handed on when all modules are there, when it has waited for the time-out, or when as many later trains
//! have begun as may be open; and not before the trains with lower ids. What is handed on is whole: every module that
//! is there is a train that [`konkordia_wire::xfel_train::Train`] accepts, also if packets are missing. What is missing
//! is said: a module that is not there is `None` at its place, [`flags`] say what is wrong with each module,
//! [`ModuleTrain::missing`] which pixels did not arrive, and [`BuiltTrain::lost_before`] how many trains nobody saw.

use super::channel::ModuleTrain;
use super::spec::TrainSpec;
use konkordia_wire::xfel_train::{MAGIC_END, Sections, Train, TrainNumbers, write_end, write_header};
use std::collections::{BTreeMap, VecDeque};

/// What is wrong with a module of a train; 0 = nothing. These bits are ours, nobody published any.
pub mod flags {
    /// Nothing of it came in time.
    pub const MISSING: u32 = 1;
    /// Packets are missing; the images concerned have [`super::IMAGE_INCOMPLETE`] in their state.
    pub const PARTIAL: u32 = 2;
    /// The packet with the header is missing: the id follows from the frame number, the rest from the other modules.
    pub const HEADER_INFERRED: u32 = 4;
    /// Cell ids, pulse ids, states or lengths did not all arrive: they are those of another module.
    pub const LISTS_INFERRED: u32 = 8;
    /// It came, but with another number of images than most modules, and is left out.
    pub const OTHER_COUNT: u32 = 16;
    /// It came, but nobody knows its cell and pulse ids, and it is left out.
    pub const NO_LISTS: u32 = 32;
    /// Its pulse ids are not those of the other modules.
    pub const PULSES_DIFFER: u32 = 64;
    /// It came twice with this id; the first one is kept.
    pub const DUPLICATE: u32 = 128;
    /// It does not end with the number that marks the end of a train.
    pub const NO_END: u32 = 256;
    /// A program of the user rejected the train; the pixels were there.
    pub const REJECTED: u32 = 512;
    /// Names in the order of the bits.
    pub const NAMES: [&str; 10] = [
        "missing",
        "partial",
        "header_inferred",
        "lists_inferred",
        "other_count",
        "no_lists",
        "pulses_differ",
        "duplicate",
        "no_end",
        "rejected",
    ];
    /// Bits of modules that are not there.
    pub const ABSENT: u32 = MISSING | OTHER_COUNT | NO_LISTS;
}

/// Bit of the state of an image some of whose pixels did not arrive. The bit is ours.
pub const IMAGE_INCOMPLETE: u16 = 1 << 15;

/// How trains are put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuilderSpec {
    /// The trains of a module.
    pub train: TrainSpec,
    /// Modules of the detector.
    pub modules: usize,
    /// Most trains that wait for modules at the same time.
    pub open_max: usize,
    /// Longest time from the first module of a train to the last one.
    pub timeout_us: u64,
    /// Brings pixels into the order of the image.
    pub is_ordered: bool,
}

/// The account of a builder: trains of modules by what became of them, and trains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BuilderCounts {
    /// Trains of modules that are part of a train.
    pub placed: u64,
    /// Trains of modules whose train was handed on before.
    pub late: u64,
    /// Trains of modules that were there already.
    pub duplicate: u64,
    /// Trains of modules that were left out, because they do not fit to the others.
    pub left_out: u64,
    /// Trains with all modules and all packets.
    pub complete: u64,
    /// Trains of which something is missing.
    pub incomplete: u64,
    /// Ids between those of two trains of which nothing came.
    pub lost: u64,
    /// Modules that are missing in trains that were handed on.
    pub modules_missing: u64,
}

/// A train of all modules.
#[derive(Debug)]
pub struct BuiltTrain {
    /// Id of the train.
    pub train_id: u64,
    /// Ids before it, up to the train before, of which nothing came.
    pub lost_before: u64,
    /// Images of each module.
    pub images: usize,
    /// The modules; `None` = not there. Each is a whole train.
    pub modules: Vec<Option<ModuleTrain>>,
    /// What is wrong with each module ([`flags`]).
    pub flags: Vec<u32>,
    /// What others said about this train.
    pub injected: Vec<(String, f64)>,
    /// Trains of modules that are not part of it; their buffers go back.
    pub left_out: Vec<(usize, ModuleTrain)>,
}

impl BuiltTrain {
    /// The checked train of a module; `None` if it is not there.
    pub fn module(&self, module: usize, spec: &TrainSpec) -> Option<Train<'_>> {
        let found = self.modules.get(module)?.as_ref()?;
        Train::new_checked(&found.bytes[..found.length_bytes()?], spec.image_bytes()).ok()
    }

    /// True if nothing is missing or wrong.
    pub fn is_complete(&self) -> bool {
        self.lost_before == 0 && self.flags.iter().all(|flags| *flags == 0)
    }
}

/// A train that waits for modules.
#[derive(Debug)]
struct Open {
    modules: Vec<Option<ModuleTrain>>,
    flags: Vec<u32>,
    begun_us: u64,
}

/// Puts the modules of trains together.
#[derive(Debug)]
pub struct Builder {
    spec: BuilderSpec,
    open: BTreeMap<u64, Open>,
    last_id: Option<u64>,
    ready: VecDeque<BuiltTrain>,
    scratch: Vec<[u8; 2]>,
    counts: BuilderCounts,
}

impl Builder {
    /// A builder without trains.
    ///
    /// # Panics
    /// If there is no module, or no train may be open.
    pub fn new(spec: BuilderSpec) -> Self {
        assert!(spec.modules > 0 && spec.open_max > 0, "modules and room for trains");
        let ready = VecDeque::with_capacity(spec.open_max + 1);
        Self { spec, open: BTreeMap::new(), last_id: None, ready, scratch: Vec::new(), counts: BuilderCounts::default() }
    }

    /// The account so far.
    pub fn counts(&self) -> &BuilderCounts {
        &self.counts
    }

    /// Takes the train of a module that came at `now_us`. Gives it back if it is not taken, because its train was
    /// handed on before, or has this module already.
    ///
    /// # Panics
    /// If the detector has no such module.
    #[must_use = "the buffer goes back to its channel"]
    pub fn offer(&mut self, module: usize, train: ModuleTrain, now_us: u64) -> Option<ModuleTrain> {
        let id = train.train_id;
        if self.last_id.is_some_and(|last| id <= last) {
            self.counts.late += 1;
            return Some(train);
        }
        let modules = self.spec.modules;
        let empty = || Open { modules: vec![None; modules], flags: vec![0; modules], begun_us: now_us };
        let open = self.open.entry(id).or_insert_with(empty);
        if open.modules[module].is_some() {
            open.flags[module] |= flags::DUPLICATE;
            self.counts.duplicate += 1;
            return Some(train);
        }
        open.modules[module] = Some(train);
        self.counts.placed += 1;
        while self.open.len() > self.spec.open_max {
            self.close_lowest();
        }
        self.tick(now_us);
        None
    }

    /// Hands on what is complete or has waited for the time-out at `now_us`.
    pub fn tick(&mut self, now_us: u64) {
        while let Some(first) = self.open.first_entry() {
            let open = first.get();
            let is_due = now_us.saturating_sub(open.begun_us) >= self.spec.timeout_us;
            if !is_due && open.modules.iter().any(Option::is_none) {
                break;
            }
            self.close_lowest();
        }
    }

    /// Hands all trains on, because nothing will come any more.
    pub fn finish(&mut self) {
        while !self.open.is_empty() {
            self.close_lowest();
        }
    }

    /// The next train.
    pub fn pop(&mut self) -> Option<BuiltTrain> {
        self.ready.pop_front()
    }

    fn close_lowest(&mut self) {
        let Some((train_id, Open { modules, flags, .. })) = self.open.pop_first() else { return };
        let lost_before = self.last_id.map_or(0, |last| train_id - last - 1);
        self.last_id = Some(train_id);
        let (images, injected, left_out) = (0, Vec::new(), Vec::new());
        let mut train = BuiltTrain { train_id, lost_before, images, modules, flags, injected, left_out };
        complete(&self.spec, &mut train, &mut self.scratch);
        self.counts.lost = self.counts.lost.saturating_add(lost_before);
        self.counts.left_out += train.left_out.len() as u64;
        self.counts.modules_missing += train.modules.iter().filter(|module| module.is_none()).count() as u64;
        let is_whole = train.flags.iter().all(|flags| *flags == 0);
        *if is_whole { &mut self.counts.complete } else { &mut self.counts.incomplete } += 1;
        self.ready.push_back(train);
    }
}

/// Makes every module a whole train, or leaves it out.
fn complete(spec: &BuilderSpec, train: &mut BuiltTrain, scratch: &mut Vec<[u8; 2]>) {
    train.images = most_images(&train.modules);
    for module in 0..spec.modules {
        let Some(found) = &mut train.modules[module] else {
            train.flags[module] |= flags::MISSING;
            continue;
        };
        let shape = *found.shape.get_or_insert(spec.train.shape(train.images, 0));
        if shape.images != train.images {
            leave_out(train, module, flags::OTHER_COUNT);
        }
    }
    let has_lists = |found: &ModuleTrain, at: &Sections| found.has_bytes(at.cell_ids..at.detector_specific);
    let donor = train.modules.iter().flatten().find_map(|found| {
        let at = found.shape?.sections()?;
        has_lists(found, &at).then(|| (found.bytes[at.cell_ids..at.detector_specific].to_vec(), at, found.numbers))
    });
    let known = train.modules.iter().flatten().find_map(|found| found.numbers);
    for module in 0..spec.modules {
        let Some(found) = &mut train.modules[module] else { continue };
        let Some(at) = found.shape.and_then(|shape| shape.sections()) else { continue };
        let has_own = has_lists(found, &at);
        let Some((lists, donor_at, _)) = &donor else {
            leave_out(train, module, flags::NO_LISTS);
            continue;
        };
        let pulses = donor_at.pulse_ids - donor_at.cell_ids..donor_at.states - donor_at.cell_ids;
        if !has_own {
            train.flags[module] |= flags::LISTS_INFERRED;
            found.bytes[at.cell_ids..at.detector_specific].copy_from_slice(lists);
        } else if found.bytes[at.pulse_ids..at.states] != lists[pulses] {
            train.flags[module] |= flags::PULSES_DIFFER;
        }
        train.flags[module] |= mend(spec, found, &at, (train.train_id, module), known);
        found.finish_pixels(&spec.train, spec.is_ordered, scratch);
        mark_incomplete(found, &at);
    }
}

/// The number of images that most modules have; the higher one, if two numbers are equally common.
fn most_images(modules: &[Option<ModuleTrain>]) -> usize {
    let mut votes = BTreeMap::new();
    for shape in modules.iter().flatten().filter_map(|module| module.shape) {
        *votes.entry(shape.images).or_insert(0u32) += 1;
    }
    votes.into_iter().max_by_key(|(images, votes)| (*votes, *images)).map_or(0, |(images, _)| images)
}

fn leave_out(train: &mut BuiltTrain, module: usize, flag: u32) {
    train.flags[module] |= flag;
    if let Some(found) = train.modules[module].take() {
        train.left_out.push((module, found));
    }
}

/// Writes a header and an end where they did not arrive; says what is wrong with the module.
fn mend(
    spec: &BuilderSpec,
    found: &mut ModuleTrain,
    at: &Sections,
    (train_id, module): (u64, usize),
    known: Option<TrainNumbers>,
) -> u32 {
    let mut flags = if found.is_complete() { 0 } else { flags::PARTIAL };
    if found.is_id_inferred {
        flags |= flags::HEADER_INFERRED;
        // What no header says is that of another module; a link is nobody else's.
        let of_another = known.map_or((2, 1), |numbers| numbers.version);
        let data_id = known.map_or(0, |numbers| numbers.data_id);
        let numbers = found.numbers.unwrap_or(TrainNumbers {
            version: of_another,
            train_id,
            data_id,
            link_id: 0xFFFF_FFFF << 32 | module as u64,
        });
        let shape = found.shape.unwrap_or(spec.train.shape(0, 0));
        write_header(&mut found.bytes, &TrainNumbers { train_id, ..numbers }, &shape);
    }
    let end = at.end - 8..at.end;
    if found.bytes[end.clone()] != MAGIC_END.to_le_bytes() {
        if found.has_bytes(end) {
            flags |= flags::NO_END;
        }
        write_end(&mut found.bytes[..at.end]);
    }
    flags
}

/// Marks the states of images with missing pixels.
fn mark_incomplete(found: &mut ModuleTrain, at: &Sections) {
    for (image, _) in &found.missing {
        let state = &mut found.bytes[at.states + 2 * image + 1];
        *state |= (IMAGE_INCOMPLETE >> 8) as u8;
    }
}
