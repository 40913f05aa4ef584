"""`konkordia repack --compression spots`: spots stay, the background gets coarser; read by h5py with hdf5plugin."""

import bz2
import json

import h5py
import hdf5plugin  # noqa: F401  registers the filters
import numpy as np
import pytest

from driving import DATA, LYSO, needs_lyso, program

THAUMATIN = DATA / "thaumatin"
needs_thaumatin = pytest.mark.skipif(not THAUMATIN.is_dir(), reason=f"no real frames in {THAUMATIN}")

DISPERSION = '[spots]\nmethod = "dispersion"\n'


def stack_file(path, frames, mask=None):
    """A file with its images inside, as other programs write it."""
    with h5py.File(path, "w") as file:
        entry = file.create_group("entry")
        entry.attrs["NX_class"] = "NXentry"
        data = entry.create_group("data")
        data.attrs["NX_class"] = "NXdata"
        data.create_dataset("data", data=frames, chunks=(1, *frames.shape[1:]), **hdf5plugin.Bitshuffle(cname="lz4"))
        if mask is not None:
            detector = entry.create_group("instrument/detector")
            entry["instrument"].attrs["NX_class"], detector.attrs["NX_class"] = "NXinstrument", "NXdetector"
            detector["pixel_mask"] = mask.astype(np.uint32)
    return path


def crystals(dtype, images=3, mean=8):
    """Background with spots of 3 x 3 pixels, and a row of the highest value, which means masked in unsigned types."""
    rng = np.random.default_rng(7)
    frames = rng.poisson(mean, (images, 190, 211)).astype(dtype)
    for image in frames:
        for row, column in zip(rng.integers(5, 185, 6), rng.integers(5, 205, 6)):
            image[row - 1 : row + 2, column - 1 : column + 2] += rng.integers(60, 400, (3, 3)).astype(dtype)
    frames[:, 100] = np.iinfo(dtype).max
    if np.issubdtype(dtype, np.signedinteger):
        frames[:, 20], frames[:, 21] = -1, -2
    return frames


def pixels_of(path, name="/entry/data/data"):
    with h5py.File(path) as file:
        return file[name][()]


def spots_of(path, recipe):
    """The spots of each image as `analyse` finds them."""
    lines = program("analyse", path, "--recipe", recipe, "--json", check=None).stdout.splitlines()
    return [event["spots"] for event in map(json.loads, lines) if event["event"] == "image"]


def record_of(path):
    with h5py.File(path) as file:
        group = file["/entry/konkordia/repack"]
        return {name: group[name][()] for name in group}


@pytest.fixture
def recipe(tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_text(DISPERSION)
    return path


@pytest.mark.parametrize("dtype", [np.int16, np.uint16, np.int32, np.uint32])
@pytest.mark.parametrize("packed_with", ["bszstd", "bslz4"])
def test_spots_stay_and_the_report_says_what_was_lost(tmp_path, recipe, dtype, packed_with):
    frames = crystals(dtype)
    mask = np.zeros(frames.shape[1:], bool)
    mask[:, 50:60] = True
    source = stack_file(tmp_path / "run.h5", frames, mask)
    (tmp_path / "out").mkdir()
    done = program(
        "repack", source, "-o", tmp_path / "out", "--compression", "spots", "--packed-with", packed_with, "--recipe", recipe,
        "--verify", "--json", check=0
    )
    report = json.loads(done.stdout)
    loss, copy = report["totals"]["loss"], tmp_path / "out" / "run.h5"
    got = pixels_of(copy)
    error = got.astype(np.int64) - frames
    assert (error[:, mask] == 0).all() and (error[frames <= 0] == 0).all() and (error[:, 100] == 0).all()
    assert (error**2 <= np.maximum(frames.astype(np.int64), 0)).all(), "no pixel moves further than its Poisson error"
    assert (error != 0).mean() > 0.3 and abs(error.sum()) <= 3 * 4
    spots = spots_of(source, recipe)
    assert spots == spots_of(copy, recipe) and sum(image["found"] for image in spots) > 10
    for image, moved in zip(spots, error):
        for x, y in zip(image["x_px"], image["y_px"]):
            x, y = round(x), round(y)
            assert (moved[max(y - 11, 0) : y + 12, max(x - 11, 0) : x + 12] == 0).all(), "the surroundings of a spot"
    assert report["verified"] and loss["images_lossless"] == 0
    assert loss["spots"] == loss["spots_unchanged"] == sum(image["found"] for image in spots)
    assert (loss["error_max"], loss["pixels_changed"], loss["error_sum"]) == (abs(error).max(), (error != 0).sum(), error.sum())
    assert loss["error_sigma_max"] <= 1 and loss["error_per_pixel"] == pytest.approx(error.sum() / loss["pixels"])
    record = record_of(copy)
    assert record["compression"].decode().startswith("spots, background within 1 sigma, margin 11 px")
    assert record["chunk_bytes"] < record["chunk_bytes_lossless"] == loss["chunk_bytes_lossless"]
    assert record["image_stored"].tolist() == [0, 0, 0]
    assert record["image_spots"].tolist() == [image["found"] for image in spots]
    inspected = [json.loads(program("inspect", path, "--json", check=0).stdout)["losses"] for path in (source, copy)]
    assert inspected == [[], [record["compression"].decode()]]
    with h5py.File(copy) as file:
        assert file["/entry/data/data"].id.get_create_plist().get_filter(0)[0] == 32008


def test_any_number_of_threads_writes_the_same_bytes(tmp_path):
    source = stack_file(tmp_path / "run.h5", crystals(np.uint16, images=9))
    chunks = []
    for workers in [1, 3]:
        out = tmp_path / f"w{workers}"
        out.mkdir()
        program("repack", source, "-o", out, "--compression", "spots", "--workers", workers, check=0)
        with h5py.File(out / "run.h5") as file:
            stack = file["/entry/data/data"]
            chunks.append([stack.id.read_direct_chunk((n, 0, 0))[1] for n in range(9)])
    assert chunks[0] == chunks[1]


def test_images_that_cannot_be_changed_are_stored_as_they_are(tmp_path):
    frames = crystals(np.uint16)
    frames[1] = 0
    source = stack_file(tmp_path / "run.h5", frames)
    few = tmp_path / "few.toml"
    few.write_text(DISPERSION + "spots_max = 1\n")
    done = program("repack", source, "-o", tmp_path / "few.h5", "--compression", "spots", "--recipe", few, "--verify", check=0)
    assert "2 images stored without loss: they have more spots than spots_max" in done.stdout
    assert "1 images stored without loss: they would not have become smaller" in done.stdout
    assert np.array_equal(pixels_of(tmp_path / "few.h5"), frames)
    record = record_of(tmp_path / "few.h5")
    assert record["image_stored"].tolist() == [1, 3, 1] and record["images_lossless"] == 3
    assert record["pixels_changed"] == 0 and record["chunk_bytes"] == record["chunk_bytes_lossless"]


def test_an_image_that_was_never_written_stays_so(tmp_path):
    frames = crystals(np.uint16)
    source = stack_file(tmp_path / "run.h5", frames[:1])
    with h5py.File(source, "r+") as file:
        data = file["/entry/data"]
        del data["data"]
        stack = data.create_dataset("data", frames.shape, frames.dtype, chunks=(1, *frames.shape[1:]))
        stack[0], stack[2] = frames[0], frames[2]
    program("repack", source, "-o", tmp_path / "copy.h5", "--compression", "spots", "--verify", check=0)
    assert record_of(tmp_path / "copy.h5")["image_stored"].tolist() == [0, 4, 0]
    with h5py.File(tmp_path / "copy.h5") as file:
        assert file["/entry/data/data"].id.get_num_chunks() == 2 and not file["/entry/data/data"][1].any()


def refused(source, out, *options, code, words):
    done = program("repack", source, "-o", out, *options, check=code)
    assert all(word in done.stderr for word in words) and "fix:" in done.stderr, done.stderr
    assert not out.exists()


def test_mistakes_are_named(tmp_path, recipe):
    source, out = stack_file(tmp_path / "run.h5", crystals(np.uint16)), tmp_path / "copy.h5"
    spots = ["--compression", "spots"]
    for sigma in ["0", "-1", "nan", "2.5"]:
        refused(source, out, *spots, "--background-sigma", sigma, code=2, words=["sigma", "at most 2"])
    refused(source, out, *spots, "--margin-px", 1001, code=2, words=["margin", "1000"])
    refused(source, out, *spots, "--error-bound", 2, code=2, words=["--background-sigma"])
    refused(source, out, *spots, "--delete-source", code=2, words=["lossy"])
    refused(source, out, *spots, "--packed-with", "sz3", code=2, words=["sz3", "bszstd"])
    refused(source, out, "--compression", "bszstd", "--margin-px", 3, code=2, words=["--margin-px", "spots"])
    recipe.write_text('[spots]\nmethod = "peakfinder8"\n')
    refused(source, out, *spots, "--recipe", recipe, code=2, words=["peakfinder8", "dispersion"])
    recipe.write_text("[above]\nlevel = 3\n")
    refused(source, out, *spots, "--recipe", recipe, code=2, words=["[spots]"])
    floats = stack_file(tmp_path / "float.h5", np.full((2, 190, 211), np.nan, np.float32))
    refused(floats, out, *spots, code=3, words=["float32", "sz3"])
    small = stack_file(tmp_path / "small.h5", crystals(np.uint16).clip(0, 200).astype(np.uint8))
    refused(small, out, *spots, code=3, words=["uint8"])
    program("repack", source, "-o", out, *spots, check=0)
    done = program("repack", source, "-o", out, *spots, "--background-sigma", 2, check=6)
    assert "exists" in done.stderr and "within 1 sigma" in done.stderr


@needs_lyso
def test_a_run_of_real_frames(tmp_path, recipe):
    program("convert", *sorted(LYSO.glob("raw_*.u16")), "-o", tmp_path / "run", "--calibration", LYSO, "--energy-kev", 12.4, check=0)
    source, copy = tmp_path / "run_master.h5", tmp_path / "copy_master.h5"
    done = program("repack", source, "-o", tmp_path / "copy", "--compression", "spots", "--verify", "--json", check=0)
    totals = json.loads(done.stdout)["totals"]
    loss = totals["loss"]
    assert loss["spots"] == loss["spots_unchanged"] > 1000 and loss["images_lossless"] == 0
    assert totals["chunk_bytes"] < 0.9 * loss["chunk_bytes_lossless"] and abs(loss["error_per_pixel"]) < 1e-4
    before, after = (pixels_of(path, "/entry/data/images").astype(int) for path in (source, copy))
    error = after - before
    assert (error**2 <= np.maximum(before, 0)).all() and (error[before == 32767] == 0).all()
    assert error.sum() == loss["error_sum"]
    assert spots_of(source, recipe) == spots_of(copy, recipe)
    program("check", copy, check=0)


@needs_lyso
def test_an_archive_copy_of_a_conversion(tmp_path, recipe):
    (tmp_path / "home").mkdir()
    keys = ["enabled=true", 'compression="spots"', "background_sigma=1.5", f'directory="{tmp_path / "home"}"']
    settings = [word for key in keys for word in ("--set", f"travel.{key}")]
    raw = sorted(LYSO.glob("raw_*.u16"))
    done = program(
        "convert", *raw, "-o", tmp_path / "run", "--calibration", LYSO, "--energy-kev", 12.4, "--json", *settings, check=0
    )
    [event] = [event for event in map(json.loads, done.stdout.splitlines()) if event.get("event") == "travel"]
    copy, source = tmp_path / "home" / "run_travel_master.h5", tmp_path / "run_master.h5"
    assert (event["master"], event["background_sigma"]) == (str(copy), 1.5) and "error_bound" not in event
    loss = event["totals"]["loss"]
    before, after = (pixels_of(path, "/entry/data/images").astype(int) for path in (source, copy))
    error = after - before
    assert (error**2 <= 1.5**2 * np.maximum(before, 0)).all() and error.sum() == loss["error_sum"]
    assert loss["spots_unchanged"] == loss["spots"] > 1000 and spots_of(source, recipe) == spots_of(copy, recipe)
    wrong = [*settings, "--set", "travel.error_bound=2"]
    done = program("convert", *raw, "-o", tmp_path / "b", "--calibration", LYSO, "--energy-kev", 12.4, *wrong, check=3)
    assert "travel.error_bound has no effect" in done.stderr and "fix:" in done.stderr


@needs_thaumatin
def test_frames_of_thaumatin(tmp_path, recipe):
    fabio = pytest.importorskip("fabio")
    frames = []
    for name in ["0001", "0008"]:
        path = tmp_path / f"{name}.cbf"
        path.write_bytes(bz2.decompress((THAUMATIN / f"thau_3_2_{name}.cbf.bz2").read_bytes()))
        frames.append(fabio.open(str(path)).data.astype(np.int32))
    source, copy = stack_file(tmp_path / "run.h5", np.array(frames)), tmp_path / "copy.h5"
    done = program("repack", source, "-o", copy, "--compression", "spots", "--verify", "--json", check=0)
    totals = json.loads(done.stdout)["totals"]
    loss = totals["loss"]
    assert loss["spots"] == loss["spots_unchanged"] > 1300 and loss["images_lossless"] == 0
    assert totals["chunk_bytes"] < 0.9 * loss["chunk_bytes_lossless"] and abs(loss["error_sum"]) < 100
    assert spots_of(source, recipe) == spots_of(copy, recipe)
