//! `konkordia repack --layout`: the files of a run in another layout.

use crate::console;
use crate::repack_args::{LayoutChoice, RepackArgs};
use crate::repack_verb::shown;
use crate::run::signals;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::output::Layout;
use konkordia_core::plan::Compression;
use konkordia_core::text;
use konkordia_repack::layout::{FileLayout, Laid, change, point};
use konkordia_repack::{Settings, repack};
use konkordia_sinks::hdf5::mirror::Stacks;
use serde_json::json;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// Pieces of a family that says no size: small enough for a tape, and for a file system of 32 bits.
const PIECE_BYTES: u64 = 1 << 30;

/// `konkordia repack FILE -o OUT --layout NAME`
pub fn command(args: &RepackArgs, choice: LayoutChoice) -> Result<Exit, Failure> {
    if args.delete_source {
        let why = "a layout is another form of the same run";
        let fix = "leave --delete-source out, and delete the original when the copy is where it belongs";
        return Err(Failure::new(Exit::Usage, "--delete-source with --layout", why, fix));
    }
    if args.piece_size.is_some() && choice != LayoutChoice::Family {
        let what = "--piece-size without --layout family";
        return Err(Failure::new(Exit::Usage, what, "only a family has pieces", "leave --piece-size out"));
    }
    let stop = signals::stop_flag()?;
    let layout = match choice {
        LayoutChoice::Vds => return pointing(args, Layout::Virtual, &stop),
        LayoutChoice::Links => return pointing(args, Layout::Links, &stop),
        LayoutChoice::Single => FileLayout::Single,
        LayoutChoice::Split => FileLayout::Split,
        LayoutChoice::Family => FileLayout::Family { piece_bytes: args.piece_size.unwrap_or(PIECE_BYTES) },
    };
    if args.compression.is_some() {
        let why = "a layout takes the chunks as they are";
        let fix = "repack with --compression first, then change the layout of the copy";
        return Err(Failure::new(Exit::Usage, format!("--compression with --layout {}", choice.name()), why, fix));
    }
    let started = Instant::now();
    let mut line = console::Progress::new(args.quiet || args.json);
    let mut bytes = 0;
    let laid = change(&args.file, &args.output, layout, &stop, &mut |count| {
        bytes += count;
        line.update(|| format!("{} written and read again", text::bytes(bytes)));
    });
    line.end();
    let Some(laid) = laid? else {
        console::to_stderr("stopped; nothing is left of the unfinished output");
        return Ok(Exit::Interrupted);
    };
    said(args, choice, &laid, started.elapsed().as_secs_f64());
    Ok(Exit::Complete)
}

fn said(args: &RepackArgs, choice: LayoutChoice, laid: &Laid, seconds: f64) {
    let how = opened_by(choice, laid);
    if args.json {
        let value = json!({
            "master": laid.main, "files": laid.files, "layout": choice.name(), "images": laid.images, "bytes": laid.bytes,
            "piece_bytes": (laid.piece_bytes > 0).then_some(laid.piece_bytes), "complete": true, "verified": true, "seconds": seconds,
            "h5py": how,
        });
        return console::json(&value, false);
    }
    let (images, files) = (text::count(laid.images), text::count(laid.files.len() as u64));
    let main = laid.main.display();
    console::to_stdout(&format!(
        "{main}: {images} images in {files} files, {}, in {seconds:.1} s; every chunk read again and compared\nread by h5py: {how}",
        text::bytes(laid.bytes)
    ));
}

/// How h5py opens the file.
fn opened_by(choice: LayoutChoice, laid: &Laid) -> String {
    let path = laid.main.display().to_string();
    let stem = path.strip_suffix(".meta.h5").unwrap_or(&path);
    match choice {
        LayoutChoice::Split => {
            format!("h5py.File({stem:?}, driver='split', meta_ext=b'.meta.h5', raw_ext=b'.raw_1.h5')")
        }
        LayoutChoice::Family => format!(
            "raw = h5py.h5p.create(h5py.h5p.FILE_ACCESS); raw.set_fapl_family({}, h5py.h5p.create(h5py.h5p.FILE_ACCESS)); \
             h5py.File({stem:?}, driver='split', meta_ext=b'.meta.h5', raw_ext=b'.raw_%%d.h5', raw_plist_id=raw)",
            laid.piece_bytes
        ),
        _ => format!("h5py.File({path:?})"),
    }
}

/// Copies of master and data files, of which the master has only the virtual data set, or only the links.
fn pointing(args: &RepackArgs, layout: Layout, stop: &AtomicBool) -> Result<Exit, Failure> {
    let compression = if args.compression.is_some() { args.compression()? } else { own(&args.file)? };
    let workers = args.workers.map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), usize::from);
    let settings = Settings { compression, spots: None, workers, verify: args.verify, delete_source: false, notes: Vec::new() };
    let outcome = shown(args.quiet || args.json, |show| repack(&args.file, &args.output, &settings, stop, show))?;
    if !outcome.complete {
        console::to_stderr("stopped; finished files are kept, and the same command goes on from there");
        return Ok(Exit::Interrupted);
    }
    point(&outcome.master, layout)?;
    if args.json {
        let files: Vec<_> = outcome.files.iter().chain(&outcome.kept).collect();
        let value = json!({
            "master": outcome.master, "files": files, "layout": layout.name(), "complete": true,
            "verified": outcome.compared.is_all(), "images": outcome.compared.images,
        });
        console::json(&value, false);
    } else {
        console::to_stdout(&format!("{}: its layout is {}", outcome.master.display(), layout.name()));
    }
    Ok(Exit::Complete)
}

/// The compression that a run has.
fn own(file: &Path) -> Result<Compression, Failure> {
    let main = Stacks::open(file)?;
    let of = |stacks: &Stacks| stacks.layouts().next().map(|layout| layout.compression);
    let linked = || main.linked_files().iter().find_map(|path| of(&Stacks::open(path).ok()?));
    of(&main).or_else(linked).ok_or_else(|| {
        let what = format!("{} points to no file with images", file.display());
        Failure::new(Exit::Incomplete, what, "", "name the master of a run, with its data files beside it")
    })
}
