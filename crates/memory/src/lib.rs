//! Konkordia memory.
