"""A detector for Bluesky: `KonkordiaDetector` is an ophyd-async `StandardDetector` that drives a running service.

It needs ophyd-async 0.21: ``pip install 'konkordia[bluesky]'``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ophyd_async.core import (
    DetectorAcquireLogic,
    DetectorDataLogic,
    DetectorTriggerLogic,
    PathProvider,
    SignalDict,
    SignalR,
    StandardDetector,
    StreamableDataProvider,
    StreamResourceDataProvider,
    StreamResourceInfo,
    TriggerInfo,
    WatcherUpdate,
    soft_signal_r_and_setter,
    soft_signal_rw,
)

from ._client import AsyncClient
from ._errors import KonkordiaError

if TYPE_CHECKING:
    from ._schema import ArmRequest, DetectorStatus, RunNeeds

POLL_S = 0.05
"""Between two looks at the number of images, while somebody waits for them."""
MASTER = "_master.h5"
US_PER_S = 1e6


class _Session:
    """What the parts of a detector share: the client, and the runs that this detector began."""

    def __init__(self, client: AsyncClient, path_provider: PathProvider | None, metadata: Mapping[str, Any]) -> None:
        self.client = client
        self._path_provider = path_provider
        self._metadata = dict(metadata)
        self._lock = asyncio.Lock()
        self.images = 1
        self._times: dict[str, float] = {}
        self._prefix: str | None = None
        self._run: int | None = None
        self._is_ending = False
        self._master: str | None = None

    def prepare(self, images: int, exposure_s: float, dead_time_s: float) -> None:
        """The next run has these images; 0 = as configured."""
        self.images = images
        self._times = {}
        if exposure_s > 0:
            self._times = {"count_time_us": exposure_s * US_PER_S, "frame_time_us": (exposure_s + dead_time_s) * US_PER_S}

    def _request(self) -> ArmRequest:
        return {"images": self.images, "prefix": self._prefix, "metadata": {**self._metadata, **self._times}, "append": True}

    async def announce(self, name: str) -> RunNeeds:
        """Chooses the file of the runs to come, and says what is in it."""
        self._prefix = None
        if self._path_provider is not None:
            info = self._path_provider(name)
            self._prefix = str(PurePath(info.directory_path) / info.filename)
        asked = await self.client.dry_run(**self._request())
        if not asked["ok"]:
            problem = asked["problems"][0]
            raise KonkordiaError(problem["detail"], problem["hint"])
        needs = asked["needs"]
        if needs["dataset"] is None or needs["image_size"] is None or needs["dtype"] is None:
            raise KonkordiaError(
                "the images of this detector would have no data set of their own",
                'set [output] layout = "both" or "virtual", and write = true; a detector that sends series cannot be appended',
            )
        master = needs["file"]
        assert master is not None, "a run with a data set has a file"
        # The name is chosen here, so that all runs until the next announcement have it.
        self._prefix = self._prefix or master.removesuffix(MASTER)
        self._master = master
        return needs

    async def start(self) -> None:
        """Arms the next run and starts it. Its images come behind those of the runs before."""
        status = await self.client.start(**self._request())
        if status["file"] != self._master:
            await self.client.cancel()
            what = f"the service writes {status['file']}, and announced {self._master}"
            raise KonkordiaError(what, "does somebody else drive it? look at `konkordia status`")
        self._run, self._is_ending = status["run"], False

    async def images_written(self) -> int:
        """Positions of the file that have their final state."""
        return self._count(await self.client.status())

    def _count(self, status: DetectorStatus) -> int:
        before = status.get("open_file")
        if self._run is None or (before is not None and before["file"] != self._master):
            return 0
        count = before["images"] if before else 0
        return count + status["images_written"] if self._is_ours(status) else count

    def _is_ours(self, status: DetectorStatus) -> bool:
        return status["run"] == self._run and status["state"] in ("armed", "running")

    async def watch(self, written: Callable[[int], None]) -> KonkordiaError | None:
        """Tells how many images are written whenever that changes, and returns the reason when the run has ended without
        all its images; None when it was ended from here."""
        known = -1
        while not self._is_ending:
            status = await self.client.status()
            if (count := self._count(status)) != known:
                known = count
                written(count)
            if status["run"] == self._run and status["state"] not in ("armed", "running"):
                missing = status["images_not_received"] + status["images_not_taken"] + status["images_unwritten"]
                if (missing or status["state"] == "error") and not self._is_ending:
                    return KonkordiaError(status["message"], status["hint"] or "")
            await asyncio.sleep(POLL_S)
        return None

    async def waited_for(self, seconds: float) -> KonkordiaError:
        """What did not come, after so many seconds without a further image."""
        status = await self.client.status()
        what = f"no further image for {seconds:g} s: run {status['run']} is {status['state']}, {status['images_written']} of"
        what = f"{what} {status['images_expected']} images are written: {status['message']}"
        return KonkordiaError(what, status["hint"] or "look at the triggers of the detector and at `konkordia status`")

    async def wait(self) -> None:
        status = await self.client.wait()
        if status["run"] == self._run and status["state"] == "error":
            raise KonkordiaError(status["message"], status["hint"] or "")

    async def refuse_if_taken(self) -> None:
        """Another operator's run is never ended from here."""
        status = await self.client.status()
        if status["state"] in ("armed", "running") and status["run"] != self._run:
            operator = status.get("operator")
            who = f"{operator['name']}, since {operator['since']}" if operator else "its sender began it"
            raise KonkordiaError(f"the detector has run {status['run']} ({who})", "wait for its end, or end it there")

    async def finish(self) -> None:
        """Ends the run that was begun here, and closes the file; does nothing a second time."""
        async with self._lock:
            if self._run is None:
                return
            self._is_ending = True
            status = await self.client.status()
            if self._is_ours(status):
                await self.client.stop()
                await self.client.wait()
            open_file = status.get("open_file")
            if self._is_ours(status) or (open_file is not None and open_file["file"] == self._master):
                await self.client.close_file()
            self._run = None


class _TriggerLogic(DetectorTriggerLogic):
    def __init__(self, session: _Session, dead_time_s: SignalR[float]) -> None:
        self._session = session
        self._dead_time_s = dead_time_s

    def config_sigs(self) -> set[SignalR[Any]]:
        return {self._dead_time_s}

    def get_deadtime(self, config_values: SignalDict) -> float:
        return float(config_values[self._dead_time_s])

    async def prepare_internal(self, num: int, livetime: float, deadtime: float) -> None:
        self._session.prepare(num, livetime, max(deadtime, await self._dead_time_s.get_value()))

    async def prepare_edge(self, num: int, livetime: float) -> None:
        self._session.prepare(num, livetime, await self._dead_time_s.get_value())

    async def prepare_level(self, num: int) -> None:
        # The gate decides how long each exposure is.
        self._session.prepare(num, 0.0, 0.0)

    async def default_trigger_info(self) -> TriggerInfo:
        return TriggerInfo()


class _AcquireLogic(DetectorAcquireLogic):
    def __init__(self, session: _Session) -> None:
        self._session = session

    async def ensure_ready(self) -> None:
        await self._session.refuse_if_taken()
        await self._session.finish()

    async def start_acquiring(self) -> None:
        await self._session.start()

    async def wait_for_idle(self) -> None:
        await self._session.wait()

    async def ensure_stopped(self) -> None:
        await self._session.finish()


class _DataLogic(DetectorDataLogic):
    def __init__(self, session: _Session, written: SignalR[int]) -> None:
        self._session = session
        self._written = written

    async def prepare_unbounded(self, datakey_name: str) -> StreamableDataProvider:
        needs = await self._session.announce(datakey_name)
        rows, columns = needs["image_size"] or [0, 0]
        info = StreamResourceInfo(
            data_key=datakey_name,
            shape=(rows, columns),
            chunk_shape=(1, rows, columns),
            dtype_numpy=numpy_name(needs["dtype"] or ""),
            parameters={"dataset": needs["dataset"]},
        )
        uri = f"file://localhost{quote(needs['file'] or '')}"
        return StreamResourceDataProvider(uri, [info], "application/x-hdf5", self._written)

    async def stop(self) -> None:
        await self._session.finish()


def numpy_name(dtype: str) -> str:
    """The type as event descriptors have it.

    Examples
    --------
    >>> numpy_name("uint16"), numpy_name("float32")
    ('<u2', '<f4')
    """
    import numpy as np

    return np.dtype(dtype).newbyteorder("<").str


class KonkordiaDetector(StandardDetector):
    """The detector of a running service, for Bluesky plans.

    Step scans (`bp.count`, `bp.scan`) arm for each point and append the images to one file; fly scans (`prepare`,
    `kickoff`, `complete`) arm once. The file is closed at the end of the scan (unstage), also after an abort, and is then
    complete. Who holds the detector is respected: the run of another operator is not ended.

    Parameters
    ----------
    url : str, optional
        Address of the service; else the environment's KONKORDIA_URL, else http://127.0.0.1:8090.
    path_provider : PathProvider, optional
        Names the files, below the data root of the service; by default the service numbers them.
    dead_time_s : float
        Shortest time between two exposures, in seconds. It is a property of the detector and its readout mode.
    metadata : mapping, optional
        Facts for the file, as `Client.arm` takes them (``energy_kev``, ``sample_name``, ...).
    name : str
        Of the device.
    token, detector, ca
        As for `konkordia.Client`.

    Examples
    --------
    ::

        from bluesky import RunEngine, plans as bp
        from konkordia.bluesky import KonkordiaDetector
        from ophyd_async.core import init_devices

        RE = RunEngine()
        with init_devices():
            jungfrau = KonkordiaDetector("http://127.0.0.1:8090", dead_time_s=20e-6)
        RE(bp.count([jungfrau], num=10))
    """

    def __init__(
        self,
        url: str | None = None,
        path_provider: PathProvider | None = None,
        *,
        dead_time_s: float = 0.0,
        metadata: Mapping[str, Any] | None = None,
        name: str = "",
        token: str | None = None,
        detector: str | None = None,
        ca: str | None = None,
    ) -> None:
        self._session = _Session(AsyncClient(url, token=token, detector=detector, ca=ca), path_provider, metadata or {})
        self.dead_time_s = soft_signal_rw(float, dead_time_s, units="s")
        self.images_written, self._set_written = soft_signal_r_and_setter(int, 0, getter=self._session.images_written)
        self.state, _ = soft_signal_r_and_setter(str, "", getter=self._state, poll_period=4 * POLL_S)
        self.message, _ = soft_signal_r_and_setter(str, "", getter=self._message, poll_period=4 * POLL_S)
        self.add_detector_logics(
            _TriggerLogic(self._session, self.dead_time_s),
            _AcquireLogic(self._session),
            _DataLogic(self._session, self.images_written),
        )
        super().__init__(name=name)

    async def _state(self) -> str:
        return (await self._session.client.status())["state"]

    async def _message(self) -> str:
        return (await self._session.client.status())["message"]

    async def _wait_for_index(
        self, data_providers: Sequence[StreamableDataProvider], trigger_info: TriggerInfo, *arguments: Any, **options: Any
    ) -> AsyncIterator[WatcherUpdate[int]]:
        """As ophyd-async does it, but a run that ends without all its images is an error at once, with the reason; and when
        the time for an image is over, the error says what did not come."""
        updates = aiter(super()._wait_for_index(data_providers, trigger_info, *arguments, **options))
        watch = asyncio.ensure_future(self._session.watch(self._set_written))
        try:
            while True:
                update = asyncio.ensure_future(anext(updates))
                await asyncio.wait({update, watch}, return_when=asyncio.FIRST_COMPLETED)
                if not update.done():
                    update.cancel()
                    if (reason := watch.result()) is not None:
                        raise reason
                    return
                try:
                    yield update.result()
                except StopAsyncIteration:
                    return
                except TimeoutError as error:
                    raise await self._session.waited_for(trigger_info.exposure_timeout) from error
        finally:
            watch.cancel()
