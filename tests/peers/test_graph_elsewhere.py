"""`konkordia graph` by MPI whose ranks are killed, and with processes that find each other in etcd and in the API server of
Kubernetes, both of which may be away for a while. Each image is in the file once."""

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import time

import h5py
import hdf5plugin  # noqa: F401  registers the filters
import numpy as np
import pytest
from cluster import PROGRAMS, SECURE, TOKEN, Cluster
from driving import BINARY, free_ports
from network import needs_namespaces
from programs import BUILD
from service import until
from test_graph import sink, source_account
from test_graph_hosts import SHAPE, pattern

MPIRUN = BUILD / "python" / "bin" / "mpirun"


def graph_file(folder, images, transport, workers=4, work_ms=10, discovery=""):
    path = folder / "graph.toml"
    path.write_text(f"""{discovery}
[[stage]]
name = "read"
kind = "pattern"
images = {images}
shape = {list(SHAPE)}
[[stage]]
name = "work"
kind = "wait"
work_ms = {work_ms}
workers = {workers}
[[stage]]
name = "write"
kind = "write"
file = "{folder}/out"
[[edge]]
from = "read"
to = "work"
transport = "{transport}"
window = 4
[[edge]]
from = "work"
to = "write"
transport = "{transport}"
window = 4
""")
    return path


def state(folder, member):
    with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):
        return json.loads((folder / f"{member}.json").read_text())
    return None


def written(folder):
    found = state(folder, "write-0")
    return found["input"]["done"] if found else 0


def check_file(folder, images):
    with h5py.File(f"{folder}/out_master.h5") as file:
        np.testing.assert_array_equal(file["entry/data/images"][()], [pattern(number) for number in range(images)])


@pytest.mark.peer("Open MPI")
@pytest.mark.skipif(not MPIRUN.exists(), reason=f"the wheel of Open MPI is not there: {MPIRUN}; scripts/peers says why")
@pytest.mark.parametrize("run", range(int(os.environ.get("KONKORDIA_MPI_RUNS", "1"))))
def test_ranks_of_mpi_that_are_killed(tmp_path, run):
    """`mpirun --with-ft ulfm`: of ten ranks that work, nine are killed one after the other; nothing is lost or written twice."""
    workers, images = 10, 1500
    path = graph_file(tmp_path, images, "mpi", workers=workers, work_ms=20)
    command = [MPIRUN, "--with-ft", "ulfm", "--oversubscribe", "-n", str(workers + 2), BINARY, "graph", "run", path, "--json"]
    if os.geteuid() == 0:
        command.insert(1, "--allow-run-as-root")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    folder = tmp_path / "graph.run"
    with subprocess.Popen([str(part) for part in command], text=True, start_new_session=True, **pipes) as job:
        try:
            until(lambda: written(folder) > 20, "the first images", timeout=60)
            for victim in random.Random(5 + run).sample(range(workers), workers - 1):
                os.kill(state(folder, f"work-{victim}")["pid"], signal.SIGKILL)
                before = written(folder)
                until(lambda before=before: written(folder) > before + 8, "images after a rank was killed", timeout=60)
            output, said = job.communicate(timeout=120)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(job.pid, signal.SIGKILL)
    lines = [line for line in output.splitlines() if line.startswith("{")]
    assert lines, output + said
    report = json.loads(lines[0])
    account = source_account(report)
    assert (account["done"], sink(report)["done"], account["deaths"]) == (images, images, workers - 1), (account, said)
    print("ranks killed:", workers - 1, "recovery ms at most:", account["recovery_ms_max"])
    check_file(tmp_path, images)


@pytest.mark.peer("Open MPI")
@pytest.mark.skipif(not MPIRUN.exists(), reason=f"the wheel of Open MPI is not there: {MPIRUN}; scripts/peers says why")
def test_another_number_of_ranks_is_refused(tmp_path):
    """mpirun with too few ranks for the graph: the program says how many it needs."""
    path = graph_file(tmp_path, 1, "mpi", workers=2)
    command = [MPIRUN, *(["--allow-run-as-root"] if os.geteuid() == 0 else []), "--oversubscribe", "-n", "2", BINARY, "graph", "run", path]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and "mpirun has started 2 processes, and the graph has 4" in done.stderr


class Started:
    """Processes of a graph, each stage started alone, which find each other in a directory."""

    def __init__(self, folder, path, entered=contextlib.nullcontext):
        self.folder, self.path, self.entered, self.programs = folder, path, entered, []

    def start(self, stage):
        command = [BINARY, "graph", "run", str(self.path), "--stage", stage, "--json", "--folder", str(self.folder / f"of-{stage}")]
        log = open(self.folder / f"{stage}.txt", "w")
        with self.entered(), log:
            self.programs.append(subprocess.Popen(command, text=True, start_new_session=True, stdout=subprocess.PIPE, stderr=log))
        return self.programs[-1]

    def written(self):
        return written(self.folder / "of-write")

    def finish(self, first, last, images):
        for program in (last, first):
            output, _ = program.communicate(timeout=120)
            assert program.returncode == 0, [path.read_text() for path in self.folder.glob("*.txt")]
        until(lambda: all(program.poll() is not None for program in self.programs), "the end of all", timeout=60)
        done = [process for process in json.loads(output.splitlines()[0])["processes"] if process]
        assert source_account({"processes": done})["done"] == images
        check_file(self.folder, images)

    def end(self):
        for program in self.programs:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)
            program.communicate()


@pytest.fixture
def started():
    made = []
    yield lambda *arguments: made.append(Started(*arguments)) or made[-1]
    for one in made:
        one.end()


class Etcd:
    """An etcd of our own."""

    def __init__(self, folder):
        self.folder, self.port = folder, free_ports(2)
        self.url = f"http://127.0.0.1:{self.port}"

    def start(self):
        peer = f"http://127.0.0.1:{self.port + 1}"
        urls = [f"--listen-client-urls={self.url}", f"--advertise-client-urls={self.url}", f"--listen-peer-urls={peer}"]
        urls += [f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=default={peer}"]
        with open(self.folder / "etcd.log", "ab") as log:
            self.process = subprocess.Popen(["etcd", f"--data-dir={self.folder}/etcd", *urls], stdout=log, stderr=log)

    def stop(self):
        self.process.kill()
        self.process.wait()


@pytest.mark.peer("etcd")
@pytest.mark.skipif(shutil.which("etcd") is None, reason="etcd is not installed; apt-get install etcd-server")
def test_processes_find_each_other_in_etcd(tmp_path, started):
    """Stages start in any order, before etcd does; etcd is away for a while, and killed processes are found again."""
    etcd, images = Etcd(tmp_path), 3000
    discovery = f'[discovery]\nkind = "etcd"\nurl = "{etcd.url}"\nname = "test"\n'
    path = graph_file(tmp_path, images, "tcp", discovery=discovery)
    run = started(tmp_path, path)
    last, _ = run.start("write"), run.start("work")
    until(lambda: "does not answer" in ((state(tmp_path / "of-write", "write-0") or {}).get("discovery") or ""), "the trouble", timeout=20)
    etcd.start()
    try:
        first = run.start("read")
        until(lambda: run.written() > 50, "images", timeout=60)
        etcd.stop()
        before = run.written()
        until(lambda: "does not answer" in (state(tmp_path / "of-work", "work-0")["discovery"] or ""), "the trouble", timeout=20)
        until(lambda: run.written() > before + 400, "images without etcd", timeout=60)
        # A process that is killed meanwhile comes back when etcd does.
        os.kill(state(tmp_path / "of-work", "work-2")["pid"], signal.SIGKILL)
        time.sleep(1)
        etcd.start()
        until(lambda: (state(tmp_path / "of-work", "work-2")["input"]["taken"] or 0) > 5, "work for the one that was killed", timeout=40)
        run.finish(first, last, images)
    finally:
        etcd.stop()


@pytest.mark.peer("Kubernetes")
@pytest.mark.skipif(not (PROGRAMS / "kube-apiserver").exists(), reason=f"kube-apiserver is not built: {PROGRAMS}; scripts/peers says why")
def test_processes_find_each_other_in_a_cluster(tmp_path, started):
    """By Leases in the API server, with the rights that docs/graph.md names; it is away for a while."""
    needs_namespaces()
    cluster = Cluster(tmp_path)
    try:
        account = tmp_path / "account"
        account.mkdir()
        shutil.copy(cluster.certificate, account / "ca.crt")
        (account / "namespace").write_text("default")
        (account / "token").write_text(TOKEN)
        discovery = f'[discovery]\nkind = "kubernetes"\nurl = "{SECURE}"\nname = "test"\nservice_account = "{account}"\n'
        images = 3000
        path = graph_file(tmp_path, images, "tcp", discovery=discovery)
        run = started(tmp_path, path, cluster.network.entered)
        last, _, first = run.start("write"), run.start("work"), run.start("read")
        until(lambda: run.written() > 50, "images", timeout=60)
        leases = cluster.api.get("/apis/coordination.k8s.io/v1/namespaces/default/leases?labelSelector=konkordia%2Fgraph%3Dtest")["items"]
        assert len(leases) == 5 and all(lease["spec"]["leaseDurationSeconds"] == 10 for lease in leases)
        cluster.stop_program("apiserver")
        before = run.written()
        until(lambda: run.written() > before + 400, "images without the API server", timeout=60)
        cluster.start_api_server()
        run.finish(first, last, images)
        left = cluster.api.get("/apis/coordination.k8s.io/v1/namespaces/default/leases?labelSelector=konkordia%2Fgraph%3Dtest")["items"]
        assert left == []
    finally:
        cluster.end()
