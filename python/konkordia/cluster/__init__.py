"""`konkordia convert`, `repack` and `analyse` over many files, or one big run in parts, by Dask, Slurm or MPI, with one
account of what is done, what failed and why, and what is left.

Functions
---------
plan       makes the list of tasks
run_task   runs one task of a list
run_left   runs what is left, one task after the other or by an executor such as Dask's
account    what is done, incomplete, failed, running and left

The list is a file, `tasks.json`. The states of its tasks lie beside it in the folder `tasks.json.d`, one file for each
task. All hosts see both: they lie on a file system that the hosts share. The command `konkordia-cluster` does the same
from a shell (docs/cluster.md).
"""

from ._account import Account, account
from ._dask import run_by_dask
from ._plan import plan
from ._run import run_left, run_task
from ._slurm import submit
from ._tasks import ClusterError, Task, TaskList

__all__ = ["Account", "ClusterError", "Task", "TaskList", "account", "plan", "run_by_dask", "run_left", "run_task", "submit"]
