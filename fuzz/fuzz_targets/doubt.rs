//! Any packets and pauses against what is held when a stream seems to have gone elsewhere, and against the judge of senders: nothing panics or overflows,
//! no more is held than there is room for, no few packets move a stream, none moves one that stays where it is, and while a sender is alive nobody
//! follows it.
#![no_main]

use konkordia_core::doubt::{Doubt, Doubted};
use konkordia_core::sender::{Admission, Sender, SenderFilter, Senders, Strangers};
use libfuzzer_sys::fuzz_target;

fn sender(port: u8) -> Sender {
    Sender::from(std::net::SocketAddr::from(([10, 0, 0, 1], port.into())))
}

fuzz_target!(|data: &[u8]| {
    let [packets, near, steps @ ..] = data else { return };
    let packets = u32::from(packets % 64) + 1;
    let mut doubt = Doubt::new(packets, u64::from(*near));
    let mut filter = SenderFilter::new(Senders::Learned);
    let (mut strangers, mut counted) = (Strangers::default(), 0);
    let (mut now_ns, mut heard_ns, mut stayed) = (0u64, 0u64, 0);
    filter.learn(sender(0), 0);
    for step in steps.chunks_exact(3) {
        let from = sender(step[1] % 8);
        let image = u64::from(step[2]) << (step[1] % 40);
        match step[0] % 8 {
            0 => {
                now_ns += u64::from(step[1]) << 24;
                filter.tick(now_ns);
            }
            1 => {
                let own = filter.own();
                let admission = filter.admit(from);
                match admission {
                    Admission::Own => heard_ns = now_ns,
                    _ => {
                        strangers.count(from);
                        counted += 1;
                    }
                }
                assert!(own != Some(from) || admission == Admission::Own);
                assert!(admission != Admission::Follower || now_ns - heard_ns >= 250_000_000, "it is alive");
            }
            2 => {
                stayed += 1;
                if doubt.stays(sender(0)) {
                    doubt.clear();
                    stayed = 0;
                }
            }
            _ => {
                if doubt.is_full() {
                    doubt.drop_oldest();
                }
                doubt.push(Doubted { image, sender: from }, now_ns);
            }
        }
        assert!(doubt.held().len() <= Doubt::packets_max(packets));
        assert_eq!(strangers.packets(), counted);
        let is_last = step[0] & 128 != 0;
        if let Some(place) = doubt.place(now_ns, is_last) {
            let here = doubt.held().iter().filter(|held| place.has(held)).count() as u32;
            assert!(2 * here >= packets.max(3), "{here} of {packets}");
            assert!(stayed * 4 < here);
            assert!(place.first <= place.last && place.last - place.first < 2 * doubt.near_images());
            doubt.clear();
            stayed = 0;
        }
    }
});
