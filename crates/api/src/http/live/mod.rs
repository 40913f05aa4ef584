//! The live connection of a page: states, statistics, events and frames over one WebSocket. docs/live.md describes its
//! messages.
//!
//! The service keeps nothing for a client but what is on its way to it. Frames need credit: a client acknowledges those
//! that it has drawn, and gets the newest one then.

mod frame;
pub(super) mod frames;
pub mod hub;
mod messages;
mod session;
mod watched;

use super::connection_slots::Seat;
use super::guard;
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
    let named = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    guard::from_our_page(&shared, &headers, named)?;
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
