"""The benches verify their own output. These tests only check that they run, report this, and write what was asked for;
no test judges a speed."""

import contextlib
import json
import os
import pathlib
import shutil
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


def test_quality_against_error_bounds(tmp_path):
    picture = tmp_path / "table3.png"
    few = ("bench", "table3", "--images", 10, "--edge", 512)
    report = json.loads(program(*few, "--json", "--png", picture, check=0).stdout)
    assert picture.read_bytes().startswith(PNG)
    rows = {row["coding"]: row for row in report["rows"]}
    assert list(rows) == ["bszstd (lossless)", *(f"sz3, bound {bound}" for bound in (0, 1, 2, 4, 8)), "spots, 1 sigma"]
    assert report["verified"] and all(row["verified"] for row in rows.values())
    lossless, *bounds, spots = rows.values()
    quality = ("low", "high", "all")
    # Without loss the intensities are the same to the last bit; a larger bound makes a smaller image and moves pixels further.
    assert all(bounds[0][shell] == lossless[shell] for shell in quality) and bounds[0]["pixels_changed_share"] == 0
    bits = [row["bits_per_pixel"] for row in bounds]
    assert bits == sorted(bits, reverse=True) and 0 < bits[-1] < bits[0] < 16
    assert [row["error_max"] for row in bounds] == [0, 1, 2, 4, 8] and spots["error_max"] > 0
    assert [row["paper"]["bits_per_pixel"] for row in bounds] == [2.3, 1.1, 0.43, 0.11, 0.042]
    assert lossless["paper"] is None and spots["paper"] is None and spots["bits_per_pixel"] <= lossless["bits_per_pixel"]
    for row in rows.values():
        assert all(row[shell]["significant"] <= row[shell]["reflections"] for shell in quality)
        assert row["all"]["reflections"] == report["reflections"] and row["low"]["correlation"] > 0.9
    # The coarsest bound loses weak reflections, and the rest agrees less.
    assert bounds[-1]["all"]["significant"] < lossless["all"]["significant"]
    assert bounds[-1]["all"]["rmeas_percent"] > lossless["all"]["rmeas_percent"]
    # A seed gives the same images, another one others.
    again, other = (json.loads(program(*few, "--json", "--seed", seed, check=0).stdout) for seed in (1, 2))
    assert again["rows"] == report["rows"] != other["rows"]
    text = program("bench", "table3", "--images", 2, "--edge", 256, check=0).stdout
    assert "Not comparable" in text and "20784/17040" in text and "11.6/13.5" in text and "within the bound" in text
    program("bench", "table3", "--images", 1, check=2)
    program("bench", "table3", "--edge", 64, check=2)


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


TRANSPORTS = ["tcp", "udp", "zmq-req", "zmq-push", "zmq-pub", "link-tcp", "link-shm"]


def are_right(rows):
    for row in rows:
        assert row["verified"] and row["lost"] == 0, row
        figures = ("latency_us", "latency_p99_us", "latency_p999_us", "messages_per_second", "gigabytes_per_second")
        assert all(is_spread(row[figure]) for figure in figures), row
        assert row["latency_us"]["median"] <= row["latency_p99_us"]["highest"] <= row["latency_p999_us"]["highest"]
        ways = {way["way"]: way["messages_per_second"] for way in row["ways"]}
        assert list(ways) == ["to and fro", "1 pair(s)", "2 pair(s)", "4 pair(s)"]
        # REQ speaks first, so nothing comes back on its own.
        assert all(is_spread(rates) for way, rates in ways.items() if way != "to and fro" or not row["name"].startswith("zmq-req"))
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
    found = [row["name"] for row in report["rows"]]
    # Behind them what this machine has of libfabric and cards; of each it is said why it has not.
    more = {name.partition(",")[0] for name in found[len(names) :]}
    assert found[: len(names)] == names and len(more) + len(report["not_measured"]) == 3
    assert all(name in ("link-libfabric-tcp", "link-libfabric-shm", "link-verbs") for name in more)
    assert all(line.startswith("not measured: link-") and line.count(": ") >= 2 for line in report["not_measured"])
    assert all(row["window"] == (1 if row["name"].startswith("zmq-req") else 2) for row in report["rows"])
    assert picture.read_bytes().startswith(PNG)
    assert {"bandwidth", "latency"} == set(report["crossovers"])
    text = program("bench", "net", "--quick", "--sizes", 64, check=0).stdout
    assert "messages/s, to and fro" in text and "device memory: not yet" in text
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


OPERATIONS = ["udp", "rdma-udp", "write", "write-imm", "send"]


@pytest.mark.alone
def test_memory_of_another_host_is_written_by_every_operation(tmp_path):
    picture = tmp_path / "rdma.png"
    report = quick("rdma", "--packets", 598, 2048, "--sizes", 1, 5000, "--png", picture)
    assert picture.read_bytes().startswith(PNG)
    assert report["verified"] and report["label"] == "software link, loopback, no card; host memory"
    kinds = ["udp", "rdma-udp", *(f"{o}{u}" for o in ("write", "write-imm", "send") for u in ("", ", iCRC not compared"))]
    names = [f"{o}, {n} bytes, {a} address(es)" for a in (1, 64) for n in (598, 2048) for o in kinds]
    assert [row["name"] for row in report["memory"]] == names
    assert all(row["verified"] and is_spread(row["make_ns"]) and is_spread(row["take_ns"]) for row in report["memory"])
    assert [row["times_roce"] for row in report["memory"] if row["name"].startswith("write, 598 bytes, 1 ")] == [1]
    assert [row["name"] for row in report["icrc"]] == [f"{n} bytes, {place}" for n in (598, 2048) for place in ("caches", "memory")]
    waits = ("events", "polling")
    names = [f"{o}, {n} bytes, {a} address(es), {w}" for a in (1, 64) for w in waits for n in (598, 2048) for o in OPERATIONS]
    assert [row["name"] for row in report["rates"]] == names
    for row in report["rates"]:
        assert row["verified"] and row["lost"] == 0 and is_spread(row["gigabits_per_second"]), row
        paper = {"send": 94.5, "write": 95.2, "write-imm": 95.2}.get(row["name"].split(",")[0]) if row["packet_bytes"] == 2048 else None
        assert row["paper_gigabits_per_second"] == paper
    sizes = report["sizes"]
    names = [f"{o}, {n} bytes, {w}" for w in waits for n in (1, 5000) for o in OPERATIONS] + ["memcpy, 1 bytes", "memcpy, 5000 bytes"]
    assert [row["name"] for row in sizes["rows"]] == names
    assert all(row["verified"] and row["lost"] == 0 and is_spread(row["gigabytes_per_second"]) for row in sizes["rows"])
    assert all(is_spread(row["latency_us"]) for row in sizes["rows"] if not row["name"].startswith("memcpy"))
    assert [c["wait"] for c in sizes["crossovers"]] == list(waits)
    assert [row["name"] for row in report["rashpa"]] == [f"RASHPA over shared memory, {n} bytes" for n in (8192, 65504)]
    for row in report["rashpa"]:
        figures = ("gigabytes_per_second", "memcpy_gigabytes_per_second", "times_memcpy")
        assert row["verified"] and all(is_spread(row[figure]) for figure in figures), row
    ladders = [f"{o}, {w}, 2048 bytes" for w in waits for o in OPERATIONS if o != "write"]
    assert [ladder["name"] for ladder in report["ladders"]] == ladders
    for ladder in report["ladders"]:
        at = {stage["name"]: stage["at_us"]["median"] for stage in ladder["stages"]}
        assert ladder["verified"] and at["call"] == 0 < at["packet made"] <= at["received"] <= at["allowed"] <= at["in its slot"] <= at["event seen"]
    assert [row["name"] for row in report["shipped"]] == ["run over UDP", "run written by RoCEv2"]
    for row in report["shipped"]:
        assert row["verified"] and row["lost"] == 0 and row["packet_bytes"] == 4096 and row["frame_bytes"] == 1 << 20, row
        assert all(is_spread(row[name]) for name in ("gigabits_per_second", "receivers_us_per_frame", "times_udp", "receivers_of_udp")), row
    assert report["shipped"][0]["times_udp"]["median"] == report["shipped"][0]["receivers_of_udp"]["median"] == 1
    steps = {step["name"]: step["gigabits_per_second"] for step in report["rate_ladder"]}
    assert steps["paper, RDMA"] == 100 and all(steps[f"ours, {o}"] > 0 for o in OPERATIONS)


@pytest.mark.alone
def test_what_the_bench_of_rdma_prints_names_its_links():
    few = ("--quick", "--packets", 598, "--sizes", 64, "--operations", "write", "rdma-udp")
    text = program("bench", "rdma", *few, check=0).stdout
    # Of the costs, the iCRC, the rates, the ladder of the rates, the sizes, the stages, what is shipped, and of RASHPA.
    assert text.count("[software link, loopback, no card; host memory]") == 8
    assert "device memory: not yet" in text and "Ponsard et al. 2020, Table 2" in text and "10.3 Gb/s" in text
    with other_end("rdma") as address:
        report = quick("rdma", "--parts", "rates", "sizes", "--to", address, *few[1:])
        assert report["verified"] and address in report["label"] and report["ladders"] == []
        assert "one clock" in program("bench", "rdma", "--parts", "ladder", "--to", address, check=2).stderr
    program("bench", "rdma", "--packets", 4097, check=2)
    assert "nothing to draw" in program("bench", "rdma", "--quick", "--parts", "icrc", "--png", "/tmp/none.png", check=2).stderr


FIXTURES = ROOT / "crates/konkordia/src/bench/import/fixtures"


def test_what_perftest_and_osu_print_stands_beside_ours(tmp_path):
    files = [FIXTURES / f"{name}.txt" for name in ("osu_latency", "osu_bw", "osu_mbw_mr", "ib_write_bw", "ib_write_lat")]
    found = json.loads(program("bench", "import", *files, "--json", check=0).stdout)["imported"]
    assert [table["name"] for table in found] == [file.name for file in files]
    assert found[0]["program"].startswith("OSU MPI Latency Test") and found[3]["program"] == "RDMA_Write BW Test"
    # MB of perftest are 2^20 bytes, those of OSU 10^6.
    assert found[3]["rows"][-1] == {
        "bytes": 65536, "gigabytes_per_second": pytest.approx(11554.28 * 2**20 / 1e9), "messages_per_second": pytest.approx(184868),
        "latency_us": None, "latency_p99_us": None, "latency_p999_us": None,
    }
    assert found[1]["rows"][-1]["gigabytes_per_second"] == pytest.approx(0.23916)

    ours = tmp_path / "net.json"
    ours.write_text(json.dumps(quick("net", "--transports", "tcp", "--sizes", 64, 65536, "--pairs", "--import", files[0])))
    text = program("bench", "import", *files, "--ours", ours, check=0).stdout
    assert "tcp" in text and "osu_latency.txt" in text and "software links, no card" in text and "us, p99.9" in text
    beside = program("bench", "net", "--quick", "--transports", "tcp", "--sizes", 64, "--import", files[1], check=0).stdout
    assert "osu_bw.txt: OSU MPI Bandwidth Test" in beside


def test_what_no_such_program_printed_is_refused(tmp_path):
    damaged = tmp_path / "damaged.txt"
    damaged.write_text((FIXTURES / "osu_bw.txt").read_text().replace("239.16", "23x"))
    refused = program("bench", "import", damaged, check=2).stderr
    assert "damaged.txt, line 19, is not imported" in refused and "no number" in refused and "osu_bibw" in refused
    empty = tmp_path / "empty.txt"
    empty.write_bytes(b"\xff\x00 nothing")
    assert "no head of a table" in program("bench", "import", empty, check=2).stderr
    program("bench", "import", tmp_path / "none.txt", check=6)
    assert "no figures of ours" in program("bench", "import", FIXTURES / "osu_bw.txt", "--ours", empty, check=2).stderr
    program("bench", "net", "--quick", "--import", damaged, check=2)


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


def test_without_a_gpu_the_bench_says_why_and_has_no_rows():
    report = quick("gpu")
    if report["device"] is not None:
        assert report["verified"] and len(report["rows"]) == 30 and report["transfers"]
        return
    assert report["verified"] is None and report["rows"] == [] and report["cause"] in ("NoDriver", "NoDevice", "DriverTooOld", "NoCompiler")
    text = program("bench", "gpu", "--quick", check=0).stdout
    assert text.startswith("bench gpu: nothing was measured: ") and report["why"] in text


def test_trains_are_built_right():
    report = quick("trains")
    assert [row["model"] for row in report["rows"]] == ["lpd", "dssc", "agipd"]
    assert report["verified"] and all(row["gigabytes_per_second_per_core"] > 0 for row in report["rows"])
    assert "calng" in program("bench", "trains", "--quick", check=0).stdout


def test_a_graph_beside_plain_zeromq(tmp_path):
    picture = tmp_path / "processes.png"
    report = quick("graph", "--png", picture)
    assert [(edge["transport"], edge["bytes"]) for edge in report["edges"]] == [("ipc", 1 << 20), ("ipc", 64), ("tcp", 1 << 20), ("tcp", 64)]
    assert all(edge["graph_of_plain"]["median"] > 0 for edge in report["edges"])
    assert [row["workers"] for row in report["scaling"]] == [1, 2] and all(row["images_per_second"] > 0 for row in report["scaling"])
    assert [(row["fault"], row["times"], row["lost"], row["taken_twice"]) for row in report["faults"]] == [("killed", 2, 0, 0), ("stopped", 2, 0, 0)]
    assert report["verified"] and picture.read_bytes().startswith(PNG)


def hdf5(*arguments, check=0):
    few = ["--mib", 1, "--repeats", 1, "--sizes", 64, 100, "--compression", "bslz4", "gzip,level=3", "--writers", 2]
    return program("bench", "hdf5", *few, *arguments, check=check)


def test_hdf5_beside_plain_write(tmp_path):
    folders, picture = [tmp_path / "a", tmp_path / "b"], tmp_path / "hdf5.png"
    report = json.loads(hdf5("--dir", *folders, "--noise-bits", 0, 4, "--png", picture, "--json").stdout)
    assert report["verified"] and picture.read_bytes().startswith(PNG)
    assert [[row["edge_pixels"] for row in target["plain"]] for target in report["targets"]] == [[64, 100]] * 2
    assert report["plain"] == report["targets"][0]["plain"] and all(row["verified"] and row["hdf5_of_write"] > 0 for row in report["plain"])
    # Both are on one file system; the second has a name of its own.
    kinds, names = ([of(target) for target in report["targets"]] for of in (lambda t: t["place"]["file_system"], lambda t: t["name"]))
    assert names == [kinds[0], f"{kinds[0]} 2"] and kinds[0] != "unknown"
    ways = [row["name"] for row in report["memory"]["rows"]]
    assert ways[0] == "plain write" and sum("H5FD_CORE" in way for way in ways) == 2 and all(row["verified"] for row in report["memory"]["rows"])
    packed = {row["name"]: row for row in report["compressed"]}
    assert set(packed) == {f"{codec}, {bits} bit of noise, {n}" for codec in ("bslz4", "gzip,level=3") for bits in (0, 4) for n in ("1 thread", "2 threads")}
    assert all(packed[f"{codec}, 0 bit of noise, 1 thread"]["bits_per_pixel"] < 1 for codec in ("bslz4", "gzip,level=3"))
    assert packed["bslz4, 4 bit of noise, 1 thread"]["bits_per_pixel"] == packed["bslz4, 4 bit of noise, 2 threads"]["bits_per_pixel"] > 4
    assert all(row["verified"] and is_spread(row["image_write_ms"]) and is_spread(row["image_chunk_bytes"]) for row in packed.values())
    chunks = report["one_chunk"]
    assert [row["name"] for row in chunks] == [f"{pixel}, {n}" for pixel in ("uint16", "int32") for n in ("1 thread", "2 threads")]
    assert chunks[0]["chunk_bytes"] == chunks[1]["chunk_bytes"] and all(row["verified"] for row in chunks)
    assert [row["writers"] for row in report["parallel"]] == [2]
    assert not any(list(folder.iterdir()) for folder in folders), "files are left behind"


def test_hdf5_says_what_the_note_says_and_what_a_folder_lacks(tmp_path):
    text = hdf5("--dir", tmp_path, "--threads", 1, "--noise-bits").stdout
    for said in ("frame size matters only on network storage", "H5FD_CORE is no better", "note's", "STREAM copies", str(tmp_path)):
        assert said in text, said
    assert "compression beats the device" not in text, "the table of noise was left out"
    # The old name, for scripts.
    assert "HDF5 / write" in program("bench", "disk", "--mib", 1, "--repeats", 1, "--sizes", 64, "--threads", 1, "--noise-bits", "--writers", check=0).stdout
    full = program("bench", "hdf5", "--dir", tmp_path, "--mib", 1 << 24, check=2).stderr
    assert "has no room for this bench" in full and "are lacking" in full and "--mib" in full, full
    assert not list(tmp_path.iterdir())
    assert "png" in hdf5("--png", tmp_path / "a.pdf", check=2).stderr
    assert "choose one of" in program("bench", "hdf5", "--compression", "zip", check=2).stderr


def has_sshfs():
    where = os.environ["PATH"] + ":/usr/sbin"
    programs = all(shutil.which(name, path=where) for name in ("sshfs", "sshd", "ssh-keygen", "nsenter", "fusermount3"))
    return programs and os.geteuid() == 0 and os.path.exists("/dev/fuse")


@pytest.mark.alone
@pytest.mark.skipif(not has_sshfs(), reason="needs root rights, sshfs, sshd and FUSE")
def test_hdf5_on_a_network_file_system_of_its_own(tmp_path):
    few = ["--mib", "1", "--repeats", "1", "--sizes", "64", "512", "--noise-bits", "0", "--compression", "bslz4", "--threads", "1", "--writers", "1"]
    script = [sys.executable, ROOT / "benches/hdf5_targets.py", BINARY, "--disk", tmp_path, *few]
    done = subprocess.run(script, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["verified"] and "stand-in" in report["network"]
    assert [target["place"]["network"] for target in report["targets"]] == [False, False, True]
    assert [target["name"] for target in report["targets"]][1:] == ["tmpfs", "fuse.sshfs"] and not list(tmp_path.iterdir())
    assert "fuse.sshfs" not in pathlib.Path("/proc/self/mountinfo").read_text()


def script(name, *more):
    """What a bench of benches/ prints."""
    done = subprocess.run([sys.executable, ROOT / "benches" / name, *map(str, more)], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_an_archive_beside_repack(tmp_path):
    report = script("archive.py", BINARY, "--copies", 1, "--repeats", 1, "--folder", tmp_path)
    assert report["verified"] and report["source_bytes"] > 0 and set(report["archive_of"]) == {"repack", "repack_verified"}
    assert all(seconds > 0 for seconds in report["seconds"].values()) and not list(tmp_path.iterdir())


def test_the_lysozyme_measurement_in_small(tmp_path):
    report = script("lysozyme.py", BINARY, "--rate", 100, "--dark-s", 1.5, "--beam-s", 1, "--folder", tmp_path)
    assert report["verified"] and not list(tmp_path.iterdir())
    images = {name: case["images"] for name, case in report["cases"].items()}
    assert images == {"every frame": 100, "sums of 5": 20}, report
