//! Inspects, checks and repairs existing files.

pub mod check;
pub mod inspect;
mod others;
pub mod repair;
pub mod statistics;
