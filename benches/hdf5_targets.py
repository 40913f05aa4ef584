"""Runs `konkordia bench hdf5` on a disk, in memory (tmpfs) and on a network file system of its own, and prints its JSON.

The network file system is sshfs: an sshd in a network namespace serves a folder in memory, over a veth pair with a second
namespace in which sshfs runs. Its bandwidth is not limited. It is a software stand-in: client, server and encryption share
the cores of this machine with the bench. Whatever happens, also on Ctrl-C, all of it is removed.

usage: hdf5_targets.py PROGRAM [--disk DIR] [--memory DIR] [ARGUMENTS of konkordia bench hdf5]

Needs root rights, sshfs, sshd and ssh-keygen (Debian: sshfs, openssh-server), unshare, nsenter and ip. The bench runs with
--sync: until the data are on the disk, or with the server.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator

SERVER, CLIENT, PORT = "10.9.0.1", "10.9.0.2", 2222
NETWORK = "sshfs over a veth pair between two network namespaces of this machine: a software stand-in for a network file system, its bandwidth not limited"
# In a system without systemd nobody else makes this folder, without which sshd does not start.
PRIVILEGE_SEPARATION = pathlib.Path("/run/sshd")


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("program")
    arguments.add_argument("--disk", default=tempfile.gettempdir(), help="folder on a disk [default: that for temporary files]")
    arguments.add_argument("--memory", default="/dev/shm", help="folder in memory")
    known, others = arguments.parse_known_args()
    if missing := lacking():
        print(f"hdf5_targets: cannot make a network file system here\n  why:  {'; '.join(missing)}\n  fix:  run it as root; apt-get install sshfs openssh-server", file=sys.stderr)
        return 2
    # Both end it with everything removed, also where a shell started it in the background.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    with contextlib.ExitStack() as stack:
        mounted = stack.enter_context(network_file_system(pathlib.Path(known.memory)))
        command = [known.program, "bench", "hdf5", "--dir", known.disk, known.memory, str(mounted), "--sync", *others, "--json"]
        bench = stack.enter_context(process(command, of_bench=True))
        printed, _ = bench.communicate()
        if not printed:
            return bench.returncode
        report = json.loads(printed)
        report["network"] = NETWORK
        print(json.dumps(report))
        return bench.returncode


def lacking() -> list[str]:
    """What this machine has not."""
    found = [f"no program {name}" for name in ("sshfs", "ssh", "ssh-keygen", "unshare", "nsenter", "ip", "fusermount3") if not shutil.which(name)]
    if sshd() is None:
        found.append("no program sshd")
    if os.geteuid() != 0:
        found.append("not root")
    if not os.path.exists("/dev/fuse"):
        found.append("no /dev/fuse: the kernel has no FUSE, or this container may not use it")
    return found


def sshd() -> str | None:
    # It only starts by its full path.
    return shutil.which("sshd", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


@contextlib.contextmanager
def process(command: list[str], of_bench: bool = False) -> Iterator[subprocess.Popen[bytes]]:
    """A process that does not outlive this, and has some time to remove its files. Ctrl-C reaches the bench only: the
    others must last until the bench has removed its own."""
    running = subprocess.Popen(command, stdout=subprocess.PIPE if of_bench else None, start_new_session=not of_bench)
    try:
        yield running
    finally:
        if running.poll() is None:
            running.terminate()
            try:
                running.wait(20)
            except subprocess.TimeoutExpired:
                running.kill()
                running.wait()


def until(holds: Callable[[], bool], what: str, running: list[subprocess.Popen[bytes]], timeout_s: float = 20) -> None:
    end = time.monotonic() + timeout_s
    while not holds():
        ended = [one for one in running if one.poll() is not None]
        if ended or time.monotonic() > end:
            raise SystemExit(f"hdf5_targets: {what} never came" + "".join(f"; a process ended with {one.returncode}: {one.args!r}" for one in ended))
        time.sleep(0.02)


@contextlib.contextmanager
def namespace() -> Iterator[int]:
    """A network namespace: the process that holds it."""
    with process(["unshare", "--net", "sleep", "infinity"]) as holder:
        own = os.readlink("/proc/self/ns/net")
        until(lambda: os.readlink(f"/proc/{holder.pid}/ns/net") != own, "a network namespace", [holder])
        yield holder.pid


def inside(pid: int, *command: str) -> list[str]:
    return ["nsenter", "--target", str(pid), "--net", *command]


@contextlib.contextmanager
def wire() -> Iterator[tuple[int, int]]:
    """The namespaces of a server and a client, and a veth pair between them."""
    with namespace() as server, namespace() as client:
        subprocess.run(inside(client, "ip", "link", "add", "client", "type", "veth", "peer", "name", "server", "netns", str(server)), check=True)
        for pid, name, address in ((server, "server", SERVER), (client, "client", CLIENT)):
            subprocess.run(inside(pid, "ip", "address", "add", f"{address}/24", "dev", name), check=True)
            for link in ("lo", name):
                subprocess.run(inside(pid, "ip", "link", "set", link, "up"), check=True)
        yield server, client


@contextlib.contextmanager
def folder(path: pathlib.Path) -> Iterator[None]:
    """A folder that is removed if it was not there."""
    is_new = not path.exists()
    path.mkdir(exist_ok=True, mode=0o755)
    try:
        yield
    finally:
        if is_new:
            path.rmdir()


@contextlib.contextmanager
def network_file_system(memory: pathlib.Path) -> Iterator[pathlib.Path]:
    """Where a folder in memory of the server is mounted by sshfs."""
    with contextlib.ExitStack() as stack:
        keys = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="konkordia-sshfs-")))
        served = stack.enter_context(tempfile.TemporaryDirectory(prefix="konkordia-served-", dir=memory))
        mounted = keys / "mounted"
        mounted.mkdir()
        for name in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(keys / name)], check=True)
        (keys / "known_hosts").write_text(f"[{SERVER}]:{PORT} {(keys / 'host.pub').read_text()}")
        server, client = stack.enter_context(wire())
        stack.enter_context(folder(PRIVILEGE_SEPARATION))
        settings = [
            f"Port={PORT}",
            f"ListenAddress={SERVER}",
            f"HostKey={keys / 'host'}",
            f"AuthorizedKeysFile={keys / 'user.pub'}",
            "StrictModes=no",
            "UsePAM=no",
            "PermitRootLogin=prohibit-password",
            "PasswordAuthentication=no",
            "PidFile=none",
            "Subsystem=sftp internal-sftp",
        ]
        options = [word for setting in settings for word in ("-o", setting)]
        serving = stack.enter_context(process(inside(server, sshd() or "sshd", "-D", "-e", "-q", "-f", "/dev/null", *options)))
        until(lambda: listens(server), "the sshd of the server", [serving])
        # Nobody else would wait for the process of the connection.
        children = pathlib.Path(f"/proc/{serving.pid}/task/{serving.pid}/children")
        stack.callback(until, lambda: not children.read_text(), "the end of the connection", [serving])
        stack.enter_context(mount(client, keys, served, mounted))
        yield mounted


def listens(server: int) -> bool:
    """Whether something listens at the port in this namespace."""
    table = pathlib.Path(f"/proc/{server}/net/tcp").read_text()
    # The fourth word is the state; 0A: listening.
    lines = [line.split() for line in table.splitlines()[1:]]
    return any(words[1].endswith(f":{PORT:04X}") and words[3] == "0A" for words in lines)


@contextlib.contextmanager
def mount(client: int, keys: pathlib.Path, served: str, mounted: pathlib.Path) -> Iterator[None]:
    options = ["port=" + str(PORT), f"IdentityFile={keys / 'user'}", f"UserKnownHostsFile={keys / 'known_hosts'}", "BatchMode=yes"]
    words = [word for option in options for word in ("-o", option)]
    command = inside(client, "sshfs", "-f", f"root@{SERVER}:{served}", str(mounted), *words)
    with process(command) as running:
        try:
            until(lambda: os.path.ismount(mounted), "the sshfs of the client", [running])
            yield
        finally:
            # Lazily, should a file be open; sshfs then ends by itself.
            if os.path.ismount(mounted):
                subprocess.run(["fusermount3", "-u", "-z", str(mounted)], check=False)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
