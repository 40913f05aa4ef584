//! The live connection of a page: states, statistics, events and frames over one WebSocket. docs/live.md describes its
//! messages.
//!
//! The service keeps nothing for a client but what is on its way to it. Frames need credit: a client acknowledges those
//! that it has drawn, and gets the newest one then.

mod frame;
mod frames;
pub mod hub;
mod messages;
mod session;

use super::connection_slots::Seat;
use super::problem::Problem;
use super::state::Shared;
use axum::Extension;
use axum::extract::State;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::http::{HeaderMap, header};
use axum::response::Response;
use std::sync::Arc;

/// Longest message of a client.
const MESSAGE_BYTES_MAX: usize = 16 << 10;

/// The live connection of a page, a WebSocket; docs/live.md describes its messages. Its first message names the token.
pub async fn live(
    State(shared): State<Arc<Shared>>,
    seat: Option<Extension<Arc<Seat>>>,
    headers: HeaderMap,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Problem> {
    // Browsers let any page open a WebSocket to any host, so this alone keeps foreign pages away.
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    if let Some(origin) = text(header::ORIGIN)
        && !shared.origins.may_change(origin, text(header::HOST).unwrap_or_default())
    {
        let hint = "list its origin in the configuration ([service] cors_origins), if it is yours";
        return Err(Problem::new("foreign_page", format!("the request comes from the web page {origin}"), hint));
    }
    let upgrade = upgrade.map_err(|rejection| {
        Problem::new(
            "no_websocket",
            rejection.body_text(),
            "connect with a WebSocket, or use GET /api/v1/status and /api/v1/events",
        )
    })?;
    let upgrade = upgrade.max_message_size(MESSAGE_BYTES_MAX).max_frame_size(MESSAGE_BYTES_MAX);
    let seat = seat.map(|Extension(seat)| seat);
    Ok(upgrade.on_upgrade(move |socket| session::run(shared, socket, seat)))
}
