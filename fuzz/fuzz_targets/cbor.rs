//! Any bytes as one CBOR item: refused, or JSON inside its bounds that comes back when it is written as CBOR.
#![no_main]

use konkordia_wire::cbor::{Item, item_of};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(item) = Item::new_checked(data) else { return };
    let Ok(json) = item.json(&["a"], 4096) else { return };
    let again = item_of(&json);
    let item = Item::new_checked(&again).expect("it is no deeper than it was");
    assert_eq!(item.json(&["a"], 1 << 20), Ok(json));
});
