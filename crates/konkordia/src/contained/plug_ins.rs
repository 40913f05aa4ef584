//! Filters of others: chunks go to a process that loads the plug-ins of HDF5 ([`plug_in_process`]), and pixels come
//! back. A plug-in is a library of somebody else: it may crash, never return, or take all memory. That process then
//! ends with it, and the image cannot be decoded; nothing else happens.
//!
//! [`plug_in_process`]: super::plug_in_process

use super::plug_in_process::{STARTED_BY, write_request};
use super::progress;
use konkordia_acquire::machine;
use konkordia_core::plan::OtherFilter;
use konkordia_plugin::others::{DEFAULT_FOLDER, VARIABLE};
use konkordia_sinks::hdf5::decode_others_by;
use signal_hook::low_level::signal_name;
use std::io::{self, ErrorKind, Read};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// The one process of this process that runs plug-ins.
static RUNNER: OnceLock<Mutex<Runner>> = OnceLock::new();

struct Runner {
    child: Child,
    socket: UnixStream,
    /// How long a chunk may take.
    patience: Duration,
    /// Why nothing is decoded any more.
    gone: Option<String>,
}

/// Starts the process that runs plug-ins, if the user has any. It is to be started before this process gives up the
/// right to start programs.
///
/// # Errors
/// It cannot be started.
pub fn start() -> io::Result<()> {
    let has_folders = match std::env::var_os(VARIABLE) {
        Some(folders) => !folders.is_empty(),
        None => Path::new(DEFAULT_FOLDER).is_dir(),
    };
    if !has_folders {
        return Ok(());
    }
    let (socket, of_child) = UnixStream::pair()?;
    // The parent has checked the variable; a wrong one has ended it.
    let patience = progress::patience().map_err(|_| io::Error::other(format!("{} is wrong", progress::VARIABLE)))?;
    socket.set_read_timeout(Some(patience))?;
    // In a group of its own Ctrl-C does not reach it: this process may still need it to finish a file.
    let child = Command::new(machine::own_program())
        .env_remove(super::child::STARTED_BY)
        .env(STARTED_BY, std::process::id().to_string())
        .stdin(Stdio::from(OwnedFd::from(of_child)))
        .stdout(Stdio::null())
        .process_group(0)
        .spawn()?;
    RUNNER.get_or_init(|| Mutex::new(Runner { child, socket, patience, gone: None }));
    decode_others_by(decode);
    Ok(())
}

/// Has a chunk decoded into exactly `out`.
fn decode(filters: &[OtherFilter], chunk: &[u8], out: &mut [u8]) -> Result<(), String> {
    let runner = RUNNER.get().ok_or("no process runs plug-ins")?;
    let mut runner = runner.lock().unwrap_or_else(PoisonError::into_inner);
    let ids: Vec<String> = filters.iter().map(|filter| filter.id.to_string()).collect();
    let named = |why: String| format!("HDF5 filter {}: {why}", ids.join(", "));
    if let Some(why) = &runner.gone {
        return Err(named(why.clone()));
    }
    match runner.ask(filters, chunk, out) {
        Ok(answer) => answer.map_err(named),
        Err(error) => {
            let why = runner.end(&error);
            runner.gone = Some(why.clone());
            Err(named(why))
        }
    }
}

impl Runner {
    /// The answer of the process; the error is that of the socket.
    fn ask(&mut self, filters: &[OtherFilter], chunk: &[u8], out: &mut [u8]) -> io::Result<Result<(), String>> {
        write_request(&mut self.socket, filters, chunk, out.len() as u64)?;
        let mut is_done = [0];
        self.socket.read_exact(&mut is_done)?;
        if is_done == [1] {
            return self.socket.read_exact(out).map(Ok);
        }
        let mut length = [0; 4];
        self.socket.read_exact(&mut length)?;
        let mut why = Vec::new();
        (&self.socket).take(u32::from_le_bytes(length).into()).read_to_end(&mut why)?;
        Ok(Err(String::from_utf8_lossy(&why).into_owned()))
    }

    /// Gives up on the process, which has not answered or has closed the socket; says why that was.
    fn end(&mut self, error: &io::Error) -> String {
        let folders = std::env::var(VARIABLE).unwrap_or_else(|_| DEFAULT_FOLDER.into());
        let bad =
            format!("the file or the plug-in in {folders} is bad: try the plug-in with h5dump, or leave it out of {VARIABLE}");
        if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) {
            // Landlock lets this process send no signals to it any more; it ends by itself at the end of its socket.
            let _ = self.socket.shutdown(Shutdown::Both);
            let (seconds, variable) = (self.patience.as_secs(), progress::VARIABLE);
            return format!("its plug-in gave no image within {seconds} s ({variable} sets the time); {bad}");
        }
        match self.child.wait() {
            Ok(status) => match status.signal().filter(|signal| *signal != rustix::process::Signal::KILL.as_raw()) {
                Some(signal) => format!("its plug-in crashed ({}); {bad}", signal_name(signal).unwrap_or("an unknown signal")),
                None => format!("its plug-in ended the process that runs it ({status}); {bad}"),
            },
            Err(_) => format!("the process that runs its plug-in is gone; {bad}"),
        }
    }
}
