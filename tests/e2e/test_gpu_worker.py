"""Runs whose images are made by a GPU: docs/gpu-worker.md. There is no GPU here: a library of the tests with the functions of
NVIDIA's driver (crates/gpu/tests/driver) runs the text of the kernels on the processor. The program is the one that ships."""

import json
import os
import shutil
import subprocess
import urllib.request

import h5py
import numpy as np
import pytest
import raw_files
from driving import LYSO, ROOT, lyso_raw, lyso_tables, needs_lyso, program, simulate
from ports import free_ports
from service import Service

IMAGES = 6
STRIPS = 8  # of 512 x 1024 pixels of 16 bits
LAUNCHES = 6  # of a batch: words, conversion, statistics, blocks, places, chunk


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory):
    """A folder with the libraries of driver and compiler, for LD_LIBRARY_PATH."""
    compiler = os.environ.get("CXX") or shutil.which("c++")
    if compiler is None:
        pytest.skip("needs a C++ compiler")
    folder = tmp_path_factory.mktemp("driver")
    for source, library in (("driver", "libcuda.so.1"), ("compiler", "libnvrtc.so.12")):
        options = ["-std=c++17", "-O2", "-ffp-contract=off", "-shared", "-fPIC", "-o", folder / library]
        subprocess.run([compiler, *options, ROOT / f"crates/gpu/tests/driver/{source}.cpp"], check=True)
    return folder


@pytest.fixture(scope="module")
def calibration(tmp_path_factory):
    folder = tmp_path_factory.mktemp("calibration")
    program("simulate", "jungfrau", "--to", "127.0.0.1:1", "--write-calibration", folder, check=0)
    return folder


def tables(calibration, **processing):
    files = [sorted(str(p) for p in calibration.glob(name)) for name in ("pedestal_g?.f32", "gain*.f32")]
    return {
        "detector": {"type": "jungfrau", "energy_kev": 12.4},
        "calibration": {"kind": "files", "pedestal": files[0], "gain": files[1]},
        "processing": processing,
        "run": {"images": IMAGES, "stall_timeout_s": 3, "buffer_mib": 256},
    }


def environment(folder, fails=""):
    return {**os.environ, "LD_LIBRARY_PATH": str(folder), "FAKE_DRIVER": fails}


def receive(bench, config, env, *options):
    """A run of the simulated detector: exit code, report, and what is in the file."""
    receiver = bench.receive(config, env=env)
    simulate("jungfrau", "--to", bench.to, "--rate", 60, "--images", IMAGES, "--seed", 3, *options)
    # Kernels run on the processor, which other tests use too.
    code, report = receiver.finish(timeout=180)
    assert report is not None and report["balances"], (report, receiver.errors)
    return code, report, contents(bench.master)


def contents(master):
    """The chunks of all images, and the results of their pixels."""
    with h5py.File(master) as file:
        data = file["/entry/data/data"] if "data" in file["/entry/data"] else file["/entry/data/data_000001"]
        chunks = [data.id.read_direct_chunk(data.id.get_chunk_info(n).chunk_offset)[1] for n in range(data.id.get_num_chunks())]
        results = []
        file["/entry"].visititems(
            lambda name, item: results.append((name, item[()].tobytes())) if isinstance(item, h5py.Dataset) and "results" in name else None
        )
    return chunks, results


@pytest.mark.parametrize(("dtype", "loss"), [("int16", ["--loss", "0.004"]), ("int32", [])])
def test_the_file_is_the_same_whoever_makes_the_images(bench, stand_in, calibration, dtype, loss):
    made = {}
    for workers, more in ((2, {}), ("gpu", {}), ("gpu+cpu", {"gpu_share_percent": 60, "gpu_input": "copy"})):
        config = bench.config(**tables(calibration, dtype=dtype, workers=workers, **more), output={"overwrite": "replace"})
        made[workers] = receive(bench, config, environment(stand_in), *loss)
        program("check", bench.master, check=0)
    code, report, expected = made[2]
    assert len(expected[0]) == IMAGES and report["gpu"] is None
    for workers in ("gpu", "gpu+cpu"):
        other_code, other, found = made[workers]
        assert (other_code, other["images"]) == (code, report["images"]) and found == expected
        gpu = other["gpu"]
        assert gpu["name"] == "GPU 0, driver of the tests" and gpu["warning"] is None
        assert (gpu["reads_ring"], gpu["copies_because"]) == (workers == "gpu", None)
        # Frames that are not complete are made by the processor.
        strips = STRIPS * (2 if dtype == "int32" else 1)
        of_gpu = strips if workers == "gpu" else gpu["strips"] // report["images"]["complete"]
        assert gpu["strips"] == of_gpu * report["images"]["complete"] and strips / 3 < of_gpu <= strips
        assert gpu["strips_by_processor"] == of_gpu * report["images"]["partial"]


@pytest.mark.parametrize(
    ("fails", "why"),
    [
        ("launch={}:719", "CUDA_ERROR_LAUNCH_FAILED"),
        ("launch={}:214", "look at nvidia-smi -q -d ECC, and reset or replace the device"),
        ("hang={}", "batches on their way; look at nvidia-smi and dmesg"),
    ],
)
def test_a_gpu_that_fails_in_the_run_costs_no_image(bench, stand_in, calibration, fails, why):
    config = bench.config(**tables(calibration, workers="gpu"))
    code, report, found = receive(bench, config, environment(stand_in, fails.format(4 * LAUNCHES)))
    assert (code, report["images"]["complete"]) == (0, IMAGES)
    gpu = report["gpu"]
    assert gpu["strips"] + gpu["strips_by_processor"] == STRIPS * IMAGES and gpu["strips"] > 0 and gpu["strips_by_processor"] > 0
    assert "the GPU was given up in the run, and the processor made the other images: " in gpu["warning"] and why in gpu["warning"]
    again = bench.config(**tables(calibration, workers=2), output={"overwrite": "replace"})
    assert receive(bench, again, None)[2] == found


def test_frames_are_copied_for_a_gpu_that_cannot_read_the_ring(bench, stand_in, calibration):
    found = []
    for fails in ("", "register=801"):
        config = bench.config(**tables(calibration, workers="gpu"), output={"overwrite": "replace"})
        code, report, contents_of_file = receive(bench, config, environment(stand_in, fails))
        gpu = report["gpu"]
        assert (code, gpu["reads_ring"], gpu["strips"], gpu["strips_by_processor"]) == (0, fails == "", STRIPS * IMAGES, 0)
        if fails:
            assert gpu["warning"].startswith("frames are copied for the GPU, because it cannot read the ring: registering ")
            assert "of received frames (GPU 0, driver of the tests): " in gpu["copies_because"]
        found.append(contents_of_file)
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("fails", "why", "fix"),
    [
        (None, "the library of the driver cannot be opened", "install the driver of NVIDIA"),
        ("version=12020", "the driver is for CUDA 12.2, and 12.4 is needed", "update the driver of NVIDIA to 550 or newer"),
        ("devices=0", "there are 0 devices", "look at nvidia-smi and at CUDA_VISIBLE_DEVICES"),
        ("create=46", "ERROR_DEVICE_UNAVAILABLE", "end the other program"),
        ("memory=1000000", "OUT_OF_MEMORY", "end other programs on the device"),
    ],
)
def test_without_a_gpu_the_run_is_refused_at_arm(bench, stand_in, calibration, tmp_path, fails, why, fix):
    config = bench.config(**tables(calibration, workers="gpu"))
    folder = tmp_path / "nothing" if fails is None else stand_in
    done = program("receive", config, env=environment(folder, fails or ""))
    said = done.stdout + done.stderr
    assert done.returncode not in (0, 101) and "its GPU cannot be used" in said, said
    assert why in said and fix in said and "or remove [processing] workers: the processor makes the same images" in said
    assert not bench.master.exists() or h5py.is_hdf5(bench.master)


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ({"processing": {"workers": "gpu", "summation": 2}}, "a GPU adds no frames"),
        ({"processing": {"workers": "gpu", "common_mode": "row"}}, "a GPU corrects no common_mode"),
        ({"processing": {"workers": "gpu", "dtype": "raw"}}, "words of a JUNGFRAU to photons"),
        ({"processing": {"workers": "gpu"}, "tracking": {"frames": "all", "window_frames": 10}}, "does not follow the drift"),
        ({"processing": {"workers": "gpu", "gpu_share_percent": 30}}, 'write workers = "gpu+cpu"'),
        ({"processing": {"workers": 2, "gpu_number": 1}}, "no GPU is used"),
        ({"processing": {"workers": 2, "gpu_input": "copy"}}, "no GPU is used"),
    ],
)
def test_what_a_gpu_cannot_do_is_said_by_the_check_of_the_configuration(bench, calibration, more, what):
    config = bench.config(**{**tables(calibration), **more})
    done = program("receive", config)
    assert done.returncode == 3 and what in done.stdout + done.stderr, done.stdout + done.stderr


def test_a_service_reports_the_failure_when_it_happens(stand_in, calibration, tmp_path):
    port = free_ports(1)
    text = ""
    for name, values in tables(calibration, workers="gpu").items():
        text += f"[{name}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())
    text += f'[source]\naddress = "127.0.0.1"\nfirst_port = {port}\n[output]\ndirectory = "{tmp_path}"\nprefix = "run"\n'
    (tmp_path / "serve.toml").write_text(text)
    service = Service(tmp_path / "serve.toml", environment=environment(stand_in, f"launch={3 * LAUNCHES}:719"))
    try:
        service.command("arm")
        simulate("jungfrau", "--to", f"127.0.0.1:{port}", "--rate", 60, "--images", IMAGES, "--seed", 3)
        done = service.wait(timeout_s=120)
        assert (done["state"], done["images_committed"], done["images_written"], done["images_lost"]) == ("idle", IMAGES, IMAGES, 0)
        totals = [line for line in urllib.request.urlopen(service.url + "/metrics", timeout=30).read().decode().splitlines() if "konkordia_other_total" in line and 'name="gpu_' in line]
        found = {line.split('name="')[1].split('"')[0]: float(line.split()[-1]) for line in totals}
        assert found["gpu_given_up"] == 1 and found["gpu_strips"] > 0 and found["gpu_strips_by_processor"] > 0, totals
        assert found["gpu_strips"] + found["gpu_strips_by_processor"] == STRIPS * IMAGES
        # The log has every event of this severity.
        code, log = service.end()
        assert code == 0 and log.count("the GPU was given up in the run, and the processor made the other images") == 1, log
    finally:
        service.process.kill()


@needs_lyso
@pytest.mark.parametrize(("dtype", "arithmetic"), [("int16", "float"), ("int16", "fixed"), ("float32", "float")])
def test_real_frames_have_no_other_bit(bench, stand_in, dtype, arithmetic):
    """Ten frames of lysozyme, by the processor and by the text of the kernels: the same chunks, byte by byte."""
    found = {}
    for workers in (2, "gpu"):
        config = bench.config(**lyso_tables(images=10, buffer_mib=256), processing={"dtype": dtype, "arithmetic": arithmetic, "workers": workers}, output={"overwrite": "replace"})
        receiver = bench.receive(config, env=environment(stand_in))
        simulate("jungfrau", "--to", bench.to, "--rate", 20, "--raw", *lyso_raw())
        code, report = receiver.finish(timeout=180)
        assert code == 0 and report["images"]["complete"] == 10
        found[workers] = contents(bench.master)
    strips = STRIPS * (2 if dtype == "float32" else 1)
    assert (report["gpu"]["strips"], report["gpu"]["strips_by_processor"]) == (10 * strips, 0)
    assert len(found["gpu"][0]) == 10 and found["gpu"] == found[2]


@needs_lyso
def test_files_are_converted_by_the_gpu_of_their_configuration(stand_in, tmp_path):
    """With `--workers` the processor does it; `--verify` makes every image once more with the processor."""
    words = np.stack([np.fromfile(path, "<u2").reshape(1, 512, 1024) for path in lyso_raw()])
    path = raw_files.write_sls(tmp_path, words)
    found = {}
    for name, options in (("gpu", []), ("cpu", ["--workers", "2"])):
        arguments = ["--calibration", LYSO, "--energy-kev", "12.4", "--set", "processing.workers=gpu", "--verify", "--json", *options]
        done = program("convert", path, "-o", tmp_path / name, *arguments, env=environment(stand_in), check=0, timeout=240)
        report = json.loads(done.stdout.splitlines()[-1])
        assert report["images"]["complete"] == 10 and report["verified"]["images_different"] == 0
        found[name] = contents(tmp_path / f"{name}_master.h5")
        gpu = report["gpu"]
        assert (gpu and (gpu["strips"], gpu["reads_ring"])) == ((10 * STRIPS, True) if name == "gpu" else None)
    assert len(found["gpu"][0]) == 10 and found["gpu"] == found["cpu"]
