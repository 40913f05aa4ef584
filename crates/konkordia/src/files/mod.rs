//! Inspects, checks and repairs existing files.

pub mod args;
pub mod check;
mod compression;
mod index;
pub mod inspect;
mod looked;
mod others;
mod picture;
pub mod repair;
pub mod statistics;
