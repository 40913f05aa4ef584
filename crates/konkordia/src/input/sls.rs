//! An acquisition of the slsReceiver: a master and, for each UDP port, one or several data files beside it (protocols 1.7).

use super::index::{Place, TileIndex};
use super::{Found, Kind, cannot_read, records, wrong};
use crate::failure::Failure;
use konkordia_core::tile::{DetectorKind, TileFormat};
use konkordia_wire::sls_file::{DataFileName, RECORD_HEADER_BYTES, parse_master_name};
use konkordia_wire::sls_master::{MASTER_BYTES_MAX, Master};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Data files by port and number of the file.
pub type Ports = BTreeMap<u32, BTreeMap<u64, PathBuf>>;

fn name_of(path: &Path) -> &str {
    path.file_name().and_then(|n| n.to_str()).unwrap_or("")
}

/// True for the name of a JSON master.
pub fn is_master(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == "json")
}

/// The master of a data file, if there is one beside it.
pub fn master_beside(path: &Path) -> Option<PathBuf> {
    let name = DataFileName::parse(name_of(path), "raw")?;
    let master = path.with_file_name(format!("{}_master_{}.json", name.stem, name.acquisition));
    master.is_file().then_some(master)
}

/// Opens the acquisition that `paths` belong to: one master, or data files of one acquisition beside their master.
pub fn open(paths: &[PathBuf]) -> Result<Found, Failure> {
    let mut masters = Vec::new();
    for path in paths {
        let master = if is_master(path) { Some(path.clone()) } else { master_beside(path) };
        masters.push(master.ok_or_else(|| {
            let why =
                "its name is not <name>_d<port>_f<file>_<acquisition>.raw with a <name>_master_<acquisition>.json beside it";
            let fix = "name the JSON master; for files without master: --format raw112";
            wrong(format!("{} is not a file of the slsReceiver", path.display()), why, fix)
        })?);
    }
    masters.dedup();
    let [path] = &masters[..] else {
        let why = masters.iter().map(|m| m.display().to_string()).collect::<Vec<_>>().join("\n");
        return Err(wrong("the input belongs to several acquisitions", why, "convert them one after the other"));
    };
    let master = read_master(path)?;
    let ports = data_files(path, "json", "raw")?;
    assemble(path, &master, &ports)
}

/// Reads and checks a JSON master.
fn read_master(path: &Path) -> Result<Master, Failure> {
    let bytes = path.metadata().map_err(|e| cannot_read(path, &e))?.len();
    let refuse = |why: String| {
        let fix =
            "give the <name>_master_<acquisition>.json of slsDetectorPackage 7 or later; for files without: --format raw112";
        wrong(format!("{} is not a master file that can be read", path.display()), why, fix)
    };
    if bytes > MASTER_BYTES_MAX {
        return Err(refuse(format!("it has {bytes} bytes; masters have some thousand")));
    }
    let text = std::fs::read(path).map_err(|e| cannot_read(path, &e))?;
    Master::parse(&text).map_err(refuse)
}

/// All data files beside a master.
pub fn data_files(master: &Path, master_extension: &str, extension: &str) -> Result<Ports, Failure> {
    let Some((stem, acquisition)) = parse_master_name(name_of(master), master_extension) else {
        let fix = format!("give it the name that the receiver gave it: <name>_master_<acquisition>.{master_extension}");
        return Err(wrong(
            format!("{} does not say which files are its data", master.display()),
            "they are found by its name",
            fix,
        ));
    };
    let folder = master.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut ports = Ports::new();
    for entry in std::fs::read_dir(folder).map_err(|e| cannot_read(folder, &e))? {
        let path = entry.map_err(|e| cannot_read(folder, &e))?.path();
        let name = DataFileName::parse(name_of(&path), extension);
        if let Some(name) = name.filter(|n| n.stem == stem && n.acquisition == acquisition) {
            ports.entry(name.port).or_default().insert(name.sub_file, path);
        }
    }
    if ports.is_empty() {
        let why = format!("no file {stem}_d<port>_f<file>_{acquisition}.{extension} in {}", folder.display());
        return Err(wrong(format!("{} has no data files", master.display()), why, "put the data files beside it"));
    }
    Ok(ports)
}

/// Says which files are not there; `sub_files` is how many each port should have.
pub fn missing_files(ports: &Ports, count: u32, sub_files: Option<u64>, notes: &mut Vec<String>) -> bool {
    let last = ports.values().filter_map(|files| files.keys().last()).max().map_or(0, |n| n.saturating_add(1));
    let wanted = last.max(sub_files.unwrap_or(0));
    let before = notes.len();
    for port in 0..count {
        let Some(there) = ports.get(&port) else {
            notes.push(format!("port {port}: none of its data files is there"));
            continue;
        };
        let lacks = wanted - there.len() as u64;
        let Some(first) = (0..wanted).find(|n| !there.contains_key(n)) else { continue };
        let ends = there.keys().last().is_some_and(|last| *last < first);
        notes.push(if ends {
            // Files are cut after so many records: a port that lost frames as a whole may need one less.
            format!(
                "port {port} ends with file {} of {wanted}: {lacks} files are missing, or frames of this port never came",
                there.len()
            )
        } else {
            format!("port {port}: {lacks} of {wanted} data files are missing, the first is _d{port}_f{first}_")
        });
    }
    notes.len() > before
}

fn assemble(path: &Path, master: &Master, ports: &Ports) -> Result<Found, Failure> {
    let format = master.format;
    let count = master.ports.0 * master.ports.1;
    if let Some(port) = ports.keys().find(|p| **p >= count) {
        let why = format!("it says {} x {} ports; there are files of port {port}", master.ports.0, master.ports.1);
        return Err(wrong(
            format!("{} does not fit its data files", path.display()),
            why,
            "put only files of one acquisition together",
        ));
    }
    let mut notes = Vec::new();
    let mut incomplete = missing_files(ports, count, master.sub_files(), &mut notes);
    let (mut files, mut tiles, mut module_ids) = (Vec::new(), Vec::new(), Vec::new());
    for port in 0..count {
        let mut places: Vec<Place> = Vec::new();
        let mut id = None;
        for file in ports.get(&port).into_iter().flat_map(BTreeMap::values) {
            let scan = records::scan(file, files.len() as u32, RECORD_HEADER_BYTES, &format)?;
            scan.notes(file, &mut incomplete, &mut notes);
            id = id.or((!scan.places.is_empty()).then_some(scan.first.module_id));
            places.extend(scan.places);
            files.push(file.clone());
        }
        tiles.push(TileIndex::new(format!("port {port}"), places));
        module_ids.push(id.unwrap_or(0));
    }
    let kind = Kind::Records(records::Files { paths: Arc::new(files.clone()), header_bytes: RECORD_HEADER_BYTES, format });
    // The master belongs to the identity.
    files.push(path.to_owned());
    Ok(Found {
        kind,
        words: format!("slsReceiver acquisition, version {:.1}, {}", master.version, path.display()),
        format,
        interfaces: master.interfaces,
        placements: placements(format, master.interfaces, master.ports),
        frames_expected: master.frames_in_file.or(master.frames_total),
        incomplete,
        notes,
        files,
        tiles,
        module_ids,
    })
}

/// Modules count down a column first (protocols 1.3). One column is what "stacked" means already; EIGER needs a geometry from the user.
pub fn placements(format: TileFormat, interfaces: u32, ports: (u32, u32)) -> Option<Vec<(u32, u32)>> {
    if format.kind != DetectorKind::Jungfrau || ports.0 == 1 {
        return None;
    }
    let down = ports.1 / interfaces;
    let place = |port: u32| {
        let (module, interface) = (port / interfaces, port % interfaces);
        (module % down * 512 + interface * format.rows, module / down * format.columns)
    };
    (down > 0).then(|| (0..ports.0 * ports.1).map(place).collect())
}
