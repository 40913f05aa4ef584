//! Writes a file again with another compression. Every object is copied as it is; only the image stacks get a new
//! filter, and their chunks are copied one by one. So the metadata of any program survive, and files keep their
//! structure. Callers do the compressing, chunk by chunk.
//!
//! `stacks.rs` says what an image stack is. Links to other files and virtual data sets are copied with the files
//! renamed.

use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};

use hdf5::types::FixedAscii;
use hdf5::{Dataset, File, Group};

use super::error::{Context, Error};
use super::header::settle;
use super::low::{self, Format};
use super::mirror_sums::{self, Sums};
use super::nexus::{self, attribute_text};
use super::objects::{self, Link};
use super::packing;
use super::paths::DESCRIPTION;
use super::repack_losses::{EARLIER, losses};
use super::sealed::Part;
use super::spec::Compression;
use super::stacks::TEXT;

pub use super::mirror_sums::Verifier;
pub use super::repack_losses::RECORD;
pub use super::sealed::Sealed;
pub use super::stacks::{Repacked, StackLayout, Stacks};

const WRITE: &str = "write the repacked file";
/// Where the record of an earlier repacking is for a moment.
const ASIDE: &str = "/entry/konkordia/repack_before";

/// The value of one entry of the record.
#[derive(Clone, Debug, PartialEq)]
pub enum RecordValue {
    /// A count.
    Count(u64),
    /// A number, with its unit.
    Number(f64, &'static str),
    /// Counts, one for each image for example.
    Counts(Vec<u64>),
    /// A text of at most 255 ASCII characters.
    Text(String),
}

/// A copy while it is written.
pub struct Mirror {
    part: Part,
    /// `None` once it is sealed.
    file: Option<File>,
    stacks: Vec<Dataset>,
    layouts: Vec<StackLayout>,
    /// Checksums of the chunks that it gets, if the source has checksums.
    sums: Option<Sums>,
    /// Time of all its objects: that of the source, so that a copy depends on the source alone.
    time_s: u32,
}

/// Renames a file in a link: from the old name to the new one.
pub type Rename<'a> = dyn Fn(&str) -> String + 'a;

impl Mirror {
    /// Creates `target` (under another name until [`Sealed::publish`]) with everything of `source` except the chunks of
    /// its stacks. `prefix` is the new prefix of files of this program.
    ///
    /// # Errors
    /// [`ErrorKind::Exists`](super::ErrorKind::Exists), I/O errors; nothing is left behind then.
    pub fn create(
        source: &Stacks,
        target: &Path,
        compression: Compression,
        rename: &Rename<'_>,
        prefix: &str,
    ) -> Result<Self, Error> {
        let (part, file) = Part::create(target, Format::V18WithVirtual, WRITE)?;
        let mut mirror = Self {
            part,
            file: Some(file),
            stacks: Vec::new(),
            layouts: source.layouts().cloned().collect(),
            sums: Sums::new(source),
            time_s: source.time_s(),
        };
        mirror.fill(source, compression, rename, prefix)?;
        Ok(mirror)
    }

    fn fill(&mut self, source: &Stacks, compression: Compression, rename: &Rename<'_>, prefix: &str) -> Result<(), Error> {
        let file = self.file.as_ref().expect("it is not sealed");
        let doing = || -> hdf5::Result<Vec<Dataset>> {
            let mut stacks: Vec<Option<Dataset>> = source.layouts().map(|_| None).collect();
            let members = Members { rename, compression: Some(compression), is_left: &|_, _, _| false };
            copy_groups(source, file.group("/")?, &members, &mut stacks)?;
            change_description(file, compression, prefix)?;
            stacks.into_iter().collect::<Option<_>>().ok_or_else(|| "a stack that was found is not found again".into())
        };
        self.stacks = doing().context(WRITE, self.part.target())?;
        assert_eq!(self.stacks.len(), self.layouts.len(), "every stack has its like");
        Ok(())
    }

    /// Writes the chunk of an image of stack `stack`; the chunks of a stack come in order.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&mut self, stack: usize, image: u64, chunk: &[u8]) -> Result<(), Error> {
        if let Some(sums) = &mut self.sums {
            sums.pass(stack, image, chunk);
        }
        low::write_chunk(&self.stacks[stack], &self.layouts[stack].offset(image), chunk).context(WRITE, self.part.target())
    }

    /// Adds the record and the checksums, and brings everything to the disk. `data_files` are the copies that this file
    /// points to.
    ///
    /// # Errors
    /// If that fails; nothing is left behind then.
    pub fn seal(mut self, record: &[(&str, RecordValue)], data_files: &[PathBuf]) -> Result<Sealed, Error> {
        let file = self.file.take().expect("sealed once");
        self.stacks.clear();
        let summed = match &self.sums {
            Some(sums) => sums.store(&file),
            None => mirror_sums::take_over(&file, data_files),
        };
        summed.context(WRITE, self.part.target())?;
        let closed = write_record(&file, record).and_then(|()| file.flush()).and_then(|()| file.close());
        closed.and_then(|()| settle(self.part.path(), self.time_s)).context(WRITE, self.part.target())?;
        self.part.seal()
    }
}

/// What becomes of the members of groups in a copy.
pub(super) struct Members<'a> {
    /// The new name of a file in a link.
    pub(super) rename: &'a Rename<'a>,
    /// How stacks are packed; `None` = as they are.
    pub(super) compression: Option<Compression>,
    /// Whether a member is left out: its path, its link, and whether it is a virtual data set.
    pub(super) is_left: &'a dyn Fn(&str, &Link, bool) -> bool,
}

/// Copies everything below the root, each object once. An object with several names keeps all of them, even if a group
/// contains itself.
pub(super) fn copy_groups(source: &Stacks, to: Group, members: &Members<'_>, stacks: &mut [Option<Dataset>]) -> hdf5::Result<()> {
    let from = source.file().group("/")?;
    let mut paths = HashMap::from([(objects::object(&from, ".")?.0, "/".to_owned())]);
    let mut open = VecDeque::from([(from, to, String::new())]);
    while let Some((from, to, at)) = open.pop_front() {
        objects::copy_attributes(&from, &to)?;
        // The members of the copy are listed in the order in which they are created.
        let mut names = from.member_names()?;
        names.sort();
        for name in names {
            let path = format!("{at}/{name}");
            let link = objects::link(&from, &name)?;
            let is_virtual = link == Link::Hard && from.dataset(&name).is_ok_and(|dataset| objects::is_virtual(&dataset));
            if (members.is_left)(&path, &link, is_virtual) {
                continue;
            }
            match link {
                Link::Soft(path) => {
                    to.link_soft(&path, &name)?;
                    continue;
                }
                Link::External(file, path) => {
                    to.link_external(&(members.rename)(&file), &path, &name)?;
                    continue;
                }
                Link::Hard => {}
            }
            let (object, is_group) = objects::object(&from, &name)?;
            if let Some(path) = paths.get(&object) {
                to.link_hard(path, &name)?;
                continue;
            }
            if is_group {
                // Each group is created new, whatever it holds: a copy would keep the form of its header (decision
                // 0008).
                open.push_back((from.group(&name)?, low::create_group(&to, &name)?, path.clone()));
            } else if let Some(&n) = source.index.get(&object) {
                stacks[n] = Some(stack(source, n, &from.dataset(&name)?, &to, &name, members.compression)?);
            } else if source.special.contains(&object) {
                let dataset = from.dataset(&name)?;
                let made = objects::create_virtual_like(&dataset, &to, &name, members.rename)?;
                objects::copy_attributes(&dataset, &made)?;
            } else if !copy_dataset(&from, &to, &name)? {
                objects::copy(&from, &to, &name)?;
                objects::remove_references(&to, &name)?;
            }
            paths.insert(object, path);
        }
    }
    Ok(())
}

/// Creates a data set again in the copy, with its attributes; false if it has to be copied as it is.
fn copy_dataset(from: &Group, to: &Group, name: &str) -> hdf5::Result<bool> {
    let Ok(dataset) = from.dataset(name) else { return Ok(false) };
    if !objects::copy_plain(&dataset, to, name)? {
        return Ok(false);
    }
    let made = to.dataset(name)?;
    objects::copy_attributes(&dataset, &made)?;
    Ok(true)
}

fn stack(
    source: &Stacks,
    n: usize,
    dataset: &Dataset,
    to: &Group,
    name: &str,
    compression: Option<Compression>,
) -> hdf5::Result<Dataset> {
    let layout = &source.found[n].0;
    let compression = compression.unwrap_or(layout.compression);
    let shape = [layout.rows as u32, layout.columns as u32];
    let filter = packing::filter_of(compression, layout.element_bytes, layout.pixel, shape);
    let made = objects::create_stack_like(dataset, to, name, filter.as_ref())?;
    objects::copy_attributes(dataset, &made)?;
    Ok(made)
}

/// Updates the descriptions in files of this program, which state their compression and prefix.
fn change_description(file: &File, compression: Compression, prefix: &str) -> hdf5::Result<()> {
    if let Some(text) = nexus::read_text(file, DESCRIPTION) {
        let described = |line: &&str| !line.starts_with("compression") && !line.starts_with("prefix = ");
        let mut changed: Vec<String> = text.lines().filter(described).map(str::to_owned).collect();
        let mut put = |key: &str, value: &str| changed.push(format!("{key} = {value}"));
        put("prefix", prefix);
        put("compression", compression.name());
        if let Some(level) = compression.level() {
            put("compression_level", &level.to_string());
        }
        if let Some(block) = compression.unusual_block() {
            put("compression_block_bytes", &block.bytes().to_string());
        }
        if let Compression::Sz3 { bound } = compression {
            put("compression_error_bound", &format!("{:?}", bound.value()));
        }
        changed.push(String::new());
        replace_text(file, DESCRIPTION, &changed.join("\n"))?;
    }
    // The name that DECTRIS masters use.
    let of_detector = "/entry/instrument/detector/detectorSpecific/compression";
    if file.dataset(of_detector).is_ok() {
        replace_text(file, of_detector, compression.name())?;
    }
    Ok(())
}

pub(super) fn replace_text(file: &File, path: &str, value: &str) -> hdf5::Result<()> {
    let (parent, name) = path.rsplit_once('/').expect("a path from the root");
    let parent = file.group(parent)?;
    parent.unlink(name)?;
    nexus::text(&parent, name, value)
}

fn write_record(file: &File, record: &[(&str, RecordValue)]) -> hdf5::Result<()> {
    let mut group = file.group("/")?;
    let mut has_earlier = false;
    for name in RECORD.split('/').filter(|name| !name.is_empty()) {
        if group.link_exists(name) && name == "repack" {
            // The file was repacked before. Only the last time is recorded, and what was lost before that.
            has_earlier = group.group(name).is_ok_and(|record| !losses(&record).is_empty());
            if has_earlier {
                file.relink(RECORD, ASIDE)?;
            } else {
                group.unlink(name)?;
            }
        }
        group = match group.group(name) {
            Ok(inner) => inner,
            Err(_) => nexus::group(&group, name, if name == "entry" { "NXentry" } else { "NXcollection" })?,
        };
    }
    if has_earlier {
        file.relink(ASIDE, &format!("{RECORD}/{EARLIER}"))?;
    }
    attribute_text(&group, "description", "how this file was made from another, by `konkordia repack`")?;
    for (name, value) in record {
        match value {
            RecordValue::Count(value) => nexus::number(&group, name, *value, "")?,
            RecordValue::Number(value, unit) => nexus::number(&group, name, *value, unit)?,
            RecordValue::Counts(values) => group.new_dataset_builder().with_data(values).create(*name).map(drop)?,
            RecordValue::Text(text) => {
                let plain: String = text.chars().map(|c| if c.is_ascii_graphic() || c == ' ' { c } else { '?' }).collect();
                let value = FixedAscii::<TEXT>::from_ascii(&plain.as_bytes()[..plain.len().min(TEXT - 1)])
                    .map_err(|_| "a text that is not ASCII")?;
                group.new_dataset::<FixedAscii<TEXT>>().create(*name)?.write_scalar(&value)?;
            }
        }
    }
    Ok(())
}
