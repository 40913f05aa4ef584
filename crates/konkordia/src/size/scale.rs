//! The pipeline of a detector as a model: with each step at a given headroom, and with the measured times of a run.

use super::args::ModelArgs;
use super::model::{Arrivals, Model, Outcome, Pauses, Service};
use super::records::{Pipeline, Role};
use super::sizing::{Request, SLOTS, Sizing, short};
use konkordia_sim::presets::Wire;

/// The packets of an image are spread over its period, but not over more than this, as the simulated detector does.
const SENDING_S_MAX: f64 = 0.02;
/// Most images of a model: an hour at 1 kHz takes seconds to compute.
const IMAGES_MAX: f64 = 4e6;
/// Intervals of the fill over time.
const INTERVALS: usize = 120;

/// One model and what came of it.
#[derive(Clone, Debug)]
pub struct Case {
    /// In words.
    pub name: String,
    /// How many times its load each step can do; `None` if each has its measured time.
    pub headroom: Option<f64>,
    /// The model.
    pub model: Model,
    /// What came of it.
    pub outcome: Outcome,
}

impl Case {
    fn new(name: String, headroom: Option<f64>, model: Model) -> Self {
        let outcome = model.run(INTERVALS);
        Self { name, headroom, model, outcome }
    }

    /// The part of its time in which each step is busy: 1 and more is too much.
    pub fn utilisations(&self) -> [(&'static str, f64); 5] {
        let of = |service: Service| service.mean_s / self.model.period_s;
        let model = &self.model;
        [
            ("receive", of(model.receive)),
            ("work", of(model.work)),
            ("join", of(model.join)),
            ("write", of(model.write)),
            ("disk", of(model.disk)),
        ]
    }

    /// What a step loses that has no buffer: 1 - 1 / utilisation of the busiest one, pauses not counted.
    pub fn expected_loss(&self) -> f64 {
        let most = self.utilisations().iter().map(|(_, part)| *part).fold(0.0, f64::max);
        if most > 1.0 { 1.0 - 1.0 / most } else { 0.0 }
    }
}

/// The buffers of the pipeline, and steps that take no time.
fn empty(request: &Request, sizing: &Sizing, args: &ModelArgs) -> Model {
    let all_streams = request.detector.streams().max(1) as usize;
    let streams = all_streams.div_ceil(args.runs as usize);
    let part_bytes = request.detector.image_bytes() as f64 / all_streams as f64;
    let slots =
        args.slots.map_or((request.rate_hz * request.stall_s).ceil().clamp(SLOTS.0, SLOTS.1) as usize, |slots| slots as usize);
    // As in the plan of a run (core/src/plan.rs): as many packed images as frames; a quarter of them, at most 16, are
    // in the ring of strips.
    let strip_slots = (slots / 4).clamp(1, 16);
    let cores = sizing.value("cores_work").map_or(streams, |cores| (cores / args.runs as f64).ceil() as usize);
    let workers = args.workers.map_or(cores, |n| n as usize);
    Model {
        images: (args.seconds * request.rate_hz).clamp(10.0, IMAGES_MAX) as u64,
        period_s: 1.0 / request.rate_hz,
        arrivals: if args.random { Arrivals::Random } else { Arrivals::Even },
        sending_s: (1.0 / request.rate_hz).min(SENDING_S_MAX),
        streams,
        socket_images: args.receive_buffer_mib * 1_048_576.0 / part_bytes,
        receive: Service::default(),
        slots,
        workers: workers.max(1),
        work: Service::default(),
        strip_slots,
        join: Service::default(),
        pool_images: slots - strip_slots,
        write: Service::default(),
        cache_images: ((args.kernel_cache * request.rate_hz) as usize).max(1),
        disk: Service::default(),
        pauses: Pauses { every_s: args.pause_every, length_s: args.pause_ms / 1e3 },
        stalls: Pauses { every_s: args.disk_stall_every, length_s: args.disk_stall_ms / 1e3 },
        seed: args.seed,
    }
}

/// One case for each headroom: all steps are equally busy.
pub fn at_headrooms(request: &Request, sizing: &Sizing, args: &ModelArgs) -> Vec<Case> {
    let case = |headroom: &f64| {
        let mean_s = 1.0 / request.rate_hz / headroom;
        let step = Service { mean_s, spread_s: mean_s * args.spread };
        let model = Model { receive: step, work: step, join: step, write: step, disk: step, ..empty(request, sizing, args) };
        Case::new(format!("headroom {}", short(*headroom)), Some(*headroom), model)
    };
    args.at_headroom.iter().map(case).collect()
}

/// The most of a processor that a thread gets where threads with these demands share so many. Each has the same right;
/// one that needs less than its share gets all of it.
fn fair_share(demands: &[f64], processors: f64) -> f64 {
    let mut demands: Vec<f64> = demands.iter().map(|demand| demand.min(1.0)).collect();
    demands.sort_unstable_by(f64::total_cmp);
    let mut left = processors;
    for (n, demand) in demands.iter().enumerate() {
        let share = left / (demands.len() - n) as f64;
        if *demand > share {
            return share.min(1.0);
        }
        left -= demand;
    }
    1.0
}

/// Stretches the steps of `model` to the share of the processors that their threads get. The simulated detector and the
/// receivers see every image, the steps behind them only those that the slowest one leaves.
fn shared(mut model: Model, pipeline: &Pipeline, modules: f64, processors: f64) -> Model {
    let of = |service: Service| service.mean_s / model.period_s;
    let (receive, work, join, write) = (of(model.receive), of(model.work), of(model.join), of(model.write));
    let sender = pipeline.sender_s * modules / pipeline.modules / model.period_s;
    let (mut passed, mut share) = (1.0, 1.0);
    for _ in 0..50 {
        let mut demands = vec![receive; model.streams];
        demands.extend(std::iter::repeat_n(work * passed, model.workers));
        demands.extend([sender, join * passed, write * passed, pipeline.rest_cores]);
        share = fair_share(&demands, processors);
        let slowest = [receive, work, join, write].into_iter().fold(1.0f64, |most, part| most.max(part / share.min(1.0)));
        // Half a step: what passes and the share depend on each other.
        passed = 0.5 * (passed + 1.0 / slowest);
    }
    for service in [&mut model.receive, &mut model.work, &mut model.join, &mut model.write] {
        if service.mean_s / model.period_s > share {
            (service.mean_s, service.spread_s) = (service.mean_s / share, service.spread_s / share);
        }
    }
    model
}

/// The case with the times that the threads of a run needed, spread and waits for a processor included. The disk takes
/// no time: a run of the bench writes into memory.
pub fn as_measured(request: &Request, sizing: &Sizing, args: &ModelArgs, pipeline: &Pipeline) -> Option<Case> {
    let Wire::Jungfrau { modules, .. } = request.detector.wire else { return None };
    let modules = f64::from(modules) / args.runs as f64;
    let ratio = modules / pipeline.modules;
    let empty = empty(request, sizing, args);
    // The parts of an image are alike, so they deviate together.
    let of = |role: Role, threads: usize| {
        let part = ratio / threads as f64;
        Service { mean_s: role.image_s * part, spread_s: role.spread_s * part }
    };
    // A thread that waits for the part w of the time, l each time, runs for l (1 - w) / w in between.
    let Role { waiting, wait_s, .. } = pipeline.work;
    let waits =
        Pauses { every_s: if waiting > 0.0 { wait_s * (1.0 - waiting).max(0.0) / waiting } else { 0.0 }, length_s: wait_s };
    let model = Model {
        receive: of(pipeline.receive, empty.streams),
        work: of(pipeline.work, empty.workers),
        join: of(pipeline.join, 1),
        write: of(pipeline.file, 1),
        pauses: if args.pause_ms > 0.0 { empty.pauses } else { waits },
        ..empty
    };
    Some(match args.processors {
        Some(processors) => {
            let name = format!("as measured, {} processors", short(processors));
            Case::new(name, None, shared(model, pipeline, modules, processors))
        }
        None => Case::new("as measured".into(), None, model),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::size::records::Records;
    use crate::size::sizing::{Codec, Host, size};
    use konkordia_sim::presets::preset;

    fn request(name: &str, rate_hz: f64) -> Request {
        let host = Host { cores: 64.0, ports: 4.0, memory_gib: 512.0, memory_gb_per_s: None, disk_gb_per_s: None };
        let detector = *preset(name).unwrap();
        Request {
            detector,
            rate_hz,
            codec: Codec::Bslz4,
            bits_per_pixel: None,
            headroom: 1.5,
            stall_s: 0.1,
            port_gbit: 100.0,
            host,
        }
    }

    fn args() -> ModelArgs {
        ModelArgs {
            at_headroom: vec![0.5, 0.8, 1.0, 1.2],
            seconds: 5.0,
            spread: 0.0,
            pause_ms: 0.0,
            pause_every: 1.0,
            disk_stall_ms: 0.0,
            disk_stall_every: 10.0,
            kernel_cache: 0.0,
            receive_buffer_mib: 256.0,
            slots: None,
            workers: Some(8),
            runs: 1,
            processors: None,
            random: false,
            seed: 1,
            png: None,
        }
    }

    #[test]
    fn the_loss_falls_with_the_headroom_to_nothing() {
        let request = request("jungfrau-10m", 2200.0);
        let cases = at_headrooms(&request, &size(&request, &Records::shipped()), &args());
        let losses: Vec<f64> = cases.iter().map(|case| case.outcome.loss()).collect();
        assert!(losses.windows(2).all(|pair| pair[0] >= pair[1]), "{losses:?}");
        assert_eq!((losses[2], losses[3]), (0.0, 0.0));
        for case in &cases[..2] {
            // What the buffers hold at the end is not lost.
            let (loss, expected) = (case.outcome.loss(), case.expected_loss());
            assert!(loss > 0.3 * expected && loss <= expected + 1e-3, "{}: {loss}, expected {expected}", case.name);
        }
        assert_eq!((cases[0].model.streams, cases[0].model.slots, cases[0].model.pool_images), (40, 220, 204));
        // 256 MiB hold 512 parts of 0.5 MiB.
        assert_eq!(cases[0].model.socket_images, 512.0);
    }

    fn pipeline() -> Pipeline {
        let role = |image_us: f64| Role { cores: 0.1, image_s: image_us * 1e-6, spread_s: 1e-6, waiting: 0.01, wait_s: 1e-4 };
        Pipeline {
            source: "a test".into(),
            modules: 1.0,
            rate_hz: 1000.0,
            datagram_gb_per_s: 1.05,
            bits_per_pixel: Some(3.0),
            receive: role(220.0),
            work: role(730.0),
            join: role(20.0),
            file: role(130.0),
            rest_cores: 0.0,
            sender_s: 310e-6,
        }
    }

    #[test]
    fn threads_share_processors_alike() {
        assert_eq!(fair_share(&[0.5, 0.2, 0.9], 2.0), 1.0);
        // 0.3 and 0.2 are served, 0.5 is left; of 0.5 and 0.2 only the second is served, the others get 0.4 each.
        assert!((fair_share(&[0.3, 0.2, 3.0], 1.0) - 0.5).abs() < 1e-12);
        assert!((fair_share(&[0.5, 0.2, 3.0], 1.0) - 0.4).abs() < 1e-12);
        assert_eq!(fair_share(&[2.0, 2.0, 2.0, 2.0], 2.0), 0.5);
        assert_eq!((fair_share(&[], 2.0), fair_share(&[5.0], 2.0)), (1.0, 1.0));
    }

    #[test]
    fn on_few_processors_the_busiest_thread_gets_what_the_others_leave() {
        // At 2 kHz the sender needs 0.62, the receiver 0.44 of a processor. Of two, 0.94 are left. An image takes
        // 0.15 ms for join and file and 0.73 ms for the worker: 0.94 / 0.88 ms = 1.07 kHz.
        let request = request("jungfrau-module", 2000.0);
        let sizing = size(&request, &Records::shipped());
        let args = ModelArgs { workers: Some(1), processors: Some(2.0), seconds: 60.0, ..args() };
        let case = as_measured(&request, &sizing, &args, &pipeline()).unwrap();
        assert!((case.expected_loss() - (1.0 - 1.068 / 2.0)).abs() < 0.01, "{} {:?}", case.expected_loss(), case.utilisations());
        assert!((case.outcome.loss() - case.expected_loss()).abs() < 0.02, "{}", case.outcome.loss());
        // With enough of them, the worker's own time is the limit: 1.37 kHz.
        let case = as_measured(&request, &sizing, &ModelArgs { processors: Some(8.0), ..args }, &pipeline()).unwrap();
        assert!((case.expected_loss() - (1.0 - 1.0 / 1.46)).abs() < 1e-9, "{}", case.expected_loss());
    }

    #[test]
    fn measured_times_are_those_of_the_record_scaled_to_the_detector() {
        let pipeline = pipeline();
        let request = request("jungfrau-4m", 1100.0);
        let sizing = size(&request, &Records::shipped());
        let case = as_measured(&request, &sizing, &args(), &pipeline).unwrap();
        let near = |value: f64, wanted: f64| (value / wanted - 1.0).abs() < 1e-9;
        // 8 modules: 8 streams and 8 workers share, the join and the file are one thread each.
        assert!(near(case.model.receive.mean_s, 220e-6) && near(case.model.work.mean_s, 730e-6), "{:?}", case.model);
        assert!(near(case.model.join.mean_s, 160e-6) && near(case.model.write.mean_s, 1040e-6));
        assert!(near(case.model.pauses.every_s, 0.0099) && near(case.model.work.spread_s, 1e-6));
        let (step, most) = case.utilisations().into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
        assert!(step == "write" && near(most, 1.144), "{step} {most}");
        // The file's thread is too slow by 14 %, with no disk behind it.
        let loss = case.outcome.loss();
        assert!(loss > 0.02 && loss < case.expected_loss() + 0.02, "{loss} {}", case.expected_loss());
        assert!(
            as_measured(&Request { detector: *preset("eiger2-4m").unwrap(), ..request }, &sizing, &args(), &pipeline).is_none()
        );
    }
}
