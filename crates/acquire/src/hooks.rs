//! Programs of the user that drive the detector (`[control]`). Each has a time limit. When one fails, its stderr is
//! reported as the reason.

use crossbeam_channel::Receiver;
use konkordia_core::failure::{Exit, Failure, reason};
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Most bytes of stderr that are kept.
const SAID_BYTES_MAX: u64 = 4096;
/// Most bytes of an answer.
const ANSWER_BYTES_MAX: u64 = 1 << 20;
const GRAIN: Duration = Duration::from_millis(10);

/// What a program gets in its environment.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// Name of the detector.
    pub detector: String,
    /// Number of the run.
    pub run: u64,
    /// Images of the run, if planned.
    pub images: Option<u64>,
    /// Master file, if one is written.
    pub file: Option<String>,
}

/// Runs `program` (with its arguments) to its end, at most `timeout`. An empty program does nothing.
///
/// # Errors
/// It cannot be started, takes too long, or ends with another code than 0.
pub fn run(hook: &str, program: &[String], timeout: Duration, about: &About) -> Result<(), Failure> {
    run_with(hook, program, timeout, about, &[])
}

/// As [`run`], with additional environment variables.
///
/// # Errors
/// As of [`run`].
pub fn run_with(hook: &str, program: &[String], timeout: Duration, about: &About, more: &[(&str, &str)]) -> Result<(), Failure> {
    let Some(name) = program.first() else { return Ok(()) };
    let what = if hook.contains('.') { format!("{hook}: {name} failed") } else { format!("control.{hook}: {name} failed") };
    let ended = execute(&Call { what: &what, program, timeout, about, more, input: None })?;
    let fail = |why| Failure::new(Exit::State, what, why, "run it by hand to see why");
    ended.why().map_or(Ok(()), |why| Err(fail(why)))
}

/// A program that is to be run.
pub struct Call<'a> {
    /// What is said first if it fails.
    pub what: &'a str,
    /// Program and arguments; not empty.
    pub program: &'a [String],
    /// It is killed after this time.
    pub timeout: Duration,
    /// What it gets in its environment.
    pub about: &'a About,
    /// More for its environment.
    pub more: &'a [(&'a str, &'a str)],
    /// What it reads from stdin, whose answer on stdout is read then.
    pub input: Option<Vec<u8>>,
}

/// A program that has ended in time.
pub struct Ended {
    status: ExitStatus,
    /// What it wrote to stdout, if it had an input.
    pub answer: String,
    stderr: String,
}

impl Ended {
    /// Why it failed; `None` if it did not.
    pub fn why(&self) -> Option<String> {
        let (status, text) = (self.status, self.stderr.trim());
        match (status.success(), text.is_empty()) {
            (true, _) => None,
            (false, true) => Some(format!("it ended with {status}")),
            (false, false) => Some(format!("it ended with {status} and said: {text}")),
        }
    }

    /// What it wrote to stderr.
    pub fn said(&self) -> &str {
        self.stderr.trim()
    }
}

/// Runs a program to its end.
///
/// # Errors
/// It cannot be started, or takes too long.
pub fn execute(call: &Call<'_>) -> Result<Ended, Failure> {
    let fail = |why: String, fix: &str| Failure::new(Exit::State, call.what, why, fix);
    let mut command = command_of(call);
    let mut child = command.spawn().map_err(|error| {
        fail(reason(&error), "check the path of the program and that this user may run it; it is started without a shell")
    })?;
    let said = listen(&mut child);
    let answer = child.stdout.take().and_then(|stdout| collect(stdout, ANSWER_BYTES_MAX));
    if let (Some(input), Some(mut stdin)) = (call.input.clone(), child.stdin.take()) {
        // A program that does not read it ends the pipe, and that is its matter.
        let write = move || drop(stdin.write_all(&input));
        let _ = std::thread::Builder::new().name("hook".into()).stack_size(128 << 10).spawn(write);
    }
    let until = Instant::now() + call.timeout;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() >= until => {
                end(&mut child);
                let why = format!("it had not ended after {} s and was killed", call.timeout.as_secs_f64());
                return Err(fail(why, "make it quicker, or raise control.timeout_s"));
            }
            Ok(None) => std::thread::sleep(GRAIN),
            Err(error) => return Err(fail(reason(&error), "look at the system log")),
        }
    };
    // A process that the program left behind may still hold its outputs open. What has arrived by now is enough.
    let text = |from: Option<Receiver<String>>| {
        from.map(|text| text.recv_timeout(Duration::from_millis(200)).unwrap_or_default()).unwrap_or_default()
    };
    Ok(Ended { status, answer: text(answer), stderr: text(said) })
}

fn command_of(call: &Call<'_>) -> Command {
    let mut command = Command::new(call.program.first().map_or("", String::as_str));
    let pipe = || if call.input.is_some() { Stdio::piped() } else { Stdio::null() };
    command.args(call.program.iter().skip(1)).stdin(pipe()).stdout(pipe()).stderr(Stdio::piped());
    // In a process group of its own: a Ctrl-C for the service does not reach the program, and its children can be ended
    // with it.
    command.process_group(0);
    let About { detector, run, images, file } = call.about;
    command.env("KONKORDIA_DETECTOR", detector).env("KONKORDIA_RUN", run.to_string());
    command.env("KONKORDIA_IMAGES", images.map_or(String::new(), |n| n.to_string()));
    command.env("KONKORDIA_FILE", file.as_deref().unwrap_or(""));
    command.envs(call.more.iter().copied());
    command
}

/// Collects what the program writes to stderr.
pub(crate) fn listen(child: &mut Child) -> Option<Receiver<String>> {
    collect(child.stderr.take()?, SAID_BYTES_MAX)
}

/// Collects what comes from a pipe of a program.
fn collect(mut pipe: impl Read + Send + 'static, bytes_max: u64) -> Option<Receiver<String>> {
    let (sender, receiver) = crossbeam_channel::bounded(1);
    let read = move || {
        let mut text = Vec::new();
        let _ = (&mut pipe).take(bytes_max).read_to_end(&mut text);
        let _ = sender.send(String::from_utf8_lossy(&text).into_owned());
        // Reads the rest too, because a full pipe would stop the program.
        let _ = std::io::copy(&mut pipe, &mut std::io::sink());
    };
    std::thread::Builder::new().name("hook".into()).stack_size(128 << 10).spawn(read).ok()?;
    Some(receiver)
}

/// Ends the program and everything in its group.
pub(crate) fn end(child: &mut Child) {
    let group = format!("-{}", child.id());
    let _ = Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status();
    let _ = child.kill();
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str, timeout_ms: u64) -> Result<(), Failure> {
        let program = ["sh", "-c", script].map(str::to_string);
        let about = About { detector: "eiger".into(), run: 7, images: Some(3), file: Some("/x".into()) };
        run("on_arm", &program, Duration::from_millis(timeout_ms), &about)
    }

    #[test]
    fn programs_say_why_they_fail() {
        assert_eq!(run("on_arm", &[], Duration::ZERO, &About::default()), Ok(()));
        assert_eq!(sh("test $KONKORDIA_RUN = 7 && test $KONKORDIA_DETECTOR = eiger && test $KONKORDIA_IMAGES = 3", 5000), Ok(()));
        let failed = sh("echo the valve is closed >&2; exit 3", 5000).unwrap_err();
        assert!(failed.why.contains("exit status: 3") && failed.why.contains("the valve is closed"), "{failed}");
        let missing = run("on_stop", &["/no/such/program".into()], Duration::from_secs(1), &About::default()).unwrap_err();
        assert!(missing.what.contains("control.on_stop") && missing.why.contains("No such file"), "{missing}");
    }

    #[test]
    fn programs_that_hang_are_ended_with_their_children() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("child");
        let failed = sh(&format!("sleep 600 & echo $! > {}; sleep 600", file.display()), 2000).unwrap_err();
        assert!(failed.why.contains("had not ended after 2 s"), "{failed}");
        let child = std::fs::read_to_string(&file).unwrap();
        let limit = Instant::now() + Duration::from_secs(60);
        while runs(child.trim()) {
            assert!(Instant::now() < limit, "the child of the program goes on");
            std::thread::sleep(GRAIN);
        }
    }

    /// True until a process ends. One that has ended may still wait for its parent (state Z).
    fn runs(process: &str) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with(['Z', 'X']))
    }

    #[test]
    fn a_talkative_program_is_not_stopped_by_a_full_pipe() {
        assert_eq!(sh("head -c 1000000 /dev/zero >&2", 10_000), Ok(()));
    }
}
