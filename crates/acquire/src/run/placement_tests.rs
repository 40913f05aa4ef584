use super::*;
use konkordia_config::plan;
use konkordia_core::affinity::{Card, cpus, cpus_text};
use std::fs::{create_dir_all, write};

/// A JUNGFRAU of two modules at 10.0.0.1 with these keys of `[run]`.
fn config(run: &str) -> Config {
    let text = format!(
        "[detector]\ntype = \"jungfrau\"\nmodules = 2\n[source]\naddress = \"10.0.0.1\"\n[processing]\ndtype = \"raw\"\n[output]\ndirectory = \".\"\nprefix = \"a\"\n[run]\n{run}\n"
    );
    konkordia_config::parse(&text, Path::new("run.toml")).unwrap_or_else(|why| panic!("{why}"))
}

/// Two nodes of 8 processors; eth0 is on node 1, and processor 8 serves its interrupts.
fn machine() -> Topology {
    let list = |text: &str| cpus(text).unwrap();
    let card = Card { interface: "eth0".into(), node: Some(1), interrupts: list("8"), queues: 1 };
    Topology { nodes: [(0, list("0-7")), (1, list("8-15"))].into(), allowed: list("0-15"), cards: vec![card] }
}

fn placed_by(config: &Config) -> Plan {
    let mut plan = plan::plan(config);
    choose_for(&machine(), config, &mut plan);
    plan
}

fn placed(run: &str) -> Plan {
    placed_by(&config(run))
}

#[test]
fn auto_means_the_node_of_the_card_and_as_many_workers_as_it_has_room_for() {
    let plan = placed("pin_streams = \"auto\"\npin_workers = \"auto\"");
    assert_eq!(plan.workers, 5, "7 processors are left beside the interrupts, two of them for the streams");
    let lists = [&plan.affinity.receivers, &plan.affinity.workers];
    assert!(lists.iter().all(|list| list.iter().map(cpus_text).eq(["9-15"])), "{lists:?}");
    assert_eq!(plan.affinity.memory_node, Some(1));
    let described = konkordia_config::plan::describe(&config(""), &plan);
    let row = "rx on 9-15; work on 9-15; memory of node 1 (node 1 of eth0, without 8 for its interrupts)";
    assert!(described.contains(row), "{described}");
    let json = konkordia_config::plan::to_json(&config(""), &plan);
    assert_eq!(json["placement"]["threads"]["rx-1"], "9-15");
    assert_eq!(json["placement"]["memory_node"], 1);
}

#[test]
fn only_what_is_auto_is_chosen() {
    let plain = placed("");
    assert_eq!(plain.affinity, Affinity::default());
    let streams = placed("pin_streams = \"auto\"");
    assert_eq!((streams.workers, streams.affinity.workers.len()), (plain.workers, 0));
    assert_eq!((streams.affinity.receivers.len(), streams.affinity.memory_node), (1, Some(1)));
    // Lists stay as they are; memory goes with the streams.
    for pin_workers in [Pins::Auto, Pins::default()] {
        let config = Config { pin_streams: Pins::These(vec![0]), pin_workers, ..config("") };
        let affinity = placed_by(&config).affinity;
        assert_eq!((affinity.receivers, affinity.memory_node), (Affinity::one_each(&[0]), Some(0)));
        assert_eq!(affinity.workers.len(), usize::from(config.pin_workers == Pins::Auto));
    }
    // A number of workers that is given is kept, and bound if the node has room for it.
    for (workers, is_bound) in [(5, true), (6, true), (7, false)] {
        let plan = placed_by(&Config { workers: Some(workers), ..config("pin_workers = \"auto\"") });
        assert_eq!((plan.workers, !plan.affinity.workers.is_empty()), (workers, is_bound));
    }
}

#[test]
fn queues_pages_and_priority_are_noted_with_the_command_that_helps() {
    let machine = machine();
    assert_eq!(queues_note(&machine, 1), None);
    let note = queues_note(&machine, 2).unwrap();
    assert!(note.contains("eth0 has 1 receive queue(s) for 2 streams") && note.contains("ethtool -L eth0 combined 2"), "{note}");
    assert_eq!(queues_note(&Topology::default(), 9), None);

    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("sys/kernel/mm/hugepages/hugepages-2048kB");
    create_dir_all(&folder).unwrap();
    let have = |free: u64, all: u64| {
        write(folder.join("free_hugepages"), format!("{free}\n")).unwrap();
        write(folder.join("nr_hugepages"), format!("{all}\n")).unwrap();
    };
    have(3, 10);
    let plan = placed("huge_pages = \"reserved\"");
    let needed = pages_needed(&plan);
    let raw = plan.memory()[0].bytes;
    assert!(needed * (2 << 20) >= raw && (needed - 1) * (2 << 20) < raw, "{needed} pages for {raw} bytes");
    let note = pages_note(root.path(), &plan).unwrap();
    assert!(note.contains(&format!("needs {needed} reserved")) && note.contains("3 are free"), "{note}");
    assert!(note.ends_with(&format!("vm.nr_hugepages={}", 10 + needed - 3)), "{note}");
    assert_eq!(reserved_bytes(root.path(), &plan), 0);
    have(needed, needed);
    assert_eq!((pages_note(root.path(), &plan), reserved_bytes(root.path(), &plan)), (None, needed * (2 << 20)));
    // A machine without such pages has none; a plan that wants none misses none.
    assert!(pages_note(Path::new("/nowhere"), &plan).unwrap().contains("0 are free"));
    assert_eq!(pages_note(Path::new("/nowhere"), &placed("")), None);

    let mut affinity = Affinity { priority: Priority::Nice(19), ..Affinity::default() };
    assert_eq!((priority_note(&mut affinity), affinity.priority), (None, Priority::Nice(19)));
    // No kernel has it.
    affinity.priority = Priority::RealTime(100);
    let note = priority_note(&mut affinity).unwrap();
    assert!(note.contains("refuses real-time priority 100") && note.contains("setcap cap_sys_nice+ep"), "{note}");
    assert!(note.contains("LimitRTPRIO=100") && affinity.priority == Priority::Normal, "{note}");
}
