//! What the host counts on the way from the wire to a socket. A run takes the counters when it is armed and at its end,
//! and stores by how much they rose, so that [`crate::lost`] can say later where packets went.

use crate::files::Files;
use crate::interfaces::{LOWER, with_addresses, with_lower};
use crate::parse::{snmp, softnet, word_after};
use crate::sys;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;

/// The time-stamp counter of this processor, if it has one: cycles of one rate, whatever the frequency of the core.
pub fn timestamp_counter() -> Option<u64> {
    sys::timestamp_counter()
}

/// Names of the counters in the ledger of a file, `docs/ledger.md`.
pub mod names {
    /// Packets for which the cards had no room: their ring was full.
    pub const NIC_NO_ROOM: &str = "host_nic_no_room";
    /// Frames that were damaged on the way to the cards, or were too long for them.
    pub const NIC_DAMAGED: &str = "host_nic_damaged";
    /// Packets that the drivers of the cards dropped for other reasons.
    pub const NIC_DROPPED: &str = "host_nic_dropped";
    /// Packets for which the backlog of a processor had no room.
    pub const BACKLOG_DROPPED: &str = "host_backlog_dropped";
    /// Turns in which a processor did not come to the end of a ring.
    pub const TURNS_CUT_SHORT: &str = "host_turns_cut_short";
    /// Datagrams for which the socket of any program had no room.
    pub const SOCKETS_FULL: &str = "host_sockets_full";
    /// Datagrams with a wrong checksum.
    pub const WRONG_CHECKSUMS: &str = "host_wrong_checksums";
    /// Datagrams that could not be put together from their fragments.
    pub const FRAGMENTS_LOST: &str = "host_fragments_lost";
}

/// Files with counters.
const READ: &[&str] = &["proc/net/softnet_stat", "proc/net/snmp", "proc/net/snmp6", "sys/class/net/*/statistics/rx_*"];

/// The counters at one moment. One that cannot be read is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    values: BTreeMap<&'static str, u64>,
}

impl Counters {
    /// Those of this host, and of the interfaces at which packets for these addresses arrive.
    pub fn of_host(addresses: &[IpAddr]) -> Self {
        let mut files = Files::default();
        files.read(Path::new("/"), READ);
        files.list(Path::new("/"), LOWER);
        Self::of(&files, &with_lower(&files, with_addresses(&sys::addresses(), addresses)))
    }

    /// Those in `files`, over these interfaces; over all if there are none.
    pub fn of(files: &Files, interfaces: &[String]) -> Self {
        let mut values: BTreeMap<&'static str, u64> = BTreeMap::new();
        let mut put = |name, value: Option<u64>| values.extend(value.map(|value| (name, value)));
        let all = files.below("sys/class/net");
        let mut cards: Vec<&str> = match interfaces {
            [] => all,
            some => some.iter().map(String::as_str).collect(),
        };
        // A bond counts what its cards count.
        let is_card = |name: &str| !files.below(&format!("sys/class/net/{name}")).iter().any(|link| link.starts_with("lower_"));
        cards.retain(|name| is_card(name));
        let of = |card: &str, counter: &str| files.number::<u64>(&format!("sys/class/net/{card}/statistics/{counter}")).ok();
        // Drivers enter one loss under one, two or three of these names.
        let largest = |names: [&str; 3]| {
            let of_card = |card: &&str| names.iter().filter_map(|name| of(card, name)).max();
            cards.iter().filter_map(of_card).reduce(u64::saturating_add)
        };
        put(names::NIC_NO_ROOM, largest(["rx_missed_errors", "rx_fifo_errors", "rx_over_errors"]));
        put(names::NIC_DAMAGED, largest(["rx_crc_errors", "rx_frame_errors", "rx_length_errors"]));
        put(names::NIC_DROPPED, cards.iter().filter_map(|card| of(card, "rx_dropped")).reduce(u64::saturating_add));
        let sums = files.text("proc/net/softnet_stat").ok().and_then(softnet);
        put(names::BACKLOG_DROPPED, sums.map(|sums| sums.dropped));
        put(names::TURNS_CUT_SHORT, sums.map(|sums| sums.squeezed));
        let four = |protocol, name| files.text("proc/net/snmp").ok().and_then(|text| snmp(text, protocol, name));
        let six = |name| files.text("proc/net/snmp6").ok().and_then(|text| word_after(text, name)?.parse::<u64>().ok());
        let both = |four: Option<u64>, six: Option<u64>| four.map(|four| four.saturating_add(six.unwrap_or(0)));
        put(names::SOCKETS_FULL, both(four("Udp", "RcvbufErrors"), six("Udp6RcvbufErrors")));
        put(names::WRONG_CHECKSUMS, both(four("Udp", "InCsumErrors"), six("Udp6InCsumErrors")));
        put(names::FRAGMENTS_LOST, both(four("Ip", "ReasmFails"), six("Ip6ReasmFails")));
        Self { values }
    }

    /// By how much the counters rose since `before`, by name. A counter that is smaller now began again: it counts from
    /// 0.
    pub fn since(&self, before: &Self) -> Vec<(String, u64)> {
        let rise = |name: &str, now: u64| Some(now.checked_sub(*before.values.get(name)?).unwrap_or(now));
        self.values.iter().filter_map(|(name, now)| Some(((*name).to_owned(), rise(name, *now)?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SNMP: &str = "Ip: InReceives ReasmFails\nIp: 9 4\nUdp: RcvbufErrors InCsumErrors\nUdp: 100 1\n";

    fn host(texts: &[(&str, &str)]) -> Files {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in texts {
            let at = folder.path().join(path);
            std::fs::create_dir_all(at.parent().unwrap()).unwrap();
            std::fs::write(at, text).unwrap();
        }
        let mut files = Files::default();
        files.read(folder.path(), READ);
        files.list(folder.path(), LOWER);
        files
    }

    #[test]
    fn the_rise_of_every_counter_that_can_be_read_is_known() {
        let at = |missed: &str, snmp: &str, softnet: &str| {
            host(&[
                ("sys/class/net/eth0/statistics/rx_missed_errors", missed),
                ("sys/class/net/eth0/statistics/rx_fifo_errors", "1\n"),
                ("sys/class/net/eth0/statistics/rx_crc_errors", "nonsense\n"),
                ("sys/class/net/eth1/statistics/rx_missed_errors", "1000\n"),
                ("sys/class/net/bond0/statistics/rx_missed_errors", "1007\n"),
                ("sys/class/net/bond0/lower_eth1", ""),
                ("proc/net/snmp", snmp),
                ("proc/net/snmp6", "Udp6RcvbufErrors 5\n"),
                ("proc/net/softnet_stat", softnet),
            ])
        };
        let before = at("7\n", SNMP, "10 0 1 0\n10 2 1 0\n");
        let after = at("19\n", &SNMP.replace("Udp: 100 1", "Udp: 160 0"), "20 3 1 0\n20 4 1 0\n");
        let eth0 = ["eth0".to_owned()];
        let rise = Counters::of(&after, &eth0).since(&Counters::of(&before, &eth0));
        let expected = [
            (names::BACKLOG_DROPPED, 5),
            (names::FRAGMENTS_LOST, 0),
            (names::NIC_NO_ROOM, 12),
            (names::SOCKETS_FULL, 60),
            (names::TURNS_CUT_SHORT, 0),
            // It was 1 and is 0: it began again.
            (names::WRONG_CHECKSUMS, 0),
        ];
        assert_eq!(rise, expected.map(|(name, rise)| (name.to_owned(), rise)));
        let of_all = Counters::of(&before, &[]);
        assert_eq!(of_all.values[names::NIC_NO_ROOM], 1007);
        let without = Counters::of(&host(&[("proc/net/snmp", "Udp: x")]), &eth0);
        assert_eq!((without.clone(), Counters::of(&after, &eth0).since(&without)), (Counters::default(), vec![]));
    }

    #[test]
    fn this_host_counts_its_sockets() {
        let counters = Counters::of_host(&["127.0.0.1".parse().unwrap()]);
        let rise = counters.since(&counters);
        assert!(rise.iter().all(|(_, rise)| *rise == 0));
        assert!(rise.iter().any(|(name, _)| name == names::SOCKETS_FULL), "{rise:?}");
    }
}
