//! The dialect of NVIDIA's Holoscan sensor bridge: frames as WRITEs of one packet each, and a block of metadata with
//! the last one. Layout of the block: `konkordia_wire::hsb_metadata`.

use crate::roce::requester::{Cut, NotSent, Pieces, Requester, Write};
use konkordia_wire::hsb_metadata::{BLOCK_BYTES, FrameEnd, ImmediateLayout, block_at};
use konkordia_wire::roce::Header;

/// Where a frame goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// Its number among the receiver's buffers.
    pub number: u16,
    /// Address of the frame in it.
    pub address: u64,
    /// Key of the receiver's memory.
    pub key: u32,
}

/// The packets of a frame.
#[derive(Clone, Debug)]
pub struct Frame {
    /// Those with the pixels.
    pub pixels: Pieces,
    /// The headers of the packet that ends the frame.
    pub end: Header,
    /// Its payload.
    pub block: [u8; BLOCK_BYTES],
}

/// The packets of a frame of so many bytes. `end` is what the block is to say; its PSN and bytes are filled in. The
/// block has a packet of its own; the bridge may also append it to the last pixels, which a receiver must expect.
///
/// # Errors
/// The frame is too long, the page has no such number, or (UD) nothing can be written.
pub fn frame(
    requester: &mut Requester,
    page: Page,
    frame_bytes: u64,
    end: FrameEnd,
    layout: ImmediateLayout,
) -> Result<Frame, NotSent> {
    let place = block_at(frame_bytes).and_then(|offset| page.address.checked_add(offset)).ok_or(NotSent::Address)?;
    place.checked_add(BLOCK_BYTES as u64 - 1).ok_or(NotSent::Address)?;
    layout.encode(page.number, 0).ok_or(NotSent::Address)?;
    let write = Write { address: page.address, key: page.key, length_bytes: frame_bytes, immediate: None };
    let pixels = requester.write(write, Cut::OnlyPackets)?;
    let psn = requester.next_psn().get();
    let block = FrameEnd { psn, bytes_written: frame_bytes, ..end }.encode();
    let immediate = layout.encode(page.number, psn);
    let write = Write { address: place, key: page.key, length_bytes: BLOCK_BYTES as u64, immediate };
    let last = requester.write(write, Cut::OnlyPackets)?.next().ok_or(NotSent::Transport)?;
    Ok(Frame { pixels, end: last.header, block })
}
