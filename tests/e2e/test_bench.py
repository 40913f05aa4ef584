"""The benches verify their own output. These tests only check that they run, report this, and write what was asked for;
no test judges a speed."""

import contextlib
import json
import subprocess
import sys

import numpy as np
import pytest
from driving import BINARY, ROOT, free_ports, program


def run(which, *more):
    return json.loads(program("bench", which, "--seconds", "0.01", "--json", *more, check=0).stdout)


def quick(which, *more, check=0):
    return json.loads(program("bench", which, "--quick", "--json", *more, check=check).stdout)


def is_spread(figure):
    return 0 < figure["lowest"] <= figure["median"] <= figure["highest"]


PNG = b"\x89PNG\r\n\x1a\n"


def test_memory_by_stream(tmp_path):
    picture = tmp_path / "mem.png"
    report = quick("mem", "--threads", 1, 3, "--png", picture)
    assert picture.read_bytes().startswith(PNG)
    assert report["verified"] and all(row["verified"] and is_spread(row["gigabytes_per_second"]) for row in report["rows"])
    operations = ["copy", "scale", "add", "triad"]
    assert [row["name"] for row in report["rows"]] == [f"{what}, {n}" for n in ("1 thread", "3 threads") for what in operations]
    assert [level["name"] for level in report["levels"]] == ["L1", "L2", "L3", "memory"]
    sizes = [level["buffer_bytes"] for level in report["levels"]]
    assert sizes == sorted(sizes) and all(is_spread(level["copy_gigabytes_per_second"]) for level in report["levels"])
    assert "310 GB/s" in program("bench", "mem", "--quick", "--threads", 1, check=0).stdout
    assert "too large" in program("bench", "mem", "--mib", 1 << 24, check=2).stderr


def test_a_recorded_run_is_compared(tmp_path):
    record = tmp_path / "mem.json"
    report = quick("mem", "--threads", 1)
    report["rows"][0]["gigabytes_per_second"]["median"] = 1e9
    record.write_text(json.dumps(report))
    compared = quick("mem", "--threads", 1, "--compare", record)["compared"]
    rows = {row["figure"]: row for row in compared["rows"]}
    changed = rows["rows.copy; 1 thread.gigabytes_per_second.median"]
    assert changed["recorded"] == 1e9 and changed["ratio"] == changed["now"] / 1e9 and 0 < changed["now"] < 1e9
    assert compared["same"] > 0 and (compared["only_recorded"], compared["only_now"]) == (0, 0)

    flat = subprocess.run([sys.executable, ROOT / "scripts/flatten-json"], input=record.read_text(), capture_output=True, text=True, check=True)
    table = tmp_path / "record.csv"
    lines = [f"abc,now,memory,{line}" for line in flat.stdout.splitlines()]
    table.write_text("\n".join(["commit,time,bench,figure,value", *lines]))
    refused = program("bench", "mem", "--quick", "--compare", table, check=2).stderr
    assert "no call of mem" in refused and "it has memory" in refused
    by_name = quick("mem", "--threads", 1, "--compare", f"{table}:memory")["compared"]
    assert (by_name["only_recorded"], by_name["only_now"]) == (0, 0), by_name
    assert "compared with" in program("bench", "mem", "--quick", "--compare", record, check=0).stdout
    program("bench", "mem", "--quick", "--compare", tmp_path / "none.json", check=6)


def test_kernels_and_steps():
    report = run("kernels")
    assert report["verified"]
    for part in ("rows", "steps", "double_pixels", "codecs"):
        assert report[part] and all(row["verified"] and row["gigabytes_raw_per_second"] > 0 for row in report[part])


def test_the_steps_of_a_block():
    few = ("blocks", "--blocks", 8, "--repeats", 2)
    report = json.loads(program("bench", *few, "--json", check=0).stdout)
    assert report["verified"] and all(row["verified"] and is_spread(row["nanoseconds_per_block"]) for row in report["rows"])
    isas = list(dict.fromkeys(row["instruction_set"] for row in report["rows"]))
    assert isas[0] == "scalar" and isas[-1] == report["machine"]["instruction_set"]
    steps = ["convert", "stats", "bitshuffle", "lz4", "fused"]
    assert [(row["instruction_set"], row["step"]) for row in report["rows"]] == [(isa, step) for isa in isas for step in steps]
    one = program("bench", *few, "--isa", "scalar", "--step", "lz4", check=0).stdout
    assert "time-stamp counter" in one and one.count("equal") == 1
    program("bench", "blocks", "--isa", "sse", check=2)
    program("bench", "blocks", "--blocks", 0, check=2)


def test_sizes_of_a_block():
    report = run("blocksize")
    sizes = [1 << kib << 10 for kib in range(8)]
    expected = [(codec, encoder, size) for codec in ("bslz4", "bszstd") for encoder in ("own", "library") for size in sizes]
    assert [(row["codec"], row["encoder"], row["block_bytes"]) for row in report["rows"]] == expected
    assert report["verified"] and all(row["verified"] and is_spread(row["gigabytes_per_second"]) for row in report["rows"])
    assert all(0 < row["bits_per_pixel"] < 16 for row in report["rows"])


def test_bits_per_pixel_against_rounding():
    rows = run("table2")["bits_per_pixel"]
    assert [row["rounding_photons"] for row in rows] == [0.125, 0.25, 0.5, 1, 2, 4, 8]
    for codec in ("bslz4", "bszstd"):
        bits = [row[codec] for row in rows]
        assert bits == sorted(bits, reverse=True) and 0 < bits[-1] < bits[0] < 16
    assert all(row["verified"] for row in rows)


def test_writing_rates():
    rows = run("table4")["writing"]
    assert [row["codec"] for row in rows] == ["none", "lz4", "bslz4", "zstd", "bszstd", "gzip"]
    assert all(row["verified"] and row["images_per_second"] > 0 for row in rows)
    assert rows[0]["bits_per_pixel"] == 16


ANALYSIS = ["peakfinder8", "dispersion", "azimuthal", "azimuthal-variance", "azimuthal-split", "azimuthal-split-variance"]
ANALYSIS += ["above", "sparse", "above-in-cache", "sparse-in-cache", "regions", "everything"]


def test_analysis_gives_the_same_with_every_instruction_set():
    report = quick("analysis")
    rows = report["rows"]
    assert report["verified"] and (report["image_rows"], report["image_columns"]) == (514, 1030)
    assert min(report["spots"].values()) > 5 and 0 < report["share_above"] < 0.1 and report["usable_share"] == 1
    assert list(dict.fromkeys(row["work"] for row in rows)) == ANALYSIS
    isas = {kind: [row["instruction_set"] for row in rows if (row["work"], row["pixels"]) == ("peakfinder8", kind)] for kind in ("int32", "uint16", "float32")}
    assert isas["int32"] == isas["uint16"] and isas["int32"][0] == "scalar" and isas["float32"] == isas["int32"][-1:]
    for row in rows:
        assert row["verified"] and is_spread(row["nanoseconds_per_pixel"]) and row["bytes_per_pixel"] >= 2, row
        assert (row["memory_alone_nanoseconds_per_pixel"] is None) == row["work"].endswith("in-cache") and row["memory_alone_nanoseconds_per_pixel"] != 0
    goals = {(row["work"], row["pixels"]): row["goal_nanoseconds_per_pixel"] for row in rows}
    assert [goals[work, "int32"] for work in ANALYSIS[:8]] == [3, 4, 1.5, None, 2.5, None, None, None]
    reading = {(of["from"], of["pixels"]): of["nanoseconds_per_pixel"] for of in report["reading"]}
    assert abs(goals["above-in-cache", "uint16"] / (1.3 * reading["second cache", "uint16"]["median"]) - 1) < 1e-9
    assert set(reading) == {(place, kind) for place in ("second cache", "memory") for kind in isas} and all(map(is_spread, reading.values()))
    text = program("bench", "analysis", "--quick", "--work", "azimuthal", "--isa", "scalar", check=0).stdout
    assert "memory alone" in text and "reached" in text and "equal" in text and "peakfinder8 " not in text.split("work")[-1]
    help_text = " ".join(program("bench", "analysis", "--help", check=0).stdout.split())
    assert "13.5 to 14.7 ns per pixel" in help_text and "10.0 to 10.5" in help_text and "5.5 to 6.6" in help_text



def test_images_of_a_run_are_analysed_too(tmp_path):
    recipe = ROOT / "benches/everything.toml"
    attempt = ["pipeline", "--modules", 1, "--rate", 10, "--seconds", 2, "--analysis", recipe, "--analysis-workers", 1, "--json"]
    [result] = json.loads(program("bench", *attempt, timeout=120, check=0).stdout)["results"]
    [found] = result["attempts"]
    counts = found["analysis"]
    assert (found["images"], found["complete"], counts["analysed"], counts["hits"]) == (20, 20, 20, 20), found
    assert result["best_hz"] is not None and "analyse" in {row["role"] for row in found["threads"]}
    missing = program("bench", "pipeline", "--rate", 10, "--analysis", tmp_path / "no.toml", check=6)
    assert "no.toml" in missing.stderr


def test_analysis_of_the_first_image_of_a_file(tmp_path):
    fabio = pytest.importorskip("fabio")
    rows, columns = 100, 120
    pixels = np.random.default_rng(5).poisson(3, (rows, columns)).astype(np.int32)
    pixels[20:22, 30:32] += 200
    pixels[:, 60] = -1
    text = "# Wavelength 1.0 A\n# Detector_distance 0.1 m\n# Pixel_size 172e-6 m x 172e-6 m\n"
    for name, beam in (("whole.cbf", "# Beam_xy (61.0, 50.0) pixels\n"), ("nowhere.cbf", "")):
        fabio.cbfimage.CbfImage(data=pixels, header={"_array_data.header_contents": text + beam}).write(str(tmp_path / name))
    report = quick("analysis", "--image", tmp_path / "whole.cbf")
    assert report["verified"] and (report["image_rows"], report["image_columns"]) == (rows, columns)
    assert report["spots"] == {"peakfinder8": 1, "dispersion": 1} and "first image of" in report["image"]
    assert round(report["share_above"] * rows * columns) == (pixels > 10).sum()
    assert "the beam centre is not known" in program("bench", "analysis", "--quick", "--image", tmp_path / "nowhere.cbf", check=2).stderr


def test_roofline_draws_and_repeats_the_figures_of_the_paper(tmp_path):
    picture = tmp_path / "roofline.png"
    report = run("roofline", "--png", picture)
    assert report["verified"] and all(row["verified"] for row in report["rows"])
    needs = {need["name"]: need["gigabytes_per_second"] for need in report["needs"] if need["paper"]}
    assert sorted(round(value) for value in needs.values()) == [129, 166, 646, 830]
    # Two operations for each of 4.6e9 pixels per second.
    assert round(report["needs"][0]["gigaflops"]) == 9
    assert [roof["name"] for roof in report["roofs"]] == ["L1", "L2", "L3", "memory"]
    assert all(is_spread(figure["spread"]) for part in ("roofs", "peaks", "rows") for figure in report[part])
    names = {row["name"] for row in report["rows"]}
    for what in ("all branches", "G0 fast path", "with tracking", "fused with bitshuffle, LZ4"):
        assert report["machine"]["instruction_set"] == "scalar" or f"{what}, strip by strip" in names, names
    for row in report["rows"]:
        limit, after = row["limit"], row["next_limit"]
        assert limit["gigapixels_per_second"] <= after["gigapixels_per_second"] and limit["reached"] >= after["reached"] > 0
    assert picture.read_bytes().startswith(PNG)
    refused = program("bench", "roofline", "--png", tmp_path / "roofline.pdf", check=2)
    assert "PNG" in refused.stderr


@contextlib.contextmanager
def other_end(which):
    """The address at which a bench of the network listens in a process of its own."""
    command = [BINARY, "bench", which, "--listen", "127.0.0.1:0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield json.loads(process.stdout.readline())["address"]
        finally:
            process.kill()


PAPER_SOCKET_TUNED_VMA = {2048: (7.2, 10.9, 26.7), 4096: (9.1, 22.8, 51.2), 8240: (9.8, 36.7, 77.0)}


@pytest.mark.alone
def test_datagrams_that_are_lost_are_searched_for(tmp_path):
    picture = tmp_path / "udp.png"
    report = quick("udp", "--sizes", 2048, 8240, "--buffers", 1, 16, "--png", picture)
    assert picture.read_bytes().startswith(PNG)
    assert report["verified"] and report["network"].startswith("loopback") and "34.5 Gb/s with 48 % lost" in report["others"]
    rows = report["rows"]
    waits = ("blocking", "polling")
    assert [row["name"] for row in rows] == [f"{n} bytes, {b} buffer(s), socket, {w}" for w in waits for b in (1, 16) for n in (2048, 8240)]
    other = quick("udp", "--sizes", 4096, "--buffers", 1, "--backend", "recv")
    assert other["verified"] and [row["name"] for row in other["rows"]] == [f"4096 bytes, 1 buffer(s), recv, {w}" for w in waits]
    # At least the first attempt of each repeat; more where it lost packets.
    assert report["attempts"] >= len(rows) * report["repeats"]
    for row in rows + other["rows"]:
        unpaced, lost = row["unpaced_gigabits_per_second"], row["unpaced_lost"]
        assert row["verified"] and is_spread(unpaced) and 0 <= lost["lowest"] <= lost["highest"] < 1, row
        drops, free = row["drops_from_gigabits_per_second"], row["loss_free_gigabits_per_second"]
        assert (drops["median"] is not None) == (lost["highest"] > 0), row
        assert drops["median"] is None or drops["highest"] <= unpaced["highest"]
        assert free["median"] is None or is_spread(free)
        paper = row["paper_gigabits_per_second"]
        if row["buffers"] == 1:
            assert (paper["socket"], paper["tuned_kernel"], paper["vma"]) == PAPER_SOCKET_TUNED_VMA[row["packet_bytes"]]
        else:
            assert paper is None


@pytest.mark.alone
def test_datagrams_between_two_programs():
    arguments = ("--sizes", 4096, "--buffers", 1, "--wait", "blocking")
    with other_end("udp") as address:
        for _ in range(2):
            report = quick("udp", "--to", address, *arguments)
            assert report["verified"] and report["network"] == address and report["rows"][0]["unpaced_gigabits_per_second"]["median"] > 0
        # The other end outlives an order that it cannot carry out.
        refused = program("bench", "udp", "--to", address, "--sizes", 65507, "--buffers", 10_000_000, "--packets", 1, check=6).stderr
        assert "no memory for the buffers" in refused and "fewer --buffers" in refused
        text = program("bench", "udp", "--quick", "--to", address, *arguments, check=0).stdout
        assert f"network: {address}" in text and "9.1, 22.8, 51.2" in text and "Ponsard" in text


def test_ends_that_cannot_work_together():
    port = free_ports()
    assert "cannot be reached" in program("bench", "udp", "--quick", "--to", f"127.0.0.1:{port}", check=4).stderr
    program("bench", "udp", "--to", "127.0.0.1:1", "--listen", "127.0.0.1:0", check=2)
    program("bench", "udp", "--sizes", 16, check=2)
    assert "cannot listen" in program("bench", "udp", "--listen", "192.0.2.1:7", check=6).stderr


TRANSPORTS = ["tcp", "udp", "zmq-req", "zmq-push", "zmq-pub"]


def are_right(rows):
    for row in rows:
        assert row["verified"] and row["lost"] == 0, row
        figures = ("latency_us", "latency_p99_us", "messages_per_second", "gigabytes_per_second")
        assert all(is_spread(row[figure]) for figure in figures), row
        assert row["latency_us"]["median"] <= row["latency_p99_us"]["highest"]
        product = row["messages_per_second"]["median"] * row["bytes"] / 1e9
        assert abs(product / row["gigabytes_per_second"]["median"] - 1) < 1e-9
    return True


@pytest.mark.alone
def test_messages_over_every_transport(tmp_path):
    picture = tmp_path / "net.png"
    report = quick("net", "--sizes", 1, 8, 65507, 65508, "--window", 2, "--png", picture)
    assert report["verified"] and report["network"].startswith("loopback") and are_right(report["rows"])
    # A datagram cannot be longer.
    names = [f"{name}, {n} bytes" for name in TRANSPORTS for n in (1, 8, 65507, 65508) if (name, n) != ("udp", 65508)]
    assert [row["name"] for row in report["rows"]] == names
    assert all(row["window"] == (1 if row["name"].startswith("zmq-req") else 2) for row in report["rows"])
    assert picture.read_bytes().startswith(PNG)
    text = program("bench", "net", "--quick", "--sizes", 64, check=0).stdout
    assert "latency, us" in text and "GB/s" in text and "all messages that came were right" in text and "Ponsard" in text


@pytest.mark.alone
def test_messages_between_two_programs():
    with other_end("net") as address:
        for transports in (TRANSPORTS, ["zmq-pub"]):
            report = quick("net", "--to", address, "--sizes", 1000, "--window", 4, "--transports", *transports)
            assert report["network"] == address and [row["name"] for row in report["rows"]] == [f"{t}, 1000 bytes" for t in transports]
            assert report["verified"] and are_right(report["rows"])
        # Another bench at this end.
        assert "do not fit" in program("bench", "udp", "--quick", "--to", address, check=6).stderr


@pytest.mark.alone
def test_a_long_run_is_looked_at_over_time(tmp_path):
    picture = tmp_path / "soak.png"
    report = quick("soak", "--rate", 20, "--png", picture)
    assert report["run"]["images"] == 60 and report["run"]["lossless"] and report["loss_free"] and report["verified"]
    # A few seconds say nothing about memory.
    assert report["memory_is_flat"] is None and report["highest_loss_free_hz"] is None
    samples = report["samples"]
    assert len(samples) >= 5 and all(s["resident_bytes"] > 0 and s["not_complete"] == 0 for s in samples)
    for figure in ("seconds", "committed"):
        values = [s[figure] for s in samples]
        assert values == sorted(values) and values[-1] > 0, figure
    assert samples[-1]["committed"] <= 60
    for stage in ("committed_latency", "written_latency"):
        of_images = [s[stage] for s in samples if s[stage]]
        assert of_images and all(0 < at["p50_ns"] <= at["p99_ns"] <= at["p999_ns"] <= at["max_ns"] for at in of_images), of_images
    assert picture.read_bytes().startswith(PNG)
    text = program("bench", "soak", "--quick", "--rate", 20, check=0).stdout
    assert "nothing was lost: 60 images" in text and "too short to judge" in text
    for wrong in (("--fraction", 3), ("--rate", 0), ("--minutes", "nan")):
        program("bench", "soak", *wrong, check=2)


def test_trains_are_built_right():
    report = quick("trains")
    assert [row["model"] for row in report["rows"]] == ["lpd", "dssc", "agipd"]
    assert report["verified"] and all(row["gigabytes_per_second_per_core"] > 0 for row in report["rows"])
    assert "calng" in program("bench", "trains", "--quick", check=0).stdout
