"""`stream`, `record` and `replay`, with pyzmq as the other side, and with other people's decoders."""

import hashlib
import json
import signal
import struct
import subprocess
import time

import bitshuffle
import cbor2
import numpy as np
import pytest
import zmq
from dranspose.data.stream1 import Stream1Data, Stream1End, Stream1Packet, Stream1Start
from driving import BINARY, DATA, program
from streams import messages_of

STREAMS = DATA / "eiger-streams"
SHAPE = (24, 40)


class Sender:
    """`konkordia stream` or `replay` in the background, with sockets that receive its messages."""

    def __init__(self, tmp_path, *arguments, upstreams=1, kind=zmq.PULL, listen=False):
        self.context = zmq.Context()
        self.sockets = []
        addresses = [f"ipc://{tmp_path}/upstream{n}" for n in range(upstreams)]
        for address in addresses:
            socket = self.context.socket(kind)
            socket.linger, socket.rcvtimeo = 0, 20_000
            if kind == zmq.SUB:
                socket.subscribe(b"")
            if listen:
                socket.bind(address)
            else:
                socket.connect(address)
            self.sockets.append(socket)
        where = ["--connect"] if listen else []
        command = [BINARY, *map(str, arguments), "--to", *addresses, *where, "--json", "--quiet"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def take(self, count, upstream=0):
        return [self.sockets[upstream].recv_multipart() for _ in range(count)]

    def end(self, code=0):
        """Its report of what it has sent, or its error."""
        out, err = self.process.communicate(timeout=30)
        self.close()
        assert self.process.returncode == code, err
        return json.loads(out) if out else err

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.context.destroy(linger=0)


@pytest.fixture
def sender(tmp_path):
    all_of_them = []

    def start(*arguments, **options):
        all_of_them.append(Sender(tmp_path, *arguments, **options))
        return all_of_them[-1]

    yield start
    for one in all_of_them:
        one.close()


def stream(protocol, *arguments, shape=SHAPE, images=6):
    return ["stream", "--protocol", protocol, "--shape", "x".join(map(str, shape)), "--images", images, *arguments]


def unpacked(packed, dtype, shape):
    """A chunk of HDF5's filter 32008, decoded by the bitshuffle package."""
    total, block = struct.unpack_from(">QI", packed)
    dtype = np.dtype(dtype)
    assert total == np.prod(shape) * dtype.itemsize
    return bitshuffle.decompress_lz4(np.frombuffer(packed, np.uint8, offset=12), shape, dtype, block // dtype.itemsize)


def plausible(image):
    """Checks that the pixels look like photons: few, and not all the same."""
    assert 0.5 < image.mean() < 3 and image.max() < 100 and len(np.unique(image)) > 3


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int32", "float32", "uint64"])
def test_stins_is_what_its_models_accept(sender, dtype):
    s = sender(*stream("stins", "--dtype", dtype, "--filename", "a/{}.h5", "--series", 2, "--first-series", 5))
    numbers = []
    for series in (5, 6):
        messages = s.take(8)
        packets = [Stream1Packet.validate_json(parts[0]) for parts in messages]
        assert [type(p) for p in packets] == [Stream1Start] + [Stream1Data] * 6 + [Stream1End]
        assert packets[0].filename == f"a/{series}.h5"
        assert json.loads(messages[0][1])["nimages"] == 6
        for n, (packet, (_, data)) in enumerate(zip(packets[1:-1], messages[1:-1], strict=True)):
            assert (packet.frame, packet.shape, packet.type, packet.compression) == (n, list(SHAPE), dtype, "none")
            plausible(np.frombuffer(data, packet.type).reshape(packet.shape))
        assert [len(m) for m in messages] == [2] * 7 + [1]
        numbers += [p.msg_number for p in packets]
    assert numbers == list(range(16))
    summary = s.end()
    assert (summary["images"], summary["messages"]) == (12, 16)


def test_stins_compressed_and_without_metadata(sender):
    s = sender(*stream("stins", "--compression", "bslz4", "--header-detail", "none", "--no-end", "--content", "diffraction"))
    header, *images = s.take(7)
    assert json.loads(header[0]) == {"htype": "header", "msg_number": 0, "filename": ""} and len(header) == 1
    pixels = [unpacked(data, "uint16", SHAPE) for _, data in images]
    assert all(p.max() > 10 for p in pixels)
    # The sender repeats a pool of four images.
    assert np.array_equal(pixels[0], pixels[4]) and not np.array_equal(pixels[0], pixels[1])
    assert s.end()["messages"] == 7


def test_stins_in_turn_and_shuffled(sender):
    s = sender(*stream("stins", "--upstreams", 2, "--shuffle", 7, images=40), upstreams=2)
    first = [json.loads(parts[0]) for parts in s.take(22, 0)]
    second = [json.loads(parts[0]) for parts in s.take(20, 1)]
    assert (first[0]["htype"], first[-1]["htype"]) == ("header", "series_end")
    assert sorted(m["msg_number"] for m in first + second) == list(range(42))
    frames = [m["frame"] for m in first[1:-1]]
    assert sorted(frames) == list(range(0, 40, 2)) and frames != sorted(frames)
    assert all(m["msg_number"] == m["frame"] + 1 for m in first[1:-1] + second)
    s.end()


def test_a_stream_per_module(sender):
    s = sender(*stream("stins", "--upstreams", 3, "--per-module"), upstreams=3)
    for upstream in range(3):
        messages = [json.loads(parts[0]) for parts in s.take(8, upstream)]
        assert [m["msg_number"] for m in messages] == list(range(8))
        assert [m["frame"] for m in messages[1:-1]] == list(range(6))
    assert s.end()["images"] == 6


@pytest.mark.parametrize("detail, parts", [("none", 1), ("basic", 2), ("all", 8)])
def test_stream1_headers(sender, detail, parts):
    s = sender(*stream("stream1", "--header-detail", detail, "--filename", "x", "--first-series", 9))
    header, *_, end = s.take(8)
    assert json.loads(header[0]) == {"header_detail": detail, "htype": "dheader-1.0", "series": 9}
    assert len(header) == parts + 1 and json.loads(header[-1]) == {"filename": "x"}
    if detail != "none":
        config = json.loads(header[1])
        assert (config["x_pixels_in_detector"], config["y_pixels_in_detector"], config["nimages"]) == (40, 24, 6)
    if detail == "all":
        assert json.loads(header[2]) == {"htype": "dflatfield-1.0", "shape": [40, 24], "type": "float32"}
        assert np.all(np.frombuffer(header[3], "f4").reshape(SHAPE) == 1)
        assert json.loads(header[4])["htype"] == "dpixelmask-1.0" and not np.frombuffer(header[5], "u4").any()
        assert json.loads(header[6]) == {"htype": "dcountrate_table-1.0", "shape": [2, 2], "type": "float32"}
    assert json.loads(end[0]) == {"htype": "dseries_end-1.0", "series": 9}
    s.end()


@pytest.mark.parametrize("compression, encoding", [("none", "<"), ("bslz4", "bs16-lz4<"), ("lz4", "lz4<")])
def test_stream1_images(sender, compression, encoding):
    s = sender(*stream("stream1", "--compression", compression, "--rate", 200))
    for n, parts in enumerate(s.take(8)[1:-1]):
        first, described, data, times = parts
        first = json.loads(first)
        assert (first["frame"], first["series"], first["hash"]) == (n, 1, hashlib.md5(described).hexdigest())
        described = json.loads(described)
        assert (described["encoding"], described["size"], described["shape"]) == (encoding, len(data), [40, 24])
        times = json.loads(times)
        assert times["start_time"] == n * 5_000_000 and times["real_time"] == 5_000_000
        if compression == "bslz4":
            plausible(unpacked(data, described["type"], SHAPE))
        elif compression == "none":
            plausible(np.frombuffer(data, described["type"]).reshape(SHAPE))
    summary = s.end()
    assert summary["seconds"] >= 0.025


def stream2(parts):
    (part,) = parts
    assert part.startswith(b"\xd9\xd9\xf7")
    return cbor2.loads(part[3:])


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("compression", ["none", "bslz4"])
def test_stream2(sender, channels, compression):
    s = sender(*stream("stream2", "--channels", channels, "--compression", compression, "--header-detail", "all", "--filename", "x"))
    start, *images, end = map(stream2, s.take(8))
    names = ["threshold_1", "threshold_2", "difference"][:channels]
    assert (start["type"], start["channels"], start["series_id"]) == ("start", names, 1)
    assert (start["image_size_x"], start["image_size_y"], start["image_dtype"]) == (40, 24, "uint16")
    assert start["user_data"] == {"filename": "x"} and start["number_of_images"] == 6
    assert set(start["flatfield"]) == set(start["pixel_mask"]) == set(names)
    for n, image in enumerate(images):
        assert (image["type"], image["image_id"], list(image["data"])) == ("image", n, names)
        seen = []
        for name in names:
            shape, typed = image["data"][name].value
            assert tuple(shape) == SHAPE and typed.tag == 69
            if compression == "none":
                pixels = np.frombuffer(typed.value, "<u2").reshape(shape)
            else:
                algorithm, size, packed = typed.value.value
                assert (typed.value.tag, algorithm, size) == (56500, "bslz4", 2)
                pixels = unpacked(packed, "uint16", SHAPE)
            plausible(pixels)
            seen.append(pixels.tobytes())
        assert len(set(seen)) == channels
    assert end["type"] == "end" and end["series_unique_id"] == start["series_unique_id"]
    s.end()


def test_sls(sender):
    s = sender(*stream("sls", "--upstreams", 2, "--per-module", "--filename", "/a/run"), upstreams=2, kind=zmq.SUB)
    for upstream in range(2):
        *images, end = s.take(7, upstream)
        for n, (header, data) in enumerate(images):
            header = json.loads(header)
            assert (header["jsonversion"], header["frameIndex"], header["frameNumber"], header["data"]) == (5, n, n + 1, 1)
            assert (header["shape"], header["detshape"], header["row"], header["fname"]) == ([40, 24], [1, 2], upstream, "/a/run")
            assert header["size"] == len(data) == 24 * 40 * header["bitmode"] // 8
            plausible(np.frombuffer(data, "<u2"))
        assert json.loads(end[0])["data"] == 0 and len(end) == 1
    s.end()


def test_sizes_contents_and_seeds(sender):
    for content, check in [("constant", lambda d: set(d) == {1}), ("noise", lambda d: len(set(d)) == 256)]:
        s = sender(*["stream", "--size", "20k", "--dtype", "uint8", "--content", content, "--images", 1])
        _, (header, data), _ = s.take(3)
        assert json.loads(header)["shape"] == [125, 160] and len(data) == 20_000 and check(data)
        s.end()


def test_what_has_no_form_and_who_is_not_there(tmp_path):
    to = f"ipc://{tmp_path}/s"
    for arguments, why in [
        (["--channels", 2], "only stream2 has channels"),
        (["--compression", "lz4"], "this format cannot carry"),
        (["--protocol", "sls", "--compression", "bslz4"], "does not compress"),
        (["--size", 3, "--dtype", "uint16"], "not a whole number of uint16"),
        (["--protocol", "stream1", "--dtype", "mono12p"], "this format cannot carry"),
    ]:
        assert why in program("stream", *arguments, "--to", to, "--wait", 0, check=2).stderr
    assert "no receiver" in program("stream", "--to", to, "--wait", 0.1, check=7).stderr
    assert "write tcp://" in program("stream", "--to", "nowhere", "--wait", 0, check=2).stderr
    assert "there is no --to" in program("stream", "--wait", 0, check=2).stderr


def test_an_interrupt_ends_a_stream(sender):
    s = sender(*stream("stins", "--rate", 50, images=10_000))
    s.take(5)
    s.process.send_signal(signal.SIGINT)
    assert s.end(130)["interrupted"] is True


class Recorder:
    """`konkordia record` in the background, on sockets by which this test sends."""

    def __init__(self, tmp_path, *arguments, upstreams=1, kind=zmq.PUSH, before=()):
        self.context = zmq.Context()
        self.file = tmp_path / "kept.zmsg"
        addresses = [f"ipc://{tmp_path}/source{n}" for n in range(upstreams)]
        self.sockets = []
        for address in addresses:
            socket = self.context.socket(kind)
            socket.linger, socket.sndtimeo = 0, 2000
            socket.bind(address)
            self.sockets.append(socket)
        command = [*before, BINARY, "record", *addresses, "-o", str(self.file), "--json", "--quiet", *map(str, arguments)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def end(self, code=0):
        """Its report of what it has recorded, or its error."""
        out, self.errors = self.process.communicate(timeout=30)
        self.context.destroy()
        assert self.process.returncode == code, self.errors
        return json.loads(out) if out else self.errors


def times_of(path):
    head, *lines = path.with_name(path.name + ".times").read_text().splitlines()
    assert head == "time_ns,upstream"
    return [tuple(map(int, line.split(","))) for line in lines]


SENT = [[b"header", b""], [b"x" * 100_000], *([b"%d" % n, bytes(n * 700)] for n in range(20))]


def test_what_was_kept_is_sent_again(tmp_path, sender):
    r = Recorder(tmp_path, "--messages", len(SENT))
    for parts in SENT:
        r.sockets[0].send_multipart(parts)
        time.sleep(0.01)
    summary = r.end()
    assert summary["messages"] == len(SENT) and summary["bytes"] == r.file.stat().st_size
    assert messages_of(r.file) == SENT
    times = [ns for ns, _ in times_of(r.file)]
    assert times[0] == 0 and times == sorted(times) and times[-1] > 0.2e9
    for options, repeat, least in [((), 1, 0.2), (("--speed", 4, "--repeat", 2), 2, 0.1), (("--as-fast-as-possible",), 1, 0)]:
        s = sender("replay", r.file, *options)
        assert s.take(len(SENT) * repeat) == SENT * repeat
        summary = s.end()
        assert summary["messages"] == len(SENT) * repeat and summary["seconds"] >= least
    s = sender("replay", r.file, "--as-fast-as-possible", listen=True)
    assert s.take(len(SENT)) == SENT
    s.end()


def test_upstreams_are_kept_apart(tmp_path, sender):
    r = Recorder(tmp_path, "--messages", 12, upstreams=3)
    for n in range(4):
        for upstream, socket in enumerate(r.sockets):
            socket.send_multipart([b"%d" % upstream, b"%d" % n])
    r.end()
    assert sorted(upstream for _, upstream in times_of(r.file)) == sorted([0, 1, 2] * 4)
    s = sender("replay", r.file, upstreams=3)
    for upstream in range(3):
        assert s.take(4, upstream) == [[b"%d" % upstream, b"%d" % n] for n in range(4)]
    s.end()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_capture_is_whole(tmp_path, number):
    r = Recorder(tmp_path)
    for n in range(50):
        r.sockets[0].send_multipart([b"%d" % n, bytes(50_000)])
    deadline = time.monotonic() + 10
    while (not r.file.exists() or r.file.stat().st_size < 50 * 50_000) and time.monotonic() < deadline:
        time.sleep(0.02)
    r.process.send_signal(number)
    assert r.end()["messages"] == 50
    assert [int(m[0]) for m in messages_of(r.file)] == list(range(50)) and len(times_of(r.file)) == 50


def test_a_full_disk_leaves_whole_messages(tmp_path):
    limit = 1_000_000
    # A limit of the file size stands for a full disk. Its signal must be ignored.
    limited = ["bash", "-c", f"trap '' XFSZ; ulimit -f {limit // 1024}; exec \"$0\" \"$@\""]
    for n, size in enumerate([300_000, 5_000]):
        folder = tmp_path / str(n)
        folder.mkdir()
        r = Recorder(folder, before=limited)
        for k in range(2 * limit // size):
            try:
                r.sockets[0].send_multipart([b"%d" % k, bytes(size)])
            except zmq.Again:
                break
        error = r.end(6)["error"]
        assert "kept.zmsg" in error["what"] and "large" in error["why"] and "ulimit" in error["fix"]
        kept = messages_of(r.file)
        assert [int(m[0]) for m in kept] == list(range(len(kept))) and 0 < len(kept) * size <= limit
        assert len(times_of(r.file)) >= len(kept)


def test_a_subscriber_records_and_ends_by_time(tmp_path):
    r = Recorder(tmp_path, "--kind", "sub", "--seconds", 0.6, kind=zmq.XPUB)
    assert r.sockets[0].recv() == b"\x01"
    for n in range(10):
        r.sockets[0].send_multipart([b"%d" % n])
    assert r.end()["messages"] == 10
    assert messages_of(r.file) == [[b"%d" % n] for n in range(10)]


def test_a_capture_is_neither_replaced_nor_trusted(tmp_path):
    kept = tmp_path / "kept.zmsg"
    kept.write_bytes(b"\1\0\0\0\x08\0\0\0half")
    to = f"ipc://{tmp_path}/s"
    assert "--overwrite" in program("record", to, "-o", kept, "--seconds", 0.1, check=5).stderr
    assert "message 0 (at byte 0)" in program("replay", kept, "--to", to, check=1).stderr
    assert kept.read_bytes().endswith(b"half")
    assert "check the path" in program("replay", tmp_path / "none.zmsg", "--to", to, check=6).stderr


@pytest.mark.skipif(not STREAMS.is_dir(), reason=f"no real streams in {STREAMS}")
@pytest.mark.parametrize("name", ["eiger-1m-stream-v1", "eiger-1m-stream-v2", "eiger2-500k-3channel-stream-v2"])
def test_real_streams_survive_a_replay_and_a_recording(tmp_path, name):
    kept, to = tmp_path / "kept.zmsg", f"ipc://{tmp_path}/s"
    real = STREAMS / f"{name}.zmsg"
    count = len(messages_of(real))
    command = [BINARY, "record", to, "-o", str(kept), "--messages", str(count), "--quiet"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as recorder:
        summary = json.loads(program("replay", real, "--to", to, "--json", "--quiet", check=0).stdout)
        assert summary["messages"] == count and recorder.wait(20) == 0
    assert kept.read_bytes() == real.read_bytes()
