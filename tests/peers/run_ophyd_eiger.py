"""Drives the IOC of fastcs-eiger by the parts of ophyd_async.fastcs.eiger that prepare, arm and stop a detector, unmodified
(the whole class also wants an Odin file writer). Run by tests/peers/test_simplon.py: run_ophyd_eiger.py PREFIX IMAGES
COMMAND..., where COMMAND is the program that makes the detector send."""

import asyncio
import json
import subprocess
import sys

from ophyd_async.core import Device, SignalR, TriggerableCommand, wait_for_value
from ophyd_async.fastcs.core import fastcs_connector
from ophyd_async.fastcs.eiger import EigerDetectorIO, EigerMonitorIO, EigerStreamIO
from ophyd_async.fastcs.eiger._acquire_logic import EigerAcquireLogic
from ophyd_async.fastcs.eiger._trigger_logic import EigerTriggerLogic


class Eiger(Device):
    stale_parameters: SignalR[bool]
    monitor: EigerMonitorIO
    stream: EigerStreamIO
    detector: EigerDetectorIO
    arm_when_ready: TriggerableCommand

    def __init__(self, prefix):
        super().__init__(name="eiger", connector=fastcs_connector(prefix, self))


async def drive(prefix, images, command):
    eiger = Eiger(prefix)
    await eiger.connect(timeout=30)
    trigger, acquire = EigerTriggerLogic(eiger.detector), EigerAcquireLogic(eiger.detector, eiger.arm_when_ready)
    await trigger.prepare_edge(images, 0.002)
    await wait_for_value(eiger.detector.nimages, images, timeout=10)
    await acquire.start_acquiring()
    await wait_for_value(eiger.detector.state, "ready", timeout=10)
    # The IOC of fastcs 0.12 writes the refusal to its log, and tells its clients nothing.
    await eiger.detector.arm.trigger(timeout=10)
    sender = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    code = await asyncio.to_thread(sender.wait)
    await acquire.wait_for_idle()
    await acquire.ensure_stopped()
    facts = {name: await getattr(eiger.detector, name).get_value() for name in ("count_time", "bit_depth_image", "state")}
    print(json.dumps({"code": code, **facts}), flush=True)


if __name__ == "__main__":
    asyncio.run(drive(sys.argv[1], int(sys.argv[2]), sys.argv[3:]))
