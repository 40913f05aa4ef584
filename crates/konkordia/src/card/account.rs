//! What became of all frames and packets of a run of a card.

use konkordia_core::text;
use konkordia_fabric::card::{CLOCKS, FRAME_COUNTS, FRAME_VERDICTS, Frame, Layout, PACKET_COUNTS, PACKET_VERDICTS};
use konkordia_links::shm::Memory;
use serde_json::{Map, Value, json};
use std::path::Path;

/// Frames with missing packets that are named in the account.
const NAMED_MAX: usize = 100;

/// The account.
#[derive(Debug, Default)]
pub struct Account {
    /// Entries of the card, which are frames of which something came.
    pub entries: u64,
    /// Images that were asked for, or that lie before the last one that came, and of which nothing came.
    pub frames_lost: u64,
    complete: u64,
    partial: u64,
    /// Frames behind the last image that was asked for.
    beyond: u64,
    packets_missing: u64,
    packets_in_frames: u64,
    missing: Vec<(u64, u16)>,
    frames_of_line: [u64; FRAME_VERDICTS.len()],
    packets: [u64; PACKET_VERDICTS.len()],
    clocks: u64,
    is_broken: bool,
}

impl Account {
    /// A frame has come; `images` were asked for.
    pub fn enter(&mut self, layout: &Layout, frame: &Frame, images: Option<u64>) {
        self.entries += 1;
        self.packets_in_frames += u64::from(layout.frame_packets()) - u64::from(frame.missing);
        if images.is_some_and(|images| frame.image >= images) {
            self.beyond += 1;
            return;
        }
        self.packets_missing += u64::from(frame.missing);
        if frame.missing == 0 {
            self.complete += 1;
        } else {
            self.partial += 1;
            if self.missing.len() < NAMED_MAX {
                self.missing.push((frame.image, frame.missing));
            }
        }
    }

    /// Images of which something came.
    pub const fn frames(&self) -> u64 {
        self.complete + self.partial
    }

    /// Reads the counters of the card.
    pub fn read(&mut self, memory: &Memory, is_broken: bool) {
        let read = |at: usize| memory.load(at).unwrap_or(0);
        self.frames_of_line = std::array::from_fn(|n| read(FRAME_COUNTS + 8 * n));
        self.packets = std::array::from_fn(|n| read(PACKET_COUNTS + 8 * n));
        (self.clocks, self.is_broken) = (read(CLOCKS), is_broken);
    }

    /// Each Ethernet frame that was taken is a packet with one verdict, and each placed one is in a frame.
    pub fn balances(&self) -> bool {
        let packets = self.packets.iter().fold(0, |sum: u64, count| sum.saturating_add(*count));
        self.frames_of_line[0] == packets && self.packets[0] == self.packets_in_frames
    }

    /// Nothing is missing.
    pub fn is_whole(&self) -> bool {
        self.balances() && self.partial + self.frames_lost == 0 && self.complete > 0 && !self.is_broken
    }

    /// For programs.
    pub fn to_json(&self, master: &Path) -> Value {
        let named = |names: &[&str], counts: &[u64]| {
            names.iter().zip(counts).map(|(name, count)| ((*name).to_owned(), json!(count))).collect::<Map<_, _>>()
        };
        json!({
            "event": "card", "master": master, "balances": self.balances(), "clocks": self.clocks,
            "images": {
                "complete": self.complete, "partial": self.partial, "lost": self.frames_lost, "beyond": self.beyond,
                "packets_missing": self.packets_missing,
            },
            "missing": self.missing.iter().map(|(image, packets)| json!([image, packets])).collect::<Vec<_>>(),
            "line": named(&FRAME_VERDICTS, &self.frames_of_line), "packets": named(&PACKET_VERDICTS, &self.packets),
        })
    }

    /// For people.
    pub fn to_text(&self, master: &Path) -> String {
        let verdicts = |names: &[&str], counts: &[u64]| {
            let some = names.iter().zip(counts).filter(|(_, count)| **count > 0);
            some.map(|(name, count)| format!("{} {name}", text::count(*count))).collect::<Vec<_>>().join(", ")
        };
        let mut lines = vec![format!(
            "{}: {} images complete, {} with missing packets ({} packets), {} lost; the account {}",
            master.display(),
            text::count(self.complete),
            text::count(self.partial),
            text::count(self.packets_missing),
            text::count(self.frames_lost),
            if self.balances() { "balances" } else { "DOES NOT BALANCE" },
        )];
        lines.push(format!("line     {}", verdicts(&FRAME_VERDICTS, &self.frames_of_line)));
        lines.push(format!("packets  {}", verdicts(&PACKET_VERDICTS, &self.packets)));
        if self.beyond > 0 {
            lines.push(format!("{} more frames came behind the last image", text::count(self.beyond)));
        }
        lines.join("\n")
    }
}
