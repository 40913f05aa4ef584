//! What libhdf5 and its plug-ins share: the structure of a filter ([`abi`]), our filter ([`BITSHUFFLE`]), memory that
//! changes hands ([`output`]), the library that called (`caller`), and plug-ins of others ([`load`]).

pub mod abi;
mod caller;
mod filter;
pub mod load;
pub mod output;

pub use filter::BITSHUFFLE;
