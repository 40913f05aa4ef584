//! Reads an acquisition of the slsReceiver: a master and, for each UDP port, one or several data files beside it
//! (docs/protocols.md 1.7).

use super::files::{cannot_read, wrong};
use super::found::{Found, Kind};
use super::index::{Place, TileIndex};
use super::info::{OwnRun, RunFrames};
use super::options::Options;
use super::records;
use konkordia_config::overrides;
use konkordia_core::failure::Failure;
use konkordia_core::moment;
use konkordia_core::sls_header::SlsHeader;
use konkordia_core::tile::{DetectorKind, TileFormat};
use konkordia_sinks::hdf5::Metadata;
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
pub fn open(paths: &[PathBuf], options: &Options) -> Result<Found, Failure> {
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
    assemble(path, &master, &ports, options)
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
        return Err(refuse(format!("it has {bytes} bytes; a master has a few thousand")));
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

/// Adds notes on missing files, and returns true if there are any; `sub_files` is how many each port should have.
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
            // A file holds a fixed number of records, so a port that lost whole frames may need one file less.
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

fn assemble(path: &Path, master: &Master, ports: &Ports, options: &Options) -> Result<Found, Failure> {
    let format = master.format;
    let count = master.ports.0 * master.ports.1;
    if let Some(port) = ports.keys().find(|p| **p >= count) {
        let why = format!("it announces {} x {} ports, but there are files of port {port}", master.ports.0, master.ports.1);
        return Err(wrong(
            format!("{} does not fit its data files", path.display()),
            why,
            "put only files of one acquisition together",
        ));
    }
    let mut notes = Vec::new();
    let mut incomplete = missing_files(ports, count, master.sub_files(), &mut notes);
    let mut scanned = scan_ports(format, count, ports)?;
    let mut format = format;
    if scanned.ports.iter().any(|port| port.scans.iter().any(|(_, scan)| scan.other_rows > 0)) {
        notes.push(other_rows_note(&format));
        format = format.whole();
        scanned = scan_ports(format, count, ports)?;
    }
    let Scanned { mut files, ports: mut scanned } = scanned;
    let headers: Vec<Option<SlsHeader>> = scanned.iter().map(ScannedPort::first).collect();
    // `--config` and the run that kept these frames place the tiles in the order of the ports.
    let side_by_side = if options.in_port_order || master.detector.is_some() {
        SideBySide::as_numbered(headers.len())
    } else {
        arrange(format, master.ports, &headers, &mut notes)
    };
    for (file, scan) in scanned.iter().flat_map(|port| &port.scans) {
        scan.notes(&files[*file], &mut incomplete, &mut notes);
    }
    let mut tile = |port: &usize| TileIndex::new(format!("port {port}"), scanned[*port].places());
    let tiles = side_by_side.order.iter().map(&mut tile).collect();
    let kind = Kind::Records(records::Files { paths: Arc::new(files.clone()), header_bytes: RECORD_HEADER_BYTES, format });
    // The master is part of the identity.
    files.push(path.to_owned());
    let own = kept_beside(master);
    Ok(Found {
        kind,
        words: format!("slsReceiver acquisition, version {:.1}, {}", master.version, path.display()),
        format,
        interfaces: master.interfaces,
        placements: side_by_side.places,
        detector: master.detector.clone().and_then(|value| toml::Table::try_from(value).ok()),
        span: (master.first_frame.filter(|_| own.is_some()), None),
        stopped: if own.is_some() { None } else { stopped(master.timestamp.as_deref(), master.frames_in_file) },
        own,
        frames_expected: master.frames_in_file.or(master.frames_total),
        incomplete,
        notes,
        files,
        tiles,
        module_ids: side_by_side.order.iter().map(|port| headers[*port].map_or(0, |h| h.module_id)).collect(),
    })
}

/// The run beside which these frames were kept, from the master; `None` if another program wrote it.
fn kept_beside(master: &Master) -> Option<OwnRun> {
    master.detector.as_ref()?;
    let text = |facts| toml::to_string(&toml::Table::try_from(facts).ok()?).ok();
    let stated = master.facts.as_ref().and_then(text).map(|text| overrides::metadata_of_text(&text));
    Some(OwnRun {
        metadata: Metadata { start_time: master.timestamp.clone(), ..stated.unwrap_or_default() },
        end_time: None,
        wrong_setup: None,
        has_double_pixels: true,
        frames: RunFrames::Each(master.first_frame),
    })
}

/// When the receiver was stopped. It then counts the frames in the files and writes the time into the master. Without a
/// count the time may be that of something else.
pub fn stopped(timestamp: Option<&str>, frames_in_file: Option<u64>) -> Option<String> {
    frames_in_file.and_then(|_| moment::iso_8601(timestamp?))
}

/// What the data files of all ports hold.
struct Scanned {
    files: Vec<PathBuf>,
    ports: Vec<ScannedPort>,
}

/// What the data files of one port hold, with the number of each file.
struct ScannedPort {
    scans: Vec<(usize, records::Scan)>,
}

impl ScannedPort {
    /// Header of the first frame.
    fn first(&self) -> Option<SlsHeader> {
        self.scans.iter().find(|(_, scan)| !scan.places.is_empty()).map(|(_, scan)| scan.first)
    }

    /// Takes the places out, so that they are not held twice.
    fn places(&mut self) -> Vec<Place> {
        let mut scans = self.scans.iter_mut().map(|(_, scan)| std::mem::take(&mut scan.places));
        let mut places = scans.next().unwrap_or_default();
        scans.for_each(|mut more| places.append(&mut more));
        places
    }
}

fn scan_ports(format: TileFormat, count: u32, ports: &Ports) -> Result<Scanned, Failure> {
    let mut files: Vec<PathBuf> = Vec::new();
    let mut found = Vec::new();
    for port in 0..count {
        let mut scans = Vec::new();
        for file in ports.get(&port).into_iter().flat_map(BTreeMap::values) {
            let number = files.len();
            scans.push((number, records::scan(file, number as u32, RECORD_HEADER_BYTES, &format.of_tile(port as usize))?));
            files.push(file.clone());
        }
        found.push(ScannedPort { scans });
    }
    Ok(Scanned { files, ports: found })
}

/// The note for frames that hold more rows than the master says.
pub fn other_rows_note(format: &TileFormat) -> String {
    format!(
        "the master says that {} rows of each module were read, but packets of other rows came: all rows are used",
        format.module_rows()
    )
}

/// The ports in the order of the streams, and where each of them lies.
pub struct SideBySide {
    /// Number of the port of each stream.
    pub order: Vec<usize>,
    /// First row and column of each stream's tile; `None` if tiles are stacked one below the other.
    pub places: Option<Vec<(u32, u32)>>,
}

impl SideBySide {
    /// The order of the ports is that of the streams.
    pub fn as_numbered(ports: usize) -> Self {
        Self { order: (0..ports).collect(), places: None }
    }
}

/// Places the ports of a master with `ports` (x, y) side by side as the receiver's own programs show them, without gaps
/// and not rotated. JUNGFRAU: modules are numbered down a column first (docs/protocols.md 1.3); a single column needs
/// no places, because tiles are stacked by default. EIGER: ports are placed by the row and column in the headers. In
/// half modules that are mounted upside down the left port may be the right one (docs/protocols.md 1.5).
pub fn arrange(format: TileFormat, ports: (u32, u32), headers: &[Option<SlsHeader>], notes: &mut Vec<String>) -> SideBySide {
    let order: Vec<usize> = (0..headers.len()).collect();
    if format.kind == DetectorKind::Eiger {
        return arrange_eiger(format, ports, headers, notes);
    }
    let down = ports.1 / format.tiles_per_module;
    if ports.0 == 1 || down == 0 {
        return SideBySide { order, places: None };
    }
    let place = |port: &usize| {
        let (module, interface) = (*port as u32 / format.tiles_per_module, *port as u32 % format.tiles_per_module);
        (module % down * format.module_rows() + interface * format.rows, module / down * format.columns)
    };
    let places = order.iter().map(place).collect();
    SideBySide { order, places: Some(places) }
}

fn arrange_eiger(format: TileFormat, (x, y): (u32, u32), headers: &[Option<SlsHeader>], notes: &mut Vec<String>) -> SideBySide {
    let count = headers.len() as u32;
    let at = positions(headers).unwrap_or_else(|| {
        notes.push("the headers do not give the row and column of each port: ports are placed by their numbers".into());
        // Half modules are numbered down a column first, each with its left and right port.
        let down = if x.is_multiple_of(2) { y } else { (count / 2).max(1) };
        (0..count).map(|port| (port / 2 % down, port / 2 / down * 2 + port % 2)).collect()
    });
    // Rows of half modules, and rows of whole modules.
    let rows = at.iter().map(|p| p.0 + 1).max().unwrap_or(1);
    let down = rows / 2;
    let stream = |(row, column): (u32, u32)| {
        let module = if rows.is_multiple_of(2) { column / 2 * down + row / 2 } else { column / 2 * rows + row };
        (module, row % 2, column % 2)
    };
    let mut order: Vec<usize> = (0..headers.len()).collect();
    order.sort_by_key(|port| stream(at[*port]));
    let places = order.iter().map(|port| (at[*port].0 * format.rows, at[*port].1 * format.columns)).collect();
    SideBySide { order, places: Some(places) }
}

/// Row and column of each port from the headers, counted from the first; `None` unless they fill a rectangle with an
/// even number of columns.
fn positions(headers: &[Option<SlsHeader>]) -> Option<Vec<(u32, u32)>> {
    let places = headers.iter().map(|h| h.map(|h| (u32::from(h.row), u32::from(h.column)))).collect::<Option<Vec<_>>>()?;
    let (row, column) = (places.iter().map(|p| p.0).min()?, places.iter().map(|p| p.1).min()?);
    let at: Vec<(u32, u32)> = places.into_iter().map(|p| (p.0 - row, p.1 - column)).collect();
    let (rows, columns) = (at.iter().map(|p| p.0 + 1).max()?, at.iter().map(|p| p.1 + 1).max()?);
    let different: std::collections::BTreeSet<_> = at.iter().collect();
    let fills = different.len() == at.len() && u64::from(rows) * u64::from(columns) == at.len() as u64;
    (fills && columns.is_multiple_of(2)).then_some(at)
}
