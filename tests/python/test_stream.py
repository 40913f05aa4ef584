"""`konkordia.stream` gives the images that senders of every protocol sent, counts what is missing, and survives whatever
else comes."""

import asyncio
import json
import multiprocessing
import os
import signal
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import bitshuffle
import cbor2
import konkordia
import numpy as np
import pytest
import zmq
from driving import BINARY, free_ports
from konkordia import _native
from streams import Stins, StreamService, bslz4, messages_of, pictures, unpacked
from test_client import in_a_loop

ROOT = Path(__file__).resolve().parents[2]
SEEDS = ROOT / "fuzz/seeds"
FOLDERS = {"stins": "stins", "stream1": "dectris_v1", "stream2": "dectris_v2", "sls": "sls_json"}
WAIT_S = 20


class Sender:
    """A socket that listens and sends what it is told. Each stream has one of its own: what is sent while an earlier
    receiver goes away may be lost with it."""

    def __init__(self, kind=zmq.PUSH):
        self.context = zmq.Context()
        self.socket = self.context.socket(kind)
        self.socket.linger, self.socket.sndtimeo = 0, 10_000
        self.url = f"tcp://127.0.0.1:{self.socket.bind_to_random_port('tcp://127.0.0.1')}"

    def send(self, *messages):
        for message in messages:
            self.socket.send_multipart(message)

    def close(self):
        self.context.destroy(linger=0)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


@pytest.fixture
def sender():
    made = Sender()
    yield made
    made.close()


def captured(*options):
    """The messages that `konkordia stream` sends, received by pyzmq alone."""
    port = free_ports()
    context = zmq.Context()
    socket = context.socket(zmq.PULL)
    socket.rcvtimeo, socket.rcvhwm = 20_000, 10_000
    socket.connect(f"tcp://127.0.0.1:{port}")
    process = subprocess.Popen([BINARY, "stream", "--to", f"tcp://127.0.0.1:{port}", *map(str, options)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    found = []
    try:
        while not found or not is_end(found[-1]):
            found.append(socket.recv_multipart())
    finally:
        process.kill()
        process.communicate()
        context.destroy(linger=0)
    return found


def is_end(message):
    if message[0][:3] == b"\xd9\xd9\xf7":
        return cbor2.loads(message[0])["type"] == "end"
    return b"series_end" in message[0]


def truth(message):
    """Number and channels of an image, decoded by other people's programs; None for other messages."""
    if message[0][:3] == b"\xd9\xd9\xf7":
        said = cbor2.loads(message[0])
        return None if said["type"] != "image" else (said["image_id"], {name: typed(tag) for name, tag in said["data"].items()})
    first = json.loads(message[0])
    if first["htype"] == "image":
        packed = first["compression"] == "bslz4"
        pixels = unpacked(message[1], first["type"], first["shape"]) if packed else np.frombuffer(message[1], first["type"]).reshape(first["shape"])
        return first["frame"], {"": pixels}
    if first["htype"] == "dimage-1.0":
        described = json.loads(message[1])
        packed, shape = "lz4" in described["encoding"], described["shape"][::-1]
        pixels = unpacked(message[2], described["type"], shape) if packed else np.frombuffer(message[2], described["type"]).reshape(shape)
        return first["frame"], {"": pixels}
    return None


def typed(tag):
    shape, array = tag.value
    dtype = {64: "uint8", 69: "uint16", 70: "uint32"}[array.tag]
    if isinstance(array.value, bytes):
        return np.frombuffer(array.value, dtype).reshape(shape)
    algorithm, _, data = array.value.value
    assert algorithm == "bslz4"
    return unpacked(data, dtype, shape)


CAPTURES = [
    ("stins", ["--compression", "none", "--dtype", "float32"]),
    ("stins", ["--compression", "bslz4"]),
    ("stream1", ["--compression", "bslz4", "--dtype", "uint32"]),
    ("stream1", ["--compression", "none"]),
    ("stream2", ["--compression", "bslz4", "--channels", "3"]),
    ("stream2", ["--compression", "none"]),
]


@pytest.mark.parametrize(("protocol", "options"), CAPTURES)
def test_images_are_those_that_other_decoders_see(protocol, options):
    messages = captured("--protocol", protocol, "--shape", "100x130", "--images", 20, *options)
    expected = [found for message in messages if (found := truth(message)) is not None]
    assert len(expected) == 20
    for said in (None, protocol):
        with Sender() as sender, konkordia.stream(sender.url, protocol=said, timeout_s=WAIT_S) as stream:
            sender.send(*messages)
            found = list(stream)
        assert stream.protocol == protocol and stream.received == 20 and stream.lost == stream.refused == 0
        for frame, (number, channels) in zip(found, expected, strict=True):
            assert frame.number == number and list(frame.channels) == list(channels) and frame.start is not None and frame.lost == 0
            for name, pixels in channels.items():
                assert frame.channels[name].dtype == pixels.dtype and np.array_equal(frame.channels[name], pixels)
            assert frame.image is frame.channels[next(iter(channels))] and frame.shape == (100, 130)


def test_each_protocol_of_a_service_gives_the_images_and_the_results(tmp_path):
    ports = free_ports(4)
    consumers = [("stins", "push"), ("stream2", "push"), ("sls", "pub"), ("stream2", "pub")]
    extra = "[analysis]\nrecipe = 'recipe.toml'\n" + "".join(
        f'[[stream]]\nname = "c{n}"\naddress = "tcp://127.0.0.1:{ports + n}"\nprotocol = "{protocol}"\nsocket = "{socket}"\nservice = "reliable"\n'
        for n, (protocol, socket) in enumerate(consumers)
    )
    (tmp_path / "recipe.toml").write_text('[spots]\nmethod = "dispersion"\n')
    images = [np.full((64, 80), 2, np.uint16) for _ in range(12)]
    for n, image in enumerate(images):
        image[20:23, 5 + n : 8 + n] = 500
    # Of a STINS source, Stream V2 carries what came with the images in place of results.
    source = konkordia.Streamer("tcp://127.0.0.1:*", protocol="stream2", shape=(64, 80), dtype="uint16", compression="bslz4")
    service = StreamService(tmp_path, "stream2", connect_to=source.url, extra=extra)
    streams = [konkordia.stream(f"tcp://127.0.0.1:{ports + n}", timeout_s=WAIT_S) for n in range(len(consumers))]
    try:
        service.until(lambda _: all(c["connected"] for c in service.statistics()["consumers"]))
        # A publisher has no news of subscribers; they have to arrive.
        time.sleep(0.3)
        with source:
            source.series(12, metadata={"photon_energy": 12400.0, "detector_distance": 0.1})
            for image in images:
                source.send(image)
        for stream, (protocol, _) in zip(streams, consumers, strict=True):
            found = list(stream)
            assert stream.protocol == protocol and [frame.number for frame in found] == list(range(12)), (stream, service.log)
            for frame, image in zip(found, images, strict=True):
                assert np.array_equal(frame.image, image)
                assert frame.results["spots"] == 1 and frame.results["is_analysed"] == 1
                assert frame.spots["x_px"].tolist() == [frame.number + 6.0] and frame.spots["y_px"].tolist() == [21.0]
            if protocol == "stream2":
                assert found[0].start.facts["energy_kev"] == 12.4 and found[0].start.facts["distance_mm"] == 100.0
        assert service.taken(1)["images_committed"] == 12
    finally:
        for stream in streams:
            stream.close()
        service.close()


def test_a_series_ends_the_loop_and_the_next_loop_has_the_next_series(sender):
    stins, images = Stins(), pictures(6)
    with konkordia.stream(sender.url, timeout_s=WAIT_S) as stream:
        # The second series has no end, and the third begins.
        sender.send(*stins.series(images[:2]), stins.start(metadata={"a": [1, "ü"]}), stins.image(0, images[2]), *stins.series(images[3:5]))
        assert [frame.number for frame in stream] == [0, 1]
        (frame,) = stream
        assert np.array_equal(frame.image, images[2]) and frame.start.metadata == {"a": [1, "ü"]}
        assert [frame.number for frame in stream] == [0, 1]
    assert list(stream) == []
    with Sender() as sender, konkordia.stream(sender.url, timeout_s=1, follow=True) as stream:
        sender.send(*stins.series(images[:2]), *stins.series(images[:3]))
        found = []
        with pytest.raises(TimeoutError, match="for 1 s: the sender is connected"):
            for frame in stream:
                found.append(frame.number)  # noqa: PERF401  The loop ends with an error.
        assert found == [0, 1, 0, 1, 2]


def test_images_that_are_missing_are_counted(sender):
    stins, images = Stins(), pictures(10)
    messages = stins.series(images)
    with konkordia.stream(sender.url, timeout_s=WAIT_S) as stream:
        sender.send(*(message for n, message in enumerate(messages) if n not in (1, 4, 5, 10)))
        found = list(stream)
    # Messages 1 to 10 are the images; the last one shows only in the number of the end.
    assert [(frame.number, frame.lost) for frame in found] == [(1, 1), (2, 0), (5, 2), (6, 0), (7, 0), (8, 0)]
    assert stream.lost == 4 and "4 lost" in repr(stream)
    with Sender() as sender, konkordia.stream(sender.url, timeout_s=WAIT_S) as stream:
        # Who comes in mid-series does not know what was sent before.
        sender.send(*messages[5:])
        found = list(stream)
        assert [(frame.number, frame.lost, frame.start) for frame in found] == [(n, 0, None) for n in range(4, 10)] and stream.lost == 0
        # An end of something else is no end.
        sender.send(stins.end(), *stins.series(images[:1]))
        assert len(list(stream)) == 1


@pytest.mark.parametrize("protocol", FOLDERS)
def test_damaged_messages_are_errors_and_the_loop_goes_on(sender, protocol):
    seeds = [message for path in sorted((SEEDS / FOLDERS[protocol]).iterdir()) for message in messages_of(path)]
    sender = Sender(zmq.XPUB) if protocol == "sls" else sender
    errors, read = [], []
    with konkordia.stream(sender.url, protocol=protocol, timeout_s=0.5, follow=True, on_error=errors.append) as stream:
        if protocol == "sls":
            assert sender.socket.recv() == b"\x01"
        sending = threading.Thread(target=sender.send, args=list(mutilated(seeds)))
        sending.start()
        with pytest.raises(TimeoutError):
            for frame in stream:
                read.append(read_through(frame))
        sending.join()
    assert stream.refused == len(errors) > 20
    assert all(isinstance(error, konkordia.KonkordiaError) and error.hint and error.exit_code == 1 for error in errors)
    sender.close()


def read_through(frame):
    """Everything that a frame can give, or the error."""
    try:
        return frame.number, [channel.sum() for channel in frame.channels.values()], frame.results, frame.spots, repr(frame)
    except konkordia.KonkordiaError as error:
        assert error.hint
        return str(error)


def mutilated(messages):
    """Cut, lengthened, exchanged, flipped and foreign messages."""
    rng = np.random.default_rng(5)
    for message in messages:
        yield message[:-1] or [b""]
        yield [*message, b"more"]
        yield message[::-1]
        for part in range(len(message)):
            content = message[part]
            for changed in (content[: len(content) // 2], b"", content + b"x", b"\xff" * 8 + content[8:], flipped(content, rng)):
                yield [*message[:part], changed, *message[part + 1 :]]
    yield [b"\xd9\xd9\xf7\xbf"]
    yield [b"\x9f" * 1000]
    yield [b"[" * 100_000]
    yield [b'{"htype":"image","msg_number":1,"frame":0,"shape":[4294967295,4294967295],"type":"uint64","compression":"bslz4"}', bytes(12)]


def flipped(content, rng):
    if not content:
        return b"\x00"
    changed = bytearray(content)
    for at in rng.integers(0, len(content), 3):
        changed[at] ^= int(rng.integers(1, 256))
    return bytes(changed)


def test_without_a_handler_a_damaged_message_is_raised_and_the_next_loop_goes_on(sender):
    stins, images = Stins(), pictures(3)
    start, first, second, third, end = stins.series(images)
    broken = [second[0], second[1][:-1]]
    with konkordia.stream(sender.url, timeout_s=WAIT_S) as stream:
        sender.send([b"nonsense"], start, first, broken, third, end)
        with pytest.raises(konkordia.KonkordiaError, match="of no protocol that is known") as raised:
            next(iter(stream))
        assert "stream2" in raised.value.hint
        found = []
        with pytest.raises(konkordia.KonkordiaError, match="has 1920 bytes, but 1919 came"):
            for frame in stream:
                found.append(frame.number)
        found.extend(frame.number for frame in stream)
    assert found == [0, 2] and stream.refused == 2 and stream.lost == 1


def test_the_wrong_protocol_is_named(sender):
    with konkordia.stream(sender.url, protocol="stream2", timeout_s=WAIT_S) as stream:
        sender.send(Stins().start())
        with pytest.raises(konkordia.KonkordiaError) as raised:
            next(iter(stream))
    assert 'it seems to be one of protocol "stins"' in raised.value.hint
    with pytest.raises(ValueError, match='there is no protocol "other"; there are: stins, stream1, stream2, sls'):
        konkordia.stream(sender.url, protocol="other")


def test_damaged_pixels_are_an_error_of_that_image(sender):
    stins, images = Stins(), pictures(3, shape=(64, 64))
    messages = stins.series(images, pack=bslz4)
    messages[2][1] = messages[2][1][:40] + b"\xff" * (len(messages[2][1]) - 40)
    with konkordia.stream(sender.url, timeout_s=WAIT_S) as stream:
        sender.send(*messages)
        found = list(stream)
    assert np.array_equal(found[0].image, images[0]) and np.array_equal(found[2].image, images[2])
    with pytest.raises(konkordia.KonkordiaError, match="the pixels of image 1 are damaged"):
        found[1].image
    assert "damaged" in found[1]._repr_html_() and "data:image/png" in found[0]._repr_html_()


def test_pixels_go_into_the_array_that_is_given(sender):
    images = pictures(1, shape=(64, 64))
    with konkordia.stream(sender.url, timeout_s=WAIT_S) as stream:
        sender.send(*Stins().series(images, pack=bslz4, real_time=5))
        (frame,) = stream
    out = np.empty((64, 64), np.uint16)
    assert frame.read(out) is out and np.array_equal(out, images[0])
    assert frame.metadata["real_time"] == 5 and frame.results == {} and frame.spots is None
    for wrong in (np.empty((64, 64), np.int16), np.empty((64, 65), np.uint16), np.empty((128, 64), np.uint16)[::2], np.empty((64, 64), ">u2")):
        with pytest.raises((ValueError, TypeError), match="out must be|dtype"):
            frame.read(wrong)
    out.setflags(write=False)
    with pytest.raises(ValueError, match="writeable"):
        frame.read(out)
    with pytest.raises(KeyError, match="there is no channel 'threshold_1'"):
        frame.channels["threshold_1"]


def test_large_parts_stay_in_the_memory_of_their_message():
    image = np.arange(1 << 16, dtype=np.uint16).reshape(256, 256)
    first, pixels = Stins().image(0, image)
    lent = np.frombuffer(bytearray(pixels), np.uint8)
    before = sys.getrefcount(lent)
    *_, native = _native.StreamDecoder("stins", 1 << 30).read([first, lent])
    assert sys.getrefcount(lent) == before + 1
    out = np.empty((256, 256), np.uint16)
    native.unpack(0, out)
    assert np.array_equal(out, image)
    del native
    assert sys.getrefcount(lent) == before


def test_other_packings(sender):
    rng = np.random.default_rng(3)
    image = rng.integers(0, 4096, (30, 40)).astype(np.uint16)
    stins = Stins()

    def packed(number, bits):
        described = {"htype": "image", "frame": number, "shape": [30, 40], "type": f"mono{bits}p", "compression": "none"}
        each = np.unpackbits(image.astype("<u2").view(np.uint8).reshape(-1, 2), axis=1, bitorder="little")[:, :bits]
        return stins._message(described, np.packbits(each, bitorder="little").tobytes())

    pieces = stins.image(2, image, pieces=3, pack=bslz4)
    bare = stins.image(3, image, pack=lambda pixels: bslz4(pixels, header=False))
    with konkordia.stream(sender.url, timeout_s=WAIT_S) as stream:
        sender.send(stins.start(), packed(1, 12), pieces, bare, packed(4, 14), stins.end())
        found = list(stream)
    assert [frame.number for frame in found] == [1, 2, 3, 4] and all(np.array_equal(frame.image, image) for frame in found)


def test_the_start_of_a_series_says_what_is_known(sender):
    mask = np.zeros((20, 30), np.uint32)
    mask[3, 4] = 8
    start = {
        "type": "start", "series_id": 7, "series_unique_id": "01A", "arm_date": cbor2.CBORTag(0, "2026-11-21T12:00:00+01:00"),
        "beam_center_x": 10.5, "beam_center_y": 5.5, "channels": ["threshold_1"], "count_time": 0.01, "image_dtype": "uint16",
        "image_size_x": 30, "image_size_y": 20, "number_of_images": 5, "incident_energy": 12400.0, "pixel_size_x": 75e-6,
        "pixel_size_y": 75e-6, "detector_translation": [0.0, 0.0, 0.1], "threshold_energy": {"threshold_1": 6200.0},
        "pixel_mask": {"threshold_1": cbor2.CBORTag(40, [[20, 30], cbor2.CBORTag(70, mask.tobytes())])},
        "user_data": {"filename": "µ.h5"},
    }  # fmt: skip
    image = {
        "type": "image", "series_id": 7, "series_unique_id": "01A", "image_id": 0, "real_time": [1, 100], "start_time": [5, 10], "stop_time": [51, 100],
        "series_date": cbor2.CBORTag(0, "2026-11-21T12:00:05+01:00"), "user_data": {"spots": 3},
        "data": {"threshold_1": cbor2.CBORTag(40, [[20, 30], cbor2.CBORTag(69, bytes(1200))])},
    }  # fmt: skip
    end = {"type": "end", "series_id": 7, "series_unique_id": "01A"}
    with konkordia.stream(sender.url, timeout_s=WAIT_S) as stream:
        sender.send(*([b"\xd9\xd9\xf7" + cbor2.dumps(said)] for said in (start, image, end)))
        (frame,) = stream
    said = frame.start
    assert (said.series, said.unique_id, said.images, said.shape, said.dtype, said.filename) == (7, "01A", 5, (20, 30), "uint16", "µ.h5")
    assert said.channels == ["threshold_1"] and said.thresholds_ev == {"threshold_1": 6200.0}
    assert np.array_equal(said.pixel_mask("threshold_1"), mask) and said.flat_field() is None and said.warnings == []
    assert said.facts["beam_center_px"] == [10.5, 5.5] and said.facts["distance_mm"] == 100.0 and said.facts["exposure_s"] == 0.01
    geometry = said.geometry()
    assert geometry.distance_mm == pytest.approx(100) and geometry.shape == (20, 30)
    assert frame.results == {"spots": 3} and frame.times == pytest.approx((0.5, 0.51, 0.01)) and frame.series == 7
    found = konkordia.find_spots(frame.image, geometry=geometry, mask=mask != 0)
    assert len(found) == 0
    with Sender() as sender, konkordia.stream(sender.url, timeout_s=WAIT_S) as stream:
        sender.send(*Stins().series(pictures(1)))
        (frame,) = stream
    with pytest.raises(konkordia.KonkordiaError, match="no geometry"):
        frame.start.geometry((24, 40))


def test_nobody_is_there_and_addresses_that_are_none():
    url = f"tcp://127.0.0.1:{free_ports()}"
    begun = time.monotonic()
    with konkordia.stream(url, timeout_s=0.3) as stream, pytest.raises(TimeoutError, match="0.3 s: nobody is there"):
        list(stream)
    assert time.monotonic() - begun < 3
    for wrong in ("nonsense", "http://127.0.0.1:80", "tcp://127.0.0.1:no", ""):
        with pytest.raises(ValueError, match="an address is like tcp://host:9999"):
            konkordia.stream(wrong)
    with pytest.raises(ValueError, match="1 or more"):
        konkordia.stream(url, queue_messages=0)


def test_a_sender_that_dies_is_told(sender):
    with konkordia.stream(sender.url, timeout_s=1) as stream:
        sender.send(*Stins().series(pictures(3))[:3])
        frames = iter(stream)
        assert [next(frames).number, next(frames).number] == [0, 1]
        sender.close()
        with pytest.raises(TimeoutError, match="after image 1 of series 0: the sender has gone away"):
            next(frames)


def test_senders_may_connect_and_publish():
    with konkordia.stream("tcp://127.0.0.1:*", bind=True, timeout_s=WAIT_S) as stream:
        context = zmq.Context()
        socket = context.socket(zmq.PUSH)
        socket.connect(stream.url)
        for message in Stins().series(pictures(2)):
            socket.send_multipart(message)
        assert len(list(stream)) == 2
        context.destroy(linger=0)
    publisher = Sender(zmq.XPUB)
    with konkordia.stream(publisher.url, timeout_s=WAIT_S) as stream:
        assert publisher.socket.recv() == b"\x01"
        (seed,) = messages_of(SEEDS / "sls_json/image")
        (end,) = messages_of(SEEDS / "sls_json/end")
        publisher.send(seed, end)
        (frame,) = stream
        assert stream.protocol == "sls" and frame.image.ndim == 2 and frame.start.metadata["jsonversion"] in (4, 5)
    publisher.close()


def test_another_thread_may_close_it(sender):
    stream = konkordia.stream(sender.url)
    found = []
    thread = threading.Thread(target=lambda: found.append(list(stream)))
    thread.start()
    time.sleep(0.2)
    with pytest.raises(konkordia.KonkordiaError, match="somebody else already waits"):
        next(iter(stream))
    stream.close()
    thread.join(5)
    assert found == [[]] and not thread.is_alive() and stream.is_closed and "closed" in repr(stream)
    stream.close()


def test_it_may_be_closed_within_the_loop(sender):
    sender_thread = threading.Thread(target=sender.send, args=Stins().series(pictures(5)))
    stream = konkordia.stream(sender.url, timeout_s=WAIT_S)
    sender_thread.start()
    numbers = []
    for frame in stream:
        numbers.append(frame.number)
        if frame.number == 2:
            stream.close()
    sender_thread.join()
    assert numbers == [0, 1, 2] and frame.image.shape == (24, 40)


def test_the_same_with_await(sender):
    images = pictures(5)

    async def take():
        with konkordia.stream(sender.url, timeout_s=WAIT_S) as stream:
            ticks = 0

            async def tick():
                nonlocal ticks
                while True:
                    await asyncio.sleep(0.01)
                    ticks += 1

            ticking = asyncio.create_task(tick())
            asyncio.get_running_loop().call_later(0.3, sender.send, *Stins().series(images))
            found = [frame async for frame in stream]
            ticking.cancel()
            return ticks, found

    ticks, found = in_a_loop(take())
    assert ticks > 10 and all(np.array_equal(frame.image, image) for frame, image in zip(found, images, strict=True))

    async def give_up():
        stream = konkordia.stream(sender.url)
        waiting = asyncio.create_task(anext(aiter(stream)))
        await asyncio.sleep(0.1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        # It can be used again, and closed while somebody waits.
        waiting = asyncio.create_task(anext(aiter(stream), None))
        await asyncio.sleep(0.1)
        stream.close()
        assert await asyncio.wait_for(waiting, 5) is None
        with pytest.raises(TimeoutError, match="connected"):
            async for _ in konkordia.stream(sender.url, timeout_s=0.5):
                pass

    in_a_loop(give_up())


def test_ctrl_c_ends_the_loop(sender):
    code = f"import konkordia\nstream = konkordia.stream({sender.url!r})\nprint('waits', flush=True)\nfor frame in stream: pass"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stdout.readline() == "waits\n"
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=10)
    assert errors.rstrip().endswith("KeyboardInterrupt"), errors


def in_a_fork(stream, told):
    try:
        next(iter(stream))
    except konkordia.KonkordiaError as error:
        told.put(str(error))
    stream.close()


def test_a_fork_is_told_to_open_its_own(sender):
    with konkordia.stream(sender.url, timeout_s=WAIT_S) as stream:
        context = multiprocessing.get_context("fork")
        told = context.Queue()
        child = context.Process(target=in_a_fork, args=(stream, told))
        child.start()
        assert "opened by another process" in told.get(timeout=10)
        child.join(10)
        assert child.exitcode == 0
        sender.send(*Stins().series(pictures(2)))
        assert len(list(stream)) == 2


def test_messages_that_are_too_large_are_not_taken(sender):
    errors = []
    with konkordia.stream(sender.url, timeout_s=0.5, message_mib=1, on_error=errors.append) as stream:
        stins = Stins()
        bomb = {"htype": "image", "frame": 0, "shape": [1 << 12, 1 << 12], "type": "uint64", "compression": "bslz4"}
        sender.send(stins.start(), stins._message(bomb, struct.pack(">QI", 1 << 27, 8192) + bytes(100)), stins.image(1, pictures(1)[0]), stins.end())
        assert [frame.number for frame in stream] == [1]
        assert "more than the 1048576 bytes that are accepted" in str(errors[0])
        sender.socket.send(bytes(2 << 20))
        with pytest.raises(TimeoutError):
            list(stream)


def test_pyzmq_is_asked_for_where_it_is_missing():
    code = "import sys; sys.modules['zmq'] = None; import konkordia; konkordia.stream('tcp://127.0.0.1:1')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT / "python")})
    assert "pip install 'konkordia[stream]'" in done.stderr
    code = "import konkordia, sys; print('zmq' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT / "python")})
    assert done.stdout == "False\n"
