//! `[[writer]]`: programs on other hosts that write the files of the runs (`konkordia writer`).

use super::diagnostics::Diagnostics;
use super::read::{Document, Table};
use super::settings::{WriterLink, WriterTakes};
use konkordia_core::ports::ServiceLevel;

/// One `[[writer]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriterSettings {
    /// Its name.
    pub name: String,
    /// Host and port at which it listens.
    pub address: String,
    /// What it gets.
    pub takes: WriterTakes,
    /// The link to it.
    pub link: WriterLink,
    /// Service level.
    pub service: ServiceLevel,
    /// Images that may wait in its queue.
    pub queue_images: usize,
    /// Bytes that may wait in its queue.
    pub queue_bytes: u64,
    /// Images that are kept until it has them on its disk.
    pub keep_images: usize,
    /// Their bytes.
    pub keep_bytes: u64,
    /// Arm is refused while nothing listens at its address.
    pub required: bool,
}

/// The link of one, with what belongs to it.
fn link(t: &Table, d: &mut Diagnostics) -> WriterLink {
    let link = match t.text("link") {
        Some("shm") => WriterLink::Shm,
        Some("libfabric") => WriterLink::Libfabric(t.text("provider").unwrap_or("tcp").into()),
        Some("verbs") => WriterLink::Verbs(t.text("device").map(Into::into)),
        _ => WriterLink::Tcp,
    };
    for (key, of) in [("provider", WriterLink::NAMES[2]), ("device", WriterLink::NAMES[3])] {
        if t.text(key).is_some() && link.name() != of {
            let what = format!("writer.{key} without link = \"{of}\"");
            d.add(t.span(key), what, "", format!("remove it, or add link = \"{of}\""));
        }
    }
    link
}

/// Reads all of them.
pub(super) fn read(document: &Document, d: &mut Diagnostics) -> Vec<WriterSettings> {
    let taken: Vec<&str> = document.array("stream").iter().filter_map(|t| t.text("name")).collect();
    let mut list: Vec<WriterSettings> = Vec::new();
    for t in document.array("writer") {
        let (Some(name), Some(address)) = (t.text("name"), t.text("address")) else { continue };
        if list.iter().any(|other| other.name == name) || taken.contains(&name) || name == "file" {
            let what = format!("writer.name: \"{name}\" is taken by another consumer, or by the writer of files");
            d.add(t.span("name"), what, "", "give each a name of its own");
        }
        if !address.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok_and(|n| n > 0)) {
            let what = format!("writer.address: \"{address}\" is no address");
            d.add(t.span("address"), what, "", "write host and port, for example \"10.0.0.2:9400\"");
        }
        if document.table("detector").text("type") == Some("stream") {
            let fix = "use [[stream]] and a `konkordia serve` with a file on the other host";
            d.add(t.span("name"), "[[writer]] for whole images", "writers on other hosts take images of packets", fix);
        }
        let takes = if t.text("takes") == Some("raw") { WriterTakes::Raw } else { WriterTakes::Images };
        let detector = document.table("detector").text("type");
        if takes == WriterTakes::Raw && !matches!(detector, None | Some("jungfrau" | "stream")) {
            let why = "only a JUNGFRAU sends words that a file cannot hold as images";
            d.add(t.span("takes"), "writer.takes = \"raw\" is for JUNGFRAU", why, "let it take images");
        }
        list.push(WriterSettings {
            name: name.into(),
            address: address.into(),
            takes,
            link: link(t, d),
            service: t.text("service").and_then(ServiceLevel::from_name).unwrap_or(ServiceLevel::ReliableSkip),
            queue_images: t.integer("queue_images").unwrap_or(256) as usize,
            queue_bytes: (t.integer("queue_mib").unwrap_or(256) as u64) << 20,
            keep_images: t.integer("keep_images").unwrap_or(100_000) as usize,
            keep_bytes: (t.integer("keep_mib").unwrap_or(1024) as u64) << 20,
            required: t.flag("required").unwrap_or(false),
        });
    }
    list
}
