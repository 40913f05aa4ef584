//! The documents about the interface agree with what it does.

use super::super::{openapi, problem};
use super::images::image;
use super::*;
use crate::metrics;
use konkordia_core::frame_header::ColumnType;
use konkordia_core::latency::{QUANTILES, Stage};
use konkordia_core::results::ResultKind;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn file(path: &str) -> String {
    let path = root().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[tokio::test]
async fn the_committed_description_is_the_served_one() {
    let bench = Bench::new(&["eiger"]);
    let served = bench.get("/api/v1/openapi.json").await;
    assert_eq!(served.text(), openapi::text());
    assert!(file("docs/openapi.json") == openapi::text(), "write it anew: konkordia config openapi > docs/openapi.json");
}

#[test]
fn every_operation_is_described_whole() {
    let document: Value = serde_json::from_str(openapi::text()).unwrap();
    assert_eq!(document["components"]["securitySchemes"]["token"]["scheme"], "bearer");
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let at = format!("{method} {path}");
            assert!(operation["summary"].is_string() && operation["operationId"].is_string(), "{at}");
            for status in ["200", "400", "429", "500", "503"] {
                assert!(operation["responses"][status].is_object(), "{at} {status}");
            }
            if method == "post" {
                assert!(operation["requestBody"]["content"]["application/json"]["example"].is_object(), "{at}");
                // All detectors are drained, so none can be unknown.
                let unknown = ["404"].into_iter().filter(|_| path != "/api/v1/drain");
                for status in ["401", "403", "409", "415", "422"].into_iter().chain(unknown) {
                    assert!(operation["responses"][status].is_object(), "{at} {status}");
                }
            }
        }
    }
    let text = document.to_string();
    let references = text.split("\"$ref\":\"#/").skip(1).map(|rest| rest.split('"').next().unwrap());
    for reference in references {
        assert!(document.pointer(&format!("/{reference}")).is_some(), "{reference}");
    }
}

#[test]
fn the_page_of_the_interface_names_all_paths_and_codes() {
    let page = file("docs/api.md");
    let document: Value = serde_json::from_str(openapi::text()).unwrap();
    for path in document["paths"].as_object().unwrap().keys() {
        let short = path.trim_start_matches("/api/v1/");
        assert!(page.contains(&format!("`{short}`")) || page.contains(&format!("{short}`")), "docs/api.md does not name {path}");
    }
    for (code, status, _) in problem::CODES {
        assert!(
            page.contains(&format!("| `{code}` | {} |", status.as_u16())),
            "docs/api.md does not have {code} {}",
            status.as_u16()
        );
    }
}

#[tokio::test]
async fn metrics_are_exported_under_the_documented_names() {
    let bench = Bench::new(&["eiger"]);
    let glow = ResultKind { name: "glow", number: ColumnType::I64, length: 1, unit: "", meaning: "", counted_by: None };
    let mut results = ImageResults::new([glow].into());
    results.fill()[0] = (-3i64).cast_unsigned();
    bench.fakes[0].show(CommittedImage { results, ..image(4, &[1; 6]) });
    let answer = bench.get("/metrics").await;
    assert!(answer.header("content-type").starts_with("application/openmetrics-text"));
    let text = answer.text();
    assert!(text.ends_with("# EOF\n"));
    let value = |name: &str| {
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).unwrap_or_else(|| panic!("no {name} in\n{text}"))
    };
    assert_eq!(value("konkordia_state{detector=\"eiger\",state=\"idle\"}"), "1.0");
    assert_eq!(value("konkordia_state{detector=\"eiger\",state=\"error\"}"), "0.0");
    assert_eq!(value("konkordia_images_total{detector=\"eiger\",state=\"lost\"}"), "2.0");
    assert_eq!(value("konkordia_packets_total{detector=\"eiger\",verdict=\"placed\"}"), "7.0");
    assert_eq!(value("konkordia_messages_total{detector=\"eiger\",verdict=\"late\"}"), "1.0");
    assert_eq!(value("konkordia_wakeups_total{detector=\"eiger\",thread=\"work-0\"}"), "8.0");
    assert_eq!(value("konkordia_idle_wakeups_total{detector=\"eiger\",thread=\"work-0\"}"), "5.0");
    assert_eq!(value("konkordia_other_total{detector=\"eiger\",name=\"novel\"}"), "4.0");
    assert_eq!(value("konkordia_rate{detector=\"eiger\",name=\"received_hz\"}"), "2000.5");
    assert_eq!(value("konkordia_latency_microseconds{detector=\"eiger\",name=\"written_p99_us\"}"), "5100.0");
    assert_eq!(value("konkordia_latency_images{detector=\"eiger\",stage=\"written\"}"), "30.0");
    let seconds = value("konkordia_latency_seconds{detector=\"eiger\",stage=\"written\",quantile=\"0.99\"}");
    assert_eq!(seconds.parse::<f64>().unwrap(), 5100.0 / 1e6);
    assert_eq!(
        value("konkordia_consumer_skipped_images_total{detector=\"eiger\",consumer=\"preview \\\"1\\\"\",service=\"latest\"}"),
        "2.0"
    );
    assert_eq!(value("konkordia_newest_image{detector=\"eiger\",result=\"glow\"}"), "-3.0");
    assert_eq!(value("konkordia_run_progress_ratio{detector=\"eiger\"}"), "0.5");
    assert!(value("konkordia_output_free_bytes{detector=\"eiger\"}").parse::<f64>().unwrap() > 0.0);
    assert!(value("konkordia_process_resident_memory_bytes").parse::<f64>().unwrap() > 1e6);
    assert!(value("konkordia_process_open_fds").parse::<f64>().unwrap() >= 3.0);
    assert_eq!(value("konkordia_spool_used_bytes{detector=\"eiger\"}"), "3145728.0");
    assert_eq!(value("konkordia_spool_limit_bytes{detector=\"eiger\"}"), "1073741824.0");
    assert_eq!(value("konkordia_spool_files_waiting{detector=\"eiger\"}"), "2.0");
    assert_eq!(value("konkordia_spool_drain_bytes_per_second{detector=\"eiger\"}"), "150000000.0");
    let names: BTreeSet<String> = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split(['{', ' ']).next().unwrap().to_string())
        .collect();
    assert_eq!(names, metrics::names().into_iter().collect(), "each name of the table has a value here, and there are no others");
}

/// Names of our metrics in a text.
fn named(text: &str) -> BTreeSet<String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.match_indices("konkordia_")
        .filter(|(at, _)| !text[..*at].ends_with(is_name))
        .map(|(at, _)| text[at..].split(|c| !is_name(c)).next().unwrap().to_string())
        .collect()
}

#[test]
fn dashboard_rules_and_page_name_metrics_that_are_there() {
    let exported: BTreeSet<String> = metrics::names().into_iter().collect();
    for path in ["deploy/grafana-dashboard.json", "deploy/prometheus-alerts.yml", "docs/monitoring.md"] {
        let used = named(&file(path));
        assert!(used.len() >= 5, "{path}: {used:?}");
        let unknown: Vec<_> = used.difference(&exported).collect();
        assert!(unknown.is_empty(), "{path} names {unknown:?}");
    }
    let page = named(&file("docs/monitoring.md"));
    let missing: Vec<_> = exported.difference(&page).collect();
    assert!(missing.is_empty(), "docs/monitoring.md does not name {missing:?}");
}

#[test]
fn latencies_have_the_names_that_dashboard_and_page_say() {
    let names = |stage: Stage| QUANTILES.map(|(quantile, _)| format!("{}_{quantile}_us", stage.name()));
    let given: BTreeSet<String> = Stage::ALL.into_iter().flat_map(names).collect();
    let page = file("docs/api.md");
    for name in &given {
        assert!(page.contains(&format!("`{name}`")), "docs/api.md does not name {name}");
    }
    for stage in Stage::ALL {
        assert!(page.contains(&format!("`{}_images`", stage.name())), "docs/api.md does not name the images");
    }
    let dashboard = file("deploy/grafana-dashboard.json");
    let used: BTreeSet<String> =
        dashboard.split("name=\\\"").skip(1).filter_map(|rest| rest.split('\\').next()).map(str::to_string).collect();
    let latencies: Vec<_> = used.iter().filter(|name| name.ends_with("_us")).collect();
    assert!(latencies.len() >= 4 && latencies.iter().all(|name| given.contains(*name)), "{used:?}");
}

#[test]
fn the_dashboard_is_one_and_every_alert_says_what_to_do() {
    let dashboard: Value = serde_json::from_str(&file("deploy/grafana-dashboard.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    assert!(panels.len() >= 8);
    for panel in panels.iter().filter(|panel| panel["type"] != "row") {
        let targets = panel["targets"].as_array().unwrap();
        assert!(
            targets.iter().all(|target| target["expr"].as_str().is_some_and(|e| e.contains("konkordia"))),
            "{}",
            panel["title"]
        );
    }
    let rules: Value = serde_saphyr::from_str(&file("deploy/prometheus-alerts.yml")).unwrap();
    let rules = rules["groups"][0]["rules"].as_array().unwrap();
    assert!(rules.len() >= 6);
    for rule in rules {
        for key in ["alert", "expr", "for"] {
            assert!(rule[key].is_string(), "{rule}");
        }
        assert!(rule["annotations"]["summary"].is_string() && rule["annotations"]["description"].is_string(), "{rule}");
        assert!(rule["labels"]["severity"].is_string(), "{rule}");
    }
}
