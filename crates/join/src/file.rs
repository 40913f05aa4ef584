//! The file that describes a join (docs/join.md).

use crate::rules::{JoinSpec, SourceSpec};
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::protocol::Protocol;
use serde::Deserialize;
use std::collections::BTreeSet;

/// Largest file, in bytes.
pub const FILE_BYTES_MAX: usize = 1 << 20;
/// Most sources.
const SOURCES_MAX: usize = 64;
/// Longest name.
pub const NAME_BYTES_MAX: usize = 64;

/// How messages are received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Socket {
    /// PULL: of each message one receiver.
    #[default]
    Pull,
    /// SUB: each receiver gets all.
    Sub,
}

/// What becomes of a number that not all required sources have given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Incomplete {
    /// It is handed on with what there is.
    #[default]
    Keep,
    /// It is only counted.
    Drop,
}

/// A detector.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamFrom {
    /// Its name.
    pub name: String,
    /// ZeroMQ address.
    pub address: String,
    /// What it sends: `stins`, `stream1`, `stream2` or `sls`.
    pub protocol: String,
    /// How it is received.
    #[serde(default)]
    pub socket: Socket,
    /// Listen at the address; otherwise connect.
    #[serde(default)]
    pub bind: bool,
    /// Where the number of the trigger is: `number`, the number of the image in its series, or a JSON pointer into what
    /// the sender says of the image.
    #[serde(default = "default_key")]
    pub key: String,
    /// What is added to it.
    #[serde(default)]
    pub offset: i64,
    /// A number without it is incomplete.
    #[serde(default = "yes")]
    pub required: bool,
    /// Largest message, in MiB.
    #[serde(default = "default_message_mib")]
    pub message_mib: u64,
}

/// A device that sends numbers.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScalarFrom {
    /// Its name, which its messages say.
    pub name: String,
    /// ZeroMQ address; several devices may send to one.
    pub address: String,
    /// How it is received.
    #[serde(default)]
    pub socket: Socket,
    /// Listen at the address; otherwise connect.
    #[serde(default = "yes")]
    pub bind: bool,
    /// What is added to its trigger numbers.
    #[serde(default)]
    pub offset: i64,
    /// A number without it is incomplete.
    #[serde(default = "yes")]
    pub required: bool,
}

/// How joined messages are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OutSocket {
    /// PUSH: of each message one receiver.
    #[default]
    Push,
    /// PUB: each subscriber gets all.
    Pub,
}

/// Where joined messages go.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Output {
    /// ZeroMQ address, where it listens.
    pub address: String,
    /// How they are sent.
    #[serde(default)]
    pub socket: OutSocket,
    /// Messages that may wait for a receiver.
    #[serde(default = "default_queue")]
    pub queue_messages: u32,
    /// Longest wait for a receiver that is full. One that let it pass is not waited for again before it takes a
    /// message.
    #[serde(default = "default_wait")]
    pub wait_ms: u64,
}

/// A join that was checked.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JoinFile {
    /// Longest time from the first part of a number to the last one.
    #[serde(default = "default_timeout")]
    pub timeout_ms: u64,
    /// What becomes of incomplete numbers.
    #[serde(default)]
    pub incomplete: Incomplete,
    /// Memory of the parts that wait, in MiB.
    #[serde(default = "default_memory")]
    pub memory_mib: u64,
    /// End when nothing came for so long after the first part.
    #[serde(default)]
    pub stall_s: Option<f64>,
    /// The table to write.
    #[serde(default)]
    pub file: Option<String>,
    /// Detectors.
    #[serde(rename = "stream", default)]
    pub streams: Vec<StreamFrom>,
    /// Devices that send numbers.
    #[serde(rename = "scalar", default)]
    pub scalars: Vec<ScalarFrom>,
    /// Where joined messages go.
    #[serde(default)]
    pub output: Option<Output>,
}

fn yes() -> bool {
    true
}

fn default_key() -> String {
    "number".into()
}

fn default_message_mib() -> u64 {
    256
}

fn default_queue() -> u32 {
    64
}

fn default_wait() -> u64 {
    100
}

fn default_timeout() -> u64 {
    1000
}

fn default_memory() -> u64 {
    1024
}

impl StreamFrom {
    /// The protocol of this name; `None` if there is none, or it is one of folders.
    pub fn protocol(&self) -> Option<Protocol> {
        let is_message = |protocol: &&Protocol| **protocol != Protocol::Files;
        Protocol::ALL.iter().filter(is_message).find(|protocol| protocol.facts().name == self.protocol).copied()
    }

    /// The trigger number is that of the image in its series, so that a further series begins it anew.
    pub fn counts_in_series(&self) -> bool {
        self.key == "number"
    }

    fn mistakes(&self, out: &mut Vec<String>) {
        let mut say = |what: String| out.push(format!("stream '{}': {what}", self.name));
        if self.protocol().is_none() {
            say(format!("protocol = \"{}\" is not one of \"stins\", \"stream1\", \"stream2\", \"sls\"", self.protocol));
        }
        if self.key != "number" && !(self.key.starts_with('/') && self.key.len() > 1) {
            say(format!("key = \"{}\" is neither \"number\" nor a JSON pointer such as \"/pulse_id\"", self.key));
        }
        if !(1..=16_384).contains(&self.message_mib) {
            say(format!("message_mib = {} is not from 1 to 16384", self.message_mib));
        }
    }
}

impl JoinFile {
    /// The join in this text; `name` is that of its file.
    ///
    /// # Errors
    /// All mistakes of the file.
    pub fn parse(name: &str, text: &str) -> Result<Self, Failure> {
        let wrong = |why: String| {
            let fix = "correct the file; docs/join.md lists its keys";
            Failure::new(Exit::Configuration, format!("{name} is no valid join"), why, fix)
        };
        if text.len() > FILE_BYTES_MAX {
            return Err(wrong(format!("it has {} bytes, and {FILE_BYTES_MAX} are possible", text.len())));
        }
        let join: Self = toml::from_str(text).map_err(|error| wrong(error.to_string()))?;
        let mistakes = join.mistakes();
        if mistakes.is_empty() { Ok(join) } else { Err(wrong(mistakes.join("\n"))) }
    }

    fn mistakes(&self) -> Vec<String> {
        let mut out = Vec::new();
        let sources = self.streams.len() + self.scalars.len();
        if self.streams.is_empty() || !(2..=SOURCES_MAX).contains(&sources) {
            out.push(format!("it has {} [[stream]] and {} [[scalar]]", self.streams.len(), self.scalars.len()));
            out.push(format!("a join has 2 to {SOURCES_MAX} sources, and one of them at least is a [[stream]]"));
        }
        let mut names = BTreeSet::new();
        for name in self.names() {
            if !is_name(name) {
                out.push(format!("the name '{name}' must be of letters, digits, '_' and '-', at most {NAME_BYTES_MAX}"));
            }
            if !names.insert(name) {
                out.push(format!("two sources have the name '{name}'"));
            }
        }
        self.streams.iter().for_each(|stream| stream.mistakes(&mut out));
        self.address_mistakes(&mut out);
        for (key, value, most) in [("timeout_ms", self.timeout_ms, 3_600_000), ("memory_mib", self.memory_mib, 1 << 22)] {
            if !(1..=most).contains(&value) {
                out.push(format!("{key} = {value} is not from 1 to {most}"));
            }
        }
        if self.stall_s.is_some_and(|stall_s| !(stall_s > 0.0 && stall_s < 1e6)) {
            out.push("stall_s must be above 0".into());
        }
        if let Some(output) = &self.output {
            if !(1..=65_536).contains(&output.queue_messages) {
                out.push(format!("output: queue_messages = {} is not from 1 to 65536", output.queue_messages));
            }
            if output.wait_ms > 60_000 {
                out.push(format!("output: wait_ms = {} is not from 0 to 60000", output.wait_ms));
            }
        }
        out
    }

    fn address_mistakes(&self, out: &mut Vec<String>) {
        let mut taken = BTreeSet::new();
        for stream in &self.streams {
            if !taken.insert(stream.address.as_str()) {
                out.push(format!("stream '{}': another one has the address {}", stream.name, stream.address));
            }
        }
        for (n, scalar) in self.scalars.iter().enumerate() {
            let same = self.scalars[..n].iter().find(|other| other.address == scalar.address);
            if same.is_some_and(|other| (other.socket, other.bind) != (scalar.socket, scalar.bind)) {
                out.push(format!("scalar '{}': one with the same address has another socket or bind", scalar.name));
            }
            if taken.contains(scalar.address.as_str()) {
                out.push(format!("scalar '{}': a stream has the address {}", scalar.name, scalar.address));
            }
        }
    }

    /// The names of all sources: first the streams, then the scalars.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let scalars = self.scalars.iter().map(|scalar| scalar.name.as_str());
        self.streams.iter().map(|stream| stream.name.as_str()).chain(scalars)
    }

    /// What the rules need to know.
    pub fn spec(&self) -> JoinSpec {
        let required = self.streams.iter().map(|stream| stream.required).chain(self.scalars.iter().map(|scalar| scalar.required));
        let sources = self.names().zip(required);
        JoinSpec {
            sources: sources.map(|(name, is_required)| SourceSpec { name: name.into(), is_required }).collect(),
            timeout_us: 1000 * self.timeout_ms,
            is_kept: self.incomplete == Incomplete::Keep,
            bytes_max: self.memory_mib << 20,
        }
    }
}

fn is_name(name: &str) -> bool {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == '-';
    !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.chars().all(is_letter)
}

/// The trigger number with the offset of its source; `None` if it is below 0 or too large.
pub fn shifted(number: u64, offset: i64) -> Option<u64> {
    number.checked_add_signed(offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
timeout_ms = 500
incomplete = "drop"
file = "joined.h5"

[[stream]]
name = "left"
address = "tcp://127.0.0.1:9999"
protocol = "stins"

[[stream]]
name = "right"
address = "tcp://127.0.0.1:31001"
protocol = "stream2"
key = "/user_data/pulse_id"
offset = -1
required = false

[[scalar]]
name = "encoder"
address = "tcp://*:5600"

[[scalar]]
name = "energy"
address = "tcp://*:5600"

[output]
address = "tcp://*:31100"
"#;

    #[test]
    fn a_good_file_is_understood() {
        let join = JoinFile::parse("join.toml", GOOD).unwrap();
        let spec = join.spec();
        assert_eq!((spec.timeout_us, spec.is_kept, spec.bytes_max), (500_000, false, 1 << 30));
        let sources: Vec<_> = spec.sources.iter().map(|source| (source.name.as_str(), source.is_required)).collect();
        assert_eq!(sources, [("left", true), ("right", false), ("encoder", true), ("energy", true)]);
        assert_eq!(join.streams[1].protocol(), Some(Protocol::DectrisV2));
        assert!(join.streams[0].counts_in_series() && !join.streams[1].counts_in_series());
        assert_eq!((shifted(5, -5), shifted(5, -6), shifted(u64::MAX, 1)), (Some(0), None, None));
    }

    #[test]
    fn mistakes_are_named() {
        let cases = [
            ("offset = -1", "ofset = -1", "unknown field `ofset`"),
            ("name = \"right\"", "name = \"left\"", "two sources have the name 'left'"),
            ("name = \"energy\"", "name = \"encoder\"", "two sources have the name 'encoder'"),
            ("name = \"left\"", "name = \"a/b\"", "the name 'a/b' must be of letters"),
            ("protocol = \"stins\"", "protocol = \"karabo\"", "protocol = \"karabo\" is not one of"),
            ("key = \"/user_data/pulse_id\"", "key = \"pulse_id\"", "neither \"number\" nor a JSON pointer"),
            ("tcp://127.0.0.1:31001", "tcp://127.0.0.1:9999", "stream 'right': another one has the address"),
            ("timeout_ms = 500", "timeout_ms = 0", "timeout_ms = 0 is not from 1"),
            ("timeout_ms = 500", "stall_s = 0", "stall_s must be above 0"),
            ("tcp://*:5600\"", "tcp://*:5600\"\nbind = false", "has another socket or bind"),
            ("tcp://*:5600", "tcp://127.0.0.1:9999", "scalar 'encoder': a stream has the address"),
            ("tcp://*:31100\"", "tcp://*:31100\"\nqueue_messages = 0", "queue_messages = 0 is not from 1"),
            ("incomplete = \"drop\"", "incomplete = \"lose\"", "unknown variant `lose`"),
        ];
        for (old, new, expected) in cases {
            let failure = JoinFile::parse("join.toml", &GOOD.replacen(old, new, 1)).unwrap_err();
            assert!(failure.why.contains(expected), "{old} -> {new}: {}", failure.why);
            assert_eq!((failure.exit, failure.what.as_str()), (Exit::Configuration, "join.toml is no valid join"));
        }
        let failure = JoinFile::parse("join.toml", "").unwrap_err();
        assert!(failure.why.contains("a join has 2 to 64 sources"), "{}", failure.why);
    }
}
