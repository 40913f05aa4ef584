//! `rtl/vectors/`, with which the logic of `rtl/` is tested, says what this program makes of the same pixels. (The
//! conversion has `docs/formats/fixed-point-vectors.csv`, see `fixed.rs`.)

use konkordia_kernels::bitshuffle::{ElementSize, shuffle};
use konkordia_kernels::finish::{accumulate, narrow};
use konkordia_kernels::isa::Isa;

#[test]
fn sums_are_those_of_the_logic() {
    let table = include_str!("../../../rtl/vectors/sums.csv");
    let mut rows = table.lines();
    assert_eq!(rows.next(), Some("earlier,pixel,sum,int16,uint16,int32,uint32"));
    let rows: Vec<Vec<i64>> = rows.map(|row| row.split(',').map(|value| value.parse().unwrap()).collect()).collect();
    assert!(rows.len() > 500);
    let column = |n: usize| rows.iter().map(move |row| row[n]);
    let pixels: Vec<i32> = column(1).map(|value| value as i32).collect();
    let mut sums: Vec<i32> = column(0).map(|value| value as i32).collect();
    accumulate(&mut sums, &pixels);
    assert!(sums.iter().map(|sum| i64::from(*sum)).eq(column(2)));
    let (mut a, mut b) = (vec![0i16; sums.len()], vec![0u16; sums.len()]);
    let (mut c, mut d) = (vec![0i32; sums.len()], vec![0u32; sums.len()]);
    narrow(&sums, &mut a);
    narrow(&sums, &mut b);
    narrow(&sums, &mut c);
    narrow(&sums, &mut d);
    assert!(a.into_iter().map(i64::from).eq(column(3)));
    assert!(b.into_iter().map(i64::from).eq(column(4)));
    assert!(c.into_iter().map(i64::from).eq(column(5)));
    assert!(d.into_iter().map(i64::from).eq(column(6)));
}

#[test]
fn shuffled_blocks_are_those_of_the_logic() {
    let pixels = include_bytes!("../../../rtl/vectors/pixels.bin");
    let shuffled = include_bytes!("../../../rtl/vectors/pixels-shuffled.bin");
    let mut out = [0; 8192];
    for (block, expected) in pixels.chunks(8192).zip(shuffled.chunks(8192)) {
        shuffle(Isa::detect(), ElementSize::Two, block, &mut out);
        assert_eq!(&out[..], expected);
    }
}
