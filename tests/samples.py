"""Sample runs of known content (tests/readers/content.py), written by the example `write_sample` of crates/sinks, or taken
from the directory KONKORDIA_SAMPLE. scripts/test says in KONKORDIA_WRITE_SAMPLE where it has built the example."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def samples(tmp_path_factory):
    if given := os.environ.get("KONKORDIA_SAMPLE"):
        return Path(given)
    # Each test process has its own samples, because a reader may open a file for writing, which locks it.
    directory = tmp_path_factory.mktemp("samples")
    build = ["cargo", "run", "-q", "--release", "-p", "konkordia-sinks", "--example", "write_sample", "--"]
    program = [built] if (built := os.environ.get("KONKORDIA_WRITE_SAMPLE")) else build
    subprocess.run([*program, "samples", str(directory)], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return directory
