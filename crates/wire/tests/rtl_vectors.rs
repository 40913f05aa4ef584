//! `rtl/vectors/roce.csv`, with which the logic of `rtl/` is tested: this program reads the same numbers in these
//! frames, and finds their iCRC right.

use konkordia_wire::roce::{Packet, frame::packet_of};

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len() / 2).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap()).collect()
}

#[test]
fn frames_of_the_logic_are_packets_of_rocev2() {
    let table = include_str!("../../../rtl/vectors/roce.csv");
    let mut rows = table.lines();
    assert_eq!(rows.next(), Some("opcode,number,address,key,message_bytes,immediate,payload,frame"));
    let mut count = 0;
    for row in rows {
        let fields: Vec<&str> = row.split(',').collect();
        let number = |n: usize| fields[n].parse::<u64>().unwrap();
        let frame = bytes(fields[7]);
        let (outer, packet) = packet_of(&frame).unwrap();
        let packet = Packet::new_checked(packet).unwrap();
        assert!(outer.is_right(&packet), "iCRC of {row}");
        assert_eq!((u64::from(packet.bytes()[0]), u64::from(packet.psn().get())), (number(0), number(1)));
        assert_eq!(packet.payload(), bytes(fields[6]));
        if let Some(memory) = packet.remote_memory() {
            let found = (memory.address, u64::from(memory.key), u64::from(memory.length_bytes));
            assert_eq!(found, (number(2), number(3), number(4)));
        }
        if let Some(immediate) = packet.immediate() {
            assert_eq!(u64::from(immediate), number(5));
        }
        // The last byte that the iCRC covers, and the iCRC itself.
        for at in [frame.len() - 5, frame.len() - 1] {
            let mut damaged = frame.clone();
            damaged[at] ^= 1;
            let (outer, packet) = packet_of(&damaged).unwrap();
            assert!(!outer.is_right(&Packet::new_checked(packet).unwrap()));
        }
        count += 1;
    }
    assert!(count > 100);
}
