//! Konkordia sim.
