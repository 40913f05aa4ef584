//! The structures and constants of libibverbs that are used here, as `infiniband/verbs.h` has them.
//!
//! `abi_tests.rs` compares every line with the headers. Names are those of the headers.
#![allow(non_camel_case_types)]

use super::fabric_abi::Unused;
use super::library::abi;
use std::ffi::{c_int, c_uint, c_void};

/// The first of several structures that share this place, and room for the others.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Rdma {
    pub(super) remote_addr: u64,
    pub(super) rkey: u32,
    pub(super) others: [u64; 2],
}

abi! {
    structures {
        ibv_pd { context: *mut ibv_context, }
        ibv_mr {
            context: *mut ibv_context,
            pd: *mut ibv_pd,
            addr: *mut c_void,
            length: usize,
            handle: u32,
            lkey: u32,
            rkey: u32,
        }
        ibv_cq { context: *mut ibv_context, }
        ibv_qp {
            context: *mut ibv_context,
            qp_context: *mut c_void,
            pd: *mut ibv_pd,
            send_cq: *mut ibv_cq,
            recv_cq: *mut ibv_cq,
            srq: *mut c_void,
            handle: u32,
            qp_num: u32,
            state: c_int,
            qp_type: c_int,
        }
        ibv_context_ops {
            _compat_query_device: Unused,
            _compat_query_port: Unused,
            _compat_alloc_pd: Unused,
            _compat_dealloc_pd: Unused,
            _compat_reg_mr: Unused,
            _compat_rereg_mr: Unused,
            _compat_dereg_mr: Unused,
            alloc_mw: Unused,
            bind_mw: Unused,
            dealloc_mw: Unused,
            _compat_create_cq: Unused,
            poll_cq: Option<unsafe extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int>,
            req_notify_cq: Unused,
            _compat_cq_event: Unused,
            _compat_resize_cq: Unused,
            _compat_destroy_cq: Unused,
            _compat_create_srq: Unused,
            _compat_modify_srq: Unused,
            _compat_query_srq: Unused,
            _compat_destroy_srq: Unused,
            post_srq_recv: Unused,
            _compat_create_qp: Unused,
            _compat_query_qp: Unused,
            _compat_modify_qp: Unused,
            _compat_destroy_qp: Unused,
            post_send: Option<unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int>,
            post_recv: Option<unsafe extern "C" fn(*mut ibv_qp, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int>,
        }
        ibv_context { device: *mut c_void, ops: ibv_context_ops, }
        ibv_port_attr {
            state: c_int,
            max_mtu: c_int,
            active_mtu: c_int,
            gid_tbl_len: c_int,
            port_cap_flags: u32,
            max_msg_sz: u32,
            bad_pkey_cntr: u32,
            qkey_viol_cntr: u32,
            pkey_tbl_len: u16,
            lid: u16,
            sm_lid: u16,
            lmc: u8,
            max_vl_num: u8,
            sm_sl: u8,
            subnet_timeout: u8,
            init_type_reply: u8,
            active_width: u8,
            active_speed: u8,
            phys_state: u8,
            link_layer: u8,
            flags: u8,
            port_cap_flags2: u16,
        }
        ibv_qp_cap { max_send_wr: u32, max_recv_wr: u32, max_send_sge: u32, max_recv_sge: u32, max_inline_data: u32, }
        ibv_qp_init_attr {
            qp_context: *mut c_void,
            send_cq: *mut ibv_cq,
            recv_cq: *mut ibv_cq,
            srq: *mut c_void,
            cap: ibv_qp_cap,
            qp_type: c_int,
            sq_sig_all: c_int,
        }
        ibv_global_route { dgid: [u64; 2], flow_label: u32, sgid_index: u8, hop_limit: u8, traffic_class: u8, }
        ibv_ah_attr {
            grh: ibv_global_route,
            dlid: u16,
            sl: u8,
            src_path_bits: u8,
            static_rate: u8,
            is_global: u8,
            port_num: u8,
        }
        ibv_qp_attr {
            qp_state: c_int,
            cur_qp_state: c_int,
            path_mtu: c_int,
            path_mig_state: c_int,
            qkey: u32,
            rq_psn: u32,
            sq_psn: u32,
            dest_qp_num: u32,
            qp_access_flags: c_uint,
            cap: ibv_qp_cap,
            ah_attr: ibv_ah_attr,
            alt_ah_attr: ibv_ah_attr,
            pkey_index: u16,
            alt_pkey_index: u16,
            en_sqd_async_notify: u8,
            sq_draining: u8,
            max_rd_atomic: u8,
            max_dest_rd_atomic: u8,
            min_rnr_timer: u8,
            port_num: u8,
            timeout: u8,
            retry_cnt: u8,
            rnr_retry: u8,
            alt_port_num: u8,
            alt_timeout: u8,
            rate_limit: u32,
        }
        ibv_sge { addr: u64, length: u32, lkey: u32, }
        ibv_send_wr {
            wr_id: u64,
            next: *mut ibv_send_wr,
            sg_list: *mut ibv_sge,
            num_sge: c_int,
            opcode: c_int,
            send_flags: c_uint,
            imm_data: u32,
            wr: Rdma,
            qp_type: u32,
            bind_mw: [u64; 6],
        }
        ibv_recv_wr { wr_id: u64, next: *mut ibv_recv_wr, sg_list: *mut ibv_sge, num_sge: c_int, }
        ibv_wc {
            wr_id: u64,
            status: c_int,
            opcode: c_int,
            vendor_err: u32,
            byte_len: u32,
            imm_data: u32,
            qp_num: u32,
            src_qp: u32,
            wc_flags: c_uint,
            pkey_index: u16,
            slid: u16,
            sl: u8,
            dlid_path_bits: u8,
        }
    }
    constants {
        IBV_QPT_RC: c_int = 2,
        IBV_QPT_UC: c_int = 3,
        IBV_QPS_INIT: c_int = 1,
        IBV_QPS_RTR: c_int = 2,
        IBV_QPS_RTS: c_int = 3,
        IBV_QP_STATE: c_int = 1 << 0,
        IBV_QP_ACCESS_FLAGS: c_int = 1 << 3,
        IBV_QP_PKEY_INDEX: c_int = 1 << 4,
        IBV_QP_PORT: c_int = 1 << 5,
        IBV_QP_AV: c_int = 1 << 7,
        IBV_QP_PATH_MTU: c_int = 1 << 8,
        IBV_QP_TIMEOUT: c_int = 1 << 9,
        IBV_QP_RETRY_CNT: c_int = 1 << 10,
        IBV_QP_RNR_RETRY: c_int = 1 << 11,
        IBV_QP_RQ_PSN: c_int = 1 << 12,
        IBV_QP_MAX_QP_RD_ATOMIC: c_int = 1 << 13,
        IBV_QP_MIN_RNR_TIMER: c_int = 1 << 15,
        IBV_QP_SQ_PSN: c_int = 1 << 16,
        IBV_QP_MAX_DEST_RD_ATOMIC: c_int = 1 << 17,
        IBV_QP_DEST_QPN: c_int = 1 << 20,
        IBV_ACCESS_LOCAL_WRITE: c_int = 1,
        IBV_ACCESS_REMOTE_WRITE: c_int = 1 << 1,
        IBV_PORT_ACTIVE: c_int = 4,
        IBV_LINK_LAYER_ETHERNET: u8 = 2,
        IBV_WR_RDMA_WRITE: c_int = 0,
        IBV_WR_RDMA_WRITE_WITH_IMM: c_int = 1,
        IBV_SEND_SIGNALED: c_uint = 1 << 1,
        IBV_WC_SUCCESS: c_int = 0,
        IBV_WC_RDMA_WRITE: c_int = 1,
        IBV_WC_RECV_RDMA_WITH_IMM: c_int = (1 << 7) + 1,
    }
}
