//! Messages and windows of messages over a link, and what answers them at the other end.
//!
//! Messages are numbered in their first bytes. Each end checks the numbers of all messages, and every byte of those of
//! the warm-up, which do not count for the times, and of the last one.

use super::super::args::NetTransport;
use super::super::links::{Link, REGION_BYTES};
use super::super::peer::filling;
use std::io;
use std::time::Instant;

/// Bytes of the answer to a window: the number of messages that came.
const ANSWER_BYTES: usize = 8;
/// Messages and answers of a repeat: so much data, but no fewer and no more.
const LATENCY_BYTES: usize = 16 << 20;
const ROUNDS: (usize, usize) = (20, 1000);
/// Windows of a repeat.
const BANDWIDTH_BYTES: usize = 64 << 20;
const WINDOWS: (usize, usize) = (2, 50);
/// Bytes of a window: so much may wait in the queues of ZeroMQ, and has room in the memory of a link.
const WINDOW_BYTES_MAX: usize = REGION_BYTES;

/// What is sent for one row.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub transport: NetTransport,
    pub bytes: usize,
    /// Messages with an answer each; a tenth more come first and do not count.
    pub rounds: usize,
    pub window: usize,
    /// Windows; one more comes first and does not count.
    pub windows: usize,
}

impl Plan {
    pub fn new(transport: NetTransport, bytes: usize, window: usize, is_quick: bool) -> Self {
        let window = if transport == NetTransport::ZmqReq { 1 } else { window.min((WINDOW_BYTES_MAX / bytes).max(1)) };
        let (rounds, windows) = if is_quick {
            (ROUNDS.0, WINDOWS.0)
        } else if window == 1 {
            // Windows of one message are as many as rounds.
            let rounds = (LATENCY_BYTES / bytes).clamp(ROUNDS.0, ROUNDS.1);
            (rounds, rounds)
        } else {
            ((LATENCY_BYTES / bytes).clamp(ROUNDS.0, ROUNDS.1), (BANDWIDTH_BYTES / (bytes * window)).clamp(WINDOWS.0, WINDOWS.1))
        };
        Self { transport, bytes, rounds, window, windows }
    }

    /// Messages that do not count.
    pub fn warm_up(&self) -> usize {
        self.rounds.div_ceil(10)
    }
}

/// Gives a message its number, as far as it has room for it.
pub fn stamp(message: &mut [u8], number: usize) {
    let bytes = message.len().min(8);
    message[..bytes].copy_from_slice(&(number as u64).to_le_bytes()[..bytes]);
}

/// Is it the message with this number? Its other bytes are compared too where `filling` is given.
pub fn is_right(message: &[u8], bytes: usize, number: usize, filling: Option<&[u8]>) -> bool {
    let head = bytes.min(8);
    message.len() == bytes
        && message[..head] == (number as u64).to_le_bytes()[..head]
        && filling.is_none_or(|filling| message[head..] == filling[head..])
}

/// Messages and answers in turn: half of each time, and whether the answers were right. It ends with the first answer
/// that does not come.
pub fn ping(link: &mut dyn Link, plan: &Plan) -> io::Result<(Vec<f64>, bool)> {
    let filling = filling(plan.bytes);
    let mut message = filling.clone();
    let (mut times_us, mut right) = (Vec::with_capacity(plan.rounds), true);
    let count = plan.warm_up() + plan.rounds;
    for number in 0..count {
        stamp(&mut message, number);
        let begin = Instant::now();
        link.send(&message)?;
        let whole = (number < plan.warm_up() || number + 1 == count).then_some(&filling[..]);
        if link.receive(plan.bytes, &mut |answer| right &= is_right(answer, plan.bytes, number, whole))? == 0 {
            break;
        }
        if number >= plan.warm_up() {
            times_us.push(begin.elapsed().as_secs_f64() / 2.0 * 1e6);
        }
    }
    Ok((times_us, right))
}

/// Windows of messages, each with one answer: messages per second, and how many did not come. It ends with the first
/// window that is not whole.
pub fn fill(link: &mut dyn Link, plan: &Plan) -> io::Result<(f64, usize)> {
    let mut message = filling(plan.bytes);
    let (mut begin, mut messages) = (Instant::now(), 0);
    for window in 0..=plan.windows {
        if window == 1 {
            begin = Instant::now();
        }
        for number in 0..plan.window {
            stamp(&mut message, window * plan.window + number);
            link.send(&message)?;
        }
        let mut arrived = 0;
        let mut look = |answer: &[u8]| arrived = answer.first_chunk::<8>().map_or(0, |count| u64::from_le_bytes(*count) as usize);
        link.receive(ANSWER_BYTES, &mut look)?;
        if arrived < plan.window {
            return Ok((messages as f64 / begin.elapsed().as_secs_f64(), plan.window - arrived));
        }
        messages = window * plan.window;
    }
    Ok((messages as f64 / begin.elapsed().as_secs_f64(), 0))
}

/// Answers each message with one of the same size and number; true if all that came were right, the first `compared`
/// and the last one in every byte. It ends when one does not come.
pub fn answer_each(link: &mut dyn Link, bytes: usize, count: usize, compared: usize) -> io::Result<bool> {
    let filling = filling(bytes);
    let mut answer = filling.clone();
    let mut right = true;
    for number in 0..count {
        let whole = (number < compared || number + 1 == count).then_some(&filling[..]);
        if link.receive(bytes, &mut |message| right &= is_right(message, bytes, number, whole))? == 0 {
            break;
        }
        stamp(&mut answer, number);
        link.send(&answer)?;
    }
    Ok(right)
}

/// Answers each window with the number of its messages; true if all that came were right, in any order, those of the
/// first window and the last one in every byte. It ends with the first window that is not whole.
pub fn answer_windows(link: &mut dyn Link, bytes: usize, window: usize, count: usize) -> io::Result<bool> {
    let filling = filling(bytes);
    let mut right = true;
    for first in (0..count * window).step_by(window.max(1)) {
        let (mut arrived, mut next) = (0, first);
        while arrived < window {
            let look = &mut |message: &[u8]| {
                let whole = (next < window || next + 1 == count * window).then_some(&filling[..]);
                // Messages of a window that were lost or overtaken do not make the others wrong.
                let number = (next..first + window).chain(first..next).find(|n| is_right(message, bytes, *n, whole));
                right &= number.is_some();
                next = number.map_or(next, |number| number + 1);
            };
            let came = link.receive(bytes, look)?;
            if came == 0 {
                break;
            }
            arrived += came;
        }
        link.send(&(arrived as u64).to_le_bytes())?;
        if arrived < window {
            break;
        }
    }
    Ok(right)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    /// Gives out prepared messages and keeps what is sent.
    struct Prepared {
        messages: VecDeque<Vec<u8>>,
        sent: Vec<Vec<u8>>,
    }

    impl Link for Prepared {
        fn send(&mut self, message: &[u8]) -> io::Result<()> {
            self.sent.push(message.to_vec());
            Ok(())
        }

        fn receive(&mut self, _: usize, look: &mut dyn FnMut(&[u8])) -> io::Result<usize> {
            let message = self.messages.pop_front();
            message.iter().for_each(|message| look(message));
            Ok(usize::from(message.is_some()))
        }
    }

    fn prepared(bytes: usize, numbers: &[usize]) -> Prepared {
        let message = |number: &usize| {
            let mut message = filling(bytes);
            stamp(&mut message, *number);
            message
        };
        Prepared { messages: numbers.iter().map(message).collect(), sent: Vec::new() }
    }

    #[test]
    fn wrong_messages_are_noticed() {
        for bytes in [1, 7, 8, 100] {
            let mut good = prepared(bytes, &[0, 1, 2]);
            assert!(answer_each(&mut good, bytes, 3, 1).unwrap());
            assert_eq!(prepared(bytes, &[0, 1, 2]).messages, good.sent);
            assert!(!answer_each(&mut prepared(bytes, &[0, 2, 1]), bytes, 3, 1).unwrap());
            assert!(!answer_each(&mut prepared(bytes + 1, &[0, 1, 2]), bytes, 3, 1).unwrap());
        }
        // A byte of the last message.
        let mut changed = prepared(100, &[0, 1]);
        changed.messages[1][99] ^= 1;
        assert!(!answer_each(&mut changed, 100, 2, 0).unwrap());
        // One of those that are compared, and one that is not.
        for (compared, is_right) in [(2, false), (1, true)] {
            let mut changed = prepared(100, &[0, 1, 2]);
            changed.messages[1][99] ^= 1;
            assert_eq!(answer_each(&mut changed, 100, 3, compared).unwrap(), is_right);
        }
    }

    #[test]
    fn windows_are_answered_with_what_came() {
        let arrived = |link: &Prepared| link.sent.iter().map(|answer| answer[0]).collect::<Vec<_>>();
        let mut good = prepared(16, &[0, 1, 2, 3, 4, 5]);
        assert!(answer_windows(&mut good, 16, 3, 2).unwrap());
        assert_eq!(arrived(&good), [3, 3]);
        // One is overtaken, and the last one is lost.
        let mut short = prepared(16, &[1, 0, 2, 3, 4]);
        assert!(answer_windows(&mut short, 16, 3, 2).unwrap());
        assert_eq!(arrived(&short), [3, 2]);
        assert!(!answer_windows(&mut prepared(16, &[0, 1, 7]), 16, 3, 2).unwrap());
    }

    #[test]
    fn the_near_end_counts_what_is_lost() {
        let plan = Plan { transport: NetTransport::Udp, bytes: 16, rounds: 4, window: 3, windows: 2 };
        let (times_us, right) = ping(&mut prepared(16, &[0, 1, 2]), &plan).unwrap();
        assert_eq!((times_us.len(), right), (2, true));
        let mut answers = prepared(8, &[]);
        answers.messages = [3u64, 2].map(|n| n.to_le_bytes().to_vec()).into();
        assert_eq!(fill(&mut answers, &plan).unwrap().1, 1);
        assert_eq!(answers.sent.len(), 6);
    }
}
