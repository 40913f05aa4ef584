"""The PVs: their names, types, units and meanings, and where their values come from. docs/epics.md has the same table."""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ._view import INVALID, MAJOR, MINOR, NO_ALARM, View

NO_YES = ("No", "Yes")
MODES = ("Single", "Multiple", "Continuous")
DATA_TYPES = ("Int8", "UInt8", "Int16", "UInt16", "Int32", "UInt32", "Int64", "UInt64", "Float32", "Float64")
IDLE, ACQUIRE, SAVING, ERROR, WAITING, DISCONNECTED = 0, 1, 4, 6, 7, 9
STATES = ("Idle", "Acquire", "Readout", "Correct", "Saving", "Aborting", "Error", "Waiting", "Initializing", "Disconnected", "Aborted")
NOT_KNOWN = "not known"


@dataclass(frozen=True)
class Reading:
    """A value with its alarm. The value None is not known."""

    value: Any
    severity: int = NO_ALARM
    message: str = ""
    time_s: float | None = None
    """When it became so, where that is known better than when it is said."""


@dataclass(frozen=True)
class Pv:
    """A PV. `kind` is a type code of p4p, or "enum"."""

    name: str
    kind: str
    read: Callable[[View], Any]
    meaning: str
    unit: str = ""
    choices: tuple[str, ...] = ()
    is_put: bool = False
    of_image: bool = False
    """It changes with each image."""

    @property
    def unknown(self) -> Any:
        """What stands where the value is not known; its alarm says that."""
        return {"s": "", "d": float("nan")}.get(self.kind, 0)

    def now(self, view: View) -> Reading:
        """Its value and alarm."""
        found = self.read(view)
        reading = found if isinstance(found, Reading) else Reading(found)
        if view.away is not None and not self.is_put:
            return Reading(reading.value, INVALID, view.away, reading.time_s)
        if reading.value is None and reading.severity == NO_ALARM:
            return Reading(None, INVALID, NOT_KNOWN)
        return reading


def _status(name: str) -> Callable[[View], Any]:
    return lambda view: None if view.status is None else view.status.get(name)


def _losses(name: str) -> Callable[[View], Any]:
    """A number that is an alarm as soon as it is not 0."""

    def read(view: View) -> Reading:
        number = _status(name)(view)
        return Reading(number, max(MINOR, view.severity), f"{number} images") if number else Reading(number)

    return read


def _packets_lost(view: View) -> Reading:
    number = view.packets("kernel_dropped", "late", "no_slot")
    return Reading(number, MINOR, f"{number} packets") if number else Reading(number)


def _state(view: View) -> Reading:
    if view.status is None or view.away is not None:
        return Reading(DISCONNECTED)
    state = view.status["state"]
    of_words = {"idle": IDLE, "armed": WAITING, "running": SAVING if view.status["draining"] else ACQUIRE}
    since = view.status_time_s - view.status["state_age_s"]
    message = view.status["message"] if view.severity else ""
    return Reading(of_words.get(state, ERROR), MAJOR if state == "error" else view.severity, message, since)


def _message(view: View) -> Reading:
    if view.away is not None:
        return Reading(view.away)
    if view.refusal is not None:
        return Reading(view.refusal, MAJOR, view.refusal)
    message = "" if view.status is None else view.status["message"]
    return Reading(message, view.severity, message if view.severity else "")


def _is_running(view: View) -> int:
    return int(view.is_running)


def _is_armed(view: View) -> int | None:
    return None if view.status is None else int(view.status["state"] == "armed")


def _progress(view: View) -> float | None:
    progress = _status("progress")(view)
    return None if progress is None else 100.0 * progress


def _size(axis: int) -> Callable[[View], Any]:
    """Of the newest image, fastest axis first."""

    def read(view: View) -> int | None:
        if view.image is None:
            return None
        shape = view.image.pixels.shape[::-1]
        return shape[axis] if axis < len(shape) else 0

    return read


def _configured(key: str) -> Callable[[View], Any]:
    return lambda view: None if view.configuration is None else view.configuration.get(key)


def _dtype(view: View) -> int | None:
    if view.image is None:
        return None
    name = view.image.pixels.dtype.name
    wanted = name.replace("uint", "UInt").replace("int", "Int") if name.startswith("u") else name.capitalize()
    return DATA_TYPES.index(wanted) if wanted in DATA_TYPES else None


def _set(name: str) -> Callable[[View], Any]:
    return lambda view: getattr(view.settings, name)


def _images(view: View) -> int | None:
    expected = None if view.status is None else view.status.get("images_expected")
    return expected if view.is_running else view.settings.images_wanted


def _path(view: View) -> str:
    file = _status("file")(view)
    return posixpath.dirname(file) + "/" if view.is_running and file else view.settings.path


def _alarms(view: View) -> Reading:
    alarms = [] if view.status is None else view.status.get("alarms") or []
    text = "; ".join(alarm.get("message") or alarm["name"] for alarm in alarms)
    return Reading(text, max(MINOR, view.severity) if text else NO_ALARM, text)


def _fixed(value: Any) -> Callable[[View], Any]:
    return lambda view: value


def _setting(name: str, kind: str, attribute: str, meaning: str, back: Callable[[View], Any] | None = None, **more: Any) -> list[Pv]:
    """A setting, and what is in force."""
    return [
        Pv(name, kind, _set(attribute), meaning, is_put=True, **more),
        Pv(f"{name}_RBV", kind, back or _set(attribute), f"{name} in force", **more),
    ]


def _command(name: str, meaning: str) -> Pv:
    return Pv(name, "enum", _fixed(0), meaning, choices=("Done", name), is_put=True)


TABLE: list[Pv] = [
    Pv(
        "Acquire",
        "enum",
        _is_running,
        "1 arms where that was not done, and starts; 0 stops. A put with completion waits for the end of the run",
        choices=("Done", "Acquire"),
        is_put=True,
    ),
    Pv("Acquire_RBV", "enum", _is_running, "a run is armed or goes on", choices=("Done", "Acquiring")),
    _command("Arm", "makes everything ready for a run"),
    _command("Trigger", "sends a software trigger"),
    _command("Stop", "ends the run; its file is complete"),
    _command("Cancel", "ends whatever goes on and clears an error; what was received is kept"),
    *_setting("NumImages", "i", "images", "images of the next run", _images),
    *_setting("ImageMode", "enum", "mode", "Single: one image; Multiple: NumImages; Continuous: until it is stopped", choices=MODES),
    *_setting("AcquireTime", "d", "exposure_s", "exposure of an image, for the file and for a detector that the service drives", unit="s"),
    *_setting("AcquirePeriod", "d", "period_s", "time from image to image, likewise", unit="s"),
    *_setting("FilePath", "s", "path", "folder of the file, below that of the service", _path),
    *_setting("FileName", "s", "name", "name of the file without _master.h5; empty: the service numbers them"),
    *_setting("FileNumber", "i", "number", "number of the next file, where AutoIncrement is Yes"),
    *_setting("AutoIncrement", "enum", "is_numbered", "the number is added to FileName, and grows with each arm", choices=NO_YES),
    *_setting("AutoSave", "enum", "write", "files are written", choices=NO_YES),
    Pv("ArrayCounter", "i", lambda view: view.arrays, "puts ArrayCounter_RBV", is_put=True),
    Pv("ArrayCounter_RBV", "i", lambda view: view.arrays, "images in their final state since ArrayCounter was put or this server began"),
    Pv("NDAttributesFile", "s", _fixed(""), "attributes are what the service knows; only an empty text can be put", is_put=True),
    Pv("WaitForPlugins", "enum", _fixed(1), "Acquire waits for the closed file; only Yes can be put", choices=NO_YES, is_put=True),
    Pv(
        "DetectorState_RBV",
        "enum",
        _state,
        "Waiting: armed; Saving: the last images are written; Disconnected: the service is away",
        choices=STATES,
    ),
    Pv("StatusMessage_RBV", "s", _message, "what people should know; why a put was refused"),
    Pv("Hint_RBV", "s", lambda view: _status("hint")(view) or "", "what to do"),
    Pv("Alarms_RBV", "s", _alarms, "the alarms that are on"),
    Pv("Armed_RBV", "enum", _is_armed, "a run is armed", choices=NO_YES),
    Pv("Run_RBV", "l", _status("run"), "number of the newest run since the service began"),
    Pv("Ended_RBV", "s", lambda view: _status("ended")(view) or "", "why the newest run ended"),
    Pv("NumImagesCounter_RBV", "i", _status("images_committed"), "images of the run in their final state"),
    Pv("Progress_RBV", "d", _progress, "of the run", unit="%"),
    Pv("TimeRemaining_RBV", "d", lambda view: view.remaining_s, "of the run, at the rate of now", unit="s"),
    Pv("ImagesWritten_RBV", "l", _status("images_written"), "images that the file has"),
    Pv("ImagesLost_RBV", "l", _losses("images_lost"), "images lost, whole"),
    Pv("ImagesPartial_RBV", "l", _losses("images_partial"), "images that miss packets or parts"),
    Pv("ImagesUnwritten_RBV", "l", _losses("images_unwritten"), "images that came and are not in the file"),
    Pv("ImagesNotReceived_RBV", "l", _losses("images_not_received"), "planned images that did not arrive"),
    Pv("ImagesNotTaken_RBV", "l", _status("images_not_taken"), "planned images that were not taken because the run was stopped"),
    Pv("PacketsReceived_RBV", "l", lambda view: view.packets("received"), "packets of the run that reached the program"),
    Pv("PacketsLost_RBV", "l", _packets_lost, "packets that came and are in no image: dropped by the kernel, late, or without room"),
    Pv("ImageRate_RBV", "d", lambda view: view.rate("committed_hz"), "images in their final state", unit="Hz"),
    Pv("ReceiveRate_RBV", "d", lambda view: view.rate("received_bytes_per_s"), "bytes that arrive", unit="B/s"),
    Pv("WriteRate_RBV", "d", lambda view: view.rate("written_bytes_per_s"), "packed pixels that are written", unit="B/s"),
    Pv("FullFileName_RBV", "s", lambda view: _status("file")(view) or "", "master file of the newest run"),
    Pv("UniqueId_RBV", "i", lambda view: None if view.image is None else view.image.number, "number of the image in Image", of_image=True),
    Pv("ArraySizeX_RBV", "i", _size(0), "its columns", unit="pixel", of_image=True),
    Pv("ArraySizeY_RBV", "i", _size(1), "its rows", unit="pixel", of_image=True),
    Pv("ArraySizeZ_RBV", "i", _size(2), "0", of_image=True),
    Pv("ArraySize0_RBV", "i", _size(0), "as ArraySizeX_RBV", unit="pixel", of_image=True),
    Pv("ArraySize1_RBV", "i", _size(1), "as ArraySizeY_RBV", unit="pixel", of_image=True),
    Pv("ArraySize2_RBV", "i", _size(2), "as ArraySizeZ_RBV", of_image=True),
    Pv("ArraySize_RBV", "l", lambda view: None if view.image is None else view.image.pixels.nbytes, "its bytes", unit="B", of_image=True),
    Pv("DataType_RBV", "enum", _dtype, "type of its pixels", choices=DATA_TYPES, of_image=True),
    Pv("ColorMode_RBV", "enum", _fixed(0), "images have no colours", choices=("Mono",)),
    Pv("MaxSizeX_RBV", "i", _configured("image_columns"), "columns of the images of the detector", unit="pixel"),
    Pv("MaxSizeY_RBV", "i", _configured("image_rows"), "rows of the images of the detector", unit="pixel"),
    Pv("PortName_RBV", "s", _status("detector"), "name of the detector in the service"),
    Pv("Manufacturer_RBV", "s", _fixed(None), "not known to the service"),
    Pv("Model_RBV", "s", _configured("detector"), "kind of the detector, as configured"),
    Pv("SerialNumber_RBV", "s", _fixed(None), "not known to the service"),
    Pv("FirmwareVersion_RBV", "s", _fixed(None), "not known to the service"),
    Pv("SDKVersion_RBV", "s", _fixed(None), "there is none"),
    Pv("DriverVersion_RBV", "s", lambda view: view.version, "version of the service"),
    Pv("ADCoreVersion_RBV", "s", _fixed(None), "there is none: these are the names of areaDetector, not its code"),
]
