//! Libraries that set handlers of signals when they are opened. Those of providers of libfabric 1.17 print a trace and
//! end the program at SIGTERM and SIGINT, which are ours.

use std::sync::{Mutex, PoisonError};

/// Signals of Linux, of which some numbers are not in use.
const SIGNALS: std::ops::RangeInclusive<libc::c_int> = 1..=64;

/// Does `work`, and puts back the handlers of signals that it has changed.
pub(super) fn keeping_handlers<T>(work: impl FnOnce() -> T) -> T {
    // One at a time: another thread would take for ours what a library has just set.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let before: Vec<_> = SIGNALS.filter_map(|signal| Some((signal, handler(signal)?))).collect();
    let done = work();
    for (signal, action) in before {
        let is_changed = handler(signal).is_some_and(|now| now.sa_sigaction != action.sa_sigaction);
        if is_changed {
            // SAFETY: the action is what the kernel returned for this signal, so its handler is still there.
            unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
        }
    }
    done
}

/// What happens at a signal; `None` for numbers that are not in use.
fn handler(signal: libc::c_int) -> Option<libc::sigaction> {
    // SAFETY: zeros are valid; nothing is set, and one structure is written.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        (libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0).then_some(action)
    }
}
