"""What `konkordia join` sends: for each trigger the images of several detectors and the numbers of other devices."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np

from . import _native
from ._errors import KonkordiaError
from ._peers import zmq_of_extra
from ._stream import SMALL_BYTES, Frame, Parts, _Upstream

HINT = "it is left out; the messages before and after it can be read"


class Joined:
    """What is known of one trigger.

    Attributes
    ----------
    trigger : int
        Its number.
    row : int
        Its row in the table that the join writes; rows are counted from 0 in a run.
    is_complete : bool
        No required source is absent.
    absent : list of str
        Names of the sources that are absent.
    images : dict of str to Frame
        The image of each detector that is there.
    series : dict of str to int
        Which series of its detector each image is from, from 0.
    scalars : dict of str to dict
        The numbers of each device that is there, by name.
    """

    def __init__(self, head: dict[str, Any], images: dict[str, Frame], lost: int) -> None:
        self.trigger: int = head["trigger"]
        self.row: int = head["row"]
        self.is_complete: bool = head["complete"]
        self.absent: list[str] = head["absent"]
        self.images = images
        self.series: dict[str, int] = {name: about["series"] for name, about in head["images"].items()}
        self.scalars: dict[str, dict[str, float]] = head["scalars"]
        self.lost = lost
        """Messages that are missing directly before this one: this program was too slow, or not there."""

    def __repr__(self) -> str:
        there = ", ".join([*self.images, *self.scalars])
        absent = f"; absent: {', '.join(self.absent)}" if self.absent else ""
        return f"<konkordia.Joined, trigger {self.trigger}: {there}{absent}>"


def joined(
    url: str,
    *,
    socket: Literal["push", "pub"] = "push",
    timeout_s: float | None = None,
    queue_messages: int = 64,
    message_mib: int = 1024,
) -> JoinedStream:
    """What `konkordia join` sends, trigger by trigger, until its run ends.

    Parameters
    ----------
    url : str
        The address of its ``[output]``, such as "tcp://daq1:31100".
    socket : {"push", "pub"}
        The kind of its ``[output]``.
    timeout_s : float, optional
        If nothing comes for so long, the loop ends with a TimeoutError.
    queue_messages : int
        Messages that may wait here. When they are full, the join leaves messages out and counts them.
    message_mib : int
        Largest part of a message, and largest image when it is unpacked.

    Returns
    -------
    JoinedStream
        For ``for``; also a context manager.

    Raises
    ------
    ValueError
        The address or an argument makes no sense.
    KonkordiaError
        From the loop: a message cannot be read. A further loop goes on behind it.
    TimeoutError
        From the loop: nothing came for `timeout_s`.

    Examples
    --------
    ::

        for event in konkordia.joined("tcp://daq1:31100"):
            if event.is_complete:
                print(event.trigger, event.scalars["encoder"]["angle_deg"], event.images["left"].image.max())
    """
    return JoinedStream(url, socket, timeout_s, queue_messages, message_mib)


class JoinedStream:
    """Joined messages; made by `joined`.

    Attributes
    ----------
    received : int
        Messages that came, of one trigger each.
    lost : int
        Messages that are missing: their rows were skipped.
    refused : int
        Messages that could not be read.
    account : dict or None
        The report of the join, when its run has ended.
    """

    def __init__(
        self, url: str, socket: str, timeout_s: float | None, queue_messages: int, message_mib: int
    ) -> None:
        zmq = zmq_of_extra()
        if socket not in ("push", "pub"):
            raise ValueError('socket is "push" or "pub", as [output] of the join says')
        if queue_messages < 1 or message_mib < 1 or (timeout_s is not None and not timeout_s >= 0):
            raise ValueError("queue_messages and message_mib are 1 or more, timeout_s is 0 or more")
        self.url, self._timeout_s = url, timeout_s
        self._bytes_max = message_mib << 20
        self._decoders: dict[str, _native.StreamDecoder] = {}
        self.received = self.lost = self.refused = 0
        self.account: dict[str, Any] | None = None
        self._next_row: int | None = None
        self._nothing = zmq.Again
        self._context = zmq.Context()
        kind = zmq.PULL if socket == "push" else zmq.SUB
        try:
            self._upstream: _Upstream | None = _Upstream(self._context, kind, url, False, queue_messages, message_mib)
        except ValueError:
            self._context.term()
            raise

    def __iter__(self) -> Iterator[Joined]:
        while (found := self._next()) is not None:
            yield found

    def _next(self) -> Joined | None:
        """The next trigger; None when the run has ended."""
        if self._upstream is None:
            return None
        try:
            message = self._message(self._upstream)
        except self._nothing:
            raise TimeoutError(f"no joined message from {self.url} for {self._timeout_s:g} s") from None
        try:
            return self._read(message)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            self.refused += 1
            raise KonkordiaError(f"a message from {self.url} is no joined one: {error}", HINT, 1) from error

    def _message(self, upstream: _Upstream) -> Parts:
        end = None if self._timeout_s is None else time.monotonic() + self._timeout_s
        while True:
            # In pieces, so that Ctrl-C is noticed.
            left_s = 1.0 if end is None else max(0.0, min(1.0, end - time.monotonic()))
            if upstream.socket.poll(int(1000 * left_s) + 1):
                frames = upstream.socket.recv_multipart(copy=False)
                return [frame.bytes if len(frame) <= SMALL_BYTES else np.frombuffer(frame.buffer, np.uint8) for frame in frames]
            if end is not None and time.monotonic() >= end:
                raise self._nothing

    def _read(self, message: Parts) -> Joined | None:
        head = json.loads(bytes(message[0]))
        if head["htype"] == "joined_end":
            self.account = head["account"]
            self._next_row = None
            return None
        if head["htype"] != "joined":
            raise ValueError(f"its htype is {head['htype']!r}")
        images = {name: self._image(name, about, message) for name, about in head["images"].items()}
        row = int(head["row"])
        lost = 0 if self._next_row is None else max(0, row - self._next_row)
        self._next_row = row + 1
        self.received, self.lost = self.received + 1, self.lost + lost
        return Joined(head, images, lost)

    def _image(self, name: str, about: dict[str, Any], message: Parts) -> Frame:
        if name not in self._decoders:
            self._decoders[name] = _native.StreamDecoder(about["protocol"], self._bytes_max)
        first = int(about["first_part"])
        parts = message[first : first + int(about["parts"])]
        _, _, series, _, image = self._decoders[name].read(parts)
        if image is None:
            raise ValueError(f"what it has of {name} is no image")
        return Frame(image, series, None, 0)

    def close(self) -> None:
        """Closes the socket."""
        upstream, self._upstream = self._upstream, None
        if upstream is not None:
            upstream.close()
            self._context.term()

    def __enter__(self) -> JoinedStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_upstream"):
            self.close()

    def __repr__(self) -> str:
        return f"<konkordia.JoinedStream {self.url}: {self.received} triggers, {self.lost} lost>"
