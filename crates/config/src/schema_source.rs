//! Keys for where the packets of a detector arrive.

use super::schema_key::{Key, Kind, key};
use konkordia_core::backend::Receive;

/// The keys, in the order of the documentation.
pub(super) const KEYS: &[Key] = &[
    key(
        "source",
        "kind",
        Kind::Choice(&["udp", "roce"]),
        "udp",
        "how packets arrive: \"udp\" = the packets of the detector; \"roce\" = the detector writes frames by RoCEv2 (docs/fabrics.md)",
    ),
    key("source", "address", Kind::Text, "0.0.0.0", "address of this machine that the detector sends to; 0.0.0.0 = any"),
    key(
        "source",
        "first_port",
        Kind::Integer(1, 65535),
        "50010",
        "port of the first stream; consecutive streams use consecutive ports. With kind = \"roce\": the port of all streams, 4791 if it is not given",
    ),
    key(
        "source",
        "queue_pair",
        Kind::Integer(1, 16_777_215),
        "256",
        "kind = \"roce\": number of the queue pair that the first stream writes to; the other streams have the numbers behind it",
    ),
    key(
        "source",
        "memory_key",
        Kind::Integer(0, 4_294_967_295),
        "1",
        "kind = \"roce\": the key (rkey) of the memory that is written",
    ),
    key(
        "source",
        "memory_address",
        Kind::Integer(0, i64::MAX),
        "0",
        "kind = \"roce\": address of page 0; `konkordia config check` prints the size of a page",
    ),
    key(
        "source",
        "pages",
        Kind::Integer(2, 4096),
        "256",
        "kind = \"roce\": pages, one for each frame, which the detector takes in turn",
    ),
    key(
        "source",
        "path_mtu",
        Kind::Integer(1024, 4096),
        "4096",
        "kind = \"roce\": payload bytes of a packet: 1024, 2048 or 4096. A frame has at most 512 packets",
    ),
    key(
        "source",
        "receive_buffer_mib",
        Kind::Integer(1, 4096),
        "256",
        "receive buffer to ask of the kernel for each stream, in MiB; it grants at most net.core.rmem_max",
    ),
    key(
        "source",
        "receive",
        Kind::Choice(&Receive::NAMES),
        "auto",
        "through what packets are received: \"socket\" = UDP sockets; \"packet\" = rings of AF_PACKET, \"xdp\" = AF_XDP, \"verbs\" = raw packets of an RDMA card, which need rights and the `address` of a network card; see Receive backends below",
    ),
    key(
        "source",
        "senders",
        Kind::Texts,
        "learned",
        "senders whose packets are taken. learned = in each run, each stream takes only the packets of its first sender (address and port), until that has been silent for long (docs/troubleshooting.md, Somebody else sends to the ports); any = all senders; or a list of addresses with or without a port, for example [\"10.1.1.10\", \"10.1.1.11:32410\"]",
    ),
];
