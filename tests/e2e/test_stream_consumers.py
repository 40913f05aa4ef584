"""Streams out of the running service: what each consumer gets at its own pace, and how that affects the other consumers
and the file."""

import json
import threading
import time

import cbor2
import dectris.compression
import numpy as np
import pytest
import zmq
from dranspose.data.stream1 import Stream1Data, Stream1End, Stream1Packet, Stream1Start
from driving import free_ports, program
from lanes import SLOW
from service import Service, at_rest
from streams import SHAPE, SeriesFile, Stins, StreamService, addresses, bslz4, pictures, unpacked

STALL_S = 10 if SLOW else 5


class Taker:
    """A consumer that takes messages in the background, except while `may_take` is cleared."""

    def __init__(self, address, kind=zmq.PULL, hwm=1000):
        self.context = zmq.Context()
        self.socket = self.context.socket(kind)
        self.socket.linger, self.socket.rcvtimeo, self.socket.rcvhwm = 0, 100, hwm
        # The network holds little, so what a consumer does not take waits in the service.
        self.socket.rcvbuf = 64 << 10
        if kind == zmq.SUB:
            self.socket.subscribe(b"")
        self.socket.connect(address)
        self.messages = []
        self.may_take = threading.Event()
        self.may_take.set()
        self._ends = False
        self.thread = threading.Thread(target=self._take)
        self.thread.start()

    def _take(self):
        while not self._ends:
            if not self.may_take.wait(0.05):
                continue
            try:
                self.messages.append(self.socket.recv_multipart())
            except zmq.Again:
                pass
        self.socket.close()

    def until(self, condition, timeout=20):
        """Waits until the messages received so far fulfil the condition."""
        end = time.monotonic() + timeout
        while not condition(self.messages):
            assert time.monotonic() < end, f"{len(self.messages)} messages"
            time.sleep(0.01)
        return self.messages

    def close(self):
        self._ends = True
        self.thread.join()
        self.context.destroy(linger=0)


@pytest.fixture
def world(tmp_path):
    """Starts services and consumers; ends them after the test."""

    class World:
        folder = tmp_path
        all_of_them = []

        def serve(self, *consumers, protocol="stins", **options):
            """Starts a service with these consumers, each (name, protocol, further configuration lines)."""
            self.out, extra = addresses(len(consumers)), options.pop("extra", "")
            for address, (name, kind, more) in zip(self.out, consumers, strict=True):
                extra += f'\n[[stream]]\nname = "{name}"\nprotocol = "{kind}"\naddress = "{address}"\n{more}\n'
            service = StreamService(tmp_path, protocol, extra=extra, **options)
            self.all_of_them.append(service)
            return service

        def take(self, n=0, **options):
            taker = Taker(self.out[n], **options)
            self.all_of_them.append(taker)
            return taker

        def connected(self, service, count=None):
            service.consumers_connect(len(self.out) if count is None else count)

    world = World()
    world.all_of_them = []
    yield world
    for one in reversed(world.all_of_them):
        one.close()


def consumer(service, name):
    return next(c for c in service.statistics()["consumers"] if c["name"] == name)


def is_stins_end(messages):
    return messages and json.loads(messages[-1][0])["htype"] == "series_end"


def stins_pixels(parts):
    first = json.loads(parts[0])
    if first["compression"] == "bslz4":
        return unpacked(parts[1], first["type"], first["shape"])
    return np.frombuffer(parts[1], first["type"]).reshape(first["shape"])


def v2(parts):
    (part,) = parts
    return cbor2.loads(part.removeprefix(b"\xd9\xd9\xf7"))


def v2_pixels(value):
    shape, typed = value.value
    data = typed.value
    if isinstance(data, cbor2.CBORTag):
        algorithm, size, packed = data.value
        data = dectris.compression.decompress(bytes(packed), algorithm, **({"elem_size": size} if size else {}))
    return np.frombuffer(data, {64: "u1", 69: "<u2", 70: "<u4", 78: "<i4", 85: "<f4"}[typed.tag]).reshape(shape)


@pytest.mark.parametrize("pack", [None, bslz4], ids=["none", "bslz4"])
def test_every_protocol(world, pack):
    service = world.serve(("a", "stins", ""), ("b", "stream2", ""), ("c", "sls", 'socket = "pub"'))
    takers = [world.take(0), world.take(1), world.take(2, kind=zmq.SUB)]
    world.connected(service)
    stins, images = Stins(700), pictures(20)
    series = [stins.start("", {"exptime": 0.5, "sample": {"name": "x"}}, colour="red")]
    series += [stins.image(n, image, pack=pack, rotation=n / 2) for n, image in enumerate(images)]
    service.send(*series, stins.end())
    file = service.file(1).equals(images)
    out, of_v2, of_sls = takers
    # An image counts once for each consumer; the last ones may be on their way when the file is closed.
    out.until(lambda _: service.statistics()["latency"].get("streamed_images") == 60)
    # STINS, checked by the models of dranspose.
    messages = out.until(is_stins_end)
    packets = [Stream1Packet.validate_json(m[0]) for m in messages]
    assert [type(p) for p in packets] == [Stream1Start] + [Stream1Data] * 20 + [Stream1End]
    assert [p.msg_number for p in packets] == list(range(22)), "counted by the service"
    assert json.loads(messages[0][1]) == {"exptime": 0.5, "sample": {"name": "x"}}
    assert json.loads(messages[0][0])["colour"] == "red"
    for n, message in enumerate(messages[1:-1]):
        assert np.array_equal(stins_pixels(message), images[n])
        assert json.loads(message[0])["rotation"] == n / 2
        assert message[1] == series[n + 1][1], "packed pixels pass untouched"
    # Stream V2, read by cbor2.
    start, *seen, end = map(v2, of_v2.until(lambda m: len(m) == 22))
    assert (start["type"], end["type"]) == ("start", "end")
    assert (start["image_size_x"], start["image_size_y"], start["image_dtype"]) == (40, 24, "uint16")
    assert start["series_unique_id"] == end["series_unique_id"] and start["count_time"] == 0.5
    for n, image in enumerate(seen):
        (value,) = image["data"].values()
        assert (image["type"], image["image_id"], image["series_id"]) == ("image", n, start["series_id"])
        assert np.array_equal(v2_pixels(value), images[n])
    # JSON of SLS.
    messages = of_sls.until(lambda m: len(m) == 21)
    for n, (header, data) in enumerate(messages[:-1]):
        header = json.loads(header)
        assert (header["jsonversion"], header["frameIndex"], header["shape"], header["bitmode"]) == (5, n, [40, 24], 16)
        assert header["size"] == len(data) and np.array_equal(np.frombuffer(data, "<u2").reshape(SHAPE), images[n])
    assert json.loads(messages[-1][0])["data"] == 0 and file.ended.startswith("finished")
    assert {c["name"]: (c["delivered"], c["skipped"]) for c in service.statistics()["consumers"]} == dict.fromkeys("abc", (20, 0))


def test_a_late_joiner_gets_the_start_first(world):
    service = world.serve(("early", "stins", ""), ("late", "stins", 'service = "reliable-skip"'), ("v2", "stream2", ""))
    early = world.take(0)
    world.connected(service, 1)
    stins, images = Stins(), pictures(60)
    with service.socket() as s:
        s.send_multipart(stins.start("", {"exptime": 1}))
        for n in range(30):
            s.send_multipart(stins.image(n, images[n]))
        service.until(lambda st: st["images_committed"] == 30)
        late, of_v2 = world.take(1), world.take(2)
        world.connected(service)
        for n in range(30, 60):
            s.send_multipart(stins.image(n, images[n]))
        s.send_multipart(stins.end())
    service.file(1).equals(images)
    assert len(early.until(is_stins_end)) == 62
    messages = late.until(is_stins_end)
    packets = [Stream1Packet.validate_json(m[0]) for m in messages]
    assert isinstance(packets[0], Stream1Start) and json.loads(messages[0][1])["exptime"] == 1
    numbers = [p.msg_number for p in packets]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers))), "no number is left out"
    assert [p.frame for p in packets[1:-1]][-30:] == list(range(30, 60))
    seen = [v2(m) for m in of_v2.until(lambda m: m and v2(m[-1])["type"] == "end")]
    assert seen[0]["type"] == "start" and [m["image_id"] for m in seen[1:-1]][-30:] == list(range(30, 60))


def sent_in_background(service, *arguments):
    thread = threading.Thread(target=program, args=("stream", *arguments, "--to", service.addresses[0], "--connect", "-q"), kwargs={"timeout": 120})
    thread.start()
    return thread


def test_one_of_three_consumers_stalls(world):
    """The file and the other two consumers lose nothing. The images that the third does not get are counted."""
    # Half a second: a queue of 50 ms is full again at the very end if this test does not run for so long.
    limits = "queue_images = 200\nqueue_mib = 40"
    service = world.serve(
        ("a", "stins", 'service = "reliable"'), ("b", "stream2", 'service = "reliable"'), ("slow", "stins", f'service = "reliable-skip"\n{limits}')
    )
    a, b, slow = world.take(0), world.take(1), world.take(2, hwm=1)
    world.connected(service)
    rate = 400
    count = rate * (STALL_S + 2)
    slow.may_take.clear()
    begun = time.monotonic()
    sender = sent_in_background(service, "--shape", "128x256", "--rate", rate, "--images", count)
    # How long a consumer takes nothing is what this test is about.
    time.sleep(max(0, STALL_S - (time.monotonic() - begun)))
    assert not slow.messages[2:], "it was to stall"
    slow.may_take.set()
    done = service.taken(1, timeout=60)
    sender.join()
    assert (done["images_committed"], done["images_written"], done["images_lost"]) == (count, count, 0)
    assert len(a.until(is_stins_end)) == len(b.until(lambda m: len(m) == count + 2)) == count + 2
    assert [json.loads(m[0])["frame"] for m in a.messages[1:-1]] == list(range(count))
    assert [v2(m)["image_id"] for m in b.messages[1:-1]] == list(range(count))
    images = slow.until(is_stins_end)[1:-1]
    counters = consumer(service, "slow")
    assert counters["skipped"] == count - len(images) > rate, (counters, len(images))
    assert counters["delivered"] == len(images)
    frames = [json.loads(m[0])["frame"] for m in images]
    assert frames == sorted(set(frames)) and frames[-1] == count - 1, "in order, and it has caught up"
    for name in "ab":
        assert (consumer(service, name)["delivered"], consumer(service, name)["skipped"]) == (count, 0)
    file = SeriesFile(done["file"])
    assert file.status == [1] * count
    for n in (0, count // 2, count - 1):
        assert np.array_equal(stins_pixels(a.messages[1 + n]), file.images[n])


@pytest.mark.parametrize("kind", ["reliable", "reliable-skip", "latest"])
def test_a_consumer_that_vanishes_holds_nobody_back(world, kind):
    service = world.serve(("stays", "stins", 'service = "reliable"'), ("goes", "stins", f'service = "{kind}"\nqueue_images = 4\nqueue_mib = 1'))
    stays, goes = world.take(0), world.take(1, hwm=1)
    world.connected(service)
    count = 1500
    sender = sent_in_background(service, "--shape", "64x64", "--rate", 1000, "--images", count)
    goes.until(lambda m: len(m) > 50)
    goes.close()
    done = service.taken(1, timeout=30)
    sender.join()
    assert (done["images_written"], done["images_lost"]) == (count, 0)
    assert len(stays.until(is_stins_end)) == count + 2
    assert consumer(service, "goes")["connected"] is False
    # The consumer comes back and gets the next series.
    again = world.take(1)
    world.connected(service)
    service.send(*Stins(10_000).series(pictures(5)))
    service.file(2)
    assert again.until(is_stins_end)
    last = [json.loads(m[0])["htype"] for m in again.messages]
    assert last[-1] == "series_end" and "header" in last and "image" in last


@pytest.mark.parametrize(("socket", "kind"), [("push", zmq.PULL), ("pub", zmq.SUB)])
def test_the_latest_only(world, socket, kind):
    service = world.serve(("view", "stins", f'service = "latest"\nsocket = "{socket}"'), ("all", "stins", ""))
    view, everything = world.take(0, kind=kind, hwm=2), world.take(1)
    world.connected(service)
    count = 2000
    sender = sent_in_background(service, "--shape", "256x256", "--rate", 500, "--images", count)
    done = service.taken(1, timeout=60)
    sender.join()
    everything.until(is_stins_end)
    # A PUB socket drops what a subscriber has no room for, the end included.
    received = view.until(is_stins_end) if socket == "push" else view.until(lambda m: len(m) > 2)
    frames = [head["frame"] for head in (json.loads(message[0]) for message in list(received)) if head["htype"] == "image"]
    counters = consumer(service, "view")
    assert frames == sorted(set(frames)) and counters["delivered"] + counters["skipped"] == count
    if socket == "push":
        assert frames[-1] == count - 1 and len(frames) == counters["delivered"], "the newest always comes"
    else:
        assert len(frames) <= counters["delivered"]
    assert done["images_written"] == count


def test_a_reliable_consumer_holds_the_sender_back(world):
    service = world.serve(("all", "stins", 'service = "reliable"\nqueue_images = 8\nqueue_mib = 4'), source="queue_mib = 8")
    taker = world.take(0, hwm=1)
    world.connected(service)
    taker.may_take.clear()
    count = 600
    sender = sent_in_background(service, "--shape", "256x512", "--rate", 0, "--images", count)
    service.until(lambda s: s["images_committed"] > 3)
    # The 150 MB of the series do not fit into queues of 12 MB and the sockets.
    assert at_rest(lambda: service.status()["images_committed"], "the committed images", for_s=1) < count
    taker.may_take.set()
    done = service.taken(1, timeout=60)
    sender.join()
    assert (done["images_written"], done["images_lost"]) == (count, 0)
    assert [json.loads(m[0])["frame"] for m in taker.until(is_stins_end)[1:-1]] == list(range(count))
    assert consumer(service, "all")["skipped"] == 0


@pytest.mark.parametrize("compression", ["bslz4", "none"])
def test_packets_reach_consumers_too(world, tmp_path, compression):
    port, (to, to_v2) = free_ports(), addresses(2)
    (tmp_path / "udp.toml").write_text(
        f"""[detector]
type = "jungfrau"
[processing]
dtype = "raw"
[source]
address = "127.0.0.1"
first_port = {port}
receive_buffer_mib = 64
[output]
directory = "{tmp_path}"
prefix = "udp"
compression = "{compression}"
[run]
images = 12
buffer_mib = 64
[[stream]]
name = "a"
address = "{to}"
service = "reliable"
[[stream]]
name = "b"
protocol = "stream2"
address = "{to_v2}"
service = "reliable"
"""
    )
    service = Service(tmp_path / "udp.toml")
    a, b = Taker(to), Taker(to_v2)
    try:
        world.out = [to, to_v2]
        world.connected(service)
        service.command("arm")
        program("simulate", "jungfrau", "--to", f"127.0.0.1:{port}", "--images", 12, "--rate", 50, "-q", check=0)
        done = service.wait()
        assert done["severity"] == "success", done
        images = [stins_pixels(m) for m in a.until(is_stins_end)[1:-1]]
        seen = b.until(lambda m: len(m) == 14)
        import h5py

        with h5py.File(done["file"]) as f:
            pixels = f["/entry/data"][f["/entry/data"].attrs["signal"]][()]
        assert len(images) == len(pixels) == 12 and pixels[0].any()
        for n in range(12):
            assert images[n].dtype == pixels.dtype and np.array_equal(images[n], pixels[n])
            (value,) = v2(seen[1 + n])["data"].values()
            assert np.array_equal(v2_pixels(value), pixels[n])
        assert service.end()[0] == 0
    finally:
        a.close()
        b.close()
        if service.process.poll() is None:
            service.process.kill()
            service.process.wait()
