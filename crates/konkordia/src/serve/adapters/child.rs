//! The first moments of a program of `[adapters.NAME]`: this program again, which asks the kernel to end it with the
//! service, and then becomes the other one. So the program ends too if the service is killed.

use crate::{console, contained};
use konkordia_core::failure::{Exit, reason};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

/// The environment variable that says so. Its value is the process id of the service.
pub const STARTED_BY: &str = "KONKORDIA_ADAPTER_OF";

/// Exit code of a program that cannot be started, as shells have it.
const NOT_STARTED: u8 = 127;

/// Becomes the program that the arguments name, if the service has asked for that; returns only if that fails, or if
/// nobody has asked.
pub fn replaced() -> Option<ExitCode> {
    let number = std::env::var(STARTED_BY).ok()?;
    if let Err(failure) = contained::end_with_parent(&number, STARTED_BY) {
        console::to_stderr(&failure.to_string());
        return Some(failure.exit.into());
    }
    let mut arguments = std::env::args_os().skip(1);
    let Some(program) = arguments.next() else { return Some(Exit::Usage.into()) };
    let error = Command::new(&program).args(arguments).env_remove(STARTED_BY).exec();
    console::to_stderr(&format!(
        "cannot start {}: {}; check the path of the program and that this user may run it, it is started without a shell",
        program.display(),
        reason(&error)
    ));
    Some(ExitCode::from(NOT_STARTED))
}
