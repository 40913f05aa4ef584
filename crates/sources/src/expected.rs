//! How many datagrams the kernel is expected to join in a message, so that the payloads of several messages can be
//! received into the places behind each other. If a message joins another number, the payloads of all messages behind
//! it in the same call lie in wrong places and are moved, which costs as much as the copy that was to be saved. So the
//! places are not used for a while where that happens often.

use crate::sys::SEGMENTS_MAX;

/// Calls after which it is judged whether the places pay.
const JUDGED_CALLS: u32 = 64;
/// They do not if more messages than this joined another number than was expected.
const SURPRISES_MAX: u32 = 16;
/// Calls without places, until it is tried again.
const PAUSE_CALLS: u32 = 1024;

/// What is expected of the next messages of a socket.
#[derive(Debug)]
pub(crate) struct Expected {
    segments: usize,
    /// The largest number that came in a message since it was last judged.
    largest: usize,
    calls: u32,
    surprises: u32,
    pause: u32,
}

impl Default for Expected {
    fn default() -> Self {
        Self { segments: 1, largest: 1, calls: 0, surprises: 0, pause: 0 }
    }
}

impl Expected {
    /// Datagrams of each message.
    pub fn segments(&self) -> usize {
        self.segments
    }

    /// True if the next call is to use places.
    pub fn pays(&mut self) -> bool {
        if self.pause > 0 {
            self.pause -= 1;
            return false;
        }
        if self.calls == JUDGED_CALLS {
            self.pause = if self.surprises > SURPRISES_MAX { PAUSE_CALLS } else { 0 };
            (self.segments, self.largest, self.calls, self.surprises) = (self.largest, 1, 0, 0);
            return self.pause == 0;
        }
        self.calls += 1;
        true
    }

    /// A message of `datagrams` came, which had `places`. The last message of a frame may join fewer than the others,
    /// so only larger numbers are expected at once.
    pub fn came(&mut self, datagrams: usize, places: usize) {
        self.surprises += u32::from(datagrams != places);
        self.largest = self.largest.max(datagrams.min(SEGMENTS_MAX));
        self.segments = self.segments.max(self.largest);
    }

    /// A message came that is not made of heads and payloads of the expected size.
    pub fn came_otherwise(&mut self) {
        self.surprises += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls of 1000 that used places, where the messages of each call join as many datagrams as `joins` says.
    fn with_places(joins: impl Fn(usize) -> usize) -> usize {
        let mut expected = Expected::default();
        let call = |n: &usize| {
            let pays = expected.pays();
            if pays {
                expected.came(joins(*n), expected.segments());
            }
            pays
        };
        (0..1000).filter(call).count()
    }

    #[test]
    fn a_steady_number_is_learned_and_an_unsteady_one_makes_a_pause() {
        assert_eq!(with_places(|_| 7), 1000);
        assert_eq!(with_places(|n| if n % 20 == 0 { 3 } else { 7 }), 1000);
        assert_eq!(with_places(|n| 1 + n % 7), JUDGED_CALLS as usize);
        assert_eq!(with_places(|_| 1000), JUDGED_CALLS as usize, "more than a message can have places for");
    }

    #[test]
    fn after_the_pause_it_is_tried_again() {
        let mut expected = Expected::default();
        for _ in 0..JUDGED_CALLS {
            assert!(expected.pays());
            expected.came(2, 3);
        }
        assert_eq!((0..PAUSE_CALLS + 1).filter(|_| expected.pays()).count(), 0);
        assert!(expected.pays() && expected.segments() == 2, "3 were expected, and 2 came");
    }
}
