//! What telegrams say, and the part of the table that belongs to each: its attributes and elements.

use super::elements::{
    BufferPlace, BufferWish, Capability, Grant, Link, MapEntry, Memory, ModuleRing, Pass, Peer, ReceiveBufferEntry, ReceivedPart,
    ReceivedSlots, RingEntry, TransferEntry,
};
use super::error::BadTelegram;
use super::text::{Code, Name, Sentence, State};
use crate::rashpa::terms::{ModuleId, ReceiveBufferId, ReceiverId};

/// A telegram.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Telegram {
    /// Its number; each sender counts its own telegrams upwards.
    pub number: u32,
    /// Who sends it.
    pub sender: Name,
    /// What it says.
    pub body: Body,
}

/// What a telegram says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Body {
    /// Manager to all: what can you do?
    #[default]
    CapabilitiesRequest,
    /// Module to manager.
    ModuleCapabilities(ModuleCapabilities),
    /// Receiver to manager.
    ReceiverCapabilities(ReceiverCapabilities),
    /// Manager to all: how the others are reached. Whoever sends it first to a module becomes its master.
    CommConfig(Vec<Peer>),
    /// Manager to receiver: make these local buffers.
    BufferDefine(Vec<BufferWish>),
    /// Receiver to manager: here they are.
    BufferDefined(BuffersDefined),
    /// Manager to module: the address space.
    RasMap(Map),
    /// Manager to module: its transfers.
    DtpConfig(Vec<TransferEntry>),
    /// Manager to receiver: what comes into its buffers.
    ReceiveConfig(ReceiveConfig),
    /// Manager to module: send. To receiver: take what comes. With the number of the run, the same for all members.
    Start(u32),
    /// Manager to all: stop.
    Stop,
    /// Manager to all: another one may be your master.
    Release,
    /// Anybody to all: how are you?
    StatusRequest,
    /// Module: this is how.
    Status(Status),
    /// Receiver: this is how.
    ReceiverStatus(ReceiverStatus),
    /// Receiver to module: slots that may be filled.
    Credit(Credits),
    /// The telegram with this number was done.
    Ack(u32),
    /// The telegram with this number was refused.
    Nack(Nack),
}

/// What a module can do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModuleCapabilities {
    /// Which module.
    pub module: ModuleId,
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// Bytes of a pixel.
    pub pixel_bytes: u32,
    /// Data channels.
    pub channels_max: u8,
    /// Rows of its address translation table.
    pub entries_max: u32,
    /// Its links.
    pub links: Vec<Link>,
    /// What it can do with images.
    pub transforms: Vec<Capability>,
}

/// What a receiver can do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReceiverCapabilities {
    /// Which receiver.
    pub receiver: ReceiverId,
    /// Its links.
    pub links: Vec<Link>,
    /// Its memory.
    pub memory: Vec<Memory>,
}

/// The local buffers that a receiver has made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BuffersDefined {
    /// Which receiver.
    pub receiver: ReceiverId,
    /// Where they are.
    pub buffers: Vec<BufferPlace>,
}

/// The map of the address space.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Map {
    /// Size of the space.
    pub bytes: u64,
    /// Its entries, in ascending order.
    pub entries: Vec<MapEntry>,
    /// The receive buffers in it.
    pub buffers: Vec<ReceiveBufferEntry>,
    /// The rings for the events of this module.
    pub rings: Vec<RingEntry>,
}

/// What comes into the buffers of a receiver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReceiveConfig {
    /// The slots that are there.
    pub slots: Vec<ReceivedSlots>,
    /// What the modules bring into them.
    pub parts: Vec<ReceivedPart>,
    /// The rings for the events of the modules.
    pub rings: Vec<ModuleRing>,
}

/// How a receiver is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReceiverStatus {
    /// Which receiver.
    pub receiver: ReceiverId,
    /// What it does.
    pub state: State,
    /// Packets received.
    pub packets: u64,
    /// Packets that the loss detector reported.
    pub lost: u64,
    /// Slices of which all bytes came.
    pub whole: u64,
    /// Slices of which some bytes came.
    pub partial: u64,
    /// Slices of which nothing came.
    pub empty: u64,
}

/// How a module is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Which module.
    pub module: ModuleId,
    /// What it does.
    pub state: State,
    /// Blocks sent.
    pub blocks: u64,
    /// Blocks without a credit.
    pub skipped: u64,
    /// Blocks while no link was up.
    pub unsent: u64,
    /// Packets sent.
    pub packets: u64,
}

/// Slots that may be filled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credits {
    /// In which run: credits of an older one may still be on their way when the next one has begun.
    pub run: u32,
    /// Of which receive buffer.
    pub buffer: ReceiveBufferId,
    /// Which slots.
    pub grants: Vec<Grant>,
}

/// Why a telegram was refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nack {
    /// Number of the telegram.
    pub number: u32,
    /// The kind of reason.
    pub code: Code,
    /// The reason in a sentence, and what to do.
    pub reason: Sentence,
}

impl Body {
    /// What a telegram can say, by the name of its element, with nothing in it.
    pub(super) fn empty(element: &str) -> Option<Self> {
        Self::all().into_iter().find(|body| body.element() == element)
    }

    fn all() -> [Self; 18] {
        [
            Self::CapabilitiesRequest,
            Self::ModuleCapabilities(ModuleCapabilities::default()),
            Self::ReceiverCapabilities(ReceiverCapabilities::default()),
            Self::CommConfig(Vec::new()),
            Self::BufferDefine(Vec::new()),
            Self::BufferDefined(BuffersDefined::default()),
            Self::RasMap(Map::default()),
            Self::DtpConfig(Vec::new()),
            Self::ReceiveConfig(ReceiveConfig::default()),
            Self::Start(0),
            Self::Stop,
            Self::Release,
            Self::StatusRequest,
            Self::Status(Status::default()),
            Self::ReceiverStatus(ReceiverStatus::default()),
            Self::Credit(Credits::default()),
            Self::Ack(0),
            Self::Nack(Nack::default()),
        ]
    }

    /// The name of its element.
    pub const fn element(&self) -> &'static str {
        match self {
            Self::CapabilitiesRequest => "capabilities-request",
            Self::ModuleCapabilities(_) => "module-capabilities",
            Self::ReceiverCapabilities(_) => "receiver-capabilities",
            Self::CommConfig(_) => "comm-config",
            Self::BufferDefine(_) => "buffer-define",
            Self::BufferDefined(_) => "buffer-defined",
            Self::RasMap(_) => "ras-map",
            Self::DtpConfig(_) => "dtp-config",
            Self::ReceiveConfig(_) => "receive-config",
            Self::Start(_) => "start",
            Self::Stop => "stop",
            Self::Release => "release",
            Self::StatusRequest => "status-request",
            Self::Status(_) => "status",
            Self::ReceiverStatus(_) => "receiver-status",
            Self::Credit(_) => "credit",
            Self::Ack(_) => "ack",
            Self::Nack(_) => "nack",
        }
    }

    pub(super) fn pass(&mut self, pass: &mut impl Pass) -> Result<(), BadTelegram> {
        match self {
            Self::CapabilitiesRequest | Self::Stop | Self::Release | Self::StatusRequest => Ok(()),
            Self::ModuleCapabilities(body) => {
                pass.value("module", &mut body.module)?;
                pass.value("width", &mut body.width)?;
                pass.value("height", &mut body.height)?;
                pass.value("pixel-bytes", &mut body.pixel_bytes)?;
                pass.value("channels-max", &mut body.channels_max)?;
                pass.value("entries-max", &mut body.entries_max)?;
                pass.list(&mut body.links)?;
                pass.list(&mut body.transforms)
            }
            Self::ReceiverCapabilities(body) => {
                pass.value("receiver", &mut body.receiver)?;
                pass.list(&mut body.links)?;
                pass.list(&mut body.memory)
            }
            Self::CommConfig(peers) => pass.list(peers),
            Self::BufferDefine(buffers) => pass.list(buffers),
            Self::BufferDefined(body) => {
                pass.value("receiver", &mut body.receiver)?;
                pass.list(&mut body.buffers)
            }
            Self::RasMap(body) => {
                pass.value("bytes", &mut body.bytes)?;
                pass.list(&mut body.entries)?;
                pass.list(&mut body.buffers)?;
                pass.list(&mut body.rings)
            }
            Self::DtpConfig(transfers) => pass.list(transfers),
            Self::ReceiveConfig(body) => {
                pass.list(&mut body.slots)?;
                pass.list(&mut body.parts)?;
                pass.list(&mut body.rings)
            }
            Self::Status(body) => body.pass(pass),
            Self::ReceiverStatus(body) => body.pass(pass),
            Self::Start(run) => pass.value("run", run),
            Self::Credit(body) => {
                pass.value("run", &mut body.run)?;
                pass.value("receive-buffer", &mut body.buffer)?;
                pass.list(&mut body.grants)
            }
            Self::Ack(number) => pass.value("number", number),
            Self::Nack(body) => {
                pass.value("number", &mut body.number)?;
                pass.value("code", &mut body.code)?;
                pass.value("reason", &mut body.reason)
            }
        }
    }
}

impl Status {
    fn pass(&mut self, pass: &mut impl Pass) -> Result<(), BadTelegram> {
        pass.value("module", &mut self.module)?;
        pass.value("state", &mut self.state)?;
        pass.value("blocks", &mut self.blocks)?;
        pass.value("skipped", &mut self.skipped)?;
        pass.value("unsent", &mut self.unsent)?;
        pass.value("packets", &mut self.packets)
    }
}

impl ReceiverStatus {
    fn pass(&mut self, pass: &mut impl Pass) -> Result<(), BadTelegram> {
        pass.value("receiver", &mut self.receiver)?;
        pass.value("state", &mut self.state)?;
        pass.value("packets", &mut self.packets)?;
        pass.value("lost", &mut self.lost)?;
        pass.value("whole", &mut self.whole)?;
        pass.value("partial", &mut self.partial)?;
        pass.value("empty", &mut self.empty)
    }
}

impl Telegram {
    /// The attributes of the outer element.
    pub(super) fn pass(&mut self, version: &mut u32, pass: &mut impl Pass) -> Result<(), BadTelegram> {
        pass.value("version", version)?;
        pass.value("number", &mut self.number)?;
        pass.value("sender", &mut self.sender)
    }
}
