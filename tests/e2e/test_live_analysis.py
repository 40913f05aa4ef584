"""Images that are analysed while they are measured: the same numbers as `konkordia analyse` finds in the file, for packets
and for streams, and nothing lost where analysis is too slow."""

import json
import math
import urllib.request

import cbor2
import h5py
import numpy as np
import pytest
import zmq
from driving import Bench, Master, free_ports, lyso_raw, lyso_tables, needs_lyso, program, simulate
from service import Service, write_config
from streams import Stins
from test_analyse import DIALS, others_file, recipe, synthetic, toml
from test_results import calibration

GEOMETRY = {"energy_kev": 12.4, "detector_distance_mm": 100.0, "beam_center_x_px": 500.5, "beam_center_y_px": 260.25}
REGIONS = [
    {"name": "left", "shape": "box", "corners_px": [0, 0, 200, 400]},
    {"name": "beam", "shape": "ring", "inner_radius_px": 20, "radius_px": 90},
]
ALL = {
    "spots": DIALS | {"spots_max": 300},
    "hits": {"spots_min": 3},
    "azimuthal": {"bins": 60, "splitting": "full", "variance": True},
    "region": REGIONS,
    "above": {"level": 3},
}


def of_file(folder, master, recipe, name="again.h5", *options):
    """What `konkordia analyse` finds in a file, column by column."""
    program("analyse", master, "--recipe", recipe, "--output", folder / name, "--quiet", *options, check=0, timeout=120)
    with h5py.File(folder / name) as file:
        group = file["/entry_1/result_1"]
        arrays = {key: value for key, value in group.items() if isinstance(value, h5py.Dataset)}
        return {key: group[key][()] for key in arrays if group[key].ndim and group[key].dtype.kind in "iuf" and key not in ("image", "profile_axis")}


def has_pixels(columns, path):
    """The lists of pixels above a level are the rows of the sparse matrix of a file of results."""
    with h5py.File(path) as file:
        group = file["/entry_1/result_1/pixels_above_level"]
        data, indices, starts = (group[name][()] for name in ("data", "indices", "indptr"))
    assert columns["pixels_above_stored"].tolist() == np.diff(starts).tolist() and len(data)
    for n, (start, end) in enumerate(zip(starts, starts[1:])):
        for name, expected in ("index", indices[start:end]), ("value", data[start:end]):
            stored = columns[f"pixels_above_{name}"][n]
            assert stored[: end - start].tolist() == expected.tolist() and not stored[end - start :].any()


def same_bits(live, again):
    return live.dtype == again.dtype and live.shape == again.shape and live.tobytes() == again.tobytes()


@needs_lyso
@pytest.mark.parametrize("workers", [1, 2, 5])
def test_a_jungfrau_has_the_numbers_that_its_file_gives(tmp_path, workers):
    bench, by = Bench(tmp_path), recipe(tmp_path, **ALL)
    tables = lyso_tables(images=20, stall_timeout_s=3)
    tables["detector"] |= GEOMETRY
    tables["analysis"] = {"recipe": by.name, "workers": workers, "queue_images": 64}
    tables["image_metadata"] = {"pulse_id": "bunch_id"}
    receiver = bench.receive(bench.config(**tables))
    simulate("jungfrau", "--to", bench.to, "--rate", 40, "--raw", *lyso_raw()[:5], "--images", 20, "--loss", 0.0005)
    _, report = receiver.finish()
    assert report is not None and report["balances"], receiver.errors
    master = Master(bench.master)
    again = of_file(tmp_path, bench.master, by)
    assert {"spots", "peakXPosRaw", "profile_sigma", "region_sum", "pixels_above", "max_value", "pulse_id"} <= set(again)
    for name, column in again.items():
        assert same_bits(master.columns[name], column), name
    # What the run has measured and been told is known to rules, and stands in the lines of the images.
    top = int(master.columns["max_value"].max())
    by.write_text(by.read_text().replace("spots_min = 3", f'rule = "max_value == {top} && pulse_id >= 0 && missing_pixels >= 0"'))
    lines = [json.loads(line) for line in program("analyse", bench.master, "--recipe", by, "--json", check=0).stdout.splitlines()]
    assert [line["is_hit"] for line in lines[1:-1]] == (master.columns["max_value"] == top).tolist()
    assert [line["sum_value"] for line in lines[1:-1]] == master.columns["sum_value"].tolist()
    by.write_text(toml(**ALL))
    assert master.columns["is_analysed"].all() and (master.columns["spots"] > 3).all()
    assert report["images"]["partial"] > 0, "some packets were lost"
    # The file says by what recipe, and is whole.
    with h5py.File(bench.master) as file:
        said = {name: value[()].decode() for name, value in file["/entry/konkordia/conversion"].items() if name.startswith("analysis_")}
    assert said.pop("analysis_recipe") == by.read_text()
    assert json.loads(said["analysis_regions"]) == ["left", "beam"] and json.loads(said["analysis_profile_unit"]) == "1/angstrom"
    with h5py.File(tmp_path / "again.h5") as file:
        assert json.loads(said["analysis_profile_axis"]) == file["/entry_1/result_1/profile_axis"][()].tolist()
    program("check", bench.master, check=0)


def frames(count, seed=3):
    """Images with spots on a background, of which some pixels are the highest of their type."""
    rng = np.random.default_rng(seed)
    images = rng.poisson(3, (count, 64, 80)).astype("uint32")
    for image in images:
        for row, column in rng.integers(8, 56, (6, 2)):
            image[row : row + 3, column : column + 3] += 60
    images[:, 5, 7] = 2**32 - 1
    return images


STREAM = {
    "spots": {"method": "peakfinder8", "threshold": 10.0, "spots_max": 20},
    "hits": {"spots_min": 3},
    "azimuthal": {"bins": 12},
    "region": [REGIONS[0]],
    "above": {"level": 20, "pixels_max": 50},
}
PLACE = "energy_kev = 12.4\ndetector_distance_mm = 100.0\nbeam_center_x_px = 40.5\nbeam_center_y_px = 32.5\npixel_size_um = 75.0\n"


def stream_service(serve, folder, by, detector=PLACE, **analysis):
    """A stream detector that analyses its images. The place of the detector comes from the configuration."""
    lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in {"recipe": str(by), **analysis}.items())
    return serve(extra=f"[analysis]\n{lines}", detector=detector, folder=folder)


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_a_stream_has_the_numbers_that_its_file_gives(tmp_path, serve, workers):
    by, images = recipe(tmp_path, **STREAM), frames(30)
    service = stream_service(serve, tmp_path, by, workers=workers, queue_images=64)
    # STINS does not announce the size of its images.
    service.send(*Stins().series(list(images)))
    file = service.file(1)
    with h5py.File(file.path) as master:
        columns = master["/entry/konkordia/images"]
        live = {name: columns[name][()] for name in columns}
    again = of_file(tmp_path, file.path, by)
    assert {"spots", "peakXPosRaw", "profile_intensity", "region_sum", "pixels_above", "max_value"} <= set(again)
    for name, column in again.items():
        assert same_bits(live[name], column), name
    # The highest number of the type says that nothing was measured.
    assert (live["missing_pixels"] == 1).all() and (live["valid_pixels"] == 64 * 80 - 1).all()
    measured = np.where(images == 2**32 - 1, 0, images)
    assert live["max_value"].tolist() == measured.max((1, 2)).tolist() and live["sum_value"].tolist() == measured.sum((1, 2)).tolist()
    has_pixels(live, tmp_path / "again.h5")
    assert (live["pixels_above"] > 50).any() and (live["pixels_above"] <= 50).any(), "some lists are cut"
    assert live["is_analysed"].all() and live["is_hit"].any()
    ledger = service.statistics()["ledger"]
    assert {name: ledger[f"analysis_images_{name}"] for name in ("analysed", "skipped", "failed", "hits")} == dict(
        analysed=30, skipped=0, failed=0, hits=live["is_hit"].sum()
    )
    newest = service.request("GET", "images/latest", format="json")["results"]
    assert newest["spots"] == live["spots"][-1] and newest["peakXPosRaw"] == live["peakXPosRaw"][-1][: newest["nPeaks"]].tolist()


def eiger(folder, by, images=8, **tables):
    """A service with an EIGER of one module and a consumer of each protocol."""
    kinds = ["stins", "stream2", "sls"]
    first = free_ports(len(kinds))
    ports = dict(zip(kinds, range(first, first + len(kinds)), strict=True))
    streams = "".join(
        f'\n[[stream]]\nname = "{kind}"\nprotocol = "{kind}"\naddress = "tcp://127.0.0.1:{port}"\n' for kind, port in ports.items()
    )
    udp = free_ports(4)
    tables = {"run": {"images": images}} | ({"analysis": {"recipe": str(by), "queue_images": 64}} if by else {}) | tables
    return Service(write_config(folder, udp, extra=streams, **tables)), ports, udp


def take(context, port):
    socket = context.socket(zmq.PULL)
    socket.rcvtimeo = 10_000
    socket.connect(f"tcp://127.0.0.1:{port}")
    return socket


def test_consumers_http_and_metrics_have_the_numbers_of_the_file(tmp_path):
    by = recipe(tmp_path, spots=DIALS | {"spots_max": 5}, hits={"spots_min": 1}, region=REGIONS[:1], above={"level": 10, "pixels_max": 9})
    service, ports, udp = eiger(tmp_path, by)
    context = zmq.Context()
    takers = {kind: take(context, port) for kind, port in ports.items()}
    try:
        service.consumers_connect()
        service.command("start")
        program("simulate", "eiger", "--to", f"127.0.0.1:{udp}", "--bits", 8, "--images", 8, "--rate", 20, "-q", check=0)
        service.wait()
        columns = Master(tmp_path / "run_000001_master.h5").columns
        again = of_file(tmp_path, tmp_path / "run_000001_master.h5", by)
        assert all(same_bits(columns[name], column) for name, column in again.items())
        has_pixels(columns, tmp_path / "again.h5")
        again |= {name: columns[name] for name in columns if name.startswith("pixels_above_")}
        used = {name: columns["nPeaks"] for name in again if name.startswith("peak")}
        used |= dict.fromkeys(("pixels_above_index", "pixels_above_value"), columns["pixels_above_stored"])
        takers["stins"].recv_multipart()
        takers["stream2"].recv()
        for n in range(8):
            expected = {
                name: column[n].item() if column.ndim == 1 else column[n][: used[name][n] if name in used else None].tolist()
                for name, column in again.items()
            }
            stins = json.loads(takers["stins"].recv_multipart()[0])
            stream2 = cbor2.loads(takers["stream2"].recv())["user_data"]
            added = json.loads(takers["sls"].recv_multipart()[0])["addJsonHeader"]
            for name, value in expected.items():
                wanted = None if isinstance(value, float) and math.isnan(value) else value
                of_stream2 = list(stream2[name]) if isinstance(wanted, list) else stream2[name]
                assert stins[name] == of_stream2 == json.loads(added[name]) == wanted, name
        statistics = service.statistics()
        with urllib.request.urlopen(f"{service.url}/metrics") as answer:
            metrics = answer.read().decode()
        detector = service.status()["detector"]
        assert f'konkordia_analysis_images_total{{detector="{detector}",outcome="analysed"}} 8.0\n' in metrics
        assert f'konkordia_newest_image{{detector="{detector}",result="spots"}} {float(columns["spots"][-1])}\n' in metrics
        assert statistics["totals"]["analysis_images_analysed"] == 8
    finally:
        context.destroy(linger=0)
        service.end()


def test_images_pass_when_analysis_is_too_slow_and_none_is_lost(tmp_path):
    # 64 times all pixels, and one image may wait.
    whole = {"shape": "box", "corners_px": [0, 0, 1023, 511]}
    by = recipe(tmp_path, spots=DIALS, region=[{"name": f"all {n}", **whole} for n in range(64)])
    bench = Bench(tmp_path)
    tables = {
        "detector": {"type": "jungfrau", "energy_kev": 12.4},
        "calibration": calibration(tmp_path),
        "run": {"images": 300, "stall_timeout_s": 3},
        "analysis": {"recipe": by.name, "workers": 1, "queue_images": 1},
    }
    receiver = bench.receive(bench.config(**tables))
    simulate("jungfrau", "--to", bench.to, "--rate", 150, "--images", 300)
    code, report = receiver.finish()
    assert code == 0 and report["images"]["complete"] == 300, receiver.errors
    counts = report["analysis"]
    assert counts["skipped"] > 0 and counts["analysed"] > 0 and counts["analysed"] + counts["skipped"] == 300, counts
    assert "not analysed" in report["analysis_warning"] and "workers" in report["analysis_warning"]
    columns = Master(bench.master).columns
    done = columns["is_analysed"] == 1
    assert done.sum() == counts["analysed"] and not columns["region_pixels"][~done].any() and columns["valid_pixels"].all()
    # What was analysed is right all the same.
    again = of_file(tmp_path, bench.master, by)
    assert all(same_bits(columns[name][done], column[done]) for name, column in again.items())


def test_a_recipe_that_cannot_be_followed_is_refused_at_arm(tmp_path):
    by = recipe(tmp_path, spots=DIALS)
    service, _, _ = eiger(tmp_path, by)
    try:
        for text, words in [
            ('[spots]\nmethod = "dispersoin"\n', ["spots.method"]),
            ('[spots]\nmethod = "dispersion"\nspots_max = 100000\n', ["300009 numbers", "spots_max"]),
            ('[[region]]\nname = "beam"\nshape = "circle"\nradius_px = 3\n', ["about the beam"]),
        ]:
            by.write_text(text)
            refused = service.refused("arm")
            assert all(word in json.dumps(refused.body) for word in words), refused.body
        by.unlink()
        assert by.name in json.dumps(service.refused("arm").body)
        assert not list(tmp_path.glob("run_*")), "nothing is left"
        by.write_text('[spots]\nmethod = "peakfinder8"\n[above]\nlevel = 3\n')
        # Without a geometry the rest goes on, and the user is told.
        service.command("arm")
        service.until_logged(lambda line: "peakfinder8 needs the beam centre" in line)
    finally:
        service.end()


def test_a_stream_whose_recipe_is_broken_later_goes_on_without_analysis(tmp_path, serve):
    by = recipe(tmp_path, **STREAM)
    service = stream_service(serve, tmp_path, by)
    by.write_text("[spots]\n")
    stins = Stins()
    service.send(*stins.series(list(frames(3))))
    file = service.file(1)
    with h5py.File(file.path) as master:
        assert "spots" not in master["/entry/konkordia/images"]
    service.until_logged(lambda line: "images are not analysed" in line)
    by.write_text(toml(**STREAM))
    service.send(*stins.series(list(frames(3))))
    with h5py.File(service.file(2).path) as master:
        assert master["/entry/konkordia/images/is_analysed"][()].tolist() == [1, 1, 1]


def test_words_of_the_detector_are_not_analysed(tmp_path):
    bench = Bench(tmp_path)
    config = bench.config(detector={"type": "jungfrau"}, processing={"dtype": "raw"}, analysis={"recipe": "r.toml"})
    done = program("config", "check", config, check=3)
    assert '[analysis] with dtype = "raw"' in done.stderr + done.stdout


VETO = {"rule": "is_hit == 0", "mode": "drop", "keep_one_in": 4}
HITS = {"rule": "pixels_above > 20 && spots >= 0"}


def replayed(file, *options, check=0):
    return json.loads(program("veto", "replay", file, "--json", *options, check=check).stdout)


def mixed(count=24):
    """Images of which every third has spots."""
    images = frames(count)
    background = np.random.default_rng(9).poisson(3, images.shape).astype("uint32")
    images[np.arange(count) % 3 != 0] = background[np.arange(count) % 3 != 0]
    return images


@pytest.mark.parametrize("workers", [1, 3])
def test_a_veto_drops_what_its_rule_rejects_and_replaying_it_gives_the_same(tmp_path, serve, workers):
    by = recipe(tmp_path, **STREAM | {"hits": HITS, "veto": VETO})
    service = stream_service(serve, tmp_path, by, workers=workers, queue_images=64)
    images = mixed()
    service.send(*Stins().series(list(images)))
    file = service.file(1)
    with h5py.File(file.path) as master:
        columns = master["/entry/konkordia/images"]
        live = {name: columns[name][()] for name in columns}
    assert live["is_hit"].tolist() == [int(n % 3 == 0) for n in range(24)] and (live["is_rejected"] == 1 - live["is_hit"]).all()
    # Of 16 rejected images every fourth is kept.
    rejected = np.flatnonzero(live["is_rejected"])
    dropped = np.setdiff1d(rejected, rejected[3::4])
    assert np.flatnonzero(live["status"] == 4).tolist() == dropped.tolist()
    assert (live["spots"][dropped] == 0).all() and live["is_analysed"].all() and live["profile_intensity"][dropped].any()
    file.equals([None if n in dropped else image for n, image in enumerate(images)], status=live["status"].tolist())
    assert (file.totals["complete"], file.totals["vetoed"], file.totals["written"], file.totals["expected"]) == (12, 12, 12, 24)
    ledger = service.statistics()["ledger"]
    assert (ledger["images_vetoed"], ledger["analysis_images_rejected"], ledger["analysis_images_vetoed"]) == (12, 16, 12)
    # The rule of the recipe decides from the stored results as it did.
    again = replayed(file.path)
    assert again["rule"] == VETO["rule"] and (again["analysed"], again["rejected"], again["hits"], again["hits_rejected"]) == (24, 16, 8, 0)
    assert again["stored"] == {"rejected": 16, "differ": 0, "first_different": [], "vetoed": 12}
    other = replayed(file.path, "--rule", "spots < 100")
    assert (other["rejected"], other["hits_rejected"], other["stored"]["differ"]) == (24, 8, 8)
    assert other["stored"]["first_different"] == np.flatnonzero(live["is_hit"]).tolist()
    assert "24 (100.0 %), among them 8 of 8 hits" in program("veto", "replay", file.path, "--rule", "true", check=0).stdout


def test_shadow_mode_changes_nothing_but_the_results(tmp_path, serve):
    files = []
    for name, mode in [("plain", None), ("shadow", "shadow")]:
        folder = tmp_path / name
        folder.mkdir()
        veto = {"veto": VETO | {"mode": mode}} if mode else {}
        service = stream_service(serve, folder, recipe(folder, **STREAM | {"hits": HITS} | veto), queue_images=64)
        service.send(*Stins().series(list(mixed())))
        files.append(service.file(1))
    plain, shadow = files
    shadow.equals(list(plain.images), status=plain.status)
    assert plain.totals == shadow.totals and shadow.totals["vetoed"] == 0
    with h5py.File(plain.path) as one, h5py.File(shadow.path) as other:
        one, other = one["/entry/konkordia/images"], other["/entry/konkordia/images"]
        assert set(other) - set(one) == {"is_rejected"} and other["is_rejected"][()].sum() == 16
        assert all(same_bits(one[name][()], other[name][()]) for name in one)
    assert replayed(shadow.path)["stored"] == {"rejected": 16, "differ": 0, "first_different": [], "vetoed": 0}


def test_a_veto_over_udp_closes_the_ledger_and_partial_images_stay(tmp_path):
    by = recipe(tmp_path, above={"level": 3}, veto={"rule": "max_value >= 0", "mode": "drop", "keep_one_in": 0})
    bench = Bench(tmp_path)
    tables = {
        "detector": {"type": "jungfrau", "energy_kev": 12.4},
        "calibration": calibration(tmp_path),
        "run": {"images": 30, "stall_timeout_s": 3},
        "analysis": {"recipe": by.name, "queue_images": 64},
    }
    receiver = bench.receive(bench.config(**tables))
    simulate("jungfrau", "--to", bench.to, "--rate", 50, "--images", 30, "--loss", 0.001)
    code, report = receiver.finish()
    images = report["images"]
    assert report["balances"] and images["partial"] > 0 and code == 1, receiver.errors
    assert (images["vetoed"], images["complete"], images["written"]) == (30 - images["partial"], 0, images["partial"])
    master = Master(bench.master)
    assert set(master.columns["status"].tolist()) == {2, 4} and master.columns["is_rejected"].all()
    assert (master.images[master.columns["status"] == 4] == -32766).all() and master.columns["valid_pixels"].all()
    program("check", bench.master, check=0)
    assert replayed(bench.master)["stored"]["differ"] == 0
    # Everything came, and everything was dropped: that is what was asked.
    receiver = bench.receive(bench.config(**tables | {"output": {"prefix": "all"}}))
    simulate("jungfrau", "--to", bench.to, "--rate", 50, "--images", 30)
    code, report = receiver.finish()
    assert code == 0 and report["images"]["vetoed"] == 30 and report["images"]["written"] == 0, receiver.errors
    text = program("inspect", tmp_path / "all_master.h5", check=0).stdout
    assert "30 vetoed" in text, text


def test_rules_of_files_and_what_is_wrong_in_them(tmp_path):
    stack, _ = synthetic()
    file = others_file(tmp_path / "a.h5", stack.astype("uint16"))
    tables = {"spots": DIALS, "hits": {"rule": "spots >= 6"}, "veto": {"rule": "is_hit == 1"}}
    by = recipe(tmp_path, **tables)
    done = program("analyse", file, "--recipe", by, "--json", "--output", tmp_path / "r.h5", check=0)
    start, *images, end = [json.loads(line) for line in done.stdout.splitlines()]
    assert start["settings"]["hit_rule"] == "spots >= 6" and (end["hits"], end["rejected"]) == (5, 5)
    assert all(image["is_hit"] and image["is_rejected"] and image["spots"]["is_hit"] for image in images)
    again = replayed(tmp_path / "r.h5")
    assert (again["rule"], again["rejected"], again["stored"]["differ"]) == ("is_hit == 1", 5, 0)
    assert replayed(tmp_path / "r.h5", "--rule", "max(peakTotalIntensity) > 1e9")["rejected"] == 0
    for rule, words in [("spotz > 5", "there is no result 'spotz'"), ("spots", "it is a number"), ("spots >", "column"), ("max_values > 1", "max_value")]:
        assert words in program("veto", "replay", tmp_path / "r.h5", "--rule", rule, check=2).stderr, rule
        by.write_text(toml(**tables | {"veto": {"rule": rule}}))
        refused = program("analyse", file, "--recipe", by, check=3).stderr
        assert words in refused and "[veto] rule" in refused, refused
    without = recipe(tmp_path, spots=DIALS)
    program("analyse", file, "--recipe", without, "--output", tmp_path / "w.h5", "--quiet", check=0)
    assert "made without a veto" in program("veto", "replay", tmp_path / "w.h5", check=2).stderr
    assert "no results of analysis" in program("veto", "replay", file, "--rule", "true", check=3).stderr
