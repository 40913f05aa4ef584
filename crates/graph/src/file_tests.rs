//! Good graph files and wrong ones.

use super::*;

const GOOD: &str = r#"
[[host]]
name = "a"
address = "10.0.0.1"

[[host]]
name = "b"
address = "fd00::2"

[[stage]]
name = "read"
kind = "files"
files = ["run.h5"]
host = "a"

[[stage]]
name = "correct"
kind = "python"
function = "beamline:correct"
workers = 4
host = "b"

[[stage]]
name = "write"
kind = "write"
file = "out.h5"
host = "b"

[[edge]]
from = "read"
to = "correct"
port = 9000

[[edge]]
from = "correct"
to = "write"
transport = "ipc"
policy = "by-key"
"#;

#[test]
fn a_good_file_is_understood() {
    let graph = Graph::parse("graph.toml", GOOD).unwrap();
    assert_eq!(graph.address(&graph.edges[0], 0, "/x"), "tcp://10.0.0.1:9000");
    assert_eq!(graph.address(&graph.edges[1], 2, "/x"), "ipc:///x/correct-2-write");
    assert_eq!(graph.edges[0].policy, Policy::LeastWorkload);
    assert_eq!(graph.stages[1].members().last().unwrap(), "correct-3");
}

#[test]
fn processes_are_spread_over_hosts() {
    let two = GOOD.replacen("transport = \"ipc\"", "port = 9100", 1);
    let text = two.replacen("workers = 4\nhost = \"b\"", "workers = 4\nhosts = [\"b\", \"a\"]", 1);
    let graph = Graph::parse("graph.toml", &text).unwrap();
    let addresses: Vec<_> = (0..3).map(|index| graph.address(&graph.edges[1], index, "/x")).collect();
    assert_eq!(addresses, ["tcp://[fd00::2]:9100", "tcp://10.0.0.1:9101", "tcp://[fd00::2]:9102"]);
    let wrong = Graph::parse("graph.toml", &text.replace("port = 9100", "transport = \"ipc\"")).unwrap_err();
    assert!(wrong.why.contains("are for stages of one host"), "{}", wrong.why);
}

#[test]
fn stages_in_one_process_are_found() {
    let names = |text: &str| -> Vec<Vec<String>> {
        let graph = Graph::parse("graph.toml", text).unwrap();
        graph.groups().iter().map(|group| group.iter().map(|stage| stage.name.clone()).collect()).collect()
    };
    assert_eq!(names(GOOD), [["read"], ["correct"], ["write"]]);
    assert_eq!(names(&GOOD.replace("\"ipc\"", "\"inproc\"")), [vec!["read"], vec!["correct", "write"]]);
    let with_mpi = GOOD.replace("\"ipc\"", "\"mpi\"");
    let graph = Graph::parse("graph.toml", &with_mpi).unwrap();
    assert!(graph.uses_mpi());
    assert_eq!(graph.members().last().map(|(stage, member)| (stage.name.as_str(), member)), Some(("write", "write-0".into())));
}

#[test]
fn images_are_compressed_directly_before_they_are_written() {
    let python = "kind = \"python\"\nfunction = \"beamline:correct\"";
    let compress = GOOD.replacen(python, "kind = \"compress\"\ncompression = \"bszstd\"\nlevel = 3", 1);
    let graph = Graph::parse("graph.toml", &compress).unwrap();
    assert_eq!(graph.stages[1].packing(), Ok(Compression::BSZSTD.with_level(3).unwrap()));
    let write = "kind = \"write\"\nfile = \"out.h5\"";
    let more = compress.replacen(write, python, 1);
    let failure = Graph::parse("graph.toml", &more).unwrap_err();
    assert!(failure.why.contains("only a stage with kind = \"write\" can take compressed images"), "{}", failure.why);
}

#[test]
fn mistakes_are_named() {
    let cases = [
        ("workers = 4", "workerz = 4", "unknown field `workerz`"),
        ("workers = 4", "workers = 0", "workers = 0 is not from 1 to 256"),
        ("host = \"a\"", "host = \"c\"", "there is no [[host]] with the name 'c'"),
        ("address = \"10.0.0.1\"", "address = \"\"", "host 'a' has no address"),
        ("port = 9000", "", "transport = \"tcp\" needs 'port'"),
        ("to = \"correct\"", "to = \"corect\"", "there is no stage 'corect'"),
        ("from = \"correct\"", "from = \"read\"", "are for stages of one host"),
        ("from = \"read\"", "from = \"correct\"", "form a circle"),
        ("name = \"write\"", "name = \"correct\"", "two stages have the name 'correct'"),
        ("transport = \"ipc\"", "transport = \"udp\"", "an edge needs what TCP has; use \"tcp\""),
        ("transport = \"ipc\"", "transport = \"mpi\"\nport = 7", "'port' belongs to transport = \"tcp\""),
        ("file = \"out.h5\"", "file = \"out.h5\"\nworkers = 2", "in the file once only if one process writes"),
        ("file = \"out.h5\"", "", "kind = \"write\" needs 'file'"),
        ("file = \"out.h5\"", "file = \"out.h5\"\ncommand = [\"x\"]", "'command' belongs to kind = \"program\"; remove it"),
        ("file = \"out.h5\"", "file = \"out.h5\"\nlevel = 3", "compression: bslz4 has no levels"),
        ("kind = \"python\"\nfunction = \"beamline:correct\"", "kind = \"convert\"", "kind = \"convert\" needs 'calibration'"),
        (
            "kind = \"files\"\nfiles = [\"run.h5\"]",
            "kind = \"files\"\nfiles = [\"run.h5\"]\ndtype = \"int32\"",
            "'dtype' belongs to kind = \"convert\"; remove it",
        ),
        (
            "kind = \"python\"\nfunction = \"beamline:correct\"",
            "kind = \"compress\"\ncompression = \"bszstd\"\nlevel = 23",
            "compression: bszstd has no level 23; bszstd takes level=1 to 22",
        ),
        ("beamline:correct", "beamline", "is not of the form \"module:name\""),
        ("files = [\"run.h5\"]", "files = [\"run.h5\"]\nqueue = 0", "queue = 0 is not from 1 to"),
        ("[[edge]]", "[discovery]\nkind = \"etcd\"\nname = \"a\"\n[[edge]]", "needs 'url'"),
        ("[[edge]]", "[discovery]\nkind = \"kubernetes\"\nname = \"a_b\"\n[[edge]]", "name must be of lower case"),
        ("to = \"correct\"", "to = \"read\"", "no edge may lead to it"),
    ];
    for (old, new, expected) in cases {
        let failure = Graph::parse("graph.toml", &GOOD.replacen(old, new, 1)).unwrap_err();
        assert!(failure.why.contains(expected), "{old} -> {new}: {}", failure.why);
        assert_eq!((failure.exit, failure.what.as_str()), (Exit::Configuration, "graph.toml is no valid graph"));
    }
}
