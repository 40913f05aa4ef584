"""Records which program each test is about and how it ended, for the matrix in README (`scripts/peers`)."""

import json
import os

import pytest
import programs  # noqa: F401  puts our other tests on the path
from samples import samples  # noqa: F401  a fixture

NAMES = ["neggia", "durin"]


def pytest_configure(config):
    config.addinivalue_line("markers", "peer(name): the program that this test runs, as it is called in programs.toml")


@pytest.fixture(autouse=True, scope="session")
def the_program_is_built():
    from driving import BINARY

    if not os.access(BINARY, os.X_OK):
        pytest.exit(f"{BINARY} is not there: cargo build --release, or say where it is in KONKORDIA_BIN", returncode=3)


def programs_of(item):
    """Programs that a test is about: those of its marker, or the plug-in of its parameter."""
    marked = [mark.args[0] for mark in item.iter_markers("peer")]
    return marked or [name for name in NAMES if name in item.nodeid]


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    path = os.environ.get("KONKORDIA_PEERS_RESULTS")
    if not path or not (report.when == "call" or report.outcome != "passed" or report.skipped) or (report.when != "call" and report.passed):
        return
    why = report.longrepr[2].removeprefix("Skipped: ") if report.skipped and isinstance(report.longrepr, tuple) else ""
    for name in programs_of(item):
        test = {"program": name, "test": item.nodeid, "title": (item.function.__doc__ or "").strip().split("\n")[0]}
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps({**test, "result": report.outcome, "why": why}) + "\n")
