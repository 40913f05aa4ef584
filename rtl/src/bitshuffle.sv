// Bitshuffle of 16-bit pixels, 32 per clock, in blocks of 4096 pixels (8192 bytes): bit b of all pixels of a block
// comes before bit b + 1, as crates/kernels/src/bitshuffle and the filter of HDF5 do it.
//
// A beat of 32 pixels gives 32 bits for each of the 16 planes. They are written, turned by one 32-bit place per beat,
// to 16 memories of 32 bits, so that the 16 words of an output beat (512 bits of one plane) lie in different memories.
// One block is written while the one before is read.
module bitshuffle (
    input  wire         clk,
    input  wire         rst,
    input  wire         s_valid,
    output wire         s_ready,
    input  wire [511:0] s_data,
    output wire         m_valid,
    input  wire         m_ready,
    output wire [511:0] m_data,
    output wire         m_last      // of the block
);
    integer i, j;
    genvar n;

    // Plane p of a beat: bit p of all its pixels.
    reg [511:0] planes;
    always @* begin
        for (i = 0; i < 16; i = i + 1)
            for (j = 0; j < 32; j = j + 1) planes[32*i + j] = s_data[16*j + i];
    end

    // Written: which half, which beat of 128. Beat = 16 * column + row.
    reg        write_half, read_half;
    reg [1:0]  full;
    reg [6:0]  write_beat, read_beat;
    assign s_ready = !full[write_half];
    wire       writes = s_valid && s_ready;
    wire       finishes_write = writes && write_beat == 7'd127;
    // Read: beat = 8 * plane + column.
    wire       out_free;
    wire       reads = full[read_half] && out_free;
    wire       finishes_read = reads && read_beat == 7'd127;
    wire [3:0] write_row = write_beat[3:0];
    wire [3:0] read_plane = read_beat[6:3];
    // Memory m takes plane (m - row) mod 16 of a beat, and gives row (m - plane) mod 16 of a plane.
    wire [511:0] turned;
    reg  [511:0] rows;
    generate
        for (n = 0; n < 16; n = n + 1) begin : bank
            wire [3:0] plane_in = n[3:0] - write_row;
            reg [31:0] memory [0:255];
            reg [31:0] word;
            // Address: half, column, plane.
            always @(posedge clk) begin
                if (writes) memory[{write_half, write_beat[6:4], plane_in}] <= turned[32*n +: 32];
                if (reads) word <= memory[{read_half, read_beat[2:0], read_plane}];
            end
            always @* rows[32*n +: 32] = word;
        end
    endgenerate
    wire [1023:0] planes_twice = {planes, planes} << (32 * write_row);
    assign turned = planes_twice[1023:512];

    reg       one_valid, one_last;
    reg [3:0] one_plane;
    reg       two_valid, two_last;
    reg [511:0] two;
    wire      two_free = !two_valid || m_ready;
    assign out_free = !one_valid || two_free;
    wire [1023:0] rows_twice = {rows, rows} >> (32 * one_plane);
    always @(posedge clk) begin
        if (reads) begin
            one_plane <= read_plane;
            one_last <= read_beat == 7'd127;
        end
        if (one_valid && two_free) begin
            two <= rows_twice[511:0];
            two_last <= one_last;
        end
        if (rst) begin
            write_half <= 1'b0;
            read_half <= 1'b0;
            full <= 2'd0;
            write_beat <= 7'd0;
            read_beat <= 7'd0;
            one_valid <= 1'b0;
            two_valid <= 1'b0;
        end else begin
            if (writes) write_beat <= write_beat + 7'd1;
            if (reads) read_beat <= read_beat + 7'd1;
            if (finishes_write) write_half <= !write_half;
            if (finishes_read) read_half <= !read_half;
            for (i = 0; i < 2; i = i + 1)
                if (finishes_write && {31'd0, write_half} == i) full[i] <= 1'b1;
                else if (finishes_read && {31'd0, read_half} == i) full[i] <= 1'b0;
            if (out_free) one_valid <= reads;
            if (two_free) two_valid <= one_valid;
        end
    end
    assign m_valid = two_valid;
    assign m_data = two;
    assign m_last = two_last;
endmodule
