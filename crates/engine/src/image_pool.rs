//! The images of a run that sinks hold, each with a buffer for its pixels. All memory is allocated at arm. An image is
//! free again when nobody holds it or a part of its pixels any more.

use bytes::{Bytes, BytesMut};
use konkordia_core::array::{Array, Element, Shape};
use konkordia_core::image::{Channel, CommittedImage, Packets, TileRecord};
use konkordia_core::plan::Plan;
use konkordia_core::results::ImageResults;
use konkordia_kernels::codec::Framing;
use konkordia_wire::formats::PacketFormat;
use std::collections::TryReserveError;
use std::sync::Arc;

/// One image of the pool.
struct Slot {
    image: Arc<CommittedImage>,
    /// Its channel, while the image has no pixels.
    channel: Option<Channel>,
    /// The whole buffer. Everybody else has a part of it.
    buffer: Bytes,
}

/// See the top of this module. Used by one thread only.
pub(crate) struct ImagePool {
    slots: Vec<Slot>,
    /// Where the search for a free image begins: images are mostly given back in their order.
    next: usize,
    /// Snapshots of the pedestals.
    snapshots: Vec<Arc<Vec<f32>>>,
}

/// A free image, to be filled.
pub(crate) struct FreeImage<'a> {
    slot: &'a mut Slot,
    snapshots: &'a mut [Arc<Vec<f32>>],
    buffer: BytesMut,
}

/// A buffer with touched pages, so that the first image costs no page faults. A part is split off and dropped: the
/// buffer then has its count of users, and needs no further allocation when it is shared.
fn buffer(bytes: usize) -> Result<Bytes, TryReserveError> {
    let mut memory = Vec::new();
    memory.try_reserve_exact(bytes + 1)?;
    memory.resize(bytes + 1, 1u8);
    let mut buffer = BytesMut::from(Bytes::from(memory));
    drop(buffer.split_off(bytes));
    Ok(buffer.freeze())
}

impl ImagePool {
    /// The images of a run with this plan.
    ///
    /// # Errors
    /// There is not enough memory.
    ///
    /// # Panics
    /// If the plan has no pixels, which no plan has.
    pub fn new(plan: &Plan) -> Result<Self, TryReserveError> {
        let (geometry, format) = (&plan.geometry, plan.geometry.format());
        let size = [u64::from(geometry.rows()), u64::from(geometry.columns())];
        let shape = Shape::new(&size).expect("a plan has pixels");
        let bytes_max = plan.packed_bytes_max() + Framing::BYTES_MAX;
        let kinds: Arc<[_]> = plan.result_kinds().into();
        let from = PacketFormat::of(format);
        let slot = || -> Result<Slot, TryReserveError> {
            let packets = Packets {
                tiles: vec![TileRecord::default(); plan.streams()],
                packets_per_tile: format.packets() as u16,
                detector_type: from.detector_type(format.kind),
                header_version: from.description().version,
                ..Packets::default()
            };
            let image = CommittedImage {
                packets: Some(packets),
                channels: Vec::with_capacity(1),
                results: ImageResults::new(Arc::clone(&kinds)),
                ..CommittedImage::lost(0)
            };
            let (element, packing) = (Element::from(plan.pixel), plan.compression.packing());
            let array = Array { shape, element, packing, pieces: Vec::with_capacity(1) };
            let channel = Some(Channel { name: "".into(), array });
            Ok(Slot { image: Arc::new(image), channel, buffer: buffer(bytes_max)? })
        };
        let snapshot = || -> Result<Arc<Vec<f32>>, TryReserveError> {
            let mut plane = Vec::new();
            plane.try_reserve_exact(geometry.pixels())?;
            Ok(Arc::new(plane))
        };
        let snapshots = (0..plan.pool_snapshots()).map(|_| snapshot()).collect::<Result<_, _>>()?;
        Ok(Self { slots: (0..plan.pool_images()).map(|_| slot()).collect::<Result<_, _>>()?, next: 0, snapshots })
    }

    /// An image that nobody holds, if there is one.
    pub fn free(&mut self) -> Option<FreeImage<'_>> {
        let count = self.slots.len();
        for n in (self.next..count).chain(0..self.next) {
            let slot = &mut self.slots[n];
            let Some(image) = Arc::get_mut(&mut slot.image) else { continue };
            if let Some(mut channel) = image.channels.pop() {
                channel.array.pieces.clear();
                slot.channel = Some(channel);
            }
            if let Some(packets) = &mut image.packets {
                packets.pedestals = None;
            }
            match std::mem::take(&mut slot.buffer).try_into_mut() {
                Ok(mut buffer) => {
                    buffer.clear();
                    self.next = (n + 1) % count;
                    return Some(FreeImage { slot: &mut self.slots[n], snapshots: &mut self.snapshots, buffer });
                }
                // A part of the pixels is still held, for example by a socket.
                Err(shared) => slot.buffer = shared,
            }
        }
        None
    }
}

impl FreeImage<'_> {
    /// The image, to be described.
    ///
    /// # Panics
    /// Never: nobody else holds it.
    pub fn image(&mut self) -> &mut CommittedImage {
        Arc::get_mut(&mut self.slot.image).expect("nobody holds a free image")
    }

    /// Appends bytes of its pixels.
    pub fn append(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Adds a snapshot of the pedestals, in several parts.
    pub fn set_pedestals<'p>(&mut self, parts: impl Iterator<Item = &'p [f32]>) {
        let plane = match self.snapshots.iter_mut().find(|plane| Arc::strong_count(plane) == 1) {
            Some(free) => {
                let plane = Arc::make_mut(free);
                plane.clear();
                parts.for_each(|part| plane.extend_from_slice(part));
                Arc::clone(free)
            }
            // There are enough for all images of the pool. If that is ever wrong, it costs an allocation, not a
            // snapshot.
            None => Arc::new(parts.flatten().copied().collect()),
        };
        if let Some(packets) = &mut self.image().packets {
            packets.pedestals = Some(plane);
        }
    }

    /// The image with what was filled in; without pixels if nothing was appended.
    pub fn finish(self) -> Arc<CommittedImage> {
        let Self { slot, buffer, .. } = self;
        // The whole buffer stays with the slot, whatever its length was.
        slot.buffer = buffer.freeze();
        if let Some(image) = Arc::get_mut(&mut slot.image).filter(|_| !slot.buffer.is_empty())
            && let Some(mut channel) = slot.channel.take()
        {
            channel.array.pieces.push(slot.buffer.clone());
            image.channels.push(channel);
        }
        Arc::clone(&slot.image)
    }
}
