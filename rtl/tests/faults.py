"""Puts faults into the sources, one at a time, and runs the tests of the block; each fault must make a test fail.

python rtl/tests/faults.py [--jobs N] [BLOCK or NUMBER or FIRST-LAST ...]. A fault is one replacement in one file; its
number is its place in the list below, from 0. Before them, the block's tests must pass without a fault. The first test
that fails ends the simulation. A fault that no test finds is reported, and so is one whose text is no longer in the
source.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from blocks import BLOCKS, RTL, sources

# Block, file, text, and what stands there instead.
FAULTS: list[tuple[str, str, str, str]] = [
    ("udp_front", "udp_front", "is_ones = sum[15:0] == ~sum[31:16]", "is_ones = sum[15:0] == 16'hFFFF"),
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
    ("pixel_pipeline", "pixel_sum_lane", "number > 32'sd65531", "number > 32'sd65533"),
    ("pixel_pipeline", "pixel_pipeline", "wire         has_room = !inside_count[QUEUE_LOG2];", "wire         has_room = 1'b1;"),
    ("bitshuffle", "bitshuffle", "assign s_ready = !full[write_half];", "assign s_ready = 1'b1;"),
    ("bitshuffle", "bitshuffle", "{rows, rows} >> (32 * one_plane)", "{rows, rows} >> (32 * read_plane)"),
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
    ("place", "place", "closing_before <= 1'b0;\n                    flushing", "flushing"),
    ("place", "place", "flushing <= flush && !header_valid;", "flushing <= 1'b0;"),
    ("card", "frame_out", "wire       has_credit = in_hands < {28'd0, cfg_host_slots};", "wire       has_credit = in_hands <= {28'd0, cfg_host_slots};"),
    ("card", "frame_out", ".s_data(!b_mask[b_packet])", ".s_data(!a_valid)"),
    ("card", "frame_out", "if (a_valid && b_goes) begin", "if (a_valid) begin"),
    ("card", "frame_out", "assign x_valid = q_valid && flag_valid;", "assign x_valid = flag_valid;"),
    ("card", "frame_out", "assign e_ready = state == COLLECT;", "assign e_ready = 1'b1;"),
    ("card", "frame_out", "host_slot + 12'd1 == cfg_host_slots ? 12'd0 : host_slot + 12'd1", "host_slot + 12'd1"),
    ("card", "frame_out", "release_valid <= 1'b1;", "release_valid <= 1'b0;"),
]


def fails(command: list[str], env: dict[str, str], mark: pathlib.Path) -> tuple[str, str]:
    """Runs tests until one fails; its name, or nothing, and all that was printed."""
    text = []
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True) as tests:
        assert tests.stdout is not None
        for line in tests.stdout:
            text.append(line)
            if failed := re.search(r"cocotb\.regression +(\w+) failed", line):
                os.killpg(tests.pid, signal.SIGKILL)
                return failed[1], "".join(text)
    return "a test without end" if mark.exists() else "", "".join(text)


def tried(block: str, file: str = "", text: str = "", instead: str = "") -> str:
    """The test of the block that fails where `instead` stands in its sources for `text`; nothing if all pass."""
    with tempfile.TemporaryDirectory() as folder:
        copies = pathlib.Path(folder) / "src"
        copies.mkdir()
        for path in (*sources(block), *(RTL / "src").glob("*.svh")):
            shutil.copy(path, copies)
        if file:
            path = copies / f"{file}.sv"
            source = path.read_text()
            if source.count(text) != 1:
                raise SystemExit(f"rtl: {file}.sv has this text {source.count(text)} times, not once: {text}")
            path.write_text(source.replace(text, instead))
        env = os.environ | {"RTL_SOURCES": str(copies), "RTL_BUILD": f"{folder}/build", "RTL_FAULT": f"{folder}/mark"}
        failed, printed = fails([sys.executable, str(RTL / "tests/run.py"), block], env, pathlib.Path(f"{folder}/mark"))
        if not failed and "passed, 0 failed" not in printed:
            raise SystemExit(f"rtl: {block} does not build with this fault: {text or 'none'} -> {instead}\n{printed[-3000:]}")
        return failed


def passes(block: str) -> bool:
    """Whether the tests of a block pass without a fault. Otherwise a fault that they find says nothing."""
    if failed := tried(block):
        print(f"rtl: {block}: {failed} fails without a fault", flush=True)
    return not failed


def found(number: int) -> bool:
    """Whether the tests fail with this fault."""
    block, file, text, instead = FAULTS[number]
    began = time.monotonic()
    failed = tried(block, file, text, instead)
    verdict = f"found by {failed}" if failed else "NOT FOUND"
    short = " ".join(text.split())[:60]
    print(f"rtl: {number} {block}: {short} -> {instead[:60] or 'nothing'}: {verdict} ({time.monotonic() - began:.0f} s)", flush=True)
    return bool(failed)


def chosen(words: list[str]) -> list[int]:
    """The numbers of the faults that are named."""
    numbers: set[int] = set()
    for word in words or list(BLOCKS):
        if word in BLOCKS:
            numbers |= {n for n, fault in enumerate(FAULTS) if fault[0] == word}
        elif match := re.fullmatch(r"(\d+)(?:-(\d+))?", word):
            numbers |= set(range(int(match[1]), int(match[2] or match[1]) + 1))
        else:
            raise SystemExit(f"rtl: '{word}' is neither a block nor a number; blocks are {', '.join(BLOCKS)}")
    if numbers - set(range(len(FAULTS))):
        raise SystemExit(f"rtl: there are faults 0 to {len(FAULTS) - 1}")
    return sorted(numbers)


def main() -> int:
    """All faults, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("which", nargs="*")
    args = parser.parse_args()
    numbers = chosen(args.which)
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        if not all(pool.map(passes, dict.fromkeys(FAULTS[number][0] for number in numbers))):
            return 1
        results = list(pool.map(found, numbers))
    missed = [number for number, result in zip(numbers, results, strict=True) if not result]
    print(f"{len(numbers) - len(missed)} passed, {len(missed)} failed in 0.0s (faults of rtl)")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
