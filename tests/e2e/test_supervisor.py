"""What `konkordia serve` tells a service manager (sd_notify(3)), read from the socket that the manager would have;
systemd itself runs it in tests/peers/test_systemd.py."""

import os
import queue
import signal
import socket
import threading

import pytest
from driving import free_ports, program
from service import Service, until, write_config


class Manager:
    """The end of a service manager: collects what it is told."""

    def __init__(self, folder):
        self.path = folder / "notify"
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(self.path))
        self.said, self.all = queue.Queue(), []
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        while True:
            self.said.put(self.socket.recv(4096).decode().splitlines())

    def until(self, condition, what, timeout=30):
        """The first message of which the condition is true."""
        while True:
            try:
                message = self.said.get(timeout=timeout)
            except queue.Empty:
                raise AssertionError(f"{what} was not said, but {self.all[-5:]}") from None
            self.all.append(message)
            if condition(message):
                return message


@pytest.fixture
def managed(tmp_path):
    manager, port, services = Manager(tmp_path), free_ports(4), []

    def serve(watchdog_us=None):
        environment = {**os.environ, "NOTIFY_SOCKET": str(manager.path)}
        if watchdog_us:
            environment["WATCHDOG_USEC"] = str(watchdog_us)
        services.append(Service(write_config(tmp_path, port), environment=environment))
        return manager, services[-1], port

    yield serve
    for service in services:
        if service.process.poll() is None:
            service.process.kill()
        service.process.wait()


def test_a_manager_hears_of_begin_work_and_end(managed):
    manager, service, port = managed(watchdog_us=1_500_000)
    ready = manager.until(lambda message: "READY=1" in message, "ready")
    assert any(line.startswith("STATUS=") and "idle" in line for line in ready), ready
    alive = manager.until(lambda message: "WATCHDOG=1" in message, "the watchdog")
    assert any("idle" in line for line in alive)
    service.command("start")
    manager.until(lambda message: any("armed" in line or "running" in line for line in message), "armed")
    program("simulate", "eiger", "--to", f"127.0.0.1:{port}", "--bits", 8, "--images", 10, "--rate", 100, "-q", check=0)
    until(lambda: service.status()["images_committed"] == 10, "10 images", timeout=60)
    manager.until(lambda message: any("10 images" in line for line in message), "10 images")
    service.process.send_signal(signal.SIGTERM)
    manager.until(lambda message: "STOPPING=1" in message, "stopping")
    assert service.process.wait(60) == 0


def test_without_a_watchdog_it_says_what_it_does_but_not_that_it_lives(managed):
    manager, service, _ = managed()
    manager.until(lambda message: "READY=1" in message, "ready")
    service.process.send_signal(signal.SIGTERM)
    manager.until(lambda message: "STOPPING=1" in message, "stopping")
    assert service.process.wait(60) == 0
    assert not any("WATCHDOG=1" in message for message in manager.all)


def test_a_manager_that_has_gone_costs_nothing_but_a_line_in_the_log(managed, tmp_path):
    manager, service, _ = managed(watchdog_us=600_000)
    manager.until(lambda message: "READY=1" in message, "ready")
    manager.path.unlink()
    until(lambda: any("NOTIFY_SOCKET" in line for line in service.log), "a warning", timeout=30)
    assert service.status()["state"] == "idle"
    service.process.send_signal(signal.SIGTERM)
    assert service.process.wait(60) == 0
