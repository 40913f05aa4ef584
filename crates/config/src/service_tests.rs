//! What people see when the configuration of a service is wrong, and what a right one means.

use super::*;
use crate::settings::{AdapterRole, AdapterSettings};
use crate::stream::{Socket, StreamSource};
use konkordia_core::protocol::Protocol;
use konkordia_core::series::Accept;

const STREAM: &str = "[detector]\ntype = \"stream\"\n[source]\nprotocol = \"stream2\"\nupstreams = [\"tcp://127.0.0.1:31001\"]\n[output]\ndirectory = \"out\"\nprefix = \"a\"\n";
const PACKETS: &str = "[detector]\ntype = \"eiger\"\nenergy_kev = 12.4\n[output]\ndirectory = \"out\"\nprefix = \"a\"\n";

fn read(text: &str) -> Result<Partial, String> {
    parse(text, Path::new("beam/run.toml")).map_err(|d| d.to_string())
}

fn own(text: &str) -> DetectorConfig {
    read(text).unwrap().own.unwrap()
}

#[track_caller]
fn refused(text: &str, part: &str) {
    let error = read(text).map(|_| ()).expect_err(part);
    assert!(error.contains(part), "expected '{part}' in\n{error}");
    assert!(error.contains("fix: "), "{error}");
}

#[test]
fn a_run_configuration_is_a_service_with_one_detector() {
    let partial = read(PACKETS).unwrap();
    assert_eq!(partial.settings, ServiceSettings::default());
    let own = partial.own.unwrap();
    assert_eq!((own.name.as_str(), own.write, own.create_folders), ("detector", true, false));
    assert_eq!(own.directory(), Path::new("beam/out"));
    assert!(matches!(own.kind, DetectorKindConfig::Udp(_)) && own.consumers.is_empty() && own.hooks.on_arm.is_empty());
}

#[test]
fn the_tables_of_the_service_are_read() {
    let text = format!(
        "{PACKETS}write = false\n[service]\nname = \"eiger-1\"\nlisten = \"0.0.0.0:80\"\ndata_root = \"/data\"\nring_images = 3\narm_timeout_s = 1.5\narmed_timeout_s = 60\ntokens = \"t.json\"\ncompat = \"streaming-receiver\"\n[control]\non_trigger = [\"caput\", \"X\", \"1\"]\ntimeout_s = 2\n[[stream]]\nname = \"live\"\naddress = \"tcp://*:1\"\nservice = \"latest\"\nsocket = \"pub\"\n[[stream]]\nname = \"pipe\"\naddress = \"tcp://*:2\"\nprotocol = \"stream2\"\nrequired = true\n"
    );
    let Partial { settings, own: Some(own), .. } = read(&text).unwrap() else { panic!("one detector") };
    assert_eq!((settings.http.listen.port(), settings.ring_images, own.write), (80, 3, false));
    assert_eq!(settings.data_root.as_deref(), Some(Path::new("/data")));
    assert_eq!(settings.http.tokens.as_deref(), Some(Path::new("beam/t.json")));
    assert_eq!((settings.arm_timeout, settings.armed_timeout), (Duration::from_millis(1500), Some(Duration::from_secs(60))));
    assert_eq!(settings.http.compat.unwrap().listen.port(), 5000);
    assert_eq!((own.name.as_str(), own.hooks.on_trigger.len(), own.hooks.timeout), ("eiger-1", 3, Duration::from_secs(2)));
    assert_eq!(own.consumers.len(), 2);
    assert!(own.consumers[0].publish && own.consumers[0].service == ServiceLevel::Latest && !own.consumers[0].required);
    assert!(own.consumers[1].protocol == Protocol::DectrisV2 && own.consumers[1].required);
}

#[test]
fn streams_have_their_keys_and_no_others() {
    let of = |text: &str| match own(text).kind {
        DetectorKindConfig::Stream(config) => *config,
        DetectorKindConfig::Udp(_) => panic!("a stream"),
    };
    let config = of(STREAM);
    assert_eq!((config.protocol, config.accept, config.window_images), (Protocol::DectrisV2, Accept::Always, 1024));
    assert!(
        matches!(config.source, StreamSource::Messages { ref upstreams, bind: false, socket: Socket::Pull } if upstreams.len() == 1)
    );
    let folder = STREAM
        .replace("\"stream2\"\nupstreams = [\"tcp://127.0.0.1:31001\"]", "\"directory\"\nfolder = \"ram\"\nsuffixes = \".cbf\"");
    let config = of(&folder);
    assert!(
        matches!(config.source, StreamSource::Folder { ref folder, ref suffixes, .. } if folder == Path::new("beam/ram") && suffixes == &["cbf"])
    );
    let two = STREAM.replace(
        "[\"tcp://127.0.0.1:31001\"]",
        "[\"tcp://a:1\", \"tcp://b:2\"]\njoin = \"modules\"\nimage_rows = 1024\nimage_columns = 1024\n[[source.module]]\nrow = 0\ncolumn = 0\n[[source.module]]\nrow = 512\ncolumn = 0\nrotate_deg = 180",
    );
    let modules = of(&two).modules.unwrap();
    assert_eq!((modules.placements.len(), modules.placements[1].row), (2, 512));
    let changed = format!("{STREAM}[transform]\ncrop = [0, 1, 2, 3]\nbin = [2]\nrotate_deg = 90\ncompression = \"none\"\n");
    let transform = of(&changed).transform;
    assert!(transform.changes_pixels() && transform.crop == Some([0, 1, 2, 3]) && transform.bin == Some([2, 2]));

    refused(&STREAM.replace("[output]", "[output]\nkeep_raw = true"), "output.keep_raw with type = \"stream\"");
    refused(&format!("{STREAM}[calibration]\nkind = \"none\"\n"), "[calibration] with type = \"stream\"");
    refused(&STREAM.replace("upstreams", "first_port = 5\nupstreams"), "source.first_port with protocol = \"stream2\"");
    refused(&STREAM.replace("\"tcp://127.0.0.1:31001\"", "\"127.0.0.1:31001\""), "source.upstreams: ");
    let list = |count: u32| (0..count).map(|n| format!("\"tcp://127.0.0.1:{}\"", 31001 + n)).collect::<Vec<_>>().join(", ");
    refused(&STREAM.replace("\"tcp://127.0.0.1:31001\"", &list(65)), "source.upstreams: 65 addresses; a stream has at most 64");
    let config = of(&STREAM.replace("\"tcp://127.0.0.1:31001\"", &list(64)));
    assert!(matches!(config.source, StreamSource::Messages { ref upstreams, .. } if upstreams.len() == 64));
    refused(&STREAM.replace("upstreams = [\"tcp://127.0.0.1:31001\"]\n", ""), "[source] has no 'upstreams'");
    refused(&STREAM.replace("\"stream2\"", "\"directory\""), "[source] has no 'folder'");
    refused(&STREAM.replace("\"stream2\"", "\"stream3\""), "did you mean \"stream");
    refused(&STREAM.replace("[output]", "join = \"modules\"\n[output]"), "0 modules are placed, but there are 1 upstreams");
    refused(&two.replace("image_rows = 1024\n", ""), "has no 'image_rows'");
    refused(&format!("{STREAM}[[stream]]\nname = \"file\"\naddress = \"tcp://*:1\"\n"), "\"file\" is taken");
    let sums = |frames: u32| of(&format!("{STREAM}[transform]\nsum_frames = {frames}\n")).transform;
    assert_eq!((sums(1).sum_frames, sums(2).sum_frames, sums(1000).sum_frames), (None, Some(2), Some(1000)));
    assert_eq!((sums(1).describe(), sums(7).describe()), ("none".into(), "add 7 images to make one".into()));
    refused(&format!("{STREAM}[transform]\nsum_frames = 0\n"), "transform.sum_frames");
    refused(&format!("{STREAM}[transform]\nsum_frames = 1001\n"), "transform.sum_frames");
    refused(&format!("{STREAM}[transform]\ncrop = [1, 2]\n"), "transform.crop");
    refused(&format!("{STREAM}[transform]\nrotate_deg = 10\n"), "transform.rotate_deg: 10 is not a quarter turn");
    refused(&format!("{STREAM}[transform]\nupright = true\n"), "transform.upright without a turn");
    assert!(of(&format!("{STREAM}[transform]\nupright = true\nrotate_deg = 90\n")).transform.upright);
    refused(&format!("{PACKETS}[transform]\nbin = [2]\n"), "[transform] is for streams");
    refused(&format!("{PACKETS}[source]\nupstreams = \"tcp://a:1\"\n"), "source.upstreams is for streams");
}

#[test]
fn mistakes_of_the_service_are_explained() {
    refused(&format!("{PACKETS}[service]\nlisten = \"8090\"\n"), "service.listen: \"8090\" is not an address with a port");
    refused(&format!("{PACKETS}[service]\ntls_key = \"k.pem\"\n"), "service.tls_key without tls_certificate");
    refused(&format!("{PACKETS}[service]\nname = \"a/b\"\n"), "\"a/b\" is not a valid detector name");
    refused(&format!("{PACKETS}[service]\nlistne = \"x\"\n"), "did you mean 'listen'");
    refused(&format!("{PACKETS}[[stream]]\nname = \"a\"\n"), "stream 0 has no 'address'");
    refused(&format!("{PACKETS}[[stream]]\nname = \"a\"\naddress = \"udp://x:1\"\n"), "stream.address: ");
    let twice = "[[stream]]\nname = \"a\"\naddress = \"tcp://*:1\"\n";
    refused(&format!("{PACKETS}{twice}{twice}"), "there are two consumers \"a\"");
    refused(&format!("{PACKETS}[stream]\nname = \"a\"\n"), "write [[stream]] with two brackets");
    refused("[detectors.a]\nconfig = \"a.toml\"\n[output]\ndirectory = \".\"\n", "[output] beside [detectors]");
    refused("[detectors.a]\nfile = \"a.toml\"\n", "unknown key 'file'");
    refused("[detectors]\nconfig = \"a.toml\"\n", "write [detectors.NAME]");
}

#[test]
fn adapters_are_servers_or_programs() {
    let of = |text: &str| read(&format!("{PACKETS}{text}")).unwrap().settings.adapters;
    assert_eq!(of(""), AdapterSettings::default());
    let all = of(
        "[adapters.simplon]\nlisten = \"0.0.0.0:80\"\nrole = \"view\"\n[adapters.epics]\nprogram = [\"python3\", \"-m\", \"x\"]\ndetector = \"a\"\n",
    );
    let server = all.simplon.unwrap();
    assert_eq!((server.listen.port(), server.detector, server.role), (80, None, AdapterRole::View));
    assert_eq!((all.jfjoch, all.programs.len(), all.programs[0].program.len()), (None, 1, 3));
    assert_eq!((all.programs[0].detector.as_deref(), all.programs[0].role), (Some("a"), AdapterRole::Operate));
    let wrong = |text: &str, part: &str| refused(&format!("{PACKETS}{text}"), part);
    wrong("[adapters.jfjoch]\n", "[adapters.jfjoch] has no 'listen'");
    wrong("[adapters.jfjoch]\nlisten = \"5232\"\n", "adapters.jfjoch.listen: \"5232\" is not an address with a port");
    wrong("[adapters.jfjoch]\nlisten = \"[::1]:1\"\nprogram = \"x\"\n", "'jfjoch' is a server that is part of konkordia");
    wrong("[adapters.epics]\n", "[adapters.epics] has no 'program'");
    wrong("[adapters.epics]\nprogram = []\n", "[adapters.epics] has no 'program'");
    wrong("[adapters.epics]\nprogram = \"x\"\nlisten = \"[::1]:1\"\n", "'epics' is a program");
    wrong("[adapters.epics]\nprogram = \"x\"\nrole = \"configure\"\n", "adapters.role");
    wrong("[adapters.\"a b\"]\nprogram = \"x\"\n", "\"a b\" is not a valid adapter name");
    wrong("[adapters]\nlisten = \"x\"\n", "write [adapters.NAME]");
}

#[test]
fn several_detectors_come_from_files_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("a.toml", PACKETS);
    write("b.toml", &STREAM.replace("\"a\"", "\"b\""));
    write(
        "all.toml",
        "[service]\nlisten = \"127.0.0.1:0\"\n[detectors.one]\nconfig = \"a.toml\"\n[detectors.two]\nconfig = \"b.toml\"\n",
    );
    let all = load(&folder.path().join("all.toml")).unwrap();
    let names: Vec<&str> = all.detectors.iter().map(|d| d.name.as_str()).collect();
    assert_eq!(names, ["one", "two"]);
    assert_eq!(all.settings.http.listen.port(), 0);
    write("all.toml", "[detectors.one]\nconfig = \"a.toml\"\n[detectors.two]\nconfig = \"a.toml\"\n");
    let error = load(&folder.path().join("all.toml")).unwrap_err();
    assert!(error.what.contains("both listen on UDP port 50010"), "{error}");
}

#[test]
fn drivers_of_detectors_are_read_and_checked() {
    let driven = |detector: &str, control: &str| {
        load_text(
            &format!("{detector}\n[output]\ndirectory = \"out\"\nprefix = \"a\"\n[control]\n{control}"),
            Path::new("run.toml"),
        )
    };
    let eiger = "[detector]\ntype = \"eiger\"";
    let stream = "[detector]\ntype = \"stream\"\n[source]\nprotocol = \"stream2\"\nupstreams = [\"tcp://127.0.0.1:9\"]";
    let settings =
        "[control.settings]\nhosts = [\"a:1952\", \"b\"]\nhv_v = 200\ndelay_s = 0.5\n[control.settings.more]\nx = true\n";
    let driver = |detector: &str, control: &str| {
        let mut service = driven(detector, control).unwrap();
        service.detectors.pop().unwrap().hooks.driver.unwrap()
    };
    let own = driver(eiger, &format!("driver = \"slsdet\"\npython = \"/opt/bin/python\"\n{settings}"));
    assert_eq!(own.program, ["/opt/bin/python", "-m", "konkordia.control.slsdet"]);
    let wanted = serde_json::json!({ "hosts": ["a:1952", "b"], "hv_v": 200, "delay_s": 0.5, "more": { "x": true } });
    assert_eq!(serde_json::Value::Object(own.settings), wanted);
    assert_eq!(driver(eiger, "driver = [\"drive\", \"fast\"]").program, ["drive", "fast"]);
    let refusing = driver(stream, "driver = \"simplon\"\nmismatch = \"refuse\"");
    assert!(refusing.refuses_mismatch && refusing.program[0] == "python3", "{refusing:?}");
    for (detector, control, why) in [
        (stream, "driver = \"slsdet\"", "\"slsdet\" cannot drive this detector"),
        (eiger, "driver = \"simplon\"", "\"simplon\" cannot drive this detector"),
        (eiger, "driver = \"slsdet\"\nmismatch = \"warn\"", "control.mismatch is for streams"),
        (eiger, "driver = \"/opt/drive\"\npython = \"python3\"", "control.python with the driver"),
        (eiger, "driver = []", "control.driver names no program"),
        (eiger, settings, "[control.settings] without a driver"),
        (eiger, "driver = \"x\"\nsettings = 3", "control.settings is a table"),
        (eiger, "driver = \"x\"\n[control.settings]\na = nan", "inf and nan are no settings"),
    ] {
        let refused = driven(detector, control).unwrap_err();
        assert!(refused.why.contains(why), "{refused:?}");
    }
}
