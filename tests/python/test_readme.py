"""The Python example of README, as it stands there, against the demo that it names."""

import os
import re
import subprocess
import sys

from driving import ROOT, demo_service


def test_the_example_of_the_readme_runs(tmp_path):
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"## In Python\n.*?```python\n(.*?)```", page, flags=re.DOTALL)
    assert "images=1000" in code and "http://127.0.0.1:8090" in code
    with demo_service(tmp_path, 200) as url:
        code = code.replace("images=1000", "images=100").replace("http://127.0.0.1:8090", url)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=60, env=os.environ | {"PYTHONPATH": str(ROOT / "python")})
    assert done.returncode == 0, done.stderr
    *frames, message, images = done.stdout.splitlines()
    assert int(frames[-1].split()[0]) == 99, frames
    assert message.endswith("100 of 100 images complete"), message
    assert "100 images of 512 x 1024 pixels, int16" in images, images
