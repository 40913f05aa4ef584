//! Drawn masks and regions: who may change them, what is taken, two who draw at once.

use super::*;

const CIRCLE: &str = r#"{"form": "circle", "x_px": 5.5, "y_px": 5.5, "radius_px": 1}"#;

async fn put(bench: &Bench, body: &str, headers: &[(&str, &str)]) -> Answer {
    let mut request = Request::put("/api/v1/shapes").header("content-type", "application/json");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    bench.send(request.body(Body::from(body.to_string())).unwrap()).await
}

fn mask(shapes: &str) -> String {
    format!(r#"{{"mask": [{shapes}], "regions": []}}"#)
}

#[tokio::test]
async fn shapes_are_replaced_as_a_whole() {
    let bench = Bench::new(&["eiger"]);
    let none = bench.get("/api/v1/shapes").await;
    assert_eq!((none.json()["mask"].clone(), none.json()["masked_pixels"].clone()), (json!([]), json!(0)));
    let body = format!(
        r#"{{"mask": [{CIRCLE}], "regions": [{{"name": "b", "shape": {{"form": "rectangle", "column": 1, "row": 2, "columns": 3, "rows": 4}}}}]}}"#
    );
    let drawn = put(&bench, &body, &[]).await;
    assert_eq!(drawn.status, 200, "{}", drawn.text());
    let state = drawn.json();
    assert_eq!((&state["masked_pixels"], &state["applies"]), (&json!(5), &json!("from the next run on")));
    assert_eq!((&state["changed_by"], &state["kept_in"], &state["in_force"]), (&json!("local"), &Value::Null, &json!(false)));
    let notes = state["notes"].to_string();
    assert!(notes.contains("no analysis") && notes.contains("lost when the service ends"), "{notes}");
    let again = bench.get("/api/v1/shapes").await;
    assert_eq!((again.json(), again.header("etag")), (state, drawn.header("etag")));
    let pixel = bench.get("/api/v1/pixel?column=5&row=4").await.json();
    assert_eq!((&pixel["user_mask"], &pixel["reasons"]), (&json!("from_next_run"), &json!(["user, from the next run on"])));
    assert_eq!(bench.get("/api/v1/pixel?column=4&row=4").await.json()["user_mask"], Value::Null);
    bench.get("/api/v1/pixel?column=24&row=4").await.is_problem(400, "bad_query");
    bench.get("/api/v1/pixel?column=-1&row=4").await.is_problem(400, "bad_query");
    let modules = bench.get("/api/v1/modules").await.json();
    assert_eq!(
        (&modules["rows"], &modules["columns"], modules["modules"].as_array().unwrap().len()),
        (&json!(16), &json!(24), 1)
    );
    bench.fakes[0].set(DetectorState::Receiving);
    assert!(bench.get("/api/v1/shapes").await.json()["notes"].to_string().contains("run 1 goes on"));
}

#[tokio::test]
async fn who_was_overtaken_is_told() {
    let bench = Bench::new(&["eiger"]);
    let first = bench.get("/api/v1/shapes").await.header("etag").to_owned();
    let second = put(&bench, &mask(CIRCLE), &[("if-match", &first)]).await.header("etag").to_owned();
    assert_ne!(first, second);
    let stale = put(&bench, &mask(""), &[("if-match", &first)]).await.is_problem(409, "stale_shapes");
    assert!(stale["detail"].as_str().unwrap().starts_with("local changed the shapes at 20"), "{stale}");
    assert_eq!(bench.get("/api/v1/shapes").await.header("etag"), second, "nothing has changed");
    for (radius, tag) in [(": 2", format!("\"x\", {second}")), (": 3", "*".into())] {
        // Another circle: the same one, drawn within the same millisecond, has the same tag.
        let another = mask(&CIRCLE.replace(": 1", radius));
        assert_eq!(put(&bench, &another, &[("if-match", &tag)]).await.status, 200, "{tag}");
        put(&bench, &mask(CIRCLE), &[("if-match", &second)]).await.is_problem(409, "stale_shapes");
    }
    assert_eq!(put(&bench, &mask(""), &[]).await.json()["mask"], json!([]), "without If-Match the last one wins");
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_with_its_place() {
    let bench = Bench::new(&["eiger"]);
    let points = |count: usize| format!(r#"{{"form": "polygon", "points": [{}]}}"#, vec!["[1, 2]"; count].join(","));
    let region = |name: &str, shape: &str| format!(r#"{{"mask": [], "regions": [{{"name": "{name}", "shape": {shape}}}]}}"#);
    let circle = CIRCLE;
    for (body, code, detail) in [
        (String::new(), "bad_body", "no body"),
        ("null".into(), "bad_body", "no body"),
        ("{}".into(), "bad_body", "missing field `mask`"),
        ("[]".into(), "bad_body", ""),
        (r#"{"mask": [], "regions": [], "more": 1}"#.into(), "bad_body", "more"),
        (mask(&circle.replace("5.5", "NaN")), "bad_body", ""),
        (mask(&circle.replace("5.5", "1e999")), "bad_body", "out of range"),
        (mask(&circle.replace("5.5", "\"5\"")), "bad_body", "invalid type"),
        (mask(&circle.replace("circle", "star")), "bad_body", "star"),
        (mask(&circle.replace("\"x_px\": 5.5, ", "")), "bad_body", "x_px"),
        (mask(&circle.replace("}", ", \"colour\": 1}")), "bad_body", "colour"),
        (mask(&circle.replace("5.5", "1e7")), "bad_request", "mask[0]: x_px is 10000000"),
        (mask(&circle.replace(": 1", ": 0")), "bad_request", "mask[0]: radius_px is 0; it must be above 0"),
        (mask(&points(2)), "bad_request", "mask[0]: it has 2 points"),
        (mask(&points(1001)), "bad_request", "mask[0]: it has 1001 points"),
        (mask(&vec![circle; 257].join(",")), "bad_request", "mask has 257 shapes"),
        (mask(r#"{"form": "ring", "inner_radius_px": 1, "radius_px": 2}"#), "bad_request", "rings and sectors are for regions"),
        (region("", circle), "bad_request", "regions[0]: its name"),
        (region("a\\u0000", circle), "bad_request", "regions[0]: its name"),
        (region("a", &points(3)), "bad_request", "a polygon can only be masked"),
        (
            format!(r#"{{"mask": [], "regions": [{{"name": "a", "shape": {circle}}}, {{"name": " a", "shape": {circle}}}]}}"#),
            "bad_request",
            "another region is called \"a\" too",
        ),
    ] {
        let problem = put(&bench, &body, &[]).await.is_problem(422, code);
        assert!(problem["detail"].as_str().unwrap().contains(detail), "{problem} without {detail:?}");
    }
    put(&bench, &mask(&points(200_000)), &[]).await.is_problem(413, "too_large");
    // More than other bodies may have, but few rows crossed.
    assert_eq!(put(&bench, &mask(&vec![points(1000); 60].join(",")), &[]).await.status, 200);
    let jagged: Vec<String> = (0..1000).map(|n| format!("[{n}, {}]", n % 2 * 65536)).collect();
    let jagged = format!(r#"{{"form": "polygon", "points": [{}]}}"#, jagged.join(","));
    let problem = put(&bench, &mask(&jagged), &[]).await.is_problem(422, "bad_request");
    assert!(problem["detail"].as_str().unwrap().contains("draw them with fewer points"), "{problem}");
}

#[tokio::test]
async fn drawing_is_for_operators_and_recorded() {
    let (folder, settings, [view, operate, _]) = tokens();
    let bench = Bench::with(&["eiger"], settings);
    let bearer = |token: &str| format!("Bearer {token}");
    put(&bench, &mask(CIRCLE), &[]).await.is_problem(401, "no_token");
    put(&bench, &mask(CIRCLE), &[("authorization", &bearer(&view))]).await.is_problem(403, "not_allowed");
    let of_other = [("authorization", bearer(&operate)), ("origin", "http://evil.example".to_owned())];
    let of_other = of_other.each_ref().map(|(name, value)| (*name, value.as_str()));
    put(&bench, &mask(CIRCLE), &of_other).await.is_problem(403, "foreign_page");
    let drawn = put(&bench, &mask(CIRCLE), &[("authorization", &bearer(&operate))]).await;
    assert_eq!((drawn.status.as_u16(), &drawn.json()["changed_by"]), (200, &json!("operate")));
    let request = Request::get("/api/v1/shapes").header("authorization", bearer(&view)).body(Body::empty()).unwrap();
    assert_eq!(bench.send(request).await.json()["masked_pixels"], json!(5));
    let text = std::fs::read_to_string(folder.path().join("audit.jsonl")).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let last = lines.last().unwrap();
    assert_eq!((&last["method"], &last["path"], &last["who"]), (&json!("PUT"), &json!("/api/v1/shapes"), &json!("operate")));
    assert_eq!(last["request"], json!({"mask": 1, "regions": []}));
    let events = bench.shared.fleet.events.after(0);
    let event = events.iter().rfind(|event| event.event == "command").unwrap();
    assert_eq!(event.message, "shapes by operate from 127.0.0.1: done");
}
