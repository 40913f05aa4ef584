//! libfabric, opened at run time: what it offers, and endpoints that write into memory of others.
//!
//! Most functions of libfabric are inline in its headers, and go through tables of functions at the objects.

use super::fabric_abi::*;
use super::library::{Library, functions};
use super::memory::Memory;
use super::signals::keeping_handlers;
use crate::device::{Completion, Device, Place};
use std::collections::hash_map::RandomState;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::hash::{BuildHasher, Hasher};
use std::net::IpAddr;
use std::ptr::{NonNull, null, null_mut};
use std::sync::OnceLock;

/// What to do where the library is absent.
const ABSENT: &str = "install libfabric (Debian: apt-get install libfabric1) on this host, then try again";
/// Entries of the completion queue: all own writes, and events of the other side between two looks.
const QUEUE_ENTRIES: usize = 2048;
/// Completions that are taken at once.
const BATCH: usize = 64;
/// Longest address of an endpoint that is taken.
const ADDRESS_BYTES_MAX: usize = 512;
/// More offers are not listed.
const OFFERS_MAX: usize = 1000;

functions! {
    /// The functions that are no tables.
    Functions {
        fi_version: unsafe extern "C" fn() -> u32,
        fi_getinfo: unsafe extern "C" fn(u32, *const c_char, *const c_char, u64, *const fi_info, *mut *mut fi_info) -> c_int,
        fi_dupinfo: unsafe extern "C" fn(*const fi_info) -> *mut fi_info,
        fi_freeinfo: unsafe extern "C" fn(*mut fi_info),
        fi_fabric: unsafe extern "C" fn(*mut fi_fabric_attr, *mut *mut fid_fabric, *mut c_void) -> c_int,
        fi_strerror: unsafe extern "C" fn(c_int) -> *const c_char,
    }
}

/// The library, opened when it is first needed, or why it is not there and how to get it.
fn functions() -> Result<&'static Functions, String> {
    static FUNCTIONS: OnceLock<Result<Functions, String>> = OnceLock::new();
    let found = FUNCTIONS.get_or_init(|| {
        Library::open(c"libfabric.so.1").and_then(|library| Functions::find(&library)).map_err(|why| format!("{why}; {ABSENT}"))
    });
    found.as_ref().map_err(Clone::clone)
}

/// Version of the library, for example `1.17`.
pub(crate) fn version() -> Result<String, String> {
    // SAFETY: the function takes nothing and returns a number.
    let number = unsafe { (functions()?.fi_version)() };
    Ok(format!("{}.{}", number >> 16, number & 0xFFFF))
}

/// What the library says of a number that it returned.
fn said(functions: &Functions, call: &str, code: impl Into<i64>) -> String {
    let code = code.into().unsigned_abs();
    // SAFETY: the function takes any number and returns a C string that lives as long as the library.
    let text = unsafe { CStr::from_ptr((functions.fi_strerror)(code.try_into().unwrap_or(c_int::MAX))) };
    format!("{call}: {} ({code})", text.to_string_lossy())
}

/// One way that libfabric offers for a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// What [`crate::libfabric::connect`] takes, for example `tcp;ofi_rxm` (or `tcp` for short) or `shm`.
    pub provider: String,
    /// The network or device, as the provider calls it.
    pub domain: String,
    /// Bytes that an event could have; 4 are used.
    pub event_bytes: usize,
    /// Are writes found in the order in which they were made? If not, each event waits for what was written before.
    pub keeps_order: bool,
    /// Does the provider make progress while nobody looks?
    pub progress_is_automatic: bool,
}

/// What the library offers for links: endpoints that write with events, and say when the bytes have arrived.
pub(crate) fn offers() -> Result<Vec<Offer>, String> {
    let functions = functions()?;
    let Some(all) = Info::find(functions, None, None)? else { return Ok(Vec::new()) };
    let mut offers = Vec::new();
    let mut next = all.list.as_ptr();
    while !next.is_null() && offers.len() < OFFERS_MAX {
        // SAFETY: a member of the list of the library, which lives as long as `all`; its parts are never null.
        let offer = unsafe {
            let (domain, fabric) = (&*(*next).domain_attr, &*(*next).fabric_attr);
            Offer {
                provider: text(fabric.prov_name),
                domain: text(domain.name),
                event_bytes: domain.cq_data_size,
                keeps_order: keeps_order(&*next),
                progress_is_automatic: domain.data_progress == FI_PROGRESS_AUTO,
            }
        };
        if !offers.contains(&offer) {
            offers.push(offer);
        }
        // SAFETY: as above.
        next = unsafe { (*next).next };
    }
    Ok(offers)
}

/// Do writes of any size that we make arrive in the order in which they began?
///
/// # Safety
/// The parts of `info` are valid, as in every structure of the library.
unsafe fn keeps_order(info: &fi_info) -> bool {
    // SAFETY: see above.
    let (transmit, receive, endpoint) = unsafe { (&*info.tx_attr, &*info.rx_attr, &*info.ep_attr) };
    transmit.msg_order & receive.msg_order & FI_ORDER_WAW != 0 && endpoint.max_order_waw_size >= Endpoint::SLOT_BYTES
}

/// The text at a pointer of the library, which may be null.
///
/// # Safety
/// `at` is null or a C string.
unsafe fn text(at: *const c_char) -> String {
    match at.is_null() {
        true => String::new(),
        // SAFETY: see above; the text is copied here.
        false => unsafe { CStr::from_ptr(at) }.to_string_lossy().into_owned(),
    }
}

/// A list of the library.
struct Info {
    functions: &'static Functions,
    list: NonNull<fi_info>,
}

impl Info {
    /// What fits a link by `provider`, or by any, at this address of the host.
    fn find(functions: &'static Functions, provider: Option<&str>, host: Option<IpAddr>) -> Result<Option<Self>, String> {
        // SAFETY: null makes an empty structure, with empty parts at its pointers.
        let hints = unsafe { (functions.fi_dupinfo)(null()) };
        let Some(hints) = NonNull::new(hints) else { return Err("fi_allocinfo: no memory".into()) };
        let hints = Self { functions, list: hints };
        let provider = provider.map(|name| CString::new(name).map_err(|_| "a name of a provider has no zero".to_owned()));
        let provider = provider.transpose()?;
        // SAFETY: the structure and its parts are there (see above), and nobody else has them. The library frees the
        // copy of the name with `free`, as `strdup` allocates it.
        unsafe {
            let info = &mut *hints.list.as_ptr();
            info.caps = FI_MSG | FI_RMA | FI_WRITE | FI_REMOTE_WRITE;
            info.mode = FI_CONTEXT | FI_CONTEXT2;
            (*info.ep_attr).r#type = FI_EP_RDM;
            let domain = &mut *info.domain_attr;
            domain.mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
            domain.threading = FI_THREAD_DOMAIN;
            domain.resource_mgmt = FI_RM_ENABLED;
            domain.cq_data_size = 4;
            (*info.tx_attr).op_flags = FI_DELIVERY_COMPLETE;
            if let Some(name) = &provider {
                (*info.fabric_attr).prov_name = libc::strdup(name.as_ptr());
            }
        }
        let host = host.map(|host| CString::new(host.to_string()).expect("an address has no zero"));
        let node = host.as_ref().map_or(null(), |host| host.as_ptr());
        let flags = if host.is_some() { FI_SOURCE | FI_NUMERICHOST } else { 0 };
        let mut list = null_mut();
        let (at, hints) = (&raw mut list, hints.list.as_ptr());
        // The first call opens the providers.
        // SAFETY: all pointers live during the call, or are null where that is allowed.
        let find = || unsafe { (functions.fi_getinfo)(API_VERSION, node, null(), flags, hints, at) };
        let code = keeping_handlers(find);
        match NonNull::new(list).filter(|_| code == 0) {
            Some(list) => Ok(Some(Self { functions, list })),
            None if code as isize == -FI_ENODATA || code == 0 => Ok(None),
            None => Err(said(functions, "fi_getinfo", code)),
        }
    }
}

impl Drop for Info {
    fn drop(&mut self) {
        // SAFETY: the list came from the library and is freed once; what was made with it does not point to it.
        unsafe { (self.functions.fi_freeinfo)(self.list.as_ptr()) }
    }
}

/// An object of the library, which is closed when it is dropped. It begins with a `fid`, as all of them do.
struct Object<T>(NonNull<T>);

impl<T> Object<T> {
    /// What a call made, if it did not fail.
    fn made(functions: &Functions, call: &str, code: c_int, object: *mut T) -> Result<Self, String> {
        match NonNull::new(object) {
            Some(object) if code == 0 => Ok(Self(object)),
            _ => Err(said(functions, call, code)),
        }
    }

    fn fid(&self) -> *mut fid {
        self.0.as_ptr().cast()
    }

    fn bind(&self, functions: &Functions, other: *mut fid, flags: u64) -> Result<(), String> {
        // SAFETY: both objects are open, and the table of functions of an open object is valid.
        let code = unsafe { wanted((*(*self.fid()).ops).bind)?(self.fid(), other, flags) };
        if code == 0 { Ok(()) } else { Err(said(functions, "fi_bind", code)) }
    }

    fn enable(&self, functions: &Functions) -> Result<(), String> {
        // SAFETY: as in `bind`; this command has no argument.
        let code = unsafe { wanted((*(*self.fid()).ops).control)?(self.fid(), FI_ENABLE, null_mut()) };
        if code == 0 { Ok(()) } else { Err(said(functions, "fi_enable", code)) }
    }
}

impl<T> Drop for Object<T> {
    fn drop(&mut self) {
        // SAFETY: the object is open and closed once; those that were made from it are closed before (order of fields).
        unsafe {
            if let Some(close) = (*(*self.fid()).ops).close {
                close(self.fid());
            }
        }
    }
}

/// An entry of a table of functions that the library must have.
fn wanted<F>(function: Option<F>) -> Result<F, String> {
    function.ok_or_else(|| format!("the library lacks a function ({})", std::any::type_name::<F>()))
}

/// Memory that is registered.
struct Registered {
    // Before the memory: closed before it is freed.
    registration: Object<fid_mr>,
    memory: Memory,
}

/// An endpoint that writes to one other, and into which that one writes.
pub(crate) struct Endpoint {
    functions: &'static Functions,
    address: Vec<u8>,
    other: Option<u64>,
    keeps_order: bool,
    mr_mode: c_int,
    key_bytes: usize,
    // What the library may write to as long as the endpoint is open; its place does not move.
    contexts: Box<[fi_context2]>,
    // In the order in which they have to be closed.
    endpoint: Object<fid_ep>,
    queue: Object<fid_cq>,
    addresses: Object<fid_av>,
    regions: Vec<Registered>,
    slots: Option<Registered>,
    domain: Object<fid_domain>,
    _fabric: Object<fid_fabric>,
}

// SAFETY: the library was asked for FI_THREAD_DOMAIN: one thread at a time may use a domain, whichever it is. Every
// call that uses it needs `&mut`, and the domain belongs to this value alone.
unsafe impl Send for Endpoint {}

impl Endpoint {
    /// Opens an endpoint of the provider, at an address of this host if the provider has such addresses.
    pub(crate) fn open(provider: &str, host: Option<IpAddr>) -> Result<Self, String> {
        let functions = functions()?;
        let info = Info::find(functions, Some(provider), host)?.ok_or_else(|| {
            let place = host.map_or(String::new(), |host| format!(" at {host}"));
            format!(
                "libfabric offers no provider '{provider}'{place} that writes with events; 'konkordia links' shows what it offers"
            )
        })?;
        // Providers take signals too when they are opened.
        keeping_handlers(|| Self::of(functions, &info))
    }

    fn of(functions: &'static Functions, info: &Info) -> Result<Self, String> {
        let list = info.list.as_ptr();
        // SAFETY: every call gets objects that are open, structures that live during the call, and a place for what it
        // makes; all parts of `info` are valid. Objects are closed in the reverse order if a later call fails.
        unsafe {
            (*(*list).tx_attr).op_flags |= FI_DELIVERY_COMPLETE;
            let mut fabric = null_mut();
            let code = (functions.fi_fabric)((*list).fabric_attr, &raw mut fabric, null_mut());
            let fabric = Object::made(functions, "fi_fabric", code, fabric)?;
            let mut domain = null_mut();
            let code = wanted((*fabric.0.as_ref().ops).domain)?(fabric.0.as_ptr(), list, &raw mut domain, null_mut());
            let domain = Object::made(functions, "fi_domain", code, domain)?;
            let table = &*domain.0.as_ref().ops;
            let mut addresses = null_mut();
            let mut vector = fi_av_attr { r#type: (*(*list).domain_attr).av_type, count: 1, ..std::mem::zeroed() };
            let code = wanted(table.av_open)?(domain.0.as_ptr(), &raw mut vector, &raw mut addresses, null_mut());
            let addresses = Object::made(functions, "fi_av_open", code, addresses)?;
            let mut queue = null_mut();
            let mut entries = fi_cq_attr { size: QUEUE_ENTRIES, format: FI_CQ_FORMAT_DATA, ..std::mem::zeroed() };
            let code = wanted(table.cq_open)?(domain.0.as_ptr(), &raw mut entries, &raw mut queue, null_mut());
            let queue = Object::made(functions, "fi_cq_open", code, queue)?;
            let mut endpoint = null_mut();
            let code = wanted(table.endpoint)?(domain.0.as_ptr(), list, &raw mut endpoint, null_mut());
            let endpoint = Object::made(functions, "fi_endpoint", code, endpoint)?;
            endpoint.bind(functions, addresses.fid(), 0)?;
            endpoint.bind(functions, queue.fid(), FI_TRANSMIT | FI_RECV)?;
            endpoint.enable(functions)?;
            let mut opened = Self {
                functions,
                address: name_of(functions, &endpoint)?,
                other: None,
                keeps_order: keeps_order(&*list),
                mr_mode: (*(*list).domain_attr).mr_mode,
                key_bytes: (*(*list).domain_attr).mr_key_size,
                contexts: vec![fi_context2 { internal: [null_mut(); 8] }; Self::SLOTS].into(),
                endpoint,
                queue,
                addresses,
                regions: Vec::new(),
                slots: None,
                domain,
                _fabric: fabric,
            };
            opened.slots = Some(opened.registered(Self::SLOTS * Self::SLOT_BYTES, FI_WRITE)?);
            Ok(opened)
        }
    }

    fn registered(&self, length_bytes: usize, access: u64) -> Result<Registered, String> {
        let Some(memory) = Memory::new(length_bytes) else {
            return Err(format!("no machine has {length_bytes} bytes of memory"));
        };
        // Providers that do not choose keys take ours; another region must not have it, and nobody can guess it.
        let key = RandomState::new().build_hasher().finish();
        let key = if self.key_bytes >= 8 { key } else { key & ((1 << (8 * self.key_bytes)) - 1) };
        let mut made = null_mut();
        let length = memory.length_bytes().max(1);
        // SAFETY: the domain is open and its tables are valid; the memory has at least one page, and stays where it is
        // as long as the registration, which `Registered` closes first.
        let code = unsafe {
            let register = wanted((*self.domain.0.as_ref().mr).reg)?;
            register(self.domain.fid(), memory.start().cast(), length, access, 0, key, 0, &raw mut made, null_mut())
        };
        let registration = Object::made(self.functions, "fi_mr_reg", code, made)?;
        if self.mr_mode & FI_MR_ENDPOINT != 0 {
            registration.bind(self.functions, self.endpoint.fid(), 0)?;
            registration.enable(self.functions)?;
        }
        Ok(Registered { registration, memory })
    }

    /// The text of an entry about a failed operation.
    fn failure(&mut self) -> Result<Completion, String> {
        // Later versions of the library have more fields behind; there is room for them.
        #[repr(C)]
        struct Entry {
            known: fi_cq_err_entry,
            later: [u64; 8],
        }
        // SAFETY: zeros are valid; the queue is open, and the library writes at most its own version of the entry.
        let (mut entry, read) = unsafe {
            let mut entry: Entry = std::mem::zeroed();
            let read = wanted((*self.queue.0.as_ref().ops).readerr)?(self.queue.0.as_ptr(), &raw mut entry.known, 0);
            (entry, read)
        };
        if read < 0 {
            return Err(said(self.functions, "fi_cq_readerr", read as i64));
        }
        let mut detail = [0_u8; 256];
        let known = &mut entry.known;
        // SAFETY: as above; `detail` has room for its size, and what is returned is null or a C string.
        let detail = unsafe {
            let strerror = wanted((*self.queue.0.as_ref().ops).strerror)?;
            let buffer = detail.as_mut_ptr().cast();
            text(strerror(self.queue.0.as_ptr(), known.prov_errno, known.err_data, buffer, detail.len() - 1))
        };
        let way = if known.flags & FI_REMOTE_WRITE != 0 { "a write of the other side" } else { "a write" };
        Ok(Completion::Failed(format!("{}: {detail}", said(self.functions, way, known.err))))
    }

    /// Which slot the library means by a context.
    fn slot_of(&self, context: *mut c_void) -> Option<usize> {
        let bytes = (context as usize).checked_sub(self.contexts.as_ptr() as usize)?;
        let slot = bytes / size_of::<fi_context2>();
        (bytes.is_multiple_of(size_of::<fi_context2>()) && slot < self.contexts.len()).then_some(slot)
    }
}

/// The address of an endpoint that is enabled.
fn name_of(functions: &Functions, endpoint: &Object<fid_ep>) -> Result<Vec<u8>, String> {
    let mut address = vec![0_u8; ADDRESS_BYTES_MAX];
    let mut length = address.len();
    // SAFETY: the endpoint is open and its tables are valid; the library writes at most `length` bytes.
    let code = unsafe {
        let name = wanted((*endpoint.0.as_ref().cm).getname)?;
        name(endpoint.fid(), address.as_mut_ptr().cast(), &raw mut length)
    };
    if code != 0 || length > address.len() {
        return Err(said(functions, "fi_getname", code));
    }
    address.truncate(length);
    Ok(address)
}

impl Device for Endpoint {
    const SLOTS: usize = 16;
    const SLOT_BYTES: usize = 512 << 10;

    fn address(&self) -> &[u8] {
        &self.address
    }

    fn meet(&mut self, address: &[u8]) -> Result<(), String> {
        // Some providers read a fixed number of bytes, whatever the address says of itself.
        let mut whole = [0_u8; ADDRESS_BYTES_MAX];
        let Some(place) = whole.get_mut(..address.len()) else {
            return Err(format!("an address of {} bytes; {ADDRESS_BYTES_MAX} are allowed", address.len()));
        };
        place.copy_from_slice(address);
        let mut other = 0;
        // SAFETY: the vector is open and its table valid; one address is read from a longer buffer, one number written.
        let count = unsafe {
            let insert = wanted((*self.addresses.0.as_ref().ops).insert)?;
            insert(self.addresses.0.as_ptr(), whole.as_ptr().cast(), 1, &raw mut other, 0, null_mut())
        };
        if count != 1 {
            return Err(said(self.functions, "fi_av_insert", count));
        }
        self.other = Some(other);
        Ok(())
    }

    fn register(&mut self, length_bytes: usize) -> Result<Place, String> {
        let registered = self.registered(length_bytes, FI_REMOTE_WRITE)?;
        // SAFETY: the registration is open.
        let key = unsafe { registered.registration.0.as_ref().key };
        let base = if self.mr_mode & FI_MR_VIRT_ADDR == 0 { 0 } else { registered.memory.start() as u64 };
        self.regions.push(registered);
        Ok(Place { key, base })
    }

    fn read(&self, region: usize, offset_bytes: usize, into: &mut [u8]) -> bool {
        self.regions.get(region).is_some_and(|region| region.memory.read(offset_bytes, into))
    }

    fn write(&mut self, slot: usize, bytes: &[u8], event: Option<u32>, to: Place) -> Result<bool, String> {
        assert!(slot < Self::SLOTS && bytes.len() <= Self::SLOT_BYTES, "{} bytes from slot {slot}", bytes.len());
        let other = self.other.ok_or("the address of the other side is not known")?;
        let slots = self.slots.as_mut().expect("made when it was opened");
        slots.memory.put(slot * Self::SLOT_BYTES, bytes);
        // SAFETY: the endpoint is open and its tables are valid. The bytes lie in registered memory, the context in a
        // box; both stay untouched until the completion comes (the caller holds the slot so long), or the endpoint is
        // closed.
        let code = unsafe {
            let table = &*self.endpoint.0.as_ref().rma;
            let description = slots.registration.0.as_ref().mem_desc;
            let from = slots.memory.start().add(slot * Self::SLOT_BYTES).cast_const().cast();
            let context = self.contexts.as_mut_ptr().add(slot).cast();
            let endpoint = self.endpoint.0.as_ptr();
            let (key, base) = (to.key, to.base);
            match event {
                Some(event) => {
                    let write = wanted(table.writedata)?;
                    write(endpoint, from, bytes.len(), description, event.into(), other, base, key, context)
                }
                None => wanted(table.write)?(endpoint, from, bytes.len(), description, other, base, key, context),
            }
        };
        match code {
            0 => Ok(true),
            _ if code == -FI_EAGAIN => Ok(false),
            _ => Err(said(self.functions, if event.is_some() { "fi_writedata" } else { "fi_write" }, code as i64)),
        }
    }

    fn completions(&mut self, happened: &mut Vec<Completion>) -> Result<(), String> {
        // SAFETY: zeros are valid; the queue is open, has entries of this form, and writes at most `BATCH` of them.
        let (entries, count) = unsafe {
            let mut entries: [fi_cq_data_entry; BATCH] = std::mem::zeroed();
            let read = wanted((*self.queue.0.as_ref().ops).read)?;
            let count = read(self.queue.0.as_ptr(), entries.as_mut_ptr().cast(), BATCH);
            (entries, count)
        };
        if count == -FI_EAGAIN {
            return Ok(());
        }
        if count == -FI_EAVAIL {
            let failure = self.failure()?;
            happened.push(failure);
            return Ok(());
        }
        let Ok(count) = usize::try_from(count) else { return Err(said(self.functions, "fi_cq_read", count as i64)) };
        for entry in &entries[..count] {
            match self.slot_of(entry.op_context) {
                // The upper half is not sent by every provider.
                _ if entry.flags & FI_REMOTE_CQ_DATA != 0 => happened.push(Completion::Event(entry.data as u32)),
                Some(slot) => happened.push(Completion::Written(slot)),
                None => return Err(format!("fi_cq_read: an entry of nothing that was begun (flags {:#x})", entry.flags)),
            }
        }
        Ok(())
    }

    fn keeps_order(&self) -> bool {
        self.keeps_order
    }

    fn events_ahead_max(&self) -> Option<u64> {
        None
    }
}
