//! RASHPA, ESRF's framework by which detector modules write their data into the memory of data receivers (EUCALL D5.2,
//! 3.2): who may send what to where is agreed once, by telegrams; then the modules write without being asked.
//!
//! There are no sockets here, and no memory of receivers: packets come back as bytes, and what is to be written comes
//! back as a place. Published are the entities and their vocabulary, the order of the initialisation, and the blocks of
//! the hardware. Telegrams, events and descriptors have no public layout: those here are ours (docs/rashpa.md).
//!
//! Read [`terms`] first, then [`space`] (one address space over all receivers), [`sender`] (a detector module) and
//! [`assembly`] (a data receiver). By telegrams ([`telegram`]) the [`manager`] sets up modules ([`control`]) and
//! receivers ([`receiver_control`]).

pub mod assembly;
pub mod control;

pub mod descriptor;
pub mod initialisation;
pub mod links;

pub mod description;
pub mod manager;
mod mastership;
pub mod plan;
pub mod receiver;
pub mod receiver_control;
pub mod sender;
pub mod shared;
pub mod slots;
pub mod space;

pub mod telegram;
pub mod terms;
pub mod transfer;
