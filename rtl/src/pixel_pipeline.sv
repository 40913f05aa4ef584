// Words of a JUNGFRAU in, pixels of the file out, 32 per clock: conversion in integers (docs/formats/fixed-point.md),
// sums of frames, the type of the file. Constants and sums of the frames before come from memory as streams of the same
// order, and sums that are not finished go back there.
//
// The conversion is a pipeline that never waits; words enter it only if the queue behind it has room for them.
module pixel_pipeline (
    input  wire          clk,
    input  wire          rst,
    input  wire          cfg_high_gain,
    input  wire [17:0]   cfg_shifts,   // of G2, G1, G0, 6 bits each, 1 to 47
    input  wire [1:0]    cfg_kind,     // of the pixels: 0 int16, 1 uint16, 2 int32, 3 uint32
    // Words. first and last: of the frames of a sum this is the first, the last.
    input  wire          s_valid,
    output wire          s_ready,
    input  wire [511:0]  s_data,
    input  wire          s_first,
    input  wire          s_last,
    // Constants of the same pixels, 102 bits each.
    input  wire          c_valid,
    output wire          c_ready,
    input  wire [3263:0] c_data,
    // Sums of the frames before, int32; not asked for in the first frame.
    input  wire          b_valid,
    output wire          b_ready,
    input  wire [1023:0] b_data,
    // Sums that are not finished.
    output reg           t_valid,
    input  wire          t_ready,
    output reg  [1023:0] t_data,
    // Pixels; 32 bits wide they take two beats.
    output wire          m_valid,
    input  wire          m_ready,
    output wire [511:0]  m_data
);
    localparam LATENCY = 6, QUEUE_LOG2 = 4;
    genvar n;

    // Conversion.
    reg  [QUEUE_LOG2:0] inside_count;   // beats that are in the pipeline or in the queue
    wire         has_room = !inside_count[QUEUE_LOG2];
    wire         enters = s_valid && c_valid && has_room;
    assign s_ready = c_valid && has_room;
    assign c_ready = s_valid && has_room;
    reg  [LATENCY-1:0] moving, moving_first, moving_last;
    wire [1023:0] converted;
    wire          leaves;
    always @(posedge clk) begin
        moving <= rst ? {LATENCY{1'b0}} : {moving[LATENCY-2:0], enters};
        moving_first <= {moving_first[LATENCY-2:0], s_first};
        moving_last <= {moving_last[LATENCY-2:0], s_last};
        if (rst) inside_count <= 0;
        else inside_count <= inside_count + {{QUEUE_LOG2{1'b0}}, enters} - {{QUEUE_LOG2{1'b0}}, leaves};
    end
    generate
        for (n = 0; n < 32; n = n + 1) begin : lane
            pixel_lane convert (
                .clk(clk), .high_gain(cfg_high_gain), .shifts(cfg_shifts),
                .word(s_data[16*n +: 16]), .constants(c_data[102*n +: 102]), .pixel(converted[32*n +: 32])
            );
        end
    endgenerate
    wire          q_valid, q_first, q_last;
    wire [1023:0] q_data;
    small_fifo #(.WIDTH(1026), .DEPTH_LOG2(QUEUE_LOG2)) queue (
        .clk(clk), .rst(rst),
        .s_valid(moving[LATENCY-1]), .s_ready(), .s_data({moving_first[LATENCY-1], moving_last[LATENCY-1], converted}),
        .m_valid(q_valid), .m_ready(leaves), .m_data({q_first, q_last, q_data})
    );

    // Sums: a finished one goes on, another one goes back to memory.
    reg           u_valid;
    reg  [1023:0] u_data;
    wire          u_ready;
    wire          place_free = q_last ? !u_valid || u_ready : !t_valid || t_ready;
    wire          sum_here = q_valid && (q_first || b_valid);
    assign leaves = sum_here && place_free;
    assign b_ready = q_valid && !q_first && place_free;
    wire [1023:0] sums, narrowed;
    generate
        for (n = 0; n < 32; n = n + 1) begin : sum_lane
            pixel_sum_lane add (
                .alone(q_first), .earlier(b_data[32*n +: 32]), .pixel(q_data[32*n +: 32]), .sum(sums[32*n +: 32]),
                .kind(cfg_kind), .value(u_data[32*n +: 32]), .narrow(narrowed[32*n +: 32])
            );
        end
    endgenerate
    always @(posedge clk) begin
        if (rst) u_valid <= 1'b0;
        else if (leaves && q_last) u_valid <= 1'b1;
        else if (u_ready) u_valid <= 1'b0;
        if (rst) t_valid <= 1'b0;
        else if (leaves && !q_last) t_valid <= 1'b1;
        else if (t_ready) t_valid <= 1'b0;
        if (leaves && q_last) u_data <= sums;
        if (leaves && !q_last) t_data <= sums;
    end

    // The type of the file, in one beat or two.
    reg           o_valid, o_two, o_second;
    reg  [1023:0] o_data;
    wire          o_ends = m_ready && (!o_two || o_second);
    assign u_ready = !o_valid || o_ends;
    wire [511:0]  packed16;
    generate
        for (n = 0; n < 32; n = n + 1) begin : pack
            assign packed16[16*n +: 16] = narrowed[32*n +: 16];
        end
    endgenerate
    always @(posedge clk) begin
        if (u_valid && u_ready) begin
            o_data <= cfg_kind[1] ? narrowed : {512'd0, packed16};
            o_two <= cfg_kind[1];
        end
        if (rst) o_valid <= 1'b0;
        else if (u_ready) o_valid <= u_valid;
        if (rst || u_ready) o_second <= 1'b0;
        else if (o_valid && m_ready) o_second <= 1'b1;
    end
    assign m_valid = o_valid;
    assign m_data = o_second ? o_data[1023:512] : o_data[511:0];
endmodule
