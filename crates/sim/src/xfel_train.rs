//! Trains of European XFEL and their UDP packets (docs/protocols.md 7), written from the description of the format and
//! not from the code that reads them.

use crate::rng::Rng;

/// Data bytes of a packet that is not the last one.
pub const DATA_BYTES: usize = 8184;
/// Bytes at the end of each datagram: frame number and packet word.
pub const END_BYTES: usize = 8;
/// Bytes of a train before its first image.
pub const HEADER_BYTES: usize = 64;
const TRAILER_BYTES: usize = 32;
const BEGIN: [u8; 8] = [0xCE, 0xFA, 0xEF, 0xBE, 0x46, 0x44, 0x54, 0x58];
const END: [u8; 8] = [0xCD, 0xAB, 0xAD, 0xDE, 0x46, 0x44, 0x54, 0x58];
const FIRST: u32 = 0x8000_0000;
const LAST: u32 = 0x4000_0000;

/// What a module sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrainModel {
    /// Images of a train.
    pub images: usize,
    /// Pixels of an image, 16 bits each.
    pub image_pixels: usize,
    /// Bytes of the section that belongs to the type of detector.
    pub specific_bytes: usize,
    /// Modules; each has a stream of its own.
    pub modules: usize,
    /// Frame number of train 0.
    pub first_frame: u32,
    /// Train id of train 0.
    pub first_train_id: u64,
    /// Everything random follows from this.
    pub seed: u64,
}

impl TrainModel {
    /// LPD: images of 256 x 256.
    pub fn lpd(images: usize, modules: usize) -> Self {
        let (first_frame, first_train_id) = (1, 1_000_000_000);
        Self { images, image_pixels: 256 * 256, specific_bytes: 416, modules, first_frame, first_train_id, seed: 1 }
    }

    /// Bytes of the pixels of a train.
    pub fn pixel_bytes(&self) -> usize {
        self.images * self.image_pixels * 2
    }

    /// Bytes of a train.
    pub fn train_bytes(&self) -> usize {
        let lists: usize = [2, 8, 2, 4].iter().map(|width| padded(self.images * width)).sum();
        HEADER_BYTES + self.pixel_bytes() + lists + self.specific_bytes + TRAILER_BYTES
    }

    /// Packets of a train.
    pub fn packets(&self) -> usize {
        self.train_bytes().div_ceil(DATA_BYTES)
    }

    /// Number of the train in its header.
    pub fn train_id(&self, train: u64) -> u64 {
        self.first_train_id + train
    }

    /// Data id in the header.
    pub fn data_id(&self, train: u64) -> u64 {
        self.train_id(train) << 8
    }

    /// Link id of a module: no link of a train builder.
    pub fn link_id(&self, module: usize) -> u64 {
        0xFFFF_FFFF << 32 | module as u64
    }

    /// The pixels of train `train` of a module: random words below 0xFFFF, which stands for a missing pixel in files.
    pub fn pixels(&self, module: usize, train: u64) -> Vec<u16> {
        let mut rng = Rng::keyed(self.seed, &[0x7866_656c, module as u64, train]);
        let count = self.images * self.image_pixels;
        let mut words = Vec::with_capacity(count + 3);
        while words.len() < count {
            let four = rng.next_u64();
            words.extend([0, 16, 32, 48].map(|bit| (four >> bit) as u16 & 0x7FFF));
        }
        words.truncate(count);
        words
    }

    /// The bytes of a train.
    pub fn train(&self, module: usize, train: u64) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.train_bytes());
        out.extend(BEGIN);
        out.extend([2u32, 1].iter().flat_map(|version| version.to_le_bytes()));
        let numbers = [self.train_id(train), self.data_id(train), self.link_id(module), self.images as u64];
        out.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        out.extend([self.specific_bytes as u32, 0, 0, 0].iter().flat_map(|bytes| bytes.to_le_bytes()));
        out.extend(self.pixels(module, train).iter().flat_map(|word| word.to_le_bytes()));
        let list = |out: &mut Vec<u8>, bytes: Vec<u8>| {
            out.extend(&bytes);
            out.resize(out.len() + padded(bytes.len()) - bytes.len(), 0);
        };
        let count = self.images;
        list(&mut out, (0..count).flat_map(|n| (n as u16).to_le_bytes()).collect());
        list(&mut out, (0..count).flat_map(|n| (4 * n as u64).to_le_bytes()).collect());
        list(&mut out, vec![0; 2 * count]);
        list(&mut out, (0..count).flat_map(|_| (2 * self.image_pixels as u32).to_le_bytes()).collect());
        out.resize(out.len() + self.specific_bytes, module as u8);
        out.extend([0; 16]);
        out.extend(0u64.to_le_bytes());
        out.extend(END);
        out
    }

    /// The datagrams of a train, in their order.
    pub fn datagrams(&self, module: usize, train: u64) -> Vec<Vec<u8>> {
        let (bytes, last) = (self.train(module, train), self.packets() - 1);
        let frame = self.first_frame.wrapping_add(train as u32);
        let packet = |(n, data): (usize, &[u8])| {
            let mark = if n == 0 { FIRST } else { 0 } | if n == last { LAST } else { 0 };
            [data, &frame.to_le_bytes(), &(n as u32 | mark).to_le_bytes()].concat()
        };
        bytes.chunks(DATA_BYTES).enumerate().map(packet).collect()
    }
}

/// Lists are padded to 32 bytes.
fn padded(bytes: usize) -> usize {
    bytes.next_multiple_of(32)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lengths and last packets that receivers of these detectors expect (docs/protocols.md 7.2).
    #[test]
    fn trains_have_the_lengths_that_other_receivers_expect() {
        let of = |images, image_pixels, specific_bytes| {
            let model = TrainModel { images, image_pixels, specific_bytes, ..TrainModel::lpd(1, 1) };
            let (bytes, whole) = (model.train_bytes(), model.packets() - 1);
            (bytes, whole, bytes - whole * DATA_BYTES)
        };
        assert_eq!(of(20, 256 * 256, 416), (2_622_336, 320, 3456));
        assert_eq!(of(512, 256 * 256, 416), (67_117_568, 8201, 584));
        assert_eq!(of(800, 128 * 512, 416), (104_870_912, 12814, 1136));
        assert_eq!(of(64, 2 * 512 * 128, 5408), (16_783_744, 2050, 6544));
    }

    #[test]
    fn datagrams_are_the_train() {
        let model = TrainModel::lpd(2, 2);
        let (train, datagrams) = (model.train(1, 3), model.datagrams(1, 3));
        assert_eq!((train.len(), datagrams.len()), (model.train_bytes(), model.packets()));
        let data: Vec<u8> = datagrams.iter().flat_map(|d| &d[..d.len() - END_BYTES]).copied().collect();
        assert!(data == train);
        let words: Vec<u32> = datagrams.iter().map(|d| u32::from_le_bytes(d[d.len() - 4..].try_into().unwrap())).collect();
        let count = words.len() as u32;
        assert_eq!((words[0], words[1], words[words.len() - 1]), (FIRST, 1, LAST | (count - 1)));
    }
}
