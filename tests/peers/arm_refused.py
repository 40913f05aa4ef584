"""One cause, a UDP port that another program has, and what the user of each system is told when an arm is refused.
`arm_refused.py --write` writes the table of docs/arm-refused.md from what each of them said."""

import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent
PAGE = ROOT / "docs/arm-refused.md"
sys.path[:0] = [str(ROOT / one) for one in ("tests", "tests/e2e", "tests/readers", "tests/python", "tests/peers", "python")]

from driving import BINARY, free_ports, program  # noqa: E402
from programs import BUILD, PYTHON, python  # noqa: E402
from service import Problem, Service  # noqa: E402

SIMPLON = """
import asyncio, sys
from fastcs.connections import IPConnectionSettings
from fastcs_eiger.http_connection import HTTPConnection
async def main():
    connection = HTTPConnection(IPConnectionSettings("127.0.0.1", int(sys.argv[1])))
    connection.open()
    try:
        await connection.put("detector/api/1.8.0/command/arm")
    except Exception as error:
        print(f"{type(error).__name__}: {error}")
    await connection.close()
asyncio.run(main())
"""


class World:
    """A service with all servers, and the port that it cannot have."""

    def __init__(self, folder):
        self.folder, self.port = folder, free_ports(4)
        self.simplon, self.jfjoch = free_ports(), free_ports()
        (folder / "run.toml").write_text(f"""[detector]
type = "eiger"
bits = 8
energy_kev = 12.4
detector_distance_mm = 100.0
beam_center_x_px = 256.0
beam_center_y_px = 512.0
[source]
address = "127.0.0.1"
first_port = {self.port}
[output]
directory = "{folder}"
prefix = "run"
[run]
buffer_mib = 32
[adapters.simplon]
listen = "127.0.0.1:{self.simplon}"
[adapters.jfjoch]
listen = "127.0.0.1:{self.jfjoch}"
""")
        self.service = Service(folder / "run.toml")
        self.taken = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.taken.bind(("127.0.0.1", self.port))

    def close(self):
        self.service.end()
        self.taken.close()


def http(world):
    try:
        world.service.command("arm")
    except Problem as problem:
        return f"{problem.status} {problem.body['code']}: {problem.body['detail']}; {problem.body['hint']}"
    return "accepted"


def command_line(world):
    done = program("arm", "--url", world.service.url)
    return done.stderr.strip()


def client(world):
    import konkordia

    try:
        with konkordia.Client(world.service.url) as one:
            one.arm()
    except konkordia.KonkordiaError as error:
        return f"{type(error).__name__}: {error}"
    return "accepted"


def bluesky(world):
    path = os.pathsep.join([str(ROOT / "python"), str(BUILD / "bluesky-1.15")])
    done = python(HERE / "run_bluesky.py", world.service.url, world.folder, "-", "-", "count", "1", packages=path)
    documents = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    return f"FailedStatus: {dict(documents)['failed']['why']}"


def tango(world):
    from konkordia.tango import Konkordia
    from tango import DevFailed, DevState
    from tango.test_context import DeviceTestContext

    with DeviceTestContext(Konkordia, process=True, properties={"Url": world.service.url}) as device:
        for _ in range(500):
            if device.state() == DevState.STANDBY:
                break
        device.TriggerMode, device.nTriggers = "EXTERNAL", 10
        try:
            device.Arm()
        except DevFailed as error:
            return f"DevFailed {error.args[0].reason}: {error.args[0].desc}"
    return "accepted"


def epics(world):
    from epics_server import EpicsServer

    server = EpicsServer(world.service.url)
    try:
        return f"the put fails: {server.refused('Acquire', 1)}"
    finally:
        server.close()


def simplon(world):
    return python(SIMPLON, world.simplon).stdout.strip()


def jungfraujoch(world):
    asked = {"call": "start_post", "with": {"dataset_settings": {
        "beam_x_pxl": 256, "beam_y_pxl": 512, "detector_distance_mm": 100, "incident_energy_keV": 12.4}}}
    done = subprocess.run(
        [PYTHON, HERE / "jfjoch_calls.py", f"http://127.0.0.1:{world.jfjoch}"],
        input=json.dumps(asked) + "\n", capture_output=True, text=True, check=True,
    )
    said = json.loads(done.stdout)
    return f"{said['error']} {said['status']}: {said['data']['msg']}"


SYSTEMS = {
    "HTTP API": http,
    "command line": command_line,
    "Python": client,
    "Bluesky (RunEngine)": bluesky,
    "Tango (PyTango)": tango,
    "EPICS (p4p)": epics,
    "SIMPLON (fastcs-eiger)": simplon,
    "Jungfraujoch (jfjoch-client)": jungfraujoch,
}


def told(name, world):
    """What a system says, without what differs from run to run."""
    text = SYSTEMS[name](world).replace(f":{world.port}", ":PORT").replace(str(world.port), "PORT").replace(str(world.folder), "FOLDER")
    text = re.sub(r"port \d+", "port PORT", text)
    return " ".join(text.replace("|", "\\|").split())


def row(name, world):
    return f"| {name} | {told(name, world)} |"


def main():
    with tempfile.TemporaryDirectory() as folder:
        world = World(pathlib.Path(folder))
        try:
            rows = [row(name, world) for name in SYSTEMS]
        finally:
            world.close()
    if "--write" in sys.argv:
        head, _ = PAGE.read_text(encoding="utf-8").split("| system |", 1)
        PAGE.write_text(head + "\n".join(["| system | what its user sees |", "|---|---|", *rows]) + "\n", encoding="utf-8")
    print("\n".join(rows))


if __name__ == "__main__":
    main()
