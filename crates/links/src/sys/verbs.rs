//! libibverbs, opened at run time: the devices, and queue pairs that write into memory of others.
//!
//! `ibv_post_send`, `ibv_post_recv` and `ibv_poll_cq` are inline in its header, and go through the table of functions
//! of the device. None of this has ever run on a card.

pub(crate) mod packets;

use super::library::{Library, functions};
use super::memory::Memory;
use super::verbs_abi::*;
use super::verbs_states::{Address, Port, Service, Step, change};
use crate::device::{Completion, Device, Place};
use std::collections::hash_map::RandomState;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::hash::{BuildHasher, Hasher};
use std::net::IpAddr;
use std::ptr::{NonNull, null_mut};
use std::sync::OnceLock;

const ABSENT: &str = "install libibverbs (Debian: apt-get install rdma-core ibverbs-providers) on this host, then try again";
const NO_DEVICE: &str = "this host has no RDMA device: it needs a card whose kernel module is loaded (for example mlx5_ib, irdma or \
    bnxt_re; 'lsmod | grep ib_uverbs' and 'rdma link' show it) and the package rdma-core; until then use the link 'tcp'";
/// Receives that are posted: the writes with events which the other side may make ahead.
const RECEIVES: u32 = 1024;
/// Completions that are taken at once.
const BATCH: usize = 64;
/// Marks the completion of a receive.
const RECEIVE: u64 = u64::MAX;

functions! {
    /// The functions that are no tables.
    Functions {
        ibv_get_device_list: unsafe extern "C" fn(*mut c_int) -> *mut *mut c_void,
        ibv_free_device_list: unsafe extern "C" fn(*mut *mut c_void),
        ibv_get_device_name: unsafe extern "C" fn(*mut c_void) -> *const c_char,
        ibv_open_device: unsafe extern "C" fn(*mut c_void) -> *mut ibv_context,
        ibv_close_device: unsafe extern "C" fn(*mut ibv_context) -> c_int,
        ibv_query_port: unsafe extern "C" fn(*mut ibv_context, u8, *mut ibv_port_attr) -> c_int,
        ibv_query_gid: unsafe extern "C" fn(*mut ibv_context, u8, c_int, *mut [u64; 2]) -> c_int,
        ibv_alloc_pd: unsafe extern "C" fn(*mut ibv_context) -> *mut ibv_pd,
        ibv_dealloc_pd: unsafe extern "C" fn(*mut ibv_pd) -> c_int,
        ibv_reg_mr: unsafe extern "C" fn(*mut ibv_pd, *mut c_void, usize, c_int) -> *mut ibv_mr,
        ibv_dereg_mr: unsafe extern "C" fn(*mut ibv_mr) -> c_int,
        ibv_create_comp_channel: unsafe extern "C" fn(*mut ibv_context) -> *mut ibv_comp_channel,
        ibv_destroy_comp_channel: unsafe extern "C" fn(*mut ibv_comp_channel) -> c_int,
        ibv_get_cq_event: unsafe extern "C" fn(*mut ibv_comp_channel, *mut *mut ibv_cq, *mut *mut c_void) -> c_int,
        ibv_ack_cq_events: unsafe extern "C" fn(*mut ibv_cq, c_uint),
        ibv_create_cq: unsafe extern "C" fn(*mut ibv_context, c_int, *mut c_void, *mut ibv_comp_channel, c_int) -> *mut ibv_cq,
        ibv_destroy_cq: unsafe extern "C" fn(*mut ibv_cq) -> c_int,
        ibv_create_qp: unsafe extern "C" fn(*mut ibv_pd, *mut ibv_qp_init_attr) -> *mut ibv_qp,
        ibv_modify_qp: unsafe extern "C" fn(*mut ibv_qp, *mut ibv_qp_attr, c_int) -> c_int,
        ibv_destroy_qp: unsafe extern "C" fn(*mut ibv_qp) -> c_int,
        ibv_wc_status_str: unsafe extern "C" fn(c_int) -> *const c_char,
    }
}

/// The library, opened when it is first needed, or why it is not there and how to get it.
fn functions() -> Result<&'static Functions, String> {
    static FUNCTIONS: OnceLock<Result<Functions, String>> = OnceLock::new();
    let found = FUNCTIONS.get_or_init(|| {
        Library::open(c"libibverbs.so.1").and_then(|library| Functions::find(&library)).map_err(|why| format!("{why}; {ABSENT}"))
    });
    found.as_ref().map_err(Clone::clone)
}

/// The failure of a call that leaves its reason in `errno`.
fn failed(call: &str) -> String {
    format!("{call}: {}", std::io::Error::last_os_error())
}

/// The failure of a call that returns its reason.
fn said(call: &str, code: c_int) -> String {
    format!("{call}: {}", std::io::Error::from_raw_os_error(code.abs()))
}

/// Calls `with` for each device, with its name, until it returns something.
fn each_device<T>(mut with: impl FnMut(&Functions, *mut c_void, String) -> Option<T>) -> Result<Option<T>, String> {
    let functions = functions()?;
    let mut count = 0;
    // SAFETY: the list ends with null, is freed once, and its devices are used before; names are C strings.
    unsafe {
        let list = (functions.ibv_get_device_list)(&raw mut count);
        if list.is_null() {
            return Err(format!("{}; {NO_DEVICE}", failed("ibv_get_device_list")));
        }
        let mut found = None;
        for n in 0..usize::try_from(count).unwrap_or(0) {
            let device = *list.add(n);
            let name = CStr::from_ptr((functions.ibv_get_device_name)(device)).to_string_lossy().into_owned();
            found = with(functions, device, name);
            if found.is_some() {
                break;
            }
        }
        (functions.ibv_free_device_list)(list);
        Ok(found)
    }
}

/// The names of the devices; an error where there is none says what to do.
pub(crate) fn devices() -> Result<Vec<String>, String> {
    let mut names = Vec::new();
    each_device::<()>(|_, _, name| {
        names.push(name);
        None
    })?;
    if names.is_empty() { Err(NO_DEVICE.into()) } else { Ok(names) }
}

/// An object of the library, which is destroyed when it is dropped.
struct Object<T> {
    object: NonNull<T>,
    destroy: unsafe extern "C" fn(*mut T) -> c_int,
}

impl<T> Object<T> {
    fn made(call: &str, object: *mut T, destroy: unsafe extern "C" fn(*mut T) -> c_int) -> Result<Self, String> {
        NonNull::new(object).map(|object| Self { object, destroy }).ok_or_else(|| failed(call))
    }

    fn at(&self) -> *mut T {
        self.object.as_ptr()
    }
}

impl<T> Drop for Object<T> {
    fn drop(&mut self) {
        // SAFETY: the object is there and destroyed once, after those that need it (order of fields). If the library
        // refuses, the object stays until the program ends.
        unsafe { (self.destroy)(self.at()) };
    }
}

/// Memory that is registered.
struct Registered {
    // Before the memory: ended before it is freed.
    registration: Object<ibv_mr>,
    memory: Memory,
}

/// A queue pair that writes to one other, and into whose memory that one writes.
pub(crate) struct QueuePair {
    functions: &'static Functions,
    service: Service,
    port: Port,
    here: Address,
    address: Vec<u8>,
    // In the order in which they have to be destroyed.
    queue_pair: Object<ibv_qp>,
    queue: Object<ibv_cq>,
    regions: Vec<Registered>,
    slots: Registered,
    domain: Object<ibv_pd>,
    context: Object<ibv_context>,
}

// SAFETY: the library takes calls from every thread; the objects belong to this value alone.
unsafe impl Send for QueuePair {}

impl QueuePair {
    /// Opens a queue pair on port 1 of the device, or of the first one; `host` is an address of its network.
    pub(crate) fn open(device: Option<&str>, service: Service, host: IpAddr) -> Result<Self, String> {
        let names = devices()?;
        if let Some(wanted) = device.filter(|wanted| !names.iter().any(|name| name == wanted)) {
            return Err(format!("there is no RDMA device '{wanted}'; there are: {}", names.join(", ")));
        }
        let opened = each_device(|functions, handle, name| {
            // SAFETY: the device is one of the list, which is not freed yet.
            (device.is_none_or(|wanted| wanted == name)).then(|| unsafe { ((functions.ibv_open_device)(handle), name) })
        })?;
        let (context, name) = opened.ok_or(NO_DEVICE)?;
        let functions = functions()?;
        let context = Object::made("ibv_open_device", context, functions.ibv_close_device)?;
        let (port, gid, attributes) = find_port(functions, &context, &name, host)?;
        // SAFETY: each call gets objects that are there and structures that live during the call; zeros are valid.
        unsafe {
            let domain = (functions.ibv_alloc_pd)(context.at());
            let domain = Object::made("ibv_alloc_pd", domain, functions.ibv_dealloc_pd)?;
            let entries = Self::SLOTS as c_int + RECEIVES as c_int;
            let queue = (functions.ibv_create_cq)(context.at(), entries, null_mut(), null_mut(), 0);
            let queue = Object::made("ibv_create_cq", queue, functions.ibv_destroy_cq)?;
            let mut wanted: ibv_qp_init_attr = std::mem::zeroed();
            (wanted.send_cq, wanted.recv_cq) = (queue.at(), queue.at());
            wanted.qp_type = service.queue_pair_type();
            wanted.cap.max_send_wr = Self::SLOTS as u32;
            wanted.cap.max_recv_wr = RECEIVES;
            (wanted.cap.max_send_sge, wanted.cap.max_recv_sge) = (1, 1);
            let queue_pair = (functions.ibv_create_qp)(domain.at(), &raw mut wanted);
            let queue_pair = Object::made("ibv_create_qp", queue_pair, functions.ibv_destroy_qp)?;
            let here = Address {
                queue_pair: (*queue_pair.at()).qp_num,
                // Any number will do; a new one keeps packets of an earlier link out.
                first_psn: RandomState::new().build_hasher().finish() as u32 & 0xFF_FFFF,
                gid,
                lid: attributes.lid,
                mtu: u8::try_from(attributes.active_mtu).map_err(|_| "the port has no MTU")?,
            };
            let slots = registered(functions, &domain, Self::SLOTS * Self::SLOT_BYTES, IBV_ACCESS_LOCAL_WRITE)?;
            let address = here.encode(service);
            let regions = Vec::new();
            let made = Self { functions, service, port, here, address, queue_pair, queue, regions, slots, domain, context };
            // The other side is not known yet, and this step needs nothing of it.
            made.step(Step::Init, &here)?;
            for _ in 0..RECEIVES {
                made.post_receive()?;
            }
            Ok(made)
        }
    }

    fn step(&self, step: Step, there: &Address) -> Result<(), String> {
        let (mut set, mask) = change(step, self.service, self.port, &self.here, there);
        // SAFETY: the queue pair is there, and the structure lives during the call.
        let code = unsafe { (self.functions.ibv_modify_qp)(self.queue_pair.at(), &raw mut set, mask) };
        if code == 0 { Ok(()) } else { Err(said(&format!("ibv_modify_qp ({step:?})"), code)) }
    }

    /// A receive without memory: it takes the number of a write, whose bytes have their own place.
    fn post_receive(&self) -> Result<(), String> {
        let mut receive = ibv_recv_wr { wr_id: RECEIVE, next: null_mut(), sg_list: null_mut(), num_sge: 0 };
        let mut bad = null_mut();
        // SAFETY: the queue pair and the table of its device are there; the request is copied by the call.
        let code = unsafe {
            let post = (*self.context.at()).ops.post_recv.ok_or("the device has no ibv_post_recv")?;
            post(self.queue_pair.at(), &raw mut receive, &raw mut bad)
        };
        if code == 0 { Ok(()) } else { Err(said("ibv_post_recv", code)) }
    }

    /// What a completion of the card means.
    fn completion(&self, entry: &ibv_wc) -> Result<Completion, String> {
        if entry.status != IBV_WC_SUCCESS {
            return Ok(Completion::Failed(refused(self.functions, entry)));
        }
        match entry.opcode {
            IBV_WC_RECV_RDMA_WITH_IMM => {
                self.post_receive()?;
                Ok(Completion::Event(u32::from_be(entry.imm_data)))
            }
            IBV_WC_RDMA_WRITE => Ok(Completion::Written(entry.wr_id as usize)),
            other => Err(format!("ibv_poll_cq: a completion of kind {other}, which was not asked for")),
        }
    }
}

/// Port 1 of the device with its index and value of the GID, if it is up. On Ethernet the GID is that of RoCEv2 with
/// the address `host`, as the kernel lists them.
fn find_port(
    functions: &Functions,
    context: &Object<ibv_context>,
    name: &str,
    host: IpAddr,
) -> Result<(Port, [u8; 16], ibv_port_attr), String> {
    const NUMBER: u8 = 1;
    // SAFETY: zeros are valid; the device is open. The function fills the structure, or its first part.
    let (attributes, code) = unsafe {
        let mut attributes: ibv_port_attr = std::mem::zeroed();
        let code = (functions.ibv_query_port)(context.at(), NUMBER, &raw mut attributes);
        (attributes, code)
    };
    if code != 0 {
        return Err(said("ibv_query_port", code));
    }
    if attributes.state != IBV_PORT_ACTIVE {
        return Err(format!(
            "port {NUMBER} of {name} is not up (state {}); is its cable in, and the network up?",
            attributes.state
        ));
    }
    let is_ethernet = attributes.link_layer == IBV_LINK_LAYER_ETHERNET;
    let wanted = match host {
        IpAddr::V4(host) => host.to_ipv6_mapped().octets(),
        IpAddr::V6(host) => host.octets(),
    };
    for index in 0..attributes.gid_tbl_len {
        let mut gid = [0_u64; 2];
        // SAFETY: the device is open, and a GID has 16 bytes.
        if unsafe { (functions.ibv_query_gid)(context.at(), NUMBER, index, &raw mut gid) } != 0 {
            continue;
        }
        let gid: Vec<u8> = gid.iter().flat_map(|half| half.to_ne_bytes()).collect();
        let gid: [u8; 16] = gid.try_into().expect("two halves");
        let types = format!("/sys/class/infiniband/{name}/ports/{NUMBER}/gid_attrs/types/{index}");
        let is_v2 = || std::fs::read_to_string(&types).is_ok_and(|kind| kind.trim() == "RoCE v2");
        if !is_ethernet || (gid == wanted && is_v2()) {
            let gid_index = u8::try_from(index).map_err(|_| "the index of the GID is too large")?;
            return Ok((Port { number: NUMBER, gid_index, needs_gid: is_ethernet }, gid, attributes));
        }
    }
    Err(format!("{name} has no RoCEv2 address {host}; connect by an address of its network card ('rdma link' shows which it is)"))
}

fn registered(functions: &Functions, domain: &Object<ibv_pd>, length_bytes: usize, access: c_int) -> Result<Registered, String> {
    let memory = Memory::new(length_bytes).ok_or_else(|| format!("no machine has {length_bytes} bytes of memory"))?;
    // SAFETY: the domain is there; the memory has at least a page, and stays as long as the registration
    // (`Registered`).
    let made = unsafe { (functions.ibv_reg_mr)(domain.at(), memory.start().cast(), length_bytes.max(1), access) };
    let registration = Object::made("ibv_reg_mr", made, functions.ibv_dereg_mr)
        .map_err(|why| format!("{why}; is the limit of locked memory too low ('ulimit -l')?"))?;
    Ok(Registered { registration, memory })
}

/// Takes what a queue tells to be done, at most a batch: the entries, and how many of them are used.
fn completed(context: &Object<ibv_context>, queue: &Object<ibv_cq>) -> Result<([ibv_wc; BATCH], usize), String> {
    // SAFETY: zeros are valid; queue and table are there, and at most `BATCH` entries are written.
    let (entries, count) = unsafe {
        let mut entries: [ibv_wc; BATCH] = std::mem::zeroed();
        let poll = (*context.at()).ops.poll_cq.ok_or("the device has no ibv_poll_cq")?;
        let count = poll(queue.at(), BATCH as c_int, entries.as_mut_ptr());
        (entries, count)
    };
    Ok((entries, usize::try_from(count).map_err(|_| said("ibv_poll_cq", count))?))
}

/// Why something is not done, as the card says it.
fn refused(functions: &Functions, entry: &ibv_wc) -> String {
    // SAFETY: the function takes any number, and returns a C string of the library.
    let why = unsafe { CStr::from_ptr((functions.ibv_wc_status_str)(entry.status)) }.to_string_lossy();
    format!("the card reports: {why} (vendor's code {:#x})", entry.vendor_err)
}

impl Device for QueuePair {
    const SLOTS: usize = 16;
    const SLOT_BYTES: usize = 512 << 10;

    fn address(&self) -> &[u8] {
        &self.address
    }

    fn meet(&mut self, address: &[u8]) -> Result<(), String> {
        let there = Address::decode(address, self.service)?;
        self.step(Step::ReadyToReceive, &there)?;
        self.step(Step::ReadyToSend, &there)
    }

    fn register(&mut self, length_bytes: usize) -> Result<Place, String> {
        let access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
        let registered = registered(self.functions, &self.domain, length_bytes, access)?;
        // SAFETY: the registration is there.
        let key = unsafe { (*registered.registration.at()).rkey };
        let base = registered.memory.start() as u64;
        self.regions.push(registered);
        Ok(Place { key: key.into(), base })
    }

    fn read(&self, region: usize, offset_bytes: usize, into: &mut [u8]) -> bool {
        self.regions.get(region).is_some_and(|region| region.memory.read(offset_bytes, into))
    }

    fn write(&mut self, slot: usize, bytes: &[u8], event: Option<u32>, to: Place) -> Result<bool, String> {
        assert!(slot < Self::SLOTS && bytes.len() <= Self::SLOT_BYTES, "{} bytes from slot {slot}", bytes.len());
        let rkey = u32::try_from(to.key).map_err(|_| format!("a key of verbs has 32 bits, not {:#x}", to.key))?;
        self.slots.memory.put(slot * Self::SLOT_BYTES, bytes);
        // SAFETY: zeros are valid. The bytes lie in registered memory and stay untouched until the completion comes
        // (the caller holds the slot so long); the request and its one entry are copied by the call.
        let code = unsafe {
            let mut entry = ibv_sge {
                addr: self.slots.memory.start().add(slot * Self::SLOT_BYTES) as u64,
                length: bytes.len() as u32,
                lkey: (*self.slots.registration.at()).lkey,
            };
            let mut request: ibv_send_wr = std::mem::zeroed();
            request.wr_id = slot as u64;
            request.sg_list = &raw mut entry;
            request.num_sge = c_int::from(!bytes.is_empty());
            request.opcode = if event.is_some() { IBV_WR_RDMA_WRITE_WITH_IMM } else { IBV_WR_RDMA_WRITE };
            request.send_flags = IBV_SEND_SIGNALED;
            request.imm_data = event.unwrap_or(0).to_be();
            request.wr.remote_addr = to.base;
            request.wr.rkey = rkey;
            let mut bad = null_mut();
            let post = (*self.context.at()).ops.post_send.ok_or("the device has no ibv_post_send")?;
            post(self.queue_pair.at(), &raw mut request, &raw mut bad)
        };
        match code {
            0 => Ok(true),
            libc::ENOMEM | libc::EAGAIN => Ok(false),
            _ => Err(said("ibv_post_send", code)),
        }
    }

    fn completions(&mut self, happened: &mut Vec<Completion>) -> Result<(), String> {
        let (entries, count) = completed(&self.context, &self.queue)?;
        for entry in &entries[..count] {
            happened.push(self.completion(entry)?);
        }
        Ok(())
    }

    fn keeps_order(&self) -> bool {
        true
    }

    fn events_ahead_max(&self) -> Option<u64> {
        Some(RECEIVES.into())
    }
}
