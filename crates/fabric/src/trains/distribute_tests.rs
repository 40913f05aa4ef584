//! Outputs, requests, and numbers of others.

use super::*;

#[test]
fn round_robin_follows_the_train_id() {
    let mut outputs = Distributor::new(Policy::RoundRobin, 3, 1);
    assert_eq!([9, 10, 11, 12, 17].map(|id| outputs.choose(id)), [Some(0), Some(1), Some(2), Some(0), Some(2)]);
}

#[test]
fn credits_are_used_up_in_turn() {
    let mut outputs = Distributor::new(Policy::Credits, 3, 2);
    assert_eq!(outputs.choose(1), None);
    assert!(outputs.credit(Credit { output: 2, trains: 9 }) && outputs.credit(Credit { output: 0, trains: 1 }));
    assert!(!outputs.credit(Credit { output: 3, trains: 1 }));
    // No more than two are open, however many were asked for.
    assert_eq!([2, 3, 4, 5].map(|id| outputs.choose(id)), [Some(0), Some(2), Some(2), None]);
}

#[test]
fn a_request_is_read_as_it_was_written_and_nothing_else_is_one() {
    let credit = Credit { output: 1, trains: 0x0102_0304 };
    assert_eq!(credit.write(), *b"TTPC\x01\0\0\0\x04\x03\x02\x01");
    assert_eq!(Credit::read(&credit.write()), Some(credit));
    assert_eq!(
        [&b""[..], b"TTPC", b"TTPC\x01\0\0\0\x04\x03\x02", b"TTPC\x01\0\0\0\x04\x03\x02\x01\0"].map(Credit::read),
        [None; 4]
    );
    assert_eq!(Credit::read(b"TTPX\x01\0\0\0\x04\x03\x02\x01"), None);
}

#[test]
fn numbers_wait_for_their_train_and_are_bounded() {
    let mut injected = Injected::new(2);
    injected.put(5, "energy", 9.3);
    injected.put(5, "energy", 9.4);
    injected.put(6, "x", 1.0);
    assert_eq!(injected.take(5), [("energy".to_owned(), 9.4)]);
    injected.put(5, "late", 0.0);
    assert_eq!(injected.late, 1);
    for id in 7..10 {
        injected.put(id, "x", 2.0);
    }
    // Trains 6 and 7 made room.
    assert_eq!((injected.late, injected.take(6)), (3, vec![]));
    injected.put(9, "", 0.0);
    (0..70).for_each(|n| injected.put(9, &n.to_string(), 0.0));
    ["a/b", "a.b", "é", &"x".repeat(65)].iter().for_each(|name| injected.put(9, name, 0.0));
    assert_eq!((injected.take(9).len(), injected.refused), (64, 12));
}
