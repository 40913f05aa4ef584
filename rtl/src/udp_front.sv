// Ethernet frames in, UDP payloads of the detector out, 64 bytes per clock, and one verdict for each frame.
//
// The rules are those of crates/sources/src/frame.rs (docs/ledger.md, "With rings instead of sockets"): up to two VLAN
// tags, IPv4 with options, IPv6, fragments, all lengths, the checksum of the IPv4 header and that of the datagram. A
// MAC cannot be stopped, so the input has no ready: all before the buffer is a pipeline that never waits, and a frame
// that finds the buffer full is dropped as a whole (verdict no_room). Only frames that were taken leave the buffer.
//
// Byte i of a beat is s_data[8*i +: 8]. s_keep is contiguous from byte 0; only the last beat of a frame may be partial.
module udp_front #(
    parameter FRAME_BYTES_MAX = 9238,  // longer frames are refused as joined
    parameter BUFFER_LOG2 = 9,         // beats of the buffer
    parameter SYNC_IDLE = 64           // clocks without a beat after which a frame begins, after a reset
) (
    input  wire         clk,
    input  wire         rst,
    // Filter of the detector.
    input  wire         cfg_v4,          // streams have an IPv4 address
    input  wire [31:0]  cfg_address_v4,
    input  wire         cfg_v6,
    input  wire [127:0] cfg_address_v6,
    input  wire [15:0]  cfg_port_first,  // UDP port of stream 0; stream n has the n-th port behind it
    input  wire [4:0]   cfg_streams,     // 1 to 16
    // From the MAC.
    input  wire         s_valid,
    input  wire [511:0] s_data,
    input  wire [63:0]  s_keep,
    input  wire         s_last,
    input  wire         s_error,         // with s_last: the MAC found the frame damaged
    // Payloads.
    output wire         m_valid,
    input  wire         m_ready,
    output wire [511:0] m_data,
    output wire [6:0]   m_bytes,         // of this beat; 0 in the only beat of an empty datagram
    output wire         m_last,
    output wire [3:0]   m_stream,
    output wire [15:0]  m_payload_bytes, // of the datagram, in each of its beats
    // One verdict for each frame.
    output reg          v_valid,
    output reg  [3:0]   v_code,
    output wire [287:0] counters         // 32 bits for each code
);
    localparam TAKEN = 4'd0, OTHER_TRAFFIC = 4'd1, FRAGMENT = 4'd2, VLAN = 4'd3, LENGTH = 4'd4, CHECKSUM = 4'd5,
               JOINED = 4'd6, NO_ROOM = 4'd7, DAMAGED = 4'd8;

    integer i;

    // Stage 0: beats with zeros where there is no byte; after a reset nothing until a frame surely begins.
    reg          synced;
    reg  [6:0]   idle;
    wire         beat_valid = s_valid && synced;
    reg  [511:0] beat_data;
    reg  [6:0]   beat_bytes;
    always @* begin
        beat_bytes = 7'd0;
        for (i = 0; i < 64; i = i + 1) begin
            beat_data[8*i +: 8] = s_keep[i] ? s_data[8*i +: 8] : 8'd0;
            if (s_keep[i]) beat_bytes = i[6:0] + 7'd1;
        end
    end
    always @(posedge clk) begin
        if (rst) begin
            synced <= 1'b0;
            idle <= 7'd0;
        end else if (!synced) begin
            idle <= s_valid ? 7'd0 : idle + 7'd1;
            if (s_valid ? s_last : idle == SYNC_IDLE - 1) synced <= 1'b1;
        end
    end

    // Stage 1: each beat waits for the next one of its frame, so that 128 bytes can be seen from any of its bytes.
    reg          a_valid, a_first, a_last, a_error;
    reg  [511:0] a_data;
    reg  [6:0]   a_bytes;
    wire         a_goes = a_valid && (a_last || beat_valid);
    always @(posedge clk) begin
        if (rst) a_valid <= 1'b0;
        else if (beat_valid) a_valid <= 1'b1;
        else if (a_goes) a_valid <= 1'b0;
        if (beat_valid) begin
            a_data <= beat_data;
            a_bytes <= beat_bytes;
            a_last <= s_last;
            a_error <= s_last && s_error;
        end
        if (rst) a_first <= 1'b1;
        else if (beat_valid) a_first <= !a_valid || a_last;
    end

    // Stage 2: windows of 128 bytes.
    reg           b_valid, b_first, b_last, b_error;
    reg  [1023:0] b_window;
    reg  [6:0]    b_bytes;
    always @(posedge clk) begin
        b_valid <= !rst && a_goes;
        b_first <= a_first;
        b_last <= a_last;
        b_error <= a_error;
        b_bytes <= a_bytes;
        b_window <= {a_last ? 512'd0 : beat_data, a_data};
    end

    // How many VLAN tags there are, and so where the IP header begins.
    wire [15:0] type0 = {b_window[8*12 +: 8], b_window[8*13 +: 8]};
    wire [15:0] type1 = {b_window[8*16 +: 8], b_window[8*17 +: 8]};
    wire [15:0] type2 = {b_window[8*20 +: 8], b_window[8*21 +: 8]};
    wire is_tag0 = type0 == 16'h8100 || type0 == 16'h88A8;
    wire is_tag1 = is_tag0 && (type1 == 16'h8100 || type1 == 16'h88A8);
    wire is_tag2 = is_tag1 && (type2 == 16'h8100 || type2 == 16'h88A8);

    // Stage 3: what the frame says of itself down to the IP header; kept for the later windows of the frame.
    reg           c_valid, c_first, c_last, c_error;
    reg  [1023:0] c_window;
    reg  [6:0]    c_bytes;
    reg  [15:0]   c_type;
    reg  [1:0]    c_tags;
    reg           c_many_tags, c_is_of_vlan;
    always @(posedge clk) begin
        c_valid <= !rst && b_valid;
        c_first <= b_first;
        c_last <= b_last;
        c_error <= b_error;
        c_bytes <= b_bytes;
        c_window <= b_window;
        if (b_valid && b_first) begin
            c_type <= is_tag1 ? type2 : is_tag0 ? type1 : type0;
            c_tags <= is_tag1 ? 2'd2 : is_tag0 ? 2'd1 : 2'd0;
            c_many_tags <= is_tag2;
            c_is_of_vlan <= (is_tag0 && ({b_window[8*14 +: 4], b_window[8*15 +: 8]} != 12'd0))
                || (is_tag1 && ({b_window[8*18 +: 4], b_window[8*19 +: 8]} != 12'd0))
                || (is_tag2 && ({b_window[8*22 +: 4], b_window[8*23 +: 8]} != 12'd0));
        end
    end

    // The IP header: 60 bytes of IPv4, or 48 of IPv6 with the header of a fragment.
    wire [479:0] ip = c_tags == 2'd2 ? c_window[8*22 +: 480] : c_tags == 2'd1 ? c_window[8*18 +: 480] : c_window[8*14 +: 480];
    wire [6:0]  c_ip_at = 7'd14 + {3'd0, c_tags, 2'd0};
    wire        c_v4 = c_type == 16'h0800 && cfg_v4;
    wire        c_v6 = c_type == 16'h86DD && cfg_v6;
    wire [5:0]  ihl_bytes = {ip[3:0], 2'd0};
    wire [15:0] v4_total = {ip[8*2 +: 8], ip[8*3 +: 8]};
    wire [13:0] v4_fragment = {ip[8*6 +: 6], ip[8*7 +: 8]};
    wire [15:0] v6_bytes = {ip[8*4 +: 8], ip[8*5 +: 8]};
    wire        v6_is_fragment = ip[8*6 +: 8] == 8'd44;
    reg [127:0] v6_destination;
    reg [31:0]  v4_destination;
    always @* begin
        for (i = 0; i < 16; i = i + 1) v6_destination[8*(15 - i) +: 8] = ip[8*(24 + i) +: 8];
        for (i = 0; i < 4; i = i + 1) v4_destination[8*(3 - i) +: 8] = ip[8*(16 + i) +: 8];
    end
    // The low 3 bits are flags.
    wire [12:0] v6_fragment_offset = {ip[8*42 +: 8], ip[8*43 + 3 +: 5]};
    wire [7:0]  v6_next = !v6_is_fragment ? ip[8*6 +: 8] : v6_fragment_offset == 13'd0 ? ip[8*40 +: 8] : 8'd0;

    // Stage 4: where the datagram is.
    reg           d_valid, d_first, d_last, d_error;
    reg  [1023:0] d_window;
    reg  [6:0]    d_bytes;
    reg  [6:0]    d_eth_need, d_ip_at, d_ip_need, d_udp_at;
    reg           d_many_tags, d_is_of_vlan, d_is_fragment, d_v4, d_v6, d_ip_wrong, d_no_udp, d_other_address;
    reg  [16:0]   d_end;
    reg  [6:0]    d_address_at, d_address_end;
    always @(posedge clk) begin
        d_valid <= !rst && c_valid;
        d_first <= c_first;
        d_last <= c_last;
        d_error <= c_error;
        d_bytes <= c_bytes;
        d_window <= c_window;
        if (c_valid && c_first) begin
            d_eth_need <= c_many_tags ? 7'd24 : c_ip_at;
            d_many_tags <= c_many_tags;
            d_is_of_vlan <= c_is_of_vlan;
            d_ip_at <= c_ip_at;
            d_v4 <= c_v4;
            d_v6 <= c_v6;
            if (c_v4) begin
                d_ip_wrong <= ip[7:4] != 4'd4 || ihl_bytes < 6'd20 || v4_total < {10'd0, ihl_bytes};
                d_ip_need <= c_ip_at + (ihl_bytes < 6'd20 ? 7'd20 : {1'b0, ihl_bytes});
                d_no_udp <= ip[8*9 +: 8] != 8'd17 || {v4_fragment[12:0]} != 13'd0;
                d_other_address <= v4_destination != cfg_address_v4;
                d_is_fragment <= v4_fragment != 14'd0;
                d_udp_at <= c_ip_at + {1'b0, ihl_bytes};
                d_end <= {10'd0, c_ip_at} + {1'b0, v4_total};
                d_address_at <= c_ip_at + 7'd12;
                d_address_end <= c_ip_at + 7'd20;
            end else begin
                d_ip_wrong <= ip[7:4] != 4'd6;
                d_ip_need <= c_ip_at + (v6_is_fragment && ip[7:4] == 4'd6 ? 7'd48 : 7'd40);
                d_no_udp <= v6_next != 8'd17;
                d_other_address <= v6_destination != cfg_address_v6;
                d_is_fragment <= v6_is_fragment;
                d_udp_at <= c_ip_at + (v6_is_fragment ? 7'd48 : 7'd40);
                d_end <= {10'd0, c_ip_at} + 17'd40 + {1'b0, v6_bytes};
                d_address_at <= c_ip_at + 7'd8;
                d_address_end <= c_ip_at + 7'd40;
            end
        end
    end

    // The header of UDP, at one of 19 places: d_udp_at = 10 + 4 * word.
    wire [6:0]  udp_word = d_udp_at - 7'd10;
    reg  [63:0] udp;
    always @* begin
        udp = 64'd0;
        for (i = 1; i < 20; i = i + 1)
            if ({27'd0, udp_word[6:2]} == i) udp = udp | d_window[8*(10 + 4*i) +: 64];
    end
    wire [15:0] udp_port = {udp[8*2 +: 8], udp[8*3 +: 8]};
    wire [15:0] udp_bytes = {udp[8*4 +: 8], udp[8*5 +: 8]};
    wire [16:0] port_offset = {1'b0, udp_port} - {1'b0, cfg_port_first};

    // Stage 5: all that is known of the datagram, the number of each window, and the bytes of the frame.
    reg           e_valid, e_first, e_last, e_error;
    reg  [1023:0] e_window;
    reg  [6:0]    e_bytes, e_eth_need, e_ip_at, e_ip_need, e_udp_at, e_address_at, e_address_end;
    reg           e_many_tags, e_is_of_vlan, e_is_fragment, e_v4, e_v6, e_ip_wrong, e_no_udp, e_other_address;
    reg  [16:0]   e_end;
    reg           e_other_port, e_no_sum;
    reg  [3:0]    e_stream;
    reg  [15:0]   e_udp_bytes, e_payload_bytes;
    reg  [9:0]    e_window_number;  // stops at the highest number, which is beyond FRAME_BYTES_MAX
    reg           e_too_long;
    wire [9:0]    d_window_number = d_first ? 10'd0 : &e_window_number ? e_window_number : e_window_number + 10'd1;
    always @(posedge clk) begin
        e_valid <= !rst && d_valid;
        e_first <= d_first;
        e_last <= d_last;
        e_error <= d_error;
        e_bytes <= d_bytes;
        e_window <= d_window;
        if (d_valid) e_window_number <= d_window_number;
        if (d_valid && d_first) begin
            e_eth_need <= d_eth_need;
            e_ip_at <= d_ip_at;
            e_ip_need <= d_ip_need;
            e_udp_at <= d_udp_at;
            e_address_at <= d_address_at;
            e_address_end <= d_address_end;
            e_many_tags <= d_many_tags;
            e_is_of_vlan <= d_is_of_vlan;
            e_is_fragment <= d_is_fragment;
            e_v4 <= d_v4;
            e_v6 <= d_v6;
            e_ip_wrong <= d_ip_wrong;
            e_no_udp <= d_no_udp;
            e_other_address <= d_other_address;
            // Without payload of IPv6 the datagram ends where it begins.
            e_end <= d_end < {10'd0, d_udp_at} ? {10'd0, d_udp_at} : d_end;
            e_other_port <= port_offset[16] || port_offset[15:0] >= {11'd0, cfg_streams};
            e_stream <= port_offset[3:0];
            e_no_sum <= {udp[8*6 +: 8], udp[8*7 +: 8]} == 16'd0;
            e_udp_bytes <= udp_bytes;
            e_payload_bytes <= udp_bytes - 16'd8;
        end
    end

    // Which bytes of a beat are covered by a sum: from..to, both in bytes of the frame.
    function automatic [63:0] covered(input [9:0] window_number, input [16:0] from, input [16:0] to);
        reg [17:0] start, low, high;
        begin
            start = {2'd0, window_number, 6'd0};
            low = {1'b0, from} - start;
            high = {1'b0, to} - start;
            low = low[17] ? 18'd0 : low > 18'd64 ? 18'd64 : low;
            high = high[17] ? 18'd0 : high > 18'd64 ? 18'd64 : high;
            covered = ~({64{1'b1}} << high[6:0]) & ({64{1'b1}} << low[6:0]);
        end
    endfunction
    wire [63:0] cover_udp = covered(e_window_number, {10'd0, e_udp_at}, {10'd0, e_udp_at} + {1'b0, e_udp_bytes})
        | covered(e_window_number, {10'd0, e_address_at}, {10'd0, e_address_end});
    wire [63:0] cover_ip = covered(e_window_number, {10'd0, e_ip_at}, {10'd0, e_ip_need});

    // The big-endian words of a beat, without the bytes that are not covered.
    reg [511:0] words_udp, words_ip;
    always @* begin
        for (i = 0; i < 64; i = i + 1) begin
            words_udp[16*(i/2) + (i % 2 != 0 ? 0 : 8) +: 8] = cover_udp[i] ? e_window[8*i +: 8] : 8'd0;
            words_ip[16*(i/2) + (i % 2 != 0 ? 0 : 8) +: 8] = cover_ip[i] ? e_window[8*i +: 8] : 8'd0;
        end
    end

    // The payload begins at byte 2 + 4 * turn of a window, the first one or the second one.
    wire [7:0]   payload_at = {1'b0, e_udp_at} + 8'd8;
    wire [9:0]   piece = e_window_number - {9'd0, payload_at[6]};
    wire [16:0]  piece_at = {1'b0, piece, 6'd0};
    wire         is_piece = !(payload_at[6] && e_window_number == 10'd0)
        && (piece_at < {1'b0, e_payload_bytes} || (piece == 10'd0 && e_payload_bytes == 16'd0));
    wire [16:0]  piece_rest = {1'b0, e_payload_bytes} - piece_at;
    wire [3:0]   turn = payload_at[5:2];

    // Stages 6 and 7: sums and the turned payload. Stage 8: sums of frames. Stage 9: the verdict.
    reg          f_valid, f_first, f_last, f_error;
    reg  [21:0]  f_sum_udp [0:7];
    reg  [21:0]  f_sum_ip [0:7];
    reg  [511:0] f_turned;
    reg          f_piece, f_piece_last;
    reg  [6:0]   f_piece_bytes;
    reg  [3:0]   f_stream;
    reg  [15:0]  f_payload_bytes;
    // What is wrong with the frame, apart from sums; known with its last window.
    reg  [3:0]   f_code;
    reg          f_v4, f_no_sum;
    reg  [15:0]  f_udp_bytes;
    wire [16:0]  frame_bytes = {1'b0, e_window_number, 6'd0} + {10'd0, e_bytes};
    wire [16:0]  udp_room = e_end - {10'd0, e_udp_at};
    wire [16:0]  here_room = (frame_bytes < e_end ? frame_bytes : e_end) - {10'd0, e_udp_at};
    wire         no_ports = frame_bytes < {10'd0, e_udp_at} || here_room < 17'd4;
    wire [735:0] turned8 = turn[3] ? e_window[16 + 256 +: 736] : e_window[16 +: 736];
    wire [607:0] turned4 = turn[2] ? turned8[128 +: 608] : turned8[0 +: 608];
    always @(posedge clk) begin
        f_valid <= !rst && e_valid;
        f_first <= e_first;
        f_last <= e_last;
        f_error <= e_error;
        for (i = 0; i < 8; i = i + 1) begin
            f_sum_udp[i] <= ({6'd0, words_udp[64*i +: 16]} + {6'd0, words_udp[64*i + 16 +: 16]})
                + ({6'd0, words_udp[64*i + 32 +: 16]} + {6'd0, words_udp[64*i + 48 +: 16]});
            f_sum_ip[i] <= ({6'd0, words_ip[64*i +: 16]} + {6'd0, words_ip[64*i + 16 +: 16]})
                + ({6'd0, words_ip[64*i + 32 +: 16]} + {6'd0, words_ip[64*i + 48 +: 16]});
        end
        f_turned <= turn[1:0] == 2'd3 ? turned4[96 +: 512] : turn[1:0] == 2'd2 ? turned4[64 +: 512]
            : turn[1:0] == 2'd1 ? turned4[32 +: 512] : turned4[0 +: 512];
        f_piece <= is_piece;
        f_piece_last <= piece_rest <= 17'd64;
        f_piece_bytes <= piece_rest > 17'd64 ? 7'd64 : piece_rest[6:0];
        f_stream <= e_stream;
        f_payload_bytes <= e_payload_bytes;
        f_v4 <= e_v4;
        f_no_sum <= e_no_sum;
        f_udp_bytes <= e_udp_bytes;
        f_code <= frame_bytes < {10'd0, e_eth_need} ? LENGTH
            : e_many_tags || !(e_v4 || e_v6) ? OTHER_TRAFFIC
            : frame_bytes < {10'd0, e_ip_need} || e_ip_wrong ? LENGTH
            : e_no_udp || e_other_address ? OTHER_TRAFFIC
            : no_ports ? LENGTH
            : e_other_port ? OTHER_TRAFFIC
            : e_is_of_vlan ? VLAN
            : e_is_fragment ? FRAGMENT
            : frame_bytes > FRAME_BYTES_MAX ? JOINED
            : e_end > frame_bytes || e_udp_bytes < 16'd8 || {1'b0, e_udp_bytes} > udp_room ? LENGTH
            : TAKEN;
    end

    reg          g_valid, g_first, g_last, g_error, g_piece, g_piece_last, g_v4, g_no_sum;
    reg  [511:0] g_data;
    reg  [6:0]   g_piece_bytes;
    reg  [3:0]   g_stream, g_code;
    reg  [15:0]  g_payload_bytes, g_udp_bytes;
    reg  [21:0]  g_sum_udp, g_sum_ip;
    always @(posedge clk) begin
        g_valid <= !rst && f_valid;
        g_first <= f_first;
        g_last <= f_last;
        g_error <= f_error;
        g_piece <= f_piece;
        g_piece_last <= f_piece_last;
        for (i = 0; i < 64; i = i + 1) g_data[8*i +: 8] <= i < f_piece_bytes ? f_turned[8*i +: 8] : 8'd0;
        g_piece_bytes <= f_piece_bytes;
        g_stream <= f_stream;
        g_payload_bytes <= f_payload_bytes;
        g_code <= f_code;
        g_v4 <= f_v4;
        g_no_sum <= f_no_sum;
        g_udp_bytes <= f_udp_bytes;
        g_sum_udp <= ((f_sum_udp[0] + f_sum_udp[1]) + (f_sum_udp[2] + f_sum_udp[3]))
            + ((f_sum_udp[4] + f_sum_udp[5]) + (f_sum_udp[6] + f_sum_udp[7]));
        g_sum_ip <= ((f_sum_ip[0] + f_sum_ip[1]) + (f_sum_ip[2] + f_sum_ip[3]))
            + ((f_sum_ip[4] + f_sum_ip[5]) + (f_sum_ip[6] + f_sum_ip[7]));
    end

    reg          h_valid, h_last, h_error, h_piece, h_piece_last, h_v4, h_no_sum;
    reg  [511:0] h_data;
    reg  [6:0]   h_piece_bytes;
    reg  [3:0]   h_stream, h_code;
    reg  [15:0]  h_payload_bytes;
    reg  [31:0]  h_sum_udp;
    reg  [31:0]  h_sum_ip;
    always @(posedge clk) begin
        h_valid <= !rst && g_valid;
        h_last <= g_last;
        h_error <= g_error;
        h_piece <= g_piece;
        h_piece_last <= g_piece_last;
        h_data <= g_data;
        h_piece_bytes <= g_piece_bytes;
        h_stream <= g_stream;
        h_payload_bytes <= g_payload_bytes;
        h_code <= g_code;
        h_v4 <= g_v4;
        h_no_sum <= g_no_sum;
        // Protocol and length stand in front of the datagram for this sum only.
        if (g_valid) begin
            h_sum_udp <= g_first ? {10'd0, g_sum_udp} + 32'd17 + {16'd0, g_udp_bytes} : h_sum_udp + {10'd0, g_sum_udp};
            h_sum_ip <= g_first ? {10'd0, g_sum_ip} : h_sum_ip + {10'd0, g_sum_ip};
        end
    end

    // Whether a sum becomes 16 ones when its carries are added (RFC 1071). A frame has at most 32768 words, so the high
    // half is below 0x8000, and two halves of ones, which would become ones too, cannot be.
    function automatic is_ones(input [31:0] sum);
        is_ones = sum[15:0] == ~sum[31:16];
    endfunction
    wire       sum_wrong = (h_v4 && !is_ones(h_sum_ip)) || (h_no_sum ? !h_v4 : !is_ones(h_sum_udp));
    reg        k_valid, k_last, k_piece, k_piece_last;
    reg  [511:0] k_data;
    reg  [6:0] k_piece_bytes;
    reg  [3:0] k_stream, k_code;
    reg  [15:0] k_payload_bytes;
    always @(posedge clk) begin
        k_valid <= !rst && h_valid;
        k_last <= h_last;
        k_piece <= h_piece;
        k_piece_last <= h_piece_last;
        k_data <= h_data;
        k_piece_bytes <= h_piece_bytes;
        k_stream <= h_stream;
        k_payload_bytes <= h_payload_bytes;
        k_code <= h_error ? DAMAGED : h_code != TAKEN ? h_code : sum_wrong ? CHECKSUM : TAKEN;
    end

    // The buffer takes a frame back if it is refused, or if it found no room.
    wire no_room;
    packet_buffer #(.WIDTH(512 + 7 + 1 + 4 + 16), .DEPTH_LOG2(BUFFER_LOG2)) buffer (
        .clk(clk),
        .rst(rst),
        .push(k_valid && k_piece),
        .push_data({k_payload_bytes, k_stream, k_piece_last, k_piece_bytes, k_data}),
        .finish(k_valid && k_last),
        .keep(k_code == TAKEN),
        .no_room(no_room),
        .m_valid(m_valid),
        .m_ready(m_ready),
        .m_data({m_payload_bytes, m_stream, m_last, m_bytes, m_data})
    );

    wire [3:0] code = k_code == TAKEN && no_room ? NO_ROOM : k_code;
    reg [31:0] count [0:8];
    always @(posedge clk) begin
        v_valid <= !rst && k_valid && k_last;
        v_code <= code;
        for (i = 0; i < 9; i = i + 1) begin
            if (rst) count[i] <= 32'd0;
            else if (k_valid && k_last && {28'd0, code} == i) count[i] <= count[i] + 32'd1;
        end
    end
    genvar n;
    generate
        for (n = 0; n < 9; n = n + 1) begin : each_counter
            assign counters[32*n +: 32] = count[n];
        end
    endgenerate
endmodule
