//! The programs that come with Konkordia. They were made by [`of_geometry`](super::of_geometry); a test makes them
//! again and compares.

/// A program that comes with Konkordia.
#[derive(Clone, Copy, Debug)]
pub struct ShippedProgram {
    /// Name on the command line.
    pub name: &'static str,
    /// The program, in TOML.
    pub text: &'static str,
}

macro_rules! shipped {
    ($($name:literal),* $(,)?) => {
        /// All of them: one module each, double pixels kept as they are, no gaps.
        pub const SHIPPED: &[ShippedProgram] = &[
            $(ShippedProgram { name: $name, text: include_str!(concat!("../../programs/", $name, ".toml")) }),*
        ];
    };
}

shipped!["jungfrau-1", "jungfrau-2", "eiger-4bit", "eiger-8bit", "eiger-16bit", "eiger-32bit"];

impl ShippedProgram {
    /// The program of this name.
    pub fn find(name: &str) -> Option<&'static Self> {
        SHIPPED.iter().find(|program| program.name == name)
    }
}
