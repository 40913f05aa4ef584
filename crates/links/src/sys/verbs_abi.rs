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

/// The end of `struct verbs_context`, which stands before an extended `ibv_context`. The structure grows at its
/// beginning, so its members are counted from the end.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(dead_code, reason = "most fields only keep the others at their place")]
pub(super) struct verbs_context_end {
    pub(super) ibv_destroy_flow: Option<unsafe extern "C" fn(*mut ibv_flow) -> c_int>,
    _placeholder2: Unused,
    pub(super) ibv_create_flow: Option<unsafe extern "C" fn(*mut ibv_qp, *mut ibv_flow_attr) -> *mut ibv_flow>,
    _placeholder1: Unused,
    _open_qp: Unused,
    _create_qp_ex: Unused,
    _get_srq_num: Unused,
    _create_srq_ex: Unused,
    _open_xrcd: Unused,
    _close_xrcd: Unused,
    _placeholder3: u64,
    pub(super) sz: usize,
}

/// How many bytes before the context members of that end stand, as expressions of C.
#[cfg(test)]
pub(super) fn members_before_the_context() -> Vec<(&'static str, u64)> {
    use std::mem::offset_of;
    let before = |offset: usize| (size_of::<verbs_context_end>() - offset) as u64;
    vec![
        (
            "offsetof(struct verbs_context, context) - offsetof(struct verbs_context, ibv_destroy_flow)",
            before(offset_of!(verbs_context_end, ibv_destroy_flow)),
        ),
        (
            "offsetof(struct verbs_context, context) - offsetof(struct verbs_context, ibv_create_flow)",
            before(offset_of!(verbs_context_end, ibv_create_flow)),
        ),
        (
            "offsetof(struct verbs_context, context) - offsetof(struct verbs_context, sz)",
            before(offset_of!(verbs_context_end, sz)),
        ),
        ("sizeof(struct verbs_context) - offsetof(struct verbs_context, context)", size_of::<ibv_context>() as u64),
        ("(unsigned long long) __VERBS_ABI_IS_EXTENDED", u64::MAX),
    ]
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
            req_notify_cq: Option<unsafe extern "C" fn(*mut ibv_cq, c_int) -> c_int>,
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
            _compat_create_ah: Unused,
            _compat_destroy_ah: Unused,
            _compat_attach_mcast: Unused,
            _compat_detach_mcast: Unused,
            _compat_async_event: Unused,
        }
        ibv_context {
            device: *mut c_void,
            ops: ibv_context_ops,
            cmd_fd: c_int,
            async_fd: c_int,
            num_comp_vectors: c_int,
            mutex: libc::pthread_mutex_t,
            abi_compat: *mut c_void,
        }
        ibv_comp_channel { context: *mut ibv_context, fd: c_int, refcnt: c_int, }
        ibv_flow { comp_mask: u32, context: *mut ibv_context, handle: u32, }
        ibv_flow_attr {
            comp_mask: u32,
            r#type: c_int,
            size: u16,
            priority: u16,
            num_of_specs: u8,
            port: u8,
            flags: u32,
        }
        ibv_flow_eth_filter { dst_mac: [u8; 6], src_mac: [u8; 6], ether_type: u16, vlan_tag: u16, }
        ibv_flow_spec_eth { r#type: c_int, size: u16, val: ibv_flow_eth_filter, mask: ibv_flow_eth_filter, }
        ibv_flow_ipv4_filter { src_ip: u32, dst_ip: u32, }
        ibv_flow_spec_ipv4 { r#type: c_int, size: u16, val: ibv_flow_ipv4_filter, mask: ibv_flow_ipv4_filter, }
        ibv_flow_ipv6_filter {
            src_ip: [u8; 16],
            dst_ip: [u8; 16],
            flow_label: u32,
            next_hdr: u8,
            traffic_class: u8,
            hop_limit: u8,
        }
        ibv_flow_spec_ipv6 { r#type: c_int, size: u16, val: ibv_flow_ipv6_filter, mask: ibv_flow_ipv6_filter, }
        ibv_flow_tcp_udp_filter { dst_port: u16, src_port: u16, }
        ibv_flow_spec_tcp_udp { r#type: c_int, size: u16, val: ibv_flow_tcp_udp_filter, mask: ibv_flow_tcp_udp_filter, }
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
        IBV_QPT_RAW_PACKET: c_int = 8,
        IBV_FLOW_ATTR_NORMAL: c_int = 0,
        IBV_FLOW_SPEC_ETH: c_int = 0x20,
        IBV_FLOW_SPEC_IPV4: c_int = 0x30,
        IBV_FLOW_SPEC_IPV6: c_int = 0x31,
        IBV_FLOW_SPEC_UDP: c_int = 0x41,
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
        IBV_WC_IP_CSUM_OK: c_uint = 1 << 2,
    }
}
