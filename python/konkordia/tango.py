"""A Tango device of a detector: ``python -m konkordia.tango INSTANCE`` (docs/tango.md). It is a process of its own, which
drives the service as every other client does."""

# PyTango has no types. Whatever it gives is Any, and is turned into ours at once.
# mypy: disallow_untyped_decorators=False, disallow_subclassing_any=False

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from ._calls import Image
from ._client import Client
from ._standard_detector import TRIGGER_MODES, Refused, StandardDetector, View

try:
    tango: Any = import_module("tango")
    server: Any = import_module("tango.server")
except ImportError as missing:
    raise ImportError("the Tango device needs PyTango: pip install 'konkordia[tango]'") from missing

SIDE_MAX = 65536
"""Most rows and columns of an image."""
WIDER = {"int8": "int16", "float16": "float32", "bool": "uint8"}
"""Types that Tango has not, and those that hold their numbers."""
SETTINGS: dict[str, tuple[str, Any, str, str]] = {
    "ExposureTime": ("exposure_s", float, "s", "exposure of one image"),
    "LatencyTime": ("latency_s", float, "s", "time between two exposures"),
    "nTriggers": ("triggers", int, "", "triggers of the run; 0: until Stop"),
    "nFramesPerTrigger": ("frames_per_trigger", int, "", "images of one trigger"),
    "TriggerMode": ("trigger_mode", str, "", "; ".join(f"{name}: {what}" for name, what in TRIGGER_MODES.items())),
    "DestinationFilename": ("filename", str, "", "of the next run, below the data root of the service; empty: PREFIX_NUMBER"),
    "WriteFile": ("write", bool, "", "whether a file is written"),
    "PhotonEnergy": ("energy_kev", float, "keV", "photon energy"),
    "DetectorDistance": ("distance_mm", float, "mm", "from the sample to the detector"),
    "BeamCenterX": ("beam_center_x_px", float, "px", "column where the direct beam meets the image"),
    "BeamCenterY": ("beam_center_y_px", float, "px", "row where the direct beam meets the image"),
    "SampleName": ("sample_name", str, "", "name of the sample"),
}


def _of_status(key: str) -> Callable[[Konkordia], Any]:
    return lambda device: None if device.view.status is None else device.view.status.get(key)


READINGS: dict[str, tuple[Callable[[Konkordia], Any], Any, str, str]] = {
    "nImages": (lambda device: device.detector.settings.images, int, "", "images of the next run: nTriggers x nFramesPerTrigger"),
    "nFramesAcquired": (_of_status("images_committed"), int, "", "images of the run that have come, or are known to be lost"),
    "nTriggersAcquired": (lambda device: device.detector.triggers_done, int, "", "triggers whose images have all come"),
    "ReadyForSwTrigger": (lambda device: device.detector.is_ready_for_trigger, bool, "", "SoftwareTrigger is expected"),
    "Run": (_of_status("run"), int, "", "number of the newest run"),
    "ImagesExpected": (_of_status("images_expected"), int, "", "images that the run is to have"),
    "ImagesWritten": (_of_status("images_written"), int, "", "images in the file"),
    "ImagesLost": (_of_status("images_lost"), int, "", "images lost, whole"),
    "ImagesPartial": (_of_status("images_partial"), int, "", "images that miss a part"),
    "ImagesNotReceived": (_of_status("images_not_received"), int, "", "planned images that did not arrive"),
    "ImagesNotTaken": (_of_status("images_not_taken"), int, "", "planned images that were not taken"),
    "Progress": (_of_status("progress"), float, "", "of the run, 0 to 1"),
    "File": (_of_status("file"), str, "", "master file of the newest run"),
    "Ended": (_of_status("ended"), str, "", "why the newest run ended"),
    "ServiceState": (_of_status("state"), str, "", "idle, armed, running or error"),
    "Message": (lambda device: device.view.message, str, "", "what people should know"),
    "Hint": (lambda device: device.view.hint, str, "", "what to do about it"),
    "WaitsFor": (lambda device: device.view.waits_for, str, "", "what is waited for, and since when"),
    "LastRefusal": (lambda device: device.view.refusal, str, "", "why the last command was refused; empty once one was accepted"),
    "Operator": (lambda device: device.operator(), str, "", "who armed or started the run"),
    "Alarms": (lambda device: device.alarms(), str, "", "the alarms of the service that are on"),
    "ImageNumber": (lambda device: device.of_image("number"), int, "", "number of Image in its run, from 0"),
    "ImageRun": (lambda device: device.of_image("run"), int, "", "run of Image"),
    "TriggerNumber": (lambda device: device.of_image("trigger"), int, "", "trigger of Image in its run, from 0: the key for coincidences"),
    "ImageFacts": (lambda device: device.of_image("facts"), str, "", "what is known of Image, its results among it, as JSON"),
}
OF_IMAGE = ("ImageNumber", "ImageRun", "TriggerNumber", "ImageFacts")
NOTHING = {int: 0, float: 0.0, str: "", bool: False}


def _of_settings(key: str) -> Callable[[Konkordia], Any]:
    return lambda device: getattr(device.detector.settings, key)


def _reader(read: Callable[[Konkordia], Any], kind: Any) -> Callable[[Konkordia], tuple[Any, float, Any]]:
    """Invalid while it is not known. A setting that was not set is not known: it is as the service is configured."""

    def reading(device: Konkordia) -> tuple[Any, float, Any]:
        value = _latin(read(device))
        return NOTHING[kind] if value is None else value, time.time(), _quality(value)

    return reading


def _writer(name: str, key: str, kind: Any) -> Callable[[Konkordia, Any], None]:
    def write(device: Konkordia, value: Any) -> None:
        device.set(name, key, kind(value))

    return write


def _attributes() -> dict[str, Any]:
    """The attributes of the tables."""
    rw = tango.AttrWriteType.READ_WRITE
    settings = {
        name: server.attribute(
            dtype=kind, unit=unit, doc=doc, access=rw, fget=_reader(_of_settings(key), kind), fset=_writer(name, key, kind)
        )
        for name, (key, kind, unit, doc) in SETTINGS.items()
    }
    readings = {
        name: server.attribute(dtype=kind, unit=unit, doc=doc, fget=_reader(read, kind))
        for name, (read, kind, unit, doc) in READINGS.items()
    }
    return settings | readings


def _latin(value: Any) -> Any:
    """Texts of Tango are Latin-1; other characters are written as \\u03bb."""
    return value.encode("latin-1", "backslashreplace").decode("latin-1") if isinstance(value, str) else value


def _failed(error: Refused, origin: str) -> Any:
    """A refusal as Tango has it: the code is the reason, text and hint are the description."""
    description = _latin(f"{error.args[0]}\nhint: {error.hint}" if error.hint else str(error.args[0]))
    failure = tango.DevError()
    failure.reason, failure.desc, failure.origin, failure.severity = error.code, description, origin, tango.ErrSeverity.ERR
    return tango.DevFailed(failure)


def _quality(value: Any) -> Any:
    return tango.AttrQuality.ATTR_INVALID if value is None else tango.AttrQuality.ATTR_VALID


class Konkordia(server.Device):
    """A detector of a Konkordia service, in the form of MAX IV's standard detectors."""

    Url = server.device_property(dtype=str, default_value="", doc="address of the service; else KONKORDIA_URL")
    Token = server.device_property(dtype=str, default_value="", doc="else KONKORDIA_TOKEN")
    Detector = server.device_property(dtype=str, default_value="", doc="where the service has several; else KONKORDIA_DETECTOR")
    Channel = server.device_property(dtype=str, default_value="", doc="of images with several channels")
    CommandWait = server.device_property(dtype=float, default_value=2.0, doc="s; less than the time-out of the clients")
    ImageTimeoutDefault = server.device_property(dtype=float, default_value=60.0, doc="s; ImageTimeout at the start")
    ImagesHzMax = server.device_property(dtype=float, default_value=25.0, doc="most images per second")

    ImageTimeout = server.attribute(
        dtype=float,
        unit="s",
        fget="read_timeout",
        fset="write_timeout",
        doc="a run armed here is stopped if no image comes for so long; 0: never",
    )
    Metadata = server.attribute(
        dtype=str,
        fget="read_metadata",
        fset="write_metadata",
        doc="other metadata for the file: a JSON object with keys of docs/configuration.md",
    )
    locals().update(_attributes())
    detector: StandardDetector
    _image_dtype: np.dtype[Any] | None = None

    def init_device(self) -> None:
        super().init_device()
        self._closing = False
        self._changed = threading.Event()
        self._pushed: dict[str, Any] = {}
        self._wanted_until = 0.0
        for name in [*SETTINGS, *READINGS, "ImageTimeout", "Metadata", "State", "Status"]:
            self.set_change_event(name, True, False)
            self.set_archive_event(name, True, False)
        if self._image_dtype is None:  # Else Init was called.
            self._add_image(np.dtype("uint16"))
        self.detector = StandardDetector(
            self._make_client,
            on_change=self._changed.set,
            on_image=self._push_image,
            wanted=self._is_image_wanted,
            command_wait_s=self.CommandWait,
            image_timeout_s=self.ImageTimeoutDefault,
            images_hz_max=self.ImagesHzMax,
            channel=self.Channel or None,
        )
        for name, (key, _, _, _) in SETTINGS.items():
            if (value := getattr(self.detector.settings, key)) is not None:
                # Else a panel offers 0 as the value to write.
                self.get_device_attr().get_w_attr_by_name(name).set_write_value(value)
        self._publisher = threading.Thread(target=self._publish, name="konkordia-events", daemon=True)
        self._publisher.start()
        self.detector.start()

    def delete_device(self) -> None:
        """Ends the threads; a run goes on."""
        self._closing = True
        self._changed.set()
        closing = threading.Thread(target=self.detector.close, daemon=True)
        closing.start()
        # A thread that is pushing an event waits for this very command.
        closing.join(3)

    def _make_client(self) -> Client:
        detector = self.Detector or os.environ.get("KONKORDIA_DETECTOR") or None
        return Client(self.Url or None, token=self.Token or None, detector=detector, timeout_s=10)

    @property
    def view(self) -> View:
        """What is shown now."""
        return self.detector.view

    def dev_state(self) -> Any:
        """As docs/tango.md has it."""
        return getattr(tango.DevState, self.view.state)

    def dev_status(self) -> str:
        """State, message, what is waited for, hint, and the last refusal."""
        return str(_latin(f"{self.view.state}: {self.view.text}"))

    # Attributes.

    def set(self, name: str, key: str, value: Any) -> None:
        """A value that makes no sense is refused at once; the service checks the others at Arm."""
        try:
            self.detector.settings = self.detector.settings.changed(key, value)
        except Refused as error:
            raise _failed(error, f"Konkordia.{name}") from error
        self._changed.set()

    def read_timeout(self) -> float:
        """Since the last image, or since Arm."""
        return self.detector.image_timeout_s

    def write_timeout(self, seconds: float) -> None:
        """Refuses what is no time."""
        if not 0 <= seconds < float("inf"):
            raise _failed(Refused("bad_setting", f"ImageTimeout = {seconds} is no time", "give seconds, or 0"), "Konkordia.ImageTimeout")
        self.detector.image_timeout_s = seconds
        self._changed.set()

    def read_metadata(self) -> str:
        """As it was written."""
        return json.dumps(self.detector.settings.others)

    def write_metadata(self, text: str) -> None:
        """Refuses what is no JSON object."""
        self.set("Metadata", "others", self._object("Metadata", text))

    def _object(self, name: str, text: str) -> dict[str, Any]:
        def not_a_number(word: str) -> float:
            raise ValueError(f"{word} is not a number")

        try:
            found = json.loads(text or "{}", parse_constant=not_a_number)
        except ValueError as error:
            raise _failed(
                Refused("bad_setting", f"{name} is no JSON: {error}", 'give an object: {"key": value}'), f"Konkordia.{name}"
            ) from error
        if not isinstance(found, dict):
            raise _failed(Refused("bad_setting", f"{name} is no JSON object", 'give {"key": value}'), f"Konkordia.{name}")
        return found

    def operator(self) -> str | None:
        """Who armed or started the run."""
        known = None if self.view.status is None else self.view.status.get("operator")
        return None if known is None else f"{known['name']} ({known['action']}, {known['since']})"

    def alarms(self) -> str | None:
        """The alarms that are on, one a line."""
        if self.view.status is None:
            return None
        return "\n".join(alarm.get("message") or alarm["name"] for alarm in self.view.status.get("alarms", []))

    def of_image(self, what: str) -> Any:
        """Of the image that Image has."""
        image = self.detector.image
        if image is None:
            return None
        known = {"number": image.number, "run": image.run, "trigger": self.detector.trigger_of(image.number)}
        return json.dumps(image.facts) if what == "facts" and image.facts is not None else known.get(what)

    # The image. Attributes of Tango have a fixed type, so it is made anew when the type of the pixels changes.

    def _add_image(self, dtype: np.dtype[Any]) -> None:
        of_dtype = server.attribute(
            name="Image", dtype=((dtype.type,),), max_dim_x=SIDE_MAX, max_dim_y=SIDE_MAX, fget=self.read_image, doc="the newest image"
        )
        self.add_attribute(of_dtype)
        self.set_change_event("Image", True, False)
        self.set_archive_event("Image", True, False)
        self._image_dtype = dtype

    def _become(self, dtype: np.dtype[Any]) -> None:
        """Gives Image this type. Who is subscribed stays so: the subscription is renewed in place of the client."""
        if dtype == self._image_dtype:
            return
        old = self.get_device_attr().get_attr_by_name("Image")
        kinds = [kind for kind in ("change", "archive") if getattr(old, f"{kind}_event_subscribed")()]
        self.remove_attribute("Image", clean_db=False)
        self._add_image(dtype)
        for kind in kinds:
            try:
                admin = tango.DeviceProxy(_own_address(tango.Util.instance()))
                admin.command_inout("ZmqEventSubscriptionChange", [self.get_name(), "Image", "subscribe", kind, "6"])
            except tango.DevFailed as error:
                # The client itself subscribes again some minutes later.
                self.warn_stream("the subscription to Image was not renewed: %s", error.args[0].desc)

    def _is_image_wanted(self) -> bool:
        if self._closing:
            return False
        image = self.get_device_attr().get_attr_by_name("Image")
        return bool(image.change_event_subscribed() or image.archive_event_subscribed())

    def read_image(self, attr: Any) -> tuple[Any, float, Any]:
        """The newest image; invalid if there is none."""
        try:
            image = self.detector.newest_image()
        except Refused as error:
            raise _failed(error, "Konkordia.Image") from error
        if image is None:
            return np.zeros((0, 0), self._image_dtype), time.time(), tango.AttrQuality.ATTR_INVALID
        return self._pixels(image), _taken(image), tango.AttrQuality.ATTR_VALID

    def _pixels(self, image: Image) -> Any:
        pixels = image.pixels if image.pixels.ndim == 2 else image.pixels[0]
        pixels = pixels.astype(WIDER.get(pixels.dtype.name, pixels.dtype), copy=False)
        if pixels.dtype != self._image_dtype:
            raise _failed(Refused("other_type", f"the pixels are {pixels.dtype} now", "read Image again"), "Konkordia.Image")
        return pixels

    # Commands.

    def _do(self, name: str, work: Callable[[], None]) -> None:
        try:
            work()
        except Refused as error:
            raise _failed(error, f"Konkordia.{name}") from error

    @server.command
    def Arm(self) -> None:
        """Makes everything ready for a run with these settings, or says why not."""
        self._do("Arm", self.detector.arm)

    @server.command
    def Start(self) -> None:
        """Lets the armed run begin: the service calls [control] on_start and begins its clock for the first image."""
        self._do("Start", self.detector.begin)

    @server.command
    def SoftwareTrigger(self) -> None:
        """One trigger."""
        self._do("SoftwareTrigger", self.detector.trigger)

    @server.command
    def Trigger(self) -> None:
        """As SoftwareTrigger."""
        self._do("Trigger", self.detector.trigger)

    @server.command
    def Stop(self) -> None:
        """Ends the run; its file is complete."""
        self._do("Stop", self.detector.stop)

    @server.command
    def Cancel(self) -> None:
        """Ends whatever goes on; allowed in each state."""
        self._do("Cancel", self.detector.cancel)

    @server.command
    def Abort(self) -> None:
        """As Cancel."""
        self._do("Abort", self.detector.cancel)

    @server.command(dtype_in=str, doc_in="JSON with stage, frames, skip, file, force, or nothing")
    def Pedestal(self, settings: str) -> None:
        """Takes dark frames."""
        given = self._object("Pedestal", settings)
        self._do("Pedestal", lambda: self.detector.pedestal(given))

    @server.command
    def Reset(self) -> None:
        """What went wrong was seen: leaves ALARM and FAULT."""
        self._do("Reset", self.detector.reset)

    # Events.

    def _publish(self) -> None:
        """Pushes what has changed. A thread of its own, because a thread that pushes waits for the command that runs."""
        with tango.EnsureOmniThread():
            while self._changed.wait() and not self._closing:
                self._changed.clear()
                self._push_state()
                for name, value, kind in self._scalars():
                    self._push_changed(name, value, kind)

    def _push_state(self) -> None:
        """Events of State and Status have what was set, while those who read get what is so now."""
        shown = (self.dev_state(), self.dev_status())
        for name, set_it, value in zip(("State", "Status"), (self.set_state, self.set_status), shown, strict=True):
            if self._pushed.get(name) != value:
                self._pushed[name] = value
                set_it(value)
                self._push(name)

    def _scalars(self) -> list[tuple[str, Any, Any]]:
        settings = self.detector.settings
        found = [(name, getattr(settings, key), kind) for name, (key, kind, _, _) in SETTINGS.items()]
        found += [(name, read(self), kind) for name, (read, kind, _, _) in READINGS.items() if name not in OF_IMAGE]
        return [*found, ("ImageTimeout", self.detector.image_timeout_s, float), ("Metadata", json.dumps(settings.others), str)]

    def _push_changed(self, name: str, value: Any, kind: Any, at: float | None = None) -> None:
        if name in self._pushed and self._pushed[name] == value:
            return
        self._pushed[name] = value
        self._push(name, NOTHING[kind] if value is None else _latin(value), at or time.time(), _quality(value))

    def _push(self, name: str, *what: Any) -> None:
        if not self._closing:
            self.push_change_event(name, *what)
            self.push_archive_event(name, *what)

    def _push_image(self, image: Image) -> None:
        """Image and what belongs to it, with one time."""
        pixels = image.pixels if image.pixels.ndim == 2 else image.pixels[0]
        with tango.EnsureOmniThread():
            pixels = pixels.astype(WIDER.get(pixels.dtype.name, pixels.dtype), copy=False)
            self._become(pixels.dtype)
            at = _taken(image)
            for name in OF_IMAGE:
                read, kind, _, _ = READINGS[name]
                self._push_changed(name, read(self), kind, at)
            # An event costs copies of the image: each kind only for those who want it.
            subscribed = self.get_device_attr().get_attr_by_name("Image")
            if not self._closing and subscribed.change_event_subscribed():
                self.push_change_event("Image", pixels, at, tango.AttrQuality.ATTR_VALID)
            if not self._closing and subscribed.archive_event_subscribed():
                self.push_archive_event("Image", pixels, at, tango.AttrQuality.ATTR_VALID)


def _taken(image: Image) -> float:
    """When it came into the service, as seconds since 1970."""
    return time.time() - (image.age_ms or 0) / 1000


def _own_address(util: Any) -> str:
    """Of the admin device of this process. Without a database only its object reference says the port."""
    admin = util.get_dserver_device()
    if util._UseDb:
        return str(admin.get_name())
    host, port = _endpoint(bytes.fromhex(util.get_dserver_ior(admin).removeprefix("IOR:")))
    return f"tango://{host}:{port}/{admin.get_name()}#dbase=no"


def _endpoint(reference: bytes) -> tuple[str, int]:
    """Host and port in a CORBA object reference: a type, profiles; the first profile begins with version, host, port."""
    order: Any = "little" if reference[0] else "big"

    def number(data: bytes, at: int, size: int) -> int:
        return int.from_bytes(data[at : at + size], order)

    at = 8 + number(reference, 4, 4)
    at += -at % 4 + 12
    profile = reference[at:]
    length = number(profile, 4, 4)
    port_at = 8 + length
    return profile[8 : 7 + length].decode(), number(profile, port_at + port_at % 2, 2)


def main(arguments: list[str] | None = None) -> None:
    """Runs the server until it is ended."""
    given = sys.argv[1:] if arguments is None else arguments
    server.run((Konkordia,), args=["konkordia-tango", *given])


if __name__ == "__main__":
    main()
