"""Sample runs of known content (content.py in tests/readers): written by the example `write_sample`, or taken from the directory KONKORDIA_SAMPLE."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def samples(tmp_path_factory):
    if given := os.environ.get("KONKORDIA_SAMPLE"):
        return Path(given)
    # Of several processes that share the tests each has samples of its own: a reader may open them for writing, which locks them.
    directory = tmp_path_factory.mktemp("samples")
    command = ["cargo", "run", "-q", "--release", "-p", "konkordia-sinks", "--example", "write_sample", "--", "samples", str(directory)]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return directory
