// Four lines in, one port of memory out: four receivers side by side, each with tables, slots and frames of its own,
// as for four groups of modules or four detectors of one kind. Packets are written by turns: the port belongs to one
// pipeline from the first beat of a packet to its last, and then to the next pipeline behind it that has a packet. A
// pipeline that waits keeps its packets in its own buffer, and the frames of its line that find it full are no_room
// there; the other lines do not notice it. Events come by turns too, all tiles of a frame together.
module four_receivers (
    input  wire         clk,
    input  wire         rst,
    input  wire         cfg_v4, cfg_v6,
    input  wire [31:0]  cfg_address_v4,
    input  wire [127:0] cfg_address_v6,
    input  wire [15:0]  cfg_port_first,
    input  wire [4:0]   cfg_streams,
`include "place_config.svh"
    input  wire [3:0]   cfg_write,           // a bit for each pipeline: tables are those of the pipeline
    input  wire [191:0] cfg_bases,           // 48 bits for each pipeline
    // Lines.
    input  wire         s0_valid,
    input  wire [511:0] s0_data,
    input  wire [63:0]  s0_keep,
    input  wire         s0_last,
    input  wire         s0_error,
    input  wire         s1_valid,
    input  wire [511:0] s1_data,
    input  wire [63:0]  s1_keep,
    input  wire         s1_last,
    input  wire         s1_error,
    input  wire         s2_valid,
    input  wire [511:0] s2_data,
    input  wire [63:0]  s2_keep,
    input  wire         s2_last,
    input  wire         s2_error,
    input  wire         s3_valid,
    input  wire [511:0] s3_data,
    input  wire [63:0]  s3_keep,
    input  wire         s3_last,
    input  wire         s3_error,
    // To memory.
    output wire         m_valid,
    input  wire         m_ready,
    output wire [511:0] m_data,
    output wire [47:0]  m_address,
    output wire         m_first,
    output wire         m_last,
    output wire [1:0]   m_pipeline,
    // To the host.
    output wire         e_valid,
    input  wire         e_ready,
    output wire [511:0] e_mask,
    output wire [39:0]  e_image,
    output wire [5:0]   e_slot,
    output wire [13:0]  e_missing,
    output wire         e_last,
    output wire [1:0]   e_pipeline,
    input  wire [3:0]   release_valid,
    input  wire         flush,
    output wire [1151:0] frame_counters,     // 288 bits for each pipeline
    output wire [1279:0] packet_counters     // 320 bits for each
);
    localparam WRITE = 512 + 48 + 1, EVENT = 512 + 40 + 6 + 14;
    wire [3:0]   line_valid = {s3_valid, s2_valid, s1_valid, s0_valid};
    wire [2047:0] line_data = {s3_data, s2_data, s1_data, s0_data};
    wire [255:0] line_keep = {s3_keep, s2_keep, s1_keep, s0_keep};
    wire [3:0]   line_last = {s3_last, s2_last, s1_last, s0_last};
    wire [3:0]   line_error = {s3_error, s2_error, s1_error, s0_error};
    wire [3:0]   w_valid, w_ready, w_last, v_valid, v_ready, v_last;
    wire [4*WRITE-1:0] w_data;
    wire [4*EVENT-1:0] v_data;
    genvar n;
    generate
        for (n = 0; n < 4; n = n + 1) begin : pipeline
            receiver receive (
                .cfg_write(cfg_write[n]), .cfg_base(cfg_bases[48*n +: 48]),
                .s_valid(line_valid[n]), .s_data(line_data[512*n +: 512]), .s_keep(line_keep[64*n +: 64]),
                .s_last(line_last[n]), .s_error(line_error[n]),
                .m_valid(w_valid[n]), .m_ready(w_ready[n]), .m_data(w_data[WRITE*n +: 512]),
                .m_address(w_data[WRITE*n + 512 +: 48]), .m_first(w_data[WRITE*n + 560]), .m_last(w_last[n]),
                .e_valid(v_valid[n]), .e_ready(v_ready[n]), .e_mask(v_data[EVENT*n +: 512]),
                .e_image(v_data[EVENT*n + 512 +: 40]), .e_slot(v_data[EVENT*n + 552 +: 6]),
                .e_missing(v_data[EVENT*n + 558 +: 14]), .e_last(v_last[n]), .release_valid(release_valid[n]),
                .frame_counters(frame_counters[288*n +: 288]), .packet_counters(packet_counters[320*n +: 320]), .*
            );
        end
    endgenerate
    by_turns #(.WIDTH(WRITE)) writes (
        .clk(clk), .rst(rst), .s_valid(w_valid), .s_ready(w_ready), .s_data(w_data), .s_last(w_last),
        .m_valid(m_valid), .m_ready(m_ready), .m_data({m_first, m_address, m_data}), .m_last(m_last), .m_source(m_pipeline)
    );
    by_turns #(.WIDTH(EVENT)) events (
        .clk(clk), .rst(rst), .s_valid(v_valid), .s_ready(v_ready), .s_data(v_data), .s_last(v_last),
        .m_valid(e_valid), .m_ready(e_ready), .m_data({e_missing, e_slot, e_image, e_mask}), .m_last(e_last), .m_source(e_pipeline)
    );
endmodule
