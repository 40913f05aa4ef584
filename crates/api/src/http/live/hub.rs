//! What all live connections share: which image of a detector is the newest, and frames that several of them want.
//! While nobody looks, nothing is done here.

use super::frame::{Found, Wanted};
use konkordia_acquire::handle::{Detector, Fleet};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{OnceCell, watch};

/// How often the newest image is looked for while somebody looks on.
const EVERY: Duration = Duration::from_millis(15);
/// Frames that are kept for others who want the same.
const FRAMES_MAX: usize = 8;

/// Run and number of the newest image.
pub type Newest = Option<(u64, u64)>;
/// A frame that is being made, or was.
pub type Shared = Arc<OnceCell<Found>>;

/// One for each detector.
pub struct Hub {
    newest: watch::Sender<Newest>,
    /// A task looks for the newest image.
    is_looked_for: AtomicBool,
    frames: Mutex<VecDeque<(Wanted, Shared)>>,
    /// Looks for the newest image, and frames made: both stand still while nobody looks on.
    pub looks: AtomicU64,
    /// Frames that were made.
    pub frames_made: AtomicU64,
}

impl Hub {
    /// One for each detector, in their order.
    pub fn of(fleet: &Fleet) -> Vec<Arc<Self>> {
        let one = |_| {
            Arc::new(Self {
                newest: watch::channel(None).0,
                is_looked_for: AtomicBool::new(false),
                frames: Mutex::default(),
                looks: AtomicU64::new(0),
                frames_made: AtomicU64::new(0),
            })
        };
        fleet.detectors.iter().map(one).collect()
    }

    /// The newest image from now on. Somebody looks for it as long as anybody holds a receiver.
    pub fn subscribe(self: &Arc<Self>, detector: &Arc<dyn Detector>) -> watch::Receiver<Newest> {
        let receiver = self.newest.subscribe();
        if !self.is_looked_for.swap(true, Ordering::AcqRel) {
            tokio::spawn(look(Arc::clone(self), Arc::clone(detector)));
        }
        receiver
    }

    /// Those who want frames.
    pub fn viewers(&self) -> usize {
        self.newest.receiver_count()
    }

    /// The place of a frame: who asks first makes it.
    pub fn place(&self, wanted: &Wanted) -> Shared {
        let mut frames = self.frames.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, found)) = frames.iter().find(|(other, _)| other == wanted) {
            return Arc::clone(found);
        }
        if frames.len() == FRAMES_MAX {
            frames.pop_front();
        }
        let place = Shared::default();
        frames.push_back((wanted.clone(), Arc::clone(&place)));
        place
    }
}

async fn look(hub: Arc<Hub>, detector: Arc<dyn Detector>) {
    loop {
        if hub.newest.receiver_count() == 0 {
            hub.frames.lock().unwrap_or_else(PoisonError::into_inner).clear();
            hub.is_looked_for.store(false, Ordering::Release);
            // Somebody may have come just now, and found that this task still runs.
            if hub.newest.receiver_count() == 0 || hub.is_looked_for.swap(true, Ordering::AcqRel) {
                return;
            }
        }
        hub.looks.fetch_add(1, Ordering::Relaxed);
        let (numbers, run) = detector.images().numbers();
        let newest = numbers.last().map(|number| (run.unwrap_or_else(|| detector.status().run), *number));
        hub.newest.send_if_modified(|known| std::mem::replace(known, newest) != newest);
        tokio::time::sleep(EVERY).await;
    }
}
