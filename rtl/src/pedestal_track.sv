// Pedestals of G0 that follow the drift, 32 pixels per clock: a dark word moves the pedestal of its pixel by
// 1/2^window of its distance, after the word itself was converted (docs/processing.md, docs/fpga.md).
//
// In memory a pedestal has 30 bits: ADU x 65536, 8 bits more than the conversion takes, so that small steps add up. The
// gate has 16 bits: ADU x 4, the largest distance of a dark word; 0 = the pedestal never moves.
module pedestal_track (
    input  wire          clk,
    input  wire          rst,
    input  wire [3:0]    cfg_window,   // frames of the window as a power of two, 0 to 12
    // Words, and of the same pixels {gate, pedestal}, 46 bits each.
    input  wire          s_valid,
    output wire          s_ready,
    input  wire [511:0]  s_data,
    input  wire          p_valid,
    output wire          p_ready,
    input  wire [1471:0] p_data,
    // The words with the pedestals for their conversion, 22 bits each: as before this frame.
    output reg           m_valid,
    input  wire          m_ready,
    output reg  [511:0]  m_data,
    output reg  [703:0]  m_pedestals,
    // The pedestals after it, 30 bits each, for memory.
    output reg           n_valid,
    input  wire          n_ready,
    output reg  [959:0]  n_data
);
    genvar n;
    // Three stages. All move together, when both outputs have room.
    reg  one_valid, two_valid;
    wire moves = (!m_valid || m_ready) && (!n_valid || n_ready);
    wire enters = s_valid && p_valid && moves;
    assign s_ready = p_valid && moves;
    assign p_ready = s_valid && moves;
    reg  [511:0] one_data, two_data;
    always @(posedge clk) begin
        if (rst) begin
            one_valid <= 1'b0;
            two_valid <= 1'b0;
            m_valid <= 1'b0;
            n_valid <= 1'b0;
        end else begin
            if (moves) begin
                one_valid <= enters;
                two_valid <= one_valid;
            end
            if (moves) m_valid <= two_valid;
            else if (m_ready) m_valid <= 1'b0;
            if (moves) n_valid <= two_valid;
            else if (n_ready) n_valid <= 1'b0;
        end
        if (moves) begin
            one_data <= s_data;
            two_data <= one_data;
            m_data <= two_data;
        end
    end
    generate
        for (n = 0; n < 32; n = n + 1) begin : lane
            wire [15:0] word = s_data[16*n +: 16];
            wire [29:0] pedestal = p_data[46*n +: 30];
            wire [15:0] gate = p_data[46*n + 30 +: 16];
            reg  signed [30:0] distance;
            reg         [29:0] one_pedestal, two_pedestal;
            reg         [15:0] one_gate;
            reg                one_g0;
            wire        [30:0] size = distance[30] ? -distance : distance;
            wire               is_dark = one_g0 && one_gate != 16'd0 && size <= {1'b0, one_gate, 14'd0};
            // Rounded, a half upwards.
            wire signed [31:0] doubled = {distance, 1'b0};
            wire signed [31:0] scaled = doubled >>> cfg_window;
            wire        [31:0] step = scaled + 32'sd1;
            reg         [30:0] two_step;
            wire        [30:0] rounded = {1'b0, two_pedestal} + 31'd128;
            wire        [30:0] moved = {1'b0, two_pedestal} + two_step;
            always @(posedge clk) begin
                if (moves) begin
                    distance <= {1'b0, word[13:0], 16'd0} - {1'b0, pedestal};
                    one_pedestal <= pedestal;
                    one_gate <= gate;
                    one_g0 <= word[15:14] == 2'd0;
                    two_pedestal <= one_pedestal;
                    two_step <= is_dark ? step[31:1] : 31'd0;
                    m_pedestals[22*n +: 22] <= rounded[30] ? 22'h3F_FFFF : rounded[29:8];
                    n_data[30*n +: 30] <= moved[29:0];
                end
            end
        end
    endgenerate
endmodule
