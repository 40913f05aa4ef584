"""Lists of tasks without a cluster: what they do, what they refuse, and what a killed process leaves."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import raw_files
from contents import content, differences, folder
from driving import BINARY, ROOT, program

from konkordia.cluster import ClusterError, TaskList, account, plan, run_left, run_task

IMAGES, PER_FILE = 24, 4
SLOW = ["--dtype", "raw", "--images-per-file", str(PER_FILE), "--compression", "gzip", "--compression-level", "9", "--workers", "1"]


@pytest.fixture(autouse=True)
def the_program(monkeypatch):
    monkeypatch.setenv("KONKORDIA_BIN", BINARY)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Three acquisitions of raw frames, and the folder that one process after the other makes of them."""
    raw, single = tmp_path_factory.mktemp("raw"), tmp_path_factory.mktemp("single")
    inputs = [raw_files.write_sls(raw, raw_files.frames(IMAGES, seed=n), name=f"run{n}") for n in range(3)]
    for n, source in enumerate(inputs):
        program("convert", source, "-o", single / f"run{n}_0", *SLOW, "--quiet", check=0)
    return inputs, single


def command(*arguments, check=None):
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "KONKORDIA_BIN": BINARY}
    call = [sys.executable, "-m", "konkordia.cluster", *map(str, arguments)]
    done = subprocess.run(call, capture_output=True, text=True, env=environment, timeout=120)
    assert check is None or done.returncode == check, done.stdout + done.stderr
    return done


def test_many_files_and_a_bad_one(tmp_path, runs):
    """The good ones are as from one process, the bad one has its cause, and running again does only what is left."""
    inputs, single = runs
    bad = tmp_path / "bad.json"
    bad.write_text("{}")
    out = tmp_path / "out"
    out.mkdir()
    command("plan", tmp_path / "tasks.json", "convert", *inputs, bad, "-o", out, "--", *SLOW, check=0)
    done = command("run", tmp_path / "tasks.json", check=1)
    assert "4 tasks: 3 done, 0 incomplete, 1 failed" in done.stdout and "task 3 bad" in done.stdout
    found = json.loads(command("account", tmp_path / "tasks.json", "--json", check=1).stdout)
    (failed,) = [task for task in found["tasks"] if task["state"] == "failed"]
    assert failed["name"] == "bad" and str(bad) in failed["cause"] and len(failed["cause"].splitlines()) > 1
    assert differences(folder(out), folder(single)) == []
    before = {file.name: file.stat().st_mtime_ns for file in out.iterdir()}
    assert "task" not in command("run", tmp_path / "tasks.json", check=1).stdout.split("4 tasks:")[0]
    assert before == {file.name: file.stat().st_mtime_ns for file in out.iterdir()}
    again = command("run", tmp_path / "tasks.json", "--failed", check=1).stdout
    assert again.count("task 3: failed") == 1 and "task 0" not in again


def test_one_run_in_parts(tmp_path, runs):
    """Parts in any order make the files of one process; the master waits for them."""
    inputs, single = runs
    tasks = plan(tmp_path / "tasks.json", "convert", inputs[:1], tmp_path, SLOW, files_per_task=4)
    assert [task.after for task in tasks.tasks] == [[], [], [0, 1]]
    assert run_task(tasks, 2).cause == "tasks before it are not done"
    assert [run_task(tasks, n).state for n in (1, 0)] == ["done", "done"]
    assert not list(tmp_path.glob("*_master.h5")) and account(tasks).counts["left"] == 1
    assert {state.state for state in run_left(tasks)} == {"done"} and account(tasks).is_done
    expected = {name: value for name, value in folder(single).items() if name.startswith("run0")}
    assert differences({file.name: content(file) for file in tmp_path.glob("*.h5")}, expected) == []


@pytest.mark.parametrize("who", ["runner", "program"])
@pytest.mark.parametrize("files_per_task", [None, 3])
def test_what_is_killed_goes_on(tmp_path, runs, who, files_per_task):
    """SIGKILL to the process that runs a task, or to the program: nothing half stays, and the result is the same."""
    inputs, single = runs
    out = tmp_path / "out"
    out.mkdir()
    tasks = plan(tmp_path / "tasks.json", "convert", inputs[:1], out, SLOW, files_per_task=files_per_task)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    runner = subprocess.Popen([sys.executable, "-m", "konkordia.cluster", "run", tasks.path, "--task", "0"], env=environment)
    end = time.monotonic() + 30
    while not list(out.glob("*_data_000002.h5*")):
        assert time.monotonic() < end and runner.poll() is None
        time.sleep(0.01)
    assert account(tasks).counts["running"] == 1
    if who == "runner":
        runner.kill()
        runner.wait()
    else:
        (child,) = open(f"/proc/{runner.pid}/task/{runner.pid}/children", encoding="ascii").read().split()
        os.kill(int(child), signal.SIGKILL)
        assert runner.wait(30) == 3
        assert tasks.state(0).state == "left" and "SIGKILL" in tasks.state(0).cause
    # The program ends when its runner is gone; until then the task stays taken, and the next attempt waits.
    assert command("run", tasks.path, "--task", 0, check=0).stdout == "task 0: done\n"
    run_left(tasks)
    assert account(tasks).is_done
    assert differences(folder(out), {name: value for name, value in folder(single).items() if name.startswith("run0")}) == []


def test_a_task_given_out_again_waits_for_the_program_of_its_lost_worker(tmp_path, runs):
    """That program needs some seconds to close its files and has the task so long; then the task is done, and not left."""
    inputs, single = runs
    out = tmp_path / "out"
    out.mkdir()
    tasks = plan(tmp_path / "tasks.json", "convert", inputs[:1], out, SLOW)

    class LostWorker(ThreadPoolExecutor):
        def submit(self, function, /, *arguments, **options):
            threading.Timer(3, os.close, [tasks.lock(0)]).start()
            return super().submit(function, *arguments, **options)

    with LostWorker(1) as executor:
        assert [state.state for state in run_left(tasks, executor)] == ["done"]
    assert differences(folder(out), {name: value for name, value in folder(single).items() if name.startswith("run0")}) == []


def test_repack_and_analyse(tmp_path, runs):
    """Their files are those of the program called by hand."""
    _, single = runs
    packed, by_hand, counts = tmp_path / "packed", tmp_path / "by_hand", tmp_path / "counts"
    for made in (packed, by_hand, counts):
        made.mkdir()
    masters = sorted(single.glob("*_master.h5"))
    tasks = plan(tmp_path / "repack.json", "repack", masters, packed, ["--compression", "bszstd", "--verify"])
    assert {state.state for state in run_left(tasks)} == {"done"}
    for master in masters:
        program("repack", master, "-o", by_hand / master.name.removesuffix("_master.h5"), "--compression", "bszstd", "--verify", check=0)
    assert differences(folder(packed), folder(by_hand)) == []
    # Raw words cannot be analysed: the images of an EIGER are counts.
    eiger = np.random.default_rng(1).poisson(2, (5, 4, 256, 512)).astype(np.uint16)
    source = raw_files.write_eiger(tmp_path, eiger, 16, raw_files.eiger_ports(1, 1))
    program("convert", source, "-o", counts / "e", "--quiet", check=0)
    recipe = tmp_path / "box.toml"
    recipe.write_text('[[region]]\nname = "box"\nshape = "box"\ncorners_px = [10, 20, 29, 49]\n')
    tasks = plan(tmp_path / "analyse.json", "analyse", [counts / "e_master.h5", masters[0]], packed, ["--recipe", str(recipe)])
    assert [state.state for state in run_left(tasks)] == ["done", "failed"], str(account(tasks))
    assert "raw words cannot be analysed" in tasks.state(1).cause
    program("analyse", counts / "e_master.h5", "-o", by_hand / "e_results.h5", "--recipe", recipe, "--quiet", check=0)
    assert differences({"e": content(packed / "e_results.h5")}, {"e": content(by_hand / "e_results.h5")}) == []
    # Its results are there, and only the state was lost with its process.
    tasks.file(0, "json").unlink()
    assert run_task(tasks, 0).state == "done"


def test_what_is_refused(tmp_path, runs):
    """Each refusal names what is wrong; no list is left behind."""
    inputs, _ = runs
    path = tmp_path / "tasks.json"
    for arguments, words in [
        (("convert", [tmp_path / "none.json"], tmp_path), "there is no file"),
        (("convert", inputs, tmp_path / "none"), "is no folder"),
        (("convert", [], tmp_path), "no input"),
        (("convert", [inputs[0], inputs[0]], tmp_path), "would both make"),
        (("check", inputs, tmp_path), "none of convert, repack, analyse"),
        (("convert", inputs, tmp_path, ["--resume"]), "--resume cannot be given"),
        (("convert", inputs, tmp_path, ["--output=x"]), "cannot be given"),
    ]:
        with pytest.raises(ClusterError, match=words):
            plan(path, *arguments)
    with pytest.raises(ClusterError, match="for 'convert' only"):
        plan(path, "repack", inputs, tmp_path, files_per_task=2)
    with pytest.raises(ClusterError, match="energy"):
        plan(path, "convert", inputs, tmp_path, files_per_task=2)
    assert not path.exists()
    tasks = plan(path, "convert", inputs, tmp_path)
    with pytest.raises(ClusterError, match="run what is left of it"):
        plan(path, "convert", inputs, tmp_path)
    with pytest.raises(ClusterError, match="its tasks are 0 to 2"):
        run_task(tasks, 3)
    tasks.file(1, "json").write_text("{")
    with pytest.raises(ClusterError, match="remove it to run the task again"):
        account(tasks)
    path.write_text('{"konkordia_tasks": 2}')
    with pytest.raises(ClusterError, match="'konkordia_tasks' is 2 and not 1"):
        TaskList(path)
    assert "there is no list of tasks" in command("account", tmp_path / "no.json", check=2).stderr
