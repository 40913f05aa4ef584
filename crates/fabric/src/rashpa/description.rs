//! What a system consists of and what it transfers, as people write it: one TOML file with modules, receivers and
//! transfers (docs/rashpa.md). Where what is in memory follows from it and from what the members say: [`super::plan`].

use super::telegram::Name;
use super::terms::{Dataset, DtpId, LinkKind, ModuleId, ReceiverId, Region, Slices};
use super::transfer::Policy;
use serde::Deserialize;

/// Bytes of a description at most.
pub const TEXT_BYTES_MAX: usize = 1 << 20;
/// Modules, receivers and transfers at most, each.
pub const MEMBERS_MAX: usize = 256;

/// What is wrong with a description.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadDescription {
    /// Not TOML, a key that does not exist or is missing, or a value of another kind. Several lines.
    #[error("{0}")]
    Text(String),
    /// A value that cannot be.
    #[error("{place}: {what}; {fix}")]
    Value {
        /// Where.
        place: String,
        /// What is wrong.
        what: String,
        /// What to write.
        fix: &'static str,
    },
}

/// A module of a system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleEntry {
    /// Its id.
    pub id: ModuleId,
    /// Where it takes telegrams.
    pub telegrams: Name,
    /// Column of its first pixel in the whole image.
    pub x: u32,
    /// Row of its first pixel in the whole image.
    pub y: u32,
}

/// A receiver of a system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiverEntry {
    /// Its id.
    pub id: ReceiverId,
    /// Where it takes telegrams.
    pub telegrams: Name,
    /// By which kind of link modules write into it.
    pub link: LinkKind,
}

/// What is transferred, of all modules together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransferWish {
    /// Its id.
    pub id: DtpId,
    /// Who gets it: the slots are shared by them, one after another.
    pub receivers: Vec<ReceiverId>,
    /// What.
    pub dataset: Dataset,
    /// Which pixels of the whole image; all if it is not said.
    pub region: Option<Region>,
    /// Of which slices.
    pub slices: Slices,
    /// Slots at each of the receivers.
    pub slots: u32,
    /// Payload of a packet at most.
    pub packet_bytes: u32,
    /// May modules overwrite?
    pub policy: Policy,
}

/// A system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// The name of its manager, by which members know their master.
    pub name: Name,
    /// Records of each ring of events.
    pub event_records: u32,
    /// Its modules.
    pub modules: Vec<ModuleEntry>,
    /// Its receivers.
    pub receivers: Vec<ReceiverEntry>,
    /// What is transferred.
    pub transfers: Vec<TransferWish>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default = "manager")]
    name: String,
    #[serde(default = "records")]
    event_records: u32,
    modules: Vec<FileModule>,
    receivers: Vec<FileReceiver>,
    transfers: Vec<FileTransfer>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileModule {
    id: u16,
    telegrams: String,
    x: u32,
    y: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileReceiver {
    id: u16,
    telegrams: String,
    #[serde(default = "rdma_udp")]
    link: FileLink,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileTransfer {
    id: u8,
    receivers: Vec<u16>,
    #[serde(default = "image")]
    dataset: FileDataset,
    region: Option<FileRegion>,
    #[serde(default)]
    first_slice: u64,
    slices: Option<u64>,
    #[serde(default = "one")]
    step: u32,
    slots: u32,
    packet_bytes: u32,
    #[serde(default = "credit")]
    policy: FilePolicy,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum FileDataset {
    Image,
    Region,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum FileLink {
    RdmaUdp,
    Shm,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum FilePolicy {
    Credit,
    FreeRun,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileRegion {
    x: u32,
    y: u32,
    width: u32,
    height: u32,
}

fn manager() -> String {
    "manager".to_owned()
}

const fn records() -> u32 {
    64
}

const fn one() -> u32 {
    1
}

const fn image() -> FileDataset {
    FileDataset::Image
}

const fn rdma_udp() -> FileLink {
    FileLink::RdmaUdp
}

const fn credit() -> FilePolicy {
    FilePolicy::Credit
}

/// An error at a place.
fn bad(place: &str, what: impl Into<String>, fix: &'static str) -> BadDescription {
    BadDescription::Value { place: place.to_owned(), what: what.into(), fix }
}

fn name(text: &str, place: &str) -> Result<Name, BadDescription> {
    Name::new(text).map_err(|why| bad(place, why.to_string(), "write for example \"127.0.0.1:7100\""))
}

/// The first thing that comes twice.
fn twice<T: PartialEq + Copy>(list: &[T]) -> Option<T> {
    list.iter().enumerate().find(|(n, one)| list[..*n].contains(one)).map(|(_, one)| *one)
}

impl Description {
    /// Reads a description.
    ///
    /// # Errors
    /// [`BadDescription`]: the first thing that is wrong.
    pub fn from_toml(text: &str) -> Result<Self, BadDescription> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(bad("the file", format!("has more than {TEXT_BYTES_MAX} bytes"), "give the description of a system"));
        }
        let file: File = toml::from_str(text).map_err(|why| BadDescription::Text(why.to_string().trim().to_owned()))?;
        let modules = file.modules.into_iter().enumerate().map(|(n, module)| {
            let telegrams = name(&module.telegrams, &format!("[[modules]] number {}", n + 1))?;
            Ok(ModuleEntry { id: ModuleId(module.id), telegrams, x: module.x, y: module.y })
        });
        let receivers = file.receivers.into_iter().enumerate().map(|(n, receiver)| {
            let telegrams = name(&receiver.telegrams, &format!("[[receivers]] number {}", n + 1))?;
            let link = match receiver.link {
                FileLink::RdmaUdp => LinkKind::RdmaUdp,
                FileLink::Shm => LinkKind::Shm,
            };
            Ok(ReceiverEntry { id: ReceiverId(receiver.id), telegrams, link })
        });
        let description = Self {
            name: name(&file.name, "name")?,
            event_records: file.event_records,
            modules: modules.collect::<Result<_, _>>()?,
            receivers: receivers.collect::<Result<_, _>>()?,
            transfers: file.transfers.into_iter().map(TransferWish::of).collect(),
        };
        description.check()?;
        Ok(description)
    }

    fn check(&self) -> Result<(), BadDescription> {
        let counts = [self.modules.len(), self.receivers.len(), self.transfers.len()];
        if counts.iter().any(|count| !(1..=MEMBERS_MAX).contains(count)) {
            let [modules, receivers, transfers] = counts;
            let what = format!("there are {modules} modules, {receivers} receivers and {transfers} transfers");
            return Err(bad("the system", what, "give 1 to 256 of each"));
        }
        if !(1..=1 << 16).contains(&self.event_records) {
            return Err(bad("event_records", format!("is {}", self.event_records), "give 1 to 65536"));
        }
        let modules: Vec<ModuleId> = self.modules.iter().map(|module| module.id).collect();
        let receivers: Vec<ReceiverId> = self.receivers.iter().map(|receiver| receiver.id).collect();
        let transfers: Vec<DtpId> = self.transfers.iter().map(|transfer| transfer.id).collect();
        let doubled = [
            twice(&modules).map(|id| id.to_string()),
            twice(&receivers).map(|id| id.to_string()),
            twice(&transfers).map(|id| id.to_string()),
        ];
        if let Some(id) = doubled.into_iter().flatten().next() {
            return Err(bad("id", format!("{id} is there twice"), "give each its own id"));
        }
        self.transfers.iter().try_for_each(|transfer| transfer.check(&receivers))
    }
}

impl TransferWish {
    fn of(file: FileTransfer) -> Self {
        let (dataset, policy) = match (file.dataset, file.policy) {
            (FileDataset::Image, FilePolicy::Credit) => (Dataset::Image, Policy::Credit),
            (FileDataset::Image, FilePolicy::FreeRun) => (Dataset::Image, Policy::FreeRun),
            (FileDataset::Region, FilePolicy::Credit) => (Dataset::RegionOfInterest, Policy::Credit),
            (FileDataset::Region, FilePolicy::FreeRun) => (Dataset::RegionOfInterest, Policy::FreeRun),
        };
        Self {
            id: DtpId(file.id),
            receivers: file.receivers.into_iter().map(ReceiverId).collect(),
            dataset,
            region: file.region.map(|FileRegion { x, y, width, height }| Region { x, y, width, height }),
            slices: Slices { first: file.first_slice, count: file.slices, step: file.step },
            slots: file.slots,
            packet_bytes: file.packet_bytes,
            policy,
        }
    }

    fn check(&self, receivers: &[ReceiverId]) -> Result<(), BadDescription> {
        let place = format!("[[transfers]] with id {}", self.id.0);
        if let Some(unknown) = self.receivers.iter().find(|id| !receivers.contains(id)) {
            return Err(bad(&place, format!("{unknown} is not in the system"), "name one of [[receivers]]"));
        }
        if self.receivers.is_empty() || twice(&self.receivers).is_some() {
            return Err(bad(&place, "it has no receiver, or one of them twice", "name each receiver once"));
        }
        if self.slots == 0 || self.slices.step == 0 || self.packet_bytes == 0 || self.slices.count == Some(0) {
            return Err(bad(&place, "slots, slices, step or packet_bytes is 0", "give 1 or more"));
        }
        if (self.dataset == Dataset::RegionOfInterest) != self.region.is_some() {
            let what = "a region belongs to dataset = \"region\", and only to it";
            return Err(bad(&place, what, "write both, or none of them"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
modules = [{ id = 3, telegrams = "127.0.0.1:7103", x = 0, y = 64 }]
receivers = [{ id = 0, telegrams = "127.0.0.1:7200" }]
[[transfers]]
id = 1
receivers = [0]
dataset = "region"
region = { x = 1, y = 2, width = 3, height = 4 }
slots = 16
packet_bytes = 96
"#;

    #[test]
    fn a_description_is_read() {
        let read = Description::from_toml(TEXT).expect("it is right");
        assert_eq!((read.name.as_str(), read.event_records, read.modules[0].y), ("manager", 64, 64));
        assert_eq!(read.receivers[0].link, LinkKind::RdmaUdp, "if nothing else is said");
        let shared = TEXT.replace("7200\" }", "7200\", link = \"shm\" }");
        assert_eq!(Description::from_toml(&shared).expect("it is right").receivers[0].link, LinkKind::Shm);
        let transfer = &read.transfers[0];
        assert_eq!(transfer.region, Some(Region { x: 1, y: 2, width: 3, height: 4 }));
        assert_eq!((transfer.slices, transfer.policy), (Slices { first: 0, count: None, step: 1 }, Policy::Credit));
    }

    #[test]
    fn what_is_wrong_says_where() {
        let says = |from: &str, to: &str, part: &str| {
            let why = Description::from_toml(&TEXT.replace(from, to)).expect_err("wrong").to_string();
            assert!(why.contains(part), "{why}");
        };
        says("id = 1\n", "id = 1\nspeed = 9\n", "line 6");
        says("slots = 16\n", "", "missing field `slots`");
        says("7200\" }", "7200\", link = \"pcie\" }", "expected `rdma-udp` or `shm`");
        says("127.0.0.1:7103", "a b", "[[modules]] number 1: 'name' has to be 1 to 64");
        says("receivers = [0]", "receivers = [4]", "[[transfers]] with id 1: receiver 4 is not in the system");
        says("receivers = [0]", "receivers = []", "no receiver");
        says("slots = 16", "slots = 0", "slots, slices, step or packet_bytes is 0");
        says("dataset = \"region\"\n", "", "write both, or none of them");
        says(
            "modules = [{ id = 3",
            "modules = [{ id = 3, telegrams = \"a\", x = 0, y = 0 }, { id = 3",
            "module 3 is there twice",
        );
        says("slots", "event_records = 0\nslots", "unknown field");
        says("modules =", "event_records = 0\nmodules =", "event_records: is 0");
        says("slots = 16", &format!("# {}\nslots = 16", "x".repeat(TEXT_BYTES_MAX)), "more than 1048576 bytes");
    }
}
