//! One suite for every kind of link. A kind that is not on this machine counts as skipped.

use konkordia_links::kind::{Kind, Listener};
use konkordia_links::{Arrival, Link, LinkError, MESSAGE_BYTES_MAX, RemoteAddress, libfabric, tcp, verbs};
use std::time::{Duration, Instant};

#[path = "../../../tests/skip.rs"]
mod skip;

/// For what has to come; the machine may be busy.
const WAIT: Duration = Duration::from_secs(60);

/// What opens a pair of links, or `None` with a skipped test.
type Pair = Option<(Box<dyn Link>, Box<dyn Link>)>;

fn over_tcp() -> Pair {
    let listener = tcp::Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let far = tcp::connect(listener.local_addr().unwrap(), WAIT).unwrap();
    Some((Box::new(listener.accept(WAIT).unwrap().unwrap()), Box::new(far)))
}

fn over(kind: Kind, address: &str) -> Pair {
    let mut listener = Listener::bind(kind.clone(), address.parse().unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    // Both sides introduce themselves at the same time.
    let far = std::thread::spawn(move || kind.connect(address, WAIT).unwrap());
    let near = listener.accept(WAIT).unwrap().unwrap();
    Some((near, far.join().unwrap()))
}

fn over_shared_memory() -> Pair {
    over(Kind::Shm, "127.0.0.1:0")
}

#[track_caller]
fn over_libfabric(provider: &'static str) -> Pair {
    let offers = match libfabric::offers() {
        Ok(offers) => offers,
        Err(absent) => {
            skip::skipped(&absent.to_string());
            return None;
        }
    };
    if !offers.iter().any(|offer| offer.provider.split(';').next() == Some(provider)) {
        skip::skipped(&format!("libfabric has no provider {provider} here"));
        return None;
    }
    over(Kind::Libfabric { provider: provider.into() }, "127.0.0.1:0")
}

/// Runs `far` in a thread of its own beside `near`, because links may make progress only while both look.
fn both<T: Send, U: Send>(
    pair: (Box<dyn Link>, Box<dyn Link>),
    near: impl FnOnce(Box<dyn Link>) -> T + Send,
    far: impl FnOnce(Box<dyn Link>) -> U + Send,
) -> (T, U) {
    std::thread::scope(|scope| {
        let other = scope.spawn(move || far(pair.1));
        let mine = near(pair.0);
        (mine, other.join().unwrap())
    })
}

fn next(link: &mut dyn Link) -> Arrival {
    link.poll(WAIT).unwrap().expect("it comes in time")
}

/// The key of a region, as users tell it: in a message.
fn tell(link: &mut dyn Link, key: u64) {
    link.send(&key.to_le_bytes()).unwrap();
}

fn told(link: &mut dyn Link) -> u64 {
    let Arrival::Message(key) = next(link) else { panic!("no message") };
    u64::from_le_bytes(key.try_into().unwrap())
}

/// Bytes that differ from write to write and from place to place.
fn content(n: u32, length: usize) -> Vec<u8> {
    (0..length as u32).map(|i| (i.wrapping_mul(31).wrapping_add(n.wrapping_mul(2_654_435_761)) >> 5) as u8).collect()
}

fn bytes_are_there_before_their_event(pair: Pair) {
    let Some(pair) = pair else { return };
    const REGION: usize = 5 << 20;
    both(
        pair,
        |mut near| {
            let region = near.register(REGION).unwrap();
            tell(&mut *near, region.key);
            assert_eq!(next(&mut *near), Arrival::Event(u32::MAX));
            let mut memory = vec![0; REGION];
            near.read(region, 0, &mut memory).unwrap();
            assert_eq!(memory[..6], [9, 9, 9, 9, 9, 0]);
            assert!(memory[1 << 20..4 << 20] == content(1, 3 << 20));
            assert!(memory[4 << 20..].iter().all(|byte| *byte == 0));
            assert_eq!(next(&mut *near), Arrival::Event(0));
            assert_eq!(next(&mut *near), Arrival::Message(b"done".to_vec()));
            assert_eq!(near.poll(Duration::ZERO).unwrap(), None);
            near.send(b"seen").unwrap();
            assert!(matches!(near.poll(WAIT), Err(LinkError::Closed { .. })));
        },
        |mut far| {
            let key = told(&mut *far);
            let at = |offset_bytes| RemoteAddress { key, offset_bytes };
            far.write(&content(1, 3 << 20), at(1 << 20), None).unwrap();
            far.write(&[9; 5], at(0), Some(u32::MAX)).unwrap();
            far.write(&[], at(REGION as u64), Some(0)).unwrap();
            far.send(b"done").unwrap();
            assert_eq!(next(&mut *far), Arrival::Message(b"seen".to_vec()));
        },
    );
}

/// Writes of every size with and without events, and messages between them: all in order, each byte right.
fn everything_keeps_its_order(pair: Pair) {
    let Some(pair) = pair else { return };
    const WRITES: u32 = 3000;
    const SLOTS: u32 = 16;
    const SLOT: usize = 700_000;
    let length = |n: u32| [1, 63, 64, 65, 4095, 4096, 4097, 8192, 16_400, 70_000, 600_000][n as usize % 11];
    both(
        pair,
        |mut near| {
            let region = near.register(SLOTS as usize * SLOT).unwrap();
            tell(&mut *near, region.key);
            let mut bytes = vec![0; SLOT];
            for n in (0..WRITES).filter(|n| n % 3 != 0) {
                assert_eq!(next(&mut *near), Arrival::Event(n), "event {n}");
                // The write without an event, before this one, is there too.
                for n in [n - 1, n] {
                    let at = (n % SLOTS) as usize * SLOT;
                    near.read(region, at, &mut bytes[..length(n)]).unwrap();
                    assert!(bytes[..length(n)] == content(n, length(n)), "write {n}");
                }
                if n % 7 == 0 {
                    assert_eq!(next(&mut *near), Arrival::Message(n.to_le_bytes().to_vec()), "message {n}");
                }
                // Only now may the place be written again.
                if n % 6 == 5 {
                    near.send(&n.to_le_bytes()).unwrap();
                }
            }
        },
        |mut far| {
            let key = told(&mut *far);
            for n in 0..WRITES {
                let to = RemoteAddress { key, offset_bytes: u64::from(n % SLOTS) * SLOT as u64 };
                far.write(&content(n, length(n)), to, (n % 3 != 0).then_some(n)).unwrap();
                if n % 7 == 0 && n % 3 != 0 {
                    far.send(&n.to_le_bytes()).unwrap();
                }
                if n % 6 == 5 {
                    assert_eq!(next(&mut *far), Arrival::Message(n.to_le_bytes().to_vec()));
                }
            }
        },
    );
}

/// Both sides write and send at once.
fn both_sides_write_at_once(pair: Pair) {
    let Some(pair) = pair else { return };
    const WRITES: u32 = 500;
    let side = |mut link: Box<dyn Link>| {
        let region = link.register(WRITES as usize * 100).unwrap();
        tell(&mut *link, region.key);
        let key = told(&mut *link);
        for n in 0..WRITES {
            let to = RemoteAddress { key, offset_bytes: u64::from(n) * 100 };
            link.write(&content(n, 100), to, Some(n)).unwrap();
        }
        link.send(&content(0, MESSAGE_BYTES_MAX)).unwrap();
        let mut memory = vec![0; 100];
        for n in 0..WRITES {
            assert_eq!(next(&mut *link), Arrival::Event(n));
            link.read(region, n as usize * 100, &mut memory).unwrap();
            assert_eq!(memory, content(n, 100));
        }
        assert!(next(&mut *link) == Arrival::Message(content(0, MESSAGE_BYTES_MAX)));
    };
    both(pair, side, side);
}

/// What names a wrong place is refused, here or there, and nothing is written.
fn bad_places_are_refused(open: impl Fn() -> Pair) {
    const REGION: usize = 10_000;
    let bad: [(u64, u64, usize); 6] =
        [(2, 0, 4), (0, 9_997, 4), (0, 10_001, 0), (0, u64::MAX, 4), (0, u64::MAX - 3, 4), (0, 0, 10_001)];
    for (change, offset_bytes, length) in bad {
        let Some(pair) = open() else { return };
        let (there, here) = both(
            pair,
            |mut near| {
                let region = near.register(REGION).unwrap();
                tell(&mut *near, region.key);
                let there = near.poll(WAIT);
                let mut memory = vec![0; REGION];
                near.read(region, 0, &mut memory).unwrap();
                assert!(memory.iter().all(|byte| *byte == 0));
                assert!(near.read(region, REGION - 1, &mut [0; 2]).is_err());
                there
            },
            |mut far| {
                let key = told(&mut *far) ^ change;
                far.write(&vec![1; length], RemoteAddress { key, offset_bytes }, Some(3))
            },
        );
        match here {
            Ok(()) => assert!(matches!(there, Err(LinkError::Broken { .. })), "{there:?}"),
            Err(refused) => {
                assert!(matches!(refused, LinkError::Refused { .. }), "{refused}");
                // The other side closed the link without having written.
                assert!(matches!(there, Err(LinkError::Closed { .. })), "{there:?}");
            }
        }
    }
}

fn a_refused_write_leaves_the_link_as_it_was(pair: Pair) {
    let Some(pair) = pair else { return };
    both(
        pair,
        |mut near| {
            assert_eq!(next(&mut *near), Arrival::Message(b"still there".to_vec()));
            assert_eq!(near.poll(Duration::from_millis(20)).unwrap(), None);
            near.send(b"seen").unwrap();
        },
        |mut far| {
            let error = far.send(&vec![0; MESSAGE_BYTES_MAX + 1]).unwrap_err();
            assert!(matches!(error, LinkError::Refused { .. }), "{error}");
            far.send(b"still there").unwrap();
            assert_eq!(next(&mut *far), Arrival::Message(b"seen".to_vec()));
        },
    );
}

/// What was written and sent before a side ends is all there.
fn an_end_comes_behind_everything(pair: Pair) {
    let Some(pair) = pair else { return };
    both(
        pair,
        |mut near| {
            let region = near.register(100_000).unwrap();
            tell(&mut *near, region.key);
            for n in 0..20 {
                assert_eq!(next(&mut *near), Arrival::Event(n));
            }
            assert_eq!(next(&mut *near), Arrival::Message(b"the end".to_vec()));
            assert!(matches!(near.poll(WAIT), Err(LinkError::Closed { .. })));
            // And again.
            assert!(matches!(near.poll(WAIT), Err(LinkError::Closed { .. })));
            let mut memory = vec![0; 100_000];
            near.read(region, 0, &mut memory).unwrap();
            assert!(memory == content(19, 100_000));
        },
        |mut far| {
            let key = told(&mut *far);
            for n in 0..20 {
                far.write(&content(n, 100_000), RemoteAddress { key, offset_bytes: 0 }, Some(n)).unwrap();
            }
            far.send(b"the end").unwrap();
        },
    );
}

/// The side that has gone is reported to who writes, and to who waits; nobody waits for ever.
fn a_side_that_is_gone_is_reported(pair: Pair) {
    let Some(pair) = pair else { return };
    both(
        pair,
        |mut near| {
            let region = near.register(1 << 20).unwrap();
            tell(&mut *near, region.key);
            assert_eq!(next(&mut *near), Arrival::Event(1));
        },
        |mut far| {
            let key = told(&mut *far);
            let to = RemoteAddress { key, offset_bytes: 0 };
            far.write(&[1; 1000], to, Some(1)).unwrap();
            let end = Instant::now() + WAIT;
            let error = loop {
                assert!(Instant::now() < end, "nothing was reported");
                if let Err(error) = far.write(&[1; 100_000], to, Some(2)) {
                    break error;
                }
            };
            assert!(matches!(error, LinkError::Closed { .. }), "{error}");
            assert!(matches!(far.poll(WAIT), Err(LinkError::Closed { .. })));
        },
    );
}

macro_rules! every_test {
    ($kind:ident, $open:expr) => {
        mod $kind {
            use super::*;

            #[test]
            fn bytes_are_there_before_their_event() {
                super::bytes_are_there_before_their_event($open);
            }

            #[test]
            fn everything_keeps_its_order() {
                super::everything_keeps_its_order($open);
            }

            #[test]
            fn both_sides_write_at_once() {
                super::both_sides_write_at_once($open);
            }

            #[test]
            fn bad_places_are_refused() {
                super::bad_places_are_refused(|| $open);
            }

            #[test]
            fn a_refused_write_leaves_the_link_as_it_was() {
                super::a_refused_write_leaves_the_link_as_it_was($open);
            }

            #[test]
            fn an_end_comes_behind_everything() {
                super::an_end_comes_behind_everything($open);
            }

            #[test]
            fn a_side_that_is_gone_is_reported() {
                super::a_side_that_is_gone_is_reported($open);
            }
        }
    };
}

every_test!(plain_tcp, over_tcp());
every_test!(shared_memory, over_shared_memory());
every_test!(libfabric_tcp, over_libfabric("tcp"));
every_test!(libfabric_shm, over_libfabric("shm"));

/// The connection beside a link by libfabric, as somebody else may use it.
#[test]
fn what_breaks_the_rules_of_the_connection_ends_the_link() {
    let numbers = |kind: u8, numbers: &[u64]| [vec![kind], numbers.iter().flat_map(|n| n.to_le_bytes()).collect()].concat();
    // What is sent instead of an introduction, or after it; and what is said of it.
    type Break = (Option<Vec<u8>>, Vec<u8>, &'static str);
    let breaks: [Break; 9] = [
        (Some([&[1, 1, 5, 0], &b"verbs"[..], &[0, 0]].concat()), vec![], "uses 'verbs' and this side 'libfabric tcp'"),
        (Some(vec![1, 9, 0, 0, 0, 0]), vec![], "version 9"),
        (Some(vec![1, 1, 255, 255, 0, 0]), vec![], "has 6 bytes"),
        (Some(numbers(5, &[])), vec![], "did not introduce itself"),
        (None, vec![], "an empty message"),
        (None, vec![77], "unknown kind 77"),
        (None, numbers(2, &[1, 2, 3]), "kind 2 has 25 bytes"),
        (None, numbers(4, &[1, 0]), "taken more than was sent"),
        (None, numbers(4, &[0, 1]), "taken more than was sent"),
    ];
    if let Err(absent) = libfabric::version() {
        return skip::skipped(&absent.to_string());
    }
    for (hello, then, why) in breaks {
        let libfabric_tcp = Kind::Libfabric { provider: "tcp".into() };
        let mut listener = Listener::bind(libfabric_tcp, "127.0.0.1:0".parse().unwrap()).unwrap();
        let mut far = tcp::connect(listener.local_addr().unwrap(), WAIT).unwrap();
        let accepted = std::thread::scope(|scope| {
            let near = scope.spawn(|| listener.accept(WAIT));
            let Arrival::Message(theirs) = next(&mut far) else { panic!("no introduction") };
            far.send(&hello.unwrap_or(theirs)).unwrap();
            near.join().unwrap()
        });
        let error = match accepted {
            Err(error) => error,
            Ok(near) => {
                let mut near = near.unwrap();
                far.send(&then).unwrap();
                near.poll(WAIT).unwrap_err()
            }
        };
        assert!(matches!(&error, LinkError::Broken { .. }) && error.to_string().contains(why), "{error}");
    }
}

/// Both services of verbs, where KONKORDIA_VERBS_ADDRESS names the address of a card of this host.
#[test]
fn verbs_on_a_card() {
    if let Err(absent) = verbs::devices() {
        return skip::skipped(&absent.to_string());
    }
    let Ok(host) = std::env::var("KONKORDIA_VERBS_ADDRESS") else {
        return skip::skipped("there is an RDMA device: say its IP address in KONKORDIA_VERBS_ADDRESS");
    };
    for service in [verbs::Service::Reliable, verbs::Service::Unreliable] {
        let open = || over(Kind::Verbs { device: None, service }, &format!("{host}:0"));
        bytes_are_there_before_their_event(open());
        everything_keeps_its_order(open());
        both_sides_write_at_once(open());
        bad_places_are_refused(open);
        a_refused_write_leaves_the_link_as_it_was(open());
        an_end_comes_behind_everything(open());
        a_side_that_is_gone_is_reported(open());
    }
}
