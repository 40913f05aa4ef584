//! Any bytes as rows of messages for both ends of an edge of a graph: what is read is written the same, the accounts
//! balance, and neither end keeps more than its bounds.
#![no_main]

use konkordia_graph::consumer::{Consumer, Verdict};
use konkordia_graph::message::{Message, add_to_row, decode_row};
use konkordia_graph::producer::{Limits, Policy, Producer};
use libfuzzer_sys::fuzz_target;

const LIMITS: Limits = Limits { ring: 16, response_ms_max: 50, refusals_max: 2, members: 2 };
const POLICIES: [Policy; 4] = [Policy::RoundRobin, Policy::LeastWorkload, Policy::ByKey, Policy::Broadcast];

fuzz_target!(|data: &[u8]| {
    let [choice, data @ ..] = data else { return };
    let mut producer = Producer::new("work", POLICIES[usize::from(choice & 3)], LIMITS);
    let mut consumer = Consumer::new("work", "work-0", 1, 4, 1);
    let (mut now_ms, mut next) = (0_u64, 0_u64);
    for row in data.split(|byte| *byte == 0xFE) {
        now_ms += 1 + row.len() as u64 * 7 % 400;
        if let Ok(messages) = decode_row(row) {
            let mut again = Vec::new();
            // Texts that are no UTF-8 are read as far as they are text.
            let is_text = |message: &Message| matches!(message, Message::Nack { .. } | Message::Refused { .. } | Message::Hello { .. });
            if !messages.iter().any(is_text) {
                assert!(messages.iter().all(|message| add_to_row(&mut again, message)));
                assert_eq!(again, row);
            }
            for message in messages {
                if let Verdict::Take(id) = consumer.arrived(0, message.clone()) {
                    consumer.passed(id);
                    if id % 3 == 0 { consumer.refuse(id, "no") } else { consumer.done(id) }
                }
                for member in ["work-0", "work-1"] {
                    producer.arrived(member, message.clone(), now_ms);
                }
            }
        }
        while producer.has_room(next) && next < 1000 {
            producer.offer(next, next / 4, ());
            next += 1;
        }
        consumer.tick(now_ms);
        producer.tick(now_ms);
        while producer.next_work(now_ms).is_some() {}
        while producer.next_message().is_some() {}
        while producer.next_finished().is_some() {}
        while consumer.next_message().is_some() {}
        assert_eq!(producer.account().imbalance(), None);
        assert_eq!(consumer.imbalance(), None);
        assert!(producer.account().open <= LIMITS.ring && consumer.open() <= 8);
    }
});
