//! Where the scenes play: a network namespace with a wire (a veth pair) from `det`, the detector, to `card`.

use super::frames::frame;
use super::skip;
use super::sys::{Wire, stay_on_one_processor};
use std::net::{SocketAddr, UdpSocket};
use std::process::Command;
use std::time::Duration;

/// Set in the process that plays a scene.
const INSIDE: &str = "KONKORDIA_IN_NAMESPACE";

/// Addresses of detector and card.
pub const V4: [&str; 2] = ["10.7.0.1:32410", "10.7.0.2:50010"];
/// The same for IPv6.
pub const V6: [&str; 2] = ["[fd07::1]:32410", "[fd07::2]:50010"];

/// Plays the scene of the test `name` in a process of its own, in a network namespace of its own. `without` is a right
/// that it must not have. Where the system does not allow that, the test counts as skipped.
#[track_caller]
pub fn play(name: &str, without: Option<&str>, scene: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        return scene();
    }
    let ways: [&[&str]; 2] = [&["--net"], &["--net", "--user", "--map-root-user"]];
    let is_possible = |way: &&&[&str]| Command::new("unshare").args(**way).arg("true").output().is_ok_and(|o| o.status.success());
    let Some(way) = ways.iter().find(is_possible) else {
        return skip::skipped("network namespaces need root rights or user namespaces, and `unshare` of util-linux");
    };
    if ip("-Version").is_err() {
        return skip::skipped("`ip` of iproute2 is not installed");
    }
    let mut command = Command::new("unshare");
    command.args(*way);
    if let Some(right) = without {
        let test = Command::new("setpriv").args([&format!("--bounding-set=-{right}"), "true"]).output();
        if !test.is_ok_and(|output| output.status.success()) {
            return skip::skipped("rights cannot be taken away here (`setpriv` of util-linux)");
        }
        command.args(["setpriv", &format!("--bounding-set=-{right}"), &format!("--inh-caps=-{right}")]);
    }
    let program = std::env::current_exe().expect("a test is a program");
    let output = command.arg(program).args([name, "--exact", "--nocapture"]).env(INSIDE, "1").output();
    let output = output.expect("unshare was there");
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    print!("{said}");
    assert!(output.status.success() && said.contains("1 passed"), "the scene failed, see above");
}

/// Runs `ip` with these arguments.
pub fn ip(arguments: &str) -> Result<(), String> {
    let output = Command::new("ip").args(arguments.split(' ')).output().map_err(|error| error.to_string())?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

/// Runs `ip`, which must succeed.
pub fn set(arguments: &str) {
    ip(arguments).unwrap_or_else(|why| panic!("ip {arguments}: {why}"));
}

/// Puts up the wire for jumbo frames, and waits until it carries them. It keeps the order of what this process sends.
pub fn wire() -> Wire {
    stay_on_one_processor();
    wire_of_all_processors()
}

/// As [`wire`], but frames that different processors send may overtake each other.
pub fn wire_of_all_processors() -> Wire {
    set("link set lo up");
    set("link add det address 02:00:00:00:00:01 mtu 9000 type veth peer name card address 02:00:00:00:00:02 mtu 9000");
    set("address add 10.7.0.2/24 dev card");
    set("address add fd07::2/64 dev card nodad");
    set("link set det up");
    set("link set card up");
    let wire = Wire::open("det").unwrap();
    for texts in [V4, V6] {
        let (from, to) = addresses(texts);
        let probe = SocketAddr::new(to.ip(), 9);
        let socket = UdpSocket::bind(probe).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        let mut tries = (0..2000).map(|_| wire.send(&frame(from, probe, b"ready?")).is_ok() && socket.recv(&mut [0; 8]).is_ok());
        assert!(tries.any(|has_come| has_come), "the wire does not get ready");
    }
    wire
}

/// Detector and card as socket addresses.
pub fn addresses(texts: [&str; 2]) -> (SocketAddr, SocketAddr) {
    (texts[0].parse().unwrap(), texts[1].parse().unwrap())
}
