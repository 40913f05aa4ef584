//! Compares every pixel of the file with what a simple reference pipeline makes of the same packets.

use konkordia_core::failure::Failure;
use konkordia_kernels::codec::decode;
use konkordia_sim::jungfrau::{JungfrauImage, SyntheticJungfrau, raw_bytes};
use konkordia_sim::packet::Packetiser;
use konkordia_sim::reference::{Conversion, JungfrauConstants, Reference, RunLayout};
use konkordia_sinks::hdf5::{self, Reader, Severity, Summary};
use std::path::Path;

/// What the comparison found.
pub struct Proof {
    /// Pixels that were read back.
    pub compared: u64,
    /// Pixels that differ from the reference.
    pub different: u64,
    /// Fraction of the valid pixels of the reference images that are equal to the photons that the simulator let fall
    /// onto them.
    pub equal_to_truth: f64,
    /// The file is whole and its ledger balances.
    pub is_valid: bool,
    /// The summary of the file.
    pub summary: Summary,
}

impl Proof {
    /// A counter of the ledger in the file.
    pub fn count(&self, name: &str) -> u64 {
        self.summary.ledger.iter().find(|(other, _)| other == name).map_or(0, |(_, n)| *n)
    }

    /// Nothing was lost, and everything is right.
    pub fn is_complete(&self, images: u64) -> bool {
        let complete = [self.summary.images, self.count("images_complete")] == [images; 2];
        complete && self.is_valid && self.different == 0
    }
}

/// Compares a file of `images` images, in which those of `truth` repeat.
pub fn compare(
    master: &Path,
    detector: &SyntheticJungfrau,
    packetiser: &Packetiser,
    truth: &[JungfrauImage],
    images: u64,
) -> Result<Proof, Failure> {
    let expected = expected(detector, packetiser, truth);
    let (mut equal, mut valid) = (0u64, 0u64);
    for (image, photons) in expected.iter().zip(truth) {
        let pairs = image.iter().zip(&photons.photons).filter(|(got, _)| **got > i16::MIN + 2 && **got < i16::MAX);
        for (got, true_photons) in pairs {
            valid += 1;
            equal += u64::from(i64::from(*got) == i64::from(*true_photons));
        }
    }
    let is_valid = hdf5::check(master, &decode).iter().all(|finding| finding.severity != Severity::Error);
    let reader = Reader::open(master)?;
    let (mut compared, mut different) = (0, 0);
    for n in 0..images.min(reader.summary().images) {
        let wanted = &expected[(n % truth.len() as u64) as usize];
        let got = reader.read_image(n, &decode)?;
        compared += wanted.len() as u64;
        let same = |(a, b): (&[u8], &i16)| a == b.to_le_bytes();
        different += got.chunks_exact(2).zip(wanted).filter(|pair| !same(*pair)).count() as u64;
    }
    let equal_to_truth = equal as f64 / valid.max(1) as f64;
    Ok(Proof { compared, different, equal_to_truth, is_valid, summary: reader.summary().clone() })
}

/// What the reference pipeline makes of the packets of these images.
fn expected(detector: &SyntheticJungfrau, packetiser: &Packetiser, truth: &[JungfrauImage]) -> Vec<Vec<i16>> {
    let layout = packetiser.layout();
    let mut reference = Reference::new(RunLayout::stacked(packetiser, truth.len() as u64));
    let mut datagram = vec![0; layout.datagram_bytes()];
    for (n, image) in truth.iter().enumerate() {
        let bytes = raw_bytes(&image.raw);
        for packet in 0..layout.packets_per_tile {
            packetiser.write_packet(0, n as u64 + 1, packet, &bytes, &mut datagram);
            reference.receive(0, &datagram);
        }
    }
    // As in the files: bad pixels carry the pedestal that masks them.
    let mut pedestals = detector.pedestals().to_vec();
    detector.bad_pixels().iter().for_each(|bad| pedestals[bad.pixel] = 16383.0);
    let constants = JungfrauConstants::new(&pedestals, detector.gains(), detector.model().scene.energy_kev as f32);
    (0..truth.len() as u64).map(|n| reference.image(n, Conversion::Photons(&constants))).collect()
}
