"""The images of a stream, as they come."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import _native
from ._errors import KonkordiaError
from ._geometry import Geometry
from ._peers import Peers, zmq_of_extra
from ._pictures import shown

if TYPE_CHECKING:
    import zmq

Protocol = Literal["stins", "stream1", "stream2", "sls"]
Parts = list[Any]

SMALL_BYTES = 4096
"""Parts up to this size are copied; that is faster than lending them."""
SPOT_FIELDS = {"x_px": "peakXPosRaw", "y_px": "peakYPosRaw", "intensity": "peakTotalIntensity"}
PROTOCOL_HINT = 'the protocols are "stins", "stream1", "stream2" and "sls"; without one, stream() finds it out'


class Times(NamedTuple):
    """When an image was exposed: seconds since the start of its series by the clock of the detector."""

    start_s: float
    stop_s: float
    exposure_s: float


class SeriesStart:
    """What the sender says of a series before its images.

    Attributes
    ----------
    series : int
        Number of the series, as the sender counts; 0 in STINS, which has none.
    unique_id, filename : str or None
        If the sender gives them.
    images : int or None
        Images that the sender announces.
    shape : (int, int) or None
        Rows and columns of an image, if they are announced.
    dtype : numpy.dtype or None
        Of a pixel, if it is announced.
    thresholds_ev : dict
        Threshold of each channel, where it is known.
    facts : dict
        What is known of the measurement, with units in the names: ``energy_kev``, ``distance_mm``, ``beam_center_px``,
        ``pixel_size_um``, ``exposure_s``, ... What is not known is not there.
    metadata : dict
        Everything that was said, as it was said.
    warnings : list of str
        What cannot be used of it.
    """

    def __init__(self, native: _native.StreamStart) -> None:
        self._native = native
        self.series = native.series
        self.unique_id = native.unique_id or None
        self.filename = native.filename
        self.images = native.images_planned
        self.shape = native.image_size
        dtype = native.dtype
        self.dtype = None if dtype is None else np.dtype(dtype)
        self._channels = [name for name, _ in native.channels]
        self.thresholds_ev = {name: threshold for name, threshold in native.channels if threshold is not None}
        self.facts: dict[str, Any] = json.loads(native.facts)
        self.metadata: dict[str, Any] = json.loads(native.metadata)
        self.warnings = native.warnings

    @property
    def channels(self) -> list[str]:
        """Names of the channels that are announced."""
        return list(self._channels)

    def geometry(self, shape: tuple[int, int] | None = None) -> Geometry:
        """Where the pixels of its images lie; `shape` is needed where the sender announced none.

        Raises
        ------
        KonkordiaError
            The sender does not say enough; the error says what is missing.
        """
        wanted = shape or self.shape
        if wanted is None:
            raise KonkordiaError("the sender does not say how many pixels an image has", "give the shape of an image", 3)
        found, why = self._native.geometry((wanted[0], wanted[1]))
        if found is None:
            raise KonkordiaError(f"the series has no geometry: {why}", "konkordia.Geometry(...) makes one", 3)
        return Geometry._of(found)

    def pixel_mask(self, channel: str | None = None) -> NDArray[np.uint32] | None:
        """The mask that the sender gives, 0 where a pixel is good; None if there is none."""
        return self._table("pixel_mask", channel)

    def flat_field(self, channel: str | None = None) -> NDArray[np.float32] | None:
        """The flat field that the sender gives; None if there is none."""
        return self._table("flat_field", channel)

    def _table(self, name: str, channel: str | None) -> NDArray[Any] | None:
        number = 0 if channel is None else _place(self._channels, channel)
        described = self._native.table(number, name)
        if described is None:
            return None
        out = np.empty(described[0], described[1])
        try:
            self._native.unpack_table(number, name, out)
        except ValueError as error:
            raise KonkordiaError(f"the {name} of the series cannot be unpacked: {error}", "its sender is broken", 1) from error
        return out

    def __repr__(self) -> str:
        size = "" if self.shape is None else f", {self.shape[0]} x {self.shape[1]} pixels"
        images = "" if self.images is None else f", {self.images} images"
        return f"<konkordia.SeriesStart of series {self.series}{images}{size}>"


def _place(names: list[str], name: str) -> int:
    if name not in names:
        raise KeyError(f"there is no channel {name!r}; there are: {', '.join(map(repr, names))}")
    return names.index(name)


class Channels(Mapping[str, NDArray[Any]]):
    """The channels of an image by name, each unpacked when it is first asked for. An image without named channels has one,
    whose name is empty."""

    def __init__(self, native: _native.StreamImage, number: int) -> None:
        self._native, self._number = native, number
        self._names = native.channel_names
        self._pixels: dict[str, NDArray[Any]] = {}

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name not in self._pixels:
            self._pixels[name] = self.read(name)
        return self._pixels[name]

    def read(self, name: str, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Unpacks a channel into `out`, or into a new array."""
        place = _place(self._names, name)
        if out is None:
            shape, dtype, _ = self._native.described(place)
            out = np.empty(shape, dtype)
        elif (list(out.shape), out.dtype.name) != self._native.described(place)[:2]:
            shape, dtype, _ = self._native.described(place)
            raise ValueError(f"out must be a {dtype} array of shape {tuple(shape)}, not {out.dtype} of shape {out.shape}")
        elif not out.flags.c_contiguous or not out.flags.writeable:
            raise ValueError("out must be C-contiguous and writeable: numpy.empty(...)")
        try:
            self._native.unpack(place, out)
        except ValueError as error:
            hint = "the images before and after it can be read; `konkordia stream` can record what its sender sends"
            raise KonkordiaError(f"the pixels of image {self._number} are damaged: {error}", hint, 1) from error
        return out

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __repr__(self) -> str:
        return f"<channels {', '.join(map(repr, self._names))}>"


class Frame:
    """An image of a stream, with the memory of the message that brought it.

    Attributes
    ----------
    number : int
        Of the image in its series, from 0.
    series : int
        Of the series, as the sender counts; 0 in STINS, which has no numbers of series.
    start : SeriesStart or None
        The start of the series; None if it was sent before anybody listened.
    lost : int
        Images that are missing directly before this one.
    is_partial : bool
        The sender says that a part of its pixels is missing.
    channels : mapping of str to ndarray
        Thresholds and the like by name.
    """

    def __init__(self, native: _native.StreamImage, series: int, start: SeriesStart | None, lost: int) -> None:
        self._native = native
        self.number = native.number
        self.series, self.start, self.lost = series, start, lost
        self.is_partial = native.is_partial
        self.channels = Channels(native, self.number)
        self._about: dict[str, Any] | None = None

    @property
    def image(self) -> NDArray[Any]:
        """Its pixels (of the first of several channels), unpacked when first asked for and kept: rows x columns."""
        return self.channels[self.channels._names[0]]

    def read(self, out: NDArray[Any] | None = None, *, channel: str | None = None) -> NDArray[Any]:
        """Unpacks its pixels, which are not kept.

        Parameters
        ----------
        out : ndarray, optional
            C-contiguous array of its shape and dtype that is filled and returned.
        channel : str, optional
            The channel; the first if it is not given.

        Raises
        ------
        KonkordiaError
            The pixels are damaged.
        """
        return self.channels.read(self.channels._names[0] if channel is None else channel, out)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of its (first) image, without unpacking it."""
        return tuple(self._native.described(0)[0])

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of its (first) image, without unpacking it."""
        return np.dtype(self._native.described(0)[1])

    @property
    def times(self) -> Times | None:
        """When it was exposed, if the sender says so."""
        ns = self._native.times_ns
        return None if ns is None else Times(*(1e-9 * time_ns for time_ns in ns))

    @property
    def metadata(self) -> dict[str, Any]:
        """What else the sender says of the image, as it was said."""
        if self._about is None:
            text = self._native.about
            self._about = json.loads(text) if text else {}
        return self._about

    @property
    def results(self) -> dict[str, Any]:
        """What a Konkordia service computed of the image (docs/formats.md lists the names); empty if nothing."""
        said = self.metadata
        user = said.get("user_data", said.get("addJsonHeader", said))
        if not isinstance(user, dict):
            return {}
        return {name: _number(value) for name, value in user.items() if _native.is_result(name)}

    @property
    def spots(self) -> NDArray[Any] | None:
        """Bragg spots that a Konkordia service found: ``x_px``, ``y_px``, ``intensity``; None if it did not look for them."""
        results = self.results
        if not all(name in results for name in SPOT_FIELDS.values()):
            return None
        spots = np.zeros(len(results["peakXPosRaw"]), [(field, "f8") for field in SPOT_FIELDS])
        for field, name in SPOT_FIELDS.items():
            spots[field] = results[name]
        return spots

    def __repr__(self) -> str:
        shape = " x ".join(map(str, self.shape))
        channels = f", channels {', '.join(self.channels)}" if len(self.channels) > 1 else ""
        return f"<konkordia.Frame {self.number} of series {self.series}: {shape} pixels, {self.dtype}{channels}>"

    def _repr_html_(self) -> str:
        """For notebooks: the image."""
        try:
            return shown([repr(self)], self.image, f"image {self.number}")
        except KonkordiaError as error:
            return shown([repr(self), str(error)])


def _number(value: Any) -> Any:
    """A result; the SLS protocol carries numbers as text."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value


def stream(
    url: str,
    *,
    protocol: Protocol | None = None,
    follow: bool = False,
    timeout_s: float | None = None,
    bind: bool = False,
    on_error: Callable[[KonkordiaError], object] | None = None,
    queue_messages: int = 64,
    message_mib: int = 1024,
) -> Stream:
    """The images of a stream, as they come: of a detector, of a service (``[[stream]]``), or of a `Streamer`.

    Parameters
    ----------
    url : str
        ZeroMQ address of the sender, such as "tcp://daq1:9999".
    protocol : {"stins", "stream1", "stream2", "sls"}, optional
        STINS, DECTRIS Stream V1 or V2, or that of the SLS receivers; found out by the first message if it is not given.
    follow : bool
        Go on with the next series when one has ended. Without it the loop ends with the series; a further loop over the
        same stream gives the next one.
    timeout_s : float, optional
        If nothing comes for so long, the loop ends with a TimeoutError.
    bind : bool
        Listen at `url` for senders that connect, instead of connecting to one.
    on_error : callable, optional
        Called with the error of a message that cannot be read; the loop then goes on. Without it the loop raises the
        error; a further loop over the same stream goes on behind that message.
    queue_messages : int
        Messages that may wait here. When they are full, a sender waits or leaves images out, as it is set.
    message_mib : int
        Largest part of a message, and largest image when it is unpacked; larger ones are refused.

    Returns
    -------
    Stream
        For ``for`` and ``async for``; also a context manager.

    Raises
    ------
    ValueError
        The address or an argument makes no sense. (Whether somebody is there shows only later.)
    KonkordiaError
        From the loop: a message cannot be read. The images before and after it can.
    TimeoutError
        From the loop: nothing came for `timeout_s`; it says whether a sender is connected.

    Examples
    --------
    ::

        for frame in konkordia.stream("tcp://daq1:9999"):
            print(frame.number, frame.image.max(), frame.lost)

    Here both ends are in one program:

    >>> import konkordia, numpy as np
    >>> images = np.arange(3 * 64, dtype=np.uint16).reshape(3, 8, 8)
    >>> with konkordia.Streamer("tcp://127.0.0.1:*", shape=(8, 8), dtype="uint16") as out:
    ...     frames = konkordia.stream(out.url, timeout_s=10)
    ...     out.series(images=3)
    ...     for image in images:
    ...         _ = out.send(image)
    ...     out.end()
    ...     found = [(frame.number, int(frame.image.max())) for frame in frames]
    >>> found
    [(0, 63), (1, 127), (2, 191)]
    """
    return Stream(url, protocol, follow, timeout_s, bind, on_error, queue_messages, message_mib)


class _Upstream:
    """A socket that receives."""

    def __init__(self, context: zmq.Context[Any], kind: int, url: str, bind: bool, queue_messages: int, message_mib: int) -> None:
        import zmq

        self.socket = context.socket(kind)
        self.socket.linger, self.socket.rcvhwm = 0, queue_messages
        self.socket.setsockopt(zmq.MAXMSGSIZE, message_mib << 20)
        if kind == zmq.SUB:
            self.socket.setsockopt(zmq.SUBSCRIBE, b"")
        self.peers = Peers(self.socket)
        try:
            (self.socket.bind if bind else self.socket.connect)(url)
        except zmq.ZMQError as error:
            self.close()
            what = "listen at" if bind else "connect to"
            raise ValueError(f"cannot {what} {url!r}: {error.strerror}; an address is like tcp://host:9999") from error

    def close(self) -> None:
        self.peers.close()
        self.socket.close(linger=0)


class Stream:
    """Images of a stream; made by `stream`. Loop over it with ``for`` or ``async for``.

    Attributes
    ----------
    url : str
        Where it receives, with the port that the system chose.
    start : SeriesStart or None
        The start of the present series, if it was seen.
    received : int
        Images that came, of all series.
    lost : int
        Images that are missing, of all series: their numbers were skipped, or, in STINS, the numbers of their messages.
    refused : int
        Messages that could not be read.
    """

    def __init__(
        self,
        url: str,
        protocol: Protocol | None,
        follow: bool,
        timeout_s: float | None,
        bind: bool,
        on_error: Callable[[KonkordiaError], object] | None,
        queue_messages: int,
        message_mib: int,
    ) -> None:
        zmq = zmq_of_extra()
        if queue_messages < 1 or message_mib < 1 or (timeout_s is not None and not timeout_s >= 0):
            raise ValueError("queue_messages and message_mib are 1 or more, timeout_s is 0 or more")
        self._image_bytes_max = message_mib << 20
        self._decoder = None if protocol is None else _native.StreamDecoder(protocol, self._image_bytes_max)
        self._protocol: str | None = protocol
        self._follow, self._timeout_s, self._on_error = follow, timeout_s, on_error
        self.start: SeriesStart | None = None
        self.received = self.lost = self.refused = 0
        self._is_open, self._series = False, 0
        self._next_number: int | None = None
        self._last_message: int | None = None
        self._waiting: Frame | Literal["end"] | None = None
        self._process = os.getpid()
        self._mutex, self._is_busy, self.is_closed = threading.Lock(), False, False
        self._no_wait, self._nothing = zmq.NOBLOCK, zmq.Again
        self._context = zmq.Context()
        kinds = _kinds(protocol, bind)
        self._upstreams: list[_Upstream] = []
        try:
            for kind in kinds:
                self._upstreams.append(_Upstream(self._context, kind, url, bind, queue_messages, message_mib))
        except ValueError:
            for upstream in self._upstreams:
                upstream.close()
            self._context.term()
            raise
        self.url: str = self._upstreams[0].socket.last_endpoint.decode() if bind else url
        self._woken, self._wake = os.pipe()
        self._poller = self._polled()

    @property
    def protocol(self) -> str | None:
        """The protocol; None until it is found out."""
        return self._protocol

    def __iter__(self) -> Iterator[Frame]:
        while (frame := self._next()) is not None:
            yield frame

    async def __aiter__(self) -> AsyncIterator[Frame]:
        while (frame := await self._anext()) is not None:
            yield frame

    def _next(self) -> Frame | None:
        """The next image; None at the end of the series, or when the stream was closed."""
        self._enter()
        try:
            end = self._deadline()
            while not self.is_closed:
                found = self._take()
                if found is not None:
                    return found if isinstance(found, Frame) else None
                left_s = self._left_s(end)
                ready = dict(self._poller.poll(None if left_s is None else int(1000 * left_s) + 1))
                if any(upstream.peers.socket in ready for upstream in self._upstreams):
                    self._look()
            return None
        finally:
            self._leave()

    async def _anext(self) -> Frame | None:
        """As `_next`, with ``await``."""
        import asyncio

        # Other tasks have their turn even where there is always an image.
        await asyncio.sleep(0)
        self._enter()
        try:
            end = self._deadline()
            while not self.is_closed:
                found = self._take()
                if found is not None:
                    return found if isinstance(found, Frame) else None
                await self._readable(self._left_s(end))
                self._look()
            return None
        finally:
            self._leave()

    async def _readable(self, left_s: float | None) -> None:
        """Returns when something has happened at a socket, or the time is over."""
        import asyncio

        import zmq

        loop = asyncio.get_running_loop()
        woken: asyncio.Future[None] = loop.create_future()
        sockets = [socket for upstream in self._upstreams for socket in (upstream.socket, upstream.peers.socket)]
        handles = [self._woken, *(int(socket.getsockopt(zmq.FD)) for socket in sockets)]
        for handle in handles:
            loop.add_reader(handle, lambda: None if woken.done() else woken.set_result(None))
        try:
            # The handle of a socket tells of changes only; what is there already shows in its events.
            if not any(int(socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN for socket in sockets):
                await asyncio.wait([woken], timeout=left_s)
        finally:
            for handle in handles:
                loop.remove_reader(handle)

    def _deadline(self) -> float | None:
        return None if self._timeout_s is None else time.monotonic() + self._timeout_s

    def _left_s(self, end: float | None) -> float | None:
        """The time that is left; an error if none is."""
        if end is None:
            return None
        left_s = end - time.monotonic()
        if left_s <= 0:
            raise TimeoutError(self._still())
        return left_s

    def _still(self) -> str:
        seen = [upstream.peers for upstream in self._upstreams if upstream.peers.ever]
        who = "nobody is there" if not seen else "the sender has gone away"
        if any(peers.connected for peers in seen):
            who = "the sender is connected"
        where = f" after image {self._next_number - 1} of series {self._series}" if self._next_number else ""
        return f"no message from {self.url} for {self._timeout_s:g} s{where}: {who}"

    def _enter(self) -> None:
        """From here to `_leave` there is one user; a stream that is closed meanwhile is shut by its user."""
        if os.getpid() != self._process:
            raise KonkordiaError("the stream was opened by another process", "open one in this process: konkordia.stream(...)", 5)
        with self._mutex:
            if self._is_busy:
                raise KonkordiaError("somebody else already waits for this stream", "one thread or task loops over a stream", 5)
            self._is_busy = True

    def _leave(self) -> None:
        with self._mutex:
            self._is_busy = False
            shut = self.is_closed
        if shut:
            self._shut()

    def close(self) -> None:
        """Ends the loop and closes the sockets; any thread may do so, also while another one waits in the loop."""
        if os.getpid() != self._process:
            return
        with self._mutex:
            is_first, self.is_closed = not self.is_closed, True
            if self._is_busy and is_first:
                os.write(self._wake, b".")
            shut = not self._is_busy
        if shut:
            self._shut()

    def _shut(self) -> None:
        with self._mutex:
            upstreams, self._upstreams = self._upstreams, []
            wakes, self._woken, self._wake = [self._woken, self._wake], -1, -1
        for upstream in upstreams:
            upstream.close()
        if wakes[0] >= 0:
            self._context.term()
            for wake in wakes:
                os.close(wake)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_wake"):
            self.close()

    def __repr__(self) -> str:
        closed = ", closed" if self.is_closed else ""
        protocol = self._protocol or "protocol not known yet"
        return f"<konkordia.Stream {self.url}, {protocol}: {self.received} images, {self.lost} lost{closed}>"

    def _polled(self) -> zmq.Poller:
        import zmq

        poller = zmq.Poller()
        poller.register(self._woken, zmq.POLLIN)
        for upstream in self._upstreams:
            poller.register(upstream.socket, zmq.POLLIN)
            poller.register(upstream.peers.socket, zmq.POLLIN)
        return poller

    def _look(self) -> None:
        """Once one of several kinds of sockets has a sender, it is the right one."""
        for upstream in self._upstreams:
            upstream.peers.look()
        right = [upstream for upstream in self._upstreams if upstream.peers.ever]
        if right and len(self._upstreams) > 1:
            for upstream in self._upstreams:
                if upstream is not right[0]:
                    upstream.close()
            self._upstreams = right[:1]
            self._poller = self._polled()

    def _message(self) -> Parts | None:
        """The parts of the next message, if there is one."""
        for upstream in self._upstreams:
            try:
                frames = upstream.socket.recv_multipart(self._no_wait, copy=False)
            except self._nothing:
                continue
            return [frame.bytes if len(frame) <= SMALL_BYTES else np.frombuffer(frame.buffer, np.uint8) for frame in frames]
        return None

    def _take(self) -> Frame | Literal["end"] | None:
        """What comes next of what is there; None if it has to come first."""
        if self._waiting is not None:
            waiting, self._waiting = self._waiting, None
            return waiting
        while (message := self._message()) is not None:
            try:
                found = self._read(message)
            except KonkordiaError as error:
                self.refused += 1
                if self._on_error is None:
                    raise
                self._on_error(error)
                continue
            if found is not None:
                return found
        return None

    def _read(self, message: Parts) -> Frame | Literal["end"] | None:
        decoder = self._decoder or self._found(message)
        try:
            kind, number, series, start, image = decoder.read(message)
        except ValueError as error:
            seems = _native.protocol_of(message)
            hint = "it is left out; the messages before and after it can be read"
            if seems is not None and seems != self._protocol:
                hint = f'it seems to be one of protocol "{seems}"; {PROTOCOL_HINT}'
            what = f"a message from {self.url} cannot be read ({self._protocol or seems}): {error}"
            raise KonkordiaError(what, hint, 1) from error
        if self._decoder is None:
            self._decoder, self._protocol = decoder, _native.protocol_of(message)
        if kind == "start" and start is not None:
            return self._begin(series, SeriesStart(start), number)
        if kind == "end":
            return self._end(series, number)
        return None if image is None else self._image(series, start, image, number)

    def _found(self, message: Parts) -> _native.StreamDecoder:
        protocol = _native.protocol_of(message)
        if protocol is None:
            raise KonkordiaError(f"a message from {self.url} is of no protocol that is known", PROTOCOL_HINT, 1)
        return _native.StreamDecoder(protocol, self._image_bytes_max)

    def _begin(self, series: int, start: SeriesStart | None, message: int | None) -> Literal["end"] | None:
        was_open = self._is_open
        self._is_open, self._series, self.start = True, series, start
        self._next_number = None if start is None else 0
        self._last_message = message
        return "end" if was_open and not self._follow else None

    def _end(self, series: int, message: int | None) -> Literal["end"] | None:
        if not self._is_open or series != self._series:
            return None
        if message is not None and self._last_message is not None:
            self.lost += max(0, message - self._last_message - 1)
        self._is_open, self._next_number = False, None
        return None if self._follow else "end"

    def _image(
        self, series: int, start: _native.StreamStart | None, image: _native.StreamImage, message: int | None
    ) -> Frame | Literal["end"]:
        has_ended = None
        if not self._is_open or series != self._series:
            # The protocol has no start, or it was sent before anybody listened.
            has_ended = self._begin(series, None if start is None else SeriesStart(start), None)
            # Whether images were sent before is not known.
            self._next_number = None
        lost = 0 if self._next_number is None else max(0, image.number - self._next_number)
        self._next_number = max(self._next_number or 0, image.number + 1)
        self._last_message = message
        self.received, self.lost = self.received + 1, self.lost + lost
        frame = Frame(image, series, self.start, lost)
        if has_ended is None:
            return frame
        self._waiting = frame
        return has_ended


def _kinds(protocol: Protocol | None, bind: bool) -> list[int]:
    """The kinds of sockets that receive it. What is not known is tried: the wrong one gets no connection."""
    import zmq

    if protocol == "sls":
        return [zmq.SUB]
    # A service may publish any protocol, so a kind that was not said is always tried. Two sockets cannot listen at once.
    return [zmq.PULL] if bind else [zmq.PULL, zmq.SUB]
