"""Several receivers of one detector: each writes the files of its modules, and the master of the whole image is made of the
files of all parts. The receivers run on this machine, over loopback; that stands in for several hosts."""

import itertools
import json
import signal
import subprocess
import time

import h5py
import numpy as np
import pytest
from driving import BINARY, Bench, Master, PacedSocket, Receiver, balanced, free_ports, jungfrau_packet, program
from service import Service, served_bench

ROWS, COLUMNS, PACKETS = 512, 1024, 128
MISSING = 0xFFFF
bench_of_services = pytest.fixture(served_bench)


def part_config(folder, number, of=2, streams=1, **more):
    """The configuration of one module of a detector of `of` modules, which lie over each other."""
    port = free_ports(streams)
    tables = {
        "detector": {
            "type": "jungfrau",
            "energy_kev": 12.4,
            "detector_distance_mm": 100.0,
            "beam_center_x_px": 500.0,
            "beam_center_y_px": 512.0 - ROWS * (number - 1),
        },
        "source": {"address": "127.0.0.1", "first_port": port},
        "processing": {"dtype": "raw"},
        "output": {"directory": str(folder), "prefix": "run", "images_per_file": 5},
        "run": {"buffer_mib": 128, "stall_timeout_s": 1.5, "start_timeout_s": 20},
        "part": {"number": number, "of": of, "row": ROWS * (number - 1), "image_rows": ROWS * of, "image_columns": COLUMNS},
    }
    for table, values in more.items():
        tables.setdefault(table, {}).update(values)
    lines = []
    for table, values in tables.items():
        lines += [f"[{table}]", *(f"{key} = {json.dumps(value)}" for key, value in values.items() if not isinstance(value, list))]
    path = folder / f"part{number}.toml"
    path.write_text("\n".join(lines) + "\n")
    return path, port


def fill(module, frame):
    return (100 * module + frame) % 250 + 1


def pixel(module, frame):
    return 257 * fill(module, frame)


def send(port, module, frames, without=lambda frame, packet: False):
    with PacedSocket() as sender:
        for frame in frames:
            send_frame(sender, port, module, frame, without)


def send_frame(sender, port, module, frame, without):
    for packet in range(PACKETS):
        if not without(frame, packet):
            sender.sendto(jungfrau_packet(frame, packet, fill=fill(module, frame)), ("127.0.0.1", port))


def expected(modules, frames, has=lambda module, frame: True):
    images = np.full((len(frames), ROWS * modules, COLUMNS), MISSING, np.uint16)
    for n, frame in enumerate(frames):
        for module in range(modules):
            if has(module, frame):
                images[n, ROWS * module : ROWS * (module + 1)] = pixel(module, frame)
    return images


def totals(path):
    with h5py.File(path) as file:
        group = file["/entry/konkordia/ledger/totals"]
        return {name: int(group[name][()]) for name in group}


def state(path, number):
    with h5py.File(path) as file:
        return file[f"/entry/konkordia/parts/part_{number}/state"][()].decode()


def receiving(config):
    receiver = Receiver(config)
    receiver.wait_for("armed")
    return receiver


def test_the_whole_image_is_that_of_one_receiver(tmp_path):
    """Two hosts with a module each, and one with both: same pixels, same columns, same geometry."""
    bench = Bench(tmp_path)
    one = bench.config(2, detector={"type": "jungfrau", "modules": 2, "energy_kev": 12.4, "detector_distance_mm": 100.0, "beam_center_x_px": 500.0, "beam_center_y_px": 512.0}, processing={"dtype": "raw"}, output={"prefix": "one", "images_per_file": 5}, run={"stall_timeout_s": 1.5})
    runs = [bench.receive(one)]
    ports = [bench.port, bench.port + 1]
    configs = [part_config(tmp_path, number) for number in (1, 2)]
    runs += [receiving(config) for config, _ in configs]
    lost = lambda frame, packet: frame == 4 and packet % 7 == 3
    # Frame by frame: the receiver of both modules waits only so long for the second one.
    with PacedSocket() as sender:
        for frame, module in itertools.product(range(1, 13), (0, 1)):
            without = lost if module else lambda frame, packet: False
            for port in (ports[module], configs[module][1]):
                send_frame(sender, port, module, frame, without)
    ends = [run.finish() for run in runs]
    for code, report in ends:
        balanced(code, report)
    whole = Master(tmp_path / "run_master.h5")
    alone = Master(tmp_path / "one_master.h5")
    assert np.array_equal(whole.images, alone.images) and whole.images.shape == (12, 2 * ROWS, COLUMNS)
    assert np.array_equal(whole.mask, alone.mask)
    for name in ("frame_number", "status", "packets_received", "packet_bitmap"):
        assert np.array_equal(whole.columns[name], alone.columns[name]), name
    assert whole.columns["status"].tolist() == [1, 1, 1, 2] + [1] * 8
    last = [report["whole"] for _, report in ends[1:]]
    assert sorted(len(whole["parts_absent"]) + len(whole["parts_open"]) for whole in last)[0] == 0, last
    found = totals(tmp_path / "run_master.h5")
    assert (found["images_complete"], found["images_partial"], found["images_in_files"]) == (11, 1, 12)
    assert found["packets_placed"] == sum(report["total"]["placed"] for _, report in ends[1:]), found
    with h5py.File(tmp_path / "run_master.h5") as a, h5py.File(tmp_path / "one_master.h5") as b:
        for path in ("beam_center_x", "beam_center_y", "module_000/data_origin", "module_001/data_origin", "module_001/data_size"):
            path = f"/entry/instrument/detector/{path}"
            assert np.array_equal(a[path][()], b[path][()]), path
        offset = "/entry/instrument/detector/module_001/module_offset"
        assert np.allclose(a[offset].attrs["offset"], b[offset].attrs["offset"])
        assert a["/entry/konkordia/parts/part_2/entry/data/images"].shape == (12, ROWS, COLUMNS)
    program("check", tmp_path / "run_master.h5", check=0)
    # Several hosts may make it at the same time.
    makers = [subprocess.Popen([BINARY, "repair", tmp_path / "run_master.h5"], stdout=subprocess.DEVNULL) for _ in range(6)]
    assert [maker.wait(60) for maker in makers] == [0] * 6
    assert np.array_equal(Master(tmp_path / "run_master.h5").images, alone.images)
    assert not list(tmp_path.glob(".*part")), "no temporary file is left"


def test_parts_that_begin_and_end_at_other_frames_are_put_side_by_side(tmp_path):
    configs = [part_config(tmp_path, number) for number in (1, 2)]
    runs = [receiving(config) for config, _ in configs]
    send(configs[0][1], 0, range(1001, 1013))
    send(configs[1][1], 1, range(1004, 1016))
    assert [run.finish()[0] for run in runs] == [0, 0]
    whole = Master(tmp_path / "run_master.h5")
    has = lambda module, frame: frame < 1013 if module == 0 else frame >= 1004
    assert np.array_equal(whole.images, expected(2, range(1001, 1016), has))
    assert whole.columns["frame_number"].tolist() == list(range(1001, 1016))
    assert whole.columns["status"].tolist() == [2] * 3 + [1] * 9 + [2] * 3


def test_a_part_that_never_comes_is_missing_and_masked(tmp_path):
    config, port = part_config(tmp_path, 1)
    run = receiving(config)
    send(port, 0, range(1, 8))
    code, report = run.finish()
    assert code == 0 and report["whole"]["parts_absent"] == [2], report
    whole = Master(tmp_path / "run_master.h5")
    assert np.array_equal(whole.images, expected(2, range(1, 8), lambda module, _: module == 0))
    assert (whole.mask[:ROWS] == 0).all() and (whole.mask[ROWS:] == 2).all()
    assert (whole.columns["status"] == 2).all() and totals(tmp_path / "run_master.h5")["parts_absent"] == 1
    assert state(tmp_path / "run_master.h5", 2) == "absent"


def test_a_part_of_an_older_run_of_the_same_name_is_left_out(tmp_path):
    config, port = part_config(tmp_path, 1)
    run = receiving(config)
    send(port, 0, range(1, 4))
    assert run.finish()[0] == 0
    with h5py.File(tmp_path / "run_part1_master.h5", "r+") as file:
        del file["/entry/end_time"]
        file["/entry/end_time"] = "2026-01-01T12:00:00Z"
    config, port = part_config(tmp_path, 2)
    run = receiving(config)
    send(port, 1, range(1, 8))
    code, report = run.finish()
    assert code == 0 and report["whole"]["parts_absent"] == [1] and "of an older run" in report["whole"]["notes"][0], report
    whole = Master(tmp_path / "run_master.h5")
    assert np.array_equal(whole.images, expected(2, range(1, 8), lambda module, _: module == 1))
    assert (whole.mask[:ROWS] == 2).all()


def test_a_killed_receiver_loses_its_part_and_repair_brings_back_what_it_had(tmp_path):
    configs = [part_config(tmp_path, number) for number in (1, 2)]
    runs = [receiving(config) for config, _ in configs]
    for frames in (range(1, 9), range(9, 15)):
        send(configs[0][1], 0, frames)
        if frames[0] == 1:
            send(configs[1][1], 1, frames)
            runs[1].wait_until(lambda progress: progress["images_written"] >= 7)
            time.sleep(0.5)
            runs[1].signal(signal.SIGKILL)
    runs[1].process.wait(10)
    code, report = runs[0].finish()
    assert code == 0 and report["whole"]["parts_open"] == [2] and report["whole"]["parts_absent"] == [], report["whole"]
    master = tmp_path / "run_master.h5"
    whole = Master(master)
    # Part 2 has one data file that is closed.
    assert np.array_equal(whole.images, expected(2, range(1, 15), lambda module, frame: module == 0 or frame <= 5))
    said = program("repair", tmp_path / "run_part2_data_000001.h5", check=None)
    assert "is made anew" in said.stdout + said.stderr, said
    repaired = Master(master)
    there = int((repaired.images[:, ROWS:] != MISSING).any(axis=(1, 2)).sum())
    assert 6 <= there <= 8
    assert np.array_equal(repaired.images, expected(2, range(1, 15), lambda module, frame: module == 0 or frame <= there))
    assert state(master, 2) == "repaired"
    # The master of the whole can always be made again.
    master.unlink()
    program("repair", master, check=0)
    assert np.array_equal(Master(master).images, repaired.images)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"part": {"row": 100}, "detector": {"beam_center_y_px": 412.0}}, "lie over each other"),
        ({"detector": {"beam_center_y_px": 3.0}}, "the beam centre"),
        ({"part": {"image_rows": 4096}}, "the size of the whole image"),
    ],
)
def test_parts_that_contradict_each_other_say_so_and_keep_their_files(tmp_path, change, why):
    configs = [part_config(tmp_path, 1), part_config(tmp_path, 2, **change)]
    runs = [receiving(config) for config, _ in configs]
    for module, (_, port) in enumerate(configs):
        send(port, module, range(1, 4))
    reports = [run.finish()[1] for run in runs]
    failures = [report["whole"]["failure"] for report in reports if "failure" in report["whole"]]
    assert failures and all(why in failure for failure in failures), reports
    for number in (1, 2):
        assert len(Master(tmp_path / f"run_part{number}_master.h5").images) == 3


def test_a_wrong_table_is_refused_with_its_line(tmp_path):
    config, _ = part_config(tmp_path, 3, of=2)
    said = program("receive", config, check=3).stderr
    assert "there is no part 3 of 2" in said, said
    config, _ = part_config(tmp_path, 1, part={"row": 600})
    assert "do not lie in an image of 1024 rows" in program("receive", config, check=3).stderr


def test_two_services_armed_with_one_name(tmp_path, bench_of_services):
    """The service names the files of its part, and says what is in the whole image."""
    services, ports = [], []
    for number in (1, 2):
        config, port = part_config(tmp_path, number)
        services.append(Service(config))
        bench_of_services.services.append(services[-1])
        ports.append(port)
    for service in services:
        service.command("arm", {"prefix": "lyso7", "images": 6})
    for module, port in enumerate(ports):
        send(port, module, range(1, 7))
    for service in services:
        service.wait()
    said = [event for service in services for event in service.request("GET", "logs")["logs"] if "the whole image" in event["message"]]
    assert len(said) == 2 and all(event["event"] == "file" for event in said), said
    assert any("lyso7_master.h5, of all parts" in event["message"] and event["severity"] == "info" for event in said), said
    assert np.array_equal(Master(tmp_path / "lyso7_master.h5").images, expected(2, range(1, 7)))
    assert sorted(path.name for path in tmp_path.glob("lyso7*_master.h5")) == ["lyso7_master.h5", "lyso7_part1_master.h5", "lyso7_part2_master.h5"]
    # Looked at as any other file.
    looked = json.loads(program("inspect", tmp_path / "lyso7_master.h5", "--json", check=0).stdout)
    assert looked["images"] == 6 and looked["rows"] == 2 * ROWS, looked
    program("check", tmp_path / "lyso7_master.h5", check=0)
    # A part that is moved away is an error, and its pixels are missing.
    for path in tmp_path.glob("lyso7_part2_*"):
        path.rename(tmp_path / f"gone_{path.name}")
    assert "the files of part 2 cannot be read" in program("check", tmp_path / "lyso7_master.h5", check=1).stdout
