"""Drives a service by an unmodified RunEngine, and prints the documents as JSON lines. Run by tests/peers/test_bluesky.py
in the environment of the peers: run_bluesky.py URL PLAN [ARGUMENTS]."""

import asyncio
import json
import sys
import threading
import time

import bluesky.plan_stubs as bps
import bluesky.plans as bp
from bluesky import RunEngine
from bluesky.utils import FailedStatus
from ophyd_async.core import DetectorTrigger, StaticFilenameProvider, StaticPathProvider, TriggerInfo, init_devices

from konkordia.bluesky import KonkordiaDetector

TRIGGERS = {"internal": DetectorTrigger.INTERNAL, "edge": DetectorTrigger.EXTERNAL_EDGE, "level": DetectorTrigger.EXTERNAL_LEVEL}


def fly(detector, info, lines=1):
    """A fly scan as plans do it: prepared, started and collected once for each line of the scan."""

    @bpp_stage(detector)
    @run_decorator
    def inner():
        for line in range(lines):
            yield from bps.prepare(detector, info, wait=True)
            if line == 0:
                yield from bps.declare_stream(detector, name="main", collect=True)
            yield from bps.kickoff(detector, wait=True)
            yield from bps.collect_while_completing(flyers=[detector], dets=[detector], flush_period=0.2, stream_name="main")

    return inner()


def bpp_stage(detector):
    from bluesky.preprocessors import stage_decorator

    return stage_decorator([detector])


def run_decorator(plan):
    from bluesky.preprocessors import run_decorator as decorate

    return decorate(md={"beamline": "test"})(plan)


def steps(detector, positions, exposure_s):
    """A step scan whose exposure time is prepared once."""

    @bpp_stage(detector)
    @run_decorator
    def inner():
        yield from bps.prepare(detector, TriggerInfo(livetime=exposure_s), wait=True)
        for _ in range(positions):
            yield from bps.trigger_and_read([detector])

    return inner()


def plan_of(detector, words):
    match words:
        case ["count", points]:
            return bp.count([detector], num=int(points))
        case ["steps", points, exposure_s]:
            return steps(detector, int(points), float(exposure_s))
        case ["fly", trigger, images, lines, exposure_s]:
            livetime = 0.0 if trigger == "level" else float(exposure_s)
            info = TriggerInfo(trigger=TRIGGERS[trigger], number_of_events=int(images), livetime=livetime)
            return fly(detector, info, int(lines))
        case ["fly_per_event", images, per_event]:
            return fly(detector, TriggerInfo(number_of_events=int(images) // int(per_event), collections_per_event=int(per_event)))
    raise SystemExit(f"no such plan: {words}")


def main(url, folder, name, end, *words):
    """`end` is `-`, or what is done after so many seconds: `abort:0.5`, `stop:0.5`, `halt:0.5`."""
    engine = RunEngine({})
    paths = StaticPathProvider(StaticFilenameProvider(name), folder) if name != "-" else None
    with init_devices():
        det = KonkordiaDetector(url, paths, dead_time_s=2e-5, metadata={"energy_kev": 12.4})
    tell = lambda kind, document: print(json.dumps([kind, document], default=str), flush=True)
    engine.subscribe(tell)
    if end != "-":
        verb, after_s = end.split(":")

        def interrupt():
            time.sleep(float(after_s))
            engine.request_pause()
            while engine.state != "paused":
                time.sleep(0.02)

        threading.Thread(target=interrupt, daemon=True).start()
    try:
        engine(plan_of(det, words))
    except FailedStatus as error:
        tell("failed", {"why": str(error.__cause__ or error)})
    except Exception as error:  # The test asks which.
        if type(error).__name__ not in ("RunEngineInterrupted",):
            tell("failed", {"why": str(error), "type": type(error).__name__})
        else:
            getattr(engine, verb)()
            tell("ended", {"by": verb})
    triggers, dead_time_s = asyncio.run_coroutine_threadsafe(det.get_trigger_deadtime(), engine.loop).result(10)
    tell("detector", {"triggers": sorted(t.name for t in triggers), "dead_time_s": dead_time_s})


main(*sys.argv[1:])
