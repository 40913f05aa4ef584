//! The calls into the driver and into NVRTC, both opened when they are first needed. Whoever calls has opened a
//! [`Context`], so both are there, with all functions that are named in [`DRIVER_FUNCTIONS`].

use crate::device::{Cause, DeviceError, Lent, Result};
use cudarc::driver::sys as cu;
use cudarc::nvrtc::sys as nvrtc;
use konkordia_memory::ring::RawFrames;
use std::ffi::{CStr, CString, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The driver that has all functions: that of CUDA 12.4.
pub const DRIVER_VERSION_MIN: i32 = 12040;

/// Functions of the driver that are called here. The binding panics at one that is missing, so they are looked up
/// before.
const DRIVER_FUNCTIONS: [&str; 39] = [
    "cuCtxCreate_v2",
    "cuCtxDestroy_v2",
    "cuCtxSetCurrent",
    "cuCtxSynchronize",
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuDeviceGetCount",
    "cuDeviceGetName",
    "cuDriverGetVersion",
    "cuEventCreate",
    "cuEventQuery",
    "cuEventRecord",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuGraphAddNode",
    "cuGraphConditionalHandleCreate",
    "cuGraphCreate",
    "cuGraphInstantiateWithFlags",
    "cuGraphLaunch",
    "cuInit",
    "cuLaunchCooperativeKernel",
    "cuLaunchKernel",
    "cuMemAlloc_v2",
    "cuMemFreeHost",
    "cuMemHostAlloc",
    "cuMemHostGetDevicePointer_v2",
    "cuMemHostRegister_v2",
    "cuMemHostUnregister",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuMemsetD8Async",
    "cuModuleGetFunction",
    "cuModuleLoadData",
    "cuOccupancyMaxActiveBlocksPerMultiprocessor",
    "cuStreamCreate",
    "cuStreamQuery",
    "cuStreamWaitEvent",
    "cuStreamWaitValue32_v2",
    "cuStreamWriteValue32_v2",
];

/// A context of the driver, and whether a device in it was given up.
struct Shared {
    context: cu::CUcontext,
    /// Memory of the host that the device reads, with its address for the device.
    registered: Mutex<Vec<(RawFrames, u64)>>,
    /// Nothing is freed: the device may still use it.
    is_abandoned: AtomicBool,
}

/// A device that is open on the thread that last attached it.
pub struct Context {
    shared: Arc<Shared>,
    /// Its name, with its number.
    pub name: String,
    /// As NVRTC names it, for example `sm_90`.
    pub architecture: String,
    pub multiprocessors: u32,
    pub has_cooperative_launches: bool,
    /// Streams of this context, to be asked for failures.
    streams: Vec<cu::CUstream>,
    pinned: Vec<*mut c_void>,
}

/// Pinned memory. The context frees it.
pub struct PinnedBlock {
    host: *mut u8,
    /// Its address for the device.
    pub device: u64,
    bytes: usize,
    /// Who has it; see [`crate::device::Device::lend`].
    pub lent: Option<Lent>,
}

// SAFETY: what these types hold are names of things of the driver, and addresses of memory that belongs to one owner.
// The driver takes them from any thread on which the context is current (`Context::attach`); the context itself is
// only passed to it, and its flag is an atomic.
unsafe impl Send for Shared {}
// SAFETY: as above; a shared reference gives the context to the driver, which locks.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Send for PinnedBlock {}
// SAFETY: as above.
unsafe impl Send for Kernel {}
// SAFETY: as above.
unsafe impl Send for StreamHandle {}
// SAFETY: as above.
unsafe impl Send for EventHandle {}
// SAFETY: as above.
unsafe impl Send for GraphHandle {}
// SAFETY: as above.
unsafe impl Send for Module {}

/// A kernel with its grid and the values of its arguments.
pub struct Kernel {
    function: cu::CUfunction,
    grid: (u32, u32),
    values: Box<[u64]>,
}

#[derive(Clone, Copy)]
pub struct StreamHandle(cu::CUstream);
#[derive(Clone, Copy)]
pub struct EventHandle(cu::CUevent);
#[derive(Clone, Copy)]
pub struct GraphHandle(cu::CUgraphExec);
#[derive(Clone, Copy)]
pub struct Function(cu::CUfunction);
/// Kernels that were loaded.
#[derive(Clone, Copy)]
pub struct Module(cu::CUmodule);

/// A graph that is being made: a chain of nodes.
pub struct Chain<'a> {
    context: &'a Context,
    graph: cu::CUgraph,
    last: Option<cu::CUgraphNode>,
}

/// Words for what the driver says.
fn words(result: cu::CUresult) -> String {
    let mut text = std::ptr::null();
    // SAFETY: the driver writes the address of a text of its own, or leaves it as it is.
    let known = unsafe { cu::cuGetErrorString(result, &raw mut text) } == cu::CUresult::CUDA_SUCCESS && !text.is_null();
    // SAFETY: the text ends with 0 and is never freed.
    let text = if known { unsafe { CStr::from_ptr(text) }.to_string_lossy() } else { "the driver has no words for it".into() };
    format!("{text} ({result:?})")
}

/// What kind of failure a result is.
pub fn cause(result: cu::CUresult) -> Cause {
    use cu::CUresult as R;
    match result {
        R::CUDA_ERROR_OUT_OF_MEMORY => Cause::OutOfMemory,
        R::CUDA_ERROR_NO_DEVICE | R::CUDA_ERROR_INVALID_DEVICE => Cause::NoDevice,
        R::CUDA_ERROR_DEVICE_UNAVAILABLE | R::CUDA_ERROR_CONTEXT_ALREADY_IN_USE => Cause::Busy,
        R::CUDA_ERROR_ECC_UNCORRECTABLE => Cause::Uncorrectable,
        R::CUDA_ERROR_LAUNCH_TIMEOUT => Cause::Hang,
        R::CUDA_ERROR_NOT_SUPPORTED | R::CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE => Cause::Unsupported,
        R::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH | R::CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE => Cause::DriverTooOld,
        R::CUDA_ERROR_NO_BINARY_FOR_GPU | R::CUDA_ERROR_INVALID_PTX | R::CUDA_ERROR_INVALID_IMAGE => Cause::NoCompiler,
        _ => Cause::Operation,
    }
}

fn checked(result: cu::CUresult, what: &str, place: &str) -> Result<()> {
    match result {
        cu::CUresult::CUDA_SUCCESS => Ok(()),
        other => Err(DeviceError::new(cause(other), what, place, words(other))),
    }
}

/// Opens a library under one of its names, and leaves it open: NVRTC does not survive being closed and opened again,
/// which the binding would do to see whether it is there.
fn is_opened(names: &[&CStr]) -> bool {
    // SAFETY: the names end with 0. Opening a library runs its constructors; those of NVIDIA are meant to be opened so.
    names.iter().any(|name| !unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) }.is_null())
}

/// Is the driver there, and new enough? Its version.
pub fn driver_version() -> Result<i32> {
    let place = "libcuda.so.1";
    if !is_opened(&[c"libcuda.so.1", c"libcuda.so"]) {
        let why = "the library of the driver cannot be opened";
        return Err(DeviceError::new(Cause::NoDriver, "opening the driver of NVIDIA", place, why));
    }
    for name in DRIVER_FUNCTIONS {
        // SAFETY: as above; the address is only looked at, not called.
        let is_there = unsafe { cu::culib().get::<*const c_void>(name.as_bytes()) }.is_ok();
        if !is_there {
            let why = format!("it has no function {name}, which CUDA 12.4 has");
            return Err(DeviceError::new(Cause::DriverTooOld, "opening the driver of NVIDIA", place, why));
        }
    }
    let mut version = 0;
    // SAFETY: the driver writes one number.
    checked(unsafe { cu::cuDriverGetVersion(&raw mut version) }, "asking for the version of the driver", place)?;
    if version < DRIVER_VERSION_MIN {
        let dotted = |version: i32| format!("{}.{}", version / 1000, version % 1000 / 10);
        let why = format!("the driver is for CUDA {}, and {} is needed", dotted(version), dotted(DRIVER_VERSION_MIN));
        return Err(DeviceError::new(Cause::DriverTooOld, "opening the driver of NVIDIA", place, why));
    }
    Ok(version)
}

/// Leaves this thread without a device.
pub fn detach() {
    // SAFETY: the driver takes no context as none; whoever calls has opened a device, so the function is there.
    unsafe { cu::cuCtxSetCurrent(null_mut()) };
}

impl Context {
    /// Opens a device.
    pub fn open(ordinal: u32) -> Result<Self> {
        driver_version()?;
        let (what, mut place) = ("opening the device", format!("GPU {ordinal}"));
        let (mut count, mut device, mut context) = (0, 0, null_mut());
        // SAFETY: `driver_version` has seen that the functions are there; the driver writes one number each.
        unsafe {
            checked(cu::cuInit(0), what, &place)?;
            checked(cu::cuDeviceGetCount(&raw mut count), what, &place)?;
        }
        if i64::from(ordinal) >= i64::from(count) {
            return Err(DeviceError::new(Cause::NoDevice, what, place, format!("there are {count} devices, counted from 0")));
        }
        let mut name = [0u8; 128];
        // SAFETY: the driver writes one number, and a text that ends with 0 within the length that is given.
        unsafe {
            checked(cu::cuDeviceGet(&raw mut device, ordinal as i32), what, &place)?;
            let length = name.len() as i32 - 1;
            checked(cu::cuDeviceGetName(name.as_mut_ptr().cast(), length, device), what, &place)?;
        }
        let text = CStr::from_bytes_until_nul(&name).map_or("a device".into(), CStr::to_string_lossy);
        place = format!("GPU {ordinal}, {text}");
        let attribute = |which| {
            let mut value = 0;
            // SAFETY: the driver writes one number.
            checked(unsafe { cu::cuDeviceGetAttribute(&raw mut value, which, device) }, what, &place).map(|()| value)
        };
        use cu::CUdevice_attribute as A;
        let major = attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        let minor = attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        let multiprocessors = attribute(A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        let has_cooperative_launches = attribute(A::CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH)? != 0;
        // SAFETY: the driver writes the handle, and makes it the one of this thread.
        checked(unsafe { cu::cuCtxCreate_v2(&raw mut context, 0, device) }, what, &place)?;
        let shared = Arc::new(Shared { context, registered: Mutex::default(), is_abandoned: AtomicBool::new(false) });
        Ok(Self {
            shared,
            name: place,
            architecture: format!("sm_{major}{minor}"),
            multiprocessors: multiprocessors.max(1) as u32,
            has_cooperative_launches,
            streams: Vec::new(),
            pinned: Vec::new(),
        })
    }

    /// The same device once more, with streams and memory of its own. It has failed when any of them has.
    pub fn beside(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            name: self.name.clone(),
            architecture: self.architecture.clone(),
            streams: Vec::new(),
            pinned: Vec::new(),
            ..*self
        }
    }

    /// Makes it the device of this thread.
    pub fn attach(&self) -> Result<()> {
        // SAFETY: the context lives as long as `shared`.
        self.checked(unsafe { cu::cuCtxSetCurrent(self.shared.context) }, "taking the device to a thread")
    }

    /// From now on nothing is freed.
    pub fn abandon(&self) {
        self.shared.is_abandoned.store(true, Ordering::Release);
    }

    fn checked(&self, result: cu::CUresult, what: &str) -> Result<()> {
        checked(result, what, &self.name)
    }

    /// An address of memory of the device.
    pub fn allocate(&mut self, bytes: usize) -> Result<u64> {
        let mut address = 0;
        // SAFETY: the driver writes one address.
        let result = unsafe { cu::cuMemAlloc_v2(&raw mut address, bytes.max(1)) };
        self.checked(result, &format!("allocating {bytes} bytes of the device"))?;
        Ok(address)
    }

    /// Pinned memory of zeros.
    pub fn allocate_pinned(&mut self, bytes: usize) -> Result<PinnedBlock> {
        let (mut host, mut device, what) = (null_mut(), 0, format!("allocating {bytes} bytes of pinned memory"));
        // SAFETY: the driver writes one address. The memory has so many bytes, and nobody else has it.
        unsafe {
            self.checked(cu::cuMemHostAlloc(&raw mut host, bytes.max(1), cu::CU_MEMHOSTALLOC_DEVICEMAP), &what)?;
            self.pinned.push(host);
            std::ptr::write_bytes(host.cast::<u8>(), 0, bytes);
            self.checked(cu::cuMemHostGetDevicePointer_v2(&raw mut device, host, 0), &what)?;
        }
        Ok(PinnedBlock { host: host.cast(), device, bytes, lent: None })
    }

    /// The address for the device of memory of the host. It is registered once for all devices in this context.
    pub fn register(&mut self, frames: &RawFrames) -> Result<u64> {
        let mut registered = self.shared.registered.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, device)) = registered.iter().find(|(known, _)| known.start() == frames.start()) {
            return Ok(*device);
        }
        let (mut device, what) = (0, format!("registering {} bytes of received frames", frames.bytes()));
        let start: *mut c_void = frames.start().cast_mut().cast();
        let flags = cu::CU_MEMHOSTREGISTER_PORTABLE | cu::CU_MEMHOSTREGISTER_DEVICEMAP;
        // SAFETY: the memory has so many bytes and lives as long as `frames`, of which `registered` keeps a copy until
        // the memory is registered no more. The driver writes one address.
        unsafe {
            self.checked(cu::cuMemHostRegister_v2(start, frames.bytes(), flags), &what)?;
            let result = cu::cuMemHostGetDevicePointer_v2(&raw mut device, start, 0);
            if let Err(error) = self.checked(result, &what) {
                cu::cuMemHostUnregister(start);
                return Err(error);
            }
        }
        registered.push((frames.clone(), device));
        Ok(device)
    }

    pub fn stream(&mut self) -> Result<StreamHandle> {
        let mut stream = null_mut();
        let flags = cu::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: the driver writes the handle.
        self.checked(unsafe { cu::cuStreamCreate(&raw mut stream, flags) }, "making a stream")?;
        self.streams.push(stream);
        Ok(StreamHandle(stream))
    }

    pub fn event(&mut self) -> Result<EventHandle> {
        let mut event = null_mut();
        let flags = cu::CUevent_flags::CU_EVENT_DISABLE_TIMING as u32;
        // SAFETY: the driver writes the handle.
        self.checked(unsafe { cu::cuEventCreate(&raw mut event, flags) }, "making an event")?;
        Ok(EventHandle(event))
    }

    /// Compiles and loads kernels.
    pub fn load(&self, text: &str) -> Result<Module> {
        let image = compile(text, &self.architecture)?;
        let mut module = null_mut();
        // SAFETY: NVRTC made the image for this device; the driver copies it.
        self.checked(unsafe { cu::cuModuleLoadData(&raw mut module, image.as_ptr().cast()) }, "loading the kernels")?;
        Ok(Module(module))
    }

    pub fn function(&self, module: Module, name: &str) -> Result<Function> {
        let what = format!("looking for the kernel {name}");
        let Ok(name) = CString::new(name) else {
            return Err(DeviceError::new(Cause::Request, what, &self.name, "a name has no byte 0"));
        };
        let mut function = null_mut();
        // SAFETY: the module was loaded in this context and is never unloaded; the name ends with 0.
        self.checked(unsafe { cu::cuModuleGetFunction(&raw mut function, module.0, name.as_ptr()) }, &what)?;
        Ok(Function(function))
    }

    /// Blocks of a kernel that one multiprocessor holds at a time.
    pub fn blocks_each(&self, function: Function, threads: u32) -> Result<u32> {
        let mut blocks = 0;
        // SAFETY: the driver writes one number.
        let result = unsafe { cu::cuOccupancyMaxActiveBlocksPerMultiprocessor(&raw mut blocks, function.0, threads as i32, 0) };
        self.checked(result, "asking how many blocks fit")?;
        Ok(blocks.max(0) as u32)
    }

    pub fn copy_in(&self, stream: StreamHandle, to: u64, from: &PinnedBlock, offset: usize, bytes: usize) -> Result<()> {
        let from = from.part(offset, bytes);
        // SAFETY: the source lies in pinned memory (`part` has looked), which lives as long as the context. The caller
        // has lent it, so the host does not write it meanwhile; `to` is an address with room for so many bytes
        // (`Cuda::at`).
        let result = unsafe { cu::cuMemcpyHtoDAsync_v2(to, from.cast(), bytes, stream.0) };
        self.checked(result, "copying to the device")
    }

    pub fn copy_out(&self, stream: StreamHandle, to: &PinnedBlock, offset: usize, from: u64, bytes: usize) -> Result<()> {
        let to = to.part(offset, bytes);
        // SAFETY: as in `copy_in`, in the other direction; the caller has lent the memory to be written.
        let result = unsafe { cu::cuMemcpyDtoHAsync_v2(to.cast(), from, bytes, stream.0) };
        self.checked(result, "copying to the host")
    }

    pub fn fill(&self, stream: StreamHandle, at: u64, byte: u8, bytes: usize) -> Result<()> {
        // SAFETY: the address has room for so many bytes (`Cuda::at`).
        self.checked(unsafe { cu::cuMemsetD8Async(at, byte, bytes, stream.0) }, "filling memory of the device")
    }

    pub fn launch(&self, stream: StreamHandle, kernel: &Kernel) -> Result<()> {
        let mut pointers = kernel.pointers();
        // SAFETY: each pointer is that of a value of the kernel, which has 8 bytes, of which the driver copies as many
        // as the kernel takes. That the values fit the kernel is the promise of `pipeline/buffers.rs`, which the
        // emulator checks for the same text. No shared memory is asked for.
        let result = unsafe {
            let (x, y) = kernel.grid;
            let threads = crate::program::BLOCK_THREADS;
            cu::cuLaunchKernel(kernel.function, x, y, 1, threads, 1, 1, 0, stream.0, pointers.as_mut_ptr(), null_mut())
        };
        self.checked(result, "launching a kernel")
    }

    /// As [`Self::launch`], with all blocks on the device at the same time.
    pub fn launch_cooperative(&self, stream: StreamHandle, kernel: &Kernel) -> Result<()> {
        let mut pointers = kernel.pointers();
        // SAFETY: as in `launch`.
        let result = unsafe {
            let (x, y) = kernel.grid;
            let threads = crate::program::BLOCK_THREADS;
            cu::cuLaunchCooperativeKernel(kernel.function, x, y, 1, threads, 1, 1, 0, stream.0, pointers.as_mut_ptr())
        };
        self.checked(result, "launching the persistent kernel")
    }

    pub fn record(&self, stream: StreamHandle, event: EventHandle) -> Result<()> {
        // SAFETY: both handles are of this context and never destroyed before it.
        self.checked(unsafe { cu::cuEventRecord(event.0, stream.0) }, "recording an event")
    }

    pub fn wait_event(&self, stream: StreamHandle, event: EventHandle) -> Result<()> {
        // SAFETY: as in `record`.
        self.checked(unsafe { cu::cuStreamWaitEvent(stream.0, event.0, 0) }, "waiting for an event")
    }

    pub fn wait_value(&self, stream: StreamHandle, flag: u64, value: u32) -> Result<()> {
        let flags = cu::CUstreamWaitValue_flags::CU_STREAM_WAIT_VALUE_GEQ as u32;
        // SAFETY: the address is that of a flag in pinned memory.
        self.checked(unsafe { cu::cuStreamWaitValue32_v2(stream.0, flag, value, flags) }, "waiting for a flag")
    }

    pub fn write_value(&self, stream: StreamHandle, flag: u64, value: u32) -> Result<()> {
        // SAFETY: as in `wait_value`.
        self.checked(unsafe { cu::cuStreamWriteValue32_v2(stream.0, flag, value, 0) }, "setting a flag")
    }

    pub fn is_reached(&self, event: EventHandle) -> Result<bool> {
        // SAFETY: as in `record`.
        self.is_ready(unsafe { cu::cuEventQuery(event.0) }, "working on frames")
    }

    /// Asks all streams whether the device has failed.
    pub fn check(&self) -> Result<()> {
        // SAFETY: the streams are of this context and never destroyed before it.
        self.streams.iter().try_for_each(|&s| self.is_ready(unsafe { cu::cuStreamQuery(s) }, "working on frames").map(drop))
    }

    fn is_ready(&self, result: cu::CUresult, what: &str) -> Result<bool> {
        match result {
            cu::CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            other => self.checked(other, what).map(|()| true),
        }
    }

    /// Begins a graph.
    pub fn chain(&self) -> Result<Chain<'_>> {
        let mut graph = null_mut();
        // SAFETY: the driver writes the handle.
        self.checked(unsafe { cu::cuGraphCreate(&raw mut graph, 0) }, "making a graph")?;
        Ok(Chain { context: self, graph, last: None })
    }

    pub fn launch_graph(&self, stream: StreamHandle, graph: GraphHandle) -> Result<()> {
        // SAFETY: as in `record`.
        self.checked(unsafe { cu::cuGraphLaunch(graph.0, stream.0) }, "launching a graph")
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: as in `attach`. After the device is idle nobody uses the memory; the blocks that point to it are of
        // the same owner (`Cuda`) and gone with it. If it does not become idle, it has failed, and nothing is freed.
        unsafe {
            if self.shared.is_abandoned.load(Ordering::Acquire)
                || cu::cuCtxSetCurrent(self.shared.context) != cu::CUresult::CUDA_SUCCESS
                || cu::cuCtxSynchronize() != cu::CUresult::CUDA_SUCCESS
            {
                return;
            }
            for &memory in &self.pinned {
                cu::cuMemFreeHost(memory);
            }
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let registered = std::mem::take(self.registered.get_mut().unwrap_or_else(PoisonError::into_inner));
        if *self.is_abandoned.get_mut() {
            // The device may still read it.
            std::mem::forget(registered);
            return;
        }
        // SAFETY: no `Context` is left, so nobody has a handle of it, and all streams are idle (`Context::drop`).
        unsafe {
            cu::cuCtxSetCurrent(self.context);
            for (frames, _) in &registered {
                cu::cuMemHostUnregister(frames.start().cast_mut().cast());
            }
            cu::cuCtxDestroy_v2(self.context);
        }
    }
}

impl PinnedBlock {
    /// The address of a part.
    fn part(&self, offset: usize, bytes: usize) -> *mut u8 {
        assert!(offset.checked_add(bytes).is_some_and(|end| end <= self.bytes), "a part lies within its memory");
        self.host.wrapping_add(offset)
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        assert_ne!(self.lent, Some(Lent::Write), "the host reads pinned memory that the device writes");
        // SAFETY: the memory has so many bytes and lives as long as its owner, `Cuda`, which has the block too. Nobody
        // writes it: the device only while it is lent to be written, which is looked at above.
        unsafe { std::slice::from_raw_parts(self.host, self.bytes) }
    }

    /// The same to write.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        assert_eq!(self.lent, None, "the host writes pinned memory that the device has");
        // SAFETY: as in `bytes`; nor does anybody read it, because it is not lent.
        unsafe { std::slice::from_raw_parts_mut(self.host, self.bytes) }
    }

    /// The number of 32 bits at this place, which both sides read and write.
    pub fn flag(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4));
        let pointer = self.part(offset, 4);
        // SAFETY: the place lies within the memory and is aligned. It is only used as an atomic: memory of flags is
        // never taken as bytes (`Cuda::flags` is no memory that a caller can name).
        unsafe { AtomicU32::from_ptr(pointer.cast()) }
    }
}

/// Reads a flag, and with it what the device wrote before it.
pub fn read_flag(flag: &AtomicU32) -> u32 {
    flag.load(Ordering::Acquire)
}

/// Sets a flag after what the host wrote before it.
pub fn set_flag(flag: &AtomicU32, value: u32) {
    flag.store(value, Ordering::SeqCst);
}

impl Kernel {
    /// `values` are the arguments, each at the beginning of 8 bytes.
    pub fn new(function: Function, grid: (u32, u32), values: &[u64]) -> Self {
        assert!(values.len() <= crate::device::ARGUMENTS_MAX);
        Self { function: function.0, grid, values: values.into() }
    }

    fn pointers(&self) -> [*mut c_void; crate::device::ARGUMENTS_MAX] {
        std::array::from_fn(|n| self.values.get(n).map_or(null_mut(), |value| std::ptr::from_ref(value).cast_mut().cast()))
    }
}

impl Chain<'_> {
    /// Adds a node behind the others.
    fn add(&mut self, mut parameters: cu::CUgraphNodeParams) -> Result<cu::CUgraphNodeParams> {
        let (mut node, before) = (null_mut(), self.last);
        let (pointer, count) = before.as_ref().map_or((std::ptr::null(), 0), |node| (std::ptr::from_ref(node), 1));
        // SAFETY: the graph and its last node are of this context. The driver copies the parameters, which are whole
        // for their type, and writes the handle of the node (and of the body of a conditional one).
        let result = unsafe { cu::cuGraphAddNode(&raw mut node, self.graph, pointer, count, &raw mut parameters) };
        self.context.checked(result, "making a node of a graph")?;
        self.last = Some(node);
        Ok(parameters)
    }

    /// Parameters of a node; what is not set is 0, as the driver asks for.
    fn parameters(kind: cu::CUgraphNodeType) -> cu::CUgraphNodeParams {
        // SAFETY: all fields are numbers, pointers and enumerations that have a variant 0.
        let mut parameters: cu::CUgraphNodeParams = unsafe { std::mem::zeroed() };
        parameters.type_ = kind;
        parameters
    }

    pub fn kernel(&mut self, kernel: &Kernel) -> Result<()> {
        let mut pointers = kernel.pointers();
        let mut parameters = Self::parameters(cu::CUgraphNodeType::CU_GRAPH_NODE_TYPE_KERNEL);
        // SAFETY: the field of the union is that of the type; all its bytes are set (to 0 before).
        let node = unsafe { &mut parameters.__bindgen_anon_1.kernel };
        node.func = kernel.function;
        (node.gridDimX, node.gridDimY, node.gridDimZ) = (kernel.grid.0, kernel.grid.1, 1);
        (node.blockDimX, node.blockDimY, node.blockDimZ) = (crate::program::BLOCK_THREADS, 1, 1);
        node.kernelParams = pointers.as_mut_ptr();
        self.add(parameters).map(drop)
    }

    pub fn fill(&mut self, at: u64, byte: u8, bytes: usize) -> Result<()> {
        let mut parameters = Self::parameters(cu::CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEMSET);
        // SAFETY: as in `kernel`.
        let node = unsafe { &mut parameters.__bindgen_anon_1.memset };
        (node.dst, node.value, node.elementSize, node.width, node.height) = (at, byte.into(), 1, bytes, 1);
        node.ctx = self.context.shared.context;
        self.add(parameters).map(drop)
    }

    /// Copies between pinned memory and the device.
    pub fn copy(&mut self, host: &PinnedBlock, offset: usize, device: u64, bytes: usize, is_in: bool) -> Result<()> {
        let host = host.part(offset, bytes);
        let mut parameters = Self::parameters(cu::CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEMCPY);
        // SAFETY: as in `kernel`.
        let node = unsafe { &mut parameters.__bindgen_anon_1.memcpy };
        node.copyCtx = self.context.shared.context;
        let copy = &mut node.copyParams;
        (copy.WidthInBytes, copy.Height, copy.Depth) = (bytes, 1, 1);
        let (on_host, on_device) = (cu::CUmemorytype::CU_MEMORYTYPE_HOST, cu::CUmemorytype::CU_MEMORYTYPE_DEVICE);
        if is_in {
            (copy.srcMemoryType, copy.srcHost) = (on_host, host.cast());
            (copy.dstMemoryType, copy.dstDevice) = (on_device, device);
        } else {
            (copy.srcMemoryType, copy.srcDevice) = (on_device, device);
            (copy.dstMemoryType, copy.dstHost) = (on_host, host.cast());
        }
        self.add(parameters).map(drop)
    }

    /// A handle of a condition that is 0 at each launch until a kernel sets it.
    pub fn condition(&self) -> Result<u64> {
        let mut handle = 0;
        let flags = cu::CU_GRAPH_COND_ASSIGN_DEFAULT;
        // SAFETY: the driver writes the handle.
        let result =
            unsafe { cu::cuGraphConditionalHandleCreate(&raw mut handle, self.graph, self.context.shared.context, 0, flags) };
        self.context.checked(result, "making a condition of a graph")?;
        Ok(handle)
    }

    /// A node whose body is done if the condition is not 0; the body.
    pub fn conditional(&mut self, handle: u64) -> Result<Self> {
        let mut parameters = Self::parameters(cu::CUgraphNodeType::CU_GRAPH_NODE_TYPE_CONDITIONAL);
        // SAFETY: as in `kernel`.
        let node = unsafe { &mut parameters.__bindgen_anon_1.conditional };
        (node.handle, node.size, node.ctx) = (handle, 1, self.context.shared.context);
        node.type_ = cu::CUgraphConditionalNodeType::CU_GRAPH_COND_TYPE_IF;
        let parameters = self.add(parameters)?;
        // SAFETY: the driver has written the address of one handle of a graph, which it owns.
        let graph = unsafe { *parameters.__bindgen_anon_1.conditional.phGraph_out };
        Ok(Self { context: self.context, graph, last: None })
    }

    /// Makes it ready to be launched.
    pub fn instantiate(self) -> Result<GraphHandle> {
        let mut graph = null_mut();
        // SAFETY: the graph is of this context; the driver writes the handle.
        let result = unsafe { cu::cuGraphInstantiateWithFlags(&raw mut graph, self.graph, 0) };
        self.context.checked(result, "preparing a graph")?;
        Ok(GraphHandle(graph))
    }
}

/// Compiles text for an architecture such as `sm_90`; machine code for this device.
pub fn compile(text: &str, architecture: &str) -> Result<Vec<u8>> {
    let (what, place) = ("compiling the kernels", "libnvrtc.so.12");
    let failed = |why: String| DeviceError::new(Cause::NoCompiler, what, place, why);
    if !is_opened(&[c"libnvrtc.so.12", c"libnvrtc.so"]) {
        return Err(failed("the library of the compiler cannot be opened".into()));
    }
    let options = crate::program::NVRTC_OPTIONS.map(str::to_owned).into_iter();
    let options = options.chain([format!("--gpu-architecture={architecture}"), "--diag-suppress=177".into()]);
    let options: Vec<CString> = options.filter_map(|option| CString::new(option).ok()).collect();
    let pointers: Vec<_> = options.iter().map(|option| option.as_ptr()).collect();
    let text = CString::new(text).map_err(|_| failed("the text has a byte 0".into()))?;
    let mut program = null_mut();
    // SAFETY: text, name and options end with 0 and live longer than the program. The lengths are asked for before
    // memory of these lengths is given. The program is destroyed once, at the end.
    unsafe {
        let none = std::ptr::null();
        let created = nvrtc::nvrtcCreateProgram(&raw mut program, text.as_ptr(), c"kernels.cu".as_ptr(), 0, none, none);
        if created != nvrtc::nvrtcResult::NVRTC_SUCCESS {
            return Err(failed(format!("the compiler does not begin ({created:?})")));
        }
        let result = nvrtc::nvrtcCompileProgram(program, pointers.len() as i32, pointers.as_ptr());
        let (mut bytes, mut image) = (0, Vec::new());
        let is_compiled = result == nvrtc::nvrtcResult::NVRTC_SUCCESS;
        if is_compiled {
            nvrtc::nvrtcGetCUBINSize(program, &raw mut bytes);
            image.resize(bytes, 0u8);
            nvrtc::nvrtcGetCUBIN(program, image.as_mut_ptr().cast());
        } else {
            nvrtc::nvrtcGetProgramLogSize(program, &raw mut bytes);
            image.resize(bytes, 0u8);
            nvrtc::nvrtcGetProgramLog(program, image.as_mut_ptr().cast());
        }
        nvrtc::nvrtcDestroyProgram(&raw mut program);
        if is_compiled {
            return Ok(image);
        }
        let log = String::from_utf8_lossy(&image);
        Err(failed(format!("{result:?}: {}", log.trim_end_matches('\0').lines().take(3).collect::<Vec<_>>().join(" "))))
    }
}
