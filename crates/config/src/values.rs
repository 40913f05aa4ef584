//! Values that several tables have: names and addresses.

use super::diagnostics::Diagnostics;
use super::read::Table;
use std::net::SocketAddr;

/// The address with a port of a key; `table` is named where it is wrong.
pub(super) fn address(table: &str, t: &Table, d: &mut Diagnostics, key: &str, otherwise: SocketAddr) -> SocketAddr {
    let Some(text) = t.text(key) else { return otherwise };
    text.parse().unwrap_or_else(|_| {
        let fix = "give an IP address and a port, for example \"127.0.0.1:8090\" or \"0.0.0.0:8090\" for any interface";
        d.add(t.span(key), format!("{table}.{key}: \"{text}\" is not an address with a port"), "", fix);
        otherwise
    })
}

/// Names are part of HTTP addresses and of events, so only plain characters are allowed.
pub(super) fn check_name(of: &str, name: &str, span: Option<std::ops::Range<usize>>, d: &mut Diagnostics) {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.len() > 64 || !name.chars().all(plain) {
        let fix = "use letters, digits, '-', '_' and '.', at most 64";
        d.add(span, format!("\"{name}\" is not a valid {of} name"), "it is part of addresses of the HTTP interface", fix);
    }
}
