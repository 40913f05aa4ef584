"""Calls the plug-ins through which XDS reads HDF5 files as XDS does: plugin_open, plugin_get_header, plugin_get_data,
plugin_close.

`read` opens each file in a separate process, so that a crash of a plug-in is a result for that file and does not end
the tests. It runs this file as a program (`xds_plugin.py PLUGIN FOLDER FILE...`), which loads neither h5py nor anything
else that holds an HDF5 library.
"""

import ctypes
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass

import numpy as np

# A plug-in that has not finished a file after this time is taken to hang.
TIMEOUT_S = 60


@dataclass
class Reading:
    """What a plug-in read from a file."""

    file: str
    signal: int | None
    """Number of the signal that ended the plug-in, if one did; 0 = it did not answer in time."""
    exit_code: int
    """Exit code of the process. Not 0 if the plug-in called exit, which would end XDS, or if this program failed."""
    stage: str
    """The step that it reached: "open", "header", "image N" or "done"."""
    error: int
    """Code that the plug-in gave at that stage; 0 = none."""
    header: dict
    images: np.ndarray | None
    """images x rows x columns, int32, as XDS gets them; those read before an error."""
    said: str
    """What it printed."""

    @property
    def is_whole(self):
        return not self.has_crashed and self.stage == "done" and self.error == 0

    @property
    def has_crashed(self):
        return self.signal is not None or self.exit_code != 0


def read(plugin, files, frames=None):
    """Reads each file with the plug-in: every image, or only those (from 1) that `frames` names for the file."""
    files = [str(file) for file in files]
    with tempfile.TemporaryDirectory() as folder:
        asked = {str(file): list(numbers) for file, numbers in (frames or {}).items()}
        pathlib.Path(folder, "frames.json").write_text(json.dumps(asked))
        command = [sys.executable, __file__, str(plugin), folder, *files]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return [_reading(pathlib.Path(folder), n, file) for n, file in enumerate(files)]


def _reading(folder, n, file):
    ended = json.loads((folder / f"{n}.ended").read_text())
    steps = [json.loads(line) for line in (folder / f"{n}.steps").read_text().splitlines()]
    header = next((step["header"] for step in steps if "header" in step), {})
    last = steps[-1] if steps else {"stage": "open", "error": 0}
    images = folder / f"{n}.images"
    pixels = None
    if header.get("nx") and header.get("ny") and images.exists():
        pixels = np.fromfile(images, np.int32).reshape(-1, header["ny"], header["nx"])
    said = (folder / f"{n}.said").read_text(errors="replace")
    return Reading(file, ended["signal"], ended["exit_code"], last["stage"], last["error"], header, pixels, said)


def _call(plugin, file, folder, n, asked):
    """Reads one file from beginning to end. Records each step before taking it, which shows the step of a crash."""
    library = ctypes.CDLL(plugin)
    info, error, integer, real = (ctypes.c_int * 1024)(), ctypes.c_int(0), ctypes.c_int, ctypes.c_float
    at = ctypes.byref
    with open(folder / f"{n}.steps", "w", buffering=1) as steps, open(folder / f"{n}.images", "wb") as out:

        def step(stage, **more):
            steps.write(json.dumps({"stage": stage, "error": error.value, **more}) + "\n")
            return error.value == 0

        step("open")
        library.plugin_open(file.encode(), info, at(error))
        if not step("open"):
            return
        nx, ny, nbytes, frames, qx, qy = integer(0), integer(0), integer(0), integer(0), real(0), real(0)
        step("header")
        library.plugin_get_header(at(nx), at(ny), at(nbytes), at(qx), at(qy), at(frames), info, at(error))
        header = {"nx": nx.value, "ny": ny.value, "nbytes": nbytes.value, "qx": qx.value, "qy": qy.value, "frames": frames.value}
        if not step("header", header=header):
            return
        for number in asked if asked is not None else range(1, frames.value + 1):
            # No plug-in gives this value, so it marks the pixels that the plug-in did not write.
            pixels = np.full((ny.value, nx.value), -(2**30), np.int32)
            step(f"image {number}")
            library.plugin_get_data(
                at(integer(number)), at(nx), at(ny), pixels.ctypes.data_as(ctypes.POINTER(integer)), info, at(error)
            )
            if not step(f"image {number}"):
                return
            out.write(pixels.tobytes())
            out.flush()
        library.plugin_close(at(error))
        step("done")


def _main(plugin, folder, files):
    folder = pathlib.Path(folder)
    asked = json.loads((folder / "frames.json").read_text())
    for n, file in enumerate(files):
        (folder / f"{n}.steps").touch()
        child = os.fork()
        if child == 0:
            said = os.open(folder / f"{n}.said", os.O_WRONLY | os.O_CREAT)
            os.dup2(said, 1)
            os.dup2(said, 2)
            code = 1
            try:
                _call(plugin, file, folder, n, asked.get(file))
                code = 0
            finally:
                sys.stdout.flush()
                # Skips the library's clean-up at exit. XDS does not wait for it either.
                os._exit(code)
        end = time.monotonic() + TIMEOUT_S
        gone, status = os.waitpid(child, os.WNOHANG)
        while not gone and time.monotonic() < end:
            time.sleep(0.002)
            gone, status = os.waitpid(child, os.WNOHANG)
        if not gone:
            os.kill(child, 9)
            os.waitpid(child, 0)
            signal, exit_code = 0, 0
        else:
            signal = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
            exit_code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 0
        (folder / f"{n}.ended").write_text(json.dumps({"signal": signal, "exit_code": exit_code}))


if __name__ == "__main__":
    _main(sys.argv[1], sys.argv[2], sys.argv[3:])
