//! Libraries that are opened at run time leave the signals of the program alone. A program of its own, because what is
//! opened stays open.

use konkordia_links::kind::{Kind, Listener};
use konkordia_links::{libfabric, verbs};

#[path = "../../../tests/skip.rs"]
mod skip;

/// The signals that this program catches or ignores, as the kernel lists them.
fn signals() -> Vec<String> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let lines = status.lines().filter(|line| line.starts_with("SigCgt") || line.starts_with("SigIgn"));
    lines.map(str::to_owned).collect()
}

#[test]
fn libraries_leave_signals_alone() {
    let before = signals();
    assert_eq!(before.len(), 2);
    let offers = libfabric::offers();
    // Whether there is a device is another matter.
    let _devices = verbs::devices();
    assert_eq!(signals(), before);
    match offers {
        Err(absent) => skip::skipped(&absent.to_string()),
        // Providers are opened when an endpoint is.
        Ok(_) => {
            let kind = Kind::Libfabric { provider: "shm".into() };
            let mut listener = Listener::bind(kind.clone(), "127.0.0.1:0".parse().unwrap()).unwrap();
            let address = listener.local_addr().unwrap();
            let wait = std::time::Duration::from_secs(60);
            let far = std::thread::spawn(move || drop(kind.connect(address, wait).unwrap()));
            drop(listener.accept(wait).unwrap().unwrap());
            far.join().unwrap();
            assert_eq!(signals(), before);
        }
    }
}
