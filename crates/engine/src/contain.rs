//! A panic is a mistake in the program. Where it happens in the work for one detector it costs that work only: [`contain`] turns it into an error that
//! is told, and the hook that ends the program leaves alone what [`is_contained`].

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};

thread_local! {
    /// Calls of [`contain`] that this thread is in.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    /// Where the last panic of this thread began, for those who are told of it.
    static PLACE: RefCell<String> = const { RefCell::new(String::new()) };
}

/// A panic that was contained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Panic {
    /// The thread on which it happened.
    pub thread: String,
    /// What it said, and where in the sources if that is known.
    pub why: String,
}

impl fmt::Display for Panic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a mistake in konkordia itself ended the thread {}: {}", self.thread, self.why)
    }
}

/// Does `work`; a panic in it comes back as an error. What `work` changes is to be used afterwards only where a half-done change does no harm.
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

/// True while this thread is within [`contain`]: a panic here and now ends that work and nothing else.
pub fn is_contained() -> bool {
    DEPTH.get() > 0
}

/// For the hook of the program: notes where this panic began.
pub fn note_place(info: &PanicHookInfo<'_>) {
    let place = info.location().map(|l| format!("{}:{}", l.file(), l.line())).unwrap_or_default();
    PLACE.replace(place);
}

/// What a panic says.
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
