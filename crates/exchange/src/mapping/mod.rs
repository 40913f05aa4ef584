//! What belongs to the images beside their pixels: a file in TOML says which column of a table, which key of the
//! headers and which constant becomes which field of NXmx, with its unit.

mod fields;
mod model;
mod read;
mod resolve;
mod table;
mod units;

pub use fields::{FIELDS, Field, Takes};
pub use model::{Constant, Mapping, Match, Rule, TableSpec, Time};
pub use resolve::{Images, Mapped};
pub use table::{Delimiter, Encoding, Form, Table};
pub use units::{Dimension, Factor};
