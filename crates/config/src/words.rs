//! The configuration of a run that stores the words of another one.

use super::Config;
use konkordia_core::failure::{Exit, Failure};

/// Tables that say what becomes of the words, or who gets the images.
const NOT_OF_WORDS: [&str; 15] = [
    "processing",
    "frames",
    "calibration",
    "tracking",
    "image_metadata",
    "analysis",
    "indexing",
    "model",
    "veto",
    "stream",
    "writer",
    "alarms",
    "control",
    "travel",
    "part",
];
/// Keys of `[output]` that do not go with words.
const NOT_OF_OUTPUT: [&str; 7] =
    ["keep_raw", "compression_level", "format", "xds", "spool_directory", "spool_gib", "spool_codec"];

/// Detector, source and facts of `config`, with `dtype = "raw"` and without compression. The files are called
/// `PREFIX_raw`.
///
/// # Errors
/// The detector sends no words that can be stored.
pub fn of(config: &Config, frames: Option<u64>) -> Result<Config, Failure> {
    let wrong = |why: String| {
        let what = "the raw frames of this run cannot be written on another host";
        Failure::new(Exit::Configuration, what, why, "remove takes = \"raw\" from [[writer]]")
    };
    let mut root: toml::Table = config.text.parse().map_err(|error: toml::de::Error| wrong(error.to_string()))?;
    root.retain(|name, _| !NOT_OF_WORDS.contains(&name));
    let mut table = |name: &str| match root.entry(name).or_insert_with(|| toml::Table::new().into()) {
        toml::Value::Table(table) => std::mem::take(table),
        _ => toml::Table::new(),
    };
    let (mut detector, mut output, mut processing) = (table("detector"), table("output"), toml::Table::new());
    output.retain(|name, _| !NOT_OF_OUTPUT.contains(&name));
    let text = |text: &str| toml::Value::String(text.into());
    drop(output.insert("compression".into(), text("none")));
    drop(detector.insert("double_pixels".into(), text("keep")));
    drop(processing.insert("dtype".into(), text("raw")));
    for (name, table) in [("detector", detector), ("output", output), ("processing", processing)] {
        drop(root.insert(name.into(), table.into()));
    }
    let text = toml::to_string(&root).map_err(|error| wrong(error.to_string()))?;
    let words = super::parse(&text, &config.directory.join("words.toml")).map_err(|failure| wrong(failure.to_string()))?;
    Ok(Config {
        directory: config.directory.clone(),
        prefix: format!("{}_raw", config.prefix),
        images: frames,
        first_frame: config.first_frame,
        metadata: config.metadata.clone(),
        given: config.given.clone(),
        ..words
    })
}
