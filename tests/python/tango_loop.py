"""The closed loop of a beamline through the Tango device, with a failure at each arrow: a real device server, a real service,
the simulator. docs/closed-loop.md holds what the device showed (`tango_loop.py --write`), and a test compares it.

usage: tango_loop.py --write [WORDS OF ONE CASE: print it only]        after the program and the Python package were built; needs PyTango
"""

import contextlib
import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests"), str(ROOT / "tests/e2e"), str(ROOT / "tests/web")]

import tango  # noqa: E402
from driving import Master, free_ports, mount_small_disk, program  # noqa: E402
from service import Bench, Service  # noqa: E402

PAGE = ROOT / "docs/closed-loop.md"
BEGIN, END = "<!-- {}:begin -->\n", "<!-- {}:end -->\n"


class Server:
    """`python -m konkordia.tango` as a process, without a database; `device` is a proxy of its device."""

    def __init__(self, url="", token=""):
        self.port = free_ports()
        command = [
            sys.executable,
            "-m",
            "konkordia.tango",
            "test",
            "-nodb",
            "-dlist",
            "test/konkordia/1",
            "-ORBendPoint",
            f"giop:tcp:127.0.0.1:{self.port}",
        ]
        known = {
            "KONKORDIA_URL": url,
            "KONKORDIA_TOKEN": token,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "python"), *filter(None, sys.path)]),
        }
        self.process = subprocess.Popen(command, env={**os.environ, **known}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.log = []
        for line in self.process.stdout:
            self.log.append(line)
            if "Ready to accept request" in line:
                break
        else:
            raise AssertionError("".join(self.log))
        self._reading = threading.Thread(target=lambda: self.log.extend(self.process.stdout), daemon=True)
        self._reading.start()
        self.device = tango.DeviceProxy(f"tango://127.0.0.1:{self.port}/test/konkordia/1#dbase=no")

    def close(self):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._reading.join(5)
        assert "Traceback" not in "".join(self.log), "".join(self.log)


class Loop:
    """A beamline: a folder, an EIGER whose packets the simulator sends, a service, and a device."""

    def __init__(self, folder):
        self.bench = Bench(folder)
        self.servers, self.said = [], ""
        self.device = None

    def serve(self, token="", extra="", url=None, **tables):
        """Starts a service and a device."""
        tables.setdefault("run", {"stall_timeout_s": 30})
        self.service = None if url else self.bench.serve(extra=extra, **tables)
        server = Server(url or self.service.url, token)
        self.servers.append(server)
        self.device = server.device
        self.until("INIT", is_so=False)
        return self.device

    def again(self):
        """Starts the service anew at the address that it had."""
        listen = self.service.url.removeprefix("http://")
        self.service = Service(self.bench.folder / "run.toml", listen=listen)
        self.bench.services.append(self.service)

    def state(self):
        return str(self.device.state())

    def until(self, state, is_so=True, timeout=20):
        end = time.monotonic() + timeout
        while (self.state() == state) != is_so:
            assert time.monotonic() < end, (state, self.device.status())
            time.sleep(0.02)

    def images(self, number, timeout=20):
        end = time.monotonic() + timeout
        while self.device.nFramesAcquired != number:
            assert time.monotonic() < end, self.device.status()
            time.sleep(0.02)

    def refused(self, work, *arguments):
        """What the client gets; it must be refused."""
        try:
            work(*arguments)
        except tango.DevFailed as error:
            self.said = f"{error.args[0].reason}: {error.args[0].desc}"
            return
        raise AssertionError("it was accepted")

    def arm(self, images=10, mode="EXTERNAL", **settings):
        self.device.TriggerMode, self.device.nTriggers = mode, images
        for name, value in settings.items():
            self.device.write_attribute(name, value)
        self.device.Arm()

    def close(self):
        for server in self.servers:
            server.close()
        for service in self.bench.services:
            if service.process.poll() is None:
                service.process.kill()
                service.process.wait()


def away(loop):
    loop.serve(url=f"http://127.0.0.1:{free_ports()}")
    loop.refused(loop.device.Arm)


def not_a_number(loop):
    loop.serve()
    loop.refused(loop.device.write_attribute, "ExposureTime", float("nan"))


def bad_metadata(loop):
    loop.serve()
    loop.device.PhotonEnergy = 12400.0
    loop.refused(loop.device.Arm)


def wrong_token(loop):
    from test_web_access import Tokens

    loop.serve(token="wrong", extra=Tokens(loop.bench.folder).extra)
    loop.refused(loop.device.Arm)


def view_token(loop):
    from test_web_access import Tokens

    tokens = Tokens(loop.bench.folder)
    loop.serve(token=tokens.viewer, extra=tokens.extra)
    loop.refused(loop.device.Arm)


def no_folder(loop):
    loop.serve()
    loop.device.DestinationFilename = "no/such/folder/run"
    loop.refused(loop.device.Arm)


def file_exists(loop):
    loop.serve()
    (loop.bench.folder / "lyso_master.h5").write_bytes(b"")
    loop.device.DestinationFilename = "lyso"
    loop.refused(loop.device.Arm)


def port_taken(loop):
    import socket

    loop.serve()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("127.0.0.1", loop.bench.port + 1))
        loop.refused(loop.device.Arm)


def arm_program_fails(loop):
    loop.serve(control={"on_arm": ["sh", "-c", "echo the shutter is closed >&2; exit 1"]})
    loop.refused(loop.device.Arm)


def arm_is_slow(loop):
    loop.serve(control={"on_arm": ["sleep", "3.5"]})
    loop.arm()
    assert loop.state() == "MOVING"
    yield
    loop.until("RUNNING")


def arm_fails_late(loop):
    loop.serve(control={"on_arm": ["sh", "-c", "sleep 3; echo the cooling is off >&2; exit 1"]})
    loop.arm()
    assert loop.state() == "MOVING"
    loop.until("MOVING", is_so=False)


def second_controller(loop):
    loop.serve()
    loop.service.command("arm", {"images": 5})
    loop.until("RUNNING")
    loop.refused(loop.device.Arm)


def no_trigger_program(loop):
    loop.serve()
    loop.arm(mode="SOFTWARE")
    loop.refused(loop.device.SoftwareTrigger)


def no_data(loop):
    loop.serve()
    loop.arm(ImageTimeout=1.0)
    yield
    loop.until("RUNNING", is_so=False)


def stalls(loop):
    loop.serve()
    loop.arm(ImageTimeout=1.0)
    loop.bench.send(4)
    loop.images(4)
    yield
    loop.until("RUNNING", is_so=False)


def service_sees_stall(loop):
    loop.serve(run={"stall_timeout_s": 0.5})
    loop.arm()
    loop.bench.send(4)
    loop.until("RUNNING", is_so=False)


def packets_lost(loop):
    loop.serve()
    loop.arm()
    loop.bench.send(10, loss=0.02)
    loop.until("RUNNING", is_so=False)


def no_room(loop):
    with small_disk(loop) as out:
        loop.serve(output={"directory": str(out), "compression": "none"})
        loop.device.nTriggers = 200
        loop.refused(loop.device.Arm)
        yield


def disk_full(loop):
    """Nobody says how many images there will be, so that arm cannot see it."""
    with small_disk(loop) as out:
        loop.serve(output={"directory": str(out), "compression": "none"}, run={"buffer_mib": 64, "stall_timeout_s": 30})
        loop.arm(images=0)
        loop.bench.send(60, rate=100)
        loop.until("RUNNING", is_so=False, timeout=40)
        yield


@contextlib.contextmanager
def small_disk(loop):
    out = loop.bench.folder / "out"
    out.mkdir()
    if not mount_small_disk(out):
        raise OSError("no small disk can be mounted here")
    try:
        yield out
    finally:
        for service in loop.bench.services:
            service.end()
        subprocess.run(["umount", "-l", out], check=False)


def killed(loop):
    loop.serve()
    loop.arm()
    loop.bench.send(4)
    loop.images(4)
    loop.service.process.kill()
    loop.service.process.wait()
    loop.until("UNKNOWN")
    yield
    loop.again()
    loop.until("UNKNOWN", is_so=False)


def stopped(loop):
    loop.serve()
    loop.arm()
    loop.bench.send(4)
    loop.images(4)
    loop.device.Stop()
    loop.until("RUNNING", is_so=False)


def all_is_well(loop):
    loop.serve()
    loop.arm(DestinationFilename="good")
    yield
    loop.bench.send(10)
    loop.until("RUNNING", is_so=False)
    # The file is closed as soon as the state says so.
    assert len(Master(loop.device.File).images) == 10


CASES = {
    "settings -> Arm": [
        ("an exposure time that is not a number", not_a_number),
        ("a photon energy of 12400 (eV, where keV are asked for)", bad_metadata),
        ("the service is away", away),
        ("wrong token", wrong_token),
        ("token of the role view", view_token),
    ],
    "Arm -> receiver opens file": [
        ("the folder of the file is not there", no_folder),
        ("a file of this name exists", file_exists),
        ("a port of the detector is taken by another program", port_taken),
        ("the disk has no room for the images", no_room),
    ],
    "receiver ready -> detector ready": [
        ("`[control] on_arm` fails", arm_program_fails),
        ("`on_arm` takes 3.5 s", arm_is_slow),
        ("`on_arm` fails after 3 s", arm_fails_late),
        ("somebody else has armed", second_controller),
    ],
    "device Running -> frames": [
        ("no program for software triggers", no_trigger_program),
        ("no image comes (ImageTimeout = 1 s)", no_data),
        ("the detector stalls after 4 of 10 images (ImageTimeout = 1 s)", stalls),
        ("the same, seen by the service (stall_timeout_s = 0.5)", service_sees_stall),
        ("packets are lost", packets_lost),
        ("the service is killed after 4 of 10 images, and restarted", killed),
        ("Stop after 4 of 10 images", stopped),
    ],
    "end -> file closed -> Idle": [("the disk becomes full (images until stopped)", disk_full), ("nothing fails", all_is_well)],
}


WITHIN = (no_room, disk_full)
"""Nothing is left to look at when these have ended."""


def plain(text, loop):
    """Without what is different in each run: folders, ports, times."""
    text = str(text).replace(str(loop.bench.folder), "/data")
    for number in range(loop.bench.port, loop.bench.port + 4):
        text = text.replace(str(number), str(50010 + number - loop.bench.port))
    text = re.sub(r"127\.0\.0\.1:(?!500)\d+", "127.0.0.1:8090", text)
    text = re.sub(r"(\d{4}-\d\d-\d\dT)?\d\d:\d\d:\d\d(\.\d+Z)?", "12:00:00", text)
    text = re.sub(r"\d+(\.\d+)? s ago", "0 s ago", text)
    text = re.sub(r"\d+(?= (missing )?packets)|(?<![\d_])\d{6,}", "N", text)
    return " ".join(text.split())


def shown(loop):
    device = loop.device
    waits = device.WaitsFor
    parts = [device.Message, f"*waits for* {waits}" if waits else "", f"*hint:* {device.Hint}" if device.Hint else ""]
    return f"**{loop.state()}** " + "; ".join(plain(part, loop) for part in parts if part)


def run(case, folder):
    """What the client got, and what the device showed."""
    loop = Loop(Path(folder))
    try:
        steps, seen = case(loop), []
        for _ in steps or ():
            seen.append(shown(loop))
        if not seen or case not in WITHIN:
            seen.append(shown(loop))
        return plain(loop.said, loop) or "accepted", seen
    finally:
        loop.close()


def row(title, got, seen):
    # Pipes divide the columns of a table.
    cells = [title, got, " -> ".join(seen)]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


# The diagram of a real run.


def diagram(folder):
    """A sequence diagram of a run of 100 images, from the events of the service and of the device."""
    loop = Loop(Path(folder))
    lines = []
    try:
        device = loop.serve()
        begun, lock = time.time(), threading.Lock()

        def note(what, at=None):
            with lock:
                lines.append(((at or time.time()) - begun, what))

        def told(event):
            if not event.err:
                note(f"T->>C: State {event.attr_value.value}", event.attr_value.time.totime())

        ids = [device.subscribe_event("State", tango.EventType.CHANGE_EVENT, told)]
        for name, value in (("TriggerMode", "EXTERNAL"), ("nTriggers", 100), ("ExposureTime", 0.001), ("DestinationFilename", "lyso")):
            device.write_attribute(name, value)
        note("C->>T: ExposureTime, nTriggers, DestinationFilename")
        note("C->>T: Arm")
        device.Arm()
        note("T-->>C: Arm answers")
        note("D->>K: first packet")
        loop.bench.send(100, rate=200)
        note("D->>K: last packet")
        loop.until("RUNNING", is_so=False)
        time.sleep(0.3)
        for one in ids:
            device.unsubscribe_event(one)
        for entry in loop.service.request("GET", "logs", limit=100)["logs"]:
            if (what := of_service(entry)) is not None:
                note(what, moment(entry["time"]))
        assert len(Master(device.File).images) == 100
    finally:
        loop.close()
    return [what for at, what in sorted(lines, key=lambda line: line[0]) if at >= -0.001]


def moment(text):
    import datetime

    return datetime.datetime.fromisoformat(text).timestamp()


def of_service(entry):
    """An event of the service as a line of the diagram."""
    event, data = entry["event"], entry["data"]
    if event == "command":
        return f"K-->>T: answer to POST {data['path'].rsplit('/', 1)[-1]}"
    if event == "state":
        return f"Note over K: state {data['state']}{', draining' if data.get('draining') else ''}"
    if event == "run_started":
        return "Note over K: first packet has come"
    if event == "run_ended":
        return "Note over K: all images have come"
    return f"Note over K: file {data['state']} and closed" if event == "file" else None


def mermaid(lines):
    head = [
        "sequenceDiagram",
        "participant C as client (scan)",
        "participant T as Tango device",
        "participant K as service",
        "participant D as detector",
    ]
    return "\n".join(["```mermaid", *head, *lines, "```"]) + "\n"


def replaced(page, name, text):
    begin, end = BEGIN.format(name), END.format(name)
    before, after = page.split(begin)[0], page.split(end)[1]
    return before + begin + text + end + after


def table(rows):
    head = "| arrow | what fails | what Arm (or the command) answers | what the device shows |\n|---|---|---|---|\n"
    return head + "\n".join(rows) + "\n"


def write(only=""):
    import tempfile

    rows = []
    for arrow, cases in CASES.items():
        for title, case in cases:
            if only not in title:
                continue
            with tempfile.TemporaryDirectory() as folder:
                try:
                    got, seen = run(case, folder)
                except OSError as error:
                    print(f"{title}: {error}", file=sys.stderr)
                    continue
            rows.append(f"| {arrow} {row(title, got, seen)}")
            print(rows[-1], flush=True)
    with tempfile.TemporaryDirectory() as folder:
        lines = diagram(folder)
    if only:
        return print(mermaid(lines))
    page = replaced(PAGE.read_text(encoding="utf-8"), "table", table(rows))
    PAGE.write_text(replaced(page, "diagram", mermaid(lines)), encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:2] != ["--write"]:
        sys.exit(__doc__)
    write(*sys.argv[2:3])
