//! What can go wrong when sockets are opened on an interface: what happened and where, why, and what to do.

use crate::rights;
use konkordia_core::failure::{Exit, Failure};
use libc::{
    EACCES, EAFNOSUPPORT, EBUSY, EEXIST, EINVAL, ENETDOWN, ENOBUFS, ENODEV, ENOMEM, EOPNOTSUPP, EPERM, EPFNOSUPPORT, ERANGE,
};
use std::io;

/// What was tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Interface,
    Socket,
    Memory { bytes: usize },
    Rings,
    Bind { queue: u32 },
    Maps,
    Load,
    Attach,
}

/// A step that failed.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub step: Step,
    pub error: io::Error,
    /// What the kernel's verifier says of the program.
    pub log: String,
}

impl Refusal {
    /// For `map_err`.
    pub(crate) fn of(step: Step) -> impl Fn(io::Error) -> Self {
        move |error| Self { step, error, log: String::new() }
    }

    fn code(&self) -> i32 {
        self.error.raw_os_error().unwrap_or(0)
    }

    /// True if another, slower way could still be possible: it was binding or attaching that failed, and neither
    /// because of rights nor because of other programs.
    pub(crate) fn leaves_other_ways(&self) -> bool {
        let is_about_the_way = matches!(self.step, Step::Bind { .. } | Step::Attach);
        is_about_the_way && !matches!(self.code(), EPERM | EACCES | EBUSY | EEXIST | ENODEV | ENETDOWN)
    }

    /// True if the queue may be free in a moment: the kernel cleans up behind a closed socket later.
    pub(crate) fn may_pass(&self) -> bool {
        matches!(self.step, Step::Bind { .. }) && self.code() == EBUSY
    }

    /// The error for people.
    pub(crate) fn failure(&self, interface: &str) -> Failure {
        let what = match self.step {
            Step::Interface => format!("AF_XDP cannot use the network interface {interface}"),
            Step::Socket => "cannot open an AF_XDP socket".into(),
            Step::Memory { bytes } => format!("no memory for the packets of a queue of {interface} ({} MiB)", bytes >> 20),
            Step::Rings => format!("cannot make the rings of an AF_XDP socket on {interface}"),
            Step::Bind { queue } => format!("cannot bind an AF_XDP socket to queue {queue} of {interface}"),
            Step::Maps => "cannot make the maps of the XDP program".into(),
            Step::Load => "the kernel does not load the XDP program".into(),
            Step::Attach => format!("cannot attach the XDP program to {interface}"),
        };
        let mut why = self.error.to_string();
        if self.lacks_rights() {
            why = format!("{why}: the program has no right to do so (CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF)");
        }
        if !self.log.is_empty() {
            why = format!("{why}; the kernel says of the program:\n{}", self.log);
        }
        Failure::new(Exit::Io, what, why, self.fix(interface))
    }

    /// With a log it is the program that was refused.
    fn lacks_rights(&self) -> bool {
        matches!(self.code(), EPERM | EACCES) && self.log.is_empty()
    }

    fn fix(&self, interface: &str) -> String {
        match (self.step, self.code()) {
            _ if self.lacks_rights() => rights::fix(&["net_raw", "net_admin", "bpf", "ipc_lock"], "AF_XDP"),
            (Step::Interface, EPFNOSUPPORT) => {
                "AF_XDP works on Ethernet cards, not on loopback and tunnels: set [source] address to that of a card".into()
            }
            (_, ENODEV) => "the interface has been removed; check it with `ip link`".into(),
            (_, ENETDOWN) => format!("switch the interface on: sudo ip link set {interface} up"),
            (Step::Socket, EAFNOSUPPORT) => {
                "this kernel was built without AF_XDP (CONFIG_XDP_SOCKETS), or systemd forbids it (RestrictAddressFamilies: \
                 add AF_XDP)"
                    .into()
            }
            (Step::Memory { bytes }, ENOBUFS) => format!(
                "raise the limit of locked memory to at least {} KiB (`ulimit -l`, LimitMEMLOCK= of systemd), or give the \
                 program the right cap_ipc_lock, or set a smaller [source] receive_buffer_mib",
                bytes >> 10
            ),
            (Step::Memory { .. }, ENOMEM) => format!(
                "set a smaller [source] receive_buffer_mib, or fewer queues (sudo ethtool -L {interface} combined N), or end \
                 other programs"
            ),
            (Step::Bind { .. }, EBUSY) => {
                "another program has an AF_XDP socket on this queue (`ss --xdp` shows it); stop it".into()
            }
            (Step::Bind { queue }, EINVAL) => format!(
                "check that the interface has queue {queue} (`ethtool -l {interface}`). If its MTU is above 3500, the kernel \
                 must be 6.6 or newer and its driver must take packets in several buffers"
            ),
            (Step::Attach, EBUSY | EEXIST) => {
                format!("another XDP program is attached (`ip link show {interface}`, `bpftool net`); detach it first")
            }
            (Step::Attach, ERANGE | EINVAL | EOPNOTSUPP) => {
                format!("the driver takes no XDP program at this MTU (`ip link show {interface}`); lower it")
            }
            (Step::Load, _) => "kernel 5.18 or newer is needed".into(),
            _ => "look at the system log (dmesg)".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cause_says_what_to_do() {
        let cases = [
            (Step::Socket, EPERM, "setcap cap_net_raw,cap_net_admin,cap_bpf,cap_ipc_lock+ep"),
            (Step::Maps, EPERM, "cap_bpf"),
            (Step::Attach, EPERM, "cap_net_admin"),
            (Step::Socket, EAFNOSUPPORT, "CONFIG_XDP_SOCKETS"),
            (Step::Bind { queue: 3 }, ENODEV, "ip link"),
            (Step::Interface, EPFNOSUPPORT, "Ethernet"),
            (Step::Memory { bytes: 64 << 20 }, ENOBUFS, "65536 KiB"),
            (Step::Bind { queue: 3 }, EBUSY, "another program"),
            (Step::Bind { queue: 3 }, ENETDOWN, "ip link set eth7 up"),
            (Step::Bind { queue: 3 }, EINVAL, "queue 3"),
            (Step::Attach, EBUSY, "detach it first"),
            (Step::Attach, ERANGE, "MTU"),
            (Step::Rings, EINVAL, "dmesg"),
        ];
        for (step, code, expected) in cases {
            let failure = Refusal::of(step)(io::Error::from_raw_os_error(code)).failure("eth7");
            assert!(failure.fix.contains(expected), "{step:?} {code}: {failure:?}");
            assert!(!failure.why.is_empty() && !failure.what.is_empty());
        }
    }

    #[test]
    fn the_words_of_the_verifier_are_shown() {
        let error = io::Error::from_raw_os_error(EACCES);
        let refusal = Refusal { step: Step::Load, error, log: "R3 invalid mem access 'scalar'".into() };
        let failure = refusal.failure("eth7");
        assert!(failure.why.contains("R3 invalid mem access"), "{failure:?}");
        assert!(!failure.fix.contains("setcap"), "{failure:?}");
    }

    #[test]
    fn slower_ways_are_tried_only_where_they_could_help() {
        let refusal = |step, code| Refusal::of(step)(io::Error::from_raw_os_error(code));
        assert!(refusal(Step::Bind { queue: 0 }, EOPNOTSUPP).leaves_other_ways());
        assert!(refusal(Step::Attach, ERANGE).leaves_other_ways());
        assert!(!refusal(Step::Attach, EBUSY).leaves_other_ways());
        assert!(!refusal(Step::Bind { queue: 0 }, EBUSY).leaves_other_ways());
        assert!(!refusal(Step::Socket, EPERM).leaves_other_ways());
        assert!(!refusal(Step::Load, EINVAL).leaves_other_ways());
        assert!(refusal(Step::Bind { queue: 0 }, EBUSY).may_pass());
        assert!(!refusal(Step::Attach, EBUSY).may_pass());
    }
}
