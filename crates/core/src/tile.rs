//! Shapes of tiles: what one UDP stream sends per image, and how packets cut it. Source: slsDetectorPackage 9.2 packet tables.

use crate::MAX_PACKETS_PER_TILE;

/// The detector families whose packets can be received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DetectorKind {
    /// PSI JUNGFRAU: integrating, three gain stages, 16-bit words.
    Jungfrau,
    /// PSI EIGER: photon counting, 4 to 32 bit.
    Eiger,
}

impl DetectorKind {
    /// Name as the configuration spells it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Jungfrau => "jungfrau",
            Self::Eiger => "eiger",
        }
    }
}

/// Shape of one tile (one UDP stream's share of an image) and of the packets that carry it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TileFormat {
    /// Detector family.
    pub kind: DetectorKind,
    /// Rows of the tile.
    pub rows: u32,
    /// Columns of the tile.
    pub columns: u32,
    /// Bits of one pixel on the wire.
    pub bits: u32,
    /// Payload bytes of each packet.
    pub payload_bytes: u32,
}

impl TileFormat {
    /// A JUNGFRAU module on 1 UDP interface (one tile of 512 x 1024) or 2 (two tiles of 256 x 1024). `None` for another number.
    pub const fn jungfrau(interfaces: u32) -> Option<Self> {
        let rows = match interfaces {
            1 => 512,
            2 => 256,
            _ => return None,
        };
        Some(Self { kind: DetectorKind::Jungfrau, rows, columns: 1024, bits: 16, payload_bytes: 8192 })
    }

    /// One EIGER port (256 x 512) over 10 GbE at 4, 8, 12, 16 or 32 bit. `None` for another depth.
    pub const fn eiger(bits: u32) -> Option<Self> {
        match bits {
            4 | 8 | 12 | 16 | 32 => Some(Self { kind: DetectorKind::Eiger, rows: 256, columns: 512, bits, payload_bytes: 4096 }),
            _ => None,
        }
    }

    /// Pixels of the tile.
    pub const fn pixels(&self) -> u32 {
        self.rows * self.columns
    }

    /// Bytes of the tile as it comes from the wire.
    pub const fn tile_bytes(&self) -> u32 {
        self.pixels() / 8 * self.bits
    }

    /// Packets of the tile, at most [`MAX_PACKETS_PER_TILE`].
    pub const fn packets(&self) -> u32 {
        let packets = self.tile_bytes() / self.payload_bytes;
        assert!(packets as usize <= MAX_PACKETS_PER_TILE);
        packets
    }

    /// First and last packet that hold bits of pixel `pixel` (they differ only where 12-bit pixels cross a packet border).
    pub const fn packets_of_pixel(&self, pixel: u32) -> (u16, u16) {
        let first_bit = pixel as u64 * self.bits as u64;
        let last_bit = first_bit + self.bits as u64 - 1;
        let packet_bits = self.payload_bytes as u64 * 8;
        ((first_bit / packet_bits) as u16, (last_bit / packet_bits) as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packet_counts_are_those_of_the_sls_table() {
        let eiger = |bits| TileFormat::eiger(bits).unwrap().packets();
        assert_eq!([eiger(4), eiger(8), eiger(12), eiger(16), eiger(32)], [16, 32, 48, 64, 128]);
        assert_eq!(TileFormat::jungfrau(1).unwrap().packets(), 128);
        assert_eq!(TileFormat::jungfrau(2).unwrap().packets(), 64);
        assert!(TileFormat::jungfrau(3).is_none() && TileFormat::eiger(24).is_none());
    }

    #[test]
    fn twelve_bit_pixels_cross_packets() {
        let format = TileFormat::eiger(12).unwrap();
        assert_eq!(format.packets_of_pixel(2729), (0, 0));
        assert_eq!(format.packets_of_pixel(2730), (0, 1));
        assert_eq!(format.packets_of_pixel(2731), (1, 1));
        assert_eq!(format.packets_of_pixel(format.pixels() - 1), (47, 47));
    }
}
