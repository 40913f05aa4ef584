//! The series that is being received: what was announced, what its images are like, and when it is over.

use super::membership::Received;
use super::spec::RulesSpec;
use crate::series::join::{fits, tile_size};
use crate::series::spec::Join;
use konkordia_core::IMAGES_MAX;
use konkordia_core::array::{Element, Shape};
use konkordia_core::assembler::JUMP_IMAGES_LIMIT;
use konkordia_core::image::Channel;
use konkordia_core::series::{Ended, Positions, SeriesStart};
use konkordia_wire::message::ImagePart;

/// Positions without an image that are handed to sinks in a row, at most. A number further ahead is no image of this
/// series.
pub(crate) const GAP_IMAGES_MAX: u64 = JUMP_IMAGES_LIMIT;
/// A number this far ahead is taken only when another image follows close to it, so that one damaged number does not
/// make as many gaps.
pub(crate) const FAR_IMAGES: u64 = 1 << 16;
/// Images closer to each other than this follow one another.
const NEAR_IMAGES: u64 = 1000;

/// How a series comes to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Drain {
    pub ended: Ended,
    pub reason: String,
    pub since_ns: u64,
}

pub(crate) struct Current {
    pub received_of_series: Received,
    /// Images to come, as the sender counts them, also where sums are made.
    pub planned: Option<u64>,
    /// `planned` was requested here, not announced by the sender.
    pub is_asked: bool,
    pub drain: Option<Drain>,
    /// When something of it was last taken.
    pub active_ns: u64,
    /// The same by upstream.
    pub last_received_ns: Vec<u64>,
    pub has_image: bool,
    /// An image far ahead that another one has followed.
    pub followed: Option<u64>,
    /// The image far ahead that was refused last.
    refused_far: Option<u64>,
    /// Images whose position is their order of arrival.
    pub arrived: u64,
    /// Lowest and highest label of those.
    labels: Option<(u64, u64)>,
    /// Shape and type of each channel, by part.
    layouts: Vec<Option<Vec<(Shape, Element)>>>,
}

/// True if images of these numbers are close to each other in a series.
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
    pub fn new(start: &SeriesStart, received_of_series: Received, upstreams: usize, now_ns: u64) -> Self {
        Self {
            planned: start.images_planned,
            is_asked: false,
            received_of_series,
            drain: None,
            active_ns: now_ns,
            last_received_ns: vec![now_ns; upstreams],
            has_image: false,
            followed: None,
            refused_far: None,
            arrived: 0,
            labels: None,
            layouts: vec![None; upstreams],
        }
    }

    /// Notes that a message of it came.
    pub fn touch(&mut self, upstream: usize, now_ns: u64) {
        self.active_ns = self.active_ns.max(now_ns);
        self.last_received_ns[upstream] = now_ns;
    }

    /// The series is to end, once the messages still on their way have come. True for the first call. The first reason
    /// stays, unless it was `Superseded` or the new one is `Stopped`.
    pub fn begin_drain(&mut self, ended: Ended, reason: &str, now_ns: u64) -> bool {
        match &mut self.drain {
            Some(drain) => {
                if drain.ended == Ended::Superseded || ended == Ended::Stopped {
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

    /// Until when the end waits for messages still on their way. After a stop, further messages do not prolong the
    /// wait.
    pub fn drain_until(&self, drain_ns: u64) -> Option<u64> {
        let drain = self.drain.as_ref()?;
        let from_ns = if drain.ended == Ended::Stopped { drain.since_ns } else { drain.since_ns.max(self.active_ns) };
        Some(from_ns.saturating_add(drain_ns))
    }

    /// True if an image of this number is far ahead of the next one, and no other image has followed it there.
    pub fn is_far_ahead(&self, number: u64, next: u64) -> bool {
        number.saturating_sub(next) >= FAR_IMAGES && !self.followed.is_some_and(|followed| are_near(followed, number))
    }

    /// True if an image far ahead follows the far image that was refused last because it could not wait any longer.
    fn goes_on(&mut self, number: u64) -> bool {
        let before = self.refused_far.replace(number);
        let goes_on = before.is_some_and(|before| before != number && are_near(before, number));
        if goes_on {
            self.followed = Some(number);
        }
        goes_on
    }

    /// Gives an image the next position, whatever its label is.
    pub fn on_arrival(&mut self, label: u64) {
        self.arrived += 1;
        let (low, high) = self.labels.unwrap_or((label, label));
        self.labels = Some((low.min(label), high.max(label)));
    }

    /// How many images were sent, where positions are counted by arrival. If the sender announced a number, labels that
    /// were left out count as lost images only up to that number, because it may count in steps.
    pub fn sent_by_labels(&self) -> Option<u64> {
        let (low, high) = self.labels?;
        let left_out = (high - low).saturating_add(1).saturating_sub(self.arrived);
        let lost = self.planned.map_or(left_out, |planned| left_out.min(planned.saturating_sub(self.arrived)));
        self.arrived.checked_add(lost)
    }

    /// Checks that `part`, from `upstream`, can be image `number` of this series. Learns from the first one what images
    /// are like.
    pub fn check(&mut self, spec: &RulesSpec, upstream: usize, part: &ImagePart, number: u64, next: u64) -> Result<(), Refused> {
        match self.planned {
            Some(planned) if number < planned => {}
            // Where positions come from messages, images beyond the announced number are taken.
            Some(_) if spec.positions == Positions::Messages && !self.is_asked => {}
            None => {}
            Some(_) if self.is_asked => return Err(Refused::Unasked("its number is beyond the images requested")),
            Some(_) => return Err(Refused::Foreign("its number is beyond the images announced")),
        }
        if number >= IMAGES_MAX || number.saturating_sub(next) >= GAP_IMAGES_MAX {
            return Err(Refused::Foreign("its number is too far ahead of the images before it"));
        }
        if self.is_far_ahead(number, next) && !self.goes_on(number) {
            return Err(Refused::Foreign("its number jumps far ahead, and no image near it follows (damaged number?)"));
        }
        let (channels, index) = (&part.channels, if matches!(spec.join, Join::Balanced) { 0 } else { upstream });
        let same = |known: &Vec<(Shape, Element)>| {
            known.len() == channels.len() && known.iter().zip(channels).all(|(known, channel)| *known == form(channel))
        };
        match &self.layouts[index] {
            Some(known) if same(known) => Ok(()),
            Some(known) => Err(Refused::Malformed(format!(
                "its pixels are {}, earlier images had {}",
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

    fn check_first(&self, spec: &RulesSpec, upstream: usize, part: &ImagePart) -> Result<(), Refused> {
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
                    "a part of {} does not fit into the image of {rows} x {columns}",
                    people([(*shape, *element)])
                ));
            }
            if element.is_packed() {
                return malformed(format!("parts of {} cannot be joined", element.name()));
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
    /// Checks that the pieces of an image have the same shape and type.
    fn check_piece(&self, part: &ImagePart) -> Result<(), Refused> {
        let own: Vec<(Shape, Element)> = part.channels.iter().map(form).collect();
        if part.channels.iter().any(|channel| channel.array.element.is_packed() || channel.array.pieces.len() != 1) {
            return Err(Refused::Malformed("a piece must be one block of data, and of a type with whole bytes".into()));
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
