//! The loops of `scalar.rs`, compiled for AVX2.

use super::bound::Bound;
use super::lines::{Columns, Range, Row, Window};
use super::scalar;
use super::value::Value;
use crate::isa::Isa;
use crate::stats::Measured;

/// A function of `scalar.rs` for this instruction set.
macro_rules! compiled {
    ($name:ident [$($generics:tt)*] ($($argument:ident: $t:ty),* $(,)?) $(-> $result:ty)?) => {
        #[doc = concat!("See [`super::", stringify!($name), "`].")]
        pub fn $name<$($generics)*>($($argument: $t),*) $(-> $result)? {
            #[target_feature(enable = "avx2")]
            fn compiled<$($generics)*>($($argument: $t),*) $(-> $result)? {
                scalar::$name($($argument),*)
            }
            assert!(Isa::Avx2.is_available());
            // SAFETY: AVX2 is available, as asserted above.
            unsafe { compiled($($argument),*) }
        }
    };
}

compiled!(load [P: Measured, V: Value] (pixels: &[P], usable: &[u8], range: Range<P, V>, values: &mut [V], flags: &mut [u8], large: &mut [u8]));
compiled!(add [V: Value] (values: &[V], flags: &[u8]) -> (u64, f64));
compiled!(slide [V: Value] (enter: (&[V], &[u8]), leave: (&[V], &[u8]), columns: &mut Columns));
compiled!(slide_background [V: Value] (enter: (&[V], &[u8]), leave: (&[V], &[u8]), columns: &mut Columns));
compiled!(disperse [V: Value] (window: Window<V>, columns: &mut Columns, bound: &Bound, row: Row));
compiled!(erode [] (above: &[u8], length: usize, slots: &[usize], flags: &[u8], inner: &mut [u8], back: &mut [u8]) -> bool);
