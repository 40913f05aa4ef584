//! The interface, tested with a fake detector.

mod commands;
mod documents;
mod images;
mod looking;
mod security;
mod server;
mod shapes;

use super::state::Shared;
use super::{Limits, Settings, routes};
use crate::security::Role;
use crate::security::tokens::Tokens;
use arc_swap::ArcSwap;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::ConnectInfo;
use axum::http::{HeaderMap, Request, StatusCode};
use konkordia_acquire::handle::{
    AlarmStatus, ArmRequest, Command, ConsumerStatistics, Detector, DetectorState, DetectorStatistics, DetectorStatus, DryRun,
    EventLog, FileEntry, FileState, Fleet, HitRate, ImageRing, Refusal, RefusalCode, Reply, RequestProblem, ResultPlot,
    RingImage, Severity, ShapeBoard, SharedPlanes, SpoolStatus,
};
use konkordia_core::experiment::Metadata;
use konkordia_core::image::CommittedImage;
use konkordia_core::results::ImageResults;
use konkordia_core::series::SeriesStart;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};
use tower::ServiceExt;

/// A detector that changes its state as commanded, and remembers the commands.
pub struct Fake {
    name: String,
    status: ArcSwap<DetectorStatus>,
    commands: Mutex<Vec<Command>>,
    /// Who sent them.
    senders: Mutex<Vec<String>>,
    ring: Arc<FakeRing>,
    shapes: Arc<ShapeBoard>,
    /// The events of its service, where changes of its state are reported.
    events: OnceLock<EventLog>,
}

#[derive(Default)]
struct FakeRing {
    images: Mutex<Vec<Arc<SharedPlanes>>>,
    /// Pixels are forgotten, see [`ImageRing::forget_pixels`].
    forgotten: AtomicU64,
}

impl ImageRing for FakeRing {
    fn get(&self, number: Option<u64>, _asked: Instant) -> Option<RingImage> {
        let images = self.images.lock().unwrap();
        let found = match number {
            Some(number) => images.iter().find(|planes| planes.image().number == number),
            None => images.iter().rev().find(|planes| !planes.image().channels.is_empty()),
        };
        found.map(|planes| RingImage { planes: Arc::clone(planes), run: None, facts: None })
    }

    fn newest_bytes(&self) -> Option<(u64, u64)> {
        let found = self.get(None, Instant::now())?;
        Some((found.planes.image().packed_bytes(), found.planes.image().unpacked_bytes()))
    }

    fn forget_pixels(&self, unasked_for: Duration) {
        assert!(unasked_for >= Duration::from_secs(1), "who asks every second shares them");
        self.forgotten.fetch_add(1, Ordering::SeqCst);
    }

    fn newest_results(&self) -> Option<ImageResults> {
        self.get(None, Instant::now()).map(|found| found.planes.image().results.clone())
    }

    fn numbers(&self) -> (Vec<u64>, Option<u64>) {
        (self.images.lock().unwrap().iter().map(|planes| planes.image().number).collect(), None)
    }

    fn age(&self, number: u64) -> Option<Duration> {
        self.numbers().0.contains(&number).then_some(Duration::from_millis(1500))
    }
}

fn status_of(name: &str, state: DetectorState) -> DetectorStatus {
    DetectorStatus {
        detector: name.into(),
        kind: "stream".into(),
        state,
        message: "<message of the test>".into(),
        severity: Severity::Info,
        hint: None,
        run: 1,
        progress: Some(0.5),
        images_expected: Some(10),
        images_committed: 5,
        images_written: 4,
        images_unwritten: 0,
        images_durable: Some(3),
        raw_frames_durable: Some(2),
        spool: Some(SpoolStatus {
            directory: "/dev/shm/konkordia".into(),
            used_bytes: 3 << 20,
            limit_bytes: 1 << 30,
            files_waiting: 2,
            drain_bytes_per_s: Some(1.5e8),
            problem: None,
        }),
        images_lost: 1,
        images_not_taken: 0,
        images_not_received: 0,
        images_partial: 0,
        file: None,
        ended: None,
        open_file: None,
        state_age_s: 0.25,
        listens: vec!["tcp://127.0.0.1:9999".into()],
        alarms: vec![AlarmStatus { name: "loss".into(), ..AlarmStatus::default() }],
        operator: None,
        dark_frames: None,
    }
}

impl Fake {
    fn new(name: &str) -> Arc<Self> {
        let status = ArcSwap::from_pointee(status_of(name, DetectorState::Idle));
        let (commands, senders, ring, events) = (Mutex::default(), Mutex::default(), Arc::default(), OnceLock::new());
        let shapes = Arc::new(ShapeBoard::in_memory(name, [16, 24]));
        Arc::new(Self { name: name.into(), status, commands, senders, ring, shapes, events })
    }

    fn set(&self, state: DetectorState) {
        self.status.store(Arc::new(status_of(&self.name, state)));
        if let Some(events) = self.events.get() {
            events.wake();
        }
    }

    fn show(&self, image: CommittedImage) {
        let start = SeriesStart { series: 7, unique_id: "abc".into(), ..SeriesStart::default() };
        self.ring.images.lock().unwrap().push(Arc::new(SharedPlanes::new(Arc::new(start), Arc::new(image))));
    }
}

impl Detector for Fake {
    fn name(&self) -> &str {
        &self.name
    }

    fn status(&self) -> Arc<DetectorStatus> {
        self.status.load_full()
    }

    fn statistics(&self) -> DetectorStatistics {
        let map = |name: &str, value: f64| [(name.to_string(), value)].into();
        let totals = [
            ("images_complete", 30),
            ("images_lost", 2),
            ("analysis_images_analysed", 6),
            ("packets_placed", 7),
            ("messages_late", 1),
            ("bytes_received", 9),
            ("runs_finished", 3),
            ("wakeups_work-0", 8),
            ("idle_wakeups_work-0", 5),
            ("novel", 4),
        ];
        DetectorStatistics {
            detector: self.name.clone(),
            ledger: [("received".to_string(), 12)].into(),
            rates: map("received_hz", 2000.5),
            queues: map("in_flight", 0.25),
            latency: [("written_p99_us".to_string(), 5100.0), ("written_images".to_string(), 30.0)].into(),
            consumers: vec![ConsumerStatistics {
                name: "preview \"1\"".into(),
                address: "tcp://127.0.0.1:1".into(),
                service: "latest".into(),
                connected: true,
                delivered: 8,
                skipped: 2,
                lag_images: 1,
            }],
            totals: totals.map(|(name, count)| (name.to_string(), count)).into(),
        }
    }

    fn hit_rate(&self) -> HitRate {
        HitRate { detector: self.name.clone(), bin_s: 2.0, analysed: vec![5, 4], hits: vec![1, 2], ..HitRate::default() }
    }

    fn results(&self, result: Option<&str>) -> Option<ResultPlot> {
        let mean = vec![Some(2.5), None];
        let plot = ResultPlot {
            detector: self.name.clone(),
            result: result.map(str::to_owned),
            bin_images: 2,
            mean,
            ..ResultPlot::default()
        };
        result.is_none_or(|result| result == "spots").then_some(plot)
    }

    fn configuration(&self) -> Value {
        json!({"detector": {"model": "stream"}, "output": {"directory": std::env::temp_dir()}})
    }

    fn facts(&self) -> Metadata {
        Metadata::default()
    }

    fn command(&self, command: Command, by: &str) -> Reply {
        self.senders.lock().unwrap().push(by.into());
        let refuse = |code, state| Refusal {
            code,
            what: "cannot do that".into(),
            why: "the test refuses it".into(),
            fix: "change the command".into(),
            state: Some(state),
        };
        self.commands.lock().unwrap().push(command.clone());
        let state = self.status.load().state;
        match (command, state) {
            (Command::Arm(request), _) if request.prefix.as_deref() == Some("panic") => panic!("the test panics"),
            (Command::Arm(request), _) if request.prefix.as_deref() == Some("slow") => {
                std::thread::sleep(Duration::from_millis(400));
                self.set(DetectorState::Armed);
            }
            (Command::Arm(_), DetectorState::Idle) => self.set(DetectorState::Armed),
            (Command::Start(_), DetectorState::Idle | DetectorState::Armed) => self.set(DetectorState::Receiving),
            (Command::Stop | Command::Cancel | Command::Close, _) => self.set(DetectorState::Idle),
            (Command::Drain, _) => {}
            (Command::Trigger, state) => return Err(refuse(RefusalCode::NoTrigger, state)),
            (_, state) => return Err(refuse(RefusalCode::WrongState, state)),
        }
        Ok((*self.status()).clone())
    }

    fn dry_run(&self, request: &ArmRequest) -> DryRun {
        let problem = RequestProblem { field: "images".into(), detail: "<too many>".into(), hint: "give fewer".into() };
        let problems = request.images.filter(|images| *images > 1000).map(|_| problem);
        DryRun { ok: problems.is_none(), problems: problems.into_iter().collect(), ..DryRun::default() }
    }

    fn images(&self) -> Arc<dyn ImageRing> {
        Arc::clone(&self.ring) as Arc<dyn ImageRing>
    }

    fn shapes(&self) -> Arc<ShapeBoard> {
        Arc::clone(&self.shapes)
    }

    fn files(&self) -> Vec<FileEntry> {
        vec![FileEntry {
            detector: self.name.clone(),
            run: 1,
            master: "/data/a_master.h5".into(),
            state: FileState::Complete,
            images: 10,
            bytes: 1 << 40,
            unpacked_bytes: 1 << 43,
            images_expected: Some(10),
            ended: Some("finished".into()),
            problem: None,
        }]
    }
}

fn fleet(detectors: &[Arc<Fake>]) -> Arc<Fleet> {
    let events = EventLog::new();
    for fake in detectors {
        let _ = fake.events.set(events.clone());
    }
    let detectors = detectors.iter().map(|fake| Arc::clone(fake) as Arc<dyn Detector>).collect();
    Arc::new(Fleet::new(detectors, events))
}

fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// The router with one or more detectors.
struct Bench {
    shared: Arc<Shared>,
    router: Router,
    fakes: Vec<Arc<Fake>>,
}

/// An answer.
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    bytes: Bytes,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes).unwrap_or_else(|error| panic!("{error}: {:?}", self.text()))
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// Checks that it is a whole problem with this status and code.
    #[track_caller]
    fn is_problem(&self, status: u16, code: &str) -> Value {
        assert_eq!(self.status.as_u16(), status, "{}", self.text());
        assert_eq!(self.header("content-type"), "application/problem+json");
        let body = self.json();
        assert_eq!((body["code"].as_str(), body["status"].as_u64()), (Some(code), Some(u64::from(status))));
        assert_eq!(body["type"], format!("urn:konkordia:problem:{code}"));
        assert!(body["title"].is_string() && body["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{body}");
        body
    }
}

impl Bench {
    fn new(names: &[&str]) -> Self {
        Self::with(names, Settings::on(loopback()))
    }

    fn with(names: &[&str], settings: Settings) -> Self {
        let fakes: Vec<Arc<Fake>> = names.iter().map(|name| Fake::new(name)).collect();
        let shared = Arc::new(Shared::new(fleet(&fakes), settings).unwrap());
        Self { router: routes::router(&shared), shared, fakes }
    }

    async fn send(&self, request: Request<Body>) -> Answer {
        self.send_from(request, "127.0.0.1:4000").await
    }

    async fn send_from(&self, mut request: Request<Body>, address: &str) -> Answer {
        let address: SocketAddr = address.parse().unwrap();
        request.extensions_mut().insert(ConnectInfo(address));
        request.headers_mut().entry("host").or_insert("localhost:8090".parse().unwrap());
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = axum::body::to_bytes(body, 64 << 20).await.unwrap();
        Answer { status: parts.status, headers: parts.headers, bytes }
    }

    async fn get(&self, path: &str) -> Answer {
        self.send(Request::get(path).body(Body::empty()).unwrap()).await
    }

    async fn post(&self, path: &str, body: &str) -> Answer {
        let request = Request::post(path).header("content-type", "application/json").body(Body::from(body.to_string())).unwrap();
        self.send(request).await
    }
}

/// A folder with tokens of every role, and the tokens, weakest first.
fn tokens() -> (tempfile::TempDir, Settings, [String; 3]) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokens");
    let mut tokens = Tokens::default();
    let made = Role::ALL.map(|role| tokens.create(role.name(), role).unwrap());
    tokens.store(&path).unwrap();
    let audit = Some(folder.path().join("audit.jsonl"));
    (folder, Settings { tokens: Some(path), audit, limits: Limits::default(), ..Settings::on(loopback()) }, made)
}
