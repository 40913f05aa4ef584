//! Frames made for tests.

/// What lies around the payload.
#[derive(Clone, Debug)]
pub(crate) struct Layers {
    pub to: [u8; 6],
    /// EtherTypes of the VLAN tags.
    pub tags: Vec<u16>,
    pub ipv6: bool,
    /// Last byte of the address `10.7.0.x` or `fd07::x`.
    pub source: u8,
    pub destination: u8,
    pub source_port: u16,
    pub port: u16,
}

impl Default for Layers {
    fn default() -> Self {
        Self { to: [2, 0, 0, 0, 0, 1], tags: vec![], ipv6: false, source: 2, destination: 1, source_port: 40_000, port: 50_000 }
    }
}

/// The sum of the words with each carry (RFC 1071); a last single byte is a high one.
fn sum(parts: &[&[u8]]) -> u16 {
    let bytes = parts.concat();
    let sum = bytes.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0))).sum::<u32>();
    let sum = (sum & 0xffff) + (sum >> 16);
    ((sum & 0xffff) + (sum >> 16)) as u16
}

/// An Ethernet frame with a UDP datagram, all lengths and checksums right.
pub(crate) fn frame(layers: &Layers, payload: &[u8]) -> Vec<u8> {
    let mut made = layers.to.to_vec();
    made.extend([2, 0, 0, 0, 0, 2]);
    for tag in &layers.tags {
        made.extend(tag.to_be_bytes());
        made.extend([0, 5]);
    }
    let udp_bytes = (8 + payload.len()) as u16;
    let mut udp = [layers.source_port.to_be_bytes(), layers.port.to_be_bytes(), udp_bytes.to_be_bytes(), [0, 0]].concat();
    let (ip, addresses) = if layers.ipv6 {
        let mut addresses = [0; 32];
        for (at, last) in [(0, layers.source), (16, layers.destination)] {
            addresses[at..at + 2].copy_from_slice(&[0xfd, 7]);
            addresses[at + 15] = last;
        }
        let head = [&[0x60, 0, 0, 0][..], &udp_bytes.to_be_bytes(), &[17, 64]].concat();
        made.extend([0x86, 0xdd]);
        ([&head[..], &addresses].concat(), addresses.to_vec())
    } else {
        let addresses = [10, 7, 0, layers.source, 10, 7, 0, layers.destination];
        let total = (20 + udp_bytes).to_be_bytes();
        let mut head = [&[0x45, 0][..], &total, &[0, 1, 0x40, 0, 64, 17, 0, 0], &addresses].concat();
        let check = !sum(&[&head]);
        head[10..12].copy_from_slice(&check.to_be_bytes());
        made.extend([8, 0]);
        (head, addresses.to_vec())
    };
    let check = !sum(&[&addresses, &[0, 17], &udp_bytes.to_be_bytes(), &udp, payload]);
    let check = if check == 0 { 0xffff } else { check };
    udp[6..8].copy_from_slice(&check.to_be_bytes());
    made.extend(ip);
    made.extend(udp);
    made.extend(payload);
    made
}
