use super::*;

fn pair(buffer: usize) -> (UdpReceiver, UdpSender) {
    let receiver = UdpReceiver::bind("127.0.0.1:0".parse().unwrap(), buffer).unwrap();
    let sender = UdpSender::connect(receiver.local_addr().unwrap()).unwrap();
    (receiver, sender)
}

fn drain(receiver: &mut UdpReceiver) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    while receiver.receive(Duration::from_millis(200), &mut |d, _| all.push(d.to_vec())).unwrap() > 0 {}
    all
}

#[test]
fn datagrams_of_every_length_arrive_whole_and_in_order() {
    let (mut receiver, mut sender) = pair(4 << 20);
    let sent: Vec<Vec<u8>> = [0, 1, 47, 48, 1400, 8240, 65507, 0, 8240].iter().map(|n| vec![*n as u8; *n]).collect();
    sent.iter().for_each(|d| sender.send(d).unwrap());
    assert_eq!(drain(&mut receiver), sent);
    assert_eq!(receiver.dropped(), 0);
}

#[test]
fn segments_are_joined_and_split_without_a_trace() {
    let (mut receiver, mut sender) = pair(4 << 20);
    for (segment, count) in [(8240, 40), (4144, 33), (100, 200)] {
        let buffer: Vec<u8> = (0..count).flat_map(|i| vec![i as u8; segment]).collect();
        let cut = &buffer[..buffer.len() - segment / 2];
        sender.send_segments(cut, segment).unwrap();
        let expected: Vec<&[u8]> = cut.chunks(segment).collect();
        assert_eq!(drain(&mut receiver), expected, "{segment} x {count}");
    }
}

/// Places of a tile, which puts datagrams together again. The next packets are expected behind the newest one.
struct Tile {
    places: Vec<u8>,
    next: u16,
    /// What came, and how many of them were in places.
    datagrams: Vec<Vec<u8>>,
    in_places: usize,
}

impl Tile {
    const HEAD_BYTES: usize = 48;
    const PAYLOAD_BYTES: usize = 8192;
    const PACKETS: u16 = 24;
}

impl TilePlaces for Tile {
    fn lend(&mut self, _: u64, _: std::ops::Range<u16>) -> Option<&mut [u8]> {
        unreachable!("a socket knows no frames")
    }

    fn lend_next(&mut self) -> Option<NextPlaces<'_>> {
        let packets = self.next..Self::PACKETS;
        let places = &mut self.places[usize::from(self.next) * Self::PAYLOAD_BYTES..];
        places.fill(0xEE);
        Some(NextPlaces { packets, head_bytes: Self::HEAD_BYTES, payload_bytes: Self::PAYLOAD_BYTES, places })
    }

    fn filled(&mut self, packet: u16, head: &[u8], payload_bytes: usize, _: Sender) {
        let payload = &self.places[usize::from(packet) * Self::PAYLOAD_BYTES..][..payload_bytes];
        self.datagrams.push([head, payload].concat());
        self.next = (packet + 1) % Self::PACKETS;
        self.in_places += 1;
    }

    fn take(&mut self, datagram: &[u8], _: Sender) {
        self.datagrams.push(datagram.to_vec());
    }
}

fn drain_into_places(receiver: &mut UdpReceiver) -> Tile {
    let places = vec![0; usize::from(Tile::PACKETS) * Tile::PAYLOAD_BYTES];
    let mut tile = Tile { places, next: 0, datagrams: Vec::new(), in_places: 0 };
    loop {
        let before = tile.datagrams.len();
        let count = receiver.receive_into(Duration::from_millis(200), &mut tile).unwrap();
        assert_eq!(tile.datagrams.len() - before, count);
        if count == 0 {
            return tile;
        }
    }
}

#[test]
fn payloads_in_places_and_their_heads_are_the_datagrams_that_were_sent() {
    let (mut receiver, mut sender) = pair(8 << 20);
    let mut numbers = numbers_without_pattern(7);
    for round in 0..60 {
        let mut sent: Vec<Vec<u8>> = Vec::new();
        let mut datagram = |bytes: usize| (0..bytes).map(|_| numbers() as u8).collect::<Vec<u8>>();
        // Joined datagrams of the right size and of others, the last one cut; and single ones of every length.
        for (segment, count) in [(8240, 40), (8240, 3 + round % 9), (4144, 17), (8240, 24), (100, 70), (9000, 5), (8240, 13)] {
            let whole = datagram(segment * count);
            let cut = &whole[..whole.len() - [0, 1, segment / 2, segment - 47, segment - 1][round % 5]];
            sender.send_segments(cut, segment).unwrap();
            sent.extend(cut.chunks(segment).map(<[u8]>::to_vec));
            for bytes in [0, 1, 47, 48, 49, 8239, 8240, 8240, 8241, 65_507] {
                if (round + bytes) % 3 > 0 {
                    sent.push(datagram(bytes));
                    sender.send(&sent[sent.len() - 1]).unwrap();
                }
            }
        }
        let tile = drain_into_places(&mut receiver);
        assert_eq!(tile.datagrams.len(), sent.len(), "round {round}");
        let differs = tile.datagrams.iter().zip(&sent).position(|(got, sent)| got != sent);
        assert_eq!(differs, None, "round {round}");
    }
}

#[test]
fn joined_datagrams_of_a_detector_all_come_in_their_places() {
    let (mut receiver, mut sender) = pair(8 << 20);
    for frame in 0..50u8 {
        sender.send_segments(&vec![frame; 8240 * usize::from(Tile::PACKETS)], 8240).unwrap();
        let tile = drain_into_places(&mut receiver);
        assert_eq!(tile.datagrams, vec![vec![frame; 8240]; usize::from(Tile::PACKETS)]);
        // It must first be learned how many are joined.
        assert!(frame == 0 || tile.in_places == tile.datagrams.len(), "frame {frame}: {}", tile.in_places);
    }
}

/// Numbers without a pattern.
fn numbers_without_pattern(mut state: u64) -> impl FnMut() -> u64 {
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    }
}

#[test]
fn what_the_kernel_drops_is_counted_exactly() {
    let (mut receiver, mut sender) = pair(64 << 10);
    let sent = 500;
    for _ in 0..sent {
        sender.send(&[7; 8240]).unwrap();
    }
    let got = drain(&mut receiver).len() as u64;
    assert!(got < sent, "the buffer was meant to overflow");
    assert_eq!(receiver.dropped(), sent - got);
}

#[test]
fn every_datagram_comes_with_the_address_and_port_of_its_sender() {
    for ip in ["127.0.0.1", "[::1]"] {
        let mut receiver = UdpReceiver::bind(format!("{ip}:0").parse().unwrap(), 4 << 20).unwrap();
        let to = receiver.local_addr().unwrap();
        let senders: Vec<UdpSocket> = (0..3).map(|_| UdpSocket::bind(format!("{ip}:0")).unwrap()).collect();
        for n in 0..12u8 {
            senders[usize::from(n) % 3].send_to(&vec![n; usize::from(n) * 100], to).unwrap();
        }
        let mut got = Vec::new();
        while receiver.receive(Duration::from_millis(200), &mut |d, from| got.push((d.len(), from))).unwrap() > 0 {}
        let from = |n: usize| Sender::from(senders[n % 3].local_addr().unwrap());
        assert_eq!(got, (0..12).map(|n| (n * 100, from(n))).collect::<Vec<_>>());
    }
}

/// Stray traffic that never pauses for long must not hide that the socket is empty in between: the deadlines rely on
/// it.
#[test]
fn an_empty_socket_is_reported_although_the_next_datagram_comes_soon() {
    let (mut receiver, mut sender) = pair(4 << 20);
    let (mut got, mut empty) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..100 {
                sender.send(&[1; 100]).unwrap();
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        while got < 100 {
            match receiver.receive(Duration::from_secs(5), &mut |_, _| ()).unwrap() {
                0 => empty += 1,
                n => got += n,
            }
        }
    });
    assert!(empty > 10, "the socket was empty about 100 times, but that was said only {empty} times");
}

#[test]
fn a_port_in_use_is_an_error() {
    let (receiver, _) = pair(64 << 10);
    let error = UdpReceiver::bind(receiver.local_addr().unwrap(), 1 << 16).err().unwrap();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
}

/// The kernel counts a joined buffer as one drop. So with GRO its counter shows that packets were dropped and roughly
/// how many; the bitmaps show exactly which.
#[test]
fn a_dropped_joined_buffer_counts_once() {
    let (mut receiver, mut sender) = pair(256 << 10);
    sender.send_segments(&vec![7; 8240 * 700], 8240).unwrap();
    let lost = 700 - drain(&mut receiver).len() as u64;
    assert!(lost > 0, "the buffer was meant to overflow");
    let counted = receiver.dropped();
    assert!(counted >= lost.div_ceil(7) && counted <= lost, "{counted} drops for {lost} datagrams");
}
