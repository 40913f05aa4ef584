//! Events: live as server-sent events, and the past ones as a list.

use super::connection_slots::Seat;
use super::extract::Query;
use super::problem::Problem;
use super::state::{Shared, changed};
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::IntoResponse;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::{Extension, Json};
use konkordia_acquire::handle::{News, ServiceEvent, Severity, Subscription};
use konkordia_core::moment;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use utoipa::{IntoParams, ToSchema};

/// A comment is sent this often while nothing happens, so that no proxy takes the connection for dead.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Events on their way to one subscriber; behind them, the history of the service holds more.
const UNSENT_MAX: usize = 16;
/// Most events that `logs` returns.
const LOGS_MAX: usize = 1000;

/// Which events.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct EventsQuery {
    /// Only events of this detector, and of the service itself.
    #[param(example = "eiger")]
    detector: Option<String>,
    /// Begins with the events after this id that are still known; 0 for all of them. The header Last-Event-ID takes
    /// precedence.
    #[param(minimum = 0, example = 0)]
    after: Option<u64>,
}

/// Events as they happen (server-sent events). After an interruption, send the last `id` as Last-Event-ID to go on from
/// it. An event `missed` says that some events are no longer known. `data` is a ServiceEvent in JSON.
#[utoipa::path(get, path = "/api/v1/events", tag = "events", params(EventsQuery, ("Last-Event-ID" = Option<u64>, Header, description = "Id of the last event that was seen")),
    responses((status = 200, description = "A stream without end", content_type = "text/event-stream", body = String,
    example = "id: 42\nevent: run_started\ndata: {\"id\":42,\"time\":\"2026-11-21T12:00:00.000Z\",\"detector\":\"eiger\",\"event\":\"run_started\",\"severity\":\"info\",\"message\":\"run 3\",\"data\":{}}\n\n")))]
pub async fn events(
    State(shared): State<Arc<Shared>>,
    Query(query): Query<EventsQuery>,
    headers: HeaderMap,
    seat: Option<Extension<Arc<Seat>>>,
) -> Result<impl IntoResponse, Problem> {
    if query.detector.is_some() {
        shared.detector(query.detector.as_deref())?;
    }
    let header = headers.get("last-event-id").map(|value| value.to_str().ok().and_then(|text| text.parse().ok()));
    let after = match header {
        Some(Some(id)) => Some(id),
        Some(None) => {
            return Err(Problem::new(
                "bad_query",
                "Last-Event-ID is not a number",
                "send the id of the last event, or leave it out",
            ));
        }
        None => query.after,
    };
    let (sender, receiver) = mpsc::channel(UNSENT_MAX);
    let streaming = seat.map(|Extension(seat)| seat.streams());
    let log = &shared.fleet.events;
    // Before the answer begins, so that nothing is missing after it.
    let subscription = after.map_or_else(|| log.subscribe(), |after| log.subscribe_after(after));
    tokio::spawn(async move {
        forward(shared, query.detector, subscription, sender).await;
        drop(streaming);
    });
    Ok(Sse::new(ReceiverStream::new(receiver)).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)))
}

/// Sends events to a subscriber until it disconnects or the service ends.
async fn forward(
    shared: Arc<Shared>,
    detector: Option<String>,
    mut events: Subscription,
    sender: mpsc::Sender<Result<Event, Infallible>>,
) {
    let mut stopping = shared.stopping.subscribe();
    let wanted = |event: &ServiceEvent| event.detector.is_none() || detector.is_none() || event.detector == detector;
    while !*stopping.borrow_and_update() {
        let event = match events.read() {
            Some(News::Event(event)) if wanted(&event) => of(&event),
            Some(News::Event(_)) => continue,
            Some(News::Missed(count)) => missed(count),
            None => {
                tokio::select! {
                    () = changed(&mut events) => {}
                    ended = stopping.changed() => if ended.is_err() { return },
                    () = sender.closed() => return,
                }
                continue;
            }
        };
        tokio::select! {
            sent = sender.send(Ok(event)) => if sent.is_err() { return },
            _ = stopping.changed() => return,
        }
    }
}

fn of(event: &ServiceEvent) -> Event {
    // A name with a line break would begin another field.
    let name: String = event.event.chars().filter(|c| !c.is_control()).collect();
    let data = serde_json::to_string(event).unwrap_or_default();
    Event::default().id(event.id.to_string()).event(name).data(data)
}

fn missed(count: Option<u64>) -> Event {
    let data = json!({"missed": count, "message": "some events are no longer known; GET /api/v1/status has the newest state"});
    Event::default().event("missed").data(data.to_string())
}

/// Which entries.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct LogsQuery {
    /// Only events of this detector, and of the service itself.
    #[param(example = "eiger")]
    detector: Option<String>,
    /// Only events of this severity, or worse.
    #[param(example = "warning", inline)]
    level: Option<Level>,
    /// Only events since this time, ISO 8601 in UTC.
    #[param(
        example = "2026-11-21T12:00:00Z",
        pattern = "^(19[7-9][0-9]|[2-9][0-9]{3})-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$"
    )]
    since: Option<String>,
    /// Only events after this id.
    #[param(minimum = 0, example = 0)]
    after: Option<u64>,
    /// At most this many, the newest ones.
    #[param(minimum = 1, maximum = 1000, default = 1000, example = 100)]
    limit: Option<usize>,
}

/// Lowest severity of the entries.
#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum Level {
    Info,
    Warning,
    Error,
}

impl Level {
    fn takes(self, severity: Severity) -> bool {
        match self {
            Self::Info => true,
            Self::Warning => matches!(severity, Severity::Warning | Severity::Error),
            Self::Error => severity == Severity::Error,
        }
    }
}

/// Entries of the log.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Logs {
    /// Oldest first; at most the last 1000 events of the service.
    pub logs: Vec<ServiceEvent>,
}

/// Past events as a list.
#[utoipa::path(get, path = "/api/v1/logs", tag = "events", params(LogsQuery), responses((status = 200, description = "Oldest first", body = Logs, example = json!({"logs": [{
    "id": 42, "time": "2026-11-21T12:00:00.000Z", "detector": "eiger", "event": "run_started", "severity": "info", "message": "run 3", "data": {}
}]}))))]
pub async fn logs(State(shared): State<Arc<Shared>>, Query(query): Query<LogsQuery>) -> Result<Json<Logs>, Problem> {
    if query.detector.is_some() {
        shared.detector(query.detector.as_deref())?;
    }
    let since = query.since.as_deref().map(|text| {
        let hint = "write it as 2026-11-21T12:00:00Z";
        moment::unix_s(text).ok_or_else(|| Problem::new("bad_query", format!("since: {text:?} is not a time in UTC"), hint))
    });
    let since = since.transpose()?;
    let limit = query.limit.unwrap_or(LOGS_MAX);
    if !(1..=LOGS_MAX).contains(&limit) {
        return Err(Problem::new("bad_query", format!("limit: {limit} is not between 1 and {LOGS_MAX}"), ""));
    }
    let known = shared.fleet.events.after(query.after.unwrap_or(0));
    let level = query.level.unwrap_or(Level::Info);
    let wanted = |event: &&Arc<ServiceEvent>| {
        let of_detector = event.detector.is_none() || query.detector.is_none() || event.detector == query.detector;
        let is_late = since.is_none_or(|since| moment::unix_s(&event.time).is_some_and(|at| at >= since));
        of_detector && is_late && level.takes(event.severity)
    };
    let mut logs: Vec<ServiceEvent> = known.iter().rev().filter(wanted).take(limit).map(|event| (**event).clone()).collect();
    logs.reverse();
    Ok(Json(Logs { logs }))
}
