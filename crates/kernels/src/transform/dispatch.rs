//! Chooses the loop of an instruction set.

/// Calls the loop of this name as it was compiled for an instruction set.
macro_rules! isa_paths {
    ($isa:expr, $name:ident $(<$($t:ty),*>)? ($($argument:expr),* $(,)?)) => {
        match $isa.usable() {
            #[cfg(target_arch = "x86_64")]
            crate::isa::Isa::Avx512 => super::avx512::$name $(::<$($t),*>)? ($($argument),*),
            #[cfg(target_arch = "x86_64")]
            crate::isa::Isa::Avx2 => super::avx2::$name $(::<$($t),*>)? ($($argument),*),
            _ => $name $(::<$($t),*>)? ($($argument),*),
        }
    };
}
pub(super) use isa_paths;
