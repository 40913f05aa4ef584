//! Konkordia sinks.
