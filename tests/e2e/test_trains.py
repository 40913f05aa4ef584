"""`konkordia trains` from packets to files and onward packets, read here with h5py and struct; what EXtra-data and the
client of karabo-bridge make of it is in tests/peers/test_trains.py."""

import socket
import struct
import threading
import time

import h5py
import numpy as np
import pytest
import zmq

from driving import free_ports, program
from trains import DATA, END, FIRST_ID, NAMES, SHAPES, Detector, Trains

MISSING, PARTIAL, HEADER_INFERRED, LISTS_INFERRED = 1, 2, 4, 8


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
