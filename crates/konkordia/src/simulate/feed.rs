//! The datagrams of a set of images, made before the first is sent. The set is sent in a loop; each time its headers
//! are updated and, if that is asked for, its pixels.

use konkordia_core::failure::{Exit, Failure};
use konkordia_core::tile::TileFormat;
use konkordia_sim::eiger::SyntheticEiger;
use konkordia_sim::jungfrau::{SyntheticJungfrau, raw_bytes};
use konkordia_sim::packet::{HEADER_BYTES, Packetiser, field};
use konkordia_wire::sls_udp::Packet;
use std::path::{Path, PathBuf};

/// Synthetic images of a loop. Enough that no cache holds them, few enough to be made in seconds.
pub const SYNTHETIC_IMAGES: u64 = 32;
/// Bytes of the length that precedes each datagram of a dump.
const LENGTH_BYTES: usize = 8;

/// What is updated in the headers when an image is sent again.
enum Renew {
    /// All that depends on the frame number.
    Headers(Box<Packetiser>),
    /// The frame number alone; the rest stays as it was recorded.
    FrameNumber {
        /// Frame numbers of the recorded images, in the order of the loop.
        recorded: Vec<u64>,
        /// Added to the recorded frame numbers.
        shift: u64,
    },
}

/// What is done to the pixels before an image is sent.
enum Pixels {
    /// Nothing: the images of the loop as they are.
    Loop,
    /// This function makes the pixels of each image; the loop has one image.
    Generate(Box<dyn Fn(u64) -> Vec<u16> + Send>),
    /// G0 words of the loop are shifted by the drift at the image.
    Shift {
        /// Drift in ADU, by image.
        drift_adu: Box<dyn Fn(u64) -> f64 + Send>,
        /// Present shift of the words of each image of the loop, in ADU.
        applied_adu: Vec<i32>,
    },
}

/// The datagrams of a loop of images.
pub struct Feed {
    /// By image and stream: the tile's datagrams one after the other.
    images: Vec<Vec<Vec<u8>>>,
    renew: Renew,
    pixels: Pixels,
    /// Bytes of one datagram.
    pub datagram_bytes: usize,
    /// Frame number of image 0.
    pub first_frame: u64,
}

impl Feed {
    /// A feed of `images` images. `tiles(image)` gives the bytes of each stream's tile; only the rows that are read out
    /// are sent.
    pub fn build(packetiser: Packetiser, images: u64, mut tiles: impl FnMut(u64) -> Vec<Vec<u8>>) -> Self {
        let layout = packetiser.layout();
        let first_frame = packetiser.model().first_frame_number;
        let datagram_bytes = layout.datagram_bytes();
        let image = |image: u64| {
            let datagrams = |(stream, tile): (usize, Vec<u8>)| {
                let mut out = vec![0; layout.packets_per_tile as usize * datagram_bytes];
                let tile = packetiser.read_out(stream, &tile);
                for (packet, datagram) in out.chunks_exact_mut(datagram_bytes).enumerate() {
                    packetiser.write_packet(stream, first_frame + image, packet as u32, tile, datagram);
                }
                out
            };
            tiles(image).into_iter().enumerate().map(datagrams).collect()
        };
        let images = (0..images).map(image).collect();
        Self { images, renew: Renew::Headers(Box::new(packetiser)), pixels: Pixels::Loop, datagram_bytes, first_frame }
    }

    /// A feed whose words are made by `make(image)` when an image is sent: all tiles, one after the other.
    pub fn generated(packetiser: Packetiser, make: Box<dyn Fn(u64) -> Vec<u16> + Send>) -> Self {
        let tile_bytes = packetiser.layout().whole_tile_bytes();
        let mut feed =
            Self::build(packetiser, 1, |image| raw_bytes(&make(image)).chunks_exact(tile_bytes).map(<[u8]>::to_vec).collect());
        feed.pixels = Pixels::Generate(make);
        feed
    }

    /// Shifts the words of G0 by `drift_adu(image)`, rounded to whole ADU.
    pub fn drifting(self, drift_adu: Box<dyn Fn(u64) -> f64 + Send>) -> Self {
        let applied_adu = vec![0; self.images.len()];
        Self { pixels: Pixels::Shift { drift_adu, applied_adu }, ..self }
    }

    /// Updates the pixels of the loop's image `index` for `image`.
    fn renew_pixels(&mut self, image: u64, index: usize) {
        let datagram_bytes = self.datagram_bytes;
        let mut payloads =
            self.images[index].iter_mut().flat_map(|tile| tile.chunks_exact_mut(datagram_bytes)).map(|d| &mut d[HEADER_BYTES..]);
        match &mut self.pixels {
            Pixels::Loop => {}
            Pixels::Generate(make) => {
                let Renew::Headers(packetiser) = &self.renew else { return };
                let (words, layout) = (make(image), packetiser.layout());
                let tiles = words.chunks_exact(layout.whole_tile_bytes() / 2).enumerate();
                let mut words = tiles.flat_map(|(stream, tile)| {
                    let rows = packetiser.rows_read(stream);
                    &tile[rows.start * layout.columns..rows.end * layout.columns]
                });
                payloads.for_each(|payload| {
                    payload
                        .chunks_exact_mut(2)
                        .zip(words.by_ref())
                        .for_each(|(bytes, word)| bytes.copy_from_slice(&word.to_le_bytes()));
                });
            }
            Pixels::Shift { drift_adu, applied_adu } => {
                let wanted = drift_adu(image).round() as i32;
                let by = wanted - std::mem::replace(&mut applied_adu[index], wanted);
                if by != 0 {
                    payloads.by_ref().flat_map(|p| p.chunks_exact_mut(2)).for_each(|bytes| move_word(bytes, by));
                }
            }
        }
    }

    /// A synthetic JUNGFRAU.
    pub fn synthetic_jungfrau(detector: &SyntheticJungfrau, packetiser: Packetiser, images: u64) -> Self {
        let tile_bytes = packetiser.layout().whole_tile_bytes();
        Self::build(packetiser, images, |image| {
            raw_bytes(&detector.image(image).raw).chunks_exact(tile_bytes).map(<[u8]>::to_vec).collect()
        })
    }

    /// A synthetic EIGER.
    pub fn synthetic_eiger(detector: &SyntheticEiger, packetiser: Packetiser, images: u64) -> Self {
        Self::build(packetiser, images, |image| {
            detector.image(image).ports.iter().map(|port| detector.port_bytes(port)).collect()
        })
    }

    /// Raw frames of a JUNGFRAU from files that hold whole frames.
    pub fn raw_jungfrau(files: &[PathBuf], packetiser: Packetiser) -> Result<Self, Failure> {
        let layout = packetiser.layout();
        let frame_bytes = layout.streams * layout.whole_tile_bytes();
        let mut frames = Vec::new();
        for path in files {
            let bytes = std::fs::read(path).map_err(|e| Failure::io("cannot read", path, &e))?;
            if bytes.is_empty() || bytes.len() % frame_bytes != 0 {
                let why = format!(
                    "it has {} bytes; a frame of these modules has {frame_bytes} (uint16, 512 x 1024 per module)",
                    bytes.len()
                );
                return Err(Failure::new(
                    Exit::Usage,
                    format!("{} holds no whole frames", path.display()),
                    why,
                    "give another file or --modules",
                ));
            }
            frames.extend(bytes.chunks_exact(frame_bytes).map(<[u8]>::to_vec));
        }
        let images = frames.len() as u64;
        Ok(Self::build(packetiser, images, |image| {
            frames[image as usize].chunks_exact(layout.whole_tile_bytes()).map(<[u8]>::to_vec).collect()
        }))
    }

    /// Recorded packets of an EIGER, one file per port. `first_frame` renumbers the recording.
    pub fn dump_eiger(files: &[PathBuf], first_frame: Option<u64>) -> Result<Self, Failure> {
        let ports = files.iter().map(|path| read_dump(path)).collect::<Result<Vec<_>, _>>()?;
        let recorded: Vec<u64> = ports[0].iter().map(|(frame, _)| *frame).collect();
        let bytes = ports[0][0].1.len();
        for (path, port) in files.iter().zip(&ports) {
            if !port.iter().map(|f| f.0).eq(recorded.iter().copied()) || port.iter().any(|f| f.1.len() != bytes) {
                let what = format!("{} and {} do not belong together", path.display(), files[0].display());
                return Err(Failure::new(
                    Exit::Usage,
                    what,
                    "the ports recorded other frames or another number of packets",
                    "give the ports of one recording",
                ));
            }
        }
        let images = (0..recorded.len()).map(|i| ports.iter().map(|port| port[i].1.clone()).collect()).collect();
        let first = first_frame.unwrap_or(recorded[0]);
        let renew = Renew::FrameNumber { shift: first.wrapping_sub(recorded[0]), recorded };
        Ok(Self { images, renew, pixels: Pixels::Loop, datagram_bytes: EIGER_DATAGRAM_BYTES, first_frame: first })
    }

    /// Images of the loop.
    pub fn images(&self) -> u64 {
        self.images.len() as u64
    }

    /// Streams of an image.
    pub fn streams(&self) -> usize {
        self.images[0].len()
    }

    /// Packets of a tile.
    pub fn packets_per_tile(&self) -> usize {
        self.images[0][0].len() / self.datagram_bytes
    }

    /// Updates headers and pixels for `image` and returns its datagrams by stream.
    pub fn image(&mut self, image: u64) -> &[Vec<u8>] {
        let count = self.images.len() as u64;
        let (turn, index) = (image / count, (image % count) as usize);
        self.renew_pixels(image, index);
        let tiles = &mut self.images[index];
        let datagrams = tiles.iter_mut().flat_map(|tile| tile.chunks_exact_mut(self.datagram_bytes));
        match &self.renew {
            Renew::Headers(packetiser) => datagrams.for_each(|d| packetiser.patch_header(d, self.first_frame + image)),
            Renew::FrameNumber { recorded, shift } => {
                let span = recorded[recorded.len() - 1] - recorded[0] + 1;
                let frame = recorded[index].wrapping_add(*shift).wrapping_add(turn * span);
                datagrams.for_each(|d| d[field::FRAME_NUMBER].copy_from_slice(&frame.to_le_bytes()));
            }
        }
        &self.images[index]
    }
}

/// Shifts a G0 word; a dead pixel stays dead.
fn move_word(bytes: &mut [u8], by: i32) {
    let word = u16::from_le_bytes([bytes[0], bytes[1]]);
    if (1..0x4000).contains(&word) {
        let moved = (i32::from(word) + by).clamp(1, 0x3FFF) as u16;
        bytes.copy_from_slice(&moved.to_le_bytes());
    }
}

/// Bytes of a datagram of a recorded EIGER.
const EIGER_DATAGRAM_BYTES: usize = 48 + 4096;

/// The images of one port: frame number and datagrams in the order of recording.
fn read_dump(path: &Path) -> Result<Vec<(u64, Vec<u8>)>, Failure> {
    let bytes = std::fs::read(path).map_err(|e| Failure::io("cannot read", path, &e))?;
    let wrong = |why: String| {
        let fix = "a dump is: 8 bytes of length (little-endian), the datagram, and so on; 4144 bytes each for an EIGER on 10 GbE";
        Failure::new(Exit::Usage, format!("{} is not a dump of EIGER packets", path.display()), why, fix)
    };
    // The bit depth does not matter here; with 32 bit every packet number that an EIGER may have is accepted.
    let format = TileFormat::eiger(32).ok_or_else(|| wrong("EIGER has no 32-bit mode".into()))?;
    let mut images: Vec<(u64, Vec<u8>)> = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let length =
            bytes.get(at..at + LENGTH_BYTES).map_or(0, |b| u64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]));
        let record = bytes
            .get(at + LENGTH_BYTES..at + LENGTH_BYTES + EIGER_DATAGRAM_BYTES)
            .filter(|_| length == EIGER_DATAGRAM_BYTES as u64);
        let Some(datagram) = record else { return Err(wrong(format!("the record at byte {at} states a length of {length}"))) };
        let packet =
            Packet::new_checked(datagram, &format).map_err(|why| wrong(format!("the datagram at byte {at}: {}", why.name())))?;
        match images.last_mut() {
            Some((frame, datagrams)) if *frame == packet.frame_number() => datagrams.extend_from_slice(datagram),
            _ => images.push((packet.frame_number(), datagram.to_vec())),
        }
        at += LENGTH_BYTES + EIGER_DATAGRAM_BYTES;
    }
    let complete = images.first().is_some_and(|first| images.iter().all(|i| i.1.len() == first.1.len()));
    if complete { Ok(images) } else { Err(wrong("it is empty, or its frames have different numbers of packets".into())) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use konkordia_sim::packet::{DetectorKind, PacketModel};

    #[test]
    fn raw_frames_are_cut_into_streams_and_renumbered_in_the_loop() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("raw.u16");
        let frame = |n: u8| vec![n; 1 << 20];
        std::fs::write(&path, [frame(1), frame(2)].concat()).unwrap();
        let packetiser = || Packetiser::new(&PacketModel::new(DetectorKind::Jungfrau { interfaces: 2 }, 1)).unwrap();
        let mut feed = Feed::raw_jungfrau(std::slice::from_ref(&path), packetiser()).unwrap();
        assert_eq!((feed.images(), feed.streams(), feed.packets_per_tile(), feed.datagram_bytes), (2, 2, 64, 8240));
        let tile = &feed.image(5)[1];
        assert_eq!((tile.len(), tile[48], tile[8240 * 63 + 12]), (64 * 8240, 2, 63));
        assert_eq!(tile[..8], 6u64.to_le_bytes());
        std::fs::write(&path, [0; 100]).unwrap();
        assert!(Feed::raw_jungfrau(&[path], packetiser()).err().unwrap().to_string().contains("holds no whole frames"));
    }

    /// Words of a tile of the image that was prepared last.
    fn words(tile: &[u8]) -> Vec<u16> {
        let payloads = tile.chunks_exact(8240).flat_map(|d| d[HEADER_BYTES..].chunks_exact(2));
        payloads.map(|b| u16::from_le_bytes([b[0], b[1]])).collect()
    }

    #[test]
    fn pixels_are_made_anew_or_moved_by_the_drift() {
        let packetiser = || Packetiser::new(&PacketModel::new(DetectorKind::Jungfrau { interfaces: 2 }, 1)).unwrap();
        let make = |image: u64| (0..1 << 19).map(|i| (i % 4096) as u16 + image as u16).collect();
        let mut feed = Feed::generated(packetiser(), Box::new(make));
        assert_eq!((feed.images(), feed.streams()), (1, 2));
        for image in [0, 5, 2] {
            let tiles = feed.image(image);
            assert_eq!(tiles[1][..8], (image + 1).to_le_bytes());
            assert_eq!(words(&tiles[1]), (1 << 18..1 << 19).map(|i| (i % 4096) as u16 + image as u16).collect::<Vec<_>>());
        }
        // A dead word, G0 in the middle and at its end, G1, G2 and padding.
        let base = [0u16, 3000, 0x3FFE, 0x4001, 0xC005, 0xFFFF];
        let tiles = |_| vec![base.iter().cycle().take(1 << 18).flat_map(|w| w.to_le_bytes()).collect(); 2];
        let mut feed = Feed::build(packetiser(), 2, tiles).drifting(Box::new(|image| 2.4 * image as f64));
        for (image, by) in [(0, 0), (1, 2), (2, 5), (5, 12), (1, 2)] {
            let expected = [0, 3000 + by, (0x3FFE + by).min(0x3FFF), 0x4001, 0xC005, 0xFFFF];
            let found = words(&feed.image(image)[0]);
            let clipped = image == 1 && found[2] != expected[2];
            assert!(found[..2] == expected[..2] && found[3..6] == expected[3..], "{image}: {:?}", &found[..6]);
            assert!(found[2] == expected[2] || clipped, "{image}: {:?}", &found[..6]);
        }
    }

    #[test]
    fn dumps_are_checked_and_counted_on() {
        let folder = tempfile::tempdir().unwrap();
        let record = |frame: u64, packet: u32| {
            let mut d = vec![0u8; 8 + EIGER_DATAGRAM_BYTES];
            d[..8].copy_from_slice(&(EIGER_DATAGRAM_BYTES as u64).to_le_bytes());
            d[8..16].copy_from_slice(&frame.to_le_bytes());
            d[20..24].copy_from_slice(&packet.to_le_bytes());
            (d[8 + 46], d[8 + 47]) = (1, 2);
            d
        };
        let good = [record(7, 0), record(7, 1), record(9, 0), record(9, 1)].concat();
        let path = folder.path().join("a.dat");
        std::fs::write(&path, &good).unwrap();
        let mut feed = Feed::dump_eiger(std::slice::from_ref(&path), Some(100)).unwrap();
        let frames: Vec<u64> = (0..4).map(|i| u64::from_le_bytes(feed.image(i)[0][..8].try_into().unwrap())).collect();
        assert_eq!((feed.packets_per_tile(), feed.first_frame, frames), (2, 100, vec![100, 102, 103, 105]));
        for (bad, part) in [
            (&good[..5000], "byte 4152"),
            (&good[..4152 * 3], "different numbers"),
            (&good[1..], "states a length"),
            (&good[..0], "empty"),
        ] {
            std::fs::write(&path, bad).unwrap();
            let text = Feed::dump_eiger(std::slice::from_ref(&path), None).err().unwrap().to_string();
            assert!(text.contains(part), "{text}");
        }
    }
}
