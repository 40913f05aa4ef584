//! The workers: join the parts of an image, change it, pack it. Images are numbered on their way in and committed in
//! that order.

use super::join::{Joined, Joiner};
use super::pieces::PieceJoiner;
use super::rules::io::{Done, Job};
use super::spec::{Join, SeriesSpec};
use super::transform::Transform;
use crate::contain::contain;
use crate::unpack::{unpack_pieces, unpacked};
use bytes::Bytes;
use crossbeam_channel::{Receiver, Sender};
use konkordia_core::array::{Array, Packing};
use konkordia_core::geometry::Orientation;
use konkordia_core::image::{Channel, CommittedImage};
use konkordia_core::plan::Compression;
use konkordia_kernels::Isa;
use konkordia_kernels::transform::{self, PackScratch, UnpackScratch};

/// Joins parts.
enum Joining {
    Modules(Joiner),
    Pieces(Box<PieceJoiner>),
}

impl Joining {
    fn new(join: &Join, isa: Isa) -> Option<Self> {
        match join {
            Join::Balanced => None,
            Join::PerModule { placements, rows, columns } => {
                Some(Self::Modules(Joiner::new(isa, placements.clone(), (*rows, *columns))))
            }
            Join::Pieces => Some(Self::Pieces(Box::new(PieceJoiner::new(isa)))),
        }
    }

    fn join(&mut self, parts: &[Vec<Channel>]) -> Joined {
        match self {
            Self::Modules(joiner) => joiner.join(parts),
            Self::Pieces(joiner) => joiner.join(parts),
        }
    }
}

/// What one worker thread owns.
pub(crate) struct Worker<'a> {
    joiner: Option<Joining>,
    transform: Option<Box<dyn Transform>>,
    spec: &'a SeriesSpec,
    isa: Isa,
    pack: PackScratch,
    unpack: UnpackScratch,
    /// Pixels of the last image that was checked.
    checked: Vec<u8>,
}

/// True if images need workers.
pub(crate) fn is_needed(spec: &SeriesSpec) -> bool {
    spec.transform.is_some() || spec.compression.is_some() || spec.join.is_modular() || spec.sum_frames > 1 || spec.check_pixels
}

impl<'a> Worker<'a> {
    pub fn new(spec: &'a SeriesSpec) -> Self {
        let isa = Isa::detect();
        Self {
            joiner: Joining::new(&spec.join, isa),
            transform: spec.transform.as_ref().map(|make| make()),
            spec,
            isa,
            pack: PackScratch::new(),
            unpack: UnpackScratch::new(isa),
            checked: Vec::new(),
        }
    }

    /// Works until no more jobs can come.
    pub fn run(mut self, jobs: &Receiver<Job>, done: &Sender<Done>) {
        for job in jobs {
            let (ticket, number) = (job.ticket, job.image.number);
            let mut result = contain(|| self.work(job)).unwrap_or_else(|panic| {
                // What the panic left behind is not used again.
                self = Self::new(self.spec);
                let why = Some(format!("its pixels could not be processed, please report this text: {panic}"));
                Done { ticket, image: CommittedImage::lost(number), unreadable: u64::MAX, why }
            });
            result.image.converted_ns = self.spec.clock_began.elapsed().as_nanos() as u64;
            if done.send(result).is_err() {
                return;
            }
        }
    }

    fn work(&mut self, job: Job) -> Done {
        let Job { ticket, mut image, parts, turn } = job;
        let (mut unreadable, mut why) = (0, None);
        if let Some(joiner) = &mut self.joiner {
            let joined = joiner.join(&parts);
            (image.channels, unreadable, why) = (joined.channels, joined.unreadable, joined.why);
        }
        if image.channels.is_empty() {
            return Done { ticket, image, unreadable, why };
        }
        // `change` takes the image, because one that cannot be read is lost anyway.
        let number = image.number;
        match self.change(image, turn) {
            Ok(image) => Done { ticket, image, unreadable, why },
            Err(why) => Done { ticket, image: CommittedImage::lost(number), unreadable: u64::MAX, why: Some(why) },
        }
    }

    fn change(&mut self, image: CommittedImage, turn: Orientation) -> Result<CommittedImage, String> {
        if self.spec.check_pixels {
            image.channels.iter().try_for_each(|channel| self.check(&channel.array))?;
        }
        let came_packed = image.channels.iter().any(|channel| channel.array.packing != Packing::None);
        let mut image = match &mut self.transform {
            Some(transform) => transform.run(image, turn)?,
            None => image,
        };
        if self.spec.sum_frames > 1 {
            for channel in &mut image.channels {
                channel.array = plain(&channel.array, &mut self.unpack)?;
            }
            return Ok(image);
        }
        for channel in &mut image.channels {
            let is_one = channel.array.pieces.len() == 1 || self.spec.join == Join::Pieces;
            let (compression, is_so) = match self.spec.compression {
                Some(compression) => (compression, channel.array.packing == compression.packing() && is_one),
                // Images that came packed and that the transformation has unpacked are packed again.
                None => (Compression::BSLZ4, !came_packed || channel.array.packing != Packing::None),
            };
            if !is_so {
                channel.array = self.repack(&channel.array, compression)?;
            }
        }
        Ok(image)
    }

    /// Checks that the array unpacks to as many pixels as its shape says.
    fn check(&mut self, array: &Array) -> Result<(), String> {
        let bytes = usize::try_from(array.unpacked_bytes()).map_err(|_| "the array is too large")?;
        self.checked.resize(bytes, 0);
        unpack_pieces(array, &mut self.checked, &mut self.unpack)
    }

    fn repack(&mut self, array: &Array, compression: Compression) -> Result<Array, String> {
        let (shape, element) = (array.shape, array.element);
        let plain = unpacked(array, &mut self.unpack)?;
        let mut out = Vec::new();
        let data = if compression == Compression::None {
            plain
        } else {
            transform::compress(compression, self.isa, element, &plain, &mut out, &mut self.pack)?;
            Bytes::from(out)
        };
        Ok(Array { shape, element, packing: compression.packing(), pieces: vec![data] })
    }
}

/// The array with each of its pieces unpacked, for summing.
fn plain(array: &Array, scratch: &mut UnpackScratch) -> Result<Array, String> {
    if array.element.is_packed() {
        let name = array.element.name();
        return Err(format!("pixels of type {name} cannot be added: set transform.unpack = \"{name}\""));
    }
    let shape = array.piece_shape().ok_or_else(|| format!("{} pieces do not make an array", array.pieces.len()))?;
    let piece = |piece: &Bytes| {
        unpacked(&Array { shape, element: array.element, packing: array.packing, pieces: vec![piece.clone()] }, scratch)
    };
    let pieces = array.pieces.iter().map(piece).collect::<Result<_, _>>()?;
    Ok(Array { packing: Packing::None, pieces, ..array.clone() })
}
