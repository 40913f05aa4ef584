//! Replays messages that were kept: at the times at which they came, faster, or as fast as they are taken.

use konkordia_core::ports::{Message, MessageSource};
use std::io;
use std::time::{Duration, Instant};

/// A message and when it came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TimedMessage {
    /// The message.
    pub message: Message,
    /// In ns since any moment, never decreasing; `None` = unknown, the message is due at once.
    pub time_ns: Option<u64>,
}

/// Kept messages, in order; errors end the replay.
pub type Messages = Box<dyn Iterator<Item = io::Result<TimedMessage>> + Send>;

/// Hands over the messages of an iterator.
pub struct ReplaySource {
    name: String,
    messages: Messages,
    /// 0 = as fast as possible.
    speed: f64,
    next: Option<TimedMessage>,
    /// When the first message with a time was handed over, and its time.
    origin: Option<(Instant, u64)>,
    finished: bool,
}

impl ReplaySource {
    /// A source of `messages`, `speed` times as fast as they came; with 0 as fast as they are taken. `name` is for
    /// display.
    pub fn new(name: impl Into<String>, messages: Messages, speed: f64) -> Self {
        let speed = if speed.is_finite() && speed > 0.0 { speed } else { 0.0 };
        Self { name: name.into(), messages, speed, next: None, origin: None, finished: false }
    }

    /// The time that is left until `message` is due.
    fn wait(&mut self, time_ns: Option<u64>) -> Duration {
        let (Some(time_ns), true) = (time_ns, self.speed > 0.0) else { return Duration::ZERO };
        let (begun, first_ns) = *self.origin.get_or_insert_with(|| (Instant::now(), time_ns));
        // A day at most, so that a damaged time cannot overflow a sum.
        let due_s = (time_ns.saturating_sub(first_ns) as f64 / 1e9 / self.speed).min(86_400.0);
        Duration::from_secs_f64(due_s).saturating_sub(begun.elapsed())
    }
}

impl MessageSource for ReplaySource {
    fn receive(&mut self, timeout: Duration, messages_max: usize, into: &mut Vec<Message>) -> io::Result<()> {
        let end = Instant::now() + timeout;
        let mut taken = 0;
        while taken < messages_max && !self.finished {
            if self.next.is_none() {
                self.next = self.messages.next().transpose().inspect_err(|_| self.finished = true)?;
            }
            let Some(time_ns) = self.next.as_ref().map(|next| next.time_ns) else {
                self.finished = true;
                break;
            };
            let wait = self.wait(time_ns);
            if !wait.is_zero() {
                if taken > 0 {
                    break;
                }
                let left = end.saturating_duration_since(Instant::now());
                std::thread::sleep(wait.min(left));
                if wait > left {
                    return Ok(());
                }
            }
            into.extend(self.next.take().map(|next| next.message));
            taken += 1;
        }
        if taken == 0 && self.finished {
            // No more messages will come. Wait, so that a caller's loop does not spin.
            std::thread::sleep(end.saturating_duration_since(Instant::now()));
        }
        Ok(())
    }

    fn is_finished(&self) -> bool {
        self.finished
    }

    fn name(&self) -> String {
        self.name.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(times_ns: &[Option<u64>]) -> Messages {
        let all: Vec<_> = times_ns.iter().enumerate().map(|(n, time)| (n as u8, *time)).collect();
        Box::new(all.into_iter().map(|(n, time_ns)| {
            Ok(TimedMessage { message: Message { parts: vec![bytes::Bytes::copy_from_slice(&[n])] }, time_ns })
        }))
    }

    fn numbers(messages: &[Message]) -> Vec<u8> {
        messages.iter().map(|m| m.parts[0][0]).collect()
    }

    #[test]
    fn messages_come_in_order_and_then_no_more() {
        let mut source = ReplaySource::new("kept", messages(&[None, Some(5), Some(1 << 60)]), 0.0);
        let mut got = Vec::new();
        source.receive(Duration::ZERO, 2, &mut got).unwrap();
        assert_eq!((numbers(&got), source.is_finished()), (vec![0, 1], false));
        source.receive(Duration::ZERO, 9, &mut got).unwrap();
        assert_eq!((numbers(&got), source.is_finished()), (vec![0, 1, 2], true));
        source.receive(Duration::ZERO, 9, &mut got).unwrap();
        assert_eq!((got.len(), source.name()), (3, "kept".to_owned()));
    }

    #[test]
    fn times_are_kept_and_speed_divides_them() {
        for (speed, least) in [(1.0, 60), (4.0, 15)] {
            let ms = 1_000_000;
            let mut source = ReplaySource::new("", messages(&[Some(7 * ms), Some(7 * ms), Some(67 * ms)]), speed);
            let (mut got, begun) = (Vec::new(), Instant::now());
            source.receive(Duration::from_secs(9), 9, &mut got).unwrap();
            assert_eq!(numbers(&got), [0, 1]);
            source.receive(Duration::ZERO, 9, &mut got).unwrap();
            assert_eq!((got.len(), source.is_finished()), (2, false));
            source.receive(Duration::from_secs(9), 9, &mut got).unwrap();
            assert_eq!(numbers(&got), [0, 1, 2]);
            assert!(begun.elapsed() >= Duration::from_millis(least));
        }
    }

    #[test]
    fn an_error_ends_the_replay() {
        let broken: Messages = Box::new([Ok(TimedMessage::default()), Err(io::Error::other("cut"))].into_iter());
        let mut source = ReplaySource::new("", broken, 0.0);
        let mut got = Vec::new();
        assert_eq!(source.receive(Duration::ZERO, 9, &mut got).unwrap_err().to_string(), "cut");
        assert_eq!((got.len(), source.is_finished()), (1, true));
        source.receive(Duration::ZERO, 9, &mut got).unwrap();
    }
}
