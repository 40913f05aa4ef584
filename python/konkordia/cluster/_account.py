"""One account of all tasks."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from ._tasks import DONE, STATES, State, Task, TaskList

SHOWN_MAX = 20
"""Tasks of each kind that the text names; JSON names all."""


@dataclass
class Account:
    """What became of the tasks of a list.

    Attributes
    ----------
    tasks : list of (Task, State)
        All tasks, in their order.
    """

    tasks: list[tuple[Task, State]]

    def of(self, state: str) -> list[tuple[Task, State]]:
        """The tasks with this state."""
        return [(task, found) for task, found in self.tasks if found.state == state]

    @property
    def counts(self) -> dict[str, int]:
        """Tasks by state; the sum is the number of tasks."""
        return {state: len(self.of(state)) for state in STATES}

    @property
    def is_done(self) -> bool:
        """True if every task is done."""
        return self.counts[DONE] == len(self.tasks)

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        rows = [
            {"task": t.number, "name": t.name, "state": s.state, "output": t.output, "cause": s.cause, "host": s.host, "seconds": s.seconds}
            for t, s in self.tasks
        ]
        return {"counts": self.counts, "tasks": rows}

    def __str__(self) -> str:
        lines = [f"{len(self.tasks)} tasks: " + ", ".join(f"{count} {state}" for state, count in self.counts.items())]
        for state in STATES[1:]:
            found = self.of(state)
            for task, one in found[:SHOWN_MAX]:
                why = one.cause.replace("\n", "\n    ")
                lines.append(f"  {state}: task {task.number} {task.name}" + (f"\n    {why}" if why else ""))
            if len(found) > SHOWN_MAX:
                lines.append(f"  {state}: and {len(found) - SHOWN_MAX} more")
        return "\n".join(lines)


def account(tasks: TaskList | str | os.PathLike[str]) -> Account:
    """What became of the tasks of a list.

    Parameters
    ----------
    tasks : TaskList or path
        The list.

    Returns
    -------
    Account
    """
    tasks = tasks if isinstance(tasks, TaskList) else TaskList(tasks)
    return Account(list(zip(tasks.tasks, tasks.states(), strict=True)))
