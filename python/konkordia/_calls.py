"""The requests of the client, each as a value: what is asked, and what becomes of the answer. `Client` and `AsyncClient`
send them."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from ._errors import KonkordiaError
from ._pictures import shown

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._schema import (
        ArmRequest,
        DetectorStatistics,
        DetectorStatus,
        DryRun,
        Files,
        ImageHeader,
        Logs,
        NextCalibration,
        Numbers,
        Version,
        Waited,
    )

T = TypeVar("T")

WAIT_MAX_S = 60.0
"""Longest wait of one request; longer ones are several."""


class ServiceError(KonkordiaError):
    """A service refused a request, or cannot be reached.

    Attributes
    ----------
    code : str
        The code of the problem (docs/api.md), or "unreachable".
    state : str or None
        State of the detector.
    status : int
        The HTTP status; 0 without an answer.
    """

    def __init__(self, what: str, hint: str = "", code: str = "unreachable", state: str | None = None, status: int = 0) -> None:
        super().__init__(what, hint, 4 if status == 0 else 5)
        self.args = (what, hint, code, state, status)
        self.code = code
        self.state = state
        self.status = status


@dataclass(frozen=True)
class Answer:
    """Status, headers (lower case) and body of an answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    def problem(self, url: str) -> ServiceError | None:
        """The problem that it reports, if it does."""
        if self.status < 400:
            return None
        try:
            said = self.json()
            return ServiceError(said["detail"], said.get("hint") or "", said["code"], said.get("state"), self.status)
        except (ValueError, KeyError, TypeError):
            what = f"{url} answered with status {self.status}: {self.body[:200].decode(errors='replace')}"
            return ServiceError(what, "is this the address of a Konkordia service?", "no_problem", None, self.status)


@dataclass(frozen=True)
class Call(Generic[T]):
    """A request, and how its answer is read."""

    method: Literal["GET", "POST", "PUT"]
    path: str
    read: Callable[[Answer], T]
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None
    has_pixels: bool = False
    """The answer is large."""

    def parameters(self, detector: str | None) -> dict[str, str]:
        """The query, as text."""
        words: dict[str, Any] = {**self.query, "detector": detector}
        return {name: str(value) for name, value in words.items() if value is not None}


@dataclass(frozen=True)
class Image:
    """An image of a service: its number, the run that it is of (None for a file), its age when it was sent, its pixels
    (rows x columns, or channels before them; read-only), and what else is known of it, from `Client.wait_for_image`: times,
    results, energy; without lists, such as those of spots."""

    number: int
    run: int | None
    age_ms: int | None
    pixels: NDArray[Any]
    facts: ImageHeader | None = None

    def __repr__(self) -> str:
        shape = " x ".join(map(str, self.pixels.shape))
        run = "" if self.run is None else f" of run {self.run}"
        return f"<konkordia.Image {self.number}{run}: {shape} pixels, {self.pixels.dtype}>"

    def _repr_html_(self) -> str:
        """For notebooks: the image."""
        return shown([repr(self)], self.pixels, f"image {self.number}")


@dataclass(frozen=True)
class Seen:
    """The image that was seen last. No run has the number 0: whoever has seen that has seen nothing."""

    run: int = 0
    number: int = 0

    @classmethod
    def of(cls, image: Image) -> Seen:
        return cls(image.run or 0, image.number)

    @classmethod
    def before(cls, run: int, found: Numbers) -> Seen:
        """Whoever wants the images of this run, while these are kept, which may be of another one."""
        return cls() if found["run"] == run or not found["images"] else cls(found["run"], found["images"][-1])


def _json(answer: Answer) -> Any:
    return answer.json()


def _array(answer: Answer) -> NDArray[Any]:
    """The pixels, without a copy: the array is read-only."""
    stream = io.BytesIO(answer.body)
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(stream)
    if fortran or dtype.hasobject:
        raise ServiceError("the image has an unknown layout", "is this the address of a Konkordia service?", "no_problem")
    return np.frombuffer(answer.body, dtype, offset=stream.tell()).reshape(shape)


def _image(answer: Answer) -> Image:
    number, run, age_ms = (answer.headers.get(f"x-konkordia-{name}") for name in ("image", "run", "age-ms"))
    if number is None:
        raise ServiceError("the answer is no image", "is this the address of a Konkordia service?", "no_problem")
    facts = answer.headers.get("x-konkordia-facts")
    known = None if facts is None else json.loads(facts)
    return Image(int(number), None if run is None else int(run), None if age_ms is None else int(age_ms), _array(answer), known)


def _unseen(answer: Answer) -> Image | None:
    return None if answer.status == 204 else _image(answer)


def version() -> Call[Version]:
    return Call("GET", "version", _json)


def status() -> Call[DetectorStatus]:
    return Call("GET", "status", _json)


def statistics() -> Call[DetectorStatistics]:
    return Call("GET", "statistics", _json)


def configuration() -> Call[dict[str, Any]]:
    return Call("GET", "configuration", _json)


def calibration() -> Call[NextCalibration]:
    return Call("GET", "calibration", _json)


def files() -> Call[Files]:
    return Call("GET", "files", _json)


def numbers() -> Call[Numbers]:
    return Call("GET", "images", _json)


def logs(level: str | None, limit: int) -> Call[Logs]:
    return Call("GET", "logs", _json, {"level": level, "limit": limit})


def image(number: int | str, channel: str | None, file: str | None) -> Call[Image]:
    return Call("GET", f"images/{number}", _image, {"format": "npy", "channel": channel, "file": file}, has_pixels=True)


def unseen(seen: Seen, wait_s: float, every_image: bool, channel: str | None = None) -> Call[Image | None]:
    query = {"format": "npy", "facts": "true", "after": seen.number, "run": seen.run, "wait_s": wait_s, "channel": channel}
    return Call("GET", "images/next" if every_image else "images/latest", _unseen, query, has_pixels=True)


def wait(timeout_s: float) -> Call[Waited]:
    return Call("GET", "wait", _json, {"timeout_s": timeout_s})


def command(
    name: Literal["arm", "start", "trigger", "stop", "close", "cancel", "pedestal"], body: Mapping[str, Any], wait_s: float | None = None
) -> Call[DetectorStatus]:
    return Call("POST", name, _json, {"wait_s": wait_s}, dict(body))


def dry_run(body: Mapping[str, Any]) -> Call[DryRun]:
    return Call("POST", "arm", _json, {"dry_run": "true"}, dict(body))


RUN_KEYS = ("images", "prefix", "write", "append", "metadata")
"""Of `ArmRequest`."""


def run_request(request: ArmRequest) -> dict[str, Any]:
    """The body of an arm or a start: what is not given is as configured."""
    given: Mapping[str, Any] = request
    if unknown := [name for name in given if name not in RUN_KEYS]:
        raise TypeError(f"a run has no {', '.join(unknown)}; there are {', '.join(RUN_KEYS)}")
    body = {name: value for name, value in given.items() if value is not None}
    return body | ({"metadata": dict(body["metadata"])} if "metadata" in body else {})
