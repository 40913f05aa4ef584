"""A detector behind a wire: two network namespaces and a veth pair between them."""

import contextlib
import ctypes
import os
import subprocess

import pytest
from driving import simulate
from service import Problem, until

DETECTOR, CARD, CARD_MAC = "10.8.0.1", "10.8.0.2", "02:00:00:00:00:02"
CLONE_NEWNET = 0x40000000


class Namespace:
    """A network namespace, which lives as long as this."""

    def __init__(self):
        self.holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
        self.path = f"/proc/{self.holder.pid}/ns/net"
        until(lambda: os.readlink(self.path) != os.readlink("/proc/self/ns/net"), "a network namespace")

    @contextlib.contextmanager
    def entered(self):
        """What this thread does and starts meanwhile, it does in the namespace."""
        own = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        try:
            there = os.open(self.path, os.O_RDONLY)
            enter(there)
            os.close(there)
            yield
        finally:
            enter(own)
            os.close(own)

    def ip(self, arguments):
        with self.entered():
            return subprocess.run(["ip", *arguments.split()], check=True, capture_output=True, text=True).stdout

    def end(self):
        self.holder.kill()
        self.holder.wait()


def enter(namespace):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


class Wire:
    """`det`, the end of the detector, and `card`, each in a namespace of its own."""

    def __init__(self):
        self.detector, self.card = Namespace(), Namespace()
        try:
            self.put_up()
        except BaseException:
            self.end()
            raise

    def put_up(self):
        self.card.ip(f"link add card address {CARD_MAC} mtu 9000 type veth peer name det mtu 9000")
        self.card.ip(f"link set det netns {self.detector.holder.pid}")
        ends = [(self.detector, "det", DETECTOR), (self.card, "card", CARD)]
        for end, name, address in ends:
            end.ip(f"address add {address}/24 dev {name}")
            end.ip("link set lo up")
            end.ip(f"link set {name} up")
        # On one machine datagrams that a sender hands over together would arrive as one frame.
        self.detector.ip("link set det gso_max_segs 1")
        # While a sender asks for the hardware address, few of its packets are kept.
        self.detector.ip(f"neighbour replace {CARD} lladdr {CARD_MAC} dev det nud permanent")
        until(lambda: all("state UP" in end.ip(f"link show {name}") for end, name, _ in ends), "a wire")

    @property
    def has_program(self):
        return "xdp" in self.card.ip("link show card")

    def send(self, port, *arguments):
        with self.detector.entered():
            return simulate(*arguments, "--to", f"{CARD}:{port}")

    def end(self):
        for end in (self.detector, self.card):
            end.end()


def needs_namespaces():
    """Skips the test where network namespaces cannot be made."""
    if os.geteuid() != 0 or subprocess.run(["unshare", "--net", "ip", "link"], capture_output=True, check=False).returncode != 0:
        pytest.skip("network namespaces need root rights, and `unshare` and `ip`")


@pytest.fixture
def wire():
    needs_namespaces()
    wire = Wire()
    yield wire
    wire.end()


def possible(backend, do):
    """What `do` returns; skips the test where this machine refuses the backend for want of rights."""
    try:
        return do()
    except (AssertionError, Problem) as why:
        if backend != "socket" and "CAP_NET_RAW" in str(why):
            pytest.skip(f'receive = "{backend}" is not permitted here')
        raise
