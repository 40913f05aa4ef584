// A card for a JUNGFRAU: Ethernet frames in, and in the memory of the host, frames of pixels after bitshuffle with a
// record each (docs/fpga.md, "A card"). Around it stand a MAC, the memory of the card (written, read in order), the
// constants of the pixels as a stream that begins anew with each frame, and DMA to the host.
module card (
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
    // Of pixel_pipeline and frame_out; the owners of frame_out are table 6 of the port cfg_write.
    input  wire         cfg_high_gain,
    input  wire [17:0]  cfg_shifts,
    input  wire         cfg_unsigned,
    input  wire [3:0]   cfg_unit_log2,
    input  wire [20:0]  cfg_beats,
    input  wire [47:0]  cfg_host_pixels, cfg_host_ring,
    input  wire [27:0]  cfg_host_slot_bytes,
    input  wire [11:0]  cfg_host_slots,
    input  wire [39:0]  host_released,
    input  wire         flush,              // the run ends: frames that wait for packets are finished as they are
    // From the MAC.
    input  wire         s_valid,
    input  wire [511:0] s_data,
    input  wire [63:0]  s_keep,
    input  wire         s_last,
    input  wire         s_error,
    // Memory of the card: writes; requests, and what is answered.
    output wire         m_valid,
    input  wire         m_ready,
    output wire [511:0] m_data,
    output wire [47:0]  m_address,
    output wire         m_first,
    output wire         m_last,
    output wire         r_valid,
    input  wire         r_ready,
    output wire [47:0]  r_address,
    input  wire         d_valid,
    output wire         d_ready,
    input  wire [511:0] d_data,
    // Constants, as of pixel_pipeline.
    input  wire         c_valid,
    output wire         c_ready,
    input  wire [3263:0] c_data,
    // Memory of the host.
    output wire         h_valid,
    input  wire         h_ready,
    output wire [47:0]  h_address,
    output wire [511:0] h_data,
    output wire         h_record,
    output wire [39:0]  frames,
    output wire [287:0] frame_counters,
    output wire [319:0] packet_counters
);
    localparam TABLE_OWNERS = 3'd6;
    wire         e_valid, e_ready, e_last, release_valid;
    wire [511:0] e_mask;
    wire [39:0]  e_image;
    wire [5:0]   e_slot;
    wire [13:0]  e_missing;
    receiver receive (.cfg_write(cfg_write && cfg_select != TABLE_OWNERS), .*);

    wire         q_valid, q_ready, x_valid, x_ready, y_valid, y_ready;
    wire [511:0] q_data, x_data, y_data;
    pixel_pipeline pixels (
        .clk(clk), .rst(rst), .cfg_high_gain(cfg_high_gain), .cfg_shifts(cfg_shifts), .cfg_kind({1'b0, cfg_unsigned}),
        .s_valid(d_valid), .s_ready(d_ready), .s_data(d_data), .s_first(1'b1), .s_last(1'b1),
        .c_valid(c_valid), .c_ready(c_ready), .c_data(c_data),
        .b_valid(1'b0), .b_ready(), .b_data(1024'd0), .t_valid(), .t_ready(1'b1), .t_data(),
        .m_valid(q_valid), .m_ready(q_ready), .m_data(q_data)
    );
    bitshuffle shuffle (
        .clk(clk), .rst(rst), .s_valid(x_valid), .s_ready(x_ready), .s_data(x_data),
        .m_valid(y_valid), .m_ready(y_ready), .m_data(y_data), .m_last()
    );
    frame_out out (.cfg_write(cfg_write && cfg_select == TABLE_OWNERS), .cfg_data(cfg_data[12:0]), .*);
endmodule
