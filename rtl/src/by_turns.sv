// Four streams of packets into one, packet by packet. After a packet the turn goes to the next stream behind its own
// that has a beat, so that a stream waits for at most one packet of each other one. There is no register on the way:
// a beat that was taken here was taken behind it, on which the events of place rely. A beat that waits does not change.
module by_turns #(
    parameter WIDTH = 512
) (
    input  wire               clk,
    input  wire               rst,
    input  wire [3:0]         s_valid,
    output wire [3:0]         s_ready,
    input  wire [4*WIDTH-1:0] s_data,
    input  wire [3:0]         s_last,
    output wire               m_valid,
    input  wire               m_ready,
    output wire [WIDTH-1:0]   m_data,
    output wire               m_last,
    output wire [1:0]         m_source
);
    integer i;
    reg        busy;       // the stream `owner` is inside of a packet, or its first beat waits
    reg [1:0]  owner;      // the one that has the turn, or had it last
    reg [1:0]  next;
    reg [1:0]  candidate;
    always @* begin
        // The farthest one first: what is found last is the nearest one behind the owner.
        next = owner;
        for (i = 4; i >= 1; i = i - 1) begin
            candidate = owner + i[1:0];
            if (s_valid[candidate]) next = candidate;
        end
    end
    assign m_source = busy ? owner : next;
    assign m_valid = s_valid[m_source];
    assign m_last = s_last[m_source];
    assign m_data = s_data[WIDTH*m_source +: WIDTH];
    assign s_ready = {3'd0, m_ready} << m_source;
    always @(posedge clk) begin
        if (rst) begin
            busy <= 1'b0;
            owner <= 2'd3;
        end else if (m_valid) begin
            busy <= !(m_ready && m_last);
            owner <= m_source;
        end
    end
endmodule
