//! [`contain`] turns a panic in the work for one detector into an error that is reported, so the panic costs that work
//! only. Any other panic ends the program: its panic hook asks [`is_contained`].

use konkordia_core::failure::{Exit, Failure};
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};

thread_local! {
    /// Calls of [`contain`] in progress on this thread.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    /// Where in the sources the last panic of this thread happened, for the report.
    static PLACE: RefCell<String> = const { RefCell::new(String::new()) };
}

/// A panic that was contained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Panic {
    /// The thread on which it happened.
    pub thread: String,
    /// The panic message, with the place in the sources if that is known.
    pub why: String,
}

impl From<&Panic> for Failure {
    fn from(panic: &Panic) -> Self {
        let what = format!("a bug in konkordia ended the thread {}", panic.thread);
        let fix = "please report this text with the configuration; the images written so far are in the files: `konkordia check FILE` checks them, `konkordia repair FILE` completes files that were not closed";
        Self::new(Exit::Bug, what, panic.why.clone(), fix)
    }
}

impl fmt::Display for Panic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a bug in konkordia ended the thread {}: {}", self.thread, self.why)
    }
}

/// Runs `work` and returns a panic in it as an error. After a panic, what `work` changes may be half changed: use it
/// afterwards only where that does no harm.
///
/// # Errors
/// It panicked.
pub fn contain<T>(work: impl FnOnce() -> T) -> Result<T, Panic> {
    DEPTH.set(DEPTH.get() + 1);
    let result = catch_unwind(AssertUnwindSafe(work));
    DEPTH.set(DEPTH.get() - 1);
    result.map_err(|payload| {
        let place = PLACE.take();
        let place = if place.is_empty() { place } else { format!(" ({place})") };
        let thread = std::thread::current().name().unwrap_or("without a name").to_string();
        Panic { thread, why: format!("{}{place}", words(&*payload)) }
    })
}

/// From now on a panic on this thread is contained, because whoever gave it the work takes it: that of a server, which
/// answers the request with an error.
pub fn contain_thread() {
    DEPTH.set(DEPTH.get() + 1);
}

/// True while this thread is inside [`contain`]: a panic now ends only that work.
pub fn is_contained() -> bool {
    DEPTH.get() > 0
}

/// Records where in the sources this panic happened. Called by the panic hook of the program.
pub fn note_place(info: &PanicHookInfo<'_>) {
    let place = info.location().map(|l| format!("{}:{}", l.file(), l.line())).unwrap_or_default();
    PLACE.replace(place);
}

/// The message of a panic; empty if it is not text.
pub fn words(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|s| (*s).to_string());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_comes_back_as_an_error_with_its_words_and_its_thread() {
        assert!(!is_contained());
        assert_eq!(contain(|| (is_contained(), 7)), Ok((true, 7)));
        let work = || contain(|| contain(|| assert!(std::hint::black_box(false), "seven is not {}", 8)).map(|()| 1));
        let thread = std::thread::Builder::new().name("rx-3".into()).spawn(work).unwrap();
        let panic = thread.join().unwrap().unwrap().unwrap_err();
        assert_eq!((&*panic.thread, &*panic.why), ("rx-3", "seven is not 8"));
        assert!(!is_contained());
    }
}
