//! `[detector] type = "stream"`: whole images that arrive as messages or as files.

use super::diagnostics::Diagnostics;
use super::facts::{check_vectors, facts, is_fact};
use super::gpu;
use super::image_metadata::{self, ImageMetadataKeys};
use super::live_analysis::{self, LiveAnalysis};
use super::read::{Document, Table};
use super::shared_keys::{
    check_prefix, layout, missing, overwrite, quarter_turns, required, resolve, start_timeout_ns, sync_interval,
};
use super::spool::Spool;
use super::transform::{self, TransformOptions};
use konkordia_core::experiment::Metadata;
use konkordia_core::geometry::Placement;
use konkordia_core::ledger::MissingPolicy;
use konkordia_core::order::PARTS_MAX;
use konkordia_core::output::{Layout, Overwrite};
use konkordia_core::protocol::Protocol;
use konkordia_core::series::{Accept, Positions};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// ZeroMQ pattern of the sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Socket {
    /// Each message goes to one receiver.
    Pull,
    /// Every receiver gets every message; one that is too slow loses messages.
    Sub,
}

/// Where whole images come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamSource {
    /// Messages.
    Messages {
        /// Addresses, checked.
        upstreams: Vec<String>,
        /// Listen instead of connecting.
        bind: bool,
        /// ZeroMQ pattern.
        socket: Socket,
    },
    /// Files in a folder.
    Folder {
        /// Folder in which they appear.
        folder: PathBuf,
        /// Ends of their names.
        suffixes: Vec<String>,
        /// Remove files that were read.
        remove: bool,
        /// Time without a change of a file after which it is read.
        settle_ms: u64,
        /// Time between two searches of the folder.
        poll_ms: u64,
    },
}

/// One module per upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Modules {
    /// Place of each part in the image.
    pub placements: Vec<Placement>,
    /// Rows of the image.
    pub rows: u32,
    /// Columns of the image.
    pub columns: u32,
    /// Pixels that each part lacks between its chips; they are put in, masked.
    pub chip_gaps_px: Vec<u32>,
}

/// The checked configuration of a stream detector.
#[derive(Clone, Debug)]
pub struct StreamConfig {
    /// Text of the configuration, which is stored in the data file.
    pub text: String,
    /// Format of the messages.
    pub protocol: Protocol,
    /// Where the images come from.
    pub source: StreamSource,
    /// Analysis of the images, if wanted.
    pub analysis: Option<LiveAnalysis>,
    /// What each image gets beside its pixels.
    pub image_metadata: ImageMetadataKeys,
    /// Placement of the parts of an image, with `join = "modules"`.
    pub modules: Option<Modules>,
    /// Every upstream sends a piece of every image (`join = "pieces"`).
    pub pieces: bool,
    /// What decides the position of an image in its series.
    pub positions: Positions,
    /// When a series may begin.
    pub accept: Accept,
    /// Number of images that may be ahead of the oldest incomplete one.
    pub window_images: u64,
    /// Longest wait for a missing image or part within a series.
    pub wait_ns: u64,
    /// Longest wait for late messages at the end of a series.
    pub drain_ns: u64,
    /// Time without messages that ends a series.
    pub stall_timeout_ns: u64,
    /// Longest time from `start` to the first image; `u64::MAX` = no limit.
    pub start_timeout_ns: u64,
    /// In-flight budget: bytes of messages that may be in memory.
    pub budget_bytes: u64,
    /// Largest accepted message in bytes.
    pub message_bytes_max: u64,
    /// Images are decompressed at reception, to check that this is possible.
    pub check_pixels: bool,
    /// What to do with incomplete images.
    pub missing: MissingPolicy,
    /// Threads that change images; `None` = one less than there are processors, at least 1.
    pub workers: Option<usize>,
    /// Changes to the images.
    pub transform: TransformOptions,
    /// Metadata for the file, where the stream has none.
    pub metadata: Metadata,
    /// Output folder, resolved.
    pub directory: PathBuf,
    /// First part of the file names, where neither command nor header gives one.
    pub prefix: String,
    /// Images in one data file.
    pub images_per_file: u32,
    /// Where files are written before they move to the output folder, if not there at once.
    pub spool: Option<Spool>,
    /// How often data of open files are flushed to the disk; `None` = only when a file is closed.
    pub sync_interval: Option<Duration>,
    /// What to do with existing files.
    pub overwrite: Overwrite,
    /// How the master refers to the images.
    pub layout: Layout,
    /// Whether XDS is to read the files; `None` = not configured.
    pub xds: Option<bool>,
    /// Name of the data set in the layout of MAX IV, which is then written instead of NeXus.
    pub append_dataset: Option<String>,
    /// Images to take; `None` = as many as the sender announces.
    pub images: Option<u64>,
}

/// Keys that a stream may have besides metadata keys, by table. The tables of the service are checked elsewhere.
const KEYS: &[(&str, &[&str])] = &[
    ("detector", &["type", "shapes_file"]),
    ("processing", &["missing", "workers"]),
    (
        "output",
        &[
            "directory",
            "prefix",
            "images_per_file",
            "sync_interval_s",
            "spool_directory",
            "spool_gib",
            "overwrite",
            "layout",
            "xds",
            "write",
            "create_folders",
            "format",
            "dset_name",
        ],
    ),
    ("run", &["images", "start_timeout_s", "stall_timeout_s"]),
];
/// Keys of `[source]` for UDP.
const UDP_SOURCE: [&str; 11] = [
    "kind",
    "address",
    "first_port",
    "receive_buffer_mib",
    "receive",
    "senders",
    "queue_pair",
    "memory_key",
    "memory_address",
    "pages",
    "path_mtu",
];
const FOLDER_SOURCE: [&str; 5] = ["folder", "suffixes", "remove", "settle_ms", "poll_ms"];
const MESSAGE_SOURCE: [&str; 7] = ["upstreams", "bind", "socket", "join", "positions", "image_rows", "image_columns"];

/// Reports keys of streams in the configuration of a UDP detector.
pub fn refuse_in_packets(document: &Document, d: &mut Diagnostics) {
    let fix = "remove it, or set detector.type = \"stream\"";
    for name in document.table("source").names().filter(|name| !UDP_SOURCE.contains(name)) {
        let span = document.table("source").span(name);
        d.add(span, format!("source.{name} is for streams"), "this detector sends packets", fix);
    }
    for (table, span) in [
        ("[transform]", document.table("transform").span.clone()),
        ("[[source.module]]", document.array("source.module").first().and_then(|m| m.span.clone())),
        ("output.format", document.table("output").span("format")),
        ("output.dset_name", document.table("output").span("dset_name")),
    ] {
        if span.is_some() {
            d.add(span, format!("{table} is for streams"), "this detector sends packets", fix);
        }
    }
}

/// Reports tables and keys that a stream cannot have.
fn refuse_others(document: &Document, d: &mut Diagnostics) {
    for (table, values) in document.tables() {
        let allowed = match KEYS.iter().find(|(name, _)| *name == table) {
            Some((_, keys)) => *keys,
            None if ["calibration", "frames", "tracking", "part", "travel"].contains(&table) => {
                let why = "it is for packets of a JUNGFRAU or EIGER; a stream sends whole images";
                d.add(values.span.clone(), format!("[{table}] with type = \"stream\""), why, "remove the table");
                continue;
            }
            None => continue,
        };
        for name in values.names().filter(|name| !allowed.contains(name) && !is_fact(table, name)) {
            let why = "it is for packets; a stream sends whole images";
            d.add(values.span(name), format!("{table}.{name} with type = \"stream\""), why, "remove the line");
        }
    }
    if let Some(tile) = document.array("detector.tile").first() {
        let fix = "write [[source.module]], and join = \"modules\" in [source]";
        d.add(tile.span.clone(), "[[detector.tile]] with type = \"stream\"", "tiles are made of packets", fix);
    }
}

/// Checks `document`. `file` names it; relative paths start at its folder.
pub fn read(document: &Document, d: &mut Diagnostics, file: &Path, text: &str) -> Option<StreamConfig> {
    refuse_others(document, d);
    super::recipe::refuse_in_runs(document, d);
    let (source, output, run) = (document.table("source"), document.table("output"), document.table("run"));
    let directory = required(document, d, "output", "directory");
    let prefix = required(document, d, "output", "prefix");
    check_prefix(output, d);
    check_vectors(document, d);
    let protocol = Protocol::of_source(&required(document, d, "source", "protocol")?)?;
    let origin = if protocol == Protocol::Files { folder(document, d, file) } else { messages(document, d) };
    let modules = modules(document, d, origin.as_ref());
    let mut transform = transform::read(document, d, &|path| resolve(file, path));
    let append_dataset = append_dataset(output, d);
    if append_dataset.is_some() && protocol == Protocol::DectrisV1 {
        // As the receiver of MAX IV does: turn images as their header asks, and compress images again that arrived
        // compressed.
        transform.keeps_packing |= !transform.changes_pixels();
        transform.turn_as_asked = true;
    }
    gpu::refuse_in_streams(document, d);
    let positions = match source.text("positions") {
        Some("message") => Positions::Messages,
        Some(_) => Positions::Frames,
        None if append_dataset.is_some() => Positions::Messages,
        None => Positions::Frames,
    };
    let ms = |key: &str, otherwise: i64| source.integer(key).unwrap_or(otherwise) as u64 * 1_000_000;
    let mib = |key: &str, otherwise: i64| (source.integer(key).unwrap_or(otherwise) as u64) << 20;
    let directory = resolve(file, &directory?);
    let spool = super::spool::read(output, d, &|path| resolve(file, path), &directory, None);
    Some(StreamConfig {
        text: text.to_string(),
        protocol,
        source: origin?,
        image_metadata: image_metadata::read(document, d, true),
        analysis: live_analysis::read(document, d, false, &|path| resolve(file, path)),
        modules,
        pieces: source.text("join") == Some("pieces"),
        positions,
        accept: if source.text("accept") == Some("armed") { Accept::WhenArmed } else { Accept::Always },
        window_images: source.integer("window_images").unwrap_or(1024) as u64,
        wait_ns: ms("wait_ms", 2000),
        drain_ns: ms("drain_ms", 1000),
        stall_timeout_ns: (run.number("stall_timeout_s").unwrap_or(60.0) * 1e9) as u64,
        start_timeout_ns: start_timeout_ns(run),
        budget_bytes: mib("queue_mib", 256),
        message_bytes_max: mib("message_mib", 1024),
        check_pixels: source.flag("check_pixels").unwrap_or(false),
        missing: missing(document.table("processing")),
        workers: document.table("processing").integer("workers").map(|n| n as usize),
        transform,
        metadata: facts(document),
        directory,
        spool,
        prefix: prefix?,
        images_per_file: output.integer("images_per_file").unwrap_or(1000) as u32,
        sync_interval: sync_interval(output),
        overwrite: overwrite(output),
        layout: layout(output),
        xds: super::xds_key::of_stream(output, d),
        append_dataset,
        images: run.integer("images").map(|n| n as u64),
    })
}

/// `output.format` and `output.dset_name`.
fn append_dataset(output: &Table, d: &mut Diagnostics) -> Option<String> {
    let name = output.text("dset_name").unwrap_or("/entry/instrument/detector/data");
    if output.text("format") != Some("maxiv") {
        if output.has("dset_name") {
            let fix = "add format = \"maxiv\", or remove the line";
            d.add(output.span("dset_name"), "output.dset_name without format = \"maxiv\"", "NeXus files have a fixed path", fix);
        }
        return None;
    }
    let parts: Vec<&str> = name.trim_start_matches('/').split('/').collect();
    if parts.len() < 2 || parts.iter().any(|part| part.is_empty() || *part == "." || *part == "..") {
        let what = format!("output.dset_name: \"{name}\" is not the path of a data set in a group");
        d.add(output.span("dset_name"), what, "", "give a name such as \"/entry/instrument/eiger/data\"");
    }
    Some(name.to_string())
}

fn refuse_keys(t: &Table, d: &mut Diagnostics, keys: &[&str], protocol: &str) {
    for key in keys.iter().filter(|key| t.has(key)) {
        d.add(
            t.span(key),
            format!("source.{key} with protocol = \"{protocol}\""),
            "",
            "remove the line, or correct the protocol",
        );
    }
}

fn messages(document: &Document, d: &mut Diagnostics) -> Option<StreamSource> {
    let t = document.table("source");
    let protocol = t.text("protocol").unwrap_or_default();
    refuse_keys(t, d, &UDP_SOURCE[1..], protocol);
    refuse_keys(t, d, &FOLDER_SOURCE, protocol);
    let upstreams = t.texts("upstreams");
    if upstreams.is_empty() {
        if !t.has("upstreams") || !d.found.iter().any(|f| f.what.starts_with("source.upstreams:")) {
            let fix = "add upstreams = [\"tcp://HOST:PORT\"], one address for each sender";
            d.add(t.span.clone(), "[source] has no 'upstreams'", "", fix);
        }
        return None;
    }
    for address in &upstreams {
        if let Err(why) = konkordia_core::endpoint::check(address) {
            d.add(t.span("upstreams"), format!("source.upstreams: {why}"), "", "correct the address");
        }
    }
    if upstreams.len() > PARTS_MAX as usize {
        let what = format!("source.upstreams: {} addresses; a stream has at most {PARTS_MAX} upstreams", upstreams.len());
        let fix = "join some of them before, for example the ports of a module in one receiver";
        d.add(t.span("upstreams"), what, "each part of an image has a bit in one word of 64 bits", fix);
    }
    let socket = if t.text("socket") == Some("sub") { Socket::Sub } else { Socket::Pull };
    Some(StreamSource::Messages { upstreams, bind: t.flag("bind").unwrap_or(false), socket })
}

fn folder(document: &Document, d: &mut Diagnostics, file: &Path) -> Option<StreamSource> {
    let t = document.table("source");
    refuse_keys(t, d, &UDP_SOURCE[1..], "directory");
    refuse_keys(t, d, &MESSAGE_SOURCE, "directory");
    let folder = required(document, d, "source", "folder")?;
    let mut suffixes: Vec<String> = t.texts("suffixes").iter().map(|s| s.trim_start_matches('.').to_string()).collect();
    if suffixes.is_empty() {
        suffixes = ["cbf", "tif", "tiff", "edf"].map(str::to_string).to_vec();
    }
    Some(StreamSource::Folder {
        folder: resolve(file, &folder),
        suffixes,
        remove: t.flag("remove").unwrap_or(false),
        settle_ms: t.integer("settle_ms").unwrap_or(500) as u64,
        poll_ms: t.integer("poll_ms").unwrap_or(500) as u64,
    })
}

fn modules(document: &Document, d: &mut Diagnostics, source: Option<&StreamSource>) -> Option<Modules> {
    let (t, list) = (document.table("source"), document.array("source.module"));
    if t.text("join") != Some("modules") {
        if let Some(first) = list.first() {
            let fix = "add join = \"modules\" to [source], or remove every [[source.module]]";
            d.add(first.span.clone(), "[[source.module]] without join = \"modules\"", "", fix);
        }
        return None;
    }
    let upstreams = match source {
        Some(StreamSource::Messages { upstreams, .. }) => upstreams.len(),
        _ => list.len(),
    };
    if list.len() != upstreams || list.is_empty() {
        let what = format!("{} modules are placed, but there are {upstreams} upstreams", list.len());
        let fix = "give one [[source.module]] with row and column for each upstream, in the order of upstreams";
        d.add(list.last().and_then(|t| t.span.clone()).or_else(|| t.span("join")), what, "", fix);
        return None;
    }
    let placements = list.iter().map(|module| module_place(module, d)).collect::<Option<Vec<_>>>()?;
    let mut size = |key: &str| {
        if !t.has(key) {
            let what = format!("[source] has no '{key}', which join = \"modules\" needs");
            d.add(
                t.span("join"),
                what,
                "module sizes are known only from their first messages",
                format!("add {key} = ..., of the whole image"),
            );
        }
        t.integer(key).map(|n| n as u32)
    };
    let (rows, columns) = (size("image_rows"), size("image_columns"));
    let chip_gaps_px = list.iter().map(|module| module.integer("chip_gap_px").unwrap_or(0) as u32).collect();
    Some(Modules { placements, rows: rows?, columns: columns?, chip_gaps_px })
}

fn module_place(module: &Table, d: &mut Diagnostics) -> Option<Placement> {
    let orientation = quarter_turns(module, d, "source.module")?;
    Some(Placement { row: module.integer("row")? as u32, column: module.integer("column")? as u32, orientation })
}

/// The file name that is used if neither header nor command gives one.
fn file_of(config: &StreamConfig) -> PathBuf {
    let ending = if config.append_dataset.is_some() { ".h5" } else { "_master.h5" };
    config.directory.join(format!("{}{ending}", config.prefix))
}

/// The configuration in words.
pub fn describe(config: &StreamConfig) -> String {
    let from = match &config.source {
        StreamSource::Messages { upstreams, bind, .. } => {
            format!("{} {}", if *bind { "listens on" } else { "connects to" }, upstreams.join(", "))
        }
        StreamSource::Folder { folder, suffixes, .. } => format!("{} (.{})", folder.display(), suffixes.join(", .")),
    };
    let join = match &config.modules {
        Some(modules) => format!("{} modules make an image", modules.placements.len()),
        None if config.pieces => "each upstream sends a piece of every image".into(),
        None => "one image per message".into(),
    };
    let rows = [
        ("detector", "stream".to_string()),
        ("protocol", config.protocol.name().to_string()),
        ("from", from),
        ("images", config.images.map_or("as the sender announces".into(), konkordia_core::text::count)),
        ("joined", join),
        ("series", if config.accept == Accept::Always { "all are taken" } else { "one after each arm" }.to_string()),
        ("changes", config.transform.describe()),
        ("file", file_of(config).display().to_string()),
        (
            "memory",
            format!("{} of messages, window {} images", konkordia_core::text::bytes(config.budget_bytes), config.window_images),
        ),
    ];
    rows.iter().map(|(name, value)| format!("  {name:<12} {value}")).collect::<Vec<_>>().join("\n")
}

/// The configuration as JSON.
pub fn to_json(config: &StreamConfig) -> serde_json::Value {
    let from = match &config.source {
        StreamSource::Messages { upstreams, .. } => upstreams.clone(),
        StreamSource::Folder { folder, .. } => vec![folder.display().to_string()],
    };
    serde_json::json!({
        "detector": "stream", "protocol": config.protocol.name(), "upstreams": from,
        "accept": if config.accept == Accept::Always { "always" } else { "armed" },
        "modules": config.modules.as_ref().map(|m| m.placements.len()), "images": config.images, "images_per_file": config.images_per_file,
        "frames_per_image": config.transform.sum_frames.unwrap_or(1),
        "window_images": config.window_images, "queue_bytes": config.budget_bytes, "transform": config.transform.describe(),
        "images_per_file": config.images_per_file, "master": file_of(config), "pieces": config.pieces, "dset_name": config.append_dataset,
    })
}
