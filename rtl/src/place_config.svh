    // Ports of place that blocks around it pass on: tables and keys of a program.
    // Tables, written through cfg_write before the first packet: see the localparams of place.
    input  wire [2:0]   cfg_select,
    input  wire [10:0]  cfg_address,
    input  wire [63:0]  cfg_data,
    // Keys: 8 bytes from an offset, of either order, then mask and shift.
    input  wire [5:0]   cfg_frame_offset, cfg_packet_offset, cfg_module_offset,
    input  wire         cfg_frame_big, cfg_packet_big, cfg_module_big,
    input  wire [63:0]  cfg_frame_mask, cfg_packet_mask, cfg_module_mask,
    input  wire [5:0]   cfg_frame_shift, cfg_packet_shift, cfg_module_shift,
    input  wire [63:0]  cfg_frame_bits,       // ones in as many bits as the number of a frame has
    input  wire [63:0]  cfg_first_frame,
    input  wire [63:0]  cfg_first_packet,
    input  wire [9:0]   cfg_packets,          // of a tile, 1 to 512
    input  wire [13:0]  cfg_frame_packets,    // of a frame
    input  wire [15:0]  cfg_datagram_bytes,
    input  wire [1:0]   cfg_header_sixteenths, // bytes of the header / 16; 0 = 64 bytes
    input  wire [4:0]   cfg_tiles,
    input  wire [27:0]  cfg_slot_bytes,
