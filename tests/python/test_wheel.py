"""The wheel in an environment of its own, as users install it."""

import os
import subprocess
import venv
from pathlib import Path

from driving import BINARY
from lanes import slow_lane

ROOT = Path(__file__).resolve().parents[2]


@slow_lane
def test_the_wheel_works_in_a_clean_environment(tmp_path):
    subprocess.run([ROOT / "scripts/python", "--wheel", tmp_path / "wheels"], check=True, capture_output=True, timeout=1800)
    (wheel,) = (tmp_path / "wheels").iterdir()
    assert "abi3" in wheel.name and wheel.name.startswith("konkordia-")
    venv.create(tmp_path / "environment", with_pip=True)
    python = tmp_path / "environment/bin/python"
    subprocess.run([python, "-m", "pip", "install", "-q", wheel], check=True, timeout=600)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    code = "import konkordia, numpy as np; a = np.arange(99, dtype='uint16'); print((konkordia.decompress(konkordia.compress(a), a.shape, a.dtype) == a).all())"
    done = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.stdout == "True\n"
    names = subprocess.run([python, "-m", "pip", "show", "-f", "konkordia"], check=True, capture_output=True, text=True).stdout
    assert "konkordia/py.typed" in names and "konkordia/_native.pyi" in names
    # The program is on PATH, the same as the built one.
    said = subprocess.run([python.with_name("konkordia"), "version"], check=True, capture_output=True, text=True, env=environment)
    assert said.stdout == subprocess.run([BINARY, "version"], check=True, capture_output=True, text=True).stdout
    subprocess.run([python.with_name("konkordia"), "config", "init", tmp_path / "run.toml"], check=True, capture_output=True)
    subprocess.run([python.with_name("konkordia-cluster"), "--help"], check=True, capture_output=True)
