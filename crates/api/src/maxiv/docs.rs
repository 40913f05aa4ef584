//! The pages on which the streaming-receiver describes its interface: `/docs` for people, `/openapi.json` for programs.
//! The page of the MAX IV receiver loads a viewer from another host; this page needs nothing else.

use axum::Json;
use axum::response::Html;
use serde_json::{Value, json};

/// Method, path, and what it is for.
const REQUESTS: [(&str, &str, &str); 5] = [
    ("get", "/status", "State of the receiver: idle, running, or error with the reason."),
    ("get", "/received_frames", "Images of this series so far."),
    ("get", "/downsample", "Factor by which images for viewers are made smaller."),
    ("post", "/downsample", "Sets that factor: ?value=N."),
    ("get", "/last_frame", "The newest image: a Python pickle of its header and its pixels."),
];

/// `/docs`.
pub async fn page() -> Html<String> {
    let rows: String = REQUESTS
        .map(|(method, path, what)| format!("<tr><td>{}</td><td>{path}</td><td>{what}</td></tr>", method.to_uppercase()))
        .concat();
    Html(format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>konkordia: streaming-receiver</title></head><body>\
         <h1>Interface of the streaming-receiver</h1><p>For programs: <a href=\"/openapi.json\">/openapi.json</a></p>\
         <table>{rows}</table></body></html>"
    ))
}

/// `/openapi.json`.
pub async fn openapi() -> Json<Value> {
    let mut paths = json!({});
    for (method, path, what) in REQUESTS {
        let mut operation = json!({ "summary": what, "responses": { "200": { "description": "Successful Response" } } });
        if method == "post" {
            operation["parameters"] =
                json!([{ "name": "value", "in": "query", "required": true, "schema": { "type": "integer" } }]);
            operation["responses"]["422"] = json!({ "description": "Validation Error" });
        }
        paths[path][method] = operation;
    }
    let info = json!({ "title": "konkordia in place of the streaming-receiver", "version": env!("CARGO_PKG_VERSION") });
    Json(json!({ "openapi": "3.1.0", "info": info, "paths": paths }))
}
