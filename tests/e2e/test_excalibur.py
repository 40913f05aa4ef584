"""An EXCALIBUR from its packets to the file, as a user runs it; h5py reads the file. numpy brings the pixels into the
order of docs/protocols.md 9.2, and the packets are made here or by the simulator."""

import socket
import struct

import numpy as np
import pytest

from driving import Bench, Master, balanced, simulate

ROWS, COLUMNS, PACKETS = 256, 2048, 132


def config(bench, fems, images, **tables):
    detector = {"type": "excalibur", "modules": fems, **tables.pop("detector", {})}
    run = {"images": images, "stall_timeout_s": 5, **tables.pop("run", {})}
    return bench.config(streams=fems, detector=detector, run=run, **tables)


def sent_words(stripe, fem):
    """Values of the pixels of a stripe of the image, for both subframes, in the order in which its FEM sends them."""
    upright = stripe[::-1, ::-1] if fem % 2 else stripe
    # Chips from right to left, of which each has its pixels from left to right.
    chips = upright.reshape(ROWS, 8, 256)[:, ::-1]
    subframes = chips.reshape(ROWS, 2, 4, 64, 4).transpose(1, 0, 3, 2, 4)
    return subframes.reshape(2, -1)


def packets(stripe, fem, frame):
    found = []
    for subframe, words in enumerate(sent_words(stripe, fem)):
        data = words.astype("<u2").tobytes()
        for n in range(66):
            mark = {0: 1 << 31, 65: 1 << 30}.get(n, 0)
            trailer = struct.pack("<Q", frame + 1) if n == 65 else b""
            found.append(struct.pack("<II", 2 * frame + subframe, n | mark) + data[8000 * n : 8000 * (n + 1)] + trailer)
    assert len(found) == PACKETS and {len(p) for p in found} == {8008, 4304}
    return found


@pytest.mark.parametrize("lost", [[], [(0, 3), (1, 65), (1, 70), (1, 131)]])
def test_counts_are_where_they_were_measured(tmp_path, lost):
    bench = Bench(tmp_path)
    fems, images = 2, 3
    frames = np.random.default_rng(9).integers(0, 4096, (images, fems * ROWS, COLUMNS), dtype=np.uint16)
    receiver = bench.receive(config(bench, fems, images))
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    expected = frames.copy()
    for frame in range(images):
        for fem in range(fems):
            stripe = slice(fem * ROWS, (fem + 1) * ROWS)
            for n, packet in enumerate(packets(frames[frame, stripe], fem, frame)):
                if frame != 1 or (fem, n) not in lost:
                    sender.sendto(packet, ("127.0.0.1", bench.port + fem))
        if frame + 1 < images:
            receiver.wait_until(lambda progress, wanted=frame: progress["images_committed"] > wanted)
    code, report = receiver.finish()
    balanced(code, report)
    for fem, n in lost:
        places = sent_words(np.arange(ROWS * COLUMNS).reshape(ROWS, COLUMNS), fem)[n // 66]
        places = places[n % 66 * 4000 : (n % 66 + 1) * 4000]
        expected[1, fem * ROWS : (fem + 1) * ROWS].reshape(-1)[places] = 65535
    master = Master(bench.master)
    assert master.images.dtype == np.uint16 and np.array_equal(master.images, expected)
    assert list(master.columns["frame_number"]) == [0, 1, 2]
    trailers = [[1, 1], [2, 0 if lost else 2], [3, 3]]
    assert master.columns["trailer_frame"].tolist() == trailers
    for fem in range(fems):
        missing = [n for n in range(PACKETS) if not master.arrived(1, PACKETS)[fem][n]]
        assert missing == [n for f, n in lost if f == fem]
    assert list(master.columns["status"]) == [1, 2 if lost else 1, 1]


def test_the_simulator_sends_what_is_received(tmp_path):
    bench = Bench(tmp_path)
    receiver = bench.receive(config(bench, 3, 8, processing={"summation": 2}, run={"images": 4}))
    said = simulate("excalibur", "--to", bench.to, "--fems", 3, "--images", 8, "--rate", 5, "--first-frame", 11)
    assert said["packets_sent"] == said["packets_expected"] == 8 * 3 * PACKETS
    code, report = receiver.finish()
    assert code == 0 and report["balances"] and report["images"]["complete"] == 4
    master = Master(bench.master)
    assert master.images.shape == (4, 3 * ROWS, COLUMNS) and master.images.dtype == np.uint32
    # Sums of two random numbers of 12 bits.
    assert master.images.max() <= 2 * 4095 and abs(master.images.mean() - 4095) < 10
    assert list(master.columns["frame_number"]) == [11, 13, 15, 17]
