//! Which interfaces are looked at.

use crate::files::Files;
use std::net::IpAddr;

/// Links to the interfaces below an interface, for [`Files::list`].
pub const LOWER: &[&str] = &["sys/class/net/*/lower_*"];

/// Bits of `/sys/class/net/IF/flags`.
const UP: u32 = 0x1;
const LOOPBACK: u32 = 0x8;

/// Names of all interfaces.
pub fn all(files: &Files) -> Vec<&str> {
    // The folder has files too, for example bonding_masters.
    files.below("sys/class/net").into_iter().filter(|name| files.has(&format!("sys/class/net/{name}/flags"))).collect()
}

/// The interfaces with those below them: the cards of a bond, a bridge or a VLAN.
pub fn with_lower(files: &Files, mut names: Vec<String>) -> Vec<String> {
    let mut next = 0;
    while let Some(name) = names.get(next) {
        let below = files.below(&format!("sys/class/net/{name}"));
        let lower = below.iter().filter_map(|link| link.strip_prefix("lower_")).map(str::to_owned);
        let new: Vec<String> = lower.filter(|lower| !names.contains(lower)).collect();
        names.extend(new);
        next += 1;
    }
    names
}

/// Those that are `asked` for; if none, those that have one of the `wanted` addresses; if none, all that are up and are
/// not the loopback. Those below them are looked at too. `local` has the addresses of this host.
///
/// # Errors
/// One that is asked for does not exist; in words.
pub fn choose(files: &Files, local: &[(String, IpAddr)], wanted: &[IpAddr], asked: &[String]) -> Result<Vec<String>, String> {
    let all = all(files);
    if let Some(unknown) = asked.iter().find(|name| !all.contains(&name.as_str())) {
        return Err(format!("there is no interface {unknown:?} here; there are: {}", all.join(", ")));
    }
    let mut found: Vec<String> = asked.to_vec();
    if asked.is_empty() {
        found = with_addresses(local, wanted);
    }
    if found.is_empty() {
        found = all.into_iter().filter(|name| flags(files, name) & (UP | LOOPBACK) == UP).map(str::to_owned).collect();
    }
    found.sort();
    found.dedup();
    Ok(with_lower(files, found))
}

/// The interfaces that have these addresses; none for addresses that stand for all.
pub fn with_addresses(local: &[(String, IpAddr)], wanted: &[IpAddr]) -> Vec<String> {
    if wanted.iter().any(IpAddr::is_unspecified) {
        return Vec::new();
    }
    // All of 127.0.0.0/8 arrives at the loopback, which lists one address of it.
    let is_of = |has: &IpAddr, wanted: &IpAddr| has == wanted || (has.is_loopback() && wanted.is_loopback());
    local.iter().filter(|(_, has)| wanted.iter().any(|wanted| is_of(has, wanted))).map(|(name, _)| name.clone()).collect()
}

fn flags(files: &Files, name: &str) -> u32 {
    let text = files.text(&format!("sys/class/net/{name}/flags")).unwrap_or_default().trim();
    u32::from_str_radix(text.trim_start_matches("0x"), 16).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_are_those_asked_for_or_of_the_addresses_or_all_that_are_up() {
        let folder = tempfile::tempdir().unwrap();
        for (name, flags) in [("lo", "0x9\n"), ("eth0", "0x1003\n"), ("eth1", "0x1003\n"), ("down", "0x1002\n"), ("odd", "x")] {
            let at = folder.path().join("sys/class/net").join(name);
            std::fs::create_dir_all(&at).unwrap();
            std::fs::write(at.join("flags"), flags).unwrap();
        }
        std::fs::write(folder.path().join("sys/class/net/bonding_masters"), "").unwrap();
        // Each is below the other, which cannot be.
        for (name, lower) in [("down", "lower_eth1"), ("eth1", "lower_down")] {
            std::fs::write(folder.path().join("sys/class/net").join(name).join(lower), "").unwrap();
        }
        let mut files = Files::default();
        files.read(folder.path(), &["sys/class/net/*/flags", "sys/class/net/bonding_masters"]);
        files.list(folder.path(), LOWER);
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let local = [("lo".into(), ip("127.0.0.1")), ("eth0".into(), ip("10.0.0.1")), ("eth1".into(), ip("fd00::1"))];
        let chosen = |wanted: &[&str], asked: &[&str]| {
            let wanted: Vec<IpAddr> = wanted.iter().map(|text| ip(text)).collect();
            let asked: Vec<String> = asked.iter().map(|name| (*name).to_owned()).collect();
            choose(&files, &local, &wanted, &asked).map(|names| names.join(" "))
        };
        assert_eq!(chosen(&[], &[]).as_deref(), Ok("eth0 eth1 down"));
        assert_eq!(chosen(&["10.0.0.1"], &[]).as_deref(), Ok("eth0"));
        assert_eq!(chosen(&["fd00::1", "127.0.0.5"], &[]).as_deref(), Ok("eth1 lo down"));
        assert_eq!(chosen(&["0.0.0.0", "10.0.0.1"], &[]).as_deref(), Ok("eth0 eth1 down"));
        assert_eq!(chosen(&["192.0.2.1"], &[]).as_deref(), Ok("eth0 eth1 down"));
        assert_eq!(chosen(&["10.0.0.1"], &["down", "down"]).as_deref(), Ok("down eth1"));
        assert!(chosen(&[], &["eth9"]).unwrap_err().contains("there are: down, eth0, eth1, lo, odd"));
    }
}
