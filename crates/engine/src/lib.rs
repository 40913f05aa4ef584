//! Konkordia engine.
