"""Makes the list of tasks."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Literal

from ._run import program
from ._tasks import FORMAT, TASKS_MAX, ClusterError, Task, TaskList, write_whole

OURS = {
    "convert": {"-o", "--output", "--resume", "--overwrite", "--data-files", "--dry-run", "--json", "--quiet", "-q", "--frames"},
    "repack": {"-o", "--output", "--json", "--quiet", "-q"},
    "analyse": {"-o", "--output", "--json", "--quiet", "-q", "--images", "--reflections"},
}
"""Options that the list sets itself, or that have no meaning for several files."""


def plan(
    path: str | os.PathLike[str],
    verb: Literal["convert", "repack", "analyse"],
    inputs: Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    options: Sequence[str] = (),
    *,
    files_per_task: int | None = None,
) -> TaskList:
    """Makes the list of tasks.

    Parameters
    ----------
    path : path
        The list; it must not exist yet.
    verb : {"convert", "repack", "analyse"}
        What is done with each input.
    inputs : sequence of paths
        Masters; one task each. An acquisition is given by one of its files.
    output : path
        Existing folder. The files of an input are named after it.
    options : sequence of str
        Options of the program, the same for all inputs.
    files_per_task : int, optional
        For `convert`: each run is shared by several tasks, each of which writes so many data files. One more task
        makes the master. Chunks, data sets, attributes and links are those of one process (docs/cluster.md).

    Returns
    -------
    TaskList
    """
    path, folder = pathlib.Path(path).absolute(), pathlib.Path(output).absolute()
    check(path, verb, inputs, folder, options, files_per_task)
    tasks: list[Task] = []
    names: dict[str, pathlib.Path] = {}
    for one in inputs:
        source = pathlib.Path(one).absolute()
        if not source.exists():
            raise ClusterError(f"there is no file {source}")
        name = stem(source)
        if name in names:
            raise ClusterError(f"{names[name]} and {source} would both make {folder / name}: plan them into two folders")
        names[name] = source
        tasks += tasks_of(verb, source, folder / name, list(options), files_per_task, len(tasks))
    if len(tasks) > TASKS_MAX:
        raise ClusterError(f"{len(tasks)} tasks are more than a list may have ({TASKS_MAX}): make several lists")
    content = {"konkordia_tasks": FORMAT, "verb": verb, "tasks": [asdict(task) for task in tasks]}
    path.parent.joinpath(path.name + ".d").mkdir(exist_ok=True)
    write_whole(path, json.dumps(content, indent=1))
    return TaskList(path)


def check(
    path: pathlib.Path,
    verb: str,
    inputs: Sequence[Any],
    folder: pathlib.Path,
    options: Sequence[str],
    files_per_task: int | None,
) -> None:
    """Refuses what cannot become a list."""
    if verb not in OURS:
        raise ClusterError(f"'{verb}' is none of {', '.join(OURS)}")
    if path.exists():
        raise ClusterError(f"{path} exists: run what is left of it, or choose another name")
    if not inputs:
        raise ClusterError("there is no input")
    if not folder.is_dir():
        raise ClusterError(f"{folder} is no folder: make it first")
    for option in options:
        if option.split("=")[0] in OURS[verb]:
            raise ClusterError(f"{option} cannot be given: the list decides it, for each input")
    if files_per_task is not None and (verb != "convert" or files_per_task < 1):
        raise ClusterError("files_per_task is a number of data files from 1, for 'convert' only")


def stem(source: pathlib.Path) -> str:
    """The name of an input, without what all masters have."""
    return re.sub(r"_master(?=_\d+$|$)", "", source.stem)


def tasks_of(verb: str, source: pathlib.Path, out: pathlib.Path, options: list[str], files_per_task: int | None, first: int) -> list[Task]:
    """The tasks of one input; the first of them has the number `first`."""
    if verb == "analyse":
        result = f"{out}_results.h5"
        return [Task(first, out.name, ["analyse", str(source), "-o", result, *options, "--quiet"], result)]
    call = [verb, str(source), "-o", str(out), *options, "--quiet", "--json"]
    master = f"{out}_master.h5"
    if verb == "repack":
        return [Task(first, out.name, call, master)]
    whole = [*call, "--resume"]
    if files_per_task is None:
        return [Task(first, out.name, whole, master)]
    found = parts(call, files_per_task)
    tasks = []
    for number, (begin, end) in enumerate(found):
        tasks.append(Task(first + number, f"{out.name} data files {begin} to {end}", [*call, "--data-files", f"{begin}:{end}"], ""))
    last = first + len(found)
    return [*tasks, Task(last, f"{out.name} master", whole, master, list(range(first, last)))]


def parts(call: list[str], files_per_task: int) -> list[tuple[int, int]]:
    """The numbers of the data files of each part, from what the program plans for this input."""
    done = subprocess.run([program(), *call, "--dry-run"], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise ClusterError(f"konkordia {' '.join(call)} --dry-run refuses this input:\n{done.stderr.strip() or done.stdout.strip()}")
    said = json.loads(done.stdout.splitlines()[0])["plan"]
    files = -(-said["images"] // said["images_per_file"])
    return [(begin, min(begin + files_per_task - 1, files)) for begin in range(1, files + 1, files_per_task)]
