//! What a client watches, and which frame is the next for it.

use super::frame::{Found, Made, Wanted};
use super::frames::{self, Source};
use super::hub::{Hub, Newest};
use super::messages::{FrameRequest, Which};
use crate::http::problem::Problem;
use crate::http::state::Shared;
use crate::http::{files, images};
use konkordia_acquire::handle::Detector;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// Making stacks takes at most one part in so many of the time of a core.
const STACK_SHARE: u32 = 4;

/// What a client watches.
pub struct Watched {
    /// The detector.
    pub detector: Arc<dyn Detector>,
    frames: Option<Frames>,
    /// When the next frame may be sent.
    due: Instant,
    /// The last image that a frame was sent of.
    shown: Newest,
}

/// The frames that are wanted.
struct Frames {
    request: FrameRequest,
    source: Source,
    hub: Arc<Hub>,
    /// Held while frames of the newest images are wanted: somebody looks for them meanwhile. `None` for a file.
    newest: Option<watch::Receiver<Newest>>,
    /// It was asked for, and nothing was sent yet.
    is_new: bool,
    /// The image of the last frame, unless it is to be sent again.
    sent: Newest,
    /// It was said that there is no such image.
    is_told: bool,
}

/// What is sent next.
pub enum Next {
    /// Nothing is new.
    Nothing,
    Frame(NextFrame),
    NoImage {
        image: Option<u64>,
        problem: Arc<Problem>,
    },
}

/// A frame, and what differs between those who get it.
pub struct NextFrame {
    pub made: Arc<Made>,
    pub skipped: u64,
    pub age_ms: Option<u64>,
}

impl Watched {
    /// What a client asks for; `old` is what it watched before.
    ///
    /// # Errors
    /// There is no such detector or file, or the request is not as it must be.
    pub async fn new(
        shared: &Shared,
        detector: Option<&str>,
        frames: Option<FrameRequest>,
        old: Option<Self>,
    ) -> Result<Self, Problem> {
        if let Some(mistake) = frames.as_ref().and_then(FrameRequest::mistake) {
            return Err(Problem::new("bad_message", mistake, "docs/live.md lists the fields"));
        }
        let detector = shared.detector(detector)?;
        let old = old.filter(|old| old.detector.name() == detector.name());
        let (due, shown) = old.as_ref().map_or((Instant::now(), None), |old| (old.due, old.shown));
        let frames = match frames {
            Some(request) => Some(Frames::new(shared, &detector, request, old.and_then(|old| old.frames)).await?),
            None => None,
        };
        Ok(Self { detector, frames, due, shown })
    }

    /// The next frame, if there is something new.
    pub async fn next(&mut self, shared: &Shared) -> Next {
        let Some(frames) = &mut self.frames else { return Next::Nothing };
        let Some(newest) = frames.newest() else { return Next::Nothing };
        let request = &frames.request;
        let chosen = frames::choose(&*frames.source.images, request.image, newest);
        if chosen.is_some() && chosen == frames.sent {
            return Next::Nothing;
        }
        let made = match chosen {
            Some(image) => Some((image, frames.make(shared, image).await)),
            None => None,
        };
        let took = made.as_ref().and_then(|(_, found)| found.as_ref().ok()).map_or(Duration::ZERO, |made| made.took);
        let of_stack = frames.request.stack.map_or(Duration::ZERO, |_| took * (STACK_SHARE - 1));
        self.due = Instant::now() + Duration::from_secs_f64(1.0 / frames.request.hz_max).max(of_stack);
        let (image, problem) = match made {
            Some((image, Ok(made))) => {
                let same_run = self.shown.filter(|shown| shown.0 == image.0 && frames.newest.is_some());
                let skipped = same_run.map_or(0, |shown| image.1.saturating_sub(shown.1 + 1));
                let age = frames.source.images.age(image.1).map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
                (frames.sent, self.shown, frames.is_told) = (Some(image), Some(image), false);
                return Next::Frame(NextFrame { made, skipped, age_ms: age });
            }
            _ if frames.is_told => return Next::Nothing,
            Some((image, Err(problem))) => (Some(image.1), problem),
            None => frames.none(),
        };
        frames.is_told = true;
        Next::NoImage { image, problem }
    }
}

impl Frames {
    async fn new(
        shared: &Shared,
        detector: &Arc<dyn Detector>,
        request: FrameRequest,
        old: Option<Self>,
    ) -> Result<Self, Problem> {
        let hub = Arc::clone(shared.hub(&**detector));
        let images = match &request.file {
            Some(path) => files::open(shared, detector, path).await?,
            None => detector.images(),
        };
        let newest = request.file.is_none().then(|| {
            let known = old.and_then(|old| old.newest);
            known.unwrap_or_else(|| hub.subscribe(detector))
        });
        let source = Source { detector: Arc::clone(detector), images, file: request.file.clone() };
        Ok(Self { request, source, hub, newest, is_new: true, sent: None, is_told: false })
    }

    /// Run and number of the newest image, or the last one of the file.
    fn newest(&mut self) -> Newest {
        self.is_new = false;
        match &mut self.newest {
            Some(newest) => *newest.borrow_and_update(),
            None => self.source.images.numbers().0.last().map(|number| (0, *number)),
        }
    }

    /// Makes a frame, or takes the one that was made for another client. Those of files are made for each.
    async fn make(&self, shared: &Shared, image: (u64, u64)) -> Found {
        let wanted = Wanted::new(&self.request, image);
        let make = async {
            self.hub.frames_made.fetch_add(1, Ordering::Relaxed);
            frames::make(shared, &self.source, &wanted).await
        };
        match self.newest {
            Some(_) => self.hub.place(&wanted).get_or_init(|| make).await.clone(),
            None => make.await,
        }
    }

    /// Which image is not there, and why.
    fn none(&self) -> (Option<u64>, Arc<Problem>) {
        let number = if let Which::Number(number) = self.request.image { Some(number) } else { None };
        let problem = if number.is_some() {
            let known = images::none(&*self.source.images, number);
            let hint = match self.newest {
                Some(_) => "the newest images are kept; older ones are in the file",
                None => "the file has no other images",
            };
            Problem::new("no_image", known.body().detail.clone(), hint)
        } else {
            Problem::new("no_image", "none of the newest images is a hit", "a hit is shown as soon as there is one")
        };
        (number, Arc::new(problem))
    }
}

/// Waits until there may be something new to send, and it is time for it.
pub async fn frame_is_due(watched: Option<&mut Watched>) {
    let Some(Watched { frames: Some(frames), due, .. }) = watched else { return std::future::pending().await };
    sleep_until(*due).await;
    if frames.is_new {
        return;
    }
    let Some(newest) = &mut frames.newest else { return std::future::pending().await };
    if newest.changed().await.is_err() {
        std::future::pending().await
    }
}
