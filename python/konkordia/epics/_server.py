"""The server: PVs are what the service says of its detector, and a put is a command to it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

from p4p import Value
from p4p.nt import NTEnum, NTScalar
from p4p.server import Server as PvaServer
from p4p.server import StaticProvider
from p4p.server.raw import SharedPV
from p4p.util import ThreadedWorkQueue

from .._calls import ServiceError
from .._errors import KonkordiaError
from .._follow import Follower, reason
from ._image import DRIVER_STATUS, alarm, ndarray, only_alarm, stamp
from ._table import TABLE, Pv, Reading
from ._view import INVALID, Settings, View, seconds

if TYPE_CHECKING:
    from .._calls import Image
    from .._client import Client
    from .._schema import DetectorStatus

STATISTICS_EVERY_S = 1.0
UNSEEN_IMAGES_HZ = 1.0
"""Images per second while nobody is connected to them, so that a `pvget` finds a new one."""
UNDEFINED_STATUS = 6
BY_FIELD = {
    "NumImages": ("images", "images"),
    "ImageMode": ("mode", "images"),
    "AcquireTime": ("exposure_s", "metadata.count_time_us"),
    "AcquirePeriod": ("period_s", "metadata.frame_time_us"),
    "FilePath": ("path", "prefix"),
    "FileName": ("name", "prefix"),
    "FileNumber": ("number", "prefix"),
    "AutoIncrement": ("is_numbered", "prefix"),
    "AutoSave": ("write", "write"),
}
"""PVs of settings: the setting, and the field of an arm of which the service may complain."""
ENDINGS = ("Stop", "Cancel")
log = logging.getLogger("konkordia.epics")


@dataclass
class Waiting:
    """A put with completion that waits for the end of a run."""

    operation: Any
    run: int
    was_away: bool = False

    def ended(self, status: DetectorStatus) -> str | None:
        """Empty if the run has ended well, what was wrong if not, None while it goes on."""
        if status["run"] == self.run:
            if status["state"] in ("armed", "running"):
                return None
            return "" if status["severity"] != "error" else f"run {self.run}: {status['message']}"
        if status["run"] > self.run:
            return ""
        return f"the service was restarted during run {self.run}" if self.was_away else None


class Channel:
    """A PV with the value that was said last."""

    def __init__(self, pv: Pv, view: View, handler: Any) -> None:
        self.pv = pv
        self._said = Reading(object())
        self._type = (NTEnum() if pv.kind == "enum" else NTScalar(pv.kind, display=True, form=pv.kind != "s")).type
        self.shared = SharedPV(handler=handler)
        reading = pv.now(view)
        self.shared.open(self._update(reading, is_first=True))
        self._said = reading

    def _update(self, reading: Reading, is_first: bool = False) -> Any:
        pv = self.pv
        value = pv.unknown if reading.value is None else reading.value
        fields: dict[str, Any] = {"value": value}
        if pv.kind == "enum":
            fields["value"] = {"index": int(value), **({"choices": list(pv.choices)} if is_first else {})}
        elif is_first:
            fields["display"] = {"description": pv.meaning, "units": pv.unit, **({"precision": 3} if pv.kind == "d" else {})}
        code = 0 if reading.severity == 0 else UNDEFINED_STATUS if reading.value is None else DRIVER_STATUS
        fields["alarm"] = {"severity": reading.severity, "status": code, "message": reading.message}
        fields["timeStamp"] = stamp(time.time() if reading.time_s is None else reading.time_s)
        return Value(self._type, fields)

    def say(self, view: View) -> None:
        """Tells clients if it has changed."""
        reading = self.pv.now(view)
        said = self._said
        if (reading.value, reading.severity, reading.message) != (said.value, said.severity, said.message):
            self.shared.post(self._update(reading))
            self._said = reading


class _PutHandler:
    """Hands puts to the server; this is called by a thread that must not wait."""

    def __init__(self, put: Callable[[Any], None] | None) -> None:
        self._put = put

    def put(self, pv: Any, operation: Any) -> None:
        if self._put is None:
            operation.done(error="it can only be read")
        else:
            self._put(operation)


class Server:
    """Serves a detector over PV Access until it is closed."""

    def __init__(
        self,
        make_client: Callable[[], Client],
        prefix: str,
        *,
        record: str = "cam1:",
        image: str = "Pva1:Image",
        channel: str | None = None,
        conf: dict[str, str] | None = None,
    ) -> None:
        self._client = make_client()
        self._channel = channel
        self._lock = threading.RLock()
        self._view = View()
        self._waiting: list[Waiting] = []
        self._file = (0, "")
        self._closing = threading.Event()
        self._begins = threading.Event()
        # What ends a run does not wait behind what begins one.
        self._beginnings, self._endings = (ThreadedWorkQueue(name="puts", maxsize=0, daemon=True).start() for _ in range(2))
        self._channels = {pv.name: self._open(pv) for pv in TABLE}
        self.image_name = f"{prefix}{image}"
        self._image = self._open_image()
        self._follower = Follower(
            make_client, on_status=self._on_status, on_image=self._on_image, images_hz_max=UNSEEN_IMAGES_HZ, channel=channel
        )
        provider = StaticProvider("konkordia")
        for name, one in self._channels.items():
            provider.add(f"{prefix}{record}{name}", one.shared)
        provider.add(self.image_name, self._image)
        self._server = PvaServer(providers=[provider], conf=conf or {}, useenv=True)
        self.conf: dict[str, str] = self._server.conf()
        self._statistics = threading.Thread(target=self._follow_statistics, name="statistics", daemon=True)
        self._follower.start()
        self._statistics.start()

    def _open(self, pv: Pv) -> Channel:
        return Channel(pv, self._view, _PutHandler(partial(self._take, pv) if pv.is_put else None))

    def _take(self, pv: Pv, operation: Any) -> None:
        """Gives a put to the thread that carries it out."""
        update = operation.value()
        field = "value.index" if pv.kind == "enum" else "value"
        if not update.changed(field):
            # Of an alarm or a time stamp only: no command.
            operation.done(error=f"{pv.name}: only its value can be put")
            return
        value = update[field]
        if pv.kind == "enum" and not 0 <= value < len(pv.choices):
            operation.done(error=f"{pv.name}: {value} is none of its choices: {', '.join(pv.choices)}")
            return
        ends = pv.name in ENDINGS or (pv.name == "Acquire" and not value)
        (self._endings if ends else self._beginnings).push(partial(self._put, pv.name, value, operation))

    def _open_image(self) -> Any:
        shared = SharedPV(handler=_ImageHandler(self))
        shared.open(only_alarm(INVALID, "there is no image yet"))
        return shared

    def is_looked_at(self, looked: bool) -> None:
        """Whether somebody is connected to the images."""
        self._follower.pace(UNSEEN_IMAGES_HZ, every_image=looked)

    def close(self) -> None:
        """Ends: clients are disconnected. The run goes on."""
        self._closing.set()
        self._server.stop()
        self._follower.close()
        self._statistics.join()
        self._client.close()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _know(self, of_image: bool = False, **news: Any) -> None:
        """Takes what is new, and tells clients what has changed by it."""
        with self._lock:
            self._view = replace(self._view, **news)
            for channel in self._channels.values():
                if not of_image or channel.pv.of_image:
                    channel.say(self._view)

    def _on_status(self, status: DetectorStatus | None, why: str | None) -> None:
        with self._lock:
            if status is None:
                log.warning("%s", why)
                self._know(away=why)
                self._image.post(only_alarm(INVALID, str(why)))
                for waiting in self._waiting:
                    waiting.was_away = True
                return
            before = self._view.status
            news: dict[str, Any] = {"arrays": self._view.arrays + _new_images(before, status)}
            if before is None or (status["run"], status["state"]) != (before["run"], before["state"]):
                news["refusal"] = None
            is_back = self._view.away is not None
            self._know(away=None, status=status, status_time_s=time.time(), **news)
            self._complete(status)
            image = self._view.image
        if is_back and image is not None:
            self._image.post(only_alarm(*alarm(image)))
        if is_back:
            log.info("detector %s of %s", status["detector"], self._client.url)
            self._ask_once()

    def _ask_once(self) -> None:
        """What does not change while a service runs."""
        try:
            self._know(configuration=self._client.configuration(), version=self._client.version()["version"])
        except ServiceError as error:
            log.warning("%s", reason(error))

    def _complete(self, status: DetectorStatus) -> None:
        """Ends the puts whose runs are over."""
        still = []
        for waiting in self._waiting:
            ended = waiting.ended(status)
            if ended is None:
                still.append(waiting)
            else:
                waiting.operation.done(error=ended or None)
        self._waiting = still

    def _follow_statistics(self) -> None:
        while not self._closing.wait(STATISTICS_EVERY_S):
            try:
                self._know(statistics=self._client.statistics())
            except ServiceError:
                continue  # The follower of the status says it.

    def _on_image(self, image: Image) -> None:
        self._image.post(ndarray(image, self._file_of(image.run), self._channel))
        self._know(of_image=True, image=image)

    def _file_of(self, run: int | None) -> str:
        """The file of a run; asked for once, since its images may be here before its status."""
        if run is not None and run != self._file[0]:
            try:
                status = self._client.status()
            except ServiceError:
                return ""
            if status["run"] != run:
                return ""
            self._file = (run, status.get("file") or "")
        return self._file[1]

    def _put(self, name: str, value: Any, operation: Any) -> None:
        who = f"{operation.account() or 'somebody'} at {operation.peer()}"
        try:
            run = self._act(name, value)
        except (KonkordiaError, ValueError) as error:
            why = reason(error) if isinstance(error, KonkordiaError) else str(error)
            text = why if why.startswith(name) else f"{name}: {why}"
            log.warning("%s = %r by %s is refused: %s", name, value, who, text)
            self._know(refusal=text)
            operation.done(error=text)
            return
        log.info("%s = %r by %s", name, value, who)
        if run is not None and _waits(operation):
            self._wait_for(operation, run)
        else:
            operation.done()

    def _wait_for(self, operation: Any, run: int) -> None:
        with self._lock:
            waiting = Waiting(operation, run)
            self._waiting.append(waiting)
            if self._view.status is not None:
                self._complete(self._view.status)

    def _act(self, name: str, value: Any) -> int | None:
        """Carries out a put. Returns the run whose end it may wait for."""
        if name in BY_FIELD:
            self._set(name, value)
            return None
        if name == "ArrayCounter":
            self._know(arrays=int(value), refusal=None)
            return None
        if name in ("NDAttributesFile", "WaitForPlugins"):
            if value != {"NDAttributesFile": "", "WaitForPlugins": 1}[name]:
                raise ValueError(f"{name}: it cannot be changed")
            return None
        if name == "Acquire":
            return self._acquire(bool(value))
        if value:
            self._command(name)
        return None

    def _command(self, name: str) -> None:
        commands: dict[str, Callable[[], DetectorStatus]] = {
            "Arm": self._arm,
            "Trigger": self._client.trigger,
            "Stop": self._client.stop,
            "Cancel": self._client.cancel,
        }
        self._on_status(commands[name](), None)
        self._know(refusal=None)

    def _arm(self) -> DetectorStatus:
        return self._with_settings(self._client.arm)

    def _acquire(self, begins: bool) -> int | None:
        state = self._client.status()["state"]
        if not begins:
            if self._begins.is_set() or state in ("armed", "running"):
                # What has not begun cannot be stopped.
                end = self._client.stop if state in ("armed", "running") else self._client.cancel
                self._on_status(end(), None)
            return None
        status = self._client.start() if state == "armed" else self._with_settings(self._client.start)
        self._on_status(status, None)
        self._know(refusal=None)
        return status["run"]

    def _with_settings(self, command: Callable[..., DetectorStatus]) -> DetectorStatus:
        self._begins.set()
        try:
            status = command(**self._view.settings.request())
        finally:
            self._begins.clear()
        self._know(settings=self._view.settings.with_number_used())
        return status

    def _set(self, name: str, value: Any) -> None:
        """Takes a setting for the next run, if the service would."""
        attribute, field = BY_FIELD[name]
        if attribute in ("exposure_s", "period_s"):
            value = seconds(float(value), name)
        is_word = isinstance(getattr(Settings, attribute), bool)
        news: dict[str, Any] = {attribute: bool(value) if is_word else value}
        settings = replace(self._view.settings, **news)
        # A path comes before its name.
        if settings.name or not settings.path:
            problems = self._client.dry_run(**settings.request())["problems"]
            if wrong := next((problem for problem in problems if problem["field"] == field), None):
                raise ServiceError(wrong["detail"], wrong["hint"], "bad_request", None, 422)
        self._know(settings=settings, refusal=None)


class _ImageHandler:
    """Images are followed at full speed while somebody is connected to them."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def onFirstConnect(self, pv: Any) -> None:
        self._server.is_looked_at(True)

    def onLastDisconnect(self, pv: Any) -> None:
        self._server.is_looked_at(False)


def _new_images(before: DetectorStatus | None, now: DetectorStatus) -> int:
    if before is None:
        return 0
    is_same = before["run"] == now["run"]
    return max(0, now["images_committed"] - (before["images_committed"] if is_same else 0))


def _waits(operation: Any) -> bool:
    """True for a put with completion."""
    return str(operation.pvRequest().get("record._options.block", "false")) == "true"
