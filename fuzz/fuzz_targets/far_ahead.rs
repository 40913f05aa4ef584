//! Any packets and pauses for packets that are held back because their stream seems to have jumped far ahead, and for
//! the sender filter. Nothing panics or overflows; no more is held back than the memory for it; a few packets move no
//! stream; a stream that stays where it is does not move; and nobody replaces a sender that still sends.
#![no_main]

use konkordia_core::far_ahead::{FarAhead, FarAheadPacket};
use konkordia_core::sender::{Admission, OtherSenders, Sender, SenderFilter, Senders};
use libfuzzer_sys::fuzz_target;

fn sender(port: u8) -> Sender {
    Sender::from(std::net::SocketAddr::from(([10, 0, 0, 1], port.into())))
}

fuzz_target!(|data: &[u8]| {
    let [packets, near, steps @ ..] = data else { return };
    let packets = u32::from(packets % 64) + 1;
    let mut far_ahead = FarAhead::new(packets, u64::from(*near));
    let mut filter = SenderFilter::new(Senders::Learned);
    let (mut other_senders, mut counted) = (OtherSenders::default(), 0);
    let (mut now_ns, mut last_own_ns, mut stayed) = (0u64, 0u64, 0);
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
                    Admission::Own => last_own_ns = now_ns,
                    _ => {
                        other_senders.count(from);
                        counted += 1;
                    }
                }
                assert!(own != Some(from) || admission == Admission::Own);
                assert!(admission != Admission::NextSender || now_ns - last_own_ns >= 250_000_000, "it is alive");
            }
            2 => {
                stayed += 1;
                if far_ahead.stays(sender(0)) {
                    far_ahead.clear();
                    stayed = 0;
                }
            }
            _ => {
                if far_ahead.is_full() {
                    far_ahead.drop_oldest();
                }
                far_ahead.push(FarAheadPacket { image, sender: from }, now_ns);
            }
        }
        assert!(far_ahead.held().len() <= FarAhead::packets_max(packets));
        assert_eq!(other_senders.packets(), counted);
        let is_last = step[0] & 128 != 0;
        if let Some(place) = far_ahead.place(now_ns, is_last) {
            let here = far_ahead.held().iter().filter(|held| place.has(held)).count() as u32;
            assert!(2 * here >= packets.max(3), "{here} of {packets}");
            assert!(stayed * 4 < here);
            assert!(place.first <= place.last && place.last - place.first < 2 * far_ahead.near_images());
            far_ahead.clear();
            stayed = 0;
        }
    }
});
