//! The scene of the fuzz target `hdf5_file` with random damage, so that each run of the tests tries a little of what
//! `make fuzz` tries for hours. KONKORDIA_SLOW=1 tries more.

#[path = "../../../fuzz/scenes/hdf5_file.rs"]
mod hdf5_file;

/// The next number of a simple generator (xorshift).
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[test]
fn no_damage_makes_a_reader_panic() {
    let inputs = if std::env::var_os("KONKORDIA_SLOW").is_some_and(|v| v == "1") { 20_000 } else { 400 };
    for seed in 1..=inputs {
        let mut state = u64::wrapping_mul(seed, 0x9E37_79B9_7F4A_7C15);
        let length = 1 + 5 * (next(&mut state) % 6);
        let input: Vec<u8> = (0..length).map(|_| (next(&mut state) >> 32) as u8).collect();
        let refuse = |_, _: &[u8], _, _: &mut [u8]| Err("this test has no decoder".to_owned());
        let result = std::panic::catch_unwind(|| hdf5_file::check(&input, &refuse));
        assert!(result.is_ok(), "the damage of seed {seed} makes a reader panic");
    }
    hdf5_file::clean();
}
