//! What AF_XDP has dropped, by cause.

use konkordia_core::text;

/// What was lost of one stream since it was opened, in datagrams. What the reader refused is counted elsewhere
/// ([`crate::frame::Refusals`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// The stream's ring was full: its thread was too slow.
    pub ring_full: u64,
    /// There was no free chunk, or the datagram did not fit (as the kernel counts it: `rx_dropped`).
    pub no_memory: u64,
    /// By the ordinary socket of the port.
    pub other_socket: u64,
    /// How often the kernel or the card looked for a free chunk in vain. This is not a number of datagrams: what the
    /// card then drops, it counts itself (`rx_missed_errors` and the like in `ethtool -S`).
    pub memory_empty: u64,
}

impl Losses {
    /// Datagrams that were lost; each counts once.
    pub fn datagrams(&self) -> u64 {
        self.ring_full + self.no_memory + self.other_socket
    }

    /// The numbers with their names; only those above 0.
    pub fn rows(&self) -> Vec<(&'static str, u64)> {
        let Self { ring_full, no_memory, other_socket, memory_empty } = *self;
        let all =
            [("ring_full", ring_full), ("no_memory", no_memory), ("other_socket", other_socket), ("memory_empty", memory_empty)];
        all.into_iter().filter(|(_, count)| *count > 0).collect()
    }

    /// What happened and what to do, one line for each cause.
    pub fn advice(&self) -> Vec<String> {
        let line = |(name, count): (&str, u64)| {
            let count = text::count(count);
            match name {
                "ring_full" => format!(
                    "{count} packets were dropped because a ring was full: write a larger receive_buffer_mib in [source] and see \
                     docs/troubleshooting.md"
                ),
                "no_memory" => format!(
                    "{count} packets were dropped because the memory of AF_XDP had no free place for them: write a larger \
                     receive_buffer_mib in [source]"
                ),
                "other_socket" => format!(
                    "{count} packets were dropped by the ordinary sockets beside AF_XDP (buffer full, or wrong checksum): \
                     docs/af-xdp.md says which packets come that way and why"
                ),
                _ => format!(
                    "the network card found no free memory {count} times; `ethtool -S` shows what it then dropped: write a larger \
                     receive_buffer_mib in [source]"
                ),
            }
        };
        // Without zero-copy each packet that found no memory is counted there already.
        let known = |(name, _): &(&str, u64)| *name != "memory_empty" || self.no_memory == 0;
        self.rows().into_iter().filter(known).map(line).collect()
    }
}

impl std::ops::AddAssign for Losses {
    fn add_assign(&mut self, other: Self) {
        self.ring_full += other.ring_full;
        self.no_memory += other.no_memory;
        self.other_socket += other.other_socket;
        self.memory_empty += other.memory_empty;
    }
}

#[cfg(test)]
mod tests {
    use super::Losses;

    #[test]
    fn each_cause_that_occurred_has_a_line_and_counts_once() {
        assert!(Losses::default().advice().is_empty() && Losses::default().rows().is_empty());
        let mut losses = Losses { ring_full: 1000, other_socket: 3, ..Losses::default() };
        losses += Losses { ring_full: 200, memory_empty: 7, ..Losses::default() };
        assert_eq!(losses.datagrams(), 1203);
        assert_eq!(losses.rows(), [("ring_full", 1200), ("other_socket", 3), ("memory_empty", 7)]);
        let advice = losses.advice();
        assert!(advice.len() == 3 && advice[0].contains("a ring was full") && advice[2].contains("7 times"), "{advice:?}");
        losses.no_memory = 7;
        assert_eq!(losses.advice().len(), 3);
    }
}
