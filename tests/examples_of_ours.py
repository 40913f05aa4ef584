"""Programs in `crates/*/examples`, which `make test` builds with the Rust tests."""

import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[1]


def example(crate, name):
    """The path of the built program. It is built here only if it is not there."""
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    program = target / "release" / "examples" / name
    if not program.is_file():
        command = f". scripts/rust-path && cargo build --release -q -p {crate} --example {name}"
        done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, timeout=1800)
        assert done.returncode == 0, f"{command}\n{done.stderr[-4000:]}"
    return program
