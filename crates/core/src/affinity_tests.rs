use super::*;

#[test]
fn lists_of_processors_are_read_and_written_as_the_kernel_does() {
    for text in ["0-3,8", "5", "", "0-1,3,62-65"] {
        assert_eq!(cpus(text).map(|found| cpus_text(&found)).as_deref(), Some(text));
    }
    assert_eq!(cpus("2,0-1\n"), Some(Cpus::from([0, 1, 2])));
    for wrong in ["a", "3-1", "0-99999999999", "1-", "-1", "0-70000", "1 2"] {
        assert_eq!(cpus(wrong), None, "{wrong}");
    }
}

fn list(text: &str) -> Cpus {
    cpus(text).expect("a list")
}

/// A machine with these nodes; all processors are allowed.
fn machine(nodes: &[&str], cards: &[(Option<u32>, &str)]) -> Topology {
    let nodes: BTreeMap<u32, Cpus> = (0..).zip(nodes.iter().map(|text| list(text))).collect();
    let card = |(n, (node, interrupts)): (usize, &(Option<u32>, &str))| Card {
        interface: format!("eth{n}"),
        node: *node,
        interrupts: list(interrupts),
        queues: 4,
    };
    let allowed = nodes.values().flatten().copied().collect();
    Topology { nodes, allowed, cards: cards.iter().enumerate().map(card).collect() }
}

/// What is chosen, in one line: receivers / workers / node: why.
fn chosen(machine: &Topology, streams: usize, workers: Option<usize>) -> String {
    let Choice { receivers, workers, node, why } = choose(machine, streams, workers);
    let text = |cpus: Option<Cpus>| cpus.map_or("any".into(), |cpus| cpus_text(&cpus));
    format!("{} / {} / {}: {why}", text(receivers), text(workers), node.map_or("-".into(), |node| node.to_string()))
}

#[test]
fn threads_and_memory_come_near_the_card_and_away_from_its_interrupts() {
    let two = ["0-7", "8-15"];
    let cases = [
        (machine(&two, &[(Some(1), "8-9")]), 2, None, "10-15 / 10-15 / 1: node 1 of eth0, without 8-9 for its interrupts"),
        (machine(&two, &[(Some(1), "8-9")]), 2, Some(4), "10-15 / 10-15 / 1: node 1 of eth0, without 8-9 for its interrupts"),
        // More threads than are left: interrupts and threads share the node.
        (machine(&two, &[(Some(1), "8-9")]), 2, Some(5), "8-15 / 8-15 / 1: node 1 of eth0"),
        (machine(&two, &[(Some(1), "8-9")]), 2, Some(7), "8-15 / any / 1: node 1 of eth0 has 8 processor(s) for 9 threads"),
        (machine(&two, &[(Some(1), "8-9")]), 9, None, "any / any / -: node 1 of eth0 has 8 processor(s) for 10 threads"),
        // Interrupts everywhere, on more than half, on the other node.
        (machine(&two, &[(Some(0), "0-7")]), 1, None, "0-7 / 0-7 / 0: node 0 of eth0"),
        (machine(&two, &[(Some(0), "0-4")]), 1, None, "0-7 / 0-7 / 0: node 0 of eth0"),
        (machine(&two, &[(Some(0), "12")]), 1, None, "0-7 / 0-7 / 0: node 0 of eth0"),
        (
            machine(&two, &[(Some(1), "8"), (Some(1), "9")]),
            1,
            None,
            "10-15 / 10-15 / 1: node 1 of eth0, eth1, without 8-9 for its interrupts",
        ),
    ];
    for (machine, streams, workers, expected) in cases {
        assert_eq!(chosen(&machine, streams, workers), expected);
    }
}

#[test]
fn nothing_is_bound_where_nothing_is_known_or_nothing_is_won() {
    let cases = [
        (Topology::default(), "packets come through no network card whose place is known"),
        (machine(&["0-7"], &[]), "packets come through no network card whose place is known"),
        (machine(&[], &[(None, "")]), "the kernel does not say which processors may be used"),
        (machine(&["0-1"], &[(None, "0-1")]), "one node, 2 processor(s), none to spare for interrupts"),
        (machine(&["0-1"], &[(Some(0), "0")]), "one node, 2 processor(s), none to spare for interrupts"),
        (machine(&["0-7"], &[(Some(0), "")]), "one node, 8 processor(s), no known interrupts"),
        (machine(&["0-3", "4-7"], &[(None, "")]), "eth0: not all on one known node; [source] address of one card decides"),
        (
            machine(&["0-3", "4-7"], &[(Some(0), ""), (Some(1), "")]),
            "eth0, eth1: not all on one known node; [source] address of one card decides",
        ),
    ];
    for (machine, expected) in cases {
        assert_eq!(chosen(&machine, 1, None), format!("any / any / -: {expected}"));
    }
    // On one node the interrupts can be left alone where there are enough processors.
    let one = machine(&["0-7"], &[(Some(0), "0-1")]);
    assert_eq!(chosen(&one, 1, None), "2-7 / 2-7 / -: the processors for eth0, without 0-1 for its interrupts");
}

#[test]
fn a_process_gets_no_processor_that_it_may_not_use() {
    let mut machine = machine(&["0-7", "8-15"], &[(Some(1), "8")]);
    machine.allowed = list("6-11");
    assert_eq!(chosen(&machine, 1, None), "9-11 / 9-11 / 1: node 1 of eth0, without 8 for its interrupts");
    machine.allowed = list("0-3");
    let why = "eth0 is on node 1, of which this process may use no processor, only 0-3";
    assert_eq!(chosen(&machine, 1, None), format!("any / any / -: {why}"));
}

#[test]
fn memory_goes_with_processors_of_one_node() {
    let machine = machine(&["0-3", "4-7"], &[]);
    assert_eq!((machine.node_of(&list("5,7")), machine.node_of(&list("0"))), (Some(1), Some(0)));
    assert_eq!((machine.node_of(&list("3-4")), machine.node_of(&list("")), machine.node_of(&list("9"))), (None, None, None));
    let one = Topology { nodes: BTreeMap::from([(0, list("0-3"))]), ..Topology::default() };
    assert_eq!(one.node_of(&list("0")), None);
}

#[test]
fn people_read_which_threads_run_where_and_why() {
    assert_eq!(Affinity::default().to_text(), None);
    let lists = Affinity { receivers: Affinity::one_each(&[4, 5]), workers: vec![list("6-7")], ..Affinity::default() };
    assert_eq!(lists.to_text().as_deref(), Some("rx on 4, 5 in turn; work on 6-7"));
    assert_eq!(Affinity::nth(&lists.receivers, 3), Some(&list("5")));
    assert_eq!((Affinity::nth(&lists.workers, 3), Affinity::nth(&[], 3)), (Some(&list("6-7")), None));
    let all = Affinity {
        receivers: vec![list("4-7")],
        memory_node: Some(1),
        priority: Priority::Nice(-10),
        reserved_pages: true,
        why: "node 1 of eth0".into(),
        ..Affinity::default()
    };
    let text =
        "rx on 4-7; work where the scheduler puts them; memory of node 1; nice -10; ring in reserved huge pages (node 1 of eth0)";
    assert_eq!(all.to_text().as_deref(), Some(text));
}
