"""Starts the EPICS server of the package as a process on loopback, and talks to it with p4p."""

import os
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path

from ports import free_ports

ROOT = Path(__file__).resolve().parents[2]
PREFIX = "T:"


class EpicsServer:
    """`python -m konkordia.epics`, ready, and a client of it."""

    def __init__(self, url, token=None, *arguments):
        from p4p.client.thread import Context

        port, udp = str(free_ports()), str(free_ports())
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "python"), os.environ.get("PYTHONPATH", "")]),
            "KONKORDIA_URL": url,
            "EPICS_PVAS_INTF_ADDR_LIST": "127.0.0.1",
            "EPICS_PVAS_SERVER_PORT": port,
            "EPICS_PVAS_BROADCAST_PORT": udp,
        } | ({"KONKORDIA_TOKEN": token} if token else {})
        command = [sys.executable, "-m", "konkordia.epics", "--prefix", PREFIX, *arguments]
        self.process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.log = []
        self._thread = threading.Thread(target=self._read_log)
        self._thread.start()
        line = self.process.stdout.readline()
        assert "listens on 127.0.0.1" in line, self.end()
        # Addresses of clients in a separate process would be in these variables.
        self.client_environment = {"EPICS_PVA_ADDR_LIST": "127.0.0.1", "EPICS_PVA_AUTO_ADDR_LIST": "NO", "EPICS_PVA_BROADCAST_PORT": udp}
        self.context = Context("pva", conf=self.client_environment, useenv=False, nt=False)

    def _read_log(self):
        for line in self.process.stderr:
            self.log.append(line)

    def raw(self, name, timeout=10):
        return self.context.get(f"{PREFIX}cam1:{name}", timeout=timeout)

    def get(self, name):
        value = self.raw(name)["value"]
        return value.choices[value.index] if hasattr(value, "choices") else value

    def alarm(self, name):
        found = self.raw(name)["alarm"]
        return found.severity, found.message

    def put(self, name, value, wait=False, timeout=30):
        self.context.put(f"{PREFIX}cam1:{name}", {"value": value}, wait=wait, timeout=timeout)

    def refused(self, name, value):
        """The message with which a put fails."""
        try:
            self.put(name, value)
        except Exception as error:  # p4p has no class of its own for it
            assert type(error).__name__ == "RemoteError", error
            return str(error)
        raise AssertionError(f"{name} = {value!r} was accepted")

    def watch(self, name="Pva1:Image", size=100):
        """Updates of a PV, in a queue."""
        found = queue.Queue()
        found.subscription = self.context.monitor(
            PREFIX + name, found.put, request=f"field()record[queueSize={size}]", notify_disconnect=False
        )
        return found

    def end(self, number=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(number)
        self.process.wait(20)
        self._thread.join(10)
        return "".join(self.log)

    def close(self):
        self.context.close()
        log = self.end()
        assert "Traceback" not in log, log
