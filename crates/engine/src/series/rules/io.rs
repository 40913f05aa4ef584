//! What the rules get (messages, finished images) and the actions that they return.

use crate::series::notice::Notice;
use konkordia_core::geometry::Orientation;
use konkordia_core::image::{Channel, CommittedImage};
use konkordia_core::series::{SeriesEnd, SeriesStart};
use konkordia_wire::message::Read;
use std::sync::Arc;

/// A message on its way to the sort thread.
#[derive(Debug)]
pub(crate) struct Incoming {
    /// What it means, or why it cannot be read.
    pub read: Result<Read, String>,
    pub receipt: Receipt,
    pub received_ns: u64,
}

/// What is given back to the in-flight budget when a message is finished.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Receipt {
    pub upstream: usize,
    pub bytes: u64,
    /// Number of the message on its upstream, from 0.
    pub sequence: u64,
}

/// An image for a worker.
#[derive(Debug)]
pub(crate) struct Job {
    pub ticket: u64,
    pub image: CommittedImage,
    /// Channels of each part where parts are joined, else empty; a missing part has none.
    pub parts: Vec<Vec<Channel>>,
    /// How its series asks it to be turned.
    pub turn: Orientation,
}

/// The result of a [`Job`].
#[derive(Debug)]
pub(crate) struct Done {
    pub ticket: u64,
    pub image: CommittedImage,
    /// Parts that cannot be read; bit 0 where images are not joined.
    pub unreadable: u64,
    pub why: Option<String>,
}

/// What has to be done because of an event, in this order.
#[derive(Debug)]
pub(crate) enum Action {
    /// Announce a series. The start describes the images of the sender.
    Start(Box<SeriesStart>),
    /// Give an image to a worker; its [`Done`] has to come back.
    Work(Job),
    /// Hand an image on to the sinks, and say how long that took ([`super::Rules::on_committed`]).
    Commit(CommittedImage),
    /// An image of the sender that belongs to a sum, and whether its pixels are to be added. Say when that was done,
    /// and before that if they could not be added ([`super::Rules::on_not_added`]).
    Add(CommittedImage, bool),
    /// Hand a sum on to the sinks, with the pixels added for it if its state has pixels, and say how long that took. If
    /// the second is true, images without pixels belong to it too.
    CommitSum(CommittedImage, bool),
    /// A series has ended, or an arm that no series followed. Its memory was given back before.
    End(Arc<SeriesEnd>, Ending),
    /// A message of an upstream could not be used: the upstream, and the number of the message.
    Refuse(usize, u64),
    /// Report to the control plane.
    Notify(Notice),
    /// The state has changed: whoever looks at it should see it.
    Publish,
}

/// What has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// A series that had begun.
    Series,
    /// An arm.
    Arm,
}
