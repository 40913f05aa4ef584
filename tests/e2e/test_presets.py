"""`konkordia config init --detector NAME`: each configuration is valid, and a run with the command that stands in it works."""

import json
import math
import os
import re
import shlex

import h5py
import hdf5plugin  # noqa: F401  registers the filters
import pytest
from driving import free_ports, program
from service import Service, until

IMAGES = 3
# Larger images than this are for the slow lane.
IMAGE_BYTES = 40 << 20


def presets():
    return json.loads(program("size", "--list", "--json", check=0).stdout)["detectors"]


def test_each_configuration_is_valid_and_names_its_detector(tmp_path):
    for preset in presets():
        path = tmp_path / f"{preset['name']}.toml"
        said = program("config", "init", "--detector", preset["name"], path, check=0)
        assert "konkordia config check" in said.stderr
        text = path.read_text()
        assert text.startswith(f"# {preset['name']}: {preset['description']}. {preset['rows']} x {preset['columns']} pixels")
        assert preset["source"] in text
        done = program("config", "check", path, cwd=tmp_path)
        assert done.returncode == 0 and "is valid" in done.stdout, (preset["name"], done)
    again = program("config", "init", "--detector", "jungfrau-4m", path)
    assert again.returncode != 0 and "cannot create" in again.stderr, "files are not replaced"


def test_a_detector_without_a_name():
    done = program("config", "init", "--detector", "jungfrau-5m")
    assert done.returncode == 2 and "there is no detector 'jungfrau-5m'" in done.stderr and "pilatus3-2m" in done.stderr


def test_packing_is_that_of_the_class():
    def shown(name):
        return program("config", "init", "--detector", name, check=0).stdout

    assert 'compression = "as-received"' in shown("eiger2-4m") and 'protocol = "stream2"' in shown("eiger2-4m")
    assert 'compression = "none"' in shown("orca-lightning-12m") and 'protocol = "stins"' in shown("orca-lightning-12m")
    assert 'dtype = "raw"' in shown("jungfrau-16m") and "pack badly" in shown("jungfrau-16m")


@pytest.mark.parametrize("lane", ["small", pytest.param("large", marks=pytest.mark.skipif(os.environ.get("KONKORDIA_SLOW") != "1", reason="slow lane: KONKORDIA_SLOW=1"))])
def test_a_run_of_each(tmp_path, lane):
    for preset in presets():
        if (preset["rows"] * preset["columns"] * preset["bits"] / 8 > IMAGE_BYTES) == (lane == "large"):
            run(tmp_path, preset)


def run(folder, preset):
    """Begins a run as configured, and starts the command of the configuration, slowly and with other ports."""
    name = preset["name"]
    folder = folder / name
    folder.mkdir()
    text = program("config", "init", "--detector", name, check=0).stdout
    command = shlex.split(re.search(r"^# Without the detector: konkordia (.*)$", text, re.M)[1])
    usual = int(re.search(r"127\.0\.0\.1:(\d+)", " ".join(command))[1])
    first = free_ports(preset["streams"])
    for n in range(preset["streams"]):
        text = text.replace(f"127.0.0.1:{usual + n}", f"127.0.0.1:{first + n}")
    text = text.replace(f"first_port = {usual}", f"first_port = {first}").replace('directory = "."', f'directory = "{folder}"')
    # As slow as the images come here; at its full rate arming may rightly find the disk too slow.
    text = re.sub(r"^frame_time_us = .*$", "frame_time_us = 500000", text, flags=re.M)
    path = folder / "detector.toml"
    path.write_text(text)
    command = [word.replace(f":{usual}", f":{first}") for word in command]
    if "--rate" in command:
        del command[command.index("--rate") : command.index("--rate") + 2]
    service = Service(path)
    try:
        if command[0] == "simulate":
            service.command("arm", {"images": IMAGES})
            service.command("start")
        sent = program(*command, "--images", IMAGES, "--rate", "2", timeout=120)
        assert sent.returncode == 0, (name, command, sent.stderr)
        until(lambda: service.status()["run"] == 1 and service.status()["state"] in ("idle", "error"), f"the run of {name}", timeout=60)
        status = service.status()
        assert status["severity"] == "success", (name, status, service.log)
        with h5py.File(status["file"]) as file:
            stack = file["entry/data/data"] if "data" in file["entry/data"] else file["entry/data/images"]
            assert len(stack) == IMAGES, name
            pixels = math.prod(stack.shape[1:])
            assert pixels >= preset["rows"] * preset["columns"], (name, stack.shape)
            assert stack[1].any(), name
    finally:
        service.end()
