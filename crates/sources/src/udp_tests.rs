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
