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
    input  wire         cfg_write,
    input  wire [2:0]   cfg_select,
    input  wire [10:0]  cfg_address,
    input  wire [63:0]  cfg_data,
    input  wire [5:0]   cfg_frame_offset, cfg_packet_offset, cfg_module_offset,
    input  wire         cfg_frame_big, cfg_packet_big, cfg_module_big,
    input  wire [63:0]  cfg_frame_mask, cfg_packet_mask, cfg_module_mask,
    input  wire [5:0]   cfg_frame_shift, cfg_packet_shift, cfg_module_shift,
    input  wire [63:0]  cfg_frame_bits, cfg_first_frame, cfg_first_packet,
    input  wire [9:0]   cfg_packets,
    input  wire [13:0]  cfg_frame_packets,
    input  wire [15:0]  cfg_datagram_bytes,
    input  wire [1:0]   cfg_header_sixteenths,
    input  wire [4:0]   cfg_tiles,
    input  wire [47:0]  cfg_base,
    input  wire [27:0]  cfg_slot_bytes,
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
        .clk(clk), .rst(rst), .cfg_v4(cfg_v4), .cfg_address_v4(cfg_address_v4), .cfg_v6(cfg_v6), .cfg_address_v6(cfg_address_v6),
        .cfg_port_first(cfg_port_first), .cfg_streams(cfg_streams),
        .s_valid(s_valid), .s_data(s_data), .s_keep(s_keep), .s_last(s_last), .s_error(s_error),
        .m_valid(valid), .m_ready(ready), .m_data(data), .m_bytes(), .m_last(last), .m_stream(stream), .m_payload_bytes(payload_bytes),
        .v_valid(), .v_code(), .counters(frame_counters)
    );
    place program_of_detector (
        .clk(clk), .rst(rst), .cfg_write(cfg_write), .cfg_select(cfg_select), .cfg_address(cfg_address), .cfg_data(cfg_data),
        .cfg_frame_offset(cfg_frame_offset), .cfg_packet_offset(cfg_packet_offset), .cfg_module_offset(cfg_module_offset),
        .cfg_frame_big(cfg_frame_big), .cfg_packet_big(cfg_packet_big), .cfg_module_big(cfg_module_big),
        .cfg_frame_mask(cfg_frame_mask), .cfg_packet_mask(cfg_packet_mask), .cfg_module_mask(cfg_module_mask),
        .cfg_frame_shift(cfg_frame_shift), .cfg_packet_shift(cfg_packet_shift), .cfg_module_shift(cfg_module_shift),
        .cfg_frame_bits(cfg_frame_bits), .cfg_first_frame(cfg_first_frame), .cfg_first_packet(cfg_first_packet),
        .cfg_packets(cfg_packets), .cfg_frame_packets(cfg_frame_packets), .cfg_datagram_bytes(cfg_datagram_bytes),
        .cfg_header_sixteenths(cfg_header_sixteenths), .cfg_tiles(cfg_tiles), .cfg_base(cfg_base), .cfg_slot_bytes(cfg_slot_bytes),
        .s_valid(valid), .s_ready(ready), .s_data(data), .s_last(last), .s_stream(stream), .s_payload_bytes(payload_bytes),
        .m_valid(m_valid), .m_ready(m_ready), .m_data(m_data), .m_address(m_address), .m_first(m_first), .m_last(m_last),
        .e_valid(e_valid), .e_ready(e_ready), .e_mask(e_mask), .e_image(e_image), .e_slot(e_slot), .e_missing(e_missing),
        .e_last(e_last), .release_valid(release_valid), .flush(flush), .v_valid(), .v_code(), .counters(packet_counters)
    );
endmodule
