use super::*;
use proptest::prelude::*;
use std::collections::HashMap;

const DOMAIN: ProtectionDomain = ProtectionDomain(7);

fn region(base: u64, length_bytes: u64) -> Region {
    Region { base, length_bytes, rights: Rights::Write, domain: DOMAIN }
}

#[test]
fn each_refusal_has_its_reason() {
    let mut regions = Regions::new(2, 0x1234_5678);
    let (id, key) = regions.register(region(0x1000, 0x100)).unwrap();
    let find = |regions: &Regions, key, address, bytes| regions.find(key, address, bytes, Access::Write, DOMAIN);
    assert_eq!(find(&regions, key, 0x10F0, 0x10), Ok(Place { region: id, offset_bytes: 0xF0 }));
    for (address, bytes) in [(0xFFF, 1), (0x10F0, 0x11), (0x1100, 1), (0, u64::MAX), (u64::MAX, 0x100), (u64::MAX - 1, u64::MAX)]
    {
        assert_eq!(find(&regions, key, address, bytes), Err(Refusal::OutOfBounds), "{address:#x} {bytes:#x}");
    }
    assert_eq!(regions.find(key, 0x1000, 1, Access::Read, DOMAIN), Err(Refusal::NoRight));
    assert_eq!(regions.find(key, 0x1000, 1, Access::Write, ProtectionDomain(8)), Err(Refusal::OtherDomain));
    assert_eq!(find(&regions, Key::new(key.get() ^ 1), 0x1000, 1), Err(Refusal::UnknownKey));
    assert_eq!(find(&regions, Key::new(key.get() ^ 0x1_0000), 0x1000, 1), Err(Refusal::UnknownKey));
    assert_eq!(find(&regions, Key::new(key.get() ^ 2), 0x1000, 1), Err(Refusal::UnknownKey));
    assert_eq!(regions.find_by_id(id, 0xF0, 0x10, Access::Write), Ok(Place { region: id, offset_bytes: 0xF0 }));
    assert_eq!(regions.find_by_id(id, 0xF0, 0x11, Access::Write), Err(Refusal::OutOfBounds));
    assert_eq!(regions.find_by_id(id, u64::MAX, 2, Access::Write), Err(Refusal::OutOfBounds));
    assert_eq!(regions.find_by_id(id, 0, 1, Access::Read), Err(Refusal::NoRight));
    assert_eq!(regions.find_by_id(RegionId::new(1), 0, 1, Access::Write), Err(Refusal::UnknownKey));

    assert_eq!(regions.revoke(id), Some(region(0x1000, 0x100)));
    assert_eq!(regions.revoke(id), None);
    assert_eq!(find(&regions, key, 0x1000, 1), Err(Refusal::RevokedKey));
    assert_eq!(regions.find_by_id(id, 0, 1, Access::Write), Err(Refusal::RevokedKey));
}

#[test]
fn a_region_at_the_end_of_all_addresses_is_one_and_a_longer_one_is_none() {
    let mut regions = Regions::new(1, 0);
    assert_eq!(regions.register(region(u64::MAX, 2)), Err(NotRegistered::Range));
    assert_eq!(regions.register(region(5, 0)), Err(NotRegistered::Range));
    let (id, key) = regions.register(region(u64::MAX - 9, 10)).unwrap();
    let last = regions.find(key, u64::MAX, 1, Access::Write, DOMAIN);
    assert_eq!(last, Ok(Place { region: id, offset_bytes: 9 }));
    assert_eq!(regions.find(key, u64::MAX, 2, Access::Write, DOMAIN), Err(Refusal::OutOfBounds));
    assert_eq!(regions.register(region(0, 1)), Err(NotRegistered::Full(1)));
}

#[test]
fn keys_are_not_given_again_soon() {
    let mut regions = Regions::new(3, 99);
    let mut given = HashMap::new();
    for n in 0..100_000_u32 {
        let (id, key) = regions.register(region(0, 8)).unwrap();
        assert_eq!(given.insert(key, n), None, "registration {n} got a key that was given before");
        regions.revoke(id);
        assert_eq!(regions.find(key, 0, 1, Access::Write, DOMAIN), Err(Refusal::RevokedKey));
    }
}

proptest! {
    /// Against a list of what is registered: every answer is the same, whatever is registered and revoked in between.
    #[test]
    fn the_table_agrees_with_a_list(steps in proptest::collection::vec((any::<bool>(), 0_u64..40, 1_u64..40, 0_usize..12), 1..60),
        mix in any::<u32>()) {
        let mut regions = Regions::new(4, mix);
        let mut all: Vec<(RegionId, Key, Option<Region>)> = Vec::new();
        for (is_new, base, length, which) in steps {
            if is_new {
                let living = all.iter().filter(|entry| entry.2.is_some()).count();
                let got = regions.register(region(base, length));
                prop_assert_eq!(got.is_ok(), living < 4);
                if let Ok((id, key)) = got {
                    all.push((id, key, Some(region(base, length))));
                }
            } else if let Some(entry) = all.get_mut(which).filter(|entry| entry.2.is_some()) {
                prop_assert_eq!(regions.revoke(entry.0), entry.2.take());
            }
            for (id, key, expected) in &all {
                for address in [0, base, base + length, 39] {
                    let got = regions.find(*key, address, length, Access::Write, DOMAIN);
                    let is_inside = |region: &Region| {
                        address >= region.base && address + length <= region.base + region.length_bytes
                    };
                    let want = match expected {
                        None => Err(Refusal::RevokedKey),
                        Some(region) if is_inside(region) => {
                            Ok(Place { region: *id, offset_bytes: address - region.base })
                        }
                        Some(_) => Err(Refusal::OutOfBounds),
                    };
                    prop_assert_eq!(got, want);
                }
            }
        }
    }
}
