"""Follows a detector for servers of other control systems: threads that say what has changed."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ._calls import Image, ServiceError
from ._errors import KonkordiaError

if TYPE_CHECKING:
    from ._client import Client
    from ._schema import DetectorStatus

WAIT_S = 0.5
"""Longest wait of a thread in the service: so long may `Follower.close` take."""
EVERY_IMAGE_HZ_MAX = 125.0
AGAIN_S = 0.5
"""After a failure, before the service is asked again."""
log = logging.getLogger("konkordia")


def reason(error: KonkordiaError) -> str:
    """What happened and what to do, in one line."""
    what = " ".join(str(error.args[0]).split())
    return f"{what} ({error.hint})" if error.hint else what


class Follower:
    """Follows a detector from threads of its own: its status when it changes, and its newest images.

    Parameters
    ----------
    make_client : callable
        Makes a client; each thread has one of its own.
    on_status : callable
        Called with (status, None) when it has changed, and with (None, why) when the service cannot be reached or refuses.
        The follower goes on and recovers by itself.
    on_image : callable, optional
        Called with each new image, and what is known of it in ``image.facts``.
    status_every_s : float
        How often the status is asked for.
    images_hz_max : float
        Most images per second, where not each is wanted.
    every_image : bool
        Each image that the service still keeps, in order, instead of the newest; a slow callback gets fewer, and nobody more
        than 125 per second, because a service answers only so many requests of one host.
    channel : str, optional
        Of images with several channels, the one to get; the first if it is not given.

    Notes
    -----
    The callbacks are called from two threads, one for the status and one for images. What they raise is logged.
    """

    def __init__(
        self,
        make_client: Callable[[], Client],
        *,
        on_status: Callable[[DetectorStatus | None, str | None], None],
        on_image: Callable[[Image], None] | None = None,
        status_every_s: float = 0.1,
        images_hz_max: float = 25.0,
        every_image: bool = False,
        channel: str | None = None,
    ) -> None:
        self._make_client = make_client
        self._on_status = on_status
        self._on_image = on_image
        self._status_every_s = status_every_s
        self._channel = channel
        self._closing = threading.Event()
        self._wake = threading.Event()
        self._threads: list[threading.Thread] = []
        self.pace(images_hz_max, every_image)

    def pace(self, images_hz_max: float = 25.0, every_image: bool = False) -> None:
        """Changes which images are wanted from now on."""
        self._every_image = every_image
        self._image_every_s = 1.0 / (EVERY_IMAGE_HZ_MAX if every_image else images_hz_max)
        self._wake.set()

    def start(self) -> None:
        """Begins."""
        work = [self._follow_status] + ([] if self._on_image is None else [self._follow_images])
        self._threads = [threading.Thread(target=one, name=f"konkordia{one.__name__}", daemon=True) for one in work]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Ends its threads; takes half a second at most, unless a callback takes longer."""
        self._closing.set()
        self._wake.set()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()

    def __enter__(self) -> Follower:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _tell(self, callback: Callable[..., None], *what: Any) -> None:
        try:
            callback(*what)
        except Exception:
            log.exception("a follower of the service could not use what it was told")

    def _follow_status(self) -> None:
        told: tuple[Any, str | None] = (None, None)
        with self._make_client() as client:
            while not self._closing.is_set():
                status, why, pause_s = None, None, self._status_every_s
                try:
                    status = client.status()
                except ServiceError as error:
                    why, pause_s = reason(error), AGAIN_S
                # The age of a state changes always.
                now = (None if status is None else {**status, "state_age_s": 0}, why)
                if now != told:
                    told = now
                    self._tell(self._on_status, status, why)
                self._closing.wait(pause_s)

    def _follow_images(self) -> None:
        seen: Image | None = None
        due = 0.0
        assert self._on_image is not None
        with self._make_client() as client:
            while not self._closing.is_set():
                try:
                    image = client.wait_for_image(seen, wait_s=WAIT_S, every_image=self._every_image, channel=self._channel)
                except ServiceError as error:
                    if error.status == 0:
                        seen = None  # A service that was restarted counts its runs from 1 again.
                    if error.status != 404:  # Else the image has gone meanwhile.
                        self._closing.wait(AGAIN_S)
                    continue
                if image is not None:
                    self._wake.clear()
                    seen = image
                    self._tell(self._on_image, image)
                    # The time that an image takes on its way is part of the period.
                    due = max(due, time.monotonic() - self._image_every_s) + self._image_every_s
                    self._wake.wait(max(0.0, due - time.monotonic()))
