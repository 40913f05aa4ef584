"""A bug in the program costs only the run of one detector. A library between the program and the kernel provokes it:
for one port it reports more datagrams than were asked for, and the receiver panics at the first that does not exist."""

import os
import subprocess

import pytest
from driving import free_ports, program
from service import Service, write_config

LIAR = r"""
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

int recvmmsg(int fd, struct mmsghdr *headers, unsigned int count, int flags, struct timespec *timeout) {
    int (*real)(int, struct mmsghdr *, unsigned int, int, struct timespec *) = dlsym(RTLD_NEXT, "recvmmsg");
    int got = real(fd, headers, count, flags, timeout);
    struct sockaddr_in own;
    socklen_t length = sizeof own;
    if (got <= 0 || getsockname(fd, (struct sockaddr *)&own, &length) != 0) return got;
    if (ntohs(own.sin_port) != atoi(getenv("LIAR_PORT")) || access(getenv("LIAR_FILE"), F_OK) != 0) return got;
    return (int)count + 1;
}
"""


class Two:
    """A service with two detectors. While a file exists, recvmmsg reports too many datagrams on a port of the first."""

    def __init__(self, folder):
        self.folder, self.ports, self.lie = folder, free_ports(8), folder / "lie"
        (folder / "liar.c").write_text(LIAR)
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", folder / "liar.so", folder / "liar.c", "-ldl"], check=True)
        lines = ['[service]\nlisten = "127.0.0.1:0"\n']
        for n, name in enumerate(["hit", "other"]):
            write_config(folder, self.ports + 4 * n, name=f"{name}.toml", output={"prefix": name}, run={"stall_timeout_s": 30})
            lines.append(f'[detectors.{name}]\nconfig = "{name}.toml"\n')
        (folder / "both.toml").write_text("".join(lines))
        own = {"LD_PRELOAD": str(folder / "liar.so"), "LIAR_PORT": str(self.ports), "LIAR_FILE": str(self.lie)}
        self.service = Service(folder / "both.toml", environment={**os.environ, **own})

    def send(self, name, images):
        to = f"127.0.0.1:{self.ports + (4 if name == 'other' else 0)}"
        program("simulate", "eiger", "--to", to, "--bits", 8, "--images", images, "-q", "--rate", 200, check=0)


@pytest.fixture
def two(tmp_path):
    two = Two(tmp_path)
    yield two
    if two.service.process.poll() is None:
        two.service.process.kill()
        two.service.process.wait()


def test_a_panic_costs_the_run_of_its_detector_and_nothing_else(two):
    service = two.service
    for name in ["hit", "other"]:
        service.command("arm", {"images": 20}, detector=name)
    two.send("other", 5)
    two.send("hit", 5)
    service.until(lambda s: s["images_written"] >= 4, detector="hit")
    two.lie.touch()
    two.send("hit", 5)
    status = service.until(lambda s: s["state"] == "error", detector="hit")
    assert "a bug in konkordia" in status["message"] and "rx-" in status["message"], status
    assert status["ended"] == "program error" and status["severity"] == "error" and "report" in status["hint"], status
    assert status["images_written"] >= 4, status

    # The other detector is not affected.
    assert service.status(detector="other")["state"] == "running"
    # The first five images are duplicates.
    two.send("other", 20)
    status = service.wait(detector="other")
    assert (status["state"], status["images_written"], status["ended"]) == ("idle", 20, "finished"), status

    # The file is closed or can be repaired; every image in it is whole.
    entry = service.request("GET", "files", detector="hit")["files"][-1]
    assert (entry["state"], entry["ended"]) == ("failed", "program error"), entry
    checked = program("check", entry["master"], "--json", check=None)
    assert checked.returncode in (0, 1), checked
    assert any(e["event"] == "run_ended" and e["severity"] == "error" for e in service.request("GET", "logs")["logs"])

    # The detector can be armed again.
    two.lie.unlink()
    service.command("arm", {"images": 10, "prefix": "again"}, detector="hit")
    two.send("hit", 10)
    status = service.wait(detector="hit")
    assert (status["state"], status["images_written"], status["images_lost"]) == ("idle", 10, 0), status
    program("check", two.folder / "again_master.h5", check=0)
    service.process.terminate()
    assert service.process.wait(30) == 0
