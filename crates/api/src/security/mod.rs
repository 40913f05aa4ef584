//! Who may do what over HTTP, and who did: tokens with roles, TLS, limits per address, origins, the audit log.

pub mod audit;
pub mod origin;
pub mod rate;
pub mod tls;
pub mod tokens;

use serde::{Deserialize, Serialize};
use std::fmt;
use utoipa::ToSchema;

/// What somebody may do; each role may do what the ones before it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Look at states, statistics, images, files, events.
    View,
    /// Arm, start, trigger, stop, cancel.
    Operate,
    /// Change the configuration.
    Configure,
}

impl Role {
    /// All roles, the weakest first.
    pub const ALL: [Self; 3] = [Self::View, Self::Operate, Self::Configure];

    /// As it is written in files and answers.
    pub const fn name(self) -> &'static str {
        match self {
            Self::View => "view",
            Self::Operate => "operate",
            Self::Configure => "configure",
        }
    }

    /// The role with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.name() == name)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Who sends a request, according to its token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// Somebody with a role.
    Known {
        /// Name of the token, or `local` where none is needed.
        name: String,
        /// What it may do.
        role: Role,
    },
    /// No token came, but one is needed.
    Anonymous,
    /// A token came that is not valid.
    BadToken,
}

impl Identity {
    /// The name for the audit log.
    pub fn name(&self) -> &str {
        match self {
            Self::Known { name, .. } => name,
            Self::Anonymous => "(no token)",
            Self::BadToken => "(wrong token)",
        }
    }

    /// Its role, if it has one.
    pub fn role(&self) -> Option<Role> {
        match self {
            Self::Known { role, .. } => Some(*role),
            Self::Anonymous | Self::BadToken => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_role_may_do_what_weaker_ones_may() {
        assert!(Role::View < Role::Operate && Role::Operate < Role::Configure);
        for role in Role::ALL {
            assert_eq!(Role::from_name(role.name()), Some(role));
        }
        assert_eq!(Role::from_name("root"), None);
        assert_eq!(Identity::Anonymous.role(), None);
        assert_eq!(Identity::Known { name: "a".into(), role: Role::View }.role(), Some(Role::View));
    }
}
