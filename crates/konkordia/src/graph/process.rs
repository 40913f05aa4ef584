//! One process of a stage: it serves the sockets of its edges, by the rules of `konkordia_graph`, and keeps a file with
//! its state for `konkordia graph status`.

use super::analyse::Analyse;
use super::convert::{Compress, Convert};
use super::discovery::{self, End, Finder};
use super::links::{Connection, Listener, Network};
use super::python::{self, Function, Watched};
use super::status;
use super::trial::{self, Wait};
use super::work::{self, Ahead, Order, Report, Reports};
use super::write::FileOfImages;
use super::{read, receive, stream};
use crate::console;
use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded};
use konkordia_core::failure::{Exit, Failure};
use konkordia_graph::consumer::{Consumer, Verdict};
use konkordia_graph::file::{Edge, Kind, Stage, Transport};
use konkordia_graph::producer::Producer;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Longest wait for a message.
const WAIT_MS: i64 = 20;
/// Messages taken of one socket before others get their turn.
const TURN: usize = 64;
/// Reports that wait for the sockets; the bytes of images in them have a bound of their own.
const REPORTS_MAX: usize = 1024;
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
    links: Vec<Connection>,
    ended: BTreeSet<usize>,
    /// When each producer was heard last.
    heard: Vec<Instant>,
    /// The work was told that no more comes.
    is_over: bool,
    /// The floor that the work knows.
    floor: u64,
}

impl Input {
    /// Sends what the rules have to say.
    fn answer(&mut self) {
        while let Some((link, message)) = self.rules.next_message() {
            self.links[link].say(&message);
        }
        self.links.iter_mut().for_each(Connection::flush);
    }
}

/// The beginning of an edge.
struct Output {
    rules: Producer<Arc<Vec<u8>>>,
    listener: Listener,
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
    is_asleep: Arc<AtomicBool>,
    ahead: Arc<Ahead>,
    watched: Option<Arc<Mutex<Watched>>>,
    network: Network<'a>,
    finder: Option<Finder>,
    began: Instant,
    /// When the first image was taken or made, and when the last one was finished.
    first_last: Option<(Instant, Instant)>,
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
    pub fn open(network: &Network<'a>, member: &'a str, epoch: u64) -> Result<Self, Failure> {
        let (graph, context) = (network.graph, network.context);
        let found = graph.stages.iter().find_map(|stage| Some((stage, stage.members().position(|name| name == member)?)));
        let (stage, index) = found.ok_or_else(|| {
            let why = format!("the graph has no process '{member}'");
            Failure::new(Exit::Usage, "a process of a graph cannot be started", why, "use `konkordia graph run GRAPH`")
        })?;
        let mut outputs = Vec::new();
        for edge in graph.behind(&stage.name) {
            let listener = network.listen(edge, index as u32)?;
            outputs.push(Output { rules: Producer::new(&edge.to, edge.policy, graph.limits(edge)), listener });
        }
        let mut input = None;
        if let Some((edge, from)) = graph.before(&stage.name).and_then(|edge| Some((edge, graph.stage(&edge.from)?))) {
            // With a directory they are connected when they are found.
            let known = if is_found(network, edge) { 0 } else { from.workers };
            let links = (0..known).map(|index| network.connect(edge, index, member)).collect::<Result<Vec<_>, _>>()?;
            let rules = Consumer::new(&stage.name, member, epoch, edge.window, links.len());
            let heard = vec![Instant::now(); links.len()];
            input = Some(Input { rules, links, ended: BTreeSet::new(), heard, is_over: false, floor: 0 });
        }
        let finder = find(network, stage, (member, index), &outputs)?;
        let (orders, taken) = bounded(ORDERS_MAX);
        let (to, reports) = bounded(REPORTS_MAX);
        let ahead = Arc::new(Ahead::default());
        let (wake, waker) = pair(context, member)?;
        let is_asleep = Arc::new(AtomicBool::new(false));
        let reports_to = Reports { to, ahead: Arc::clone(&ahead), wake: waker, is_asleep: Arc::clone(&is_asleep) };
        let watched = start(stage, taken, reports_to)?;
        let state_file = network.folder.join(format!("{member}.json"));
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
            is_asleep,
            ahead,
            watched,
            network: network.clone(),
            finder,
            began: Instant::now(),
            first_last: None,
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
            self.take_found();
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
            input.answer();
        }
        if let Some(post) = &self.network.post {
            post.borrow_mut().flush();
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
        let listeners = self.outputs.iter().filter_map(|output| output.listener.socket());
        let sockets = listeners.chain(self.input.iter().flat_map(|input| &input.links).filter_map(Connection::socket));
        let mut items: Vec<_> = sockets.chain([&self.wake]).map(|socket| socket.as_poll_item(zmq::POLLIN)).collect();
        // A report that comes after this wakes; one that came before is found here.
        self.is_asleep.store(true, Ordering::SeqCst);
        let has_work = self.made.is_none() && !self.reports.is_empty();
        // An error is one of a signal: the loop looks whether to stop.
        match &self.network.post {
            _ if has_work => (),
            None => _ = zmq::poll(&mut items, WAIT_MS),
            Some(post) => {
                let most = Duration::from_millis(WAIT_MS.unsigned_abs());
                post.borrow_mut().wait(most, || zmq::poll(&mut items, 0).unwrap_or(1) > 0);
            }
        }
        self.is_asleep.store(false, Ordering::SeqCst);
        while self.wake.recv_msg(zmq::DONTWAIT).is_ok() {}
    }

    /// Connects to those that were found in the directory.
    fn take_found(&mut self) {
        let (Some(finder), Some(input)) = (&self.finder, &mut self.input) else { return };
        while let Some(address) = finder.found() {
            let connection = match self.network.connect_to(&address, self.member) {
                Ok(connection) => connection,
                Err(failure) => {
                    console::to_stderr(&format!("what was found in the directory cannot be used: {failure}"));
                    continue;
                }
            };
            input.links.push(connection);
            input.heard.push(Instant::now());
            input.rules.add_link();
        }
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
            Report::Made(id, image) => {
                self.ahead.taken(image.len());
                self.made = Some((id, image));
            }
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
        if let Some((_, last)) = &mut self.first_last {
            *last = Instant::now();
        }
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
        let image = Arc::new(image);
        for output in &mut self.outputs {
            if output.rules.offer(id, id, Arc::clone(&image)) {
                *self.open.entry(id).or_default() += 1;
            }
        }
        self.offered_end = self.offered_end.max(id + 1);
        self.first_last.get_or_insert_with(|| (Instant::now(), Instant::now()));
        self.with_input(|rules| rules.passed(id));
        true
    }

    fn serve_input(&mut self, now_ms: u64) -> Result<(), Failure> {
        let Some(input) = &mut self.input else { return Ok(()) };
        for link in 0..input.links.len() {
            input.links[link].look();
            for _ in 0..TURN {
                let Some(taken) = input.links[link].take() else { break };
                let Some((message, image)) = taken else { continue };
                input.heard[link] = Instant::now();
                match (input.rules.arrived(link, message), image) {
                    (Verdict::Take(id), Some(image)) => {
                        self.first_last.get_or_insert_with(|| (Instant::now(), Instant::now()));
                        _ = self.orders.send(Order::Image(id, image));
                    }
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
        if !input.is_over && !input.ended.is_empty() && (0..input.links.len()).all(is_over) {
            input.is_over = true;
            _ = self.orders.send(Order::End);
        }
        if input.rules.floor() > input.floor {
            let floor = input.rules.floor();
            if !self.stage.kind.is_last() || self.orders.try_send(Order::Floor(floor)).is_ok() {
                input.floor = floor;
            }
        }
        input.rules.tick(now_ms);
        input.answer();
        Ok(())
    }

    fn serve_output(&mut self, at: usize, now_ms: u64) {
        let floor = match &self.input {
            Some(input) => input.rules.floor(),
            None => self.outputs.iter().filter_map(|output| output.rules.oldest()).min().unwrap_or(self.offered_end),
        };
        let output = &mut self.outputs[at];
        output.rules.set_floor(floor);
        let (dead, has_lost) = output.listener.look();
        dead.iter().for_each(|dead| output.rules.unreachable(dead, now_ms));
        if has_lost {
            output.rules.probe();
        }
        for _ in 0..TURN * 16 {
            let Some(taken) = output.listener.take() else { break };
            let Some((from, messages)) = taken else { continue };
            messages.into_iter().for_each(|message| output.rules.arrived(&from, message, now_ms));
        }
        output.rules.tick(now_ms);
        while let Some(work) = output.rules.next_work(now_ms) {
            if !output.listener.send(&work.to, &work.message, Some(&work.payload)) {
                output.rules.unreachable(&work.to, now_ms);
            }
        }
        while let Some((to, message)) = output.rules.next_message() {
            if !output.listener.send(&to, &message, None) {
                output.rules.unreachable(&to, now_ms);
            }
        }
        while let Some((id, _)) = self.outputs[at].rules.next_finished() {
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
        let mut value = status::process(self.member, &self.stage.name, state, input, edges, counts, self.refused.as_deref());
        value["discovery"] = self.finder.as_ref().and_then(Finder::trouble).into();
        value["seconds"] = self.first_last.map(|(first, last)| (last - first).as_secs_f64()).into();
        status::write(&self.state_file, &value)
    }
}

/// True if the two sides of an edge find each other in a directory.
fn is_found(network: &Network<'_>, edge: &Edge) -> bool {
    network.graph.discovery.is_some() && edge.transport == Transport::Tcp
}

/// Announces where a process listens, and looks for those of the stage before it.
fn find(network: &Network<'_>, stage: &Stage, member: (&str, usize), outputs: &[Output]) -> Result<Option<Finder>, Failure> {
    let Some(discovery) = &network.graph.discovery else { return Ok(None) };
    let (member, index) = member;
    let host = match network.graph.address_of(stage.host_of(index)) {
        Some(host) => host.to_owned(),
        None => discovery::own_address(discovery)?.to_string(),
    };
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    let edges = network.graph.behind(&stage.name).zip(outputs).filter(|(edge, _)| is_found(network, edge));
    let end = |edge: &Edge| End { from: edge.from.clone(), to: edge.to.clone() };
    let addresses: Vec<_> =
        edges.filter_map(|(edge, output)| Some((end(edge), format!("tcp://{host}:{}", output.listener.port()?)))).collect();
    let wanted = network.graph.before(&stage.name).filter(|edge| is_found(network, edge)).map(end);
    Finder::start(discovery, member, addresses, wanted).map(Some)
}

impl Drop for Process<'_> {
    fn drop(&mut self) {
        self.ahead.close();
    }
}

fn pair(context: &zmq::Context, member: &str) -> Result<(zmq::Socket, zmq::Socket), Failure> {
    let make = || {
        let (here, there) = (context.socket(zmq::PAIR)?, context.socket(zmq::PAIR)?);
        let address = format!("inproc://work of {member}");
        here.bind(&address)?;
        there.connect(&address)?;
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
        Kind::Pattern => thread.spawn(move || trial::pattern(&own, &reports)),
        Kind::Wait => thread.spawn(move || work::work(Wait::new(&own), &orders, &reports)),
        Kind::Discard => thread.spawn(move || trial::discard(own.compare == Some(true), &orders, &reports)),
        Kind::Write => thread.spawn(move || FileOfImages::new(&own).write(&orders, &reports)),
    };
    started.map(|_| watched).map_err(|error| work::no_thread(&error))
}
