//! One live connection, from its first message to its end.

use super::messages::{FrameRequest, FromClient, ToClient};
use super::watched::{Next, Watched, frame_is_due};
use crate::http::connection_slots::Seat;
use crate::http::guard;
use crate::http::problem::Problem;
use crate::http::state::{Shared, changed};
use crate::security::{Identity, Role};
use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket};
use konkordia_acquire::handle::{News, Subscription};
use std::sync::Arc;
use std::time::Duration;
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
        let identity = self.shared.identity(self.token.as_deref());
        guard::may(Some(&identity), Role::View)?;
        match identity {
            Identity::Known { name, role } => Ok((name, role)),
            Identity::BadToken | Identity::Anonymous => Err(Problem::bug("somebody without a name may look")),
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
            Ok(FromClient::Watch { detector, frames }) => match self.watch(detector.as_deref(), frames).await {
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

    async fn watch(&mut self, detector: Option<&str>, frames: Option<FrameRequest>) -> Result<(), Problem> {
        let watched = Watched::new(&self.shared, detector, frames, self.watched.take()).await?;
        self.watched = Some(watched);
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
        match watched.next(&self.shared).await {
            Next::Nothing => Ok(()),
            Next::Frame(frame) => {
                self.sequence += 1;
                let message = frame.made.message(self.sequence, frame.skipped, frame.age_ms);
                self.socket.send(Message::Binary(message)).await.map_err(|_| Gone)
            }
            Next::NoImage { image, problem } => {
                let body = problem.body();
                let (detail, hint) = (&body.detail, body.hint.as_deref().unwrap_or_default());
                self.send(ToClient::NoImage { image, detail, hint }.text()).await
            }
        }
    }
}
