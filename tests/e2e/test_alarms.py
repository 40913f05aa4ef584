"""Alarms: each is raised by a simulated cause, told to everybody who wants to know, and ends after the cause."""

import json
import re
import time
import urllib.request

import h5py
import numpy as np
import zmq
from driving import free_ports, program, simulate
from service import Service, free_port, write_config
from streams import Stins
from test_analyse import DIALS, recipe
from test_live_analysis import of_file, same_bits
from test_calibration import take, truth
from test_results import calibration


def alarms(service):
    return {alarm["name"]: alarm for alarm in service.status()["alarms"]}


def until(service, name, raised, timeout=15):
    end = time.monotonic() + timeout
    while (found := alarms(service)[name])["raised"] != raised:
        assert time.monotonic() < end, alarms(service)
        time.sleep(0.02)
    return found


def test_strong_light_and_loss_over_udp(tmp_path):
    told, port, udp = tmp_path / "told", free_port(), free_ports()
    script = f'echo "$KONKORDIA_ALARM $KONKORDIA_ALARM_STATE $KONKORDIA_DETECTOR $KONKORDIA_RUN" >> {told}'
    limits = {
        "window_s": 1.0,
        "value_max": 100.0,
        "saturated_max": 1_000_000,
        "loss_ratio": 0.5,
        "program": ["sh", "-c", script],
        "address": f"tcp://127.0.0.1:{port}",
    }
    tables = {"calibration": calibration(tmp_path), "run": {"stall_timeout_s": 30}, "alarms": limits}
    service = Service(write_config(tmp_path, udp, detector={"type": "jungfrau", "energy_kev": 12.4}, **tables))
    context = zmq.Context()
    subscriber = context.socket(zmq.SUB)
    subscriber.subscribe(b"alarm")
    subscriber.rcvtimeo = 10_000
    subscriber.connect(f"tcp://127.0.0.1:{port}")
    try:
        assert {name: alarm["raised"] for name, alarm in alarms(service).items()} == {"loss": False, "strong": False, "saturated": False}
        service.command("start")
        # The simulated photons of this detector are far above 100.
        program("simulate", "jungfrau", "--to", f"127.0.0.1:{udp}", "--images", 60, "--rate", 60, "-q", check=0)
        strong = until(service, "strong", True)
        assert "more than 100" in strong["message"] and "attenuate" in strong["hint"] and strong["since"]
        topic, message = subscriber.recv_multipart()
        message = json.loads(message)
        assert topic == b"alarm" and message["alarm"]["name"] == "strong" and message["alarm"]["raised"] and message["run"] == 1
        detector = service.status()["detector"]
        with urllib.request.urlopen(f"{service.url}/metrics") as answer:
            metrics = answer.read().decode()
        assert f'konkordia_alarm{{detector="{detector}",alarm="strong"}} 1.0\n' in metrics
        assert f'konkordia_alarm{{detector="{detector}",alarm="loss"}} 0.0\n' in metrics
        # Most packets are lost. The light is as strong: its alarm goes on, or begins again on a machine that was busy.
        program("simulate", "jungfrau", "--to", f"127.0.0.1:{udp}", "--images", 120, "--first-frame", 61, "--rate", 60, "--loss", 0.3, "-q", check=0)
        loss = until(service, "loss", True)
        assert "lost or partial" in loss["message"] and "doctor" in loss["hint"]
        service.command("stop")
        service.wait()
        for name in ("strong", "loss"):
            assert until(service, name, False)["message"] is None
        said = {"strong": ["raised"], "loss": []}
        while not all(states and states[-1] == "ended" for states in said.values()) or subscriber.poll(500):
            alarm = json.loads(subscriber.recv_multipart()[1])["alarm"]
            said[alarm["name"]].append("raised" if alarm["raised"] else "ended")
        for states in said.values():
            assert states == ["raised", "ended"] * (len(states) // 2) and states, said
        expected = sorted(f"{name} {state} {detector} 1" for name, states in said.items() for state in states)
        end = time.monotonic() + 10
        while sorted(lines := told.read_text().splitlines()) != expected and time.monotonic() < end:
            time.sleep(0.05)
        assert sorted(lines) == expected
        service.until_logged(lambda line: "alarm strong" in line and "attenuate" in line)
        service.until_logged(lambda line: "alarm loss has ended" in line)
    finally:
        context.destroy(linger=0)
        service.end()


def test_empty_images_of_a_stream(tmp_path, serve):
    by = recipe(tmp_path, spots=DIALS, hits={"spots_min": 1})
    limits = "[alarms]\nno_hits_s = 1.0\nunanalysed_ratio = 0.5\nprogram = [\"/no/such/program\"]\n"
    service = serve(extra=f'[analysis]\nrecipe = "{by}"\n{limits}', run="stall_timeout_s = 20")
    rng = np.random.default_rng(5)

    def picture(spot):
        image = rng.poisson(3, (64, 80)).astype("uint16")
        if spot:
            image[20:23, 30:33] += 80
        return image

    stins = Stins()
    service.send(stins.start())
    sent = 0

    def send(seconds, spot):
        nonlocal sent
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            service.send(stins.image(sent, picture(spot)))
            sent += 1
            time.sleep(0.02)

    send(1.5, True)
    assert not any(alarm["raised"] for alarm in alarms(service).values())
    send(2.5, False)
    assert "no hit came for" in until(service, "no_hits", True)["message"]
    send(3.0, True)
    until(service, "no_hits", False)
    service.send(stins.end())
    service.taken(1)
    # A program that is not there is a warning, and nothing else.
    service.until_logged(lambda line: "alarms.program" in line and "/no/such/program" in line)


def test_strong_light_in_a_stream(tmp_path, serve):
    by = recipe(tmp_path, above={"level": 1000}, hits={"rule": "saturated_pixels > 0 || max_value > 500"})
    limits = '[alarms]\nvalue_max = 500.0\nsaturated_max = 5\n'
    service = serve(extra=f'[analysis]\nrecipe = "{by}"\n{limits}', run="stall_timeout_s = 20")
    stins, numbers = Stins(), iter(range(10**6))

    def send(seconds, **spot):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            image = np.full((50, 60), 3, np.uint16)
            # 65535 says that nothing was measured, 65532 that it was too much.
            image[:, 30], image[:10, 5] = 65535, spot.get("saturated", 3)
            image[20, 20] = spot.get("strong", 3)
            service.send(stins.image(next(numbers), image))
            time.sleep(0.02)

    service.send(stins.start())
    send(1.0)
    assert not any(alarm["raised"] for alarm in alarms(service).values())
    send(1.0, strong=501)
    message = until(service, "strong", True)["message"]
    assert "501" in message and "more than 500" in message and not alarms(service)["saturated"]["raised"]
    send(1.0, saturated=65532)
    assert "10" in until(service, "saturated", True)["message"]
    send(3.5)
    for name in ("strong", "saturated"):
        until(service, name, False)
    service.send(stins.end())
    file = service.file(1)
    with h5py.File(file.path) as master:
        columns = {name: set_[()] for name, set_ in master["/entry/konkordia/images"].items()}
    looked = columns["is_analysed"] == 1
    strong, saturated = columns["max_value"] == 501, columns["saturated_pixels"] == 10
    assert strong.any() and saturated.any() and looked.sum() > 50
    assert (columns["is_hit"][looked] == (strong | saturated)[looked]).all()
    assert set(columns["missing_pixels"][looked]) == {50} and set(columns["valid_pixels"][looked & ~saturated]) == {2950}
    assert set(columns["sum_value"][looked & ~strong & ~saturated]) == {3 * 2950}
    # From the file again: the same, and rules know the same.
    again = of_file(tmp_path, file.path, by)
    for name in ("valid_pixels", "missing_pixels", "saturated_pixels", "min_value", "max_value", "sum_value", "is_hit"):
        assert same_bits(columns[name][looked], again[name][looked]), name


def test_a_beam_beside_its_centre(tmp_path, serve):
    facts = "energy_kev = 12.4\ndetector_distance_mm = 100.0\nbeam_center_x_px = 150.0\nbeam_center_y_px = 130.0\npixel_size_um = 172.0\n"
    cake = {"bins": 80, "range": [0.5, 1.5], "azimuth_bins": 16, "beam_ring": [0.7, 1.3]}
    by = recipe(tmp_path, azimuthal=cake, veto={"rule": "beam_shift_x_px > 3.0"})
    service = serve(detector=facts, extra=f'[analysis]\nrecipe = "{by}"\n[alarms]\nwindow_s = 1.0\nbeam_shift_px = 2.0\n', run="stall_timeout_s = 20")
    rng, (rows, columns) = np.random.default_rng(5), np.indices((260, 300))
    stins, numbers = Stins(), iter(range(10**6))

    def send(seconds, beam_x, beam_y, ring=30.0):
        radius = np.hypot(columns + 0.5 - beam_x, rows + 0.5 - beam_y)
        mean = 2 + ring * np.exp(-0.5 * ((radius - 95) / 4) ** 2)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            service.send(stins.image(next(numbers), rng.poisson(mean).astype("uint16")))
            time.sleep(0.02)

    service.send(stins.start())
    send(1.5, 150.0, 130.0)
    send(0.5, 150.0, 130.0, ring=0.0)
    assert not alarms(service)["beam_shift"]["raised"]
    send(2.0, 154.0, 127.0)
    message = until(service, "beam_shift", True)["message"]
    assert re.search(r"the beam is \d\.\d pixels from its centre \(\+\d\.\d along x, -\d\.\d along y\)", message), message
    send(4.0, 150.0, 130.0)
    until(service, "beam_shift", False)
    service.send(stins.end())
    service.taken(1)
    [master] = tmp_path.glob("*_master.h5")
    analysed = program("analyse", master, "--recipe", by, "--json", check=0, timeout=120).stdout.splitlines()
    shifts = [line["beam_shift_px"] for line in map(json.loads, analysed) if line["event"] == "image"]
    assert None in shifts, "images without a ring say nothing"
    far = np.array([shift for shift in shifts if shift and shift[0] > 2])
    assert np.abs(far.mean(0) - [4, -3]).max() < 0.3 and len(far) > 20


def test_old_and_drifting_pedestals(bench):
    gain = truth(bench)[0] / "gain_adu_per_kev.f32"
    config = bench.config(
        detector={"type": "jungfrau", "energy_kev": 12.4},
        calibration={"kind": "konkordia", "file": "cal.h5"},
        tracking={"frames": "all", "window_frames": 8, "snapshot_images": 10},
        alarms={"pedestal_age_hours": 1000.0, "pedestal_drift_adu": 20.0},
        run={"stall_timeout_s": 30},
    )
    take(bench, config, 100, "--stage", "g0", "-o", "cal.h5", "--gain", gain, sender=["--dark"])

    def measure(*options):
        service.command("start")
        simulate("jungfrau", "--to", bench.to, "--dark", "--images", 150, "--rate", 60, *options)

    service = Service(config)
    try:
        measure()
        assert not any(alarm["raised"] for alarm in alarms(service).values())
        service.command("stop")
        service.wait()
        measure("--drift-adu", 60, "--drift-s", 2)
        assert "ADU since the run began" in until(service, "pedestal_drift", True)["message"]
        service.command("stop")
        service.wait()
        until(service, "pedestal_drift", False)
    finally:
        service.end()
    config.write_text(config.read_text().replace("pedestal_age_hours = 1000.0", "pedestal_age_hours = 0.0001"))
    service = Service(config)
    try:
        measure()
        assert "hours old" in until(service, "pedestal_age", True)["message"]
        service.command("stop")
        service.wait()
        until(service, "pedestal_age", False)
    finally:
        service.end()


def test_limits_that_make_no_sense_are_refused(tmp_path):
    for line, words in [("loss_ratio = 2.0", "loss_ratio"), ("window_s = 0.1", "window_s"), ("empty_s = 3", "unknown key 'empty_s'"), ("pedestal_age_hours = 3", "without such a calibration"), ("pedestal_drift_adu = 3", "without [tracking]"), ("value_max = 3.0", "alarms.value_max without [analysis]"), ("saturated_max = 3", "alarms.saturated_max without [analysis]")]:
        path = tmp_path / "run.toml"
        path.write_text(f'[detector]\ntype = "stream"\n[source]\nprotocol = "stins"\nupstreams = "tcp://127.0.0.1:1"\n[output]\ndirectory = "{tmp_path}"\nprefix = "s"\n[alarms]\n{line}\n')
        done = program("serve", "-c", path, "--listen", "127.0.0.1:0", check=3)
        assert words in done.stderr, done.stderr
