"""`konkordia archive`: bags that the reference program of BagIt accepts, rot that is named down to the image, full disks,
Ctrl-C, and the way back."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import time

import bagit
import h5py
import hdf5plugin
import numpy as np
import pytest
from driving import BINARY, program
from others_files import dectris_legacy


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A folder with a run of ours (two data files), a series of DECTRIS, notes, and HDF5 without images."""
    folder = tmp_path_factory.mktemp("runs")
    program("demo", "--images", 1010, "--dir", folder / "ours", "--listen", "127.0.0.1:0", check=0, timeout=180)
    (folder / "other").mkdir()
    dectris_legacy(folder / "other")
    (folder / "notes ä.txt").write_text("crystal 7 was the good one\n")
    with h5py.File(folder / "calibration.h5", "w") as file:
        file["gain"] = np.arange(10.0)
    return folder


@pytest.fixture(scope="module")
def bag(runs, tmp_path_factory):
    bag = tmp_path_factory.mktemp("bags") / "lyso.bag"
    made = program(
        "archive", runs, "-o", bag, "--license", "CC-BY-4.0", "--keep-until", "2036-12-31", "--date", "2026-11-29",
        "--info", "Source-Organization: MAX IV Laboratory", "--json", check=0, timeout=300,
    )
    report = json.loads(made.stdout)
    assert report["images"] == 1010 + 7 and report["chunks"] == 1010 + 7 and report["packing"] == "bszstd level 1"
    assert {entry["file"]: entry["why"] for entry in report["copied"]} == {
        "data/notes ä.txt": "no HDF5", "data/calibration.h5": "no images",
    } | {f"data/{path.relative_to(runs)}": "no HDF5" for path in (runs / "ours").rglob("*") if path.is_file() and path.suffix != ".h5"}
    return bag


@pytest.fixture
def copy(bag, tmp_path):
    return shutil.copytree(bag, tmp_path / "copy.bag")


def everything(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def check(bag, code):
    return json.loads(program("archive", "--check", bag, "--json", check=code, timeout=120).stdout)


def pixels(path, name="/entry/data/data"):
    with h5py.File(path) as file:
        return file[name][()]


def flip(path, at):
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 0x40]))


def test_the_reference_program_accepts_the_bag(bag, runs):
    theirs = bagit.Bag(str(bag))
    assert theirs.validate() and theirs.is_valid()
    assert theirs.info["License"] == "CC-BY-4.0" and theirs.info["Retention-Until"] == "2036-12-31"
    assert theirs.info["Bagging-Date"] == "2026-11-29" and theirs.info["Source-Organization"] == "MAX IV Laboratory"
    assert theirs.version_info == (1, 0) and "Payload-Oxum" in theirs.info
    with open(bag / "manifest-sha256.txt", "rb") as manifest:
        done = subprocess.run(["sha256sum", "--check", "--quiet"], cwd=bag, stdin=manifest, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    account = json.loads((bag / "provenance.json").read_text())
    files = {entry["source"]: entry for entry in account["files"]}
    for source in (path for path in runs.rglob("*") if path.is_file()):
        entry = files.pop(str(source.relative_to(runs)))
        assert entry["source_sha256"] == hashlib.sha256(source.read_bytes()).hexdigest()
        assert entry["sha256"] == hashlib.sha256((bag / entry["file"]).read_bytes()).hexdigest()
    assert files == {} and account["software"].startswith("konkordia ")
    for name in ("README.txt", "FORMAT.md", "reader.c"):
        assert (bag / name).stat().st_size > 500
    assert check(bag, 0)["damages"] == []


def test_every_pixel_and_the_licence_are_in_the_files(bag, runs):
    for number in (1, 2):
        name = f"ours/demo_data_{number:06d}.h5"
        assert np.array_equal(pixels(bag / "data" / name), pixels(runs / name))
    with h5py.File(bag / "data/other/series_5_master.h5") as now, h5py.File(runs / "other/series_5_master.h5") as before:
        for n in (1, 2, 3):
            assert np.array_equal(now[f"entry/data/data_{n:06d}"][()], before[f"entry/data/data_{n:06d}"][()])
        assert now["entry/konkordia/repack/license"][()] == b"CC-BY-4.0"
        assert now["entry/konkordia/repack/keep_until"][()] == b"2036-12-31"
    with h5py.File(bag / "data/ours/demo_data_000001.h5") as file:
        assert file["entry/data/data"].id.get_create_plist().get_filter(0)[0] == 32008
        assert file["entry/konkordia/repack/license"][()] == b"CC-BY-4.0"
    program("check", bag / "data/ours/demo_master.h5", check=0)


def test_two_runs_make_the_same_bytes(runs, tmp_path):
    small = tmp_path / "small"
    shutil.copytree(runs / "other", small / "other")
    (small / "notes.txt").write_text("x")
    for name in ("a.bag", "b.bag"):
        program("archive", small, "-o", tmp_path / name, "--quiet", check=0)
        time.sleep(1.1)
    assert everything(tmp_path / "a.bag") == everything(tmp_path / "b.bag")
    newest = max(path.stat().st_mtime for path in small.rglob("*") if path.is_file())
    info = (tmp_path / "a.bag/bag-info.txt").read_text()
    assert f"Bagging-Date: {time.strftime('%Y-%m-%d', time.gmtime(newest))}" in info


def chunk_places(path, name="/entry/data/data"):
    with h5py.File(path) as file:
        stack = file[name].id
        return {info.chunk_offset[0]: (info.byte_offset, info.size) for info in map(stack.get_chunk_info, range(stack.get_num_chunks()))}


def test_rot_is_named_down_to_the_image(copy):
    data = copy / "data/ours/demo_data_000001.h5"
    places = chunk_places(data)
    for image in (0, 417, 999):
        offset, size = places[image]
        flip(data, offset + size // 2)
    [mask] = [path for path in (copy / "data/other").glob("*_master.h5")]
    flip(mask, mask.stat().st_size // 2)
    report = check(copy, 1)
    named = {(entry["file"], entry["dataset"], entry["image"]) for entry in report["damages"]}
    stack = "/entry/data/data"
    assert named == {
        ("data/ours/demo_data_000001.h5", stack, "0"), ("data/ours/demo_data_000001.h5", stack, "417"),
        ("data/ours/demo_data_000001.h5", stack, "999"), ("data/other/series_5_master.h5", None, None),
    }
    with pytest.raises(bagit.BagValidationError):
        bagit.Bag(str(copy)).validate()
    said = program("archive", "--check", copy, check=1).stdout
    assert "data/ours/demo_data_000001.h5 /entry/data/data image 417" in said and "fix:" in said


def truncated(copy):
    path = copy / "data/ours/demo_data_000002.h5"
    os.truncate(path, path.stat().st_size - 100_000)


def missing(copy):
    (copy / "data/notes ä.txt").unlink()


def added(copy):
    (copy / "data/new.txt").write_text("x")


def changed_note(copy):
    flip(copy / "data/notes ä.txt", 3)


def changed_manifest(copy):
    text = (copy / "manifest-sha256.txt").read_text()
    (copy / "manifest-sha256.txt").write_text(text.replace("a", "b", 1))


def changed_info(copy):
    with open(copy / "bag-info.txt", "a") as file:
        file.write("License: none\n")


@pytest.mark.parametrize("damage", [truncated, missing, added, changed_note, changed_manifest, changed_info])
def test_what_the_reference_program_notices_is_noticed(copy, damage):
    assert bagit.Bag(str(copy)).is_valid() and check(copy, 0)["whole"]
    damage(copy)
    with pytest.raises(bagit.BagError):
        bagit.Bag(str(copy)).validate()
    report = check(copy, 1)
    assert not report["whole"] and report["damages"]


def test_bags_of_the_reference_program_are_read(tmp_path):
    folder = tmp_path / "theirs"
    folder.mkdir()
    (folder / "a.txt").write_text("abc")
    (folder / "b%c.txt").write_text("d")
    bagit.make_bag(str(folder), {"Contact-Name": "Ada"}, checksums=["sha256"])
    assert check(folder, 0)["whole"]
    program("archive", "--restore", folder, "-o", tmp_path / "out", check=0)
    assert everything(tmp_path / "out") == {path.relative_to(folder / "data"): path.read_bytes() for path in (folder / "data").iterdir()}
    (folder / "data/a.txt").write_text("abd")
    assert [entry["file"] for entry in check(folder, 1)["damages"]] == ["data/a.txt"]


def test_the_way_back(copy, runs, tmp_path):
    out = tmp_path / "deep" / "runs"
    program("archive", "--restore", copy, "-o", out, check=0)
    assert everything(out) == everything(copy / "data")
    program("check", out / "ours/demo_master.h5", check=0)
    assert np.array_equal(pixels(out / "ours/demo_data_000002.h5"), pixels(runs / "ours/demo_data_000002.h5"))
    again = json.loads(program("archive", "--restore", copy, "-o", out, "--json", check=0).stdout)["restored"]
    assert again["files"] == 0 and again["kept"] == len(everything(out))
    # A damaged file is named and left out, the others come back.
    flip(copy / "data/ours/demo_data_000002.h5", chunk_places(copy / "data/ours/demo_data_000002.h5")[3][0] + 20)
    said = program("archive", "--restore", copy, "-o", tmp_path / "second", check=1).stdout
    assert "demo_data_000002.h5 /entry/data/data image 3" in said
    assert not (tmp_path / "second/ours/demo_data_000002.h5").exists()
    assert (tmp_path / "second/ours/demo_data_000001.h5").exists()


def test_a_full_disk_leaves_an_unfinished_bag_that_goes_on(runs, small_disk, tmp_path):
    source = tmp_path / "noise"
    source.mkdir()
    noise = np.random.default_rng(1).integers(0, 60000, (30, 1024, 1024)).astype(np.uint16)
    with h5py.File(source / "noise.h5", "w") as file:
        file.create_dataset("entry/data/data", data=noise, chunks=(1, 1024, 1024), **hdf5plugin.Bitshuffle(nelems=0, cname="lz4"))
    bag = small_disk / "full.bag"
    failed = program("archive", source, "-o", bag, check=6)
    assert "No space left" in failed.stderr and "free some space" in failed.stderr
    assert not bag.exists()
    assert [path.name for path in small_disk.rglob("*.h5")] == [], "nothing half-written has its name"
    # With room it goes on: the folder of the unfinished bag is moved to a larger disk.
    larger = tmp_path / "larger"
    larger.mkdir()
    shutil.copytree(small_disk / ".full.bag.part", larger / ".full.bag.part")
    program("archive", source, "-o", larger / "full.bag", check=0)
    assert check(larger / "full.bag", 0)["whole"]
    # The way back to a full disk leaves nothing half-written either.
    failed = program("archive", "--restore", larger / "full.bag", "-o", small_disk / "out", check=6)
    assert "No space left" in failed.stderr
    assert list((small_disk / "out").rglob("*.h5")) == []


def test_ctrl_c_and_on(runs, bag, tmp_path):
    target = tmp_path / "stopped.bag"
    arguments = [
        "archive", runs, "-o", target, "--license", "CC-BY-4.0", "--keep-until", "2036-12-31", "--date", "2026-11-29",
        "--info", "Source-Organization: MAX IV Laboratory", "--workers", "1", "--quiet",
    ]
    process = subprocess.Popen([BINARY, *map(str, arguments)], stderr=subprocess.PIPE, text=True)
    part = tmp_path / ".stopped.bag.part/data/ours"
    deadline = time.monotonic() + 60
    while not list(part.glob(".*.part")) and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130 and "goes on from there" in said
    assert not target.exists()
    refused = program(*arguments, "--level", "3", check=5)
    assert "begun with bszstd level 1, not with bszstd level 3" in refused.stderr
    program(*arguments, check=0, timeout=300)
    assert everything(target) == everything(bag), "as if nothing had happened"


def test_the_level_that_a_budget_allows(runs, tmp_path):
    for budget, level in ((1e-6, "1"), (1e9, "19")):
        small = tmp_path / f"small{level}"
        shutil.copytree(runs / "other", small)
        bag = tmp_path / f"{level}.bag"
        made = json.loads(program("archive", small, "-o", bag, "--cpu-s-per-gb", budget, "--json", check=0).stdout)
        assert made["packing"] == f"bszstd level {level}"
        assert check(bag, 0)["whole"]


def test_what_is_refused(runs, tmp_path):
    def said(*arguments, code):
        return program("archive", *arguments, check=code).stderr

    out = tmp_path / "out.bag"
    assert "is not a date" in said(runs, "-o", out, "--keep-until", "31.12.2036", code=2)
    assert "is not a field" in said(runs, "-o", out, "--info", "nothing", code=2)
    assert '"sz3" is not a compression' in said(runs, "-o", out, "--compression", "sz3", code=2)
    assert "is not a folder" in said(runs / "notes ä.txt", "-o", out, code=2)
    assert "is not a bag" in said("--check", runs, code=3)
    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / "link").symlink_to(runs / "calibration.h5")
    assert "it is a link" in said(linked, "-o", out, code=3)
    damaged = tmp_path / "damaged"
    shutil.copytree(runs / "ours", damaged)
    offset, size = chunk_places(damaged / "demo_data_000002.h5")[5]
    flip(damaged / "demo_data_000002.h5", offset + size // 2)
    assert "image 5 of" in said(damaged, "-o", out, code=1), "what is damaged already does not go into an archive unseen"
    growing = tmp_path / "growing"
    shutil.copytree(runs / "ours", growing)
    (growing / "demo_data_000002.h5.journal").write_bytes(b"x" * 100)
    assert "journal" in said(growing, "-o", out, code=1)
    evil = tmp_path / "evil"
    shutil.copytree(runs / "other", evil / "data")
    bagit_txt = "BagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-8\n"
    (evil / "bagit.txt").write_text(bagit_txt)
    (evil / "manifest-sha256.txt").write_text(f"{'0' * 64}  data/../../../../etc/passwd\n")
    assert "leads out of the bag" in said("--check", evil, code=3)
    assert not out.exists()
