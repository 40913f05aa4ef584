//! Bandwidth over sockets: messages of one packet by packet size, number of addresses and way of waiting; beside them
//! Table 2 of Ponsard et al. 2020.

use super::super::fabric_args::RdmaOperation;
use super::super::peer::Peer;
use super::super::spread::Spread;
use super::ends::{Attempt, Measured, Test, Wait, measure};
use super::protocol::Agreed;
use konkordia_core::failure::Failure;
use konkordia_core::text;
use serde_json::{Value, json};

/// Table 2 of Ponsard et al. 2020: Gb/s from a network card with RDMA to memory, by verb and bytes of a packet.
const PAPER: [(&str, usize, f64); 4] = [("SEND", 2048, 94.5), ("SEND", 4096, 97.6), ("WRITE", 2048, 95.2), ("WRITE", 4096, 97.5)];
/// The other rows of it, and what else is published.
pub const OTHERS: &str = "paper: Ponsard et al. 2020, Table 2, ConnectX-5 of 100 Gb/s; its RAW: 33.3, 60.5, 99.1 Gb/s at 2048, 4096, 8246 bytes\n\
                          EUCALL D5.2 (ESRF): FPGA to FPGA over 100 GbE 90 Gb/s at 1 kB, 95 Gb/s from \"32 Kb\" on; RoCEv2 6.1 Gb/s, RDMA over UDP \
                          10.3 Gb/s (1.7 times) at 598 bytes, each packet triggered by a processor";

/// All repeats of one setting.
pub struct Row {
    attempt: Attempt,
    found: Vec<Measured>,
}

/// The settings in their order.
pub struct Settings<'a> {
    pub operations: &'a [RdmaOperation],
    pub packets: &'a [usize],
    pub addresses: &'a [usize],
    pub count: u64,
    pub repeats: u32,
}

impl Settings<'_> {
    fn attempts(&self) -> Vec<Attempt> {
        let mut all = Vec::new();
        for &addresses in self.addresses {
            for wait in Wait::ALL {
                for &packet_bytes in self.packets {
                    for &operation in self.operations {
                        let agreed =
                            Agreed { operation, packet_bytes, message_bytes: packet_bytes, addresses, compares_icrc: true };
                        let test = Test::Bandwidth;
                        all.push(Attempt { agreed, test, wait, messages: self.count, compares_all: false });
                    }
                }
            }
        }
        all
    }

    /// Measures them.
    ///
    /// # Errors
    /// If sockets fail, or the other end does.
    pub fn measure(&self, peer: &mut Peer, mut tell: impl FnMut(String)) -> Result<Vec<Row>, Failure> {
        let mut rows: Vec<Row> = self.attempts().into_iter().map(|attempt| Row { attempt, found: Vec::new() }).collect();
        let of_one_size = self.operations.len().max(1);
        let mut memory = Vec::new();
        for rows in rows.chunks_mut(of_one_size) {
            // Operations take turns. The first round compares every byte of every message, and its times do not count.
            for repeat in 0..=self.repeats {
                for row in &mut *rows {
                    tell(format!("{}, repeat {repeat}", row.name()));
                    let attempt = Attempt { compares_all: repeat == 0, ..row.attempt };
                    row.found.push(measure(peer, &attempt, &mut memory)?);
                }
            }
        }
        Ok(rows)
    }
}

impl Row {
    fn name(&self) -> String {
        let Agreed { operation, packet_bytes, addresses, .. } = self.attempt.agreed;
        format!("{}, {packet_bytes} bytes, {addresses} address(es), {}", operation.name(), self.attempt.wait.name())
    }

    /// Whether all messages came that are counted, and were right.
    pub fn verified(&self) -> bool {
        self.found.iter().all(|found| found.verified)
    }

    /// Packets that did not come, of all repeats.
    pub fn lost(&self) -> u64 {
        self.found.iter().map(|found| found.lost).sum()
    }

    fn spread(&self, value: impl Fn(&Measured) -> Option<f64>) -> Spread {
        Spread::of(self.found[1..].iter().filter(|found| found.lost == 0).filter_map(value))
    }

    fn gigabits_per_s(&self) -> Spread {
        let bits = self.attempt.messages as f64 * self.attempt.agreed.message_bytes as f64 * 8.0;
        self.spread(|found| Some(bits / found.seconds / 1e9))
    }

    fn receiver_ns(&self) -> Spread {
        self.spread(|found| found.receiver_ns_per_packet)
    }

    fn paper(&self) -> Option<f64> {
        let verb = match self.attempt.agreed.operation {
            RdmaOperation::Send => "SEND",
            RdmaOperation::Write | RdmaOperation::WriteImm => "WRITE",
            _ => return None,
        };
        PAPER.iter().find(|row| (row.0, row.1) == (verb, self.attempt.agreed.packet_bytes)).map(|row| row.2)
    }

    /// This row's figure by that of an operation with the same settings.
    fn ratio(&self, rows: &[Self], operation: RdmaOperation, figure: impl Fn(&Self) -> f64) -> f64 {
        let (attempt, agreed) = (self.attempt, Agreed { operation, ..self.attempt.agreed });
        let other = rows.iter().find(|row| row.attempt.agreed == agreed && row.attempt.wait == attempt.wait);
        other.map_or(f64::NAN, |other| figure(self) / figure(other))
    }

    fn to_json(&self, rows: &[Self]) -> Value {
        let Agreed { packet_bytes, addresses, .. } = self.attempt.agreed;
        let rate = |row: &Self| row.gigabits_per_s().median;
        json!({
            "name": self.name(), "packet_bytes": packet_bytes, "addresses": addresses, "messages": self.attempt.messages,
            "gigabits_per_second": self.gigabits_per_s().to_json(), "receiver_ns_per_packet": self.receiver_ns().to_json(),
            "times_write": self.ratio(rows, RdmaOperation::Write, rate), "times_udp": self.ratio(rows, RdmaOperation::Udp, rate),
            "receiver_of_udp": self.ratio(rows, RdmaOperation::Udp, |row| row.receiver_ns().median),
            "lost": self.lost(), "paper_gigabits_per_second": self.paper(), "verified": self.verified(),
        })
    }

    fn line(&self, rows: &[Self]) -> Vec<String> {
        let Agreed { operation, packet_bytes, addresses, .. } = self.attempt.agreed;
        let number = |value: f64| if value.is_finite() { format!("{value:.2}") } else { "-".into() };
        let rate = |row: &Self| row.gigabits_per_s().median;
        vec![
            text::count(packet_bytes as u64),
            text::count(addresses as u64),
            self.attempt.wait.name().into(),
            operation.name().into(),
            self.gigabits_per_s().to_short_text(2),
            number(self.ratio(rows, RdmaOperation::Udp, rate)),
            number(self.ratio(rows, RdmaOperation::Write, rate)),
            self.receiver_ns().to_short_text(0),
            number(self.ratio(rows, RdmaOperation::Udp, |row| row.receiver_ns().median)),
            self.lost().to_string(),
            self.paper().map_or("-".into(), |paper| paper.to_string()),
            if self.verified() { "whole" } else { "WRONG" }.into(),
        ]
    }
}

/// For programs.
pub fn to_json(rows: &[Row]) -> Value {
    rows.iter().map(|row| row.to_json(rows)).collect()
}

/// For people.
pub fn to_text(rows: &[Row]) -> String {
    let head = [
        "bytes",
        "addresses",
        "wait",
        "operation",
        "Gb/s",
        "times udp",
        "times write",
        "receiver ns/packet",
        "of udp's",
        "lost",
        "paper Gb/s",
        "memory",
    ];
    let lines = rows.iter().map(|row| row.line(rows));
    let table = text::table(&std::iter::once(head.map(str::to_string).to_vec()).chain(lines).collect::<Vec<_>>());
    format!(
        "messages of one packet, one system call for each that is sent; receiver: processor time of its thread\n\n{table}\n\n{OTHERS}"
    )
}

/// The paper's ladder (D31) and ours, in Gb/s: the fastest of each kind, whatever its packets.
pub fn ladder(rows: &[Row]) -> Vec<(String, f64)> {
    let best = |operation: RdmaOperation| {
        let own = rows.iter().filter(|row| row.attempt.agreed.operation == operation);
        own.map(|row| row.gigabits_per_s().median).filter(|rate| rate.is_finite()).fold(f64::NAN, f64::max)
    };
    let ours = RdmaOperation::ALL.map(|operation| (format!("ours, {}", operation.name()), best(operation)));
    let paper = [("paper, socket (with drops)", 9.0), ("paper, VMA", 26.0), ("paper, RDMA", 100.0)];
    let paper = paper.map(|(name, rate)| (name.to_string(), rate));
    paper.into_iter().chain(ours).filter(|(_, rate)| rate.is_finite()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(operation: RdmaOperation, packet_bytes: usize, seconds: &[f64], lost: u64) -> Row {
        let agreed = Agreed { operation, packet_bytes, message_bytes: packet_bytes, addresses: 1, compares_icrc: true };
        let attempt = Attempt { agreed, test: Test::Bandwidth, wait: Wait::Events, messages: 1000, compares_all: false };
        let found = |seconds: &f64| Measured { seconds: *seconds, lost, verified: true, ..Measured::default() };
        Row { attempt, found: seconds.iter().map(found).collect() }
    }

    #[test]
    fn ratios_are_of_rows_with_the_same_settings() {
        let rows = [
            row(RdmaOperation::Write, 1024, &[9.0, 0.002, 0.002], 0),
            row(RdmaOperation::RdmaUdp, 1024, &[9.0, 0.001, 0.001], 0),
            row(RdmaOperation::Write, 4096, &[9.0, 0.001], 0),
        ];
        let rate = |row: &Row| row.gigabits_per_s().median;
        assert!((rows[0].gigabits_per_s().median - 4.096).abs() < 1e-9);
        assert!((rows[1].ratio(&rows, RdmaOperation::Write, rate) - 2.0).abs() < 1e-9);
        assert!(rows[2].ratio(&rows, RdmaOperation::Udp, rate).is_nan());
        assert_eq!((rows[2].paper(), rows[1].paper()), (Some(97.5), None));
        assert!(ladder(&rows).iter().any(|(name, rate)| name == "ours, write" && *rate > 32.0));
    }

    #[test]
    fn attempts_with_losses_have_no_rate() {
        let rows = [row(RdmaOperation::Udp, 1024, &[9.0, 0.002], 3)];
        assert!(rows[0].gigabits_per_s().median.is_nan() && rows[0].lost() == 6);
        assert!(to_text(&rows).contains(" 6 "));
    }
}
