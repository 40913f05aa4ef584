//! Which verbs read files that may come from others, and where each of them writes.

use crate::calibration_verbs::args::CalibrationCommand;
use crate::cli::Command;
use crate::pedestal::args::is_live;
use crate::veto::args::VetoCommand;
use konkordia_acquire::convert;
use std::path::{Path, PathBuf};

/// Most files that a message names.
const NAMED_MAX: usize = 8;

/// What the parent and the restriction of the child need to know of its work.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Task {
    /// The files to read, as the command line names them; they may refer to further files.
    pub files: Vec<PathBuf>,
    /// Existing folders in which, and below which, files may be written.
    pub folders: Vec<PathBuf>,
    /// The only folder from which files are read; `None` = everywhere. What the service asks about may have come from
    /// anybody, and may name files that are none of theirs.
    pub only_from: Option<PathBuf>,
    /// It may delete files that it has read, wherever they are.
    pub deletes_originals: bool,
    /// It renames and removes folders of its own, and moves files from one to another, below `folders`.
    pub moves_folders: bool,
    /// How to go on if the child did not finish; may be empty.
    pub left: String,
}

impl Task {
    /// The task of a command that reads files; `None` for commands that talk to detectors and services.
    pub fn of(command: &Command) -> Option<Self> {
        match command {
            Command::Analyse(args) => Some(Self {
                folders: args.output.iter().chain(&args.reflections).map(|path| folder_of(path)).collect(),
                ..Self::read(args.files.iter().chain(&args.recipe).chain(&args.poni))
            }),
            Command::Veto(VetoCommand::Replay(args)) => Some(Self::read([&args.file])),
            Command::Coincide(args) => Some(Self::read(&args.files)),
            Command::Check(args) => Some(Self::read([&args.file])),
            Command::Inspect(args) => {
                // If the picture is a link, the folder of its target is written.
                let picture = args.png.as_ref().map(|path| path.canonicalize().unwrap_or_else(|_| path.clone()));
                let written = picture.iter().chain(&args.geom);
                let only_from = args.index.then(|| folder_of(&args.file));
                Some(Self { folders: written.map(|path| folder_of(path)).collect(), only_from, ..Self::read([&args.file]) })
            }
            // Without a file it works on a spool, where only files of this program lie.
            Command::Repair(args) => args.file.as_ref().map(|file| Self {
                folders: vec![folder_of(file)],
                left: "finished repairs are kept; run the same command again, if possible with a good copy of the file".into(),
                ..Self::read([file])
            }),
            Command::Archive(args) => {
                let left = "what is finished is kept; run the same command again to continue".into();
                let folders = args.output.iter().filter_map(|path| existing(&folder_of(path))).collect();
                Some(Self { folders, left, moves_folders: true, ..Self::read([&args.from]) })
            }
            Command::Repack(args) => Some(Self {
                folders: vec![if args.output.is_dir() { args.output.clone() } else { folder_of(&args.output) }],
                deletes_originals: args.delete_source,
                moves_folders: args.layout.is_some(),
                left: "finished copies are kept; run the same command again to continue".into(),
                ..Self::read([&args.file])
            }),
            Command::Convert(args) => Some(Self {
                folders: convert::folders(&args.request()),
                left: format!(
                    "converted images are kept: run the same command with --resume to continue, or `konkordia repair {}` to make them readable as they are",
                    args.request().master().display()
                ),
                ..Self::read(args.input.iter().chain(&args.calibration))
            }),
            // One that watches a folder may compute for days without end.
            Command::Import(args) if !args.watch => Some(Self {
                folders: vec![folder_of(&args.output)],
                left: "imported images are kept: run the same command with --resume to continue".into(),
                ..Self::read(args.input.iter().chain(&args.mapping).chain(&args.table))
            }),
            Command::Export(args) => Some(Self {
                folders: vec![folder_of(&args.output)],
                left: "finished files are kept: run the same command with --resume to continue".into(),
                ..Self::read([&args.file])
            }),
            Command::Pedestal(args) if !is_live(&args.input) => {
                let target = args.into.iter().chain(&args.output);
                Some(Self {
                    folders: target.map(|path| folder_of(path)).collect(),
                    left: "the calibration file is unchanged".into(),
                    ..Self::read(args.input.iter().chain(&args.gain).chain(&args.into))
                })
            }
            Command::Calibration(which) => Some(Self::of_calibration(which)),
            Command::Doctor(args) => args.run.as_ref().map(|file| Self::read([file])),
            _ => None,
        }
    }

    fn of_calibration(which: &CalibrationCommand) -> Self {
        match which {
            CalibrationCommand::Show(args) => Self::read(&args.files),
            CalibrationCommand::Compare(args) => Self::read([&args.before, &args.after]),
            CalibrationCommand::Plot(args) => {
                let folder = args.dir.clone().unwrap_or_else(|| folder_of(&args.file));
                Self { folders: existing(&folder).into_iter().collect(), ..Self::read([&args.file]) }
            }
            CalibrationCommand::Import(args) => Self {
                folders: vec![folder_of(&args.output)],
                left: "the calibration file is unchanged".into(),
                ..Self::read(args.pedestal.iter().chain(&args.rms).chain(&args.gain))
            },
        }
    }

    /// A task that reads files and writes nothing.
    fn read<'a>(files: impl IntoIterator<Item = &'a PathBuf>) -> Self {
        Self { files: files.into_iter().cloned().collect(), ..Self::default() }
    }

    /// The files, as part of a sentence.
    pub fn files_in_words(&self) -> String {
        let shown: Vec<String> = self.files.iter().take(NAMED_MAX).map(|path| path.display().to_string()).collect();
        let more = self.files.len() - shown.len();
        match shown.as_slice() {
            [one] => one.clone(),
            _ if more > 0 => format!("one of {} and {more} others", shown.join(", ")),
            _ => format!("one of {}", shown.join(", ")),
        }
    }
}

/// The folder of a file.
fn folder_of(path: &Path) -> PathBuf {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new(".")).to_owned()
}

/// The folder, or the nearest folder above it that exists.
fn existing(folder: &Path) -> Option<PathBuf> {
    let ancestors = folder.ancestors().map(|part| if part.as_os_str().is_empty() { Path::new(".") } else { part });
    ancestors.map(Path::to_owned).find(|part| part.is_dir())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::Parser;

    fn task(line: &str) -> Option<Task> {
        Task::of(&Cli::try_parse_from(line.split(' ')).expect("a command").command)
    }

    #[test]
    fn verbs_that_read_files_are_tasks_and_others_are_not() {
        for line in [
            "check a.h5",
            "inspect a.h5",
            "doctor --run a.h5",
            "calibration show a.h5",
            "calibration compare a.h5 b.h5",
            "coincide a.h5 b.h5",
        ] {
            let task = task(&format!("konkordia {line}")).expect(line);
            assert!(task.folders.is_empty() && task.files[0] == Path::new("a.h5") && !task.deletes_originals, "{line}");
        }
        for line in [
            "repair --spool a",
            "import in -o out/run --watch",
            "receive a.toml",
            "serve -c a.toml",
            "pedestal a.toml -o b.h5",
            "demo",
            "status",
            "doctor",
            "version",
        ] {
            assert_eq!(task(&format!("konkordia {line}")), None, "{line}");
        }
    }

    #[test]
    fn each_writes_where_its_results_go() {
        let folders = |line: &str| task(&format!("konkordia {line}")).expect(line).folders;
        assert_eq!(folders("inspect in/a.h5 --png b.png"), [Path::new(".")]);
        assert_eq!(folders("inspect in/a.h5 --geom out/b.geom"), [Path::new("out")]);
        assert_eq!(folders("repair in/a_master.h5"), [Path::new("in")]);
        assert_eq!(folders("repack in/a.h5 -o out/run --compression lz4"), [Path::new("out")]);
        assert_eq!(folders("import in/a_1.cbf -o out/run"), [Path::new("out")]);
        assert_eq!(folders("export in/a.h5 -o out/run --format cbf"), [Path::new("out")]);
        assert_eq!(folders("pedestal a.raw --into cal/b.h5"), [Path::new("cal")]);
        assert_eq!(folders("calibration import --pedestal p --cell 0 -o cal/b.h5"), [Path::new("cal")]);
        let here = std::env::current_dir().expect("a folder");
        let convert = folders("convert a.raw -o out/run --set travel.enabled=true --set travel.directory=/t");
        assert_eq!(convert, [here.join("out"), "/t".into()]);
        let line = "repack a.h5 -o out/run --compression lz4 --delete-source";
        assert!(task(&format!("konkordia {line}")).expect(line).deletes_originals);
        assert_eq!(folders("archive in -o there-is-none-of-this-name/a.bag"), [Path::new(".")]);
        assert!(folders("archive --check a.bag").is_empty());
        for (line, moves) in [("archive in -o a.bag", true), ("repack a.h5 -o out --layout split", true), ("check a.h5", false)] {
            assert_eq!(task(&format!("konkordia {line}")).expect(line).moves_folders, moves, "{line}");
        }
    }

    #[test]
    fn an_index_is_made_from_the_folder_of_its_file_only() {
        let only_from = |line: &str| task(&format!("konkordia {line}")).expect(line).only_from;
        assert_eq!(only_from("inspect /data/a.h5 --index"), Some("/data".into()));
        assert_eq!(only_from("inspect /data/a.h5"), None);
    }

    #[test]
    fn a_folder_that_is_still_to_be_made_lies_in_one_that_is_there() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(existing(&folder.path().join("new/newer")), Some(folder.path().to_owned()));
        assert_eq!(existing(Path::new("there-is-none-of-this-name")), Some(".".into()));
    }

    #[test]
    fn many_files_are_not_all_named() {
        let named = |n| Task { files: (0..n).map(|n| format!("{n}").into()).collect(), ..Task::default() }.files_in_words();
        assert_eq!((named(1), named(2)), ("0".into(), "one of 0, 1".into()));
        assert!(named(20).ends_with("6, 7 and 12 others"));
    }
}
