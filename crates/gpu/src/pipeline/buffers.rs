//! The memory of a pipeline, and the steps that work on it.

use super::spec::{Output, Spec};
use crate::device::{Argument, Device, Event, Launch, Memory, Node, Number, Pinned, PinnedSpan, Result, Span, Step};
use crate::layout::NO_FRAME;
use crate::program::{BLOCK_BYTES, SLOT_BYTES, STATS_NUMBERS};

/// Most blocks of a grid that goes over pixels: each thread takes several.
const PIXEL_BLOCKS_MAX: u32 = 2048;

/// Where the words of frames come from.
#[derive(Clone, Copy)]
pub enum Input {
    /// The host brings them.
    Words,
    /// The device takes them from the memory in which the host received them. The host says where frames begin.
    Received { frames: Memory, bytes: usize, source: Memory },
}

impl Input {
    /// Bytes that the host gives for a frame.
    pub fn frame_bytes(self, spec: &Spec) -> usize {
        match self {
            Self::Words => spec.pixels() * 2,
            Self::Received { .. } => size_of_val(&NO_FRAME),
        }
    }

    /// Bytes that the host gives for a batch.
    pub fn batch_bytes(self, spec: &Spec) -> usize {
        spec.frames as usize * self.frame_bytes(spec)
    }
}

/// Memory of the device for one batch.
pub struct Set {
    input: Input,
    /// What the host gives.
    given: Memory,
    /// The words of the frames; the same if the host gives them.
    words: Memory,
    images: Memory,
    counts: Memory,
    keep: Memory,
    stats: Option<Memory>,
    of_output: OfOutput,
}

enum OfOutput {
    Pixels,
    Chunks { slots: Memory, sizes: Memory, places: Memory, chunks: Memory, lengths: Memory },
    Sparse { counts: Memory, places: Memory, columns: Memory, values: Memory },
}

/// Memory of the host for one batch, and what is known of it.
pub struct Slot {
    /// What the host gives.
    pub given: Pinned,
    pub meta: Pinned,
    pub out: Pinned,
    pub in_done: Event,
    pub work_done: Event,
    pub out_done: Event,
}

/// The constants on the device.
pub struct Constants {
    pub planes: Planes,
    pub usable: Memory,
}

/// See `Calibration`.
pub enum Planes {
    Float { pedestal: Memory, factor: Memory },
    Fixed { pedestals: [Memory; 3], factor: Memory, shift: [u8; 3] },
}

/// At most two copies.
pub type Copies = [Option<Step>; 2];
/// Copies of what the host must know of a batch.
pub type MetaCopies = [Option<Step>; 3];

pub fn whole(memory: Memory, bytes: usize) -> Span {
    Span { memory, offset: 0, bytes }
}

fn part(memory: Memory, offset: usize, bytes: usize) -> Span {
    Span { memory, offset, bytes }
}

impl Slot {
    pub fn new(device: &mut dyn Device, spec: &Spec, input: Input) -> Result<Self> {
        Ok(Self {
            given: device.allocate_pinned(input.batch_bytes(spec))?,
            meta: device.allocate_pinned(spec.meta_bytes())?,
            out: device.allocate_pinned(spec.frames as usize * spec.returned_bytes_max())?,
            in_done: device.event()?,
            work_done: device.event()?,
            out_done: device.event()?,
        })
    }
}

impl Set {
    pub fn new(device: &mut dyn Device, spec: &Spec, input: Input) -> Result<Self> {
        let frames = spec.frames as usize;
        let of_output = match spec.output {
            Output::Pixels => OfOutput::Pixels,
            Output::Chunks => {
                let blocks = frames * spec.blocks();
                OfOutput::Chunks {
                    slots: device.allocate(blocks * SLOT_BYTES)?,
                    sizes: device.allocate(blocks * 4)?,
                    places: device.allocate(blocks * 4)?,
                    chunks: device.allocate(frames * spec.chunk_bytes_max())?,
                    lengths: device.allocate(frames * 4)?,
                }
            }
            Output::Sparse { room } => {
                let (rows, room) = (spec.rows as usize, room as usize);
                OfOutput::Sparse {
                    counts: device.allocate(frames * rows * 4)?,
                    places: device.allocate(frames * (rows + 1) * 4)?,
                    columns: device.allocate(frames * room * 4)?,
                    values: device.allocate(frames * room * spec.pixel.bytes())?,
                }
            }
        };
        let words = device.allocate(spec.words_bytes())?;
        let given = match input {
            Input::Words => words,
            Input::Received { .. } => device.allocate(input.batch_bytes(spec))?,
        };
        Ok(Self {
            input,
            given,
            words,
            images: device.allocate(frames * spec.image_bytes())?,
            counts: device.allocate(frames * 4)?,
            keep: device.allocate(frames)?,
            stats: spec.stats_of.map(|_| device.allocate(frames * spec.stats_numbers() * 8)).transpose()?,
            of_output,
        })
    }

    /// What is done once when the pipeline is armed: without a veto all images are kept.
    pub fn first_step(&self, spec: &Spec) -> Step {
        Step::Fill { what: whole(self.keep, spec.frames as usize), byte: 1 }
    }

    /// Copies what the host gives to the device.
    pub fn copy_in(&self, spec: &Spec, slot: &Slot) -> Step {
        let bytes = self.input.batch_bytes(spec);
        Step::CopyIn { from: PinnedSpan { memory: slot.given, offset: 0, bytes }, to: whole(self.given, bytes) }
    }

    /// From words to what is kept and, with `packs`, to what comes back of it.
    pub fn work(&self, device: &mut dyn Device, spec: &Spec, constants: &Constants, packs: bool) -> Result<Vec<Step>> {
        let mut steps = Vec::new();
        if let Input::Received { frames, bytes, source } = self.input {
            let launch = Launch {
                kernel: "take_words".into(),
                grid: (pixel_blocks(spec), spec.frames),
                arguments: vec![
                    Argument::Read(whole(frames, bytes), 2),
                    Argument::Read(whole(self.given, self.input.batch_bytes(spec)), 8),
                    Argument::Read(whole(source, spec.pixels() * 4), 4),
                    Argument::Write(whole(self.words, spec.words_bytes()), 2),
                    number(spec.pixels()),
                ],
            };
            steps.push(Step::Launch(device.prepare(&launch)?));
        }
        steps.push(self.convert(device, spec, constants)?);
        if let (Some(stats), Some(strip_pixels)) = (self.stats, spec.stats_of) {
            let launch = Launch {
                kernel: format!("stats_{}", spec.pixel.name()),
                grid: (spec.strips() as u32, spec.frames),
                arguments: vec![
                    Argument::Read(whole(self.images, spec.frames as usize * spec.image_bytes()), spec.pixel.bytes()),
                    Argument::Write(whole(stats, spec.frames as usize * spec.strips() * STATS_NUMBERS * 8), 8),
                    number(spec.pixels()),
                    number(strip_pixels as usize),
                ],
            };
            steps.push(Step::Launch(device.prepare(&launch)?));
        }
        if let Some(above) = spec.above {
            let frames = spec.frames as usize;
            steps.push(Step::Fill { what: whole(self.counts, frames * 4), byte: 0 });
            let (pixels, bytes) = (spec.pixels(), spec.pixel.bytes());
            let count = Launch {
                kernel: format!("count_above_{}", spec.pixel.name()),
                grid: (pixel_blocks(spec).min(256), spec.frames),
                arguments: vec![
                    Argument::Read(whole(self.images, frames * spec.image_bytes()), bytes),
                    Argument::Read(whole(constants.usable, pixels), 1),
                    Argument::Number(above.level),
                    Argument::Number(above.high),
                    Argument::Write(whole(self.counts, frames * 4), 4),
                    number(pixels),
                ],
            };
            let keep = Launch {
                kernel: "keep_images".into(),
                grid: (1, 1),
                arguments: vec![
                    Argument::Read(whole(self.counts, frames * 4), 4),
                    Argument::Write(whole(self.keep, frames), 1),
                    Argument::Number(Number::U32(above.least)),
                    number(frames),
                ],
            };
            steps.push(Step::Launch(device.prepare(&count)?));
            steps.push(Step::Launch(device.prepare(&keep)?));
        }
        if packs {
            steps.extend(self.pack(device, spec, constants, 0, spec.frames)?);
        }
        Ok(steps)
    }

    fn convert(&self, device: &mut dyn Device, spec: &Spec, constants: &Constants) -> Result<Step> {
        let (pixels, frames) = (spec.pixels(), spec.frames as usize);
        let mut arguments = vec![Argument::Read(whole(self.words, spec.words_bytes()), 2)];
        let arithmetic = match constants.planes {
            Planes::Float { pedestal, factor } => {
                arguments.extend([pedestal, factor].map(|plane| Argument::Read(whole(plane, pixels * 12), 4)));
                ""
            }
            Planes::Fixed { pedestals: [g0, g1, g2], factor, shift } => {
                arguments.push(Argument::Read(whole(g0, pixels * 4), 4));
                arguments.extend([g1, g2].map(|plane| Argument::Read(whole(plane, pixels * 2), 2)));
                arguments.push(Argument::Read(whole(factor, pixels * 6), 2));
                arguments.extend(shift.map(|shift| number(shift.into())));
                "fixed_"
            }
        };
        arguments.extend([
            number(usize::from(spec.high_gain)),
            Argument::Write(whole(self.images, frames * spec.image_bytes()), spec.pixel.bytes()),
            number(pixels),
            number(frames),
        ]);
        let kernel = format!("convert_{arithmetic}{}", spec.pixel.name());
        let launch = Launch { kernel, grid: (pixel_blocks(spec), 1), arguments };
        Ok(Step::Launch(device.prepare(&launch)?))
    }

    /// Makes what comes back of images `first` .. `first + count`.
    fn pack(&self, device: &mut dyn Device, spec: &Spec, constants: &Constants, first: u32, count: u32) -> Result<Vec<Step>> {
        let launches = match &self.of_output {
            OfOutput::Pixels => Vec::new(),
            OfOutput::Chunks { .. } => self.chunk_launches(spec, first, count),
            OfOutput::Sparse { .. } => self.sparse_launches(spec, constants, first, count),
        };
        launches.iter().map(|launch| device.prepare(launch).map(Step::Launch)).collect()
    }

    fn chunk_launches(&self, spec: &Spec, first: u32, count: u32) -> Vec<Launch> {
        let OfOutput::Chunks { slots, sizes, places, chunks, lengths } = self.of_output else { return Vec::new() };
        let (first, images) = (first as usize, count as usize);
        let (blocks, bytes, room) = (spec.blocks(), spec.image_bytes(), spec.chunk_bytes_max());
        let of_images = |memory, each: usize| part(memory, first * each, images * each);
        let pixels = Argument::Read(of_images(self.images, bytes), 1);
        let (image_bytes, element) = (Argument::Number(Number::U64(bytes as u64)), number(spec.pixel.bytes()));
        let chunks = Argument::Write(of_images(chunks, room), 1);
        let room = Argument::Number(Number::U64(room as u64));
        let (sizes, places, slots) =
            (of_images(sizes, blocks * 4), of_images(places, blocks * 4), of_images(slots, blocks * SLOT_BYTES));
        let lengths = of_images(lengths, 4);
        let launch = |kernel: &str, grid, arguments| Launch { kernel: kernel.into(), grid, arguments };
        let of_blocks = (blocks as u32, count);
        vec![
            launch(
                "bslz4_blocks",
                of_blocks,
                vec![pixels, image_bytes, element, Argument::Write(slots, 1), Argument::Write(sizes, 4)],
            ),
            launch(
                "chunk_places",
                (count, 1),
                vec![
                    Argument::Read(sizes, 4),
                    number(blocks),
                    image_bytes,
                    element,
                    number(BLOCK_BYTES),
                    Argument::Write(places, 4),
                    chunks,
                    room,
                    Argument::Write(lengths, 4),
                ],
            ),
            launch(
                "chunk_gather",
                of_blocks,
                vec![
                    pixels,
                    image_bytes,
                    element,
                    Argument::Read(slots, 1),
                    Argument::Read(sizes, 4),
                    Argument::Read(places, 4),
                    number(blocks),
                    chunks,
                    room,
                    Argument::Read(lengths, 4),
                ],
            ),
        ]
    }

    fn sparse_launches(&self, spec: &Spec, constants: &Constants, first: u32, count: u32) -> Vec<Launch> {
        let (OfOutput::Sparse { counts, places, columns, values }, Some(above), Output::Sparse { room }) =
            (&self.of_output, spec.above, spec.output)
        else {
            return Vec::new();
        };
        let (first, images, element, rows) = (first as usize, count as usize, spec.pixel.bytes(), spec.rows as usize);
        let of_images = |memory: Memory, each: usize| part(memory, first * each, images * each);
        let pixels = Argument::Read(of_images(self.images, spec.image_bytes()), element);
        let usable = Argument::Read(whole(constants.usable, spec.pixels()), 1);
        let (level, high) = (Argument::Number(above.level), Argument::Number(above.high));
        let width = number(spec.columns as usize);
        let (counts, places) = (of_images(*counts, rows * 4), of_images(*places, (rows + 1) * 4));
        let columns = Argument::Write(of_images(*columns, room as usize * 4), 4);
        let values = Argument::Write(of_images(*values, room as usize * element), element);
        let of_rows = (spec.rows, count);
        vec![
            Launch {
                kernel: format!("row_counts_{}", spec.pixel.name()),
                grid: of_rows,
                arguments: vec![pixels, usable, level, high, Argument::Write(counts, 4), width],
            },
            Launch {
                kernel: "row_places".into(),
                grid: (count, 1),
                arguments: vec![Argument::Read(counts, 4), number(rows), Argument::Write(places, 4)],
            },
            Launch {
                kernel: format!("collect_{}", spec.pixel.name()),
                grid: of_rows,
                arguments: vec![
                    pixels,
                    usable,
                    level,
                    high,
                    Argument::Read(places, 4),
                    columns,
                    values,
                    width,
                    number(room as usize),
                ],
            },
        ]
    }

    /// Copies what the host must know of a batch: which images are kept, their numbers, and their statistics.
    pub fn meta_copies(&self, spec: &Spec, slot: &Slot) -> MetaCopies {
        let frames = spec.frames as usize;
        let out = |memory, offset, bytes| Step::CopyOut {
            from: whole(memory, bytes),
            to: PinnedSpan { memory: slot.meta, offset, bytes },
        };
        let numbers = match self.of_output {
            OfOutput::Pixels => None,
            OfOutput::Chunks { lengths, .. } => Some(lengths),
            OfOutput::Sparse { places, .. } => Some(places),
        };
        let of_numbers = |memory| out(memory, spec.numbers_offset(), frames * spec.numbers() * 4);
        let of_stats = |memory| out(memory, spec.stats_offset(), frames * spec.stats_numbers() * 8);
        [Some(out(self.keep, 0, frames)), numbers.map(of_numbers), self.stats.map(of_stats)]
    }

    /// Copies image `n` to the host, of which `used` elements (bytes of its chunk, or pixels) are there.
    pub fn copy_out(&self, spec: &Spec, slot: &Slot, n: usize, used: usize) -> Copies {
        let base = n * spec.returned_bytes_max();
        let copy = |memory, from, at, bytes| {
            let to = PinnedSpan { memory: slot.out, offset: base + at, bytes };
            (bytes > 0).then_some(Step::CopyOut { from: part(memory, from, bytes), to })
        };
        match (&self.of_output, spec.output) {
            (OfOutput::Chunks { chunks, .. }, _) => [copy(*chunks, n * spec.chunk_bytes_max(), 0, used), None],
            (OfOutput::Sparse { columns, values, .. }, Output::Sparse { room }) => {
                let (room, element) = (room as usize, spec.pixel.bytes());
                let values = copy(*values, n * room * element, room * 4, used * element);
                [copy(*columns, n * room * 4, 0, used * 4), values]
            }
            _ => [copy(self.images, n * spec.image_bytes(), 0, spec.image_bytes()), None],
        }
    }

    /// The graph of a batch: in, work, and for each image that is kept, packing and return.
    pub fn graph(&self, device: &mut dyn Device, spec: &Spec, constants: &Constants, slot: &Slot) -> Result<Vec<Node>> {
        let mut nodes = vec![Node::Always(self.copy_in(spec, slot))];
        nodes.extend(self.work(device, spec, constants, false)?.into_iter().map(Node::Always));
        for n in 0..spec.frames {
            let mut steps = self.pack(device, spec, constants, n, 1)?;
            steps.extend(self.copy_used(spec, slot, n));
            nodes.push(Node::If { keep: self.keep, index: n, steps });
        }
        nodes.extend(self.meta_copies(spec, slot).into_iter().flatten().map(Node::Always));
        Ok(nodes)
    }

    /// As [`Self::copy_out`], where the device knows how much is used.
    fn copy_used(&self, spec: &Spec, slot: &Slot, n: u32) -> impl Iterator<Item = Step> + use<> {
        let at = n as usize;
        let most = match spec.output {
            Output::Pixels => 0,
            Output::Chunks => spec.chunk_bytes_max(),
            Output::Sparse { room } => room as usize,
        };
        let numbers = match &self.of_output {
            OfOutput::Pixels => None,
            OfOutput::Chunks { lengths, .. } => Some((*lengths, n, [1, 0])),
            OfOutput::Sparse { places, .. } => Some((*places, n * (spec.rows + 1) + spec.rows, [4, spec.pixel.bytes() as u32])),
        };
        let copies = self.copy_out(spec, slot, at, most).into_iter().flatten().enumerate();
        copies.map(move |(which, step)| match (step, numbers) {
            (Step::CopyOut { from, to }, Some((used, index, scales))) => {
                Step::CopyUsed { from, to, used, index, scale: scales[which] }
            }
            (step, _) => step,
        })
    }
}

/// Blocks of a grid that goes over the pixels of an image.
fn pixel_blocks(spec: &Spec) -> u32 {
    (spec.pixels() as u32).div_ceil(crate::program::BLOCK_THREADS).min(PIXEL_BLOCKS_MAX)
}

fn number(number: usize) -> Argument {
    Argument::Number(Number::U32(number as u32))
}
