"""Processors, priority and memory of the threads of a run, as its configuration names them."""

import os
import pathlib

import pytest
from driving import INTERRUPT, balanced, program, raw_tables, simulate
from service import until

FREE_PAGES = pathlib.Path("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages")


def threads(process):
    """The threads of a process by name: processors on which each may run, nice value, scheduling policy."""
    found = {}
    for task in pathlib.Path(f"/proc/{process}/task").iterdir():
        try:
            status, stat = (task / "status").read_text(), (task / "stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        # Words after the name, which stands in parentheses: state is the third field of proc(5).
        words = stat.rpartition(") ")[2].split()
        found[fields["Name"]] = (fields["Cpus_allowed_list"], int(words[19 - 3]), int(words[41 - 3]))
    return found


def wait_for_threads(process, names, timeout=30):
    """Waits until the run has these threads; a thread has its name before it has its place."""
    until(lambda: set(names) <= threads(process).keys(), f"threads {names}", timeout)


def test_threads_are_bound_as_the_file_says_and_the_run_is_complete(bench):
    allowed = sorted(os.sched_getaffinity(0))
    first, last = allowed[0], allowed[-1]
    config = bench.config(**raw_tables(images=3, pin_streams=[last], pin_workers=f"{first}", nice=19))
    receiver = bench.receive(config)
    placement = receiver.events[-1]["plan"]["placement"]
    assert placement["threads"]["rx-0"] == str(last) and placement["threads"]["work-0"] == str(first)
    assert placement["priority"] == "nice 19"

    process = receiver.process.pid
    wanted = {"rx-0": (str(last), 19, 0), "work-0": (str(first), 19, 0)}
    wait_for_threads(process, [*wanted, "commit", "join"])
    until(lambda: {name: threads(process)[name] for name in wanted} == wanted, "places of the threads")
    # The others are left to the scheduler.
    assert threads(process)["commit"] == threads(process)["join"] != wanted["rx-0"]

    simulate("jungfrau", "--to", bench.to, "--images", 3, "--rate", 20)
    code, report = receiver.finish()
    balanced(code, report)
    assert code == 0 and report["images"]["complete"] == 3


@pytest.mark.parametrize("key", ["pin_streams", "pin_workers"])
def test_processors_that_are_not_there_are_refused_with_those_that_are(bench, key):
    for value, why in (([60000], "processor 60000 is not one of those"), ("0-3;5", "is no list of processors")):
        config = bench.config(**raw_tables(**{key: value}))
        for verb in (["config", "check"], ["receive"]):
            refused = program(*verb, config, check=3).stderr
            assert f"run.{key}: " in refused and why in refused, refused
    allowed = sorted(os.sched_getaffinity(0))
    config = bench.config(**raw_tables(**{key: [allowed[-1]]}))
    if len(allowed) > 1:
        # The processor exists, and this process may not use it.
        only = {allowed[0]}
        done = program("config", "check", config, check=3, preexec_fn=lambda: os.sched_setaffinity(0, only))
        assert f"it may use {allowed[0]}\n" in done.stderr
    assert f"on {allowed[-1]}" in program("config", "check", config, check=0).stdout


def test_without_a_real_card_auto_leaves_all_to_the_scheduler_and_says_so(bench):
    config = bench.config(**raw_tables(pin_streams="auto", pin_workers="auto"))
    plan = program("config", "check", config, check=0).stdout
    assert "rx where the scheduler puts them; work where the scheduler puts them" in plan
    assert "packets come through no network card" in plan
    receiver = bench.receive(config)
    placement = receiver.events[-1]["plan"]["placement"]
    assert set(placement["threads"].values()) == {None} and placement["memory_node"] is None
    receiver.signal(INTERRUPT)
    receiver.finish()


def test_a_realtime_priority_is_had_or_refused_with_the_command(bench):
    config = bench.config(**raw_tables(realtime_priority=1))
    receiver = bench.receive(config)
    notes = "\n".join(receiver.events[-1]["notes"])
    process = receiver.process.pid
    wait_for_threads(process, ["rx-0", "work-0"])
    fifo = 1
    if "the kernel refuses real-time priority 1" in notes:
        assert "setcap cap_sys_nice" in notes and "LimitRTPRIO=1" in notes
        assert {threads(process)[name][2] for name in ("rx-0", "work-0")} == {0}
    else:
        until(lambda: {threads(process)[name][2] for name in ("rx-0", "work-0")} == {fifo}, "places of the threads")
    receiver.signal(INTERRUPT)
    receiver.finish()


def test_a_run_goes_on_without_the_huge_pages_that_it_should_have(bench):
    config = bench.config(**raw_tables(images=2, huge_pages="reserved"))
    receiver = bench.receive(config)
    notes = "\n".join(receiver.events[-1]["notes"])
    if not FREE_PAGES.is_file() or int(FREE_PAGES.read_text()) == 0:
        assert "0 are free" in notes and "sudo sysctl -w vm.nr_hugepages=" in notes, notes
    simulate("jungfrau", "--to", bench.to, "--images", 2, "--rate", 20)
    code, report = receiver.finish()
    balanced(code, report)
    assert code == 0 and report["images"]["complete"] == 2
