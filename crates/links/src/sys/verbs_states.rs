//! The states through which a queue pair goes until it can write, and what each step has to set (`ibv_modify_qp(3)`).

use super::verbs_abi::*;
use std::ffi::c_int;

/// How a queue pair carries writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// RC: what is lost is sent again, and a write counts as done when the other card has it.
    Reliable,
    /// UC: what is lost stays lost, also in silence.
    Unreliable,
}

impl Service {
    pub(super) fn queue_pair_type(self) -> c_int {
        match self {
            Self::Reliable => IBV_QPT_RC,
            Self::Unreliable => IBV_QPT_UC,
        }
    }
}

/// The steps, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Receives may be posted.
    Init,
    /// Ready to receive: writes of the other side are taken.
    ReadyToReceive,
    /// Ready to send too.
    ReadyToSend,
}

/// What the other side has to know of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) queue_pair: u32,
    /// Number of the first packet that it sends.
    pub(super) first_psn: u32,
    pub(super) gid: [u8; 16],
    pub(super) lid: u16,
    /// `enum ibv_mtu` of its port.
    pub(super) mtu: u8,
}

impl Address {
    /// The fields in their order, numbers little endian, behind a byte for the service.
    pub(super) fn encode(&self, service: Service) -> Vec<u8> {
        let mut bytes = vec![u8::try_from(service.queue_pair_type()).expect("a small number")];
        bytes.extend(self.queue_pair.to_le_bytes());
        bytes.extend(self.first_psn.to_le_bytes());
        bytes.extend(self.gid);
        bytes.extend(self.lid.to_le_bytes());
        bytes.push(self.mtu);
        bytes
    }

    /// The address of a side with the same service.
    pub(super) fn decode(bytes: &[u8], service: Service) -> Result<Self, String> {
        let bytes: &[u8; 28] = bytes.try_into().map_err(|_| format!("an address of {} bytes; it has 28", bytes.len()))?;
        if c_int::from(bytes[0]) != service.queue_pair_type() {
            return Err("one side is reliable and the other is not; start both in the same way".into());
        }
        let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let address = Self {
            queue_pair: number(1),
            first_psn: number(5),
            gid: bytes[9..25].try_into().expect("sixteen bytes"),
            lid: u16::from_le_bytes([bytes[25], bytes[26]]),
            mtu: bytes[27],
        };
        match address.queue_pair < 1 << 24 && address.first_psn < 1 << 24 && (1..=5).contains(&address.mtu) {
            true => Ok(address),
            false => Err(format!("an address with a number out of its range: {address:?}")),
        }
    }
}

/// Where the card of this side is on its network.
#[derive(Clone, Copy, Debug)]
pub(super) struct Port {
    pub(super) number: u8,
    pub(super) gid_index: u8,
    /// Ethernet, and every other network with routers, needs the long address.
    pub(super) needs_gid: bool,
}

/// What a step sets: the structure, and which of its fields count.
pub(super) fn change(step: Step, service: Service, port: Port, here: &Address, there: &Address) -> (ibv_qp_attr, c_int) {
    // SAFETY: numbers only, all of which may be zero.
    let mut set: ibv_qp_attr = unsafe { std::mem::zeroed() };
    let is_reliable = service == Service::Reliable;
    let mask = match step {
        Step::Init => {
            set.qp_state = IBV_QPS_INIT;
            set.port_num = port.number;
            set.qp_access_flags = IBV_ACCESS_REMOTE_WRITE as u32;
            IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS
        }
        Step::ReadyToReceive => {
            set.qp_state = IBV_QPS_RTR;
            set.path_mtu = here.mtu.min(there.mtu).into();
            set.dest_qp_num = there.queue_pair;
            set.rq_psn = there.first_psn;
            set.ah_attr.port_num = port.number;
            set.ah_attr.dlid = there.lid;
            if port.needs_gid {
                let (high, low) = there.gid.split_at(8);
                set.ah_attr.is_global = 1;
                set.ah_attr.grh.dgid = [high, low].map(|half| u64::from_ne_bytes(half.try_into().expect("eight bytes")));
                set.ah_attr.grh.sgid_index = port.gid_index;
                set.ah_attr.grh.hop_limit = 64;
            }
            let reliable = if is_reliable { IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER } else { 0 };
            set.max_dest_rd_atomic = u8::from(is_reliable);
            // 0.64 ms until a write is tried again that found no receive.
            set.min_rnr_timer = if is_reliable { 12 } else { 0 };
            IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | reliable
        }
        Step::ReadyToSend => {
            set.qp_state = IBV_QPS_RTS;
            set.sq_psn = here.first_psn;
            if !is_reliable {
                return (set, IBV_QP_STATE | IBV_QP_SQ_PSN);
            }
            set.max_rd_atomic = 1;
            // 4.096 µs << 14 = 67 ms until an answer counts as lost; seven times, which is the most.
            set.timeout = 14;
            set.retry_cnt = 7;
            set.rnr_retry = 7;
            let reliable = IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_TIMEOUT;
            IBV_QP_STATE | IBV_QP_SQ_PSN | reliable
        }
    };
    (set, mask)
}

#[cfg(test)]
mod tests {
    use super::super::skip;
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};
    use std::process::Command;

    const HERE: Address = Address { queue_pair: 7, first_psn: 11, gid: [1; 16], lid: 3, mtu: 5 };
    const THERE: Address = Address {
        queue_pair: 0x123456,
        first_psn: 0x654321,
        gid: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 10, 0, 0, 2],
        lid: 9,
        mtu: 3,
    };
    const PORT: Port = Port { number: 2, gid_index: 3, needs_gid: true };
    const STEPS: [(&str, Step); 3] = [("Init", Step::Init), ("RTR", Step::ReadyToReceive), ("RTS", Step::ReadyToSend)];

    /// The masks of the manual page, by service and next state.
    fn of_the_manual(text: &str) -> BTreeMap<(String, String), BTreeSet<String>> {
        let mut found: BTreeMap<_, BTreeSet<String>> = BTreeMap::new();
        let (mut service, mut state) = (String::new(), String::new());
        for line in text.lines() {
            let mut words = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty());
            if line.contains("QP Transport Service Type") {
                service = words.find(|word| word.starts_with("IBV_QPT_")).unwrap_or_default().to_owned();
                state.clear();
            } else if !service.is_empty() {
                if let Some((name, _)) = STEPS.iter().find(|(name, _)| line.starts_with(name)) {
                    state = (*name).to_owned();
                }
                let masks = words.filter(|word| word.starts_with("IBV_QP_")).map(str::to_owned);
                found.entry((service.clone(), state.clone())).or_default().extend(masks);
            }
        }
        found
    }

    #[test]
    fn each_step_sets_what_the_manual_page_demands() {
        let page = "/usr/share/man/man3/ibv_modify_qp.3.gz";
        if !std::path::Path::new(page).exists() {
            return skip::skipped(&format!("no {page}; apt-get install libibverbs-dev"));
        }
        let text = Command::new("zcat").arg(page).output().unwrap();
        let manual = of_the_manual(&String::from_utf8(text.stdout).unwrap());
        let values: BTreeMap<&str, u64> = super::super::verbs_abi::constants().into_iter().collect();
        for (service, name) in [(Service::Reliable, "IBV_QPT_RC"), (Service::Unreliable, "IBV_QPT_UC")] {
            for (state, step) in STEPS {
                let names = &manual[&(name.to_owned(), state.to_owned())];
                assert!(names.len() >= 2, "{name} {state}: {names:?}");
                let demanded = names.iter().fold(0, |mask, name| mask | values[name.as_str()]);
                let (_, mask) = change(step, service, PORT, &HERE, &THERE);
                assert_eq!(mask as u64, demanded, "{name} {state}");
            }
        }
    }

    #[test]
    fn the_steps_take_each_number_from_its_side() {
        let (init, _) = change(Step::Init, Service::Unreliable, PORT, &HERE, &THERE);
        assert_eq!((init.qp_state, init.port_num, init.qp_access_flags), (1, 2, 2));
        let (receive, _) = change(Step::ReadyToReceive, Service::Reliable, PORT, &HERE, &THERE);
        assert_eq!((receive.qp_state, receive.path_mtu), (2, 3));
        assert_eq!((receive.dest_qp_num, receive.rq_psn), (0x123456, 0x654321));
        assert_eq!((receive.ah_attr.dlid, receive.ah_attr.port_num, receive.ah_attr.is_global), (9, 2, 1));
        assert_eq!(receive.ah_attr.grh.sgid_index, 3);
        let gid: Vec<u8> = receive.ah_attr.grh.dgid.iter().flat_map(|half| half.to_ne_bytes()).collect();
        assert_eq!(gid, THERE.gid);
        let (send, _) = change(Step::ReadyToSend, Service::Reliable, PORT, &HERE, &THERE);
        assert_eq!((send.qp_state, send.sq_psn, send.retry_cnt, send.rnr_retry), (3, 11, 7, 7));
        let short = Port { needs_gid: false, ..PORT };
        let (receive, _) = change(Step::ReadyToReceive, Service::Unreliable, short, &HERE, &THERE);
        assert_eq!((receive.ah_attr.is_global, receive.max_dest_rd_atomic, receive.min_rnr_timer), (0, 0, 0));
    }

    #[test]
    fn addresses_come_back_and_wrong_ones_are_refused() {
        let bytes = THERE.encode(Service::Unreliable);
        assert_eq!(Address::decode(&bytes, Service::Unreliable), Ok(THERE));
        assert!(Address::decode(&bytes, Service::Reliable).unwrap_err().contains("one side is reliable"));
        assert!(Address::decode(&bytes[1..], Service::Unreliable).unwrap_err().contains("27 bytes"));
        for (at, value) in [(4, 1), (8, 1), (27, 0), (27, 6)] {
            let mut bytes = bytes.clone();
            bytes[at] = value;
            assert!(Address::decode(&bytes, Service::Unreliable).unwrap_err().contains("out of its range"), "{at}");
        }
    }
}
