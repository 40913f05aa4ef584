//! Any packets through a whole run; see the scene.
#![no_main]

#[path = "../scenes/packets.rs"]
mod packets;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    packets::check(data, 1_000_000);
});
