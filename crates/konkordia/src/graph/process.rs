//! One process of a stage: it serves the sockets of its edges, by the rules of `konkordia_graph`, and keeps a file with
//! its state for `konkordia graph status`.

use super::analyse::Analyse;
use super::convert::{Compress, Convert};
use super::links;
use super::python::{self, Function, Watched};
use super::status;
use super::work::{self, Order, Report, Reports};
use super::write::FileOfImages;
use super::{read, receive, stream};
use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded};
use konkordia_core::failure::{Exit, Failure};
use konkordia_graph::consumer::{Consumer, Verdict};
use konkordia_graph::file::{Graph, Kind, Stage};
use konkordia_graph::message::Message;
use konkordia_graph::producer::Producer;
use konkordia_zeromq::MonitoredSocket;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Longest wait for a message.
const WAIT_MS: i64 = 20;
/// Messages taken of one socket before others get their turn.
const TURN: usize = 64;
/// Images read ahead.
const AHEAD: usize = 4;
/// Orders that wait for the work: all images that may be in the graph, and floors.
const ORDERS_MAX: usize = 1 << 17;
/// How often the state is written.
const STATE_EVERY: Duration = Duration::from_millis(250);
/// How long partners are waited for at the end, silent ones too: a process that was stopped, or a host that was cut
/// off, still hears then that it is over.
const SILENT_MAX: Duration = Duration::from_secs(10);

/// The end of an edge.
struct Input {
    rules: Consumer,
    sockets: Vec<MonitoredSocket>,
    ended: BTreeSet<usize>,
    /// When each producer was heard last.
    heard: Vec<Instant>,
    /// The work was told that no more comes.
    is_over: bool,
    /// The floor that the work knows.
    floor: u64,
}

/// The beginning of an edge.
struct Output {
    rules: Producer<Arc<[u8]>>,
    router: MonitoredSocket,
}

/// The process.
pub struct Process<'a> {
    stage: &'a Stage,
    member: &'a str,
    state_file: std::path::PathBuf,
    input: Option<Input>,
    outputs: Vec<Output>,
    /// Images that so many edges have not finished.
    open: BTreeMap<u64, usize>,
    /// Made, and without room at an edge: only where images are read.
    made: Option<(u64, Vec<u8>)>,
    orders: Sender<Order>,
    reports: Receiver<Report>,
    wake: zmq::Socket,
    watched: Option<Arc<Mutex<Watched>>>,
    began: Instant,
    has_ended: bool,
    offered_end: u64,
    refused: Option<String>,
    /// Not all images came from outside.
    is_short: bool,
    state_at: Option<Instant>,
}

impl<'a> Process<'a> {
    /// Opens the sockets of a member, and starts its work.
    ///
    /// # Errors
    /// An address cannot be used, or there is no such member.
    pub fn open(graph: &'a Graph, member: &'a str, epoch: u64, folder: &Path) -> Result<Self, Failure> {
        let found = graph.stages.iter().find_map(|stage| Some((stage, stage.members().position(|name| name == member)?)));
        let (stage, index) = found.ok_or_else(|| {
            let why = format!("the graph has no process '{member}'");
            Failure::new(Exit::Usage, "a process of a graph cannot be started", why, "use `konkordia graph run GRAPH`")
        })?;
        let context = zmq::Context::new();
        let place = folder.display().to_string();
        let mut outputs = Vec::new();
        for edge in graph.behind(&stage.name) {
            let router = links::listen(&context, &graph.address(edge, index as u32, &place))?;
            outputs.push(Output { rules: Producer::new(&edge.to, edge.policy, graph.limits(edge)), router });
        }
        let mut input = None;
        if let Some((edge, from)) = graph.before(&stage.name).and_then(|edge| Some((edge, graph.stage(&edge.from)?))) {
            let connect = |index| links::connect(&context, &graph.address(edge, index, &place), member);
            let sockets = (0..from.workers).map(connect).collect::<Result<Vec<_>, _>>()?;
            let rules = Consumer::new(&stage.name, member, epoch, edge.window, sockets.len());
            let heard = vec![Instant::now(); sockets.len()];
            input = Some(Input { rules, sockets, ended: BTreeSet::new(), heard, is_over: false, floor: 0 });
        }
        let (orders, taken) = bounded(ORDERS_MAX);
        let (to, reports) = bounded(AHEAD);
        let (wake, waker) = pair(&context)?;
        let watched = start(stage, taken, Reports { to, wake: waker })?;
        let state_file = folder.join(format!("{member}.json"));
        Ok(Self {
            stage,
            member,
            state_file,
            input,
            outputs,
            open: BTreeMap::new(),
            made: None,
            orders,
            reports,
            wake,
            watched,
            began: Instant::now(),
            has_ended: false,
            offered_end: 0,
            refused: None,
            is_short: false,
            state_at: None,
        })
    }

    fn now_ms(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }

    /// Runs until all images are finished.
    ///
    /// # Errors
    /// The work of the stage cannot go on, or a partner has another version.
    pub fn run(mut self, stop: &AtomicBool) -> Result<Exit, Failure> {
        let mut ended_at = None;
        while !stop.load(Ordering::Acquire) {
            self.wait();
            let now_ms = self.now_ms();
            self.take_reports()?;
            self.serve_input(now_ms)?;
            (0..self.outputs.len()).for_each(|at| self.serve_output(at, now_ms));
            self.watch_work();
            self.write_state("running", false)?;
            if self.is_finished() {
                let at = *ended_at.get_or_insert_with(Instant::now);
                if self.outputs.iter().all(|output| output.rules.is_left()) || at.elapsed() > SILENT_MAX {
                    break;
                }
            }
        }
        let is_finished = self.is_finished();
        if let Some(input) = &mut self.input {
            if !is_finished {
                input.rules.leave();
            }
            while let Some((link, message)) = input.rules.next_message() {
                _ = input.sockets[link].socket.send(message.encode(), zmq::DONTWAIT);
            }
        }
        self.write_state(if is_finished { "finished" } else { "stopped" }, true)?;
        let given_up = self.is_short || self.outputs.iter().any(|output| output.rules.account().given_up > 0);
        Ok(match (is_finished, given_up) {
            (false, _) => Exit::Interrupted,
            (true, true) => Exit::Incomplete,
            (true, false) => Exit::Complete,
        })
    }

    fn is_finished(&self) -> bool {
        self.has_ended && self.outputs.iter().all(|output| output.rules.is_finished())
    }

    /// Waits until a socket has something.
    fn wait(&self) {
        let routers = self.outputs.iter().map(|output| &output.router);
        let sockets = routers.chain(self.input.iter().flat_map(|input| &input.sockets)).map(|socket| &socket.socket);
        let mut items: Vec<_> = sockets.chain([&self.wake]).map(|socket| socket.as_poll_item(zmq::POLLIN)).collect();
        // An error is one of a signal: the loop looks whether to stop.
        _ = zmq::poll(&mut items, WAIT_MS);
        while self.wake.recv_msg(zmq::DONTWAIT).is_ok() {}
    }

    fn take_reports(&mut self) -> Result<(), Failure> {
        loop {
            if let Some((id, image)) = self.made.take()
                && !self.offer(id, image)
            {
                return Ok(());
            }
            match self.reports.try_recv() {
                Ok(report) => self.take(report)?,
                Err(TryRecvError::Disconnected) if !self.has_ended => {
                    let what = format!("the work of {} has ended (a bug)", self.member);
                    return Err(Failure::new(Exit::Bug, what, "", "please report this"));
                }
                Err(_) => return Ok(()),
            }
        }
    }

    fn take(&mut self, report: Report) -> Result<(), Failure> {
        match report {
            Report::Made(id, image) => self.made = Some((id, image)),
            Report::Done(id) => self.finish(id),
            Report::Kept(id) => self.with_input(|rules| rules.passed(id)),
            Report::Refused(id, why) => {
                self.refused = Some(format!("image {id}: {why}"));
                self.with_input(|rules| rules.refuse(id, &why));
            }
            Report::Short(why) => {
                crate::console::note(&why);
                (self.refused, self.is_short) = (Some(why), true);
            }
            Report::Ended => {
                self.has_ended = true;
                self.outputs.iter_mut().for_each(|output| output.rules.end());
            }
            Report::Broken(failure) => {
                self.refused = Some(failure.to_string());
                self.write_state("failed", true)?;
                return Err(failure);
            }
        }
        Ok(())
    }

    fn with_input(&mut self, each: impl FnOnce(&mut Consumer)) {
        if let Some(input) = &mut self.input {
            each(&mut input.rules);
        }
    }

    fn finish(&mut self, id: u64) {
        self.with_input(|rules| rules.done(id));
    }

    /// Hands an image to all edges. False, and it is kept, if one has no room.
    fn offer(&mut self, id: u64, image: Vec<u8>) -> bool {
        if self.outputs.is_empty() {
            self.finish(id);
            return true;
        }
        let has_room = self.outputs.iter().all(|output| output.rules.has_room(id));
        self.with_input(|rules| rules.set_blocked(!has_room));
        if !has_room {
            self.made = Some((id, image));
            return false;
        }
        let image: Arc<[u8]> = image.into();
        for output in &mut self.outputs {
            if output.rules.offer(id, id, Arc::clone(&image)) {
                *self.open.entry(id).or_default() += 1;
            }
        }
        self.offered_end = self.offered_end.max(id + 1);
        self.with_input(|rules| rules.passed(id));
        true
    }

    fn serve_input(&mut self, now_ms: u64) -> Result<(), Failure> {
        let Some(input) = &mut self.input else { return Ok(()) };
        for link in 0..input.sockets.len() {
            input.sockets[link].note_peers(|_| ());
            for _ in 0..TURN {
                let Some(mut parts) = links::take(&input.sockets[link].socket, 2) else { break };
                let image = if parts.len() == 2 { parts.pop() } else { None };
                let Some(message) = parts.first().and_then(|head| Message::decode(head).ok()) else { continue };
                input.heard[link] = Instant::now();
                match (input.rules.arrived(link, message), image) {
                    (Verdict::Take(id), Some(image)) => _ = self.orders.send(Order::Image(id, image)),
                    (Verdict::Take(id), None) => input.rules.refuse(id, "no pixels came with it"),
                    (Verdict::Refused(why), _) => {
                        let what = format!("{} cannot take part in the graph", self.member);
                        return Err(Failure::new(
                            Exit::Configuration,
                            what,
                            why,
                            "start all hosts with one graph file and version",
                        ));
                    }
                    (Verdict::Ended, _) => _ = input.ended.insert(link),
                    (Verdict::Nothing, _) => (),
                }
            }
        }
        // A producer that is silent while all others have ended has died at the very end; others have its images.
        let is_over = |link: usize| input.ended.contains(&link) || input.heard[link].elapsed() > SILENT_MAX;
        if !input.is_over && !input.ended.is_empty() && (0..input.sockets.len()).all(is_over) {
            input.is_over = true;
            _ = self.orders.send(Order::End);
        }
        if input.rules.floor() > input.floor {
            let floor = input.rules.floor();
            if self.stage.kind != Kind::Write || self.orders.try_send(Order::Floor(floor)).is_ok() {
                input.floor = floor;
            }
        }
        input.rules.tick(now_ms);
        while let Some((link, message)) = input.rules.next_message() {
            // Without a connection it is lost; the producer asks again.
            _ = input.sockets[link].socket.send(message.encode(), zmq::DONTWAIT);
        }
        Ok(())
    }

    fn serve_output(&mut self, at: usize, now_ms: u64) {
        let floor = match &self.input {
            Some(input) => input.rules.floor(),
            None => self.outputs.iter().filter_map(|output| output.rules.oldest()).min().unwrap_or(self.offered_end),
        };
        let output = &mut self.outputs[at];
        output.rules.set_floor(floor);
        output.router.note_peers(|_| ());
        let mut finished = Vec::new();
        for _ in 0..TURN * 16 {
            let Some(parts) = links::take(&output.router.socket, 2) else { break };
            let [from, head] = &parts[..] else { continue };
            let (Some(from), Ok(message)) = (from.as_str(), Message::decode(head)) else { continue };
            finished.extend(output.rules.arrived(from, message, now_ms));
        }
        output.rules.tick(now_ms);
        while let Some(work) = output.rules.next_work(now_ms) {
            if !links::send(&output.router, &work.to, &work.message, Some(&work.payload)) {
                output.rules.unreachable(&work.to);
            }
        }
        while let Some((to, message)) = output.rules.next_message() {
            if !links::send(&output.router, &to, &message, None) {
                output.rules.unreachable(&to);
            }
        }
        for (id, _) in finished {
            if let Some(left) = self.open.get_mut(&id) {
                *left -= 1;
                if *left == 0 {
                    self.open.remove(&id);
                    self.finish(id);
                }
            }
        }
    }

    /// Ends a function that takes too long.
    fn watch_work(&self) {
        if let Some(watched) = &self.watched {
            python::watch(watched, self.stage.response_ms_max);
        }
    }

    fn write_state(&mut self, state: &str, is_last: bool) -> Result<(), Failure> {
        if !is_last && self.state_at.is_some_and(|at| at.elapsed() < STATE_EVERY) {
            return Ok(());
        }
        self.state_at = Some(Instant::now());
        let edges = self.outputs.iter().map(|output| status::edge(&output.rules)).collect();
        let counts = self.watched.as_ref().map(|watched| python::watch(watched, u64::MAX));
        let input = self.input.as_ref().map(|input| &input.rules);
        let value = status::process(self.member, &self.stage.name, state, input, edges, counts, self.refused.as_deref());
        status::write(&self.state_file, &value)
    }
}

fn pair(context: &zmq::Context) -> Result<(zmq::Socket, zmq::Socket), Failure> {
    let make = || {
        let (here, there) = (context.socket(zmq::PAIR)?, context.socket(zmq::PAIR)?);
        here.bind("inproc://work")?;
        there.connect("inproc://work")?;
        Ok((here, there))
    };
    make().map_err(|error: zmq::Error| {
        Failure::new(
            Exit::Io,
            "a process of a graph cannot have sockets",
            error.to_string(),
            "look at the limit of open files: ulimit -n",
        )
    })
}

/// Starts the work of a stage.
fn start(stage: &Stage, orders: Receiver<Order>, reports: Reports) -> Result<Option<Arc<Mutex<Watched>>>, Failure> {
    let thread = std::thread::Builder::new().name("stage".into());
    let mut watched = None;
    let own = stage.clone();
    let started = match stage.kind {
        Kind::Files => thread.spawn(move || read::read(&own, &reports)),
        Kind::Stream => thread.spawn(move || stream::receive(&own, &reports)),
        Kind::Receive => thread.spawn(move || receive::receive(&own, reports)),
        Kind::Convert => thread.spawn(move || work::work(Convert::new(&own), &orders, &reports)),
        Kind::Analyse => thread.spawn(move || work::work(Analyse::new(&own), &orders, &reports)),
        Kind::Compress => thread.spawn(move || work::work(Compress::new(&own), &orders, &reports)),
        Kind::Python | Kind::Program => {
            let function = Function::new(stage);
            watched = Some(function.watched());
            thread.spawn(move || work::work(function, &orders, &reports))
        }
        Kind::Write => thread.spawn(move || FileOfImages::new(&own).write(&orders, &reports)),
    };
    started.map(|_| watched).map_err(|error| work::no_thread(&error))
}
