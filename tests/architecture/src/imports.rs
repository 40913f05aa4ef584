//! Who may import whom: the rules, the manifests, and the table in ARCHITECTURE.md.

use crate::text::{code_only, line_of, words};
use crate::{read, root};
use std::collections::{BTreeMap, BTreeSet};

/// Crate -> crates of ours that it imports; names without the prefix `konkordia-`.
pub type Imports = BTreeMap<String, BTreeSet<String>>;

/// The rules: for each crate, those of ours that it may import. `None` for a crate that the rules do not know.
pub fn allowed(krate: &str) -> Option<&'static [&'static str]> {
    Some(match krate {
        "konkordia" => &[
            "acquire",
            "analysis",
            "api",
            "archive",
            "calibration",
            "config",
            "core",
            "doctor",
            "engine",
            "exchange",
            "fabric",
            "gpu",
            "graph",
            "input",
            "join",
            "kernels",
            "links",
            "memory",
            "picture",
            "plugin",
            "repack",
            "sim",
            "sinks",
            "sources",
            "wire",
            "zeromq",
        ],
        "api" => &["acquire", "analysis", "config", "core", "kernels", "picture", "wire"],
        "acquire" => &[
            "analysis",
            "calibration",
            "config",
            "core",
            "doctor",
            "engine",
            "fabric",
            "input",
            "kernels",
            "links",
            "repack",
            "sinks",
            "sources",
            "wire",
        ],
        "python" => &["acquire", "analysis", "calibration", "config", "core", "input", "kernels", "picture", "sinks", "wire"],
        "exchange" => &["core", "input", "kernels", "repack", "sinks", "sources", "wire"],
        "input" => &["analysis", "config", "core", "kernels", "sinks", "wire"],
        "analysis" => &["core", "kernels"],
        "calibration" => &["config", "core", "kernels", "sinks"],
        "plugin" => &["core", "kernels"],
        "repack" => &["analysis", "config", "core", "kernels", "sinks"],
        "engine" => &["core", "gpu", "kernels", "memory", "wire"],
        "fabric" => &["core", "kernels", "wire"],
        "sinks" => &["core", "zeromq"],
        "sources" => &["core", "links", "zeromq"],
        "gpu" => &["core", "memory"],
        "archive" | "config" | "doctor" | "graph" | "join" | "kernels" | "memory" | "picture" | "wire" | "zeromq" => &["core"],
        // A reference must not share the code that it checks; it may use only the types and the special pixel values.
        "sim" => &["core"],
        "core" | "links" => &[],
        _ => return None,
    })
}

/// What the tests of a crate (dev-dependencies) may use beyond [`allowed`]: packets and truth from the simulator, and
/// views of packets; the engine also runs on real sources.
pub fn allowed_in_tests(krate: &str) -> &'static [&'static str] {
    match krate {
        "core" | "sim" => &[],
        "engine" => &["core", "sim", "sources", "wire"],
        // Kernels for GPUs are held against those of the CPU.
        "gpu" => &["analysis", "core", "kernels"],
        _ => &["core", "sim", "wire"],
    }
}

/// Crates of ours that may have an async runtime or HTTP: the server, and the program with its client.
pub const HAVE_HTTP: [&str; 2] = ["api", "konkordia"];

/// Crates that bring an async runtime or HTTP; their names, or the beginnings of them with a hyphen after.
pub const ASYNC_OR_HTTP: &[&str] = &[
    "tokio",
    "async",
    "futures",
    "smol",
    "hyper",
    "axum",
    "tower",
    "tonic",
    "actix",
    "warp",
    "rocket",
    "reqwest",
    "ureq",
    "http",
    "tungstenite",
    "utoipa-axum",
    "tiny_http",
];

/// One `Cargo.toml` of `crates/`, as far as the rules are concerned.
#[derive(Debug, Default, PartialEq)]
pub struct Manifest {
    /// Our own crates among the dependencies and build-dependencies.
    pub ours: BTreeSet<String>,
    /// Our own crates among the dev-dependencies.
    pub ours_in_tests: BTreeSet<String>,
    /// All other crates, in any of the three, by the name of their package.
    pub foreign: BTreeSet<String>,
}

/// Reads the dependencies of a manifest, those for single platforms too. Panics with `name` where the text is not TOML.
pub fn manifest(name: &str, text: &str) -> Manifest {
    let table: toml::Table = text.parse().unwrap_or_else(|why| panic!("{name}: {why}"));
    let mut found = Manifest::default();
    take(&table, &mut found);
    if let Some(targets) = table.get("target").and_then(toml::Value::as_table) {
        targets.values().filter_map(toml::Value::as_table).for_each(|target| take(target, &mut found));
    }
    found
}

fn take(table: &toml::Table, found: &mut Manifest) {
    for (section, in_tests) in [("dependencies", false), ("build-dependencies", false), ("dev-dependencies", true)] {
        let Some(dependencies) = table.get(section).and_then(toml::Value::as_table) else { continue };
        for (key, value) in dependencies {
            let package = value.get("package").and_then(toml::Value::as_str).unwrap_or(key);
            match package.strip_prefix("konkordia-") {
                Some(ours) if in_tests => found.ours_in_tests.insert(ours.to_owned()),
                Some(ours) => found.ours.insert(ours.to_owned()),
                None => found.foreign.insert(package.to_owned()),
            };
        }
    }
}

/// All manifests of `crates/`, by the name of the folder.
pub fn manifests() -> BTreeMap<String, Manifest> {
    let folder = root().join("crates");
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|why| panic!("cannot read {}: {why}", folder.display()));
    entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.join("Cargo.toml").is_file())
        .map(|path| {
            let name = path.file_name().expect("a folder has a name").to_string_lossy().into_owned();
            let found = manifest(&format!("crates/{name}/Cargo.toml"), &read(&path.join("Cargo.toml")));
            (name, found)
        })
        .collect()
}

/// Violations of the rules by a manifest, one sentence each.
pub fn breaches(krate: &str, manifest: &Manifest) -> Vec<String> {
    let Some(allowed) = allowed(krate) else {
        return vec![format!(
            "crates/{krate} is not in the rules of tests/architecture/src/imports.rs; add it there and to ARCHITECTURE.md"
        )];
    };
    let mut found = Vec::new();
    for import in &manifest.ours {
        if !allowed.contains(&import.as_str()) {
            found.push(format!("crates/{krate} imports {import}; it may import {allowed:?} only"));
        }
    }
    let in_tests = allowed_in_tests(krate);
    for import in &manifest.ours_in_tests {
        if !allowed.contains(&import.as_str()) && !in_tests.contains(&import.as_str()) {
            found.push(format!("the tests of crates/{krate} import {import}; they may import {allowed:?} and {in_tests:?} only"));
        }
    }
    for import in &manifest.foreign {
        let known = |name: &&str| import == *name || import.strip_prefix(*name).is_some_and(|rest| rest.starts_with(['-', '_']));
        if !HAVE_HTTP.contains(&krate) && ASYNC_OR_HTTP.iter().any(known) {
            found.push(format!("crates/{krate} depends on {import}; only {HAVE_HTTP:?} may have an async runtime or HTTP"));
        }
    }
    found
}

/// What servers may use of `acquire`: the handle, which is enough for any control server.
const HANDLE: &str = "konkordia_acquire::handle";

/// Uses of `acquire` beyond its handle in a file of a server, each as `path:line: what is wrong`. `path` is relative to
/// the root, with slashes.
pub fn beyond_the_handle(path: &str, source: &str) -> Vec<String> {
    if !path.starts_with("crates/api/") {
        return Vec::new();
    }
    let code = code_only(source);
    let goes_on = |rest: &str| rest.starts_with(|c: char| c.is_alphanumeric() || c == '_');
    let is_handle = |at: &usize| code[*at..].strip_prefix(HANDLE).is_some_and(|rest| !goes_on(rest));
    words(&code, "konkordia_acquire")
        .filter(|at| !is_handle(at))
        .map(|at| format!("{path}:{}: a server uses nothing of acquire but {HANDLE}", line_of(&code, at)))
        .collect()
}

/// The table between `<!-- imports:begin -->` and `<!-- imports:end -->`: `| crate | may import |`, names separated by
/// commas or blanks, `-` or `nothing` for none; backticks are ignored. Errors say what is wrong with the text.
pub fn table(markdown: &str) -> Result<Imports, String> {
    let (_, rest) = markdown.split_once("<!-- imports:begin -->").ok_or("there is no <!-- imports:begin -->")?;
    let (body, _) = rest.split_once("<!-- imports:end -->").ok_or("there is no <!-- imports:end --> after the beginning")?;
    let mut rows = body.lines().map(str::trim).filter(|line| line.starts_with('|'));
    let heading = rows.next().ok_or("there is no table between the markers")?;
    if cells(heading) != ["crate", "may import"] {
        return Err(format!("the heading must be '| crate | may import |', and is '{heading}'"));
    }
    let mut imports = Imports::new();
    for row in rows.filter(|row| !row.chars().all(|c| "|-: ".contains(c))) {
        let [krate, list] = &cells(row)[..] else { return Err(format!("this row does not have two cells: '{row}'")) };
        let names = list.split([',', ' ']).filter(|name| !matches!(*name, "" | "-" | "–" | "nothing"));
        if imports.insert(krate.clone(), names.map(str::to_owned).collect()).is_some() {
            return Err(format!("'{krate}' has two rows"));
        }
    }
    Ok(imports)
}

fn cells(row: &str) -> Vec<String> {
    row.trim_matches('|').split('|').map(|cell| cell.replace('`', "").trim().to_owned()).collect()
}
