"""Ports that no other test uses, even where several test processes run side by side on one machine.

Each process locks a block of ports for as long as it lives. The blocks lie below the range from which the system
assigns ports.
"""

import fcntl
import os
import pathlib
import socket
import tempfile

BLOCK = 200
FIRST = 12000


def _end():
    try:
        text = pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii")
    except OSError:
        text = "32768 60999"
    end = min(32768, int(text.split()[0]))
    # Where that range begins so low that no block fits below it, the blocks lie inside it.
    return end if end - FIRST >= BLOCK else 32768


class Ports:
    """The block of this process. Its ports are given out in turn, so that none is used again at once."""

    def __init__(self):
        folder = pathlib.Path(tempfile.gettempdir()) / f"konkordia-ports-{os.getuid()}"
        folder.mkdir(exist_ok=True)
        for self.first in range(FIRST, _end() - BLOCK + 1, BLOCK):
            self.lock = open(folder / str(self.first), "w", encoding="ascii")  # noqa: SIM115  held until the process ends
            try:
                fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                self.lock.close()
                continue
            self.process, self.next = os.getpid(), 0
            return
        raise RuntimeError(f"every block of ports is taken; the locks are in {folder}")

    def take(self, count):
        """First of `count` consecutive ports that are free for UDP and for TCP."""
        for _ in range(2 * BLOCK):
            if self.next + count > BLOCK:
                self.next = 0
            first = self.first + self.next
            self.next += count
            if all(is_free(port) for port in range(first, first + count)):
                return first
        raise RuntimeError(f"no {count} free ports between {self.first} and {self.first + BLOCK - 1}")


def is_free(port):
    for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
        with socket.socket(socket.AF_INET, kind) as s:
            if kind == socket.SOCK_STREAM:
                # A recently closed connection does not make a port busy: servers bind in spite of it.
                s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                s.bind(("127.0.0.1", port))
            except OSError:
                return False
    return True


_own = None


def free_ports(count=1):
    """First of `count` consecutive ports that are free now and that no other test takes."""
    global _own
    if _own is None or _own.process != os.getpid():
        _own = Ports()
    return _own.take(count)
