"""Figures of speed and size: README and docs/ say what stands in benches/record/, and nothing else."""

import importlib.machinery
import importlib.util
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
loader = importlib.machinery.SourceFileLoader("figures", str(ROOT / "scripts/figures"))
figures = importlib.util.module_from_spec(importlib.util.spec_from_loader("figures", loader))
loader.exec_module(figures)

MEASURED = re.compile(r"\b[0-9][0-9 .,±]*\s?(GB/s|MB/s|images/s|Hz|MB resident|% of a core)|\b[0-9.]+ (x|of) (plain|the peer)")
# What a detector does, not what this program does.
GIVEN = re.compile(r"1\.1 kHz|1100 Hz")


def without_tables(text):
    return re.sub(r"<!-- figures:(?!end)(\S+) -->.*?<!-- figures:end \1 -->|```.*?```", "", text, flags=re.S)


def test_the_tables_are_those_of_the_records():
    done = subprocess.run([sys.executable, "scripts/figures", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", ["README.md", "docs/performance.md"])
def test_no_figure_stands_outside_of_the_tables(page):
    text = without_tables((ROOT / page).read_text())
    assert "figures:" not in text, "a marker is left open"
    found = [match[0] for match in MEASURED.finditer(GIVEN.sub("", text))]
    assert found == [], f"{page}: put these into benches/figures.toml, with a record"


def test_a_figure_outside_of_the_tables_is_seen():
    for text in ("reaches 2.41 GB/s", "84 ± 3 images/s", "1795 Hz", "540 MB resident", "0.9 % of a core", "1.5 of the peer"):
        assert MEASURED.search(text), text


def test_every_row_names_a_record_that_exists_with_these_values():
    """Read from the pages as they are, not by the program that wrote them."""
    rows = 0
    for page in ("README.md", "docs/performance.md", "docs/compression.md"):
        text = (ROOT / page).read_text()
        for table in re.findall(r"<!-- figures:(?!end)\S+ -->\n(.*?)\n<!-- figures:end", text, re.S):
            for line in table.splitlines()[2:]:
                rows += 1
                links = re.findall(r"`([^`]+)` at \[([0-9a-f]+(?:-changed)?)\]\(([^)]+)\)", line)
                if not links:
                    assert re.search(r"none yet: `scripts/record [a-z0-9-]+` \|$", line) and not MEASURED.search(line), line
                    continue
                values = []
                for bench, commit, link in links:
                    record = (ROOT / page).parent / link
                    values += [v for c, _, b, _, v in map(lambda row: row.split(","), record.read_text().splitlines()) if (c, b) == (commit, bench)]
                assert values, f"{page}: no record for {links}"
    assert rows > 40


def test_a_peer_is_named_with_its_machine():
    text = (ROOT / "docs/performance.md").read_text()
    heads = [line for line in text.splitlines() if line.startswith("|") and "of the peer" in line]
    assert len(heads) == 2 and all("AMD EPYC" in line for line in heads), heads


def test_a_changed_record_changes_the_page(tmp_path):
    for name in ("README.md", "docs", "benches"):
        source = ROOT / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, tmp_path / name)
    record = tmp_path / "benches/record/amd-epyc-2-cores/2026-11-21.csv"
    record.write_text(record.read_text() .replace(",pipeline-60s,results.0.attempts.0.complete,66000", ",pipeline-60s,results.0.attempts.0.complete,65999"))
    before, after = figures.with_tables(tmp_path)["README.md"]
    assert "66000 of 66000" in before and "65999 of 66000" in after
    # A newer call of the bench that lacks figures of the row: no record, and none of the old one.
    record.write_text(record.read_text() + "abcdef0,2026-11-22T00:00:00Z,pipeline-60s,results.0.attempts.0.complete,123\n")
    _, after = figures.with_tables(tmp_path)["README.md"]
    assert "none yet: `scripts/record pipeline-60s`" in after and " of 66000" not in after


def test_old_curl_is_enough_for_every_line_that_people_type():
    pages = [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("crates/konkordia/src/**/*.rs"), *ROOT.glob("deploy/**/*")]
    typed = [f"{page.name}: {line}" for page in pages if page.is_file() for line in page.read_text(errors="replace").splitlines() if "curl" in line]
    assert len(typed) > 5
    # --json came with curl 7.82, --fail-with-body with 7.76; Debian 11 and RHEL 8 and 9 have older ones.
    assert [line for line in typed if re.search(r"curl .*(--json|--fail-with-body)", line)] == []
