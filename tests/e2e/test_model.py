"""A model of the user gives images a score: the same live, from the file and by onnxruntime; whatever it does, no image
is lost. The models need a build with the feature `onnx`, which the slow lane has."""

import json
import os
import signal
import subprocess
import time

import numpy as np
import pytest
from driving import BINARY, free_ports, program
from lanes import SLOW, slow_lane
from models import by_onnxruntime, network, save
from scripts_of_ours import script
from service import Service, write_config
from streams import Stins
from test_analyse import DIALS, others_file, recipe, synthetic, toml
from test_image_metadata import columns_of
from test_live_analysis import STREAM, frames, of_file, same_bits, stream_service

FEATURES = json.loads(program("version", "--json", check=0).stdout)["features"]
SPOTS = {"method": "peakfinder8", "threshold": 6.0, "snr_min": 5.0, "spots_max": 100}
INPUTS = ["spots", "resolution_angstrom", "background", "profile_intensity"]
BINS = 20


def gathered(columns):
    """What a model gets of each image: the columns one after the other, and 0 for what is not a number."""
    stacked = np.column_stack([columns[name].reshape(len(columns["spots"]), -1).astype(float) for name in INPUTS])
    return np.nan_to_num(stacked, nan=0.0)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A model that was trained on simulated crystals and empty images."""
    folder, recall = tmp_path_factory.mktemp("train"), script("recall")
    by = recipe(folder, spots=SPOTS, azimuthal={"bins": BINS})
    features, is_hit = [], []
    for strength in 0, 2500:
        master, _, _ = recall.measured(folder, 20, strength, 1.0)
        features.append(gathered(of_file(folder, master, by, f"{strength}.h5")))
        is_hit += [strength > 0] * 20
    return network(folder / "hits.onnx", np.concatenate(features), np.array(is_hit))


@slow_lane
def test_a_trained_model_tells_hits_live_in_the_file_and_in_onnxruntime(tmp_path, trained):
    recall = script("recall")
    tables = {"spots": SPOTS, "azimuthal": {"bins": BINS}, "hits": {"rule": "model_score > 0.5"}, "veto": {"rule": "model_score <= 0.5", "mode": "shadow"}}
    by = recipe(tmp_path, **tables, model={"file": str(trained), "inputs": INPUTS})
    for strength, background in (0, 1.0), (2000, 1.0):
        extra = toml(analysis={"recipe": str(by), "workers": 2, "queue_images": 64})
        master, _, _ = recall.measured(tmp_path, 24, strength, background, extra)
        live = columns_of(master)
        assert live["is_analysed"].all() and live["model_score"].dtype == np.float64
        assert (live["is_hit"] == (strength > 0)).all(), live["model_score"]
        assert (live["is_rejected"] == (strength == 0)).all() and len(set(live["model_score"])) > 12
        expected = by_onnxruntime(trained, gathered(live))
        assert np.abs(live["model_score"] - expected).max() < 1e-5
        for workers in 1, 2, 5:
            again = of_file(tmp_path, master, by, f"{strength}-{workers}.h5", "--workers", workers)
            assert {"model_score", "profile_intensity", "is_hit"} <= set(again)
            assert all(same_bits(live[name], column) for name, column in again.items())
        lines = [json.loads(line) for line in program("analyse", master, "--recipe", by, "--json", check=0).stdout.splitlines()]
        assert [line["model_score"] for line in lines[1:-1]] == live["model_score"].tolist()
        said = lines[0]["settings"]["model"]
        assert (said["inputs"], said["file"]) == (INPUTS, str(trained))
        assert said["sha256"] == subprocess.run(["sha256sum", trained], capture_output=True, text=True).stdout.split()[0]
        replayed = json.loads(program("veto", "replay", master, "--json", check=0).stdout)
        assert (replayed["rejected"], replayed["stored"]["differ"]) == (0 if strength else 24, 0), replayed


def answer(path, *lines, options=(), check=0):
    done = program("model", path, *options, input="".join(json.dumps(line) + "\n" for line in lines), check=check)
    return [json.loads(line) for line in done.stdout.splitlines()] if check == 0 else done.stderr


@slow_lane
def test_lines_of_numbers_get_lines_of_scores(tmp_path):
    total = save(tmp_path / "sum.onnx", [("ReduceSum", ["features"], ["score"], {"keepdims": 0})])
    requests = [{"id": 7, "inputs": [1, 2.5]}, {"id": 9, "inputs": [1, 2, 3, 4]}]
    assert answer(total, *requests) == [{"id": 7, "score": 3.5}, {"id": 9, "score": 10.0}]
    flat = save(tmp_path / "flat.onnx", [("ReduceMax", ["features"], ["score"], {"keepdims": 0})], inputs=[("features", [2])])
    assert answer(flat, requests[0]) == [{"id": 7, "score": 2.5}]
    # No and yes, as classifiers have it; and one of several outputs.
    pair = save(tmp_path / "pair.onnx", [("Softmax", ["features"], ["score"], {"axis": 1})])
    assert answer(pair, {"id": 1, "inputs": [0, 0]}) == [{"id": 1, "score": 0.5}]
    two = [("ReduceSum", ["features"], ["label"], {"keepdims": 0}), ("ReduceMax", ["features"], ["score"], {"keepdims": 0})]
    several = save(tmp_path / "several.onnx", two, outputs=["label", "score"])
    assert answer(several, requests[0], options=["--output", "score"]) == [{"id": 7, "score": 2.5}]
    assert answer(several, requests[0], options=["--output", "label"]) == [{"id": 7, "score": 3.5}]
    root = save(tmp_path / "root.onnx", [("ReduceSum", ["features"], ["sum"], {"keepdims": 0}), ("Sqrt", ["sum"], ["score"], {})])
    assert answer(root, {"id": 1, "inputs": [-4]}, {"id": 2, "inputs": [4]}) == [{"id": 1, "problem": "its score is NaN"}, {"id": 2, "score": 2.0}]
    assert 'is not {"id": 1, "inputs": [numbers]}' in answer(total, ["spots"], check=3)


def analysed(folder, model, inputs=("spots",), check=3, **more):
    stack, _ = synthetic(images=3)
    if not (folder / "images.h5").exists():
        others_file(folder / "images.h5", stack.astype("uint16"))
    by = recipe(folder, spots=DIALS, model={"file": str(model), "inputs": list(inputs), **more})
    return by, program("analyse", folder / "images.h5", "--recipe", by, "--json", check=check)


def bad_models(folder):
    """Models that cannot be used, each with what is said of it."""
    (folder / "text.onnx").write_text("not a model")
    matrix = {"w": np.ones((3, 1))}
    yield folder / "text.onnx", {}, "text.onnx: "
    yield folder / "nowhere.onnx", {}, "nowhere.onnx: "
    yield save(folder / "three.onnx", [("MatMul", ["features", "w"], ["score"], {})], matrix), {}, "three.onnx: "
    both = save(folder / "both.onnx", [("Add", ["a", "b"], ["score"], {})], inputs=[("a", [1, 1]), ("b", [1, 1])])
    yield both, {}, "it has 2 inputs; it must have one, with 1 numbers"
    two = [("Neg", ["features"], ["low"], {}), ("Abs", ["features"], ["score"], {})]
    several = save(folder / "several.onnx", two, outputs=["low", "score"])
    yield several, {}, 'it has 2 outputs; say which one is the score (output = \\"NAME\\")'
    yield several, {"output": "high"}, "high"
    wide = save(folder / "wide.onnx", [("Concat", ["features"] * 3, ["score"], {"axis": 1})])
    yield wide, {}, "its output has 3 numbers; it must have one, or two of which the second is the score"
    never = save(folder / "never.onnx", [("Log", ["features"], ["score"], {})])
    yield never, {}, "its score is -inf"
    good = save(folder / "good.onnx", [("Abs", ["features"], ["score"], {})])
    yield good, {"inputs": ["spotz"]}, "there is no result 'spotz'; there are: "
    yield good, {"inputs": ["spots", "is_hit"]}, "'is_hit' follows from the model"
    yield good, {"output": "high"}, "high"


@slow_lane
def test_models_that_cannot_be_used_are_refused_in_words(tmp_path):
    for model, keys, why in bad_models(tmp_path):
        by, done = analysed(tmp_path, model, check=None, **keys)
        assert done.returncode in (2, 3) and not done.stdout.startswith('{"event":"start"')
        assert why.replace("\\", "") in (done.stdout + done.stderr).replace("\\", ""), (model, keys, done)
        with armed_service(tmp_path, by) as service:
            problem = service.refused("arm")
            assert why.replace("\\", "") in json.dumps(problem.body, ensure_ascii=False).replace("\\", ""), (model, keys, problem.body)


@slow_lane
def test_an_image_without_a_score_is_named(tmp_path):
    root = save(tmp_path / "root.onnx", [("Constant", [], ["most"], {"value_float": 5.5}), ("Sub", ["most", "features"], ["rest"], {}), ("Sqrt", ["rest"], ["score"], {})])
    _, done = analysed(tmp_path, root, check=1)
    *images, end = [json.loads(line) for line in done.stdout.splitlines()][1:]
    assert end["unscored"] == sum(image["spots"]["found"] > 5 for image in images) == sum(image["model_score"] is None for image in images) > 0
    assert all(image["model_problem"] == ("its score is NaN" if image["spots"]["found"] > 5 else None) for image in images)


@slow_lane
def test_images_of_a_stream_get_scores_and_pass_without_a_model_that_fails(tmp_path, serve):
    model = save(tmp_path / "good.onnx", [("Abs", ["features"], ["score"], {})])
    by = recipe(tmp_path, **STREAM | {"hits": {"rule": "model_score >= 3"}}, model={"file": "good.onnx", "inputs": ["spots"]})
    service = stream_service(serve, tmp_path, by, workers=2, queue_images=64)
    service.send(*Stins().series(list(frames(12))))
    columns = columns_of(service.file(1).path)
    assert columns["is_analysed"].all() and (columns["model_score"] == columns["spots"]).all()
    assert (columns["is_hit"] == (columns["spots"] >= 3)).all() and columns["is_hit"].any()
    assert service.request("GET", "images/latest", format="json")["results"]["model_score"] == columns["model_score"][-1]
    model.write_text("not a model")
    service.send(*Stins().series(list(frames(12))))
    file = service.file(2)
    assert len(file.images) == 12 and "model_score" not in columns_of(file.path)
    service.until_logged(lambda line: "images are not analysed: " in line and "good.onnx: it ended with exit status: 3" in line)


class armed_service:
    """A service with an EIGER whose images get a score by this recipe."""

    def __init__(self, folder, by, images=20):
        self.udp = free_ports(4)
        self.service = Service(write_config(folder, self.udp, run={"images": images}, analysis={"recipe": str(by), "workers": 1, "queue_images": 64}))

    def __enter__(self):
        return self.service

    def __exit__(self, *_):
        self.service.end()


def children(pid, name):
    """Processes that this one started, with this argument (`konkordia model`)."""
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True).stdout.split()
    return [int(one) for one in found if name.encode() in open(f"/proc/{one}/cmdline", "rb").read().split(b"\0")]


def replace(folder, pid):
    save(folder / "good.onnx", [("Neg", ["features"], ["score"], {})])
    os.kill(pid, signal.SIGKILL)


def late(folder, pid):
    os.kill(pid, signal.SIGSTOP)
    time.sleep(0.5)


@slow_lane
@pytest.mark.parametrize(
    "harm, why, recovers",
    [
        (lambda _, pid: os.kill(pid, signal.SIGSTOP), "100 ms", True),
        (late, "100 ms", True),
        (lambda _, pid: os.kill(pid, signal.SIGKILL), "it ended with signal: 9", True),
        (replace, "was replaced: its SHA-256 is ", False),
    ],
    ids=["hangs", "late", "crashes", "replaced"],
)
def test_a_bad_model_costs_no_image(tmp_path, harm, why, recovers):
    save(tmp_path / "good.onnx", [("Abs", ["features"], ["score"], {})])
    keys = {"file": "good.onnx", "inputs": ["spots"], "answer_timeout_ms": 100}
    by = recipe(tmp_path, spots=DIALS | {"spots_max": 50}, model=keys, veto={"rule": "model_score > 1e6", "mode": "shadow"})
    bench = armed_service(tmp_path, by)
    with bench as service:
        service.command("arm")
        [pid] = children(service.process.pid, "model")
        assert os.getpriority(os.PRIO_PROCESS, pid) == 10, "reception goes first"
        service.command("start")
        simulator = subprocess.Popen([BINARY, "simulate", "eiger", "--to", f"127.0.0.1:{bench.udp}", "--bits", "8", "--images", "20", "--rate", "4", "-q"])
        while service.statistics()["ledger"]["analysis_images_analysed"] < 1:
            time.sleep(0.02)
        harm(tmp_path, pid)
        if harm is late:
            os.kill(pid, signal.SIGCONT)
        assert simulator.wait(30) == 0
        others = children(service.process.pid, "model")
        service.wait()
        columns = columns_of(tmp_path / "run_000001_master.h5")
        assert len(columns["is_analysed"]) == 20 and columns["is_analysed"].all() and not columns["is_rejected"].any()
        scored = np.isfinite(columns["model_score"])
        assert (columns["model_score"][scored] == columns["spots"][scored]).all()
        assert scored[0] and not scored.all() and scored[-1] == recovers, columns["model_score"]
        assert service.statistics()["ledger"]["analysis_images_unscored"] == (~scored).sum()
        service.until_logged(lambda line: f"the model gave no score for {(~scored).sum()} images: " in line)
        assert any(why in line for line in service.log), service.log
    assert not any(os.path.exists(f"/proc/{one}") for one in [pid, *others]), "none is left over"


@pytest.mark.skipif("onnx" in FEATURES, reason="this program was built with ONNX")
def test_a_program_without_onnx_says_how_to_build_it(tmp_path):
    (tmp_path / "any.onnx").write_bytes(b"\x08\x09")
    how = "built without ONNX; build it with `cargo build --release -p konkordia --features onnx`"
    by, done = analysed(tmp_path, tmp_path / "any.onnx")
    assert how in done.stdout + done.stderr
    assert how in answer(tmp_path / "any.onnx", {"id": 1, "inputs": [1]}, check=3)
    with armed_service(tmp_path, by) as service:
        assert how in json.dumps(service.refused("arm").body)


def test_a_slow_lane_without_onnx_would_test_nothing():
    assert not SLOW or "onnx" in FEATURES, "build with --features onnx"
