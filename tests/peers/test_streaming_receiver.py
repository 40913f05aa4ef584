"""Sends the same messages to the streaming-receiver of MAX IV and to Konkordia in its place, and compares their files,
streams and answers to HTTP. This file names the permitted differences; docs/maxiv.md lists them for users."""

import contextlib
import json
import pickle
import struct
import subprocess
import threading
import urllib.error
import urllib.request

import bitshuffle
import cbor2
import h5py
import hdf5plugin  # noqa: F401  registers the filters
import numpy as np
import pytest
import zmq
from programs import BUILD, HERE, PEERS, TABLE, needs, running, wait_until

from ports import free_ports
from service import Service

NAME = "streaming-receiver"
PYTHON = BUILD / NAME / "bin/python"
pytestmark = [pytest.mark.peer(NAME), needs(PYTHON, "an environment with the streaming-receiver installed")]

DSET = "/entry/instrument/own/data"
# Keys of messages that only Konkordia sends: the detector's times of an image, and the mark of a partial image.
OURS = {"real_time", "start_time", "stop_time", "series_date", "partial"}


def packed(data):
    return struct.pack(">QI", data.nbytes, 8192) + bitshuffle.compress_lz4(np.ascontiguousarray(data)).tobytes()


def unpacked(blob, header):
    dtype, shape = np.dtype(header["type"]), header.get("chunks", header["shape"])
    if header["compression"] == "none":
        return np.frombuffer(blob, dtype).reshape(shape)
    (block,) = struct.unpack_from(">I", blob, 8)
    return bitshuffle.decompress_lz4(np.frombuffer(blob, np.uint8, offset=12), tuple(shape), dtype, block // dtype.itemsize)


def text(part):
    return part if isinstance(part, bytes) else json.dumps(part).encode()


class Recording:
    """The messages of each sender for one class of detectors. `make(folder)` builds them for a file in that folder."""

    def __init__(self, kind, port, make, entry=None, senders=1, *, title):
        self.kind, self.port, self.make, self.entry = kind, port, make, entry or {}
        self.senders, self.title = senders, title


def stins(images, first=1, frames=None, order=None, metadata=None, head=None, **more):
    """A series of STINS whose message numbers have no gap, whatever the image numbers are."""

    def make(folder):
        messages = [[{"htype": "header", "msg_number": first, "filename": str(folder / "file.h5"), **(head or {})}]]
        if metadata is not None:
            messages[0].append(metadata)
        for n, data in enumerate(images):
            said = {"htype": "image", "msg_number": first + 1 + n, "frame": frames[n] if frames else n}
            said |= {"shape": data.shape, "type": str(data.dtype), "compression": "none"} | more
            messages.append([said, data.tobytes() if more.get("compression") != "bslz4" else packed(data)])
        messages.append([{"htype": "series_end", "msg_number": first + 1 + len(images)}])
        middle = messages[1:-1]
        return [(0, message) for message in [messages[0], *(middle[n] for n in order or range(len(middle))), messages[-1]]]

    return make


RNG = np.random.default_rng(11)
STACK = RNG.integers(0, 900, (6, 12, 16), "uint16")
FLOATS = RNG.normal(size=(4, 5, 7)).astype("float32")
LABELS = {"from 1": [1, 2, 3, 4, 5, 6], "from 5000": list(range(5000, 5006)), "in steps": list(range(0, 60, 10)), "repeated": [0, 1, 2, 0, 1, 2]}


def some_discarded(folder):
    made = stins(list(STACK))(folder)
    for _, message in made[1:-1]:
        message[0]["discard"] = message[0]["frame"] % 2 == 1
    return made


def twelve_bits(folder):
    small = STACK % 4096
    made = []
    for sender, message in stins(list(small))(folder):
        if message[0]["htype"] == "image":
            pairs = small[message[0]["frame"]].reshape(-1, 2).tolist()
            message = [message[0] | {"type": "mono12p"}, bytes(b for a, c in pairs for b in (a & 0xFF, a >> 8 | (c & 0xF) << 4, c >> 4))]
        made.append((sender, message))
    return made


def cbf(folder):
    import fabio

    made = []
    stack = np.random.default_rng(12).integers(-3, 60, (3, 12, 16), "int32")
    for n, data in enumerate(stack):
        fabio.cbfimage.CbfImage(data=data).write(str(folder / f"{n}.cbf"))
    for sender, message in stins(list(stack), type="int32")(folder):
        if message[0]["htype"] == "image":
            message = [message[0], (folder / f"{message[0]['frame']}.cbf").read_bytes()]
        made.append((sender, message))
    return made


CONFIG = {
    "count_time": 0.25,
    "countrate_correction_applied": True,
    "countrate_correction_count_cutoff": 1000,
    "photon_energy": 8000.0,
    "threshold_energy": 4000.0,
    "flatfield_correction_applied": True,
    "virtual_pixel_correction_applied": False,
    "pixel_mask_applied": True,
    "nimages": 6,
    "ntrigger": 1,
    "trigger_mode": "ints",
    "detector_distance": 0.2,
    "wavelength": 1.5,
}


def stream1(rotate=None, frames=None, mask_type="uint32", encoding="bs16-lz4<"):
    """A series of Stream V1 with all tables; the count rate table is as long as detectors send it."""

    def make(folder):
        rows, columns = STACK.shape[1:]
        tables = [("dflatfield-1.0", [columns, rows], np.ones((rows, columns), "float32")), ("dpixelmask-1.0", [columns, rows], np.zeros((rows, columns), mask_type))]
        tables.append(("dcountrate_table-1.0", [2, 4000], np.arange(8000, dtype="float32")))
        head = [{"htype": "dheader-1.0", "series": 3, "header_detail": "all"}, CONFIG]
        for kind, shape, table in tables:
            head += [{"htype": kind, "shape": shape, "type": str(table.dtype)}, table.tobytes()]
        appendix = {"filename": str(folder / "file.h5")} | ({} if rotate is None else {"rotate": rotate})
        messages = [[*head, appendix]]
        for n, data in enumerate(STACK):
            blob = packed(data) if "lz4" in encoding else data.tobytes()
            said = {"htype": "dimage_d-1.0", "shape": [columns, rows], "type": "uint16", "encoding": encoding, "size": len(blob)}
            first = {"htype": "dimage-1.0", "series": 3, "frame": frames[n] if frames else n, "hash": ""}
            messages.append([first, said, blob, {"htype": "dconfig-1.0", "real_time": 1, "start_time": 2, "stop_time": 3}])
        messages.append([{"htype": "dseries_end-1.0", "series": 3}])
        return [(0, message) for message in messages]

    return make


def array(data, tag=69):
    return cbor2.CBORTag(40, [list(data.shape), cbor2.CBORTag(tag, cbor2.CBORTag(56500, ["bslz4", data.itemsize, packed(data)]))])


def stream2(channels=1, as_bytes=False, frames=None, table=None):
    """A series of Stream V2; the default count rate table is as long as detectors send it."""

    def make(folder):
        user = json.dumps({"filename": str(folder / "file.h5")})
        names = [f"threshold_{n + 1}" for n in range(channels)]
        series = {"series_id": 4, "series_unique_id": "x"}
        start = {"type": "start", **series, "number_of_images": 6 // channels, "channels": names, "count_time": 0.5, "flatfield_enabled": True}
        start |= {"threshold_energy": {name: 4000.0 * (n + 1) for n, name in enumerate(names)}, "incident_energy": 12000.0}
        start |= {"user_data": user.encode() if as_bytes else user, "countrate_correction_lookup_table": table or cbor2.CBORTag(70, np.arange(65536, dtype="uint32").tobytes())}
        messages = [start]
        for n in range(6 // channels):
            data = {name: array(STACK[n * channels + c]) for c, name in enumerate(names)}
            messages.append({"type": "image", **series, "image_id": frames[n] if frames else n, "data": data})
        messages.append({"type": "end", **series})
        return [(0, [b"\xd9\xd9\xf7" + cbor2.dumps(message)]) for message in messages]

    return make


def four_pieces(folder):
    stack = np.random.default_rng(13).integers(0, 50, (3, 4, 8, 8), "uint16")
    made = []
    for n in range(4):
        made.append((n, [{"htype": "header", "msg_number": 7, "filename": str(folder / "file.h5")}, {"x": n, "y": 2 * n, "rotation": 0, "full_shape": [16, 16]}]))
    for frame in range(3):
        for n in range(4):
            said = {"htype": "image", "msg_number": 8 + frame, "frame": frame + 1, "shape": [4, 8, 8], "chunks": [1, 8, 8], "type": "uint16", "compression": "bslz4"}
            made.append((n, [said, packed(stack[frame, n])]))
    made += [(n, [{"htype": "series_end", "msg_number": 11}]) for n in range(4)]
    return made


TABLE_OF_ENERGIES = RNG.random((12, 16, 50))
PILATUS = {"pipeline": "PilatusPipeline", "rotate": True, "mask": [[2, 4], [1, 6]]}

RECORDINGS = [
    Recording("Detector", 9999, stins(list(STACK), metadata={"exptime": 0.5, "nested": {"a": [1, 2]}}), title="Detector"),
    Recording("Detector", 9999, stins(list(FLOATS), head={"colour": "red"}, shutter="open"), title="Detector, floats and keys of its own"),
    Recording("Detector", 9999, stins(list(STACK), compression="bslz4"), title="Detector, packed"),
    Recording("Detector", 9999, stins(list(STACK), order=[3, 0, 5, 1, 4, 2]), title="Detector, out of order"),
    Recording("Detector", 9999, some_discarded, title="Detector, some discarded"),
    *(Recording("Detector", 9999, stins(list(STACK), frames=frames), title=f"Detector, {title}") for title, frames in LABELS.items()),
    Recording("Detector", 9999, stins(list(STACK)), {"pipeline": "OrcaPipeline"}, title="OrcaPipeline, 16 bits"),
    Recording("Detector", 9999, twelve_bits, {"pipeline": "OrcaPipeline"}, title="OrcaPipeline, 12 bits"),
    Recording("Detector", 9999, cbf, PILATUS, title="PilatusPipeline"),
    Recording("Detector", 9999, cbf, PILATUS | {"compress": False}, title="PilatusPipeline, unpacked"),
    Recording("Detector", 9999, cbf, PILATUS | {"tot": "table"}, title="PilatusPipeline, tot"),
    Recording("Eiger", 9999, stream1(), title="Eiger"),
    *(Recording("Eiger", 9999, stream1(rotate=rotate), title=f"Eiger, rotate {rotate}") for rotate in (1, 2, 3)),
    Recording("Eiger", 9999, stream1(encoding="<"), title="Eiger, unpacked"),
    Recording("Eiger", 9999, stream1(mask_type="float32"), title="Eiger, a table of another type"),
    *(Recording("Eiger", 9999, stream1(frames=frames), title=f"Eiger, {title}") for title, frames in LABELS.items()),
    Recording("DectrisStream2", 31001, stream2(), title="DectrisStream2"),
    Recording("DectrisStream2", 31001, stream2(channels=2), title="DectrisStream2, two thresholds"),
    Recording("DectrisStream2", 31001, stream2(as_bytes=True), title="DectrisStream2, user_data as bytes"),
    Recording("DectrisStream2", 31001, stream2(table="no table"), title="DectrisStream2, a text for a table"),
    *(Recording("DectrisStream2", 31001, stream2(frames=frames), title=f"DectrisStream2, {title}") for title, frames in LABELS.items()),
    Recording("Lambda", 9010, four_pieces, senders=4, title="Lambda"),
]


class Result:
    """What came out of a program."""

    def __init__(self, messages, file, answers):
        self.messages, self.file, self.answers = messages, file, answers


def look(path):
    """Every group and data set of a file, with its content."""
    found = {}

    def enter(name, item):
        if isinstance(item, h5py.Group):
            # Konkordia gives groups of metadata an NX_class; the original does not.
            kind = str(np.asarray(item.attrs.get("NX_class", "")).astype(str))
            found[name] = {"NX_class": kind if kind == "NXdetector" else ""}
            return
        value = item[()]
        found[name] = {"dtype": str(item.dtype), "shape": item.shape, "value": value.decode() if isinstance(value, bytes) else value}
        if name == DSET.strip("/"):
            found[name] |= {"chunks": item.chunks, "maxshape": item.maxshape, "filters": sorted(item._filters)}

    if not path.exists():
        return None
    with h5py.File(path) as file:
        file.visititems(enter)
    return found


class Http:
    def __init__(self, port):
        self.url = f"http://127.0.0.1:{port}/"

    def get(self, path, method="GET"):
        request = urllib.request.Request(self.url + path, method=method)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, answer.headers.get_content_type(), answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.headers.get_content_type(), error.read()

    def json(self, path):
        return json.loads(self.get(path)[2])


def frame_of(body):
    """The frame that a viewer gets: the header without the keys that only Konkordia sends, and the pixels as bytes."""
    header, *parts = pickle.loads(body)
    parts = [part.tobytes() if isinstance(part, np.ndarray) else part for part in parts]
    if header:
        parts = [unpacked(part, header).tobytes() for part in parts]
    return json.loads(json.dumps({key: value for key, value in header.items() if key not in OURS | {"msg_number"}})), parts


def answers(http):
    """The answers to every request of the interface, and to some that it does not have."""
    found = {}
    for method, path in [
        ("GET", "status"),
        ("GET", "status/"),
        ("GET", "received_frames"),
        ("GET", "downsample"),
        ("POST", "downsample?value=0&more=1"),
        ("POST", "downsample?value=-2"),
        ("POST", "downsample"),
        ("POST", "downsample?value=x"),
        ("POST", "downsample?value=1"),
        ("GET", "nothing"),
        ("POST", "status"),
    ]:
        code, kind, body = http.get(path, method)
        said = json.loads(body) if body else None
        if code == 422 and isinstance(said["detail"], list):
            said = [{key: one[key] for key in ("type", "loc", "msg", "input")} for one in said["detail"]]
        found[f"{method} {path}"] = (code, kind, said)
    code, kind, body = http.get("last_frame")
    found["last_frame"] = (code, kind, frame_of(body))
    for path in ("docs", "openapi.json"):
        found[path] = http.get(path)[:2]
    return found


@contextlib.contextmanager
def original(config, name, ports, log):
    with running(PYTHON, HERE / "run_streaming_receiver.py", config, name, log=log, cwd=log.parent) as process:
        http = Http(ports["api_port"])

        def listens():
            assert process.poll() is None, log.read_text()
            return http.json("status")

        wait_until(listens, what=f"the streaming-receiver ({log})")
        said = lambda words: words in log.read_text(errors="replace")  # noqa: E731
        # Its state changes later than its messages say; its log shows when.
        yield http, lambda: said("client connected, total: 1"), lambda: said("send status idle")


@contextlib.contextmanager
def konkordia(config, name, ports, log):
    service = Service(config, "--detector", name, "--data-root", log.parent, "--last-frame-pickle")
    try:
        http = Http(ports["api_port"])
        is_over = lambda: service.status()["ended"] and http.json("status") == {"state": "idle"}  # noqa: E731
        yield http, lambda: service.statistics()["consumers"][0]["connected"], is_over
    finally:
        assert service.end()[0] == 0
        log.write_text("".join(service.log))


PROGRAMS = {"original": (original, 81), "konkordia": (konkordia, 82)}


def play(program, recording, folder):
    """Gives a recording to a program; returns what came out."""
    start, network = PROGRAMS[program]
    folder.mkdir()
    context = zmq.Context()
    hosts = [f"127.{network}.0.{n + 1}" for n in range(recording.senders)]
    first = free_ports(2)
    ports = {"api_port": first, "data_port": first + 1}
    entry = {"class": recording.kind, "dcu_host_purple": hosts if recording.senders > 1 else hosts[0], "dset_name": DSET, **ports, **recording.entry}
    if entry.get("tot"):
        np.savez(folder / "table.npz", tot_to_energy_tensor=TABLE_OF_ENERGIES)
        entry["tot"] = str(folder / "table.npz")
    config = folder / "detectors.yaml"
    config.write_text(json.dumps({"own": entry}))
    try:
        senders = []
        for n, host in enumerate(hosts):
            senders.append(context.socket(zmq.PUSH))
            senders[-1].bind(f"tcp://{host}:{recording.port + n}")
        with start(config, "own", ports, folder / "log") as (http, is_connected, is_over):
            before = answers(http)
            consumer = context.socket(zmq.PULL)
            consumer.connect(f"tcp://127.0.0.1:{ports['data_port']}")
            wait_until(is_connected, what="the consumer")
            messages = []
            end = threading.Event()

            def take():
                consumer.rcvtimeo = 200
                while not end.is_set() or consumer.poll(200):
                    with contextlib.suppress(zmq.Again):
                        messages.append(consumer.recv_multipart())

            taker = threading.Thread(target=take)
            taker.start()
            try:
                for sender, message in recording.make(folder):
                    senders[sender].send_multipart([text(part) for part in message])
                wait_until(lambda: messages and json.loads(messages[-1][0])["htype"] == "series_end", what=f"the end ({folder / 'log'})")
                wait_until(is_over, what="the end of its file")
                wait_until(lambda: http.json("status") == {"state": "idle"}, what="idle")
                after = answers(http)
            finally:
                end.set()
                taker.join()
                consumer.close(0)
        return Result(messages, look(folder / "file.h5"), {"before": before, "after": after})
    finally:
        context.destroy(linger=0)


def header_of(part, folder):
    """The first part of a message, without the keys that only Konkordia sends and without the name of the folder."""
    return {key: value.replace(str(folder), "FOLDER") if isinstance(value, str) else value for key, value in json.loads(part).items() if key not in OURS}


def compare_streams(ours, theirs, folders):
    assert len(ours) == len(theirs)
    first = [json.loads(messages[0][0])["msg_number"] for messages in (ours, theirs)]
    for mine, other in zip(ours, theirs, strict=True):
        heads = [header_of(parts[0], folder) for parts, folder in zip((mine, other), folders, strict=True)]
        for head, begin in zip(heads, first, strict=True):
            head["msg_number"] -= begin
        assert heads[0] == heads[1]
        assert len(mine) == len(other)
        for a, b in zip(mine[1:], other[1:], strict=True):
            if heads[0]["htype"] == "image":
                np.testing.assert_array_equal(unpacked(a, heads[0]), unpacked(b, heads[1]))
            else:
                assert json.loads(a) == json.loads(b)


def compare_files(ours, theirs):
    assert (ours is None) == (theirs is None)
    if ours is None:
        return
    assert set(ours) == set(theirs)
    for name, mine in ours.items():
        other = theirs[name]
        for key in set(mine) | set(other):
            a, b = mine.get(key), other.get(key)
            # Konkordia writes texts of fixed length, the original of variable length.
            if key == "dtype" and b == "object":
                continue
            np.testing.assert_equal(a, b, err_msg=f"{name}: {key}")


@pytest.mark.parametrize("recording", RECORDINGS, ids=[recording.title for recording in RECORDINGS])
def test_the_same_messages_make_the_same_file_stream_and_answers(tmp_path, recording):
    """From the same messages it and Konkordia make the same file, stream and answers, in each class and pipeline."""
    theirs = play("original", recording, tmp_path / "original")
    ours = play("konkordia", recording, tmp_path / "konkordia")
    compare_streams(ours.messages, theirs.messages, [tmp_path / "konkordia", tmp_path / "original"])
    compare_files(ours.file, theirs.file)
    assert ours.answers == theirs.answers


def test_the_commit_is_the_one_that_is_named():
    """The sources are those of the commit in programs.toml."""
    (program,) = [one for one in TABLE["program"] if one["name"] == NAME]
    head = subprocess.run(["git", "-C", PEERS / program["folder"], "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    assert head == program["commit"]

