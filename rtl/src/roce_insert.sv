// Payloads in, Ethernet frames of RoCEv2 out, 64 bytes per clock: the headers of Ethernet, IPv4 and UDP, the header of
// InfiniBand with the address to write to, padding and iCRC. Packets are writes of an unreliable connection (UC), as
// detectors send them: opcodes 0x26 to 0x2B.
module roce_insert (
    input  wire         clk,
    input  wire         rst,
    // The connection. Numbers as people write them: the highest byte goes first.
    input  wire [47:0]  cfg_mac_destination, cfg_mac_source,
    input  wire [31:0]  cfg_ip_source, cfg_ip_destination,
    input  wire [15:0]  cfg_port_source,
    input  wire [7:0]   cfg_type_of_service,
    input  wire [15:0]  cfg_partition,
    input  wire         cfg_migrated,
    input  wire [23:0]  cfg_queue_pair,
    // One command for each packet.
    input  wire         d_valid,
    output wire         d_ready,
    input  wire [7:0]   d_opcode,
    input  wire [23:0]  d_number,       // PSN
    input  wire [63:0]  d_address,
    input  wire [31:0]  d_key,
    input  wire [31:0]  d_message_bytes,
    input  wire [31:0]  d_immediate,
    input  wire [12:0]  d_payload_bytes, // 0 to 4096
    // Its payload; bytes behind it in the last beat do not matter. None if it is empty.
    input  wire         s_valid,
    output wire         s_ready,
    input  wire [511:0] s_data,
    // Frames, without the checksum of Ethernet.
    output wire         m_valid,
    input  wire         m_ready,
    output wire [511:0] m_data,
    output wire [6:0]   m_bytes,
    output wire         m_last
);
    localparam QUEUE_LOG2 = 5;
    integer i;

    // Which headers a packet has.
    wire has_address = d_opcode[4:0] == 5'h06 || d_opcode[4:0] == 5'h0A || d_opcode[4:0] == 5'h0B;
    wire has_immediate = d_opcode[4:0] == 5'h09 || d_opcode[4:0] == 5'h0B;
    wire [1:0]  pad = -d_payload_bytes[1:0];
    wire [6:0]  header_bytes = 7'd54 + (has_address ? 7'd16 : 7'd0) + (has_immediate ? 7'd4 : 7'd0);
    wire [15:0] udp_bytes = {9'd0, header_bytes} - 16'd34 + {3'd0, d_payload_bytes} + {14'd0, pad} + 16'd4;
    wire [15:0] ip_bytes = udp_bytes + 16'd20;

    // The command that is worked on, with its headers: byte i at 8*i.
    reg          busy;
    reg  [591:0] head;              // 74 bytes
    reg  [6:0]   head_bytes;
    reg  [13:0]  frame_bytes;       // with the iCRC
    reg  [12:0]  payload_left;
    reg  [7:0]   beat;
    reg          ready_to_send;     // the checksum of the IP header is there
    reg  [19:0]  ip_sum;
    wire [16:0]  ip_once = {1'b0, ip_sum[15:0]} + {13'd0, ip_sum[19:16]};
    wire [15:0]  ip_checksum = ~(ip_once[15:0] + {15'd0, ip_once[16]});
    wire         ends;
    assign d_ready = !busy || ends;

    // The headers as they are read, the first byte highest; then byte i at 8*i. The checksum of IP comes later.
    wire [431:0] common = {cfg_mac_destination, cfg_mac_source, 16'h0800,
        8'h45, cfg_type_of_service, ip_bytes, 16'h0000, 16'h4000, 8'd64, 8'd17, 16'h0000, cfg_ip_source, cfg_ip_destination,
        cfg_port_source, 16'd4791, udp_bytes, 16'h0000,
        d_opcode, 1'b0, cfg_migrated, pad, 4'd0, cfg_partition, 8'd0, cfg_queue_pair, 8'd0, d_number};
    wire [159:0] further = has_address ? {d_address, d_key, d_message_bytes, has_immediate ? d_immediate : 32'd0}
        : {has_immediate ? d_immediate : 32'd0, 128'd0};
    wire [591:0] as_read = {common, further};
    reg  [591:0] head_next;
    always @* begin
        for (i = 0; i < 74; i = i + 1) head_next[8*i +: 8] = as_read[8*(73 - i) +: 8];
    end

    // Beats of the frame. rest: bytes that did not fit into the beat before.
    wire [5:0]   turn = head_bytes[5:0];
    reg          head_beat;         // a beat of headers alone goes first
    reg  [511:0] rest;
    reg  [13:0]  bytes_left;
    wire         takes = payload_left != 13'd0 && !head_beat;
    reg  [QUEUE_LOG2:0] inside_count;
    wire         has_room = !inside_count[QUEUE_LOG2];
    wire         moves = busy && ready_to_send && has_room && (!takes || s_valid);
    assign s_ready = busy && ready_to_send && has_room && takes;
    assign ends = moves && bytes_left <= 14'd64;
    reg  [511:0] payload;
    always @* begin
        for (i = 0; i < 64; i = i + 1) payload[8*i +: 8] = takes && i < payload_left ? s_data[8*i +: 8] : 8'd0;
    end
    reg  [511:0] beat_data, beat_rest;
    always @* begin
        case (turn)
            6'd54: begin beat_data = {payload[8*10-1:0], rest[8*54-1:0]}; beat_rest = payload >> 8*10; end
            6'd58: begin beat_data = {payload[8*6-1:0], rest[8*58-1:0]}; beat_rest = payload >> 8*6; end
            6'd6: begin beat_data = {payload[8*58-1:0], rest[8*6-1:0]}; beat_rest = payload >> 8*58; end
            default: begin beat_data = {payload[8*54-1:0], rest[8*10-1:0]}; beat_rest = payload >> 8*54; end
        endcase
    end
    reg first_beat;
    wire [511:0] head_with_sum = {head[511:208], ip_checksum[7:0], ip_checksum[15:8], head[191:0]};
    always @(posedge clk) begin
        if (d_valid && d_ready) begin
            head <= head_next;
            head_bytes <= header_bytes;
            frame_bytes <= {7'd0, header_bytes} + {1'b0, d_payload_bytes} + {12'd0, pad} + 14'd4;
            // Version and service, length, flags, time to live and protocol, addresses.
            ip_sum <= {4'd0, 8'h45, cfg_type_of_service} + {4'd0, ip_bytes} + 20'h4000 + 20'h4011 + {4'd0, cfg_ip_source[31:16]}
                + {4'd0, cfg_ip_source[15:0]} + {4'd0, cfg_ip_destination[31:16]} + {4'd0, cfg_ip_destination[15:0]};
        end
        if (rst) begin
            busy <= 1'b0;
            ready_to_send <= 1'b0;
        end else begin
            if (d_ready) busy <= d_valid;
            ready_to_send <= busy && !ends;
        end
        if (d_valid && d_ready) payload_left <= d_payload_bytes;
        else if (moves && takes) payload_left <= payload_left > 13'd64 ? payload_left - 13'd64 : 13'd0;
        if (busy && !ready_to_send) begin
            rest <= head_with_sum;
            head_beat <= head_bytes > 7'd64;
            bytes_left <= frame_bytes;
            first_beat <= 1'b1;
        end else if (moves) begin
            rest <= head_beat ? {432'd0, head[591:512]} : beat_rest;
            head_beat <= 1'b0;
            bytes_left <= bytes_left - 14'd64;
            first_beat <= 1'b0;
        end
    end

    // The last covered byte is byte 1 + 4 * place of the beat: bytes_left - 5 = 1 + 4 * place.
    wire [13:0] covered_end = bytes_left - 14'd6;
    wire        i_valid;
    wire [511:0] i_data;
    wire [7:0]  i_side;
    wire        is_last = bytes_left <= 14'd64;
    wire        covers = bytes_left >= 14'd6 && bytes_left - 14'd4 <= 14'd64;
    reg         in_valid, in_first, in_covered;
    reg [511:0] in_data;
    reg [3:0]   in_place;
    reg [7:0]   in_side;
    always @(posedge clk) begin
        in_valid <= !rst && moves;
        in_first <= first_beat;
        in_data <= head_beat ? rest : beat_data;
        in_covered <= covers;
        in_place <= covered_end[5:2];
        in_side <= {is_last, is_last ? bytes_left[6:0] : 7'd64};
    end
    icrc #(.SIDE(8)) checksum (
        .clk(clk), .rst(rst),
        .s_valid(in_valid), .s_data(in_data), .s_first(in_first), .s_covered(in_covered), .s_place(in_place), .s_side(in_side),
        .m_valid(i_valid), .m_data(i_data), .m_side(i_side)
    );
    small_fifo #(.WIDTH(520), .DEPTH_LOG2(QUEUE_LOG2)) queue (
        .clk(clk), .rst(rst),
        .s_valid(i_valid), .s_ready(), .s_data({i_side, i_data}),
        .m_valid(m_valid), .m_ready(m_ready), .m_data({m_last, m_bytes, m_data})
    );
    always @(posedge clk) begin
        if (rst) inside_count <= 0;
        else inside_count <= inside_count + {{QUEUE_LOG2{1'b0}}, moves} - {{QUEUE_LOG2{1'b0}}, m_valid && m_ready};
    end
endmodule
