//! What people see when their configuration is wrong, word by word.

use super::Config;
use super::archive_copy::ArchiveLoss;
use super::plan::plan;
use konkordia_core::affinity::{Pins, Priority, cpus_text};
use konkordia_core::backend::Receive;
use konkordia_core::plan::{Compression, ErrorBound, FirstFrame, Recipe};
use std::path::Path;

/// A valid configuration to break.
const GOOD: &str = "[detector]\ntype = \"jungfrau\"\nenergy_kev = 12.4\n[calibration]\nkind = \"files\"\npedestal = [\"p.f32\"]\ngain = \"g.f32\"\n[output]\ndirectory = \"out\"\nprefix = \"a\"\n";

fn parse(text: &str) -> Result<Config, String> {
    Config::parse(text, Path::new("beam/run.toml")).map_err(|d| d.to_string())
}

/// Replaces `from` in [`GOOD`] and compares the whole error text.
#[track_caller]
fn check(from: &str, to: &str, expected: &str) {
    assert!(GOOD.contains(from), "{from}");
    let error = parse(&GOOD.replacen(from, to, 1)).expect_err("refused");
    assert_eq!(error.trim_end(), expected.trim(), "\n{error}");
}

#[test]
fn a_valid_file_has_its_defaults_and_its_paths_count_from_its_folder() {
    let config = parse(GOOD).unwrap();
    assert_eq!(config.directory, Path::new("beam/out"));
    assert_eq!(config.calibration.as_ref().unwrap().gain, [Path::new("beam/g.f32")]);
    assert_eq!((config.first_port, config.images, config.first_frame), (50010, None, FirstFrame::Auto));
    assert_eq!((config.recipe, config.pixel.name()), (Recipe::JungfrauPhotons, "int16"));
    let plan = plan(&config);
    assert!(plan.slots >= 16 && plan.window_images <= plan.slots / 2);
    let total: u64 = plan.memory().iter().map(|m| m.bytes).sum();
    assert!(total < config.buffer_bytes + (64 << 20), "{total}");
}

#[test]
fn the_example_is_valid() {
    let config = parse(super::EXAMPLE).unwrap();
    assert_eq!((config.images, config.modules), (Some(1000), 1));
    // Every key of a UDP run is in the example, as a value or as a comment; the exceptions are listed here.
    let other_tables = [
        "source.module",
        "transform",
        "stream",
        "control",
        "alarms",
        "service",
        "adapters",
        "writer",
        "detectors",
        "goniometer",
        "experiment",
        "part",
    ];
    let shown = |k: &&super::schema::Key| {
        let of_streams = k.table == "source"
            && !["kind", "address", "first_port", "receive_buffer_mib", "receive", "senders"].contains(&k.name);
        let of_service = other_tables.contains(&k.table)
            || super::schema_analysis::TABLES.contains(&k.table)
            || matches!(k.name, "write" | "create_folders" | "shapes_file" | "format" | "dset_name");
        !of_streams
            && !of_service
            && !matches!(k.name, "image_rows" | "image_columns" | "description" | "serial_number" | "layout")
    };
    for key in super::schema::all().filter(shown) {
        assert!(super::EXAMPLE.contains(&format!("{} = ", key.name)), "{} is not in the example", key.name);
    }
}

#[test]
fn for_xds_what_would_be_misread_is_refused_or_noted() {
    // Takes lines of [processing] and of [output]. Returns the number of errors with xds = true, and the number of
    // notes without it.
    let outcome = |processing: &str, output: &str| {
        let text = GOOD.replacen("[output]\n", &format!("[processing]\n{processing}\n[output]\n{output}\n"), 1);
        let notes = super::xds::notes(&parse(&text).unwrap());
        assert!(notes.iter().all(|note| note.contains("set xds = false")), "{notes:?}");
        let silent = text.replacen("[output]\n", "[output]\nxds = false\n", 1);
        assert_eq!(super::xds::notes(&parse(&silent).unwrap()), Vec::<String>::new());
        let asked = parse(&text.replacen("[output]\n", "[output]\nxds = true\n", 1));
        (
            asked
                .map(|config| assert_eq!(config.xds, Some(true)))
                .map_err(|error| error.matches("output.xds: XDS would misread").count()),
            notes.len(),
        )
    };
    assert_eq!(outcome("dtype = \"uint32\"", ""), (Ok(()), 0));
    assert_eq!(outcome("dtype = \"uint32\"", "compression = \"lz4\"\nlayout = \"links\""), (Ok(()), 0));
    for dtype in ["int16", "int32", "uint16", "float32"] {
        assert_eq!(outcome(&format!("dtype = \"{dtype}\""), ""), (Err(1), 1), "{dtype}");
    }
    assert_eq!(outcome("", "layout = \"virtual\"\ncompression = \"zstd\""), (Err(3), 3), "the default type is int16");
    assert_eq!(outcome("dtype = \"uint32\"", "compression = \"none\""), (Ok(()), 0), "neggia reads plain chunks");
    for codec in ["bszstd", "zstd", "gzip"] {
        assert_eq!(outcome("dtype = \"uint32\"", &format!("compression = \"{codec}\"")), (Err(1), 1), "{codec}");
    }
    check(
        "prefix = \"a\"",
        "prefix = \"a\"\nxds = true",
        "
error: output.xds: XDS would misread the files (dtype)
  --> beam/run.toml:11:7
    |
11  | xds = true
    |       ^^^^
  why: in int16 images, neggia reads counts below zero and all special values as counts of 32767 and more, and durin reads saturated pixels as 32767 counts
  fix: set dtype = \"uint32\", or remove xds = true",
    );
}

#[test]
fn a_spool_needs_its_limit_and_a_place_of_its_own() {
    let said = |lines: &str| parse(&GOOD.replacen("[output]\n", &format!("[output]\n{lines}\n"), 1));
    let config = said("spool_directory = \"/dev/shm/k\"\nspool_gib = 0.5").unwrap();
    let spool = config.spool.expect("a spool");
    assert_eq!((spool.directory.as_path(), spool.limit_bytes, spool.repack_to), (Path::new("/dev/shm/k"), 1 << 29, None));
    let config =
        said("spool_directory = \"s\"\nspool_gib = 2\nspool_codec = \"none\"\ncompression = \"bszstd\"\ncompression_level = 3")
            .unwrap();
    let last = Compression::BSZSTD.with_level(3).unwrap();
    assert_eq!((config.compression, config.spool.and_then(|spool| spool.repack_to)), (Compression::None, Some(last)));
    for (lines, expected) in [
        ("spool_directory = \"s\"", "output.spool_directory without spool_gib"),
        ("spool_gib = 1", "output.spool_gib without spool_directory"),
        ("spool_codec = \"none\"", "output.spool_codec without a spool"),
        ("spool_directory = \"out\"\nspool_gib = 1", "output.spool_directory is the output folder"),
        ("spool_directory = \"s\"\nspool_gib = 1\nkeep_raw = true", "output.keep_raw does not go with a spool"),
        ("spool_directory = \"s\"\nspool_gib = 0", "spool_gib"),
    ] {
        let error = said(lines).expect_err(lines);
        assert!(error.contains(expected), "{lines}: {error}");
    }
}

#[test]
fn a_typo_names_the_nearest_key() {
    check(
        "energy_kev",
        "energy_kve",
        "
error: unknown key 'energy_kve' in [detector]
  --> beam/run.toml:3:1
   |
3  | energy_kve = 12.4
   | ^^^^^^^^^^
  fix: did you mean 'energy_kev'?",
    );
    check(
        "[output]",
        "[outptu]",
        "
error: unknown table or key 'outptu'
  --> beam/run.toml:8:2
   |
8  | [outptu]
   |  ^^^^^^
  fix: did you mean [output]?

error: [output] has no 'directory'
  --> beam/run.toml
  fix: add directory = ... (an existing folder)

error: [output] has no 'prefix'
  --> beam/run.toml
  fix: add prefix = ... (first part of the names: PREFIX_master.h5, PREFIX_data_000001.h5 and so on; `serve` numbers runs that are armed without a name: PREFIX_000001_master.h5)",
    );
}

#[test]
fn wrong_units_are_recognised() {
    check(
        "energy_kev = 12.4",
        "energy_kev = 12400",
        "
error: detector.energy_kev: 12400 is not between 0.5 and 300; it looks like eV
  --> beam/run.toml:3:14
   |
3  | energy_kev = 12400
   |              ^^^^^
  fix: write energy_kev = 12.4",
    );
    check(
        "energy_kev = 12.4",
        "energy_kev = 12.4\nenergy_ev = 12400",
        "
error: unknown key 'energy_ev' in [detector]
  --> beam/run.toml:4:1
   |
4  | energy_ev = 12400
   | ^^^^^^^^^
  why: the unit is part of the key
  fix: did you mean 'energy_kev' (photon energy in keV)?",
    );
    check(
        "energy_kev = 12.4",
        "energy_kev = 12.4\ndetector_distance_mm = 0.2",
        "
error: detector.detector_distance_mm: 0.2 is not between 5 and 100000; it looks like metres
  --> beam/run.toml:4:24
   |
4  | detector_distance_mm = 0.2
   |                        ^^^
  fix: write detector_distance_mm = 200",
    );
}

#[test]
fn wrong_values_list_what_is_possible() {
    check(
        "type = \"jungfrau\"",
        "type = \"jungfrow\"",
        "
error: detector.type: \"jungfrow\" is not possible
  --> beam/run.toml:2:8
   |
2  | type = \"jungfrow\"
   |        ^^^^^^^^^^
  fix: did you mean \"jungfrau\"? one of \"jungfrau\", \"eiger\", \"xfel-train\", \"excalibur\", \"stream\"",
    );
    check(
        "energy_kev = 12.4",
        "energy_kev = \"12.4 keV\"",
        "
error: detector.energy_kev: text where number, 0.5 to 300 is expected
  --> beam/run.toml:3:14
   |
3  | energy_kev = \"12.4 keV\"
   |              ^^^^^^^^^^
  fix: photon energy in keV",
    );
    check(
        "type = \"jungfrau\"",
        "type = \"jungfrau\"\ninterfaces = 3",
        "
error: detector.interfaces: 3 is not between 1 and 2
  --> beam/run.toml:3:14
   |
3  | interfaces = 3
   |              ^
  fix: give a value from 1 to 2",
    );
    check(
        "prefix = \"a\"",
        "prefix = \"a/b\"",
        "
error: output.prefix: \"a/b\" is not a plain file name of at most 200 bytes
  --> beam/run.toml:10:10
    |
10  | prefix = \"a/b\"
    |          ^^^^^
  fix: put the folder into output.directory",
    );
}

#[test]
fn broken_toml_is_shown_where_it_breaks() {
    let error = parse("[detector\ntype = 1").unwrap_err();
    assert!(error.starts_with("error: not TOML: ") && error.contains("--> beam/run.toml:1:"), "{error}");
    let error = parse("").unwrap_err();
    assert!(error.contains("[detector] has no 'type'") && error.contains("[output] has no 'directory'"), "{error}");
}

#[test]
fn what_contradicts_itself_is_refused() {
    let refused = |from: &str, to: &str, part: &str| {
        let error = parse(&GOOD.replacen(from, to, 1)).expect_err(part);
        assert!(error.contains(part), "expected '{part}' in\n{error}");
    };
    refused("kind = \"files\"", "kind = \"none\"", "photons without calibration");
    refused("gain = \"g.f32\"", "", "[calibration] has no 'gain'");
    refused("\"jungfrau\"", "\"eiger\"", "calibration of an EIGER");
    refused("\"jungfrau\"", "\"jungfrau\"\nbits = 12", "a JUNGFRAU word has 16 bits");
    refused("\"jungfrau\"", "\"eiger\"\nbits = 10", "an EIGER has no 10-bit mode");
    refused("\"jungfrau\"", "\"eiger\"\ninterfaces = 2", "always has 4 ports");
    refused("\"jungfrau\"", "\"jungfrau\"\ngeometry = \"jungfrau-4m\"", "does not fit this detector");
    refused("\"jungfrau\"", "\"jungfrau\"\nimage_rows = 5", "without [[detector.tile]]");
    refused("\"jungfrau\"", "\"jungfrau\"\nrows = 100", "a JUNGFRAU cannot read 100 rows");
    refused("\"jungfrau\"", "\"eiger\"\nbits = 8\nrows = 20", "give a multiple of 8 from 8 to 256");
    refused("\"jungfrau\"", "\"jungfrau\"\nten_giga = false", "always sends packets of 8192 bytes");
    refused(
        "\"jungfrau\"",
        "\"jungfrau\"\ndouble_pixels = \"split\"\n[processing]\ndtype = \"raw\"\n[run]",
        "\"split\" does not go with dtype = \"raw\"",
    );
    refused("\"jungfrau\"", "\"eiger\"\n[processing]\ndtype = \"raw\"\n[run]", "\"raw\" is for JUNGFRAU");
    refused("[output]", "[source]\naddress = \"localhost\"\n[output]", "not an IP address");
    refused("[output]", "[source]\nfirst_port = 65535\n[detector.x]\n[output]", "unknown key 'x'");
    refused("[output]", "[run]\nimages = 0\n[output]", "0 is not between 1 and");
    refused("[detector]", "energy_kev = 1\n[detector]", "move it into [detector]");
}

#[test]
fn packets_are_received_through_what_the_file_names() {
    let of =
        |line: &str| parse(&GOOD.replacen("[output]", &format!("[source]\n{line}\n[output]"), 1)).map(|config| config.receive);
    assert_eq!(of(""), Ok(Receive::Auto));
    for name in Receive::NAMES {
        assert_eq!(of(&format!("receive = \"{name}\"")), Ok(Receive::from_name(name).unwrap()));
    }
    assert!(of("receive = \"pcap\"").unwrap_err().contains("\"auto\", \"socket\", \"packet\", \"xdp\", \"verbs\""));
}

#[test]
fn processors_are_named_as_the_kernel_does_or_left_to_it() {
    let run = |keys: &str| parse(&GOOD.replacen("[output]", &format!("[run]\n{keys}\n[output]"), 1));
    let set = rustix::thread::sched_getaffinity(None).unwrap();
    let here: Vec<usize> = (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect();
    let (first, last) = (here[0], here[here.len() - 1]);
    let config = run(&format!("pin_streams = [{last}, {first}]\npin_workers = \"{first}\"\nnice = -10")).unwrap();
    assert_eq!((config.pin_streams, config.pin_workers), (Pins::These(vec![last, first]), Pins::These(vec![first])));
    assert_eq!((config.priority, config.reserved_pages), (Priority::Nice(-10), false));
    let config = run("pin_streams = \"auto\"\nrealtime_priority = 50\nhuge_pages = \"reserved\"").unwrap();
    assert_eq!((config.pin_streams, config.pin_workers), (Pins::Auto, Pins::default()));
    assert_eq!((config.priority, config.reserved_pages), (Priority::RealTime(50), true));

    let refused = |keys: &str, part: &str| {
        let error = run(keys).expect_err(part);
        assert!(error.contains(part), "expected '{part}' in\n{error}");
    };
    let list = cpus_text(&here.iter().copied().collect());
    for key in ["pin_streams", "pin_workers"] {
        for value in ["[60000]", "\"60000-60001\""] {
            refused(&format!("{key} = {value}"), "processor 60000 is not one of those that this process may use");
            refused(&format!("{key} = {value}"), &format!("it may use {list}\n"));
        }
        for value in ["\"4-\"", "\"7-4\"", "\"all\"", "\"0;1\"", "\"0-70000\""] {
            refused(&format!("{key} = {value}"), "is no list of processors");
        }
        refused(&format!("{key} = [-1]"), "-1 is not between 0 and 65535");
        refused(&format!("{key} = 3"), "where \"auto\", list of whole numbers, or text such as \"4-7,12\" is expected");
    }
    refused("nice = -21", "-21 is not between -20 and 19");
    refused("realtime_priority = 0", "0 is not between 1 and 99");
    refused("nice = 1\nrealtime_priority = 1", "run.nice: there is a realtime_priority too");
    refused("huge_pages = \"required\"", "one of \"auto\", \"reserved\"");
}

#[test]
fn impossible_geometries_point_at_the_tile() {
    let two = |second: &str| {
        let tiles = format!("modules = 2\n[[detector.tile]]\nrow = 0\ncolumn = 0\n[[detector.tile]]\n{second}\n");
        parse(&GOOD.replacen("[calibration]", &format!("{tiles}[calibration]"), 1))
    };
    let config = two("row = 520\ncolumn = 8\nflip_rows = true").unwrap();
    assert_eq!((config.geometry.rows(), config.geometry.columns()), (1032, 1032));
    assert!(config.geometry.placements()[1].orientation.flip_rows);
    let error = two("row = 511\ncolumn = 0").unwrap_err();
    assert!(error.contains("tiles 0 and 1 overlap at row 511, column 0") && error.contains("run.toml:8:"), "{error}");
    let error = two("row = 600").unwrap_err();
    assert!(error.contains("tile 1 has no 'column'"), "{error}");
    let error = two("row = 0\ncolumn = 1024\n[[detector.tile]]\nrow = 1000\ncolumn = 0").unwrap_err();
    assert!(error.contains("3 tiles are placed, but the detector has 2 streams"), "{error}");
    let error = two("row = 100000\ncolumn = 100000").unwrap_err();
    assert!(error.contains("pixels; at most"), "{error}");
}

#[test]
fn double_pixels_make_a_module_larger() {
    let size = |keys: &str| {
        let config = parse(&GOOD.replacen("energy_kev", &format!("{keys}\nenergy_kev"), 1)).unwrap();
        (config.geometry.rows(), config.geometry.columns())
    };
    assert_eq!(size("double_pixels = \"keep\""), (512, 1024));
    assert_eq!(size("double_pixels = \"split\"\ninterfaces = 2"), (514, 1030));
    assert_eq!(size("double_pixels = \"mask\"\nmodules = 3"), (1542, 1030));
    assert_eq!(size("double_pixels = \"gap\"\nrows = 64\nmodules = 2\ninterfaces = 2"), (132, 1030));
    assert_eq!(size("rows = 64\nmodules = 2\ngeometry = \"jungfrau-1m\""), (1064 - 448, 1030));
    for double_pixels in ["keep", "gap", "split", "mask"] {
        let preset = format!("double_pixels = \"{double_pixels}\"\nmodules = 32\ngeometry = \"jungfrau-16m\"");
        assert_eq!(size(&preset), (4364, 4144));
    }
}

#[test]
fn turned_tiles_have_the_other_size() {
    let parse_tiles = |keys: &str, second: &str| {
        let tiles = format!("modules = 2\n{keys}\n[[detector.tile]]\nrow = 0\ncolumn = 0\n[[detector.tile]]\n{second}\n");
        parse(&GOOD.replacen("[calibration]", &format!("{tiles}[calibration]"), 1))
    };
    let config = parse_tiles("", "row = 0\ncolumn = 1024\nrotate_deg = 270\nflip_columns = true").unwrap();
    assert_eq!((config.geometry.rows(), config.geometry.columns()), (1024, 1536));
    let orientation = config.geometry.placements()[1].orientation;
    assert_eq!((orientation.flip_rows, orientation.rotate.deg()), (true, 90));
    assert!(super::plan::describe(&config, &plan(&config)).contains("1 of 2 flipped or turned; double pixels: keep"));
    let error = parse_tiles("", "row = 0\ncolumn = 1024\nrotate_deg = 45").unwrap_err();
    assert!(
        error.contains("detector.tile.rotate_deg: 45 is not a quarter turn") && error.contains("give 0, 90, 180 or 270"),
        "{error}"
    );
    let error = parse_tiles("double_pixels = \"split\"", "row = 512\ncolumn = 0").unwrap_err();
    assert!(
        error.contains("tiles 0 and 1 overlap at row 512, column 0") && error.contains("takes 514 rows and 1030 columns"),
        "{error}"
    );
    let error = parse_tiles("image_rows = 1000", "row = 0\ncolumn = 1024\nrotate_deg = 90").unwrap_err();
    assert!(error.contains("tile 1 ends at row 1024, column 1536, outside the image of 1000 x 1536"), "{error}");
}

#[test]
fn archive_copies_have_a_bound_and_a_name_of_their_own() {
    let with = |keys: &str| parse(&format!("{GOOD}\n[travel]\n{keys}\n"));
    assert_eq!(with("error_bound = 3").unwrap().archive_copy, None);
    let config = with("enabled = true").unwrap();
    let archive_copy = config.archive_copy.unwrap();
    let bound = |value| ArchiveLoss::Sz3(ErrorBound::new(value).unwrap());
    assert_eq!((archive_copy.loss, &archive_copy.directory), (bound(2.0), &config.directory));
    assert_eq!(archive_copy.prefix, format!("{}_travel", config.prefix));
    let archive_copy =
        with("enabled = true\nerror_bound = 1.5\nprefix = \"home\"\ndirectory = \"/usb\"").unwrap().archive_copy.unwrap();
    assert_eq!(
        (archive_copy.loss, archive_copy.prefix.as_str(), archive_copy.directory.to_str()),
        (bound(1.5), "home", Some("/usb"))
    );
    let spots = |keys: &str| with(&format!("enabled = true\ncompression = \"spots\"\n{keys}"));
    assert_eq!(spots("").unwrap().archive_copy.unwrap().loss, ArchiveLoss::Spots(1.0));
    assert_eq!(spots("background_sigma = 1.5").unwrap().archive_copy.unwrap().loss, ArchiveLoss::Spots(1.5));
    for (keys, named) in [("background_sigma = 2.1", "travel.background_sigma"), ("error_bound = 2", "travel.error_bound")] {
        let error = spots(keys).unwrap_err();
        assert!(error.contains(named), "{error}");
    }
    let error = with("enabled = true\nbackground_sigma = 1").unwrap_err();
    assert!(error.contains("travel.background_sigma has no effect"), "{error}");
    for bound in ["0", "0.0", "-1", "nan", "inf", "1e9"] {
        let error = with(&format!("enabled = true\nerror_bound = {bound}")).unwrap_err();
        assert!(error.contains("travel.error_bound"), "{bound}: {error}");
    }
    let error = with("enabled = true\nerror_bound = 0.5").unwrap_err();
    assert!(error.contains("travel.error_bound: 0.5 is too small for int16 pixels"), "{error}");
    let error = with(&format!("enabled = true\nprefix = \"{}\"", config.prefix)).unwrap_err();
    assert!(error.contains("travel.prefix"), "{error}");
    let error = parse(&GOOD.replacen("[output]", "[output]\ncompression = \"sz3\"", 1)).unwrap_err();
    assert!(error.contains("is lossy") && error.contains("konkordia repack"), "{error}");
}

#[test]
fn a_gpu_makes_images_that_depend_on_one_frame() {
    let with = |processing: &str| {
        let text = super::EXAMPLE.replacen("[processing]", &format!("[processing]\n{processing}"), 1);
        parse(&text).map(|config| (plan(&config).workers, config.gpu.map(|gpu| gpu.share_percent)))
    };
    assert_eq!(with("workers = 5").unwrap(), (5, None));
    assert_eq!(with("workers = \"gpu\"\ngpu_number = 2").unwrap(), (3, Some(100)));
    // Three threads for the GPU beside those that there are without it.
    let all = 3 + with("workers = \"auto\"").unwrap().0;
    assert_eq!(with("workers = \"gpu+cpu\"").unwrap(), (all, Some(50)));
    assert_eq!(with("workers = \"gpu+cpu\"\ngpu_share_percent = 80").unwrap(), (all, Some(80)));
    let reads_ring = |line: &str| {
        let text = super::EXAMPLE.replacen("[processing]", &format!("[processing]\nworkers = \"gpu\"\n{line}"), 1);
        parse(&text).unwrap().gpu.unwrap().reads_ring
    };
    assert!(reads_ring("") && reads_ring("gpu_input = \"ring\"") && !reads_ring("gpu_input = \"copy\""));
    for wrong in [
        "workers = \"cuda\"",
        "workers = \"gpu\"\ngpu_share_percent = 80",
        "gpu_number = 1",
        "gpu_input = \"copy\"",
        "workers = \"gpu\"\ngpu_input = \"host\"",
        "workers = \"gpu\"\nsummation = 3",
    ] {
        assert!(with(wrong).is_err(), "{wrong}");
    }
}
