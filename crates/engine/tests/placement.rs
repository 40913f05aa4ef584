//! Threads of a run are where its plan wants them. The kernel is asked for every thread of this process, so this test
//! has a process of its own.

use konkordia_core::affinity::{Affinity, Cpus, Priority, cpus, cpus_text};
use konkordia_core::geometry::ImageGeometry;
use konkordia_core::image::CommittedImage;
use konkordia_core::ledger::MissingPolicy;
use konkordia_core::pixel::PixelType;
use konkordia_core::plan::{AnalysisPlan, Compression, FirstFrame, Plan, Processing, Recipe};
use konkordia_core::ports::{Sink, SinkError, Source};
use konkordia_core::sender::Sender;
use konkordia_core::setup::SetupRules;
use konkordia_core::tile::TileFormat;
use konkordia_engine::run::{self, Consumers, PixelConstants, RunParts, WorkerKind};
use konkordia_kernels::Isa;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Nothing ever comes.
struct Silence;

impl Source for Silence {
    fn receive(&mut self, timeout: Duration, _: &mut dyn FnMut(&[u8], Sender)) -> io::Result<usize> {
        std::thread::sleep(timeout);
        Ok(0)
    }

    fn dropped(&mut self) -> u64 {
        0
    }
}

struct Nowhere;

impl Sink for Nowhere {
    fn image(&mut self, _: &Arc<CommittedImage>) -> Result<(), SinkError> {
        Ok(())
    }
}

fn plan(affinity: Affinity) -> Plan {
    Plan {
        geometry: ImageGeometry::stacked(TileFormat::eiger(4).unwrap(), 2).unwrap(),
        recipe: Recipe::Raw,
        pixel: PixelType::Uint16,
        compression: Compression::None,
        processing: Processing::default(),
        frames: Some(1),
        first_frame: FirstFrame::Number(1),
        missing: MissingPolicy::Keep,
        slots: 16,
        packed_slots: 16,
        lossless_source: false,
        analysis: AnalysisPlan::default(),
        fills_slots: false,
        window_images: 8,
        deadline_ns: 200_000_000,
        stall_timeout_ns: 400_000_000,
        start_timeout_ns: u64::MAX,
        workers: 3,
        gpu: None,
        affinity,
        setup: SetupRules::default(),
    }
}

/// Where a thread may run, and its nice value.
type Place = (String, i32);

/// The threads of this process by their names.
fn threads() -> BTreeMap<String, Place> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let place = |task: std::fs::DirEntry| {
        // A thread may end meanwhile.
        let text = |file: &str| std::fs::read_to_string(task.path().join(file)).ok();
        let status = text("status")?;
        let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?.trim().to_owned();
        // The name stands in parentheses; the nice value is the 17th word after it.
        let stat = text("stat")?;
        let nice = stat.rsplit_once(") ")?.1.split_whitespace().nth(16)?.parse::<i32>().ok()?;
        Some((text("comm")?.trim().to_owned(), (list, nice)))
    };
    tasks.filter_map(place).collect()
}

/// Runs until all of these threads are where they are expected, at most a minute; returns where they were last.
fn placed(affinity: Affinity, expected: &BTreeMap<String, Place>) -> BTreeMap<String, Place> {
    let parts = RunParts {
        plan: Arc::new(plan(affinity)),
        sources: vec![Box::new(Silence), Box::new(Silence)],
        constants: PixelConstants::None,
        sinks: vec![Box::new(Nowhere)],
        consumers: Consumers::default(),
        frame_sinks: vec![],
        isa: Isa::detect(),
        workers: WorkerKind::default(),
    };
    let armed = run::arm(parts).unwrap();
    let (control, began) = (armed.control(), Instant::now());
    std::thread::scope(|scope| {
        scope.spawn(|| armed.run());
        loop {
            let found: BTreeMap<_, _> = threads().into_iter().filter(|(name, _)| expected.contains_key(name)).collect();
            if found == *expected || began.elapsed() > Duration::from_secs(60) {
                control.stop();
                return found;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    })
}

#[test]
fn threads_run_where_the_plan_wants_them_and_others_anywhere() {
    // The thread of a test is not the main thread; both may run where the process may.
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).and_then(cpus).unwrap();
    let (first, last) = (*allowed.first().unwrap(), *allowed.last().unwrap());
    let everywhere = cpus_text(&allowed);
    let expect = |places: [(&str, Place); 6]| places.map(|(name, place)| (name.to_owned(), place)).into();
    let own_nice = threads().into_values().next().map_or(0, |(_, nice)| nice);

    // One processor for each receiver, in turn; two processors for the workers in common. The least important threads
    // there are, which every process may have.
    let both = Cpus::from([first, last]);
    let affinity = Affinity {
        receivers: Affinity::one_each(&[first, last]),
        workers: vec![both.clone()],
        priority: Priority::Nice(19),
        ..Affinity::default()
    };
    let expected: BTreeMap<String, Place> = expect([
        ("rx-0", (first.to_string(), 19)),
        ("rx-1", (last.to_string(), 19)),
        ("work-0", (cpus_text(&both), 19)),
        ("work-1", (cpus_text(&both), 19)),
        ("work-2", (cpus_text(&both), 19)),
        ("commit", (everywhere.clone(), own_nice)),
    ]);
    assert_eq!(placed(affinity, &expected), expected);

    let expected: BTreeMap<String, Place> =
        expect(["rx-0", "rx-1", "work-0", "work-1", "work-2", "commit"].map(|name| (name, (everywhere.clone(), own_nice))));
    assert_eq!(placed(Affinity::default(), &expected), expected);

    // Reserved pages that this machine does not have change nothing either.
    let reserved = Affinity { reserved_pages: true, ..Affinity::default() };
    assert_eq!(placed(reserved, &expected), expected);
}
