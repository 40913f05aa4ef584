//! Which instruction set a kernel runs with, found at run time.

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};

/// An instruction set that every kernel has a path for. Later ones are wider; all give identical bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Isa {
    /// Plain Rust, the reference, on every machine.
    Scalar,
    /// x86-64 with AVX2, BMI1, BMI2 and LZCNT (2013 onwards): every processor with AVX2 has the others too.
    Avx2,
    /// x86-64 with AVX-512 F, BW, DQ, VL, VBMI and GFNI (Ice Lake, Zen 4 and later). Machines with AVX-512 but without
    /// VBMI or GFNI (Skylake-X) use AVX2: without the byte permute and the 8 x 8 bit matrix the wider registers gain
    /// nothing here.
    Avx512,
}

/// 0 = not yet looked, otherwise 1 + the widest available set.
static WIDEST: AtomicU8 = AtomicU8::new(0);

impl Isa {
    /// All sets, narrowest first; see [`Isa::available`] for those of this machine.
    pub const ALL: [Self; 3] = [Self::Scalar, Self::Avx2, Self::Avx512];

    /// The widest set of this machine. Looks once, then costs one load.
    pub fn detect() -> Self {
        match WIDEST.load(Ordering::Relaxed) {
            1 => Self::Scalar,
            2 => Self::Avx2,
            3 => Self::Avx512,
            _ => {
                let found = look();
                WIDEST.store(1 + found as u8, Ordering::Relaxed);
                found
            }
        }
    }

    /// The sets of this machine, narrowest first; never empty.
    pub fn available() -> &'static [Self] {
        &Self::ALL[..=Self::detect() as usize]
    }

    /// True if this machine can run it.
    pub fn is_available(self) -> bool {
        self <= Self::detect()
    }

    /// The set that the kernels run when asked for this one: this set, or the widest of the machine if the machine does
    /// not have it.
    pub fn usable(self) -> Self {
        self.min(Self::detect())
    }

    /// Name in the configuration, on the command line and in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn look() -> Isa {
    macro_rules! has {
        ($($feature:tt)*) => { $(std::is_x86_feature_detected!($feature))&&* };
    }
    if !has!("avx2" "bmi1" "bmi2" "lzcnt") {
        Isa::Scalar
    } else if has!("avx512f" "avx512bw" "avx512dq" "avx512vl" "avx512vbmi" "gfni") {
        Isa::Avx512
    } else {
        Isa::Avx2
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn look() -> Isa {
    Isa::Scalar
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl std::str::FromStr for Isa {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|isa| isa.name() == s)
            .ok_or_else(|| format!("'{s}' is not an instruction set; use scalar, avx2 or avx512"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalar_is_always_there_and_names_parse() {
        assert_eq!(Isa::available()[0], Isa::Scalar);
        assert_eq!(*Isa::available().last().unwrap(), Isa::detect());
        for isa in Isa::ALL {
            assert_eq!(isa.name().parse::<Isa>().unwrap(), isa);
            assert!(isa.usable().is_available());
            println!("{isa}: {}", if isa.is_available() { "available" } else { "not on this machine" });
        }
        assert!("sse".parse::<Isa>().is_err());
    }
}
