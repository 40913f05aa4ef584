//! What the machine does for a detector: threads, memory, disk, packets by module. Looked at only while somebody asks.

use super::extract::{DetectorQuery, Query};
use super::problem::Problem;
use super::state::Shared;
use axum::Json;
use axum::extract::State;
use konkordia_acquire::handle::{Detector, MemoryUse, ModulePackets, SpoolStatus, ThreadLoad, ThreadWatch, memory_use};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use utoipa::ToSchema;

/// Longest time that a request waits for its turn, and for the file system.
const TURN: Duration = Duration::from_secs(10);

/// The machine, as far as it matters for a detector.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Machine {
    /// Processors that the service may use.
    pub cores: usize,
    /// Threads of the service over the last second, the busiest first.
    pub threads: Vec<ThreadLoad>,
    /// Where the files go.
    pub disk: Disk,
    /// Where they are written first, if there is such a place.
    pub spool: Option<SpoolRoom>,
    /// Memory of the service.
    pub memory: MemoryUse,
    /// Packets of the modules in this run, or in the last one; empty where they are not counted by module.
    pub modules: Vec<ModulePackets>,
}

/// The disk of the output folder.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Disk {
    /// The folder; null before the first file if the configuration names none.
    pub directory: Option<String>,
    /// Free space.
    pub free_bytes: Option<u64>,
    /// Bytes of pixels written over the last second.
    pub written_bytes_per_s: Option<f64>,
    /// Seconds until it is full at this rate; null if nothing is written.
    pub left_s: Option<f64>,
}

/// The spool of a detector.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct SpoolRoom {
    /// Its folder.
    pub directory: String,
    /// Bytes in it.
    pub used_bytes: u64,
    /// Most bytes that may lie in it.
    pub limit_bytes: u64,
    /// Seconds until it is full at the present rates; null if it does not fill.
    pub left_s: Option<f64>,
}

/// Threads with their share of the processors, memory, disk and spool and how long they last, packets by module.
#[utoipa::path(get, path = "/api/v1/machine", tag = "state", params(DetectorQuery), responses((status = 200, description = "What is not known is null", body = Machine, example = json!({
    "cores": 32, "threads": [{"name": "rx-0", "group": "receive", "cores": 0.42}],
    "disk": {"directory": "/data", "free_bytes": 4_000_000_000_000u64, "written_bytes_per_s": 330e6, "left_s": 12_121.2}, "spool": null,
    "memory": {"used_bytes": 8_000_000_000u64, "limit_bytes": 64_000_000_000u64},
    "modules": [{"module": 0, "received_packets": 128_000, "lost_packets": 3, "kernel_dropped_packets": 3, "no_slot_packets": 0, "late_packets": 0}]
}))))]
pub async fn machine(State(shared): State<Arc<Shared>>, Query(query): Query<DetectorQuery>) -> Result<Json<Machine>, Problem> {
    let detector = shared.detector(query.detector.as_deref())?;
    let threads = match threads(&shared).await? {
        Some(threads) => threads,
        None => {
            tokio::time::sleep(ThreadWatch::PAUSE).await;
            threads(&shared).await?.unwrap_or_default()
        }
    };
    look(&shared, move || of(&*detector, threads)).await.map(Json)
}

async fn threads(shared: &Shared) -> Result<Option<Vec<ThreadLoad>>, Problem> {
    let watch = Arc::clone(&shared.threads);
    look(shared, move || watch.look()).await
}

fn of(detector: &dyn Detector, threads: Vec<ThreadLoad>) -> Machine {
    let written = detector.statistics().rates.get("written_bytes_per_s").copied();
    let free_bytes = detector.free_bytes();
    let left_s = free_bytes.zip(written.filter(|rate| *rate > 0.0)).map(|(free, rate)| free as f64 / rate);
    let directory = detector.output_folder().map(|folder| folder.display().to_string());
    Machine {
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        threads,
        disk: Disk { directory, free_bytes, written_bytes_per_s: written, left_s },
        spool: detector.status().spool.as_ref().map(|spool| room(spool, written.unwrap_or(0.0))),
        memory: memory_use(),
        modules: detector.modules(),
    }
}

fn room(spool: &SpoolStatus, written_bytes_per_s: f64) -> SpoolRoom {
    let SpoolStatus { directory, used_bytes, limit_bytes, drain_bytes_per_s, .. } = spool;
    let fills = written_bytes_per_s - drain_bytes_per_s.unwrap_or(0.0);
    let left = limit_bytes.saturating_sub(*used_bytes) as f64;
    SpoolRoom {
        directory: directory.clone(),
        used_bytes: *used_bytes,
        limit_bytes: *limit_bytes,
        left_s: (fills > 0.0).then(|| left / fills),
    }
}

/// Does what may have to wait for a disk, on a thread for that. Only few of these wait at once.
///
/// # Errors
/// The disk does not answer.
pub async fn look<T: Send + 'static>(shared: &Shared, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Problem> {
    let busy = || {
        let hint = "look at the file system of the output folder (`df`); a network disk may hang";
        Problem::new("busy", format!("there was no answer within {} s", TURN.as_secs()), hint).retry_after(1)
    };
    let turn = tokio::time::timeout(TURN, Arc::clone(&shared.looks).acquire_owned()).await;
    let turn = turn.map_err(|_| busy())?.map_err(|_| busy())?;
    let looking = tokio::task::spawn_blocking(move || {
        let found = work();
        drop(turn);
        found
    });
    let found = tokio::time::timeout(TURN, looking).await.map_err(|_| busy())?;
    found.map_err(|_| Problem::bug("the service made a mistake with this request"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spool_fills_with_what_does_not_leave_it() {
        let spool = SpoolStatus {
            directory: "/s".into(),
            used_bytes: 400,
            limit_bytes: 1000,
            files_waiting: 1,
            drain_bytes_per_s: Some(10.0),
            problem: None,
        };
        assert_eq!(room(&spool, 40.0).left_s, Some(20.0));
        assert_eq!((room(&spool, 10.0).left_s, room(&spool, 0.0).left_s), (None, None));
        assert_eq!(room(&SpoolStatus { drain_bytes_per_s: None, ..spool }, 60.0).left_s, Some(10.0));
    }
}
