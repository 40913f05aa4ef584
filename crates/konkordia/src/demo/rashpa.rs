//! `konkordia demo --scenario rashpa`: the demonstration of ESRF's prototype (EUCALL D5.2, 3.2.6) with the commands
//! that people type: six modules, four receivers and their manager, each a process. The whole image goes to one
//! receiver, a region of it to another one, and every second image by turns to the two others. One of two links is
//! pulled and plugged in again. All of it is software, over loopback.

use super::accounts::{FAULTS, Receiving, Row, number, show, sum, words};
use crate::cli::DemoArgs;
use crate::console;
use konkordia_core::failure::{Exit, Failure};
use serde_json::{Value, json};
use std::time::Instant;

const MODULES: u32 = 6;
const RECEIVERS: u32 = 4;
const WIDTH: u32 = 128;
const HEIGHT: u32 = 64;
const SLICES: u64 = 200;
/// When the link is pulled, and when it is plugged in again.
const PULLED: (u64, u64) = (80, 140);

/// What is transferred. Slots times packets of a block are more than 512 (docs/rashpa.md, Losses).
const TRANSFERS: &str = r#"
[[transfers]]            # the whole image
id = 0
receivers = [0]
slices = 200
slots = 64
packet_bytes = 1024

[[transfers]]            # a region over two modules
id = 1
receivers = [1]
dataset = "region"
region = { x = 40, y = 50, width = 60, height = 60 }
slices = 200
slots = 64
packet_bytes = 1024

[[transfers]]            # every second image, by turns to two receivers
id = 2
receivers = [2, 3]
slices = 100
step = 2
slots = 64
packet_bytes = 1024
"#;

/// Slices of all transfers together.
const ALL_SLICES: u64 = SLICES + SLICES + SLICES / 2;

/// Where a member takes telegrams, by what it said.
fn address(member: &Receiving) -> Result<String, Failure> {
    let at = member.said.split("telegrams at ").nth(1).and_then(|rest| rest.split(';').next());
    at.map(str::to_owned)
        .ok_or_else(|| Failure::new(Exit::Bug, "a member does not say its address", member.said.clone(), "please report this"))
}

/// Starts the members of one kind; the last one's command is for people to see.
fn start(count: u32, command: impl Fn(u32) -> Vec<String>) -> Result<Vec<Receiving>, Failure> {
    (0..count).map(|id| Receiving::start(&command(id), "takes telegrams at")).collect()
}

fn links() -> Vec<String> {
    words("--link 127.0.0.1 --link 127.0.0.2")
}

fn receiver(args: &DemoArgs, id: u32) -> Vec<String> {
    let more = format!("--check {} --silence 5 --once --json", args.seed);
    [words(&format!("rashpa receiver --id {id}")), links(), words(&more)].concat()
}

fn module(args: &DemoArgs, id: u32) -> Vec<String> {
    let (pull, plug) = PULLED;
    let more = format!(
        "--width {WIDTH} --height {HEIGHT} --rate 20 {} --pull 1@{pull} --plug 1@{plug} --seed {} --once --json",
        FAULTS.join(" "),
        args.seed
    );
    [words(&format!("rashpa module --id {id}")), links(), words(&more)].concat()
}

/// The description of the system.
fn description(modules: &[Receiving], receivers: &[Receiving]) -> Result<String, Failure> {
    let mut text = String::from("# Six modules and four receivers of RASHPA (docs/rashpa.md), made by konkordia demo.\n");
    for (id, member) in modules.iter().enumerate() {
        let (telegrams, y) = (address(member)?, id as u32 * HEIGHT);
        text += &format!("\n[[modules]]\nid = {id}\ntelegrams = \"{telegrams}\"\nx = 0\ny = {y}\n");
    }
    for (id, member) in receivers.iter().enumerate() {
        text += &format!("\n[[receivers]]\nid = {id}\ntelegrams = \"{}\"\n", address(member)?);
    }
    Ok(text + TRANSFERS)
}

/// What the links did beside what the receivers counted.
fn compare(modules: &[Value], receivers: &[Value]) -> Vec<Row> {
    let of_links = |name: &str| modules.iter().map(|module| sum(module, "receivers", name)).sum::<u64>();
    let of_receivers = |name: &str| receivers.iter().map(|receiver| number(receiver, name)).sum::<u64>();
    let of_transfers = |name: &str| receivers.iter().map(|receiver| sum(receiver, "transfers", name)).sum::<u64>();
    let balance = modules.iter().chain(receivers).filter(|account| account["balances"] == true).count() as u64;
    let slices = ["/whole", "/partial", "/empty"].map(of_transfers).iter().sum();
    vec![
        ("packets", of_links("/delivered"), of_receivers("/packets/received")),
        // Behind the last packet that came nobody can know of another one.
        ("packets lost", of_links("/lost") - of_links("/lost_behind_newest"), of_receivers("/lost")),
        ("packets twice", of_links("/duplicated"), of_receivers("/packets/duplicate")),
        ("slices", ALL_SLICES, slices),
        ("wrong bytes in memory", 0, of_transfers("/bytes_different")),
        ("accounts that balance", u64::from(MODULES + RECEIVERS), balance),
    ]
}

/// Runs the scenario.
pub fn command(args: &DemoArgs) -> Result<Exit, Failure> {
    let begun = Instant::now();
    let say = |line: &str| if args.json { console::to_stderr(line) } else { console::to_stdout(line) };
    say("Six modules write 200 images into the memory of four receivers, as in RASHPA (all in software, over loopback)\n");
    say(&format!("1  {RECEIVERS} receivers:\n       konkordia {}", receiver(args, 0).join(" ")));
    let mut receivers = start(RECEIVERS, |id| receiver(args, id))?;
    say(&format!(
        "2  {MODULES} modules, behind links with faults; link 1 is pulled and plugged in again:\n       konkordia {}",
        module(args, 0).join(" ")
    ));
    let mut modules = start(MODULES, |id| module(args, id))?;
    let path = args.dir.join("rashpa.toml");
    std::fs::write(&path, description(&modules, &receivers)?).map_err(|e| Failure::io("cannot write", &path, &e))?;
    let manage = [words("rashpa manager"), vec![path.display().to_string(), "--json".into()], words("--timeout 60")].concat();
    say(&format!("3  the manager, in the order of RASHPA:\n       konkordia {}", manage.join(" ")));
    let managed = Receiving::start(&manage, "start: done")?.report()?;
    say("4  comparing what the receivers counted with what the links did ...\n");
    let reports = |members: &mut [Receiving]| members.iter_mut().map(Receiving::report).collect::<Result<Vec<_>, _>>();
    let (modules, receivers) = (reports(&mut modules)?, reports(&mut receivers)?);
    let rows = compare(&modules, &receivers);
    let more = json!({ "manager": managed, "modules": modules, "receivers": receivers });
    let [whole, partial, empty] = ["/whole", "/partial", "/empty"]
        .map(|name| receivers.iter().map(|receiver| sum(receiver, "transfers", name)).sum::<u64>());
    let pulled: u64 = modules.iter().map(|module| sum(module, "receivers", "/lost_by_pull")).sum();
    say(&format!(
        "   slices: {whole} whole, {partial} with missing packets, {empty} of which nothing came\n   \
            link 1 was pulled at slice {}: {pulled} packets were lost before the modules noticed it; plugged in at slice {}\n",
        PULLED.0, PULLED.1,
    ));
    let agrees = show(args, &rows, more);
    say(&format!(
        "next      konkordia rashpa manager --help     ({})\n\ndone in {:.1} s",
        path.display(),
        begun.elapsed().as_secs_f64()
    ));
    Ok(if agrees { Exit::Complete } else { Exit::Incomplete })
}
