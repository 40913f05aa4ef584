//! States, statistics, files, events, health, and requests that are refused.

use super::*;

#[tokio::test]
async fn one_detector_needs_no_name() {
    let bench = Bench::new(&["eiger"]);
    let status = bench.get("/api/v1/status").await;
    assert_eq!(status.status, 200);
    assert_eq!((status.json()["detector"].as_str(), status.json()["state"].as_str()), (Some("eiger"), Some("idle")));
    assert_eq!(status.json()["file"], Value::Null, "what is not known is absent, not invented");
    for path in ["configuration", "statistics", "hit_rate", "results", "files", "images", "status"] {
        assert_eq!(bench.get(&format!("/api/v1/{path}?detector=eiger")).await.status, 200, "{path}");
        let problem = bench.get(&format!("/api/v1/{path}?detector=jungfrau")).await.is_problem(404, "unknown_detector");
        assert!(problem["detail"].as_str().unwrap().contains("this service has: eiger"));
    }
    assert_eq!(bench.get("/api/v1/files").await.json()["files"][0]["bytes"], 1u64 << 40);
    assert_eq!(bench.get("/api/v1/statistics").await.json()["consumers"][0]["skipped"], 2);
    let rate = bench.get("/api/v1/hit_rate").await.json();
    assert_eq!((&rate["hits"], &rate["raster"]), (&json!([1, 2]), &Value::Null));
    let plot = bench.get("/api/v1/results?result=spots").await.json();
    assert_eq!((&plot["mean"], &plot["bin_images"]), (&json!([2.5, null]), &json!(2)));
    bench.get("/api/v1/results?result=glow").await.is_problem(404, "no_result");
    let version = bench.get("/api/v1/version").await.json();
    assert_eq!((version["api"].as_str(), version["version"].as_str()), (Some("v1"), Some(env!("CARGO_PKG_VERSION"))));
}

#[tokio::test]
async fn several_detectors_need_a_name() {
    let bench = Bench::new(&["eiger", "pilatus"]);
    let problem = bench.get("/api/v1/status").await.is_problem(400, "which_detector");
    assert!(problem["hint"].as_str().unwrap().contains("?detector=NAME"));
    assert_eq!(bench.get("/api/v1/status?detector=pilatus").await.json()["detector"], "pilatus");
    let all = bench.get("/api/v1/detectors").await.json();
    let names: Vec<&str> = all["detectors"].as_array().unwrap().iter().map(|d| d["detector"].as_str().unwrap()).collect();
    assert_eq!(names, ["eiger", "pilatus"]);
}

#[tokio::test]
async fn odd_requests_are_problems() {
    let bench = Bench::new(&["eiger"]);
    bench.get("/api/v1/nothing").await.is_problem(404, "not_found");
    bench.get("/%2e%2e/etc/passwd").await.is_problem(404, "not_found");
    let wrong = bench.get("/api/v1/arm").await;
    wrong.is_problem(405, "method");
    assert_eq!(wrong.header("allow"), "POST");
    let deleted = bench.send(Request::delete("/api/v1/status").body(Body::empty()).unwrap()).await;
    deleted.is_problem(405, "method");
    let unknown = bench.get("/api/v1/status?detektor=eiger").await.is_problem(400, "bad_query");
    assert!(unknown["detail"].as_str().unwrap().contains("detektor"), "{unknown}");
    bench.get("/api/v1/version?x=1").await.is_problem(400, "bad_query");
    bench.get("/healthz?x=1").await.is_problem(400, "bad_query");
    bench.get("/api/v1/status?detector=a&detector=b").await.is_problem(400, "bad_query");
    bench.get(&format!("/api/v1/status?detector={}", "a".repeat(5000))).await.is_problem(400, "bad_query");
    for bad in ["timeout_s=-1", "timeout_s=601", "timeout_s=NaN", "timeout_s=x"] {
        bench.get(&format!("/api/v1/wait?{bad}")).await.is_problem(400, "bad_query");
    }
    bench.get("/api/v1/logs?level=loud").await.is_problem(400, "bad_query");
    bench.get("/api/v1/logs?since=yesterday").await.is_problem(400, "bad_query");
    bench.get("/api/v1/logs?limit=0").await.is_problem(400, "bad_query");
}

#[tokio::test]
async fn answers_carry_the_headers_of_all() {
    let bench = Bench::new(&["eiger"]);
    let answer = bench.get("/api/v1/status").await;
    assert_eq!((answer.header("x-content-type-options"), answer.header("cache-control")), ("nosniff", "no-store"));
    assert_eq!(answer.header("access-control-allow-origin"), "");
    let head = bench.send(Request::head("/api/v1/status").body(Body::empty()).unwrap()).await;
    assert_eq!((head.status.as_u16(), head.bytes.len()), (200, 0));
}

#[tokio::test]
async fn health_and_readiness() {
    let bench = Bench::new(&["eiger", "pilatus"]);
    assert_eq!(bench.get("/healthz").await.json()["status"], "ok");
    assert_eq!(bench.get("/readyz").await.json()["detectors"], 2);
    bench.fakes[1].set(DetectorState::Error);
    let problem = bench.get("/readyz").await.is_problem(503, "not_ready");
    assert_eq!(problem["detail"], "1 of 2 detectors cannot work");
    bench.fakes[1].set(DetectorState::Receiving);
    assert_eq!(bench.get("/readyz").await.status, 200);
    bench.shared.fleet.stop();
    bench.get("/readyz").await.is_problem(503, "not_ready");
    assert_eq!(bench.get("/healthz").await.status, 200);
}

#[tokio::test]
async fn the_page_is_there_without_a_token_and_loads_nothing_from_elsewhere() {
    let bench = Bench::new(&["eiger"]);
    for (path, kind) in [
        ("/", "text/html"),
        ("/?renderer=2d", "text/html"),
        ("/konkordia.js", "text/javascript"),
        ("/konkordia.css", "text/css"),
        ("/icon.svg", "image/svg+xml"),
    ] {
        let file = bench.get(path).await;
        assert_eq!(file.status, 200, "{path}");
        let policy = file.header("content-security-policy");
        assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe") && !policy.contains("http"), "{policy}");
        assert!(file.header("content-type").starts_with(kind), "{path}");
    }
    assert!(bench.get("/").await.text().contains("<div id=\"page\">"));
    bench.get("/api/v1/live").await.is_problem(400, "no_websocket");
    let foreign = Request::get("/api/v1/live").header("host", "localhost").header("origin", "https://evil.example");
    bench.send(foreign.body(Body::empty()).unwrap()).await.is_problem(403, "foreign_page");
}

#[tokio::test]
async fn waiting_ends_with_the_run_or_with_the_time() {
    let bench = Bench::new(&["eiger"]);
    assert_eq!(bench.get("/api/v1/wait?timeout_s=30").await.json()["done"], true);
    bench.fakes[0].set(DetectorState::Draining);
    let early = bench.get("/api/v1/wait?timeout_s=0.05").await.json();
    assert_eq!((early["done"].as_bool(), early["status"]["state"].as_str()), (Some(false), Some("running")));
    let fake = Arc::clone(&bench.fakes[0]);
    let (answer, ()) = tokio::join!(bench.get("/api/v1/wait?timeout_s=30"), async move {
        // The answer has to wait; nobody can see whether it does already.
        tokio::time::sleep(Duration::from_millis(50)).await;
        fake.set(DetectorState::Idle);
    });
    assert_eq!(answer.json()["done"], true);
}

fn log(bench: &Bench, detector: Option<&str>, event: &str, severity: Severity) {
    bench.shared.fleet.events.add(detector, event, severity, format!("{event} came"), json!({"a": 1}));
}

#[tokio::test]
async fn logs_are_filtered() {
    let bench = Bench::new(&["eiger", "pilatus"]);
    log(&bench, Some("eiger"), "state", Severity::Info);
    log(&bench, Some("pilatus"), "warning", Severity::Warning);
    log(&bench, None, "log", Severity::Error);
    log(&bench, Some("eiger"), "run_ended", Severity::Success);
    let ids = async |query: &str| {
        let answer = bench.get(&format!("/api/v1/logs{query}")).await.json();
        answer["logs"].as_array().unwrap().iter().map(|event| event["id"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(ids("").await, [1, 2, 3, 4]);
    assert_eq!(ids("?level=info").await, [1, 2, 3, 4]);
    assert_eq!(ids("?level=warning").await, [2, 3]);
    assert_eq!(ids("?level=error").await, [3]);
    assert_eq!(ids("?detector=eiger").await, [1, 3, 4]);
    assert_eq!(ids("?after=2").await, [3, 4]);
    assert_eq!(ids("?limit=2").await, [3, 4]);
    assert_eq!(ids("?since=2026-01-01T00:00:00Z").await.len(), 4);
    assert_eq!(ids("?since=9999-01-01T00:00:00Z").await.len(), 0);
    bench.get("/api/v1/logs?detector=x").await.is_problem(404, "unknown_detector");
}

/// The events of a stream until there are `count` of them.
async fn stream(
    bench: &Bench,
    path: &str,
    last: Option<&str>,
    count: usize,
    meanwhile: impl FnOnce(),
) -> Vec<(String, String, Value)> {
    use tokio_stream::StreamExt;
    let mut request = Request::get(path).header("host", "localhost");
    if let Some(last) = last {
        request = request.header("last-event-id", last);
    }
    let mut request = request.body(Body::empty()).unwrap();
    request.extensions_mut().insert(ConnectInfo(loopback()));
    let response = bench.router.clone().oneshot(request).await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let mut body = response.into_body().into_data_stream();
    meanwhile();
    let mut text = String::new();
    while text.matches("\n\n").count() < count {
        let bytes = tokio::time::timeout(Duration::from_secs(10), body.next()).await.expect("events come").unwrap().unwrap();
        text.push_str(std::str::from_utf8(&bytes).unwrap());
    }
    let field =
        |block: &str, name: &str| block.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim().to_string();
    let blocks = text.trim_end().split("\n\n");
    blocks
        .map(|block| (field(block, "id:"), field(block, "event:"), serde_json::from_str(&field(block, "data:")).unwrap()))
        .collect()
}

#[tokio::test]
async fn events_come_live_and_go_on_after_an_interruption() {
    let bench = Bench::new(&["eiger", "pilatus"]);
    log(&bench, Some("eiger"), "state", Severity::Info);
    log(&bench, Some("pilatus"), "state", Severity::Info);
    let live = stream(&bench, "/api/v1/events", None, 1, || log(&bench, Some("eiger"), "run_started", Severity::Info)).await;
    assert_eq!((live[0].0.as_str(), live[0].1.as_str(), live[0].2["id"].as_u64()), ("3", "run_started", Some(3)));
    let ids = |events: Vec<(String, String, Value)>| events.into_iter().map(|(id, ..)| id).collect::<Vec<_>>();
    assert_eq!(ids(stream(&bench, "/api/v1/events", Some("1"), 2, || ()).await), ["2", "3"]);
    assert_eq!(ids(stream(&bench, "/api/v1/events?after=0", None, 3, || ()).await), ["1", "2", "3"]);
    assert_eq!(ids(stream(&bench, "/api/v1/events?after=0&detector=eiger", None, 2, || ()).await), ["1", "3"]);
    let restarted = stream(&bench, "/api/v1/events", Some("500"), 4, || ()).await;
    assert_eq!((restarted[0].1.as_str(), restarted[0].2["missed"].as_u64(), restarted[1].0.as_str()), ("missed", None, "1"));
    let odd = Request::get("/api/v1/events").header("last-event-id", "x").body(Body::empty()).unwrap();
    bench.send(odd).await.is_problem(400, "bad_query");
    bench.get("/api/v1/events?detector=x").await.is_problem(404, "unknown_detector");
}

#[tokio::test]
async fn those_who_come_too_late_get_the_number_that_they_missed() {
    let bench = Bench::new(&["eiger"]);
    for _ in 0..1005 {
        log(&bench, None, "log", Severity::Info);
    }
    let events = stream(&bench, "/api/v1/events", Some("2"), 2, || ()).await;
    assert_eq!((events[0].1.as_str(), events[0].2["missed"].as_u64(), events[1].0.as_str()), ("missed", Some(3), "6"));
    let behind = stream(&bench, "/api/v1/events", None, 20, || {
        for _ in 0..1600 {
            log(&bench, None, "log", Severity::Info);
        }
    })
    .await;
    let missed: Vec<_> =
        behind.iter().filter(|(_, event, _)| event == "missed").map(|(.., data)| data["missed"].as_u64()).collect();
    assert_eq!(missed, [Some(600)], "the history has the newest 1000");
}
