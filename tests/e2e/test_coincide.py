"""Trigger numbers of several detectors, compared by `konkordia coincide`."""

import json

import pytest
from driving import program
from streams import Stins
from test_live_analysis import frames


def series(serve, folder, numbers, name):
    """A file of a stream whose images say the number of their pulse."""
    folder.mkdir()
    table = '[image_metadata]\npulse_id = "/pulse"\n'
    service = serve(extra=table, folder=folder)
    stins = Stins()
    service.send(stins.start())
    for n, (number, image) in enumerate(zip(numbers, frames(len(numbers)), strict=True)):
        service.send(stins.image(n, image, **({} if number is None else {"pulse": number})))
    service.send(stins.end())
    return service.file(1).path


@pytest.fixture
def files(tmp_path, serve):
    left = series(serve, tmp_path / "left", [1000, 1001, 1002, 1003, 1004, 1005], "left")
    right = series(serve, tmp_path / "right", [1000, 1002, None, 1004, 1004, 1005], "right")
    later = series(serve, tmp_path / "later", [1010, 1011, 1012, 1013, 1014], "later")
    return left, right, later


def test_numbers_that_do_not_coincide_are_named(files):
    left, right, later = files
    said = json.loads(program("coincide", left, right, "--by", "pulse_id", "--json", check=1).stdout)
    assert (said["numbers"], said["in_all_files"], said["all_coincide"]) == (6, 4, False)
    ours, theirs = said["files"]
    assert (ours["missing"], ours["repeated"], ours["without_number"], ours["shift"]) == (0, 0, 0, None)
    assert (theirs["missing"], theirs["missing_ranges"]) == (2, [[1001, 1001], [1003, 1003]])
    assert (theirs["repeated"], theirs["without_number"]) == (1, 1)
    text = program("coincide", left, right, "--by", "pulse_id", check=1).stdout
    assert "2 numbers of others are missing: 1001, 1003" in text and "4 of 6 numbers (pulse_id) are in all files" in text
    # One detector began to count elsewhere.
    said = json.loads(program("coincide", left, later, "--by", "pulse_id", "--json", check=1).stdout)
    assert said["files"][1]["shift"] == {"add": -10, "coincide": 5}
    # Frames are counted from 0, and the first one is there.
    said = json.loads(program("coincide", left, right, "--json", check=0).stdout)
    assert (said["by"], said["numbers"], said["all_coincide"]) == ("frame_number", 6, True)


def test_what_has_no_numbers_is_refused(files, tmp_path):
    left, right, _ = files
    done = program("coincide", left, right, "--by", "train", check=2)
    assert 'no column "train"' in done.stderr and "--by pulse_id" in done.stderr
    program("coincide", left, check=2)
    program("coincide", left, tmp_path / "none.h5", check=6)
