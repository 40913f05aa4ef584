"""Runs tasks of a list."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor, as_completed
from typing import Any

from ._tasks import ATTEMPTS_MAX, DONE, FAILED, INCOMPLETE, LEFT, RUNNING, ClusterError, State, Task, TaskList

CAUSE_CHARACTERS_MAX = 2000
EXIT_COMPLETE, EXIT_INCOMPLETE, EXIT_INTERRUPTED = 0, 1, 130
PR_SET_PDEATHSIG = 1
ENDING_S = 60.0
"""How long a task that was given out again waits for the program of its lost worker, which closes its files."""
_libc = ctypes.CDLL(None, use_errno=True)


def program() -> str:
    """The program: KONKORDIA_BIN, or `konkordia` on PATH, or beside this Python."""
    beside = os.path.join(os.path.dirname(sys.executable), "konkordia")
    found = os.environ.get("KONKORDIA_BIN") or shutil.which("konkordia") or (beside if os.access(beside, os.X_OK) else None)
    if found is None:
        raise ClusterError("the program 'konkordia' is not on PATH: install it on every host, or name it in KONKORDIA_BIN")
    return found


def ends_with_parent() -> None:
    """Called in the child: when the process that runs a task is killed, its program ends as on Ctrl-C."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def run_task(tasks: TaskList | str | os.PathLike[str], number: int, *, failed_too: bool = False, wait_s: float = 1.0) -> State:
    """Runs one task, unless it is done, a process has it, or tasks before it are not done.

    Parameters
    ----------
    tasks : TaskList or path
        The list.
    number : int
        The task.
    failed_too : bool
        Whether a task that failed, or is incomplete, is run again.
    wait_s : float
        How long it waits for a process that has the task, such as one that is just ending.

    Returns
    -------
    State
        What is known of the task now.
    """
    tasks = tasks if isinstance(tasks, TaskList) else TaskList(tasks)
    task = tasks.task(number)
    if not tasks.is_ready(task):
        before = tasks.state(number)
        before.cause = "tasks before it are not done"
        return before
    descriptor = tasks.lock(number, wait_s)
    if descriptor is None:
        return State(RUNNING)
    try:
        # Read under the lock: somebody may have finished it meanwhile.
        before = tasks.written(number)
        if before.state == DONE or (before.state in (FAILED, INCOMPLETE) and not failed_too):
            return before
        state = attempt(tasks, task, before, descriptor)
        tasks.keep(number, state)
        return state
    finally:
        os.close(descriptor)


def attempt(tasks: TaskList, task: Task, before: State, descriptor: int) -> State:
    """Calls the program once."""
    began = time.monotonic()
    state = State(host=socket.gethostname(), attempts=before.attempts)
    # The results of an analysis get their name when they are whole: an earlier attempt ended between that and its state.
    if task.arguments[0] == "analyse" and os.path.exists(task.output):
        state.state = DONE
        return state
    with open(tasks.file(task.number, "log"), "ab") as log:
        log.write(f"--- {time.strftime('%Y-%m-%dT%H:%M:%S%z')} {state.host}: konkordia {' '.join(task.arguments)}\n".encode())
        log.flush()
        start = log.tell()
        process = subprocess.Popen(
            [program(), *task.arguments],
            stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, pass_fds=(descriptor,), preexec_fn=ends_with_parent,
        )  # fmt: skip
        state.exit_code = process.wait()
    state.seconds = round(time.monotonic() - began, 3)
    state.cause = cause(tasks, task.number, start)
    if state.exit_code == EXIT_COMPLETE:
        state.state, state.cause, state.attempts = DONE, "", 0
    elif state.exit_code == EXIT_INCOMPLETE:
        state.state = INCOMPLETE
    elif state.exit_code < 0 or state.exit_code == EXIT_INTERRUPTED:
        state.attempts += 1
        name = signal.Signals(-state.exit_code).name if state.exit_code < 0 else "a signal"
        state.cause = f"the program was ended by {name}" + (" (out of memory?)" if state.exit_code == -signal.SIGKILL else "")
        state.state = FAILED if state.attempts >= ATTEMPTS_MAX else LEFT
    else:
        state.state = FAILED
    return state


def cause(tasks: TaskList, number: int, start: int) -> str:
    """What the program said at its end: its error, or its notes."""
    with open(tasks.file(number, "log"), "rb") as log:
        log.seek(start)
        lines = log.read().decode(errors="replace").splitlines()
    plain = [line for line in lines if not line.startswith("{")]
    for line in lines:
        if line.startswith('{"') and '"event":"error"' in line.replace(" ", ""):
            error = json.loads(line)["error"]
            plain = [str(error[key]) for key in ("what", "where", "why", "what_next", "next") if error.get(key)] or [json.dumps(error)]
    return "\n".join(plain)[-CAUSE_CHARACTERS_MAX:].strip()


def run_left(
    tasks: TaskList | str | os.PathLike[str],
    executor: Executor | None = None,
    *,
    failed_too: bool = False,
    progress: Callable[[int, State], None] | None = None,
) -> list[State]:
    """Runs what is left until nothing is left that can be run.

    Parameters
    ----------
    tasks : TaskList or path
        The list.
    executor : concurrent.futures.Executor, optional
        What runs the tasks, for example ``distributed.Client(...).get_executor()``. Without it they run here, one after
        the other. A task that is lost with its worker is given out again.
    failed_too : bool
        Whether tasks that failed, or are incomplete, are run again, once.
    progress : callable, optional
        Called after each attempt with the number of the task and its state.

    Returns
    -------
    list of State
    """
    tasks = tasks if isinstance(tasks, TaskList) else TaskList(tasks)
    own = ThreadPoolExecutor(1) if executor is None else None
    tried: set[int] = set()
    try:
        while True:
            again = (FAILED, INCOMPLETE) if failed_too else ()
            now = [t for t in tasks.tasks if tasks.is_ready(t) and wants(tasks.state(t.number), again, t.number in tried)]
            if not now:
                return tasks.states()
            tried.update(task.number for task in now)
            round_of(tasks, [task.number for task in now], own or executor, failed_too, progress)
    finally:
        if own is not None:
            own.shutdown()


def wants(state: State, again: tuple[str, ...], was_tried: bool) -> bool:
    """Whether a task is to be given out now. One that ended without a result is tried again, so long as its attempts last."""
    return state.state == LEFT or (state.state in again and not was_tried)


def round_of(tasks: TaskList, numbers: list[int], executor: Any, failed_too: bool, progress: Callable[[int, State], None] | None) -> None:
    """Gives these tasks out and waits for them."""
    how = {"failed_too": failed_too, "wait_s": ENDING_S}
    given = {executor.submit(run_task, str(tasks.path), number, **how): number for number in numbers}
    for future in as_completed(given):
        try:
            state = future.result()
        except ClusterError:
            raise
        except Exception as error:
            # The worker was lost. The state is that of the files; a task that costs worker after worker ends here.
            number = given[future]
            state = lost(tasks, number, error)
        if progress is not None:
            progress(given[future], state)


def lost(tasks: TaskList, number: int, error: Exception) -> State:
    """Counts an attempt whose worker was lost."""
    descriptor = tasks.lock(number, ENDING_S)
    if descriptor is None:
        return State(RUNNING)
    try:
        state = tasks.written(number)
        if state.state == LEFT:
            state.attempts += 1
            state.cause = f"its worker was lost: {type(error).__name__}: {error}"[:CAUSE_CHARACTERS_MAX]
            state.state = FAILED if state.attempts >= ATTEMPTS_MAX else LEFT
            tasks.keep(number, state)
        return state
    finally:
        os.close(descriptor)
