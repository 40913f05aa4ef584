//! Encoders of finite state entropy for distributions that are known beforehand (RFC 8878, 4.1).

use super::bits::BitWriter;

/// How a symbol changes the state.
#[derive(Clone, Copy)]
struct Step {
    /// The number of bits that leave the state is the sum of state and this, shifted down by 16.
    bits: u32,
    /// The next state is at this place, plus what is left of the state.
    place: i32,
}

/// An encoder for one distribution.
pub struct Table {
    log: u32,
    states: Vec<u16>,
    steps: Vec<Step>,
}

/// A state of an encoder.
#[derive(Clone, Copy)]
pub struct State(u32);

impl Table {
    /// `counts` are the shares of the symbols, in 1 / 2^log; -1 = less than one. Together they are 1.
    pub fn new(counts: &[i16], log: u32) -> Self {
        let size = 1 << log;
        let mut firsts: Vec<usize> = Vec::new();
        let (mut steps, mut total) = (Vec::new(), 0);
        for &count in counts {
            let places = i32::from(count.abs());
            firsts.push(total as usize);
            steps.push(match places {
                0 | 1 => Step { bits: (log << 16) - size, place: total - 1 },
                _ => {
                    let bits = log - (places as u32 - 1).ilog2();
                    Step { bits: (bits << 16) - ((places as u32) << bits), place: total - places }
                }
            });
            total += places;
        }
        assert_eq!(total as u32, size, "the shares are 1 together");
        let mut states = vec![0; size as usize];
        for (place, symbol) in spread(counts, size as usize).into_iter().enumerate() {
            states[firsts[symbol]] = (size as usize + place) as u16;
            firsts[symbol] += 1;
        }
        Self { log, states, steps }
    }

    /// The state after the last symbol, which is encoded first and takes no bits.
    pub fn start(&self, symbol: u8) -> State {
        let step = self.steps[usize::from(symbol)];
        let bits = (step.bits + (1 << 15)) >> 16;
        self.next(step, (bits << 16) - step.bits, bits)
    }

    /// Adds a symbol.
    #[inline(always)]
    pub fn add(&self, state: &mut State, symbol: u8, out: &mut BitWriter<'_>) {
        let step = self.steps[usize::from(symbol)];
        let bits = (state.0 + step.bits) >> 16;
        out.add(u64::from(state.0) & ((1 << bits) - 1), bits);
        *state = self.next(step, state.0, bits);
    }

    #[inline(always)]
    fn next(&self, step: Step, state: u32, bits: u32) -> State {
        State(self.states[((state >> bits) as i32 + step.place) as usize].into())
    }

    /// Adds the state, with which decoding begins.
    pub fn end(&self, state: State, out: &mut BitWriter<'_>) {
        out.add(u64::from(state.0) & ((1 << self.log) - 1), self.log);
    }
}

/// The symbol of each place of a table.
fn spread(counts: &[i16], size: usize) -> Vec<usize> {
    let mut symbols = vec![0; size];
    let mut end = size;
    for (symbol, _) in counts.iter().enumerate().filter(|(_, count)| **count == -1) {
        end -= 1;
        symbols[end] = symbol;
    }
    let next = |at: usize| (at + (size >> 1) + (size >> 3) + 3) & (size - 1);
    let mut at = 0;
    for (symbol, &count) in counts.iter().enumerate() {
        for _ in 0..count.max(0) {
            symbols[at] = symbol;
            at = next(at);
            while at >= end {
                at = next(at);
            }
        }
    }
    symbols
}

/// The description of a distribution whose shares are all at least one (RFC 8878, 4.1.1). Unlike other streams it is
/// read from its beginning.
pub fn describe(counts: &[i16], log: u32) -> Vec<u8> {
    let (mut bits, mut used) = (u64::from(log - 5), 4);
    let (mut out, mut remaining, mut width) = (Vec::new(), (1i32 << log) + 1, log + 1);
    for &count in counts {
        // Values that cannot come make room: those below `short` take one bit less.
        let threshold = 1 << (width - 1);
        let short = 2 * threshold - 1 - remaining;
        remaining -= i32::from(count);
        let value = i32::from(count) + 1;
        let value = if value >= threshold { value + short } else { value };
        bits |= (value as u64) << used;
        used += width - u32::from(value < short);
        while remaining < 1 << (width - 1) {
            width -= 1;
        }
        while used >= 8 {
            out.push(bits as u8);
            (bits, used) = (bits >> 8, used - 8);
        }
    }
    assert_eq!(remaining, 1, "the shares are 1 together");
    if used > 0 {
        out.push(bits as u8);
    }
    out
}
