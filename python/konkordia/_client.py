"""Clients of a running service."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import AsyncIterator, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from . import _calls
from ._calls import WAIT_MAX_S, Answer, Call, Image, Seen, ServiceError
from ._progress import Progress, RunBar

if TYPE_CHECKING:
    import ssl

    import httpx

    from typing_extensions import Unpack

    from ._schema import ArmRequest, DetectorStatistics, DetectorStatus, DryRun, Files, Logs, NextCalibration, Version, Waited

T = TypeVar("T")

DEFAULT_URL = "http://127.0.0.1:8090"
LOOK_S = 5.0
"""Longest wait for an image of a run; its end ends the wait."""
BAR_S = 0.2
"""Between two movements of a progress bar."""
PATIENCE_S = 30.0
"""A service that cannot be reached while somebody waits for a run may be restarted: so long it is tried again."""
AWAY_S = 0.2
"""Between two tries."""


class _Settings:
    """What both clients know: the address of the service, who asks, for which detector."""

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        detector: str | None = None,
        ca: str | os.PathLike[str] | None = None,
        timeout_s: float = 30.0,
    ) -> None:
        self.url = (url or os.environ.get("KONKORDIA_URL") or DEFAULT_URL).rstrip("/")
        self.detector = detector
        self._token = token or os.environ.get("KONKORDIA_TOKEN")
        self._ca = ca
        self._timeout_s = timeout_s
        self._of_thread = threading.local()

    def _headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self._token}"} if self._token else {}

    def _options(self) -> dict[str, Any]:
        try:
            import httpx
        except ImportError as error:
            raise ImportError("the client needs httpx: pip install 'konkordia[client]'") from error
        return {
            "base_url": f"{self.url}/api/v1/",
            "headers": self._headers(),
            "timeout": httpx.Timeout(self._timeout_s, read=self._timeout_s + WAIT_MAX_S),
            "verify": self._trusted(),
            "trust_env": False,
        }

    def _trusted(self) -> ssl.SSLContext | Literal[True]:
        if self._ca is None:
            return True
        import ssl

        return ssl.create_default_context(cafile=os.fspath(self._ca))

    def _read(self, call: Call[T], answer: Answer) -> T:
        if problem := answer.problem(self.url):
            raise problem
        return call.read(answer)

    def _unreachable(self, error: Exception) -> ServiceError:
        what = f"no answer from {self.url}: {error or type(error).__name__}"
        return ServiceError(what, "is `konkordia serve` running there? Give its address: Client(url) or KONKORDIA_URL")

    def __repr__(self) -> str:
        detector = "" if self.detector is None else f", detector {self.detector!r}"
        return f"<konkordia.{type(self).__name__} of {self.url}{detector}>"


def _is_over(run: int, status: DetectorStatus) -> bool:
    return status["run"] != run or status["state"] not in ("armed", "running")


class _Waiting:
    """A wait for the end of a run, in several requests, over a restart of the service."""

    def __init__(self, timeout_s: float | None, bar: RunBar) -> None:
        self._timeout_s = timeout_s
        self._bar = bar
        self._end = None if timeout_s is None else time.monotonic() + timeout_s
        self._away_since: float | None = None
        self._asked = 0.0

    def ask_s(self) -> float:
        """How long the next request, which is sent now, may wait."""
        self._asked = time.monotonic()
        longest_s = BAR_S if self._bar.is_on else WAIT_MAX_S
        return longest_s if self._end is None else max(0.0, min(longest_s, self._end - time.monotonic()))

    @property
    def pause_s(self) -> float:
        """Before the next request. A service that is ending answers at once, and would be asked without a pause."""
        return max(0.0, AWAY_S - (time.monotonic() - self._asked))

    def go_on_after(self, error: ServiceError) -> None:
        """Raises the error, unless the service cannot be reached and may still come back in time."""
        now = time.monotonic()
        self._away_since = self._away_since or now
        if error.status or now - self._away_since > PATIENCE_S or (self._end is not None and now >= self._end):
            raise error

    def is_over(self, found: Waited) -> bool:
        """True if no run is armed or running; an error if the time is over."""
        self._away_since = None
        self._bar.show(found["status"])
        if not found["done"] and self._end is not None and time.monotonic() >= self._end:
            status = found["status"]
            raise TimeoutError(f"run {status['run']} is still {status['state']} after {self._timeout_s:g} s: {status['message']}")
        return found["done"]


class Client(_Settings):
    """A client of a running service (``konkordia serve``).

    Parameters
    ----------
    url : str, optional
        Address of the service; else the environment's KONKORDIA_URL, else http://127.0.0.1:8090.
    token : str, optional
        For services that ask for one; else KONKORDIA_TOKEN.
    detector : str, optional
        Name of the detector, where a service has several.
    ca : path, optional
        Certificate that signed that of the service.
    timeout_s : float
        For each answer, in addition to waits that were asked for.

    Raises
    ------
    ServiceError
        From each method: the service refused (``code``, ``hint``), or cannot be reached.

    Examples
    --------
    A run from start to end::

        with konkordia.Client() as client, client.run(images=1000, prefix="lyso_03") as run:
            for image in run.frames():
                print(image.number, image.pixels.max())
        print(run.status["file"], run.status["message"])
    """

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _send(self, call: Call[T]) -> T:
        return self._send_for_pixels(call) if call.has_pixels else self._send_by_httpx(call)

    def _send_for_pixels(self, call: Call[T]) -> T:
        import http.client

        from ._connection import Connection

        own = self._of_thread
        if not hasattr(own, "connection"):
            trusted = self._trusted()
            timeout_s = self._timeout_s + WAIT_MAX_S
            own.connection = Connection(f"{self.url}/api/v1", self._headers(), timeout_s, None if trusted is True else trusted)
        try:
            answer = own.connection.get(call.path, call.parameters(self.detector))
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error
        return self._read(call, answer)

    def _send_by_httpx(self, call: Call[T]) -> T:
        import httpx

        if not hasattr(self, "_http"):
            self._http = httpx.Client(**self._options())
        try:
            response = self._http.request(call.method, call.path, params=call.parameters(self.detector), json=call.body)
        except httpx.TransportError as error:
            raise self._unreachable(error) from error
        return self._read(call, Answer(response.status_code, response.headers, response.content))

    def close(self) -> None:
        """Closes its connections."""
        if hasattr(self, "_http"):
            self._http.close()
            del self._http
        if hasattr(self._of_thread, "connection"):
            self._of_thread.connection.close()
            del self._of_thread.connection

    def version(self) -> Version:
        """The version of the service and of its interface."""
        return self._send(_calls.version())

    def status(self) -> DetectorStatus:
        """State, progress and file of the newest run."""
        return self._send(_calls.status())

    def statistics(self) -> DetectorStatistics:
        """Ledger, rates and queues of the newest run."""
        return self._send(_calls.statistics())

    def configuration(self) -> dict[str, Any]:
        """The configuration of the detector."""
        return self._send(_calls.configuration())

    def calibration(self) -> NextCalibration:
        """The calibration that the next run uses, or why there is none."""
        return self._send(_calls.calibration())

    def files(self) -> Files:
        """The files of the last runs."""
        return self._send(_calls.files())

    def logs(self, level: str | None = None, limit: int = 1000) -> Logs:
        """The newest entries of the log: who did what, and what happened."""
        return self._send(_calls.logs(level, limit))

    def image(self, number: int | str = "latest", *, channel: str | None = None, file: str | None = None) -> Image:
        """An image of the newest run that is still kept ("latest" or a number), or of a finished file."""
        return self._send(_calls.image(number, channel, file))

    def wait_for_image(
        self, after: Image | None = None, *, wait_s: float = 10.0, every_image: bool = False, channel: str | None = None
    ) -> Image | None:
        """An image that came after this one, with its ``facts``: the newest, or with ``every_image`` the oldest that is still
        kept, so that who is fast enough gets each. None if none came in time, or before the end of the run."""
        return self._send(_calls.unseen(Seen() if after is None else Seen.of(after), wait_s, every_image, channel))

    def dry_run(self, **request: Unpack[ArmRequest]) -> DryRun:
        """Whether an arm would be accepted, what its run needs, and what is wrong; prepares nothing, and a token that may view
        is enough."""
        return self._send(_calls.dry_run(_calls.run_request(request)))

    def arm(self, **request: Unpack[ArmRequest]) -> DetectorStatus:
        """Makes everything ready for a run; `start` then lets it begin.

        Parameters
        ----------
        images : int, optional
            Images of the run; 0 = until stopped.
        prefix : str, optional
            Start of the file names; may contain folders below the data root.
        write : bool, optional
            Whether files are written.
        append : bool, optional
            Whether the images go on in the file of the run before.
        metadata : dict, optional
            Facts for the file, for example ``{"energy_kev": 12.4, "sample_name": "lyso"}``.

        What is not given is as configured.
        """
        return self._send(_calls.command("arm", _calls.run_request(request)))

    def start(self, **request: Unpack[ArmRequest]) -> DetectorStatus:
        """Starts the run that is armed, or arms (as `arm`) and starts one."""
        return self._send(_calls.command("start", _calls.run_request(request)))

    def trigger(self) -> DetectorStatus:
        """Sends a software trigger."""
        return self._send(_calls.command("trigger", {}))

    def stop(self) -> DetectorStatus:
        """Ends the run; its file is complete."""
        return self._send(_calls.command("stop", {}))

    def close_file(self) -> DetectorStatus:
        """Closes the file that stays open behind its runs (``append``)."""
        return self._send(_calls.command("close", {}))

    def cancel(self) -> DetectorStatus:
        """Ends whatever goes on; what was received is kept."""
        return self._send(_calls.command("cancel", {}))

    def pedestal(self, **settings: Any) -> DetectorStatus:
        """Takes dark frames (``stage``, ``frames``, ``skip``, ...)."""
        return self._send(_calls.command("pedestal", settings))

    def wait(self, timeout_s: float | None = None, *, progress: Progress = False) -> DetectorStatus:
        """Waits until no run is armed or running, also while the service is restarted.

        Parameters
        ----------
        timeout_s : float, optional
            Longest wait; without, it has no end.
        progress : bool or "always"
            Shows a bar with the images of the run and those that are lost, in a notebook or a terminal; "always" also
            where stderr is no terminal. Needs tqdm (``pip install 'konkordia[progress]'``).

        Raises
        ------
        TimeoutError
            The time was over first; it says what was waited for.
        """
        with RunBar(progress) as bar:
            return self._wait(_Waiting(timeout_s, bar))

    def _wait(self, waiting: _Waiting) -> DetectorStatus:
        while True:
            try:
                found = self._send(_calls.wait(waiting.ask_s()))
            except ServiceError as error:
                waiting.go_on_after(error)
                time.sleep(AWAY_S)
                continue
            if waiting.is_over(found):
                return found["status"]
            time.sleep(waiting.pause_s)

    def run(self, **request: Unpack[ArmRequest]) -> Run:
        """Starts a run (as `start`) and gives it a name. At the end of its ``with`` block it is waited for; an error in the
        block cancels it."""
        return Run(self, self.start(**request))


class Run:
    """A run of a service, from `Client.run`.

    Attributes
    ----------
    number : int
        Of the run, from 1.
    """

    def __init__(self, client: Client, status: DetectorStatus) -> None:
        self._client = client
        self._ended: DetectorStatus | None = None
        self.number = status["run"]

    @property
    def status(self) -> DetectorStatus:
        """What the service says of it now, or said at its end."""
        return self._ended or self._now()

    def _now(self) -> DetectorStatus:
        status = self._client.status()
        if status["run"] != self.number:
            raise ServiceError(f"run {self.number} has ended, and run {status['run']} began since", "see client.files()", "other_run")
        if status["state"] not in ("armed", "running"):
            self._ended = status
        return status

    def wait(self, timeout_s: float | None = None, *, progress: Progress = False) -> DetectorStatus:
        """Waits for its end; as `Client.wait`."""
        if self._ended is None:
            status = self._client.wait(timeout_s, progress=progress)
            if status["run"] != self.number:
                return self._now()
            self._ended = status
        return self._ended

    def stop(self) -> DetectorStatus:
        """Ends it; its file is complete."""
        self._client.stop()
        return self.wait()

    def cancel(self) -> DetectorStatus:
        """Ends it now; what was received is kept."""
        if self._now()["state"] in ("armed", "running"):
            self._client.cancel()
        return self.wait()

    def frames(self, *, progress: Progress = False) -> Iterator[Image]:
        """Its images as they come, in order, until it has ended. The service keeps a few of the newest images; who is too
        slow gets fewer, as their numbers show. ``progress`` as in `Client.wait`."""
        with RunBar(progress) as bar:
            yield from self._frames(bar)

    def _frames(self, bar: RunBar) -> Iterator[Image]:
        client, longest_s = self._client, BAR_S if bar.is_on else LOOK_S
        seen, wait_s = Seen.before(self.number, client._send(_calls.numbers())), longest_s
        shown_s = 0.0
        while True:
            if bar.is_on and time.monotonic() - shown_s > BAR_S:
                bar.show(self._now())
                shown_s = time.monotonic()
            try:
                image = client._send(_calls.unseen(seen, wait_s, every_image=True))
            except ServiceError as error:
                if error.status == 404:  # It has gone meanwhile.
                    continue
                raise
            if image is not None:
                if image.run != self.number:
                    return
                seen = Seen.of(image)
                yield image
            elif wait_s == 0:
                bar.show(self.status)
                return
            elif _is_over(self.number, client.status()):
                wait_s = 0.0

    def __enter__(self) -> Run:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self.wait()
        else:
            self.cancel()

    def __repr__(self) -> str:
        return f"<konkordia.Run {self.number} of {self._client.url}>"


class AsyncClient(_Settings):
    """As `Client`, with ``await`` before each answer, ``async with`` and ``async for image in client.frames(run)``.

    Examples
    --------
    ::

        async with konkordia.AsyncClient() as client:
            status = await client.start(images=1000, prefix="lyso_03")
            async for image in client.frames(status["run"]):
                ...
            print(await client.wait())
    """

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _send(self, call: Call[T]) -> T:
        import httpx

        if not hasattr(self, "_http"):
            self._http = httpx.AsyncClient(**self._options())
        try:
            response = await self._http.request(call.method, call.path, params=call.parameters(self.detector), json=call.body)
        except httpx.TransportError as error:
            raise self._unreachable(error) from error
        return self._read(call, Answer(response.status_code, response.headers, response.content))

    async def close(self) -> None:
        """Closes its connections."""
        if hasattr(self, "_http"):
            await self._http.aclose()
            del self._http

    async def version(self) -> Version:
        """As `Client.version`."""
        return await self._send(_calls.version())

    async def status(self) -> DetectorStatus:
        """As `Client.status`."""
        return await self._send(_calls.status())

    async def statistics(self) -> DetectorStatistics:
        """As `Client.statistics`."""
        return await self._send(_calls.statistics())

    async def configuration(self) -> dict[str, Any]:
        """As `Client.configuration`."""
        return await self._send(_calls.configuration())

    async def calibration(self) -> NextCalibration:
        """As `Client.calibration`."""
        return await self._send(_calls.calibration())

    async def files(self) -> Files:
        """As `Client.files`."""
        return await self._send(_calls.files())

    async def logs(self, level: str | None = None, limit: int = 1000) -> Logs:
        """As `Client.logs`."""
        return await self._send(_calls.logs(level, limit))

    async def image(self, number: int | str = "latest", *, channel: str | None = None, file: str | None = None) -> Image:
        """As `Client.image`."""
        return await self._send(_calls.image(number, channel, file))

    async def wait_for_image(
        self, after: Image | None = None, *, wait_s: float = 10.0, every_image: bool = False, channel: str | None = None
    ) -> Image | None:
        """As `Client.wait_for_image`."""
        return await self._send(_calls.unseen(Seen() if after is None else Seen.of(after), wait_s, every_image, channel))

    async def dry_run(self, **request: Unpack[ArmRequest]) -> DryRun:
        """As `Client.dry_run`."""
        return await self._send(_calls.dry_run(_calls.run_request(request)))

    async def arm(self, **request: Unpack[ArmRequest]) -> DetectorStatus:
        """As `Client.arm`."""
        return await self._send(_calls.command("arm", _calls.run_request(request)))

    async def start(self, **request: Unpack[ArmRequest]) -> DetectorStatus:
        """As `Client.start`."""
        return await self._send(_calls.command("start", _calls.run_request(request)))

    async def trigger(self) -> DetectorStatus:
        """As `Client.trigger`."""
        return await self._send(_calls.command("trigger", {}))

    async def stop(self) -> DetectorStatus:
        """As `Client.stop`."""
        return await self._send(_calls.command("stop", {}))

    async def close_file(self) -> DetectorStatus:
        """As `Client.close_file`."""
        return await self._send(_calls.command("close", {}))

    async def cancel(self) -> DetectorStatus:
        """As `Client.cancel`."""
        return await self._send(_calls.command("cancel", {}))

    async def pedestal(self, **settings: Any) -> DetectorStatus:
        """As `Client.pedestal`."""
        return await self._send(_calls.command("pedestal", settings))

    async def wait(self, timeout_s: float | None = None, *, progress: Progress = False) -> DetectorStatus:
        """As `Client.wait`."""
        import asyncio

        with RunBar(progress) as bar:
            waiting = _Waiting(timeout_s, bar)
            while True:
                try:
                    found = await self._send(_calls.wait(waiting.ask_s()))
                except ServiceError as error:
                    waiting.go_on_after(error)
                    await asyncio.sleep(AWAY_S)
                    continue
                if waiting.is_over(found):
                    return found["status"]
                await asyncio.sleep(waiting.pause_s)

    async def frames(self, run: int) -> AsyncIterator[Image]:
        """The images of a run as they come, as `Run.frames`."""
        seen, wait_s = Seen.before(run, await self._send(_calls.numbers())), LOOK_S
        while True:
            try:
                image = await self._send(_calls.unseen(seen, wait_s, every_image=True))
            except ServiceError as error:
                if error.status == 404:  # It has gone meanwhile.
                    continue
                raise
            if image is not None:
                if image.run != run:
                    return
                seen = Seen.of(image)
                yield image
            elif wait_s == 0:
                return
            elif _is_over(run, await self.status()):
                wait_s = 0.0
