//! The options of `stream`, `record` and `replay`.

use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// `--protocol`
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ProtocolChoice {
    /// STINS, the streams of MAX IV
    Stins,
    /// DECTRIS Stream V1
    Stream1,
    /// DECTRIS Stream V2
    Stream2,
    /// The slsReceiver's JSON
    Sls,
}

/// `--compression`
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CompressionChoice {
    /// Uncompressed pixels
    None,
    /// Bitshuffle and LZ4
    Bslz4,
    /// LZ4
    Lz4,
}

/// `--content`
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ContentChoice {
    /// Every pixel is 1
    Constant,
    /// Random bits, which no compression makes smaller
    Noise,
    /// Few photons, evenly spread
    Poisson,
    /// Rings and spots
    Diffraction,
}

/// `--header-detail`
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DetailChoice {
    /// Only that a series begins
    None,
    /// The settings of the detector
    Basic,
    /// Also flat field, pixel mask and count rate table
    All,
}

/// `--kind` of sockets that send
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SendKind {
    /// PUSH socket: every message goes to one receiver
    Push,
    /// PUB socket: every message goes to every subscriber
    Pub,
}

/// `--kind` of sockets that receive
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReceiveKind {
    /// PULL socket, for senders with PUSH
    Pull,
    /// SUB socket, for senders with PUB
    Sub,
}

/// Where messages are sent, and how long to wait for a receiver.
#[derive(Clone, Debug, Args)]
pub struct ToArgs {
    /// Where to send: tcp://HOST:PORT or ipc://PATH, one per upstream; further upstreams use the ports that follow
    #[arg(long, value_name = "URL", num_args = 1.., help_heading = "Where to")]
    pub to: Vec<String>,
    /// Listen on these addresses, as detectors do (the default)
    #[arg(long, help_heading = "Where to")]
    pub bind: bool,
    /// Connect to a receiver that listens
    #[arg(long, conflicts_with = "bind", help_heading = "Where to")]
    pub connect: bool,
    /// Kind of the ZeroMQ sockets [default: push; pub for sls]
    #[arg(long, value_enum, help_heading = "Where to")]
    pub kind: Option<SendKind>,
    /// How long to wait for a receiver, in seconds
    #[arg(long, value_name = "S", default_value_t = 30.0, value_parser = seconds, help_heading = "Where to")]
    pub wait: f64,
}

/// `konkordia stream`
#[derive(Clone, Debug, Args)]
pub struct StreamArgs {
    /// Protocol of the messages
    #[arg(long, value_enum, default_value_t = ProtocolChoice::Stins, help_heading = "What to send")]
    pub protocol: ProtocolChoice,
    /// Size of an uncompressed image in bytes: 20000, 20k, 2M, 20M
    #[arg(long, value_name = "BYTES", value_parser = bytes, conflicts_with = "shape", help_heading = "What to send")]
    pub size: Option<u64>,
    /// Shape of an image, slowest dimension first [default: 512x1024]
    #[arg(long, value_name = "RxC", value_parser = shape, help_heading = "What to send")]
    pub shape: Option<konkordia_core::array::Shape>,
    /// Type of the pixels: uint8, uint16, uint32, int16, int32, float32, ...
    #[arg(long, value_name = "TYPE", default_value = "uint16", value_parser = element, help_heading = "What to send")]
    pub dtype: konkordia_core::array::Element,
    /// A detector by name: its shape, type of pixels, upstreams and rate; `konkordia size --list` shows the names
    #[arg(
        long,
        value_name = "NAME",
        help_heading = "What to send",
        conflicts_with_all = ["size", "shape", "dtype", "channels", "upstreams", "per_module"]
    )]
    pub preset: Option<String>,
    /// Images per second; 0 = as fast as possible [default: that of --preset, otherwise 0]
    #[arg(long, value_name = "HZ", value_parser = seconds, help_heading = "What to send")]
    pub rate: Option<f64>,
    /// Number of images of each series
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=1 << 40), help_heading = "What to send")]
    pub images: u64,
    /// Compression of the pixels
    #[arg(long, value_enum, default_value_t = CompressionChoice::None, help_heading = "What to send")]
    pub compression: CompressionChoice,
    /// Content of the images
    #[arg(long, value_enum, default_value_t = ContentChoice::Poisson, help_heading = "What to send")]
    pub content: ContentChoice,
    /// Number of different images; they are sent in a loop
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=1000), help_heading = "What to send")]
    pub pool: u64,
    /// Number of channels of an image (only stream2)
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=16), help_heading = "What to send")]
    pub channels: u64,
    /// Seed of everything random
    #[arg(long, value_name = "S", default_value_t = 1, help_heading = "What to send")]
    pub seed: u64,
    /// Number of series to send, one after the other
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..), help_heading = "Series")]
    pub series: u64,
    /// Number of the first series
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Series")]
    pub first_series: u64,
    /// Time between the end of a series and the start of the next, in seconds
    #[arg(long, value_name = "S", default_value_t = 0.0, value_parser = seconds, help_heading = "Series")]
    pub pause: f64,
    /// File name in the header of a series; {} stands for the number of the series
    #[arg(long, value_name = "NAME", help_heading = "Series")]
    pub filename: Option<String>,
    /// Amount of information in the header
    #[arg(long, value_enum, default_value_t = DetailChoice::Basic, help_heading = "Series")]
    pub header_detail: DetailChoice,
    /// Do not send the message that ends a series
    #[arg(long, help_heading = "Series")]
    pub no_end: bool,
    /// Number of sockets; they send images in turn, or each sends its module of every image (--per-module)
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=64), help_heading = "Upstreams")]
    pub upstreams: u64,
    /// Every upstream is a module of the given size, and sends its part of every image
    #[arg(long, help_heading = "Upstreams")]
    pub per_module: bool,
    /// Send the images out of order, each less than 16 places from its own
    #[arg(long, value_name = "SEED", help_heading = "Upstreams")]
    pub shuffle: Option<u64>,
    /// Where messages are sent.
    #[command(flatten)]
    pub to: ToArgs,
    /// For programs: write what was sent as JSON to stdout
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// No progress
    #[arg(long, short, help_heading = "Output")]
    pub quiet: bool,
}

impl StreamArgs {
    /// Images per second; 0 = as fast as possible.
    pub fn rate_hz(&self) -> f64 {
        self.rate.unwrap_or(0.0)
    }
}

/// `konkordia record`
#[derive(Clone, Debug, Args)]
pub struct RecordArgs {
    /// Where the messages come from: tcp://HOST:PORT or ipc://PATH
    #[arg(required = true, value_name = "URL")]
    pub from: Vec<String>,
    /// Capture file; a second file with .times after its name stores when each message arrived
    #[arg(long, short, value_name = "FILE.zmsg")]
    pub output: PathBuf,
    /// Replace the capture file if it exists
    #[arg(long)]
    pub overwrite: bool,
    /// End after this number of messages
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub messages: Option<u64>,
    /// End after this time, in seconds
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub seconds: Option<f64>,
    /// Kind of the ZeroMQ sockets
    #[arg(long, value_enum, default_value_t = ReceiveKind::Pull)]
    pub kind: ReceiveKind,
    /// Listen instead of connecting
    #[arg(long)]
    pub bind: bool,
    /// For programs: write what was recorded as JSON to stdout
    #[arg(long)]
    pub json: bool,
    /// No progress
    #[arg(long, short)]
    pub quiet: bool,
}

/// `konkordia replay`
#[derive(Clone, Debug, Args)]
pub struct ReplayArgs {
    /// Capture file of `konkordia record`
    pub file: PathBuf,
    /// Speed relative to the recording, 2 = twice as fast; messages without times are sent at once
    #[arg(long, value_name = "K", default_value_t = 1.0, value_parser = seconds)]
    pub speed: f64,
    /// Ignore the recorded times
    #[arg(long, conflicts_with = "speed")]
    pub as_fast_as_possible: bool,
    /// Number of times to send the whole file
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub repeat: u64,
    /// Where messages are sent.
    #[command(flatten)]
    pub to: ToArgs,
    /// For programs: write what was sent as JSON to stdout
    #[arg(long)]
    pub json: bool,
    /// No progress
    #[arg(long, short)]
    pub quiet: bool,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() && (0.0..=1e9).contains(&value) => Ok(value),
        _ => Err("a number from 0 to 1e9 is expected".into()),
    }
}

fn bytes(text: &str) -> Result<u64, String> {
    let (number, factor) = match text.char_indices().last() {
        Some((at, 'k' | 'K')) => (&text[..at], 1_000),
        Some((at, 'M')) => (&text[..at], 1_000_000),
        Some((at, 'G')) => (&text[..at], 1_000_000_000),
        _ => (text, 1),
    };
    let bytes = number.parse::<u64>().ok().and_then(|n| n.checked_mul(factor));
    bytes
        .filter(|n| (1..=4 << 30).contains(n))
        .ok_or_else(|| "a number of bytes up to 4 GiB is expected, such as 20000, 20k, 2M".into())
}

fn shape(text: &str) -> Result<konkordia_core::array::Shape, String> {
    let dimensions: Option<Vec<u64>> = text.split(['x', 'X']).map(|n| n.parse().ok()).collect();
    let shape = dimensions.and_then(|dimensions| konkordia_core::array::Shape::new(&dimensions));
    shape
        .filter(|shape| shape.elements() <= 1 << 32)
        .ok_or_else(|| "numbers of pixels joined by x are expected, such as 512x1024".into())
}

fn element(text: &str) -> Result<konkordia_core::array::Element, String> {
    let names = || konkordia_core::array::Element::ALL.map(konkordia_core::array::Element::name).join(", ");
    konkordia_core::array::Element::from_name(text).ok_or_else(|| format!("the types are {}", names()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_shapes_are_read() {
        assert_eq!((bytes("20k"), bytes("2M"), bytes("7")), (Ok(20_000), Ok(2_000_000), Ok(7)));
        for wrong in ["", "k", "-1", "0", "5G", "1.5M", "20kB", "99999999999999999999", "3ä"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
        assert_eq!(shape("3x4").unwrap().dimensions(), [3, 4]);
        assert_eq!(shape("7").unwrap().dimensions(), [7]);
        for wrong in ["", "x", "0x4", "3x", "-1x2", "99999999999x99999999999", "100000x100000"] {
            assert!(shape(wrong).is_err(), "{wrong}");
        }
        assert!(seconds("nan").is_err() && seconds("-1").is_err() && seconds("inf").is_err());
        assert!(element("uint12").unwrap_err().contains("float32"));
    }
}
