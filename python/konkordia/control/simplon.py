"""The driver of a DECTRIS detector: its DCU is driven by the SIMPLON interface, over HTTP (docs/control.md)."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ._driver import Answer, Driver, Expected, Order, Refused, agrees, main

__all__ = ["Simplon"]

FORMATS = {"stream1": "legacy", "stream2": "cbor"}
# The most images that a series can have.
UNTIL_STOPPED = 2_000_000_000
# In this mode the answer to a trigger comes when all its images are taken.
TRIGGER_ANSWER_S = 1.0


class Simplon(Driver):
    """Drives a DCU."""

    settings: ClassVar[Mapping[str, type | tuple[type, ...]]] = {
        "url": str,
        "api_version": str,
        "trigger_mode": str,
        "triggers": int,
        "header_detail": str,
        "initialize": bool,
        "http_timeout_s": float,
        "set": dict,
    }
    required = ("url",)

    def __init__(self, order: Order) -> None:
        super().__init__(order)
        try:
            import httpx
        except ImportError:
            raise Refused("the package httpx is not installed", "pip install konkordia[client]") from None
        self._httpx = httpx
        self._version = self.given.get("api_version", "1.8.0")
        self._timeout_s: float = self.given.get("http_timeout_s", 8.0)
        # A proxy of the environment is for the outside; the DCU stands at the beamline.
        self._client = httpx.Client(base_url=self.given["url"], trust_env=False)

    def close(self) -> None:
        self._client.close()

    def _call(self, method: str, path: str, value: Any = None, timeout: float | None = None) -> Any:
        body = None if value is None else {"value": value}
        what = path if value is None else f"{path} = {value!r}"
        try:
            answer = self._client.request(method, path, json=body, timeout=self._timeout_s if timeout is None else timeout)
        except self._httpx.ConnectTimeout:
            raise self._away("it does not answer") from None
        except self._httpx.TimeoutException:
            why = f"the DCU at {self.given['url']} did not answer in time to {method} {what}"
            raise Refused(why, "look at the state of the DCU, or raise control.settings.http_timeout_s") from None
        except (self._httpx.HTTPError, self._httpx.InvalidURL) as error:
            raise self._away(str(error)) from None
        if answer.status_code >= 400:
            why = f"the DCU refuses {method} {what}: {answer.status_code} {answer.text.strip()[:500]}"
            raise Refused(why, "look at the manual of the detector; control.settings and the run's metadata say what is set")
        return answer.json() if answer.text.strip() else None

    def _away(self, why: str) -> Refused:
        return Refused(f"the DCU at {self.given['url']} cannot be reached: {why}", "check control.settings.url, the DCU and the network")

    def _path(self, part: str, rest: str) -> str:
        return f"/{part}/api/{self._version}/{rest}"

    def _get(self, part: str, rest: str) -> Any:
        path = self._path(part, rest)
        found = self._call("GET", path)
        if not isinstance(found, dict) or "value" not in found:
            raise Refused(f"the DCU answers {path} with {str(found)[:200]}", "is this the address of a DCU with this api_version?")
        return found["value"]

    def _put(self, part: str, key: str, value: Any) -> None:
        self._call("PUT", self._path(part, f"config/{key}"), value)

    def _command(self, name: str, timeout: float | None = None) -> Any:
        return self._call("PUT", self._path("detector", f"command/{name}"), timeout=timeout)

    def _state(self) -> str:
        return str(self._get("detector", "status/state"))

    def arm(self) -> Answer:
        self._make_idle()
        wanted = self._configuration()
        stream = self._stream()
        for key, value in stream.items():
            self._put("stream", key, value)
        for key, value in wanted.items():
            self._put("detector", key, value)
        found = {key: self._get("detector", f"config/{key}") for key in wanted}
        for key, value in wanted.items():
            if not agrees(value, found[key]):
                why = f"the DCU has not taken {key}: {found[key]!r} instead of {value!r}"
                raise Refused(why, "another key may have changed it: look at control.settings")
        for key, value in stream.items():
            if (kept := self._get("stream", f"config/{key}")) != value:
                raise Refused(f"the DCU has not taken the stream's {key}: {kept!r} instead of {value!r}")
        expected = self._expected(wanted)
        series = self._command("arm")
        return {"set": {**stream, **found, **(series if isinstance(series, dict) else {})}, "expected": expected}

    def _make_idle(self) -> None:
        state = self._state()
        if state in ("na", "error") and self.given.get("initialize", False):
            self._command("initialize")
            state = self._state()
        if state == "na":
            raise Refused("the DCU is not initialised", "initialise it, or set initialize = true in [control.settings]")
        if state != "idle":
            why = f"the DCU is not idle but in the state '{state}'"
            raise Refused(why, "wait for its end; `konkordia cancel` stops it, whoever has armed it")

    def _stream(self) -> dict[str, Any]:
        stream = self.order.get("stream", {})
        wanted = {"mode": "enabled", "format": FORMATS[stream.get("protocol", "")]}
        if "header_detail" in self.given:
            wanted["header_detail"] = self.given["header_detail"]
        return wanted

    def _configuration(self) -> dict[str, Any]:
        """Keys and values in the order in which they are set: the energy changes thresholds, one time the other."""
        order = self.order
        triggers = self.given.get("triggers", 1)
        frames = self.frames(UNTIL_STOPPED)
        if order.get("frames") is not None and frames % triggers:
            why = f"{frames} images are no multiple of {triggers} triggers"
            raise Refused(why, "give a number of images that is, or correct control.settings.triggers")
        wanted: dict[str, Any] = {}
        if "energy_kev" in order:
            wanted["photon_energy"] = order["energy_kev"] * 1000.0
        if "threshold_energy_kev" in order:
            wanted["threshold_energy"] = order["threshold_energy_kev"] * 1000.0
        for key, name in (("count_time", "count_time_s"), ("frame_time", "frame_time_s")):
            if name in order:
                wanted[key] = order[name]  # type: ignore[literal-required]
        mode = self.given.get("trigger_mode", "ints")
        return {**wanted, "nimages": max(frames // triggers, 1), "ntrigger": triggers, "trigger_mode": mode, **self.given.get("set", {})}

    def _expected(self, wanted: Mapping[str, Any]) -> Expected:
        def config(key: str) -> Any:
            return self._get("detector", f"config/{key}")

        expected: Expected = {
            "count_time_s": config("count_time"),
            "frame_time_s": config("frame_time"),
            "energy_kev": config("photon_energy") / 1000.0,
            "rows": config("y_pixels_in_detector"),
            "columns": config("x_pixels_in_detector"),
        }
        if self.order.get("frames") is not None:
            expected["images"] = wanted["nimages"] * wanted["ntrigger"]
        return expected

    def start(self) -> Answer:
        if self.given.get("trigger_mode", "ints") == "ints" and self.given.get("triggers", 1) == 1:
            return self._expose()
        return {}

    def trigger(self) -> Answer:
        if self.given.get("trigger_mode", "ints") not in ("ints", "inte"):
            why = f"the trigger mode is {self.given['trigger_mode']}: the detector waits for electrical triggers"
            raise Refused(why, 'trigger it by its input, or set trigger_mode = "ints"')
        return self._expose()

    def _expose(self) -> Answer:
        if (state := self._state()) != "ready":
            raise Refused(f"the DCU is not armed but in the state '{state}'", "cancel, and arm again")
        try:
            self._call("PUT", self._path("detector", "command/trigger"), timeout=TRIGGER_ANSWER_S)
        except Refused as refused:
            # It exposes, and answers at the end of the exposures.
            if "in time" not in str(refused):
                raise
        return {}

    def stop(self) -> Answer:
        """A series that has ended is idle already. One that was cancelled is aborted, others end with what is there."""
        if self._state() in ("idle", "na"):
            return {}
        command = "abort" if self.order.get("ended") in ("cancelled", "failed") else "disarm"
        self._command(command)
        return {"set": {"command": command}}

    def status(self) -> Answer:
        return {"status": f"the DCU is in the state '{self._state()}'"}


if __name__ == "__main__":
    main(Simplon)
