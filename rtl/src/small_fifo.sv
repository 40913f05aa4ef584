// A short queue in distributed memory; its first entry is always to be seen.
module small_fifo #(
    parameter WIDTH = 8,
    parameter DEPTH_LOG2 = 5
) (
    input  wire             clk,
    input  wire             rst,
    input  wire             s_valid,
    output wire             s_ready,
    input  wire [WIDTH-1:0] s_data,
    output wire             m_valid,
    input  wire             m_ready,
    output wire [WIDTH-1:0] m_data
);
    (* ram_style = "distributed" *) reg [WIDTH-1:0] memory [0:(1<<DEPTH_LOG2)-1];
    reg [DEPTH_LOG2:0] written, read;
    wire [DEPTH_LOG2:0] filled = written - read;  // in its own width: the pointers wrap
    assign s_ready = !filled[DEPTH_LOG2];
    assign m_valid = written != read;
    assign m_data = memory[read[DEPTH_LOG2-1:0]];
    always @(posedge clk) begin
        if (s_valid && s_ready) memory[written[DEPTH_LOG2-1:0]] <= s_data;
        if (rst) begin
            written <= 0;
            read <= 0;
        end else begin
            if (s_valid && s_ready) written <= written + 1'b1;
            if (m_valid && m_ready) read <= read + 1'b1;
        end
    end
endmodule
