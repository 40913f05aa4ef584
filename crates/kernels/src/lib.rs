//! Konkordia kernels.
