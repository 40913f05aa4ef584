"""`konkordia trains` from packets to files and onward packets, read here with h5py and struct; what EXtra-data and the
client of karabo-bridge make of it is in tests/peers/test_trains.py."""

import json
import socket
import struct
import threading
import time

import h5py
import msgpack
import numpy as np
import pytest
import zmq

from driving import ext4_over, free_ports, frozen, program
from trains import DATA, END, FIRST_ID, NAMES, SHAPES, Detector, Trains

MISSING, PARTIAL, HEADER_INFERRED, LISTS_INFERRED, REJECTED = 1, 2, 4, 8, 512


def file_of(folder, detector, module, sequence=0):
    return h5py.File(folder / f"RAW-R0001-{detector.model.upper()}{module:02}-S{sequence:05}.h5")


def source_of(detector, module):
    return f"{NAMES[detector.model]}/DET/{module}CH0:xtdf"


def images_of(folder, detector, module, train_id):
    """The images of a module in a train as the index of its file says, or None if it is missing there."""
    with file_of(folder, detector, module) as file:
        source = source_of(detector, module)
        row = list(file["INDEX/trainId"][:]).index(train_id)
        first, count = (int(file[f"INDEX/{source}/image/{name}"][row]) for name in ("first", "count"))
        group = file[f"INSTRUMENT/{source}/image"]
        if count == 0:
            return None
        part = slice(first, first + count)
        assert np.all(group["trainId"][part] == train_id)
        return {name: group[name][part] for name in ("data", "mask", "pulseId", "cellId", "status")}


@pytest.mark.parametrize("model", ["lpd", "dssc", "agipd"])
def test_pixels_are_where_they_were_measured(tmp_path, model):
    detector = Detector(model, modules=3, images=3)
    trains = Trains(detector, "--files", tmp_path, "--trains", 4)
    for train in range(4):
        trains.send_train(train)
    code, report = trains.finish()
    assert (code, report["trains"]["complete"], report["files"]) == (0, 4, 4)
    for train in range(4):
        for module in range(3):
            found = images_of(tmp_path, detector, module, FIRST_ID + train)
            np.testing.assert_array_equal(found["data"], detector.pixels(train, module))
            np.testing.assert_array_equal(found["pulseId"][:, 0], detector.pulses)
            np.testing.assert_array_equal(found["cellId"][:, 0], detector.cells)
            assert not found["status"].any() and not found["mask"].any()
    with file_of(tmp_path, detector, 2) as file:
        header = file[f"INSTRUMENT/{source_of(detector, 2)}/header"]
        assert list(header["linkId"][:]) == [0xFFFFFFFF_00000002] * 4 and list(header["pulseCount"][:]) == [3] * 4


def test_a_lost_module_a_lost_train_and_lost_packets_keep_their_places(tmp_path):
    detector = Detector("lpd", modules=16, images=2)
    last = len(detector.packets(0, 0)) - 1
    lost = {1: (5, range(last + 1)), 2: (6, [0]), 3: (7, [last]), 5: (8, [4, 9])}
    trains = Trains(detector, "--files", tmp_path, "--trains", 7, "--timeout-ms", 300)
    for train in (0, 1, 2, 3, 5, 6):
        module, packets = lost.get(train, (None, []))
        trains.send_train(train, lambda m, p, one=module, gone=packets: m != one or p not in gone, pause=0.5)
    code, report = trains.finish()
    assert (code, report["trains"]["complete"], report["trains"]["incomplete"], report["trains"]["lost"]) == (1, 2, 4, 1)
    with h5py.File(tmp_path / "RAW-R0001-TRAINS-S00000.h5") as file:
        data = file[f"INSTRUMENT/{NAMES['lpd']}/TRAINS/BUILDER:output/data"]
        flags = dict(zip(data["trainId"][:] - FIRST_ID, data["moduleFlags"][:], strict=True))
        assert list(data["lostBefore"][:]) == [0, 0, 0, 0, 1, 0]
        assert list(file["INDEX/flag"][:]) == [1, 1, 1, 1, 0, 1, 1]
    expected = {1: MISSING, 2: PARTIAL | HEADER_INFERRED, 3: PARTIAL | LISTS_INFERRED, 5: PARTIAL}
    for train, (module, packets) in lost.items():
        assert flags[train][module] == expected[train] and np.count_nonzero(flags[train]) == 1
        found = images_of(tmp_path, detector, module, FIRST_ID + train)
        if train == 1:
            assert found is None
            continue
        # Marks of the bytes that were not sent, in the order of the wire, brought into that of the image by numpy.
        gone = np.zeros(len(detector.bytes_of(train, module)), bool)
        for packet in packets:
            gone[packet * DATA : (packet + 1) * DATA] = True
        gone = gone[64 : 64 + 2 * 2 * 65536].reshape(-1, 2).all(axis=1)
        gone = gone.reshape(2, 32, 16, 8, 16).transpose(0, 3, 1, 4, 2)[:, ::-1, ::-1].reshape(2, 1, 256, 256)
        np.testing.assert_array_equal(found["mask"], gone.astype("u4") << 31)
        np.testing.assert_array_equal(found["data"], np.where(gone, 0, detector.pixels(train, module)))
        np.testing.assert_array_equal(found["status"][:, 0], gone.any(axis=(1, 2, 3)) * (1 << 15))
        np.testing.assert_array_equal(found["pulseId"][:, 0], detector.pulses)
    # All files have all trains in the same rows.
    for module in range(16):
        with file_of(tmp_path, detector, module) as file:
            assert list(file["INDEX/trainId"][:] - FIRST_ID) == [0, 1, 2, 3, 4, 5, 6]


def test_strangers_cost_nothing_but_their_own_trains(tmp_path):
    """A wrong magic number, a train of another detector, packets twice and out of order, overlapping trains."""
    detector, other = Detector("lpd", modules=2, images=2), Detector("agipd", modules=2, images=1)
    trains = Trains(detector, "--files", tmp_path, "--trains", 2, "--timeout-ms", 300)
    trains.send(0, other.packets(90, 0)[:5])
    damaged = detector.packets(80, 1)
    trains.send(1, [b"\0" * 8 + damaged[0][8:], *damaged[1:4], b"short", bytes(9000)])
    rng = np.random.default_rng(3)
    for module in range(2):
        both = [packet for train in range(2) for packet in detector.packets(train, module)]
        both += [both[3], both[40]]
        trains.send(module, [both[n] for n in rng.permutation(len(both))])
    code, report = trains.finish()
    one, two = report["modules"]
    assert (code, one["other_detector"], two["wrong_magic"], two["malformed"]) == (0, 5, 4, 2)
    assert one["duplicate"] + one["late"] == 2
    for module in range(2):
        for train in range(2):
            data = images_of(tmp_path, detector, module, FIRST_ID + train)["data"]
            np.testing.assert_array_equal(data, detector.pixels(train, module))


def test_files_go_on_with_the_next_sequence_and_replace_nothing(tmp_path):
    detector = Detector("dssc", modules=1, images=1)
    for again in range(2):
        options = ["--files", tmp_path, "--trains", 5, "--trains-per-file", 2]
        if again:
            with pytest.raises(AssertionError, match="exists"):
                Trains(detector, *options)
            continue
        trains = Trains(detector, *options)
        for train in range(5):
            trains.send_train(train)
        assert trains.finish()[0] == 0
    rows = [list(file_of(tmp_path, detector, 0, n)["INDEX/trainId"][:] - FIRST_ID) for n in range(3)]
    assert rows == [[0, 1], [2, 3], [4]]


class Listener:
    """Reads a port while others send, because the buffer of a socket holds less than a train."""

    def __init__(self, port):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", port))
        self.datagrams = []
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        while True:
            self.datagrams.append(self.socket.recv(9000))

    def trains(self, count):
        """The trains in so many datagrams by frame number."""
        wait_until(lambda: len(self.datagrams) >= count, what=f"{count} datagrams")
        assert len(self.datagrams) == count
        found = {}
        for datagram in self.datagrams:
            frame, word = struct.unpack("<II", datagram[-8:])
            found.setdefault(frame, {})[word & 0x3FFF_FFFF] = datagram[:-8]
        return {frame: b"".join(parts[n] for n in sorted(parts)) for frame, parts in found.items()}


def wait_until(condition, what, timeout=20):
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end, f"{what} did not come"
        time.sleep(0.02)


@pytest.mark.parametrize("policy", ["round-robin", "credits"])
def test_trains_go_on_to_outputs(policy):
    """Two outputs, each with a port for each module. A missing module is sent as a train without images."""
    detector = Detector("lpd", modules=2, images=1)
    ports = free_ports(4)
    listeners = [Listener(ports + n) for n in range(4)]
    credits = free_ports()
    options = ["--ttp", f"127.0.0.1:{ports}", "--ttp", f"127.0.0.1:{ports + 2}", "--ttp-policy", policy]
    options += ["--credits", f"127.0.0.1:{credits}"] if policy == "credits" else []
    inject = free_ports()
    options += ["--inject", f"tcp://127.0.0.1:{inject}"]
    trains = Trains(detector, *options, "--trains", 4, "--timeout-ms", 300)
    push = zmq.Context.instance().socket(zmq.PUSH)
    push.connect(f"tcp://127.0.0.1:{inject}")
    push.send_json({"train_id": FIRST_ID + 1, "values": {"energy_kev": 9.25}})
    push.send(b"no JSON")
    if policy == "credits":
        # The second output asks for three trains, the first one for none.
        trains.socket.sendto(b"TTPC" + struct.pack("<II", 1, 3), ("127.0.0.1", credits))
    for train in range(4):
        trains.send_train(train, lambda m, p, t=train: (t, m) != (1, 1), pause=0.5)
    code, report = trains.finish()
    assert (code, report["injected"]["malformed"]) == (1, 1)
    assert (report["ttp"]["sent"], report["ttp"]["skipped"]) == (([2, 2], 0) if policy == "round-robin" else ([0, 3], 1))
    of_output = {0: [0, 2], 1: [1, 3]} if policy == "round-robin" else {0: [], 1: [0, 1, 2]}
    for output, expected in of_output.items():
        for module in range(2):
            whole = len(detector.packets(0, module))
            counts = sum(1 if (train, module) == (1, 1) else whole for train in expected)
            found = listeners[2 * output + module].trains(counts)
            assert list(found) == [(FIRST_ID + train) & 0xFFFFFFFF for train in expected]
            for train in expected:
                check_train(detector, found[(FIRST_ID + train) & 0xFFFFFFFF], (train, module, output))


def check_train(detector, data, place):
    """A train that the builder sent on, read by hand."""
    train, module, output = place
    begin, _, _, train_id, _, link, images, specific, own = struct.unpack("<QIIQQQQII", data[:56])
    assert (train_id, link, specific) == (FIRST_ID + train, output << 32 | module, 416)
    assert struct.unpack("<Q", data[-8:]) == (END,)
    pixels = np.frombuffer(data[64 : 64 + images * 131072], "<u2").reshape(images, *SHAPES["lpd"])
    lost = (train, module) == (1, 1)
    assert images == (0 if lost else 1)
    if not lost:
        np.testing.assert_array_equal(pixels, detector.pixels(train, module))
    said = data[-32 - own : -32].decode()
    assert f'"flags":{int(lost)}' in said and ('"energy_kev":9.25' in said) == (train == 1)


def test_a_builder_behind_a_builder_has_the_same_pixels(tmp_path):
    """Our own receiver takes what our own sender sends: the second one writes the files."""
    detector = Detector("lpd", modules=4, images=2)
    second = Trains(detector, "--files", tmp_path, "--order", "wire", "--trains", 3, "--timeout-ms", 1000)
    first = Trains(detector, "--ttp", f"127.0.0.1:{second.first_port}", "--trains", 3)
    for train in range(3):
        first.send_train(train, pause=0.2)
    assert first.finish()[0] == 0 and second.finish()[0] == 0
    for train in range(3):
        for module in range(4):
            found = images_of(tmp_path, detector, module, FIRST_ID + train)
            np.testing.assert_array_equal(found["data"], detector.pixels(train, module))


def test_the_simulator_is_received(tmp_path):
    """`konkordia simulate xfel-train` with losses: the report counts what is missing."""
    detector = Detector("agipd", modules=2, images=20)
    trains = Trains(detector, "--files", tmp_path, "--trains", 5, "--timeout-ms", 1000)
    to = f"127.0.0.1:{trains.first_port}"
    sent = ["simulate", "xfel-train", "--to", to, "--model", "agipd", "--modules", 2, "--images-per-train", 20]
    program(*sent, "--trains", 5, "--rate", 4, "--quiet", check=0)
    code, report = trains.finish()
    assert (code, report["trains"]["complete"]) == (0, 5), report
    assert images_of(tmp_path, detector, 1, FIRST_ID + 4)["data"].shape == (20, 2, 512, 128)


class Program:
    """A program in the path of trains, as docs/trains.md shows it: `judge` gets a train id, and the pixels of a module."""

    def __init__(self, port, judge):
        self.judge, self.seen = judge, []
        self.socket = zmq.Context.instance().socket(zmq.REQ)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.connect(f"tcp://127.0.0.1:{port}")
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        answer = b"next"
        while True:
            self.socket.send(answer)
            parts = [msgpack.unpackb(part) if n % 2 == 0 else part for n, part in enumerate(self.socket.recv_multipart())]
            pixels = next(
                part for head, part in zip(parts[::2], parts[1::2], strict=True) if head.get("path") == "image.data"
            )
            train_id = parts[0]["metadata"]["timestamp.tid"]
            self.seen.append(train_id - FIRST_ID)
            said = self.judge(train_id, np.frombuffer(pixels, "<u2"))
            answer = said if isinstance(said, bytes) else json.dumps({"train_id": train_id, **said}).encode()


def test_programs_add_numbers_and_reject_trains(tmp_path):
    """What a program says is in the files with the train; a rejected train keeps its row, and is no loss."""
    detector = Detector("dssc", modules=2, images=3)
    port = free_ports()

    def judge(train_id, pixels):
        if train_id == FIRST_ID + 4:
            return b"no JSON"
        return {"keep": train_id % 2 == 0, "values": {"brightest": int(pixels.max()), "not/a name": 1}}

    options = ["--files", tmp_path, "--process", f"tcp://127.0.0.1:{port}", "--process-timeout-ms", 5000]
    trains = Trains(detector, *options, "--trains", 6)
    program = Program(port, judge)
    for train in range(6):
        trains.send_train(train)
        wait_until(lambda train=train: train in program.seen, f"train {train} at the program")
    code, report = trains.finish()
    assert (code, report["trains"]["complete"], report["files"]) == (0, 6, 6)
    expected = {"kept": 2, "rejected": 3, "unanswered": 1, "skipped": 0, "late": 0, "malformed": 1, "numbers_refused": 5}
    assert report["process"] == expected
    with h5py.File(tmp_path / "RAW-R0001-TRAINS-S00000.h5") as file:
        data = file[f"INSTRUMENT/{NAMES['dssc']}/TRAINS/BUILDER:output/data"]
        assert list(data["moduleFlags"][:, 0]) == [0, REJECTED, 0, REJECTED, 0, REJECTED]
        brightest = [detector.pixels(train, 0).max() for train in range(6)]
        brightest[4] = np.nan
        np.testing.assert_array_equal(data["injected/brightest"][:], brightest)
        assert list(data["injected"]) == ["brightest"] and not data["lostBefore"][:].any()
        assert list(file["INDEX/flag"][:]) == [1] * 6
    for train in range(6):
        found = images_of(tmp_path, detector, 1, FIRST_ID + train)
        if train % 2:
            assert found is None
        else:
            np.testing.assert_array_equal(found["data"], detector.pixels(train, 1))


def test_a_program_that_hangs_holds_up_nothing(tmp_path):
    """Trains go on as they are when a program takes one and is never heard of again, or none is there."""
    detector = Detector("lpd", modules=1, images=1)
    port = free_ports()
    options = ["--files", tmp_path, "--process", f"tcp://127.0.0.1:{port}", "--process-timeout-ms", 300]
    trains = Trains(detector, *options, "--trains", 5)
    program = Program(port, lambda *_: threading.Event().wait())
    for train in range(5):
        trains.send_train(train)
        wait_until(lambda: program.seen, "a train at the program")
    code, report = trains.finish()
    assert (code, report["files"]) == (0, 5), report
    assert (report["process"]["unanswered"], report["process"]["skipped"]) == (1, 4)
    for train in range(5):
        data = images_of(tmp_path, detector, 0, FIRST_ID + train)["data"]
        np.testing.assert_array_equal(data, detector.pixels(train, 0))


def test_injected_numbers_are_in_the_files(tmp_path):
    """One column for each name, NaN where a train has none, also before its first number and in the next file."""
    detector = Detector("agipd", modules=1, images=1)
    port = free_ports()
    options = ["--files", tmp_path, "--inject", f"tcp://127.0.0.1:{port}", "--trains-per-file", 3]
    trains = Trains(detector, *options, "--trains", 5)
    push = zmq.Context.instance().socket(zmq.PUSH)
    push.connect(f"tcp://127.0.0.1:{port}")
    said = {1: {"energy_kev": 9.25}, 2: {"energy_kev": 9.5, "shutter": 1}, 4: {"shutter": 0}}
    for train, values in said.items():
        push.send_json({"train_id": FIRST_ID + train, "values": values})
    time.sleep(1)
    for train in range(5):
        trains.send_train(train)
    code, report = trains.finish()
    assert (code, report["injected"], report["numbers_without_column"]) == (0, {"malformed": 0, "late": 0, "refused": 0}, 0)
    found = {name: [] for name in ("energy_kev", "shutter")}
    for sequence in range(2):
        with h5py.File(tmp_path / f"RAW-R0001-TRAINS-S{sequence:05}.h5") as file:
            group = file[f"INSTRUMENT/{NAMES['agipd']}/TRAINS/BUILDER:output/data/injected"]
            for name, values in found.items():
                values.extend(group[name][:])
    for name, values in found.items():
        np.testing.assert_array_equal(values, [said.get(train, {}).get(name, np.nan) for train in range(5)])


@pytest.fixture
def disk_that_can_wait(tmp_path):
    """A folder with a file system of its own, which can be held (`frozen`)."""
    folder = tmp_path / "disk"
    folder.mkdir()
    with ext4_over(folder):
        yield folder


def test_a_disk_that_stands_still_costs_whole_trains_which_are_counted(disk_that_can_wait):
    """While the disk waits, the buffers fill, and then trains are refused as `no_room`; what was taken is in the files
    when the disk goes on, every pixel of it, and what was refused is flagged or counted as lost."""
    folder = disk_that_can_wait
    detector = Detector("lpd", modules=2, images=2)
    trains = Trains(detector, "--files", folder, "--timeout-ms", 200, "--buffers", 3)
    for train in range(2):
        trains.send_train(train)
    written = folder / "RAW-R0001-LPD01-S00000.h5"
    wait_until(lambda: written.stat().st_size > 2 * 4 * 65536, "a train on the disk")
    with frozen(folder):
        for train in range(2, 20):
            trains.send_train(train)
        time.sleep(1)
    time.sleep(1)
    for train in range(20, 22):
        trains.send_train(train)
    time.sleep(1)
    code, report = trains.stop()
    modules = report["modules"]
    assert all(module["no_room"] > 0 for module in modules) and code == 1, report
    per_train = len(detector.packets(0, 0))
    for module in modules:
        assert module["no_room"] % per_train == 0 and module["placed"] % per_train == 0, "whole trains"
        assert module["placed"] + module["no_room"] + module["kernel_dropped"] == 22 * per_train
    with h5py.File(folder / "RAW-R0001-TRAINS-S00000.h5") as file:
        ids = list(file["INDEX/trainId"][:] - FIRST_ID)
        flags = file["INDEX/flag"][:]
    assert ids == list(range(22)) and report["files"] == int(flags.sum())
    assert report["trains"]["complete"] + report["trains"]["incomplete"] == report["files"]
    assert report["trains"]["lost"] == 22 - report["files"] > 0
    assert flags[0] and flags[1] and flags[-1]
    found = 0
    for module in range(2):
        for train in range(22):
            images = images_of(folder, detector, module, FIRST_ID + train)
            if images is not None:
                found += 1
                np.testing.assert_array_equal(images["data"], detector.pixels(train, module))
    assert found * per_train == sum(module["placed"] for module in modules)
