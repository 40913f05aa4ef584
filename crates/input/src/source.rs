//! Turns frames from files into the datagrams that the detector sent, so that files pass through the same engine as
//! live data.

use super::tile_reader::TileReader;
use konkordia_core::ports::Source;
use konkordia_core::sender::Sender;
use konkordia_core::sls_header::SlsHeader;
use konkordia_core::tile::TileFormat;
use konkordia_wire::sls_udp::{HEADER_BYTES, write_header};
use std::io::{self, IoSliceMut};
use std::time::Duration;

/// Hands out the packets of one tile, one frame per call. Packets that the receiver did not catch are left out. Pixels
/// are read directly into the datagrams. Memory: one tile and its headers.
pub struct FileSource {
    reader: Box<dyn TileReader>,
    format: TileFormat,
    next: usize,
    /// The datagrams of one frame, side by side.
    buffer: Vec<u8>,
}

impl FileSource {
    /// All frames of `reader`, whose tile has this format ([`TileFormat::of_tile`]).
    pub fn new(reader: Box<dyn TileReader>, format: TileFormat) -> Self {
        let datagram_bytes = HEADER_BYTES + format.payload_bytes as usize;
        let mut buffer = vec![0; datagram_bytes * format.packets() as usize];
        for (packet, datagram) in buffer.chunks_exact_mut(datagram_bytes).enumerate() {
            write_header(&SlsHeader::default(), format.kind, format.first_packet as u16 + packet as u16, datagram);
        }
        Self { reader, format, next: 0, buffer }
    }

    /// Leaves out the frames before `frame`.
    pub fn start_at(mut self, frame: u64) -> Self {
        while self.next < self.reader.len() && self.reader.frame_number(self.next) < frame {
            self.next += 1;
        }
        self
    }

    /// Reads the next frame into the datagrams and hands them out; returns how many there were.
    fn hand_out_frame(&mut self, take: &mut dyn FnMut(&[u8], Sender)) -> io::Result<usize> {
        let datagram_bytes = HEADER_BYTES + self.format.payload_bytes as usize;
        let count = self.format.packets() as usize;
        let mut datagrams = self.buffer.chunks_exact_mut(datagram_bytes);
        let mut payloads: [IoSliceMut<'_>; konkordia_core::MAX_PACKETS_PER_TILE] =
            std::array::from_fn(|_| IoSliceMut::new(datagrams.next().map_or(&mut [], |d| &mut d[HEADER_BYTES..])));
        let frame = self
            .reader
            .read_into(self.next, &mut payloads[..count])
            .map_err(|e| io::Error::other(format!("{}\n{}", e.what, e.why)))?;
        self.next += 1;
        let mut handed = 0;
        for (packet, datagram) in self.buffer.chunks_exact_mut(datagram_bytes).enumerate() {
            if frame.bitmap.has(packet as u16) {
                write_header(&frame.header, self.format.kind, self.format.first_packet as u16 + packet as u16, datagram);
                take(datagram, Sender::NONE);
                handed += 1;
            }
        }
        Ok(handed)
    }
}

impl Source for FileSource {
    fn receive(&mut self, timeout: Duration, take: &mut dyn FnMut(&[u8], Sender)) -> io::Result<usize> {
        while self.next < self.reader.len() {
            // A frame without packets is not the end of the input.
            let handed = self.hand_out_frame(take)?;
            if handed > 0 {
                return Ok(handed);
            }
        }
        std::thread::sleep(timeout);
        Ok(0)
    }

    fn dropped(&mut self) -> u64 {
        0
    }
}
