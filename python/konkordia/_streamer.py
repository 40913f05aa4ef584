"""Frames of a detector's SDK as a stream."""

from __future__ import annotations

import json
import os
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal

import numpy as np
from numpy.typing import DTypeLike, NDArray

from . import _native
from ._errors import KonkordiaError
from ._peers import Peers, closed, zmq_of_extra
from ._stream import Times

ATTEMPT_MS = 50
"""One attempt to send waits so long, so that a stop and a receiver that goes are noticed."""
TAKEN_MESSAGES = 2
"""Messages that libzmq may take ahead: they are lost when the receiver goes away."""


@dataclass
class _Image:
    """An image on its way: its channels, packed or being packed."""

    number: int
    channels: list[Any]
    metadata: str | None
    times: Times | None
    aborts: int


@dataclass
class _Start:
    """The beginning of a series."""

    series: int
    filename: str | None
    images: int | None
    metadata: str


class Streamer:
    """Sends the frames of a detector's SDK as a stream that a service (or `stream`) receives. Frames wait in a bounded
    queue and are packed and sent by threads.

    Parameters
    ----------
    address : str
        Where it listens for the receiver: "tcp://*:9999"; with ``connect=True`` the address of a receiver that listens.
        One receiver only: several would share the images.
    shape : sequence of int
        Rows and columns of a frame; with several `channels`, of each of them.
    dtype
        Of a pixel.
    protocol : {"stins", "stream2"}
        STINS, or DECTRIS Stream V2 (whole numbers of 8 to 32 bits).
    channels : sequence of str
        Names of the channels of Stream V2, such as ["threshold_1", "threshold_2"]; frames then have shape
        (channels, rows, columns).
    compression : {None, "bslz4"}
        How frames are packed, by `threads` threads.
    queue_images : int
        Frames that may wait.
    full : {"wait", "drop"}
        What `send` does when the queue is full: it waits until there is room, or it drops the new frame and counts it
        (`dropped`). A dropped frame keeps its number, so the receiver sees that it is missing.
    linger_s : float
        How long the end of the ``with`` block waits for a receiver to take what is in the queue.

    Attributes
    ----------
    url : str
        Where it listens or connects, with the port that the system chose.
    sent, dropped : int
        Frames that were given to the network, and that were not: `full` was "drop", the time was over, or an abort.
    bytes_sent : int
        Bytes of all messages.
    waiting : int
        Frames in the queue.

    Notes
    -----
    While nobody is connected, frames wait. A receiver that comes, or comes back, in mid-series first gets the start of
    the series. When it goes away, frames that libzmq had taken and the network had not delivered (two and what the
    buffers of the system hold) are lost; they count as sent.

    Examples
    --------
    >>> import konkordia, numpy as np
    >>> with konkordia.Streamer("tcp://127.0.0.1:*", shape=(512, 1024), dtype="uint16", compression="bslz4") as out:
    ...     frames = konkordia.stream(out.url, timeout_s=10)
    ...     out.series(images=10, metadata={"photon_energy": 12400.0})
    ...     for number in range(10):
    ...         _ = out.send(np.full((512, 1024), number, np.uint16))
    ...     out.end()
    ...     found = [int(frame.image[0, 0]) for frame in frames]
    >>> found, out.sent, out.dropped
    ([0, 1, 2, 3, 4, 5, 6, 7, 8, 9], 10, 0)
    """

    def __init__(
        self,
        address: str,
        *,
        shape: Sequence[int],
        dtype: DTypeLike,
        protocol: Literal["stins", "stream2"] = "stins",
        channels: Sequence[str] = (),
        compression: Literal["bslz4"] | None = None,
        threads: int = 2,
        queue_images: int = 64,
        full: Literal["wait", "drop"] = "wait",
        connect: bool = False,
        linger_s: float = 10.0,
    ) -> None:
        zmq = zmq_of_extra()
        if protocol not in ("stins", "stream2"):
            raise ValueError(f'a Streamer sends "stins" or "stream2", not {protocol!r}')
        if full not in ("wait", "drop"):
            raise ValueError(f'full is "wait" or "drop", not {full!r}')
        if queue_images < 1 or threads < 1:
            raise ValueError("queue_images and threads are 1 or more")
        self._dtype = np.dtype(dtype)
        self._shape = (*([len(channels)] if len(channels) > 1 else []), *(int(length) for length in shape))
        self._channels, self._codec = len(channels), compression or "none"
        one = [int(length) for length in shape]
        self._encoder = _native.StreamEncoder(protocol, one, self._dtype.name, list(channels), self._codec)
        self._full, self._queue_images, self._linger_s = full, queue_images, linger_s
        self.sent = self.dropped = self.bytes_sent = self.waiting = 0
        self._queue: deque[_Start | _Image | Literal["end"]] = deque()
        self._change = threading.Condition()
        self._is_open = self._is_ending = self._is_given_up = False
        self._failure: Exception | None = None
        self._series = self._next_number = self._aborts = 0
        self._process = os.getpid()
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.PUSH)
        self._socket.sndhwm, self._socket.linger = TAKEN_MESSAGES, 0
        self._socket.setsockopt(zmq.IMMEDIATE, 1)
        self._peers = Peers(self._socket)
        try:
            (self._socket.connect if connect else self._socket.bind)(address)
        except zmq.ZMQError as error:
            closed(self._context, self._socket, self._peers, 0)
            what = "connect to" if connect else "listen at"
            raise ValueError(f"cannot {what} {address!r}: {error.strerror}; an address is like tcp://*:9999") from error
        self.url: str = address if connect else self._socket.last_endpoint.decode()
        self._packers = ThreadPoolExecutor(threads, "konkordia-pack") if compression else None
        self._sender = threading.Thread(target=self._work, name="konkordia-send", daemon=True)
        self._sender.start()

    def series(
        self,
        images: int | None = None,
        *,
        filename: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        number: int | None = None,
    ) -> None:
        """Begins a series; one that is open is ended.

        Parameters
        ----------
        images : int, optional
            How many there will be, if that is known. STINS has no place for it: it goes as ``nimages`` of its metadata.
        filename : str, optional
            Name that the receiver is asked to give to the file.
        metadata : mapping, optional
            Of the measurement, under the names of DECTRIS Stream V1 (``photon_energy`` in eV, ``detector_distance`` in m,
            ``beam_center_x``, ``count_time`` in s, ...) or others, which are kept too.
        number : int, optional
            Of the series; counted from 1 if it is not given. STINS has no place for it.
        """
        text = json.dumps(dict(metadata or {}), allow_nan=False)
        with self._change:
            self._check()
            if self._is_open:
                self._queue.append("end")
            self._series = self._series + 1 if number is None else int(number)
            self._queue.append(_Start(self._series, filename, images, text))
            self._is_open, self._next_number = True, 0
            self._change.notify_all()

    def send(
        self,
        frame: NDArray[Any],
        number: int | None = None,
        *,
        metadata: Mapping[str, Any] | None = None,
        times: Times | None = None,
        timeout_s: float | None = None,
    ) -> bool:
        """Sends a frame, which is copied: its memory may be used again at once.

        Parameters
        ----------
        frame : ndarray
            Of the shape and dtype that were given, in any layout.
        number : int, optional
            Of the frame in its series, from 0; the next one if it is not given.
        metadata : mapping, optional
            What is to be said of the frame.
        times : Times, optional
            When it was exposed: begin, end, length, in seconds since the start of the series.
        timeout_s : float, optional
            Longest wait for room, where `full` is "wait".

        Returns
        -------
        bool
            False if it was dropped.

        Raises
        ------
        TimeoutError
            There was no room in time; the frame is dropped.
        ValueError, TypeError
            Shape or dtype are others than those that were given.
        KonkordiaError
            No series is open, or an earlier frame could not be sent.
        """
        self._check_frame(frame)
        said = None if metadata is None else json.dumps(dict(metadata), allow_nan=False)
        with self._change:
            self._check()
            if not self._is_open:
                raise KonkordiaError("there is no series to which a frame could belong", "begin one with series()", 5)
            own = self._next_number if number is None else int(number)
            if own < 0:
                raise ValueError(f"images are numbered from 0, not {own}")
            self._next_number = own + 1
            if not self._has_room(timeout_s):
                return False
            self.waiting += 1
            series, aborts = self._series, self._aborts
        image = _Image(own, self._pack(frame), said, times, aborts)
        with self._change:
            if (self._series, self._aborts) == (series, aborts) and self._is_open:
                self._queue.append(image)
            else:  # Another thread has ended the series meanwhile.
                self.waiting, self.dropped = self.waiting - 1, self.dropped + 1
            self._change.notify_all()
        return True

    def end(self) -> None:
        """Ends the series; its frames that wait are sent before."""
        with self._change:
            self._check()
            self._end()

    def _end(self) -> None:
        if self._is_open:
            self._queue.append("end")
            self._is_open = False
            self._change.notify_all()

    def abort(self) -> None:
        """Ends the series at once: frames that wait are dropped, and the receiver is told the end."""
        with self._change:
            self._check()
            self._aborts += 1
            self._drop_waiting()
            self._end()

    def _drop_waiting(self) -> None:
        images = [item for item in self._queue if isinstance(item, _Image)]
        kept = [item for item in self._queue if not isinstance(item, _Image)]
        self._queue.clear()
        self._queue.extend(kept)
        self.waiting, self.dropped = self.waiting - len(images), self.dropped + len(images)

    def close(self) -> None:
        """Ends the series, waits until everything is sent (`linger_s` at most), and closes the socket.

        Raises
        ------
        TimeoutError
            Frames were left that nobody took; they count as dropped.
        """
        if os.getpid() != self._process or self._is_given_up:
            return
        with self._change:
            self._end()
            self._is_ending = True
            self._change.notify_all()
        self._sender.join(self._linger_s)
        with self._change:
            left, self._is_given_up = self.waiting, True
            self._drop_waiting()
            self._change.notify_all()
        self._sender.join()
        if self._packers is not None:
            self._packers.shutdown()
        if self._failure is not None:
            raise self._failure
        if left:
            raise TimeoutError(f"{left} images were not taken from {self.url} within {self._linger_s:g} s: {self._who()}")

    def __enter__(self) -> Streamer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self.close()
            return
        if self._failure is None and not self._is_given_up:
            self.abort()
        try:
            self.close()
        except (TimeoutError, KonkordiaError):  # What ended the block says more.
            pass

    @property
    def receivers(self) -> int:
        """Receivers that are connected."""
        return self._peers.connected

    def __repr__(self) -> str:
        counts = f"{self.sent} images sent, {self.waiting} waiting, {self.dropped} dropped, {self.bytes_sent} bytes"
        return f"<konkordia.Streamer {self.url}: {counts}>"

    def _who(self) -> str:
        return "a receiver is connected, but takes nothing" if self.receivers else "no receiver is connected"

    def _check(self) -> None:
        if os.getpid() != self._process:
            raise KonkordiaError("the streamer was made by another process", "make one in this process: konkordia.Streamer(...)", 5)
        if self._failure is not None:
            raise self._failure
        if self._is_ending:
            raise KonkordiaError("the streamer is closed", "make another one: konkordia.Streamer(...)", 5)

    def _check_frame(self, frame: NDArray[Any]) -> None:
        if not isinstance(frame, np.ndarray):
            raise TypeError(f"a frame is a numpy array, not {type(frame).__name__}")
        if frame.dtype.name != self._dtype.name:
            raise TypeError(f"frames are {self._dtype}, and this one is {frame.dtype}; give frame.astype({self._dtype.name!r})")
        if frame.shape != self._shape:
            raise ValueError(f"frames have shape {self._shape}, and this one {frame.shape}")

    def _has_room(self, timeout_s: float | None) -> bool:
        """Waits for room in the queue, if that is wanted; counts the frame if there is none. The lock is held."""
        if self.waiting < self._queue_images:
            return True
        if self._full == "wait":
            is_over = lambda: self.waiting < self._queue_images or self._failure is not None or self._is_ending  # noqa: E731
            has_room = self._change.wait_for(is_over, timeout_s)
            self._check()
            if has_room:
                return True
        self.dropped += 1
        if self._full == "drop":
            return False
        raise TimeoutError(f"the queue of {self._queue_images} images was full for {timeout_s:g} s: {self._who()}")

    def _pack(self, frame: NDArray[Any]) -> list[Any]:
        """The channels of a copy of the frame: as bytes, or on their way to be packed."""
        native = self._dtype.newbyteorder("=")
        copy = np.array(frame, native, order="C", copy=True)
        channels = list(copy) if self._channels > 1 else [copy]
        if self._packers is None:
            return [channel.reshape(-1).view(np.uint8) for channel in channels]
        return [self._packers.submit(_native.compress, channel, self._codec, None) for channel in channels]

    def _work(self) -> None:
        """Sends what is in the queue, until the end; runs in a thread of its own."""
        try:
            self._send_all()
        except Exception as error:  # noqa: BLE001  It is raised where the user sees it.
            with self._change:
                is_ours = isinstance(error, KonkordiaError)
                self._failure = error if is_ours else KonkordiaError(f"a frame could not be sent: {error}", "", 70)
                self._drop_waiting()
                self._change.notify_all()
        left_s = 0.0 if self._is_given_up else self._linger_s
        closed(self._context, self._socket, self._peers, int(1000 * left_s))

    def _send_all(self) -> None:
        start: _Start | None = None
        has_started = False
        while not self._is_given_up:
            with self._change:
                if not self._queue and self._is_ending:
                    return
                if not self._queue:
                    self._change.wait(ATTEMPT_MS / 1000)
                item = self._queue.popleft() if self._queue else None
            if isinstance(item, _Start):
                start, has_started = item, False
            went = self._peers.look()
            has_started = has_started and not went
            if isinstance(item, _Start) or item is None:
                # A receiver that comes while nothing is sent gets the start now.
                if start is not None and not has_started and self.receivers:
                    has_started = self._transmit(self._encode_start(start))
                continue
            has_started = self._send_item(item, start, has_started)
            if item == "end":
                start = None

    def _send_item(self, item: _Image | Literal["end"], start: _Start | None, has_started: bool) -> bool:
        """Sends an image or the end, and before it the start where the receiver has not got it; true if it has it."""
        pixels = None if item == "end" else [part.result() if isinstance(part, Future) else part for part in item.channels]
        messages: list[list[Any]] | None = None
        while not self._is_given_up and (item == "end" or item.aborts == self._aborts):
            if self._peers.look():
                has_started = False
            if not self.receivers:
                has_started = False
                self._peers.socket.poll(ATTEMPT_MS)
                continue
            if start is not None and not has_started:
                has_started, messages = self._transmit(self._encode_start(start)), None
                continue
            # STINS counts its messages, so an image is encoded after the start that it follows.
            messages = messages or self._encode(item, pixels)
            if self._transmit(messages):
                self._count(item)
                return has_started
        if item != "end":
            with self._change:
                self.dropped, self.waiting = self.dropped + 1, self.waiting - 1
                self._change.notify_all()
        return has_started

    def _count(self, item: _Image | Literal["end"]) -> None:
        if item != "end":
            with self._change:
                self.sent, self.waiting = self.sent + 1, self.waiting - 1
                self._change.notify_all()

    def _encode_start(self, start: _Start) -> list[list[Any]]:
        text = start.metadata
        if start.images is not None:
            text = json.dumps({"nimages": start.images, **json.loads(text)})
        return self._encoder.start(start.series, start.filename, start.images, text)

    def _encode(self, item: _Image | Literal["end"], pixels: list[Any] | None) -> list[list[Any]]:
        if item == "end" or pixels is None:
            return self._encoder.end()
        ns = None if item.times is None else (int(1e9 * item.times[0]), int(1e9 * item.times[1]), int(1e9 * item.times[2]))
        return self._encoder.image(item.number, pixels, item.metadata, ns)

    def _transmit(self, messages: list[list[Any]]) -> bool:
        """Sends messages; false if the receiver went away before, or everything was given up."""
        import zmq

        for message in messages:
            while not self._socket.poll(ATTEMPT_MS, zmq.POLLOUT):
                self._peers.look()
                if self._is_given_up or not self.receivers:
                    return False
            self._socket.send_multipart(message, zmq.NOBLOCK, copy=False)
            self.bytes_sent += sum(part.nbytes if isinstance(part, np.ndarray) else len(part) for part in message)
        return True
