//! The structures and constants of libfabric that are used here, as its headers have them (ABI 1.x, `rdma/*.h`).
//!
//! Structures that the library allocates may be longer than here in later versions; they are only reached by pointers.
//! `abi_tests.rs` compares every line with the headers. Names are those of the headers.
#![allow(non_camel_case_types, non_snake_case)]

use super::library::abi;
use std::ffi::{c_char, c_int, c_void};

/// `FI_VERSION(1, 9)`: what we know of the library; later ones keep it.
pub(super) const API_VERSION: u32 = (1 << 16) | 9;

/// What a structure has in its place: a function that is not called here.
pub(super) type Unused = *mut c_void;

abi! {
    structures {
        fid { fclass: usize, context: *mut c_void, ops: *const fi_ops, }
        fi_ops {
            size: usize,
            close: Option<unsafe extern "C" fn(*mut fid) -> c_int>,
            bind: Option<unsafe extern "C" fn(*mut fid, *mut fid, u64) -> c_int>,
            control: Option<unsafe extern "C" fn(*mut fid, c_int, *mut c_void) -> c_int>,
        }
        fi_info {
            next: *mut fi_info,
            caps: u64,
            mode: u64,
            addr_format: u32,
            src_addrlen: usize,
            dest_addrlen: usize,
            src_addr: *mut c_void,
            dest_addr: *mut c_void,
            handle: *mut fid,
            tx_attr: *mut fi_tx_attr,
            rx_attr: *mut fi_rx_attr,
            ep_attr: *mut fi_ep_attr,
            domain_attr: *mut fi_domain_attr,
            fabric_attr: *mut fi_fabric_attr,
            nic: *mut c_void,
        }
        fi_tx_attr {
            caps: u64,
            mode: u64,
            op_flags: u64,
            msg_order: u64,
            comp_order: u64,
            inject_size: usize,
            size: usize,
            iov_limit: usize,
            rma_iov_limit: usize,
            tclass: u32,
        }
        fi_rx_attr {
            caps: u64,
            mode: u64,
            op_flags: u64,
            msg_order: u64,
            comp_order: u64,
            total_buffered_recv: usize,
            size: usize,
            iov_limit: usize,
        }
        fi_ep_attr {
            r#type: c_int,
            protocol: u32,
            protocol_version: u32,
            max_msg_size: usize,
            msg_prefix_size: usize,
            max_order_raw_size: usize,
            max_order_war_size: usize,
            max_order_waw_size: usize,
        }
        fi_domain_attr {
            domain: *mut c_void,
            name: *mut c_char,
            threading: c_int,
            control_progress: c_int,
            data_progress: c_int,
            resource_mgmt: c_int,
            av_type: c_int,
            mr_mode: c_int,
            mr_key_size: usize,
            cq_data_size: usize,
        }
        fi_fabric_attr {
            fabric: *mut c_void,
            name: *mut c_char,
            prov_name: *mut c_char,
            prov_version: u32,
            api_version: u32,
        }
        fid_fabric { fid: fid, ops: *const fi_ops_fabric, api_version: u32, }
        fi_ops_fabric {
            size: usize,
            domain: Option<unsafe extern "C" fn(*mut fid_fabric, *mut fi_info, *mut *mut fid_domain, *mut c_void) -> c_int>,
        }
        fid_domain { fid: fid, ops: *const fi_ops_domain, mr: *const fi_ops_mr, }
        fi_ops_domain {
            size: usize,
            av_open: Option<unsafe extern "C" fn(*mut fid_domain, *mut fi_av_attr, *mut *mut fid_av, *mut c_void) -> c_int>,
            cq_open: Option<unsafe extern "C" fn(*mut fid_domain, *mut fi_cq_attr, *mut *mut fid_cq, *mut c_void) -> c_int>,
            endpoint: Option<unsafe extern "C" fn(*mut fid_domain, *mut fi_info, *mut *mut fid_ep, *mut c_void) -> c_int>,
        }
        fi_ops_mr {
            size: usize,
            reg: Option<
                unsafe extern "C" fn(
                    *mut fid, *const c_void, usize, u64, u64, u64, u64, *mut *mut fid_mr, *mut c_void,
                ) -> c_int,
            >,
        }
        fid_mr { fid: fid, mem_desc: *mut c_void, key: u64, }
        fid_av { fid: fid, ops: *const fi_ops_av, }
        fi_ops_av {
            size: usize,
            insert: Option<unsafe extern "C" fn(*mut fid_av, *const c_void, usize, *mut u64, u64, *mut c_void) -> c_int>,
        }
        fi_av_attr {
            r#type: c_int,
            rx_ctx_bits: c_int,
            count: usize,
            ep_per_node: usize,
            name: *const c_char,
            map_addr: *mut c_void,
            flags: u64,
        }
        fid_cq { fid: fid, ops: *const fi_ops_cq, }
        fi_ops_cq {
            size: usize,
            read: Option<unsafe extern "C" fn(*mut fid_cq, *mut c_void, usize) -> isize>,
            readfrom: Unused,
            readerr: Option<unsafe extern "C" fn(*mut fid_cq, *mut fi_cq_err_entry, u64) -> isize>,
            sread: Unused,
            sreadfrom: Unused,
            signal: Unused,
            strerror: Option<
                unsafe extern "C" fn(*mut fid_cq, c_int, *const c_void, *mut c_char, usize) -> *const c_char,
            >,
        }
        fi_cq_attr {
            size: usize,
            flags: u64,
            format: c_int,
            wait_obj: c_int,
            signaling_vector: c_int,
            wait_cond: c_int,
            wait_set: *mut c_void,
        }
        fi_cq_data_entry { op_context: *mut c_void, flags: u64, len: usize, buf: *mut c_void, data: u64, }
        fi_cq_err_entry {
            op_context: *mut c_void,
            flags: u64,
            len: usize,
            buf: *mut c_void,
            data: u64,
            tag: u64,
            olen: usize,
            err: c_int,
            prov_errno: c_int,
            err_data: *mut c_void,
            err_data_size: usize,
        }
        fid_ep { fid: fid, ops: Unused, cm: *const fi_ops_cm, msg: Unused, rma: *const fi_ops_rma, }
        fi_ops_cm {
            size: usize,
            setname: Unused,
            getname: Option<unsafe extern "C" fn(*mut fid, *mut c_void, *mut usize) -> c_int>,
        }
        fi_ops_rma {
            size: usize,
            read: Unused,
            readv: Unused,
            readmsg: Unused,
            write: Option<
                unsafe extern "C" fn(*mut fid_ep, *const c_void, usize, *mut c_void, u64, u64, u64, *mut c_void) -> isize,
            >,
            writev: Unused,
            writemsg: Unused,
            inject: Unused,
            writedata: Option<
                unsafe extern "C" fn(
                    *mut fid_ep, *const c_void, usize, *mut c_void, u64, u64, u64, u64, *mut c_void,
                ) -> isize,
            >,
        }
        fi_context2 { internal: [*mut c_void; 8], }
    }
    constants {
        FI_MSG: u64 = 1 << 1,
        FI_RMA: u64 = 1 << 2,
        FI_WRITE: u64 = 1 << 9,
        FI_RECV: u64 = 1 << 10,
        FI_TRANSMIT: u64 = 1 << 11,
        FI_REMOTE_WRITE: u64 = 1 << 13,
        FI_REMOTE_CQ_DATA: u64 = 1 << 17,
        FI_DELIVERY_COMPLETE: u64 = 1 << 28,
        FI_NUMERICHOST: u64 = 1 << 55,
        FI_SOURCE: u64 = 1 << 57,
        FI_CONTEXT: u64 = 1 << 59,
        FI_CONTEXT2: u64 = 1 << 52,
        FI_ORDER_WAW: u64 = 1 << 4,
        FI_MR_LOCAL: c_int = 1 << 2,
        FI_MR_VIRT_ADDR: c_int = 1 << 4,
        FI_MR_ALLOCATED: c_int = 1 << 5,
        FI_MR_PROV_KEY: c_int = 1 << 6,
        FI_MR_ENDPOINT: c_int = 1 << 9,
        FI_THREAD_DOMAIN: c_int = 3,
        FI_PROGRESS_AUTO: c_int = 1,
        FI_RM_ENABLED: c_int = 2,
        FI_EP_RDM: c_int = 3,
        FI_ENABLE: c_int = 6,
        FI_CQ_FORMAT_DATA: c_int = 3,
        FI_EAGAIN: isize = 11,
        FI_EAVAIL: isize = 259,
        FI_ENODATA: isize = 61,
    }
}

/// `enum` of C has the size of an `int` on every platform that libfabric supports.
const _: () = assert!(size_of::<c_int>() == 4);
