//! `konkordia demo --scenario`: a receiver of a fabric and its simulated detector behind a link with faults, as the
//! commands that people type. What the receiver counted is compared with what the link did. All of it is software.

use super::accounts::{FAULTS, Receiving, Row, failed, number, program, show, sum, words};
use crate::cli::{DemoArgs, ScenarioArg};
use crate::console;
use konkordia_core::failure::{Exit, Failure, reason};
use konkordia_fabric::bridge::ShippedProgram;
use serde_json::{Value, json};
use std::net::{Ipv4Addr, UdpSocket};
use std::time::Instant;

/// The commands of a scenario.
struct Scenario {
    title: &'static str,
    receive: Vec<String>,
    /// What the receiver prints when packets may come.
    ready: &'static str,
    simulate: Vec<String>,
    /// Numbers that must agree.
    compare: fn(&Value, &Value) -> Vec<Row>,
    /// What to look at afterwards.
    next: String,
}

/// Runs the scenario.
pub fn command(args: &DemoArgs, scenario: ScenarioArg) -> Result<Exit, Failure> {
    let begun = Instant::now();
    std::fs::create_dir_all(&args.dir).map_err(|e| Failure::io("cannot make", &args.dir, &e))?;
    let scenario = match scenario {
        ScenarioArg::Rashpa => return super::rashpa::command(args),
        ScenarioArg::Roce => roce(args)?,
        ScenarioArg::Bridge => bridge(args)?,
        ScenarioArg::Trains => trains(args)?,
    };
    let say = |line: &str| if args.json { console::to_stderr(line) } else { console::to_stdout(line) };
    say(&format!("{} (all in software, over loopback)\n", scenario.title));
    say(&format!("1  the receiver:\n       konkordia {}", scenario.receive.join(" ")));
    let mut receiver = Receiving::start(&scenario.receive, scenario.ready)?;
    say(&format!("2  the detector, behind a link with faults:\n       konkordia {}", scenario.simulate.join(" ")));
    let sent = simulate(&scenario.simulate)?;
    say("3  comparing what the receiver counted with what the link did ...\n");
    let received = receiver.report()?;
    let rows = (scenario.compare)(&sent, &received);
    let agrees = show(args, &rows, json!({ "sent": sent, "received": received }));
    say(&format!("next      {}\n\ndone in {:.1} s", scenario.next, begun.elapsed().as_secs_f64()));
    Ok(if agrees { Exit::Complete } else { Exit::Incomplete })
}

/// The command with the faults of the link and the seed.
fn behind_link(args: &DemoArgs, mut command: Vec<String>) -> Vec<String> {
    command.extend(FAULTS.map(str::to_owned));
    command.extend(["--seed".into(), args.seed.to_string(), "--json".into()]);
    command
}

/// Two modules of a JUNGFRAU that write their frames by RoCEv2.
fn roce(args: &DemoArgs) -> Result<Scenario, Failure> {
    const MEMORY: (u32, u32, u64, u16) = (700, 4660, 1 << 20, 64);
    let (queue_pair, key, address, pages) = MEMORY;
    let port = free_ports(1)?;
    let text = format!(
        "# Frames that two modules write by RoCEv2 (docs/fabrics.md).\n\
         [detector]\ntype = \"jungfrau\"\nmodules = 2\n\n\
         [source]\nkind = \"roce\"\naddress = \"127.0.0.1\"\nfirst_port = {port}\nqueue_pair = {queue_pair}\n\
         memory_key = {key}\nmemory_address = {address}\npages = {pages}\n\n\
         [processing]\ndtype = \"raw\"\ndeadline_ms = 5000\n\n\
         [output]\ndirectory = \".\"\nprefix = \"roce\"\noverwrite = \"replace\"\n\n\
         [run]\nimages = 100\nstall_timeout_s = 2\nbuffer_mib = 512\n"
    );
    let path = args.dir.join("roce.toml");
    std::fs::write(&path, text).map_err(|e| Failure::io("cannot write", &path, &e))?;
    let simulate = format!(
        "simulate jungfrau --to 127.0.0.1:{port} --modules 2 --images 100 --rate 25 --roce --queue-pair {queue_pair} \
         --memory-key {key} --memory-address {address} --pages {pages}"
    );
    Ok(Scenario {
        title: "Two modules of a JUNGFRAU write 100 frames by RoCEv2 into the pages of a receiver",
        receive: vec!["receive".into(), path.display().to_string(), "--json".into()],
        ready: "\"armed\"",
        simulate: behind_link(args, words(&simulate)),
        compare: |sent, received| {
            vec![
                ("packets", number(sent, "/packets_sent"), number(received, "/total/received")),
                ("packets lost", number(sent, "/faults/lost"), number(received, "/images/packets_missing")),
                ("packets twice", number(sent, "/faults/duplicated"), twice(&received["total"])),
                ("images", number(sent, "/images"), number(received, "/images/expected")),
            ]
        },
        next: format!("konkordia check {}", args.dir.join("roce_master.h5").display()),
    })
}

/// A module of an EIGER whose packets are placed by a program of the bridge.
fn bridge(args: &DemoArgs) -> Result<Scenario, Failure> {
    const PORTS: u16 = 4;
    let bug = || Failure::new(Exit::Bug, "the program of the bridge is missing", "eiger-16bit", "please report this");
    let shipped = ShippedProgram::find("eiger-16bit").ok_or_else(bug)?;
    let first = free_ports(PORTS)?;
    let text = (0..PORTS).fold(shipped.text.to_owned(), |text, n| {
        text.replace(&format!("port = {}", 50020 + n), &format!("port = {}", first + n))
    });
    let (program, store) = (args.dir.join("bridge.toml"), args.dir.join("bridge.frames"));
    std::fs::write(&program, text).map_err(|e| Failure::io("cannot write", &program, &e))?;
    let receive = ["bridge", "run", &program.display().to_string(), "--store", &store.display().to_string()].map(str::to_owned);
    let more = words("--first-frame 1 --missing pad --silence 1 --json");
    Ok(Scenario {
        title: "The packets of an EIGER module are placed by a program that turns headers into addresses, as in PSI's bridge",
        receive: [&receive[..], &more[..]].concat(),
        ready: "ports of",
        simulate: behind_link(args, words(&format!("simulate eiger --to 127.0.0.1:{first} --bits 16 --images 200 --rate 50"))),
        compare: |sent, received| {
            let expected = number(sent, "/images") * number(sent, "/packets_per_tile") * number(sent, "/streams");
            let frames = ["complete", "partial", "lost"].iter().map(|name| number(&received["frames"], &format!("/{name}")));
            vec![
                ("packets", number(sent, "/packets_sent"), number(received, "/packets_received")),
                ("packets lost", number(sent, "/faults/lost"), expected - number(received, "/packets/placed")),
                ("packets twice", number(sent, "/faults/duplicated"), twice(&received["packets"])),
                ("frames", number(sent, "/images"), frames.sum()),
            ]
        },
        next: format!("konkordia bridge show {}", program.display()),
    })
}

/// Packets that came again, while their frame was open or after it.
fn twice(packets: &Value) -> u64 {
    number(packets, "/duplicate") + number(packets, "/late")
}

/// 16 modules of an LPD whose trains are built.
fn trains(args: &DemoArgs) -> Result<Scenario, Failure> {
    let first = free_ports(16)?;
    let files = args.dir.join("trains");
    // Files of an older demonstration are not replaced by the train builder.
    let _ = std::fs::remove_dir_all(&files);
    std::fs::create_dir_all(&files).map_err(|e| Failure::io("cannot make", &files, &e))?;
    let receive = format!(
        "trains --listen 127.0.0.1:{first} --model lpd --images-max 8 --timeout-ms 2000 --open-max 8 --buffers 12 --stall-s 3 --json --files"
    );
    let simulate =
        format!("simulate xfel-train --to 127.0.0.1:{first} --model lpd --modules 16 --images-per-train 8 --trains 20");
    Ok(Scenario {
        title: "16 modules of an LPD send 20 trains of 8 images; the train builder puts them together",
        receive: [words(&receive), vec![files.display().to_string()]].concat(),
        ready: "receiving",
        simulate: behind_link(args, words(&format!("{simulate} --rate 5"))),
        compare: |sent, received| {
            let expected = number(sent, "/images") * number(sent, "/packets_per_tile") * number(sent, "/streams");
            let trains = &received["trains"];
            let placed = sum(received, "modules", "/placed");
            let modules = received["modules"].as_array().into_iter().flatten();
            vec![
                ("packets", number(sent, "/packets_sent"), sum(received, "modules", "/packets")),
                ("packets lost", number(sent, "/faults/lost"), expected - placed),
                ("packets twice", number(sent, "/faults/duplicated"), modules.map(twice).sum()),
                ("trains", number(sent, "/images"), number(trains, "/complete") + number(trains, "/incomplete")),
            ]
        },
        next: format!("extra-data's RunDirectory(\"{}\")", files.display()),
    })
}

/// The first of so many consecutive UDP ports that nobody has. The kernel chooses it: two demonstrations at a time do
/// not get the same.
pub fn free_ports(count: u16) -> Result<u16, Failure> {
    let open = |port: u16| UdpSocket::bind((Ipv4Addr::LOCALHOST, port));
    let run = || -> Option<u16> {
        let first = open(0).ok()?.local_addr().ok()?.port();
        (0..count).all(|n| first.checked_add(n).is_some_and(|port| open(port).is_ok())).then_some(first)
    };
    (0..100).find_map(|_| run()).ok_or_else(|| {
        let fix = "wait for other programs to end: this one needs free UDP ports of 127.0.0.1";
        Failure::new(Exit::Io, format!("cannot find {count} port(s) for the packets"), "others have them", fix)
    })
}

/// Runs the simulator; what it sent.
fn simulate(arguments: &[String]) -> Result<Value, Failure> {
    let done = program(arguments)?.wait_with_output();
    let done = done.map_err(|e| failed("the simulated detector", reason(&e)))?;
    let said = || String::from_utf8_lossy(&done.stderr).trim().to_owned();
    serde_json::from_slice(&done.stdout).map_err(|_| failed("the simulated detector", said()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_consecutive_and_free() {
        let first = free_ports(16).unwrap();
        let sockets: Vec<_> = (0..16).map(|n| UdpSocket::bind((Ipv4Addr::LOCALHOST, first + n))).collect();
        assert!(sockets.iter().filter(|socket| socket.is_ok()).count() > 12, "others take ports meanwhile, but not most");
    }
}
