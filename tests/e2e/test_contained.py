"""Files of other programs are read in a child process: what the command reports when libhdf5 aborts on a file, how
signals reach the child, and what the child may not do."""

import ctypes
import json
import os
import pathlib
import signal
import subprocess

import h5py
import numpy as np
import pytest
from driving import BINARY, program
from others_files import dectris_legacy, with_an_endless_heap, with_an_endless_index
from service import until

COMPRESSION = ["--compression", "zstd", "--compression-level", "19", "--workers", "1"]


def landlock_abi():
    """Version of Landlock, with which the kernel restricts a process; 0 = none."""
    return max(0, ctypes.CDLL(None).syscall(444, None, 0, 1))


def state_and_parent(pid):
    """State and parent of a process as in /proc; None if the process is gone."""
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, parent = text.rpartition(")")[2].split()[:2]
    return state, int(parent)


def is_gone(pid):
    # An orphan may stay a zombie if no process takes its exit code.
    found = state_and_parent(pid)
    return found is None or found[0] == "Z"


def children(pid):
    numbers = [int(path.name) for path in pathlib.Path("/proc").iterdir() if path.name.isdigit()]
    return [number for number in numbers if (found := state_and_parent(number)) and found[1] == pid]


class Repacking:
    """`konkordia repack` of 600 images, slow enough to be interrupted in the middle."""

    def __init__(self, folder, **options):
        (folder / "in").mkdir()
        self.out = folder / "out"
        self.out.mkdir()
        self.master, self.frames = dectris_legacy(folder / "in", images=600, per_file=100)
        self.command = ["repack", str(self.master), "-o", str(self.out), *COMPRESSION]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen([BINARY, *self.command], **pipes, **options)
        try:
            until(lambda: list(self.out.iterdir()), "a file is begun")
            (self.child,) = children(self.process.pid)
        except Exception:
            self.process.kill()
            raise

    def end(self):
        out, errors = self.process.communicate(timeout=60)
        until(lambda: is_gone(self.child), "the child is gone")
        return self.process.returncode, out + errors

    def goes_on(self):
        """Checks that the same command finishes the copy."""
        program(*self.command, check=0)
        with h5py.File(self.out / self.master.name) as file:
            data = file["/entry/data"]
            assert np.array_equal(np.concatenate([data[name][()] for name in sorted(data)]), self.frames)


@pytest.fixture
def repacking(tmp_path):
    started = []

    def start(**options):
        started.append(Repacking(tmp_path, **options))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
            one.process.communicate()


@pytest.mark.parametrize("verb", ["check", "inspect", "repair", "repack", "convert", "pedestal"])
def test_a_file_that_ends_libhdf5_is_named(tmp_path, verb):
    (tmp_path / "out").mkdir()
    master, _ = dectris_legacy(tmp_path)
    bad = with_an_endless_index(master, tmp_path / "bad_master.h5")
    results = {
        "repack": ["-o", tmp_path / "out", "--compression", "zstd"], "convert": ["-o", tmp_path / "out" / "run", "--dtype", "raw"],
        "pedestal": ["-o", tmp_path / "out" / "cal.h5"],
    }.get(verb, [])
    done = program(verb, bad, *results, check=1)
    assert f"error: {bad} cannot be read" in done.stderr and "SIGABRT" in done.stderr and "fix: " in done.stderr, done.stderr
    assert done.stdout == "" and list((tmp_path / "out").iterdir()) == [], "nothing half written"
    failure = json.loads(program(verb, bad, *results, "--json", check=1).stdout.splitlines()[-1])
    assert failure["event"] == "error" and failure["error"]["exit_code"] == 1 and str(bad) in failure["error"]["what"]
    assert "crashed" in failure["error"]["why"] and failure["error"]["fix"]


@pytest.mark.parametrize("verb", ["check", "inspect", "repack"])
def test_a_file_that_keeps_libhdf5_busy_for_ever_is_named(tmp_path, verb):
    (tmp_path / "out").mkdir()
    master, _ = dectris_legacy(tmp_path)
    bad = with_an_endless_heap(master, tmp_path / "bad_master.h5")
    results = ["-o", tmp_path / "out", "--compression", "zstd"] if verb == "repack" else []
    # Of processor time: on a busy machine it takes longer.
    done = program(verb, bad, *results, check=1, env={**os.environ, "KONKORDIA_STUCK_S": "2"})
    assert f"error: {bad} cannot be read" in done.stderr and "computed for 2 s" in done.stderr, done.stderr
    assert "fix: " in done.stderr and "KONKORDIA_STUCK_S" in done.stderr, done.stderr
    assert done.stdout == "" and not (tmp_path / "out" / bad.name).exists(), "no master of a copy that is not whole"
    assert "KONKORDIA_STUCK_S" in program(verb, master, *results, check=2, env={**os.environ, "KONKORDIA_STUCK_S": "0"}).stderr


def test_a_data_file_that_ends_libhdf5_is_found_by_looking_at_each(tmp_path):
    master, _ = dectris_legacy(tmp_path)
    bad = tmp_path / "series_5_data_000002.h5"
    with_an_endless_index(bad, bad)
    done = program("check", master, check=1)
    assert "or one that it refers to" in done.stderr and "each of the files" in done.stderr, done.stderr
    program("check", tmp_path / "series_5_data_000001.h5", check=0)
    assert str(bad) in program("check", bad, check=1).stderr


def test_one_of_several_files(tmp_path):
    master, _ = dectris_legacy(tmp_path)
    bad = with_an_endless_index(master, tmp_path / "bad.h5")
    done = program("convert", bad, master, "-o", tmp_path / "run", "--dtype", "raw", check=1)
    assert f"error: one of {bad}, {master} cannot be read" in done.stderr, done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("whom", ["the first process", "its group"])
def test_a_signal_ends_both_and_counts_once(repacking, number, whom):
    running = repacking(start_new_session=True)
    if whom == "its group":
        # Like Ctrl-C in a terminal.
        os.killpg(running.process.pid, number)
    else:
        running.process.send_signal(number)
    code, said = running.end()
    assert code == 130 and said.count("the same command goes on from there") == 1, said
    assert all(path.name.startswith("series_5_data_") for path in running.out.iterdir()), "nothing half written"
    running.goes_on()


def test_a_verb_that_waits_for_no_signal_ends_by_it(repacking):
    # Under nohup the signal would be ignored.
    running = repacking(preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL))
    running.process.send_signal(signal.SIGHUP)
    code, _ = running.end()
    assert code == -signal.SIGHUP


def test_the_child_does_not_outlive_a_kill(repacking):
    running = repacking()
    running.process.kill()
    code, _ = running.end()
    assert code == -signal.SIGKILL
    running.goes_on()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGABRT])
def test_a_child_that_is_ended_is_reported_and_the_same_command_goes_on(repacking, number):
    running = repacking()
    os.kill(running.child, number)
    code, said = running.end()
    words = "was not read to the end" if number == signal.SIGKILL else "cannot be read"
    assert code == 1 and f"{running.master} {words}" in said and number.name in said and "run the same command again" in said, said
    running.goes_on()


def test_the_child_may_gain_no_rights(repacking):
    running = repacking()
    gains_none = [line for line in pathlib.Path(f"/proc/{running.child}/status").read_text(encoding="utf-8").splitlines() if "NoNewPrivs" in line]
    assert gains_none == ["NoNewPrivs:\t1"]


def test_the_child_writes_where_its_results_go_and_nowhere_else(tmp_path):
    if landlock_abi() < 1:
        pytest.skip("this kernel has no Landlock")
    master, _ = dectris_legacy(tmp_path)
    pictures, elsewhere = tmp_path / "pictures", tmp_path / "elsewhere"
    pictures.mkdir()
    elsewhere.mkdir()
    program("inspect", master, "--png", pictures / "image.png", check=0)
    assert (pictures / "image.png").stat().st_size > 0
    # The command line permits writing in `pictures`, but not where a link in it leads.
    (pictures / "out.png").symlink_to(elsewhere / "image.png")
    refused = program("inspect", master, "--png", pictures / "out.png", check=6)
    assert "Permission denied" in refused.stderr and list(elsewhere.iterdir()) == [], refused.stderr


def test_files_that_a_master_names_elsewhere_are_read(tmp_path):
    there = tmp_path / "there"
    there.mkdir()
    _, frames = dectris_legacy(there)
    with h5py.File(tmp_path / "virtual.h5", "w") as file:
        layout = h5py.VirtualLayout(frames.shape, frames.dtype)
        for start, path in zip(range(0, 7, 3), sorted(there.glob("*_data_*.h5")), strict=True):
            end = min(start + 3, 7)
            layout[start:end] = h5py.VirtualSource(path, "/entry/data/data", shape=(end - start, *frames.shape[1:]))
        group = file.create_group("entry/data")
        file["entry"].attrs["NX_class"], group.attrs["NX_class"] = "NXentry", "NXdata"
        group.create_virtual_dataset("data", layout)
    with h5py.File(tmp_path / "links_master.h5", "w") as file:
        group = file.create_group("entry/data")
        file["entry"].attrs["NX_class"], group.attrs["NX_class"] = "NXentry", "NXdata"
        for n, path in enumerate(sorted(there.glob("*_data_*.h5")), 1):
            group[f"data_{n:06}"] = h5py.ExternalLink(path, "/entry/data/data")
    for name in ("virtual.h5", "links_master.h5"):
        done = program("check", tmp_path / name, check=0)
        assert "7 images" in done.stdout and "whole and valid" in done.stdout, done.stdout


def test_originals_elsewhere_are_deleted_where_that_is_asked_for(tmp_path):
    for name in ("in", "out"):
        (tmp_path / name).mkdir()
    master, _ = dectris_legacy(tmp_path / "in")
    program("repack", master, "-o", tmp_path / "out", "--compression", "zstd", "--delete-source", check=0)
    assert list((tmp_path / "in").iterdir()) == [] and len(list((tmp_path / "out").iterdir())) == 4


def test_a_hangup_that_is_ignored_stays_ignored(repacking):
    """The signal is ignored as under nohup."""
    running = repacking(preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    running.process.send_signal(signal.SIGHUP)
    os.kill(running.child, signal.SIGHUP)
    code, said = running.end()
    assert code == 0, said
