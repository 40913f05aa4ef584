"""Synthesises blocks with Yosys for UltraScale+ and prints what they take: python rtl/tests/synth.py [BLOCK...].

Yosys neither places nor routes, so this says nothing about the clock that a block reaches.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys

from blocks import BLOCKS, PARTS, RTL, sources

BUILD = pathlib.Path(os.environ.get("RTL_BUILD", RTL / "build"))
# What an XCVU33P has (Xilinx DS890): LUTs, flip-flops, block RAMs of 36 Kbit, DSP slices.
PART = {"LUT": 439_680, "FF": 879_360, "BRAM36": 672, "DSP": 2_880}
# LUTs that a memory or shift register of LUTs takes (UG974); RAM32M and RAM64M are counted as 4 LUTs.
LUT_MEMORY = {"RAM32M16": 8, "RAM64M8": 8, "RAM32M": 4, "RAM64M": 4, "RAM64X1D": 2, "RAM32X1D": 2, "RAM128X1D": 4, "RAM256X1D": 8,
              "RAM64X1S": 1, "RAM32X1S": 1, "RAM512X1S": 8, "RAM256X1S": 4, "RAM128X1S": 2, "RAM64X8SW": 8, "SRL16E": 1, "SRLC32E": 1}


# Blocks with 32 equal lanes: each module is synthesised once, and counted as often as it stands there.
IN_PARTS = ("pixel_pipeline",)


def cells(block: str) -> dict[str, int]:
    """Cells of a synthesised block, by kind."""
    folder = BUILD / "synth"
    folder.mkdir(parents=True, exist_ok=True)
    report = folder / f"{block}.txt"
    files = " ".join(str(path) for path in sources(block))
    flatten = "" if block in IN_PARTS else "-flatten"
    script = f"read_verilog -sv -I {RTL / 'src'} {files}; synth_xilinx -family xcup {flatten} -noiopad -noclkbuf -top {block}; tee -o {report} stat"
    subprocess.run(["yosys", "-q", "-p", script], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    # The sum over all modules is the last part of the report.
    text = report.read_text().rpartition("=== ")[2]
    return {kind: int(count) for kind, count in re.findall(r"^ {5}(\w+) +(\d+)$", text, re.M)}


def resources(found: dict[str, int]) -> dict[str, float]:
    """What the cells take of the part. INV is counted as a LUT, carry chains take none of their own."""
    lut = sum(count for kind, count in found.items() if re.fullmatch(r"LUT\d|INV", kind))
    return {
        "LUT": lut + sum(LUT_MEMORY.get(kind, 0) * count for kind, count in found.items()),
        "FF": sum(count for kind, count in found.items() if kind.startswith("FD")),
        "BRAM36": sum(count / (2 if kind.startswith("RAMB18") else 1) for kind, count in found.items() if kind.startswith("RAMB")),
        "DSP": sum(count for kind, count in found.items() if kind.startswith("DSP")),
    }


def main() -> int:
    """All blocks, or those that are named."""
    # receiver is udp_front and place; four_receivers and card are several of the others and a part.
    blocks = sys.argv[1:] or [block for block in (*BLOCKS, *PARTS) if block not in ("receiver", "four_receivers", "card")]
    version = subprocess.run(["yosys", "-V"], capture_output=True, text=True, check=True).stdout.split(" (")[0]
    print(f"rtl: {version}, synth_xilinx -family xcup; shares are those of an XCVU33P")
    print("| block | LUT | FF | BRAM36 | DSP |\n|---|---:|---:|---:|---:|")
    total = dict.fromkeys(PART, 0.0)
    for block in blocks:
        found = cells(block)
        unknown = [kind for kind in found if kind.startswith("RAM") and kind not in LUT_MEMORY and not kind.startswith("RAMB")]
        if unknown:
            print(f"rtl: synth.py does not know how many LUTs {unknown} take", file=sys.stderr)
            return 1
        taken = resources(found)
        (BUILD / "synth" / f"{block}.json").write_text(json.dumps({"cells": found, "resources": taken}))
        total = {name: total[name] + taken[name] for name in PART}
        print(row(block, taken), flush=True)
    if len(blocks) > 1:
        print(row("**together**", total))
    return 0


def row(name: str, taken: dict[str, float]) -> str:
    """A line of the table."""
    return f"| {name} | " + " | ".join(f"{taken[kind]:,.0f} ({100 * taken[kind] / PART[kind]:.2f} %)" if kind != "BRAM36" else f"{taken[kind]:g} ({100 * taken[kind] / PART[kind]:.2f} %)" for kind in PART) + " |"


if __name__ == "__main__":
    sys.exit(main())
