"""The HTTP interface of the running service: random requests made from its OpenAPI description, tokens, and formats
that other programs read."""

import json
import pathlib
import queue
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import pytest
from driving import BINARY, ROOT, free_ports, program
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from service import until

CONFIG = """
[detector]
type = "jungfrau"
modules = 1
interfaces = 1
geometry = "stacked"

[calibration]
kind = "none"

[processing]
dtype = "raw"

[source]
kind = "udp"
address = "127.0.0.1"
first_port = {port}

[output]
directory = "{folder}"
prefix = "run"

[run]
buffer_mib = 64

[service]
listen = "127.0.0.1:0"
requests_per_s = 100000
{service}
"""


class Service:
    """`konkordia serve` in the background, on a port that the kernel chooses."""

    def __init__(self, folder, service="", name="service.toml"):
        config = folder / name
        config.write_text(CONFIG.format(port=free_ports(2), folder=folder, service=service))
        command = [BINARY, "serve", "-c", str(config)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.lines = []
        urls = queue.Queue()
        threading.Thread(target=self._read, args=(urls,), daemon=True).start()
        try:
            self.url = urls.get(timeout=30)
        except queue.Empty:
            self.kill()
            raise AssertionError("the service said no address:\n" + "".join(self.lines)) from None

    def _read(self, urls):
        for line in self.process.stdout:
            self.lines.append(line)
            found = re.search(r"https?://127\.0\.0\.1:\d+", line)
            if found:
                urls.put(found.group(0))

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def ask(self, path, method="GET", body=None, **headers):
        """Status, headers and body of an answer."""
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        if body is not None:
            headers.setdefault("Content-Type", "application/json")
            body = json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=body, method=method, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, answer.headers, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.headers, error.read()

    def get(self, path):
        status, _, body = self.ask("/api/v1/" + path)
        assert status == 200, body
        return json.loads(body)


@pytest.fixture
def service(tmp_path):
    service = Service(tmp_path)
    yield service
    service.kill()


def test_the_committed_description_is_what_the_program_prints_and_serves(service):
    committed = (ROOT / "docs" / "openapi.json").read_text()
    assert program("config", "openapi", check=0).stdout == committed
    assert service.ask("/api/v1/openapi.json")[2].decode() == committed


def test_requests_at_random_find_no_mistake(service, tmp_path):
    """schemathesis makes good and bad requests from the description, and checks every answer against it."""
    (tmp_path / "lyso").mkdir()  # used in the examples
    before = service.get("version")["uptime_s"]
    done = subprocess.run(
        [
            str(pathlib.Path(sys.executable).parent / "schemathesis"),
            "run",
            service.url + "/api/v1/openapi.json",
            "--url",
            service.url,
            # `events` never ends, so there is no answer to check; `wait` is tested elsewhere.
            "--exclude-path=/api/v1/events",
            "--exclude-path=/api/v1/wait",
            # A service that is drained begins nothing more, so all that follows would be refused.
            "--exclude-path=/api/v1/drain",
            "--phases=examples,coverage,fuzzing",
            "--checks=all",
            # A valid prefix may still be refused because of what is on the disk, which the description cannot say.
            "--exclude-checks=positive_data_acceptance",
            "--max-examples=40",
            "--generation-deterministic",
            "--request-timeout=20",
            "--continue-on-failure",
            "--no-color",
        ],
        capture_output=True,
        text=True,
        timeout=600,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert service.process.poll() is None, "it lives"
    assert service.get("version")["uptime_s"] > before, "and is the same one"


def test_roles_tokens_and_audit(tmp_path):
    tokens = tmp_path / "tokens"
    make = lambda name, role: program("token", "create", name, "--role", role, "--file", tokens, check=0).stdout.strip()
    viewer, operator = make("eve", "view"), make("olga", "operate")
    assert (tokens.stat().st_mode & 0o777) == 0o600
    assert viewer not in tokens.read_text()
    listed = json.loads(program("token", "list", "--file", tokens, "--json", check=0).stdout)
    assert listed == [{"name": "eve", "role": "view"}, {"name": "olga", "role": "operate"}]
    audit = tmp_path / "audit.jsonl"
    service = Service(tmp_path, f'tokens = "{tokens}"\naudit_log = "{audit}"')
    try:
        by = lambda token: {"Authorization": f"Bearer {token}"}
        assert service.ask("/healthz")[0] == 200
        status, headers, body = service.ask("/api/v1/status")
        assert (status, headers["Content-Type"]) == (401, "application/problem+json")
        assert json.loads(body)["code"] == "no_token"
        assert service.ask("/api/v1/status", **by(viewer))[0] == 200
        assert service.ask("/api/v1/cancel", "POST", **by(viewer))[0] == 403
        assert service.ask("/api/v1/cancel", "POST", **by(operator))[0] == 200
        assert service.ask("/api/v1/cancel", "POST", Origin="http://evil.example", **by(operator))[0] == 403
        who = [(line["who"], line["status"]) for line in map(json.loads, audit.read_text().splitlines())]
        assert who == [("eve", 403), ("olga", 200), ("olga", 403)]
        program("token", "remove", "olga", "--file", tokens, check=0)
        until(lambda: service.ask("/api/v1/status", **by(operator))[0] == 401, "a removed token is refused", 20, every_s=0.2)
        assert service.ask("/api/v1/status", **by(viewer))[0] == 200
    finally:
        service.kill()


def test_without_tokens_it_listens_on_loopback_only(tmp_path):
    config = tmp_path / "open.toml"
    service = Service(tmp_path)
    service.kill()
    config.write_text((tmp_path / "service.toml").read_text().replace("127.0.0.1:0", "0.0.0.0:0"))
    done = program("serve", "-c", config, timeout=30)
    assert done.returncode == 3 and "token" in done.stderr, done.stderr
    assert program("token", "remove", "nobody", "--file", tmp_path / "none").returncode != 0


def test_a_name_of_somebody_else_is_not_answered_to(service):
    status, _, body = service.ask("/api/v1/status", Host="evil.example")
    assert (status, json.loads(body)["code"]) == (421, "bad_host")


def test_metrics_are_read_by_others(service):
    text = service.ask("/metrics")[2].decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    states = {sample.labels["state"]: sample.value for sample in families["konkordia_state"].samples}
    assert states == {"idle": 1, "armed": 0, "running": 0, "error": 0}
    assert families["konkordia_process_cpu_seconds"].type == "counter"
    assert text.endswith("# EOF\n")


def test_sigterm_ends_it_with_a_stream_open(service):
    stream = urllib.request.urlopen(service.url + "/api/v1/events", timeout=30)
    began = time.monotonic()
    service.process.send_signal(signal.SIGTERM)
    service.process.wait(20)
    assert time.monotonic() - began < 15
    stream.close()
