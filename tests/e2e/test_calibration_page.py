"""Runs the commands of docs/calibration.md in their order."""

import os
import re
import subprocess
import sys

import numpy as np
from driving import BINARY, ROOT, Master, free_ports

PAGE = ROOT / "docs" / "calibration.md"


def blocks():
    text = PAGE.read_text()
    return re.findall(r"```(toml|bash)\n(.*?)```", text, re.S)


def test_the_page_works_as_it_is_written(tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "konkordia").symlink_to(BINARY)
    environment = {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    port = free_ports()
    waiting, outputs = None, {}
    for kind, block in blocks():
        block = block.replace("50010", str(port))
        if kind == "toml":
            if "[detector]" in block:
                (tmp_path / "run.toml").write_text(block)
            continue
        options = {"cwd": tmp_path, "env": environment, "text": True}
        if re.match(r"konkordia (receive|pedestal run\.toml)", block):
            # This command waits for the detector, which the next block starts.
            waiting = subprocess.Popen(["bash", "-ec", block], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)
            lines = []
            while not lines or "armed" not in lines[-1]:
                lines.append(waiting.stdout.readline())
                assert lines[-1], f"{block}\n{''.join(lines)}"
            continue
        done = subprocess.run(["bash", "-ec", block], capture_output=True, timeout=120, **options)
        assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
        outputs[block.split("\n")[0]] = done.stdout
        if waiting is not None:
            out, _ = waiting.communicate(timeout=60)
            assert waiting.returncode == 0, out
            waiting = None
    print(*outputs.values(), sep="\n", file=sys.stderr)
    assert "refused: these frames are not dark" in "".join(outputs.values())
    assert not (tmp_path / "lit.h5").exists()
    pictures = sorted(p.name for p in (tmp_path / "pictures").iterdir())
    assert pictures == ["cal_g0_cell03.png", "cal_g1_cell03.png", "cal_g2_cell03.png", "cal_gain.png"]
    # The live run and its conversion have the same pixels.
    images = []
    for name in ("lyso", "again"):
        images.append(Master(tmp_path / f"{name}_master.h5").images)
    assert images[0].shape[0] == 100 and np.array_equal(*images)
    assert 0 < np.median(images[0][0][images[0][0] > 0]) < 10
