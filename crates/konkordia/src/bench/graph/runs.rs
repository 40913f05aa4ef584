//! Runs of `konkordia graph run`, and of plain ZeroMQ beside it.

use crate::bench::peer::{Peer, failed};
use crate::graph::image::HEAD_BYTES;
use crate::graph::trial::Pattern;
use konkordia_core::failure::{Exit, Failure};
use serde_json::{Value, json};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// A folder for graphs and their states, until it is dropped.
pub struct Folder(pub PathBuf);

/// Images of a run.
#[derive(Clone, Copy)]
pub struct Shape {
    /// Rows and columns of images of 16 bits.
    pub shape: [usize; 2],
    /// How many.
    pub images: u64,
}

/// What a run has counted.
pub struct Counted {
    /// Images that the last stage has taken.
    pub done: u64,
    /// Images that it got again.
    pub doubled: u64,
    /// From the first to the last one there.
    pub seconds: f64,
    /// The account of the first edge.
    pub first: Value,
    /// All sums hold.
    pub is_balanced: bool,
}

impl Folder {
    /// In the folder for temporary files.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn new() -> Result<Self, Failure> {
        let path = std::env::temp_dir().join(format!("konkordia-bench-graph-{}", std::process::id()));
        std::fs::create_dir_all(&path).map_err(|error| Failure::io("cannot make", &path, &error))?;
        Ok(Self(path))
    }

    /// The state of a process of the run.
    pub fn state(&self, member: &str) -> Value {
        let text = std::fs::read_to_string(self.0.join("states").join(format!("{member}.json")));
        text.ok().and_then(|text| serde_json::from_str(&text).ok()).unwrap_or(Value::Null)
    }

    /// Starts a graph.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(&self, graph: &str) -> Result<Child, Failure> {
        let (file, states) = (self.0.join("graph.toml"), self.0.join("states"));
        _ = std::fs::remove_dir_all(&states);
        std::fs::write(&file, graph).map_err(|error| Failure::io("cannot write", &file, &error))?;
        let program = std::env::current_exe().map_err(|error| failed("the graph cannot be started", &error))?;
        let mut command = Command::new(program);
        command.args(["graph", "run"]).arg(&file).arg("--folder").arg(&states).arg("--json");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(|error| failed("the graph cannot be started", &error))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Shape {
    /// Bytes of the pixels of an image.
    pub fn bytes(&self) -> usize {
        2 * self.shape[0] * self.shape[1]
    }

    fn stages(&self) -> String {
        let Self { shape: [rows, columns], images } = self;
        format!(
            "[[stage]]\nname = \"from\"\nkind = \"pattern\"\nimages = {images}\nshape = [{rows}, {columns}]\n\
             [[stage]]\nname = \"to\"\nkind = \"discard\"\ncompare = true\n"
        )
    }
}

impl Counted {
    /// Images per second at the last stage.
    pub fn per_second(&self) -> f64 {
        self.done.saturating_sub(1) as f64 / self.seconds
    }
}

/// Waits for the end of a graph.
///
/// # Errors
/// It has failed, or a sum does not hold.
pub fn finish(child: Child) -> Result<Counted, Failure> {
    let output = child.wait_with_output().map_err(|error| failed("the graph cannot be waited for", &error))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let report: Value = text.lines().next().and_then(|line| serde_json::from_str(line).ok()).unwrap_or_default();
    let none = Vec::new();
    let processes = report["processes"].as_array().unwrap_or(&none);
    let of = |stage: &str| processes.iter().find(|process| process["stage"] == stage).cloned().unwrap_or_default();
    let (first, last) = (of("from"), of("to"));
    if !output.status.success() || last["seconds"].is_null() {
        let why = format!("{}; it printed '{}'", output.status, text.trim());
        return Err(Failure::new(Exit::Incomplete, "a graph of the bench has failed", why, "what it said stands above"));
    }
    let number = |name: &str| last["input"][name].as_u64().unwrap_or(0);
    Ok(Counted {
        done: number("done"),
        doubled: number("doubled"),
        seconds: last["seconds"].as_f64().unwrap_or(f64::NAN),
        first: first["edges"][0]["account"].clone(),
        is_balanced: first["edges"][0]["imbalance"].is_null() && last["input"]["imbalance"].is_null(),
    })
}

fn whole(counted: Counted, images: u64) -> Result<Counted, Failure> {
    if counted.done == images && counted.is_balanced {
        return Ok(counted);
    }
    let why = format!("{} of {images} images came, or a sum does not hold", counted.done);
    Err(Failure::new(Exit::Bug, "a graph of the bench has lost images", why, "please report this"))
}

/// One edge, from one process to another.
///
/// # Errors
/// It has failed, or lost images.
pub fn edge(folder: &Folder, transport: &str, shape: Shape) -> Result<Counted, Failure> {
    let port = if transport == "tcp" { format!("port = {}\n", free_port()?) } else { String::new() };
    let edge = format!("[[edge]]\nfrom = \"from\"\nto = \"to\"\nwindow = 64\ntransport = \"{transport}\"\n{port}");
    whole(finish(folder.start(&format!("{}{edge}", shape.stages()))?)?, shape.images)
}

/// The graph of processes that sleep for each image.
pub fn waiting_graph(workers: u64, images: u64, work_ms: f64) -> String {
    let stages = Shape { shape: [64, 64], images }.stages();
    format!(
        "{stages}[[stage]]\nname = \"work\"\nkind = \"wait\"\nwork_ms = {work_ms}\nworkers = {workers}\n\
         [[edge]]\nfrom = \"from\"\nto = \"work\"\nwindow = 4\ntransport = \"ipc\"\n\
         [[edge]]\nfrom = \"work\"\nto = \"to\"\ntransport = \"ipc\"\n"
    )
}

/// Processes that sleep for each image.
///
/// # Errors
/// The graph has failed, or lost images.
pub fn waiting(folder: &Folder, workers: u64, images: u64, work_ms: f64) -> Result<Counted, Failure> {
    whole(finish(folder.start(&waiting_graph(workers, images, work_ms))?)?, images)
}

fn free_port() -> Result<u16, Failure> {
    let found = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    found.map(|address| address.port()).map_err(|error| failed("loopback cannot be used", &error))
}

/// Images per second of plain ZeroMQ: the other end pushes, this one pulls and compares.
///
/// # Errors
/// A socket failed, or an image is wrong.
pub fn plain(peer: &mut Peer, folder: &Folder, transport: &str, shape: Shape) -> Result<f64, Failure> {
    let address = match transport {
        "tcp" => format!("tcp://127.0.0.1:{}", free_port()?),
        _ => format!("ipc://{}/plain", folder.0.display()),
    };
    let socket = zmq::Context::new().socket(zmq::PULL).map_err(of_zeromq)?;
    socket.bind(&address).map_err(of_zeromq)?;
    peer.tell(&json!({ "address": address, "shape": shape.shape, "images": shape.images }))?;
    let pattern = Pattern::new(shape.shape);
    let (mut begin, mut wrong) = (Instant::now(), 0_u64);
    for number in 0..shape.images {
        let message = socket.recv_msg(0).map_err(of_zeromq)?;
        if number == 0 {
            begin = Instant::now();
        }
        wrong += u64::from(!message.get(HEAD_BYTES..).is_some_and(|pixels| pattern.is(number, pixels)));
    }
    let seconds = begin.elapsed().as_secs_f64();
    peer.hear()?;
    if wrong > 0 {
        let why = format!("{wrong} of {} images are wrong", shape.images);
        return Err(Failure::new(Exit::Bug, "plain ZeroMQ of the bench has failed", why, "please report this"));
    }
    Ok((shape.images - 1) as f64 / seconds)
}

/// Pushes the images that the other end asks for.
///
/// # Errors
/// The socket failed.
pub fn push(told: &Value) -> Result<(), Failure> {
    let edge = |at: usize| told["shape"][at].as_u64().unwrap_or(1) as usize;
    let pattern = Pattern::new([edge(0), edge(1)]);
    let socket = zmq::Context::new().socket(zmq::PUSH).map_err(of_zeromq)?;
    socket.connect(told["address"].as_str().unwrap_or_default()).map_err(of_zeromq)?;
    for number in 0..told["images"].as_u64().unwrap_or(0) {
        socket.send(pattern.image(number), 0).map_err(of_zeromq)?;
    }
    Ok(())
}

fn of_zeromq(error: zmq::Error) -> Failure {
    failed("plain ZeroMQ of the bench has failed", &io::Error::other(error.to_string()))
}
