"""From dark frames to a corrected file: `konkordia pedestal`, `konkordia calibration`, and runs with their results."""

import json
import shutil
import socket
import struct
import subprocess
import time

import h5py
import numpy as np
import pytest
from driving import BINARY, LYSO, Master, balanced, jungfrau_packet, lyso_raw, lyso_tables, needs_lyso, program, simulate
from service import Service

PIXELS = 512 * 1024
STAGES = ("g0", "g1", "g2")


def tables(**calibration):
    detector = {"type": "jungfrau", "energy_kev": 12.4, "serial_number": "JF-SIM"}
    return {"detector": detector, "calibration": {"kind": "konkordia", "file": "cal.h5", **calibration}}


def take(bench, config, images, *options, sender=(), rate=200, code=0):
    """Runs `konkordia pedestal` live with the simulator as the detector; returns its JSON output, or its errors."""
    command = [BINARY, "pedestal", config, "--frames", images, "--json", *options]
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=bench.folder)
    try:
        while "armed" not in (line := process.stderr.readline()):
            assert line, f"ended before it was armed, exit code {process.wait()}"
        simulate("jungfrau", "--to", bench.to, "--images", images, "--rate", rate, *sender)
        out, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == code, f"exit code {process.returncode}\n{out}\n{errors}"
    return json.loads(out) if code == 0 else errors + "\n".join(map(str, json.loads(out)["error"].values()))


def truth(bench):
    """The folder with pedestals and gains of the simulated module, the pedestals, and the gains."""
    folder = bench.folder / "truth"
    program("simulate", "jungfrau", "--to", "127.0.0.1:1", "--write-calibration", folder, check=0)
    read = lambda name: np.fromfile(folder / name, "<f4").reshape(-1, 512, 1024)
    return folder, {s: read(f"pedestal_{s}.f32")[0] for s in STAGES}, read("gain_adu_per_kev.f32")


def dark_file(bench, frames=80, gain_bits=0, mean=3000.0, sigma=20.0, name="dark.u16"):
    """Writes plain words of dark frames; returns the path, and mean and standard deviation of each pixel."""
    rng = np.random.default_rng(5)
    adc = rng.normal(mean, sigma, (frames, 512, 1024)).round().astype(np.uint16)
    (adc | gain_bits << 14).astype("<u2").tofile(bench.folder / name)
    return bench.folder / name, adc.mean(0), adc.std(0, ddof=1)


def test_from_first_dark_frame_to_a_corrected_file(bench):
    folder, pedestals, gains = truth(bench)
    config = bench.config(**tables(max_age_hours=1.0), run={"images": 6})
    frames = 120
    for stage, options, sender in (
        ("g0", ["-o", "cal.h5"], []),
        ("g1", ["--into", "cal.h5"], ["--force-gain", 1]),
        ("g2", ["--into", "cal.h5", "--gain", folder / "gain_adu_per_kev.f32"], ["--force-gain", 2]),
    ):
        found = take(bench, config, frames, "--stage", stage, *options, sender=["--dark", *sender])
        row = found["rows"][0]
        assert (row["frames"], row["stage"], row["cell"], row["good"]) == (frames, stage, 3, True), found
        assert found["frames_refused"] == 0 and found["detector_serial"] == "JF-SIM" and found["module_ids"] == [0]
    with h5py.File(bench.folder / "cal.h5") as f:
        assert (f.attrs["format"], f.attrs["format_version"], f.attrs["modules"]) == (b"konkordia-calibration", 1, 1)
        masks = {}
        for stage, noise in zip(STAGES, (29.5, 4.0, 3.0), strict=True):
            group = f[f"cell_03/{stage}"]
            mean, count, masks[stage] = group["mean"][()], group["count"][()], group["mask"][()]
            good = masks[stage] == 0
            close = np.abs(mean - pedestals[stage])[good] < 4 * np.sqrt(noise**2 / count[good])
            assert close.mean() > 0.999 and good.mean() > 0.999
        assert np.array_equal(f["gain/g0"][()], gains[0]) and len(f["history"]) == 3
        planes = {stage: f[f"cell_03/{stage}/mean"][()] for stage in STAGES}
    # The same frames with this calibration, and with the same planes as plain files in which masked pixels are marked.
    simulated = ["jungfrau", "--to", bench.to, "--images", 6, "--rate", 50]
    receiver = bench.receive(config)
    simulate(*simulated)
    code, report = receiver.finish()
    balanced(code, report)
    ours = Master(bench.master)
    for stage, plane in planes.items():
        np.where(masks[stage] == 0, plane, 16383).astype("<f4").tofile(bench.folder / f"{stage}.f32")
    plain = {"kind": "files", "pedestal": [f"{s}.f32" for s in STAGES], "gain": str(folder / "gain_adu_per_kev.f32")}
    config = bench.config(**{**tables(), "calibration": plain}, output={"overwrite": "replace"}, run={"images": 6})
    receiver = bench.receive(config)
    simulate(*simulated[:2], bench.to, *simulated[3:])
    receiver.finish()
    theirs = Master(bench.master)
    assert np.array_equal(ours.images, theirs.images)
    # Dead is bit 1, noisy bit 4.
    assert np.array_equal(ours.mask != 0, theirs.mask != 0) and set(np.unique(ours.mask)) == {0, 2, 16}


def staged(bench, images=40, rate=200):
    """A configuration with programs that set the gain of the simulated detector and start it. They log the gains that
    they set in the file `stages`."""
    control = {"on_stage": [str(bench.folder / "set")], "on_trigger": [str(bench.folder / "start")], "timeout_s": 100}
    config = bench.config(**tables(), control=control, run={"images": 6})
    stages = bench.folder / "stages"
    send = f"{BINARY} simulate jungfrau --to {bench.to} --images {images} --rate {rate} --dark -q"
    lines = {
        "set": f'echo "$KONKORDIA_STAGE $KONKORDIA_GAINMODE" >> {stages}',
        "start": f"case $(tail -n 1 {stages}) in g0*) {send};; g1*) {send} --force-gain 1;; g2*) {send} --force-gain 2;; esac",
    }
    for name, line in lines.items():
        (bench.folder / name).write_text(f"#!/bin/sh\n{line}\n")
        (bench.folder / name).chmod(0o755)
    return config


def has_pedestals(path, pedestals, frames=40):
    with h5py.File(path) as file:
        for stage, noise in zip(STAGES, (29.5, 4.0, 3.0), strict=True):
            group = file[f"cell_03/{stage}"]
            good = group["mask"][()] == 0
            close = np.abs(group["mean"][()] - pedestals[stage])[good] < 4 * noise / np.sqrt(frames)
            assert close.mean() > 0.999


ALL_SET = "g0 dynamic\ng1 forceswitchg1\ng2 forceswitchg2\ng0 dynamic\n"


def test_all_stages_by_one_command(bench):
    """The programs of [control] set the gain and start the detector for each stage, and leave it in its normal mode."""
    folder, pedestals, _ = truth(bench)
    config = staged(bench)
    command = ["pedestal", config, "--stage", "all", "--frames", 40, "-o", "cal.h5", "--gain", folder / "gain_adu_per_kev.f32"]
    found = json.loads(program(*command, "--json", check=0, cwd=bench.folder).stdout)
    assert [(row["stage"], row["frames"]) for row in found["rows"]] == [(stage, 40) for stage in STAGES], found
    assert (bench.folder / "stages").read_text() == ALL_SET
    has_pedestals(bench.folder / "cal.h5", pedestals)
    # The second stage fails: nothing is written, and the detector returns to its normal mode.
    (bench.folder / "stages").unlink()
    (bench.folder / "set").write_text('#!/bin/sh\necho "$KONKORDIA_STAGE" >> stages\ntest $KONKORDIA_STAGE != g1 || { echo "no answer" >&2; exit 1; }\n')
    command[command.index("cal.h5")] = "other.h5"
    refused = program(*command, check=5, cwd=bench.folder).stderr
    assert "control.on_stage" in refused and "no answer" in refused
    assert (bench.folder / "stages").read_text() == "g0\ng1\ng0\n" and not (bench.folder / "other.h5").exists()
    refused = program("pedestal", "dark.u16", "--stage", "all", "-o", "x.h5", check=2, cwd=bench.folder).stderr
    assert "--stage all is for a detector" in refused and "leave --stage out" in refused


def test_all_stages_by_one_request(bench):
    """The same over HTTP: first into a new file, then into the file of the configuration, which keeps its gains."""
    folder, pedestals, gains = truth(bench)
    program("pedestal", dark_file(bench)[0], "-o", "cal.h5", "--gain", folder / "gain_adu_per_kev.f32", check=0, cwd=bench.folder)
    stages = bench.folder / "stages"
    service = Service(staged(bench, images=80))
    try:
        for body, why in (
            ({"file": "../out"}, "it has a part . or .."),
            ({"file": "x", "frames": 0}, "0 frames are not possible"),
            ({"file": "x", "stage": "g3"}, "unknown variant"),
            ({"file": "x", "time": 1}, "unknown field"),
        ):
            assert why in str(service.refused("pedestal", body).body), body
        status = service.command("pedestal", {"frames": 80, "file": "new"}, wait_s=120)
        assert (status["state"], status["ended"], status["severity"]) == ("idle", "complete", "success"), status
        assert status["progress"] == 1.0 and "new.h5 has new pedestals" in status["message"], status
        assert stages.read_text() == ALL_SET
        has_pedestals(bench.folder / "new.h5", pedestals)
        events = [e for e in service.request("GET", "logs")["logs"] if e["event"] == "pedestal"]
        rows = events[-1]["data"]["pedestal"]["rows"]
        assert [(row["stage"], row["frames"], row["good"]) for row in rows] == [(stage, 80, True) for stage in STAGES], events
        status = service.command("pedestal", {"frames": 80}, wait_s=120)
        assert (status["run"], status["ended"]) == (2, "complete"), status
        has_pedestals(bench.folder / "cal.h5", pedestals)
        with h5py.File(bench.folder / "cal.h5") as file:
            assert np.array_equal(file["gain/g0"][()], gains[0]) and len(file["history"]) == 2
    finally:
        assert service.end()[0] == 0


def test_pedestals_over_http_can_be_stopped_and_leave_nothing(bench):
    """Other commands are refused meanwhile. When cancel has answered, an arm is accepted and the detector is in its
    normal mode."""
    folder, _, _ = truth(bench)
    program("pedestal", dark_file(bench)[0], "-o", "cal.h5", "--gain", folder / "gain_adu_per_kev.f32", check=0, cwd=bench.folder)
    service = Service(staged(bench, images=400, rate=20))
    try:
        status = service.command("pedestal", {"frames": 400, "file": "new"})
        assert (status["state"], status["run"]) == ("armed", 1), status
        service.until(lambda status: status["state"] == "running" and status["images_committed"] > 0)
        for verb in ("arm", "pedestal"):
            assert service.refused(verb).code == "wrong_state"
        status = service.command("cancel")
        assert (status["state"], status["ended"]) == ("idle", "stopped"), status
        assert "no calibration file was written" in status["message"] and not (bench.folder / "new.h5").exists()
        assert (bench.folder / "stages").read_text() == "g0 dynamic\ng0 dynamic\n"
        assert service.command("arm", {"images": 1})["state"] == "armed"
        service.command("cancel")
    finally:
        assert service.end()[0] == 0


def test_pedestals_over_http_say_what_is_missing(bench):
    """There is no calibration file, and no program that sets the gain."""
    service = Service(bench.config(**{**tables(), "calibration": {"kind": "none"}}, processing={"dtype": "raw"}, run={"images": 6}))
    try:
        assert "on_stage" in service.refused("pedestal", {"file": "new"}).body["hint"]
        refused = service.refused("pedestal", {"stage": "g0"}).body
        assert "there is no file" in refused["detail"] and "calibration/today" in refused["hint"], refused
    finally:
        assert service.end()[0] == 0


def test_storage_cells_have_pedestals_of_their_own(bench):
    folder, _, _ = truth(bench)
    config = bench.config(**tables(gain=str(folder / "gain_adu_per_kev.f32")), processing={"dtype": "float32"}, run={"images": 8})
    cells = ["--storage-cells", 4]
    found = take(bench, config, 160, "-o", "cal.h5", sender=["--dark", *cells])
    assert [(r["cell"], r["frames"]) for r in found["rows"]] == [(c, 40) for c in range(4)]
    receiver = bench.receive(config)
    simulate("jungfrau", "--to", bench.to, "--images", 8, "--rate", 50, "--dark", *cells)
    code, report = receiver.finish()
    balanced(code, report)
    images = Master(bench.master).images
    medians = [np.median(image[np.isfinite(image)]) for image in images]
    # The pedestals of another cell would be wrong by tens of ADU; a photon is 508 ADU.
    assert np.max(np.abs(medians)) < 0.003, medians
    spread = [np.std(image[np.isfinite(image)]) for image in images]
    assert np.max(spread) < 0.062, spread


def test_live_and_from_raw_files_are_the_same_for_any_modules_and_interfaces(bench):
    folder = bench.folder / "truth"
    program("simulate", "jungfrau", "--to", "127.0.0.1:1", "--modules", 2, "--write-calibration", folder, check=0)
    detector = {"type": "jungfrau", "modules": 2, "interfaces": 2, "energy_kev": 12.4}
    raw = {"processing": {"dtype": "raw"}, "output": {"keep_raw": True}}
    config = bench.config(streams=4, detector=detector, **raw, run={"images": 40, "stall_timeout_s": 2.0})
    sender = ["--modules", 2, "--interfaces", 2, "--dark"]
    found = take(bench, config, 40, "-o", "live.h5", sender=sender, rate=40)
    assert [r["module"] for r in found["rows"]] == [0, 1] and found["module_ids"] == [0, 1] and found["incomplete_frames"] == 0
    # The same frames once more, kept as raw files.
    receiver = bench.receive(config)
    simulate("jungfrau", "--to", bench.to, "--images", 40, "--rate", 40, *sender)
    balanced(*receiver.finish())
    program("pedestal", "run_raw_master_0.json", "-o", "files.h5", check=0, cwd=bench.folder)
    pedestals = np.fromfile(folder / "pedestal_g0.f32", "<f4").reshape(1024, 1024)
    with h5py.File(bench.folder / "live.h5") as live, h5py.File(bench.folder / "files.h5") as files:
        for name in ("mean", "rms", "count", "mask"):
            planes = [f[f"cell_03/g0/{name}"][()] for f in (live, files)]
            assert planes[0].shape == (1024, 1024) and np.array_equal(*planes, equal_nan=name != "mask")
        good = live["cell_03/g0/mask"][()] == 0
        close = np.abs(live["cell_03/g0/mean"][()] - pedestals)[good] < 4 * 29.5 / np.sqrt(40)
        assert close.mean() > 0.999 and good.mean() > 0.999
        assert live["module_ids"][()].tolist() == files["module_ids"][()].tolist() == [0, 1]


def test_pedestals_from_files_are_exact(bench):
    path, mean, rms = dark_file(bench)
    done = program("pedestal", path, "--format", "u16", "-o", "cal.h5", "--serial", "A", "--json", check=0, cwd=bench.folder)
    found = json.loads(done.stdout)
    assert found["frames_used"] == 80 and found["module_ids"] == [] and found["detector_serial"] == "A"
    with h5py.File(bench.folder / "cal.h5") as f:
        group = f["cell_00/g0"]
        good = group["mask"][()] == 0
        whole = good & (group["count"][()] == 80)
        assert whole.mean() > 0.999
        assert np.abs(group["mean"][()] - mean)[whole].max() < 1e-3
        assert np.abs(group["rms"][()] - rms)[whole].max() < 1e-3
    # An existing file is not replaced (-o), but a second stage can be added to it (--into).
    path, _, _ = dark_file(bench, frames=20, gain_bits=1, mean=15000.0, sigma=4.0, name="g1.u16")
    program("pedestal", path, "--format", "u16", "-o", "cal.h5", check=5, cwd=bench.folder)
    done = program("pedestal", path, "--format", "u16", "--into", "cal.h5", check=0, cwd=bench.folder)
    assert "check: few frames" in done.stdout
    shown = json.loads(program("calibration", "show", "cal.h5", "--json", check=0, cwd=bench.folder).stdout)[0]
    assert [(s["cell"], s["stage"], s["frames"]) for s in shown["stages"]] == [(0, "g0", 80), (0, "g1", 20)]


def test_runs_that_are_not_dark_are_refused(bench):
    config = bench.config(**tables())
    # Without --dark the simulator sends diffraction.
    errors = take(bench, config, 40, "-o", "cal.h5", rate=50, code=3)
    assert "of G0 in storage cell 3 are not dark" in errors and "close the shutter" in errors
    errors = take(bench, config, 80, "-o", "cal.h5", sender=["--dark", "--stray", 0.02], code=3)
    assert "far from their pedestal, as photons do" in errors
    assert not (bench.folder / "cal.h5").exists()
    take(bench, config, 80, "-o", "cal.h5", "--force", sender=["--dark", "--stray", 0.02])
    assert "used although it was not dark: module 0" in program("calibration", "show", bench.folder / "cal.h5", check=0).stdout


def test_forced_runs_in_the_wrong_stage_are_refused(bench):
    config = bench.config(**tables())
    for stage, sender, found in (("g1", [], "G0"), ("g0", ["--force-gain", 2], "G2"), ("hg0", [], "G0"), ("g0", ["--high-gain"], "HG0")):
        errors = take(bench, config, 12, "--stage", stage, "-o", "cal.h5", sender=["--dark", *sender], code=3)
        assert "in the wrong gain stage" in errors and f"12 of 12 frames were refused: 12 in stage {found}" in errors
    assert not (bench.folder / "cal.h5").exists()
    # Without --stage the frames themselves say which stage they are of.
    row = take(bench, config, 70, "-o", "cal.h5", sender=["--dark", "--high-gain"])["rows"][0]
    assert row["stage"] == "hg0" and row["good"]


def test_a_detector_that_sends_nothing_is_reported(bench):
    config = bench.config(**tables(), run={"start_timeout_s": 0.5})
    done = program("pedestal", config, "-o", bench.folder / "cal.h5", check=7)
    assert "there are no dark frames" in done.stderr


def imported(bench, *options, name="cal.h5"):
    """Imports a calibration file of plausible constant planes."""
    for stage, value in zip(STAGES, (3000.0, 15000.0, 14500.0), strict=True):
        np.full(PIXELS, value, "<f4").tofile(bench.folder / f"{stage}.f32")
    np.repeat(np.array([41.0, -1.44, -0.114], "<f4"), PIXELS).tofile(bench.folder / "gain.f32")
    planes = [bench.folder / f"{s}.f32" for s in STAGES]
    path = bench.folder / name
    program("calibration", "import", "--pedestal", *planes, "--gain", bench.folder / "gain.f32", "--cell", 3, "-o", path, *options, check=0)
    return path


def test_calibrations_that_do_not_belong_are_refused(bench):
    imported(bench, "--serial", "JF-OTHER")
    config = bench.config(**tables())
    assert 'serial number "JF-OTHER", the configuration says "JF-SIM"' in program("receive", config, check=3).stderr
    imported(bench, "--overwrite", "--taken", "2024-02-29T12:00:00Z")
    config = bench.config(**tables(max_age_hours=24.0))
    refused = program("receive", config, check=3).stderr
    assert "is too old" in refused and "2024-02-29T12:00:00Z" in refused
    imported(bench, "--overwrite")
    assert "age of the calibration" in program("receive", config, check=3).stderr
    config = bench.config(**tables())
    assert "is valid" in program("config", "check", config, check=0).stdout
    # Frames of another detector are refused.
    path, _, _ = dark_file(bench, frames=24)
    program("pedestal", path, "--format", "u16", "--into", "cal.h5", "--serial", "X", check=0, cwd=bench.folder)
    done = program("pedestal", path, "--format", "u16", "--into", "cal.h5", "--serial", "Y", check=3, cwd=bench.folder)
    assert 'is of serial number "X", the frames of "Y"' in done.stderr


def test_packets_of_other_modules_end_the_run(bench):
    folder, _, _ = truth(bench)
    config = bench.config(**tables(gain=str(folder / "gain_adu_per_kev.f32")), run={"images": 2, "stall_timeout_s": 2.0})
    take(bench, config, 20, "-o", "cal.h5", sender=["--dark"])
    receiver = bench.receive(config)
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for frame in (1, 2):
        for packet in range(128):
            datagram = bytearray(jungfrau_packet(frame, packet))
            struct.pack_into("<H", datagram, 32, 77)
            sender.sendto(bytes(datagram), ("127.0.0.1", bench.port))
        time.sleep(0.05)
    code, _ = receiver.finish()
    assert code == 6 and "module 0 sends id 77, the calibration was taken from id 0" in receiver.errors


def test_damaged_and_wrong_files_are_refused(bench):
    path = imported(bench)
    config = bench.config(**tables())
    good = path.read_bytes()
    at = good.index(np.full(64, 15000.0, "<f4").tobytes()) + 10
    path.write_bytes(good[:at] + bytes([good[at] ^ 8]) + good[at + 1 :])
    for command in (["receive", config], ["calibration", "show", path], ["pedestal", "--gain", bench.folder / "gain.f32", "--into", path]):
        refused = program(*command, check=3).stderr
        assert "the file is damaged: its content has the hash sha256:" in refused, refused
    path.write_bytes(good[: len(good) // 2])
    assert "the file is damaged" in program("receive", config, check=3).stderr
    path.write_bytes(b"this is no HDF5 file")
    program("receive", config, check=3)
    with h5py.File(path, "w") as f:
        f["gains"] = np.zeros((3, 512, 1024), np.float32)
    assert "konkordia-calibration" in program("receive", config, check=3).stderr
    # Gains of a wrong size, as `.bin` and as HDF5.
    path.write_bytes(good)
    np.zeros(5 * PIXELS).tofile(bench.folder / "m0.bin")
    refused = program("pedestal", "--gain", bench.folder / "m0.bin", "--into", path, check=3).stderr
    assert "has the wrong size" in refused and "12582912 (3 planes), 16777216 (4 planes), 25165824 (6 planes)" in refused
    with h5py.File(bench.folder / "g.h5", "w") as f:
        f["gains"] = np.zeros((5, 512, 1024), np.float32)
    refused = program("pedestal", "--gain", bench.folder / "g.h5", "--into", path, check=3).stderr
    assert "'gains' has the shape [5, 512, 1024]" in refused
    assert path.read_bytes() == good


def test_gains_of_every_kind_are_added(bench):
    path = imported(bench)
    values = np.array([40.0, -1.4, -0.11, 98.0, -3.4, -0.27])
    planes = np.repeat(values, PIXELS).reshape(6, 512, 1024)
    for count in (3, 4, 6):
        planes[:count].astype("<f8").tofile(bench.folder / "m0.bin")
        with h5py.File(bench.folder / "g.h5", "w") as f:
            f["gains"] = planes[:count]
        for name in ("m0.bin", "g.h5"):
            copy = bench.folder / "copy.h5"
            shutil.copyfile(path, copy)
            done = program("pedestal", "--gain", bench.folder / name, "--into", copy, "--json", check=0)
            assert json.loads(done.stdout)["gain_planes"] == min(count, 4)
            with h5py.File(copy) as f:
                stored = [f[f"gain/{s}"][0, 0] for s in (*STAGES, "hg0")[: min(count, 4)]]
            assert np.allclose(stored, values[: len(stored)], rtol=1e-6)
    compared = program("calibration", "compare", path, copy, check=0).stdout
    assert "gains of G0 in module 0: median change -2.439 %" in compared


@needs_lyso
def test_the_mask_finds_the_unusable_pixels_of_the_real_module(bench):
    planes = [LYSO / f"pedestal_{s}.f32" for s in STAGES]
    common = ["--pedestal", *planes, "--rms", LYSO / "pedestal_g0_rms.f32", "--gain", LYSO / "gain_adu_per_kev.f32", "--cell", 3]
    done = program("calibration", "import", *common, "-o", bench.folder / "cal.h5", "--json", check=0)
    rows = json.loads(done.stdout)["rows"]
    assert rows[0]["masked"] == {"dead": 83} and rows[0]["masked_pixels"] == 83
    unusable = np.fromfile(planes[0], "<f4")
    with h5py.File(bench.folder / "cal.h5") as f:
        assert np.array_equal(f["cell_03/g0/mask"][()].ravel() == 2, (unusable <= 0) | (unusable >= 16383))
    # Noisy pixels are masked only with --noisy-k, as a reason of their own.
    done = program("calibration", "import", *common, "-o", bench.folder / "strict.h5", "--noisy-k", 3, "--json", check=0)
    strict = json.loads(done.stdout)["rows"][0]["masked"]
    assert strict["dead"] == 83 and 300 < strict["noisy"] < 1000
    compared = json.loads(program("calibration", "compare", bench.folder / "cal.h5", bench.folder / "strict.h5", "--json", check=0).stdout)
    assert compared["rows"][0]["newly_masked"] == strict["noisy"] + strict.get("stuck", 0) and not compared["equal"]
    # Real frames give the same photons as with the planes themselves.
    images = []
    for calibration in ({"kind": "konkordia", "file": "cal.h5"}, lyso_tables()["calibration"]):
        config = bench.config(**{**lyso_tables(images=10), "calibration": calibration}, output={"overwrite": "replace"})
        receiver = bench.receive(config)
        simulate("jungfrau", "--to", bench.to, "--rate", 100, "--raw", *lyso_raw())
        balanced(*receiver.finish())
        images.append(Master(bench.master))
    assert np.array_equal(images[0].images, images[1].images) and np.array_equal(images[0].mask, images[1].mask)


@needs_lyso
def test_files_of_jungfrau_utils_give_the_same_photons(bench):
    pedestal = np.stack([np.fromfile(LYSO / f"pedestal_{s}.f32", "<f4") for s in STAGES]).reshape(3, 512, 1024)
    gain = np.fromfile(LYSO / "gain_adu_per_kev.f32", "<f4").reshape(3, 512, 1024)
    marked = np.zeros((512, 1024), bool)
    marked[100, 200:210] = True
    with h5py.File(bench.folder / "gains.h5", "w") as f:
        f["gains"] = gain.astype(np.float64)
    images = {}
    for kind, mask in (("bool", marked), ("int64", marked.astype(np.int64) << 22), ("none", None)):
        with h5py.File(bench.folder / "pedestal.h5", "w") as f:
            f["gains"] = pedestal
            if mask is not None:
                f["pixel_mask"] = mask
        calibration = {"kind": "jungfrau_utils", "pedestal": "pedestal.h5", "gain": "gains.h5"}
        config = bench.config(**{**lyso_tables(images=2), "calibration": calibration}, output={"overwrite": "replace"})
        receiver = bench.receive(config)
        simulate("jungfrau", "--to", bench.to, "--rate", 100, "--raw", *lyso_raw()[:2])
        balanced(*receiver.finish())
        images[kind] = Master(bench.master)
    config = bench.config(**lyso_tables(images=2), output={"overwrite": "replace"})
    receiver = bench.receive(config)
    simulate("jungfrau", "--to", bench.to, "--rate", 100, "--raw", *lyso_raw()[:2])
    balanced(*receiver.finish())
    plain = Master(bench.master)
    assert np.array_equal(images["none"].images, plain.images)
    for kind in ("bool", "int64"):
        assert np.array_equal(images[kind].images[:, ~marked], plain.images[:, ~marked])
        assert (images[kind].images[:, marked] == -32768).all() and (images[kind].mask[marked] & 256 == 256).all()


def test_pictures_and_tables_are_made(bench):
    path = imported(bench)
    done = program("calibration", "plot", path, "--dir", bench.folder / "pictures", "--json", check=0)
    pictures = json.loads(done.stdout)["pictures"]
    assert len(pictures) == 4
    for picture in pictures:
        with open(picture, "rb") as f:
            head = f.read(24)
        columns, rows = struct.unpack(">II", head[16:])
        assert head[:8] == b"\x89PNG\r\n\x1a\n" and columns > 1024 and rows > 1000
    assert "there is no module 1" in program("calibration", "plot", path, "--module", 1, check=2).stderr
    shown = program("calibration", "show", path, check=0).stdout
    assert "median G0 41.0000, G1 -1.4400, G2 -0.1140 ADU/keV" in shown and "3000.0 ADU" in shown
    other = imported(bench, name="other.h5")
    compared = program("calibration", "compare", path, other, check=0).stdout
    assert "+0.00 ADU" in compared and "the two are equal" in compared


@pytest.mark.parametrize("key", ["pedestal", "max_age_hours"])
def test_keys_of_another_kind_are_mistakes(bench, key):
    value = {"pedestal": "a.f32", "max_age_hours": 3.0}[key]
    calibration = {"kind": "konkordia", "file": "c.h5"} if key == "pedestal" else {"kind": "files", "pedestal": "a", "gain": "b"}
    config = bench.config(**{**tables(), "calibration": {**calibration, key: value}})
    assert f"calibration.{key} with kind = " in program("config", "check", config, check=3).stderr
