"""What the server knows of the detector, and what clients have set for the next run."""

from __future__ import annotations

import math
import posixpath
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .._calls import Image
    from .._schema import DetectorStatistics, DetectorStatus

NO_ALARM, MINOR, MAJOR, INVALID = range(4)
SEVERITIES = {"success": NO_ALARM, "info": NO_ALARM, "warning": MINOR, "error": MAJOR}
SINGLE, MULTIPLE, CONTINUOUS = range(3)


@dataclass(frozen=True)
class Settings:
    """What clients have set for the next run. What is None or empty is as configured in the service."""

    images: int = 1
    mode: int = MULTIPLE
    exposure_s: float | None = None
    period_s: float | None = None
    path: str = ""
    name: str = ""
    number: int = 1
    is_numbered: bool = False
    write: bool = True

    @property
    def images_wanted(self) -> int:
        """Of the next run; 0 = until it is stopped."""
        return {SINGLE: 1, CONTINUOUS: 0}.get(self.mode, self.images)

    @property
    def prefix(self) -> str | None:
        if not self.name:
            return None
        name = f"{self.name}_{self.number:06d}" if self.is_numbered else self.name
        return posixpath.join(self.path, name)

    def request(self) -> dict[str, Any]:
        """The keywords of `Client.arm`."""
        if self.path and not self.name:
            raise ValueError(f"FilePath is {self.path!r} and FileName is empty: put FileName, or an empty FilePath")
        times_us = {"count_time_us": self.exposure_s, "frame_time_us": self.period_s}
        metadata = {name: value_s * 1e6 for name, value_s in times_us.items() if value_s is not None}
        return {"images": self.images_wanted, "prefix": self.prefix, "write": self.write, "metadata": metadata or None}

    def with_number_used(self) -> Settings:
        """After an arm."""
        return replace(self, number=self.number + 1) if self.is_numbered and self.name else self


@dataclass(frozen=True)
class View:
    """What is known now. `away` says why the service cannot be reached or refuses; what was known before stays."""

    settings: Settings = Settings()
    away: str | None = "the service has not answered yet"
    status: DetectorStatus | None = None
    status_time_s: float = 0.0
    """When it came, seconds since 1970."""
    statistics: DetectorStatistics | None = None
    configuration: Mapping[str, Any] | None = None
    version: str | None = None
    image: Image | None = None
    refusal: str | None = None
    """The last put that was refused, and why, until one is accepted or the detector goes on."""
    arrays: int = 0
    """Images since the counter was set."""

    @property
    def is_running(self) -> bool:
        """A run is armed or goes on."""
        return self.status is not None and self.status["state"] in ("armed", "running")

    @property
    def severity(self) -> int:
        """Of the detector."""
        return NO_ALARM if self.status is None else SEVERITIES.get(self.status["severity"], MAJOR)

    def rate(self, name: str) -> float | None:
        return None if self.statistics is None else self.statistics["rates"].get(name)

    def packets(self, *names: str) -> int | None:
        """Packets with these verdicts; None where the detector sends no packets."""
        ledger = {} if self.statistics is None else self.statistics["ledger"]
        return sum(ledger.get(name, 0) for name in names) if "placed" in ledger and self.is_of_packets else None

    @property
    def is_of_packets(self) -> bool:
        return self.status is not None and self.status["kind"] == "udp"

    @property
    def remaining_s(self) -> float | None:
        """Seconds until the run is over at the rate of now."""
        if self.status is None:
            return None
        if not self.is_running:
            return 0.0
        expected, rate = self.status.get("images_expected"), self.rate("committed_hz")
        if expected is None or not rate or self.status["state"] == "armed":
            return None
        return max(0.0, expected - self.status["images_committed"]) / rate


def seconds(value: float, name: str) -> float:
    """Checks a time that a client puts."""
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"{name}: {value:g} is no time: give seconds from 0 on")
    return value
