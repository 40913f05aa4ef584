"""Runs of the service from arm to idle: what it refuses and why, which losses it reports, and which files it leaves."""

import json
import os
import pathlib
import pty
import re
import select
import signal
import socket
import subprocess
import threading
import time
import urllib.request

import h5py
import pytest
from driving import BINARY, program
from lanes import SLOW
from service import Service, Stream, more_than, served_bench, settled, until, write_config



bench = pytest.fixture(served_bench)


def images_in(path):
    with h5py.File(path) as file:
        data = file["/entry/data"]
        return data[data.attrs["signal"]].shape[0]


def ended_in(path):
    with h5py.File(path) as file:
        found = []
        file["/entry/konkordia"].visititems(lambda name, item: found.append(item[()]) if name.endswith("ended") else None)
        return found[0].decode()


def test_arm_run_idle(bench):
    service = bench.serve(run={"images": 20})
    status = service.status()
    assert (status["state"], status["run"], status["kind"]) == ("idle", 0, "udp")
    armed = service.command("arm")
    assert (armed["state"], armed["run"], armed["images_expected"]) == ("armed", 1, 20)
    assert armed["listens"] == [f"udp://127.0.0.1:{bench.port + n}" for n in range(4)]
    assert service.request("GET", "files")["files"][0]["state"] == "writing"
    bench.send(20)
    done = service.wait()
    assert (done["state"], done["severity"], done["progress"], done["ended"]) == ("idle", "success", 1.0, "finished")
    assert (done["images_committed"], done["images_written"], done["images_lost"]) == (20, 20, 0)
    assert images_in(bench.master()) == 20
    bench.check("run_000001")
    statistics = service.statistics()
    assert statistics["totals"]["images_complete"] == 20
    assert statistics["totals"]["packets_placed"] == statistics["ledger"]["placed"]
    assert statistics["totals"]["runs_finished"] == 1
    entry = service.request("GET", "files")["files"][0]
    assert (entry["state"], entry["images"], entry["master"]) == ("complete", 20, str(bench.master()))
    assert service.end() == (0, "".join(service.log))


def test_runs_without_a_name_number_themselves(bench):
    service = bench.serve(run={"images": 3}, output={"keep_raw": True})
    for number in (1, 2):
        file = service.command("start")["file"]
        assert file == str(bench.master(f"run_{number:06}")), "the answer names the file"
        bench.send(3)
        assert service.wait()["severity"] == "success"
        assert (bench.folder / f"run_{number:06}_raw_master_0.json").exists()
    # A given name does not change the counting, and is accepted only once.
    service.command("start", {"prefix": "mine"})
    bench.send(3)
    service.wait()
    assert service.refused("arm", {"prefix": "mine"}).code == "arm_failed"
    assert service.status()["state"] == "idle", "a taken name is no error of the detector"
    service.end()
    # A restarted service counts on after the files that are there, those of a killed service included.
    (bench.folder / "run_000003_data_000001.h5.journal").write_bytes(b"")
    again = bench.serve(run={"images": 3})
    assert again.command("arm")["file"] == str(bench.master("run_000004"))


def test_the_log_has_levels_and_a_form_for_programs(bench):
    service = bench.serve("--log-format", "json", run={"images": 3})
    service.command("arm")
    bench.send(3)
    service.wait()
    code, log = service.end()
    assert code == 0
    lines = [json.loads(line) for line in log.splitlines()]
    assert all(line["timestamp"].endswith("Z") and line["level"] in ("INFO", "WARN") for line in lines), log
    first = lines[0]
    assert first["version"] and first["pid"] == service.process.pid and first["configuration"] == str(bench.folder / "run.toml"), first
    armed = next(line for line in lines if line.get("event") == "state" and "armed" in line["message"])
    assert armed["detector"] == "detector" and armed["id"] >= 1
    assert any(line.get("event") == "run_ended" for line in lines) and any("stopping" in line["message"] for line in lines), log
    assert lines[-1]["message"] == "stopped: all files are closed", log
    quiet = bench.serve("--quiet")
    quiet.command("arm", {"prefix": "quiet"})
    assert quiet.end() == (0, "")
    text = bench.serve("--log-level", "warn")
    text.command("arm", {"prefix": "text"})
    log = text.end()[1]
    assert " INFO " not in log and " WARN " in log, "no distance is known, which is a warning at arm"


def test_lines_of_the_log_come_once(bench):
    service = bench.serve(run={"images": 3})
    service.command("arm")
    bench.send(3)
    service.wait()
    _, log = service.end()
    said = [re.sub(r"^\S+\s+\w+ ", "", re.sub(r" (detector|event|id)=.*", "", line)) for line in log.splitlines()]
    twice = {line for line in said if said.count(line) > 1}
    assert not twice, log


def test_waiting_shows_how_far_the_run_is(bench):
    """A terminal shows the progress of the run; other outputs show only its end. Two programs send."""
    service = bench.serve(run={"images": 20, "first_frame": 1}, source={"senders": "any"})
    env = {**os.environ, "KONKORDIA_URL": service.url, "TERM": "xterm"}
    ours, its = pty.openpty()
    start = subprocess.Popen([BINARY, "start", "--wait"], env=env, stdout=subprocess.PIPE, stderr=its, text=True)
    os.close(its)
    service.until(lambda s: s["state"] == "armed")
    bench.send(8)
    seen = ""
    end = time.monotonic() + 60
    while "8 of 20 images" not in seen:
        assert time.monotonic() < end, seen
        if select.select([ours], [], [], 0.5)[0]:
            seen += os.read(ours, 4096).decode()
    bench.send(12, first_frame=9)
    out, _ = start.communicate(timeout=60)
    os.close(ours)
    assert start.returncode == 0 and "20 of 20 images complete" in out


def test_sighup_ends_nothing(bench):
    """The signal comes when the terminal is closed in which the service was started."""
    # Two programs send, one after the other.
    service = bench.serve(run={"images": 20, "first_frame": 1}, source={"senders": "any"})
    service.process.send_signal(signal.SIGHUP)
    service.command("arm")
    bench.send(10)
    service.until(lambda s: s["images_committed"] == 10)
    service.process.send_signal(signal.SIGHUP)
    bench.send(10, first_frame=11)
    done = service.wait()
    assert (done["severity"], done["images_written"]) == ("success", 20)
    code, log = service.end()
    assert code == 0 and log.count("SIGHUP is ignored; the configuration is read when the service starts") == 2, log


def test_parameters_of_a_run(bench):
    service = bench.serve(run={"images": 5}, output={"create_folders": True})
    parameters = {"images": 3, "prefix": "lyso/a", "metadata": {"sample_name": "lysozyme", "count_time_us": 100}}
    assert service.command("start", parameters)["images_expected"] == 3
    bench.send(3)
    assert service.wait()["file"] == str(bench.folder / "lyso" / "a_master.h5")
    with h5py.File(bench.folder / "lyso" / "a_master.h5") as file:
        assert file["/entry/sample/name"][()] == b"lysozyme"
    # Without files, and until it is stopped.
    status = service.command("arm", {"images": 0, "write": False})
    assert status["images_expected"] is None and status["file"] is None
    bench.send(7)
    service.until(lambda s: s["images_committed"] == 7)
    service.command("stop")
    done = service.wait()
    assert (done["images_committed"], done["images_written"], done["ended"]) == (7, 0, "stopped")
    assert sorted(p.name for p in bench.folder.iterdir()) == ["lyso", "run.toml"]


def test_images_are_in_the_ring(bench):
    service = bench.serve(run={"images": 30}, service={"ring_images": 4})
    service.command("arm")
    bench.send(30, rate=50)
    service.wait()
    listed = service.request("GET", "images")
    assert listed["images"] == [26, 27, 28, 29], listed


ARM_FAILURES = [
    ({"prefix": "../x"}, {}, "bad_request", "part . or .."),
    ({"prefix": "/etc/x"}, {}, "bad_request", "outside of"),
    ({"prefix": "new/x"}, {}, "bad_request", "does not exist"),
    ({"metadata": {"energy_kve": 1}}, {}, "bad_request", "energy_kev"),
    ({"metadata": {"energy_kev": 12400}}, {}, "bad_request", "eV"),
    ({"images": 1 << 41}, {}, "bad_request", "2^40"),
    ({"prefix": "there"}, {}, "arm_failed", "there_master.h5"),
    ({"images": 1 << 39}, {"output": {"compression": "none"}}, "arm_failed", "has no room"),
    ({}, {"detector": {"type": "eiger", "bits": 8, "frame_time_us": 10}, "output": {"compression": "none"}}, "arm_failed", "too slow"),
    ({}, {"control": {"on_arm": ["sh", "-c", "echo the shutter is closed >&2; exit 1"]}}, "arm_failed", "the shutter is closed"),
    ({}, {"control": {"on_arm": ["/no/such/program"]}}, "arm_failed", "No such file"),
    ({}, {"control": {"on_arm": ["sleep", "60"], "timeout_s": 0.3}}, "arm_failed", "was killed"),
]


@pytest.mark.parametrize(("parameters", "tables", "code", "part"), ARM_FAILURES, ids=[f"{c}-{p}" for _, _, c, p in ARM_FAILURES])
def test_an_arm_that_fails_says_why(bench, parameters, tables, code, part):
    (bench.folder / "there_master.h5").write_bytes(b"not ours")
    service = bench.serve(**tables)
    before = sorted(bench.folder.iterdir())
    problem = service.refused("arm", parameters)
    assert problem.code == code and part in str(problem.body), problem
    assert problem.body["hint"]
    # No event says "armed", which could make a script open a shutter, and the service stays ready (/readyz).
    status, events = service.status(), service.request("GET", "logs")["logs"]
    assert status["state"] == "idle" and not [event for event in events if event["event"] == "state"], events
    assert code == "bad_request" or (status["severity"] == "error" and part in status["message"] + status["hint"]), status
    with urllib.request.urlopen(service.url + "/readyz", timeout=10) as ready:
        assert ready.status == 200
    assert sorted(bench.folder.iterdir()) == before, "something was left behind"
    # The failed arm does not block the next one.
    if not tables:
        assert service.command("arm", {"images": 1})["state"] == "armed"
    service.command("cancel")
    assert service.wait()["state"] == "idle"


def test_ports_that_are_taken_are_named(bench):
    import socket

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("127.0.0.1", bench.port + 2))
        service = bench.serve()
        problem = service.refused("arm")
        assert problem.code == "arm_failed" and f":{bench.port + 2}" in problem.body["detail"], problem
    assert service.command("arm")["state"] == "armed"


def test_calibration_that_is_too_old(bench):
    # The calibration file does not exist. The message about its age is tested in test_calibration.py.
    config = write_config(
        bench.folder,
        bench.port,
        detector={"type": "jungfrau", "energy_kev": 12.4},
        calibration={"kind": "konkordia", "file": str(bench.folder / "cal.h5"), "max_age_hours": 1},
    )
    service = Service(config)
    bench.services.append(service)
    problem = service.refused("arm")
    assert problem.code == "arm_failed" and "cal.h5" in problem.body["detail"]


def test_arm_is_bounded_in_time(bench):
    service = bench.serve(service={"arm_timeout_s": 0.5}, control={"on_arm": ["sleep", "9"], "timeout_s": 30})
    begun = time.monotonic()
    problem = service.refused("arm")
    assert problem.code == "arm_failed" and "0.5 s" in problem.body["detail"]
    assert time.monotonic() - begun < 8
    assert service.status()["state"] == "idle"
    assert service.refused("arm").code == "busy", "what was given up still holds its sockets"
    service.command("cancel")
    assert not bench.master().exists() or service.status()["state"] == "idle"
    until(lambda: not bench.master().exists(), "the arm that was given up leaves no files", 30)


def test_commands_in_the_wrong_state(bench):
    service = bench.serve(control={"on_trigger": ["true"]})
    problem = service.refused("trigger")
    assert (problem.code, problem.body["state"]) == ("wrong_state", "idle")
    for verb in ("stop", "cancel"):
        assert service.command(verb)["state"] == "idle", "nothing is going on: there is nothing to refuse"
    service.command("arm")
    assert service.refused("arm").code == "wrong_state"
    assert service.refused("start", {"images": 3}).code == "wrong_state"
    assert service.command("start")["state"] == "armed"
    assert service.command("trigger")["state"] == "armed"
    service.command("cancel")
    service.wait()
    assert service.statistics()["totals"]["commands_refused"] == 3


def test_no_trigger(bench):
    service = bench.serve()
    problem = service.refused("trigger")
    assert problem.code == "no_trigger" and "on_trigger" in problem.body["hint"]


def test_hooks_are_run_and_their_failure_is_reported(bench):
    said = bench.folder / "said"
    hook = lambda name: ["sh", "-c", f"echo {name} $KONKORDIA_RUN $KONKORDIA_IMAGES >> {said}"]  # noqa: E731
    control = {f"on_{name}": hook(name) for name in ("arm", "start", "trigger", "stop")}
    service = bench.serve(control=control, run={"images": 4})
    service.command("start")
    service.command("trigger")
    service.command("stop")
    service.wait()
    until(lambda: "stop" in said.read_text(), "the hook of stop", 10)
    assert said.read_text().splitlines() == ["arm 1 4", "start 1 4", "trigger 1 4", "stop 1 4"]


def test_a_missed_trigger_ends_in_a_closed_file(bench):
    service = bench.serve(run={"images": 5, "start_timeout_s": 0.5})
    service.command("arm")
    # Twice the time that a start waits.
    time.sleep(1)
    assert service.status()["state"] == "armed", "arm alone waits for ever"
    service.command("start")
    done = service.wait(10)
    assert (done["state"], done["severity"], done["ended"]) == ("idle", "warning", "no data")
    waited = re.search(r"no packet came within (\d+\.\d) s after the start", done["message"])
    assert waited and float(waited[1]) >= 0.5 and done["hint"], done
    assert ended_in(bench.master()) == "no data"
    bench.check("run_000001")


def test_a_detector_that_falls_silent_ends_in_a_partial_file(bench):
    service = bench.serve(run={"images": 50, "stall_timeout_s": 0.5})
    service.command("arm")
    bench.send(20)
    done = service.wait(15)
    assert (done["ended"], done["severity"], done["images_lost"], done["images_not_received"]) == ("stalled", "warning", 0, 30)
    assert done["images_expected"] == 20 and "30 not received" in done["message"]
    assert done["progress"] <= 1
    assert ended_in(bench.master()) == "stalled"


def test_an_armed_detector_can_give_up(bench):
    service = bench.serve(service={"armed_timeout_s": 0.5})
    service.command("arm")
    done = service.wait(10)
    assert done["ended"] == "no data" and "after it was armed" in done["message"]


def test_cancel_in_every_state(bench):
    service = bench.serve(run={"images": 20000}, output={"overwrite": "replace"})
    assert service.command("cancel")["state"] == "idle"
    # Armed: no image came, so no file is left.
    service.command("arm")
    assert bench.master().exists()
    service.command("cancel")
    assert service.wait()["ended"] == "cancelled"
    assert not list(bench.folder.glob("run_*")), "no image came, so the name is free"
    # While it is being armed.
    slow = write_config(bench.folder, bench.port, name="slow.toml", control={"on_arm": ["sleep", "1"]})
    other = Service(slow)
    bench.services.append(other)
    problems = []
    thread = threading.Thread(target=lambda: problems.append(other.refused("arm")))
    thread.start()
    other.until(lambda s: "getting ready" in s["message"])
    assert other.refused("start").code == "busy"
    assert other.command("cancel")["state"] == "idle"
    thread.join(10)
    assert "cancelled" in problems[0].body["detail"]
    other.end()
    assert not list(bench.folder.glob("run_*"))
    # Receiving.
    service.command("arm")
    sender = threading.Thread(target=bench.send, args=(300, 300))
    sender.start()
    service.until(lambda s: s["state"] == "running" and s["images_written"] > 5)
    done = service.command("cancel")
    assert (done["state"], done["ended"]) == ("idle", "cancelled")
    # As soon as cancel has answered, a new arm is accepted.
    assert service.command("cancel")["state"] == "idle"
    assert service.command("arm", {"prefix": "next"})["state"] == "armed"
    assert service.command("cancel")["state"] == "idle"
    written = images_in(bench.master("run_000002"))
    assert 5 < written < 300
    bench.check("run_000002")
    sender.join()
    # After a refused arm.
    blocked = {"prefix": "../x"}
    assert service.refused("arm", blocked).code == "bad_request"
    service.command("cancel")
    assert service.status()["state"] == "idle"


def test_late_packets_of_the_last_run_are_foreign_or_left_out(bench):
    service = bench.serve(run={"images": 20000, "first_frame": "auto"}, output={"overwrite": "replace"})
    service.command("arm", {"prefix": "a"})
    bench.send(50, first_frame=100)
    service.until(lambda s: s["images_committed"] == 50)
    service.command("stop")
    service.wait()
    service.command("arm", {"prefix": "b"})
    # One image of the previous run still comes, then the detector goes on.
    bench.send(1, first_frame=149)
    bench.send(10, first_frame=150)
    service.until(lambda s: s["images_committed"] >= 10)
    # The ledger of the run in progress must already have the final packet counts.
    live = service.statistics()["ledger"]
    service.command("stop")
    service.wait()
    ledger = service.statistics()["ledger"]
    packets = [name for name in live if not name.startswith("images_")]
    assert len(packets) == 15 and all(live[name] == ledger[name] for name in packets), (live, ledger)
    assert ledger["foreign"] > 0 and ledger["images_lost"] == 0 and ledger["images_partial"] == 0, ledger
    assert images_in(bench.master("b")) == 10
    # A reset detector begins with frame 1 again. Its packets are not taken for late ones.
    service.command("arm", {"prefix": "c"})
    bench.send(10, first_frame=1)
    service.until(lambda s: s["images_committed"] == 10)
    service.command("stop")
    service.wait()
    assert service.statistics()["ledger"]["foreign"] == 0
    assert images_in(bench.master("c")) == 10


def test_packets_between_runs_leave_no_trace(bench):
    service = bench.serve(run={"images": 10}, output={"overwrite": "replace"})
    for prefix in "ab":
        bench.send(5)
        service.command("arm", {"prefix": prefix})
        bench.send(10)
        assert service.wait()["severity"] == "success"
        assert images_in(bench.master(prefix)) == 10


def test_events_list_what_happened(bench):
    service = bench.serve(run={"images": 5})
    service.command("arm")
    bench.send(5)
    service.wait()
    service.refused("trigger")
    events = service.request("GET", "logs")["logs"]
    names = [event["event"] for event in events]
    for name in ("state", "run_started", "file", "run_ended", "refused"):
        assert name in names, names
    states = [event["data"]["detail"] for event in events if event["event"] == "state"]
    assert states == ["armed", "receiving", "draining", "idle"]
    assert [event["id"] for event in events] == sorted(event["id"] for event in events)


def test_sigterm_in_mid_run_closes_the_files(bench):
    service = bench.serve(run={"images": 20000})
    service.command("arm")
    sender = threading.Thread(target=bench.send, args=(600, 300))
    sender.start()
    service.until(lambda s: s["images_written"] > 10)
    code, log = service.end(signal.SIGTERM)
    sender.join()
    assert code == 0 and "stopping" in log
    assert ended_in(bench.master()) == "stopped"
    bench.check("run_000001")


def test_killed_and_started_again(bench):
    service = bench.serve(run={"images": 20000})
    service.command("arm")
    sender = threading.Thread(target=bench.send, args=(400, 300))
    sender.start()
    service.until(lambda s: s["images_written"] > 20)
    service.process.kill()
    service.process.wait()
    sender.join()
    again = bench.serve(run={"images": 5})
    again.until_logged(lambda line: "is not finished" in line and "repair" in line)
    program("repair", bench.master(), check=0)
    assert images_in(bench.master()) > 20
    again.command("arm", {"prefix": "next"})
    bench.send(5)
    assert again.wait()["severity"] == "success"


def test_a_second_service_says_who_is_in_its_way(bench):
    service = bench.serve()
    address = service.url.removeprefix("http://")
    config = bench.folder / "run.toml"
    done = subprocess.run([BINARY, "serve", "-c", config, "--listen", address], capture_output=True, text=True, timeout=30)
    assert done.returncode == 5 and "another program listens there" in done.stderr, done


def test_verbs(bench):
    service = bench.serve(run={"images": 5}, control={"on_trigger": ["true"]})
    env = {**os.environ, "KONKORDIA_URL": service.url}
    verb = lambda *arguments, check=0: program(*arguments, check=check, env=env)  # noqa: E731
    assert verb("status").stdout.startswith("detector: idle")
    assert "armed for 3 images" in verb("arm", "--images", 3, "--prefix", "a", "--set", "sample_name=x").stderr
    assert verb("arm", check=5).stderr.startswith("error: ")
    verb("start")
    verb("trigger", "--json")
    verb("wait", "--timeout", 0.2, check=7)
    bench.send(3)
    assert "3 of 3 images complete" in verb("wait", "--timeout", 20).stdout
    verb("arm", "--prefix", "../x", check=2)
    verb("arm", "--prefix", "a", check=6)
    verb("cancel")
    verb("start", "--prefix", "b", "--no-write")
    verb("stop")
    verb("wait", "--timeout", 10, check=1)
    before = settled(service)[0]
    watch = subprocess.Popen([BINARY, "watch", "--json"], env=env, stdout=subprocess.PIPE, text=True)
    try:
        until(lambda: service.resources()[0] > before, "it connects", 20)
        verb("start", "--prefix", "c")
        # Warnings about XDS and about unknown values come first.
        said = [watch.stdout.readline()]
        while '"detail":"armed"' not in said[-1]:
            assert '"severity":"warning"' in said[-1], said
            said.append(watch.stdout.readline())
    finally:
        watch.kill()
        watch.wait()
    service.end()
    assert verb("status", check=4).stderr.startswith("error: cannot reach the service")


@pytest.mark.alone
def test_a_hundred_idle_detectors_are_cheap(bench):
    lines = ['[service]\nlisten = "127.0.0.1:0"\n']
    for n in range(100):
        write_config(bench.folder, 20000 + 4 * n, name=f"d{n}.toml", output={"prefix": f"p{n}"})
        lines.append(f'[detectors.d{n}]\nconfig = "d{n}.toml"\n')
    (bench.folder / "all.toml").write_text("".join(lines))
    service = Service(bench.folder / "all.toml")
    bench.services.append(service)
    assert len(service.request("GET", "detectors")["detectors"]) == 100
    cpu = lambda: sum(map(int, pathlib.Path(f"/proc/{service.process.pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]))  # noqa: E731
    before = cpu()
    # What is measured is what happens while nothing happens.
    time.sleep(2)
    assert cpu() - before <= 10, "100 ms of processor time in 2 s"
    fds, threads, resident = service.resources()
    assert resident < 400 << 20 and threads < 130 and fds < 100, (fds, threads, resident)
    assert service.end()[0] == 0


@pytest.mark.parametrize("protocol", ["stins", "stream1", "stream2"])
def test_series_of_a_stream_follow_each_other(bench, protocol):
    stream = Stream(bench, protocol)
    service = stream.service
    assert service.status()["listens"] == [stream.address]
    for number in (1, 2):
        stream.send(20, "--first-series", number)
        done = service.until(lambda s: s["run"] == number and s["state"] == "idle")
        assert (done["severity"], done["images_committed"], done["images_written"]) == ("success", 20, 20), done
        assert done["file"] == str(bench.folder / f"s_{number:06}_master.h5")
        assert images_in(bench.folder / f"s_{number:06}_master.h5") == 20
    assert service.statistics()["totals"]["images_complete"] == 40
    assert [entry["state"] for entry in service.request("GET", "files")["files"]] == ["complete", "complete"]
    assert len(service.request("GET", "images")["images"]) == 16
    assert service.end()[0] == 0


def test_names_in_headers_stay_below_the_data_root(bench):
    stream = Stream(bench, output="create_folders = true")
    service = stream.service
    stream.send(5, "--filename", "lyso/a.h5")
    done = service.until(lambda s: s["run"] == 1 and s["state"] == "idle")
    assert done["severity"] == "success" and images_in(bench.folder / "lyso" / "a_master.h5") == 5
    for number, name in enumerate(["../out.h5", "/etc/passwd", "a/../../b", "lyso/../../c"], 2):
        stream.send(5, "--filename", name)
        done = service.until(lambda s: s["run"] == number and s["state"] == "error")
        assert done["severity"] == "error" and done["hint"], done
    assert sorted(p.name for p in bench.folder.parent.iterdir() if p.suffix == ".h5") == []
    # A bad name affects its own series only.
    stream.send(5)
    done = service.until(lambda s: s["run"] == 6 and s["state"] == "idle")
    assert done["severity"] == "success"


def test_a_stream_that_is_taken_only_when_armed(bench):
    stream = Stream(bench, source='accept = "armed"')
    service = stream.service
    stream.send(5)
    # A start, five images and an end.
    until(lambda: service.statistics()["totals"].get("messages_foreign", 0) >= 7, "all messages are refused")
    assert service.status()["run"] == 0 and not list(bench.folder.glob("*.h5"))
    armed = service.command("arm", {"prefix": "mine", "metadata": {"sample_name": "x"}})
    assert (armed["state"], armed["run"]) == ("armed", 1)
    assert service.refused("arm").code == "wrong_state"
    stream.send(5)
    done = service.wait()
    assert (done["severity"], done["run"], done["file"]) == ("success", 1, str(bench.master("mine"))), done
    assert images_in(bench.master("mine")) == 5
    assert service.refused("arm", {"prefix": "mine"}).code == "arm_failed"
    # A sender that never begins.
    service.command("cancel")
    service.command("start", {"prefix": "none"})
    done = service.wait(15)
    assert (done["ended"], done["severity"]) == ("no data", "warning"), done
    # Armed and cancelled, twice.
    service.command("arm", {"prefix": "other"})
    assert service.command("cancel")["state"] == "idle"
    assert service.wait()["state"] == "idle"
    assert service.command("cancel")["state"] == "idle"
    service.command("arm", {"prefix": "again"})
    stream.send(5)
    assert service.wait()["severity"] == "success"


def test_transformations_of_a_stream(bench):
    stream = Stream(bench, extra='[transform]\ncrop = [0, 0, 8, 40]\nbin = [2]\ncompression = "bslz4"\n')
    stream.send(6)
    done = stream.service.until(lambda s: s["run"] == 1 and s["state"] == "idle")
    assert done["severity"] == "success", done
    with h5py.File(done["file"]) as file:
        data = file["/entry/data"]
        assert data[data.attrs["signal"]].shape == (6, 4, 20)


def test_images_of_a_stream_are_added(bench):
    read = {}
    for frames in (1, 4):
        stream = Stream(bench, extra=f'[transform]\nsum_frames = {frames}\ncompression = "none"\n')
        stream.send(10)
        done = stream.service.until(lambda s: s["run"] == 1 and s["state"] == "idle")
        assert (done["severity"], done["images_expected"]) == ("success", 10 // frames), done
        ledger = stream.service.statistics()["ledger"]
        found = [ledger.get(f"frames{name}") for name in ("", "_kept", "_unfinished")]
        assert found == ([None] * 3 if frames == 1 else [10, 8, 2]), ledger
        assert program("check", done["file"]).returncode == 0
        with h5py.File(done["file"]) as file:
            data = file["/entry/data"]
            read[frames] = data[data.attrs["signal"]][:]
            balances = file["/entry/konkordia/ledger/balances"].asstr()[:].tolist()
            assert ("frames = frames_kept + frames_unfinished" in balances) == (frames > 1)
        assert stream.service.end()[0] == 0
    images, sums = read[1], read[4]
    assert sums.dtype.itemsize == 2 * images.dtype.itemsize == 4 and images.any()
    # The special values are the highest numbers of the type.
    special = (images[:8] > 65531).reshape(2, 4, 24, 40).any(axis=1)
    expected = images[:8].astype("u8").reshape(2, 4, 24, 40).sum(axis=1)
    assert (sums == expected)[~special].all() and (sums[special] > 2**32 - 5).all() and not special.all()


def test_a_required_consumer_is_waited_for(bench):
    out = f'[[stream]]\nname = "pipeline"\naddress = "ipc://{bench.folder}/out"\nrequired = true\n'
    service = bench.serve(run={"images": 5}, extra=out)
    problem = service.refused("arm")
    assert problem.code == "arm_failed" and "'pipeline' is not connected" in problem.body["detail"], problem
    capture = bench.folder / "out.zmsg"
    record = subprocess.Popen([BINARY, "record", f"ipc://{bench.folder}/out", "-o", capture, "--messages", "7", "-q"])
    try:
        service.consumers_connect()
        service.command("arm")
        bench.send(5)
        assert service.wait()["severity"] == "success"
        # A start, five images, an end.
        assert record.wait(20) == 0
    finally:
        record.kill()
        record.wait()
    consumer = service.statistics()["consumers"][0]
    assert (consumer["delivered"], consumer["skipped"]) == (5, 0), consumer


def test_sigterm_in_mid_series_closes_the_files(bench):
    stream = Stream(bench)
    sender = subprocess.Popen(
        [BINARY, "stream", "--shape", "24x40", "--images", "2000", "--rate", "300", "--to", stream.address, "--connect", "-q"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )
    try:
        stream.service.until(lambda s: s["images_written"] > 10)
        code, _ = stream.service.end(signal.SIGTERM)
    finally:
        # The sender would try for half a minute to deliver the rest.
        sender.kill()
        sender.wait()
    assert code == 0
    assert images_in(bench.folder / "s_000001_master.h5") > 10
    program("check", bench.folder / "s_000001_master.h5", check=0)


def test_the_search_for_leaks_sees_one_more_open_file(bench):
    service = bench.serve()
    before = settled(service)
    host, port = service.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(b"GET /api/v1/status HTTP/1.1\r\n")
        until(lambda: service.resources()[0] != before[0], "the connection is taken")
        assert more_than(before, service, within_s=0.5)
    assert not more_than(before, service)


@pytest.mark.alone
def test_short_runs_do_not_leak(bench):
    runs = 1000 if SLOW else 100
    service = bench.serve(run={"images": 2}, output={"overwrite": "replace"}, service={"ring_images": 2})

    def run():
        service.command("arm")
        bench.send(2, rate=0)
        return service.wait()

    for _ in range(30):
        run()
    before, resident = settled(service), service.resources()[2]
    complete = sum(run()["severity"] == "success" for _ in range(runs))
    assert complete == runs
    assert not more_than(before, service), (before, service.resources(), "open files, threads")
    # Each thread that ends leaves some memory in the allocator; this does not grow with the number of runs. The memory of
    # the last run is given back behind its end.
    until(lambda: service.resources()[2] < resident + (64 << 20), "memory is given back")
    assert service.statistics()["totals"]["images_complete"] == 2 * (runs + 30)
