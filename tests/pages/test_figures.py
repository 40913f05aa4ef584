"""Figures of speed and size: README and docs/ state those in benches/record/ and no others."""

import pathlib
import re
import subprocess
import sys
import tomllib

import pytest
from scripts_of_ours import script

ROOT = pathlib.Path(__file__).resolve().parents[2]
figures = script("figures")

MEASURED = re.compile(r"\b[0-9][0-9 .,±]*\s?(GB/s|MB/s|images/s|Hz|MB resident|% of a core)|\b[0-9.]+ (x|of) (plain|the peer)")
# Rates of a detector, not of this program.
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


def recorded(page, line):
    """{bench: {figure: value}} of the records that a row links to, the last call of each bench at that commit."""
    found = {}
    for bench, commit, link in re.findall(r"`([^`]+)` at \[([0-9a-f]+(?:-changed)?)\]\(([^)]+)\)", line):
        lines = [row.split(",") for row in ((ROOT / page).parent / link).read_text().splitlines()]
        calls = [row for row in lines if (row[0], row[2]) == (commit, bench)]
        assert calls, f"{page}: no record of {bench} at {commit} in {link}"
        found[bench] = {figure: value for _, time, _, figure, value in calls if time == calls[-1][1]}
    return found


def numbers_that_differ(template, cell, records):
    """Compares the numbers of a cell with the records, as its template in benches/figures.toml says."""
    shape = re.split(r"\{([^{}]+)\}", template)
    match = re.fullmatch("(.+)".join(map(re.escape, shape[::2])), cell)
    assert match, f"{cell} has not the form {template}"
    for said, number in zip(shape[1::2], match.groups()):
        bench, figure, scale = re.fullmatch(r"([^:]+):(.+?)(?:\*([0-9.e-]+))?(?::[.,0-9]*[dfeg])?", said).groups()
        # Compares to the printed precision, also for numbers with an exponent.
        digits = len(number.partition("e")[0].partition(".")[2])
        step = 10.0 ** (int(number.partition("e")[2] or 0) - digits)
        value = float(records[bench][figure]) * float(scale or 1)
        if abs(value - float(number)) > 0.5001 * step:
            yield f"{said}: {number}, recorded {value}"


def test_every_number_of_a_row_is_that_of_the_record_that_it_names():
    """Reads the pages independently of `scripts/figures`, which wrote them."""
    rows = 0
    for table in tomllib.loads((ROOT / "benches/figures.toml").read_text())["table"]:
        page = table["page"]
        [text] = re.findall(f"<!-- figures:{table['name']} -->\n(.*?)\n<!-- figures:end", (ROOT / page).read_text(), re.S)
        lines = text.splitlines()[2:]
        assert len(lines) == len(table["rows"])
        for line, templates in zip(lines, table["rows"]):
            rows += 1
            if "none yet" in line:
                assert re.search(r"none yet: `scripts/record [a-z0-9-]+` \|$", line) and not MEASURED.search(line), line
                continue
            records, cells = recorded(page, line), line.strip("|").split("|")
            wrong = [w for template, cell in zip(templates, cells) for w in numbers_that_differ(template, cell.strip(), records)]
            assert wrong == [], f"{page}: {line}"
    assert rows > 40


def test_a_number_that_differs_from_its_record_is_found():
    records = {"a": {"b:c.rate": "2.4051", "share": "-0.00123"}}
    assert list(numbers_that_differ("{a:b:c.rate} GB/s", "2.41 GB/s", records)) == []
    assert list(numbers_that_differ("{a:b:c.rate*1e3:.0f} MB/s, {a:share:.0e}", "2405 MB/s, -1e-03", records)) == []
    assert len(list(numbers_that_differ("{a:b:c.rate} GB/s", "2.42 GB/s", records))) == 1


def test_a_peer_is_named_with_its_machine():
    text = (ROOT / "docs/performance.md").read_text()
    heads = [line for line in text.splitlines() if line.startswith("|") and "of the peer" in line]
    assert len(heads) == 1 and all("AMD EPYC" in line for line in heads), heads


def test_a_changed_record_changes_the_page(tmp_path):
    folder = tmp_path / "benches/record/a-machine"
    folder.mkdir(parents=True)
    (tmp_path / "README.md").write_text("# A\n<!-- figures:t -->\nnothing\n<!-- figures:end t -->\nend\n")
    table = '[[table]]\npage = "README.md"\nname = "t"\nmachine = "a-machine"\nhead = ["run", "figure"]\n'
    (tmp_path / "benches/figures.toml").write_text(table + 'rows = [["x", "{speed:good:.0f} of {speed:all*2:.1f}"]]\n')
    record = folder / "2026-11-21.csv"

    def rendered(*lines):
        with open(record, "a" if record.exists() else "w") as out:
            out.writelines(f"{line}\n" for line in lines)
        return figures.with_tables(tmp_path)["README.md"][1].splitlines()[4]

    head = "commit,time,bench,figure,value"
    first = rendered(head, "abc,2026-11-21T01:00:00Z,speed,good,65", "abc,2026-11-21T01:00:00Z,speed,all,66")
    assert first == "| x | 65 of 132.0 | `speed` at [abc](benches/record/a-machine/2026-11-21.csv) |"
    again = rendered("abc,2026-11-21T02:00:00Z,speed,good,64", "abc,2026-11-21T02:00:00Z,speed,all,66")
    assert again == first.replace("65", "64")
    # A newer call at the same commit lacks a figure of the row: the row has no record, and does not show the old call.
    assert rendered("abc,2026-11-21T03:00:00Z,speed,good,63") == "| x |  | none yet: `scripts/record speed` |"


def test_old_curl_is_enough_for_every_line_that_people_type():
    pages = [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("crates/*/src/**/*.rs"), *ROOT.glob("deploy/**/*")]
    typed = [f"{page.name}: {line}" for page in pages if page.is_file() for line in page.read_text(errors="replace").splitlines() if "curl" in line]
    assert len(typed) > 5
    # --json came with curl 7.82, --fail-with-body with 7.76; Debian 11 and RHEL 8 and 9 have older ones.
    assert [line for line in typed if re.search(r"curl .*(--json|--fail-with-body)", line)] == []
