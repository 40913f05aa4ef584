//! Tokens, host names, web pages, rates.

use super::super::openapi;
use super::*;

fn with_token(method: &str, path: &str, token: &str) -> Request<Body> {
    Request::builder().method(method).uri(path).header("authorization", format!("Bearer {token}")).body(Body::empty()).unwrap()
}

/// Every path and method of the description, with the role that it asks for.
fn operations() -> Vec<(String, String, Option<Role>)> {
    let document: Value = serde_json::from_str(openapi::text()).unwrap();
    let mut all = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let role = operation["x-role"].as_str().map(|role| Role::from_name(role).unwrap());
            all.push((path.replace("{image}", "latest"), method.to_uppercase(), role));
        }
    }
    all
}

#[tokio::test]
async fn every_path_asks_for_its_role() {
    let (_folder, settings, made) = tokens();
    let bench = Bench::with(&["eiger"], settings);
    let all = operations();
    assert!(all.len() >= 21, "{all:?}");
    for (path, method, needed) in all.iter().filter(|(path, ..)| path != "/api/v1/events") {
        let anonymous = bench.send(Request::builder().method(method.as_str()).uri(path).body(Body::empty()).unwrap()).await;
        match needed {
            None => assert_eq!(anonymous.status, 200, "{path}"),
            Some(_) => {
                anonymous.is_problem(401, "no_token");
                assert!(anonymous.header("www-authenticate").starts_with("Bearer"));
            }
        }
        for (role, token) in Role::ALL.into_iter().zip(&made) {
            let answer = bench.send(with_token(method, path, token)).await;
            if needed.is_none_or(|needed| role >= needed) {
                assert!(![401, 403].contains(&answer.status.as_u16()), "{method} {path} {role}: {}", answer.text());
            } else {
                answer.is_problem(403, "not_allowed");
            }
        }
    }
    let events = bench.send(Request::get("/api/v1/events").body(Body::empty()).unwrap()).await;
    events.is_problem(401, "no_token");
}

#[tokio::test]
async fn wrong_tokens_are_refused_however_they_come() {
    let (_folder, settings, [view, ..]) = tokens();
    let bench = Bench::with(&["eiger"], settings);
    for value in ["Bearer", "Bearer ", "Basic dXNlcjpwYXNz", &view, &format!("Bearer {view}x"), "Bearer \u{e4}"] {
        let request = Request::get("/api/v1/status").header("authorization", value.as_bytes()).body(Body::empty()).unwrap();
        bench.send(request).await.is_problem(401, "bad_token");
    }
    let lower = Request::get("/api/v1/status").header("authorization", format!("bearer {view}")).body(Body::empty()).unwrap();
    assert_eq!(bench.send(lower).await.status, 200);
    bench.get(&format!("/api/v1/status?token={view}")).await.is_problem(401, "no_token");
}

#[tokio::test]
async fn metrics_are_open_if_configured_and_the_page_says_less_without_a_token() {
    let (_folder, settings, _) = tokens();
    let bench = Bench::with(&["eiger"], Settings { metrics_open: true, ..settings.clone() });
    assert_eq!(bench.get("/metrics").await.status, 200);
    bench.get("/api/v1/status").await.is_problem(401, "no_token");
    assert!(!bench.get("/").await.text().contains("message of the test"));
    Bench::with(&["eiger"], settings).get("/metrics").await.is_problem(401, "no_token");
}

#[tokio::test]
async fn tokens_that_were_removed_are_refused_without_a_restart() {
    let (_folder, settings, [view, operate, _]) = tokens();
    let path = settings.tokens.clone().unwrap();
    let bench = Bench::with(&["eiger"], settings);
    let mut tokens = Tokens::load(&path).unwrap();
    tokens.remove("operate");
    tokens.store(&path).unwrap();
    super::super::watch::reload_tokens(&bench.shared);
    bench.send(with_token("GET", "/api/v1/status", &operate)).await.is_problem(401, "bad_token");
    std::fs::write(&path, "nonsense").unwrap();
    super::super::watch::reload_tokens(&bench.shared);
    assert_eq!(bench.send(with_token("GET", "/api/v1/status", &view)).await.status, 200, "a broken file locks nobody out");
    let events = bench.shared.fleet.events.after(0);
    assert!(events.last().unwrap().message.contains("line 1: it is not `name role sha256`"));
}

#[tokio::test]
async fn names_of_others_are_refused() {
    let bench = Bench::new(&["eiger"]);
    let to =
        async |path: &str, host: &str| bench.send(Request::get(path).header("host", host).body(Body::empty()).unwrap()).await;
    to("/api/v1/status", "evil.example:8090").await.is_problem(421, "bad_host");
    to("/metrics", "evil.example").await.is_problem(421, "bad_host");
    assert_eq!(to("/healthz", "evil.example").await.status, 200);
    for ours in ["localhost:8090", "127.0.0.1:8090", "[::1]:8090"] {
        assert_eq!(to("/api/v1/status", ours).await.status, 200, "{ours}");
    }
    let named = Bench::with(&["eiger"], Settings { hosts: vec!["daq.example".into()], ..Settings::on(loopback()) });
    let request = Request::get("/api/v1/status").header("host", "daq.example:1").body(Body::empty()).unwrap();
    assert_eq!(named.send(request).await.status, 200);
}

#[tokio::test]
async fn pages_of_others_change_nothing() {
    let pages = vec!["https://viewer.example".to_string()];
    let bench = Bench::with(&["eiger"], Settings { origins: pages, ..Settings::on(loopback()) });
    let from = async |origin: &str, site: &str| {
        let mut request = Request::post("/api/v1/cancel");
        if !origin.is_empty() {
            request = request.header("origin", origin);
        }
        if !site.is_empty() {
            request = request.header("sec-fetch-site", site);
        }
        bench.send(request.body(Body::empty()).unwrap()).await
    };
    for (origin, site) in
        [("http://evil.example", ""), ("null", ""), ("", "cross-site"), ("", "same-site"), ("http://localhost:1", "same-site")]
    {
        from(origin, site).await.is_problem(403, "foreign_page");
    }
    assert!(bench.fakes[0].commands.lock().unwrap().is_empty());
    for (origin, site) in
        [("", ""), ("http://localhost:8090", "same-origin"), ("", "none"), ("https://viewer.example", "cross-site")]
    {
        assert_eq!(from(origin, site).await.status, 200, "{origin} {site}");
    }
}

#[tokio::test]
async fn scripts_of_configured_pages_may_read() {
    let pages = vec!["https://viewer.example".to_string()];
    let bench = Bench::with(&["eiger"], Settings { origins: pages, ..Settings::on(loopback()) });
    let preflight = |origin: &str| {
        let request = Request::builder().method("OPTIONS").uri("/api/v1/arm").header("origin", origin);
        let request = request
            .header("access-control-request-method", "POST")
            .header("access-control-request-headers", "authorization,content-type");
        request.body(Body::empty()).unwrap()
    };
    let good = bench.send(preflight("https://viewer.example")).await;
    assert_eq!((good.status.as_u16(), good.header("access-control-allow-origin")), (200, "https://viewer.example"));
    assert!(good.header("access-control-allow-headers").contains("authorization"));
    let other = bench.send(preflight("https://evil.example")).await;
    assert_eq!(other.header("access-control-allow-origin"), "");
    let plain = Bench::new(&["eiger"]);
    plain.send(preflight("https://viewer.example")).await.is_problem(405, "method");
}

#[tokio::test]
async fn an_address_that_sends_too_much_gets_the_time_to_come_back() {
    let limits = Limits { requests_per_s: 1, requests_burst: 3, ..Limits::default() };
    let bench = Bench::with(&["eiger"], Settings { limits, ..Settings::on(loopback()) });
    let from = async |address: &str| bench.send_from(Request::get("/healthz").body(Body::empty()).unwrap(), address).await;
    for _ in 0..3 {
        assert_eq!(from("10.0.0.1:1").await.status, 200);
    }
    let refused = from("10.0.0.1:2").await;
    refused.is_problem(429, "too_many");
    assert_eq!(refused.header("retry-after"), "1");
    assert_eq!(from("10.0.0.2:1").await.status, 200);
}
