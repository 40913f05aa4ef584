//! Konkordia wire.
