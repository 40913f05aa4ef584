"""Spots that are found among those that the simulator knows, through packets, conversion and file."""

import json
import socket

import pytest
from driving import program
from scripts_of_ours import script


@pytest.fixture(scope="module")
def recall():
    return script("recall")


def test_strong_reflections_are_found_and_empty_images_are_empty(tmp_path, monkeypatch, recall):
    monkeypatch.setattr(recall, "STRENGTHS", [0, 2500])
    monkeypatch.setattr(recall, "BACKGROUNDS", [1.0])
    figures = recall.study(6, tmp_path)
    for method in recall.RECIPES:
        of = {row["photons_from"]: row for row in figures["recall"] if row["method"] == method}
        assert sum(row["reflections"] for row in of.values()) > 1000
        for photons in (120, 200, 400, 1000):
            assert of[photons]["found"] >= 0.97 * of[photons]["reflections"] > 30, (method, photons, of[photons])
        assert of[10]["found"] < 0.05 * of[10]["reflections"], "nobody sees ten photons on such a background"
        empty, crystal = (next(row for row in figures["hits"] if (row["method"], row["spot_photons"]) == (method, n)) for n in (0, 2500))
        assert (empty["hits"], crystal["hits"]) == (0, 6) and max(empty["false_per_image"], crystal["false_per_image"]) <= 1.0, (empty, crystal)


def test_the_page_has_the_tables_of_the_record(recall):
    figures = json.loads(recall.RECORD.read_text())
    assert recall.parts(recall.PAGE.read_text())[1] == recall.tables(figures)


def test_dark_frames_have_no_reflections(tmp_path):
    truth = tmp_path / "spots.json"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sink:
        sink.bind(("127.0.0.1", 0))
        to = f"127.0.0.1:{sink.getsockname()[1]}"
        program("simulate", "jungfrau", "--to", to, "--images", 2, "--dark", "--write-spots", truth, "-q", check=0)
    assert json.loads(truth.read_text())["images"] == [[], []]
