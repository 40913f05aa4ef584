"""Who holds a detector, what an arm would need without arming, and what the machine does meanwhile."""

import json
import time
import urllib.error
import urllib.request

import numpy as np
import pytest
from driving import program
from service import served_bench, until
from streams import Stins, StreamService

bench = pytest.fixture(served_bench)


@pytest.fixture
def people(tmp_path):
    """Tokens by the name of their owner, and the lines of the configuration for them."""
    path = tmp_path / "tokens"
    make = lambda name, role: program("token", "create", name, "--role", role, "--file", path, check=0).stdout.strip()
    tokens = {name: make(name, role) for name, role in [("alice", "operate"), ("bob", "operate"), ("vera", "view")]}
    return tokens, f'[service]\ntokens = "{path}"\n'


def ask(service, token, method, path, body=None):
    """Status and body of an answer."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
    request = urllib.request.Request(f"{service.url}/api/v1/{path}", data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_the_second_operator_is_told_who_holds_the_detector(bench, people):
    tokens, extra = people
    service = bench.serve(run={"images": 5}, extra=extra)
    by = lambda name, method, path, body=None: ask(service, tokens[name], method, path, body)
    status, armed = by("alice", "POST", "arm", {})
    operator = armed["operator"]
    assert (status, operator["name"], operator["action"]) == (200, "alice", "arm"), armed
    assert 0 <= operator["age_s"] < 10 and operator["since"][:2] == "20"
    status, problem = by("bob", "POST", "arm", {})
    assert (status, problem["code"]) == (409, "wrong_state"), problem
    assert "already armed; armed by alice" in problem["detail"] and operator["since"] in problem["detail"], problem
    assert problem["hint"] == "start or trigger it; to arm again, cancel first"
    assert by("vera", "GET", "status")[1]["operator"]["name"] == "alice", "a viewer sees it too"
    assert by("bob", "POST", "start", {})[1]["operator"]["name"] == "bob", "who starts it holds it from then on"
    status, problem = by("alice", "POST", "pedestal", {"stage": "g0"})
    assert status == 409 and "started by bob" in problem["detail"], problem
    refused = [event for event in by("vera", "GET", "logs")[1]["logs"] if event["event"] == "refused"]
    assert len(refused) == 2 and "armed by alice" in refused[0]["data"]["why"], refused
    assert by("alice", "POST", "cancel", {})[1]["operator"] is None, "nobody holds what is idle"


def test_without_tokens_the_address_is_named_and_the_verb_of_the_command_line(bench):
    service = bench.serve(run={"images": 5})
    assert service.status()["operator"] is None
    assert service.command("arm")["operator"]["name"] == "local 127.0.0.1"
    assert service.command("cancel")["operator"] is None
    program("arm", "--url", service.url, check=0)
    assert service.status()["operator"]["name"] == "local 127.0.0.1 (konkordia arm)"
    bench.send(5)
    assert service.wait()["operator"] is None
    service.command("start")
    started = service.status()["operator"]
    assert (started["name"], started["action"]) == ("local 127.0.0.1", "start")


def test_a_series_that_its_sender_begins_has_no_operator(tmp_path):
    service, stins = StreamService(tmp_path), Stins()
    try:
        service.command("arm")
        service.send(stins.start(), stins.image(0, np.ones((24, 40), "uint16")))
        running = service.until(lambda s: s["state"] == "running" and s["images_committed"] == 1)
        assert running["operator"]["name"] == "local 127.0.0.1"
        service.send(stins.end())
        service.taken(1)
        service.send(stins.start(), stins.image(0, np.ones((24, 40), "uint16")))
        running = service.until(lambda s: s["run"] == 2 and s["images_committed"] == 1)
        assert running["operator"] is None
        service.send(stins.end())
        service.taken(2)
    finally:
        service.close()


def test_a_viewer_may_ask_but_not_arm(bench, people):
    tokens, extra = people
    service = bench.serve(run={"images": 5}, extra=extra)
    assert ask(service, tokens["vera"], "POST", "arm", {})[0] == 403
    status, asked = ask(service, tokens["vera"], "POST", "arm?dry_run=true", {})
    assert (status, asked["ok"]) == (200, True), asked
    for query in ["dry_run=false", "dry_run=True", "dry%5Frun=true", "dry_run=true&dry_run=false", "xdry_run=true"]:
        assert ask(service, tokens["vera"], "POST", f"arm?{query}", {})[0] in (400, 403), query
    assert ask(service, tokens["vera"], "POST", "start?dry_run=true", {})[0] == 403
    assert ask(service, "kk_nobody", "POST", "arm?dry_run=true", {})[0] == 401
    assert ask(service, tokens["vera"], "GET", "status")[1]["state"] == "idle"


def dry(service, **request):
    return service.command("arm", request, dry_run="true")


def test_an_arm_that_is_only_asked_changes_nothing(bench):
    service = bench.serve(run={"images": 50}, output={"create_folders": True})
    before = (sorted(bench.folder.iterdir()), service.status()["run"], service.request("GET", "logs")["logs"])
    for request in [{}, {"prefix": "new/deeper/run"}, {"prefix": "../up"}, {"images": 2**60}, {"metadata": {"x": 1}}]:
        dry(service, **request)
    asked = dry(service, prefix="new/deeper/run", metadata={"frame_time_us": 1000, "sample_name": "lyso"})
    needs = asked["needs"]
    assert asked["ok"] and asked["problems"] == []
    assert (needs["images"], needs["rate_hz"], needs["duration_s"]) == (50, 1000.0, 0.05)
    assert needs["file"] == str(bench.folder / "new/deeper/run_master.h5")
    image_bytes = service.request("GET", "configuration")
    image_bytes = image_bytes["image_rows"] * image_bytes["image_columns"] * np.dtype(image_bytes["dtype"]).itemsize
    assert (needs["file_bytes"], needs["file_bytes_from"], needs["fits"]) == (50 * image_bytes, "uncompressed", True)
    assert needs["disk_free_bytes"] > needs["file_bytes"] and needs["memory_bytes"] > 32 << 20
    assert (sorted(bench.folder.iterdir()), service.status()["run"], service.request("GET", "logs")["logs"]) == before
    assert service.status()["state"] == "idle"
    nothing = dry(service, write=False)["needs"]
    assert (nothing["file_bytes"], nothing["file"], nothing["fits"]) == (0, None, True)
    # The sizes of the run that has been there.
    service.command("arm", {"prefix": "small"})
    asked = dry(service)
    assert asked["ok"] and asked["needs"]["file_bytes_from"] == "uncompressed", "also while a run is armed"
    bench.send(50)
    service.wait()
    needs = dry(service, images=5000)["needs"]
    entry = service.request("GET", "files")["files"][0]
    assert needs["file_bytes_from"] == "last_run"
    assert needs["file_bytes"] == pytest.approx(100 * entry["bytes"], abs=1) and needs["file_bytes"] < 5000 * image_bytes


@pytest.mark.parametrize(
    ("request_", "field", "words"),
    [
        ({"prefix": "../up"}, "prefix", "part . or .."),
        ({"prefix": "/etc/x"}, "prefix", "outside"),
        ({"prefix": "no/run"}, "prefix", "does not exist"),
        ({"prefix": "there"}, "prefix", "the file exists"),
        ({"images": 2**40}, "disk", "has no room for this run"),
        ({"images": 2**41}, "images", "at most 2^40"),
        ({"metadata": {"energy_kev": 12.4, "energi": 1}}, "metadata.energi", "unknown key"),
        ({"metadata": {"energy_kev": -1}}, "metadata.energy_kev", "energy_kev"),
    ],
)
def test_it_finds_what_the_arm_would_refuse(bench, request_, field, words):
    service = bench.serve(run={"images": 5})
    (bench.folder / "there_master.h5").write_bytes(b"")
    asked = dry(service, **request_)
    assert not asked["ok"] and [problem["field"] for problem in asked["problems"]] == [field], asked
    assert words in asked["problems"][0]["detail"] and asked["problems"][0]["hint"], asked
    refused = service.refused("arm", request_)
    assert words in refused.body["detail"] and refused.body["detail"] == asked["problems"][0]["detail"], refused.body


def test_all_that_is_wrong_is_said_at_once(bench):
    asked = dry(bench.serve(), images=2**50, prefix=".hidden", metadata={"energi": 1, "energy_kev": "x", "sample_name": "a"})
    fields = [problem["field"] for problem in asked["problems"]]
    assert fields == ["images", "prefix", "metadata.energi", "metadata.energy_kev"], asked
    assert asked["needs"]["file_bytes"] is None
    many = {f"name{n}": n for n in range(2000)}
    begun = time.monotonic()
    asked = dry(bench.services[0], metadata=many)
    assert 1 <= len(asked["problems"]) <= 64 and time.monotonic() - begun < 5


def test_a_stream_is_asked_too(tmp_path):
    service, stins = StreamService(tmp_path), Stins()
    try:
        needs = dry(service)["needs"]
        assert (needs["images"], needs["file_bytes"], needs["fits"]) == (None, None, None) and needs["memory_bytes"] > 0
        assert [p["field"] for p in dry(service, prefix="../up")["problems"]] == ["prefix"]
        service.send(*stins.series([np.zeros((24, 40), "uint16")] * 4))
        service.taken(1)
        needs = dry(service, images=400, metadata={"frame_time_us": 10_000})["needs"]
        assert (needs["duration_s"], needs["file_bytes_from"]) == (4.0, "last_run") and needs["file_bytes"] > 0
    finally:
        service.close()


def test_lost_packets_are_counted_by_module_and_the_threads_are_known(bench):
    service = bench.serve(run={"images": 40, "stall_timeout_s": 1})
    assert service.request("GET", "machine")["modules"] == []
    service.command("arm")
    machine = service.request("GET", "machine")
    assert machine["cores"] >= 1 and machine["disk"]["directory"] == str(bench.folder)
    assert machine["disk"]["free_bytes"] > 0 and machine["disk"]["left_s"] is None and machine["spool"] is None
    assert 0 < machine["memory"]["used_bytes"] < machine["memory"]["limit_bytes"]
    # An answer is kept for a quarter of a second, so the first one after the arm may be of the time before it.
    groups = lambda: {thread["group"] for thread in service.request("GET", "machine")["threads"]}
    until(lambda: {"receive", "convert", "write", "http", "other"} <= groups(), "the threads of the run")
    assert all(0 <= thread["cores"] <= 1 for thread in machine["threads"])
    bench.send(40, loss=0.2)
    service.wait()
    until(lambda: service.status()["state"] == "idle", "the run is over")
    modules, ledger = service.request("GET", "machine")["modules"], service.statistics()["ledger"]
    assert sum(module["lost_packets"] for module in modules) == ledger["packets_missing"] > 0, (modules, ledger)
    assert sum(module["received_packets"] for module in modules) == ledger["received"]
    assert [module["module"] for module in modules] == list(range(len(modules)))


def test_names_and_severities_of_events_agree(tmp_path):
    service = StreamService(tmp_path)
    try:
        service.send(*Stins().series([np.ones((24, 40), "uint16")], filename="../out.h5"))
        service.until(lambda s: s["state"] == "error")
        logs = service.request("GET", "logs")["logs"]
        remarks = [event for event in logs if event["event"] in ("log", "warning", "error")]
        assert "error" in {event["event"] for event in remarks}, logs
        for event in remarks:
            assert event["severity"] in ({"log": ("info", "success")}.get(event["event"]) or (event["event"],)), event
    finally:
        service.close()
