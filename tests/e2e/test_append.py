"""Runs that are appended to the file of the run before (`append`), as a step scan needs them."""

import h5py
import hdf5plugin  # noqa: F401  registers the filters
import numpy as np
import pytest
from driving import program
from service import served_bench, until

bench = pytest.fixture(served_bench)


def pixels(bench, prefix):
    with h5py.File(bench.master(prefix)) as file:
        data = file["/entry/data"]
        return data[data.attrs["signal"]][()]


def part(service, bench, images, body, send=None, **options):
    """Arms, sends and waits for one run; returns its last status."""
    armed = service.command("arm", {"images": images, "append": True, **body})
    assert armed["state"] == "armed"
    bench.send(images if send is None else send, **options)
    return service.wait()


def test_three_runs_are_one_file_whose_images_count_on(bench):
    service = bench.serve()
    service.command("start", {"images": 5, "prefix": "alone"})
    bench.send(5)
    service.wait()
    metadata = {"energy_kev": 12.4, "sample_name": "lysozyme"}
    seen = []
    for images in (2, 1, 5):
        # The detector begins with the same frame number again each time.
        status = part(service, bench, images, {"prefix": "scan", "metadata": metadata})
        assert (status["severity"], status["images_written"], status["images_lost"]) == ("success", images, 0)
        assert status["file"] == status["open_file"]["file"] == str(bench.master("scan"))
        seen.append((status["open_file"]["runs"], status["open_file"]["images"]))
    assert seen == [(1, 2), (2, 3), (3, 8)]
    entries = [entry for entry in service.request("GET", "files")["files"] if entry["master"] == str(bench.master("scan"))]
    assert [(entry["state"], entry["run"]) for entry in entries] == [("writing", 2)]
    closed = service.command("close")
    assert "open_file" not in closed and closed["state"] == "idle"
    assert "open_file" not in service.command("close"), "closing nothing is no mistake"
    entries = [entry for entry in service.request("GET", "files")["files"] if entry["master"] == str(bench.master("scan"))]
    assert [(entry["state"], entry["images"], entry["images_expected"], entry["run"]) for entry in entries] == [("complete", 8, 8, 2)]
    alone = pixels(bench, "alone")
    assert np.array_equal(pixels(bench, "scan"), np.concatenate([alone[:2], alone[:1], alone]))
    with h5py.File(bench.master("scan")) as file:
        ledger = file["/entry/konkordia/ledger"]
        assert ledger["totals/images_expected"][()] == 8 and ledger["totals/runs"][()] == 3
        assert ledger["ended"].asstr()[()] == "finished"
        assert file["/entry/sample/name"].asstr()[()] == "lysozyme"
        assert "latency" not in file["/entry/konkordia"], "the latencies of the last run are not those of the file"
    assert len(list(bench.folder.glob("scan_data_*"))) == 1, "one data file, not one for each run"
    bench.check("scan")


def test_lost_images_stop_and_cancel_keep_their_places(bench):
    service = bench.serve(run={"stall_timeout_s": 1})
    part(service, bench, 3, {"prefix": "scan"})
    # The sender ends early: the planned images that never came have no place.
    short = part(service, bench, 5, {"prefix": "scan"}, send=2)
    assert (short["ended"], short["severity"], short["open_file"]["images"]) == ("stalled", "warning", 5)
    # A stop keeps what came, and the file open.
    service.command("start", {"images": 0, "append": True})
    bench.send(4)
    service.until(lambda status: status["images_written"] == 4)
    service.command("stop")
    assert service.wait()["open_file"]["images"] == 9
    # A run without any image adds nothing.
    service.command("arm", {"images": 4, "append": True})
    service.command("stop")
    assert service.wait()["open_file"] == {"file": str(bench.master("scan")), "runs": 4, "images": 9}
    # A cancel in the run closes the file with it.
    service.command("start", {"images": 0, "append": True})
    bench.send(2)
    service.until(lambda status: status["images_written"] == 2)
    cancelled = service.command("cancel")
    assert "open_file" not in cancelled
    entry = service.request("GET", "files")["files"][-1]
    assert (entry["state"], entry["images"]) == ("incomplete", 11)
    assert entry["ended"] == "finished, stalled, stopped, cancelled"
    assert len(pixels(bench, "scan")) == 11
    with h5py.File(bench.master("scan")) as file:
        assert file["/entry/konkordia/ledger/totals/images_expected"][()] == 11
    assert "3 not received, 4 not taken" in bench.check("scan").stdout


def test_a_cancel_while_nothing_runs_closes_the_file(bench):
    service = bench.serve()
    part(service, bench, 3, {"prefix": "scan"})
    assert "open_file" not in service.command("cancel")
    bench.check("scan")


def test_a_first_run_that_is_cancelled_without_an_image_leaves_no_file(bench):
    service = bench.serve()
    service.command("arm", {"prefix": "scan", "append": True})
    assert "open_file" not in service.command("cancel")
    assert list(bench.folder.glob("scan*")) == []
    assert part(service, bench, 1, {"prefix": "scan"})["open_file"]["runs"] == 1


def test_a_run_of_its_own_closes_the_open_file_and_the_end_of_the_service_too(bench):
    service = bench.serve()
    part(service, bench, 3, {"prefix": "scan"})
    service.command("start", {"images": 2, "prefix": "other"})
    bench.send(2)
    status = service.wait()
    assert status["file"] == str(bench.master("other"))
    until(lambda: "open_file" not in service.status(), "the file of the scan is closed")
    bench.check("scan")
    part(service, bench, 2, {"prefix": "again"})
    code, log = service.end()
    assert code == 0 and str(bench.master("again")) in log
    bench.check("again")


def test_a_killed_service_leaves_a_file_that_can_be_repaired(bench):
    service = bench.serve()
    for _ in range(3):
        part(service, bench, 2, {"prefix": "scan"})
    service.process.kill()
    service.process.wait()
    program("repair", bench.master("scan"), check=0)
    assert len(pixels(bench, "scan")) == 6


def test_what_does_not_belong_to_the_file_is_refused(bench):
    service = bench.serve()
    assert "no file is written" in service.refused("arm", {"append": True, "write": False}).body["detail"]
    part(service, bench, 2, {"prefix": "scan", "metadata": {"energy_kev": 12.4}})
    other = service.refused("arm", {"append": True, "prefix": "other"})
    assert (other.code, other.status) == ("bad_request", 422)
    assert "is open" in other.body["detail"] and "konkordia close" in other.body["hint"]
    assert "metadata" in service.refused("arm", {"append": True, "metadata": {"energy_kev": 9}}).body["detail"]
    # Somebody has drawn a mask since.
    circle = {"form": "circle", "x_px": 20, "y_px": 20, "radius_px": 9}
    service.request("PUT", "shapes", {"mask": [circle], "regions": []})
    masked = service.refused("arm", {"append": True})
    assert masked.code == "arm_failed" and "the mask has changed" in masked.body["detail"]
    service.request("PUT", "shapes", {"mask": [], "regions": []})
    service.command("arm", {"images": 2, "append": True})
    running = service.refused("close")
    assert running.code == "wrong_state" and "a run is in progress" in running.body["detail"]
    bench.send(2)
    assert service.wait()["open_file"]["images"] == 4, "what was refused has changed nothing"
    service.command("close")
    bench.check("scan")
    taken = service.refused("arm", {"append": True, "prefix": "scan"})
    assert taken.code == "arm_failed", "a closed file is not continued"


def test_a_dry_run_knows_the_open_file(bench):
    service = bench.serve()
    part(service, bench, 2, {"prefix": "scan"})
    asked = service.command("arm", {"append": True, "prefix": "scan"}, dry_run="true")
    assert asked["ok"] and asked["needs"]["file"] == str(bench.master("scan"))
    assert not service.command("arm", {"prefix": "scan"}, dry_run="true")["ok"]


def test_runs_with_raw_frames_cannot_be_appended(bench):
    service = bench.serve(output={"keep_raw": True})
    refused = service.refused("arm", {"append": True})
    assert refused.code == "bad_request" and "raw frames" in refused.body["detail"]


def test_the_command_line_appends_and_closes(bench):
    service = bench.serve()
    target = ["--url", service.url]
    for _ in range(2):
        program("arm", "--prefix", "scan", "--images", 2, "--append", *target, check=0)
        bench.send(2)
        program("wait", *target, check=0)
    assert "idle" in program("close", *target, check=0).stderr
    bench.check("scan")
