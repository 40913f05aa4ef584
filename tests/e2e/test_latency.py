"""How long images take: in the statistics, in the metrics, and in the file."""

import re
import subprocess
import urllib.request

import h5py
import pytest
from driving import BINARY, Bench, raw_tables, simulate
from service import Stream, served_bench

bench = pytest.fixture(served_bench)

QUANTILES = {"p50": "0.5", "p99": "0.99", "p999": "0.999", "max": "1"}


def counted(statistics, stages):
    """The latencies, which count every image with pixels at each of these stages, and at no others."""
    latency, images = statistics["latency"], sum(statistics["ledger"][f"images_{state}"] for state in ("complete", "partial"))
    assert images > 0, statistics
    assert {name: count for name, count in latency.items() if name.endswith("_images")} == {f"{stage}_images": images for stage in stages}
    assert len(latency) == len(stages) * (1 + len(QUANTILES)), latency
    return latency, images


def are_in_order(latency, stages):
    """Quantiles grow with the share of the images, and from stage to stage."""
    rows = [[latency[f"{stage}_{share}_us"] for share in QUANTILES] for stage in stages]
    # Nothing takes a minute.
    assert all(0 < row[0] and row == sorted(row) and row[-1] < 60e6 for row in rows), latency
    assert all(list(column) == sorted(column) for column in zip(*rows)), latency


def latency_in(path):
    """The group of a file in the form of the statistics, and the units of its quantiles."""
    with h5py.File(path) as file:
        group = file["/entry/konkordia/latency"]
        stages, values = group["stage"].asstr()[:].tolist(), {name: group[name][:] for name in group if name != "stage"}
        units = {group[f"{share}_us"].attrs["units"] for share in QUANTILES}
    return {f"{stage}_{name}": value[n] for n, stage in enumerate(stages) for name, value in values.items()}, units


def test_latencies_of_the_images_of_a_run(bench):
    service = bench.serve()
    assert service.statistics()["latency"] == {}
    service.command("start", {"images": 40})
    bench.send(images=40, rate=400)
    service.wait()
    shown, written = ["assembled", "converted", "committed", "seen"], ["written", "durable"]
    latency, images = counted(service.statistics(), shown + written)
    are_in_order(latency, shown)
    are_in_order(latency, ["committed", *written])
    # The file is closed when all of it is on the disk, and nothing was counted since.
    assert latency_in(bench.master()) == (pytest.approx(latency), {b"us"})
    with urllib.request.urlopen(service.url + "/metrics", timeout=30) as answer:
        metrics = answer.read().decode()

    def value(family, **labels):
        found = re.findall(rf"^konkordia_{family}{{(.*)}} (.*)$", metrics, re.M)
        return next(float(value) for own, value in found if all(f'{label}="{is_}"' in own for label, is_ in labels.items()))

    for stage in shown + written:
        assert value("latency_images", stage=stage) == images
        for share, quantile in QUANTILES.items():
            us = latency[f"{stage}_{share}_us"]
            assert value("latency_microseconds", name=f"{stage}_{share}_us") == us
            assert value("latency_seconds", stage=stage, quantile=quantile) == pytest.approx(us / 1e6)
    # Without files nothing is written.
    service.command("start", {"images": 5, "write": False})
    bench.send(images=5)
    service.wait()
    counted(service.statistics(), shown)


def test_latencies_of_the_images_of_a_stream(bench):
    stream = Stream(bench)
    for run, images in ((1, 5), (2, 3)):
        stream.send(images)
        done = stream.service.until(lambda s, run=run: s["run"] == run and s["state"] == "idle")
        latency, came = counted(stream.service.statistics(), ["committed", "seen", "written", "durable"])
        assert came == images, "each series counts its own images"
        are_in_order(latency, ["committed", "written", "durable"])
        assert latency_in(done["file"]) == (pytest.approx(latency), {b"us"})


def test_the_report_of_a_run_says_how_long_its_images_took(tmp_path):
    command_line = Bench(tmp_path)
    path = command_line.config(**raw_tables(images=20))
    process = subprocess.Popen([BINARY, "receive", "--quiet", path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline().startswith("armed")
    simulate("jungfrau", "--to", command_line.to, "--modules", 1, "--images", 20, "--rate", 200)
    said, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    number = r"([0-9.]+) ms"
    line = rf"^latency   first packet to committed: p50 {number}, p99 {number}, p99\.9 {number}; to the disk: p99 {number}$"
    found = re.search(line, said, re.M)
    assert found, said
    p50, p99, p999, disk_p99 = map(float, found.groups())
    assert 0 < p50 <= p99 <= p999 and p99 <= disk_p99, found[0]
