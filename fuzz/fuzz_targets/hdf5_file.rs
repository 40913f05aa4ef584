//! Damaged files of a run; see the scene.
#![no_main]

#[path = "../scenes/hdf5_file.rs"]
mod hdf5_file;

use konkordia_kernels::{ElementSize, Isa, codec};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    hdf5_file::check(data, &|compression, chunk, element_bytes, out| {
        let element = match element_bytes {
            1 => ElementSize::One,
            2 => ElementSize::Two,
            4 => ElementSize::Four,
            n => return Err(format!("pixels of {n} bytes")),
        };
        codec::decompress(compression, Isa::detect(), chunk, element, out).map_err(|error| error.to_string())
    });
});
