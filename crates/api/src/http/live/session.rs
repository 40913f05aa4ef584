//! One live connection, from its first message to its end.

use super::frame::Wanted;
use super::frames;
use super::hub::{Hub, Newest};
use super::messages::{FrameRequest, FromClient, ToClient, Which};
use crate::http::connection_slots::Seat;
use crate::http::problem::Problem;
use crate::http::state::{Shared, changed};
use crate::security::{Identity, Role};
use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket};
use konkordia_acquire::handle::{Detector, News, Subscription};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};

/// Time for the first message.
const HELLO: Duration = Duration::from_secs(10);
/// States and statistics are sent this often although nothing changes, and the token is checked.
const BEAT: Duration = Duration::from_secs(1);
/// Shortest time between two messages of states.
const STATES_APART: Duration = Duration::from_millis(200);
/// Frames on their way that were not acknowledged.
const UNACKNOWLEDGED_MAX: u64 = 2;
/// The token is not valid, or missing.
const CLOSED_BY_TOKEN: u16 = 4401;
/// A message was not understood.
const CLOSED_BY_MESSAGE: u16 = 4400;

/// The client is gone, or must go.
struct Gone;

/// What a client watches.
struct Watched {
    detector: Arc<dyn Detector>,
    hub: Arc<Hub>,
    frames: Option<FrameRequest>,
    /// Held while frames are wanted: somebody looks for the newest image meanwhile.
    newest: Option<watch::Receiver<Newest>>,
    /// The image of the last frame, unless it is to be sent again.
    sent: Newest,
    /// The last image that a frame was sent of.
    shown: Newest,
    /// When the next frame may be sent.
    due: Instant,
    /// It was said that there is no such image.
    is_told: bool,
}

struct Session {
    shared: Arc<Shared>,
    socket: WebSocket,
    token: Option<String>,
    watched: Option<Watched>,
    sequence: u64,
    acknowledged: u64,
}

/// Serves a connection until either side ends it.
pub async fn run(shared: Arc<Shared>, mut socket: WebSocket, seat: Option<Arc<Seat>>) {
    let first = timeout(HELLO, socket.recv()).await.ok().flatten().and_then(Result::ok);
    let mut session = Session { shared, socket, token: None, watched: None, sequence: 0, acknowledged: 0 };
    let hello = match first.as_ref().map(Message::to_text) {
        Some(Ok(text)) => serde_json::from_str(text),
        _ => return,
    };
    let Ok(FromClient::Hello { token }) = hello else {
        let problem = Problem::new("bad_message", "the first message is no hello", "docs/live.md lists the messages");
        session.refuse(&problem, CLOSED_BY_MESSAGE).await;
        return;
    };
    session.token = token;
    let (name, role) = match session.may_look() {
        Ok(known) => known,
        Err(problem) => return session.refuse(&problem, CLOSED_BY_TOKEN).await,
    };
    let _streaming = seat.map(|seat| {
        seat.asks(true);
        seat.streams()
    });
    let welcome = ToClient::Welcome { version: env!("CARGO_PKG_VERSION"), name: &name, role }.text();
    if session.send(welcome).await.is_ok() {
        // Whoever is gone needs no answer.
        let _ = session.serve().await;
    }
}

impl Session {
    /// Name and role of the client, by its token.
    fn may_look(&self) -> Result<(String, Role), Problem> {
        let Some(tokens) = &self.shared.tokens else { return Ok(("local".into(), Role::Configure)) };
        let hint = "`konkordia token create` makes tokens";
        match self.token.as_deref().map(|token| tokens.load().identify(token)) {
            Some(Identity::Known { name, role }) => Ok((name, role)),
            Some(_) => Err(Problem::new("bad_token", "the service does not know this token", hint)),
            None => Err(Problem::new("no_token", "this service needs a token", hint)),
        }
    }

    async fn serve(&mut self) -> Result<(), Gone> {
        let mut stopping = self.shared.stopping.subscribe();
        let mut events = self.shared.fleet.events.subscribe();
        let mut beat = interval(BEAT);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut states_due, mut have_states_changed) = (Instant::now(), false);
        while !*stopping.borrow_and_update() {
            tokio::select! {
                message = self.socket.recv() => self.take(message).await?,
                _ = beat.tick() => {
                    if let Err(problem) = self.may_look() {
                        self.refuse(&problem, CLOSED_BY_TOKEN).await;
                        return Err(Gone);
                    }
                    self.send_statistics().await?;
                    have_states_changed = true;
                }
                () = changed(&mut events) => {
                    self.send_events(&mut events).await?;
                    have_states_changed = true;
                }
                () = sleep_until(states_due), if have_states_changed => {
                    (states_due, have_states_changed) = (Instant::now() + STATES_APART, false);
                    self.send_states().await?;
                }
                () = frame_is_due(self.watched.as_mut()), if self.sequence - self.acknowledged < UNACKNOWLEDGED_MAX => {
                    self.send_frame().await?;
                }
                _ = stopping.changed() => {}
            }
        }
        Ok(())
    }

    async fn send(&mut self, text: String) -> Result<(), Gone> {
        self.socket.send(Message::Text(text.into())).await.map_err(|_| Gone)
    }

    /// Says what is wrong, and ends the connection.
    async fn refuse(&mut self, problem: &Problem, code: u16) {
        let reason = Utf8Bytes::from(problem.body().code.clone());
        if self.send(ToClient::problem(problem).text()).await.is_ok() {
            let _ = self.socket.send(Message::Close(Some(CloseFrame { code, reason }))).await;
        }
    }

    async fn take(&mut self, message: Option<Result<Message, axum::Error>>) -> Result<(), Gone> {
        let text = match message {
            Some(Ok(Message::Text(text))) => text,
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => return Ok(()),
            Some(Ok(Message::Binary(_))) => "(bytes)".into(),
            Some(Ok(Message::Close(_)) | Err(_)) | None => return Err(Gone),
        };
        let problem = match serde_json::from_str(&text) {
            Ok(FromClient::Ack { sequence }) if sequence <= self.sequence => {
                self.acknowledged = self.acknowledged.max(sequence);
                return Ok(());
            }
            Ok(FromClient::Watch { detector, frames }) => match self.watch(detector.as_deref(), frames) {
                Ok(()) => return self.send_statistics().await,
                Err(problem) => return self.send(ToClient::problem(&problem).text()).await,
            },
            Ok(FromClient::Ack { sequence }) => format!("there was no frame {sequence}"),
            Ok(FromClient::Hello { .. }) => "a second hello".into(),
            Err(error) => error.to_string(),
        };
        self.refuse(&Problem::new("bad_message", problem, "docs/live.md lists the messages"), CLOSED_BY_MESSAGE).await;
        Err(Gone)
    }

    fn watch(&mut self, detector: Option<&str>, frames: Option<FrameRequest>) -> Result<(), Problem> {
        if let Some(mistake) = frames.as_ref().and_then(FrameRequest::mistake) {
            return Err(Problem::new("bad_message", mistake, "docs/live.md lists the fields"));
        }
        let detector = self.shared.detector(detector)?;
        let place = self.shared.fleet.detectors.iter().position(|other| other.name() == detector.name());
        let hub = Arc::clone(&self.shared.live[place.unwrap_or_default()]);
        let old = self.watched.take().filter(|old| old.detector.name() == detector.name());
        let (due, shown) = old.as_ref().map_or((Instant::now(), None), |old| (old.due, old.shown));
        let known = old.and_then(|old| old.newest);
        let newest = frames.is_some().then(|| {
            let mut newest = known.unwrap_or_else(|| hub.subscribe(&detector));
            newest.mark_changed();
            newest
        });
        self.watched = Some(Watched { detector, hub, frames, newest, sent: None, shown, due, is_told: false });
        Ok(())
    }

    async fn send_states(&mut self) -> Result<(), Gone> {
        let states: Vec<_> = self.shared.fleet.detectors.iter().map(|detector| detector.status()).collect();
        self.send(ToClient::Status { detectors: states.iter().map(|state| &**state).collect() }.text()).await
    }

    async fn send_statistics(&mut self) -> Result<(), Gone> {
        let Some(watched) = &self.watched else { return Ok(()) };
        let statistics = watched.detector.statistics();
        let (numbers, run) = watched.detector.images().numbers();
        let images = numbers.first().zip(numbers.last()).map(|(first, last)| [*first, *last]);
        let run = run.unwrap_or_else(|| watched.detector.status().run);
        self.send(ToClient::Statistics { statistics: &statistics, images, run }.text()).await
    }

    /// Sends what is new.
    async fn send_events(&mut self, events: &mut Subscription) -> Result<(), Gone> {
        while let Some(news) = events.read() {
            let text = match &news {
                News::Event(event) => ToClient::Event { event }.text(),
                News::Missed(events) => ToClient::Missed { events: *events }.text(),
            };
            self.send(text).await?;
        }
        Ok(())
    }

    async fn send_frame(&mut self) -> Result<(), Gone> {
        let Some(watched) = &mut self.watched else { return Ok(()) };
        let (Some(request), Some(newest)) = (&watched.frames, &mut watched.newest) else { return Ok(()) };
        let Some(newest) = *newest.borrow_and_update() else { return Ok(()) };
        let number = if let Which::Number(number) = request.image { Some(number) } else { None };
        let chosen = frames::choose(&*watched.detector, request.image, newest);
        if chosen.is_some() && chosen == watched.sent {
            return Ok(());
        }
        let made = match chosen {
            Some(image) => {
                let wanted = Wanted::new(request, image);
                let place = watched.hub.place(&wanted);
                let make = async {
                    watched.hub.frames_made.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    frames::make(&self.shared, &watched.detector, &wanted).await
                };
                Some((image, place.get_or_init(|| make).await.clone()))
            }
            None => None,
        };
        watched.due = Instant::now() + Duration::from_secs_f64(1.0 / request.hz_max);
        let text = match made {
            Some((image, Ok(made))) => {
                let same_run = watched.shown.filter(|shown| shown.0 == image.0);
                let skipped = same_run.map_or(0, |shown| image.1.saturating_sub(shown.1 + 1));
                let age = watched.detector.images().age(image.1).map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
                (watched.sent, watched.shown, watched.is_told) = (Some(image), Some(image), false);
                self.sequence += 1;
                let message = made.message(self.sequence, skipped, age);
                return self.socket.send(Message::Binary(message)).await.map_err(|_| Gone);
            }
            _ if watched.is_told => return Ok(()),
            Some((image, Err(problem))) => {
                let body = problem.body();
                ToClient::NoImage { image: Some(image.1), detail: &body.detail, hint: body.hint.as_deref().unwrap_or_default() }
                    .text()
            }
            None if number.is_some() => {
                let problem = crate::http::images::none(&*watched.detector, number);
                let hint = "the newest images are kept; older ones are in the file";
                ToClient::NoImage { image: number, detail: &problem.body().detail, hint }.text()
            }
            None => ToClient::NoImage {
                image: None,
                detail: "none of the newest images is a hit",
                hint: "a hit is shown as soon as there is one",
            }
            .text(),
        };
        watched.is_told = true;
        self.send(text).await
    }
}

/// Waits until there may be something new to send, and it is time for it.
async fn frame_is_due(watched: Option<&mut Watched>) {
    let Some(Watched { newest: Some(newest), due, .. }) = watched else { return std::future::pending().await };
    sleep_until(*due).await;
    if newest.changed().await.is_err() {
        std::future::pending().await
    }
}
