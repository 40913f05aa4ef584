"""`konkordia analyse --reflections`: the spots of all images as a reflection table of DIALS, read with msgpack from PyPI. What
DIALS makes of it is in test_indexing_dials.py."""

import json

import msgpack
import numpy as np
from driving import program
from test_analyse import DIALS, others_file, recipe, synthetic
from test_indexing_dials import rotation

NUMBERS = {"int": ("i4", 1), "int6": ("i4", 6), "std::size_t": ("u8", 1), "double": ("f8", 1), "vec3<double>": ("f8", 3)}


def table(path):
    name, version, content = msgpack.unpackb(path.read_bytes(), strict_map_key=False)
    assert (name, version, content["identifiers"]) == ("dials::af::reflection_table", 1, {})
    columns = {}
    for column, (number, (rows, data)) in content["data"].items():
        dtype, length = NUMBERS[number]
        assert rows == content["nrows"] and len(data) == rows * length * np.dtype(dtype).itemsize
        columns[column] = np.frombuffer(data, "<" + dtype).reshape(rows, length)
    return columns


def analysed(file, by, path, *options):
    """The table, and the spots of each image."""
    done = program("analyse", file, "--recipe", by, "--json", "--reflections", path, *options, check=0, timeout=120)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return table(path), [line["spots"] for line in lines if line["event"] == "image"]


def test_each_still_is_an_experiment(tmp_path):
    stack, _ = synthetic()
    file = others_file(tmp_path / "a.h5", stack.astype("uint16"))
    columns, images = analysed(file, recipe(tmp_path, spots=DIALS), tmp_path / "a.refl")
    counts = [len(spots["x_px"]) for spots in images]
    numbers = np.repeat(np.arange(len(images)), counts)
    assert sum(counts) > 10 and (columns["flags"] == 32).all() and not columns["panel"].any()
    assert columns["id"][:, 0].tolist() == columns["imageset_id"][:, 0].tolist() == numbers.tolist()
    place = np.column_stack([np.concatenate([spots[name] for spots in images]) for name in ("x_px", "y_px")])
    assert (columns["xyzobs.px.value"] == np.column_stack([place, numbers]) + 0.5).all()
    intensity = np.concatenate([spots["intensity"] for spots in images])
    assert np.allclose(columns["intensity.sum.value"][:, 0], intensity) and (columns["intensity.sum.variance"] >= 1).all()
    x0, x1, y0, y1, z0, z1 = columns["bbox"].T
    x, y, z = columns["xyzobs.px.value"].T
    assert ((x0 < x) & (x < x1) & (y0 < y) & (y < y1) & (z0 + 0.5 == z) & (z1 == z0 + 1)).all()
    assert (columns["n_signal"][:, 0] <= (x1 - x0) * (y1 - y0)).all()


def test_a_rotation_joins_what_consecutive_images_show(tmp_path):
    master, by = rotation(tmp_path), recipe(tmp_path, spots=DIALS)
    columns, images = analysed(master, by, tmp_path / "a.refl")
    spots = sum(len(spots["x_px"]) for spots in images)
    x0, x1, y0, y1, z0, z1 = columns["bbox"].T
    assert len(z0) < 0.5 * spots and ((z1 - z0) > 1).mean() > 0.5 and not columns["id"].any()
    assert (z0.min(), z1.max()) == (0, 40)
    x, y, z = columns["xyzobs.px.value"].T
    assert ((x0 < x) & (x < x1) & (y0 < y) & (y < y1) & (z0 < z) & (z < z1)).all()
    # No spot is lost or counted twice.
    assert np.isclose(columns["intensity.sum.value"].sum(), sum(sum(spots["intensity"]) for spots in images))
    assert (z1 - z0).sum() <= spots
    # As stills nothing is joined, and a part of the images keeps their numbers.
    stills, _ = analysed(master, by, tmp_path / "s.refl", "--frames", "stills", "--images", "3:7")
    assert len(stills["id"]) == sum(len(spots["x_px"]) for spots in images[3:8])
    assert np.unique(stills["id"]).tolist() == [3, 4, 5, 6, 7]


def test_what_cannot_be_written_is_said_at_once(tmp_path):
    stack, _ = synthetic()
    file = others_file(tmp_path / "a.h5", stack.astype("uint16"))
    by, there = recipe(tmp_path, spots=DIALS), tmp_path / "there.refl"
    there.write_text("mine")
    for path, code, words in [(there, 2, "the file exists"), (tmp_path / "no/such/a.refl", 6, "cannot create")]:
        refused = program("analyse", file, "--recipe", by, "--reflections", path, check=code)
        assert words in refused.stderr and "analysed" not in refused.stdout, refused.stderr
    assert there.read_text() == "mine"
    none = recipe(tmp_path, above={"level": 3})
    assert "no spots" in program("analyse", file, "--recipe", none, "--reflections", tmp_path / "b.refl", check=2).stderr
    assert "--reflections" in program("analyse", file, "--frames", "stills", check=2).stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.h5", "other.toml", "there.refl"], "nothing is left behind"
