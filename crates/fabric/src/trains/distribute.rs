//! Which output a train goes to.

/// Who gets the next train.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Train id modulo the number of outputs: each output knows its trains, also after a loss.
    RoundRobin,
    /// The next output in turn that has asked for trains.
    Credits,
}

/// Bytes of a request for trains.
pub const CREDIT_BYTES: usize = 12;
/// A request begins with it. The message is ours; nobody published one.
const MAGIC: [u8; 4] = *b"TTPC";

/// An output asks for trains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credit {
    /// Which output.
    pub output: u32,
    /// How many more trains it can take.
    pub trains: u32,
}

impl Credit {
    /// Reads a datagram: "TTPC", output and trains, each u32 little-endian. `None` for anything else.
    pub fn read(datagram: &[u8]) -> Option<Self> {
        let rest = datagram.strip_prefix(&MAGIC)?;
        let (output, trains) = rest.split_first_chunk::<4>()?;
        let trains: [u8; 4] = trains.try_into().ok()?;
        Some(Self { output: u32::from_le_bytes(*output), trains: u32::from_le_bytes(trains) })
    }

    /// The datagram.
    pub fn write(&self) -> [u8; CREDIT_BYTES] {
        let mut out = [0; CREDIT_BYTES];
        out[..4].copy_from_slice(&MAGIC);
        out[4..8].copy_from_slice(&self.output.to_le_bytes());
        out[8..].copy_from_slice(&self.trains.to_le_bytes());
        out
    }
}

/// Distributes trains to outputs.
#[derive(Debug)]
pub struct Distributor {
    policy: Policy,
    credits: Vec<u32>,
    credits_max: u32,
    next: usize,
}

impl Distributor {
    /// For so many outputs, each of which may have at most `credits_max` open requests.
    ///
    /// # Panics
    /// If there is no output.
    pub fn new(policy: Policy, outputs: usize, credits_max: u32) -> Self {
        assert!(outputs > 0, "an output");
        Self { policy, credits: vec![0; outputs], credits_max, next: 0 }
    }

    /// Notes a request; false if there is no such output.
    pub fn credit(&mut self, credit: Credit) -> bool {
        let output = usize::try_from(credit.output).ok().and_then(|output| self.credits.get_mut(output));
        let Some(open) = output else { return false };
        *open = open.saturating_add(credit.trains).min(self.credits_max);
        true
    }

    /// The output of a train; `None` if nobody has asked for one.
    pub fn choose(&mut self, train_id: u64) -> Option<usize> {
        let outputs = self.credits.len();
        if self.policy == Policy::RoundRobin {
            return Some((train_id % outputs as u64) as usize);
        }
        let found = (0..outputs).map(|n| (self.next + n) % outputs).find(|output| self.credits[*output] > 0)?;
        self.credits[found] -= 1;
        self.next = (found + 1) % outputs;
        Some(found)
    }
}
