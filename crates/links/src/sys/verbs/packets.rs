//! Queue pairs of type "raw packet": the card writes the Ethernet frames for one UDP port into memory of this program,
//! past the kernel, and a rule of the card ("flow") says which ones. The sender knows nothing of RDMA.
//!
//! **None of this has ever run on a card.**

use super::{BATCH, Object, Registered, completed, devices, each_device, failed, refused, registered, said};
use crate::sys::verbs_abi::*;
use std::ffi::c_int;
use std::net::{IpAddr, SocketAddr};
use std::ptr::null_mut;
use std::time::Duration;

/// Fewest frames that a card has to take ahead.
const SLOTS_MIN: usize = 64;
const NO_RULE: &str = "the driver of the card takes no rules by UDP port (ibv_create_flow); mlx5 does";

/// Which frames a queue takes, and how many it holds.
#[derive(Clone, Debug)]
pub struct FrameQueueSpec {
    /// The RDMA device, and its port.
    pub device: String,
    /// Number of the port, from 1.
    pub port: u8,
    /// Ethernet address of the port.
    pub mac: [u8; 6],
    /// Destination of the datagrams.
    pub to: SocketAddr,
    /// Bytes of the longest frame.
    pub frame_bytes_max: usize,
    /// Frames that may wait; the card may hold fewer ([`FrameQueue::slots`]).
    pub slots: usize,
}

/// A frame that has arrived; its memory goes back to the card when it was seen.
#[derive(Clone, Copy, Debug)]
pub struct ReceivedFrame<'a> {
    /// From the Ethernet header on.
    pub bytes: &'a [u8],
    /// The card has compared the checksums of IP and UDP.
    pub is_verified: bool,
}

/// The frames of one UDP port.
pub struct FrameQueue {
    // In the order in which they have to be destroyed.
    _rule: Rule,
    queue_pair: Object<ibv_qp>,
    queue: Object<ibv_cq>,
    channel: Object<ibv_comp_channel>,
    memory: Registered,
    _domain: Object<ibv_pd>,
    context: Object<ibv_context>,
    slots: usize,
    slot_bytes: usize,
    /// Receives that are given to the card together.
    requests: Vec<ibv_recv_wr>,
    places: Vec<ibv_sge>,
}

// SAFETY: the library takes calls from every thread; the objects belong to this value alone.
unsafe impl Send for FrameQueue {}

/// A rule of the card, ended when it is dropped.
struct Rule {
    flow: *mut ibv_flow,
    destroy: unsafe extern "C" fn(*mut ibv_flow) -> c_int,
}

impl Drop for Rule {
    fn drop(&mut self) {
        // SAFETY: the rule is there, and ended once, before its queue pair.
        unsafe { (self.destroy)(self.flow) };
    }
}

impl FrameQueue {
    /// Opens a queue and begins to receive. The error says what is absent or was refused.
    pub fn open(spec: &FrameQueueSpec) -> Result<Self, String> {
        let names = devices()?;
        let opened = each_device(|functions, handle, name| {
            // SAFETY: the device is one of the list, which is not freed yet.
            (name == spec.device).then(|| unsafe { (functions.ibv_open_device)(handle) })
        })?;
        let no_device = || format!("there is no RDMA device '{}'; there are: {}", spec.device, names.join(", "));
        let functions = super::functions()?;
        let context = Object::made("ibv_open_device", opened.ok_or_else(no_device)?, functions.ibv_close_device)?;
        // Receive slots begin at cache lines.
        let slot_bytes = spec.frame_bytes_max.next_multiple_of(64);
        // SAFETY: each call gets objects that are there and structures that live during the call; zeros are valid.
        unsafe {
            let domain = (functions.ibv_alloc_pd)(context.at());
            let domain = Object::made("ibv_alloc_pd", domain, functions.ibv_dealloc_pd)?;
            let channel = (functions.ibv_create_comp_channel)(context.at());
            let channel = Object::made("ibv_create_comp_channel", channel, functions.ibv_destroy_comp_channel)?;
            let (queue, queue_pair, slots) = queues(functions, &context, &domain, &channel, spec.slots)?;
            let memory = registered(functions, &domain, slots * slot_bytes, IBV_ACCESS_LOCAL_WRITE)?;
            step(functions, &queue_pair, IBV_QPS_INIT, spec.port)?;
            let (requests, places) = (Vec::with_capacity(BATCH), Vec::with_capacity(BATCH));
            let mut slot_numbers = 0..slots;
            let rule = Rule { flow: null_mut(), destroy: no_rule_yet };
            let mut made = Self {
                _rule: rule,
                queue_pair,
                queue,
                channel,
                memory,
                _domain: domain,
                context,
                slots,
                slot_bytes,
                requests,
                places,
            };
            while !slot_numbers.is_empty() {
                slot_numbers.by_ref().take(BATCH).for_each(|slot| made.prepare(slot));
                made.post()?;
            }
            step(functions, &made.queue_pair, IBV_QPS_RTR, spec.port)?;
            made._rule = steer(&made.context, &made.queue_pair, spec)?;
            Ok(made)
        }
    }

    /// Frames that may wait here.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Memory of the frames.
    pub fn memory_bytes(&self) -> usize {
        self.slots * self.slot_bytes
    }

    /// Lends the frames that are there, at most one batch; returns their number.
    pub fn take(&mut self, take: &mut dyn FnMut(ReceivedFrame<'_>)) -> Result<usize, String> {
        let (entries, count) = completed(&self.context, &self.queue)?;
        for entry in &entries[..count] {
            if entry.status != IBV_WC_SUCCESS {
                return Err(refused(super::functions()?, entry));
            }
            let (slot, bytes) = (entry.wr_id as usize, entry.byte_len as usize);
            if slot >= self.slots || bytes > self.slot_bytes {
                return Err(format!(
                    "the card reports {bytes} bytes in slot {slot}; there are {} of {}",
                    self.slots, self.slot_bytes
                ));
            }
            // SAFETY: the bytes lie in the slot (line above), and the card, which has reported it, writes into it again
            // only when it is posted, which is after the loan.
            let bytes = unsafe { std::slice::from_raw_parts(self.memory.memory.start().add(slot * self.slot_bytes), bytes) };
            take(ReceivedFrame { bytes, is_verified: entry.wc_flags & IBV_WC_IP_CSUM_OK != 0 });
            self.prepare(slot);
        }
        if count > 0 {
            self.post()?;
        }
        Ok(count)
    }

    /// Asks for an event when the next frame comes, for [`Self::wait`]. A frame that came before it makes none, so look
    /// once more with [`Self::take`] in between.
    pub fn arm(&mut self) -> Result<(), String> {
        // SAFETY: queue and table are there.
        let code = unsafe {
            let notify = (*self.context.at()).ops.req_notify_cq.ok_or("the device has no ibv_req_notify_cq")?;
            notify(self.queue.at(), 0)
        };
        if code == 0 { Ok(()) } else { Err(said("ibv_req_notify_cq", code)) }
    }

    /// Waits for the event, at most `timeout`.
    pub fn wait(&mut self, timeout: Duration) -> Result<(), String> {
        let functions = super::functions()?;
        let timeout_ms = c_int::try_from(timeout.as_millis()).unwrap_or(c_int::MAX);
        // SAFETY: queue and channel are there; the descriptor is that of the channel, and an event is only taken where
        // one is.
        unsafe {
            let mut waited = libc::pollfd { fd: (*self.channel.at()).fd, events: libc::POLLIN, revents: 0 };
            if libc::poll(&raw mut waited, 1, timeout_ms) <= 0 {
                return Ok(());
            }
            let (mut queue, mut of_user) = (null_mut(), null_mut());
            if (functions.ibv_get_cq_event)(self.channel.at(), &raw mut queue, &raw mut of_user) != 0 {
                return Err(failed("ibv_get_cq_event"));
            }
            (functions.ibv_ack_cq_events)(self.queue.at(), 1);
        }
        Ok(())
    }

    /// Notes a receive into a slot.
    fn prepare(&mut self, slot: usize) {
        // SAFETY: the slot is one of the memory, and the registration is there.
        let place = unsafe {
            let addr = self.memory.memory.start().add(slot * self.slot_bytes) as u64;
            ibv_sge { addr, length: self.slot_bytes as u32, lkey: (*self.memory.registration.at()).lkey }
        };
        self.places.push(place);
        self.requests.push(ibv_recv_wr { wr_id: slot as u64, next: null_mut(), sg_list: null_mut(), num_sge: 1 });
    }

    /// Gives all noted slots to the card, in one call.
    fn post(&mut self) -> Result<(), String> {
        let (mut next, places) = (null_mut(), self.places.as_mut_ptr());
        for (n, request) in self.requests.iter_mut().enumerate().rev() {
            // SAFETY: there are as many places as requests.
            request.sg_list = unsafe { places.add(n) };
            request.next = next;
            next = std::ptr::from_mut(request);
        }
        let mut bad = null_mut();
        // SAFETY: queue pair and table are there; the chain ends with null and lives during the call, which copies it.
        let code = unsafe {
            let post = (*self.context.at()).ops.post_recv.ok_or("the device has no ibv_post_recv")?;
            post(self.queue_pair.at(), next, &raw mut bad)
        };
        self.places.clear();
        self.requests.clear();
        if code == 0 { Ok(()) } else { Err(said("ibv_post_recv", code)) }
    }
}

/// Stands where no rule was made yet.
unsafe extern "C" fn no_rule_yet(_: *mut ibv_flow) -> c_int {
    0
}

type Queues = (Object<ibv_cq>, Object<ibv_qp>, usize);

/// Completion queue and queue pair for as many slots as the card has, at most `wanted`.
///
/// # Safety
/// The objects are there.
unsafe fn queues(
    functions: &super::Functions,
    context: &Object<ibv_context>,
    domain: &Object<ibv_pd>,
    channel: &Object<ibv_comp_channel>,
    wanted: usize,
) -> Result<Queues, String> {
    let mut slots = wanted.max(SLOTS_MIN).next_power_of_two();
    loop {
        // SAFETY: the caller's objects are there; the structure lives during the call, and zeros are valid.
        let made = unsafe {
            let queue = (functions.ibv_create_cq)(context.at(), slots as c_int, null_mut(), channel.at(), 0);
            Object::made("ibv_create_cq", queue, functions.ibv_destroy_cq).and_then(|queue| {
                let mut wanted: ibv_qp_init_attr = std::mem::zeroed();
                (wanted.send_cq, wanted.recv_cq) = (queue.at(), queue.at());
                wanted.qp_type = IBV_QPT_RAW_PACKET;
                (wanted.cap.max_recv_wr, wanted.cap.max_recv_sge) = (slots as u32, 1);
                let queue_pair = (functions.ibv_create_qp)(domain.at(), &raw mut wanted);
                let queue_pair = Object::made("ibv_create_qp", queue_pair, functions.ibv_destroy_qp)?;
                Ok((queue, queue_pair, slots))
            })
        };
        // A card says in no other way how many it has; without rights fewer do not help.
        let is_right = std::io::Error::last_os_error().raw_os_error() == Some(libc::EPERM);
        match made {
            Err(why) if is_right => return Err(format!("{why}; raw packets need CAP_NET_RAW")),
            Err(why) if slots <= SLOTS_MIN => return Err(why),
            Err(_) => slots /= 2,
            Ok(made) => return Ok(made),
        }
    }
}

/// Brings the queue pair into the next state (`ibv_modify_qp(3)`, IBV_QPT_RAW_PACKET: the port for INIT, nothing else).
///
/// # Safety
/// The queue pair is there.
unsafe fn step(functions: &super::Functions, queue_pair: &Object<ibv_qp>, state: c_int, port: u8) -> Result<(), String> {
    // SAFETY: the structure lives during the call; zeros are valid.
    let code = unsafe {
        let mut set: ibv_qp_attr = std::mem::zeroed();
        (set.qp_state, set.port_num) = (state, port);
        let mask = if state == IBV_QPS_INIT { IBV_QP_STATE | IBV_QP_PORT } else { IBV_QP_STATE };
        (functions.ibv_modify_qp)(queue_pair.at(), &raw mut set, mask)
    };
    if code == 0 { Ok(()) } else { Err(said(&format!("ibv_modify_qp (state {state})"), code)) }
}

/// Sends the frames of the stream to the queue pair.
///
/// # Safety
/// Both objects are there.
unsafe fn steer(context: &Object<ibv_context>, queue_pair: &Object<ibv_qp>, spec: &FrameQueueSpec) -> Result<Rule, String> {
    // SAFETY: the context is there. One that is extended is the last part of a structure whose end we know, and whose
    // member `sz` says how much of it is there; that is compared before a member is read.
    let (create, destroy) = unsafe {
        if (*context.at()).abi_compat as usize != usize::MAX {
            return Err(NO_RULE.into());
        }
        let table = context.at().cast::<verbs_context_end>().sub(1);
        if (*table).sz < size_of::<verbs_context_end>() + size_of::<ibv_context>() {
            return Err(NO_RULE.into());
        }
        ((*table).ibv_create_flow.ok_or(NO_RULE)?, (*table).ibv_destroy_flow.ok_or(NO_RULE)?)
    };
    let flow = match rule_of(spec) {
        // SAFETY: the rule lives during the call, which reads as many bytes as its first part says.
        AnyRule::V4(mut rule) => unsafe { create(queue_pair.at(), (&raw mut rule).cast()) },
        // SAFETY: as above.
        AnyRule::V6(mut rule) => unsafe { create(queue_pair.at(), (&raw mut rule).cast()) },
    };
    if flow.is_null() {
        return Err(format!("{}; {NO_RULE}", failed("ibv_create_flow")));
    }
    Ok(Rule { flow, destroy })
}

/// What the card compares, in the form of the library: the parts follow each other without gaps.
#[repr(C)]
#[derive(Clone, Copy)]
struct RuleOf<Ip> {
    rule: ibv_flow_attr,
    ethernet: ibv_flow_spec_eth,
    ip: Ip,
    udp: ibv_flow_spec_tcp_udp,
}

enum AnyRule {
    V4(RuleOf<ibv_flow_spec_ipv4>),
    V6(RuleOf<ibv_flow_spec_ipv6>),
}

fn rule_of(spec: &FrameQueueSpec) -> AnyRule {
    // SAFETY: zeros are valid in all these structures; a mask of zeros compares nothing.
    let (mut ethernet, mut udp): (ibv_flow_spec_eth, ibv_flow_spec_tcp_udp) = unsafe { std::mem::zeroed() };
    (ethernet.r#type, ethernet.size) = (IBV_FLOW_SPEC_ETH, size_of::<ibv_flow_spec_eth>() as u16);
    (ethernet.val.dst_mac, ethernet.mask.dst_mac) = (spec.mac, [0xFF; 6]);
    (udp.r#type, udp.size) = (IBV_FLOW_SPEC_UDP, size_of::<ibv_flow_spec_tcp_udp>() as u16);
    (udp.val.dst_port, udp.mask.dst_port) = (spec.to.port().to_be(), 0xFFFF);
    let rule = |bytes: usize| ibv_flow_attr {
        comp_mask: 0,
        r#type: IBV_FLOW_ATTR_NORMAL,
        size: bytes as u16,
        priority: 0,
        num_of_specs: 3,
        port: spec.port,
        flags: 0,
    };
    match spec.to.ip() {
        IpAddr::V4(address) => {
            // SAFETY: zeros are valid.
            let mut ip: ibv_flow_spec_ipv4 = unsafe { std::mem::zeroed() };
            (ip.r#type, ip.size) = (IBV_FLOW_SPEC_IPV4, size_of::<ibv_flow_spec_ipv4>() as u16);
            (ip.val.dst_ip, ip.mask.dst_ip) = (u32::from_ne_bytes(address.octets()), u32::MAX);
            AnyRule::V4(RuleOf { rule: rule(size_of::<RuleOf<ibv_flow_spec_ipv4>>()), ethernet, ip, udp })
        }
        IpAddr::V6(address) => {
            // SAFETY: zeros are valid.
            let mut ip: ibv_flow_spec_ipv6 = unsafe { std::mem::zeroed() };
            (ip.r#type, ip.size) = (IBV_FLOW_SPEC_IPV6, size_of::<ibv_flow_spec_ipv6>() as u16);
            (ip.val.dst_ip, ip.mask.dst_ip) = (address.octets(), [0xFF; 16]);
            AnyRule::V6(RuleOf { rule: rule(size_of::<RuleOf<ibv_flow_spec_ipv6>>()), ethernet, ip, udp })
        }
    }
}

#[cfg(test)]
#[path = "packets_tests.rs"]
mod tests;
