"""The notebooks of docs/notebooks run from top to bottom: their code as a program in the short lane, and as notebooks, by
Jupyter's own kernel in an environment of its own, in the slow lane."""

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from driving import BINARY
from lanes import slow_lane

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "docs/notebooks").glob("*.ipynb"))


def environment(folder):
    ours = os.pathsep.join([str(ROOT / "python"), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": ours, "KONKORDIA_BIN": BINARY, "MPLBACKEND": "agg", "TMPDIR": str(folder)}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_code_of_a_notebook_runs(path, tmp_path):
    if "dask" in path.stem:
        pytest.importorskip("dask")
    cells = json.loads(path.read_text())["cells"]
    # Not as a file: processes that Dask starts would run the file once more.
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env=environment(tmp_path), cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_kept_without_outputs(path):
    cells = json.loads(path.read_text())["cells"]
    assert path.stat().st_size < 20_000 and cells[0]["cell_type"] == "markdown"
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells if cell["cell_type"] == "code")


@slow_lane
def test_jupyter_executes_them(tmp_path):
    venv.create(tmp_path / "environment", with_pip=True)
    python = tmp_path / "environment/bin/python"
    packages = ["nbclient", "ipykernel", "dask", "matplotlib", "numpy", "httpx", "pyzmq", "tqdm", "ipywidgets"]
    subprocess.run([python, "-m", "pip", "install", "-q", *packages], check=True, timeout=600)
    code = "import sys, nbformat, nbclient; book = nbformat.read(sys.argv[1], 4); nbclient.NotebookClient(book, timeout=60).execute()"
    own = {name: value for name, value in environment(tmp_path).items() if name != "MPLBACKEND"}
    for path in NOTEBOOKS:
        done = subprocess.run([python, "-c", code, path], capture_output=True, text=True, timeout=120, env=own, cwd=tmp_path)
        assert done.returncode == 0, (path.name, done.stdout + done.stderr)
