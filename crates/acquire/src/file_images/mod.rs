//! Images of finished files. libhdf5 must not meet a hostile file inside a service, and has one lock that writers of
//! runs need: so another process looks at the file ([`FileImages::open`]) and says where the bytes of each image lie
//! ([`FileIndex`]). [`FileImages`] then reads them with plain reads, and offers them as the ring offers the newest
//! images.

mod ask;
mod index;
mod pixels;
mod results;
mod ring;

pub use ask::{FileCheck, check};
pub use index::{CHUNKS_MAX, FileIdentity, FileIndex, PartIndex, RESULT_CHUNKS_MAX, ResultColumn, ResultIndex, TreeEntry};
pub use ring::FileImages;
