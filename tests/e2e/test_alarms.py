"""Alarms: each is raised by a simulated cause, told to everybody who wants to know, and ends after the cause."""

import json
import time
import urllib.request

import numpy as np
import zmq
from driving import free_ports, program
from service import Service, free_port, write_config
from streams import Stins
from test_analyse import DIALS, recipe
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


def test_limits_that_make_no_sense_are_refused(tmp_path):
    for line, words in [("loss_ratio = 2.0", "loss_ratio"), ("window_s = 0.1", "window_s"), ("empty_s = 3", "unknown key 'empty_s'")]:
        path = tmp_path / "run.toml"
        path.write_text(f'[detector]\ntype = "stream"\n[source]\nprotocol = "stins"\nupstreams = "tcp://127.0.0.1:1"\n[output]\ndirectory = "{tmp_path}"\nprefix = "s"\n[alarms]\n{line}\n')
        done = program("serve", "-c", path, "--listen", "127.0.0.1:0", check=3)
        assert words in done.stderr, done.stderr
