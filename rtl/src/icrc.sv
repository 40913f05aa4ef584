// The iCRC of RoCEv2, 64 bytes per clock. Frames come as beats whose iCRC is still 0, and leave LATENCY clocks later with
// it. The pipeline never waits: whoever sends beats into it keeps room for them behind it.
//
// The checksum is the CRC-32 of Ethernet (0x04C11DB7, here in reflected form) over 8 bytes of ones in the place of the
// link header of InfiniBand, the IP header, UDP, and the packet of InfiniBand, where the fields that routers change
// are ones too. In the first beat of a frame this is bytes 6 to 63: of the Ethernet header, the last 8 bytes become the
// ones, and a state that 6 bytes of zeros lead to all ones skips the rest.
module icrc #(
    parameter SIDE = 8
) (
    input  wire            clk,
    input  wire            rst,
    input  wire            s_valid,
    input  wire [511:0]    s_data,
    input  wire            s_first,    // beat of the frame
    input  wire            s_covered,  // the last byte that is covered is in this beat, as byte 1 + 4 * place;
    input  wire [3:0]      s_place,    // the iCRC follows it, after place 15 by two bytes in the next beat
    input  wire [SIDE-1:0] s_side,     // goes along
    output reg             m_valid,
    output reg  [511:0]    m_data,
    output reg  [SIDE-1:0] m_side
);
    localparam [31:0] POLYNOMIAL = 32'hEDB8_8320;
    localparam [31:0] START = 32'hAF4C_9D16;  // all ones, 48 steps before
    localparam WAIT = 11;                     // clocks from the input to the checksum
    genvar g, k;
    integer i;

    // Column b, at 32*b: what bit b of a beat adds to the state behind the beat.
    function automatic [16383:0] all_columns(input integer bits);
        integer b;
        reg [31:0] state;
        begin
            state = POLYNOMIAL;
            all_columns = 16384'd0;
            for (b = 0; b < bits; b = b + 1) begin
                all_columns = {all_columns[16351:0], state};
                state = {1'b0, state[31:1]} ^ (state[0] ? POLYNOMIAL : 32'd0);
            end
        end
    endfunction
    localparam [16383:0] COLUMNS = all_columns(512);

    // The state after so many bytes of zeros, at least 4: a state is as good as the first 4 bytes.
    function automatic [31:0] after(input [31:0] state, input integer bytes);
        integer b;
        begin
            after = 32'd0;
            for (b = 0; b < 32; b = b + 1) after = after ^ (state[b] ? COLUMNS[32*(512 - 8*bytes + b) +: 32] : 32'd0);
        end
    endfunction
    function automatic [31:0] after2(input [31:0] state);
        integer b;
        begin
            after2 = {16'd0, state[31:16]};
            for (b = 0; b < 16; b = b + 1) after2 = after2 ^ (state[b] ? COLUMNS[32*(512 - 16 + b) +: 32] : 32'd0);
        end
    endfunction

    // Stage 1: ones for what may change on the way: 8 bytes of link header, type of service, time to live, checksums of
    // IP and UDP, and the byte with the marks of congestion.
    localparam [511:0] ONES = {512'd0} | (512'hFFFF_FFFF_FFFF_FFFF << 8*6) | (512'hFF << 8*15) | (512'hFF << 8*22)
        | (512'hFFFF << 8*24) | (512'hFFFF << 8*40) | (512'hFF << 8*46);
    localparam [511:0] SKIPPED = 512'hFFFF_FFFF_FFFF;
    reg         c1_valid, c1_first, c1_covered, c2_valid, c2_first, c2_covered, c3_valid, c3_first, c3_covered;
    reg [511:0] c1_data, c2_data, c3_data;
    reg [3:0]   c1_place, c2_place, c3_place;
    always @(posedge clk) begin
        c1_valid <= !rst && s_valid;
        c1_first <= s_first;
        c1_covered <= s_covered;
        c1_place <= s_place;
        c1_data <= s_first ? (s_data | ONES) & ~SKIPPED : s_data;
        // Stages 2 and 3: the last covered byte moves to the end of the beat, zeros come in front.
        c2_valid <= !rst && c1_valid;
        c2_first <= c1_first;
        c2_covered <= c1_covered;
        c2_place <= c1_place;
        case (c1_covered ? c1_place[3:2] : 2'd3)
            2'd0: c2_data <= c1_data << 384;
            2'd1: c2_data <= c1_data << 256;
            2'd2: c2_data <= c1_data << 128;
            default: c2_data <= c1_data;
        endcase
        c3_valid <= !rst && c2_valid;
        c3_first <= c2_first;
        c3_covered <= c2_covered;
        c3_place <= c2_place;
        if (!c2_covered) c3_data <= c2_data;
        else
            case (c2_place[1:0])
                2'd0: c3_data <= c2_data << 112;
                2'd1: c3_data <= c2_data << 80;
                2'd2: c3_data <= c2_data << 48;
                default: c3_data <= c2_data << 16;
            endcase
    end

    // Stages 4 to 6: what the beat adds to the state; 512 bits to 16 times 32, to 4 times 32, to 32.
    reg [511:0] part;
    reg [127:0] parts;
    reg [31:0]  added;
    wire [511:0] part_next;
    generate
        for (g = 0; g < 16; g = g + 1) begin : group
            for (k = 0; k < 32; k = k + 1) begin : bit_of
                wire [31:0] mask;
                genvar b;
                for (b = 0; b < 32; b = b + 1) begin : column
                    assign mask[b] = COLUMNS[32*(32*g + b) + k];
                end
                assign part_next[32*g + k] = ^(c3_data[32*g +: 32] & mask);
            end
        end
    endgenerate
    reg       c4_valid, c4_first, c4_covered, c5_valid, c5_first, c5_covered, c6_valid, c6_first, c6_covered;
    reg [3:0] c4_place, c5_place, c6_place;
    always @(posedge clk) begin
        {c4_valid, c5_valid, c6_valid} <= rst ? 3'd0 : {c3_valid, c4_valid, c5_valid};
        {c4_first, c5_first, c6_first} <= {c3_first, c4_first, c5_first};
        {c4_covered, c5_covered, c6_covered} <= {c3_covered, c4_covered, c5_covered};
        {c4_place, c5_place, c6_place} <= {c3_place, c4_place, c5_place};
        part <= part_next;
        for (i = 0; i < 4; i = i + 1)
            parts[32*i +: 32] <= (part[128*i +: 32] ^ part[128*i + 32 +: 32]) ^ (part[128*i + 64 +: 32] ^ part[128*i + 96 +: 32]);
        added <= (parts[31:0] ^ parts[63:32]) ^ (parts[95:64] ^ parts[127:96]);
    end

    // Stage 7: the state. Stages 8 to 11: the last, shorter step of a frame.
    reg [31:0] state, step7, step8, step9, step10, added7, added8, added9, added10, crc;
    reg [3:0]  place7, place8;
    reg [1:0]  place9;
    reg        covered7, covered8, covered9, covered10, crc_new;
    wire [31:0] state_now = c6_first ? START : state;
    wire [31:0] step8_next = after2(step7);
    wire [31:0] step9_by1 = place8[0] ? after(step8, 4) : step8;
    wire [31:0] step10_by4 = place9[0] ? after(step9, 16) : step9;
    always @(posedge clk) begin
        if (c6_valid) state <= after(state_now, 64) ^ added;
        step7 <= state_now;
        added7 <= added;
        place7 <= c6_place;
        covered7 <= !rst && c6_valid && c6_covered;
        step8 <= step8_next;
        added8 <= added7;
        place8 <= place7;
        covered8 <= !rst && covered7;
        step9 <= place8[1] ? after(step9_by1, 8) : step9_by1;
        added9 <= added8;
        place9 <= place8[3:2];
        covered9 <= !rst && covered8;
        step10 <= place9[1] ? after(step10_by4, 32) : step10_by4;
        added10 <= added9;
        covered10 <= !rst && covered9;
        crc <= ~(step10 ^ added10);
        crc_new <= !rst && covered10;
    end

    // The beats wait for it: WAIT clocks, then one in which it is put in.
    reg [511:0]    w_data [0:WAIT-1];
    reg [SIDE+5:0] w_side [0:WAIT-1];   // {covered, place, first, side}
    reg [WAIT-1:0] w_valid;
    wire        z_covered = w_side[WAIT-1][SIDE+5];
    wire [3:0]  z_place = w_side[WAIT-1][SIDE+4 -: 4];
    reg         rest;                   // the last two bytes of the iCRC are still to come, in the next beat
    reg  [15:0] rest_bytes;
    reg  [511:0] placed;
    always @* begin
        placed = w_data[WAIT-1];
        if (z_covered)
            for (i = 0; i < 16; i = i + 1)
                if ({28'd0, z_place} == i) begin
                    placed[32*i + 16 +: 16] = crc[15:0];
                    if (i < 15) placed[32*i + 32 +: 16] = crc[31:16];
                end
        if (rest) placed[15:0] = rest_bytes;
    end
    always @(posedge clk) begin
        w_data[0] <= s_data;
        w_side[0] <= {s_covered, s_place, s_first, s_side};
        for (i = 1; i < WAIT; i = i + 1) begin
            w_data[i] <= w_data[i-1];
            w_side[i] <= w_side[i-1];
        end
        w_valid <= rst ? {WAIT{1'b0}} : {w_valid[WAIT-2:0], s_valid};
        m_valid <= !rst && w_valid[WAIT-1];
        m_data <= placed;
        m_side <= w_side[WAIT-1][SIDE-1:0];
        if (rst) rest <= 1'b0;
        else if (w_valid[WAIT-1]) rest <= z_covered && z_place == 4'd15;
        if (w_valid[WAIT-1] && z_covered) rest_bytes <= crc[31:16];
    end
endmodule
