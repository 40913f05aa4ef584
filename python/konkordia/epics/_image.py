"""Images as NTNDArray: pixels and what is known of them, in one update."""

from __future__ import annotations

import datetime
import time
from typing import TYPE_CHECKING, Any

import numpy as np
from p4p import Value
from p4p.nt import NTNDArray

from ._view import MAJOR, MINOR, NO_ALARM

if TYPE_CHECKING:
    from .._calls import Image
    from .._schema import ImageHeader

TYPE = NTNDArray.buildType()
DRIVER_STATUS = 2
FACTS = {
    "run": "run of the service",
    "status": "complete or partial",
    "missing_parts": "one bit for each upstream or UDP port",
    "start_ns": "beginning of the exposure since the start of the series, ns",
    "stop_ns": "its end, ns",
    "real_ns": "length of the exposure, ns",
    "energy_kev": "photon energy, keV",
}


def stamp(time_s: float) -> dict[str, int]:
    """Seconds since 1970 as a time stamp."""
    whole, ns = divmod(round(time_s * 1e9), 10**9)
    return {"secondsPastEpoch": whole, "nanoseconds": ns}


def own_time_s(facts: ImageHeader | None) -> float | None:
    """When its exposure began by the clock of the sender, seconds since 1970, where it is known."""
    if facts is None:
        return None
    start, ns = facts.get("series_start"), facts.get("start_ns")
    if start is None or ns is None:
        return None
    try:
        began = datetime.datetime.fromisoformat(start.replace("Z", "+00:00"))
    except ValueError:
        return None
    # Without a zone nobody knows which time is meant.
    return None if began.tzinfo is None else began.timestamp() + ns * 1e-9


def came_s(image: Image) -> float:
    """When it came into the service, seconds since 1970."""
    return time.time() - (image.age_ms or 0) * 1e-3


def _attributes(image: Image, file: str) -> dict[str, tuple[Any, str]]:
    """Name: value and what it is."""
    facts: Any = image.facts or {}
    found: dict[str, tuple[Any, str]] = {"ColorMode": (0, "Mono"), "file": (file, "master file of the run")}
    found |= {name: (facts[name], meaning) for name, meaning in FACTS.items() if facts.get(name) is not None}
    channels = facts.get("channels") or []
    if channels and channels[0]["name"]:
        found["channel"] = (channels[0]["name"], "channel of the image")
    results = facts.get("results") or {}
    return found | {name: (value, "result") for name, value in results.items() if value is not None}


def _attribute(name: str, value: Any, meaning: str) -> dict[str, Any]:
    return {"name": name, "value": value, "descriptor": meaning, "sourceType": 0, "source": "konkordia"}


def alarm(image: Image) -> tuple[int, str]:
    """Of an image: is it whole?"""
    status = "complete" if image.facts is None else image.facts["status"]
    severity = {"complete": NO_ALARM, "partial": MINOR}.get(status, MAJOR)
    return severity, f"image {image.number} is {status}" if severity else ""


def ndarray(image: Image, file: str, channel: str | None) -> Any:
    """The update with this image."""
    pixels = image.pixels
    came, own = came_s(image), own_time_s(image.facts)
    attributes = _attributes(image, file)
    if channel is not None:
        attributes["channel"] = (channel, "channel of the image")
    dimension = [{"size": size, "offset": 0, "fullSize": size, "binning": 1, "reverse": False} for size in reversed(pixels.shape)]
    return Value(
        TYPE,
        {
            # A view: p4p copies.
            "value": (NTNDArray._code2u[pixels.dtype.char], np.ascontiguousarray(pixels).reshape(-1)),
            "codec": {"name": ""},
            "compressedSize": pixels.nbytes,
            "uncompressedSize": pixels.nbytes,
            "uniqueId": image.number & 0x7FFFFFFF,
            "dataTimeStamp": stamp(came if own is None else own),
            "timeStamp": stamp(came),
            "alarm": _alarm(*alarm(image)),
            "dimension": dimension,
            "attribute": [_attribute(name, value, meaning) for name, (value, meaning) in attributes.items()],
        },
    )


def only_alarm(severity: int, message: str) -> Any:
    """The update that changes the alarm, and not the image."""
    return Value(TYPE, {"alarm": _alarm(severity, message), "timeStamp": stamp(time.time())})


def _alarm(severity: int, message: str) -> dict[str, Any]:
    return {"severity": severity, "status": DRIVER_STATUS if severity else 0, "message": message}
