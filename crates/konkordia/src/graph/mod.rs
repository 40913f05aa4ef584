//! `konkordia graph`: stages of work on images in processes of their own, on one or more hosts (docs/graph.md).

mod analyse;
pub mod args;
mod convert;
mod discovery;
mod draw;
pub mod image;
mod links;
mod process;
mod python;
mod ranks;
mod read;
mod receive;
mod status;
mod stream;
pub mod trial;
mod work;
mod write;

use crate::console;
use crate::run::signals;
use args::{GraphCommand, GraphRunArgs};
use konkordia_core::failure::{Exit, Failure};
use konkordia_graph::file::{Graph, Place, Stage};
use links::Network;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How often the processes are looked at.
const LOOK: Duration = Duration::from_millis(20);
/// How long processes may take to end.
const ENDING: Duration = Duration::from_secs(10);
/// A process that dies so often is not started again.
const RESTARTS_MAX: u64 = 10_000;

/// `konkordia graph`
pub fn command(which: &GraphCommand) -> Result<Exit, Failure> {
    match which {
        GraphCommand::Run(args) => run(args),
        GraphCommand::Status(args) => {
            let (graph, folder) = (parsed(&args.graph)?, folder(&args.graph, args.folder.as_deref())?);
            status::command(&graph, &folder, args.json)
        }
        GraphCommand::Draw(args) => {
            let (graph, folder) = (parsed(&args.graph)?, folder(&args.graph, args.folder.as_deref())?);
            draw::command(&graph, &folder, args)
        }
    }
}

fn parsed(path: &Path) -> Result<Graph, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| Failure::io("cannot read", path, &error))?;
    Graph::parse(&path.display().to_string(), &text)
}

fn folder(graph: &Path, given: Option<&Path>) -> Result<PathBuf, Failure> {
    let folder = given.map_or_else(|| graph.with_extension("run"), Path::to_owned);
    std::path::absolute(&folder).map_err(|error| Failure::io("cannot find", &folder, &error))
}

fn run(args: &GraphRunArgs) -> Result<Exit, Failure> {
    let (graph, folder) = (parsed(&args.graph)?, folder(&args.graph, args.folder.as_deref())?);
    std::fs::create_dir_all(&folder).map_err(|error| Failure::io("cannot make", &folder, &error))?;
    let stop = signals::stop_flag()?;
    if graph.uses_mpi() {
        return run_rank(&graph, args, &folder, &stop);
    }
    if !args.member.is_empty() {
        return run_members(&graph, args, &folder, &stop);
    }
    let is_ours = |stage: &Stage, index: usize| {
        args.stage.as_ref().is_none_or(|name| *name == stage.name)
            && args.host.as_ref().is_none_or(|name| name == stage.host_of(index))
    };
    let ours = |stage: &Stage| {
        let members = stage.members().enumerate().filter(|(index, _)| is_ours(stage, *index));
        members.map(|(_, member)| member).collect::<Vec<_>>()
    };
    let mut processes = Vec::new();
    for group in graph.groups() {
        let members: Vec<_> = group.iter().flat_map(|stage| ours(stage)).collect();
        members.iter().for_each(|member| _ = std::fs::remove_file(folder.join(format!("{member}.json"))));
        let may_die = group.iter().all(|stage| stage.kind.place() == Place::Inner);
        let is_last = group.iter().any(|stage| stage.kind.is_last());
        // Threads of one process if an edge between their stages is `inproc`.
        let is_one = group.len() > 1 && !members.is_empty();
        let together = if is_one { vec![members] } else { members.into_iter().map(|member| vec![member]).collect() };
        let new = |members| Member { members, may_die, is_last, restarts: 0, child: None, exit: None, died: None };
        processes.extend(together.into_iter().map(new));
    }
    if processes.is_empty() {
        let why = "no stage of the graph has this name, or runs on this host";
        return Err(Failure::new(Exit::Usage, "there is nothing to run", why, "give another --stage or --host, or neither"));
    }
    let outcome = Supervisor { args, folder: &folder, processes, over: None }.run(&stop);
    let states = status::read(&graph, &folder);
    report(args.json, &states, outcome.as_ref().ok());
    outcome.map(|(exit, _)| exit)
}

/// Runs members of stages as threads of this process, until all have finished or one has failed.
fn run_members(graph: &Graph, args: &GraphRunArgs, folder: &Path, stop: &AtomicBool) -> Result<Exit, Failure> {
    let context = &zmq::Context::new();
    let one = |member: &str| {
        let network = Network { graph, folder, context, post: None };
        let outcome = process::Process::open(&network, member, args.epoch).and_then(|process| process.run(stop));
        if outcome.is_err() {
            stop.store(true, Ordering::Release);
        }
        outcome
    };
    if let [member] = &args.member[..] {
        return one(member);
    }
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let named = |member: &str| std::thread::Builder::new().name(member.chars().take(15).collect());
        let started: Vec<_> = args.member.iter().map(|member| named(member).spawn_scoped(scope, || one(member))).collect();
        started
            .into_iter()
            .map(|thread| thread.map_err(|error| work::no_thread(&error))?.join().map_err(|_| failed_thread())?)
            .collect()
    });
    let exits = outcomes.into_iter().collect::<Result<Vec<_>, _>>()?;
    Ok([Exit::Interrupted, Exit::Incomplete].into_iter().find(|exit| exits.contains(exit)).unwrap_or(Exit::Complete))
}

fn failed_thread() -> Failure {
    Failure::new(Exit::Bug, "a stage of the graph has failed (a bug)", "its thread has panicked", "please report this")
}

/// Runs the member of this rank. The first one prints the report.
fn run_rank(graph: &Graph, args: &GraphRunArgs, folder: &Path, stop: &AtomicBool) -> Result<Exit, Failure> {
    let Some(member) = ranks::member_of_environment(graph) else {
        let processes = graph.members().count();
        let why = "an edge of it is MPI, and Open MPI has not started this process, or more processes than the graph has";
        let fix = format!("mpirun --with-ft ulfm -n {processes} konkordia graph run {}", args.graph.display());
        return Err(Failure::new(Exit::Usage, "the graph cannot run", why, fix));
    };
    let context = &zmq::Context::new();
    let post = Some(ranks::Post::open(graph)?);
    let exit = process::Process::open(&Network { graph, folder, context, post }, &member, args.epoch)?.run(stop)?;
    if graph.members().next().is_some_and(|(_, first)| first == member) {
        report(args.json, &status::read(graph, folder), None);
    }
    Ok(exit)
}

fn report(as_json: bool, states: &[(String, Value)], outcome: Option<&(Exit, u64)>) {
    if as_json {
        let processes: Vec<_> = states.iter().map(|(_, value)| value).collect();
        console::json(
            &json!({ "event": "report", "restarts": outcome.map(|(_, restarts)| restarts), "processes": processes }),
            true,
        );
    } else {
        console::to_stdout(&status::table(states));
    }
}

/// A process that is looked after.
struct Member {
    /// Members of stages: more than one if they are threads of it.
    members: Vec<String>,
    /// Others have its images; it is started again.
    may_die: bool,
    /// Of a stage that writes.
    is_last: bool,
    restarts: u64,
    child: Option<Child>,
    exit: Option<i32>,
    died: Option<Instant>,
}

/// Starts the processes, and those that die again.
struct Supervisor<'a> {
    args: &'a GraphRunArgs,
    folder: &'a Path,
    processes: Vec<Member>,
    /// Since when the last stages have ended.
    over: Option<Instant>,
}

impl Supervisor<'_> {
    /// How it ended, and how often a process was started again.
    fn run(mut self, stop: &AtomicBool) -> Result<(Exit, u64), Failure> {
        let outcome = self.look_after(stop);
        self.end();
        let restarts = self.processes.iter().map(|member| member.restarts).sum();
        outcome.map(|exit| (exit, restarts))
    }

    fn look_after(&mut self, stop: &AtomicBool) -> Result<Exit, Failure> {
        loop {
            if stop.load(Ordering::Acquire) {
                return Ok(Exit::Interrupted);
            }
            for at in 0..self.processes.len() {
                self.look_at(at)?;
            }
            self.leave_behind();
            if self.processes.iter().all(|member| member.exit.is_some()) {
                let is_incomplete = self.processes.iter().any(|member| member.exit == Some(Exit::Incomplete as i32));
                return Ok(if is_incomplete { Exit::Incomplete } else { Exit::Complete });
            }
            std::thread::sleep(LOOK);
        }
    }

    /// When the last stages have all images, nobody needs the processes between any more: one that is stopped is ended.
    fn leave_behind(&mut self) {
        let has_last = self.processes.iter().any(|member| member.is_last);
        let are_done = self.processes.iter().all(|member| !member.is_last || member.exit.is_some());
        if !has_last || !are_done {
            return;
        }
        let since = *self.over.get_or_insert_with(Instant::now);
        if since.elapsed() > ENDING {
            for member in self.processes.iter_mut().filter(|member| member.exit.is_none()) {
                if let Some(child) = &mut member.child {
                    _ = child.kill();
                    _ = child.wait();
                }
                (member.child, member.exit) = (None, Some(Exit::Complete as i32));
            }
        }
    }

    fn look_at(&mut self, at: usize) -> Result<(), Failure> {
        let (args, folder) = (self.args, self.folder);
        let member = &mut self.processes[at];
        if member.exit.is_some() {
            return Ok(());
        }
        let Some(child) = &mut member.child else {
            // A process that cannot even start is not started all the time.
            if member.died.is_none_or(|died| died.elapsed() > LOOK * 5) {
                member.child = Some(start(args, folder, &member.members)?);
            }
            return Ok(());
        };
        let Ok(Some(status)) = child.try_wait() else { return Ok(()) };
        member.child = None;
        if let Some(code @ (0 | 1)) = status.code() {
            member.exit = Some(code);
            return Ok(());
        }
        let was_killed = status.code().is_none();
        if was_killed && member.may_die && member.restarts < RESTARTS_MAX {
            member.restarts += 1;
            member.died = Some(Instant::now());
            return Ok(());
        }
        let why = match status.code() {
            Some(code) => format!("it ended with exit code {code}; what it said stands above"),
            None => format!("it was ended ({status}), and only processes between the first and the last stage are started again"),
        };
        let exit = [Exit::Usage, Exit::Configuration, Exit::State, Exit::Io]
            .into_iter()
            .find(|exit| Some(*exit as i32) == status.code());
        let fix = "mend the reason and run the graph again, into another file";
        Err(Failure::new(
            exit.unwrap_or(Exit::Incomplete),
            format!("the process {} of the graph is gone", member.members.join(", ")),
            why,
            fix,
        ))
    }

    /// Ends all that still run.
    fn end(&mut self) {
        let running = || |member: &mut Member| member.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)));
        for member in &mut self.processes {
            if let Some(child) = member.child.as_ref()
                && let Some(pid) = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw)
            {
                _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            }
        }
        let asked = Instant::now();
        while asked.elapsed() < ENDING && self.processes.iter_mut().any(running()) {
            std::thread::sleep(LOOK);
        }
        for child in self.processes.iter_mut().filter_map(|member| member.child.as_mut()) {
            _ = child.kill();
            _ = child.wait();
        }
    }
}

fn start(args: &GraphRunArgs, folder: &Path, members: &[String]) -> Result<Child, Failure> {
    let failed = |error: &std::io::Error| Failure::io("cannot start", Path::new(&members[0]), error);
    let program = std::env::current_exe().map_err(|error| failed(&error))?;
    // The later start of a process is the one that counts, also if another supervisor starts it.
    let epoch = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis());
    let mut command = Command::new(program);
    command.args(["graph", "run"]).arg(&args.graph).arg("--folder").arg(folder);
    members.iter().for_each(|member| _ = command.args(["--member", member]));
    command.args(["--epoch", &epoch.to_string()]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().map_err(|error| failed(&error))
}
