"""Drives a detector over PV Access with the unmodified classes of ophyd_async.epics.adcore and a RunEngine, and prints what
came as one line of JSON.

usage: run_epics.py PREFIX
"""

import asyncio
import json
import sys

import bluesky.plan_stubs as bps
import bluesky.plans as bp
from bluesky import RunEngine
from ophyd_async.core import DetectorTriggerLogic, init_devices
from ophyd_async.epics import adcore

prefix = sys.argv[1]
run_engine = RunEngine({})


class Exposures(DetectorTriggerLogic):
    def __init__(self, driver):
        self.driver = driver

    async def prepare_internal(self, num, livetime, deadtime):
        await adcore.prepare_exposures(self.driver, num, livetime, deadtime)


with init_devices():
    driver = adcore.ADBaseIO(f"pva://{prefix}cam1:")
    detector = adcore.AreaDetector(driver, acquire_logic=adcore.ADAcquireLogic(driver), trigger_logic=Exposures(driver), name="detector")
    detector.add_detector_logics(adcore.PluginSignalDataLogic(driver, driver.array_counter))


def acquire(images):
    """A put with completion, as plans and ophyd do it."""
    yield from bps.abs_set(driver.num_images, images, wait=True)
    yield from bps.abs_set(driver.acquire, True, wait=True)


documents, refused = [], ""
run_engine(bp.count([detector], 3), lambda name, document: documents.append((name, document)))
run_engine(acquire(1000))
state = asyncio.run_coroutine_threadsafe(driver.detector_state.get_value(), run_engine.loop).result(10)
try:
    run_engine(bps.abs_set(driver.num_images, -3, wait=True))
except Exception as error:
    causes = []
    while error is not None:
        causes.append(str(error))
        error = error.__cause__ or error.__context__
    refused = " | ".join(causes)
events = [document["data"] for name, document in documents if name == "event"]
print(json.dumps({"events": events, "exit": documents[-1][1]["exit_status"], "state": state.value, "refused": refused}))
