//! Commands: bodies, replies, waiting, many at once, the audit log.

use super::super::audit::is_dry_run;
use super::*;

#[tokio::test]
async fn commands_reach_the_detector_with_what_they_ask_for() {
    let bench = Bench::new(&["eiger"]);
    let body = r#"{"images": 10, "prefix": "lyso/run", "write": false, "metadata": {"energy_kev": 12.4}}"#;
    let armed = bench.post("/api/v1/arm", body).await;
    assert_eq!((armed.status.as_u16(), armed.json()["state"].as_str()), (200, Some("armed")));
    assert_eq!(bench.post("/api/v1/start?detector=eiger", "").await.json()["state"], "running");
    let problem = bench.post("/api/v1/arm", "{}").await.is_problem(409, "wrong_state");
    assert_eq!((problem["state"].as_str(), problem["hint"].as_str()), (Some("running"), Some("change the command")));
    bench.post("/api/v1/trigger", "{}").await.is_problem(409, "no_trigger");
    assert_eq!(bench.post("/api/v1/stop", "").await.json()["state"], "idle");
    for _ in 0..2 {
        assert_eq!(bench.post("/api/v1/cancel", "{}").await.json()["state"], "idle");
    }
    let commands = bench.fakes[0].commands.lock().unwrap();
    let Command::Arm(request) = &commands[0] else { panic!("{commands:?}") };
    assert_eq!((request.images, request.prefix.as_deref(), request.write), (Some(10), Some("lyso/run"), Some(false)));
    assert_eq!(request.metadata["energy_kev"], 12.4);
    assert!(matches!(&commands[1], Command::Start(request) if request.images.is_none()));
    assert!(matches!(commands[3..], [Command::Trigger, Command::Stop, Command::Cancel, Command::Cancel]));
}

#[tokio::test]
async fn bodies_are_taken_strictly() {
    let bench = Bench::new(&["eiger"]);
    let detail = |answer: &Answer, code| answer.is_problem(422, code)["detail"].as_str().unwrap().to_string();
    let broken = detail(&bench.post("/api/v1/arm", "{\"images\": 10,\n  oops}").await, "bad_body");
    assert!(broken.contains("line 2 column"), "{broken}");
    let unknown = detail(&bench.post("/api/v1/arm", r#"{"image": 10}"#).await, "bad_body");
    assert!(unknown.contains("`image`") && unknown.contains("`images`"), "{unknown}");
    detail(&bench.post("/api/v1/arm", r#"{"images": -1}"#).await, "bad_body");
    detail(&bench.post("/api/v1/arm", r#"{"images": 1.5}"#).await, "bad_body");
    detail(&bench.post("/api/v1/arm", r#"{"images": 1e20}"#).await, "bad_body");
    detail(&bench.post("/api/v1/arm", "[]").await, "bad_body");
    detail(&bench.post("/api/v1/arm", "{} {}").await, "bad_body");
    detail(&bench.post("/api/v1/stop", r#"{"now": true}"#).await, "bad_body");
    detail(&bench.post("/api/v1/stop", " []").await, "bad_body");
    detail(&bench.post("/api/v1/arm", &"[".repeat(100_000)).await, "bad_body");
    let text = Request::post("/api/v1/arm").header("content-type", "text/plain").body(Body::from("{}")).unwrap();
    bench.send(text).await.is_problem(415, "media_type");
    bench.send(Request::post("/api/v1/arm").body(Body::from("{}")).unwrap()).await.is_problem(415, "media_type");
    let large = format!("{{\"prefix\": \"{}\"}}", "a".repeat(2 << 20));
    bench.post("/api/v1/arm", &large).await.is_problem(413, "too_large");
    bench.post("/api/v1/arm?wait_s=1e9", "").await.is_problem(400, "bad_query");
    assert!(bench.fakes[0].commands.lock().unwrap().is_empty(), "none of them reached the detector");
}

#[tokio::test]
async fn a_whole_number_may_be_written_with_a_point() {
    let bench = Bench::new(&["eiger"]);
    for body in [r#"{"images": 1258.0}"#, r#"{"images": 1.258e3}"#, r#"{"images": null}"#] {
        assert_eq!(bench.post("/api/v1/arm", body).await.status, 200, "{body}");
        bench.fakes[0].set(DetectorState::Idle);
    }
    let commands = bench.fakes[0].commands.lock().unwrap();
    let images: Vec<_> =
        commands.iter().map(|command| if let Command::Arm(request) = command { request.images } else { panic!() }).collect();
    assert_eq!(images, [Some(1258), Some(1258), None]);
}

#[tokio::test]
async fn a_command_waits_for_the_end_if_asked_to() {
    let bench = Bench::new(&["eiger"]);
    let fake = Arc::clone(&bench.fakes[0]);
    let limit = Instant::now() + Duration::from_secs(60);
    let ended = async move {
        while fake.status().state != DetectorState::Receiving {
            assert!(Instant::now() < limit, "the command never reaches the detector");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        fake.set(DetectorState::Idle);
    };
    let (answer, ()) = tokio::join!(bench.post("/api/v1/start?wait_s=30", "{}"), ended);
    assert_eq!(answer.json()["state"], "idle");
    bench.fakes[0].set(DetectorState::Idle);
    assert_eq!(bench.post("/api/v1/start?wait_s=0", "{}").await.json()["state"], "running");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_of_commands_does_not_keep_a_cancel_out() {
    let bench = Arc::new(Bench::new(&["eiger"]));
    let crowd: Vec<_> = (0..super::super::state::COMMANDS_MAX + 5)
        .map(|_| {
            let bench = Arc::clone(&bench);
            tokio::spawn(async move { bench.post("/api/v1/arm", r#"{"prefix": "slow"}"#).await.status.as_u16() })
        })
        .collect();
    // The first answers are those of the commands for which there is no room any more.
    let limit = Instant::now() + Duration::from_secs(60);
    while !crowd.iter().any(tokio::task::JoinHandle::is_finished) {
        assert!(Instant::now() < limit, "no command is answered");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(bench.post("/api/v1/cancel", "").await.status, 200);
    let mut busy = 0;
    for one in crowd {
        let status = one.await.unwrap();
        assert!(status == 200 || status == 503, "{status}");
        busy += usize::from(status == 503);
    }
    assert!(busy >= 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mistake_of_ours_is_an_answer_without_a_trace() {
    let bench = Bench::new(&["eiger"]);
    let answer = bench.post("/api/v1/arm", r#"{"prefix": "panic"}"#).await;
    answer.is_problem(500, "bug");
    assert!(!answer.text().contains("the test panics") && !answer.text().contains(".rs"));
    assert_eq!(bench.get("/api/v1/status").await.status, 200);
}

#[tokio::test]
async fn whatever_changes_something_is_recorded() {
    let (folder, settings, [view, operate, _]) = tokens();
    let bench = Bench::with(&["eiger"], settings);
    let send = async |path: &str, token: Option<&str>, body: &str| {
        let mut request = Request::post(path).header("content-type", "application/json");
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        bench.send_from(request.body(Body::from(body.to_string())).unwrap(), "10.1.2.3:4000").await.status.as_u16()
    };
    let body = r#"{"images": 3, "prefix": "a", "metadata": {"sample_name": "secret protein"}}"#;
    assert_eq!(send("/api/v1/arm?detector=eiger", Some(&operate), body).await, 200);
    assert_eq!(send("/api/v1/arm", Some(&operate), body).await, 409);
    assert_eq!(send("/api/v1/cancel", Some(&view), "").await, 403);
    assert_eq!(send("/api/v1/cancel", None, "").await, 401);
    assert_eq!(send("/api/v1/cancel", Some("konkordia_guess"), "").await, 401);
    assert_eq!(send("/api/v1/nothing", Some(&operate), "").await, 404);
    bench.get("/healthz").await;
    let text = std::fs::read_to_string(folder.path().join("audit.jsonl")).unwrap();
    assert!(!text.contains(&operate) && !text.contains("konkordia_guess") && !text.contains("secret protein"), "{text}");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let who: Vec<_> =
        lines.iter().map(|l| (l["who"].as_str().unwrap(), l["status"].as_u64().unwrap(), l["code"].as_str())).collect();
    let expected = [
        ("operate", 200, None),
        ("operate", 409, Some("wrong_state")),
        ("view", 403, Some("not_allowed")),
        ("(no token)", 401, Some("no_token")),
        ("(wrong token)", 401, Some("bad_token")),
        ("operate", 404, Some("not_found")),
    ];
    assert_eq!(who, expected);
    let first = &lines[0];
    assert_eq!(
        (first["address"].as_str(), first["path"].as_str(), first["detector"].as_str()),
        (Some("10.1.2.3"), Some("/api/v1/arm"), Some("eiger"))
    );
    assert_eq!(
        first["request"],
        json!({"images": 3, "prefix": "a", "write": null, "metadata": ["sample_name"], "append": false})
    );
    let events = bench.shared.fleet.events.after(0);
    let reported: Vec<_> = events.iter().filter(|event| event.event == "command").collect();
    assert_eq!(reported.len(), 4, "those without a token are in the file only");
    assert_eq!(reported[0].message, "arm by operate from 10.1.2.3: done");
    assert_eq!((reported[0].detector.as_deref(), reported[0].data["who"].as_str()), (Some("eiger"), Some("operate")));
}

#[tokio::test]
async fn an_audit_log_that_cannot_be_written_is_reported_once() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("logs");
    std::fs::create_dir(&place).unwrap();
    let settings = Settings { audit: Some(place.join("audit.jsonl")), ..Settings::on(loopback()) };
    let bench = Bench::with(&["eiger"], settings);
    std::fs::remove_dir_all(&place).unwrap();
    for _ in 0..3 {
        assert_eq!(bench.post("/api/v1/cancel", "").await.status, 200);
    }
    let events = bench.shared.fleet.events.after(0);
    let warnings = events.iter().filter(|event| event.event == "warning" && event.message.contains("audit")).count();
    assert_eq!(warnings, 1);
}

#[tokio::test]
async fn the_detector_is_told_who_commands() {
    let bench = Bench::new(&["eiger"]);
    bench.post("/api/v1/arm", "{}").await;
    for agent in ["konkordia start", "konkordia \"x\"", "curl/8"] {
        let request = Request::post("/api/v1/start").header("user-agent", agent).body(Body::empty()).unwrap();
        bench.send(request).await;
    }
    let senders = bench.fakes[0].senders.lock().unwrap().clone();
    assert_eq!(senders, ["local 127.0.0.1", "local 127.0.0.1 (konkordia start)", "local 127.0.0.1", "local 127.0.0.1"]);
}

#[tokio::test]
async fn a_dry_run_reaches_nothing_and_leaves_no_trace() {
    let bench = Bench::new(&["eiger"]);
    let events = bench.shared.fleet.events.after(0).len();
    let asked = bench.post("/api/v1/arm?dry_run=true", r#"{"images": 10}"#).await.json();
    assert_eq!((asked["ok"].as_bool(), asked["problems"].as_array().map(Vec::len)), (Some(true), Some(0)), "{asked}");
    assert!(asked["needs"].as_object().is_some_and(|needs| needs["rate_hz"].is_null()), "{asked}");
    let asked = bench.post("/api/v1/arm?dry_run=true", r#"{"images": 5000}"#).await.json();
    assert_eq!((asked["ok"].as_bool(), asked["problems"][0]["field"].as_str()), (Some(false), Some("images")), "{asked}");
    bench.post("/api/v1/arm?dry_run=true&wait_s=1", "{}").await.is_problem(400, "bad_query");
    bench.post("/api/v1/arm?dry_run=true&dry_run=false", "{}").await.is_problem(400, "bad_query");
    bench.post("/api/v1/start?dry_run=true", "{}").await.is_problem(400, "bad_query");
    assert!(bench.fakes[0].commands.lock().unwrap().is_empty());
    let after = bench.shared.fleet.events.after(0);
    assert_eq!(after.len() - events, 1, "the start alone is a command: {after:?}");
    assert_eq!(bench.post("/api/v1/arm?dry_run=false", "{}").await.json()["state"], "armed");
}

#[test]
fn only_an_arm_is_asked() {
    assert!(is_dry_run("/api/v1/arm", Some("detector=a&dry_run=true")));
    for query in [None, Some(""), Some("dry_run=false"), Some("dry_run=True"), Some("dry%5Frun=true"), Some("xdry_run=true")] {
        assert!(!is_dry_run("/api/v1/arm", query), "{query:?}");
    }
    assert!(!is_dry_run("/api/v1/start", Some("dry_run=true")) && !is_dry_run("/api/v1/arm/", Some("dry_run=true")));
}

#[tokio::test]
async fn a_remark_has_the_name_of_its_severity() {
    let bench = Bench::new(&["eiger"]);
    for severity in [Severity::Info, Severity::Warning, Severity::Error] {
        bench.shared.report(severity, "x".into());
    }
    let names: Vec<_> = bench.shared.fleet.events.after(0).iter().map(|event| event.event.clone()).collect();
    assert_eq!(names, ["log", "warning", "error"]);
}
