"""Runs a list by Dask."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from ._run import run_left
from ._tasks import State, TaskList


def run_by_dask(
    tasks: TaskList | str | os.PathLike[str],
    client: Any,
    *,
    failed_too: bool = False,
    progress: Callable[[int, State], None] | None = None,
) -> list[State]:
    """Runs what is left of a list by the workers of a Dask cluster.

    Parameters
    ----------
    tasks : TaskList or path
        The list. All workers must see it, the inputs and the folder of the outputs under the same paths.
    client : distributed.Client
        Connected to a scheduler, of ``dask_jobqueue.SLURMCluster`` for example.
    failed_too : bool
        Whether tasks that failed, or are incomplete, are run again, once.
    progress : callable, optional
        Called after each attempt with the number of the task and its state.

    Returns
    -------
    list of State

    Notes
    -----
    Dask gives a task out again when its worker dies; what that task finds is what the files say, so nothing is done
    twice. A task that has killed ``distributed.scheduler.allowed-failures`` workers counts as one attempt here.
    """
    # Pure: Dask must not take the result of an earlier round for that of this one.
    with client.get_executor(pure=False, retries=0) as executor:
        return run_left(tasks, executor, failed_too=failed_too, progress=progress)
