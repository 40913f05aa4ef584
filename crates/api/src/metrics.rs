//! Metrics for Prometheus in the OpenMetrics text format, made from the snapshots of the detectors at each request.
//!
//! Names and labels are part of the interface. docs/monitoring.md explains them, and a test compares that page, the
//! dashboard and the alert rules in deploy/ with what is exported. The names inside [`DetectorStatistics`] become label
//! values, so that a new counter needs no change here. Totals named `images_STATE`, `packets_VERDICT`,
//! `messages_VERDICT`, `runs_ENDED`, `bytes_STAGE`, `wakeups_THREAD` and `idle_wakeups_THREAD` become families of their
//! own.

use super::http::live::hub::Hub;
use super::http::problem::Problem;
use super::http::state::Shared;
use crate::http::extract::{NoQuery, Query};
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use konkordia_acquire::handle::{Detector, DetectorStatistics, DetectorStatus, PublicState, SpoolStatus, StateWord};
use konkordia_core::latency::QUANTILES;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Ticks per second of the processor times in /proc (USER_HZ): 100 on every Linux.
const TICKS_PER_S: f64 = 100.0;

/// Metrics for Prometheus.
#[utoipa::path(get, path = "/metrics", tag = "monitoring", responses((status = 200, description = "OpenMetrics; docs/monitoring.md lists the names", body = String,
    content_type = "application/openmetrics-text", example = "# HELP konkordia_state ...\nkonkordia_state{detector=\"eiger\",state=\"running\"} 1\n")))]
pub async fn endpoint(State(shared): State<Arc<Shared>>, Query(NoQuery {}): Query<NoQuery>) -> Result<Response, Problem> {
    // Asks the file system for its free space, which can take long.
    let text =
        tokio::task::spawn_blocking(move || text(&shared)).await.map_err(|_| Problem::bug("the metrics could not be made"))?;
    Ok(([(header::CONTENT_TYPE, MEDIA_TYPE)], text).into_response())
}

/// The current metrics as text.
pub fn text(shared: &Shared) -> String {
    let mut registry = Registry::with_prefix("konkordia");
    registry.register_collector(Box::new(Snapshot::new(shared)));
    let mut text = String::new();
    // Writing to a `String` does not fail.
    let _ = prometheus_client::encoding::text::encode(&mut text, &registry);
    text
}

/// Everything that is exported, at one moment.
#[derive(Debug)]
struct Snapshot {
    families: Vec<Family>,
}

/// All values of one name.
#[derive(Debug)]
struct Family {
    name: &'static str,
    help: &'static str,
    kind: Kind,
    values: Vec<(Vec<(&'static str, String)>, f64)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Counter,
    Gauge,
}

impl Kind {
    fn encode(self, value: f64, encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        match self {
            Self::Counter => ConstCounter::new(value).encode(encoder),
            Self::Gauge => ConstGauge::new(value).encode(encoder),
        }
    }
}

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        for family in &self.families {
            let kind = if family.kind == Kind::Counter { MetricType::Counter } else { MetricType::Gauge };
            let mut metrics = encoder.encode_descriptor(family.name, family.help, None, kind)?;
            if let [(labels, value)] = &family.values[..]
                && labels.is_empty()
            {
                family.kind.encode(*value, metrics)?;
                continue;
            }
            for (labels, value) in &family.values {
                family.kind.encode(*value, metrics.encode_family(labels)?)?;
            }
        }
        Ok(())
    }
}

type Labels = Vec<(&'static str, String)>;

/// Families in the order of export. A family is exported even while it has no value.
const FAMILIES: [(&str, Kind, &str); 47] = [
    ("build_info", Kind::Gauge, "Version of the program, always 1"),
    ("uptime_seconds", Kind::Gauge, "Seconds since the service began"),
    ("detectors", Kind::Gauge, "Detectors of the service"),
    ("state", Kind::Gauge, "1 for the state that the detector is in, 0 for the others"),
    ("state_age_seconds", Kind::Gauge, "Seconds since the state changed"),
    ("draining", Kind::Gauge, "1 while the last images of a run are being written"),
    ("alarm", Kind::Gauge, "1 while the alarm is raised, 0 while it is on and not raised"),
    ("run", Kind::Gauge, "Number of the run, 0 before the first"),
    ("run_progress_ratio", Kind::Gauge, "Images in their final state over images expected"),
    ("run_images_expected", Kind::Gauge, "Images that the run is to have"),
    ("run_images_durable", Kind::Gauge, "Images before this position are on the disk and survive a power cut"),
    ("run_raw_frames_durable", Kind::Gauge, "Raw frames before this one are on the disk and survive a power cut"),
    ("spool_used_bytes", Kind::Gauge, "Bytes in the spool"),
    ("spool_limit_bytes", Kind::Gauge, "Most bytes that may lie in the spool"),
    ("spool_files_waiting", Kind::Gauge, "Files in the spool that are still to move"),
    ("spool_drain_bytes_per_second", Kind::Gauge, "Bytes per second that left the spool with the newest file"),
    ("run_images", Kind::Gauge, "Images of the run, by what became of them"),
    ("run_ledger", Kind::Gauge, "Ledger of the run by entry"),
    ("images", Kind::Counter, "Images since the service began, by state"),
    ("analysis_images", Kind::Counter, "Images since the service began, by what became of them at their analysis"),
    ("packets", Kind::Counter, "Packets since the service began, by verdict"),
    ("messages", Kind::Counter, "Messages since the service began, by verdict"),
    ("bytes", Kind::Counter, "Bytes since the service began, by stage"),
    ("runs", Kind::Counter, "Runs since the service began, by how they ended"),
    ("wakeups", Kind::Counter, "Wake-ups of the threads of UDP runs since the service began, by thread"),
    ("idle_wakeups", Kind::Counter, "Those of them that found nothing to do, by thread"),
    ("other", Kind::Counter, "Other counters since the service began, by name"),
    ("rate", Kind::Gauge, "Images or bytes per second over the last second, by name"),
    ("newest_image", Kind::Gauge, "What was computed from the pixels of the newest image, by name"),
    ("queue_fill_ratio", Kind::Gauge, "How full a queue is, 0 to 1"),
    ("latency_microseconds", Kind::Gauge, "Microseconds from reception to a stage, by name"),
    ("latency_seconds", Kind::Gauge, "Time from reception to a stage that a share of the images of the run did not exceed"),
    ("latency_images", Kind::Gauge, "Images of the run that have come to a stage"),
    ("consumer_connected", Kind::Gauge, "1 if the consumer is connected"),
    ("consumer_delivered_images", Kind::Counter, "Images that were handed to the consumer"),
    ("consumer_skipped_images", Kind::Counter, "Images that were skipped for the consumer"),
    ("consumer_lag_images", Kind::Gauge, "Images that wait for the consumer"),
    ("output_free_bytes", Kind::Gauge, "Free space where the detector writes"),
    ("live_viewers", Kind::Gauge, "Live connections that want frames"),
    ("live_looks", Kind::Counter, "How often the newest image was looked for; stands still while nobody wants frames"),
    ("live_frames", Kind::Counter, "Frames that were made, one for all who want the same"),
    ("http_responses", Kind::Counter, "HTTP answers by class of status"),
    ("process_cpu_seconds", Kind::Counter, "Processor time of the process"),
    ("process_resident_memory_bytes", Kind::Gauge, "Memory of the process"),
    ("process_threads", Kind::Gauge, "Threads of the process"),
    ("process_open_fds", Kind::Gauge, "Open files and sockets of the process"),
    ("process_max_fds", Kind::Gauge, "Files and sockets that the process may open"),
];

/// Families of totals, and the label that the rest of their names becomes.
const TOTALS: [(&str, &str); 8] = [
    ("analysis_images", "outcome"),
    ("images", "state"),
    ("packets", "verdict"),
    ("messages", "verdict"),
    ("bytes", "stage"),
    ("runs", "ended"),
    ("wakeups", "thread"),
    ("idle_wakeups", "thread"),
];

/// Names as Prometheus has them, counters with their suffix.
#[cfg(test)]
pub fn names() -> Vec<String> {
    let ending = |kind| if kind == Kind::Counter { "_total" } else { "" };
    FAMILIES.iter().map(|(name, kind, _)| format!("konkordia_{name}{}", ending(*kind))).collect()
}

impl Snapshot {
    fn new(shared: &Shared) -> Self {
        let families = FAMILIES.iter().map(|&(name, kind, help)| Family { name, help, kind, values: Vec::new() }).collect();
        let mut all = Self { families };
        let version = vec![("version", env!("CARGO_PKG_VERSION").to_string()), ("arch", std::env::consts::ARCH.to_string())];
        all.add("build_info", version, 1.0);
        all.add("uptime_seconds", vec![], shared.began.elapsed().as_secs_f64());
        all.add("detectors", vec![], shared.fleet.detectors.len() as f64);
        for (class, count) in ["1xx", "2xx", "3xx", "4xx", "5xx"].into_iter().zip(&shared.answered) {
            all.add("http_responses", vec![("class", class.into())], count.load(Ordering::Relaxed) as f64);
        }
        for (detector, hub) in shared.fleet.detectors.iter().zip(&shared.live) {
            all.add_live(detector.name(), hub);
            all.add_status(&detector.status());
            all.add_statistics(detector.name(), &detector.statistics());
            all.add_disk(&**detector);
            all.add_results(&**detector);
        }
        all.add_process();
        all
    }

    /// Adds a value to a family of the table above.
    fn add(&mut self, name: &str, labels: Labels, value: f64) {
        let family = self.families.iter_mut().find(|family| family.name == name);
        family.expect("the family is in the table").values.push((labels, value));
    }

    fn add_status(&mut self, status: &DetectorStatus) {
        let detector = || ("detector", status.detector.clone());
        let public = PublicState::from(status.state);
        for state in StateWord::ALL {
            let is = f64::from(u8::from(state == public.state));
            self.add("state", vec![detector(), ("state", state.name().into())], is);
        }
        self.add("state_age_seconds", vec![detector()], status.state_age_s);
        self.add("draining", vec![detector()], f64::from(u8::from(public.draining)));
        self.add("run", vec![detector()], status.run as f64);
        for alarm in &status.alarms {
            self.add("alarm", vec![detector(), ("alarm", alarm.name.clone())], f64::from(u8::from(alarm.raised)));
        }
        let count = |n: Option<u64>| n.map(|n| n as f64);
        let spool = |value: fn(&SpoolStatus) -> f64| status.spool.as_ref().map(value);
        let known = [
            ("run_progress_ratio", status.progress),
            ("run_images_expected", count(status.images_expected)),
            ("run_images_durable", count(status.images_durable)),
            ("run_raw_frames_durable", count(status.raw_frames_durable)),
            ("spool_used_bytes", spool(|spool| spool.used_bytes as f64)),
            ("spool_limit_bytes", spool(|spool| spool.limit_bytes as f64)),
            ("spool_files_waiting", spool(|spool| spool.files_waiting as f64)),
            ("spool_drain_bytes_per_second", status.spool.as_ref().and_then(|spool| spool.drain_bytes_per_s)),
        ];
        for (name, value) in known {
            if let Some(value) = value {
                self.add(name, vec![detector()], value);
            }
        }
        let images = [
            ("committed", status.images_committed),
            ("written", status.images_written),
            ("unwritten", status.images_unwritten),
            ("lost", status.images_lost),
            ("partial", status.images_partial),
            ("not_taken", status.images_not_taken),
            ("not_received", status.images_not_received),
        ];
        for (kind, count) in images {
            self.add("run_images", vec![detector(), ("kind", kind.into())], count as f64);
        }
    }

    fn add_statistics(&mut self, detector: &str, statistics: &DetectorStatistics) {
        let with = |label: &'static str, value: &str| vec![("detector", detector.to_string()), (label, value.to_string())];
        for (entry, count) in &statistics.ledger {
            self.add("run_ledger", with("entry", entry), *count as f64);
        }
        for (name, count) in &statistics.totals {
            let family = TOTALS.iter().find_map(|(family, label)| {
                let value = name.strip_prefix(family)?.strip_prefix('_')?;
                Some((*family, *label, value))
            });
            let (family, label, value) = family.unwrap_or(("other", "name", name.as_str()));
            self.add(family, with(label, value), *count as f64);
        }
        let maps = [("rate", "name", &statistics.rates), ("queue_fill_ratio", "queue", &statistics.queues)];
        for (family, label, map) in maps {
            for (name, value) in map {
                self.add(family, with(label, name), *value);
            }
        }
        for (name, value) in &statistics.latency {
            self.add_latency(detector, name, *value);
        }
        for consumer in &statistics.consumers {
            let labels = || {
                vec![
                    ("detector", detector.to_string()),
                    ("consumer", consumer.name.clone()),
                    ("service", consumer.service.clone()),
                ]
            };
            self.add("consumer_connected", labels(), f64::from(u8::from(consumer.connected)));
            self.add("consumer_delivered_images", labels(), consumer.delivered as f64);
            self.add("consumer_skipped_images", labels(), consumer.skipped as f64);
            self.add("consumer_lag_images", labels(), consumer.lag_images as f64);
        }
    }

    /// A latency by the name that it has in the statistics.
    fn add_latency(&mut self, detector: &str, name: &str, value: f64) {
        let with = |label: &'static str, value: &str| (label, value.to_string());
        let detector = || with("detector", detector);
        let Some((stage, what)) = name.split_once('_') else { return };
        if what == "images" {
            return self.add("latency_images", vec![detector(), with("stage", stage)], value);
        }
        self.add("latency_microseconds", vec![detector(), with("name", name)], value);
        let quantile = QUANTILES.iter().find(|(quantile, _)| what.strip_suffix("_us") == Some(*quantile));
        if let Some((_, share)) = quantile {
            self.add("latency_seconds", vec![detector(), with("stage", stage), with("quantile", share)], value / 1e6);
        }
    }

    /// The results of the newest image that are single numbers.
    fn add_results(&mut self, detector: &dyn Detector) {
        let Some(results) = detector.images().newest_results() else { return };
        for (kind, bits) in results.iter().filter(|(kind, _)| kind.is_single()) {
            let value = kind.number.number(bits[0]).to_f64();
            let labels = vec![("detector", detector.name().to_owned()), ("result", kind.name.to_owned())];
            self.add("newest_image", labels, value);
        }
    }

    fn add_live(&mut self, detector: &str, hub: &Hub) {
        let labels = || vec![("detector", detector.to_owned())];
        self.add("live_viewers", labels(), hub.viewers() as f64);
        self.add("live_looks", labels(), hub.looks.load(Ordering::Relaxed) as f64);
        self.add("live_frames", labels(), hub.frames_made.load(Ordering::Relaxed) as f64);
    }

    fn add_disk(&mut self, detector: &dyn Detector) {
        if let Some(free) = detector.free_bytes() {
            self.add("output_free_bytes", vec![("detector", detector.name().into())], free as f64);
        }
    }

    /// What the system reports about this process; missing values are left out.
    fn add_process(&mut self) {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let number = |text: &str, key: &str| -> Option<f64> {
            let line = text.lines().find_map(|line| line.strip_prefix(key))?;
            line.split_whitespace().next()?.parse().ok()
        };
        let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let open = std::fs::read_dir("/proc/self/fd").ok().map(|files| files.count() as f64);
        let values = [
            ("process_cpu_seconds", processor_s(&stat)),
            ("process_resident_memory_bytes", number(&status, "VmRSS:").map(|kib| kib * 1024.0)),
            ("process_threads", number(&status, "Threads:")),
            ("process_open_fds", open),
            ("process_max_fds", number(&limits, "Max open files")),
        ];
        for (name, value) in values {
            if let Some(value) = value {
                self.add(name, vec![], value);
            }
        }
    }
}

/// Time in user and system mode, of all threads, in seconds.
fn processor_s(stat: &str) -> Option<f64> {
    // The name of the program, in parentheses, may contain blanks.
    let after = &stat[stat.rfind(')')? + 1..];
    let mut fields = after.split_whitespace().skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some((user + system) / TICKS_PER_S)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_read_behind_any_name() {
        let stat = "17 (a ) b) S 1 17 17 0 -1 4194304 100 0 0 0 250 150 0 0 20 0 1 0 1 1 1";
        assert_eq!(processor_s(stat), Some(4.0));
        assert_eq!(processor_s(""), None);
    }

    #[test]
    fn names_are_unique_and_have_their_unit_last() {
        let names = names();
        for (index, name) in names.iter().enumerate() {
            assert!(!names[..index].contains(name), "{name}");
        }
    }
}
