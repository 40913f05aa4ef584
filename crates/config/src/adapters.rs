//! `[adapters.NAME]`: what gives other systems (SIMPLON, Jungfraujoch, EPICS, Tango, ...) access to the service in
//! their own form: servers that are part of this program, and programs that the service starts and watches.

use super::diagnostics::Diagnostics;
use super::read::{Document, Table};
use super::settings::{AdapterProgram, AdapterRole, AdapterServer, AdapterSettings, SERVERS};
use super::values;
use std::net::SocketAddr;

pub(super) fn read(document: &Document, d: &mut Diagnostics) -> AdapterSettings {
    let mut all = AdapterSettings::default();
    for (name, table) in &document.adapters {
        values::check_name("adapter", name, table.span.clone(), d);
        let (detector, role) = (table.text("detector").map(str::to_owned), role(table));
        if SERVERS.contains(&name.as_str()) {
            refuse(name, "program", "listen = \"ADDRESS:PORT\"", table, d);
            let Some(listen) = listen(name, table, d) else { continue };
            let server = Some(AdapterServer { listen, detector, role });
            if name == "simplon" {
                all.simplon = server
            } else {
                all.jfjoch = server
            }
            continue;
        }
        refuse(name, "listen", "program = [\"PROGRAM\", \"ARGUMENT\"]", table, d);
        let program = table.texts("program");
        if program.first().is_none_or(String::is_empty) {
            let fix = format!(
                "add program = [\"PROGRAM\", \"ARGUMENT\"]; the servers that are part of konkordia are {}",
                SERVERS.map(|server| format!("[adapters.{server}]")).join(" and ")
            );
            d.add(table.span.clone(), format!("[adapters.{name}] has no 'program'"), "", fix);
            continue;
        }
        all.programs.push(AdapterProgram { name: name.clone(), program, detector, role });
    }
    all
}

fn role(table: &Table) -> AdapterRole {
    if table.text("role") == Some(AdapterRole::View.name()) { AdapterRole::View } else { AdapterRole::Operate }
}

fn listen(name: &str, table: &Table, d: &mut Diagnostics) -> Option<SocketAddr> {
    if table.text("listen").is_none() {
        let fix = "add listen = \"127.0.0.1:PORT\", or the address of an interface that clients reach";
        d.add(table.span.clone(), format!("[adapters.{name}] has no 'listen'"), "", fix);
        return None;
    }
    let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
    Some(values::address(&format!("adapters.{name}"), table, d, "listen", nowhere))
}

/// Refuses a key that this kind of adapter does not have.
fn refuse(name: &str, key: &str, instead: &str, table: &Table, d: &mut Diagnostics) {
    if table.has(key) {
        let kind = if SERVERS.contains(&name) { "a server that is part of konkordia" } else { "a program" };
        d.add(table.span(key), format!("adapters.{name}.{key}: '{name}' is {kind}"), "", format!("write {instead} instead"));
    }
}
