//! Turns frames from files into the packets that the detector sent, so that files pass through the same engine as live
//! data. Their pixels are read to where they belong in the memory of the frame, if the engine lends it.

use super::tile_reader::TileReader;
use konkordia_core::failure::Failure;
use konkordia_core::ports::{FillingSource, Source, TilePlaces};
use konkordia_core::sender::Sender;
use konkordia_core::sls_header::SlsHeader;
use konkordia_core::tile::TileFormat;
use konkordia_wire::sls_udp::{HEADER_BYTES, write_header};
use std::io::{self, IoSliceMut};
use std::time::Duration;

/// Hands out the packets of one tile, one frame per call. Packets that the receiver did not catch are left out. Pixels
/// are read directly into the tile that the engine lends, otherwise into the datagrams. Memory: one tile and its
/// headers.
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
        let frame = self.reader.read_into(self.next, &mut payloads[..count]).map_err(error)?;
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

    /// Reads the next frame to its place and reports its packets; returns how many there were.
    fn fill_frame(&mut self, places: &mut dyn TilePlaces) -> io::Result<usize> {
        let count = self.format.packets() as u16;
        let Some(tile) = places.lend(self.reader.frame_number(self.next), 0..count) else {
            return self.hand_out_frame(&mut |datagram, sender| places.take(datagram, sender));
        };
        let frame = self.reader.read(self.next, tile).map_err(error)?;
        self.next += 1;
        let mut head = [0; HEADER_BYTES];
        for packet in (0..count).filter(|packet| frame.bitmap.has(*packet)) {
            write_header(&frame.header, self.format.kind, self.format.first_packet as u16 + packet, &mut head);
            places.filled(packet, &head, self.format.payload_bytes as usize, Sender::NONE);
        }
        Ok(frame.bitmap.count() as usize)
    }

    /// Hands out frames until one has packets: a frame without packets is not the end of the input.
    fn next_frame(&mut self, timeout: Duration, mut hand_out: impl FnMut(&mut Self) -> io::Result<usize>) -> io::Result<usize> {
        while self.next < self.reader.len() {
            let handed = hand_out(self)?;
            if handed > 0 {
                return Ok(handed);
            }
        }
        std::thread::sleep(timeout);
        Ok(0)
    }
}

fn error(failure: Failure) -> io::Error {
    io::Error::other(format!("{}\n{}", failure.what, failure.why))
}

impl Source for FileSource {
    fn receive(&mut self, timeout: Duration, take: &mut dyn FnMut(&[u8], Sender)) -> io::Result<usize> {
        self.next_frame(timeout, |source| source.hand_out_frame(take))
    }

    fn dropped(&mut self) -> u64 {
        0
    }

    fn filling(&mut self) -> Option<&mut dyn FillingSource> {
        Some(self)
    }
}

impl FillingSource for FileSource {
    fn receive_into(&mut self, timeout: Duration, places: &mut dyn TilePlaces) -> io::Result<usize> {
        self.next_frame(timeout, |source| source.fill_frame(places))
    }
}
