"""Streams of several detectors and numbers of other devices, joined by trigger number by `konkordia join`."""

import contextlib
import json
import queue
import subprocess
import threading
import time

import h5py
import numpy as np
import pytest
import zmq
from driving import BINARY, INTERRUPT, Master, PacedSocket, jungfrau_packet, program, raw_tables
from service import Service, free_port, write_config
from streams import SeriesFile, Stins, StreamService, pictures

ROWS = ("joined", "alone", "pushed_out", "late", "doubled", "other_series", "waiting")


class Join:
    """`konkordia join --json` in the background, with its sockets open; `file` is the text of its join file."""

    def __init__(self, folder, file, *arguments):
        path = folder / "join.toml"
        path.write_text(file)
        command = [BINARY, "join", str(path), "--json", *map(str, arguments)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.lines = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        self.said = []
        while not self.said or "joining" not in self.said[-1]:
            self.said.append(self.lines.get(timeout=30))
            assert self.said[-1] is not None, (self.process.wait(10), self.said)

    def _read(self):
        for line in self.process.stderr:
            self.lines.put(line)
        self.lines.put(None)

    def report(self, code=0, timeout=60):
        """The report at the end, whose sums must hold; the exit code must be this one."""
        out = self.process.stdout.read() if self.process.wait(timeout) is not None else ""
        report = json.loads(out)
        assert self.process.returncode == code, report
        assert report["balances"], report
        for name, source in report["sources"].items():
            assert source["received"] == sum(source[row] for row in ROWS) and source["waiting"] == 0, (name, source)
        for socket in report["sockets"]:
            kinds = ("parts", "control", "unnumbered", "unknown", "malformed")
            assert socket["messages"] == sum(socket[kind] for kind in kinds), socket
        assert sum(socket["parts"] for socket in report["sockets"]) == sum(s["received"] for s in report["sources"].values())
        return report


class World:
    """A folder, sockets of pyzmq, joins and services; ended together."""

    def __init__(self, folder):
        self.folder, self.context, self.opened = folder, zmq.Context(), []

    def join(self, file, *arguments):
        self.opened.append(Join(self.folder, file, *arguments))
        return self.opened[-1]

    def push(self, address):
        socket = self.context.socket(zmq.PUSH)
        socket.linger, socket.sndtimeo, socket.sndhwm = 20_000, 20_000, 10_000
        socket.connect(address)
        return socket

    def pull(self, address, queue_messages=10_000):
        socket = self.context.socket(zmq.PULL)
        socket.rcvtimeo, socket.rcvhwm = 30_000, queue_messages
        socket.connect(address)
        return socket

    def close(self):
        for one in self.opened:
            if one.process.poll() is None:
                one.process.kill()
                one.process.wait()
        self.context.destroy(linger=0)


@pytest.fixture
def world(tmp_path):
    world = World(tmp_path)
    yield world
    world.close()


def address():
    return f"tcp://127.0.0.1:{free_port()}"


def stream(name, address, more="bind = true", protocol="stins"):
    return f'\n[[stream]]\nname = "{name}"\naddress = "{address}"\nprotocol = "{protocol}"\n{more}\n'


def scalar(name, address, more=""):
    return f'\n[[scalar]]\nname = "{name}"\naddress = "{address}"\n{more}\n'


def numbers(source, trigger, **values):
    return json.dumps({"source": source, "trigger": trigger, "values": values}).encode()


def output(address, more=""):
    return f'\n[output]\naddress = "{address}"\n{more}\n'


def joined_messages(socket):
    """All joined messages up to the last one, which has the report."""
    found = []
    while True:
        head, *parts = socket.recv_multipart()
        head = json.loads(head)
        if head["htype"] == "joined_end":
            return found, head["account"]
        found.append((head, parts))


def image_of(head, parts, name):
    """First part and pixels of an image; the parts are those of its own protocol."""
    about = head["images"][name]
    first, pixels = parts[about["first_part"] - 1 :][: about["parts"]]
    return json.loads(first), pixels


def table(path):
    """The columns of the table by name."""
    with h5py.File(path) as file:
        columns = {name: file[f"entry/joined/{name}"][()] for name in ("trigger", "complete", "reason")}
        for source, group in file["entry/sources"].items():
            columns |= {f"{source}/{name}": column[()] for name, column in group.items()}
        account = {name: {key: int(count[()]) for key, count in group.items()} for name, group in file["entry/account/sources"].items()}
    return columns, account


def ranges(found):
    return sorted(n for first, last in found["ranges"] for n in range(first, last + 1))


def test_two_detectors_and_an_encoder_through_the_real_program(world, tmp_path):
    """One detector sends images, one sends packets; both are received by services. Some triggers are lost by each."""
    triggers = range(1, 21)
    lost = {"left": {3, 4, 11}, "right": {7, 11}, "encoder": {9, 20}}
    seen = {name: set(triggers) - gone for name, gone in lost.items()}
    out_left, out_right, out, device = (address() for _ in range(4))
    consumer = '\n[[stream]]\nname = "join"\nprotocol = "{}"\naddress = "{}"\n'
    left = StreamService(tmp_path, source="wait_ms = 200", extra=consumer.format("stins", out_left))
    port = free_port()
    folder = tmp_path / "right"
    folder.mkdir()
    tables = raw_tables(images=len(triggers), stall_timeout_s=20, start_timeout_s=60, buffer_mib=64)
    config = write_config(folder, port, extra=consumer.format("sls", out_right), **tables)
    right = Service(config)
    world.opened += [left, right]
    text = 'timeout_ms = 6000\nfile = "{}"\n'.format(tmp_path / "joined.h5")
    text += stream("left", out_left, "offset = 1") + stream("right", out_right, 'key = "/frameNumber"', "sls")
    join = world.join(text + scalar("encoder", device) + output(out))
    taker = world.pull(out)
    left.consumers_connect()
    right.consumers_connect()
    right.command("start")

    images = pictures(len(triggers))
    stins = Stins()
    left.send(stins.start("left"), *(stins.image(n - 1, images[n - 1]) for n in sorted(seen["left"])), stins.end())
    with PacedSocket() as udp:
        for frame in sorted(seen["right"]):
            for packet in range(128):
                udp.sendto(jungfrau_packet(frame, packet, fill=frame), ("127.0.0.1", port))
    encoder = world.push(device)
    for n in sorted(seen["encoder"]):
        encoder.send(numbers("encoder", n, angle_deg=0.1 * n))
    for n in (5, 6):
        encoder.send(numbers("encoder", n, angle_deg=-1.0))
    # The last frame of the second detector ends its run.
    found, account = joined_messages(taker)
    report = join.report(code=1)

    complete = set.intersection(*seen.values())
    some = set.union(*seen.values())
    assert report["ended"] == "finished" and report["numbers"]["complete"] == len(complete) == 14
    assert report["numbers"]["timed_out"] == len(some - complete) and report["numbers"]["dropped"] == 0
    for name, own in seen.items():
        source = report["sources"][name]
        doubled = 2 if name == "encoder" else 0
        assert (source["received"], source["doubled"], source["late"]) == (len(own) + doubled, doubled, 0), source
        assert (source["joined"], source["alone"]) == (len(own & complete), len(own - complete))
        assert source["absent"] == len(some - own) and ranges(source["absent_at"]) == sorted(some - own)
        assert ranges(source["alone_at"]) == sorted(own - complete)
        assert account["sources"][name] == source
    assert report["output"] == {"sent": len(some), "full": 0, "nobody": 0, "failed": None}

    # The messages: pixels as they were sent, and the numbers.
    assert sorted(head["trigger"] for head, _ in found) == sorted(some)
    assert [head["row"] for head, _ in found] == list(range(len(some)))
    for head, parts in found:
        n = head["trigger"]
        assert head["complete"] == (n in complete) and set(head["absent"]) == {name for name in seen if n not in seen[name]}
        if n in seen["left"]:
            first, pixels = image_of(head, parts, "left")
            assert first["frame"] == n - 1 and pixels == images[n - 1].tobytes()
        if n in seen["right"]:
            first, pixels = image_of(head, parts, "right")
            assert first["frameNumber"] == n and set(pixels) == {n}
        assert head["scalars"].get("encoder", {}) == ({"angle_deg": 0.1 * n} if n in seen["encoder"] else {})

    # The table leads to the images in the files of the detectors.
    columns, counted = table(tmp_path / "joined.h5")
    assert {name: counts["joined"] for name, counts in counted.items()} == {name: len(own & complete) for name, own in seen.items()}
    rows = {int(n): row for row, n in enumerate(columns["trigger"])}
    assert sorted(rows) == sorted(some)
    left.until(lambda status: status["state"] == "idle")
    stored = SeriesFile(tmp_path / "left_master.h5", check=None).images
    stored_right = Master(right.wait()["file"]).images
    for n, row in rows.items():
        assert columns["complete"][row] == (n in complete) and columns["reason"][row] == (0 if n in complete else 1)
        place = columns["left/image"][row]
        assert place == (n - 1 if n in seen["left"] else -1)
        assert place < 0 or np.array_equal(stored[place], images[n - 1])
        place = columns["right/image"][row]
        assert place == (n - 1 if n in seen["right"] else -1)
        assert place < 0 or (stored_right[place] == n * 0x0101).all()
        angle = columns["encoder/angle_deg"][row]
        assert np.isclose(angle, 0.1 * n) if n in seen["encoder"] else np.isnan(angle)


def test_hostile_messages_are_counted_and_nothing_else(world, tmp_path):
    source, device = address(), address()
    text = f"timeout_ms = 3000\n{stream('a', source)}{scalar('energy', device, 'offset = -5')}"
    join = world.join(text + scalar("shutter", device, "required = false"), "--file", tmp_path / "t.h5")
    detector, sender = world.push(source), world.push(device)
    stins, images = Stins(), pictures(3)
    malformed = [
        b"", b"rubbish", b"\xff\xfe", b"[]", b"null", b"{}", b"[" * 50_000, b'{"a":' * 5000,
        b'{"source":"energy","trigger":-1,"values":{"a":1}}', b'{"source":"energy","trigger":1.5,"values":{"a":1}}',
        b'{"source":"energy","trigger":"1","values":{"a":1}}', b'{"source":"energy","trigger":1,"values":{"a":NaN}}',
        b'{"source":"energy","trigger":1,"values":{"a":"NaN"}}', b'{"source":"energy","trigger":1,"values":{"a":null}}',
        b'{"source":"energy","trigger":1,"values":{}}', b'{"source":"energy","trigger":1,"values":{"../x":1}}',
        b'{"source":7,"trigger":1,"values":{"a":1}}',
    ]  # fmt: skip
    for message in malformed:
        sender.send(message)
    sender.send_multipart([numbers("energy", 5, a=1.0), b"more"])
    sender.send(numbers("nobody", 5, a=1.0))
    sender.send(numbers("energy", 4, a=1.0))
    # A sender of more than a message may have is disconnected, and the others are not.
    large = world.push(device)
    large.send(b" " * 10_000_000)
    time.sleep(0.5)
    detector.send_multipart([b"rubbish"])
    for message in stins.series(images):
        detector.send_multipart(message)
    for n in range(3):
        sender.send(numbers("energy", n + 5, j_per_pulse=n / 2))
        sender.send(numbers("shutter", n, is_open=1))
    report = join.report(code=1)
    first, second = report["sockets"]
    assert (first["malformed"], first["parts"], first["control"]) == (1, 3, 2)
    assert (second["malformed"], second["unknown"], second["unnumbered"]) == (len(malformed) + 1, 1, 1), second
    assert "not the JSON" in second["first_problem"]
    assert report["numbers"]["complete"] == 3 and report["sources"]["energy"]["joined"] == 3
    columns, _ = table(tmp_path / "t.h5")
    assert columns["energy/j_per_pulse"].tolist() == [0, 0.5, 1] and columns["shutter/is_open"].tolist() == [1, 1, 1]


@pytest.mark.parametrize("reads", ["nothing", "nobody"])
def test_a_client_that_is_slow_or_gone_holds_up_nothing(world, reads):
    left, right, out = address(), address(), address()
    text = f"timeout_ms = 2000\n{stream('l', left)}{stream('r', right)}"
    join = world.join(text + output(out, "queue_messages = 2\nwait_ms = 50"))
    if reads == "nothing":
        taker = world.pull(out, 1)  # noqa: F841  connected, and it takes nothing
    senders, stins, count = [world.push(left), world.push(right)], [Stins(), Stins()], 60
    image = pictures(1, (512, 1024))[0]
    time.sleep(0.5)
    begun = time.monotonic()
    for sender, messages in zip(senders, stins, strict=True):
        sender.send_multipart(messages.start())
    for n in range(count):
        for sender, messages in zip(senders, stins, strict=True):
            sender.send_multipart(messages.image(n, image))
    for sender, messages in zip(senders, stins, strict=True):
        sender.send_multipart(messages.end())
    report = join.report(code=1)
    assert time.monotonic() - begun < 30
    said = report["output"]
    assert report["numbers"]["complete"] == report["handed_on"] == count == said["sent"] + said["full"] + said["nobody"]
    assert said["nobody"] == count if reads == "nobody" else said["full"] > 0, said


def test_a_source_that_vanishes_is_absent_until_it_comes_back(world):
    left, right = address(), address()
    key = 'bind = true\nkey = "/pulse"'
    text = f"timeout_ms = 1500\n{stream('l', left, key)}{stream('r', right, key)}"
    join = world.join(text, "--file", world.folder / "t.h5")
    image = pictures(1)[0]
    ours, theirs = Stins(), Stins()
    sender, other = world.push(left), world.push(right)
    sender.send_multipart(ours.start())
    other.send_multipart(theirs.start("first"))
    for n in range(30):
        sender.send_multipart(ours.image(n, image, pulse=1000 + n))
        if n < 10:
            other.send_multipart(theirs.image(n, image, pulse=1000 + n))
        if n == 10:
            other.close()
        if n == 20:
            # It has started anew, and its messages and images are counted anew. Two connections have no order among them.
            time.sleep(0.5)
            other, theirs = world.push(right), Stins()
            other.send_multipart(theirs.start("second"))
        if n >= 20:
            other.send_multipart(theirs.image(n - 20, image, pulse=1000 + n))
    sender.send_multipart(ours.end())
    other.send_multipart(theirs.end())
    report = join.report(code=1)
    assert report["numbers"]["complete"] == 20 and report["numbers"]["timed_out"] == 10
    assert report["sources"]["l"]["alone"] == 10 and ranges(report["sources"]["r"]["absent_at"]) == list(range(1010, 1020))
    assert report["sources"]["r"]["series"] == 2 and report["sources"]["r"]["files"] == ["first", "second"]
    columns, _ = table(world.folder / "t.h5")
    order = np.argsort(columns["trigger"])
    assert columns["r/series"][order].tolist() == [0] * 10 + [-1] * 10 + [1] * 10
    assert columns["r/image"][order].tolist() == [*range(10), *[-1] * 10, *range(10)]


def test_numbers_that_begin_anew_are_never_joined_with_other_triggers(world):
    left, device = address(), address()
    join = world.join(f"timeout_ms = 1000\n{stream('l', left)}{scalar('e', device)}", "--file", world.folder / "t.h5")
    sender, encoder, stins, image = world.push(left), world.push(device), Stins(), pictures(1)[0]
    sender.send_multipart(stins.start("first"))
    for n in range(5):
        sender.send_multipart(stins.image(n, image))
        encoder.send(numbers("e", n, a=n))
    # A further series without an end of the first one; the numbers of the triggers go on.
    sender.send_multipart(stins.start("second"))
    for n in range(5):
        sender.send_multipart(stins.image(n, image))
        encoder.send(numbers("e", 5 + n, a=5 + n))
    encoder.send(numbers("e", 0, a=100))
    time.sleep(0.5)
    sender.send_multipart(stins.end())
    report = join.report(code=1)
    assert report["numbers"]["complete"] == 5 and report["sources"]["l"]["other_series"] == 5
    e = report["sources"]["e"]
    assert (e["joined"], e["alone"], e["doubled"], e["backwards"]) == (5, 5, 1, 1)


def test_memory_is_bounded_and_the_oldest_goes_first(world):
    left, right = address(), address()
    text = f"timeout_ms = 600000\nmemory_mib = 1\nincomplete = 'drop'\nstall_s = 2.0\n{stream('l', left)}{stream('r', right)}"
    join = world.join(text, "--file", world.folder / "t.h5")
    sender, stins = world.push(left), Stins()
    image = pictures(1, (256, 256))[0]
    for message in stins.series([image] * 40):
        sender.send_multipart(message)
    report = join.report(code=1)
    assert report["ended"] == "stalled" and report["memory_bytes_most"] < (1 << 20) + 2 * image.nbytes
    source = report["sources"]["l"]
    assert source["pushed_out"] + source["alone"] == 40 and source["pushed_out"] >= 40 - (1 << 20) // image.nbytes
    numbers = report["numbers"]
    assert (numbers["dropped"], numbers["pushed_out"], report["handed_on"]) == (40, source["pushed_out"], 0)
    assert source["alone_at"]["ranges"] == [[0, 39]]


def test_a_full_disk_ends_the_table_and_not_the_stream(small_disk, world):
    left, device, out = address(), address(), address()
    text = f"timeout_ms = 2000\n{stream('l', left)}{scalar('e', device)}{output(out)}"
    join = world.join(text, "--file", small_disk / "t.h5")
    taker = world.pull(out)
    with open(small_disk / "rest", "wb", buffering=0) as rest, contextlib.suppress(OSError):
        while True:
            rest.write(b"x" * 4096)
    sender, encoder, stins, image = world.push(left), world.push(device), Stins(), pictures(1, (8, 8))[0]
    count = 9000
    sender.send_multipart(stins.start())
    for n in range(count):
        sender.send_multipart(stins.image(n, image))
        encoder.send(numbers("e", n, **{f"v{m}": m for m in range(8)}))
    sender.send_multipart(stins.end())
    found, _ = joined_messages(taker)
    report = join.report(code=6)
    assert len(found) == count == report["numbers"]["complete"] == report["output"]["sent"]
    assert "No space left" in json.dumps(report["table"]["failed"]), report["table"]
    assert report["table"]["unwritten"] > 0 and report["table"]["rows"] + report["table"]["unwritten"] == count


def test_ctrl_c_ends_it_with_a_whole_account(world):
    left, right = address(), address()
    text = f"timeout_ms = 600000\n{stream('l', left)}{stream('r', right)}"
    join = world.join(text, "--file", world.folder / "t.h5")
    sender, stins, image = world.push(left), Stins(), pictures(1)[0]
    sender.send_multipart(stins.start("run_0001"))
    for n in range(4):
        sender.send_multipart(stins.image(n, image))
    time.sleep(1)
    join.process.send_signal(INTERRUPT)
    report = join.report(code=1)
    assert (report["ended"], report["numbers"]["at_end"], report["sources"]["l"]["alone"]) == ("stopped", 4, 4)
    columns, _ = table(world.folder / "t.h5")
    assert columns["l/image"].tolist() == [0, 1, 2, 3] and columns["reason"].tolist() == [3] * 4


def test_mistakes_are_named(world, tmp_path):
    path = tmp_path / "join.toml"

    def refused(text, code, *said):
        path.write_text(text)
        done = program("join", path, check=code)
        assert all(one in done.stderr for one in said), done.stderr

    good = stream("l", address()) + scalar("e", address())
    refused(good, 3, "neither 'file' nor [output]")
    refused(good.replace('"e"', '"l"'), 3, "two sources have the name 'l'", "docs/join.md")
    refused("[[stream", 3, "is no valid join")
    existing = tmp_path / "t.h5"
    existing.write_bytes(b"something")
    refused(f'file = "{existing}"\n{good}', 6, str(existing))
    assert existing.read_bytes() == b"something"
    program("join", tmp_path / "none.toml", check=6)
    taken = world.context.socket(zmq.PUSH)
    taken.bind(where := address())
    refused(f'file = "{tmp_path / "u.h5"}"\n{stream("l", where)}{scalar("e", address())}', 6, where)
    assert "is not possible" in program("join", path, "--stall-s=-1", check=2).stderr
