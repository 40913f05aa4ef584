"""Run by the Python of the peers: a Tango database, our device server in it, and one of the programs that use the device.

usage: tango_world.py FOLDER URL COMMAND ...      COMMAND: what makes the simulated detector send N images
       prints one line of JSON for each of: database, sardana, taurus (as named in the environment's TANGO_WORLD)
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
DEVICE = "bl/detector/eiger"
folder, url, send = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
programs = []


def started(*command, until, **environment):
    log = open(folder / f"{len(programs)}.log", "w+b")  # noqa: SIM115  closed with the process
    programs.append(subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=folder, env={**os.environ, **environment}))
    end = time.monotonic() + 30
    while until not in (text := (folder / log.name).read_text(errors="replace")):
        if time.monotonic() > end or programs[-1].poll() is not None:
            sys.exit(f"{command}: {text}")
        time.sleep(0.05)


def say(name, **found):
    print(json.dumps({"program": name, **found}), flush=True)


def until(condition, what, timeout=20):
    end = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > end:
            sys.exit(f"never: {what}")
        time.sleep(0.02)


def database():
    """The device with its properties in a database, found by its name; archive events."""
    import tango

    device = tango.DeviceProxy(DEVICE)
    until(lambda: device.state() == tango.DevState.STANDBY, device.status)
    events = []
    one = device.subscribe_event(
        "nFramesAcquired", tango.EventType.ARCHIVE_EVENT, lambda event: events.append(None if event.err else event.attr_value.value)
    )
    device.TriggerMode, device.nTriggers, device.DestinationFilename = "EXTERNAL", 20, "by_name"
    device.Arm()
    subprocess.run([*send, "20"], check=True)
    until(lambda: device.state() != tango.DevState.RUNNING, device.status)
    until(lambda: 20 in events, events)
    device.unsubscribe_event(one)
    properties = {name: list(values) for name, values in device.get_property(["Url", "ImageTimeoutDefault"]).items()}
    say("database", state=str(device.state()), file=device.File, properties=properties, timeout_s=device.ImageTimeout, archived=events)


def sardana():
    """A step scan of three points by the pool of Sardana, without its Tango servers: controllers, channel, measurement group
    and acquisition are its own."""
    import logging

    logging.disable()
    import tango
    from sardana.pool import AcqSynchType, SynchDomain, SynchParam

    device, pool, controller, channel = pool_with_detector("by_sardana")
    group = measurement_group(pool, "software", AcqSynchType.Trigger)
    group.set_nb_starts(3)
    times = {SynchParam.Delay: 0, SynchParam.Active: 0.05, SynchParam.Total: 0.1}
    group.set_synch_description([{**{key: {SynchDomain.Time: value} for key, value in times.items()}, SynchParam.Repeats: 1}])
    group.prepare()
    points, images = [], []
    for _ in range(3):
        group.start_acquisition()
        until(lambda: not group.acquisition.is_running(), "the end of the point", 30)
        points.append({"frames": device.nFramesAcquired, "trigger": device.TriggerNumber, "state": str(device.state())})
        images.append(channel.get_value().value)
    until(lambda: device.state() == tango.DevState.STANDBY, device.status)
    import numpy as np

    np.save(folder / "sardana.npy", np.array(images))
    reference = controller.ctrl.RefOne(1)
    say("sardana", points=points, file=device.File, reference=reference, exposure_s=device.ExposureTime)
    sys.stdout.flush()


def sardana_fly():
    """A continuous scan of five points by hardware triggers. The trigger element is a dummy of Sardana; the detector is
    triggered by the simulator, which the service begins when it is armed."""
    import logging

    logging.disable()
    import tango
    from sardana.pool import AcqSynchType, SynchDomain, SynchParam
    from sardana.pool.test.util import AttributeListener

    device, pool, _, channel = pool_with_detector("by_sardana_fly")
    listener = AttributeListener(attr_name="valuerefbuffer")
    channel.add_listener(listener)
    kind = {"klass": "DummyTriggerGateController", "library": "DummyTriggerGateController.py", "type": "TriggerGate", "properties": {}}
    gates = pool.create_controller(name="gates", full_name="gates", **kind)
    pool.create_element(type="TriggerGate", ctrl_id=gates.id, axis=1, name="gate", full_name="gate")
    group = measurement_group(pool, "gate", AcqSynchType.Trigger, value_ref_enabled=True, value_ref_pattern="")
    times = {SynchParam.Delay: 0, SynchParam.Active: 0.01, SynchParam.Total: 0.02}
    group.set_synch_description([{**{key: {SynchDomain.Time: value} for key, value in times.items()}, SynchParam.Repeats: 5}])
    group.prepare()
    group.start_acquisition()
    until(lambda: not group.acquisition.is_running(), "the end of the scan", 30)
    until(lambda: device.state() != tango.DevState.RUNNING, device.status)
    say(
        "sardana_fly",
        state=str(device.state()),
        mode=device.TriggerMode,
        triggers=device.nTriggersAcquired,
        file=device.File,
        references=listener.data.get("eiger"),
    )


def pool_with_detector(filename):
    import tango
    from sardana.pool.pool import Pool

    device = tango.DeviceProxy(DEVICE)
    until(lambda: device.state() == tango.DevState.STANDBY, device.status)
    device.DestinationFilename = filename
    pool = Pool("pool", "pool")
    pool.pool_path = [str(ROOT / "deploy/tango")]
    known = {"klass": "KonkordiaTwoDController", "library": "KonkordiaTwoDCtrl.py", "type": "TwoDExpChannel"}
    controller = pool.create_controller(
        name="detectors", full_name="detectors", properties={"Device": DEVICE, "StepTrigger": "SOFTWARE"}, **known
    )
    return (
        device,
        pool,
        controller,
        pool.create_element(type="TwoDExpChannel", ctrl_id=controller.id, axis=1, name="eiger", full_name="eiger"),
    )


def measurement_group(pool, synchronizer, kind, **of_channel):
    from sardana.pool.test.helper import createMGUserConfiguration

    configuration, ids, _ = createMGUserConfiguration(pool, [[("eiger", synchronizer, kind)]])
    configuration["controllers"]["detectors"]["channels"]["eiger"].update(of_channel)
    group = pool.create_measurement_group(name="group", full_name="group", user_elements=ids)
    group.set_configuration_from_user(configuration)
    return group


def taurus():
    """A form of Taurus with the attributes of the device shows what the device has."""
    os.environ["QT_QPA_PLATFORM"] = "offscreen"
    import tango
    from taurus.qt.qtgui.application import TaurusApplication
    from taurus.qt.qtgui.panel import TaurusForm

    device = tango.DeviceProxy(DEVICE)
    until(lambda: device.state() == tango.DevState.STANDBY, device.status)
    application = TaurusApplication(["form"], cmd_line_parser=None)
    names = ["State", "TriggerMode", "nTriggers", "nFramesAcquired", "ImagesWritten", "Ended", "ExposureTime"]
    form = TaurusForm()
    form.setModel([f"{DEVICE}/{name}" for name in names])
    form.resize(700, 420)
    form.show()

    def turn(seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            application.processEvents()
            time.sleep(0.01)

    device.TriggerMode, device.nTriggers, device.DestinationFilename = "EXTERNAL", 7, "by_taurus"
    device.Arm()
    turn(1.5)
    armed = shown(form, names)
    subprocess.run([*send, "7"], check=True)
    until(lambda: device.state() != tango.DevState.RUNNING, device.status)
    turn(1.5)
    form.grab().save(str(folder / "form.png"))
    say("taurus", armed=armed, ended=shown(form, names))


def shown(form, names):
    found = {}
    for name, item in zip(names, form.getItems(), strict=True):
        widget = item.readWidget()
        # A state is shown as a coloured light.
        found[name] = widget.text() if hasattr(widget, "text") else item.getModelValueObj().rvalue.name
    return found


def main():
    import socket

    import tango

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    os.environ["TANGO_HOST"] = f"127.0.0.1:{port}"
    databaseds = Path(sys.executable).with_name("PyDatabaseds")
    started(
        databaseds,
        "--port",
        str(port),
        "--host",
        "127.0.0.1",
        "2",
        until="Ready to accept request",
        PYTANGO_DATABASE_NAME=str(folder / "tango.db"),
    )
    known = tango.Database()
    info = tango.DbDevInfo()
    info.name, info._class, info.server = DEVICE, "Konkordia", "konkordia-tango/test"
    known.add_device(info)
    known.put_device_property(DEVICE, {"Url": [url], "ImageTimeoutDefault": ["30"]})
    path = os.pathsep.join([str(ROOT / "python"), os.environ.get("PYTHONPATH", "")])
    started(sys.executable, "-m", "konkordia.tango", "test", until="Ready to accept request", PYTHONPATH=path)
    {"database": database, "sardana": sardana, "sardana_fly": sardana_fly, "taurus": taurus}[os.environ["TANGO_WORLD"]]()


try:
    main()
finally:
    sys.stdout.flush()
    for program in reversed(programs):
        program.terminate()
    for program in programs:
        try:
            program.wait(5)
        except subprocess.TimeoutExpired:
            program.kill()
# Threads of Sardana and Taurus do not end by themselves.
sys.stdout.flush()
os._exit(0)
