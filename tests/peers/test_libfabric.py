"""A program of C that uses libfabric as its headers say, on the other side of our links."""

import os
import pathlib
import signal
import struct
import subprocess

import numpy as np
import programs  # noqa: F401  puts our other tests on the path
import pytest
from examples_of_ours import example
from programs import HERE, needs, wait_until

HEADER = pathlib.Path("/usr/include/rdma/fi_rma.h")
pytestmark = [pytest.mark.peer("libfabric"), needs(HEADER, "libfabric-dev"), needs(pathlib.Path("/usr/bin/cc"), "gcc")]

PROVIDERS = ["tcp", "shm"]
WRITES = 3000


def content(n):
    """What write n has: the same as in libfabric_peer.c and in link_peer.rs."""
    length = 300_000 if n % 100 == 7 else 1 + n * 7919 % 20_000
    i = np.arange(length, dtype=np.uint64)
    return (((i * 31 + n * 2654435761) & 0xFFFFFFFF) >> 5).astype(np.uint8).tobytes()


def compare(path, writes):
    """The file has for each event its number and what was in memory then."""
    with open(path, "rb") as file:
        for n in range(writes):
            assert file.read(4) == struct.pack("<I", n)
            expected = content(n)
            assert file.read(len(expected)) == expected, f"write {n}"
        assert file.read() == b""


@pytest.fixture(scope="module")
def peer(tmp_path_factory):
    program = tmp_path_factory.mktemp("libfabric") / "libfabric_peer"
    command = ["cc", "-O1", "-Wall", "-o", program, HERE / "libfabric_peer.c", "-lfabric"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return program


class Both:
    """Our side, which listens, and theirs, with their output in files."""

    def __init__(self, folder, peer, provider, ours, theirs, writes, their_writes=None):
        self.folder = folder
        link_peer = example("konkordia-links", "link_peer")
        self.ours = self.start("ours", link_peer, ours, provider, writes)
        port = wait_until(lambda: self.said("ours")[:1], what="the port")[0]
        self.theirs = self.start("theirs", peer, provider, port, theirs, writes if their_writes is None else their_writes)

    def start(self, name, *command):
        with open(self.folder / f"{name}.out", "wb") as out, open(self.folder / f"{name}.err", "wb") as err:
            return subprocess.Popen([str(part) for part in command], stdin=subprocess.DEVNULL, stdout=out, stderr=err)

    def said(self, name):
        # Whole lines only.
        return [line.rstrip() for line in (self.folder / f"{name}.err").read_text().splitlines(True) if line.endswith("\n")]

    def end(self):
        try:
            return self.theirs.wait(500), self.ours.wait(500)
        finally:
            for process in (self.theirs, self.ours):
                process.kill()
                process.wait()


@pytest.mark.parametrize("provider", PROVIDERS)
def test_it_writes_into_our_memory(tmp_path, peer, provider):
    """Writes thousands of times into our memory with `fi_writedata`; bytes and events are right (`tcp`, `shm`)."""
    both = Both(tmp_path, peer, provider, "receive", "write", WRITES)
    assert both.end() == (0, 0), both.said("ours") + both.said("theirs")
    assert both.said("ours")[-1] == "ended well"
    compare(tmp_path / "ours.out", WRITES)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_we_write_into_its_memory(tmp_path, peer, provider):
    """Finds our writes in its memory, and our events in its queue, thousands of them (`tcp`, `shm`)."""
    both = Both(tmp_path, peer, provider, "write", "receive", WRITES)
    assert both.end() == (0, 0), both.said("ours") + both.said("theirs")
    compare(tmp_path / "theirs.out", WRITES)


# Without an event, the provider `shm` writes into the memory of the other process by itself (`process_vm_writev`), and
# looks at no key: docs/fabrics.md says so.
@pytest.mark.parametrize(
    ("provider", "wrong"),
    [("tcp", "key"), ("tcp", "place"), ("tcp", "key-silent"), ("tcp", "place-silent"), ("shm", "key"), ("shm", "place")],
)
def test_a_wrong_write_changes_nothing(tmp_path, peer, provider, wrong):
    """Writes with a wrong key or place: nothing changes in our memory, and our side lives on (`shm`: with events)."""
    both = Both(tmp_path, peer, provider, "receive", wrong, 1, their_writes=0)
    theirs, ours = both.end()
    # No event came; the connection was closed in the ordinary way.
    assert (theirs, ours) == (0, 1), both.said("ours") + both.said("theirs")
    assert both.said("theirs")[-1] == "the wrong write is over"
    assert both.said("ours")[1] == "bytes that are not 0: 0"
    assert "the other side has closed the link" in both.said("ours")[-1]


@pytest.mark.parametrize("wrong", ["key", "place"])
def test_after_a_wrong_write_the_right_ones_arrive(tmp_path, peer, wrong):
    """Right writes after a wrong one arrive (`shm`)."""
    both = Both(tmp_path, peer, "shm", "receive", wrong, 100)
    assert both.end() == (0, 0), both.said("ours") + both.said("theirs")
    compare(tmp_path / "ours.out", 100)


# Not by `shm`: who is killed while it holds a lock in the shared memory leaves libfabric waiting (docs/fabrics.md).
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_the_death_of_the_other_side_is_reported(tmp_path, peer, end):
    """Is killed in the midst of its writes (`tcp`): our side says that the link is closed, and ends as it should."""
    both = Both(tmp_path, peer, "tcp", "receive", "write", 1_000_000)
    wait_until(lambda: (tmp_path / "ours.out").stat().st_size > 1_000_000, what="the first writes")
    os.kill(both.theirs.pid, end)
    assert both.end()[1] == 1
    assert "the other side has closed the link" in both.said("ours")[-1]


def test_the_death_of_who_receives_is_reported(tmp_path, peer):
    """Is killed while we write into its memory (`tcp`): our side says that the link is closed, and ends as it should."""
    both = Both(tmp_path, peer, "tcp", "write", "receive", 1_000_000)
    wait_until(lambda: (tmp_path / "theirs.out").stat().st_size > 1_000_000, what="the first writes")
    both.theirs.kill()
    assert both.end()[1] == 1
    assert "the other side has closed the link" in both.said("ours")[-1]
