//! Konkordia sources.
