"""README's table of other people's programs shows the last run of `make test-peers`."""

import csv
import datetime
import pathlib
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[2]
MATRIX = ROOT / "tests/peers/matrix.csv"


def rows():
    with open(MATRIX, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_the_table_is_that_of_the_last_run():
    done = subprocess.run([sys.executable, "scripts/peers", "--render", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_program_has_a_version_a_result_and_a_date():
    programs = tomllib.loads((ROOT / "tests/peers/programs.toml").read_text(encoding="utf-8"))["program"]
    assert [program["name"] for program in programs] == list(dict.fromkeys(row["program"] for row in rows()))
    for row in rows():
        assert row["result"] in ("passed", "failed", "skipped", "not had") and row["version"], row
        assert datetime.date.fromisoformat(row["date"]) <= datetime.datetime.now(datetime.UTC).date() + datetime.timedelta(days=1)
        assert row["test"] or row["why"], row


def test_what_was_shown_names_tests_that_exist():
    for row in rows():
        if row["test"]:
            path, name = row["test"].split("::")[0], row["test"].split("::")[-1].split("[")[0]
            assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8"), row["test"]


def test_sources_are_pinned():
    for program in tomllib.loads((ROOT / "tests/peers/programs.toml").read_text(encoding="utf-8"))["program"]:
        if program["from"] == "source":
            assert len(program["commit"]) == 40 and program["repository"].startswith("https://") and program["licence"]
        if program["from"] in ("pypi", "npm"):
            assert all("@" in package or "==" in package for package in program["packages"]), program["name"]
