//! Programs of the bridge by name: files, and those that come with Konkordia.

use konkordia_core::failure::{Exit, Failure};
use konkordia_fabric::bridge::{AddressTable, Program, SHIPPED, ShippedProgram};
use std::path::Path;

/// The text of a program: of a file, or one that comes with Konkordia.
pub fn text_of(name: &str) -> Result<String, Failure> {
    if let Some(shipped) = ShippedProgram::find(name).filter(|_| !Path::new(name).exists()) {
        return Ok(shipped.text.to_owned());
    }
    std::fs::read_to_string(name).map_err(|error| {
        let names: Vec<&str> = SHIPPED.iter().map(|program| program.name).collect();
        let mut failure = Failure::io("cannot read the program", Path::new(name), &error);
        failure.fix = format!("{}, or name one of {}", failure.fix, names.join(", "));
        failure
    })
}

/// A compiled program.
pub fn table_of(name: &str) -> Result<AddressTable, Failure> {
    Program::compile_text(&text_of(name)?).map_err(|problems| {
        let fix = "correct these lines; docs/bridge.md lists the keys";
        Failure::new(Exit::Configuration, format!("the program {name} is not valid"), problems.to_string(), fix)
    })
}
