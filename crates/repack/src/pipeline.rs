//! Passes items through several threads and keeps their order. One thread reads and writes, because libhdf5 takes one
//! thread at a time; the others do the work in between.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::mpsc::{channel, sync_channel};

/// Items in flight for each worker.
const AHEAD: usize = 4;

/// Reads items with `read` until it gives `None`, lets the workers do `work` on them, and hands the results to `write`
/// in the order of reading. Each worker has a state of its own from `state`. The first error ends it.
///
/// # Errors
/// That of `read`, `work` or `write`.
pub fn run<T: Send, R: Send, S, E: Send>(
    workers: usize,
    mut read: impl FnMut() -> Result<Option<T>, E>,
    state: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, T) -> Result<R, E> + Sync,
    mut write: impl FnMut(R) -> Result<(), E>,
) -> Result<(), E> {
    let (to_workers, items) = sync_channel::<(u64, T)>(workers * AHEAD);
    let (items, state, work) = (&Mutex::new(items), &state, &work);
    std::thread::scope(|scope| {
        // Dropped at the end of this closure, also after an error, so that the workers end.
        let to_workers = to_workers;
        let (to_writer, results) = channel();
        for _ in 0..workers {
            let to_writer = to_writer.clone();
            scope.spawn(move || {
                let mut own = state();
                loop {
                    let next = items.lock().expect("no worker panics with the lock").recv();
                    let Ok((n, item)) = next else { return };
                    if to_writer.send((n, work(&mut own, item))).is_err() {
                        return;
                    }
                }
            });
        }
        let (mut read_count, mut written, mut ended) = (0u64, 0u64, false);
        let mut waiting = BTreeMap::new();
        while !ended || written < read_count {
            while !ended && read_count - written < (workers * AHEAD) as u64 {
                match read()? {
                    Some(item) => {
                        to_workers.send((read_count, item)).expect("the workers wait for items");
                        read_count += 1;
                    }
                    None => ended = true,
                }
            }
            if written < read_count {
                let (n, result) = results.recv().expect("a worker has the item");
                waiting.insert(n, result?);
            }
            while let Some(result) = waiting.remove(&written) {
                write(result)?;
                written += 1;
            }
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_order_and_errors_end_it() {
        for workers in [1, 2, 5] {
            let mut items = (0..200u64).map(|n| if n == 150 { Err("read") } else { Ok(n) });
            let mut got = Vec::new();
            let slow = |_: &mut (), n: u64| {
                std::thread::sleep(std::time::Duration::from_micros(n % 7 * 50));
                Ok(n * 2)
            };
            let ended = run(
                workers,
                || items.next().transpose(),
                || (),
                slow,
                |n| {
                    got.push(n);
                    Ok(())
                },
            );
            assert_eq!(ended, Err("read"));
            assert!(got.iter().copied().eq((0..got.len() as u64).map(|n| 2 * n)));
            let mut items = 0..100u64;
            let ended = run(workers, || Ok(items.next()), || (), |_, n| if n == 60 { Err("work") } else { Ok(n) }, |_| Ok(()));
            assert_eq!(ended, Err("work"));
        }
    }
}
