//! Any bytes as numbers of a device: refused in words, or within the bounds and the same when written and read again.
#![no_main]

use konkordia_wire::scalar::{self, Scalars};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| match Scalars::parse(data) {
    Err(why) => assert!(!why.is_empty()),
    Ok(read) => {
        assert!((1..=scalar::VALUES_MAX).contains(&read.values.len()));
        assert!(read.values.iter().all(|(name, value)| scalar::is_name(name) && value.is_finite()));
        assert_eq!(Scalars::parse(read.to_text().as_bytes()), Ok(read.clone()));
    }
});
