"""The results of every image (valid, missing and saturated pixels, range and sum): the same numbers in the file, in the
messages to consumers, over HTTP and in the metrics, and those that numpy finds in the pixels."""

import json
import math
import urllib.request

import cbor2
import h5py
import numpy as np
import pytest
import zmq

from driving import MISSING, SATURATED, Bench as ReceiveBench, Master, free_ports, program, simulate
from service import Service, write_config

NAMES = ["valid_pixels", "missing_pixels", "saturated_pixels", "min_value", "max_value", "sum_value"]
INVALID = {"int16": -32767, "int32": -(2**31) + 1, "uint16": 65533, "uint32": 2**32 - 3}
MASKED = {"int16": -32768, "int32": -(2**31), "uint16": 65534, "uint32": 2**32 - 2}
IMAGES = 12


def counted(pixels):
    """The results of one image, by numpy."""
    if pixels.dtype == np.float32:
        valid = pixels[np.isfinite(pixels) & (pixels >= -np.finfo(np.float32).max / 2)].astype(np.float64)
        missing, saturated = np.isneginf(pixels).sum(), np.isposinf(pixels).sum()
    else:
        name = pixels.dtype.name
        missing, saturated = (pixels == MISSING[name]).sum(), (pixels == SATURATED[name]).sum()
        valid = pixels[~np.isin(pixels, [table[name] for table in (MISSING, SATURATED, INVALID, MASKED)])].astype(np.int64)
    return dict(zip(NAMES, [valid.size, missing, saturated, valid.min(), valid.max(), valid.sum()], strict=True))


def same(found, expected):
    """Integers are exact; a sum of floats depends on its order."""
    return set(found) == set(expected) and all(math.isclose(found[name], expected[name], rel_tol=1e-9) for name in NAMES)


def calibration(folder):
    program("simulate", "jungfrau", "--to", "127.0.0.1:1", "--write-calibration", folder, check=0)
    lists = {"pedestal": "pedestal_g?.f32", "gain": "gain*.f32"}
    return {"kind": "files", **{key: sorted(str(p) for p in folder.glob(pattern)) for key, pattern in lists.items()}}


@pytest.mark.parametrize("dtype", ["int16", "int32", "uint16", "uint32", "float32"])
@pytest.mark.parametrize("summation", [1, 3])
def test_columns_are_what_numpy_counts(tmp_path, dtype, summation):
    bench = ReceiveBench(tmp_path)
    tables = {
        "detector": {"type": "jungfrau", "energy_kev": 12.4},
        "calibration": calibration(tmp_path),
        "processing": {"dtype": dtype, "summation": summation, "workers": 2},
        "run": {"images": IMAGES // summation, "stall_timeout_s": 3},
    }
    receiver = bench.receive(bench.config(**tables))
    simulate("jungfrau", "--to", bench.to, "--rate", 100, "--images", IMAGES, "--loss", 0.01)
    _, report = receiver.finish()
    assert report is not None and report["balances"], receiver.errors
    master = Master(bench.master)
    assert report["images"]["partial"] > 0, "some packets were lost"
    float_names = NAMES[3:] if dtype == "float32" else []
    for name in NAMES:
        expected = np.uint64 if name.endswith("_pixels") else np.float64 if name in float_names else np.int64
        assert master.columns[name].dtype == expected, name
    for number, pixels in enumerate(master.images):
        found = {name: master.columns[name][number].item() for name in NAMES}
        if master.columns["status"][number] in (1, 2):
            assert same(found, counted(pixels)), (number, found, counted(pixels))
        else:
            assert not any(found.values())
    program("check", bench.master, check=0)


def test_raw_words_have_no_results(tmp_path):
    bench = ReceiveBench(tmp_path)
    receiver = bench.receive(bench.config(detector={"type": "jungfrau"}, processing={"dtype": "raw"}, run={"images": 3}))
    simulate("jungfrau", "--to", bench.to, "--rate", 50, "--images", 3)
    receiver.finish()
    assert not set(NAMES) & set(Master(bench.master).columns)


def test_repack_and_repair_keep_them(tmp_path):
    bench = ReceiveBench(tmp_path)
    receiver = bench.receive(bench.config(detector={"type": "eiger", "bits": 16}, streams=4, run={"images": 5}))
    simulate("eiger", "--to", bench.to, "--bits", 16, "--rate", 50, "--images", 5)
    receiver.finish()
    before = Master(bench.master)
    assert before.columns["sum_value"].all()
    program("repack", bench.master, "-o", tmp_path / "again", "--compression", "zstd", check=0)
    again = tmp_path / "again_master.h5"
    bench.master.unlink()
    program("repair", tmp_path / "run_data_000001.h5", check=None)
    for other in (Master(again), Master(bench.master)):
        for name in NAMES:
            assert (other.columns[name] == before.columns[name]).all() and other.columns[name].dtype == before.columns[name].dtype


def test_consumers_http_and_metrics_have_the_numbers_of_the_file(tmp_path):
    kinds = ["stins", "stream2", "sls"]
    first = free_ports(len(kinds))
    ports = dict(zip(kinds, range(first, first + len(kinds)), strict=True))
    streams = "".join(
        f'\n[[stream]]\nname = "{kind}"\nprotocol = "{kind}"\naddress = "tcp://127.0.0.1:{port}"\n' for kind, port in ports.items()
    )
    detectors = free_ports(4)
    config = write_config(tmp_path, detectors, extra=streams, run={"images": 3})
    service = Service(config)
    context = zmq.Context()
    takers = {}
    for kind, port in ports.items():
        takers[kind] = context.socket(zmq.PULL)
        takers[kind].rcvtimeo = 10_000
        takers[kind].connect(f"tcp://127.0.0.1:{port}")
    try:
        service.consumers_connect()
        service.command("start")
        program("simulate", "eiger", "--to", f"127.0.0.1:{detectors}", "--bits", 8, "--images", 3, "--rate", 20, "-q", check=0)
        service.wait()
        with h5py.File(tmp_path / "run_000001_master.h5") as file:
            columns = file["/entry/konkordia/images"]
            stored = [{name: columns[name][n].item() for name in NAMES} for n in range(3)]
            data = file["/entry/data"]
            images = data[data.attrs["signal"]][()]
        assert all(same(results, counted(image)) for results, image in zip(stored, images, strict=True))
        takers["stins"].recv_multipart()
        takers["stream2"].recv()
        for results in stored:
            of_stins = json.loads(takers["stins"].recv_multipart()[0])
            assert {name: of_stins[name] for name in NAMES} == results
            assert cbor2.loads(takers["stream2"].recv())["user_data"] == results
            added = json.loads(takers["sls"].recv_multipart()[0])["addJsonHeader"]
            assert {name: int(added[name]) for name in NAMES} == results
        assert service.request("GET", "images/latest", format="json")["results"] == stored[-1]
        with urllib.request.urlopen(f"{service.url}/metrics") as answer:
            metrics = answer.read().decode()
        detector = service.status()["detector"]
        for name, value in stored[-1].items():
            assert f'konkordia_newest_image{{detector="{detector}",result="{name}"}} {float(value)}\n' in metrics, metrics
    finally:
        context.destroy(linger=0)
        service.end()
