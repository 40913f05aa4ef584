"""Attacks on a service: what a program without any rights can do to its ports, and a disk that fills. Each attack is a
context manager. Its block begins when the attack has a visible effect, and the attack goes on until the block ends. The
block gets a function that describes the effect.
"""

import contextlib
import resource
import select
import socket
import struct
import threading
import time

import pytest
from detectors import WAIT_S, MessageDetector, PacketDetector
from service import until

MIB = 1 << 20
IDLE_CONNECTIONS = 64
HALF_SENDERS = [f"127.0.0.{n}" for n in range(2, 8)]
CROWD = 1100
PART = 100_000


def http_address(service):
    host, port = service.url.removeprefix("http://").split(":")
    return host, int(port)


def connect_from(service, source):
    """An HTTP connection from another loopback address; on Linux all of 127.0.0.0/8 belong to the machine."""
    return socket.create_connection(http_address(service), timeout=30, source_address=(source, 0))


def half_requests_from(service, sources, each):
    """Connections that have sent only the beginning of a request."""
    halves = []
    for source in sources:
        for _ in range(each):
            half = connect_from(service, source)
            halves.append(half)
            half.sendall(b"POST /api/v1/cancel HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
    return halves


@contextlib.contextmanager
def many_files_allowed():
    """Raises the limit of open files, so that this process can hold its ends of many connections. Child processes
    inherit the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < CROWD + 500:
        pytest.skip(f"this process may open {hard} files, and {CROWD + 500} are needed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, CROWD + 500), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def host_and_port(address):
    host, port = address.removeprefix("tcp://").rsplit(":", 1)
    return host, int(port)


def crowd_at(address):
    """Opens many connections that send nothing."""
    crowd = []
    for n in range(CROWD):
        # The port queues a hundred connections. The kernel reports a connection that finds the queue full as open to
        # this side, but not to the service.
        if n % 50 == 0:
            time.sleep(0.02)
        idle = socket.socket()
        idle.setblocking(False)
        idle.connect_ex(host_and_port(address))
        crowd.append(idle)
    return crowd


def endless(address, part, goes_on=lambda: True):
    """Sends one message with endless parts as a PUSH socket does (ZMTP 3.0), until the connection is closed. Returns
    the bytes sent."""
    ready = b"\x05READY\x0bSocket-Type\0\0\0\x04PUSH"
    parts = memoryview((b"\x03" + struct.pack(">Q", len(part)) + part) * max(1, MIB // len(part)))
    sent = 0
    with socket.create_connection(host_and_port(address), timeout=60) as s:
        s.sendall(b"\xff" + bytes(8) + b"\x7f\x03\0" + b"NULL".ljust(20, b"\0") + bytes(32))
        s.recv(64)
        s.sendall(bytes([4, len(ready)]) + ready)
        s.settimeout(0.5)
        quiet_since = time.monotonic()
        while sent < 1024 * MIB and goes_on() and time.monotonic() < quiet_since + 60:
            try:
                sent += s.send(parts[sent % len(parts) :])
            except TimeoutError:
                continue
            except OSError:
                break
            quiet_since = time.monotonic()
    return sent


def effect(condition, what):
    """Waits for what the attack does. Looks seldom, because looking costs the service time too."""
    until(condition, f"{what}: the attack does nothing", WAIT_S, every_s=0.1)


class Repeated:
    """Repeats `step` in its own thread until the block ends. Then raises the exception that occurred in it, if any."""

    def __init__(self, step, pause_s):
        self.step, self.pause_s = step, pause_s
        self.times, self.problem, self.is_over = 0, None, threading.Event()
        self.thread = threading.Thread(target=self._go_on)
        self.thread.start()

    def goes_on(self):
        return not self.is_over.is_set()

    def _go_on(self):
        try:
            while self.goes_on():
                self.step(self)
                self.times += 1
                self.is_over.wait(self.pause_s)
        except Exception as problem:
            self.problem = problem

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.is_over.set()
        self.thread.join(WAIT_S)
        if self.problem:
            raise self.problem


@contextlib.contextmanager
def idle_connections(target, _):
    crowd = []
    try:
        crowd += [connect_from(target.service, "127.0.0.1") for _ in range(IDLE_CONNECTIONS)]
        yield lambda: f"{len(crowd)} connections"
    finally:
        for idle in crowd:
            idle.close()


@contextlib.contextmanager
def half_requests(target, _):
    halves = half_requests_from(target.service, HALF_SENDERS, each=60)
    try:
        yield lambda: f"{len(halves)} halves"
    finally:
        for half in halves:
            half.close()


@contextlib.contextmanager
def zeromq_connections(target, _):
    with many_files_allowed():
        crowd = crowd_at(target.address)
        try:
            poll = select.poll()
            for idle in crowd:
                poll.register(idle, select.POLLRDHUP)
            closed = lambda: len(poll.poll(0))  # noqa: E731
            effect(lambda: closed() >= 100, "connections are closed")
            yield lambda: f"{closed()} of {CROWD} closed"
        finally:
            for idle in crowd:
                idle.close()


@contextlib.contextmanager
def endless_multipart(target, _):
    cut = []

    def step(thread):
        with contextlib.suppress(ConnectionError):
            sent = endless(target.address, bytes(PART), thread.goes_on)
            if thread.goes_on():
                assert sent < 1024 * MIB, "it was never cut off"
                cut.append(sent)

    # Without a pause it would also be an attack on the processors.
    with Repeated(step, pause_s=0.1):
        effect(lambda: cut, "a message without an end is cut off")
        yield lambda: f"{len(cut)} messages cut off, after at most {max(cut) / MIB:.0f} MiB"


@contextlib.contextmanager
def far_frame_numbers(target, rng):
    """Between its own frames, the detector itself sends parts of frames far ahead, each at a different distance."""
    refused = target.refused()
    # Numbers from the whole range of the type.
    with target.sender.also_sending(lambda number: min(number + int(10 ** rng.uniform(6, 19)), target.sender.frame_max)) as far:
        effect(lambda: target.refused() > refused, "numbers far ahead are refused")
        yield lambda: f"{len(far)} numbers far ahead, up to {max(far):.0e}, {target.refused() - refused} packets or messages refused"


@contextlib.contextmanager
def far_frame_numbers_that_agree(target, _):
    """The same, but all at one distance, as if the detector had jumped there. The distance is below 2^20; a number
    further ahead is always foreign."""
    with target.sender.also_sending(lambda number: number + 900_000) as far:
        effect(lambda: len(far) >= 10, "numbers far ahead are sent")
        yield lambda: f"{len(far)} numbers far ahead that agree"


@contextlib.contextmanager
def stranger(target, _):
    """A second detector of the same kind sends to the same ports, a little ahead of the first one."""
    refused = target.refused()
    with contextlib.closing(target.packets_of_a_frame.from_somebody_else()) as other:

        def step(_):
            other.send(target.sender.number + 3)

        with Repeated(step, pause_s=0.02) as strange:
            effect(lambda: target.refused() > refused, "packets of a stranger are refused")
            yield lambda: f"{strange.times} frames of the stranger, {target.refused() - refused} packets refused"


@contextlib.contextmanager
def disk_full(target, _):
    """The disk of the run fills up completely."""
    filler = target.small_disk / "filler"
    try:
        with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(MIB))
        with filler.open("ab", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(512))
        effect(lambda: target.status()["severity"] == "error", "the run cannot be written")
        message = target.status()["message"]
        yield lambda: f"error: {message}"
    finally:
        filler.unlink()


class Attack:
    """Name, function, kinds of detectors that it applies to, and whether the run is on the small disk."""

    def __init__(self, name, carry_out, kinds=(PacketDetector, MessageDetector), on_small_disk=False):
        self.name, self.carry_out, self.kinds, self.on_small_disk = name, carry_out, kinds, on_small_disk


ATTACKS = [
    Attack("64 idle HTTP connections", idle_connections),
    Attack("half requests", half_requests),
    Attack("1100 ZeroMQ connections", zeromq_connections, [MessageDetector]),
    Attack("endless multipart", endless_multipart, [MessageDetector]),
    Attack("far frame numbers (packets)", far_frame_numbers, [PacketDetector]),
    Attack("far frame numbers (messages)", far_frame_numbers, [MessageDetector]),
    Attack("stranger on the UDP ports", stranger, [PacketDetector]),
    Attack("disk full (packets)", disk_full, [PacketDetector], on_small_disk=True),
    Attack("disk full (messages)", disk_full, [MessageDetector], on_small_disk=True),
    Attack("far frame numbers that agree (packets)", far_frame_numbers_that_agree, [PacketDetector]),
    Attack("far frame numbers that agree (messages)", far_frame_numbers_that_agree, [MessageDetector]),
]


class Outcome:
    """What an attack did to the attacked detector, and how long its `cancel` took during the attack."""

    def __init__(self, attack, target, note, status, cancel_s, answer):
        self.attack, self.target, self.note, self.cancel_s, self.answer = attack, target, note, cancel_s, answer
        self.images, self.lost = status["images_committed"], status["images_lost"] + status["images_partial"]

    def line(self, beside):
        return (
            f"{self.attack.name} | beside: {beside} | cancel {self.cancel_s * 1000:.0f} ms, then {self.answer['state']} | "
            f"attacked {self.target.name}: {self.images} images, {self.lost} lost or partial; {self.note}"
        )


def attacked(attack, target, meanwhile, rng):
    """Attacks a detector in the middle of a run. Calls `meanwhile` during the attack, then cancels the run."""
    with target.run_of_its_own(on_small_disk=attack.on_small_disk), attack.carry_out(target, rng) as result_of:
        meanwhile()
        status, note = target.status(), result_of()
        begun = time.monotonic()
        answer = target.command("cancel")
        return Outcome(attack, target, note, status, time.monotonic() - begun, answer)
