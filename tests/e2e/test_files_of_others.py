"""`konkordia inspect` and `konkordia check` on files of other programs, and pictures of images."""

import json
import shutil

import h5py
import numpy as np
import pytest
from PIL import Image

from driving import program
from others_files import dectris_legacy


@pytest.fixture()
def dectris(tmp_path):
    master, frames = dectris_legacy(tmp_path)
    with h5py.File(master, "r+") as file:
        beam = file.create_group("entry/instrument/beam")
        beam["incident_wavelength"] = 1.0
        detector = file["entry/instrument/detector"]
        detector["beam_center_x"], detector["beam_center_y"] = 60.5, 33.25
        detector["detector_distance"] = 150.0
        detector["detector_distance"].attrs["units"] = "mm"
    return master, frames


def test_inspect_tells_what_a_dectris_master_says(dectris):
    master, frames = dectris
    said = program("inspect", master, "--image", 4, check=0).stdout
    for words in ("another program", "12.3984 keV", "150 mm", "column 60.5, row 33.25", "75 um", "3 images of 75 x 130 pixels", "uint16, bslz4"):
        assert words in said, said
    value = json.loads(program("inspect", master, "--image", 4, "--json", check=0).stdout)
    good = frames[4][frames[4] < 65535]
    assert value["image"]["sum"] == good.sum() and value["image"]["valid"] == good.size and value["image"]["saturated"] == 130
    assert value["images"] == 7 and [stack["first_image"] for stack in value["stacks"]] == [0, 3, 6]
    # A data file alone counts from its own first image.
    one = json.loads(program("inspect", master.parent / "series_5_data_000002.h5", "--image", 0, "--json", check=0).stdout)
    assert one["image"]["sum"] == frames[3][frames[3] < 65535].sum()
    refused = program("inspect", master, "--image", 7, check=3).stderr
    assert "7 images, counted from 0" in refused


@pytest.mark.parametrize("codec", ["bslz4", "lz4", "gzip", "none"])
def test_check_reads_every_image_of_a_dectris_series(tmp_path, codec):
    master, _ = dectris_legacy(tmp_path, codec=codec)
    done = program("check", master, check=0)
    assert "is whole and valid" in done.stdout and "7 images" in done.stdout
    assert "not known: photon energy, detector distance, beam centre" in done.stdout


def test_check_names_what_is_damaged_or_missing_in_files_of_others(dectris, tmp_path):
    master, _ = dectris
    part = tmp_path / "series_5_data_000002.h5"
    whole = part.read_bytes()
    with h5py.File(part) as file:
        where = file["entry/data/data"].id.get_chunk_info(1)
    # Overwrites the 12 bytes of lengths at the beginning of a bslz4 chunk and some of its data.
    damaged = bytearray(whole)
    damaged[where.byte_offset : where.byte_offset + 40] = b"\xff" * 40
    part.write_bytes(damaged)
    done = program("check", master, "--json", check=1)
    findings = json.loads(done.stdout)["findings"]
    assert [f["severity"] for f in findings] == ["error"] and "image 1" in findings[0]["place"] and part.name in findings[0]["place"]
    part.unlink()
    done = program("check", master, check=1)
    assert "missing" in done.stdout and part.name in done.stdout and "bring the file back" in done.stdout
    # Images that were never written are no error of the file, but the series is not complete.
    part.write_bytes(whole)
    with h5py.File(part, "r+") as file:
        file["entry/data/data"].resize(5, axis=0)
    done = program("check", master, check=0)
    assert "2 of 5 images were never written" in done.stdout and "NOT every image is complete" in done.stdout
    assert "was never written" in program("inspect", master, "--image", 6, check=1).stderr


def test_a_master_of_which_every_data_file_is_away(dectris, tmp_path):
    master, _ = dectris
    away = tmp_path / "away"
    away.mkdir()
    alone = shutil.copy(master, away)
    done = program("check", alone, check=1)
    assert done.stdout.count("is missing") == 3, done.stdout
    assert "images       0" in program("inspect", alone, check=0).stdout


def test_pictures_of_images(dectris, tmp_path):
    master, frames = dectris
    picture = tmp_path / "image.png"
    program("inspect", master, "--image", 2, "--png", picture, check=0)
    drawn = np.asarray(Image.open(picture).convert("RGB")).astype(int)
    assert drawn.shape[:2] == frames.shape[1:]
    brightness = drawn.sum(axis=2)
    good = frames[2] < 65533
    assert (drawn[~good] == drawn[10, 0]).all(), "pixels that are no measurement have one colour"
    low, high = brightness[good & (frames[2] == 0)], brightness[good & (frames[2] >= 6)]
    assert low.size and high.size and low.max() < high.min(), "more counts are brighter"
    own = tmp_path / "run"
    program("demo", "--images", 2, "--dir", own, "--listen", "127.0.0.1:0", check=0)
    program("inspect", own / "demo_master.h5", "--png", tmp_path / "own.png", check=0)
    assert Image.open(tmp_path / "own.png").size == (1024, 512)
    refused = program("inspect", master, "--png", tmp_path / "image.jpg", check=2).stderr
    assert "PNG only" in refused


def test_what_is_no_file_of_images_is_named(tmp_path):
    text = tmp_path / "notes.h5"
    text.write_text("no HDF5")
    with h5py.File(tmp_path / "empty.h5", "w") as file:
        file["x"] = 1
    cut = tmp_path / "cut.h5"
    cut.write_bytes((tmp_path / "empty.h5").read_bytes()[:-200])
    for verb in ("inspect", "check"):
        for name, words in (("notes.h5", "does not begin as an HDF5 file"), ("empty.h5", "holds no images"), ("cut.h5", "cut short")):
            done = program(verb, tmp_path / name)
            said = done.stdout + done.stderr
            assert done.returncode in (1, 3, 6) and words in said and "libhdf5" not in said, (verb, name, said)
        done = program(verb, tmp_path / "none.h5", check=6)
        assert "No such file or directory" in done.stderr and "create" not in done.stderr and "os error" not in done.stderr
