//! What can be seen without a card: the bytes of a rule, and what is said where no card is.

use super::*;

fn spec(to: &str) -> FrameQueueSpec {
    let to = to.parse().unwrap();
    FrameQueueSpec { device: "mlx5_9".into(), port: 1, mac: [2, 3, 4, 5, 6, 7], to, frame_bytes_max: 9100, slots: 1000 }
}

/// The bytes that the library reads.
fn bytes_of<Ip: Copy>(rule: &RuleOf<Ip>) -> Vec<u8> {
    // SAFETY: the rule was made from zeros, so every byte of it is initialised.
    let bytes = unsafe { std::slice::from_raw_parts(std::ptr::from_ref(rule).cast::<u8>(), size_of::<RuleOf<Ip>>()) };
    bytes.to_vec()
}

/// `ibv_create_flow` walks from part to part by their sizes, and finds our fields at the places of its headers.
fn parts(rule: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let size = usize::from(u16::from_ne_bytes([rule[8], rule[9]]));
    assert_eq!((size, rule[12], rule[13]), (rule.len(), 3, 1), "bytes, parts, port");
    let (mut at, mut parts) = (size_of::<ibv_flow_attr>(), Vec::new());
    while at < size {
        let kind = u32::from_ne_bytes(rule[at..at + 4].try_into().unwrap());
        let bytes = usize::from(u16::from_ne_bytes([rule[at + 4], rule[at + 5]]));
        parts.push((kind, rule[at..at + bytes].to_vec()));
        at += bytes;
    }
    assert_eq!(at, size);
    parts
}

#[test]
fn a_rule_names_mac_address_and_port_in_the_order_of_the_wire() {
    let AnyRule::V4(rule) = rule_of(&spec("10.1.2.3:50010")) else { panic!("an address of IPv4") };
    let found = parts(&bytes_of(&rule));
    assert_eq!(found.iter().map(|(kind, _)| *kind).collect::<Vec<_>>(), [0x20, 0x30, 0x41]);
    let (ethernet, ip, udp) = (&found[0].1, &found[1].1, &found[2].1);
    assert_eq!((&ethernet[6..12], &ethernet[22..28]), (&[2, 3, 4, 5, 6, 7][..], &[0xFF; 6][..]));
    assert_eq!(
        ethernet[12..22].iter().chain(&ethernet[28..38]).filter(|byte| **byte != 0).count(),
        0,
        "nothing else of Ethernet"
    );
    assert_eq!(
        (&ip[12..16], &ip[20..24], &ip[8..12], &ip[16..20]),
        (&[10, 1, 2, 3][..], &[0xFF; 4][..], &[0; 4][..], &[0; 4][..])
    );
    assert_eq!((&udp[6..10], &udp[10..14]), (&[0xC3, 0x5A, 0, 0][..], &[0xFF, 0xFF, 0, 0][..]));

    let AnyRule::V6(rule) = rule_of(&spec("[fd00::7]:50010")) else { panic!("an address of IPv6") };
    let found = parts(&bytes_of(&rule));
    assert_eq!(found[1].0, 0x31);
    let ip = &found[1].1;
    let address: std::net::Ipv6Addr = "fd00::7".parse().unwrap();
    assert_eq!((&ip[24..40], &ip[64..80]), (&address.octets()[..], &[0xFF; 16][..]));
}

#[test]
fn a_host_without_such_a_device_says_so() {
    let why = FrameQueue::open(&spec("10.1.2.3:50010")).err().unwrap();
    assert!(why.contains("no RDMA device") || why.contains("libibverbs"), "{why}");
}
