//! Any bytes as a mapping and as a table: refused, or rows that all have as many cells as there are columns.
#![no_main]

use konkordia_exchange::mapping::{Form, Mapping, Table};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let form = Form { comment: "#".into(), ..Form::default() };
    if let Ok(table) = Table::parse(data, &form) {
        assert!(table.rows.iter().all(|(_, row)| row.len() == table.names.len()));
    }
    if let Ok(text) = str::from_utf8(data) {
        let _ = Mapping::parse(text);
    }
});
