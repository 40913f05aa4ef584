"""docs/sizing.md: its tables are what the program prints, and the figures that the program carries are recorded."""

import csv
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/sizing.md"
PROGRAM = pathlib.Path(os.environ.get("KONKORDIA_BIN", ROOT / "target/release/konkordia"))


def check(page, tmp_path, program=PROGRAM):
    """Runs `scripts/sizing --check` on a copy of the page."""
    for folder in ("scripts", "docs"):
        (tmp_path / folder).mkdir(exist_ok=True)
    (tmp_path / "scripts/sizing").write_text((ROOT / "scripts/sizing").read_text())
    (tmp_path / "docs/sizing.md").write_text(page)
    environment = {**os.environ, "KONKORDIA_BIN": str(program)}
    return subprocess.run([sys.executable, tmp_path / "scripts/sizing", "--check"], env=environment, capture_output=True, text=True)


def test_the_tables_are_what_the_program_prints(tmp_path):
    page = PAGE.read_text()
    blocks = re.findall(r"<!-- size: (.*?) -->\n(.*?)<!-- size:end -->", page, re.S)
    assert len(blocks) >= 8 and all(table.count("\n|") > 3 for _, table in blocks)
    done = check(page, tmp_path)
    assert done.returncode == 0, done.stderr


def test_a_changed_number_is_found(tmp_path):
    page = PAGE.read_text()
    changed = page.replace("| pixels from the detector | 46.14 GB/s |", "| pixels from the detector | 46.15 GB/s |", 1)
    assert changed != page
    done = check(changed, tmp_path)
    assert done.returncode != 0 and "scripts/sizing" in done.stderr


def test_the_figures_that_the_program_carries_are_recorded():
    """Reads the records independently of `scripts/figures`, which wrote the file."""
    with open(ROOT / "crates/konkordia/src/size/figures.csv", newline="", encoding="utf-8") as lines:
        carried = list(csv.DictReader(lines))
    assert len(carried) > 20
    recorded = set()
    for path in (ROOT / "benches/record").glob("*/*.csv"):
        recorded |= {f"{path.parent.name},{line}" for line in path.read_text().splitlines()}
    for row in carried:
        assert ",".join(row.values()) in recorded, row


def test_every_number_with_a_machine_stands_beside_it():
    """A figure of one core is never shown without its record and machine."""
    machines = {path.name for path in (ROOT / "benches/record").iterdir()}
    rows = [line for line in PAGE.read_text().splitlines() if "GB/s per core" in line]
    assert len(rows) > 4
    for row in rows:
        assert re.search(r"`[a-z0-9-]+` at [0-9a-f]{7}", row) and any(machine in row for machine in machines), row
