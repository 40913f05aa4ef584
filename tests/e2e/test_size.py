"""`konkordia size`: what a detector needs, the detectors with a name, and the model of the pipeline."""

import json
import os
import socket

import pytest
import zmq
from driving import free_ports, program
from lanes import slow_lane

# The model and the program may differ by this part of the images.
TOLERANCE = 0.15


def size(*arguments):
    return json.loads(program("size", *arguments, "--json", check=0).stdout)


def line(answer, name):
    (found,) = [line for line in answer["lines"] if line["name"] == name]
    return found


def test_every_number_has_its_formula_and_what_it_rests_on():
    answer = size("--detector", "jungfrau-10M", "--rate", 2200)
    assert round(line(answer, "pixels")["value"], 1) == 46.1 and line(answer, "streams")["value"] == 40
    for one in answer["lines"]:
        assert one["rests_on"] and (one["value"] is None) == (one["formula"] == "") == one["rests_on"].startswith("no figure"), one
    work = line(answer, "cores_work")
    assert "GB/s per core" in work["formula"] and " at " in work["rests_on"] and "-cores" in work["rests_on"], work
    twice = size("--detector", "jungfrau-10m", "--rate", 2200, "--headroom", 3)
    assert line(twice, "cores_work")["value"] == pytest.approx(2 * work["value"])
    text = program("size", "--detector", "jungfrau-10m", "--bits-per-pixel", 4, check=0).stdout
    assert "[1] Leonarski" in text and "10485760 pixels x 4 bit / 8 x 2200 Hz" in text, text


def test_all_detectors_have_a_source_and_an_answer():
    listed = size("--list")["detectors"]
    assert len(listed) > 10 and all(one["source"] for one in listed)
    assert [one["detector"] for one in size("--detector", "all")["detectors"]] == [one["name"] for one in listed]
    text = program("size", "--detector", "all", check=0).stdout
    assert all(one["name"] in text for one in listed) and "no figure" in text


def test_a_detector_that_is_not_in_the_list_is_given_by_its_numbers():
    answer = size("--shape", "512x1028", "--bits", 32, "--rate", 2000)
    assert line(answer, "pixels")["value"] == pytest.approx(512 * 1028 * 4 * 2000 / 1e9)
    assert line(answer, "streams")["value"] == 1 and answer["compression"] == "none"
    program("size", "--shape", "512x1028", "--rate", 2000, check=2)
    program("size", "--shape", "512", "--bits", 32, "--rate", 2000, check=2)


def test_what_cannot_be_said_says_why(tmp_path):
    assert "pilatus3-2m" in program("size", "--detector", "nothing", check=2).stderr
    assert "messages" in program("size", "--detector", "eiger2-4m", "--model", check=2).stderr
    assert "PNG" in program("size", "--detector", "jungfrau-4m", "--model", "--png", tmp_path / "a.pdf", check=2).stderr
    wrong = tmp_path / "wrong.json"
    wrong.write_text("no JSON")
    assert "not a record" in program("size", "--detector", "jungfrau-4m", "--record", wrong, check=2).stderr
    program("size", "--detector", "jungfrau-4m", "--record", tmp_path / "none.json", check=6)
    program("size", "--detector", "jungfrau-4m", "--spread", 0.1, check=2)
    program("size", check=2)


def test_the_model_accounts_for_every_image_and_repeats_with_its_seed(tmp_path):
    arguments = ["--detector", "jungfrau-10m", "--stall", 0.1, "--model", "--seconds", 5, "--at-headroom", 0.5, 1.2, "--pause-ms", 2, "--spread", 0.1]
    answer = size(*arguments, "--png", tmp_path / "model.png")
    assert (tmp_path / "model.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    short, enough = [case for case in answer["model"]["cases"] if case["headroom"] is not None]
    for case in (short, enough):
        assert case["whole"] + case["partial"] + case["lost"] + case["refused"] == case["images"] == 11_000
        for buffer in case["buffers"]:
            assert 0 <= buffer["images_max"] <= buffer["capacity"] and max(buffer["over_time"]) == buffer["images_max"], buffer
    assert short["loss"] > 0.3 and short["loss_without_buffers"] == pytest.approx(0.5) and enough["loss"] == 0
    assert size(*arguments)["model"] == answer["model"]
    assert size(*arguments, "--seed", 2)["model"] != answer["model"]


def test_a_named_detector_is_simulated():
    first = free_ports(8)
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(8)]
    for offset, one in enumerate(sockets):
        one.bind(("127.0.0.1", first + offset))
    done = program("simulate", "jungfrau", "--to", f"127.0.0.1:{first}", "--preset", "jungfrau-4m", "--rate", 50, "--images", 3, "--json", "--quiet", check=0)
    sent = json.loads(done.stdout)
    assert (sent["streams"], sent["packets_sent"]) == (8, 3 * 8 * 128)
    # As fast as possible it would be thousands; a busy machine only makes it slower.
    assert 0 < sent["rate_hz"] < 200, sent
    for one in sockets:
        one.close()
    refused = program("simulate", "jungfrau", "--to", "127.0.0.1:1", "--preset", "pco-edge", check=2).stderr
    assert "konkordia stream --preset pco-edge" in refused
    program("simulate", "jungfrau", "--to", "127.0.0.1:1", "--preset", "jungfrau-4m", "--modules", 2, check=2)


def test_a_named_detector_is_streamed():
    port = free_ports(1)
    with zmq.Context() as context, context.socket(zmq.PULL) as pull:
        pull.rcvtimeo = 30_000
        pull.connect(f"tcp://127.0.0.1:{port}")
        arguments = ["stream", "--to", f"tcp://127.0.0.1:{port}", "--preset", "pco-edge", "--images", 2, "--content", "constant", "--json", "--quiet"]
        sent = json.loads(program(*arguments, check=0).stdout)
        assert sent["image_bytes"] == 2160 * 2560 * 2
        headers = [json.loads(pull.recv_multipart()[0]) for _ in range(2)]
        assert headers[1]["shape"] == [2160, 2560] and headers[1]["type"] == "uint16", headers
    assert "konkordia simulate jungfrau --preset jungfrau-4m" in program("stream", "--to", "tcp://*:1", "--preset", "jungfrau-4m", check=2).stderr
    assert "--dtype uint32" in program("stream", "--to", "tcp://*:1", "--preset", "lambda-3m", check=2).stderr


def measured(folder, rate, seconds, code):
    """The attempt of `bench pipeline` at one rate with one worker, and the file with its JSON."""
    arguments = ["bench", "pipeline", "--modules", 1, "--rate", rate, "--seconds", seconds, "--workers", 1, "--json"]
    done = program(*arguments, timeout=seconds * 10 + 120)
    assert done.returncode in code, done.stderr
    path = folder / f"pipeline-{rate:.0f}.json"
    path.write_text(done.stdout)
    return json.loads(done.stdout)["results"][0]["attempts"][0], path


def modelled(record, rate, seconds, *more):
    """The model of one module with the times of a record, on the processors of this machine."""
    arguments = ["--detector", "jungfrau-module", "--rate", rate, "--record", record, "--model", "--at-headroom", 1]
    answer = size(*arguments, "--workers", 1, "--processors", os.cpu_count(), "--seconds", seconds, *more)
    (case,) = [case for case in answer["model"]["cases"] if case["headroom"] is None]
    return case


@pytest.mark.alone
def test_the_times_of_threads_are_figures(tmp_path):
    attempt, path = measured(tmp_path, 100, 3, (0,))
    roles = {row["role"]: row for row in attempt["threads"]}
    if not roles:
        pytest.skip("this kernel does not count the time of threads (/proc/self/task/*/schedstat)")
    assert {"simulate", "rx", "work", "commit", "join", "out"} <= set(roles), roles
    # 100 images of 1 MiB per second keep no thread busy, and none of them idle.
    assert all(0 < roles[role]["cores"] < 1 and roles[role]["image_us"] > 0 for role in ("simulate", "rx", "work", "out")), roles
    answer = size("--detector", "jungfrau-10m", "--record", path)
    for name in ("cores_receive", "cores_work", "cores_join", "cores_file"):
        found = line(answer, name)
        assert found["value"] > 0 and str(path) in found["rests_on"] and "processor time" in found["rests_on"], found
    assert not line(answer, "cores")["is_at_least"]
    # The run lost nothing, and so does the model at its rate; the worker is as busy in both.
    case = modelled(path, 100, 3)
    assert attempt["complete"] == attempt["images"] and case["loss"] == 0, case
    assert case["utilisation"]["work"] == pytest.approx(roles["work"]["image_us"] * 1e-6 * 100)


@pytest.mark.alone
@slow_lane
def test_the_model_predicts_what_the_program_loses(tmp_path):
    attempt, path = measured(tmp_path, 300, 8, (0,))
    roles = {row["role"]: row for row in attempt["threads"]}
    if not roles:
        pytest.skip("this kernel does not count the time of threads (/proc/self/task/*/schedstat)")
    # Twice what the worker can do.
    overload, _ = measured(tmp_path, round(2e6 / roles["work"]["image_us"]), 8, (0, 1))
    rate, more = overload["sent_hz"], ["--slots", overload["slots"]]
    seconds = overload["images"] / rate
    lost = 1 - overload["complete"] / overload["images"]
    assert lost > 0.1, "the program was not overloaded"
    case = modelled(path, rate, seconds, *more)
    assert case["loss"] == pytest.approx(lost, abs=TOLERANCE), (overload, case["utilisation"])
    # Far below its limit neither loses anything.
    assert attempt["complete"] == attempt["images"] and modelled(path, 300, 8)["loss"] == 0, attempt
    # A model with wrong times is found: with a quarter of the worker's time its answer is further off.
    wrong = json.loads(path.read_text())
    for row in wrong["results"][0]["attempts"][0]["threads"]:
        if row["role"] == "work":
            row["image_us"] /= 4
    (tmp_path / "wrong.json").write_text(json.dumps(wrong))
    off = modelled(tmp_path / "wrong.json", rate, seconds, *more)
    assert abs(off["loss"] - lost) > abs(case["loss"] - lost), (off["loss"], case["loss"], lost)


def test_where_the_stages_run():
    plan = json.loads(program("size", "--detector", "jungfrau-10m", "--stages", "--platform", "power9", "--fpga-gb-per-s", 32, "--fpga-ports", 2, "--headroom", 1, "--json").stdout)
    assert plan["platform"]["fpga_link_gb_per_s"] == 25 and len(plan["placements"]) == 20
    needs = {tuple(way["stages"].values()): {line["name"]: line["value"] for line in way["lines"]} for way in plan["placements"]}
    # Leonarski et al. 2020: two boards, and LZ4 on fewer than 23 cores.
    paper = needs["FPGA", "FPGA", "FPGA", "CPU"]
    assert paper["boards"] == 2 and 0 < paper["cores"] < 23 and needs["CPU", "GPU", "GPU", "GPU"]["gpus"] is None
    text = program("size", "--detector", "jungfrau-4m", "--stages").stdout
    assert "fewest hosts, then devices: receive: CPU" in text and "was not measured" in text
    for wrong, why in (["--detector", "eiger2-4m"], "sends messages"), (["--detector", "jungfrau-4m", "--compression", "bszstd"], "those of bslz4"), (["--detector", "all"], "all detectors"):
        assert why in program("size", "--stages", *wrong, check=2).stderr
    assert "--stages" in program("size", "--detector", "jungfrau-4m", "--platform", "pcie5", check=2).stderr
