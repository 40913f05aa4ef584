//! Which frames of the detector become images: warm-up, dark frames between the others, triggered frames only, sums of
//! frames.
//!
//! A *frame* is what the detector sends under one frame number, an *image* is what stands in the file. Without a
//! selection they are the same. The decision is a pure function of the frames' headers in frame order, so that every
//! worker and the committer make the same decision independently.

use crate::image::TileRecord;
use crate::ledger::{ImageStatus, MissingPolicy};

/// Bits of a header word (JUNGFRAU: DAQ info, docs/protocols.md 1.4) that mark a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flag {
    /// Which bits count; never 0.
    pub mask: u32,
    /// True: marked if any of them is set. False: marked if none is.
    pub set: bool,
}

impl Flag {
    fn of(self, daq_info: u32) -> bool {
        (daq_info & self.mask != 0) == self.set
    }
}

/// A property of frames, given by their position in the run or by their header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Marked {
    /// No frame.
    #[default]
    None,
    /// The last of every n frames after the warm-up; n is at least 2.
    Every(u64),
    /// Given by the header. A frame of which no packet came counts like the frame before it.
    Flag(Flag),
}

/// Which of the frames that are neither warm-up nor dark are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keep {
    /// All.
    #[default]
    All,
    /// The first of every n frames; n is at least 1. The rate of the detector divided by n is the rate of the file.
    EveryNth(u64),
    /// Given by the header, as in [`Marked::Flag`].
    Flag(Flag),
}

/// Which frames become images. The default keeps every frame as an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selection {
    /// Frames at the beginning of the run that are not kept: the detector settles, or the shutter is closed.
    pub warmup_frames: u64,
    /// True if warm-up frames count as dark (the shutter is closed), so that they may move the pedestals.
    pub warmup_is_dark: bool,
    /// Dark frames among the others; never kept.
    pub darks: Marked,
    /// Which of the others are kept.
    pub keep: Keep,
    /// Frames that are added to make one image, 1 to [`SUM_FRAMES_MAX`].
    pub sum_frames: u32,
    /// Images after which no frame is kept any more; `None` = no end.
    pub images_max: Option<u64>,
}

/// Most frames of a sum.
pub const SUM_FRAMES_MAX: u32 = 1000;

impl Default for Selection {
    fn default() -> Self {
        Self { warmup_frames: 0, warmup_is_dark: true, darks: Marked::None, keep: Keep::All, sum_frames: 1, images_max: None }
    }
}

impl Selection {
    /// True if every frame becomes an image of its own.
    pub fn is_plain(&self) -> bool {
        *self == Self { images_max: self.images_max, warmup_is_dark: self.warmup_is_dark, ..Self::default() }
    }

    /// Frames of the run before the one with which the first image begins, if headers do not decide.
    pub fn frames_before_first_image(&self) -> Option<u64> {
        let first = Self { sum_frames: 1, ..*self }.frames_for(1)?;
        Some(first - 1)
    }

    /// Frames that the detector must send for `images` images, if headers do not decide.
    pub fn frames_for(&self, images: u64) -> Option<u64> {
        if images == 0 {
            return Some(self.warmup_frames);
        }
        let kept = images.checked_mul(u64::from(self.sum_frames))?;
        let not_dark = match self.keep {
            Keep::All => kept,
            Keep::EveryNth(n) => (kept - 1).checked_mul(n)?.checked_add(1)?,
            Keep::Flag(_) => return None,
        };
        let frames = match self.darks {
            Marked::None => not_dark,
            Marked::Every(n) => not_dark.checked_add((not_dark - 1) / (n - 1))?,
            Marked::Flag(_) => return None,
        };
        frames.checked_add(self.warmup_frames)
    }
}

/// What happens to a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameUse {
    /// It is counted, nothing more.
    Skip,
    /// It may move the pedestals; it makes no image.
    Dark,
    /// It is, or is added to, image `image` of the file.
    Keep {
        /// Position in the file.
        image: u64,
        /// True for the first frame of the image.
        first: bool,
        /// True for the last.
        last: bool,
    },
}

/// Goes through the frames of a run in order and decides what happens to each.
#[derive(Clone, Copy, Debug)]
pub struct Selector {
    selection: Selection,
    frame: u64,
    /// Frames after the warm-up that were not dark.
    bright: u64,
    image: u64,
    in_sum: u32,
    was_dark: bool,
    was_kept: bool,
}

impl Selector {
    /// Stands before the first frame of a run.
    pub fn new(selection: Selection) -> Self {
        assert!((1..=SUM_FRAMES_MAX).contains(&selection.sum_frames));
        assert!(!matches!(selection.darks, Marked::Every(0 | 1)) && !matches!(selection.keep, Keep::EveryNth(0)));
        Self { selection, frame: 0, bright: 0, image: 0, in_sum: 0, was_dark: false, was_kept: false }
    }

    /// Decides what happens to the next frame. `flags` is the word of its header in which the detector sets flags;
    /// `None` if no packet of it came, or if its format has no such word.
    pub fn next(&mut self, flags: Option<u32>) -> FrameUse {
        let s = &self.selection;
        let since_warmup = self.frame.checked_sub(s.warmup_frames);
        self.frame += 1;
        let Some(since_warmup) = since_warmup else {
            return if s.warmup_is_dark { FrameUse::Dark } else { FrameUse::Skip };
        };
        self.was_dark = match s.darks {
            Marked::None => false,
            Marked::Every(n) => since_warmup % n == n - 1,
            Marked::Flag(flag) => flags.map_or(self.was_dark, |word| flag.of(word)),
        };
        if self.was_dark {
            return FrameUse::Dark;
        }
        let bright = self.bright;
        self.bright += 1;
        self.was_kept = match s.keep {
            Keep::All => true,
            Keep::EveryNth(n) => bright.is_multiple_of(n),
            Keep::Flag(flag) => flags.map_or(self.was_kept, |word| flag.of(word)),
        };
        if !self.was_kept || s.images_max.is_some_and(|most| self.image >= most) {
            return FrameUse::Skip;
        }
        let kept = FrameUse::Keep { image: self.image, first: self.in_sum == 0, last: self.in_sum + 1 == s.sum_frames };
        self.in_sum += 1;
        if self.in_sum == s.sum_frames {
            self.in_sum = 0;
            self.image += 1;
        }
        kept
    }

    /// Frames of the image that is not complete yet.
    pub fn open_frames(&self) -> u32 {
        self.in_sum
    }
}

/// What came of a frame, as far as the selection needs it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameSeen {
    /// Packets placed.
    pub placed: u32,
    /// The word of flags, from the header of the first tile that has one.
    pub flags: Option<u32>,
}

impl FrameSeen {
    /// From the records of the tiles of which packets were placed, in stream order. `flags` is the field of their
    /// headers that holds the word of flags, where the format has one.
    pub fn of<'a>(records: impl Iterator<Item = &'a TileRecord>, flags: Option<usize>) -> Self {
        records.fold(Self::default(), |seen, record| Self {
            placed: seen.placed + u32::from(record.packets),
            flags: seen.flags.or_else(|| flags.map(|field| record.header.fields[field] as u32)),
        })
    }
}

/// How many frames of an image have come so far, and how complete they are. With [`Selector`], this is the rule of
/// sums, of packets and of messages: which frames belong to an image, and what its state is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImageFrames {
    /// Frames added.
    pub frames: u32,
    /// Of these: with everything.
    pub complete: u32,
    /// Of these: with nothing.
    pub lost: u32,
    /// Of these: with something that is not used, because the policy for missing parts or a cancel says so.
    pub discarded: u32,
    /// Of these: without pixels in the image.
    pub blank: u32,
}

impl ImageFrames {
    /// Adds a frame in this state; the `first` frame of an image resets the counts.
    pub fn add(&mut self, first: bool, state: ImageStatus) {
        if first {
            *self = Self::default();
        }
        self.frames += 1;
        self.complete += u32::from(state == ImageStatus::Complete);
        self.lost += u32::from(state == ImageStatus::Lost);
        self.discarded += u32::from(state == ImageStatus::Discarded);
        self.blank += u32::from(!state.has_pixels());
    }

    /// The pixels of the last frame, which has some, could not be added.
    pub fn no_pixels(&mut self) {
        self.blank += 1;
    }

    /// False once it is certain that the image will not be written: pixels need not be added any more.
    pub fn is_wanted(&self, policy: MissingPolicy) -> bool {
        policy == MissingPolicy::Keep || self.complete == self.frames
    }

    /// The state of the image.
    pub fn status(&self, policy: MissingPolicy) -> ImageStatus {
        match policy {
            _ if self.lost == self.frames => ImageStatus::Lost,
            _ if self.complete == self.frames && self.blank == 0 => ImageStatus::Complete,
            _ if self.discarded > 0 => ImageStatus::Discarded,
            MissingPolicy::Discard | MissingPolicy::CompleteOnly => ImageStatus::Discarded,
            MissingPolicy::Keep if self.blank == self.frames => ImageStatus::Lost,
            MissingPolicy::Keep => ImageStatus::Partial,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn uses(selection: Selection, words: &[Option<u32>]) -> String {
        let mut selector = Selector::new(selection);
        let letter = |word: &Option<u32>| match selector.next(*word) {
            FrameUse::Skip => '.',
            FrameUse::Dark => 'd',
            FrameUse::Keep { image, last, .. } => char::from(if last { b'A' } else { b'a' } + image as u8),
        };
        words.iter().map(letter).collect()
    }

    #[test]
    fn warm_up_darks_and_sums() {
        let plain = Selection::default();
        assert_eq!(uses(plain, &[None; 3]), "ABC");
        assert_eq!(uses(Selection { warmup_frames: 2, ..plain }, &[None; 4]), "ddAB");
        assert_eq!(uses(Selection { warmup_frames: 2, warmup_is_dark: false, ..plain }, &[None; 3]), "..A");
        assert_eq!(uses(Selection { darks: Marked::Every(3), sum_frames: 2, ..plain }, &[None; 7]), "aAdbBdc");
        assert_eq!(uses(Selection { keep: Keep::EveryNth(3), images_max: Some(2), ..plain }, &[None; 8]), "A..B....");
    }

    #[test]
    fn flags_hold_over_lost_frames() {
        let flag = Flag { mask: 1 << 31, set: true };
        let (on, off) = (Some(1 << 31), Some(0));
        assert_eq!(
            uses(Selection { keep: Keep::Flag(flag), ..Selection::default() }, &[None, off, on, None, off, None]),
            "..AB.."
        );
        let dark = Selection { darks: Marked::Flag(Flag { mask: 1, set: false }), ..Selection::default() };
        assert_eq!(uses(dark, &[Some(1), Some(2), None, Some(3)]), "AddB");
    }

    #[test]
    fn a_sum_is_complete_if_all_its_frames_are_and_were_added() {
        use ImageStatus::{Complete, Discarded, Lost, Partial};
        // (states of the frames, how many of the complete ones could not be added, state with keep, with discard)
        for (frames, unlike, keep, discard) in [
            (&[Complete, Complete][..], 0, Complete, Complete),
            (&[Complete, Complete], 1, Partial, Discarded),
            (&[Complete, Complete], 2, Lost, Discarded),
            (&[Complete, Partial], 0, Partial, Discarded),
            (&[Complete, Lost], 0, Partial, Discarded),
            (&[Lost, Lost], 0, Lost, Lost),
            (&[Complete, Discarded], 0, Discarded, Discarded),
            (&[Lost, Discarded], 0, Discarded, Discarded),
        ] {
            let mut sum = ImageFrames { frames: 7, lost: 7, ..ImageFrames::default() };
            frames.iter().enumerate().for_each(|(n, state)| sum.add(n == 0, *state));
            (0..unlike).for_each(|_| sum.no_pixels());
            assert_eq!(sum.status(MissingPolicy::Keep), keep, "{frames:?}");
            assert_eq!(sum.status(MissingPolicy::CompleteOnly), discard, "{frames:?}");
            let all = frames.iter().all(|state| *state == Complete);
            assert_eq!((sum.is_wanted(MissingPolicy::Keep), sum.is_wanted(MissingPolicy::Discard)), (true, all), "{frames:?}");
        }
    }

    proptest! {
        #[test]
        fn frames_for_is_what_the_selector_needs(warmup in 0u64..5, every in 0u64..5, nth in 1u64..4, sum in 1u32..5, images in 1u64..9) {
            let darks = if every < 2 { Marked::None } else { Marked::Every(every) };
            let selection = Selection { warmup_frames: warmup, darks, keep: Keep::EveryNth(nth), sum_frames: sum, ..Selection::default() };
            let mut selector = Selector::new(selection);
            let mut frames = 0;
            loop {
                frames += 1;
                if matches!(selector.next(None), FrameUse::Keep { image, last: true, .. } if image + 1 == images) {
                    break;
                }
            }
            prop_assert_eq!(selection.frames_for(images), Some(frames));
            let mut selector = Selector::new(selection);
            let before = (0..frames).take_while(|_| !matches!(selector.next(None), FrameUse::Keep { .. })).count();
            prop_assert_eq!(selection.frames_before_first_image(), Some(before as u64));
        }
    }
}
