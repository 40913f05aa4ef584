"""Sample runs of known content (tests/readers/content.py), written by the example `write_sample` of crates/sinks, or taken
from the directory KONKORDIA_SAMPLE."""

import os
import subprocess
from pathlib import Path

import pytest
from examples_of_ours import example


@pytest.fixture(scope="session")
def samples(tmp_path_factory):
    if given := os.environ.get("KONKORDIA_SAMPLE"):
        return Path(given)
    # Each test process has its own samples, because a reader may open a file for writing, which locks it.
    directory = tmp_path_factory.mktemp("samples")
    subprocess.run([example("konkordia-sinks", "write_sample"), "samples", str(directory)], check=True, stdout=subprocess.DEVNULL)
    return directory
