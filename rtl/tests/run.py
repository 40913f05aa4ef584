"""Simulates blocks with Verilator and cocotb: python rtl/tests/run.py [BLOCK...]; scripts/rtl calls it."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree

from bench import CLOCK_MHZ
from blocks import BLOCKS, RTL, sources
from cocotb.runner import Verilator

BUILD = pathlib.Path(os.environ.get("RTL_BUILD", RTL / "build"))
# The sources; scripts/rtl faults simulates copies with a fault.
SOURCES = pathlib.Path(os.environ.get("RTL_SOURCES", RTL / "src"))
WARNINGS = ["-Wall", "-Wno-DECLFILENAME", "-Wno-UNUSED", "-Wno-PINCONNECTEMPTY"]
COVERAGE = ["--coverage-line", "--coverage-toggle"]
# Four times the same blocks: their toggles are counted in tests of their own, and take as long as the rest together.
WITHOUT_TOGGLES = ("four_receivers",)


def arguments(block: str) -> list[str]:
    """Arguments for Verilator. A source with a fault may well have a warning."""
    if os.environ.get("RTL_FAULT"):
        return ["-Wno-fatal", "-Wno-lint"]
    return WARNINGS + COVERAGE[: 1 if block in WITHOUT_TOGGLES else 2]


# The names of a declaration of ports.
PORTS = re.compile(r"^ *(?:input|output) +(?:wire|reg) +(?:\[[^]]*\] *)?(\w+(?: *, *\w+)*)", re.MULTILINE)


def visible(block: str) -> str:
    """What tests see of a block: its ports. cocotb would make every signal inside visible too, and with that the
    simulation of a large block takes several times as long."""
    included = (SOURCES / "place_config.svh").read_text()
    text = (SOURCES / f"{block}.sv").read_text().replace('`include "place_config.svh"', included)
    names = [name for ports in PORTS.findall(text) for name in re.split(" *, *", ports)]
    return "\n".join(["`verilator_config", *(f'public_flat_rw -module "{block}" -var "{name}"' for name in names), ""])


class Simulator(Verilator):  # type: ignore[misc]
    """Verilator, in which tests see only what they are shown."""

    def _build_command(self) -> list[list[str]]:
        return [[word for word in command if word != "--public-flat-rw"] for command in super()._build_command()]


def coverage(folder: pathlib.Path) -> str:
    """Lines and toggles that the tests have reached."""
    data = (folder / "coverage.dat").read_bytes()
    found: dict[str, list[int]] = {"line": [0, 0], "toggle": [0, 0], "branch": [0, 0]}
    for page, count in re.findall(rb"\x01page\x02v_(line|branch|toggle)[^\n]*' (\d+)\n", data):
        found[page.decode()][0] += int(count) > 0
        found[page.decode()][1] += 1
    return ", ".join(f"{name} {hit} of {total} ({100 * hit / total:.1f} %)" for name, (hit, total) in found.items() if total)


def simulate(block: str) -> tuple[int, int]:
    """Builds and tests one block; returns how many tests passed and failed."""
    folder, notes = BUILD / block, BUILD / block / "notes.jsonl"
    folder.mkdir(parents=True, exist_ok=True)
    notes.unlink(missing_ok=True)
    shown = folder / "visible.vlt"
    shown.write_text(visible(block))
    runner = Simulator()
    runner.build(verilog_sources=sources(block, SOURCES), includes=[SOURCES], hdl_toplevel=block, build_dir=folder, build_args=[*arguments(block), str(shown)], always=True)
    results = runner.test(
        hdl_toplevel=block,
        test_module=f"test_{block}",
        build_dir=folder,
        test_dir=folder,
        extra_env={"PYTHONPATH": str(RTL / "tests"), "RTL_NOTES": str(notes)},
    )
    cases = list(xml.etree.ElementTree.parse(results).iter("testcase"))
    failed = [case.get("name") for case in cases if case.find("failure") is not None or case.find("error") is not None]
    print(f"rtl: {block}: {len(cases) - len(failed)} passed, {len(failed)} failed")
    for name in failed:
        print(f"rtl: FAILED {block} {name}")
    if not os.environ.get("RTL_FAULT"):
        print(f"rtl: {block}: coverage: {coverage(folder)}")
    for line in notes.read_text().splitlines() if notes.exists() else ():
        facts = json.loads(line)
        rate = facts["bytes"] / facts["clocks"]
        rest = ", ".join(f"{key} {value}" for key, value in facts.items() if key not in ("block", "case", "bytes", "clocks"))
        print(f"rtl: {block}: {facts['case']}: {facts['bytes']} bytes in {facts['clocks']} clocks = {rate:.2f} bytes per clock = {rate * CLOCK_MHZ / 1000:.2f} GB/s at {CLOCK_MHZ:.0f} MHz, {rest}")
    return len(cases) - len(failed), len(failed)


def main() -> int:
    """All blocks, or those that are named."""
    blocks = sys.argv[1:] or list(BLOCKS)
    unknown = [block for block in blocks if block not in BLOCKS]
    if unknown:
        print(f"rtl: there is no block {unknown[0]}; there are {', '.join(BLOCKS)}", file=sys.stderr)
        return 2
    version = subprocess.run(["verilator", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    print(f"rtl: {version}")
    # Verilator writes many files of C++.
    os.environ.setdefault("MAKEFLAGS", f"--jobs={os.cpu_count() or 1}")
    sums = [simulate(block) for block in blocks]
    passed, failed = (sum(column) for column in zip(*sums, strict=True))
    print(f"{passed} passed, {failed} failed in 0.0s (rtl)")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
