//! The file that describes a graph (docs/graph.md).

use crate::message::NAME_BYTES_MAX;
use crate::producer::{Limits, Policy};
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::plan::Compression;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// Largest graph file, in bytes.
pub const FILE_BYTES_MAX: usize = 1 << 20;
/// Stages of a graph.
const STAGES_MAX: usize = 256;
/// Processes of a stage.
const WORKERS_MAX: u32 = 256;
/// Most images that a stage keeps.
const RING_MAX: u64 = 1 << 16;
/// Most pixels of an image that is made.
const PATTERN_PIXELS_MAX: usize = 1 << 28;

/// What a stage does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Reads the images of files.
    Files,
    /// Takes the images of a stream.
    Stream,
    /// Takes the packets of a detector.
    Receive,
    /// Makes images of the words of a detector.
    Convert,
    /// Looks for spots and more.
    Analyse,
    /// Calls a function of a user in Python.
    Python,
    /// Gives the images to a program of a user.
    Program,
    /// Compresses the images.
    Compress,
    /// Writes the images into a file.
    Write,
    /// Makes images, to try a graph without a detector.
    Pattern,
    /// Takes a time for each image and hands it on, to try a graph.
    Wait,
    /// Takes images and keeps nothing, to try a graph.
    Discard,
}

/// Where a stage stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Images begin there.
    First,
    /// It takes images and gives others.
    Inner,
    /// Images end there.
    Last,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::Files,
        Self::Stream,
        Self::Receive,
        Self::Pattern,
        Self::Convert,
        Self::Analyse,
        Self::Python,
        Self::Program,
        Self::Wait,
        Self::Compress,
        Self::Write,
        Self::Discard,
    ];

    /// Name as the graph file spells it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::Stream => "stream",
            Self::Receive => "receive",
            Self::Convert => "convert",
            Self::Analyse => "analyse",
            Self::Python => "python",
            Self::Program => "program",
            Self::Compress => "compress",
            Self::Write => "write",
            Self::Pattern => "pattern",
            Self::Wait => "wait",
            Self::Discard => "discard",
        }
    }

    /// Where such stages stand.
    pub const fn place(self) -> Place {
        match self {
            Self::Files | Self::Stream | Self::Receive | Self::Pattern => Place::First,
            Self::Write | Self::Discard => Place::Last,
            Self::Convert | Self::Analyse | Self::Python | Self::Program | Self::Wait | Self::Compress => Place::Inner,
        }
    }

    /// True if a program of a user works on the images.
    pub const fn is_of_user(self) -> bool {
        matches!(self, Self::Python | Self::Program)
    }

    /// True for the first stages.
    pub fn is_first(self) -> bool {
        self.place() == Place::First
    }

    /// True for the last stages.
    pub fn is_last(self) -> bool {
        self.place() == Place::Last
    }
}

/// How images get from stage to stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// ZeroMQ over TCP.
    #[default]
    Tcp,
    /// ZeroMQ over sockets of one host.
    Ipc,
    /// ZeroMQ in the memory of one process: the stages are threads of it.
    Inproc,
    /// MPI: each process of the graph is a rank that `mpirun` started.
    Mpi,
}

/// The socket that takes a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Socket {
    /// The images are shared by those who take them.
    Pull,
    /// Each gets all, and loses those for which it is too slow.
    Sub,
}

/// A stage.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stage {
    /// Its name.
    pub name: String,
    /// What it does.
    pub kind: Kind,
    /// The host on which it runs; empty: this one.
    #[serde(default)]
    pub host: String,
    /// Hosts among which its processes are spread, in place of `host`.
    #[serde(default)]
    pub hosts: Vec<String>,
    /// Processes.
    #[serde(default = "one")]
    pub workers: u32,
    /// Of a stage that reads: images that it keeps until the stages behind have finished them, and so the most that are
    /// in the whole graph.
    #[serde(default = "default_ring")]
    pub queue: u64,
    /// Longest time of one of its processes for an image, in ms; then another one gets it.
    #[serde(default = "default_response")]
    pub response_ms_max: u64,
    /// Files to read.
    #[serde(default)]
    pub files: Vec<String>,
    /// Address of the stream.
    #[serde(default)]
    pub address: String,
    /// Protocol of the stream; none: STINS.
    #[serde(default)]
    pub protocol: Option<String>,
    /// Socket that takes the stream.
    #[serde(default)]
    pub socket: Option<Socket>,
    /// A stream ends if no message comes for so long, in s.
    #[serde(default)]
    pub silent_s_max: Option<f64>,
    /// Calibration file, or a folder of planes.
    #[serde(default)]
    pub calibration: String,
    /// Photon energy in keV.
    #[serde(default)]
    pub energy_kev: Option<f64>,
    /// Pixel type of the images.
    #[serde(default)]
    pub dtype: Option<String>,
    /// Arrangement of the modules.
    #[serde(default)]
    pub geometry: Option<String>,
    /// Configuration file of a detector, or with more keys of a conversion.
    #[serde(default)]
    pub config: Option<String>,
    /// Recipe file of an analysis.
    #[serde(default)]
    pub recipe: String,
    /// How images are compressed.
    #[serde(default)]
    pub compression: Option<String>,
    /// Level of the compression.
    #[serde(default)]
    pub level: Option<u8>,
    /// `module:name` of a function in Python.
    #[serde(default)]
    pub function: String,
    /// A program and its arguments.
    #[serde(default)]
    pub command: Vec<String>,
    /// Most memory of the program of a user, in MiB.
    #[serde(default)]
    pub memory_mb_max: Option<u64>,
    /// File to write.
    #[serde(default)]
    pub file: String,
    /// Images to make.
    #[serde(default)]
    pub images: Option<u64>,
    /// Rows and columns of images to make, of 16 bits.
    #[serde(default)]
    pub shape: Option<[usize; 2]>,
    /// Time for an image, in ms.
    #[serde(default)]
    pub work_ms: Option<f64>,
    /// Compares the images with those that `pattern` makes; one that differs is refused.
    #[serde(default)]
    pub compare: Option<bool>,
}

/// An edge.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Edge {
    /// The stage before it.
    pub from: String,
    /// The stage behind it.
    pub to: String,
    /// Who gets an image.
    #[serde(default = "default_policy")]
    pub policy: Policy,
    /// How it gets there.
    #[serde(default)]
    pub transport: Transport,
    /// The first port on the host of `from`; each of its processes has one. 0: `transport` needs none.
    #[serde(default)]
    pub port: u16,
    /// Images that a process may have at once.
    #[serde(default = "default_window")]
    pub window: u32,
}

/// A host.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// Its name in the graph.
    pub name: String,
    /// Its IP address or name in the network.
    pub address: String,
}

/// Where processes find each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Directory {
    /// Keys of etcd 3.4 or newer.
    Etcd,
    /// Leases in the API server of Kubernetes.
    Kubernetes,
}

/// How processes find each other, if not by the hosts of the file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Discovery {
    /// Where.
    pub kind: Directory,
    /// Its URL. In a pod of Kubernetes that of the cluster is known.
    #[serde(default)]
    pub url: Option<String>,
    /// Name of the graph, which no other graph there has.
    pub name: String,
    /// Of Kubernetes: the namespace; otherwise that of the pod.
    #[serde(default)]
    pub namespace: Option<String>,
    /// Of Kubernetes: the folder with `token` and `ca.crt`; otherwise that of the pod.
    #[serde(default)]
    pub service_account: Option<PathBuf>,
}

/// A graph that was checked: a tree of stages whose roots read files.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Graph {
    /// The stages.
    #[serde(rename = "stage", default)]
    pub stages: Vec<Stage>,
    /// The edges.
    #[serde(rename = "edge", default)]
    pub edges: Vec<Edge>,
    /// The hosts.
    #[serde(rename = "host", default)]
    pub hosts: Vec<Host>,
    /// How processes find each other over TCP, if not by `hosts`.
    #[serde(default)]
    pub discovery: Option<Discovery>,
}

fn one() -> u32 {
    1
}

fn default_ring() -> u64 {
    256
}

fn default_response() -> u64 {
    10_000
}

fn default_window() -> u32 {
    8
}

fn default_policy() -> Policy {
    Policy::LeastWorkload
}

impl Stage {
    /// The names of its processes.
    pub fn members(&self) -> impl Iterator<Item = String> + '_ {
        (0..self.workers).map(|index| format!("{}-{index}", self.name))
    }

    /// The host of its process with this number; empty: this one.
    pub fn host_of(&self, index: usize) -> &str {
        self.hosts.get(index % self.hosts.len().max(1)).unwrap_or(&self.host)
    }

    /// The one host on which it runs, if it is one.
    fn one_host(&self) -> Option<&str> {
        let hosts: BTreeSet<_> = (0..self.workers as usize).map(|index| self.host_of(index)).collect();
        hosts.first().copied().filter(|_| hosts.len() == 1)
    }

    fn mistakes(&self, out: &mut Vec<String>) {
        let name = &self.name;
        let mut say = |what: &str| out.push(format!("stage '{name}': {what}"));
        let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        if name.is_empty() || name.len() > NAME_BYTES_MAX - 8 || !name.chars().all(is_name) {
            say("its name must be of letters, digits and '_', at most 56");
        }
        if !self.host.is_empty() && !self.hosts.is_empty() {
            say("it has both 'host' and 'hosts'; remove one");
        }
        if !(1..=WORKERS_MAX).contains(&self.workers) {
            say(&format!("workers = {} is not from 1 to {WORKERS_MAX}", self.workers));
        }
        if !(1..=RING_MAX).contains(&self.queue) {
            say(&format!("queue = {} is not from 1 to {RING_MAX}", self.queue));
        }
        if self.response_ms_max < 100 {
            say("response_ms_max is below 100 ms, the time between two heartbeats");
        }
        self.key_mistakes(&mut say);
        if self.kind.place() != Place::Inner && self.workers != 1 {
            let why = match self.kind.place() {
                Place::Last => "an image is in the file once only if one process writes it; set workers = 1",
                _ => "each would take all images; set workers = 1",
            };
            say(why);
        }
    }

    /// Keys that are missing, or that belong to another kind.
    fn key_mistakes(&self, say: &mut dyn FnMut(&str)) {
        use Kind::{Analyse, Compress, Convert, Discard, Files, Pattern, Program, Python, Receive, Stream, Wait, Write};
        let needed: [(&str, bool, Kind); 9] = [
            ("files", !self.files.is_empty(), Files),
            ("address", !self.address.is_empty(), Stream),
            ("calibration", !self.calibration.is_empty(), Convert),
            ("recipe", !self.recipe.is_empty(), Analyse),
            ("function", !self.function.is_empty(), Python),
            ("command", !self.command.is_empty(), Program),
            ("file", !self.file.is_empty(), Write),
            ("images", self.images.is_some(), Pattern),
            ("work_ms", self.work_ms.is_some(), Wait),
        ];
        for (key, is_given, kind) in needed {
            let of = kind.name();
            match (is_given, kind == self.kind) {
                (true, false) => say(&format!("'{key}' belongs to kind = \"{of}\"; remove it")),
                (false, true) => say(&format!("kind = \"{of}\" needs '{key}'")),
                _ => (),
            }
        }
        let possible: [(&str, bool, &[Kind]); 12] = [
            ("protocol", self.protocol.is_some(), &[Stream]),
            ("socket", self.socket.is_some(), &[Stream]),
            ("silent_s_max", self.silent_s_max.is_some(), &[Stream]),
            ("energy_kev", self.energy_kev.is_some(), &[Convert]),
            ("dtype", self.dtype.is_some(), &[Convert]),
            ("geometry", self.geometry.is_some(), &[Convert]),
            ("config", self.config.is_some(), &[Convert, Receive]),
            ("compression", self.compression.is_some(), &[Compress, Write]),
            ("level", self.level.is_some(), &[Compress, Write]),
            ("memory_mb_max", self.memory_mb_max.is_some(), &[Python, Program]),
            ("shape", self.shape.is_some(), &[Pattern]),
            ("compare", self.compare.is_some(), &[Discard]),
        ];
        for (key, is_given, kinds) in possible {
            if is_given && !kinds.contains(&self.kind) {
                let of: Vec<String> = kinds.iter().map(|kind| format!("\"{}\"", kind.name())).collect();
                say(&format!("'{key}' belongs to kind = {}; remove it", of.join(" or ")));
            }
        }
        if self.kind == Receive && self.config.is_none() {
            say("kind = \"receive\" needs 'config'");
        }
        if let Err(why) = self.packing() {
            say(&why);
        }
        if self
            .shape
            .is_some_and(|[rows, columns]| rows.saturating_mul(columns) > PATTERN_PIXELS_MAX || rows == 0 || columns == 0)
        {
            say(&format!("shape is not of 1 to {PATTERN_PIXELS_MAX} pixels"));
        }
        if self.work_ms.is_some_and(|ms| !(0.0..=3_600_000.0).contains(&ms)) {
            say("work_ms is not from 0 to 3600000");
        }
        let is_function = self.function.split(':').filter(|part| !part.is_empty()).count() == 2;
        if self.kind == Python && !self.function.is_empty() && !is_function {
            say(&format!("function = \"{}\" is not of the form \"module:name\"", self.function));
        }
        if self.silent_s_max.is_some_and(|seconds| !(0.1..=86_400.0).contains(&seconds)) {
            say("silent_s_max is not from 0.1 to 86400");
        }
    }

    /// How images are compressed.
    ///
    /// # Errors
    /// There is no such compression or level; in words.
    pub fn packing(&self) -> Result<Compression, String> {
        let text = self.compression.as_deref().unwrap_or(Compression::BSLZ4.name());
        Compression::parse(text, self.level.map(i64::from)).map_err(|why| format!("compression: {why}"))
    }
}

impl Discovery {
    fn mistakes(&self, out: &mut Vec<String>) {
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if self.name.is_empty() || self.name.len() > 40 || !self.name.bytes().all(is_plain) {
            out.push("[discovery] name must be of lower case letters, digits and '-', at most 40".into());
        }
        if self.kind == Directory::Etcd && (self.namespace.is_some() || self.service_account.is_some()) {
            out.push("[discovery] 'namespace' and 'service_account' belong to kind = \"kubernetes\"; remove them".into());
        }
        if self.kind == Directory::Etcd && self.url.is_none() {
            out.push("[discovery] kind = \"etcd\" needs 'url', for example \"http://10.0.0.1:2379\"".into());
        }
        if self.url.as_ref().is_some_and(|url| !url.starts_with("http://") && !url.starts_with("https://")) {
            out.push("[discovery] url begins with neither http:// nor https://".into());
        }
    }
}

impl Graph {
    /// The graph in this text; `name` is that of its file.
    ///
    /// # Errors
    /// All mistakes of the file.
    pub fn parse(name: &str, text: &str) -> Result<Self, Failure> {
        let wrong = |why: String| {
            let fix = "correct the graph file; docs/graph.md lists its keys";
            Failure::new(Exit::Configuration, format!("{name} is no valid graph"), why, fix)
        };
        if text.len() > FILE_BYTES_MAX {
            return Err(wrong(format!("it has {} bytes, and {FILE_BYTES_MAX} are possible", text.len())));
        }
        let graph: Self = toml::from_str(text).map_err(|error| wrong(explain(&error)))?;
        let mistakes = graph.mistakes();
        if mistakes.is_empty() { Ok(graph) } else { Err(wrong(mistakes.join("\n"))) }
    }

    fn mistakes(&self) -> Vec<String> {
        let mut out = Vec::new();
        if self.stages.is_empty() || self.stages.len() > STAGES_MAX {
            out.push(format!("it has {} [[stage]], and 1 to {STAGES_MAX} are possible", self.stages.len()));
        }
        let mut names = BTreeSet::new();
        for stage in &self.stages {
            stage.mistakes(&mut out);
            if !names.insert(&stage.name) {
                out.push(format!("two stages have the name '{}'", stage.name));
            }
            let given = stage.hosts.iter().chain([&stage.host]).filter(|name| !name.is_empty());
            for name in given.filter(|name| !self.hosts.iter().any(|host| host.name == **name)) {
                out.push(format!("stage '{}': there is no [[host]] with the name '{name}'", stage.name));
            }
        }
        for host in self.hosts.iter().filter(|host| host.address.is_empty()) {
            out.push(format!("host '{}' has no address", host.name));
        }
        if let Some(discovery) = &self.discovery {
            discovery.mistakes(&mut out);
        }
        self.edges.iter().for_each(|edge| self.edge_mistakes(edge, &mut out));
        if out.is_empty() {
            self.shape_mistakes(&mut out);
            self.port_mistakes(&mut out);
        }
        out
    }

    fn edge_mistakes(&self, edge: &Edge, out: &mut Vec<String>) {
        let mut say = |what: String| out.push(format!("edge '{}' -> '{}': {what}", edge.from, edge.to));
        for name in [&edge.from, &edge.to] {
            if self.stage(name).is_none() {
                say(format!("there is no stage '{name}'"));
            }
        }
        if !(1..=4096).contains(&edge.window) {
            say(format!("window = {} is not from 1 to 4096", edge.window));
        }
        match edge.transport {
            Transport::Tcp if edge.port == 0 && self.discovery.is_none() => {
                say("transport = \"tcp\" needs 'port', or the file [discovery]".into());
            }
            Transport::Ipc | Transport::Inproc | Transport::Mpi if edge.port != 0 => {
                say("'port' belongs to transport = \"tcp\"; remove it".into());
            }
            Transport::Ipc | Transport::Inproc if !self.is_on_one_host(edge) => {
                say("transport = \"ipc\" and \"inproc\" are for stages of one host; use \"tcp\"".into());
            }
            Transport::Inproc if self.uses_mpi() => {
                say("with MPI each process is a rank of its own, so that \"inproc\" is not possible; use \"ipc\"".into());
            }
            _ => (),
        }
    }

    fn is_on_one_host(&self, edge: &Edge) -> bool {
        let host = |name: &str| self.stage(name).map(Stage::one_host);
        let (one, other) = (host(&edge.from), host(&edge.to));
        one == other && one != Some(None)
    }

    fn shape_mistakes(&self, out: &mut Vec<String>) {
        let mut reached = BTreeSet::new();
        let mut next: Vec<&str> = self.stages.iter().filter(|stage| stage.kind.is_first()).map(|s| s.name.as_str()).collect();
        while let Some(name) = next.pop() {
            if reached.insert(name) {
                next.extend(self.behind(name).map(|edge| edge.to.as_str()));
            }
        }
        for stage in &self.stages {
            let (name, into) = (&stage.name, self.edges.iter().filter(|edge| edge.to == stage.name).count());
            let mut say = |what: &str| out.push(format!("stage '{name}': {what}"));
            match (stage.kind.place(), into) {
                (Place::First, 0) | (Place::Inner | Place::Last, 1) => (),
                (Place::First, _) => say("images begin there, so no edge may lead to it"),
                (_, 0) => say("no edge leads to it, so it would get no images"),
                _ => say("several edges lead to it; joining is not possible, because an image has one number in the graph"),
            }
            if into > 0 && !reached.contains(name.as_str()) {
                say("no stage where images begin leads to it: its edges form a circle, or begin at such a stage");
            }
            if stage.kind.is_last() && self.behind(name).count() > 0 {
                say("images end at it, so no edge may begin at it");
            }
            if stage.kind == Kind::Compress
                && self.behind(name).filter_map(|edge| self.stage(&edge.to)).any(|to| to.kind != Kind::Write)
            {
                say("only a stage with kind = \"write\" can take compressed images; put it directly before that one");
            }
            if stage.kind.is_first() && self.behind(name).count() == 0 {
                say("no edge begins at it, so nobody would get its images");
            }
        }
    }

    fn port_mistakes(&self, out: &mut Vec<String>) {
        let mut taken = BTreeMap::new();
        for edge in self.edges.iter().filter(|edge| edge.transport == Transport::Tcp && edge.port != 0) {
            let Some(stage) = self.stage(&edge.from) else { continue };
            for index in 0..stage.workers {
                let Some(port) = u16::try_from(index).ok().and_then(|index| edge.port.checked_add(index)) else {
                    out.push(format!("edge '{}' -> '{}': its ports go beyond 65535", edge.from, edge.to));
                    break;
                };
                if let Some(other) = taken.insert((stage.host_of(index as usize), port), &edge.to) {
                    out.push(format!("the edges to '{other}' and '{}' both use port {port} of one host", edge.to));
                    break;
                }
            }
        }
    }

    /// The stage of this name.
    pub fn stage(&self, name: &str) -> Option<&Stage> {
        self.stages.iter().find(|stage| stage.name == name)
    }

    /// What the processes at the beginning of an edge keep, and how long one at its end may take. All keep as many as
    /// those that read: a process that kept fewer could be full of images that wait for an older one, which it could
    /// not take.
    pub fn limits(&self, edge: &Edge) -> Limits {
        let ring = self.stages.iter().filter(|stage| stage.kind.is_first()).map(|stage| stage.queue).max().unwrap_or(1);
        let one_ms = self.stage(&edge.to).map_or_else(default_response, |stage| stage.response_ms_max);
        let response_ms_max = one_ms.saturating_mul(u64::from(edge.window) + 1).saturating_add(1000);
        let members = self.stage(&edge.to).map_or(1, |stage| stage.workers);
        Limits { ring, response_ms_max, refusals_max: 3, members }
    }

    /// The edges that begin at a stage.
    pub fn behind<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Edge> {
        self.edges.iter().filter(move |edge| edge.from == name)
    }

    /// The edge that leads to a stage.
    pub fn before(&self, name: &str) -> Option<&Edge> {
        self.edges.iter().find(|edge| edge.to == name)
    }

    /// True if `mpirun` has to start the processes.
    pub fn uses_mpi(&self) -> bool {
        self.edges.iter().any(|edge| edge.transport == Transport::Mpi)
    }

    /// The names of all processes: those of the first stage, then those of the next one. With MPI this is the order of
    /// the ranks.
    pub fn members(&self) -> impl Iterator<Item = (&Stage, String)> {
        self.stages.iter().flat_map(|stage| stage.members().map(move |member| (stage, member)))
    }

    /// The stages that are threads of one process, in the order of the file.
    pub fn groups(&self) -> Vec<Vec<&Stage>> {
        let mut groups: Vec<Vec<&Stage>> = self.stages.iter().map(|stage| vec![stage]).collect();
        for edge in self.edges.iter().filter(|edge| edge.transport == Transport::Inproc) {
            let of = |name: &str| groups.iter().position(|group| group.iter().any(|stage| stage.name == name));
            if let (Some(a), Some(b)) = (of(&edge.from), of(&edge.to))
                && a != b
            {
                let other = groups.remove(a.max(b));
                groups[a.min(b)].extend(other);
            }
        }
        groups
    }

    /// The address of a host.
    pub fn address_of(&self, name: &str) -> Option<&str> {
        self.hosts.iter().find(|host| host.name == name).map(|host| host.address.as_str())
    }

    /// Where a process of the stage before an edge listens, or is found: `tcp://HOST:PORT`, or a file in `folder`.
    pub fn address(&self, edge: &Edge, index: u32, folder: &str) -> String {
        match edge.transport {
            Transport::Inproc => format!("inproc://{}-{index}-{}", edge.from, edge.to),
            Transport::Mpi => format!("mpi://{}-{index}-{}", edge.from, edge.to),
            Transport::Ipc => format!("ipc://{folder}/{}-{index}-{}", edge.from, edge.to),
            Transport::Tcp => {
                let host = self.stage(&edge.from).map_or("", |stage| stage.host_of(index as usize));
                let address = self.address_of(host).unwrap_or("127.0.0.1");
                let address = if address.contains(':') { format!("[{address}]") } else { address.to_owned() };
                format!("tcp://{address}:{}", u32::from(edge.port) + index)
            }
        }
    }
}

/// An error of the reader, and what is not possible yet.
fn explain(error: &toml::de::Error) -> String {
    let text = error.to_string();
    let later = [(
        "`udp`",
        "transport = \"udp\" is not there: an image would be many datagrams, and an edge needs what TCP has; use \"tcp\"",
    )];
    let hint = later.iter().find(|(word, _)| text.contains(&format!("unknown variant {word}")));
    hint.map_or_else(|| text.clone(), |(_, hint)| format!("{text}{hint}"))
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
