// Adds two int32 pixels by the rules of crates/kernels/src/finish.rs: a special value wins over numbers, in the order
// masked, missing, invalid, saturated. Then the type of the file.
module pixel_sum_lane (
    input  wire        alone,      // there is nothing to add to
    input  wire [31:0] earlier,
    input  wire [31:0] pixel,
    output wire [31:0] sum,
    input  wire [1:0]  kind,       // of the file: 0 int16, 1 uint16, 2 int32, 3 uint32
    input  wire [31:0] value,
    output reg  [31:0] narrow
);
    localparam [31:0] MASKED = 32'h8000_0000, INVALID = 32'h8000_0001, MISSING = 32'h8000_0002, SATURATED = 32'h7FFF_FFFF,
                      VALID_MAX = 32'h7FFF_FF00, VALID_MIN = 32'h8000_0100;
    wire signed [32:0] total = {earlier[31], earlier} + {pixel[31], pixel};
    wire signed [32:0] most = {1'b0, VALID_MAX}, least = {1'b1, VALID_MIN};
    wire is_masked = earlier == MASKED || pixel == MASKED;
    wire is_missing = earlier == MISSING || pixel == MISSING;
    wire is_invalid = earlier == INVALID || pixel == INVALID;
    wire is_saturated = earlier == SATURATED || pixel == SATURATED || total > most;
    assign sum = alone ? pixel : is_masked ? MASKED : is_missing ? MISSING : is_invalid ? INVALID
        : is_saturated ? SATURATED : total < least ? VALID_MIN : total[31:0];

    wire signed [31:0] number = value;
    always @* begin
        narrow = value;
        case (kind)
            2'd0:
                if (value == MASKED) narrow = 32'h0000_8000;
                else if (value == INVALID) narrow = 32'h0000_8001;
                else if (value == MISSING) narrow = 32'h0000_8002;
                else if (number > 32'sd32766) narrow = 32'h0000_7FFF;
                else if (number < -32'sd32765) narrow = 32'h0000_8003;
            2'd1:
                if (value == MASKED) narrow = 32'h0000_FFFE;
                else if (value == INVALID) narrow = 32'h0000_FFFD;
                else if (value == MISSING) narrow = 32'h0000_FFFF;
                else if (number > 32'sd65531) narrow = 32'h0000_FFFC;
                else if (value[31]) narrow = 32'd0;
            2'd2: narrow = value;
            default:
                if (value == MASKED) narrow = 32'hFFFF_FFFE;
                else if (value == INVALID) narrow = 32'hFFFF_FFFD;
                else if (value == MISSING) narrow = 32'hFFFF_FFFF;
                else if (value == SATURATED) narrow = 32'hFFFF_FFFC;
                else if (value[31]) narrow = 32'd0;
        endcase
    end
endmodule
