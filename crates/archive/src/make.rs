//! Makes a bag of a folder.

use crate::hash::{self, Show};
use crate::info::{self, DECLARATION, DECLARED, INFO};
use crate::manifest::{self, MANIFEST, Sums, TAG_MANIFEST};
use crate::paths::{self, CHUNKS, PAYLOAD};
use crate::sums::{self, Chunk};
use crate::{date, disk};
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::output::temporary_path;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::SystemTime;

/// The name of the account of where each file comes from.
const PROVENANCE: &str = "provenance.json";
/// What the unfinished bag was begun with; the same command must go on.
const BEGUN: &str = "begun.txt";

/// How a file comes into the bag.
pub enum Kind {
    /// It is packed again, with the files that it points to.
    Pack(Vec<PathBuf>),
    /// It is copied as it is, for this reason.
    Copy(&'static str),
}

/// What packing did.
pub struct Done {
    /// Each file and its copy in the bag.
    pub files: Vec<(PathBuf, PathBuf)>,
    /// What was done to it, in words.
    pub what: String,
}

/// Packs files, and knows where the chunks of a file lie.
pub trait Packer {
    /// How a file is to come into the bag.
    ///
    /// # Errors
    /// The file cannot be archived: it is damaged, or still being written.
    fn kind(&mut self, file: &Path) -> Result<Kind, Failure>;

    /// Packs `file` and the files that it points to into `folder`, under their names, and compares every pixel. Files
    /// that an earlier attempt finished are kept.
    ///
    /// # Errors
    /// It cannot be packed; `Exit::Interrupted` after Ctrl-C.
    fn pack(&mut self, file: &Path, folder: &Path) -> Result<Done, Failure>;

    /// The chunks of a file of the bag, without their sums; none of a file that it does not know.
    ///
    /// # Errors
    /// The file cannot be read.
    fn chunks(&mut self, file: &Path) -> Result<Vec<Chunk>, Failure>;
}

/// What the bag is to be.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Name and version of the program.
    pub software: String,
    /// How images are packed, in words.
    pub packing: String,
    /// The date of the bag; without it that of the newest source file.
    pub date: Option<String>,
    /// Further fields of `bag-info.txt`: label and value.
    pub fields: Vec<(String, String)>,
    /// Files that describe the bag: name and text.
    pub texts: Vec<(String, String)>,
}

/// What was made.
#[derive(Clone, Debug, Default)]
pub struct Made {
    /// Files of the payload.
    pub files: u64,
    /// Bytes of the sources.
    pub bytes_before: u64,
    /// Bytes of the payload.
    pub bytes: u64,
    /// Chunks with a sum.
    pub chunks: u64,
    /// Files that were copied as they are, with the reason.
    pub copied: Vec<(String, &'static str)>,
    /// The date of the bag.
    pub date: String,
}

/// One file of the payload.
struct Entry {
    source: PathBuf,
    what: String,
}

/// Makes the bag `bag` of the files in `from`. Until it is whole and on the disk its name is `.NAME.part`; a further
/// attempt goes on from there.
///
/// # Errors
/// A file cannot be read, packed or written; `bag` exists; an unfinished bag was begun with other options; `stop`.
pub fn make(
    from: &Path,
    bag: &Path,
    options: &Options,
    packer: &mut dyn Packer,
    stop: &AtomicBool,
    show: Show<'_>,
) -> Result<Made, Failure> {
    if bag.symlink_metadata().is_ok() {
        let fix = "choose another name, or remove it";
        return Err(Failure::new(Exit::Io, format!("{} exists", bag.display()), "a bag is never changed once it is made", fix));
    }
    let sources = listed(from, bag)?;
    let part = temporary_path(bag);
    begin(&part, &options.packing)?;
    let mut made = Made { date: options.date.clone().map_or_else(|| newest(&sources), Ok)?, ..Made::default() };
    let entries = packed(from, &sources, &part, packer, &mut made, stop, show)?;
    only(&part, &entries)?;
    // The sources are read by a second thread: what the sums take longer than packing alone halves with it.
    let (summed, sources) = thread::scope(|scope| {
        let sources = scope.spawn(|| source_sums(&entries, stop));
        (summed(&part, &entries, packer, &mut made, stop, show), sources.join())
    });
    let (payload, tags) = summed?;
    let sources = sources.unwrap_or_else(|panic| resume_unwind(panic))?;
    let origins = origins(from, &entries, &payload, &sources, &mut made)?;
    describe(&part, options, &made, &payload, tags, &origins)?;
    fs::remove_file(part.join(BEGUN)).map_err(|error| Failure::io("cannot remove", &part.join(BEGUN), &error))?;
    disk::sync_folders(&part)?;
    disk::publish(&part, bag)?;
    Ok(made)
}

/// All files below a folder, in the order of their paths, without those of the bag itself.
fn listed(from: &Path, bag: &Path) -> Result<Vec<PathBuf>, Failure> {
    let (mut found, mut open) = (BTreeSet::new(), vec![from.to_owned()]);
    let own = [bag.to_owned(), temporary_path(bag)].map(|path| std::path::absolute(&path).unwrap_or(path));
    while let Some(folder) = open.pop() {
        let failed = |error| Failure::io("cannot read", &folder, &error);
        for entry in fs::read_dir(&folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let (path, kind) = (entry.path(), entry.file_type().map_err(failed)?);
            if own.contains(&std::path::absolute(&path).unwrap_or_else(|_| path.clone())) {
                continue;
            }
            let refuse = |why: &str, fix: &str| {
                Failure::new(Exit::Configuration, format!("{} cannot be archived", path.display()), why, fix)
            };
            if path.to_str().is_none() {
                return Err(refuse("its name is not UTF-8, as the manifest of a bag is", "rename it"));
            }
            if kind.is_dir() {
                open.push(path);
            } else if kind.is_file() {
                found.insert(path);
            } else {
                let fix = "put the file itself there, or remove it";
                return Err(refuse("it is a link or a special file, which would be lost in a bag", fix));
            }
        }
    }
    if found.is_empty() {
        let what = format!("there is nothing to archive in {}", from.display());
        return Err(Failure::new(Exit::Usage, what, "it holds no file", "name the folder of the runs"));
    }
    Ok(found.into_iter().collect())
}

/// Creates the unfinished bag, or finds the one of an earlier attempt.
fn begin(part: &Path, packing: &str) -> Result<(), Failure> {
    let begun = part.join(BEGUN);
    match fs::read_to_string(&begun) {
        Ok(text) if text == packing => Ok(()),
        Ok(text) => {
            let why = format!("it was begun with {text}, not with {packing}");
            let fix = "give the options of that attempt, or remove this folder";
            Err(Failure::new(Exit::State, format!("{} is an unfinished bag", part.display()), why, fix))
        }
        Err(_) => {
            fs::create_dir_all(part).map_err(|error| Failure::io("cannot create", part, &error))?;
            disk::write(&begun, packing.as_bytes())
        }
    }
}

/// The date of the newest file.
fn newest(sources: &[PathBuf]) -> Result<String, Failure> {
    let mut newest = SystemTime::UNIX_EPOCH;
    for path in sources {
        newest = newest
            .max(path.metadata().and_then(|facts| facts.modified()).map_err(|error| Failure::io("cannot read", path, &error))?);
    }
    Ok(date::date_of(newest))
}

/// The place of a file in the payload.
fn place(from: &Path, path: &Path) -> PathBuf {
    path.strip_prefix(from).unwrap_or(path).to_owned()
}

/// Brings all files into the payload: what points to other files first, with these.
fn packed(
    from: &Path,
    sources: &[PathBuf],
    part: &Path,
    packer: &mut dyn Packer,
    made: &mut Made,
    stop: &AtomicBool,
    show: Show<'_>,
) -> Result<BTreeMap<String, Entry>, Failure> {
    let (mut roots, mut linked, mut copies) = (Vec::new(), BTreeSet::new(), Vec::new());
    for source in sources {
        match packer.kind(source)? {
            Kind::Pack(links) => {
                linked.extend(links.into_iter().map(|link| link.canonicalize().unwrap_or(link)).filter(|link| link != source));
                roots.push(source);
            }
            Kind::Copy(why) => copies.push((source, why)),
        }
    }
    let mut entries = BTreeMap::new();
    for source in roots {
        if linked.contains(&source.canonicalize().unwrap_or_else(|_| source.clone())) {
            continue;
        }
        let target = part.join(PAYLOAD).join(place(from, source));
        disk::folder_of(&target)?;
        let done = packer.pack(source, target.parent().unwrap_or(part))?;
        for (source, target) in done.files {
            entries.insert(name_of(part, &target)?, Entry { source, what: done.what.clone() });
        }
    }
    for (source, why) in copies {
        let target = part.join(PAYLOAD).join(place(from, source));
        let name = name_of(part, &target)?;
        if entries.contains_key(&name) {
            let what = format!("two files would become {name}");
            return Err(Failure::new(Exit::Usage, what, "a master points to a file in another folder", "move one of them away"));
        }
        copy(source, &target, stop, show)?;
        made.copied.push((name.clone(), why));
        entries.insert(name, Entry { source: source.clone(), what: format!("copied as it is: {why}") });
    }
    Ok(entries)
}

/// The path of a file of the payload as the manifest has it.
fn name_of(part: &Path, target: &Path) -> Result<String, Failure> {
    let name = target.strip_prefix(part).ok().and_then(Path::to_str).map(str::to_owned);
    name.ok_or_else(|| {
        let what = format!("{} cannot be archived", target.display());
        Failure::new(Exit::Configuration, what, "its name is not UTF-8, or it is not in the bag", "rename it")
    })
}

/// Copies a file as it is, unless an earlier attempt did.
fn copy(source: &Path, target: &Path, stop: &AtomicBool, show: Show<'_>) -> Result<(), Failure> {
    if target.exists() {
        let (before, ..) = hash::of_file(source, &[], None, stop, show)?;
        if hash::of_file(target, &[], None, stop, show)?.0 == before {
            return Ok(());
        }
    }
    disk::folder_of(target)?;
    let part = temporary_path(target);
    let failed = |error| Failure::io("cannot write", target, &error);
    let mut write = || {
        let mut file = File::create(&part).map_err(failed)?;
        let (sum, ..) = hash::of_file(source, &[], Some((target, &mut file)), stop, show)?;
        file.sync_all().map_err(failed)?;
        if hash::of_file(&part, &[], None, stop, show)?.0 != sum {
            let what = format!("the copy of {} differs from it", source.display());
            return Err(Failure::new(Exit::Incomplete, what, "", "look for a failing disk or memory, then archive again"));
        }
        fs::rename(&part, target).map_err(failed)
    };
    let done = write();
    if done.is_err() {
        let _ = fs::remove_file(&part);
    }
    done
}

/// Removes what an earlier attempt left in the payload and is no source any more.
fn only(part: &Path, entries: &BTreeMap<String, Entry>) -> Result<(), Failure> {
    let mut open = vec![part.join(PAYLOAD), part.join(CHUNKS)];
    while let Some(folder) = open.pop() {
        let Ok(found) = fs::read_dir(&folder) else { continue };
        for entry in found.flatten() {
            let path = entry.path();
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                open.push(path);
            } else if path.starts_with(part.join(CHUNKS)) || !entries.contains_key(&name_of(part, &path)?) {
                fs::remove_file(&path).map_err(|error| Failure::io("cannot remove", &path, &error))?;
            }
        }
    }
    Ok(())
}

/// Reads each file of the payload once: its sum, and those of its chunks. Returns the manifest of the payload, and the
/// sums of the files with the chunks.
fn summed(
    part: &Path,
    entries: &BTreeMap<String, Entry>,
    packer: &mut dyn Packer,
    made: &mut Made,
    stop: &AtomicBool,
    show: Show<'_>,
) -> Result<(Sums, Sums), Failure> {
    let (mut payload, mut tags) = (Sums::new(), Sums::new());
    for name in entries.keys() {
        let path = part.join(name);
        let mut chunks = packer.chunks(&path)?;
        let (sum, bytes, crcs) = hash::of_file(&path, &chunks, None, stop, show)?;
        chunks.iter_mut().zip(crcs).for_each(|(chunk, crc)| chunk.crc32 = crc);
        made.files += 1;
        made.bytes += bytes;
        made.chunks += chunks.len() as u64;
        payload.insert(name.clone(), sum);
        let text = sums::to_text(&chunks);
        let tag = format!("{CHUNKS}/{name}.tsv");
        disk::write(&part.join(&tag), text.as_bytes())?;
        tags.insert(tag, hash::of_bytes(text.as_bytes()));
    }
    Ok((payload, tags))
}

/// Sum and size of each source, in the order of the entries. Made after packing, so that it is what was packed.
fn source_sums(entries: &BTreeMap<String, Entry>, stop: &AtomicBool) -> Result<Vec<(String, u64)>, Failure> {
    let sum = |entry: &Entry| hash::of_file(&entry.source, &[], None, stop, &mut |_| ()).map(|(sum, bytes, _)| (sum, bytes));
    entries.values().map(sum).collect()
}

/// Where each file comes from, as JSON.
fn origins(
    from: &Path,
    entries: &BTreeMap<String, Entry>,
    payload: &Sums,
    sources: &[(String, u64)],
    made: &mut Made,
) -> Result<Vec<serde_json::Value>, Failure> {
    let mut list = Vec::new();
    for ((name, Entry { source, what }), (sum, bytes)) in entries.iter().zip(sources) {
        let modified =
            source.metadata().and_then(|facts| facts.modified()).map_err(|error| Failure::io("cannot read", source, &error))?;
        made.bytes_before += bytes;
        list.push(json!({
            "file": name, "sha256": payload.get(name), "source": place(from, source), "source_sha256": sum, "source_bytes": bytes,
            "source_modified": date::instant_of(modified), "done": what,
        }));
    }
    Ok(list)
}

/// Writes everything that describes the payload.
fn describe(
    part: &Path,
    options: &Options,
    made: &Made,
    payload: &Sums,
    mut tags: Sums,
    origins: &[serde_json::Value],
) -> Result<(), Failure> {
    let mut fields = vec![
        ("Bagging-Date".to_owned(), made.date.clone()),
        ("Bag-Software-Agent".to_owned(), options.software.clone()),
        ("Payload-Oxum".to_owned(), format!("{}.{}", made.bytes, made.files)),
    ];
    fields.extend(options.fields.iter().cloned());
    let account = json!({
        "software": options.software, "date": made.date, "packing": options.packing,
        "fields": options.fields.iter().cloned().collect::<BTreeMap<_, _>>(), "files": origins,
    });
    let account = serde_json::to_string_pretty(&account).unwrap_or_default() + "\n";
    let mut texts = vec![
        (DECLARATION.to_owned(), DECLARED.to_owned()),
        (INFO.to_owned(), info::to_text(&fields)),
        (PROVENANCE.to_owned(), account),
        (MANIFEST.to_owned(), manifest::to_text(payload)),
    ];
    texts.extend(options.texts.iter().cloned());
    for (name, text) in texts {
        disk::write(&paths::inside(part, &name)?, text.as_bytes())?;
        tags.insert(name, hash::of_bytes(text.as_bytes()));
    }
    disk::write(&part.join(TAG_MANIFEST), manifest::to_text(&tags).as_bytes())
}
