// Finished frames of a JUNGFRAU from the memory of the card to that of the host: reads the words of a frame when its
// event comes, sends them through pixel_pipeline and bitshuffle, which stand outside of it, marks the pixels of missing
// packets, and writes to host memory what docs/fpga.md calls a frame and its record. One frame after the other.
//
// A frame waits until the host has given a slot back. Its slot in the memory of the card is given back when the record
// is written. Requests to memory are answered in their order.
module frame_out #(
    parameter SLOTS_LOG2 = 6
) (
    input  wire         clk,
    input  wire         rst,
    // Owners: which packet brings a unit of 2^cfg_unit_log2 beats of the frame: {tile, packet}.
    input  wire         cfg_write,
    input  wire [10:0]  cfg_address,
    input  wire [12:0]  cfg_data,
    input  wire [3:0]   cfg_unit_log2,
    input  wire [20:0]  cfg_beats,            // of a frame; whole blocks of 128
    input  wire [4:0]   cfg_tiles,
    input  wire [47:0]  cfg_base,             // slots in the memory of the card
    input  wire [27:0]  cfg_slot_bytes,
    input  wire         cfg_unsigned,         // pixels are uint16, else int16
    input  wire [47:0]  cfg_host_pixels,      // slots in the memory of the host: pixels, then a mask for each tile
    input  wire [47:0]  cfg_host_ring,        // entries of 32 bytes, as many as slots
    input  wire [27:0]  cfg_host_slot_bytes,
    input  wire [11:0]  cfg_host_slots,       // 1 to 2048
    input  wire [39:0]  host_released,        // frames that the host has given back
    // Events of place.
    input  wire         e_valid,
    output wire         e_ready,
    input  wire [511:0] e_mask,
    input  wire [39:0]  e_image,
    input  wire [SLOTS_LOG2-1:0] e_slot,
    input  wire [13:0]  e_missing,
    input  wire         e_last,
    output reg          release_valid,
    // Memory of the card: requests of 64 bytes, and what is answered.
    output wire         r_valid,
    input  wire         r_ready,
    output wire [47:0]  r_address,
    // Pixels of pixel_pipeline, and the same for bitshuffle, with missing ones marked.
    input  wire         q_valid,
    output wire         q_ready,
    input  wire [511:0] q_data,
    output wire         x_valid,
    input  wire         x_ready,
    output wire [511:0] x_data,
    // Blocks of bitshuffle.
    input  wire         y_valid,
    output wire         y_ready,
    input  wire [511:0] y_data,
    // Memory of the host.
    output wire         h_valid,
    input  wire         h_ready,
    output reg  [47:0]  h_address,
    output reg  [511:0] h_data,
    output wire         h_record,             // an entry of the ring: its 32 bytes only, and it completes a frame
    output reg  [39:0]  frames
);
    localparam COLLECT = 3'd0, CREDIT = 3'd1, RUN = 3'd2, MASKS = 3'd3, RECORD = 3'd4;
    reg [2:0]  state;

    // ---- The event: a mask for each tile ----
    (* ram_style = "distributed" *) reg [511:0] masks [0:15];
    reg [3:0]  tile;
    reg [39:0] image;
    reg [13:0] missing;
    reg [47:0] frame_start;
    reg [11:0] host_slot;
    reg [47:0] host_start, ring_start;
    wire [39:0] in_hands = frames - host_released;
    wire       has_credit = in_hands < {28'd0, cfg_host_slots};
    wire       begins = state == CREDIT && has_credit;
    assign e_ready = state == COLLECT;
    always @(posedge clk) begin
        if (e_valid && e_ready) begin
            masks[tile] <= e_mask;
            image <= e_image;
            missing <= e_missing;
            frame_start <= cfg_base + e_slot * cfg_slot_bytes;
        end
        if (state == COLLECT) begin
            host_start <= cfg_host_pixels + host_slot * cfg_host_slot_bytes;
            ring_start <= cfg_host_ring + {31'd0, host_slot, 5'd0};
        end
    end

    // ---- Requests ----
    reg [20:0] asked;
    reg [47:0] asked_at;
    assign r_valid = state == RUN && asked != cfg_beats;
    assign r_address = asked_at;

    // ---- For each beat, whether its packet is missing: owner, mask, bit ----
    reg [12:0] owners [0:2047];
    always @(posedge clk) if (cfg_write) owners[cfg_address] <= cfg_data;
    reg  [20:0] flag_beat;
    wire [20:0] flag_unit = flag_beat >> cfg_unit_log2;
    wire        flag_more = state == RUN && flag_beat != cfg_beats;
    reg         a_valid, b_valid;
    reg  [12:0] a_owner;
    reg  [8:0]  b_packet;
    reg  [511:0] b_mask;
    wire        flags_ready, flag_valid, flag;
    wire        b_goes = !b_valid || flags_ready;
    wire        a_goes = !a_valid || b_goes;
    always @(posedge clk) begin
        if (a_goes) a_owner <= owners[flag_unit[10:0]];
        if (a_valid && b_goes) begin
            b_packet <= a_owner[8:0];
            b_mask <= masks[a_owner[12:9]];
        end
        if (rst || begins) begin
            flag_beat <= 21'd0;
            a_valid <= 1'b0;
            b_valid <= 1'b0;
        end else begin
            if (flag_more && a_goes) flag_beat <= flag_beat + 21'd1;
            if (a_goes) a_valid <= flag_more;
            if (b_goes) b_valid <= a_valid;
        end
    end
    small_fifo #(.WIDTH(1), .DEPTH_LOG2(5)) flags (
        .clk(clk), .rst(rst),
        .s_valid(b_valid), .s_ready(flags_ready), .s_data(!b_mask[b_packet]),
        .m_valid(flag_valid), .m_ready(q_valid && x_ready), .m_data(flag)
    );
    // In a card the flags come first: 4 clocks behind begins, pixels 10 at the soonest, and then both one per clock.
    assign x_valid = q_valid && flag_valid;
    assign q_ready = x_ready && flag_valid;
    assign x_data = flag ? {32{cfg_unsigned ? 16'hFFFF : 16'h8002}} : q_data;

    // ---- To the host: pixels, masks, record ----
    reg [20:0] written;
    wire       of_pixels = state == RUN;
    assign y_ready = of_pixels && h_ready;
    assign h_valid = of_pixels ? y_valid : state == MASKS || state == RECORD;
    assign h_record = state == RECORD;
    wire       h_goes = h_valid && h_ready;
    wire [39:0] sequence_number = frames + 40'd1;
    always @* begin
        case (state)
            RUN: h_data = y_data;
            MASKS: h_data = masks[tile];
            default: h_data = {
                256'd0, 8'd1, 3'd0, cfg_tiles, 2'd0, missing, 5'd0, cfg_beats, 6'd0,
                16'd0, host_start, 24'd0, image, 24'd0, sequence_number
            };
        endcase
    end
    wire       last_pixels = written + 21'd1 == cfg_beats;
    wire       last_mask = {1'b0, tile} + 5'd1 == cfg_tiles;
    always @(posedge clk) begin
        release_valid <= 1'b0;
        if (rst) begin
            state <= COLLECT;
            tile <= 4'd0;
            frames <= 40'd0;
            host_slot <= 12'd0;
        end else begin
            case (state)
                COLLECT: if (e_valid) begin
                    tile <= e_last ? 4'd0 : tile + 4'd1;
                    if (e_last) state <= CREDIT;
                end
                CREDIT: if (has_credit) state <= RUN;
                RUN: if (h_goes && last_pixels) state <= MASKS;
                MASKS: if (h_ready) begin
                    tile <= last_mask ? 4'd0 : tile + 4'd1;
                    if (last_mask) state <= RECORD;
                end
                default: if (h_ready) begin
                    state <= COLLECT;
                    frames <= sequence_number;
                    host_slot <= host_slot + 12'd1 == cfg_host_slots ? 12'd0 : host_slot + 12'd1;
                    release_valid <= 1'b1;
                end
            endcase
        end
        if (begins) begin
            asked <= 21'd0;
            asked_at <= frame_start;
            written <= 21'd0;
            h_address <= host_start;
        end else begin
            if (r_valid && r_ready) begin
                asked <= asked + 21'd1;
                asked_at <= asked_at + 48'd64;
            end
            if (h_goes) begin
                if (of_pixels) written <= written + 21'd1;
                h_address <= state == MASKS && last_mask ? ring_start : h_address + 48'd64;
            end
        end
    end
endmodule
