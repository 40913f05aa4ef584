//! All paths, and the layers in front of them.

use super::state::Shared;
use super::{audit, commands, events, guard, images, openapi, page, problem, status};
use crate::metrics;
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::{HeaderName, HeaderValue, Method, header};
use axum::middleware::{from_fn, from_fn_with_state};
use std::sync::Arc;
use std::time::Duration;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::cors::{AllowOrigin, CorsLayer};
use tower_http::timeout::{RequestBodyDeadlineLayer, ResponseBodyDeadlineLayer};
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Time for the body of a request, which has a few kilobytes.
const REQUEST_BODY: Duration = Duration::from_secs(10);
/// Time for a whole answer that has an end: the largest image over a slow line.
const RESPONSE_BODY: Duration = Duration::from_secs(300);

type Routes = OpenApiRouter<Arc<Shared>>;

/// All paths with their descriptions.
pub fn described() -> Routes {
    OpenApiRouter::with_openapi(openapi::Description::openapi())
        .merge(looking(false))
        .merge(operating())
        .merge(OpenApiRouter::new().routes(routes!(status::healthz)).routes(routes!(status::readyz)).routes(routes!(page::page)))
}

/// Paths that only read.
fn looking(metrics_open: bool) -> Routes {
    let finite = OpenApiRouter::new()
        .routes(routes!(status::status))
        .routes(routes!(status::detectors))
        .routes(routes!(status::configuration))
        .routes(routes!(status::statistics))
        .routes(routes!(status::files))
        .routes(routes!(status::version))
        .routes(routes!(status::wait))
        .routes(routes!(status::openapi))
        .routes(routes!(images::numbers))
        .routes(routes!(images::image))
        .routes(routes!(events::logs))
        .layer(ResponseBodyDeadlineLayer::new(RESPONSE_BODY));
    let looking = finite.routes(routes!(events::events));
    let metrics = OpenApiRouter::new().routes(routes!(metrics::endpoint));
    let guarded = |routes: Routes| routes.route_layer(from_fn(guard::view));
    if metrics_open { guarded(looking).merge(metrics) } else { guarded(looking.merge(metrics)) }
}

/// Paths of commands.
fn operating() -> Routes {
    OpenApiRouter::new()
        .routes(routes!(commands::arm))
        .routes(routes!(commands::start))
        .routes(routes!(commands::trigger))
        .routes(routes!(commands::pedestal))
        .routes(routes!(commands::stop))
        .routes(routes!(commands::cancel))
        .layer(RequestBodyDeadlineLayer::new(REQUEST_BODY))
        .route_layer(from_fn(guard::operate))
}

/// The complete router. The layer that is named last meets a request first.
pub fn router(shared: &Arc<Shared>) -> Router {
    let open = OpenApiRouter::new().routes(routes!(status::healthz)).routes(routes!(status::readyz)).routes(routes!(page::page));
    let (router, _) = looking(shared.settings.metrics_open).merge(operating()).merge(open).split_for_parts();
    let mut router = router
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
        "x-konkordia-image",
        "x-konkordia-age-ms",
        "x-konkordia-run",
        "x-konkordia-shape",
        "x-konkordia-dtype",
        "x-konkordia-compression",
    ];
    CorsLayer::new()
        .allow_origin(AllowOrigin::list(origins))
        .allow_methods([Method::GET, Method::POST])
        .allow_headers([header::AUTHORIZATION, header::CONTENT_TYPE, HeaderName::from_static("last-event-id")])
        .expose_headers(exposed.map(HeaderName::from_static))
        .max_age(Duration::from_secs(600))
}
