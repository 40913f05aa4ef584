"""Files as arrays: every pixel as h5py reads it, and what goes wrong."""

import pickle
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import h5py
import hdf5plugin  # noqa: F401  registers the filters
import konkordia
import numpy as np
import pytest
from content import MISSING, RUNS, image
from driving import BINARY, program
from test_analyse import others_file

DTYPES = ["int16", "int32", "uint16", "uint32", "float32"]


@pytest.mark.parametrize("run", [*DTYPES, "virtual", "links", "plain", "many", "odd", "repaired"])
def test_every_pixel_of_files_of_konkordia(samples, run):
    dtype, count, _, lost, _, shape = RUNS[run]
    with konkordia.open(samples / f"{run}_master.h5") as images:
        assert images.shape == (count, *shape) and len(images) == count and images.ndim == 3
        assert images.dtype == dtype and images.writer == "Konkordia"
        for number, pixels in enumerate(images):
            assert pixels.dtype == dtype and np.array_equal(pixels, image(run, number)), number
        low, high = images.valid_range
        for number in lost:
            assert not ((images[number] >= low) & (images[number] <= high)).any(), "lost pixels are no measurements"
            assert (images[number] == np.array(MISSING[dtype], dtype)).all()


def test_slices_negative_numbers_and_arrays_to_fill(samples):
    images = konkordia.open(str(samples / "uint16_master.h5"))
    whole = np.stack([image("uint16", number) for number in range(10)])
    assert np.array_equal(images[2:8:3], whole[2:8:3]) and np.array_equal(images[::-4], whole[::-4])
    assert images[20:].shape == (0, 64, 200)
    assert np.array_equal(images[-1], whole[-1])
    out = np.empty((64, 200), "uint16")
    assert images.read(3, out) is out and np.array_equal(out, whole[3])
    for wrong in (np.empty((64, 200), "int16"), np.empty((64, 201), "uint16"), np.empty((128, 200), "uint16")[::2], np.empty(3, "uint16")):
        with pytest.raises(ValueError, match="out must be a uint16 array of shape|one after the other"):
            images.read(3, wrong)
    out.setflags(write=False)
    with pytest.raises(ValueError, match="out"):
        images.read(3, out)
    for wrong in (10, -11, 10**30):
        with pytest.raises(IndexError, match="there are 10, from 0"):
            images[wrong]


def test_masks_limits_and_geometry_are_those_of_the_file(samples):
    images = konkordia.open(samples / "uint16_master.h5")
    with h5py.File(samples / "uint16_master.h5") as file:
        mask = file["/entry/instrument/detector/pixel_mask"][()]
    assert images.mask.dtype == bool and np.array_equal(images.mask, mask != 0)
    assert not images.mask.flags.writeable
    geometry = images.geometry
    assert geometry.shape == (64, 200) and geometry.distance_mm == pytest.approx(150)
    assert geometry.beam_center_px == pytest.approx((100.5, 30.25))
    assert geometry.pixel_size_um == pytest.approx((75, 75))
    again = pickle.loads(pickle.dumps(geometry))
    assert again == geometry and hash(again) == hash(geometry) and again != images
    bare = konkordia.open(samples / "bare_master.h5")
    assert bare.geometry is None and "not known" in bare.geometry_missing
    with pytest.raises(konkordia.KonkordiaError, match="no profile can be made") as error:
        bare.azint(0)
    assert "give detector_distance_mm" in error.value.hint


@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint16", "uint32", "int32", "float32"])
def test_files_of_other_programs(tmp_path, dtype):
    stack = (np.random.default_rng(1).random((3, 20, 30)) * 100).astype(dtype)
    images = konkordia.open(others_file(tmp_path / "others.h5", stack))
    assert images.writer == "another program" and images.dtype == dtype
    assert np.array_equal(images[:], stack)


def test_a_file_that_is_written_by_the_demonstration(tmp_path):
    program("demo", "--images", 20, "--dir", tmp_path, check=0)
    with konkordia.open(tmp_path / "demo_master.h5") as images, h5py.File(tmp_path / "demo_master.h5") as file:
        assert np.array_equal(images[:], file["/entry/data/data_000001"][()])
        assert "20 images of 512 x 1024 pixels, int16" in repr(images)
        page = images._repr_html_()
        assert "data:image/png;base64," in page and "distance" in page


def test_what_cannot_be_opened_says_what_to_do(tmp_path, samples):
    def refused(*paths, **options):
        with pytest.raises(konkordia.KonkordiaError) as error:
            konkordia.open(paths if len(paths) > 1 else paths[0], **options)
        assert error.value.hint and "\n  hint: " in str(error.value)
        return str(error.value)

    assert "No such file" in refused(tmp_path / "nowhere.h5")
    (tmp_path / "text.h5").write_text("no HDF5")
    refused(tmp_path / "text.h5")
    assert "is a directory" in refused(tmp_path).lower()
    assert "raw words cannot be analysed" in refused(samples / "raw_master.h5", raw=False)
    assert "does not say where its modules are" in refused(samples / "raw_master.h5")
    refused(samples / "uint16_master.h5", samples / "int16_master.h5")
    assert 'no channel "none"' in refused(samples / "uint16_master.h5", channel="none")
    # A name of any length and letters.
    name = tmp_path / ("λ" * 100 + ".h5")
    assert "λλλ" in refused(name)
    with pytest.raises(konkordia.KonkordiaError):
        konkordia.open([])


def test_a_damaged_image_and_a_closed_file(tmp_path):
    program("demo", "--images", 8, "--dir", tmp_path, check=0)
    data = next(tmp_path.glob("demo_data_*.h5"))
    with h5py.File(data) as file:
        chunk = file["/entry/data/data"].id.get_chunk_info(3)
    damaged = bytearray(data.read_bytes())
    damaged[chunk.byte_offset + 12 : chunk.byte_offset + 60] = bytes(48)
    data.write_bytes(damaged)
    images = konkordia.open(tmp_path / "demo_master.h5")
    assert images[2].any()
    with pytest.raises(konkordia.KonkordiaError):
        images[3]
    assert images[4].any(), "the others are still read"
    images.close()
    images.close()
    with pytest.raises(konkordia.KonkordiaError, match="the files are closed"):
        images[0]
    assert repr(images).endswith("closed>")


def test_threads_share_files_and_processes_pickle_them(samples):
    images = konkordia.open(samples / "many_master.h5")
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(images.read, list(range(24)) * 8))
    for number, pixels in zip(list(range(24)) * 8, found, strict=True):
        assert np.array_equal(pixels, image("many", number))
    again = pickle.loads(pickle.dumps(images))
    images.close()
    assert np.array_equal(again[5], image("many", 5))
    code = "import pickle, sys; images = pickle.load(sys.stdin.buffer); print(int(images[7].sum()))"
    done = subprocess.run(
        [sys.executable, "-c", code], input=pickle.dumps(again), capture_output=True, check=True, env={"PYTHONPATH": ":".join(sys.path)}
    )
    assert int(done.stdout) == int(image("many", 7).sum())


def test_other_threads_run_while_a_file_is_read(samples):
    images, ran, over = konkordia.open(samples / "odd_master.h5"), [], threading.Event()

    def count():
        while not over.is_set():
            ran.append(1)

    other = threading.Thread(target=count)
    other.start()
    for _ in range(20):
        images[:]
    over.set()
    other.join()
    assert len(ran) > 100


def test_import_is_quick_and_brings_nothing_along():
    code = "import sys, numpy, time; begun = time.perf_counter(); import konkordia; print(time.perf_counter() - begun, *sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONPATH": ":".join(sys.path)})
    _, *modules = done.stdout.split()
    # How long it takes is measured by benches/python.py; here only what it loads.
    assert "konkordia._native" in modules and not {"h5py", "asyncio", "pandas", "xarray"} & set(modules)


def test_the_version_is_that_of_the_program():
    said = subprocess.run([BINARY, "version"], capture_output=True, text=True, check=True).stdout
    assert konkordia.__version__ in said
