// A buffer of beats that keeps or forgets whole packets. Beats are pushed without asking; with the last one, finish and
// keep say whether the packet stays. A packet that found the buffer full is forgotten, and no_room is true with finish.
module packet_buffer #(
    parameter WIDTH = 512,
    parameter DEPTH_LOG2 = 9
) (
    input  wire             clk,
    input  wire             rst,
    input  wire             push,
    input  wire [WIDTH-1:0] push_data,
    input  wire             finish,  // the packet ends, with or without a beat
    input  wire             keep,
    output wire             no_room,
    output wire             m_valid,
    input  wire             m_ready,
    output wire [WIDTH-1:0] m_data
);
    reg [WIDTH-1:0]    memory [0:(1<<DEPTH_LOG2)-1];
    reg [DEPTH_LOG2:0] written, kept, read;  // one bit more than an address, to tell full from empty
    reg                overflowed;
    wire [DEPTH_LOG2:0] filled = written - read;  // in its own width: the pointers wrap
    wire               full = filled[DEPTH_LOG2];
    wire               stored = push && !full && !overflowed;
    wire [DEPTH_LOG2:0] written_next = written + {{DEPTH_LOG2{1'b0}}, stored};
    assign no_room = overflowed || (push && full);
    always @(posedge clk) begin
        if (stored) memory[written[DEPTH_LOG2-1:0]] <= push_data;
        if (rst) begin
            written <= 0;
            kept <= 0;
            overflowed <= 1'b0;
        end else if (finish) begin
            overflowed <= 1'b0;
            written <= keep && !no_room ? written_next : kept;
            if (keep && !no_room) kept <= written_next;
        end else begin
            written <= written_next;
            if (push && full) overflowed <= 1'b1;
        end
    end

    // Two stages behind the memory: its own register and one more.
    reg             one_valid, two_valid;
    reg [WIDTH-1:0] one, two;
    wire            two_goes = !two_valid || m_ready;
    wire            one_goes = !one_valid || two_goes;
    wire            reads = read != kept && one_goes;
    always @(posedge clk) begin
        if (reads) one <= memory[read[DEPTH_LOG2-1:0]];
        if (one_valid && two_goes) two <= one;
        if (rst) begin
            read <= 0;
            one_valid <= 1'b0;
            two_valid <= 1'b0;
        end else begin
            if (reads) read <= read + 1'b1;
            if (one_goes) one_valid <= read != kept;
            if (two_goes) two_valid <= one_valid;
        end
    end
    assign m_valid = two_valid;
    assign m_data = two;
endmodule
