"""The driver of JUNGFRAU and EIGER by ``slsdet``, the client of the SLS detector package (docs/control.md)."""

import contextlib
import datetime
import fcntl
import importlib
import os
import socket
import struct
import time
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from ._driver import Answer, Driver, Order, Refused, agrees, main

__all__ = ["SlsDetector"]

# The most frames that fit the 32 bits of an EIGER.
UNTIL_STOPPED = 2_000_000_000
# After the last packet has come the detector still says "running" for a moment.
IDLE_WAIT_S = 3.0
ENDED = ("idle", "stopped", "run_finished")
GAINS = {"hg0": "HIGHGAIN0"}
# The slowest clock that counts times.
CLOCK_S = 3e-8
SIOCGIFADDR = 0x8915
GOES_ON = "wait for its end; `konkordia cancel` stops it, whoever has started it"
# Where a host name has no port.
CONTROL_PORT = 1952
CORRECT = "correct the metadata of the run, or [control.settings]"


class SlsDetector(Driver):
    """Drives the modules of one detector."""

    settings: ClassVar[Mapping[str, type | tuple[type, ...]]] = {
        "hosts": list,
        "udp_dstip": (str, list),
        "udp_dstip2": (str, list),
        "udp_dstmac": (str, list),
        "udp_dstmac2": (str, list),
        "udp_srcip": (str, list),
        "udp_srcip2": (str, list),
        "timing": str,
        "frames_per_trigger": int,
        "gainmode": str,
        "set": dict,
    }
    required = ("hosts",)

    def __init__(self, order: Order) -> None:
        super().__init__(order)
        # Shared memory of its own: that of other clients on this host stays as it is.
        os.environ["SLSDETNAME"] = f"konkordia_{order.get('detector', '')}_{os.getuid()}"
        try:
            slsdet, compiled = (importlib.import_module(name) for name in ("slsdet", "slsdet._slsdet"))
        except ImportError as error:
            why = f"the package slsdet cannot be imported: {error}"
            raise Refused(why, "pip install slsdet, of the release of the detector's servers, for the Python in control.python") from None
        self._slsdet: Any = slsdet
        self._free: Callable[[int], None] = compiled.freeSharedMemory
        self._hosts = [str(host) for host in self.given["hosts"]]
        self._detector: Any = self._open(0, self._hosts)

    def _open(self, number: int, hosts: list[str]) -> Any:
        """The client of these modules. Its memory goes on from call to call: a running detector takes no new client."""
        try:
            detector = self._slsdet.Detector(number)
        except RuntimeError:
            # Left by another release.
            self._free(number)
            detector = self._slsdet.Detector(number)
        if len(detector) and list(zip(detector.getHostname(), detector.getControlPort())) == [_address(host) for host in hosts]:
            if self.order["action"] not in ("arm", "pedestal") or self._knows_its_network(detector):
                return detector
        try:
            detector.hostname = hosts
        except RuntimeError as error:
            if "not idle" in str(error) and self.order["action"] == "stop" and number == 0:
                return self._open_running(hosts)
            self._free(number)
            raise self._unusable(hosts, error) from None
        return detector

    def _knows_its_network(self, detector: Any) -> bool:
        """A module that was switched off and on has to be opened anew."""
        try:
            return all(str(mac).replace(":", "").strip("0") for mac in detector.getSourceUDPMAC())
        except RuntimeError:
            return False

    def _open_running(self, hosts: list[str]) -> Any:
        """Stops a detector that another client has started, module by module; then it can be opened."""
        for number, host in enumerate(hosts, 1):
            one = self._slsdet.Detector(number)
            # The client knows the module all the same.
            with contextlib.suppress(RuntimeError):
                one.hostname = [host]
            self._act("stop", one.stopDetector)
            self._free(number)
        self._free(0)
        detector = self._slsdet.Detector(0)
        try:
            detector.hostname = hosts
        except RuntimeError as error:
            raise self._unusable(hosts, error) from None
        return detector

    def _unusable(self, hosts: list[str], error: RuntimeError) -> Refused:
        hint = "check control.settings.hosts, the power of the modules, and that slsdet is of their release"
        if "not idle" in str(error):
            hint = GOES_ON
        return Refused(f"the detector at {', '.join(hosts)} cannot be used: {_short(error)}", hint)

    def _each(self, value: Any) -> list[Any]:
        """A value for every host."""
        return list(value) if isinstance(value, list) else [value] * len(self._hosts)

    def _state(self) -> list[str]:
        return [state.name.lower() for state in self._detector.getDetectorStatus()]

    def _wait_until_ended(self, wait_s: float) -> list[str]:
        end = time.monotonic() + wait_s
        states = self._state()
        while _is_busy(states) and time.monotonic() < end:
            time.sleep(0.02)
            states = self._state()
        return states

    # The actions.

    def arm(self) -> Answer:
        states = self._wait_until_ended(0.0)
        if _is_busy(states):
            why = f"the detector is not idle: {_by_host(self.given['hosts'], states)}"
            raise Refused(why, GOES_ON)
        return self._configure(self.given.get("gainmode", "dynamic"), None)

    def pedestal(self) -> Answer:
        if self._kind() != "jungfrau":
            raise Refused(f"the detector is a {self._kind()}, which has no pedestals")
        if _is_busy(self._wait_until_ended(IDLE_WAIT_S)):
            self._detector.stopDetector()
        return self._configure(self.order.get("gainmode", "dynamic"), GAINS.get(self.order.get("stage", "")))

    def start(self) -> Answer:
        self._act("start", self._detector.startDetector)
        return {}

    def trigger(self) -> Answer:
        self._act("trigger", self._detector.sendSoftwareTrigger)
        return {}

    def stop(self) -> Answer:
        """Also takes back what was forced for pedestals."""
        was = self._wait_until_ended(IDLE_WAIT_S if self.order.get("ended") == "finished" else 0.0)
        if _is_busy(was):
            self._act("stop", self._detector.stopDetector)
        states = self._wait_until_ended(IDLE_WAIT_S)
        if _is_busy(states):
            raise Refused(f"the detector goes on after it was stopped: {_by_host(self.given['hosts'], states)}")
        if self._kind() == "jungfrau":
            self._set("gainmode", self.given.get("gainmode", "dynamic"))
        return {"set": {"was": was}}

    def status(self) -> Answer:
        return {"status": _by_host(self._hosts, self._state())}

    def _act(self, what: str, call: Callable[[], None]) -> None:
        try:
            call()
        except RuntimeError as error:
            raise Refused(f"the detector did not {what}: {_short(error)}") from None

    # The configuration.

    def _kind(self) -> str:
        kind = self._detector.type
        return str((kind[0] if isinstance(kind, list) else kind).name).lower()

    def _configure(self, gainmode: str, gain: str | None) -> Answer:
        packets = self.order.get("packets", {})
        if (kind := self._kind()) != packets.get("detector"):
            why = f"the detector is a {kind}, and detector.type is {packets.get('detector')}"
            raise Refused(why, "correct the configuration or control.settings.hosts")
        each = 2 if kind == "eiger" else 1
        if (wanted := packets["modules"] * each) != len(self._hosts):
            why = f"control.settings.hosts has {len(self.given['hosts'])} names, and {packets['modules']} modules have {wanted}"
            halves = "name both half modules of each, the upper one first"
            raise Refused(why, halves if each == 2 else "name every module, in the order of the streams")
        if kind == "jungfrau":
            self._set("numinterfaces", packets["interfaces"])
        done: dict[str, Any] = self._set_destinations()
        values = self._jungfrau(gainmode, gain) if kind == "jungfrau" else self._eiger()
        for name, value in {**values, **self._run(), **self.given.get("set", {})}.items():
            done[name] = self._set(name, value)
        self._number_frames()
        return {"set": done}

    def _jungfrau(self, gainmode: str, gain: str | None) -> dict[str, Any]:
        rows = self.order["packets"].get("rows")
        values: dict[str, Any] = {"gainmode": gainmode, "readnrows": 512 if rows is None else rows}
        return values if gain is None else {**values, "settings": gain}

    def _eiger(self) -> dict[str, Any]:
        packets = self.order["packets"]
        rows = packets.get("rows")
        return {"tengiga": packets["ten_giga"], "dr": packets["bits"], "readnrows": 256 if rows is None else rows}

    def _run(self) -> dict[str, Any]:
        """Frames, triggers and times. Those that nobody has given stay as they are in the detector."""
        order, frames = self.order, self.frames(UNTIL_STOPPED)
        timing = "auto" if "stage" in order else self.given.get("timing", "auto")
        values: dict[str, Any] = {"timing": timing}
        if timing == "auto":
            values |= {"triggers": 1, "frames": frames}
        else:
            each = self.given.get("frames_per_trigger", 1)
            if order.get("frames") is not None and frames % each:
                raise Refused(f"{frames} frames are no multiple of {each} for each trigger", "give a number of images that is")
            values |= {"frames": each, "triggers": max(frames // each, 1)}
        for name, key in (("exptime", "count_time_s"), ("period", "frame_time_s")):
            if key in order:
                values[name] = float(order[key])  # type: ignore[literal-required]
        return values

    def _number_frames(self) -> None:
        """All modules count alike, from the configured number or from where the furthest is."""
        numbers = self._detector.getNextFrameNumber()
        first = self.order.get("first_frame", max(numbers))
        if any(number != first for number in numbers):
            self._detector.setNextFrameNumber(first)

    def _set_destinations(self) -> dict[str, Any]:
        destinations = self.order["packets"]["destinations"]
        hosts = len(self._hosts)
        ports = len(destinations) // hosts
        self._set_addresses(destinations, "", 0, ports)
        if ports == 2 and self._kind() == "jungfrau":
            self._set_addresses(destinations, "2", 1, ports)
        for stream, destination in enumerate(destinations):
            second = "2" if stream % ports else ""
            getattr(self._detector, f"setDestinationUDPPort{second}")(destination["port"], stream // ports)
        found = [getattr(self._detector, f"getDestinationUDPPort{'2' if port else ''}")() for port in range(ports)]
        wanted = [[one["port"] for one in destinations[port::ports]] for port in range(ports)]
        if found != wanted:
            raise Refused(f"the detector has not taken the UDP ports: {found} instead of {wanted}")
        return {"udp_dstport": wanted}

    def _set_addresses(self, destinations: list[Any], second: str, port: int, ports: int) -> None:
        """Where the packets go, and where they come from."""
        for host, source in enumerate(self._each(self.given.get(f"udp_srcip{second}"))):
            if source is not None:
                self._set(f"udp_srcip{second}", source, host)
        own = [destination["address"] for destination in destinations[port::ports]]
        for host, address in enumerate(self._each(self.given[f"udp_dstip{second}"]) if f"udp_dstip{second}" in self.given else own):
            if address in ("0.0.0.0", "::"):
                why = f"source.address is {address}, which says nothing about where the modules can send to"
                raise Refused(why, f"give the address of this host's interface: source.address, or control.settings.udp_dstip{second}")
            mac = self._each(self.given.get(f"udp_dstmac{second}"))[host] or _mac_of(address, second)
            self._set(f"udp_dstip{second}", address, host)
            self._set(f"udp_dstmac{second}", mac, host)

    def _set(self, name: str, value: Any, host: int | None = None) -> Any:
        """Sets a value, of all hosts or of one, and reads it back."""
        detector = self._detector
        if not hasattr(type(detector), name):
            raise Refused(f"slsdet has no '{name}'", "the names in [control.settings.set] are those of the slsdet package")
        try:
            wanted = _as_member(value, getattr(detector, name))
            setattr(detector, name, wanted if host is None else {host: wanted})
            kept = getattr(detector, name)
        except (RuntimeError, TypeError, ValueError, KeyError, AttributeError) as error:
            raise Refused(f"the detector refuses {name} = {value!r}: {_short(error)}", CORRECT) from None
        for one in self._each(kept) if host is None else [self._each(kept)[host]]:
            if not _is(wanted, one):
                raise Refused(f"the detector has not taken {name} = {value!r}: it has {_plain(one)!r}", CORRECT)
        return _plain(kept)


def _as_member(value: Any, now: Any) -> Any:
    """A word as the member of the enumeration that a value of the detector is of; other values as they are."""
    members = getattr(type(now[0] if isinstance(now, list) and now else now), "__members__", None)
    if members is None or not isinstance(value, str):
        return value
    for name, member in members.items():
        if _bare(value) in (_bare(name), _bare(name.rsplit("_", 1)[0])):
            return member
    raise ValueError(f"it is one of {', '.join(name.lower() for name in members)}")


def _bare(word: str) -> str:
    return word.replace("_", "").lower()


def _address(host: str) -> tuple[str, int]:
    name, _, port = host.partition(":")
    return name, int(port) if port.isdigit() else CONTROL_PORT


def _is_busy(states: list[str]) -> bool:
    return any(state not in ENDED for state in states)


def _plain(value: Any) -> Any:
    """A value of slsdet as JSON has it."""
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    return value if isinstance(value, (bool, int, float, str)) else str(getattr(value, "name", value)).lower()


def _is(wanted: Any, kept: Any) -> bool:
    if hasattr(type(wanted), "__members__"):
        return bool(wanted == kept)
    kept = _plain(kept)
    if isinstance(wanted, str):
        return str(kept).lower() == wanted.lower()
    # Times are counted by clocks of some tens of nanoseconds.
    return agrees(wanted, kept) or (isinstance(wanted, float) and isinstance(kept, float) and abs(wanted - kept) < CLOCK_S)


def _by_host(hosts: list[Any], states: list[str]) -> str:
    return states[0] if len(set(states)) == 1 else ", ".join(f"{host} {state}" for host, state in zip(hosts, states))


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:500]


def _mac_of(address: str, second: str) -> str:
    """The hardware address of this host's interface with this IP address."""
    hint = f"give control.settings.udp_dstmac{second} (that of the router, if there is one between)"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                found = socket.inet_ntoa(fcntl.ioctl(probe.fileno(), SIOCGIFADDR, request)[20:24])
            except OSError:
                continue
            if found == address:
                with open(f"/sys/class/net/{name}/address", encoding="ascii") as file:
                    mac = file.read().strip()
                if mac.replace(":", "").strip("0"):
                    return mac
                raise Refused(f"the interface {name} with {address} has no hardware address", hint)
    raise Refused(f"no interface of this host has the address {address}, so its hardware address is not known", hint)


if __name__ == "__main__":
    main(SlsDetector)
