//! The series that is being received: what it promised, what its images are like, and when it is over.

use super::belong::Heard;
use super::event::ImagePart;
use super::join::{fits, tile_size};
use super::{Join, Positions, SeriesSpec};
use konkordia_core::IMAGES_MAX;
use konkordia_core::array::{Element, Shape};
use konkordia_core::assembler::JUMP_IMAGES_LIMIT;
use konkordia_core::series::{Channel, SeriesEnded, SeriesStart};

/// Positions without an image that are handed to sinks in a row, at most. A number further ahead is no image of this series.
pub(crate) const GAP_IMAGES_MAX: u64 = JUMP_IMAGES_LIMIT;
/// A number so far ahead is taken only when another image goes on from there: one damaged number is not to cost as many gaps.
pub(crate) const FAR_IMAGES: u64 = 1 << 16;
/// Images this close to each other go on from one another.
const NEAR_IMAGES: u64 = 1000;

/// How a series comes to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Drain {
    pub ended: SeriesEnded,
    pub reason: String,
    pub since_ns: u64,
}

pub(crate) struct Current {
    pub heard: Heard,
    /// Images of the sender, also where sums are made.
    pub planned: Option<u64>,
    /// Somebody here asked for so many, and not the sender.
    pub is_asked: bool,
    pub drain: Option<Drain>,
    /// When something of it was last taken.
    pub active_ns: u64,
    /// The same by upstream.
    pub heard_ns: Vec<u64>,
    pub has_image: bool,
    /// An image far ahead from which another one goes on.
    pub followed: Option<u64>,
    /// The image far ahead that was refused last.
    refused_far: Option<u64>,
    /// Images that have a position by their arrival.
    pub arrived: u64,
    /// Lowest and highest label of those.
    labels: Option<(u64, u64)>,
    /// Shape and type of each channel, by part.
    layouts: Vec<Option<Vec<(Shape, Element)>>>,
}

/// True if images of these numbers may be of one place in a series.
pub(crate) fn are_near(one: u64, other: u64) -> bool {
    one.abs_diff(other) < NEAR_IMAGES
}

/// Why an image is not taken.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    Foreign(&'static str),
    /// Fewer images were asked for.
    Unasked(&'static str),
    Malformed(String),
}

impl Current {
    pub fn new(start: &SeriesStart, heard: Heard, upstreams: usize, now_ns: u64) -> Self {
        Self {
            planned: start.images_planned,
            is_asked: false,
            heard,
            drain: None,
            active_ns: now_ns,
            heard_ns: vec![now_ns; upstreams],
            has_image: false,
            followed: None,
            refused_far: None,
            arrived: 0,
            labels: None,
            layouts: vec![None; upstreams],
        }
    }

    /// Something of it came.
    pub fn touch(&mut self, upstream: usize, now_ns: u64) {
        self.active_ns = self.active_ns.max(now_ns);
        self.heard_ns[upstream] = now_ns;
    }

    /// It is to end, once what is on its way has come. The first reason counts, but an end that came after all makes good a missing one.
    pub fn begin_drain(&mut self, ended: SeriesEnded, reason: &str, now_ns: u64) -> bool {
        match &mut self.drain {
            Some(drain) => {
                if drain.ended == SeriesEnded::Superseded || ended == SeriesEnded::Stopped {
                    (drain.ended, drain.reason) = (ended, reason.into());
                }
                false
            }
            None => {
                self.drain = Some(Drain { ended, reason: reason.into(), since_ns: now_ns });
                true
            }
        }
    }

    /// Until when the end waits for what is on its way: after a stop a sender that goes on does not count.
    pub fn drain_until(&self, drain_ns: u64) -> Option<u64> {
        let drain = self.drain.as_ref()?;
        let from_ns = if drain.ended == SeriesEnded::Stopped { drain.since_ns } else { drain.since_ns.max(self.active_ns) };
        Some(from_ns.saturating_add(drain_ns))
    }

    /// True if an image of this number is far ahead of the next one, and nothing says so but itself.
    pub fn is_doubted(&self, number: u64, next: u64) -> bool {
        number.saturating_sub(next) >= FAR_IMAGES && !self.followed.is_some_and(|followed| are_near(followed, number))
    }

    /// True if an image far ahead goes on from the one that was refused last, where nobody could wait for the other.
    fn goes_on(&mut self, number: u64) -> bool {
        let before = self.refused_far.replace(number);
        let goes_on = before.is_some_and(|before| before != number && are_near(before, number));
        if goes_on {
            self.followed = Some(number);
        }
        goes_on
    }

    /// An image has the next position, whatever its label is.
    pub fn on_arrival(&mut self, label: u64) {
        self.arrived += 1;
        let (low, high) = self.labels.unwrap_or((label, label));
        self.labels = Some((low.min(label), high.max(label)));
    }

    /// How many images were sent, where positions are counted by arrival: labels that were left out are images only as far as some were announced that
    /// did not come; a sender may count in steps.
    pub fn sent_by_labels(&self) -> Option<u64> {
        let (low, high) = self.labels?;
        let left_out = (high - low).saturating_add(1).saturating_sub(self.arrived);
        let lost = self.planned.map_or(left_out, |planned| left_out.min(planned.saturating_sub(self.arrived)));
        self.arrived.checked_add(lost)
    }

    /// Is `part`, from `upstream`, image `number` of this series? Learns from the first one what images are like.
    pub fn check(&mut self, spec: &SeriesSpec, upstream: usize, part: &ImagePart, number: u64, next: u64) -> Result<(), Refused> {
        match self.planned {
            Some(planned) if number < planned => {}
            // A sender that brings more than it announced is taken at its word where it numbers messages and not images.
            Some(_) if spec.positions == Positions::Messages && !self.is_asked => {}
            None => {}
            Some(_) if self.is_asked => return Err(Refused::Unasked("its number is beyond the images that were asked for")),
            Some(_) => return Err(Refused::Foreign("its number is beyond the images that were announced")),
        }
        if number >= IMAGES_MAX || number.saturating_sub(next) >= GAP_IMAGES_MAX {
            return Err(Refused::Foreign("its number is too far ahead of the images before it"));
        }
        if self.is_doubted(number, next) && !self.goes_on(number) {
            return Err(Refused::Foreign("its number is far ahead of the images before it, and no image goes on from there"));
        }
        let (channels, index) = (&part.channels, if matches!(spec.join, Join::Balanced) { 0 } else { upstream });
        let same = |known: &Vec<(Shape, Element)>| {
            known.len() == channels.len() && known.iter().zip(channels).all(|(known, channel)| *known == form(channel))
        };
        match &self.layouts[index] {
            Some(known) if same(known) => Ok(()),
            Some(known) => Err(Refused::Malformed(format!(
                "its pixels are {}, those before are {}",
                people(channels.iter().map(form)),
                people(known.iter().copied())
            ))),
            None => {
                self.check_first(spec, upstream, part)?;
                self.layouts[index] = Some(channels.iter().map(form).collect());
                Ok(())
            }
        }
    }

    fn check_first(&self, spec: &SeriesSpec, upstream: usize, part: &ImagePart) -> Result<(), Refused> {
        let malformed = |why: String| Err(Refused::Malformed(why));
        if part.channels.is_empty() {
            return malformed("it has no pixels".into());
        }
        let Join::PerModule { placements, rows, columns } = &spec.join else {
            return if spec.join == Join::Pieces { self.check_piece(part) } else { Ok(()) };
        };
        let elements = |forms: &[(Shape, Element)]| forms.iter().map(|form| form.1).collect::<Vec<_>>();
        let own: Vec<(Shape, Element)> = part.channels.iter().map(form).collect();
        for (shape, element) in &own {
            let is_inside = tile_size(shape).is_some_and(|size| fits(&placements[upstream], size, (*rows, *columns)));
            if !is_inside || *shape != own[0].0 {
                return malformed(format!(
                    "a part of {} does not lie inside of the image of {rows} x {columns}",
                    people([(*shape, *element)])
                ));
            }
            if *element == Element::Mono12p {
                return malformed("parts of mono12p cannot be joined".into());
            }
        }
        match self.layouts.iter().flatten().next() {
            Some(other) if elements(other) != elements(&own) => malformed(format!(
                "its pixels are {}, those of the other parts are {}",
                people(own),
                people(other.iter().copied())
            )),
            _ => Ok(()),
        }
    }
}

impl Current {
    /// Pieces of an image are alike.
    fn check_piece(&self, part: &ImagePart) -> Result<(), Refused> {
        let own: Vec<(Shape, Element)> = part.channels.iter().map(form).collect();
        if part.channels.iter().any(|channel| channel.array.element == Element::Mono12p || channel.array.pieces.len() != 1) {
            return Err(Refused::Malformed("a piece of an image comes whole, and not as mono12p".into()));
        }
        match self.layouts.iter().flatten().next() {
            Some(other) if *other != own => {
                let (own, other) = (people(own), people(other.iter().copied()));
                Err(Refused::Malformed(format!("its pixels are {own}, those of the other pieces are {other}")))
            }
            _ => Ok(()),
        }
    }
}

fn form(channel: &Channel) -> (Shape, Element) {
    (channel.array.shape, channel.array.element)
}

fn people(forms: impl IntoIterator<Item = (Shape, Element)>) -> String {
    let texts = forms.into_iter().map(|(shape, element)| format!("{} {:?}", element.name(), shape.dimensions()));
    texts.collect::<Vec<_>>().join(" and ")
}
