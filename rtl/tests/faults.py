"""Puts faults into the sources, one at a time, and runs the tests of the block; each fault must make a test fail.

python rtl/tests/faults.py [BLOCK...]. A fault is one replacement in one file. A fault that no test finds is reported,
and so is one whose text is no longer in the source.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from blocks import BLOCKS, RTL, sources

# Block, file, text, and what stands there instead.
FAULTS: list[tuple[str, str, str, str]] = [
    ("udp_front", "udp_front", "is_ones = twice[15:0] == 16'hFFFF", "is_ones = once[15:0] == 16'hFFFF"),
    ("udp_front", "udp_front", "frame_bytes > FRAME_BYTES_MAX", "frame_bytes > FRAME_BYTES_MAX + 1"),
    ("udp_front", "udp_front", "v4_total < {10'd0, ihl_bytes}", "1'b0"),
    ("udp_front", "udp_front", ": e_is_of_vlan ? VLAN", ": 1'b0 ? VLAN"),
    ("udp_front", "udp_front", "port_offset[15:0] >= {11'd0, cfg_streams}", "port_offset[15:0] > {11'd0, cfg_streams}"),
    ("udp_front", "udp_front", "if (s_valid ? s_last : idle == SYNC_IDLE - 1)", "if (1'b1)"),
    ("udp_front", "packet_buffer", "wire               full = filled[DEPTH_LOG2];", "wire               full = written - read == (1 << DEPTH_LOG2);"),
    ("udp_front", "packet_buffer", "written <= keep && !no_room ? written_next : kept;", "written <= written_next;"),
    ("place", "place", "wire [19:0] event_waits = event_stamp - written_count;", "wire [19:0] event_waits = event_stamp - written_count - 20'd1;"),
    ("place", "place", "packet_offset < {54'd0, cfg_packets}", "packet_offset <= {54'd0, cfg_packets}"),
    ("place", "place", "low + WINDOW < newest_end", "low + WINDOW <= newest_end"),
    ("place", "place", "image < oldest + SLOTS", "image <= oldest + SLOTS"),
    ("place", "place", "entry_refused ? NO_SLOT : entry_has ? DUPLICATE : LATE", "entry_has ? DUPLICATE : LATE"),
    ("place", "small_fifo", "assign s_ready = !filled[DEPTH_LOG2];", "assign s_ready = written - read != (1 << DEPTH_LOG2);"),
    ("pixel_pipeline", "pixel_lane", "shift2 - 6'd1", "shift2 - 6'd2"),
    ("pixel_pipeline", "pixel_lane", "(is_special ? factor_g0 : factor_of_stage) == 16'd0", "factor_of_stage == 16'd0"),
    ("pixel_pipeline", "pixel_lane", "whole > VALID_MAX", "whole > VALID_MAX + 1"),
    ("pixel_pipeline", "pixel_sum_lane", "is_masked ? MASKED : is_missing ? MISSING", "is_missing ? MISSING : is_masked ? MASKED"),
    ("pixel_pipeline", "pixel_sum_lane", "number > 32'sd65531", "number > 32'sd65532"),
    ("pixel_pipeline", "pixel_pipeline", "wire         has_room = !inside_count[QUEUE_LOG2];", "wire         has_room = 1'b1;"),
    ("bitshuffle", "bitshuffle", "assign s_ready = !full[write_half];", "assign s_ready = 1'b1;"),
    ("bitshuffle", "bitshuffle", "wire [3:0] row_out = n[3:0] - read_plane;", "wire [3:0] row_out = n[3:0];"),
    ("bitshuffle", "bitshuffle", "assign out_free = !one_valid || two_free;", "assign out_free = 1'b1;"),
    ("roce_insert", "icrc", "32'hAF4C_9D16", "32'hFFFF_FFFF"),
    ("roce_insert", "icrc", "rest <= z_covered && z_place == 4'd15;", "rest <= 1'b0;"),
    ("roce_insert", "icrc", "| (512'hFF << 8*46)", ""),
    ("roce_insert", "roce_insert", "i < payload_left ?", "i < 64 ?"),
    ("roce_insert", "roce_insert", "ip_once[15:0] + {15'd0, ip_once[16]}", "ip_once[15:0]"),
    ("loss_detector", "loss_detector", "42'sd510;", "42'sd509;"),
    ("loss_detector", "loss_detector", "count_lost <= count_lost + (far_to[39:0] - tested[39:0]);", "count_lost <= count_lost;"),
    ("loss_detector", "loss_detector", "cfg_bits24 ? {{18{distance[23]}}, distance[23:0]} :", ""),
    ("loss_detector", "loss_detector", "position <= newest - 42'sd1024) v_code", "position < newest - 42'sd1024) v_code"),
]


def found(block: str, file: str, text: str, instead: str) -> bool:
    """Whether the tests fail with this fault."""
    with tempfile.TemporaryDirectory() as folder:
        copies = pathlib.Path(folder) / "src"
        copies.mkdir()
        for path in sources(block):
            shutil.copy(path, copies)
        path = copies / f"{file}.sv"
        source = path.read_text()
        if source.count(text) != 1:
            raise SystemExit(f"rtl: {file}.sv has this text {source.count(text)} times, not once: {text}")
        path.write_text(source.replace(text, instead))
        env = os.environ | {"RTL_SOURCES": str(copies), "RTL_BUILD": f"{folder}/build", "RTL_FAULT": f"{folder}/mark"}
        done = subprocess.run([sys.executable, RTL / "tests/run.py", block], env=env, capture_output=True, text=True)
        failed = [line.split()[-1] for line in done.stdout.splitlines() if line.startswith("rtl: FAILED")]
        if pathlib.Path(f"{folder}/mark").exists():
            failed = ["a test without end"]
        if not failed and "passed, 0 failed" not in done.stdout:
            raise SystemExit(f"rtl: the fault does not build: {text} -> {instead}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        print(f"rtl: {block}: {text[:60]} -> {instead[:60] or 'nothing'}: {'found by ' + failed[0] if failed else 'NOT FOUND'}", flush=True)
        return bool(failed)


def main() -> int:
    """All faults, or those of the blocks that are named."""
    blocks = sys.argv[1:] or list(BLOCKS)
    chosen = [fault for fault in FAULTS if fault[0] in blocks]
    missed = sum(not found(*fault) for fault in chosen)
    print(f"{len(chosen) - missed} passed, {missed} failed in 0.0s (faults of rtl)")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
