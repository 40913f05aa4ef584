//! The layout of recorded machines, each a list of files.

use super::*;
use konkordia_core::affinity::cpus_text;

/// The layout that is read from these files. `10.0.0.1` is the address of eth0.
fn layout(files: &[(&str, &str)], wanted: &str) -> Topology {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let at = root.path().join(path);
        std::fs::create_dir_all(at.parent().unwrap()).unwrap();
        std::fs::write(at, text).unwrap();
    }
    let address = |text: &str| text.parse::<IpAddr>().unwrap();
    read(root.path(), &[("eth0".into(), address("10.0.0.1")), ("lo".into(), address("127.0.0.1"))], &[address(wanted)])
}

const INTERFACES: &[(&str, &str)] = &[("sys/class/net/lo/flags", "0x9\n"), ("sys/class/net/eth0/flags", "0x1003\n")];

const TWO_SOCKETS: &[(&str, &str)] = &[
    ("sys/devices/system/node/node0/cpulist", "0-3,8-11\n"),
    ("sys/devices/system/node/node1/cpulist", "4-7,12-15\n"),
    // A node with memory only.
    ("sys/devices/system/node/node2/cpulist", "\n"),
    ("sys/devices/system/cpu/cpu4/topology/thread_siblings_list", "4,12\n"),
    ("sys/devices/system/cpu/cpu5/topology/thread_siblings_list", "5,13\n"),
    ("proc/self/status", "Name:\tkonkordia\nCpus_allowed_list:\t0-15\n"),
    ("sys/class/net/eth0/device/numa_node", "1\n"),
    ("sys/class/net/eth0/device/msi_irqs/120", ""),
    ("sys/class/net/eth0/device/msi_irqs/121", ""),
    ("sys/class/net/eth0/device/msi_irqs/122", ""),
    ("sys/class/net/eth0/queues/rx-0/rps_cpus", "0\n"),
    ("sys/class/net/eth0/queues/rx-1/rps_cpus", "0\n"),
    ("sys/class/net/eth0/queues/tx-0/xps_cpus", "0\n"),
    (
        "proc/interrupts",
        "      CPU0 CPU1\n 120: 0 0 PCI-MSI 0-edge mlx5_async0@pci\n 121: 5 0 PCI-MSI 1-edge mlx5_comp0@pci\n 122: 0 7 PCI-MSI 2-edge mlx5_comp1@pci\n",
    ),
    ("proc/irq/120/smp_affinity_list", "0-15\n"),
    ("proc/irq/121/smp_affinity_list", "4-7\n"),
    ("proc/irq/121/effective_affinity_list", "4\n"),
    ("proc/irq/122/smp_affinity_list", "5\n"),
    ("proc/irq/122/effective_affinity_list", "\n"),
];

#[test]
fn of_two_sockets_the_card_is_on_one() {
    let files = [INTERFACES, TWO_SOCKETS].concat();
    let found = layout(&files, "10.0.0.1");
    let nodes: Vec<(u32, String)> = found.nodes.iter().map(|(node, cpus)| (*node, cpus_text(cpus))).collect();
    assert_eq!(nodes, [(0, "0-3,8-11".into()), (1, "4-7,12-15".into())]);
    assert_eq!(cpus_text(&found.allowed), "0-15");
    let [card] = &found.cards[..] else { panic!("{:?}", found.cards) };
    assert_eq!((card.interface.as_str(), card.node, card.queues), ("eth0", Some(1), 2));
    // With the other threads of their cores; not the interrupt that is no queue's.
    assert_eq!(cpus_text(&card.interrupts), "4-5,12-13");
    // Any address is that of every card that is up; the loopback is no card.
    assert_eq!(layout(&files, "0.0.0.0"), found);
    assert_eq!(layout(&files, "127.0.0.1").cards, []);
}

#[test]
fn one_node_has_cards_without_a_node() {
    let machine: &[(&str, &str)] = &[
        ("sys/devices/system/node/node0/cpulist", "0-3\n"),
        ("proc/self/status", "Cpus_allowed_list:\t0-3\n"),
        ("sys/class/net/eth0/device/numa_node", "-1\n"),
    ];
    let found = layout(&[INTERFACES, machine].concat(), "10.0.0.1");
    assert_eq!((found.nodes.len(), cpus_text(&found.allowed).as_str()), (1, "0-3"));
    assert_eq!(found.cards, [Card { interface: "eth0".into(), ..Card::default() }]);
}

#[test]
fn a_container_sees_the_nodes_of_its_host_and_may_use_a_part_of_them() {
    let container: &[(&str, &str)] = &[
        ("sys/devices/system/node/node0/cpulist", "0-15\n"),
        ("sys/devices/system/node/node1/cpulist", "16-31\n"),
        ("proc/self/status", "Cpus_allowed_list:\t2-3,18\n"),
        ("sys/class/net/eth0/queues/rx-0/rps_cpus", "0\n"),
    ];
    let found = layout(&[INTERFACES, container].concat(), "10.0.0.1");
    assert_eq!((found.nodes.len(), cpus_text(&found.allowed).as_str()), (2, "2-3,18"));
    // Its interface is one end of a veth, behind which there is no device.
    assert_eq!(found.cards, []);
}

#[test]
fn a_system_without_these_files_has_no_layout() {
    assert_eq!(layout(&[], "10.0.0.1"), Topology::default());
    let rubbish: &[(&str, &str)] = &[
        ("sys/devices/system/node/node0/cpulist", "x\n"),
        ("sys/devices/system/node/nodeX/cpulist", "0\n"),
        ("proc/self/status", "Cpus_allowed_list:\t3-1\n"),
        ("sys/class/net/eth0/device/numa_node", "one\n"),
        ("sys/class/net/eth0/device/msi_irqs/x", ""),
    ];
    let found = layout(&[INTERFACES, rubbish].concat(), "10.0.0.1");
    assert_eq!((found.nodes.len(), found.allowed.len()), (0, 0));
    assert_eq!(found.cards, [Card { interface: "eth0".into(), ..Card::default() }]);
}

/// This machine has processors, whatever else it has.
#[test]
fn this_host_has_processors() {
    let found = of_host(&["127.0.0.1".parse().unwrap()]);
    assert!(!found.allowed.is_empty() && found.cards.is_empty(), "{found:?}");
}
