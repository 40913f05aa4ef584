"""Runs a list as an array job of Slurm."""

from __future__ import annotations

import os
import pathlib
import shlex
import subprocess
import sys
from collections.abc import Sequence

from ._tasks import LEFT, ClusterError, TaskList


def ranges(numbers: Sequence[int]) -> str:
    """Numbers as Slurm writes them: 0-3,7."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in found)


def script(tasks: TaskList, python: str) -> str:
    """The batch script of an array: each element runs its task."""
    command = [python, "-m", "konkordia.cluster", "run", str(tasks.path), "--task"]
    exports = "".join(
        f"export {name}={shlex.quote(os.environ[name])}\n" for name in ("KONKORDIA_BIN", "PYTHONPATH") if name in os.environ
    )
    return f'#!/bin/bash\n{exports}exec {shlex.join(command)} "$SLURM_ARRAY_TASK_ID"\n'


def submit(
    tasks: TaskList | str | os.PathLike[str],
    options: Sequence[str] = (),
    *,
    at_once: int | None = None,
    python: str = sys.executable,
) -> list[int]:
    """Submits what is left of a list as array jobs: one for the tasks that can run now, and one behind it for those that
    need them.

    Parameters
    ----------
    tasks : TaskList or path
        The list; on a file system that the nodes share, as all its files.
    options : sequence of str
        Options for sbatch, such as ["--partition=short", "--mem=8G"].
    at_once : int, optional
        Tasks that may run at the same time.
    python : str
        The Python with `konkordia` on the nodes.

    Returns
    -------
    list of int
        Numbers of the jobs; none if nothing is left.

    Notes
    -----
    Jobs may be requeued (``--requeue``): when a node is lost, Slurm runs its elements again, and they go on where the
    files end. Running `submit` again gives out what is still left.
    """
    tasks = tasks if isinstance(tasks, TaskList) else TaskList(tasks)
    left = [task for task in tasks.tasks if tasks.state(task.number).state == LEFT]
    jobs: list[int] = []
    for is_last in (False, True):
        numbers = [task.number for task in left if bool(task.after) == is_last]
        if not numbers:
            continue
        array = ranges(numbers) + (f"%{at_once}" if at_once else "")
        # `afterany`: what failed is told by the account, and the task behind it says which one it waits for.
        behind = [f"--dependency=afterany:{jobs[-1]}"] if jobs else []
        log = tasks.folder / "slurm-%A_%a.log"
        command = ["sbatch", "--parsable", f"--array={array}", "--requeue", f"--output={log}", "--open-mode=append"]
        jobs.append(sbatch([*command, *behind, *options], script(tasks, python), tasks.path))
    return jobs


def sbatch(command: list[str], text: str, path: pathlib.Path) -> int:
    """Submits a script; its number."""
    try:
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False, cwd=path.parent)
    except FileNotFoundError:
        raise ClusterError("there is no 'sbatch' on PATH: submit from a host of the Slurm cluster") from None
    if done.returncode != 0:
        raise ClusterError(f"sbatch refused the array of {path}: {done.stderr.strip()}")
    return int(done.stdout.strip().split(";")[0])
