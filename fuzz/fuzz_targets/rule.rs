//! Any text as a rule over the results of an image, and any numbers as these results: refused in words, or a decision
//! that is the same again.
#![no_main]

use konkordia_analysis::rule::Rule;
use konkordia_core::results::{self, ResultKind, analysis, metadata};
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

/// What is known of an image and what analysis says of it, lists with three entries.
static KINDS: LazyLock<Vec<ResultKind>> = LazyLock::new(|| {
    let lists = analysis::ALL.iter().map(|kind| ResultKind { length: if kind.counted_by.is_some() { 3 } else { 1 }, ..*kind });
    metadata::ALL.into_iter().chain(lists).collect()
});

// The text, a zero byte, and the bits of the numbers, over and over again.
fuzz_target!(|data: &[u8]| {
    let mut parts = data.splitn(2, |byte| *byte == 0);
    let (text, numbers) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let Ok(text) = std::str::from_utf8(text) else { return };
    match Rule::new(text, &KINDS) {
        Err(why) => assert!(!why.is_empty()),
        Ok(rule) => {
            let mut words = numbers.chunks_exact(8).map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap())).cycle();
            let bits: Vec<u64> = (0..results::numbers(&KINDS)).map(|_| words.next().unwrap_or(0)).collect();
            assert_eq!(rule.holds(&bits), rule.holds(&bits));
            assert_eq!(Rule::new(rule.text(), &KINDS).unwrap(), rule);
        }
    }
});
