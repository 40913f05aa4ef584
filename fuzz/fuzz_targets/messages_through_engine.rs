//! Damaged messages in any order through decoder and sort; see the scene.
#![no_main]

#[path = "../scenes/messages.rs"]
mod messages;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    messages::check(data, 1_000_000);
});
