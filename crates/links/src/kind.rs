//! Links of a kind that is chosen when the program runs: who uses one calls it by [`Link`] only.

use crate::control::{Control, differ, same};
use crate::verbs::Service;
use crate::{Arrival, Link, LinkError, libfabric, shm, tcp, verbs};
use std::net::SocketAddr;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How long somebody who has connected may take to introduce itself.
const INTRODUCTION: Duration = Duration::from_secs(10);
/// Connections that may be in that state.
const UNDER_WAY_MAX: usize = 32;
/// How long a listener sleeps between two looks.
const NAP: Duration = Duration::from_millis(5);

/// A kind of link. Both sides have to use the same one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// TCP, which every host has.
    #[default]
    Tcp,
    /// Memory that two programs of one host share.
    Shm,
    /// libfabric, by one of its providers.
    Libfabric {
        /// Its name, for example `tcp`, `shm`, `efa`.
        provider: String,
    },
    /// Verbs.
    Verbs {
        /// The device; `None` = the first one.
        device: Option<String>,
        /// How its queue pairs carry writes.
        service: Service,
    },
}

impl Kind {
    /// The name that both sides compare, for example `libfabric tcp`.
    pub fn name(&self) -> String {
        match self {
            Self::Tcp => "tcp".into(),
            Self::Shm => shm::KIND.into(),
            Self::Libfabric { provider } => libfabric::kind(provider),
            Self::Verbs { .. } => verbs::KIND.into(),
        }
    }

    /// Is there what this kind needs on this host? The error says what is absent, and what to do.
    pub fn check(&self) -> Result<(), LinkError> {
        match self {
            Self::Tcp | Self::Shm => Ok(()),
            Self::Libfabric { provider } => {
                let offers = libfabric::offers()?;
                let is_same = |offer: &libfabric::Offer| offer.provider == *provider || has_layer(&offer.provider, provider);
                if offers.iter().any(is_same) {
                    return Ok(());
                }
                let why = format!("libfabric offers no such provider here; `konkordia links` shows those that it offers ({})", {
                    let mut names: Vec<&str> = offers.iter().map(|offer| offer.provider.as_str()).collect();
                    names.dedup();
                    names.join(", ")
                });
                Err(LinkError::Absent { link: self.name(), why })
            }
            Self::Verbs { device, .. } => {
                let devices = verbs::devices()?;
                match device.as_ref().filter(|device| !devices.contains(device)) {
                    None => Ok(()),
                    Some(device) => {
                        let why = format!("this host has no device '{device}', but {}", devices.join(", "));
                        Err(LinkError::Absent { link: self.name(), why })
                    }
                }
            }
        }
    }

    /// Connects to a [`Listener`] of the same kind.
    pub fn connect(&self, address: SocketAddr, timeout: Duration) -> Result<Box<dyn Link>, LinkError> {
        match self {
            Self::Tcp => Ok(Box::new(tcp::connect(address, timeout)?)),
            Self::Shm => shm::connect(address, timeout),
            Self::Libfabric { provider } => libfabric::connect(provider, address, timeout),
            Self::Verbs { device, service } => verbs::connect(device.as_deref(), *service, address, timeout),
        }
    }

    /// Looks whether a [`Listener`] of the same kind is there, and leaves at once. A listener over TCP does not
    /// introduce itself, so there it is only seen that somebody listens.
    pub fn look(&self, address: SocketAddr, timeout: Duration) -> Result<(), LinkError> {
        let mut link = tcp::connect(address, timeout)?;
        if *self == Self::Tcp {
            return Ok(());
        }
        let link_name = || format!("{} {address}", self.name());
        let silent = |why: String| LinkError::Broken { link: link_name(), why };
        match link.poll(timeout)? {
            Some(Arrival::Message(message)) => match self.other(&message) {
                None => Ok(()),
                Some(why) => Err(silent(why)),
            },
            _ => Err(silent(format!("it does not introduce itself; {}", same(&self.name())))),
        }
    }

    /// Why the first message of the other side shows that it uses another kind of link; `None` if it does not.
    pub fn other(&self, message: &[u8]) -> Option<String> {
        match Control::decode(message) {
            Ok(Control::Hello { kind, .. }) if kind != self.name() => Some(differ(&kind, &self.name())),
            _ => None,
        }
    }
}

/// Providers are named with the layers above them, `tcp;ofi_rxm`, or by the first part alone.
fn has_layer(offered: &str, wanted: &str) -> bool {
    offered.split(';').next() == Some(wanted)
}

/// Waits for other hosts to connect by links of one kind.
pub struct Listener {
    kind: Kind,
    control: tcp::Listener,
    /// Those that have introduced themselves, or why they could not.
    met: (mpsc::Sender<Met>, mpsc::Receiver<Met>),
    under_way: usize,
}

type Met = Result<Box<dyn Link>, LinkError>;

impl Listener {
    /// Listens at `address`, over TCP; port 0 takes a free one. What the kind needs on this host has to be there.
    pub fn bind(kind: Kind, address: SocketAddr) -> Result<Self, LinkError> {
        kind.check()?;
        Ok(Self { kind, control: tcp::Listener::bind(address)?, met: mpsc::channel(), under_way: 0 })
    }

    /// The address at which it listens.
    pub fn local_addr(&self) -> Result<SocketAddr, LinkError> {
        self.control.local_addr()
    }

    /// The next host that has connected, if one does in time. Who introduces itself slowly or not at all keeps nobody
    /// waiting. An error is about one host, or about the device of this one.
    pub fn accept(&mut self, timeout: Duration) -> Result<Option<Box<dyn Link>>, LinkError> {
        if self.kind == Kind::Tcp {
            return Ok(self.control.accept(timeout)?.map(|link| Box::new(link) as Box<dyn Link>));
        }
        let end = Instant::now() + timeout;
        loop {
            if let Some(control) = self.control.accept(Duration::ZERO)? {
                self.meet(control)?;
            }
            while let Ok(met) = self.met.1.try_recv() {
                self.under_way -= 1;
                match met {
                    // One that only looked whether somebody listens.
                    Err(LinkError::Closed { .. }) => {}
                    met => return met.map(Some),
                }
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            std::thread::sleep(left.min(NAP));
        }
    }

    /// Introduces both sides to each other in a thread. One that is too many is hung up.
    fn meet(&mut self, control: tcp::TcpLink) -> Result<(), LinkError> {
        if self.under_way >= UNDER_WAY_MAX {
            return Ok(());
        }
        let (kind, met) = (self.kind.clone(), self.met.0.clone());
        let thread = std::thread::Builder::new().name("meet".into());
        let meet = move || {
            let link = match &kind {
                Kind::Tcp => Ok(Box::new(control) as Box<dyn Link>),
                Kind::Shm => shm::meet(control, INTRODUCTION),
                Kind::Libfabric { provider } => libfabric::meet(provider, control, INTRODUCTION),
                Kind::Verbs { device, service } => verbs::meet(device.as_deref(), *service, control, INTRODUCTION),
            };
            // Nobody takes it if the listener is gone.
            drop(met.send(link));
        };
        thread.spawn(meet).map_err(|source| LinkError::Io { link: self.kind.name(), source })?;
        self.under_way += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_introduction_of_another_kind_is_recognised() {
        let hello = Control::Hello { kind: "libfabric shm".into(), address: vec![] }.encode();
        let shm = Kind::Libfabric { provider: "shm".into() };
        assert_eq!(shm.other(&hello), None);
        for kind in [
            Kind::Tcp,
            Kind::Shm,
            Kind::Verbs { device: None, service: Service::Reliable },
            Kind::Libfabric { provider: "tcp".into() },
        ] {
            let why = kind.other(&hello).unwrap();
            assert!(why.contains("'libfabric shm'") && why.contains(&format!("'{}'", kind.name())), "{why}");
            assert_eq!(kind.other(b"HKWRT"), None);
        }
    }

    #[test]
    fn a_provider_or_device_that_is_not_here_is_refused_before_anybody_connects() {
        for kind in [
            Kind::Libfabric { provider: "pigeon".into() },
            Kind::Verbs { device: Some("pigeon_0".into()), service: Service::Reliable },
        ] {
            let error = Listener::bind(kind, "127.0.0.1:0".parse().unwrap()).err().unwrap();
            assert!(matches!(error, LinkError::Absent { .. }), "{error}");
        }
        assert!(Kind::Tcp.check().is_ok());
        assert!(has_layer("tcp;ofi_rxm", "tcp") && !has_layer("tcp;ofi_rxm", "ofi_rxm"));
    }
}
