"""`konkordia drain`: no further run begins, and those in progress end in their own time. And what `konkordia pipelines`
says without a cluster; with one it is tried by tests/peers/test_kubernetes.py."""

import json
import subprocess

import pytest
from driving import BINARY, free_ports
from service import served_bench, until
from streams import Stins, StreamService, pictures

bench = pytest.fixture(served_bench)


def start_drain(service, *options):
    command = [BINARY, "drain", "--url", service.url, *map(str, options)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(drain, timeout=30):
    out, err = drain.communicate(timeout=timeout)
    return drain.returncode, out, err


def is_drained(service):
    return any("no further run" in one["message"] for one in service.request("GET", "logs")["logs"])


def test_an_idle_service_is_drained_at_once(bench):
    service = bench.serve()
    code, out, err = ended(start_drain(service))
    assert code == 0 and "idle" in out, err
    problem = service.refused("arm", {"images": 1})
    assert problem.code == "wrong_state" and "no further run begins" in str(problem.body), problem.body
    assert service.refused("start", {"images": 1}).code == "wrong_state"
    # Again, and it is no error.
    assert ended(start_drain(service, "--json"))[0] == 0
    assert service.end()[0] == 0


def test_an_armed_run_is_waited_for_and_whole(bench):
    service = bench.serve()
    service.command("arm", {"images": 40, "prefix": "run_000001"})
    drain = start_drain(service)
    until(lambda: is_drained(service), "the drain")
    code, _, err = ended(start_drain(service, "--timeout", 0.5))
    assert code == 7 and "still in progress" in err, err
    assert drain.poll() is None and service.status()["state"] == "armed"
    bench.send(images=40, rate=100)
    code, out, err = ended(drain)
    assert code == 0 and "40" in out + err, out + err
    assert service.wait()["images_written"] == 40
    bench.check("run_000001")
    assert service.refused("arm", {"images": 1}).code == "wrong_state"


def test_a_sender_begins_no_further_series(tmp_path):
    service = StreamService(tmp_path)
    try:
        sender, images = Stins(), pictures(6)
        first = list(sender.series(images))
        service.send(*first[:4])
        service.until(lambda s: s["state"] == "running" and s["images_committed"] == 3)
        drain = start_drain(service)
        until(lambda: is_drained(service), "the drain")
        service.send(*first[4:])
        code, _, err = ended(drain)
        assert code == 0, err
        assert service.taken(1)["images_written"] == 6
        service.send(*sender.series(images))
        until(lambda: service.statistics()["totals"].get("messages_foreign", 0) >= 6, "the second series is refused")
        assert service.status()["run"] == 1
    finally:
        service.close()


def test_a_drain_without_a_service_says_so():
    done = subprocess.run([BINARY, "drain", "--url", f"http://127.0.0.1:{free_ports()}"], capture_output=True, text=True, timeout=30)
    assert done.returncode == 4 and "is it running" in done.stderr, done.stderr


@pytest.mark.parametrize(
    "options, code, said",
    [
        ([], 2, "no pod of a cluster"),
        (["--api-server", "http://127.0.0.1:{port}"], 6, "service account"),
        (["--api-server", "http://127.0.0.1:{port}", "--namespace", "eiger"], 4, "goes on without it"),
        (["--api-server", "http://127.0.0.1:{port}", "--namespace", "../x"], 2, "is not a name"),
    ],
)
def test_pipelines_without_a_cluster(options, code, said):
    environment = {"PATH": "/usr/bin"}
    options = [option.format(port=free_ports()) for option in options]
    done = subprocess.run([BINARY, "pipelines", "list", "--pipelines", "azint", *options], capture_output=True, text=True, timeout=60, env=environment)
    assert done.returncode == code and said in done.stderr, (done.returncode, done.stderr)


def test_pipelines_over_http_need_tokens_for_other_hosts_and_know_their_names(tmp_path):
    base = [BINARY, "pipelines", "serve", "--api-server", f"http://127.0.0.1:{free_ports()}", "--namespace", "eiger", "--pipelines", "azint"]
    done = subprocess.run([*base, "--listen", "0.0.0.0:0"], capture_output=True, text=True, timeout=30)
    assert done.returncode == 2 and "--tokens" in done.stderr, done.stderr
    process = subprocess.Popen([*base, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        url = process.stdout.readline().split()[-1]

        def ask(path, body):
            command = ["curl", "-s", "-w", "%{http_code}", "-H", "Content-Type: application/json", "-d", body, url + path]
            text = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout
            return int(text[-3:]), json.loads(text[:-3])

        assert ask("/pipelines/spots/up", '{"replicas": 1}')[1]["code"] == "unknown_pipeline"
        assert ask("/pipelines/azint/up", '{"replicas": 101}')[0] == 422
        assert ask("/pipelines/azint/up", '{"replica": 1}')[1]["code"] == "bad_body"
        status, problem = ask("/pipelines/azint/up", '{"replicas": 1}')
        assert status == 503 and problem["code"] == "cluster_away" and "goes on without it" in problem["hint"], problem
    finally:
        process.terminate()
        assert process.wait(10) == 0
