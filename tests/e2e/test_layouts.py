"""`konkordia repack --layout`: the same run in one file, apart, in pieces, and by one kind of pointer, read by h5py with
the drivers of HDF5."""

import json
import os
import shutil
import signal
import subprocess
import time

import h5py
import hdf5plugin  # noqa: F401 (registers the filters)
import numpy as np
import pytest
from driving import BINARY, program
from others_files import dectris_legacy

PIECE = 300_000


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    """The master of a run of 1010 images in two data files."""
    folder = tmp_path_factory.mktemp("ours") / "run"
    program("demo", "--images", 1010, "--dir", folder, "--listen", "127.0.0.1:0", check=0, timeout=180)
    return folder / "demo_master.h5"


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    return dectris_legacy(tmp_path_factory.mktemp("theirs"))[0]


def images(master):
    with h5py.File(master) as file:
        data = file["/entry/data"]
        return np.concatenate([data[name][()] for name in sorted(data) if name.startswith("data_")])


def opened(stem, layout, piece_bytes=None):
    """As h5py opens it."""
    if layout == "single":
        return h5py.File(f"{stem}.h5")
    ext = {"meta_ext": b".meta.h5", "raw_ext": b".raw_1.h5"}
    if layout == "family":
        raw = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
        raw.set_fapl_family(piece_bytes, h5py.h5p.create(h5py.h5p.FILE_ACCESS))
        ext |= {"raw_ext": b".raw_%%d.h5", "raw_plist_id": raw}
    return h5py.File(str(stem), driver="split", **ext)


def changed(source, folder, layout, *more):
    folder.mkdir(exist_ok=True)
    options = ["--piece-size", PIECE] if layout == "family" else []
    return json.loads(program("repack", source, "-o", folder, "--layout", layout, *options, *more, "--json", check=0, timeout=180).stdout)


@pytest.mark.parametrize("layout", ["single", "split", "family"])
@pytest.mark.parametrize("whose", ["ours", "theirs"])
def test_there_and_back(request, tmp_path, whose, layout):
    source = request.getfixturevalue(whose)
    prefix = source.name.removesuffix("_master.h5")
    expected = images(source)
    done = changed(source, tmp_path / "out", layout)
    assert done["images"] == len(expected) and done["verified"]
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    if layout == "single":
        assert names == [f"{prefix}.h5"]
    else:
        assert names[0] == f"{prefix}.meta.h5" and f"{prefix}.raw_1.h5" in names and "%" not in "".join(names)
        assert len(names) == 2 if layout == "split" else names[1] == f"{prefix}.raw_0.h5"
    if layout == "family" and whose == "ours":
        pieces = sorted((tmp_path / "out").glob("*.raw_*.h5"), key=lambda path: int(path.stem.split("_")[-1]))
        sizes = [path.stat().st_size for path in pieces]
        assert sizes[0] == 0 and len(sizes) > 3 and set(sizes[1:-1]) == {PIECE} and 0 < sizes[-1] <= PIECE
    with opened(tmp_path / "out" / prefix, layout, done["piece_bytes"]) as file, h5py.File(source) as before:
        assert np.array_equal(file["/entry/data/data"][()], expected)
        assert file["/entry/data"].attrs["signal"] in ("data", b"data")
        assert sorted(file["/entry/instrument/detector"]) == sorted(before["/entry/instrument/detector"])
        if whose == "ours":
            columns = before["/entry/konkordia/images"]
            assert all(np.array_equal(file["/entry/konkordia/images"][name][()], columns[name][()]) for name in columns)
    # And the way that is printed for people does what it says.
    said = {}
    exec(f"import h5py\nopened = None\n{done['h5py'].replace('h5py.File(', 'opened = h5py.File(', 1)}", said)
    with said["opened"] as file:
        assert np.array_equal(file["/entry/data/data"][-1], expected[-1])
    back = tmp_path / "back"
    main = tmp_path / "out" / (f"{prefix}.h5" if layout == "single" else f"{prefix}.meta.h5")
    again = changed(main, back, "single")
    assert again["images"] == len(expected)
    with h5py.File(back / f"{prefix}.h5") as file:
        assert np.array_equal(file["/entry/data/data"][()], expected)


@pytest.mark.parametrize("layout", ["single", "split", "family"])
def test_one_source_makes_the_same_bytes_each_time(theirs, tmp_path, layout):
    changed(theirs, tmp_path / "a", layout)
    time.sleep(1.1)
    changed(theirs, tmp_path / "b", layout)
    made = [{path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("a", "b")]
    assert made[0] == made[1]


def test_the_structure_is_enough(ours, tmp_path):
    for layout in ("split", "family"):
        folder = tmp_path / layout
        changed(ours, folder, layout)
        meta = folder / "demo.meta.h5"
        whole = json.loads(program("inspect", meta, "--json", check=0).stdout)
        assert whole["images"] == 1010
        program("check", meta, check=0)
        image = json.loads(program("inspect", meta, "--image", 1005, "--json", check=0).stdout)["image"]
        same = json.loads(program("inspect", ours, "--image", 1005, "--json", check=0).stdout)["image"]
        assert image == same
        for path in folder.glob("*.raw_*.h5"):
            path.unlink()
        alone = json.loads(program("inspect", meta, "--json", check=0).stdout)
        assert alone == whole
        assert "not here" in program("inspect", meta, check=0).stdout
        structure = program("check", meta, "--structure", check=0).stdout
        assert "no image was read" in structure
        missing = program("check", meta, check=1).stdout
        assert "the file with the pixels is missing" in missing and "demo.raw_1.h5" in missing and "--structure" in missing
        # h5py opens it too, by the split driver.
        with h5py.File(str(folder / "demo"), driver="split", meta_ext=b".meta.h5", raw_ext=b".raw_1.h5") as file:
            with h5py.File(ours) as before:
                assert file["/entry/data/data"].shape == before["/entry/data/images"].shape
                name = "/entry/instrument/detector/x_pixel_size"
                assert file[name][()] == before[name][()]
        failed = program("repack", meta, "-o", tmp_path, "--layout", "single")
        assert failed.returncode in (1, 6) and not (tmp_path / "demo.h5").exists()


@pytest.mark.parametrize("layout,names", [("vds", ["data"]), ("links", ["data_000001", "data_000002"])])
def test_masters_with_one_kind_of_pointer(ours, tmp_path, layout, names):
    out = tmp_path / layout
    done = changed(ours, out, layout, "--verify")
    assert done["verified"] and done["images"] == 1010
    with h5py.File(out / "demo_master.h5") as file:
        data = file["/entry/data"]
        assert sorted(name for name in data if name.startswith(("data", "images")) and "scal" not in name) == names
        assert data.attrs["signal"] in (names[0], names[0].encode())
        kinds = {type(data.get(name, getlink=True)) for name in names}
        assert kinds == ({h5py.HardLink} if layout == "vds" else {h5py.ExternalLink})
        assert data[names[0]].is_virtual == (layout == "vds")
        found = np.concatenate([data[name][()] for name in names])
    assert np.array_equal(found, images(ours))
    program("check", out / "demo_master.h5", check=0)
    # From one kind to the other, and into one file.
    other = "links" if layout == "vds" else "vds"
    changed(out / "demo_master.h5", tmp_path / "other", other)
    program("check", tmp_path / "other/demo_master.h5", check=0)
    changed(out / "demo_master.h5", tmp_path / "single", "single")
    with h5py.File(tmp_path / "single/demo.h5") as file:
        assert np.array_equal(file["/entry/data/data"][()], found)


def test_a_single_file_is_read_by_the_other_verbs(ours, tmp_path):
    changed(ours, tmp_path, "single")
    program("check", tmp_path / "demo.h5", check=0)
    summary = json.loads(program("inspect", tmp_path / "demo.h5", "--json", check=0).stdout)
    before = json.loads(program("inspect", ours, "--json", check=0).stdout)
    assert [summary[key] for key in ("images", "images_by_status")] == [before[key] for key in ("images", "images_by_status")]
    # A changed byte in it is found, and named.
    with h5py.File(tmp_path / "demo.h5") as file:
        info = file["/entry/data/data"].id.get_chunk_info(77)
    with open(tmp_path / "demo.h5", "r+b") as file:
        file.seek(info.byte_offset + info.size // 2)
        byte = file.read(1)
        file.seek(info.byte_offset + info.size // 2)
        file.write(bytes([byte[0] ^ 1]))
    assert "image 77" in program("check", tmp_path / "demo.h5", check=1).stdout


def test_what_is_refused(ours, theirs, tmp_path):
    def said(*arguments, code):
        return program("repack", *arguments, check=code).stderr

    out = tmp_path / "out"
    out.mkdir()
    assert "--compression with --layout" in said(ours, "-o", out, "--layout", "split", "--compression", "gzip", code=2)
    assert "--piece-size without" in said(ours, "-o", out, "--layout", "split", "--piece-size", "1G", code=2)
    assert "--delete-source with --layout" in said(ours, "-o", out, "--layout", "single", "--delete-source", code=2)
    assert "a number of bytes" in said(ours, "-o", out, "--layout", "family", "--piece-size", "12", code=2)
    assert "required" in said(ours, "-o", out, code=2)
    (out / "demo.raw_1.h5").write_bytes(b"x")
    assert "demo.raw_1.h5 exists" in said(ours, "-o", out, "--layout", "split", code=6)
    assert sorted(path.name for path in out.iterdir()) == ["demo.raw_1.h5"]
    half = tmp_path / "half"
    shutil.copytree(theirs.parent, half)
    (half / "series_5_data_000002.h5").unlink()
    said(half / theirs.name, "-o", out, "--layout", "single", code=6)
    more = tmp_path / "more"
    shutil.copytree(theirs.parent, more)
    with h5py.File(more / "series_5_data_000002.h5", "a") as file:
        file["entry/extra"] = 7
    assert "holds /entry/extra, which the master has not" in said(more / theirs.name, "-o", out, "--layout", "single", code=3)
    large = tmp_path / "large.h5"
    with h5py.File(large, "w") as file:
        pixels = np.random.default_rng(1).integers(0, 60000, (20, 512, 512)).astype(np.uint16)
        file.create_dataset("entry/data/data", data=pixels, chunks=(1, 512, 512))
    percent = tmp_path / "100%s"
    percent.mkdir()
    assert "its path has a '%'" in said(theirs, "-o", percent, "--layout", "family", code=2)
    assert list(percent.iterdir()) == []
    many = said(large, "-o", tmp_path / "many", "--layout", "family", "--piece-size", "4096", code=2)
    assert "would become" in many and "give --piece-size 1M or more" in many


def test_a_full_disk_and_ctrl_c_leave_nothing(ours, small_disk, tmp_path):
    noise = tmp_path / "noise.h5"
    with h5py.File(noise, "w") as file:
        pixels = np.random.default_rng(1).integers(0, 60000, (30, 1024, 1024)).astype(np.uint16)
        file.create_dataset("entry/data/data", data=pixels, chunks=(1, 1024, 1024))
    for layout in ("single", "split", "family"):
        failed = program("repack", noise, "-o", small_disk, "--layout", layout, check=6)
        assert "No space left" in failed.stderr or "no space" in failed.stderr.lower(), failed.stderr
        assert list(small_disk.iterdir()) == []
    target = tmp_path / "stopped"
    target.mkdir()
    command = [BINARY, "repack", str(noise), "-o", str(target), "--layout", "family", "--piece-size", "100000", "--quiet"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not list(target.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.001)
    process.send_signal(signal.SIGINT)
    _, text = process.communicate(timeout=60)
    assert process.returncode == 130 and "nothing is left" in text
    assert os.listdir(target) == []
