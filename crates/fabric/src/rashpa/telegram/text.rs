//! Values as they stand in attributes, and their text.

use crate::rashpa::terms::{BufferId, Dataset, DtpId, LinkId, LinkKind, MemoryKind, ModuleId, ReceiveBufferId, ReceiverId};
use crate::rashpa::transfer::Policy;

/// A value of an attribute.
pub trait Text: Sized {
    /// Its text; `None` leaves the attribute out.
    fn text(&self) -> Option<String>;
    /// The value of a text; `None` if it is none. `text` is `None` where the attribute is not there.
    fn of(text: Option<&str>) -> Option<Self>;
    /// What can be, for errors.
    fn expected() -> String;
}

/// A text that cannot be a name or a sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' has to be {1}")]
pub struct NotText(pub &'static str, pub &'static str);

/// A name or an address: 1 to 64 letters, digits and `_ . : / % [ ] -`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Name(String);

const NAME: &str = "1 to 64 of the characters A-Z a-z 0-9 _ . : / % [ ] -";

impl Name {
    /// Takes a text.
    ///
    /// # Errors
    /// [`NotText`].
    pub fn new(text: &str) -> Result<Self, NotText> {
        let is_good = |c: char| c.is_ascii_alphanumeric() || "_.:/%[]-".contains(c);
        let fits = (1..=64).contains(&text.len()) && text.chars().all(is_good);
        fits.then(|| Self(text.to_owned())).ok_or(NotText("name", NAME))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for Name {
    fn default() -> Self {
        Self("-".to_owned())
    }
}

impl Text for Name {
    fn text(&self) -> Option<String> {
        Some(self.0.clone())
    }
    fn of(text: Option<&str>) -> Option<Self> {
        Self::new(text?).ok()
    }
    fn expected() -> String {
        NAME.to_owned()
    }
}

/// A sentence for people: 1 to 400 characters, none of them a control character.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sentence(String);

const SENTENCE: &str = "1 to 400 characters without control characters";

impl Sentence {
    /// Takes a text.
    ///
    /// # Errors
    /// [`NotText`].
    pub fn new(text: &str) -> Result<Self, NotText> {
        let is_good = |c: char| !c.is_control() && !matches!(c, '\u{FFFE}' | '\u{FFFF}');
        let fits = (1..=400).contains(&text.chars().count()) && text.chars().all(is_good);
        fits.then(|| Self(text.to_owned())).ok_or(NotText("sentence", SENTENCE))
    }

    /// Takes of a text what a sentence can have.
    pub fn lossy(text: &str) -> Self {
        let kept: String = text.chars().filter(|c| Self::new(&c.to_string()).is_ok()).take(400).collect();
        Self::new(&kept).unwrap_or_default()
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for Sentence {
    fn default() -> Self {
        Self("-".to_owned())
    }
}

impl Text for Sentence {
    fn text(&self) -> Option<String> {
        Some(self.0.clone())
    }
    fn of(text: Option<&str>) -> Option<Self> {
        Self::new(text?).ok()
    }
    fn expected() -> String {
        SENTENCE.to_owned()
    }
}

macro_rules! numbers {
    ($($inner:ty: $($name:path),*;)+) => {$(
        impl Text for $inner {
            fn text(&self) -> Option<String> {
                Some(self.to_string())
            }
            fn of(text: Option<&str>) -> Option<Self> {
                // Digits alone: Rust takes a sign before them too, and no number here has one.
                text.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?.parse().ok()
            }
            fn expected() -> String {
                format!("a number from 0 to {}", Self::MAX)
            }
        }
        $(impl Text for $name {
            fn text(&self) -> Option<String> {
                self.0.text()
            }
            fn of(text: Option<&str>) -> Option<Self> {
                <$inner>::of(text).map($name)
            }
            fn expected() -> String {
                <$inner>::expected()
            }
        })*
    )+};
}

numbers! {
    u8: LinkId, DtpId;
    u16: ModuleId, ReceiverId, BufferId, ReceiveBufferId;
    u32: ;
    u64: ;
}

impl<T: Text> Text for Option<T> {
    fn text(&self) -> Option<String> {
        self.as_ref()?.text()
    }
    fn of(text: Option<&str>) -> Option<Self> {
        match text {
            None => Some(None),
            Some(_) => T::of(text).map(Some),
        }
    }
    fn expected() -> String {
        T::expected()
    }
}

macro_rules! words {
    ($($name:ident: $($variant:ident $word:literal),+;)+) => {$(
        impl $name {
            /// All values.
            pub const ALL: &[Self] = &[$(Self::$variant),+];
        }
        impl Text for $name {
            fn text(&self) -> Option<String> {
                Some(match self { $(Self::$variant => $word),+ }.to_owned())
            }
            fn of(text: Option<&str>) -> Option<Self> {
                Some(match text? { $($word => Self::$variant,)+ _ => return None })
            }
            fn expected() -> String {
                [$($word),+].join(" | ")
            }
        }
    )+};
}

/// What a module can do with its images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transform {
    /// Send a rectangle of the image.
    #[default]
    Region,
    /// Turn it.
    Rotate,
    /// Add images.
    Sum,
}

/// What a peer is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PeerKind {
    /// A detector module.
    #[default]
    Module,
    /// A data receiver.
    Receiver,
}

/// How far a module or a receiver is set up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// No master.
    #[default]
    Free,
    /// It has a master, but not all of its configuration.
    Claimed,
    /// It can start.
    Ready,
    /// It sends, or takes what comes.
    Running,
    /// It has sent all slices of its transfers, and was not stopped yet.
    Finished,
}

/// The kind of reason for which a telegram was refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Code {
    /// It is no telegram, or says what cannot be.
    #[default]
    Invalid,
    /// An earlier step is missing.
    Order,
    /// Its number is not higher than that of the one before.
    Number,
    /// The module has another master.
    Master,
    /// It is not for this member.
    Unsupported,
}

words! {
    Dataset: Image "image", RegionOfInterest "region", Metadata "metadata";
    MemoryKind: Ram "ram", HugePages "huge-pages", Gpu "gpu";
    LinkKind: Pcie "pcie", Roce "roce", RdmaUdp "rdma-udp", Ofi "ofi", Shm "shm";
    Policy: Credit "credit", FreeRun "free-run";
    Transform: Region "region", Rotate "rotate", Sum "sum";
    PeerKind: Module "module", Receiver "receiver";
    State: Free "free", Claimed "claimed", Ready "ready", Running "running", Finished "finished";
    Code: Invalid "invalid", Order "order", Number "number", Master "master", Unsupported "unsupported";
}

impl Text for bool {
    fn text(&self) -> Option<String> {
        Some(self.to_string())
    }
    fn of(text: Option<&str>) -> Option<Self> {
        text?.parse().ok()
    }
    fn expected() -> String {
        "true | false".to_owned()
    }
}
