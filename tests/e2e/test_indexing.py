"""The hand-over of spots to an indexing program, live: what it answers is in the file, in rules, over HTTP and in the hit
rate; whatever it does, no image is lost or held up for long."""

import json
import sys
import time

import numpy as np
import pytest
from driving import Bench, simulate
from streams import Stins
from test_analyse import recipe
from test_image_metadata import columns_of
from test_live_analysis import PLACE, STREAM, frames
from test_results import calibration

# No indexer: it answers with what it was told, so that the test can compute it again.
ECHO = """
import json, sys
for line in sys.stdin:
    request = json.loads(line)
    spots = request["spots"]
    x, y, intensity, *vector = spots[0]
    a = 1 / sum(number**2 for number in vector) ** 0.5
    answer = {"id": request["id"], "is_indexed": len(spots) % 2 == 1, "cell": [a, x + 1, y + 1, 90, 100, 110]}
    print(json.dumps(answer | {"orientation_matrix": vector + [request["wavelength_angstrom"], len(spots), intensity] + [0] * 3}), flush=True)
"""


def indexed(serve, folder, program, images, hits=None, **keys):
    """Sends images to a service whose analysis hands their spots to this Python program. Returns the service and the
    columns of the file."""
    script = folder / "indexer.py"
    script.write_text(program)
    by = recipe(folder, **STREAM | {"hits": hits or STREAM["hits"]})
    table = {"program": [sys.executable, str(script)], "spots_min": 3, **keys}
    lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in table.items())
    extra = f'[analysis]\nrecipe = "{by}"\nworkers = 2\nqueue_images = 64\n[indexing]\n{lines}'
    service = serve(extra=extra, detector=PLACE, folder=folder)
    service.send(*Stins().series(list(images)))
    return service, columns_of(service.taken(1)["file"])


def test_answers_are_in_the_file_in_rules_over_http_and_in_the_hit_rate(tmp_path, serve):
    service, columns = indexed(serve, tmp_path, ECHO, frames(30), hits={"rule": "is_indexed == 1"}, answer_timeout_ms=5000)
    asked = columns["nPeaks"] >= 3
    assert asked.any() and not asked.all()
    assert columns["indexing_outcome"].tolist() == asked.astype(int).tolist()
    is_indexed = asked & (columns["nPeaks"] % 2 == 1)
    assert is_indexed.any() and (asked & ~is_indexed).any()
    assert columns["is_indexed"].tolist() == columns["is_hit"].tolist() == is_indexed.astype(int).tolist()
    for n in np.flatnonzero(is_indexed):
        x, y = columns["peakXPosRaw"][n][0], columns["peakYPosRaw"][n][0]
        # Geometry of PLACE: x of the laboratory is to the left and y up, the image is upright.
        place = np.array([-(x + 0.5 - 40.5) * 0.075, -(y + 0.5 - 32.5) * 0.075, 100.0])
        wavelength = 12.398419843320026 / 12.4
        vector = (place / np.linalg.norm(place) - [0, 0, 1]) / wavelength
        matrix = columns["orientation_matrix"][n]
        assert np.allclose(matrix[:3], vector, rtol=1e-9, atol=1e-12) and np.isclose(matrix[3], wavelength)
        assert (matrix[4], matrix[5]) == (columns["nPeaks"][n], columns["peakTotalIntensity"][n][0])
        assert np.allclose(columns["cell_length_angstrom"][n], [1 / np.linalg.norm(vector), x + 1, y + 1])
        assert columns["cell_angle_deg"][n].tolist() == [90, 100, 110]
    assert np.isnan(columns["cell_length_angstrom"][~is_indexed]).all()
    rate = service.request("GET", "hit_rate")
    assert (sum(rate["analysed"]), sum(rate["indexed"])) == (30, is_indexed.sum())
    ledger = service.statistics()["ledger"]
    assert (ledger["analysis_images_indexed"], ledger["analysis_images_unanswered"]) == (is_indexed.sum(), 0)
    newest = service.request("GET", "images/latest", format="json")["results"]
    assert newest["is_indexed"] == columns["is_indexed"][-1]


CRASH = ECHO.replace("spots = request", "assert request['id'] > 2, 'out of memory'\n    spots = request")
LATE = ECHO.replace("import json, sys", "import json, sys, time").replace("spots = request", "time.sleep(0.4)\n    spots = request")


@pytest.mark.parametrize(
    "program, why, answer_timeout_ms",
    [
        ("import time\ntime.sleep(600)\n", "100 ms", 100),
        ("import sys\nsys.exit('no licence for this host')\n", "no licence for this host", 5000),
        (CRASH, "out of memory", 5000),
        (LATE, "100 ms", 100),
        (ECHO.replace("print(json.dumps(", "print('crystal 1 found')#"), 'it answered "crystal 1 found"', 5000),
        ("print('x' * 10_000_000)\n", "it wrote a line of more than 64 KiB", 5000),
        (ECHO.replace("[a, x + 1", "[-a, x + 1"), "edges must be above 0", 5000),
    ],
    ids=["hangs", "ends", "crashes", "late", "nonsense", "endless", "impossible"],
)
def test_a_bad_program_costs_no_image_and_is_named(tmp_path, serve, program, why, answer_timeout_ms):
    began = time.monotonic()
    service, columns = indexed(serve, tmp_path, program, frames(12), answer_timeout_ms=answer_timeout_ms)
    assert time.monotonic() - began < 30
    asked = columns["nPeaks"] >= 3
    assert columns["is_analysed"].all() and len(columns["is_analysed"]) == 12
    unanswered = columns["indexing_outcome"] == 2
    assert unanswered.any() and not columns["is_indexed"][unanswered].any()
    assert ((columns["indexing_outcome"] > 0) == asked).all()
    count = service.statistics()["ledger"]["analysis_images_unanswered"]
    assert count == unanswered.sum()
    said = f"the indexing program gave no answer for {count} images: "
    service.until_logged(lambda line: "WARN" in line and said in line)
    assert any(why in line for line in service.log), service.log


def test_a_program_that_is_not_there_is_said_at_once(tmp_path, serve):
    by = recipe(tmp_path, **STREAM)
    service = serve(
        extra=f'[analysis]\nrecipe = "{by}"\n[indexing]\nprogram = "/no/such/indexer"\n', detector=PLACE, folder=tmp_path
    )
    service.send(*Stins().series(list(frames(6))))
    service.until_logged(lambda line: "the indexing program /no/such/indexer: it cannot be started: " in line)
    assert columns_of(service.taken(1)["file"])["is_analysed"].all()


def test_a_program_that_is_not_there_is_a_note_of_a_run(tmp_path):
    bench = Bench(tmp_path)
    by = recipe(tmp_path, spots={"method": "dispersion"})
    tables = {
        "detector": {"type": "jungfrau", "energy_kev": 12.4},
        "calibration": calibration(tmp_path),
        "run": {"images": 5, "stall_timeout_s": 5},
        "analysis": {"recipe": by.name, "queue_images": 64},
        "indexing": {"program": "/no/such/indexer", "spots_min": 1},
    }
    receiver = bench.receive(bench.config(**tables))
    simulate("jungfrau", "--to", bench.to, "--rate", 20, "--images", 5)
    code, report = receiver.finish()
    assert code == 0 and report["analysis"]["analysed"] == 5, receiver.errors
    said = "the indexing program /no/such/indexer: it cannot be started: "
    assert said in json.dumps(receiver.events) + "".join(receiver.errors), "it is said when the run is armed"
    columns = columns_of(bench.master)
    asked = columns["indexing_outcome"] == 2
    assert asked.any() and report["analysis"]["unanswered"] == asked.sum() and "cannot be started" in report["analysis_warning"]


@pytest.mark.parametrize(
    "tables, why",
    [
        ('[indexing]\nprogram = "x"\n', "[indexing] without [analysis]"),
        ('[analysis]\nrecipe = "recipe.toml"\n[indexing]\nspots_min = 3\n', "[indexing] has no program"),
        ('[analysis]\nrecipe = "recipe.toml"\n[indexing]\nprogram = "x"\nanswer_timeout_ms = 6000\n', "answer_timeout_ms"),
    ],
)
def test_wrong_settings_are_named(tmp_path, serve, tables, why):
    recipe(tmp_path, **STREAM)
    with pytest.raises(AssertionError, match="ended with 3") as ended:
        serve(extra=tables, folder=tmp_path)
    assert why in str(ended.value)


def test_a_recipe_without_spots_has_nothing_to_hand_over(tmp_path, serve):
    by = recipe(tmp_path, region=STREAM["region"])
    service = serve(extra=f'[analysis]\nrecipe = "{by}"\n[indexing]\nprogram = "cat"\n', detector=PLACE, folder=tmp_path)
    service.send(*Stins().series(list(frames(3))))
    service.until_logged(lambda line: "images are not analysed" in line and "[indexing] needs spots" in line)
    assert "is_analysed" not in columns_of(service.taken(1)["file"])
