// Finds lost packets by their sequence numbers: the loss detector of RASHPA, 1024 bits with a window of 512, by the
// rules of crates/fabric/src/loss.rs. A number is tested when one that is 511 higher arrives; all numbers up to there
// are tested, and a drain tests the rest.
//
// Positions are numbers that do not wrap: 0 is the first one. A packet takes 4 clocks and one for each number by which
// it is ahead of the newest one, at most 1024; a drain takes one for each number that is not tested, at most 511 more.
module loss_detector (
    input  wire        clk,
    input  wire        rst,
    input  wire        cfg_bits24,       // numbers have 24 bits, else 32
    input  wire        cfg_has_first,    // the sender begins with this number; else the first that comes is the first
    input  wire [31:0] cfg_first,
    input  wire        s_valid,
    output wire        s_ready,
    input  wire [31:0] s_number,
    input  wire        s_drain,          // no packet: test everything
    input  wire        s_has_last,       // with s_drain: s_number is the last one that was sent
    // What the arrival of each packet means.
    output reg         v_valid,
    output reg  [1:0]  v_code,           // 0 new, 1 gap, 2 duplicate, 3 late
    // Runs of lost positions: from .. to, without to.
    output wire        l_valid,
    input  wire        l_ready,
    output wire [39:0] l_from,
    output wire [39:0] l_to,
    output wire        is_idle,          // nothing waits to be tested or told
    output reg  [31:0] count_new, count_gap, count_duplicate, count_late,
    output reg  [39:0] count_lost
);
    localparam NEW = 2'd0, GAP = 2'd1, DUPLICATE = 2'd2, LATE = 2'd3;
    localparam CLEAR = 3'd0, IDLE = 3'd1, LOOK = 3'd2, STEP = 3'd3, FAR = 3'd4, MARK = 3'd5, DRAIN = 3'd6;
    reg [2:0]  state;
    reg        started, drain, tests_rest;
    reg [31:0] newest_number;
    reg signed [41:0] newest, tested, position;   // -1 before the first one
    reg [10:0] steps;
    reg        jump;
    reg [9:0]  clear_at;

    // The way round that is shorter.
    wire [31:0] before_first = cfg_has_first ? cfg_first - 32'd1 : s_number - 32'd1;
    wire [31:0] newest_here = started ? newest_number : before_first;
    wire [31:0] distance = s_number - newest_here;
    wire signed [41:0] ahead = cfg_bits24 ? {{18{distance[23]}}, distance[23:0]} : {{10{distance[31]}}, distance};

    // The register: bit position mod 1024.
    (* ram_style = "distributed" *) reg register [0:1023];
    wire signed [41:0] step_to = newest + 42'sd1;
    wire signed [41:0] step_test = newest - 42'sd510;    // step_to - 511
    wire signed [41:0] next_test = tested + 42'sd1;
    wire [9:0]  read_at = state == STEP ? step_test[9:0] : state == DRAIN ? next_test[9:0] : position[9:0];
    wire        bit_read = register[read_at];
    wire        writes = state == CLEAR || (state == STEP && steps != 11'd0) || (state == MARK && !drain && marks);
    wire [9:0]  write_at = state == CLEAR ? clear_at : state == STEP ? step_to[9:0] : position[9:0];
    wire        marks = position >= 42'sd0 && position > newest - 42'sd1024;
    always @(posedge clk) begin
        if (writes) register[write_at] <= state == MARK;
    end

    // A run that is being found, and runs on their way out.
    reg        run_open;
    reg [39:0] run_from, run_to;
    wire       l_room;
    reg        l_push;
    small_fifo #(.WIDTH(80), .DEPTH_LOG2(4)) runs (
        .clk(clk), .rst(rst), .s_valid(l_push), .s_ready(l_room), .s_data({run_from, run_to}),
        .m_valid(l_valid), .m_ready(l_ready), .m_data({l_from, l_to})
    );
    // What is tested in this clock: in a step the number 511 below, in a drain the next one.
    wire       tests = l_room && ((state == STEP && steps != 11'd0 && step_test > tested) || (state == DRAIN && tests_rest && tested < newest));
    wire       found_lost = tests && !bit_read;
    wire       run_ends = run_open && ((tests && bit_read) || (state == MARK && !drain) || (state == DRAIN && !(tests_rest && tested < newest)));
    always @* l_push = run_ends && l_room;

    assign s_ready = state == IDLE;
    assign is_idle = state == IDLE && !l_valid && !s_valid;
    wire signed [41:0] far_to = position - 42'sd511;
    always @(posedge clk) begin
        v_valid <= 1'b0;
        if (rst) begin
            state <= CLEAR;
            clear_at <= 10'd0;
            started <= 1'b0;
            newest <= -42'sd1;
            tested <= -42'sd1;
            run_open <= 1'b0;
            count_new <= 32'd0;
            count_gap <= 32'd0;
            count_duplicate <= 32'd0;
            count_late <= 32'd0;
            count_lost <= 40'd0;
        end else begin
            case (state)
                CLEAR: begin
                    clear_at <= clear_at + 10'd1;
                    if (clear_at == 10'd1023) state <= IDLE;
                end
                IDLE: if (s_valid) begin
                    drain <= s_drain;
                    tests_rest <= s_drain;
                    // Whoever drains without a last number asks for the newest one.
                    if (s_drain && !s_has_last) position <= newest;
                    else begin
                        position <= newest + ahead;
                        started <= 1'b1;
                        newest_number <= newest_here;
                    end
                    state <= LOOK;
                end
                LOOK: begin
                    jump <= position - newest >= 42'sd1024;
                    steps <= position - newest >= 42'sd1024 ? 11'd1024 : position > newest ? position[10:0] - newest[10:0] : 11'd0;
                    v_valid <= !drain;
                    if (position > newest) v_code <= position - newest >= 42'sd1024 ? GAP : NEW;
                    else if (position < 42'sd0 || position <= newest - 42'sd1024) v_code <= LATE;
                    else if (bit_read) v_code <= DUPLICATE;
                    else v_code <= position <= tested ? LATE : NEW;
                    state <= position > newest ? STEP : MARK;
                end
                STEP: begin
                    if (steps == 11'd0) state <= jump ? FAR : MARK;
                    else if (l_room) begin
                        steps <= steps - 11'd1;
                        newest <= step_to;
                        newest_number <= newest_number + 32'd1;
                        if (tests) tested <= step_test;
                    end
                end
                FAR: begin
                    // Of all numbers in between none came: one run up to where is tested.
                    newest_number <= newest_number + (position[31:0] - newest[31:0]);
                    newest <= position;
                    if (far_to > tested) begin
                        tested <= far_to;
                        count_lost <= count_lost + (far_to[39:0] - tested[39:0]);
                        run_open <= 1'b1;
                        if (!run_open) run_from <= tested[39:0] + 40'd1;
                        run_to <= far_to[39:0] + 40'd1;
                    end
                    state <= MARK;
                end
                MARK: if (drain || !run_open || l_room) state <= drain ? DRAIN : IDLE;
                default: begin // DRAIN
                    if (tests) tested <= next_test;
                    if (!(tests_rest && tested < newest) && (!run_open || l_room)) state <= IDLE;
                end
            endcase
            if (found_lost) begin
                run_open <= 1'b1;
                if (!run_open) run_from <= state == STEP ? step_test[39:0] : next_test[39:0];
                run_to <= (state == STEP ? step_test[39:0] : next_test[39:0]) + 40'd1;
                count_lost <= count_lost + 40'd1;
            end else if (l_push) run_open <= 1'b0;
            if (state == LOOK && !drain) begin
                if (position > newest) begin
                    count_new <= count_new + 32'd1;
                    if (position - newest >= 42'sd1024) count_gap <= count_gap + 32'd1;
                end else if (position < 42'sd0 || position <= newest - 42'sd1024) count_late <= count_late + 32'd1;
                else if (bit_read) count_duplicate <= count_duplicate + 32'd1;
                else if (position <= tested) count_late <= count_late + 32'd1;
                else count_new <= count_new + 32'd1;
            end
        end
    end
endmodule
