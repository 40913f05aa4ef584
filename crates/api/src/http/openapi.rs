//! The paths of the interface, and its OpenAPI description: made from the handlers, with the problems and tokens that
//! all of them share.

use super::extract::{NoQuery, Query};
use super::problem::{CODES, MEDIA_TYPE, ProblemBody};
use super::state::Shared;
use super::{calibration, commands, events, files, guard, images, machine, page, shapes, status};
use crate::metrics;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn;
use serde_json::{Map, Value, json};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tower_http::timeout::{RequestBodyDeadlineLayer, ResponseBodyDeadlineLayer};
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Time for the body of a request, which has a few kilobytes.
pub const REQUEST_BODY: Duration = Duration::from_secs(10);
/// Time for a whole answer that has an end: the largest image over a slow line.
const RESPONSE_BODY: Duration = Duration::from_secs(300);

#[derive(OpenApi)]
#[openapi(
    info(title = "Konkordia", description = "Control and watch the data acquisition of X-ray pixel detectors. Errors are problems (RFC 9457).",
        license(name = "Apache-2.0", identifier = "Apache-2.0")),
    components(schemas(ProblemBody, konkordia_acquire::handle::ServiceEvent)),
    tags(
        (name = "state", description = "State of the service and its detectors"),
        (name = "commands", description = "Commands to detectors"),
        (name = "data", description = "Images and files"),
        (name = "events", description = "Events as they happen, and past ones"),
        (name = "monitoring", description = "For monitoring programs")
    )
)]
/// The description of the interface.
pub struct Description;

/// Statuses of problems: on every path, on paths that need a role, on paths that name a detector, on commands, and on
/// paths that name a file.
const OF_ALL: [u16; 8] = [400, 405, 413, 421, 429, 431, 500, 503];
const OF_ROLES: [u16; 2] = [401, 403];
const OF_DETECTORS: [u16; 1] = [404];
const OF_COMMANDS: [u16; 4] = [408, 409, 415, 422];
const OF_FILES: [u16; 2] = [409, 422];

type Routes = OpenApiRouter<Arc<Shared>>;

/// All paths with their descriptions.
fn described() -> Routes {
    OpenApiRouter::with_openapi(Description::openapi())
        .merge(looking(false))
        .merge(operating())
        .merge(OpenApiRouter::new().routes(routes!(status::healthz)).routes(routes!(status::readyz)).routes(routes!(page::page)))
}

/// Paths that only read.
pub(super) fn looking(metrics_open: bool) -> Routes {
    let finite = OpenApiRouter::new()
        .routes(routes!(status::status))
        .routes(routes!(status::detectors))
        .routes(routes!(status::configuration))
        .routes(routes!(status::statistics))
        .routes(routes!(status::hit_rate))
        .routes(routes!(status::results))
        .routes(routes!(status::files))
        .routes(routes!(files::file))
        .routes(routes!(calibration::calibration))
        .routes(routes!(calibration::map))
        .routes(routes!(status::version))
        .routes(routes!(status::adapters))
        .routes(routes!(machine::machine))
        .routes(routes!(status::wait))
        .routes(routes!(openapi))
        .routes(routes!(images::numbers))
        .routes(routes!(images::image))
        .routes(routes!(shapes::shapes))
        .routes(routes!(shapes::modules))
        .routes(routes!(shapes::pixel))
        .routes(routes!(events::logs))
        .layer(ResponseBodyDeadlineLayer::new(RESPONSE_BODY));
    let looking = finite.routes(routes!(events::events));
    let metrics = OpenApiRouter::new().routes(routes!(metrics::endpoint));
    let guarded = |routes: Routes| routes.route_layer(from_fn(guard::view));
    if metrics_open { guarded(looking).merge(metrics) } else { guarded(looking.merge(metrics)) }
}

/// Paths of commands.
pub(super) fn operating() -> Routes {
    let drawing = OpenApiRouter::new().routes(routes!(shapes::draw)).layer(DefaultBodyLimit::max(shapes::BODY_BYTES_MAX));
    OpenApiRouter::new()
        .merge(drawing)
        .routes(routes!(commands::arm))
        .routes(routes!(commands::start))
        .routes(routes!(commands::trigger))
        .routes(routes!(commands::pedestal))
        .routes(routes!(commands::stop))
        .routes(routes!(commands::cancel))
        .routes(routes!(commands::close))
        .routes(routes!(commands::drain))
        .layer(RequestBodyDeadlineLayer::new(REQUEST_BODY))
        .route_layer(from_fn(guard::operate))
}

/// This description of the interface.
#[utoipa::path(get, path = "/api/v1/openapi.json", tag = "state", responses((status = 200, description = "This description (OpenAPI 3.1)", body = Object)))]
async fn openapi(Query(NoQuery {}): Query<NoQuery>) -> impl axum::response::IntoResponse {
    ([(axum::http::header::CONTENT_TYPE, "application/json")], text())
}

/// The description as JSON text, as `docs/openapi.json` holds it.
pub fn text() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| format!("{:#}\n", document()))
}

fn document() -> Value {
    let (_, described) = described().split_for_parts();
    let mut document = serde_json::to_value(described).expect("the description is JSON");
    let components = document["components"].as_object_mut().expect("there are components");
    let schema = json!({"type": "http", "scheme": "bearer", "description": "A token of `konkordia token create`; none is needed where the service has no \
        tokens and listens on loopback only"});
    components.insert("securitySchemes".into(), json!({"token": schema}));
    components.insert("responses".into(), Value::Object(problem_responses()));
    unsigned(&mut document);
    if let Some(schemas) = document["components"]["schemas"].as_object_mut() {
        schemas.values_mut().for_each(join_flattened);
    }
    if let Some(paths) = document["paths"].as_object_mut() {
        for (path, methods) in paths {
            for (method, operation) in methods.as_object_mut().into_iter().flatten() {
                complete(path, method, operation);
            }
        }
    }
    document
}

/// Describes whole numbers from 0 on as unsigned, not as signed ones.
fn unsigned(value: &mut Value) {
    match value {
        Value::Object(map) => {
            if map.get("minimum").is_some_and(|minimum| minimum == 0) && map.get("format").is_some_and(|format| format == "int64")
            {
                map.insert("format".into(), json!("uint64"));
                map.entry("maximum").or_insert(json!(u64::MAX));
            }
            map.values_mut().for_each(unsigned);
        }
        Value::Array(values) => values.iter_mut().for_each(unsigned),
        _ => {}
    }
}

/// A structure with a flattened field is described as several schemas that hold together. Here they become one object.
fn join_flattened(schema: &mut Value) {
    let Some(Value::Array(mut parts)) = schema.get_mut("allOf").map(Value::take) else { return };
    let (mut required, mut properties) = (Vec::new(), Map::new());
    for part in &mut parts {
        join_flattened(part);
        required.extend(part["required"].as_array().into_iter().flatten().cloned());
        properties.extend(part["properties"].as_object().cloned().unwrap_or_default());
    }
    let description = schema["description"].take();
    *schema = json!({"type": "object", "description": description, "required": required, "properties": properties});
}

/// An optional query parameter is left out and never null, so its schema loses `null`.
fn not_null(schema: &mut Value) {
    if let Some(types) = schema["type"].as_array() {
        let kept: Vec<Value> = types.iter().filter(|kind| **kind != "null").cloned().collect();
        schema["type"] = if kept.len() == 1 { kept[0].clone() } else { Value::Array(kept) };
    }
    let mut choices = schema["oneOf"].as_array().into_iter().flatten();
    if let Some(only) = choices.rfind(|choice| choice["type"] != "null").cloned() {
        *schema = only;
    }
}

/// One response for each status that a problem may have, with the codes that come with it.
fn problem_responses() -> Map<String, Value> {
    let mut responses = Map::new();
    for (_, status, _) in CODES {
        let codes: Vec<String> =
            CODES.iter().filter(|(_, s, _)| *s == status).map(|(code, _, title)| format!("`{code}`: {title}")).collect();
        let content = json!({MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}});
        responses.insert(format!("Problem{}", status.as_u16()), json!({"description": codes.join(". "), "content": content}));
    }
    responses
}

/// Adds the problems and the token that an operation needs.
fn complete(path: &str, method: &str, operation: &mut Value) {
    let role = role(path, method);
    let names = |what: &str| operation["parameters"].as_array().into_iter().flatten().any(|p| p["name"] == what);
    let (names_detector, names_file) = (names("detector"), names("file"));
    let mut statuses = OF_ALL.to_vec();
    statuses.extend(role.iter().flat_map(|_| OF_ROLES));
    statuses.extend(OF_DETECTORS.iter().filter(|_| names_detector));
    statuses.extend(OF_COMMANDS.iter().filter(|_| changes(method)));
    statuses.extend((path.contains("{image}") || path.contains("calibration")).then_some(422));
    statuses.extend(OF_FILES.iter().filter(|_| names_file));
    statuses.sort_unstable();
    let responses = operation["responses"].as_object_mut().expect("operations have responses");
    for status in statuses {
        responses.entry(status.to_string()).or_insert(json!({"$ref": format!("#/components/responses/Problem{status}")}));
    }
    let parameters = operation.get_mut("parameters").and_then(Value::as_array_mut);
    for parameter in parameters.into_iter().flatten() {
        not_null(&mut parameter["schema"]);
    }
    if let Some(body) = operation.get_mut("requestBody") {
        // A command without a body does what is configured; what is replaced must come.
        body["required"] = json!(method == "put");
    }
    operation["security"] = match role {
        Some(role) => {
            operation["x-role"] = json!(role);
            json!([{"token": []}, {}])
        }
        None => json!([]),
    };
}

/// True for the methods that change something.
fn changes(method: &str) -> bool {
    matches!(method, "post" | "put")
}

/// The role that a path asks for, if it asks for one.
pub fn role(path: &str, method: &str) -> Option<&'static str> {
    match (path, method) {
        ("/healthz" | "/readyz" | "/", _) => None,
        (_, method) if changes(method) => Some("operate"),
        _ => Some("view"),
    }
}
