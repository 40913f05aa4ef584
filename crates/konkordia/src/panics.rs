//! How the program reports a panic, and which panics end it.

use konkordia_core::failure::{Exit, Failure};
use konkordia_engine::contain;

/// From here on a panic is reported as a bug in the program. It ends the program with exit code 70, unless it is
/// contained: then only one request, image, series or run is lost.
pub fn report_as_bugs() {
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map(|l| format!("{}:{}", l.file(), l.line())).unwrap_or_default();
        let text = info.payload_as_str().unwrap_or_default();
        let failure = Failure::new(
            Exit::Bug,
            "a bug in konkordia",
            format!("{text} ({place}, konkordia {})", env!("CARGO_PKG_VERSION")),
            "please report this text with the command that you gave; `konkordia repair FILE` completes the files written so far",
        );
        crate::console::to_stderr(&failure.to_string());
        contain::note_place(info);
        if contain::is_contained() {
            return;
        }
        // The other threads would wait for this one for ever.
        std::process::exit(i32::from(Exit::Bug as u8));
    }));
}
