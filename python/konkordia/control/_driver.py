"""What all drivers share: they read the order, act, and answer."""

import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, NoReturn, TypedDict

__all__ = ["Answer", "Driver", "Expected", "Order", "Refused", "main"]

PROTOCOL = 1
ACTIONS = ("arm", "start", "trigger", "stop", "pedestal", "status")
# Numbers that differ by less than this share are the same: detectors round times to their clock.
TOLERANCE = 1e-3


class Destination(TypedDict):
    """Where one stream of packets is expected."""

    module: int
    port_of_module: int
    address: str
    port: int


class Packets(TypedDict, total=False):
    """The detector as its packets are expected."""

    detector: str
    modules: int
    bits: int
    rows: int | None
    interfaces: int
    ten_giga: bool
    destinations: list[Destination]


class Stream(TypedDict, total=False):
    """The messages that are expected."""

    protocol: str
    upstreams: list[str]
    bind: bool
    socket: str


class Order(TypedDict, total=False):
    """What Konkordia says of the run. What is not known is absent or None."""

    protocol: int
    action: str
    detector: str
    run: int
    file: str | None
    images: int | None
    frames: int | None
    first_frame: int
    count_time_s: float
    frame_time_s: float
    energy_kev: float
    threshold_energy_kev: float
    metadata: dict[str, Any]
    packets: Packets
    stream: Stream
    stage: str
    gainmode: str
    ended: str
    settings: dict[str, Any]


class Expected(TypedDict, total=False):
    """What the first message of the series must say."""

    series: int
    images: int
    count_time_s: float
    frame_time_s: float
    energy_kev: float
    rows: int
    columns: int


class Answer(TypedDict, total=False):
    """What a driver answers. All of it may be absent."""

    set: dict[str, Any]
    expected: Expected
    warnings: list[str]
    status: str


class Refused(Exception):
    """The detector cannot do what it is asked for.

    Parameters
    ----------
    why : str
        The reason, for people.
    hint : str, optional
        What they can do about it.
    """

    def __init__(self, why: str, hint: str | None = None) -> None:
        super().__init__(why)
        self.hint = hint


class Driver:
    """Base of drivers: a method for each action. One that is not overridden does nothing.

    Parameters
    ----------
    order : Order
        What Konkordia says of the run.

    Attributes
    ----------
    settings : dict
        Class attribute: the keys that ``[control.settings]`` may have, with their types.
    required : tuple of str
        Class attribute: those that it must have.
    order : Order
        As given.
    """

    settings: ClassVar[Mapping[str, type | tuple[type, ...]]] = {}
    required: ClassVar[tuple[str, ...]] = ()

    def __init__(self, order: Order) -> None:
        self.order = order
        self.given: dict[str, Any] = order.get("settings") or {}
        self._check_settings()

    def _check_settings(self) -> None:
        for name, value in self.given.items():
            if name not in self.settings:
                keys = ", ".join(sorted(self.settings))
                raise Refused(f"control.settings has the unknown key '{name}'", f"its keys are {keys}")
            kinds = self.settings[name]
            is_flag = isinstance(value, bool) and kinds is not bool
            if is_flag or not isinstance(value, (int, float) if kinds is float else kinds):
                words = " or ".join(kind.__name__ for kind in (kinds if isinstance(kinds, tuple) else (kinds,)))
                raise Refused(f"control.settings.{name} is {value!r}", f"give it as {words}")
        for name in self.required:
            if name not in self.given:
                raise Refused(f"control.settings has no '{name}'", f"add {name} = ... to [control.settings]")

    def arm(self) -> Answer:
        """Configure the detector, and prepare everything that can fail."""
        return {}

    def start(self) -> Answer:
        """Begin to measure, or to wait for triggers."""
        return {}

    def trigger(self) -> Answer:
        """Expose once."""
        raise Refused("this driver has no trigger", "trigger the detector itself")

    def stop(self) -> Answer:
        """End the measurement, in whatever state, and leave nothing forced."""
        return {}

    def pedestal(self) -> Answer:
        """Prepare for the dark frames of the gain stage ``order["stage"]``."""
        raise Refused("this driver takes no pedestals", "take them without it: docs/calibration.md")

    def status(self) -> Answer:
        """Say how the detector is."""
        return {}

    def close(self) -> None:
        """Called at the end, also after a failure."""

    def frames(self, until_stopped: int) -> int:
        """Frames to take; ``until_stopped`` for a run without a number of images."""
        frames = self.order.get("frames")
        return until_stopped if frames is None else frames


def agrees(wanted: Any, got: Any) -> bool:
    """Whether a value read back is the one that was set."""
    if isinstance(wanted, float) or isinstance(got, float):
        try:
            return abs(float(wanted) - float(got)) <= TOLERANCE * abs(float(wanted))
        except (TypeError, ValueError):
            return False
    return bool(wanted == got)


@contextmanager
def _quiet() -> Iterator[int]:
    """Keeps what libraries print away from the answer and the reason; gives the true stdout."""
    true_out, true_err = os.dup(1), os.dup(2)
    with tempfile.TemporaryFile() as chatter:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os.dup2(chatter.fileno(), 1)
        os.dup2(chatter.fileno(), 2)
        try:
            yield true_out
        finally:
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            os.dup2(true_out, 1)
            os.dup2(true_err, 2)


def _read_order(action: str) -> Order:
    text = sys.stdin.read()
    try:
        order = json.loads(text) if text.strip() else {}
    except ValueError as error:
        raise Refused(f"the order on stdin is no JSON: {error}") from None
    if not isinstance(order, dict) or order.get("protocol", PROTOCOL) != PROTOCOL:
        raise Refused("the order is of another version of Konkordia", "install the Python package of the service's version")
    if action not in ACTIONS:
        raise Refused(f"unknown action '{action}'", f"the actions are {', '.join(ACTIONS)}")
    order["action"] = action
    return order  # type: ignore[return-value]


def _act(kind: type[Driver], action: str) -> Answer:
    driver = kind(_read_order(action))
    try:
        answer: Answer = getattr(driver, action)()
        return answer
    finally:
        driver.close()


def _in_words(error: Exception) -> str:
    if isinstance(error, Refused):
        return str(error)
    trace = error.__traceback__
    while trace and trace.tb_next:
        trace = trace.tb_next
    place = f" ({os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno})" if trace else ""
    return f"{type(error).__name__}: {error}{place}"


def main(kind: type[Driver]) -> NoReturn:
    """Read the order on stdin, do what the first argument says, and answer on stdout.

    The program ends with 0 and the answer, or with 1, the reason on stderr, and the hint in the answer.

    Parameters
    ----------
    kind : type
        A class of drivers.
    """
    action = sys.argv[1] if len(sys.argv) == 2 else ""
    failed: Exception | None = None
    with _quiet() as out:
        try:
            answer = dict(_act(kind, action) or {})
        except Exception as error:
            failed = error
            answer = {"hint": hint} if (hint := getattr(error, "hint", None)) else {}
    os.write(out, json.dumps(answer).encode() + b"\n")
    if failed:
        print(_in_words(failed) or "the driver gives no reason", file=sys.stderr)
    sys.exit(1 if failed else 0)
