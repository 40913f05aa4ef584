"""A user's own driver (`[control] driver`) drives a detector: `konkordia simulate` and `konkordia stream` send what the
driver has them send, and the driver writes down each of its calls."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import numpy as np
import pytest
from driving import BINARY, Master, program, raw_tables
from service import Service, until
from streams import StreamService

ROOT = pathlib.Path(__file__).resolve().parents[2]
DRIVER = '''
import json, os, pathlib, signal, subprocess, sys, time
from konkordia.control import Driver, Refused, main

HERE = pathlib.Path(__file__).parent

class Simulated(Driver):
    settings = {"binary": str, "rate": int, "frames": int, "fail": str, "sleep": str, "expected": dict, "at_arm": bool}
    required = ("binary",)

    def __init__(self, order):
        super().__init__(order)
        with open(HERE / "calls", "a") as file:
            file.write(json.dumps(order) + "\\n")
        if order["action"] == self.given.get("sleep"):
            time.sleep(60)
        if order["action"] == self.given.get("fail"):
            raise Refused("the cooling water is off", hint="open the valve")

    def send(self):
        order, given = self.order, self.given
        frames = given.get("frames") or order.get("frames") or 1_000_000
        if "packets" in order:
            first = order["packets"]["destinations"][0]
            what = ["simulate", "jungfrau", "--to", f"{first['address']}:{first['port']}"]
            if "stage" in order:
                what += ["--dark"]
        else:
            to = ["--to", order["stream"]["upstreams"][0], "--connect"]
            what = ["stream", "--protocol", order["stream"]["protocol"], *to, "--shape", "24x40"]
        command = [given["binary"], *what, "--images", str(frames), "--rate", str(given.get("rate", 500)), "-q"]
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        process = subprocess.Popen(command, start_new_session=True, **quiet)
        (HERE / "sender").write_text(str(process.pid))
        return {}

    def arm(self):
        if self.given.get("at_arm"):
            self.send()
        expected = self.given.get("expected")
        return {"set": {"frames": self.order["frames"]}, "warnings": ["the chiller is old"], **({"expected": expected} if expected else {})}

    def start(self):
        return {} if self.given.get("at_arm") else self.send()

    def trigger(self):
        return self.send()

    def pedestal(self):
        return {"set": {"gainmode": self.order["gainmode"]}}

    def stop(self):
        if (HERE / "sender").exists():
            try:
                os.kill(int((HERE / "sender").read_text()), signal.SIGKILL)
            except ProcessLookupError:
                pass
        return {}

    def status(self):
        return {"status": "humidity 60 %"}

main(Simulated)
'''


class Driven:
    """The driver of a test: its table, and the calls that it got."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "driver.py").write_text(DRIVER)

    def tables(self, timeout_s=20, **settings):
        driver = [sys.executable, str(self.folder / "driver.py")]
        return {"control": {"driver": driver, "timeout_s": timeout_s}, "control.settings": {"binary": str(BINARY), **settings}}

    def text(self, mismatch="warn", **settings):
        """The same as lines of TOML."""
        driver = json.dumps([sys.executable, str(self.folder / "driver.py")])
        lines = [f'[control]\ndriver = {driver}\nmismatch = "{mismatch}"\ntimeout_s = 20\n[control.settings]']
        expected = settings.pop("expected", None)
        lines += [f"{name} = {json.dumps(value)}" for name, value in {"binary": str(BINARY), **settings}.items()]
        if expected:
            lines += ["[control.settings.expected]", *(f"{name} = {value}" for name, value in expected.items())]
        return "\n".join(lines)

    def calls(self):
        path = self.folder / "calls"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def actions(self):
        return [(call["action"], call["ended"]) if "ended" in call else call["action"] for call in self.calls()]

    def forget(self):
        (self.folder / "calls").unlink(missing_ok=True)


@pytest.fixture
def driven(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "python"))
    return Driven(tmp_path)


def events(service, kind):
    return [event for event in service.request("GET", "logs")["logs"] if event["event"] == kind]


def test_an_own_driver_drives_whole_runs(bench, driven):
    """Arm, start, and stop at the end; what it is told, and that a second run follows at once."""
    tables = raw_tables(images=50)
    service = Service(bench.config(**{**tables, **driven.tables()}))
    try:
        metadata = {"count_time_us": 500.0, "frame_time_us": 2000.0, "sample_name": "lysozyme"}
        service.command("arm", {"prefix": "a", "images": 50, "metadata": metadata})
        order = driven.calls()[0]
        assert (order["protocol"], order["action"], order["run"], order["images"], order["frames"]) == (1, "arm", 1, 50, 50)
        assert (order["count_time_s"], order["frame_time_s"], order["energy_kev"]) == (0.0005, 0.002, 12.4)
        assert order["metadata"]["sample_name"] == "lysozyme" and order["file"].endswith("a_master.h5")
        destination = {"module": 0, "port_of_module": 0, "address": "127.0.0.1", "port": bench.port}
        module = {"detector": "jungfrau", "modules": 1, "interfaces": 1, "bits": 16, "rows": None}
        assert order["packets"] == {**module, "destinations": [destination]}
        assert "the chiller is old" in [event["message"] for event in events(service, "warning")]
        service.command("start")
        done = service.wait()
        assert (done["severity"], done["images_written"]) == ("success", 50), done
        service.command("start", {"prefix": "b", "images": 20})
        done = service.wait()
        assert (done["severity"], done["run"]) == ("success", 2), done
        assert len(Master(bench.folder / "b_master.h5").images) == 20
        until(lambda: len(driven.calls()) == 6, "the second stop")
        assert driven.actions() == ["arm", "start", ("stop", "finished")] * 2
    finally:
        assert service.end()[0] == 0


def test_what_was_armed_is_stopped_however_the_run_ends(bench, driven):
    """Stopped, cancelled while armed and while it runs, stalled, and the end of the service."""
    tables = raw_tables(images=100_000, stall_timeout_s=2)
    service = Service(bench.config(**{**tables, **driven.tables(rate=100)}))
    try:
        service.command("start", {"prefix": "stopped"})
        service.until(lambda s: s["images_committed"] > 3)
        service.command("stop")
        assert service.wait()["ended"] == "stopped"
        until(lambda: driven.actions()[2:] == [("stop", "stopped")], "the stop")
        driven.forget()
        service.command("arm", {"prefix": "cancelled"})
        service.command("cancel")
        until(lambda: driven.actions() == ["arm", ("stop", "cancelled")], "the stop of what was armed")
        driven.forget()
        service.command("start", {"prefix": "running"})
        service.until(lambda s: s["state"] == "running")
        service.command("cancel")
        until(lambda: driven.actions() == ["arm", "start", ("stop", "cancelled")], "the stop of what was running")
        driven.forget()
        # Nothing is armed, but a detector may go on since somebody killed the service.
        service.command("cancel")
        until(lambda: driven.actions() == [("stop", "cancelled")], "the stop of what nobody has armed")
        driven.forget()
        service.command("start", {"prefix": "stalled"})
        service.until(lambda s: s["state"] == "running")
        os.kill(int((bench.folder / "sender").read_text()), signal.SIGKILL)
        assert service.wait()["ended"] == "stalled"
        until(lambda: driven.actions() == ["arm", "start", "status", ("stop", "stalled")], "the stop of what stalled")
        assert "humidity 60 %" in events(service, "setup")[-1]["message"]
        driven.forget()
        service.command("start", {"prefix": "last"})
        service.until(lambda s: s["state"] == "running")
    finally:
        assert service.end()[0] == 0
    assert driven.actions() == ["arm", "start", ("stop", "stopped")]


def test_refusals_have_the_words_of_the_driver(bench, driven):
    """The driver refuses, or is too slow; what it had begun is stopped, and the next arm is possible."""
    for settings, why, fix in (
        ({"fail": "arm"}, "the cooling water is off", "open the valve"),
        ({"sleep": "arm", "timeout_s": 1.5}, "had not ended after 1.5 s and was killed", "control.timeout_s"),
        ({"frame": 3}, "unknown key 'frame'", "its keys are"),
        ({"rate": "fast"}, "control.settings.rate is 'fast'", "give it as int"),
    ):
        service = Service(bench.config(**{**raw_tables(images=5), **driven.tables(**settings)}))
        try:
            problem = service.refused("arm", {"prefix": "refused"})
            assert problem.code == "arm_failed" and why in problem.body["detail"] and fix in problem.body["hint"], problem.body
            status = service.status()
            assert (status["state"], status["severity"]) == ("idle", "error") and why in status["message"], status
            assert not list(bench.folder.glob("refused*.h5"))
            if "fail" in settings or "sleep" in settings:
                until(lambda: driven.actions() == ["arm", ("stop", "failed")], "the stop")
            driven.forget()
        finally:
            service.end()
    # A start that is refused leaves it armed, and a cancel stops it.
    service = Service(bench.config(**{**raw_tables(images=5), **driven.tables(fail="start")}))
    try:
        service.command("arm")
        assert "the cooling water is off" in service.refused("start").body["detail"]
        assert service.status()["state"] == "armed"
        service.command("cancel")
        until(lambda: driven.actions() == ["arm", "start", ("stop", "cancelled")], "the stop")
        driven.forget()
        # Something else fails: the driver has not been called.
        (bench.folder / "there_master.h5").touch()
        assert "exists" in service.refused("arm", {"prefix": "there"}).body["detail"]
        assert driven.actions() == []
    finally:
        assert service.end()[0] == 0


def test_a_program_that_fails_beside_the_driver(bench, driven):
    """on_arm is run before the driver, which is then not called. A driver that is no program, or answers nonsense."""
    tables = driven.tables()
    tables["control"]["on_arm"] = ["sh", "-c", "echo the shutter is stuck >&2; exit 1"]
    service = Service(bench.config(**{**raw_tables(images=5), **tables}))
    try:
        assert "the shutter is stuck" in service.refused("arm").body["detail"] and driven.actions() == []
    finally:
        service.end()
    nonsense = (["sh", "-c", "echo ready"], "cannot be read")
    for command, why in ((["/no/such/driver"], "No such file"), nonsense, (["sh", "-c", "exit 4"], "exit status: 4")):
        service = Service(bench.config(**raw_tables(images=5), control={"driver": command}))
        try:
            assert why in service.refused("arm").body["detail"], command
        finally:
            service.end()


def test_a_cancel_while_the_driver_arms(bench, driven):
    """The cancel is answered, and the detector is stopped when its slow arm is over."""
    service = Service(bench.config(**{**raw_tables(images=5), **driven.tables(timeout_s=1, sleep="arm")}))
    try:
        refused = []
        arming = threading.Thread(target=lambda: refused.append(service.refused("arm")))
        arming.start()
        until(lambda: driven.actions() == ["arm"], "the driver is called")
        service.command("cancel")
        arming.join(20)
        assert "cancelled" in refused[0].body["detail"], refused
        until(lambda: driven.actions() == ["arm", ("stop", "failed")], "the stop")
        until(lambda: service.refused("arm").code == "arm_failed", "the next arm is taken", every_s=0.2)
    finally:
        service.end()


def test_triggers_go_through_the_driver(bench, driven):
    """`trigger` without a program of its own."""
    service = Service(bench.config(**{**raw_tables(images=40), **driven.tables(frames=20)}))
    try:
        service.command("start")
        service.until(lambda s: s["images_committed"] == 20)
        service.command("cancel")
        until(lambda: driven.actions() == ["arm", "start", ("stop", "cancelled")], "the stop")
        driven.forget()
        service.command("arm", {"prefix": "second", "images": 20})
        service.command("trigger")
        assert service.wait()["severity"] == "success"
        until(lambda: driven.actions() == ["arm", "trigger", ("stop", "finished")], "the stop")
    finally:
        assert service.end()[0] == 0


def test_a_stream_is_armed_before_its_detector(tmp_path, driven):
    """A detector that sends its header at once, when it is armed; with `accept = "armed"` the run is listening by then."""
    service = StreamService(tmp_path, "stream2", source='accept = "armed"', extra=driven.text(at_arm=True, rate=200))
    try:
        service.command("start", {"images": 30})
        done = service.taken(1)
        assert done["images_written"] == 30, done
        until(lambda: driven.actions() == ["arm", "start", ("stop", "finished")], "the stop")
        stream = driven.calls()[0]["stream"]
        assert stream == {"protocol": "stream2", "upstreams": service.addresses, "bind": True, "socket": "pull"}
    finally:
        service.close()


@pytest.mark.parametrize("mismatch", ["warn", "refuse"])
def test_a_header_that_says_something_else(tmp_path, driven, mismatch):
    """What the driver expects is compared with the first message: a warning, or the end of the run and of the detector."""
    extra = driven.text(mismatch, at_arm=True, rate=50, expected={"images": 60, "rows": 24, "columns": 41})
    service = StreamService(tmp_path, "stream2", source='accept = "armed"', extra=extra)
    try:
        service.command("arm", {"images": 60})
        if mismatch == "warn":
            service.command("start")
            done = service.taken(1, "warning")
            assert (done["state"], done["images_written"]) == ("idle", 60), done
        else:
            done = service.taken(1, "error")
            assert done["state"] == "error" and done["ended"] == "cancelled", done
            until(lambda: driven.actions()[-1] == ("stop", "failed"), "the stop")
        assert "columns: 40 announced, 41 asked for" in done["message"], done
        found = events(service, "setup")[0]
        assert found["severity"] == "warning" and found["data"]["differences"] == ["columns: 40 announced, 41 asked for"], found
        # The next run is compared anew.
        if mismatch == "refuse":
            service.command("cancel")
            assert service.status()["state"] == "idle"
    finally:
        service.close()


def test_a_driver_of_a_stream_that_refuses(tmp_path, driven):
    """The run that was listening is ended again, and nothing is left."""
    service = StreamService(tmp_path, "stream2", source='accept = "armed"', extra=driven.text(fail="arm"))
    try:
        problem = service.refused("arm", {"images": 5})
        assert problem.code == "arm_failed" and "the cooling water is off" in problem.body["detail"], problem.body
        status = service.until(lambda s: s["state"] == "idle" and "cooling" in s["message"])
        assert status["severity"] == "error" and status["hint"] == "open the valve", status
        until(lambda: driven.actions() == ["arm", ("stop", "failed")], "the stop")
        assert service.refused("arm", {"images": 5}).code == "arm_failed"
        assert not list(tmp_path.glob("*.h5"))
    finally:
        service.close()


def test_pedestals_are_driven(bench, driven):
    """Dark frames of one stage, by HTTP and on the command line: prepare, start, stop. A refused stage writes nothing."""
    config = bench.config(**{**raw_tables(), **driven.tables()})
    service = Service(config)
    try:
        status = service.command("pedestal", {"frames": 30, "file": "new", "stage": "g0"}, wait_s=60)
        assert (status["state"], status["ended"]) == ("idle", "complete"), status
        assert driven.actions() == ["pedestal", "start", "stop"]
        order = driven.calls()[0]
        assert (order["stage"], order["gainmode"], order["frames"], order["run"]) == ("g0", "dynamic", 30, 1), order
        driven.forget()
    finally:
        assert service.end()[0] == 0
    program("pedestal", config, "--stage", "g0", "--frames", 10, "-o", "cli.h5", "--quiet", check=0, cwd=bench.folder)
    assert driven.actions() == ["pedestal", "start", "stop"] and (bench.folder / "cli.h5").exists()
    driven.forget()
    began = time.monotonic()
    config = bench.config(**{**raw_tables(), **driven.tables(fail="start")})
    refused = program("pedestal", config, "--stage", "all", "--frames", 10, "-o", "no.h5", check=5, cwd=bench.folder).stderr
    assert "the cooling water is off" in refused and time.monotonic() - began < 15, refused
    assert driven.actions() == ["pedestal", "start", "stop"] and not (bench.folder / "no.h5").exists()


def test_who_only_views_does_not_reach_the_driver(bench, driven):
    """A token for viewing is refused before the driver is called."""
    tokens = bench.folder / "tokens"
    create = ("token", "create")
    made = {role: program(*create, role, "--role", role, "--file", tokens, check=0).stdout.strip() for role in ("view", "operate")}
    service = Service(bench.config(**{**raw_tables(images=5), **driven.tables()}, service={"tokens": str(tokens)}))
    try:
        for role, codes in (("view", [403]), ("operate", [200])):
            request = urllib.request.Request(f"{service.url}/api/v1/arm", b"{}", {"Content-Type": "application/json"}, method="POST")
            request.add_header("Authorization", f"Bearer {made[role]}")
            try:
                with urllib.request.urlopen(request, timeout=60) as answer:
                    code = answer.status
            except urllib.error.HTTPError as error:
                code = error.code
            assert code in codes and bool(driven.actions()) == (role == "operate"), (role, code)
    finally:
        service.end()


def test_what_is_wrong_with_a_driver_is_said_before_anything_runs(bench):
    for tables, why in (
        ({"control": {"driver": "simplon"}}, '"simplon" cannot drive this detector'),
        ({"control": {"python": "python3"}}, "control.python without a driver"),
        ({"control": {"driver": "slsdet", "mismatch": "warn"}}, "control.mismatch is for streams"),
    ):
        config = bench.config(**raw_tables(images=5), **tables)
        assert why in program("config", "check", config, check=3).stderr


def test_numbers_of_the_drivers_are_compared_with_tolerance(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "python"))
    from konkordia.control._driver import agrees

    assert agrees(0.001, 0.0010000005) and agrees(5, 5) and agrees(5.0, 5) and agrees(True, True)
    assert not agrees(0.001, 0.002) and not agrees(5, 6) and not agrees("a", "b") and not agrees(1.0, "x") and not agrees(1.0, np.nan)


@pytest.mark.parametrize(
    ("action", "order", "code", "said"),
    [
        ("status", {}, 0, ""),
        ("stop", {"protocol": 2}, 1, "another version of Konkordia"),
        ("hum", {}, 1, "unknown action 'hum'"),
        ("trigger", {}, 1, "this driver has no trigger"),
        ("start", {}, 1, "the driver gives no reason"),
        ("arm", {}, 1, "ZeroDivisionError"),
        ("status", [], 1, "another version"),
        ("status", {"settings": {"a": True}}, 1, "control.settings.a is True"),
    ],
)
def test_the_base_of_drivers(tmp_path, action, order, code, said):
    """Its answer is alone on stdout, whatever libraries print, and every failure has a reason on stderr."""
    (tmp_path / "own.py").write_text(
        "import os\nfrom konkordia.control import Driver, Refused, main\n"
        "class Own(Driver):\n    settings = {'a': int}\n"
        "    def status(self):\n        print('chatter'); os.write(2, b'more chatter')\n        return {'status': 'well'}\n"
        "    def start(self):\n        raise Refused('')\n    def arm(self):\n        return 1 / 0\nmain(Own)\n"
    )
    command = [sys.executable, str(tmp_path / "own.py"), action]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    done = subprocess.run(command, input=json.dumps(order), capture_output=True, text=True, timeout=60, env=environment)
    assert done.returncode == code and said in done.stderr, done
    assert json.loads(done.stdout) == {"status": "well"} if code == 0 else "status" not in json.loads(done.stdout), done
