//! Looks at a host: is it set up to receive without loss, and where did the packets of a run go?
//! It never changes a setting, needs no rights, and prints nothing. Read [`snapshot::Snapshot`] first, then
//! [`checks::all`]; for runs [`lost::causes`].
//!
//! ```
//! use konkordia_doctor::finding::Verdict;
//! use konkordia_doctor::snapshot::{Scope, Snapshot};
//! use konkordia_doctor::{checks, script};
//!
//! let snapshot = Snapshot::take(&Scope::default())?;
//! let findings = checks::all(&snapshot);
//! for finding in findings.iter().filter(|finding| finding.verdict == Verdict::Fail) {
//!     println!("{}: {}, wanted {}", finding.check, finding.measured, finding.wanted);
//! }
//! println!("{}", script::script(snapshot.host(), &findings));
//! # Ok::<(), String>(())
//! ```
//!
//! Where the packets of a run with loss went:
//!
//! ```
//! use konkordia_doctor::lost::{Account, Place, causes};
//!
//! let totals = [("packets_missing", 12), ("kernel_dropped", 12)].map(|(name, n)| (name.to_owned(), n)).into();
//! let found = causes(&Account { totals, ..Account::default() });
//! assert_eq!((found[0].place, found[0].lost), (Place::Socket, 12));
//! ```

pub mod checks;
pub mod counters;
pub mod disk;
pub mod files;
pub mod finding;
pub mod groups;
pub mod interfaces;
pub mod lost;
pub mod parse;
pub mod script;
pub mod snapshot;
mod sys;
pub mod topology;
pub mod virtualisation;
