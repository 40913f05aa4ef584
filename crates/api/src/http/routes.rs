//! All paths, and the layers in front of them.

use super::openapi::{looking, operating};
use super::state::Shared;
use super::{audit, guard, live, page, problem, status};
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::{HeaderName, HeaderValue, Method, header};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::get;
use std::sync::Arc;
use std::time::Duration;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::cors::{AllowOrigin, CorsLayer};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// The complete router. The layer that is named last meets a request first.
pub fn router(shared: &Arc<Shared>) -> Router {
    let open = OpenApiRouter::new().routes(routes!(status::healthz)).routes(routes!(status::readyz)).routes(routes!(page::page));
    let (router, _) = looking(shared.settings.metrics_open).merge(operating()).merge(open).split_for_parts();
    let files = router.route("/konkordia.js", get(page::script)).route("/konkordia.css", get(page::style));
    let mut router = files
        .route("/icon.svg", get(page::icon))
        .route("/api/v1/live", get(live::live))
        .fallback(problem::not_found)
        .method_not_allowed_fallback(problem::wrong_method)
        .layer(DefaultBodyLimit::max(shared.settings.limits.body_bytes))
        .layer(from_fn_with_state(Arc::clone(shared), guard::pages));
    if !shared.origins.pages().is_empty() {
        router = router.layer(cross_origin(shared.origins.pages()));
    }
    router
        .layer(from_fn(guard::only_problems))
        .layer(from_fn_with_state(Arc::clone(shared), audit::record))
        .layer(from_fn_with_state(Arc::clone(shared), guard::rate))
        .layer(from_fn_with_state(Arc::clone(shared), guard::headers))
        .layer(from_fn_with_state(Arc::clone(shared), guard::identify))
        .layer(CatchPanicLayer::custom(problem::panicked))
        .layer(from_fn_with_state(Arc::clone(shared), guard::count))
        .with_state(Arc::clone(shared))
}

/// Lets scripts of the configured pages read our answers.
fn cross_origin(pages: &[String]) -> CorsLayer {
    let origins = pages.iter().filter_map(|page| HeaderValue::from_str(page).ok());
    let exposed = [
        "etag",
        "x-konkordia-image",
        "x-konkordia-age-ms",
        "x-konkordia-run",
        "x-konkordia-shape",
        "x-konkordia-dtype",
        "x-konkordia-compression",
        "x-konkordia-facts",
    ];
    CorsLayer::new()
        .allow_origin(AllowOrigin::list(origins))
        .allow_methods([Method::GET, Method::POST, Method::PUT])
        .allow_headers([header::AUTHORIZATION, header::CONTENT_TYPE, header::IF_MATCH, HeaderName::from_static("last-event-id")])
        .expose_headers(exposed.map(HeaderName::from_static))
        .max_age(Duration::from_secs(600))
}
