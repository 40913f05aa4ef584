"""`konkordia-cluster`: lists of tasks from a shell. Exit codes: 0 all tasks are done; 1 some are not, or are incomplete;
2 wrong use."""

from __future__ import annotations

import argparse
import json
import sys

from . import _mpi
from ._account import account
from ._dask import run_by_dask
from ._plan import plan
from ._run import run_left, run_task
from ._slurm import submit
from ._tasks import DONE, INCOMPLETE, ClusterError, State, TaskList

WAIT_S = 60.0
"""How long one task waits for an earlier attempt that is just ending."""
EXAMPLES = """examples:
  konkordia-cluster plan tasks.json convert raw/*_master.h5 -o converted -- --calibration calibration.h5 --workers 2
  konkordia-cluster plan big.json convert big_master.h5 -o converted --files-per-task 4 -- --calibration calibration.h5
  konkordia-cluster slurm tasks.json -- --partition=short --mem=8G
  konkordia-cluster dask tasks.json --scheduler tcp://host:8786
  mpirun -n 8 konkordia-cluster mpi big.json
  konkordia-cluster account tasks.json"""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(
        "konkordia-cluster",
        description="Runs `konkordia convert`, `repack` and `analyse` over many files, or one big run in parts, by Dask, "
        "Slurm or MPI, and tells what is done, what failed and why, and what is left. Running a list again does what is left.",
        epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    verbs = top.add_subparsers(dest="command", required=True)
    one = verbs.add_parser("plan", help="makes the list of tasks", epilog="options of the program follow behind --")
    one.add_argument("tasks", help="the list; it must not exist yet")
    one.add_argument("verb", choices=["convert", "repack", "analyse"])
    one.add_argument("inputs", nargs="+", help="masters, one task each")
    one.add_argument("-o", "--output", required=True, help="existing folder for the files")
    one.add_argument("--files-per-task", type=int, help="convert: share each run; data files that one task writes")
    one = verbs.add_parser("run", help="runs tasks here")
    one.add_argument("tasks")
    one.add_argument("--task", type=int, help="only this one [default: all that are left, one after the other]")
    one.add_argument("--failed", action="store_true", help="also those that failed or are incomplete")
    one = verbs.add_parser("dask", help="runs what is left by the workers of a Dask cluster")
    one.add_argument("tasks")
    one.add_argument("--scheduler", required=True, help="address of the scheduler: tcp://host:8786, or a scheduler file")
    one.add_argument("--failed", action="store_true", help="also those that failed or are incomplete")
    one = verbs.add_parser("slurm", help="submits what is left as array jobs", epilog="options of sbatch follow behind --")
    one.add_argument("tasks")
    one.add_argument("--at-once", type=int, help="tasks that may run at the same time")
    one = verbs.add_parser("mpi", help="runs what is left by the ranks of an MPI job: mpirun -n 8 konkordia-cluster mpi ...")
    one.add_argument("tasks")
    one = verbs.add_parser("account", help="tells what is done, failed and left")
    one.add_argument("tasks")
    one.add_argument("--json", action="store_true", help="for programs")
    return top


def show(number: int, state: State) -> None:
    """One line for each attempt."""
    print(f"task {number}: {state.state}" + (f": {state.cause.splitlines()[0]}" if state.cause else ""), flush=True)


def result(tasks: TaskList, as_json: bool = False) -> int:
    """Prints the account; the exit code."""
    found = account(tasks)
    print(json.dumps(found.to_json()) if as_json else found)
    return 0 if found.is_done else 1


def by_dask(tasks: TaskList, scheduler: str, failed: bool) -> None:
    """Connects to a scheduler and runs what is left."""
    try:
        from distributed import Client
    except ImportError as error:
        raise ClusterError("Dask needs distributed: pip install 'konkordia[dask]'") from error
    where = {"address": scheduler} if "://" in scheduler else {"scheduler_file": scheduler}
    with Client(**where) as client:
        run_by_dask(tasks, client, failed_too=failed, progress=show)


def command(given: argparse.Namespace, rest: list[str]) -> int:
    """Does what is asked; the exit code."""
    if given.command == "plan":
        made = plan(given.tasks, given.verb, given.inputs, given.output, rest, files_per_task=given.files_per_task)
        print(f"{len(made.tasks)} tasks in {made.path}")
        return 0
    tasks = TaskList(given.tasks)
    if given.command == "slurm":
        jobs = submit(tasks, rest, at_once=given.at_once)
        print(" ".join(map(str, jobs)) if jobs else "nothing is left")
        return 0
    if given.command == "run" and given.task is not None:
        state = run_task(tasks, given.task, failed_too=given.failed, wait_s=WAIT_S)
        show(given.task, state)
        return 0 if state.state == DONE else 1 if state.state == INCOMPLETE else 3
    if given.command == "run":
        run_left(tasks, failed_too=given.failed, progress=show)
    elif given.command == "dask":
        by_dask(tasks, given.scheduler, given.failed)
    elif given.command == "mpi":
        _mpi.run_by_mpi(tasks)
    return result(tasks, given.command == "account" and given.json)


def main(arguments: list[str] | None = None) -> int:
    """The command."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    rest: list[str] = []
    if "--" in arguments:
        at = arguments.index("--")
        arguments, rest = arguments[:at], arguments[at + 1 :]
    try:
        return command(parser().parse_args(arguments), rest)
    except ClusterError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
