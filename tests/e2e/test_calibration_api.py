"""The calibration of the next run over HTTP: its numbers, its maps, and the difference to the one before."""

import io
import urllib.request

import h5py
import numpy as np
import pytest
from calibrations import COLUMNS, MASKED, ROWS, ago, expected, two_modules, write
from driving import program
from service import Problem, Service
from streams import StreamService
from test_calibration import dark_file, staged, truth
from test_live import decoded, largest


@pytest.fixture
def serve(bench):
    """Starts services for the detector with two modules."""
    services = []

    def start(**tables):
        services.append(Service(bench.config(**two_modules(**tables))))
        return services[-1]

    yield start
    for service in services:
        assert service.end()[0] == 0


def fetched(service, **query):
    text = "&".join(f"{name}={value}" for name, value in query.items())
    with urllib.request.urlopen(f"{service.url}/api/v1/calibration/map?{text}", timeout=60) as answer:
        return answer.read()


def numbers(service, **query):
    return np.load(io.BytesIO(fetched(service, format="npy", **query)))


def report_of(service):
    """What is said of the calibration of the next run; there must be one."""
    found = service.request("GET", "calibration")
    assert found["detector"] == service.ready["detectors"][0] and found["none"] is None
    return found["calibration"]


def none_of(service):
    """Why there is none, and what to do."""
    found = service.request("GET", "calibration")
    assert found["calibration"] is None
    return found["none"]["detail"] + found["none"]["hint"]


def refused(service, path="calibration", **query):
    with pytest.raises(Problem) as raised:
        service.request("GET", path, **query)
    return raised.value.status, raised.value.code, raised.value.body["detail"] + str(raised.value.body.get("hint"))


def test_maps_are_what_numpy_makes_of_the_file(bench, serve):
    path = write(bench.folder, 1, ago(minutes=42))
    service = serve()
    for quantity, stages in {"pedestal": (0, 1, 2), "noise": (0,), "gain": (0, 1, 2), "mask": (0, 1, 2)}.items():
        for stage in stages:
            found, wanted = numbers(service, quantity=quantity, stage=stage), expected(path, quantity, stage)
            assert (found.shape, found.dtype) == ((ROWS, COLUMNS), "uint32" if quantity == "mask" else "float32")
            assert np.array_equal(found, wanted, equal_nan=quantity != "mask"), (quantity, stage)
    masks = {stage: expected(path, "mask", stage) for stage in (0, 1)}
    # Dead is bit 1, noisy bit 3, no gain bit 6.
    assert set(np.unique(masks[0])) == {0, 2, 8, MASKED} and set(np.unique(masks[1])) == {0, 64, MASKED}
    whole = expected(path, "pedestal", 0)
    part = numbers(service, quantity="pedestal", region="1000,500,100,40")
    assert np.array_equal(part, whole[500:540, 1000:], equal_nan=True)
    # A frame has each pixel, or the largest of a square.
    header, values = decoded(fetched(service, quantity="pedestal", format="frame", region="1000,500,20,16"))
    assert (header["bin"], header["region"], header["format"]) == (1, [1000, 500, 20, 16], "float32")
    assert np.array_equal(values, whole[500:516, 1000:1020], equal_nan=True)
    header, values = decoded(fetched(service, quantity="pedestal", format="frame", pixels_max=70_000))
    assert header["bin"] == 4 and header["run"] is None and header["range"][0] < np.nanmedian(whole) < header["range"][1]
    means = np.nanmean(whole[:512, :1024].reshape(128, 4, 256, 4), (1, 3))
    assert np.allclose(values[:128, :256], means, rtol=1e-6)
    header, values = decoded(fetched(service, quantity="mask", format="frame", pixels_max=70_000))
    assert header["bin"] == 4 and (header["rows"], header["columns"]) == (ROWS, COLUMNS)
    assert header["label"] == "mask of G0, cell 3" and header["detector"] == "detector"
    assert fetched(service, quantity="noise", format="png").startswith(b"\x89PNG")
    assert fetched(service, quantity="mask", format="png", region="0,0,300,300").startswith(b"\x89PNG")


def test_a_report_has_each_module_and_stage(bench, serve):
    path = write(bench.folder, 2, ago(minutes=42))
    service = serve(alarms={"pedestal_age_hours": 1.0})
    report = report_of(service)
    assert (report["kind"], report["files"], report["modules"]) == ("konkordia", [str(path)], 2)
    assert (report["cells"], report["stages"], report["previous"]) == ([3], ["g0", "g1", "g2"], None)
    assert 42 * 60 <= report["age_s"] < 43 * 60 and report["recommended_age_s"] == 3600 and report["max_age_s"] is None
    assert report["refused"] is None and {"bit": 3, "name": "noisy"} in report["reasons"]
    with h5py.File(path) as file:
        assert report["hash"] == file.attrs["hash"].decode()
        group = file["cell_03/g0"]
        mean, rms, mask = (group[name][512:] for name in ("mean", "rms", "mask"))
        gain = file["gain/g0"][512:]
    assert len(report["rows"]) == 6
    row = next(row for row in report["rows"] if (row["module"], row["stage"]) == (1, "g0"))
    good = mask == 0
    assert abs(row["median_pedestal_adu"] - np.median(mean[good])) < 0.01
    assert abs(row["median_rms_adu"] - np.median(rms[good])) < 0.001 and abs(row["median_gain_adu_per_kev"] - np.median(gain)) < 0.001
    assert row["masked"] == {"dead": int((mask & 2 > 0).sum()), "noisy": int((mask & 8 > 0).sum())}
    assert row["masked_pixels"] == int((mask > 0).sum()) and row["good"] and row["since_previous"] is None
    assert next(row for row in report["rows"] if row["stage"] == "g1")["median_rms_adu"] is None
    configuration = service.request("GET", "configuration")["calibration"]
    assert (configuration["kind"], configuration["file"], configuration["high_gain"]) == ("konkordia", [str(path)], False)


def test_the_difference_is_to_the_file_before(bench, serve):
    path, previous = bench.folder / "cal.h5", bench.folder / "cal.previous.h5"
    service = serve(calibration={"kind": "konkordia", "file": "cal.h5", "max_age_hours": 12})
    for seed, hours in ((3, 30), (4, 20)):
        write(bench.folder, seed, ago(hours=hours))
    before = path.read_bytes()
    assert "was taken 20.0 hours ago" in report_of(service)["refused"]["detail"]
    write(bench.folder, 5, ago(minutes=1), shift=7.0)
    assert previous.read_bytes() == before
    assert sorted(file.name for file in bench.folder.glob("*cal*")) == ["cal.h5", "cal.previous.h5"]
    report = report_of(service)
    assert report["previous"]["file"] == str(previous) and abs(report["previous"]["age_s"] - 72_000) < 300
    assert report["age_s"] < 300 and report["refused"] is None and report["max_age_s"] == 43_200
    now, then = (expected(file, "pedestal", 0) for file in (path, previous))
    assert np.array_equal(numbers(service, quantity="pedestal", minus_previous="true"), now - then, equal_nan=True)
    masks = [expected(file, "mask", 0) for file in (path, previous)]
    changed = numbers(service, quantity="mask", minus_previous="true")
    inside = masks[0] != MASKED
    assert np.array_equal((changed == 2) & inside, (masks[0] > 0) & (masks[1] == 0))
    assert np.array_equal((changed == 1) & inside, (masks[0] == 0) & (masks[1] > 0))
    change = next(row for row in report["rows"] if row["module"] == 0)["since_previous"]
    shift = (now - then)[:512, :1024]
    assert abs(change["median_shift_adu"] - np.nanmedian(shift)) < 0.01
    assert (change["newly_masked"], change["no_longer_masked"]) == tuple(int((changed[:512, :1024] == n).sum()) for n in (2, 1))
    # A previous file that cannot be read is said, and the rest is shown.
    previous.write_bytes(b"nothing")
    report = report_of(service)
    assert "damaged" in report["previous"]["problem"]["detail"] and report["rows"][0]["since_previous"] is None
    assert refused(service, "calibration/map", quantity="noise", minus_previous="true")[:2] == (422, "bad_file")


def test_what_is_not_there_is_said(bench, serve):
    service = serve()
    words = none_of(service)
    assert "cal.h5 does not exist" in words and "take pedestals" in words
    assert refused(service, "calibration/map")[:2] == (404, "no_calibration")
    path = write(bench.folder, 6, ago(hours=1))
    good = path.read_bytes()
    service.request("GET", "calibration")
    for query, words in (
        ({"quantity": "noise", "stage": 1}, "has no noise of G1"),
        ({"quantity": "pedestal", "cell": 5}, "no pedestals of G0 of storage cell 5"),
        ({"quantity": "pedestal", "minus_previous": "true"}, "there is no previous calibration"),
    ):
        found = refused(service, "calibration/map", **query)
        assert found[:2] == (404, "no_calibration") and words in found[2], found
    for query in ({"stage": 3}, {"region": "1,2,3"}, {"region": "0,0,0,4"}, {"region": "5000,0,1,1"}, {"pixels_max": 1}, {"quantity": "x"}):
        assert refused(service, "calibration/map", **query)[:2] == (400, "bad_query"), query
    # A file that was damaged, cut or replaced by something else; then the good one again.
    at = good.index(np.float32(0).tobytes(), len(good) // 2)
    for bad in (good[:at] + b"\x08" + good[at + 1 :], good[: len(good) // 2], b"", b"this is no HDF5 file", bytes(4096)):
        path.write_bytes(bad)
        assert refused(service)[:2] == (422, "bad_file"), len(bad)
        assert refused(service, "calibration/map")[:2] == (422, "bad_file")
    path.write_bytes(good)
    assert report_of(service)["rows"]
    with h5py.File(path, "w") as file:
        file["x"] = 1
    assert refused(service)[1] == "bad_file"


def test_detectors_without_calibration_say_so(bench, tmp_path):
    config = bench.config(**two_modules(calibration={"kind": "none"}, processing={"dtype": "raw"}))
    service = Service(config)
    try:
        words = none_of(service)
        assert "names no calibration" in words and "[calibration] kind" in words
        assert service.request("GET", "configuration")["calibration"] is None
    finally:
        assert service.end()[0] == 0


def test_streams_have_no_calibration(tmp_path):
    service = StreamService(tmp_path)
    try:
        assert "sends whole images" in none_of(service)
        status, code, words = refused(service, "calibration/map")
        assert (status, code) == (404, "no_calibration") and "sends whole images" in words
    finally:
        service.close()


def test_new_pedestals_keep_those_before_and_show_their_progress(bench):
    folder, _, _ = truth(bench)
    program("pedestal", dark_file(bench)[0], "-o", "cal.h5", "--gain", folder / "gain_adu_per_kev.f32", check=0, cwd=bench.folder)
    path, previous = bench.folder / "cal.h5", bench.folder / "cal.previous.h5"
    before = path.read_bytes()
    service = Service(staged(bench, images=60, rate=60))
    try:
        assert not previous.exists() and "dark_frames" not in service.status()
        service.command("pedestal", {"frames": 60})
        seen = service.until(lambda status: status.get("dark_frames", [{}, {"frames": 0}])[1]["frames"] > 0)["dark_frames"]
        assert [(one["stage"], one["expected"]) for one in seen] == [("g0", 60), ("g1", 60), ("g2", 60)]
        assert seen[0]["frames"] == 60 and seen[2]["frames"] == 0
        assert service.wait(60)["ended"] == "complete" and "dark_frames" not in service.status()
        assert previous.read_bytes() == before
        report = report_of(service)
        assert report["age_s"] < 120 and report["previous"]["file"] == str(previous)
    finally:
        assert service.end()[0] == 0


def test_largest_of_squares(bench, serve):
    """A single masked pixel is seen however small the map is."""
    path = write(bench.folder, 8, ago(hours=1))
    header, values = decoded(fetched(serve(), quantity="mask", format="frame", pixels_max=4096))
    mask = expected(path, "mask", 0)
    side = header["bin"]
    wanted = largest(np.where(mask == MASKED, np.nan, mask.astype(float)), side)
    assert side > 8 and np.array_equal(values, wanted, equal_nan=True)
