// One pixel of a JUNGFRAU per clock, from its word to whole photons as int32, by docs/formats/fixed-point.md.
// A result comes 6 clocks after its word.
module pixel_lane (
    input  wire         clk,
    input  wire         high_gain,
    input  wire [17:0]  shifts,      // of G2, G1, G0, 6 bits each
    input  wire [15:0]  word,
    input  wire [101:0] constants,   // factors of G2, G1, G0, then pedestals of G2, G1 and G0 (22 bits)
    output reg  [31:0]  pixel
);
    localparam NUMBER = 2'd0, MASKED = 2'd1, INVALID = 2'd2, SATURATED = 2'd3;
    localparam signed [47:0] VALID_MAX = 48'sd2147483392, VALID_MIN = -48'sd2147483392;

    // Stage 1: difference and factor of the stage.
    wire [21:0] pedestal_g0 = constants[21:0];
    wire [15:0] factor_g0 = constants[69:54];
    wire [1:0]  gain = word[15:14];
    wire        is_special = word == 16'hFFFF || word == 16'hC000 || word == 16'h4000 || gain == 2'd2;
    wire [15:0] pedestal = gain[1] ? constants[53:38] : constants[37:22];
    wire [15:0] factor_of_stage = gain == 2'd0 ? factor_g0 : gain[1] ? constants[101:86] : constants[85:70];
    wire [22:0] minuend = gain == 2'd0 ? {1'b0, word[13:0], 8'd0} : {7'd0, pedestal};
    wire [22:0] subtrahend = gain == 2'd0 ? {1'b0, pedestal_g0} : {7'd0, word[13:0], 2'd0};
    reg signed [22:0] difference;
    reg        [15:0] factor;
    reg        [1:0]  kind1, kind2, kind3, kind4, kind5;
    reg        [5:0]  shift1, shift2, shift3;
    reg        [3:0]  shift4;
    always @(posedge clk) begin
        difference <= minuend - subtrahend;
        factor <= factor_of_stage;
        shift1 <= gain == 2'd0 ? shifts[5:0] : gain[1] ? shifts[17:12] : shifts[11:6];
        if ((is_special ? factor_g0 : factor_of_stage) == 16'd0) kind1 <= MASKED;
        else if (is_special) kind1 <= word == 16'hC000 ? SATURATED : INVALID;
        else kind1 <= high_gain && word == 16'h3FFF ? SATURATED : NUMBER;
    end

    // Stage 2: product. Stage 3: half a count. Stages 4 and 5: the shift, in two parts. Stage 6: the limits.
    reg signed [39:0] product;
    reg signed [47:0] sum, coarse, whole;
    wire signed [16:0] factor_signed = {1'b0, factor};
    always @(posedge clk) begin
        product <= difference * factor_signed;
        sum <= {{8{product[39]}}, product} + (48'd1 << (shift2 - 6'd1));
        coarse <= shift3[5] ? sum >>> 32 : shift3[4] ? sum >>> 16 : sum;
        whole <= coarse >>> shift4;
        {kind2, kind3, kind4, kind5} <= {kind1, kind2, kind3, kind4};
        shift2 <= shift1;
        shift3 <= shift2;
        shift4 <= shift3[3:0];
        if (kind5 == MASKED) pixel <= 32'h8000_0000;
        else if (kind5 == INVALID) pixel <= 32'h8000_0001;
        else if (kind5 == SATURATED || whole > VALID_MAX) pixel <= 32'h7FFF_FFFF;
        else if (whole < VALID_MIN) pixel <= VALID_MIN[31:0];
        else pixel <= whole[31:0];
    end
endmodule
