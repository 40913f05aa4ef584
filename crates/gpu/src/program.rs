//! The text of the kernels, as NVRTC takes it.
//!
//! | kernels | result | the same as |
//! |---|---|---|
//! | `convert_*`, `convert_tracking_*`, `track_only` | pixels of JUNGFRAU words; moved pedestals | `kernels::convert` |
//! | `convert_series_*` | the same, dark and signal frames in any order | `kernels::convert` |
//! | `convert_fixed_*` | the same in integers | `kernels::convert::fixed` |
//! | `bitshuffle` | transposed blocks of 8 KiB, and back | `kernels::bitshuffle` |
//! | `lz4_blocks`, `bslz4_blocks` | an LZ4 block in a slot for each block of an image | `kernels::planes` |
//! | `chunk_places`, `chunk_gather` | the chunk of HDF5 filter 32008 | `kernels::codec` |
//! | `count_above_*`, `keep_images` | the veto | `kernels::above` |
//! | `row_counts_*`, `row_places`, `collect_*` | sparse images | `kernels::above` |
//! | `gather_words`, `take_words`, `mark_absent_*`, `gather_counts_*`, `share_out_*` | modules to images | `core::geometry`, `core::share` |
//! | `accumulate_*`, `narrow_*`, `negatives_*` | sums of frames | `kernels::finish` |
//! | `stats_*`, `stats_within_*`, `merge_stats_*` | statistics | `kernels::stats` |
//! | `chunk_blocks`, `unpack_blocks`, `chunk_verdicts` | chunks to images | `kernels::chunk` |
//! | `ring_limits_*`, `ring_background`, `stands_out_*`, `group_seeds`, `group_spots_*` | spots | `analysis::peakfinder8` |
//! | `integrate_*`, `bins_*` | azimuthal integration | `analysis::azimuthal` |

/// Threads of a block, for all kernels: `THREADS` in `common.cu`.
pub const BLOCK_THREADS: u32 = 256;

/// Bytes of a slot for an LZ4 block: `SLOT_BYTES` in `lz4.cu`.
pub const SLOT_BYTES: usize = 8256;

/// Numbers of the statistics of a strip: `STATS_NUMBERS` in `stats.cu`.
pub const STATS_NUMBERS: usize = 6;

/// A strip with statistics has a multiple of so many pixels: `PORTION` in `stats.cu`.
pub const STATS_PORTION: u32 = 256;

/// Bytes of a full block: `BLOCK_BYTES` in `bitshuffle.cu`.
pub const BLOCK_BYTES: usize = 8192;

/// Options of NVRTC besides the architecture. A multiplication followed by an addition has two roundings, as on the
/// host, and small numbers are not taken for 0.
pub const NVRTC_OPTIONS: [&str; 3] = ["--std=c++17", "--fmad=false", "--ftz=false"];

/// The files in the order in which they are one text; later ones use what earlier ones define.
const FILES: [&str; 13] = [
    include_str!("../kernels/common.cu"),
    include_str!("../kernels/convert.cu"),
    include_str!("../kernels/fixed.cu"),
    include_str!("../kernels/bitshuffle.cu"),
    include_str!("../kernels/lz4.cu"),
    include_str!("../kernels/above.cu"),
    include_str!("../kernels/sparse.cu"),
    include_str!("../kernels/gather.cu"),
    include_str!("../kernels/sums.cu"),
    include_str!("../kernels/stats.cu"),
    include_str!("../kernels/unpack.cu"),
    include_str!("../kernels/peakfinder8.cu"),
    include_str!("../kernels/azimuthal.cu"),
];

/// All kernels as one text. It includes nothing.
pub fn text() -> String {
    FILES.concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_text() {
        let text = text();
        let numbers = [
            ("THREADS", BLOCK_THREADS as usize),
            ("SLOT_BYTES", SLOT_BYTES),
            ("BLOCK_BYTES", BLOCK_BYTES),
            ("STATS_NUMBERS", STATS_NUMBERS),
            ("PORTION", STATS_PORTION as usize),
        ];
        for (name, number) in numbers {
            assert!(text.contains(&format!("#define {name} {number}u\n")), "{name}");
        }
        assert!(!text.contains("#include"), "NVRTC has no files to include");
    }
}
