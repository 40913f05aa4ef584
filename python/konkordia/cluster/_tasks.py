"""The list of tasks and the states of its tasks, as files that several hosts see."""

from __future__ import annotations

import fcntl
import json
import os
import pathlib
import secrets
import time
from dataclasses import asdict, dataclass, field
from typing import Any

from .._errors import KonkordiaError

FORMAT = 1
ATTEMPTS_MAX = 3
"""A task whose program was killed so often (by the kernel for its memory, or by hand) is not tried again by itself."""
TASKS_MAX = 1_000_000
DONE, INCOMPLETE, FAILED, RUNNING, LEFT = "done", "incomplete", "failed", "running", "left"
STATES = (DONE, INCOMPLETE, FAILED, RUNNING, LEFT)
"""What a task can be. Incomplete: its files are written and valid, but data of its input are missing or damaged."""


class ClusterError(KonkordiaError):
    """A list of tasks cannot be made, read or run."""


@dataclass(frozen=True)
class Task:
    """One call of the program.

    Attributes
    ----------
    number : int
        Its place in the list, from 0; the index of a Slurm array.
    name : str
        For people: the name of the input, or which part of a run.
    arguments : list of str
        The command line behind `konkordia`.
    output : str
        The file that is there when the task is done; empty for a part of a run.
    after : list of int
        Tasks that must be done before.
    """

    number: int
    name: str
    arguments: list[str]
    output: str
    after: list[int] = field(default_factory=list)


@dataclass
class State:
    """What is known of a task.

    Attributes
    ----------
    state : str
        One of `STATES`.
    cause : str
        Why it failed or is incomplete, in the words of the program.
    attempts : int
        Attempts that ended without a result.
    host, seconds
        Where it ran last, and how long.
    """

    state: str = LEFT
    cause: str = ""
    attempts: int = 0
    host: str = ""
    seconds: float = 0.0
    exit_code: int | None = None


class TaskList:
    """A list of tasks, from its file.

    Parameters
    ----------
    path : path
        The file that `plan` wrote.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = pathlib.Path(path).absolute()
        try:
            content: dict[str, Any] = json.loads(self.path.read_text(encoding="utf-8"))
            if content.get("konkordia_tasks") != FORMAT:
                raise ValueError(f"its 'konkordia_tasks' is {content.get('konkordia_tasks')!r} and not {FORMAT}")
            self.verb: str = content["verb"]
            self.tasks = [Task(**one) for one in content["tasks"]]
        except FileNotFoundError:
            raise ClusterError(f"there is no list of tasks {self.path}: make one with 'konkordia-cluster plan'") from None
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise ClusterError(f"{self.path} is no list of tasks that this version can read: {error}") from error
        if [task.number for task in self.tasks] != list(range(len(self.tasks))):
            raise ClusterError(f"{self.path} was changed: its tasks are not numbered 0, 1, 2 and so on")

    @property
    def folder(self) -> pathlib.Path:
        """Where the states lie."""
        return self.path.with_name(self.path.name + ".d")

    def file(self, number: int, kind: str) -> pathlib.Path:
        """A file of a task: its "json" (state), "lock" or "log"."""
        return self.folder / f"{number:06d}.{kind}"

    def task(self, number: int) -> Task:
        """The task with this number."""
        if not 0 <= number < len(self.tasks):
            raise ClusterError(f"there is no task {number} in {self.path}: its tasks are 0 to {len(self.tasks) - 1}")
        return self.tasks[number]

    def written(self, number: int) -> State:
        """The state of a task as it is written."""
        try:
            return State(**json.loads(self.file(number, "json").read_text(encoding="utf-8")))
        except FileNotFoundError:
            return State()
        except (OSError, ValueError, TypeError) as error:
            raise ClusterError(f"{self.file(number, 'json')} cannot be read: {error}; remove it to run the task again") from error

    def state(self, number: int) -> State:
        """What is known of a task now."""
        found = self.written(number)
        if found.state != DONE and self._is_locked(number):
            found.state = RUNNING
        return found

    def states(self) -> list[State]:
        """What is known of all tasks."""
        return [self.state(task.number) for task in self.tasks]

    def is_ready(self, task: Task) -> bool:
        """Whether all tasks before it are over with files."""
        return all(self.state(number).state in (DONE, INCOMPLETE) for number in task.after)

    def keep(self, number: int, state: State) -> None:
        """Writes a state: the old one or the new one is there, never half of it."""
        write_whole(self.file(number, "json"), json.dumps(asdict(state)))

    def lock(self, number: int, wait_s: float = 1.0) -> int | None:
        """Takes a task; None if a process has it for longer than `wait_s`. The result is a file descriptor; the program
        that runs the task inherits it, so the task stays taken as long as either of the two lives."""
        self.folder.mkdir(exist_ok=True)
        descriptor = os.open(self.file(number, "lock"), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o664)
        end = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return descriptor
            except OSError:
                # Those who only look at it (`state`) have it for a moment.
                if time.monotonic() > end:
                    os.close(descriptor)
                    return None
            time.sleep(0.05)

    def _is_locked(self, number: int) -> bool:
        try:
            descriptor = os.open(self.file(number, "lock"), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(descriptor)
        return False


def write_whole(path: pathlib.Path, text: str) -> None:
    """Writes a file under another name, brings it to the disk, and gives it its name."""
    part = path.with_name(f".{path.name}.{secrets.token_hex(6)}.part")
    try:
        with open(part, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
