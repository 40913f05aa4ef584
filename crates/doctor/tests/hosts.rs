//! The checks on recorded hosts: all findings of each, word for word.
//!
//! A record is one text: `### PATH` begins the text of a file, `### probes` what the drivers, the clock and the disk
//! said and what a configuration asks for. The files are laid out in a folder and read from there as from `/`.

use konkordia_core::backend::Receive;
use konkordia_doctor::disk::Written;
use konkordia_doctor::finding::{Finding, Verdict, to_text};
use konkordia_doctor::snapshot::{Clock, Coalescing, Demand, Disk, Interface, Plugins, Queues, Ring, Snapshot};
use konkordia_doctor::{checks, interfaces, script, snapshot};
use std::fmt::Write;
use std::path::Path;
use std::str::FromStr;

/// What the drivers say about an interface of which the record says nothing.
const UNKNOWN: &str = "Operation not supported";

fn record(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hosts").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()))
}

/// Lays out the files of a record below `root`; returns its probes.
fn lay_out(record: &str, root: &Path) -> String {
    let mut probes = String::new();
    for section in record.split("### ").skip(1) {
        let (path, text) = section.split_once('\n').expect("a path ends its line");
        if path == "probes" {
            probes = text.into();
            continue;
        }
        let at = root.join(path);
        std::fs::create_dir_all(at.parent().expect("below the root")).unwrap();
        std::fs::write(&at, text).unwrap();
    }
    probes
}

/// The words after `key` at the beginning of a line.
fn words<'a>(probes: &'a str, key: &str) -> Result<Vec<&'a str>, String> {
    let line = probes.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
    line.map(|line| line.split_whitespace().collect()).ok_or_else(|| UNKNOWN.into())
}

fn number<T: FromStr>(word: &str) -> T {
    word.parse().unwrap_or_else(|_| panic!("{word} is no number"))
}

fn interface(probes: &str, name: String) -> Interface {
    let of = |what: &str| words(probes, &format!("{name} {what}"));
    Interface {
        ring: of("ring").map(|w| Ring { entries: number(w[0]), entries_max: number(w[1]) }),
        coalescing: of("coalescing").map(|w| Coalescing {
            is_adaptive: w[0] == "adaptive",
            usecs: number(w[1]),
            frames: number(w[2]),
        }),
        takes_pause: of("pause").map(|w| w[0] == "on"),
        gro: of("gro").map(|w| w[0] == "on"),
        checksums: of("checksums").map(|w| w[0] == "on"),
        queues: of("queues").map(|w| Queues { used: number(w[0]), most: number(w[1]) }),
        hashes_ports: of("hash").map(|w| w[0] == "ports"),
        name,
    }
}

fn demand(probes: &str) -> Demand {
    let of = |what: &str| words(probes, &format!("demand {what}")).ok().map(|words| number(words[0]));
    let pinned = words(probes, "demand pinned").unwrap_or_default();
    Demand {
        streams: of("streams"),
        datagram_bytes: of("datagram_bytes"),
        receive_buffer_bytes: of("receive_buffer_bytes"),
        memory_bytes: of("memory_bytes"),
        pinned: pinned.into_iter().map(number).collect(),
        ..Demand::default()
    }
}

fn disk(probes: &str) -> Option<Result<Disk, String>> {
    let words = words(probes, "disk").ok()?;
    let written = Written {
        bytes: number(words[3]),
        seconds: number(words[4]),
        slowest_ms: number(words[5]),
        is_direct: words[6] == "direct",
    };
    let (free_bytes, total_bytes) = (number(words[1]), number(words[2]));
    Some(Ok(Disk { folder: words[0].into(), free_bytes, total_bytes, written: Ok(written) }))
}

/// The host of a record.
fn host(record: &str) -> Snapshot {
    let root = tempfile::tempdir().unwrap();
    let probes = lay_out(record, root.path());
    let files = snapshot::files(root.path());
    let names = interfaces::choose(&files, &[], &[], &[]).unwrap();
    let plugins = words(&probes, "plugins").unwrap_or_default();
    Snapshot {
        interfaces: names.into_iter().map(|name| interface(&probes, name)).collect(),
        demand: demand(&probes),
        clock: words(&probes, "clock").map(|w| Clock { is_synchronised: w[0] == "synchronised", error_us: number(w[1]) }),
        wake_up_us: words(&probes, "wake_up_us").map(|w| number(w[0])),
        disk: disk(&probes),
        plugins: Plugins {
            path: plugins.first().copied().unwrap_or("/usr/local/hdf5/lib/plugin").into(),
            is_set: !plugins.is_empty(),
            files: plugins.iter().skip(1).map(|name| (*name).to_owned()).collect(),
        },
        files,
    }
}

/// All that is known of each finding.
fn dump(findings: &[Finding]) -> String {
    let mut out = String::new();
    for Finding { check, subject, verdict, measured, wanted, why, fix, sysctl } in findings {
        let name = if subject.is_empty() { (*check).to_owned() } else { format!("{check} {subject}") };
        let _ = writeln!(out, "{} {name}\n  measured {measured}\n  wanted   {wanted}\n  why      {why}", verdict.name());
        sysctl.iter().for_each(|(key, value)| writeln!(out, "  sysctl   {key} = {value}").unwrap());
        fix.iter().for_each(|line| writeln!(out, "  fix      {line}").unwrap());
    }
    out
}

/// Compares all findings of a recorded host with those that are kept beside it; returns them.
#[track_caller]
fn compare(name: &str) -> Vec<Finding> {
    let found = checks::all(&host(&record(&format!("{name}.record"))));
    let (is, should) = (dump(&found), record(&format!("{name}.findings")));
    let differs = is.lines().zip(should.lines()).position(|(is, should)| is != should);
    let line = differs.unwrap_or(is.lines().count().min(should.lines().count()));
    let show = |text: &str| text.lines().nth(line).unwrap_or("nothing more").to_owned();
    assert!(is == should, "{name}.findings:{}: is '{}', should be '{}'; all:\n{is}", line + 1, show(&is), show(&should));
    found
}

fn count(found: &[Finding], verdict: Verdict) -> usize {
    found.iter().filter(|finding| finding.verdict == verdict).count()
}

/// The names of the checks that found something to mend.
fn wrong(found: &[Finding]) -> Vec<&str> {
    found.iter().filter(|finding| finding.is_wrong()).map(|finding| finding.check).collect()
}

#[test]
fn a_virtual_machine_as_it_is() {
    let found = compare("virtual-machine");
    assert_eq!(count(&found, Verdict::Fail), 0);
}

#[test]
fn a_well_tuned_receiver_has_nothing_to_mend() {
    let found = compare("tuned");
    assert_eq!(wrong(&found), [""; 0]);
    assert!(script::script("daq1", &found).ends_with("# Nothing to change.\n"));
}

#[test]
fn a_badly_tuned_receiver_fails_where_data_will_be_lost() {
    let found = compare("badly-tuned");
    let fails: Vec<_> = found.iter().filter(|f| f.verdict == Verdict::Fail).map(|f| f.check).collect();
    assert_eq!(fails, ["rmem_max", "memory", "mtu", "pcie", "disk_space"]);
    assert!(wrong(&found).len() > 25, "{:?}", wrong(&found));
}

#[test]
fn a_container_without_rights_skips_what_it_cannot_see() {
    let found = compare("container");
    assert!(count(&found, Verdict::Skip) > 10);
}

#[test]
fn a_folder_in_memory_wants_huge_pages() {
    let text = record("virtual-machine.record");
    let look = |options: &str| {
        let mut host = host(&text.replace("size=24684084k", &format!("size=24684084k{options}")));
        let Some(Ok(disk)) = &mut host.disk else { panic!("no folder") };
        disk.folder = "/dev/shm/run 1".into();
        checks::all(&host).into_iter().find(|finding| finding.check == "memory_pages").unwrap()
    };
    for options in ["", ",huge=advise", ",inode64,huge=never"] {
        let found = look(options);
        assert_eq!(
            (found.verdict, found.fix),
            (Verdict::Warn, vec!["mount -o remount,huge=within_size /dev/shm".into()]),
            "{options}"
        );
        assert!(found.measured.ends_with(": pages of 4 KiB"));
    }
    for options in [",huge=within_size", ",huge=always,inode64"] {
        assert_eq!(look(options).verdict, Verdict::Pass, "{options}");
    }
}

#[test]
fn a_way_that_is_named_needs_its_rights_and_its_card() {
    let found = |name: &str, receive: Receive, address: &str| {
        let mut snapshot = host(&record(name));
        snapshot.demand.receive = vec![receive];
        snapshot.demand.addresses = vec![address.parse().unwrap()];
        let all = checks::all(&snapshot);
        let of = |check: &str| all.iter().find(|finding| finding.check == check).unwrap().clone();
        (of("receive"), of("gro"))
    };
    let ring = Receive::from_name("packet").unwrap();
    let (receive, gro) = found("badly-tuned.record", ring, "10.0.0.1");
    assert!(receive.verdict == Verdict::Fail && receive.measured.contains("packet: lacks CAP_NET_RAW"), "{receive:?}");
    assert!(receive.commands()[0].contains("docs/configuration.md"), "{receive:?}");
    // Rings do not get joined packets.
    assert_eq!((gro.verdict, gro.measured.as_str()), (Verdict::Pass, "off"));
    let (receive, gro) = found("badly-tuned.record", Receive::Auto, "0.0.0.0");
    assert_eq!((receive.verdict, gro.verdict), (Verdict::Pass, Verdict::Warn));
    let (receive, _) = found("virtual-machine.record", ring, "0.0.0.0");
    assert!(receive.verdict == Verdict::Fail && receive.measured.contains("address of one card"), "{receive:?}");
    assert_eq!(found("virtual-machine.record", ring, "10.0.0.1").0.verdict, Verdict::Pass);
}

/// A script has every command of what is wrong, one block for each, and nothing of what is right.
#[test]
fn scripts_mend_what_is_wrong_and_nothing_else() {
    let found = checks::all(&host(&record("badly-tuned.record")));
    let text = script::script("daq2\nrm -rf /", &found);
    assert!(text.starts_with("#!/usr/bin/env bash\n") && text.contains("\nset -euo pipefail\n"), "{text}");
    assert!(text.contains("for daq2 rm -rf /. Read it"), "{text}");
    for finding in &found {
        let of = if finding.subject.is_empty() { String::new() } else { format!(" of {}", finding.subject) };
        let block = format!("# {}{of}: ", finding.check);
        assert_eq!(text.contains(&block), finding.is_wrong(), "{block}");
        assert!(finding.fix.iter().all(|line| text.contains(line.as_str())) && (finding.is_wrong() || finding.fix.is_empty()));
        for (key, value) in &finding.sysctl {
            assert!(text.contains(&format!("\n{key} = {value}\n")), "{key}");
        }
    }
    assert!(text.contains("cat >> /etc/sysctl.d/90-konkordia.conf <<'END'\n") && text.contains("\nEND\nsysctl -p "));
}

#[test]
fn the_documentation_names_every_check() {
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/doctor.md")).unwrap();
    for finding in checks::all(&host(&record("tuned.record"))) {
        assert!(page.contains(&format!("`{}`", finding.check)), "docs/doctor.md says nothing of {}", finding.check);
    }
}

/// Every finding says what is, what should be and why, whatever the host looks like, and fits one line each.
#[test]
fn every_finding_is_whole() {
    let empty = checks::all(&host(""));
    assert_eq!(count(&empty, Verdict::Fail), 0);
    for name in ["virtual-machine", "tuned", "badly-tuned", "container"] {
        let found = checks::all(&host(&record(&format!("{name}.record"))));
        for finding in found.iter().chain(&empty) {
            let texts = [&finding.measured, &finding.wanted, &finding.why];
            assert!(texts.iter().all(|text| !text.is_empty() && !text.contains(char::is_control)), "{name}: {finding:?}");
            assert!(finding.verdict != Verdict::Pass || !finding.measured.contains("not known"), "{name}: {finding:?}");
            assert!(!finding.is_wrong() || !finding.commands().is_empty(), "{name}: nothing mends {finding:?}");
        }
        assert_eq!(to_text(&found).lines().filter(|line| !line.starts_with(' ')).count(), found.len() + 1, "{name}");
    }
}

/// Each text of a record is cut, repeated and replaced by nonsense: nothing panics.
#[test]
fn texts_that_are_no_texts_of_a_kernel_do_not_panic() {
    let whole = record("badly-tuned.record");
    let damage: [fn(&str) -> String; 6] = [
        |text| text[..text.len() / 2].into(),
        |text| text.repeat(2),
        |_| String::new(),
        |_| "-1\n".into(),
        |_| "18446744073709551616 99999999999999999999-0,x: [ ] ::/../.. - - -\n".into(),
        |text| text.replace(|c: char| c.is_ascii_digit(), "9"),
    ];
    for change in damage {
        let sections = whole.split("### ").skip(1).map(|section| {
            let (path, text) = section.split_once('\n').unwrap();
            let text = if path == "probes" { text.to_owned() } else { change(text) };
            format!("### {path}\n{text}")
        });
        let found = checks::all(&host(&sections.collect::<String>()));
        // Damaged flags leave no interface.
        assert!(found.len() > 20 && !script::script("x", &found).is_empty());
    }
}
