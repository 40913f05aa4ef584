//! The system calls of this crate: where a thread may run, with which priority, and from which node its memory comes.
//! All of them are about the calling thread.

use konkordia_core::affinity::{Cpus, Priority};
use std::io;

/// Keeps the calling thread on these processors.
pub(crate) fn run_on(cpus: &Cpus) -> io::Result<()> {
    if cpus.last().is_none_or(|last| *last >= libc::CPU_SETSIZE as usize) {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    // SAFETY: `cpu_set_t` is a plain bit field for which zero is valid, `CPU_SET` stays inside it by the check above,
    // and the call reads it.
    let code = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        for cpu in cpus {
            libc::CPU_SET(*cpu, &mut set);
        }
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set)
    };
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Gives the calling thread a priority.
pub(crate) fn set_priority(priority: Priority) -> io::Result<()> {
    let code = match priority {
        Priority::Normal => return Ok(()),
        // SAFETY: the call takes numbers only; on Linux 0 is the calling thread.
        Priority::Nice(nice) => unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) },
        // SAFETY: all-zero is a valid value of this plain struct, which the call reads; 0 is the calling thread.
        Priority::RealTime(level) => unsafe {
            let mut parameters: libc::sched_param = std::mem::zeroed();
            parameters.sched_priority = level;
            libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters)
        },
    };
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// NUMA nodes that a mask has room for, as many as the kernel can have.
const NODES: usize = 1024;
const WORD_BITS: usize = libc::c_ulong::BITS as usize;
/// The kernel takes one bit less than it is given.
const MASK_BITS: libc::c_ulong = NODES as libc::c_ulong + 1;

/// From which nodes the calling thread takes memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MemoryPolicy {
    mode: libc::c_int,
    nodes: [libc::c_ulong; NODES / WORD_BITS],
}

impl MemoryPolicy {
    /// This node as long as it has free memory, then others.
    pub(crate) fn preferred(node: u32) -> io::Result<Self> {
        let node = node as usize;
        let mut policy = Self { mode: libc::MPOL_PREFERRED, nodes: [0; NODES / WORD_BITS] };
        let word = policy.nodes.get_mut(node / WORD_BITS).ok_or(io::ErrorKind::InvalidInput)?;
        *word = 1 << (node % WORD_BITS);
        Ok(policy)
    }

    /// That of the calling thread.
    pub(crate) fn current() -> io::Result<Self> {
        let mut policy = Self { mode: 0, nodes: [0; NODES / WORD_BITS] };
        let flags: libc::c_ulong = 0;
        // SAFETY: mode and mask are valid for writes, the mask for `NODES` bits; without an address and flags the call
        // writes nothing else.
        let code = unsafe {
            libc::syscall(
                libc::SYS_get_mempolicy,
                &raw mut policy.mode,
                policy.nodes.as_mut_ptr(),
                MASK_BITS,
                std::ptr::null_mut::<libc::c_void>(),
                flags,
            )
        };
        if code == 0 { Ok(policy) } else { Err(io::Error::last_os_error()) }
    }

    /// Makes it that of the calling thread. Memory that was touched before stays where it is.
    pub(crate) fn set(&self) -> io::Result<()> {
        let mode = libc::c_long::from(self.mode);
        // SAFETY: the call reads the mask, which has `NODES` bits.
        let code = unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, self.nodes.as_ptr(), MASK_BITS) };
        if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}
