"""Raw frames of runs, and runs of `konkordia receive`, that a `konkordia writer` writes. Both programs run on this
machine, over loopback; that stands in for two hosts."""

import json

import h5py
import numpy as np
import pytest
import raw_files
from driving import Bench, Master, balanced, free_ports, program, raw_tables, simulate
from service import served_bench, until
from test_modes import jungfrau_packets, send
from test_raw_runs import gains, planes  # noqa: F401  a fixture
from test_remote_writer import FABRIC_TCP, TCP, Writer, account, same, skip_without

served = pytest.fixture(served_bench)
FRAMES = 12


@pytest.fixture
def bench(tmp_path):
    bench = Bench(tmp_path)
    yield bench
    for receiver in bench.receivers:
        receiver.process.kill()
        receiver.finish()


@pytest.fixture
def far(tmp_path):
    """Starts writers, by default on one port, in a folder of their own."""
    folder, port, writers = tmp_path / "far", free_ports(), []
    folder.mkdir()

    def start(*arguments, port=port):
        writers.append(Writer(folder, port, *arguments))
        return writers[-1]

    start.folder, start.port = folder, port
    yield start
    for writer in writers:
        writer.process.kill()
        writer.end()


def table(port, name="far", **keys):
    lines = [f'name = "{name}"', f'address = "127.0.0.1:{port}"', *(f"{key} = {json.dumps(value)}" for key, value in keys.items())]
    return "\n[[writer]]\n" + "\n".join(lines) + "\n"


def totals(master):
    with h5py.File(master) as file:
        return {name: int(value[()]) for name, value in file["/entry/konkordia/ledger/totals"].items()}


def receive(bench, tables, text, words, gone=(), streams=2):
    """A run of `konkordia receive` that gets these words, without the packets in `gone`: exit code, report and events."""
    config = bench.config(streams=streams, **tables)
    config.write_text(config.read_text() + text)
    receiver = bench.receive(config)
    packets = jungfrau_packets(words, 512, 1)
    send(bench.port, ((s, d) for s, d in packets if (int.from_bytes(d[:8], "little"), s, int.from_bytes(d[12:16], "little")) not in gone))
    code, report = receiver.finish(timeout=120)
    return code, report, receiver


@pytest.mark.parametrize("link", [TCP, FABRIC_TCP], ids=["tcp", "libfabric-tcp"])
def test_a_run_without_a_service_is_written_on_the_other_host(bench, far, link):
    skip_without(link)
    more = {} if link == TCP else {"link": link[0], "provider": link[1]}
    writer = far(*(["--link", link[0], "--provider", link[1]] if more else []))
    words = raw_files.frames(FRAMES, modules=2, seed=1)
    tables = raw_tables(2, 1, images=FRAMES) | {"output": {"images_per_file": 5}}
    code, report, receiver = receive(bench, tables, table(far.port, required=True, **more), words)
    balanced(code, report)
    closed = writer.wait_for("closed")
    assert code == 0 and closed["problem"] is None and closed["images"] == FRAMES, (closed, receiver.errors)
    assert (same(bench.master, far.folder / "run_master.h5") == words.reshape(FRAMES, -1, 1024)).all()
    said = [event for event in receiver.events if event["event"] == "writer"][-1]
    assert said["severity"] == "info" and said["data"]["images_written"] == FRAMES, said
    program("check", far.folder / "run_master.h5", check=0)


def test_a_writer_that_is_not_there_makes_the_run_incomplete_and_is_said(bench, far):
    words = raw_files.frames(3, modules=1, seed=1)
    refused = bench.config(**raw_tables(images=3))
    refused.write_text(refused.read_text() + table(far.port, required=True))
    done = program("receive", refused, check=5)
    assert "'far' is not connected" in done.stderr and "[[writer]]" in done.stderr, done.stderr
    # The writer takes the run and is gone before its end.
    writer = far()
    config = bench.config(**raw_tables(images=100, stall_timeout_s=3))
    config.write_text(config.read_text() + table(far.port))
    receiver = bench.receive(config)
    send(bench.port, jungfrau_packets(words, 512, 1))
    writer.wait_for("began")
    assert writer.end() == 1
    code, report = receiver.finish(timeout=150)
    said = [event for event in receiver.events if event["event"] == "writer"][-1]
    assert code != 0 and said["severity"] == "error" and report["images"]["complete"] == 3, said


def test_raw_frames_go_to_the_other_host_beside_the_images(bench, far, gains):  # noqa: F811
    """What was not sent has the missing value: a packet, a module of a frame, and a whole frame."""
    writer, words = far(), raw_files.frames(FRAMES, modules=2, seed=2)
    gone = {(3, 1, 77)} | {(5, 0, p) for p in range(128)} | {(7, s, p) for s in (0, 1) for p in range(128)}
    tables = raw_tables(2, 1, images=FRAMES, first_frame=1) | {"calibration": planes(gains / "2")}
    tables["detector"]["tile"] = [{"row": 0, "column": 5, "rotate_deg": 90}, {"row": 3, "column": 700, "flip_rows": True}]
    tables["output"] = {"images_per_file": 5, "keep_raw": True}
    tables.pop("processing")
    code, report, receiver = receive(bench, tables, table(far.port, takes="raw"), words, gone)
    balanced(code, report)
    assert code == 1
    closed = writer.wait_for("closed")
    assert closed["problem"] is None and closed["images"] == FRAMES - 1, (closed, receiver.errors)
    program("check", far.folder / "run_raw_master.h5", check=0)
    # The words at their places, as they were sent.
    master = Master(far.folder / "run_raw_master.h5")
    assert master.columns["status"].tolist() == [1, 1, 2, 1, 2, 1, 0, 1, 1, 1, 1, 1]
    left, right = words[:, 0].copy(), words[:, 1].copy()
    right[2, 77 * 4 : 78 * 4] = left[4] = left[6] = right[6] = 0xFFFF
    expected = np.full(master.images.shape, 0xFFFF, np.uint16)
    expected[:, 3 : 3 + 512, 700 : 700 + 1024] = right[:, ::-1]
    placed = np.rot90(left, k=-1, axes=(1, 2)), np.rot90(left, k=1, axes=(1, 2))
    turned = [one for one in placed if (master.images[:, :1024, 5 : 5 + 512] == one).mean() > 0.9]
    assert len(turned) == 1
    expected[:, :1024, 5 : 5 + 512] = turned[0]
    np.testing.assert_array_equal(master.images, expected)
    # And as the local copy has them.
    program("convert", bench.folder / "run_raw_master_0.json", "-o", bench.folder / "kept", "--dtype", "raw", "--quiet", check=1)
    program("convert", far.folder / "run_raw_master.h5", "-o", bench.folder / "again", "--dtype", "raw", "--quiet", check=1)
    # Both accounts, and both ledgers.
    data = [event for event in receiver.events if event["event"] == "writer"][-1]["data"]
    assert (data["durable"], data["lost"], data["images_written"]) == (FRAMES, 0, FRAMES - 1), data
    assert data["bytes_sent"] == data["bytes_written"] == closed["bytes"]
    here, there = totals(bench.master), totals(far.folder / "run_raw_master.h5")
    own = {name for name in there if name.startswith(("images_", "writer_"))}
    # How long the file was waited for is its own.
    own.add("file_waited_ms")
    assert {name: n for name, n in there.items() if name not in own} == {name: n for name, n in here.items() if name not in own}
    assert (there["images_complete"], there["images_partial"], there["images_lost"], there["images_written"]) == (9, 2, 1, 11)
    assert there["images_expected"] == here["frames"] == FRAMES and there["writer_lost"] == 0


@pytest.mark.parametrize("world_of_raw", [TCP, FABRIC_TCP], indirect=True, ids=["tcp", "libfabric-tcp"])
def test_a_writer_of_raw_frames_that_is_killed_and_started_again(world_of_raw):
    bench, service, start, folder = world_of_raw
    writer = start()
    service.consumers_connect()
    service.command("arm")
    simulate("jungfrau", "--to", f"127.0.0.1:{bench.port}", "--images", 20, "--rate", 20)
    until(lambda: list(folder.glob("*_raw_data_000003.h5.journal")), "the third data file")
    writer.process.kill()
    writer.end()
    writer = start()
    simulate("jungfrau", "--to", f"127.0.0.1:{bench.port}", "--images", 20, "--rate", 20, "--first-frame", 21)
    service.wait(90)
    closed, said = writer.wait_for("closed"), account(service)
    assert closed["problem"] is None and said["severity"] == "info", (closed, said)
    assert closed["continued_images"] > 0 and said["data"]["images_written"] == 40, (closed, said)
    # Whatever the local file is, the raw copy beside it has the same words.
    program("convert", bench.folder / "run_000001_raw_master_0.json", "-o", bench.folder / "kept", "--dtype", "raw", "--quiet", check=0)
    kept, far = Master(bench.folder / "kept_master.h5"), Master(folder / "run_000001_raw_master.h5")
    np.testing.assert_array_equal(kept.images, far.images)
    assert (far.columns["frame_number"] == np.arange(1, 41)).all()
    program("check", folder / "run_000001_raw_master.h5", check=0)


@pytest.fixture
def world_of_raw(served, tmp_path, request):
    """A service of a JUNGFRAU with a writer of raw frames, over a link."""
    link = request.param
    skip_without(link)
    folder, port, writers = tmp_path / "far", free_ports(), []
    folder.mkdir()
    options = [] if link == TCP else ["--link", link[0], "--provider", link[1]]

    def start():
        writers.append(Writer(folder, port, *options))
        return writers[-1]

    more = {} if link == TCP else {"link": link[0], "provider": link[1]}
    detector = {"type": "jungfrau", "energy_kev": 12.4}
    output = {"images_per_file": 8, "keep_raw": True}
    run = {"images": 40, "stall_timeout_s": 60, "buffer_mib": 256}
    tables = {"detector": detector, "output": output, "run": run, "processing": {"dtype": "raw"}}
    service = served.serve(extra=table(port, takes="raw", **more), **tables)
    yield served, service, start, folder
    for writer in writers:
        writer.process.kill()
        writer.end()


def test_words_of_other_detectors_are_refused(served):
    config = served.folder / "eiger.toml"
    text = '[detector]\ntype = "eiger"\nbits = 16\n[source]\naddress = "127.0.0.1"\n[output]\ndirectory = "."\nprefix = "a"\n'
    config.write_text(text + table(1, takes="raw"))
    assert "raw" in program("config", "check", config, check=3).stderr
