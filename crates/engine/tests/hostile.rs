//! The scenes of the fuzz targets with random input, so that each run of the tests tries a little of what `make fuzz`
//! tries for hours. KONKORDIA_SLOW=1 tries more.

#[path = "../../../fuzz/scenes/messages.rs"]
mod messages;
#[path = "../../../fuzz/scenes/packets.rs"]
mod packets;

use konkordia_sim::rng::Rng;

/// Runs of hostile input mostly end by their timeouts.
const SHORT_NS: u64 = 1_000_000;
/// Orderly input ends its run itself, and no thread is held up for this long.
const LONG_NS: u64 = 2_000_000_000;

/// Random inputs, the same in each run of the tests.
fn each_input(inputs: u64, bytes_max: u64, check: fn(&[u8], u64) -> u64) {
    let inputs = if std::env::var_os("KONKORDIA_SLOW").is_some_and(|v| v == "1") { 20 * inputs } else { inputs };
    for seed in 0..inputs {
        let mut rng = Rng::new(seed);
        let length = rng.next_u64() % bytes_max;
        let input: Vec<u8> = (0..length).map(|_| rng.next_u64() as u8).collect();
        let result = std::panic::catch_unwind(|| check(&input, SHORT_NS));
        assert!(result.is_ok(), "the input of seed {seed} fails");
    }
}

#[test]
fn hostile_packets_leave_the_ledger_balanced() {
    each_input(60, 1200, packets::check);
}

/// A scene in which nothing ever arrived would pass too.
#[test]
fn orderly_input_gives_whole_images() {
    // From a source that can wait, so that no frame finds the ring full.
    let frames = (0..10u8).flat_map(|frame| [[0, frame, 0, 0, 0, 0], [0, frame, 1, 0, 0, 0]]);
    let packets: Vec<u8> = [16, 1, 9].into_iter().chain(frames.flatten()).collect();
    assert_eq!(packets::check(&packets, LONG_NS), 10);
    // Start, image, end of each protocol, undamaged.
    for (protocol, messages) in [[0u8, 2, 6], [0, 3, 6], [0, 1, 3], [0, 0, 2]].iter().enumerate() {
        let steps = messages.iter().flat_map(|message| [*message, 5, 0, 0]);
        let input: Vec<u8> = [protocol as u8, 32].into_iter().chain(steps).collect();
        assert!(messages::check(&input, LONG_NS) > 0, "protocol {protocol}");
    }
}

#[test]
fn hostile_messages_leave_the_ledgers_balanced() {
    each_input(60, 400, messages::check);
}
