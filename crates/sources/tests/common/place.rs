//! Where scenes play: a network namespace with a wire (a veth pair) from `det`, the detector, to `card`.
#![allow(dead_code)]

use super::frames::frame;
use super::skip;
use super::wire::{Wire, stay_on_one_processor};
use std::net::{SocketAddr, UdpSocket};
use std::process::Command;
use std::time::Duration;

/// Set in the process that plays a scene.
const INSIDE: &str = "KONKORDIA_IN_NAMESPACE";

/// Addresses of detector and card.
pub const V4: [&str; 2] = ["10.7.0.1:32410", "10.7.0.2:50010"];
/// The same for IPv6.
pub const V6: [&str; 2] = ["[fd07::1]:32410", "[fd07::2]:50010"];

/// True in the process that plays a scene.
pub fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// Plays a scene, a closure of the calling test, in a process of its own, in a network namespace of its own. `before` =
/// a program through which that process is started, with its arguments: it takes rights away. Where the system does not
/// allow that, the test counts as skipped.
#[track_caller]
pub fn play<S: FnOnce()>(before: &[&str], scene: S) {
    if is_inside() {
        return scene();
    }
    let starts = |way: &[&str], before: &[&str]| {
        let tried = Command::new("unshare").args(way).args(before).arg("true").output();
        tried.is_ok_and(|output| output.status.success())
    };
    let ways: [&[&str]; 2] = [&["--net"], &["--net", "--user", "--map-root-user"]];
    let Some(way) = ways.into_iter().find(|&way| starts(way, &[])) else {
        return skip::skipped("network namespaces need root rights or user namespaces, and `unshare` of util-linux");
    };
    if ip("-Version").is_err() {
        return skip::skipped("`ip` of iproute2 is not installed");
    }
    if !starts(way, before) {
        return skip::skipped(&format!("rights cannot be taken away here ({})", before.join(" ")));
    }
    // The name of a closure is `crate::modules::test::{{closure}}`.
    let path = std::any::type_name::<S>().strip_suffix("::{{closure}}").and_then(|path| path.split_once("::"));
    let (_, name) = path.expect("a scene is a closure of its test");
    let program = std::env::current_exe().expect("a test is a program");
    let mut command = Command::new("unshare");
    command.args(way).args(before).arg(program).args([name, "--exact", "--nocapture"]).env(INSIDE, "1");
    let output = command.output().expect("unshare was there");
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    print!("{said}");
    assert!(output.status.success() && said.contains("1 passed"), "the scene failed, see above");
}

/// Runs `ip` with these arguments; returns what it says.
pub fn ip(arguments: &str) -> Result<String, String> {
    let output = Command::new("ip").args(arguments.split(' ')).output().map_err(|error| error.to_string())?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

/// Runs `ip`, which must succeed.
pub fn set(arguments: &str) -> String {
    ip(arguments).unwrap_or_else(|why| panic!("ip {arguments}: {why}"))
}

/// Puts up the wire for jumbo frames, and waits until it carries them. It keeps the order of what this process sends.
pub fn wire() -> Wire {
    stay_on_one_processor();
    wire_of_all_processors()
}

/// As [`wire`], but frames that different processors send may overtake each other.
pub fn wire_of_all_processors() -> Wire {
    wire_with(9000, 1)
}

/// As [`wire_of_all_processors`], with an MTU and so many queues at both ends.
pub fn wire_with(mtu: u32, queues: u32) -> Wire {
    put_up(mtu, queues);
    let wire = Wire::open("det").unwrap();
    [V4, V6].into_iter().for_each(|texts| wait_for(&wire, texts));
    wire
}

/// Puts up the two ends of the wire.
pub fn put_up(mtu: u32, queues: u32) {
    let of_both = format!("mtu {mtu} numtxqueues {queues} numrxqueues {queues}");
    set("link set lo up");
    set(&format!(
        "link add det address 02:00:00:00:00:01 {of_both} type veth peer name card address 02:00:00:00:00:02 {of_both}"
    ));
    set("address add 10.7.0.2/24 dev card");
    set("address add fd07::2/64 dev card nodad");
    set("link set det up");
    set("link set card up");
}

/// The kernel notices a wire a little later than it is there, and drops what is sent before.
pub fn wait_for(wire: &Wire, texts: [&str; 2]) {
    let (from, to) = addresses(texts);
    let probe = SocketAddr::new(to.ip(), 9009); // A port that needs no right.
    let socket = UdpSocket::bind(probe).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
    let mut tries = (0..2000).map(|_| wire.try_send(&frame(from, probe, b"ready?")).is_ok() && socket.recv(&mut [0; 8]).is_ok());
    assert!(tries.any(|has_come| has_come), "the wire does not get ready");
}

/// Detector and card as socket addresses.
pub fn addresses(texts: [&str; 2]) -> (SocketAddr, SocketAddr) {
    (texts[0].parse().unwrap(), texts[1].parse().unwrap())
}
