"""`konkordia graph`: stages in processes of their own that are killed, stopped, slow, cut off or wrong. Each image is in the
file once, and is the one of the reference. Rules: crates/graph."""

import contextlib
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import h5py
import hdf5plugin  # noqa: F401  registers the filters
import numpy as np
import pytest
from driving import BINARY, free_ports, program

SHAPE = (40, 60)
# Faults of each kind; 0 = a few. KONKORDIA_FAULTS=100 takes some minutes.
FAULTS = int(os.environ.get("KONKORDIA_FAULTS", "0"))

FUNCTIONS = '''
import os, time
import numpy as np

def correct(image, number):
    time.sleep(float(os.environ.get("SLEEP_S", "0.002")))
    return image.astype(np.int32) * 2 + number

def sometimes(image, number):
    if number % 10 == 3:
        raise ValueError(f"image {number} is bad")
    return correct(image, number)

def slow_once(image, number):
    marker = f"hung-{number}"
    if number % 20 == 7 and not os.path.exists(marker):
        open(marker, "w").close()
        print("this goes to the standard error")
        time.sleep(3600)
    return correct(image, number)

kept = []
def leaks(image, number):
    kept.append(np.ones(40 << 20, np.uint8))
    return correct(image, number)

def every_second(image, number):
    return correct(image, number) if number % 2 == 0 else None
'''


def frames(count):
    return np.random.default_rng(3).poisson(20, (count, *SHAPE)).astype(np.uint16)


class Graph:
    """A file of images, a function for them, and a file that is written."""

    def __init__(self, folder, images=200, function="correct", workers=3, transport="ipc", target="out", more="", window=4):
        self.folder, self.images, self.target = folder, frames(images), pathlib.Path(folder, target)
        (folder / "functions.py").write_text(FUNCTIONS)
        with h5py.File(folder / "in.h5", "w") as file:
            data = file.create_dataset("entry/data/data", data=self.images, chunks=(1, *SHAPE))
            file["entry"].attrs["NX_class"], data.parent.attrs["NX_class"] = "NXentry", "NXdata"
        first = free_ports(1 + workers) if transport == "tcp" else 0
        ports = [first, first + 1] if first else [0, 0]
        edge = [f'transport = "{transport}"' + (f"\nport = {port}" if port else "") for port in ports]
        self.path = folder / "graph.toml"
        self.path.write_text(f"""
[[stage]]
name = "read"
kind = "files"
files = ["{folder}/in.h5"]

[[stage]]
name = "correct"
kind = "python"
function = "functions:{function}"
workers = {workers}
{more}

[[stage]]
name = "write"
kind = "write"
file = "{self.target}"

[[edge]]
from = "read"
to = "correct"
window = {window}
{edge[0]}

[[edge]]
from = "correct"
to = "write"
{edge[1]}
""")
        self.process = None

    @contextlib.contextmanager
    def running(self, *arguments, **environment):
        command = [BINARY, "graph", "run", str(self.path), "--json", *arguments]
        with open(self.folder / "stderr.txt", "w") as errors:
            variables = {**os.environ, "KONKORDIA_PYTHON": sys.executable, **environment}
            options = {"cwd": self.folder, "stdout": subprocess.PIPE, "stderr": errors, "text": True, "env": variables}
            self.process = subprocess.Popen(command, **options)
            try:
                yield self
            finally:
                if self.process.poll() is None:
                    self.process.terminate()
                self.process.wait(timeout=30)

    def finish(self, code=0, timeout=90):
        output, _ = self.process.communicate(timeout=timeout)
        said = (self.folder / "stderr.txt").read_text()
        assert self.process.returncode == code, f"exit code {self.process.returncode}\n{output}\n{said}"
        assert "panicked" not in said
        report = json.loads(output.splitlines()[0])
        for process in report["processes"]:
            if process is not None and process["state"] == "finished":
                assert all(edge["imbalance"] is None for edge in process["edges"]), process
                assert process["input"] is None or process["input"]["imbalance"] is None, process
        return report

    def status(self, member):
        try:
            return json.loads((self.folder / "graph.run" / f"{member}.json").read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return None

    def until(self, condition, what, timeout=40):
        end = time.monotonic() + timeout
        while not condition():
            assert time.monotonic() < end and self.process.poll() is None, f"no {what}: {(self.folder / 'stderr.txt').read_text()}"
            time.sleep(0.02)

    def written(self):
        status = self.status("write-0")
        return status["input"]["done"] if status else 0

    def signal(self, member, which):
        """Signals a process of a stage and the Python below it, as a host that dies or stops."""
        status = self.status(member)
        pids = [status["pid"]] if status else []
        for pid in list(pids):
            with contextlib.suppress(OSError):
                pids += [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, which)
        return pids

    def check_images(self, missing=()):
        """Each image once, and the right one; `missing` are not written."""
        with h5py.File(f"{self.target}_master.h5") as file:
            stack = file["entry/data/images"]
            expected = [number for number in range(len(self.images)) if number not in missing]
            assert len(stack) == expected[-1] + 1
            for number in expected:
                np.testing.assert_array_equal(stack[number], self.images[number].astype(np.int32) * 2 + number)


def source_account(report):
    return next(process["edges"][0]["account"] for process in report["processes"] if process["stage"] == "read")


def sink(report):
    return next(process["input"] for process in report["processes"] if process["stage"] == "write")


@pytest.mark.parametrize("transport", ["ipc", "tcp", "inproc"])
def test_all_images_in_order(tmp_path, transport):
    graph = Graph(tmp_path, transport=transport)
    with graph.running():
        report = graph.finish()
    account = source_account(report)
    assert (account["produced"], account["done"], account["given_up"], account["open"]) == (200, 200, 0, 0)
    assert (sink(report)["taken"], sink(report)["done"]) == (200, 200)
    graph.check_images()
    shown = json.loads(program("graph", "status", graph.path, "--json", check=0).stdout)
    assert [process["status"]["state"] for process in shown["processes"]] == ["finished"] * 5
    assert "200 produced = 200 done" in program("graph", "status", graph.path, check=0).stdout


def test_inner_processes_are_killed(tmp_path):
    wanted = FAULTS or 10
    graph = Graph(tmp_path, images=40 * wanted)
    kills = 0
    with graph.running(SLEEP_S="0.01"):
        graph.until(lambda: graph.written() > 10, "image")
        rng = random.Random(7)
        while kills < wanted and graph.process.poll() is None and graph.written() < 40 * wanted - 100:
            kills += bool(graph.signal(f"correct-{rng.randrange(3)}", signal.SIGKILL))
            time.sleep(0.1)
        report = graph.finish(timeout=90 + 2 * wanted)
    account = source_account(report)
    print(f"{kills} times killed: {account['done']} of {account['produced']} images, others had them within {account['recovery_ms_max']} ms")
    assert kills >= wanted // 2 and report["restarts"] >= wanted // 3
    assert account["done"] == 40 * wanted
    graph.check_images()


def test_inner_processes_are_stopped_and_come_back(tmp_path):
    rounds = FAULTS or 3
    graph = Graph(tmp_path, images=500 * rounds)
    with graph.running(SLEEP_S="0.01"):
        graph.until(lambda: graph.written() > 10, "image")
        for round_ in range(rounds):
            pids = graph.signal(f"correct-{round_ % 3}", signal.SIGSTOP)
            before = graph.written()
            graph.until(lambda before=before: graph.written() > before + 20, "progress without the stopped process")
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
            time.sleep(0.3)
        report = graph.finish(timeout=90 + 4 * rounds)
    account = source_account(report)
    print(f"{rounds} times stopped: {account['done']} of {account['produced']} images, others had them within {account['recovery_ms_max']} ms")
    assert account["deaths"] >= 1 and account["done"] == 500 * rounds
    graph.check_images()


def test_a_process_that_is_stopped_for_good_does_not_hold_up_the_end(tmp_path):
    """It is stopped in mid-run and never wakes: the others have its images, and the run ends without it."""
    graph = Graph(tmp_path, images=300)
    with graph.running(SLEEP_S="0.01"):
        graph.until(lambda: graph.written() > 10, "image")
        pids = graph.signal("correct-1", signal.SIGSTOP)
        report = graph.finish()
    for pid in pids[1:]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert source_account(report)["deaths"] == 1 and source_account(report)["done"] == 300, report
    graph.check_images()


def test_a_function_that_throws(tmp_path):
    graph = Graph(tmp_path, images=50, function="sometimes")
    with graph.running():
        report = graph.finish(code=1)
    account = source_account(report)
    assert (account["produced"], account["done"], account["given_up"], account["refused"]) == (50, 45, 5, 15)
    shown = program("graph", "status", graph.path, check=0).stdout
    assert "was given up: ValueError: image " in shown
    graph.check_images(missing=range(3, 50, 10))


def test_a_function_that_hangs(tmp_path):
    graph = Graph(tmp_path, images=60, function="slow_once", more="response_ms_max = 2000")
    with graph.running():
        report = graph.finish()
    hangs = sum(process["function"]["hangs"] for process in report["processes"] if process["function"])
    account = source_account(report)
    # A busy machine may take an image that is not hung for one that is; it is done again too.
    assert hangs >= 3 and (account["done"], account["given_up"]) == (60, 0), report
    graph.check_images()


def test_a_function_that_leaks(tmp_path):
    graph = Graph(tmp_path, images=40, function="leaks", workers=1, more="memory_mb_max = 700")
    with graph.running(OPENBLAS_NUM_THREADS="1"):
        report = graph.finish()
    process = next(process for process in report["processes"] if process["stage"] == "correct")
    assert process["function"]["restarts"] >= 1 and process["input"]["refused"] >= 1
    graph.check_images()


def test_images_that_nobody_wants(tmp_path):
    graph = Graph(tmp_path, images=60, function="every_second")
    with graph.running():
        report = graph.finish()
    assert source_account(report)["done"] == 60 and sink(report)["done"] == 30
    graph.check_images(missing=range(1, 60, 2))


def test_a_full_disk(tmp_path, small_disk):
    graph = Graph(tmp_path, images=3000, target=small_disk / "out")
    with open(small_disk / "filler", "wb") as file:
        file.write(b"x" * (22 << 20))
    with graph.running(SLEEP_S="0"):
        graph.finish(code=6)
    said = (tmp_path / "stderr.txt").read_text()
    assert "No space left" in said or "disk" in said, said


def test_stages_started_one_by_one(tmp_path):
    graph = Graph(tmp_path, transport="tcp")
    others, variables = [], {**os.environ, "KONKORDIA_PYTHON": sys.executable}
    try:
        for stage in ("write", "correct"):
            command = [BINARY, "graph", "run", str(graph.path), "--stage", stage]
            others.append(subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, env=variables))
            time.sleep(0.3)
        with graph.running("--stage", "read"):
            graph.finish()
        assert [other.wait(timeout=30) for other in others] == [0, 0]
    finally:
        for other in others:
            other.kill()
    graph.check_images()


def test_a_graph_with_mpi_says_how_it_is_started(tmp_path):
    graph = Graph(tmp_path, images=1, transport="mpi")
    said = program("graph", "run", graph.path, check=2).stderr
    assert "mpirun --with-ft ulfm -n 5 konkordia graph run" in said


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('kind = "python"', 'kind = "pyton"', "unknown variant `pyton`"),
        ("workers = 3", "workers = 0", "workers = 0 is not from 1 to 256"),
        ('to = "write"', 'to = "wrote"', "there is no stage 'wrote'"),
        ('transport = "ipc"', 'transport = "udp"', "an edge needs what TCP has"),
        ('transport = "ipc"', 'transport = "inproc"\nport = 7', "belongs to transport"),
    ],
)
def test_wrong_graph_files(tmp_path, old, new, why):
    graph = Graph(tmp_path, images=1)
    graph.path.write_text(graph.path.read_text().replace(old, new, 1))
    assert why in program("graph", "run", graph.path, check=3).stderr
