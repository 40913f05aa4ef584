//! What a driver gets to know about a run: its images, its times, and where the packets or messages are expected.

use crate::control_driver::Order;
use konkordia_config::stream::{Socket, StreamConfig, StreamSource};
use konkordia_config::{Config, plan};
use konkordia_core::experiment::Metadata;
use konkordia_core::plan::FirstFrame;
use konkordia_core::tile::DetectorKind;
use serde_json::{Value, json};

/// The order for a run over UDP.
pub fn of_packets(config: &Config) -> Order {
    let mut order = facts(&config.metadata);
    order.insert("images".into(), config.images.into());
    order.insert("frames".into(), plan::plan(config).frames.into());
    if let FirstFrame::Number(number) = config.first_frame {
        order.insert("first_frame".into(), number.into());
    }
    order.insert("metadata".into(), config.given.clone().into());
    order.insert("packets".into(), packets(config));
    order
}

fn packets(config: &Config) -> Value {
    let (format, ports) = (config.geometry.format(), config.geometry.format().tiles_per_module.max(1) as usize);
    let destination = |stream: usize| {
        let port = config.port(stream);
        json!({ "module": stream / ports, "port_of_module": stream % ports, "address": config.address.to_string(), "port": port })
    };
    let destinations: Vec<_> = (0..config.geometry.placements().len()).map(destination).collect();
    let mut packets = json!({
        "detector": format.kind.name().to_lowercase(),
        "modules": config.modules,
        "bits": format.bits,
        "destinations": destinations,
    });
    let read = format.is_partial().then(|| if format.kind == DetectorKind::Eiger { format.rows } else { format.module_rows() });
    packets["rows"] = read.into();
    if format.remote.is_some() {
        packets["memory"] = plan::remote(format);
    }
    match format.kind {
        DetectorKind::Jungfrau => packets["interfaces"] = format.tiles_per_module.into(),
        DetectorKind::Eiger => packets["ten_giga"] = (!format.is_one_gigabit()).into(),
        _ => {}
    }
    packets
}

/// The order for a series.
pub fn of_stream(config: &StreamConfig, images: Option<u64>, metadata: &Metadata, given: &Order) -> Order {
    let mut order = facts(metadata);
    let sum_frames = u64::from(config.transform.sum_frames.unwrap_or(1));
    order.insert("images".into(), images.into());
    order.insert("frames".into(), images.map(|images| images.saturating_mul(sum_frames)).into());
    order.insert("metadata".into(), given.clone().into());
    let mut stream = json!({ "protocol": config.protocol.name() });
    if let StreamSource::Messages { upstreams, bind, socket } = &config.source {
        stream["upstreams"] = json!(upstreams);
        stream["bind"] = (*bind).into();
        stream["socket"] = if *socket == Socket::Sub { "sub" } else { "pull" }.into();
    }
    order.insert("stream".into(), stream);
    order
}

/// What is known of the measurement; the rest is absent.
fn facts(metadata: &Metadata) -> Order {
    let threshold_kev = metadata.experiment.threshold_energy_ev.map(|ev| ev / 1000.0);
    let known = [
        ("count_time_s", metadata.count_time_s.map(whole_ns)),
        ("frame_time_s", metadata.frame_time_s.map(whole_ns)),
        ("energy_kev", metadata.energy_kev),
        ("threshold_energy_kev", threshold_kev),
    ];
    known.into_iter().filter_map(|(name, value)| Some((name.to_string(), value?.into()))).collect()
}

/// Without what is left of a conversion from microseconds: 0.05 instead of 0.049999999999999996.
fn whole_ns(seconds: f64) -> f64 {
    (seconds * 1e9).round() / 1e9
}
