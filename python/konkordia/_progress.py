"""Progress bars of tqdm, in terminals and notebooks."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Union

if TYPE_CHECKING:
    from ._schema import DetectorStatus

Progress = Union[bool, Literal["always"]]
"""False: none. True: a bar where somebody sees it: in a notebook, or on stderr if that is a terminal. "always": on stderr
in any case."""


def _is_notebook() -> bool:
    kernel = sys.modules.get("IPython")
    shell: Any = kernel.get_ipython() if kernel is not None else None
    return shell is not None and "IPKernelApp" in shell.config


class RunBar:
    """A bar of a run: images in their final state, of those expected, and how many are lost."""

    def __init__(self, progress: Progress) -> None:
        if progress not in (False, True, "always"):
            raise ValueError(f'progress is True, False or "always", not {progress!r}')
        self._bar: Any = None
        if not progress:
            return
        try:
            import warnings

            with warnings.catch_warnings():
                # In a notebook without ipywidgets the bar is text; that is no reason for a warning.
                warnings.simplefilter("ignore")
                from tqdm.auto import tqdm  # type: ignore[import-untyped, unused-ignore]
        except ImportError as error:
            raise ImportError("progress bars need tqdm: pip install 'konkordia[progress]'") from error
        is_seen = progress == "always" or _is_notebook()
        self._bar = tqdm(desc="images", unit="image", disable=False if is_seen else None)

    @property
    def is_on(self) -> bool:
        """True if somebody asked for a bar."""
        return self._bar is not None

    def show(self, status: DetectorStatus) -> None:
        """Shows the state of a run."""
        if self._bar is None:
            return
        self._bar.total = status.get("images_expected")
        self._bar.set_description(f"run {status['run']}", refresh=False)
        self._bar.set_postfix(_shown(status), refresh=False)
        self._bar.n = status["images_committed"]
        self._bar.refresh()

    def __enter__(self) -> RunBar:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.close()


def _shown(status: DetectorStatus) -> Mapping[str, int]:
    """Images that are lost, and, if there are such, those that miss a part of their pixels."""
    partial = {"partial": status["images_partial"]} if status["images_partial"] else {}
    return {"lost": status["images_lost"], **partial}
