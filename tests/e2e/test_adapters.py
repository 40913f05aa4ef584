"""Programs that the service starts as adapters (`[adapters.NAME]`): what they get, how they end, and that runs do not care."""

import json
import os
import signal
import sys

import pytest
from driving import BINARY, program
from service import Service, served_bench, until, write_config
from test_http_tls import usual

bench = pytest.fixture(served_bench)

TELL = "import json, os, sys, time; json.dump({**os.environ, 'pid': os.getpid()}, open(sys.argv[1] + '.part', 'w')); "
TELL += "os.rename(sys.argv[1] + '.part', sys.argv[1]); "
STAY = "time.sleep(600)"


def adapter(name, code, *arguments, **keys):
    """A table of an adapter that is a Python program."""
    values = {"program": [sys.executable, "-c", code, *map(str, arguments)], **keys}
    return f"[adapters.{name}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())


def adapter_of(service, name):
    [found] = [one for one in service.request("GET", "adapters")["adapters"] if one["name"] == name]
    return found


def told(path):
    """What the program wrote that TELL begins."""
    until(path.exists, f"{path} is written", 20)
    return json.loads(path.read_text())


def runs(pid):
    """False once a process has ended, even if nobody has taken its exit code."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def events_of(service, name):
    logs = service.request("GET", "logs", limit=1000)["logs"]
    return [event for event in logs if event["event"] == "adapter" and event["data"]["name"] == name]


def test_a_program_gets_what_it_needs_and_ends_with_the_service(bench, monkeypatch):
    monkeypatch.setenv("KONKORDIA_TOKEN", "that of somebody else")
    code = TELL + "print('to stdout', flush=True); print('höre zu', file=sys.stderr, flush=True); " + STAY
    service = bench.serve(extra=adapter("epics", code, bench.folder / "told", role="view"))
    seen = told(bench.folder / "told")
    assert (seen["KONKORDIA_URL"], seen["KONKORDIA_DETECTOR"]) == (service.url, "detector")
    assert not {"KONKORDIA_TOKEN", "KONKORDIA_ADAPTER_OF"} & seen.keys()
    status = adapter_of(service, "epics")
    assert (status["kind"], status["state"], status["role"], status["detector"]) == ("program", "running", "view", "detector")
    assert (status["pid"], status["restarts"], status["last_failure"]) == (seen["pid"], 0, None)
    assert os.getpgid(seen["pid"]) == seen["pid"]
    for words in ["to stdout", "höre zu"]:
        service.until_logged(lambda line, words=words: words in line and "epics" in line)
    code, log = service.end()
    assert code == 0 and not runs(seen["pid"]) and "WARN" not in log, log


def test_its_token_has_its_role_and_is_kept_nowhere(bench):
    tokens = bench.folder / "tokens"
    operator = program("token", "create", "olga", "--role", "operate", "--file", tokens, check=0).stdout.strip()
    extra = f'[service]\ntokens = "{tokens}"\n'
    for role in ["view", "operate"]:
        extra += adapter(role, TELL + STAY, bench.folder / role, role=role)
    service = bench.serve(extra=extra)
    found = {role: told(bench.folder / role)["KONKORDIA_TOKEN"] for role in ["view", "operate"]}
    by = lambda verb, token, *more: program(verb, "--url", service.url, "--token", token, "--json", *more)
    refused = by("arm", found["view"], "--prefix", "no")
    assert refused.returncode != 0 and "the token 'adapter view' has the role 'view'" in refused.stdout, refused
    assert by("status", found["view"]).returncode == 0
    assert by("arm", found["operate"], "--prefix", "yes").returncode == 0
    [status] = json.loads(by("status", operator).stdout)
    assert status["operator"]["name"] == "adapter operate"
    assert by("cancel", operator).returncode == 0
    # A file that is read again does not end the tokens of adapters.
    program("token", "create", "anna", "--role", "view", "--file", tokens, check=0)
    service.until_logged(lambda line: "were read again: 2 of them" in line)
    assert by("status", found["view"]).returncode == 0
    code, log = service.end()
    everything = log + tokens.read_text()
    assert code == 0 and not any(token in everything for token in found.values())


def test_crashes_are_reported_and_restarted_and_no_run_is_harmed(bench):
    at_once = "import sys; print('first', file=sys.stderr); sys.exit('the port is taken')"
    later = TELL + "time.sleep(1.2); os.kill(os.getpid(), 11)"
    extra = adapter("early", at_once) + adapter("late", later, bench.folder / "late")
    service = bench.serve(extra=extra + '[adapters.missing]\nprogram = "/no/such/program"\n')
    service.command("arm", {"images": 400, "prefix": "whole"})
    bench.send(images=400, rate=200)
    status = service.wait()
    assert (status["images_written"], status["images_lost"]) == (400, 0)
    bench.check("whole")
    until(lambda: adapter_of(service, "early")["restarts"] >= 2, "it is started again twice", 20, every_s=0.1)
    failures = [event for event in events_of(service, "early") if event["severity"] == "warning"]
    assert [event["data"]["restart_s"] for event in failures[:2]] == [1, 2]
    said = failures[0]["data"]
    assert said["status"] == 1 and said["reason"].endswith("and said: first / the port is taken"), said
    assert "adapter 'early': it ended with exit status: 1" in failures[0]["message"] and failures[0]["detector"] == "detector"
    assert "signal: 11" in adapter_of(service, "late")["last_failure"]["reason"]
    missing = adapter_of(service, "missing")
    assert missing["state"] == "waiting" or missing["restarts"] > 0
    why = missing["last_failure"]["reason"]
    assert "cannot start /no/such/program: No such file" in why and "check the path" in why, why
    code, log = service.end(timeout=4)
    assert code == 0 and "adapter 'late': it ended with signal: 11" in log


def test_one_that_hangs_at_the_end_is_killed_with_its_children(bench):
    code = TELL + "import signal, subprocess; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    code += "child = subprocess.Popen(['sleep', '600']); print('child', child.pid, file=sys.stderr, flush=True); " + STAY
    service = bench.serve(extra=adapter("stubborn", code, bench.folder / "told"))
    pid = told(bench.folder / "told")["pid"]
    service.until_logged(lambda line: "child" in line)
    child = next(int(line.partition("child ")[2].split()[0]) for line in service.log if "child " in line)
    assert runs(pid) and runs(child)
    assert service.end(timeout=12)[0] == 0
    until(lambda: not runs(pid) and not runs(child), "both have ended", 5)


def test_it_ends_when_the_service_is_killed(bench):
    code = TELL + "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + STAY
    service = bench.serve(extra=adapter("orphan", code, bench.folder / "told"))
    pid = told(bench.folder / "told")["pid"]
    assert runs(pid)
    service.end(signal.SIGKILL)
    until(lambda: not runs(pid), "it has ended", 5)


def test_with_tls_it_reaches_the_service_by_a_name_of_the_certificate(bench):
    usual(bench.folder, "own", "-addext", "subjectAltName=DNS:localhost")
    code = TELL + "import subprocess; sys.exit(subprocess.run([sys.argv[2], 'status', '--json']).returncode or time.sleep(600))"
    table = f'[service]\ntls_certificate = "{bench.folder}/own.crt"\ntls_key = "{bench.folder}/own.key"\n'
    config = write_config(bench.folder, bench.port, extra=table + adapter("secure", code, bench.folder / "told", BINARY))
    service = Service(config, environment={name: value for name, value in os.environ.items() if name != "KONKORDIA_CA"})
    bench.services.append(service)
    seen = told(bench.folder / "told")
    assert seen["KONKORDIA_URL"] == service.url.replace("127.0.0.1", "localhost") and seen["KONKORDIA_CA"].endswith("own.crt")
    service.until_logged(lambda line: '"state": "idle"' in line and "secure" in line)
    assert service.end()[0] == 0


def test_a_wrong_detector_is_refused_and_several_need_a_name_only_for_servers(bench):
    config = write_config(bench.folder, bench.port, extra=adapter("epics", STAY, detector="pilatus"))
    done = program("serve", "-c", config)
    assert done.returncode == 3 and "adapters.epics.detector: there is no detector 'pilatus'" in done.stderr, done.stderr
    assert "this service has: detector" in done.stderr


def test_our_variable_by_itself_starts_nothing(tmp_path):
    done = program("touch", tmp_path / "made", env={**os.environ, "KONKORDIA_ADAPTER_OF": "1"})
    assert done.returncode != 0 and "unset KONKORDIA_ADAPTER_OF" in done.stderr and not (tmp_path / "made").exists()
