"""Where other people's programs are, and how they are started. `scripts/peers` puts them into the folder
KONKORDIA_PEERS."""

import contextlib
import os
import pathlib
import subprocess
import sys
import time
import tomllib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent
PEERS = pathlib.Path(os.environ.get("KONKORDIA_PEERS") or pathlib.Path.home() / ".cache/konkordia-peers")
BUILD = PEERS / "build"
PYTHON = BUILD / "python/bin/python"
TABLE = tomllib.loads((HERE / "programs.toml").read_text(encoding="utf-8"))

for folder in ("tests", "tests/e2e", "tests/readers"):
    sys.path.insert(0, str(ROOT / folder))


def needs(path, why):
    """Skips the test, with the reason, where this part of a program is not on the machine."""
    return pytest.mark.skipif(not path.exists(), reason=f"{why}: {path} is not there; scripts/peers says why")


def python(code_or_file, *arguments, packages=None, timeout=120, check=True, **environment):
    """Runs Python code or a file in the environment of the peers. `packages` is a folder of packages searched first."""
    text = str(code_or_file)
    command = [PYTHON, *([text] if text.endswith(".py") else ["-c", text]), *map(str, arguments)]
    env = {**os.environ, **environment, **({"PYTHONPATH": str(packages)} if packages else {})}
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=env)
    assert not check or done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done


@contextlib.contextmanager
def running(*command, log, stdin=subprocess.DEVNULL, **options):
    """Runs a program in the background, with its output in the file `log`, until the block ends."""
    with open(log, "wb") as out:
        process = subprocess.Popen([str(part) for part in command], stdout=out, stderr=subprocess.STDOUT, stdin=stdin, **options)
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def wait_until(condition, timeout=60, what="it"):
    end = time.monotonic() + timeout
    while True:
        with contextlib.suppress(OSError):
            if found := condition():
                return found
        assert time.monotonic() < end, f"{what} did not come to pass in {timeout} s"
        time.sleep(0.05)
