//! `konkordia config init --detector`: a configuration with the size, rate, protocol and packing of a detector by name.

use crate::detectors::element;
use crate::size::sizing::short;
use konkordia_sim::presets::{Class, DetectorPreset, Wire};

/// Port of the first stream, as in the example.
const UDP_PORT: u16 = 50010;
/// Longest queue of messages, in images: what waits while the file system pauses.
const QUEUE_IMAGES: u64 = 8;
const QUEUE_MIB: (u64, u64) = (256, 8192);

/// A configuration for `konkordia serve` (and for packets of a JUNGFRAU also for `konkordia receive`).
pub fn configuration(preset: &DetectorPreset) -> String {
    let DetectorPreset { name, description, rows, columns, bits, frame_hz, source, .. } = preset;
    let head = format!(
        "# {name}: {description}. {rows} x {columns} pixels of {bits} bits, {} images per second: {} GB/s.\n\
         # From: {source}.\n\
         # `konkordia config check FILE` checks it, `konkordia size --detector {name}` says what machine it takes; all keys are\n\
         # explained in docs/configuration.md.\n",
        short(*frame_hz),
        short(preset.bytes_per_second() / 1e9),
    );
    head + &match preset.wire {
        Wire::Jungfrau { modules, interfaces } => jungfrau(preset, (modules, interfaces)),
        Wire::Messages { upstreams } => messages(preset, upstreams),
    }
}

fn jungfrau(preset: &DetectorPreset, (modules, interfaces): (u32, u8)) -> String {
    let DetectorPreset { name, frame_hz, .. } = preset;
    let geometry = match modules {
        1 => "jungfrau-500k",
        8 => "jungfrau-4m",
        18 => "jungfrau-9m",
        20 => "jungfrau-10m",
        32 => "jungfrau-16m",
        _ => "stacked",
    };
    let frame_time_us = short(1e6 / frame_hz);
    format!(
        r#"# Without the detector: konkordia simulate jungfrau --preset {name} --to 127.0.0.1:{UDP_PORT}

[detector]
type = "jungfrau"
modules = {modules}
interfaces = {interfaces}
geometry = "{geometry}"
energy_kev = 12.4            # photon energy
frame_time_us = {frame_time_us}

[source]
address = "0.0.0.0"          # address of this machine that the detector sends to; 0.0.0.0 = any
first_port = {UDP_PORT}

# Its words are noise at the end and pack badly. With a calibration they become photons, which pack well: set kind =
# "konkordia" and the file of `konkordia pedestal`, leave dtype out, and take compression = "bslz4".
[calibration]
kind = "none"

[processing]
dtype = "raw"

[output]
directory = "."              # must exist
prefix = "{name}"
compression = "none"
"#
    )
}

fn messages(preset: &DetectorPreset, upstreams: u32) -> String {
    let DetectorPreset { name, rows, columns, frame_hz, .. } = preset;
    // The units of DECTRIS send Stream V2 from this port; everything else at MAX IV sends STINS.
    let (protocol, port) = if name.starts_with("eiger2") { ("stream2", 31001) } else { ("stins", 9999) };
    let addresses: Vec<String> = (0..upstreams as u16).map(|n| format!("\"tcp://127.0.0.1:{}\"", port + n)).collect();
    let to = format!("--protocol {protocol} --to tcp://127.0.0.1:{port}");
    let simulated = if crate::detectors::is_streamed(preset) {
        format!("konkordia stream --preset {name} {to}")
    } else {
        // As wide as the next type that messages have.
        let pieces = if upstreams > 1 { format!(" --upstreams {upstreams} --per-module") } else { String::new() };
        let rows = rows / u64::from(upstreams);
        format!("konkordia stream --shape {rows}x{columns} --dtype uint32{pieces} --rate {} {to}", short(*frame_hz))
    };
    let join = if upstreams > 1 { "join = \"pieces\"            # each sends a piece of every image\n" } else { "" };
    let queue_mib = (preset.image_bytes() * QUEUE_IMAGES).div_ceil(1 << 20).clamp(QUEUE_MIB.0, QUEUE_MIB.1);
    let (why, compression) = match preset.class {
        Class::Counting => (
            "Counted photons pack to a small part, so the sender packs them (bslz4), and they are written as they came.",
            "as-received",
        ),
        Class::Integrating => ("Words with noise pack badly; they are written as they came.", "as-received"),
        Class::Camera => (
            "The noise of a camera fills the low bits: packing costs more time than it saves space. Pack later: konkordia repack.",
            "none",
        ),
    };
    let folder = if name.starts_with("pilatus") {
        "# Its camserver writes CBF files: protocol = \"directory\", folder = \"/ramdisk/images\" and remove = true take them from there.\n"
    } else {
        ""
    };
    // Files have whole bytes.
    let unpack = match element(preset.bits).filter(|element| element.is_packed()) {
        Some(packed) => format!("unpack = \"{}\"           # pixels arrive as {} bits, packed\n", packed.name(), preset.bits),
        None => String::new(),
    };
    let addresses = addresses.join(", ");
    format!(
        r#"# Without the detector: {simulated}

[detector]
type = "stream"

{folder}[source]
protocol = "{protocol}"
upstreams = [{addresses}]   # of the detector, or of its control computer
{join}queue_mib = {queue_mib}              # images that wait; when it is full, the sender waits

# {why}
[transform]
{unpack}compression = "{compression}"

[output]
directory = "."              # must exist
prefix = "{name}"
"#
    )
}
