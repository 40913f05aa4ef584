"""Images and contents of finished files over HTTP: h5py reads the same files. Nobody gets at other files, and a hostile
file ends no service."""

import io
import json
import os
import shutil
import threading
import time
import urllib.parse
import urllib.request

import cbor2
import h5py
import hdf5plugin  # noqa: F401  registers the filters
import numpy as np
import pytest
from driving import program
from others_files import dectris_legacy, with_an_endless_heap, with_an_endless_index
from PIL import Image
from service import Problem, served_bench, until
from streams import Stins, pictures
from test_analyse import recipe
from test_live import Client
from test_live_analysis import STREAM, frames, stream_service


bench = pytest.fixture(served_bench)


def get(service, path, **query):
    url = f"{service.url}/api/v1/{path}?{urllib.parse.urlencode(query)}"
    with urllib.request.urlopen(url, timeout=60) as answer:
        return answer.read(), answer.headers


def pixels(service, file, number, **query):
    return np.load(io.BytesIO(get(service, f"images/{number}", file=file, format="npy", **query)[0]))


def refused(service, file, path="images/0", **query):
    with pytest.raises(Problem) as found:
        service.request("GET", path, file=urllib.parse.quote(str(file)), **query)
    return found.value


def info(service, file, **query):
    return service.request("GET", "file", file=urllib.parse.quote(str(file)), timeout=120, **query)


def stack(path):
    with h5py.File(path) as file:
        data = file["/entry/data"]
        return data[data.attrs["signal"]][()] if "signal" in data.attrs else data["data"][()]


def run(bench, images=12, loss=None, **tables):
    """A finished run of a simulated EIGER."""
    service = bench.serve(run={"images": images}, **tables)
    service.command("start")
    bench.send(images, rate=100, **({"loss": loss, "seed": 3} if loss else {}))
    service.wait()
    return service, service.status()["file"]


@pytest.mark.parametrize(
    "output",
    [
        {"compression": "bslz4", "images_per_file": 5},
        {"compression": "zstd", "images_per_file": 5, "layout": "links"},
        {"compression": "none", "layout": "virtual"},
        {"compression": "bszstd"},
        {"compression": "lz4"},
        {"compression": "gzip"},
    ],
    ids=lambda output: output["compression"],
)
def test_images_of_a_run_equal_those_in_the_file(bench, output):
    service, master = run(bench, output=dict(output))
    expected = []
    for n in range(1, 4):
        part = bench.folder / f"run_000001_data_{n:06d}.h5"
        if part.exists():
            with h5py.File(part) as file:
                expected.extend(file["/entry/data/data"][()])
    assert len(expected) == 12
    for number, image in enumerate(expected):
        found = pixels(service, master, number)
        assert found.dtype == image.dtype and np.array_equal(found, image), number
    body, headers = get(service, "images/latest", file=master, format="npy")
    assert headers["X-Konkordia-Image"] == "11" and headers["X-Konkordia-Run"] is None
    assert np.array_equal(np.load(io.BytesIO(body)), expected[11])
    assert np.array_equal(np.array(Image.open(io.BytesIO(get(service, "images/3", file=master, format="tiff")[0]))), expected[3])
    assert max(Image.open(io.BytesIO(get(service, "images/3", file=master, max_size=100)[0])).size) <= 100
    facts = json.loads(get(service, "images/3", file=master, format="json")[0])
    assert (facts["image"], facts["status"], facts["file"], facts["run"]) == (3, "complete", master, None)
    assert cbor2.loads(get(service, "images/3", file=master, format="cbor")[0])["image_id"] == 3
    raw, headers = get(service, "images/3", file=master, format="raw")
    assert (headers["X-Konkordia-Compression"], len(raw) > 0) == (output["compression"], True)
    problem = refused(service, master, "images/12")
    assert (problem.status, problem.code) == (404, "no_image") and "0 to 11" in problem.body["detail"]
    # Also by the path from the output folder.
    assert np.array_equal(pixels(service, os.path.basename(master), 3), expected[3])


def test_what_is_in_a_file(bench):
    service, master = run(bench, detector={"type": "eiger", "bits": 8, "energy_kev": 12.4})
    found = info(service, master)
    images = stack(master)
    assert (found["master"], found["detector"], found["images"]) == (master, service.ready["detectors"][0], 12)
    assert (found["rows"], found["columns"], found["dtype"]) == (*images.shape[1:], str(images.dtype))
    assert found["compression"] == "bslz4" and found["unpacked_bytes"] == images.nbytes and found["checks"] is None
    with h5py.File(bench.folder / "run_000001_data_000001.h5") as file:
        assert found["packed_bytes"] == file["/entry/data/data"].id.get_storage_size()
    sizes = [path.stat().st_size for path in bench.folder.glob("run_000001_*.h5")]
    assert found["disk_bytes"] == sum(sizes) and found["ratio"] == pytest.approx(images.nbytes / found["packed_bytes"])
    tree = {entry["path"]: entry for entry in found["tree"]}
    with h5py.File(master) as file:
        names = []
        file.visit(lambda name: names.append(f"/{name}"))
        energy = file["/entry/instrument/beam/incident_energy"][()]
    assert set(names) <= set(tree) and not found["tree_is_cut"]
    assert tree["/entry"] == {"path": "/entry", "kind": "group"}
    entry = tree["/entry/instrument/beam/incident_energy"]
    assert (entry["value"], entry["units"], entry["dtype"]) == (energy, "eV", "float64")
    assert tree["/entry/instrument/detector/pixel_mask"]["shape"] == list(images.shape[1:])
    assert tree["/entry/data/data_000001"]["target"] == "run_000001_data_000001.h5:/entry/data/data"
    checked = info(service, master, check="true")["checks"]
    assert checked == {"is_valid": True, "is_whole": True, "notes": checked["notes"]}
    assert info(service, master)["checks"] == checked, "it is known from now on"
    entry = service.request("GET", "files")["files"][0]
    assert (entry["images_expected"], entry["unpacked_bytes"]) == (12, images.nbytes)
    assert entry["bytes"] == found["packed_bytes"]


def test_images_that_were_lost_have_no_pixels(bench):
    service, master = run(bench, images=30, loss=0.02, processing={"missing": "discard"})
    with h5py.File(master) as file:
        status = file["/entry/konkordia/images/status"][()]
    assert len(set(status)) > 1
    images = stack(master)
    for number, state in enumerate(status):
        if state == 1:
            assert np.array_equal(pixels(service, master, number), images[number])
        else:
            problem = refused(service, master, f"images/{number}")
            assert problem.code == "no_image" and "lost" in problem.body["detail"]
            facts = json.loads(get(service, f"images/{number}", file=master, format="json")[0])
            assert facts["status"] == ["lost", "complete", "partial", "discarded"][state] and facts["channels"] == []
    assert info(service, master, check="true")["checks"]["is_whole"] is False


def test_streams_with_channels_and_pieces(serve, tmp_path):
    service = serve()
    images = pictures(7)
    service.send(*Stins().series(images, pieces=4))
    master = service.file(1).path
    for number, image in enumerate(images):
        assert np.array_equal(pixels(service, master, number), image), number
    assert info(service, master)["images"] == 7


def test_series_one_after_the_other_have_their_bytes(serve, tmp_path):
    service, sender = serve(), Stins()
    series = [pictures(5, seed=n) for n in range(4)]
    service.send(*(message for images in series for message in sender.series(images)))
    service.taken(4)
    files = service.request("GET", "files")["files"]
    assert [(entry["state"], entry["images"], entry["images_expected"]) for entry in files] == [("complete", 5, 5)] * 4
    assert [entry["bytes"] > 0 for entry in files] == [True] * 4
    assert [entry["unpacked_bytes"] for entry in files] == [sum(image.nbytes for image in images) for images in series]


def test_a_run_without_a_file_is_listed_with_the_reason(serve, tmp_path):
    service, sender = serve(), Stins()
    service.send(*sender.series(pictures(3), filename="../../outside.h5"))
    service.taken(1, severity="error")
    service.send(*sender.series(pictures(3)))
    entries = until(lambda: len(found := service.request("GET", "files")["files"]) == 2 and found, "both runs are listed")
    assert (entries[0]["run"], entries[0]["state"], entries[0]["master"]) == (1, "failed", "")
    assert "outside" in entries[0]["problem"]
    assert entries[1]["problem"] is None and entries[1]["master"].endswith("s_000002_master.h5") or entries[1]["run"] == 2


def test_files_of_others(bench, tmp_path):
    service = bench.serve(run={"images": 1})
    for codec in ("bslz4", "lz4", "gzip", "none"):
        folder = tmp_path / codec
        folder.mkdir()
        master, frames = dectris_legacy(folder, codec=codec)
        for number, frame in enumerate(frames):
            assert np.array_equal(pixels(service, master, number), frame), (codec, number)
        found = info(service, master)
        assert (found["images"], found["rows"], found["columns"], found["compression"]) == (7, 75, 130, codec)
        assert found["tree"] and found["problems"] == []
    # One of its data files is gone: its images are not there, the others are.
    (tmp_path / "none" / "series_5_data_000003.h5").unlink()
    shutil.copy(tmp_path / "none" / "series_5_master.h5", tmp_path / "none" / "copy_master.h5")
    found = info(service, tmp_path / "none" / "copy_master.h5")
    assert found["images"] == 6 and "series_5_data_000003.h5" in found["problems"][0]
    # Not divided into chunks.
    path, frames = tmp_path / "plain.h5", np.arange(3 * 20 * 30, dtype="<i4").reshape(3, 20, 30)
    with h5py.File(path, "w") as file:
        file["/entry/data/data"] = frames
    assert all(np.array_equal(pixels(service, path, n), frame) for n, frame in enumerate(frames))


def test_only_files_of_the_detector_are_read(bench, tmp_path):
    inside = tmp_path / "data"
    inside.mkdir()
    secret, _ = dectris_legacy(tmp_path)
    service, master = run(bench, output={"directory": str(inside)})
    (inside / "link_master.h5").symlink_to(secret)
    (inside / "folder").symlink_to(tmp_path)
    absent = refused(service, inside / "none_master.h5").body["detail"].replace("none_master", "link_master")
    for path in ("../series_5_master.h5", secret, inside / "link_master.h5", "folder/series_5_master.h5", "/etc/passwd", "", "a\0b"):
        problem = refused(service, path)
        assert (problem.status, problem.code) == (404, "no_file"), path
    assert refused(service, inside / "link_master.h5").body["detail"] == absent, "it is not said whether there is one"
    # A master inside whose images are outside.
    with h5py.File(inside / "evil_master.h5", "w") as file:
        file["/entry/data/data_000001"] = h5py.ExternalLink(str(tmp_path / "series_5_data_000001.h5"), "/entry/data/data")
    assert refused(service, "evil_master.h5").code == "bad_file"
    # The same by a link in the place of a data file.
    stolen = inside / "run_000001_data_000001.h5"
    stolen.rename(tmp_path / "moved.h5")
    stolen.symlink_to(tmp_path / "moved.h5")
    os.utime(master)
    assert refused(service, master).code in ("bad_file", "no_image")
    # Values that lie in other files are not in the tree.
    with h5py.File(inside / "values.h5", "w") as file:
        file["/entry/data/data"] = np.zeros((1, 4, 4), np.uint16)
        file.create_dataset("/entry/name", (8,), np.uint8, external=[("/etc/hostname", 0, 8)])
    tree = {entry["path"]: entry for entry in info(service, "values.h5")["tree"]}
    assert "value" not in tree["/entry/name"]
    assert service.status()["state"] == "idle"


def test_hostile_files_end_no_service(bench, tmp_path):
    service, master = run(bench)
    original = bench.folder / "run_000001_master.h5"
    (tmp_path / "text_master.h5").write_text("no HDF5 at all\n" * 100)
    (tmp_path / "empty_master.h5").write_bytes(b"")
    whole = original.read_bytes()
    (tmp_path / "cut_master.h5").write_bytes(whole[: len(whole) // 2])
    with_an_endless_index(original, tmp_path / "index_master.h5")
    with_an_endless_heap(dectris_legacy(tmp_path)[0], tmp_path / "heap_master.h5")
    os.mkfifo(tmp_path / "pipe_master.h5")
    (tmp_path / "folder_master.h5").mkdir()
    for name in ("text", "empty", "cut", "index", "heap"):
        problem = refused(service, f"{name}_master.h5")
        # Some damage does not matter for the images.
        assert (problem.status, problem.code) in ((422, "bad_file"), (404, "no_image")), (name, problem.body)
    for name in ("pipe", "folder"):
        assert refused(service, f"{name}_master.h5").code == "no_file", name
    assert len(pixels(service, master, 0)) > 0 and service.status()["state"] == "idle"


def test_damaged_data_files(bench, tmp_path):
    service, master = run(bench, output={"images_per_file": 4})
    images = stack(master)
    first, second, third = (bench.folder / f"run_000001_data_{n:06d}.h5" for n in (1, 2, 3))
    assert info(service, master)["images"] == 12
    # Gone between index and read; the others are there.
    second.unlink()
    problem = refused(service, master, "images/5")
    assert problem.code == "no_image" and "gone" in problem.body["detail"]
    assert np.array_equal(pixels(service, master, 11), images[11])
    # Cut: what lies beyond the end is not read from elsewhere.
    data = third.read_bytes()
    third.write_bytes(data[: len(data) // 2])
    assert refused(service, master, "images/11").code == "no_image"
    # Bytes of a chunk are changed: the check says so, and decoding refuses or gives an image, never more.
    with h5py.File(first) as file:
        chunk = file["/entry/data/data"].id.get_chunk_info(2)
    changed = bytearray(first.read_bytes())
    changed[chunk.byte_offset + 12 : chunk.byte_offset + 40] = bytes(28)
    first.write_bytes(changed)
    checks = info(service, master, check="true")["checks"]
    assert not checks["is_valid"] and any("image 2" in note for note in checks["notes"])
    assert refused(service, master, "images/2", format="npy").code == "bad_image"
    assert np.array_equal(pixels(service, master, 3), images[3])


def test_a_file_that_is_being_written_is_refused(bench):
    service = bench.serve(run={"images": 40})
    service.command("start")
    sender = threading.Thread(target=bench.send, args=(40,), kwargs={"rate": 20})
    sender.start()
    status = service.until(lambda status: status["images_written"] > 3)
    for path in (status["file"], os.path.basename(status["file"])):
        problem = refused(service, path)
        assert (problem.status, problem.code) == (409, "unfinished_file")
        assert refused(service, path, "file").code == "unfinished_file"
    # Another service, to which it is any file below its folder.
    shutil.copytree(bench.folder, bench.folder / "copy", ignore=shutil.ignore_patterns("*.journal", "copy"))
    assert refused(service, "copy/run_000001_master.h5").code in ("unfinished_file", "bad_file", "no_file")
    sender.join()
    service.wait()
    assert len(stack(status["file"])) == 40 and pixels(service, status["file"], 39).any()


def test_many_ask_at_once_and_a_run_goes_on(bench):
    service, master = run(bench)
    expected = stack(master)
    service.command("start")
    sender = threading.Thread(target=bench.send, args=(12,), kwargs={"rate": 10})
    sender.start()
    wrong = []

    def ask(number):
        for round in range(5):
            if not np.array_equal(pixels(service, master, number), expected[number]):
                wrong.append((number, round))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(12)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sender.join()
    assert wrong == [] and time.monotonic() - began < 60
    done = service.wait()
    assert done["images_committed"] == 12 and done["images_lost"] == 0
    assert program("check", done["file"], check=0)


def test_a_view_token_is_enough_and_none_is_not(bench, tmp_path):
    tokens = tmp_path / "tokens"
    made = program("token", "create", "anna", "--role", "view", "--file", tokens, check=0).stdout
    token = next(word for line in made.splitlines() for word in line.split() if len(word) > 30)
    service = bench.serve(run={"images": 1}, extra=f'[service]\ntokens = "{tokens}"\n')
    with pytest.raises(Problem) as found:
        service.request("GET", "file", file="a_master.h5")
    assert found.value.status == 401
    request = urllib.request.Request(f"{service.url}/api/v1/file?file=a_master.h5", headers={"Authorization": f"Bearer {token}"})
    with pytest.raises(urllib.error.HTTPError) as found:
        urllib.request.urlopen(request, timeout=20)
    assert found.value.code == 404


def facts_of(service, file, number):
    return json.loads(get(service, f"images/{number}", file=file, format="json")[0])


def analysed(serve, tmp_path, images=30):
    """A service, and the file of a stream whose images were analysed."""
    service = stream_service(serve, tmp_path, recipe(tmp_path, **STREAM), queue_images=64)
    service.send(*Stins().series(list(frames(images))))
    return service, str(service.file(1).path)


def test_results_and_spots_of_a_file_are_those_that_h5py_reads(serve, tmp_path):
    service, master = analysed(serve, tmp_path)
    with h5py.File(master) as file:
        group = file["/entry/konkordia/images"]
        names = info(service, master)["results"]
        columns = {name: group[name][()] for name in names}
    assert {"is_analysed", "spots", "nPeaks", "peakXPosRaw", "profile_intensity", "region_sum", "max_value"} <= set(names)
    assert info(service, master)["no_results"] is None and columns["nPeaks"].max() > 3
    client = Client(service)
    for number in (0, 17, 29):
        facts = facts_of(service, master, number)
        assert (facts["no_spots"], set(facts["results"])) == (None, set(names))
        for name, column in columns.items():
            found, stored = facts["results"][name], column[number]
            if name.startswith("peak"):
                stored = stored[: columns["nPeaks"][number]]
            if name.startswith("pixels_above_") and stored.ndim:
                stored = stored[: columns["pixels_above_stored"][number]]
            assert np.array_equal(np.array(found, float), stored.astype(float), equal_nan=True), (name, number)
        client.watch(file=master, image=number)
        header, _ = client.frame(image=number)
        assert (header["results"], header["no_spots"]) == (facts["results"], None)
    # As in the ring, which has the last one, too.
    newest = service.request("GET", "images/29", format="json")
    assert newest["results"] == facts["results"] and newest["no_spots"] is None


def test_that_there_are_no_spots_is_said_and_not_shown_as_an_empty_list(bench, serve, tmp_path):
    # A run without analysis, a file of another program, and an image that was not analysed.
    service, master = run(bench)
    facts = facts_of(service, master, 0)
    assert "were not analysed" in facts["no_spots"] and facts["results"]["valid_pixels"] > 0 and "nPeaks" not in facts["results"]
    (tmp_path / "others").mkdir()
    others = dectris_legacy(tmp_path / "others")[0]
    facts = facts_of(service, others, 0)
    assert facts["results"] == {} and "konkordia did not write" in facts["no_spots"] == info(service, others)["no_results"]
    service, master = analysed(serve, tmp_path, images=3)
    with h5py.File(master, "r+") as file:
        group = file["/entry/konkordia/images"]
        for name in info(service, master)["results"]:
            group[name][1] = 0
    # Until the file is looked at again there are no results, and not those of before.
    facts = facts_of(service, master, 1)
    assert facts["results"] == {} and "was changed" in facts["no_spots"] and len(facts["channels"]) == 1
    facts = facts_of(service, master, 1)
    assert facts["no_spots"] == "the image was not analysed" and facts["results"]["peakXPosRaw"] == []
    assert facts_of(service, master, 2)["no_spots"] is None


def test_hostile_results_cost_the_results_alone(serve, tmp_path):
    service, master = analysed(serve, tmp_path, images=5)
    stored, original = stack(master), open(master, "rb").read()
    whole = facts_of(service, master, 4)["results"]

    def changed(change):
        with open(master, "wb") as file:
            file.write(original)
        with h5py.File(master, "r+") as file:
            change(file["/entry/konkordia/images"])
        info(service, master)
        assert np.array_equal(pixels(service, master, 4), stored[4])
        return facts_of(service, master, 4)

    def replaced(name, **options):
        def change(group):
            data = group[name][()]
            del group[name]
            group.create_dataset(name, data=data, **options)

        return change

    def number(name, value):
        return lambda group: group[name].__setitem__(4, value)

    # A list cannot be longer than its column.
    facts = changed(number("nPeaks", 2**63))
    assert len(facts["results"]["peakXPosRaw"]) == STREAM["spots"]["spots_max"]
    facts = changed(number("peakXPosRaw", np.nan))
    assert facts["results"]["peakXPosRaw"] == [None] * whole["nPeaks"] and facts["no_spots"] is None
    for change, words in [
        (replaced("peakXPosRaw", chunks=True, compression="gzip"), "peakXPosRaw does not lie in it"),
        (replaced("nPeaks", dtype=">u8"), "nPeaks does not lie in it"),
        (replaced("spots"), "spots does not lie in it"),
        (lambda group: group["spots"].resize((4,)), "not those of images"),
    ]:
        facts = changed(change)
        assert facts["results"] == {} and words in facts["no_spots"], facts["no_spots"]
        assert info(service, master)["results"] == [] and words in info(service, master)["no_results"]
    for name in ("is_analysed", "nPeaks"):
        facts = changed(lambda group: group.__delitem__(name))  # noqa: B023
        assert facts["no_spots"] and facts["results"]["spots"] == whole["spots"]
    assert service.status()["state"] == "idle"


def test_sums_and_maxima_of_a_file_can_be_saved(bench):
    service, master = run(bench)
    images = stack(master).astype(int)
    body, headers = get(service, "images/7", file=master, format="npy", stack="sum", images=5)
    found = np.load(io.BytesIO(body))
    assert found.dtype == "int64" and np.array_equal(found, images[3:8].sum(0))
    assert (headers["X-Konkordia-Stack-Images"], headers["X-Konkordia-Stack-First"]) == ("5", "3")
    assert "sum_of_images_3-7.npy" in headers["Content-Disposition"]
    body, headers = get(service, "images/latest", format="npy", stack="maximum", images=100)
    kept = service.request("GET", "images")["images"]
    assert np.array_equal(np.load(io.BytesIO(body)), images[kept[0] :].max(0)) and headers["X-Konkordia-Stack-First"] == str(kept[0])
    assert get(service, "images/2", file=master, format="png", stack="sum", images=3)[0].startswith(b"\x89PNG")
