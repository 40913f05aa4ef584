"""A detector as beamlines of Tango know it: settings, commands that answer in time, and one state that says what is waited
for. It knows nothing of Tango itself (`konkordia.tango` does)."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from ._calls import Image, ServiceError
from ._errors import KonkordiaError
from ._follow import Follower, reason

if TYPE_CHECKING:
    from ._client import Client
    from ._schema import DetectorStatus

State = Literal["INIT", "STANDBY", "MOVING", "RUNNING", "ALARM", "FAULT", "UNKNOWN"]
WATCH_S = 0.1
"""How often it is looked whether an image is overdue."""
LOOK_AGAIN_S = 1.0
"""In a run the service is asked again after this time, even if its follower has told of no change."""

TRIGGER_MODES = {
    "INTERNAL": "the detector begins by itself, or [control] on_start begins it: Arm also starts",
    "SOFTWARE": "each SoftwareTrigger is passed to [control] on_trigger",
    "EXTERNAL": "each trigger makes nFramesPerTrigger images",
    "EXTERNAL_MULTI": "each trigger makes one image",
    "EXTERNAL_GATE": "the first gate begins the images",
    "EXTERNAL_MULTI_GATE": "each gate makes one image, as long as the gate",
}
OTHER_NAMES = {"EXTERNAL_EDGE": "EXTERNAL_MULTI", "EXTERNAL_LEVEL": "EXTERNAL_MULTI_GATE", "EXTERNAL_MULTI_TRIGGER": "EXTERNAL_MULTI"}
"""Names of ophyd-async and of other detectors for the same."""


class Refused(KonkordiaError):
    """A setting or a command was refused; ``code`` is that of the service's problem, or "bad_setting"."""

    def __init__(self, code: str, what: str, hint: str) -> None:
        super().__init__(what, hint, 5)
        self.code = code

    def __str__(self) -> str:
        return f"{self.code}: {reason(self)}"


def _refused(error: ServiceError) -> Refused:
    return Refused(error.code, " ".join(str(error.args[0]).split()), error.hint)


@dataclass(frozen=True)
class Settings:
    """What the next run is armed with. What is None is as the service is configured."""

    exposure_s: float | None = None
    latency_s: float | None = None
    triggers: int = 1
    frames_per_trigger: int = 1
    trigger_mode: str = "INTERNAL"
    filename: str = ""
    write: bool | None = None
    energy_kev: float | None = None
    distance_mm: float | None = None
    beam_center_x_px: float | None = None
    beam_center_y_px: float | None = None
    sample_name: str | None = None
    others: Mapping[str, Any] = field(default_factory=dict)

    def changed(self, name: str, value: Any) -> Settings:
        """These settings with another value, which is checked as far as it can be without the service."""
        if isinstance(value, float) and not math.isfinite(value):
            raise Refused("bad_setting", f"{name} = {value} is not a number", "give a finite number")
        lowest = {"exposure_s": 1e-7, "latency_s": 0, "triggers": 0, "frames_per_trigger": 1, "energy_kev": 1e-3, "distance_mm": 1e-3}
        if value is not None and name in lowest and value < lowest[name]:
            raise Refused("bad_setting", f"{name} = {value} is too small", f"give at least {lowest[name]:g}")
        if name == "trigger_mode":
            value = _mode(value)
        return replace(self, **{name: value})

    @property
    def images(self) -> int:
        """Of the whole run; 0: until it is stopped."""
        return self.triggers * self.frames_per_trigger

    @property
    def metadata(self) -> dict[str, Any]:
        """What the file is told, by the names of the configuration."""
        whole_s = None if self.exposure_s is None or self.latency_s is None else self.exposure_s + self.latency_s
        known = {
            "count_time_us": None if self.exposure_s is None else self.exposure_s * 1e6,
            "frame_time_us": None if whole_s is None else whole_s * 1e6,
            "energy_kev": self.energy_kev,
            "detector_distance_mm": self.distance_mm,
            "beam_center_x_px": self.beam_center_x_px,
            "beam_center_y_px": self.beam_center_y_px,
            "sample_name": self.sample_name,
        }
        return {**{key: value for key, value in known.items() if value is not None}, **self.others}

    def request(self) -> dict[str, Any]:
        """The arguments of `Client.arm` and `Client.start`."""
        return {"images": self.images, "prefix": self.filename or None, "write": self.write, "metadata": self.metadata}


def _mode(name: str) -> str:
    mode = name.strip().upper()
    mode = OTHER_NAMES.get(mode, mode)
    if mode not in TRIGGER_MODES:
        raise Refused("bad_setting", f"TriggerMode {name!r} is unknown", f"one of {', '.join([*TRIGGER_MODES, *OTHER_NAMES])}")
    return mode


@dataclass(frozen=True)
class View:
    """What is shown at one moment."""

    state: State = "INIT"
    message: str = "asks the service for its state"
    hint: str = ""
    waits_for: str = ""
    refusal: str = ""
    status: DetectorStatus | None = None
    """As the service says; None while that is not known."""

    @property
    def text(self) -> str:
        """All of it for people."""
        lines = [self.message, f"waits for {self.waits_for}" if self.waits_for else "", f"hint: {self.hint}" if self.hint else ""]
        return "\n".join(line for line in [*lines, f"last refusal: {self.refusal}" if self.refusal else ""] if line)


def _clock() -> str:
    return time.strftime("%H:%M:%S")


class _Job:
    """A command that is being carried out."""

    def __init__(self, name: str) -> None:
        self.name, self.since = name, _clock()
        self.is_late = self.is_over = False


class StandardDetector:
    """Drives a detector of a service, and follows it.

    Parameters
    ----------
    make_client : callable
        Makes a client.
    on_change : callable
        Called, from any thread, after `view` has changed.
    on_image : callable
        Called with the newest images while somebody wants them (`wanted`).
    command_wait_s : float
        So long a command waits for its answer; then it goes on in state MOVING. Less than the time-out of Tango clients.
    image_timeout_s : float
        A run that was armed here is stopped if no image comes for so long; 0: never.
    images_hz_max : float
        Most images per second.
    channel : str, optional
        Of images with several channels.
    """

    def __init__(
        self,
        make_client: Callable[[], Client],
        *,
        on_change: Callable[[], None],
        on_image: Callable[[Image], None],
        wanted: Callable[[], bool],
        command_wait_s: float = 2.0,
        image_timeout_s: float = 60.0,
        images_hz_max: float = 25.0,
        channel: str | None = None,
    ) -> None:
        self.settings = Settings()
        self.image_timeout_s = image_timeout_s
        self.view = View()
        self.image: Image | None = None
        self._on_change, self._on_image, self._wanted = on_change, on_image, wanted
        self._command_wait_s = command_wait_s
        self._lock = threading.RLock()
        self._client = make_client()
        self._workers = ThreadPoolExecutor(4, "konkordia-command")
        self._closing = threading.Event()
        self._jobs: list[_Job] = []
        self._is_mine = False
        self._note: tuple[str, str] | None = None
        self._refusal = ""
        self._acknowledged = 0
        self._frames_per_trigger = 1
        self._progress: tuple[Any, ...] = ()
        self._since, self._since_text = time.monotonic(), _clock()
        self._looked = time.monotonic()
        self._channel = channel
        self._follower = Follower(
            make_client,
            on_status=lambda status, why: self.refresh(),
            on_image=self._take_image,
            images_hz_max=images_hz_max,
            channel=channel,
        )
        self._watcher = threading.Thread(target=self._watch, name="konkordia-watch", daemon=True)

    def start(self) -> None:
        """Begins to follow the service."""
        self._follower.start()
        self._watcher.start()

    def close(self) -> None:
        """Ends its threads. A run goes on."""
        self._closing.set()
        self._follower.close()
        self._watcher.join()
        self._workers.shutdown(wait=False, cancel_futures=True)
        self._client.close()

    # Commands.

    def arm(self) -> None:
        """Makes everything ready for the run of the settings; with internal triggers it begins at once."""
        settings = self.settings
        verb = self._client.start if settings.trigger_mode == "INTERNAL" else self._client.arm
        self._command("Arm", lambda: self._armed(settings, verb(**settings.request())))

    def _armed(self, settings: Settings, status: DetectorStatus) -> None:
        with self._lock:
            self._is_mine, self._note, self._frames_per_trigger = True, None, settings.frames_per_trigger

    def begin(self) -> None:
        """Lets the run begin that is armed."""
        self._command("Start", self._client.start)

    def trigger(self) -> None:
        """A software trigger."""
        if self.settings.trigger_mode != "SOFTWARE":
            what = f"TriggerMode is {self.settings.trigger_mode}: a software trigger is not expected"
            raise Refused("wrong_mode", what, "set TriggerMode = SOFTWARE before Arm")
        self._command("SoftwareTrigger", self._client.trigger)

    def stop(self) -> None:
        """Ends the run; its file is complete."""
        self._command("Stop", self._client.stop)

    def cancel(self) -> None:
        """Ends whatever goes on, in each state."""
        self._command("Cancel", self._client.cancel)

    def pedestal(self, settings: Mapping[str, Any]) -> None:
        """Takes dark frames."""
        self._command("Pedestal", lambda: self._client.pedestal(**settings))

    def reset(self) -> None:
        """What went wrong was seen: the detector can be armed again. An error of the service is cleared."""
        with self._lock:
            self._note, self._refusal = None, ""
            self._acknowledged = 0 if self.view.status is None else self.view.status["run"]
        if self.view.status is not None and self.view.status["state"] == "error":
            self.cancel()
        self.refresh()

    def _command(self, name: str, work: Callable[[], object]) -> None:
        job = _Job(name)
        with self._lock:
            self._jobs.append(job)
        done = self._workers.submit(self._carry_out, job, work)
        try:
            done.result(self._command_wait_s)
        except NotYet:
            with self._lock:
                job.is_late = not job.is_over
            self.refresh()

    def _carry_out(self, job: _Job, work: Callable[[], object]) -> None:
        refused = None
        try:
            work()
        except ServiceError as error:
            refused = _refused(error)
        except (TypeError, ValueError) as error:
            refused = Refused("bad_setting", str(error), "see docs/api.md for what may be given")
        with self._lock:
            job.is_over = True
            self._jobs.remove(job)
            self._refusal = "" if refused is None else f"{job.name}: {refused}"
            if refused is not None and job.is_late:
                self._note = (f"{job.name} was refused: {refused.args[0]}", refused.hint)
        self.refresh()
        if refused is not None:
            raise refused

    # What is shown.

    def refresh(self) -> None:
        """Asks the service, and shows what it says. All that is shown comes from here, so an old answer never follows a newer
        one: a state that was asked for before an arm would end the run for everybody who waits."""
        with self._lock:
            status: DetectorStatus | None = None
            try:
                status = self._client.status()
            except ServiceError as error:
                view = self._away(error)
            else:
                view = self._seen(status)
            is_new = view != self.view
            self.view, self._looked = view, time.monotonic()
        if is_new:
            self._on_change()

    def _away(self, error: ServiceError) -> View:
        """The service cannot be reached, or does not let us look: the state of the detector is not known, or a setting of this
        device is wrong."""
        state: State = "UNKNOWN" if error.status == 0 or error.status >= 500 else "FAULT"
        return View(
            state,
            " ".join(str(error.args[0]).split()),
            error.hint,
            "the service" if state == "UNKNOWN" else "",
            self._refusal,
            self.view.status,
        )

    def _seen(self, status: DetectorStatus) -> View:
        before = self.view.status
        is_active = status["state"] in ("armed", "running")
        if before is not None and before["state"] in ("armed", "running"):
            if status["run"] < before["run"]:
                self._note = _restarted(before)
            if not is_active:
                self._is_mine = False
        progress = (status["run"], status["state"], status["draining"], status["images_committed"])
        if progress != self._progress:
            self._progress, self._since, self._since_text = progress, time.monotonic(), _clock()
        view = View(self._state(status), status["message"], status.get("hint") or "", self._waited_for(status), self._refusal, status)
        if job := next((job for job in self._jobs if job.is_late), None):
            return replace(view, state="MOVING", waits_for=f"the answer to {job.name}, since {job.since}")
        if view.state == "ALARM" and self._note is not None:
            return replace(view, message=self._note[0], hint=self._note[1])
        return view

    def _state(self, status: DetectorStatus) -> State:
        if status["state"] in ("armed", "running"):
            return "RUNNING"
        if status["state"] == "error":
            return "FAULT"
        is_bad = status["run"] > 0 and status["run"] != self._acknowledged and status["severity"] in ("warning", "error")
        return "ALARM" if self._note is not None or is_bad else "STANDBY"

    def _waited_for(self, status: DetectorStatus) -> str:
        if status["state"] not in ("armed", "running"):
            return ""
        if status["draining"]:
            return f"the last images to be written and the file to be closed, since {self._since_text}"
        number, expected = status["images_committed"], status.get("images_expected")
        if expected is not None and number >= expected:
            return f"the end of the run, since {self._since_text}"
        of = "" if expected is None else f" of {expected}"
        came = "none has come" if number == 0 else f"{number} have come"
        return f"image {number}{of}, since {self._since_text}; {came}"

    def _watch(self) -> None:
        while not self._closing.wait(WATCH_S):
            # A follower that is held up must not make a run that has ended look like one to which nothing comes.
            if self.view.state == "RUNNING" and time.monotonic() - self._looked > LOOK_AGAIN_S:
                self.refresh()
            limit_s = self.image_timeout_s
            if limit_s > 0 and self._is_mine and time.monotonic() - self._since > limit_s and self.view.state == "RUNNING":
                self._give_up(limit_s)

    def _give_up(self, limit_s: float) -> None:
        """Nothing has come for too long: the run is stopped, so that what came is in a closed file."""
        with self._lock:
            what = f"nothing came for {limit_s:g} s: waited for {self.view.waits_for}. The run was stopped"
            hints = {
                "INTERNAL": "was the detector started, and does it send here? `konkordia doctor` and docs/troubleshooting.md",
                "SOFTWARE": "was SoftwareTrigger sent nTriggers times?",
            }
            hint = hints.get(self.settings.trigger_mode, "do the triggers reach the detector, and are there nTriggers of them?")
            self._note, self._is_mine = (what, f"{hint}; or set ImageTimeout"), False
        try:
            self._client.stop()
        except ServiceError as error:
            self._note = (f"{what}, which failed: {reason(error)}", hint)
        self.refresh()

    # Images.

    def _take_image(self, image: Image) -> None:
        """An image came; the next one is fetched when somebody wants it, because images are large."""
        self.image = image
        self._on_image(image)
        while not self._wanted() and not self._closing.wait(0.05):
            pass

    def newest_image(self) -> Image | None:
        """The newest image, fetched now unless they come by themselves. None if there is none."""
        if not self._wanted():
            try:
                self.image = self._client.image(channel=self._channel)
            except ServiceError as error:
                if error.status != 404:
                    raise _refused(error) from error
                self.image = None
        return self.image

    def trigger_of(self, number: int) -> int:
        """The trigger that an image of the run belongs to, from 0."""
        return number // self._frames_per_trigger

    @property
    def triggers_done(self) -> int | None:
        """Triggers whose images have all come."""
        status = self.view.status
        return None if status is None else status["images_committed"] // self._frames_per_trigger

    @property
    def is_ready_for_trigger(self) -> bool:
        """It waits for a software trigger."""
        status = self.view.status
        if status is None or self.view.state != "RUNNING" or status["draining"] or self.settings.trigger_mode != "SOFTWARE":
            return False
        return status["images_committed"] % self._frames_per_trigger == 0


def _restarted(before: DetectorStatus) -> tuple[str, str]:
    number, file = before["images_committed"], before.get("file")
    what = f"the service was restarted during run {before['run']}, of which {number} images had come"
    return what, f"`konkordia repair {file}` makes its file readable" if file else "see docs/service.md, When it is killed"
