"""The benches verify their own output. These tests only check that they run, report this, and write what was asked for;
no test judges a speed."""

import json

from driving import program


def run(which, *more):
    return json.loads(program("bench", which, "--seconds", "0.01", "--json", *more, check=0).stdout)


def test_kernels_and_steps():
    report = run("kernels")
    assert report["verified"]
    for part in ("rows", "steps", "double_pixels", "codecs"):
        assert report[part] and all(row["verified"] and row["gigabytes_raw_per_second"] > 0 for row in report[part])


def test_bits_per_pixel_against_rounding():
    rows = run("table2")["bits_per_pixel"]
    assert [row["rounding_photons"] for row in rows] == [0.125, 0.25, 0.5, 1, 2, 4, 8]
    for codec in ("bslz4", "bszstd"):
        bits = [row[codec] for row in rows]
        assert bits == sorted(bits, reverse=True) and 0 < bits[-1] < bits[0] < 16
    assert all(row["verified"] for row in rows)


def test_writing_rates():
    rows = run("table4")["writing"]
    assert [row["codec"] for row in rows] == ["none", "lz4", "bslz4", "zstd", "bszstd", "gzip"]
    assert all(row["verified"] and row["images_per_second"] > 0 for row in rows)
    assert rows[0]["bits_per_pixel"] == 16


def test_roofline_draws_and_repeats_the_figures_of_the_paper(tmp_path):
    picture = tmp_path / "roofline.png"
    report = run("roofline", "--png", picture)
    assert report["verified"] and all(row["verified"] for row in report["rows"])
    needs = {need["name"]: need["gigabytes_per_second"] for need in report["needs"] if need["paper"]}
    assert sorted(round(value) for value in needs.values()) == [129, 166, 646, 830]
    assert picture.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    refused = program("bench", "roofline", "--png", tmp_path / "roofline.pdf", check=2)
    assert "PNG" in refused.stderr
