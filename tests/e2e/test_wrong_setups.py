"""Detectors whose set-up differs from the configuration: the exit code, and the first sentence that the user reads.

The table in docs/troubleshooting.md is made from this list: KONKORDIA_PRINT=1 prints it, and a test compares the two.
"""

import functools
import json
import os
import re
import socket
import subprocess
import time

import h5py
import numpy as np
import pytest
import zmq
from driving import BINARY, ROOT, balanced, free_ports, program, raw_tables, simulate
from raw_files import packet_header
from service import Service, free_port, write_config

PRINT = os.environ.get("KONKORDIA_PRINT") == "1"
EIGER_PACKETS = {4: 16, 8: 32, 12: 48, 16: 64, 32: 128}
FRAMES = 12


def eiger(bits=16, modules=1, **more):
    return {"detector": {"type": "eiger", "bits": bits, "modules": modules, "detector_distance_mm": 100.0, "energy_kev": 12.4, **more}}


def jungfrau(modules=1, interfaces=1, **more):
    tables = raw_tables(modules, interfaces)
    tables["detector"].update(more)
    return tables


header = functools.partial(packet_header, module=7)
# A detector sends from one address and port throughout.
DETECTOR = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)


def send(port, frames=range(1, FRAMES + 1), packets=range(128), payload=8192, streams=1, **about):
    """Sends frames some milliseconds apart to one port, or the same frames to several. The pause is long enough for a
    busy kernel, whose backlog holds a thousand packets."""
    for frame in frames:
        for packet in packets:
            for n in range(streams):
                DETECTOR.sendto(header(frame, packet, **about) + bytes(payload), ("127.0.0.1", port + n))
        time.sleep(0.005)


def send_eiger(bench, bits, payload=4096, per_packet=1, frames=range(1, FRAMES + 1)):
    for frame in frames:
        for n in range(4):
            about = {"kind": 1, "row": n // 2, "column": n % 2}
            send(bench.port + n, [frame], range(EIGER_PACKETS[bits] * per_packet), payload, **about)


def send_modules(bench, ports, **more):
    """Sends the JUNGFRAU port of header row `n` to the n-th of `ports` (0 = first of the receiver), frame by frame."""
    for frame in range(1, FRAMES + 1):
        for row, port in enumerate(ports):
            send(bench.port + port, [frame], row=row, module=10 + row, **more)


def noise(bench):
    rng = np.random.default_rng(1)
    for frame in range(1, FRAMES + 1):
        send(bench.port, [frame], range(16), payload=333, kind=int(rng.integers(100, 200)), version=77)
        send(bench.port, [frame])


def cut(bench):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        for frame in range(1, FRAMES + 1):
            for packet in range(128):
                s.sendto((header(frame, packet) + bytes(8192))[:1472], ("127.0.0.1", bench.port))


def pedestals(bench, modules):
    """A calibration of constant planes in plain files for `modules` modules."""
    paths = []
    for name, value in (("g0", 3000.0), ("g1", 15000.0), ("g2", 15000.0), ("gain0", 40.0), ("gain1", -1.5), ("gain2", -0.1)):
        np.full((modules * 512, 1024), value, "<f4").tofile(bench.folder / f"{name}.f32")
        paths.append(str(bench.folder / f"{name}.f32"))
    joined = bench.folder / "gain.f32"
    joined.write_bytes(b"".join(open(path, "rb").read() for path in paths[3:]))
    return {"kind": "files", "pedestal": paths[:3], "gain": str(joined)}


def other_calibration(bench):
    tables = jungfrau(modules=2)
    del tables["processing"]
    return tables | {"calibration": pedestals(bench, 1)}


NOTHING = lambda bench: None  # noqa: E731

# Name: what the detector does, what is configured, tables, streams, what is sent, exit code, first sentence.
SETUPS = {
    "eiger_more_bits": (
        "EIGER, 32 bit", "`bits = 16`", eiger(16), 4, lambda b: send_eiger(b, 32), 7,
        "wrong set-up: the detector sends 128 packets per frame and port on all streams, which is bits = 32; [detector] bits is 16",
    ),
    "eiger_fewer_bits": (
        "EIGER, 16 bit", "`bits = 32`", eiger(32), 4, lambda b: send_eiger(b, 16), 7,
        "wrong set-up: the detector sends 64 packets per frame and port on all streams, which is bits = 16, or rows = 128; [detector] bits is 32, and rows 256",
    ),
    "jungfrau_two_interfaces": (
        "JUNGFRAU, 2 interfaces", "`interfaces = 1`", jungfrau(), 1,
        lambda b: send(b.port, packets=range(64), streams=2), 7,
        "wrong set-up: the detector sends 64 packets per frame and port, which is half a module: interfaces = 2; [detector] interfaces is 1",
    ),
    "jungfrau_one_interface": (
        "2 modules JUNGFRAU, 1 interface each", "`interfaces = 2`", jungfrau(1, 2), 2, lambda b: send_modules(b, [0, 1]), 7,
        "wrong set-up: the detector sends 128 packets per frame and port on all streams, which is a whole module: interfaces = 1; [detector] interfaces is 2",
    ),
    "eiger_for_jungfrau": (
        "EIGER", "`type = \"jungfrau\"`", jungfrau(), 1, lambda b: send_eiger(b, 16), 7,
        'wrong set-up: the packets are those of an SLS detector of type EIGER, and [detector] type is "jungfrau"',
    ),
    "jungfrau_for_eiger": (
        "JUNGFRAU", "`type = \"eiger\"`", eiger(), 4, lambda b: send(b.port), 7,
        'wrong set-up: the packets on udp://ADDRESS are those of an SLS detector of type JUNGFRAU, and [detector] type is "eiger"',
    ),
    "too_few_modules": (
        "2 modules", "`modules = 1`", jungfrau(), 1, lambda b: send_modules(b, [0, 1]), 0,
        "N datagrams came to ports of this machine on which nobody listens: compare [source] first_port, [detector] modules and interfaces with the detector",
    ),
    "too_many_modules": (
        "1 module", "`modules = 2`", jungfrau(2), 2, lambda b: send(b.port), 1,
        "wrong set-up: no packets arrive on udp://ADDRESS, although other streams receive frames",
    ),
    "swapped_ports": (
        "2 modules, cables or ports exchanged", "`modules = 2`", jungfrau(2), 2, lambda b: send_modules(b, [1, 0]), 1,
        "wrong set-up: modules are in another order than the ports on udp://ADDRESS: row 0, column 0 of module 10 comes after row 1, column 0 of module 11",
    ),
    "swapped_in_a_preset": (
        "2 modules, cables or ports exchanged", "`geometry = \"jungfrau-1m\"`", jungfrau(2, geometry="jungfrau-1m"), 2,
        lambda b: send_modules(b, [1, 0]), 1,
        "wrong set-up: another module than expected sends on udp://ADDRESS: row 1, column 0 of module 11 instead of row 0, column 0",
    ),
    "same_module_twice": (
        "the same module on two ports", "`modules = 2`", jungfrau(2), 2, lambda b: send(b.port, streams=2), 1,
        "wrong set-up: the same module sends on udp://ADDRESS and on udp://ADDRESS: row 0, column 0 of module 7",
    ),
    "two_modules_one_port": (
        "2 modules to one port", "`modules = 1`", jungfrau(), 1, lambda b: send_modules(b, [0, 0]), 1,
        "wrong set-up: two modules send to one port, or a module changed its position (restarted?): row 0, column 0 of module 10 and row 1, column 0 of module 11",
    ),
    "wrong_port": (
        "sends to another port", "`first_port`", jungfrau(), 1, lambda b: send(free_ports(2)), 7,
        "N datagrams came to ports of this machine on which nobody listens: compare [source] first_port, [detector] modules and interfaces with the detector",
    ),
    "wrong_address": (
        "sends to 127.0.0.1", "`address = \"127.0.0.2\"`", jungfrau() | {"source": {"address": "127.0.0.2"}}, 1, lambda b: send(b.port), 7,
        "N datagrams came to ports of this machine on which nobody listens: compare [source] first_port, [detector] modules and interfaces with the detector",
    ),
    "partial_readout": (
        "JUNGFRAU, 64 rows", "all rows", jungfrau(), 1, lambda b: send(b.port, packets=range(56, 72)), 1,
        "wrong set-up: the detector sends 16 packets per frame and port, which is a readout of 64 rows; the configuration has 512",
    ),
    "eiger_over_1_gbe": (
        "EIGER over 1 GbE", "10 GbE", eiger(16), 4, lambda b: send_eiger(b, 16, payload=1024, per_packet=4), 7,
        "wrong set-up: the datagrams on all streams have 1072 bytes, and packets of this detector have 4144: they come over 1 GbE",
    ),
    "cut_datagrams": (
        "datagrams cut to an MTU of 1500", "JUNGFRAU", jungfrau(), 1, cut, 7,
        "wrong set-up: the datagrams have 1472 bytes, and packets of this detector have 8240: they are cut or joined on their way",
    ),
    "older_header": (
        "headers of version 1", "JUNGFRAU", jungfrau(), 1, lambda b: send(b.port, version=1), 7,
        "wrong set-up: the packets have headers of version 1, and only version 2 is understood",
    ),
    "other_first_frame": (
        "counts on from 5000", "`first_frame = 1`", jungfrau() | {"run": {"first_frame": 1}}, 1, lambda b: send(b.port, range(5000, 5012)), 7,
        "wrong set-up: only frames 5000 to 5011 came, which are not of this run; [run] first_frame is 1",
    ),
    "count_began_again": (
        "started again in the run", "`images = 24`", jungfrau() | {"run": {"images": 24}}, 1,
        lambda b: (send(b.port), send(b.port)), 7,
        "wrong set-up: the frame numbers began again: frame 1 came after frame 12",
    ),
    "every_second_frame": (
        "2 destinations in turn", "`images = 23`", jungfrau() | {"run": {"images": 23}}, 1, lambda b: send(b.port, range(1, 24, 2)), 1,
        "wrong set-up: only one frame number in 2 comes: the detector sends its frames to 2 destinations in turn",
    ),
    "noise": (
        "another sender on the same port", "JUNGFRAU", jungfrau(), 1, noise, 1,
        "wrong set-up: 192 of 1 728 datagrams are not packets of this detector",
    ),
    "other_calibration": (
        "2 modules", "calibration of 1 module", other_calibration, 2, NOTHING, 3, None,
    ),
    "energy_in_ev": (
        "12.4 keV", "`energy_kev = 12400`", jungfrau(energy_kev=12400.0), 1, NOTHING, 3, None,
    ),
    "address_of_another_machine": (
        "any", "`address = \"192.0.2.1\"`", jungfrau() | {"source": {"address": "192.0.2.1"}}, 1, NOTHING, 6, None,
    ),
}


def configured(bench, tables, streams):
    """Writes the configuration; an address in the tables replaces the usual one."""
    tables = tables(bench) if callable(tables) else {name: dict(values) for name, values in tables.items()}
    tables.setdefault("run", {})
    tables["run"] = {"images": FRAMES, "start_timeout_s": 2, "stall_timeout_s": 1} | tables["run"]
    address = tables.pop("source", {}).get("address")
    path = bench.config(streams=streams, **tables)
    if address:
        path.write_text(path.read_text().replace('"127.0.0.1"', f'"{address}"'))
    return path


def first_sentence(bench, tables, streams, sends):
    """Runs a set-up; returns exit code, first sentence and report."""
    path = configured(bench, tables, streams)
    if sends is NOTHING:
        done = program("receive", path)
        line = done.stderr.strip().splitlines()[0].replace(f"{bench.folder}/", "")
        return done.returncode, line.replace(str(bench.port), "PORT"), None
    receiver = bench.receive(path)
    sends(bench)
    code, report = receiver.finish()
    balanced(code, report)
    sentence = re.sub(r"(?<=udp://)[\d.]+:\d+", "ADDRESS", report["headline"])
    # The number is that of the whole machine, so it varies with its other programs.
    return code, re.sub(r"^\d[\d ]* (?=datagrams came)", "N ", sentence), report


def row(name, code, sentence):
    return f"| {SETUPS[name][0]} | {SETUPS[name][1]} | {code} | {sentence.replace('|', ' ')} |"


@pytest.mark.parametrize("name", SETUPS)
def test_the_first_sentence_names_the_cause(bench, name, capsys):
    _, _, tables, streams, sends, expected_code, expected = SETUPS[name]
    code, sentence, report = first_sentence(bench, tables, streams, sends)
    if PRINT:
        with capsys.disabled():
            print(f"\n{row(name, code, sentence)}")
    if expected is not None:
        assert sentence == expected
    assert code == expected_code, sentence
    if report and code != 0 and sentence.startswith("wrong set-up"):
        assert not any("lost on the wire" in line for line in report["advice"]), report["advice"]
        with h5py.File(bench.master) as f:
            ended = f["/entry/konkordia/ledger/ended"][()].decode()
        assert report["setup"][0]["what"] in ended and report["setup"][0]["fix"]
        # It is also an event for programs, at the latest at the end of the run.
        live = [event["finding"]["key"] for event in bench.receivers[0].events if event["event"] == "setup"]
        assert report["setup"][0]["key"] in live, live
    text = (ROOT / "docs" / "troubleshooting.md").read_text()
    assert row(name, code, sentence) in text, f"docs/troubleshooting.md has not the row\n{row(name, code, sentence)}"


def test_the_table_has_no_other_rows():
    text = (ROOT / "docs" / "troubleshooting.md").read_text()
    table = text[text.index("| detector | configuration | exit code |") :].split("\n\n")[0]
    assert len(table.splitlines()) == 2 + len(SETUPS) and len(SETUPS) >= 20


@pytest.mark.parametrize(("sent", "bits"), [(a, b) for a in EIGER_PACKETS for b in EIGER_PACKETS if a != b])
def test_every_wrong_depth_is_named_and_places_nothing(bench, sent, bits):
    receiver = bench.receive(configured(bench, eiger(bits) | {"run": {"images": 4, "start_timeout_s": 3}}, 4))
    send_eiger(bench, sent, frames=range(1, 5))
    code, report = receiver.finish()
    balanced(code, report)
    assert (code, report["total"]["placed"]) == (7, 0)
    # Fewer packets may also mean fewer rows; then both are named.
    rows = f", or rows = {256 * sent // bits}" if sent < bits and (256 * sent) % bits == 0 else ""
    assert report["setup"][0]["key"] == "detector.bits" and f"bits = {sent}{rows};" in report["headline"], report["headline"]


def test_people_read_it_first(bench):
    path = configured(bench, jungfrau(2), 2)
    bench_receiver = bench.receive(path)
    send_modules(bench, [1, 0])
    assert bench_receiver.finish()[0] == 1
    (bench.folder / "run_master.h5").unlink()
    (bench.folder / "run_data_000001.h5").unlink()
    process = subprocess.Popen([BINARY, "receive", "--quiet", str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline().startswith("armed")
    send_modules(bench, [1, 0])
    out, err = process.communicate(timeout=30)
    assert process.returncode == 1
    assert out.splitlines()[0].startswith("wrong set-up: modules are in another order than the ports")
    assert out.splitlines()[1].startswith("  fix: exchange the destination ports")


def test_a_swap_may_be_allowed_and_is_reported_all_the_same(bench):
    receiver = bench.receive(configured(bench, jungfrau(2, strict=False), 2))
    send_modules(bench, [1, 0])
    code, report = receiver.finish()
    balanced(code, report)
    assert code == 0 and report["images"]["complete"] == FRAMES
    assert [finding["wrong"] for finding in report["setup"]] == [False, False][: len(report["setup"])]
    assert "another order" in report["headline"]


def test_headers_are_in_the_file_and_may_be_expected_one_by_one(bench):
    tiles = [{"row": 0, "column": 0, "module_id": 11, "header_row": 1}, {"row": 512, "column": 0, "module_id": 99}]
    receiver = bench.receive(configured(bench, jungfrau(2, tile=tiles), 2))
    send_modules(bench, [1, 0])
    code, report = receiver.finish()
    balanced(code, report)
    assert code == 1 and "row 0, column 0 of module 10 instead of module 99" in report["headline"]
    with h5py.File(bench.master) as f:
        streams = f["/entry/konkordia/ledger/streams"]
        seen = {name: list(streams[f"header_{name}"][()]) for name in ("row", "column", "module_id")}
    assert seen == {"row": [1, 0], "column": [0, 0], "module_id": [11, 10]}


def test_half_modules_are_never_whole_ones(bench):
    """A module with two interfaces sends where two modules with one interface each are configured."""
    receiver = bench.receive(configured(bench, jungfrau(2, 1), 2))
    for frame in range(1, FRAMES + 1):
        for half in range(2):
            send(bench.port + half, [frame], range(64), row=half)
    code, report = receiver.finish()
    balanced(code, report)
    assert (code, report["total"]["placed"], report["images"]["complete"]) == (7, 0, 0)
    assert report["setup"][0]["key"] == "detector.interfaces"


def test_acquisitions_of_a_detector_that_goes_on_counting(bench):
    """By default the second acquisition is received too, and one after the detector has begun to count again."""
    path = configured(bench, jungfrau() | {"output": {"overwrite": "replace"}, "run": {"start_timeout_s": 30}}, 1)
    for first in (1, 13, 1, 70_000):
        receiver = bench.receive(path)
        simulate("jungfrau", "--to", bench.to, "--images", FRAMES, "--rate", 200, "--first-frame", first)
        code, report = receiver.finish()
        balanced(code, report)
        assert (code, report["first_frame"], report["images"]["complete"]) == (0, first, FRAMES), report["headline"]
        with h5py.File(bench.master) as f:
            assert list(f["/entry/konkordia/images/frame_number"]) == list(range(first, first + FRAMES))


@pytest.mark.parametrize("stray", [1, 14, 5000, 2**40])
def test_one_stray_packet_does_not_decide_the_first_frame(bench, stray):
    receiver = bench.receive(configured(bench, jungfrau(), 1))
    send(bench.port, [stray], [77])
    # The stray lies there for a while before the detector starts.
    time.sleep(0.3)
    send(bench.port, range(100, 100 + FRAMES))
    code, report = receiver.finish()
    balanced(code, report)
    assert (code, report["first_frame"], report["images"]["complete"]) == (0, 100, FRAMES)
    assert report["total"]["foreign"] == 1


def test_a_word_of_all_ones_that_arrived_is_invalid_and_not_missing(bench):
    tables = jungfrau()
    del tables["processing"]
    tables["calibration"] = pedestals(bench, 1)
    receiver = bench.receive(configured(bench, tables | {"run": {"images": 1}}, 1))
    pixels = np.full(4096, 3000, "<u2")
    pixels[[5, 4000]] = 0xFFFF
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        for packet in range(128):
            s.sendto(header(1, packet) + pixels.tobytes(), ("127.0.0.1", bench.port))
    code, report = receiver.finish()
    balanced(code, report)
    assert code == 0
    with h5py.File(bench.master) as f:
        data = f["/entry/data"]
        image = data[data.attrs["signal"]][0]
    special = image.reshape(128, 4096)[:, [5, 4000]]
    assert (special == -32767).all() and (image == -32767).sum() == 256 and (image != -32766).all()


@pytest.fixture
def serve(tmp_path):
    services = []

    def start(detector, streams, extra="", **tables):
        port = free_ports(streams)
        services.append(Service(write_config(tmp_path, port, detector=detector, extra=extra, **tables)))
        return services[-1], port

    yield start
    for service in services:
        if service.process.poll() is None:
            service.process.kill()
            service.process.wait()


def test_the_service_tells_it_while_the_run_goes_on(serve):
    service, port = serve(jungfrau(2)["detector"], 2, run={"images": 100}, processing={"dtype": "raw"})
    service.command("start")
    for row in (0, 1):
        send(port + 1 - row, row=row, module=10 + row)
    status = service.until(lambda s: s["message"].startswith("wrong set-up"))
    assert (status["state"], status["severity"]) == ("running", "warning") and status["hint"].startswith("exchange")
    service.command("stop")
    done = service.wait()
    assert done["severity"] == "warning" and "wrong set-up: modules are in another order" in done["message"]
    assert service.request("GET", "files")["files"][0]["state"] == "incomplete"
    assert service.end()[0] == 0


@pytest.mark.alone
def test_a_service_tells_of_a_module_that_nobody_listens_to(serve):
    service, port = serve(jungfrau(1)["detector"], 2, run={"images": FRAMES}, processing={"dtype": "raw"})
    service.command("start")
    for frame in range(1, FRAMES + 1):
        for row in (1, 0):
            send(port + row, [frame], row=row, module=10 + row)
    done = service.wait()
    assert done["severity"] == "success" and "datagrams came to ports of this machine on which nobody listens" in done["hint"], done
    assert service.end()[0] == 0


def test_acquisitions_in_a_service_with_defaults(serve, tmp_path):
    service, port = serve({"type": "jungfrau"}, 1, run={"images": 10}, processing={"dtype": "raw"})
    for n, first in enumerate((1, 11, 21, 1)):
        service.command("start", {"prefix": f"run{n}"})
        for sent, frame in enumerate(range(first, first + 10), 1):
            send(port, [frame])
            # The buffer of the socket holds four frames.
            service.until(lambda status, sent=sent: status["images_committed"] >= sent - 3)
        done = service.wait()
        assert (done["severity"], done["images_written"]) == ("success", 10), (first, done)
        with h5py.File(tmp_path / f"run{n}_master.h5") as f:
            assert list(f["/entry/konkordia/images/frame_number"]) == list(range(first, first + 10))


def consumer(protocol, address):
    return f'[[stream]]\nname = "live"\nprotocol = "{protocol}"\naddress = "{address}"\n'


@pytest.mark.parametrize(("kind", "dtype"), [("jungfrau", "int16"), ("eiger", None)])
def test_sls_json_has_the_header_of_the_frame_and_says_what_is_signed(serve, tmp_path, kind, dtype, bench):
    address = f"tcp://127.0.0.1:{free_port()}"
    tables = {"run": {"images": 3}}
    if kind == "jungfrau":
        tables["calibration"] = pedestals(bench, 1)
    service, port = serve({"type": kind, "energy_kev": 12.4}, 4 if kind == "eiger" else 1, consumer("sls", address), **tables)
    context = zmq.Context()
    taker = context.socket(zmq.PULL)
    taker.rcvtimeo = 10_000
    taker.connect(address)
    service.consumers_connect()
    service.command("start")
    options = ("--bits", 16) if kind == "eiger" else ()
    simulate(kind, "--to", f"127.0.0.1:{port}", "--images", 3, "--rate", 20, "--first-frame", 41, *options)
    headers = [json.loads(taker.recv_multipart()[0]) for _ in range(3)]
    context.destroy(linger=0)
    service.wait()
    with h5py.File(tmp_path / "run_000001_master.h5") as f:
        columns = f["/entry/konkordia/images"]
        stored = {name: [int(n) for n in columns[name]] for name in columns if columns[name].ndim == 1}
    for n, header in enumerate(headers):
        assert (header["frameIndex"], header["frameNumber"]) == (n, 41 + n)
        assert header["packetNumber"] == (256 if kind == "eiger" else 128)
        assert (header["detType"], header["version"]) == ((1, 2) if kind == "eiger" else (3, 2))
        assert (header["modId"], header["row"], header["column"]) == ((101, 0, 0) if kind == "eiger" else (header["modId"], 0, 0))
        assert header["expLength"] == stored["exposure"][n] and header["timestamp"] == stored["timestamp"][n]
        assert header["detSpec1"] == stored["bunch_id"][n] and header["detSpec3"] == stored["detector_info"][n]
        assert header["addJsonHeader"].get("dtype") == dtype
        assert int(header["addJsonHeader"]["max_value"]) == stored["max_value"][n]


@pytest.mark.parametrize("protocol", ["sls", "stream2", "stins"])
def test_pixels_that_a_consumer_cannot_take_are_refused_at_arm(serve, protocol, bench):
    extra = consumer(protocol, f"tcp://127.0.0.1:{free_port()}")
    tables = {"calibration": pedestals(bench, 1), "processing": {"dtype": "float32"}}
    service, _ = serve({"type": "jungfrau", "energy_kev": 12.4}, 1, extra, **tables)
    if protocol == "stins":
        assert service.command("arm")["state"] == "armed"
        return
    problem = service.refused("arm")
    text = json.dumps(problem.body)
    assert "float32" in text and "'live'" in text and "set dtype =" in text
    assert service.status()["state"] == "idle" and not list(bench.folder.glob("*master.h5"))
