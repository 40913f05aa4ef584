"""`konkordia repack`: our files and DECTRIS files in any compression, read back by h5py with hdf5plugin."""

import json
import pathlib
import signal
import subprocess
import time

import h5py
import hdf5plugin
import numpy as np
import pytest

from driving import BINARY, MASKED, MISSING, balanced, lyso_raw, lyso_tables, needs_lyso, program, raw_tables, simulate
from others_files import dectris_legacy

CODECS = ["bslz4", "bszstd", "lz4", "zstd", "gzip", "none"]
FILTERS = {"bslz4": 32008, "bszstd": 32008, "lz4": 32004, "zstd": 32015, "gzip": 1, "none": None, "sz3": 32024}


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    """The master of a run of 12 images."""
    folder = tmp_path_factory.mktemp("ours")
    program("demo", "--images", 12, "--dir", folder / "run", "--listen", "127.0.0.1:0", check=0)
    return folder / "run" / "demo_master.h5"


def data_files(master):
    return sorted(master.parent.glob(master.name.replace("_master.h5", "_data_*.h5")))


def images_of(master):
    with h5py.File(master) as file:
        data = file["/entry/data"]
        return np.concatenate([data[name][()] for name in sorted(data) if name.startswith("data_")])


def filter_of(path, name="/entry/data/data"):
    with h5py.File(path) as file:
        found = file[name].id.get_create_plist()
        return found.get_filter(0)[0] if found.get_nfilters() else None


def everything(path):
    """All objects, links and attributes, without the pixels of image stacks and without what repacking changes."""
    found = {}

    def attributes(item):
        return {name: np.asarray(value).tolist() for name, value in item.attrs.items()}

    def walk(group, at):
        for name in group:
            link = group.get(name, getlink=True)
            path = f"{at}/{name}"
            if isinstance(link, h5py.ExternalLink):
                found[path] = ("link", link.path)
            elif isinstance(link, h5py.SoftLink):
                found[path] = ("soft", link.path)
            elif path.endswith("/konkordia/repack"):
                pass
            elif isinstance(group[name], h5py.Group):
                found[path] = attributes(group[name])
                walk(group[name], path)
            else:
                item = group[name]
                is_stack = item.ndim >= 3 and "/data/" in path
                changes = path.endswith(("/run_description", "detectorSpecific/compression", "/chunk_crc32"))
                value = None if is_stack or changes else np.asarray(item[()]).tolist()
                kind = None if changes else (str(item.dtype), str(item.fillvalue))
                found[path] = (item.shape, item.maxshape, kind, value, attributes(item))

    with h5py.File(path) as file:
        found["/"] = attributes(file)
        walk(file, "")
    return found


def same(a, b):
    """Like ==, but NaN equals NaN, and neither the order of members nor the kind of string matters."""

    def plain(value):
        if isinstance(value, dict):
            return {key: plain(value[key]) for key in sorted(value)}
        if isinstance(value, (list, tuple)):
            return [plain(one) for one in value]
        return value.decode() if isinstance(value, bytes) else value

    return repr(plain(a)) == repr(plain(b))


@pytest.mark.parametrize("codec", CODECS)
def test_ours_in_every_codec_and_back(ours, tmp_path, codec):
    first = tmp_path / "first_master.h5"
    done = program("repack", ours, "-o", tmp_path / "first", "--compression", codec, "--verify", "--json", check=0)
    report = json.loads(done.stdout)
    assert report["complete"] and report["verified"] and report["totals"]["images"] == 12
    assert report["compared"] == {"files": 1, "images": 12, "files_not_compared": 0}
    assert report["totals"]["images_copied"] == (12 if codec == "bslz4" else 0)
    expected = images_of(ours)
    assert np.array_equal(images_of(first), expected)
    assert [filter_of(path) for path in data_files(first)] == [FILTERS[codec]]
    program("check", first, check=0)
    said = json.loads(program("inspect", first, "--json", check=0).stdout)
    assert codec in json.dumps(said)
    back = tmp_path / "back"
    back.mkdir()
    program("repack", first, "-o", back, "--compression", "bslz4", check=0)
    assert np.array_equal(images_of(back / "first_master.h5"), expected)
    for old, new in [(ours, first), *zip(data_files(ours), data_files(first))]:
        before, after = everything(old), everything(new)
        assert before.keys() == after.keys()
        assert all(same(before[key], after[key]) for key in before), [k for k in before if not same(before[k], after[k])]
    with h5py.File(ours) as old, h5py.File(first) as new:
        assert np.array_equal(new["/entry/data/images"][3], old["/entry/data/images"][3]), "the virtual data set"
        pixel_mask = "/entry/instrument/detector/pixel_mask"
        assert new[pixel_mask] == new["/entry/instrument/detector/detectorSpecific/pixel_mask"], "still one object"


def test_levels_and_the_file_alone(ours, tmp_path):
    sizes = {}
    for level in [1, 12]:
        out = tmp_path / f"l{level}_data_000001.h5"
        program("repack", data_files(ours)[0], "-o", tmp_path / f"l{level}", "--compression", "zstd", "--compression-level", level, check=0)
        with h5py.File(out) as file:
            assert file["/entry/data/data"].id.get_create_plist().get_filter(0)[2] == (level,)
            assert np.array_equal(file["/entry/data/data"][()], images_of(ours))
        sizes[level] = out.stat().st_size
    assert sizes[12] < sizes[1]


def test_a_copy_says_that_it_is_lossy_whatever_is_done_to_it_later(ours, tmp_path):
    def losses(master):
        return json.loads(program("inspect", master, "--json", check=0).stdout)["losses"]

    assert losses(ours) == []
    program("repack", ours, "-o", tmp_path / "a", "--compression", "sz3", "--error-bound", 2, check=0)
    [lossy] = losses(tmp_path / "a_master.h5")
    assert lossy.startswith("sz3")
    for source, target in ("a", "b"), ("b", "c"):
        program("repack", tmp_path / f"{source}_master.h5", "-o", tmp_path / target, "--compression", "bslz4", check=0)
        assert losses(tmp_path / f"{target}_master.h5") == [lossy]
        program("check", tmp_path / f"{target}_master.h5", check=0)
    assert f"lossy        a copy whose pixels were changed: {lossy}" in program("inspect", tmp_path / "c_master.h5", check=0).stdout
    with h5py.File(next(tmp_path.glob("c_data_*.h5"))) as file:
        record = file["/entry/konkordia/repack"]
        assert "error_bound" not in record and record["earlier/earlier/error_bound"][()] == 2 and "earlier" not in record["earlier/earlier"]


def test_sz3_keeps_its_bound_and_says_what_it_did(ours, tmp_path):
    expected = images_of(ours)
    special = (expected <= MISSING["int16"]) | (expected == 32767)
    assert (expected == MASKED["int16"]).any(), "the demonstration masks pixels"
    before = None
    for bound in [1, 2.5, 8]:
        master = tmp_path / f"s{bound}_master.h5"
        done = program(
            "repack", ours, "-o", tmp_path / f"s{bound}", "--compression", "sz3", "--error-bound", bound, "--verify", "--json", check=0
        )
        loss = json.loads(done.stdout)["totals"]["loss"]
        got = images_of(master)
        assert np.array_equal(got[special], expected[special]), "special values are exact"
        error = np.abs(got.astype(int) - expected)[~special]
        assert error.max() <= bound
        sums = [int(x[~special].sum(dtype=np.int64)) for x in (expected, got)]
        assert (loss["error_max"], loss["pixels_changed"]) == (error.max(), (error > 0).sum())
        assert [loss["sum_before"], loss["sum_after"]] == sums
        assert abs(loss["sum_bias"]) < 1e-2 and loss["images_lossless"] == 0
        with h5py.File(data_files(master)[0]) as file:
            record = file["/entry/konkordia/repack"]
            assert record["error_bound"][()] == bound and record["error_max"][()] == error.max()
            assert record["pixels_changed"][()] == (error > 0).sum() and record["sum_bias"][()] == loss["sum_bias"]
            stored = file["/entry/data/data"].id.get_storage_size()
            assert np.isclose(record["bits_per_pixel"][()], 8 * stored / expected.size)
            assert record["source"][()].decode() == data_files(ours)[0].name
            values = file["/entry/data/data"].id.get_create_plist().get_filter(0)[2]
        with h5py.File(tmp_path / "reference.h5", "w") as file:
            reference = file.create_dataset("d", expected.shape, expected.dtype, chunks=(1, *expected.shape[1:]), **hdf5plugin.SZ3(absolute=bound))
            assert reference.id.get_create_plist().get_filter(0)[2] == values, "the parameters are the plugin's own"
        assert before is None or stored < before
        before = stored
        program("check", master, check=0)
        assert "sz3" in program("inspect", master, "--image", 2, check=0).stdout


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32])
@pytest.mark.parametrize("before", ["bslz4", "lz4", "gzip", "none"])
def test_dectris_legacy_files(tmp_path, dtype, before):
    master, frames = dectris_legacy(tmp_path, dtype, before)
    for after in CODECS:
        out = tmp_path / after
        out.mkdir()
        program("repack", master, "-o", out, "--compression", after, "--verify", "--workers", 2, check=0)
        copy = out / master.name
        assert np.array_equal(images_of(copy), frames)
        assert {filter_of(path) for path in data_files(copy)} == {FILTERS[after]}
        for old, new in [(master, copy), *zip(data_files(master), data_files(copy))]:
            a, b = everything(old), everything(new)
            b.pop("/entry/konkordia", None)
            assert same(a, b), [(k, a.get(k), b.get(k)) for k in a.keys() | b.keys() if not same(a.get(k), b.get(k))]
        with h5py.File(copy) as file:
            assert file["/entry/data"].get("data_000002", getlink=True).filename == "series_5_data_000002.h5"
            assert file["/entry/instrument/detector/detectorSpecific/compression"][()].decode() == after
            assert file["/entry/goniometer/omega"].shape == (7,)


def test_dectris_2024_files(tmp_path):
    """The layout with one virtual data set (images, channels, rows, columns) and no links."""
    rng = np.random.default_rng(6)
    frames = rng.poisson(2, (6, 2, 64, 100)).astype(np.uint32)
    whole = h5py.VirtualLayout((6, 2, 64, 100), np.uint32)
    for n in range(2):
        name = f"x_data_{n + 1:06d}.h5"
        with h5py.File(tmp_path / name, "w") as file:
            part = frames[3 * n : 3 * n + 3]
            file.create_dataset("entry/data/data", data=part, chunks=(1, 1, 64, 100), **hdf5plugin.Bitshuffle(nelems=0, cname="zstd"))
        whole[3 * n : 3 * n + 3] = h5py.VirtualSource(name, "/entry/data/data", (3, 2, 64, 100))
    with h5py.File(tmp_path / "x_master.h5", "w", libver=("earliest", "v110")) as master:
        data = master.create_group("entry/data")
        data.attrs["axes"] = ["image_id", "channel", ".", "."]
        data.attrs["image_id_indices"] = 0
        data["image_id"] = np.arange(6)
        data["channel"] = ["threshold_1", "threshold_2"]
        data.create_virtual_dataset("data", whole, fillvalue=7)
        master["entry/definition"] = "NXmx"
        master["entry/instrument/detector/threshold_1_channel/threshold_energy"] = 6400.0
    done = program("repack", tmp_path / "x_master.h5", "-o", tmp_path / "y", "--compression", "bslz4", "--json", check=0)
    assert json.loads(done.stdout)["totals"]["images"] == 12
    with h5py.File(tmp_path / "y_master.h5") as file:
        stack = file["/entry/data/data"]
        assert stack.is_virtual and {s.file_name for s in stack.virtual_sources()} == {"y_data_000001.h5", "y_data_000002.h5"}
        assert np.array_equal(stack[()], frames) and stack.fillvalue == 7
        assert list(file["/entry/data"].attrs["axes"]) == ["image_id", "channel", ".", "."]
        assert [c.decode() for c in file["/entry/data/channel"]] == ["threshold_1", "threshold_2"]
    a, b = everything(tmp_path / "x_master.h5"), everything(tmp_path / "y_master.h5")
    b.pop("/entry/konkordia")
    assert same(a, b)


def test_a_file_that_holds_its_images_itself(tmp_path):
    frames = np.arange(5 * 40 * 50, dtype=np.int32).reshape(5, 40, 50) - 2000
    with h5py.File(tmp_path / "one.nxs", "w") as file:
        data = file.create_group("run/detector_data")
        data.attrs["NX_class"] = "NXdata"
        data.create_dataset("counts", data=frames, chunks=(1, 40, 50))
        sparse = data.create_dataset("gaps", (5, 40, 50), np.int32, chunks=(1, 40, 50), fillvalue=-1)
        sparse[2] = frames[2]
        file["run/other"] = np.zeros((3, 4, 5))
    program("repack", tmp_path / "one.nxs", "-o", tmp_path / "two.nxs", "--compression", "bszstd", "--verify", check=0)
    with h5py.File(tmp_path / "two.nxs") as file:
        data = file["run/detector_data"]
        assert np.array_equal(data["counts"][()], frames)
        assert np.array_equal(data["gaps"][2], frames[2]) and (data["gaps"][3] == -1).all()
        assert data["gaps"].id.get_num_chunks() == 1
        assert [data[n].id.get_create_plist().get_filter(0)[0] for n in data] == [32008, 32008]
    done = program("repack", tmp_path / "one.nxs", "-o", tmp_path / "l.nxs", "--compression", "sz3", "--error-bound", 3, check=0)
    assert "bits per pixel" in done.stdout
    with h5py.File(tmp_path / "l.nxs") as file:
        got = file["run/detector_data/counts"][()]
    assert np.array_equal(got[frames < 0], frames[frames < 0]), "in files of others negative numbers may be marks"
    assert 0 < np.abs(got - frames).max() <= 3


def test_hard_links_stay_links_also_where_a_group_holds_itself(tmp_path):
    frames = np.random.default_rng(8).poisson(2, (5, 40, 50)).astype(np.uint16)
    with h5py.File(tmp_path / "one.h5", "w") as file:
        data = file.create_group("entry/data")
        data.create_dataset("data", data=frames, chunks=(1, 40, 50))
        # One stack under three names, one of them in a place where images are not expected.
        data["again"] = data["data"]
        file["entry/instrument/detector/data"] = data["data"]
        # Groups that contain their parents or themselves.
        data["up"] = file["entry"]
        file["entry/root"] = file["/"]
        file["entry/self"] = file["entry"]
        file["entry/plain/root"] = file["/"]
        file["entry/notes/more/text"] = "kept"
        file["entry/notes/more/loop"] = file["entry/notes"]
        file["other"] = file["entry/notes/more"]
        # More names than fit into the header of a group, not in alphabetical order.
        for n in range(20):
            data.create_dataset(f"s{(7 * n) % 20}", data=frames[:2] + n, chunks=(1, 40, 50))
    done = program("repack", tmp_path / "one.h5", "-o", tmp_path / "two.h5", "--compression", "bszstd", "--verify", "--json", check=0)
    assert json.loads(done.stdout)["totals"]["images"] == 5 + 20 * 2, "each stack once"
    with h5py.File(tmp_path / "two.h5") as file:
        stack = file["entry/data/data"]
        assert np.array_equal(stack[()], frames) and stack.id.get_create_plist().get_filter(0)[0] == 32008
        assert file["entry/data/again"] == stack and file["entry/instrument/detector/data"] == stack
        assert file["entry/data/up"] == file["entry"] == file["entry/self"]
        assert file["entry/root"] == file["/"] == file["entry/plain/root"]
        assert file["entry/notes/more/loop"] == file["entry/notes"] and file["other"] == file["entry/notes/more"]
        assert file["other/text"][()] == b"kept"
        for n in range(20):
            assert np.array_equal(file[f"entry/data/s{(7 * n) % 20}"][()], frames[:2] + n)
    with h5py.File(tmp_path / "deep.h5", "w") as file:
        file.create_group("/".join("g" * 200))
    refused(tmp_path / "deep.h5", "-o", tmp_path / "flat.h5", "--compression", "lz4", code=3, words=["deep.h5", "deeper"])
    assert not (tmp_path / "flat.h5").exists()


def test_references_are_left_out_and_all_else_stays(tmp_path):
    """Dimension scales are stored as attributes that contain references in sequences and in records."""
    record = np.dtype([("object", h5py.ref_dtype), ("number", np.int32)])
    sequence = np.empty(1, object)
    sequence[0] = np.arange(4, dtype=np.int32)
    with h5py.File(tmp_path / "one.h5", "w") as file:
        data = file.create_group("entry/data")
        for holder in [data, file.create_group("entry/columns")]:
            values = holder.create_dataset("data", data=np.zeros((3, 8, 9), np.uint16), chunks=(1, 8, 9))
            holder["angle"] = np.arange(3.0)
            holder["angle"].make_scale("angle")
            values.dims[0].attach_scale(holder["angle"])
            for item in [holder, values]:
                item.attrs["one"] = file["entry"].ref
                item.attrs["record"] = np.array([(file["entry"].ref, 4)], record)
                item.attrs.create("many", np.array([file["entry"].ref] * 2, h5py.ref_dtype), dtype=h5py.ref_dtype)
                item.attrs["text"] = "stays"
                item.attrs.create("sequence", sequence, dtype=h5py.vlen_dtype(np.int32))
        assert {"DIMENSION_LIST"} <= set(data["data"].attrs) and "REFERENCE_LIST" in data["angle"].attrs
    program("repack", tmp_path / "one.h5", "-o", tmp_path / "two.h5", "--compression", "bslz4", "--verify", check=0)
    with h5py.File(tmp_path / "two.h5") as file:
        for holder in [file["entry/data"], file["entry/columns"]]:
            for item in [holder, holder["data"]]:
                assert set(item.attrs) - {"DIMENSION_LABELS"} == {"text", "sequence"} and item.attrs["text"] == "stays"
                assert item.attrs["sequence"][0].tolist() == [0, 1, 2, 3]
            assert set(holder["angle"].attrs) == {"CLASS", "NAME"}
            assert holder["angle"][()].tolist() == [0, 1, 2]


def test_delete_source_goes_file_by_file(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    master, frames = dectris_legacy(tmp_path / "in")
    program("repack", master, "-o", tmp_path / "out", "--compression", "bszstd", "--verify", "--delete-source", check=0)
    assert list((tmp_path / "in").iterdir()) == []
    assert np.array_equal(images_of(tmp_path / "out" / master.name), frames)


def test_goes_on_after_an_interruption_also_when_originals_are_gone(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    master, frames = dectris_legacy(tmp_path / "in")
    options = ["-o", tmp_path / "out", "--compression", "zstd", "--delete-source"]
    # An interrupted attempt leaves a finished first file without its original, and the beginning of the next file.
    first = tmp_path / "in" / "series_5_data_000001.h5"
    program("repack", first, *options, check=0)
    assert not first.exists()
    (tmp_path / "out" / ".series_5_data_000002.h5.part").write_bytes(b"half a file")
    done = program("repack", master, *options, "--json", check=0)
    report = json.loads(done.stdout)
    assert [pathlib.Path(path).name for path in report["kept"]] == ["series_5_data_000001.h5"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "series_5_data_000001.h5", "series_5_data_000002.h5", "series_5_data_000003.h5", "series_5_master.h5"
    ]
    assert np.array_equal(images_of(tmp_path / "out" / master.name), frames)


def two_runs(tmp_path):
    """Two runs of the same name and shape with different images, and a folder for copies."""
    masters = []
    for name, first in [("monday", 0), ("tuesday", 1)]:
        (tmp_path / name).mkdir()
        master, frames = dectris_legacy(tmp_path / name)
        if first:
            for path in data_files(master):
                with h5py.File(path, "r+") as file:
                    file["/entry/data/data"][:, 0, 0] = 77
        masters.append(master)
    (tmp_path / "out").mkdir()
    return masters, frames


def damage(path, image=1):
    """Overwrites 64 bytes of the chunk of an image."""
    with h5py.File(path) as file:
        place = file["/entry/data/data"].id.get_chunk_info_by_coord((image, 0, 0))
    with open(path, "r+b") as file:
        file.seek(place.byte_offset + 20)
        file.write(b"\0" * 64)


def test_another_run_of_the_same_name_is_not_taken_for_finished(tmp_path):
    (monday, tuesday), frames = two_runs(tmp_path)
    out = tmp_path / "out"
    options = ["-o", out, "--compression", "bszstd", "--verify"]
    program("repack", monday, *options, check=0)
    before = {path: path.read_bytes() for path in [tuesday, *data_files(tuesday)]}
    for also in [[], ["--delete-source"]]:
        refused(tuesday, *options, *also, code=6, words=["series_5_data_000001.h5 exists", "not a copy of"])
    assert {path: path.read_bytes() for path in [tuesday, *data_files(tuesday)]} == before
    assert np.array_equal(images_of(out / monday.name), frames)
    # The same if the original of the other run is gone and only its recorded name can be compared.
    for path in [out / monday.name, *data_files(out / monday.name)[1:]]:
        path.unlink()
    data_files(tuesday)[0].unlink()
    refused(tuesday, *options, "--delete-source", code=6, words=["exists", "monday", "gone"])
    assert tuesday.exists() and len(data_files(tuesday)) == 2


def test_a_copy_of_an_earlier_attempt_is_compared_before_the_original_goes(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    master, frames = dectris_legacy(tmp_path / "in")
    options = ["-o", tmp_path / "out", "--compression", "none"]
    done = program("repack", master, *options, check=0)
    assert "verified:" not in done.stdout
    copies = data_files(tmp_path / "out" / master.name)
    damage(copies[1])
    for how in [["--verify"], ["--delete-source"], ["--verify", "--delete-source"]]:
        refused(master, *options, *how, code=1, words=["image 1", copies[1].name, "pixels differ", "remove this copy"])
        assert data_files(master)[1].exists() and master.exists()
    assert [path.name[-4] for path in data_files(master)] == ["2", "3"], "the first copy is right, and its original may go"
    copies[1].unlink()
    done = program("repack", master, *options, "--verify", "--delete-source", "--json", check=0)
    report = json.loads(done.stdout)
    assert report["compared"] == {"files": 2, "images": 4, "files_not_compared": 1} and not report["verified"]
    assert list((tmp_path / "in").iterdir()) == []
    assert np.array_equal(images_of(tmp_path / "out" / master.name), frames)


def test_a_new_copy_that_differs_never_gets_its_name(tmp_path):
    """The test damages the copy on the disk while it is being compared."""
    (tmp_path / "out").mkdir()
    master, _ = dectris_legacy(tmp_path, codec="gzip", images=1000, per_file=1000)
    [source] = data_files(master)
    target, part = tmp_path / "out" / source.name, tmp_path / "out" / f".{source.name}.part"
    options = ["repack", str(source), "-o", str(tmp_path / "out"), "--compression", "none", "--workers", "1"]
    program(*options, check=0)
    whole_bytes = target.stat().st_size
    with h5py.File(target) as file:
        place = file["/entry/data/data"].id.get_chunk_info_by_coord((999, 0, 0))
    target.unlink()
    process = subprocess.Popen([BINARY, *options, "--verify", "--delete-source"], stderr=subprocess.PIPE, text=True)
    while process.poll() is None:
        try:
            if part.stat().st_size == whole_bytes:
                with open(part, "r+b") as file:
                    file.seek(place.byte_offset + 20)
                    file.write(b"\0" * 64)
                break
        except FileNotFoundError:
            pass
        time.sleep(0.001)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1 and "image 999" in errors and "the copy was removed" in errors, errors
    assert source.exists() and list((tmp_path / "out").iterdir()) == []


def test_verified_is_said_only_of_what_was_compared(tmp_path):
    (tmp_path / "out").mkdir()
    master, _ = dectris_legacy(tmp_path)
    options = ["-o", tmp_path / "out", "--compression", "zstd"]
    program("repack", master, *options, check=0)
    assert "verified:" not in program("repack", master, *options, check=0).stdout
    assert "verified: 7 images in 3 files" in program("repack", master, *options, "--verify", check=0).stdout
    for path in data_files(master):
        path.unlink()
    done = program("repack", master, *options, "--verify", check=0)
    assert "verified:" not in done.stdout and "not compared: 3 files" in done.stdout


def test_a_source_that_changed_since_is_not_deleted(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    master, _ = dectris_legacy(tmp_path / "in")
    options = ["-o", tmp_path / "out", "--compression", "zstd"]
    program("repack", master, *options, check=0)
    with h5py.File(master, "r+") as file:
        file["/entry/comment"] = "written afterwards"
    refused(master, *options, "--delete-source", code=6, words=[master.name, "changed since"])
    assert master.exists() and len(data_files(master)) == 3


def test_ctrl_c_leaves_whole_files_only(tmp_path):
    (tmp_path / "out").mkdir()
    master, frames = dectris_legacy(tmp_path, images=600, per_file=100)
    options = ["repack", str(master), "-o", str(tmp_path / "out"), "--compression", "zstd", "--compression-level", "19", "--workers", "1"]
    process = subprocess.Popen([BINARY, *options], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not list((tmp_path / "out").iterdir()) and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130 and "goes on" in errors
    left = sorted((tmp_path / "out").iterdir())
    assert all(path.name.startswith("series_5_data_") for path in left), "no master, nothing half written"
    for path in left:
        with h5py.File(path) as file:
            assert file["/entry/data/data"].shape[0] == 100
    program(*options, check=0)
    assert np.array_equal(images_of(tmp_path / "out" / master.name), frames)


def refused(*arguments, code, words):
    done = program("repack", *arguments, check=code)
    assert all(word in done.stderr for word in words), done.stderr
    assert "fix:" in done.stderr


def test_mistakes_are_named(ours, tmp_path):
    out = tmp_path / "a"
    for bound in ["0", "-1", "nan", "inf"]:
        refused(ours, "-o", out, "--compression", "sz3", "--error-bound", bound, code=2, words=["error bound"])
    refused(ours, "-o", out, "--compression", "sz3", code=2, words=["no error bound"])
    refused(ours, "-o", out, "--compression", "sz3", "--error-bound", 0.5, code=3, words=["whole numbers"])
    refused(ours, "-o", out, "--compression", "sz3", "--error-bound", 2, "--delete-source", code=2, words=["lossy"])
    refused(ours, "-o", out, "--compression", "lzma", code=2, words=["bslz4"])
    refused(ours, "-o", out, "--compression", "lz4", "--compression-level", 3, code=2, words=["no levels"])
    refused(ours, "-o", out, "--compression", "lz4", "--error-bound", 3, code=2, words=["is lossless"])
    refused(ours, "-o", ours.parent, "--compression", "lz4", code=2, words=["over itself"])
    refused(ours, "-o", tmp_path / "no" / "a", "--compression", "lz4", code=6, words=["no folder"])
    refused(tmp_path / "none_master.h5", "-o", out, "--compression", "lz4", code=6, words=["none_master.h5"])
    assert list(tmp_path.iterdir()) == [], "nothing was written"
    program("repack", ours, "-o", out, "--compression", "lz4", check=0)
    refused(ours, "-o", out, "--compression", "zstd", code=6, words=["exists"])
    data = tmp_path / "a_data_000001.h5"
    data.rename(tmp_path / "elsewhere.h5")
    refused(tmp_path / "a_master.h5", "-o", tmp_path / "b", "--compression", "zstd", code=1, words=["a_data_000001.h5", "points to it"])


def test_a_damaged_chunk_is_named_and_nothing_is_deleted(ours, tmp_path):
    program("repack", ours, "-o", tmp_path / "c", "--compression", "zstd", check=0)
    data = tmp_path / "c_data_000001.h5"
    with h5py.File(data) as file:
        place = file["/entry/data/data"].id.get_chunk_info_by_coord((4, 0, 0))
    with open(data, "r+b") as file:
        file.seek(place.byte_offset + 13)
        file.write(b"\0" * 64)
    refused(
        tmp_path / "c_master.h5", "-o", tmp_path / "d", "--compression", "bslz4", "--delete-source", code=1, words=["image 4", "damaged"]
    )
    assert data.exists() and sorted(path.name for path in tmp_path.iterdir()) == ["c_data_000001.h5", "c_master.h5"]


@pytest.mark.parametrize("how", ["too many", "gone", "too many in the master", "of an earlier version"])
def test_checksums_that_cannot_be_read_end_it_before_anything_is_written(ours, tmp_path, how):
    program("repack", ours, "-o", tmp_path / "c", "--compression", "zstd", check=0)
    master, data = tmp_path / "c_master.h5", tmp_path / "c_data_000001.h5"
    changed = {"too many": [data], "gone": [data], "too many in the master": [master], "of an earlier version": [data, master]}[how]
    for path in changed:
        with h5py.File(path, "r+") as file:
            columns = file["/entry/konkordia/images"]
            del columns["chunk_crc32"]
            if how.startswith("too many"):
                columns["chunk_crc32"] = np.zeros(13, "u4")
    before = {path: path.read_bytes() for path in (master, data)}
    command = (master, "-o", tmp_path / "d", "--compression", "bslz4")
    if how == "of an earlier version":
        program("repack", *command, check=0)
        assert np.array_equal(images_of(tmp_path / "d_master.h5"), images_of(ours))
        return
    why = "are gone" if how == "gone" else "13 of them for 12 images"
    refused(*command, "--verify", "--delete-source", code=1, words=["checksums", why, changed[0].name, "konkordia repair"])
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    program("check", master, check=1)
    program("repair", master, check=0)
    program("check", master, check=0)
    program("repack", *command, check=0)
    assert np.array_equal(images_of(tmp_path / "d_master.h5"), images_of(ours))


@needs_lyso
def test_an_archive_copy_is_made_after_the_run(bench):
    """With real frames the archive copy keeps its error bound and is small; the run and its report do not change."""
    tables = lyso_tables(images=10)
    tables["travel"] = {"enabled": True, "error_bound": 2, "prefix": "home"}
    config = bench.config(**tables)
    receiver = bench.receive(config)
    simulate("jungfrau", "--to", bench.to, "--rate", 60, "--images", 10, "--raw", *lyso_raw())
    code, report = receiver.finish()
    balanced(code, report)
    [event] = [event for event in receiver.events if event["event"] == "travel"]
    home = pathlib.Path(event["master"])
    assert home.name == "home_master.h5" and home.parent == bench.master.parent
    expected, got = images_of(bench.master), images_of(home)
    special = (expected <= MISSING["int16"]) | (expected == 32767)
    assert np.array_equal(got[special], expected[special])
    error = np.abs(got.astype(int) - expected)[~special]
    loss = event["totals"]["loss"]
    assert error.max() <= 2 and loss["error_max"] == error.max() and abs(loss["sum_bias"]) < 2e-3
    assert event["totals"]["bits_per_pixel"] < 0.5, "2.4 bits without loss"
    program("check", home, check=0)
    with h5py.File(home) as file:
        assert "travel" in file["/entry/konkordia/configuration"][()].decode()
        assert file["/entry/konkordia/repack/source"][()].decode() == bench.master.name
    fabio = pytest.importorskip("fabio")
    with fabio.open(str(home)) as series:
        assert (series.get_frame(3).data == got[3]).all()
    silx = pytest.importorskip("silx.io")
    with silx.open(f"silx:{home}::/entry/data/images") as stack:
        assert (np.asarray(stack[4]) == got[4]).all()
    done = program("receive", config, check=6)
    assert "exist" in done.stderr


def test_an_archive_copy_is_refused_before_the_run(bench):
    for table, said in [({"enabled": True}, "raw"), ({"enabled": True, "error_bound": 0}, "error_bound")]:
        done = program("config", "check", bench.config(**raw_tables(), travel=table), check=3)
        assert said in done.stderr, done.stderr
