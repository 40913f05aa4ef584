//! The mask and the regions that people draw over the image, and what is known of its modules and pixels.

use super::audit::AuditBody;
use super::extract::{Body, DetectorQuery, Query};
use super::problem::Problem;
use super::state::Shared;
use super::turns::turn;
use crate::security::Identity;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use konkordia_acquire::handle::{Detector, DrawnShapes, ModuleList, NotDrawn, PixelFacts, ShapesState};
use serde::Deserialize;
use serde_json::json;
use std::sync::Arc;
use std::time::Instant;
use utoipa::IntoParams;

/// Largest body with shapes: 256 polygons of 100 corners each.
pub const BODY_BYTES_MAX: usize = 1 << 20;

/// The mask and the regions that people have drawn. They apply from the next run on: then the pixels of the mask have
/// bit 8 of the pixel mask in the file and are left out of the analysis, while their counts stay.
#[utoipa::path(get, path = "/api/v1/shapes", tag = "data", params(DetectorQuery),
    responses((status = 200, description = "What is drawn now", body = ShapesState, headers(("ETag" = String, description = "For If-Match of a change")))))]
pub async fn shapes(State(shared): State<Arc<Shared>>, Query(query): Query<DetectorQuery>) -> Result<Response, Problem> {
    let detector = shared.detector(query.detector.as_deref())?;
    state(&shared, detector).await
}

/// Replaces the mask and the regions, for the runs to come; one in progress keeps what it has. With the ETag of an
/// earlier answer in `If-Match`, only if nobody has changed them since.
#[utoipa::path(put, path = "/api/v1/shapes", tag = "commands",
    params(DetectorQuery, ("If-Match" = Option<String>, Header, description = "ETag of the shapes that were changed; without it the last one who writes wins")),
    request_body(content = DrawnShapes, example = json!({
        "mask": [{"form": "circle", "x_px": 512.0, "y_px": 500.5, "radius_px": 40.0}],
        "regions": [{"name": "beam", "shape": {"form": "rectangle", "column": 490, "row": 480, "columns": 40, "rows": 40}}]})),
    responses((status = 200, description = "What is drawn now", body = ShapesState, headers(("ETag" = String, description = "For If-Match of the next change")))))]
pub async fn draw(
    State(shared): State<Arc<Shared>>,
    Query(query): Query<DetectorQuery>,
    Extension(identity): Extension<Identity>,
    headers: HeaderMap,
    Body(shapes): Body<Option<DrawnShapes>>,
) -> Response {
    let names = shapes.iter().flat_map(|shapes| &shapes.regions).map(|region| &region.name).collect::<Vec<_>>();
    let request = json!({ "mask": shapes.as_ref().map(|shapes| shapes.mask.len()), "regions": names });
    let audit = Extension(AuditBody { detector: query.detector.clone(), request });
    let replaced = replace(&shared, query, &identity, &headers, shapes).await;
    (audit, replaced).into_response()
}

async fn replace(
    shared: &Arc<Shared>,
    query: DetectorQuery,
    identity: &Identity,
    headers: &HeaderMap,
    shapes: Option<DrawnShapes>,
) -> Result<Response, Problem> {
    let missing = || Problem::new("bad_body", "there is no body", "send the whole mask and all regions; empty lists remove them");
    let shapes = shapes.ok_or_else(missing)?;
    let detector = shared.detector(query.detector.as_deref())?;
    let (board, by, tags) = (detector.shapes(), identity.name().to_owned(), tags(headers)?);
    let turn = turn(&shared.decoders, 1).await?;
    let drawn = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        board.draw(shapes, &by, tags.as_deref())
    });
    let drawn = drawn.await.map_err(|_| Problem::bug("the service made a mistake with these shapes"))?;
    drawn.map_err(|why| match why {
        NotDrawn::Wrong(why) => Problem::new("bad_request", why, "correct the shapes; docs/api.md says what is possible"),
        NotDrawn::Stale { by, at } => Problem::new(
            "stale_shapes",
            format!("{by} changed the shapes at {at}"),
            "ask for the shapes again and repeat your change, or send it without If-Match to replace theirs",
        ),
        NotDrawn::NotKept(failure) => Problem::new("refused", failure.detail(), failure.fix),
    })?;
    state(shared, detector).await
}

/// The tags of which the shapes must have one; `None`: any will do.
fn tags(headers: &HeaderMap) -> Result<Option<Vec<String>>, Problem> {
    let mut tags = Vec::new();
    for value in headers.get_all(header::IF_MATCH) {
        let wrong = |_| Problem::new("bad_query", "If-Match is no text", "send the ETag of GET /api/v1/shapes as it came");
        for tag in value.to_str().map_err(wrong)?.split(',').map(str::trim) {
            if tag == "*" {
                return Ok(None);
            }
            tags.push(tag.trim_start_matches("W/").trim_matches('"').to_owned());
        }
    }
    Ok(headers.contains_key(header::IF_MATCH).then_some(tags))
}

async fn state(shared: &Arc<Shared>, detector: Arc<dyn Detector>) -> Result<Response, Problem> {
    let turn = turn(&shared.decoders, 1).await?;
    let found = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        let status = detector.status();
        detector.shapes().state(newest_size(&*detector), status.state.has_run().then_some(status.run))
    });
    let (state, tag) = found.await.map_err(|_| Problem::bug("the service made a mistake with the shapes"))?;
    Ok(([(header::ETAG, format!("\"{tag}\""))], Json(state)).into_response())
}

/// Rows and columns of the newest image.
pub fn newest_size(detector: &dyn Detector) -> Option<[usize; 2]> {
    let found = detector.images().get(None, Instant::now())?;
    let size = found.planes.image().channels.first()?.array.shape.dimensions().to_vec();
    let edge = |back: usize| size.len().checked_sub(back).and_then(|at| usize::try_from(size[at]).ok());
    // An image of one dimension is a row.
    Some([edge(2).unwrap_or(1), edge(1)?])
}

/// Where the modules of the detector lie in its image.
#[utoipa::path(get, path = "/api/v1/modules", tag = "data", params(DetectorQuery),
    responses((status = 200, description = "The modules", body = ModuleList, example = json!({"detector": "eiger", "rows": 514, "columns": 1030,
        "modules": [{"index": 0, "name": "module 0", "column": 0, "row": 0, "columns": 1030, "rows": 514, "tiles": []}]}))))]
pub async fn modules(State(shared): State<Arc<Shared>>, Query(query): Query<DetectorQuery>) -> Result<Json<ModuleList>, Problem> {
    let detector = shared.detector(query.detector.as_deref())?;
    Ok(Json(detector.shapes().modules(newest_size(&*detector))))
}

/// Which pixel.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PixelQuery {
    /// Name of the detector; may be left out if there is only one.
    #[param(example = "eiger")]
    detector: Option<String>,
    /// Column in the image, from 0.
    #[param(example = 12)]
    column: u32,
    /// Row in the image, from 0.
    #[param(example = 7)]
    row: u32,
}

/// Where a pixel of the image lies on the detector, and why it is masked, if it is.
#[utoipa::path(get, path = "/api/v1/pixel", tag = "data", params(PixelQuery),
    responses((status = 200, description = "What is known of the pixel", body = PixelFacts, example = json!({"detector": "eiger", "column": 12, "row": 7,
        "module": 0, "module_column": 12, "module_row": 7, "chip": 0, "mask": 258, "reasons": ["user"], "user_mask": "in_force"}))))]
pub async fn pixel(State(shared): State<Arc<Shared>>, Query(query): Query<PixelQuery>) -> Result<Json<PixelFacts>, Problem> {
    let detector = shared.detector(query.detector.as_deref())?;
    let found = detector.shapes().pixel(query.column.into(), query.row.into(), newest_size(&*detector));
    let hint = "GET /api/v1/modules has the size of the image";
    found.map(Json).map_err(|why| Problem::new("bad_query", why, hint))
}
