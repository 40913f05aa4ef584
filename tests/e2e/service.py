"""Drives a running service: `konkordia serve` as a process, its HTTP interface through urllib."""

import json
import os
import queue
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request

from driving import BINARY, free_ports, program


class Problem(Exception):
    """The service refused a request (RFC 9457)."""

    def __init__(self, status, body):
        super().__init__(f"{status}: {body}")
        self.status, self.body = status, body

    @property
    def code(self):
        return self.body["code"]


class Service:
    """`konkordia serve --json` in the background, ready."""

    def __init__(self, config, *arguments, timeout=30, environment=None, listen="127.0.0.1:0"):
        command = [BINARY, "serve", "-c", str(config), "--listen", listen, "--json", *map(str, arguments)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
        self.log = []
        self._lines = queue.Queue()
        self._threads = [threading.Thread(target=self._read_log), threading.Thread(target=self._read_lines)]
        for thread in self._threads:
            thread.start()
        line = self._lines.get(timeout=timeout)
        if line is not None and "error" in json.loads(line):
            self.log.append(line)
            line = self._lines.get(timeout=timeout)
        if line is None:
            self.process.wait(10)
            self._threads[0].join()
            raise AssertionError(f"the service ended with {self.process.returncode}\n" + "".join(self.log))
        self.ready = json.loads(line)
        self.url = self.ready["url"]

    def _read_log(self):
        for line in self.process.stderr:
            self.log.append(line)

    def _read_lines(self):
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def request(self, method, path, body=None, timeout=60, **query):
        text = "&".join(f"{name}={value}" for name, value in query.items())
        address = f"{self.url}/api/v1/{path}" + (f"?{text}" if text else "")
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(address, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            assert error.headers["Content-Type"] == "application/problem+json", error.headers
            raise Problem(error.code, json.loads(error.read())) from None

    def status(self, **query):
        return self.request("GET", "status", **query)

    def statistics(self, **query):
        return self.request("GET", "statistics", **query)

    def command(self, verb, body=None, **query):
        return self.request("POST", verb, body or {}, **query)

    def refused(self, verb, body=None, **query):
        """The problem with which a command is refused."""
        try:
            status = self.command(verb, body, **query)
        except Problem as problem:
            return problem
        raise AssertionError(f"{verb} was accepted: {status}")

    def wait(self, timeout_s=30, **query):
        waited = self.request("GET", "wait", timeout=timeout_s + 20, timeout_s=timeout_s, **query)
        assert waited["done"], waited
        return waited["status"]

    def until(self, condition, timeout=20, **query):
        """Waits for a status that fulfils the condition."""
        end = time.monotonic() + timeout
        while True:
            status = self.status(**query)
            if condition(status):
                return status
            assert time.monotonic() < end, status
            time.sleep(0.02)

    def until_logged(self, condition, timeout=20):
        """Waits for a line of the log that fulfils the condition."""
        end = time.monotonic() + timeout
        while not any(condition(line) for line in self.log):
            assert time.monotonic() < end, self.log
            time.sleep(0.02)

    def consumers_connect(self, count=None):
        """Waits until `count` consumers of streams, by default all of them, are connected. What is sent before a consumer
        is connected does not wait for it."""

        def connected():
            consumers = [consumer["connected"] for consumer in self.statistics()["consumers"]]
            return sum(consumers) == (len(consumers) if count is None else count)

        until(connected, "the consumers are connected")

    def resources(self):
        """Open files, threads and resident bytes of the process."""
        root = f"/proc/{self.process.pid}"
        fds, threads = len(os.listdir(f"{root}/fd")), len(os.listdir(f"{root}/task"))
        with open(f"{root}/statm", encoding="ascii") as file:
            resident = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        return fds, threads, resident

    def end(self, number=signal.SIGTERM, timeout=30):
        """Sends a signal and waits for the end; returns (exit code, log)."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        for thread in self._threads:
            thread.join(10)
        log = "".join(self.log)
        assert "panicked" not in log and "a bug in konkordia" not in log, log
        return self.process.returncode, log


def until(condition, what, timeout=60, every_s=0.005):
    """Waits until a condition holds, and returns its value."""
    end = time.monotonic() + timeout
    while not (found := condition()):
        assert time.monotonic() < end, f"never: {what}"
        time.sleep(every_s)
    return found


def at_rest(value, what, for_s=0.5, timeout=60):
    """Waits until a value has not changed for `for_s`, and returns it."""
    newest, since, end = value(), time.monotonic(), time.monotonic() + timeout
    while time.monotonic() - since < for_s:
        time.sleep(0.05)
        found = value()
        if found != newest:
            newest, since = found, time.monotonic()
        assert time.monotonic() < end, f"{what} do not come to rest: {newest}"
    return newest


def settled(service):
    """Open files and threads, after their numbers have not changed for half a second: those of past runs are closed."""
    return at_rest(lambda: service.resources()[:2], "open files and threads", timeout=20)


def more_than(before, service, within_s=10):
    """Whether there are more open files or threads than before, even after `within_s`. Fewer are no leak."""
    end = time.monotonic() + within_s
    while any(now > then for now, then in zip(service.resources(), before, strict=False)):
        if time.monotonic() > end:
            return True
        time.sleep(0.05)
    return False


def write_config(folder, port, *, name="run.toml", detector=None, extra="", **tables):
    """Writes a configuration, by default of an EIGER of 8 bits with four ports from `port` on."""
    tables.setdefault("output", {})
    tables["output"].setdefault("directory", str(folder))
    tables["output"].setdefault("prefix", "run")
    tables.setdefault("run", {})
    tables["run"].setdefault("buffer_mib", 32)
    tables["detector"] = detector or {"type": "eiger", "bits": 8}
    tables["source"] = {"address": "127.0.0.1", "first_port": port, "receive_buffer_mib": 4, **tables.get("source", {})}
    lines = []
    for table, values in tables.items():
        lines.append(f"[{table}]")
        lines += [f"{key} = {json.dumps(value)}" for key, value in values.items()]
    path = folder / name
    path.write_text("\n".join(lines) + "\n" + extra)
    return path


def free_port():
    """A port that is free now and that no other test takes."""
    return free_ports()


class Bench:
    """A folder, a configuration, a service."""

    def __init__(self, folder):
        self.folder = folder
        self.port = free_ports(4)
        self.services = []

    def serve(self, *arguments, extra="", **tables):
        config = write_config(self.folder, self.port, extra=extra, **tables)
        service = Service(config, *arguments)
        self.services.append(service)
        return service

    def send(self, images=10, rate=500, **options):
        extra = [part for key, value in options.items() for part in (f"--{key.replace('_', '-')}", value)]
        return program(
            "simulate", "eiger", "--to", f"127.0.0.1:{self.port}", "--bits", 8, "--images", images, "--rate", rate, "-q", *extra, check=0
        )

    def master(self, prefix="run_000001"):
        return self.folder / f"{prefix}_master.h5"

    def check(self, prefix, code=0):
        return program("check", self.master(prefix), check=code)


def served_bench(tmp_path):
    """A bench whose services are ended: `bench = pytest.fixture(served_bench)`."""
    bench = Bench(tmp_path)
    yield bench
    for service in bench.services:
        if service.process.poll() is None:
            service.process.kill()
            service.process.wait()


class Stream:
    """A service with a stream detector that listens, and the generator that sends to it."""

    def __init__(self, bench, protocol="stins", *, detector="", source="", output="", extra="", run=""):
        self.folder = bench.folder
        # Not ipc: there libzmq loses the last messages of a sender that ends while the receiver is full.
        self.address = f"tcp://127.0.0.1:{free_port()}"
        text = f"""[detector]
type = "stream"
{detector}
[source]
protocol = "{protocol}"
upstreams = ["{self.address}"]
bind = true
drain_ms = 500
{source}
[output]
directory = "{bench.folder}"
prefix = "s"
{output}
[run]
start_timeout_s = 1
{run}
{extra}
"""
        self.protocol = protocol
        config = bench.folder / "stream.toml"
        config.write_text(text)
        self.service = Service(config)
        bench.services.append(self.service)

    def send(self, images=20, *arguments):
        """Sends a series of images of 24 x 40 pixels."""
        return program(
            "stream", "--protocol", self.protocol, "--shape", "24x40", "--images", images, "--to", self.address, "--connect", "-q",
            *arguments, check=0,
        )
