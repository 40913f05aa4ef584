"""Drives a detector through the unmodified controller of fastcs-eiger, and writes what came of each step to a file of JSON
lines (to stdout it prints its log and images). Run by tests/peers/test_simplon.py in the environment of the peers:
run_fastcs_eiger.py FILE PORT IMAGES COMMAND..., where COMMAND is the program that makes the detector send."""

import asyncio
import json
import subprocess
import sys

from fastcs.connections import IPConnectionSettings
from fastcs.control_system import FastCS
from fastcs.logging import LogLevel, configure_logging
from fastcs_eiger.controllers.eiger_controller import EigerController


def tell(step, **facts):
    with open(sys.argv[1], "a", encoding="utf-8") as file:
        file.write(json.dumps({"step": step, **facts}) + "\n")


async def reached(value, wanted, timeout=20):
    for _ in range(int(timeout / 0.02)):
        if value() == wanted:
            return
        await asyncio.sleep(0.02)
    raise TimeoutError(f"{value()} and not {wanted}")


async def drive(port, images, command):
    controller = EigerController(IPConnectionSettings("127.0.0.1", port), "1.8.0")
    system = FastCS(controller, [])
    serving = asyncio.create_task(system.serve(interactive=False))
    while not hasattr(system, "controller_api"):
        await asyncio.sleep(0.05)
        if serving.done():
            serving.result()
    detector = controller.detector
    state = detector.attributes["state"]
    await reached(state.get, "idle")
    names = {part: sorted(sub.attributes) for part, sub in controller.sub_controllers.items()}
    energy, columns = (detector.attributes[name].get() for name in ("photon_energy", "x_pixels_in_detector"))
    tell("introspected", **names, energy=energy, columns=columns)

    wanted = {"nimages": images, "ntrigger": 1, "trigger_mode": "ints", "count_time": 0.0019, "frame_time": 0.002}
    wanted |= {"omega_increment": 0.125, "omega_start": 10.5}
    for name, value in wanted.items():
        await detector.attributes[name].put(value)
    await reached(lambda: {name: detector.attributes[name].get() for name in wanted}, wanted)
    for name, value in {"photon_energy": 1.0, "trigger_mode": "inte"}.items():
        await failed(lambda name=name, value=value: detector._io.send(detector.attributes[name], value))

    await reached(controller.stale_parameters.get, False)
    await controller.arm_when_ready()
    await reached(state.get, "ready")
    await failed(detector.arm)
    sender = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    await detector.trigger()
    tell("exposed", code=await asyncio.to_thread(sender.wait))
    await reached(state.get, "idle")
    await detector.disarm()
    await reached(state.get, "idle")
    stream = controller.sub_controllers["stream"].attributes["mode"].get()
    tell("done", state=state.get(), error=detector.attributes["error"].get(), stream=stream)
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


async def failed(action):
    try:
        await action()
        tell("accepted")
    except Exception as error:  # noqa: BLE001  whatever this client raises is what its user sees
        tell("refused", kind=type(error).__name__, text=str(error))


if __name__ == "__main__":
    configure_logging(LogLevel.ERROR)
    asyncio.run(drive(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]))
