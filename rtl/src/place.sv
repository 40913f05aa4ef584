// Datagrams in, their pixels with addresses out: the bridge program (docs/bridge.md) of a JUNGFRAU, an EIGER or another
// detector, and the frames: one verdict for each packet, a mask of 512 bits for each frame and tile, and an event when a
// frame is finished.
//
// The rules are those of crates/fabric/src/bridge (table.rs for addresses, frames.rs for verdicts and frames), with the
// window of 8 frames that every program of Konkordia has. A packet far ahead is refused ("ahead"), and the stream does
// not follow it by itself. The program comes as tables through the port cfg_write; rtl/tests/program.py makes them.
module place #(
    parameter SLOTS_LOG2 = 6
) (
    input  wire         clk,
    input  wire         rst,
`include "place_config.svh"
    input  wire         cfg_write,
    input  wire [47:0]  cfg_base,
    // Datagrams, as udp_front gives them.
    input  wire         s_valid,
    output wire         s_ready,
    input  wire [511:0] s_data,
    input  wire         s_last,
    input  wire [3:0]   s_stream,
    input  wire [15:0]  s_payload_bytes,
    // 64 bytes each with their address; first = the address does not continue the one before.
    output reg          m_valid,
    input  wire         m_ready,
    output reg  [511:0] m_data,
    output reg  [47:0]  m_address,
    output reg          m_first,
    output reg          m_last,               // of the packet
    // Finished frames in order: a mask for each tile; with the last one the frame is in memory.
    output wire         e_valid,
    input  wire         e_ready,
    output wire [511:0] e_mask,
    output wire [39:0]  e_image,              // frames since the first one
    output wire [SLOTS_LOG2-1:0] e_slot,
    output wire [13:0]  e_missing,            // packets
    output wire         e_last,
    // The oldest finished frame gives its slot back.
    input  wire         release_valid,
    // The run ends: frames that wait for packets are finished as they are whenever no packet is there. It is set when
    // the last packet has come; what comes later of these frames is late.
    input  wire         flush,
    // One verdict for each packet.
    output reg          v_valid,
    output reg  [3:0]   v_code,
    output wire [319:0] counters              // 32 bits for each code
);
    localparam PLACED = 4'd0, DUPLICATE = 4'd1, LATE = 4'd2, NO_SLOT = 4'd3, FOREIGN = 4'd4, AHEAD = 4'd5, UNKNOWN = 4'd6,
               WRONG_LENGTH = 4'd7, WRONG_REQUIRED = 4'd8, WRONG_NUMBER = 4'd9;
    localparam TABLE_REQUIRE_MASK = 3'd0, TABLE_REQUIRE_VALUE = 3'd1, TABLE_ORIGINS = 3'd2, TABLE_SEGMENTS = 3'd3,
               TABLE_TILES = 3'd4, TABLE_OFFSETS = 3'd5;
    localparam SLOTS = 1 << SLOTS_LOG2;
    localparam WINDOW = 8;          // frames; as many are remembered behind it, to tell duplicates from late packets
    localparam IMAGE_BITS = 40;
    integer i;

    // ---- Tables ----
    reg [511:0] require_mask, require_value;
    reg [33:0]  origins [0:2047];     // {pattern, sum of the terms}; by place (2 bits) and packet
    (* ram_style = "distributed" *)
    reg [39:0]  segments [0:255];     // {beats, destination}; by place, pattern and number
    reg [15:0]  tile_valid, tile_any_stream, tile_any_module;
    reg [3:0]   tile_stream [0:15];
    reg [15:0]  tile_module [0:15];
    reg [1:0]   tile_place [0:15];
    reg [31:0]  tile_offset [0:15];
    always @(posedge clk) begin
        if (rst) tile_valid <= 16'd0;
        else if (cfg_write && cfg_select == TABLE_TILES) tile_valid[cfg_address[3:0]] <= cfg_data[24];
        if (cfg_write) begin
            case (cfg_select)
                TABLE_REQUIRE_MASK: require_mask[64*cfg_address[2:0] +: 64] <= cfg_data;
                TABLE_REQUIRE_VALUE: require_value[64*cfg_address[2:0] +: 64] <= cfg_data;
                TABLE_ORIGINS: origins[cfg_address] <= cfg_data[33:0];
                TABLE_SEGMENTS: segments[cfg_address[7:0]] <= cfg_data[39:0];
                TABLE_TILES: begin
                    tile_any_stream[cfg_address[3:0]] <= cfg_data[23];
                    tile_any_module[cfg_address[3:0]] <= cfg_data[22];
                    tile_stream[cfg_address[3:0]] <= cfg_data[21:18];
                    tile_place[cfg_address[3:0]] <= cfg_data[17:16];
                    tile_module[cfg_address[3:0]] <= cfg_data[15:0];
                end
                default: tile_offset[cfg_address[3:0]] <= cfg_data[31:0];
            endcase
        end
    end

    // ---- The header of each datagram to the rules, its payload to the queue ----
    reg          s_inside;              // a beat of this datagram was taken before
    reg  [511:0] s_before;
    reg          header_valid, header_single;
    reg  [511:0] header;
    reg  [3:0]   header_stream;
    reg  [15:0]  header_bytes;
    wire         header_taken;
    wire         queue_ready;
    assign s_ready = s_inside ? queue_ready : !header_valid;
    wire         s_goes = s_valid && s_ready;
    reg  [511:0] payload;
    always @* begin
        case (cfg_header_sixteenths)
            2'd1: payload = {s_data[127:0], s_before[511:128]};
            2'd2: payload = {s_data[255:0], s_before[511:256]};
            2'd3: payload = {s_data[383:0], s_before[511:384]};
            default: payload = s_data;
        endcase
    end
    always @(posedge clk) begin
        if (s_goes) s_before <= s_data;
        if (s_goes && !s_inside) begin
            header <= s_data;
            header_single <= s_last;
            header_stream <= s_stream;
            header_bytes <= s_payload_bytes;
        end
        if (rst) begin
            s_inside <= 1'b0;
            header_valid <= 1'b0;
        end else begin
            if (s_goes) s_inside <= !s_last;
            if (s_goes && !s_inside) header_valid <= 1'b1;
            else if (header_taken) header_valid <= 1'b0;
        end
    end
    wire         queue_valid, queue_pop;
    wire [511:0] queue_data;
    wire         queue_last;
    small_fifo #(.WIDTH(513), .DEPTH_LOG2(5)) queue (
        .clk(clk), .rst(rst),
        .s_valid(s_valid && s_inside), .s_ready(queue_ready), .s_data({s_last, payload}),
        .m_valid(queue_valid), .m_ready(queue_pop), .m_data({queue_last, queue_data})
    );

    // ---- The rules: one packet after the other ----
    localparam CLEAR = 4'd0, IDLE = 4'd1, KEYS = 4'd2, MASKS = 4'd3, FORM = 4'd4, AHEAD_OF = 4'd5, LOOK = 4'd6, CLAIM = 4'd7,
               OUT = 4'd8, CLOSE = 4'd9, MASK_READ = 4'd10, MASK_OUT = 4'd11;
    reg [3:0]  state;
    reg        closing_before;     // frames are closed before the packet is judged, not after
    reg        flushing;
    reg [7:0]  clear_at;
    reg [3:0]  stream;
    reg        single, length_right, required_right;
    reg [63:0] frame_raw, packet_raw, module_raw, frame, packet_offset, module_number;
    reg [3:0]  tile;
    reg        tile_found, port_found, packet_in_tile;
    reg [8:0]  packet;
    reg [64:0] image_wide;
    reg [IMAGE_BITS-1:0] image, low, newest_end;
    reg [3:0]  code;
    reg [63:0] newest_frame;
    reg [19:0] placed_count;       // packets that were sent to the writer as placed; more than 16 frames have

    function automatic [63:0] eight(input [511:0] from, input [5:0] offset, input big);
        reg [575:0] padded;
        reg [63:0] little;
        integer n;
        begin
            padded = {64'd0, from};
            little = padded[8*offset +: 64];
            for (n = 0; n < 8; n = n + 1) eight[8*n +: 8] = big ? little[8*(7 - n) +: 8] : little[8*n +: 8];
        end
    endfunction

    // Which tile a packet belongs to: tiles of its port, or those of any port if none has this port.
    reg [15:0] of_port, of_any, matching;
    always @* begin
        for (i = 0; i < 16; i = i + 1) begin
            of_port[i] = tile_valid[i] && !tile_any_stream[i] && tile_stream[i] == stream;
            of_any[i] = tile_valid[i] && tile_any_stream[i];
        end
        for (i = 0; i < 16; i = i + 1)
            matching[i] = (of_port != 16'd0 ? of_port[i] : of_any[i])
                && (tile_any_module[i] || {48'd0, tile_module[i]} == module_number);
    end
    reg [3:0] matching_tile;
    always @* begin
        matching_tile = 4'd0;
        for (i = 15; i >= 0; i = i - 1) if (matching[i]) matching_tile = i[3:0];
    end

    // The nearest frame to the newest one that has these bits.
    wire [63:0] frame_ahead = frame - newest_frame;
    wire        frame_behind = (frame_ahead & cfg_frame_bits & ~(cfg_frame_bits >> 1)) != 64'd0;
    wire [63:0] frame_step = frame_behind ? frame_ahead | ~cfg_frame_bits : frame_ahead & cfg_frame_bits;
    wire [IMAGE_BITS-1:0] newest = newest_end == 0 ? newest_end : newest_end - 1'b1;

    // Masks of the newest 16 frames of each tile: {valid, refused, image, mask}.
    localparam ENTRY = 2 + IMAGE_BITS + 512;
    reg [ENTRY-1:0] entries [0:255];
    reg [ENTRY-1:0] entry;
    reg [7:0]  entry_read_at;
    reg        entry_write;
    reg [7:0]  entry_write_at;
    reg [ENTRY-1:0] entry_new;
    always @(posedge clk) begin
        if (entry_write) entries[entry_write_at] <= entry_new;
        entry <= entries[entry_read_at];
    end
    wire entry_is_this = entry[ENTRY-1] && entry[512 +: IMAGE_BITS] == image;
    wire entry_refused = entry[ENTRY-2];
    wire entry_has = entry[{1'b0, packet}];

    // What each slot holds: {valid, image, packets}, and which image found it taken: {valid, image}.
    (* ram_style = "distributed" *) reg [IMAGE_BITS+14:0] fillings [0:SLOTS-1];
    (* ram_style = "distributed" *) reg [IMAGE_BITS:0] refusals [0:SLOTS-1];
    wire [SLOTS_LOG2-1:0] low_slot = low[SLOTS_LOG2-1:0] + cfg_first_frame[SLOTS_LOG2-1:0];
    wire [SLOTS_LOG2-1:0] image_slot = image[SLOTS_LOG2-1:0] + cfg_first_frame[SLOTS_LOG2-1:0];
    wire       at_low = state == CLOSE;
    wire [SLOTS_LOG2-1:0] filling_at = at_low ? low_slot : image_slot;
    wire [IMAGE_BITS+14:0] filling = fillings[filling_at];
    wire [IMAGE_BITS:0] refusal = refusals[filling_at];
    wire       filling_is_low = filling[IMAGE_BITS+14] && filling[14 +: IMAGE_BITS] == low;
    wire       filling_is_image = filling[IMAGE_BITS+14] && filling[14 +: IMAGE_BITS] == image;
    wire       refusal_is_image = refusal[IMAGE_BITS] && refusal[IMAGE_BITS-1:0] == image;
    reg        filling_write, refusal_write;
    reg [SLOTS_LOG2-1:0] filling_write_at;
    reg [IMAGE_BITS+14:0] filling_new;
    reg [IMAGE_BITS:0] refusal_new;
    always @(posedge clk) begin
        if (filling_write) fillings[filling_write_at] <= filling_new;
        if (refusal_write) refusals[filling_write_at] <= refusal_new;
    end

    // Finished frames that keep their slots.
    wire        held_valid;
    wire [IMAGE_BITS-1:0] held_image;
    reg         held_push;
    small_fifo #(.WIDTH(IMAGE_BITS), .DEPTH_LOG2(SLOTS_LOG2)) held (
        .clk(clk), .rst(rst),
        .s_valid(held_push), .s_ready(), .s_data(low),
        .m_valid(held_valid), .m_ready(release_valid), .m_data(held_image)
    );
    wire [IMAGE_BITS-1:0] oldest = held_valid ? held_image : low;
    wire        has_room = image < oldest + SLOTS;

    // Events wait until the packets before them are written.
    wire        event_ready, event_valid;
    wire [19:0] event_stamp;
    reg         event_push;
    reg  [13:0] closing_missing;
    reg  [3:0]  closing_tile;
    wire        closing_last = {1'b0, closing_tile} == cfg_tiles - 5'd1;
    wire        entry_is_low = entry[ENTRY-1] && entry[512 +: IMAGE_BITS] == low;
    reg  [19:0] written_count;
    small_fifo #(.WIDTH(512 + IMAGE_BITS + SLOTS_LOG2 + 14 + 1 + 20), .DEPTH_LOG2(5)) events (
        .clk(clk), .rst(rst),
        .s_valid(event_push), .s_ready(event_ready),
        .s_data({placed_count, closing_last, closing_missing, low_slot, low, entry_is_low ? entry[511:0] : 512'd0}),
        .m_valid(event_valid), .m_ready(e_ready && e_valid),
        .m_data({event_stamp, e_last, e_missing, e_slot, e_image, e_mask})
    );
    wire [19:0] event_waits = event_stamp - written_count;
    assign e_valid = event_valid && (event_waits == 20'd0 || event_waits[19]);

    // What the writer does with the payload of a packet.
    reg          order_push;
    wire         order_ready, order_valid, order_pop;
    wire         order_placed, order_single;
    wire [3:0]   order_tile;
    wire [8:0]   order_packet;
    wire [SLOTS_LOG2-1:0] order_slot;
    small_fifo #(.WIDTH(2 + 4 + 9 + SLOTS_LOG2), .DEPTH_LOG2(2)) orders (
        .clk(clk), .rst(rst),
        .s_valid(order_push), .s_ready(order_ready), .s_data({code == PLACED, single, tile, packet, image_slot}),
        .m_valid(order_valid), .m_ready(order_pop),
        .m_data({order_placed, order_single, order_tile, order_packet, order_slot})
    );

    wire is_refused_by_form = !port_found || !length_right || !required_right || !tile_found || !packet_in_tile;
    wire close_one = low < newest_end && (flushing || low + WINDOW < newest_end || (filling_is_low && filling[13:0] == cfg_frame_packets));
    assign header_taken = state == IDLE && header_valid;
    always @* begin
        entry_read_at = state == MASK_READ || state == MASK_OUT ? {closing_tile, low[3:0]} : {tile, image[3:0]};
        entry_write = 1'b0;
        entry_write_at = {tile, image[3:0]};
        entry_new = {ENTRY{1'b0}};
        filling_write = 1'b0;
        refusal_write = 1'b0;
        filling_write_at = image_slot;
        filling_new = {1'b1, image, filling_is_image ? filling[13:0] + 14'd1 : 14'd1};
        refusal_new = {1'b1, image};
        if (state == CLEAR) begin
            entry_write = 1'b1;
            entry_write_at = clear_at;
            filling_write = 1'b1;
            refusal_write = 1'b1;
            filling_write_at = clear_at[SLOTS_LOG2-1:0];
            filling_new = {(IMAGE_BITS + 15){1'b0}};
            refusal_new = {(IMAGE_BITS + 1){1'b0}};
        end else if (state == CLAIM && image >= low) begin
            if (!entry_is_this) begin
                // The first packet of its tile asks for the slot, once.
                entry_write = 1'b1;
                if (filling_is_image || (!refusal_is_image && has_room)) begin
                    entry_new = {2'b10, image, 512'd0};
                    entry_new[{1'b0, packet}] = 1'b1;
                    filling_write = 1'b1;
                end else begin
                    entry_new = {2'b11, image, 512'd0};
                    refusal_write = 1'b1;
                end
            end else if (!entry_refused && !entry_has) begin
                entry_write = 1'b1;
                entry_new = entry;
                entry_new[{1'b0, packet}] = 1'b1;
                filling_write = 1'b1;
            end
        end
        event_push = state == MASK_OUT;
        held_push = state == MASK_OUT && event_ready && closing_last;
        order_push = state == OUT;
    end

    always @(posedge clk) begin
        v_valid <= !rst && state == OUT && order_ready;
        v_code <= code;
        if (rst) begin
            state <= CLEAR;
            clear_at <= 8'd0;
            low <= 0;
            newest_end <= 0;
            placed_count <= 20'd0;
        end else begin
            case (state)
                CLEAR: begin
                    clear_at <= clear_at + 8'd1;
                    if (clear_at == 8'd255) state <= IDLE;
                end
                IDLE: begin
                    closing_before <= 1'b0;
                    flushing <= flush && !header_valid;
                    if (header_valid) state <= KEYS;
                    else if (flush && low < newest_end) state <= CLOSE;
                end
                KEYS: state <= MASKS;
                MASKS: state <= FORM;
                FORM: begin
                    code <= !port_found ? UNKNOWN : !length_right ? WRONG_LENGTH : !required_right ? WRONG_REQUIRED
                        : !tile_found ? UNKNOWN : WRONG_NUMBER;
                    state <= is_refused_by_form ? OUT : AHEAD_OF;
                    image <= image_wide[IMAGE_BITS-1:0];
                end
                AHEAD_OF: begin
                    // Before the first frame, or beyond what is ever believed.
                    code <= image_wide[64:IMAGE_BITS] != 0 || image > newest_end + (1 << 20) ? FOREIGN : AHEAD;
                    closing_before <= 1'b1;
                    if (image_wide[64:IMAGE_BITS] != 0 || image >= newest_end + SLOTS) state <= OUT;
                    else if (image >= newest_end) begin
                        newest_end <= image + 1'b1;
                        state <= CLOSE;
                    end else state <= LOOK;
                end
                LOOK: state <= CLAIM;
                CLAIM: begin
                    state <= OUT;
                    closing_before <= 1'b0;
                    if (image < low) code <= !entry_is_this ? LATE : entry_refused ? NO_SLOT : entry_has ? DUPLICATE : LATE;
                    else if (entry_is_this ? entry_refused : !(filling_is_image || (!refusal_is_image && has_room))) code <= NO_SLOT;
                    else if (entry_is_this && entry_has) code <= DUPLICATE;
                    else code <= PLACED;
                end
                OUT: if (order_ready) begin
                    if (code == PLACED) placed_count <= placed_count + 20'd1;
                    state <= code == PLACED ? CLOSE : IDLE;
                end
                CLOSE: begin
                    closing_tile <= 4'd0;
                    closing_missing <= cfg_frame_packets - filling[13:0];
                    if (!close_one) state <= closing_before ? LOOK : IDLE;
                    else if (filling_is_low) state <= MASK_READ;
                    else low <= low + 1'b1;
                end
                MASK_READ: state <= MASK_OUT;
                MASK_OUT: if (event_ready) begin
                    closing_tile <= closing_tile + 4'd1;
                    state <= closing_last ? CLOSE : MASK_READ;
                    if (closing_last) low <= low + 1'b1;
                end
                default: state <= IDLE;
            endcase
        end
        // What is read of the header, step by step.
        if (state == IDLE) begin
            stream <= header_stream;
            single <= header_single;
            length_right <= header_bytes == cfg_datagram_bytes;
            required_right <= (header & require_mask) == require_value;
            frame_raw <= eight(header, cfg_frame_offset, cfg_frame_big);
            packet_raw <= eight(header, cfg_packet_offset, cfg_packet_big);
            module_raw <= eight(header, cfg_module_offset, cfg_module_big);
        end
        if (state == KEYS) begin
            frame <= (frame_raw & cfg_frame_mask) >> cfg_frame_shift;
            packet_offset <= ((packet_raw & cfg_packet_mask) >> cfg_packet_shift) - cfg_first_packet;
            module_number <= (module_raw & cfg_module_mask) >> cfg_module_shift;
            newest_frame <= cfg_first_frame + {24'd0, newest};
        end
        if (state == MASKS) begin
            port_found <= of_port != 16'd0 || of_any != 16'd0;
            tile_found <= matching != 16'd0;
            tile <= matching_tile;
            packet_in_tile <= packet_offset < {54'd0, cfg_packets};
            packet <= packet_offset[8:0];
            image_wide <= {{25{1'b0}}, newest} + {frame_step[63], frame_step};
        end
    end

    // ---- The writer ----
    // Order: read the tables of the packet; then one beat per clock.
    reg          w_active, w_placed;
    reg  [1:0]   w_place, w_pattern;
    reg  [3:0]   w_number;
    reg  [47:0]  w_start;
    reg  [7:0]   w_beat;
    reg  [47:0]  w_address;
    wire [39:0]  segment = segments[{w_place, w_pattern, w_number}];
    wire [47:0]  segment_start = w_start + {{16{segment[31]}}, segment[31:0]};
    wire [47:0]  address = w_beat == 8'd0 ? segment_start : w_address;
    wire         out_free = !m_valid || m_ready;
    // The next order is read while the payload of this one goes out.
    reg          n_valid, n_placed, n_single;
    reg  [1:0]   n_step, n_place;
    reg  [47:0]  n_slot_start, n_start;
    reg  [33:0]  n_origin;
    reg  [31:0]  n_tile_offset;
    wire         n_done = n_valid && n_step == 2'd2;
    wire         w_goes = w_active && queue_valid && (!w_placed || out_free);
    wire         w_ends = w_goes && queue_last;
    wire         n_moves = n_done && (!w_active || w_ends);
    assign queue_pop = w_goes;
    assign order_pop = !n_valid || n_moves;
    always @(posedge clk) begin
        if (order_pop) begin
            n_placed <= order_placed;
            n_single <= order_single;
            n_place <= tile_place[order_tile];
            n_tile_offset <= tile_offset[order_tile];
            n_slot_start <= cfg_base + order_slot * cfg_slot_bytes;
            n_origin <= origins[{tile_place[order_tile], order_packet}];
        end else begin
            n_start <= n_slot_start + {16'd0, n_tile_offset} + {{16{n_origin[31]}}, n_origin[31:0]};
        end
        if (rst) begin
            n_valid <= 1'b0;
            n_step <= 2'd0;
        end else if (order_pop) begin
            n_valid <= order_valid;
            n_step <= 2'd1;
        end else if (n_valid && n_step != 2'd2) n_step <= n_step + 2'd1;
        if (n_moves) begin
            w_placed <= n_placed;
            w_place <= n_place;
            w_pattern <= n_origin[33:32];
            w_start <= n_start;
            w_number <= 4'd0;
            w_beat <= 8'd0;
        end else if (w_goes) begin
            w_address <= address + 48'd64;
            w_beat <= w_beat + 8'd1 == segment[39:32] ? 8'd0 : w_beat + 8'd1;
            if (w_beat + 8'd1 == segment[39:32]) w_number <= w_number + 4'd1;
        end
        if (rst) w_active <= 1'b0;
        else if (n_moves) w_active <= !n_single;
        else if (w_ends) w_active <= 1'b0;
        if (rst) m_valid <= 1'b0;
        else if (w_goes && w_placed) m_valid <= 1'b1;
        else if (m_ready) m_valid <= 1'b0;
        if (w_goes && w_placed) begin
            m_data <= queue_data;
            m_address <= address;
            m_first <= w_beat == 8'd0;
            m_last <= queue_last;
        end
        if (rst) written_count <= 20'd0;
        else if (m_valid && m_ready && m_last) written_count <= written_count + 20'd1;
    end

    reg [31:0] count [0:9];
    always @(posedge clk) begin
        for (i = 0; i < 10; i = i + 1) begin
            if (rst) count[i] <= 32'd0;
            else if (state == OUT && order_ready && {28'd0, code} == i) count[i] <= count[i] + 32'd1;
        end
    end
    genvar n;
    generate
        for (n = 0; n < 10; n = n + 1) begin : each_counter
            assign counters[32*n +: 32] = count[n];
        end
    endgenerate
endmodule
