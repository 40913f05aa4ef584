//! The ways on which packets come from the network card to this program.

/// One way. All of them hand over the same datagrams; they differ in rights, cost, and what they refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// A UDP socket for each stream: `recvmmsg` with GRO.
    Socket,
    /// A ring that the kernel shares with the program, for each stream: `AF_PACKET`.
    Packet,
    /// Rings that a program in the kernel fills before the network stack sees the packets: `AF_XDP`.
    Xdp,
    /// A queue pair of an RDMA card for each stream ("raw packet" of verbs): the card writes the frames into memory of
    /// the program.
    Verbs,
}

impl Backend {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Socket, Self::Packet, Self::Xdp, Self::Verbs];

    /// Those that may be chosen without being named, the best first. A socket works everywhere, so it is the last.
    /// Rings are not here: nothing shows that they lose less than a socket with GRO
    /// (docs/decisions/0025-receive-backends.md).
    pub const AUTO: [Self; 1] = [Self::Socket];

    /// Name in configurations and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Socket => "socket",
            Self::Packet => "packet",
            Self::Xdp => "xdp",
            Self::Verbs => "verbs",
        }
    }
}

/// What a configuration asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Receive {
    /// The first of [`Backend::AUTO`] that this machine allows.
    #[default]
    Auto,
    /// This one, or no run.
    Only(Backend),
}

impl Receive {
    /// The names of all values.
    pub const NAMES: [&'static str; 5] =
        ["auto", Backend::Socket.name(), Backend::Packet.name(), Backend::Xdp.name(), Backend::Verbs.name()];

    /// The value of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        let only = Backend::ALL.into_iter().find(|backend| backend.name() == name).map(Self::Only);
        only.or((name == Self::NAMES[0]).then_some(Self::Auto))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_the_name_of_a_value() {
        assert_eq!(Receive::from_name("auto"), Some(Receive::Auto));
        assert_eq!(Receive::NAMES.len(), Backend::ALL.len() + 1);
        for (backend, name) in Backend::ALL.into_iter().zip(&Receive::NAMES[1..]) {
            assert_eq!((backend.name(), Receive::from_name(name)), (*name, Some(Receive::Only(backend))));
        }
        assert_eq!(Receive::from_name("Socket"), None);
    }

    #[test]
    fn a_socket_is_the_last_resort() {
        assert_eq!(Backend::AUTO.last(), Some(&Backend::Socket));
    }
}
