"""systemd, as process 1 of a namespace of its own, runs `deploy/konkordia.service`."""

import os
import pathlib
import shutil
import signal
import subprocess
import time
import urllib.request

import pytest
from programs import wait_until

from driving import BINARY, free_ports, program
from service import write_config

ROOT = pathlib.Path(__file__).resolve().parents[2]
SYSTEMD = pathlib.Path("/lib/systemd/systemd")
TOOLS = ("unshare", "nsenter", "mount", "systemctl", "systemd-analyze")
pytestmark = [
    pytest.mark.peer("systemd"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can make the namespaces"),
    pytest.mark.skipif(not SYSTEMD.exists() or not all(map(shutil.which, TOOLS)), reason="systemd is not installed"),
]

# What differs from an installed service: user and folders, and how soon the watchdog bites.
DROP_IN = """
[Unit]
RequiresMountsFor=
[Service]
User=root
Group=root
ExecStart=
ExecStart={binary} serve -c {config} --listen 127.0.0.1:{port}
ReadWritePaths=
ReadWritePaths={folder}
ConfigurationDirectory=
PrivateTmp=no
PrivateDevices=no
ProtectHome=no
WatchdogSec={watchdog_s}
StandardOutput=append:{folder}/service.log
StandardError=append:{folder}/service.log
"""


# The targets that every unit wants. Only these and the service are there: the units of the machine itself would tidy up
# its /tmp and set its kernel, because the namespaces share both.
TARGETS = ("basic", "sysinit", "shutdown", "network-online", "multi-user", "umount", "local-fs")


class Host:
    """A host whose process 1 is systemd, which starts the service. It can write into `folder` only."""

    def __init__(self, folder, watchdog_s):
        self.folder, self.port, self.udp = folder, free_ports(), free_ports(4)
        units = folder / "units"
        (units / "konkordia.service.d").mkdir(parents=True)
        shutil.copy(ROOT / "deploy/konkordia.service", units)
        for target in TARGETS:
            (units / f"{target}.target").write_text("[Unit]\nDefaultDependencies=no\n")
        config = write_config(folder, self.udp)
        drop_in = DROP_IN.format(binary=BINARY, config=config, port=self.port, folder=folder, watchdog_s=watchdog_s)
        (units / "konkordia.service.d/test.conf").write_text(drop_in)
        begin = f"set -e; mount --bind {folder} {folder}; mount -o remount,bind,ro /; mount -t tmpfs tmpfs /run; "
        begin += "mount -t tmpfs tmpfs /var/lib; mount -t tmpfs tmpfs /var/log; "
        begin += "umount -R /sys/fs/cgroup; mount -t cgroup2 none /sys/fs/cgroup; "
        begin += f"export container=konkordia-test SYSTEMD_UNIT_PATH={units}; exec {SYSTEMD} --system --unit=basic.target --log-target=console"
        namespaces = ["--fork", "--pid", "--mount", "--uts", "--ipc", "--cgroup", "--mount-proc", "--kill-child=KILL"]
        with open(folder / "systemd.log", "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(["unshare", *namespaces, "bash", "-c", begin], stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def end(self):
        self.process.kill()
        self.process.wait()

    def call(self, *command, check=False):
        pid = subprocess.run(["pgrep", "-P", str(self.process.pid)], capture_output=True, text=True, check=False).stdout.strip()
        enter = ["nsenter", "--target", pid, "--mount", "--pid", "--cgroup", "--ipc", "--uts"]
        done = subprocess.run([*enter, *command], capture_output=True, text=True, check=False, timeout=120)
        assert not check or done.returncode == 0, done.stdout + done.stderr + self.status() + self.log()
        return done

    def log(self):
        return "".join(path.read_text() for path in self.folder.glob("s*.log"))

    def status(self):
        return self.call("systemctl", "status", "--no-pager", "--full", "konkordia.service").stdout

    def show(self, name):
        return self.call("systemctl", "show", "konkordia.service", f"--property={name}", "--value").stdout.strip()

    def start(self):
        assert wait_until(lambda: self.call("systemctl", "list-units", "--no-pager").returncode == 0, timeout=60), self.log()
        self.call("systemctl", "start", "konkordia.service", check=True)

    def get(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=20) as answer:
            return answer.read()

    def post(self, path):
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", b"{}", {"Content-Type": "application/json"}, method="POST")
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.read()


@pytest.fixture
def host(tmp_path):
    hosts = []

    def make(watchdog_s=30):
        hosts.append(Host(tmp_path, watchdog_s))
        return hosts[-1]

    yield make
    for one in hosts:
        one.end()


def test_systemd_finds_no_mistake_in_the_unit():
    done = subprocess.run(["systemd-analyze", "verify", ROOT / "deploy/konkordia.service"], capture_output=True, text=True, check=False)
    # The program is not installed where the unit says.
    mistakes = [line for line in done.stderr.splitlines() if "/usr/local/bin/konkordia is not executable" not in line]
    assert not [line for line in mistakes if "konkordia.service" in line], mistakes


def test_systemd_starts_watches_and_stops_the_service(host, tmp_path):
    """`systemctl start` returns when requests are answered; `status` says what is done; `stop` leaves whole files."""
    one = host()
    one.start()
    assert one.get("/healthz")
    assert one.show("ActiveState") == "active" and "idle" in one.show("StatusText")
    one.post("/api/v1/start")
    program("simulate", "eiger", "--to", f"127.0.0.1:{one.udp}", "--bits", 8, "--images", 10, "--rate", 100, "-q", check=0)
    assert wait_until(lambda: "10 images" in one.show("StatusText"), timeout=60), one.show("StatusText")
    one.call("systemctl", "stop", "konkordia.service", check=True)
    assert (one.show("ActiveState"), one.show("Result"), one.show("ExecMainStatus")) == ("inactive", "success", "0")
    program("check", tmp_path / "run_000001_master.h5", check=0)


def test_systemd_starts_a_service_again_that_answers_nothing(host):
    """A stopped process (SIGSTOP) says nothing: the watchdog ends it, and systemd starts it again."""
    one = host(watchdog_s=3)
    one.start()
    before = one.show("MainPID")
    one.call("kill", f"-{int(signal.SIGSTOP)}", before, check=True)
    assert wait_until(lambda: int(one.show("NRestarts") or 0) >= 1 and one.show("ActiveState") == "active", timeout=90), one.log()
    assert one.show("MainPID") != before and one.get("/healthz")
    time.sleep(4)
    assert int(one.show("NRestarts")) == 1, "it lives, and the watchdog is content"
