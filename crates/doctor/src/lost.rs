//! Where the packets of a run went: from the counters that it stored.
//!
//! The run's own counters are exact. The host's counters are those of the whole host or of an interface: they may hold
//! packets of other programs, so what they explain is likely, not certain. What nothing on this host counted was lost
//! before it.

use crate::counters::names;
use konkordia_core::backend::Backend;
use std::collections::BTreeMap;

/// Where data were lost, from the detector to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// Nothing was received on a stream at all.
    Stream,
    /// Detector, cable, switch.
    Wire,
    /// Fragments, checksums, lengths, joined datagrams: changed on the way, found here.
    Damaged,
    /// The receive ring of the network card.
    NicRing,
    /// Driver of the card, for another reason than a full ring.
    Driver,
    /// Between card and socket.
    Backlog,
    /// The buffer of the socket, or the ring of the stream where one takes its place.
    Socket,
    /// Packets that are not of this detector as it is configured.
    SetUp,
    /// Packets after their tile was closed.
    Late,
    /// The ring of images: the processors were too slow.
    Slots,
    /// The file, or the disk below it, was too slow or failed.
    Disk,
}

impl Place {
    /// Its name, as programs get it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stream => "stream",
            Self::Wire => "wire",
            Self::Damaged => "damaged",
            Self::NicRing => "nic_ring",
            Self::Driver => "driver",
            Self::Backlog => "backlog",
            Self::Socket => "socket",
            Self::SetUp => "set_up",
            Self::Late => "late",
            Self::Slots => "slots",
            Self::Disk => "disk",
        }
    }

    /// What to do about losses there.
    pub const fn fix(self) -> &'static str {
        match self {
            Self::Stream => {
                "is this module switched on, and does it send to this address and port? docs/troubleshooting.md, Nothing arrives"
            }
            Self::Wire => {
                "look at cable and optics, at the counters of the switch (drops, pause frames) and at the detector; docs/troubleshooting.md, Lost before the socket"
            }
            Self::Damaged => {
                "set the MTU of detector, switch and card to 9000, so that nothing is sent in fragments; let the card join nothing (ethtool -K IF lro off rx-udp-gro-forwarding off); look at cable and optics"
            }
            Self::NicRing => {
                "a longer ring (ethtool -G), more queues, interrupts near the card, net.core.netdev_budget; konkordia doctor --iface"
            }
            Self::Driver => "`ethtool -S` before and after a run names the reason",
            Self::Backlog => "raise net.core.netdev_max_backlog; spread the queues of the card over more processors",
            Self::Socket => {
                "raise [source] receive_buffer_mib (for sockets net.core.rmem_max too), and give each receive thread a processor of its own (pin_streams); konkordia doctor"
            }
            Self::SetUp => "compare the configuration with the detector; docs/troubleshooting.md, Wrong set-up",
            Self::Late => {
                "a longer [processing] deadline_ms or window_images; look for what reorders or holds back packets on the way"
            }
            Self::Slots => {
                "more [processing] workers, fewer other programs (konkordia bench kernels); a larger [run] buffer_mib bridges short pauses; with [output] keep_raw the disk may be the reason"
            }
            Self::Disk => {
                "a faster disk or better compression (konkordia bench hdf5); room, if it was full; a larger [run] buffer_mib bridges short pauses"
            }
        }
    }
}

/// How sure a cause is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Certainty {
    /// The run counted it itself.
    Counted,
    /// A counter of the host rose, or everything else can be excluded.
    Likely,
    /// It cannot be excluded.
    Possible,
}

impl Certainty {
    /// Its name, as programs get it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counted => "counted",
            Self::Likely => "likely",
            Self::Possible => "possible",
        }
    }
}

/// One cause of a loss.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// Where.
    pub place: Place,
    /// Packets that it explains, or images that are not in the file.
    pub lost: u64,
    /// What was lost: packets or images.
    pub unit: &'static str,
    /// How sure that is.
    pub certainty: Certainty,
    /// What was counted.
    pub why: String,
    /// What to do.
    pub fix: &'static str,
}

/// The account of a run: the totals of its ledger by name, and what each stream received.
#[derive(Clone, Debug, Default)]
pub struct Account {
    /// Counters by name, as `/entry/konkordia/ledger/totals` has them.
    pub totals: BTreeMap<String, u64>,
    /// Name of each stream, and the datagrams that it received; may be empty if it is not known.
    pub streams: Vec<(String, u64)>,
    /// Through what the packets came; empty if it is not known.
    pub backend: String,
}

/// Total of the ledger: milliseconds in which images could not go on because the file still held all of them.
pub const FILE_WAITED_MS: &str = "file_waited_ms";
/// Total of the ledger: milliseconds from the first packet to the last.
pub const RECEIVE_MS: &str = "receive_ms";

/// Waiting for the file less than this explains nothing.
const WAITED_MS_MIN: u64 = 10;
/// Bytes that the kernel joins at most; a joined buffer that is dropped counts once.
const JOINED_BYTES_MAX: u64 = 65_535;

impl Account {
    fn total(&self, name: &str) -> u64 {
        self.totals.get(name).copied().unwrap_or(0)
    }

    /// Packets that are missing in the images.
    pub fn packets_missing(&self) -> u64 {
        self.total("packets_missing")
    }

    /// True if the run stored what the host counted.
    pub fn has_host_counters(&self) -> bool {
        self.totals.contains_key(names::SOCKETS_FULL) && self.totals.contains_key(names::BACKLOG_DROPPED)
    }

    /// True if packets or images are missing.
    pub fn has_loss(&self) -> bool {
        ["packets_missing", "images_unwritten", "images_not_received"].iter().any(|name| self.total(name) > 0)
    }

    /// The file was the reason that images were refused: it held up the others for at least half the time in which
    /// they were refused, which is in proportion to their packets.
    fn waited_for_file(&self) -> bool {
        let (refused, waited_ms) = (u128::from(self.total("no_slot")), u128::from(self.total(FILE_WAITED_MS)));
        let (expected, receive_ms) = (u128::from(self.total("packets_expected")), u128::from(self.total(RECEIVE_MS)));
        waited_ms >= u128::from(WAITED_MS_MIN)
            && waited_ms.saturating_mul(2).saturating_mul(expected) >= refused.saturating_mul(receive_ms)
    }

    /// The packets came through sockets.
    fn has_sockets(&self) -> bool {
        [Backend::Socket.name(), ""].contains(&self.backend.as_str())
    }

    /// Datagrams that one buffer of the kernel may have held.
    fn joined_max(&self) -> u64 {
        let datagram = self.total("received_bytes").checked_div(self.total("received")).unwrap_or(0);
        JOINED_BYTES_MAX.checked_div(datagram).unwrap_or(1).clamp(1, 64)
    }
}

/// The causes of a loss, the largest first; none if nothing was lost. Together they explain all missing packets.
pub fn causes(account: &Account) -> Vec<Cause> {
    let mut left = Left { packets: account.packets_missing(), causes: Vec::new() };
    own(account, &mut left);
    host(account, &mut left);
    before(account, &mut left);
    let mut causes = left.causes;
    causes.sort_by_key(|cause| std::cmp::Reverse(cause.lost));
    unwritten(account).into_iter().chain(causes).collect()
}

/// Missing packets that nothing has explained yet, and the causes so far.
struct Left {
    packets: u64,
    causes: Vec<Cause>,
}

impl Left {
    /// A cause that explains at most so many packets; nothing if there are none, or none are left.
    fn take(&mut self, place: Place, most: u64, certainty: Certainty, why: impl FnOnce(u64) -> String) {
        let lost = most.min(self.packets);
        if lost > 0 {
            self.packets -= lost;
            self.causes.push(Cause { place, lost, unit: "packets", certainty, why: why(lost), fix: place.fix() });
        }
    }
}

/// What the run itself counted.
fn own(account: &Account, left: &mut Left) {
    use Certainty::{Counted, Likely};
    let total = |name| account.total(name);
    full_ring(account, left);
    let late = total("late");
    left.take(Place::Late, late, Counted, |_| format!("{late} packets came after their part of the image was closed"));
    let of_reasons = account.totals.iter().filter(|(name, _)| name.starts_with("malformed_"));
    let malformed: u64 = of_reasons.fold(0, |sum, (_, n)| sum.saturating_add(*n));
    let why = |_| format!("{malformed} datagrams came that are not packets of this detector as it is configured");
    left.take(Place::SetUp, malformed, Likely, why);
    let silent: Vec<&str> =
        account.streams.iter().filter(|(_, received)| *received == 0).map(|(name, _)| name.as_str()).collect();
    let of_stream = total("packets_expected") / account.streams.len().max(1) as u64;
    let why = |_| format!("nothing was received on {}", silent.join(", "));
    left.take(Place::Stream, of_stream.saturating_mul(silent.len() as u64), Counted, why);
    refused(account, left);
    dropped(account, left);
}

/// Frames that a ring refused. A socket gets none of them.
fn refused(account: &Account, left: &mut Left) {
    let of = |why: &str| account.total(&format!("refused_{why}"));
    for (name, what) in [
        ("fragment", "datagrams came in fragments, which a ring cannot put together"),
        ("checksum", "datagrams had a wrong checksum"),
        ("length", "frames had lengths that contradict each other"),
    ] {
        let frames = of(name);
        left.take(Place::Damaged, frames, Certainty::Counted, |_| format!("{frames} {what}"));
    }
    let joined = of("joined");
    let why = |_| format!("{joined} frames held several datagrams that somebody had joined to one");
    left.take(Place::Damaged, joined.saturating_mul(account.joined_max()), Certainty::Likely, why);
    let vlan = of("vlan");
    let why = |_| format!("{vlan} frames had the tag of a VLAN: [source] address must be that of the interface of the VLAN");
    left.take(Place::SetUp, vlan, Certainty::Counted, why);
}

/// What the kernel dropped at our sockets or rings. A socket counts datagrams with wrong checksums there too.
fn dropped(account: &Account, left: &mut Left) {
    use Certainty::{Counted, Likely};
    let mut dropped = account.total("kernel_dropped");
    if account.has_sockets() {
        let sums = account.total(names::WRONG_CHECKSUMS);
        left.take(Place::Damaged, sums, Likely, |_| format!("{sums} datagrams had a wrong checksum"));
        dropped = dropped.saturating_sub(sums);
    }
    // A ring takes no joined ones.
    let (joined, full) = if account.has_sockets() { (account.joined_max(), "socket") } else { (1, "ring of the stream") };
    let why = |lost: u64| match lost > dropped {
        true => format!("the kernel dropped {dropped} buffers because the {full} was full, each with up to {joined} packets"),
        false => format!("the kernel dropped {dropped} packets because the {full} was full"),
    };
    // What goes beyond the number of buffers depends on how many packets they held.
    let certainty = if joined > 1 && left.packets > dropped { Likely } else { Counted };
    left.take(Place::Socket, dropped.saturating_mul(joined), certainty, why);
}

/// The ring of images was full: because of the file, or because of the processors.
fn full_ring(account: &Account, left: &mut Left) {
    let (refused, waited_ms) = (account.total("no_slot"), account.total(FILE_WAITED_MS));
    let full = format!("{refused} packets found the ring of images full");
    if account.waited_for_file() {
        let why =
            |_| format!("{full}, and images waited {waited_ms} ms because the file held all buffers: it was written too slowly");
        left.take(Place::Disk, refused, Certainty::Likely, why);
    } else if account.totals.contains_key(FILE_WAITED_MS) {
        let why = |_| format!("{full}, and images waited only {waited_ms} ms for the file: the processors were too slow");
        left.take(Place::Slots, refused, Certainty::Likely, why);
    } else {
        let why = |_| format!("{full}: the processors or the disk were too slow");
        left.take(Place::Slots, refused, Certainty::Counted, why);
    }
}

/// What the host counted during the run.
fn host(account: &Account, left: &mut Left) {
    use Certainty::{Likely, Possible};
    let total = |name| account.total(name);
    let backlog = total(names::BACKLOG_DROPPED);
    let most = backlog.saturating_mul(account.joined_max());
    left.take(Place::Backlog, most, Likely, |_| format!("the backlog of a processor was full {backlog} times during the run"));
    let fragments = total(names::FRAGMENTS_LOST);
    let why = |_| format!("{fragments} datagrams could not be put together from their fragments");
    left.take(Place::Damaged, fragments, Likely, why);
    let (full, cut) = (total(names::NIC_NO_ROOM), total(names::TURNS_CUT_SHORT));
    let budget = match cut {
        0 => String::new(),
        _ => format!("; {cut} times a processor gave up its turn before the ring was empty"),
    };
    left.take(Place::NicRing, full, Likely, |_| format!("the network card had no room for {full} packets{budget}"));
    let damaged = total(names::NIC_DAMAGED);
    left.take(Place::Wire, damaged, Likely, |_| format!("{damaged} frames came to the card damaged or too long"));
    let dropped = total(names::NIC_DROPPED);
    let why = |_| format!("the driver of the card dropped {dropped} packets; some of them may be of other protocols");
    left.take(Place::Driver, dropped, Possible, why);
}

/// What nobody on this host has counted.
fn before(account: &Account, left: &mut Left) {
    let (certainty, why) = if account.has_host_counters() {
        (
            Certainty::Likely,
            "no counter of this host explains them: they did not reach its network card, or its driver does not count them",
        )
    } else {
        (
            Certainty::Possible,
            "they did not reach the socket; the run stored no counters of its host, so network card and backlog cannot be excluded",
        )
    };
    left.take(Place::Wire, left.packets, certainty, |_| why.to_owned());
}

/// Images that came and are not in the file.
fn unwritten(account: &Account) -> Option<Cause> {
    let lost = account.total("images_unwritten");
    (lost > 0).then(|| Cause {
        place: Place::Disk,
        lost,
        unit: "images",
        certainty: Certainty::Counted,
        why: format!("{lost} images came and could not be written: the file failed"),
        fix: Place::Disk.fix(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run of 100 frames of 128 packets of 8240 bytes.
    fn account(more: &[(&str, u64)]) -> Account {
        let base = [("packets_expected", 12_800), ("received", 12_000), ("received_bytes", 12_000 * 8240)];
        let totals = base.iter().chain(more).map(|(name, n)| ((*name).to_owned(), *n)).collect();
        Account { totals, streams: vec![("udp://a:1".into(), 6000), ("udp://a:2".into(), 6000)], ..Account::default() }
    }

    const QUIET: [(&str, u64); 4] =
        [(names::BACKLOG_DROPPED, 0), (names::SOCKETS_FULL, 0), (names::NIC_NO_ROOM, 0), (names::NIC_DROPPED, 0)];

    #[test]
    fn each_place_is_named_with_its_share() {
        use Certainty::{Counted, Likely, Possible};
        type Case<'a> = (&'a [(&'a str, u64)], bool, &'a [(Place, u64, Certainty)]);
        let cases: &[Case<'_>] = &[
            (&[], true, &[]),
            // Nothing that the host counts matters where nothing is missing.
            (&[(names::NIC_NO_ROOM, 5), ("kernel_dropped", 0)], true, &[]),
            (&[("packets_missing", 70)], true, &[(Place::Wire, 70, Likely)]),
            (&[("packets_missing", 70)], false, &[(Place::Wire, 70, Possible)]),
            (&[("packets_missing", 70), ("kernel_dropped", 70)], true, &[(Place::Socket, 70, Counted)]),
            // A dropped buffer holds up to 7 datagrams of this size.
            (&[("packets_missing", 70), ("kernel_dropped", 10)], true, &[(Place::Socket, 70, Likely)]),
            (&[("packets_missing", 70), ("kernel_dropped", 9)], true, &[(Place::Socket, 63, Likely), (Place::Wire, 7, Likely)]),
            (&[("packets_missing", 256), ("no_slot", 256)], true, &[(Place::Slots, 256, Counted)]),
            (&[("packets_missing", 256), ("no_slot", 256), (FILE_WAITED_MS, 3)], true, &[(Place::Slots, 256, Likely)]),
            (&[("packets_missing", 256), ("no_slot", 256), (FILE_WAITED_MS, 900)], true, &[(Place::Disk, 256, Likely)]),
            (&[("images_unwritten", 4)], true, &[(Place::Disk, 4, Counted)]),
            // 5 of 10 seconds were refused; the file held up the images for 0.1, or for 3 seconds.
            (
                &[("packets_missing", 6400), ("no_slot", 6400), (FILE_WAITED_MS, 100), (RECEIVE_MS, 10_000)],
                true,
                &[(Place::Slots, 6400, Likely)],
            ),
            (
                &[("packets_missing", 6400), ("no_slot", 6400), (FILE_WAITED_MS, 3000), (RECEIVE_MS, 10_000)],
                true,
                &[(Place::Disk, 6400, Likely)],
            ),
            (&[("packets_missing", 5), ("late", 5)], true, &[(Place::Late, 5, Counted)]),
            (&[("packets_missing", 90), ("malformed_length", 90)], true, &[(Place::SetUp, 90, Likely)]),
            (
                &[("packets_missing", 70), (names::NIC_NO_ROOM, 50)],
                true,
                &[(Place::NicRing, 50, Likely), (Place::Wire, 20, Likely)],
            ),
            // Other programs lost packets there too.
            (&[("packets_missing", 70), (names::NIC_NO_ROOM, 5000)], true, &[(Place::NicRing, 70, Likely)]),
            (&[("packets_missing", 70), (names::BACKLOG_DROPPED, 10)], true, &[(Place::Backlog, 70, Likely)]),
            (&[("packets_missing", 3), (names::FRAGMENTS_LOST, 3)], true, &[(Place::Damaged, 3, Likely)]),
            (&[("packets_missing", 3), (names::WRONG_CHECKSUMS, 9)], true, &[(Place::Damaged, 3, Likely)]),
            // The socket counts them too.
            (&[("packets_missing", 5), ("kernel_dropped", 5), (names::WRONG_CHECKSUMS, 5)], true, &[(Place::Damaged, 5, Likely)]),
            (&[("packets_missing", 3), (names::NIC_DAMAGED, 2)], true, &[(Place::Wire, 2, Likely), (Place::Wire, 1, Likely)]),
            (&[("packets_missing", 3), (names::NIC_DROPPED, 4)], true, &[(Place::Driver, 3, Possible)]),
            (
                &[("packets_missing", 400), ("no_slot", 128), ("kernel_dropped", 20), (names::NIC_NO_ROOM, 100), ("late", 2)],
                true,
                &[
                    (Place::Socket, 140, Likely),
                    (Place::Slots, 128, Counted),
                    (Place::NicRing, 100, Likely),
                    (Place::Wire, 30, Likely),
                    (Place::Late, 2, Counted),
                ],
            ),
        ];
        for (more, knows_host, expected) in cases {
            let quiet: &[_] = if *knows_host { &QUIET } else { &[] };
            let account = account(&[quiet, more].concat());
            let found = causes(&account);
            let short: Vec<_> = found.iter().map(|cause| (cause.place, cause.lost, cause.certainty)).collect();
            assert_eq!(short, *expected, "{more:?}");
            let packets: u64 = found.iter().filter(|cause| cause.unit == "packets").map(|cause| cause.lost).sum();
            assert_eq!(packets, account.packets_missing(), "{more:?}");
            assert_eq!(account.has_loss(), !expected.is_empty(), "{more:?}");
            assert!(found.iter().all(|cause| !cause.why.is_empty() && !cause.fix.is_empty()));
        }
    }

    #[test]
    fn what_a_ring_refused_is_named() {
        use Certainty::{Counted, Likely};
        let mut ring =
            account(&[("packets_missing", 100), ("kernel_dropped", 20), ("refused_fragment", 8), ("refused_checksum", 1)]);
        ring.totals.extend([
            ("refused_joined".to_owned(), 10),
            ("refused_vlan".to_owned(), 1),
            (names::WRONG_CHECKSUMS.into(), 50),
        ]);
        ring.backend = "packet".into();
        let found: Vec<_> = causes(&ring).iter().map(|cause| (cause.place, cause.lost, cause.certainty)).collect();
        let expected = [
            (Place::Damaged, 70, Likely),
            (Place::Socket, 20, Counted),
            (Place::Damaged, 8, Counted),
            (Place::Damaged, 1, Counted),
            (Place::SetUp, 1, Counted),
        ];
        assert_eq!(found, expected);
        assert!(causes(&ring)[1].why.contains("the ring of the stream was full"));
    }

    #[test]
    fn a_silent_stream_explains_its_part() {
        let mut account = account(&[("packets_missing", 6500)]);
        account.streams[1].1 = 0;
        let found = causes(&account);
        assert_eq!((found[0].place, found[0].lost), (Place::Stream, 6400));
        assert!(found[0].why.contains("udp://a:2"), "{found:?}");
        assert_eq!((found[1].place, found[1].lost), (Place::Wire, 100));
    }

    #[test]
    fn numbers_that_cannot_be_do_not_panic() {
        let all = [
            "packets_missing",
            "no_slot",
            "late",
            "malformed_a",
            "malformed_b",
            "kernel_dropped",
            "received_bytes",
            "refused_joined",
            FILE_WAITED_MS,
            RECEIVE_MS,
        ];
        for n in [0, 1, u64::MAX] {
            let mut account = account(&all.map(|name| (name, n)));
            causes(&account);
            account.streams.clear();
            account.totals.insert("received".into(), 0);
            causes(&account);
        }
        assert_eq!(causes(&Account::default()), []);
    }
}
