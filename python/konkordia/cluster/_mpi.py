"""Runs a list by the ranks of an MPI job (mpi4py); a rank that dies costs its task only, where MPI has ULFM.

The ranks exchange nothing but "is something left?": the pixels go from file to file, and the states of the tasks tell
each rank what the others have taken. So every rank takes the next task that is free. At the end of a round the ranks
agree whether anything is left (docs/decisions/0054-parallel-conversions.md).
"""

from __future__ import annotations

import atexit
import os
import sys
import time
from typing import Any

from ._run import run_task
from ._tasks import LEFT, RUNNING, ClusterError, State, TaskList

WAIT_S = 0.2
"""How long a rank waits before it looks again, while other ranks have the tasks that are left."""
_lost: list[Exception] = []
"""The errors by which this rank learned that others were lost."""


def run_by_mpi(tasks: TaskList | str | os.PathLike[str], communicator: Any = None) -> list[State]:
    """Runs what is left of a list; called by every rank.

    Parameters
    ----------
    tasks : TaskList or path
        The list.
    communicator : mpi4py.MPI.Comm, optional
        The ranks; all of them without it.

    Returns
    -------
    list of State
    """
    MPI = load()
    tasks = tasks if isinstance(tasks, TaskList) else TaskList(tasks)
    world = communicator if communicator is not None else MPI.COMM_WORLD
    # An error of MPI, such as a dead rank, becomes an exception instead of the end of the job.
    world.Set_errhandler(MPI.ERRORS_RETURN)
    while True:
        run_what_is_free(tasks, world.Get_rank(), world.Get_size())
        world, is_left = agree(world, any(task_is_open(tasks, n) for n in range(len(tasks.tasks))))
        if not is_left:
            return tasks.states()
        time.sleep(WAIT_S)


def load() -> Any:
    """mpi4py's MPI, which here ends MPI only if no rank was lost: with Open MPI 5.0, in about one of ten jobs with a lost
    rank, MPI_Finalize waits for it for ever. By then the tasks are done, and nothing is on its way."""
    try:
        import mpi4py

        is_first = "mpi4py.MPI" not in sys.modules
        if is_first:
            mpi4py.rc.finalize = False
        from mpi4py import MPI
    except ImportError as error:
        raise ClusterError("MPI needs mpi4py: pip install 'konkordia[mpi]', and an MPI library") from error
    if is_first:
        atexit.register(lambda: None if _lost else MPI.Finalize())
    return MPI


def task_is_open(tasks: TaskList, number: int) -> bool:
    """Whether somebody has this task, or it can be run now."""
    state = tasks.state(number).state
    return state == RUNNING or (state == LEFT and tasks.is_ready(tasks.task(number)))


def run_what_is_free(tasks: TaskList, rank: int, size: int) -> None:
    """Runs the tasks that nobody has, from a place of its own in the list, so that ranks seldom want the same one."""
    count = len(tasks.tasks)
    begin = rank * count // max(size, 1)
    for place in range(count):
        number = (begin + place) % count
        if tasks.state(number).state == LEFT:
            run_task(tasks, number)


def agree(world: Any, is_left: bool) -> tuple[Any, bool]:
    """Whether any rank sees a task that is left. If a rank died, the others go on without it, and look again."""
    from mpi4py import MPI

    try:
        try:
            # All ranks get the same answer, or the same error, even if one dies meanwhile.
            return world, not world.Agree(int(not is_left))
        except (NotImplementedError, AttributeError):
            return world, bool(world.allreduce(int(is_left), op=MPI.MAX))
    except MPI.Exception as error:
        try:
            smaller = world.Shrink()
        except (MPI.Exception, NotImplementedError, AttributeError) as why:
            raise ClusterError(f"a rank was lost, and this MPI has no ULFM (mpirun --with-ft ulfm): {error}; {why}") from error
        _lost.append(error)
        smaller.Set_errhandler(MPI.ERRORS_RETURN)
        return smaller, True
