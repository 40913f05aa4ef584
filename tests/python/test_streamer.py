"""`konkordia.Streamer` makes a stream that the real service takes into files, waits or drops where the receiver is slow, and
goes on with a receiver that comes back."""

import ast
import multiprocessing
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import cbor2
import h5py
import hdf5plugin  # noqa: F401  registers the filters
import konkordia
import numpy as np
import pytest
import zmq
from driving import free_ports, program
from streams import SeriesFile, StreamService, pictures, unpacked

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples/streamer.py"
SHAPE = (24, 40)
WAIT_S = 20


def taker(url, hwm=1000):
    context = zmq.Context()
    socket = context.socket(zmq.PULL)
    socket.linger, socket.rcvtimeo, socket.rcvhwm, socket.rcvbuf = 0, 20_000, hwm, 4096
    socket.connect(url)
    return context, socket


def until(condition, timeout_s=WAIT_S):
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_the_example_has_40_lines_and_makes_a_file_of_1000_images(tmp_path):
    assert len(EXAMPLE.read_text().splitlines()) <= 40
    address = f"tcp://127.0.0.1:{free_ports()}"
    service = StreamService(tmp_path, connect_to=address)
    try:
        done = subprocess.run(
            [sys.executable, EXAMPLE, address, "1000"], env={"PYTHONPATH": str(ROOT / "python")}, capture_output=True, text=True, timeout=60, check=True
        )
        assert re.search(r"^1000 images sent, 0 dropped, [\d.]+ MB$", done.stdout, re.M), done.stdout
        status = service.taken(1, timeout=30)
        assert status["images_committed"] == 1000 and status["images_lost"] == 0
    finally:
        service.close()
    background = np.random.default_rng(1).poisson(3, (512, 1024)).astype(np.uint16)
    written = konkordia.open(status["file"])
    with h5py.File(status["file"]) as file:
        data = file["/entry/data/data_000001"]
        assert len(written) == 1000 and data.dtype == np.uint16
        for number in range(0, len(data), 37):
            expected = background.copy()
            expected[number % 512] = number
            assert np.array_equal(data[number], expected) and np.array_equal(written[number], expected), number
    assert written.geometry is None and "energy" not in written.geometry_missing
    program("check", status["file"], check=0)


@pytest.mark.parametrize(("protocol", "channels"), [("stins", ()), ("stream2", ()), ("stream2", ("threshold_1", "threshold_2"))])
@pytest.mark.parametrize("compression", [None, "bslz4"])
def test_the_service_writes_what_was_sent(tmp_path, protocol, channels, compression):
    shape = (len(channels), *SHAPE) if channels else SHAPE
    images = pictures(20, shape=shape, dtype="uint32")
    with konkordia.Streamer(
        "tcp://127.0.0.1:*", protocol=protocol, channels=channels, shape=SHAPE, dtype="uint32", compression=compression
    ) as out:
        service = StreamService(tmp_path, protocol, connect_to=out.url)
        out.series(20, filename="mine.h5", metadata={"sample_name": "λ"}, number=4)
        for number, image in enumerate(images):
            # The memory is used again at once.
            assert out.send(image, metadata={"position_um": number}, times=konkordia.Times(0.1 * number, 0.1 * number + 0.05, 0.05))
            image += 1
        out.end()
        try:
            file = service.file(1)
        finally:
            service.close()
    file.equals([image - 1 for image in images])
    assert file.path.name.startswith("mine") and (out.sent, out.dropped, out.waiting) == (20, 0, 0)
    assert out.bytes_sent > 0 and "20 images sent" in repr(out)


def test_messages_are_those_that_other_decoders_read():
    images = pictures(2)
    with konkordia.Streamer("tcp://127.0.0.1:*", shape=SHAPE, dtype="uint16", compression="bslz4") as out:
        context, socket = taker(out.url)
        out.series(2)
        for image in images:
            out.send(image)
        out.end()
        messages = [socket.recv_multipart() for _ in range(4)]
        context.destroy()
    start, first, second, end = (ast.literal_eval(message[0].decode()) for message in messages)
    assert [said["htype"] for said in (start, first, second, end)] == ["header", "image", "image", "series_end"]
    assert [said["msg_number"] for said in (start, first, second, end)] == [0, 1, 2, 3]
    assert np.array_equal(unpacked(messages[2][1], "uint16", SHAPE), images[1]) and second["frame"] == 1
    with konkordia.Streamer("tcp://127.0.0.1:*", shape=SHAPE, dtype="uint16", protocol="stream2") as out:
        context, socket = taker(out.url)
        out.series(1, number=7, metadata={"photon_energy": 12400.0, "detector_distance": 0.2})
        out.send(images[0], 3)
        out.end()
        start, image, end = (cbor2.loads(socket.recv()) for _ in range(3))
        context.destroy()
    assert (start["type"], start["series_id"], start["number_of_images"], start["image_dtype"]) == ("start", 7, 1, "uint16")
    assert start["incident_energy"] == 12400.0 and start["image_size_x"] == 40
    assert image["image_id"] == 3 and image["data"]["threshold_1"].value[1].value == images[0].tobytes() and end["type"] == "end"


def test_a_slow_receiver_holds_back_who_waits():
    big = np.zeros((512, 1024), np.uint16)
    with konkordia.Streamer("tcp://127.0.0.1:*", shape=big.shape, dtype="uint16", queue_images=4, linger_s=20) as out:
        out.series()
        for _ in range(4):
            assert out.send(big, timeout_s=0.1)
        # Nobody is there.
        begun = time.monotonic()
        with pytest.raises(TimeoutError, match="queue of 4 images was full for 0.2 s: no receiver is connected"):
            out.send(big, timeout_s=0.2)
        assert 0.2 <= time.monotonic() - begun < 5 and (out.waiting, out.sent, out.dropped) == (4, 0, 1)
        context, socket = taker(out.url, hwm=1)
        until(lambda: out.receivers == 1)
        numbers, waited = [], 0

        def take():
            while b'"series_end"' not in (message := socket.recv_multipart())[0]:
                if b'"image"' in message[0]:
                    numbers.append(int(re.search(rb'"frame":(\d+)', message[0])[1]))
                    time.sleep(0.005)

        thread = threading.Thread(target=take)
        thread.start()
        for _ in range(36):
            begun = time.monotonic()
            out.send(big)
            waited += time.monotonic() - begun > 0.002
            assert out.waiting <= 4
        out.end()
        thread.join(WAIT_S)
        # The one that was dropped has left its number.
        assert numbers == [n for n in range(41) if n != 4] and waited > 10 and out.sent == 40
        context.destroy()


def test_a_slow_receiver_loses_what_is_dropped():
    big = np.zeros((512, 1024), np.uint16)
    with konkordia.Streamer("tcp://127.0.0.1:*", shape=big.shape, dtype="uint16", queue_images=2, full="drop", linger_s=20) as out:
        frames = konkordia.stream(out.url, timeout_s=WAIT_S, queue_messages=1)
        until(lambda: out.receivers == 1)
        out.series()
        taken = [out.send(big) for _ in range(200)]
        assert not all(taken) and out.dropped == taken.count(False)
        # The first that nobody had to wait for; the last one is sent when there is room.
        found = []
        thread = threading.Thread(target=lambda: found.extend(frame.number for frame in frames))
        thread.start()
        until(lambda: out.waiting == 0)
        assert out.send(big, 200)
        out.end()
        thread.join(WAIT_S)
    assert found == [n for n, is_taken in enumerate(taken) if is_taken] + [200]
    assert frames.lost == out.dropped and out.sent == len(found) == 201 - out.dropped


def test_a_receiver_that_comes_back_gets_the_start_and_what_waits(tmp_path):
    images = pictures(30)
    with konkordia.Streamer("tcp://127.0.0.1:*", shape=SHAPE, dtype="uint16") as out:
        first = StreamService(tmp_path, connect_to=out.url)
        out.series(filename="a.h5")
        for image in images[:10]:
            out.send(image)
        first.until(lambda status: status["images_committed"] == 10)
        first.close()
        until(lambda: out.receivers == 0)
        for image in images[10:]:
            out.send(image)
        assert out.waiting == 20
        (tmp_path / "second").mkdir()
        second = StreamService(tmp_path, connect_to=out.url, output_folder=tmp_path / "second")
        out.end()
        try:
            status = second.taken(1, severity="warning")
        finally:
            second.close()
    assert out.sent == 30 and status["images_committed"] == 30 and status["images_lost"] == 10, status
    SeriesFile(status["file"], check=None).equals([None] * 10 + images[10:])


def test_a_series_that_is_aborted_ends_the_file(tmp_path):
    images = pictures(50)
    with pytest.raises(ZeroDivisionError), konkordia.Streamer("tcp://127.0.0.1:*", shape=SHAPE, dtype="uint16") as out:
        service = StreamService(tmp_path, connect_to=out.url)
        until(lambda: out.receivers == 1)
        out.series(50)
        for image in images[:12]:
            out.send(image)
        until(lambda: out.waiting == 0)
        raise ZeroDivisionError
    try:
        file = service.file(1)
    finally:
        service.close()
    file.equals(images[:12])
    with konkordia.Streamer("tcp://127.0.0.1:*", shape=SHAPE, dtype="uint16") as out:
        out.series()
        for image in images[:12]:
            out.send(image)
        out.abort()
        until(lambda: (out.waiting, out.dropped, out.sent) == (0, 12, 0))
        with konkordia.stream(out.url, timeout_s=WAIT_S) as frames:
            assert list(frames) == [] and frames.start is not None


def test_what_nobody_takes_is_told_at_the_end():
    begun = time.monotonic()
    with pytest.raises(TimeoutError, match="3 images were not taken from tcp://127.0.0.1:.* within 0.3 s: no receiver is connected"):
        with konkordia.Streamer("tcp://127.0.0.1:*", shape=SHAPE, dtype="uint16", linger_s=0.3) as out:
            out.series()
            for image in pictures(3):
                out.send(image)
    assert time.monotonic() - begun < 5 and out.dropped == 3
    with pytest.raises(konkordia.KonkordiaError, match="closed"):
        out.series()
    out.close()


def test_frames_in_any_layout_of_the_right_type(tmp_path):
    image = pictures(1, shape=(40, 48))[0]
    with konkordia.Streamer("tcp://127.0.0.1:*", shape=(20, 24), dtype="uint16", compression="bslz4") as out:
        frames = konkordia.stream(out.url, timeout_s=WAIT_S)
        with pytest.raises(konkordia.KonkordiaError, match="no series") as raised:
            out.send(image[::2, ::2])
        assert "series()" in raised.value.hint
        out.series()
        out.send(image[::2, ::2])
        out.send(np.asfortranarray(image[::2, ::2]))
        out.send(image[::2, ::2].astype(">u2"))
        for wrong in (image[:20, :24].astype("int16"), image[:20, :24].astype("float64")):
            with pytest.raises(TypeError, match=r"give frame.astype\('uint16'\)"):
                out.send(wrong)
        with pytest.raises(ValueError, match=r"frames have shape \(20, 24\), and this one \(40, 48\)"):
            out.send(image)
        with pytest.raises(TypeError, match="not list"):
            out.send([[1]])
        with pytest.raises(ValueError, match="numbered from 0"):
            out.send(image[::2, ::2], -1)
        with pytest.raises(ValueError, match="JSON"):
            out.send(image[::2, ::2], metadata={"a": float("nan")})
        out.end()
        assert all(np.array_equal(frame.image, image[::2, ::2]) for frame in frames)
        assert frames.received == 3


def test_settings_that_make_no_sense():
    def refused(match, address="tcp://127.0.0.1:*", error=ValueError, **settings):
        with pytest.raises(error, match=match):
            konkordia.Streamer(address, **{"shape": SHAPE, "dtype": "uint16", **settings})

    refused('sends "stins" or "stream2", not "stream1"'.replace('"stream1"', "'stream1'"), protocol="stream1")
    refused("whole numbers of 8, 16 and 32 bits; float32 is none", protocol="stream2", dtype="float32")
    refused("no images of dtype complex128", dtype="complex128")
    refused("no images of shape", shape=(0, 5))
    refused('full is "wait" or "drop"', full="maybe")
    refused("1 or more", queue_images=0)
    refused("packed by: none, bslz4", compression="gzip")
    refused("cannot listen at 'tcp://nowhere.invalid:1'", address="tcp://nowhere.invalid:1")
    with konkordia.Streamer("tcp://127.0.0.1:*", shape=SHAPE, dtype="uint16") as out:
        refused("Address already in use", address=out.url)


def in_a_fork(out, told):
    try:
        out.send(np.zeros(SHAPE, np.uint16))
    except konkordia.KonkordiaError as error:
        told.put(str(error))
    out.close()


def test_threads_may_share_it_and_forks_may_not():
    with konkordia.Streamer("tcp://127.0.0.1:*", shape=SHAPE, dtype="uint16", compression="bslz4", queue_images=3) as out:
        frames = konkordia.stream(out.url, timeout_s=WAIT_S)
        out.series()
        images = pictures(40)
        send = lambda part: [out.send(images[n], n) for n in range(part, 40, 4)]  # noqa: E731
        threads = [threading.Thread(target=send, args=[part]) for part in range(4)]
        context = multiprocessing.get_context("fork")
        told = context.Queue()
        child = context.Process(target=in_a_fork, args=(out, told))
        child.start()
        assert "made by another process" in told.get(timeout=10)
        child.join(10)
        for thread in threads:
            thread.start()
        found = []
        taking = threading.Thread(target=lambda: found.extend(frames))
        taking.start()
        for thread in threads:
            thread.join()
        out.end()
        taking.join(WAIT_S)
        assert sorted(frame.number for frame in found) == list(range(40)) and all(np.array_equal(frame.image, images[frame.number]) for frame in found)
