//! What the kernel has dropped since the machine was started.

use crate::finding::{Finding, Verdict};
use crate::parse::{snmp, softnet, word_after};
use crate::snapshot::Snapshot;
use konkordia_core::text::count;

/// Drops between card and socket, at sockets, and of fragments.
pub(super) fn check(snapshot: &Snapshot) -> Vec<Finding> {
    vec![backlog(snapshot), sockets(snapshot), fragments(snapshot)]
}

const SNMP: &str = "proc/net/snmp";

fn backlog(snapshot: &Snapshot) -> Finding {
    let sums = snapshot.files.text("proc/net/softnet_stat");
    let sums = sums.and_then(|text| softnet(text).ok_or_else(|| "/proc/net/softnet_stat has another form".into()));
    let why = "the backlog of a processor was full, so packets were dropped before their socket; the count is since the start of the machine";
    Finding::of("softnet_drops", "0 packets", why)
        .judge(sums, |finding, sums| {
            let measured = format!("{} of {} packets", count(sums.dropped), count(sums.processed));
            finding.is(if sums.dropped == 0 { Verdict::Pass } else { Verdict::Warn }, measured)
        })
        .fix("# raise net.core.netdev_max_backlog, and spread the queues of the card over more processors")
}

fn sockets(snapshot: &Snapshot) -> Finding {
    let text = snapshot.files.text(SNMP);
    let six =
        |name: &str| snapshot.files.text("proc/net/snmp6").ok().and_then(|text| word_after(text, name)?.parse::<u64>().ok());
    let of = |text: &str, name: &str| Some(snmp(text, "Udp", name)?.saturating_add(six(&format!("Udp6{name}")).unwrap_or(0)));
    let counters = text.and_then(|text| {
        let all = (of(text, "RcvbufErrors"), of(text, "InErrors"), of(text, "InCsumErrors"), of(text, "InDatagrams"));
        let (Some(full), Some(errors), Some(sums), Some(taken)) = all else { return Err(format!("/{SNMP} lacks a counter")) };
        Ok((full, errors, sums, taken))
    });
    let why = "sockets of this machine (of any program) were full; the count is since the start of the machine";
    Finding::of("udp_errors", "0 datagrams", why)
        .judge(counters, |finding, (full, errors, sums, taken)| {
            let all = format!("{} lost at full sockets, {} wrong checksums, {} errors in all, {} taken", count(full), count(sums), count(errors), count(taken));
            // Other errors are those that a filter threw away: with a ring, the sockets that keep the ports do.
            finding.is(if sums == 0 && full == 0 { Verdict::Pass } else { Verdict::Warn }, all)
        })
        .fix("# `nstat -az UdpRcvbufErrors` before and after a run shows whether it goes on; the run report says how many were ours")
}

fn fragments(snapshot: &Snapshot) -> Finding {
    let lost = snapshot
        .files
        .text(SNMP)
        .and_then(|text| snmp(text, "Ip", "ReasmFails").ok_or_else(|| format!("/{SNMP} lacks a counter")));
    let why = "datagrams longer than the MTU on their way come in fragments, and one lost fragment loses the datagram; the count is since the start of the machine";
    Finding::of("ip_fragments", "0 datagrams that could not be put together", why)
        .judge(lost, |finding, lost| {
            finding.is(if lost == 0 { Verdict::Pass } else { Verdict::Warn }, format!("{} datagrams", count(lost)))
        })
        .fix("# set the MTU of detector, switch and card to 9000, so that nothing is sent in fragments")
}
