"""A detector of Konkordia, or any other with the Tango form of MAX IV's standard detectors, as a 2D channel of Sardana 3.
Put this file on the PoolPath (docs/tango.md).

Step scans: one file for the whole scan with StepTrigger = SOFTWARE (the service needs `[control] on_trigger`), or one run
and file for each point with INTERNAL. Continuous scans: one run, armed for as many hardware triggers as the scan has
points; set ValueRefEnabled.
"""

import tango
from sardana import State
from sardana.pool import AcqSynch
from sardana.pool.controller import Access, DataAccess, DefaultValue, Description, Referable, TwoDController, Type

HARDWARE = {
    AcqSynch.HardwareTrigger: "EXTERNAL_MULTI",
    AcqSynch.HardwareGate: "EXTERNAL_MULTI_GATE",
    AcqSynch.HardwareStart: "EXTERNAL",
    AcqSynch.SoftwareStart: "INTERNAL",
}
STATES = {
    tango.DevState.RUNNING: State.Moving,
    tango.DevState.MOVING: State.Moving,
    tango.DevState.INIT: State.Moving,
    tango.DevState.STANDBY: State.On,
    tango.DevState.ALARM: State.Alarm,
    tango.DevState.FAULT: State.Fault,
    tango.DevState.UNKNOWN: State.Unknown,
}


class KonkordiaTwoDController(TwoDController, Referable):
    """Drives the Tango device of a detector."""

    gender = "Detector"
    model = "Standard detector"
    organization = "Konkordia"
    MaxDevice = 1
    ctrl_properties = {
        "Device": {Type: str, Description: "the Tango device of the detector"},
        "StepTrigger": {
            Type: str,
            Description: "step scans: SOFTWARE (one run, a software trigger for each point) or INTERNAL (a run for each point)",
            DefaultValue: "SOFTWARE",
        },
        "Dataset": {Type: str, Description: "of the images, in the file", DefaultValue: "/entry/data/images"},
    }
    axis_attributes = {
        "TriggerNumber": {Type: int, Description: "trigger of the newest image, from 0", Access: DataAccess.ReadOnly},
        "File": {Type: str, Description: "file of the newest run", Access: DataAccess.ReadOnly},
    }

    def __init__(self, inst, props, *args, **kwargs):
        super().__init__(inst, props, *args, **kwargs)
        self.device = tango.DeviceProxy(self.Device)
        self._synchronization = AcqSynch.SoftwareTrigger
        self._exposure_s = self._latency_s = 0.0
        self._repetitions = self._starts = self._started = self._given = 0
        self._is_armed = self._gives_references = False

    # Before a scan.

    def PrepareOne(self, axis, value, repetitions, latency, nb_starts):
        self._starts, self._started, self._is_armed = nb_starts, 0, False

    def LoadOne(self, axis, value, repetitions, latency):
        self._exposure_s, self._repetitions, self._latency_s = value, repetitions, latency

    def _is_step(self):
        return self._synchronization == AcqSynch.SoftwareTrigger

    def _is_one_run(self):
        return self._is_step() and self.StepTrigger == "SOFTWARE"

    def PreStartAll(self):
        """Arms, so that the first trigger finds the detector ready."""
        if self._is_armed and self._is_one_run():
            return
        triggers, frames, mode = 1, self._repetitions, "INTERNAL"
        if self._is_one_run():
            triggers, mode = max(1, self._starts), "SOFTWARE"
        elif not self._is_step():
            mode = HARDWARE[self._synchronization]
            if "MULTI" in mode:
                triggers, frames = self._repetitions, 1
        settings = [("ExposureTime", self._exposure_s), ("LatencyTime", self._latency_s), ("TriggerMode", mode)]
        for name, value in [*settings, ("nTriggers", triggers), ("nFramesPerTrigger", frames)]:
            self.device.write_attribute(name, value)
        self.device.Arm()
        self._is_armed, self._given = True, 0
        if self._is_one_run():
            self._started = 0

    def StartOne(self, axis, value):
        pass

    def StartAll(self):
        self._started += 1
        if self._is_one_run():
            self.device.SoftwareTrigger()

    # During a scan.

    def StateOne(self, axis):
        state = STATES.get(self.device.state(), State.Unknown)
        if state == State.Moving and self._is_one_run() and self._started < self._starts:
            # Between two points the run goes on, but this point is done.
            if self.device.nFramesAcquired >= self._started * self._repetitions:
                state = State.On
        return state, self.device.status()

    def _check(self):
        if self.device.state() in (tango.DevState.ALARM, tango.DevState.FAULT, tango.DevState.UNKNOWN):
            raise RuntimeError(self.device.status())

    def ReadOne(self, axis):
        self._check()
        if self._is_step():
            return self.device.Image
        if self._gives_references:
            return []
        # The device has the newest image only: any other one would be given for the wrong trigger.
        raise RuntimeError("continuous scans give references to the images: set ValueRefEnabled of the channel")

    def RefOne(self, axis):
        self._check()
        reference = f"h5file://{self.device.File}::{self.Dataset}"
        if self._is_step():
            return reference
        done = self.device.nFramesAcquired
        new, self._given = max(0, done - self._given), done
        return [reference] * new

    def StopOne(self, axis):
        self.device.Stop()

    def AbortOne(self, axis):
        self.device.Cancel()
        self._is_armed = False

    # Parameters.

    def GetCtrlPar(self, parameter):
        if parameter == "synchronization":
            return self._synchronization
        return 0.0 if parameter == "latency_time" else None

    def SetCtrlPar(self, parameter, value):
        if parameter == "synchronization":
            self._synchronization = value

    def GetAxisPar(self, axis, parameter):
        if parameter == "shape":
            image = self.device.read_attribute("Image")
            return [image.dim_x, image.dim_y]
        return None

    def SetAxisPar(self, axis, parameter, value):
        if parameter == "value_ref_enabled":
            self._gives_references = value

    def GetAxisExtraPar(self, axis, name):
        return getattr(self.device, {"triggernumber": "TriggerNumber", "file": "File"}[name.lower()])
