// Ethernet frames in, pixels with addresses out: udp_front and place, as a card needs them behind its MAC. Ports are
// those of the two blocks.
module receiver (
    input  wire         clk,
    input  wire         rst,
    input  wire         cfg_v4, cfg_v6,
    input  wire [31:0]  cfg_address_v4,
    input  wire [127:0] cfg_address_v6,
    input  wire [15:0]  cfg_port_first,
    input  wire [4:0]   cfg_streams,
`include "place_config.svh"
    input  wire         cfg_write,
    input  wire [47:0]  cfg_base,
    // From the MAC.
    input  wire         s_valid,
    input  wire [511:0] s_data,
    input  wire [63:0]  s_keep,
    input  wire         s_last,
    input  wire         s_error,
    // To memory.
    output wire         m_valid,
    input  wire         m_ready,
    output wire [511:0] m_data,
    output wire [47:0]  m_address,
    output wire         m_first,
    output wire         m_last,
    // To the host.
    output wire         e_valid,
    input  wire         e_ready,
    output wire [511:0] e_mask,
    output wire [39:0]  e_image,
    output wire [5:0]   e_slot,
    output wire [13:0]  e_missing,
    output wire         e_last,
    input  wire         release_valid,
    input  wire         flush,
    output wire [287:0] frame_counters,
    output wire [319:0] packet_counters
);
    wire         valid, ready, last;
    wire [511:0] data;
    wire [3:0]   stream;
    wire [15:0]  payload_bytes;
    udp_front front (
        .m_valid(valid), .m_ready(ready), .m_data(data), .m_bytes(), .m_last(last), .m_stream(stream), .m_payload_bytes(payload_bytes),
        .v_valid(), .v_code(), .counters(frame_counters), .*
    );
    place program_of_detector (
        .s_valid(valid), .s_ready(ready), .s_data(data), .s_last(last), .s_stream(stream), .s_payload_bytes(payload_bytes),
        .v_valid(), .v_code(), .counters(packet_counters), .*
    );
endmodule
